"""The cost of a label for any votes: against every histogram of small ensembles, and attained by two classes."""

from itertools import pairwise, product

import numpy as np
import pytest
from mpmath import mp

from darrm.loss.renyi import DEFAULT_ORDERS
from darrm.noisy_max.label_cost import label_curve, label_estimate, label_profile, threshold_curve, two_class_errors
from darrm.noisy_max.label_supremum import (
    HockeyStick,
    Renyi,
    TwoClasses,
    _Blocks,
    _bound_loss_excess,
    _compute_terms,
    _sum_terms,
    _tabulate_outcomes,
)
from darrm.noisy_max.noisy_law import winning_probabilities
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
SKEWED = (
    AsymmetricNoise(1.5, 3.0, 3.0, 2.0),
    AsymmetricNoise(4.0, 6.0, 2.5, 2.0),
    AsymmetricNoise(5.0, 2.0, 1.5, 3.0),
)
AT = np.searchsorted(DEFAULT_ORDERS, ORDERS)


@pytest.mark.quick_cases(3)
@pytest.mark.parametrize("noise", [*NOISES, *SKEWED], ids=str)
@pytest.mark.parametrize(("K", "C"), [pytest.param(8, 2, marks=pytest.mark.slow), (8, 3), (5, 4)])
@pytest.mark.parametrize("fair", [False, True])
def test_no_histogram_costs_more(noise: IntegerNoise, K: int, C: int, fair: bool) -> None:
    laws = {counts: label_laws(noise, counts, fair=fair) for counts in histograms(K, C)}
    pairs = [(laws[row], laws[moved]) for row in laws for moved in neighbors(row)]
    worst = np.max([divergences(p, q) for p, q in pairs], axis=0)
    assert np.all(worst <= label_curve(noise).values[AT] * (1.0 + 1e-9))
    profile = label_profile(noise)
    assert profile is not None
    for epsilon in profile.epsilons[::12]:
        assert max(hockey_stick(p, q, epsilon) for p, q in pairs) <= profile.delta_at(epsilon) * (1.0 + 1e-9)


