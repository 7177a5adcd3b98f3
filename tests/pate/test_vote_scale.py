"""The scale of votes: how far one vote moves a run's mark, and the figure that is published."""

import math

import numpy as np
import pytest

from darrm.loss.privacy_cost import ESTIMATED_TOTAL
from darrm.noisy_max.cost_given_votes import LEAST_MISSED, label_costs
from darrm.noisy_max.mechanisms import GNMax, LNMax
from darrm.noisy_max.mislabel_bound import GaussianMislabelBound, tightest_mislabel_bound
from darrm.numerics.integer_noise import DiscreteGaussian, DiscreteLaplace
from darrm.pate.analysis import Analysis
from darrm.pate.confident import ConfidentGNMax
from darrm.pate.publication import epsilon_at, sanitize
from darrm.pate.vote_scale import MARKS_A_VOTE, PublicationParameters, VoteScale
from tests.noisy_max.oracles import Counts, histograms, neighbors
from tests.pate.support import analyze_quietly, draw_votes

COUNTS = draw_votes(40, 5, seed=6)
ANSWERED = np.arange(40) % 2 == 0
CONFIDENT = ConfidentGNMax(200, 150.0, 40.0)
PARAMETERS = PublicationParameters(order=14.0, deviation=3.0)
BOUND = GaussianMislabelBound(40.0, 14.0)


@pytest.fixture(scope="module")
def released() -> Analysis:
    return analyze_quietly(COUNTS, CONFIDENT, answered=ANSWERED)


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("order", [9.0, 2.0])
@pytest.mark.parametrize(("sigma", "sizes"), [(1.5, ((12, 2), (9, 3), (6, 4))), (6.0, ((60, 2), (28, 3)))])
def test_one_vote_in_every_query_moves_the_mark_by_at_most_one_vote(
    sigma: float, sizes: tuple[tuple[int, int], ...], order: float
) -> None:
    bound, costs = GaussianMislabelBound(sigma, order), dict[Counts, float]()
    for K, C in sizes:
        rows = histograms(K, C)
        label = label_costs(DiscreteGaussian(sigma), rows, [order])
        costs |= dict(zip(rows, bound.cost(label.missed[label.histogram_index]).tolist(), strict=True))
    here = np.array(list(costs.values()))
    dearest, cheapest = (
        np.array([pick(costs[other] for other in neighbors(row)) for row in costs]) for pick in (max, min)
    )
    rng, largest = np.random.default_rng(1), 0
    for answers in (1, 3, 20):
        scale = VoteScale(bound, answers)
        for _ in range(300):
            run = rng.choice(here.size, size=answers, p=rng.dirichlet(np.full(here.size, 0.05)))
            mark = scale.find_mark(float(here[run].sum()))
            assert scale.cost_at(mark) >= min(here[run].sum(), answers * bound.ceiling)
            up = scale.find_mark(float(dearest[run].sum())) - mark
            down = mark - scale.find_mark(float(cheapest[run].sum()))
            largest = max(largest, up, down)
    assert largest <= MARKS_A_VOTE
    # the marks are not merely far apart, unless the ceiling is below all that q says
    assert largest > MARKS_A_VOTE // 2 or bound.cost(np.full(1, 1e-9))[0] == bound.ceiling


@pytest.mark.parametrize(
    ("noise", "order"), [(DiscreteGaussian(1.0), 1.0001), (DiscreteGaussian(5.0), 1.0001), (DiscreteLaplace(1.0), 1.01)]
)
def test_runs_with_fewer_queries_than_the_scale_move_no_farther(
    noise: DiscreteGaussian | DiscreteLaplace, order: float
) -> None:
    bound = tightest_mislabel_bound(noise, order)
    scale = VoteScale(bound, 10_000_000)
    (low, high, shift), (places, _) = bound.costs_at_places, bound.places
    reported = np.flatnonzero(places >= LEAST_MISSED)[shift + 1 :: 5]
    largest = 0
    for queries in np.geomspace(1, 10_000_000, 30).astype(int).tolist():
        before = np.searchsorted(scale.marks, queries * low[reported])
        after = np.searchsorted(scale.marks, queries * high[reported - shift - 1])
        largest = max(largest, int(np.max(np.minimum(after, scale.marks.size - 1) - before)))
    assert MARKS_A_VOTE // 2 < largest <= MARKS_A_VOTE


