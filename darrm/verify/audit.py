"""One audit: the files that were given, what was found about each claim, and what it means for a person."""

import hashlib
import platform
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from itertools import chain
from pathlib import Path

from darrm.account.store import ledger_name
from darrm.errors import LedgerError, checks
from darrm.mechanisms.release import Release
from darrm.proof.table import Table
from darrm.system.files import Document
from darrm.system.flags import read_voters
from darrm.system.votes_file import LabelsFile
from darrm.verify.chain import ShownHead, SpentOf, judge_chain, judge_copies, judge_populations
from darrm.verify.evidence import ESTIMATOR, FIGURE, LABELS, LEDGER, NOTES, RECEIPT, RELEASE, ROLES, Piece, pieces_of
from darrm.verify.figures import judge_told, read_card
from darrm.verify.labels import judge_labels
from darrm.verify.ledger import LedgerCopy, copied, judge_ledger, read_ledger
from darrm.verify.members import judge_members
from darrm.verify.receipts import Receipt, heads_in, judge_heads, judge_receipt, read_receipt, unmatched
from darrm.verify.sanitized import judge_sanitized
from darrm.verify.saved import Saved, judge_estimator, read_estimator
from darrm.verify.signatures import PublicKey, judge_keys
from darrm.verify.table import Answering, judge_release
from darrm.verify.verdicts import ABOUT_ESTIMATOR, ABOUT_FILE, CLAIMED, FALSE, UNKNOWN, VERDICTS, Verdict

_ATTACK, _QUICK = "darrm.verify.attack", "a million labels take seconds"
_LIBRARIES = ("darrm", "numpy", "scipy", "python-flint", "highspy", "dp-accounting")


_UNREAD = Verdict(ABOUT_ESTIMATOR, "its other sentences are those of its estimator", CLAIMED, "they are not read")


@dataclass(frozen=True)
class AuditedFile:
    """A file as it was when it was read."""

    role: str  # release, ledger (and what a crash left beside it), labels, estimator, voters, key or other
    path: str
    size: int  # bytes
    sha256: str


@dataclass(frozen=True, eq=False)
class Audit:
    """What was found.

    ``releases``, ``ledgers`` and ``labels`` hold what can be used, by the file's path.
    """

    files: tuple[AuditedFile, ...]
    verdicts: tuple[Verdict, ...]
    releases: Mapping[str, Answering]
    ledgers: Mapping[str, LedgerCopy]
    labels: Mapping[str, LabelsFile]
    attacks: Mapping[str, Document]  # `darrm.verify.attack.Refutation` as plain data
    made: str  # when, in UTC
    versions: Mapping[str, str]

    @property
    def status(self) -> int:
        """The exit status: 1 if a claim is false, else 0."""
        return int(any(verdict.verdict == FALSE for verdict in self.verdicts))

    @property
    def counts(self) -> dict[str, int]:
        """How many claims got each verdict."""
        found = Counter(verdict.verdict for verdict in self.verdicts)
        return {name: found[name] for name in VERDICTS}

    @property
    def tables(self) -> dict[str, Table]:
        """The releases that are proven tables."""
        return {path: answering for path, answering in self.releases.items() if isinstance(answering, Table)}


@dataclass(eq=False)
class _Judging:
    classes: tuple[str, ...] | None
    report: Callable[[str], None]
    keys: Sequence[PublicKey] = ()
    verdicts: list[Verdict] = field(default_factory=list)
    releases: dict[str, Answering] = field(default_factory=dict)
    ledgers: dict[str, LedgerCopy] = field(default_factory=dict)
    labels: dict[str, LabelsFile] = field(default_factory=dict)
    attacks: dict[str, Document] = field(default_factory=dict)

    def add(self, path: str, verdicts: Iterator[Verdict] | Sequence[Verdict]) -> None:
        """Keep verdicts about a file."""
        self.verdicts += [verdict.of(path) for verdict in verdicts]


