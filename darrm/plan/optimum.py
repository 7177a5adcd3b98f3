"""Optima: the best release of one query, and the best under a Rényi budget, each turned up to a budget of many.

* **per query**: the (ε, δ)-optimal law of one query. δ is split between the queries' own failures and composition in
  several proportions; ε is the largest that the accountant admits, first by the optimal bound [KOV15, Theorem 3.3],
  then by all of its bounds, the exact privacy profile of the law at hand among them;
* **Rényi**: for an order α the divergence of a query may be ρ(α), with Q·ρ(α) + log(1 − 1/α) −
  (log δ + log α)/(α − 1) = ε [CKS20, Proposition 12]; the best law under that budget comes from
  `darrm.optimize.under_renyi` and `darrm.optimize.plurality`, and α from a search over the accountant's own orders.

A law of more than two classes is a solution of a program that has to be small enough to be solved some twenty times.
"""

import math
from collections.abc import Callable, Iterable, Iterator
from fractions import Fraction
from functools import cache, partial

import numpy as np

from darrm.errors import PlanError
from darrm.laws.partitions import partitions_of
from darrm.laws.plurality_law import PluralityLaw
from darrm.losses.amplification import rate_of
from darrm.losses.charges import Charge
from darrm.losses.renyi import DEFAULT_ORDERS
from darrm.optimize import SolveOptions
from darrm.optimize.closed_form import best_for_plain_voters, has_closed_form
from darrm.optimize.closed_form_renyi import best_under_renyi
from darrm.optimize.open_answers import MOST_PLANNED
from darrm.optimize.optimizer import optimize_table
from darrm.optimize.plurality import optimize_plurality, optimize_plurality_under_renyi
from darrm.optimize.question import default_shape
from darrm.optimize.under_renyi import COARSE, FINE, RenyiOptimum, optimize_under_renyi
from darrm.plan.budget import releases_of
from darrm.plan.family import Search
from darrm.plan.parameter import Parameter, Precision, Proposal, fixed, rounded
from darrm.plan.tables import (
    certified,
    certified_plurality,
    check_rows,
    delta_of_one,
    largest_epsilon,
    mixed,
    smallest_target,
    table_proposal,
)
from darrm.privacy import PrivacyParams
from darrm.problem import Workload, is_open
from darrm.proof.table import certify

# how much of δ goes to the queries' own failures; the rest is left for composition
SHARES = (Fraction(0), Fraction(1, 10), Fraction(1, 2), Fraction(9, 10), Fraction(1))
FOLLOWED = 3  # so many of them are tried with a larger ε and the exact profile
MOST_VOTERS = 301  # beyond, a profile takes seconds, and that of a γ that is not monotone minutes
LARGEST_GAIN = 8.0  # the exact profile has not been seen to allow more than a few times the ε of the optimal bound
PRECISION = Precision(unused=2e-6, narrow=1e-6)  # a solution takes long
GOAL = 1e-3  # of what is to be beaten: gains below it are not looked for
DRAWN_STEP, LARGEST_TIMES = 4, 1e3  # orders between those whose budget is turned up, and how far
FIRST_STEP = 2  # orders, from the one that a search starts with
LEAST_BUDGET = 1e-11  # of one query: a law of less is the rounding of its own divergence
BUDGET_MARGIN = 1e-9  # of the budget is left for the rounding of bounds
MOST_TERMS = 4000  # of a program of more than two classes: a solution takes a second
LARGEST_EPSILON = Fraction(15)  # of one query of more than two classes; beyond, δ is rounding


def per_query(search: Search) -> Iterable[Parameter]:
    """Turn up the ε of the optimal law of one query."""
    return _gammas_per_query(search) if search.workload.has_noise_function else _of_releases(search, _plurality_of_one)


