"""The accuracy of a release: how often its answer is one of the classes with the most votes, under a prior.

A law that treats all classes alike is known by its values on sorted histograms, the partitions of K into at most C
parts. The accuracy is a sum over all of them or, if they are too many, a mean over histograms drawn from the prior with
a fixed public seed. All releases share these histograms, so differences are more precise than the standard error.
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

MOST_LISTED = 4096  # partitions that are listed; of more, this number of histograms is drawn
MOST_COUNTS, LEAST_DRAWN = 2**19, 512  # counts in all drawn histograms; and histograms, at least
MOST_LEVELS = 128  # points of a curve over the votes for the plurality, for more than two classes
MOST_DRAWN = 256  # rolls of dice for each point, at most
MOST_ROLLED = 2**18  # pairs of a histogram and a roll; of more, rolls are drawn
MOST_PLANNED = 1000  # classes: laws are computed class by class
MOST_OPEN_VOTERS = 5_000  # for open-set answers, whose votes are drawn voter by voter
SEED, DICE_SEED = 20_250_101, 20_250_102  # public: results are reproducible


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
    """Histograms whose mean is an accuracy, each with all rolls of dice for its missing votes.

    A fair die, independent of the data, gives each missing vote to a class, so the guarantee is that for K votes. The
    answer is compared with the votes that are present. `Spread` has three samples, in turn.
    """

    histograms: NDArray[np.int64]  # (m, C) different histograms of K votes, the largest count first
    indices: NDArray[np.int64]  # (n·R,) the row of `histograms` that each of n becomes by each roll
    is_correct: NDArray[np.bool_]  # (n·R, C) correct answers, in the order of `histograms`
    chances: Array  # (R,) of the rolls
    draws: int = 0  # rolls drawn for each histogram; 0 if all are listed
    weights: Array | None = None  # (n,) of the histograms; None for drawn ones
    samples: int = 1  # independent samples of drawn histograms

    @classmethod
    def roll_missing(
        cls, counts: NDArray[np.int64], is_correct: NDArray[np.bool_], missing: int, draws: int = 0
    ) -> "Sample":
        """List all rolls with their chances, or draw some for each histogram.

        >>> sample = Sample.roll_missing(np.array([[2, 0, 0]]), np.array([[True, False, False]]), 1)
        >>> sample.histograms.tolist(), sample.compute_accuracy(lambda counts: counts / 3.0).round(4)
        ([[2, 1, 0], [3, 0, 0]], array([0.7778]))
        """
        n, C = counts.shape
        if draws:
            rolls = np.random.default_rng(DICE_SEED).multinomial(missing, np.full(C, 1.0 / C), size=(n, draws))
            chances = np.full(draws, 1.0 / draws)
        else:
            dice = combinations_with_replacement(range(C), missing)
            rolls = np.array([np.bincount(np.array(roll, dtype=np.int64), minlength=C) for roll in dice])[None]
            ways = [math.factorial(missing) / math.prod(map(math.factorial, roll)) for roll in rolls[0].tolist()]
            chances = np.array(ways) / float(C) ** missing
        all_counts = (counts[:, None, :] + rolls).reshape(-1, C)
        order = np.argsort(-all_counts, axis=1, kind="stable")
        histograms, indices = np.unique(np.take_along_axis(all_counts, order, axis=1), axis=0, return_inverse=True)
        sorted_correct = np.take_along_axis(np.repeat(is_correct, chances.size, axis=0), order, axis=1)
        return cls(histograms, indices.reshape(-1), sorted_correct, chances, draws)

    def compute_accuracy(self, law: Law) -> Array:
        """Compute the accuracy for each histogram: (n,)."""
        if isinstance(law, WinningLaw) and self.chances.size == 1 and not self.draws:  # no dice
            return np.asarray(law.compute_accuracy(self.histograms)[self.indices])
        correct = np.sum(law(self.histograms)[self.indices] * self.is_correct, axis=1)
        return np.asarray(np.clip(correct.reshape(-1, self.chances.size) @ self.chances, 0.0, 1.0))

    def mean(self, accuracies: Array) -> Accuracy:
        if self.weights is not None:  # a share of rolls has a variance of at most 1/4
            error = float(np.linalg.norm(self.weights)) / (2.0 * math.sqrt(self.draws)) if self.draws else 0.0
            return Accuracy(min(1.0, float(self.weights @ accuracies)), error)
        variance = np.mean([accuracies[first :: self.samples].var(ddof=1) for first in range(self.samples)])
        return Accuracy(float(accuracies.mean()), math.sqrt(variance / len(accuracies)))


@lru_cache(maxsize=8)
def make_sample(prior: Prior, K: int, classes: int, limit: int, missing: int = 0) -> Sample:
    counts, weights = list_histograms(prior, K, classes, limit)
    winners, samples = counts == counts[:, :1], 3 if isinstance(prior, Spread) else 1
    if missing:
        is_listed = weights is not None and len(counts) * number_of_rolls(missing, classes) <= MOST_ROLLED
        draws = 0 if is_listed else 1 if weights is None else max(1, MOST_ROLLED // len(counts))
        return replace(Sample.roll_missing(counts, winners, missing, draws), weights=weights, samples=samples)
    histograms, indices = counts, np.arange(len(counts))
    if weights is None:  # voters that agree repeat few histograms
        histograms, indices = np.unique(counts, axis=0, return_inverse=True)
        indices = indices.ravel()
    return Sample(histograms, indices, winners, np.ones(1), weights=weights, samples=samples)


def number_of_rolls(missing: int, classes: int) -> int:
    return math.comb(missing + classes - 1, missing)


def guess_at_random(counts: NDArray[np.int64]) -> Array:
    """Guess at random."""
    return np.full(counts.shape, 1.0 / counts.shape[1])


def accuracy_of_majorities(curve: Array, K: int, prior: Prior) -> Accuracy | None:
    """Compute the accuracy for two classes; None if the prior has no law of the votes.

    ``curve`` is Pr[the answer is the majority | l votes for it], l = floor(K/2) + 1 … K; at a tie both answers count.
    """
    ones = _law_of_ones(prior, K)
    if ones is None:
        return None
    tie = 0.0 if K % 2 else float(ones[K // 2])
    return Accuracy(min(1.0, float((ones + ones[::-1])[K // 2 + 1 :] @ curve) + tie))


_law_of_ones = lru_cache(maxsize=64)(priors.law_of_ones)  # a search asks for the same law at every trial


@lru_cache(maxsize=16)
def list_histograms(prior: Prior, K: int, classes: int, limit: int) -> tuple[NDArray[np.int64], Array | None]:
    """List sorted histograms with their probabilities, or draw some without probabilities."""
    checks.integer_at_least(1, K=K)
    if isinstance(prior, Spread):
        first, *others = priors.reference_priors(classes).values()
        rows, weights = list_histograms(first, K, classes, limit)
        if weights is not None:  # the rows of the others are the same
            all_weights = [
                weights for _, weights in (list_histograms(ref, K, classes, limit) for ref in (first, *others))
            ]
            return rows, np.mean(np.array(all_weights, dtype=np.float64), axis=0)
    if isinstance(prior, priors.Ewens) and number_of_partitions(K, K) <= limit:
        rows = np.array(list(falling_counts(K, K, K)), dtype=np.int64)
        return rows, np.exp(prior.log_of_partitions([tuple(row[row > 0].tolist()) for row in rows]))
    if isinstance(prior, priors.RecordedVotes) and prior.votes.voters == K:
        prior.check_classes(classes)
        rows, times = np.unique(-np.sort(-prior.votes.counts, axis=1), axis=0, return_counts=True)
        return rows, times / times.sum()
    # a partition has at most C! histograms: the bound avoids counting the partitions
    max_histograms = limit * math.factorial(classes)
    may_be_few = isinstance(prior, priors.Dirichlet) and math.comb(K + classes - 1, K) <= max_histograms
    if may_be_few and number_of_partitions(K, min(K, classes)) <= limit:
        rows = np.array(list(falling_counts(K, classes, K)), dtype=np.int64)
        return rows, np.exp(prior.log_probabilities(rows) + priors.log_arrangements(rows))
    draws = limit if is_open(classes) else min(limit, max(LEAST_DRAWN, MOST_COUNTS // classes))
    rows = prior.sample(K, classes, draws, rng=np.random.default_rng(SEED))
    return -np.sort(-rows, axis=1), None


@dataclass(frozen=True)
class CertainVotes(Prior):
    """A prior's law of the votes as certain votes: the expected error, which optima minimize, is 1 − accuracy."""

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

    For two classes the objective may be the expected error [D, Definition 2.4], and is if a prior has no law of the
    votes. `ValueError` for a prior of other classes, or voters that cannot be planned for.
    """

    def __init__(self, workload: Workload, prior: Prior | str | None, objective: str = "accuracy") -> None:
        checks.one_of(("accuracy", "error"), objective=objective)
        self.prior: Prior = Spread() if prior is None else priors.check_prior(prior, workload.classes)
        self.missing, self.K = workload.missing, workload.voters.K - workload.missing
        self.classes, self.is_binary = workload.classes, workload.has_noise_function
        if self.is_binary:
            self.is_error = objective == "error" or priors.law_of_ones(self.prior, self.K) is None
            self.counts = _list_majorities(self.K)
        else:
            checks.one_of(("accuracy",), objective=objective, advice="the expected error is defined for two classes")
            self.is_error = False
            if is_open(self.classes):
                advice = "open questions of more voters are not planned"
                checks.integer_at_least(1, most=MOST_OPEN_VOTERS, K=workload.voters.K, advice=advice)
                self.counts = _list_lone_leaders(self.K)
            else:
                advice = "longer lists are planned for non-private voters without missing votes"
                checks.integer_at_least(2, most=MOST_PLANNED, classes=self.classes, advice=advice)
                self.counts = _list_leaders(self.K, self.classes)
        if self.is_error:
            priors.compute_weights(self.prior, self.K)  # refuse a prior without linear expected error
        self.levels = self.counts[:, 0]  # the numbers of votes for the winner at which `curve` is computed
        self.name = "expected error" if self.is_error else "accuracy"
        # the ranking is by minimax regret over these
        self.reference_priors = priors.reference_priors(self.classes)
        self.is_regret = isinstance(self.prior, Spread) and not self.is_error
        self._accuracies: dict[tuple[Law, Prior], Array] = {}

    @property
    def linear_prior(self) -> Prior:
        return self.prior if self.is_error else CertainVotes(self.prior)

    def curve(self, law: Law) -> Array:
        """Return Pr[the answer is the winner] at `levels`; the other classes share the remaining votes."""
        if not self.missing:
            shares = law.compute_accuracy(self.counts) if isinstance(law, WinningLaw) else law(self.counts)[:, 0]
            return np.clip(shares, 0.0, 1.0)
        if self.is_binary:
            voters = self.K + self.missing
            shares = np.clip(law(_list_majorities(voters))[:, 0], 0.5, 1.0)
            return np.asarray(0.5 + 0.5 * NoiseFunction(voters, 2.0 * shares - 1.0).with_missing(self.missing).half)
        are_few = self.counts.shape[0] * number_of_rolls(self.missing, self.classes) <= MOST_ROLLED
        winner = np.broadcast_to(np.arange(self.classes) == 0, self.counts.shape)
        return Sample.roll_missing(self.counts, winner, self.missing, 0 if are_few else MOST_DRAWN).compute_accuracy(
            law
        )

    def compute_loss(self, law: Law) -> float:
        """Return 1 − accuracy, or the expected error."""
        if self.is_error:
            return self._compute_error(law)
        accuracy = self.accuracy(law)
        return math.inf if accuracy is None else 1.0 - accuracy.value

    def accuracy(self, law: Law) -> Accuracy | None:
        """Return the accuracy under the prior; None without a law of the votes."""
        if self.is_binary:
            return accuracy_of_majorities(self.curve(law), self.K, self.prior)
        return self._sample(self.prior).mean(self._compute_accuracies(law, self.prior))

    def expected_error(self, law: Law) -> float | None:
        """Return the expected error; None for more than two classes, and for a prior without weights."""
        return self._compute_error(law) if self.is_binary and self.prior.has_closed_form else None

    def consensus(self, law: Law) -> dict[str, Accuracy]:
        references = self.reference_priors
        if self.is_binary:
            curve = self.curve(law)
            by_name = {name: accuracy_of_majorities(curve, self.K, prior) for name, prior in references.items()}
            return {name: accuracy for name, accuracy in by_name.items() if accuracy is not None}
        mixture = Spread()
        accuracies_of_all, is_listed = self._compute_accuracies(law, mixture), self._sample(mixture).weights is not None
        accuracies = {}
        for place, (name, prior) in enumerate(references.items()):
            if prior == self.prior:
                accuracies[name] = self._sample(prior).mean(self._compute_accuracies(law, prior))
            elif is_listed:
                accuracies[name] = self._sample(prior).mean(accuracies_of_all)
            else:
                sampled = accuracies_of_all[place :: len(references)]
                accuracies[name] = Accuracy(float(sampled.mean()), float(sampled.std(ddof=1) / math.sqrt(len(sampled))))
        return accuracies

    @property
    def guessing(self) -> Accuracy | None:
        return Accuracy(0.0) if is_open(self.classes) else self.accuracy(guess_at_random)

    def share_answered(self, law: Law) -> float | None:
        """Return how often an open question is answered; None where classes are listed."""
        if not is_open(self.classes):
            return None
        counts, weights = list_histograms(self.prior, self.K, self.classes, MOST_LISTED)
        shares = law(counts).sum(axis=1)
        return min(1.0, float(shares.mean() if weights is None else weights @ shares))

    def _compute_error(self, law: Law) -> float:
        # an answer worse than random guessing counts as a guess
        return NoiseFunction(self.K, np.clip(2.0 * self.curve(law) - 1.0, 0.0, 1.0)).expected_error(self.prior)

    def _sample(self, prior: Prior) -> Sample:
        return make_sample(prior, self.K, self.classes, MOST_LISTED, self.missing)

    def _compute_accuracies(self, law: Law, prior: Prior) -> Array:
        if (law, prior) not in self._accuracies:  # a search and a report ask about the same law
            self._accuracies[law, prior] = self._sample(prior).compute_accuracy(law)
        return self._accuracies[law, prior]


def _list_majorities(K: int) -> NDArray[np.int64]:
    winning = np.arange(K // 2 + 1, K + 1)
    return np.column_stack([winning, K - winning])


def _list_lone_leaders(K: int) -> NDArray[np.int64]:
    """List partitions with one vote for each string but one."""
    levels = 1 + np.arange(K)[spread(K, MOST_LEVELS)]
    others = np.arange(K) <= K - levels[:, None]
    return np.where(np.arange(K) == 0, levels[:, None], others.astype(np.int64))


def _list_leaders(K: int, classes: int) -> NDArray[np.int64]:
    """List histograms in which one class leads and the others share the remaining votes evenly."""
    others = classes - 1
    levels = np.arange(K // classes + 1, K + 1)
    levels = levels[levels > -(-(K - levels) // others)]
    levels = levels[spread(levels.size, MOST_LEVELS)]
    remaining = K - levels
    other_counts = (remaining // others)[:, None] + (np.arange(others) < (remaining % others)[:, None])
    return np.column_stack([levels, other_counts])
