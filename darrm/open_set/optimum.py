"""The optimal law of open-set answers for many voters (`darrm.open_set.open_law`), by row generation.

Each round adds the violated rows of a proposal (`darrm.open_set.open_rows`): the worst histogram of each move of a
vote, and each histogram with probabilities of more than 1 in total. On one core K = 30 takes two seconds, K = 50 ten
seconds, K = 80 three minutes.

π(n) bounds the optimality gap (`darrm.plurality.accuracy_bound.most_of_one_string`). *It is attained* while π grows by
its first branch: the law with probability π(n) for each string with n votes is private if u ≤ c·u' for all moves,
because a move costs exactly δ at one string and the other string gains. Then it is optimal for every prior.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from darrm.numerics import Array
from darrm.open_set.open_law import MOST_OPEN_VOTERS, OpenLaw, largest_sums, places, totals
from darrm.open_set.open_rows import Coefficients, OpenRows, check_voters, fill_votes, ratio_below, share_allowed
from darrm.priors import Prior, compute_strings, default_prior
from darrm.problem import Problem
from darrm.util import checks
from lp_models.options import Progress, SolveOptions
from lp_models.program import BlockProgram, SparseRows
from lp_models.row_generation import Result, Separation, minimize_with_rows, start_at

MOST_PLANNED = 80  # voters of a program that takes minutes; proofs allow more
_MIN_DELTA = 1e-10
_TOLERANCE, _TIE_BREAK = 1e-11, 1e-8


def check_size(problem: Problem) -> None:
    """Raise `ValueError` unless the program is solved in minutes."""
    check_voters(problem)
    if problem.target.delta < _MIN_DELTA:
        advice = "the solver cannot resolve smaller probabilities"
        checks.fail("delta of one open question", problem.target.delta, f"at least {_MIN_DELTA:g}", advice)
    if problem.voters.K > MOST_PLANNED:
        advice = f"certify proves laws for up to {MOST_OPEN_VOTERS}; for more voters plan a number of questions"
        checks.fail("K of one open question", problem.voters.K, f"at most {MOST_PLANNED}", advice)


def best_open_law(
    problem: Problem, prior: Prior, options: SolveOptions, report: Callable[[Progress], None] | None = None
) -> tuple[OpenLaw, Result]:
    """Find the law with the largest accuracy; a proposal, like every law.

    >>> from darrm import PrivacyParams, Voters
    >>> from darrm.priors import Ewens
    >>> problem = Problem(Voters(13, PrivacyParams("inf"), overlap=1), PrivacyParams("1.2", "1e-3"), "open")
    >>> law, result = best_open_law(problem, Ewens(0.5), SolveOptions())
    >>> round(law.accuracy(Ewens(0.5)), 5)
    0.91072
    """
    check_size(problem)
    K = problem.voters.K
    mask, (n, m) = places(K), np.indices((K + 1, K + 1))
    # strings without weight under the prior get a small weight
    expected, default = compute_strings(prior, K), compute_strings(default_prior(problem.classes), K)
    gains = np.where(m <= n, np.maximum(expected, _TIE_BREAK * np.max(expected) / np.max(default) * default), 0.0)[mask]
    # each x(n, m) and its rest to 1 are a block of shares
    program = BlockProgram(
        np.column_stack([gains, np.zeros(gains.size)]).ravel(), np.ones(2 * gains.size), np.arange(gains.size).repeat(2)
    )
    start = start_at(np.tile([0.0, 1.0], gains.size))
    result = minimize_with_rows(program, _OpenOracle(problem), options, start=start, report=report)
    x = np.zeros((K + 1, K + 1))
    x[mask] = result.point[::2]
    return OpenLaw.from_probabilities(K, x), result


@dataclass(frozen=True, eq=False)
class _OpenOracle:
    problem: Problem

    def separate(self, point: Array, **_: object) -> Separation:
        """Return the most violated row of each pair of moving counts, and violated totals."""
        K, delta, ratio = self.problem.voters.K, self.problem.target.delta, ratio_below(self.problem)
        mask, x = places(K), np.zeros((K + 1, K + 1))
        x[mask] = point[::2]
        rows = OpenRows(x, ratio)
        limits, worst = (delta, delta + ratio - 1.0), [0.0, 0.0]
        broken = list[tuple[Coefficients, float]]()
        for group in rows.groups():
            for move, value in group.worst_moves():
                worst[move.is_without] = max(worst[move.is_without], value)
                if value > limits[move.is_without] + _TOLERANCE:
                    broken.append((rows.coefficients(move), limits[move.is_without]))
        histograms, largest = _find_broken_totals(x)
        broken += [(row, 1.0) for row in histograms]
        share = min(share_allowed(worst[0], worst[1], self.problem), 1.0 / max(1.0, largest))
        feasible = np.column_stack([share * point[::2], 1.0 - share * point[::2]]).ravel()
        matrix = _build_sparse_rows(broken, mask)
        return Separation(matrix, matrix.limits, feasible, True, range(len(broken)))


def _build_sparse_rows(rows: list[tuple[Coefficients, float]], mask: NDArray[np.bool_]) -> SparseRows:
    """Write rows about x(n, m) as rows of the program, in which every second variable is a complement."""
    numbers = 2 * (np.cumsum(mask.ravel()).reshape(mask.shape) - 1)
    entries = [(r, numbers[place], factor) for r, (row, _) in enumerate(rows) for place, factor in row.items()]
    number, column, factors = np.array(entries, dtype=np.float64).reshape(-1, 3).T
    limits = np.array([limit for _, limit in rows], dtype=np.float64)
    return SparseRows(number.astype(np.int64), column.astype(np.int64), factors, limits)


def _find_broken_totals(x: Array) -> tuple[list[Coefficients], float]:
    """Return histograms with a total above 1, the worst for each two largest counts, and the largest total."""
    rest_sums, broken, largest = largest_sums(x.T, -np.inf), list[Coefficients](), 0.0
    for top, second, total in totals(x, rest_sums):
        largest = max(largest, float(total))
        if total > 1.0 + _TOLERANCE:
            others = [second, *fill_votes(rest_sums[top], second, len(x) - 1 - top - second)]
            strings = Counter([(top, second), *((votes, top) for votes in others)])
            broken.append({place: float(number) for place, number in strings.items()})
    return broken, largest