def audit(
    paths: Sequence[Path | str],
    *,
    voters_path: Path | None = None,
    classes: tuple[str, ...] | None = None,
    draws: int | None = None,
    heads: Sequence[ShownHead] = (),
    keys: Sequence[PublicKey] = (),
    report: Callable[[str], None] = lambda _text: None,
) -> Audit:
    """Judge every claim of files and folders, in each and between them.

    Parameters
    ----------
    paths
        Tables, mechanisms, ledgers, labels, estimators, or folders that hold them, and URLs of ledgers; nothing is
        written to or beside them.
    voters_path
        What each voter of a table promises, by its name.
    classes
        The names of the labels, where they have names.
    draws
        Attack every release with so many labels, see `darrm.verify.attack`.
    heads
        Heads of ledgers that were copied earlier, beside those of receipts: `darrm.verify.chain`.
    keys
        Public keys of whoever signed ledgers, which do not come with the files: `darrm.verify.signatures`.
    report
        Is told what is being judged.

    Raises
    ------
    ValueError
        If a file that was named cannot be understood at all, or there is nothing to judge.
    OSError
        If a file cannot be read.
    """
    if draws is not None:
        checks.integer_at_least(1, most=import_module(_ATTACK).MOST_DRAWS, attack=draws, advice=_QUICK)
    pieces = list(pieces_of(paths))
    now = _Judging(classes, report, keys)
    by_role = {role: [piece for piece in pieces if piece.role == role] for role in ROLES}
    _judge_all(now, by_role, heads)
    files = [
        AuditedFile(one.role, f"{one.path}{end}", size, digest) for one in pieces for end, size, digest in one.digests
    ]
    if voters_path is not None:
        members = read_voters(voters_path)
        for path, table in ((path, table) for path, table in now.releases.items() if isinstance(table, Table)):
            now.add(path, list(judge_members(members, table.problem.voters)))
        files.append(_audited("voters", str(voters_path), voters_path.read_bytes()))
    files += [_audited("key", key.path, Path(key.path).read_bytes()) for key in keys]
    for piece in pieces:
        if piece.role not in by_role:
            now.add(piece.path, [Verdict(ABOUT_FILE, "it is not judged", UNKNOWN, piece.reason)])
    if draws is not None:
        _attack(now, draws)
    made = datetime.now(UTC).isoformat(timespec="seconds")
    found = (now.releases, now.ledgers, now.labels, now.attacks)
    return Audit(tuple(files), tuple(now.verdicts), *found, made, _versions())


def _judge_all(now: _Judging, by_role: Mapping[str, Sequence[Piece]], heads: Sequence[ShownHead]) -> None:
    for piece in by_role[RELEASE]:
        _judge_release(now, piece)
    estimators = _estimators(now, by_role[ESTIMATOR])
    receipts = _receipts(now, by_role[RECEIPT])
    noted = {piece.path: _noted(now, piece) for piece in by_role[NOTES]}
    of_students = chain.from_iterable(saved.told.heads for saved in estimators.values())
    in_files = [*(receipt.head for receipt in receipts), *chain.from_iterable(noted.values()), *of_students]
    _judge_ledgers(now, by_role[LEDGER], [*heads, *in_files])
    for path, shown in noted.items():
        now.add(path, list(judge_heads(shown, now.ledgers)))
    cards = {piece.path: read_card(piece, noted[piece.path]) for piece in by_role[NOTES]}
    files = {path: saved.told for path, saved in estimators.items()}
    for path, told in cards.items():
        now.add(path, [] if told is None else [_UNREAD, *judge_told(told, now.ledgers, files)])
    for piece in by_role[FIGURE]:
        now.add(piece.path, list(judge_sanitized(piece.content, now.ledgers)))
    now.add("", [*unmatched(heads, now.ledgers), *judge_keys(now.keys, now.verdicts)])
    for piece in by_role[LABELS]:
        now.report(f"comparing {piece.path}")
        if piece.labels is not None:
            now.labels[piece.path] = piece.labels
            own = [digest for _, _, digest in piece.sealed]
            now.add(piece.path, list(judge_labels(piece.labels, now.releases, now.ledgers, now.classes, own)))
    for receipt in receipts:
        now.add(receipt.path, list(judge_receipt(receipt, now.ledgers, now.labels, by_role[LABELS], now.keys)))
    for path, saved in estimators.items():
        now.add(path, list(judge_estimator(saved, now.ledgers)))


