"""Mechanisms that release from a certified table: noise functions of two classes, and laws of more.

With M = 2l − K > 0 the lead of the majority and t voters whom one person's data can influence, permute-and-flip [MS20]
has γ(l) = 1 − e^{−εM/(2t)} and the exponential mechanism [MT07] γ(l) = tanh(εM/(4t)). For few voters and many queries
the exact profile of the first admits a higher accuracy than the optima. Subsampling [D, Lemma 3.1], [D, Theorem 4.1]
has the allowance m; randomized response has a constant γ, one probability of the majority whatever the votes.
"""

import math
from collections.abc import Iterable, Mapping
from decimal import ROUND_CEILING
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from darrm.account.bounds import models_bound
from darrm.aggregator import Released
from darrm.errors import PlanError
from darrm.loss.privacy_cost import PrivacyCost
from darrm.majority import baselines
from darrm.majority.noise_function import NoiseFunction
from darrm.majority.profile import divergence
from darrm.noisy_max import selection
from darrm.numerics import Array
from darrm.numerics.bisection import bisect_safe
from darrm.plan.accuracy import Law
from darrm.plan.budget import counted
from darrm.plan.mechanism import FixedMechanism, Mechanism, Proposal, Search, each_release, rounded
from darrm.plan.noisy import Selection, exponential_law, first_rate, permute_and_flip_law
from darrm.plurality import baselines as of_plurality
from darrm.plurality.plurality_law import PluralityLaw, true_plurality
from darrm.plurality.voter_corners import number_of_rows
from darrm.privacy import PrivacyParams, at_least
from darrm.problem import Problem, Workload, is_open
from darrm.table.cost import charge_of
from darrm.table.release import Release
from darrm.table.table import Table, certify
from darrm.util.figures import GRAY, GREEN, PURPLE, VERMILION

LARGEST_TARGET = Fraction(15)  # of one query; beyond, δ is rounding
LEAST_EPSILON = Fraction(1, 10**6)
BISECTIONS = 40
MOST_ROWS = 3_000_000  # of private voters of more than two classes: a proof takes a second
LEAST_RATE, MOST_RATE = 2e-9, 80.0  # of ε/t: below, every answer is random guessing; above, the majority
SELECTION = (
    "charged for its label, as `darrm.pate` charges it; of two classes as a certified table, the largest that the "
    "accountant admits."
)
TABLE = "the largest whose certified table the accountant admits."


class GammaProposal(Proposal):
    """A noise function, certified when its cost is asked for unless there is a table of it."""

    def __init__(
        self, workload: Workload, gamma: NoiseFunction, settings: Mapping[str, float], table: Table | None = None
    ) -> None:
        super().__init__(law_of(gamma), settings)
        self._workload, self._gamma, self._table = workload, gamma, table

    @property
    def table(self) -> Table:
        """The certified table."""
        if self._table is None:
            self._table = certify(smallest_target(self._workload, self._gamma), self._gamma)
        return self._table

    def compute_cost(self) -> PrivacyCost:
        """Compute the cost of a query with its exact privacy profile."""
        return charge_of(self.table)

    def quick_cost(self) -> PrivacyCost:
        """Bound the cost of a query by its certificate."""
        return charge_of(self.table, exact=False)

    def proved_law(self) -> Law:
        """Return the law of the certified γ, which may be scaled."""
        return law_of(self.table.gamma)

    def release(self) -> Released:
        """Release from the table."""
        return Release(self.table)

    def shrinking(self, search: Search) -> Mechanism:
        """Scale γ down."""
        return _ScaledGamma(search, self.table.gamma, self.settings)


class LawProposal(Proposal):
    """A certified law of more than two classes, or of open answers."""

    def __init__(self, table: Table, settings: Mapping[str, float]) -> None:
        law = _open_law(table) if is_open(table.problem.classes) else table.plurality.probabilities
        target = table.problem.target
        super().__init__(law, {**settings, "epsilon": target.epsilon, "delta": target.delta})
        self.table, self._settings = table, settings

    def compute_cost(self) -> PrivacyCost:
        """Compute the cost of a query with its exact privacy profile."""
        return charge_of(self.table)

    def release(self) -> Released:
        """Release from the table."""
        return Release(self.table)

    def shrinking(self, search: Search) -> Mechanism | None:
        """Mix the law with random guessing."""
        if is_open(self.table.problem.classes):
            return None
        return _MixedLaw(search, self.table.plurality, self._settings)


class _Shrinking(Mechanism):
    limits = (0.0, 1.0)
    unused = 2e-6

    def value(self, rate: float) -> float:
        return rate


