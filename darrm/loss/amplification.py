"""Privacy amplification by subsampling: the cost for a person who takes part in a query with probability q.

`darrm.subsampling` has the theorem. The profile h of a label is a chain of chords in e^x, and e^y = 1 + (e^x − 1)/q is
affine in e^x: chords stay chords. In the other direction h at w = e^z becomes q·h/(q + (1 − q)w) at
u = e^x = w/(q + (1 − q)w), and (1 − (1 − q)u)·(a − b·w) = a − (a(1 − q) + b·q)·u is affine in u: chords again.

For a divergence Σ q_o·f(p_o/q_o) with convex f and f(1) = 0, such as exp((α − 1)·D_α) − 1, the divergence of (1 − q)A +
qB and A is the divergence of B and A with f(1 − q + q·r) for f(r): also convex, and at most q·f(r).
"""

from dataclasses import replace
from fractions import Fraction

import numpy as np

from darrm.loss.privacy_cost import PrivacyCost
from darrm.loss.profile import PrivacyProfile
from darrm.loss.renyi import RenyiCurve
from darrm.numerics import Array
from darrm.privacy import LARGEST_EXPONENT, PrivacyParams
from darrm.subsampling import Subsampling

_ROUNDING_FACTOR = 1.0 + 1e-12  # relative, for a few rounded operations
_MAX_RATE = Fraction(999, 1000)
_MAX_LOG_RATIO = 30.0  # above it sums use logarithms
_SIGNIFICANT_DIGITS = 12  # of a stored ε, rounded up, so that all machines agree


def get_rate(sampling: Subsampling) -> float:
    """Return q, rounded up to 1 from 0.999 on, so that 1 − q keeps its digits."""
    return float(sampling.rate) if sampling.rate <= _MAX_RATE else 1.0


def amplify_profile(profile: PrivacyProfile, sampling: Subsampling) -> PrivacyProfile:
    """Return the profile of a query from the profile for a person who certainly takes part.

    Randomized response with ε = log 3 and q = 1/10: the distance is q/2, the largest ratios 1.2 and
    3/(q + (1 − q)3) = 1.07.

    >>> rare = amplify_profile(PrivacyProfile((0.0, float(np.log(3.0))), (0.5, 0.0)), Subsampling("0.1"))
    >>> np.exp(rare.epsilons).round(6).tolist(), [round(delta, 9) for delta in rare.reverse]
    ([1.0, 1.071429, 1.2], [0.05, 0.0, 0.0])
    """
    q = get_rate(sampling)
    epsilons, deltas = profile.arrays()
    growth, factor = np.expm1(epsilons), 1.0 / (1.0 + (1.0 - q) * np.expm1(epsilons))
    forward = _round_up(np.log1p(q * growth))
    if sampling.scheme == "fixed":
        return _build_profile(forward, q * deltas)
    reverse, bounds = _round_up(np.log1p(q * growth * factor)), q * factor * deltas
    if deltas[-1] > 0.0 and q < 1.0:  # h stays constant, and (1 − (1 − q)u)·h falls to 0 at u = 1/(1 − q)
        reverse, bounds = (np.append(reverse, _round_up(-np.log1p(-np.array([q])))), np.append(bounds, 0.0))
    grid = np.union1d(forward, reverse[reverse <= forward[-1]])
    x = np.expm1(grid)  # not e^ε, which is close to 1 for small q
    sides = (np.interp(x, np.expm1(e), values) for e, values in ((forward, q * deltas), (reverse, bounds)))
    return _build_profile(grid, *(side * _ROUNDING_FACTOR for side in sides))


def amplify(cost: PrivacyCost, sampling: Subsampling, curve: RenyiCurve | None) -> PrivacyCost:
    """Return the cost for a person who takes part with probability q, from the cost of certain participation.

    ``curve`` is its Rényi curve under Poisson sampling; None derives the curve of (ε, 0)-private labels.
    """
    guarantee, profile = cost.guarantee, cost.profile
    if profile is None and guarantee is not None and guarantee.epsilon <= LARGEST_EXPONENT:
        profile = PrivacyProfile.from_pair(guarantee)
    if sampling.scheme != "poisson":
        curve = None
    if guarantee is not None:
        epsilon = float(_round_up(np.array([amplify_pure(guarantee.epsilon, get_rate(sampling))]))[0])
        guarantee = PrivacyParams(epsilon, guarantee.exact_delta * sampling.rate)
        if curve is None and guarantee.exact_delta == 0:
            curve = RenyiCurve.from_pure(guarantee.epsilon)
    return replace(
        cost,
        guarantee=guarantee,
        profile=None if profile is None else amplify_profile(profile, sampling),
        renyi=curve,
        sampling=sampling,
    )


