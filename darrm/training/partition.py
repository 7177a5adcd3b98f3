"""Partition of records: each record belongs to exactly one of K teachers.

The partition stores one teacher number per record, so it cannot represent a record that two teachers share. It depends
on positions and the seed, never on the content of records.

Two data sets are neighbors if one of them has the content of one record blanked. The position remains, and a blank
record contributes no gradient. Blanking changes one shard only, so disjoint shards compose in parallel. For a sum of
clipped gradients, blanking equals removal, the neighbor relation of DP-SGD's accounting. Removing a position would
shift all later positions and change every shard.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from darrm.util import checks


@dataclass(frozen=True, eq=False)
class Partition:
    """A disjoint split of n records over K teachers: ``teacher_of``, (n,) integers in 0 … K − 1.

    `ValueError` for other arrays, or if a teacher owns no record.

    >>> Partition(K=2, teacher_of=np.array([0, 1, 1, 0, 0])).sizes
    (3, 2)
    """

    K: int
    teacher_of: NDArray[np.int64]

    __setstate__ = checks.set_read_only

    def __post_init__(self) -> None:
        checks.integer_at_least(1, K=self.K, advice="K is the number of teachers")
        array = np.asarray(self.teacher_of)
        if array.ndim != 1 or not np.issubdtype(array.dtype, np.integer):
            found = checks.Found(f"shape {array.shape}, dtype {array.dtype}")
            checks.fail("teacher_of", found, "a list of integers, one a record")
        owned = np.array(array, dtype=np.int64)
        if owned.size and not (owned.min() >= 0 and owned.max() < self.K):
            checks.fail("teacher_of", (int(owned.min()), int(owned.max())), f"in 0 … K - 1 = 0 … {self.K - 1}")
        if np.unique(owned).size != self.K:
            checks.fail("n", owned.size, f"enough for every one of the K = {self.K} teachers to own a record")
        owned.setflags(write=False)
        object.__setattr__(self, "teacher_of", owned)

    @classmethod
    def random(cls, n: int, K: int, *, seed: int) -> Partition:
        """Deal n ≥ K shuffled records to K teachers in turn; the seed ≥ 0 may be public.

        >>> Partition.random(11, 3, seed=0).sizes
        (4, 4, 3)
        """
        checks.integer_at_least(1, K=K, advice="K is the number of teachers")
        checks.integer_at_least(K, n=n, advice=f"every one of the {K} teachers needs a record")
        checks.integer_at_least(0, seed=seed)
        dealt = np.empty(n, dtype=np.int64)
        dealt[np.random.default_rng(seed).permutation(n)] = np.arange(n) % K
        return cls(K, dealt)

    @property
    def n(self) -> int:
        """Number of records."""
        return int(self.teacher_of.size)

    @property
    def sizes(self) -> tuple[int, ...]:
        """Number of records of each teacher, K integers."""
        return tuple(int(count) for count in np.bincount(self.teacher_of, minlength=self.K))

    def shard(self, teacher: int) -> NDArray[np.int64]:
        """Positions of the records that one teacher owns, ascending."""
        checks.integer_at_least(0, teacher=teacher)
        if teacher >= self.K:
            checks.fail("teacher", teacher, f"in 0 … K - 1 = 0 … {self.K - 1}")
        return np.flatnonzero(self.teacher_of == teacher)
