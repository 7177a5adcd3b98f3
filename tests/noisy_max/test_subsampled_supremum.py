"""The supremum for a vote that rarely moves: against all places of few votes, and outside all blocks."""

import itertools

import mpmath
import numpy as np
import pytest

from darrm.loss.vote_counts import curve_of_votes
from darrm.noisy_max.label_cost import label_curve, two_class_errors
from darrm.noisy_max.label_supremum import SubsampledRenyi, TwoClasses, supremum
from darrm.numerics import Array
from darrm.numerics.integer_noise import DiscreteGaussian, DiscreteLaplace, IntegerNoise
from tests.noisy_max.oracles import histograms, label_laws, law_of, neighbors

ORDERS = np.array([1.5, 2.0, 3.0])


def list_outcomes(noise: IntegerNoise, a: int, b: int, other: int, priority: tuple[str, ...]) -> Array:
    """Compute Pr[a, b, other] of two noisy counts and a known third; the priority decides ties."""
    x, logs = law_of(noise, 30)
    masses = np.outer(np.exp(logs), np.exp(logs))
    heights = [3 * (x + a)[:, None], 3 * (x + b)[None, :], np.array([[3 * other]])]
    ranked = np.broadcast_arrays(*(height - priority.index(name) for height, name in zip(heights, "abo", strict=True)))
    winner = np.argmax(ranked, axis=0)
    return np.array([masses[winner == place].sum() for place in range(3)])


@pytest.mark.parametrize(
    ("noise", "K", "q"),
    [(DiscreteGaussian(0.6), 2, 0.05), (DiscreteGaussian(0.6), 3, 0.5), (DiscreteLaplace(1.0), 2, 0.3)],
)
def test_no_place_of_few_votes_costs_more(noise: IntegerNoise, K: int, q: float) -> None:
    worst = np.zeros((2, ORDERS.size))
    moves = [(a, b) for a in range(1, K + 1) for b in range(K - a + 1)]
    for (a, b), other, priority in itertools.product(moves, range(-4, 5), itertools.permutations("abo")):
        laws = [list_outcomes(noise, a - step, b + step, other, priority) for step in (0, 1)]
        for without, moved in (laws, laws[::-1]):
            mixture = (1.0 - q) * without + q * moved
            for side, (P, Q) in enumerate(((mixture, without), (without, mixture))):
                worst[side] = np.maximum(worst[side], [float(np.sum(P**o * Q ** (1.0 - o))) - 1.0 for o in ORDERS])
    forward, back = supremum(TwoClasses(noise), SubsampledRenyi(ORDERS, noise.deviation, q), K).reshape(2, -1)
    assert np.all(worst <= np.stack([forward, back]) * (1.0 + 1e-9))
    assert back == pytest.approx(worst[1], rel=1e-3)
    assert forward[0] == pytest.approx(worst[0, 0], rel=1e-3)  # larger orders allow leads that no priority has


# at larger orders of narrow noise half a vote of lead multiplies the cost
@pytest.mark.quick_cases(2)
@pytest.mark.parametrize(("sigma", "slack", "orders"), [(0.9, 1.37, (2.0, 4.0)), (4.0, 1.05, (2.0, 4.0, 8.0))])
@pytest.mark.parametrize("q", [0.001, 0.2])
def test_three_classes_nearly_attain_the_curve(sigma: float, slack: float, orders: tuple[float, ...], q: float) -> None:
    K, noise = 9, DiscreteGaussian(sigma)
    laws = {row: label_laws(noise, row, fair=True) for row in histograms(K, 3)}
    absent, moved = np.array([(laws[row], laws[other]) for row in laws for other in neighbors(row)]).swapaxes(0, 1)
    mixture = (1.0 - q) * absent + q * moved
    curve, certain = label_curve(noise, rate=q, votes=K), label_curve(noise)
    two = curve_of_votes(two_class_errors(noise, K), K, 1, q)
    for order in orders:
        sums = [np.sum(P**order * Q ** (1.0 - order), axis=1) for P, Q in ((mixture, absent), (absent, mixture))]
        exact, bound = np.log(np.max(sums)) / (order - 1.0), curve.bound_at(order)
        assert two.bound_at(order) <= bound <= certain.bound_at(order)
        assert exact * (1.0 - 1e-7) <= bound <= slack * exact


@pytest.mark.parametrize("q", [0.05, 0.3, 0.99])
@pytest.mark.parametrize("noise", [DiscreteGaussian(1.0), DiscreteLaplace(2.0)])
def test_places_outside_the_blocks_add_at_most_their_bound(noise: IntegerNoise, q: float) -> None:
    laws, orders, reach = TwoClasses(noise), np.array([1.5, 4.0, 8.0, 20.0]), 200
    _, logs = law_of(noise, reach)
    below = np.logaddexp.accumulate(logs)

    def win(first: int, second: int) -> mpmath.mpf:
        """Compute Σ f(u − first)·G(u − second) over u ≥ 0."""
        u = np.arange(100) + reach
        return mpmath.exp(float(np.logaddexp.reduce(logs[u - first] + below[np.minimum(u - second, 2 * reach)])))

    with np.errstate(over="ignore"):
        forward, back = SubsampledRenyi(orders, noise.deviation, q).bound_outside(laws, np.zeros(8)).reshape(2, -1)
    for far, near in itertools.product((-laws.right - 1, -laws.right - 3), range(-laws.right, laws.left, 3)):
        # class a, far behind, falls farther behind; class b the other way round
        for moved, without in ((win(far, near), win(far - 1, near + 1)), (win(far, near + 1), win(far + 1, near))):
            t = q * (moved / without - 1)
            for order, bound, bound_back in zip(orders.tolist(), forward, back, strict=True):
                assert without * ((1 + t) ** order - 1 - order * t) <= bound
                assert without * ((1 + t) ** (1 - order) - 1 + (order - 1) * t) <= bound_back


def test_the_log_bound_of_a_penalty_is_above_it() -> None:
    measure, losses = SubsampledRenyi(np.array([1.5, 4.0]), 1.0, 0.1), np.array([5.0, 50.0, 150.0])
    for index in range(measure.size):
        logs, bounds = np.log(measure.penalty(losses, index)), measure.log_bound(losses, index)
        assert np.all((logs <= bounds) & (bounds < logs + 3.0))