def under_renyi(search: Search) -> Iterable[Parameter]:
    """Find the order whose optimal law errs least; what the accountant does not admit of it is scaled or mixed."""
    two = search.workload.has_noise_function
    if search.workload.voters.sampled is not None:
        return _drawn_under_renyi(search)
    return _of_releases(search, _gamma_under_renyi if two else _plurality_under_renyi)


def _gammas_per_query(search: Search) -> list[Parameter]:
    releases = releases_of(search.workload)
    parameters = [
        _gamma_of_one(search, release, delta, shape, followed=FOLLOWED * len(releases))
        for release in releases
        for delta in _deltas(release)
        for shape in _shapes(release)
    ]
    each, work = search.workload.voters.each, search.workload
    if not parameters:
        alike = each.is_private and work.voters.own is None
        least = f"epsilon = {each.epsilon:g}, the voters' own (m = 1)" if alike else "any epsilon"
        raise PlanError(f"{work.queries} queries with {least} do not compose within {work.total}")
    return parameters


def _plurality_of_one(search: Search, work: Workload) -> Parameter:
    if is_open(work.classes) and (work.queries > 1 or work.voters.K > MOST_PLANNED):
        raise PlanError(f"the best open answer is found for one question of up to {MOST_PLANNED} voters")
    each = work.voters.each if is_open(work.classes) else _solvable(work).voters.each
    _ = is_open(work.classes) or _solvable(search.workload)  # for whom the table is proved in the end
    if not _deltas(work):
        raise PlanError(f"{work.queries} queries of voters that are {each}-private do not compose within {work.total}")
    if work.queries == 1:
        problem = work.problem(PrivacyParams(largest_epsilon(work), work.total.exact_delta))
        return fixed(work, table_proposal(optimize_plurality(problem, prior=search.measure.prior), {}))
    delta = delta_of_one(work)
    least = each.exact_epsilon if each.is_private and work.voters.own is None else Fraction(0)

    def make(epsilon: float) -> Proposal:
        search.report(f"per query: epsilon {epsilon:.4g} for each query")
        problem = work.problem(PrivacyParams(max(least, rounded(epsilon)), delta))
        return table_proposal(optimize_plurality(problem, prior=search.measure.prior), {"epsilon": epsilon})

    most = float(min(LARGEST_EPSILON, largest_epsilon(work)))
    start = max(float(least), min(most, work.total.epsilon / work.queries))
    return Parameter(
        workload=work,
        make=make,
        start=start,
        limits=(float(least), max(most, float(least))),
        estimate=lambda epsilon: Charge("query", guarantee=PrivacyParams(rounded(epsilon), delta)),
        hope=LARGEST_GAIN,
        goal=GOAL,
        precision=PRECISION,
    )


def _gamma_of_one(search: Search, release: Workload, delta: Fraction, shape: str, *, followed: int) -> Parameter:
    voters, each = release.voters, release.voters.each
    most, first = largest_epsilon(release), release.total.exact_epsilon / release.queries
    once = release.queries == 1
    # noise can make a release more private than the weakest of voters that differ
    least = each.exact_epsilon if each.is_private and voters.own is None else Fraction(0)
    anchors = (most, first, least)
    free = [shape]

    def exact(epsilon: float) -> Fraction:
        return next((anchor for anchor in anchors if float(anchor) == epsilon), None) or rounded(epsilon)

    def solved(epsilon: float, options: SolveOptions | None) -> Proposal:
        search.report(f"per query: epsilon {epsilon:.4g}, delta {float(delta):g}")
        problem = release.problem(PrivacyParams(exact(epsilon), delta))
        if has_closed_form(voters):
            table = certify(problem, best_for_plain_voters(problem.for_certain))
        else:
            table = optimize_table(problem, prior=search.measure.prior, shape=free[0], options=options)
            free[0] = "monotone" if table.gamma.is_monotone else free[0]  # the optimum of that shape is the same
        return table_proposal(table, {"epsilon": problem.target.epsilon, "delta": float(delta)})

    exactly = once or voters.K > MOST_VOTERS or has_closed_form(voters)
    return Parameter(
        workload=release,
        make=lambda epsilon: solved(epsilon, None if once else COARSE),  # compared before it is solved to the end
        start=float(most if once else max(first, most / (3 * math.isqrt(release.queries)))),
        limits=(float(least), float(max(most, least))),
        value=float,
        estimate=None if once else lambda epsilon: Charge("query", guarantee=PrivacyParams(exact(epsilon), delta)),
        hope=LARGEST_GAIN,
        goal=GOAL,
        precision=PRECISION,
        followed=followed if voters.K <= MOST_VOTERS else 1,
        finish=None if exactly else lambda epsilon: solved(epsilon, FINE),
    )


