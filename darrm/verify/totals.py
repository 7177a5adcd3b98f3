"""Prove an ε for all answers together: the smallest of several bounds.

The cost of one answer is computed from its release, if that is among the files. Otherwise it is the cost in the ledger,
and the total is conditional on it. `darrm.verify.sums` adds losses, `darrm.verify.filters` Rényi divergences.

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

If models differ, each of the t counts with the largest ε and the largest Δ. The joint bound is decided at given x: at
the ε that is enough, and somewhat above.
"""

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from darrm.verify import mechanisms, sampling
from darrm.verify.costs import Cost, looks_at_few
from darrm.verify.filters import Cost as Proved
from darrm.verify.filters import renyi_epsilon
from darrm.verify.formats import Charge, Mechanism, Run, Table, Voters
from darrm.verify.numbers import MOST_EPSILON, NEAR, Point, ball, conversion, exponential, float_up, upper_end
from darrm.verify.sums import Directed, Kind, composed_delta, composed_epsilon, telling_points

Priced = tuple[Charge, Cost | None]  # a cost of the ledger, and its recomputation if the release is among the files
_POINTS, _MORE_POINTS = 16, 256  # of a profile: each takes as long as the proof of privacy
_DRAWN_POINTS = 64  # with resampled examples, in both directions
_OWN_POINTS, _FEW_POINTS = 192, 32  # without a stated profile; if each takes a tenth of a second
_MOST_CORNERS = 400
_CLOSER, _CLOSEST, _NEARLY = 0.1, 0.001, 1.3  # relative steps of orders; a sum that is nearly enough
_OWN_ORDERS = (1.0, 1.1, 0.9, 1.2, 0.8, 1.4, 0.7)  # times the order that is best for curves linear in it
_TRIED = (1 + Fraction(9, 10**10), Fraction(1001, 1000), Fraction(101, 100), Fraction(11, 10))


@dataclass(frozen=True)
class Total:
    """The ε of all answers together at a δ, with the bound that proves it."""

    epsilon: float
    how: str
    stated: bool  # whether it relies on a stated cost, of a release that is not among the files


def smallest_total(priced: Sequence[Priced], delta: Fraction, *, enough: float) -> Total | None:
    """Return the smallest ε that some bound proves, the first that is at most ``enough``; None without a proof."""
    delta -= sum(charge.count * Fraction(charge.vanishing) for charge, _ in priced)  # paid first
    if not priced or delta < 0 or any(charge.estimate is not None for charge, _ in priced):
        return None
    stated, best = any(cost is None or not cost.proves(charge) for charge, cost in priced), None
    for epsilon, how in _bounds(priced, delta, min(enough, 1e300)):
        if best is None or epsilon < best.epsilon:
            best = Total(epsilon, how, stated)
        if best.epsilon <= enough * (1.0 + NEAR):
            break
    return best


def _bounds(priced: Sequence[Priced], delta: Fraction, enough: float) -> Iterator[tuple[float, str]]:
    models = {charge.models for charge, _ in priced if charge.models is not None and charge.models.are_private_models}
    if len(models) == 1 and all(charge.models in models for charge, _ in priced):
        found = _of_models(models.pop(), priced, delta, Fraction(enough))
        yield from ((float_up(epsilon), how) for epsilon, how in found if epsilon is not None)
    if sum(charge.count for charge, _ in priced) > 1 and any(charge.alone for charge, _ in priced):
        return
    if (simple := _simple(priced, delta)) is not None:
        yield simple, "the sum of ε and δ"
    if (found_renyi := _renyi(priced, delta, enough)) is not None:
        yield found_renyi
    drawn = any(charge.sampled is not None for charge, _ in priced)
    for most in (_DRAWN_POINTS, _MORE_POINTS) if drawn else (_POINTS,):
        if (losses := _losses(priced, delta, enough, most)) is not None:
            yield losses, "privacy losses added in whole numbers"


def exact_sum(priced: Sequence[Priced]) -> Point | None:
    """Add up ε and δ of all queries; None if one has no (ε, δ)."""
    pairs = [(charge.guarantee, charge.count) for charge, _ in priced]
    if any(pair is None for pair, _ in pairs):
        return None
    sums = [sum((pair[part] * count for pair, count in pairs if pair), Fraction(0)) for part in (0, 1)]
    return sums[0], sums[1]


