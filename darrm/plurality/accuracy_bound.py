"""How large the share of right labels of a private mechanism can be: a bound from multipliers of pairs of neighbors.

Let P_p be the prior's probability of the partition p, c_j = m_j P_p for its group of classes with the most votes and 0
for its other groups: the share of right labels of a law h is Σ_j c_j h_j.

**Theorem.** For any multipliers z_t ≥ 0 of the terms of pairs of neighbors, with y_r the largest z_t/k_t of a pair's
terms (k_t classes each) and ρ_j = c_j − Σ_t z_t [j = n's group of t] + e^ε Σ_t z_t [j = the group of n' of t],

    (1)   no (ε, δ)-private mechanism has a share of right labels above   δ Σ_r y_r + Σ_p max_{j in p} ρ_j/m_j.

*Proof.* First a law h that treats classes alike. It is private, so for each pair Σ_t z_t (h_i − e^ε h_j) ≤ y_r Σ_t k_t
(h_i − e^ε h_j)_+ ≤ y_r δ. So Σ_j c_j h_j ≤ Σ_j ρ_j h_j + δ Σ_r y_r, and in every partition h_j ≥ 0 and Σ_j m_j h_j = 1.
Now any mechanism on the votes of K voters, private for every change of at most t votes. Apply a random permutation to
the voters and to the classes, and undo that of the classes in the answer: the neighbors stay neighbors, divergences are
jointly convex, and a prior that is symmetric in voters and classes gives the same accuracy. The result depends on the
histogram only and treats classes alike. ∎

**Open answers.** The same holds for mechanisms on strings: (1) bounds their share of right labels if the K voters'
strings are renamed by a random permutation of N strings, for every N up to what vanishes with N, and so their least
share over all names. *Proof.* For such a permutation a mechanism becomes one that treats the N strings alike, and
answers each string without votes with a probability of at most 1/(N − K). Of a sequence of N some h converge for all
partitions; in the limit a string that only n holds has h_c(n') = 0, and those that neither holds, put together with no
answer, make one term: a sum of positive parts is at least the positive part of the sum. So the limit fulfills every
row. ∎

**Many voters**, without multipliers: every mechanism answers a string with n votes with a probability of at
most π(n), where π(0) = 0 and π(n + 1) = min(c·π(n) + δ, 1 − (1 − π(n) − δ)/c), c = e^ε [DVGM20]. *Proof.* Take one vote
from the string: Pr[s] ≤ c·Pr'[s] + δ, and 1 − Pr'[s] ≤ c·(1 − Pr[s]) + δ. ∎ So no share of right answers is above the
sum of π(n) times the expected number of strings that have n votes, the most of all; nor above 1. If a person reaches t
voters, t votes are taken at a time.

**Private voters.** For multipliers z_r ≥ 0 of rows E_p[h_S] − e^ε E_{p'}[h_S] ≤ δ of voters at corners
(`darrm.plurality.voter_rows`), with coefficients a_{r,j} and ρ_j = c_j − Σ_r z_r a_{r,j}, the bound is δ Σ_r z_r + Σ_p
max_{j in p} ρ_j/m_j, for the same reasons; a permutation of the voters is harmless where all promise the same. Where
they differ it is a bound on mechanisms that see how many votes each class has, not whose they are.

Good multipliers come from the solver; bad ones give a weak bound, never a false one. So a table keeps them, and loading
it computes (1) again in balls that contain the real numbers. P_p are the floats that the prior computes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import numpy as np
from flint import arb, ctx, fmpq

from darrm.majority.corners import PRECISION_BITS, ratio_of, upper_float
from darrm.plurality.moves import pairs_of
from darrm.plurality.partitions import ABSENT, Histogram, partitions_of
from darrm.plurality.voter_rows import VoterRow, relative_error
from darrm.priors import Prior, strings_of
from darrm.problem import Problem, is_open
from darrm.util import checks
from darrm.util.files import Json

_MOST_ROWS = 10_000  # with multipliers: far more than any program has at its optimum


class Multiplier(Protocol):
    """Multipliers z of some rows: their effect on c, and their JSON."""

    def subtract(self, reduced: list[arb], problem: Problem) -> arb:
        """Subtract the rows, times z, from ρ; return the coefficient of δ."""
        ...

    def to_list(self) -> list[Json]:
        """Write it as plain data."""
        ...


class PairMultipliers(NamedTuple):
    """z of the theorem for the terms of one pair of neighbors, in the order of `Partitions.terms`."""

    place: int  # the number of the partition n
    aligned: Histogram  # n'
    weights: tuple[float, ...]

    def subtract(self, reduced: list[arb], problem: Problem) -> arb:
        """Subtract the terms, times z, from c; return the largest z/k."""
        partitions = partitions_of(problem.voters.K, problem.classes)
        ratio, largest = ratio_of(problem.target.exact_epsilon).ball, arb(0)
        terms = partitions.terms(self.place, self.aligned)
        for (before, after, count), weight in zip(terms, self.weights, strict=True):
            z = arb(weight)
            reduced[before] -= z
            if after != ABSENT:
                reduced[after] += ratio * z
            largest = largest.max(z / count)
        return largest

    def to_list(self) -> list[Json]:
        """Write the number of the partition, its neighbor, and z of every term."""
        return [self.place, list(self.aligned), list(self.weights)]


class RowMultiplier(NamedTuple):
    """z of one row of private voters."""

    weight: float
    row: VoterRow

    def subtract(self, reduced: list[arb], problem: Problem) -> arb:
        """Subtract the row, times z, from c; return z."""
        ratio, error, z = ratio_of(problem.target.exact_epsilon).ball, relative_error(problem), arb(self.weight)
        before, after = self.row.coefficients(problem)
        for group in np.flatnonzero(before + after).tolist():
            x, y = (arb(float(side[group]), error * float(side[group])) for side in (before, after))
            reduced[group] -= z * (x - ratio * y)
        return z

    def to_list(self) -> list[Json]:
        """Write z, and the row."""
        return [self.weight, *self.row.to_list()]


def most_of_one_string(problem: Problem) -> list[arb]:
    """Compute π(0 … K), the largest probability of a string by its votes, whatever the mechanism on open answers.

    >>> from darrm import PrivacyParams, Voters
    >>> problem = Problem(Voters(3, PrivacyParams("inf"), overlap=1), PrivacyParams(1, "0.1"), "open")
    >>> [round(float(most.mid()), 6) for most in most_of_one_string(problem)]
    [0.0, 0.1, 0.371828, 0.805696]
    """
    with ctx.workprec(PRECISION_BITS):
        target, most = problem.target, [arb(0)]
        ratio = ratio_of(target.exact_epsilon).ball
        delta = arb(fmpq(target.exact_delta.numerator, target.exact_delta.denominator))
        for n in range(1, problem.voters.K + 1):
            before = most[max(0, n - problem.voters.reached)]
            most.append((ratio * before + delta).min(1 - (1 - before - delta) / ratio).min(arb(1)))
    return most


def _bound_of_strings(problem: Problem, prior: Prior) -> float:
    expected, most = strings_of(prior, problem.voters.K), most_of_one_string(problem)
    right = np.sum(np.tril(expected), axis=1)
    with ctx.workprec(PRECISION_BITS):
        return min(1.0, upper_float(sum((p * arb(float(n)) for p, n in zip(most, right, strict=True)), arb(0))))


def upper_bound(problem: Problem, prior: Prior, multipliers: Sequence[Multiplier]) -> float:
    """Compute a float that is at least (1), and at most 1, as every share is; of many voters' strings, of π.

    Without multipliers nothing is known but that:

    >>> from darrm import PrivacyParams, Voters
    >>> from darrm.priors import Dirichlet
    >>> problem = Problem(Voters(3, PrivacyParams("inf"), overlap=1), PrivacyParams(1), 3)
    >>> round(upper_bound(problem, Dirichlet(), []), 12)
    1.0
    """
    if is_open(problem.classes) and not multipliers:
        return _bound_of_strings(problem, prior)
    partitions = partitions_of(problem.voters.K, problem.classes)
    delta, sizes = problem.target.exact_delta, partitions.sizes.tolist()
    with ctx.workprec(PRECISION_BITS):
        reduced = [arb(0)] * len(sizes)
        for group, probability in zip(
            partitions.starts.tolist(), partitions.probabilities(prior).tolist(), strict=True
        ):
            reduced[group] = sizes[group] * arb(probability)
        total = sum((multiplier.subtract(reduced, problem) for multiplier in multipliers), arb(0))
        bound = total * arb(fmpq(delta.numerator, delta.denominator))
        best: dict[int, arb] = {}
        for place, size, each in zip(partitions.blocks.tolist(), sizes, reduced, strict=True):
            share = each / size
            best[place] = best[place].max(share) if place in best else share
        return min(1.0, upper_float(sum(best.values(), bound)))


def multipliers_from_json(data: Json, problem: Problem) -> tuple[Multiplier, ...]:
    """Read what `to_list` wrote of each; `TypeError`, `KeyError` or `ValueError` if they are no such list."""
    if data == []:
        return ()
    read = _pairs_from_json if problem.voters.are_non_private else _rows_from_json
    return read(data, problem)


def _rows_from_json(data: Json, problem: Problem) -> tuple[RowMultiplier, ...]:
    if not isinstance(data, list) or len(data) > _MOST_ROWS:
        checks.fail("multipliers", type(data).__name__, f"a list of at most {_MOST_ROWS:,} rows")
    for weight, *_ in data:
        checks.non_negative(multiplier=weight)
    return tuple(RowMultiplier(float(weight), VoterRow.from_list(row, problem)) for weight, *row in data)


def _pairs_from_json(data: Json, problem: Problem) -> tuple[PairMultipliers, ...]:
    pairs, partitions = pairs_of(problem), partitions_of(problem.voters.K, problem.classes)
    known = set(zip(pairs.first, pairs.second, strict=True))
    if not isinstance(data, list) or len(data) > len(known):
        checks.fail("multipliers", type(data).__name__, f"a list of at most {len(known)} pairs of neighbors")
    found = []
    for place, aligned, weights in data:
        if type(place) is not int or any(type(votes) is not int for votes in aligned):
            checks.fail("multipliers", [place, aligned], "about whole numbers")
        if (place, tuple(aligned)) not in known:
            checks.fail("multipliers", [place, aligned], "of neighbors of a partition, aligned to it")
        if len(weights) != len(partitions.terms(place, tuple(aligned))):
            checks.fail("multipliers", weights, "a number for each term of the pair")
        for weight in weights:
            checks.non_negative(multiplier=weight)
        found.append(PairMultipliers(place, tuple(aligned), tuple(map(float, weights))))
    return tuple(found)