def _deltas(workload: Workload) -> list[Fraction]:
    total, least = workload.total.exact_delta, workload.voters.each.exact_delta
    if workload.queries == 1:
        each = workload.voters.each
        affordable = not (each.is_private and workload.voters.own is None)
        affordable = affordable or largest_epsilon(workload) >= each.exact_epsilon
        return [total] if total >= least and affordable else []
    shares = {max(least, rounded(share * total / workload.queries)) for share in SHARES}
    return sorted(delta for delta in shares if delta * workload.queries <= total)


def _shapes(workload: Workload) -> tuple[str, ...]:
    """Return what γ may look like: a free γ errs less at one (ε, δ), a monotone one has a Rényi curve besides."""
    voters = workload.voters
    if workload.queries == 1:
        return (default_shape(voters),)
    free = voters.each.is_private and voters.own is None and voters.K <= MOST_VOTERS
    return ("monotone", "free") if free else ("monotone",)


def _gamma_under_renyi(search: Search, release: Workload) -> Parameter:
    """Search the accountant's orders; those that err more than what is known are left early."""
    prior, budgets = search.measure.prior, budgets_of(release)
    least = search.to_beat
    solved: dict[float, RenyiOptimum] = {}

    @cache
    def error(order: float) -> float:
        nonlocal least
        search.report(f"Rényi: order {order:.6g}, expected error {least:.6g}")
        found = solved[order] = optimize_under_renyi(
            release.voters, prior, order, budgets[order], options=COARSE, to_beat=least * (1.0 + COARSE.gap)
        )
        # one that stopped because it errs more has that as its bound
        value = max(found.value, found.bound)
        least = min(least, value)
        return value

    order = best_order(budgets, error)
    search.report(f"Rényi: the best of order {order:.6g}")
    start = solved[order]
    gamma = optimize_under_renyi(release.voters, prior, order, budgets[order], options=FINE, start=start).gamma
    problem = smallest_target(release, gamma)

    def make(share: float) -> Proposal:
        table = certify(problem, gamma.scaled(share))
        return table_proposal(table, {"order": order, "renyi budget": budgets[order]})

    return Parameter(workload=release, make=make, start=1.0, limits=(0.0, 1.0), value=float)


def _drawn_under_renyi(search: Search) -> list[Parameter]:
    """Turn up the Rényi budget of a query of voters that draw their examples anew, at the best orders and near."""
    # queries that rarely tell anything cost less together than their Rényi curves say: more than the budget is admitted
    work, sampling = search.workload, search.workload.voters.sampled
    if sampling is None or sampling.scheme != "poisson" or not has_closed_form(work.voters):
        raise PlanError("it is known for people who are drawn by coins, and reach one voter each")
    if not work.has_noise_function:
        raise PlanError("for more than two classes its program is known for voters that do not draw their examples")
    budgets, rate = budgets_of(work), rate_of(sampling)

    def proposed(order: float, times: float) -> Proposal:
        search.report(f"Rényi: order {order:.6g}")
        gamma = best_under_renyi(work.voters.K, order, times * budgets[order], rate)
        return certified(work, gamma, {"order": order, "renyi budget": times * budgets[order]})

    def error(order: float) -> float:
        return search.measure.wrong(proposed(order, 1.0).law)

    orders = list(budgets)
    place = orders.index(best_order(budgets, cache(error)))
    near = orders[max(0, place - DRAWN_STEP) : place + DRAWN_STEP + 1 : DRAWN_STEP]
    limits = (0.0, LARGEST_TIMES)
    return [
        Parameter(
            workload=work,
            make=partial(proposed, order),
            start=1.0,
            limits=limits,
            goal=None,
            precision=Precision(unused=1e-3, narrow=1e-4),
        )
        for order in near
    ]


