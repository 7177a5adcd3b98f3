"""Prove an ε for all answers together: the smallest of several bounds.

The cost of one answer is computed from its release, or else stated by the ledger, and the total conditional on it.
`darrm.verify.sums` adds losses. Balls of `flint` enclose all other numbers, and their safe ends are compared.

**Fixed kinds.** ρ in all at the order α > 1 gives (ε, δ) with ε = ρ + c(α) [CKS20, Proposition 12],

    c(α) = log(1 − 1/α) − (log r + log α)/(α − 1)        at r = δ.

**Kinds chosen on the way.** A budget (ε, δ) fixes d, the share for the queries' own δ_i, r = δ − d, and one
order α. If every course of answers ends with Σε_i ≤ ε and Σδ_i ≤ d, or with Σρ_i ≤ ε − c(α), all answers are (ε, δ)-
private, for any α > 1 that the budget fixes: docs/theory/composition.md proves it. ρ_i
is the least of

1. the chord of (α − 1)·ρ(α), which is convex, between the orders of the curve; before the first ρ is no larger,
2. if Σδ_i ≤ d or δ_i = 0, log((e^{αε_i} + e^{(1−α)ε_i})/(1 + e^{ε_i}))/(α − 1) of randomized response [M17, Proposition
   6],
3. as in 2, the divergence with likelihood ratios cut off at c = e^{ε_i}: log(1 + α(α − 1)·I)/(α − 1), where
   I = ∫_1^∞ u^{−α−1}·H(u) du + ∫_1^c u^{α−2}·H(u) du, H the line through the points of the profile.

**Private models.** A person's data influence t models, each (ε, Δ)-private, trained once. Costs of their answers do not
add up. These bounds hold (docs/theory/composition.md has the proofs):

================  ====================================================================================================
private models    answers are post-processing of t models: their composition
subsampling       an answer close to a post-processing of n_i models: all answers are post-processing of Σn_i models,
                  and (1 + e^ε)·Σ of the distances is subtracted from δ
non-private       given all other models, answers are releases to t voters without a guarantee, which add up
joint             H_{e^x} ≤ R·h(y), e^y = 1 + (e^x − 1)/R, with R ≥ H_{e^x} of the t models and h of all releases to t
                  voters without a guarantee; or, one model after another, t steps of (x/t, d), d·Σ e^{ix/t} ≤ δ, i < t
================  ====================================================================================================

If models differ, each of the t counts with the largest ε and Δ. The joint bound is tried at the ε that is enough and
somewhat above.
"""

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import pairwise
from operator import itemgetter

from flint import arb, ctx

from darrm.verify import mechanisms
from darrm.verify.costs import Cost, looks_at_few
from darrm.verify.formats import NO_GUARANTEE, Charge, Mechanism, Run, Table, Voters
from darrm.verify.sums import Directed, Kind, composed_delta, composed_epsilon, telling_points
from darrm.verify.verdicts import (
    CONSISTENT,
    FALSE,
    MOST_EPSILON,
    NEAR,
    PROVED,
    UNKNOWN,
    Point,
    Topic,
    Verdict,
    ball,
    conversion,
    exponential,
    float_up,
    pair_at_most,
    upper_end,
)

Priced = tuple[Charge, Cost | None]  # a cost of the ledger, and its recomputation if the release is among the files
_POINTS, _MORE_POINTS = 16, 256  # of a profile: each takes as long as the proof of privacy
_CLOSER, _CLOSEST, _NEARLY = 0.1, 0.001, 1.3  # relative steps of orders; a sum that is nearly enough
_OWN_POINTS, _FEW_POINTS = 192, 32  # without a stated profile; if each takes a tenth of a second
_OWN_ORDERS = (1.0, 1.1, 0.9, 1.2, 0.8, 1.4, 0.7)  # times the order that is best for curves linear in it
_BITS = 192
_LEAST, _BISECTIONS = 2.0**-20, 80  # of α − 1: an order nearer 1 belongs to an ε without protection
_TRIED = (1 + Fraction(9, 10**10), Fraction(1001, 1000), Fraction(101, 100), Fraction(11, 10))


@dataclass(frozen=True)
class Total:
    epsilon: float
    how: str
    stated: bool  # whether it relies on a stated cost, of a release that is not among the files
    is_close: bool = False  # whether the bounds on the costs are nearly attained


