"""Audit files: a verdict on each of their claims."""

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from importlib import import_module
from itertools import chain
from pathlib import Path
from typing import Any

from darrm.verify import verdicts as topics
from darrm.verify.claims import judge_card, judge_figure, judge_members, judge_plan, read_card, read_members
from darrm.verify.costs import Cost, judge_release
from darrm.verify.files import (
    ANSWERS,
    FIGURE,
    LABELS,
    LEDGER,
    NOTES,
    RECEIPT,
    ROLES,
    LedgerFaultError,
    Piece,
    pieces_of,
    read_ledger,
    read_postgres,
)
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
from darrm.verify.ledger import LedgerAudit, judge_labels, judge_ledger, judge_populations
from darrm.verify.optimality import judge_optimality
from darrm.verify.verdicts import ATTACK, CONSISTENT, FALSE, FILE, UNKNOWN, VERDICTS, TooLargeError, Verdict


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
    pieces = list(pieces_of(paths))
    members = None if voters_path is None else read_members(voters_path)
    now = Audit(made=datetime.now(UTC).isoformat(timespec="seconds"))
    by_role = {role: [piece for piece in pieces if piece.role == role] for role in ROLES}
    sealed = {f"{piece.path}{end}": value for piece in by_role[LABELS] for end, _, value in piece.sealed}
    one = _Auditor(now, tuple(keys), classes, sealed, report)
    one.judge("proving", by_role[ANSWERS], one.answers)
    one.judge("reading", by_role[RECEIPT], one.receipt)
    one.judge("reading", by_role[NOTES], one.notes)
    in_files = [*(receipt.digest for receipt in one.receipts.values()), *chain.from_iterable(one.noted.values())]
    one.judge("reading", by_role[LEDGER], partial(one.ledger, [*digests, *in_files]))
    one.add_up(by_role[LEDGER])
    ledgers = list(now.ledgers.values())
    one.judge("reading", by_role[NOTES], partial(one.card, ledgers))
    one.judge("reading", by_role[FIGURE], lambda piece: judge_figure(piece.content, now.ledgers))
    one.add("", [*judge_digests(digests, ledgers, by_hand=True), *judge_keys(keys, now.verdicts)])
    one.judge("comparing", by_role[LABELS], partial(one.labels, ledgers))
    read = [piece for piece in by_role[RECEIPT] if piece.path in one.receipts]
    one.judge("comparing", read, partial(one.compared, ledgers))
    for path, answering in now.releases.items() if members is not None else ():
        one.add(path, judge_members(members or {}, answering.voters))
    for piece in pieces:
        if piece.role not in by_role:
            one.add(piece.path, [Verdict(FILE, "it is not judged", UNKNOWN, piece.reason)])
        now.files += [AuditedFile(piece.role, f"{piece.path}{end}", size, seal) for end, size, seal in piece.digests]
    named = [("voters", voters_path)] if voters_path is not None else []
    for role, given in [*named, *(("key", Path(key.path)) for key in keys)]:
        content = given.read_bytes()
        now.files.append(AuditedFile(role, str(given), len(content), hashlib.sha256(content).hexdigest()))
    if draws is not None:
        one.attack(draws, by_role[ANSWERS])
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
    cost = Cost(answering)
    verdicts += judge_release(cost)
    if isinstance(answering, Table):
        verdicts += judge_optimality(answering, cost.gamma if answering.format == GAMMA else None)
    if "plan" in data:
        verdicts += judge_plan(data["plan"], cost)
    return answering, verdicts


