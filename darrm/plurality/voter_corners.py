"""The corners of private voters with any number of classes, and all multisets of them.

One voter has laws p, p' over the C classes on neighboring data, (ε, Δ)-close. With hi = e^ε/(1 + e^ε), lo = 1 − hi:

**Theorem 1.** The pairs (p, p') are the convex hull of the *corners*, for classes a, b and u, v,

    p = (1 − Δ)(hi·1_a + lo·1_b) + Δ·1_u,        p' = (1 − Δ)(lo·1_a + hi·1_b) + Δ·1_v :

randomized response between two classes (a constant answer for a = b), and with probability Δ anything else.

*Proof.* Δ = 0: in every class e^{−ε} ≤ p_c/p'_c ≤ e^ε, so (p_c, p'_c) = α_c(hi, lo) + β_c(lo, hi) with α_c, β_c ≥ 0,
and both sums over c are 1: Σα = Σβ = 1. Draw a from α and b from β, independently: the mean corner is (p, p'). Δ > 0:
take r = (p − e^ε p')_+ off p and s = (p' − e^ε p)_+ off p'. Each has mass at most Δ, and r_c > 0 implies s_c = 0, so
the rests x and y have e^{−ε} ≤ x_c/y_c ≤ e^ε. Move the heavier, x, towards e^{−ε}y until the masses are equal; then
shrink both to the mass 1 − Δ. So (p, p') = ((1 − Δ)x̂ + Δr̂, (1 − Δ)ŷ + Δŝ) with (ε, 0)-close x̂, ŷ: a mean of corners.
∎

For C = 2 these are the corners of [D, Lemma 5.1]; a non-private voter has hi = 1. (Δ = 0: [Kairouz, Oh, Viswanath 2015,
Theorem 2].) The release is (ε, δ)-private if E_p[h_S] − r·E_{p'}[h_S] ≤ δ, r = e^ε, for every set S of answers. This is
linear in each voter's pair, so voters at corners suffice; voters beyond the overlap answer one class always. As h
treats classes alike, only the size of S and the multiset of voters matter; for δ = 0 one answer is enough.

**All multisets.** For a voter who answers a with probability hi, else b, (Th)(n) = hi·h(n + 1_a) + lo·h(n + 1_b) is a
function of the other votes. After one step for each of j movers, in any order, it is E[h] at every histogram of the
K − j others. A multiset of movers follows from one with one mover less by one step.

**Theorem 2.** If h_S never falls when a vote comes to S from another class, movers with a ∉ S and b ∈ S are not needed.
*Proof.* Let the voter answer hi·1_a + lo·1_b on the neighboring data, too: votes for S become fewer there, so
E_{p'}[h_S] does not grow. The new pair is a mean of the corners (a, a) and (b, b), and one of them costs as much. ∎

**Δ > 0** is bounded to first order. With w the probability that none of the t voters reached fails,

    E_p[h] ≤ w·E_0[h] + w·Σ_i Δ_i/(1 − Δ_i)·max_u E_{0, i says u}[h] + (1 − w − w·Σ_i Δ_i/(1 − Δ_i))·max h,

and E_{p'} likewise from below: exact up to order Δ². Only attained rows go into a program.

**Whole numbers.** hi and Δ are rounded up and r down to multiples of 2^{−128} (of more bits for small targets), so a
sum over j movers is a whole number over 2^{128j}. In floats every step has at most four roundings of numbers of at most
1.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from itertools import permutations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from darrm.majority.certify import FLOATS
from darrm.majority.corners import (
    PRECISION_BITS,
    WHOLE_NUMBERS,
    budget_below,
    corners_of,
    enclose_exp,
    precision_of,
    touched_together,
    whole_above,
    whole_below,
)
from darrm.numerics import Array
from darrm.plurality.adaptive_voters import VotersInTurn
from darrm.plurality.partitions import histograms_of, partitions_of
from darrm.plurality.plurality_law import ONE, PluralityLaw
from darrm.privacy import PrivacyParams
from darrm.problem import Problem, Voters
from darrm.util import checks

_MOST_NUMBERS = 2**22  # in memory at once
_MOST_WHOLE = 100_000  # a second of whole numbers
_MOST_WHOLE_OF_SMALL, _LEAST_BUDGET = 3_000_000, 2.0**-30  # half a minute, where floats would hide the budget
# half a minute; where voters differ or Δ > 0 the names of classes are not made use of
_MOST_ROWS, _MOST_ROWS_OF_GROUPS = 25 * 10**8, 12 * 10**6
SIZES_OF_PRIVATE = "where voters differ C = 3 to K = 8 is solved, and more where few of them differ"
IN_TURN = f"voters in turn, {FLOATS}"
_STEP = 2.0**-51  # of floats: hi, lo, two products and a sum, each rounded once


@dataclass(frozen=True)
class Mover:
    """A voter of one group who says ``first`` with probability hi and else ``second``; on neighboring data reversed."""

    group: int
    first: int
    second: int


@dataclass(frozen=True, eq=False)
class Level:
    """Multisets of one number of movers: E_0[h] at every histogram of the other votes, on both data sets."""

    moving: int
    movers: NDArray[np.int16]  # (m, T), how many of each type
    last: NDArray[np.int16]  # (m,), the last type that occurs
    before: Array  # (m, n)
    after: Array
    parents: Level | None = None  # all multisets of one mover less, if needed

    def part(self, rows: slice) -> Level:
        return Level(self.moving, self.movers[rows], self.last[rows], self.before[rows], self.after[rows])


class Weights:
    """The numbers of voters in floats or, rounded to the side that promises less, as whole numbers over 2^bits."""

    def __init__(self, voters: Voters, bits: int | None) -> None:
        whole, grain = bits is not None, 1 << (bits or PRECISION_BITS)
        self.unit: Any = grain if whole else 1.0
        corners = [corners_of(each) for _, each in voters.groups]
        deltas = [Fraction(-(-each.exact_delta * grain // 1), grain) for _, each in voters.groups]
        if voters.overlap is not None:
            deltas = [max(deltas)] * len(deltas)  # for any voter reached
        self.shares: list[tuple[Any, Any]] = []
        for corner in corners:
            high = min(grain, whole_above(corner.ball_share, bits)) if bits is not None else corner.share
            self.shares.append((high, self.unit - high))
        sizes = [count for count, _ in voters.groups]
        alone = [1 - delta for delta in deltas]
        reached = sizes if voters.overlap is None else [voters.reached]
        none = math.prod(share**n for share, n in zip(alone, reached, strict=False))
        one = [none * delta / (1 - delta) for delta in deltas]  # exactly one voter
        if whole:
            none, *one = (Fraction(int(share * grain), grain) for share in (none, *one))
        more = 1 - none - sum(n * share for n, share in zip(reached, one, strict=False))
        self.no_failure, self.failures, *self.one_failure = (
            int(share * grain) if whole else float(share) for share in (none, more, *one)
        )


class CornerSet:
    """The movers of voters who choose from C classes, as seen from the first ``answers`` classes.

    Without ``every`` those of theorem 2 are left out; ``among`` names classes, and leaves movers between others out. In
    floats, or in whole numbers over 2^bits to the number of movers.
    """

    def __init__(
        self,
        voters: Voters,
        classes: int,
        answers: int,
        *,
        every: bool = True,
        bits: int | None = None,
        among: Iterable[int] | None = None,
    ) -> None:
        self.voters, self.classes, self.numbers = voters, classes, Weights(voters, bits)
        self.sizes = np.array([count for count, _ in voters.groups])
        own = range(answers)
        pairs = permutations(range(classes) if among is None else among, 2)
        places = [(a, b) for a, b in pairs if every or a in own or b not in own]
        # in front those that lead from the first class away from the answers, whose order can be chosen
        places.sort(key=lambda place: (place[0] != 0 or place[1] in own, place))
        self.types = [Mover(group, a, b) for group in range(self.sizes.size) for a, b in places]
        self.group_of = np.array([mover.group for mover in self.types], dtype=np.int64)
        self.voters_fail = any(each.exact_delta for _, each in voters.groups)
        self.ordered = 0 if self.voters_fail or among is not None else classes - answers

    def levels(self, values: Array) -> Iterator[Level]:
        """Average a function on the histograms of all votes over all multisets of movers, a part at a time."""
        none = np.zeros((1, len(self.types)), dtype=np.int16)
        yield from self._from(Level(0, none, none[:, 0], values[None], values[None]))

    def _from(self, level: Level) -> Iterator[Level]:
        yield level
        if level.moving == self.voters.reached:
            return
        left = histograms_of(self.voters.K - level.moving - 1, self.classes).number
        at_once = max(1, _MOST_NUMBERS // (left * len(self.types)))
        if self.voters_fail:
            at_once = len(level.movers)
        for start in range(0, len(level.movers), at_once):
            rows = slice(start, start + at_once)
            children = self._with_one_more(level.part(rows))
            if len(children.movers):
                yield from self._from(children)

    def _with_one_more(self, level: Level) -> Level:
        """Add a mover to every multiset, none of a type before those that it has: so each is made once."""
        left = histograms_of(self.voters.K - level.moving - 1, self.classes)
        full = [level.movers[:, self.group_of == group].sum(axis=1) == size for group, size in enumerate(self.sizes)]
        parts = []
        for place, mover in enumerate(self.types):
            allowed = (level.last <= place) & ~full[mover.group]
            if 0 < place < self.ordered:  # classes that are no answers can be exchanged
                allowed &= level.movers[:, place] < level.movers[:, place - 1]
            rows = np.flatnonzero(allowed)
            movers, last = level.movers[rows], np.full(rows.size, place, dtype=np.int16)
            movers[:, place] += 1
            hi, lo = self.numbers.shares[mover.group]
            first, second = left.plus(mover.first), left.plus(mover.second)
            x, y = level.before[rows], level.after[rows]
            parts.append((movers, last, hi * x[:, first] + lo * x[:, second], lo * y[:, first] + hi * y[:, second]))
        movers, last, before, after = (np.concatenate(part) for part in zip(*parts, strict=True))
        return Level(level.moving + 1, movers, last, before, after, level if self.voters_fail else None)

    def bounds(self, level: Level, most: float, least: float) -> tuple[Array, Array]:
        """Bound E_p[h] from above and E_{p'}[h] from below, for h between ``least`` and ``most``.

        Whole numbers are then over one more factor of the unit.
        """
        if not self.voters_fail:
            return level.before * self.numbers.unit, level.after * self.numbers.unit
        scale = self.numbers.unit**level.moving * self.numbers.failures
        return (
            level.before * self.numbers.no_failure + self._one_failure(level, "before", np.maximum) + scale * most,
            level.after * self.numbers.no_failure + self._one_failure(level, "after", np.minimum) + scale * least,
        )

    def _one_failure(self, level: Level, side: str, best: np.ufunc) -> Array:
        """Sum over the voters the largest E_0[h] by the class of one of them, times its weight."""
        values = getattr(level, side)
        total = np.zeros_like(values)
        parents = level.parents
        if parents is not None:
            places = {row.tobytes(): place for place, row in enumerate(parents.movers)}
            for place, mover in enumerate(self.types):
                rows = np.flatnonzero(level.movers[:, place])
                if not rows.size:
                    continue
                without = level.movers[rows]
                without[:, place] -= 1
                before_it = getattr(parents, side)[[places[row.tobytes()] for row in without]]
                weight = self.numbers.one_failure[mover.group] * self.numbers.unit
                times = weight * level.movers[rows, place, None].astype(values.dtype)
                total[rows] += times * self._best_vote(before_it, best, level.moving)
        return np.asarray(total + self._failure_of_others(level, values, best))

    def _best_vote(self, values: Array, best: np.ufunc, moving: int) -> Array:
        left = histograms_of(self.voters.K - moving, self.classes)
        return np.array(best.reduce([values[:, left.plus(label)] for label in range(self.classes)]))

    def _failure_of_others(self, level: Level, values: Array, best: np.ufunc) -> Array:
        """Sum over voters who do not move: exactly where all are alike and reached, else from above."""
        others, one = self.voters.K - level.moving, self.numbers.one_failure
        total = np.zeros_like(values)
        if not others:
            return total
        fewer, counts = histograms_of(others - 1, self.classes), histograms_of(others, self.classes).counts
        spoken = self._best_vote(values, best, level.moving + 1)  # at every histogram of the others but one
        alike = self.voters.overlap is None and len(one) == 1
        seen = np.zeros(len(counts), dtype=bool)
        for label in range(self.classes):
            place = fewer.plus(label)
            if alike:
                total[:, place] += one[0] * counts[place, label].astype(values.dtype) * spoken
                continue
            total[:, place] = np.where(seen[place], best(total[:, place], spoken), spoken)
            seen[place] = True
        return total if alike else np.asarray(self._weight_of_others(level, values.dtype)[:, None] * total)

    def _weight_of_others(self, level: Level, dtype: np.dtype[Any]) -> Array:
        one = self.numbers.one_failure
        if self.voters.overlap is not None:
            return np.array([one[0] * (self.voters.reached - level.moving)], dtype=dtype)
        moving = [level.movers[:, self.group_of == group].sum(axis=1) for group in range(len(one))]
        sizes = self.sizes.tolist()
        return np.asarray(sum(t * (n - moved.astype(dtype)) for t, n, moved in zip(one, sizes, moving, strict=True)))


@dataclass(frozen=True, eq=False)
class RowBlock:
    """All rows of some multisets, for the first ``answers`` classes: both expectations, bounded, of shape (m, n).

    In whole numbers they are over `Weights.unit` to the number of movers and one.
    """

    answers: int
    corners: CornerSet
    level: Level
    upper: Array  # of E_p[h_S]
    lower: Array  # of E_{p'}[h_S]

    @property
    def error(self) -> float:
        """How far floats are off: a few roundings for each mover, class and type, and what theorem 2 leaves.

        That votes never harm their class is seen in floats: each voter of a row that is left out may gain by as much as
        two sums over the classes are off.
        """
        classes, types = self.corners.classes, len(self.corners.types)
        return _STEP * (self.level.moving + (self.corners.voters.reached + 1) * (classes + 1) + types + 8)

    def costs(self, problem: Problem) -> Array:
        """Compute E_p[h_S] − e^ε E_{p'}[h_S]; in whole numbers over one more factor of the unit."""
        ratio, unit = enclose_exp(problem.target.exact_epsilon), self.corners.numbers.unit
        factor = ratio.value if unit == 1 else whole_below(ratio.ball, unit.bit_length() - 1)
        return np.asarray(self.upper * unit - factor * self.lower)

    def worst(self, problem: Problem) -> float:
        """Bound the largest cost, computed in floats, from above."""
        ratio = enclose_exp(problem.target.exact_epsilon)
        return float(np.max(self.costs(problem))) + (1.0 + ratio.value) * self.error + ratio.error


def row_blocks(
    problem: Problem,
    each: Array,
    answers: Iterable[int],
    *,
    every: bool | None = None,
    bits: int | None = None,
    few: bool = False,
) -> Iterator[RowBlock]:
    """Look at all rows of a law for a number of answers, given the probability of one class of each group.

    ``every`` keeps all movers or leaves those of theorem 2 out; None decides by the law. With ``few`` voters move among
    an answer and two other classes only, with Δ = 0.
    """
    K, C = problem.voters.K, problem.classes
    groups, fewer = partitions_of(K, C).groups_of(histograms_of(K, C).counts), histograms_of(K - 1, C)
    voters = problem.voters
    if few:
        pure = [PrivacyParams(each.exact_epsilon if each.is_private else "inf") for _, each in voters.groups]
        own = [each for (n, _), each in zip(voters.groups, pure, strict=True) for _ in range(n)]
        voters = Voters.of(own, voters.overlap)
    for number in answers:
        values = each[groups[:, :number]].sum(axis=1)
        own = np.min([values[fewer.plus(label)] for label in range(number)], axis=0)
        gains = bool(np.all(own >= np.max([values[fewer.plus(label)] for label in range(number, C)], axis=0)))
        among = (0, *range(number, min(number + 2, C))) if few else None
        kept = not gains if every is None else every
        corners = CornerSet(voters, C, number, every=kept, bits=bits, among=among)
        for level in corners.levels(values):
            yield RowBlock(number, corners, level, *corners.bounds(level, values.max(), values.min()))


def sets_of_answers(problem: Problem) -> range:
    return range(1, problem.classes if problem.target.exact_delta else 2)


def largest_excess(problem: Problem, law: PluralityLaw) -> tuple[Fraction, str]:
    """Bound E_p[h_S] − e^ε E_{p'}[h_S] from above for all rows, at least 0; return how, too."""
    are_listed = can_be_looked_at(problem.voters, problem.classes)
    if are_listed and are_whole(problem):
        return max(Fraction(0), *(cost for _, cost in _whole_costs(problem, law))), WHOLE_NUMBERS
    worst = max(0.0, *(cost for _, cost in _costs_in_floats(problem, law.each)))
    return Fraction(worst), FLOATS if are_listed else IN_TURN


def _costs_in_floats(problem: Problem, each: Array) -> Iterator[tuple[int, float]]:
    """Yield numbers of answers, with bounds on their largest costs: of all rows, or else of voters in turn."""
    sets = sets_of_answers(problem)
    if can_be_looked_at(problem.voters, problem.classes):
        yield from ((block.answers, block.worst(problem)) for block in row_blocks(problem, each, sets))
    else:
        yield from ((number, VotersInTurn(problem, number).worst(each)[0]) for number in sets)


def are_whole(problem: Problem) -> bool:
    """Whether all rows use whole numbers: if they are few, or rounding of floats would exceed the budget."""
    rows = number_of_rows(problem.voters, problem.classes)
    return rows <= (_MOST_WHOLE if budget_below(problem.target) > _LEAST_BUDGET else _MOST_WHOLE_OF_SMALL)


def _whole_costs(problem: Problem, law: PluralityLaw) -> Iterator[tuple[int, Fraction]]:
    """Yield the number of answers and the largest cost of every block."""
    sets, bits = sets_of_answers(problem), precision_of(problem.target)
    common = math.lcm(*range(1, law.classes + 1))
    numbers = [w * (common // m) for w, m in zip(law.weights.tolist(), law.partitions.sizes.tolist(), strict=True)]
    for block in row_blocks(problem, np.array(numbers, dtype=object), sets, bits=bits):
        unit = common * ONE << (bits * (block.level.moving + 2))
        yield block.answers, Fraction(int(block.costs(problem).max()), unit)


def share_needed(problem: Problem, law: PluralityLaw) -> float:
    """Find how much of a random answer, which costs |S|/C·(1 − e^ε) < 0, brings every row to δ."""
    if budget_below(problem.target) <= _LEAST_BUDGET and are_whole(problem):
        bits = precision_of(problem.target)
        ratio = Fraction(whole_below(enclose_exp(problem.target.exact_epsilon).ball, bits), 1 << bits)
        spare = (ratio - 1) / problem.classes
        needed = [
            (cost - problem.target.exact_delta) / (cost + answers * spare)
            for answers, cost in _whole_costs(problem, law)
            if cost > problem.target.exact_delta
        ]
        return float(max(needed, default=Fraction(0))) + _STEP
    shares = (share_for(problem, number, cost) for number, cost in _costs_in_floats(problem, law.each))
    return min(1.0, max(0.0, *shares) + _STEP)


def share_for(problem: Problem, answers: int, cost: float) -> float:
    """Compute how much of a random answer brings a cost to δ."""
    random = answers / problem.classes * (1.0 - enclose_exp(problem.target.exact_epsilon).value)
    return (cost - problem.target.delta) / (cost - random)


def number_of_rows(voters: Voters, classes: int) -> int:
    """Count the multisets of movers, with the histograms of the others: the rows of all movers."""
    types = classes * (classes - 1)
    own = [
        [math.comb(moving + types - 1, types - 1) for moving in range(min(count, voters.reached) + 1)]
        for count, _ in voters.groups
    ]
    movers = touched_together(voters, own)
    return sum(n * math.comb(voters.K - j + classes - 1, classes - 1) for j, n in enumerate(movers))


def can_be_looked_at(voters: Voters, classes: int) -> bool:
    """Whether all rows can be, in half a minute or so."""
    return number_of_rows(voters, classes) <= _most_rows(voters)


def check_size(voters: Voters, classes: int) -> None:
    """Raise `ValueError` with the limits if voters differ and have too many rows."""
    if len(voters.groups) > 1 and not can_be_looked_at(voters, classes):
        name, rows = "the size of the proof, multisets of private voters", number_of_rows(voters, classes)
        allowed = f"at most {_most_rows(voters):,}"
        checks.fail(name, checks.Text(f"{rows:,}"), allowed, f"take fewer of either; {SIZES_OF_PRIVATE}")


def _most_rows(voters: Voters) -> int:
    return _MOST_ROWS if len(voters.groups) == 1 and not voters.each.exact_delta else _MOST_ROWS_OF_GROUPS
