"""The closed form under a Rényi budget: the smallest lie everywhere at once, and its limit."""

import math
from itertools import pairwise, product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from darrm.majority.closed_form import SMALLEST_LIE, bernoulli_divergence, best_under_renyi
from darrm.majority.costs import renyi_divergences
from darrm.privacy import PrivacyParams
from darrm.problem import Problem, Voters


def plain(K: int) -> Problem:
    return Problem(Voters(K, PrivacyParams("inf"), overlap=1), PrivacyParams(1))


def law(K: int, upper: tuple[float, ...]) -> list[float]:
    """h(0) … h(K) from its upper half."""
    return [1.0 - value for value in reversed(upper)] + ([0.5] if K % 2 == 0 else []) + list(upper)


def is_private(h: list[float], order: float, budget: float, rate: float = 1.0) -> bool:
    """Whether both directions cost no more than the budget where a person moves a vote with probability ``rate``."""
    pairs = [*pairwise(h), *pairwise(h[::-1])]
    mixed = [((1.0 - rate) * x + rate * y, x) for x, y in pairs]
    return all(bernoulli_divergence(order, x, y) <= budget for pair in mixed for x, y in (pair, pair[::-1]))


@pytest.mark.parametrize(
    ("order", "budget", "rate"),
    [(2.0, 0.3, 1.0), (9.0, 0.05, 1.0), (1.2, 0.1, 1.0), (3.0, 0.01, 0.2), (6.0, 2e-4, 0.02)],
)
@pytest.mark.parametrize("K", [1, 2, 3, 4, 5])
def test_no_private_h_on_a_grid_is_better_anywhere(K: int, order: float, budget: float, rate: float) -> None:
    best = 0.5 * (1.0 + best_under_renyi(K, order, budget, rate).half)
    assert is_private(law(K, tuple(best)), order, budget * (1 + 1e-9), rate)
    grid = [0.5 + step / 30.0 for step in range(15)] + [0.999]
    seen = 0
    for upper in product(grid, repeat=K - K // 2):
        if is_private(law(K, upper), order, budget, rate):
            seen += 1
            assert np.all(np.array(upper) <= best + 1e-9)
    assert seen >= 1


def test_who_is_rarely_drawn_may_be_told_the_truth() -> None:
    # K = 10, q = 0.004, 1,000 questions, (3, 1e-5) at order 6: from the tie 0, 0.977, 1.000 …
    budget = (3.0 - math.log1p(-1.0 / 6.0) + (math.log(1e-5) + math.log(6.0)) / 5.0) / 1000.0
    half = best_under_renyi(10, 6.0, budget, 0.004).half
    assert half[0] == pytest.approx(0.977, abs=5e-4)
    assert np.all(half[1:] > 0.9995)


@given(st.integers(1, 60), st.floats(1.05, 200.0), st.floats(1e-6, 3.0))
def test_within_the_budget_monotone_and_tight(K: int, order: float, budget: float) -> None:
    gamma = best_under_renyi(K, order, budget)
    assert gamma.is_monotone
    assert np.min(0.5 * (1.0 - gamma.half)) >= SMALLEST_LIE
    spent = renyi_divergences(plain(K).voters, gamma, [order])[0]
    assert spent <= budget * (1 + 1e-5) + 1e-12
    if gamma.half[-1] < 1.0 - 1e-6:
        assert spent >= budget * (1 - 1e-6)


def test_many_queries_tend_to_an_arc_that_ends() -> None:
    K, order, budget = 2001, 4.0, 1e-5
    truth = 0.5 * (1.0 + best_under_renyi(K, order, budget).half)
    lead = np.arange(K // 2 + 1, K + 1) - K / 2.0
    angle = np.minimum(math.pi / 2, math.pi / 4 + math.sqrt(budget / (2.0 * order)) * lead)
    assert truth == pytest.approx(np.sin(angle) ** 2, abs=2e-3)


def test_what_is_refused() -> None:
    for K, order, budget, message in (
        (0, 2.0, 1.0, "K must"),
        (3, 1.0, 1.0, "order must"),
        (3, 2.0, 0.0, "budget must"),
    ):
        with pytest.raises(ValueError, match=message):
            best_under_renyi(K, order, budget)


def test_the_arc_is_steeper_at_the_tie_than_a_gaussian_count_of_the_same_divergence() -> None:
    order, budget = 4.0, 1e-6
    truth = 0.5 * (1.0 + best_under_renyi(201, order, budget).half)
    # a count with noise has divergence α·μ²/2 for a step of μ standard deviations
    gaussian = math.sqrt(2.0 * budget / order) / math.sqrt(2.0 * math.pi)
    assert (truth[1] - truth[0]) / gaussian == pytest.approx(math.sqrt(math.pi / 2.0), rel=1e-3)
