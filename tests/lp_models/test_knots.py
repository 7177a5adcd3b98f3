"""Programs restricted to knots: adjoint maps, bounds over all variables, and the same optimum in the end."""

import numpy as np
import pytest

from lp_models.gamma_lp import Shape, expected_error_program
from lp_models.highs import Hats, Knots, Master, Ramps
from lp_models.options import SolveOptions
from lp_models.program import LinearProgram, Status, lagrangian_bound
from lp_models.row_generation import Separation, minimize_with_rows
from tests.lp_models.test_programs import ListOracle, truth

_TRUTH = 1e-7  # what scipy's solver may break rows by
KINDS: list[type[Knots]] = [Hats, Ramps]
SHAPE: dict[type[Knots], Shape] = {Hats: Shape.FREE, Ramps: Shape.MONOTONE}


def smooth_program(kind: type[Knots], seed: int, n: int = 60, rows: int = 40) -> LinearProgram:
    """Rows that change slowly along x, as those of the γ programs do."""
    rng = np.random.default_rng(seed)
    places, centers, widths = np.arange(n), rng.uniform(0, n, (rows, 1)), rng.uniform(2, 10, (rows, 1))
    matrix = np.exp(-(((places - centers) / widths) ** 2)) - 0.5 * np.exp(-(((places - centers - 9) / widths) ** 2))
    return expected_error_program(rng.random(n), SHAPE[kind], matrix, rng.uniform(0.3, 2.0, rows))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("n", "intervals"), [(1, 4), (7, 7), (8, 7), (10, 1), (50, 7), (101, 32)])
def test_rows_over_the_knots_are_the_rows_at_what_the_knots_say(kind: type[Knots], n: int, intervals: int) -> None:
    rng = np.random.default_rng(n)
    knots = kind.spread(n, intervals)
    while True:
        z = rng.random(knots.starts.size)
        rows = rng.normal(size=(5, n))
        x = knots.up(z)
        assert x.shape == (n,)
        assert np.min(x) >= 0.0
        assert np.max(x) <= 1.0
        np.testing.assert_allclose(knots.down(rows) @ z, rows @ x, atol=1e-12)
        np.testing.assert_allclose(knots.down(rows[0]), knots.down(rows)[0], rtol=0)
        if knots.is_full:
            break
        finer = knots.refined()
        assert set(knots.starts.tolist()) < set(finer.starts.tolist())
        np.testing.assert_allclose(finer.up(_on_finer(knots, finer, z)), x, atol=1e-12)
        knots = finer
    assert np.array_equal(knots.up(z), z)


def _on_finer(knots: Knots, finer: Knots, z: np.ndarray) -> np.ndarray:
    """Say the same x on finer knots: what a coarse point can do, a finer one can."""
    x = knots.up(z)
    return x[finer.starts] if isinstance(knots, Hats) else np.add.reduceat(x, finer.starts)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(5))
def test_a_restricted_master_has_a_worse_point_and_a_bound_over_all(kind: type[Knots], seed: int) -> None:
    program = smooth_program(kind, seed)
    expected = truth(program)
    knots = kind.spread(program.cost.size, 4)
    gaps = []
    while True:
        solution = Master(program, knots).solve()
        assert solution.status is Status.OPTIMAL
        assert solution.value >= expected - _TRUTH
        assert solution.bound <= expected + _TRUTH
        assert np.max(program.matrix @ solution.point - program.limits) <= 1e-9
        gaps.append(solution.value - solution.bound)
        if knots.is_full:
            break
        knots = knots.refined()
    assert gaps[0] > 1e-4  # four knots are not enough
    assert gaps[-1] < 1e-9


@pytest.mark.parametrize("seed", range(5))
def test_no_other_multiplier_of_the_sum_of_steps_gives_a_better_bound(seed: int) -> None:
    program = smooth_program(Ramps, seed)
    rng = np.random.default_rng(seed)
    duals = np.where(rng.random(program.limits.size) < 0.2, rng.random(program.limits.size), 0.0)
    for first in (0.0, 1.0, 50.0):  # too small, and far too large
        duals[0] = first
        given = duals.copy()
        repaired = Ramps.spread(60, 4).repaired(duals, program.cost + duals @ program.matrix)
        assert np.array_equal(duals, given)  # the caller's
        assert np.array_equal(repaired[1:], duals[1:])
        best = lagrangian_bound(program, repaired)
        for other in np.linspace(0.0, 60.0, 601):
            assert lagrangian_bound(program, np.array([other, *duals[1:]])) <= best + 1e-12


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(5))
def test_from_coarse_to_fine_the_optimum_of_all_rows_is_reached(kind: type[Knots], seed: int) -> None:
    program = smooth_program(kind, seed)
    own = program.limits.size - 40
    start = LinearProgram(program.cost, program.matrix[:own], program.limits[:own], program.offset)
    knots = kind.spread(program.cost.size, 4)
    result = minimize_with_rows(start, ListOracle(program), SolveOptions(), knots=knots)
    expected = truth(program)
    assert result.status is Status.OPTIMAL
    assert result.value == pytest.approx(expected, abs=_TRUTH)
    assert result.bound <= expected + _TRUTH


def test_no_answer_is_worse_than_the_point_to_start_with() -> None:
    program = smooth_program(Hats, 1)
    good = Master(program).solve().point * (1.0 - 1e-9)
    start = Separation(program.matrix[:3], program.limits[:3], good, thorough=True, labels=["a", "b", "c"])
    empty = LinearProgram(program.cost, np.empty((0, 60)), np.empty(0), program.offset)
    knots = Hats.spread(60, 4)
    stopped = minimize_with_rows(empty, ListOracle(program), SolveOptions(time_limit=0.0), knots=knots, start=start)
    assert stopped.status is Status.TIME_LIMIT
    assert stopped.value <= program.cost @ good + program.offset
    assert {label for _, label in stopped.multipliers} <= {"a", "b", "c"}
