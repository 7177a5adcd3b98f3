"""The accountant: adds up the costs of queries and reports the total privacy loss, with the bound that proves it.

Answers of private *models* share the randomness of their training, which theorems on composition exclude: their costs
do not add up. Four bounds hold for any queries, also if these depend on earlier answers. Let one person's data
influence at most t models:

* **private models**: the answers are post-processing of these t models;
* **subsampling**: answers that look at few models each, `darrm.table.release`, are post-processing of these models;
* **non-private voters**: given the other models, every query is about votes that the person changes in at most t
  places, with fresh randomness for each query; so the queries' costs for non-private voters add up, by every bound;
* **joint bound**: the two together, `darrm.loss.joint_bound`.

The account or its costs declare the models; without one declaration for all costs no total is reported. Ensembles
with equal `Voters` count as one, so a second training needs a separate account.

If the kinds of queries were chosen after earlier answers, different courses of answers may end under different bounds.
Each bounds P(S) − e^ε·P'(S) for the sets S of courses that end under it, so their δ add up: bounds that depend on the
costs get an equal share of δ each. The first does not depend on them and keeps all of it.

The δ of strings of one person (`darrm.noisy_max.noisy_maximum`) is paid first; only `darrm.account.filters` counts it
among the queries' own δ.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from operator import attrgetter

from darrm.account.bounds import (
    CLOSED_FORMS,
    Account,
    Bound,
    BoundRule,
    discretized_bound,
    exact_sum,
    joint_bound,
    models_bound,
    plain_bound,
    profile_bound,
    subsampling_bound,
)
from darrm.account.filters import HALF, filter_bound
from darrm.errors import PrivateFigureError
from darrm.loss.joint_bound import release_within, smallest_whole
from darrm.loss.privacy_cost import PrivacyCost, describe_neighbors
from darrm.numerics.bisection import last_allowed_integer
from darrm.privacy import PrivacyPair, PrivacyParams, at_most, pair_at_most
from darrm.problem import Voters
from darrm.util import checks
from darrm.util.files import Document

# of kinds that are chosen on the way: the share of δ for the queries' own, see `darrm.account.filters`
DELTA_RESERVE = {"adaptive": HALF, "renyi": Fraction(0)}
COMPOSITIONS = ("one", "planned", *DELTA_RESERVE)  # of queries that a budget admits, see `darrm.ledger.ledger`
_WAYS = 4  # bounds on models that depend on the costs: subsampling, non-private voters, two joint bounds
SHARED_RANDOMNESS = (
    "answers of trained models share the randomness of their training, so the costs of single queries do not add up: "
    "only models that are declared, the same for all queries, with their overlap, are bounded, at a delta that they or "
    "the release allow"
)


def describe_guarantee(budget: PrivacyParams, composition: str) -> str:
    caveat = " if kinds and numbers of queries were fixed before the first answer" if composition == "planned" else ""
    return f"({budget.epsilon_text}, {budget.delta_text}), which all labels together keep to{caveat}"


@dataclass(frozen=True)
class Spent:
    """The privacy loss of an account at one δ: it is (epsilon, delta)-private, under the condition."""

    epsilon: float  # ∞ if no bound holds at this δ
    delta: float
    bound: str  # the name of the bound that gave ε
    explanation: str  # the reason in words
    bounds: tuple[Bound, ...]  # all that applied, smallest first
    queries: int  # how many the account holds
    failure_probability: float | None = None  # at most, that a published estimate in it is too small
    neighbors: str = ""  # how they differ, if voters resample examples per query
    condition: str = ""  # without it, if answers decide about later queries, only the budget holds

    def __str__(self) -> str:
        if not self.queries:
            return f"nothing spent yet (delta = {at_most(self.delta, 6)})"
        queries = "1 query" if self.queries == 1 else f"{self.queries} queries"
        if math.isinf(self.epsilon):
            return f"{queries}: no finite epsilon at delta = {at_most(self.delta, 6)}; {self.explanation}"
        neighbors = f" for neighbors that {self.neighbors}," if self.neighbors else ""
        condition = f", {self.condition}," if self.condition else ""
        reason = f"{condition}{neighbors} by {self.bound}: {self.explanation}"
        spent = f"{queries}: {pair_at_most(self.epsilon, self.delta, 5)}{reason}"
        return spent if self.failure_probability is None else f"{spent}; {describe_estimate(self.failure_probability)}"

    def to_json(self) -> Document:
        """Return plain data; ε is null if no bound holds."""
        return {
            "epsilon": self.epsilon if math.isfinite(self.epsilon) else None,
            "delta": self.delta,
            "bound": self.bound,
            "explanation": self.explanation,
            "queries": self.queries,
            "bounds": {bound.name: bound.epsilon for bound in self.bounds},
            **({} if self.failure_probability is None else {"failure_probability": self.failure_probability}),
            **({"neighbors": self.neighbors} if self.neighbors else {}),
            **({"condition": self.condition} if self.condition else {}),
        }


def describe_estimate(failure_probability: float) -> str:
    reason = "it holds published estimates about the data at hand"
    return f"no guarantee: {reason}, too small with probability up to {at_most(failure_probability, 3)}"


class PrivacyAccountant:
    """Adds costs and bounds their sum.

    Parameters
    ----------
    voters
        None leaves the declaration of models to the costs.
    costs
        Charges to start with.
    set_aside
        The share of δ, fixed beforehand, for queries without a Rényi curve if kinds are chosen after earlier answers,
        see `darrm.account.filters`.

    Examples
    --------
    >>> from darrm.privacy import PrivacyParams, at_least, at_most, pair_at_most
    >>> accountant = PrivacyAccountant()
    >>> accountant.add(PrivacyCost("majority of 11", guarantee=PrivacyParams(0.2676, 0.0003), count=100))
    >>> spent = accountant.spent(0.0297)
    >>> spent.bound, round(spent.epsilon, 2)
    ('optimal', 12.29)
    """

    def __init__(
        self, voters: Voters | None = None, costs: Iterable[PrivacyCost] = (), *, set_aside: Fraction = HALF
    ) -> None:
        if voters is not None:
            checks.instance(Voters, voters=voters, advice="costs are given as costs=[…]")
        if isinstance(costs, PrivacyCost) or not isinstance(costs, Iterable):
            checks.fail("costs", costs, "a list of costs", "say costs=[aggregator.privacy_cost(queries)]")
        self._voters, self._set_aside = voters, set_aside
        self._counts: dict[PrivacyCost, int] = {}
        for cost in costs:
            self.add(cost)

    def __str__(self) -> str:
        if not self._counts:
            return "nothing is charged yet"
        lines = [f"{self.queries:,} queries; accountant.spent(delta) bounds what they cost together"]
        for cost in self.costs:
            guarantee = "" if cost.guarantee is None else f", {cost.guarantee} each"
            lines.append(f"{cost.count:>10,}  {cost.what}{guarantee}")
        return "\n".join(lines)

    def add(self, cost: PrivacyCost, *, consent: str | None = None) -> None:
        """Add a cost; equal kinds are counted together.

        With the ``consent`` `PRIVATE_TOTAL` cost and total may be private data, with `ESTIMATED_TOTAL` published
        estimates. `PrivateFigureError` if the cost depends on the data without consent. `ValueError` if the cost does
        not hold for the voters: their number, privacy, overlap or models, or if it assumes fresh randomness at every
        query of private models.
        """
        checks.instance(PrivacyCost, cost=cost, advice="say aggregator.privacy_cost(queries)")
        if cost.reached is not None and self._voters is not None and cost.reached < self._voters.reached:
            raise ValueError(
                f"{cost.what} is private if a person reaches at most {cost.reached} of the voters, and here a "
                f"person reaches {self._voters.reached}: charge a release for that overlap"
            )
        voters = cost.voters
        if voters is not None and self._voters is not None and not voters.cover(self._voters):
            raise ValueError(
                f"{cost.what} is charged for other {'models' if cost.models else 'voters'} ({voters}) than those "
                f"declared ({self._voters}): "
                "charge a release for voters that are as many, and no more private"
            )
        self._check_neighbors(cost)
        if cost.consent_needed not in {"", consent, cost.consent}:
            reason = "was computed from the private data and is private itself"
            if cost.failure_probability is not None:
                description = "is a published estimate about the data at hand and no guarantee"
                reason = f"{description}, too small with probability up to {at_most(cost.failure_probability, 3)}"
            advice = f"charge the data-independent cost, or say consent={cost.consent_needed!r}"
            raise PrivateFigureError(cost.what, f"this cost {reason}: {advice}")
        cost = replace(cost, consent=cost.consent_needed)
        kind = cost.kind
        # equal costs may hold for different voters: keep the weakest promise
        equal_kind = next((other for other in self._counts if other == kind), kind)
        weakest_kind = min(equal_kind, kind, key=attrgetter("promise"))
        counts = {weakest_kind if other == kind else other: count for other, count in self._counts.items()}
        counts[weakest_kind] = counts.get(weakest_kind, 0) + cost.count
        if self._voters is not None and self._voters.are_private_models:
            _check_models(self._voters, counts)
        self._counts = counts

    def _check_neighbors(self, cost: PrivacyCost) -> None:
        subjects = {kind.neighbors: kind.what for kind in self._counts}
        if self._voters is not None:
            subjects[describe_neighbors(self._voters.sampled)] = "the voters declared"
        for neighbors, subject in subjects.items():
            if cost.neighbors != neighbors:
                raise ValueError(
                    f"{cost.what} is charged for neighbors that {cost.neighbors}, and {subject} for neighbors that "
                    f"{neighbors}: these do not add up; keep a separate account"
                )

    def plus(self, cost: PrivacyCost) -> PrivacyAccountant:
        """Return an accountant with one more cost; raises as `add`."""
        account = PrivacyAccountant(self._voters, set_aside=self._set_aside)
        account._counts = self._counts
        account.add(cost)
        return account

    def match_stored_kind(self, cost: PrivacyCost) -> PrivacyCost:
        """Return the cost without a Rényi curve that was unknown when its kind was charged before."""
        without_curve = cost if cost.guarantee is None else replace(cost, renyi=None)
        return without_curve if cost.kind not in self._counts and without_curve.kind in self._counts else cost

    def is_part_of(self, other: PrivacyAccountant) -> bool:
        """Whether another account has as many queries of every kind, or more."""
        return all(count <= other._counts.get(kind, 0) for kind, count in self._counts.items())

    @property
    def costs(self) -> tuple[PrivacyCost, ...]:
        """One cost for each kind, with its count."""
        return tuple(replace(kind, count=count) for kind, count in self._counts.items())

    @property
    def queries(self) -> int:
        """How many queries were charged."""
        return sum(self._counts.values())

    @property
    def failure_probability(self) -> float | None:
        """At most the probability that a published estimate in it is too small; None without estimates."""
        probabilities = [
            kind.failure_probability * count
            for kind, count in self._counts.items()
            if kind.failure_probability is not None
        ]
        return min(1.0, sum(probabilities)) if probabilities else None

    @property
    def models(self) -> Voters | None:
        """The private models that all queries are about; None without, or if there are several kinds."""
        if self._voters is not None and self._voters.are_private_models:
            return self._voters
        kinds = {kind.models for kind in self._counts}
        return kinds.pop() if len(kinds) == 1 else None

    @property
    def composes(self) -> bool:
        """Whether costs add up: not for several queries of private models."""
        if self.queries <= 1:
            return True
        declared = self._voters is not None and self._voters.are_private_models
        return not declared and not any(kind.non_composable for kind in self._counts)

    def spent(self, delta: float, *, adaptive: bool = False) -> Spent:
        """Bound the privacy loss at ``delta`` in [0, 1) by every bound that applies, the smallest first.

        With ``adaptive`` kinds, chosen after earlier answers, only the filter and the bounds on models apply.
        """
        checks.probability_below_one(delta=delta)
        if not self._counts:
            return Spent(0.0, delta, "nothing", "no query was charged", (), 0)
        applicable = self._compute_bounds(delta, adaptive=adaptive)
        bounds = tuple(sorted(applicable, key=attrgetter("epsilon")))
        best = bounds[0] if bounds else Bound("none", math.inf, self._explain_unbounded(delta, adaptive=adaptive))
        explanation = best.explanation
        if self._vanishing_mass and not adaptive and self._deduct_string_delta(delta) > 0.0:
            explanation += f"; {float(self._vanishing_mass):.3g} of delta is for strings of one person alone"
        neighbors = {kind.neighbors for kind in self._counts if kind.sampling is not None}
        total = Spent(best.epsilon, delta, best.name, explanation, bounds, self.queries, self.failure_probability)
        return replace(total, neighbors=", ".join(neighbors))

    def spent_under(self, composition: str, delta: float) -> Spent:
        """Bound the privacy loss under one of `COMPOSITIONS`, with its condition."""
        spent = self.spent(delta, adaptive=composition in DELTA_RESERVE)
        subject = "number" if composition == "one" else "kinds and number"
        condition = f"if the {subject} of queries did not depend on the answers"
        return replace(spent, condition=condition if spent.queries else "")

    def admits(self, budget: PrivacyPair, *, adaptive: bool = False) -> bool:
        """Return whether all costs stay within ``budget``; ``adaptive`` is as in `spent`."""
        budget = PrivacyParams.of(budget, "budget")
        if self._vanishing_mass and not adaptive:
            remaining_delta = budget.exact_delta - self._vanishing_mass
            remaining = PrivacyParams(budget.exact_epsilon, max(Fraction(0), remaining_delta))
            return remaining_delta > 0 and self._without_strings.admits(remaining)
        if not self._counts:
            return True
        # compared as fractions: two queries of 0.3 fit into 0.6, whatever the floats nearest to them are
        total = exact_sum(self.costs) if self.composes else None
        allowed_delta = budget.exact_delta * (self._set_aside if adaptive else 1)
        if total is not None and total[0] <= budget.exact_epsilon and total[1] <= allowed_delta:
            return True
        bounds = self._compute_bounds(budget.delta, adaptive=adaptive, target=budget)
        return any(bound.epsilon <= budget.epsilon for bound in bounds)

    def smallest_epsilon(self, delta: float, *, adaptive: bool = False) -> float:
        """Return the ε of `spent`, fast enough for every debit."""
        if not self._counts:
            return 0.0
        bounds = self._compute_bounds(delta, adaptive=adaptive, fast=True)
        return min((bound.epsilon for bound in bounds), default=math.inf)

    def queries_that_fit(self, cost: PrivacyCost, budget: PrivacyParams, *, most: int, adaptive: bool = False) -> int:
        """Count how many more queries of a kind, up to ``most``, fit into ``budget``."""
        checks.integer_at_least(0, most=most)

        def fits(queries: int) -> bool:
            return self.plus(cost.kind.repeat(queries)).admits(budget, adaptive=adaptive)

        limit = 1  # at most twice the answer: far beyond a budget no grid holds the losses
        while limit <= most and fits(limit):
            limit *= 2
        return last_allowed_integer(fits, inside=limit // 2, outside=min(limit, most + 1))

    def _explain_unbounded(self, delta: float, *, adaptive: bool) -> str:
        if self._vanishing_mass and not adaptive and self._deduct_string_delta(delta) <= 0.0:
            return "strings that one person alone says may be released with more than this delta"
        if not self.composes:
            return SHARED_RANDOMNESS
        if adaptive:
            return "the queries' own deltas exceed the share set aside for them, and one of them has no Rényi curve"
        log_success = math.fsum(math.log1p(-kind.least_delta) * count for kind, count in self._counts.items())
        minimum = float(at_most(-math.expm1(log_success) + float(self._vanishing_mass), 2))
        return f"a delta of at least {minimum:g} is needed" if minimum > delta else "no bound fits all of them"

    def _compute_bounds(
        self, delta: float, *, adaptive: bool, target: PrivacyParams | None = None, fast: bool = False
    ) -> Iterator[Bound]:
        """Yield the bounds that apply, cheap ones first; with ``fast`` or a ``target`` only those that may decide.

        With a ``target`` the joint bound only shows whether it is within it, without a search.
        """
        fast = fast or target is not None
        if self._vanishing_mass and not adaptive:
            if (remaining_delta := self._deduct_string_delta(delta)) > 0.0:
                yield from self._without_strings._compute_bounds(remaining_delta, adaptive=False, fast=fast)  # noqa: SLF001 (the same class)
            return
        yield from filter(None, self._compute_models_bounds(delta, adaptive=adaptive, target=target, fast=fast))
        if not self.composes:
            return
        rules: tuple[BoundRule, ...] = (*CLOSED_FORMS, profile_bound, discretized_bound)
        if adaptive:
            rules = (partial(filter_bound, set_aside=self._set_aside),)
        elif fast:
            # without a profile the grid rounds up, and the optimal bound is exact
            has_profile = any(cost.profile is not None for cost in self.costs)
            rules = (*CLOSED_FORMS, _compute_grid_bound) if has_profile else CLOSED_FORMS
        yield from filter(None, (rule(self.costs, delta) for rule in rules))

    @property
    def _vanishing_mass(self) -> Fraction:
        return sum((kind_count * Fraction(kind.vanishing) for kind, kind_count in self._counts.items()), Fraction(0))

    @property
    def _without_strings(self) -> PrivacyAccountant:
        lasting = (replace(cost, vanishing=0.0) for cost in self.costs)
        return PrivacyAccountant(self._voters, lasting, set_aside=self._set_aside)

    def _deduct_string_delta(self, delta: float) -> float:
        remaining_delta = PrivacyParams(0, delta).exact_delta - self._vanishing_mass
        return math.nextafter(float(remaining_delta), 0.0) if remaining_delta > 0 else 0.0

    def _compute_models_bounds(
        self, delta: float, *, adaptive: bool, target: PrivacyParams | None, fast: bool
    ) -> Iterator[Bound | None]:
        models = self.models
        if models is None:
            return
        yield models_bound(models, delta)
        share = delta / _WAYS if adaptive else delta
        yield subsampling_bound(models, self.costs, share)
        if target is not None:
            share_target = PrivacyParams(target.exact_epsilon, target.exact_delta / _WAYS) if adaptive else target
            if any(self._check_releases(models, share_target, adaptive=adaptive)):
                yield joint_bound(models, (target.epsilon, target.epsilon))
            return
        epsilons = [math.inf, math.inf]
        for one_by_one, release in self._build_releases(models):
            epsilon_at = partial(release.smallest_epsilon, adaptive=adaptive)
            epsilons[one_by_one] = smallest_whole(models, share, epsilon_at, one_by_one=one_by_one)
            if not fast and not one_by_one:  # it names the bound of the release, and is never the smallest
                spent = release.spent(share, adaptive=adaptive)
                yield plain_bound(models, spent.epsilon, spent.bound)
        yield joint_bound(models, (epsilons[0], epsilons[1]))

    def _check_releases(self, models: Voters, target: PrivacyParams, *, adaptive: bool) -> Iterator[bool]:
        for one_by_one, release in self._build_releases(models):
            # a release that meets the target alone needs no bound on the models
            release_target = release_within(models, target, one_by_one=one_by_one)
            yield release_target is None or release.admits(release_target, adaptive=adaptive)
            yield not one_by_one and release.admits(target, adaptive=adaptive)

    def _build_releases(self, models: Voters) -> Iterator[tuple[bool, PrivacyAccountant]]:
        """Account for the queries as if to non-private voters: a person reaches as many of them as models, or one."""
        for one_by_one in (False, True) if models.reached > 1 else (False,):
            overlap = 1 if one_by_one else models.reached
            costs = [cost.with_non_private_voters(overlap) for cost in self.costs]
            if all(cost is not None for cost in costs):
                yield one_by_one, PrivacyAccountant(costs=filter(None, costs), set_aside=self._set_aside)


def _compute_grid_bound(account: Account, delta: float) -> Bound | None:
    # a point is never better than the whole profile
    return discretized_bound(account, delta) or profile_bound(account, delta)


def _check_models(models: Voters, counts: dict[PrivacyCost, int]) -> None:
    for kind in counts:
        voters = kind.voters
        if voters is None or voters.are_non_private:
            continue
        if kind.models is not None and replace(kind.models, overlap=models.overlap) != models:
            raise ValueError(f"{kind.what} is charged for other models ({voters}) than those declared ({models})")
        if kind.models is None and sum(counts.values()) > 1:
            raise ValueError(
                f"{kind.what} was proved for voters that draw fresh randomness at every query, and several answers of "
                "trained models share that of their training: make the table for models (--models), or charge it for "
                "them with describe_cost(table, queries, voters=models)"
            )
