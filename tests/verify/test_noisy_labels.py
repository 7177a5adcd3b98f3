"""Costs of noisy maxima: never below brute force over histograms, and close to those of the prover."""

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from darrm.noisy_max.label_cost import label_curve
from darrm.numerics.integer_noise import AsymmetricNoise, DiscreteGaussian, DiscreteLaplace, IntegerNoise
from darrm.verify import noisy_labels
from darrm.verify.noisy_labels import TooWideError, delta_of_label, renyi_of_label
from darrm.verify.verdicts import Array, Interval
from tests.noisy_max.oracles import divergences, histograms, hockey_stick, label_laws, neighbors
from tests.verify.test_sums import compute_gaussian_delta

GAUSSIAN, SHAPED = DiscreteGaussian(1.5), AsymmetricNoise(3.0, 3.0, 1.5, 1.25)
# with the share of the bound that the worst pair attains: a level of the others that does not vary is worse
NOISES: dict[str, tuple[IntegerNoise, float]] = {
    "Gaussian": (GAUSSIAN, 0.9),
    "Laplace": (DiscreteLaplace(0.6), 0.7),
    "shaped": (SHAPED, 0.6),
}


def make_weights(noise: IntegerNoise) -> Callable[[Array], Array]:
    return lambda points: noise.log_weights(points.astype(np.int64))


def list_laws(noise: IntegerNoise, *sizes: tuple[int, int], fair: bool) -> list[tuple[Array, Array]]:
    """List the laws of labels of K votes on C classes, and of their neighbors; ties are shared if they are fair."""
    laws = {counts: label_laws(noise, counts, fair=fair) for K, C in sizes for counts in histograms(K, C)}
    return [(law, laws[moved]) for counts, law in laws.items() for moved in neighbors(counts)]


def find_worst_divergence(laws: list[tuple[Array, Array]], order: float) -> float:
    return max(float(divergences(p, q, np.array([order]))[0]) for p, q in laws)


@pytest.mark.parametrize(("name", "fair"), [("Gaussian", False), *((name, True) for name in NOISES)])
def test_no_pair_of_histograms_costs_more(name: str, *, fair: bool) -> None:
    noise, share = NOISES[name]
    laws = list_laws(noise, (4, 3), (9, 2), fair=fair)
    for order in (1.5, 4.0):
        bound = renyi_of_label(make_weights(noise), order).upper
        assert share * bound < find_worst_divergence(laws, order) <= bound
    for epsilon in (0.0, 0.4):
        bound = delta_of_label(make_weights(noise), epsilon).upper
        assert share * bound < max(hockey_stick(p, q, epsilon) for p, q in laws) <= bound


@pytest.mark.parametrize(("K", "C"), [(2, 2), (3, 2)])
def test_few_voters_cost_less(K: int, C: int) -> None:
    noise, order = DiscreteGaussian(2.0), 8.0
    worst = find_worst_divergence(list_laws(noise, (K, C), fair=False), order)
    bounds = [renyi_of_label(make_weights(noise), order, lead=lead).upper for lead in (K, K + 1, math.inf)]
    assert worst < bounds[0] < bounds[1] < bounds[2]


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize(
    ("noise", "order"),
    [(DiscreteGaussian(40.0), 8.0), (DiscreteLaplace(0.05), 20.0), (AsymmetricNoise(30.0, 20.0, 2.5, 1.5), 2.0)],
)
def test_the_divergence_is_that_of_the_prover_within_two_percent(noise: IntegerNoise, order: float) -> None:
    curve = label_curve(noise)
    stated = float(curve.values[curve.orders == order][0])
    divergence = renyi_of_label(make_weights(noise), order)
    assert 0.975 * stated < divergence.lower <= divergence.upper <= stated * (1.0 + 1e-3)
    assert divergence.upper <= divergence.lower * (1.0 + 1.1e-3)


def test_delta_of_gaussian_noise_is_that_of_two_counts() -> None:
    points = np.arange(-40, 41)
    masses = np.exp(GAUSSIAN.log_weights(points))
    law = np.convolve(masses / masses.sum(), masses / masses.sum())
    for epsilon in (0.0, 0.1, 0.7, 1.5, 3.0):
        exact = float(np.maximum(0.0, law - math.exp(epsilon) * np.roll(law, -2)).sum())
        delta = delta_of_label(make_weights(GAUSSIAN), epsilon)
        assert delta.lower <= exact * (1 + 1e-12)
        assert exact <= delta.upper <= exact * (1.0 + 2e-3) + 1e-15


