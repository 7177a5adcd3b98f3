"""The cost of a label at given votes, and its bound by q alone: against every neighbor of small ensembles."""

import math
from itertools import combinations, product
from typing import Any

import numpy as np
import pytest

from darrm.noisy_max import cost_given_votes
from darrm.noisy_max.cost_given_votes import SmallNoise, label_costs, missed_probabilities
from darrm.noisy_max.mislabel_bound import (
    GaussianMislabelBound,
    MislabelBoundByLosses,
    others_majorant,
    tightest_mislabel_bound,
)
from darrm.noisy_max.noise_law import NoiseDifference
from darrm.numerics.integer_noise import AsymmetricNoise, DiscreteGaussian, DiscreteLaplace, IntegerNoise
from tests.noisy_max.oracles import (
    ORDERS,
    REACH,
    Counts,
    divergences,
    histograms,
    label_laws,
    law_of,
    neighbors,
    three_outcomes,
    worst_divergence,
)

NOISES: tuple[SmallNoise, ...] = (
    *(DiscreteGaussian(sigma) for sigma in (0.7, 1.0, 2.0, 5.0, 9.0)),
    *(DiscreteLaplace(gamma) for gamma in (0.3, 1.0, 2.5)),
)


def compare_with_neighbors(
    noise: SmallNoise, counts: Counts, reach: int = REACH, orders: np.ndarray = ORDERS
) -> tuple[np.ndarray, np.ndarray, float]:
    """Compute both divergences, the largest over all neighbors, and the probability of another class than the top."""
    before = label_laws(noise, counts, fair=True, reach=reach)
    afters = [label_laws(noise, moved, fair=True, reach=reach) for moved in neighbors(counts)]
    forward = np.max([divergences(before, after, orders) for after in afters], axis=0)
    reverse = np.max([divergences(after, before, orders) for after in afters], axis=0)
    return forward, reverse, 1.0 - float(before.max())


@pytest.mark.quick_cases(9)
@pytest.mark.parametrize("noise", NOISES, ids=str)
@pytest.mark.parametrize(("K", "C"), [(7, 2), (6, 3), (5, 4)])
def test_costs_are_the_worst_of_all_neighbors_in_both_directions(noise: SmallNoise, K: int, C: int) -> None:
    rows = histograms(K, C)
    costs = label_costs(noise, rows, ORDERS)
    for row, index in zip(rows, costs.histogram_index, strict=True):
        forward, reverse, missed = compare_with_neighbors(noise, row)
        assert np.all(costs.forward[index] >= forward - 1e-14)
        assert np.all(costs.reverse[index] >= reverse - 1e-14)
        assert costs.forward[index] == pytest.approx(forward, abs=1e-10)
        assert costs.reverse[index] == pytest.approx(reverse, abs=1e-10)
        assert costs.missed[index] == pytest.approx(missed, rel=1e-9, abs=1e-12)


FAR_BEHIND = [(60, 0, 0, 0), (58, 1, 1, 0), (45, 15, 0, 0), (30, 29, 1, 0), (31, 29, 0, 0), (40, 10, 10, 0)]
MANY = [(150, 50, 25, 25, 0, 0, 0, 0), (200, 30, 20, 0, 0, 0, 0, 0), (35, 35, 30, 30, 30, 30, 30, 30)]


@pytest.mark.parametrize(
    ("noise", "rows", "orders", "close", "error", "reach"),
    [
        (DiscreteGaussian(2.0), FAR_BEHIND, ORDERS, 3, 1e-9, REACH),
        (DiscreteGaussian(3.5), FAR_BEHIND, ORDERS, 3, 1e-9, REACH),
        (DiscreteLaplace(1.5), FAR_BEHIND, ORDERS, 3, 1e-9, REACH),
        (DiscreteLaplace(3.0), [(52, 2, 4)], np.array([2.0, 20.0, 130.0]), 3, 1e-10, REACH),
        (DiscreteGaussian(70.0), MANY, ORDERS, 5, 1e-7, 900),  # few nodes, whose error is charged
    ],
    ids=["2 votes", "3.5 votes", "Laplace", "narrow Laplace", "70 votes"],
)
def test_far_classes_and_wide_noise_are_bounded_and_nearly_exact(
    noise: SmallNoise, rows: list[Counts], orders: np.ndarray, close: int, error: float, reach: int
) -> None:
    costs = label_costs(noise, rows, orders)
    for row, index in zip(rows, costs.histogram_index, strict=True):
        forward, reverse, _ = compare_with_neighbors(noise, row, reach, orders)
        for bound, exact in ((costs.forward[index], forward), (costs.reverse[index], reverse)):
            assert np.all(bound >= exact - 1e-14)
            assert bound[:close] == pytest.approx(exact[:close], rel=1e-3 if orders is not ORDERS else 0.0, abs=error)


