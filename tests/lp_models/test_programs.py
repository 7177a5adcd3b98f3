"""Linear programs of both forms against scipy and cvxpy: optima, bounds from any multipliers, and early stops."""

from pathlib import Path
from types import SimpleNamespace

import highspy
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import linprog

from darrm import PrivacyParams, Problem, Voters, optimize_table
from darrm.majority.corners import full_set_size
from lp_models import gamma_program, row_generation
from lp_models.gamma_lp import Shape, expected_error_program
from lp_models.highs import Master
from lp_models.options import Progress, SolveOptions
from lp_models.program import Array, BlockProgram, LinearProgram, SparseRows, Status
from lp_models.reference import solve_with_cvxpy
from lp_models.row_generation import Separation, minimize_with_rows, start_at


def random_program(seed: int, rows: int = 30, n: int = 8) -> LinearProgram:
    rng = np.random.default_rng(seed)
    matrix = rng.normal(size=(rows, n)) + 0.3
    return LinearProgram(-rng.random(n), matrix, rng.uniform(0.1, 1.0, rows), 0.25)


def truth(program: LinearProgram) -> float:
    solution = linprog(program.cost, program.matrix, program.limits, bounds=(0.0, 1.0), method="highs-ds")
    return float(solution.fun) + program.offset


@pytest.mark.parametrize("seed", range(20))
def test_both_solvers_find_the_optimum(seed: int) -> None:
    program = random_program(seed)
    expected = truth(program)
    for solution in (Master(program).solve(), solve_with_cvxpy(program)):
        assert solution.status is Status.OPTIMAL
        assert solution.value == pytest.approx(expected, abs=1e-9)
        assert solution.bound <= expected + 1e-12
        assert solution.bound == pytest.approx(expected, abs=1e-9)
        # complementary slackness: a row with slack has no multiplier
        slack = program.limits - program.matrix @ solution.point
        assert np.max(slack * solution.duals) <= 1e-8
        assert np.min(slack) >= -1e-9


@given(seed=st.integers(0, 5), data=st.data())
def test_any_multipliers_give_a_bound(seed: int, data: st.DataObject) -> None:
    program = random_program(seed, rows=5, n=3)
    duals = np.array(data.draw(st.lists(st.floats(-1.0, 3.0), min_size=5, max_size=5)))
    assert program.bound(program.matrix, program.limits, duals) <= truth(program) + 1e-12


@pytest.mark.parametrize(
    ("cost", "matrix", "limits"),
    [
        ([1.0], [[1.0, 2.0]], [1.0]),
        ([1.0, 2.0], [[1.0, 2.0]], [1.0, 2.0]),
        ([np.nan], [[1.0]], [1.0]),
        ([1.0], [[np.inf]], [1.0]),
    ],
)
def test_programs_that_make_no_sense(cost: list[float], matrix: list[list[float]], limits: list[float]) -> None:
    with pytest.raises(ValueError, match="linear program"):
        LinearProgram(np.array(cost), np.array(matrix), np.array(limits))


def test_a_program_keeps_its_own_numbers() -> None:
    cost = np.array([-1.0])
    program = LinearProgram(cost, np.empty((0, 1)), np.empty(0))
    cost[0] = 5.0
    assert program.cost[0] == -1.0
    assert Master(program).solve().value == -1.0


class ListOracle:
    """Knows a finite list of rows and answers two broken ones at a time."""

    def __init__(self, program: LinearProgram) -> None:
        self.program = program

    def separate(self, point: Array, *, thorough: bool, deadline: float) -> Separation:
        del thorough, deadline
        ratios = self.program.matrix @ point / self.program.limits
        worst = np.argsort(-ratios)[:2]
        broken = worst[ratios[worst] > 1.0 + 1e-12]
        feasible = point / max(1.0, float(np.max(ratios)))
        return Separation(self.program.matrix[broken], self.program.limits[broken], feasible, thorough=True)


@pytest.mark.parametrize("seed", range(20))
def test_rows_on_demand_reach_the_optimum_of_all_rows(seed: int) -> None:
    program = random_program(seed, rows=200, n=12)
    start = LinearProgram(program.cost, np.empty((0, 12)), np.empty(0), program.offset)
    options = SolveOptions(idle_rounds=2, rows_per_variable=0.5)
    result = minimize_with_rows(start, ListOracle(program), options)
    expected = truth(program)
    assert result.value == pytest.approx(expected, abs=1e-8)
    assert result.bound <= expected + 1e-12
    assert np.max(program.matrix @ result.point - program.limits) <= 1e-12
    assert 0 < result.rows_generated < 200


