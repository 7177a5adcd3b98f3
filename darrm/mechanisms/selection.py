"""The exponential mechanism and permute-and-flip: selection of a class by its votes, drawn exactly.

A person who reaches t voters moves t votes from one class to another: the difference of two counts changes by up to
2t. With e_c = exp(−ε(max − n_c)/(2t)) both are (ε, 0)-private, whatever the number of classes:

* the exponential mechanism [MT07] answers c with probability e_c/Σe. It is drawn by rejection: a class uniform among
  all is kept with probability e_c, and only kept classes are answers;
* permute-and-flip [MS20] goes through the classes in random order and answers the first whose coin of probability e_c
  shows heads; the leader's always does. Its answer is never less useful than the exponential mechanism's.

The exponents are rational, the coins those of [CKS20, Algorithm 1], and classes with equal counts are equally likely.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from darrm.errors import checks
from darrm.losses.amplification import amplified, rate_of
from darrm.losses.charges import Charge
from darrm.losses.label import exponential_label_curve, exponential_label_profile
from darrm.losses.profile import PrivacyProfile
from darrm.losses.renyi import RenyiCurve
from darrm.mechanisms.noisy_max import DRAWS_AT_ONCE
from darrm.privacy import PrivacyParams, exact_number
from darrm.probability.exact_sampling import UniformBelow, bernoulli_exp, uniform_below
from darrm.problem import MOST_VOTERS, Voters
from darrm.sampling import Sampling
from darrm.votes import Labels, Votes, require_votes

_LARGEST_DENOMINATOR, _LARGEST_NUMERATOR = 2**54, 2**62  # beyond them coins are tossed in Python's whole numbers
_LARGEST_EPSILON = 700
Coins = Callable[[NDArray[np.int64]], NDArray[np.bool_]]  # toss one coin of probability e_c for each lag in votes


@dataclass(frozen=True)
class _Selection:
    epsilon: float
    reached: int = 1

    def __post_init__(self) -> None:
        checks.positive(epsilon=self.epsilon)
        checks.integer_at_least(1, most=MOST_VOTERS, reached=self.reached, advice="how many votes one person may move")
        if self.epsilon > _LARGEST_EPSILON:
            checks.fail("epsilon", self.epsilon, f"at most {_LARGEST_EPSILON}", "the answers would not be private")

    @property
    def guarantee(self) -> PrivacyParams:
        """(ε, 0) for one answer, whatever the votes."""
        return PrivacyParams(self.epsilon)

    def charge(self, queries: int = 1) -> Charge:
        """Describe what ``queries`` answers cost, whatever the votes."""
        what = f"{type(self).__name__}(epsilon={self.epsilon:g})"
        curve, profile = self._costs()
        return Charge(what, self.guarantee, curve, profile, count=queries, reached=self.reached)

    def charge_of_drawn(self, voters: Voters, _classes: int, queries: int = 1) -> Charge:
        """Describe what ``queries`` answers of voters that draw their examples anew cost a person who is drawn."""
        charge = self.charge(queries)
        return charge if voters.sampled is None else amplified(charge, voters.sampled, self._drawn(voters.sampled))

    def release(self, votes: Votes, *, rng: np.random.Generator | None = None) -> Labels:
        """Release one class for each query, as `Aggregator.release`; arrays are refused with `ValueError`."""
        given = require_votes(votes)
        lags = given.counts.max(axis=1, keepdims=True) - given.counts
        below = uniform_below(rng)
        rate = exact_number("epsilon", self.epsilon) / (2 * self.reached)
        fits = rate.denominator <= _LARGEST_DENOMINATOR and rate.numerator * given.voters < _LARGEST_NUMERATOR

        def coins(behind: NDArray[np.int64]) -> NDArray[np.bool_]:
            numerators = (behind if fits else behind.astype(object)) * rate.numerator
            return bernoulli_exp(numerators, np.full_like(numerators, rate.denominator), below)

        queries, classes = lags.shape
        rows = max(1, DRAWS_AT_ONCE // classes)
        labels = np.empty(queries, dtype=np.int64)
        for start in range(0, queries, rows):
            labels[start : start + rows] = self._select(lags[start : start + rows], coins, below)
        return given.labeled(labels)

    def _costs(self) -> tuple[RenyiCurve, PrivacyProfile | None]:
        return RenyiCurve.of_pure(self.epsilon), None

    def _drawn(self, _sampling: Sampling) -> RenyiCurve | None:
        """Bound an answer for a person who is drawn by a coin; None where its (ε, 0) says what is known."""
        return None

    def _select(self, lags: NDArray[np.int64], coins: Coins, below: UniformBelow) -> NDArray[np.int64]:
        raise NotImplementedError


@dataclass(frozen=True)
class ExponentialMechanism(_Selection):
    """Release a class with probability proportional to e^{ε·votes/(2t)} [MT07].

    Parameters
    ----------
    epsilon
        ε in (0, 700], the pure privacy of one answer.
    reached
        t, how many votes one person may move.

    Raises
    ------
    ValueError
        If a number is out of its range.

    Examples
    --------
    >>> aggregator = ExponentialMechanism(0.5)
    >>> aggregator.guarantee
    PrivacyParams(epsilon=0.5, delta=0)
    >>> aggregator.release(Votes.of_counts([[250, 0, 0], [0, 240, 10]])).tolist()
    [0, 1]
    """

    def _costs(self) -> tuple[RenyiCurve, PrivacyProfile | None]:
        return exponential_label_curve(self.epsilon), exponential_label_profile(self.epsilon)

    def _drawn(self, sampling: Sampling) -> RenyiCurve | None:
        return exponential_label_curve(self.epsilon, rate=rate_of(sampling))

    def _select(self, lags: NDArray[np.int64], coins: Coins, below: UniformBelow) -> NDArray[np.int64]:
        answers = np.empty(len(lags), dtype=np.int64)
        left = np.arange(len(lags))
        while left.size:
            chosen = below(np.full(left.size, lags.shape[1], dtype=np.int64))
            kept = coins(lags[left, chosen])
            answers[left[kept]] = chosen[kept]
            left = left[~kept]
        return answers


@dataclass(frozen=True)
class PermuteAndFlip(_Selection):
    """Release the first class, in random order, whose coin of probability e^{−ε·lag/(2t)} shows heads [MS20].

    Parameters
    ----------
    epsilon, reached
        As for `ExponentialMechanism`.

    Examples
    --------
    >>> PermuteAndFlip(0.01, reached=2).charge(10)
    Charge(what='PermuteAndFlip(epsilon=0.01)', guarantee=PrivacyParams(epsilon=0.01, delta=0), renyi=…, count=10)
    """

    def _select(self, lags: NDArray[np.int64], coins: Coins, below: UniformBelow) -> NDArray[np.int64]:
        answers = np.empty(len(lags), dtype=np.int64)
        left = np.arange(len(lags))
        order = np.tile(np.arange(lags.shape[1]), (len(lags), 1))  # shuffled as far as it is looked at
        place = 0
        while left.size:
            swapped = place + below(np.full(left.size, lags.shape[1] - place, dtype=np.int64))
            chosen = order[left, swapped]
            order[left, swapped] = order[left, place]
            heads = coins(lags[left, chosen])
            answers[left[heads]] = chosen[heads]
            left = left[~heads]
            place += 1
        return answers
