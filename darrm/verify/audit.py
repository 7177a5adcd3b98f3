"""Audit files: a verdict on each of their claims."""

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from importlib import import_module
from itertools import chain
from pathlib import Path
from typing import Any

from darrm.verify import verdicts as topics
from darrm.verify.chain import (
    LedgerDigest,
    PublicKey,
    Receipt,
    digests_in,
    judge_digests,
    judge_history,
    judge_keys,
    judge_receipt,
    read_ledger,
    read_postgres,
    read_receipt,
)
from darrm.verify.claims import judge_figure, judge_members, judge_note, judge_plan, read_members
from darrm.verify.costs import Cost, judge_release
from darrm.verify.files import ANSWERS, FIGURE, LABELS, LEDGER, NOTES, OTHER, RECEIPT, Piece, pieces_of
from darrm.verify.formats import GAMMA, Answering, Table, parse_json, read_release
from darrm.verify.gamma import judge_optimality
from darrm.verify.histograms import check_size
from darrm.verify.label_files import LabelsFile
from darrm.verify.ledger import LedgerAudit, assign_releases, judge_labels, judge_ledger, judge_populations
from darrm.verify.verdicts import CONSISTENT, FALSE, FILE, UNKNOWN, VERDICTS, FaultError, TooLargeError, Verdict


@dataclass(frozen=True)
class AuditedFile:
    """A file as it was when it was read."""

    role: str  # release, ledger (or its journal), labels, receipt, notes, figure, voters, key or other
    path: str
    size: int  # bytes
    sha256: str


@dataclass(eq=False)
class Audit:
    """All verdicts, and what was usable, by the path of its file."""

    pieces: Sequence[Piece] = ()
    files: list[AuditedFile] = field(default_factory=list)
    verdicts: list[Verdict] = field(default_factory=list)
    releases: dict[str, Answering] = field(default_factory=dict)
    ledgers: dict[str, LedgerAudit] = field(default_factory=dict)
    labels: dict[str, LabelsFile] = field(default_factory=dict)
    receipts: dict[str, Receipt] = field(default_factory=dict)
    notes: dict[str, list[LedgerDigest]] = field(default_factory=dict)
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

    def add(self, path: str, verdicts: Iterable[Verdict]) -> None:
        """Add verdicts on claims of a file."""
        self.verdicts += [replace(verdict, file=path) for verdict in verdicts]

    def judge(self, role: str, judge: Callable[[Piece], Iterable[Verdict]]) -> None:
        """Judge all pieces of a role. Any failure is a verdict on this piece, so that the others are judged."""
        for piece in self.pieces:
            if piece.role != role:
                continue
            try:
                found = list(judge(piece))
            except FaultError as error:
                found = [Verdict(error.about, error.claim, FALSE, str(error))]
            except Exception as error:  # noqa: BLE001 (for any content; no message, which may quote it)
                for usable in (self.releases, self.ledgers, self.labels):
                    usable.pop(piece.path, None)
                reason = str(error) if isinstance(error, TooLargeError) else type(error).__name__
                reason = reason if isinstance(error, TooLargeError) else f"its judgement failed ({reason})"
                found = [Verdict(FILE, "this audit understands its content", UNKNOWN, reason)]
            self.add(piece.path, found)


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
    now = Audit(list(pieces_of(paths)), made=datetime.now(UTC).isoformat(timespec="seconds"))
    members = {} if voters_path is None else read_members(voters_path)
    _judge_alone(now, report)
    _judge_ledgers(now, digests, keys)
    report("comparing files")
    _judge_together(now, classes, keys)
    for path, answering in now.releases.items():
        now.add(path, judge_members(members, answering.voters))
    now.judge(OTHER, lambda piece: [Verdict(FILE, "it is not judged", UNKNOWN, piece.reason)])
    for piece in now.pieces:
        now.files += [AuditedFile(piece.role, f"{piece.path}{end}", size, seal) for end, size, seal in piece.digests]
    named = [("voters", voters_path)] if voters_path is not None else []
    for role, given in [*named, *(("key", Path(key.path)) for key in keys)]:
        content = given.read_bytes()
        now.files.append(AuditedFile(role, str(given), len(content), hashlib.sha256(content).hexdigest()))
    if draws is not None:
        _attack(now, draws, report)
    return now


