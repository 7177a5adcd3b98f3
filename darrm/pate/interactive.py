"""Interactive-GNMax: the teachers correct the student where they disagree with it [P, Algorithm 2].

The check looks at max_j (n_j − M p_j) for the student's scores p, which are public: the student was trained privately.
M p_j is rounded to a whole number first, so that exact whole-number noise can be added; rounding public numbers costs
nothing, and the statistic still changes by at most 1 when one teacher changes its vote.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from darrm import checks
from darrm.losses.charges import Charge
from darrm.losses.renyi import RenyiCurve
from darrm.pate.confident import CheckedGNMax, may_decline
from darrm.votes import Labels, Votes, counts_of, require_votes

ANSWERED, REINFORCED, DECLINED = "answered", "reinforced", "declined"
SUM_TOLERANCE = 1e-6  # scores are float32 in most training code


@dataclass(frozen=True, eq=False)
class InteractiveRelease:
    """The labels of an interactive release, and where each came from.

    Attributes
    ----------
    labels
        (Q,) names of classes; `ABSTAIN` for ⊥.
    outcome
        (Q,) words: ``"answered"`` by the teachers, ``"reinforced"`` from the student, ``"declined"`` (⊥).
    """

    labels: Labels
    outcome: NDArray[np.str_]

    @property
    def answered(self) -> NDArray[np.bool_]:
        """Which queries the teachers answered: those that cost more than the check."""
        return np.asarray(self.outcome == ANSWERED)


@dataclass(frozen=True)
class InteractiveGNMax(CheckedGNMax):
    """Answer where the teachers disagree with the student, reinforce a confident student, else ⊥ [P, Algorithm 2].

    Parameters
    ----------
    threshold
        T, in votes: how far the teachers must be from the student.
    sigma_threshold, sigma_answer
        σ₁ and σ₂ > 0, in votes.
    confidence
        γ in [0, 1]: the student's largest score must exceed it to be reinforced.
    noise
        As for `GNMax`.

    Examples
    --------
    >>> aggregator = InteractiveGNMax(100, sigma_threshold=2.0, sigma_answer=2.0, confidence=0.9)
    >>> votes = Votes.of_counts([[250, 0], [250, 0], [130, 120]])
    >>> scored = aggregator.with_scores([[0.05, 0.95], [0.95, 0.05], [0.5, 0.5]])
    >>> release = scored.answer(votes, rng=np.random.default_rng(0))
    >>> release.labels.tolist(), release.outcome.tolist()
    ([0, 0, -1], ['answered', 'reinforced', 'declined'])
    >>> scored.release(votes, rng=np.random.default_rng(0)).tolist()
    [0, 0, -1]
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
        """Compute max_j (n_j − round(M p_j)) for each query, which the check looks at; scores (Q, C) → (Q,)."""
        counts = counts_of(require_votes(votes))
        self.check_threshold(votes.voters)
        return _surplus(counts, int(counts[0].sum()), _check_scores(scores, counts.shape))

    def with_scores(self, scores: ArrayLike) -> ScoredGNMax:
        """Return the aggregator for queries whose (Q, C) scores by the student are known; they are public."""
        return ScoredGNMax(self, np.array(scores, dtype=np.float64))


@dataclass(frozen=True, eq=False)
class ScoredGNMax:
    """`InteractiveGNMax` for the queries that a student has scored: an aggregator like any other.

    `InteractiveGNMax` alone is none, since it cannot answer without scores; they belong to the queries and not to the
    mechanism, whose charge must be of one kind for every batch.
    """

    mechanism: InteractiveGNMax
    scores: NDArray[np.float64]  # (Q, C) probabilities that the student gives to the classes, one row for each query

    @property
    def guarantee(self) -> RenyiCurve:
        """What one query satisfies, that of the mechanism."""
        return self.mechanism.guarantee

    def charge(self, queries: int = 1) -> Charge:
        """Describe what ``queries`` queries cost, that of the mechanism."""
        return self.mechanism.charge(queries)

    def release(self, votes: Votes, *, rng: np.random.Generator | None = None) -> Labels:
        """Release one class, or `ABSTAIN` for ⊥, for each query."""
        return self.answer(votes, rng=rng).labels

    def answer(self, votes: Votes, *, rng: np.random.Generator | None = None) -> InteractiveRelease:
        """Release a label for each query of ``scores``, and where it came from.

        As `Aggregator.release`; `ValueError` also where the scores are malformed or of other queries.
        """
        given, mechanism = may_decline(votes), self.mechanism
        mechanism.check_threshold(given.voters)
        scores = _check_scores(self.scores, given.counts.shape)
        passed = mechanism.check.release(_surplus(given.counts, given.voters, scores), rng)
        sure = ~passed & (scores.max(axis=1) > mechanism.confidence)
        answers = mechanism.answer_where(passed, given.counts, rng)
        answers[sure] = scores[sure].argmax(axis=1)
        outcome = np.where(passed, ANSWERED, np.where(sure, REINFORCED, DECLINED))
        return InteractiveRelease(given.labeled(answers), outcome)


def _surplus(counts: NDArray[np.int64], voters: int, scores: NDArray[np.float64]) -> NDArray[np.int64]:
    return np.asarray((counts - np.rint(voters * scores).astype(np.int64)).max(axis=1))


def _check_scores(scores: ArrayLike, shape: tuple[int, ...]) -> NDArray[np.float64]:
    student = np.asarray(scores, dtype=np.float64)
    if student.shape != shape:
        checks.fail("the shape of the scores", student.shape, f"the shape of the vote counts, {shape}")
    wrong = student[~((student >= 0.0) & (student <= 1.0))]  # NaN is wrong, too
    if wrong.size:
        checks.fail("scores", float(wrong[0]), "in [0, 1]", "give probabilities, not logits")
    sums = student.sum(axis=1)
    if np.any(np.abs(sums - 1.0) > SUM_TOLERANCE):
        row = int(np.argmax(np.abs(sums - 1.0)))
        checks.fail(f"the sum of the scores of row {row}", float(sums[row]), "1", "give probabilities")
    return student
