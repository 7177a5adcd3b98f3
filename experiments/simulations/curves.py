"""The noise functions of the paper's simulations, each certified, and their errors over independent draws."""

from collections.abc import Iterator

import numpy as np

from darrm.loss.composition import compose_general
from darrm.majority import baselines
from darrm.majority.noise_function import differences, errors_of, summarize
from darrm.numerics import Array
from darrm.optimize.optimizer import optimize_table
from darrm.problem import Problem, Voters
from darrm.table.table import Table, certify
from experiments.pages import Row
from experiments.simulations import settings
from experiments.simulations.settings import Panel

OPTIMAL, TRUE, MONOTONE = "γ_opt", "γ_true (ours)", "γ_mono (ours)"
OPTIMAL_U, OPTIMAL_P, TRUE_P = "γ_opt-U", "γ_opt-P", "γ_true-P (ours)"
SUB, DOUBLE_SUB, CONSTANT = "γ_Sub", "γ_DSub", "γ_const"
BEST_CONSTANT = "γ_const* (ours)"  # by the best composition instead of the paper's


def figure_data(figure: str) -> Row:
    """Compute one figure as plain data."""
    return {
        "figure": figure,
        "seed": settings.SEED,
        "panels": [_panel_data(figure, panel) for panel in settings.PANELS[figure]()],
    }


def table_3() -> list[Row]:
    """Compute the rows of Table 3, with the printed digits beside them."""
    rows = []
    everyone = compose_general(settings.APPROXIMATE, settings.COMPOSED_VOTERS, settings.DELTA_PRIME)
    for panel in settings.composed_panels():
        problem, printed = panel.problem, settings.PRINTED_TABLE_3[panel.sampled]
        values = {
            "m": problem.m,
            "tau": everyone.epsilon / problem.voters.each.epsilon,
            "lambda": everyone.delta,
            "m epsilon": problem.target.epsilon,
            "delta": problem.target.delta,
        }
        agrees = tuple(f"{value:.4f}" for value in values.values()) == printed
        rows.append({"M": panel.sampled, **values, "printed": list(printed), "agrees": agrees})
    return rows


def _panel_data(figure: str, panel: Panel) -> Row:
    """Compute every method's γ as certified, what it was scaled with, its gap, its exact surrogate and its errors."""
    problem = panel.problem
    tables = dict(_tables(figure, panel))
    drawn = _draws(figure, problem.voters.K)
    first = next(iter(tables.values())).gamma.half
    curves = [
        {
            "name": name,
            "gamma": [float(value) for value in table.gamma.full],
            "scale": table.certificate.scale,
            "surrogate": table.gamma.expected_error(settings.SURROGATE),
            "gap": None if table.optimality is None else table.optimality.gap,
            "errors": [_error(actual, table.gamma.half, first, rows) for actual, rows in drawn.items()],
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
        "curves": curves,
    }


def _error(actual: str, half: Array, first: Array, rows: Array) -> Row:
    """Estimate a method's error under one law, and its excess over the first curve's on the same draws."""
    own = errors_of(half, rows)
    estimate, excess = summarize(own), summarize(own - errors_of(first, rows))
    return {
        "actual": actual,
        "draws": estimate.draws,
        "mean": estimate.mean,
        "standard_error": estimate.standard_error,
        "excess": excess.mean,
        "excess_standard_error": excess.standard_error,
    }


def _draws(figure: str, K: int) -> dict[str, Array]:
    """Draw K probabilities many times for each law; all methods meet the same draws."""
    rng = np.random.default_rng(settings.SEED)
    laws = settings.ACTUALS[figure].items()
    return {name: differences(law.probabilities(K, settings.DRAWS[K], rng=rng)) for name, law in laws}


def _tables(figure: str, panel: Panel) -> Iterator[tuple[str, Table]]:
    problem = panel.problem
    if figure in settings.WITH_TWO_PRIORS:
        yield OPTIMAL_U, optimize_table(problem, prior=settings.SURROGATE)
        yield OPTIMAL_P, optimize_table(problem, prior=settings.DECIDED_SURROGATE)
    else:
        yield OPTIMAL, optimize_table(problem, prior=settings.SURROGATE)
    # the majority of M voters, whatever the target is called
    drawn = Problem.from_allowance(Voters(problem.voters.K, problem.voters.each), panel.sampled)
    yield SUB, certify(problem, baselines.subsampling(drawn))
    if figure in settings.WITH_DOUBLE_SUBSAMPLING:
        yield DOUBLE_SUB, certify(problem, baselines.double_subsampling(problem))
    yield CONSTANT, certify(problem, baselines.randomized_response(problem, panel.composed))
    yield BEST_CONSTANT, certify(problem, baselines.randomized_response(problem))
    yield TRUE, optimize_table(problem, prior=settings.UNIFORM, objective="expected-error")
    if figure in settings.WITH_TWO_PRIORS:
        yield TRUE_P, optimize_table(problem, prior=settings.DECIDED, objective="expected-error")
    yield MONOTONE, optimize_table(problem, prior=settings.SURROGATE, shape="monotone")
