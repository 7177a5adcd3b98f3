"""The auditor's own arithmetic against a tree of all assignments, fifty digits, and laws that are written out."""

import ast
import math
from fractions import Fraction
from pathlib import Path

import mpmath
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from darrm import PrivacyParams, Problem, Voters
from darrm.laws import priors
from darrm.laws.noise_function import NoiseFunction
from darrm.verify import exact
from darrm.verify.exact import ReleaseNumbers
from tests import oracle, strategies


def numbers_of(problem: Problem, gamma: NoiseFunction) -> ReleaseNumbers:
    voters = problem.voters
    each = (voters.each.exact_epsilon, voters.each.exact_delta) if voters.each.is_private else None
    return ReleaseNumbers(voters.K, each, voters.reached, tuple(Fraction(float(value)) for value in gamma.half))


@pytest.mark.parametrize("x", ["0", "1e-9", "0.1", "0.5", "1", "3.7", "700", "1/3"])
def test_the_exponential_is_enclosed(x: str) -> None:
    found = exact.exponential(Fraction(x))
    with mpmath.workdps(450):
        true = mpmath.exp(mpmath.mpf(Fraction(x).numerator) / Fraction(x).denominator)
        assert mpmath.mpf(found.lower.numerator) / found.lower.denominator <= true
        assert mpmath.mpf(found.upper.numerator) / found.upper.denominator >= true
    assert found.upper - found.lower <= found.lower * Fraction(1, 10**75)


@pytest.mark.parametrize("delta", ["0", "0.01"])
def test_no_corner_is_forgotten(delta: str) -> None:
    # (lo, hi) is worst only for hundreds of voters, where no tree of assignments reaches
    each = PrivacyParams("0.3", delta)
    true = oracle.corner_list(Problem(Voters(3, each), PrivacyParams("0.5", delta)))
    ours = [(Fraction(0), Fraction(0)), (Fraction(1), Fraction(1))]
    ours += [
        (Fraction(p, exact.ONE), Fraction(p_prime, exact.ONE))
        for p, p_prime in exact._corners((each.exact_epsilon, each.exact_delta))
    ]
    for first, second in zip(sorted(true), sorted(ours), strict=True):
        assert max(abs(first[side] - second[side]) for side in (0, 1)) < Fraction(2, exact.ONE)


@given(st.data())
def test_the_worst_cost_is_that_of_every_assignment(data: st.DataObject) -> None:
    problem = data.draw(strategies.problems(most_voters=4))
    gamma = data.draw(strategies.gammas(problem.voters.K))
    true = oracle.exact_worst_cost(problem, gamma.half)
    found = exact.worst_costs(numbers_of(problem, gamma), [problem.target.exact_epsilon])
    assert found is not None
    rounding = Fraction(1, 10**50) * (1 + abs(true))  # of the oracle's exponential
    assert found[0].lower - rounding <= true <= found[0].upper + rounding
    assert found[0].upper - found[0].lower <= Fraction(1, 10**30) * (1 + oracle.exact_budget(problem))


@given(st.data())
def test_the_few_rows_of_a_monotone_function_are_enough(data: st.DataObject) -> None:
    problem = data.draw(strategies.problems(most_voters=6))
    gamma = NoiseFunction(problem.voters.K, sorted(data.draw(strategies.gammas(problem.voters.K)).half.tolist()))
    numbers, epsilon = numbers_of(problem, gamma), [problem.target.exact_epsilon]
    assume(numbers.reached > 1)
    everything = exact.worst_costs(numbers, epsilon)
    assert everything is not None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            exact, "MOST_WORK", exact._work(numbers, [(voters, 0, pairs) for voters, pairs in numbers.kinds]) - 1
        )
        few = exact.worst_costs(numbers, epsilon)
    assert few is not None
    assert (everything[0].family, few[0].family) == (exact.ALL, exact.MONOTONE)
    assert few[0].lower <= everything[0].upper
    assert few[0].upper >= everything[0].lower


