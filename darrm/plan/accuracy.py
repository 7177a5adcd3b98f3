"""The accuracy of a release: how often its answer is one of the classes with the most votes, under a prior.

A law that treats all classes alike is known by its values on sorted histograms, the partitions of K into at most C
parts. The accuracy is a sum over all of them or, if they are too many, a mean over histograms drawn from the prior with
a fixed public seed, the same for all releases: differences are known better than the standard error says.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import combinations_with_replacement

import numpy as np
from numpy.typing import NDArray

from darrm import priors
from darrm.commands.command_line import spread
from darrm.majority.noise_function import NoiseFunction
from darrm.noisy_max.noisy_law import WinningLaw
from darrm.numerics import Array
from darrm.plurality.partitions import falling_counts, number_of_partitions
from darrm.priors import Prior, Spread
from darrm.problem import Workload, is_open
from darrm.util import checks

# a release's law: (n, C) histograms, the largest count first → (n, C) probabilities of the answers, ties shared
Law = Callable[[NDArray[np.int64]], Array]

MOST_LISTED = 4096  # histograms: of more partitions, as many are drawn
MOST_COUNTS, LEAST_DRAWN = 2**19, 512  # counts of all drawn histograms; at least these histograms
MOST_LEVELS = 128  # numbers of votes for the plurality of more than two classes in a curve
MOST_DRAWN = 256  # rolls of dice for each of these, at most
MOST_ROLLED = 2**18  # histograms with a roll each: of more, rolls are drawn
MOST_PLANNED = 1000  # classes: laws are computed class by class
MOST_OPEN_VOTERS = 5_000  # of open answers: who said something new is drawn voter by voter
SEED, SEED_OF_DICE = 20_250_101, 20_250_102  # public: the same numbers for everybody


@dataclass(frozen=True)
class Accuracy:
    value: float
    standard_error: float = 0.0  # of drawn histograms; 0 for a sum over all

    def __str__(self) -> str:
        return f"{self.value:.5f}" + (f" ± {self.standard_error:.5f}" if self.standard_error else "")

    def to_json(self) -> dict[str, float]:
        return {"value": self.value, "standard_error": self.standard_error}


@dataclass(frozen=True, eq=False)
class Sample:
    """The histograms that an accuracy is a mean over, each with all rolls of the dice for missing votes.

    A fair die, independent of the data, gives each missing vote to a class, so the guarantee is that for K votes. The
    answer is compared with the votes that are present. `Spread` has three samples, in turn.
    """

    asked: NDArray[np.int64]  # (m, C) different histograms of K votes, the largest count first
    place: NDArray[np.int64]  # (n·R,) which of these each histogram becomes with each roll
    counts_as: NDArray[np.bool_]  # (n·R, C) correct answers, in the order of `asked`
    chances: Array  # (R,) of the rolls
    drawn: int = 0  # how many rolls were drawn for each histogram; 0 where all were listed
    weights: Array | None = None  # (n,) of the histograms; None for drawn ones
    samples: int = 1  # of histograms that are drawn

    @classmethod
    def rolled(cls, counts: NDArray[np.int64], counts_as: NDArray[np.bool_], missing: int, drawn: int = 0) -> "Sample":
        """List all rolls with their chances, or draw some for each histogram.

        >>> sample = Sample.rolled(np.array([[2, 0, 0]]), np.array([[True, False, False]]), 1)
        >>> sample.asked.tolist(), sample.right(lambda counts: counts / 3.0).round(4)
        ([[2, 1, 0], [3, 0, 0]], array([0.7778]))
        """
        n, C = counts.shape
        if drawn:
            rolls = np.random.default_rng(SEED_OF_DICE).multinomial(missing, np.full(C, 1.0 / C), size=(n, drawn))
            chances = np.full(drawn, 1.0 / drawn)
        else:
            dice = combinations_with_replacement(range(C), missing)
            rolls = np.array([np.bincount(np.array(roll, dtype=np.int64), minlength=C) for roll in dice])[None]
            ways = [math.factorial(missing) / math.prod(map(math.factorial, roll)) for roll in rolls[0].tolist()]
            chances = np.array(ways) / float(C) ** missing
        every = (counts[:, None, :] + rolls).reshape(-1, C)
        order = np.argsort(-every, axis=1, kind="stable")
        asked, place = np.unique(np.take_along_axis(every, order, axis=1), axis=0, return_inverse=True)
        chosen = np.take_along_axis(np.repeat(counts_as, chances.size, axis=0), order, axis=1)
        return cls(asked, place.reshape(-1), chosen, chances, drawn)

    def right(self, law: Law) -> Array:
        """Compute how often the answer is right: (n,)."""
        if isinstance(law, WinningLaw) and self.chances.size == 1 and not self.drawn:  # no dice
            return np.asarray(law.compute_accuracy(self.asked)[self.place])
        told = np.sum(law(self.asked)[self.place] * self.counts_as, axis=1)
        return np.asarray(np.clip(told.reshape(-1, self.chances.size) @ self.chances, 0.0, 1.0))

    def mean(self, right: Array) -> Accuracy:
        if self.weights is not None:  # a share of rolls has a variance of at most 1/4
            error = float(np.linalg.norm(self.weights)) / (2.0 * math.sqrt(self.drawn)) if self.drawn else 0.0
            return Accuracy(min(1.0, float(self.weights @ right)), error)
        variance = np.mean([right[first :: self.samples].var(ddof=1) for first in range(self.samples)])
        return Accuracy(float(right.mean()), math.sqrt(variance / len(right)))


@lru_cache(maxsize=8)
def sample_of(prior: Prior, K: int, classes: int, most: int, missing: int = 0) -> Sample:
    counts, weights = histograms(prior, K, classes, most)
    winners, samples = counts == counts[:, :1], 3 if isinstance(prior, Spread) else 1
    if missing:
        is_listed = weights is not None and len(counts) * number_of_rolls(missing, classes) <= MOST_ROLLED
        drawn = 0 if is_listed else 1 if weights is None else max(1, MOST_ROLLED // len(counts))
        return replace(Sample.rolled(counts, winners, missing, drawn), weights=weights, samples=samples)
    asked, place = counts, np.arange(len(counts))
    if weights is None:  # voters that agree say the same again and again
        asked, place = np.unique(counts, axis=0, return_inverse=True)
        place = place.ravel()
    return Sample(asked, place, winners, np.ones(1), weights=weights, samples=samples)


def number_of_rolls(missing: int, classes: int) -> int:
    return math.comb(missing + classes - 1, missing)


def coin(counts: NDArray[np.int64]) -> Array:
    """Guess at random."""
    return np.full(counts.shape, 1.0 / counts.shape[1])


def accuracy_of_majorities(curve: Array, K: int, prior: Prior) -> Accuracy | None:
    """Compute the accuracy for two classes; None if the prior has no law of the votes.

    ``curve`` is Pr[the answer is the majority | l votes for it], l = floor(K/2) + 1 … K; at a tie both are right.
    """
    ones = _law_of_ones(prior, K)
    if ones is None:
        return None
    tie = 0.0 if K % 2 else float(ones[K // 2])
    return Accuracy(min(1.0, float((ones + ones[::-1])[K // 2 + 1 :] @ curve) + tie))


_law_of_ones = lru_cache(maxsize=64)(priors.law_of_ones)  # a search asks for the same law at every trial


@lru_cache(maxsize=16)
def histograms(prior: Prior, K: int, classes: int, most: int) -> tuple[NDArray[np.int64], Array | None]:
    """List sorted histograms with their probabilities, or draw some, which have none."""
    checks.integer_at_least(1, K=K)
    if isinstance(prior, Spread):
        first, *others = priors.reference_priors(classes).values()
        rows, weights = histograms(first, K, classes, most)
        if weights is not None:  # the rows of the others are the same
            all_weights = [weights for _, weights in (histograms(one, K, classes, most) for one in (first, *others))]
            return rows, np.mean(np.array(all_weights, dtype=np.float64), axis=0)
    if isinstance(prior, priors.Ewens) and number_of_partitions(K, K) <= most:
        rows = np.array(list(falling_counts(K, K, K)), dtype=np.int64)
        return rows, np.exp(prior.log_of_partitions([tuple(row[row > 0].tolist()) for row in rows]))
    if isinstance(prior, priors.RecordedVotes) and prior.votes.voters == K:
        prior.check_classes(classes)
        rows, times = np.unique(-np.sort(-prior.votes.counts, axis=1), axis=0, return_counts=True)
        return rows, times / times.sum()
    # a partition has at most C! histograms: the bound avoids counting the partitions
    may_be_few = isinstance(prior, priors.Dirichlet) and math.comb(K + classes - 1, K) <= most * math.factorial(classes)
    if may_be_few and number_of_partitions(K, min(K, classes)) <= most:
        rows = np.array(list(falling_counts(K, classes, K)), dtype=np.int64)
        return rows, np.exp(prior.log_probabilities(rows) + priors.log_arrangements(rows))
    few = most if is_open(classes) else min(most, max(LEAST_DRAWN, MOST_COUNTS // classes))
    rows = prior.sample(K, classes, few, rng=np.random.default_rng(SEED))
    return -np.sort(-rows, axis=1), None


@dataclass(frozen=True)
class CertainVotes(Prior):
    """The law of the votes of a prior: its expected error is 1 − accuracy, which the optima of two classes minimize."""

    prior: Prior

    @property
    def text(self) -> str:
        return f"accuracy under {self.prior.text}"

    def __str__(self) -> str:
        return self.text

    def log_probabilities(self, counts: NDArray[np.int64]) -> Array:
        return self.prior.log_probabilities(counts)

    def sample(self, K: int, classes: int, count: int, *, rng: np.random.Generator) -> NDArray[np.int64]:
        return self.prior.sample(K, classes, count, rng=rng)


class Measure:
    """Compares the releases of a workload under a prior, by default `Spread`, the mean of three reference priors.

    For two classes the objective may be the expected error [D, Definition 2.4]; it is where a prior has no law of the
    votes. `ValueError` for a prior of other classes, or voters that cannot be planned for.
    """

    def __init__(self, workload: Workload, prior: Prior | str | None, objective: str = "accuracy") -> None:
        checks.one_of(("accuracy", "error"), objective=objective)
        self.prior: Prior = Spread() if prior is None else priors.checked(prior, workload.classes)
        self.missing, self.K = workload.missing, workload.voters.K - workload.missing
        self.classes, self.is_binary = workload.classes, workload.has_noise_function
        if self.is_binary:
            self.is_error = objective == "error" or priors.law_of_ones(self.prior, self.K) is None
            self.counts = _majorities(self.K)
        else:
            checks.one_of(("accuracy",), objective=objective, advice="the expected error is defined for two classes")
            self.is_error = False
            if is_open(self.classes):
                advice = "open questions of more voters are not planned"
                checks.integer_at_least(1, most=MOST_OPEN_VOTERS, K=workload.voters.K, advice=advice)
                self.counts = _alone(self.K)
            else:
                advice = "longer lists are planned for non-private voters without missing votes"
                checks.integer_at_least(2, most=MOST_PLANNED, classes=self.classes, advice=advice)
                self.counts = _leading(self.K, self.classes)
        if self.is_error:
            priors.weights_of(self.prior, self.K)  # a prior without linear expected error is refused before the search
        self.levels = self.counts[:, 0]  # the numbers of votes for the winner at which `curve` is computed
        self.name = "expected error" if self.is_error else "accuracy"
        # the ranking is by minimax regret over these
        self.reference_priors = priors.reference_priors(self.classes)
        self.is_regret = isinstance(self.prior, Spread) and not self.is_error
        self._right: dict[tuple[Law, Prior], Array] = {}

    @property
    def linear_prior(self) -> Prior:
        return self.prior if self.is_error else CertainVotes(self.prior)

    def curve(self, law: Law) -> Array:
        """Return Pr[the answer is the winner] at `levels`; the other classes share the rest of the votes."""
        if not self.missing:
            right = law.compute_accuracy(self.counts) if isinstance(law, WinningLaw) else law(self.counts)[:, 0]
            return np.clip(right, 0.0, 1.0)
        if self.is_binary:
            voters = self.K + self.missing
            right = np.clip(law(_majorities(voters))[:, 0], 0.5, 1.0)
            return np.asarray(0.5 + 0.5 * NoiseFunction(voters, 2.0 * right - 1.0).with_missing(self.missing).half)
        are_few = self.counts.shape[0] * number_of_rolls(self.missing, self.classes) <= MOST_ROLLED
        winner = np.broadcast_to(np.arange(self.classes) == 0, self.counts.shape)
        return Sample.rolled(self.counts, winner, self.missing, 0 if are_few else MOST_DRAWN).right(law)

    def wrong(self, law: Law) -> float:
        """Return 1 − accuracy, or the expected error."""
        if self.is_error:
            return self._error(law)
        accuracy = self.accuracy(law)
        return math.inf if accuracy is None else 1.0 - accuracy.value

    def accuracy(self, law: Law) -> Accuracy | None:
        """Return the accuracy under the prior; None without a law of the votes."""
        if self.is_binary:
            return accuracy_of_majorities(self.curve(law), self.K, self.prior)
        return self._sample(self.prior).mean(self._right_of(law, self.prior))

    def expected_error(self, law: Law) -> float | None:
        """Return the expected error; None for more than two classes, and for a prior without weights."""
        return self._error(law) if self.is_binary and self.prior.has_closed_form else None

    def consensus(self, law: Law) -> dict[str, Accuracy]:
        three = self.reference_priors
        if self.is_binary:
            curve = self.curve(law)
            by_name = {name: accuracy_of_majorities(curve, self.K, prior) for name, prior in three.items()}
            return {name: accuracy for name, accuracy in by_name.items() if accuracy is not None}
        of_all = Spread()
        right, is_listed = self._right_of(law, of_all), self._sample(of_all).weights is not None
        accuracies = {}
        for place, (name, prior) in enumerate(three.items()):
            if prior == self.prior:
                accuracies[name] = self._sample(prior).mean(self._right_of(law, prior))
            elif is_listed:
                accuracies[name] = self._sample(prior).mean(right)
            else:
                sampled = right[place :: len(three)]
                accuracies[name] = Accuracy(float(sampled.mean()), float(sampled.std(ddof=1) / math.sqrt(len(sampled))))
        return accuracies

    @property
    def guessing(self) -> Accuracy | None:
        return Accuracy(0.0) if is_open(self.classes) else self.accuracy(coin)

    def share_answered(self, law: Law) -> float | None:
        """Return how often an open question is answered; None where classes are listed."""
        if not is_open(self.classes):
            return None
        counts, weights = histograms(self.prior, self.K, self.classes, MOST_LISTED)
        answered = law(counts).sum(axis=1)
        return min(1.0, float(answered.mean() if weights is None else weights @ answered))

    def _error(self, law: Law) -> float:
        # an answer worse than random guessing counts as a guess
        return NoiseFunction(self.K, np.clip(2.0 * self.curve(law) - 1.0, 0.0, 1.0)).expected_error(self.prior)

    def _sample(self, prior: Prior) -> Sample:
        return sample_of(prior, self.K, self.classes, MOST_LISTED, self.missing)

    def _right_of(self, law: Law, prior: Prior) -> Array:
        if (law, prior) not in self._right:  # a search and a report ask about the same law
            self._right[law, prior] = self._sample(prior).right(law)
        return self._right[law, prior]


def _majorities(K: int) -> NDArray[np.int64]:
    winning = np.arange(K // 2 + 1, K + 1)
    return np.column_stack([winning, K - winning])


def _alone(K: int) -> NDArray[np.int64]:
    """List partitions in which each string but one was said once."""
    levels = 1 + np.arange(K)[spread(K, MOST_LEVELS)]
    others = np.arange(K) <= K - levels[:, None]
    return np.where(np.arange(K) == 0, levels[:, None], others.astype(np.int64))


def _leading(K: int, classes: int) -> NDArray[np.int64]:
    """List histograms in which one class leads and the others share the rest evenly."""
    others = classes - 1
    levels = np.arange(K // classes + 1, K + 1)
    levels = levels[levels > -(-(K - levels) // others)]
    levels = levels[spread(levels.size, MOST_LEVELS)]
    rest = K - levels
    shared = (rest // others)[:, None] + (np.arange(others) < (rest % others)[:, None])
    return np.column_stack([levels, shared])
