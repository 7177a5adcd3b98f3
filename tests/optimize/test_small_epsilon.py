"""Tables for every ε from 1e-50 to 50: each is certified, and none is worse than drawing as many voters as allowed.

Certificates are checked against the definition of the cost in exact fractions, values against those of a larger ε,
whose optimum is the limit up to a part of m·ε.
"""

import random
from collections.abc import Callable
from fractions import Fraction

import pytest

from darrm import NoiseFunction, PrivacyParams, Problem, Voters, certify, optimize_table
from darrm.errors import CertificationError
from darrm.majority import baselines
from darrm.optimize import SolveOptions
from darrm.priors import Dirichlet, Prior
from darrm.table.table import Table
from tests.optimality import optimality_of
from tests.oracle import exact_budget, exact_worst_cost

KINDS = ("private", "private with Δ", "plain", "different", "private of classes", "plain of classes")
FEW, MANY = 24, 2_000


def to_fraction(value: float) -> Fraction:
    return Fraction(repr(value))


def random_problem(seed: int) -> tuple[Problem, str | None, Prior | None]:
    draw = random.Random(seed)  # noqa: S311 (problems, nothing secret)
    kind, epsilon = KINDS[seed % len(KINDS)], to_fraction(10.0 ** draw.uniform(-50.0, 1.69))
    K = draw.choice((1, 2, 3, 5, 8, 11, 20, 31, 51)) if kind[-1] not in "ts" else draw.randint(1, 6)
    shape, prior = draw.choice((None, "free", "monotone")), draw.choice((None, Dirichlet()))
    overlap = draw.choice((None, None, 1, max(1, K // 2)))
    m, classes = Fraction(draw.randint(10, 10 * K), 10), draw.randint(3, 4)
    delta = min(Fraction(1, 100), epsilon) * to_fraction(10.0 ** draw.uniform(-6.0, 0.0))
    plain = Voters(K, PrivacyParams("inf"), overlap)
    match kind:
        case "private":
            return Problem.from_allowance(Voters(K, PrivacyParams(epsilon), overlap), m), shape, prior
        case "private with Δ":
            return Problem.from_allowance(Voters(K, PrivacyParams(epsilon, delta), overlap), m), shape, prior
        case "plain":
            return Problem(plain, PrivacyParams(epsilon, draw.choice((Fraction(0), delta)))), shape, prior
        case "different":
            pairs = [PrivacyParams(epsilon * n / 10) for n in (1, 10, *(draw.randint(1, 10) for _ in range(K)))]
            return (
                Problem(Voters.of(pairs[: max(2, K)], overlap), PrivacyParams(epsilon * draw.randint(1, 2 * K))),
                None,
                prior,
            )
        case "private of classes":
            return Problem(Voters(K, PrivacyParams(epsilon)), PrivacyParams(epsilon * m), classes), None, None
        case _:
            return Problem(plain, PrivacyParams(epsilon, draw.choice((Fraction(0), delta))), classes), None, None


def check_certified(seed: int) -> None:
    problem, shape, prior = random_problem(seed)
    try:
        table = optimize_table(problem, shape=shape, prior=prior, options=SolveOptions(time_limit=20.0))
    except CertificationError as error:  # a third is no multiple of 2^-53
        if "too small for 3 classes" not in str(error) or problem.target.epsilon + problem.target.delta > 1e-13:
            raise
        return
    optimality = optimality_of(table)
    assert table.certificate.worst_cost <= table.certificate.budget
    assert Table.from_json(table.to_json()).certificate == table.certificate
    if problem.has_noise_function and problem.voters.each.is_private and problem.voters.per_voter is None:
        sample = baselines.subsampling(Problem.from_allowance(problem.voters, int(problem.m)))
        sample_error = sample.expected_error(optimality.prior)
        assert optimality.value <= sample_error * (1.0 + 1e-5) + 1e-9
        assert optimality.bound <= sample_error + 1e-12  # a sample of m voters is private


@pytest.mark.quick_cases(8)  # each kind at least once
@pytest.mark.parametrize("seed", range(FEW))
def test_a_problem_of_any_epsilon_has_a_certified_table(seed: int) -> None:
    check_certified(seed)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(FEW, MANY, 122))
def test_two_thousand_problems_have_certified_tables(first: int) -> None:
    for seed in range(first, min(first + 122, MANY)):
        check_certified(seed)


@pytest.mark.quick_cases(4)
@pytest.mark.parametrize("K", [3, 5, pytest.param(8, marks=pytest.mark.slow)])
@pytest.mark.parametrize("text", ["1e-300", "1e-9", "1e-30"])
@pytest.mark.parametrize("share", ["0.25", "0"])
def test_small_certificates_hold_in_exact_fractions(K: int, text: str, share: str) -> None:
    delta = Fraction(text) * Fraction(share)
    problem = Problem.from_allowance(Voters(K, PrivacyParams(text, delta)), 2)
    table = optimize_table(problem)
    cost, budget = exact_worst_cost(problem, table.gamma.half), exact_budget(problem)
    assert budget * (1 - Fraction("1e-5")) <= cost <= budget


@pytest.mark.parametrize(
    "state_problem",
    [
        lambda epsilon: Problem.from_allowance(Voters(11, PrivacyParams(epsilon)), 3),
        lambda epsilon: Problem.from_allowance(Voters(10, PrivacyParams(epsilon, epsilon / 8)), "2.5"),
        lambda epsilon: Problem(Voters.of([PrivacyParams(epsilon * n) for n in (1, 2, 2, 5)]), PrivacyParams(epsilon)),
        lambda epsilon: Problem(Voters(5, PrivacyParams(epsilon)), PrivacyParams(2 * epsilon), classes=3),
    ],
    ids=["alike", "with Δ", "different", "three classes"],
)
@pytest.mark.quick_cases(4)  # the smallest ε of each kind
@pytest.mark.parametrize("text", ["1e-290", "1e-12", "1e-40"])
def test_small_epsilon_has_the_optimum_of_its_limit(state_problem: Callable[[Fraction], Problem], text: str) -> None:
    small, larger = (
        optimality_of(optimize_table(state_problem(Fraction(size)), options=SolveOptions(patience=2)))
        for size in (text, "1e-4")
    )
    assert small.value == pytest.approx(larger.value, rel=2e-3)


def test_many_voters_are_proved_in_balls_where_floats_hide_the_budget() -> None:
    problem = Problem.from_allowance(Voters(1_001, PrivacyParams("1e-15")), 3)
    table = certify(problem, NoiseFunction(1_001, [1.0] * 501))
    assert "ball arithmetic" in table.certificate.method
    assert table.certificate.scale > 0.01


def test_fair_coins_are_proved_for_the_smallest_budget() -> None:
    problem = Problem(Voters(3, PrivacyParams("inf"), 1), PrivacyParams("1e-323"))
    assert certify(problem, NoiseFunction(3, [0.0, 0.0])).certificate.worst_cost == 0.0
