"""Prove an ε for all answers together: the smallest of several bounds.

The cost of one answer is computed from its release. Without the release, the total relies on the ledger's statement.
`darrm.verify.sums` adds losses. Balls of `flint` enclose all other numbers, and their safe ends are compared.

**Fixed kinds.** A total divergence ρ at the order α > 1 gives (ε, δ) with ε = ρ + c(α) [CKS20, Proposition 12],

    c(α) = log(1 − 1/α) − (log r + log α)/(α − 1)        at r = δ.

**Kinds chosen on the way.** A budget (ε, δ) fixes d, the share for the queries' own δ_i, r = δ − d, and one
order α. If every course of answers ends with Σε_i ≤ ε and Σδ_i ≤ d, or with Σρ_i ≤ ε − c(α), all answers are (ε, δ)-
private, for any α > 1 that the budget fixes: docs/theory/composition.md proves it. ρ_i
is the least of

1. the chord of (α − 1)·ρ(α), which is convex, between the orders of the curve; before the first ρ is no larger,
2. if Σδ_i ≤ d or δ_i = 0, log((e^{αε_i} + e^{(1−α)ε_i})/(1 + e^{ε_i}))/(α − 1) of randomized response [M17, Proposition
   6],
3. under the same condition, the divergence with likelihood ratios cut off at c = e^{ε_i}: log(1 + α(α − 1)·I)/(α − 1),
   where I = ∫_1^∞ u^{−α−1}·H(u) du + ∫_1^c u^{α−2}·H(u) du, H the line through the points of the profile.

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

If models differ, the t largest ε and the t largest Δ count. The joint bound is tried at ``goal`` and slightly above.
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
from darrm.verify.costs import Cost, is_subsampled
from darrm.verify.formats import NO_GUARANTEE, Charge, Mechanism, Run, Table, Voters
from darrm.verify.sums import DirectedPoints, Kind, choose_points, compose_delta, compose_epsilon
from darrm.verify.verdicts import (
    CONSISTENT,
    FALSE,
    MAX_EPSILON,
    PROVED,
    RELATIVE_TOLERANCE,
    UNKNOWN,
    Point,
    Topic,
    Verdict,
    ball,
    conversion,
    exponential,
    format_pair,
    round_up,
    upper_end,
)

Priced = tuple[Charge, Cost | None]  # a cost of the ledger, and its recomputation if the release is among the files
_MAX_POINTS, _MAX_SAMPLED_POINTS = 16, 256  # of a profile: each takes as long as the proof of privacy
_INITIAL_STEP, _MIN_STEP, _MAX_EXCESS = 0.1, 0.001, 1.3  # relative steps of orders; a multiple of the goal
_COMPUTED_POINTS, _COARSE_POINTS = 192, 32  # without a stated profile; the same if a point takes a tenth of a second
_ORDER_FACTORS = (1.0, 1.1, 0.9, 1.2, 0.8, 1.4, 0.7)  # multiples of the α − 1 that is best for curves linear in α
_PRECISION_BITS = 192
_MIN_EXCESS, _BISECTIONS = 2.0**-20, 80  # of α − 1: an order nearer 1 belongs to an ε without protection
_JOINT_FACTORS = (1 + Fraction(9, 10**10), Fraction(1001, 1000), Fraction(101, 100), Fraction(11, 10))


@dataclass(frozen=True)
class Total:
    epsilon: float
    how: str
    stated: bool  # whether it relies on a cost that only the ledger states
    is_close: bool = False  # whether the bounds on the costs are nearly attained


def smallest_total(priced: Sequence[Priced], delta: Fraction, *, goal: float) -> Total | None:
    delta -= sum(charge.count * Fraction(charge.vanishing) for charge, _ in priced)  # paid before all else
    if not priced or delta < 0 or any(charge.estimate is not None for charge, _ in priced):
        return None
    relies_on_ledger, best = any(cost is None or not cost.proves(charge) for charge, cost in priced), None
    is_close = all(cost is None or cost.is_close for _, cost in priced)
    for epsilon, how in _list_bounds(priced, delta, min(goal, 1e300)):
        if best is None or epsilon < best.epsilon:
            best = Total(epsilon, how, relies_on_ledger, is_close)
        if best.epsilon <= goal * (1.0 + RELATIVE_TOLERANCE):
            break
    return best


def judge_total(
    claim: str,
    total: Total | None,
    stated: tuple[float, Fraction],
    *,
    false_ratio: float,
    about: Topic = "composition",
    unknown_reason: str = "no bound of the independent checker covers these costs",
) -> Verdict:
    """Judge a stated (ε, δ): false if a close bound is ``false_ratio`` times as large."""
    if total is None:
        return Verdict(about, claim, UNKNOWN, unknown_reason)
    condition = ", if the costs in the ledger are true" if total.stated else ""
    reason = f"{total.how}: {format_pair(total.epsilon, stated[1], 9)}{condition}"
    if total.epsilon <= stated[0] * (1.0 + RELATIVE_TOLERANCE):
        return Verdict(about, claim, CONSISTENT if total.stated else PROVED, reason)
    if total.is_close and total.epsilon > stated[0] * false_ratio:
        return Verdict(about, claim, FALSE, reason)
    return Verdict(about, claim, UNKNOWN, f"{reason}; a tighter bound would decide")


def _list_bounds(priced: Sequence[Priced], delta: Fraction, goal: float) -> Iterator[tuple[float, str]]:
    models = {charge.models for charge, _ in priced if charge.models is not None and charge.models.are_private_models}
    if len(models) == 1 and all(charge.models in models for charge, _ in priced):
        bounds = _bound_models(models.pop(), priced, delta, Fraction(goal))
        yield from ((round_up(epsilon), how) for epsilon, how in bounds if epsilon is not None)
    if sum(charge.count for charge, _ in priced) > 1 and any(charge.shares_randomness for charge, _ in priced):
        return
    epsilons, deltas = add_pairs([charge for charge, _ in priced])
    if deltas <= delta:
        yield round_up(epsilons), "the sum of ε and δ"
    if (renyi_bound := _search_orders(priced, delta, goal)) is not None:
        yield renyi_bound
    is_sampled = any(charge.sampled is not None for charge, _ in priced)
    # with resampled examples, in both directions
    for max_points in (64, _MAX_SAMPLED_POINTS) if is_sampled else (_MAX_POINTS,):
        if (losses := _add_losses(priced, delta, goal, max_points)) is not None:
            yield losses, "privacy losses added in whole numbers"


def add_pairs(charges: Sequence[Charge]) -> Point:
    pairs = [(charge.guarantee or NO_GUARANTEE, charge.count) for charge in charges]
    epsilon, delta = (sum((pair[part] * count for pair, count in pairs), Fraction(0)) for part in (0, 1))
    return epsilon, delta


def _search_orders(priced: Sequence[Priced], delta: Fraction, goal: float) -> tuple[float, str] | None:
    best: tuple[float, float] | None = None
    orders, step = _choose_orders(priced, delta) if delta else [], _INITIAL_STEP
    while orders:
        previous = best
        for order in orders:
            epsilon = _convert_at_order(priced, delta, order, goal)
            if epsilon is not None and (best is None or epsilon < best[0]):
                best = epsilon, order
            if best is not None and best[0] <= goal:
                return best[0], f"Rényi divergences of order {best[1]:g}"
        if best is None or len(orders) == 1 or step < _MIN_STEP or best[0] > goal * _MAX_EXCESS:
            break
        step *= 0.5 if best == previous else 1.0
        orders = [1.0 + (best[1] - 1.0) * (1.0 + change) for change in (step, -step)]
        orders.append(max(1.125, round(8.0 * best[1]) / 8.0))  # tables are optimized for round orders
    return None if best is None else (best[0], f"Rényi divergences of order {best[1]:g}")


def _choose_orders(priced: Sequence[Priced], delta: Fraction) -> list[float]:
    grids = {charge.orders for charge, _ in priced}
    if len(grids) == 1 and (grid := grids.pop()):
        sums = [sum(charge.count * charge.divergences[index] for charge, _ in priced) for index in range(len(grid))]
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
        0.5 * bound.upper * charge.count for charge, cost in priced if cost and (bound := cost.renyi(2.0)) is not None
    ]
    if len(slopes) < len(priced) or not 0.0 < sum(slopes) < math.inf:
        return []
    best_order = 1.0 + math.sqrt(-math.log(delta) / sum(slopes))
    return [1.0 + factor * (best_order - 1.0) for factor in _ORDER_FACTORS]


def _convert_at_order(priced: Sequence[Priced], delta: Fraction, order: float, goal: float) -> float | None:
    total, queries = Fraction(0), sum(charge.count for charge, _ in priced)
    share = max(0.0, (goal - float(conversion(Fraction(order), delta))) / queries) * (1.0 - RELATIVE_TOLERANCE)
    for charge, cost in priced:
        stated = charge.divergences[charge.orders.index(order)] if charge.orders else share
        bound = None if cost is None else cost.renyi(order, stated)
        value = stated if cost is None else math.inf if bound is None else bound.upper
        if not math.isfinite(value):
            return None
        total += charge.count * Fraction(value)
    with ctx.workprec(_PRECISION_BITS):
        return round_up(max(Fraction(0), upper_end(ball(total) + conversion(Fraction(order), delta))))


def _add_losses(priced: Sequence[Priced], delta: Fraction, goal: float, max_points: int) -> float | None:
    kinds = [_list_points(charge, cost) for charge, cost in priced]
    if any(not points for points in kinds):
        return None
    selections = choose_points(
        [(points, charge.count) for points, (charge, _) in zip(kinds, priced, strict=True)], delta, max_points
    )
    proved_kinds: list[Kind] = []
    for (charge, cost), points, computed in zip(priced, selections, kinds, strict=True):
        pair = charge.guarantee
        proved = [] if pair is None else [pair]
        if charge.profile is not None:
            proved += points if cost is None else _prove_points(cost, points)
        elif cost is not None and not charge.orders:
            proved = [*proved, *computed]
            if isinstance(computed, DirectedPoints):
                proved = DirectedPoints(proved, computed.reverse_points)
        if not proved or max(proved)[0] > MAX_EPSILON:
            return None
        if charge.profile is not None and len(charge.profile) == 3:
            reverse_deltas = dict(charge.points(2))
            reverse = [(epsilon, reverse_deltas[epsilon]) for epsilon, _ in points]
            proved = DirectedPoints(proved, reverse if cost is None else _prove_points(cost, reverse, is_reversed=True))
        proved_kinds.append((proved, charge.count))
    total = compose_epsilon(proved_kinds, delta, goal=Fraction(goal))
    return None if total is None else round_up(total)


def _list_points(charge: Charge, cost: Cost | None) -> list[Point]:
    """List points of the profile or guarantee, or compute them."""
    if charge.profile is not None:
        return charge.points()
    if charge.orders or cost is None or (charge.guarantee is not None and isinstance(cost.answering, Run)):
        return [] if charge.guarantee is None else [charge.guarantee]
    answering, count = cost.answering, _COMPUTED_POINTS
    if isinstance(answering, Mechanism):
        pure, sampling = mechanisms.find_pure_epsilon(answering), answering.voters.sampled
        is_fast = answering.kind not in {"AsymmetricMax", "LNMax"} or (
            sampling is not None and answering.has_two_classes
        )
        count = count if is_fast else _COARSE_POINTS
        largest = min(pure, 12.0 * answering.reached / answering.parameters[0] if answering.kind == "GNMax" else 8.0)
        top = Fraction(mechanisms.amplify_epsilon(largest, sampling))
    else:
        assert isinstance(answering, Table)  # noqa: S101 (a run has a guarantee)
        top = _find_largest_epsilon(cost, answering.target[0])
    epsilons = [top * index * index / count**2 for index in range(count + 1)]
    deltas = cost.deltas(epsilons)
    if deltas is None:  # fewer of them may do
        epsilons = epsilons[:: _COMPUTED_POINTS // _COARSE_POINTS]
        deltas = cost.deltas(epsilons)
    if deltas is None:
        return [] if charge.guarantee is None else [charge.guarantee]
    points = [(epsilon, delta.upper) for epsilon, delta in zip(epsilons, deltas, strict=True)]
    reverse = (
        cost.deltas(epsilons, is_reversed=True) if charge.sampled is not None and charge.sampled.is_directed else None
    )
    if reverse is None:
        return points
    return DirectedPoints(points, [(epsilon, delta.upper) for epsilon, delta in zip(epsilons, reverse, strict=True)])


def _find_largest_epsilon(cost: Cost, target: Fraction) -> Fraction:
    epsilons: list[Fraction] = [target * 2**power for power in range(9) if target * 2**power <= MAX_EPSILON]
    deltas = cost.deltas(epsilons)
    if deltas is None:
        return target
    limit = min(delta.upper for delta in deltas) * Fraction(1001, 1000)
    return next(epsilon for epsilon, delta in zip(epsilons, deltas, strict=True) if delta.upper <= limit)


def _prove_points(cost: Cost, points: Sequence[Point], *, is_reversed: bool = False) -> list[Point]:
    deltas = cost.deltas(
        [epsilon for epsilon, _ in points], [float(delta) for _, delta in points], is_reversed=is_reversed
    )
    if deltas is None:
        return []
    return [(epsilon, bound.upper) for (epsilon, _), bound in zip(points, deltas, strict=True)]


def _bound_models(
    models: Voters, priced: Sequence[Priced], delta: Fraction, goal: Fraction
) -> Iterator[tuple[Fraction | None, str]]:
    reached, pairs = models.reached, [guarantee for _, guarantee in models.kinds]
    if any(guarantee is not None and guarantee[0] > MAX_EPSILON for guarantee in pairs):
        return
    are_all_private = None not in pairs
    if are_all_private:
        yield compose_epsilon(_list_kinds(models, reached), delta, goal=goal), "the composition of the models"
        yield _bound_subsampled(models, priced, delta, goal), "subsampling of the models"
    yield _bound_non_private(priced, reached, delta, goal), "the costs for voters without a guarantee"
    if goal <= MAX_EPSILON:
        epsilons = (goal * factor for factor in _JOINT_FACTORS)
        steps = {1, reached}
        proved_epsilons = (x for x in epsilons if any(_holds_jointly(models, priced, delta, x, step) for step in steps))
        yield next(proved_epsilons, None), "the joint bound of models and release"


def _list_kinds(models: Voters, count: int) -> list[Kind]:
    guarantees = [
        guarantee for voters, guarantee in models.kinds for _ in range(min(voters, count)) if guarantee is not None
    ]
    parts = [sorted((pair[part] for pair in guarantees), reverse=True)[:count] for part in (0, 1)]
    return [([pair], times) for pair, times in Counter(zip(*parts, strict=True)).items()]


def _bound_subsampled(models: Voters, priced: Sequence[Priced], delta: Fraction, goal: Fraction) -> Fraction | None:
    if not all(is_subsampled(charge.sample, cost) for charge, cost in priced):
        return None
    samples = [(charge.sample, charge.count) for charge, _ in priced if charge.sample is not None]
    examined = sum(sample[0] * count for sample, count in samples)
    if examined >= models.reached:
        return None
    kinds = _list_kinds(models, examined)
    max_epsilon = sum((points[0][0] * count for points, count in kinds), Fraction(0))
    distance = sum((Fraction(sample[1]) * count for sample, count in samples), Fraction(0))
    remaining_delta = delta - ((1 + exponential(max_epsilon).upper) * distance if distance else 0)
    epsilon = compose_epsilon(kinds, remaining_delta, goal=goal) if remaining_delta >= 0 else None
    return epsilon if epsilon is not None and epsilon <= max_epsilon else None


def _bound_non_private(priced: Sequence[Priced], overlap: int, delta: Fraction, goal: Fraction) -> Fraction | None:
    described: list[Priced] = []
    for charge, cost in priced:
        candidates = [(reached, option) for reached, option in charge.plain if reached >= overlap]
        if not candidates:
            return None
        plain_charge = min(candidates, key=itemgetter(0))[1]
        plain_cost = None if cost is None else cost.without_guarantee(overlap)
        guarantee = plain_charge.guarantee
        if guarantee is not None and plain_cost is not None and not isinstance(plain_cost.answering, Mechanism):
            deltas = plain_cost.deltas([guarantee[0]])
            if deltas is None or deltas[0].upper > guarantee[1]:
                plain_charge = replace(plain_charge, guarantee=None)
        described.append((replace(plain_charge, count=charge.count), plain_cost))
    total = smallest_total(described, delta, goal=float(goal) * (1.0 - RELATIVE_TOLERANCE))
    return None if total is None else Fraction(total.epsilon)


def _holds_jointly(models: Voters, priced: Sequence[Priced], delta: Fraction, x: Fraction, steps: int) -> bool:
    reached, step = models.reached // steps, x / steps
    are_all_private = all(guarantee is not None for _, guarantee in models.kinds)
    divergence = compose_delta(_list_kinds(models, reached), step) if are_all_private else Fraction(1)
    max_delta = delta / sum((exponential(step * index).upper for index in range(steps)), start=Fraction(0))
    if divergence <= max_delta:
        return True
    y = -upper_end(-(1 + ball((exponential(step).lower - 1) / divergence)).log())
    total = _bound_non_private(priced, reached, max_delta / divergence, y)
    return total is not None and total <= y


def prove_filter(costs: Sequence[Charge], epsilon: Fraction, delta: Fraction, share: Fraction) -> str:
    """Prove that a budget admits queries of kinds chosen on the way; return the proof in words, or nothing.

    δ·``share`` is for the queries' own δ.

    >>> hundred = [Charge(100, guarantee=(Fraction(1, 10), Fraction(0)))]
    >>> [prove_filter(hundred, Fraction(epsilon), Fraction(1, 100), Fraction(1, 2)) for epsilon in ("2.97", "2.98")]
    ['', 'its Rényi filter admits all queries']
    """
    own_delta = delta * share
    epsilons, deltas = add_pairs([cost for cost in costs if cost.guarantee is not None])
    pairs_count = deltas <= own_delta
    if pairs_count and epsilons <= epsilon and all(cost.guarantee is not None for cost in costs):
        return f"the sums are {format_pair(epsilons, deltas)}"
    if delta <= own_delta or epsilon <= 0:
        return ""
    with ctx.workprec(_PRECISION_BITS):
        order = find_filter_order(epsilon, delta - own_delta)
        total = _sum_divergences(costs, order, pairs_count=pairs_count)
        is_admitted = total is not None and bool(total + conversion(order, delta - own_delta) <= ball(epsilon))
    return "its Rényi filter admits all queries" if is_admitted else ""


def find_filter_order(epsilon: Fraction, delta: Fraction) -> Fraction:
    """Return the order at ε = c(α) + α·(log(1/r) − log α)/(α − 1)², nearly."""
    log_inverse, low = -math.log(delta), math.log(_MIN_EXCESS)
    high = max(low, math.log(1.0 / delta - 1.0)) if delta < 1 else low
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2.0
        excess, gap = math.exp(middle), log_inverse - math.log1p(math.exp(middle))
        falls_short = middle - math.log1p(excess) + gap / excess + (1.0 + excess) * gap / excess**2 < epsilon
        low, high = (low, middle) if falls_short else (middle, high)
    return 1 + Fraction(math.exp(low))


def _sum_divergences(costs: Sequence[Charge], order: Fraction, *, pairs_count: bool) -> arb | None:
    total = arb(0)
    for cost in costs:
        bounds = [_interpolate_curve(cost.curve, order)]
        if cost.guarantee is not None and (pairs_count or cost.guarantee[1] == 0):
            bounds.append(_bound_response(cost.guarantee[0], order))
            if points := cost.points():
                bounds.append(_bound_cut_ratios(points, cost.guarantee[0], order))
        upper_ends = [upper_end(bound) for bound in bounds if bound is not None and bound.is_finite()]
        if not upper_ends:
            return None
        total += cost.count * ball(max(Fraction(0), min(upper_ends)))
    return total


def _interpolate_curve(curve: Sequence[Point], order: Fraction) -> arb | None:
    if not curve or order > curve[-1][0]:
        return None
    if order <= curve[0][0]:
        return ball(curve[0][1])
    (first, low), (last, high) = next(pair for pair in pairwise(curve) if order <= pair[1][0])
    first_value, last_value = (first - 1) * low, (last - 1) * high
    return ball((first_value + (last_value - first_value) * (order - first) / (last - first)) / (order - 1))


def _bound_response(epsilon: Fraction, order: Fraction) -> arb:
    alpha, x = ball(order), ball(epsilon)
    return (((alpha * x).exp() + ((1 - alpha) * x).exp()) / (1 + x.exp())).log() / (alpha - 1)


def _bound_cut_ratios(profile: Sequence[Point], epsilon: Fraction, order: Fraction) -> arb:
    points = sorted(profile)
    growth, delta = ball(points[0][0]).exp(), ball(points[0][1])
    if points[0][0] > 0:
        points = [(Fraction(0), upper_end((growth - 1 + 2 * delta) / (growth + 1))), *points]
    last, bottom = points[-1]
    alpha, last_growth = ball(order), ball(last).exp()
    integral = ball(bottom) * last_growth**-alpha / alpha
    for first, second in pairwise(points):
        integral += _integrate_chord(first, second, second[0], -alpha)
        if first[0] < epsilon:
            integral += _integrate_chord(first, second, min(epsilon, second[0]), alpha - 1)
    if epsilon > last:
        integral += ball(bottom) * (ball(epsilon).exp() ** (alpha - 1) - last_growth ** (alpha - 1)) / (alpha - 1)
    return (1 + alpha * (alpha - 1) * integral).log() / (alpha - 1)


def _integrate_chord(first: Point, second: Point, until: Fraction, power: arb) -> arb:
    """Enclose ∫ u^{power − 1}·H(u) du from a point to e^until, along the chord to the next."""
    start, end, stop = (ball(epsilon).exp() for epsilon in (first[0], second[0], until))
    slope = (ball(second[1]) - ball(first[1])) / (end - start)
    base = ball(first[1]) - slope * start
    constant = base * (stop**power - start**power) / power
    return constant + slope * (stop ** (power + 1) - start ** (power + 1)) / (power + 1)
