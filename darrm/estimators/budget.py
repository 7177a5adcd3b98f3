"""The budget of an estimator: the release that is planned for it, and the ledger that all of its copies share.

An estimator holds a handle of its ledger, never the content, so that no copy can spend a budget twice:

* a ledger in a **file** is identified by its path: copies, other processes and loaded estimators debit the file. A
  handle knows the ledger's identity and number of answers, and refuses other ledgers and older copies;
* a ledger in **memory** belongs to its process: elsewhere, or after a restart, nothing is released.

**No debited label is lost** (`darrm.release.delivery`): the ledger keeps labels in a stream of the estimator. The next
`predict` of the thread confirms the last labels; those of a `PATEClassifier` wait until its student is saved, or
`Ensemble.acknowledge`.
"""

import math
import os
import secrets
import threading
import warnings
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from decimal import ROUND_CEILING
from functools import lru_cache
from os import PathLike
from pathlib import Path
from typing import cast
from weakref import WeakValueDictionary

import numpy as np
from numpy.typing import NDArray

from darrm.aggregator import Aggregator
from darrm.errors import LedgerError, PlanError
from darrm.ledger.ledger import PrivacyLedger
from darrm.ledger.sqlite import MEMORY, is_url
from darrm.loss.privacy_cost import PrivacyCost
from darrm.loss.renyi import RenyiCurve
from darrm.pate.confident import ConfidentGNMax, ScoredGNMax
from darrm.pate.tested import TestedRun
from darrm.plan.accuracy import Measure
from darrm.plan.calibration import CalibratedMechanism, calibrate, largest_rate
from darrm.plan.mechanism import make_accountant, needs_no_noise, rounded
from darrm.plan.planner import RELEASED, find_mechanism, plan
from darrm.priors import parse
from darrm.privacy import PrivacyParams
from darrm.problem import Voters, Workload
from darrm.release.delivery import StreamDestination, deliver
from darrm.util import checks
from darrm.util.extras import Untyped
from darrm.votes import ABSTAIN, Labels, Votes

BEST, CONFIDENT = "best", "confident"
# the ledgers in memory of this process by random names: a copy finds the same ledger, or none
_MEMORY_LEDGERS: "WeakValueDictionary[str, PrivacyLedger]" = WeakValueDictionary()


class RefitWarning(UserWarning):
    """An estimator with released answers is fitted again, with a new budget: the budgets add up."""


class SelectionWarning(UserWarning):
    """A score spends budget, and a choice by scores on private data is not accounted for."""


class ResumeWarning(UserWarning):
    """Debited labels wait in the ledger: `fit` trained the student on them, without cost."""


def plan_release(workload: Workload, aggregator: Untyped, keywords: tuple[str, ...] = (BEST,)) -> CalibratedMechanism:
    """Plan the best release, or check the cost of an `Aggregator`; `PlanError` if nothing fits."""
    if isinstance(aggregator, str) and aggregator == BEST:
        return _plan_best(workload)
    if isinstance(aggregator, str | type) or not isinstance(aggregator, Aggregator):
        allowed = " or ".join(map(repr, keywords))
        checks.fail("aggregator", aggregator, f"{allowed}, or an aggregator such as darrm.pate.GNMax(40)")
    if isinstance(aggregator, ScoredGNMax):
        advice = "its scores are for queries in order, and public inputs are queried in random order"
        checks.fail("aggregator", checks.Text("a ScoredGNMax"), "one for any inputs", advice)
    cost: PrivacyCost = aggregator.privacy_cost()
    account = make_accountant(workload, cost)
    if not account.admits(workload.total):
        request = f"{workload.queries} answers by {cost.what}"
        raise PlanError(f"{request} do not fit into {workload.total}: take more noise, or fewer answers")
    return CalibratedMechanism(
        slug="",
        name=cost.what,
        workload=workload,
        curve=np.full(workload.voters.num_upper_levels, np.nan),  # the accuracy of an aggregator is unknown
        spent=account.spent(workload.total.delta),
        aggregator=aggregator,
    )


