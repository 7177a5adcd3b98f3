"""Audit files: a verdict on each of their claims, and the report of them as text, JSON or HTML."""

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from html import escape
from importlib import import_module
from itertools import chain
from pathlib import Path
from textwrap import wrap
from typing import get_args

from darrm.verify.chain import (
    SIGNED,
    LedgerDigest,
    PublicKey,
    Receipt,
    judge_digests,
    judge_history,
    judge_receipt,
    read_digests,
    read_ledger,
    read_postgres,
    read_receipt,
)
from darrm.verify.claims import judge_figure, judge_members, judge_note, judge_plan, read_members
from darrm.verify.costs import Cost, check_size, judge_release
from darrm.verify.files import LabelsFile, Piece, read_pieces
from darrm.verify.formats import GAMMA, Answering, Json, Run, Table, parse_json, read_release
from darrm.verify.gamma import judge_optimality
from darrm.verify.ledger import LedgerAudit, assign_releases, judge_labels, judge_ledger, judge_populations
from darrm.verify.verdicts import (
    ASSUMED,
    CONSISTENT,
    FALSE,
    MEANINGS,
    PROVED,
    UNKNOWN,
    VERDICTS,
    FaultError,
    TooLargeError,
    Topic,
    Verdict,
    format_pair,
)

__all__ = ["Audit", "AuditedFile", "audit", "judge_file"]
PASS, FAIL, OPEN = "PASS", "FAIL", "OPEN"  # OPEN: nothing is false, and the answer is not proved
_MAX_ANSWERS, _MAX_ASSUMPTIONS, _MAX_UNKNOWN = 2, 5, 3  # lines
_WIDTH = 100
_MAX_LOG_ENTRIES = 1000  # entries of a log: a page stays readable
_LABEL_CLAIMS = ("one label is", "one query costs", "test and labels", "the Rényi curve")
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


@dataclass(frozen=True)
class AuditedFile:
    """A file as it was when it was read."""

    role: str  # a `Role`, voters or key
    path: str
    size: int  # bytes
    sha256: str


@dataclass(eq=False)
class Audit:
    """All verdicts, and the readable inputs by path."""

    pieces: Sequence[Piece] = ()
    files: list[AuditedFile] = field(default_factory=list)
    verdicts: list[Verdict] = field(default_factory=list)
    releases: dict[str, Answering] = field(default_factory=dict)
    ledgers: dict[str, LedgerAudit] = field(default_factory=dict)
    labels: dict[str, LabelsFile] = field(default_factory=dict)
    receipts: dict[str, Receipt] = field(default_factory=dict)
    notes: dict[str, list[LedgerDigest]] = field(default_factory=dict)
    attacks: dict[str, Json] = field(default_factory=dict)
    made: str = ""  # when, in UTC

    @property
    def status(self) -> int:
        """The exit status: 1 if a claim is false, else 0."""
        return int(any(verdict.verdict == FALSE for verdict in self.verdicts))

    @property
    def counts(self) -> dict[str, int]:
        """How many claims got each verdict."""
        counter = Counter(verdict.verdict for verdict in self.verdicts)
        return {name: counter[name] for name in VERDICTS}

    def add(self, path: str, verdicts: Iterable[Verdict]) -> None:
        """Add verdicts on claims of a file."""
        self.verdicts += [replace(verdict, file=path) for verdict in verdicts]

    def judge(self, role: str, judge: Callable[[Piece], Iterable[Verdict]]) -> None:
        """Judge all pieces of a role. A failure is a verdict on this piece, so that the others are judged."""
        for piece in self.pieces:
            if piece.role != role:
                continue
            try:
                verdicts = list(judge(piece))
            except FaultError as error:
                verdicts = [Verdict(error.about, error.claim, FALSE, str(error))]
            except Exception as error:  # noqa: BLE001 (for any content; no message, which may quote it)
                for inputs in (self.releases, self.ledgers, self.labels):
                    inputs.pop(piece.path, None)
                is_large = isinstance(error, TooLargeError)
                reason = str(error) if is_large else f"its judgement failed ({type(error).__name__})"
                verdicts = [Verdict("file", "this audit understands its content", UNKNOWN, reason)]
            self.add(piece.path, verdicts)