def _simple(priced: Sequence[Priced], delta: Fraction) -> float | None:
    total = exact_sum(priced)
    return None if total is None or total[1] > delta else float_up(total[0])


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
    """Choose orders: the best one of the stated curves, else orders around the best of a linear curve."""
    grids = {charge.orders for charge, _ in priced}
    if len(grids) == 1 and (grid := grids.pop()):
        sums = [sum(charge.count * charge.divergences[place] for charge, _ in priced) for place in range(len(grid))]
        log_delta = -math.log(delta)
        costs = [
            total + math.log1p(-1.0 / order) + (log_delta - math.log(order)) / (order - 1.0)
            for order, total in zip(grid, sums, strict=True)
        ]
        best = min(range(len(grid)), key=lambda place: costs[place] if math.isfinite(costs[place]) else math.inf)
        return [grid[best]] if math.isfinite(costs[best]) else []
    if any(charge.orders or cost is None for charge, cost in priced):
        return []
    slopes = [0.5 * own.high * charge.count for charge, cost in priced if cost and (own := cost.renyi(2.0)) is not None]
    if len(slopes) < len(priced) or not 0.0 < sum(slopes) < math.inf:
        return []
    best_order = 1.0 + math.sqrt(-math.log(delta) / sum(slopes))
    return [1.0 + factor * (best_order - 1.0) for factor in _OWN_ORDERS]


def _at_order(priced: Sequence[Priced], delta: Fraction, order: float, enough: float) -> float | None:
    costs, queries = [], sum(charge.count for charge, _ in priced)
    room = max(0.0, (enough - float(conversion(Fraction(order), delta))) / queries) * (1.0 - NEAR)
    for charge, cost in priced:
        stated = charge.divergences[charge.orders.index(order)] if charge.orders else room
        own = None if cost is None else cost.renyi(order, stated)
        if cost is not None and own is None:
            return None
        value = stated if own is None else own.high
        if not math.isfinite(value):
            return None
        costs.append(Proved(charge.count, curve=((Fraction(order), Fraction(value)),)))
    found = renyi_epsilon(costs, delta)
    return None if found is None else float_up(found)


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
    """List the points of a query: of its profile, of its guarantee, or points that are computed here."""
    if charge.profile is not None:
        return charge.points()
    if charge.orders or cost is None or (charge.guarantee is not None and isinstance(cost.answering, Run)):
        return [] if charge.guarantee is None else [charge.guarantee]
    answering, count = cost.answering, _OWN_POINTS
    if isinstance(answering, Mechanism):
        pure = mechanisms.own_epsilon(answering)
        drawn = answering.voters.sampled
        is_fast = answering.kind not in {"AsymmetricMax", "LNMax"} or (drawn is not None and answering.classes == 2)
        count = count if is_fast else _FEW_POINTS
        most = min(pure, 12.0 * answering.reached / answering.parameters[0] if answering.kind == "GNMax" else 8.0)
        top = Fraction(most if drawn is None else sampling.pure_epsilon(most, drawn))
    else:
        assert isinstance(answering, Table)  # noqa: S101 (a run has a guarantee)
        top = _top(cost, answering.target[0])
    epsilons = sorted({*(top * place * place / count**2 for place in range(count + 1)), *_corners(cost)})
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


def _corners(cost: Cost) -> list[Fraction]:
    if isinstance(cost.answering, Mechanism) or len(losses := cost.losses()) > _MOST_CORNERS:
        return []
    return [Fraction(loss) for loss in losses if loss < MOST_EPSILON]


def _top(cost: Cost, target: Fraction) -> Fraction:
    """Find an ε beyond which δ is negligible."""
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


def _non_private(priced: Sequence[Priced], overlap: int) -> list[Priced] | None:
    described: list[Priced] = []
    for charge, cost in priced:
        fitting = [(reached, one) for reached, one in charge.plain if reached >= overlap]
        if not fitting:
            return None
        plain = min(fitting, key=lambda pair: pair[0])[1]
        own = None if cost is None else cost.without_guarantee(overlap)
        if plain.guarantee is not None and own is not None:
            found = own.deltas([plain.guarantee[0]])
            holds = found is not None and found[0].upper <= plain.guarantee[1]
            plain = plain if holds or isinstance(own.answering, Mechanism) else replace(plain, guarantee=None)
        described.append((plain.repeated(charge.count), own))
    return described


def _of_non_private(priced: Sequence[Priced], overlap: int, delta: Fraction, enough: Fraction) -> Fraction | None:
    plain = _non_private(priced, overlap)
    found = None if plain is None else smallest_total(plain, delta, enough=float(enough) * (1.0 - NEAR))
    return None if found is None else Fraction(found.epsilon)


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
