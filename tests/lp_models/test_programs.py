"""Linear programs of both forms against scipy and cvxpy: optima, and bounds from any multipliers."""

from pathlib import Path
from types import SimpleNamespace

import highspy
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from darrm import PrivacyParams, Problem, Voters, optimize_table
from darrm.majority.corners import full_set_size
from lp_models import gamma_program
from lp_models.gamma_lp import Shape, expected_error_program
from lp_models.highs import Master
from lp_models.options import Progress, SolveOptions
from lp_models.program import Array, BlockProgram, LinearProgram, SparseRows, Status
from lp_models.reference import solve_with_cvxpy
from lp_models.row_generation import Separation, minimize_with_rows, start_at
from tests.lp_models.support import UNIT, oracle, random_program, solve_with_scipy
from tests.optimality import optimality_of


@pytest.mark.parametrize("seed", range(20))
def test_both_solvers_find_the_optimum(seed: int) -> None:
    program = random_program(seed)
    expected = solve_with_scipy(program)
    for solution in (Master(program).solve(), solve_with_cvxpy(program)):
        assert solution.status is Status.OPTIMAL
        assert solution.value == pytest.approx(expected, abs=1e-9)
        assert expected - 1e-9 <= solution.bound <= expected + 1e-12
        # complementary slackness: a row with slack has no multiplier
        slack = program.limits - program.matrix @ solution.point
        assert np.max(slack * solution.duals) <= 1e-8
        assert np.min(slack) >= -1e-9


@given(seed=st.integers(0, 5), duals=st.lists(st.floats(-1.0, 3.0), min_size=5, max_size=5))
def test_any_multipliers_give_a_bound(seed: int, duals: list[float]) -> None:
    program = random_program(seed, rows=5, n=3)
    assert program.bound(program.matrix, program.limits, np.array(duals)) <= solve_with_scipy(program) + 1e-12


@pytest.mark.parametrize(
    ("cost", "matrix", "limits"),
    [
        ([1.0], [[1.0, 2.0]], [1.0]),
        ([1.0, 2.0], [[1.0, 2.0]], [1.0, 2.0]),
        ([np.nan], [[1.0]], [1.0]),
        ([1.0], [[np.inf]], [1.0]),
    ],
)
def test_a_program_of_wrong_shapes_or_numbers_is_refused(
    cost: list[float], matrix: list[list[float]], limits: list[float]
) -> None:
    with pytest.raises(ValueError, match="linear program"):
        LinearProgram(np.array(cost), np.array(matrix), np.array(limits))


def test_a_program_copies_its_numbers() -> None:
    cost = np.array([-1.0])
    program = LinearProgram(cost, np.empty((0, 1)), np.empty(0))
    cost[0] = 5.0
    assert program.cost[0] == -1.0
    assert Master(program).solve().value == -1.0


def test_idle_rows_are_dropped_except_the_programs_own() -> None:
    master = Master(expected_error_program(np.ones(4), Shape.MONOTONE))
    # the last row binds, so that the program's own row and the first three are idle
    master.add_rows(np.vstack([np.eye(4)[:3], np.ones(4)]), np.array([9.0, 9.0, 9.0, 0.5]))
    for _ in range(3):
        master.solve()
    assert master.limits.size == 5
    master.drop_idle_rows(2)
    assert master.limits.tolist() == [1.0, 0.5]
    assert master.solve().value == pytest.approx(1.0, abs=1e-12)


@pytest.mark.parametrize("shape", list(Shape))
def test_shapes_describe_the_same_gamma(shape: Shape) -> None:
    rng = np.random.default_rng(3)
    gamma, weights, matrix = np.sort(rng.random(6)), rng.random(6), rng.normal(size=(5, 6))
    program = expected_error_program(weights, shape, matrix, np.ones(5))
    point = shape.gamma_to_variables(gamma)
    assert program.cost @ point + program.offset == pytest.approx(0.5 * weights @ (1.0 - gamma))
    np.testing.assert_allclose(program.matrix[-5:] @ point, matrix @ gamma, atol=1e-12)
    np.testing.assert_allclose(shape.variables_to_gamma(point), gamma, atol=1e-15)


