"""What a label costs at given votes, against every neighbor of small ensembles, and what bounds it by q alone."""

from collections.abc import Iterator
from itertools import combinations
from typing import Any

import numpy as np
import pytest

from darrm.noisy_max import cost_given_votes
from darrm.noisy_max.cost_given_votes import SmallNoise, label_costs
from darrm.noisy_max.label_cost import threshold_curve
from darrm.noisy_max.mislabel_bound import GaussianMislabelBound, others_majorant
from darrm.noisy_max.noise_law import NoiseDifference
from darrm.numerics.integer_noise import AsymmetricNoise, DiscreteGaussian, DiscreteLaplace
from tests.noisy_max.oracles import ORDERS, REACH, divergences, histograms, label_laws, neighbors

NOISES: tuple[SmallNoise, ...] = (
    *(DiscreteGaussian(sigma) for sigma in (0.7, 1.0, 2.0, 5.0, 9.0)),
    *(DiscreteLaplace(gamma) for gamma in (0.3, 1.0, 2.5)),
)


def worst(
    noise: SmallNoise, counts: tuple[int, ...], reach: int = REACH, orders: np.ndarray = ORDERS
) -> tuple[np.ndarray, np.ndarray, float]:
    """Both divergences over all neighbors, one by one, and how likely the label is not the likeliest class."""
    before = label_laws(noise, counts, fair=True, reach=reach)
    afters = [label_laws(noise, moved, fair=True, reach=reach) for moved in neighbors(counts)]
    forward = np.max([divergences(before, after, orders) for after in afters], axis=0)
    reverse = np.max([divergences(after, before, orders) for after in afters], axis=0)
    return forward, reverse, 1.0 - float(before.max())


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize(
    ("noise", "K", "C"),
    [
        *((noise, 7, 2) for noise in NOISES),
        *((noise, 6, 3) for noise in NOISES[1::2]),
        *((noise, 5, 4) for noise in NOISES[::8]),
        *(pytest.param(noise, 6, 3, marks=pytest.mark.slow) for noise in NOISES[::2]),
        *(pytest.param(noise, 5, 4, marks=pytest.mark.slow) for n, noise in enumerate(NOISES) if n % 8),
    ],
)
def test_costs_are_the_worst_of_all_neighbors_in_both_directions(noise: SmallNoise, K: int, C: int) -> None:
    rows = histograms(K, C)
    found = label_costs(noise, rows, ORDERS)
    for row, which in zip(rows, found.histogram_index, strict=True):
        forward, reverse, missed = worst(noise, row)
        assert np.all(found.forward[which] >= forward - 1e-14)
        assert np.all(found.reverse[which] >= reverse - 1e-14)
        assert found.forward[which] == pytest.approx(forward, abs=1e-10)
        assert found.reverse[which] == pytest.approx(reverse, abs=1e-10)
        assert found.missed[which] == pytest.approx(missed, rel=1e-9, abs=1e-12)


FAR_BEHIND = [(60, 0, 0, 0), (58, 1, 1, 0), (45, 15, 0, 0), (30, 29, 1, 0), (31, 29, 0, 0), (40, 10, 10, 0)]
MANY = [(150, 50, 25, 25, 0, 0, 0, 0), (200, 30, 20, 0, 0, 0, 0, 0), (35, 35, 30, 30, 30, 30, 30, 30)]


@pytest.mark.parametrize(
    ("noise", "rows", "orders", "error", "reach"),
    [
        (DiscreteGaussian(2.0), FAR_BEHIND, 3, 1e-9, REACH),
        (DiscreteGaussian(3.5), FAR_BEHIND, 3, 1e-9, REACH),
        (DiscreteLaplace(1.5), FAR_BEHIND, 3, 1e-9, REACH),
        (DiscreteGaussian(70.0), MANY, 5, 1e-7, 900),  # few nodes, whose error is charged
    ],
    ids=["2 votes", "3.5 votes", "Laplace", "70 votes"],
)
def test_classes_far_behind_and_wide_noise_are_bounded_and_nearly_exact(
    noise: SmallNoise, rows: list[tuple[int, ...]], orders: int, error: float, reach: int
) -> None:
    found = label_costs(noise, rows, ORDERS)
    for row, which in zip(rows, found.histogram_index, strict=True):
        forward, reverse, _ = worst(noise, row, reach)
        for costs, exact in ((found.forward[which], forward), (found.reverse[which], reverse)):
            assert np.all(costs >= exact - 1e-14)
            assert costs[:orders] == pytest.approx(exact[:orders], abs=error)


