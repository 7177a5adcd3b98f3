"""The private answer to a vote, with a proven table [D, Algorithm 1].

A `Release` draws exactly from the law of its `Table`:

* two classes: given l ones the output is 1 with probability (1 + g(l))/2 for the floats g, by exact coins;
* a law on histograms: a uniform integer below 2^53 selects the group of classes with equal counts, and a uniform
  integer one of its m classes, so that every class has the probability w/(m·2^53). For open-set answers the classes
  are the strings of the voters, and no answer.

**What several labels cost** if the law uses a few voters only: γ_Sub, possibly mixed with a fair coin. The majority of
n voters drawn without replacement, with a fair coin for a tie, is 1 given l > K/2 ones with probability (1 + γ_n(l))/2:

    γ_n(l) = Pr[J > n/2] − Pr[J < n/2],   J hypergeometric: ones among n drawn of K with l ones.

So a label of γ = s·γ_n uses n voters, drawn independently of the votes, and is a fair coin with probability 1 − s.

*Theorem.* Let one person influence t of several (ε, Δ)-private models, and let Q labels use n models each, drawn
independently of the data. Then the labels are as private as min(Qn, t) answers of (ε, Δ)-private mechanisms together.
*Proof.* Fix the drawn models; their law is the same on both data sets. The labels are post-processing of at most Qn
models. A person influences at most min(Qn, t) of them, and the models are independent. A mixture with equal weights on
both sides is no less private, by joint convexity of the hockey-stick divergence. ∎

Floats are near γ_n, not equal to it. If each label's law is within η of that of a label of n voters, in total
variation, then Q of them are within Qη, and H_{e^x}(P ‖ P') grows by at most (1 + e^x)·Qη, which is subtracted from δ.
"""

from __future__ import annotations

import math
import os
from fractions import Fraction
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray

from darrm.loss.privacy_cost import PrivacyCost, Sample
from darrm.majority.noise_function import NoiseFunction
from darrm.numerics.binomial import hypergeometric_pmf
from darrm.numerics.exact_sampling import ExactCoins, UniformBelow, uniform_below
from darrm.open_set.open_law import OpenLaw, draw_columns, largest_others, to_votes
from darrm.plurality.plurality_law import ONE, PluralityLaw
from darrm.privacy import PrivacyParams
from darrm.problem import Voters, describe_classes, is_open
from darrm.table.evidence import Law, costs_of_non_private, get_kind, is_cheap
from darrm.table.table import Table
from darrm.util import checks
from darrm.util.files import Json
from darrm.votes import Labels, Votes

_MAX_QUERIES_AT_ONCE = 2**16  # queries answered at a time


class Release:
    """Release labels with the proven law of a table: for two classes the majority with probability γ(l), else a coin.

    The guarantee is that of one query; the accountant adds up several.

    >>> from darrm import PrivacyParams, Problem, Voters, certify
    >>> from darrm.majority import baselines
    >>> problem = Problem.from_allowance(Voters(3, PrivacyParams(0.1)), 3)
    >>> aggregator = Release(certify(problem, baselines.double_subsampling(problem)))
    >>> aggregator.release([[1, 1, 0], [0, 0, 0]])
    array([1, 0])
    >>> aggregator.release(Votes.from_labels([["no", "yes", "yes"]], classes=("no", "yes")))
    array(['yes'], dtype='<U3')
    """

    def __init__(self, table: Table) -> None:
        checks.instance(Table, table=table, advice="Table.load reads one from a file, certify(problem, law) proves one")
        self._table = table
        self._sampler = _make_sampler(table.law)

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
        """Describe the cost of queries for any data."""
        return describe_cost(self._table, queries)

    def to_json(self) -> dict[str, Json]:
        """Write the table."""
        return self._table.to_json()

    def probability_of_one(self, ones: int) -> Fraction:
        """Compute Pr[output 1 | number of ones] exactly, (1 + g(l))/2."""
        checks.integer_at_least(0, most=self.voters.K, ones=ones)
        return (1 + Fraction(float(self._table.gamma.signed[ones]))) / 2

    def __call__(self, votes: Votes | ArrayLike, *, rng: np.random.Generator | None = None) -> Labels:
        """Release one label for each query, as `release`."""
        return self.release(votes, rng=rng)

    def release(self, votes: Votes | ArrayLike, *, rng: np.random.Generator | None = None) -> Labels:
        """Release one label for each query, as `Aggregator.release`.

        Votes may be a (Q, K) array of labels 0 … C − 1 or booleans. Missing votes are drawn uniformly in each release.
        """
        if isinstance(self._sampler, _CoinSampler):
            counts = votes if isinstance(votes, Votes) else Votes.from_labels(votes, classes=2)
        else:
            counts = to_votes(votes, self.classes)
        counts = counts.require_voters(self.voters.K)
        return counts.name_labels(self._sampler.draw(counts, rng))