def audit(
    paths: Sequence[Path | str],
    *,
    voters_path: Path | None = None,
    classes: tuple[str, ...] | None = None,
    draws: int | None = None,
    digests: Sequence[LedgerDigest] = (),
    keys: Sequence[PublicKey] = (),
    report: Callable[[str], None] = lambda _text: None,
) -> Audit:
    """Judge every claim of files and folders, in each and between them.

    Parameters
    ----------
    paths
        Files, folders, and URLs of ledgers; nothing is written to them.
    voters_path
        A file with each voter's name, ε and Δ.
    classes
        The names of the labels.
    draws
        Labels of an attack on every release, see `darrm.verify.attack`.
    digests
        Earlier digests of ledgers, besides those of receipts.
    keys
        Public keys of the signers, not from the files.
    report
        Called with a line of progress.

    Raises
    ------
    ValueError
        If a named file has no known format, or there is nothing to judge.
    OSError
        If a file cannot be read.
    """
    result = Audit(list(read_pieces(paths)), made=datetime.now(UTC).isoformat(timespec="seconds"))
    members = {} if voters_path is None else read_members(voters_path)
    for role in ("release", "receipt", "notes"):
        result.judge(role, partial(_judge_piece, result, report))
    _judge_ledgers(result, digests, keys)
    report("comparing files")
    result.labels = {piece.path: piece.labels for piece in result.pieces if piece.labels is not None}
    for role in ("notes", "figure", "labels", "receipt"):
        result.judge(role, partial(_compare_piece, result, classes, keys))
    for path, answering in result.releases.items():
        result.add(path, judge_members(members, answering.voters))
    for piece in result.pieces:
        if piece.role == "other":
            result.add(piece.path, [Verdict("file", "it is not judged", UNKNOWN, piece.reason)])
        result.files += [
            AuditedFile(piece.role, f"{piece.path}{ending}", size, sha256) for ending, size, sha256 in piece.digests
        ]
    named_files = [("voters", voters_path)] if voters_path is not None else []
    for role, file_path in [*named_files, *(("key", Path(key.path)) for key in keys)]:
        content = file_path.read_bytes()
        result.files.append(AuditedFile(role, str(file_path), len(content), hashlib.sha256(content).hexdigest()))
    if draws is not None:
        _attack_releases(result, draws, report)
    return result


def _judge_piece(result: Audit, report: Callable[[str], None], piece: Piece) -> list[Verdict]:
    """Judge a release, or read the digests of a receipt or a note."""
    verdicts = list[Verdict]()
    if piece.role == "release":
        report(f"reading {piece.path}")
        answering, verdicts = judge_file(piece.content)
        result.releases |= {} if answering is None else {piece.path: answering}
    elif piece.role == "receipt":
        result.receipts[piece.path] = read_receipt(piece.path, piece.content)
    else:
        result.notes[piece.path], verdicts = read_digests(piece.path, piece.content)
    return verdicts


def _judge_ledgers(result: Audit, digests: Sequence[LedgerDigest], keys: Sequence[PublicKey]) -> None:
    all_digests = [*digests, *(receipt.digest for receipt in result.receipts.values()), *chain(*result.notes.values())]

    def history(piece: Piece) -> Iterator[Verdict]:
        ledger = read_ledger(piece.parts) if piece.parts else read_postgres(piece.path)
        result.ledgers[piece.path] = LedgerAudit(piece.path, ledger)
        return judge_history(ledger, [digest for digest in all_digests if digest.identity == ledger.identity], keys)

    result.judge("ledger", history)

    def entries(piece: Piece) -> Iterable[Verdict]:
        return judge_ledger(result.ledgers[piece.path]) if piece.path in result.ledgers else ()

    audits = list(result.ledgers.values())
    unused = assign_releases(audits, result.releases)
    result.judge("ledger", entries)
    result.add("", judge_populations(audits))
    for path, answering in unused.items() if audits else ():
        reason = f"no entry of a ledger among the files holds its digest {answering.digest}: it may be unused"
        claim = "it has answered queries that were paid for"
        result.add(path, [Verdict("ledger", claim, UNKNOWN, reason)])
    result.add("", judge_digests(digests, [audit.ledger for audit in audits], by_hand=True))
    if keys and {verdict.verdict for verdict in result.verdicts if verdict.claim == SIGNED} == {UNKNOWN}:
        claim = f"{', '.join(key.path for key in keys)} signed a ledger among the files"
        result.add("", [Verdict("history", claim, FALSE, "no ledger has a signed entry")])


