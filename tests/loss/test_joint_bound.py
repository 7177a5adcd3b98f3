"""Models under a release: the theorem against random kernels and models, and its inverse."""

import itertools
import math
from collections.abc import Sequence

import numpy as np
import pytest

from darrm.loss.joint_bound import models_delta, release_within, smallest_whole
from darrm.privacy import PrivacyParams
from darrm.problem import Voters


def compute_delta(factor: float, P: np.ndarray, Q: np.ndarray) -> float:
    return float(np.maximum(P - factor * Q, 0.0).sum())


def make_pair(models: Sequence[PrivacyParams]) -> tuple[np.ndarray, np.ndarray]:
    """Return the laws of models that reveal everything with probability Δ, or answer by randomized response."""
    P, Q = np.ones(1), np.ones(1)
    for each in models:
        high = 1.0 / (1.0 + math.exp(-each.epsilon))
        law = np.array([each.delta, (1 - each.delta) * high, (1 - each.delta) * (1.0 - high), 0.0])
        P, Q = np.multiply.outer(P, law).ravel(), np.multiply.outer(Q, law[::-1]).ravel()
    return P, Q


@pytest.mark.parametrize("delta", ["0", "0.01", "0.2"])
def test_no_kernel_and_no_model_cost_more(delta: str) -> None:
    rng, closest = np.random.default_rng(1), 0.0
    for _ in range(400):
        each = PrivacyParams(round(rng.uniform(0.05, 3.0), 3), delta)
        P, Q = make_pair([each])
        kernel = rng.dirichlet(np.full(int(rng.integers(2, 5)), rng.choice([0.3, 1.0, 5.0])), size=4)
        x = rng.uniform(0.0, 1.3 * each.epsilon)
        model = models_delta(Voters(1, each, models=True), 1, x)
        assert compute_delta(math.exp(x), P, Q) == pytest.approx(model, abs=1e-9)
        if model > 0.0:
            exact, factor = compute_delta(math.exp(x), P @ kernel, Q @ kernel), 1.0 + math.expm1(x) / model
            release = max(compute_delta(factor, first, second) for first in kernel for second in kernel)
            assert exact <= model * release + 1e-12
            closest = max(closest, exact / (model * release) if exact > 1e-3 else 0.0)
    assert closest > 0.95  # it is nearly attained


@pytest.mark.parametrize("x", [0.0, 0.3, 0.5, 1.0, 1.7, 2.0, 2.6])
@pytest.mark.parametrize(
    "guarantees",
    [
        [PrivacyParams(1, "0.1")] * 2,
        [PrivacyParams(epsilon) for epsilon in ("0.2", "2", "0.2", "0.7")],
        # no pair of models has the largest ε and the largest Δ
        [PrivacyParams("0.2"), PrivacyParams(2, "0.02"), PrivacyParams("0.2", "0.1"), PrivacyParams("0.7")],
    ],
    ids=["equal", "pure", "mixed"],
)
def test_models_cost_what_the_least_private_of_one_person_cost_together(
    guarantees: list[PrivacyParams], x: float
) -> None:
    worst = max(compute_delta(math.exp(x), *make_pair(pair)) for pair in itertools.combinations(guarantees, 2))
    bound = models_delta(Voters.of(guarantees, overlap=2, models=True), 2, x)
    assert bound >= worst - 1e-15
    if len({each.delta for each in guarantees}) == 1:
        assert bound == pytest.approx(worst, abs=1e-9)


def test_one_less_private_model_counts_once() -> None:
    mixed = Voters.of([*[PrivacyParams("0.2")] * 4, PrivacyParams(2)], overlap=3, models=True)
    equal = Voters(5, PrivacyParams(2), overlap=3, models=True)
    assert smallest_whole(mixed, 0.0, lambda _delta: 3.0) == pytest.approx(1.717, abs=5e-4)
    assert smallest_whole(equal, 0.0, lambda _delta: 3.0) == pytest.approx(2.610, abs=5e-4)


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 4.0])
@pytest.mark.parametrize("release", [0.05, 1.0, 6.0])
def test_pure_privacy_multiplies_hyperbolic_tangents(epsilon: float, release: float) -> None:
    models = Voters(11, PrivacyParams(epsilon), overlap=1, models=True)
    exact = 2.0 * math.atanh(math.tanh(epsilon / 2) * math.tanh(release / 2))
    assert smallest_whole(models, 0.0, lambda _delta: release) == pytest.approx(exact, rel=2e-6)
    within = release_within(models, PrivacyParams(exact))
    assert within is not None
    assert within.epsilon == pytest.approx(release, rel=1e-5)
    assert within.delta == 0.0


@pytest.mark.parametrize("one_by_one", [False, True])
@pytest.mark.parametrize("overlap", [1, 3])
def test_the_release_within_a_target_makes_the_whole(overlap: int, one_by_one: bool) -> None:
    models = Voters(11, PrivacyParams(1, "1e-6"), overlap=overlap, models=True)
    release = release_within(models, PrivacyParams("0.5", "1e-4"), one_by_one=one_by_one)
    assert release is not None
    pair = release.epsilon, release.delta * (1 - 1e-5)

    def compute_epsilon(delta: float) -> float:
        return pair[0] if delta >= pair[1] else math.inf

    whole = smallest_whole(models, 1e-4, compute_epsilon, one_by_one=one_by_one)
    assert whole == pytest.approx(0.5, rel=1e-3)
    assert (release.epsilon > 0.5) is not (one_by_one and overlap > 1)


def test_models_within_the_target_leave_the_release_free() -> None:
    models = Voters(11, PrivacyParams("0.1", "1e-6"), overlap=2, models=True)
    assert release_within(models, PrivacyParams("0.21", "1e-5")) is None
    assert release_within(models, PrivacyParams("0.1", "1e-5")) is not None
    # a release that nothing bounds costs what the models cost
    assert smallest_whole(models, 1e-5, lambda delta: 0.0 if delta > 0.999 else math.inf) <= 0.2 * (1 + 1e-4)
    assert smallest_whole(models, 1e-7, lambda _delta: math.inf) == math.inf
    large = 1.5 * models_delta(models, 2, 0.0)
    assert smallest_whole(models, large, lambda _delta: pytest.fail("no release has a larger delta than 1")) == 0.0


@pytest.mark.parametrize("slope", [0.0, 0.01, 0.05])
def test_the_whole_is_found_in_few_rounds(slope: float) -> None:
    """Each round accounts for all queries of a release, whose ε' falls smoothly with δ'."""
    models, deltas = Voters(11, PrivacyParams(1, "1e-6"), overlap=2, models=True), []

    def compute_epsilon(delta: float) -> float:
        deltas.append(delta)
        return 1.0 - slope * math.log(delta)

    whole = smallest_whole(models, 1e-5, compute_epsilon)
    assert len(deltas) <= 12
    release = release_within(models, PrivacyParams(repr(whole * (1.0 - 1e-7)), "1e-5"))
    assert release is not None
    assert release.epsilon < compute_epsilon(release.delta)  # a little less is too little
