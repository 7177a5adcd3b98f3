"""Compute the cost of one query from its release, and judge the claims about it.

A `Cost` encloses the smallest δ for each ε, and the Rényi divergence at an order. For a table that is too large, or
noise that is too wide, it returns None, and the claim is *unknown*.

**Laws on histograms.** For each partition of K votes into C counts (the largest first) and each count n in it, the file
holds the probability, in units of 2^-53, that a class with n votes is the answer; such classes share it equally. This
law h is (ε, δ)-private exactly if Σ_c max(0, h_c(n) − e^ε·h_c(n')) ≤ δ for all histograms with Σ_c |n_c − n'_c| ≤ 2t.
As h treats classes alike, n may be a partition. Multiplied by lcm(1 … C), all numbers are whole; only e^ε is rounded.

For open-set answers a list omits n = 0, and ends with the probability of no answer. A neighbor n' may have votes for t
strings that have none in n. A string without votes is never the answer: h_c = 0 if n_c = 0.

Private voters are at corners: a voter answers a or b with probabilities (hi, lo) on one data set and (lo, hi) on the
other; with probability Δ it answers u on the one and v on the other instead. Every multiset of at most t such voters is
examined; all other voters always answer alike. hi and Δ are rounded down, and the error is bounded.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from itertools import permutations, product
from math import comb, lcm, prod

from darrm.verify import gamma, mechanisms
from darrm.verify.formats import GAMMA, OPEN, OPEN_TABLE, WEIGHT_ONE, Answering, Charge, Mechanism, Run, Table, Voters
from darrm.verify.gamma import Gamma, place_voters
from darrm.verify.verdicts import (
    ASSUMED,
    COST,
    FALSE,
    ONE,
    PROVED,
    UNKNOWN,
    Interval,
    Laws,
    Point,
    TooLargeError,
    Verdict,
    bound_largest_sums,
    decide,
    exponential,
    format_bound,
    format_pair,
    to_units,
)

_MIN_COST = 1e-150  # of a cost: squares of less underflow
_RELATIVE_TOLERANCE = 2e-9  # relative: floats on either side
# points of a profile, orders of a curve: a second each for wide noise
_CHECKED_POINTS, _CHECKED_ORDERS = 3, (4.0, 16.0, 64.0)


@dataclass(frozen=True, eq=False)
class Cost:
    answering: Answering
    reached: int | None = None  # the overlap, if voters count as non-private

    @property
    def voters(self) -> Voters:
        released = self.answering.voters
        return released if self.reached is None else released.without_guarantee(self.reached)

    def without_guarantee(self, reached: int) -> "Cost":
        if isinstance(self.answering, Mechanism):  # its cost holds for all votes
            if reached > self.answering.reached:
                raise ValueError(f"a person moves {self.answering.reached} votes at most, and reaches {reached}")
            return self
        return Cost(self.answering, reached)

    def deltas(
        self, epsilons: Sequence[Fraction], goal: Sequence[float] = (), *, is_reversed: bool = False
    ) -> list[Interval[Fraction]] | None:
        """Enclose the smallest δ for each ε, no closer than ``goal``; ``is_reversed``: of the other direction."""
        if isinstance(self.answering, Run):
            return None
        sampling = self.voters.sampled
        if sampling is None:
            return self._enclose_certain_deltas(epsilons, goal)
        return mechanisms.enclose_sampled_deltas(
            self._enclose_certain_deltas, sampling, epsilons, goal, is_reversed=is_reversed
        )

    def renyi(self, order: float, goal: float = 0.0) -> Interval[float] | None:
        if isinstance(self.answering, Run):
            return None
        if isinstance(self.answering, Mechanism):
            return mechanisms.enclose_renyi(self.answering, order, goal)
        return _enclose_renyi(self.answering, self.voters, order)

    @property
    def is_close(self) -> bool:
        """Whether bounds are nearly attained; for noise against several moved votes they may be loose."""
        return not isinstance(self.answering, Mechanism) or self.answering.reached == 1

    def proves(self, charge: Charge) -> bool:
        if charge.guarantee is None:
            return True
        return not isinstance(self.answering, Run) and _judge_guarantee(self, charge.guarantee).verdict == PROVED

    @property
    def gamma(self) -> Gamma:
        assert isinstance(self.answering, Table)  # noqa: S101 (for the types)
        return _make_gamma(self.answering, self.voters)

    def _enclose_certain_deltas(
        self, epsilons: Sequence[Fraction], goal: Sequence[float]
    ) -> list[Interval[Fraction]] | None:
        if isinstance(self.answering, Mechanism):
            return mechanisms.enclose_certain_deltas(self.answering, epsilons, goal)
        assert isinstance(self.answering, Table)  # noqa: S101 (a run has no δ of one query)
        return _enclose_deltas(self.answering, self.voters, tuple(epsilons))


def _make_gamma(table: Table, voters: Voters) -> Gamma:
    return Gamma(voters.K, table.law, voters.kinds, voters.reached)


@lru_cache(maxsize=64)  # a ledger and a plan ask for the same points
def _enclose_deltas(table: Table, voters: Voters, epsilons: tuple[Fraction, ...]) -> list[Interval[Fraction]] | None:
    if table.format == GAMMA:
        return gamma.enclose_deltas(_make_gamma(table, voters), epsilons)
    if voters.are_private:
        return enclose_private_voters(table, epsilons)
    return enclose_differences(table, epsilons, voters.reached)


@lru_cache(maxsize=64)
def _enclose_renyi(table: Table, voters: Voters, order: float) -> Interval[float] | None:
    sampling, laws = voters.sampled, _list_label_laws(table, voters)
    if laws is None:
        return None
    if sampling is None or sampling.is_directed:
        return mechanisms.renyi_of_laws(*laws, order, 1.0 if sampling is None else float(sampling.rate))
    return mechanisms.bound_by_convexity(mechanisms.renyi_of_laws(*laws, order), sampling, order)


def _list_label_laws(table: Table, voters: Voters) -> tuple[Iterator[Laws], int] | None:
    """Return the laws of a label on all neighbors that may cost most, and their unit; None if they are too many."""
    K, reached = voters.K, voters.reached
    if table.format == GAMMA and voters.sampled is None:
        return gamma.list_label_laws(_make_gamma(table, voters))
    if table.format == GAMMA:
        if (K + 1) * (2 * reached + 1) > MAX_PAIRS:
            return None
        unit = lcm(*(value.denominator for value in table.law))
        law = [(unit - x, unit + x) for x in (int(value * unit) for value in _make_gamma(table, voters).signed)]
        return (
            (law[ones], law[neighbor_ones]) for ones, neighbor_ones in mechanisms.list_pairs_of_ones(K, reached)
        ), 2 * unit
    if voters.are_private or count_pairs(table, reached) * _count_places(table, reached) > MAX_WORK:
        return None
    return list_law_pairs(table, reached), find_unit(table) * WEIGHT_ONE


def is_subsampled(sample: tuple[int, float] | None, cost: Cost | None) -> bool:
    """Whether a label is nearly a small sample's majority, mixed with a coin; trust the ledger without a release."""
    if sample is None:
        return False
    if cost is None:
        return True
    if not isinstance(cost.answering, Table) or cost.answering.format != GAMMA:
        return False
    (n, distance), noise_function = sample, cost.gamma
    K, half = noise_function.K, noise_function.half
    for ones, value in zip(range(K // 2 + 1, K + 1), half, strict=True):
        counts = [comb(ones, hits) * comb(K - ones, n - hits) for hits in range(n + 1)]
        lead = Fraction(sum(counts[n // 2 + 1 :]) - sum(counts[: -(-n // 2)]), comb(K, n))
        if abs(value - half[-1] * lead) > 2 * Fraction(distance):
            return False
    return True


def judge_release(cost: Cost) -> Iterator[Verdict]:
    answering = cost.answering
    if isinstance(answering, Table):
        (epsilon, delta), sampling = answering.target, answering.voters.sampled
        claim = f"one label is {format_pair(epsilon, delta)}-DP"
        claim += "" if sampling is None else f" for neighbors that {sampling.neighbors}"
        yield _judge_pair(claim, cost, answering.target)
        if sampling is None:
            worst, allowed = cost.deltas([epsilon]), Interval(delta, delta)
            if answering.format == GAMMA:
                worst, allowed = gamma.worst_costs(cost.gamma, [epsilon]), gamma.budget(epsilon, delta)
            stored = [Fraction(float(answering.certificate[name])) for name in ("worst_cost", "budget")]
            if worst is not None:
                claim = f"no pair of neighbors costs more than {float(stored[0])!r}"
                reason = f"the largest cost is at least {float(worst[0].lower)!r}"
                yield decide(COST, claim, reason, holds=stored[0] >= worst[0].lower, how=PROVED)
            claim = f"the budget of a label is at least {float(stored[1])!r}"
            reason = f"it is {float(allowed.lower)!r}"
            yield decide(COST, claim, reason, holds=stored[1] <= allowed.upper, how=PROVED)
    elif isinstance(answering, Run):
        claim = f"test and labels together are {format_pair(*answering.budget)}-DP"
        reason = "the costs of its levels are beyond the independent checker; the prover can load the run again"
        yield Verdict(COST, claim, UNKNOWN, reason)
    yield from list_assumptions(answering.voters)


def _judge_pair(claim: str, cost: Cost, pair: Point, tolerance: Fraction = Fraction(0)) -> Verdict:
    """Judge (ε, δ) up to a relative ``tolerance`` of δ."""
    deltas = cost.deltas([pair[0]])
    if deltas is None:
        reason = f"K = {cost.voters.K:,} is beyond the independent checker; `darrm certify` proves it again"
        return Verdict(COST, claim, UNKNOWN, reason)
    (delta,) = deltas
    if delta.lower > pair[1]:
        return Verdict(COST, claim, FALSE, f"a δ of {format_bound(delta.lower, 9)} is attained")
    if delta.upper > pair[1] * (1 + tolerance):
        return Verdict(COST, claim, UNKNOWN, "it is closer to δ than the enclosure is wide: prove a larger δ")
    return Verdict(COST, claim, PROVED, f"whole numbers over {delta.rows} need δ = {format_bound(delta.upper, 9)}")


def list_assumptions(voters: Voters) -> Iterator[Verdict]:
    claims = list[str]()
    for count, guarantee in voters.kinds:
        if guarantee is not None:
            whose = "each voter is" if count == voters.K else f"{count} of {voters.K} voters are"
            claims.append(f"{whose} {format_pair(*guarantee)}-DP")
    if voters.reached < voters.K:
        claims.append(f"one person's data influence at most {voters.reached:,} of the {voters.K:,} voters")
    if (sampling := voters.sampled) is not None:
        scheme = "each record is" if sampling.is_directed else "a fixed number of records is"
        claims.append(f"{scheme} drawn with probability {float(sampling.record_rate):g} for each query, independently")
    elif voters.are_private:
        models = "voters are models, trained once, with independent randomness"
        claims.append(models if voters.models else "fresh randomness for every query")
    return (Verdict(COST, claim, ASSUMED, "no file can show this") for claim in claims)


def judge_charge(cost: Cost, charge: Charge) -> Iterator[Verdict]:
    answering = cost.answering
    if charge.sampled != answering.voters.sampled or charge.labels != answering.labels:
        claim, reason = "its ledger states how records are drawn", "the release draws them otherwise"
        yield Verdict(COST, claim, FALSE, reason)
        return
    if isinstance(answering, Run):
        claim = f"one query costs {format_pair(*(charge.guarantee or (0, 0)))}"
        reason = f"the budget of the run is {format_pair(*answering.budget)}"
        yield decide(COST, claim, reason, holds=charge.guarantee == answering.budget)
        return
    if isinstance(answering, Mechanism) and answering.threshold is not None:
        bound = mechanisms.enclose_vanishing(answering, answering.threshold)
        claim = (
            "a string that one person alone says is an answer with probability at most "
            f"{format_bound(charge.vanishing)}"
        )
        bounds = [None if bound is None else Interval(bound.lower * (1.0 - _RELATIVE_TOLERANCE), bound.upper)]
        yield _compare(claim, [charge.vanishing], bounds)
    if charge.guarantee is not None:
        yield _judge_guarantee(cost, charge.guarantee)
    yield from _judge_curve(cost, charge)
    for side, name in enumerate(("the privacy profile", "the profile of the other direction"), 1):
        if side < len(charge.profile or ()):
            points = charge.points(side)
            places = sorted(
                {(len(points) - 1) * place // (_CHECKED_POINTS + 1) for place in range(1, _CHECKED_POINTS + 1)}
            )
            stored = [float(points[place][1]) for place in places]
            deltas = cost.deltas([points[place][0] for place in places], stored, is_reversed=side == 2)
            bounds_of_points: list[Interval[float] | None] = [None] * len(places)
            if deltas is not None:
                bounds_of_points = [Interval(float(delta.lower), float(delta.upper)) for delta in deltas]
            extent = f"{len(places)} of {len(points)} points"
            yield _compare(f"{name} of a query is at least what it costs, at {extent}", stored, bounds_of_points)
    for reached, plain in charge.plain:
        yield from judge_charge(cost.without_guarantee(reached), plain)


def _judge_curve(cost: Cost, charge: Charge) -> Iterator[Verdict]:
    finite = {order: value for order, value in zip(charge.orders, charge.divergences, strict=True) if value < math.inf}
    if not finite:
        return
    orders = sorted({max(x for x in finite if x <= limit) for limit in _CHECKED_ORDERS if min(finite) <= limit})
    curve, bounds = [finite[order] for order in orders], list[Interval[float]]()
    for order, value in zip(orders, curve, strict=True):
        if (bound := cost.renyi(order, value)) is None:
            break  # the first order that takes too long ends the computation
        bounds.append(bound)
    order_list = ", ".join(f"{order:g}" for order in orders[: len(bounds) or None])
    claim = f"the Rényi curve of a query is at least what it costs, at orders {order_list}"
    yield _compare(claim, curve, [*bounds, *[None] * (len(orders) - len(bounds))])


def _judge_guarantee(cost: Cost, pair: Point) -> Verdict:
    answering, claim = cost.answering, f"one query costs at most {format_pair(*pair)}"
    if not isinstance(answering, Mechanism):
        return _judge_pair(claim, cost, pair, Fraction(_RELATIVE_TOLERANCE))
    pure = mechanisms.amplify_epsilon(mechanisms.find_pure_epsilon(answering), answering.voters.sampled)
    reason = f"it is ({format_bound(pure)}, 0)-DP for an overlap of {answering.reached}"
    return decide(COST, claim, reason, holds=float(pair[0]) >= pure * (1.0 - _RELATIVE_TOLERANCE), how=PROVED)


def _compare(claim: str, stored: Sequence[float], intervals: Sequence[Interval[float] | None]) -> Verdict:
    pairs = [(value, interval) for value, interval in zip(stored, intervals, strict=True) if interval is not None]
    if not pairs:
        reason = "it is too large for the independent checker: wide noise, large orders or many votes"
        return Verdict(COST, claim, UNKNOWN, reason)
    for value, interval in pairs:
        if value < interval.lower - _MIN_COST:
            return Verdict(COST, claim, FALSE, f"{value:.9g} is stated and {interval.lower:.9g} is attained")
    excess = max(
        interval.upper / value if value else (math.inf if interval.upper > 0.0 else 1.0) for value, interval in pairs
    )
    if excess <= 1.0 + _RELATIVE_TOLERANCE:
        return Verdict(
            COST, claim, PROVED, f"at most {format_bound(min(1.0, excess), 4)} of it is needed, to nine digits"
        )
    reason = f"{format_bound(excess)} times as much is proved, and less is attained: a tighter bound would decide"
    return Verdict(COST, claim, UNKNOWN, reason)


MAX_WORK = 24_000_000  # classes of pairs of histograms: about twenty seconds
MAX_PAIRS = 1_000_000  # of numbers of ones: some seconds
_MAX_PARTITIONS, _MAX_VOTERS, _MAX_CLASSES = 5000, 10_000, 100
_NO_ANSWER = -1  # its key, where strings have numbers of votes

Histogram = tuple[int, ...]
_Values = dict[Histogram, list[int]]  # a number for every label
_Corner = tuple[tuple[int, ...], tuple[int, ...]]


def enclose_differences(table: Table, epsilons: Sequence[Fraction], reached: int) -> list[Interval[Fraction]] | None:
    """Enclose the largest Σ_c max(0, h_c(n) − e^ε·h_c(n')) for each ε."""
    if count_pairs(table, reached) * _count_places(table, reached) * len(epsilons) > MAX_WORK:
        return None
    worst, unit = bound_largest_sums(list_law_pairs(table, reached), epsilons), find_unit(table) * WEIGHT_ONE * ONE
    return [Interval(Fraction(low, unit), Fraction(high, unit), "all pairs of histograms") for low, high in worst]


def enclose_private_voters(table: Table, epsilons: Sequence[Fraction]) -> list[Interval[Fraction]] | None:
    K, C, reached = table.voters.K, table.classes, table.voters.reached
    kinds = [(count, _list_corners(guarantee, C)) for count, guarantee in table.voters.kinds]
    if prod(comb(count + len(corners), count) for count, corners in kinds) * comb(K + C - 1, K) * 16 > MAX_WORK:
        return None
    law, unit = _read_law(table), find_unit(table) * WEIGHT_ONE * ONE**reached
    values = {
        counts: [chances[votes] for votes in counts] for part, chances in law.items() for counts in permutations(part)
    }
    error = 4 * reached * unit // ONE  # the probabilities of a voter are off by four units together

    def laws() -> Iterator[Laws]:
        for placed, first, second in place_voters(kinds, reached, values, _average):
            scale = ONE ** (reached - placed)
            for counts, vectors in first.items():
                yield [scale * x + error for x in vectors], [scale * y - error for y in second[counts]]

    worst = []
    for epsilon, bounds in zip(epsilons, bound_largest_sums(laws(), epsilons), strict=True):
        low, high = (Fraction(value, unit * ONE) for value in bounds)
        low -= 2 * C * Fraction(error, unit) * (1 + exponential(epsilon).upper)
        worst.append(Interval(max(Fraction(0), low), high, "all multisets of corners"))
    return worst


def check_size(table: Table) -> None:
    """Raise `ValueError` unless each partition has its weights; `TooLargeError` if they are too many to list."""
    K, C = table.voters.K, table.classes
    count = 0 if K > _MAX_VOTERS or table.format == OPEN_TABLE else _count_partitions(K, C)
    if K > _MAX_VOTERS or C > _MAX_CLASSES or (table.format != OPEN_TABLE and count > _MAX_PARTITIONS):
        raise TooLargeError(f"K = {K:,} voters and {C or 'open'} classes have more histograms than are listed")
    if table.format != OPEN_TABLE and len(table.law) != count:
        raise ValueError(f"it has weights of {len(table.law):,} partitions, and there are {count:,}")
    for part, weights in zip(
        list_partitions(K, C or K, K), table.law if table.format != OPEN_TABLE else (), strict=False
    ):
        if len(weights) != (len(set(part)) if C else len(set(part) - {0}) + 1):
            raise ValueError("a partition has not one weight for each of its counts")


def _count_partitions(K: int, C: int) -> int:
    counts = [1] + [0] * K
    for size in range(1, min(C, K) + 1):
        for total in range(size, len(counts)):
            counts[total] = min(counts[total] + counts[total - size], MAX_WORK)
    return counts[K]


def _count_places(table: Table, reached: int) -> int:
    """Count the classes of a pair of histograms, or the strings of both."""
    C = table.classes
    return table.voters.K + reached if C == OPEN else C


def count_pairs(table: Table, reached: int) -> int:
    C = _count_places(table, reached)
    parts = len(table.law) if table.format != OPEN_TABLE else _count_partitions(table.voters.K, table.voters.K)
    return int(parts * (C * (C - 1)) ** reached)


def find_unit(table: Table) -> int:
    return lcm(*range(1, _count_places(table, 0) + 1))


def _read_law(table: Table, reached: int = 0) -> dict[Histogram, dict[int, int]]:
    """Map each partition to Pr[a class with n votes] by n, in units of 1/(`find_unit`·2^53)."""
    K, is_open, common = table.voters.K, table.classes == OPEN, find_unit(table)
    law = {}
    for index, part in enumerate(list_partitions(K, table.classes or K, K)):
        values = sorted(set(part) - ({0} if is_open else set()), reverse=True)
        if table.format == OPEN_TABLE:  # by the votes of a string, and of the strongest other one
            others = {n: part[0] if n < part[0] else part[1] if K > 1 else 0 for n in values}
            chances = {n: common * table.law[n - 1][other] for n, other in others.items()}
        else:
            chances = {n: common * w // part.count(n) for n, w in zip(values, table.law[index], strict=not is_open)}
        if is_open:
            chances |= {0: 0, _NO_ANSWER: common * WEIGHT_ONE - sum(part.count(n) * chances[n] for n in values)}
        law[(*part, *(0,) * reached) if is_open else part] = chances
    return law


def list_law_pairs(table: Table, reached: int) -> Iterator[tuple[list[int], list[int]]]:
    law = _read_law(table, reached)
    for part, chances in law.items():
        for aligned in {tuple(sorted(zip(part, neighbor, strict=True))) for neighbor in _list_neighbors(part, reached)}:
            neighbor_chances = law[tuple(sorted((y for _, y in aligned), reverse=True))]
            answers = [*aligned, (_NO_ANSWER, _NO_ANSWER)] if _NO_ANSWER in chances else aligned
            yield [chances[x] for x, _ in answers], [neighbor_chances[y] for _, y in answers]


def _list_corners(guarantee: Point | None, C: int) -> list[_Corner]:
    """List corners where the laws on the two data sets differ, in units of 2^-128."""
    main, moved = ONE, 0
    if guarantee is not None:
        growth, moved = exponential(guarantee[0]).lower, to_units(guarantee[1])
        main = to_units((1 - guarantee[1]) * growth / (1 + growth))
    corners = set()
    for a, b, u, v in product(range(C), repeat=4):
        laws = [0] * C, [0] * C
        for law, first, second, third in zip(laws, (a, b), (b, a), (u, v), strict=True):
            law[first] += main
            law[second] += ONE - moved - main
            law[third] += moved
        if laws[0] != laws[1]:
            corners.add((tuple(laws[0]), tuple(laws[1])))
    return sorted(corners)


def _average(values: _Values, voter: Sequence[int]) -> _Values:
    """Average over one voter, by the histogram of the others."""
    averages: _Values = {}
    for counts, weights in values.items():
        for c, probability in enumerate(voter):
            if counts[c]:
                others = (*counts[:c], counts[c] - 1, *counts[c + 1 :])
                sums = averages.setdefault(others, [0] * len(counts))
                for label, weight in enumerate(weights):
                    sums[label] += probability * weight
    return averages


def list_partitions(K: int, C: int, max_count: int) -> Iterator[tuple[int, ...]]:
    """List the partitions of K votes into C counts, the largest first."""
    if C == 1:
        if max_count >= K:
            yield (K,)
        return
    if K == 0:  # a shortcut, because most of many classes have no votes
        yield (0,) * C
        return
    for first in range(min(K, max_count), -(-K // C) - 1, -1):
        for remaining in list_partitions(K - first, C - 1, first):
            yield (first, *remaining)


def _list_neighbors(part: Histogram, reached: int) -> set[Histogram]:
    neighbors = {part}
    for _ in range(reached):
        neighbors |= {
            tuple(votes - (c == source) + (c == target) for c, votes in enumerate(counts))
            for counts in neighbors
            for source in range(len(part))
            for target in range(len(part))
            if counts[source]
        }
    return neighbors - {part}
