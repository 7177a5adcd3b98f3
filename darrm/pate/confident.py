"""Confident-GNMax: answer only if the teachers agree, with a private check [P, Algorithm 1]; Interactive-GNMax.

One vote changes the largest count by at most 1, so a noisy check costs λ/(2σ₁²), its bit about 2/π of that.

In Interactive-GNMax [P, Algorithm 2] the teachers correct a student who disagrees: the statistic is max_j (n_j − M p_j)
for the public scores p of a privately trained student. M p_j is rounded to a whole number, for exact whole-number
noise; rounding public numbers is free, and one vote still changes the statistic by at most 1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from darrm.loss.privacy_cost import PrivacyCost
from darrm.loss.renyi import RenyiCurve, log_renyi_sums
from darrm.noisy_max.label_cost import threshold_curve
from darrm.noisy_max.mechanisms import GNMax, noise_draws, noisy_argmax
from darrm.noisy_max.noise_law import MOST_SUMMED, check_noise, discrete_gaussian_log_survival
from darrm.numerics.integer_noise import DiscreteGaussian
from darrm.numerics.special import log_ndtr
from darrm.pate.theorem_6 import gaussian_renyi
from darrm.util import checks
from darrm.votes import ABSTAIN, MOST_VOTERS, Labels, Votes, require_votes, to_counts

CHECK_ROUNDING = 1e-9  # more than the error of a check's log-probabilities; a larger q only enlarges a bound
_MAX_EXCESS_DEVIATIONS = 2.0  # of the noise: a threshold may exceed all votes by them; [P] has T = 300 for 250
EXACT_ROUNDING = 4e-12  # relative, of a check's probabilities from tables


@dataclass(frozen=True)
class NoisyCheck:
    """Compare a statistic of sensitivity 1 with a finite threshold T, under Gaussian noise σ₁ > 0; both in votes."""

    threshold: float
    sigma: float
    noise: str = "discrete"

    def __post_init__(self) -> None:
        check_noise(self.sigma, self.noise)
        checks.finite(threshold=self.threshold)
        if abs(self.threshold) > MOST_VOTERS:
            checks.fail("threshold", self.threshold, f"of a size up to {MOST_VOTERS}", "it is compared with votes")

    @property
    def guarantee(self) -> RenyiCurve:
        """The Rényi curve of one check, a bit; λ/(2σ₁²) with continuous noise."""
        if self.noise == "continuous":
            return RenyiCurve.of(self.independent)
        return threshold_curve(DiscreteGaussian(self.sigma))

    def independent(self, orders: ArrayLike) -> NDArray[np.float64]:
        """Compute λ/(2σ₁²), the cost of the noisy statistic."""
        return np.asarray(orders, dtype=np.float64) / (2.0 * self.sigma**2)

    def log_probabilities(self, statistic: NDArray[np.int64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Compute log Pr[passes] and log Pr[fails], elementwise."""
        if self.noise == "continuous":
            z = (statistic - self.threshold) / self.sigma
            return log_ndtr(z), log_ndtr(-z)
        least_noise = np.ceil(self.threshold - statistic).astype(np.int64)  # the least noise that passes
        log_tails = discrete_gaussian_log_survival(np.stack([least_noise, 1 - least_noise]), self.sigma)  # by symmetry
        return log_tails[0], log_tails[1]

    def dependent(self, statistic: NDArray[np.int64], orders: ArrayLike) -> NDArray[np.float64]:
        """Bound the cost of each check by its statistic, by Theorem 6: (Q,) and (L,) → (Q, L); private data.

        Its Rényi curve λ/(2σ₁²) = λ/(√2 σ₁)² admits Theorem 6 and Proposition 10 with √2 σ₁ and q = min(Pr[passes],
        Pr[fails]).
        """
        passes, fails = self.log_probabilities(statistic)
        log_q = np.minimum(np.minimum(passes, fails) + CHECK_ROUNDING, 0.0)
        return gaussian_renyi(log_q, math.sqrt(2.0) * self.sigma, orders)

    def is_summed(self, statistic: NDArray[np.int64]) -> bool:
        """Return whether `log_probabilities` come from tables and not from bounds, as `exact` needs."""
        farthest = float(np.max(np.abs(statistic - self.threshold)))
        return self.noise == "discrete" and farthest + 40.0 * self.sigma + 4.0 < MOST_SUMMED

    def exact(self, statistic: NDArray[np.int64], orders: ArrayLike) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Compute each check's worst divergence to one vote away, rounded up: (Q, L) forward and both; private data."""
        grid = np.asarray(orders, dtype=np.float64)
        log_bits = np.stack(self.log_probabilities(statistic), axis=1)
        forward, reverse = np.zeros((2, statistic.size, grid.size))
        for step in (-1, 1):
            moved_log_bits = np.stack(self.log_probabilities(statistic + step), axis=1)
            forward = np.maximum(forward, log_renyi_sums(log_bits, moved_log_bits, grid).T / (grid - 1.0))
            reverse = np.maximum(reverse, log_renyi_sums(moved_log_bits, log_bits, grid).T / (grid - 1.0))
        margin = (2.0 * grid - 1.0) / (grid - 1.0) * EXACT_ROUNDING
        return forward + margin, np.maximum(forward, reverse) + margin

    def release(self, statistic: NDArray[np.int64], rng: np.random.Generator | None) -> NDArray[np.bool_]:
        draw = noise_draws(DiscreteGaussian(self.sigma), rng, continuous=self.noise == "continuous")
        return np.asarray(statistic + draw(statistic.size) >= self.threshold)


