"""Optima of one query under (ε, δ) or a Rényi budget, calibrated to the total budget of many queries.

* **optimal**: the (ε, δ)-optimal law of one query, for several splits of δ between queries and composition. ε is the
  largest that the accountant admits, first by the optimal bound [KOV15, Theorem 3.3], then also by the exact privacy
  profile of the law;
* **rdp-optimal**: the best law of a query whose divergence of an order α is at most ρ(α), with Q·ρ(α) +
  log(1 − 1/α) − (log δ + log α)/(α − 1) = ε [CKS20, Proposition 12], and the best of the accountant's orders.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import cache

import numpy as np

from darrm.errors import PlanError
from darrm.loss.amplification import get_rate
from darrm.loss.privacy_cost import PrivacyCost
from darrm.loss.renyi import DEFAULT_ORDERS
from darrm.majority.closed_form import (
    COARSE,
    FINE,
    RenyiOptimum,
    best_for_non_private_voters,
    best_under_renyi,
    has_closed_form,
    optimize_under_renyi,
)
from darrm.majority.noise_function import NoiseFunction
from darrm.open_set import optimum as open_optimum
from darrm.optimize import SolveOptions, plurality
from darrm.optimize.optimizer import optimize_table
from darrm.optimize.request import default_shape
from darrm.plan import tables
from darrm.plan.mechanism import Mechanism, Proposal, Search, as_plan_error, rounded
from darrm.plan.tables import MixedLaw, TableProposal
from darrm.plurality.partitions import list_partitions
from darrm.priors import Prior
from darrm.privacy import PrivacyParams
from darrm.problem import Problem, Workload, is_open
from darrm.subsampling import Subsampling
from darrm.table.table import certify
from darrm.util.figures import BLACK, SKY_BLUE, VERMILION

# the share of δ for the queries; the remainder is for composition
SHARES = (Fraction(0), Fraction(1, 10), Fraction(1, 2), Fraction(9, 10), Fraction(1))
MAX_REFINED = 3  # shares that are tried with a larger ε and the exact profile
MOST_REFINED = 101  # voters: beyond, a trial that does not beat the best ends the search, which saves half a minute
MOST_VOTERS = 301  # beyond, a profile takes seconds, and that of a γ that is not monotone minutes
ORDER_STEP = 4  # distance of the neighbors in the list of orders
MOST_TERMS = 4000  # of a program of more than two classes: a solution takes a second


class Optimal(Mechanism):
    slug, name, color, linewidth = "optimal", "optimal per query", VERMILION, 2.0
    about = "the best of one query, with the largest ε that the accountant admits."
    is_slow = is_open_set = is_table = True

    @classmethod
    def instances(cls, search: Search, release: Workload) -> Sequence[Mechanism]:
        work = search.workload
        if not work.has_noise_function:
            return [_OptimalLaw(search, release)]
        max_refined, shapes = MAX_REFINED * len(cls.releases(work)), ["monotone"]
        if release.queries == 1:
            shapes = [default_shape(release.voters)]
        elif tables.are_equally_private(release) and release.voters.K <= MOST_VOTERS:
            shapes.append("free")
        instances = [
            _OptimalGamma(search, release, delta, shape, max_refined=max_refined)
            for delta in _list_deltas(release)
            for shape in shapes
        ]
        if not instances:
            own_epsilon = f"epsilon = {work.voters.each.epsilon:g}, the voters' own (m = 1)"
            smallest_epsilon = own_epsilon if tables.are_equally_private(work) else "any epsilon"
            raise PlanError(f"{work.queries} queries with {smallest_epsilon} do not compose within {work.total}")
        return instances


class _OptimalQuery(Mechanism):
    max_gain = 8.0  # in experiments the exact profile allows a few times the ε of the optimal bound
    goal = 1e-3  # smaller gains over the best so far are ignored
    tolerance, rough_tolerance = 2e-6, 0.0  # a solution takes long

    def __init__(self, search: Search, workload: Workload, delta: Fraction) -> None:
        super().__init__(search, workload)
        self._delta, self._is_single = delta, workload.queries == 1
        self._low, self._high = tables.least_epsilon(workload, Fraction(0)), tables.largest_epsilon(workload)

    def _compute_epsilon(self, parameter: float) -> Fraction:
        raise NotImplementedError

    def _compute_guarantee(self, parameter: float) -> PrivacyParams:
        with as_plan_error():  # floats hold no smaller ε
            return PrivacyParams(self._compute_epsilon(parameter), self._delta)

    def estimate(self, parameter: float) -> PrivacyCost | None:
        guarantee, sampling = self._compute_guarantee(parameter), self.workload.voters.sampled
        return None if self._is_single else PrivacyCost("query", guarantee=guarantee, sampling=sampling)


class _OptimalLaw(_OptimalQuery):
    def __init__(self, search: Search, workload: Workload) -> None:
        _check_solvable(search, workload)
        is_single = workload.queries == 1
        super().__init__(search, workload, workload.total.exact_delta if is_single else tables.delta_of_one(workload))
        low, high = float(self._low), float(min(tables.LARGEST_TARGET, self._high))
        self.start = max(low, min(high, workload.total.epsilon / workload.queries))
        self.limits = (self.start if is_single else low, self.start if is_single else max(high, low))

    def _compute_epsilon(self, parameter: float) -> Fraction:
        return self._high if self._is_single else max(self._low, rounded(parameter))

    def at(self, parameter: float) -> Proposal:
        self.search.report(f"optimal: epsilon {parameter:.4g} for each query")
        problem = self.workload.problem(self._compute_guarantee(parameter))
        return TableProposal(self.workload, {}, plurality.optimize_plurality(problem, prior=self.search.measure.prior))


class _OptimalGamma(_OptimalQuery):
    """The optimal γ of one shape: a free γ has a smaller error, a monotone γ has a Rényi curve."""

    is_exact = True

    def __init__(self, search: Search, workload: Workload, delta: Fraction, shape: str, *, max_refined: int) -> None:
        super().__init__(search, workload, delta)
        self._shape, equal_share = shape, workload.total.exact_epsilon / workload.queries
        self._exact = {float(anchor): anchor for anchor in (self._low, equal_share, self._high)}
        self.start = float(
            self._high if self._is_single else max(equal_share, self._high / (3 * math.isqrt(workload.queries)))
        )
        self.limits = (float(self._low), float(max(self._high, self._low)))
        voters = workload.voters
        self.max_refined = max_refined if voters.K <= MOST_VOTERS else 1
        self._is_approximate = not (self._is_single or voters.K > MOST_VOTERS or has_closed_form(voters))
        self.is_refined = self._is_approximate and voters.K <= MOST_REFINED

    def _compute_epsilon(self, parameter: float) -> Fraction:
        return self._exact.get(parameter) or rounded(parameter)

    def at(self, parameter: float) -> Proposal:
        return self._solve(parameter, None if self._is_single else COARSE)  # compared before it is solved to the end

    def finish(self, parameter: float) -> Proposal | None:
        return self._solve(parameter, FINE) if self._is_approximate else None

    def _solve(self, parameter: float, options: SolveOptions | None) -> Proposal:
        self.search.report(f"optimal: epsilon {parameter:.4g}, delta {float(self._delta):g}")
        problem = self.workload.problem(self._compute_guarantee(parameter))
        if has_closed_form(self.workload.voters):
            table = certify(problem, best_for_non_private_voters(problem.conditional_on_inclusion))
        else:
            table = optimize_table(problem, prior=self.search.measure.linear_prior, shape=self._shape, options=options)
            if table.gamma.is_monotone:
                self._shape = "monotone"  # the optimum of that shape is the same
        return TableProposal(self.workload, {"epsilon": problem.target.epsilon, "delta": float(self._delta)}, table)


class PaperDaRRM(Mechanism):
    """DaRRM as [D] has it: one person may reach all K voters, and queries compose by their (ε, δ)."""

    slug, name, color, classes = "darrm-paper", "DaRRM of the paper", SKY_BLUE, (2, 2)
    about = "one person may reach all voters, and a query is optimized for its (ε, δ)."
    is_slow = True

    @classmethod
    def applies_to(cls, workload: Workload) -> bool:
        return workload.voters.sampled is None

    @classmethod
    def releases(cls, workload: Workload) -> Sequence[Workload]:
        tables.check_private(workload)
        return [replace(workload, voters=replace(workload.voters, overlap=None))]

    @classmethod
    def instances(cls, search: Search, release: Workload) -> Sequence[Mechanism]:
        return Optimal.instances(replace(search, workload=release), release)


def _list_deltas(workload: Workload) -> list[Fraction]:
    total, each = workload.total.exact_delta, workload.voters.each
    if workload.queries == 1:
        is_affordable = (
            not tables.are_equally_private(workload) or tables.largest_epsilon(workload) >= each.exact_epsilon
        )
        return [total] if total >= each.exact_delta and is_affordable else []
    shares = {max(each.exact_delta, rounded(share * total / workload.queries)) for share in SHARES}
    return sorted(delta for delta in shares if delta * workload.queries <= total)


class RDPOptimal(Mechanism):
    slug, name, color, linewidth = "rdp-optimal", "RDP-optimal", BLACK, 2.4
    about = "the best under a Rényi budget of one order, the best of the accountant's orders."
    is_slow = is_table = True

    @classmethod
    def instances(cls, search: Search, release: Workload) -> Sequence[Mechanism]:
        if release.voters.sampled is not None:
            return _list_resampled_orders(search)
        return [(_find_best_gamma if release.has_noise_function else _find_best_law)(search, release)]


class _UnderRenyi(MixedLaw):
    tolerance, rough_tolerance = Mechanism.tolerance, 0.0

    _problem: Problem | None = None

    def at(self, parameter: float) -> Proposal:
        if not isinstance(self.law, NoiseFunction):
            return super().at(parameter)
        self._problem = self._problem or tables.find_smallest_target(self.workload, self.law)
        return TableProposal(self.workload, self.settings, certify(self._problem, self.law.scale_by(parameter)))


def _find_best_gamma(search: Search, workload: Workload) -> Mechanism:
    voters, prior, budgets = workload.voters, search.measure.linear_prior, compute_renyi_budgets(workload)
    least, optima = search.to_beat, dict[float, RenyiOptimum]()

    @cache
    def compute_error(order: float) -> float:
        nonlocal least
        search.report(f"rdp-optimal: order {order:.6g}, {search.measure.name} {least:.6g}")
        to_beat = least * (1.0 + COARSE.gap)
        optimum = optimize_under_renyi(voters, prior, order, budgets[order], options=COARSE, to_beat=to_beat)
        optima[order] = optimum
        # a search that stopped because it errs more returns the error as its bound
        value = max(optimum.value, optimum.bound)
        least = min(least, value)
        return value

    order = find_best_order(budgets, compute_error)
    search.report(f"rdp-optimal: the best of order {order:.6g}")
    start, budget = optima[order], budgets[order]
    gamma = optimize_under_renyi(voters, prior, order, budget, options=FINE, start=start).gamma
    return _UnderRenyi(search, workload, gamma, {"order": order, "renyi budget": budget})


def _find_best_law(search: Search, workload: Workload) -> Mechanism:
    _check_terms(search.workload)
    if not workload.voters.are_non_private:
        raise PlanError("for more than two classes it is known for non-private voters only")
    _check_terms(workload)
    budgets, prior = compute_renyi_budgets(workload), search.measure.prior
    _check_known(prior, workload)

    def find_law(order: float, options: SolveOptions) -> plurality.PluralityOptimum:
        search.report(f"rdp-optimal: order {order:.6g}")
        return plurality.optimize_plurality_under_renyi(
            workload.voters, workload.classes, prior, order, budgets[order], options=options
        )

    @cache
    def compute_error(order: float) -> float:
        return -find_law(order, COARSE).value

    order = find_best_order(budgets, compute_error)
    return _UnderRenyi(search, workload, find_law(order, FINE).law, {"order": order})


class _ResampledOrder(Mechanism):
    """The RDP-optimal γ of one order for voters that resample; the parameter scales its Rényi budget."""

    tolerance, rough_tolerance = 1e-3, 0.0
    limits = (0.0, 1e3)

    def __init__(self, search: Search, sampling: Subsampling, order: float, budget: float) -> None:
        super().__init__(search, search.workload)
        self._order, self._budget, self._rate = order, budget, get_rate(sampling)

    def at(self, parameter: float) -> Proposal:
        self.search.report(f"rdp-optimal: order {self._order:.6g}")
        budget = parameter * self._budget
        gamma = best_under_renyi(self.workload.voters.K, self._order, budget, self._rate)
        return TableProposal(self.workload, {"order": self._order, "renyi budget": budget}, gamma)


def _list_resampled_orders(search: Search) -> Sequence[Mechanism]:
    """Return the best order and its neighbors."""
    work, sampling = search.workload, search.workload.voters.sampled
    if sampling is None or sampling.scheme != "poisson" or not has_closed_form(work.voters):
        raise PlanError("it is known for people who are drawn by coins, and reach one voter each")
    if not work.has_noise_function:
        raise PlanError("for more than two classes it is not known for voters that resample their examples")
    budgets = compute_renyi_budgets(work)
    mechanisms = {order: _ResampledOrder(search, sampling, order, budget) for order, budget in budgets.items()}

    @cache
    def compute_error(order: float) -> float:
        return search.measure.compute_loss(mechanisms[order].at(1.0).law)

    place = list(mechanisms).index(find_best_order(budgets, compute_error))
    return list(mechanisms.values())[max(0, place - ORDER_STEP) : place + ORDER_STEP + 1 : ORDER_STEP]


def compute_renyi_budgets(workload: Workload) -> dict[float, float]:
    """Compute the ρ(α) of the module docstring above rounding errors; `PlanError` if there is none."""
    orders, total = DEFAULT_ORDERS, workload.total
    if total.exact_delta == 0:
        raise PlanError("a Rényi budget needs delta > 0")
    conversion = np.log1p(-1.0 / orders) - (math.log(total.delta) + np.log(orders)) / (orders - 1.0)
    budgets = (1.0 - 1e-9) * (total.epsilon - conversion) / workload.queries  # bounds are rounded
    positive_budgets = {float(a): float(budget) for a, budget in zip(orders, budgets, strict=True) if budget > 1e-11}
    if not positive_budgets:
        raise PlanError(f"no Rényi order leaves a budget for the total {total}")
    return positive_budgets


def find_best_order(budgets: dict[float, float], compute_error: Callable[[float], float]) -> float:
    """Find the order with the smallest error, from the best order for Gaussian noise, the largest ρ(α)/α, on."""
    orders = list(budgets)
    place, step = int(np.argmax([budgets[order] / order for order in orders])), 2
    while step:
        neighbors = [index for index in (place, place - step, place + step) if 0 <= index < len(orders)]
        errors = [compute_error(orders[index]) for index in neighbors]
        best = neighbors[errors.index(min(errors))]
        place, step = best, step // 2 if best == place else 2 * step
    return orders[place]


def _check_solvable(search: Search, work: Workload) -> None:
    voters, prior = work.voters, search.measure.prior
    if is_open(work.classes):
        if work.queries > 1 or voters.K > open_optimum.MOST_PLANNED:
            raise PlanError(
                f"the best open answer is found for one question of up to {open_optimum.MOST_PLANNED} voters"
            )
        with as_plan_error():
            if voters.K > plurality.MOST_LISTED_VOTERS:
                open_optimum.check_size(work.problem(work.total))
                prior.strings(voters.K)
            else:
                plurality.check_size(voters, work.classes)
                prior.log_of_partitions([(voters.K,)])
    else:
        _check_terms(work)
        _check_terms(search.workload)  # the table is proved for these voters in the end
        _check_known(prior, work)
    if not _list_deltas(work):
        each = work.voters.each
        raise PlanError(f"{work.queries} queries of voters that are {each}-private do not compose within {work.total}")


def _check_known(prior: Prior, work: Workload) -> None:
    """Refuse a prior that only samples."""
    with as_plan_error():
        prior.log_probabilities(work.voters.K * np.eye(1, work.classes, dtype=np.int64))


def _check_terms(workload: Workload) -> None:
    voters = workload.voters
    with as_plan_error():
        plurality.check_size(voters, workload.classes)
    if not voters.are_non_private:
        tables.check_rows(workload)
        return
    terms = list_partitions(voters.K, workload.classes).pairs(voters.reached).pair.size
    if terms > MOST_TERMS:
        raise PlanError(f"its program has {terms:,} terms, and up to {MOST_TERMS:,} are solved for a plan")
