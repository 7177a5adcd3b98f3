"""The private answer to a vote, with a proven table [D, Algorithm 1].

A `Release` holds a `Table`, so its guarantee is proved before it exists, and it draws exactly from the table's law:

* two classes: given l ones the output is 1 with probability (1 + g(l))/2 for the floats g, by exact coins;
* a law on histograms: a uniform integer below 2^53 selects the group of classes with equal counts, and a uniform
  integer one of its m classes, so that every class has the probability w/(m·2^53). For open-set answers the classes
  are the strings of the voters, and no answer.

Subsampling and randomized response are tables too: ``Release(certify(problem, baselines.subsampling(problem)))``.
"""

from __future__ import annotations

import os
from fractions import Fraction

import numpy as np
from numpy.typing import ArrayLike, NDArray

from darrm.loss.privacy_cost import PrivacyCost
from darrm.majority.noise_function import NoiseFunction
from darrm.numerics.exact_coins import ExactCoins
from darrm.numerics.exact_sampling import UniformBelow, uniform_below
from darrm.open_set.open_law import OpenLaw, columns_of, largest_others, of_classes
from darrm.plurality.plurality_law import ONE, PluralityLaw
from darrm.privacy import PrivacyParams
from darrm.problem import Voters, is_open
from darrm.table.cost import charge_of
from darrm.table.evidence import Law
from darrm.table.table import Table
from darrm.util import checks
from darrm.util.files import Json
from darrm.votes import Labels, Votes

_BLOCK = 2**16  # queries answered at a time


class Release:
    """Release labels with the law of a table; for two classes the majority with probability γ(l), else a fair coin.

    The guarantee is that of one query. Guarantees of several queries add up if voters draw fresh randomness for each,
    but not for trained models (docs/trained-models.md); the accountant handles both.

    Parameters
    ----------
    table
        A proven law.

    Raises
    ------
    ValueError
        If ``table`` is no `Table`.

    Examples
    --------
    >>> from darrm import PrivacyParams, Problem, Voters, certify
    >>> from darrm.majority import baselines
    >>> problem = Problem.from_allowance(Voters(3, PrivacyParams(0.1)), 3)
    >>> aggregator = Release(certify(problem, baselines.double_subsampling(problem)))
    >>> aggregator.guarantee
    PrivacyParams(epsilon=0.3, delta=0)
    >>> aggregator.release([[1, 1, 0], [0, 0, 0]])
    array([1, 0])
    >>> aggregator.release(Votes.of_labels([["no", "yes", "yes"]], classes=("no", "yes")))
    array(['yes'], dtype='<U3')
    >>> problem = Problem(Voters(2, PrivacyParams("inf"), overlap=1), PrivacyParams(1, "0.5"), classes=3)
    >>> voter = PluralityLaw.of_probabilities(2, 3, [1.0, 0.0, 0.5, 0.0])  # the vote of one of them
    >>> Release(certify(problem, voter)).release(Votes.of_labels([["b", "b"]], classes=("a", "b", "c")))
    array(['b'], dtype='<U1')
    """

    def __init__(self, table: Table) -> None:
        checks.instance(Table, table=table, advice="Table.load reads one from a file, certify(problem, law) proves one")
        self._table = table
        self._sampler = _sampler_of(table.law)

    def __str__(self) -> str:
        return str(self.table)

    @property
    def table(self) -> Table:
        """The proven law."""
        return self._table

    @property
    def voters(self) -> Voters:
        """The voters of the table."""
        return self._table.problem.voters

    @property
    def classes(self) -> int:
        """The number of classes."""
        return self._table.problem.classes

    @property
    def guarantee(self) -> PrivacyParams:
        """The guarantee of one query, (mε, δ)."""
        return self._table.problem.target

    def privacy_cost(self, queries: int = 1) -> PrivacyCost:
        """Describe the cost of queries; see `darrm.table.cost.charge_of`."""
        return charge_of(self._table, queries)

    def to_json(self) -> dict[str, Json]:
        """Write the table as plain data."""
        return self._table.to_json()

    def probability_of_one(self, ones: int) -> Fraction:
        """Compute the probability of the output 1 given the number of ones exactly, (1 + g(l))/2."""
        K = self.voters.K
        checks.integer_at_least(0, most=K, ones=ones)
        return (1 + Fraction(float(self._table.gamma.signed[ones]))) / 2

    def __call__(self, votes: Votes | ArrayLike, *, rng: np.random.Generator | None = None) -> Labels:
        """Release one label for each query, as `release`."""
        return self.release(votes, rng=rng)

    def release(self, votes: Votes | ArrayLike, *, rng: np.random.Generator | None = None) -> Labels:
        """Release one label for each query, as `Aggregator.release`.

        The votes are those of K voters about C classes: `Votes`, or a (Q, K) array of labels 0 … C − 1 or booleans.
        Missing votes are drawn uniformly, again in each release, if the votes allow them.
        """
        if isinstance(self._sampler, _Coins):
            given = votes if isinstance(votes, Votes) else Votes.of_labels(votes, classes=2)
        else:
            given = of_classes(votes, self.classes)
        given = given.of_voters(self.voters.K)
        return given.labeled(self._sampler.draw(given, rng))


