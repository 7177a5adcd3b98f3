"""The supremum for a vote that rarely moves, against all places of few votes, and places that no block holds."""

import itertools

import mpmath
import numpy as np
import pytest

from darrm.noisy_max.label_supremum import SubsampledRenyi, TwoClasses, supremum
from darrm.numerics import Array
from darrm.numerics.integer_noise import DiscreteGaussian, DiscreteLaplace, IntegerNoise
from tests.noisy_max.oracles import law_of

ORDERS = np.array([1.5, 2.0, 3.0])


def outcomes(noise: IntegerNoise, a: int, b: int, other: int, priority: tuple[str, ...]) -> Array:
    """The law of {a, b, another}: two noisy counts, a third that is known, and an order that decides ties."""
    x, logs = law_of(noise, 30)
    p = np.exp(logs)
    tops = [3 * (x + a)[:, None], 3 * (x + b)[None, :], np.array([[3 * other]])]
    first, second, third = np.broadcast_arrays(
        *(top - priority.index(name) for top, name in zip(tops, "abo", strict=True))
    )
    both = np.outer(p, p)
    places = (
        (first > second) & (first > third),
        (second > first) & (second > third),
        (third > first) & (third > second),
    )
    return np.array([both[place].sum() for place in places])


@pytest.mark.parametrize(
    ("noise", "K", "q"),
    [(DiscreteGaussian(0.6), 2, 0.05), (DiscreteGaussian(0.6), 3, 0.5), (DiscreteLaplace(1.0), 2, 0.3)],
)
def test_no_place_of_few_votes_costs_more(noise: IntegerNoise, K: int, q: float) -> None:
    worst = np.zeros((2, ORDERS.size))
    moves = [(a, b) for a in range(1, K + 1) for b in range(K - a + 1)]
    for (a, b), other, priority in itertools.product(moves, range(-4, 5), itertools.permutations("abo")):
        laws = outcomes(noise, a, b, other, priority), outcomes(noise, a - 1, b + 1, other, priority)
        for without, moved in (laws, laws[::-1]):
            mixture = (1.0 - q) * without + q * moved
            for side, (P, Q) in enumerate(((mixture, without), (without, mixture))):
                worst[side] = np.maximum(worst[side], [float(np.sum(P**o * Q ** (1.0 - o))) - 1.0 for o in ORDERS])
    forward, back = supremum(TwoClasses(noise), SubsampledRenyi(ORDERS, noise.deviation, q), K).reshape(2, -1)
    assert np.all(worst <= np.stack([forward, back]) * (1.0 + 1e-9))
    assert back == pytest.approx(worst[1], rel=1e-3)
    assert forward[0] == pytest.approx(worst[0, 0], rel=1e-3)  # at larger orders leads count that no order of ties has


@pytest.mark.parametrize("q", [0.05, 0.3, 0.99])
@pytest.mark.parametrize("noise", [DiscreteGaussian(1.0), DiscreteLaplace(2.0)])
def test_what_no_block_holds_adds_no_more_than_is_said(noise: IntegerNoise, q: float) -> None:
    laws, orders, reach = TwoClasses(noise), np.array([1.5, 4.0, 8.0, 20.0]), 200
    _, logs = law_of(noise, reach)
    below = np.logaddexp.accumulate(logs)

    def wins(first: int, second: int) -> mpmath.mpf:
        """Σ f(u − first)·G(u − second) over u ≥ 0."""
        u = np.arange(100) + reach
        return mpmath.exp(float(np.logaddexp.reduce(logs[u - first] + below[np.minimum(u - second, 2 * reach)])))

    with np.errstate(over="ignore"):
        forward, back = SubsampledRenyi(orders, noise.deviation, q).bound_outside(laws, np.zeros(8)).reshape(2, -1)
    for far, near in itertools.product((-laws.right - 1, -laws.right - 3), range(-laws.right, laws.left, 3)):
        # class a far below leads to its being farther below, class b the other way round
        for moved, without in ((wins(far, near), wins(far - 1, near + 1)), (wins(far, near + 1), wins(far + 1, near))):
            t = q * (moved / without - 1)
            for order, most, most_back in zip(orders.tolist(), forward, back, strict=True):
                assert without * ((1 + t) ** order - 1 - order * t) <= most
                assert without * ((1 + t) ** (1 - order) - 1 + (order - 1) * t) <= most_back


def test_the_bound_of_a_penalty_that_is_no_float_is_above_it() -> None:
    measure, losses = SubsampledRenyi(np.array([1.5, 4.0]), 1.0, 0.1), np.array([5.0, 50.0, 150.0])
    for index in range(measure.size):
        logs, most = np.log(measure.penalty(losses, index)), measure.log_bound(losses, index)
        assert np.all((logs <= most) & (most < logs + 3.0))