class _ScaledGamma(_Shrinking):
    def __init__(self, search: Search, gamma: NoiseFunction, settings: Mapping[str, float]) -> None:
        super().__init__(search, search.workload)
        self._gamma, self._settings = gamma, settings

    def at(self, parameter: float) -> Proposal:
        return GammaProposal(self.workload, self._gamma.scaled(parameter), self._settings)


class _MixedLaw(_Shrinking):
    def __init__(self, search: Search, law: PluralityLaw, settings: Mapping[str, float]) -> None:
        super().__init__(search, search.workload)
        self._law, self._settings = law, settings

    def at(self, parameter: float) -> Proposal:
        return LawProposal(certified_plurality(self.workload, mixed(self._law, parameter)), self._settings)


class NoNoise(FixedMechanism):
    """Publish the votes of private models, if the models that one person can influence stay within the budget."""

    slug, name, color = "no-noise", "no noise", GRAY
    about = "the votes of private models as they are."

    @classmethod
    def applies_to(cls, workload: Workload) -> bool:
        """Return whether the voters are private models."""
        return workload.voters.are_private_models

    def at(self, parameter: float) -> Proposal:  # noqa: ARG002 (there is one proposal)
        """Return the proposal."""
        return _NoNoiseProposal(self.search.workload)


class _NoNoiseProposal(Proposal):
    remark = "No noise is needed: any number of answers is post-processing of models that are private already."

    def __init__(self, workload: Workload) -> None:
        super().__init__(_leading, {})
        t, delta = workload.voters.reached, workload.total.delta
        total = models_bound(workload.voters, delta)
        if total is None:
            raise PlanError(f"the {t} models a person reaches fail with more than delta = {at_least(delta, 6)}")
        if total.epsilon > workload.total.epsilon:
            raise PlanError(f"the {t} models a person reaches cost epsilon = {at_least(total.epsilon, 6)} together")
        winner = "majority" if workload.has_noise_function else "plurality"
        self.instructions = (f"publish the {winner} of the models' votes as it is, for any number of queries",)
        self.total, self._workload = total, workload

    def release(self) -> Released | None:
        work = self._workload
        if not work.has_noise_function:
            return None
        gamma = NoiseFunction(work.voters.K, np.ones(work.voters.num_upper_levels))
        return Release(certify(smallest_target(work, gamma), gamma))


class _ByLead(Mechanism):
    """Turn up the ε of a γ that is a function of εM/(2t)."""

    def __init__(self, search: Search, workload: Workload | None = None) -> None:
        super().__init__(search, workload)
        voters = self.workload.voters
        self.limits = (LEAST_RATE * voters.reached, MOST_RATE * voters.reached)
        self.start = voters.reached * first_rate(self.workload)
        self._leads = np.arange(2.0 * voters.first_majority - voters.K, voters.K + 1.0, 2.0)

    def value(self, rate: float) -> float:
        """Return ε as it is."""
        return rate

    def gamma(self, exponents: Array) -> Array:
        """Return γ at εM/(2t)."""
        raise NotImplementedError

    def at(self, parameter: float) -> Proposal:
        """Make γ with ε."""
        voters = self.workload.voters
        values = self.gamma(parameter / (2.0 * voters.reached) * self._leads)
        return GammaProposal(self.workload, NoiseFunction(voters.K, values), {"epsilon": parameter})


class _ExponentialGamma(_ByLead):
    def gamma(self, exponents: Array) -> Array:
        return np.tanh(exponents / 2.0)


class _PermuteAndFlipGamma(_ByLead):
    def gamma(self, exponents: Array) -> Array:
        return np.asarray(-np.expm1(-exponents))


class Exponential(Selection):
    """Turn up the ε of the exponential mechanism; for two classes as a table, for private voters as well."""

    slug, name, about, color = "exponential", "exponential mechanism", SELECTION, VERMILION
    drawn = selection.ExponentialMechanism

    @classmethod
    def instances(cls, search: Search) -> Iterable[Mechanism]:  # type: ignore[override]
        """Make a table for two classes, a selection for more."""
        return each_release(_ExponentialGamma, search) if search.workload.has_noise_function else [cls(search)]

    def law(self, epsilon: float, overlap: int) -> Law:
        """Return its law."""
        return exponential_law(epsilon, overlap)


class PermuteAndFlip(Selection):
    """Turn up the ε of permute-and-flip; for two classes as a table, for private voters as well."""

    slug, name, about, color = "permute-and-flip", "permute-and-flip", SELECTION, PURPLE
    drawn = selection.PermuteAndFlip

    @classmethod
    def instances(cls, search: Search) -> Iterable[Mechanism]:  # type: ignore[override]
        """Make a table for two classes, a selection for more."""
        return each_release(_PermuteAndFlipGamma, search) if search.workload.has_noise_function else [cls(search)]

    def law(self, epsilon: float, overlap: int) -> Law:
        """Return its law."""
        return permute_and_flip_law(epsilon, overlap)


