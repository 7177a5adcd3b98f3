"""Compute the cost of one query from its release, and judge the claims about it.

A table, a mechanism or a run of `darrm.verify.formats` gets a `Cost`: the smallest δ for each ε, and the Rényi
divergence at an order, both enclosed. For a table that is too large, or noise that is too wide, the result is None, and
the claim is *unknown*.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from itertools import takewhile
from math import comb, lcm

from darrm.verify import gamma, histograms, mechanisms, sampling
from darrm.verify.formats import GAMMA, WEIGHT_ONE, Answering, Charge, Mechanism, Run, Table, Voters
from darrm.verify.gamma import Gamma
from darrm.verify.noisy_labels import Between
from darrm.verify.numbers import Enclosure, Laws, Point, at_most, pair_at_most
from darrm.verify.verdicts import ASSUMED, COST, FALSE, PROVED, UNKNOWN, Verdict, judged

_LEAST = 1e-150  # of a cost: squares of less underflow
_DIGITS = 2e-9  # relative: floats on either side
_CHECKED, _ORDERS = 3, (4.0, 16.0, 64.0)  # points of a profile, orders of a curve: a second each for wide noise


@dataclass(frozen=True, eq=False)
class Cost:
    """The cost of one query of a table, a mechanism or a run."""

    answering: Answering
    reached: int | None = None  # the overlap, if voters count as non-private

    @property
    def voters(self) -> Voters:
        """The voters of the release."""
        proved = self.answering.voters
        return proved if self.reached is None else proved.without_guarantee(self.reached)

    def without_guarantee(self, reached: int) -> "Cost":
        """Return the cost for non-private voters with overlap ``reached``."""
        if isinstance(self.answering, Mechanism):  # it holds for all votes
            if reached > self.answering.reached:
                raise ValueError(f"a person moves {self.answering.reached} votes at most, and reaches {reached}")
            return self
        return Cost(self.answering, reached)

    def deltas(
        self, epsilons: Sequence[Fraction], enough: Sequence[float] = (), *, back: bool = False
    ) -> list[Enclosure] | None:
        """Enclose the smallest δ of one query for each ε, no closer than ``enough``; None if it takes too long.

        With resampled examples, of both directions, or with ``back`` of the second one.
        """
        if isinstance(self.answering, Run):
            return None
        drawn = self.voters.sampled
        if drawn is None:
            return self._certain_deltas(epsilons, enough)
        return sampling.sampled_deltas(self._certain_deltas, drawn, epsilons, enough, back=back)

    def renyi(self, order: float, enough: float = 0.0) -> Between | None:
        """Enclose the Rényi divergence at an order, no closer than ``enough``; None if it takes too long."""
        if isinstance(self.answering, Run):
            return None
        if isinstance(self.answering, Mechanism):
            return mechanisms.renyi(self.answering, order, enough)
        drawn = self.voters.sampled
        laws = self._laws() if drawn is not None and drawn.is_directed else None
        if drawn is not None and laws is not None:
            return sampling.renyi_of_laws(*laws, order, drawn)
        certain = self._certain_renyi(order)
        return certain if drawn is None or certain is None else sampling.of_convexity(certain, drawn, order)

    @property
    def is_close(self) -> bool:
        """Whether bounds on this cost are nearly attained; for noise against several moved votes they may be loose."""
        return not isinstance(self.answering, Mechanism) or self.answering.reached == 1

    def proves(self, charge: Charge) -> bool:
        """Whether the (ε, δ) that a ledger states of a query is proved here."""
        if charge.guarantee is None:
            return True
        return not isinstance(self.answering, Run) and _judge_guarantee(self, charge.guarantee).verdict == PROVED

    @property
    def gamma(self) -> Gamma:
        """The numbers of a table of two classes."""
        voters = self.voters
        assert isinstance(self.answering, Table)  # noqa: S101 (for the types)
        return Gamma(voters.K, self.answering.law, voters.kinds, voters.reached)

    def _certain_deltas(self, epsilons: Sequence[Fraction], enough: Sequence[float]) -> list[Enclosure] | None:
        table = self.answering
        if isinstance(table, Mechanism):
            return mechanisms.certain_deltas(table, epsilons, enough)
        assert isinstance(table, Table)  # noqa: S101 (a run has no δ of one query)
        if table.format == GAMMA:
            return _divergences(self.gamma, tuple(epsilons))
        if self.voters.are_private:
            return histograms.worst_of_private_voters(table, epsilons)
        return histograms.worst_differences(table, epsilons, self.voters.reached)

    def _certain_renyi(self, order: float) -> Between | None:
        table = self.answering
        if not isinstance(table, Table) or (table.format != GAMMA and self.voters.are_private):
            return None
        if table.format == GAMMA:
            return _renyi(self.gamma, order)
        return histograms.renyi(table, order, self.voters.reached)

    def _laws(self) -> tuple[list[Laws], int] | None:
        """List the laws of a label on all neighboring votes, and their unit; None if there are too many."""
        table, reached = self.answering, self.voters.reached
        if not isinstance(table, Table):
            return None
        if table.format != GAMMA:
            if histograms.number_of_pairs(table, reached) > histograms.MOST_PAIRS:
                return None
            return list(histograms.pairs(table, reached)), histograms.common_unit(table) * WEIGHT_ONE
        numbers = self.gamma
        if (numbers.K + 1) * (2 * numbers.reached + 1) > histograms.MOST_PAIRS:
            return None
        unit = lcm(*(value.denominator for value in numbers.half))
        law = [(unit - one, unit + one) for one in (int(value * unit) for value in numbers.signed)]
        return [(law[ones], law[other]) for ones, other in sampling.pairs_of_ones(numbers.K, numbers.reached)], 2 * unit


@lru_cache(maxsize=64)  # a ledger and a plan ask for the same points
def _divergences(numbers: Gamma, epsilons: tuple[Fraction, ...]) -> list[Enclosure] | None:
    return gamma.divergences(numbers, epsilons)


@lru_cache(maxsize=64)
def _renyi(numbers: Gamma, order: float) -> Between | None:
    laws = gamma.label_laws(numbers)
    return None if laws is None else sampling.renyi_of_laws(*laws, order)


def looks_at_few(sample: tuple[int, float] | None, cost: Cost | None) -> bool:
    """Whether a label is near a majority of few voters, mixed with a fair coin; without a release, trust the ledger."""
    if sample is None:
        return False
    if cost is None:
        return True
    if not isinstance(cost.answering, Table) or cost.answering.format != GAMMA:
        return False
    (n, distance), numbers = sample, cost.gamma
    K, half = numbers.K, numbers.half
    for ones, value in zip(range(K // 2 + 1, K + 1), half, strict=True):
        ways = [comb(ones, drawn) * comb(K - ones, n - drawn) for drawn in range(n + 1)]
        lead = Fraction(sum(ways[n // 2 + 1 :]) - sum(ways[: -(-n // 2)]), comb(K, n))
        if abs(value - half[-1] * lead) > 2 * Fraction(distance):
            return False
    return True


def judge_release(cost: Cost) -> Iterator[Verdict]:
    """Judge the claims of a table, a mechanism or a run about the cost of one label and about its voters."""
    answering = cost.answering
    if isinstance(answering, Table):
        (epsilon, delta), drawn = answering.target, answering.voters.sampled
        claim = f"one label is {pair_at_most(epsilon, delta)}-DP"
        claim += "" if drawn is None else f" for neighbors that {drawn.neighbors}"
        yield _judge_pair(claim, cost, answering.target)
        if drawn is None:
            yield from _judge_figures(cost, answering)
    elif isinstance(answering, Run):
        claim = f"test and labels together are {pair_at_most(*answering.budget)}-DP"
        reason = "the costs of its levels are beyond the independent checker; the prover can load the run again"
        yield Verdict(COST, claim, UNKNOWN, reason)
    yield from assumptions(answering.voters)


def _judge_pair(claim: str, cost: Cost, pair: Point, digits: Fraction = Fraction(0)) -> Verdict:
    """Judge that one query is (ε, δ)-private, up to relative ``digits`` of δ."""
    found = cost.deltas([pair[0]])
    if found is None:
        reason = f"K = {cost.voters.K:,} is beyond the independent checker; `darrm certify` proves it again"
        return Verdict(COST, claim, UNKNOWN, reason)
    (own,) = found
    if own.lower > pair[1]:
        return Verdict(COST, claim, FALSE, f"a δ of {at_most(own.lower, 9)} is attained")
    if own.upper > pair[1] * (1 + digits):
        return Verdict(COST, claim, UNKNOWN, "it is closer to δ than the enclosure is wide: prove a larger δ")
    return Verdict(COST, claim, PROVED, f"whole numbers over {own.rows} need δ = {at_most(own.upper, 9)}")


def _judge_figures(cost: Cost, table: Table) -> Iterator[Verdict]:
    epsilon, delta = table.target
    worst, allowed = cost.deltas([epsilon]), Enclosure(delta, delta)
    if table.format == GAMMA:
        worst, allowed = gamma.worst_costs(cost.gamma, [epsilon]), gamma.budget(epsilon, delta)
    stored = Fraction(float(table.certificate["worst_cost"])), Fraction(float(table.certificate["budget"]))
    if worst is not None:
        claim = f"no pair of neighbors costs more than {float(stored[0])!r}"
        reason = f"the largest cost is at least {float(worst[0].lower)!r}"
        yield judged(COST, claim, reason, holds=stored[0] >= worst[0].lower, how=PROVED)
    claim = f"the budget of a label is at least {float(stored[1])!r}"
    yield judged(COST, claim, f"it is {float(allowed.lower)!r}", holds=stored[1] <= allowed.upper, how=PROVED)


def assumptions(voters: Voters) -> Iterator[Verdict]:
    """Yield the assumptions of a cost that no file can show."""
    claims = list[str]()
    for count, each in voters.kinds:
        if each is not None:
            whose = "each voter is" if count == voters.K else f"{count} of {voters.K} voters are"
            claims.append(f"{whose} {pair_at_most(*each)}-DP")
    if voters.reached < voters.K:
        claims.append(f"one person's data influence at most {voters.reached:,} of the {voters.K:,} voters")
    if (drawn := voters.sampled) is not None:
        how = "each record is" if drawn.is_directed else "a fixed number of records is"
        claims.append(f"{how} drawn with probability {float(drawn.record_rate):g} for each query, independently")
    elif voters.are_private:
        models = "voters are models, trained once, with independent randomness"
        claims.append(models if voters.models else "fresh randomness for every query")
    return (Verdict(COST, claim, ASSUMED, "no file can show this") for claim in claims)


def judge_charge(cost: Cost, charge: Charge) -> Iterator[Verdict]:
    """Judge the cost of one query in a ledger: guarantee, Rényi curve, profile, strings that vanish."""
    answering = cost.answering
    if charge.sampled != answering.voters.sampled or charge.labels != answering.labels:
        claim, reason = "its ledger states how records are drawn", "the release draws them otherwise"
        yield Verdict(COST, claim, FALSE, reason)
        return
    if isinstance(answering, Run):
        claim, own = f"one query costs {pair_at_most(*(charge.guarantee or (0, 0)))}", answering.budget
        yield judged(COST, claim, f"the budget of the run is {pair_at_most(*own)}", holds=charge.guarantee == own)
        return
    if isinstance(answering, Mechanism) and answering.threshold is not None:
        found = mechanisms.vanishing(answering, answering.threshold)
        claim = f"a string that one person alone says is an answer with probability at most {at_most(charge.vanishing)}"
        known = None if found is None else Between(found.low * (1.0 - _DIGITS), found.high)
        yield _compared(claim, [charge.vanishing], [known])
    if charge.guarantee is not None:
        yield _judge_guarantee(cost, charge.guarantee)
    yield from _judge_curve(cost, charge)
    for side, name in enumerate(("the privacy profile", "the profile of the other direction"), 1):
        if side < len(charge.profile or ()):
            points = charge.points(side)
            places = sorted({(len(points) - 1) * place // (_CHECKED + 1) for place in range(1, _CHECKED + 1)})
            stored = [float(points[place][1]) for place in places]
            exact = cost.deltas([points[place][0] for place in places], stored, back=side == 2)
            ours = [None] * len(places) if exact is None else [Between(float(e.lower), float(e.upper)) for e in exact]
            where = f"{len(places)} of {len(points)} points"
            yield _compared(f"{name} of a query is at least what it costs, at {where}", stored, ours)
    for reached, plain in charge.plain:
        yield from judge_charge(cost.without_guarantee(reached), plain)


def _judge_guarantee(cost: Cost, pair: Point) -> Verdict:
    answering, claim = cost.answering, f"one query costs at most {pair_at_most(*pair)}"
    if not isinstance(answering, Mechanism):
        return _judge_pair(claim, cost, pair, Fraction(_DIGITS))
    pure = sampling.pure_epsilon(mechanisms.own_epsilon(answering), answering.voters.sampled)
    reason = f"it is ({at_most(pure)}, 0)-DP for an overlap of {answering.reached}"
    return judged(COST, claim, reason, holds=float(pair[0]) >= pure * (1.0 - _DIGITS), how=PROVED)


def _judge_curve(cost: Cost, charge: Charge) -> Iterator[Verdict]:
    known = {order: value for order, value in zip(charge.orders, charge.divergences, strict=True) if value < math.inf}
    if not known:
        return
    orders = sorted({max(one for one in known if one <= most) for most in _ORDERS if min(known) <= most})
    stored = [known[order] for order in orders]
    ours: list[Between | None] = list(takewhile(lambda own: own is not None, map(cost.renyi, orders, stored)))
    shown = [f"{order:g}" for order in orders[: len(ours) or None]]
    ours += [None] * (len(orders) - len(ours))  # the first order that takes too long ends the computation
    claim = f"the Rényi curve of a query is at least what it costs, at orders {', '.join(shown)}"
    yield _compared(claim, stored, ours)


def _compared(claim: str, stored: Sequence[float], ours: Sequence[Between | None]) -> Verdict:
    """Judge that stated numbers are at least the enclosed ones, as far as these are known."""
    known = [(theirs, own) for theirs, own in zip(stored, ours, strict=True) if own is not None]
    if not known:
        reason = "it is too large for the independent checker: wide noise, large orders or many votes"
        return Verdict(COST, claim, UNKNOWN, reason)
    for theirs, own in known:
        if theirs < own.low - _LEAST:
            return Verdict(COST, claim, FALSE, f"{theirs:.9g} is stated and {own.low:.9g} is attained")
    most = max(own.high / theirs if theirs else (math.inf if own.high > 0.0 else 1.0) for theirs, own in known)
    if most <= 1.0 + _DIGITS:
        return Verdict(COST, claim, PROVED, f"at most {at_most(min(1.0, most), 4)} of it is needed, to nine digits")
    reason = f"{at_most(most)} times as much is proved, and less is attained: a tighter bound would decide"
    return Verdict(COST, claim, UNKNOWN, reason)
