"""The best release under a Rényi budget: order and budget searched together."""

import math
from collections.abc import Callable
from functools import cache

import numpy as np

from darrm.errors import PlanError
from darrm.laws.priors import Prior
from darrm.losses.renyi import DEFAULT_ORDERS
from darrm.optimize.under_renyi import COARSE, FINE, RenyiOptimum, optimize_under_renyi
from darrm.plan.candidate import Candidate, smallest_target
from darrm.problem import Workload
from darrm.proof.table import certify

FIRST_STEP = 2  # orders, from the one that a search starts with
LEAST_BUDGET = 1e-11  # of one query: γ of less is the rounding of its own divergence
BUDGET_MARGIN = 1e-9  # of the budget is left for the rounding of bounds
SCALINGS = 12


def best_under_renyi_budget(
    workload: Workload, prior: Prior, report: Callable[[str], None], *, to_beat: float = math.inf
) -> Candidate:
    """Search the accountant's orders for the one whose optimum errs least; `PlanError` if none leaves a budget.

    Orders that err more than ``to_beat`` are left early.
    """
    total = workload.total
    if total.exact_delta == 0:
        raise PlanError("a Rényi budget needs delta > 0")
    budgets = budgets_of(workload)
    if not budgets:
        raise PlanError(f"no Rényi order leaves a budget for epsilon = {total.epsilon:g}, delta = {total.delta:g}")

    least = to_beat
    solved: dict[float, RenyiOptimum] = {}

    @cache
    def error(order: float) -> float:
        nonlocal least
        report(f"Rényi: order {order:.6g}, expected error {least:.6g}")
        found = solved[order] = optimize_under_renyi(
            workload.voters, prior, order, budgets[order], options=COARSE, to_beat=least * (1.0 + COARSE.gap)
        )
        # one that stopped because it errs more has that as its bound
        value = max(found.value, found.bound)
        least = min(least, value)
        return value

    order = best_order(budgets, error)
    report(f"Rényi: the best of order {order:.6g}")
    start = solved[order]
    gamma = optimize_under_renyi(workload.voters, prior, order, budgets[order], options=FINE, start=start).gamma
    problem = smallest_target(workload, gamma)
    settings = {"order": order, "renyi budget": budgets[order]}
    # scaled down by a hair and then by ever more, until the accountant admits all queries
    for less in (0.0, *(10.0**power for power in range(-SCALINGS, 0))):
        found = Candidate("Rényi", workload, certify(problem, gamma.scaled(1.0 - less)), prior, settings)
        if found.is_within_budget:
            return found
    raise PlanError("the optimum under a Rényi budget could not be scaled into the total budget")


def budgets_of(workload: Workload) -> dict[float, float]:
    """Compute ρ(α) for the accountant's orders: Q·ρ and the conversion meet ε exactly [CKS20, Proposition 12].

    Those of at most `LEAST_BUDGET` are left out.
    """
    orders, total = DEFAULT_ORDERS, workload.total
    conversion = np.log1p(-1.0 / orders) - (math.log(total.delta) + np.log(orders)) / (orders - 1.0)
    budgets = (1.0 - BUDGET_MARGIN) * (total.epsilon - conversion) / workload.queries
    return {float(a): float(budget) for a, budget in zip(orders, budgets, strict=True) if budget > LEAST_BUDGET}


def best_order(budgets: dict[float, float], error: Callable[[float], float]) -> float:
    """Find the order with the smallest expected error, in steps that grow while they help and else are halved.

    It starts where divergences that grow as their order, as those of Gaussian noise, may be largest: next to the best
    for many queries.
    """
    orders = list(budgets)
    place, step = orders.index(max(orders, key=lambda order: budgets[order] / order)), FIRST_STEP
    while step:
        near = [each for each in (place, place - step, place + step) if 0 <= each < len(orders)]
        better = min(near, key=lambda each: error(orders[each]))
        place, step = better, step // 2 if better == place else 2 * step
    return orders[place]