def test_ties_are_broken_without_changing_value_or_bound() -> None:
    start = LinearProgram(np.array([-1.0, 0.0]), np.empty((0, 2)), np.empty(0))
    program = LinearProgram(start.cost, np.array([[1.0, 0.0], [0.5, 1.0]]), np.array([0.5, 1.0]))
    plain = minimize_with_rows(start, ListOracle(program), SolveOptions())
    tied = minimize_with_rows(start, ListOracle(program), SolveOptions(), tie_break=np.array([0.0, -1e-8]))
    assert plain.value == pytest.approx(tied.value, abs=1e-12)
    assert tied.bound == plain.bound
    assert tied.point == pytest.approx([0.5, 0.75], abs=1e-9)


def test_the_programs_own_rows_are_never_dropped() -> None:
    program = expected_error_program(np.ones(4), Shape.MONOTONE)
    master = Master(program)
    # the last row binds, so that the program's own row and the first three are idle
    master.add_rows(np.vstack([np.eye(4)[:3], np.ones(4)]), np.array([9.0, 9.0, 9.0, 0.5]))
    for _ in range(3):
        master.solve()
    assert master.limits.size == 5
    master.drop_idle_rows(2)
    assert master.limits.tolist() == [1.0, 0.5]
    assert master.solve().value == pytest.approx(1.0, abs=1e-12)


@pytest.mark.parametrize("shape", list(Shape))
def test_the_shapes_describe_the_same_gamma(shape: Shape) -> None:
    rng = np.random.default_rng(3)
    gamma = np.sort(rng.random(6))
    weights, matrix = rng.random(6), rng.normal(size=(5, 6))
    program = expected_error_program(weights, shape, matrix, np.ones(5))
    point = shape.gamma_to_variables(gamma)
    assert program.cost @ point + program.offset == pytest.approx(0.5 * weights @ (1.0 - gamma))
    np.testing.assert_allclose(program.matrix[-5:] @ point, matrix @ gamma, atol=1e-12)
    np.testing.assert_allclose(shape.variables_to_gamma(point), gamma, atol=1e-15)


