"""Fewer variables for a long vector: it changes evenly between knots, and knots are added where more are needed.

A program over x in [0, 1]^n is restricted to x = U z with z in [0, 1]^k and a sparse U. Rows and cost are handed to the
solver as a U and c U; the bound is computed from the multipliers over all of x, so a restriction never makes it false,
only weak where the reduced costs of x vary between two knots. With all knots z is x.

Two kinds, for the two shapes of `lp_models.gamma_lp`:

* `Hats`: x itself is linear between knots; z are its values there.
* `Ramps`: x are the steps of a function that never falls; it rises evenly between knots, z are its rises. The first row
  of the program is Σ x ≤ 1; its multiplier may be made as large as the steps between knots need it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np
from numpy.typing import NDArray

from lp_models.program import Array

_CUT = 2  # parts of each interval at the next level


class Knots(ABC):
    """Where x may bend: the first places of its intervals, ascending, and n; whether few rows are kept."""

    def __init__(self, starts: NDArray[np.int64], n: int, *, keeps_rows: bool = False) -> None:
        self.starts, self.n, self.keeps_rows = starts, n, keeps_rows
        self.lengths = np.diff(starts, append=n)

    @classmethod
    def spread(cls, n: int, intervals: int, *, keeps_rows: bool = False) -> Knots:
        """Return about ``intervals`` intervals of equal lengths, at most n."""
        starts = np.unique(np.linspace(0, n, min(n, intervals), endpoint=False).astype(np.int64))
        return cls(starts, n, keeps_rows=keeps_rows)

    @property
    def is_full(self) -> bool:
        """Whether every place is a knot."""
        return self.starts.size == self.n

    @abstractmethod
    def up(self, z: Array) -> Array:
        """Compute U z: shape (k,) → (n,)."""

    @abstractmethod
    def down(self, rows: Array) -> Array:
        """Compute a U for each row a: shape (…, n) → (…, k)."""

    @abstractmethod
    def repaired(self, duals: Array, reduced: Array) -> Array:
        """Return multipliers that give a better bound, if this kind knows any."""

    def refined(self) -> Knots:
        """Return knots with every interval cut into `_CUT`."""
        cuts = [self.starts + self.lengths * i // _CUT for i in range(_CUT)]
        return type(self)(np.unique(np.concatenate(cuts)), self.n, keeps_rows=self.keeps_rows)


class Hats(Knots):
    """Linear between knots; behind the last one constant."""

    def up(self, z: Array) -> Array:
        """Compute U z."""
        return z if self.is_full else np.interp(np.arange(self.n), self.starts, z)

    def down(self, rows: Array) -> Array:
        """Compute a U."""
        if self.is_full:
            return rows
        share = (np.arange(self.n) - np.repeat(self.starts, self.lengths)) / np.repeat(self.lengths, self.lengths)
        share[self.starts[-1] :] = 0.0
        result = np.add.reduceat(rows * (1.0 - share), self.starts, axis=-1)
        result[..., 1:] += np.add.reduceat(rows * share, self.starts, axis=-1)[..., :-1]
        return np.asarray(result)

    def repaired(self, duals: Array, reduced: Array) -> Array:
        """Return them as they are."""
        del reduced
        return duals


class Ramps(Knots):
    """Even steps between knots."""

    def up(self, z: Array) -> Array:
        """Compute U z."""
        return z if self.is_full else np.repeat(z / self.lengths, self.lengths)

    def down(self, rows: Array) -> Array:
        """Compute a U."""
        return rows if self.is_full else np.asarray(np.add.reduceat(rows, self.starts, axis=-1) / self.lengths)

    def repaired(self, duals: Array, reduced: Array) -> Array:
        """Let the multiplier of Σ x ≤ 1 be as large as the smallest reduced cost needs it."""
        raised = duals.copy()
        raised[0] = max(0.0, duals[0] - float(np.min(reduced)))
        return raised