@pytest.mark.slow
def test_skipped_moves_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    noise, orders = DiscreteGaussian(12.0), np.array([1.25, 2.0, 5.0, 9.0, 20.0, 40.0])
    rows = np.random.default_rng(3).multinomial(120, np.random.default_rng(4).dirichlet(np.full(6, 0.7), size=40))
    rows[:2] = [[60, 30, 30, 0, 0, 0], [20, 20, 20, 20, 20, 20]]
    full = label_costs(noise, rows, orders)
    find_skippable, skipped = cost_given_votes._find_skippable, []

    def record(*arguments: Any) -> np.ndarray:
        skipped.append(find_skippable(*arguments))
        return skipped[-1]

    monkeypatch.setattr(cost_given_votes, "_find_skippable", record)
    monkeypatch.setattr(cost_given_votes, "_LARGE_SIZE", 0)
    short = label_costs(noise, rows, orders)
    assert np.array_equal(short.forward, full.forward)
    assert np.array_equal(short.reverse, full.reverse)
    assert 0.2 < np.mean(np.concatenate([mask.ravel() for mask in skipped])) < 1.0


@pytest.mark.parametrize(("sigma", "gap", "order"), [(1.0, 36, 20.0), (2.0, 70, 60.0), (5.0, 160, 130.0)])
def test_orders_far_beyond_the_deviation_are_not_understated(sigma: float, gap: int, order: float) -> None:
    noise = np.arange(-300, 301)
    law = np.logaddexp.reduce(np.add.outer(weights := DiscreteGaussian(sigma).log_weights(noise), weights).ravel())
    shifted = [-np.square(noise) / 2 - np.square(noise + k) / 2 for k in range(gap, gap + 103)]
    tails = np.logaddexp.accumulate([np.logaddexp.reduce(logs / sigma**2) - law for logs in shifted][::-1])[::-1]
    wins = np.logaddexp(tails[:-1], tails[1:]) - np.log(2.0)  # a tie is shared
    cost = (order * wins[0] + (1.0 - order) * wins[2]) / (order - 1.0)
    costs = label_costs(DiscreteGaussian(sigma), [[1000, 1000 - gap]], [order])
    assert costs.forward[0, 0] >= cost
    assert np.all(GaussianMislabelBound(sigma, order).cost(np.append(costs.missed, np.exp(wins[0]))) >= cost)


def test_the_highest_orders_cost_the_ceiling_and_no_memory() -> None:
    bound = GaussianMislabelBound(0.5, 1e4)
    assert bound.cost(np.array([0.0, 1e-9])).tolist() == [bound.ceiling] * 2
    assert others_majorant(DiscreteGaussian(0.5), 1e4)[1].size == 1


def test_many_tied_classes_get_enough_nodes() -> None:
    costs = label_costs(DiscreteGaussian(8.0), [[1] * 1000], [2.0])
    assert costs.missed[0] == pytest.approx(0.999, rel=1e-7)


def test_the_error_of_few_nodes_is_bounded_closely() -> None:
    # the terms of degree 6 and more that three nodes miss, each up to a seventh, if 1000 classes are tied
    classes, noise = 1000, DiscreteGaussian(70.0)
    error = cost_given_votes._Histogram(cost_given_votes._Tables(noise, classes), np.ones(classes, np.int64)).error
    f = np.exp(law_of(noise, 840)[1])
    F = np.cumsum(f)[:-1]
    missed = np.sum([math.comb(classes - 1, k) * (f[1:] / F) ** k for k in range(6, 60)], axis=0) / 7.0
    share = classes * float(f[1:] * F ** (classes - 1) @ missed)
    assert 2.0 * share <= error - 4e-12 <= 4.0 * share


def test_equal_votes_take_as_much_work_as_others(monkeypatch: pytest.MonkeyPatch) -> None:
    rows, build_histogram = [], cost_given_votes._build_histogram

    def record(tables: Any, row: Any) -> Any:
        rows.append(row)
        return build_histogram(tables, row)

    monkeypatch.setattr(cost_given_votes, "_build_histogram", record)
    missed_probabilities(DiscreteGaussian(20.0), np.array([[250, 0, 0]] * 40))
    assert len(rows) == 40


