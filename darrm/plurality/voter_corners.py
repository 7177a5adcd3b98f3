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
    choose_precision,
    corners_of,
    enclose_exp,
    touched_together,
    whole_above,
    whole_below,
)
from darrm.numerics import Array
from darrm.plurality.adaptive_voters import VotersInTurn
from darrm.plurality.partitions import histograms_of, list_partitions
from darrm.plurality.plurality_law import ONE, PluralityLaw
from darrm.privacy import PrivacyParams
from darrm.problem import Problem, Voters
from darrm.util import checks

_MAX_NUMBERS = 2**22  # in memory at once
_MAX_WHOLE_ROWS = 100_000  # a second
# half a minute, for budgets below the rounding of floats
_MAX_WHOLE_ROWS_SMALL, _MIN_FLOAT_BUDGET = 3_000_000, 2.0**-30
# half a minute; if voters differ or Δ > 0, classes are not treated as exchangeable
_MAX_ROWS, _MAX_GROUP_ROWS = 25 * 10**8, 12 * 10**6
SIZES_OF_PRIVATE = "where voters differ C = 3 to K = 8 is solved, and more where few of them differ"
IN_TURN = f"voters in turn, {FLOATS}"
_STEP_ERROR = 2.0**-51  # of floats: hi, lo, two products and a sum, each rounded once


@dataclass(frozen=True)
class Mover:
    """A voter of one group who answers ``first`` with probability hi, else ``second``; on neighboring data reversed."""

    group: int
    first: int
    second: int


@dataclass(frozen=True, eq=False)
class Level:
    """Multisets of one number of movers: E_0[h] at every histogram of the other votes, on both data sets."""

    moving: int
    movers: NDArray[np.int16]  # (m, T), the number of each type
    last: NDArray[np.int16]  # (m,), the last type that occurs
    before: Array  # (m, n)
    after: Array
    parents: Level | None = None  # all multisets with one mover less, if needed

    def select(self, rows: slice) -> Level:
        return Level(self.moving, self.movers[rows], self.last[rows], self.before[rows], self.after[rows])


