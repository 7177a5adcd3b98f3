"""Row generation, with oracles that lie, give up, or take long; and programs restricted to knots."""

import itertools
from types import SimpleNamespace

import numpy as np
import pytest

from lp_models import row_generation
from lp_models.gamma_lp import Shape, expected_error_program
from lp_models.highs import Hats, Knots, Master, Ramps
from lp_models.options import Progress, SolveOptions
from lp_models.program import Array, LinearProgram, Solution, Status
from lp_models.row_generation import Separation, minimize_with_rows
from tests.lp_models.test_programs import ListOracle, random_program, truth

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
        x = knots.prolong(z)
        assert x.shape == (n,)
        assert np.min(x) >= 0.0
        assert np.max(x) <= 1.0
        np.testing.assert_allclose(knots.restrict(rows) @ z, rows @ x, atol=1e-12)
        np.testing.assert_allclose(knots.restrict(rows[0]), knots.restrict(rows)[0], rtol=0)
        if knots.is_full:
            break
        finer = knots.refine()
        assert set(knots.starts.tolist()) < set(finer.starts.tolist())
        np.testing.assert_allclose(finer.prolong(_on_finer(knots, finer, z)), x, atol=1e-12)
        knots = finer
    assert np.array_equal(knots.prolong(z), z)


def _on_finer(knots: Knots, finer: Knots, z: np.ndarray) -> np.ndarray:
    """Say the same x on finer knots: what a coarse point can do, a finer one can."""
    x = knots.prolong(z)
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
        knots = knots.refine()
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
        repaired = Ramps.spread(60, 4).repair(duals, program.cost + duals @ program.matrix)
        assert np.array_equal(duals, given)  # the caller's
        assert np.array_equal(repaired[1:], duals[1:])
        best = program.bound(program.matrix, program.limits, repaired)
        for other in np.linspace(0.0, 60.0, 601):
            assert program.bound(program.matrix, program.limits, np.array([other, *duals[1:]])) <= best + 1e-12


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


UNIT = LinearProgram(-np.ones(3), np.ones((1, 3)), np.array([1.5]))  # its optimum is −1.5


def no_rows(point: Array, feasible: Array, *, thorough: bool) -> Separation:
    return Separation(np.empty((0, point.size)), np.empty(0), feasible, thorough)


class Labels(ListOracle):
    """Knows its rows by their numbers; a cheap look sees as many of them as it is told."""

    def __init__(self, program: LinearProgram, seen: int | None = None) -> None:
        super().__init__(program)
        self.seen = seen

    def separate(self, point: Array, *, thorough: bool, deadline: float) -> Separation:
        del deadline
        looked_at = np.arange(self.program.limits.size)[: None if thorough else self.seen]
        ratios = self.program.matrix[looked_at] @ point / self.program.limits[looked_at]
        broken = [row for row in np.argsort(-ratios)[:2].tolist() if ratios[row] > 1.0 + 1e-12]
        feasible = point / max(1.0, float(np.max(ratios, initial=0.0)))
        return Separation(
            self.program.matrix[broken], self.program.limits[broken], feasible, thorough=thorough, labels=broken
        )


@pytest.mark.parametrize("seen", [0, 50, 200])
@pytest.mark.parametrize("seed", range(4))
def test_the_multipliers_make_the_bound_and_the_reports_tell_how_it_came(seen: int, seed: int) -> None:
    program = random_program(seed, rows=200, n=12)
    start = LinearProgram(program.cost, np.empty((0, 12)), np.empty(0), program.offset)
    reports = list[Progress]()
    result = minimize_with_rows(start, Labels(program, seen), SolveOptions(), report=reports.append)
    expected = truth(program)
    assert result.status is Status.OPTIMAL
    assert result.value == pytest.approx(expected, abs=1e-8)
    assert np.max(program.matrix @ result.point - program.limits) <= 1e-12
    duals = np.zeros(200)
    for multiplier, row in result.multipliers:
        assert multiplier > 0.0
        duals[row] += multiplier
    assert program.bound(program.matrix, program.limits, duals) == pytest.approx(result.bound, abs=1e-12)
    assert [each.rounds for each in reports] == list(range(1, result.rounds + 1))
    assert all(before.bound <= after.bound for before, after in itertools.pairwise(reports))
    assert reports[-1].rows == result.rows_generated  # none is dropped below a hundred


