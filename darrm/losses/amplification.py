"""What a query costs where a person is rarely among its examples, from what it costs one who certainly is.

`darrm.sampling` has the theorem. The profile h of a label is a chain of chords in e^x, and e^y = 1 + (e^x − 1)/q is
affine in e^x: chords of h become chords, point by point. In the other direction h at w = e^z counts q·h/(q + (1 − q)w)
at u = e^x = w/(q + (1 − q)w), and (1 − (1 − q)u)·(a − b·w) = a − (a(1 − q) + b·q)·u is affine in u: these stay chords,
too. So nothing is lost but what is rounded up.

Of a divergence Σ q_o·f(p_o/q_o) with convex f and f(1) = 0, such as exp((α − 1)·D_α) − 1, the one of (1 − q)A + qB and
A is that of B and A with f(1 − q + q·r) for f(r): convex as well, and at most q·f(r).
"""

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction

import numpy as np

from darrm.losses.charges import Charge
from darrm.losses.profile import PrivacyProfile
from darrm.losses.renyi import RenyiCurve
from darrm.privacy import LARGEST_EXPONENT, PrivacyParams
from darrm.probability import Array
from darrm.sampling import Sampling

_UP = 1.0 + 1e-12  # of a few rounded operations, relative
_OFTEN = Fraction(999, 1000)
_FAR = 30.0  # of the logarithm of a ratio: e^30 times what is looked at is more than all else
_DIGITS = 12  # of an ε that is kept, rounded up, so that machines agree


def rate_of(sampling: Sampling) -> float:
    """Return q as a float; 1 where a person is hardly ever not drawn, which costs no less: 1 − q keeps its digits."""
    return float(sampling.rate) if sampling.rate <= _OFTEN else 1.0


def amplified_profile(profile: PrivacyProfile, sampling: Sampling) -> PrivacyProfile:
    """Return the profile of a query, given that for a person who certainly takes part.

    Randomized response with ε = log 3 and q = 1/10: either way the distance is q/2, and the largest ratios are
    1 + q(3 − 1) = 1.2 and 3/(q + (1 − q)3) = 1.07.

    >>> rare = amplified_profile(PrivacyProfile((0.0, float(np.log(3.0))), (0.5, 0.0)), Sampling("0.1"))
    >>> np.exp(rare.epsilons).round(6).tolist(), [round(delta, 9) for delta in rare.reverse]
    ([1.0, 1.071429, 1.2], [0.05, 0.0, 0.0])
    """
    q = rate_of(sampling)
    epsilons, deltas = profile.arrays()
    growth, factor = np.expm1(epsilons), 1.0 / (1.0 + (1.0 - q) * np.expm1(epsilons))
    there = _rounded_up(np.log1p(q * growth))
    if sampling.scheme == "fixed":
        return _profile(there, q * deltas)
    back, back_deltas = _rounded_up(np.log1p(q * growth * factor)), q * factor * deltas
    if deltas[-1] > 0.0 and q < 1.0:  # h stays as it is, and (1 − (1 − q)u)·h falls to 0 at u = 1/(1 − q)
        back, back_deltas = np.append(back, _rounded_up(-np.log1p(-np.array([q])))), np.append(back_deltas, 0.0)
    grid = np.union1d(there, back[back <= there[-1]])
    x = np.expm1(grid)  # not e^ε, which is next to 1 where q is small
    sides = (np.interp(x, np.expm1(own), values) for own, values in ((there, q * deltas), (back, back_deltas)))
    return _profile(grid, *(side * _UP for side in sides))


def amplified(charge: Charge, sampling: Sampling, curve: RenyiCurve | None) -> Charge:
    """Return a charge for a person who is drawn, of one for a person who certainly takes part.

    Its Rényi curve is one of Poisson sampling that is known otherwise: the other charge's does not say it, only that of
    an (ε, 0)-private label follows.
    """
    guarantee, profile = charge.guarantee, charge.profile
    if profile is None and guarantee is not None and guarantee.epsilon <= LARGEST_EXPONENT:
        profile = PrivacyProfile.of_pair(guarantee)
    if sampling.scheme != "poisson":
        curve = None
    if guarantee is not None:
        guarantee = _amplified_pair(guarantee, sampling)
        if curve is None and guarantee.exact_delta == 0:
            curve = RenyiCurve.of_pure(guarantee.epsilon)
    return replace(
        charge,
        guarantee=guarantee,
        profile=None if profile is None else amplified_profile(profile, sampling),
        renyi=curve,
        sampling=sampling,
    )


