"""The shapes that are measured, and the searches."""

from dataclasses import dataclass

import numpy as np

from darrm.gamma.noise_function import NoiseFunction
from experiments.boundary.search import Search

# K, ε, questions, γ(l) for l > K/2: asked of every multiset of models
FALLING = ((3, 0.1, 2, (1.0, 1 / 3)), (3, 2.0, 2, (1.0, 0.7653)))
# the same question, γ non-zero at unanimity alone
UNANIMITY = ((5, 1.0, 100, 0.05), (9, 0.3, 150, 0.05), (11, 0.1, 200, 0.05))


@dataclass(frozen=True)
class Ramp:
    """A γ that is 0 below ``first`` votes, then ``step``, and rises by ``slope`` a vote from ``start`` to ``end``.

    >>> Ramp(5, 0.1, 2, 4, 0.2, 4, 5, 0.1).gamma.half.round(3).tolist()
    [0.0, 0.2, 0.3]
    """

    K: int
    epsilon: float
    questions: int
    first: int
    step: float
    start: int
    end: int
    slope: float

    @property
    def gamma(self) -> NoiseFunction:
        """The shape itself."""
        votes = np.arange(self.K // 2 + 1, self.K + 1)
        rise = self.slope * np.clip(votes - self.start, 0, self.end - self.start)
        return NoiseFunction(self.K, np.where(votes < self.first, 0.0, self.step) + rise)

    def __str__(self) -> str:
        return f"ramp: {self.step} from {self.first}, then {self.slope} a vote from {self.start} to {self.end}"


# the same question asked of one-bit models
RAMPS = (
    Ramp(51, 0.5, 2, 32, 0.367, 34, 43, 0.0199),
    Ramp(101, 0.3, 5, 60, 0.202, 59, 83, 0.0118),
    Ramp(201, 0.01, 8, 126, 0.155, 131, 156, 0.0092),
    Ramp(401, 0.1, 31, 240, 0.118, 249, 296, 0.00508),
    Ramp(1001, 0.1, 64, 642, 0.0939, 660, 736, 0.00253),
)


def unanimity(K: int, value: float) -> NoiseFunction:
    """Return the γ that is ``value`` where all agree and 0 elsewhere."""
    return NoiseFunction(K, [*[0.0] * (K - K // 2 - 1), value])


def searches(*, quick: bool) -> list[Search]:
    """List the searches: all sizes, or the two smallest."""
    sizes = [(3, 2, 20), (4, 2, 8)] if quick else [(3, 2, 300), (4, 2, 120), (5, 2, 30), (3, 3, 6)]
    found = [Search(K, questions, 0.1, monotone=True, shapes=shapes) for K, questions, shapes in sizes]
    return [*found, Search(3, 2, 0.1, monotone=False, shapes=20), Search(4, 2, 0.1, monotone=False, shapes=8)]
