"""The verifier's own arithmetic for two classes: against all assignments, written-out laws, and the solver's optima."""

import math
from fractions import Fraction

import mpmath
import pytest
from hypothesis import given
from hypothesis import strategies as st

from darrm import PrivacyParams, Problem, Voters, optimize_table
from darrm.majority.certify import worst_cost_ball
from darrm.majority.noise_function import NoiseFunction
from darrm.verify import gamma as own
from darrm.verify.gamma import CHAINS, MONOTONE, Gamma, budget, enclose_deltas, worst_costs
from darrm.verify.verdicts import ONE, exponential
from tests import oracle, strategies
from tests.majority.test_full_set import NEEDS_LOW
from tests.verify.support import gamma_of, worst_of

TENTH = (Fraction(1, 10), Fraction(1, 10**5))


@pytest.mark.parametrize("x", ["0", "1e-9", "0.1", "0.5", "1", "3.7", "700", "1/3"])
def test_the_exponential_is_enclosed(x: str) -> None:
    found = exponential(Fraction(x))
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
    corners = own._list_corners((each.exact_epsilon, each.exact_delta))
    ours += [(Fraction(p, ONE), Fraction(p_prime, ONE)) for p, p_prime in corners]
    for first, second in zip(sorted(true), sorted(ours), strict=True):
        assert max(abs(first[side] - second[side]) for side in (0, 1)) < Fraction(2, ONE)


@given(st.data())
def test_the_worst_cost_is_that_of_every_assignment(data: st.DataObject) -> None:
    problem = data.draw(strategies.problems(most_voters=4))
    gamma = data.draw(strategies.gammas(problem.voters.K))
    true = oracle.exact_worst_cost(problem, gamma.half)
    found = worst_costs(gamma_of(problem, gamma), [problem.target.exact_epsilon])
    assert found is not None
    rounding = Fraction(1, 10**50) * (1 + abs(true))  # of the oracle's exponential
    assert found[0].lower - rounding <= true <= found[0].upper + rounding
    assert found[0].upper - found[0].lower <= Fraction(1, 10**15) * (1 + oracle.exact_budget(problem))


@given(st.data())
def test_the_chains_are_all_multisets(data: st.DataObject) -> None:
    problem = data.draw(strategies.problems(most_voters=6))
    values = data.draw(strategies.gammas(problem.voters.K)).half.tolist()
    if data.draw(st.booleans()):
        values.sort()
    numbers = gamma_of(problem, NoiseFunction(problem.voters.K, values))
    epsilons = [problem.target.exact_epsilon, Fraction(0), Fraction(2)]
    few = worst_costs(numbers, epsilons)
    everything = own._enumerate_corners(numbers, [exponential(epsilon) for epsilon in epsilons])
    assert few is not None
    assert everything is not None
    for one, other in zip(few, everything, strict=True):
        assert one.lower <= other.upper
        assert one.upper >= other.lower
        assert one.upper - one.lower < Fraction(1, 10**14) * (1 + abs(one.upper))


def test_a_dip_needs_voters_that_move_in_part() -> None:
    """With a large Δ the best number of moved voters is neither none nor all: the grid is refined to every number."""
    half = tuple(map(Fraction, (1, 0, 1, 0, 1, 1, 0)))
    numbers = Gamma(13, half, ((13, (Fraction(1, 20), Fraction(1, 5))),), 13)
    assert not numbers.is_monotone
    found = worst_of(numbers, Fraction(1, 3))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(own, "MAX_WORK", 10**12)
        every = own._enumerate_corners(numbers, [exponential(Fraction(1, 3))])
    assert every is not None
    assert every[0].lower <= found.upper
    assert found.lower <= every[0].upper
    assert found.upper - found.lower < Fraction(1, 10**14)


