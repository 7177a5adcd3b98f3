"""Linear programs as frozen data: nothing here knows how they are solved.

The one standard form of this package is

    (1)  min  cost · x + offset
    (2)  s.t. matrix x ≤ limits
    (3)       0 ≤ x ≤ 1
"""

from dataclasses import dataclass
from enum import Enum
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
RowLabel = Any  # the name of a row that its oracle gives it


class Status(Enum):
    """Why a solver stopped. Only a comment: every claim is recomputed from the numbers that came back."""

    OPTIMAL = "optimal"
    TIME_LIMIT = "time limit"
    INTERRUPTED = "interrupted"
    STALLED = "stalled at the solver's precision"
    FAILED = "failed"


@dataclass(frozen=True, eq=False)
class LinearProgram:
    """The program (1)–(3): cost (n,), matrix (r, n) and limits (r,), r ≥ 0; `ValueError` unless finite and of one size.

    >>> LinearProgram(np.array([-1.0, -2.0]), np.array([[1.0, 1.0]]), np.array([1.0])).matrix.shape
    (1, 2)
    """

    cost: Array
    matrix: Array
    limits: Array
    offset: float = 0.0

    def __post_init__(self) -> None:
        for name in ("cost", "matrix", "limits"):
            values = np.array(getattr(self, name), dtype=np.float64)
            if not np.all(np.isfinite(values)):
                raise ValueError(f"{name} of a linear program must be finite")
            values.setflags(write=False)
            object.__setattr__(self, name, values)
        if self.cost.ndim != 1 or self.matrix.shape != (self.limits.size, self.cost.size) or self.limits.ndim != 1:
            raise ValueError(
                f"a linear program needs cost (n,), matrix (r, n) and limits (r,), "
                f"got {self.cost.shape}, {self.matrix.shape} and {self.limits.shape}"
            )


@dataclass(frozen=True, eq=False)
class Solution:
    """A solver's answer, with a bound that does not rely on the solver."""

    point: Array  # (n,), clipped to [0, 1]; it may break rows by the solver's tolerance
    duals: Array  # (r,), non-negative multipliers of the rows
    value: float  # cost · point + offset
    bound: float  # a lower bound on the optimum, computed from the duals by `lagrangian_bound`
    status: Status


def lagrangian_bound(program: LinearProgram, duals: Array) -> float:
    """Compute a lower bound on the optimum of (1)–(3) from any multipliers, right or wrong.

    For y ≥ 0, min over 0 ≤ x ≤ 1 of cost·x + y·(matrix x − limits) is −y·limits + Σ min(0, cost + matrixᵀ y), and no
    feasible x costs less. The rounding error of every inner product is bounded by [H02, Section 3.1] and subtracted;
    a reduced cost that is positive beyond its error contributes exactly nothing. The bound is about the program's own
    numbers: the real problem may differ by the rounding of these.

    >>> program = LinearProgram(np.array([-1.0]), np.array([[2.0]]), np.array([1.0]))
    >>> -0.5 - 1e-13 < lagrangian_bound(program, np.array([0.5])) <= -0.5
    True
    """
    multipliers = np.maximum(duals, 0.0)
    active = multipliers > 0.0
    y, matrix, limits = multipliers[active], program.matrix[active], program.limits[active]
    reduced = program.cost + y @ matrix
    unit = 0.5001 * np.finfo(np.float64).eps
    reduced_error = unit * (y.size + 3) * (np.abs(program.cost) + y @ np.abs(matrix))
    negative = np.minimum(reduced - reduced_error, 0.0)
    terms = abs(program.offset) + float(y @ np.abs(limits)) - float(np.sum(negative))
    return float(program.offset + np.sum(negative) - y @ limits - unit * (y.size + program.cost.size + 3) * terms)
