"""Test, then release: a run of a noisy maximum that leaves only where a private test finds its votes cheap.

Where voters agree a run costs far less than its worst case, and that cost is private. Here the user names a budget for
the run in public; a coin whose chance depends on the run's level on the scale of votes (`darrm.pate.vote_scale`)
decides whether the labels leave, and the theorem of `darrm.pate.budget_test` says that labels and coin are within that
budget *whatever the data*. So the budget is a `Charge` like any other, debited whole, before the coin is tossed.

All votes are given at once, and no question may depend on an answer. Where the run does not pass, no query has a label,
or all have one by a mechanism that is private whatever the votes.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import cast

import numpy as np
from numpy.typing import NDArray

from darrm.errors import TableError, checks
from darrm.losses.charges import Charge
from darrm.losses.label_given_votes import WIDEST, missed_probabilities
from darrm.losses.missed_label import Missed, MissedLabel, missed_label
from darrm.mechanisms.noisy_max import GNMax, NoisyMax
from darrm.mechanisms.noisy_maximum import NoisyMaximum
from darrm.mechanisms.open_lines import of_classes
from darrm.pate.budget_test import BudgetTest
from darrm.pate.checked_cost import CheckedCost
from darrm.pate.confident import ConfidentGNMax, NoisyCheck, may_decline
from darrm.pate.vote_scale import MARKS_A_VOTE, VoteScale
from darrm.privacy import PrivacyParams, exact_number
from darrm.probability import Array
from darrm.probability.exact_sampling import uniform_below
from darrm.problem import Voters, is_open
from darrm.proof.stored import checksum_of
from darrm.system.files import Document, Json
from darrm.votes import ABSTAIN, Labels, Votes, require_votes

FORMAT, VERSION = "darrm tested run", 1
LARGEST_ORDER, _MOST_QUERIES = 1e4, 10_000_000
_LEAST_COST = 1e-10  # nats: of the first level
_ADVICE = "plain voters of whom one person reaches one are Voters(K, PrivacyParams('inf'), overlap=1)"


@dataclass(frozen=True)
class TestedRun:
    """At most so many queries, answered by a noisy maximum if a private test passes: (ε, δ)-private, all of it.

    Parameters
    ----------
    answer
        What answers: `GNMax`, `LNMax` or `ShapedMax`, and its voters and classes; one person moves one vote.
    queries
        Q, how many labels the run has at most.
    budget
        What all of it satisfies, test included, whatever the votes.
    order
        α > 1, of the divergence by which the run is bounded; like all else to be chosen without the private votes.
    check
        Which queries `GNMax` answers, as `darrm.pate.ConfidentGNMax` decides: None for all.
    otherwise
        What answers where the test does not pass; None for nothing.

    Raises
    ------
    ValueError
        If a parameter is out of its range, or the voters are others than those that the test is proved for.

    Examples
    --------
    >>> teachers = Voters(250, PrivacyParams("inf"), overlap=1)
    >>> run = TestedRun(NoisyMaximum(GNMax(20.0), teachers, 3), 400, PrivacyParams(2, "1e-5"), order=8.0)
    >>> votes = Votes.of_counts([[245, 5, 0]] * 400)  # public ones, to look at the chance
    >>> run.pass_chance(votes) > 0.99, run.charge(400).guarantee
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

    __test__ = False  # no class of tests

    def __post_init__(self) -> None:
        checks.instance(NoisyMaximum, answer=self.answer, advice="say NoisyMaximum(GNMax(40), voters, classes)")
        if not self.voters.are_plain or self.voters.reached != 1 or self.answer.mechanism.reached != 1:
            checks.fail("voters", self.voters, "plain, and one person reaches one", _ADVICE)
        if is_open(self.classes):
            checks.fail("answer", checks.Found("open answers"), "about listed classes", "the test is for these")
        if not isinstance(self.answer.mechanism, NoisyMax):
            checks.fail("answer", self.answer.mechanism, "GNMax, LNMax or ShapedMax", "its noise is the same for all")
        if self.mechanism.law.deviation > WIDEST:
            advice = "wider noise needs no test"
            checks.fail("answer", self.answer.mechanism, f"noise of a deviation of at most {WIDEST:g} votes", advice)
        checks.integer_at_least(1, most=_MOST_QUERIES, queries=self.queries)
        if not (0.0 < self.budget.epsilon < np.inf and 0.0 < self.budget.delta < 1.0):
            checks.fail("budget", self.budget, "epsilon and delta above 0", "a coin tells a little of the votes")
        if not 1.0 < self.order <= LARGEST_ORDER:
            checks.fail("order", self.order, f"above 1, at most {LARGEST_ORDER:g}")
        if self.check is not None and not isinstance(self.answer.mechanism, GNMax):
            checks.fail("answer", self.answer.mechanism, "GNMax", "it is what answers where a check passes")
        other = self.otherwise
        if other is not None and (other.voters, other.classes) != (self.voters, self.classes):
            checks.fail("otherwise", other, "of the same voters and classes")

    @property
    def voters(self) -> Voters:
        """Whose votes it is for."""
        return self.answer.voters

    @property
    def classes(self) -> int:
        """How many answers they choose from."""
        return self.answer.classes

    @property
    def guarantee(self) -> PrivacyParams:
        """What all of it satisfies, whatever the votes."""
        return self.budget

    @cached_property
    def bound(self) -> Missed | CheckedCost:
        """What one answer costs by numbers that one vote moves."""
        if self.check is None:
            return missed_label(self.mechanism.law, self.order)
        return CheckedCost(MissedLabel(self._sigma, self.order), self.check, self.voters.K, self.classes)

    @cached_property
    def costs(self) -> Array:
        """(V + 1,) what the run costs at most on each level, in nats at the order; public."""
        marks = VoteScale(self.bound, self.queries, _LEAST_COST).marks
        levels = marks[::MARKS_A_VOTE]
        return levels if levels[-1] == marks[-1] else np.append(levels, marks[-1])

    @cached_property
    def chances(self) -> Array:
        """(V + 1,) how likely the test passes on each level, proved; public."""
        other = None if self.otherwise is None else self.otherwise.charge(self.queries).renyi
        test = BudgetTest(self.order, self.budget, None if other is None else other.repeated(self.queries))
        chances = test.chances(self.costs)
        if not test.all_hold(chances, self.costs):
            what = f"a {type(self.otherwise).__name__} that is used otherwise" if self.otherwise else "this test"
            checks.fail("budget", self.budget, f"one that {what} fits into", "take more noise")
        return chances

    def pass_chance(self, votes: Votes) -> float:
        """Compute how likely the test passes: **private data**, unless the votes are public."""
        return float(self.chances[self._level(self._asked(votes))])

    def costs_of(self, counts: NDArray[np.int64]) -> Array:
        """Bound what a query costs at its votes, (Q, C) → (Q,) nats at the order: **private data**."""
        missed, bound = missed_probabilities(self.mechanism.law, counts), self.bound
        return bound.cost(counts.max(axis=1), missed) if isinstance(bound, CheckedCost) else bound.cost(missed)

    def level_of(self, total: float | Array) -> NDArray[np.int64]:
        """Find the level of runs whose queries cost so much together, elementwise: **private data**."""
        return np.minimum(np.searchsorted(self.costs, total), self.costs.size - 1)

    def charge(self, queries: int = 1) -> Charge:
        """Describe what the run costs, however many labels it has: the budget, once."""
        checks.integer_at_least(1, most=self.queries, queries=queries, advice="the run was made for so many")
        words = f"a tested run of {self.words} over {self.voters.K} voters, up to {self.queries} labels"
        return Charge(words, guarantee=self.budget, voters=self.voters, table=self.digest, labels=self.queries)

    @property
    def words(self) -> str:
        """What answers, for reports."""
        return self.mechanism.words if self.check is None else repr(self.answering)

    def release(self, votes: Votes, *, rng: np.random.Generator | None = None) -> Labels:
        """Release a class for each query, or `ABSTAIN` for each: (Q,) names of classes, as `Aggregator.release`.

        Both outcomes are drawn, whichever leaves: how long it takes does not tell.
        """
        given = self._asked(votes)
        chance = Fraction(float(self.chances[self._level(given)]))
        below = uniform_below(rng)(np.array([chance.denominator], dtype=object))
        released = self.answering.release(given, rng=rng)
        nothing = np.full(given.queries, ABSTAIN, dtype=np.int64)
        instead = given.labeled(nothing) if self.otherwise is None else self.otherwise.release(given, rng=rng)
        return released if int(below[0]) < chance.numerator else instead

    @property
    def mechanism(self) -> NoisyMax:
        """What adds noise to the counts."""
        return cast("NoisyMax", self.answer.mechanism)

    @property
    def _sigma(self) -> float:
        return self.mechanism.law.deviation

    @property
    def answering(self) -> NoisyMax | ConfidentGNMax:
        """What answers where the test passes."""
        if self.check is None:
            return self.mechanism
        return ConfidentGNMax(self.check.threshold, self.check.sigma, self._sigma)

    def _asked(self, votes: Votes) -> Votes:
        given = of_classes(may_decline(require_votes(votes)), self.classes).of_voters(self.voters.K)
        if given.missing is not None:
            checks.fail("votes", checks.Found("votes that are missing"), "complete", "the test looks at all of them")
        if given.queries > self.queries:
            checks.fail("votes", checks.Found(f"{given.queries} queries"), f"at most {self.queries}, as the run says")
        return given

    def _level(self, votes: Votes) -> int:
        """Find the level of some votes: **private data**."""
        return int(self.level_of(float(self.costs_of(votes.counts).sum())))

    @cached_property
    def digest(self) -> str:
        """The SHA-256, in hexadecimal, of what its file holds."""
        return checksum_of(self.to_json())

    def to_json(self) -> Document:
        """Write it as plain data, numbers as decimals; ``darrm/schemas/tested_run.json``."""
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
        """Read what `to_json` wrote; `TableError` if a field is missing, malformed, or unknown."""
        try:
            check, other = data["check"], data["otherwise"]
            run = cls(
                NoisyMaximum.from_json(data["answer"]),
                data["queries"],
                PrivacyParams.from_json(data["budget"]),
                _number(data, "order"),
                check and NoisyCheck(_number(check, "threshold"), _number(check, "sigma")),
                other and NoisyMaximum.from_json(other),
            )
            if run.to_json() != data:
                raise TableError("file", f"it is not what this release writes for a {FORMAT!r}")
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
            raise TableError("file", f"it is malformed ({type(error).__name__}: {error})") from error
        return run


def _number(data: Json, name: str) -> float:
    return float(exact_number(name, data[name]))
