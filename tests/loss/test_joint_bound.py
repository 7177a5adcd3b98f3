"""Models under a release: the theorem against kernels and models drawn at random, and its inverse."""

import itertools
import math

import numpy as np
import pytest

from darrm.loss.joint_bound import models_delta, release_within, smallest_whole
from darrm.privacy import PrivacyParams
from darrm.problem import Voters


def divergence(c: float, P: np.ndarray, Q: np.ndarray) -> float:
    return float(np.maximum(P - c * Q, 0.0).sum())


@pytest.mark.parametrize("delta", ["0", "0.01", "0.2"])
def test_no_kernel_and_no_model_cost_more(delta: str) -> None:
    """Models that confess with probability Δ, every pair of laws of a random kernel counted exactly."""
    rng, closest = np.random.default_rng(1), 0.0
    for _ in range(400):
        each = PrivacyParams(round(rng.uniform(0.05, 3.0), 3), delta)
        high = 1.0 / (1.0 + math.exp(-each.epsilon))
        W = np.array([each.delta, (1 - each.delta) * high, (1 - each.delta) * (1.0 - high), 0.0])
        kernel = rng.dirichlet(np.full(int(rng.integers(2, 5)), rng.choice([0.3, 1.0, 5.0])), size=4)
        x = rng.uniform(0.0, 1.3 * each.epsilon)
        model = models_delta(Voters(1, each, models=True), 1, x)
        assert divergence(math.exp(x), W, W[::-1]) == pytest.approx(model, abs=1e-9)
        true = divergence(math.exp(x), W @ kernel, W[::-1] @ kernel)
        if model > 0.0:
            growth = 1.0 + math.expm1(x) / model
            release = max(divergence(growth, first, second) for first in kernel for second in kernel)
            assert true <= model * release + 1e-12
            closest = max(closest, true / (model * release) if true > 1e-3 else 0.0)
    assert closest > 0.95  # and it is nearly attained


def test_several_models_have_the_divergence_of_their_composition() -> None:
    high = 1.0 / (1.0 + math.exp(-1.0))
    one = np.array([0.1, 0.9 * high, 0.9 * (1.0 - high), 0.0])
    both, other = np.multiply.outer(one, one).ravel(), np.multiply.outer(one[::-1], one[::-1]).ravel()
    for x in (0.0, 0.5, 1.0, 1.7, 2.5):
        result = models_delta(Voters(2, PrivacyParams(1, "0.1"), models=True), 2, x)
        assert result == pytest.approx(divergence(math.exp(x), both, other), abs=1e-9)
        assert result >= divergence(math.exp(x), both, other) - 1e-15


def test_models_that_differ_count_as_the_least_private_of_those_that_one_person_reaches() -> None:
    own = [PrivacyParams("0.2"), PrivacyParams(2, "0.02"), PrivacyParams("0.2", "0.1"), PrivacyParams("0.7")]
    models = Voters.of(own, overlap=2, models=True)
    laws = []
    for each in own:
        high = 1.0 / (1.0 + math.exp(-each.epsilon))
        one = np.array([each.delta, (1 - each.delta) * high, (1 - each.delta) * (1.0 - high), 0.0])
        laws.append((one, one[::-1]))
    for x in (0.0, 0.3, 1.0, 2.0, 2.6):
        pairs = [
            (np.multiply.outer(a, c).ravel(), np.multiply.outer(b, d).ravel())
            for (a, b), (c, d) in itertools.combinations(laws, 2)
        ]
        worst = max(divergence(math.exp(x), P, Q) for P, Q in pairs)
        result = models_delta(models, 2, x)
        assert worst - 1e-12 <= result  # Δ of another model than ε: no pair of models attains it
        alike = [PrivacyParams(each.epsilon) for each in own]
        attained = models_delta(Voters.of(alike, overlap=2, models=True), 2, x)
        two = [1.0 / (1.0 + math.exp(-epsilon)) for epsilon in (2.0, 0.7)]
        P = np.multiply.outer(*([h, 1 - h] for h in two)).ravel()
        assert attained == pytest.approx(divergence(math.exp(x), P, P[::-1]), abs=1e-9)
    # of five models one promises little, and a person reaches three
    five = Voters.of([*[PrivacyParams("0.2")] * 4, PrivacyParams(2)], overlap=3, models=True)
    three_of_two = Voters(5, PrivacyParams(2), overlap=3, models=True)
    assert smallest_whole(five, 0.0, lambda _delta: 3.0) == pytest.approx(1.717, abs=5e-4)
    assert smallest_whole(three_of_two, 0.0, lambda _delta: 3.0) == pytest.approx(2.610, abs=5e-4)


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 4.0])
@pytest.mark.parametrize("release", [0.05, 1.0, 6.0])
def test_pure_privacy_multiplies_hyperbolic_tangents(epsilon: float, release: float) -> None:
    models = Voters(11, PrivacyParams(epsilon), overlap=1, models=True)
    exact = 2.0 * math.atanh(math.tanh(epsilon / 2) * math.tanh(release / 2))
    assert smallest_whole(models, 0.0, lambda _delta: release) == pytest.approx(exact, rel=2e-6)
    left = release_within(models, PrivacyParams(exact))
    assert left is not None
    assert left.epsilon == pytest.approx(release, rel=1e-5)
    assert left.delta == 0.0


@pytest.mark.parametrize("one_by_one", [False, True])
@pytest.mark.parametrize("reached", [1, 3])
def test_what_is_left_for_the_release_makes_the_whole(reached: int, one_by_one: bool) -> None:
    models = Voters(11, PrivacyParams(1, "1e-6"), overlap=reached, models=True)
    budget = PrivacyParams("0.5", "1e-4")
    left = release_within(models, budget, one_by_one=one_by_one)
    assert left is not None
    # a release that has the one pair (ε', δ') and nothing else
    whole = smallest_whole(
        models,
        1e-4,
        lambda delta: left.epsilon if delta >= left.delta * (1 - 1e-5) else math.inf,
        one_by_one=one_by_one,
    )
    assert whole == pytest.approx(0.5, rel=1e-3)
    assert (left.epsilon > 0.5) is not (one_by_one and reached > 1)


def test_models_that_are_private_enough_leave_the_release_free() -> None:
    models = Voters(11, PrivacyParams("0.1", "1e-6"), overlap=2, models=True)
    assert release_within(models, PrivacyParams("0.21", "1e-5")) is None
    assert release_within(models, PrivacyParams("0.1", "1e-5")) is not None
    # a release that nothing bounds costs what the models cost
    assert smallest_whole(models, 1e-5, lambda delta: 0.0 if delta > 0.999 else math.inf) <= 0.2 * (1 + 1e-4)
    assert smallest_whole(models, 1e-7, lambda _delta: math.inf) == math.inf


@pytest.mark.parametrize("slope", [0.0, 0.01, 0.05])
def test_few_rounds_close_the_interval_from_both_sides(slope: float) -> None:
    """An ε' that falls smoothly with δ', as that of a release does; each round is an account of all queries."""
    models, queried_deltas = Voters(11, PrivacyParams(1, "1e-6"), overlap=2, models=True), []

    def release_epsilon(delta: float) -> float:
        queried_deltas.append(delta)
        return 1.0 - slope * math.log(delta)

    whole = smallest_whole(models, 1e-5, release_epsilon)
    assert len(queried_deltas) <= 12
    left = release_within(models, PrivacyParams(repr(whole * (1.0 - 1e-7)), "1e-5"))
    assert left is not None
    assert left.epsilon < release_epsilon(left.delta)  # hardly less is too little
