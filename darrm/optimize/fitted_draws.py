"""The γ with the smallest expected error over draws of a prior, absolute value included [D, Eq. 2]."""

import time
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from darrm.laws.sampled_error import differences, number_of_draws
from darrm.optimize.noise_functions import Found, left_of, rows_in, solve, tie_break_of
from darrm.optimize.privacy_oracle import PrivacyOracle
from darrm.optimize.question import Question
from darrm.probability import Array
from darrm.proof.error_bound import lower_bound
from darrm.proof.optimality import Optimality
from darrm.proof.table import Table, certify
from lp_models.epigraph import EpigraphOracle, SampledError
from lp_models.gamma_lp import sampled_error_program
from lp_models.options import SolveOptions
from lp_models.program import Status
from lp_models.row_generation import Result, minimize_with_rows

_FIT_SEED = 20_250_503  # of the draws that are fitted; estimates use another


class FittedDraws:
    """The program whose objective is an average over draws."""

    def answers(self, question: Question) -> bool:
        """Whether the expected error is asked for and is not linear."""
        return question.problem.has_noise_function and question.solver == "production" and question.is_sampled

    def table(self, question: Question) -> Table:
        """Solve for the mean of the draws, then turn those that it has on the wrong side; prove what came out."""
        problem, prior, K = question.problem, question.belief, question.problem.voters.K
        count = number_of_draws(K, question.draws)
        generator = np.random.default_rng(_FIT_SEED) if question.rng is None else question.rng
        sampled = SampledError(differences(prior.probabilities(K, count, rng=generator)))
        oracle = PrivacyOracle(problem.for_certain, question.of_shape)
        result, weights = _fitted(oracle, sampled, question)
        found = Found.of(oracle, result)
        table, shape = certify(problem, found.gamma), question.of_shape.value
        value, status = sampled.value(table.gamma.half), found.status.value
        bound = min(value, lower_bound(problem.for_certain, weights, shape, found.multipliers))
        held_out = table.gamma.estimate_error(prior, draws=count, rng=generator)
        # without multipliers: no file keeps the draws, which their bound needs
        optimality = Optimality(prior, shape, "expected-error", value, bound, status, held_out)
        return table.with_optimality(optimality, {**found.provenance, "draws fitted": str(count)})


def _fitted(oracle: PrivacyOracle, sampled: SampledError, question: Question) -> tuple[Result, Array]:
    # few γ turn draws enough to matter: for many voters the sampled error costs what the linear one does
    started, options, weights = time.perf_counter(), question.settings, sampled.weights
    result = solve(oracle, weights, question)
    if result.status not in {Status.OPTIMAL, Status.STALLED}:
        return result, weights
    value = sampled.value(oracle.shape.variables_to_gamma(result.point))
    if value - result.bound <= max(options.gap * value, options.floor):
        return result, weights
    result = _fit_turned_draws(oracle, sampled, result, left_of(options, started), question)
    tangents = [(y, tangent) for y, tangent in result.multipliers if isinstance(tangent, np.ndarray)]
    return result, _tangent_weights(sampled, tangents)


def _fit_turned_draws(
    oracle: PrivacyOracle,
    sampled: SampledError,
    found: Result,
    options: SolveOptions,
    question: Question,
) -> Result:
    epigraph = EpigraphOracle(oracle, sampled, oracle.shape)
    gamma = oracle.shape.variables_to_gamma(found.point)
    known = oracle.beginning(rows_in(found), found.point if np.isfinite(found.value) else None)
    start = epigraph.lifted(known, [sampled.tangent(np.zeros_like(gamma)), sampled.tangent(gamma)])
    program = sampled_error_program(sampled.linear, sampled.share, oracle.shape)
    tie_break = tie_break_of(sampled.weights, oracle)
    extra = None if tie_break is None else np.append(tie_break, 0.0)
    result = minimize_with_rows(program, epigraph, options, tie_break=extra, report=question.report, start=start)
    rounds, generated = found.rounds + result.rounds, found.rows_generated + result.rows_generated
    return replace(result, rounds=rounds, rows_generated=generated)


def _tangent_weights(sampled: SampledError, tangents: Sequence[tuple[float, Array]]) -> Array:
    """Return w with ½ Σ_l w_l (1 − γ(l)) ≤ F(γ) for every γ: the linear part, and tangents with shares Σ y ≤ s of θ."""
    most = sampled.share / max(sampled.share, sum(y for y, _ in tangents), np.finfo(np.float64).tiny)
    weights: Array = sampled.linear + 2.0 * most * sum((y * t for y, t in tangents), np.zeros(sampled.linear.size))
    return weights
