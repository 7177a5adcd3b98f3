"""One audit: the files that were given, what was found about each claim, and what it means for a person."""

import hashlib
import platform
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from darrm.errors import LedgerError, checks
from darrm.proof.table import Table
from darrm.system.files import check_regular
from darrm.system.flags import read_voters
from darrm.system.votes_file import LabelsFile, read_labels
from darrm.verify.labels import judge_labels
from darrm.verify.ledger import LedgerCopy, judge_ledger, ledger_files, read_ledger
from darrm.verify.members import judge_members
from darrm.verify.table import Exact, exact_of, judge_table
from darrm.verify.verdicts import CLAIMED, FALSE, VERDICTS, Verdict, judged

_MOST_DRAWS = 10**9  # of an attack: minutes
_MOST_BYTES = 2**30  # of a file; tables hold kilobytes
_LIBRARIES = ("darrm", "numpy", "scipy", "python-flint", "highspy", "dp-accounting")


@dataclass(frozen=True)
class AuditedFile:
    """A file as it was when it was read."""

    role: str  # table, ledger (and what a crash left beside it), labels or voters
    path: str
    size: int  # bytes
    sha256: str


@dataclass(frozen=True, eq=False)
class Audit:
    """What was found."""

    files: tuple[AuditedFile, ...]
    verdicts: tuple[Verdict, ...]
    table: Table | None  # None if it cannot be used
    ledger: LedgerCopy | None
    labels: NDArray[Any] | None
    attack: Mapping[str, Any] | None  # `darrm.verify.attack.Refutation` as plain data
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


def audit(
    table_path: Path,
    *,
    ledger_path: Path | None = None,
    labels_path: Path | None = None,
    voters_path: Path | None = None,
    classes: tuple[str, ...] | None = None,
    draws: int | None = None,
    report: Callable[[str], None] = lambda _text: None,
) -> Audit:
    """Judge every claim of a table, of a ledger that paid for its answers, and of labels that it answered.

    Parameters
    ----------
    table_path, ledger_path, labels_path, voters_path
        The files, the last one with what each voter promises by its name; nothing is written to or beside them.
    classes
        The names of the labels, where they have names.
    draws
        Attack the table with so many labels, see `darrm.verify.attack`.
    report
        Is told what is being judged.

    Raises
    ------
    ValueError
        If a file cannot be understood at all.
    OSError
        If a file cannot be read.
    """
    if draws is not None:
        checks.integer_at_least(1, most=_MOST_DRAWS, attack=draws, advice="a million labels take seconds")
    content = _content(table_path)
    contents = [("table", str(table_path), content)]
    copied = {}
    if ledger_path is not None:
        check_regular(ledger_path, _MOST_BYTES)
        copied = ledger_files(ledger_path)
        contents += [("ledger", f"{ledger_path}{beside}", copied[beside]) for beside in copied]
    labels: LabelsFile | None = None
    if labels_path is not None:
        labels = read_labels(labels_path)
        contents.append(("labels", str(labels_path), _content(labels_path)))
    members = {}
    if voters_path is not None:
        members = read_voters(voters_path)
        contents.append(("voters", str(voters_path), _content(voters_path)))
    report("proving the table")
    table, verdicts = judge_table(content)
    if table is not None:
        verdicts += judge_members(members, table.problem.voters) if members else ()
    ledger = None
    if ledger_path is not None:
        report("adding up the ledger")
        try:
            ledger = read_ledger(ledger_path, copied)
            verdicts += judge_ledger(ledger, table)
        except LedgerError as error:
            verdicts.append(Verdict("ledger", "it is a whole ledger", FALSE, str(error)))
    if labels is not None:
        verdicts += judge_labels(labels, table, ledger, classes)
    attack = None
    if draws is not None:
        attack, verdict = _attacked(None if table is None else exact_of(table), draws, report)
        verdicts.append(verdict)
    files = tuple(AuditedFile(role, path, len(held), hashlib.sha256(held).hexdigest()) for role, path, held in contents)
    made = datetime.now(UTC).isoformat(timespec="seconds")
    drawn = None if labels is None else labels.labels
    return Audit(files, tuple(verdicts), table, ledger, drawn, attack, made, _versions())


def _attacked(
    exact: Exact | None, draws: int, report: Callable[[str], None]
) -> tuple[Mapping[str, Any] | None, Verdict]:
    """Draw labels and say what they refute."""
    if exact is None or not exact.can_be_attacked:
        why = "without a table no label was drawn" if exact is None else "tables of a majority are attacked only"
        return None, Verdict("attack", "labels do not refute it", CLAIMED, why)
    found = import_module("darrm.verify.attack").attack(exact.table, draws, report=report)
    numbers = f"refuted ε {found.epsilon:.6g}, true worst case {found.worst:.6g}, claimed {found.claimed.epsilon:.6g}"
    claim = f"{draws:,} labels from either side of neighboring votes do not refute it"
    departures = f"; not the table's own labels: {', '.join(found.departures)}" if found.departures else ""
    holds = not found.refuted and not found.departures
    reason = f"{numbers}, at confidence {found.confidence:g}{departures}"
    return found.to_json(), judged("attack", claim, reason, holds=holds)


def _content(path: Path) -> bytes:
    check_regular(path, _MOST_BYTES)
    return path.read_bytes()


def _versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for name in _LIBRARIES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "not installed"
    return found