@pytest.mark.quick_cases(3)
@pytest.mark.parametrize(
    ("noise", "moved"),
    [
        (DiscreteGaussian(2.0), 1),
        (DiscreteLaplace(0.4), 2),
        (DiscreteLaplace(1.0), 1),
        (DiscreteGaussian(3.0), 2),
        (DiscreteGaussian(3.0), 3),
        (DiscreteGaussian(0.7), 1),
        (DiscreteGaussian(1.0), 1),
        (DiscreteGaussian(5.0), 1),
        (DiscreteLaplace(0.3), 1),
        (DiscreteLaplace(2.5), 1),
    ],
    ids=str,
)
def test_two_classes_above_a_level_nearly_attain_curve_and_profile(noise: IntegerNoise, moved: int) -> None:
    curve, profile = label_curve(noise, moved=moved).values[AT], label_profile(noise, moved=moved)
    assert profile is not None
    step, far = max(1, int(noise.deviation / 4.0)), int(8 * noise.deviation)
    places = [*product(range(-step, 12 * step, step), repeat=2)]
    places += [(x, y) for y in (0, far // 4, far) for x in range(y - far, y + far // 2, max(1, far // 40))]
    pairs = [(three_outcomes(noise, x, y), three_outcomes(noise, x - moved, y + moved)) for x, y in places]
    pairs += [(q, p) for p, q in pairs]
    worst = np.max([divergences(p, q) for p, q in pairs], axis=0)
    moderate = 2.0 * noise.deviation >= ORDERS * (1 if moved == 1 else 2)
    assert np.all(worst <= curve)
    assert np.all(worst[moderate] >= curve[moderate] / (1.02 if moved == 1 else 1.25))
    for index, epsilon in enumerate(profile.epsilons[::8]):
        delta, largest = profile.delta_at(epsilon), max(hockey_stick(p, q, epsilon) for p, q in pairs)
        assert largest <= delta * (1.0 + 1e-9)
        assert largest >= delta / 1.03 or index >= 6 or moved > 1 or noise == DiscreteGaussian(0.7)


@pytest.mark.parametrize(
    ("noise", "orders", "slack"),
    [
        (DiscreteGaussian(40.0), (2.0, 8.0, 16.0), 1.02),
        (AsymmetricNoise(40.0, 60.0, 2.5, 2.0), (2.0, 8.0, 16.0), 1.02),
        # a long tail on the left: the search stops early at high orders, which must not loosen the others
        pytest.param(AsymmetricNoise(14.0, 112.0, 3.0, 1.0), (2.0, 4.0, 8.0), 1.04, marks=pytest.mark.slow),
        pytest.param(AsymmetricNoise(56.0, 448.0, 3.0, 1.0), (2.0, 4.0, 8.0), 1.04, marks=pytest.mark.slow),
    ],
    ids=str,
)
def test_the_curve_of_wide_noise_is_close_to_its_estimate_from_below(
    noise: IntegerNoise, orders: tuple[float, ...], slack: float
) -> None:
    bound, estimate = label_curve(noise).values[np.searchsorted(DEFAULT_ORDERS, orders)], label_estimate(noise, orders)
    assert np.all((estimate <= bound) & (bound < slack * estimate))


@pytest.mark.parametrize(("epsilon", "rate"), [(0.2, 1.0), (1.0, 1.0), (4.0, 1.0), (2.0, 0.05)])
def test_exponential_mechanism_costs_the_worst_of_all_votes(epsilon: float, rate: float) -> None:
    curve, profile = exponential_label_curve(epsilon, rate=rate), exponential_label_profile(epsilon)
    weights = np.exp(np.linspace(-9.0, 9.0, 181))
    a, b = (grid.ravel() for grid in np.meshgrid(weights, weights))
    before = np.array([a, b, np.ones_like(a)]) / (a + b + 1.0)
    after = before * np.exp(np.array([-epsilon / 2.0, epsilon / 2.0, 0.0]))[:, None]
    after /= after.sum(axis=0)
    mixture = (1.0 - rate) * before + rate * after
    for order, bound in zip(DEFAULT_ORDERS[AT], curve.values[AT], strict=True):
        logs = [order * np.log(p) - (order - 1.0) * np.log(q) for p, q in ((before, mixture), (mixture, before))]
        worst = np.max(np.logaddexp.reduce(logs, axis=1)) / (order - 1.0)
        assert bound / 1.01 <= worst <= bound
    for x in profile.epsilons[:-20:15]:
        worst = np.max(np.sum(np.maximum(before - np.exp(x) * after, 0.0), axis=0))
        assert profile.delta_at(x) / 1.02 <= worst <= profile.delta_at(x)


@pytest.mark.parametrize("noise", NOISES[:5])
@pytest.mark.parametrize("measure", [Renyi(ORDERS, 1.0), HockeyStick(np.array([0.0, 0.05, 0.3]))])
def test_a_block_is_bounded_by_its_corners(noise: IntegerNoise, measure: Renyi | HockeyStick) -> None:
    """A bound without a corner or an outcome would hide behind the best known value."""
    laws = TwoClasses(noise)
    lines = np.arange(-3, 7) * max(1, int(noise.deviation))
    places = np.array([grid.ravel() for grid in np.meshgrid(lines, lines)])
    indices = np.arange(places.shape[1])
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        for side, index in product((1, 2), range(measure.size)):
            blocks, largest = _Blocks(laws, places, (side, side), 0.0), np.zeros(indices.size)
            for di, dj, z in product(range(side), range(side), range(2)):
                outcomes = _tabulate_outcomes(laws, places[0] + di, places[1] + dj, z)
                largest = np.maximum(largest, _sum_terms(outcomes, measure, index))
            bounds = blocks.bound_blocks(measure, index, indices)
            assert np.all(largest <= bounds)
            if side == 1:  # a single place of each z: exact but for the margin
                likely = largest > 1e-6 * largest.max()
                assert bounds[likely] == pytest.approx(largest[likely], rel=1e-6, abs=1e-9)


@pytest.mark.parametrize(("log_after", "loss"), [(-100.0, 5.0), (-680.0, 150.0), (-3.0, -4.0), (-700.0, 150.0)])
def test_terms_are_exact_where_a_penalty_is_no_float(log_after: float, loss: float) -> None:
    order, logs = 5.25, (np.array([log_after]), np.array([loss]))
    with np.errstate(over="ignore"):
        term = _compute_terms(Renyi(np.array([order]), 1.0), 0, *logs)[0]
    exact = mp.exp(log_after) * (mp.expm1(order * loss) - order * mp.expm1(loss))
    assert term == pytest.approx(float(exact), rel=1e-9) or (np.isnan(term) and log_after < -690.0)


@pytest.mark.parametrize("noise", [*NOISES[:5], *SKEWED])
@pytest.mark.parametrize("measure", [Renyi(ORDERS, 1.0), HockeyStick(np.array([0.0, 0.05, 0.3]))])
def test_a_block_of_the_line_bounds_all_places_without_others(
    noise: IntegerNoise, measure: Renyi | HockeyStick
) -> None:
    laws, leads = TwoClasses(noise), np.arange(-12, 13)
    line = np.array([leads, np.zeros_like(leads)]) + laws.near + laws.left + 60
    blocks = _Blocks(laws, line, (1, 1), _bound_loss_excess(laws))
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        for index, shift, z in product(range(measure.size), (0, 1, 5), range(2)):
            j = laws.near + np.maximum(-leads, 0) + shift
            outcomes = _tabulate_outcomes(laws, j + leads, j, z)
            bounds = blocks.bound_blocks(measure, index, np.arange(leads.size))
            assert np.all(_sum_terms(outcomes[:2], measure, index) <= bounds)


@pytest.mark.parametrize("moved", [2, 50, 349, 1000, 10**9, 10**30])
def test_the_profile_of_many_moves_is_that_of_a_group(moved: int) -> None:
    single, group = label_profile(DiscreteLaplace(1.0)), label_profile(DiscreteLaplace(1.0), moved=moved)
    if moved > 10**6:  # no group's ε is below the largest exponent
        assert group is None
        return
    assert single is not None
    assert group is not None
    least = 1.0
    for epsilon, delta in zip(*single.arrays(), strict=True):
        if moved * epsilon < 690.0:
            least = min(least, float(sum(mp.exp(epsilon * j) for j in range(moved)) * delta))
            assert least <= group.delta_at(moved * epsilon * (1.0 + 1e-15)) <= least * (1.0 + 1e-9)


def test_a_profile_keeps_the_delta_of_likely_large_losses() -> None:
    noise = AsymmetricNoise(0.5, 2.0, 3.0, 1.0)
    profile = label_profile(noise)
    assert profile is not None
    laws = [
        (three_outcomes(noise, x, y), three_outcomes(noise, x - 1, y + 1)) for x, y in product(range(-6, 7), repeat=2)
    ]
    worst = max(hockey_stick(*pair, profile.epsilons[-1]) for law in laws for pair in (law, law[::-1]))
    assert 1e-4 < worst <= profile.deltas[-1] <= 1.03 * worst


def test_an_unbounded_curve_is_infinite() -> None:
    noise = AsymmetricNoise(right=4.0, left=8.0, right_power=3.0, left_power=3.0)
    assert np.isfinite(label_curve(noise, moved=2).values[0])
    assert np.all(np.isposinf(label_curve(noise, moved=1000).values))


def test_likelihood_ratios_beyond_all_floats_count() -> None:
    # answers from 10 votes on: the order times the log of the ratio of "a" is 766, beyond all floats
    noise, order = AsymmetricNoise(1.198, 1.55, 2.75, 3.0), 5.25
    points, logs = law_of(noise, 40)

    def log_first(a: int, b: int) -> float:
        """Compute log Pr[a is on top and has 10 votes], ties to a."""
        wins = (a + points[:, None] >= b + points) & (a + points[:, None] >= 10)
        return float(np.logaddexp.reduce((logs[:, None] + logs)[wins]))

    p, q = log_first(3, 20), log_first(2, 21)
    exact = (order * p + (1.0 - order) * q) / (order - 1.0)
    assert order * (p - q) > 709.0
    assert exact <= label_curve(noise).bound_at(order) <= 1.05 * exact


@pytest.mark.parametrize(
    "noise",
    [
        *(DiscreteGaussian(sigma) for sigma in (0.7, 2.0, 7.0)),
        *(AsymmetricNoise(*scales, 3.0, 3.0) for scales in ((1.989, 0.6453), (0.6453, 1.989))),
        *(AsymmetricNoise(*shape) for shape in ((5.0, 2.0, 1.5, 3.0), (2.0, 5.0, 3.0, 1.5))),
    ],
    ids=str,
)
def test_one_comparison_costs_its_bit(noise: IntegerNoise) -> None:
    curve = threshold_curve(noise)
    points, logs = law_of(noise)
    levels = range(-20, 21)
    bits = [np.array([np.logaddexp.reduce(logs[at]) for at in (points >= t, points < t)]) for t in (*levels, 21)]
    for order in (1.25, 1.5, 4.0, 20.0):
        largest, bound = 0.0, curve.bound_at(order)
        for before, after in pairwise(bits):
            for p, q in ((before, after), (after, before)):
                largest = max(largest, float(np.logaddexp.reduce(order * p + (1.0 - order) * q) / (order - 1.0)))
        assert largest <= bound
        if isinstance(noise, DiscreteGaussian):
            assert bound <= order / (2.0 * noise.sigma**2)
            assert bound <= 1.02 * largest or order > 5.0 * noise.sigma  # such orders cost what the count does


@pytest.mark.parametrize(
    "noise", [DiscreteGaussian(0.6), DiscreteGaussian(7.0), DiscreteLaplace(0.3), DiscreteLaplace(3.0)], ids=str
)
def test_errors_of_two_classes_are_those_of_the_label(noise: DiscreteGaussian | DiscreteLaplace) -> None:
    levels = np.arange(4, 7 if noise.deviation < 1.0 else 8)
    errors = np.log(winning_probabilities(noise, np.column_stack([7 - levels, levels]))[:, 0])
    assert two_class_errors(noise, 7)[: levels.size] == pytest.approx(errors, rel=1e-6)


def test_errors_of_two_classes_hold_far_in_the_tail() -> None:
    with mp.workdps(50):  # Pr[X_a − X_b ≥ 9]
        masses = [mp.exp(-(mp.mpf(x) ** 2) / 2) for x in range(-40, 41)]
        total = sum(masses) ** 2
        differences = [sum(masses[x] * masses[x - lead] for x in range(lead, 81)) / total for lead in range(9, 60)]
        exact = float(mp.log(sum(differences) - differences[0] / 2))
    assert two_class_errors(DiscreteGaussian(1.0), 9)[-1] == pytest.approx(exact, rel=1e-12)