@lru_cache(maxsize=64)  # a grid search repeats the same workload, and a plan takes seconds
def _plan_best(workload: Workload) -> CalibratedMechanism:
    if needs_no_noise(workload):
        # the votes need no noise, and a table of γ = 1 would be debited for every query
        return replace(calibrate(workload, find_mechanism("no-noise")), aggregator=None)
    return plan(workload, mechanisms=RELEASED).best


@lru_cache(maxsize=64)
def plan_tested_run(workload: Workload, aggregator: str, votes_look_like: str | None) -> TestedRun:
    """Plan propose-test-release for a public belief about the votes; `PlanError` if no noise passes the test."""
    if votes_look_like is None:
        advice = "a public belief, such as 'dirichlet:0.01' for teachers that mostly agree, or 'votes:FILE'"
        checks.fail("votes_look_like", None, "said where accounting='tested'", advice)
    slugs = {BEST: "gnmax-tested-else", CONFIDENT: "confident-tested"}
    checks.one_of(slugs, aggregator=aggregator)
    measure = Measure(workload, parse(votes_look_like, workload.classes))
    return cast("TestedRun", calibrate(workload, find_mechanism(slugs[aggregator]), measure=measure).aggregator)


def cost_of_models(voters: Voters) -> PrivacyCost:
    """Return the cost of private models whose answers need no noise, debited once, after their training.

    All K models together are one mechanism: a person's data influence one of them.
    """
    return PrivacyCost(f"{voters.K} private models on disjoint shards", guarantee=voters.each, reached=1)


@dataclass(frozen=True)
class LimitedConfident:
    """Confident-GNMax with a cost for any votes: checks Q ``queries``, and answers the first A ``answers`` that pass.

    [P, Algorithm 1] answers all queries that pass a check, so its cost depends on the votes. Here the checks of all Q
    queries are drawn first; then the first A queries that passed are answered. The caller orders queries at random.

    **Theorem.** With c the Rényi curve of a check and a that of an answer, the run has the curve Q·c + A·a [M17,
    Proposition 1]. *Proof.* The second step may depend on the outcome of the first, by adaptive composition, and
    answering fewer queries is post-processing of answering A. ∎ So the total is debited, and may be published, before
    the release. `tests/estimators/test_budget.py` guards it.
    """

    aggregator: ConfidentGNMax
    queries: int
    answers: int

    @property
    def guarantee(self) -> RenyiCurve:
        curve = self.aggregator.check.guarantee.repeat(self.queries)
        return curve + self.aggregator.answer.guarantee.repeat(self.answers)

    def privacy_cost(self, queries: int = 0) -> PrivacyCost:
        if queries > self.queries:
            checks.fail("queries", queries, f"at most {self.queries}, for which the noise was calibrated")
        description = f"{self.aggregator!r}: {self.queries} checks, {self.answers} answers"
        return PrivacyCost(description, renyi=self.guarantee, reached=1)

    def release(self, votes: Votes, *, rng: np.random.Generator | None = None) -> NDArray[np.int64]:
        """Release a class for the first queries that pass, `ABSTAIN` for all others: (Q,)."""
        has_passed = self.aggregator.check.release(self.aggregator.statistic(votes), rng)
        rows = np.flatnonzero(has_passed)[: self.answers]
        answers = np.full(len(votes.counts), ABSTAIN, dtype=np.int64)
        if rows.size:
            selected_votes = Votes.from_counts(votes.counts[rows], votes.voters)
            answers[rows] = self.aggregator.answer.release(selected_votes, rng=rng)
        return answers