def test_a_bound_never_falls(monkeypatch: pytest.MonkeyPatch) -> None:
    """A solve that gave up has multipliers as good as none; those of an earlier round stay."""
    solve, solved = Master.solve, list[Solution]()

    def worse(self: Master, seconds: float = np.inf) -> Solution:
        solved.append(solve(self, seconds))
        if len(solved) == 1:
            return solved[0]
        return Solution(solved[0].point, 0.0 * solved[0].duals, solved[0].value, -3.0, Status.OPTIMAL)

    monkeypatch.setattr(Master, "solve", worse)
    oracle = SimpleNamespace(separate=lambda point, **_: no_rows(point, 0.9 * point, thorough=True))
    result = minimize_with_rows(UNIT, oracle, SolveOptions())
    assert (result.status, result.rounds) == (Status.STALLED, 2)
    assert result.bound == pytest.approx(-1.5)
    assert [multiplier for multiplier, _ in result.multipliers] == pytest.approx([1.0])


def test_a_start_that_was_not_looked_at_thoroughly_is_no_answer() -> None:
    program = random_program(3, rows=40)
    start = Separation(np.empty((0, 8)), np.empty(0), np.ones(8), thorough=False)
    empty = LinearProgram(program.cost, np.empty((0, 8)), np.empty(0), program.offset)
    result = minimize_with_rows(empty, ListOracle(program), SolveOptions(), start=start)
    assert result.value == pytest.approx(truth(program), abs=1e-8)
    assert np.max(program.matrix @ result.point - program.limits) <= 1e-12


def test_ties_are_not_broken_at_the_price_of_the_value() -> None:
    """Nothing moves in four rounds; then, with the extra cost, the oracle's points are far worse."""
    looks = list[float]()

    def separate(point: Array, **_: object) -> Separation:
        looks.append(0.9 if len(looks) < 4 else 0.5)
        return no_rows(point, looks[-1] * point, thorough=True)

    result = minimize_with_rows(
        UNIT, SimpleNamespace(separate=separate), SolveOptions(), tie_break=np.array([1e-12, 0.0, 0.0])
    )
    assert looks[-1] == 0.5
    assert result.value == pytest.approx(-0.9 * 1.5)
    assert UNIT.cost @ result.point == result.value


def test_an_interrupt_leaves_the_most_promising_point_looked_at() -> None:
    looks = list[bool]()

    def separate(point: Array, *, thorough: bool, deadline: float) -> Separation:
        assert deadline == np.inf
        looks.append(thorough)
        if looks == [False, False]:
            raise KeyboardInterrupt
        feasible = 0.8 * point if thorough else 0.9 * point
        return Separation(np.eye(3)[:1], np.array([0.95 - 0.1 * len(looks)]), feasible, thorough)

    poor = Separation(np.empty((0, 3)), np.empty(0), np.full(3, 0.1), thorough=True)
    result = minimize_with_rows(UNIT, SimpleNamespace(separate=separate), SolveOptions(), start=poor)
    assert (result.status, looks) == (Status.INTERRUPTED, [False, False, True])
    assert result.value == pytest.approx(-0.8 * 0.9 * 1.5)


def test_without_time_for_one_look_the_answer_is_the_masters() -> None:
    def separate(point: Array, **_: object) -> Separation:
        assert point.size == 3
        raise TimeoutError

    result = minimize_with_rows(UNIT, SimpleNamespace(separate=separate), SolveOptions())
    assert result.status is Status.TIME_LIMIT
    assert result.value == np.inf  # nothing was looked at
    assert result.point.sum() == pytest.approx(1.5)


