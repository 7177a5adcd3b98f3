"""Decide in whole numbers whether a noise function is private, with every rounding bounded.

One voter in the data set and in its neighbor answers 1 with probabilities (p, p'). That each voter is (ε, Δ)-private
leaves a polygon of such pairs; with hi = (e^ε + Δ)/(e^ε + 1) and lo = 1 − hi its corners are

    (0,0)  (1,1)  (0,Δ)  (Δ,0)  (1−Δ,1)  (1,1−Δ)  (hi,lo)  (lo,hi),

and (0,0) (1,1) (1,0) (0,1) for voters without a guarantee. With c = e^ε' the release is (ε', δ')-private exactly if

    f = E_p[g(L)] − c·E_{p'}[g(L)]  ≤  c − 1 + 2δ'    for all pairs of all voters        [D, Lemma 3.4],

where L is the number of ones, g(l) = γ(l) above K/2, −γ(l) below and 0 at a tie. f is linear in each voter's pair, so
corners are enough [D, Lemma 5.1]; a voter outside of the overlap has p = p', so (0,0) or (1,1).

**Theorem 1 (two chains).** No row with voters at both (hi,lo) and (lo,hi) costs more than every row without such a
pair. *Proof.* hi + lo = 1, so the number x of ones among the two has the same law under p and p'. Given x they are as
two voters at (0,0) or (1,1), and f is the average over x of costs of such rows. ∎ So a row has j voters at (hi,lo), or
j at (lo,hi), and all others near 0 or 1. With T_j(s) = E[g(s + Bin(j, hi))], T_{j+1}(s) = lo·T_j(s) + hi·T_j(s+1), and
g odd about K/2, E[g(s + Bin(j, lo))] = −T_j(K − j − s).

**Theorem 2 (voters near 0 and 1, overlap K).** Let N = K − j, n of them near 1. Under p any a of the others
may have Δ and any b of the n may have 1 − Δ, and under p' independently: (Δ,Δ) is a point of the polygon. With
V(n) = max and W(n) = min over a ≤ N − n, b ≤ n of φ(a, b) = E[T_j(n + Bin(a, Δ) − Bin(b, Δ))], the largest cost is the
larger of V(n) + c·V(N − n) and −W(N − n) − c·W(n). In a and in b the second differences of φ are Δ²·E[T''], so where
T'' ≥ −M, φ is at most its largest value on a grid of steps u and v plus Δ²M(u² + v²)/8; where T rises, it is largest at
a = N − n, b = 0. The grid {0, N − n} × {0, n} is refined until the bound decides, at last to every a and b.

**Theorem 3 (monotone γ).** If g never falls, E[g] rises with every p_i, so every pair has one with no smaller p and no
larger p' on the chain (Δ,0) – (hi,lo) – (1,1−Δ): those, with (0,0) and (1,1), are enough.

**Voters that differ** are placed kind by kind, in every multiset of corners, each by one average of neighboring values.

**Rounding.** Numbers are whole, in units of 2^-b. hi, Δ and c are rounded down: a voter's probability is off by at most
2^(1−b), each average by one unit, c by one unit. Weights of binomials are rounded down, and the rest of their
sum to 1 is added as an error, |g| ≤ 1. Results enclose the true numbers; tests compare them with exact fractions.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from itertools import pairwise
from math import comb, lcm
from operator import mul

from darrm.verify.numbers import BITS, ONE, Enclosure, Point, exponential, units

MOST_WORK = 100_000_000  # about twenty seconds
ALL, CHAINS, MONOTONE = (
    "all multisets of corners",
    "two chains of corners (theorems 1 and 2)",
    "the corners of a monotone γ (theorem 3)",
)
_FINE = 256  # bits behind the point along chains
_UNIT = 1 << _FINE
_TAIL = _FINE - 128  # a binomial is cut off at a tail below 2^-128
_MOST_REFINED = 200_000  # evaluations of refined grids
_DECIDED = Fraction(1, 2**56)  # the tolerance of an upper bound

_Pair = tuple[int, int]
_Kind = tuple[int, list[_Pair]]


@dataclass(frozen=True)
class Gamma:
    """A noise function and its voters: γ(l) for l = ⌊K/2⌋ + 1 … K."""

    K: int
    half: tuple[Fraction, ...]
    kinds: tuple[tuple[int, Point | None], ...]
    reached: int

    @property
    def signed(self) -> list[Fraction]:
        """g(0) … g(K)."""
        middle = [Fraction(0)] if self.K % 2 == 0 else []
        return [-value for value in reversed(self.half)] + middle + list(self.half)

    @property
    def is_monotone(self) -> bool:
        """Whether g never falls."""
        return all(low <= high for low, high in pairwise(self.signed))


def budget(epsilon: Fraction, delta: Fraction) -> Enclosure:
    """Enclose e^ε − 1 + 2δ, the limit of the cost."""
    ratio = exponential(epsilon)
    return Enclosure(ratio.lower - 1 + 2 * delta, ratio.upper - 1 + 2 * delta)


def worst_costs(gamma: Gamma, epsilons: Sequence[Fraction]) -> list[Enclosure] | None:
    """Enclose the largest f for each ε'; None if there are too many rows.

    For one voter and γ = 1 the release is as private as the voter: (ε, 0)-private, with equality.

    >>> gamma = Gamma(1, (Fraction(1),), ((1, (Fraction(1, 10), Fraction(0))),), 1)
    >>> (worst,) = worst_costs(gamma, [Fraction(1, 10)])
    >>> float(worst.lower), float(budget(Fraction(1, 10), Fraction(0)).lower)
    (0.10517091807564763, 0.10517091807564763)
    """
    ratios = [exponential(epsilon) for epsilon in epsilons]
    if len(gamma.kinds) > 1:
        return _enumerated(gamma, ratios)
    delta = Fraction(0) if gamma.kinds[0][1] is None else gamma.kinds[0][1][1]
    if not delta or gamma.is_monotone or gamma.reached == gamma.K:
        return _Chains(gamma, delta).worst(ratios)
    return _enumerated(gamma, ratios)


def divergences(gamma: Gamma, epsilons: Sequence[Fraction]) -> list[Enclosure] | None:
    """Enclose the smallest δ with which the release is (ε, δ)-private: max(0, (1 − e^ε + max f)/2) for each ε."""
    found = worst_costs(gamma, epsilons)
    if found is None:
        return None
    zero = Fraction(0)
    return [
        Enclosure(max(zero, (1 - c.upper + worst.lower) / 2), max(zero, (1 - c.lower + worst.upper) / 2), worst.rows)
        for worst, c in zip(found, map(exponential, epsilons), strict=True)
    ]


class _Chains:
    """The rows of theorems 1 to 3, level by level; numbers in units of 2^-256."""

    def __init__(self, gamma: Gamma, delta: Fraction) -> None:
        self.K, self.reached, self.monotone = gamma.K, gamma.reached, gamma.is_monotone
        self.g = [units(value, _FINE) for value in gamma.signed]
        each = gamma.kinds[0][1]
        self.hi = _UNIT
        if each is not None:
            growth = exponential(each[0]).lower
            self.hi = units((growth + delta) / (growth + 1), _FINE)
        self.delta = units(delta, _FINE)
        self._weights: dict[int, list[int]] = {0: [_UNIT]}
        self._lack = 0  # the largest mass that a product of binomials lacks
        self._powers, self._left = [_UNIT], 0

    def worst(self, ratios: Sequence[Enclosure]) -> list[Enclosure] | None:
        """Enclose the largest cost for each c."""
        terms = len(self._binomial(self.K)) if self.delta else 1
        free = bool(self.delta) and not self.monotone
        rows = (self.K - self.reached + 1) * (self.reached + 1) * (self.reached + 2) // 2
        if rows * (len(ratios) + (4 + terms) * terms if free else len(ratios) + 2 * terms) > MOST_WORK:
            return None
        factors = [units(ratio.lower, _FINE) for ratio in ratios]
        bounds = [_Largest() for _ in factors]
        for j, T in self._levels():
            if not self.delta:
                self._certain(T, factors, bounds)
            elif self.monotone:
                self._monotone(j, T, factors, bounds)
            else:
                self._free(j, T, factors, bounds)
        family = MONOTONE if self.monotone else CHAINS
        result = []
        for ratio, factor, largest in zip(ratios, factors, bounds, strict=True):
            if free:
                self._refine(factor, largest)
            error = self.K * 8 + (2 + self.K * self.K) * self._lack + 8  # of one expectation, in units
            slack = (2 + factor // _UNIT) * error + 2 * units(ratio.upper - ratio.lower, _FINE, up=True) + 4
            lower, upper = largest.attained - slack, max(largest.attained, largest.above) + slack
            result.append(Enclosure(Fraction(lower, _UNIT), Fraction(upper, _UNIT), family))
        return result

    def _levels(self) -> Iterator[tuple[int, list[int]]]:
        T, hi, lo = self.g, self.hi, _UNIT - self.hi
        for j in range(self.reached + 1):
            yield j, T
            T = [(lo * low + hi * high) >> _FINE for low, high in pairwise(T)]

    def _certain(self, T: list[int], factors: Sequence[int], bounds: Sequence["_Largest"]) -> None:
        mirrored = T[::-1]
        for factor, largest in zip(factors, bounds, strict=True):
            costs = [(own << _FINE) + factor * other for own, other in zip(T, mirrored, strict=True)]
            largest.attained = max(largest.attained, max(costs) >> _FINE, -min(costs) >> _FINE)

    def _monotone(self, j: int, T: list[int], factors: Sequence[int], bounds: Sequence["_Largest"]) -> None:
        moved = self.reached - j
        for ones in range(moved + 1):
            up, down = self._binomial(moved - ones), self._binomial(ones)
            for start in range(ones, ones + self.K - self.reached + 1):
                # under p' the j voters have lo: E[g(s + Bin(j, lo))] = −T_j(N − s), and s + Bin(n, 1 − Δ) ones besides
                own, other = _product(up, T[start:]), _product(down, T[self.K - j - start :])
                for factor, largest in zip(factors, bounds, strict=True):
                    largest.attained = max(largest.attained, (own + (factor * other >> _FINE)) >> _FINE)

    def _free(self, j: int, T: list[int], factors: Sequence[int], bounds: Sequence["_Largest"]) -> None:
        N = self.K - j
        values = [[self._mean(T, n, a, b) for a in {0, N - n} for b in {0, n}] for n in range(N + 1)]
        most, least = [max(each) for each in values], [min(each) for each in values]
        rooms = [[self._room(bend, N - n, n) for n, bend in enumerate(bends)] for bends in self._bends(T)]
        for factor, largest in zip(factors, bounds, strict=True):
            for n in range(N + 1):
                high = most[n] + (factor * most[N - n] >> _FINE)
                low = -least[N - n] - (factor * least[n] >> _FINE)
                for cost, (room, other), is_high in ((high, (n, N - n), True), (low, (N - n, n), False)):
                    largest.attained = max(largest.attained, cost)
                    above = cost + rooms[not is_high][room] + (factor * rooms[not is_high][other] >> _FINE) + 2
                    if above > largest.attained:
                        largest.waiting.append((above, j, n, is_high))

    def _bends(self, T: list[int]) -> tuple[list[int], list[int]]:
        """Bound how far T bends down, and up, around each place; 0 if T rises, as φ is then largest at a corner."""
        near = len(self._binomial(self.K))
        slopes = [after - before for before, after in pairwise(T)]
        bends = [after - before for before, after in pairwise(slopes)]
        down, up = list[int](), list[int]()
        for n in range(len(T)):
            start = max(0, n - near)
            around = bends[start : n + near] or [0]
            rises = min(slopes[start : n + near], default=0) >= 0
            down.append(0 if rises else max(0, -min(around)))
            up.append(0 if rises else max(0, *around))
        return down, up

    def _room(self, bend: int, u: int, v: int) -> int:
        """Bound how far φ may exceed its largest value on a grid of steps u and v."""
        steps = u * u * int(u > 1) + v * v * int(v > 1)
        return ((self.delta * self.delta >> _FINE) * bend * steps // 8 >> _FINE) + 1 if bend and steps else 0

    def _mean(self, T: list[int], n: int, a: int, b: int) -> int:
        """Compute E[T(n + Bin(a, Δ) − Bin(b, Δ))], up to the missing mass of the weights."""
        up, down = self._binomial(a), self._binomial(b)
        if len(down) == 1:
            return _product(up, T[n:]) >> _FINE
        if len(up) == 1:
            return _product(down, T[n::-1]) >> _FINE
        return sum(weight * (_product(up, T[n - i :]) >> _FINE) for i, weight in enumerate(down)) >> _FINE

    def _refine(self, factor: int, largest: "_Largest") -> None:
        """Refine the rows whose bound exceeds the largest attained cost."""
        tolerance, self._left = int(_UNIT * _DECIDED), _MOST_REFINED
        waiting = sorted((row for row in largest.waiting if row[0] > largest.attained + tolerance), reverse=True)
        numbers = {row[1] for row in waiting}
        levels = {j: T for j, T in self._levels() if j in numbers} if waiting else {}
        for above, j, n, is_high in waiting:
            if above <= largest.attained + tolerance:
                break
            N, T = self.K - j, levels[j] if is_high else [-value for value in levels[j]]
            bends = self._bends(T)[0]
            cost = bound = 0
            for place, weight in ((n, _UNIT), (N - n, factor)) if is_high else ((N - n, _UNIT), (n, factor)):
                value, most = self._most(T, place, N - place, bends[place], tolerance // 8)
                cost, bound = cost + (weight * value >> _FINE), bound + (weight * most >> _FINE) + 1
            largest.attained, largest.above = max(largest.attained, cost), max(largest.above, bound)

    def _most(self, T: list[int], n: int, others: int, bend: int, tolerance: int) -> tuple[int, int]:
        """Compute a lower and an upper bound of V(n), by halving the cells of a grid."""
        known: dict[tuple[int, int], int] = {}

        def value(a: int, b: int) -> int:
            if (a, b) not in known:
                known[a, b] = self._mean(T, n, a, b)
                self._left -= 1
            return known[a, b]

        cells = [(0, others, 0, n)]
        best = bound = max(value(a, b) for a in {0, others} for b in {0, n})
        while cells:
            start, end, first, last = cells.pop()
            corners = [value(a, b) for a in {start, end} for b in {first, last}]
            best = max(best, *corners)
            most = max(corners) + self._room(bend, end - start, last - first)
            if most <= best + tolerance or self._left <= 0:
                bound = max(bound, most)
            elif end - start >= last - first:
                middle = (start + end) // 2
                cells += [(start, middle, first, last), (middle, end, first, last)]
            else:
                middle = (first + last) // 2
                cells += [(start, end, first, middle), (start, end, middle, last)]
        return best, max(best, bound)

    def _binomial(self, n: int) -> list[int]:
        """Compute Pr[Bin(n, Δ) = i], rounded down, until the tail is negligible."""
        if n not in self._weights:
            stay = _UNIT - self.delta - 1  # no more than 1 − Δ
            while len(self._powers) <= n:
                self._powers.append(self._powers[-1] * stay >> _FINE)
            weights, moved, left = list[int](), _UNIT, _UNIT
            for i in range(n + 1):
                weights.append(comb(n, i) * moved * self._powers[n - i] >> _FINE)
                left -= weights[-1]
                moved = moved * self.delta >> _FINE
                if left >> _TAIL == 0:
                    break
            self._weights[n] = weights
            self._lack = max(self._lack, 2 * left)
        return self._weights[n]


def _product(weights: list[int], values: list[int]) -> int:
    return sum(map(mul, weights, values))


class _Largest:
    """The largest cost of one c: a lower and an upper bound, and the rows to refine."""

    def __init__(self) -> None:
        self.attained, self.above = -_UNIT << 2, -_UNIT << 2
        self.waiting: list[tuple[int, int, int, bool]] = []


def _enumerated(gamma: Gamma, ratios: Sequence[Enclosure]) -> list[Enclosure] | None:
    if (listed := _states_of(gamma)) is None:
        return None
    scale, states = listed
    rounded = [units(ratio.lower) for ratio in ratios]
    largest: dict[tuple[int, int], int] = {}
    for placed, first, second in states:
        for index, ratio in enumerate(rounded):
            found = max((own << BITS) - ratio * other for own, other in zip(first, second, strict=True))
            if found > largest.get((index, placed), found - 1):
                largest[index, placed] = found
    worst = []
    for index, exact in enumerate(ratios):
        highest = max(Fraction(value, scale << (BITS * (n + 1))) for (at, n), value in largest.items() if at == index)
        slack = Fraction(4 * gamma.reached, ONE) * (1 + exact.upper) + exact.upper - exact.lower + Fraction(1, ONE)
        worst.append(Enclosure(highest - slack, highest + slack, ALL))
    return worst


def label_laws(gamma: Gamma) -> Iterator[tuple[list[list[float]], list[list[float]]]] | None:
    """Yield the laws of the label on both data sets, for every multiset of corners; None if there are too many.

    A divergence that is jointly convex is largest at one of them: it is convex in each voter's pair.

    >>> one = Gamma(1, (Fraction(1, 2),), ((1, None),), 1)
    >>> [law for law in label_laws(one) if law[0] != law[1]]
    [([[0.75, 0.25]], [[0.25, 0.75]]), ([[0.25, 0.75]], [[0.75, 0.25]])]
    """
    if (listed := _states_of(gamma)) is None:
        return None
    scale, states = listed

    def laws(values: list[int], unit: int) -> list[list[float]]:
        return [[(unit - value) / (2 * unit), (unit + value) / (2 * unit)] for value in values]

    return ((laws(first, scale << (BITS * n)), laws(second, scale << (BITS * n))) for n, first, second in states)


@lru_cache(maxsize=64)
def _corners(each: Point | None) -> list[_Pair]:
    if each is None:
        return [(ONE, 0), (0, ONE)]
    epsilon, delta = each
    growth = exponential(epsilon).lower
    hi, moved = units((growth + delta) / (growth + 1)), units(delta)
    corners = [(hi, ONE - hi), (ONE - hi, hi)]
    if delta:
        corners += [(0, moved), (moved, 0), (ONE - moved, ONE), (ONE, ONE - moved)]
    return corners


def _states_of(gamma: Gamma) -> tuple[int, Iterator[tuple[int, list[int], list[int]]]] | None:
    """Return the unit of γ and the states of all multisets of corners; None if there are too many."""
    kinds = [(count, _corners(each)) for count, each in gamma.kinds]
    if _work(gamma, kinds) > MOST_WORK:
        return None
    scale = lcm(*(value.denominator for value in gamma.half))
    return scale, _states(kinds, gamma.reached, [int(value * scale) for value in gamma.signed])


def _states(kinds: list[_Kind], reached: int, g: list[int]) -> Iterator[tuple[int, list[int], list[int]]]:
    """Yield every multiset's size, and E_p[g(s + L)] and E_{p'}[g(s + L)] for all s in units of 2^(−128·size)."""
    waiting = [(0, 0, 0, 0, g, g)]
    while waiting:
        kind, placed, of_kind, start, first, second = waiting.pop()
        voters, corners = kinds[kind]
        if kind + 1 == len(kinds):
            yield placed, first, second
        else:
            waiting.append((kind + 1, placed, 0, 0, first, second))
        if placed < reached and of_kind < voters:
            waiting += [
                (kind, placed + 1, of_kind + 1, index, _average(first, p), _average(second, p_prime))
                for index, (p, p_prime) in enumerate(corners[start:], start)
            ]


def _average(values: list[int], p: int) -> list[int]:
    rest = ONE - p
    return [rest * low + p * high for low, high in pairwise(values)]


def _work(gamma: Gamma, kinds: list[_Kind]) -> int:
    ways = [1]
    for voters, corners in kinds:
        own = [comb(j + len(corners) - 1, j) for j in range(voters + 1)]
        grown = [0] * (min(gamma.reached, len(ways) - 1 + voters) + 1)
        for placed, count in enumerate(ways):
            for j, states in enumerate(own[: len(grown) - placed]):
                grown[placed + j] += count * states
        ways = grown
    return sum(count * (gamma.K - placed + 1) for placed, count in enumerate(ways)) * (20 + gamma.reached)
