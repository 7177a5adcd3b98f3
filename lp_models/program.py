"""Linear programs as frozen data, with bounds from any multipliers.

Dense rows:

    (1)  min  cost · x + offset
    (2)  s.t. matrix x ≤ limits
    (3)       0 ≤ x ≤ 1

Blocks of shares: n variables x_j in blocks p, a size m_j and a gain c_j for each, a smallest share η ≥ 0, and rows r
with few entries, generated when they are violated:

    (4)  max   Σ_j c_j x_j
    (5)  s.t.  Σ_{j in p} m_j x_j = 1     for every block p
    (6)        Σ_j a_{r,j} x_j ≤ b_r      for every row r
    (7)        x_j ≥ η

Two kinds of rows are about pairs r of blocks, whose terms t in r each hold a number k_t and two variables x_i, x_j:

    (8)  Σ_{t in S} k_t (x_i − a x_j) ≤ b      for every S ⊆ r, together Σ_{t in r} k_t (x_i − a x_j)_+ ≤ b
    (9)  Σ_{t in r} k_t (u_t x_i − v_t x_j) ≤ b, supporting half-planes of a convex set

Of (8) only the worst S of a pair matters: its positive terms. Generated rows take a quarter of the time of one program
with a slack variable for every term.

**Bound.** For y_r ≥ 0 and ρ_j = c_j − Σ_r y_r a_{r,j}, every x that satisfies (5), (6) and (7) has

    (10)  Σ_j c_j x_j ≤ Σ_r y_r b_r + Σ_p ( η Σ_{j in p} ρ_j + (1 − η Σ_{j in p} m_j) max_{j in p} ρ_j / m_j ).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Indices = NDArray[np.int64]
RowLabel = Any  # the oracle's name for a row


class Status(Enum):
    """The reason why a solver stopped, for reports only: every claim is recomputed."""

    OPTIMAL = "optimal"
    TIME_LIMIT = "time limit"
    INTERRUPTED = "interrupted"
    STALLED = "stalled at the solver's precision"
    FAILED = "failed"


@dataclass(frozen=True, eq=False)
class LinearProgram:
    """The program (1)–(3): cost (n,), matrix (r, n) and limits (r,); `ValueError` unless finite and of one size."""

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
            shapes = f"{self.cost.shape}, {self.matrix.shape} and {self.limits.shape}"
            raise ValueError(f"a linear program needs cost (n,), matrix (r, n) and limits (r,), got {shapes}")

    def bound(self, matrix: Array, limits: Array, duals: Array) -> float:
        """Compute a lower bound on the optimum with these rows from any multipliers.

        For y ≥ 0, min over 0 ≤ x ≤ 1 of cost·x + y·(matrix x − limits) is −y·limits + Σ min(0, cost + matrixᵀ y), and
        no feasible x costs less. The rounding error of every inner product is bounded by [H02, Section 3.1] and
        subtracted. The real problem may differ by the rounding of its numbers.
        """
        multipliers = np.maximum(duals, 0.0)
        active = multipliers > 0.0
        y, matrix, limits = multipliers[active], matrix[active], limits[active]
        reduced = self.cost + y @ matrix
        unit = 0.5001 * np.finfo(np.float64).eps
        reduced_error = unit * (y.size + 3) * (np.abs(self.cost) + y @ np.abs(matrix))
        negative = np.minimum(reduced - reduced_error, 0.0)
        terms = abs(self.offset) + float(y @ np.abs(limits)) - float(np.sum(negative))
        return float(self.offset + np.sum(negative) - y @ limits - unit * (y.size + self.cost.size + 3) * terms)


@dataclass(frozen=True, eq=False)
class Solution:
    point: Array  # (n,), within the bounds of the variables; it may violate rows by the solver's tolerance
    duals: Array  # (r,), non-negative multipliers of the rows
    value: float  # cost · point + offset
    bound: float  # a lower bound on the optimum, computed from the duals
    status: Status


@dataclass(frozen=True, eq=False)
class BlockProgram:
    """(4), (5) and (7): gains c, sizes m and blocks of the n variables, the blocks numbered from 0 in order.

    The solver minimizes −c; values and bounds of results are about c.
    """

    gains: Array
    sizes: Array
    blocks: Indices
    least: float = 0.0

    @property
    def starts(self) -> Indices:
        return np.flatnonzero(np.diff(self.blocks, prepend=-1))

    def bound(self, rows: SparseRows, limits: Array, duals: Array) -> float:
        """Compute minus (10), a lower bound on the cost, in floats."""
        reduced = self.gains - np.bincount(rows.columns, duals[rows.rows] * rows.values, minlength=self.gains.size)
        best = np.maximum.reduceat(reduced / self.sizes, self.starts)
        free_share = 1.0 - self.least * np.add.reduceat(self.sizes, self.starts)
        return -float(duals @ limits + self.least * np.sum(reduced) + best @ free_share)


@dataclass(frozen=True, eq=False)
class SparseRows:
    """Rows a_r·x ≤ b_r by their entries: row, variable, coefficient; rows in order."""

    rows: Indices
    columns: Indices
    values: Array
    limits: Array

    @classmethod
    def none(cls) -> SparseRows:
        no_indices = np.empty(0, dtype=np.int64)
        return cls(no_indices, no_indices, np.empty(0), np.empty(0))

    @classmethod
    def from_entries(cls, rows: Indices, columns: Indices, values: Array, limits: Array, variables: int) -> SparseRows:
        """Add up entries with equal row and variable."""
        places, inverse = np.unique(rows * variables + columns, return_inverse=True)
        total = np.bincount(inverse, values, minlength=places.size).astype(np.float64)
        return cls(places // variables, places % variables, total, limits)

    def join_rows(self, others: SparseRows) -> SparseRows:
        return SparseRows(
            np.concatenate([self.rows, others.rows + self.limits.size]),
            np.concatenate([self.columns, others.columns]),
            np.concatenate([self.values, others.values]),
            np.concatenate([self.limits, others.limits]),
        )
