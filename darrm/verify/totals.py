"""What many answers cost together, proved here: exact sums, losses added in whole numbers, or a Rényi bound.

The cost of one answer is taken from what answers, where that is among the files: computed by `darrm.verify.exact`,
`darrm.verify.plurality` or `darrm.verify.mechanism`, none of which shares code with the prover. Otherwise it is what
the ledger says of it, and the sum holds if that does; a claim of its own says so.

Rényi divergences add up at the order at which the charges' own curves are best (`darrm.verify.filters`). Answers of
private models do not add up: `darrm.verify.models` has what holds for them, and adds up answers to plain voters here.
"""

import math
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial, reduce
from operator import add

import numpy as np

from darrm.account.bounds import exact_sum
from darrm.verify import models
from darrm.verify.answering import Priced, Recomputed
from darrm.verify.filters import Cost, renyi_epsilon
from darrm.verify.points import kinds_of, telling_points
from darrm.verify.sums import Directed, Kind, Point, composed_epsilon
from darrm.verify.verdicts import CONSISTENT, PROVED, Verdict

_POINTS = 16  # of a profile that are proved: each takes as long as the proof of privacy
_DRAWN_POINTS, _MORE_POINTS = 64, 256  # of people who are drawn, in both directions; where fewer are not enough
_NEAR = 1e-9  # relative: floats on either side
_Bound = Callable[[Sequence[Priced], Fraction, float], tuple[float, str] | None]


@dataclass(frozen=True)
class Proved:
    """The ε of all answers together at a δ, with how it was found."""

    epsilon: float
    how: str
    given: bool  # some cost of one answer is what the ledger says, as what answered is not among the files


def proved_total(
    about: str, claim: str, epsilon: float, priced: Sequence[Priced], delta: Fraction
) -> Iterator[Verdict]:
    """Judge that all answers together are (ε, δ)-private, where the accountant has found the same."""
    own = smallest(priced, delta, enough=epsilon)
    if own is None:
        yield Verdict(
            about, claim, CONSISTENT, "the accountant finds it, too; this audit has no bound of its own for it"
        )
        return
    holds = own.epsilon <= epsilon * (1.0 + _NEAR)
    reason = f"{own.how} gives {own.epsilon:.6g}" + ("" if holds else "; the accountant's figure is computed again")
    yield Verdict(about, claim, PROVED if holds else CONSISTENT, reason)


def smallest(priced: Sequence[Priced], delta: Fraction, *, enough: float) -> Proved | None:
    """Prove the smallest ε that is found, looking no further once it is ``enough``; None where nothing is known."""
    delta -= sum(charge.count * Fraction(charge.vanishing) for charge, _ in priced)  # paid first, whatever the rest
    if not priced or delta < 0 or any(charge.data_dependent for charge, _ in priced):
        return None
    given, best, enough = any(exact is None for _, exact in priced), None, min(enough, sys.float_info.max)
    for epsilon, how in _bounds(priced, delta, enough):
        if best is None or epsilon < best.epsilon:
            best = Proved(epsilon, how, given)
        if best.epsilon <= enough * (1.0 + _NEAR):
            break
    return best


def _bounds(priced: Sequence[Priced], delta: Fraction, enough: float) -> Iterator[tuple[float, str]]:
    of_models = bounds_of_models(priced, delta)
    for name in models.NAMES if of_models is not None else ():
        if of_models is not None and (proved := of_models.proved(name, Fraction(enough))) is not None:
            yield rounded_up(proved), f"the bound {name!r} for models"
    if sum(charge.count for charge, _ in priced) > 1 and any(charge.alone for charge, _ in priced):
        return
    drawn, losses = any(charge.sampling is not None for charge, _ in priced), "losses added in whole numbers"
    bounds: list[tuple[_Bound, str]] = [
        (_simple, "the sum of ε and δ"),
        (_renyi, "Rényi divergences added, of order {}"),
        (partial(_losses, most=_DRAWN_POINTS if drawn else _POINTS), losses),
    ]
    if drawn:
        bounds.append((partial(_losses, most=_MORE_POINTS), losses))
    for bound, how in bounds:
        found = bound(priced, delta, enough)
        if found is not None:
            yield found[0], how.format(found[1])


def bounds_of_models(priced: Sequence[Priced], delta: Fraction) -> models.OfModels | None:
    """Gather answers of private models, whose costs for plain voters add up here."""

    def sum_of(plain: Sequence[Priced], delta: Fraction, enough: Fraction) -> Fraction | None:
        found = smallest(plain, delta, enough=float(enough) * (1.0 - _NEAR))
        return None if found is None else Fraction(found.epsilon)

    return models.of_models(priced, delta, sum_of)


def _simple(priced: Sequence[Priced], delta: Fraction, _enough: float) -> tuple[float, str] | None:
    total = exact_sum(tuple(charge for charge, _ in priced))
    return None if total is None or total[1] > delta else (rounded_up(total[0]), "")


def _renyi(priced: Sequence[Priced], delta: Fraction, _enough: float) -> tuple[float, str] | None:
    curves = [charge.renyi.repeated(charge.count) for charge, _ in priced if charge.renyi is not None]
    if len(curves) < len(priced) or not delta or any(not np.array_equal(c.orders, curves[0].orders) for c in curves):
        return None
    order = reduce(add, curves).best(float(delta)).order
    costs = []
    for charge, exact in priced:
        stated = float(charge.renyi.values[charge.renyi.orders == order][0]) if charge.renyi is not None else 0.0
        own = None if exact is None else exact.renyi(order, stated)
        if exact is not None and own is None:
            return None
        value = stated if own is None else own.high
        if not math.isfinite(value):
            return None
        costs.append(Cost(charge.count, curve=((Fraction(order), Fraction(value)),)))
    found = renyi_epsilon(costs, delta)
    return None if found is None else (rounded_up(found), f"{order:g}")


def _losses(priced: Sequence[Priced], delta: Fraction, enough: float, *, most: int) -> tuple[float, str] | None:
    kinds = kinds_of([charge for charge, _ in priced])
    if kinds is None:
        return None
    chosen = telling_points(kinds, delta, most)
    proved: list[Kind] = []
    for (charge, exact), points in zip(priced, chosen, strict=True):
        guarantee, profile = charge.guarantee, charge.profile
        own = [] if guarantee is None else [(guarantee.exact_epsilon, guarantee.exact_delta)]
        if profile is not None:
            own += points if exact is None else _proved_points(exact, points)
        if not own:
            return None
        if profile is not None and profile.reverse is not None:
            known = dict(zip(map(Fraction, profile.epsilons), map(Fraction, profile.reverse), strict=True))
            back = [(epsilon, known[epsilon]) for epsilon, _ in points]
            own = Directed(own, back if exact is None else _proved_points(exact, back, back=True))
        proved.append((own, charge.count))
    found = composed_epsilon(proved, delta, enough=Fraction(enough))
    return None if found is None else (rounded_up(found), "")


def _proved_points(exact: Recomputed, points: Sequence[Point], *, back: bool = False) -> list[Point]:
    own = exact.deltas([epsilon for epsilon, _ in points], [float(delta) for _, delta in points], back=back)
    return [] if own is None else [(epsilon, most.upper) for (epsilon, _), most in zip(points, own, strict=True)]


def rounded_up(value: Fraction) -> float:
    """Round up to a float."""
    nearest = float(value)
    return nearest if Fraction(nearest) >= value else math.nextafter(nearest, math.inf)