def _judge_release(now: _Judging, piece: Piece) -> None:
    now.report(f"proving {piece.path}")
    answering, verdicts = judge_release(piece.content)
    now.add(piece.path, verdicts)
    if answering is not None:
        now.releases[piece.path] = answering


def _estimators(now: _Judging, pieces: Sequence[Piece]) -> dict[str, Saved]:
    estimators = {}
    for piece in pieces:
        now.report(f"reading {piece.path}")
        saved = read_estimator(piece.content)
        if isinstance(saved, Verdict):
            now.add(piece.path, [saved])
            continue
        estimators[piece.path] = saved
        if saved.answering is not None:
            now.releases[piece.path] = saved.answering
    return estimators


def _receipts(now: _Judging, pieces: Sequence[Piece]) -> list[Receipt]:
    receipts = []
    for piece in pieces:
        receipt = read_receipt(piece)
        if isinstance(receipt, Receipt):
            receipts.append(receipt)
        else:
            now.add(piece.path, [receipt])
    return receipts


def _noted(now: _Judging, piece: Piece) -> list[ShownHead]:
    found = list(heads_in(piece))
    now.add(piece.path, [one for one in found if isinstance(one, Verdict)])
    return [one for one in found if isinstance(one, ShownHead)]


def _judge_ledgers(now: _Judging, pieces: Sequence[Piece], heads: Sequence[ShownHead]) -> None:
    for piece in pieces:
        now.report(f"reading {piece.path}")
        try:
            ledger = now.ledgers[piece.path] = read_ledger(ledger_name(piece.path), dict(piece.parts))
            own = [head for head in heads if head.identity == ledger.identity]
            with copied(dict(piece.parts)) as copy:
                now.add(piece.path, list(judge_chain(copy, own, now.keys)))
        except LedgerError as error:
            now.add(piece.path, [Verdict("ledger", "it is a whole ledger", FALSE, str(error))])
    placed = {digest for ledger in now.ledgers.values() for digest in ledger.digests}
    known = {answering.digest for answering in now.releases.values()}
    idle = {path: one for path, one in now.releases.items() if one.digest not in placed}
    for path, ledger in now.ledgers.items():
        now.report(f"adding up {path}")
        # what no entry names may have answered those that name what is not here, or nothing
        open_questions = ledger.digests - known or any(not entry.table for entry in ledger.entries)
        releases = [one for one in now.releases.values() if one.digest in ledger.digests]
        if open_questions or not ledger.entries:
            releases += list(idle.values())
            idle = {}
        now.ledgers[path] = ledger.answered_by(releases)
        now.add(path, list(judge_ledger(now.ledgers[path])))
    spent = [
        SpentOf(path, ledger.population, ledger.identity, ledger.spent.epsilon, ledger.budget.delta)
        for path, ledger in now.ledgers.items()
    ]
    pasts = {path: (one.identity, [entry.link for entry in one.entries]) for path, one in now.ledgers.items()}
    now.add("", [*judge_populations(spent), *judge_copies(pasts)])
    for path, answering in idle.items() if now.ledgers else ():
        reason = f"no entry of a ledger among the files holds its digest {answering.digest}: it may be unused"
        now.add(path, [Verdict("ledger", "it has answered queries that were paid for", UNKNOWN, reason)])


def _attack(now: _Judging, draws: int) -> None:
    judge_attack = import_module(_ATTACK).judge_attack
    for path, answering in now.releases.items():
        aggregator = Release(answering) if isinstance(answering, Table) else answering
        attack, verdict = judge_attack(aggregator, draws, now.report)
        now.add(path, [verdict])
        if attack is not None:
            now.attacks[path] = attack
    if not now.releases:
        now.add("", [Verdict("attack", "labels do not refute it", UNKNOWN, "without a table no label was drawn")])


def _audited(role: str, path: str, content: bytes) -> AuditedFile:
    return AuditedFile(role, path, len(content), hashlib.sha256(content).hexdigest())


def _versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for name in _LIBRARIES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "not installed"
    return found
