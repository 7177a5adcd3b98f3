"""All histograms of votes for named classes, in order, and their successors by one vote."""

from dataclasses import dataclass
from functools import cached_property, lru_cache
from math import comb

import numpy as np
from numpy.typing import NDArray

from darrm.util import checks

Indices = NDArray[np.int64]

MOST_HISTOGRAMS = 200_000  # that are listed in a second


@dataclass(frozen=True)
class Histograms:
    """All histograms of K ≥ 0 votes for C classes, in falling order; made by `histograms_of`.

    >>> histograms_of(2, 2).counts.tolist(), histograms_of(1, 2).plus(0).tolist()
    ([[2, 0], [1, 1], [0, 2]], [0, 1])
    """

    K: int
    classes: int

    def __post_init__(self) -> None:
        count, name = self.number, f"histograms of {self.K} votes for {self.classes} classes"
        if count > MOST_HISTOGRAMS:
            advice = "take fewer voters or fewer classes"
            checks.fail(f"the number of {name}", count, f"at most {MOST_HISTOGRAMS:,}", advice)

    @property
    def number(self) -> int:
        """How many there are."""
        return comb(self.K + self.classes - 1, self.classes - 1)

    @cached_property
    def counts(self) -> Indices:
        """The votes for every class, shape (n, C)."""
        if self.classes == 1:
            return np.array([[self.K]])
        parts = []
        for first in range(self.K, -1, -1):
            others = Histograms(self.K - first, self.classes - 1).counts
            parts.append(np.column_stack([np.full(len(others), first), others]))
        return np.concatenate(parts)

    def places_of(self, counts: Indices) -> Indices:
        """Compute the numbers of histograms, (n, C) → (n,): those with a larger first count come before."""
        C = self.classes
        rows = ([comb(left + later - 1, later) if left else 0 for later in range(C)] for left in range(self.K + 1))
        table = np.array(list(rows))
        left = self.K - np.cumsum(counts, axis=1)
        later = np.arange(C - 1, 0, -1)
        return np.asarray(table[left[:, :-1], later].sum(axis=1))

    def plus(self, label: int) -> Indices:
        """Return where each histogram stands among those of K + 1 votes, with one more vote for a class."""
        return _plus(self, label)


histograms_of = lru_cache(maxsize=256)(Histograms)


@lru_cache(maxsize=1024)
def _plus(histograms: Histograms, label: int) -> Indices:
    counts = histograms.counts.copy()
    counts[:, label] += 1
    return histograms_of(histograms.K + 1, histograms.classes).places_of(counts)