@pytest.mark.slow
def test_moves_that_are_left_out_would_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    noise, orders = DiscreteGaussian(12.0), np.array([1.25, 2.0, 5.0, 9.0, 20.0, 40.0])
    rows = np.random.default_rng(3).multinomial(120, np.random.default_rng(4).dirichlet(np.full(6, 0.7), size=40))
    rows[:2] = [[60, 30, 30, 0, 0, 0], [20, 20, 20, 20, 20, 20]]
    full = label_costs(noise, rows, orders)
    left_out = []

    def seen(*arguments: Any) -> np.ndarray:
        left_out.append(skipped(*arguments).ravel())
        return skipped(*arguments)

    skipped = cost_given_votes._find_skippable
    monkeypatch.setattr(cost_given_votes, "_find_skippable", seen)
    monkeypatch.setattr(cost_given_votes, "_LARGE_SIZE", 0)
    short = label_costs(noise, rows, orders)
    assert np.array_equal(short.forward, full.forward)
    assert np.array_equal(short.reverse, full.reverse)
    assert 0.2 < np.mean(np.concatenate(left_out)) < 1.0


@pytest.mark.parametrize(("sigma", "gap", "order"), [(1.0, 36, 20.0), (2.0, 70, 60.0), (5.0, 160, 130.0)])
def test_orders_far_beyond_the_deviation_are_not_understated(sigma: float, gap: int, order: float) -> None:
    noise = np.arange(-300, 301)
    law = np.logaddexp.reduce(np.add.outer(weights := DiscreteGaussian(sigma).log_weights(noise), weights).ravel())
    shifted = [-np.square(noise) / 2 - np.square(noise + k) / 2 for k in range(gap, gap + 103)]
    tails = np.logaddexp.accumulate([np.logaddexp.reduce(one / sigma**2) - law for one in shifted][::-1])[::-1]
    wins = np.logaddexp(tails[:-1], tails[1:]) - np.log(2.0)  # a tie is shared
    cost = (order * wins[0] + (1.0 - order) * wins[2]) / (order - 1.0)
    found = label_costs(DiscreteGaussian(sigma), [[1000, 1000 - gap]], [order])
    assert found.forward[0, 0] >= cost
    assert np.all(GaussianMislabelBound(sigma, order).cost(np.append(found.missed, np.exp(wins[0]))) >= cost)


def test_the_highest_orders_need_no_more_memory_than_others() -> None:
    bound = GaussianMislabelBound(0.5, 1e4)
    assert bound.cost(np.array([0.0, 1e-9])).tolist() == [bound.ceiling] * 2
    assert others_majorant(DiscreteGaussian(0.5), 1e4)[1].size == 1


def test_many_tied_classes_get_as_many_nodes_as_they_need() -> None:
    found = label_costs(DiscreteGaussian(8.0), [[1] * 1000], [2.0])
    assert found.missed[0] == pytest.approx(0.999, rel=1e-7)


def test_noise_and_orders_that_are_not_known_are_refused() -> None:
    with pytest.raises(ValueError, match="noise must be discrete Gaussian or Laplace"):
        label_costs(AsymmetricNoise(4.0, 4.0, 2.0, 2.0), [[3, 1]], [2.0])  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="orders"):
        label_costs(DiscreteGaussian(4.0), [[3, 1]], [2.0, 1.5])