class RandomizedResponse(Mechanism):
    """Turn up a constant γ for two classes, and a mixture with random guessing for more."""

    slug, name, color = "randomized-response", "randomized response", GRAY
    about = "one probability of the majority, " + TABLE

    @classmethod
    def instances(cls, search: Search) -> Iterable[Mechanism]:  # type: ignore[override]
        """Make a constant γ, or a mixture."""
        return each_release(_ConstantGamma if search.workload.has_noise_function else _ConstantMixture, search)


class _ConstantGamma(Mechanism):
    rough = 0.0

    def __init__(self, search: Search, workload: Workload) -> None:
        super().__init__(search, workload)
        check_private_enough(workload)
        self.start, self.limits = min(1.0, first_rate(workload)), (0.0, 1.0)
        if workload.queries == 1:  # the cost takes no time
            self.unused = self.narrow = 1e-12

    def value(self, rate: float) -> float:
        return rate

    def at(self, parameter: float) -> Proposal:
        voters = self.workload.voters
        gamma = NoiseFunction(voters.K, np.full(voters.num_upper_levels, parameter))
        return GammaProposal(self.workload, gamma, {"gamma": parameter})


class _ConstantMixture(Mechanism):
    """Turn up the ε of a query that is answered by the plurality or at random, with one probability."""

    def __init__(self, search: Search, workload: Workload) -> None:
        super().__init__(search, workload)
        check_private_enough(workload)
        check_rows(workload)
        self._least = least_epsilon(workload)
        most = float(min(LARGEST_TARGET, max(self._least, largest_epsilon(workload))))
        self.start, self.limits = float(self._least), (float(self._least), most)

    def at(self, parameter: float) -> Proposal:
        work = self.workload
        problem = work.problem(PrivacyParams(max(self._least, rounded(parameter)), delta_of_one(work)))
        table = certify(problem, true_plurality(work.voters.K, work.classes))
        return LawProposal(table, {"gamma": table.certificate.scale})


class Subsampling(Mechanism):
    """Turn up the integer m of γ_Sub [D, Lemma 3.1]; of more classes the plurality of m voters answers."""

    slug, name, color = "subsampling", "subsampling", GREEN
    about = "the allowance: " + TABLE

    def __init__(self, search: Search, workload: Workload | None = None) -> None:
        super().__init__(search, search.workload if workload is None else workload)
        check_private(self.workload)
        self.limits = (1.0, float(self.workload.voters.K))

    def value(self, rate: float) -> float:
        """Return m."""
        return float(math.floor(rate))

    def law_of(self, problem: Problem) -> NoiseFunction | PluralityLaw:
        """Return the law with the allowance of a problem."""
        is_binary = self.workload.has_noise_function
        return baselines.subsampling(problem) if is_binary else of_plurality.subsampled_plurality(problem)

    def at(self, parameter: float) -> Proposal:
        """Certify the law with m."""
        work = self.workload
        problem = Problem.from_allowance(work.voters, int(parameter), classes=work.classes)
        if problem.target.exact_epsilon > work.total.exact_epsilon * work.queries:
            raise PlanError(f"not even the majority of one voter (m = 1) composes within {work.total}")
        return proposal_of(work, certify(problem, self.law_of(problem)), {"m": parameter})


class DoubleSubsampling(Subsampling):
    """Turn up the integer m of γ_DSub [D, Theorem 4.1]; of more classes the plurality of 2m − 1 voters answers."""

    slug, name = "double-subsampling", "double subsampling"

    def law_of(self, problem: Problem) -> NoiseFunction | PluralityLaw:
        """Return the law with the allowance of a problem."""
        is_binary = self.workload.has_noise_function
        return baselines.double_subsampling(problem) if is_binary else of_plurality.double_subsampled_plurality(problem)


def proposal_of(workload: Workload, table: Table, settings: Mapping[str, float]) -> GammaProposal | LawProposal:
    """Propose a certified table."""
    if table.problem.has_noise_function:
        return GammaProposal(workload, table.gamma, settings, table)
    return LawProposal(table, settings)


def check_private(workload: Workload) -> None:
    """Raise `PlanError` if the voters' own privacy does not count for each query."""
    if not counted(workload).voters.each.is_private:
        raise PlanError("it rests on the voters' own privacy, which is not counted here")


