"""Linear programs over blocks of shares, with rows between pairs of blocks that are found as they are broken.

Data: n variables x_j in blocks p, a size m_j and a gain c_j for each; a smallest share η ≥ 0; and an oracle that knows
rows Σ_j a_{r,j} x_j ≤ b_r with few entries.

    (1)  max   Σ_j c_j x_j
    (2)  s.t.  Σ_{j in p} m_j x_j = 1     for every block p
    (3)        Σ_j a_{r,j} x_j ≤ b_r      for every row r of the oracle, as they are found
    (4)        x_j ≥ η

Two kinds of rows are about pairs r of blocks, whose terms t in r each hold a number k_t and two variables x_i, x_j:

    (5)  Σ_{t in S} k_t (x_i − a x_j) ≤ b      for every S ⊆ r, which together say Σ_{t in r} k_t (x_i − a x_j)_+ ≤ b
    (6)  Σ_{t in r} k_t (u_t x_i − v_t x_j) ≤ b, supporting half-planes of a convex set

Written with a slack variable for every term, (5) is one program; rows found as they are broken take a quarter of its
time. Only the worst S of a pair can matter: the terms that are positive.

**Bound.** For y_r ≥ 0 and ρ_j = c_j − Σ_r y_r a_{r,j}, whatever fulfills (2), (3) and (4) has

    (7)  Σ_j c_j x_j ≤ Σ_r y_r b_r + Σ_p ( η Σ_{j in p} ρ_j + (1 − η Σ_{j in p} m_j) max_{j in p} ρ_j / m_j ).
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lp_models.program import Array

Indices = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class BlockProgram:
    """(1), (2) and (4): gains c, sizes m and blocks of the n variables, the blocks numbered from 0 and in order."""

    gains: Array
    sizes: Array
    blocks: Indices
    least: float = 0.0

    @property
    def starts(self) -> Indices:
        """The first variable of every block."""
        return np.flatnonzero(np.diff(self.blocks, prepend=-1))

    def bound(self, rows: "SparseRows", multipliers: Array) -> float:
        """Compute (7) in floats, for multipliers y of the rows."""
        reduced = self.gains - rows.transposed(multipliers, self.gains.size)
        best = np.maximum.reduceat(reduced / self.sizes, self.starts)
        free = 1.0 - self.least * np.add.reduceat(self.sizes, self.starts)
        return float(multipliers @ rows.limits + self.least * np.sum(reduced) + best @ free)


@dataclass(frozen=True, eq=False)
class SparseRows:
    """Rows a_r·x ≤ b_r by their entries: number of the row, number of the variable, coefficient; rows in order."""

    rows: Indices
    columns: Indices
    values: Array
    limits: Array

    @classmethod
    def summed(cls, rows: Indices, columns: Indices, values: Array, limits: Array, variables: int) -> "SparseRows":
        """Add up entries that stand twice.

        >>> zero = np.array([0, 0])
        >>> SparseRows.summed(zero, zero, np.array([1.0, 2.0]), np.ones(1), 1).values
        array([3.])
        """
        places, where = np.unique(rows * variables + columns, return_inverse=True)
        total = np.bincount(where, values, minlength=places.size).astype(np.float64)
        return cls(places // variables, places % variables, total, limits)

    def transposed(self, multipliers: Array, variables: int) -> Array:
        """Compute Σ_r y_r a_r, shape (n,)."""
        entries = multipliers[self.rows] * self.values
        return np.bincount(self.columns, entries, minlength=variables).astype(np.float64)

    def joined(self, others: "SparseRows") -> "SparseRows":
        """Put other rows behind these."""
        return SparseRows(
            np.concatenate([self.rows, others.rows + self.limits.size]),
            np.concatenate([self.columns, others.columns]),
            np.concatenate([self.values, others.values]),
            np.concatenate([self.limits, others.limits]),
        )