def moves(noise: DiscreteGaussian, K: int, C: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    laws = {row: label_laws(noise, row, fair=fair) for fair in (True, False) for row in histograms(K, C)}
    for row in histograms(K, C):
        for moved in neighbors(row):
            yield laws[row], laws[moved]


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("sigma", [0.8, 2.0, 6.0])
@pytest.mark.parametrize(("K", "C"), [(7, 3), (4, 4)])
def test_every_event_moves_along_the_tail_and_costs_at_most_its_sums(sigma: float, K: int, C: int) -> None:
    noise, law, order = DiscreteGaussian(sigma), NoiseDifference(sigma), 6.0
    tails = np.exp(law.log_tails)
    places = np.arange(law.first, law.last + 1)
    sums = np.exp(law.log_sums(order, 1))
    pairs = 0
    for before, after in moves(noise, K, C):
        for size in range(1, C):
            for event in map(list, combinations(range(C), size)):
                here, there = before[event].sum(), after[event].sum()
                place = np.interp(-here, -tails, places)
                assert there <= np.interp(place - 2.0, places, tails) * (1.0 + 1e-9)
                assert there >= np.interp(place + 2.0, places, tails) * (1.0 - 1e-9)
                index = law.find_index(float(np.log(here)))
                assert np.sum(before[event] ** order * after[event] ** (1.0 - order)) <= sums[index] * (1.0 + 1e-9)
                reverse = np.sum(after[event] ** order * before[event] ** (1.0 - order))
                assert reverse <= sums[index - 2] * (1.0 + 1e-9)
                pairs += 1
    assert pairs > 500


@pytest.mark.parametrize("sigma", [1.0, 2.0, 5.0, 9.0])
@pytest.mark.parametrize(("K", "C"), [(12, 2), (9, 3), (6, 4)])
def test_q_alone_bounds_the_cost_before_and_after_a_vote(sigma: float, K: int, C: int) -> None:
    for order in (1.5, 4.0, 12.0):
        bound = GaussianMislabelBound(sigma, order)
        rows = histograms(K, C)
        found = label_costs(DiscreteGaussian(sigma), rows, [order])
        costs = bound.cost(found.missed)
        assert np.all(np.minimum(found.worst[:, 0], bound.ceiling) <= costs + 1e-10)
        of_row = dict(zip(rows, costs[found.histogram_index], strict=True))
        for row in rows:
            most = np.interp(of_row[row], *bound.after_one_vote)
            assert max(of_row[moved] for moved in neighbors(row)) <= most * (1.0 + 1e-9)


def test_q_alone_is_a_close_bound_where_two_classes_compete() -> None:
    rows = [[a, 250 - a] for a in (250, 220, 190, 160, 130)]
    for order in (8.0, 20.0):
        bound = GaussianMislabelBound(40.0, order)
        found = label_costs(DiscreteGaussian(40.0), rows, [order])
        ratio = bound.cost(found.missed) / np.minimum(found.worst[:, 0], bound.ceiling)
        assert np.all(ratio >= 1.0)
        assert np.all(ratio < 1.2)


@pytest.mark.parametrize("sigma", [0.7, 2.0, 7.0])
def test_one_comparison_is_charged_for_its_bit(sigma: float) -> None:
    curve = threshold_curve(DiscreteGaussian(sigma))
    points = np.arange(-90, 91)
    logs = DiscreteGaussian(sigma).log_weights(points)
    total = np.logaddexp.reduce(logs)
    for order in (1.25, 4.0, 20.0):
        largest = 0.0
        for level in range(-20, 21):
            bits = [
                np.array([np.logaddexp.reduce(logs[points >= at]), np.logaddexp.reduce(logs[points < at])]) - total
                for at in (level, level + 1)
            ]
            for p, q in (bits, bits[::-1]):
                largest = max(largest, float(np.logaddexp.reduce(order * p + (1.0 - order) * q) / (order - 1.0)))
        value = float(curve.values[curve.orders == order][0])
        assert largest <= value
        assert value <= 1.02 * largest or order > 5.0 * sigma  # such orders are left to the count's own cost
        assert value <= order / (2.0 * sigma**2)


def test_labels_of_narrow_laplace_noise_cost_what_they_cost_at_every_order() -> None:
    noise, votes, orders = DiscreteLaplace(3.0), (52, 2, 4), np.array([2.0, 20.0, 130.0])
    forward, reverse, _ = worst(noise, votes, orders=orders)
    found = label_costs(noise, [votes], orders)
    for costs, exact in ((found.forward[0], forward), (found.reverse[0], reverse)):
        assert np.all((costs >= exact - 1e-12) & (costs <= 1.001 * exact + 1e-10))
    assert found.forward[0, 1] < 1e-10  # what a label of agreeing voters costs, not what its noise may cost