def _compare_piece(
    result: Audit, classes: tuple[str, ...] | None, keys: Sequence[PublicKey], piece: Piece
) -> Iterable[Verdict]:
    ledgers = [item.ledger for item in result.ledgers.values()]
    if piece.role == "notes":
        return judge_note(piece.content, result.notes.get(piece.path, []), ledgers)
    if piece.role == "figure":
        return judge_figure(piece.content, {path: item.ledger for path, item in result.ledgers.items()})
    if piece.role == "labels":
        hashes = [sha256 for _, _, sha256 in piece.file_digests if piece.is_parquet]
        return judge_labels(result.labels[piece.path], result.releases, ledgers, classes, hashes)
    if piece.path not in result.receipts:
        return ()
    pieces = [item for item in result.pieces if item.labels is not None]
    file_hashes = {f"{item.path}{ending}": sha256 for item in pieces for ending, _, sha256 in item.file_digests}
    return judge_receipt(result.receipts[piece.path], ledgers, result.labels, file_hashes, keys)


def _attack_releases(result: Audit, draws: int, report: Callable[[str], None]) -> None:
    """Draw labels from every release; only this runs the rest of darrm."""
    try:
        judge_attack = import_module("darrm.verify.attack").judge_attack
    except ImportError as error:
        raise ValueError(f"--attack runs the release itself, and {error.name} is not installed") from None
    claim = "labels do not refute it"
    for piece in result.pieces:
        if piece.path in result.releases:
            result.attacks[piece.path], verdict, reason = judge_attack(piece.content, draws, report)
            result.add(piece.path, [Verdict("attack", claim, verdict, reason)])
    if not result.releases:
        result.add("", [Verdict("attack", claim, UNKNOWN, "without a table no label was drawn")])


def judge_file(content: bytes) -> tuple[Answering | None, list[Verdict]]:
    """Judge a table, a mechanism or a run, and the plan in its file."""
    claim = "it holds what its format says and nothing else"
    data = parse_json(content)
    try:
        answering = read_release(data)
        if isinstance(answering, Table) and answering.format != GAMMA:
            check_size(answering)
    except TooLargeError:
        raise
    except ValueError as error:
        return None, [Verdict("file", claim, FALSE, str(error))]
    verdicts = [Verdict("file", claim, CONSISTENT, f"its digest is {answering.digest}; a forger could compute it")]
    cost = Cost(answering)
    verdicts += judge_release(cost)
    if isinstance(answering, Table) and answering.format == GAMMA:
        verdicts += judge_optimality(answering, cost.gamma)
    if "plan" in data:
        verdicts += judge_plan(data["plan"], cost)
    return answering, verdicts


def list_answers(audit: Audit) -> list[tuple[str, str]]:
    false_verdicts = [verdict for verdict in audit.verdicts if verdict.verdict == FALSE]
    if false_verdicts:
        first = false_verdicts[0]
        where = f"{first.file}: " if first.file else ""
        return [(FAIL, f"{where}it is false that {first.claim} ({first.reason})")]
    totals = [verdict for verdict in audit.verdicts if verdict.about == "composition" and verdict.file in audit.ledgers]
    claims = [item for item in totals if item.verdict != ASSUMED or "published" in item.reason]
    if not claims:
        plans = [item for item in audit.verdicts if item.about == "composition" and "as planned" in item.claim]
        costs = [item for item in audit.verdicts if item.about == "cost of a label" and item.file in audit.releases]
        claims = plans or [item for item in costs if item.claim.startswith(_LABEL_CLAIMS)]
    if not claims:
        return [(OPEN, "nothing that answers or pays is among the files")]
    has_several_files, answers = len({claim.file for claim in claims}) > 1, []
    for item in claims:
        doubt = "" if item.verdict == PROVED else f" is {item.verdict}: {item.reason}"
        answers.append((OPEN if doubt else PASS, f"{f'{item.file}: ' if has_several_files else ''}{item.claim}{doubt}"))
    return answers