def smallest_total(priced: Sequence[Priced], delta: Fraction, *, enough: float) -> Total | None:
    delta -= sum(charge.count * Fraction(charge.vanishing) for charge, _ in priced)  # paid first
    if not priced or delta < 0 or any(charge.estimate is not None for charge, _ in priced):
        return None
    stated, best = any(cost is None or not cost.proves(charge) for charge, cost in priced), None
    is_close = all(cost is None or cost.is_close for _, cost in priced)
    for epsilon, how in _bounds(priced, delta, min(enough, 1e300)):
        if best is None or epsilon < best.epsilon:
            best = Total(epsilon, how, stated, is_close)
        if best.epsilon <= enough * (1.0 + NEAR):
            break
    return best


def judge_total(
    claim: str,
    found: Total | None,
    stated: tuple[float, Fraction],
    *,
    apart: float,
    about: Topic = "composition",
    none: str = "no bound of the independent checker covers these costs",
) -> Verdict:
    """Judge a stated (ε, δ): false if a close bound is ``apart`` times as large."""
    if found is None:
        return Verdict(about, claim, UNKNOWN, none)
    known = ", if the costs in the ledger are true" if found.stated else ""
    reason = f"{found.how}: {pair_at_most(found.epsilon, stated[1], 9)}{known}"
    if found.epsilon <= stated[0] * (1.0 + NEAR):
        return Verdict(about, claim, CONSISTENT if found.stated else PROVED, reason)
    if found.is_close and found.epsilon > stated[0] * apart:
        return Verdict(about, claim, FALSE, reason)
    return Verdict(about, claim, UNKNOWN, f"{reason}; a tighter bound would decide")


def _bounds(priced: Sequence[Priced], delta: Fraction, enough: float) -> Iterator[tuple[float, str]]:
    models = {charge.models for charge, _ in priced if charge.models is not None and charge.models.are_private_models}
    if len(models) == 1 and all(charge.models in models for charge, _ in priced):
        found = _of_models(models.pop(), priced, delta, Fraction(enough))
        yield from ((float_up(epsilon), how) for epsilon, how in found if epsilon is not None)
    if sum(charge.count for charge, _ in priced) > 1 and any(charge.alone for charge, _ in priced):
        return
    epsilons, deltas = exact_sum([charge for charge, _ in priced])
    if deltas <= delta:
        yield float_up(epsilons), "the sum of ε and δ"
    if (found_renyi := _renyi(priced, delta, enough)) is not None:
        yield found_renyi
    drawn = any(charge.sampled is not None for charge, _ in priced)
    for most in (64, _MORE_POINTS) if drawn else (_POINTS,):  # with resampled examples, in both directions
        if (losses := _losses(priced, delta, enough, most)) is not None:
            yield losses, "privacy losses added in whole numbers"


def exact_sum(charges: Sequence[Charge]) -> Point:
    pairs = [(charge.guarantee or NO_GUARANTEE, charge.count) for charge in charges]
    epsilon, delta = (sum((pair[part] * count for pair, count in pairs), Fraction(0)) for part in (0, 1))
    return epsilon, delta


def _renyi(priced: Sequence[Priced], delta: Fraction, enough: float) -> tuple[float, str] | None:
    best: tuple[float, float] | None = None
    waiting, step = _orders(priced, delta) if delta else [], _CLOSER
    while waiting:
        before = best
        for order in waiting:
            epsilon = _at_order(priced, delta, order, enough)
            if epsilon is not None and (best is None or epsilon < best[0]):
                best = epsilon, order
            if best is not None and best[0] <= enough:
                return best[0], f"Rényi divergences of order {best[1]:g}"
        if best is None or len(waiting) == 1 or step < _CLOSEST or best[0] > enough * _NEARLY:
            break
        step *= 0.5 if best == before else 1.0
        waiting = [1.0 + (best[1] - 1.0) * (1.0 + part) for part in (step, -step)]
        waiting.append(max(1.125, round(8.0 * best[1]) / 8.0))  # tables are optimized for round orders
    return None if best is None else (best[0], f"Rényi divergences of order {best[1]:g}")


def _orders(priced: Sequence[Priced], delta: Fraction) -> list[float]:
    grids = {charge.orders for charge, _ in priced}
    if len(grids) == 1 and (grid := grids.pop()):
        sums = [sum(charge.count * charge.divergences[place] for charge, _ in priced) for place in range(len(grid))]
        log_delta = -math.log(delta)
        costs = [
            total + math.log1p(-1.0 / order) + (log_delta - math.log(order)) / (order - 1.0)
            for order, total in zip(grid, sums, strict=True)
        ]
        finite = [(cost, order) for cost, order in zip(costs, grid, strict=True) if math.isfinite(cost)]
        return [min(finite)[1]] if finite else []
    if any(charge.orders or cost is None for charge, cost in priced):
        return []
    slopes = [
        0.5 * own.upper * charge.count for charge, cost in priced if cost and (own := cost.renyi(2.0)) is not None
    ]
    if len(slopes) < len(priced) or not 0.0 < sum(slopes) < math.inf:
        return []
    best_order = 1.0 + math.sqrt(-math.log(delta) / sum(slopes))
    return [1.0 + factor * (best_order - 1.0) for factor in _OWN_ORDERS]


