"""The one budget of a fitted estimator, however often the estimator is copied.

A budget that a copy could spend again would be none. So an estimator never holds its ledger's content, only a handle:

* a ledger in a **file** is known by its path. Copies, other processes and a loaded estimator all debit that file. A
  handle remembers which ledger it was and how many answers it saw there, and refuses another ledger and an older copy;
* a ledger in **memory** is known to the process that made it. `copy.deepcopy` and `pickle` within that process lead to
  the same ledger; in another process, or after a restart, there is none, and nothing is released.

**Nothing that was paid for is lost** (`darrm.release.delivery`): the ledger keeps labels from the debit on, and every
estimator's labels are of a stream. `predict` of a vote drops those of this thread's call before in the transaction that
pays for the next ones; labels of a `PATEClassifier` wait until its student is saved, or `Ensemble.acknowledge`.
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

from darrm.account.ledger import PrivacyLedger
from darrm.account.ledger_store import MEMORY
from darrm.account.store import is_url
from darrm.aggregator import Aggregator
from darrm.errors import LedgerError, checks
from darrm.losses.charges import Charge
from darrm.privacy import PrivacyParams
from darrm.release.delivery import Delivery, StreamSink
from darrm.system.extras import Untyped
from darrm.votes import Labels, Votes

# the ledgers in memory of this process by a name that nobody guesses: a copy finds the very ledger, or none
_IN_MEMORY: "WeakValueDictionary[str, PrivacyLedger]" = WeakValueDictionary()


class RefitWarning(UserWarning):
    """An estimator that has released something is fitted again, with a new budget: the two budgets add up."""


class SelectionWarning(UserWarning):
    """A score was computed: it spends budget, and what is chosen by scores on private data is not accounted for."""


class ResumeWarning(UserWarning):
    """Labels that were paid for wait in the ledger: `fit` trained the student on these, and paid nothing."""


@dataclass(frozen=True)
class Written:
    """An aggregator whose answers, numbers of classes, are written as the labels that the ledger keeps."""

    aggregator: Aggregator
    write: Callable[[NDArray[np.int64]], Labels]

    @property
    def guarantee(self) -> Untyped:
        """What the aggregator guarantees: how its answers are written costs nothing."""
        return self.aggregator.guarantee

    def charge(self, queries: int = 1) -> Charge:
        """Describe what so many answers cost."""
        return self.aggregator.charge(queries)

    def release(self, votes: Votes, *, rng: np.random.Generator | None = None) -> Labels:
        """Release what the aggregator answers, as it is to be kept; `ValueError` from ``write`` pays nothing."""
        return self.write(np.asarray(self.aggregator.release(votes, rng=rng)))


class LedgerHandle:
    """Leads to one ledger: held in this process, or found again by a copy."""

    def __init__(self, ledger: PrivacyLedger, *, owner: str = "") -> None:
        self._ledger: PrivacyLedger | None = ledger
        self._identity = ledger.identity
        self.owner = owner  # the note of all entries, where nobody else may pay from the ledger
        self._streams: dict[tuple[int, int], StreamSink] = {}
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
        """The ledger; `LedgerError` where it is gone, or has forgotten what was spent."""
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
        """Whether both lead to one ledger."""
        same = self._identity == other._identity != ""  # noqa: SLF001 (of this class)
        return same or self._name == other._name  # noqa: SLF001 (of this class)

    @property
    def has_paid(self) -> bool:
        """Whether something was paid for, as far as this process knows."""
        try:
            return self.answers() > 0
        except LedgerError:
            return self._seen > 0

    @property
    def head(self) -> str:
        """The ledger's head, for whoever audits it later; empty for one of version 1 that nothing was debited from."""
        return str(self.ledger.head()) if self.ledger.identity else ""

    def answers(self) -> int:
        """Return how many answers the ledger holds."""
        self._seen = self.ledger.accountant().queries
        return self._seen

    def stream(self, note: str, name: str = "") -> StreamSink:
        """Return the stream of a name, or that of this thread and process, which nobody else counts on."""
        here = os.getpid(), threading.get_ident()
        if name or here not in self._streams:
            self._streams[here] = StreamSink(self.ledger, f"{note} {name or secrets.token_hex(8)}")
        return self._streams[here]

    def release(self, aggregator: Aggregator, votes: Votes, note: str, sink: StreamSink) -> Labels:
        """Release labels, paid for and kept by this ledger; errors as `release_debited` and `check_owner`."""
        self.check_owner()
        labels = Delivery(aggregator, self.ledger, self.owner or note).deliver(votes, sink)
        self._seen += int(labels.size)
        self.check_owner()  # of two ensembles that pay at once, both see the other or one sees the first
        return labels

    def acknowledge(self, entry: int = 0) -> None:
        """Drop the labels that this process released, or took up, and those of an entry, from the ledger."""
        entries = {sink.turn.after for (process, _), sink in self._streams.items() if process == os.getpid()} | {entry}
        if self._ledger is None:
            with suppress(LedgerError):
                self._ledger = self.ledger
        if self._ledger is not None:  # else it is a copy, where there is no such ledger
            for number in sorted(entries - {0}):
                self._ledger.forget_labels(number)

    def check_owner(self) -> None:
        """Raise `LedgerError` where another ensemble paid from a ledger whose sums hold for one ensemble only."""
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
        """Lead to the ledger of a handle that was written down; its file is opened when it is needed."""
        handle = cls.__new__(cls)
        handle.__setstate__(state)
        return handle


def opened(path: str | PathLike[str] | None, budget: PrivacyParams, charge: Charge, *, anew: bool) -> LedgerHandle:
    """Open the ledger that pays for an estimator, or make it.

    Parameters
    ----------
    path
        A file, made where there is none; None for a ledger in memory.
    budget
        What the estimator promises.
    charge
        What it will debit.
    anew
        Whether the ledger must hold nothing, and nobody else may pay from it, because the voters are private models:
        another ensemble's answers do not add up with those of this one.

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
    if ledger.kinds == "one" and any(other.kind != charge.kind for other in held):
        advice = "fit with the settings that it was made for, or name a new ledger: what both release adds up"
        checks.fail("ledger", ledger.path, f"one of {charge.what!r}, and it holds {held[0].what!r}", advice)
    return LedgerHandle(ledger, owner=owner)


def warn_of_refit(before: LedgerHandle | None, now: LedgerHandle) -> None:
    """Say that a new budget does not undo what an old one, in memory or in another file, has paid for."""
    if before is not None and not now.is_of(before) and before.has_paid:
        warnings.warn(
            "this estimator has released something, and fit starts a new budget: if the new data are about the same "
            "people, both budgets add up (a ledger='FILE' keeps one budget over all fits)",
            RefitWarning,
            stacklevel=4,
        )
