"""PATE's noisy maxima by repeated draws: the privacy loss of one label, and its accounted cost.

[CJPCN24] audit PATE and find far less than its accounting says. Here both ends are known: the charge is that of the
noisy counts [P], and the law of the label is a sum over integer noise. For two classes a pair of neighbors is
(K − x, x) and (K − x − 1, x + 1); the audit draws labels on those pairs on which the label's divergence is largest.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import logsumexp

from darrm.numerics import Array
from darrm.pate import ConfidentGNMax, GNMax, LNMax
from darrm.verify.attack import Intervals
from darrm.votes import ABSTAIN, Votes

NoisyMax = LNMax | GNMax | ConfidentGNMax
VOTERS = 100
ORDERS = (2.0, 8.0, 32.0)
MECHANISMS: tuple[NoisyMax, ...] = (LNMax(0.1), GNMax(5.0), ConfidentGNMax(60.0, 10.0, 5.0))
ANSWERS = (0, 1, ABSTAIN)
DRAWS_AT_ONCE = 2**16


@dataclass(frozen=True)
class NoisyMaxAudit:
    """One mechanism at one order of the Rényi divergence."""

    name: str
    order: float
    charged: float  # by the accounting of the noisy counts
    exact: float  # of the label, on the worst pair of two classes
    refuted: float  # a lower bound from the labels drawn
    draws: int
    confidence: float


def audit(mechanism: NoisyMax, draws: int, confidence: float, rng: np.random.Generator) -> list[NoisyMaxAudit]:
    """Draw labels on the worst pairs of a mechanism and bound its divergences from below."""
    laws = np.array([label_law(mechanism, np.array([VOTERS - ones, ones])) for ones in range(VOTERS + 1)])
    exact = {order: both_ways(laws[:-1], laws[1:], order) for order in ORDERS}
    places = sorted({int(np.argmax(values)) for values in exact.values()})
    miss = (1.0 - confidence) / (len(places) * 2 * len(ANSWERS) * 2)  # sides, and bounds from below and above
    found = [
        Intervals.of_counts([answers(mechanism, ones, draws, rng) for ones in (place, place + 1)], draws, miss)
        for place in places
    ]
    curve = mechanism.guarantee
    charged = np.interp(ORDERS, curve.orders, curve.values)
    return [
        NoisyMaxAudit(
            name=repr(mechanism).replace(", noise='discrete'", ""),
            order=order,
            charged=float(charge),
            exact=float(np.max(exact[order])),
            refuted=max(renyi_below(bounds, order) for bounds in found),
            draws=draws,
            confidence=confidence,
        )
        for order, charge in zip(ORDERS, charged, strict=True)
    ]


def renyi_below(bounds: Intervals, order: float) -> float:
    """Bound the Rényi divergence of an order from below, in both directions.

    D_α(Bern(P) ‖ Bern(P')) grows as P or P' moves away from the other, so it is at least its value at the two nearest
    points of the intervals, and at most the divergence of the labels.
    """
    other_lower, other_upper = bounds.lower[::-1], bounds.upper[::-1]
    above, under = bounds.lower > other_upper, bounds.upper < other_lower
    P = np.where(above, bounds.lower, bounds.upper)
    Q = np.where(above, other_upper, other_lower)
    with np.errstate(divide="ignore", invalid="ignore"):
        logs = [order * np.log(p) + (1.0 - order) * np.log(q) for p, q in ((P, Q), (1.0 - P, 1.0 - Q))]
    divergences = np.logaddexp(*(np.nan_to_num(one, nan=-np.inf) for one in logs)) / (order - 1.0)
    return float(np.max(np.where(above | under, divergences, 0.0)))


def answers(mechanism: NoisyMax, ones: int, draws: int, rng: np.random.Generator) -> Sequence[int]:
    """Count the answers 0, 1 and ⊥ of the release itself on one histogram."""
    seen = np.zeros(len(ANSWERS), dtype=np.int64)
    for start in range(0, draws, DRAWS_AT_ONCE):
        size = min(DRAWS_AT_ONCE, draws - start)
        votes = Votes.of_counts(np.tile([VOTERS - ones, ones], (size, 1)), VOTERS)
        labels = mechanism.release(votes, rng=rng)
        seen += [int(np.sum(labels == answer)) for answer in ANSWERS]
    return seen.tolist()


def label_law(mechanism: NoisyMax, counts: Array) -> Array:
    """Compute the probabilities of the answers 0, 1 and ⊥ with whole-number noise; a tie is answered 0."""
    if isinstance(mechanism, ConfidentGNMax):
        check, needed = _gaussian(mechanism.sigma_threshold), math.ceil(mechanism.threshold) - int(counts.max())
        return np.append(_above(check, needed) * label_law(mechanism.answer, counts)[:2], _above(check, 1 - needed))
    noise = _gaussian(mechanism.sigma) if isinstance(mechanism, GNMax) else _laplace(mechanism.gamma)
    difference, gap = np.convolve(noise, noise), int(counts[0] - counts[1])  # both are symmetric
    return np.array([_above(difference, -gap), _above(difference, gap + 1), 0.0])


def both_ways(first: Array, second: Array, order: float) -> Array:
    """Compute the larger of D_α(P‖Q) and D_α(Q‖P) of laws (n, outcomes) → (n,)."""
    ways = []
    with np.errstate(divide="ignore"):
        for p, q in ((first, second), (second, first)):
            logs = np.where(p > 0.0, order * np.log(p) + (1.0 - order) * np.log(np.where(q > 0.0, q, 1.0)), -np.inf)
            ways.append(logsumexp(logs, axis=-1) / (order - 1.0))
    return np.asarray(np.maximum(0.0, np.maximum(*ways)))


def _gaussian(sigma: float) -> Array:
    """Tabulate the discrete Gaussian on −R … R, beyond which lies less than e^{−200}."""
    reach = math.ceil(20.0 * sigma)
    weights = np.exp(-(np.arange(-reach, reach + 1.0) ** 2) / (2.0 * sigma**2))
    return np.asarray(weights / weights.sum())


def _laplace(gamma: float) -> Array:
    """Tabulate the discrete Laplace law of scale 1/γ on −R … R, beyond which lies less than e^{−200}."""
    reach = math.ceil(200.0 / gamma)
    weights = np.exp(-gamma * np.abs(np.arange(-reach, reach + 1.0)))
    return np.asarray(weights / weights.sum())


def _above(law: Array, least: int) -> float:
    """Add up the probabilities of ``least`` and more, for a law on −R … R."""
    center = law.size // 2
    return float(law[max(0, center + least) :].sum())
