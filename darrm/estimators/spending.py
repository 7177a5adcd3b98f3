"""The budget of a fitted estimator, shared by all of its copies.

An estimator holds a handle of its ledger, never the content, so that no copy can spend a budget twice:

* a ledger in a **file** is identified by its path. Copies, other processes and loaded estimators all debit the file. A
  handle knows the ledger's identity and the number of its answers, and refuses other ledgers and older copies;
* a ledger in **memory** belongs to its process. `copy.deepcopy` and `pickle` in this process share it; in another
  process, or after a restart, nothing is released.

**No debited label is lost** (`darrm.release.delivery`): the ledger keeps labels from the debit on, in a stream of the
estimator. The next `predict` of the thread confirms the labels of the last one; labels of a `PATEClassifier` wait until
its student is saved, or `Ensemble.acknowledge`.
"""

import os
import secrets
import threading
import warnings
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

import numpy as np
from numpy.typing import NDArray

from darrm.aggregator import Aggregator
from darrm.errors import LedgerError
from darrm.ledger.ledger import PrivacyLedger
from darrm.ledger.sqlite import MEMORY
from darrm.ledger.store import is_url
from darrm.loss.privacy_cost import PrivacyCost
from darrm.privacy import PrivacyParams
from darrm.release.delivery import StreamDestination, deliver
from darrm.util import checks
from darrm.util.extras import Untyped
from darrm.votes import Labels, Votes

# the ledgers in memory of this process by random names: a copy finds the same ledger, or none
_IN_MEMORY: "WeakValueDictionary[str, PrivacyLedger]" = WeakValueDictionary()


class RefitWarning(UserWarning):
    """An estimator with released answers is fitted again, with a new budget: the budgets add up."""


class SelectionWarning(UserWarning):
    """A score spends budget, and a choice by scores on private data is not accounted for."""


class ResumeWarning(UserWarning):
    """Debited labels wait in the ledger: `fit` trained the student on them, without cost."""


@dataclass(frozen=True)
class Written:
    """An aggregator whose answers, class indices, are converted to the labels of the ledger."""

    aggregator: Aggregator
    write: Callable[[NDArray[np.int64]], Labels]

    @property
    def guarantee(self) -> Untyped:
        """The guarantee of the aggregator: the conversion is post-processing."""
        return self.aggregator.guarantee

    def privacy_cost(self, queries: int = 1) -> PrivacyCost:
        """Describe the cost of answers."""
        return self.aggregator.privacy_cost(queries)

    def release(self, votes: Votes, *, rng: np.random.Generator | None = None) -> Labels:
        """Release converted answers; nothing is debited if ``write`` raises `ValueError`."""
        return self.write(np.asarray(self.aggregator.release(votes, rng=rng)))