@dataclass(eq=False)
class _Auditor:
    """Judges pieces of each role, and keeps what later pieces are compared with."""

    now: Audit
    keys: Sequence[PublicKey]
    classes: tuple[str, ...] | None
    sealed: dict[str, str]  # the SHA-256 of files with labels
    report: Callable[[str], None]
    receipts: dict[str, Receipt] = field(default_factory=dict)
    noted: dict[str, list[LedgerDigest]] = field(default_factory=dict)

    def add(self, path: str, verdicts: Iterable[Verdict]) -> None:
        self.now.verdicts += [verdict.of(path) for verdict in verdicts]

    def judge(self, words: str, pieces: Sequence[Piece], how: Callable[[Piece], Iterable[Verdict]]) -> None:
        """Judge pieces one by one; any failure is a verdict on its piece, so that the others are judged."""
        for piece in pieces:
            self.report(f"{words} {piece.path}")
            try:
                self.add(piece.path, list(how(piece)))
            except Exception as error:  # noqa: BLE001 (for any content; no message, which may quote it)
                for usable in (self.now.releases, self.now.ledgers, self.now.labels):
                    usable.pop(piece.path, None)
                known = isinstance(error, TooLargeError)
                reason = str(error) if known else f"its judgement failed ({type(error).__name__})"
                self.add(piece.path, [Verdict(FILE, "this audit understands its content", UNKNOWN, reason)])

    def answers(self, piece: Piece) -> list[Verdict]:
        answering, verdicts = judge_file(piece.content)
        if answering is not None:
            self.now.releases[piece.path] = answering
        return verdicts

    def receipt(self, piece: Piece) -> list[Verdict]:
        receipt = read_receipt(piece.path, piece.content)
        if not isinstance(receipt, Receipt):
            return [receipt]
        self.receipts[piece.path] = receipt
        return []

    def compared(self, ledgers: Sequence[LedgerAudit], piece: Piece) -> Iterator[Verdict]:
        return judge_receipt(self.receipts[piece.path], ledgers, self.now.labels, self.sealed, self.keys)

    def notes(self, piece: Piece) -> list[Verdict]:
        found = list(digests_in(piece.path, piece.content))
        self.noted[piece.path] = [one for one in found if isinstance(one, LedgerDigest)]
        return [one for one in found if isinstance(one, Verdict)]

    def card(self, ledgers: Sequence[LedgerAudit], piece: Piece) -> Iterator[Verdict]:
        digests, card = self.noted.get(piece.path, []), read_card(piece.content)
        yield from judge_digests(digests, ledgers, by_hand=False)
        yield from judge_card(card, ledgers)
        if card is None and not digests:
            yield Verdict(FILE, "it is not judged", UNKNOWN, "it holds no whole ledger digest")

    def ledger(self, digests: Sequence[LedgerDigest], piece: Piece) -> Iterator[Verdict]:
        try:
            ledger = read_ledger(dict(piece.parts)) if piece.parts else read_postgres(piece.path)
        except LedgerFaultError as error:
            yield Verdict(topics.LEDGER, "it is a whole ledger", FALSE, str(error))
            return
        self.now.ledgers[piece.path] = LedgerAudit(piece.path, ledger)
        own = [digest for digest in digests if digest.identity == ledger.identity]
        yield from judge_history(ledger, own, self.keys)

    def add_up(self, pieces: Sequence[Piece]) -> None:
        """Judge what each ledger paid, and what its budgets are together."""
        audits, releases = list(self.now.ledgers.values()), self.now.releases
        placed, known = (
            {digest for one in audits for digest in one.ledger.digests},
            {r.digest for r in releases.values()},
        )
        idle = {path: one for path, one in releases.items() if one.digest not in placed}
        for one in audits:
            # releases that no entry names may have answered entries with an absent release, or without one
            entries, named = one.ledger.entries, one.ledger.digests
            one.answerings = [each for each in releases.values() if each.digest in named]
            if named - known or not entries or any(not entry.table for entry in entries):
                one.answerings = [*one.answerings, *idle.values()]
                idle = {}
        whole = [piece for piece in pieces if piece.path in self.now.ledgers]
        self.judge("adding up", whole, lambda piece: judge_ledger(self.now.ledgers[piece.path]))
        audits = list(self.now.ledgers.values())
        self.add("", judge_populations(audits))
        for path, answering in idle.items() if audits else ():
            reason = f"no entry of a ledger among the files holds its digest {answering.digest}: it may be unused"
            claim = "it has answered queries that were paid for"
            self.add(path, [Verdict(topics.LEDGER, claim, UNKNOWN, reason)])

    def labels(self, ledgers: Sequence[LedgerAudit], piece: Piece) -> Iterator[Verdict]:
        if piece.labels is not None:
            self.now.labels[piece.path] = piece.labels
            own = [digest for _, _, digest in piece.sealed if piece.is_parquet]
            yield from judge_labels(piece.labels, self.now.releases, ledgers, self.classes, own)

    def attack(self, draws: int, pieces: Sequence[Piece]) -> None:
        """Draw labels from every release. Only this part runs the rest of darrm, and only on request."""
        try:
            judge_attack = import_module("darrm.verify.attack").judge_attack
        except ImportError as error:
            raise ValueError(f"--attack runs the release itself, and {error.name} is not installed") from None
        claim = "labels do not refute it"
        for piece in pieces:
            if piece.path in self.now.releases:
                found, verdict, reason = judge_attack(piece.content, draws, self.report)
                self.add(piece.path, [Verdict(ATTACK, claim, verdict, reason)])
                self.now.attacks[piece.path] = found
        if not self.now.releases:
            self.add("", [Verdict(ATTACK, claim, UNKNOWN, "without a table no label was drawn")])