def amplify_pure(epsilon: float, rate: float) -> float:
    """Compute ln(1 + q(e^ε − 1)), rounded up."""
    return float(np.log1p(rate * np.expm1(epsilon)) * _ROUNDING_FACTOR)


def subsampled_penalties(log_ratio: Array, order: Array | float, rate: float) -> tuple[Array, Array]:
    """Compute an outcome's contribution to exp((α − 1)·D_α) − 1, over its probability under A, both directions.

    With t = q(r − 1) for the ratio r of B to A, of mean 0: (1 + t)^α − 1 − αt and (1 + t)^{1−α} − 1 + (α − 1)t, both
    convex in r.

    >>> [round(float(part), 6) for part in subsampled_penalties(np.log(3.0), 2.0, 0.5)]
    [1.0, 0.5]
    """
    t = rate * np.expm1(log_ratio)
    return _compute_penalties(t, np.log1p(t), order)


def _compute_penalties(t: Array, log_growth: Array, order: Array | float) -> tuple[Array, Array]:
    with np.errstate(over="ignore"):
        forward = np.expm1(order * log_growth) - order * t
        reverse = np.expm1((1.0 - order) * log_growth) + (order - 1.0) * t
    return np.asarray(np.maximum(forward, 0.0)), np.asarray(np.maximum(reverse, 0.0))


def subsampled_curve(present: Array, absent: Array, rate: float) -> RenyiCurve:
    """Compute the Rényi curve under Poisson sampling from log-probabilities (…, outcomes): both directions, rounded up.

    >>> some = np.log([0.75, 0.25])  # the ratios for q = ½ are 2 and 2/3
    >>> curve = subsampled_curve(some, some[::-1], 0.5)
    >>> round(float(np.exp(curve.values[curve.orders == 2.0][0])), 6), 0.25 * 2**2 + 0.75 * (2 / 3) ** 2
    (1.333333, 1.3333333333333333)
    """
    with np.errstate(invalid="ignore"):
        ratios = np.where(present == absent, 0.0, present - absent)
    is_large, outcomes = ratios > _MAX_LOG_RATIO, np.exp(absent)
    t = rate * np.expm1(np.where(is_large, 0.0, ratios))
    log_growth = np.log1p(t)
    large_ratios = ratios[is_large]
    with np.errstate(invalid="ignore"):
        large_growth = large_ratios + np.log(rate + (1.0 - rate) * np.exp(-large_ratios))  # of the mixture to A

    def value_at(orders: Array) -> Array:
        worst = np.empty(orders.size)
        for place, order in enumerate(orders):
            with np.errstate(over="ignore", invalid="ignore"):
                forward, reverse = (outcomes * part for part in _compute_penalties(t, log_growth, order))
                # (1 + t)^α and (α − 1)·t·A; outcomes that are impossible without the person cost ∞
                logs = np.where(np.isposinf(large_ratios), np.inf, absent[is_large] + order * large_growth)
                forward[is_large] = np.exp(logs)
                reverse[is_large] = (order - 1.0) * rate * np.exp(present[is_large])
            worst[place] = max(float(np.max(side.sum(axis=-1))) for side in (forward, reverse))
        return np.asarray(np.log1p(worst * (1.0 + 1e-9) + 1e-15) / (orders - 1.0))

    return RenyiCurve.of(value_at)


def _build_profile(grid: Array, deltas: Array, reverse: Array | None = None) -> PrivacyProfile:
    """Build the profile of computed points; the first of equal points bounds all."""
    grid, indices = np.unique(grid, return_index=True)
    parts = [deltas] if reverse is None else [deltas, np.minimum(reverse, deltas)]
    bounds = [np.minimum(1.0, np.maximum.accumulate((part[indices] * _ROUNDING_FACTOR)[::-1])[::-1]) for part in parts]
    return PrivacyProfile(tuple(grid.tolist()), *(tuple(part.tolist()) for part in bounds))


def _round_up(values: Array) -> Array:
    is_positive = values > 0.0
    unit = 10.0 ** (np.floor(np.log10(np.where(is_positive, values, 1.0))) + 1.0 - _SIGNIFICANT_DIGITS)
    return np.where(is_positive, (np.ceil(values / unit) + 1.0) * unit, 0.0)
