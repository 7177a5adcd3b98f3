"""What `python -m darrm.verify` shows: one line a claim, plain data, and a page that a person can read and sign."""

from collections.abc import Iterator
from dataclasses import asdict
from html import escape
from typing import Any

from darrm.account.report import spent_by, table_text
from darrm.proof.table import Table
from darrm.system.command_line import spread
from darrm.verify.audit import Audit
from darrm.verify.ledger import LedgerCopy
from darrm.verify.plain_words import to_quote, who_may_know
from darrm.verify.table import Answering, costs_of, exact_of
from darrm.verify.verdicts import ABOUT_FILE, CLAIMED, CONSISTENT, FALSE, PROVED, UNKNOWN, VERDICTS, Verdict

_LINES = 12  # of a table of ε: each may compose a loss distribution
_LOGGED = 1000  # entries of a log: a page stays readable
_DIGEST_SHOWN = 16  # characters
_MEANINGS = {
    PROVED: "recomputed by this audit, with every rounding bounded",
    CONSISTENT: "agrees with everything else that was given; a careful forgery would, too",
    CLAIMED: "cannot be seen in the files: whoever signs believes the maker",
    UNKNOWN: "what was given does not decide it; the reason says what would",
    FALSE: "contradicted by the files themselves",
}
_STYLE = """
:root { color-scheme: light; }
body { font: 16px/1.5 Georgia, 'Times New Roman', serif; color: #1c1c1c; max-width: 60rem; margin: 2.5rem auto;
       padding: 0 1.5rem; background: #fff; }
h1 { font-size: 1.9rem; margin: 0 0 .2rem; } h2 { font-size: 1.25rem; margin: 2.2rem 0 .6rem; }
h3 { font-size: 1rem; margin: 1.4rem 0 .3rem; overflow-wrap: anywhere; }
.made, .note { color: #555; font-size: .9rem; }
.result { border-left: .4rem solid #1b6e3c; background: #eef6f0; padding: .8rem 1.1rem; margin: 1.4rem 0; }
.result.bad { border-color: #a31515; background: #fbeeee; }
table { border-collapse: collapse; width: 100%; font-size: .9rem; } caption { text-align: left; }
th, td { text-align: left; vertical-align: top; padding: .4rem .6rem .4rem 0; border-bottom: 1px solid #ddd; }
th { font-weight: 600; border-bottom: 2px solid #999; } td.number { text-align: right; }
td, code { overflow-wrap: anywhere; } pre { overflow-x: auto; font-size: .8rem; }
 code { font: .85em ui-monospace, Menlo, Consolas, monospace; }
.verdict, .about { white-space: nowrap; } .verdict { font-weight: 600; } .reason { color: #555; display: block; }
.proved-here { color: #1b6e3c; } .consistent { color: #1f5a94; } .claimed-by-the-maker { color: #8a5a00; }
.cannot-be-known { color: #6b3fa0; }
.false { color: #a31515; }
.sign { display: grid; grid-template-columns: 2fr 1fr 2fr; gap: 2rem; margin-top: 3.5rem; break-inside: avoid; }
.sign div { border-top: 1px solid #1c1c1c; padding-top: .3rem; font-size: .9rem; }
@media print { body { margin: 0; max-width: none; font-size: 11pt; } tr { break-inside: avoid; } }
"""


def text_report(audit: Audit) -> str:
    """Write a line a claim, how many got which verdict, and the line to quote."""
    counts = ", ".join(f"{count} {name}" for name, count in audit.counts.items())
    lines = [f"{file.role:<22}{file.path}, {file.size:,} bytes, SHA-256 {file.sha256}" for file in audit.files]
    closing = [f"{len(audit.verdicts)} claims: {counts}", to_quote(audit)]
    claims, several = [], len(_claiming(audit)) > 1
    for path in _claiming(audit):
        claims += ["", path] if several else []
        claims += [str(verdict) for verdict in audit.verdicts if verdict.file == path]
    shown = [*lines, *claims, *([""] if several else []), *closing]
    return "\n".join(line.replace("\n", "\\n") for line in shown) + "\n"


def _claiming(audit: Audit) -> list[str]:
    return list(dict.fromkeys(verdict.file for verdict in audit.verdicts))