def _plurality_under_renyi(search: Search, work: Workload) -> Parameter:
    _solvable(search.workload)
    if not _solvable(work).voters.are_plain:
        raise PlanError("for more than two classes its program is known for plain voters only")
    budgets = budgets_of(work)

    def best(order: float, options: SolveOptions) -> tuple[float, PluralityLaw]:
        search.report(f"Rényi: order {order:.6g}")
        prior = search.measure.prior
        found = optimize_plurality_under_renyi(work.voters, work.classes, prior, order, budgets[order], options=options)
        return found.value, found.law

    order = best_order(budgets, cache(lambda order: -best(order, COARSE)[0]))
    _, law = best(order, FINE)

    def make(share: float) -> Proposal:
        return table_proposal(certified_plurality(work, mixed(law, share)), {"order": order})

    return Parameter(workload=work, make=make, start=1.0, limits=(0.0, 1.0), value=float)


def budgets_of(workload: Workload) -> dict[float, float]:
    """Compute ρ(α) for the accountant's orders: Q·ρ and the conversion meet ε exactly [CKS20, Proposition 12].

    Those of at most `LEAST_BUDGET` are left out; `PlanError` if none is left.
    """
    orders, total = DEFAULT_ORDERS, workload.total
    if total.exact_delta == 0:
        raise PlanError("a Rényi budget needs delta > 0")
    conversion = np.log1p(-1.0 / orders) - (math.log(total.delta) + np.log(orders)) / (orders - 1.0)
    budgets = (1.0 - BUDGET_MARGIN) * (total.epsilon - conversion) / workload.queries
    left = {float(a): float(budget) for a, budget in zip(orders, budgets, strict=True) if budget > LEAST_BUDGET}
    if not left:
        raise PlanError(f"no Rényi order leaves a budget for epsilon = {total.epsilon:g}, delta = {total.delta:g}")
    return left


def best_order(budgets: dict[float, float], error: Callable[[float], float]) -> float:
    """Find the order with the smallest expected error, in steps that grow while they help and else are halved.

    It starts where divergences that grow as their order, as those of Gaussian noise, may be largest: next to the best
    for many queries.
    """
    orders = list(budgets)
    place, step = orders.index(max(orders, key=lambda order: budgets[order] / order)), FIRST_STEP
    while step:
        near = [index for index in (place, place - step, place + step) if 0 <= index < len(orders)]
        better = min(near, key=lambda index: error(orders[index]))
        place, step = better, step // 2 if better == place else 2 * step
    return orders[place]


def _of_releases(search: Search, parameter: Callable[[Search, Workload], Parameter]) -> Iterator[Parameter]:
    reasons = []
    for release in releases_of(search.workload):
        try:
            yield parameter(search, release)
        except PlanError as error:
            reasons.append(str(error))
    if len(reasons) == len(releases_of(search.workload)):
        raise PlanError(reasons[-1])


def _solvable(workload: Workload) -> Workload:
    voters = workload.voters
    if not voters.are_plain:
        check_rows(workload)
        return workload
    terms = partitions_of(voters.K, workload.classes).pairs(voters.reached).pair.size
    if terms > MOST_TERMS:
        raise PlanError(f"its program has {terms:,} terms, and up to {MOST_TERMS:,} are solved for a plan")
    return workload
