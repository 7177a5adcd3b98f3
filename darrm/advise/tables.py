"""Noise functions that are not optimized for the workload: subsampling, randomized response, the paper's DaRRM.

Each is certified for a target of one query, and is the largest whose Q charges the accountant admits, like our own.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import cache

import numpy as np

from darrm.errors import PlanError
from darrm.laws import baselines
from darrm.laws.noise_function import NoiseFunction
from darrm.laws.priors import Prior
from darrm.plan.budget import counted
from darrm.plan.candidate import Candidate, rounded, smallest_target
from darrm.plan.option import ReleaseOption
from darrm.plan.per_query import best_per_query, largest_epsilon
from darrm.privacy import PrivacyParams
from darrm.probability.bisection import last_allowed, last_allowed_integer
from darrm.problem import Problem, Workload
from darrm.proof.table import Table, certify
from darrm.system.flags import python_of
from darrm.system.progress import StatusLine

BISECTIONS = 24


def subsampling(workload: Workload, prior: Prior) -> ReleaseOption:
    """Take the largest integer m whose γ_Sub composes within the budget [D, Lemma 3.1]."""
    return _subsampled(workload, prior, baselines.subsampling)


def double_subsampling(workload: Workload, prior: Prior) -> ReleaseOption:
    """Take the largest integer m whose γ_DSub composes within the budget [D, Theorem 4.1]."""
    return _subsampled(workload, prior, baselines.double_subsampling)


def darrm_of_the_paper(workload: Workload, prior: Prior) -> ReleaseOption:
    """DaRRM as [D] has it: one person may reach all K voters, and queries compose by their (ε, δ)."""
    _check_counted(workload)
    reaching_all = replace(workload, voters=replace(workload.voters, overlap=None))
    found = best_per_query(reaching_all, prior, StatusLine(enabled=False).show)
    return found.option(only_compared="it takes every person to reach all voters; plan asks how many one reaches")


def randomized_response(workload: Workload, prior: Prior) -> ReleaseOption:
    """Tell the truth with one probability whatever the votes; the largest that composes within the budget."""
    if workload.queries == 1:
        found = _constant_of_one(workload, prior)
    else:
        found = _constant_of_many(counted(workload), prior).restated(workload)
    truth = float(found.table.gamma.half[0])
    gamma = f"NoiseFunction({workload.voters.K}, [{truth!r}] * {workload.voters.half_size})"
    return found.option(instructions=_python(found.table, gamma))


def _check_counted(workload: Workload) -> None:
    """Raise `PlanError` where the voters' own privacy does not count a query at a time."""
    if not counted(workload).voters.each.is_private:
        raise PlanError("it rests on the voters' own privacy, which is not counted here")


def _subsampled(workload: Workload, prior: Prior, proposal: Callable[[Problem], NoiseFunction]) -> ReleaseOption:
    """Bisect for the largest integer m; `PlanError` if not even m = 1 composes within the budget."""
    _check_counted(workload)

    @cache
    def trial(m: int) -> Candidate | None:
        problem = Problem.from_allowance(workload.voters, m)
        if problem.target.exact_epsilon > workload.total.exact_epsilon * workload.queries:
            return None
        found = Candidate(proposal.__name__, workload, certify(problem, proposal(problem)), prior, {"m": float(m)})
        return found if found.is_within_budget else None

    largest = last_allowed_integer(lambda m: trial(m) is not None, inside=0, outside=workload.voters.K + 1)
    found = trial(largest) if largest else None
    if found is None:
        raise PlanError(f"not even the majority of one voter (m = 1) composes within {workload.total}")
    return found.option(instructions=_python(found.table, f"baselines.{proposal.__name__}(problem)"))


def _constant_of_one(workload: Workload, prior: Prior) -> Candidate:
    """One query may spend the whole budget, and K private voters never cost more than K of them."""
    each, total = workload.voters.each, workload.total
    alike = each.is_private and workload.voters.own is None
    if alike and (total.exact_epsilon < each.exact_epsilon or total.exact_delta < each.exact_delta):
        raise PlanError("the budget is smaller than one voter's own")
    problem = workload.problem(PrivacyParams(largest_epsilon(workload), total.exact_delta))
    table = certify(problem, _constant(workload, 1.0))
    return Candidate("constant", workload, table, prior, {"gamma": float(table.gamma.half[0])})


def _constant_of_many(workload: Workload, prior: Prior) -> Candidate:
    """Bisect for the largest constant γ, each certified for the smallest (ε, δ) that one query satisfies."""

    @cache
    def trial(truth: float) -> Candidate | None:
        truth = float(rounded(truth))
        gamma = _constant(workload, truth)
        try:
            table = certify(smallest_target(workload, gamma), gamma)
        except PlanError:  # it tells the truth too surely for any (ε, δ)
            return None
        found = Candidate("constant", workload, table, prior, {"gamma": truth})
        return found if found.is_within_budget else None

    most = 1.0
    if not workload.voters.each.is_private:  # what a query may tell that spends the whole budget alone
        most = float(certify(workload.problem(workload.total), _constant(workload, 1.0)).gamma.half[0])
    elif (found := trial(most)) is not None:
        return found
    found = trial(last_allowed(lambda truth: trial(truth) is not None, 0.0, most, steps=BISECTIONS))
    if found is None or found.settings["gamma"] == 0.0:
        raise PlanError("no constant probability of the truth composes within the budget")
    return found


def _constant(workload: Workload, truth: float) -> NoiseFunction:
    """γ(l) = truth for every l."""
    return NoiseFunction(workload.voters.K, np.full(workload.voters.half_size, truth))


def _python(table: Table, gamma: str) -> tuple[str, ...]:
    """Write the lines that build a table's aggregator again and release from it."""
    voters, target = table.problem.voters, table.problem.target
    goal = f'PrivacyParams("{target.epsilon_text}", "{target.delta_text}")'
    return (
        "from darrm import DaRRM, Problem, NoiseFunction, PrivacyParams, Voters, certify",
        "from darrm.laws import baselines",
        f"problem = Problem({python_of(voters)}, {goal})",
        f"Release(certify(problem, {gamma})).release(votes)",
    )
