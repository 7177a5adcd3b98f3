"""The Bernstein mechanism: release a whole function, to be evaluated anywhere [S, Corollary 14] [AR17].

The function is evaluated on the lattice {0, 1/k, …, 1}^ℓ only. If it moves by at most Δ at each of the (k + 1)^ℓ
points, the vector of its values moves by at most Δ·(k + 1)^ℓ in L1, and the Laplace mechanism releases that vector; the
polynomial through it is post-processing. So the sup norm over the lattice is enough, and that is what is sampled.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from darrm import checks
from darrm.privacy import PrivacyParams
from darrm.random_dp.bernstein import BernsteinFunction, lattice
from darrm.random_dp.draws import Norm
from darrm.random_dp.lattice_noise import describe
from darrm.random_dp.mechanisms import Laplace, check_pure, check_release


@dataclass(frozen=True)
class Bernstein:
    """The Bernstein mechanism: ε-private where sup |F(D, ·) − F(D′, ·)| ≤ Δ on the lattice [S, Corollary 14].

    Parameters
    ----------
    privacy
        (ε, 0) with ε > 0.
    size
        k: the lattice has k + 1 points a coordinate.
    order
        h, how often the Bernstein operator is iterated.
    dimension
        ℓ, the number of coordinates of the query space [0, 1]^ℓ.

    Raises
    ------
    ValueError
        If a parameter is out of range.

    Examples
    --------
    >>> from darrm.privacy import PrivacyParams
    >>> mechanism = Bernstein(PrivacyParams(1), size=4, order=3)
    >>> released = mechanism.release(2 * lattice(4).ravel(), 0.0)     # no noise at sensitivity 0
    >>> released([0.1, 0.9]).round(12)
    array([0.2, 1.8])
    """

    privacy: PrivacyParams
    size: int
    order: int = 1
    dimension: int = 1

    def __post_init__(self) -> None:
        check_pure(self.privacy, "Bernstein")
        checks.integer_at_least(1, order=self.order)
        lattice(self.size, self.dimension)

    @property
    def norm(self) -> Norm:
        """The largest absolute difference on the lattice."""
        return "sup"

    @property
    def points(self) -> NDArray[np.float64]:
        """The lattice, shape ((k + 1)^ℓ, ℓ)."""
        return lattice(self.size, self.dimension)

    def restriction(self, function: Callable[[Any, NDArray[np.float64]], ArrayLike]) -> Callable[[Any], ArrayLike]:
        """Turn F(data, points) into f(data) = F(data, lattice), whose sensitivity is to be sampled."""
        points = self.points
        return lambda data: function(data, points)

    def release(
        self, value: ArrayLike, sensitivity: float, *, rng: np.random.Generator | None = None
    ) -> BernsteinFunction:
        """Release the function whose lattice values, ((k + 1)^ℓ,) in the order of `points`, are given.

        Raises
        ------
        ValueError
            If there is not one finite value a lattice point, or the sensitivity is negative or not finite.
        """
        numbers = check_release(value, sensitivity)
        shape = (self.size + 1,) * self.dimension
        if numbers.shape != (math.prod(shape),) and numbers.shape != shape:
            checks.fail("value", numbers.shape, f"one value a lattice point, shape ({math.prod(shape)},)")
        # the product is rounded up: one unit in the last place covers it
        total = math.nextafter(float(sensitivity) * numbers.size, math.inf) if sensitivity > 0 else 0.0
        noisy = Laplace(self.privacy).release(numbers.reshape(shape), total, rng=rng)
        return BernsteinFunction(noisy, self.order)

    def describe_noise(self, sensitivity: float, rng: np.random.Generator | None) -> str:
        """Say how the noise is drawn."""
        return describe("discrete Laplace noise on the values at the lattice points", sensitivity, rng)
