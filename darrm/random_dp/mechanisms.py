"""Sensitivity-induced mechanisms: private on pairs of data sets whose values differ by at most Δ [S, Definition 9].

==================  ===============================  ======  =====================================================
class               [S]                              norm    guarantee if ‖f(D) − f(D′)‖ ≤ Δ
==================  ===============================  ======  =====================================================
`Laplace`           Corollary 10                     l1      ε
`Gaussian`          Corollary 12, recalibrated       l2      (ε, δ)
`Exponential`       Corollary 13                     sup     ε
`Posterior`         Section 4, "future work"         sup     ε
`Bernstein`         Corollary 14, separate module    sup     ε
==================  ===============================  ======  =====================================================

At Δ = 0 there is no noise: both values are equal. Caution for a SAMPLED Δ̂ = 0: on a share of at most γ of the pairs
the function differs, and an observer distinguishes these pairs with certainty.

Floating-point noise leaks a value through the gaps of the float grid. So a value v becomes z = round(v / step), and the
release is (z + noise)·step with integer noise of an exactly known law. Rounding moves each of the d coordinates by at
most half a step, so two values at distance Δ have a lattice distance of at most

    Δ/step + d  in L1,        Δ/step + √d  in L2,        Δ/step + 1  in the largest coordinate

steps, and the noise is scaled to this distance. The step is a power of two near 2⁻¹⁰·Δ; it depends on Δ and d only.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar, Generic, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from darrm.loss.gaussian import concentrated_sigma
from darrm.numerics.exact_sampling import (
    UniformBelow,
    bernoulli_exp,
    discrete_gaussian,
    discrete_laplace,
    uniform_below,
)
from darrm.privacy import PrivacyPair, PrivacyParams
from darrm.util import checks

Norm = str | Callable[[NDArray[np.float64]], float]

_ROUNDING_SHARE = Fraction(1, 2**10)  # largest relative increase of the sensitivity by rounding
_MIN_STEP_EXPONENT = -1000  # multiples of 2^-1000 are floats; smaller sensitivities are rounded up
_MAX_INT64_STEPS = 2.0**62


def canonicalize(value: ArrayLike) -> NDArray[np.float64]:
    """Copy numbers as 64-bit floats in C order, with one zero: without noise, -0.0 would distinguish equal arrays."""
    numbers = np.array(value, dtype=np.float64, order="C")
    numbers += 0.0  # -0.0 + 0.0 is 0.0
    return numbers


def choose_step(sensitivity: float, coordinates: int) -> Fraction:
    """Choose the lattice's step: the largest power of two that is at most 2⁻¹⁰·Δ/d.

    >>> choose_step(1.0, 3)
    Fraction(1, 4096)
    """
    target = Fraction(sensitivity) * _ROUNDING_SHARE / coordinates
    exponent = target.numerator.bit_length() - target.denominator.bit_length()
    exponent -= Fraction(2) ** exponent > target  # the bit lengths imply 2^(exponent - 1) < target < 2^(exponent + 1)
    return Fraction(2) ** max(exponent, _MIN_STEP_EXPONENT)


def to_lattice(value: NDArray[np.float64], step: Fraction) -> NDArray[np.generic]:
    """Round values exactly to numbers of steps, half to even: int64 if they fit, else Python integers."""
    with np.errstate(over="ignore"):
        steps = value * float(1 / step) if step >= Fraction(1, 2**1000) else np.full(value.shape, np.inf)
    if np.all(np.abs(steps) < _MAX_INT64_STEPS):
        return np.rint(steps).astype(np.int64)  # a product by a power of two is exact
    return np.array([round(Fraction(float(number)) / step) for number in value], dtype=object)


def from_lattice(steps: list[int], step: Fraction) -> NDArray[np.float64]:
    """Convert numbers of steps to the nearest floats, ±∞ on overflow: post-processing."""
    return np.array([_round_to_float(count * step) for count in steps], dtype=np.float64)


def _round_to_float(number: Fraction) -> float:
    try:
        return float(number)
    except OverflowError:
        return math.inf if number > 0 else -math.inf


_BATCH_SIZE = 64  # proposals per batch of the exponential mechanism
_MAX_TICKETS = 1_000_000  # the sum of the weights of a prior
_MAX_LIKELIHOOD_STEP = Fraction(1, 2**20)  # the largest step of log-likelihoods

Released_co = TypeVar("Released_co", covariant=True)
Candidate = TypeVar("Candidate")


class Mechanism(Generic[Released_co]):
    """A mechanism that is (ε, δ)-private on pairs whose values differ by at most the sensitivity, in a norm."""

    privacy: PrivacyParams
    norm: Norm
    noise: ClassVar[str]  # its name

    def release(self, value: ArrayLike, sensitivity: float, *, rng: np.random.Generator | None = None) -> Released_co:
        """Release a value privately; ``rng`` is for experiments only."""
        raise NotImplementedError

    def describe_noise(self, sensitivity: float, rng: np.random.Generator | None) -> str:
        """Describe the noise and its randomness."""
        if sensitivity == 0.0:
            return "no noise: the sampled sensitivity is 0, so covered pairs give the same value"
        if rng is None:
            return f"{self.noise}, drawn exactly from the operating system"
        return f"{self.noise}, drawn from a pseudo-random generator: for experiments only, nothing is guaranteed"


class AddedNoise(Mechanism[NDArray[np.float64]]):
    def release(
        self, value: ArrayLike, sensitivity: float, *, rng: np.random.Generator | None = None
    ) -> NDArray[np.float64]:
        """Release a number or an array: the value, rounded to the lattice, plus noise.

        `ValueError` if the value is not finite, or the sensitivity is negative or not finite.
        """
        numbers = check_release(value, sensitivity)
        if sensitivity == 0 or numbers.size == 0:
            return numbers
        step = choose_step(float(sensitivity), numbers.size)
        noise = self.draw(Fraction(float(sensitivity)) / step, numbers.size, rng)
        value_steps = to_lattice(numbers.ravel(), step)
        # Python integers: the sum may exceed 64 bits
        sums = [int(steps) + int(noise_steps) for steps, noise_steps in zip(value_steps, noise, strict=True)]
        return from_lattice(sums, step).reshape(numbers.shape)

    def draw(self, steps: Fraction, size: int, rng: np.random.Generator | None) -> NDArray[np.int64]:
        raise NotImplementedError


@dataclass(frozen=True)
class Laplace(AddedNoise):
    """The Laplace mechanism on a lattice: (ε, 0)-private, ε > 0, if ‖f(D) − f(D′)‖₁ ≤ Δ [S, Corollary 10].

    >>> Laplace(PrivacyParams(0.5)).release([1.0, 2.0], 0.0)
    array([1., 2.])
    """

    privacy: PrivacyParams
    norm = "l1"
    noise = "discrete Laplace noise on a lattice"

    def __post_init__(self) -> None:
        object.__setattr__(self, "privacy", check_pure(self.privacy, "Laplace"))

    def draw(self, steps: Fraction, size: int, rng: np.random.Generator | None) -> NDArray[np.int64]:
        """Draw noise of scale s = ⌈(Δ/step + d)/ε⌉ steps, with Δ/step in ``steps`` and d in ``size``.

        Pr[output | z] ∝ exp(−‖output − z‖₁/s) changes by at most e^{‖z − z′‖₁/s} ≤ e^ε.
        """
        scale = math.ceil((steps + size) / self.privacy.exact_epsilon)
        return discrete_laplace(Fraction(scale), size, uniform_below(rng))


@dataclass(frozen=True)
class Gaussian(AddedNoise):
    """The Gaussian mechanism on a lattice: (ε, δ)-private, both positive, if ‖f(D) − f(D′)‖₂ ≤ Δ [S, Corollary 12].

    Departure: [S] uses σ = √(2 log(1.25/δ))·Δ/ε, proved for ε ≤ 1 only. This class uses the smaller σ of
    `darrm.loss.gaussian.concentrated_sigma`, valid for every ε and for discrete noise.

    >>> Gaussian(PrivacyParams(0.5, 1e-6)).release(3.0, 0.0)
    array(3.)
    """

    privacy: PrivacyParams
    norm = "l2"
    noise = "discrete Gaussian noise on a lattice"

    def __post_init__(self) -> None:
        object.__setattr__(self, "privacy", concentrated_sigma(self.privacy).target)

    @property
    def noise_per_sensitivity(self) -> float:
        """The standard deviation of the noise for Δ = 1, before rounding: σ = 1/√(2ρ)."""
        return concentrated_sigma(self.privacy).value

    def draw(self, steps: Fraction, size: int, rng: np.random.Generator | None) -> NDArray[np.int64]:
        """Draw noise of variance ⌈(Δ/step + √d)²/(2ρ)⌉ steps, as `Laplace.draw`: ρ-concentrated DP.

        The bound ρ = Δ²/(2σ²) holds for integer vectors with discrete Gaussian noise as in the continuous case [CKS20].
        """
        root = math.isqrt(size - 1) + 1  # an upper bound on √d
        variance = math.ceil((steps + root) ** 2 / (2 * Fraction(concentrated_sigma(self.privacy).settings["rho"])))
        return discrete_gaussian(Fraction(variance), size, uniform_below(rng))


@dataclass(frozen=True)
class Exponential(Mechanism[Candidate]):
    """The exponential mechanism: choose r with probability ∝ exp(ε s(D, r)/(2Δ)) from a finite set [S, Corollary 13].

    Scores are rounded to the lattice, q = round(s/step). The law is exactly ∝ exp(q(r)/t) with the integer
    t = ⌈2(Δ/step + 1)/ε⌉, drawn by rejection. It is (ε, 0)-private, ε > 0.

    >>> mechanism = Exponential(PrivacyParams(1), ("red", "green"), score=list.count)
    >>> mechanism.scores(["red", "red", "green"])
    array([2., 1.])
    >>> mechanism.release([2.0, 1.0], 0.0)
    'red'
    """

    privacy: PrivacyParams
    candidates: Sequence[Candidate]  # the possible outputs, at least one
    score: Callable[..., float] | None = None  # of data and candidate, for `scores`
    norm = "sup"
    noise = "a choice by rejection with lattice scores"

    def __post_init__(self) -> None:
        object.__setattr__(self, "privacy", check_pure(self.privacy, "exponential"))
        if len(self.candidates) == 0:
            checks.fail("candidates", self.candidates, "at least one candidate")

    def scores(self, data: object) -> NDArray[np.float64]:
        """Score every candidate on a data set: the function f(D) = s(D, ·) whose sensitivity is sampled."""
        if self.score is None:
            advice = "give it to Exponential, or pass the scores"
            checks.fail("score", None, "a callable score(data, candidate)", advice)
        return np.array([self.score(data, candidate) for candidate in self.candidates], dtype=np.float64)

    def release(self, value: ArrayLike, sensitivity: float, *, rng: np.random.Generator | None = None) -> Candidate:
        """Choose a candidate from all scores, one finite score for each; at Δ = 0, uniformly among the best."""
        numbers = check_release(value, sensitivity)
        if numbers.shape != (len(self.candidates),):
            checks.fail("value", numbers.shape, f"one score a candidate, shape ({len(self.candidates)},)")
        below = uniform_below(rng)
        if sensitivity == 0:
            best_places = np.flatnonzero(numbers == np.max(numbers))
            return self.candidates[int(best_places[int(below(np.array([best_places.size]))[0])])]
        step = choose_step(float(sensitivity), 1)
        return self._choose(numbers, step, self._find_min_scale(sensitivity, step), np.arange(len(numbers)), below)

    def _find_min_scale(self, sensitivity: float, step: Fraction) -> int:
        """Return the least t with which exp(q/t) is private."""
        return math.ceil(2 * (Fraction(float(sensitivity)) / step + 1) / self.privacy.exact_epsilon)

    def _choose(
        self, scores: NDArray[np.float64], step: Fraction, scale: int, tickets: NDArray[np.int64], below: UniformBelow
    ) -> Candidate:
        """Draw a candidate r with probability ∝ its number of tickets times exp(q(r)/t)."""
        steps = to_lattice(scores, step).astype(object)
        gaps = np.max(steps) - steps
        if max(gaps) < 2**54 and scale < 2**54:
            gaps = gaps.astype(np.int64)
        limits = np.full(_BATCH_SIZE, len(tickets))
        while True:
            proposals = tickets[below(limits)]
            hits = np.flatnonzero(bernoulli_exp(gaps[proposals], np.full(_BATCH_SIZE, scale, dtype=gaps.dtype), below))
            if hits.size:
                return self.candidates[int(proposals[hits[0]])]


@dataclass(frozen=True)
class Posterior(Exponential[Candidate]):
    """Draw a parameter θ of a finite set from a posterior: Pr[θ] ∝ ξ(θ)·p(D | θ)^τ, τ = min(1, ε/(2Δ)).

    The exponential mechanism with the base measure ξ: (ε, 0)-private, ε > 0, if the log-likelihoods of D and D′ differ
    by at most Δ at every θ. With 2Δ ≤ ε it draws from the posterior itself. [S, Section 4] leaves it to future work,
    with a Lipschitz condition on all pairs of data sets; here neighbors suffice.

    ``score(data, theta)`` is the log-likelihood; ``prior`` are weights ξ, whole numbers of at least 1 with a sum of at
    most a million, by default 1.

    >>> coins = Posterior(PrivacyParams(1), (0.2, 0.5, 0.8), prior=(1, 2, 1))
    >>> coins.release([-50.0, -7.0, -90.0], 0.1)
    0.5
    """

    prior: Sequence[int] | None = None
    noise = "a posterior sample by rejection with lattice log-likelihoods"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.prior is not None:
            for place, weight in enumerate(self.prior):
                checks.integer_at_least(1, **{f"prior of candidate {place}": weight}, advice="a whole number")
            if len(self.prior) != len(self.candidates) or sum(self.prior) > _MAX_TICKETS:
                advice = f"their sum at most {_MAX_TICKETS:,}"
                checks.fail("prior", checks.Text(f"{len(self.prior)} weights"), "one weight a candidate", advice)

    def describe_noise(self, sensitivity: float, rng: np.random.Generator | None) -> str:
        """Describe the draw, which is random also at Δ = 0."""
        return super().describe_noise(sensitivity or math.inf, rng)

    def release(self, value: ArrayLike, sensitivity: float, *, rng: np.random.Generator | None = None) -> Candidate:
        """Draw a candidate from all log-likelihoods, one finite number for each."""
        numbers = check_release(value, sensitivity)
        if numbers.shape != (len(self.candidates),):
            checks.fail("value", numbers.shape, f"one log-likelihood a candidate, shape ({len(self.candidates)},)")
        step = min(choose_step(float(sensitivity), 1), _MAX_LIKELIHOOD_STEP) if sensitivity else _MAX_LIKELIHOOD_STEP
        scale = max(self._find_min_scale(sensitivity, step), math.ceil(1 / step))
        weights = np.ones(len(numbers), dtype=np.int64) if self.prior is None else np.asarray(self.prior)
        return self._choose(numbers, step, scale, np.repeat(np.arange(len(numbers)), weights), uniform_below(rng))


def check_pure(pair: PrivacyPair, name: str) -> PrivacyParams:
    privacy = PrivacyParams.of(pair)
    checks.positive(epsilon=privacy.epsilon, advice=f"the {name} mechanism needs epsilon > 0")
    if privacy.exact_delta != 0:
        checks.fail("delta", privacy.delta, f"0 for the {name} mechanism", "it keeps epsilon alone")
    return privacy


def check_release(value: ArrayLike, sensitivity: float) -> NDArray[np.float64]:
    checks.non_negative(sensitivity=sensitivity)
    numbers = canonicalize(value)
    if not np.all(np.isfinite(numbers)):
        checks.fail("value", checks.Text("NaN or an infinity"), "finite everywhere")
    return numbers
