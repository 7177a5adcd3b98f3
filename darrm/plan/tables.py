"""Mechanisms that release from a certified table: noise functions of two classes, and laws of more.

If one person's data can influence t voters and the majority leads by M = 2l − K > 0 votes, permute-and-flip [MS20] has
γ(l) = 1 − e^{−εM/(2t)} and the exponential mechanism [MT07] γ(l) = tanh(εM/(4t)). For few voters and many queries the
exact profile of the first admits a higher accuracy than the optima.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from decimal import ROUND_CEILING
from fractions import Fraction
from functools import cached_property, partial
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from darrm.account.bounds import models_bound
from darrm.aggregator import Released
from darrm.errors import PlanError
from darrm.loss.privacy_cost import PrivacyCost
from darrm.majority import baselines
from darrm.majority.costs import divergence
from darrm.majority.noise_function import NoiseFunction
from darrm.noisy_max import selection
from darrm.noisy_max.noisy_law import list_lags, sum_nodes
from darrm.numerics import Array
from darrm.numerics.bisection import bisect_safe
from darrm.numerics.special import softmax
from darrm.plan.accuracy import Law
from darrm.plan.calibration import CalibratedMechanism, calibrate
from darrm.plan.mechanism import (
    FixedMechanism,
    Mechanism,
    Proposal,
    Search,
    as_plan_error,
    list_releases,
    reduce_workload,
    rounded,
)
from darrm.plan.noisy import LARGEST_EPSILON, NoisyProposal, first_rate
from darrm.plurality import baselines as plurality_baselines
from darrm.plurality.partitions import list_partitions
from darrm.plurality.plurality_law import PluralityLaw, true_plurality
from darrm.plurality.voter_corners import check_size, number_of_rows
from darrm.privacy import PrivacyParams, at_least
from darrm.problem import Problem, Workload, is_open
from darrm.table.release import Release, describe_cost
from darrm.table.table import Table, certify
from darrm.util.figures import GRAY, GREEN, PURPLE, VERMILION

LARGEST_TARGET = Fraction(15)  # of one query; beyond, δ is rounding
MIN_EPSILON = Fraction(1, 10**6)
MOST_ROWS = 3_000_000  # of private voters of more than two classes: a proof takes a second

Gammas = Callable[[float], NoiseFunction]  # the larger the number, the higher the accuracy


class TableProposal(Proposal):
    """A certified table; a noise function without a table is certified when its cost is computed."""

    def __init__(self, workload: Workload, settings: Mapping[str, float], law: NoiseFunction | Table) -> None:
        self._workload, self._proposed, self._base_settings = workload, law, settings
        if isinstance(law, Table) and not law.problem.has_noise_function:
            target = law.problem.target
            settings = {**settings, "epsilon": target.epsilon, "delta": target.delta}
        super().__init__(_get_law(law), settings)

    @cached_property
    def table(self) -> Table:
        """The certified table."""
        law = self._proposed
        return law if isinstance(law, Table) else certify(find_smallest_target(self._workload, law), law)

    @cached_property
    def cost(self) -> PrivacyCost:
        return describe_cost(self.table)

    def quick_cost(self) -> PrivacyCost:
        return describe_cost(self.table, exact=False)

    def proved_law(self) -> Law:
        return _get_law(self.table) if self.table.problem.has_noise_function else self.law

    def release(self) -> Released:
        return Release(self.table)

    def build_mixture(self, search: Search) -> Mechanism | None:
        law = self.table.law
        if is_open(self.table.problem.classes) or not isinstance(law, NoiseFunction | PluralityLaw):
            return None
        return MixedLaw(search, search.workload, law, self._base_settings)


class MixedLaw(Mechanism):
    """Mixtures of a law with random guessing."""

    limits, tolerance, is_exact = (0.0, 1.0), 2e-6, True

    def __init__(
        self, search: Search, workload: Workload, law: NoiseFunction | PluralityLaw, settings: Mapping[str, float]
    ) -> None:
        super().__init__(search, workload)
        self.law, self.settings = law, settings

    def at(self, parameter: float) -> Proposal:
        if isinstance(self.law, NoiseFunction):
            return TableProposal(self.workload, self.settings, self.law.scale_by(parameter))
        law = self.law.mix(1.0 - parameter) if parameter < 1.0 else self.law
        work, each, delta = self.workload, self.workload.voters.each, delta_of_one(self.workload)
        max_epsilon = min(LARGEST_TARGET, work.voters.K * each.exact_epsilon) if each.is_private else LARGEST_TARGET
        profile = certify(work.problem(PrivacyParams(max_epsilon, delta)), law).profile
        if profile is None:
            raise PlanError("nothing bounds one query")
        epsilon = max(rounded(profile.epsilon_at(float(delta)), ROUND_CEILING), least_epsilon(work))
        table = certify(work.problem(PrivacyParams(min(max_epsilon, epsilon), delta)), law)
        return TableProposal(work, self.settings, table)


class NoNoise(FixedMechanism):
    slug, name, color = "no-noise", "no noise", GRAY
    about = "the votes of private models as they are."

    @classmethod
    def applies_to(cls, workload: Workload) -> bool:
        return workload.voters.are_private_models

    def propose(self) -> Proposal:
        work = self.search.workload
        t, delta = work.voters.reached, work.total.delta
        total = models_bound(work.voters, delta)
        if total is None:
            raise PlanError(f"the {t} models a person reaches fail with more than delta = {at_least(delta, 6)}")
        if total.epsilon > work.total.epsilon:
            raise PlanError(f"the {t} models a person reaches cost epsilon = {at_least(total.epsilon, 6)} together")
        release, winner = None, "plurality"
        if work.has_noise_function:
            gamma = NoiseFunction(work.voters.K, np.ones(work.voters.num_upper_levels))
            release, winner = Release(certify(find_smallest_target(work, gamma), gamma)), "majority"
        return Proposal(
            _share_among_leaders,
            {},
            release,
            total=total,
            instructions=(f"publish the {winner} of the models' votes as it is, for any number of queries",),
            remark="No noise is needed: any number of answers is post-processing of models that are private already.",
        )


class Selection(Mechanism):
    about = (
        "charged for its label, as `darrm.pate` charges it; of two classes as a certified table, the largest that the "
        "accountant admits."
    )
    mechanism_type: ClassVar[type[selection.ExponentialMechanism | selection.PermuteAndFlip]]
    limits = (1e-12, LARGEST_EPSILON)

    def __init__(self, search: Search, workload: Workload) -> None:
        super().__init__(search, workload)
        self.start = first_rate(workload)
        if workload.has_noise_function:  # a table, whose γ is a function of εM/(2t)
            self.is_exact, t = True, workload.voters.reached
            # below, every answer is random guessing; above, the majority
            self.limits, self.start = (2e-9 * t, 80.0 * t), t * self.start

    @classmethod
    def releases(cls, workload: Workload) -> Sequence[Workload]:
        return list_releases(workload) if workload.has_noise_function else [reduce_workload(workload)]

    def at(self, parameter: float) -> Proposal:
        work, settings, voters = self.search.workload, {"epsilon": parameter}, self.workload.voters
        if not work.has_noise_function:
            t = work.voters.reached
            return NoisyProposal(
                work, self.mechanism_type(parameter, t), settings, partial(self.law, parameter / (2.0 * t))
            )
        leads = np.arange(2.0 * voters.first_majority - voters.K, voters.K + 1.0, 2.0)
        gamma = NoiseFunction(voters.K, self.gamma(parameter / (2.0 * voters.reached) * leads))
        return TableProposal(self.workload, settings, gamma)

    @staticmethod
    def law(rate: float, counts: NDArray[np.int64]) -> Array:
        """Return the probabilities of the answers at the rate ε/(2t)."""
        raise NotImplementedError

    @staticmethod
    def gamma(exponents: Array) -> Array:
        """Return γ at εM/(2t)."""
        raise NotImplementedError


class Exponential(Selection):
    slug, name, color = "exponential", "exponential mechanism", VERMILION
    mechanism_type = selection.ExponentialMechanism

    @staticmethod
    def law(rate: float, counts: NDArray[np.int64]) -> Array:
        return np.asarray(softmax(counts * rate, axis=1))  # [MT07]: a class has the weight e^{rate·count}

    @staticmethod
    def gamma(exponents: Array) -> Array:
        return np.tanh(exponents / 2.0)


class PermuteAndFlip(Selection):
    slug, name, color = "permute-and-flip", "permute-and-flip", PURPLE
    mechanism_type = selection.PermuteAndFlip

    @staticmethod
    def law(rate: float, counts: NDArray[np.int64]) -> Array:
        """Integrate Pr[c] = e_c ∫_0^1 Π_{j ≠ c}(1 − e_j·s) ds: with C/2 nodes exactly, with some √C to twelve digits.

        It answers a class at the place s of a random order if its coin, and no earlier one, shows heads [MS20].
        """
        size = min(counts.shape[1] // 2 + 1, math.isqrt(16 * counts.shape[1]) + 20)
        nodes, weights = np.polynomial.legendre.leggauss(size)
        lags, place = list_lags(counts)
        heads = np.exp(-lags * rate)[:, None]
        tails = 1.0 - heads * (nodes + 1.0) / 2.0
        return sum_nodes(place, np.log(tails), heads / tails, weights / 2.0)

    @staticmethod
    def gamma(exponents: Array) -> Array:
        return np.asarray(-np.expm1(-exponents))


class RandomizedResponse(Mechanism):
    """The best constant γ; `darrm.majority.baselines.randomized_response` is that of [D, Lemma A.1]."""

    slug, name, color = "randomized-response", "best constant γ", GRAY
    about = "one probability of the majority, the largest whose certified table the accountant admits."
    is_table = True

    def __init__(self, search: Search, workload: Workload) -> None:
        super().__init__(search, workload)
        each, total = workload.voters.each, workload.total
        is_single_query = are_equally_private(workload) and workload.queries == 1
        if is_single_query and (total.exact_epsilon < each.exact_epsilon or total.exact_delta < each.exact_delta):
            raise PlanError("the budget is smaller than one voter's own")
        if workload.has_noise_function:
            self.limits, self.rough_tolerance, self.is_exact = (0.0, 1.0), 0.0, True
            self.start = min(1.0, first_rate(workload))
            if workload.queries == 1:  # the cost takes no time
                self.tolerance = self.rate_tolerance = 1e-12
            return
        check_rows(workload)
        with as_plan_error():
            self._law = true_plurality(workload.voters.K, workload.classes)
        self._min_epsilon = least_epsilon(workload)
        self.start = float(self._min_epsilon)
        self.limits = (self.start, float(min(LARGEST_TARGET, max(self._min_epsilon, largest_epsilon(workload)))))

    def at(self, parameter: float) -> Proposal:
        work, voters = self.workload, self.workload.voters
        if work.has_noise_function:
            gamma = NoiseFunction(voters.K, np.full(voters.num_upper_levels, parameter))
            return TableProposal(work, {"gamma": parameter}, gamma)
        problem = work.problem(PrivacyParams(max(self._min_epsilon, rounded(parameter)), delta_of_one(work)))
        table = certify(problem, self._law)
        return TableProposal(work, {"gamma": table.certificate.scale}, table)


class Subsampling(Mechanism):
    """The plurality of m voters: γ_Sub of two classes [D, Lemma 3.1]."""

    slug, name, color = "subsampling", "subsampling", GREEN
    about = "the allowance: the largest whose certified table the accountant admits."
    gamma = staticmethod(baselines.subsampling)
    plurality = staticmethod(plurality_baselines.subsampled_plurality)

    def __init__(self, search: Search, workload: Workload) -> None:
        super().__init__(search, workload)
        check_private(workload)
        check_listed(workload)
        self.limits = (1.0, float(workload.voters.K))

    @classmethod
    def releases(cls, workload: Workload) -> Sequence[Workload]:
        return [workload]

    def value(self, rate: float) -> float:
        return float(math.floor(rate))

    def at(self, parameter: float) -> Proposal:
        work = self.workload
        problem = Problem.from_allowance(work.voters, int(parameter), classes=work.classes)
        if problem.target.exact_epsilon > work.total.exact_epsilon * work.queries:
            raise PlanError(f"not even the majority of one voter (m = 1) composes within {work.total}")
        with as_plan_error():  # laws for more than two classes list the histograms of m votes
            law = (self.gamma if work.has_noise_function else self.plurality)(problem)
        return TableProposal(work, {"m": parameter}, certify(problem, law))


class DoubleSubsampling(Subsampling):
    """The plurality of 2m − 1 voters: γ_DSub of two classes [D, Theorem 4.1]."""

    slug, name = "double-subsampling", "double subsampling"
    gamma = staticmethod(baselines.double_subsampling)
    plurality = staticmethod(plurality_baselines.double_subsampled_plurality)


def check_private(workload: Workload) -> None:
    if not reduce_workload(workload).voters.each.is_private:
        raise PlanError("it rests on the voters' own privacy, which is not counted here")


def check_listed(workload: Workload) -> None:
    """Refuse a law for more than two classes with too many histograms, or pairs of them."""
    voters = workload.voters
    if workload.has_noise_function:
        return
    with as_plan_error():
        partitions = list_partitions(voters.K, workload.classes)
        if voters.are_non_private:
            partitions.pairs(voters.reached)
        else:
            check_size(voters, workload.classes)


def check_rows(workload: Workload) -> None:
    """Refuse a proof for more than two classes that takes too long for a search."""
    check_listed(workload)
    voters = workload.voters
    if workload.has_noise_function or voters.are_non_private or workload.queries == 1:
        return
    if (rows := number_of_rows(voters, workload.classes)) > MOST_ROWS:
        raise PlanError(f"its proof looks at {rows:,} rows, and up to {MOST_ROWS:,} are looked at for a plan")


def are_equally_private(workload: Workload) -> bool:
    """Whether no table can be more private than one voter, as all have the same (ε, δ)."""
    return workload.voters.each.is_private and workload.voters.per_voter is None


def least_epsilon(workload: Workload, default: Fraction = MIN_EPSILON) -> Fraction:
    """Return the smallest ε to certify a query for."""
    return workload.voters.each.exact_epsilon if are_equally_private(workload) else default


def largest_epsilon(workload: Workload) -> Fraction:
    """Compute min(total ε, K·ε): beyond, a query of private voters costs no more."""
    total, voters = workload.total.exact_epsilon, workload.voters
    if voters.sampled is not None and workload.queries > 1:  # people who are rarely drawn may have a far larger ε
        return LARGEST_TARGET
    return min(total, voters.K * voters.each.exact_epsilon) if voters.each.is_private else total


def delta_of_one(workload: Workload) -> Fraction:
    """Return half of a query's share of δ, or the voters' own if that is more."""
    return max(workload.voters.each.exact_delta, rounded(workload.total.exact_delta / (2 * workload.queries)))


def find_smallest_target(workload: Workload, gamma: NoiseFunction) -> Problem:
    """Find the smallest ε of one query, for half of its share of δ if possible."""
    voters, each = workload.voters, workload.voters.each
    min_epsilon = each.exact_epsilon if each.is_private else MIN_EPSILON
    max_epsilon = each.exact_epsilon * voters.reached if each.is_private else LARGEST_TARGET
    max_epsilon = max(min_epsilon, min(max_epsilon, LARGEST_TARGET))
    delta = delta_of_one(workload)
    if (needed_delta := divergence(voters, gamma, max_epsilon)) > delta:
        delta = rounded(needed_delta, ROUND_CEILING)
    if delta >= 1:
        raise PlanError(f"one query has no epsilon of at most {float(max_epsilon):g}")

    def is_private(epsilon: Fraction) -> bool:
        return divergence(voters, gamma, epsilon) <= delta

    if is_private(min_epsilon):
        return workload.problem(PrivacyParams(min_epsilon, delta))
    smallest = bisect_safe(is_private, max_epsilon, min_epsilon, steps=40, tolerance=1e-6)
    return workload.problem(PrivacyParams(min(max_epsilon, rounded(smallest, ROUND_CEILING)), delta))


def _share_among_leaders(counts: NDArray[np.int64]) -> Array:
    is_leader = counts == counts.max(axis=1, keepdims=True)
    return np.asarray(is_leader / is_leader.sum(axis=1, keepdims=True))


def _get_law(proposed: NoiseFunction | Table) -> Law:
    """Return the law on sorted histograms."""
    law = proposed.law if isinstance(proposed, Table) else proposed
    if isinstance(law, NoiseFunction):
        return partial(np.take, 0.5 * (1.0 + law.signed))
    if isinstance(proposed, Table) and is_open(proposed.problem.classes):

        def compute_answers(counts: NDArray[np.int64]) -> Array:  # the last column is no answer
            return np.where(counts > 0, law.probabilities(counts)[:, :-1], 0.0)

        return compute_answers
    return law.probabilities


def make_mechanism(
    gammas: Gammas,
    name: str = "own γ",
    *,
    slug: str = "own",
    start: float = 0.05,
    limits: tuple[float, float] = (0.0, math.inf),
) -> type[Mechanism]:
    """Make a mechanism for `darrm.plan.plan` of a function that returns a γ for a number.

    The cost of ``gammas`` grows with the number; the search begins at ``start`` and stays within ``limits``.
    """

    class CustomMechanism(Mechanism):
        about = "the largest number that the accountant admits."
        classes, is_table = (2, 2), True

        def at(self, parameter: float) -> Proposal:
            return TableProposal(self.workload, {"number": parameter}, gammas(parameter))

    CustomMechanism.name, CustomMechanism.slug = name, slug
    CustomMechanism.start, CustomMechanism.limits = start, limits
    return CustomMechanism


def largest(
    gammas: Gammas, workload: Workload, *, start: float = 0.05, limits: tuple[float, float] = (0.0, math.inf)
) -> CalibratedMechanism:
    """Find the largest number whose certified γ stays within a budget for all queries; `PlanError` if there is none.

    Here 20 queries share ε = 2: (1 − 3s)/(1 − 5s) = e^0.1 at s = 0.0416.

    >>> from darrm import PrivacyParams, Voters
    >>> work = Workload(Voters(5, PrivacyParams("inf"), overlap=1), 20, PrivacyParams(2))
    >>> found = largest(lambda slope: NoiseFunction.from_function(5, lambda l: min(1.0, slope * (2 * l - 5))), work)
    >>> round(found.settings["number"], 4), found.spent.epsilon <= 2
    (0.0416, True)
    """
    return calibrate(workload, make_mechanism(gammas, start=start, limits=limits))
