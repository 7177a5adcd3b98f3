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
A and B differ by at most the overlap.

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
too: at most 1 − q + q·exp((α − 1)D) of B and A, or of B and B'. If pairs are few, it is computed for each.
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
    find_support,
    gaussian,
    renyi_of_label,
    widen,
)
from darrm.verify.verdicts import Array, Interval, Laws, ball, exponential, upper_end, upper_float

_PURE_KINDS = ("ExponentialMechanism", "PermuteAndFlip")
_PRECISION_BITS = 2200  # bits: differences of numbers near ε are about ε²
_EXPONENT_FACTORS = (1.0, 0.84, 1.19, 0.71, 1.41, 0.5, 2.0)  # times the best p − 1 for curves linear in the order
_MAX_LOG_WEIGHT, _MAX_TERMS = 700.0, 1 << 27  # −log of weights that are summed, and how many for two classes: a second
_MAX_POINTS = 1 << 23  # of noise that is added up one by one
_MIN_PROBABILITY = 1e-290  # smaller probabilities count as 0


@lru_cache(maxsize=256)
def enclose_renyi(mechanism: Mechanism, order: float, goal: float = 0.0) -> Interval[float] | None:
    if mechanism.voters.sampled is None:
        return _enclose_certain_renyi(mechanism, order, goal)
    return _enclose_sampled_renyi(mechanism, mechanism.voters.sampled, order, goal)


def enclose_certain_deltas(
    mechanism: Mechanism, epsilons: Sequence[Fraction], goal: Sequence[float]
) -> list[Interval[Fraction]] | None:
    """Enclose δ for each ε, for a person who certainly takes part."""
    # without sampling, votes may be missing, and the laws of bits are of all K of them
    is_sampled = mechanism.voters.sampled is not None
    if is_sampled and (bits := compute_bit_laws(mechanism)) is not None:
        deltas = [
            _find_largest_delta(*list_pairs_of_bits(bits, mechanism.voters.reached), epsilon) for epsilon in epsilons
        ]
        pure = Fraction(repr(mechanism.parameters[0])) if mechanism.kind in _PURE_KINDS else math.inf
        zero = Interval(Fraction(0), Fraction(0))
        return [zero if epsilon >= pure else bound for epsilon, bound in zip(epsilons, deltas, strict=True)]
    try:
        bounds = [_enclose_delta(mechanism, *arguments) for arguments in zip_longest(epsilons, goal, fillvalue=0.0)]
    except TooWideError:
        return None
    # other classes may cost more
    lower_bounds = [0.0 if is_sampled and mechanism.has_two_classes else bound.lower for bound in bounds]
    return [
        Interval(Fraction(lower), Fraction(bound.upper), "all places of two classes")
        for lower, bound in zip(lower_bounds, bounds, strict=True)
    ]


