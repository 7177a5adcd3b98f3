"""Every bound of an account against exact compositions and against every adversary of a small mechanism."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from scipy.stats import binom

from darrm.account.accountant import PrivacyAccountant
from darrm.account.bounds import discretized_bound, dominating_atoms, get_profile, on_grid
from darrm.loss.composition import compose_general, compose_optimal
from darrm.loss.privacy_cost import PrivacyCost
from darrm.loss.profile import PrivacyProfile
from darrm.loss.renyi import RenyiCurve
from darrm.privacy import PrivacyParams
from darrm.subsampling import Subsampling
from tests.account.support import QUERY, bernoulli_profile, list_epsilons


def test_bounds_on_equal_pairs_are_their_compositions() -> None:
    spent = PrivacyAccountant(costs=[PrivacyCost("a", guarantee=QUERY, count=50)]).spent(0.0151)
    epsilons = list_epsilons(spent)
    slack = 1.0 - (1.0 - 0.0151) / (1.0 - 0.0003) ** 50
    assert epsilons["simple"] == pytest.approx(50 * 0.2676)
    assert epsilons["general"] == pytest.approx(compose_general(QUERY, 50, slack).epsilon, rel=1e-9)
    assert epsilons["optimal"] == compose_optimal(QUERY, 50, 0.0151).epsilon
    assert epsilons["optimal"] <= epsilons["pld"] == pytest.approx(epsilons["optimal"], rel=1e-6)
    assert (spent.bound, spent.epsilon) == ("optimal", min(epsilons.values()))
    assert list(epsilons.values()) == sorted(epsilons.values())


def test_no_bound_on_several_kinds_is_below_the_optimal_composition() -> None:
    costs = [
        PrivacyCost("a", guarantee=QUERY, count=20),
        PrivacyCost("b", guarantee=PrivacyParams(0.1, 1e-5), count=30),
        PrivacyCost("c", guarantee=PrivacyParams(0.5, 0), renyi=RenyiCurve.from_pure(0.5), count=2),
    ]
    epsilons = list_epsilons(PrivacyAccountant(costs=costs).spent(0.01))
    assert set(epsilons) == {"simple", "general", "optimal", "renyi", "pld"}
    assert min(epsilons.values()) == epsilons["optimal"]
    assert epsilons["pld"] == pytest.approx(epsilons["optimal"], rel=2e-4)


def compute_product_delta(pairs: tuple[tuple[float, float], ...], epsilon: float) -> float:
    """Compute the divergence of independent answers with these probabilities of 1, over all outcomes."""
    total = 0.0
    for outcome in itertools.product((0, 1), repeat=len(pairs)):
        p = math.prod(a if bit else 1.0 - a for bit, (a, _) in zip(outcome, pairs, strict=True))
        q = math.prod(b if bit else 1.0 - b for bit, (_, b) in zip(outcome, pairs, strict=True))
        total += max(0.0, p - math.exp(epsilon) * q)
    return total


@pytest.mark.parametrize("count", [2, 50, 1000])
def test_an_uneven_profile_of_randomized_response_costs_the_optimal_composition(count: int) -> None:
    profile = PrivacyProfile((0.0, 0.5, 0.6), (math.tanh(0.25), 0.0, 0.0))
    cost = PrivacyCost("a", guarantee=PrivacyParams(0.5), profile=profile, count=count)
    epsilons = list_epsilons(PrivacyAccountant(costs=[cost]).spent(1e-4))
    assert epsilons["profile"] == epsilons["optimal"] <= epsilons["pld"] <= 1.002 * epsilons["optimal"]


def test_many_queries_keep_the_gain_of_the_profile() -> None:
    cost = PrivacyCost("a", guarantee=PrivacyParams(0.5, 0), profile=bernoulli_profile(), count=100_000)
    epsilons = list_epsilons(PrivacyAccountant(costs=[cost]).spent(1e-5))
    assert epsilons["pld"] < 0.5 * epsilons["optimal"]


@pytest.mark.parametrize("delta", [1e-4, 0.02, 0.2])
def test_bounds_by_the_profile_cover_every_adversary(delta: float) -> None:
    moves = [(0.5, 0.4), (0.4, 0.5), (0.6, 0.5), (0.5, 0.6)]  # all have this profile or a smaller one
    spent = PrivacyAccountant(costs=[PrivacyCost("a", profile=bernoulli_profile(), count=4)]).spent(delta)
    assert {"profile", "pld"} <= {bound.name for bound in spent.bounds}
    for bound in spent.bounds:
        worst = max(compute_product_delta(pairs, bound.epsilon) for pairs in itertools.product(moves, repeat=4))
        assert worst <= delta * (1.0 + 1e-9), bound


def two_sided_profile(p: float, q: float) -> PrivacyProfile:
    """Compute the exact profiles, in both directions, of a mechanism that answers 1 with probability p or q."""
    epsilons = (0.0, math.log((1.0 - q) / (1.0 - p)), math.log(p / q))
    return PrivacyProfile(epsilons, (p - q, p - q * (1.0 - q) / (1.0 - p), 0.0), (p - q, 0.0, 0.0))


@pytest.mark.parametrize("side", [0, 1])
@pytest.mark.parametrize(
    "profile",
    [bernoulli_profile(points=9), two_sided_profile(0.3, 0.2), two_sided_profile(0.5, 1e-250)],
    ids=["even", "two-sided", "wide"],
)
def test_dominating_atoms_have_the_profile(profile: PrivacyProfile, side: int) -> None:
    losses, masses, infinite = dominating_atoms(profile, side)
    atoms = list(zip(map(Fraction, np.exp(losses).tolist()), map(Fraction, masses.tolist()), strict=True))
    forward, reverse = profile.sides[side % len(profile.sides)]
    for epsilon, delta, reverse_delta in zip(profile.epsilons, forward, reverse, strict=True):
        x = math.exp(-epsilon)
        for factor, expected in ((math.exp(epsilon), delta), (x, 1.0 - x + x * reverse_delta)):
            divergence = Fraction(infinite) + sum(
                mass * max(Fraction(0), 1 - Fraction(factor) / ratio) for ratio, mass in atoms
            )
            assert expected <= divergence <= expected + 1e-12
    assert masses.sum() + infinite == pytest.approx(1.0, abs=1e-12)


def test_the_pld_of_sampled_queries_covers_the_more_expensive_direction() -> None:
    """Forward, one query costs more at every ε; three queries cost more in reverse."""
    first, second = np.array([0.27, 0.30, 0.43]), np.array([0.38, 0.46, 0.16])
    epsilons = (0.0, *np.sort(np.abs(np.log(first / second))).tolist())
    forward, reverse = (
        tuple(round(float(np.maximum(0.0, one - math.exp(epsilon) * other).sum()), 15) for epsilon in epsilons)
        for one, other in ((first, second), (second, first))
    )
    cost = PrivacyCost(
        "a", profile=PrivacyProfile(epsilons, forward, reverse), sampling=Subsampling.of("0.004"), count=3
    )
    bound = discretized_bound((cost,), 0.3)
    assert bound is not None
    laws = [np.multiply.outer(np.multiply.outer(law, law), law) for law in (first, second)]
    forward_delta, delta = (
        float(np.maximum(0.0, one - math.exp(bound.epsilon) * other).sum()) for one, other in (laws, laws[::-1])
    )
    assert forward_delta < 0.295 < delta <= 0.3


@pytest.mark.parametrize(("count", "delta", "tolerance"), [(2, 1e-6, 0.06), (10, 1e-2, 1e-3), (50, 1e-6, 2e-3)])
def test_the_pld_of_sampled_queries_is_that_of_their_answers(count: int, delta: float, tolerance: float) -> None:
    p, q, ones = 0.3, 0.2, np.arange(count + 1)
    first, second = (binom.pmf(ones, count, chance) for chance in (p, q))
    cost = PrivacyCost("a", profile=two_sided_profile(p, q), sampling=Subsampling.of("0.004"), count=count)
    bound = discretized_bound((cost,), delta)
    assert bound is not None

    def compute_delta(epsilon: float) -> float:
        pairs = ((first, second), (second, first))
        return max(float(np.maximum(0.0, one - math.exp(epsilon) * other).sum()) for one, other in pairs)

    assert compute_delta(bound.epsilon) <= delta < compute_delta(bound.epsilon / (1.0 + tolerance))


def test_a_pair_counts_as_randomized_response_that_fails_with_delta() -> None:
    profile = get_profile(PrivacyCost("a", guarantee=PrivacyParams(math.log(3), 0.1)))
    losses, masses, infinite = dominating_atoms(profile)
    assert losses == pytest.approx([-math.log(3), math.log(3)])
    assert [*masses, infinite] == pytest.approx([0.9 * 0.25, 0.9 * 0.75, 0.1])
    assert get_profile(PrivacyCost("a", guarantee=PrivacyParams(0, 0.1))).deltas == (0.1,)


@pytest.mark.parametrize("step", [0.01, 0.046875, 0.1, 0.7, 2.0])
def test_a_profile_on_a_grid_is_never_below_the_profile(step: float) -> None:
    profile = bernoulli_profile()
    coarse = on_grid(profile, step)
    multiples = np.array(coarse.epsilons) / step
    assert multiples == pytest.approx(np.round(multiples), abs=1e-9)
    assert coarse.epsilons[-1] >= profile.epsilons[-1] * (1.0 - 1e-9)
    points = np.linspace(0.0, 1.6, 200)
    assert np.all(coarse.deltas_at(points) >= profile.deltas_at(points) - 1e-13)
    if step == 0.046875:  # that of the profile
        assert coarse.deltas == profile.deltas
    if step <= 0.1:
        assert coarse.deltas[0] == profile.deltas[0]
        assert coarse.delta_at(0.1) == pytest.approx(profile.delta_at(0.1), abs=3e-4)


def test_a_grid_leaves_out_multiples_on_a_chord() -> None:
    epsilons = np.array([0.0, 0.3, 0.30000001, 0.71, 1.4, 2.0])
    profile = PrivacyProfile(tuple(epsilons), tuple(0.5 * np.exp(-2.0 * epsilons)))
    multiples = np.linspace(0.0, 2.0, 41, dtype=np.float64)
    coarse = on_grid(profile, 0.05)
    assert len(coarse.epsilons) < multiples.size
    assert coarse.deltas_at(multiples) == pytest.approx(profile.deltas_at(multiples), rel=1e-9)


def test_a_grid_beyond_the_largest_exponent_gives_no_bound() -> None:
    # a million losses of up to 600 need cells of 572: the second cell begins below 700 and ends above
    profile = PrivacyProfile((0.0, 300.0, 600.0), (0.5, 0.1, 0.0))
    few, many = ((PrivacyCost("a", profile=profile, count=count),) for count in (3_000, 10**6))
    assert discretized_bound(few, 1e-5) is not None
    assert discretized_bound(many, 1e-5) is None
    assert PrivacyAccountant(costs=many).spent(1e-5).epsilon == math.inf


def test_the_renyi_bound_sets_deltas_of_pairs_aside() -> None:
    curve = RenyiCurve.of(lambda order: order / 800.0)
    costs = [PrivacyCost("a", renyi=curve, count=5), PrivacyCost("b", guarantee=PrivacyParams(0.01, 0.004), count=2)]
    accountant = PrivacyAccountant(costs=costs)
    remaining_delta = 1.0 - (1.0 - 0.01) / (1.0 - 0.004) ** 2
    best = (curve.repeat(5) + RenyiCurve.from_pure(0.01).repeat(2)).best(remaining_delta)
    assert list_epsilons(accountant.spent(0.01)) == {"renyi": pytest.approx(best.epsilon, rel=1e-9)}
    assert accountant.spent(0.007).bound == "none"
    assert "no finite epsilon" in str(accountant.spent(0.007))