def calibrate_confident(workload: Workload, answers: int) -> LimitedConfident:
    """Calibrate the least noise of Q checks and ``answers`` answers; `PlanError` if the total has no δ.

    >>> from darrm import PrivacyAccountant
    >>> work = Workload(Voters(250, PrivacyParams("inf"), overlap=1), 1000, PrivacyParams(2, "1e-5"), classes=10)
    >>> run = calibrate_confident(work, 250)
    >>> PrivacyAccountant(costs=[run.privacy_cost()]).admits(work.total)
    True
    """
    if workload.total.delta == 0.0:
        raise PlanError("Gaussian noise needs delta > 0: pass delta, or aggregator='best'")
    share = 1.0 / 3.0  # of the divergence for checks; a check costs about 1/π, an answer 0.65, in units of λ/σ²
    ratio = math.sqrt(1.0 / math.pi * workload.queries * (1.0 - share) / (0.65 * answers * share))

    def make_run(rate: float) -> LimitedConfident:
        min_sigma = 0.5  # votes, for discrete noise
        sigma = float(rounded(max(min_sigma, min_sigma / ratio, 1.0 / rate), ROUND_CEILING))
        check = float(rounded(ratio * sigma, ROUND_CEILING))
        threshold = 0.8 * workload.voters.K  # as [P, Section 5] takes 200 of 250
        return LimitedConfident(ConfidentGNMax(threshold, check, sigma), workload.queries, answers)

    def compute_cost(rate: float) -> PrivacyCost:
        return make_run(rate).privacy_cost()

    run_workload = Workload(workload.voters, 1, workload.total)  # the run is one cost
    return make_run(largest_rate(run_workload, compute_cost, workload.total.epsilon / (2.0 * math.sqrt(answers))))


@dataclass(frozen=True)
class LabelConverter:
    """An aggregator whose class indices are converted to the labels of the ledger: post-processing."""

    aggregator: Aggregator
    convert: Callable[[NDArray[np.int64]], Labels]

    @property
    def guarantee(self) -> Untyped:
        return self.aggregator.guarantee

    def privacy_cost(self, queries: int = 1) -> PrivacyCost:
        return self.aggregator.privacy_cost(queries)

    def release(self, votes: Votes, *, rng: np.random.Generator | None = None) -> Labels:
        return self.convert(np.asarray(self.aggregator.release(votes, rng=rng)))


