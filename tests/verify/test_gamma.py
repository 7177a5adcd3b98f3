"""Tables of two classes: worst costs against all assignments and explicit laws, and the optimality of a γ."""

import json
import math
from fractions import Fraction
from typing import Any

import mpmath
import pytest
from hypothesis import given
from hypothesis import strategies as st

from darrm import PrivacyParams, Problem, Voters, optimize_table, priors
from darrm.majority.certify import worst_cost_ball
from darrm.majority.noise_function import NoiseFunction
from darrm.priors import Dirichlet, Spread
from darrm.verify import gamma
from darrm.verify.audit import judge_file
from darrm.verify.gamma import CHAINS, MONOTONE, Gamma, budget, enclose_deltas, worst_costs
from darrm.verify.verdicts import PROVED, UNKNOWN, Interval, exponential
from tests import oracle, strategies
from tests.majority.test_full_set import NEEDS_LOW
from tests.verify.support import gamma_of, worst_of


@pytest.mark.parametrize("x", ["0", "1e-9", "0.1", "0.5", "1", "3.7", "700", "1/3"])
def test_the_exponential_is_enclosed(x: str) -> None:
    enclosure = exponential(Fraction(x))
    with mpmath.workdps(450):
        true = mpmath.exp(mpmath.mpf(Fraction(x).numerator) / Fraction(x).denominator)
        assert mpmath.mpf(enclosure.lower.numerator) / enclosure.lower.denominator <= true
        assert mpmath.mpf(enclosure.upper.numerator) / enclosure.upper.denominator >= true
    assert enclosure.upper - enclosure.lower <= enclosure.lower * Fraction(1, 10**75)


@given(st.data())
def test_the_worst_cost_is_that_of_every_assignment(data: st.DataObject) -> None:
    problem = data.draw(strategies.problems(most_voters=4))
    function = data.draw(strategies.gammas(problem.voters.K))
    true = oracle.exact_worst_cost(problem, function.half)
    cost = worst_of(gamma_of(problem, function), problem.target.exact_epsilon)
    rounding = Fraction(1, 10**50) * (1 + abs(true))  # of the oracle's exponential
    assert cost.lower - rounding <= true <= cost.upper + rounding
    assert cost.upper - cost.lower <= Fraction(1, 10**15) * (1 + oracle.exact_budget(problem))


def check_agreement(costs: list[Interval[Fraction]] | None, others: list[Interval[Fraction]] | None) -> None:
    assert costs is not None
    assert others is not None
    for cost, other in zip(costs, others, strict=True):
        assert cost.lower <= other.upper
        assert cost.upper >= other.lower
        assert cost.upper - cost.lower < Fraction(1, 10**14) * (1 + abs(cost.upper))


@given(st.data())
def test_the_chains_cost_as_much_as_all_multisets(data: st.DataObject) -> None:
    problem = data.draw(strategies.problems(most_voters=6))
    values = data.draw(strategies.gammas(problem.voters.K)).half.tolist()
    if data.draw(st.booleans()):
        values.sort()
    numbers = gamma_of(problem, NoiseFunction(problem.voters.K, values))
    epsilons = [problem.target.exact_epsilon, Fraction(0), Fraction(2)]
    multisets = gamma._enumerate_corners(numbers, list(map(exponential, epsilons)))
    check_agreement(worst_costs(numbers, epsilons), multisets)


