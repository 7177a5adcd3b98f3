"""Laws of open-set answers for many voters: the probability of a string by its votes and the largest other count.

A law on all partitions of K votes has too many numbers beyond 24 voters. Here a string with n votes is the answer with
probability x(n, m), m the largest other count: K²/2 numbers, and slightly less accuracy (0.91072 instead of 0.91109 at
K = 13). Otherwise there is no answer. Weights are whole numbers over 2^53. `largest_sums` finds the largest sum over a
histogram, at most 2^53, in whole numbers. One 53-bit number draws an answer exactly.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from darrm.numerics import Array
from darrm.numerics.exact_sampling import UniformBelow
from darrm.plurality.plurality_law import ONE, whole_numbers
from darrm.priors import Prior, check_prior, compute_strings
from darrm.problem import OPEN, describe_classes, is_open
from darrm.util import checks
from darrm.util.files import Json
from darrm.votes import ABSTAIN, Votes

MOST_OPEN_VOTERS = 200  # proofs over four counts take half a minute
Numbers = NDArray[Any]  # whole numbers or floats
_PLACES_PER_BLOCK = 2**22  # of lines of counts: some hundred megabytes
_IMPOSSIBLE = -(2**62)  # below every sum of whole numbers here


@dataclass(frozen=True, eq=False)
class OpenLaw:
    """The probability of every string by its votes and the most votes of another.

    ``weights`` are (K + 1, K + 1) whole numbers, 2^53·x(n, m); 0 where n = 0 or n + m > K. `ValueError` if they are
    not, or those of some histogram add up to more than 2^53. With K = 2, a string with both votes is the answer with
    probability 1/2, a string with one vote never:

    >>> law = OpenLaw.from_probabilities(2, [[0, 0, 0], [0, 0, 0], [0.5, 0, 0]])
    >>> law.probabilities([[1, 1], [2, 0]]).tolist()
    [[0.0, 0.0, 1.0], [0.5, 0.0, 0.5]]
    """

    K: int
    weights: NDArray[np.int64]

    __setstate__ = checks.set_read_only

    def __post_init__(self) -> None:
        checks.integer_at_least(1, most=MOST_OPEN_VOTERS, K=self.K)
        weights = whole_numbers(self.weights, (self.K + 1, self.K + 1))
        if np.any(weights[~places(self.K)]) or weights.min() < 0 or weights.max() > ONE:
            checks.fail("weights", checks.Text("others"), f"0 … {ONE}, and 0 where n = 0 or n + m > K")
        largest = int(largest_total(weights, impossible=_IMPOSSIBLE))
        if largest > ONE:
            checks.fail("the weights of a histogram", largest, f"at most {ONE} together")
        weights.setflags(write=False)
        object.__setattr__(self, "weights", weights)

    @classmethod
    def from_probabilities(cls, K: int, probabilities: ArrayLike) -> OpenLaw:
        """Round x(n, m), (K + 1, K + 1), down to weights, and further if a histogram has a sum above 1."""
        x = np.where(places(K), np.clip(np.asarray(probabilities, dtype=np.float64), 0.0, 1.0), 0.0)
        excess = max(0, int(largest_total((x * ONE).astype(np.int64), impossible=_IMPOSSIBLE)) - ONE)
        return cls(K, (x * (1.0 - 2.0 * excess / ONE) * ONE).astype(np.int64))

    @property
    def classes(self) -> int:
        return OPEN

    @property
    def is_monotone(self) -> bool:
        return False

    @property
    def each(self) -> Array:
        return np.asarray(self.weights / float(ONE))

    def probabilities(self, counts: ArrayLike) -> Array:
        """Compute the probability of every string, and of no answer last, for n rows of votes, (n, S) → (n, S + 1)."""
        votes = np.asarray(counts, dtype=np.int64)
        answers = self.each[votes, largest_others(votes)]
        return np.column_stack([answers, 1.0 - answers.sum(axis=1)])

    def scale_by(self, share: float) -> OpenLaw:
        checks.probability(share=share)
        return OpenLaw(self.K, np.floor(self.weights * share * (1.0 - 2.0**-51)).astype(np.int64))

    def accuracy(self, prior: Prior | str) -> float:
        n, m = np.indices(self.weights.shape)
        return min(1.0, float(np.sum((compute_strings(check_prior(prior, OPEN), self.K) * self.each)[m <= n])))

    def share_answered(self, prior: Prior | str) -> float:
        return min(1.0, float(np.sum(compute_strings(check_prior(prior, OPEN), self.K) * self.each)))

    def expected_error(self, prior: Prior | str) -> float:
        return checks.fail("prior", prior, "used for the accuracy", "only a γ has an expected error")

    def to_json(self) -> list[list[int]]:
        return [self.weights[n, : self.K - n + 1].tolist() for n in range(1, self.K + 1)]

    @classmethod
    def from_json(cls, K: int, weights: Json) -> OpenLaw:
        """Read what `to_json` wrote; `ValueError` or `TypeError` if it is something else."""
        checks.integer_at_least(1, most=MOST_OPEN_VOTERS, K=K)
        table = np.zeros((K + 1, K + 1), dtype=np.int64)
        if not isinstance(weights, list) or len(weights) != K:
            checks.fail("weights", checks.Text("others"), f"{K} lists")
        for n, row in enumerate(weights, start=1):
            if not isinstance(row, list) or len(row) != K - n + 1:
                checks.fail(f"the weights of {n} votes", row, f"{K - n + 1} numbers")
            for m, weight in enumerate(row):
                checks.integer_at_least(0, most=ONE, **{f"the weight of {n} votes beside {m}": weight})
                table[n, m] = weight
        return cls(K, table)


def places(K: int) -> NDArray[np.bool_]:
    """Mark the possible pairs (n, m): n ≥ 1, n + m ≤ K, and m = 0 for n = K only.

    >>> places(2).astype(int).tolist()
    [[0, 0, 0], [0, 1, 0], [1, 0, 0]]
    """
    n, m = np.indices((K + 1, K + 1))
    return np.asarray((n >= 1) & (n + m <= K) & ((m >= 1) | (n == K)))


def largest_others(votes: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the most votes of any other string, (n, S) → (n, S)."""
    ordered = np.sort(np.pad(votes, ((0, 0), (0, 1))), axis=1)
    top, second = ordered[:, -1:], ordered[:, -2:-1]
    return np.where((votes == top), second, top)