def test_other_noise_and_unsorted_orders_are_refused() -> None:
    with pytest.raises(ValueError, match="noise must be discrete Gaussian or Laplace"):
        label_costs(AsymmetricNoise(4.0, 4.0, 2.0, 2.0), [[3, 1]], [2.0])  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="orders"):
        label_costs(DiscreteGaussian(4.0), [[3, 1]], [2.0, 1.5])


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("sigma", [0.8, 2.0, 6.0])
@pytest.mark.parametrize(("K", "C"), [(7, 3), (4, 4)])
def test_every_event_moves_along_the_tail_and_costs_at_most_its_sums(sigma: float, K: int, C: int) -> None:
    noise, difference, order = DiscreteGaussian(sigma), NoiseDifference(sigma), 6.0
    tails, sums = np.exp(difference.log_tails), np.exp(difference.log_sums(order, 1))
    places = np.arange(difference.first, difference.last + 1)
    events = [list(event) for size in range(1, C) for event in combinations(range(C), size)]
    rows = histograms(K, C)
    laws = [{row: label_laws(noise, row, fair=fair) for row in rows} for fair in (True, False)]
    for before, after in ((law[row], law[moved]) for law in laws for row in rows for moved in neighbors(row)):
        for event in events:
            here, there = before[event].sum(), after[event].sum()
            place = np.interp(-here, -tails, places)
            assert there <= np.interp(place - 2.0, places, tails) * (1.0 + 1e-9)
            assert there >= np.interp(place + 2.0, places, tails) * (1.0 - 1e-9)
            index = difference.find_index(float(np.log(here)))
            forward = np.sum(before[event] ** order * after[event] ** (1.0 - order))
            reverse = np.sum(after[event] ** order * before[event] ** (1.0 - order))
            assert forward <= sums[index] * (1.0 + 1e-9)
            assert reverse <= sums[index - 2] * (1.0 + 1e-9)


STEEP = AsymmetricNoise(2.0, 4.0, 3.0, 2.0), AsymmetricNoise(1.5, 1.0, 1.0, 3.0)  # their bounds are loose


@pytest.mark.quick_cases(10)
@pytest.mark.parametrize("noise", [*NOISES[1:], AsymmetricNoise(3.0, 2.5, 1.5, 2.0), *STEEP], ids=str)
@pytest.mark.parametrize(("K", "C"), [(9, 3), (12, 2), (6, 4)])
def test_q_alone_bounds_the_cost_before_and_after_a_vote(noise: IntegerNoise, K: int, C: int) -> None:
    laws = {row: label_laws(noise, row, fair=True) for row in histograms(K, C)}
    missed = dict(zip(laws, missed_probabilities(noise, np.array(list(laws))), strict=True))
    for order in (1.5, 4.0, 12.0):
        bound = tightest_mislabel_bound(noise, order)
        places, shift = bound.places
        costs = dict(zip(laws, bound.cost(np.array(list(missed.values()))), strict=True))
        tightness = 0.0
        for row, q in missed.items():
            assert q >= 1.0 - laws[row].max() - 1e-12
            exact = worst_divergence(laws, row, order)
            assert exact <= costs[row] * (1.0 + 1e-9) + 1e-10
            tightness = max(tightness, exact / costs[row])
            moved = neighbors(row)
            assert max(costs[other] for other in moved) <= np.interp(costs[row], *bound.after_one_vote) * (1.0 + 1e-9)
            place = int(np.flatnonzero(places >= q)[-1])
            assert max(missed[other] for other in moved) <= places[max(place - shift, 0)] * (1.0 + 1e-9)
        assert tightness > (0.6 if order < 12.0 else 0.35) or noise in STEEP


def test_q_alone_is_a_close_bound_where_two_classes_compete() -> None:
    rows = [[a, 250 - a] for a in (250, 220, 190, 160, 130)]
    for order in (8.0, 20.0):
        bound = GaussianMislabelBound(40.0, order)
        costs = label_costs(DiscreteGaussian(40.0), rows, [order])
        ratio = bound.cost(costs.missed) / np.minimum(costs.worst[:, 0], bound.ceiling)
        assert np.all((ratio >= 1.0) & (ratio < 1.2))


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize("order", [1.5, 4.0])
@pytest.mark.parametrize("noise", [NOISES[1], DiscreteGaussian(6.0), AsymmetricNoise(3.0, 2.5, 1.5, 2.0)], ids=str)
def test_the_majorant_of_two_other_classes_is_nearly_attained(noise: IntegerNoise, order: float) -> None:
    step, curve = max(1, int(noise.deviation / 3.0)), others_majorant(noise, order)
    tightness = []
    for x, y in product(range(-14 * step, 4 * step, step), repeat=2):
        before, after = three_outcomes(noise, x, y), three_outcomes(noise, x - 1, y + 1)
        q = float(before[:2].sum())
        excess = max(np.sum(p**order * r ** (1.0 - order)) for p, r in ((before, after), (after, before))) - 1.0
        bound = np.interp(q, *curve)
        assert excess <= bound * (1.0 + 1e-9) + 1e-13
        tightness += [excess / bound] if bound > 1e-6 and q < 0.2 else []
    assert max(tightness) > 0.9


