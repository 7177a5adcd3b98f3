"""Write the report of `darrm verify`: the answer, its assumptions, and every check; as text, JSON or HTML."""

from collections.abc import Iterable, Iterator
from dataclasses import asdict
from html import escape
from textwrap import wrap
from typing import Any

from darrm.verify.audit import Audit
from darrm.verify.formats import Run
from darrm.verify.ledger import LedgerAudit
from darrm.verify.numbers import pair_at_most
from darrm.verify.verdicts import ASSUMED, CONSISTENT, COST, FALSE, MEANINGS, PROVED, TOPICS, TOTAL, UNKNOWN

PASS, FAIL, OPEN = "PASS", "FAIL", "OPEN"  # OPEN: nothing is false, and the answer is not proved
_MOST_ANSWERS, _MOST_ASSUMPTIONS, _MOST_UNKNOWN = 2, 5, 3  # lines
_WIDTH = 100
_LOGGED = 1000  # entries of a log: a page stays readable
_DIGEST_SHOWN = 16  # characters
_OF_A_LABEL = ("one label is", "one query costs", "test and labels", "the Rényi curve")
_STYLE = """
body { font: 15px/1.45 system-ui, sans-serif; color: #1c1c1c; max-width: 60rem; margin: 2rem auto; background: #fff; }
h1 { font-size: 1.6rem; } h2 { font-size: 1.15rem; } h3 { font-size: 1rem; } td, h3 { overflow-wrap: anywhere; }
small { color: #555; } .result { border-left: .4rem solid #8a5a00; padding: .7rem 1rem; font-weight: 600; }
table { border-collapse: collapse; width: 100%; font-size: .88rem; }
th, td { text-align: left; vertical-align: top; padding: .3rem .6rem .3rem 0; border-bottom: 1px solid #ddd; }
.pass, .proved { color: #1b6e3c; } .consistent { color: #1f5a94; } .unknown { color: #6b3fa0; }
.fail, .false { color: #a31515; }
.sign div { border-top: 1px solid; }
.sign { display: grid; grid-template-columns: 2fr 1fr 2fr; gap: 2rem; margin-top: 3rem; }
@media print { body { margin: 0; max-width: none; font-size: 9pt; } tr, .sign { break-inside: avoid; } }
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
        costs = [one for one in audit.verdicts if one.about == COST and one.file in audit.releases]
        claims = plans or [one for one in costs if one.claim.startswith(_OF_A_LABEL)]
    if not claims:
        return [(OPEN, "nothing that answers or pays is among the files")]
    several, answers = len({claim.file for claim in claims}) > 1, []
    for one in claims:
        doubt = "" if one.verdict == PROVED else f" is {one.verdict}: {one.reason}"
        answers.append((OPEN if doubt else PASS, f"{f'{one.file}: ' if several else ''}{one.claim}{doubt}"))
    return answers


def assumptions(audit: Audit) -> list[tuple[str, str]]:
    """Return every assumption once, with a way to check it."""
    return list(dict.fromkeys((one.claim, one.reason) for one in audit.verdicts if one.verdict == ASSUMED))


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
    about = {one.about for one in audit.verdicts if one.verdict == PROVED}
    lines.append(f"{PROVED:<22} {', '.join(topic for topic in TOPICS if topic in about) or 'nothing'}")
    found = f"{counts[CONSISTENT]} checks of files   unknown {counts[UNKNOWN]}   false {counts[FALSE]}"
    more = f"Report written to {page}    (every check: --all)" if page else "(every check: --all; a page: --report)"
    lines = [_cut(line) for line in (*lines, f"{CONSISTENT:<22} {found}", more)]
    return "\n".join([*lines, *(_every(audit) if every else [])]).replace("\r", "\\r") + "\n"


def _wrapped(text: str) -> list[str]:
    """Break an answer into at most three lines."""
    text, indent = text.replace("\n", "\\n"), "      "
    return wrap(text, _WIDTH, subsequent_indent=indent, max_lines=3, placeholder=" …", break_on_hyphens=False)


def _cut(line: str) -> str:
    line = line.replace("\n", "\\n")
    return line if len(line) <= _WIDTH else f"{line[: _WIDTH - 1]}…"


def _every(audit: Audit) -> Iterator[str]:
    for path in dict.fromkeys(verdict.file for verdict in audit.verdicts):
        own = [str(verdict) for verdict in audit.verdicts if verdict.file == path]
        yield from (line.replace("\n", "\\n") for line in ("", path or "all files", *own))
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
    fields = ("time", "what", "count", "note", "table", "labels")
    return {
        "budget": {"epsilon": ledger.epsilon, "delta": ledger.delta},
        "composition": ledger.composition,
        "proved": None if total is None or total.stated else {"epsilon": total.epsilon, "bound": total.how},
        "entries": [
            {**{name: getattr(entry, name) for name in fields}, "questions": list(entry.questions)}
            for entry in ledger.entries
        ],
    }


def html_report(audit: Audit) -> str:
    """Write one page, in the order of the text, without scripts and external resources."""
    rests, counts = assumptions(audit), ", ".join(f"{count} {name}" for name, count in audit.counts.items())
    parts = [f"<h1>Audit of a private release</h1>\n<small>{escape(audit.made)}</small>\n"]
    parts += [f'<p class="result {word.lower()}">{word}: {escape(text)}</p>\n' for word, text in answer(audit)]
    listed = "".join(f"<li>{escape(claim)} <small>({escape(reason)})</small></li>" for claim, reason in rests)
    parts += [f"<h2>Assumptions</h2>\n<ol>{listed}</ol>\n"] if rests else []
    words = " ".join(f"<b>{name}</b>: {escape(meaning)}." for name, meaning in MEANINGS.items())
    parts.append(f"<h2>Checks</h2>\n<small>{counts}. {words}</small>\n")
    order = (FALSE, UNKNOWN, PROVED, CONSISTENT)
    for path in dict.fromkeys(verdict.file for verdict in audit.verdicts if verdict.verdict != ASSUMED):
        own = [one for verdict in order for one in audit.verdicts if (one.file, one.verdict) == (path, verdict)]
        rows = [(one.verdict, f"{one.claim} ({one.reason})") for one in own]
        parts.append(f"<h3>{escape(path or 'all files')}</h3>\n" + _table(("verdict", "claim (reason)"), rows))
    parts += map(_log, audit.ledgers.values())
    files = [(file.role, file.path, f"{file.size:,}", file.sha256) for file in audit.files]
    parts.append(f"<h2>Files</h2>\n{_table(('file', 'name', 'bytes', 'SHA-256'), files)}")
    parts.append(
        "<h2>Signature</h2>\n<p>I have read this report. I compared the SHA-256 of the files with those that were "
        f"published, and I accept the {len(rests)} assumptions.</p>\n"
        '<div class="sign"><div>name</div><div>date</div><div>signature</div></div>\n'
    )
    policy = "default-src 'none'; style-src 'unsafe-inline'"
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width">\n<title>Audit of a private release</title>\n'
        f"<style>{_STYLE}</style>\n</head>\n<body>\n{''.join(parts)}</body>\n</html>\n"
    )


def _table(heads: tuple[str, ...], rows: Iterable[tuple[object, ...]]) -> str:
    """Write a table; the first word of a row is its class."""
    names = "".join(f"<th>{escape(head)}</th>" for head in heads)
    body = "".join(
        f'<tr><td class="{escape(str(row[0]).partition(" ")[0])}">'
        + "</td><td>".join(escape(str(cell)) for cell in row)
        + "</td></tr>\n"
        for row in rows
    )
    return f"<table>\n<thead><tr>{names}</tr></thead>\n<tbody>\n{body}</tbody>\n</table>\n"


def _log(audit: LedgerAudit) -> str:
    entries, cut = audit.ledger.entries, slice(_DIGEST_SHOWN)
    rows = [
        (one.time, f"{one.count:,}", one.what, one.note, one.table[cut] or "–", one.labels[cut] or "–")
        for one in entries[:_LOGGED]
    ]
    left = len(entries) - _LOGGED
    more = f"<p>{left:,} more entries: `darrm account` lists all.</p>" if left > 0 else ""
    heads = ("time", "queries", "what", "note", "digest of what answered", "digest of the labels")
    budget = f"<p>Budget {escape(pair_at_most(*audit.ledger.budget))}, composition {audit.ledger.composition}.</p>"
    return f"<h2>Entries of {escape(audit.path)}</h2>\n{budget}{_table(heads, rows)}{more}"
