"""The optimum against the reference, against closed forms, and under interruption."""

import json
from collections.abc import Callable
from dataclasses import astuple, replace
from fractions import Fraction
from functools import partial
from importlib.util import find_spec
from itertools import count
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from darrm import PrivacyParams, Problem, Table, Voters, optimize_table, priors
from darrm.errors import SolveError
from darrm.majority.corners import budget_below
from darrm.majority.dominating import DominatingFamily
from darrm.majority.full_set import FullSet
from darrm.majority.noise_function import NoiseFunction
from darrm.optimize import SolveOptions, noise_functions, optimizer
from darrm.optimize.noise_functions import PrivacyOracle
from darrm.optimize.optimizer import optimize_many
from lp_models.gamma_lp import Shape
from lp_models.options import Progress
from lp_models.program import LinearProgram, Status
from lp_models.row_generation import Result, minimize_with_rows
from tests.optimality import optimality_of
from tests.oracle import all_coefficients, lowest_partner, privacy_cost
from tests.strategies import gammas, problems

PRIORS = (priors.Independent(0.5, 1.0), priors.Independent(0.7, 1.0), priors.Dirichlet(), priors.Point(0.8))


def random_setting(seed: int) -> tuple[Problem, priors.Prior, str]:
    """Draw a problem: K ≤ 9, fractional m, ε from 0.02 to 2, Δ from 0 to 0.01, δ default and larger."""
    rng = np.random.default_rng(seed)
    delta = rng.choice(["0", "1e-6", "1e-4", "0.01"])
    K = int(rng.integers(1, 8 if delta != "0" and seed % 4 else 10))
    m = f"{rng.uniform(1, K):.3f}" if seed % 3 else str(int(rng.integers(1, K + 1)))
    each = PrivacyParams(f"{np.exp(rng.uniform(np.log(0.02), np.log(2))):.4f}", str(delta))
    problem = Problem.from_allowance(Voters(K, each), m, delta=None if seed % 2 else "0.07")
    return problem, PRIORS[seed % len(PRIORS)], ("free", "monotone")[(seed // 4) % 2]


@pytest.mark.parametrize("seed", [pytest.param(seed, marks=[pytest.mark.slow] * (seed >= 24)) for seed in range(64)])
def test_production_solver_agrees_with_every_row_written_down(seed: int) -> None:
    check_against_reference(*random_setting(seed))


def check_against_reference(problem: Problem, prior: priors.Prior, shape: str) -> None:
    table = optimize_table(problem, prior=prior, shape=shape)
    production = optimality_of(table)
    reference = optimality_of(optimize_table(problem, prior=prior, shape=shape, solver="reference"))
    assert production.value == pytest.approx(reference.value, abs=1e-8)
    # each solver's bound is below the other's proven value
    assert production.bound <= reference.value + 1e-15
    assert reference.bound <= production.value + 1e-15
    assert production.gap <= 1e-8
    assert shape == "free" or table.gamma.is_monotone
    # every row of the paper's set holds for the returned γ
    assert np.max(all_coefficients(problem) @ table.gamma.half) <= problem.budget + 1e-15


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("shape", ["free", "monotone"])
@pytest.mark.parametrize("prior", [priors.Independent(0.5, 1.0), priors.Dirichlet()])
@pytest.mark.parametrize("K", [3, 11, 101])
def test_optimum_at_allowance_one_is_the_mean_vote(K: int, prior: priors.Prior, shape: str) -> None:
    problem = Problem.from_allowance(Voters(K, PrivacyParams("0.1")), 1)
    mean_vote = NoiseFunction(K, np.abs(2 * np.arange(K // 2 + 1, K + 1) - K) / K)
    table = optimize_table(problem, prior=prior, shape=shape)
    assert optimality_of(table).value == pytest.approx(mean_vote.expected_error(prior), abs=1e-9)


@pytest.mark.parametrize("shape", ["free", "monotone"])
@pytest.mark.parametrize(("K", "overlap", "delta"), [(7, 1, "0.01"), (7, 3, "0"), (8, 5, "0.01"), (6, 6, "0.001")])
def test_production_solver_with_an_overlap_agrees_with_every_row_written_down(
    K: int, overlap: int, delta: str, shape: str
) -> None:
    problem = Problem.from_allowance(Voters(K, PrivacyParams("0.8", delta), overlap=overlap), "1.7")
    check_against_reference(problem, priors.Dirichlet(), shape)


@pytest.mark.parametrize("delta", ["0", "1e-5"])
def test_the_optimum_of_eleven_voters_has_the_reference_errors(delta: str) -> None:
    problem = Problem.from_allowance(Voters(11, PrivacyParams("0.1", delta)), 3)
    for prior, error in ((None, 0.0413), (priors.Dirichlet(), 0.0256)):
        assert optimality_of(optimize_table(problem, prior=prior)).value == pytest.approx(error, abs=5e-5)


def test_the_error_rises_with_the_overlap() -> None:
    errors = []
    for overlap in range(1, 12):
        problem = Problem.from_allowance(Voters(11, PrivacyParams("0.1", "1e-5"), overlap), 3)
        optimality = optimality_of(optimize_table(problem, prior=priors.Dirichlet(), shape="monotone"))
        assert optimality.gap <= 1e-8
        errors.append(round(optimality.value, 4))
    assert errors == [0.0, 0.0, 0.0, 0.0062, 0.0090, 0.0155, 0.0222, 0.0256, 0.0256, 0.0256, 0.0256]


def test_disjoint_private_voters_need_no_noise() -> None:
    problem = Problem.from_allowance(Voters(41, PrivacyParams("0.1", "1e-5"), overlap=1), 1)
    assert np.all(optimize_table(problem).gamma.half >= 1.0 - 2.0**-40)


@given(data=st.data(), problem=problems(most_voters=12), K=st.integers(1, 50))
def test_a_stretched_row_is_a_row_of_more_voters(data: st.DataObject, problem: Problem, K: int) -> None:
    """With the moved voters of a row and its frozen ones, for any other number of voters."""
    family = DominatingFamily(problem.voters)
    maxima = family.maxima(data.draw(gammas(problem.voters.K)).half, FullSet(problem.voters, Fraction(1)).exp_epsilon)
    row = family.row(maxima, data.draw(st.integers(0, problem.voters.reached)))
    stretched = row.stretch(K)
    assert stretched.is_row_of(replace(problem.voters, K=K, overlap=None))
    assert row.stretch(problem.voters.K) == row
    for many, few in zip(astuple(stretched)[:4], astuple(row)[:4], strict=True):
        assert abs(many - few * K / problem.voters.K) <= 1.0


@pytest.mark.parametrize("overlap", [None, 10])
def test_rows_of_fewer_voters_save_rounds_without_changing_the_optimum(
    overlap: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The optimum is the same with and without them; rows that touch more than the overlap would bound it falsely."""
    problem = Problem.from_allowance(Voters(1301, PrivacyParams("0.1", "1e-5"), overlap), 5)
    solve = partial(optimize_table, problem, prior=priors.Dirichlet(), shape="monotone", options=SolveOptions(gap=1e-6))
    stretched = solve()
    assert all(row.is_row_of(problem.voters) for _, row in optimality_of(stretched).multipliers or ())
    monkeypatch.setattr(noise_functions, "_MIN_START_VOTERS", 10**6)
    plain = solve()
    bounds, values = zip(*((o.bound, o.value) for o in map(optimality_of, (stretched, plain))), strict=True)
    assert max(bounds) <= min(values)
    assert overlap or int(stretched.provenance["rounds"]) < int(plain.provenance["rounds"])


class TestAnytime:
    problem = Problem.from_allowance(Voters(151, PrivacyParams("0.1", "1e-5")), 10)

    @pytest.mark.parametrize(
        ("options", "rounds", "status"),
        [
            (SolveOptions(time_limit=0.0), None, "time limit"),
            (SolveOptions(gap=0.5), None, "optimal"),
            (SolveOptions(), 1, "interrupted"),
            (SolveOptions(), 3, "interrupted"),
        ],
    )
    def test_an_early_end_keeps_proof_and_bound(self, options: SolveOptions, rounds: int | None, status: str) -> None:
        def interrupt(progress: Progress) -> None:
            if progress.rounds == rounds:
                raise KeyboardInterrupt

        table = optimize_table(self.problem, prior=priors.Dirichlet(), options=options, report=interrupt)
        best = optimality_of(optimize_table(self.problem, prior=priors.Dirichlet()))
        optimality = optimality_of(table)
        assert optimality.status == status
        assert table.certificate.worst_cost <= table.certificate.budget
        assert optimality.bound <= best.value
        assert best.bound <= optimality.value <= 0.3
        if options.gap == 0.5:
            assert 0.0 < optimality.gap <= 0.5 * optimality.value

    @pytest.mark.quick_cases(1)
    @pytest.mark.parametrize("each_delta", ["0", "1e-5"])
    def test_an_interrupt_while_fewer_voters_are_solved_keeps_proof_and_bound(
        self, each_delta: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The stretched γ is proved, and the stretched rows bound every γ, though nothing was solved for these K."""
        problem = Problem.from_allowance(Voters(1301, PrivacyParams("0.1", each_delta)), 10)
        solve = partial(optimize_table, problem, prior=priors.Dirichlet(), shape="monotone")
        best = optimality_of(solve(options=SolveOptions(gap=1e-6)))

        calls = count(1)

        def interrupted(*args: Any, **options: Any) -> Result:
            next(calls)
            return replace(minimize_with_rows(*args, **options), status=Status.INTERRUPTED)

        monkeypatch.setattr(noise_functions, "minimize_with_rows", interrupted)
        table = solve()
        assert next(calls) == 2  # nothing was solved for after the interruption
        assert optimality_of(table).status == "interrupted"
        assert table.certificate.worst_cost <= table.certificate.budget
        assert optimality_of(table).bound <= best.value <= optimality_of(table).value + best.gap
        coin = table.gamma.scale_by(0.0).expected_error(priors.Dirichlet())
        assert optimality_of(table).value < 0.5 * coin
        assert optimality_of(table).bound > 0.3 * best.value

    def test_reported_bounds_rise_and_gaps_shrink(self) -> None:
        reports: list[Progress] = []
        optimize_table(self.problem, prior=priors.Dirichlet(), report=reports.append)
        bounds = [progress.bound for progress in reports]
        assert bounds == sorted(bounds)
        assert reports[-1].value - reports[-1].bound < 1e-3 * (reports[0].value - reports[0].bound)


def hard_problem(K: int, m: str, epsilon: str, each_delta: str, delta: str | None = None) -> Problem:
    return Problem.from_allowance(Voters(K, PrivacyParams(epsilon, each_delta)), m, delta=delta)


@pytest.mark.parametrize(
    ("problem", "prior"),
    [
        (hard_problem(41, "5", "0.001", "1e-5"), "uniform:0.5,1"),
        (hard_problem(41, "5", "5", "1e-5"), "common"),
        (hard_problem(21, "3.7", "0.1", "0.1"), "common"),
        (hard_problem(21, "3", "0.1", "0", "0.999"), "uniform:0.5,1"),
        (hard_problem(41, "1.0000001", "0.1", "1e-5"), "common"),
        (hard_problem(41, "20.9999", "0.1", "1e-5"), "common"),
        *((hard_problem(K, "1.5", "0.1", "1e-5"), "common") for K in (2, 10)),
        pytest.param(hard_problem(250, "1.5", "0.1", "1e-5"), "common", marks=pytest.mark.slow),
        (hard_problem(101, "7", "0.1", "1e-5"), "point:0.500001"),
        pytest.param(hard_problem(501, "10", "0.1", "0"), "uniform:0.5,1", marks=pytest.mark.slow),
        pytest.param(hard_problem(501, "10", "0.1", "1e-5"), "uniform:0.5,1", marks=pytest.mark.slow),
        (hard_problem(101, "60", "5", "0.01"), "common"),
    ],
)
@pytest.mark.parametrize("shape", ["free", "monotone"])
def test_a_numerically_hard_problem_is_solved_to_its_gap(problem: Problem, prior: str, shape: str) -> None:
    K = problem.voters.K
    belief = priors.parse(prior)
    table = optimize_table(problem, prior=belief, shape=shape)
    optimality = optimality_of(table)
    assert table.certificate.worst_cost <= table.certificate.budget == budget_below(problem.target)
    coin = 0.5 * float(np.sum(belief.weights(K)))
    assert 0.0 <= optimality.value <= coin
    assert optimality.gap <= max(1e-7 * optimality.value, 1e-11 * coin)
    rng = np.random.default_rng(K)
    p = rng.beta(0.2, 0.2, size=(500, K))
    assert np.max(privacy_cost(problem, table.gamma, p, lowest_partner(p, problem.voters.each))) <= problem.budget


def test_levels_without_weight_get_a_sensible_gamma() -> None:
    # U[0.5, 1] at K = 501 gives the levels near the tie weights below 1e-30; they must not be left at 0
    problem = Problem.from_allowance(Voters(501, PrivacyParams("0.1", "1e-5")), 10)
    monotone = optimize_table(problem, shape="monotone")
    assert monotone.gamma.half[0] > 0.3


@pytest.mark.slow
@pytest.mark.parametrize("shape", ["free", "monotone"])
def test_levels_without_weight_do_not_slow_down_many_voters(shape: str) -> None:
    """A tie-break of 1e-8 stood in the way of the bound: a relative gap of 7e-6 after a minute at K = 2,001."""
    problem = Problem.from_allowance(Voters(1201, PrivacyParams("0.1", "1e-5")), 5)
    table = optimize_table(problem, shape=shape, options=SolveOptions(gap=1e-6, time_limit=300.0))
    optimality = optimality_of(table)
    assert optimality.status == "optimal"
    assert optimality.gap <= 1e-6 * optimality.value
    assert table.certificate.worst_cost <= table.certificate.budget
    early = optimize_table(problem, shape=shape, options=SolveOptions(time_limit=1.0))  # ends within the first part
    assert optimality_of(early).bound <= optimality.value
    assert optimality.bound <= optimality_of(early).value


@pytest.mark.parametrize("prior", [None, priors.Dirichlet()], ids=["silent", "common"])
def test_a_second_part_without_time_keeps_the_bound_of_the_first(
    prior: priors.Prior | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    # a silent prior is solved for beside a common one first, a free γ from a monotone one
    shape = Shape.MONOTONE if prior is None else Shape.FREE

    def out_of_time(program: LinearProgram, oracle: PrivacyOracle, options: SolveOptions, **how: Any) -> Result:
        is_second = how["tie_break"] is not None or oracle.shape is Shape.FREE
        return minimize_with_rows(program, oracle, replace(options, time_limit=0.0) if is_second else options, **how)

    monkeypatch.setattr(noise_functions, "minimize_with_rows", out_of_time)
    problem = Problem.from_allowance(Voters(901, PrivacyParams("0.1")), 5)
    table = optimize_table(problem, prior=prior, shape=shape.value, options=SolveOptions(gap=1e-6))
    optimality = optimality_of(table)
    assert optimality.status == "time limit"
    assert optimality.gap <= 5e-2 * optimality.value  # of no row it would be nearly 1


def large_problem() -> Problem:
    """Solved from coarse to fine: a free γ after a monotone one."""
    return Problem.from_allowance(Voters(301, PrivacyParams("0.1")), 5)


def test_an_interrupt_of_the_monotone_part_ends_the_free_solve() -> None:
    def stopped(shape: str) -> tuple[Table, int]:
        rounds: list[int] = []

        def interrupt(now: Progress) -> None:
            rounds.append(now.rounds)
            if len(rounds) == 5:
                raise KeyboardInterrupt

        return optimize_table(large_problem(), prior=priors.Dirichlet(), shape=shape, report=interrupt), len(rounds)

    (free, rounds), (monotone, _) = stopped("free"), stopped("monotone")
    assert rounds == 5
    assert optimality_of(free).status == "interrupted"
    assert optimality_of(free).value == optimality_of(monotone).value < 0.4
    assert optimality_of(free).bound <= optimality_of(free).value


def test_time_may_run_out_between_two_parts_of_a_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    seconds = count(0.0, 4.0)
    monkeypatch.setattr(noise_functions, "time", SimpleNamespace(perf_counter=lambda: next(seconds)))
    problem = Problem.from_allowance(Voters(11, PrivacyParams("1", "1e-5")), 2)
    table = optimize_table(problem, prior="uniform", draws=500, options=SolveOptions(time_limit=3.0))
    assert optimality_of(table).value < 0.1  # the result of the first part


@pytest.mark.parametrize("epsilon", ["40", "300"])
def test_a_failing_reference_solver_advises_the_production_solver(epsilon: str) -> None:
    problem = Problem.from_allowance(Voters(2, PrivacyParams(epsilon, "1e-300")), 1)
    with pytest.raises(SolveError, match="the reference solver found no optimum: try --solver production"):
        optimize_table(problem, solver="reference")


# two sweeps, taken in turns, so that order and groups differ
SWEEP = [
    Problem.from_allowance(Voters(K, PrivacyParams("0.1", delta)), m)
    for m in (2, 3, 5)
    for K, delta in ((17, "1e-4"), (11, "0"))
]


def count_rounds(table: Table) -> int:
    return int(dict(table.provenance)["rounds"])


@pytest.mark.parametrize("shape", [pytest.param("free", marks=pytest.mark.slow), "monotone"])
def test_optimize_many_finds_the_single_optima_in_fewer_rounds(shape: str) -> None:
    tables = optimize_many(SWEEP, shape=shape)
    singles = [optimize_table(problem, shape=shape) for problem in SWEEP]
    assert [table.problem for table in tables] == SWEEP
    for table, single in zip(tables, singles, strict=True):
        assert optimality_of(table).value == pytest.approx(optimality_of(single).value, rel=0, abs=1e-9)
        # each bound is proved for the other as well
        assert optimality_of(table).bound <= optimality_of(single).value + 1e-15
        assert table.certificate.worst_cost <= table.certificate.budget
    assert sum(map(count_rounds, tables)) < sum(map(count_rounds, singles))


@pytest.mark.slow
@pytest.mark.skipif(find_spec("joblib") is None, reason="needs the extra sampling")
def test_optimize_many_gives_the_same_tables_with_two_processes() -> None:
    one, two = (optimize_many(SWEEP, shape="monotone", jobs=jobs) for jobs in (1, 2))
    assert [json.dumps(table.to_json()) for table in one] == [json.dumps(table.to_json()) for table in two]


def test_a_start_with_another_overlap_lends_no_rows() -> None:
    near = optimize_table(SWEEP[0])
    # with a smaller overlap most rows of the other are none: they would forbid a better γ
    voters = Voters(31, PrivacyParams("0.1", "1e-4"), overlap=2)
    problem = Problem.from_allowance(voters, 2)
    table, single = optimize_table(problem, start=near), optimize_table(problem)
    assert optimality_of(table).value == pytest.approx(optimality_of(single).value, rel=1e-8)
    assert optimality_of(single).value < optimality_of(near).value


def test_optimize_many_accepts_problems_of_different_classes() -> None:
    voters = Voters(3, PrivacyParams("inf"), overlap=1)
    sweep = [Problem(voters, PrivacyParams(epsilon), classes) for epsilon in (1, 2) for classes in (3, 2)]
    tables = optimize_many(sweep)
    assert [table.problem for table in tables] == sweep


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: optimize_table(K=3, m=1, shape="round"), "shape must be one of"),
        (lambda: optimize_table(K=3, m=1, objective="cubic"), "objective must be one of"),
        (lambda: optimize_table(K=3, m=1, solver="abacus"), "solver must be one of"),
        (lambda: optimize_table(SWEEP[0], start=SWEEP[0]), "start must be a Table"),  # type: ignore[arg-type]
        (lambda: SolveOptions(gap=float("nan")), "gap must be a number of at least 0"),
        (lambda: SolveOptions(gap=-1.0), "gap must be a number of at least 0"),
        (lambda: optimize_many([SWEEP[0], 3]), r"problems\[1\] must be a Problem, got 3"),  # type: ignore[list-item]
        (lambda: optimize_many([], shape="round"), "shape must be one of"),
        *((partial(optimize_many, SWEEP, jobs=jobs), "-1 for all cores") for jobs in (0, -2, 1.5)),  # type: ignore[arg-type]
    ],
)
def test_optimize_refuses_arguments_out_of_range(call: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()


def test_optimize_many_without_joblib_names_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(module: str) -> None:
        raise ValueError(f"this needs the package {module}")

    monkeypatch.setattr(optimizer, "require", refuse)
    with pytest.raises(ValueError, match="needs the package joblib"):
        optimize_many(SWEEP, jobs=2)