def fill_event(probabilities: np.ndarray, values: np.ndarray, order: np.ndarray, q: float) -> float:
    """Sum the values of an event of probability q, filled with outcomes in an order, the last one in part."""
    mass = np.append(0.0, np.cumsum(probabilities[order]))
    return float(np.interp(q, mass, np.append(0.0, np.cumsum(values[order]))))


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize(
    "noise", [DiscreteLaplace(0.7), AsymmetricNoise(2.0, 3.0, 2.0, 1.5), AsymmetricNoise(3.0, 2.5, 1.5, 2.0)], ids=str
)
@pytest.mark.parametrize("order", [2.0, 6.0])
def test_the_bound_by_losses_fills_events_of_two_counts(noise: IntegerNoise, order: float) -> None:
    f = np.exp(law_of(noise, 60)[1])
    p, after = np.outer(f[1:-1], f[1:-1]).ravel(), np.outer(f[2:], f[:-2]).ravel()  # a loses a vote, b wins one
    with np.errstate(divide="ignore", invalid="ignore"):
        loss = np.where(p > 0.0, np.log(p) - np.log(after), 0.0)
    kept = p > 1e-200
    forward = np.where(kept, p * np.exp(np.where(kept, (order - 1.0) * loss, 0.0)), 0.0)
    reverse = np.where(kept, p * np.exp(np.where(kept, -order * loss, 0.0)), 0.0)
    rising = np.argsort(loss)
    falling = rising[::-1]
    bound = MislabelBoundByLosses(noise, order)
    places, shift = bound.places
    largest_after, (forward_curve, reverse_curve), least_after = bound._sums
    for q in (1e-6, 1e-4, 1e-3, 0.01, 0.05, 0.2):
        grown, fallen = fill_event(p, after, rising, q), fill_event(p, after, falling, q)
        added, returned = fill_event(p, forward, falling, q), fill_event(p, reverse, rising, q)
        for exact, curve in ((grown, largest_after), (added, forward_curve), (returned, reverse_curve)):
            assert exact <= np.interp(q, *curve) * (1.0 + 1e-9) <= 1.15 * exact
        assert 0.85 * fallen <= np.interp(q, *least_after) <= fallen
        stays = (1 - q) ** order * (1 - grown) ** (1 - order) + added
        returns = (1 - fallen) ** order * (1 - q) ** (1 - order) + returned
        exact = min(math.log(max(stays, returns)) / (order - 1.0), bound.ceiling)
        assert exact * (1.0 - 1e-9) <= float(bound.cost(np.array([q]))[0]) <= exact * 1.15 + 1e-9
        place = int(np.flatnonzero(places >= q)[-1])
        moved = fill_event(p, after, rising, places[place])
        assert moved * (1.0 - 1e-9) <= places[place - shift] <= 1.3 * moved


@pytest.mark.parametrize(("noise", "order"), [(DiscreteLaplace(400.0), 1.5), (DiscreteLaplace(60.0), 8.0)], ids=str)
def test_losses_beyond_all_floats_count(noise: IntegerNoise, order: float) -> None:
    _, logs = law_of(noise, 60)
    lost, won = (p + order * (r - p) for p, r in ((logs[1:-1], logs[2:]), (logs[1:-1], logs[:-2])))
    rare = np.add.outer(logs[1:-1], logs[1:-1]) < math.log(1e-6) - 10.0  # all of it is less than q
    exact = float(np.logaddexp.reduce(np.add.outer(lost, won)[rare])) / (order - 1.0)
    bound = MislabelBoundByLosses(noise, order)
    assert float(bound.cost(np.array([1e-6]))[0]) >= min(exact, bound.ceiling) * (1.0 - 1e-9)
    assert bound.after_one_vote[1][-1] == bound.ceiling
