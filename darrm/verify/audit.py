"""Audit files: a verdict on each of their claims."""

import hashlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib import import_module
from itertools import chain
from pathlib import Path
from typing import Any

from darrm.verify.cards import judge_card, read_card
from darrm.verify.costs import Cost, judge_release
from darrm.verify.estimates import judge_sanitized
from darrm.verify.evidence import ANSWERS, FIGURE, LABELS, LEDGER, NOTES, RECEIPT, ROLES, Piece, pieces_of
from darrm.verify.formats import GAMMA, Answering, Table, parse_json, read_release
from darrm.verify.histograms import check_size
from darrm.verify.history import (
    LedgerDigest,
    PublicKey,
    Receipt,
    digests_in,
    judge_digests,
    judge_history,
    judge_keys,
    judge_receipt,
    read_receipt,
)
from darrm.verify.label_files import LabelsFile
from darrm.verify.labels import judge_labels
from darrm.verify.ledger import LedgerAudit, judge_copies, judge_ledger, judge_populations, known_digests
from darrm.verify.ledger_file import LedgerFaultError, read_ledger, read_postgres
from darrm.verify.members import judge_members, read_members
from darrm.verify.optimality import judge_optimality
from darrm.verify.plan import judge_plan
from darrm.verify.verdicts import ATTACK, CONSISTENT, FALSE, FILE, UNKNOWN, VERDICTS, TooLargeError, Verdict
from darrm.verify.verdicts import LEDGER as ABOUT_LEDGER

_BOM = b"\xef\xbb\xbf"


@dataclass(frozen=True)
class AuditedFile:
    """A file as it was when it was read."""

    role: str  # release, ledger (or its journal), labels, receipt, notes, figure, voters, key or other
    path: str
    size: int  # bytes
    sha256: str


@dataclass(eq=False)
class Audit:
    """All verdicts, and the usable ``releases``, ``ledgers`` and ``labels`` by the path of their file."""

    files: list[AuditedFile] = field(default_factory=list)
    verdicts: list[Verdict] = field(default_factory=list)
    releases: dict[str, Answering] = field(default_factory=dict)
    ledgers: dict[str, LedgerAudit] = field(default_factory=dict)
    labels: dict[str, LabelsFile] = field(default_factory=dict)
    attacks: dict[str, Any] = field(default_factory=dict)
    made: str = ""  # when, in UTC

    @property
    def status(self) -> int:
        """The exit status: 1 if a claim is false, else 0."""
        return int(any(verdict.verdict == FALSE for verdict in self.verdicts))

    @property
    def counts(self) -> dict[str, int]:
        """How many claims got each verdict."""
        found = Counter(verdict.verdict for verdict in self.verdicts)
        return {name: found[name] for name in VERDICTS}

    def add(self, path: str, verdicts: Iterator[Verdict] | Sequence[Verdict]) -> None:
        """Keep verdicts about a file."""
        self.verdicts += [verdict.of(path) for verdict in verdicts]

    @contextmanager
    def guarded(self, path: str) -> Iterator[None]:
        """Turn any failure while one file is judged into a verdict, so that the others are judged."""
        try:
            yield
        except Exception as error:  # noqa: BLE001 (for any content; no message, which may quote it)
            for judged in (self.releases, self.ledgers, self.labels):
                judged.pop(path, None)
            is_known = isinstance(error, TooLargeError)
            reason = str(error) if is_known else f"its judgement failed ({type(error).__name__})"
            self.add(path, [Verdict(FILE, "it holds what this audit understands", UNKNOWN, reason)])