@dataclass(eq=False, repr=False)  # a path may be a URL with a password
class LedgerHandle:
    """A reference to one ledger: an object of this process, or a file that a copy opens again."""

    path: str  # of a file, or `MEMORY` with a random name
    identity: str
    owner: str = ""  # the note of all entries of an exclusive ledger
    seen: int = 0  # answers in the ledger when it was last read
    _ledger: PrivacyLedger | None = field(default=None, init=False)
    _streams: dict[tuple[int, int], StreamDestination] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        self._ledger = _MEMORY_LEDGERS.get(self.path)

    @classmethod
    def of(cls, ledger: PrivacyLedger, owner: str = "") -> "LedgerHandle":
        path = ledger.path
        if path == MEMORY:
            path += secrets.token_hex(16)
            _MEMORY_LEDGERS[path] = ledger
        handle = cls(path, ledger.identity, owner)
        handle._ledger = ledger
        return handle

    def __getstate__(self) -> dict[str, str | int]:
        if self._ledger is not None:
            self.count_answers()
        return {"path": self.path, "identity": self.identity, "owner": self.owner, "seen": self.seen}

    def __setstate__(self, state: dict[str, str | int]) -> None:
        self.__init__(**state)  # type: ignore[misc]  # a copy opens the ledger on use

    @property
    def is_in_memory(self) -> bool:
        return self.path.startswith(MEMORY)

    @property
    def ledger(self) -> PrivacyLedger:
        """The ledger; `LedgerError` if it is missing, or older than this handle."""
        if self._ledger is None:
            if self.is_in_memory:
                message = (
                    "the budget of this estimator was kept in the memory of the process that fitted it, so a copy "
                    "elsewhere releases nothing: fit with ledger='FILE' to share a budget"
                )
                raise LedgerError(MEMORY, message)
            ledger = PrivacyLedger(self.path)
            answers = ledger.accountant().queries
            if self.identity and ledger.identity != self.identity:
                message = "it is another ledger than the one that this estimator was fitted with: put that in its place"
                raise LedgerError(self.path, message)
            if answers < self.seen:
                message = f"it has {answers} answers, and this estimator saw {self.seen}: an older copy took its place"
                raise LedgerError(self.path, message)
            self._ledger = ledger
        return self._ledger

    def count_answers(self) -> int:
        self.seen = self.ledger.accountant().queries
        return self.seen

    def warn_of_refit(self, previous: "LedgerHandle | None") -> None:
        if previous is None or self.path == previous.path or self.identity == previous.identity != "":
            return
        with suppress(LedgerError):
            previous.count_answers()
        if previous.seen:
            warnings.warn(
                "this estimator has released something, and fit starts a new budget: if the new data are about the "
                "same people, both budgets add up (a ledger='FILE' keeps one budget over all fits)",
                RefitWarning,
                stacklevel=4,
            )

    def stream(self, note: str, name: str = "") -> StreamDestination:
        """Return the stream of a name, or the stream of this thread and process."""
        thread = os.getpid(), threading.get_ident()
        if name or thread not in self._streams:
            self._streams[thread] = StreamDestination(self.ledger, f"{note} {name or secrets.token_hex(8)}")
        return self._streams[thread]

    def release(self, aggregator: Aggregator, votes: Votes, note: str, stream: StreamDestination) -> Labels:
        self.check_owner()
        labels = deliver(aggregator, votes, self.ledger, stream, note=self.owner or note)
        self.seen += int(labels.size)
        self.check_owner()  # at least one of two concurrent ensembles sees the other's entries
        return labels

    def check_owner(self) -> None:
        if self.owner and any(entry.note != self.owner for entry in self.ledger.entries()):
            message = "other models paid from it, and their answers do not add up with these: fit with a new ledger"
            raise LedgerError(self.ledger.path, message)

    def acknowledge(self, entry: int = 0) -> None:
        """Delete the labels of this process, and those of an entry, from the ledger, if it is there."""
        entries = {stream.cursor.after for (pid, _), stream in self._streams.items() if pid == os.getpid()}
        with suppress(LedgerError):
            self._ledger = self.ledger
        if self._ledger is not None:
            for number in sorted({*entries, entry} - {0}):
                self._ledger.forget_labels(number)


def open_ledger(
    path: str | PathLike[str] | None, budget: PrivacyParams, cost: PrivacyCost, *, exclusive: bool = False
) -> LedgerHandle:
    """Open the ledger of an estimator, or create it; None is a ledger in memory.

    ``exclusive`` is for private models, whose ledger must be empty. `ValueError` if it is not, has another budget, or
    accounts for another kind of query; `LedgerError` if it cannot be opened.
    """
    owner = f"ensemble {secrets.token_hex(16)}" if exclusive else ""
    if path is None:
        return LedgerHandle.of(PrivacyLedger.create(MEMORY, budget), owner)
    if not isinstance(path, str | PathLike) or str(path) == MEMORY:
        checks.fail("ledger", path, "the path of a file, or None", "for a PrivacyLedger say ledger.path")
    if not is_url(path) and not Path(path).exists():
        return LedgerHandle.of(PrivacyLedger.create(path, budget), owner)
    ledger = PrivacyLedger(path)
    if ledger.budget != budget:
        advice = f"it is the budget of {ledger.path!r}: use it, or name another ledger"
        checks.fail("(epsilon, delta)", str(budget), str(ledger.budget), advice)
    costs = ledger.accountant().costs
    if exclusive and costs:
        advice = "retrained models are others, and their answers do not add up with these: name a new ledger"
        checks.fail("ledger", ledger.path, "empty", advice)
    if ledger.composition == "one" and any(spent.kind != cost.kind for spent in costs):
        advice = "fit with the settings that it was made for, or name a new ledger: what both release adds up"
        checks.fail("ledger", ledger.path, f"one of {cost.what!r}, and it holds {costs[0].what!r}", advice)
    return LedgerHandle.of(ledger, owner)