def json_report(audit: Audit) -> dict[str, Any]:
    """Write the same as plain data; `darrm/schemas/verify_report.json` describes it."""
    return {
        "format": "darrm verify report",
        "version": 2,
        "made": audit.made,
        "status": audit.status,
        "files": [asdict(file) for file in audit.files],
        "verdicts": [asdict(verdict) for verdict in audit.verdicts],
        "counts": audit.counts,
        "who_may_know": who_may_know(audit),
        "quote": to_quote(audit),
        "releases": [
            {"file": path, "digest": answering.digest, "holds": answering.to_json()["format"]}
            for path, answering in audit.releases.items()
        ],
        "ledgers": [{"file": path, **_ledger(ledger)} for path, ledger in audit.ledgers.items()],
        "labels": [{"file": path, "labels": int(file.labels.size)} for path, file in audit.labels.items()],
        "attacks": [{"file": path, **attack} for path, attack in audit.attacks.items()],
        "versions": dict(audit.versions),
    }


def _ledger(ledger: LedgerCopy) -> dict[str, Any]:
    return {
        "budget": ledger.budget.to_json(),
        "kinds": ledger.kinds,
        "spent": ledger.spent.to_json(),
        "proved": None if ledger.proved is None else {"epsilon": ledger.proved.epsilon, "bound": ledger.proved.name},
        "entries": [
            {
                "time": entry.time,
                "what": entry.what,
                "count": entry.count,
                "note": entry.note,
                "table": entry.table,
                "labels": entry.labels,
                "questions": list(entry.questions),
            }
            for entry in ledger.entries
        ],
    }


def html_report(audit: Audit) -> str:
    """Write one page without scripts and without anything from elsewhere."""
    parts = [
        _head(audit),
        _section("Who may know what", "".join(f"<p>{escape(sentence)}</p>" for sentence in who_may_know(audit))),
        *_verdicts(audit),
        *_figures(audit),
        *_log(audit),
        _section("Files and versions", _files(audit)),
        _signature(audit),
    ]
    policy = "default-src 'none'; style-src 'unsafe-inline'"
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width">\n<title>Audit of a private release</title>\n'
        f"<style>{_STYLE}</style>\n</head>\n<body>\n{''.join(parts)}</body>\n</html>\n"
    )


def _section(title: str, content: str) -> str:
    return f"<h2>{escape(title)}</h2>\n{content}\n"


def _row(*cells: object) -> str:
    return "<tr>" + "".join(f"<td>{escape(str(cell))}</td>" for cell in cells) + "</tr>\n"


def _table(heads: tuple[str, ...], rows: str) -> str:
    names = "".join(f"<th>{escape(head)}</th>" for head in heads)
    return f"<table>\n<thead><tr>{names}</tr></thead>\n<tbody>\n{rows}</tbody>\n</table>"


def _head(audit: Audit) -> str:
    bad = audit.counts[FALSE]
    about = [f"{costs_of(answering).voters}, {_promise(answering)}" for answering in audit.releases.values()]
    if bad:
        result = (
            f"{bad} of {len(audit.verdicts)} claims {'is' if bad == 1 else 'are'} false. Do not rely on this release."
        )
    else:
        others = ", ".join(f"{count} {name}" for name, count in audit.counts.items() if count)
        result = f"Nothing false was found in {len(audit.verdicts)} claims: {others}."
    shown = f"<b>{escape(to_quote(audit))}</b><br>{escape(result)}"
    lines = "<br>".join(map(escape, dict.fromkeys(about)))
    return (
        f'<h1>Audit of a private release</h1>\n<p class="made">{lines}<br>made '
        f"{escape(audit.made)} by darrm {escape(audit.versions['darrm'])}</p>\n"
        f'<p class="result{" bad" if bad else ""}">{shown}</p>\n'
    )


def _promise(answering: Answering) -> str:
    return f"released {answering.problem.target}-private" if isinstance(answering, Table) else answering.charge().what