def check_rows(workload: Workload) -> None:
    """Raise `PlanError` if a proof for more than two classes takes too long for a search."""
    voters = workload.voters
    if workload.has_noise_function or voters.are_non_private or workload.queries == 1:
        return
    if (rows := number_of_rows(voters, workload.classes)) > MOST_ROWS:
        raise PlanError(f"its proof looks at {rows:,} rows, and up to {MOST_ROWS:,} are looked at for a plan")


def are_equally_private(workload: Workload) -> bool:
    """Return whether all voters are private with the same (ε, δ): no table can be more private than one of them."""
    return workload.voters.each.is_private and workload.voters.own is None


def least_epsilon(workload: Workload, otherwise: Fraction = LEAST_EPSILON) -> Fraction:
    """Return the smallest ε that a query may be certified for: noise may be more private than the weakest of several.

    Voters that are alike have theirs.
    """
    return workload.voters.each.exact_epsilon if are_equally_private(workload) else otherwise


def delta_of_one(workload: Workload) -> Fraction:
    """Return half of a query's share of δ, or the voters' own if that is more."""
    return max(workload.voters.each.exact_delta, rounded(workload.total.exact_delta / (2 * workload.queries)))


def largest_epsilon(workload: Workload) -> Fraction:
    """Compute min(total ε, K·ε): beyond, a query of private voters costs no more.

    Rarely sampled people may have a far larger ε.
    """
    total, voters = workload.total.exact_epsilon, workload.voters
    if voters.sampled is not None and workload.queries > 1:
        return LARGEST_TARGET
    return min(total, voters.K * voters.each.exact_epsilon) if voters.each.is_private else total


def check_private_enough(workload: Workload) -> None:
    """Raise `PlanError` if the budget of one query is smaller than a voter's own privacy."""
    each, total = workload.voters.each, workload.total
    if not are_equally_private(workload) or workload.queries > 1:
        return
    if total.exact_epsilon < each.exact_epsilon or total.exact_delta < each.exact_delta:
        raise PlanError("the budget is smaller than one voter's own")


def mixed(law: PluralityLaw, share: float) -> PluralityLaw:
    """Answer by a law with this probability, else at random."""
    return law.mixed(1.0 - share) if share < 1.0 else law


def certified_plurality(workload: Workload, law: PluralityLaw) -> Table:
    """Certify a law for an (ε, δ) that one query satisfies: δ is half of its share of the total, where allowed."""
    each = workload.voters.each
    most = min(LARGEST_TARGET, workload.voters.K * each.exact_epsilon) if each.is_private else LARGEST_TARGET
    delta = delta_of_one(workload)
    profile = certify(workload.problem(PrivacyParams(most, delta)), law).profile
    if profile is None:
        raise PlanError("nothing bounds one query")
    epsilon = max(rounded(profile.epsilon_at(float(delta)), ROUND_CEILING), least_epsilon(workload))
    return certify(workload.problem(PrivacyParams(min(most, epsilon), delta)), law)


def _leading(counts: NDArray[np.int64]) -> Array:
    leading = counts == counts.max(axis=1, keepdims=True)
    return np.asarray(leading / leading.sum(axis=1, keepdims=True))


def _open_law(table: Table) -> Law:
    return lambda counts: np.where(counts > 0, table.law.probabilities(counts)[:, :-1], 0.0)


def law_of(gamma: NoiseFunction) -> Law:
    """Return γ as a law on histograms of two classes."""
    majority = 0.5 * (1.0 + gamma.signed)
    return lambda counts: majority[counts]


def smallest_target(workload: Workload, gamma: NoiseFunction) -> Problem:
    """State an (ε, δ) that one query satisfies, so that γ can be certified as it is.

    δ is half of a query's share of the total where that is allowed, ε the smallest that goes with it; `PlanError` if
    γ is so certain that only δ = 1 remains.
    """
    voters, each = workload.voters, workload.voters.each
    least = each.exact_epsilon if each.is_private else LEAST_EPSILON
    most = each.exact_epsilon * voters.reached if each.is_private else LARGEST_TARGET
    most = max(least, min(most, LARGEST_TARGET))
    delta = delta_of_one(workload)
    if (at_most := divergence(voters, gamma, most)) > delta:
        delta = rounded(at_most, ROUND_CEILING)
    if delta >= 1:
        raise PlanError(f"one query has no epsilon of at most {float(most):g}")

    def is_private(epsilon: Fraction) -> bool:
        return divergence(voters, gamma, epsilon) <= delta

    epsilon = least
    if not is_private(least):
        smallest = bisect_safe(is_private, most, least, steps=BISECTIONS, tolerance=1e-6)
        epsilon = min(most, rounded(smallest, ROUND_CEILING))
    return workload.problem(PrivacyParams(epsilon, delta))
