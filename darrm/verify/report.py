"""Write the report of `darrm verify`: the answer, its assumptions, and every check; as text, JSON or HTML."""

from collections.abc import Iterator
from dataclasses import asdict
from html import escape
from textwrap import wrap
from typing import Any

from darrm.verify.audit import Audit
from darrm.verify.formats import Run
from darrm.verify.ledger import LedgerAudit
from darrm.verify.numbers import pair_at_most
from darrm.verify.verdicts import ASSUMED, CONSISTENT, COST, FALSE, PROVED, TOPICS, TOTAL, UNKNOWN, VERDICTS, Verdict

PASS, FAIL, OPEN = "PASS", "FAIL", "OPEN"  # OPEN: nothing is false, and the answer is not proved
_MOST_ANSWERS, _MOST_ASSUMPTIONS, _MOST_UNKNOWN = 2, 5, 3  # lines
_WIDTH = 100
_LOGGED = 1000  # entries of a log: a page stays readable
_DIGEST_SHOWN = 16  # characters
_MEANINGS = {
    PROVED: "proved by this verifier alone, in exact or enclosed arithmetic",
    CONSISTENT: "agrees with everything else that was given; a careful forgery would, too",
    ASSUMED: "no file can show it; whoever relies on this report relies on it, too",
    UNKNOWN: "not decided by what was given; the reason says what would decide it",
    FALSE: "contradicted by the files themselves",
}
_STYLE = """
:root { color-scheme: light; }
body { font: 15px/1.45 system-ui, sans-serif; color: #1c1c1c; max-width: 60rem; margin: 2rem auto; padding: 0 1.5rem;
       background: #fff; }
h1 { font-size: 1.6rem; margin: 0 0 .2rem; } h2 { font-size: 1.15rem; margin: 1.8rem 0 .5rem; }
h3 { font-size: 1rem; margin: 1.2rem 0 .3rem; overflow-wrap: anywhere; } .note { color: #555; font-size: .9rem; }
.result { border-left: .4rem solid #1b6e3c; background: #eef6f0; padding: .7rem 1rem; margin: 1rem 0;
          font-weight: 600; }
.result.fail { border-color: #a31515; background: #fbeeee; }
.result.open { border-color: #8a5a00; background: #fbf6ec; }
table { border-collapse: collapse; width: 100%; font-size: .88rem; }
th, td { text-align: left; vertical-align: top; padding: .3rem .6rem .3rem 0; border-bottom: 1px solid #ddd; }
td, code { overflow-wrap: anywhere; } .verdict { white-space: nowrap; font-weight: 600; }
.reason { color: #555; display: block; } code { font: .85em ui-monospace, Menlo, Consolas, monospace; }
.proved-independently { color: #1b6e3c; } .consistent { color: #1f5a94; } .assumed { color: #8a5a00; }
.unknown { color: #6b3fa0; } .false { color: #a31515; }
.sign { display: grid; grid-template-columns: 2fr 1fr 2fr; gap: 2rem; margin-top: 3rem; break-inside: avoid; }
.sign div { border-top: 1px solid #1c1c1c; padding-top: .3rem; font-size: .9rem; }
@media print { body { margin: 0; max-width: none; font-size: 9pt; } tr { break-inside: avoid; } }
"""


def answer(audit: Audit) -> list[tuple[str, str]]:
    """Return the answer, a word and its claim, for each ledger, else for each release."""
    false = [verdict for verdict in audit.verdicts if verdict.verdict == FALSE]
    if false:
        first = false[0]
        where = f"{first.file}: " if first.file else ""
        return [(FAIL, f"{where}it is false that {first.claim} ({first.reason})")]
    totals = [verdict for verdict in audit.verdicts if verdict.about == TOTAL and verdict.file in audit.ledgers]
    claims = [one for one in totals if one.verdict != ASSUMED or "published" in one.reason]
    if not claims:
        plans = [one for one in audit.verdicts if one.about == TOTAL and "as planned" in one.claim]
        claims = plans or [one for one in audit.verdicts if one.about == COST and _is_of_a_label(one, audit)]
    if not claims:
        return [(OPEN, "nothing that answers or pays is among the files")]
    several = len({claim.file for claim in claims}) > 1
    return [
        (
            PASS if claim.verdict == PROVED else OPEN,
            f"{f'{claim.file}: ' if several else ''}{claim.claim}{'' if claim.verdict == PROVED else _doubt(claim)}",
        )
        for claim in claims
    ]


