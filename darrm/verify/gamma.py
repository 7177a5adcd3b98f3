"""Decide in whole numbers whether a noise function is private, with every rounding bounded.

A voter answers 1 with probability p on the data set and p' on its neighbor. (ε, Δ)-privacy confines (p, p') to a
polygon; with hi = (e^ε + Δ)/(e^ε + 1) and lo = 1 − hi its corners are

    (0,0)  (1,1)  (0,Δ)  (Δ,0)  (1−Δ,1)  (1,1−Δ)  (hi,lo)  (lo,hi),

and (0,0) (1,1) (1,0) (0,1) for voters without a guarantee. With c = e^ε' the release is (ε', δ')-private exactly if

    f = E_p[g(L)] − c·E_{p'}[g(L)]  ≤  c − 1 + 2δ'    for all pairs of all voters        [D, Lemma 3.4],

where L is the number of ones, g(l) = γ(l) above K/2, −γ(l) below and 0 at a tie. f is linear in each voter's pair, so
corners are enough [D, Lemma 5.1]; the K − t voters beyond the overlap t have p = p', so (0,0) or (1,1).

**Theorem 1 (two chains).** No row with voters at both (hi,lo) and (lo,hi) costs more than every row without such a
pair. *Proof.* hi + lo = 1, so the number x of ones among the two has one law under p and p'. Given x, the two act as
voters at (0,0) or (1,1), so f is the average over x of the costs of such rows. ∎ So a row has j voters at (hi,lo), or j
at (lo,hi), the others near 0 or 1. With T_j(s) = E[g(s + Bin(j, hi))], T_{j+1}(s) = lo·T_j(s) + hi·T_j(s+1), and, g odd
about K/2, E[g(s + Bin(j, lo))] = −T_j(K − j − s).

**Theorem 2 (voters near 0 and 1).** Let n of the N = t − j other voters of the overlap be near 1, and k of the K − t
voters beyond it at 1. Under p any a of the N − n may have Δ and any b of the n may have 1 − Δ, and independently under
p', as (Δ,Δ) is in the polygon. With V(n, k) the largest φ(a, b) = E[T_j(n + k + Bin(a, Δ) − Bin(b, Δ))] over a ≤ N − n,
b ≤ n, the largest cost is V(n, k) + c·V(N − n, K − t − k); for the other chain with −T_j. Second differences of φ in a
and b are Δ²·E[T_j''], so where T_j'' ≥ −M, φ exceeds a grid of steps u and v by at most Δ²M(u² + v²)/8; where T_j rises
or falls it is largest at a corner. The grid {0, N − n} × {0, n} is refined until the bound decides.

**Theorem 3 (monotone γ).** If g never falls, E[g] rises with every p_i, and every pair has one with no smaller p and no
larger p' on the chain (Δ,0) – (hi,lo) – (1,1−Δ): the first chain is enough, with a = N − n and b = 0.

**Different voters** are placed kind by kind: every multiset of corners is examined.

**Rounding.** Numbers are whole, in units of 2^-b. hi, Δ and c are rounded down: a voter's probability is off by at most
2^(1−b), each average and c by one unit. Weights of binomials are rounded down; as |g| ≤ 1,
the mass that they lack bounds the error. Results enclose the true numbers; tests compare them with exact fractions.

**Theorem 4 (optimality).** Let w_l be the weights of the expected error ½ Σ_l w_l (1 − γ(l)), and y_r ≥ 0 any
multipliers of rows a_r·γ ≤ B of voters at corners. With ρ_l = Σ_r y_r a_{r,l} − ½ w_l no private γ has an expected
error below

    ½ Σ_l w_l − B Σ_r y_r + G,      G = Σ_l min(0, ρ_l),      or, if γ never falls,  G = min(0, min_k Σ_{l≥k} ρ_l).

*Proof.* A private γ satisfies the rows, so its error is at least ½ Σ_l w_l (1 − γ(l)) + Σ_r y_r (a_r·γ − B). Either
every γ(l) is in [0, 1], or γ is a convex combination of 0 and of steps that are 1 from some k on. ∎ The bound is
computed in balls, from priors in exact fractions. Optimality for more classes is not judged.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache, lru_cache
from itertools import pairwise
from math import comb, lcm
from operator import mul
from typing import TypeVar

from flint import arb, arb_poly, ctx, fmpz_poly

from darrm.verify.formats import MALFORMED, Json, Table, parse_exact
from darrm.verify.verdicts import (
    BITS,
    FALSE,
    ONE,
    OPTIMALITY,
    PROVED,
    UNKNOWN,
    Interval,
    Laws,
    Point,
    Verdict,
    ball,
    decide,
    exponential,
    to_units,
)

MAX_WORK = 100_000_000  # operations: about twenty seconds
ALL, CHAINS, MONOTONE = (
    "all multisets of corners",
    "two chains of corners (theorems 1 and 2)",
    "the corners of a monotone γ (theorem 3)",
)
_FINE_BITS = 256  # bits behind the point along chains
_UNIT = 1 << _FINE_BITS
_MAX_EVALUATIONS = 200_000  # evaluations of refined grids
_TOLERANCE = _UNIT >> 56  # of an upper bound
_PRECISION_BITS, _ERROR_TOLERANCE = 320, 1e-12  # bits; absolute: the prover computes weights of priors in floats
_NO_PRIOR = "the file does not hold its prior, or its draws: the maker can show them"

_OpenRow = tuple[int, int, int, tuple[int, int, int]]  # a bound, j, the sign of T, and n + k, N − n and n
_Corner = TypeVar("_Corner")
_State = TypeVar("_State")


@dataclass(frozen=True)
class Gamma:
    """A noise function, γ(l) for l = ⌊K/2⌋ + 1 … K, and its voters."""

    K: int
    half: tuple[Fraction, ...]
    kinds: tuple[tuple[int, Point | None], ...]
    reached: int

    @property
    def signed(self) -> list[Fraction]:
        middle = [Fraction(0)] if self.K % 2 == 0 else []
        return [-value for value in reversed(self.half)] + middle + list(self.half)

    @property
    def is_monotone(self) -> bool:
        return all(low <= high for low, high in pairwise(self.signed))


def budget(epsilon: Fraction, delta: Fraction) -> Interval[Fraction]:
    ratio = exponential(epsilon)
    return Interval(ratio.lower - 1 + 2 * delta, ratio.upper - 1 + 2 * delta)


def worst_costs(gamma: Gamma, epsilons: Sequence[Fraction]) -> list[Interval[Fraction]] | None:
    """Enclose the largest f for each ε'; None if there are too many rows.

    >>> gamma = Gamma(1, (Fraction(1),), ((1, (Fraction(1, 10), Fraction(0))),), 1)
    >>> (worst,) = worst_costs(gamma, [Fraction(1, 10)])
    >>> float(worst.lower), float(budget(Fraction(1, 10), Fraction(0)).lower)
    (0.10517091807564763, 0.10517091807564763)
    """
    ratios = [exponential(epsilon) for epsilon in epsilons]
    return _Chains(gamma).enclose_worst(ratios) if len(gamma.kinds) == 1 else _enumerate_corners(gamma, ratios)


def enclose_deltas(gamma: Gamma, epsilons: Sequence[Fraction]) -> list[Interval[Fraction]] | None:
    """Enclose the smallest δ, max(0, (1 − e^ε + max f)/2), for each ε."""
    costs = worst_costs(gamma, epsilons)
    if costs is None:
        return None
    zero = Fraction(0)
    return [
        Interval(max(zero, (1 - c.upper + worst.lower) / 2), max(zero, (1 - c.lower + worst.upper) / 2), worst.rows)
        for worst, c in zip(costs, map(exponential, epsilons), strict=True)
    ]


class _Chains:
    """The rows of theorems 1 to 3 for equal voters, in units of 2^-256."""

    def __init__(self, gamma: Gamma) -> None:
        self.K, self.reached, self.is_monotone = gamma.K, gamma.reached, gamma.is_monotone
        self.g = [to_units(value, _FINE_BITS) for value in gamma.signed]
        self.hi, self.delta = _UNIT, 0
        if (pair := gamma.kinds[0][1]) is not None:
            growth = exponential(pair[0]).lower
            self.hi, self.delta = to_units((growth + pair[1]) / (growth + 1), _FINE_BITS), to_units(pair[1], _FINE_BITS)
        self._binomials: dict[int, list[int]] = {0: [_UNIT]}
        self._missing_mass = 0  # the largest mass that a product of binomials lacks
        self._zero_weights = [_UNIT]  # (1 − Δ)^n, rounded down
        for _ in range(gamma.reached):
            self._zero_weights.append(self._zero_weights[-1] * (_UNIT - self.delta) >> _FINE_BITS)
        self._remaining_evaluations = _MAX_EVALUATIONS

    def enclose_worst(self, ratios: Sequence[Interval[Fraction]]) -> list[Interval[Fraction]] | None:
        terms = len(self._compute_binomial(self.reached)) if self.delta else 1
        rows = (self.K - self.reached + 1) * (self.reached + 1) * (self.reached + 2) // 2
        is_free = bool(self.delta) and not self.is_monotone
        if rows * (len(ratios) + ((4 + terms) * terms if is_free else 2 * terms)) > MAX_WORK:
            return None
        factors = [to_units(ratio.lower, _FINE_BITS) for ratio in ratios]
        attained, open_rows = [-_UNIT << 2] * len(ratios), [list[_OpenRow]() for _ in ratios]
        for j, T in self._list_levels():
            self._bound_level(j, T, factors, attained, open_rows)
        result = []
        for ratio, factor, best, ratio_rows in zip(ratios, factors, attained, open_rows, strict=True):
            lower, upper = self._refine(factor, best, ratio_rows)
            error = self.K * 8 + (2 + self.K * self.K) * self._missing_mass + 8  # of one expectation, in units
            slack = (2 + factor // _UNIT) * error + 2 * to_units(ratio.upper - ratio.lower, _FINE_BITS, up=True) + 4
            rows_examined = MONOTONE if self.is_monotone else CHAINS
            result.append(Interval(Fraction(lower - slack, _UNIT), Fraction(upper + slack, _UNIT), rows_examined))
        return result

    def _list_levels(self) -> Iterator[tuple[int, list[int]]]:
        T, lo = self.g, _UNIT - self.hi
        for j in range(self.reached + 1):
            yield j, T
            T = [(lo * low + self.hi * high) >> _FINE_BITS for low, high in pairwise(T)]

    def _bound_level(
        self, j: int, T: list[int], factors: list[int], attained: list[int], open_rows: list[list[_OpenRow]]
    ) -> None:
        """Raise the attained costs by voters at the corners of each grid; list the rows that may cost more."""
        N = self.reached - j if self.delta else 0  # voters near 0 or 1; all others are certain
        places = [(n + k, N - n, n) for n in range(N + 1) for k in range(len(T) - N)]
        means = [[value] for value in T]
        if N and self.is_monotone:
            means = [[self._compute_mean(T, start, a, 0)] for start, a, _ in places]
        elif N:
            means = [[self._compute_mean(T, start, x, y) for x in {0, a} for y in {0, b}] for start, a, b in places]
        for sign in (1,) if self.is_monotone else (1, -1):
            values, bend = [max(sign * mean for mean in ends) for ends in means], _bound_bend([sign * t for t in T])
            excesses = (
                [self._bound_excess(bend, a, b) for _, a, b in places] if N and bend and not self.is_monotone else []
            )
            for index, factor in enumerate(factors):
                # (N − n, K − t − k) is the reversed place
                costs = [V + (factor * W >> _FINE_BITS) for V, W in zip(values, values[::-1], strict=True)]
                attained[index] = max(attained[index], *costs)
                for place, cost, excess, reverse in zip(places, costs, excesses, excesses[::-1], strict=False):
                    bound = cost + excess + (factor * reverse >> _FINE_BITS) + 2
                    if bound > attained[index]:
                        open_rows[index].append((bound, j, sign, place))

    def _bound_excess(self, curvature: int, u: int, v: int) -> int:
        """Bound φ beyond its largest value on a grid of steps u and v."""
        steps = u * u * int(u > 1) + v * v * int(v > 1)
        return ((self.delta * self.delta >> _FINE_BITS) * curvature * steps // 8 >> _FINE_BITS) + 1 if steps else 0

    def _compute_mean(self, T: list[int], start: int, a: int, b: int) -> int:
        """Compute E[T(start + Bin(a, Δ) − Bin(b, Δ))], up to the missing mass."""
        up, down = self._compute_binomial(a), self._compute_binomial(b)
        if len(down) == 1:
            return _dot_product(up, T[start : start + len(up)])
        if len(up) == 1:
            return _dot_product(down, T[start::-1])
        return _dot_product(down, (_dot_product(up, T[start - i : start - i + len(up)]) for i in range(len(down))))

    def _refine(self, factor: int, attained: int, open_rows: list[_OpenRow]) -> tuple[int, int]:
        """Enclose the largest cost: refine rows, those that may cost most first."""
        self._remaining_evaluations, highest = _MAX_EVALUATIONS, attained
        open_rows = sorted((row for row in open_rows if row[0] > attained + _TOLERANCE), reverse=True)
        levels = dict(self._list_levels()) if open_rows else {}
        for row_bound, j, sign, (start, near_zero, near_one) in open_rows:
            if row_bound <= attained + _TOLERANCE:
                break
            T = [sign * value for value in levels[j]]
            cost, bound = self._find_largest_mean(T, start, near_zero, near_one)
            reverse = self._find_largest_mean(T, len(T) - 1 - start, near_one, near_zero)
            attained = max(attained, cost + (factor * reverse[0] >> _FINE_BITS))
            highest = max(highest, bound + (factor * reverse[1] >> _FINE_BITS) + 2)
        return attained, max(attained, highest)

    def _find_largest_mean(self, T: list[int], start: int, near_zero: int, near_one: int) -> tuple[int, int]:
        @cache
        def value(a: int, b: int) -> int:
            self._remaining_evaluations -= 1
            return self._compute_mean(T, start, a, b)

        cells, curvature = [(0, near_zero, 0, near_one)], _bound_bend(T)
        best = bound = max(value(a, b) for a in {0, near_zero} for b in {0, near_one})
        while cells:
            low, high, first, last = cells.pop()
            corners = [value(a, b) for a in {low, high} for b in {first, last}]
            best = max(best, *corners)
            cell_bound = max(corners) + self._bound_excess(curvature, high - low, last - first)
            if cell_bound <= best + _TOLERANCE // 8 or self._remaining_evaluations <= 0:
                bound = max(bound, cell_bound)
            elif high - low >= last - first:
                middle = (low + high) // 2
                cells += [(low, middle, first, last), (middle, high, first, last)]
            else:
                middle = (first + last) // 2
                cells += [(low, high, first, middle), (low, high, middle, last)]
        return best, max(best, bound)

    def _compute_binomial(self, n: int) -> list[int]:
        """Compute Pr[Bin(n, Δ) = i], rounded down, until the tail is negligible."""
        if n not in self._binomials:
            weights = [self._zero_weights[n]]
            tail = _UNIT - weights[0]
            for i in range(n):
                weights.append(weights[-1] * (n - i) * self.delta // ((i + 1) * (_UNIT - self.delta)))
                tail -= weights[-1]
                if tail >> (_FINE_BITS - 128) == 0:  # a binomial is cut off at a tail below 2^-128
                    break
            self._binomials[n] = weights
            self._missing_mass = max(self._missing_mass, 2 * tail)
        return self._binomials[n]


def _dot_product(weights: list[int], values: Iterable[int]) -> int:
    total: int = sum(map(mul, weights, values))
    return total >> _FINE_BITS


def _bound_bend(T: list[int]) -> int:
    """Return M of theorem 2; 0 if T is monotone, as corners then have the largest mean."""
    slopes = [next_value - value for value, next_value in pairwise(T)] or [0]
    is_monotone = min(slopes) >= 0 or max(slopes) <= 0
    return 0 if is_monotone else max(0, *(value - next_value for value, next_value in pairwise(slopes)))


def place_voters(
    kinds: Sequence[tuple[int, Sequence[tuple[_Corner, _Corner]]]],
    reached: int,
    values: _State,
    average: Callable[[_State, _Corner], _State],
) -> Iterator[tuple[int, _State, _State]]:
    """Yield every multiset of at most ``reached`` voters at corners: its size, and the averages on both data sets."""
    stack = [(0, 0, 0, 0, values, values)]
    while stack:
        kind, placed, placed_of_kind, start, first, second = stack.pop()
        voters, corners = kinds[kind]
        if kind + 1 == len(kinds):
            yield placed, first, second
        else:
            stack.append((kind + 1, placed, 0, 0, first, second))
        if placed < reached and placed_of_kind < voters:
            stack += [
                (kind, placed + 1, placed_of_kind + 1, index, average(first, p), average(second, p_prime))
                for index, (p, p_prime) in enumerate(corners[start:], start)
            ]


def _enumerate_corners(gamma: Gamma, ratios: Sequence[Interval[Fraction]]) -> list[Interval[Fraction]] | None:
    if (expectations := _list_expectations(gamma)) is None:
        return None
    factors, worst = [to_units(ratio.lower) for ratio in ratios], list[Interval[Fraction]]()
    unit, states = expectations
    largest = [-4 * unit * ONE] * len(ratios)
    for first, second in states:
        for index, factor in enumerate(factors):
            cost = max((x << BITS) - factor * y for x, y in zip(first, second, strict=True))
            largest[index] = max(largest[index], cost)
    for ratio, cost in zip(ratios, largest, strict=True):
        slack = Fraction(4 * gamma.reached, ONE) * (1 + ratio.upper) + ratio.upper - ratio.lower + Fraction(1, ONE)
        worst.append(Interval(Fraction(cost, unit * ONE) - slack, Fraction(cost, unit * ONE) + slack, ALL))
    return worst


def list_label_laws(gamma: Gamma) -> tuple[Iterator[Laws], int] | None:
    """List laws at all multisets of corners, which maximize jointly convex divergences, and their unit."""
    if (expectations := _list_expectations(gamma)) is None:
        return None
    unit, states = expectations
    pairs = (pair for first, second in states for pair in zip(first, second, strict=True))
    return (((unit - x, unit + x), (unit - y, unit + y)) for x, y in pairs), 2 * unit


@lru_cache(maxsize=64)
def _list_corners(guarantee: Point | None) -> list[tuple[int, int]]:
    if guarantee is None:
        return [(ONE, 0), (0, ONE)]
    epsilon, delta = guarantee
    growth = exponential(epsilon).lower
    hi, moved = to_units((growth + delta) / (growth + 1)), to_units(delta)
    corners = [(hi, ONE - hi), (ONE - hi, hi)]
    if delta:
        corners += [(0, moved), (moved, 0), (ONE - moved, ONE), (ONE, ONE - moved)]
    return corners


def _list_expectations(gamma: Gamma) -> tuple[int, Iterator[tuple[list[int], list[int]]]] | None:
    """Return a unit and, for all multisets of corners, E[g(s + L)] on both data sets in this unit."""
    kinds, t = [(count, _list_corners(guarantee)) for count, guarantee in gamma.kinds], gamma.reached
    counts = [1]  # by the number of placed voters
    for voters, corners in kinds:
        corner_counts = [comb(j + len(corners) - 1, j) for j in range(min(voters, t) + 1)]
        counts = [int(number) for number in (fmpz_poly(counts) * fmpz_poly(corner_counts)).coeffs()[: t + 1]]
    if sum(count * (gamma.K - n + 1) for n, count in enumerate(counts)) * (20 + t) > MAX_WORK:
        return None
    scale = lcm(*(value.denominator for value in gamma.half))

    def average(values: list[int], p: int) -> list[int]:
        return [(ONE - p) * low + p * high for low, high in pairwise(values)]

    def states() -> Iterator[tuple[list[int], list[int]]]:
        for n, *vectors in place_voters(kinds, t, [int(value * scale) for value in gamma.signed], average):
            first, second = ([value << BITS * (t - n) for value in values] for values in vectors)
            yield first, second

    return scale << (BITS * t), states()


def judge_optimality(table: Table, gamma: Gamma) -> Iterator[Verdict]:
    claims = table.optimality
    if claims is None:
        return
    if claims["shape"] == "monotone" and not gamma.is_monotone:
        yield Verdict(OPTIMALITY, "γ never falls", FALSE, "it falls somewhere")
        return
    claim = f"the expected error is {claims['value']!r}"
    kind = "γ that never falls" if claims["shape"] == "monotone" else "γ"
    bound_claim = f"no private {kind} has a smaller expected error than {claims['bound']!r}"
    try:
        weights = compute_error_weights(gamma.K, claims["prior"]) if claims["held_out"] is None else None
    except (ValueError, *MALFORMED) as error:
        yield Verdict(OPTIMALITY, claim, FALSE, f"its prior is malformed ({type(error).__name__}: {error})")
        return
    if weights is None:
        yield from (Verdict(OPTIMALITY, text, UNKNOWN, _NO_PRIOR) for text in (claim, bound_claim))
        return
    value = float(sum(w * (1 - gamma_value) for w, gamma_value in zip(weights, gamma.half, strict=True)) / 2)
    is_close = abs(claims["value"] - value) <= _ERROR_TOLERANCE
    yield decide(OPTIMALITY, claim, f"it is {value!r}", holds=is_close, how=PROVED)
    yield Verdict(OPTIMALITY, bound_claim, *_judge_bound(table, claims, weights, value))


def _judge_bound(table: Table, claims: Mapping[str, Json], weights: list[Fraction], value: float) -> tuple[str, str]:
    if claims["bound"] - value > _ERROR_TOLERANCE:
        return FALSE, "the law in the file is private and better"
    rows, K = claims["multipliers"], table.voters.K
    if rows is None:
        return UNKNOWN, "the file holds no multipliers, which would prove it"
    try:
        if len(rows) * K * K > 240_000_000:  # numbers: about twenty seconds
            return UNKNOWN, f"K = {K:,} is beyond the independent checker; the prover can load the table again"
        with ctx.workprec(_PRECISION_BITS):
            proved_bound = _bound_error(table, rows, weights, is_free=claims["shape"] == "free")
    except (ValueError, *MALFORMED) as error:
        return FALSE, f"its multipliers are malformed ({type(error).__name__}: {error})"
    if claims["bound"] - proved_bound <= _ERROR_TOLERANCE:
        return PROVED, f"the multipliers in the file prove {proved_bound!r}"
    return UNKNOWN, f"the multipliers in the file prove {proved_bound!r} only; stronger ones would decide"


def compute_error_weights(K: int, prior: Mapping[str, str]) -> list[Fraction] | None:
    """Compute w_l = E|Pr[L = l] − Pr[L = K − l]|, l > K/2; None for a prior under which that is not rational.

    Independent votes with mean p ≥ 1/2 are binomial. If all voters share one p ~ U[0, 1], then, as ∫ Pr[L = l] dp from
    0 to 1/2 is Pr[Bin(K+1, ½) > l]/(K+1), w_l = 2·(Pr[Bin(K+1, ½) ≤ l] − Pr[Bin(K+1, ½) > l])/(K+1).
    `ValueError` or `KeyError` for a malformed prior.

    >>> compute_error_weights(1, {"kind": "dirichlet", "concentration": "1"})
    [Fraction(1, 2)]
    """
    kind, levels = prior["kind"], range(K // 2 + 1, K + 1)
    if kind == "dirichlet" and parse_exact(prior["concentration"]) == 1:
        tails = [Fraction(sum(comb(K + 1, ones) for ones in range(level + 1, K + 2)), 2 ** (K + 1)) for level in levels]
        return [2 * (1 - 2 * tail) / (K + 1) for tail in tails]
    if kind not in {"point", "uniform"}:
        return None
    low, high = (parse_exact(prior[name]) for name in (("p", "p") if kind == "point" else ("low", "high")))
    if not low <= high <= 1:
        raise ValueError(f"it is no range within [0, 1]: {float(low):g} to {float(high):g}")
    if kind == "uniform" and low < Fraction(1, 2):
        return None
    p = (low + high) / 2
    return [comb(K, n) * abs(p**n * (1 - p) ** (K - n) - p ** (K - n) * (1 - p) ** n) for n in levels]


def _bound_error(table: Table, rows: Json, weights: list[Fraction], *, is_free: bool) -> float:
    voters, (epsilon, delta) = table.voters, table.target
    c, K = ball(epsilon).exp(), voters.K
    if len(rows) > K or any(row[0] < 0 for row in rows):
        raise ValueError("they are more than K, or negative")
    if voters.sampled is not None:  # the target of a person who certainly takes part
        c, delta = 1 + (c - 1) / ball(voters.sampled.rate), min(delta / voters.sampled.rate, Fraction(1))
    law = [arb(0)] * (K + 1)
    for y, *counts in rows:
        kinds = [counts] if len(voters.kinds) == 1 else counts
        law = [sum(term, arb(0)) for term in zip(law, *_compute_row_laws(table, kinds, arb(y), c), strict=True)]
    half_weights = [ball(w) / 2 for w in weights]
    levels = range(K // 2 + 1, K + 1)
    reduced = [law[ones] - law[K - ones] - w for ones, w in zip(levels, half_weights, strict=True)]
    best_gain = tail = arb(0)
    for term in reversed(reduced):
        tail += term
        best_gain = best_gain + term.min(0) if is_free else best_gain.min(tail)
    total = sum((arb(y) for y, *_ in rows), arb(0))
    bound = sum(half_weights, arb(0)) - (c - 1 + 2 * ball(delta)) * total + best_gain
    return max(0.0, float(bound.lower()))


def _compute_row_laws(table: Table, kinds: list[list[int]], y: arb, c: arb) -> list[list[arb]]:
    """Compute y·(law of L under p) and y·c·(law of L under 1 − p')."""
    changed, sides = 0, [arb_poly([y]), arb_poly([y * c])]
    for counts, (voters, guarantee) in zip(kinds, table.voters.kinds, strict=True):
        high, low, ones, *near_counts = counts + [0] * (7 - len(counts))
        zeros = voters - high - low - ones
        up, down, up_prime, down_prime = near_counts
        hi, delta = arb(1), arb(0)
        if guarantee is not None:
            growth, delta = ball(guarantee[0]).exp(), ball(guarantee[1])
            hi = (growth + delta) / (growth + 1)
        if min(high, low, ones, zeros, *near_counts) < 0 or max(up, up_prime) > zeros or max(down, down_prime) > ones:
            raise ValueError("a row has other voters")
        changed += high + low + abs(up - up_prime) + abs(down - down_prime)
        places = ((up, down, ones - down), (down_prime, up_prime, zeros - up_prime))
        for side, (rising, falling, certain) in enumerate(places):
            for n, p in ((high, hi), (low, 1 - hi), (rising, delta), (falling, 1 - delta), (certain, arb(1))):
                sides[side] *= arb_poly([1 - p, p]) ** n
    if changed > table.voters.reached:
        raise ValueError("a row changes more voters than a person reaches")
    return [[side[ones_count] for ones_count in range(table.voters.K + 1)] for side in sides]
