"""The best shape of noise for a workload: which `ShapedNoise` names the right class most often at a given cost.

Shapes are (p, ℓ/s, q): both powers in quarters, the ratio of the scales in powers of 2^¼. Their scale follows from the
budget, as the label's divergence falls about as 1/s²; a climb from the Gaussian, whose shape is (2, 1, 2), compares
them by one sample of histograms from the prior, drawn with a public seed. The search uses estimates of the divergence;
the scale that it ends with is certified, so the cost of what is returned is a bound whatever the search did.

The gain grows with the number of classes and with the noise: of the labels of 5,000 voters on 150 classes a quarter is
right instead of a seventh, of 250 voters on ten 1.8 points more; two and three classes gain half a point at most. A
climb ends at a best shape among its neighbors, which need not be the best of all.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from darrm.errors import PlanError, checks
from darrm.laws.priors import Dirichlet, Prior
from darrm.losses.label import label_curve, label_estimate
from darrm.losses.renyi import DEFAULT_ORDERS
from darrm.mechanisms.noisy_law import WinningLaw
from darrm.probability import Array
from darrm.probability.integer_noise import POWERS, ShapedNoise

SEED = 20_250_102  # of the histograms, public: the same result for everybody
_DRAWS, _FINAL_DRAWS = 500, 4000  # histograms, fewer where classes are many: at most so many counts
_COUNTS = 25_000
_STEPS, _NEAR = 6, 0.003  # towards a scale; a cost within so much of the budget, relative, has its scale corrected last
_CERTIFICATIONS = 6
DEAR = 200.0  # votes of deviation: beyond, a certificate takes seconds
_CERTIFIED = 1.0125  # about what a certified cost is of its estimate
_MARGIN = 1.0005  # of a scale whose certified cost came out above the budget
_RATIOS = 2.0 ** (np.arange(-8, 13) / 4.0)  # ℓ/s
_GAUSSIAN = (POWERS.index(2.0), 8, POWERS.index(2.0))  # places of p, ℓ/s and q
_Place = tuple[int, int, int]


@dataclass(frozen=True)
class BestShape:
    """The shape that was found, and what it gains."""

    noise: ShapedNoise  # what `darrm.pate.ShapedMax` releases with
    cost: float  # a certified bound on the label's Rényi divergence at the order asked for, within the budget
    share_right: float  # how often its label is one of the classes with the most votes, over the histograms drawn
    gain: float  # how much more that is than with a Gaussian of the same estimated cost on the same histograms
    gain_error: float  # the standard error of this difference


def best_shape(K: int, classes: int, prior: Prior | None = None, *, order: float, budget: float) -> BestShape:
    """Find the shaped noise whose labels are right most often at a Rényi budget a query.

    By default every histogram of K votes is believed equally likely. ``budget`` is what one query may cost at an order
    of `darrm.losses.renyi.DEFAULT_ORDERS` if one vote moves; about 1/t² of it where t do. `ValueError` if a number is
    out of its range, `PlanError` if no scale of the noise is within the budget.

    >>> found = best_shape(100, 10, order=16.0, budget=0.05)
    >>> found.cost <= 0.05, found.gain > 0.005
    (True, True)
    """
    checks.integer_at_least(1, K=K)
    checks.integer_at_least(2, classes=classes)
    checks.positive(order=order, budget=budget)
    if order not in DEFAULT_ORDERS:
        checks.fail("order", order, "one of darrm.losses.renyi.DEFAULT_ORDERS", "divergences are kept at these orders")
    belief = prior or Dirichlet()
    counts = belief.sample(K, classes, min(_DRAWS, max(1, _COUNTS // classes)), rng=np.random.default_rng(SEED))
    place = _climbed(counts, order, budget)
    noise, cost = _certified(place, order, budget)
    draws = min(_FINAL_DRAWS, max(2, 8 * _COUNTS // classes))
    counts = belief.sample(K, classes, draws, rng=np.random.default_rng(SEED + 1))
    right = _right(noise, counts)
    gained = right - _right(_scaled(_GAUSSIAN, order, cost), counts)
    return BestShape(
        noise, cost, float(right.mean()), float(gained.mean()), float(gained.std(ddof=1) / np.sqrt(gained.size))
    )


def _climbed(counts: NDArray[np.int64], order: float, budget: float) -> _Place:
    known: dict[_Place, float] = {}

    def value(place: _Place) -> float:
        inside = all(0 <= one < size for one, size in zip(place, (len(POWERS), _RATIOS.size, len(POWERS)), strict=True))
        if place not in known:
            known[place] = float(_right(_scaled(place, order, budget), counts).mean()) if inside else 0.0
        return known[place]

    best = _GAUSSIAN
    for step in (2, 1):
        while True:
            near = [
                (best[0] + step * p, best[1] + step * ratio, best[2] + step * q)
                for p, ratio, q in ((1, 0, 0), (-1, 0, 0), (0, 1, 0), (0, -1, 0), (0, 0, 1), (0, 0, -1))
            ]
            better = max(near, key=value)
            if value(better) <= value(best):
                break
            best = better
    return best


def _shaped(place: _Place, scale: float) -> ShapedNoise:
    p, ratio, q = POWERS[place[0]], float(_RATIOS[place[1]]), POWERS[place[2]]
    try:
        return ShapedNoise(64.0, 64.0 * ratio, q, p).scaled(scale)
    except ValueError as error:
        raise PlanError(f"no shaped noise has a label of this cost: {error}") from error


def _scaled(place: _Place, order: float, budget: float) -> ShapedNoise:
    scale = math.sqrt(order / budget)
    for _ in range(_STEPS):
        relative = float(label_estimate(_shaped(place, scale), [order])[0]) / budget
        scale *= math.sqrt(relative)
        if abs(relative - 1.0) < _NEAR:
            break
    return _shaped(place, scale)


def _certified(place: _Place, order: float, budget: float) -> tuple[ShapedNoise, float]:
    noise, at = _scaled(place, order, budget), int(np.searchsorted(DEFAULT_ORDERS, order))
    if noise.deviation > DEAR:  # the first one shall do
        noise = _scaled(place, order, budget / _CERTIFIED)
    for _ in range(_CERTIFICATIONS):
        cost = float(label_curve(noise, moved=1).values[at])
        if cost <= budget:
            return noise, cost
        noise = _shaped(place, noise.right * math.sqrt(min(4.0, cost / budget)) * _MARGIN)
    raise PlanError(f"no scale of a shaped noise was certified to cost at most {budget:g} at order {order:g}")


def _right(noise: ShapedNoise, counts: NDArray[np.int64]) -> Array:
    return WinningLaw(noise).right(counts)