def test_equal_answers_move_the_mark_by_one_vote_and_unequal_ones_no_farther() -> None:
    scale = VoteScale(GaussianMislabelBound(40.0, 16.0), 20)

    def move(total: float, answers: int = 20) -> float:
        return answers * float(np.interp(total / answers, *scale.bound.after_one_vote))

    later = scale.marks[MARKS_A_VOTE:-1]
    assert later.size > 100
    for mark, after in enumerate(later):
        assert after >= move(scale.marks[mark]) * (1.0 + 5e-10)  # rounded up
    for mark in (5, 40, 200):
        total = scale.cost_at(mark)
        assert scale.find_mark(move(total)) - mark == MARKS_A_VOTE
        for share in (0.3, 0.9):
            unequal = move(total * share, 10) + move(total * (1.0 - share), 10)
            assert scale.find_mark(unequal * (1.0 - 1e-9)) - mark <= MARKS_A_VOTE


@pytest.mark.statistical
def test_the_published_figure_is_the_noisy_mark_and_its_parts(released: Analysis) -> None:
    scale, label = VoteScale(BOUND, 20), released.label
    assert label is not None
    total = float(ANSWERED @ BOUND.cost(label.missed[label.histogram_index]))
    mark = scale.find_mark(total)
    exact = np.minimum(label.worst[label.histogram_index], 1.0)[ANSWERED]
    assert scale.cost_at(mark) > np.interp(14.0, label.orders, exact.sum(axis=0))
    check = released.queries * CONFIDENT.check.guarantee.bound_at(14.0)
    assert check < 40 * 14.0 / (2 * 150**2) * 0.65
    figures = [sanitize(released, PARAMETERS, rng=np.random.default_rng(seed)) for seed in range(300)]
    for figure in figures[:20]:
        assert figure.public_cost == pytest.approx(check + 14.0 / 18.0)
        assert figure.epsilon == pytest.approx(epsilon_at(released, 14.0, figure.noisy_cost + figure.public_cost))
    marks = np.array([np.searchsorted(scale.marks, figure.noisy_cost) for figure in figures]) - mark
    deviation = MARKS_A_VOTE * 3.0
    assert abs(marks.mean()) < 5.5 * deviation / math.sqrt(300)  # false alarms: 4e-8
    assert marks.std() == pytest.approx(deviation, rel=0.2)
    safe = PublicationParameters(14.0, 3.0, safety=4.0)
    assert safe.cost == PARAMETERS.cost
    figures = [sanitize(released, safe, rng=np.random.default_rng(seed)) for seed in range(50)]
    assert all(figure.noisy_cost >= total for figure in figures)
    assert figures[0].failure_probability == pytest.approx(3.17e-5, rel=1e-2)
    # for both directions, unlike a figure by Theorem 6
    assert figures[0].privacy_cost(consent=ESTIMATED_TOTAL).failure_probability == figures[0].failure_probability
    assert "direction" not in str(figures[0])


def test_figures_are_clipped_to_the_scale() -> None:
    scale, wide = VoteScale(BOUND, 20), PublicationParameters(14.0, 1e6)
    figures = {scale.draw_published(100, wide, rng=np.random.default_rng(seed)) for seed in range(20)}
    assert figures == {float(scale.marks[0]), 20 * BOUND.ceiling}
    assert VoteScale(BOUND, 0).marks.tolist() == [0.0]
    bound = GaussianMislabelBound(16.0, 97.0)  # q alone bounds less than the ceiling
    assert bound.cost(np.ones(1))[0] < bound.ceiling
    assert VoteScale(bound, 3).marks[-1] == 3 * bound.cost(np.ones(1))[0]


def test_refusals() -> None:
    sharp = analyze_quietly(COUNTS, ConfidentGNMax(200, 20.0, 40.0), answered=ANSWERED, check="data-dependent")
    for analysis, parameters, message in (
        (analyze_quietly(COUNTS, LNMax(0.05)), PARAMETERS, "LNMax has no scale of votes"),
        (analyze_quietly(COUNTS, GNMax(40.0, noise="continuous")), PARAMETERS, "needs exact costs: use discrete noise"),
        (sharp, PARAMETERS, "covers answers only"),
        (sharp, None, "parameters must be PublicationParameters or GnssParameters"),
    ):
        with pytest.raises(ValueError, match=message):
            sanitize(analysis, parameters)  # type: ignore[arg-type]  # None is the test
    for order, deviation in ((1.0, 3.0), (3.0, 0.0), (3.0, 1e-9)):
        with pytest.raises(ValueError, match=r"order|deviation"):
            PublicationParameters(order, deviation)
