"""What a label costs against every histogram of small ensembles, and against the values of independent integrals."""

from itertools import product

import numpy as np
import pytest
from mpmath import mp

from darrm.loss.renyi import DEFAULT_ORDERS
from darrm.noisy_max.label_cost import (
    label_curve,
    label_estimate,
    label_profile,
    threshold_curve,
)
from darrm.noisy_max.label_supremum import HockeyStick, Renyi, TwoClasses, _Blocks, _sum_terms, _tabulate_outcomes
from darrm.noisy_max.selection import exponential_label_curve, exponential_label_profile
from darrm.numerics.integer_noise import AsymmetricNoise, DiscreteGaussian, DiscreteLaplace, IntegerNoise
from tests.noisy_max.oracles import (
    ORDERS,
    divergences,
    histograms,
    hockey_stick,
    label_laws,
    law_of,
    neighbors,
    three_outcomes,
)

NOISES: tuple[IntegerNoise, ...] = (
    *(DiscreteGaussian(sigma) for sigma in (0.7, 1.0, 2.0, 5.0)),
    *(DiscreteLaplace(gamma) for gamma in (0.3, 1.0, 2.5)),
)
SHAPED = (
    AsymmetricNoise(1.5, 3.0, 3.0, 2.0),
    AsymmetricNoise(4.0, 6.0, 2.5, 2.0),
    AsymmetricNoise(5.0, 2.0, 1.5, 3.0),
)
AT = np.searchsorted(DEFAULT_ORDERS, ORDERS)


@pytest.mark.quick_cases(3)
@pytest.mark.parametrize("noise", [*NOISES, *SHAPED], ids=str)
@pytest.mark.parametrize(("K", "C"), [pytest.param(8, 2, marks=pytest.mark.slow), (8, 3), (5, 4)])
@pytest.mark.parametrize("fair", [False, True])
def test_no_histogram_costs_more(noise: IntegerNoise, K: int, C: int, fair: bool) -> None:
    laws = {counts: label_laws(noise, counts, fair=fair) for counts in histograms(K, C)}
    worst = np.max([divergences(laws[n], laws[m]) for n in laws for m in neighbors(n)], axis=0)
    assert np.all(worst <= label_curve(noise).values[AT] * (1.0 + 1e-9))
    profile = label_profile(noise)
    assert profile is not None
    for epsilon in profile.epsilons[::12]:
        delta = max(hockey_stick(laws[n], laws[m], epsilon) for n in laws for m in neighbors(n))
        assert delta <= profile.delta_at(epsilon) * (1.0 + 1e-9)


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize(
    "noise", [pytest.param(noise, marks=[pytest.mark.slow] * (n % 2)) for n, noise in enumerate(NOISES)]
)
def test_two_classes_above_a_level_cost_nearly_so_much(noise: IntegerNoise) -> None:
    step = max(1, int(noise.deviation / 4.0))
    worst = np.zeros(ORDERS.size)
    for x, y in product(range(-step, 12 * step, step), range(-step, 12 * step, step)):
        forward = divergences(three_outcomes(noise, x, y), three_outcomes(noise, x - 1, y + 1))
        backward = divergences(three_outcomes(noise, x - 1, y + 1), three_outcomes(noise, x, y))
        worst = np.maximum(worst, np.maximum(forward, backward))
    bound = label_curve(noise).values[AT]
    moderate = 2.0 * noise.deviation >= ORDERS
    assert np.all(worst <= bound)
    assert np.all(worst[moderate] >= bound[moderate] / 1.02)


