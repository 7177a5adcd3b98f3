"""The claims of a mechanism's file: what one label costs, by arithmetic that shares nothing with the prover.

==========================  ==========================================================================================
mechanism                   what one label costs, where a person moves t votes
==========================  ==========================================================================================
GNMax, LNMax, ShapedMax     `darrm.verify.noisy_labels` for t = 1; beyond, t moves are a chain, D_α(P‖R) ≤
                            (α − 1/p)/(α − 1)·D_{pα}(P‖Q) + D_{q(α − 1/p)}(Q‖R), 1/p + 1/q = 1 [M17, Proposition 11],
                            and δ_t(tε) ≤ δ(ε)·(1 + e^ε + … + e^{(t−1)ε}); or two noisy counts that change by t each:
                            α·t²/σ² of Gaussian, a pure 2tγ of Laplace noise
ExponentialMechanism        e_c ∝ e^{ε·votes/(2t)}: the odds of two classes change by at most e^ε, so it is (ε, 0)-
                            private [MT07]. Pr' = Pr·r/E r with e^{−ε/2} ≤ r ≤ e^{ε/2}, and E[r^{1−α}]·(E r)^{α−1} is
                            convex in r: with u = Pr[r = e^{−ε/2}], 0 ≤ u ≤ 1, two values are the worst, and both
                            factors are logarithmically concave in u.
PermuteAndFlip              (ε, 0)-private: Pr[c] = e_c·∫ Π (1 − e_o·s) ds over the others, s in [0, 1] [MS20]
==========================  ==========================================================================================
"""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from itertools import takewhile
from typing import Any

import numpy as np
from flint import arb, ctx

from darrm.errors import DarrmError
from darrm.losses.charges import Charge
from darrm.mechanisms.noisy_max import GNMax, LNMax
from darrm.mechanisms.noisy_maximum import NoisyMaximum
from darrm.mechanisms.selection import ExponentialMechanism, PermuteAndFlip
from darrm.problem import is_law_a_gamma
from darrm.sampling import Sampling
from darrm.system.files import Json
from darrm.verify import drawn
from darrm.verify.answering import OfMechanism, Recomputed
from darrm.verify.exact import Enclosure
from darrm.verify.members import judge_reach, judge_sampling
from darrm.verify.noisy_labels import (
    Array,
    Between,
    TooWideError,
    delta_of_gaussian_label,
    delta_of_label,
    gaussian,
    renyi_of_label,
)
from darrm.verify.verdicts import ABOUT_MECHANISM, CONSISTENT, FALSE, PROVED, UNKNOWN, Verdict, judged

_LEAST = 1e-150  # of a cost: squares of less are next to no floats
_DIGITS = 2e-9  # relative: floats on either side; says "nine digits"
_BISECTIONS, _PRECISION = 400, 512  # bits
_MOST_MOVES = 8  # of one person, that are followed one by one
_AROUND = (1.0, 0.84, 1.19, 0.71, 1.41, 0.5, 2.0)  # of p − 1 that is best for curves linear in the order
_HELD, _MOST_TERMS = 700.0, 1 << 27  # −log of weights that are summed, and how many for two classes: a second
_MOST_POINTS = 1 << 23  # of noise that is added up one by one
_RAREST = 1e-290  # of probabilities: less counts as none
_CHECKED, _ORDERS = 3, (4.0, 16.0, 64.0)  # points of a profile, orders of a curve: a second each where noise is wide


@dataclass(frozen=True, eq=False)
class ExactMechanism(OfMechanism[NoisyMaximum]):
    """A mechanism's costs, recomputed."""

    def renyi(self, order: float, enough: float = 0.0) -> Between | None:
        """Enclose the Rényi divergence of a label; None where it takes too long."""
        if self.voters.sampled is None:
            return _renyi(self.mechanism, order, enough)
        return _renyi_of_drawn(self.mechanism, self.voters.sampled, order, enough)

    def deltas(
        self, epsilons: Sequence[Fraction], enough: Sequence[float] = (), *, back: bool = False
    ) -> list[Enclosure] | None:
        """Enclose the smallest δ of one label for each ε; None where it takes too long."""

        def certain(epsilons: Sequence[Fraction], enough: Sequence[float]) -> list[Enclosure] | None:
            return _deltas(self.mechanism, tuple(epsilons), tuple(enough) or (0.0,) * len(epsilons))

        sampling, bits = self.voters.sampled, bits_of(self.mechanism)
        if sampling is None:
            return certain(epsilons, enough)
        if bits is None:
            own = drawn.through_certain(certain, sampling, epsilons, enough, back=back)
            two = is_law_a_gamma(self.classes)  # of noise too wide to be looked at: what bounds more is not attained
            return [replace(one, lower=Fraction(0)) for one in own] if own is not None and two else own
        # of a fixed sample what costs most is one direction of these
        only = (back or None) if drawn.is_directed(sampling) else False
        sides = drawn.sides_of_bits(bits, self.voters.reached, float(drawn.rate_of(sampling)), back=only)
        return drawn.float_deltas(sides, epsilons)

    def in_words(self, labels: str) -> str:
        """Say what one of the labels tells."""
        return f"{labels} is one of {self.classes} classes, what {self.mechanism.charge().what} answers to their votes."