@pytest.mark.parametrize("size", [0, 3])
def test_a_solver_that_returns_nothing_leaves_a_valid_bound(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    program = random_program(0)
    master = Master(program)
    nothing = SimpleNamespace(col_value=[0.0] * size, row_dual=[0.0] * size)
    monkeypatch.setattr(
        master,
        "_highs",
        SimpleNamespace(
            getSolution=lambda: nothing,
            getRunTime=lambda: 0.0,
            setOptionValue=lambda *_: None,
            getOptionValue=lambda _: (None, None),
            run=lambda: None,
            clearSolver=lambda: None,
            getModelStatus=lambda: None,
        ),
    )
    solution = master.solve()
    assert solution.status is Status.FAILED
    assert solution.bound <= truth(program)


@pytest.mark.parametrize("scale", [0.0, 1e-320, 1e-305, 1e-289, 1e-200])
def test_rows_of_tiny_coefficients_reach_the_solver(scale: float) -> None:
    program = LinearProgram(np.array([-1.0, -2.0]), scale * np.ones((1, 2)), np.array([scale]))
    solution = Master(program).solve()
    assert solution.status is Status.OPTIMAL
    assert solution.bound <= -2.0 + 1e-9


def test_what_cvxpy_raises_is_a_status(monkeypatch: pytest.MonkeyPatch) -> None:
    cvxpy = pytest.importorskip("cvxpy")

    def fails(*_: object, **__: object) -> None:
        raise cvxpy.error.SolverError("Solver 'HIGHS' failed.")

    monkeypatch.setattr(cvxpy.Problem, "solve", fails)
    solution = solve_with_cvxpy(random_program(0))
    assert solution.status is Status.FAILED
    assert solution.bound <= truth(random_program(0))


def test_a_master_stops_when_its_time_is_up_and_goes_on_afterwards() -> None:
    rng = np.random.default_rng(0)
    program = LinearProgram(-rng.random(60), rng.random((90, 60)), rng.random(90) * 5.0 + 1.0)
    master = Master(program)
    stopped = master.solve(0.0)
    assert stopped.status is Status.FAILED
    solved = master.solve()
    assert solved.status is Status.OPTIMAL
    # what it had when it was stopped is a bound all the same
    assert stopped.bound <= solved.value + 1e-9
    assert solved.value == pytest.approx(solve_with_cvxpy(program).value, rel=1e-8)


@pytest.mark.parametrize(("limit", "share", "rounds"), [(35.0, 0.8, 4), (np.inf, 0.8, 6), (np.inf, 0.9, 4)])
def test_after_a_stall_ties_are_broken_again_only_if_that_costs_value_and_in_time_that_is_left(
    limit: float, share: float, rounds: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two rounds with the extra cost, two without, and two to break ties: each stall is tried again from nothing."""
    now = [0.0]

    class Slow:
        """Knows no row and lets no gap close, ten seconds later; its first two points may be worse."""

        looks = 0

        def separate(self, point: np.ndarray, *, thorough: bool, deadline: float) -> Separation:  # noqa: ARG002
            assert deadline in {0.9 * limit, limit}  # the latter of the last look at all rows
            now[0] += 10.0
            self.looks += 1
            feasible = (share if self.looks <= 2 else 0.9) * point
            return Separation(np.empty((0, point.size)), np.empty(0), feasible, thorough=True)

    monkeypatch.setattr(row_generation, "time", SimpleNamespace(perf_counter=lambda: now[0]))
    program = LinearProgram(-np.ones(3), np.ones((1, 3)), np.array([1.5]))
    result = minimize_with_rows(program, Slow(), SolveOptions(time_limit=limit), tie_break=np.full(3, 1e-12))
    assert (result.status, result.rounds) == (Status.STALLED, rounds)
    assert result.value == pytest.approx(-0.9 * 1.5)


class NeedsTheLastPoint:
    """Says of one point, scaled for the rows looked at, that it is as good as the bound of a later round."""

    row = np.array([[1.0, 0.0]])

    def __init__(self) -> None:
        self.thorough: list[np.ndarray] = []

    def separate(self, point: np.ndarray, *, thorough: bool, deadline: float) -> Separation:  # noqa: ARG002
        if thorough:
            self.thorough.append(point)
            return Separation(np.empty((0, 2)), np.empty(0), point, thorough=True)
        feasible = np.array([0.5, 1.0]) if point[0] > 0.5 else 0.5 * point
        return Separation(self.row, np.array([0.5]), feasible, thorough=False)


def test_an_earlier_point_is_checked_once_the_bound_has_come_up_to_it() -> None:
    oracle = NeedsTheLastPoint()
    result = minimize_with_rows(LinearProgram(-np.ones(2), np.empty((0, 2)), np.empty(0)), oracle, SolveOptions())
    assert (result.status, result.rounds) == (Status.OPTIMAL, 2)
    assert [point.tolist() for point in oracle.thorough] == [[0.5, 1.0]]
    assert result.value == -1.5 == pytest.approx(result.bound, abs=1e-12)


def test_a_look_that_outlasts_the_time_keeps_the_most_promising_point() -> None:
    class Endless:
        """Repairs a point at once, and never comes to the end of a thorough look."""

        def separate(self, point: np.ndarray, *, thorough: bool, deadline: float) -> Separation:
            assert deadline == np.inf
            if thorough:
                raise TimeoutError
            return Separation(np.empty((0, point.size)), np.empty(0), 0.5 * point, thorough=False)

    program = LinearProgram(-np.ones(3), np.ones((1, 3)), np.array([1.5]))
    result = minimize_with_rows(program, Endless(), SolveOptions())
    assert result.status is Status.TIME_LIMIT
    assert result.point.sum() == pytest.approx(0.75)


@pytest.mark.parametrize(
    ("K", "delta", "m", "overlap"), [(7, "0", 2, None), (5, "0.01", 2, None), (6, "1e-3", 3, None), (5, "0.01", 2, 3)]
)
def test_the_whole_program_of_the_paper_has_the_optimum_of_the_generated_rows(
    K: int, delta: str, m: int, overlap: int | None, tmp_path: Path
) -> None:
    problem = Problem.from_allowance(Voters(K, PrivacyParams("0.5", delta), overlap=overlap), m)
    optimality = optimize_table(problem).optimality
    assert optimality is not None
    whole = gamma_program(problem)
    assert len(whole.names) == len(set(whole.names)) == len(whole.program.matrix) == full_set_size(problem.voters)
    solved = whole.to_cvxpy()
    solved.solve()
    assert solved.value == pytest.approx(optimality.value, abs=1e-7)
    assert whole.solve().value == pytest.approx(optimality.value, abs=1e-9)
    whole.to_mps(tmp_path / "gamma.mps")
    text = (tmp_path / "gamma.mps").read_text()
    assert all(name in text for name in (*whole.variables, whole.names[-1]))
    highs = highspy.Highs()
    highs.setOptionValue("output_flag", False)
    highs.readModel(str(tmp_path / "gamma.mps"))
    highs.run()
    assert highs.getInfo().objective_function_value == pytest.approx(optimality.value, abs=1e-7)


def test_a_program_too_large_to_write_down_is_refused() -> None:
    with pytest.raises(ValueError, match="73,629,072 rows"):
        gamma_program(Problem.from_allowance(Voters(41, PrivacyParams("0.1", "1e-5")), 3))


# two blocks: one of shares of sizes 1 and 2, one of sizes 1, 1 and 1
SIZES, BLOCKS = np.array([1.0, 2.0, 1.0, 1.0, 1.0]), np.array([0, 0, 1, 1, 1])
GAINS = np.array([0.5, 0.2, 0.7, 0.1, 0.0])
DENSE = np.array([[1.0, 0.0, -2.0, 0.0, 0.0], [0.0, -0.5, 1.0, 0.0, 0.0], [0.0, 0.0, 1.0, -1.5, 0.0]])
LIMITS = np.array([0.1, 0.3, 0.2])


def sparse(rows: list[int]) -> SparseRows:
    selected = DENSE[rows]
    row, column = np.nonzero(selected)
    return SparseRows.from_entries(row, column, selected[row, column], LIMITS[rows], SIZES.size)


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
    bounds = [-program.bound(rows, LIMITS, rng.exponential(0.3, 3)) for _ in range(200)]
    assert min(bounds) >= max(feasible)
    assert -program.bound(rows, LIMITS, np.zeros(3)) == pytest.approx(
        (0.5 * (1 - 2 * least) + 0.1 * 2 * least) + (0.7 * (1 - 2 * least) + 0.1 * least)
    )


def test_value_and_bound_meet_and_the_multipliers_make_the_bound() -> None:
    program = BlockProgram(GAINS, SIZES, BLOCKS)
    reports = list[Progress]()
    start = start_at(Dense.safe)
    result = minimize_with_rows(program, Dense(), SolveOptions(), start=start, report=reports.append)
    assert result.status is Status.OPTIMAL
    assert result.value == reports[-1].value == pytest.approx(result.bound, abs=1e-9)
    assert np.all(DENSE @ result.point <= LIMITS + 1e-9)
    y = np.zeros(3)
    for multiplier, row in result.multipliers:
        y[row] += multiplier
    assert -program.bound(sparse([0, 1, 2]), LIMITS, y) == pytest.approx(result.bound, abs=1e-12)


def test_a_time_limit_and_an_interrupt_keep_the_best_so_far() -> None:
    program = BlockProgram(GAINS, SIZES, BLOCKS)
    best = minimize_with_rows(program, Dense(), SolveOptions(), start=start_at(Dense.safe))
    late = minimize_with_rows(program, Dense(), SolveOptions(time_limit=0.0), start=start_at(Dense.safe))
    assert late.status is Status.TIME_LIMIT
    assert float(GAINS @ Dense.safe) <= late.value <= best.bound <= late.bound

    class Interrupted(Dense):
        calls = 0

        def separate(self, point: Array, **how: object) -> Separation:
            self.calls += 1
            if self.calls == 2:
                raise KeyboardInterrupt
            return super().separate(point, **how)

    stopped = minimize_with_rows(program, Interrupted(), SolveOptions(), start=start_at(Dense.safe))
    assert stopped.status is Status.INTERRUPTED
    assert float(GAINS @ Dense.safe) <= stopped.value <= stopped.bound


def test_a_solver_that_gives_up_leaves_a_valid_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    program = random_program(1)
    master = Master(program)
    monkeypatch.setattr(master._highs, "getModelStatus", lambda: None)
    solution = master.solve()
    assert solution.status is Status.FAILED
    assert solution.bound <= truth(program) + 1e-12


def test_no_ties_are_left_where_the_gap_closes() -> None:
    """The extra cost takes part from the first round on."""

    class Content:
        def separate(self, point: np.ndarray, *, thorough: bool, deadline: float) -> Separation:  # noqa: ARG002
            return Separation(np.empty((0, point.size)), np.empty(0), point, thorough=True)

    program = LinearProgram(-np.ones(3), np.ones((1, 3)), np.array([1.5]))
    for first in (0, 2):
        tie_break = np.full(3, 2e-12)
        tie_break[first] = 1e-12
        tie_break[1] = 3e-12
        result = minimize_with_rows(program, Content(), SolveOptions(), tie_break=tie_break)
        assert (result.status, result.rounds) == (Status.OPTIMAL, 1)
        assert result.point[first] == pytest.approx(1.0)
        assert result.point[1] == pytest.approx(0.0)
