"""A search for asymmetric noise whose label is most often correct at a given Rényi cost.

Shapes are (p, ℓ/s, q): both powers in quarters, the ratio of the scales in powers of 2^¼. The scale follows from the
budget, as the label's divergence falls about as 1/s². Hill climbing from the Gaussian shape (2, 1, 2) compares shapes
on one sample of histograms from the prior, drawn with a public seed. The search uses estimates of the divergence, and
the final scale is certified, so the returned cost is a bound for any outcome of the search.

The gain grows with the number of classes and with the noise: with 5,000 voters on 150 classes the accuracy rises from a
seventh to a quarter, with 250 voters on ten classes by 1.8 points, with two and three classes by half a point at most.
The search ends at a shape that is best among its neighbors, possibly a local optimum.
"""

import math
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from darrm.errors import PlanError
from darrm.loss.renyi import DEFAULT_ORDERS
from darrm.noisy_max.label_cost import label_curve, label_estimate
from darrm.noisy_max.noisy_law import WinningLaw
from darrm.numerics.integer_noise import POWERS, AsymmetricNoise
from darrm.priors import Dirichlet, Prior, checked
from darrm.util import checks

SEED = 20_250_102  # of the histograms, public: results are reproducible
_DRAWS, _FINAL_DRAWS = 500, 4000  # histograms, fewer for many classes
_COUNTS = 25_000  # at most, of all histograms of a search step
_STEPS, _NEAR = 6, 0.003  # towards a scale; the relative distance of a cost to the budget at which the search ends
_CERTIFICATIONS = 6
DEAR = 200.0  # votes of deviation: beyond, a certificate takes seconds
_CERTIFIED = 1.0125  # typical ratio of a certified cost to its estimate
_MARGIN = 1.0005  # of a scale whose certified cost exceeded the budget
_RATIOS = 2.0 ** (np.arange(-8, 13) / 4.0)  # ℓ/s
_GAUSSIAN = (POWERS.index(2.0), 8, POWERS.index(2.0))  # places of p, ℓ/s and q
_Place = tuple[int, int, int]


@dataclass(frozen=True)
class BestShape:
    """The best shape, and its gain."""

    noise: AsymmetricNoise  # for `darrm.pate.AsymmetricMax`
    cost: float  # a certified bound on the label's Rényi divergence at the order, within the budget
    accuracy: float  # the share of labels that are a class with the most votes, over the sampled histograms
    gain: float  # in accuracy over a Gaussian of the same estimated cost, on the same histograms
    gain_error: float  # its standard error


def best_shape(K: int, classes: int, prior: Prior | str | None = None, *, order: float, budget: float) -> BestShape:
    """Find the asymmetric noise with the most accurate labels within a Rényi budget for one query.

    The default prior is uniform on the histograms of K votes. ``budget`` is for one moved vote, at an ``order`` of
    `darrm.loss.renyi.DEFAULT_ORDERS`; for t moved votes about 1/t² of it. `ValueError` if a number is out of its
    range, `PlanError` if no scale of the noise is within the budget.

    >>> found = best_shape(100, 10, order=16.0, budget=0.05)
    >>> found.cost <= 0.05, found.gain > 0.005
    (True, True)
    """
    checks.integer_at_least(1, K=K)
    checks.integer_at_least(2, classes=classes)
    checks.positive(order=order, budget=budget)
    if order not in DEFAULT_ORDERS:
        checks.fail("order", order, "one of darrm.loss.renyi.DEFAULT_ORDERS", "divergences are kept at these orders")
    belief = Dirichlet() if prior is None else checked(prior, classes)
    counts = belief.sample(K, classes, min(_DRAWS, max(1, _COUNTS // classes)), rng=np.random.default_rng(SEED))
    noise, cost = _certify_scale(_climb(counts, order, budget), order, budget)
    draws = min(_FINAL_DRAWS, max(2, 8 * _COUNTS // classes))
    counts = belief.sample(K, classes, draws, rng=np.random.default_rng(SEED + 1))
    hits = WinningLaw(noise).right(counts)
    gained = hits - WinningLaw(_scaled(_GAUSSIAN, order, cost)).right(counts)
    error = float(gained.std(ddof=1) / np.sqrt(gained.size))
    return BestShape(noise, cost, float(hits.mean()), float(gained.mean()), error)


def _climb(counts: NDArray[np.int64], order: float, budget: float) -> _Place:
    @cache
    def value(place: _Place) -> float:
        if not all(0 <= one < size for one, size in zip(place, (len(POWERS), _RATIOS.size, len(POWERS)), strict=True)):
            return 0.0
        return float(WinningLaw(_scaled(place, order, budget)).right(counts).mean())

    best = _GAUSSIAN
    for step in (2, 1):
        while True:
            p, ratio, q = best
            near = [(p + d, ratio, q) for d in (step, -step)] + [(p, ratio + d, q) for d in (step, -step)]
            better = max([*near, (p, ratio, q + step), (p, ratio, q - step)], key=value)
            if value(better) <= value(best):
                break
            best = better
    return best


def _shaped(place: _Place, scale: float) -> AsymmetricNoise:
    p, ratio, q = POWERS[place[0]], float(_RATIOS[place[1]]), POWERS[place[2]]
    try:
        return AsymmetricNoise(64.0, 64.0 * ratio, q, p).scaled(scale)
    except ValueError as error:
        raise PlanError(f"no asymmetric noise has a label of this cost: {error}") from error


def _scaled(place: _Place, order: float, budget: float) -> AsymmetricNoise:
    scale = math.sqrt(order / budget)
    for _ in range(_STEPS):
        relative = float(label_estimate(_shaped(place, scale), [order])[0]) / budget
        scale *= math.sqrt(relative)
        if abs(relative - 1.0) < _NEAR:
            break
    return _shaped(place, scale)


def _certify_scale(place: _Place, order: float, budget: float) -> tuple[AsymmetricNoise, float]:
    noise, at = _scaled(place, order, budget), int(np.searchsorted(DEFAULT_ORDERS, order))
    if noise.deviation > DEAR:  # certify once only
        noise = _scaled(place, order, budget / _CERTIFIED)
    for _ in range(_CERTIFICATIONS):
        cost = float(label_curve(noise, moved=1).values[at])
        if cost <= budget:
            return noise, cost
        noise = _shaped(place, noise.right * math.sqrt(min(4.0, cost / budget)) * _MARGIN)
    raise PlanError(f"no scale of asymmetric noise was certified to cost at most {budget:g} at order {order:g}")