def judge_mechanism(data: Json) -> tuple[NoisyMaximum | None, list[Verdict]]:
    """Judge every claim of a mechanism's file but those of a plan; the mechanism is None if it cannot be used."""
    claim = "it is a mechanism, with what is needed to release from it and nothing else"
    try:
        mechanism = NoisyMaximum.from_json(data)
        charge = mechanism.charge()  # noise that is next to none has no cost in floats
    except (DarrmError, ValueError, TypeError, KeyError, ArithmeticError, AttributeError, RecursionError) as error:
        return None, [Verdict(ABOUT_MECHANISM, claim, FALSE, str(error) or repr(error))]
    reason = f"written again, it is equal; the SHA-256 of what it holds is {mechanism.digest}"
    verdicts = [Verdict(ABOUT_MECHANISM, claim, CONSISTENT, reason)]
    verdicts += judge_costs(ExactMechanism(mechanism), charge, ABOUT_MECHANISM)
    verdicts.append(judge_reach(mechanism.voters, ABOUT_MECHANISM))
    verdicts += judge_sampling(mechanism.voters.sampled, ABOUT_MECHANISM)
    return mechanism, verdicts


def judge_costs(exact: Recomputed, charge: Charge, about: str) -> Iterator[Verdict]:
    """Judge the descriptions of what one query costs: guarantee, Rényi curve, profile, and strings that vanish."""
    if isinstance(exact, ExactMechanism) and exact.mechanism.threshold is not None:
        yield _judge_vanishing(exact.mechanism, exact.mechanism.threshold, charge, about)
    if charge.guarantee is not None:
        yield from _judge_guarantee(exact, charge, about)
    if charge.renyi is not None and np.any(np.isfinite(charge.renyi.values)):
        known = charge.renyi.orders[np.isfinite(charge.renyi.values)]
        orders = sorted({float(known[known <= most][-1]) for most in _ORDERS if known.size and known[0] <= most})
        stored = [float(charge.renyi.values[charge.renyi.orders == order][0]) for order in orders]
        # what is slow is not tried again
        ours = list(takewhile(lambda own: own is not None, map(exact.renyi, orders, stored)))
        ours += [None] * (len(orders) - len(ours))
        computed = [f"{order:g}" for order, own in zip(orders, ours, strict=True) if own is not None]
        shown = computed or [f"{order:g}" for order in orders]
        yield _compared(about, "the Rényi curve of a query", f"orders {', '.join(shown)}", stored, ours)
    if charge.profile is not None:
        epsilons, *sides = charge.profile.parts
        size = len(epsilons)
        places = sorted({(size - 1) * place // (_CHECKED + 1) for place in range(1, _CHECKED + 1)})
        names = ("the privacy profile of a query", "the profile of a query from without a person to with him")
        for back, (what, side) in enumerate(zip(names, sides, strict=False)):
            stored = [side[place] for place in places]
            found = exact.deltas([Fraction(epsilons[place]) for place in places], stored, back=bool(back))
            ours = [None] * len(places) if found is None else [Between(float(e.lower), float(e.upper)) for e in found]
            yield _compared(about, what, f"{len(places)} of {size} points", stored, ours)


def _judge_vanishing(mechanism: NoisyMaximum, threshold: int, charge: Charge, about: str) -> Verdict:
    """Add up the noise beyond the threshold, for all ways in which one person says strings that nobody else says."""
    stated, reached, whole = charge.vanishing, mechanism.mechanism.reached, _weights_of(mechanism, _MOST_POINTS)
    claim = f"what one person alone says is an answer with probability {stated:.6g} at most"
    if whole is None:
        return Verdict(about, claim, UNKNOWN, "its noise is too wide to be added up here")
    width = whole.size // 2
    tails = np.cumsum(whole[::-1])[::-1] / np.sum(whole)
    alone = [float(tails[threshold - n + width]) if threshold - n <= width else 0.0 for n in range(1, reached + 1)]
    worst = max(reached / n * tail for n, tail in enumerate(alone, start=1))
    attained = max(-math.expm1(reached // n * math.log1p(-min(tail, 0.5))) for n, tail in enumerate(alone, start=1))
    if stated < attained * (1.0 - _DIGITS):
        return Verdict(about, claim, FALSE, f"{attained:.9g} is attained")
    how = PROVED if stated >= worst * (1.0 - _DIGITS) else CONSISTENT
    return Verdict(about, claim, how, f"its noise reaches the threshold with {worst:.9g}, added up here")


def _judge_guarantee(exact: Recomputed, charge: Charge, about: str) -> Iterator[Verdict]:
    if not isinstance(exact, ExactMechanism) or charge.guarantee is None:
        return
    epsilon, claim = own_epsilon(exact.mechanism), f"one label is {charge.guarantee}-differentially private"
    sampling, anew = exact.voters.sampled, ""
    if sampling is not None:
        epsilon = drawn.pure_epsilon(epsilon, sampling)
        anew = f", and is drawn with probability {float(drawn.rate_of(sampling)):g}"
    moves = f"where a person moves {exact.mechanism.mechanism.reached} votes{anew}"
    reason = f"by theorem it is ({epsilon:g}, 0)-private {moves}"
    yield judged(about, claim, reason, holds=charge.guarantee.epsilon >= epsilon * (1.0 - _DIGITS), how=PROVED)


def _compared(about: str, what: str, where: str, stored: Sequence[float], ours: Sequence[Between | None]) -> Verdict:
    known = [(theirs, own) for theirs, own in zip(stored, ours, strict=True) if own is not None]
    claim = f"{what} is at least what it costs, at {where}"
    if not known:
        return Verdict(about, claim, UNKNOWN, "it takes too long here: wide noise, large orders or many votes")
    below = [(theirs, own) for theirs, own in known if theirs < own.low - _LEAST]
    if below:
        theirs, own = below[0]
        return Verdict(about, claim, FALSE, f"{theirs:.9g} is stated and {own.low:.9g} is attained")
    most = max(own.high / theirs if theirs else (math.inf if own.high > 0.0 else 1.0) for theirs, own in known)
    if most <= 1.0 + _DIGITS:
        reason = f"arithmetic of its own finds at most {min(1.0, most):.4f} of it, to nine digits"
        return Verdict(about, claim, PROVED, reason)
    reason = f"arithmetic of its own proves {most:.6g} times as much; what it finds attained is less"
    return Verdict(about, claim, CONSISTENT, reason)


def bits_of(mechanism: NoisyMaximum) -> Array | None:
    """Compute Pr[0] and Pr[1] for each number of ones, (K + 1, 2); None of more classes, or where it takes too long."""
    return _bits(mechanism) if is_law_a_gamma(mechanism.classes) else None


@lru_cache(maxsize=16)
def _bits(mechanism: NoisyMaximum) -> Array | None:
    inner, K = mechanism.mechanism, mechanism.voters.K
    leads = np.arange(K % 2, K + 1, 2)
    if isinstance(inner, ExponentialMechanism | PermuteAndFlip):
        odds = np.exp(-inner.epsilon * leads / (2.0 * inner.reached))
        lies = odds / (1.0 + odds) if isinstance(inner, ExponentialMechanism) else 0.5 * odds
    else:
        f = _weights_of(mechanism, _MOST_TERMS / K)
        if f is None:
            return None
        # Pr[D > lead] + Pr[D = lead]/2 of the difference D of two noises
        wins = np.append(np.cumsum(f[::-1])[::-1], 0.0)[1:] + 0.5 * f
        lies = np.array([np.sum(f[: f.size - lead] * wins[lead:]) for lead in leads if lead < f.size]) / np.sum(f) ** 2
        lies = np.pad(lies, (0, leads.size - lies.size))
    lies[lies < _RAREST] = 0.0
    ones = np.arange(K + 1)
    rare = lies[np.abs(2 * ones - K) // 2]
    zero = np.where(2 * ones > K, rare, 1.0 - rare)
    return np.stack([zero, np.where(2 * ones < K, rare, 1.0 - rare)], axis=1)


def own_epsilon(mechanism: NoisyMaximum) -> float:
    """Compute the pure ε of one label; ∞ where there is none."""
    inner = mechanism.mechanism
    if isinstance(inner, LNMax):
        return 2.0 * inner.reached * inner.gamma * (1.0 + 1e-15)
    return inner.epsilon if isinstance(inner, ExponentialMechanism | PermuteAndFlip) else math.inf


@lru_cache(maxsize=256)
def _renyi(mechanism: NoisyMaximum, order: float, enough: float) -> Between | None:
    inner = mechanism.mechanism
    if isinstance(inner, PermuteAndFlip):
        return Between(0.0, _pure(inner.epsilon, order))
    if isinstance(inner, ExponentialMechanism):
        return _of_exponential(inner.epsilon, order)
    bounds = [] if math.isinf(own_epsilon(mechanism)) else [Between(0.0, _pure(own_epsilon(mechanism), order))]
    if isinstance(inner, GNMax) and inner.reached > 1:
        bounds.append(Between(0.0, order * (inner.reached / inner.sigma) ** 2 * (1.0 + 1e-12)))
    if inner.reached <= _MOST_MOVES:
        try:
            bounds.append(_of_moves(mechanism, inner.reached, order, enough))
        except TooWideError:
            bounds *= inner.reached > 1
    return Between(max(one.low for one in bounds), min(one.high for one in bounds)) if bounds else None


def _renyi_of_drawn(mechanism: NoisyMaximum, sampling: Sampling, order: float, enough: float) -> Between | None:
    inner, rate = mechanism.mechanism, float(drawn.rate_of(sampling))
    pure, bounds = drawn.pure_epsilon(own_epsilon(mechanism), sampling), list[Between]()
    low = 0.0  # of two classes what bounds more is not attained
    if (bits := bits_of(mechanism)) is not None:
        sides = drawn.sides_of_bits(bits, mechanism.voters.reached, rate)
        held = [np.all(q > 0.0, axis=1) for q, _ in sides]
        found = drawn.renyi_of_sides([(q[own], gain[own]) for own, (q, gain) in zip(held, sides, strict=True)], order)
        if drawn.is_directed(sampling) and np.all(held):
            return found
        low = found.low
    if math.isfinite(pure):
        bounds.append(Between(0.0, _pure(pure, order)))
    if drawn.is_directed(sampling) and isinstance(inner, ExponentialMechanism):
        bounds.append(drawn.renyi_of_exponential(inner.epsilon, rate, order))
    elif drawn.is_directed(sampling) and inner.reached == 1 and not isinstance(inner, PermuteAndFlip):
        with suppress(TooWideError):
            weights, K = log_weights_of(mechanism), mechanism.voters.K
            bounds.append(renyi_of_label(weights, order, lead=K, enough=enough, rate=rate))
    elif (certain := _renyi(mechanism, order, 0.0)) is not None:
        bounds.append(drawn.of_convexity(certain, sampling, order))
    if not is_law_a_gamma(mechanism.classes):
        low = max((one.low for one in bounds), default=0.0)
    return Between(low, min(one.high for one in bounds)) if bounds else None


def _of_moves(mechanism: NoisyMaximum, moved: int, order: float, enough: float = 0.0) -> Between:
    if moved == 1:
        pure = own_epsilon(mechanism) / mechanism.mechanism.reached
        found = renyi_of_label(log_weights_of(mechanism), order, lead=mechanism.voters.K, enough=enough)
        return found if math.isinf(pure) else Between(found.low, min(found.high, _pure(pure, order)))
    second, high = moved // 2, math.inf
    for factor in _AROUND if enough else _AROUND[:1]:
        p = 1.0 + factor * (order - 1.0) / order * second / (moved - second)
        orders = p * order, p / (p - 1.0) * (order - 1.0 / p)
        first, last = (_of_moves(mechanism, *one).high for one in zip((moved - second, second), orders, strict=True))
        high = min(high, ((order - 1.0 / p) / (order - 1.0) * first + last) * (1.0 + 1e-12))
        if high <= enough:
            break
    return Between(0.0, high)


@lru_cache(maxsize=64)
def _deltas(
    mechanism: NoisyMaximum, epsilons: tuple[Fraction, ...], enough: tuple[float, ...]
) -> list[Enclosure] | None:
    inner, found, lead = mechanism.mechanism, [], mechanism.voters.K
    for epsilon, asked in zip(epsilons, enough, strict=True):
        if isinstance(inner, ExponentialMechanism):
            # max over u of u − e^x·u/(u + (1 − u)e^ε): two values of r, as for the curve
            e, at = ball(inner.epsilon), arb(epsilon.numerator) / epsilon.denominator
            delta = ((at - e) / 2).expm1() ** 2 / -(-e).expm1() if at < e else arb(0)
            found.append(Between(max(0.0, -upper(-delta)), upper(delta)))
        elif isinstance(inner, PermuteAndFlip):  # at most that of randomized response
            e, at = ball(inner.epsilon), arb(epsilon.numerator) / epsilon.denominator
            found.append(Between(0.0, upper((e.exp() - at.exp()) / (1 + e.exp())) if at < e else 0.0))
        else:
            step = float(epsilon) / inner.reached
            group = math.fsum(math.exp(place * step) for place in range(inner.reached)) * (1.0 + 1e-12)
            try:
                one = (
                    delta_of_gaussian_label(inner.sigma, step)
                    if isinstance(inner, GNMax)
                    else delta_of_label(log_weights_of(mechanism), step, lead=lead, enough=asked / group)
                )
                found.append(one if inner.reached == 1 else Between(0.0, min(1.0, one.high * group)))
            except TooWideError:
                return None
    return [Enclosure(Fraction(own.low), Fraction(own.high), "all places of two classes") for own in found]


def _weights_of(mechanism: NoisyMaximum, most: float) -> Array | None:
    weights, width = log_weights_of(mechanism), 16
    while min(-weights(np.array([-width, width], dtype=np.float64))) < _HELD:
        width *= 2
        if width > most:
            return None
    return np.exp(weights(np.arange(-width, width + 1).astype(np.float64)))


def log_weights_of(mechanism: NoisyMaximum) -> Callable[[Array], Array]:
    """Return log w(x) of the noise, from the file's parameters alone."""
    inner: Any = mechanism.mechanism
    if isinstance(inner, GNMax):
        return gaussian(inner.sigma)
    if isinstance(inner, LNMax):
        return lambda x: -inner.gamma * np.abs(x)
    noise = inner.noise
    return lambda x: (
        -np.where(
            x >= 0.0, (np.abs(x) / noise.right) ** noise.right_power, (np.abs(x) / noise.left) ** noise.left_power
        )
    )


def _pure(epsilon: float, order: float) -> float:
    alpha, e = arb(order), ball(epsilon)
    high = e - (1 + e.exp()).log()  # logarithms of both probabilities
    low = high - e
    value = ((alpha * high + (1 - alpha) * low).exp() + (alpha * low + (1 - alpha) * high).exp()).log() / (alpha - 1)
    return upper(value) if value.is_finite() else epsilon


def _of_exponential(epsilon: float, order: float) -> Between:
    """Enclose the largest log E[r^{1−α}]·(E r)^{α−1}/(α − 1) over u, with r scaled to e^{−ε} and 1: it is concave."""
    with ctx.workprec(_PRECISION):
        alpha, e = arb(order), ball(epsilon)
        rise, fall = ((alpha - 1) * e).expm1(), (-e).expm1()

        def logarithm(u: arb) -> arb:
            return (1 + u * rise).log() + (alpha - 1) * (1 + u * fall).log()

        def slope(u: arb) -> arb:
            return rise / (1 + u * rise) + (alpha - 1) * fall / (1 + u * fall)

        low, high = arb(0), arb(1)
        for step in range(_BISECTIONS):
            # not in the middle, where the slope may be 0, which no ball decides
            middle = (low + (high - low) * (step % 3 + 2) / 7).mid()
            if slope(middle) > 0:
                low = middle
            elif slope(middle) < 0:
                high = middle
        most = (logarithm(low) + slope(low) * (high - low)) / (alpha - 1)  # a tangent, left of the top
        least = logarithm(low) / (alpha - 1)
        return Between(max(0.0, -upper(-least)), upper(most) if most.is_finite() else epsilon)


def ball(parameter: float) -> arb:
    """Enclose the number that the shortest decimal of a float means."""
    top, bottom = Fraction(repr(float(parameter))).as_integer_ratio()
    return arb(top) / bottom


def upper(value: arb) -> float:
    """Round up to a float."""
    return math.nextafter(float(value.upper()), math.inf)