def _is_of_a_label(verdict: Verdict, audit: Audit) -> bool:
    starts = ("one label is", "one query costs", "test and labels", "the Rényi curve")
    return verdict.file in audit.releases and verdict.claim.startswith(starts)


def _doubt(claim: Verdict) -> str:
    return f" is {claim.verdict}: {claim.reason}"


def assumptions(audit: Audit) -> list[tuple[str, str]]:
    """Return every assumption once, with a way to check it."""
    found = dict.fromkeys((one.claim, one.reason) for one in audit.verdicts if one.verdict == ASSUMED)
    return list(found)


def text_report(audit: Audit, *, every: bool = False, page: str = "") -> str:
    """Write the answer, the assumptions and the counts; with ``every`` all checks, file by file."""
    answers, counts = answer(audit), audit.counts
    lines = [line for word, text in answers[:_MOST_ANSWERS] for line in _wrapped(f"{word}  {text}")]
    lines += [f"      and {len(answers) - _MOST_ANSWERS} more answers"] if len(answers) > _MOST_ANSWERS else []
    rests = assumptions(audit)
    lines += ["assuming"] if rests else []
    shown = rests if every or len(rests) <= _MOST_ASSUMPTIONS + 1 else rests[:_MOST_ASSUMPTIONS]
    lines += [f"  A{number:<3}{claim:<52} {reason}" for number, (claim, reason) in enumerate(shown, 1)]
    lines += [f"  and {len(rests) - len(shown)} more"] if len(shown) < len(rests) else []
    unknown = [one for one in audit.verdicts if one.verdict == UNKNOWN]
    lines += [f"unknown: {one.claim} ({one.reason})" for one in unknown[:_MOST_UNKNOWN]]
    proved = ", ".join(
        topic for topic in TOPICS if any((one.about, one.verdict) == (topic, PROVED) for one in audit.verdicts)
    )
    lines.append(f"{PROVED:<22} {proved or 'nothing'}")
    lines.append(
        f"{CONSISTENT:<22} {counts[CONSISTENT]} checks of files   unknown {counts[UNKNOWN]}   false {counts[FALSE]}"
    )
    lines.append(
        f"Report written to {page}    (every check: --all)" if page else "(every check: --all; a page: --report)"
    )
    lines = [_cut(line) for line in lines]
    return "\n".join([*lines, *(_every(audit) if every else [])]).replace("\r", "\\r") + "\n"


def _wrapped(text: str) -> list[str]:
    """Break an answer into at most three lines."""
    return wrap(
        text.replace("\n", "\\n"),
        _WIDTH,
        subsequent_indent="      ",
        max_lines=3,
        placeholder=" …",
        break_on_hyphens=False,
    )


def _cut(line: str) -> str:
    line = line.replace("\n", "\\n")
    return line if len(line) <= _WIDTH else f"{line[: _WIDTH - 1]}…"


def _every(audit: Audit) -> Iterator[str]:
    for path in dict.fromkeys(verdict.file for verdict in audit.verdicts):
        yield from ("", (path or "all files").replace("\n", "\\n"))
        yield from (str(verdict).replace("\n", "\\n") for verdict in audit.verdicts if verdict.file == path)
    yield ""
    for file in audit.files:
        path = file.path.replace("\n", "\\n")
        yield f"{file.role:<10}{path}, {file.size:,} bytes, SHA-256 {file.sha256}"


def json_report(audit: Audit) -> dict[str, Any]:
    """Write the report as plain data; `darrm/schemas/verify_report.json` describes it."""
    return {
        "format": "darrm verify report",
        "version": 1,
        "made": audit.made,
        "status": audit.status,
        "answers": [{"answer": word, "about": text} for word, text in answer(audit)],
        "assumptions": [{"claim": claim, "check": reason} for claim, reason in assumptions(audit)],
        "counts": audit.counts,
        "verdicts": [asdict(verdict) for verdict in audit.verdicts],
        "files": [asdict(file) for file in audit.files],
        "releases": [
            {"file": path, "digest": one.digest, "holds": "tested run" if isinstance(one, Run) else one.what}
            for path, one in audit.releases.items()
        ],
        "ledgers": [{"file": path, **_ledger(one)} for path, one in audit.ledgers.items()],
        "labels": [{"file": path, "labels": file.size} for path, file in audit.labels.items()],
        "attacks": [{"file": path, **attack} for path, attack in audit.attacks.items() if attack],
    }


