"""The scale of votes: how far a run's mark moves when one teacher votes otherwise, and what is published of it."""

import math

import numpy as np
import pytest

from darrm.noisy_max.cost_given_votes import LEAST_MISSED, label_costs
from darrm.noisy_max.mechanisms import GNMax, LNMax
from darrm.noisy_max.mislabel_bound import GaussianMislabelBound, tightest_mislabel_bound
from darrm.numerics.integer_noise import DiscreteGaussian, DiscreteLaplace
from darrm.pate.analysis import Analysis
from darrm.pate.confident import ConfidentGNMax
from darrm.pate.publication import epsilon_at, sanitize
from darrm.pate.vote_scale import MARKS_A_VOTE, PublicationParameters, VoteScale
from tests.noisy_max.oracles import histograms, neighbors
from tests.pate.pate_oracles import quiet

RNG = np.random.default_rng(6)
VOTES = np.array([RNG.multinomial(250, [share, *[(1 - share) / 4] * 4]) for share in RNG.beta(6.0, 1.2, size=40)])
ANSWERED = np.arange(40) % 2 == 0
PARAMETERS = PublicationParameters(order=14.0, deviation=3.0)
BOUND = GaussianMislabelBound(40.0, 14.0)


@pytest.fixture(scope="module")
def released() -> Analysis:
    return quiet(VOTES, ConfidentGNMax(200, 150.0, 40.0), 1e-5, answered=ANSWERED)


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize(("sigma", "sizes"), [(1.5, ((12, 2), (9, 3), (6, 4))), (6.0, ((60, 2), (28, 3)))])
@pytest.mark.parametrize("order", [pytest.param(2.0, marks=pytest.mark.slow), 9.0])
def test_one_vote_in_every_query_moves_the_mark_by_at_most_one_vote(
    sigma: float, sizes: tuple[tuple[int, int], ...], order: float
) -> None:
    missed: dict[tuple[int, ...], float] = {}
    for K, C in sizes:
        rows = histograms(K, C)
        found = label_costs(DiscreteGaussian(sigma), rows, [order])
        missed |= dict(zip(rows, found.missed[found.histogram_index].tolist(), strict=True))
    bound = GaussianMislabelBound(sigma, order)
    cost = dict(zip(missed, bound.cost(np.array(list(missed.values()))).tolist(), strict=True))
    here = np.array(list(cost.values()))
    there = np.array([max(cost[one] for one in neighbors(row)) for row in cost])
    back = np.array([min(cost[one] for one in neighbors(row)) for row in cost])
    rng = np.random.default_rng(1)
    moved_most = 0
    for answers in (1, 3, 20):
        scale = VoteScale(GaussianMislabelBound(sigma, order), answers)
        for _ in range(300):
            run = rng.choice(here.size, size=answers, p=rng.dirichlet(np.full(here.size, 0.05)))
            mark = scale.find_mark(float(here[run].sum()))
            assert scale.cost_at(mark) >= min(here[run].sum(), answers * bound.ceiling)
            up = scale.find_mark(float(there[run].sum())) - mark
            down = mark - scale.find_mark(float(back[run].sum()))
            assert max(up, down) <= MARKS_A_VOTE
            moved_most = max(moved_most, up, down)
    # the scale is not merely loose where q says something: for σ = 1.5 a label's ceiling at order 9 is below all of it
    assert moved_most > MARKS_A_VOTE // 2 or bound.cost(np.full(1, 1e-9))[0] == bound.ceiling
    assert bound.cost(np.full(1, 1e-9))[0] < 0.01 * bound.ceiling or (sigma, order) == (1.5, 9.0)


@pytest.mark.parametrize(
    ("noise", "order"), [(DiscreteGaussian(1.0), 1.0001), (DiscreteGaussian(5.0), 1.0001), (DiscreteLaplace(1.0), 1.01)]
)
def test_a_run_of_fewer_queries_than_the_scale_is_for_moves_no_farther(
    noise: DiscreteGaussian | DiscreteLaplace, order: float
) -> None:
    bound = tightest_mislabel_bound(noise, order)
    scale = VoteScale(bound, 10_000_000)
    (low, high, shift), (places, _) = bound.costs_at_places, bound.places
    told = np.flatnonzero(places >= LEAST_MISSED)[shift + 1 :: 5]
    moved_most = 0
    for queries in np.geomspace(1, 10_000_000, 30).astype(int).tolist():
        before, after = (np.searchsorted(scale.marks, queries * part) for part in (low[told], high[told - shift - 1]))
        moved_most = max(moved_most, int(np.max(np.minimum(after, scale.marks.size - 1) - before)))
    assert MARKS_A_VOTE // 2 < moved_most <= MARKS_A_VOTE


