"""One solve, measured in a separate process, for `python -m experiments.scaling`."""

import math
import multiprocessing
import resource
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict

from darrm import priors
from darrm.majority import kernels
from darrm.majority.corners import full_set_size, ratio_of
from darrm.majority.dominating import DominatingFamily
from darrm.optimize import SolveOptions
from darrm.optimize.optimizer import optimize_table
from darrm.privacy import PrivacyParams
from darrm.problem import Problem, Voters
from experiments.scaling.page import EPSILON, GAP, LARGE_GAP, LARGEST_TO_GAP, Case, Measurement

WARM_UP = 101  # voters of the solve before the measured one, at most


def measure(case: Case, time_limit: float) -> Measurement:
    """Solve one case in this process and measure it."""
    problem = Problem.from_allowance(Voters(case.K, PrivacyParams(EPSILON, case.each_delta)), case.m)
    options = SolveOptions(gap=GAP if case.K <= LARGEST_TO_GAP else LARGE_GAP, time_limit=time_limit)
    prior = priors.parse(case.prior)
    # imports, compiled code and first calls are not measured
    kernels.WORK.nanoseconds = kernels.LOADING if case.loops == "compiled" else -math.inf
    warm_up = Problem.from_allowance(Voters(min(case.K, WARM_UP), problem.voters.each), case.m)
    optimize_table(warm_up, prior=prior, shape=case.shape, solver=case.solver)
    started = time.perf_counter()
    table = optimize_table(problem, prior=prior, shape=case.shape, solver=case.solver, options=options)
    seconds = time.perf_counter() - started
    family = DominatingFamily(problem.voters)
    ratio = ratio_of(problem.target.exact_epsilon)
    family.maxima(table.gamma.half, ratio)  # fills the caches
    started = time.perf_counter()
    family.maxima(table.gamma.half, ratio)
    separation = time.perf_counter() - started
    optimality = table.optimality
    if optimality is None:
        raise ValueError("an optimized table says how good it is")
    provenance = table.provenance
    return Measurement(
        **asdict(case),
        seconds=seconds,
        separation_seconds=separation,
        rows_full_set=full_set_size(problem.voters),
        rows_used=int(provenance.get("rows generated", provenance.get("rows written", "0"))),
        rounds=int(provenance.get("rounds", "1")),
        expected_error=optimality.value,
        bound=optimality.bound,
        relative_gap=optimality.gap / optimality.value if optimality.value > 0.0 else 0.0,
        status=optimality.status,
        method=table.certificate.method,
        peak_megabytes=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024.0,
    )


def measure_apart(case: Case, time_limit: float) -> Measurement:
    """Solve one case in a new process."""
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(max_workers=1, mp_context=context) as pool:
        return pool.submit(measure, case, time_limit).result()