def audit(  # noqa: C901 (one kind of file after the other)
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
        Tables, mechanisms, ledgers, labels, or folders that hold them, and URLs of ledgers; nothing is written to them.
    voters_path
        A file with the (ε, Δ) of each voter by name.
    classes
        The names of the labels, if they have names.
    draws
        Attack every release with this number of labels, see `darrm.verify.attack`.
    digests
        Earlier digests of ledgers, in addition to those of receipts.
    keys
        Public keys of the signers of ledgers, from a source other than the files.
    report
        Called with a line of progress.

    Raises
    ------
    ValueError
        If a named file has no known format, or there is nothing to judge.
    OSError
        If a file cannot be read.
    """
    pieces = list(pieces_of(paths))
    members = None if voters_path is None else read_members(voters_path)
    now = Audit(made=datetime.now(UTC).isoformat(timespec="seconds"))
    by_role = {role: [piece for piece in pieces if piece.role == role] for role in ROLES}
    for piece in by_role[ANSWERS]:
        report(f"proving {piece.path}")
        with now.guarded(piece.path):
            _judge_answers(now, piece)
    receipts = _receipts(now, by_role[RECEIPT])
    noted = _noted(now, by_role[NOTES])
    in_files = [*(receipt.digest for receipt in receipts), *chain.from_iterable(noted.values())]
    _judge_ledgers(now, by_role[LEDGER], [*digests, *in_files], keys, report)
    ledgers = list(now.ledgers.values())
    for piece in by_role[NOTES]:
        with now.guarded(piece.path):
            now.add(piece.path, list(judge_digests(noted.get(piece.path, []), ledgers, by_hand=False)))
            card = read_card(piece.content)
            now.add(piece.path, list(judge_card(card, ledgers)))
            if card is None and not noted.get(piece.path):
                now.add(piece.path, [Verdict(FILE, "it is not judged", UNKNOWN, "it holds no whole ledger digest")])
    for piece in by_role[FIGURE]:
        with now.guarded(piece.path):
            now.add(piece.path, list(judge_sanitized(piece.content, now.ledgers)))
    now.add("", [*judge_digests(digests, ledgers, by_hand=True), *judge_keys(keys, now.verdicts)])
    _judge_labels(now, by_role[LABELS], classes, report)
    sealed = {f"{piece.path}{end}": value for piece in by_role[LABELS] for end, _, value in piece.sealed}
    for receipt in receipts:
        with now.guarded(receipt.path):
            now.add(receipt.path, list(judge_receipt(receipt, ledgers, now.labels, sealed, keys)))
    for path, answering in now.releases.items() if members is not None else ():
        now.add(path, list(judge_members(members or {}, answering.voters)))
    for piece in pieces:
        if piece.role not in by_role:
            now.add(piece.path, [Verdict(FILE, "it is not judged", UNKNOWN, piece.reason)])
    for piece in pieces:
        now.files += [AuditedFile(piece.role, f"{piece.path}{end}", size, seal) for end, size, seal in piece.digests]
    named = [("voters", voters_path)] if voters_path is not None else []
    for role, given in [*named, *(("key", Path(key.path)) for key in keys)]:
        content = given.read_bytes()
        now.files.append(AuditedFile(role, str(given), len(content), hashlib.sha256(content).hexdigest()))
    if draws is not None:
        _attack(now, draws, by_role[ANSWERS], report)
    return now


def judge_file(content: bytes) -> tuple[Answering | None, list[Verdict]]:
    """Judge every claim of a table, a mechanism or a run, and of the plan in its file."""
    claim = "it holds what its format says and nothing else"
    data = parse_json(content)
    try:
        answering = read_release(data)
        if isinstance(answering, Table) and answering.format != GAMMA:
            check_size(answering)
    except TooLargeError:
        raise
    except ValueError as error:
        return None, [Verdict(FILE, claim, FALSE, str(error))]
    verdicts = [Verdict(FILE, claim, CONSISTENT, f"its digest is {answering.digest}; a forger could compute it")]
    if content.startswith(_BOM):
        verdicts.append(Verdict(FILE, "the file has a byte order mark", CONSISTENT, "another program wrote it"))
    cost = Cost(answering)
    verdicts += judge_release(cost)
    if isinstance(answering, Table):
        verdicts += judge_optimality(answering, cost.gamma if answering.format == GAMMA else None)
    if "plan" in data:
        verdicts += judge_plan(data["plan"], cost)
    return answering, verdicts


def _judge_answers(now: Audit, piece: Piece) -> None:
    answering, verdicts = judge_file(piece.content)
    now.add(piece.path, verdicts)
    if answering is not None:
        now.releases[piece.path] = answering


def _receipts(now: Audit, pieces: Sequence[Piece]) -> list[Receipt]:
    receipts = list[Receipt]()
    for piece in pieces:
        with now.guarded(piece.path):
            receipt = read_receipt(piece.path, piece.content)
            if isinstance(receipt, Receipt):
                receipts.append(receipt)
            else:
                now.add(piece.path, [receipt])
    return receipts


def _noted(now: Audit, pieces: Sequence[Piece]) -> dict[str, list[LedgerDigest]]:
    noted = dict[str, list[LedgerDigest]]()
    for piece in pieces:
        with now.guarded(piece.path):
            found = list(digests_in(piece.path, piece.content))
            now.add(piece.path, [one for one in found if isinstance(one, Verdict)])
            noted[piece.path] = [one for one in found if isinstance(one, LedgerDigest)]
    return noted


def _judge_ledgers(
    now: Audit,
    pieces: Sequence[Piece],
    digests: Sequence[LedgerDigest],
    keys: Sequence[PublicKey],
    report: Callable[[str], None],
) -> None:
    for piece in pieces:
        report(f"reading {piece.path}")
        with now.guarded(piece.path):
            try:
                ledger = read_ledger(dict(piece.parts)) if piece.parts else read_postgres(piece.path)
            except LedgerFaultError as error:
                now.add(piece.path, [Verdict(ABOUT_LEDGER, "it is a whole ledger", FALSE, str(error))])
                continue
            now.ledgers[piece.path] = LedgerAudit(piece.path, ledger)
            own = [digest for digest in digests if digest.identity == ledger.identity]
            now.add(piece.path, list(judge_history(ledger, own, keys)))
    placed, known = known_digests(now.ledgers), {one.digest for one in now.releases.values()}
    idle = {path: one for path, one in now.releases.items() if one.digest not in placed}
    for path, one in list(now.ledgers.items()):
        report(f"adding up {path}")
        # releases that no entry names may have answered entries with an absent release, or without one
        entries, named = one.ledger.entries, one.ledger.digests
        one.answerings = [each for each in now.releases.values() if each.digest in named]
        if named - known or not entries or any(not entry.table for entry in entries):
            one.answerings = [*one.answerings, *idle.values()]
            idle = {}
        with now.guarded(path):
            now.add(path, list(judge_ledger(one)))
    audits = list(now.ledgers.values())
    now.add("", [*judge_populations(audits), *judge_copies(audits)])
    for path, answering in idle.items() if audits else ():
        reason = f"no entry of a ledger among the files holds its digest {answering.digest}: it may be unused"
        now.add(path, [Verdict(ABOUT_LEDGER, "it has answered queries that were paid for", UNKNOWN, reason)])


def _judge_labels(
    now: Audit, pieces: Sequence[Piece], classes: tuple[str, ...] | None, report: Callable[[str], None]
) -> None:
    for piece in pieces:
        report(f"comparing {piece.path}")
        if piece.labels is not None:
            with now.guarded(piece.path):
                now.labels[piece.path] = piece.labels
                own = [digest for _, _, digest in piece.sealed if piece.is_parquet]
                ledgers = list(now.ledgers.values())
                now.add(piece.path, list(judge_labels(piece.labels, now.releases, ledgers, classes, own)))


def _attack(now: Audit, draws: int, pieces: Sequence[Piece], report: Callable[[str], None]) -> None:
    """Draw labels from every release. Only this part runs the rest of darrm, and only on request."""
    try:
        judge_attack = import_module("darrm.verify.attack").judge_attack
    except ImportError as error:
        raise ValueError(f"--attack runs the release itself, and {error.name} is not installed") from None
    for piece in pieces:
        if piece.path in now.releases:
            found, verdict, reason = judge_attack(piece.content, draws, report)
            now.add(piece.path, [Verdict(ATTACK, "labels do not refute it", verdict, reason)])
            now.attacks[piece.path] = found
    if not now.releases:
        now.add("", [Verdict(ATTACK, "labels do not refute it", UNKNOWN, "without a table no label was drawn")])