def largest_sums(gains: Numbers, impossible: float) -> Numbers:
    """Compute the largest sums of gains: (…, K + 1) gains of strings by their votes → (…, K + 1, K + 1).

    Entry (cap, L) is for strings of at most ``cap`` votes each and L votes in total; about ``impossible`` if there are
    none.

    >>> largest_sums(np.array([0, 1, 3, 2]), -99)[:, 3].tolist()  # three votes: 1 + 1 + 1, or 1 + 3 of at most two
    [-99, 3, 4, 4]
    """
    K = gains.shape[-1] - 1
    best = np.full((*gains.shape, K + 1), impossible, dtype=gains.dtype)
    best[..., 0, 0] = 0
    for cap in range(1, K + 1):
        row, gain = best[..., cap - 1, :].copy(), gains[..., cap, None]
        for start in range(cap, K + 1, cap):
            end = min(start + cap, K + 1)
            row[..., start:end] = np.maximum(row[..., start:end], gain + row[..., start - cap : end - cap])
        best[..., cap, :] = row
    return best


def largest_total(x: Numbers, impossible: float) -> float | int:
    return max(total for _, _, total in totals(x, largest_sums(x.T, impossible))).item()


def totals(x: Numbers, rest_sums: Numbers) -> Iterator[tuple[int, int, np.int64 | np.float64]]:
    """Yield the two largest counts of histograms with the largest sum of x(n, m) over their strings.

    ``rest_sums`` holds `largest_sums` of x(·, m).
    """
    K = len(x) - 1
    yield K, 0, x[K, 0]
    for top in range(1, K):
        for second in range(1, min(top, K - top) + 1):
            yield top, second, x[top, second] + x[second, top] + rest_sums[top, second, K - top - second]


def to_votes(votes: Votes | ArrayLike, classes: int) -> Votes:
    """Return votes with this number of classes; `ValueError` for others.

    An array has a row for each query and a column for each voter: labels 0 … C − 1, or strings for open answers.

    >>> to_votes([[9, 0, 9]], 10)
    Votes(1 queries to 3 voters, classes 0, 1, 2, 3, 4, …; from labels)
    """
    if is_open(classes):
        advice = "read them with classes='open' (--classes open), Votes.from_answers in Python"
        expected, votes = "open answers", votes if isinstance(votes, Votes) else Votes.from_answers(votes)
    else:
        advice, expected = "", f"C = {classes} classes"
        if not isinstance(votes, Votes):
            votes = Votes.from_labels(votes, classes=classes)
            if votes.voters == classes > 2:
                advice = "labels and counts look alike: say Votes.from_labels(labels) or Votes.from_counts(counts)"
                checks.fail("votes", checks.Text(f"{classes} columns for {classes} classes"), "Votes", advice)
    if len(votes.classes) != classes:
        actual = checks.Text(f"about {describe_classes(len(votes.classes) or OPEN)}")
        checks.fail("votes", actual, f"about {expected}", advice)
    return votes


def draw_columns(
    votes: Votes, draw: Callable[[NDArray[np.int64], UniformBelow], NDArray[np.int64]], below: UniformBelow
) -> NDArray[np.int64]:
    """Draw the column of a string, or `ABSTAIN`, for every query, in blocks.

    ``draw`` chooses a place in each line of counts; the last place means no answer.
    """
    sparse, answers = votes.sparse, [np.empty(0, dtype=np.int64)]
    block_size = max(1, _PLACES_PER_BLOCK // (int(np.diff(sparse.indptr).max(initial=0)) + 1))
    for start in range(0, votes.queries, block_size):
        rows = sparse[start : start + block_size]
        lengths = np.diff(rows.indptr)
        lines = np.repeat(np.arange(lengths.size), lengths)
        place = np.arange(rows.data.size) - rows.indptr[lines]
        counts = np.zeros((lengths.size, int(lengths.max()) + 1), dtype=np.int64)
        columns = np.full_like(counts, ABSTAIN)
        counts[lines, place], columns[lines, place] = rows.data, rows.indices
        answers.append(columns[np.arange(len(columns)), draw(counts, below)])
    return np.concatenate(answers)
