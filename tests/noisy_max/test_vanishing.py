"""Open answers by noisy counts and a threshold: every neighbor of a few voters, by sums over all noises."""

from itertools import product

import numpy as np
import pytest

from darrm.account.accountant import PrivacyAccountant
from darrm.loss.privacy_cost import PrivacyCost
from darrm.loss.profile import PrivacyProfile
from darrm.loss.renyi import RenyiCurve
from darrm.noisy_max.label_cost import label_profile
from darrm.noisy_max.noisy_maximum import bound_vanishing, find_threshold
from darrm.numerics.integer_noise import AsymmetricNoise, DiscreteGaussian, DiscreteLaplace, IntegerNoise
from darrm.privacy import PrivacyParams
from tests.noisy_max.oracles import Counts, hockey_stick, law_of

K, STRINGS = 4, 3
NOISES = ((DiscreteGaussian(1.0), 6), (DiscreteLaplace(1.0), 12), (AsymmetricNoise(1.5, 2.5, 3.0, 1.5), 8))


def open_law(counts: Counts, noise: IntegerNoise, threshold: int, reach: int) -> np.ndarray:
    """Add up over all noises: the probability of each string, and of no answer."""
    points, logs = law_of(noise, reach)
    masses = np.exp(logs)
    said = [string for string, n in enumerate(counts) if n]
    law = np.zeros(len(counts) + 1)
    law[-1] = float(not said)
    if said:
        grids = np.meshgrid(*(counts[string] + points for string in said), indexing="ij")
        weights = np.prod(np.meshgrid(*(masses for _ in said), indexing="ij"), axis=0)
        top = np.max(grids, axis=0)
        winners = [(grid == top) & (top >= threshold) for grid in grids]
        shares = np.maximum(np.sum(winners, axis=0), 1)
        law[said] = [np.sum(weights * winner / shares) for winner in winners]
        law[-1] = np.sum(weights * (top < threshold))
    return law


def neighbors(counts: Counts) -> set[Counts]:
    """One answer is changed, comes or goes."""
    found = set()
    for a, b in product([*range(STRINGS), None], repeat=2):
        moved = list(counts)
        if a is not None:
            moved[a] -= 1
        if b is not None:
            moved[b] += 1
        if min(moved) >= 0 and sum(moved) <= K:
            found.add(tuple(moved))
    return found - {counts}


@pytest.mark.parametrize(("noise", "reach"), NOISES)
@pytest.mark.parametrize("threshold", [2, 3, 4])
def test_no_neighbors_are_further_apart(noise: IntegerNoise, reach: int, threshold: int) -> None:
    votes = [counts for counts in product(range(K + 1), repeat=STRINGS) if sum(counts) <= K]
    laws = {counts: open_law(counts, noise, threshold, reach) for counts in votes}
    lost, profile = bound_vanishing(noise, threshold), label_profile(noise)
    assert profile is not None
    attained = 0.0
    for counts in votes:
        for other in neighbors(counts):
            for epsilon in (0.0, 0.5, 1.0, 2.0, 3.0):
                apart = hockey_stick(laws[counts], laws[other], epsilon)
                bound = lost + (1.0 - lost) * profile.delta_at(epsilon)
                assert apart <= bound + 1e-9
                attained = max(attained, apart / bound)
    assert attained > 0.75


@pytest.mark.parametrize("moved", [1, 2, 3])
def test_several_strings_of_one_person(moved: int) -> None:
    noise, threshold = DiscreteGaussian(3.0), 9
    points, logs = law_of(noise, 60)
    masses = np.exp(logs)

    def passes(n: int) -> float:
        return float(masses[n + points >= threshold].sum())

    worst = max(  # all ways to split the votes, and the event that one of the strings passes
        1.0 - np.prod([1.0 - passes(n) for n in split])
        for size in range(1, moved + 1)
        for split in product(range(1, moved + 1), repeat=size)
        if sum(split) <= moved
    )
    lost = bound_vanishing(noise, threshold, moved=moved)
    assert worst <= lost
    assert lost <= worst * (1.001 + 0.01 * moved)


def test_the_least_threshold_is_one() -> None:
    noise = AsymmetricNoise(20.0, 40.0, 3.0, 3.0)
    least = find_threshold(noise, 1e-7, moved=2)
    assert bound_vanishing(noise, least, moved=2) <= 1e-7 < bound_vanishing(noise, least - 1, moved=2)
    with pytest.raises(ValueError, match="a threshold needs a delta"):
        find_threshold(noise, 0.0)


CURVE = RenyiCurve.of(lambda orders: 0.01 * orders)
PROFILE = PrivacyProfile((0.0, 0.5), (0.1, 0.0))


@pytest.mark.parametrize("described", [{"renyi": CURVE}, {"profile": PROFILE}, {"guarantee": PrivacyParams("0.5")}])
def test_what_vanishes_is_paid_from_delta(described: dict[str, object]) -> None:
    bare, open_ = (PrivacyCost("a", count=8, vanishing=v, **described) for v in (0.0, 0.001))  # type: ignore[arg-type]
    plain, account = PrivacyAccountant(costs=[bare]), PrivacyAccountant(costs=[open_])
    rest = plain.spent(0.02 - 8 * 0.001)
    assert account.spent(0.02).epsilon == pytest.approx(rest.epsilon, rel=1e-9)
    assert account.spent(0.02).delta == 0.02
    assert account.smallest_epsilon(0.02) == pytest.approx(plain.smallest_epsilon(0.012), rel=1e-9)
    assert np.isinf(account.spent(0.008).epsilon)
    assert np.isinf(account.smallest_epsilon(0.008))
    budget = PrivacyParams(rest.epsilon * 1.0001, "0.02")
    assert account.admits(budget)
    assert not account.admits(PrivacyParams(rest.epsilon * 0.999, "0.02"))
    assert not account.admits(PrivacyParams(budget.exact_epsilon, "0.008"))
    assert account.queries_that_fit(open_, budget, most=5) == 0
    assert PrivacyCost.from_text(open_.to_text(), what="a") == open_.kind != bare.kind


def test_a_filter_counts_it_among_the_deltas_of_queries() -> None:
    bare, open_ = (PrivacyCost("a", renyi=CURVE, count=8, vanishing=v) for v in (0.0, 0.001))
    plain, account = PrivacyAccountant(costs=[bare]), PrivacyAccountant(costs=[open_])
    assert account.spent(0.02, adaptive=True).epsilon == plain.spent(0.02, adaptive=True).epsilon
    assert np.isinf(account.spent(0.0159, adaptive=True).epsilon)  # half of delta is set aside
    pure = PrivacyCost("a", guarantee=PrivacyParams(1), vanishing=0.001)
    assert np.isinf(PrivacyAccountant(costs=[pure]).spent(0.0, adaptive=True).epsilon)
