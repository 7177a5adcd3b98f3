"""Programs over blocks of shares: bounds from any multipliers, rows found as they are broken, and early stops."""

import numpy as np
import pytest

from lp_models.options import SolveOptions
from lp_models.program import Array, BlockProgram, SparseRows, Status
from lp_models.row_generation import Separation, beginning_at, minimize_with_rows

# two blocks: one of shares of sizes 1 and 2, one of sizes 1, 1 and 1
SIZES, BLOCKS = np.array([1.0, 2.0, 1.0, 1.0, 1.0]), np.array([0, 0, 1, 1, 1])
GAINS = np.array([0.5, 0.2, 0.7, 0.1, 0.0])
DENSE = np.array([[1.0, 0.0, -2.0, 0.0, 0.0], [0.0, -0.5, 1.0, 0.0, 0.0], [0.0, 0.0, 1.0, -1.5, 0.0]])
LIMITS = np.array([0.1, 0.3, 0.2])


def sparse(rows: list[int]) -> SparseRows:
    chosen = DENSE[rows]
    row, column = np.nonzero(chosen)
    return SparseRows.summed(row, column, chosen[row, column], LIMITS[rows], SIZES.size)


class Dense:
    """Knows the rows above; its feasible point lies on the way to one that breaks none."""

    safe = np.array([0.1, 0.45, 0.2, 0.3, 0.5])

    def separate(self, point: Array, **_: object) -> Separation:
        broken = [int(row) for row in np.flatnonzero(DENSE @ point > LIMITS + 1e-12)]
        share = max([0.0, *((DENSE @ point - LIMITS) / (DENSE @ (point - self.safe)))[broken]])
        rows = sparse(broken)
        return Separation(rows, rows.limits, point + share * (self.safe - point), True, broken)


@pytest.mark.parametrize("least", [0.0, 0.05])
def test_no_feasible_point_exceeds_the_bound_of_any_multipliers(least: float) -> None:
    rng = np.random.default_rng(4)
    program, rows = BlockProgram(GAINS, SIZES, BLOCKS, least), sparse([0, 1, 2])
    feasible = list[float]()
    while len(feasible) < 20:
        shares = np.concatenate([rng.dirichlet(np.ones(2)), rng.dirichlet(np.ones(3))]) / SIZES
        if np.all(DENSE @ shares <= LIMITS) and np.all(shares >= least):
            feasible.append(float(GAINS @ shares))
    bounds = [program.bound(rows, rng.exponential(0.3, 3)) for _ in range(200)]
    assert min(bounds) >= max(feasible)
    assert program.bound(rows, np.zeros(3)) == pytest.approx(
        (0.5 * (1 - 2 * least) + 0.1 * 2 * least) + (0.7 * (1 - 2 * least) + 0.1 * least)
    )


def test_value_and_bound_meet_and_the_multipliers_make_the_bound() -> None:
    program = BlockProgram(GAINS, SIZES, BLOCKS)
    result = minimize_with_rows(program, Dense(), SolveOptions(), start=beginning_at(Dense.safe))
    assert result.status is Status.OPTIMAL
    assert result.value == pytest.approx(result.bound, abs=1e-9)
    assert np.all(DENSE @ result.point <= LIMITS + 1e-9)
    y = np.zeros(3)
    for multiplier, row in result.multipliers:
        y[row] += multiplier
    assert program.bound(sparse([0, 1, 2]), y) == pytest.approx(result.bound, abs=1e-12)


def test_a_time_limit_and_an_interrupt_keep_the_best_so_far() -> None:
    program = BlockProgram(GAINS, SIZES, BLOCKS)
    late = minimize_with_rows(program, Dense(), SolveOptions(time_limit=0.0), start=beginning_at(Dense.safe))
    assert late.status is Status.TIME_LIMIT
    assert late.value == pytest.approx(float(GAINS @ Dense.safe))
    assert late.bound == np.inf

    class Interrupted(Dense):
        calls = 0

        def separate(self, point: Array, **how: object) -> Separation:
            self.calls += 1
            if self.calls == 2:
                raise KeyboardInterrupt
            return super().separate(point, **how)

    stopped = minimize_with_rows(program, Interrupted(), SolveOptions(), start=beginning_at(Dense.safe))
    assert stopped.status is Status.INTERRUPTED
    assert float(GAINS @ Dense.safe) <= stopped.value <= stopped.bound < np.inf
