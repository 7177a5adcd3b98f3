"""What a run costs by every way of counting, and what publishing that cost costs: plain data for the tables.

Theorem 6 of [P] bounds D(M(D)‖M(D′)) at the votes at hand, one direction of two; the exact cost of the label bounds
both. Both are private data until they are sanitized. A run of several rounds is a sum of analyses.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from itertools import product
from operator import add

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtri

from darrm.loss.renyi import CONVERSIONS, RenyiCurve
from darrm.noisy_max.mechanisms import LNMax
from darrm.pate.analysis import (
    Analysis,
    Evidence,
    PateAggregator,
    analyze,
    find_noisy_max,
    hide_warnings,
    public_epsilon,
)
from darrm.pate.confident import CheckedGNMax, ConfidentGNMax
from darrm.pate.gnss import GnssParameters, printed_cost
from darrm.pate.publication import Expected, expected_publication, search_parameters, search_publication
from darrm.pate.smooth_sensitivity import ConditionError, smooth_cost
from darrm.pate.vote_scale import PublicationParameters
from darrm.votes import Votes
from experiments.pages import Row
from experiments.pate.settings import VoteSize, pate_like_votes

Publication = Expected[GnssParameters] | Expected[PublicationParameters]
ORDERS_TRIED = 3  # of those with the smallest ε that are not refused, as `search_parameters` does
_MANY_COUNTS = 1_000_000  # of the votes: a smooth sensitivity takes minutes, and one order must do
_SMOOTHNESS, _SCALES = np.geomspace(0.01, 0.3, 10), np.geomspace(3.0, 30.0, 10)
ORDERS_AROUND = np.array([0.7, 0.8, 0.9])  # of the order of the exact ε, above 1: a price comes on top


def account(
    votes: Votes,
    aggregator: PateAggregator,
    delta: float,
    answered: NDArray[np.bool_] | None = None,
    scores: ArrayLike | None = None,
) -> Analysis:
    """Analyze a run that is over; what its warnings say is on the page, in words."""
    with hide_warnings():
        return analyze(votes, aggregator, delta, answered=answered, scores=scores)


def costs(analyses: Sequence[Analysis]) -> Row:
    """Return ε by every way of counting, or None.

    ``printed`` is Theorem 6 by the conversion that [P] prints, ``theorem_6`` by the tight one; ``exact`` is the label's
    own cost in both directions, ``forward`` in the direction of Theorem 6; ``by_label`` does not look at the votes.
    """
    delta = analyses[0].delta
    theorem_6 = _sum([one.theorem_6.curve for one in analyses])
    checks = _sum([one.theorem_6.checks for one in analyses])
    best = theorem_6.best(delta)
    at_best = int(np.argmin(np.abs(theorem_6.orders - best.order)))
    return {
        "printed": theorem_6.best(delta, conversion="classic").epsilon,
        "theorem_6": best.epsilon,
        "order": best.order,
        "check_share": float(checks.values[at_best] / theorem_6.values[at_best]),
        "exact": _epsilon_of_all([one.exact for one in analyses], delta),
        "forward": _epsilon_of_all([one.forward for one in analyses], delta),
        "by_label": public_epsilon(
            _sum([one.independent_curve for one in analyses]), _sum([one.worst_curve for one in analyses]), delta
        ),
    }


def by_label(aggregator: PateAggregator, queries: int, answered: int, delta: float) -> float:
    """Return ε of ``answered`` answers to ``queries`` queries for any votes, from public numbers only.

    >>> from darrm.noisy_max.mechanisms import GNMax
    >>> round(by_label(GNMax(40.0), 100, 100, 1e-5), 3)
    1.166
    """
    one = find_noisy_max(aggregator).guarantee
    check = aggregator.check.guarantee if isinstance(aggregator, CheckedGNMax) else one.repeated(0)
    check = check.repeated(queries)
    return public_epsilon(check + one.repeated(answered), check + one.repeated(queries), delta)


def published_as_in_paper(analyses: Sequence[Analysis]) -> Row:
    """Publish Theorem 6 by GNSS [P, Appendix B]: the parameters with the smallest ε plus two deviations, and the price.

    They are searched on these votes, as in [P, Table 2]: the figures are what a fortunate choice would give. Each round
    is published by itself, at one order; the Rényi costs and the variances of the noises add up.
    """
    curve = _sum([one.theorem_6.curve for one in analyses])
    orders = curve.orders[np.argsort(CONVERSIONS["tight"](curve.orders, curve.values, analyses[0].delta))]
    return _best_of(analyses, orders, search_parameters)


def published_on_vote_scale(analyses: Sequence[Analysis]) -> Row:
    """Publish the exact cost, in both directions, by a noisy mark on the scale of votes: also searched on them."""
    if any(one.exact is None for one in analyses):
        return {"refused": "no exact cost"}
    curve = _sum([one.exact.curve for one in analyses if one.exact is not None])
    best = curve.best(analyses[0].delta).order
    return _best_of(analyses, 1.0 + (best - 1.0) * ORDERS_AROUND, lambda one, order: search_publication(one, [order]))


def published_beforehand(analysis: Analysis, parameters: PublicationParameters) -> Row:
    """Publish the exact cost on the scale of votes with parameters that were fixed before."""
    return _published(parameters.order, analysis.delta, [expected_publication(analysis, parameters)])


def published_by_logarithm(analysis: Analysis) -> Row:
    """Publish Theorem 6 as generalized propose-test-release does [RZW23]: first a bound on its smooth sensitivity.

    log SS_β moves by at most β, so log SS_β + β·s₁·N(0, 1) costs λ/(2s₁²). z·β·s₁ above it lies a public bound on SS_β,
    but for a probability Φ(−z) = δ/10; with noise of s₂ such bounds the cost itself is worth λ/(2s₂²) more. Searched on
    these votes as the other two.
    """
    delta, weights = analysis.delta, analysis.probabilities
    curve = analysis.theorem_6.curve
    orders = curve.orders[np.argsort(CONVERSIONS["tight"](curve.orders, curve.values, delta))]
    bound = float(-ndtri(delta / 10.0))
    found: list[dict[str, float]] = []
    for order in map(float, orders):
        if len(found) == ORDERS_TRIED:
            break
        try:
            smooth = smooth_cost(analysis, order, float(_SMOOTHNESS[0]))
        except ConditionError:
            continue
        before = smooth.value(weights) + float(analysis.theorem_6.checks.bound_at(order))
        tried = []
        for smoothness, first, second in product(_SMOOTHNESS.tolist(), _SCALES.tolist(), _SCALES.tolist()):
            price = order / (2.0 * first**2) + order / (2.0 * second**2)
            deviation = second * smooth.sensitivity(weights, smoothness) * math.exp(bound * smoothness * first)
            epsilon = _at_order(order, before + price, 0.9 * delta)
            tried.append({"order": order, "epsilon": epsilon, "deviation": deviation, "smoothness": smoothness})
        found.append(min(tried, key=lambda one: one["epsilon"] + 2.0 * one["deviation"]))
    return dict(min(found, key=lambda one: one["epsilon"] + 2.0 * one["deviation"])) if found else {"refused": "C6"}


def _best_of(
    analyses: Sequence[Analysis], orders: NDArray[np.float64], search: Callable[[Analysis, float], Publication]
) -> Row:
    """Search every round at the first orders that are not refused; return the best, or why there is none."""
    if any(isinstance(one.aggregator, LNMax) for one in analyses):
        return {"refused": "LNMax: no way to publish its cost"}
    tried = 1 if sum(one.histograms.size for one in analyses) > _MANY_COUNTS else ORDERS_TRIED
    found: list[Row] = []
    refused = ""
    for order in map(float, orders):
        try:
            found.append(_published(order, analyses[0].delta, [search(one, order) for one in analyses]))
        except ConditionError as error:
            refused = refused or str(error)
        if len(found) == tried:
            break
    if not found:
        return {"refused": refused}
    return min(found, key=lambda one: float(one["epsilon"]) + 2.0 * float(one["deviation"]))


def _published(order: float, delta: float, parts: Sequence[Publication]) -> Row:
    renyi = sum(part.renyi for part in parts)
    price = sum(part.parameters.cost for part in parts)
    return {
        "order": order,
        "before": _at_order(order, renyi, delta),
        "epsilon": _at_order(order, renyi + price, delta),
        "deviation": math.hypot(*(part.deviation for part in parts)),
        "rounds": [_round(part) for part in parts],
    }


def _round(part: Publication) -> Row:
    """Describe the publication of one round; Theorem 23 as printed has no value outside its range."""
    used = part.parameters
    found = {"sensitivity": part.sensitivity, "cost": used.cost}
    if isinstance(used, PublicationParameters):
        return found | {"votes": used.deviation}
    fits = used.order * used.smoothness < 0.5
    return found | {
        "smoothness": used.smoothness,
        "noise_scale": used.noise_scale,
        "cost_by_theorem_23": printed_cost(used.order, used.smoothness, used.noise_scale) if fits else None,
    }


def _at_order(order: float, renyi: float, delta: float) -> float:
    return RenyiCurve(np.array([order]), np.array([renyi])).best(delta).epsilon


def _epsilon_of_all(rounds: Sequence[Evidence | None], delta: float) -> float | None:
    """Return ε of a sum of rounds, or None if one of them lacks this cost."""
    known = [one.curve for one in rounds if one is not None]
    return _sum(known).best(delta).epsilon if len(known) == len(rounds) else None


def _sum(curves: Sequence[RenyiCurve]) -> RenyiCurve:
    return reduce(add, curves)


THRESHOLDS = (0.6, 0.7, 0.8, 0.9, 1.0)  # of the number of teachers
CHECK_NOISES, ANSWER_NOISES = (0.4, 0.6, 0.8, 1.0, 1.2, 1.4), (0.08, 0.12, 0.16, 0.2, 0.24)  # likewise
ORDERS = (8.0, 10.0, 12.0, 14.0, 17.0, 20.0, 24.0)


@dataclass(frozen=True)
class Found:
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
        with hide_warnings():
            return analyze(votes, aggregator, delta, conversion="tight")

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
