"""What `python -m darrm.verify` shows: one line a claim, plain data, and a page that a person can read and sign."""

from collections.abc import Iterator
from dataclasses import asdict
from html import escape
from typing import Any

from darrm.account.report import spent_by, table_text
from darrm.system.command_line import spread
from darrm.verify.audit import Audit
from darrm.verify.plain_words import to_quote, who_may_know
from darrm.verify.table import exact_of
from darrm.verify.verdicts import CLAIMED, CONSISTENT, FALSE, PROVED, VERDICTS

_LINES = 12  # of a table of ε: each may compose a loss distribution
_DIGEST_SHOWN = 16  # characters
_MEANINGS = {
    PROVED: "recomputed by this audit, with every rounding bounded",
    CONSISTENT: "agrees with everything else that was given; a careful forgery would, too",
    CLAIMED: "cannot be seen in the files: whoever signs believes the maker",
    FALSE: "contradicted by the files themselves",
}
_STYLE = """
:root { color-scheme: light; }
body { font: 16px/1.5 Georgia, 'Times New Roman', serif; color: #1c1c1c; max-width: 60rem; margin: 2.5rem auto;
       padding: 0 1.5rem; background: #fff; }
h1 { font-size: 1.9rem; margin: 0 0 .2rem; } h2 { font-size: 1.25rem; margin: 2.2rem 0 .6rem; }
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
    return "\n".join([*lines, *map(str, audit.verdicts), *closing]) + "\n"


def json_report(audit: Audit) -> dict[str, Any]:
    """Write the same as plain data; `darrm/schemas/verify_report.json` describes it."""
    table, ledger = audit.table, audit.ledger
    return {
        "format": "darrm verify report",
        "version": 1,
        "made": audit.made,
        "status": audit.status,
        "files": [asdict(file) for file in audit.files],
        "verdicts": [asdict(verdict) for verdict in audit.verdicts],
        "counts": audit.counts,
        "who_may_know": who_may_know(audit),
        "quote": to_quote(audit),
        "table": None if table is None else {"digest": table.digest, "problem": table.problem.to_json()},
        "ledger": None
        if ledger is None
        else {
            "budget": ledger.budget.to_json(),
            "kinds": ledger.kinds,
            "spent": ledger.spent.to_json(),
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
        },
        "labels": None if audit.labels is None else int(audit.labels.size),
        "attack": audit.attack,
        "versions": dict(audit.versions),
    }


def html_report(audit: Audit) -> str:
    """Write one page without scripts and without anything from elsewhere."""
    parts = [
        _head(audit),
        _section("Who may know what", "".join(f"<p>{escape(sentence)}</p>" for sentence in who_may_know(audit))),
        _section("The claims, one by one", _verdicts(audit)),
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
    problem = (
        "" if audit.table is None else f"{audit.table.problem.voters}, released {audit.table.problem.target}-private"
    )
    if bad:
        result = (
            f"{bad} of {len(audit.verdicts)} claims {'is' if bad == 1 else 'are'} false. Do not rely on this release."
        )
    else:
        others = ", ".join(f"{count} {name}" for name, count in audit.counts.items() if count)
        result = f"Nothing false was found in {len(audit.verdicts)} claims: {others}."
    shown = f"{escape(result)}<br>{escape(to_quote(audit))}"
    return (
        f'<h1>Audit of a private release</h1>\n<p class="made">{escape(problem)}<br>made {escape(audit.made)} by darrm '
        f'{escape(audit.versions["darrm"])}</p>\n<p class="result{" bad" if bad else ""}">{shown}</p>\n'
    )


def _verdicts(audit: Audit) -> str:
    order = {FALSE: 0, PROVED: 1, CONSISTENT: 2, CLAIMED: 3}
    rows = "".join(
        f'<tr><td class="verdict {verdict.verdict.replace(" ", "-")}">{verdict.verdict}</td>'
        f'<td class="about">{verdict.about}</td>'
        f'<td>{escape(verdict.claim)}<span class="reason">{escape(verdict.reason)}</span></td></tr>\n'
        for verdict in sorted(audit.verdicts, key=lambda verdict: order[verdict.verdict])
    )
    words = "".join(f"<b>{name}</b>: {escape(_MEANINGS[name])}. " for name in VERDICTS)
    return f'<p class="note">{words}</p>\n' + _table(("verdict", "about", "claim, and what was found"), rows)


def _figures(audit: Audit) -> Iterator[str]:
    if audit.table is None:
        return
    profile, target = audit.table.profile, audit.table.problem.target
    if profile is not None:
        chosen = spread(len(profile.epsilons), _LINES)
        rows = "".join(_row(f"{profile.epsilons[place]:.4g}", f"{profile.deltas[place]:.4g}") for place in chosen)
        caption = f"<p>The smallest δ of one label for some ε; claimed is {escape(str(target))}.</p>"
        yield _section("What one label costs", caption + _table(("ε", "δ"), rows))
    if audit.ledger is not None and audit.ledger.spent.queries:
        delta, charge = audit.ledger.budget.delta, exact_of(audit.table).cost()
        counts = [place + 1 for place in spread(audit.ledger.spent.queries, _LINES)]
        spent = {count: spent_by(charge, count, delta, audit.table.problem.voters) for count in counts}
        yield _section("What several labels cost", f"<pre>{escape(table_text(charge, spent, delta))}</pre>")


def _log(audit: Audit) -> Iterator[str]:
    if audit.ledger is None:
        return
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
        for entry in audit.ledger.entries
    )
    heads = ("time", "labels", "what", "note", "questions", "digest of the table", "digest of the labels")
    spent = f"<p>Budget {escape(str(audit.ledger.budget))}; spent: {escape(str(audit.ledger.spent))}.</p>"
    yield _section("The ledger’s log", spent + _table(heads, rows))


def _files(audit: Audit) -> str:
    rows = "".join(
        f"<tr><td>{file.role}</td><td>{escape(file.path)}</td><td>{file.size:,}</td><td><code>{file.sha256}</code></td></tr>\n"
        for file in audit.files
    )
    digest = "" if audit.table is None else f"<p>Digest of the table’s numbers: <code>{audit.table.digest}</code></p>"
    versions = ", ".join(f"{name} {number}" for name, number in audit.versions.items())
    return _table(("file", "name", "bytes", "SHA-256"), rows) + digest + f"<p>{escape(versions)}</p>"


def _signature(audit: Audit) -> str:
    claimed = audit.counts["claimed by the maker"]
    return (
        "<h2>Signature</h2>\n<p>I have read this report. I compared the SHA-256 of the files with those that were "
        f"published, and I take the {claimed} claims that the files cannot show from whoever made them.</p>\n"
        '<div class="sign"><div>name</div><div>date</div><div>signature</div></div>\n'
    )
