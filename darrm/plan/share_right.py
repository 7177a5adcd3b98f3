"""The share of right labels of a release: how often its answer is one of the classes with the most votes.

A release whose law does not change when classes change their names is known by its law on sorted histograms, the
partitions of K into at most C parts. Where these are few the share is a sum over all of them; else it is the mean over
histograms that are drawn from the prior with a fixed public seed, of probabilities that are exact. The same histograms
serve every release, so differences are known better than the standard error says.

`Measure` is what a workload's releases are compared by. Beside its prior there are always the three columns of
`darrm.laws.priors.columns_of`: nobody knows beforehand how much voters agree, and a share of right labels means little
without it.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from darrm.errors import checks
from darrm.laws import priors
from darrm.laws.noise_function import NoiseFunction
from darrm.laws.partitions import falling_counts, number_of_partitions
from darrm.laws.priors import (
    Dirichlet,
    Ewens,
    Prior,
    RecordedVotes,
    Spread,
    columns_of,
    law_of_ones,
    log_arrangements,
    weights_of,
)
from darrm.mechanisms.noisy_law import WinningLaw
from darrm.plan.missing import MOST_ROLLED, Rolled, number_of_rolls, rolled
from darrm.probability import Array
from darrm.problem import OPEN, Workload, is_open
from darrm.system.command_line import spread

# a release's law: (n, C) histograms, the largest count first → (n, C) probabilities of the answers, ties shared
Law = Callable[[NDArray[np.int64]], Array]

MOST_LISTED = 4096  # histograms: of more partitions, as many are drawn
MOST_COUNTS, LEAST_DRAWN = 2**19, 512  # counts in all of those that are drawn, but for so many histograms
MOST_LEVELS = 128  # numbers of votes for the plurality of more than two classes at which the truth is told
MOST_DRAWN = 256  # rolls of dice for each of these, where there are more
MOST_PLANNED = 1000  # classes: laws are computed class by class
MOST_OPEN_VOTERS = 5_000  # of open answers: who said something new is drawn voter by voter
SEED = 20_250_101  # public: the same numbers for everybody


@dataclass(frozen=True)
class ShareRight:
    """A share of right labels, in [1/C, 1] for any sensible release."""

    value: float
    standard_error: float = 0.0  # of drawn histograms; 0 where all were added up

    def __str__(self) -> str:
        return f"{self.value:.5f}" + (f" ± {self.standard_error:.5f}" if self.standard_error else "")

    def to_json(self) -> dict[str, float]:
        """Write the two numbers as plain data."""
        return {"value": self.value, "standard_error": self.standard_error}


def share_right(
    law: Law, K: int, classes: int, prior: Prior, *, draws: int = MOST_LISTED, missing: int = 0
) -> ShareRight:
    """Compute the probability that a label is right, under a prior.

    Parameters
    ----------
    law
        What a release answers, on sorted histograms: (n, C) → (n, C).
    K, classes
        How many voters choose from how many classes.
    prior
        A public belief about their votes.
    draws
        How many histograms are listed, or drawn where there are more.
    missing
        How many of the K votes are missing: a label is right about the others, and fair dice stand for these.

    Examples
    --------
    A label that looks at nothing: the five histograms of 4 votes on 2 classes, one of which is a tie.

    >>> print(share_right(coin, 4, 2, Dirichlet()))
    0.60000
    """
    question = (prior, K - missing, classes, draws, missing)
    return _mean(_right_of(law, question), question)


_Question = tuple[Prior, int, int, int, int]  # prior, votes that are there, classes, draws, missing votes


def _right_of(law: Law, question: _Question) -> Array:
    """Compute how often the answer is right for each histogram, (n,)."""
    asked, _, place = _asked(question)
    right = law.right(asked.asked) if isinstance(law, WinningLaw) and not question[-1] else asked.shares(law)
    return np.asarray(right if place is None else right[place])


def _mean(right: Array, question: _Question) -> ShareRight:
    """Compute the mean over the histograms of a prior; those of `Spread` are three samples."""
    asked, weights, _ = _asked(question)
    if weights is not None:  # a share of rolls has a variance of at most 1/4
        error = float(np.linalg.norm(weights)) / (2.0 * math.sqrt(asked.drawn)) if asked.drawn else 0.0
        return ShareRight(min(1.0, float(weights @ right)), error)
    samples = 3 if isinstance(question[0], Spread) else 1
    variance = np.mean([right[first::samples].var(ddof=1) for first in range(samples)])
    return ShareRight(float(right.mean()), math.sqrt(variance / len(right)))


@lru_cache(maxsize=8)
def _asked(question: _Question) -> tuple[Rolled, Array | None, NDArray[np.int64] | None]:
    """List what a law is asked, the weights, and where each histogram is in it; None where all differ."""
    prior, K, classes, most, missing = question
    counts, weights = histograms(prior, K, classes, most)
    drawn, place = None, None
    if missing and (weights is None or len(counts) * number_of_rolls(missing, classes) > MOST_ROLLED):
        drawn = 1 if weights is None else max(1, MOST_ROLLED // len(counts))
    elif weights is None:  # voters that agree say the same again and again
        counts, place = np.unique(counts, axis=0, return_inverse=True)
        place = place.ravel()
    return rolled(counts, counts == counts[:, :1], missing, drawn=drawn), weights, place


def coin(counts: NDArray[np.int64]) -> Array:
    """Answer any class, whatever the votes: the law that is worth nothing."""
    return np.full(counts.shape, 1.0 / counts.shape[1])


def share_of_majorities(truth: Array, K: int, prior: Prior) -> ShareRight | None:
    """Compute the share of right labels of a majority of two classes; None under a prior of which too little is known.

    ``truth`` is Pr[the answer is the majority | l votes for it] for l = floor(K/2) + 1 … K; at a tie both are right.

    >>> from darrm.laws.priors import Dirichlet
    >>> print(share_of_majorities(np.array([0.5, 0.5]), 4, Dirichlet()))
    0.60000
    """
    ones = law_of_ones(prior, K)
    if ones is None:
        return None
    either_way = (ones + ones[::-1])[K // 2 + 1 :]
    return ShareRight(min(1.0, float(either_way @ truth) + (0.0 if K % 2 else float(ones[K // 2]))))


@lru_cache(maxsize=16)
def histograms(prior: Prior, K: int, classes: int, most: int) -> tuple[NDArray[np.int64], Array | None]:
    """List sorted histograms with their probabilities, or draw some."""
    checks.integer_at_least(1, K=K)
    if isinstance(prior, Spread):
        first, *others = columns_of(classes).values()
        rows, weights = histograms(first, K, classes, most)
        if weights is not None:  # the rows of the others are the same
            all_weights = [weights for _, weights in (histograms(one, K, classes, most) for one in (first, *others))]
            return rows, np.mean(np.array(all_weights, dtype=np.float64), axis=0)
    if isinstance(prior, Ewens) and number_of_partitions(K, K) <= most:
        rows = np.array(list(falling_counts(K, K, K)), dtype=np.int64)
        return rows, np.exp(prior.log_of_partitions([tuple(row[row > 0].tolist()) for row in rows]))
    if isinstance(prior, RecordedVotes) and prior.votes.voters == K:
        prior.check_classes(classes)
        rows, times = np.unique(-np.sort(-prior.votes.counts, axis=1), axis=0, return_counts=True)
        return rows, times / times.sum()
    if isinstance(prior, Dirichlet) and _are_few(K, classes, most):
        rows = np.array(list(falling_counts(K, classes, K)), dtype=np.int64)
        return rows, np.exp(prior.log_probabilities(rows) + log_arrangements(rows))
    few = most if is_open(classes) else min(most, max(LEAST_DRAWN, MOST_COUNTS // classes))
    drawn = prior.sample(K, classes, few, rng=np.random.default_rng(SEED))
    return -np.sort(-drawn, axis=1), None


def _are_few(K: int, classes: int, most: int) -> bool:
    """Whether there are at most so many partitions of K votes."""
    # a partition stands for C! histograms at most: where these are so many, they need not be counted
    if math.comb(K + classes - 1, K) > most * math.factorial(classes):
        return False
    return number_of_partitions(K, min(K, classes)) <= most


class Measure:
    """What the releases of a workload are compared by under a prior.

    Of two classes the expected error decides [D, Definition 2.4], which the programs minimize, an answer worse than a
    coin counting as a coin; of more the share of wrong labels.

    Parameters
    ----------
    workload
        Its voters and classes.
    prior
        A public belief; by default that of `darrm.laws.priors.planned_for`.

    Attributes
    ----------
    levels
        The numbers of votes for the winner at which the truth is told.
    name
        What decides, in words.
    by_regret
        Whether options are ranked by the share that they lose to the best of a column, in the worst one.

    Raises
    ------
    ValueError
        If the prior is no belief about so many classes, or the voters are none that are planned for.

    Examples
    --------
    >>> from darrm import PrivacyParams, Voters
    >>> measure = Measure(Workload(Voters(5, PrivacyParams("inf")), 1, PrivacyParams(1)), None)
    >>> measure.name, measure.levels.tolist(), round(measure.wrong(coin), 3)
    ('expected error', [3, 4, 5], 0.344)
    """

    def __init__(self, workload: Workload, prior: Prior | None) -> None:
        self.prior: Prior = priors.planned_for(workload.classes) if prior is None else prior
        self.missing, self.K = workload.missing, workload.voters.K - workload.missing
        self.classes, self.by_error = workload.classes, workload.has_noise_function
        self.name = "expected error" if self.by_error else "share of right labels"
        if self.by_error:
            weights_of(self.prior, self.K)  # a prior without linear expected error says so before the search
            self.counts = _majorities(self.K)
        else:
            _check_plurality(workload)
            priors.check(self.prior, self.classes)
            self.counts = (_alone if is_open(self.classes) else _leading)(self.K, self.classes)
        self.levels = self.counts[:, 0]
        self.by_regret = isinstance(self.prior, Spread) and not self.by_error
        self._rights: dict[tuple[Law, _Question], Array] = {}

    def truth(self, law: Law) -> Array:
        """Compute Pr[the answer is the winner] at `levels`, the other classes sharing the rest."""
        if not self.missing:
            told = law.right(self.counts) if isinstance(law, WinningLaw) else law(self.counts)[:, 0]
            return np.clip(told, 0.0, 1.0)
        if self.by_error:
            voters = self.K + self.missing
            told = np.clip(law(_majorities(voters))[:, 0], 0.5, 1.0)
            return np.asarray(0.5 + 0.5 * NoiseFunction(voters, 2.0 * told - 1.0).with_missing(self.missing).half)
        few = self.counts.shape[0] * number_of_rolls(self.missing, self.classes) <= MOST_ROLLED
        winner = np.broadcast_to(np.arange(self.classes) == 0, self.counts.shape)
        return rolled(self.counts, winner, self.missing, drawn=None if few else MOST_DRAWN).shares(law)

    def expected_error(self, law: Law) -> float | None:
        """Compute the expected error; None for more than two classes."""
        return self._error(law) if self.by_error else None

    def wrong(self, law: Law) -> float:
        """Compute what decides, the smaller the better."""
        return self._error(law) if self.by_error else 1.0 - self._share(law, self.K + self.missing, MOST_LISTED).value

    def share_right(self, law: Law, K: int | None = None, draws: int = MOST_LISTED) -> ShareRight | None:
        """Compute the share of right labels, of more classes for other K, too; None where too little is known."""
        if self.by_error:
            return share_of_majorities(self.truth(law), self.K, self.prior)
        return self._share(law, K or self.K + self.missing, draws)

    def columns(self, law: Law) -> dict[str, ShareRight]:
        """Compute the share of right labels where voters are divided, mixed, or agree: from one look at the law."""
        three = columns_of(self.classes)
        if self.by_error:
            truth = self.truth(law)
            known = {name: share_of_majorities(truth, self.K, prior) for name, prior in three.items()}
            return {name: share for name, share in known.items() if share is not None}
        of_all = self._asking(Spread(), self.K + self.missing, MOST_LISTED)
        right, listed = self._right(law, of_all), _asked(of_all)[1] is not None
        shares = {}
        for place, (name, prior) in enumerate(three.items()):
            own = self._asking(prior, self.K + self.missing, MOST_LISTED)
            if prior == self.prior:
                shares[name] = _mean(self._right(law, own), own)
            elif listed:
                shares[name] = _mean(right, own)
            else:
                drawn = right[place :: len(three)]
                shares[name] = ShareRight(float(drawn.mean()), float(drawn.std(ddof=1) / math.sqrt(len(drawn))))
        return shares

    @property
    def coin(self) -> ShareRight | None:
        """The share of right labels of a label that looks at nothing; of open answers that is none."""
        return ShareRight(0.0) if is_open(self.classes) else self.share_right(coin)

    def share_answered(self, law: Law) -> float | None:
        """Compute how often an open question is answered; None where classes are listed."""
        if not is_open(self.classes):
            return None
        counts, weights = histograms(self.prior, self.K, self.classes, MOST_LISTED)
        told = law(counts).sum(axis=1)
        return min(1.0, float(told.mean() if weights is None else weights @ told))

    def _error(self, law: Law) -> float:
        return NoiseFunction(self.K, np.clip(2.0 * self.truth(law) - 1.0, 0.0, 1.0)).expected_error(self.prior)

    def _share(self, law: Law, K: int, draws: int) -> ShareRight:
        asked = self._asking(self.prior, K, draws)
        return _mean(self._right(law, asked), asked)

    def _asking(self, prior: Prior, K: int, draws: int) -> _Question:
        return prior, K - self.missing, self.classes, draws, self.missing

    def _right(self, law: Law, question: _Question) -> Array:
        asked = (law, question)
        if asked not in self._rights:  # a search and a report ask about the same law
            self._rights[asked] = _right_of(law, question)
        return self._rights[asked]


def without_silent_classes(workload: Workload, prior: Prior | None) -> tuple[Workload, Prior | None, int]:
    """Plan a list of more classes than `MOST_PLANNED` like open answers, so that classes without votes cost nothing.

    Plain voters' votes for many listed classes look like open answers: those of Dirichlet's law with concentration α in
    each of C classes like Ewens' with θ = αC, their limit for C → ∞. C comes last, or 0 if it is planned as it is.

    >>> from darrm import PrivacyParams, Voters
    >>> work = Workload(Voters(9, PrivacyParams("inf")), 1, PrivacyParams(1, 1e-5), classes=50_000)
    >>> planned, belief, listed = without_silent_classes(work, Dirichlet(0.001))
    >>> planned.classes, belief, listed
    (open, Ewens(theta=50.0), 50000)
    """
    if workload.classes <= MOST_PLANNED or not workload.voters.are_plain or workload.missing:
        return workload, prior, 0
    belief = Ewens(prior.concentration * workload.classes) if isinstance(prior, Dirichlet) else prior
    return replace(workload, classes=OPEN), belief, workload.classes


def _check_plurality(workload: Workload) -> None:
    if is_open(workload.classes):
        advice = "open questions of more voters are not planned"
        checks.integer_at_least(1, most=MOST_OPEN_VOTERS, K=workload.voters.K, advice=advice)
        return
    advice = "longer lists are planned for plain voters whose votes are all there"
    checks.integer_at_least(2, most=MOST_PLANNED, classes=workload.classes, advice=advice)


def _majorities(K: int) -> NDArray[np.int64]:
    winning = np.arange(K // 2 + 1, K + 1)
    return np.column_stack([winning, K - winning])


def _alone(K: int, _classes: int) -> NDArray[np.int64]:
    """List partitions in which one string leads and the others were said once each."""
    levels = 1 + np.arange(K)[spread(K, MOST_LEVELS)]
    others = np.arange(K) <= K - levels[:, None]
    return np.where(np.arange(K) == 0, levels[:, None], others.astype(np.int64))


def _leading(K: int, classes: int) -> NDArray[np.int64]:
    """List histograms in which one class leads and the others share the rest as evenly as they can."""
    others = classes - 1
    levels = np.arange(K // classes + 1, K + 1)
    levels = levels[levels > -(-(K - levels) // others)]
    levels = levels[spread(levels.size, MOST_LEVELS)]
    rest = K - levels
    shared = (rest // others)[:, None] + (np.arange(others) < (rest % others)[:, None])
    return np.column_stack([levels, shared])
