"""How fast PATE's accounting is: 12,000 queries × 150 classes × 200 orders, against loops over the queries.

Votes are synthetic (seeded), of the size of the Glyph experiment of [P]: 5,000 teachers, 150 classes, 12,000 queries;
nothing here is a result about Glyph.

Two loops are timed on the first queries and scaled to all of them: the plain one, one query and one order at a time
with `math` as the formulas are printed; and one that calls the vectorized functions once for each query.
"""

import json
import math
import sys
import timeit
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from darrm.commands.command_line import check_output_files, run
from darrm.pate.theorem_6 import gaussian_renyi, log_q
from experiments.command_line import CommandLine
from experiments.pages import write_json
from experiments.pate.settings import GLYPH_SIZE, pate_like_votes

ORDERS = np.geomspace(1.5, 500.0, 200)
SIGMA = 100.0
LOOPED = 300  # queries that the slow loops are timed on
REPEATS = 5


def vectorized(counts: NDArray[np.int64], orders: NDArray[np.float64]) -> NDArray[np.float64]:
    """Total cost over the orders, all at once."""
    return np.asarray(gaussian_renyi(log_q(counts, SIGMA), SIGMA, orders).sum(axis=0))


def query_by_query(counts: NDArray[np.int64], orders: NDArray[np.float64]) -> NDArray[np.float64]:
    """Total cost, calling the vectorized functions once for each query."""
    total = np.zeros_like(orders)
    for row in counts:
        total += gaussian_renyi(log_q(row[np.newaxis], SIGMA), SIGMA, orders)[0]
    return total


def plain_loop(counts: NDArray[np.int64], orders: NDArray[np.float64]) -> NDArray[np.float64]:
    """Total cost, one query and one order at a time, as the formulas are printed."""
    total = [0.0] * orders.size
    for row in counts.tolist():
        top = max(row)
        rivals = list(row)
        rivals.remove(top)
        q = min(1.0, 0.5 * sum(math.erfc((top - votes) / (2.0 * SIGMA)) for votes in rivals))
        for index, order in enumerate(orders.tolist()):
            total[index] += plain_cost(q, order)
    return np.array(total)


def plain_cost(q: float, order: float) -> float:
    """Evaluate [P, Theorem 6] with Propositions 8 and 10 as printed, in plain floating point."""
    independent = order / SIGMA**2
    if not 0.0 < q < 0.5:
        return independent if q else 0.0
    mu_2 = SIGMA * math.sqrt(math.log(1.0 / q))
    mu_1 = mu_2 + 1.0
    if mu_2 <= 1.0 or mu_1 < order:
        return independent
    epsilon_1, epsilon_2 = mu_1 / SIGMA**2, mu_2 / SIGMA**2
    log_ratio = math.log(mu_1 / (mu_1 - 1.0) * mu_2 / (mu_2 - 1.0))
    if math.log(q) > (mu_2 - 1.0) * epsilon_2 - mu_2 * log_ratio:
        return independent
    log_a = math.log1p(-q) - math.log1p(-math.exp((math.log(q) + epsilon_2) * (mu_2 - 1.0) / mu_2))
    log_b = epsilon_1 - math.log(q) / (mu_1 - 1.0)
    first = math.log1p(-q) + (order - 1.0) * log_a
    second = math.log(q) + (order - 1.0) * log_b
    larger, smaller = max(first, second), min(first, second)
    bound = (larger + math.log1p(math.exp(smaller - larger))) / (order - 1.0)
    return max(0.0, min(bound, independent))


def main(arguments: Sequence[str] | None = None) -> int:
    """Time the three versions in one run, check that they agree, and print and save the result."""
    parser = CommandLine(prog="python -m experiments.pate.benchmark", description=__doc__ or "")
    parser.add_argument("--output", type=Path, metavar="FILE.json", help="write the result")
    options = parser.parse_args(arguments)
    check_output_files({} if options.output is None else {"output": options.output}, force=False)
    counts = pate_like_votes(GLYPH_SIZE)
    few = counts[:LOOPED]
    scale = counts.shape[0] / LOOPED
    fast = min(timeit.repeat(lambda: vectorized(counts, ORDERS), number=1, repeat=REPEATS))
    loop = timeit.timeit(lambda: plain_loop(few, ORDERS), number=1) * scale
    calls = timeit.timeit(lambda: query_by_query(few, ORDERS), number=1) * scale
    ours, theirs = vectorized(few, ORDERS), plain_loop(few, ORDERS)
    result = {
        "queries": counts.shape[0],
        "classes": counts.shape[1],
        "orders": ORDERS.size,
        "sigma": SIGMA,
        "vectorized_seconds": fast,
        "plain_loop_seconds": loop,
        "plain_loop_over_vectorized": loop / fast,
        "one_call_a_query_seconds": calls,
        "one_call_a_query_over_vectorized": calls / fast,
        "loops_timed_on_queries": LOOPED,
        "largest_relative_difference": float(np.max(np.abs(theirs / ours - 1.0))),
    }
    print(json.dumps(result, indent=1))
    if options.output is not None:
        write_json(options.output, result)
    return 0


if __name__ == "__main__":
    sys.exit(run(main))