def _at_order(priced: Sequence[Priced], delta: Fraction, order: float, enough: float) -> float | None:
    total, queries = Fraction(0), sum(charge.count for charge, _ in priced)
    room = max(0.0, (enough - float(conversion(Fraction(order), delta))) / queries) * (1.0 - NEAR)
    for charge, cost in priced:
        stated = charge.divergences[charge.orders.index(order)] if charge.orders else room
        own = None if cost is None else cost.renyi(order, stated)
        value = stated if cost is None else math.inf if own is None else own.upper
        if not math.isfinite(value):
            return None
        total += charge.count * Fraction(value)
    with ctx.workprec(_BITS):
        return float_up(max(Fraction(0), upper_end(ball(total) + conversion(Fraction(order), delta))))


def _losses(priced: Sequence[Priced], delta: Fraction, enough: float, most: int) -> float | None:
    kinds = [_points(charge, cost) for charge, cost in priced]
    if any(not points for points in kinds):
        return None
    chosen = telling_points(
        [(points, charge.count) for points, (charge, _) in zip(kinds, priced, strict=True)], delta, most
    )
    proved: list[Kind] = []
    for (charge, cost), points, computed in zip(priced, chosen, kinds, strict=True):
        pair = charge.guarantee
        own = [] if pair is None else [pair]
        if charge.profile is not None:
            own += points if cost is None else _proved(cost, points)
        elif cost is not None and not charge.orders:
            own = Directed([*own, *computed], computed.back) if isinstance(computed, Directed) else [*own, *computed]
        if not own or max(own)[0] > MOST_EPSILON:
            return None
        if charge.profile is not None and len(charge.profile) == 3:
            known = dict(charge.points(2))
            back = [(epsilon, known[epsilon]) for epsilon, _ in points]
            own = Directed(own, back if cost is None else _proved(cost, back, back=True))
        proved.append((own, charge.count))
    found = composed_epsilon(proved, delta, enough=Fraction(enough))
    return None if found is None else float_up(found)


