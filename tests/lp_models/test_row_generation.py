"""Row generation: its optimum, ties and time, with oracles that fail or take long; and programs on knots."""

import itertools

import numpy as np
import pytest

from lp_models import row_generation
from lp_models.gamma_lp import Shape, expected_error_program
from lp_models.highs import Hats, Knots, Master, Ramps
from lp_models.options import Progress, SolveOptions
from lp_models.program import Array, LinearProgram, Solution, Status
from lp_models.row_generation import Separation, minimize_with_rows
from tests.lp_models.support import UNIT, ListOracle, drop_rows, no_rows, oracle, random_program, solve_with_scipy

SCIPY_ERROR = 1e-7  # what scipy's solver may break rows by
KINDS: list[type[Knots]] = [Hats, Ramps]
SHAPE: dict[type[Knots], Shape] = {Hats: Shape.FREE, Ramps: Shape.MONOTONE}


class Clock:
    """A clock that only oracles advance."""

    def __init__(self) -> None:
        self.now = 0.0

    def perf_counter(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(row_generation, "time", clock)
    return clock


@pytest.mark.parametrize("num_visible", [None, 0, 50])
@pytest.mark.parametrize("seed", range(6))
def test_generated_rows_reach_the_optimum_and_their_multipliers_give_the_bound(
    num_visible: int | None, seed: int
) -> None:
    program = random_program(seed, rows=200, n=12)
    reports = list[Progress]()
    result = minimize_with_rows(
        drop_rows(program), ListOracle(program, num_visible), SolveOptions(), report=reports.append
    )
    expected = solve_with_scipy(program)
    assert result.status is Status.OPTIMAL
    assert result.value == pytest.approx(expected, abs=1e-8)
    assert result.bound <= expected + 1e-12
    assert np.max(program.matrix @ result.point - program.limits) <= 1e-12
    duals = np.zeros(200)
    for multiplier, row in result.multipliers:
        assert multiplier > 0.0
        duals[row] += multiplier
    assert program.bound(program.matrix, program.limits, duals) == pytest.approx(result.bound, abs=1e-12)
    assert [report.rounds for report in reports] == list(range(1, result.rounds + 1))
    assert all(before.bound <= after.bound for before, after in itertools.pairwise(reports))
    assert reports[-1].rows == result.rows_generated < 200  # none is dropped below a hundred


@pytest.mark.parametrize("seed", range(20))
def test_dropped_rows_do_not_change_the_optimum(seed: int) -> None:
    program = random_program(seed, rows=200, n=12)
    options = SolveOptions(idle_rounds=2, rows_per_variable=0.5)
    result = minimize_with_rows(drop_rows(program), ListOracle(program), options)
    expected = solve_with_scipy(program)
    assert result.value == pytest.approx(expected, abs=1e-8)
    assert result.bound <= expected + 1e-12
    assert np.max(program.matrix @ result.point - program.limits) <= 1e-12
    assert 0 < result.rows_generated < 200


def test_a_start_is_no_answer_unless_it_was_checked_against_all_rows() -> None:
    program = random_program(3, rows=40)
    start = no_rows(np.ones(8), thorough=False)
    result = minimize_with_rows(drop_rows(program), ListOracle(program), SolveOptions(), start=start)
    assert result.value == pytest.approx(solve_with_scipy(program), abs=1e-8)
    assert np.max(program.matrix @ result.point - program.limits) <= 1e-12


def test_ties_are_broken_without_changing_value_or_bound() -> None:
    program = LinearProgram(np.array([-1.0, 0.0]), np.array([[1.0, 0.0], [0.5, 1.0]]), np.array([0.5, 1.0]))
    plain, tied = (
        minimize_with_rows(drop_rows(program), ListOracle(program), SolveOptions(), tie_break=tie_break)
        for tie_break in (None, np.array([0.0, -1e-8]))
    )
    assert plain.value == pytest.approx(tied.value, abs=1e-12)
    assert tied.bound == plain.bound
    assert tied.point == pytest.approx([0.5, 0.75], abs=1e-9)


@pytest.mark.parametrize("first", [0, 2])
def test_ties_are_broken_from_the_first_round_on(first: int) -> None:
    tie_break = np.array([2e-12, 3e-12, 2e-12])
    tie_break[first] = 1e-12
    result = minimize_with_rows(UNIT, oracle(lambda point, **_: no_rows(point)), SolveOptions(), tie_break=tie_break)
    assert (result.status, result.rounds) == (Status.OPTIMAL, 1)
    assert result.point[[first, 1]] == pytest.approx([1.0, 0.0])


def test_ties_are_not_broken_at_the_price_of_the_value() -> None:
    """Nothing moves in four rounds; then, with the extra cost, the oracle's points are far worse."""
    shares = list[float]()

    def separate(point: Array, **_: object) -> Separation:
        shares.append(0.9 if len(shares) < 4 else 0.5)
        return no_rows(shares[-1] * point)

    result = minimize_with_rows(UNIT, oracle(separate), SolveOptions(), tie_break=np.array([1e-12, 0.0, 0.0]))
    assert shares[-1] == 0.5
    assert result.value == pytest.approx(-0.9 * 1.5)
    assert UNIT.cost @ result.point == result.value


@pytest.mark.parametrize(("limit", "share", "rounds"), [(35.0, 0.8, 4), (np.inf, 0.8, 6), (np.inf, 0.9, 4)])
def test_after_a_stall_ties_are_broken_again_if_that_costs_value_and_time_is_left(
    limit: float, share: float, rounds: int, clock: Clock
) -> None:
    """Two rounds with the extra cost, two without, and two to break ties: each stall is repeated from scratch."""
    calls = list[float]()

    def separate(point: Array, *, thorough: bool, deadline: float) -> Separation:
        del thorough
        assert deadline in {0.9 * limit, limit}  # the latter for the last check of all rows
        clock.now += 10.0
        calls.append(share if len(calls) < 2 else 0.9)  # the first two points may be worse
        return no_rows(calls[-1] * point)

    options = SolveOptions(time_limit=limit)
    result = minimize_with_rows(UNIT, oracle(separate), options, tie_break=np.full(3, 1e-12))
    assert (result.status, result.rounds) == (Status.STALLED, rounds)
    assert result.value == pytest.approx(-0.9 * 1.5)


def test_an_earlier_point_is_checked_once_the_bound_reaches_it() -> None:
    checked = list[list[float]]()

    def separate(point: Array, *, thorough: bool, **_: object) -> Separation:
        if thorough:
            checked.append(point.tolist())
            return no_rows(point)
        feasible = np.array([0.5, 1.0]) if point[0] > 0.5 else 0.5 * point
        return Separation(np.array([[1.0, 0.0]]), np.array([0.5]), feasible, thorough=False)

    program = LinearProgram(-np.ones(2), np.empty((0, 2)), np.empty(0))
    result = minimize_with_rows(program, oracle(separate), SolveOptions())
    assert (result.status, result.rounds) == (Status.OPTIMAL, 2)
    assert checked == [[0.5, 1.0]]
    assert result.value == -1.5 == pytest.approx(result.bound, abs=1e-12)


def test_a_value_below_the_bound_in_quick_checks_counts_as_a_stall() -> None:
    calls = list[bool]()

    def separate(point: Array, *, thorough: bool, **_: object) -> Separation:
        calls.append(thorough)
        assert len(calls) < 100
        return no_rows((0.9 if thorough else 1.0 + 1e-6) * point, thorough=thorough)

    result = minimize_with_rows(UNIT, oracle(separate), SolveOptions())
    assert (result.status, result.rounds) == (Status.STALLED, 2)
    assert result.value == pytest.approx(-0.9 * 1.5)


def test_a_bound_never_falls(monkeypatch: pytest.MonkeyPatch) -> None:
    """A solve that gave up has useless multipliers; those of an earlier round stay."""
    solve, solutions = Master.solve, list[Solution]()

    def solve_worse(self: Master, seconds: float = np.inf) -> Solution:
        solutions.append(solve(self, seconds))
        first = solutions[0]
        if len(solutions) == 1:
            return first
        return Solution(first.point, 0.0 * first.duals, first.value, -3.0, Status.OPTIMAL)

    monkeypatch.setattr(Master, "solve", solve_worse)
    result = minimize_with_rows(UNIT, oracle(lambda point, **_: no_rows(0.9 * point)), SolveOptions())
    assert (result.status, result.rounds) == (Status.STALLED, 2)
    assert result.bound == pytest.approx(-1.5)
    assert [multiplier for multiplier, _ in result.multipliers] == pytest.approx([1.0])


def test_an_interrupt_leaves_the_most_promising_point_after_a_check() -> None:
    checks = list[bool]()

    def separate(point: Array, *, thorough: bool, deadline: float) -> Separation:
        assert deadline == np.inf
        checks.append(thorough)
        if checks == [False, False]:
            raise KeyboardInterrupt
        feasible = 0.8 * point if thorough else 0.9 * point
        return Separation(np.eye(3)[:1], np.array([0.95 - 0.1 * len(checks)]), feasible, thorough)

    result = minimize_with_rows(UNIT, oracle(separate), SolveOptions(), start=no_rows(np.full(3, 0.1)))
    assert (result.status, checks) == (Status.INTERRUPTED, [False, False, True])
    assert result.value == pytest.approx(-0.8 * 0.9 * 1.5)


def test_a_check_that_outlasts_the_time_keeps_the_most_promising_point() -> None:
    def separate(point: Array, *, thorough: bool, **_: object) -> Separation:
        if thorough:
            raise TimeoutError
        return no_rows(0.5 * point, thorough=False)

    result = minimize_with_rows(UNIT, oracle(separate), SolveOptions())
    assert result.status is Status.TIME_LIMIT
    assert result.point.sum() == pytest.approx(0.75)


def test_without_time_for_a_check_the_point_is_the_masters() -> None:
    def separate(_: Array, **__: object) -> Separation:
        raise TimeoutError

    result = minimize_with_rows(UNIT, oracle(separate), SolveOptions())
    assert result.status is Status.TIME_LIMIT
    assert result.value == np.inf  # nothing was checked
    assert result.point.sum() == pytest.approx(1.5)


def test_a_round_begins_only_within_the_time_limit(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    """An oracle that always has one more row, ten seconds later, and ignores its deadline."""

    def separate(point: Array, **_: object) -> Separation:
        clock.now += 10.0
        return Separation(np.ones((1, 3)), np.array([1.5 - 0.001 * clock.now]), 0.5 * point, thorough=True)

    starts, solve = list[float](), Master.solve

    def record(self: Master, seconds: float) -> Solution:
        assert seconds == 36.0 - clock.now  # a tenth of the limit is left for a check of all rows
        starts.append(clock.now)
        return solve(self)

    monkeypatch.setattr(Master, "solve", record)
    result = minimize_with_rows(UNIT, oracle(separate), SolveOptions(time_limit=40.0))
    assert (result.status, starts) == (Status.TIME_LIMIT, [0.0, 10.0, 20.0, 30.0])


def test_time_is_left_for_a_check_of_all_rows(clock: Clock) -> None:
    """Without a tenth of the limit the best point would have no value."""

    def separate(point: Array, *, thorough: bool, deadline: float) -> Separation:
        clock.now = min(clock.now + (3.0 if thorough else 10.0), deadline)
        if clock.now == deadline:
            raise TimeoutError
        return Separation(np.ones((1, 3)), np.array([1.5 - 0.001 * clock.now]), 0.5 * point, thorough)

    result = minimize_with_rows(UNIT, oracle(separate), SolveOptions(time_limit=40.0))
    assert (result.status, clock.now) == (Status.TIME_LIMIT, 39.0)
    assert np.isfinite(result.value)


def smooth_program(kind: type[Knots], seed: int, n: int = 60, rows: int = 40) -> LinearProgram:
    """Draw rows that change slowly along x, as those of the γ programs do."""
    rng = np.random.default_rng(seed)
    places, centers, widths = np.arange(n), rng.uniform(0, n, (rows, 1)), rng.uniform(2, 10, (rows, 1))
    matrix = np.exp(-(((places - centers) / widths) ** 2)) - 0.5 * np.exp(-(((places - centers - 9) / widths) ** 2))
    return expected_error_program(rng.random(n), SHAPE[kind], matrix, rng.uniform(0.3, 2.0, rows))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("n", "intervals"), [(1, 4), (7, 7), (8, 7), (10, 1), (50, 7), (101, 32)])
def test_restricted_rows_have_the_values_of_the_prolonged_point(kind: type[Knots], n: int, intervals: int) -> None:
    rng = np.random.default_rng(n)
    knots = kind.spread(n, intervals)
    while True:
        z, rows = rng.random(knots.starts.size), rng.normal(size=(5, n))
        x = knots.prolong(z)
        assert x.shape == (n,)
        assert np.all((x >= 0.0) & (x <= 1.0))
        np.testing.assert_allclose(knots.restrict(rows) @ z, rows @ x, atol=1e-12)
        np.testing.assert_allclose(knots.restrict(rows[0]), knots.restrict(rows)[0], rtol=0)
        if knots.is_full:
            break
        finer = knots.refine()
        assert set(knots.starts.tolist()) < set(finer.starts.tolist())
        # finer knots can express the same point
        same = x[finer.starts] if isinstance(knots, Hats) else np.add.reduceat(x, finer.starts)
        np.testing.assert_allclose(finer.prolong(same), x, atol=1e-12)
        knots = finer
    assert np.array_equal(knots.prolong(z), z)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(5))
