"""The verifier's own costs of noisy maxima: never below brute force over histograms, and close to the prover's."""

import itertools
import math
from collections.abc import Callable
from typing import Any

import mpmath
import numpy as np
import pytest

from darrm.noisy_max.label_cost import label_curve, label_profile
from darrm.numerics.integer_noise import AsymmetricNoise, DiscreteGaussian, DiscreteLaplace, IntegerNoise
from darrm.verify import noisy_labels
from darrm.verify.noisy_labels import TooWideError, delta_of_label, renyi_of_label
from darrm.verify.verdicts import Array, Interval

GAUSSIAN, LAPLACE, SHAPED = DiscreteGaussian(1.5), DiscreteLaplace(0.6), AsymmetricNoise(3.0, 3.0, 1.5, 1.25)
NOISES: dict[str, IntegerNoise] = {"Gaussian": GAUSSIAN, "Laplace": LAPLACE, "shaped": SHAPED}
# of the bound: a level of the others that does not vary is worse
LEAST = {"Gaussian": 0.9, "Laplace": 0.7, "shaped": 0.6}


def weights_of(noise: IntegerNoise) -> Callable[[Array], Array]:
    return lambda points: noise.log_weights(points.astype(np.int64))


def label_law(noise: IntegerNoise, histogram: tuple[int, ...], *, first_wins: bool) -> Array:
    """Add up Pr[label] over all noises of two and three classes; ties are shared, or go to the first class."""
    points = np.arange(-40, 41)
    masses = np.exp(noise.log_weights(points))
    masses /= masses.sum()
    law = np.zeros(len(histogram))
    for place in range(len(histogram)):
        for value, mass in zip(points + histogram[place], masses, strict=True):
            below, level = [], []
            for other, votes in enumerate(histogram):
                if other != place:
                    level.append(masses[points + votes == value].sum())
                    below.append(masses[points + votes < value].sum())
            for tied in itertools.product((0, 1), repeat=len(below)):
                others = [k for k in range(len(histogram)) if k != place]
                chance = mass * math.prod(level[k] if tie else below[k] for k, tie in enumerate(tied))
                if first_wins:
                    chance *= all(not tie or others[k] > place for k, tie in enumerate(tied))
                else:
                    chance /= 1 + sum(tied)
                law[place] += chance
    return law


def neighbors(K: int, C: int) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    found = []
    for histogram in itertools.product(range(K + 1), repeat=C):
        if sum(histogram) == K:
            for a, b in itertools.permutations(range(C), 2):
                if histogram[a]:
                    moved = [votes - (c == a) + (c == b) for c, votes in enumerate(histogram)]
                    found.append((histogram, tuple(moved)))
    return found


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize(
    ("name", "first_wins"),
    [("Gaussian", True), *((name, False) for name in NOISES)],
)
def test_no_pair_of_histograms_costs_more(name: str, *, first_wins: bool) -> None:
    noise, pairs = NOISES[name], neighbors(4, 3) + neighbors(9, 2)
    laws = {histogram: label_law(noise, histogram, first_wins=first_wins) for histogram in {p for p, _ in pairs}}
    for order in (1.5, 4.0):
        bound = renyi_of_label(weights_of(noise), order).upper
        costs = [math.log(np.sum(laws[p] ** order * laws[q] ** (1 - order))) / (order - 1) for p, q in pairs]
        assert LEAST[name] * bound < max(costs) <= bound
    for epsilon in (0.0, 0.4):
        bound = delta_of_label(weights_of(noise), epsilon).upper
        deltas = [np.maximum(0.0, laws[p] - math.exp(epsilon) * laws[q]).sum() for p, q in pairs]
        assert LEAST[name] * bound < max(deltas) <= bound


WIDE = (DiscreteGaussian(40.0), DiscreteLaplace(0.05), AsymmetricNoise(30.0, 20.0, 2.5, 1.5))


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize(("noise", "order"), [(WIDE[0], 8.0), (WIDE[1], 20.0), (WIDE[2], 2.0)])
def test_it_is_the_provers_curve_within_two_percent(noise: IntegerNoise, order: float) -> None:
    curve = label_curve(noise)
    theirs = float(curve.values[curve.orders == order][0])
    ours = renyi_of_label(weights_of(noise), order)
    assert 0.975 * theirs < ours.lower <= ours.upper <= theirs * (1.0 + 1e-3)
    assert ours.upper <= ours.lower * (1.0 + 1.1e-3)


def test_the_profile_of_gaussian_noise_is_that_of_the_counts() -> None:
    profile = label_profile(GAUSSIAN)
    assert profile is not None
    for epsilon, delta in list(zip(profile.epsilons, profile.deltas, strict=True))[5:60:9]:
        exact = math.fsum(
            max(0.0, p - math.exp(epsilon) * q) for p, q in zip(difference(0), difference(2), strict=True)
        )
        ours = delta_of_label(weights_of(GAUSSIAN), epsilon)
        assert ours.lower <= exact <= ours.upper <= exact * (1.0 + 2e-3) + 1e-15
        assert delta >= exact * (1 - 1e-9)


def difference(shift: int) -> list[float]:
    points = np.arange(-40, 41)
    masses = np.exp(GAUSSIAN.log_weights(points))
    law = np.convolve(masses / masses.sum(), masses / masses.sum())
    return np.roll(law, -shift).tolist()


