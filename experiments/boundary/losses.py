"""The loss of several labels of trained models, and of one: exact up to rounding for what it covers.

**Models.** A pure ε-private model is a post-processing of one randomized-response bit [KOV15, Theorem 3.3]; the largest
ratio of two laws of the labels is attained at extreme points, so that a model has two possible answer vectors, the one
with probability hi = e^ε/(1 + e^ε) on one data set and lo = 1 − hi on the other. Q questions have 4^Q such models, one
vector twice included, and K of them are a multiset. γ treats 0 and 1 alike: it is enough that all labels are 1.

**The same question.** Where every model says one bit to all Q questions, s of the others say 1 and n say their bit, all
labels are 1 with probability E[h(s + Bin(n, hi))^Q], h(l) = (1 + g(l))/2. For Q = 1 and a monotone γ this is every
model there is: g is non-decreasing, so that only the corners (0, 0), (1, 1), (hi, lo) can be worst.
"""

import math
from itertools import product

import numpy as np

from darrm.majority.noise_function import NoiseFunction
from darrm.numerics import Array


def truths(gamma: NoiseFunction) -> Array:
    """Return h(0) … h(K), the probability of the label 1 given the number of ones."""
    return np.asarray((1.0 + gamma.signed) / 2.0)


def same_question(gamma: NoiseFunction, epsilon: float, questions: int) -> float:
    """Return the loss of the same question asked ``questions`` times of one-bit models, by Pascal's triangle.

    >>> round(same_question(NoiseFunction(5, [0, 0, 0.05]), 1.0, 1), 4)
    0.0237
    >>> round(same_question(NoiseFunction(5, [0, 0, 0.05]), 1.0, 100), 3)
    3.365
    """
    hi, lo = 1.0 / (1.0 + math.exp(-epsilon)), 1.0 / (1.0 + math.exp(epsilon))
    h = truths(gamma)
    up = down = (h / h.max()) ** questions
    worst = 0.0
    while len(up) > 1:
        up, down = lo * up[:-1] + hi * up[1:], hi * down[:-1] + lo * down[1:]
        worst = max(worst, _log_ratio(up, down))
    return worst


class AllModels:
    """Every multiset of K models that answer Q questions: the laws of the numbers of ones, as rows.

    >>> AllModels(3, 2, 0.1).rows
    816
    """

    def __init__(self, K: int, questions: int, epsilon: float) -> None:
        hi = 1.0 / (1.0 + math.exp(-epsilon))
        vectors = list(product((0, 1), repeat=questions))
        models = list(product(vectors, vectors))
        laws = np.zeros((1, 2, *(K + 1,) * questions))
        laws.reshape(2, -1)[:, 0] = 1.0  # no voter yet, no ones
        latest = np.zeros(1, dtype=np.int64)  # the last model of each multiset: the next is none before it
        weights = np.array([hi, 1.0 - hi]).reshape(1, 2, *(1,) * questions)
        for _ in range(K):
            grown = [
                weights * _shifted(laws[latest <= kind], first)
                + weights[:, ::-1] * _shifted(laws[latest <= kind], other)
                for kind, (first, other) in enumerate(models)
            ]
            latest = np.repeat(np.arange(len(models)), [len(part) for part in grown])
            laws = np.concatenate(grown)
        self.K, self.questions, self.epsilon, self.rows = K, questions, epsilon, len(laws)
        self._up, self._down = (laws[:, side].reshape(self.rows, -1) for side in (0, 1))

    def loss(self, gamma: NoiseFunction) -> float:
        """Return the worst loss of the labels of all questions."""
        h = truths(gamma)
        labels = h
        for _ in range(self.questions - 1):
            labels = np.multiply.outer(labels, h)
        return _log_ratio(self._up @ labels.ravel(), self._down @ labels.ravel())


def _shifted(laws: Array, answers: tuple[int, ...]) -> Array:
    """Add a model's answers to the numbers of ones; no number passes K."""
    return np.roll(laws, answers, axis=tuple(range(2, laws.ndim)))


def _log_ratio(up: Array, down: Array) -> float:
    """Return the largest log(up / down); where one is 0 the other is."""
    seen = down > 0.0
    return float(np.log(np.max(up[seen] / down[seen], initial=1.0)))