def amplified_pure(epsilon: float, rate: float) -> float:
    """Return what an (ε, 0)-private label satisfies for a person who is drawn: ln(1 + q(e^ε − 1)).

    >>> round(float(np.exp(amplified_pure(float(np.log(3.0)), 0.1))), 9)
    1.2
    """
    return float(np.log1p(rate * np.expm1(epsilon)) * _UP)


def drawn_penalties(log_ratio: Array, order: Array | float, rate: float) -> tuple[Array, Array]:
    """Compute what an outcome adds to exp((α − 1)·D_α) − 1, over its probability under A, in either direction.

    With t = q(r − 1), which is 0 in the mean, the mixture from A has (1 + t)^α − 1 − αt, and A from the mixture
    (1 + t)^{1−α} − 1 + (α − 1)t: both are convex in the ratio r of B to A, and 0 at r = 1.

    >>> [round(float(part), 6) for part in drawn_penalties(np.log(3.0), 2.0, 0.5)]
    [1.0, 0.5]
    """
    t = rate * np.expm1(log_ratio)
    grown = np.log1p(t)
    with np.errstate(over="ignore"):
        forward = np.expm1(order * grown) - order * t
        back = np.expm1((1.0 - order) * grown) + (order - 1.0) * t
    return np.asarray(np.maximum(forward, 0.0)), np.asarray(np.maximum(back, 0.0))


def drawn_curve(with_him: Array, without: Array, rate: float, totals: Callable[[Array], Array]) -> RenyiCurve:
    """Compute the curve where a person is drawn, from logarithms of the probabilities of outcomes of pairs of laws.

    Both directions, rounded up; ``totals`` adds up the outcomes of each pair. Randomized response with ε = log 3 and
    q = ½ has the ratios 2 and 2/3, each half of it:

    >>> some = np.log([0.75, 0.25])
    >>> curve = drawn_curve(some, some[::-1], 0.5, np.sum)
    >>> round(float(np.exp(curve.values[curve.orders == 2.0][0])), 6), 0.25 * 2**2 + 0.75 * (2 / 3) ** 2
    (1.333333, 1.3333333333333333)
    """
    with np.errstate(invalid="ignore"):
        ratios = np.where(with_him == without, 0.0, with_him - without)
    far = ratios > _FAR  # what floats cannot hold is bounded in logarithms
    near = np.where(far, 0.0, ratios)
    large = np.where(far, ratios, 0.0)
    grown = large + np.log(rate + (1.0 - rate) * np.exp(-large))  # of the mixture to A

    def value_at(orders: Array) -> Array:
        worst = np.empty(orders.size)
        for place, order in enumerate(orders):
            with np.errstate(over="ignore", invalid="ignore"):
                forward, back = (np.exp(without) * part for part in drawn_penalties(near, order, rate))
                # (1 + t)^α and (α − 1)·t·A; an outcome that only he brings about costs all
                told = np.where(far, np.exp(np.where(np.isposinf(ratios), np.inf, without + order * grown)), forward)
                lost = np.where(far, (order - 1.0) * rate * np.exp(with_him), back)
            worst[place] = max(float(np.max(totals(part))) for part in (told, lost))
        return np.asarray(np.log1p(worst * (1.0 + 1e-9) + 1e-15) / (orders - 1.0))

    return RenyiCurve.of(value_at)


def _amplified_pair(target: PrivacyParams, sampling: Sampling) -> PrivacyParams:
    epsilon = float(_rounded_up(np.array([amplified_pure(target.epsilon, rate_of(sampling))]))[0])
    return PrivacyParams(epsilon, target.exact_delta * sampling.rate)


def _profile(grid: Array, deltas: Array, reverse: Array | None = None) -> PrivacyProfile:
    """Make a profile of computed points; of points that are one once rounded, the first bounds both."""
    grid, first = np.unique(grid, return_index=True)
    parts = [deltas] if reverse is None else [deltas, np.minimum(reverse, deltas)]
    falling = [np.minimum(1.0, np.maximum.accumulate((part[first] * _UP)[::-1])[::-1]) for part in parts]
    return PrivacyProfile(tuple(grid.tolist()), *(tuple(part.tolist()) for part in falling))


def _rounded_up(values: Array) -> Array:
    positive = values > 0.0
    unit = 10.0 ** (np.floor(np.log10(np.where(positive, values, 1.0))) + 1.0 - _DIGITS)
    return np.where(positive, (np.ceil(values / unit) + 1.0) * unit, 0.0)
