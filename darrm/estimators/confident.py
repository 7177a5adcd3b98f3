"""Confident-GNMax with a data-independent budget: Q checks, and a fixed number of answers.

[P, Algorithm 1] checks every query and answers the queries that pass, so its cost depends on the votes. Here the
budget covers Q checks and A answers for any votes:

1. the checks of all Q queries are drawn, Q mechanisms of one bit each;
2. the first A queries that passed are answered, at most A mechanisms (the caller puts queries in a random order).

**Theorem.** With c the Rényi curve of a check and a that of an answer, the run has the curve Q·c + A·a [M17,
Proposition 1]. *Proof.* The second step may depend on the outcome of the first, by adaptive composition, and answering
fewer queries is post-processing of answering A. ∎ So the total is debited and may be published before the release.

The parameters do not depend on votes: the threshold is 0.8·K votes, as [P, Section 5] takes 200 of 250; a third of the
divergence goes to the checks, so σ₁ and σ₂ have a fixed ratio, because the costs are near λ·c/σ²; and the noise is the
least that the accountant admits.
"""

import math
from dataclasses import dataclass
from decimal import ROUND_CEILING

import numpy as np
from numpy.typing import NDArray

from darrm.errors import PlanError
from darrm.loss.privacy_cost import PrivacyCost
from darrm.loss.renyi import RenyiCurve
from darrm.pate.confident import ConfidentGNMax
from darrm.plan.calibration import largest_rate
from darrm.plan.mechanism import rounded
from darrm.problem import Workload
from darrm.util import checks
from darrm.votes import ABSTAIN, Votes

THRESHOLD = 0.8  # of the voters
CHECKS_SHARE = 1.0 / 3.0  # of the divergence
CHECK_COST, ANSWER_COST = 1.0 / math.pi, 0.65  # approximate costs, in units of λ/σ²
LEAST_SIGMA = 0.5  # votes, for discrete noise


@dataclass(frozen=True)
class LimitedConfident:
    """Checks ``queries`` queries, and answers the first ``answers`` that pass."""

    aggregator: ConfidentGNMax
    queries: int
    answers: int

    @property
    def guarantee(self) -> RenyiCurve:
        """The guarantee of the whole run, for any votes."""
        curve = self.aggregator.check.guarantee.repeated(self.queries)
        return curve + self.aggregator.answer.guarantee.repeated(self.answers)

    def privacy_cost(self, queries: int = 0) -> PrivacyCost:
        """Describe the cost of the whole run, one cost for all queries or fewer."""
        if queries > self.queries:
            checks.fail("queries", queries, f"at most {self.queries}, for which the noise was calibrated")
        what = f"{self.aggregator!r}: {self.queries} checks, {self.answers} answers"
        return PrivacyCost(what, renyi=self.guarantee, reached=1)

    def release(self, votes: Votes, *, rng: np.random.Generator | None = None) -> NDArray[np.int64]:
        """Release a class for the first queries that pass, `ABSTAIN` for all others: (Q,)."""
        passed = self.aggregator.check.release(self.aggregator.statistic(votes), rng)
        chosen = np.flatnonzero(passed)[: self.answers]
        answers = np.full(len(votes.counts), ABSTAIN, dtype=np.int64)
        if chosen.size:
            asked = Votes.of_counts(votes.counts[chosen], votes.voters)
            answers[chosen] = self.aggregator.answer.release(asked, rng=rng)
        return answers


def limited(workload: Workload, answers: int) -> LimitedConfident:
    """Calibrate the least noise with which Q checks and ``answers`` answers stay within the total of a workload.

    Raises
    ------
    PlanError
        If the total has no δ: no Gaussian noise fits.

    Examples
    --------
    >>> from darrm import PrivacyAccountant, PrivacyParams, Voters
    >>> work = Workload(Voters(250, PrivacyParams("inf"), overlap=1), 1000, PrivacyParams(2, "1e-5"), classes=10)
    >>> found = limited(work, 250)
    >>> PrivacyAccountant(charges=[found.privacy_cost()]).admits(work.total)
    True
    """
    if workload.total.delta == 0.0:
        raise PlanError("Gaussian noise needs delta > 0: pass delta, or aggregator='best'")
    checked, given = CHECK_COST * workload.queries, ANSWER_COST * answers
    ratio = math.sqrt(checked * (1.0 - CHECKS_SHARE) / (given * CHECKS_SHARE))

    def of_rate(rate: float) -> LimitedConfident:
        sigma = float(rounded(max(LEAST_SIGMA, LEAST_SIGMA / ratio, 1.0 / rate), ROUND_CEILING))
        check = float(rounded(ratio * sigma, ROUND_CEILING))
        aggregator = ConfidentGNMax(THRESHOLD * workload.voters.K, check, sigma)
        return LimitedConfident(aggregator, workload.queries, answers)

    run = Workload(workload.voters, 1, workload.total)  # the run is one cost
    start = workload.total.epsilon / (2.0 * math.sqrt(answers))
    return of_rate(largest_rate(run, lambda rate: of_rate(rate).privacy_cost(), start))