def enclose_vanishing(mechanism: Mechanism, threshold: int) -> Interval[float] | None:
    """Enclose the probability that the answer is a string of one person alone."""
    weights = _noise_weights(mechanism, _MAX_POINTS)
    if weights is None:
        return None
    width, reached = weights.size // 2, mechanism.reached
    tails = np.cumsum(weights[::-1])[::-1] / np.sum(weights)
    chances = [float(tails[threshold - n + width]) if threshold - n <= width else 0.0 for n in range(1, reached + 1)]
    worst = max(reached / n * tail for n, tail in enumerate(chances, start=1))
    attained = max(-math.expm1(reached // n * math.log1p(-min(tail, 0.5))) for n, tail in enumerate(chances, start=1))
    return Interval(attained, worst)


def decimal_ball(parameter: float) -> arb:
    return ball(Fraction(repr(float(parameter))))


@lru_cache(maxsize=16)
def compute_bit_laws(mechanism: Mechanism) -> Array | None:
    """Compute Pr[0] and Pr[1] for each number of ones, (K + 1, 2), of two classes."""
    if not mechanism.has_two_classes:
        return None
    K = mechanism.voters.K
    leads = np.arange(K % 2, K + 1, 2)
    if mechanism.kind in _PURE_KINDS:
        odds = np.exp(-mechanism.parameters[0] * leads / (2.0 * mechanism.reached))
        wrong = odds / (1.0 + odds) if mechanism.kind == "ExponentialMechanism" else 0.5 * odds
    else:
        f = _noise_weights(mechanism, _MAX_TERMS / K)
        if f is None:
            return None
        # Pr[D > lead] + Pr[D = lead]/2 of the difference D of two noises
        wins = np.append(np.cumsum(f[::-1])[::-1], 0.0)[1:] + 0.5 * f
        wrong = np.array([np.sum(f[: f.size - lead] * wins[lead:]) for lead in leads if lead < f.size]) / np.sum(f) ** 2
        wrong = np.pad(wrong, (0, leads.size - wrong.size))
    wrong[wrong < _MIN_PROBABILITY] = 0.0
    ones = np.arange(K + 1)
    wrong_chances = wrong[np.abs(2 * ones - K) // 2]
    zero_chances = np.where(2 * ones > K, wrong_chances, 1.0 - wrong_chances)
    return np.stack([zero_chances, np.where(2 * ones < K, wrong_chances, 1.0 - wrong_chances)], axis=1)


def find_pure_epsilon(mechanism: Mechanism) -> float:
    if mechanism.kind == "LNMax":
        return 2.0 * mechanism.reached * mechanism.parameters[0] * (1.0 + 1e-15)
    return mechanism.parameters[0] if mechanism.kind in _PURE_KINDS else math.inf


def _enclose_certain_renyi(mechanism: Mechanism, order: float, goal: float) -> Interval[float] | None:
    if mechanism.kind == "PermuteAndFlip":
        return Interval(0.0, _bound_pure(mechanism.parameters[0], order))
    if mechanism.kind == "ExponentialMechanism":  # the largest over u, where the slope is 0; r is e^{−ε} or 1
        with ctx.workprec(_PRECISION_BITS):
            alpha, e = arb(order), decimal_ball(mechanism.parameters[0])
            rise, fall = ((alpha - 1) * e).expm1(), (-e).expm1()
            u = -(rise + (alpha - 1) * fall) / (alpha * rise * fall)
            value = (u * rise).log1p() / (alpha - 1) + (u * fall).log1p()
            high = upper_float(value) if value.is_finite() else mechanism.parameters[0]
            return Interval(max(0.0, -upper_float(-value)), high)
    pure = find_pure_epsilon(mechanism)
    bounds = [] if math.isinf(pure) else [Interval(0.0, _bound_pure(pure, order))]
    if mechanism.kind == "GNMax" and mechanism.reached > 1:
        bounds.append(Interval(0.0, order * (mechanism.reached / mechanism.parameters[0]) ** 2 * (1.0 + 1e-12)))
    if mechanism.reached <= 8:  # of one person, in a chain of single moves
        try:
            bounds.append(_renyi_of_moves(mechanism, mechanism.reached, order, goal))
        except TooWideError:
            bounds *= mechanism.reached > 1
    return Interval(max(bound.lower for bound in bounds), min(bound.upper for bound in bounds)) if bounds else None


def _enclose_sampled_renyi(
    mechanism: Mechanism, sampling: Sampling, order: float, goal: float
) -> Interval[float] | None:
    rate = float(sampling.rate)
    pure, bounds = amplify_epsilon(find_pure_epsilon(mechanism), sampling), list[Interval[float]]()
    lower = 0.0  # for two classes the upper bound alone
    if (bits := compute_bit_laws(mechanism)) is not None:
        without, gain = list_pairs_of_bits(bits, mechanism.voters.reached)
        is_exact = np.all(without > 0.0, axis=1)  # others are too rare for floats
        divergence = _find_largest_renyi(without[is_exact], gain[is_exact], rate, order)
        if sampling.is_directed and np.all(is_exact):
            return divergence
        lower = divergence.lower
    if math.isfinite(pure):
        bounds.append(Interval(0.0, _bound_pure(pure, order)))
    if sampling.is_directed and mechanism.kind == "ExponentialMechanism":
        bounds.append(renyi_of_exponential(mechanism.parameters[0], rate, order))
    elif sampling.is_directed and mechanism.reached == 1 and mechanism.kind != "PermuteAndFlip":
        with suppress(TooWideError):
            lead, weights = mechanism.voters.K, get_log_weights(mechanism)
            bounds.append(renyi_of_label(weights, order, lead=lead, goal=goal, rate=rate))
    elif (unsampled := _enclose_certain_renyi(mechanism, order, 0.0)) is not None:
        bounds.append(bound_by_convexity(unsampled, sampling, order))
    if not mechanism.has_two_classes:
        lower = max((bound.lower for bound in bounds), default=0.0)
    return Interval(lower, min(bound.upper for bound in bounds)) if bounds else None


def _renyi_of_moves(mechanism: Mechanism, moved: int, order: float, goal: float = 0.0) -> Interval[float]:
    if moved == 1:
        pure = find_pure_epsilon(mechanism) / mechanism.reached
        bound = renyi_of_label(get_log_weights(mechanism), order, lead=mechanism.voters.K, goal=goal)
        return bound if math.isinf(pure) else Interval(bound.lower, min(bound.upper, _bound_pure(pure, order)))
    half, upper = moved // 2, math.inf
    for factor in _EXPONENT_FACTORS if goal else _EXPONENT_FACTORS[:1]:
        p = 1.0 + factor * (order - 1.0) / order * half / (moved - half)
        orders = p * order, p / (p - 1.0) * (order - 1.0 / p)
        first_cost = _renyi_of_moves(mechanism, moved - half, orders[0]).upper
        second_cost = _renyi_of_moves(mechanism, half, orders[1]).upper
        upper = min(upper, ((order - 1.0 / p) / (order - 1.0) * first_cost + second_cost) * (1.0 + 1e-12))
        if upper <= goal:
            break
    return Interval(0.0, upper)


@lru_cache(maxsize=1024)
def _enclose_delta(mechanism: Mechanism, epsilon: Fraction, goal: float) -> Interval[float]:
    if mechanism.kind in _PURE_KINDS:
        if epsilon >= Fraction(repr(float(mechanism.parameters[0]))):  # exactly: a pure total has δ = 0
            return Interval(0.0, 0.0)
        pure_ball, epsilon_ball = decimal_ball(mechanism.parameters[0]), ball(epsilon)
        if mechanism.kind == "PermuteAndFlip":  # at most that of randomized response
            return Interval(0.0, upper_float((pure_ball.exp() - epsilon_ball.exp()) / (1 + pure_ball.exp())))
        # max over u of u − e^x·u/(u + (1 − u)e^ε): two values of r, as for the curve
        gap = ((epsilon_ball - pure_ball) / 2).expm1()
        delta = gap * gap / -(-pure_ball).expm1()  # no power: of a ball around 0 it is none
        return Interval(max(0.0, -upper_float(-delta)), upper_float(delta))
    step = float(epsilon) / mechanism.reached
    group = math.fsum(math.exp(move * step) for move in range(mechanism.reached)) * (1.0 + 1e-12)
    if mechanism.kind == "GNMax":
        single_move = delta_of_gaussian_label(mechanism.parameters[0], step)
    else:
        single_move = delta_of_label(get_log_weights(mechanism), step, lead=mechanism.voters.K, goal=goal / group)
    return single_move if mechanism.reached == 1 else Interval(0.0, min(1.0, single_move.upper * group))


def _noise_weights(mechanism: Mechanism, max_terms: float) -> Array | None:
    with suppress(TooWideError):
        return np.asarray(np.exp(find_support(get_log_weights(mechanism), _MAX_LOG_WEIGHT, max_terms)[1]))
    return None


def get_log_weights(mechanism: Mechanism) -> Callable[[Array], Array]:
    if mechanism.kind == "GNMax":
        return gaussian(mechanism.parameters[0])
    if mechanism.kind == "LNMax":
        return lambda x: -mechanism.parameters[0] * np.abs(x)
    right, left, right_power, left_power = mechanism.parameters
    return lambda x: -np.where(x >= 0.0, (np.abs(x) / right) ** right_power, (np.abs(x) / left) ** left_power)


def _bound_pure(epsilon: float, order: float) -> float:
    alpha, e = arb(order), decimal_ball(epsilon)
    high = e - (1 + e.exp()).log()  # logarithms of both probabilities
    low = high - e
    value = ((alpha * high + (1 - alpha) * low).exp() + (alpha * low + (1 - alpha) * high).exp()).log() / (alpha - 1)
    return upper_float(value) if value.is_finite() else epsilon


_RATE_BITS = 400
_INITIAL_CELLS, _CELL_TOLERANCE, _MAX_CELLS, _MAX_HALVINGS = 64, 1e-6, 1 << 16, 60
_MAX_LOSS = Fraction(600)  # of a label for a person who takes part: δ beyond it counts as 0
_FLOAT_ERROR = 2.0**-49  # relative, of a probability and of an exponential


def amplify_epsilon(epsilon: float, sampling: Sampling | None) -> float:
    """Round up ln(1 + q(e^ε − 1)), the ε after subsampling."""
    if math.isinf(epsilon) or sampling is None:
        return epsilon
    with ctx.workprec(_RATE_BITS):
        value = (1 + ball(sampling.rate) * (ball(Fraction(epsilon)).exp() - 1)).log()
        return math.nextafter(float(upper_end(value)), math.inf)


def enclose_sampled_deltas(
    deltas: Callable[[Sequence[Fraction], Sequence[float]], list[Interval[Fraction]] | None],
    sampling: Sampling,
    epsilons: Sequence[Fraction],
    goal: Sequence[float],
    *,
    is_reversed: bool,
) -> list[Interval[Fraction]] | None:
    """Enclose δ for each ε by the ``deltas`` of a person who certainly takes part."""
    rate, enclosed, is_reversed = sampling.rate, list[Interval[Fraction]](), is_reversed and sampling.is_directed
    for epsilon, delta_goal in zip(epsilons, goal or (0.0,) * len(epsilons), strict=True):
        growth = exponential(epsilon)
        most_factor, least_factor = (1 - (1 - rate) * u if is_reversed else rate for u in (growth.lower, growth.upper))
        if most_factor <= 0:
            enclosed.append(Interval(Fraction(0), Fraction(0)))
            continue
        low, high = (
            rate * u / factor if is_reversed and factor > 0 else 1 + (u - 1) / rate
            for u, factor in ((growth.lower, most_factor), (growth.upper, least_factor))
        )
        with ctx.workprec(_RATE_BITS):
            shifted_epsilon = min(_MAX_LOSS, max(Fraction(0), -upper_end(-ball(low).log())))
        certain = deltas([shifted_epsilon], [delta_goal / float(most_factor)])
        if certain is None:
            return None
        # δ falls by no more than e^ε grows
        lower = least_factor * (certain[0].lower - high + exponential(shifted_epsilon).lower)
        upper = min(Fraction(1), most_factor * certain[0].upper)
        enclosed.append(Interval(max(Fraction(0), lower), upper, certain[0].rows))
    return enclosed


def list_pairs_of_ones(K: int, reached: int) -> Iterator[tuple[int, int]]:
    return (
        (ones, neighbor_ones)
        for ones in range(K + 1)
        for neighbor_ones in range(max(0, ones - reached), min(K, ones + reached) + 1)
    )


def list_pairs_of_bits(bits: Array, reached: int) -> tuple[Array, Array]:
    """Return the laws without a person, and how much more likely each label is with them, of all pairs of votes."""
    ones = np.array(list(list_pairs_of_ones(len(bits) - 1, reached)))
    without, with_person = bits[ones[:, 0]], bits[ones[:, 1]]
    gain = with_person - without
    rarer = np.where(without[:, 0] < 0.5, gain[:, 0], -gain[:, 1])  # differences near 1 lose digits
    return without, np.stack([rarer, -rarer], axis=1)


def _find_largest_delta(without: Array, gain: Array, epsilon: Fraction) -> Interval[Fraction]:
    """Enclose the largest δ at ε, up to the rounding of floats."""
    growth = math.expm1(epsilon)
    excess, error = gain - growth * without, _FLOAT_ERROR * (np.abs(gain) + growth * without)
    low, high = (float(np.max(np.sum(np.maximum(0.0, edge), axis=1))) for edge in (excess - error, excess + error))
    high += 1e-280 * bool(np.any(without <= 0.0))  # for underflow
    return Interval(Fraction(low), Fraction(min(1.0, high)), "all pairs of votes")


def _find_largest_renyi(without: Array, gain: Array, rate: float, order: float) -> Interval[float]:
    """Enclose the largest Rényi divergence for a person with this rate, up to the rounding of floats."""
    divergences = [Interval(0.0, 0.0)]
    directions = [(without, rate * gain), (without + rate * gain, -rate * gain)]
    for q, difference in directions[: 1 + (rate < 1.0)] if without.size else ():
        if np.any((q == 0.0) & (difference > 0.0)):
            return Interval(math.inf, math.inf)
        with np.errstate(divide="ignore", invalid="ignore"):
            t = np.where(q > 0.0, difference / q, 0.0)
            logs = order * np.log1p(np.maximum(t, -1.0))
            if np.max(logs) > _MAX_LOSS:
                logs = np.logaddexp.reduce(logs + np.log(q), axis=1)
                divergences.append(widen(float(np.max(logs)) / (order - 1.0)))
                continue
        growths = np.expm1(logs)
        sums = np.sum(q * np.maximum(0.0, growths - order * t), axis=1)
        errors = _FLOAT_ERROR * np.sum(q * (1.0 + np.abs(growths)) * np.minimum(1.0, order * np.abs(t)), axis=1)
        low, high = (
            math.log1p(max(0.0, float(np.max(sum_bound)))) / (order - 1.0)
            for sum_bound in (sums - errors, sums + errors)
        )
        divergences.append(Interval(widen(low).lower, widen(high).upper))
    return Interval(max(bound.lower for bound in divergences), max(bound.upper for bound in divergences))


def renyi_of_laws(pairs: Iterable[Laws], unit: int, order: float, rate: float = 1.0) -> Interval[float]:
    """Enclose the largest Rényi divergence of pairs of laws in units, without a person and with them at a rate."""
    pairs, bounds = iter(pairs), [Interval(0.0, 0.0)]
    while block := list(islice(pairs, 4096)):
        without = np.array([[x / unit for x in law] for law, _ in block])
        gain = np.array([[(y - x) / unit for x, y in zip(*laws, strict=True)] for laws in block])
        bounds.append(_find_largest_renyi(without, gain, rate, order))
    return Interval(max(bound.lower for bound in bounds), max(bound.upper for bound in bounds))


def bound_by_convexity(certain: Interval[float], sampling: Sampling, order: float) -> Interval[float]:
    if (order - 1.0) * certain.upper > _MAX_LOSS:
        return Interval(0.0, certain.upper)
    growth = float(sampling.rate) * math.expm1((order - 1.0) * certain.upper)
    return Interval(0.0, widen(math.log1p(growth) / (order - 1.0)).upper)


def renyi_of_exponential(epsilon: float, rate: float, order: float) -> Interval[float]:
    """Enclose the Rényi divergence of an exponential mechanism under Poisson subsampling.

    With Pr = (u, 1 − u), which two classes attain, the ratios of the laws are r/E r, r of e^{−ε} and 1. Both rise in u:
    the ends of a cell bound it.
    """
    penalties = [RenyiPenalty(order, rate, is_reversed=is_reversed) for is_reversed in (False, True)]
    tails = np.geomspace(1e-15, 0.5, _INITIAL_CELLS)
    edges = np.concatenate([[0.0], tails, 1.0 - tails[-2::-1], [1.0]])

    def cost(low: Array, high: Array) -> Array:
        falls = -np.log((1.0 - low) + low * math.exp(-epsilon)) - epsilon
        rises = -np.log((1.0 - high) + high * math.exp(-epsilon))
        with np.errstate(invalid="ignore"):
            costs = [high * penalty.weigh(falls) + (1.0 - low) * penalty.weigh(rises) for penalty in penalties]
        return np.asarray(np.nan_to_num(np.max(costs, axis=0), nan=math.inf, posinf=math.inf))

    low, high, best, largest = edges[:-1], edges[1:], 0.0, 0.0
    for step in range(_MAX_HALVINGS):
        bounds, middle = cost(low, high), 0.5 * (low + high)
        attained = cost(middle, middle)
        best = max(best, float(np.max(attained, where=np.isfinite(attained), initial=0.0)))
        open_cells = bounds > best * (1.0 + _CELL_TOLERANCE)
        is_last = step + 1 == _MAX_HALVINGS or 2 * np.count_nonzero(open_cells) > _MAX_CELLS
        largest = max(largest, best, float(np.max(bounds if is_last else bounds[~open_cells], initial=0.0)))
        if is_last or not np.any(open_cells):
            break
        starts, cuts, stops = low[open_cells], middle[open_cells], high[open_cells]
        low, high = np.concatenate([starts, cuts]), np.concatenate([cuts, stops])
    return Interval(widen(math.log1p(best) / (order - 1.0)).lower, widen(math.log1p(largest) / (order - 1.0)).upper)
