"""Certify the noise functions of the paper's simulations, and estimate their errors over independent draws."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np

from darrm.loss.composition import compose_general, compose_simple
from darrm.majority import baselines
from darrm.majority.noise_function import compute_errors, differences, summarize
from darrm.numerics import Array
from darrm.optimize.optimizer import optimize_table
from darrm.priors import Independent, Prior, TwoSided
from darrm.privacy import PrivacyParams
from darrm.problem import Problem, Voters
from darrm.table.table import Table, certify
from experiments.pages import Row

PURE = PrivacyParams("0.1")
APPROXIMATE = PrivacyParams("0.1", "1e-5")
SEED = 20_250_606  # of the draws of estimated errors
DRAWS = {11: 100_000, 35: 20_000, 101: 10_000}

SURROGATE = Independent(0.5, 1.0)  # what [D, Eq. 202] integrates over instead of T_U
UNIFORM = Independent(0.0, 1.0)  # T_U
DECIDED_SURROGATE = Independent(0.7, 1.0)  # what [D, Eq. 204] integrates over instead of T_P
DECIDED = TwoSided(0.7, 1.0)  # T_P

# Table 3 and Figure 6
COMPOSED_VOTERS = 35
COMPOSED_DRAWS = (10, 13, 15, 20)  # M
DELTA_PRIME = 0.1
# the digits that [D, Table 3] prints
PRINTED_TABLE_3 = {
    10: ("6.4521", "14.0328", "0.1003", "0.6452", "0.1001"),
    13: ("7.5742", "14.0328", "0.1003", "0.7574", "0.1001"),
    15: ("8.2708", "14.0328", "0.1003", "0.8271", "0.1001"),
    20: ("9.8823", "14.0328", "0.1003", "0.9882", "0.1002"),
}


@dataclass(frozen=True)
class Panel:
    problem: Problem
    title: str
    sampled: int  # M: γ_Sub takes the majority of M voters
    composed: PrivacyParams  # (τε, λ) of the majority of all voters, for the paper's γ_const


def make_allowance_panels(K: int, values: tuple[int, ...], each: PrivacyParams) -> tuple[Panel, ...]:
    """Make one panel for every m, with δ = 1 − (1 − Δ)^m and γ_const by simple composition."""
    all_voters = compose_simple(each, K)
    return tuple(Panel(Problem.from_allowance(Voters(K, each), m), f"K = {K}, m = {m}", m, all_voters) for m in values)


def make_composed_panels() -> tuple[Panel, ...]:
    """Make the panels of Figure 6: the target is the general composition of M voters [D, D.1.1]."""
    K, all_voters = COMPOSED_VOTERS, compose_general(APPROXIMATE, COMPOSED_VOTERS, DELTA_PRIME)
    panels = []
    for draws in COMPOSED_DRAWS:
        problem = Problem(Voters(K, APPROXIMATE), compose_general(APPROXIMATE, draws, DELTA_PRIME))
        panels.append(Panel(problem, f"K = {K}, M = {draws}, m = {problem.m:.4f}", draws, all_voters))
    return tuple(panels)


PANELS: dict[str, Callable[[], tuple[Panel, ...]]] = {
    "2": partial(make_allowance_panels, 11, (1, 3, 5, 7), APPROXIMATE),
    "6": make_composed_panels,
    "7": partial(make_allowance_panels, 11, (1, 3, 5, 7, 9, 11), PURE),
    "8": partial(make_allowance_panels, 101, (10, 20, 30, 40, 60, 80), PURE),
    "9": partial(make_allowance_panels, 11, (3, 5), PURE),
}
# the distributions of p_i in the plots of errors
UNIFORM_VOTERS: dict[str, Prior] = {"p_i ~ U[0, 1]": UNIFORM}
ACTUALS = dict.fromkeys(("2", "6", "7", "8"), UNIFORM_VOTERS) | {
    "9": UNIFORM_VOTERS
    | {"p_i = 0.5": Independent(0.5, 0.5), "p_i ~ U[0, 0.1]": Independent(0.0, 0.1), "p_i ~ T_P": DECIDED}
}
WITH_DOUBLE_SUBSAMPLING = frozenset({"7", "8"})  # the paper's theorem needs Δ = δ = 0
WITH_TWO_PRIORS = frozenset({"9"})


OPTIMAL, TRUE, MONOTONE = "γ_opt", "γ_true (ours)", "γ_mono (ours)"
OPTIMAL_U, OPTIMAL_P, TRUE_P = "γ_opt-U", "γ_opt-P", "γ_true-P (ours)"
SUB, DOUBLE_SUB, CONSTANT = "γ_Sub", "γ_DSub", "γ_const"
BEST_CONSTANT = "γ_const* (ours)"  # by the best composition instead of the paper's
FLAT = "γ_flat (ours)"  # the largest private constant


def compute_figure(figure: str) -> Row:
    return {"figure": figure, "seed": SEED, "panels": [_compute_panel(figure, panel) for panel in PANELS[figure]()]}


def compute_table_3() -> list[Row]:
    """Compute the rows of Table 3, with the printed digits."""
    rows = []
    for panel in make_composed_panels():
        problem, printed = panel.problem, PRINTED_TABLE_3[panel.sampled]
        values = {
            "m": problem.m,
            "tau": panel.composed.epsilon / problem.voters.each.epsilon,
            "lambda": panel.composed.delta,
            "m epsilon": problem.target.epsilon,
            "delta": problem.target.delta,
        }
        agrees = tuple(f"{value:.4f}" for value in values.values()) == printed
        rows.append({"M": panel.sampled, **values, "printed": list(printed), "agrees": agrees})
    return rows


def _compute_panel(figure: str, panel: Panel) -> Row:
    """Compute every method's certified γ, its scale, its gap, its exact surrogate and its errors."""
    problem = panel.problem
    tables = dict(_make_tables(figure, panel))
    rng = np.random.default_rng(SEED)
    draws = {  # all methods use the same draws
        name: differences(law.probabilities(problem.voters.K, DRAWS[problem.voters.K], rng=rng))
        for name, law in ACTUALS[figure].items()
    }
    first_gamma = next(iter(tables.values())).gamma.half
    curves = [
        {
            "name": name,
            "gamma": [float(value) for value in table.gamma.full],
            "scale": table.certificate.scale,
            "worst_cost": table.certificate.worst_cost,
            "surrogate": table.gamma.expected_error(SURROGATE),
            "gap": None if table.optimality is None else table.optimality.gap,
            "errors": [_estimate_error(actual, table.gamma.half, first_gamma, rows) for actual, rows in draws.items()],
        }
        for name, table in tables.items()
    ]
    return {
        "title": panel.title,
        "K": problem.voters.K,
        "m": problem.m,
        "epsilon": problem.voters.each.epsilon,
        "each_delta": problem.voters.each.delta,
        "delta": problem.target.delta,
        "budget": problem.budget,
        "curves": curves,
    }