def test_a_round_begins_in_time_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """An oracle that always finds one more row, ten seconds later, and never says that time is up."""
    now = [0.0]

    def separate(point: Array, **_: object) -> Separation:
        now[0] += 10.0
        return Separation(np.ones((1, 3)), np.array([1.5 - 0.001 * now[0]]), 0.5 * point, thorough=True)

    monkeypatch.setattr(row_generation, "time", SimpleNamespace(perf_counter=lambda: now[0]))
    begun, solve = list[float](), Master.solve

    def timed(self: Master, seconds: float) -> Solution:
        assert seconds == 36.0 - now[0]  # a tenth of the limit is left for a look at all rows
        begun.append(now[0])
        return solve(self)

    monkeypatch.setattr(Master, "solve", timed)
    result = minimize_with_rows(UNIT, SimpleNamespace(separate=separate), SolveOptions(time_limit=40.0))
    assert (result.status, begun) == (Status.TIME_LIMIT, [0.0, 10.0, 20.0, 30.0])


def test_time_is_left_for_a_look_at_all_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Looks that end when they are told to: without a tenth of the limit the best point would have no value."""
    now = [0.0]

    def separate(point: Array, *, thorough: bool, deadline: float) -> Separation:
        now[0] = min(now[0] + (3.0 if thorough else 10.0), deadline)
        if now[0] == deadline:
            raise TimeoutError
        row, limit = np.ones((1, 3)), np.array([1.5 - 0.001 * now[0]])
        return Separation(row, limit, 0.5 * point, thorough=thorough)

    monkeypatch.setattr(row_generation, "time", SimpleNamespace(perf_counter=lambda: now[0]))
    result = minimize_with_rows(UNIT, SimpleNamespace(separate=separate), SolveOptions(time_limit=40.0))
    assert (result.status, now[0]) == (Status.TIME_LIMIT, 39.0)
    assert np.isfinite(result.value)


def test_a_coarse_master_that_fails_is_refined(monkeypatch: pytest.MonkeyPatch) -> None:
    program, solve = smooth_program(Hats, 2), Master.solve

    def failing(self: Master, seconds: float = np.inf) -> Solution:
        if self.knots is None or self.knots.is_full:
            return solve(self, seconds)
        nothing, duals = np.zeros(program.cost.size), np.zeros(self.limits.size)
        return Solution(nothing, duals, self.value(nothing), -np.inf, Status.FAILED)

    monkeypatch.setattr(Master, "solve", failing)
    result = minimize_with_rows(program, ListOracle(program), SolveOptions(), knots=Hats.spread(60, 4))
    assert result.status is Status.OPTIMAL
    assert result.value == pytest.approx(truth(program), abs=1e-7)


@pytest.mark.parametrize("helps", ["the warm start", "a fresh start", "perturbed costs", "presolve"])
def test_a_run_that_ends_without_an_optimum_is_tried_in_other_ways(helps: str, monkeypatch: pytest.MonkeyPatch) -> None:
    run, tried = Master._run_once, list[tuple[float, str]]()
    needed = {"the warm start": 1, "a fresh start": 2, "perturbed costs": 3, "presolve": 4}[helps]

    def cycling(self: Master, seconds: float) -> bool:
        perturbed = self._highs.getOptionValue("dual_simplex_cost_perturbation_multiplier")[1]
        tried.append((perturbed, self._highs.getOptionValue("presolve")[1]))
        return run(self, seconds) and len(tried) >= needed

    monkeypatch.setattr(Master, "_run_once", cycling)
    master = Master(UNIT)
    assert (master.solve().status, tried) == (
        Status.OPTIMAL,
        [(0.0, "off"), (0.0, "off"), (1.0, "off"), (0.0, "on")][:needed],
    )
    assert master.solve().value == pytest.approx(-1.5)
    assert tried[-1] == (0.0, "off")  # as at first


def test_a_cheap_value_below_the_bound_does_not_keep_the_loop_alive() -> None:
    looks = [0]

    def separate(point: Array, *, thorough: bool, deadline: float) -> Separation:
        assert deadline == np.inf
        looks[0] += 1
        assert looks[0] < 100, "standing still was taken for moving"
        return no_rows(point, (0.9 if thorough else 1.0 + 1e-6) * point, thorough=thorough)

    result = minimize_with_rows(UNIT, SimpleNamespace(separate=separate), SolveOptions())
    assert (result.status, result.rounds) == (Status.STALLED, 2)
    assert result.value == pytest.approx(-0.9 * 1.5)
