"""The corners at which the privacy cost can be largest.

The cost f(p, p'; γ) of [D, Lemma 3.4] is linear in each pair (p_i, p'_i), so it is largest with every pair at a corner
of the region that (ε, Δ)-privacy allows [D, Lemma 5.1]. With

    hi = (e^ε + Δ)/(e^ε + 1),   lo = (1 − Δ)/(e^ε + 1) = 1 − hi

the corners are (0,0) (1,1) (0,Δ) (Δ,0) (1−Δ,1) (1,1−Δ) (hi,lo) (lo,hi), four of them if Δ = 0. For non-private voters
the region is a square, whose corners are the same four with hi = 1 and lo = 0.

**The two terms decouple.** Write f = E_p[g] − c·E_{p'}[g]. Among the voters near 0, a of them have p = Δ and b of them
p' = Δ; the corners alone demand a + b ≤ their number. But (Δ, Δ) satisfies the privacy inequalities too, and a point of
the region never costs more than the best corner. So a and b may be chosen independently, and likewise near 1.

**Overlap.** If one person's data influence at most t voters, the other K − t are unaffected: p_j = p'_j. f is linear in
this common value, so they are at (0,0) or (1,1). The rows of overlap t are the rows of the full set with at most t
voters elsewhere.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import astuple, dataclass
from fractions import Fraction
from functools import lru_cache
from itertools import accumulate, pairwise
from math import comb
from typing import TypeVar

import numpy as np
from flint import arb, ctx, fmpq

from darrm.numerics import Array
from darrm.numerics.binomial import binomial_pmf
from darrm.privacy import PrivacyParams
from darrm.problem import Voters
from darrm.util import checks
from darrm.util.files import Json

PRECISION_BITS = 128
WHOLE_NUMBERS = f"whole numbers, e^ε to {PRECISION_BITS} bits"
_SPARE_BITS = 32  # numbers from 2^-32 on need no more than `PRECISION_BITS`
_NEGLIGIBLE_PROBABILITY = 1e-40  # smaller ones change no coefficient in floats
_MAX_CACHED_PROBABILITIES = 2**20  # of the laws that rows share: eight megabytes

P = TypeVar("P", float, arb)  # a probability


class Row(ABC):
    """One row of the linear program."""

    @abstractmethod
    def counts(self) -> tuple[CornerCounts, ...]:
        """Return how many voters of each group are at each corner."""

    def is_row_of(self, voters: Voters) -> bool:
        """Whether this is a row of the full set of these voters: points of the region that touch at most t voters."""
        parts = self.counts()
        return (
            [part.high + part.low + part.zeros + part.ones for part in parts] == [n for n, _ in voters.groups]
            and all(min(astuple(part)) >= 0 for part in parts)
            and all(max(part.moved_zeros, part.moved_zeros_prime) <= part.zeros for part in parts)
            and all(max(part.moved_ones, part.moved_ones_prime) <= part.ones for part in parts)
            and sum(part.touched for part in parts) <= voters.reached
        )

    def to_list(self) -> list[Json]:
        """Write the counts as plain data; if voters differ, one list of counts for each group."""
        lists: list[Json] = []
        for part in self.counts():
            counts = [part.high, part.low, *astuple(part)[3:]]  # without ``zeros`` and without 0 at the end
            while counts and counts[-1] == 0:
                counts.pop()
            lists.append(counts)
        return lists[0] if len(lists) == 1 else lists

    def split_by_group(self, voters: Voters) -> list[tuple[CornerCounts, Corners]]:
        return [(part, corners_of(each)) for part, (_, each) in zip(self.counts(), voters.groups, strict=True)]

    def probabilities(self, voters: Voters) -> tuple[Array, Array]:
        """Write the row out as (p, p'), two arrays of shape (K,), group by group."""
        sides = zip(*(part.vectors(corners) for part, corners in self.split_by_group(voters)), strict=True)
        first, second = map(np.concatenate, sides)
        return first, second

    def coefficients(self, voters: Voters, exp_epsilon: float) -> Array:
        """Compute a with f = Σ_{l>K/2} a_l γ(l), shape (K − ⌊K/2⌋,), for c = ``exp_epsilon``.

        With q = 1 − p' the cost is E_p[g] + c·E_q[g], because g is odd about K/2.
        """
        total, parts = np.zeros(voters.K + 1), self.split_by_group(voters)
        for weight, of_prime in ((1.0, False), (exp_epsilon, True)):
            start, law = 0, np.ones(1)
            for part, corners in parts:
                ones, binomials = part.side(corners.hi, corners.delta, of_prime=of_prime)
                start += ones
                for n, p in binomials:
                    first, values = corners.law(n, p)
                    start, law = start + first, np.convolve(law, values)
            total[start : start + law.size] += weight * law
        return np.asarray((total - total[::-1])[voters.K // 2 + 1 :], dtype=np.float64)


@dataclass(frozen=True)
class CornerCounts(Row):
    """The number of voters of one group at each corner."""

    high: int  # at (p, p') = (hi, lo)
    low: int  # at (lo, hi)
    zeros: int  # near 0
    ones: int  # near 1
    moved_zeros: int = 0  # voters near 0 with p = Δ
    moved_ones: int = 0  # voters near 1 with p = 1 − Δ
    moved_zeros_prime: int = 0  # the same for p'
    moved_ones_prime: int = 0

    def counts(self) -> tuple[CornerCounts, ...]:
        return (self,)

    def split_by_group(self, voters: Voters) -> list[tuple[CornerCounts, Corners]]:
        """Return this row with the corners of the least private voter: an upper bound if voters differ."""
        return [(self, corners_of(voters.each))]

    def stretch(self, K: int) -> CornerCounts:
        """Return a row of K voters with about the same share of them at each corner."""
        places = (self.high, self.low, self.zeros, self.ones)
        ends = [K * end // sum(places) for end in accumulate(places, initial=0)]
        high, low, zeros, ones = (stop - start for start, stop in pairwise(ends))

        def scale_moves(moves: int, old_count: int, new_count: int) -> int:
            return moves * new_count // max(1, old_count)

        return CornerCounts(
            *(high, low, zeros, ones),
            moved_zeros=scale_moves(self.moved_zeros, self.zeros, zeros),
            moved_ones=scale_moves(self.moved_ones, self.ones, ones),
            moved_zeros_prime=scale_moves(self.moved_zeros_prime, self.zeros, zeros),
            moved_ones_prime=scale_moves(self.moved_ones_prime, self.ones, ones),
        )

    def vectors(self, corners: Corners) -> tuple[Array, Array]:
        hi, delta = corners.hi, corners.delta

        def vector(high: float, moved_zeros: int, moved_ones: int) -> Array:
            parts = [(high, self.high), (1.0 - high, self.low), (delta, moved_zeros), (0.0, self.zeros - moved_zeros)]
            parts += [(1.0 - delta, moved_ones), (1.0, self.ones - moved_ones)]
            return np.concatenate([np.full(count, value) for value, count in parts])

        return (
            vector(hi, self.moved_zeros, self.moved_ones),
            vector(1.0 - hi, self.moved_zeros_prime, self.moved_ones_prime),
        )

    @classmethod
    def from_list(cls, counts: Json, voters: int) -> CornerCounts:
        """Read counts, without ``zeros`` and without 0 at the end; `TypeError` or `ValueError` for others."""
        checks.integer_at_least(0, **{f"count {place}": count for place, count in enumerate(counts)})
        padded = counts + [0] * (7 - len(counts))
        return cls(padded[0], padded[1], voters - sum(padded[:3]), *padded[2:])

    @property
    def touched(self) -> int:
        """The least number of voters with p ≠ p'; unaffected voters may have p = p' = Δ."""
        moved = abs(self.moved_zeros - self.moved_zeros_prime) + abs(self.moved_ones - self.moved_ones_prime)
        return self.high + self.low + moved

    def side(self, hi: P, delta: P, *, of_prime: bool) -> tuple[int, list[tuple[int, P]]]:
        """Return the number of ones under p, or under q = 1 − p', as a constant plus binomials (n, p), n > 0."""
        ones, rising, falling = self.ones, self.moved_zeros, self.moved_ones
        if of_prime:
            ones, rising, falling = self.zeros, self.moved_ones_prime, self.moved_zeros_prime
        binomials = [(self.high, hi), (self.low, 1 - hi), (rising, delta), (falling, 1 - delta)]
        return ones - falling, [(n, p) for n, p in binomials if n]


class Corners:
    """hi and Δ of voters, as balls that contain the real numbers and as the floats nearest to them."""

    def __init__(self, each: PrivacyParams) -> None:
        with ctx.workprec(choose_precision(each)):
            self.ball_delta = _to_ball(each.exact_delta)
            if each.is_private:
                growth = _to_ball(each.exact_epsilon).exp()
                self.ball_hi = (growth + self.ball_delta) / (growth + 1)
                self.ball_share = growth / (growth + 1)  # of a randomized response without Δ
            else:
                self.ball_hi = self.ball_share = arb(1)
            self.hi = float(self.ball_hi.mid())
            self.share, self.share_complement = float(self.ball_share.mid()), float((1 - self.ball_share).mid())
            self.delta = each.delta
        self._laws: dict[tuple[int, float], tuple[int, Array]] = {}
        self._num_cached = 0

    def law(self, n: int, p: float) -> tuple[int, Array]:
        """Return the first k with a relevant Pr[Bin(n, p) = k], and all from there on; rows share the cached laws."""
        if (n, p) not in self._laws:
            values = binomial_pmf(n, p)
            support = np.flatnonzero(values > _NEGLIGIBLE_PROBABILITY)
            if self._num_cached > _MAX_CACHED_PROBABILITIES:
                self._laws, self._num_cached = {}, 0
            self._laws[n, p] = int(support[0]), values[support[0] : support[-1] + 1]
            self._num_cached += support.size
        return self._laws[n, p]


class ExpEpsilon:
    """The factor c = e^ε of the privacy cost, as a ball and as a float ``value`` that is off by at most ``error``."""

    def __init__(self, epsilon: Fraction) -> None:
        with ctx.workprec(precision_for(epsilon)):
            self.ball = _to_ball(epsilon).exp()
            self.value = float(self.ball.mid())
            self.error = upper_float(abs(self.ball - arb(self.value)))


# computed once: ε and Δ are exact, so the cache keys are too
corners_of = lru_cache(maxsize=64)(Corners)
enclose_exp = lru_cache(maxsize=64)(ExpEpsilon)


@lru_cache(maxsize=64)
def budget_below(target: PrivacyParams) -> float:
    """Round the budget B = c − 1 + 2δ of the cost down to a float."""
    return lower_float(enclose_budget(target))


@lru_cache(maxsize=64)
def enclose_budget(target: PrivacyParams) -> arb:
    with ctx.workprec(choose_precision(target)):
        return enclose_exp(target.exact_epsilon).ball - 1 + 2 * _to_ball(target.exact_delta)


def choose_precision(params: PrivacyParams) -> int:
    """Return the precision for costs of the size of max(ε, δ): more than 128 bits below 2^-32."""
    return precision_for(max(params.exact_epsilon, params.exact_delta) if params.is_private else Fraction(1))


def precision_for(size: Fraction) -> int:
    zero_bits = size.denominator.bit_length() - size.numerator.bit_length() if size else 0
    return PRECISION_BITS + max(0, zero_bits - _SPARE_BITS)


def upper_float(ball: arb) -> float:
    """Round the upper end of a ball up to a float."""
    return float(np.nextafter(float(ball.upper()), np.inf))


def lower_float(ball: arb) -> float:
    """Round the lower end of a ball down to a float."""
    with ctx.workprec(PRECISION_BITS):
        return -upper_float(-ball)


def whole_below(ball: arb, bits: int = PRECISION_BITS) -> int:
    """Return a whole number n with n/2^bits at most every number of a ball."""
    with ctx.workprec(4 * bits):
        return int((ball.lower() * (1 << bits)).floor().unique_fmpz()) - 1


def whole_above(ball: arb, bits: int = PRECISION_BITS) -> int:
    """Return a whole number n with n/2^bits at least every number of a ball."""
    with ctx.workprec(4 * bits):
        return -whole_below(-ball, bits)


def full_set_size(voters: Voters) -> int:
    """Count the multisets of Lemma 5.1: C(K+7, 7), or C(K+3, 3) if Δ = 0; fewer if one person cannot touch all.

    With overlap t, j ≤ t voters are not at (0,0) or (1,1): Σ_j C(j+k−1, k−1)·(K−j+1) with k = 6 or 2 other corners.
    Where voters differ, multisets are counted group by group.
    """
    return placements(voters, [6 if each.exact_delta > 0 else 2 for _, each in voters.groups])


def placements(voters: Voters, places: Sequence[int]) -> int:
    """Count placements: at most t voters at the ``places`` of their group, the others at two places."""
    group_ways = [
        [comb(j + num_places - 1, num_places - 1) * (n - j + 1) for j in range(min(n, voters.reached) + 1)]
        for (n, _), num_places in zip(voters.groups, places, strict=True)
    ]
    return sum(touched_together(voters, group_ways))


def touched_together(voters: Voters, ways: Sequence[Sequence[int]]) -> list[int]:
    """Count the ways to touch 0, 1, … t voters, from the ways of each group."""
    total = [1]
    for group in ways:
        sums = range(min(voters.reached, len(total) + len(group) - 2) + 1)
        total = [
            sum(total[a] * group[j - a] for a in range(max(0, j - len(group) + 1), min(j + 1, len(total))))
            for j in sums
        ]
    return total


def _to_ball(value: Fraction) -> arb:
    return arb(fmpq(value.numerator, value.denominator))