def list_assumptions(audit: Audit) -> list[tuple[str, str]]:
    return list(
        dict.fromkeys((verdict.claim, verdict.reason) for verdict in audit.verdicts if verdict.verdict == ASSUMED)
    )


def text_report(audit: Audit, *, every: bool = False, page: str = "") -> str:
    answers, counts = list_answers(audit), audit.counts
    lines = list[str]()
    for word, text in answers[:_MAX_ANSWERS]:
        answer_text = f"{word}  {text}".replace("\n", "\\n")
        lines += wrap(
            answer_text, _WIDTH, subsequent_indent="      ", max_lines=3, placeholder=" …", break_on_hyphens=False
        )
    lines += [f"      and {len(answers) - _MAX_ANSWERS} more answers"] if len(answers) > _MAX_ANSWERS else []
    assumed = list_assumptions(audit)
    lines += ["assuming"] if assumed else []
    listed = assumed if every or len(assumed) <= _MAX_ASSUMPTIONS + 1 else assumed[:_MAX_ASSUMPTIONS]
    lines += [f"  A{number:<3}{claim:<52} {reason}" for number, (claim, reason) in enumerate(listed, 1)]
    lines += [f"  and {len(assumed) - len(listed)} more"] if len(listed) < len(assumed) else []
    unknown = [item for item in audit.verdicts if item.verdict == UNKNOWN]
    lines += [f"unknown: {item.claim} ({item.reason})" for item in unknown[:_MAX_UNKNOWN]]
    topics = {item.about for item in audit.verdicts if item.verdict == PROVED}
    lines.append(f"{PROVED:<22} {', '.join(topic for topic in get_args(Topic) if topic in topics) or 'nothing'}")
    summary = f"{counts[CONSISTENT]} checks of files   unknown {counts[UNKNOWN]}   false {counts[FALSE]}"
    advice = f"Report written to {page}    (every check: --all)" if page else "(every check: --all; a page: --report)"
    lines = [line.replace("\n", "\\n") for line in (*lines, f"{CONSISTENT:<22} {summary}", advice)]
    lines = [line if len(line) <= _WIDTH else f"{line[: _WIDTH - 1]}…" for line in lines]
    for path in dict.fromkeys(verdict.file for verdict in audit.verdicts) if every else ():
        lines += ["", path or "all files", *(str(verdict) for verdict in audit.verdicts if verdict.file == path)]
    if every:
        lines.append("")
        lines += [f"{item.role:<10}{item.path}, {item.size:,} bytes, SHA-256 {item.sha256}" for item in audit.files]
    return "\n".join(line.replace("\n", "\\n") for line in lines).replace("\r", "\\r") + "\n"


def json_report(audit: Audit) -> dict[str, Json]:
    """See `darrm/schemas/verify_report.json`."""
    return {
        "format": "darrm verify report",
        "version": 1,
        "made": audit.made,
        "status": audit.status,
        "answers": [{"answer": word, "about": text} for word, text in list_answers(audit)],
        "assumptions": [{"claim": claim, "check": reason} for claim, reason in list_assumptions(audit)],
        "counts": audit.counts,
        "verdicts": [asdict(verdict) for verdict in audit.verdicts],
        "files": [asdict(file) for file in audit.files],
        "releases": [
            {"file": path, "digest": item.digest, "holds": "tested run" if isinstance(item, Run) else item.what}
            for path, item in audit.releases.items()
        ],
        "ledgers": [{"file": path, **_describe_ledger(item)} for path, item in audit.ledgers.items()],
        "labels": [{"file": path, "labels": file.size} for path, file in audit.labels.items()],
        "attacks": [{"file": path, **attack} for path, attack in audit.attacks.items() if attack],
    }