class LedgerHandle:
    """A reference to one ledger: an object of this process, or a file that a copy opens again."""

    def __init__(self, ledger: PrivacyLedger, *, owner: str = "") -> None:
        self._ledger: PrivacyLedger | None = ledger
        self._identity = ledger.identity
        self.owner = owner  # the note of all entries of an exclusive ledger
        self._streams: dict[tuple[int, int], StreamDestination] = {}
        self._name = ledger.path
        self._seen = 0
        if self._name == MEMORY:
            self._name = f"{MEMORY}{secrets.token_hex(16)}"
            _IN_MEMORY[self._name] = ledger

    @property
    def path(self) -> str | None:
        """The ledger's file; None for one in memory."""
        return None if self._name.startswith(MEMORY) else self._name

    @property
    def ledger(self) -> PrivacyLedger:
        """The ledger; `LedgerError` if it is missing, or older than this handle."""
        if self._ledger is None:
            if self.path is None:
                message = (
                    "the budget of this estimator was kept in the memory of the process that fitted it, so a copy "
                    "elsewhere releases nothing: fit with ledger='FILE' to share a budget"
                )
                raise LedgerError(MEMORY, message)
            ledger = PrivacyLedger(self.path)
            answers = ledger.accountant().queries
            if self._identity and ledger.identity != self._identity:
                message = "it is another ledger than the one that this estimator was fitted with: put that in its place"
                raise LedgerError(self.path, message)
            if answers < self._seen:
                message = f"it has {answers} answers, and this estimator saw {self._seen}: an older copy took its place"
                raise LedgerError(self.path, message)
            self._ledger = ledger
        return self._ledger

    def is_of(self, other: "LedgerHandle") -> bool:
        """Whether both reference one ledger."""
        same = self._identity == other._identity != ""  # noqa: SLF001 (of this class)
        return same or self._name == other._name  # noqa: SLF001 (of this class)

    @property
    def has_paid(self) -> bool:
        """Whether the ledger has answers, as far as this process knows."""
        try:
            return self.answers() > 0
        except LedgerError:
            return self._seen > 0

    @property
    def ledger_digest(self) -> str:
        """The ledger's digest, which an audit compares later."""
        return str(self.ledger.digest())

    def answers(self) -> int:
        """Return the number of answers of the ledger."""
        self._seen = self.ledger.accountant().queries
        return self._seen

    def stream(self, note: str, name: str = "") -> StreamDestination:
        """Return the stream of a name, or the stream of this thread and process."""
        here = os.getpid(), threading.get_ident()
        if name or here not in self._streams:
            self._streams[here] = StreamDestination(self.ledger, f"{note} {name or secrets.token_hex(8)}")
        return self._streams[here]

    def release(self, aggregator: Aggregator, votes: Votes, note: str, sink: StreamDestination) -> Labels:
        """Release labels, debited and kept by this ledger; errors as `release_debited` and `check_owner`."""
        self.check_owner()
        labels = deliver(aggregator, votes, self.ledger, sink, note=self.owner or note)
        self._seen += int(labels.size)
        self.check_owner()  # of two concurrent ensembles at least one sees the other
        return labels

    def acknowledge(self, entry: int = 0) -> None:
        """Delete the labels of this process, and those of an entry, from the ledger."""
        entries = {sink.cursor.after for (process, _), sink in self._streams.items() if process == os.getpid()} | {
            entry
        }
        if self._ledger is None:
            with suppress(LedgerError):
                self._ledger = self.ledger
        if self._ledger is not None:  # else it is a copy without the ledger
            for number in sorted(entries - {0}):
                self._ledger.forget_labels(number)

    def check_owner(self) -> None:
        """Raise `LedgerError` if another ensemble debited an exclusive ledger."""
        if self.owner and any(entry.note != self.owner for entry in self.ledger.entries()):
            message = "other models paid from it, and their answers do not add up with these: fit with a new ledger"
            raise LedgerError(self.ledger.path, message)

    def __getstate__(self) -> dict[str, Any]:
        seen = self._seen if self._ledger is None else self.answers()
        return {"path": self._name, "seen": seen, "identity": self._identity, "owner": self.owner}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._name, self._seen = state["path"], state["seen"]
        self._identity, self.owner = state["identity"], state["owner"]
        self._ledger = _IN_MEMORY.get(self._name)
        self._streams = {}

    @classmethod
    def of_state(cls, state: dict[str, Any]) -> "LedgerHandle":
        """Restore a handle from plain data; its file is opened on use."""
        handle = cls.__new__(cls)
        handle.__setstate__(state)
        return handle


def opened(path: str | PathLike[str] | None, budget: PrivacyParams, charge: PrivacyCost, *, anew: bool) -> LedgerHandle:
    """Open the ledger of an estimator, or create it.

    Parameters
    ----------
    path
        A file, created if missing; None for a ledger in memory.
    budget
        The estimator's guarantee.
    charge
        The cost of an answer.
    anew
        Whether the ledger must be empty and exclusive, because the voters are private models: answers of different
        ensembles do not add up.

    Raises
    ------
    ValueError
        If the ledger has another budget, accounts for another kind of query, or is not empty where it must be.
    LedgerError
        If it cannot be opened.
    """
    owner = f"ensemble {secrets.token_hex(16)}" if anew else ""
    if path is None:
        return LedgerHandle(PrivacyLedger.create(MEMORY, budget), owner=owner)
    if not isinstance(path, str | PathLike) or str(path) == MEMORY:
        checks.fail("ledger", path, "the path of a file, or None", "for a PrivacyLedger say ledger.path")
    if not is_url(path) and not Path(path).exists():
        return LedgerHandle(PrivacyLedger.create(path, budget), owner=owner)
    ledger = PrivacyLedger(path)
    if ledger.budget != budget:
        advice = f"it is the budget of {ledger.path!r}: say so, or name another ledger"
        checks.fail("(epsilon, delta)", str(budget), str(ledger.budget), advice)
    held = ledger.accountant().charges
    if anew and held:
        advice = "models trained anew are others, whose answers do not add up with these: name a new ledger"
        checks.fail("ledger", ledger.path, "empty", advice)
    if ledger.composition == "one" and any(other.kind != charge.kind for other in held):
        advice = "fit with the settings that it was made for, or name a new ledger: what both release adds up"
        checks.fail("ledger", ledger.path, f"one of {charge.what!r}, and it holds {held[0].what!r}", advice)
    return LedgerHandle(ledger, owner=owner)


def warn_of_refit(before: LedgerHandle | None, now: LedgerHandle) -> None:
    """Warn that a new budget is added to the spent one of another ledger."""
    if before is not None and not now.is_of(before) and before.has_paid:
        warnings.warn(
            "this estimator has released something, and fit starts a new budget: if the new data are about the same "
            "people, both budgets add up (a ledger='FILE' keeps one budget over all fits)",
            RefitWarning,
            stacklevel=4,
        )
