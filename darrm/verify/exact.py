"""Is a noise function private? Decided in exact rational arithmetic, by code that shares nothing with the prover.

One voter in the data set and in its neighbor answers 1 with probabilities (p, p'). That each voter is (ε, Δ)-private
leaves a polygon of such pairs; with hi = (e^ε + Δ)/(e^ε + 1) and lo = 1 − hi its corners are

    (0,0)  (1,1)  (0,Δ)  (Δ,0)  (1−Δ,1)  (1,1−Δ)  (hi,lo)  (lo,hi),

and (0,0) (1,1) (1,0) (0,1) for voters about whom nothing is promised. The release is (ε', δ')-private exactly if

    f = E_p[g(L)] − e^{ε'}·E_{p'}[g(L)]  ≤  e^{ε'} − 1 + 2δ'    for all pairs of all voters        [D, Lemma 3.4],

where L is the number of ones, g(l) = γ(l) above K/2, −γ(l) below and 0 at a tie. f is linear in each voter's pair, so
corners are enough [D, Lemma 5.1]; voters are alike, so only how many sit at each corner matters. A voter whom the
person does not reach has p = p', hence sits at (0,0) or (1,1). A voter at (0,0) or (1,1) only moves the count: so the
t or fewer voters elsewhere are placed one after the other, in every multiset, each by one average of neighboring
values, and what is left of the two vectors is f for every number of voters at (1,1). That is all.

**Rounding.** Integers over powers of two carry every number. Only hi, Δ and e^{ε'} are rounded, to b = 128 bits behind
the point: a voter's probability is off by at most η = 2^(1−b), hence each expectation of g, which lies in [−1, 1], by
at most 2tη, and f by 2tη·(1 + e^{ε'}) plus the error of e^{ε'}. Results are enclosures of the true numbers. The
exponential itself is a Taylor sum rounded down, and one rounded up, with its remainder.

**Monotone γ.** The multisets are C(K+7, 7), too many from K = 24 on (150 for Δ = 0). If g never falls, E[g] rises with
every p_i, so f rises with p_i and falls with p'_i, and every pair has one with no smaller p and no larger p' on the
chain (Δ,0) – (hi,lo) – (1,1−Δ) of corners: those, beside (0,0) and (1,1), are enough. This is used only where all
multisets are too many, and `Enclosure.family` says so.

**Voters that differ.** Voters of a kind are alike: multisets are taken kind by kind, never more corners of a kind than
it has voters. The argument for monotone γ is about one voter at a time, whatever the others satisfy. If a person
reaches all voters, none needs to sit at (0,0) or (1,1) where Δ > 0, because (Δ,0) and (1,1−Δ) cost no less.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from math import ceil, comb, lcm

MOST_WORK = 100_000_000  # about twenty seconds: K = 23, or 149 for Δ = 0
ALL, MONOTONE = "all multisets of corners", "the multisets of corners that are enough for a monotone γ"
_BITS = 128  # behind the point, of the corners
ONE = 1 << _BITS
_EXPONENTIAL_BITS, _TERMS = 320, 64

Laws = tuple[Sequence[int], Sequence[int]]  # of a label on both data sets, in one unit
_Pair = tuple[int, int]  # (p, p') in units of 2^-128
_Kind = tuple[int, int, list[_Pair]]  # voters that are alike, how many of them to place at least, and where


@dataclass(frozen=True)
class Enclosure:
    """A real number lies between ``lower`` and ``upper``."""

    lower: Fraction
    upper: Fraction
    family: str = ""  # which rows were looked at, for a worst cost


@dataclass(frozen=True)
class ReleaseNumbers:
    """The plain numbers of a released majority.

    ``half`` is γ(l) for l = floor(K/2) + 1 … K; ``each`` is (ε, Δ) of every voter, None where nothing is promised;
    ``reached`` is how many voters one person's data reach; ``own`` is how many voters satisfy which (ε, Δ) where they
    differ.
    """

    K: int
    each: tuple[Fraction, Fraction] | None
    reached: int
    half: tuple[Fraction, ...]
    own: tuple[tuple[int, tuple[Fraction, Fraction] | None], ...] | None = None

    @property
    def kinds(self) -> list[tuple[int, list[_Pair]]]:
        """How many voters have which corners other than (0,0) and (1,1), rounded."""
        if self.own is None:
            return [(self.K, _corners(self.each))]
        return [(voters, _corners(each)) for voters, each in self.own]

    @property
    def signed(self) -> list[Fraction]:
        """g(0) … g(K)."""
        middle = [Fraction(0)] if self.K % 2 == 0 else []
        return [-value for value in reversed(self.half)] + middle + list(self.half)

    @property
    def is_monotone(self) -> bool:
        """Whether g never falls."""
        return all(low <= high for low, high in pairwise(self.signed))


def exponential(x: Fraction) -> Enclosure:
    """Enclose e^x for x ≥ 0.

    With y = x/2^k ≤ 1/2 the terms after y^n/n! add up to no more than it; the sum is squared k times.

    >>> float(exponential(Fraction(1)).lower), exponential(Fraction(1)).upper - exponential(Fraction(1)).lower < 1e-80
    (2.718281828459045, True)
    """
    unit, halvings = 1 << _EXPONENTIAL_BITS, (2 * ceil(x)).bit_length()

    def end(divide: Callable[[int, int], int]) -> Fraction:
        y = divide(x.numerator * unit, x.denominator << halvings)
        total = term = unit
        for n in range(1, _TERMS + 1):
            term = divide(term * y, n * unit)
            total += term
        if divide is _up:
            total += term
        for _ in range(halvings):
            total = divide(total * total, unit)
        return Fraction(total, unit)

    return Enclosure(end(_down), end(_up))


def largest_sums(pairs: Iterable[Laws], epsilons: Sequence[Fraction]) -> list[tuple[int, int]]:
    """Find the largest Σ max(0, p − e^ε·q) of pairs of laws for each ε, in units of 2^-128, from below and above."""
    grown = [exponential(epsilon) for epsilon in epsilons]
    ratios = [(_up(*(one.upper * ONE).as_integer_ratio()), _rounded(one.lower)) for one in grown]
    worst = [[0, 0] for _ in epsilons]
    for p, q in pairs:
        for at, ends in enumerate(ratios):
            for end, ratio in enumerate(ends):
                total = sum(max(0, x * ONE - ratio * y) for x, y in zip(p, q, strict=True))
                worst[at][end] = max(worst[at][end], total)
    return [(low, high) for low, high in worst]


def budget(epsilon: Fraction, delta: Fraction) -> Enclosure:
    """Enclose e^ε − 1 + 2δ, what the cost may be."""
    ratio = exponential(epsilon)
    return Enclosure(ratio.lower - 1 + 2 * delta, ratio.upper - 1 + 2 * delta)


def worst_costs(numbers: ReleaseNumbers, epsilons: Sequence[Fraction]) -> list[Enclosure] | None:
    """Enclose the largest f for each ε', over every multiset of corners; None if they are too many.

    One voter who always tells the truth costs what the voter may: the release is (ε, 0)-private with equality.

    >>> numbers = ReleaseNumbers(1, (Fraction(1, 10), Fraction(0)), 1, (Fraction(1),))
    >>> (worst,) = worst_costs(numbers, [Fraction(1, 10)])
    >>> float(worst.lower), float(budget(Fraction(1, 10), Fraction(0)).lower)
    (0.10517091807564763, 0.10517091807564763)
    """
    kinds, family = [(voters, 0, corners) for voters, corners in numbers.kinds], ALL
    if _work(numbers, kinds) > MOST_WORK and numbers.is_monotone:
        family, whole = MONOTONE, numbers.reached == numbers.K
        rising = [(voters, [pair for pair in corners if pair[0] > pair[1]]) for voters, corners in numbers.kinds]
        # with Δ = 0 there is one corner, and (0,0) and (1,1) are not replaced
        kinds = [(voters, voters if whole and len(corners) > 1 else 0, corners) for voters, corners in rising]
    if _work(numbers, kinds) > MOST_WORK:
        return None
    scale = lcm(*(value.denominator for value in numbers.half))
    g = [int(value * scale) for value in numbers.signed]
    ratios = [exponential(epsilon) for epsilon in epsilons]
    rounded = [_rounded(ratio.lower) for ratio in ratios]
    largest: dict[tuple[int, int], int] = {}
    for placed, first, second in _states(kinds, numbers.reached, g):
        for index, ratio in enumerate(rounded):
            found = max((own << _BITS) - ratio * other for own, other in zip(first, second, strict=True))
            if found > largest.get((index, placed), found - 1):
                largest[index, placed] = found
    worst = []
    for index, exact_ratio in enumerate(ratios):
        highest = max(
            Fraction(value, scale << (_BITS * (placed + 1))) for (at, placed), value in largest.items() if at == index
        )
        error_of_ratio = exact_ratio.upper - exact_ratio.lower + Fraction(1, ONE)
        slack = Fraction(4 * numbers.reached, ONE) * (1 + exact_ratio.upper) + error_of_ratio
        worst.append(Enclosure(highest - slack, highest + slack, family))
    return worst


def divergences(numbers: ReleaseNumbers, epsilons: Sequence[Fraction]) -> list[Enclosure] | None:
    """Enclose the smallest δ with which the release is (ε, δ)-private: max(0, (1 − e^ε + max f)/2) for each ε."""
    found = worst_costs(numbers, epsilons)
    if found is None:
        return None
    ratios = [exponential(epsilon) for epsilon in epsilons]
    return [
        Enclosure(
            max(Fraction(0), (1 - ratio.upper + worst.lower) / 2), max(Fraction(0), (1 - ratio.lower + worst.upper) / 2)
        )
        for worst, ratio in zip(found, ratios, strict=True)
    ]


def worst_labels(numbers: ReleaseNumbers) -> Iterator[tuple[list[list[float]], list[list[float]]]] | None:
    """Yield the laws of the label on both data sets, for every multiset of corners; None if there are too many.

    A divergence that is jointly convex is largest at one of them: it is convex in each voter's pair.

    >>> one = ReleaseNumbers(1, None, 1, (Fraction(1, 2),))
    >>> [law for law in worst_labels(one) if law[0] != law[1]]
    [([[0.75, 0.25]], [[0.25, 0.75]]), ([[0.25, 0.75]], [[0.75, 0.25]])]
    """
    kinds = [(voters, 0, corners) for voters, corners in numbers.kinds]
    if _work(numbers, kinds) > MOST_WORK:
        return None
    scale = lcm(*(value.denominator for value in numbers.half))
    g = [int(value * scale) for value in numbers.signed]

    def laws(values: list[int], unit: int) -> list[list[float]]:
        return [[(unit - value) / (2 * unit), (unit + value) / (2 * unit)] for value in values]

    states = _states(kinds, numbers.reached, g)
    return ((laws(first, scale << (_BITS * n)), laws(second, scale << (_BITS * n))) for n, first, second in states)


def expected_error(K: int, half: Sequence[Fraction], p: Fraction | None) -> Fraction:
    """Compute ½ Σ_l w_l (1 − γ(l)), l > K/2, for K voters who answer 1 with probability p each.

    w_l = |Pr[L = l] − Pr[L = K − l]|. With p = None all voters share one p ~ U[0, 1]; then, as ∫ Pr[L = l] dp from 0 to
    1/2 is Pr[Bin(K+1, ½) > l]/(K+1), w_l = 2·(Pr[Bin(K+1, ½) ≤ l] − Pr[Bin(K+1, ½) > l])/(K+1).

    >>> expected_error(1, [Fraction(0)], None), expected_error(3, [Fraction(1), Fraction(0)], Fraction(3, 4))
    (Fraction(1, 4), Fraction(13, 64))
    """
    total = Fraction(0)
    for l, value in zip(range(K // 2 + 1, K + 1), half, strict=True):  # noqa: E741 (the paper's letter)
        if p is None:
            above = Fraction(sum(comb(K + 1, ones) for ones in range(l + 1, K + 2)), 2 ** (K + 1))
            weight = 2 * (1 - 2 * above) / (K + 1)
        else:
            weight = abs(comb(K, l) * (p**l * (1 - p) ** (K - l) - p ** (K - l) * (1 - p) ** l))
        total += weight * (1 - value) / 2
    return total


def _corners(each: tuple[Fraction, Fraction] | None) -> list[_Pair]:
    if each is None:
        return [(ONE, 0), (0, ONE)]
    epsilon, delta = each
    growth = exponential(epsilon).lower
    high = (growth + delta) / (growth + 1)
    hi, moved = _rounded(high), _rounded(delta)
    corners = [(hi, ONE - hi), (ONE - hi, hi)]
    if delta:
        corners += [(0, moved), (moved, 0), (ONE - moved, ONE), (ONE, ONE - moved)]
    return corners


def _states(kinds: list[_Kind], reached: int, g: list[int]) -> Iterator[tuple[int, list[int], list[int]]]:
    """Yield every multiset's size, and E_p[g(s + L)] and E_{p'}[g(s + L)] for all s in units of 2^(−128·size)."""
    if not kinds:
        yield 0, g, g
        return
    waiting = [(0, 0, 0, 0, g, g)]
    while waiting:
        kind, placed, of_kind, start, first, second = waiting.pop()
        voters, least, corners = kinds[kind]
        if of_kind >= least:
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


def _work(numbers: ReleaseNumbers, kinds: list[_Kind]) -> int:
    before, total = [1], 0
    for voters, least, corners in kinds:
        own = [comb(j + len(corners) - 1, j) for j in range(voters + 1)]  # also on the way to the least number
        ways = [0] * (min(numbers.reached, len(before) - 1 + voters) + 1)
        ended = [0] * len(ways)
        for placed, count in enumerate(before):
            for j, states in enumerate(own[: len(ways) - placed]):
                ways[placed + j] += count * states
                ended[placed + j] += count * states * (j >= least)
        total += sum(count * (numbers.K - placed + 1) for placed, count in enumerate(ways))
        before = ended
    return total * (20 + numbers.reached)


def _rounded(value: Fraction) -> int:
    return _down(value.numerator * ONE, value.denominator)


def _down(numerator: int, denominator: int) -> int:
    return numerator // denominator


def _up(numerator: int, denominator: int) -> int:
    return -(-numerator // denominator)