def test_what_takes_too_long_says_so() -> None:
    with pytest.raises(TooWideError):
        renyi_of_label(lambda points: -((points / 1e7) ** 2), 2.0)
    with pytest.raises(TooWideError):
        renyi_of_label(lambda points: -1e6 * np.abs(points), 2.0)
    with pytest.raises(TooWideError, match="order"):
        renyi_of_label(lambda points: -(points**2) / 2.0, 1e4)


@pytest.mark.parametrize("z", [0, 1])
def test_three_outcomes_are_all_there_are(z: int) -> None:
    law = noisy_labels._Noise(weights_of(SHAPED), 2.0)
    i, j = (corner.ravel() for corner in np.meshgrid(np.arange(-9, 12), np.arange(-9, 12), indexing="ij"))
    for side in (0, 1):  # before the vote moves, and after
        outcomes = [pair[side] for pair in noisy_labels._find_outcomes(law, i, j, z)]
        assert sum(outcomes) == pytest.approx(1.0, abs=1e-12)
    wins = noisy_labels._find_outcomes(law, i, j, 0)[0][0] - noisy_labels._find_outcomes(law, i, j, 1)[0][0]
    assert np.all(wins >= 0.0)  # a tie goes to a, or it does not
    assert np.max(wins) > 0.01


@pytest.mark.parametrize("penalty", [noisy_labels.RenyiPenalty(3.0), noisy_labels._HockeyStick(0.3)])
def test_a_block_is_bounded_by_its_corners(penalty: Any) -> None:
    law, rng = noisy_labels._Noise(weights_of(SHAPED), 3.0), np.random.default_rng(3)
    for _ in range(40):
        i, j, across, along = (int(number) for number in (*rng.integers(-8, 10, 2), *rng.integers(0, 5, 2)))
        block = np.array([[i], [j], [across], [along]])
        row, column = (at.ravel() for at in np.mgrid[i : i + across + 1, j : j + along + 1])
        least, values = zip(*(noisy_labels._evaluate_places(law, penalty, row, column, z) for z in (0, 1)), strict=True)
        assert noisy_labels._bound_blocks(law, penalty, block)[0] >= max(float(np.max(own)) for own in values) * (
            1.0 - 1e-15
        )
        assert all(np.all(own >= exact) for own, exact in zip(values, least, strict=True))


@pytest.mark.parametrize(("K", "C"), [(2, 2), (3, 2)])
def test_few_voters_cost_less(K: int, C: int) -> None:
    noise, pairs, order = DiscreteGaussian(2.0), neighbors(K, C), 8.0
    laws = {histogram: label_law(noise, histogram, first_wins=True) for pair in pairs for histogram in pair}
    cost = max(math.log(np.sum(laws[p] ** order * laws[q] ** (1 - order))) / (order - 1) for p, q in pairs)
    bounds = [renyi_of_label(weights_of(noise), order, lead=lead).upper for lead in (K, K + 1, math.inf)]
    assert cost < bounds[0] < bounds[1] < bounds[2]


@pytest.mark.parametrize("of_label", [lambda w, enough: renyi_of_label(w, 4.0, goal=enough),
                                      lambda w, enough: delta_of_label(w, 0.3, goal=enough)])  # fmt: skip
def test_what_is_enough_is_proved_and_no_more(of_label: Callable[..., Interval[float]]) -> None:
    close = of_label(weights_of(GAUSSIAN), 0.0)
    for factor in (1.01, 1.3, 5.0):
        found = of_label(weights_of(GAUSSIAN), close.upper * factor)
        assert close.lower * 0.5 < found.lower <= close.upper <= found.upper <= close.upper * factor
    assert found.upper > close.upper * 1.1
    for factor in (0.5, 0.99):
        found = of_label(weights_of(GAUSSIAN), close.lower * factor)
        assert [found.lower, found.upper] == pytest.approx([close.lower, close.upper], rel=2e-3)


def test_the_profile_of_wide_gaussian_noise_is_that_of_a_normal_law() -> None:
    sigma = 4000.0
    for epsilon in (0.0, 0.0003, 0.002, 0.003):
        mu = math.sqrt(2.0) / sigma
        with mpmath.workdps(30):
            true = mpmath.ncdf(mu / 2 - epsilon / mu) - mpmath.exp(epsilon) * mpmath.ncdf(-mu / 2 - epsilon / mu)
        found = noisy_labels.delta_of_gaussian_label(sigma, epsilon)
        assert found.lower == pytest.approx(float(true), rel=1e-4)
        assert found.lower < found.upper < found.lower * (1.0 + 1e-11)


def test_the_box_and_three_lines_are_looked_at() -> None:
    law = noisy_labels._Noise(weights_of(GAUSSIAN), 2.0)
    i, j, across, along = noisy_labels._list_first_blocks(law)
    far = law.last - law.first + 2
    lines = [(i < -far, across), (j < -far, along), ((i > far) & (j > law.radius), across)]
    assert all(np.any(at) and not np.any(more[at]) for at, more in lines)


def test_an_outcome_is_bounded_at_both_ends_of_its_loss_and_beyond_its_rounding() -> None:
    law, penalty = noisy_labels._Noise(weights_of(GAUSSIAN), 2.0), noisy_labels.RenyiPenalty(2.0)
    one, ends = np.ones(1), [np.array([0.1]), np.array([-3.0])]
    bound = noisy_labels._bound_term(law, penalty, one, ends)
    assert bound[0] > max(float(penalty.weigh(end)[0]) for end in ends)
    assert noisy_labels._bound_term(law, penalty, one, ends, 0.0)[0] == float(penalty.weigh(ends[1])[0])
