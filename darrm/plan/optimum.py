"""The best private plurality for a workload, where its program is small enough to be solved many times.

One query takes the whole budget. For many, two ways are tried as for two classes (`darrm.plan.search`): the optimum of
one query for the largest ε whose charges the accountant admits, its exact curve and profile among them; and the optimum
under a Rényi budget, for the order at which it is right most often. What is returned is a certified table, and the
accountant admits it.
"""

from collections.abc import Callable
from decimal import ROUND_CEILING
from fractions import Fraction
from functools import cache

from darrm.errors import PlanError
from darrm.laws.partitions import partitions_of
from darrm.laws.plurality_law import PluralityLaw
from darrm.laws.priors import Prior
from darrm.losses.charges import Charge
from darrm.mechanisms.release import Release
from darrm.optimize.plurality import FINE, optimize_plurality, optimize_plurality_under_renyi
from darrm.optimize.under_renyi import COARSE
from darrm.plan.budget import account_of
from darrm.plan.candidate import rounded
from darrm.plan.plurality import PluralityCandidate, largest_rate
from darrm.plan.under_renyi import SCALINGS, best_order, budgets_of
from darrm.privacy import PrivacyParams
from darrm.problem import Problem, Workload
from darrm.proof.charge import charge_of
from darrm.proof.table import Table, certify

NAME = "optimum"
MOST_TERMS = 4000  # of the program: a solution takes a second, and a plan some twenty of them
LARGEST_EPSILON = 15.0  # of one query; beyond, δ is rounding


def optimum(workload: Workload, prior: Prior, report: Callable[[str], None]) -> PluralityCandidate:
    """Find the table that is right most often within the budget; `PlanError` or `ValueError` if there is none."""
    voters = workload.voters
    if not voters.are_plain:
        raise PlanError("its table is proved for voters that are not private")
    terms = partitions_of(voters.K, workload.classes).pairs(voters.reached).pair.size
    if terms > MOST_TERMS:
        raise PlanError(f"its program has {terms:,} terms, and up to {MOST_TERMS:,} are solved for a plan")
    found, reasons = [], []
    for way in (_one_query,) if workload.queries == 1 else (_per_query, _under_renyi):
        try:
            found.append(way(workload, prior, report))
        except (PlanError, ValueError) as error:
            reasons.append(str(error))
    if not found:
        raise PlanError("; ".join(reasons))
    return max(found, key=lambda candidate: candidate.share_right.value)


def _one_query(workload: Workload, prior: Prior, report: Callable[[str], None]) -> PluralityCandidate:
    report(f"{NAME}: one query")
    problem = Problem(workload.voters, workload.total, workload.classes)
    return _candidate(workload, prior, optimize_plurality(problem, prior=prior))


def _per_query(workload: Workload, prior: Prior, report: Callable[[str], None]) -> PluralityCandidate:
    """Take the largest ε of one query that the accountant admits, half of its share of δ being its own."""
    delta = rounded(workload.total.exact_delta / (2 * workload.queries))

    @cache
    def table(epsilon: float) -> Table:
        report(f"{NAME}: epsilon {epsilon:.4g} for each query")
        problem = Problem(workload.voters, PrivacyParams(rounded(epsilon), delta), workload.classes)
        return optimize_plurality(problem, prior=prior)

    def charge(epsilon: float) -> Charge:
        return charge_of(table(min(epsilon, LARGEST_EPSILON)))

    start = min(LARGEST_EPSILON, workload.total.epsilon / workload.queries**0.5)
    return _candidate(workload, prior, table(min(largest_rate(workload, charge, start), LARGEST_EPSILON)))


def _under_renyi(workload: Workload, prior: Prior, report: Callable[[str], None]) -> PluralityCandidate:
    """Search the accountant's orders, then mix with a random answer until the accountant admits all queries."""
    voters, classes, total = workload.voters, workload.classes, workload.total
    if total.exact_delta == 0:
        raise PlanError("a Rényi budget needs delta > 0")
    budgets = budgets_of(workload)
    if not budgets:
        raise PlanError(f"no Rényi order leaves a budget for {total}")

    def wrong(order: float) -> float:
        report(f"{NAME}: order {order:.6g}")
        found = optimize_plurality_under_renyi(voters, classes, prior, order, budgets[order], options=COARSE)
        return -found.value

    order = best_order(budgets, cache(wrong))
    law = optimize_plurality_under_renyi(voters, classes, prior, order, budgets[order], options=FINE).law
    for share in (0.0, *(10.0**power for power in range(-SCALINGS, 0))):
        table = _certified(workload, law.mixed(share) if share else law)
        if account_of(workload, charge_of(table)).admits(total):
            return _candidate(workload, prior, table, order=order)
    raise PlanError("the optimum under a Rényi budget could not be mixed into the total budget")


def _certified(workload: Workload, law: PluralityLaw) -> Table:
    """Certify a law for an (ε, δ) that one query satisfies: δ is half of its share of the total."""
    delta = rounded(workload.total.exact_delta / (2 * workload.queries))
    unproved = certify(
        Problem(workload.voters, PrivacyParams(Fraction(int(LARGEST_EPSILON)), delta), workload.classes), law
    )
    profile = unproved.profile
    if profile is None:
        raise PlanError("nothing bounds one query")
    epsilon = rounded(max(profile.epsilon_at(float(delta)), 1e-6), ROUND_CEILING)
    return certify(Problem(workload.voters, PrivacyParams(epsilon, delta), workload.classes), law)


def _candidate(workload: Workload, prior: Prior, table: Table, **settings: float) -> PluralityCandidate:
    target = table.problem.target
    return PluralityCandidate(
        method=NAME,
        workload=workload,
        aggregator=Release(table),
        prior=prior,
        settings={**settings, "epsilon": target.epsilon, "delta": target.delta},
        law=table.plurality.probabilities,
        family=None,
    )
