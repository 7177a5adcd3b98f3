"""What a run costs by every way of counting, and what publishing that cost costs: plain data for the tables.

Theorem 6 of [P] bounds D(M(D)‖M(D′)) at the votes at hand, one direction of two; the exact cost of the label bounds
both. Both are private data until they are sanitized. A run of several rounds is a sum of analyses.
"""

import math
import warnings
from collections.abc import Iterable, Sequence
from functools import reduce
from operator import add
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from darrm.losses.renyi import CONVERSIONS, RenyiCurve, RenyiGridWarning
from darrm.pate.analysis import Analysis, PateAggregator, PrivateFigureWarning, analyze
from darrm.pate.cost_shape import ConditionError
from darrm.pate.gnss import printed_cost
from darrm.pate.noisy_max import LNMax
from darrm.pate.publication import Expected, search_parameters
from darrm.votes import Votes

ORDERS_TRIED = 3  # as `search_parameters` does for one run


def account(
    votes: Votes,
    aggregator: PateAggregator,
    delta: float,
    answered: NDArray[np.bool_] | None = None,
    scores: ArrayLike | None = None,
) -> Analysis:
    """Analyze a run that is over; what its warnings say is on the page, in words."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrivateFigureWarning)
        warnings.simplefilter("ignore", RenyiGridWarning)
        return analyze(votes, aggregator, delta, answered=answered, scores=scores)


def costs(analyses: Sequence[Analysis]) -> dict[str, Any]:
    """Return ε by every way of counting, None where there is none.

    ``printed`` is Theorem 6 by the conversion that [P] prints, ``theorem_6`` by the tight one; ``exact`` is the label's
    own cost in both directions, ``forward`` in the direction of Theorem 6; ``by_label`` does not look at the votes.
    """
    delta = analyses[0].delta
    theorem_6 = _sum(one.curve for one in analyses)
    checks_curve = _sum(one.check_curve for one in analyses)
    best = theorem_6.best(delta)
    at_best = int(np.argmin(np.abs(theorem_6.orders - best.order)))
    return {
        "printed": theorem_6.best(delta, conversion="classic").epsilon,
        "theorem_6": best.epsilon,
        "order": best.order,
        "check_share": float(checks_curve.values[at_best] / theorem_6.values[at_best]),
        "exact": None,
        "forward": None,
        "by_label": _sum(one.independent_curve for one in analyses).best(delta).epsilon,
    }


def published_as_in_paper(analyses: Sequence[Analysis]) -> dict[str, Any]:
    """Publish Theorem 6 by GNSS [P, Appendix B]: the parameters with the smallest ε plus two deviations, and the price.

    They are searched on these votes, as in [P, Table 2]: the figures are what a fortunate choice would give. Each round
    is published by itself, at one order; the Rényi costs and the variances of the noises add up.
    """
    if any(isinstance(one.aggregator, LNMax) for one in analyses):
        return {"refused": "LNMax has no smooth sensitivity"}
    delta, curve = analyses[0].delta, _sum(one.curve for one in analyses)
    orders = curve.orders[np.argsort(CONVERSIONS["tight"](curve.orders, curve.values, delta))]
    found: list[dict[str, Any]] = []
    refused = ""
    for order in map(float, orders):
        try:
            found.append(_published(order, delta, [search_parameters(one, order) for one in analyses]))
        except ConditionError as error:
            refused = refused or str(error)
        if len(found) == ORDERS_TRIED:
            break
    if not found:
        return {"refused": refused}
    return min(found, key=lambda one: float(one["epsilon"]) + 2.0 * float(one["deviation"]))


def _published(order: float, delta: float, parts: Sequence[Expected]) -> dict[str, Any]:
    """Describe a published sum of rounds at one order."""
    renyi = sum(part.renyi for part in parts)
    price = sum(part.parameters.cost for part in parts)
    by_theorem_23 = [_as_printed(part) for part in parts]
    whole = None if None in by_theorem_23 else sum(one for one in by_theorem_23 if one is not None)
    return {
        "order": order,
        "before": _at_order(order, renyi, delta),
        "epsilon": _at_order(order, renyi + price, delta),
        "epsilon_by_theorem_23": None if whole is None else _at_order(order, renyi + whole, delta),
        "deviation": math.hypot(*(part.deviation for part in parts)),
        "rounds": [
            {
                "smoothness": part.parameters.smoothness,
                "sensitivity": part.sensitivity,
                "noise_scale": part.parameters.noise_scale,
                "cost": part.parameters.cost,
                "cost_by_theorem_23": printed,
            }
            for part, printed in zip(parts, by_theorem_23, strict=True)
        ],
    }


def _as_printed(part: Expected) -> float | None:
    """Return what Theorem 23 as printed says of a publication, None outside its range."""
    used = part.parameters
    return printed_cost(used.order, used.smoothness, used.noise_scale) if used.order * used.smoothness < 0.5 else None


def _at_order(order: float, renyi: float, delta: float) -> float:
    """Convert a Rényi cost at one order, by the tight conversion."""
    return RenyiCurve(np.array([order]), np.array([renyi])).best(delta).epsilon


def _sum(curves: Iterable[RenyiCurve]) -> RenyiCurve:
    """Add curves on the same orders."""
    return reduce(add, curves)