def _describe_ledger(audit: LedgerAudit) -> dict[str, Json]:
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
    assumed, counts = list_assumptions(audit), ", ".join(f"{count} {name}" for name, count in audit.counts.items())
    parts = [f"<h1>Audit of a private release</h1>\n<small>{escape(audit.made)}</small>\n"]
    parts += [f'<p class="result {word.lower()}">{word}: {escape(text)}</p>\n' for word, text in list_answers(audit)]
    items = "".join(f"<li>{escape(claim)} <small>({escape(reason)})</small></li>" for claim, reason in assumed)
    parts += [f"<h2>Assumptions</h2>\n<ol>{items}</ol>\n"] if assumed else []
    words = " ".join(f"<b>{name}</b>: {escape(meaning)}." for name, meaning in MEANINGS.items())
    parts.append(f"<h2>Checks</h2>\n<small>{counts}. {words}</small>\n")
    order = (FALSE, UNKNOWN, PROVED, CONSISTENT)
    for path in dict.fromkeys(verdict.file for verdict in audit.verdicts if verdict.verdict != ASSUMED):
        group = [item for verdict in order for item in audit.verdicts if (item.file, item.verdict) == (path, verdict)]
        rows = [(item.verdict, f"{item.claim} ({item.reason})") for item in group]
        parts.append(f"<h3>{escape(path or 'all files')}</h3>\n" + _make_table(("verdict", "claim (reason)"), rows))
    parts += map(_make_log, audit.ledgers.values())
    files = [(file.role, file.path, f"{file.size:,}", file.sha256) for file in audit.files]
    parts.append(f"<h2>Files</h2>\n{_make_table(('file', 'name', 'bytes', 'SHA-256'), files)}")
    parts.append(
        "<h2>Signature</h2>\n<p>I have read this report. I compared the SHA-256 of the files with those that were "
        f"published, and I accept the {len(assumed)} assumptions.</p>\n"
        '<div class="sign"><div>name</div><div>date</div><div>signature</div></div>\n'
    )
    policy = "default-src 'none'; style-src 'unsafe-inline'"
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width">\n<title>Audit of a private release</title>\n'
        f"<style>{_STYLE}</style>\n</head>\n<body>\n{''.join(parts)}</body>\n</html>\n"
    )


def _make_table(heads: tuple[str, ...], rows: Iterable[tuple[object, ...]]) -> str:
    names = "".join(f"<th>{escape(head)}</th>" for head in heads)
    body = "".join(
        f'<tr><td class="{escape(str(row[0]).partition(" ")[0])}">'
        + "</td><td>".join(escape(str(cell)) for cell in row)
        + "</td></tr>\n"
        for row in rows
    )
    return f"<table>\n<thead><tr>{names}</tr></thead>\n<tbody>\n{body}</tbody>\n</table>\n"


def _make_log(audit: LedgerAudit) -> str:
    entries, start = audit.ledger.entries, slice(16)  # characters
    rows = [
        (entry.time, f"{entry.count:,}", entry.what, entry.note, entry.table[start] or "–", entry.labels[start] or "–")
        for entry in entries[:_MAX_LOG_ENTRIES]
    ]
    remaining = len(entries) - _MAX_LOG_ENTRIES
    remark = f"<p>{remaining:,} more entries: `darrm account` lists all.</p>" if remaining > 0 else ""
    heads = ("time", "queries", "what", "note", "digest of what answered", "digest of the labels")
    budget = f"<p>Budget {escape(format_pair(*audit.ledger.budget))}, composition {audit.ledger.composition}.</p>"
    return f"<h2>Entries of {escape(audit.path)}</h2>\n{budget}{_make_table(heads, rows)}{remark}"