@pytest.mark.parametrize("delta", ["0", "0.001"])
def test_voters_at_lo_hi_may_cost_most(delta: str) -> None:
    problem, gamma = Problem.from_allowance(Voters(31, PrivacyParams("0.5", delta)), 1), NoiseFunction(31, NEEDS_LOW)
    found = worst_of(gamma_of(problem, gamma), problem.target.exact_epsilon)
    assert float(found.lower) == pytest.approx(float(worst_cost_ball(problem, gamma).mid()), rel=1e-12)
    assert found.upper - found.lower < Fraction(1, 10**14)


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize(
    ("K", "shape", "delta", "rows"),
    [
        (101, "free", "1e-5", CHAINS),
        (301, "free", "0", CHAINS),
        pytest.param(1001, "monotone", "1e-5", MONOTONE, marks=pytest.mark.slow),
    ],
)
def test_tables_of_many_voters_are_decided(K: int, shape: str, delta: str, rows: str) -> None:
    table = optimize_table(Problem.from_allowance(Voters(K, PrivacyParams("0.1", delta)), 10), shape=shape)
    numbers, target = gamma_of(table.problem, table.gamma), table.problem.target
    found = worst_of(numbers, target.exact_epsilon)
    assert found.rows == rows
    assert found.upper <= budget(target.exact_epsilon, target.exact_delta).lower
    assert float(found.lower) == pytest.approx(table.certificate.worst_cost, rel=1e-11)
    # a little more truth is too much, and that is seen
    more = tuple(min(Fraction(1), value * (1 + Fraction(1, 10**10))) for value in numbers.half)
    broken = worst_of(Gamma(K, more, numbers.kinds, K), target.exact_epsilon)
    assert broken.lower > budget(target.exact_epsilon, target.exact_delta).upper


def test_weights_of_many_voters_add_up_to_one() -> None:
    chains = own._Chains(Gamma(1001, (Fraction(1),) * 501, ((1001, (Fraction(1), Fraction(1, 10))),), 1001))
    chance = Fraction(chains.delta, own._UNIT)
    weights = [Fraction(weight, own._UNIT) for weight in chains._compute_binomial(1001)]
    assert 0 <= 1 - sum(weights) < Fraction(1, 10**25)
    true = (math.comb(1001, n) * chance**n * (1 - chance) ** (1001 - n) for n in (0, 50, 100))
    assert all(0 <= one - weights[n] < Fraction(1, 10**25) for n, one in zip((0, 50, 100), true, strict=True))


def test_what_is_too_large_is_not_decided() -> None:
    dip = (Fraction(1), Fraction(1, 2)) + (Fraction(1),) * 1499
    large = Gamma(3001, dip, ((3001, TENTH),), 3001)
    assert enclose_deltas(large, [Fraction(1)]) is None


@pytest.mark.parametrize(("gamma", "expected"), [("1/3", True), ("0.3333333333333333334", False)])
def test_the_edge_is_sharp(gamma: str, expected: bool) -> None:
    # K = 3, ε = 0.1, m = 1, Δ = 0: (1/3, 1) costs exactly the budget, so a margin in δ decides
    numbers = Gamma(3, (Fraction(gamma), Fraction(1)), ((3, (Fraction(1, 10), Fraction(0))),), 3)
    worst = worst_of(numbers, Fraction(1, 10))
    wide, sharp = (budget(Fraction(1, 10), delta) for delta in (Fraction(1, 10**30), Fraction(0)))
    assert (worst.upper <= wide.lower, worst.lower > wide.upper) == (expected, not expected)
    assert (worst.upper <= sharp.lower, worst.lower > sharp.upper) == (False, not expected)  # too close to call


def test_a_divergence_is_that_of_two_written_out_laws() -> None:
    # one voter, truth told with probability γ: Pr[1] = (1 + γ(2p − 1))/2
    numbers = Gamma(1, (Fraction(1, 2),), ((1, (Fraction(1), Fraction(1, 50))),), 1)
    answers = enclose_deltas(numbers, [Fraction(1, 5)])
    assert answers is not None
    (found,) = answers
    hi = (math.e + 0.02) / (math.e + 1)
    pairs = [(0.02, 0.0), (1.0, 0.98), (hi, 1 - hi)]
    expected = max((0.25 + 0.5 * p) - math.exp(0.2) * (0.25 + 0.5 * q) for p, q in pairs)
    assert float(found.lower) == pytest.approx(expected, abs=1e-14)
    assert 0 <= found.upper - found.lower < Fraction(1, 10**30)