def _sampler_of(law: Law) -> _Coins | _Groups | _Leads:
    if isinstance(law, NoiseFunction):
        return _Coins(law)
    if isinstance(law, OpenLaw):
        return _Leads(law)
    return _Strings(law) if is_open(law.classes) else _Groups(law)


class _Coins:
    """Of a γ: Pr[the answer is not the majority | l] = (1 − γ(l))/2; at a tie this is 1/2, and the coin decides."""

    def __init__(self, gamma: NoiseFunction) -> None:
        self.K = gamma.K
        self.lies = ExactCoins([(1 - Fraction(float(value))) / 2 for value in gamma.full])

    def draw(self, votes: Votes, rng: np.random.Generator | None) -> NDArray[np.int64]:
        """Answer every query by the number of a class: (Q,)."""
        ones = votes.impute_missing(rng=rng).ones
        told = (2 * ones > self.K) ^ self.lies.flip(ones, source=os.urandom if rng is None else rng.bytes)
        return told.astype(np.int64)


class _Groups:
    """Of a law on histograms: a group of classes by its weight, and one of its classes."""

    def __init__(self, law: PluralityLaw) -> None:
        self.partitions = partitions = law.partitions
        # a row for each partition, a column for each of its groups; beyond the last 2^53, which no draw reaches
        widest = int(np.max(np.bincount(partitions.blocks)))
        column = np.arange(partitions.blocks.size) - partitions.starts[partitions.blocks]
        self.bounds = np.full((len(partitions.parts), widest), ONE, dtype=np.int64)
        running = np.cumsum(law.weights.astype(object))  # beyond 64 bits
        before = running[partitions.starts] - law.weights[partitions.starts]
        self.bounds[partitions.blocks, column] = (running - before[partitions.blocks]).astype(np.int64)
        self.votes = np.zeros_like(self.bounds)
        self.votes[partitions.blocks, column] = partitions.votes

    def draw(self, votes: Votes, rng: np.random.Generator | None) -> NDArray[np.int64]:
        """Answer every query by the number of a class: (Q,)."""
        below, votes = uniform_below(rng), votes.impute_missing(rng=rng)
        answers = [np.empty(0, dtype=np.int64)]
        answers += [
            self._draw(votes.counts[start : start + _BLOCK], below) for start in range(0, votes.queries, _BLOCK)
        ]
        return np.concatenate(answers)

    def _draw(self, counts: NDArray[np.int64], below: UniformBelow) -> NDArray[np.int64]:
        return _one_of(counts == self._votes_of_answer(counts, below)[:, None], below)

    def _votes_of_answer(self, counts: NDArray[np.int64], below: UniformBelow) -> NDArray[np.int64]:
        """Draw the group of the answer: how many votes its classes have, (n,)."""
        places = self.partitions.places_of(counts)
        drawn = below(np.full(len(counts), ONE, dtype=np.int64))
        # the first group whose weights, with those before it, exceed the number drawn
        return np.asarray(self.votes[places, np.sum(drawn[:, None] >= self.bounds[places], axis=1)])


class _Strings(_Groups):
    def draw(self, votes: Votes, rng: np.random.Generator | None) -> NDArray[np.int64]:
        """Answer every query by the column of a string, or `ABSTAIN`: (Q,)."""
        return columns_of(votes, self._draw, uniform_below(rng))

    def _draw(self, counts: NDArray[np.int64], below: UniformBelow) -> NDArray[np.int64]:
        votes = self._votes_of_answer(counts, below)
        members = (counts == votes[:, None]) & (votes > 0)[:, None]
        members[:, -1] = votes == 0
        return _one_of(members, below)


class _Leads:
    """Of an open law: a string by its votes and the most votes of another."""

    def __init__(self, law: OpenLaw) -> None:
        self.law = law

    def draw(self, votes: Votes, rng: np.random.Generator | None) -> NDArray[np.int64]:
        """Answer every query by the column of a string, or `ABSTAIN`: (Q,)."""
        return columns_of(votes, self._draw, uniform_below(rng))

    def _draw(self, counts: NDArray[np.int64], below: UniformBelow) -> NDArray[np.int64]:
        weights = self.law.weights[counts, largest_others(counts)]
        drawn = below(np.full(len(counts), ONE, dtype=np.int64))
        # the first string whose weights, with those before it, exceed the number drawn; else the last place
        return np.asarray(np.sum(drawn[:, None] >= np.cumsum(weights[:, :-1], axis=1), axis=1))


def _one_of(members: NDArray[np.bool_], below: UniformBelow) -> NDArray[np.int64]:
    rank = below(members.sum(axis=1, dtype=np.int64))
    return np.asarray(np.argmax(np.cumsum(members, axis=1) == rank[:, None] + 1, axis=1), dtype=np.int64)
