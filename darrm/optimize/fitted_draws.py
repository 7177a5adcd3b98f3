"""Find the γ with the smallest expected error over draws of a prior, absolute value included [D, Eq. 2]."""

import time
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from darrm.majority.certify import lower_bound
from darrm.majority.noise_function import differences, number_of_draws
from darrm.numerics import Array
from darrm.optimize.noise_functions import LEAST_SIZE, GammaProgram, left_of, made_by, rows_in
from darrm.optimize.privacy_oracle import PrivacyOracle
from darrm.optimize.request import Request, in_range
from darrm.table.optimality import Optimality
from darrm.table.table import Table, certify
from lp_models.gamma_lp import EpigraphOracle, SampledError, sampled_error_program
from lp_models.options import SolveOptions
from lp_models.program import Status
from lp_models.row_generation import Result, minimize_with_rows

_FIT_SEED = 20_250_503  # for the draws in the objective; estimates use another seed


def fit_draws(request: Request) -> Table:
    """Solve for the mean of the draws, then for the draws that change sign, and certify the result."""
    problem, prior, K = request.problem, request.prior, request.problem.voters.K
    count = number_of_draws(K, request.draws)
    generator = np.random.default_rng(_FIT_SEED) if request.rng is None else request.rng
    sampled = SampledError(differences(prior.probabilities(K, count, rng=generator)))
    nearby, factor = in_range(problem.conditional_on_inclusion, LEAST_SIZE)
    program = GammaProgram(PrivacyOracle(nearby, request.shape), sampled.weights, request.report)
    result, weights = _fitted(program, sampled, request)
    gamma, multipliers = program.proposal(result, problem, factor)
    table, shape, status = certify(problem, gamma), request.shape.value, result.status.value
    value = sampled.value(table.gamma.half)
    bound = min(value, lower_bound(problem.conditional_on_inclusion, weights, shape, multipliers))
    held_out = table.gamma.estimate_error(prior, draws=count, rng=generator)
    # without multipliers: their bound needs the draws, which no file keeps
    optimality = Optimality(prior, shape, "expected-error", value, bound, status, held_out)
    return table.with_optimality(optimality, {**made_by(result), "draws fitted": str(count)})


def _fitted(program: GammaProgram, sampled: SampledError, request: Request) -> tuple[Result, Array]:
    # few γ change the sign of enough draws to matter: with many voters the linear solve is usually enough
    started, options = time.perf_counter(), request.options
    result = program.solve(options, request.rows_of_start)
    if result.status not in {Status.OPTIMAL, Status.STALLED}:
        return result, sampled.weights
    value = sampled.value(program.shape.variables_to_gamma(result.point))
    if value - result.bound <= max(options.gap * value, options.floor):
        return result, sampled.weights
    result = _fit_turned_draws(program, sampled, result, left_of(options, started))
    tangents = [(y, tangent) for y, tangent in result.multipliers if isinstance(tangent, np.ndarray)]
    return result, _tangent_weights(sampled, tangents)


def _fit_turned_draws(program: GammaProgram, sampled: SampledError, first: Result, options: SolveOptions) -> Result:
    oracle, shape = program.oracle, program.shape
    epigraph = EpigraphOracle(oracle, sampled, shape)
    gamma = shape.variables_to_gamma(first.point)
    known = oracle.beginning(rows_in(first), first.point if np.isfinite(first.value) else None)
    start = epigraph.lifted(known, [sampled.tangent(np.zeros_like(gamma)), sampled.tangent(gamma)])
    lifted = sampled_error_program(sampled.linear, sampled.share, shape)
    tie_break = program.tie_break()
    extra = None if tie_break is None else np.append(tie_break, 0.0)
    result = minimize_with_rows(lifted, epigraph, options, tie_break=extra, report=program.report, start=start)
    rounds, generated = first.rounds + result.rounds, first.rows_generated + result.rows_generated
    return replace(result, rounds=rounds, rows_generated=generated)


def _tangent_weights(sampled: SampledError, tangents: Sequence[tuple[float, Array]]) -> Array:
    """Return w with ½ Σ_l w_l (1 − γ(l)) ≤ F(γ) for every γ: linear part plus tangents with Σ y ≤ s, the share of θ."""
    most = sampled.share / max(sampled.share, sum(y for y, _ in tangents), np.finfo(np.float64).tiny)
    weights: Array = sampled.linear + 2.0 * most * sum((y * t for y, t in tangents), np.zeros(sampled.linear.size))
    return weights