def _points(charge: Charge, cost: Cost | None) -> list[Point]:
    """List points of the profile or guarantee, or compute them."""
    if charge.profile is not None:
        return charge.points()
    if charge.orders or cost is None or (charge.guarantee is not None and isinstance(cost.answering, Run)):
        return [] if charge.guarantee is None else [charge.guarantee]
    answering, count = cost.answering, _OWN_POINTS
    if isinstance(answering, Mechanism):
        pure, drawn = mechanisms.own_epsilon(answering), answering.voters.sampled
        is_fast = answering.kind not in {"AsymmetricMax", "LNMax"} or (drawn is not None and answering.has_two_classes)
        count = count if is_fast else _FEW_POINTS
        most = min(pure, 12.0 * answering.reached / answering.parameters[0] if answering.kind == "GNMax" else 8.0)
        top = Fraction(mechanisms.pure_epsilon(most, drawn))
    else:
        assert isinstance(answering, Table)  # noqa: S101 (a run has a guarantee)
        top = _top(cost, answering.target[0])
    epsilons = [top * place * place / count**2 for place in range(count + 1)]
    found = cost.deltas(epsilons)
    if found is None:  # fewer of them may do
        epsilons = epsilons[:: _OWN_POINTS // _FEW_POINTS]
        found = cost.deltas(epsilons)
    if found is None:
        return [] if charge.guarantee is None else [charge.guarantee]
    points = [(epsilon, own.upper) for epsilon, own in zip(epsilons, found, strict=True)]
    back = cost.deltas(epsilons, back=True) if charge.sampled is not None and charge.sampled.is_directed else None
    if back is None:
        return points
    return Directed(points, [(epsilon, own.upper) for epsilon, own in zip(epsilons, back, strict=True)])


def _top(cost: Cost, target: Fraction) -> Fraction:
    tried: list[Fraction] = [target * 2**power for power in range(9) if target * 2**power <= MOST_EPSILON]
    found = cost.deltas(tried)
    if found is None:
        return target
    least = min(own.upper for own in found)
    places = [place for place, own in enumerate(found) if own.upper <= least * Fraction(1001, 1000)]
    return tried[places[0]]


def _proved(cost: Cost, points: Sequence[Point], *, back: bool = False) -> list[Point]:
    own = cost.deltas([epsilon for epsilon, _ in points], [float(delta) for _, delta in points], back=back)
    return [] if own is None else [(epsilon, most.upper) for (epsilon, _), most in zip(points, own, strict=True)]


def _of_models(
    models: Voters, priced: Sequence[Priced], delta: Fraction, enough: Fraction
) -> Iterator[tuple[Fraction | None, str]]:
    reached, pairs = models.reached, [each for _, each in models.kinds]
    if any(each is not None and each[0] > MOST_EPSILON for each in pairs):
        return
    are_all_private = None not in pairs
    if are_all_private:
        yield composed_epsilon(_kinds(models, reached), delta, enough=enough), "the composition of the models"
        yield _subsampled(models, priced, delta, enough), "subsampling of the models"
    yield _of_non_private(priced, reached, delta, enough), "the costs for voters without a guarantee"
    if enough <= MOST_EPSILON:
        tried = (enough * factor for factor in _TRIED)
        steps = {1, reached}
        found = (x for x in tried if any(_joint(models, priced, delta, x, step) for step in steps))
        yield next(found, None), "the joint bound of models and release"


def _kinds(models: Voters, count: int) -> list[Kind]:
    own = [each for voters, each in models.kinds for _ in range(min(voters, count)) if each is not None]
    sides = [sorted((pair[part] for pair in own), reverse=True)[:count] for part in (0, 1)]
    return [([pair], times) for pair, times in Counter(zip(*sides, strict=True)).items()]


def _subsampled(models: Voters, priced: Sequence[Priced], delta: Fraction, enough: Fraction) -> Fraction | None:
    if not all(looks_at_few(charge.sample, cost) for charge, cost in priced):
        return None
    samples = [(charge.sample, charge.count) for charge, _ in priced if charge.sample is not None]
    examined = sum(sample[0] * count for sample, count in samples)
    if examined >= models.reached:
        return None
    kinds = _kinds(models, examined)
    most = sum((points[0][0] * count for points, count in kinds), Fraction(0))
    distance = sum((Fraction(sample[1]) * count for sample, count in samples), Fraction(0))
    left = delta - ((1 + exponential(most).upper) * distance if distance else 0)
    epsilon = composed_epsilon(kinds, left, enough=enough) if left >= 0 else None
    return epsilon if epsilon is not None and epsilon <= most else None


def _of_non_private(priced: Sequence[Priced], overlap: int, delta: Fraction, enough: Fraction) -> Fraction | None:
    described: list[Priced] = []
    for charge, cost in priced:
        fitting = [(reached, one) for reached, one in charge.plain if reached >= overlap]
        if not fitting:
            return None
        plain = min(fitting, key=itemgetter(0))[1]
        own = None if cost is None else cost.without_guarantee(overlap)
        if plain.guarantee is not None and own is not None:
            found = own.deltas([plain.guarantee[0]])
            holds = found is not None and found[0].upper <= plain.guarantee[1]
            plain = plain if holds or isinstance(own.answering, Mechanism) else replace(plain, guarantee=None)
        described.append((replace(plain, count=charge.count), own))
    total = smallest_total(described, delta, enough=float(enough) * (1.0 - NEAR))
    return None if total is None else Fraction(total.epsilon)


def _joint(models: Voters, priced: Sequence[Priced], delta: Fraction, x: Fraction, steps: int) -> bool:
    reached, step = models.reached // steps, x / steps
    are_all_private = all(each is not None for _, each in models.kinds)
    divergence = composed_delta(_kinds(models, reached), step) if are_all_private else Fraction(1)
    allowed = delta / sum((exponential(step * place).upper for place in range(steps)), start=Fraction(0))
    if divergence <= allowed:
        return True
    y = -upper_end(-(1 + ball((exponential(step).lower - 1) / divergence)).log())
    total = _of_non_private(priced, reached, allowed / divergence, y)
    return total is not None and total <= y


def filter_admits(costs: Sequence[Charge], epsilon: Fraction, delta: Fraction, set_aside: Fraction) -> str:
    """Prove that a budget admits queries of kinds chosen on the way; return the proof in words, or nothing.

    δ·``set_aside`` is for the queries' own δ.

    >>> hundred = [Charge(100, guarantee=(Fraction(1, 10), Fraction(0)))]
    >>> [filter_admits(hundred, Fraction(epsilon), Fraction(1, 100), Fraction(1, 2)) for epsilon in ("2.97", "2.98")]
    ['', 'its Rényi filter admits all queries']
    """
    aside = delta * set_aside
    epsilons, deltas = exact_sum([cost for cost in costs if cost.guarantee is not None])
    pairs_count = deltas <= aside
    if pairs_count and epsilons <= epsilon and all(cost.guarantee is not None for cost in costs):
        return f"the sums are {pair_at_most(epsilons, deltas)}"
    if delta <= aside or epsilon <= 0:
        return ""
    with ctx.workprec(_BITS):
        order = filter_order(epsilon, delta - aside)
        used = _used(costs, order, pairs_count=pairs_count)
        admits = used is not None and bool(used + conversion(order, delta - aside) <= ball(epsilon))
    return "its Rényi filter admits all queries" if admits else ""


def filter_order(epsilon: Fraction, rest: Fraction) -> Fraction:
    """Return the order at ε = c(α) + α·(log(1/r) − log α)/(α − 1)², nearly."""
    log_rest = -math.log(rest)

    low, high = math.log(_LEAST), max(math.log(_LEAST), math.log(1.0 / rest - 1.0)) if rest < 1 else math.log(_LEAST)
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2.0
        above, left = math.exp(middle), log_rest - math.log1p(math.exp(middle))
        falls_short = middle - math.log1p(above) + left / above + (1.0 + above) * left / above**2 < epsilon
        low, high = (low, middle) if falls_short else (middle, high)
    return 1 + Fraction(math.exp(low))


def _used(costs: Sequence[Charge], order: Fraction, *, pairs_count: bool) -> arb | None:
    total = arb(0)
    for cost in costs:
        bounds = [_of_curve(cost.curve, order)]
        if cost.guarantee is not None and (pairs_count or cost.guarantee[1] == 0):
            bounds.append(_of_response(cost.guarantee[0], order))
            if points := cost.points():
                bounds.append(_of_cut(points, cost.guarantee[0], order))
        ends = [upper_end(bound) for bound in bounds if bound is not None and bound.is_finite()]
        if not ends:
            return None
        total += cost.count * ball(max(Fraction(0), min(ends)))
    return total


def _of_curve(curve: Sequence[Point], order: Fraction) -> arb | None:
    if not curve or order > curve[-1][0]:
        return None
    if order <= curve[0][0]:
        return ball(curve[0][1])
    (first, low), (last, high) = next(pair for pair in pairwise(curve) if order <= pair[1][0])
    below, above = (first - 1) * low, (last - 1) * high
    return ball((below + (above - below) * (order - first) / (last - first)) / (order - 1))


def _of_response(epsilon: Fraction, order: Fraction) -> arb:
    alpha, x = ball(order), ball(epsilon)
    return (((alpha * x).exp() + ((1 - alpha) * x).exp()) / (1 + x.exp())).log() / (alpha - 1)


def _of_cut(profile: Sequence[Point], epsilon: Fraction, order: Fraction) -> arb:
    points = sorted(profile)
    growth, delta = ball(points[0][0]).exp(), ball(points[0][1])
    if points[0][0] > 0:
        points = [(Fraction(0), upper_end((growth - 1 + 2 * delta) / (growth + 1))), *points]
    last, bottom = points[-1]
    alpha, end = ball(order), ball(last).exp()
    integral = ball(bottom) * end**-alpha / alpha
    for first, second in pairwise(points):
        integral += _under_chord(first, second, second[0], -alpha)
        if first[0] < epsilon:
            integral += _under_chord(first, second, min(epsilon, second[0]), alpha - 1)
    if epsilon > last:
        integral += ball(bottom) * (ball(epsilon).exp() ** (alpha - 1) - end ** (alpha - 1)) / (alpha - 1)
    return (1 + alpha * (alpha - 1) * integral).log() / (alpha - 1)


def _under_chord(first: Point, second: Point, until: Fraction, power: arb) -> arb:
    """Enclose ∫ u^{power − 1}·H(u) du from a point to e^until, along the chord to the next."""
    start, end, stop = (ball(epsilon).exp() for epsilon in (first[0], second[0], until))
    slope = (ball(second[1]) - ball(first[1])) / (end - start)
    base = ball(first[1]) - slope * start
    constant = base * (stop**power - start**power) / power
    return constant + slope * (stop ** (power + 1) - start ** (power + 1)) / (power + 1)