def _verdicts(audit: Audit) -> Iterator[str]:
    order = {FALSE: 0, PROVED: 1, CONSISTENT: 2, CLAIMED: 3, UNKNOWN: 4}
    words = "".join(f"<b>{name}</b>: {escape(_MEANINGS[name])}. " for name in VERDICTS)
    yield _section("The claims, file by file", f'<p class="note">{words}</p>')
    rest = [verdict for verdict in audit.verdicts if verdict.about == ABOUT_FILE]
    for path in _claiming(audit):
        own = [verdict for verdict in audit.verdicts if verdict.file == path and verdict not in rest]
        if own:
            rows = "".join(_claim(verdict) for verdict in sorted(own, key=lambda verdict: order[verdict.verdict]))
            yield f"<h3>{escape(path)}</h3>\n" + _table(("verdict", "about", "claim, and what was found"), rows)
    if rest:
        rows = "".join(_row(verdict.file, verdict.reason) for verdict in rest)
        yield _section("What was not judged", _table(("file", "why"), rows))


def _claim(verdict: Verdict) -> str:
    name = verdict.verdict.replace(" ", "-")
    return (
        f'<tr><td class="verdict {name}">{verdict.verdict}</td><td class="about">{verdict.about}</td>'
        f'<td>{escape(verdict.claim)}<span class="reason">{escape(verdict.reason)}</span></td></tr>\n'
    )


def _figures(audit: Audit) -> Iterator[str]:
    for path, table in audit.tables.items():
        of_file = f" ({path})" if len(audit.releases) > 1 else ""
        profile, target = table.profile, table.problem.target
        if profile is not None:
            chosen = spread(len(profile.epsilons), _LINES)
            rows = "".join(_row(f"{profile.epsilons[place]:.4g}", f"{profile.deltas[place]:.4g}") for place in chosen)
            caption = f"<p>The smallest δ of one label for some ε; claimed is {escape(str(target))}.</p>"
            yield _section(f"What one label costs{of_file}", caption + _table(("ε", "δ"), rows))
        for ledger in audit.ledgers.values():
            if ledger.spent.queries and table.digest in ledger.digests:
                delta, charge = ledger.budget.delta, exact_of(table).cost()
                counts = [place + 1 for place in spread(ledger.spent.queries, _LINES)]
                spent = {count: spent_by(charge, count, delta, table.problem.voters) for count in counts}
                costs = f"<pre>{escape(table_text(charge, spent, delta))}</pre>"
                yield _section(f"What several labels cost{of_file}", costs)


def _log(audit: Audit) -> Iterator[str]:
    for path, ledger in audit.ledgers.items():
        rows = "".join(
            _row(
                entry.time,
                f"{entry.count:,}",
                entry.what,
                entry.note,
                ", ".join(entry.questions) or "–",
                entry.table[:_DIGEST_SHOWN] or "–",
                entry.labels[:_DIGEST_SHOWN] or "–",
            )
            for entry in ledger.entries[:_LOGGED]
        )
        heads = ("time", "labels", "what", "note", "questions", "digest of what answered", "digest of the labels")
        spent = f"<p>Budget {escape(str(ledger.budget))}; spent: {escape(str(ledger.spent))}.</p>"
        left = len(ledger.entries) - _LOGGED
        more = (
            f"<p>{left:,} more entries: darrm account --ledger {escape(path)} --log lists all.</p>" if left > 0 else ""
        )
        name = f" ({path})" if len(audit.ledgers) > 1 else ""
        yield _section(f"The ledger’s log{name}", spent + _table(heads, rows) + more)


def _files(audit: Audit) -> str:
    rows = "".join(
        f"<tr><td>{file.role}</td><td>{escape(file.path)}</td><td>{file.size:,}</td><td><code>{file.sha256}</code></td></tr>\n"
        for file in audit.files
    )
    digest = "".join(
        f"<p>Digest of what {escape(path)} releases with: <code>{answering.digest}</code></p>"
        for path, answering in audit.releases.items()
    )
    versions = ", ".join(f"{name} {number}" for name, number in audit.versions.items())
    return _table(("file", "name", "bytes", "SHA-256"), rows) + digest + f"<p>{escape(versions)}</p>"


def _signature(audit: Audit) -> str:
    claimed, unknown = audit.counts[CLAIMED], audit.counts[UNKNOWN]
    return (
        "<h2>Signature</h2>\n<p>I have read this report. I compared the SHA-256 of the files with those that were "
        f"published, and I take the {claimed} claims that the files cannot show from whoever made them. "
        f"{unknown} claims cannot be known from what was given.</p>\n"
        '<div class="sign"><div>name</div><div>date</div><div>signature</div></div>\n'
    )