def _ledger(audit: LedgerAudit) -> dict[str, Any]:
    ledger, total = audit.ledger, audit.total[1] if audit.ledger.entries else None
    return {
        "budget": {"epsilon": ledger.epsilon, "delta": ledger.delta},
        "composition": ledger.composition,
        "proved": None if total is None or total.stated else {"epsilon": total.epsilon, "bound": total.how},
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
    """Write one page, in the order of the text, without scripts and external resources."""
    answers = "".join(f'<p class="result {word.lower()}">{word}: {escape(text)}</p>\n' for word, text in answer(audit))
    rests = "".join(
        f"<li>{escape(claim)} <span class=note>({escape(reason)})</span></li>" for claim, reason in assumptions(audit)
    )
    counts = ", ".join(f"{count} {name}" for name, count in audit.counts.items())
    parts = [
        f"<h1>Audit of a private release</h1>\n<p class=note>{escape(audit.made)}</p>\n{answers}",
        f"<h2>Assumptions</h2>\n<ol>{rests}</ol>\n" if rests else "",
        f"<h2>Checks</h2>\n<p class=note>{counts}. {_words()}</p>\n{''.join(_checks(audit))}",
        "".join(_log(one) for one in audit.ledgers.values()),
        f"<h2>Files</h2>\n{_files(audit)}",
        _signature(audit),
    ]
    policy = "default-src 'none'; style-src 'unsafe-inline'"
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width">\n<title>Audit of a private release</title>\n'
        f"<style>{_STYLE}</style>\n</head>\n<body>\n{''.join(parts)}</body>\n</html>\n"
    )


def _words() -> str:
    return " ".join(f"<b>{name}</b>: {escape(_MEANINGS[name])}." for name in VERDICTS)


def _row(*cells: object) -> str:
    return "<tr>" + "".join(f"<td>{escape(str(cell))}</td>" for cell in cells) + "</tr>\n"


def _table(heads: tuple[str, ...], rows: str) -> str:
    names = "".join(f"<th>{escape(head)}</th>" for head in heads)
    return f"<table>\n<thead><tr>{names}</tr></thead>\n<tbody>\n{rows}</tbody>\n</table>\n"


def _checks(audit: Audit) -> Iterator[str]:
    order = (FALSE, UNKNOWN, PROVED, CONSISTENT, ASSUMED)
    for path in dict.fromkeys(verdict.file for verdict in audit.verdicts):
        own = [one for one in audit.verdicts if one.file == path and one.verdict != ASSUMED]
        rows = "".join(
            f'<tr><td class="verdict {one.verdict.replace(" ", "-")}">{one.verdict}</td>'
            f'<td>{escape(one.claim)}<span class="reason">{escape(one.reason)}</span></td></tr>\n'
            for one in sorted(own, key=lambda one: order.index(one.verdict))
        )
        if rows:
            yield f"<h3>{escape(path or 'all files')}</h3>\n" + _table(("verdict", "claim, and what was found"), rows)


def _log(audit: LedgerAudit) -> str:
    rows = "".join(
        _row(
            *(entry.time, f"{entry.count:,}", entry.what, entry.note),
            *(entry.table[:_DIGEST_SHOWN] or "–", entry.labels[:_DIGEST_SHOWN] or "–"),
        )
        for entry in audit.ledger.entries[:_LOGGED]
    )
    left = len(audit.ledger.entries) - _LOGGED
    more = f"<p>{left:,} more entries: `darrm account` lists all.</p>" if left > 0 else ""
    heads = ("time", "queries", "what", "note", "digest of what answered", "digest of the labels")
    budget = f"<p>Budget {escape(pair_at_most(*audit.ledger.budget))}, composition {audit.ledger.composition}.</p>"
    return f"<h2>Entries of {escape(audit.path)}</h2>\n{budget}{_table(heads, rows)}{more}"


def _files(audit: Audit) -> str:
    rows = "".join(_row(file.role, file.path, f"{file.size:,}", file.sha256) for file in audit.files)
    return _table(("file", "name", "bytes", "SHA-256"), rows)


def _signature(audit: Audit) -> str:
    number = len(assumptions(audit))
    return (
        "<h2>Signature</h2>\n<p>I have read this report. I compared the SHA-256 of the files with those that were "
        f"published, and I accept the {number} assumptions.</p>\n"
        '<div class="sign"><div>name</div><div>date</div><div>signature</div></div>\n'
    )
