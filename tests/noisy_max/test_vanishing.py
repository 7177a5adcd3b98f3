"""Open answers by noisy counts and a threshold: every neighbor of a few voters, by sums over all noises."""

from itertools import product

import numpy as np
import pytest

from darrm.account.accountant import PrivacyAccountant
from darrm.loss.privacy_cost import PrivacyCost
from darrm.loss.profile import PrivacyProfile
from darrm.loss.renyi import RenyiCurve
from darrm.noisy_max.label_cost import label_profile
from darrm.noisy_max.noisy_law import answering_probabilities
from darrm.noisy_max.noisy_maximum import bound_vanishing, find_threshold
from darrm.numerics.integer_noise import AsymmetricNoise, DiscreteGaussian, DiscreteLaplace, IntegerNoise
from darrm.privacy import PrivacyParams
from tests.noisy_max.oracles import Counts, hockey_stick, law_of

K, STRINGS = 4, 3
NOISES = ((DiscreteGaussian(1.0), 6), (DiscreteLaplace(1.0), 12), (AsymmetricNoise(1.5, 2.5, 3.0, 1.5), 8))


def open_law(counts: Counts, noise: IntegerNoise, threshold: int, reach: int) -> np.ndarray:
    """Add up over all noises: the probability of each string, and of no answer."""
    points, logs = law_of(noise, reach)
    strings = [string for string, n in enumerate(counts) if n]
    law = np.zeros(len(counts) + 1)
    law[-1] = float(not strings)
    if strings:
        grids = np.array(np.meshgrid(*(counts[string] + points for string in strings), indexing="ij"))
        weights = np.exp(np.sum(np.meshgrid(*(logs for _ in strings), indexing="ij"), axis=0))
        top = np.max(grids, axis=0)
        is_winner = (grids == top) & (top >= threshold)
        law[strings] = [np.sum(weights * wins / np.maximum(is_winner.sum(axis=0), 1)) for wins in is_winner]
        law[-1] = np.sum(weights * (top < threshold))
    return law


@pytest.mark.quick_cases(3)
@pytest.mark.parametrize("threshold", [1, 3])
@pytest.mark.parametrize("noise", [noise for noise, _ in NOISES], ids=str)
def test_answers_have_the_law_of_all_noises(noise: IntegerNoise, threshold: int) -> None:
    votes = [(0, 0, 1), (1, 0, 2), (1, 1, 1), (4, 0, 0), (2, 3, 3), (4, 1, 2)]
    exact = np.array([open_law(counts, noise, threshold, reach=22)[:-1] for counts in votes])
    assert answering_probabilities(noise, np.array(votes), threshold) == pytest.approx(exact, abs=1e-9)


def list_neighbors(counts: Counts) -> set[Counts]:
    """List the counts after an answer is changed, comes or goes."""
    step = np.vstack([np.eye(STRINGS, dtype=int), np.zeros(STRINGS, dtype=int)])
    moved = [np.array(counts) - lost + won for lost, won in product(step, step)]
    return {tuple(row.tolist()) for row in moved if row.min() >= 0 and row.sum() <= K} - {counts}


@pytest.mark.parametrize(("noise", "reach"), NOISES)
@pytest.mark.parametrize("threshold", [2, 3, 4])
def test_no_neighbors_are_further_apart(noise: IntegerNoise, reach: int, threshold: int) -> None:
    votes = [counts for counts in product(range(K + 1), repeat=STRINGS) if sum(counts) <= K]
    laws = {counts: open_law(counts, noise, threshold, reach) for counts in votes}
    vanishing, profile = bound_vanishing(noise, threshold), label_profile(noise)
    assert profile is not None
    tightness = 0.0
    for epsilon in (0.0, 0.5, 1.0, 2.0, 3.0):
        bound = vanishing + (1.0 - vanishing) * profile.delta_at(epsilon)
        pairs = [(laws[counts], laws[other]) for counts in votes for other in list_neighbors(counts)]
        worst = max(hockey_stick(p, q, epsilon) for p, q in pairs)
        assert worst <= bound + 1e-9
        tightness = max(tightness, worst / bound)
    assert tightness > 0.75


@pytest.mark.parametrize("moved", [1, 2, 3])
def test_several_strings_of_one_person(moved: int) -> None:
    noise, threshold = DiscreteGaussian(3.0), 9
    points, logs = law_of(noise, 60)
    passes = [float(np.exp(logs[n + points >= threshold]).sum()) for n in range(moved + 1)]
    splits = [split for split in product(range(moved + 1), repeat=moved) if sum(split) <= moved]
    worst = max(1.0 - np.prod([1.0 - passes[n] for n in split if n]) for split in splits)
    assert worst <= bound_vanishing(noise, threshold, moved=moved) <= worst * (1.001 + 0.01 * moved)


def test_the_threshold_is_the_least() -> None:
    noise = AsymmetricNoise(20.0, 40.0, 3.0, 3.0)
    least = find_threshold(noise, 1e-7, moved=2)
    assert bound_vanishing(noise, least, moved=2) <= 1e-7 < bound_vanishing(noise, least - 1, moved=2)
    with pytest.raises(ValueError, match="a threshold needs a delta"):
        find_threshold(noise, 0.0)


CURVE = RenyiCurve.of(lambda orders: 0.01 * orders)
PROFILE = PrivacyProfile((0.0, 0.5), (0.1, 0.0))


@pytest.mark.parametrize("cost", [{"renyi": CURVE}, {"profile": PROFILE}, {"guarantee": PrivacyParams("0.5")}])
def test_vanishing_answers_are_paid_from_delta(cost: dict[str, object]) -> None:
    bare, vanishing = (PrivacyCost("a", count=8, vanishing=v, **cost) for v in (0.0, 0.001))  # type: ignore[arg-type]
    plain, account = PrivacyAccountant(costs=[bare]), PrivacyAccountant(costs=[vanishing])
    spent, rest = account.spent(0.02), plain.spent(0.02 - 8 * 0.001)
    assert spent.epsilon == pytest.approx(rest.epsilon, rel=1e-9)
    assert spent.delta == 0.02
    assert account.smallest_epsilon(0.02) == pytest.approx(plain.smallest_epsilon(0.012), rel=1e-9)
    assert np.isinf([account.spent(0.008).epsilon, account.smallest_epsilon(0.008)]).all()
    budget = PrivacyParams(rest.epsilon * 1.0001, "0.02")
    assert account.admits(budget)
    assert not account.admits(PrivacyParams(rest.epsilon * 0.999, "0.02"))
    assert not account.admits(PrivacyParams(budget.exact_epsilon, "0.008"))
    assert account.queries_that_fit(vanishing, budget, most=5) == 0
    assert PrivacyCost.from_text(vanishing.to_text(), what="a") == vanishing.kind != bare.kind


def test_a_filter_counts_vanishing_answers_among_the_deltas_of_queries() -> None:
    plain, account = (PrivacyAccountant(costs=[PrivacyCost("a", renyi=CURVE, count=8, vanishing=v)]) for v in (0, 1e-3))
    assert account.spent(0.02, adaptive=True).epsilon == plain.spent(0.02, adaptive=True).epsilon
    assert np.isinf(account.spent(0.0159, adaptive=True).epsilon)  # half of delta is set aside
    pure = PrivacyCost("a", guarantee=PrivacyParams(1), vanishing=0.001)
    assert np.isinf(PrivacyAccountant(costs=[pure]).spent(0.0, adaptive=True).epsilon)
