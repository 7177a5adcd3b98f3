"""Rényi differential privacy as a curve over orders λ > 1, values ε(λ) in nats: add, repeat, convert to (ε, δ).

Composition adds values order by order, also when the mechanisms are chosen adaptively [M17, Proposition 1].
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
from numpy.typing import ArrayLike

from darrm.numerics import Array
from darrm.util import checks

# dense around the usual optimum (δ between 1e-10 and 1e-2), then eight per doubling: many queries need orders near 1,
# few queries large orders
DEFAULT_ORDERS = np.concatenate(
    [
        1.0 + 2.0 ** np.arange(-8.0, -3.0),
        np.arange(1.25, 12.0, 0.25),
        np.arange(12.0, 64.0),
        2.0 ** np.arange(6.0, 14.125, 0.125),
    ]
)
DEFAULT_ORDERS.setflags(write=False)
_RELATIVE_ROUNDING = 1e-12  # of a curve, relative
_TERMS_PER_BLOCK = 1 << 17  # of sums over outcomes, which fit the processor's cache


class RenyiGridWarning(UserWarning):
    """The best order is at the edge of the grid: a wider grid may give a smaller ε."""


def _convert_classic(orders: Array, values: Array, delta: float) -> Array:
    """[M17, Proposition 3], [P, Theorem 5]."""
    return values - math.log(delta) / (orders - 1.0)


def _convert_tight(orders: Array, values: Array, delta: float) -> Array:
    """[CKS20, Proposition 12]."""
    return values + np.log1p(-1.0 / orders) - (math.log(delta) + np.log(orders)) / (orders - 1.0)


CONVERSIONS: Mapping[str, Callable[[Array, Array, float], Array]] = MappingProxyType(
    {"classic": _convert_classic, "tight": _convert_tight}
)


@dataclass(frozen=True)
class RenyiConversion:
    """An (ε, δ) guarantee from a Rényi curve, and its order."""

    epsilon: float  # ∞ for an unknown curve
    delta: float
    order: float  # the order with the smallest ε
    at_edge: bool  # whether that order is the first or the last of several


@dataclass(frozen=True, eq=False)
class RenyiCurve:
    """Bounds on the Rényi divergence between the outputs on neighboring data, one for each order.

    Parameters
    ----------
    orders
        Shape (n,), strictly increasing, finite, each above 1.
    values
        Shape (n,), each at least 0; ∞ if unknown.

    Raises
    ------
    ValueError
        If the shapes differ or a number is out of its range.

    Examples
    --------
    >>> curve = RenyiCurve.of(lambda order: order / 200.0)  # a Gaussian of sensitivity 1 and σ = 10
    >>> hundred = curve.repeat(100)
    >>> conversion = hundred.convert(1e-5)
    >>> round(conversion.epsilon, 3), conversion.order
    (4.729, 5.5)
    >>> round(hundred.convert(1e-5, conversion="classic").epsilon, 3)
    5.299
    """

    orders: Array
    values: Array

    __setstate__ = checks.set_read_only

    def __post_init__(self) -> None:
        orders = _to_vector("orders", self.orders)
        values = _to_vector("values", self.values)
        if orders.shape != values.shape:
            checks.fail("values", values.shape, f"of the shape of orders, {orders.shape}")
        if not (np.all(np.isfinite(orders)) and np.all(orders > 1.0) and np.all(np.diff(orders) > 0.0)):
            checks.fail("orders", orders.tolist(), "finite, above 1 and strictly increasing")
        if not np.all(values >= 0.0):  # NaN fails too
            checks.fail("values", values.tolist(), "at least 0", "a divergence is never negative")
        object.__setattr__(self, "orders", orders)
        object.__setattr__(self, "values", values)

    @classmethod
    def of(cls, value_at: Callable[[Array], ArrayLike], orders: ArrayLike = DEFAULT_ORDERS) -> RenyiCurve:
        """Evaluate a vectorized function of the order on a grid."""
        grid = _to_vector("orders", orders)
        return cls(grid, np.asarray(value_at(grid), dtype=np.float64))

    @classmethod
    def from_pure(cls, epsilon: float, orders: ArrayLike = DEFAULT_ORDERS) -> RenyiCurve:
        """Bound every (ε, 0)-private mechanism, by randomized response [M17, Proposition 6], rounded up.

        value(a) = log((e^{aε} + e^{(1−a)ε})/(1 + e^ε))/(a − 1).

        >>> RenyiCurve.from_pure(1.0, orders=[2.0]).values.round(6)
        array([0.735326])
        """
        checks.non_negative(epsilon=epsilon)

        def value_at(order: Array) -> Array:
            top = np.logaddexp(order * epsilon, (1.0 - order) * epsilon)
            bottom = np.logaddexp(0.0, epsilon)
            rounding = 4.0 * np.finfo(np.float64).eps * (top + bottom)
            bound = np.minimum((top - bottom + rounding) / (order - 1.0), epsilon)
            return np.asarray(np.maximum(bound, 0.0), dtype=np.float64)

        return cls.of(value_at, orders)

    @classmethod
    def unknown(cls) -> RenyiCurve:
        """Return ∞ at every order."""
        return cls(DEFAULT_ORDERS, np.full(DEFAULT_ORDERS.shape, np.inf))

    def minimum(self, other: RenyiCurve) -> RenyiCurve:
        """Return the smaller of two bounds at each order."""
        return RenyiCurve(self.orders, np.minimum(self.values, other.values))

    def __add__(self, other: RenyiCurve) -> RenyiCurve:
        if not isinstance(other, RenyiCurve):
            return NotImplemented
        if not np.array_equal(self.orders, other.orders):
            raise ValueError("curves on different orders cannot be added: evaluate both on the same grid")
        return RenyiCurve(self.orders, self.values + other.values)

    def repeat(self, count: int) -> RenyiCurve:
        """Compose the mechanism ``count`` times with itself."""
        checks.integer_at_least(0, count=count)
        if count == 0:
            return RenyiCurve(self.orders, np.zeros_like(self.values))
        return RenyiCurve(self.orders, count * self.values)

    def bounds_at(self, orders: Array) -> Array:
        """Bound the divergence at orders above 1: (order − 1)·value is convex, and values increase.

        >>> RenyiCurve.of(lambda order: order / 200.0, orders=[2.0, 4.0]).bounds_at(np.array([1.5, 3.0, 5.0])).round(6)
        array([0.01  , 0.0175,    inf])
        """
        is_finite = np.isfinite(self.values)
        if not is_finite.any():
            return np.full(np.shape(orders), np.inf)
        grid, values = self.orders[is_finite], self.values[is_finite]
        chords = np.interp(orders, grid, (grid - 1.0) * values) / (orders - 1.0)
        return np.where(orders > grid[-1], np.inf, np.where(orders < grid[0], values[0], chords))

    def bound_at(self, order: float) -> float:
        """Bound the divergence at one order."""
        return float(self.bounds_at(np.array([order]))[0])

    def best(self, delta: float, *, conversion: str = "tight") -> RenyiConversion:
        """Find the smallest ε over the orders, without the warning of `convert`."""
        checks.open_probability(delta=delta)
        checks.one_of(CONVERSIONS, conversion=conversion)
        if not np.any(self.values):
            return RenyiConversion(0.0, delta, float(self.orders[-1]), at_edge=False)
        epsilons = CONVERSIONS[conversion](self.orders, self.values, delta)
        index = int(np.argmin(epsilons))
        size = self.orders.size
        return RenyiConversion(
            epsilon=max(0.0, float(epsilons[index])),
            delta=delta,
            order=float(self.orders[index]),
            at_edge=size > 1 and index in (0, size - 1),
        )

    def convert(self, delta: float, *, conversion: str = "tight") -> RenyiConversion:
        """Convert to (ε, δ) at the order with the smallest ε, for δ in (0, 1).

        ``conversion`` is ``"tight"`` [CKS20, Proposition 12] or ``"classic"`` [M17, Proposition 3], as in [P].
        `RenyiGridWarning` if the best order is at the edge of the grid.
        """
        best = self.best(delta, conversion=conversion)
        if best.at_edge:
            warnings.warn(
                f"the best order {best.order:g} is at the edge of the grid "
                f"[{self.orders[0]:g}, {self.orders[-1]:g}]: a wider grid may give a smaller epsilon",
                RenyiGridWarning,
                stacklevel=2,
            )
        return best

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, RenyiCurve):
            return NotImplemented
        return np.array_equal(self.orders, other.orders) and np.array_equal(self.values, other.values)

    def __hash__(self) -> int:
        return hash((self.orders.tobytes(), self.values.tobytes()))


def log_renyi_sums(log_p: Array, log_q: Array, orders: Array) -> Array:
    """Compute log Σ_o p_o^α·q_o^{1−α}, (α − 1) times the Rényi divergence, for pairs of laws: (n, o) → (L, n).

    p = 0 adds nothing, q = 0 < p gives ∞. The sums are as accurate as the logarithms.

    >>> float(log_renyi_sums(np.log([[0.75, 0.25]]), np.log([[0.5, 0.5]]), np.array([2.0]))[0, 0].round(6))
    0.223144
    """
    with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
        # sums over the first axis are several times faster than over a short last one
        ratios = np.ascontiguousarray(np.where(np.isneginf(log_p), 0.0, log_p - log_q).T)
        log_p = np.ascontiguousarray(log_p.T)
        sums = np.empty((orders.size, log_p.shape[1]))
        block_size = max(1, _TERMS_PER_BLOCK // max(1, log_p.size))
        for start in range(0, orders.size, block_size):
            logs = log_p + (orders[start : start + block_size, None, None] - 1.0) * ratios
            top = logs.max(axis=1)
            top[~np.isfinite(top)] = 0.0
            logs -= top[:, None]
            sums[start : start + block_size] = np.log(np.exp(logs, out=logs).sum(axis=1)) + top
    return sums


def curve_of_pairs(log_p: Array, log_q: Array, error: float = 0.0) -> RenyiCurve:
    """Compute the largest divergence of pairs of laws at every order, rounded up: (n, o), (n, o).

    ``error`` bounds the error of the logarithms.
    """

    def value_at(orders: Array) -> Array:
        worst = log_renyi_sums(log_p, log_q, orders).max(axis=1) / (orders - 1.0)
        slack = error * (2.0 * orders + 1.0) / (orders - 1.0)
        return np.asarray((np.maximum(worst, 0.0) + slack) * (1.0 + _RELATIVE_ROUNDING))

    return RenyiCurve.of(value_at)


def _to_vector(name: str, numbers: ArrayLike) -> Array:
    vector = np.array(numbers, dtype=np.float64)
    if vector.ndim != 1 or vector.size == 0:
        checks.fail(name, vector.shape, "a vector with at least one entry")
    vector.setflags(write=False)
    return vector