def _judge_alone(now: Audit, report: Callable[[str], None]) -> None:
    """Judge releases, and read receipts and notes: the digests in them are evidence about ledgers."""

    def release(piece: Piece) -> list[Verdict]:
        report(f"reading {piece.path}")
        answering, verdicts = judge_file(piece.content)
        now.releases |= {} if answering is None else {piece.path: answering}
        return verdicts

    def receipt(piece: Piece) -> list[Verdict]:
        now.receipts[piece.path] = read_receipt(piece.path, piece.content)
        return []

    def note(piece: Piece) -> list[Verdict]:
        now.notes[piece.path], verdicts = digests_in(piece.path, piece.content)
        return verdicts

    now.judge(ANSWERS, release)
    now.judge(RECEIPT, receipt)
    now.judge(NOTES, note)


def _judge_ledgers(now: Audit, digests: Sequence[LedgerDigest], keys: Sequence[PublicKey]) -> None:
    """Judge the history and the entries of each ledger, and all budgets together."""
    shown = [*digests, *(receipt.digest for receipt in now.receipts.values()), *chain(*now.notes.values())]

    def history(piece: Piece) -> Iterator[Verdict]:
        ledger = read_ledger(piece.parts) if piece.parts else read_postgres(piece.path)
        now.ledgers[piece.path] = LedgerAudit(piece.path, ledger)
        return judge_history(ledger, [digest for digest in shown if digest.identity == ledger.identity], keys)

    now.judge(LEDGER, history)
    audits = list(now.ledgers.values())
    unused = assign_releases(audits, now.releases)
    now.judge(LEDGER, lambda piece: judge_ledger(now.ledgers[piece.path]) if piece.path in now.ledgers else ())
    now.add("", judge_populations(audits))
    for path, answering in unused.items() if audits else ():
        reason = f"no entry of a ledger among the files holds its digest {answering.digest}: it may be unused"
        claim = "it has answered queries that were paid for"
        now.add(path, [Verdict(topics.LEDGER, claim, UNKNOWN, reason)])
    now.add("", judge_digests(digests, [one.ledger for one in audits], by_hand=True))
    now.add("", judge_keys(keys, now.verdicts))


def _judge_together(now: Audit, classes: tuple[str, ...] | None, keys: Sequence[PublicKey]) -> None:
    """Judge notes, figures, labels and receipts against the ledgers."""
    ledgers = {path: one.ledger for path, one in now.ledgers.items()}
    labelled = [piece for piece in now.pieces if piece.labels is not None]
    sealed = {f"{piece.path}{end}": seal for piece in labelled for end, _, seal in piece.sealed}
    now.labels = {piece.path: piece.labels for piece in labelled if piece.labels is not None}

    def labels(piece: Piece) -> Iterator[Verdict]:
        own = [seal for _, _, seal in piece.sealed if piece.is_parquet]
        return judge_labels(now.labels[piece.path], now.releases, list(ledgers.values()), classes, own)

    def receipt(piece: Piece) -> Iterable[Verdict]:
        one = now.receipts.get(piece.path)
        return () if one is None else judge_receipt(one, list(ledgers.values()), now.labels, sealed, keys)

    now.judge(NOTES, lambda piece: judge_note(piece.content, now.notes.get(piece.path, []), list(ledgers.values())))
    now.judge(FIGURE, lambda piece: judge_figure(piece.content, ledgers))
    now.judge(LABELS, labels)
    now.judge(RECEIPT, receipt)


def _attack(now: Audit, draws: int, report: Callable[[str], None]) -> None:
    """Draw labels from every release. Only this part runs the rest of darrm, and only on request."""
    try:
        judge_attack = import_module("darrm.verify.attack").judge_attack
    except ImportError as error:
        raise ValueError(f"--attack runs the release itself, and {error.name} is not installed") from None
    claim = "labels do not refute it"
    for piece in now.pieces:
        if piece.path in now.releases:
            now.attacks[piece.path], verdict, reason = judge_attack(piece.content, draws, report)
            now.add(piece.path, [Verdict(topics.ATTACK, claim, verdict, reason)])
    if not now.releases:
        now.add("", [Verdict(topics.ATTACK, claim, UNKNOWN, "without a table no label was drawn")])


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
    cost = Cost(answering)
    verdicts += judge_release(cost)
    if isinstance(answering, Table) and answering.format == GAMMA:
        verdicts += judge_optimality(answering, cost.gamma)
    if "plan" in data:
        verdicts += judge_plan(data["plan"], cost)
    return answering, verdicts