def test_delta_of_wide_gaussian_noise_is_that_of_a_normal_law() -> None:
    for epsilon in (0.0, 0.0003, 0.002, 0.003):
        delta = noisy_labels.delta_of_gaussian_label(4000.0, epsilon)
        true = compute_gaussian_delta(math.sqrt(2.0) / 4000.0, Fraction(epsilon))
        assert delta.lower == pytest.approx(float(true), rel=1e-4)
        assert delta.lower < delta.upper < delta.lower * (1.0 + 1e-11)


@pytest.mark.parametrize(
    ("log_weights", "order", "message"),
    [
        (lambda points: -((points / 1e7) ** 2), 2.0, "wide"),
        (lambda points: -1e6 * np.abs(points), 2.0, "next to none"),
        (lambda points: -(points**2) / 2.0, 1e4, "order"),
    ],
)
def test_noise_that_takes_too_long_is_refused(
    log_weights: Callable[[Array], Array], order: float, message: str
) -> None:
    with pytest.raises(TooWideError, match=message):
        renyi_of_label(log_weights, order)


@pytest.mark.parametrize(
    "enclose", [lambda w, goal: renyi_of_label(w, 4.0, goal=goal), lambda w, goal: delta_of_label(w, 0.3, goal=goal)]
)
def test_a_bound_is_as_close_as_its_goal_needs(enclose: Callable[..., Interval[float]]) -> None:
    weights = make_weights(GAUSSIAN)
    close = enclose(weights, 0.0)
    for factor in (1.01, 1.3, 5.0):
        loose = enclose(weights, close.upper * factor)
        assert close.lower * 0.5 < loose.lower <= close.upper <= loose.upper <= close.upper * factor
    assert loose.upper > close.upper * 1.1
    for factor in (0.5, 0.99):
        tight = enclose(weights, close.lower * factor)
        assert [tight.lower, tight.upper] == pytest.approx([close.lower, close.upper], rel=2e-3)


# ------------------------------------------------------------------------------------------------ the search


@pytest.mark.parametrize("penalty", [noisy_labels.RenyiPenalty(3.0), noisy_labels._HockeyStick(0.3)])
def test_the_bound_of_a_block_is_above_all_its_places(penalty: Any) -> None:
    law, rng = noisy_labels._Noise(make_weights(SHAPED), 3.0), np.random.default_rng(3)
    for _ in range(40):
        i, j, across, along = (int(number) for number in (*rng.integers(-8, 10, 2), *rng.integers(0, 5, 2)))
        bound = noisy_labels._bound_blocks(law, penalty, np.array([[i], [j], [across], [along]]))[0]
        row, column = (places.ravel() for places in np.mgrid[i : i + across + 1, j : j + along + 1])
        for z in (0, 1):
            lower, upper = noisy_labels._evaluate_places(law, penalty, row, column, z)
            assert np.all(upper >= lower)
            assert bound >= float(np.max(upper)) * (1.0 - 1e-15)


def test_the_first_blocks_are_a_box_and_three_lines() -> None:
    law = noisy_labels._Noise(make_weights(GAUSSIAN), 2.0)
    i, j, across, along = noisy_labels._list_first_blocks(law)
    far = law.last - law.first + 2
    for places, extent in ((i < -far, across), (j < -far, along), ((i > far) & (j > law.radius), across)):
        assert np.any(places)
        assert not np.any(extent[places])


def test_a_term_is_bounded_at_both_ends_of_its_loss_and_beyond_its_rounding() -> None:
    law, penalty = noisy_labels._Noise(make_weights(GAUSSIAN), 2.0), noisy_labels.RenyiPenalty(2.0)
    ends = [np.array([0.1]), np.array([-3.0])]
    bound = noisy_labels._bound_term(law, penalty, np.ones(1), ends)
    assert bound[0] > max(float(penalty.weigh(end)[0]) for end in ends)
    assert noisy_labels._bound_term(law, penalty, np.ones(1), ends, 0.0)[0] == float(penalty.weigh(ends[1])[0])
