"""The exact law of a sampler, by every sequence of random numbers, and a chi-square statistic."""

import math
from collections.abc import Callable

import numpy as np
import pytest


class NeedsNumber(Exception):  # noqa: N818 (control flow of the enumeration)
    """The sampler needs a random number beyond the prefix; ``weights`` are the probabilities of its values."""

    def __init__(self, weights: list[float]) -> None:
        super().__init__(weights)
        self.weights = weights


class Script:
    """Replay a prefix of random numbers."""

    def __init__(self, prefix: tuple[int, ...]) -> None:
        self._rest = list(prefix)

    def next(self, weights: list[float]) -> int:
        if len(weights) == 1:
            return 0
        if not self._rest:
            raise NeedsNumber(weights)
        return self._rest.pop(0)

    def below(self, limits: np.ndarray) -> np.ndarray:
        return np.array([self.next([1.0 / n] * n) for n in limits.tolist()], dtype=limits.dtype)

    def coins(self, numerator: np.ndarray, denominator: np.ndarray, _below: object) -> np.ndarray:
        heads = [math.exp(-a / b) for a, b in zip(numerator.tolist(), denominator.tolist(), strict=True)]
        return np.array([self.next([1.0 - p, p]) == 1 for p in heads])


class RejectedError(Exception):
    """The first attempt was rejected."""


def enumerate_law(draw: Callable[[Script], int], smallest: float) -> tuple[dict[int, float], float]:
    """Run a sampler on every sequence of random numbers: its law given that no attempt was rejected, and the error.

    Branches of probability below ``smallest`` are left open; their share bounds the error of every probability.
    """
    law: dict[int, float] = {}
    left = rejected = 0.0
    open_branches: list[tuple[tuple[int, ...], float]] = [((), 1.0)]
    while open_branches:
        prefix, mass = open_branches.pop()
        try:
            value = draw(Script(prefix))
        except NeedsNumber as ask:
            for index, weight in enumerate(ask.weights):
                if mass * weight < smallest:
                    left += mass * weight
                else:
                    open_branches.append(((*prefix, index), mass * weight))
        except RejectedError:
            rejected += mass
        else:
            law[value] = law.get(value, 0.0) + mass
    accepted = sum(law.values())
    assert accepted + left + rejected == pytest.approx(1.0)
    return {value: mass / accepted for value, mass in law.items()}, left / accepted


def chi_square(sample: np.ndarray, log_weights: np.ndarray, support: np.ndarray) -> float:
    """Compute the standardized chi-square statistic; cells below 20 expected draws are pooled."""
    probabilities = np.exp(log_weights - np.logaddexp.reduce(log_weights))
    expected = probabilities * sample.size
    result = np.array([np.count_nonzero(sample == x) for x in support], dtype=float)
    common = expected >= 20
    expected = np.append(expected[common], sample.size - expected[common].sum())
    result = np.append(result[common], sample.size - result[common].sum())
    if expected[-1] < 1:
        expected, result = expected[:-1], result[:-1]
    cells = expected.size - 1
    return float((((result - expected) ** 2 / expected).sum() - cells) / math.sqrt(2 * cells))