class CheckedGNMax:
    """Base of `ConfidentGNMax` and `InteractiveGNMax`, which differ in the statistic of the check."""

    threshold: float
    sigma_threshold: float
    sigma_answer: float
    noise: str

    def __post_init__(self) -> None:
        checks.positive(sigma_threshold=self.sigma_threshold, sigma_answer=self.sigma_answer)
        NoisyCheck(self.threshold, self.sigma_threshold, self.noise)  # raise for invalid parameters
        GNMax(self.sigma_answer, self.noise)

    @property
    def check(self) -> NoisyCheck:
        return NoisyCheck(self.threshold, self.sigma_threshold, self.noise)

    @property
    def answer(self) -> GNMax:
        return GNMax(self.sigma_answer, self.noise)

    def check_threshold(self, voters: int) -> None:
        """Raise `ValueError` if the threshold is out of reach of the votes and the noise."""
        limit = voters + _MAX_EXCESS_DEVIATIONS * self.sigma_threshold
        if self.threshold > limit:
            advice = "otherwise only extreme noise answers a query, and every check costs privacy"
            allowed = f"at most {limit:g}, the number of voters, {voters}, and two deviations of the noise"
            checks.fail("threshold", self.threshold, allowed, advice)
        if self.threshold < -limit:
            advice = "otherwise every query passes, and every check costs privacy: use GNMax"
            checks.fail("threshold", self.threshold, f"at least {-limit:g}", advice)

    @property
    def guarantee(self) -> RenyiCurve:
        return self.check.guarantee + self.answer.guarantee

    def privacy_cost(self, queries: int = 1) -> PrivacyCost:
        """Return the cost of ``queries`` queries, for any votes and any number of answers."""
        return PrivacyCost(f"{self!r}", renyi=self.guarantee, count=queries, reached=1)

    def answer_where(
        self, is_passed: NDArray[np.bool_], counts: NDArray[np.int64], rng: np.random.Generator | None
    ) -> NDArray[np.int64]:
        """Answer the queries that passed, `ABSTAIN` for the others: (Q,) and (Q, C) → (Q,)."""
        answers = np.full(len(counts), ABSTAIN, dtype=np.int64)
        answers[is_passed] = noisy_argmax(counts[is_passed], self.answer.draw(rng), rng)
        return answers


@dataclass(frozen=True)
class ConfidentGNMax(CheckedGNMax):
    """Answer by GNMax if the noisy plurality reaches the threshold T, else ⊥ [P, Algorithm 1]; all in votes.

    Every query pays for the check (noise ``sigma_threshold`` > 0, σ₁), only answered ones for the answer
    (``sigma_answer`` > 0, σ₂). ``noise`` is as for `GNMax`. `ValueError` if a parameter is out of range.

    >>> aggregator = ConfidentGNMax(threshold=200, sigma_threshold=2.0, sigma_answer=2.0)
    >>> aggregator.release(Votes.from_counts([[250, 0], [130, 120]]), rng=np.random.default_rng(0)).tolist()
    [0, -1]
    """

    threshold: float
    sigma_threshold: float
    sigma_answer: float
    noise: str = "discrete"

    def statistic(self, votes: Votes) -> NDArray[np.int64]:
        """Return the plurality of each query, the statistic of the check: (Q,)."""
        counts = to_counts(require_votes(votes))
        self.check_threshold(votes.voters)
        return np.asarray(counts.max(axis=1))

    def release(self, votes: Votes, *, rng: np.random.Generator | None = None) -> Labels:
        """Release one class, or `ABSTAIN` for ⊥, for each query; arrays are refused."""
        votes = may_decline(votes)
        self.check_threshold(votes.voters)
        is_passed = self.check.release(votes.counts.max(axis=1), rng)
        return votes.name_labels(self.answer_where(is_passed, votes.counts, rng))


def may_decline(votes: Votes) -> Votes:
    """Return the votes; `ValueError` if a class has the name of ⊥."""
    for name in require_votes(votes).classes:
        try:
            is_abstain = float(str(name)) == ABSTAIN  # by value: −1.0 and "-1.0" equal −1, too
        except ValueError:
            continue
        if is_abstain:
            checks.fail("classes", votes.classes, f"other than {ABSTAIN}", "that is the label of unanswered queries")
    return votes


ANSWERED, REINFORCED, DECLINED = "answered", "reinforced", "declined"
SUM_TOLERANCE = 1e-6  # scores are float32 in most training code


