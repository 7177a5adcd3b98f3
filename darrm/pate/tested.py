"""Propose-test-release: release the labels of a noisy maximum if a private test finds that these votes cost little.

If voters agree, a run costs much less than its worst case, and that cost is private. A coin, whose chance depends on
the level of the run on the scale of votes (`darrm.pate.vote_scale`), decides whether the labels are released. Labels
and coin satisfy a public budget *for any data*, debited in full before the coin. No question or vote may depend on an
answer. If the test fails, no query gets a label, or all get one from a mechanism that is private for any votes.

A *level* v in 0 … V is a public function of the votes that one person changes by at most 1, with C_0 ≤ … ≤ C_V and

    D_α(R(D) ‖ R(D′)) ≤ C_v and D_α(R(D′) ‖ R(D)) ≤ C_v    for every neighbor D′ of a D of level v.

With chance p_v the run R is released, otherwise nothing or another run P. Let δ_v(x) and δ_P(x) bound the hockey-stick
divergences at e^x of R at cost C_v, and of P; of nothing δ_P(x) = max(0, 1 − e^x).

**Theorem.** The whole is (ε, δ)-private if for all levels v, w that differ by at most 1, with u = min(v, w),

    p_v·δ_u(ε + log(p_w/p_v)) + (1 − p_v)·δ_P(ε + log((1 − p_w)/(1 − p_v))) ≤ δ.

*Proof.* Let D and D′ be neighbors of levels v and w. Passing and failing are disjoint, so the hockey-stick divergence
is the sum of sup_S p_v·R(S) − e^ε·p_w·R′(S) = p_v·H(R ‖ R′) at e^ε·p_w/p_v and of the same for P and 1 − p. One of D
and D′ has level u, and C_u bounds both directions. ∎ (`tests/pate/test_tested.py`)

From the top level down, each chance is the largest that the one above admits. `docs/theory/pate.md` compares with
generalized propose-test-release [RZW23].

δ_u(x) = min over λ ≤ α of e^{(λ − 1)(C_u − x)}·(1 − 1/λ)^{λ − 1}/λ [CKS20, Proposition 12], for every real x, since D_λ
grows with λ. Chances are floats, hence exact fractions; the condition is checked for these with room for rounding.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from darrm.errors import TableError
from darrm.loss.privacy_cost import PrivacyCost
from darrm.loss.renyi import RenyiCurve
from darrm.noisy_max.cost_given_votes import WIDEST, missed_probabilities
from darrm.noisy_max.mechanisms import GNMax, NoisyMax
from darrm.noisy_max.mislabel_bound import GaussianMislabelBound, MislabelBound, tightest_mislabel_bound
from darrm.noisy_max.noisy_maximum import NoisyMaximum
from darrm.numerics import Array
from darrm.numerics.exact_sampling import uniform_below
from darrm.open_set.open_law import to_votes
from darrm.pate.confident import ConfidentGNMax, NoisyCheck, may_decline
from darrm.pate.vote_scale import MARKS_A_VOTE, CheckedCost, VoteScale
from darrm.privacy import PrivacyParams, exact_number
from darrm.problem import Voters, is_open
from darrm.util import checks
from darrm.util.files import Document, Json, compute_checksum, errors_about
from darrm.votes import ABSTAIN, Labels, Votes

_ORDER_COUNT = 48  # the smallest of their bounds is used
_MIN_ORDER_SHARE = 0.02  # share of α − 1: the smallest order
_DELTA_MARGIN = 1e-9  # relative, of δ
_CHANCES_PER_ROUND, _SEARCH_ROUNDS = 64, 3  # candidates per round of a search, and rounds
_LARGEST_LOGIT = 40.0


class BudgetTest:
    """Check the condition of the theorem; ``otherwise`` is the Rényi curve of the other run."""

    def __init__(self, order: float, budget: PrivacyParams, otherwise: RenyiCurve | None = None) -> None:
        self.epsilon, self.delta = budget.epsilon, budget.delta * (1.0 - _DELTA_MARGIN)
        orders = 1.0 + (order - 1.0) * np.geomspace(_MIN_ORDER_SHARE, 1.0, _ORDER_COUNT)
        self._run = orders - 1.0, _compute_constants(orders)
        self._otherwise = None
        if otherwise is not None:
            powers = otherwise.orders - 1.0
            self._otherwise = powers, powers * otherwise.values + _compute_constants(otherwise.orders)

    def holds(self, first: Array | float, second: Array | float, cost: float) -> NDArray[np.bool_]:
        """Return whether the condition holds for chances of two levels, elementwise, at the cost of the lower one."""
        p, q = np.broadcast_arrays(np.asarray(first, dtype=np.float64), np.asarray(second, dtype=np.float64))
        powers, constants = self._run
        with np.errstate(divide="ignore", invalid="ignore"):
            pass_epsilons = np.where(p > 0.0, self.epsilon + np.log(q) - np.log(p), np.inf)
            fail_epsilons = np.where(p < 1.0, self.epsilon + np.log1p(-q) - np.log1p(-p), np.inf)
        total = p * _compute_smallest_delta(powers, powers * cost + constants, pass_epsilons)
        if self._otherwise is None:
            total += (1.0 - p) * -np.expm1(np.minimum(fail_epsilons, 0.0))
        else:
            total += (1.0 - p) * _compute_smallest_delta(*self._otherwise, fail_epsilons)
        return np.asarray(total <= self.delta)

    def all_hold(self, chances: Array, costs: Array) -> bool:
        """Check all levels in both directions: the proof of a stored test."""
        is_rising = np.all(np.diff(costs) >= 0.0) and costs.size == chances.size
        levels = zip(chances, np.append(chances[1:], chances[-1:]), costs, strict=True)
        return bool(is_rising) and all(self._holds_for_pair(np.array([p]), q, cost)[0] for p, q, cost in levels)

    def chances(self, costs: Array) -> Array:
        """Find the largest chance at each of (V + 1,) costs, from the last cost down."""
        chances = np.zeros(costs.size)
        upper = self._find_largest_chance(0.0, float(costs[-1]), is_top=True)
        for level in range(costs.size - 1, -1, -1):
            upper = self._find_largest_chance(upper, float(costs[level]))
            chances[level] = upper
            if upper == 1.0:
                chances[:level] = 1.0
                break
        return chances

    def _holds_for_pair(self, chances: Array, upper: float, cost: float) -> NDArray[np.bool_]:
        return self.holds(chances, upper, cost) & self.holds(upper, chances, cost) & self.holds(chances, chances, cost)

    def _find_largest_chance(self, upper: float, cost: float, *, is_top: bool = False) -> float:
        low, high = _compute_logit(upper), _LARGEST_LOGIT
        best = upper
        for _ in range(_SEARCH_ROUNDS):
            logits = np.linspace(low, high, _CHANCES_PER_ROUND)
            tries = np.append(1.0 / (1.0 + np.exp(-logits)), 1.0 if high == _LARGEST_LOGIT else [])
            is_allowed = self.holds(tries, tries, cost) if is_top else self._holds_for_pair(tries, upper, cost)
            if not is_allowed.any():
                return best
            last_index = int(np.flatnonzero(is_allowed)[-1])
            best = max(best, float(tries[last_index]))
            if last_index + 1 >= min(tries.size, _CHANCES_PER_ROUND):
                return best
            low, high = float(logits[last_index]), float(logits[last_index + 1])
        return best


def _compute_logit(chance: float) -> float:
    if chance <= 0.0:
        return -_LARGEST_LOGIT
    return min(math.log(chance) - math.log1p(-chance), _LARGEST_LOGIT) if chance < 1.0 else _LARGEST_LOGIT


def _compute_constants(orders: Array) -> Array:
    return np.asarray((orders - 1.0) * np.log1p(-1.0 / orders) - np.log(orders))


def _compute_smallest_delta(powers: Array, constants: Array, x: Array) -> Array:
    with np.errstate(over="ignore", invalid="ignore"):
        logs = np.min(constants - powers * x[..., None], axis=-1)
    return np.asarray(np.exp(np.minimum(np.nan_to_num(logs, nan=-np.inf), 0.0)))


FORMAT, VERSION = "darrm tested run", 1
LARGEST_ORDER, _MAX_QUERIES = 1e4, 10_000_000
_SMALLEST_COST = 1e-10  # nats: of the first level
_VOTERS_ADVICE = "write Voters(K, PrivacyParams('inf'), overlap=1): non-private voters, one person influences one"


@dataclass(frozen=True)
class TestedRun:
    """Labels of at most Q queries by a noisy maximum, released if a private test passes: (ε, δ)-private with the test.

    Parameters
    ----------
    answer
        `GNMax`, `LNMax` or `AsymmetricMax` with its voters and classes; one person moves one vote.
    queries
        Q, the largest number of labels.
    budget
        The guarantee of the run and the test, for any votes.
    order
        α > 1 of the divergence that bounds the run; chosen without the private votes.
    check
        The check of `darrm.pate.ConfidentGNMax`, for `GNMax`; None answers all.
    otherwise
        The mechanism if the test fails; None releases no label.

    `ValueError` if a parameter is out of range.

    >>> teachers = Voters(250, PrivacyParams("inf"), overlap=1)
    >>> run = TestedRun(NoisyMaximum(GNMax(20.0), teachers, 3), 400, PrivacyParams(2, "1e-5"), order=8.0)
    >>> votes = Votes.from_counts([[245, 5, 0]] * 400)  # public ones, to look at the chance
    >>> run.pass_chance(votes) > 0.99, run.privacy_cost(400).guarantee
    (True, PrivacyParams(epsilon=2, delta=0.00001))
    >>> bool((run.release(votes) == 0).mean() > 0.99)
    True
    """

    answer: NoisyMaximum
    queries: int
    budget: PrivacyParams
    order: float
    check: NoisyCheck | None = None
    otherwise: NoisyMaximum | None = None

    __test__ = False  # pytest collects classes named Test…

    def __post_init__(self) -> None:
        checks.instance(NoisyMaximum, answer=self.answer, advice="write NoisyMaximum(GNMax(40), voters, classes)")
        if not self.voters.are_non_private or self.voters.reached != 1 or self.answer.mechanism.reached != 1:
            checks.fail("voters", self.voters, "plain, and one person reaches one", _VOTERS_ADVICE)
        if is_open(self.classes):
            checks.fail("answer", checks.Text("open answers"), "for listed classes", "the theorem covers these only")
        if not isinstance(self.answer.mechanism, NoisyMax):
            checks.fail("answer", self.answer.mechanism, "GNMax, LNMax or AsymmetricMax")
        if self.mechanism.law.deviation > WIDEST:
            advice = "wider noise needs no test"
            checks.fail("answer", self.answer.mechanism, f"noise of a deviation of at most {WIDEST:g} votes", advice)
        checks.integer_at_least(1, most=_MAX_QUERIES, queries=self.queries)
        object.__setattr__(self, "budget", PrivacyParams.of(self.budget, "budget"))
        if not (0.0 < self.budget.epsilon < np.inf and 0.0 < self.budget.delta < 1.0):
            checks.fail("budget", self.budget, "epsilon and delta above 0", "the coin reveals a little of the votes")
        if not 1.0 < self.order <= LARGEST_ORDER:
            checks.fail("order", self.order, f"above 1, at most {LARGEST_ORDER:g}")
        if self.check is not None and not isinstance(self.answer.mechanism, GNMax):
            checks.fail("answer", self.answer.mechanism, "GNMax", "Confident-GNMax answers with it")
        other = self.otherwise
        if other is not None and (other.voters, other.classes) != (self.voters, self.classes):
            checks.fail("otherwise", other, "of the same voters and classes")

    @property
    def voters(self) -> Voters:
        """The voters."""
        return self.answer.voters

    @property
    def classes(self) -> int:
        """The number of classes."""
        return self.answer.classes

    @property
    def guarantee(self) -> PrivacyParams:
        """The budget, satisfied for any votes."""
        return self.budget

    @cached_property
    def bound(self) -> MislabelBound | CheckedCost:
        """The bound on the cost of one answer."""
        if self.check is None:
            return tightest_mislabel_bound(self.mechanism.law, self.order)
        return CheckedCost(
            GaussianMislabelBound(self.mechanism.law.deviation, self.order), self.check, self.voters.K, self.classes
        )

    @cached_property
    def costs(self) -> Array:
        """(V + 1,) the largest cost of the run at each level, in nats; public."""
        marks = VoteScale(self.bound, self.queries, _SMALLEST_COST).marks
        levels = marks[::MARKS_A_VOTE]
        return levels if levels[-1] == marks[-1] else np.append(levels, marks[-1])

    @cached_property
    def chances(self) -> Array:
        """(V + 1,) the proved chance to pass at each level; public."""
        other = None if self.otherwise is None else self.otherwise.privacy_cost(self.queries).renyi
        test = BudgetTest(self.order, self.budget, None if other is None else other.repeat(self.queries))
        chances = test.chances(self.costs)
        if not test.all_hold(chances, self.costs):
            description = f"a {type(self.otherwise).__name__} that is used otherwise" if self.otherwise else "this test"
            checks.fail("budget", self.budget, f"one that {description} fits into", "take more noise")
        return chances

    def pass_chance(self, votes: Votes) -> float:
        """Compute the chance to pass: **private data**."""
        return float(self.chances[self._find_votes_level(self._check_votes(votes))])

    def bound_costs(self, counts: NDArray[np.int64]) -> Array:
        """Bound the cost of each query at its votes, (Q, C) → (Q,) nats: **private data**."""
        missed = missed_probabilities(self.mechanism.law, counts)
        if isinstance(self.bound, CheckedCost):
            return self.bound.cost(missed, counts.max(axis=1))
        return self.bound.cost(missed)

    def find_level(self, total: float | Array) -> NDArray[np.int64]:
        """Find the levels of total costs: **private data**."""
        return np.minimum(np.searchsorted(self.costs, total), self.costs.size - 1)

    def privacy_cost(self, queries: int = 1) -> PrivacyCost:
        """Return the budget, once, for any number of labels."""
        checks.integer_at_least(1, most=self.queries, queries=queries, advice="the largest number of labels of the run")
        words = f"a tested run of {self.words} over {self.voters.K} voters, up to {self.queries} labels"
        return PrivacyCost(words, guarantee=self.budget, voters=self.voters, table=self.digest, labels=self.queries)

    @property
    def words(self) -> str:
        """The mechanism, for reports."""
        return self.mechanism.words if self.check is None else repr(self.answering)

    def release(self, votes: Votes | ArrayLike, *, rng: np.random.Generator | None = None) -> Labels:
        """Release a class for each query, or `ABSTAIN` for each: (Q,); the running time depends on the votes."""
        votes = self._check_votes(votes)
        chance = Fraction(float(self.chances[self._find_votes_level(votes)]))
        draws = uniform_below(rng)(np.array([chance.denominator], dtype=object))
        released = self.answering.release(votes, rng=rng)
        abstentions = np.full(votes.queries, ABSTAIN, dtype=np.int64)
        fallback = votes.name_labels(abstentions) if self.otherwise is None else self.otherwise.release(votes, rng=rng)
        return released if int(draws[0]) < chance.numerator else fallback

    @property
    def mechanism(self) -> NoisyMax:
        """The noisy maximum of all queries or of checked ones."""
        return cast("NoisyMax", self.answer.mechanism)

    @property
    def answering(self) -> NoisyMax | ConfidentGNMax:
        """The aggregator of a passed test."""
        if self.check is None:
            return self.mechanism
        return ConfidentGNMax(self.check.threshold, self.check.sigma, self.mechanism.law.deviation)

    def _check_votes(self, votes: Votes | ArrayLike) -> Votes:
        votes = may_decline(to_votes(votes, self.classes)).require_voters(self.voters.K)
        if votes.missing is not None:
            checks.fail("votes", checks.Text("missing votes"), "complete", "the test needs all of them")
        if votes.queries > self.queries:
            checks.fail("votes", checks.Text(f"{votes.queries} queries"), f"at most {self.queries}, as in the run")
        return votes

    def _find_votes_level(self, votes: Votes) -> int:
        return int(self.find_level(float(self.bound_costs(votes.counts).sum())))

    @cached_property
    def digest(self) -> str:
        """The SHA-256 of its file, in hexadecimal."""
        return compute_checksum(self.to_json())

    def to_json(self) -> Document:
        """Return the data of ``darrm/schemas/tested_run.json``."""
        check = self.check and {"threshold": repr(self.check.threshold), "sigma": repr(self.check.sigma)}
        return {
            "format": FORMAT,
            "version": VERSION,
            "answer": self.answer.to_json(),
            "check": check,
            "queries": self.queries,
            "budget": self.budget.to_json(),
            "order": repr(float(self.order)),
            "otherwise": None if self.otherwise is None else self.otherwise.to_json(),
        }

    @classmethod
    def from_json(cls, data: Json) -> TestedRun:
        """Read the data of `to_json`; `TableError` if it is malformed."""
        with errors_about("file"):
            check, other = data["check"], data["otherwise"]
            run = cls(
                NoisyMaximum.from_json(data["answer"]),
                data["queries"],
                PrivacyParams.from_json(data["budget"]),
                _read_number(data, "order"),
                check and NoisyCheck(_read_number(check, "threshold"), _read_number(check, "sigma")),
                other and NoisyMaximum.from_json(other),
            )
            if run.to_json() != data:
                raise TableError("file", f"it is no {FORMAT!r} of this version")
        return run


def _read_number(data: Json, name: str) -> float:
    return float(exact_number(name, data[name]))
