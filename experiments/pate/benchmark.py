"""How fast PATE's accounting is: 12,000 queries × 150 classes × 200 orders, against loops over the queries.

``python -m experiments.pate.benchmark`` writes ``results/pate_benchmark.json``. Votes are synthetic (seeded), of the
size of the Glyph experiment of [P]: 5,000 teachers, 150 classes, 12,000 queries; nothing here is a result about Glyph.

Two loops are timed on the first queries and scaled to all of them: the plain one, one query and one order at a time
with `math` as the formulas are printed; and one that calls the vectorised functions once for each query.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from darrm.pate.renyi_bounds import gaussian_renyi, log_q
from darrm.system.files import write_text
from experiments.pate.settings import GLYPH_SIZE, pate_like_votes

ORDERS = np.geomspace(1.5, 500.0, 200)
SIGMA = 100.0
LOOPED = 300  # queries that the slow loops are timed on
REPEATS = 5
RESULT = Path("results") / "pate_benchmark.json"


def vectorised(counts: NDArray[np.int64], orders: NDArray[np.float64]) -> NDArray[np.float64]:
    """Total cost over the orders, all at once."""
    return np.asarray(gaussian_renyi(log_q(counts, SIGMA), SIGMA, orders).sum(axis=0))


def query_by_query(counts: NDArray[np.int64], orders: NDArray[np.float64]) -> NDArray[np.float64]:
    """Total cost, calling the vectorised functions once for each query."""
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


def seconds_of(work: Callable[[], object], repeats: int) -> float:
    """Least wall-clock time of several runs."""
    best = math.inf
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        best = min(best, time.perf_counter() - start)
    return best


def main() -> None:
    """Time the three versions in one run, check that they agree, and print and save the result."""
    counts = pate_like_votes(GLYPH_SIZE)
    few = counts[:LOOPED]
    scale = counts.shape[0] / LOOPED
    fast = seconds_of(lambda: vectorised(counts, ORDERS), REPEATS)
    loop = seconds_of(lambda: plain_loop(few, ORDERS), 1) * scale
    calls = seconds_of(lambda: query_by_query(few, ORDERS), 1) * scale
    ours, theirs = vectorised(few, ORDERS), plain_loop(few, ORDERS)
    result = {
        "queries": counts.shape[0],
        "classes": counts.shape[1],
        "orders": ORDERS.size,
        "sigma": SIGMA,
        "vectorised_seconds": fast,
        "plain_loop_seconds": loop,
        "plain_loop_over_vectorised": loop / fast,
        "one_call_a_query_seconds": calls,
        "one_call_a_query_over_vectorised": calls / fast,
        "loops_timed_on_queries": LOOPED,
        "largest_relative_difference": float(np.max(np.abs(theirs / ours - 1.0))),
    }
    RESULT.parent.mkdir(exist_ok=True)
    write_text(RESULT, json.dumps(result, indent=2) + "\n")
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
