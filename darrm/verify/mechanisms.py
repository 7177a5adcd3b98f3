"""Bound the cost of one label of a noisy maximum or of a selection from its parameters alone.

==========================  ==========================================================================================
mechanism                   cost of one label, if a person moves t votes
==========================  ==========================================================================================
GNMax, LNMax, AsymmetricMax `darrm.verify.noisy_labels` for t = 1; beyond, t moves are a chain, D_α(P‖R) ≤
                            (α − 1/p)/(α − 1)·D_{pα}(P‖Q) + D_{q(α − 1/p)}(Q‖R), 1/p + 1/q = 1 [M17, Proposition 11],
                            and δ_t(tε) ≤ δ(ε)·(1 + e^ε + … + e^{(t−1)ε}); or two noisy counts that change by t each:
                            α·t²/σ² of Gaussian, a pure 2tγ of Laplace noise
ExponentialMechanism        e_c ∝ e^{ε·votes/(2t)}: the odds of two classes change by at most e^ε, so it is (ε, 0)-
                            private [MT07]. Pr' = Pr·r/E r with e^{−ε/2} ≤ r ≤ e^{ε/2}, and E[r^{1−α}]·(E r)^{α−1} is
                            convex in r: with u = Pr[r = e^{−ε/2}], 0 ≤ u ≤ 1, two values are the worst, and both
                            factors are logarithmically concave in u.
PermuteAndFlip              (ε, 0)-private: Pr[c] = e_c·∫ Π (1 − e_o·s) ds over the others, s in [0, 1] [MS20]
==========================  ==========================================================================================

**Privacy amplification** when voters resample examples per query. The person is drawn with probability q. Given all
other data, the label has the law A without the person and B with them (in a fixed sample: a replacement); the votes of
A and B differ by the overlap.

==========  ============================================  ========================================================
scheme      one direction, the largest over all A and B   the other direction
==========  ============================================  ========================================================
``poisson``  (1 − q)A + qB against A                      A against (1 − q)A + qB
``fixed``    (1 − q)A + qB against (1 − q)A + qB'         the same
==========  ============================================  ========================================================

All are convex in B (and B'), so several drawn records cost at most what one B does. With u = e^ε,

    sup_S ((1 − q)A + qB)(S) − u·A(S) = q·sup_S B(S) − t·A(S),                      t = 1 + (u − 1)/q,
    sup_S A(S) − u·((1 − q)A + qB)(S) = c·(sup_S A(S) − (qu/c)·B(S)),               c = 1 − (1 − q)u > 0, else 0,

with qu/c ≥ 1: both directions follow exactly from the cost for a person who certainly takes part. For fixed samples the
first is attained at B' = A, and by joint convexity nothing costs more. An α-divergence exp((α − 1)D) is jointly convex,
too: at most 1 − q + q·exp((α − 1)D) of B and A, or of B and B'. Of few numbers it is computed for every pair.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from fractions import Fraction
from functools import lru_cache
from itertools import islice, zip_longest

import numpy as np
from flint import arb, ctx

from darrm.verify.formats import Mechanism, Sampling
from darrm.verify.noisy_labels import (
    RenyiPenalty,
    TooWideError,
    delta_of_gaussian_label,
    delta_of_label,
    gaussian,
    renyi_of_label,
    wide_support,
    widen,
)
from darrm.verify.verdicts import Array, Interval, Laws, ball, exponential, upper_end, upper_float

_PURE = ("ExponentialMechanism", "PermuteAndFlip")
_PRECISION = 2200  # bits: differences of numbers near ε are about ε²
_AROUND = (1.0, 0.84, 1.19, 0.71, 1.41, 0.5, 2.0)  # of p − 1 that is best for curves linear in the order
_HELD, _MOST_TERMS = 700.0, 1 << 27  # −log of weights that are summed, and how many for two classes: a second
_MOST_POINTS = 1 << 23  # of noise that is added up one by one
_RAREST = 1e-290  # of probabilities: less counts as none


@lru_cache(maxsize=256)
def renyi(mechanism: Mechanism, order: float, enough: float = 0.0) -> Interval[float] | None:
    if mechanism.voters.sampled is None:
        return _certain_renyi(mechanism, order, enough)
    return _drawn_renyi(mechanism, mechanism.voters.sampled, order, enough)


def certain_deltas(
    mechanism: Mechanism, epsilons: Sequence[Fraction], enough: Sequence[float]
) -> list[Interval[Fraction]] | None:
    """Enclose δ for each ε, for a person who certainly takes part."""
    drawn = mechanism.voters.sampled is not None  # otherwise votes may be missing, and bits are of all K of them
    if drawn and (bits := two_class_laws(mechanism)) is not None:
        deltas = [_largest_delta(*pairs_of_bits(bits, mechanism.voters.reached), epsilon) for epsilon in epsilons]
        pure = Fraction(repr(mechanism.parameters[0])) if mechanism.kind in _PURE else math.inf
        none = Interval(Fraction(0), Fraction(0))
        return [none if epsilon >= pure else own for epsilon, own in zip(epsilons, deltas, strict=True)]
    try:
        bounds = [_delta(mechanism, *one) for one in zip_longest(epsilons, enough, fillvalue=0.0)]
    except TooWideError:
        return None
    low = [0.0 if drawn and mechanism.has_two_classes else own.lower for own in bounds]  # other classes may cost more
    return [
        Interval(Fraction(least), Fraction(own.upper), "all places of two classes")
        for least, own in zip(low, bounds, strict=True)
    ]


def vanishing(mechanism: Mechanism, threshold: int) -> Interval[float] | None:
    """Enclose the probability that the answer is a string of one person alone."""
    weights = _weights_of(mechanism, _MOST_POINTS)
    if weights is None:
        return None
    width, reached = weights.size // 2, mechanism.reached
    tails = np.cumsum(weights[::-1])[::-1] / np.sum(weights)
    alone = [float(tails[threshold - n + width]) if threshold - n <= width else 0.0 for n in range(1, reached + 1)]
    worst = max(reached / n * tail for n, tail in enumerate(alone, start=1))
    attained = max(-math.expm1(reached // n * math.log1p(-min(tail, 0.5))) for n, tail in enumerate(alone, start=1))
    return Interval(attained, worst)


def decimal_ball(parameter: float) -> arb:
    return ball(Fraction(repr(float(parameter))))


@lru_cache(maxsize=16)
def two_class_laws(mechanism: Mechanism) -> Array | None:
    """Compute Pr[0] and Pr[1] for each number of ones, (K + 1, 2), of two classes."""
    if not mechanism.has_two_classes:
        return None
    K = mechanism.voters.K
    leads = np.arange(K % 2, K + 1, 2)
    if mechanism.kind in _PURE:
        odds = np.exp(-mechanism.parameters[0] * leads / (2.0 * mechanism.reached))
        wrong = odds / (1.0 + odds) if mechanism.kind == "ExponentialMechanism" else 0.5 * odds
    else:
        f = _weights_of(mechanism, _MOST_TERMS / K)
        if f is None:
            return None
        # Pr[D > lead] + Pr[D = lead]/2 of the difference D of two noises
        wins = np.append(np.cumsum(f[::-1])[::-1], 0.0)[1:] + 0.5 * f
        wrong = np.array([np.sum(f[: f.size - lead] * wins[lead:]) for lead in leads if lead < f.size]) / np.sum(f) ** 2
        wrong = np.pad(wrong, (0, leads.size - wrong.size))
    wrong[wrong < _RAREST] = 0.0
    ones = np.arange(K + 1)
    rare = wrong[np.abs(2 * ones - K) // 2]
    zero = np.where(2 * ones > K, rare, 1.0 - rare)
    return np.stack([zero, np.where(2 * ones < K, rare, 1.0 - rare)], axis=1)


def own_epsilon(mechanism: Mechanism) -> float:
    if mechanism.kind == "LNMax":
        return 2.0 * mechanism.reached * mechanism.parameters[0] * (1.0 + 1e-15)
    return mechanism.parameters[0] if mechanism.kind in _PURE else math.inf


def _certain_renyi(mechanism: Mechanism, order: float, enough: float) -> Interval[float] | None:
    if mechanism.kind == "PermuteAndFlip":
        return Interval(0.0, _pure(mechanism.parameters[0], order))
    if mechanism.kind == "ExponentialMechanism":  # over u, where the slope is 0; r is e^{−ε} or 1
        with ctx.workprec(_PRECISION):
            alpha, e = arb(order), decimal_ball(mechanism.parameters[0])
            rise, fall = ((alpha - 1) * e).expm1(), (-e).expm1()
            u = -(rise + (alpha - 1) * fall) / (alpha * rise * fall)
            value = (u * rise).log1p() / (alpha - 1) + (u * fall).log1p()
            high = upper_float(value) if value.is_finite() else mechanism.parameters[0]
            return Interval(max(0.0, -upper_float(-value)), high)
    bounds = [] if math.isinf(own_epsilon(mechanism)) else [Interval(0.0, _pure(own_epsilon(mechanism), order))]
    if mechanism.kind == "GNMax" and mechanism.reached > 1:
        bounds.append(Interval(0.0, order * (mechanism.reached / mechanism.parameters[0]) ** 2 * (1.0 + 1e-12)))
    if mechanism.reached <= 8:  # of one person, in a chain of single moves
        try:
            bounds.append(_renyi_of_moves(mechanism, mechanism.reached, order, enough))
        except TooWideError:
            bounds *= mechanism.reached > 1
    return Interval(max(one.lower for one in bounds), min(one.upper for one in bounds)) if bounds else None


def _drawn_renyi(mechanism: Mechanism, sampling: Sampling, order: float, enough: float) -> Interval[float] | None:
    rate = float(sampling.rate)
    pure, bounds = pure_epsilon(own_epsilon(mechanism), sampling), list[Interval[float]]()
    low = 0.0  # for two classes the upper bound alone
    if (bits := two_class_laws(mechanism)) is not None:
        without, gain = pairs_of_bits(bits, mechanism.voters.reached)
        known = np.all(without > 0.0, axis=1)  # others are too rare for floats
        divergence = _largest_renyi(without[known], gain[known], rate, order)
        if sampling.is_directed and np.all(known):
            return divergence
        low = divergence.lower
    if math.isfinite(pure):
        bounds.append(Interval(0.0, _pure(pure, order)))
    if sampling.is_directed and mechanism.kind == "ExponentialMechanism":
        bounds.append(renyi_of_exponential(mechanism.parameters[0], rate, order))
    elif sampling.is_directed and mechanism.reached == 1 and mechanism.kind != "PermuteAndFlip":
        with suppress(TooWideError):
            lead, weights = mechanism.voters.K, log_weights(mechanism)
            bounds.append(renyi_of_label(weights, order, lead=lead, enough=enough, rate=rate))
    elif (certain := _certain_renyi(mechanism, order, 0.0)) is not None:
        bounds.append(bound_by_convexity(certain, sampling, order))
    if not mechanism.has_two_classes:
        low = max((one.lower for one in bounds), default=0.0)
    return Interval(low, min(one.upper for one in bounds)) if bounds else None


def _renyi_of_moves(mechanism: Mechanism, moved: int, order: float, enough: float = 0.0) -> Interval[float]:
    if moved == 1:
        pure = own_epsilon(mechanism) / mechanism.reached
        own = renyi_of_label(log_weights(mechanism), order, lead=mechanism.voters.K, enough=enough)
        return own if math.isinf(pure) else Interval(own.lower, min(own.upper, _pure(pure, order)))
    second, high = moved // 2, math.inf
    for factor in _AROUND if enough else _AROUND[:1]:
        p = 1.0 + factor * (order - 1.0) / order * second / (moved - second)
        orders = p * order, p / (p - 1.0) * (order - 1.0 / p)
        first = _renyi_of_moves(mechanism, moved - second, orders[0]).upper
        last = _renyi_of_moves(mechanism, second, orders[1]).upper
        high = min(high, ((order - 1.0 / p) / (order - 1.0) * first + last) * (1.0 + 1e-12))
        if high <= enough:
            break
    return Interval(0.0, high)


@lru_cache(maxsize=1024)
def _delta(mechanism: Mechanism, epsilon: Fraction, enough: float) -> Interval[float]:
    if mechanism.kind in _PURE:
        if epsilon >= Fraction(repr(float(mechanism.parameters[0]))):  # exactly: a pure total has δ = 0
            return Interval(0.0, 0.0)
        e, at = decimal_ball(mechanism.parameters[0]), ball(epsilon)
        if mechanism.kind == "PermuteAndFlip":  # at most that of randomized response
            return Interval(0.0, upper_float((e.exp() - at.exp()) / (1 + e.exp())))
        # max over u of u − e^x·u/(u + (1 − u)e^ε): two values of r, as for the curve
        gap = ((at - e) / 2).expm1()
        delta = gap * gap / -(-e).expm1()  # no power: of a ball around 0 it is none
        return Interval(max(0.0, -upper_float(-delta)), upper_float(delta))
    step = float(epsilon) / mechanism.reached
    group = math.fsum(math.exp(place * step) for place in range(mechanism.reached)) * (1.0 + 1e-12)
    if mechanism.kind == "GNMax":
        one = delta_of_gaussian_label(mechanism.parameters[0], step)
    else:
        one = delta_of_label(log_weights(mechanism), step, lead=mechanism.voters.K, enough=enough / group)
    return one if mechanism.reached == 1 else Interval(0.0, min(1.0, one.upper * group))


def _weights_of(mechanism: Mechanism, most: float) -> Array | None:
    with suppress(TooWideError):
        return np.asarray(np.exp(wide_support(log_weights(mechanism), _HELD, most)[1]))
    return None


def log_weights(mechanism: Mechanism) -> Callable[[Array], Array]:
    if mechanism.kind == "GNMax":
        return gaussian(mechanism.parameters[0])
    if mechanism.kind == "LNMax":
        return lambda x: -mechanism.parameters[0] * np.abs(x)
    right, left, right_power, left_power = mechanism.parameters
    return lambda x: -np.where(x >= 0.0, (np.abs(x) / right) ** right_power, (np.abs(x) / left) ** left_power)


def _pure(epsilon: float, order: float) -> float:
    alpha, e = arb(order), decimal_ball(epsilon)
    high = e - (1 + e.exp()).log()  # logarithms of both probabilities
    low = high - e
    value = ((alpha * high + (1 - alpha) * low).exp() + (alpha * low + (1 - alpha) * high).exp()).log() / (alpha - 1)
    return upper_float(value) if value.is_finite() else epsilon


_RATE_BITS = 400
_CELLS, _SETTLED, _MOST_CELLS, _HALVINGS = 64, 1e-6, 1 << 16, 60
_MOST_LOSS = Fraction(600)  # of a label for a person who takes part: δ beyond it counts as 0
_OF_FLOATS = 2.0**-49  # relative, of a probability and of an exponential


def pure_epsilon(epsilon: float, sampling: Sampling | None) -> float:
    """Round up ln(1 + q(e^ε − 1)), the ε after subsampling."""
    if math.isinf(epsilon) or sampling is None:
        return epsilon
    with ctx.workprec(_RATE_BITS):
        value = (1 + ball(sampling.rate) * (ball(Fraction(epsilon)).exp() - 1)).log()
        return math.nextafter(float(upper_end(value)), math.inf)


def sampled_deltas(
    deltas: Callable[[Sequence[Fraction], Sequence[float]], list[Interval[Fraction]] | None],
    sampling: Sampling,
    epsilons: Sequence[Fraction],
    enough: Sequence[float],
    *,
    back: bool,
) -> list[Interval[Fraction]] | None:
    """Enclose δ for each ε by the ``deltas`` of a person who certainly takes part."""
    rate, enclosed, back = sampling.rate, list[Interval[Fraction]](), back and sampling.is_directed
    for epsilon, asked in zip(epsilons, enough or (0.0,) * len(epsilons), strict=True):
        grown = exponential(epsilon)
        most, least = (1 - (1 - rate) * u if back else rate for u in (grown.lower, grown.upper))
        if most <= 0:
            enclosed.append(Interval(Fraction(0), Fraction(0)))
            continue
        low, high = (
            rate * u / factor if back and factor > 0 else 1 + (u - 1) / rate
            for u, factor in ((grown.lower, most), (grown.upper, least))
        )
        with ctx.workprec(_RATE_BITS):
            at = min(_MOST_LOSS, max(Fraction(0), -upper_end(-ball(low).log())))
        own = deltas([at], [asked / float(most)])
        if own is None:
            return None
        # δ falls by no more than e^ε grows
        lower = least * (own[0].lower - high + exponential(at).lower)
        upper = min(Fraction(1), most * own[0].upper)
        enclosed.append(Interval(max(Fraction(0), lower), upper, own[0].rows))
    return enclosed


def pairs_of_ones(K: int, reached: int) -> Iterator[tuple[int, int]]:
    return (
        (ones, other) for ones in range(K + 1) for other in range(max(0, ones - reached), min(K, ones + reached) + 1)
    )


def pairs_of_bits(bits: Array, reached: int) -> tuple[Array, Array]:
    """Return the laws without a person, and how much more likely each label is with them, of all pairs of votes."""
    ones = np.array(list(pairs_of_ones(len(bits) - 1, reached)))
    without, with_person = bits[ones[:, 0]], bits[ones[:, 1]]
    gain = with_person - without
    rarer = np.where(without[:, 0] < 0.5, gain[:, 0], -gain[:, 1])  # differences near 1 lose digits
    return without, np.stack([rarer, -rarer], axis=1)


def _largest_delta(without: Array, gain: Array, epsilon: Fraction) -> Interval[Fraction]:
    """Enclose the largest δ at ε, up to the rounding of floats."""
    growth = math.expm1(epsilon)
    excess, error = gain - growth * without, _OF_FLOATS * (np.abs(gain) + growth * without)
    low, high = (float(np.max(np.sum(np.maximum(0.0, end), axis=1))) for end in (excess - error, excess + error))
    high += 1e-280 * bool(np.any(without <= 0.0))  # for underflow
    return Interval(Fraction(low), Fraction(min(1.0, high)), "all pairs of votes")


def _largest_renyi(without: Array, gain: Array, rate: float, order: float) -> Interval[float]:
    """Enclose the largest Rényi divergence for a person with this rate, up to the rounding of floats."""
    divergences = [Interval(0.0, 0.0)]
    directions = [(without, rate * gain), (without + rate * gain, -rate * gain)]
    for q, more in directions[: 1 + (rate < 1.0)] if without.size else ():
        if np.any((q == 0.0) & (more > 0.0)):
            return Interval(math.inf, math.inf)
        with np.errstate(divide="ignore", invalid="ignore"):
            t = np.where(q > 0.0, more / q, 0.0)
            logs = order * np.log1p(np.maximum(t, -1.0))
            if np.max(logs) > _MOST_LOSS:
                logs = np.logaddexp.reduce(logs + np.log(q), axis=1)
                divergences.append(widen(float(np.max(logs)) / (order - 1.0)))
                continue
        grown = np.expm1(logs)
        sums = np.sum(q * np.maximum(0.0, grown - order * t), axis=1)
        errors = _OF_FLOATS * np.sum(q * (1.0 + np.abs(grown)) * np.minimum(1.0, order * np.abs(t)), axis=1)
        low, high = (math.log1p(max(0.0, float(np.max(end)))) / (order - 1.0) for end in (sums - errors, sums + errors))
        divergences.append(Interval(widen(low).lower, widen(high).upper))
    return Interval(max(one.lower for one in divergences), max(one.upper for one in divergences))


def renyi_of_laws(pairs: Iterable[Laws], unit: int, order: float, rate: float = 1.0) -> Interval[float]:
    """Enclose the largest Rényi divergence of pairs of laws in units, without a person and with them at a rate."""
    pairs, bounds = iter(pairs), [Interval(0.0, 0.0)]
    while block := list(islice(pairs, 4096)):
        without = np.array([[x / unit for x in own] for own, _ in block])
        gain = np.array([[(y - x) / unit for x, y in zip(*laws, strict=True)] for laws in block])
        bounds.append(_largest_renyi(without, gain, rate, order))
    return Interval(max(one.lower for one in bounds), max(one.upper for one in bounds))


def bound_by_convexity(certain: Interval[float], sampling: Sampling, order: float) -> Interval[float]:
    if (order - 1.0) * certain.upper > _MOST_LOSS:
        return Interval(0.0, certain.upper)
    grown = float(sampling.rate) * math.expm1((order - 1.0) * certain.upper)
    return Interval(0.0, widen(math.log1p(grown) / (order - 1.0)).upper)


def renyi_of_exponential(epsilon: float, rate: float, order: float) -> Interval[float]:
    """Enclose the Rényi divergence of an exponential mechanism under Poisson subsampling.

    With Pr = (u, 1 − u), which two classes attain, the ratios of the laws are r/E r, r of e^{−ε} and 1. Both rise in u:
    the ends of a cell bound it.
    """
    penalties = [RenyiPenalty(order, rate, back=back) for back in (False, True)]
    tails = np.geomspace(1e-15, 0.5, _CELLS)
    ends = np.concatenate([[0.0], tails, 1.0 - tails[-2::-1], [1.0]])

    def cost(low: Array, high: Array) -> Array:
        falls = -np.log((1.0 - low) + low * math.exp(-epsilon)) - epsilon
        rises = -np.log((1.0 - high) + high * math.exp(-epsilon))
        with np.errstate(invalid="ignore"):
            both = [high * one.weigh(falls) + (1.0 - low) * one.weigh(rises) for one in penalties]
        return np.asarray(np.nan_to_num(np.max(both, axis=0), nan=math.inf, posinf=math.inf))

    low, high, best, most = ends[:-1], ends[1:], 0.0, 0.0
    for step in range(_HALVINGS):
        bounds, middle = cost(low, high), 0.5 * (low + high)
        attained = cost(middle, middle)
        best = max(best, float(np.max(attained, where=np.isfinite(attained), initial=0.0)))
        open_cells = bounds > best * (1.0 + _SETTLED)
        last = step + 1 == _HALVINGS or 2 * np.count_nonzero(open_cells) > _MOST_CELLS
        most = max(most, best, float(np.max(bounds if last else bounds[~open_cells], initial=0.0)))
        if last or not np.any(open_cells):
            break
        starts, cuts, stops = low[open_cells], middle[open_cells], high[open_cells]
        low, high = np.concatenate([starts, cuts]), np.concatenate([cuts, stops])
    return Interval(widen(math.log1p(best) / (order - 1.0)).lower, widen(math.log1p(most) / (order - 1.0)).upper)