@pytest.mark.parametrize("size", [None, 0, 3])
def test_a_solver_without_an_optimum_leaves_a_valid_bound(size: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a size it has no result either, only that many zeros."""
    program = random_program(0)
    master = Master(program)
    monkeypatch.setattr(master._highs, "getModelStatus", lambda: None)
    if size is not None:
        zeros = SimpleNamespace(col_value=[0.0] * size, row_dual=[0.0] * size)
        monkeypatch.setattr(master._highs, "getSolution", lambda: zeros)
    solution = master.solve()
    assert solution.status is Status.FAILED
    assert solution.bound <= solve_with_scipy(program) + 1e-12


def test_an_error_of_cvxpy_is_a_status(monkeypatch: pytest.MonkeyPatch) -> None:
    cvxpy = pytest.importorskip("cvxpy")

    def fail(*_: object, **__: object) -> None:
        raise cvxpy.error.SolverError("Solver 'HIGHS' failed.")

    monkeypatch.setattr(cvxpy.Problem, "solve", fail)
    solution = solve_with_cvxpy(random_program(0))
    assert solution.status is Status.FAILED
    assert solution.bound <= solve_with_scipy(random_program(0))


@pytest.mark.parametrize("scale", [0.0, 1e-320, 1e-305, 1e-289, 1e-200])
def test_rows_of_tiny_coefficients_reach_the_solver(scale: float) -> None:
    solution = Master(LinearProgram(np.array([-1.0, -2.0]), scale * np.ones((1, 2)), np.array([scale]))).solve()
    assert solution.status is Status.OPTIMAL
    assert solution.bound <= -2.0 + 1e-9


def test_a_master_stops_after_its_time_and_can_continue() -> None:
    rng = np.random.default_rng(0)
    program = LinearProgram(-rng.random(60), rng.random((90, 60)), rng.random(90) * 5.0 + 1.0)
    master = Master(program)
    stopped, solved = master.solve(0.0), master.solve()
    assert (stopped.status, solved.status) == (Status.FAILED, Status.OPTIMAL)
    assert stopped.bound <= solved.value + 1e-9
    assert solved.value == pytest.approx(solve_with_cvxpy(program).value, rel=1e-8)


@pytest.mark.parametrize(("help_", "num_runs"), [("warm", 1), ("fresh", 2), ("perturbed costs", 3), ("presolve", 4)])
def test_a_run_without_an_optimum_is_repeated_in_other_ways(
    help_: str, num_runs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    del help_
    run_once, runs = Master._run_once, list[tuple[float, str]]()

    def run(self: Master, seconds: float) -> bool:
        perturbation = self._highs.getOptionValue("dual_simplex_cost_perturbation_multiplier")[1]
        runs.append((perturbation, self._highs.getOptionValue("presolve")[1]))
        return run_once(self, seconds) and len(runs) >= num_runs

    monkeypatch.setattr(Master, "_run_once", run)
    master = Master(UNIT)
    assert master.solve().status is Status.OPTIMAL
    assert runs == [(0.0, "off"), (0.0, "off"), (1.0, "off"), (0.0, "on")][:num_runs]
    assert master.solve().value == pytest.approx(-1.5)
    assert runs[-1] == (0.0, "off")  # the options are restored


@pytest.mark.parametrize(
    ("K", "delta", "m", "overlap"), [(7, "0", 2, None), (5, "0.01", 2, None), (6, "1e-3", 3, None), (5, "0.01", 2, 3)]
)
def test_the_whole_program_has_the_optimum_of_the_generated_rows(
    K: int, delta: str, m: int, overlap: int | None, tmp_path: Path
) -> None:
    problem = Problem.from_allowance(Voters(K, PrivacyParams("0.5", delta), overlap=overlap), m)
    value = optimality_of(optimize_table(problem)).value
    whole = gamma_program(problem)
    assert len(whole.names) == len(set(whole.names)) == len(whole.program.matrix) == full_set_size(problem.voters)
    stated = whole.to_cvxpy()
    stated.solve()
    assert stated.value == pytest.approx(value, abs=1e-7)
    assert whole.solve().value == pytest.approx(value, abs=1e-9)
    path = tmp_path / "gamma.mps"
    whole.to_mps(path)
    text = path.read_text()
    assert all(name in text for name in (*whole.variables, whole.names[-1]))
    highs = highspy.Highs()
    highs.setOptionValue("output_flag", False)
    highs.readModel(str(path))
    highs.run()
    assert highs.getInfo().objective_function_value == pytest.approx(value, abs=1e-7)


def test_a_whole_program_of_too_many_rows_is_refused() -> None:
    with pytest.raises(ValueError, match="73,629,072 rows"):
        gamma_program(Problem.from_allowance(Voters(41, PrivacyParams("0.1", "1e-5")), 3))


# two blocks: one of shares of sizes 1 and 2, one of sizes 1, 1 and 1
SIZES, BLOCKS = np.array([1.0, 2.0, 1.0, 1.0, 1.0]), np.array([0, 0, 1, 1, 1])
GAINS = np.array([0.5, 0.2, 0.7, 0.1, 0.0])
DENSE = np.array([[1.0, 0.0, -2.0, 0.0, 0.0], [0.0, -0.5, 1.0, 0.0, 0.0], [0.0, 0.0, 1.0, -1.5, 0.0]])
LIMITS = np.array([0.1, 0.3, 0.2])
SAFE = np.array([0.1, 0.45, 0.2, 0.3, 0.5])  # breaks no row
PROGRAM = BlockProgram(GAINS, SIZES, BLOCKS)


def sparse(rows: list[int]) -> SparseRows:
    row, column = np.nonzero(DENSE[rows])
    return SparseRows.from_entries(row, column, DENSE[rows][row, column], LIMITS[rows], SIZES.size)


def separate_dense(point: Array, **_: object) -> Separation:
    """Answer the broken rows of ``DENSE``, and the nearest point on the way to the safe one."""
    broken = [int(row) for row in np.flatnonzero(DENSE @ point > LIMITS + 1e-12)]
    share = max([0.0, *((DENSE @ point - LIMITS) / (DENSE @ (point - SAFE)))[broken]])
    rows = sparse(broken)
    return Separation(rows, rows.limits, point + share * (SAFE - point), True, broken)


@pytest.mark.parametrize("least", [0.0, 0.05])
def test_no_feasible_point_of_a_block_program_exceeds_a_bound(least: float) -> None:
    rng = np.random.default_rng(4)
    program, rows = BlockProgram(GAINS, SIZES, BLOCKS, least), sparse([0, 1, 2])
    values = list[float]()
    while len(values) < 20:
        shares = np.concatenate([rng.dirichlet(np.ones(2)), rng.dirichlet(np.ones(3))]) / SIZES
        if np.all(DENSE @ shares <= LIMITS) and np.all(shares >= least):
            values.append(float(GAINS @ shares))
    bounds = [-program.bound(rows, LIMITS, rng.exponential(0.3, 3)) for _ in range(200)]
    assert min(bounds) >= max(values)
    assert -program.bound(rows, LIMITS, np.zeros(3)) == pytest.approx(
        (0.5 * (1 - 2 * least) + 0.1 * 2 * least) + (0.7 * (1 - 2 * least) + 0.1 * least)
    )


def test_the_multipliers_of_a_block_program_give_its_bound() -> None:
    reports = list[Progress]()
    result = minimize_with_rows(
        PROGRAM, oracle(separate_dense), SolveOptions(), start=start_at(SAFE), report=reports.append
    )
    assert result.status is Status.OPTIMAL
    assert result.value == reports[-1].value == pytest.approx(result.bound, abs=1e-9)
    assert np.all(DENSE @ result.point <= LIMITS + 1e-9)
    y = np.zeros(3)
    for multiplier, row in result.multipliers:
        y[row] += multiplier
    assert -PROGRAM.bound(sparse([0, 1, 2]), LIMITS, y) == pytest.approx(result.bound, abs=1e-12)


def test_a_stopped_block_program_keeps_its_best_point_and_bound() -> None:
    calls = list[Array]()

    def interrupt(point: Array, **_: object) -> Separation:
        calls.append(point)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return separate_dense(point)

    best = minimize_with_rows(PROGRAM, oracle(separate_dense), SolveOptions(), start=start_at(SAFE))
    late = minimize_with_rows(PROGRAM, oracle(separate_dense), SolveOptions(time_limit=0.0), start=start_at(SAFE))
    interrupted = minimize_with_rows(PROGRAM, oracle(interrupt), SolveOptions(), start=start_at(SAFE))
    assert (late.status, interrupted.status) == (Status.TIME_LIMIT, Status.INTERRUPTED)
    for result in (late, interrupted):
        assert float(GAINS @ SAFE) <= result.value <= best.bound <= result.bound + 1e-12