def test_every_number_of_moved_voters_is_examined(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a large Δ the best number of moved voters is neither none nor all."""
    half = tuple(map(Fraction, (1, 0, 1, 0, 1, 1, 0)))
    numbers = Gamma(13, half, ((13, (Fraction(1, 20), Fraction(1, 5))),), 13)
    costs = worst_costs(numbers, [Fraction(1, 3)])
    monkeypatch.setattr(gamma, "MAX_WORK", 10**12)
    check_agreement(costs, gamma._enumerate_corners(numbers, [exponential(Fraction(1, 3))]))


@pytest.mark.parametrize("delta", ["0", "0.001"])
def test_voters_at_low_and_high_may_cost_most(delta: str) -> None:
    problem, function = Problem.from_allowance(Voters(31, PrivacyParams("0.5", delta)), 1), NoiseFunction(31, NEEDS_LOW)
    cost = worst_of(gamma_of(problem, function), problem.target.exact_epsilon)
    assert float(cost.lower) == pytest.approx(float(worst_cost_ball(problem, function).mid()), rel=1e-12)
    assert cost.upper - cost.lower < Fraction(1, 10**14)


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize(
    ("K", "shape", "delta", "rows"),
    [(101, "free", "1e-5", CHAINS), (301, "free", "0", CHAINS), (1001, "monotone", "1e-5", MONOTONE)],
)
def test_tables_of_many_voters_are_decided(K: int, shape: str, delta: str, rows: str) -> None:
    table = optimize_table(Problem.from_allowance(Voters(K, PrivacyParams("0.1", delta)), 10), shape=shape)
    numbers, target = gamma_of(table.problem, table.gamma), table.problem.target
    allowed, cost = budget(target.exact_epsilon, target.exact_delta), worst_of(numbers, target.exact_epsilon)
    assert cost.rows == rows
    assert cost.upper <= allowed.lower
    assert float(cost.lower) == pytest.approx(table.certificate.worst_cost, rel=1e-11)
    larger = tuple(min(Fraction(1), value * (1 + Fraction(1, 10**10))) for value in numbers.half)
    assert worst_of(Gamma(K, larger, numbers.kinds, K), target.exact_epsilon).lower > allowed.upper


def test_weights_of_many_voters_add_up_to_one() -> None:
    voters = ((1001, (Fraction(1), Fraction(1, 10))),)
    chains = gamma._Chains(Gamma(1001, (Fraction(1),) * 501, voters, 1001))
    chance = Fraction(chains.delta, gamma._UNIT)
    weights = [Fraction(weight, gamma._UNIT) for weight in chains._compute_binomial(1001)]
    assert 0 <= 1 - sum(weights) < Fraction(1, 10**25)
    for n in (0, 50, 100):
        expected = math.comb(1001, n) * chance**n * (1 - chance) ** (1001 - n)
        assert 0 <= expected - weights[n] < Fraction(1, 10**25)


def test_too_many_voters_are_not_enclosed() -> None:
    dip = (Fraction(1), Fraction(1, 2)) + (Fraction(1),) * 1499
    voters = ((3001, (Fraction(1, 10), Fraction(1, 10**5))),)
    assert enclose_deltas(Gamma(3001, dip, voters, 3001), [Fraction(1)]) is None


@pytest.mark.parametrize(("value", "expected"), [("1/3", True), ("0.3333333333333333334", False)])
def test_the_largest_private_value_is_told_from_the_next(value: str, expected: bool) -> None:
    # K = 3, ε = 0.1, m = 1, Δ = 0: (1/3, 1) costs exactly the budget, so a margin in δ decides
    numbers = Gamma(3, (Fraction(value), Fraction(1)), ((3, (Fraction(1, 10), Fraction(0))),), 3)
    worst = worst_of(numbers, Fraction(1, 10))
    wide, sharp = (budget(Fraction(1, 10), delta) for delta in (Fraction(1, 10**30), Fraction(0)))
    assert (worst.upper <= wide.lower, worst.lower > wide.upper) == (expected, not expected)
    assert (worst.upper <= sharp.lower, worst.lower > sharp.upper) == (False, not expected)  # too close to call


def test_a_divergence_is_that_of_two_explicit_laws() -> None:
    # one voter, returned with probability γ: Pr[1] = (1 + γ(2p − 1))/2
    numbers = Gamma(1, (Fraction(1, 2),), ((1, (Fraction(1), Fraction(1, 50))),), 1)
    deltas = enclose_deltas(numbers, [Fraction(1, 5)])
    assert deltas is not None
    hi = (math.e + 0.02) / (math.e + 1)
    pairs = [(0.02, 0.0), (1.0, 0.98), (hi, 1 - hi)]
    expected = max((0.25 + 0.5 * p) - math.exp(0.2) * (0.25 + 0.5 * q) for p, q in pairs)
    assert float(deltas[0].lower) == pytest.approx(expected, abs=1e-14)
    assert 0 <= deltas[0].upper - deltas[0].lower < Fraction(1, 10**30)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({}, [PROVED, PROVED]),
        ({"multipliers": None}, [PROVED, UNKNOWN]),
        ({"multipliers": "weaker"}, [PROVED, UNKNOWN]),
        ({"prior": priors.to_json(Spread(), 3)}, [UNKNOWN, UNKNOWN]),  # without a rational error
        ({"prior": priors.to_json(Dirichlet(0.1), 3)}, [UNKNOWN, UNKNOWN]),
        ({"held_out": {"mean": 0.1, "standard_error": 0.01, "draws": 9}}, [UNKNOWN, UNKNOWN]),  # without its draws
    ],
)
def test_an_optimum_without_a_proof_is_unknown(change: dict[str, Any], expected: list[str]) -> None:
    problem = Problem.from_allowance(Voters(3, PrivacyParams("0.2", "1e-5")), "1.5")
    data = json.loads(json.dumps(optimize_table(problem, prior=Dirichlet()).to_json()))
    multipliers = [[0.9 * y, *row] for y, *row in data["optimality"]["multipliers"]]
    data["optimality"] |= change if change.get("multipliers") is None else {"multipliers": multipliers}
    verdicts = judge_file(json.dumps(data).encode())[1]
    assert [one.verdict for one in verdicts if one.about == "optimality"] == expected