def _make_sampler(law: Law) -> _CoinSampler | _GroupSampler | _OpenSampler:
    if isinstance(law, NoiseFunction):
        return _CoinSampler(law)
    if isinstance(law, OpenLaw):
        return _OpenSampler(law)
    return _StringSampler(law) if is_open(law.classes) else _GroupSampler(law)


class _CoinSampler:
    """Draws from a γ: Pr[the answer is not the majority | l] = (1 − γ(l))/2, which is 1/2 at a tie."""

    def __init__(self, gamma: NoiseFunction) -> None:
        self.K = gamma.K
        self.error_coins = ExactCoins([(1 - Fraction(float(value))) / 2 for value in gamma.full])

    def draw(self, votes: Votes, rng: np.random.Generator | None) -> NDArray[np.int64]:
        """Answer every query by the number of a class, or of a string's column, or by `ABSTAIN`: (Q,)."""
        ones = votes.impute_missing(rng=rng).ones
        answers = (2 * ones > self.K) ^ self.error_coins.flip(ones, source=os.urandom if rng is None else rng.bytes)
        return answers.astype(np.int64)


class _GroupSampler:
    def __init__(self, law: PluralityLaw) -> None:
        self.partitions = partitions = law.partitions
        # a row for each partition, a column for each of its groups; beyond the last 2^53, which no draw reaches
        group_count = int(np.max(np.bincount(partitions.blocks)))
        column = np.arange(partitions.blocks.size) - partitions.starts[partitions.blocks]
        self.bounds = np.full((len(partitions.parts), group_count), ONE, dtype=np.int64)
        cumulative = np.cumsum(law.weights.astype(object))  # beyond 64 bits
        offsets = cumulative[partitions.starts] - law.weights[partitions.starts]
        self.bounds[partitions.blocks, column] = (cumulative - offsets[partitions.blocks]).astype(np.int64)
        self.votes = np.zeros_like(self.bounds)
        self.votes[partitions.blocks, column] = partitions.votes

    def draw(self, votes: Votes, rng: np.random.Generator | None) -> NDArray[np.int64]:
        uniform, votes = uniform_below(rng), votes.impute_missing(rng=rng)
        starts = range(0, votes.queries, _MAX_QUERIES_AT_ONCE)
        blocks = (votes.counts[start : start + _MAX_QUERIES_AT_ONCE] for start in starts)
        return np.concatenate([np.empty(0, dtype=np.int64), *(self._draw_block(counts, uniform) for counts in blocks)])

    def _draw_block(self, counts: NDArray[np.int64], uniform: UniformBelow) -> NDArray[np.int64]:
        return _draw_member(counts == self._draw_answer_votes(counts, uniform)[:, None], uniform)

    def _draw_answer_votes(self, counts: NDArray[np.int64], uniform: UniformBelow) -> NDArray[np.int64]:
        """Draw the group of the answer: how many votes its classes have, (n,)."""
        partition_index = self.partitions.find_places(counts)
        numbers = uniform(np.full(len(counts), ONE, dtype=np.int64))
        # the first group whose weights, with those before it, exceed the number drawn
        return np.asarray(self.votes[partition_index, np.sum(numbers[:, None] >= self.bounds[partition_index], axis=1)])


class _StringSampler(_GroupSampler):
    def draw(self, votes: Votes, rng: np.random.Generator | None) -> NDArray[np.int64]:
        return draw_columns(votes, self._draw_block, uniform_below(rng))

    def _draw_block(self, counts: NDArray[np.int64], uniform: UniformBelow) -> NDArray[np.int64]:
        votes = self._draw_answer_votes(counts, uniform)
        members = (counts == votes[:, None]) & (votes > 0)[:, None]
        members[:, -1] = votes == 0
        return _draw_member(members, uniform)


class _OpenSampler:
    """Draws from an open-set law: a string by its votes and the largest count of another."""

    def __init__(self, law: OpenLaw) -> None:
        self.law = law

    def draw(self, votes: Votes, rng: np.random.Generator | None) -> NDArray[np.int64]:
        return draw_columns(votes, self._draw_block, uniform_below(rng))

    def _draw_block(self, counts: NDArray[np.int64], uniform: UniformBelow) -> NDArray[np.int64]:
        weights = self.law.weights[counts, largest_others(counts)]
        numbers = uniform(np.full(len(counts), ONE, dtype=np.int64))
        # the first string whose weights, with those before it, exceed the number drawn; else the last place
        return np.asarray(np.sum(numbers[:, None] >= np.cumsum(weights[:, :-1], axis=1), axis=1))


def _draw_member(members: NDArray[np.bool_], uniform: UniformBelow) -> NDArray[np.int64]:
    rank = uniform(members.sum(axis=1, dtype=np.int64))
    return np.asarray(np.argmax(np.cumsum(members, axis=1) == rank[:, None] + 1, axis=1), dtype=np.int64)


