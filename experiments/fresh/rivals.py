"""What prompts are compared with: Gaussian noise on their counts, and one model trained by DP-SGD on all examples.

Both are accounted for by dp_accounting, as other people would.
"""

import math
from functools import lru_cache
from typing import Any

import numpy as np

from darrm.numerics import Array
from experiments.fresh.prompts import Examples

BATCH, STEPS, CLIP, RATE, MOMENTUM = 1024, 600, 1.0, 8.0, 0.9
_INTERVAL = 1e-3  # of loss distributions


def _accountant(rate: float, noise: float, steps: int) -> Any:  # noqa: ANN401 (of a library without types)
    import dp_accounting  # noqa: PLC0415 (a second)
    from dp_accounting.pld import pld_privacy_accountant  # noqa: PLC0415

    relation = dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE
    account = pld_privacy_accountant.PLDAccountant(relation, value_discretization_interval=_INTERVAL)
    event = dp_accounting.PoissonSampledDpEvent(rate, dp_accounting.GaussianDpEvent(noise))
    return account.compose(event, steps)


@lru_cache(maxsize=256)
def least_noise(rate: float, steps: int, epsilon: float, delta: float) -> float:
    """Find the least noise multiplier of so many Poisson-sampled Gaussian mechanisms, to a hundredth, rounded up."""
    low, high = 0.2, 0.4
    while _accountant(rate, high, steps).get_epsilon(delta) > epsilon:
        low, high = high, 2.0 * high
    while high > 1.01 * low:
        middle = math.sqrt(low * high)
        admitted = _accountant(rate, middle, steps).get_epsilon(delta) <= epsilon
        low, high = (low, middle) if admitted else (middle, high)
    return high


def gaussian_counts(rate: float, queries: int, epsilon: float, delta: float) -> float:
    """Return σ of the noise on every count of private in-context learning: one moved vote changes two counts by 1."""
    return math.sqrt(2.0) * least_noise(rate, queries, epsilon, delta)


def private_model(examples: Examples, epsilon: float, delta: float, *, rng: np.random.Generator) -> float:
    """Train a linear model by DP-SGD [ACG16] on the same features, and return how many questions it answers rightly."""
    people, classes = len(examples.x), examples.classes
    rate = min(1.0, BATCH / people)
    noise = least_noise(rate, STEPS, epsilon, delta) * CLIP
    weights, moving = np.zeros((2, examples.x.shape[1], classes))
    targets = np.eye(classes)[examples.y]
    for _ in range(STEPS):
        batch = np.flatnonzero(rng.random(people) < rate)
        summed = clipped_sum(examples.x[batch].astype(np.float64), targets[batch], weights)
        gradient = (summed + noise * rng.normal(size=weights.shape)) / (rate * people)
        moving = MOMENTUM * moving + gradient
        weights = weights - RATE * moving
    guessed = np.argmax(examples.questions.astype(np.float64) @ weights, axis=1)
    return float(np.mean(guessed == examples.answers))


def clipped_sum(x: Array, targets: Array, weights: Array) -> Array:
    """Add up the gradients of people whose features have length 1, none of more than ``CLIP``: shape of ``weights``."""
    wrong = _softmax(x @ weights) - targets  # a gradient is the outer product of features and these
    clipped = wrong * np.minimum(1.0, CLIP / np.maximum(np.linalg.norm(wrong, axis=1, keepdims=True), 1e-12))
    return np.asarray(x.T @ clipped)


def _softmax(scores: Array) -> Array:
    powers = np.exp(scores - scores.max(axis=1, keepdims=True))
    return np.asarray(powers / powers.sum(axis=1, keepdims=True))
