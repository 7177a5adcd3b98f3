"""Noise functions that are not optimised for the workload: subsampling, randomised response, the paper's DaRRM.

Each is certified for the largest target of one query whose Q charges the accountant admits, like our own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache

import numpy as np

from darrm.errors import PlanError
from darrm.gamma import baselines
from darrm.gamma.noise_function import NoiseFunction
from darrm.gamma.priors import Prior
from darrm.plan.candidate import Candidate, rounded_down
from darrm.plan.option import ReleaseOption
from darrm.plan.per_query import best_per_query
from darrm.probability.bisection import last_allowed, last_allowed_integer
from darrm.problem import MajorityProblem, Workload
from darrm.proof.table import certify

BISECTIONS = 24


def subsampled(
    workload: Workload, prior: Prior, name: str, proposal: Callable[[MajorityProblem], NoiseFunction]
) -> ReleaseOption:
    """Take the largest integer m whose γ_Sub or γ_DSub composes within the budget [D, Lemma 3.1, Theorem 4.1].

    Raises
    ------
    PlanError
        If not even m = 1 does.
    """

    @cache
    def trial(m: int) -> Candidate | None:
        return _subsampled_at(workload, prior, name, proposal, m)

    def fits(m: int) -> bool:
        candidate = trial(m)
        return candidate is not None and candidate.is_within_budget

    largest = last_allowed_integer(fits, inside=0, outside=workload.voters.K + 1)
    found = trial(largest) if largest else None
    if found is None:
        raise PlanError(f"not even the majority of one voter (m = 1) composes within {workload.total}")
    return replace(found.option(), name=name)


def _subsampled_at(
    workload: Workload, prior: Prior, name: str, proposal: Callable[[MajorityProblem], NoiseFunction], m: int
) -> Candidate | None:
    problem = MajorityProblem.from_allowance(workload.voters, m)
    if problem.target.exact_epsilon > workload.total.exact_epsilon * workload.queries:
        return None
    return Candidate(name, workload, certify(problem, proposal(problem)), prior, {"m": float(m)})


def randomized_response(workload: Workload, prior: Prior) -> ReleaseOption:
    """Tell the truth with one probability whatever the votes; the largest that composes within the budget.

    Raises
    ------
    PlanError
        If none was found.
    """
    each, total = workload.voters.each, workload.total
    if workload.queries == 1 and each.is_private and total.exact_epsilon < each.exact_epsilon:
        raise PlanError("the budget is smaller than one voter's own")
    if each.is_private and (workload.queries > 1 or total.exact_epsilon > each.exact_epsilon * workload.voters.K):
        # any target that admits γ = 1 will do: the accountant looks at the constant itself
        problem = MajorityProblem.from_allowance(workload.voters, workload.voters.K)
    else:
        problem = workload.problem(total)
    largest = certify(problem, NoiseFunction(workload.voters.K, np.ones(problem.voters.half_size)))
    truth = float(largest.gamma.half[0])

    def trial(truth: float) -> Candidate:
        return _constant(workload, prior, problem, float(rounded_down(truth)))

    best = _constant(workload, prior, problem, truth)
    if not best.is_within_budget:
        truth = last_allowed(lambda trial_truth: trial(trial_truth).is_within_budget, 0.0, truth, steps=BISECTIONS)
        if truth == 0.0:
            raise PlanError("no constant probability of the truth composes within the budget")
        best = trial(truth)
    return replace(best.option(), name="randomised response")


def _constant(workload: Workload, prior: Prior, problem: MajorityProblem, truth: float) -> Candidate:
    gamma = NoiseFunction(workload.voters.K, np.full(problem.voters.half_size, truth))
    return Candidate("constant", workload, certify(problem, gamma), prior, {"gamma": truth})


def darrm_of_the_paper(workload: Workload, prior: Prior) -> ReleaseOption:
    """DaRRM as [D] has it: one person may reach all K voters, and queries compose by their (ε, δ)."""
    return replace(
        best_per_query(
            replace(workload, voters=replace(workload.voters, overlap=None)), prior, lambda _: None
        ).option(),
        name="DaRRM of the paper",
    )


def rivals_of_tables(workload: Workload, prior: Prior) -> tuple[list[ReleaseOption], list[tuple[str, str]]]:
    """Collect those that apply, and the reasons of those that do not."""
    found, absent = [], []
    ways: dict[str, Callable[[], ReleaseOption]] = {
        "subsampling": lambda: subsampled(workload, prior, "subsampling", baselines.subsampling),
        "double subsampling": lambda: subsampled(workload, prior, "double subsampling", baselines.double_subsampling),
        "DaRRM of the paper": lambda: darrm_of_the_paper(workload, prior),
        "randomised response": lambda: randomized_response(workload, prior),
    }
    for name, way in ways.items():
        if not workload.voters.each.is_private and name != "randomised response":
            absent.append((name, "it rests on the voters' own privacy, which is not counted here"))
            continue
        try:
            found.append(way())
        except PlanError as error:
            absent.append((name, str(error)))
    return found, absent