@dataclass(frozen=True, eq=False)
class InteractiveRelease:
    """The labels of an interactive release, (Q,) with `ABSTAIN` for ⊥, and their origin: teachers, student, or ⊥."""

    labels: Labels
    outcome: NDArray[np.str_]

    @property
    def answered(self) -> NDArray[np.bool_]:
        """The queries that the teachers answered."""
        return np.asarray(self.outcome == ANSWERED)


@dataclass(frozen=True)
class InteractiveGNMax(CheckedGNMax):
    """Answer if the teachers disagree with the student, reinforce a confident student, else ⊥ [P, Algorithm 2].

    ``threshold`` T is the distance of the teachers from the student that is needed for an answer; σ₁ and σ₂ > 0 are in
    votes. A student whose largest score exceeds ``confidence``, γ in [0, 1], is reinforced. ``noise`` is as for
    `GNMax`.

    >>> aggregator = InteractiveGNMax(100, sigma_threshold=2.0, sigma_answer=2.0, confidence=0.9)
    >>> votes = Votes.from_counts([[250, 0], [250, 0], [130, 120]])
    >>> scored = aggregator.with_scores([[0.05, 0.95], [0.95, 0.05], [0.5, 0.5]])
    >>> release = scored.answer(votes, rng=np.random.default_rng(0))
    >>> release.labels.tolist(), release.outcome.tolist()
    ([0, 0, -1], ['answered', 'reinforced', 'declined'])
    """

    threshold: float
    sigma_threshold: float
    sigma_answer: float
    confidence: float
    noise: str = "discrete"

    def __post_init__(self) -> None:
        checks.probability(confidence=self.confidence)
        super().__post_init__()

    def statistic(self, votes: Votes, scores: ArrayLike) -> NDArray[np.int64]:
        """Compute max_j (n_j − round(M p_j)) for each query, the statistic of the check; scores (Q, C) → (Q,)."""
        counts = to_counts(require_votes(votes))
        self.check_threshold(votes.voters)
        return _compute_surplus(counts, int(counts[0].sum()), _check_scores(scores, counts.shape))

    def with_scores(self, scores: ArrayLike) -> ScoredGNMax:
        """Return the aggregator for queries with public (Q, C) scores of the student."""
        return ScoredGNMax(self, np.array(scores, dtype=np.float64))


@dataclass(frozen=True, eq=False)
class ScoredGNMax:
    """`InteractiveGNMax` with the scores of a batch of queries: an aggregator."""

    mechanism: InteractiveGNMax
    scores: NDArray[np.float64]  # (Q, C) probabilities of the student, one row for each query

    @property
    def guarantee(self) -> RenyiCurve:
        return self.mechanism.guarantee

    def privacy_cost(self, queries: int = 1) -> PrivacyCost:
        return self.mechanism.privacy_cost(queries)

    def release(self, votes: Votes, *, rng: np.random.Generator | None = None) -> Labels:
        return self.answer(votes, rng=rng).labels

    def answer(self, votes: Votes, *, rng: np.random.Generator | None = None) -> InteractiveRelease:
        """Release a label for each query, and its origin; `ValueError` also for malformed scores."""
        votes, mechanism = may_decline(votes), self.mechanism
        mechanism.check_threshold(votes.voters)
        scores = _check_scores(self.scores, votes.counts.shape)
        is_passed = mechanism.check.release(_compute_surplus(votes.counts, votes.voters, scores), rng)
        is_reinforced = ~is_passed & (scores.max(axis=1) > mechanism.confidence)
        answers = mechanism.answer_where(is_passed, votes.counts, rng)
        answers[is_reinforced] = scores[is_reinforced].argmax(axis=1)
        outcome = np.where(is_passed, ANSWERED, np.where(is_reinforced, REINFORCED, DECLINED))
        return InteractiveRelease(votes.name_labels(answers), outcome)


def _compute_surplus(counts: NDArray[np.int64], voters: int, scores: NDArray[np.float64]) -> NDArray[np.int64]:
    return np.asarray((counts - np.rint(voters * scores).astype(np.int64)).max(axis=1))


def _check_scores(scores: ArrayLike, shape: tuple[int, ...]) -> NDArray[np.float64]:
    student = np.asarray(scores, dtype=np.float64)
    if student.shape != shape:
        checks.fail("the shape of the scores", student.shape, f"the shape of the vote counts, {shape}")
    invalid = student[~((student >= 0.0) & (student <= 1.0))]  # NaN is wrong, too
    if invalid.size:
        checks.fail("scores", float(invalid[0]), "in [0, 1]", "give probabilities, not logits")
    sums = student.sum(axis=1)
    if np.any(np.abs(sums - 1.0) > SUM_TOLERANCE):
        row = int(np.argmax(np.abs(sums - 1.0)))
        checks.fail(f"the sum of the scores of row {row}", float(sums[row]), "1", "give probabilities")
    return student
