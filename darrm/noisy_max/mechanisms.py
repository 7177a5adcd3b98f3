"""LNMax, GNMax and AsymmetricMax: the class with most votes after noise [P, Section 4.1], [P17, Section 2.1].

A person who influences t voters changes two counts by up to t. Whole-number noise costs what the label costs
(`darrm.noisy_max.label_cost`), continuous noise what both noisy counts cost. Ties are broken uniformly.

Asymmetric noise is more accurate for many classes: an error needs the largest of C − 1 noises, and at an equal cost of
the label a short right and a long left tail have a smaller maximum.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from darrm.loss.amplification import amplify, get_rate
from darrm.loss.privacy_cost import PrivacyCost
from darrm.loss.renyi import RenyiCurve
from darrm.loss.vote_counts import curve_of_votes, profile_of_votes
from darrm.noisy_max.label_cost import counts_curve, is_two_class_exact, label_curve, label_profile, two_class_errors
from darrm.noisy_max.noise_law import NOISES, check_noise
from darrm.numerics.exact_sampling import UniformBelow, discrete_gaussian, discrete_laplace, uniform_below
from darrm.numerics.integer_noise import (
    WIDEST,
    AsymmetricNoise,
    DiscreteGaussian,
    DiscreteLaplace,
    ExactInversion,
    IntegerNoise,
    bytes_from,
)
from darrm.privacy import PrivacyParams, exact_number
from darrm.problem import MOST_VOTERS, Voters, is_law_a_gamma
from darrm.subsampling import Subsampling
from darrm.util import checks
from darrm.votes import Labels, Votes, require_votes

DRAWS_AT_ONCE = 1 << 18  # bounds the memory of a release
_ABSENT_COUNT = -(2**62)  # a count below every threshold after noise
_SMALLEST_GAMMA, _LARGEST_GAMMA = 1e-9, 1e6  # per vote: γ² and 1/γ stay far from overflow
Draw = Callable[[int], NDArray[np.int64] | NDArray[np.float64]]


def check_reached(reached: int) -> None:
    checks.integer_at_least(1, most=MOST_VOTERS, reached=reached, advice="how many votes one person may move")


class LabelMechanism:
    """Base of mechanisms that release one class for each query from its votes."""

    reached: int  # how many votes one person may move

    def privacy_cost(self, queries: int = 1) -> PrivacyCost:
        raise NotImplementedError

    def subsampled_cost(self, voters: Voters, classes: int, queries: int = 1) -> PrivacyCost:
        """Return the cost, amplified if the voters resample their examples."""
        cost, sampling = self.privacy_cost(queries), voters.sampled
        return cost if sampling is None else self._amplify(cost, voters, classes, sampling)

    def release(self, votes: Votes, *, rng: np.random.Generator | None = None) -> Labels:
        """Release one class for each query; `ValueError` for arrays: labels taken for counts void the guarantee."""
        votes = require_votes(votes)
        return votes.name_labels(self._draw_labels(votes, rng))

    def _amplify(self, cost: PrivacyCost, voters: Voters, classes: int, sampling: Subsampling) -> PrivacyCost:
        raise NotImplementedError

    def _draw_labels(self, votes: Votes, rng: np.random.Generator | None) -> NDArray[np.int64]:
        raise NotImplementedError


class NoisyMax(LabelMechanism):
    """Base of noisy maxima."""

    noise: object  # "continuous" is for experiments

    @property
    def law(self) -> IntegerNoise:
        raise NotImplementedError

    @property
    def words(self) -> str:
        raise NotImplementedError

    @property
    def is_continuous(self) -> bool:
        return self.noise == "continuous"

    @property
    def guarantee(self) -> RenyiCurve:
        """The Rényi curve of one label; with continuous noise λt²/σ² [P, Proposition 8] or that of any (2γt, 0)."""
        curve = counts_curve if self.is_continuous else label_curve
        return curve(self.law, moved=self.reached)

    def privacy_cost(self, queries: int = 1) -> PrivacyCost:
        profile = None if self.is_continuous else label_profile(self.law, moved=self.reached)
        return PrivacyCost(self.words, renyi=self.guarantee, profile=profile, count=queries, reached=self.reached)

    def _amplify(self, cost: PrivacyCost, voters: Voters, classes: int, sampling: Subsampling) -> PrivacyCost:
        if self.is_continuous:
            return cost
        rate, curve = get_rate(sampling), None
        if is_law_a_gamma(classes) and is_two_class_exact(self.law, voters.K):  # a law of the number of ones
            log_errors = two_class_errors(self.law, voters.K)
            cost = replace(cost, profile=profile_of_votes(log_errors, voters.K, self.reached))
            curve = curve_of_votes(log_errors, voters.K, self.reached, rate)
        elif self.reached == 1:
            curve = label_curve(self.law, rate=rate, votes=voters.K)
        return amplify(cost, sampling, curve)

    def _draw_labels(self, votes: Votes, rng: np.random.Generator | None) -> NDArray[np.int64]:
        return noisy_argmax(votes.counts, self.draw(rng), rng)

    def draw(self, rng: np.random.Generator | None) -> Draw:
        return noise_draws(self.law, rng, continuous=self.is_continuous)


@dataclass(frozen=True)
class GNMax(NoisyMax):
    """Release the class with the largest count plus Gaussian noise [P, Section 4.1].

    >>> aggregator = GNMax(sigma=40.0)
    >>> round(aggregator.guarantee.convert(1e-5).epsilon, 4)
    0.1103
    >>> votes = Votes.from_counts([[250, 0, 0], [0, 240, 10]])
    >>> aggregator.release(votes, rng=np.random.default_rng(1)).tolist()
    [0, 1]
    """

    sigma: float  # σ > 0, the standard deviation of the noise on each count, in votes; at least ½ for discrete noise
    noise: str = "discrete"  # exact whole numbers, for releases, or "continuous": the paper's, needs ``rng=``
    reached: int = 1  # t ≥ 1, how many votes one person may move

    def __post_init__(self) -> None:
        check_noise(self.sigma, self.noise)
        check_reached(self.reached)

    @property
    def law(self) -> DiscreteGaussian:
        return DiscreteGaussian(self.sigma)

    @property
    def words(self) -> str:
        return f"GNMax(sigma={self.sigma:g})"


@dataclass(frozen=True)
class LNMax(NoisyMax):
    """Release the class with the largest count plus Laplace noise of scale 1/γ [P17, Section 2.1].

    >>> LNMax(gamma=0.05).privacy_cost(100).guarantee
    PrivacyParams(epsilon=0.1, delta=0)
    """

    gamma: float  # γ > 0, per vote: an answer is (2γ, 0)-private for each vote that a person may move
    noise: str = "discrete"  # or "continuous", as for `GNMax`
    reached: int = 1

    def __post_init__(self) -> None:
        checks.positive(gamma=self.gamma)
        check_reached(self.reached)
        if not _SMALLEST_GAMMA <= self.gamma <= _LARGEST_GAMMA:
            checks.fail("gamma", self.gamma, f"in [{_SMALLEST_GAMMA:g}, {_LARGEST_GAMMA:g}] per vote")
        checks.one_of(NOISES, noise=self.noise)

    def privacy_cost(self, queries: int = 1) -> PrivacyCost:
        """Return the cost of ``queries`` answers: (2γt, 0) each, and the cost of the label."""
        pure = PrivacyParams(2 * self.reached * exact_number("gamma", self.gamma), 0)
        return replace(super().privacy_cost(queries), guarantee=pure)

    @property
    def law(self) -> DiscreteLaplace:
        return DiscreteLaplace(self.gamma)

    @property
    def words(self) -> str:
        return f"LNMax(gamma={self.gamma:g})"


@dataclass(frozen=True)
class AsymmetricMax(NoisyMax):
    """Release the class with the largest count plus asymmetric noise.

    >>> aggregator = AsymmetricMax(AsymmetricNoise(right=40.0, left=80.0, right_power=3.0, left_power=3.0))
    >>> aggregator.release(Votes.from_counts([[250, 0, 0], [0, 250, 0]])).tolist()
    [0, 1]
    """

    noise: AsymmetricNoise  # of a deviation of at most 1,024 votes; `darrm.noisy_max.noisy_law` finds one
    reached: int = 1

    def __post_init__(self) -> None:
        checks.instance(AsymmetricNoise, noise=self.noise)
        check_reached(self.reached)
        if self.noise.deviation > WIDEST:
            checks.fail("noise", self.noise, f"of a deviation of at most {WIDEST:g} votes")

    @property
    def law(self) -> AsymmetricNoise:
        return self.noise

    @property
    def words(self) -> str:
        noise = self.noise
        return f"AsymmetricMax({noise.right:g}^{noise.right_power:g}, {noise.left:g}^{noise.left_power:g})"


def noise_draws(law: IntegerNoise, rng: np.random.Generator | None, *, continuous: bool = False) -> Draw:
    """Return a function that draws noises: exact whole numbers, or continuous ones for experiments."""
    if continuous:
        if rng is None:
            raise ValueError(
                "continuous noise needs rng=: floating-point noise is inexact and for experiments only. "
                'Use noise="discrete" for a release'
            )

        def draw(size: int) -> NDArray[np.float64]:
            if isinstance(law, DiscreteLaplace):
                return rng.laplace(scale=1.0 / law.gamma, size=size)
            return rng.normal(scale=law.deviation, size=size)

        return draw
    if law.deviation <= WIDEST:
        return partial(ExactInversion(law).draw, source=bytes_from(rng))
    below = uniform_below(rng)
    if isinstance(law, DiscreteLaplace):
        return partial(discrete_laplace, 1 / exact_number("gamma", law.gamma), below=below)
    return partial(discrete_gaussian, exact_number("sigma", law.deviation) ** 2, below=below)


def noisy_argmax(counts: NDArray[np.int64], draw: Draw, rng: np.random.Generator | None) -> NDArray[np.int64]:
    """Find the largest noisy count of each row, ties at random."""
    rows = max(1, DRAWS_AT_ONCE // counts.shape[1])
    below = uniform_below(rng)
    labels = np.empty(len(counts), dtype=np.int64)
    for start in range(0, len(counts), rows):
        block = counts[start : start + rows]
        labels[start : start + rows] = _find_largest(block + draw(block.size).reshape(block.shape), below)[0]
    return labels


def noisy_answer(counts: NDArray[np.int64], below: UniformBelow, *, threshold: int, draw: Draw) -> NDArray[np.int64]:
    """Find the largest noisy count among positive ones, ties at random, or the last place below the threshold: (n,)."""
    is_present = counts > 0
    noisy = np.full(counts.shape, _ABSENT_COUNT, dtype=np.int64)
    noisy[is_present] = counts[is_present] + draw(int(np.count_nonzero(is_present)))
    winners, heights = _find_largest(noisy, below)
    return np.asarray(np.where(heights >= threshold, winners, counts.shape[1] - 1))


def _find_largest(
    noisy: NDArray[np.int64] | NDArray[np.float64], below: UniformBelow
) -> tuple[NDArray[np.int64], NDArray[np.int64] | NDArray[np.float64]]:
    winners = noisy.argmax(axis=1)
    heights = noisy[np.arange(len(noisy)), winners]
    is_largest = noisy == heights[:, np.newaxis]
    tied_rows = np.flatnonzero(is_largest.sum(axis=1) > 1)
    if tied_rows.size:
        tie_index = below(is_largest[tied_rows].sum(axis=1)).astype(np.int64)  # an index among the tied classes
        winners[tied_rows] = (is_largest[tied_rows].cumsum(axis=1) == (tie_index + 1)[:, np.newaxis]).argmax(axis=1)
    return winners, heights
