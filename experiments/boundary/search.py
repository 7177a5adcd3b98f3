"""A search for shapes that lose more over two or three questions than the sum says: random starts, then climbs."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from darrm.majority.noise_function import NoiseFunction
from darrm.numerics import Array
from experiments.boundary.losses import AllModels
from experiments.pages import Row


@dataclass(frozen=True)
class Search:
    """Which shapes to search: monotone ones, or all. A question counts as costing one voter at least."""

    K: int
    questions: int
    epsilon: float
    monotone: bool
    shapes: int  # random starts

    def found(self) -> Row:
        """Climb from every start; return the worst ratio of loss to sum, its γ and what one question costs there."""
        one, many = AllModels(self.K, 1, self.epsilon), AllModels(self.K, self.questions, self.epsilon)
        rng = np.random.default_rng([self.K, self.questions, self.monotone])

        def ratio(point: Array) -> float:
            gamma = self.gamma(point)
            cost = max(one.loss(gamma), self.epsilon)
            return many.loss(gamma) / (self.questions * cost)

        worst, best = -1.0, np.zeros(self.K - self.K // 2)
        for _ in range(self.shapes):
            value, point = climb(ratio, rng.dirichlet(np.full(len(best) + 1, 0.7))[:-1], rng)
            if value > worst:
                worst, best = value, point
        gamma = self.gamma(best)
        cost = one.loss(gamma) / self.epsilon
        return {"models": many.rows, "worst": worst, "gamma": [float(x) for x in gamma.half], "cost": cost}

    def gamma(self, point: Array) -> NoiseFunction:
        """Return the shape of a point with entries in [0, 1]: its running sums, or the entries themselves."""
        half = np.cumsum(point) if self.monotone else point
        return NoiseFunction(self.K, np.clip(half, 0.0, 1.0))


def climb(ratio: Callable[[Array], float], point: Array, rng: np.random.Generator) -> tuple[float, Array]:
    """Take random steps uphill, each half as long after a dozen failures."""
    value, step, failures = ratio(point), 0.3, 0
    while step > 1e-4:
        trial = np.clip(point + step * rng.normal(size=len(point)) * (rng.random(len(point)) < 0.7), 0.0, 1.0)
        there = ratio(trial)
        if there > value:
            value, point, failures = there, trial, 0
        else:
            failures += 1
        if failures == 12:
            step, failures = step / 2, 0
    return value, point
