"""The Bernstein mechanism: release a function on [0, 1]^ℓ for evaluation at any point [S, Corollary 14] [AR17].

If each of the (k + 1)^ℓ values on the lattice {0, 1/k, …, 1}^ℓ changes by at most Δ, the vector of values changes by at
most Δ·(k + 1)^ℓ in L1. The Laplace mechanism releases this vector; the polynomial through it is post-processing. So the
sensitivity in the sup norm over the lattice suffices.

``size`` is k, ``dimension`` ℓ, and ``order`` h. With b_j(y) = C(k, j) y^j (1 − y)^{k−j} and
(B f)(y) = Σ_j f(j/k) b_j(y), coordinate by coordinate, the iterated operator is

    B^{(h)} = I − (I − B)^h = B · Σ_{i=0}^{h−1} (I − B)^i                                                     [AR17]

so B^{(h)} f is the Bernstein polynomial with the coefficients Σ_{i<h} (I − B)^i f on the lattice. Every order
reproduces polynomials of degree at most 1 in each coordinate. For smooth f the error decreases like k^{−h}.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike, NDArray

from darrm.privacy import PrivacyParams
from darrm.random_dp.mechanisms import Laplace, Mechanism, check_pure, check_release
from darrm.util import checks

_MAX_LATTICE = 10**6


def lattice(size: int, dimension: int = 1) -> NDArray[np.float64]:
    """List the points of {0, 1/k, …, 1}^ℓ, shape ((k + 1)^ℓ, ℓ); the last coordinate varies fastest.

    >>> lattice(1, dimension=2)
    array([[0., 0.], [0., 1.], [1., 0.], [1., 1.]])
    """
    checks.integer_at_least(1, size=size, dimension=dimension)
    points = (size + 1) ** dimension
    if points > _MAX_LATTICE:
        checks.fail("(size + 1)^dimension", points, f"at most {_MAX_LATTICE}", "take a coarser lattice")
    return np.indices((size + 1,) * dimension).reshape(dimension, -1).T / size


def bernstein_basis(size: int, points: ArrayLike) -> NDArray[np.float64]:
    """Compute b_0(y) … b_k(y), shape (…, k + 1), by convex combinations: nothing overflows or cancels."""
    y = np.asarray(points, dtype=np.float64)[..., np.newaxis]
    basis = np.zeros((*y.shape[:-1], size + 1))
    basis[..., 0] = 1.0
    for _ in range(size):
        basis[..., 1:] = (1.0 - y) * basis[..., 1:] + y * basis[..., :-1]
        basis[..., :1] *= 1.0 - y
    return basis


@dataclass(frozen=True, eq=False)
class BernsteinFunction:
    """The iterated Bernstein polynomial through (noisy) lattice values, a function on [0, 1]^ℓ.

    ``values`` are finite, of shape (k + 1, …, k + 1), one axis per coordinate.

    >>> line = BernsteinFunction([1.0, 2.0, 3.0], order=3)
    >>> line([0.0, 0.25, 1.0])
    array([1. , 1.5, 3. ])
    """

    values: NDArray[np.float64]
    order: int = 1
    coefficients: NDArray[np.float64] = field(init=False, repr=False)

    __setstate__ = checks.set_read_only

    def __post_init__(self) -> None:
        checks.integer_at_least(1, order=self.order)
        values = np.array(self.values, dtype=np.float64)
        if values.ndim < 1 or len(set(values.shape)) != 1 or values.shape[0] < 2:
            checks.fail("values", values.shape, "an array of one length of at least 2 along every axis")
        if not np.all(np.isfinite(values)):
            checks.fail("values", checks.Text("NaN or an infinity"), "finite")
        points = np.arange(values.shape[0]) / (values.shape[0] - 1)
        matrix = bernstein_basis(values.shape[0] - 1, points)
        coefficients, residual = values.copy(), values
        for _ in range(self.order - 1):  # Σ_{i<h} (I − B)^i f, one axis per coordinate
            smoothed = residual
            for axis in range(values.ndim):
                smoothed = np.moveaxis(np.tensordot(matrix, smoothed, axes=(1, axis)), 0, axis)
            residual = residual - smoothed
            coefficients += residual
        for array in (values, coefficients):
            array.setflags(write=False)
        object.__setattr__(self, "values", values)
        object.__setattr__(self, "coefficients", coefficients)

    @property
    def size(self) -> int:
        """The lattice parameter k."""
        return int(self.values.shape[0]) - 1

    @property
    def dimension(self) -> int:
        """Number of coordinates ℓ."""
        return self.values.ndim

    def __call__(self, points: ArrayLike) -> NDArray[np.float64]:
        """Evaluate at points of [0, 1]^ℓ: shape (…, ℓ) → (…); for ℓ = 1 any shape → the same shape."""
        y = np.asarray(points, dtype=np.float64)
        if self.dimension == 1 and (y.ndim < 2 or y.shape[-1] != 1):
            y = y[..., np.newaxis]
        if y.shape[-1] != self.dimension:
            checks.fail("points", y.shape, f"of shape (..., {self.dimension})")
        if not np.all((y >= 0.0) & (y <= 1.0)):
            description, advice = checks.Text("a point outside"), "scale the query space to it"
            checks.fail("points", description, "in [0, 1] in every coordinate", advice)
        result = np.broadcast_to(self.coefficients, (*y.shape[:-1], *self.coefficients.shape))
        for axis in range(self.dimension):
            basis = bernstein_basis(self.size, y[..., axis])
            shape = (*basis.shape, *(1,) * (self.dimension - 1 - axis))
            result = np.sum(result * basis.reshape(shape), axis=y.ndim - 1)
        return np.asarray(result, dtype=np.float64)


@dataclass(frozen=True)
class Bernstein(Mechanism[BernsteinFunction]):
    """The Bernstein mechanism: (ε, 0)-private if ``sup |F(D, ·) − F(D′, ·)| ≤ Δ`` on the lattice [S, Corollary 14].

    >>> mechanism = Bernstein(PrivacyParams(1), size=4, order=3)
    >>> released = mechanism.release(2 * lattice(4).ravel(), 0.0)     # no noise at sensitivity 0
    >>> released([0.1, 0.9]).round(12)
    array([0.2, 1.8])
    """

    privacy: PrivacyParams
    size: int  # k
    order: int = 1  # h
    dimension: int = 1  # ℓ
    norm = "sup"
    noise = "discrete Laplace noise on the values at the lattice points"

    def __post_init__(self) -> None:
        object.__setattr__(self, "privacy", check_pure(self.privacy, "Bernstein"))
        checks.integer_at_least(1, order=self.order)
        lattice(self.size, self.dimension)

    @property
    def points(self) -> NDArray[np.float64]:
        """The lattice, shape ((k + 1)^ℓ, ℓ)."""
        return lattice(self.size, self.dimension)

    def restriction(self, function: Callable[..., ArrayLike]) -> Callable[..., ArrayLike]:
        """Convert F(data, points) to f(data) = F(data, lattice), for sensitivity sampling."""
        points = self.points
        return lambda data: function(data, points)

    def release(
        self, value: ArrayLike, sensitivity: float, *, rng: np.random.Generator | None = None
    ) -> BernsteinFunction:
        """Release the function with these ((k + 1)^ℓ,) finite values at `points`."""
        numbers = check_release(value, sensitivity)
        shape = (self.size + 1,) * self.dimension
        if numbers.shape != (math.prod(shape),) and numbers.shape != shape:
            checks.fail("value", numbers.shape, f"one value a lattice point, shape ({math.prod(shape)},)")
        # round up: one unit in the last place covers the product's rounding
        total = math.nextafter(float(sensitivity) * numbers.size, math.inf) if sensitivity > 0 else 0.0
        noisy = Laplace(self.privacy).release(numbers.reshape(shape), total, rng=rng)
        return BernsteinFunction(noisy, self.order)