def test_a_restricted_master_has_a_worse_point_and_a_valid_bound(kind: type[Knots], seed: int) -> None:
    program = smooth_program(kind, seed)
    expected = solve_with_scipy(program)
    knots = kind.spread(program.cost.size, 4)
    gaps = []
    while True:
        solution = Master(program, knots).solve()
        assert solution.status is Status.OPTIMAL
        assert solution.bound - SCIPY_ERROR <= expected <= solution.value + SCIPY_ERROR
        assert np.max(program.matrix @ solution.point - program.limits) <= 1e-9
        gaps.append(solution.value - solution.bound)
        if knots.is_full:
            break
        knots = knots.refine()
    assert gaps[0] > 1e-4  # four knots are not enough
    assert gaps[-1] < 1e-9


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("first", [0.0, 1.0, 50.0])  # too small, and far too large
def test_ramps_repair_the_first_multiplier_to_the_best_one(first: float, seed: int) -> None:
    program = smooth_program(Ramps, seed)
    rng = np.random.default_rng(seed)
    duals = np.where(rng.random(program.limits.size) < 0.2, rng.random(program.limits.size), 0.0)
    duals[0] = first
    original = duals.copy()
    repaired = Ramps.spread(60, 4).repair(duals, program.cost + duals @ program.matrix)
    assert np.array_equal(duals, original)
    assert np.array_equal(repaired[1:], duals[1:])
    best = program.bound(program.matrix, program.limits, repaired)
    for other in np.linspace(0.0, 60.0, 601):
        assert program.bound(program.matrix, program.limits, np.array([other, *duals[1:]])) <= best + 1e-12


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(5))
def test_refined_knots_reach_the_optimum_of_all_rows(kind: type[Knots], seed: int) -> None:
    program = smooth_program(kind, seed)
    start = drop_rows(program, program.limits.size - 40)
    knots = kind.spread(program.cost.size, 4)
    result = minimize_with_rows(start, ListOracle(program), SolveOptions(), knots=knots)
    expected = solve_with_scipy(program)
    assert result.status is Status.OPTIMAL
    assert result.value == pytest.approx(expected, abs=SCIPY_ERROR)
    assert result.bound <= expected + SCIPY_ERROR


