"""The law of a released plurality as a function of the votes: a proposal, before it is proved.

A law that treats classes alike gives every group of classes of every partition (`darrm.plurality.partitions`) a
*weight*: the probability that the answer is one of the group, in units of 2^-53. Weights are whole numbers and those of
a partition add up to 2^53, so an answer is drawn exactly: a group by a 53-bit number, then a class of it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import ArrayLike, NDArray

from darrm.numerics import Array
from darrm.plurality.partitions import Partitions, histograms_of, list_partitions
from darrm.priors import Prior, check_prior
from darrm.problem import is_open
from darrm.util import checks
from darrm.util.files import Json

WEIGHT_BITS = 53
ONE = 1 << WEIGHT_BITS


@dataclass(frozen=True, eq=False)
class PluralityLaw:
    """The probabilities of all answers for all histograms of K votes for C classes.

    ``weights`` are whole numbers, one for each group of each partition in the order of `Partitions.groups`; those of a
    partition are at least 0 and add up to 2^53, else `ValueError`. Three votes for two classes, answered by the class
    of a voter drawn at random:

    >>> law = PluralityLaw.from_probabilities(3, 2, [1.0, 0.0, 2 / 3, 1 / 3])
    >>> law.probabilities([[0, 3], [2, 1]]).round(6).tolist()
    [[0.0, 1.0], [0.666667, 0.333333]]
    """

    K: int
    classes: int
    weights: NDArray[np.int64]

    __setstate__ = checks.set_read_only

    def __post_init__(self) -> None:
        groups = self.partitions.sizes.size
        weights = whole_numbers(self.weights, (groups,))
        for part, row in zip(self.partitions.parts, np.split(weights, self.partitions.starts[1:]), strict=True):
            if row.min() < 0 or sum(row.tolist()) != ONE:
                checks.fail(f"the weights of partition {part}", row.tolist(), f"at least 0 with the sum {ONE}")
        weights.setflags(write=False)
        object.__setattr__(self, "weights", weights)

    @classmethod
    def from_probabilities(cls, K: int, classes: int, probabilities: ArrayLike) -> PluralityLaw:
        """Round the probability of one class of each group, shape (groups,), to weights that add up."""
        partitions = list_partitions(K, classes)
        shares = np.maximum(0.0, np.asarray(probabilities, dtype=np.float64)) * partitions.sizes
        return cls(K, classes, _round_shares(partitions, [Fraction(float(share)) for share in shares]))

    @property
    def partitions(self) -> Partitions:
        return list_partitions(self.K, self.classes)

    @property
    def each(self) -> Array:
        """The probability of one class of each group, (groups,), to the nearest float."""
        return np.asarray(self.weights / (self.partitions.sizes * float(ONE)))

    def probabilities(self, counts: ArrayLike) -> Array:
        """Compute the probability of every answer for (n, C) histograms → (n, C).

        Of open-set answers for n rows of strings' votes, zeros ignored: (n, S) → (n, S + 1), no answer last.
        """
        return np.asarray(self.each[self.partitions.find_groups(np.asarray(counts, dtype=np.int64))])

    def mix(self, share: float) -> PluralityLaw:
        """Answer at random, as `random_law`, with this probability, else by this law; rounded to weights."""
        checks.probability(share=share)
        random, law = Fraction(share), 1 - Fraction(share)
        uniform = self.partitions.random_shares
        shares = [law * w / ONE + random * u for w, u in zip(self.weights.tolist(), uniform, strict=True)]
        return PluralityLaw(self.K, self.classes, _round_shares(self.partitions, shares))

    @property
    def is_monotone(self) -> bool:
        """False: monotonicity is not checked."""
        return False

    def expected_error(self, prior: Prior | str) -> float:
        """Raise `ValueError`: only a γ has the expected error of [D, Definition 2.4]."""
        return checks.fail("prior", prior, "asked for the accuracy", "a γ has an expected error")

    def accuracy(self, prior: Prior | str) -> float:
        """Compute the probability that the answer is one of the classes with the most votes."""
        top = self.weights[self.partitions.starts] / float(ONE)
        prior_law = self.partitions.probabilities(check_prior(prior, self.classes))
        return min(1.0, float(prior_law @ top))  # rounded probabilities may exceed 1

    def share_answered(self, prior: Prior | str) -> float:
        """Compute the probability that there is an answer: 1 for listed classes.

        >>> from darrm.priors import Ewens
        >>> from darrm.problem import OPEN
        >>> law = PluralityLaw.from_probabilities(2, OPEN, [0.5, 0.5, 0.1, 0.8])  # (2): 0.5; (1, 1): 0.1 for both
        >>> round(law.share_answered(Ewens()), 6)
        0.35
        """
        if not is_open(self.classes):
            return 1.0
        answer_shares = 1.0 - self.each[self.partitions.votes == 0]  # in every partition, no answer is a group of one
        return float(self.partitions.probabilities(check_prior(prior, self.classes)) @ answer_shares)

    def to_json(self) -> list[list[int]]:
        return [part.tolist() for part in np.split(self.weights, self.partitions.starts[1:])]

    @classmethod
    def from_json(cls, K: int, classes: int, weights: Json) -> PluralityLaw:
        """Read what `to_json` wrote; `ValueError` or `TypeError` if it is something else."""
        partitions = list_partitions(K, classes)
        if len(weights) != len(partitions.parts):
            checks.fail("weights", checks.Text(f"{len(weights)} partitions"), f"of {len(partitions.parts)} partitions")
        for place, (row, part) in enumerate(zip(weights, partitions.parts, strict=True)):
            if not isinstance(row, list) or len(row) != len(set(part)):
                checks.fail(
                    f"weights of partition {place}", row, f"{len(set(part))} numbers, one for each of its groups"
                )
            for weight in row:
                checks.integer_at_least(0, most=ONE, **{f"a weight of partition {place}": weight})
        return cls(K, classes, np.array([weight for row in weights for weight in row], dtype=np.int64))


def whole_numbers(weights: ArrayLike, shape: tuple[int, ...]) -> NDArray[np.int64]:
    """Copy whole numbers; `ValueError` for other numbers or another shape."""
    array = np.asarray(weights)
    if array.shape != shape or array.dtype.kind not in "iu":
        checks.fail("weights", checks.Text(f"{array.dtype} {array.shape}"), f"whole numbers of shape {shape}")
    return np.array(array, dtype=np.int64)


def random_law(K: int, classes: int) -> PluralityLaw:
    """Return the law of random guessing: probability 1/C for every class; open answers get no answer."""
    partitions = list_partitions(K, classes)
    return PluralityLaw(K, classes, _round_shares(partitions, partitions.random_shares))


def true_plurality(K: int, classes: int, sample_size: int | None = None) -> PluralityLaw:
    """Return the plurality of ``sample_size`` votes drawn without replacement, of all K if None, ties at random."""
    partitions = list_partitions(K, classes)
    sample = histograms_of(K if sample_size is None else sample_size, classes).counts
    is_leader = sample == sample.max(axis=1, keepdims=True)
    leader_shares = is_leader[:, 0] / is_leader.sum(axis=1)
    total = math.comb(K, K if sample_size is None else sample_size)
    probabilities = []
    for part, votes in zip(np.array(partitions.parts)[partitions.blocks], partitions.votes.tolist(), strict=True):
        first = part.tolist().index(votes)
        counts = np.array([votes, *part[:first], *part[first + 1 :]])  # the class in front
        table = [[math.comb(count, num_drawn) for num_drawn in range(sample.max() + 1)] for count in counts.tolist()]
        num_samples = np.prod(
            [np.array(row, dtype=float)[column] for row, column in zip(table, sample.T, strict=True)], axis=0
        )
        probabilities.append(float(num_samples @ leader_shares) / total)
    return PluralityLaw.from_probabilities(K, classes, probabilities)


def _round_shares(partitions: Partitions, shares: Iterable[Fraction]) -> NDArray[np.int64]:
    """Round shares of groups to weights; the largest group of a partition takes up the rounding."""
    weights = np.array([int(share * ONE) for share in shares], dtype=np.int64)
    for groups in np.split(np.arange(weights.size), partitions.starts[1:]):
        weights[groups[np.argmax(weights[groups])]] += ONE - int(weights[groups].sum())
    return weights