def describe_cost(
    table: Table, queries: int = 1, *, voters: Voters | None = None, exact: bool | None = None
) -> PrivacyCost:
    """Describe the privacy cost of queries with a table, for any data; `ValueError` if it is not proved for the voters.

    ``voters`` may have smaller guarantees and overlap than the table's, or be models: for private models the cost also
    holds that for non-private voters. ``exact`` adds the exact privacy profile and Rényi curve, which shrink bounds on
    many queries by about a third. None adds them where they are cheap: for a law on histograms, for a γ up to K = 301,
    and for more voters if γ is monotone or the overlap small.

    >>> from darrm import Problem, NoiseFunction, PrivacyParams, Voters, certify
    >>> problem = Problem.from_allowance(Voters(3, PrivacyParams(0.1)), 1)
    >>> describe_cost(certify(problem, NoiseFunction(3, [0.2, 0.6])), 20)
    PrivacyCost(what='DaRRM over 3 voters', guarantee=PrivacyParams(epsilon=0.1, delta=0), renyi=…, profile=…, count=20)
    """
    proved_voters = table.problem.voters
    voters = proved_voters if voters is None else voters
    if not proved_voters.cover(voters):
        checks.fail("voters", str(voters), f"as private as those of the table, with no larger overlap: {proved_voters}")
    overlap_text = "" if voters.overlap is None else f", a person reaching at most {voters.overlap}"
    with_curves = is_cheap(table.problem, table.law) if exact is None else exact
    overlaps = sorted({1, voters.reached}) if voters.are_private_models else []
    non_private = [_charge_non_private(table, overlap) for overlap in overlaps]
    return PrivacyCost(
        f"{_name_release(table, voters.K)}{overlap_text}",
        guarantee=table.problem.target,
        renyi=table.renyi if with_curves else None,
        profile=table.profile if with_curves else None,
        count=queries,
        voters=voters,
        for_non_private_voters=tuple(filter(None, non_private)),
        sample=find_sample(table) if voters.are_private_models else None,
        table=table.digest,
    )


def _name_release(table: Table, voters: int | str) -> str:
    classes = table.problem.classes
    words = describe_classes(classes) if is_open(classes) else f"{classes} classes"  # without a comma in thousands
    return get_kind(table.law).name.format(voters, words)


@lru_cache(maxsize=64)  # of immutable tables: every cost of one needs it
def _charge_non_private(table: Table, overlap: int) -> PrivacyCost | None:
    K, (profile, renyi) = table.problem.voters.K, costs_of_non_private(table.law, overlap)
    if profile is None:
        return None
    epsilons, deltas = profile.arrays()
    # (ε, δ) is the corner of the profile that carries most of the privacy loss, or the pure ε if it is finite
    corner = -1
    if deltas[-1] > 0.0 and epsilons.size > 2:
        # an outcome of loss ε has the probability e^ε·(change of slope in e^ε) [ZDW22, Proposition 8]
        slopes = np.append(np.diff(deltas) / np.diff(np.exp(epsilons)), 0.0)
        corner = 1 + int(np.argmax(np.exp(epsilons[1:]) * np.diff(slopes)))
    params = None
    if deltas[corner] < 1.0:
        params = PrivacyParams(float(np.nextafter(epsilons[corner], np.inf)), float(deltas[corner]))
    voters = Voters(K, PrivacyParams("inf"), overlap=overlap)
    name = _name_release(table, f"{K} plain")
    return PrivacyCost(name, params, renyi, profile, voters=voters, table=table.digest)


_MAX_LAW_DISTANCE = 1e-12  # of two equal laws: far above the rounding of γ, far below the distance of any other γ


@lru_cache(maxsize=64)  # of immutable tables: every cost of one needs it
def find_sample(table: Table) -> Sample | None:
    """Find the smallest n for which a table is the majority of n voters, mixed with the fair coin; None for others."""
    if not isinstance(table.law, NoiseFunction):
        return None
    K, half = table.gamma.K, [Fraction(float(value)) for value in table.gamma.half]
    first, unanimous = table.problem.voters.first_majority, half[-1]
    for size in range(1, K):
        weights = hypergeometric_pmf(K, first, size)
        lead = math.fsum(math.copysign(w, 2 * ones - size) for ones, w in enumerate(weights) if 2 * ones != size)
        if abs(float(half[0]) - float(unanimous) * lead) > 4.0 * _MAX_LAW_DISTANCE:
            continue
        exact = (unanimous * _majority_of_sample(K, ones, size) for ones in range(first, K + 1))
        distance = max(abs(value - exact_value) for value, exact_value in zip(half, exact, strict=True)) / 2
        if distance <= _MAX_LAW_DISTANCE:
            return Sample(size, math.nextafter(float(distance), math.inf) if distance else 0.0)
    return None


def _majority_of_sample(K: int, ones: int, size: int) -> Fraction:
    counts = range(max(0, size - (K - ones)), min(size, ones) + 1)
    lead = sum(
        (1 if 2 * j > size else -1) * math.comb(ones, j) * math.comb(K - ones, size - j)
        for j in counts
        if 2 * j != size
    )
    return Fraction(lead, math.comb(K, size))