def test_no_result_is_worse_than_its_start() -> None:
    program = smooth_program(Hats, 1)
    point = Master(program).solve().point * (1.0 - 1e-9)
    start = Separation(program.matrix[:3], program.limits[:3], point, thorough=True, labels=["a", "b", "c"])
    options, knots = SolveOptions(time_limit=0.0), Hats.spread(60, 4)
    stopped = minimize_with_rows(drop_rows(program), ListOracle(program), options, knots=knots, start=start)
    assert stopped.status is Status.TIME_LIMIT
    assert stopped.value <= program.cost @ point + program.offset
    assert {label for _, label in stopped.multipliers} <= {"a", "b", "c"}


def test_a_coarse_master_that_fails_is_refined(monkeypatch: pytest.MonkeyPatch) -> None:
    program, solve = smooth_program(Hats, 2), Master.solve

    def fail_on_knots(self: Master, seconds: float = np.inf) -> Solution:
        if self.knots is None or self.knots.is_full:
            return solve(self, seconds)
        zero, duals = np.zeros(program.cost.size), np.zeros(self.limits.size)
        return Solution(zero, duals, self.value(zero), -np.inf, Status.FAILED)

    monkeypatch.setattr(Master, "solve", fail_on_knots)
    result = minimize_with_rows(program, ListOracle(program), SolveOptions(), knots=Hats.spread(60, 4))
    assert result.status is Status.OPTIMAL
    assert result.value == pytest.approx(solve_with_scipy(program), abs=1e-7)
