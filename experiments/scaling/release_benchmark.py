"""How many labels a second leave, with the operating system's randomness, on one core.

``OMP_NUM_THREADS=1 python -m experiments.scaling.release_benchmark`` times `DaRRM.release` from unchecked votes to
labels for several types of votes, next to plain ``rng.random() < p`` coins (not exact, for comparison).
"""

import os
import sys
import timeit
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from darrm.optimize.optimizer import optimize_gamma
from darrm.privacy import PrivacyParams
from darrm.problem import MajorityProblem, Voters
from darrm.release.majority import DaRRM
from darrm.system.command_line import CommandLine, run

QUERIES = 1_000_000
ROUNDS = 5


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print."""
    parser = CommandLine(prog="python -m experiments.scaling.release_benchmark", description=str(__doc__))
    parser.add_argument("--K", type=int, default=11, metavar="INT", help="number of voters (default 11)")
    options = parser.parse_args(arguments)
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    problem = MajorityProblem.from_allowance(Voters(options.K, PrivacyParams("0.1", "1e-5")), 3)
    aggregator = DaRRM(optimize_gamma(problem))
    votes = np.random.default_rng(0).random((QUERIES, options.K)) < 0.75
    truth = np.array([float(aggregator.probability_of_one(ones)) for ones in range(options.K + 1)])
    generator = np.random.default_rng(1)
    cases: dict[str, Callable[[], object]] = {
        f"DaRRM, {dtype.__name__} votes": partial(aggregator.release, votes.astype(dtype))
        for dtype in (np.bool_, np.int64, np.float64)
    }
    cases["floating-point coins, bool votes"] = lambda: generator.random(QUERIES) < truth[votes.sum(axis=1)]
    print(f"K = {options.K}, one core, best of {ROUNDS} runs of {QUERIES:,} queries")
    for name, action in cases.items():
        seconds = min(timeit.repeat(action, number=1, repeat=ROUNDS))
        print(f"{name:34}{QUERIES / seconds / 1e6:8.2f} million labels a second")
    return 0


if __name__ == "__main__":
    sys.exit(run(main))