def test_what_is_too_large_is_not_decided() -> None:
    dip = (Fraction(1), Fraction(1, 2)) + (Fraction(1),) * 49
    large = ReleaseNumbers(101, (Fraction(1, 10), Fraction(1, 10**5)), 101, dip)
    assert exact.worst_costs(large, [Fraction(1)]) is None
    assert exact.divergences(large, [Fraction(1)]) is None


@pytest.mark.parametrize(("gamma", "expected"), [("1/3", True), ("0.3333333333333333334", False)])
def test_the_edge_is_sharp(gamma: str, expected: bool) -> None:
    # K = 3, ε = 0.1, m = 1, Δ = 0: (1/3, 1) costs exactly the budget, so a margin in δ decides
    numbers = ReleaseNumbers(3, (Fraction(1, 10), Fraction(0)), 3, (Fraction(gamma), Fraction(1)))
    found = exact.worst_costs(numbers, [Fraction(1, 10)])
    assert found is not None
    (worst,) = found
    wide, sharp = (exact.budget(Fraction(1, 10), delta) for delta in (Fraction(1, 10**30), Fraction(0)))
    assert (worst.upper <= wide.lower, worst.lower > wide.upper) == (expected, not expected)
    assert (worst.upper <= sharp.lower, worst.lower > sharp.upper) == (False, not expected)  # too close to call


def test_a_divergence_is_that_of_two_written_out_laws() -> None:
    # one voter, truth told with probability γ: Pr[1] = (1 + γ(2p − 1))/2
    numbers = ReleaseNumbers(1, (Fraction(1), Fraction(1, 50)), 1, (Fraction(1, 2),))
    answers = exact.divergences(numbers, [Fraction(1, 5)])
    assert answers is not None
    (found,) = answers
    hi = (math.e + 0.02) / (math.e + 1)
    pairs = [(0.02, 0.0), (1.0, 0.98), (hi, 1 - hi)]
    expected = max((0.25 + 0.5 * p) - math.exp(0.2) * (0.25 + 0.5 * q) for p, q in pairs)
    assert float(found.lower) == pytest.approx(expected, abs=1e-14)
    assert 0 <= found.upper - found.lower < Fraction(1, 10**30)


@pytest.mark.parametrize(
    ("prior", "p"),
    [
        (priors.Dirichlet(), None),
        (priors.Point(0.2), 0.2),
        (priors.Point(1.0), 1.0),
        (priors.Independent(0.5, 1.0), 0.75),
    ],
)
@pytest.mark.parametrize("K", [1, 2, 3, 10, 101])
def test_the_expected_error_is_the_priors(K: int, prior: priors.Prior, p: float | None) -> None:
    half = [((3 * place) % 7) / 7 for place in range(K - K // 2)]
    found = exact.expected_error(K, [Fraction(value) for value in half], None if p is None else Fraction(p))
    assert float(found) == pytest.approx(NoiseFunction(K, half).expected_error(prior), abs=1e-14)


def test_an_overlap_leaves_fewer_rows() -> None:
    problem = Problem(Voters(5, PrivacyParams("0.5", "0.01")), PrivacyParams("0.5", "0.01"))
    worst = []
    for overlap in (1, 3, 5):
        voters = Voters(5, problem.voters.each, overlap=overlap)
        numbers = numbers_of(Problem(voters, problem.target), NoiseFunction(5, [0.1, 0.5, 1]))
        found = exact.worst_costs(numbers, [Fraction(1, 2)])
        assert found is not None
        worst.append(found[0].lower)
    assert worst[0] < worst[1] < worst[2]


def test_it_shares_nothing_with_what_it_checks() -> None:
    names = {
        name
        for node in ast.walk(ast.parse(Path(exact.__file__).read_text(encoding="utf-8")))
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in ([node.module] if isinstance(node, ast.ImportFrom) else [alias.name for alias in node.names])
    }
    assert names == {"collections.abc", "dataclasses", "fractions", "itertools", "math"}