@pytest.mark.parametrize("noise", [DiscreteGaussian(40.0), AsymmetricNoise(40.0, 60.0, 2.5, 2.0)], ids=str)
def test_the_bound_of_wide_noise_is_close_to_what_some_votes_cost(noise: IntegerNoise) -> None:
    places = np.searchsorted(DEFAULT_ORDERS, [2.0, 8.0, 16.0])
    some, bound = label_estimate(noise, DEFAULT_ORDERS[places]), label_curve(noise).values[places]
    assert np.all((some <= bound) & (bound < 1.02 * some))


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("noise", NOISES[2:])
def test_two_classes_above_a_level_have_nearly_this_profile(noise: IntegerNoise) -> None:
    profile = label_profile(noise)
    assert profile is not None
    near = int(8 * noise.deviation)
    places = [(x, y) for y in (0, near // 4, near) for x in range(y - near, y + near // 2, max(1, near // 40))]
    pairs = [(three_outcomes(noise, x, y), three_outcomes(noise, x - 1, y + 1)) for x, y in places]
    pairs += [(q, p) for p, q in pairs]
    for epsilon, bound in zip(profile.epsilons[:48:8], profile.deltas[:48:8], strict=True):
        worst = max(hockey_stick(p, q, epsilon) for p, q in pairs)
        assert bound / 1.03 <= worst <= bound * (1.0 + 1e-9)


@pytest.mark.parametrize(
    ("noise", "moved"), [(DiscreteGaussian(3.0), 2), (DiscreteGaussian(3.0), 3), (DiscreteLaplace(0.4), 2)]
)
def test_more_moves_cost_at_most_their_chain(noise: IntegerNoise, moved: int) -> None:
    curve, profile = label_curve(noise, moved=moved), label_profile(noise, moved=moved)
    assert profile is not None
    places = [(x, y) for x in range(-4, 16, 2) for y in range(-4, 16, 2)]
    pairs = [(three_outcomes(noise, x, y), three_outcomes(noise, x - moved, y + moved)) for x, y in places]
    worst = np.max([divergences(p, q) for p, q in pairs], axis=0)
    assert np.all(worst <= curve.values[AT])
    assert np.all(worst[:2] >= curve.values[AT][:2] / 1.25)
    for epsilon in profile.epsilons[::16]:
        assert max(hockey_stick(p, q, epsilon) for p, q in pairs) <= profile.delta_at(epsilon)


@pytest.mark.parametrize("epsilon", [0.2, 1.0, 4.0])
def test_exponential_mechanism_costs_the_worst_of_all_votes(epsilon: float) -> None:
    curve, profile = exponential_label_curve(epsilon), exponential_label_profile(epsilon)
    weights = np.exp(np.linspace(-9.0, 9.0, 181))
    a, b = (grid.ravel() for grid in np.meshgrid(weights, weights))
    before = np.array([a, b, np.ones_like(a)]) / (a + b + 1.0)
    after = before * np.exp(np.array([-epsilon / 2.0, epsilon / 2.0, 0.0]))[:, None]
    after /= after.sum(axis=0)
    for order, bound in zip(DEFAULT_ORDERS[AT], curve.values[AT], strict=True):
        logs = order * np.log(before) - (order - 1.0) * np.log(after)
        worst = np.max(np.logaddexp.reduce(logs, axis=0)) / (order - 1.0)
        assert bound / 1.01 <= worst <= bound
    for x in profile.epsilons[:-20:15]:
        worst = np.max(np.sum(np.maximum(before - np.exp(x) * after, 0.0), axis=0))
        assert profile.delta_at(x) / 1.02 <= worst <= profile.delta_at(x)


@pytest.mark.parametrize("noise", NOISES[:4] + NOISES[4:5])
@pytest.mark.parametrize("measure", [Renyi(ORDERS, 1.0), HockeyStick(np.array([0.0, 0.05, 0.3]))])
def test_a_block_is_bounded_by_its_corners(noise: IntegerNoise, measure: Renyi | HockeyStick) -> None:
    """A bound that left out a corner or an outcome would hide behind the best value found."""
    laws = TwoClasses(noise)
    lines = np.arange(-3, 7) * max(1, int(noise.deviation))
    places = np.array([grid.ravel() for grid in np.meshgrid(lines, lines)])
    every = np.arange(places.shape[1])
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        for side, index in product((1, 2), range(measure.size)):
            blocks, largest = _Blocks(laws, places, (side, side), 0.0), np.zeros(every.size)
            for di, dj, z in product(range(side), range(side), range(2)):
                inside = _sum_terms(_tabulate_outcomes(laws, places[0] + di, places[1] + dj, z), measure, index)
                largest = np.maximum(largest, inside)
            bounds = blocks.bound_blocks(measure, index, every)
            assert np.all(largest <= bounds)
            if side == 1:  # a single place of each z: exact but for the margin
                likely = largest > 1e-6 * largest.max()
                assert bounds[likely] == pytest.approx(largest[likely], rel=1e-6, abs=1e-9)


@pytest.mark.parametrize("moved", [2, 50, 349, 1000, 10**9, 10**30])
def test_the_profile_of_many_moves_is_that_of_a_group_as_far_as_it_goes(moved: int) -> None:
    one, group = label_profile(DiscreteLaplace(1.0)), label_profile(DiscreteLaplace(1.0), moved=moved)
    if moved > 10**6:
        assert group is None
        return
    assert one is not None
    assert group is not None
    least = 1.0
    for epsilon, delta in zip(*one.arrays(), strict=True):
        if moved * epsilon < 690.0:
            least = min(least, float(sum(mp.exp(epsilon * j) for j in range(moved)) * delta))
            assert least <= group.delta_at(moved * epsilon * (1.0 + 1e-15)) <= least * (1.0 + 1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("right", [14.0, pytest.param(56.0, marks=pytest.mark.slow)])
def test_orders_that_are_dear_leave_the_others_close(right: float) -> None:
    # a tail that is long on the left: what is computed stops early at high orders, and was a third too much at all
    noise = AsymmetricNoise(right, 8.0 * right, 3.0, 1.0)
    orders = np.array([2.0, 4.0, 8.0])
    said = label_curve(noise).values[np.searchsorted(DEFAULT_ORDERS, orders)]
    true = label_estimate(noise, orders)  # from below
    assert np.all(said >= true)
    assert np.all(said <= 1.04 * true)


def test_a_curve_that_nothing_bounds_is_infinite() -> None:
    short = AsymmetricNoise(right=4.0, left=8.0, right_power=3.0, left_power=3.0)
    assert np.isfinite(label_curve(short, moved=2).values[0])
    assert np.all(np.isposinf(label_curve(short, moved=1000).values))


def test_a_likelihood_ratio_that_is_no_float_at_its_order_counts() -> None:
    # open answers from 10 votes on: the order times the log of the ratio of "a" is 766, beyond all floats
    noise, order = AsymmetricNoise(1.198, 1.55, 2.75, 3.0), 5.25
    points, logs = law_of(noise, 40)  # where no mass is a float any more its logarithm is one

    def log_first(a: int, b: int) -> float:
        """Compute log Pr[a is on top and has 10 votes], ties to a."""
        beaten = (a + points[:, None] >= b + points) & (a + points[:, None] >= 10)
        return float(np.logaddexp.reduce((logs[:, None] + logs)[beaten]))

    p, q = log_first(3, 20), log_first(2, 21)
    true = (order * p + (1.0 - order) * q) / (order - 1.0)
    assert order * (p - q) > 709.0
    assert true <= label_curve(noise).bound_at(order) <= 1.05 * true


def test_a_threshold_costs_what_is_not_known_in_one_direction() -> None:
    noise, order = AsymmetricNoise(1.989, 0.6453, 3.0, 3.0), 1.5
    points, logs = law_of(noise, 40)  # where no mass is a float any more its logarithm is one
    p, q = (np.logaddexp.reduce(logs[points < level]) for level in (0, -1))  # of a count that grows by one vote
    assert (order * p + (1.0 - order) * q) / (order - 1.0) <= threshold_curve(noise).bound_at(order)