class Weights:
    """The probabilities of voters, as floats or, rounded in the safe direction, as whole numbers over 2^bits."""

    def __init__(self, voters: Voters, bits: int | None) -> None:
        is_whole, grain = bits is not None, 1 << (bits or PRECISION_BITS)
        self.unit: Any = grain if is_whole else 1.0
        corners = [corners_of(each) for _, each in voters.groups]
        deltas = [Fraction(-(-each.exact_delta * grain // 1), grain) for _, each in voters.groups]
        if voters.overlap is not None:
            deltas = [max(deltas)] * len(deltas)  # for any touched voter
        self.shares: list[tuple[Any, Any]] = []
        for corner in corners:
            high = min(grain, whole_above(corner.ball_share, bits)) if bits is not None else corner.share
            self.shares.append((high, self.unit - high))
        sizes = [count for count, _ in voters.groups]
        success_shares = [1 - delta for delta in deltas]
        reached_sizes = sizes if voters.overlap is None else [voters.reached]
        no_failure = math.prod(share**n for share, n in zip(success_shares, reached_sizes, strict=False))
        one_failure = [no_failure * delta / (1 - delta) for delta in deltas]  # exactly one voter
        if is_whole:
            no_failure, *one_failure = (Fraction(int(share * grain), grain) for share in (no_failure, *one_failure))
        more_failures = 1 - no_failure - sum(n * share for n, share in zip(reached_sizes, one_failure, strict=False))
        self.no_failure, self.failures, *self.one_failure = (
            int(share * grain) if is_whole else float(share) for share in (no_failure, more_failures, *one_failure)
        )


class CornerSet:
    """The movers of voters who choose from C classes, as seen from the first ``answers`` classes.

    Without ``every`` the movers of theorem 2 are omitted; ``among`` restricts movers to some classes. In floats, or in
    whole numbers over 2^bits to the number of movers.
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
        answer_set = range(answers)
        pairs = permutations(range(classes) if among is None else among, 2)
        places = [(a, b) for a, b in pairs if every or a in answer_set or b not in answer_set]
        # first the moves from the first class away from the answers: their order is free
        places.sort(key=lambda place: (place[0] != 0 or place[1] in answer_set, place))
        self.types = [Mover(group, a, b) for group in range(self.sizes.size) for a, b in places]
        self.group_of = np.array([mover.group for mover in self.types], dtype=np.int64)
        self.voters_fail = any(each.exact_delta for _, each in voters.groups)
        self.ordered = 0 if self.voters_fail or among is not None else classes - answers

    def levels(self, values: Array) -> Iterator[Level]:
        """Average a function on the histograms of all votes over all multisets of movers, a part at a time."""
        no_movers = np.zeros((1, len(self.types)), dtype=np.int16)
        yield from self._extend(Level(0, no_movers, no_movers[:, 0], values[None], values[None]))

    def _extend(self, level: Level) -> Iterator[Level]:
        yield level
        if level.moving == self.voters.reached:
            return
        num_histograms = histograms_of(self.voters.K - level.moving - 1, self.classes).number
        block_size = max(1, _MAX_NUMBERS // (num_histograms * len(self.types)))
        if self.voters_fail:
            block_size = len(level.movers)
        for start in range(0, len(level.movers), block_size):
            rows = slice(start, start + block_size)
            children = self._add_mover(level.select(rows))
            if len(children.movers):
                yield from self._extend(children)

    def _add_mover(self, level: Level) -> Level:
        """Add a mover of the last type or a later one to every multiset, so that each multiset arises once."""
        histograms = histograms_of(self.voters.K - level.moving - 1, self.classes)
        is_full = [level.movers[:, self.group_of == group].sum(axis=1) == size for group, size in enumerate(self.sizes)]
        parts = []
        for place, mover in enumerate(self.types):
            allowed = (level.last <= place) & ~is_full[mover.group]
            if 0 < place < self.ordered:  # classes outside the answers can be exchanged
                allowed &= level.movers[:, place] < level.movers[:, place - 1]
            rows = np.flatnonzero(allowed)
            movers, last = level.movers[rows], np.full(rows.size, place, dtype=np.int16)
            movers[:, place] += 1
            hi, lo = self.numbers.shares[mover.group]
            first, second = histograms.plus(mover.first), histograms.plus(mover.second)
            x, y = level.before[rows], level.after[rows]
            parts.append((movers, last, hi * x[:, first] + lo * x[:, second], lo * y[:, first] + hi * y[:, second]))
        movers, last, before, after = (np.concatenate(part) for part in zip(*parts, strict=True))
        return Level(level.moving + 1, movers, last, before, after, level if self.voters_fail else None)

    def bounds(self, level: Level, upper: float, lower: float) -> tuple[Array, Array]:
        """Bound E_p[h] from above and E_{p'}[h] from below, for h between ``lower`` and ``upper``.

        Whole numbers are then over one more factor of the unit.
        """
        if not self.voters_fail:
            return level.before * self.numbers.unit, level.after * self.numbers.unit
        scale = self.numbers.unit**level.moving * self.numbers.failures
        return (
            level.before * self.numbers.no_failure + self._sum_one_failure(level, "before", np.maximum) + scale * upper,
            level.after * self.numbers.no_failure + self._sum_one_failure(level, "after", np.minimum) + scale * lower,
        )

    def _sum_one_failure(self, level: Level, side: str, best: np.ufunc) -> Array:
        """Sum over voters, with weights, the best E_0[h] over the class of one failing voter."""
        values = getattr(level, side)
        total = np.zeros_like(values)
        parents = level.parents
        if parents is not None:
            places = {row.tobytes(): place for place, row in enumerate(parents.movers)}
            for place, mover in enumerate(self.types):
                rows = np.flatnonzero(level.movers[:, place])
                if not rows.size:
                    continue
                parent_movers = level.movers[rows]
                parent_movers[:, place] -= 1
                parent_values = getattr(parents, side)[[places[row.tobytes()] for row in parent_movers]]
                weight = self.numbers.one_failure[mover.group] * self.numbers.unit
                weights = weight * level.movers[rows, place, None].astype(values.dtype)
                total[rows] += weights * self._find_best_vote(parent_values, best, level.moving)
        return np.asarray(total + self._sum_other_failures(level, values, best))

    def _find_best_vote(self, values: Array, best: np.ufunc, moving: int) -> Array:
        histograms = histograms_of(self.voters.K - moving, self.classes)
        return np.array(best.reduce([values[:, histograms.plus(label)] for label in range(self.classes)]))

    def _sum_other_failures(self, level: Level, values: Array, best: np.ufunc) -> Array:
        """Sum over voters who do not move: exact if all are equal and touched, else a bound."""
        others, weights = self.voters.K - level.moving, self.numbers.one_failure
        total = np.zeros_like(values)
        if not others:
            return total
        smaller, counts = histograms_of(others - 1, self.classes), histograms_of(others, self.classes).counts
        # at every histogram of the others without one
        best_values = self._find_best_vote(values, best, level.moving + 1)
        is_uniform = self.voters.overlap is None and len(weights) == 1
        is_set = np.zeros(len(counts), dtype=bool)
        for label in range(self.classes):
            place = smaller.plus(label)
            if is_uniform:
                total[:, place] += weights[0] * counts[place, label].astype(values.dtype) * best_values
                continue
            total[:, place] = np.where(is_set[place], best(total[:, place], best_values), best_values)
            is_set[place] = True
        return total if is_uniform else np.asarray(self._sum_other_weights(level, values.dtype)[:, None] * total)

    def _sum_other_weights(self, level: Level, dtype: np.dtype[Any]) -> Array:
        weights = self.numbers.one_failure
        if self.voters.overlap is not None:
            return np.array([weights[0] * (self.voters.reached - level.moving)], dtype=dtype)
        moving = [level.movers[:, self.group_of == group].sum(axis=1) for group in range(len(weights))]
        sizes = self.sizes.tolist()
        return np.asarray(sum(t * (n - m.astype(dtype)) for t, n, m in zip(weights, sizes, moving, strict=True)))


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
        """How far floats are off: a few roundings for each mover, class and type, and the error of theorem 2 in floats.

        The condition of theorem 2 is checked in floats: each voter of an omitted row may gain the error of two sums
        over the classes.
        """
        classes, types = self.corners.classes, len(self.corners.types)
        return _STEP_ERROR * (self.level.moving + (self.corners.voters.reached + 1) * (classes + 1) + types + 8)

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
    probabilities: Array,
    answers: Iterable[int],
    *,
    every: bool | None = None,
    bits: int | None = None,
    few: bool = False,
) -> Iterator[RowBlock]:
    """Yield all rows of a law for numbers of answers, given the probability of one class of each group.

    ``every`` keeps all movers or omits those of theorem 2; None decides by the law. With ``few``, voters move among one
    answer and two other classes only, with Δ = 0.
    """
    K, C = problem.voters.K, problem.classes
    groups, smaller = list_partitions(K, C).find_groups(histograms_of(K, C).counts), histograms_of(K - 1, C)
    voters = problem.voters
    if few:
        pure = [PrivacyParams(each.exact_epsilon if each.is_private else "inf") for _, each in voters.groups]
        per_voter = [each for (n, _), each in zip(voters.groups, pure, strict=True) for _ in range(n)]
        voters = Voters.of(per_voter, voters.overlap)
    for number in answers:
        values = probabilities[groups[:, :number]].sum(axis=1)
        gains = np.min([values[smaller.plus(label)] for label in range(number)], axis=0)
        is_monotone = bool(np.all(gains >= np.max([values[smaller.plus(label)] for label in range(number, C)], axis=0)))
        among = (0, *range(number, min(number + 2, C))) if few else None
        keeps_all = not is_monotone if every is None else every
        corners = CornerSet(voters, C, number, every=keeps_all, bits=bits, among=among)
        for level in corners.levels(values):
            yield RowBlock(number, corners, level, *corners.bounds(level, values.max(), values.min()))


def sets_of_answers(problem: Problem) -> range:
    return range(1, problem.classes if problem.target.exact_delta else 2)


def largest_excess(problem: Problem, law: PluralityLaw) -> tuple[Fraction, str]:
    """Bound E_p[h_S] − e^ε E_{p'}[h_S] from above for all rows, at least 0; return how, too."""
    are_listed = is_searchable(problem.voters, problem.classes)
    if are_listed and are_whole(problem):
        return max(Fraction(0), *(cost for _, cost in _compute_whole_costs(problem, law))), WHOLE_NUMBERS
    worst = max(0.0, *(cost for _, cost in _compute_float_costs(problem, law.each)))
    return Fraction(worst), FLOATS if are_listed else IN_TURN


def _compute_float_costs(problem: Problem, probabilities: Array) -> Iterator[tuple[int, float]]:
    """Yield numbers of answers with bounds on their largest costs, over all rows or else for adaptive voters."""
    sets = sets_of_answers(problem)
    if is_searchable(problem.voters, problem.classes):
        yield from ((block.answers, block.worst(problem)) for block in row_blocks(problem, probabilities, sets))
    else:
        yield from ((number, VotersInTurn(problem, number).worst(probabilities)[0]) for number in sets)


def are_whole(problem: Problem) -> bool:
    """Whether all rows use whole numbers: if there are few, or if the rounding of floats would exceed the budget."""
    rows = number_of_rows(problem.voters, problem.classes)
    return rows <= (_MAX_WHOLE_ROWS if budget_below(problem.target) > _MIN_FLOAT_BUDGET else _MAX_WHOLE_ROWS_SMALL)


def _compute_whole_costs(problem: Problem, law: PluralityLaw) -> Iterator[tuple[int, Fraction]]:
    """Yield the number of answers and the largest cost of every block."""
    sets, bits = sets_of_answers(problem), choose_precision(problem.target)
    denominator = math.lcm(*range(1, law.classes + 1))
    numbers = [w * (denominator // m) for w, m in zip(law.weights.tolist(), law.partitions.sizes.tolist(), strict=True)]
    for block in row_blocks(problem, np.array(numbers, dtype=object), sets, bits=bits):
        unit = denominator * ONE << (bits * (block.level.moving + 2))
        yield block.answers, Fraction(int(block.costs(problem).max()), unit)


def share_needed(problem: Problem, law: PluralityLaw) -> float:
    """Find the share of random answers, of cost |S|/C·(1 − e^ε) < 0, that brings every row to δ."""
    if budget_below(problem.target) <= _MIN_FLOAT_BUDGET and are_whole(problem):
        bits = choose_precision(problem.target)
        ratio = Fraction(whole_below(enclose_exp(problem.target.exact_epsilon).ball, bits), 1 << bits)
        slack = (ratio - 1) / problem.classes
        exact_shares = [
            (cost - problem.target.exact_delta) / (cost + answers * slack)
            for answers, cost in _compute_whole_costs(problem, law)
            if cost > problem.target.exact_delta
        ]
        return float(max(exact_shares, default=Fraction(0))) + _STEP_ERROR
    shares = (share_for(problem, number, cost) for number, cost in _compute_float_costs(problem, law.each))
    return min(1.0, max(0.0, *shares) + _STEP_ERROR)


def share_for(problem: Problem, answers: int, cost: float) -> float:
    """Compute the share of random answers that brings a cost to δ."""
    random_cost = answers / problem.classes * (1.0 - enclose_exp(problem.target.exact_epsilon).value)
    return (cost - problem.target.delta) / (cost - random_cost)


def number_of_rows(voters: Voters, classes: int) -> int:
    """Count the rows: multisets of movers, each with all histograms of the others."""
    types = classes * (classes - 1)
    group_counts = [
        [math.comb(moving + types - 1, types - 1) for moving in range(min(count, voters.reached) + 1)]
        for count, _ in voters.groups
    ]
    movers = touched_together(voters, group_counts)
    return sum(n * math.comb(voters.K - j + classes - 1, classes - 1) for j, n in enumerate(movers))


def is_searchable(voters: Voters, classes: int) -> bool:
    """Whether all rows can be examined in about half a minute."""
    return number_of_rows(voters, classes) <= _get_max_rows(voters)


def check_size(voters: Voters, classes: int) -> None:
    """Raise `ValueError` with the limits if voters differ and have too many rows."""
    if len(voters.groups) > 1 and not is_searchable(voters, classes):
        name, rows = "the size of the proof, multisets of private voters", number_of_rows(voters, classes)
        allowed = f"at most {_get_max_rows(voters):,}"
        checks.fail(name, checks.Text(f"{rows:,}"), allowed, f"take fewer of either; {SIZES_OF_PRIVATE}")


def _get_max_rows(voters: Voters) -> int:
    return _MAX_ROWS if len(voters.groups) == 1 and not voters.each.exact_delta else _MAX_GROUP_ROWS