def _estimate_error(actual: str, half: Array, first: Array, rows: Array) -> Row:
    """Estimate a method's error under one law, and its excess over the first method's on the same draws."""
    errors = compute_errors(half, rows)
    estimate, excess = summarize(errors), summarize(errors - compute_errors(first, rows))
    return {
        "actual": actual,
        "draws": estimate.draws,
        "mean": estimate.mean,
        "standard_error": estimate.standard_error,
        "excess": excess.mean,
        "excess_standard_error": excess.standard_error,
    }


def _make_tables(figure: str, panel: Panel) -> Iterator[tuple[str, Table]]:
    problem = panel.problem
    if figure in WITH_TWO_PRIORS:
        yield OPTIMAL_U, optimize_table(problem, prior=SURROGATE)
        yield OPTIMAL_P, optimize_table(problem, prior=DECIDED_SURROGATE)
    else:
        yield OPTIMAL, optimize_table(problem, prior=SURROGATE)
    # the majority of M voters; m of the target can differ from M
    sampled_problem = Problem.from_allowance(Voters(problem.voters.K, problem.voters.each), panel.sampled)
    yield SUB, certify(problem, baselines.subsampling(sampled_problem))
    if figure in WITH_DOUBLE_SUBSAMPLING:
        yield DOUBLE_SUB, certify(problem, baselines.double_subsampling(problem))
    yield CONSTANT, certify(problem, baselines.randomized_response(problem, panel.composed))
    yield BEST_CONSTANT, certify(problem, baselines.best_randomized_response(problem))
    yield FLAT, certify(problem, baselines.truth(problem))
    yield TRUE, optimize_table(problem, prior=UNIFORM)
    if figure in WITH_TWO_PRIORS:
        yield TRUE_P, optimize_table(problem, prior=DECIDED)
    yield MONOTONE, optimize_table(problem, prior=SURROGATE, shape="monotone")
