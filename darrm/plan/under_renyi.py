"""The best release under a Rényi budget: order and budget searched together."""

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from darrm.errors import PlanError
from darrm.gamma.noise_function import NoiseFunction
from darrm.gamma.priors import Prior
from darrm.losses.renyi import DEFAULT_ORDERS
from darrm.optimize.under_renyi import COARSE, FINE, optimize_under_renyi
from darrm.plan.candidate import Candidate, smallest_target
from darrm.problem import Workload
from darrm.proof.table import certify

FIRST_ORDERS = 9  # so many, evenly over the grid, before the search closes in
BUDGET_MARGIN = 1e-9  # of the budget is left for the rounding of bounds
SCALINGS = 12


def best_under_renyi_budget(workload: Workload, prior: Prior, report: Callable[[str], None]) -> Candidate:
    """Search the accountant's orders for the one whose optimum errs least; `PlanError` if none leaves a budget."""
    total = workload.total
    if total.exact_delta == 0:
        raise PlanError("a Rényi budget needs delta > 0")
    budgets = _budgets(workload)
    if not budgets:
        raise PlanError(f"no Rényi order leaves a budget for epsilon = {total.epsilon:g}, delta = {total.delta:g}")
    search = _Search(workload, prior, budgets, report)
    order = search.best_order()
    found = search.solve(order, finely=True)
    settings = {"order": order, "renyi budget": budgets[order]}
    return _within_budget(
        Candidate("Rényi", workload, certify(smallest_target(workload, found), found), prior, settings)
    )


def _budgets(workload: Workload) -> dict[float, float]:
    """Compute ρ(α) > 0 for the accountant's orders: Q·ρ and the conversion meet ε exactly [CKS20, Proposition 12]."""
    orders, total = DEFAULT_ORDERS, workload.total
    conversion = np.log1p(-1.0 / orders) - (math.log(total.delta) + np.log(orders)) / (orders - 1.0)
    budgets = (1.0 - BUDGET_MARGIN) * (total.epsilon - conversion) / workload.queries
    return {float(a): float(budget) for a, budget in zip(orders, budgets, strict=True) if budget > 0.0}


class _Search:
    """Finds the order with the smallest expected error: a first look, then ever closer neighbors of the best."""

    def __init__(
        self, workload: Workload, prior: Prior, budgets: dict[float, float], report: Callable[[str], None]
    ) -> None:
        self.voters = workload.voters
        self.prior = prior
        self.budgets = budgets
        self.report = report
        self.errors: dict[float, float] = {}

    def solve(self, order: float, *, finely: bool) -> NoiseFunction:
        self.report(f"Rényi: order {order:.6g}")
        options = FINE if finely else COARSE
        return optimize_under_renyi(self.voters, self.prior, order, self.budgets[order], options=options).gamma

    def best_order(self) -> float:
        orders = list(self.budgets)
        step = max(1, len(orders) // FIRST_ORDERS)
        best = min(orders[::step], key=self._error)
        while step > 1:
            step = (step + 1) // 2
            place = orders.index(best)
            best = min(orders[max(0, place - step) : place + step + 1 : step], key=self._error)
        return best

    def _error(self, order: float) -> float:
        if order not in self.errors:
            self.errors[order] = self.solve(order, finely=False).expected_error(self.prior)
        return self.errors[order]


def _within_budget(candidate: Candidate) -> Candidate:
    """Scale γ down, by a hair and then by ever more, until the accountant admits all queries."""
    gamma, problem = candidate.table.gamma, candidate.table.problem
    for attempt in range(SCALINGS + 1):
        if candidate.is_within_budget:
            return candidate
        if attempt == SCALINGS:
            break
        table = certify(problem, gamma.scaled(1.0 - 10.0 ** (attempt - SCALINGS)))
        candidate = replace(candidate, table=table)
    raise PlanError("the optimum under a Rényi budget could not be scaled into the total budget")
