"""Parameters chosen on public votes: as many and as right answers as [P]'s, at the smallest ε that may be published.

The votes that are searched on are synthetic (`settings.pate_like_votes`): they know the number of teachers and classes,
and nothing of the private data, so the parameters tell nothing either.
"""

import math
from dataclasses import dataclass, replace
from itertools import product

import numpy as np

from darrm.pate.analysis import Analysis
from darrm.pate.confident import ConfidentGNMax
from darrm.pate.publication import Expected, search_publication
from darrm.pate.report import quiet_analysis
from darrm.pate.vote_scale import PublicationParameters
from darrm.votes import Votes
from experiments.pate.settings import VoteSize, pate_like_votes

THRESHOLDS = (0.6, 0.7, 0.8, 0.9, 1.0)  # of the number of teachers
CHECK_NOISES, ANSWER_NOISES = (0.4, 0.6, 0.8, 1.0, 1.2, 1.4), (0.08, 0.12, 0.16, 0.2, 0.24)  # likewise
ORDERS = (8.0, 10.0, 12.0, 14.0, 17.0, 20.0, 24.0)


@dataclass(frozen=True)
class Found:
    """What the search chose, and what it expects of it on the public votes."""

    aggregator: ConfidentGNMax
    parameters: PublicationParameters
    answered: float
    epsilon: float
    base_epsilon: float  # of the aggregator that it is to match


def search(base: ConfidentGNMax, size: VoteSize, delta: float) -> Found:
    """Search T, σ₁, σ₂, λ and s on public votes of such a size.

    At least as many expected answers as by ``base``, as likely the plurality, and the smallest ε at two standard
    deviations of the publication's noise.
    """
    votes = Votes.of_counts(pate_like_votes(size))

    def analyzed(aggregator: ConfidentGNMax) -> Analysis:
        return quiet_analysis(votes, aggregator, delta, conversion="tight")

    known = analyzed(base)
    reference = search_publication(known, ORDERS)
    answers, wrong = known.expected_answered, _wrong(known)
    best: tuple[float, ConfidentGNMax, Expected[PublicationParameters], float] | None = None
    for answer_noise in ANSWER_NOISES:
        sigma = answer_noise * size.voters
        at_sigma = analyzed(replace(base, sigma_answer=sigma))
        for threshold, check_noise in product(THRESHOLDS, CHECK_NOISES):
            tried = ConfidentGNMax(threshold * size.voters, check_noise * size.voters, sigma)
            passes = np.exp(tried.check.log_probabilities(votes.counts.max(axis=1))[0])
            analysis = replace(at_sigma, aggregator=tried, probabilities=passes)
            if analysis.expected_answered < answers or _wrong(analysis) > wrong:
                continue
            expected = search_publication(analysis, ORDERS)
            value = expected.epsilon + 2.0 * expected.deviation
            if best is None or value < best[0]:
                best = (value, tried, expected, analysis.expected_answered)
    if best is None:
        return Found(base, reference.parameters, answers, reference.epsilon, reference.epsilon)
    _, aggregator, expected, answered = best
    return Found(aggregator, expected.parameters, answered, expected.epsilon, reference.epsilon)


def _wrong(analysis: Analysis) -> float:
    """Return how likely an answer is not the plurality, on average."""
    if analysis.label is None:
        return math.nan
    missed = analysis.label.missed[analysis.label.which]
    return float(missed @ analysis.probabilities / analysis.probabilities.sum())