def test_what_is_published_is_the_noisy_mark_and_its_parts(released: Analysis) -> None:
    scale = VoteScale(BOUND, 20)
    assert released.label is not None
    mark = scale.find_mark(float(ANSWERED @ BOUND.cost(released.label.missed[released.label.histogram_index])))
    exact = np.minimum(released.label.worst[released.label.histogram_index], 1.0)[ANSWERED]
    assert scale.cost_at(mark) > np.interp(14.0, released.label.orders, exact.sum(axis=0))
    draws = [sanitize(released, PARAMETERS, rng=np.random.default_rng(seed)) for seed in range(300)]
    check = released.queries * ConfidentGNMax(200, 150.0, 40.0).check.guarantee.bound_at(14.0)
    assert check < 40 * 14.0 / (2 * 150**2) * 0.65
    for one in draws[:20]:
        assert one.public_cost == pytest.approx(check + 14.0 / 18.0)
        assert one.epsilon == pytest.approx(epsilon_at(released, 14.0, one.noisy_cost + one.public_cost))
    marks = np.array([np.searchsorted(scale.marks, one.noisy_cost) for one in draws]) - mark
    deviation = MARKS_A_VOTE * 3.0
    assert abs(marks.mean()) < 5.5 * deviation / math.sqrt(300)
    assert marks.std() == pytest.approx(deviation, rel=0.2)


def test_safety_shifts_the_mark_and_costs_nothing(released: Analysis) -> None:
    safe = PublicationParameters(14.0, 3.0, safety=4.0)
    assert safe.cost == PARAMETERS.cost == 14.0 / 18.0
    assert released.label is not None
    total = float(ANSWERED @ BOUND.cost(released.label.missed[released.label.histogram_index]))
    drawn = [sanitize(released, safe, rng=np.random.default_rng(seed)) for seed in range(50)]
    assert all(one.noisy_cost >= total for one in drawn)
    assert drawn[0].failure_probability == pytest.approx(3.17e-5, rel=1e-2)


def test_nothing_more_than_the_worst_case_and_nothing_less_than_the_first_mark_is_published() -> None:
    scale = VoteScale(BOUND, 20)
    wide = PublicationParameters(14.0, 1e6)
    found = {scale.draw_published(100, wide, rng=np.random.default_rng(seed)) for seed in range(20)}
    assert found == {float(scale.marks[0]), 20 * BOUND.ceiling}
    assert VoteScale(BOUND, 0).marks.tolist() == [0.0]


def test_the_marks_end_where_q_alone_bounds_less_than_the_ceiling() -> None:
    bound = GaussianMislabelBound(16.0, 97.0)
    assert bound.cost(np.ones(1))[0] < bound.ceiling
    assert VoteScale(bound, 3).marks[-1] == 3 * bound.cost(np.ones(1))[0]


def test_equal_answers_move_the_mark_by_one_vote_and_unequal_ones_no_farther() -> None:
    scale = VoteScale(GaussianMislabelBound(40.0, 16.0), answers=20)
    places, values = scale.bound.after_one_vote
    for mark in (5, 40, 200):
        total = scale.cost_at(mark)
        moved = 20 * float(np.interp(total / 20, places, values))
        assert scale.find_mark(moved) - mark == MARKS_A_VOTE  # marks are rounded up
        for share in (0.3, 0.9):
            parts = total * share / 10, total * (1.0 - share) / 10
            unequal = sum(10 * float(np.interp(part, places, values)) for part in parts)
            assert scale.find_mark(unequal * (1.0 - 1e-9)) - mark <= MARKS_A_VOTE


def test_what_has_no_scale_of_votes_is_refused() -> None:
    for aggregator, message in (
        (LNMax(0.05), "LNMax has no scale of votes"),
        (GNMax(40.0, noise="continuous"), "needs exact costs: use discrete noise"),
    ):
        with pytest.raises(ValueError, match=message):
            sanitize(quiet(VOTES, aggregator, 1e-5), PARAMETERS)
    sharp = quiet(VOTES, ConfidentGNMax(200, 20.0, 40.0), 1e-5, answered=ANSWERED, check="data-dependent")
    with pytest.raises(ValueError, match="covers answers only"):
        sanitize(sharp, PARAMETERS)
    with pytest.raises(ValueError, match="parameters must be PublicationParameters or GnssParameters"):
        sanitize(sharp, None)  # type: ignore[arg-type]  # what the test is about
    for bad in ({"order": 1.0, "deviation": 3.0}, {"order": 3.0, "deviation": 0.0}, {"order": 3.0, "deviation": 1e-9}):
        with pytest.raises(ValueError, match=r"order|deviation"):
            PublicationParameters(**bad)


def test_a_mark_is_above_all_that_one_vote_makes_of_the_mark_of_a_vote_before() -> None:
    scale = VoteScale(GaussianMislabelBound(40.0, 20.0), 100)
    marks, (before, after) = scale.marks, scale.bound.after_one_vote
    moved = 100 * np.interp(marks / 100, before, after)
    later = marks[MARKS_A_VOTE:-1]
    assert later.size > 100
    assert np.all(later >= moved[: later.size] * (1.0 + 5e-10))  # what is rounded is on the safe side
