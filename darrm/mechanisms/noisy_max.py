"""LNMax, GNMax and ShapedMax: the class with most votes after noise [P, Section 4.1], [P17, Section 2.1].

One teacher may move one vote from a class to another, so two counts change by 1, and a person who reaches t voters
changes them by t. Whole-number noise is charged for the label alone (`darrm.losses.label`), continuous noise for both
noisy counts. Data-dependent costs start from the counts: discrete Gaussians a whole distance d apart have Rényi
divergence at most λd²/(2σ²) [CKS20, Proposition 5], and discrete Laplace weights change by at most e^{γd}. Their q is
bounded in `noise_tails`. Tied classes share the answer evenly: what a label costs does not depend on their names.

Shaped noise makes fewer errors where classes are many. A class wins because its noise is large: of C classes the
largest of C − 1 noises makes the error. At an equal cost of the label, which `darrm.losses.label` bounds for every
log-concave noise, a short right and a long left tail have a smaller maximum. Noisy counts would not gain: they show the
left tail as well.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from darrm.errors import checks
from darrm.losses.amplification import amplified, rate_of
from darrm.losses.charges import Charge
from darrm.losses.label import is_exact_of_two, label_curve, label_of_two, label_profile
from darrm.losses.renyi import RenyiCurve
from darrm.losses.vote_counts import curve_of_votes, profile_of_votes
from darrm.mechanisms import renyi_bounds
from darrm.mechanisms.noise_tails import NOISES, check_noise
from darrm.privacy import PrivacyParams, exact_number
from darrm.probability.exact_inversion import WIDEST, ExactInversion, bytes_from
from darrm.probability.exact_sampling import UniformBelow, discrete_gaussian, discrete_laplace, uniform_below
from darrm.probability.integer_noise import DiscreteGaussian, DiscreteLaplace, IntegerNoise, ShapedNoise
from darrm.problem import MOST_VOTERS, Voters, is_law_a_gamma
from darrm.votes import Labels, Votes, require_votes

DRAWS_AT_ONCE = 1 << 18  # bounds the memory of a release
_NEVER = -(2**62)  # a count that no noise lifts to a threshold
_SMALLEST_GAMMA, _LARGEST_GAMMA = 1e-9, 1e6  # per vote: γ² and 1/γ stay far from overflow
Draw = Callable[[int], NDArray[np.int64] | NDArray[np.float64]]


class NoisyMax:
    """What noisy maxima share: what a label costs whatever the votes, and how labels are drawn."""

    noise: object  # "continuous" is for experiments
    reached: int  # how many votes one person may move

    @property
    def law(self) -> IntegerNoise:
        """The whole-number noise of each count."""
        raise NotImplementedError

    @property
    def words(self) -> str:
        """The mechanism in words, for reports."""
        raise NotImplementedError

    @property
    def guarantee(self) -> RenyiCurve:
        """The Rényi curve of one label, whatever the votes and the number of classes."""
        return label_curve(self.law, moved=self.reached)

    def charge(self, queries: int = 1) -> Charge:
        """Describe what ``queries`` answers cost, whatever the votes."""
        profile = None if self.noise == "continuous" else label_profile(self.law, moved=self.reached)
        return Charge(self.words, renyi=self.guarantee, profile=profile, count=queries, reached=self.reached)

    def charge_of_drawn(self, voters: Voters, classes: int, queries: int = 1) -> Charge:
        """Describe what ``queries`` answers of voters that draw their examples anew cost a person who is drawn."""
        charge, sampling = self.charge(queries), voters.sampled
        if sampling is None or self.noise == "continuous":
            return charge
        rate, two = rate_of(sampling), is_law_a_gamma(classes) and is_exact_of_two(self.law, voters.K)
        curve: RenyiCurve | None = None
        if two:  # a law of the number of ones
            lies = label_of_two(self.law, voters.K)
            charge = replace(charge, profile=profile_of_votes(lies, voters.K, self.reached))
            curve = curve_of_votes(lies, voters.K, self.reached, rate)
        elif self.reached == 1:
            curve = label_curve(self.law, rate=rate, votes=voters.K)
        return amplified(charge, sampling, curve)

    def release(self, votes: Votes, *, rng: np.random.Generator | None = None) -> Labels:
        """Release one class for each query, as `Aggregator.release`.

        Arrays are refused with `ValueError`: labels taken for counts would void the guarantee.
        """
        given = require_votes(votes)
        return given.labeled(noisy_argmax(given.counts, self.draw(rng), rng))

    def draw(self, rng: np.random.Generator | None) -> Draw:
        """Make the function that draws so many noises, from the operating system unless ``rng`` is given."""
        return inverted(self.law, rng)


@dataclass(frozen=True)
class GNMax(NoisyMax):
    """Release the class with the largest count plus Gaussian noise [P, Section 4.1].

    Parameters
    ----------
    sigma
        σ > 0, the standard deviation of the noise on each count, in votes; at least ½ for discrete noise.
    noise
        ``"discrete"`` (exact whole numbers, for releases) or ``"continuous"`` (the paper's, needs ``rng=``).
    reached
        How many votes one person may move, at least 1.

    Raises
    ------
    ValueError
        If σ or the noise's name is out of range.

    Examples
    --------
    >>> aggregator = GNMax(sigma=40.0)
    >>> round(aggregator.guarantee.convert(1e-5).epsilon, 4)
    0.1103
    >>> votes = Votes.of_counts([[250, 0, 0], [0, 240, 10]])
    >>> aggregator.release(votes, rng=np.random.default_rng(1)).tolist()
    [0, 1]
    """

    sigma: float
    noise: str = "discrete"
    reached: int = 1

    def __post_init__(self) -> None:
        check_noise(self.sigma, self.noise)
        checks.integer_at_least(1, most=MOST_VOTERS, reached=self.reached, advice="how many votes one person may move")

    @property
    def guarantee(self) -> RenyiCurve:
        """The Rényi curve of one label, whatever the votes; with continuous noise λt²/σ² [P, Proposition 8]."""
        if self.noise == "continuous":
            return RenyiCurve.of(lambda orders: self.reached**2 * self.answer_independent(orders))
        return super().guarantee

    @property
    def law(self) -> DiscreteGaussian:
        """The discrete noise of each count."""
        return DiscreteGaussian(self.sigma)

    @property
    def words(self) -> str:
        """Its name and σ."""
        return f"GNMax(sigma={self.sigma:g})"

    def log_q(self, counts: ArrayLike) -> NDArray[np.float64]:
        """Bound log Pr[answer ≠ plurality] for each query: (Q, C) counts → (Q,)."""
        return renyi_bounds.log_q(counts, self.sigma, noise=self.noise)

    def answer_renyi(self, log_q: ArrayLike, orders: ArrayLike) -> NDArray[np.float64]:
        """Bound what each answer costs, from its q: (Q,) and (L,) → (Q, L); private data."""
        return renyi_bounds.gaussian_renyi(log_q, self.sigma, orders)

    def answer_independent(self, orders: ArrayLike) -> NDArray[np.float64]:
        """Compute λ/σ², what both noisy counts cost where one vote moves: (L,) → (L,)."""
        return np.asarray(orders, dtype=np.float64) / self.sigma**2

    def draw(self, rng: np.random.Generator | None) -> Draw:
        """Draw Gaussians, exact or for experiments."""
        return gaussian_draw(self.sigma, self.noise, rng)


@dataclass(frozen=True)
class LNMax(NoisyMax):
    """Release the class with the largest count plus Laplace noise of scale 1/γ [P17, Section 2.1].

    Parameters
    ----------
    gamma
        γ > 0, the inverse scale of the noise on each count, per vote.
    noise, reached
        As for `GNMax`; an answer is (2γ, 0)-private for each vote that a person may move.

    Examples
    --------
    >>> LNMax(gamma=0.05).charge(100).guarantee
    PrivacyParams(epsilon=0.1, delta=0)
    """

    gamma: float
    noise: str = "discrete"
    reached: int = 1

    def __post_init__(self) -> None:
        checks.positive(gamma=self.gamma)
        checks.integer_at_least(1, most=MOST_VOTERS, reached=self.reached, advice="how many votes one person may move")
        if not _SMALLEST_GAMMA <= self.gamma <= _LARGEST_GAMMA:
            checks.fail("gamma", self.gamma, f"in [{_SMALLEST_GAMMA:g}, {_LARGEST_GAMMA:g}] per vote")
        checks.one_of(NOISES, noise=self.noise)

    @property
    def guarantee(self) -> RenyiCurve:
        """The Rényi curve of one label, whatever the votes; with continuous noise that of any (2γt, 0)."""
        if self.noise == "continuous":
            return RenyiCurve.of_pure(2.0 * self.gamma * self.reached)
        return super().guarantee

    def charge(self, queries: int = 1) -> Charge:
        """Describe what ``queries`` answers cost, whatever the votes: (2γt, 0) each, and what is known of the label."""
        pure = PrivacyParams(2 * self.reached * exact_number("gamma", self.gamma), 0)
        return replace(super().charge(queries), guarantee=pure)

    @property
    def law(self) -> DiscreteLaplace:
        """The discrete noise of each count."""
        return DiscreteLaplace(self.gamma)

    @property
    def words(self) -> str:
        """Its name and γ."""
        return f"LNMax(gamma={self.gamma:g})"

    def log_q(self, counts: ArrayLike) -> NDArray[np.float64]:
        """Bound log Pr[answer ≠ plurality] for each query: (Q, C) counts → (Q,)."""
        return renyi_bounds.laplace_log_q(counts, self.gamma, noise=self.noise)

    def answer_renyi(self, log_q: ArrayLike, orders: ArrayLike) -> NDArray[np.float64]:
        """Bound what each answer costs, from its q: (Q,) and (L,) → (Q, L); private data."""
        return renyi_bounds.laplace_renyi(log_q, self.gamma, orders)

    def answer_independent(self, orders: ArrayLike) -> NDArray[np.float64]:
        """Compute min(2γ²λ, 2γ), what both noisy counts cost where one vote moves: (L,) → (L,)."""
        return renyi_bounds.laplace_independent(self.gamma, np.asarray(orders, dtype=np.float64))

    def draw(self, rng: np.random.Generator | None) -> Draw:
        """Draw Laplace noise, exact or for experiments."""
        if self.noise == "continuous":
            generator = _experiments_only(rng)
            return lambda size: generator.laplace(scale=1.0 / self.gamma, size=size)
        if self.law.deviation <= WIDEST:
            return super().draw(rng)
        scale, below = 1 / exact_number("gamma", self.gamma), uniform_below(rng)
        return lambda size: discrete_laplace(scale, size, below)


def gaussian_draw(sigma: float, noise: str, rng: np.random.Generator | None) -> Draw:
    """Make the function that draws so many Gaussian noises, exact or for experiments."""
    if noise == "continuous":
        generator = _experiments_only(rng)
        return lambda size: generator.normal(scale=sigma, size=size)
    if sigma <= WIDEST:
        return inverted(DiscreteGaussian(sigma), rng)
    variance = exact_number("sigma", sigma) ** 2
    below = uniform_below(rng)
    return lambda size: discrete_gaussian(variance, size, below)


def inverted(noise: IntegerNoise, rng: np.random.Generator | None) -> Draw:
    """Make the function that draws so many of a noise by inversion."""
    sampler, source = ExactInversion(noise), bytes_from(rng)
    return lambda size: sampler.draw(size, source=source)


def noisy_argmax(counts: NDArray[np.int64], draw: Draw, rng: np.random.Generator | None) -> NDArray[np.int64]:
    """Add a noise to every count and find the largest of each row, a tied one at random; a block of rows at a time."""
    queries, classes = counts.shape
    rows = max(1, DRAWS_AT_ONCE // classes)
    below = uniform_below(rng)
    labels = np.empty(queries, dtype=np.int64)
    for start in range(0, queries, rows):
        block = counts[start : start + rows]
        labels[start : start + rows] = _largest(block + draw(block.size).reshape(block.shape), below)[0]
    return labels


def noisy_answer(counts: NDArray[np.int64], below: UniformBelow, *, threshold: int, draw: Draw) -> NDArray[np.int64]:
    """Add a noise to every count above zero and find the largest of each row, a tied one at random.

    Where that is below the threshold it is the last place, whose count is 0: (n, S + 1) → (n,).
    """
    said = counts > 0
    noisy = np.full(counts.shape, _NEVER, dtype=np.int64)
    noisy[said] = counts[said] + draw(int(np.count_nonzero(said)))
    winners, heights = _largest(noisy, below)
    return np.asarray(np.where(heights >= threshold, winners, counts.shape[1] - 1))


def _largest(
    noisy: NDArray[np.int64] | NDArray[np.float64], below: UniformBelow
) -> tuple[NDArray[np.int64], NDArray[np.int64] | NDArray[np.float64]]:
    """Find the place of the largest of each row, a tied one at random, and how large it is."""
    winners = noisy.argmax(axis=1)
    heights = noisy[np.arange(len(noisy)), winners]
    largest = noisy == heights[:, np.newaxis]
    tied = np.flatnonzero(largest.sum(axis=1) > 1)
    if tied.size:
        chosen = below(largest[tied].sum(axis=1)).astype(np.int64)  # the so many-th of the tied classes
        winners[tied] = (largest[tied].cumsum(axis=1) == (chosen + 1)[:, np.newaxis]).argmax(axis=1)
    return winners, heights


def _experiments_only(rng: np.random.Generator | None) -> np.random.Generator:
    if rng is None:
        raise ValueError(
            "continuous noise needs rng=: floating-point noise is not exact, so it is for experiments only; "
            'use noise="discrete" for a release'
        )
    return rng


@dataclass(frozen=True)
class ShapedMax(NoisyMax):
    """Release the class with the largest count plus shaped noise.

    Parameters
    ----------
    noise
        Its law, of a deviation of at most 1,024 votes; `darrm.optimize.shape.best_shape` finds one.
    reached
        t, how many votes one person may move.

    Raises
    ------
    ValueError
        If the noise is too wide to be drawn, or ``reached`` is no positive integer.

    Examples
    --------
    >>> from darrm.votes import Votes
    >>> aggregator = ShapedMax(ShapedNoise(right=40.0, left=80.0, right_power=3.0, left_power=3.0))
    >>> aggregator.release(Votes.of_counts([[250, 0, 0], [0, 250, 0]])).tolist()
    [0, 1]
    """

    noise: ShapedNoise
    reached: int = 1

    def __post_init__(self) -> None:
        checks.instance(ShapedNoise, noise=self.noise)
        checks.integer_at_least(1, most=MOST_VOTERS, reached=self.reached, advice="how many votes one person may move")
        if self.noise.deviation > WIDEST:
            checks.fail("noise", self.noise, f"of a deviation of at most {WIDEST:g} votes")

    @property
    def law(self) -> ShapedNoise:
        """The noise."""
        return self.noise

    @property
    def words(self) -> str:
        """Its name and the scales and powers of the noise."""
        noise = self.noise
        return f"ShapedMax({noise.right:g}^{noise.right_power:g}, {noise.left:g}^{noise.left_power:g})"
