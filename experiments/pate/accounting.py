"""Compute the cost of a run by several bounds, and the cost of publishing it, as plain data for the tables.

Theorem 6 of [P] bounds D(M(D)‖M(D′)) at these votes, one of two directions; the exact cost of the label bounds both
directions. Both costs are private data until they are sanitized. A run of several rounds is a sum of analyses.
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
from experiments.pate.settings import VoteSize, draw_pate_votes

Publication = Expected[GnssParameters] | Expected[PublicationParameters]
MAX_ORDERS = 3  # orders to try: the valid ones with the smallest ε, as in `search_parameters`
_MANY_COUNTS = 1_000_000  # vote counts: above this, a smooth sensitivity takes minutes, so try one order
_SMOOTHNESS, _SCALES = np.geomspace(0.01, 0.3, 10), np.geomspace(3.0, 30.0, 10)
ORDER_FACTORS = np.array(
    [0.7, 0.8, 0.9]
)  # of (best order − 1): smaller, because the price of publication grows with the order


def account(
    votes: Votes,
    aggregator: PateAggregator,
    delta: float,
    answered: NDArray[np.bool_] | None = None,
    scores: ArrayLike | None = None,
) -> Analysis:
    """Analyze a finished run without warnings, because the page explains them."""
    with hide_warnings():
        return analyze(votes, aggregator, delta, answered=answered, scores=scores)


def compute_costs(analyses: Sequence[Analysis]) -> Row:
    """Return ε by every bound; None if a bound does not exist.

    ``printed`` is Theorem 6 with the conversion of [P], and ``theorem_6`` with the tight one. ``exact`` is the label's
    exact cost in both directions, and ``forward`` in the direction of Theorem 6. ``by_label`` holds for any votes.
    """
    delta = analyses[0].delta
    theorem_6 = _sum_curves([analysis.theorem_6.curve for analysis in analyses])
    checks = _sum_curves([analysis.theorem_6.checks for analysis in analyses])
    best = theorem_6.best(delta)
    best_place = int(np.argmin(np.abs(theorem_6.orders - best.order)))
    return {
        "printed": theorem_6.best(delta, conversion="classic").epsilon,
        "theorem_6": best.epsilon,
        "order": best.order,
        "check_share": float(checks.values[best_place] / theorem_6.values[best_place]),
        "exact": _sum_epsilon([analysis.exact for analysis in analyses], delta),
        "forward": _sum_epsilon([analysis.forward for analysis in analyses], delta),
        "by_label": public_epsilon(
            _sum_curves([analysis.independent_curve for analysis in analyses]),
            _sum_curves([analysis.worst_curve for analysis in analyses]),
            delta,
        ),
    }


def compute_label_epsilon(aggregator: PateAggregator, queries: int, answered: int, delta: float) -> float:
    """Return ε of ``answered`` answers to ``queries`` queries for any votes; it uses public numbers only.

    >>> from darrm.noisy_max.mechanisms import GNMax
    >>> round(compute_label_epsilon(GNMax(40.0), 100, 100, 1e-5), 3)
    1.166
    """
    answer = find_noisy_max(aggregator).guarantee
    check = aggregator.check.guarantee if isinstance(aggregator, CheckedGNMax) else answer.repeat(0)
    check = check.repeat(queries)
    return public_epsilon(check + answer.repeat(answered), check + answer.repeat(queries), delta)


def publish_as_in_paper(analyses: Sequence[Analysis]) -> Row:
    """Publish Theorem 6 by GNSS [P, Appendix B], with the parameters of the least ε plus two deviations.

    The search uses these votes, as in [P, Table 2], so the result is optimistic. Each round has its own publication,
    all at one order; the Rényi costs and the variances of the noise add up.
    """
    curve = _sum_curves([analysis.theorem_6.curve for analysis in analyses])
    orders = curve.orders[np.argsort(CONVERSIONS["tight"](curve.orders, curve.values, analyses[0].delta))]
    return _find_best(analyses, orders, search_parameters)


def publish_on_vote_scale(analyses: Sequence[Analysis]) -> Row:
    """Publish the exact cost by noise on the scale of votes; this search also uses these votes."""
    if any(run.exact is None for run in analyses):
        return {"refused": "no exact cost"}
    curve = _sum_curves([run.exact.curve for run in analyses if run.exact is not None])
    best_order = curve.best(analyses[0].delta).order
    return _find_best(
        analyses, 1.0 + (best_order - 1.0) * ORDER_FACTORS, lambda run, order: search_publication(run, [order])
    )


def publish_with_parameters(analysis: Analysis, parameters: PublicationParameters) -> Row:
    """Publish the exact cost on the scale of votes with fixed parameters."""
    return _publish(parameters.order, analysis.delta, [expected_publication(analysis, parameters)])


def publish_by_logarithm(analysis: Analysis) -> Row:
    """Publish Theorem 6 by generalized propose-test-release [RZW23], after a bound on its smooth sensitivity.

    log SS_β changes by at most β between neighbors, so the release of log SS_β + β·s₁·N(0, 1) costs λ/(2s₁²). Adding
    z·β·s₁ gives a public upper bound on log SS_β, except with probability Φ(−z) = δ/10. Noise of s₂ times this bound on
    the cost itself costs λ/(2s₂²) more. The search uses these votes, as the other two do.
    """
    delta, weights = analysis.delta, analysis.probabilities
    curve = analysis.theorem_6.curve
    orders = curve.orders[np.argsort(CONVERSIONS["tight"](curve.orders, curve.values, delta))]
    z = float(-ndtri(delta / 10.0))
    best_points: list[dict[str, float]] = []
    for order in map(float, orders):
        if len(best_points) == MAX_ORDERS:
            break
        try:
            smooth = smooth_cost(analysis, order, float(_SMOOTHNESS[0]))
        except ConditionError:
            continue
        cost = smooth.value(weights) + float(analysis.theorem_6.checks.bound_at(order))
        points = []
        for smoothness, s1, s2 in product(_SMOOTHNESS.tolist(), _SCALES.tolist(), _SCALES.tolist()):
            price = order / (2.0 * s1**2) + order / (2.0 * s2**2)
            deviation = s2 * smooth.sensitivity(weights, smoothness) * math.exp(z * smoothness * s1)
            epsilon = _convert_at_order(order, cost + price, 0.9 * delta)
            points.append({"order": order, "epsilon": epsilon, "deviation": deviation, "smoothness": smoothness})
        best_points.append(min(points, key=lambda point: point["epsilon"] + 2.0 * point["deviation"]))
    return (
        dict(min(best_points, key=lambda point: point["epsilon"] + 2.0 * point["deviation"]))
        if best_points
        else {"refused": "C6"}
    )


def _find_best(
    analyses: Sequence[Analysis], orders: NDArray[np.float64], search: Callable[[Analysis, float], Publication]
) -> Row:
    """Search every round at the first valid orders; return the best publication, or why there is none."""
    if any(isinstance(analysis.aggregator, LNMax) for analysis in analyses):
        return {"refused": "LNMax: no way to publish its cost"}
    max_orders = 1 if sum(analysis.histograms.size for analysis in analyses) > _MANY_COUNTS else MAX_ORDERS
    publications: list[Row] = []
    refusal = ""
    for order in map(float, orders):
        try:
            publications.append(_publish(order, analyses[0].delta, [search(analysis, order) for analysis in analyses]))
        except ConditionError as error:
            refusal = refusal or str(error)
        if len(publications) == max_orders:
            break
    if not publications:
        return {"refused": refusal}
    return min(publications, key=lambda analysis: float(analysis["epsilon"]) + 2.0 * float(analysis["deviation"]))


def _publish(order: float, delta: float, parts: Sequence[Publication]) -> Row:
    renyi = sum(part.renyi for part in parts)
    price = sum(part.parameters.cost for part in parts)
    return {
        "order": order,
        "before": _convert_at_order(order, renyi, delta),
        "epsilon": _convert_at_order(order, renyi + price, delta),
        "deviation": math.hypot(*(part.deviation for part in parts)),
        "rounds": [_describe_round(part) for part in parts],
    }


def _describe_round(part: Publication) -> Row:
    """Describe the publication of one round; None where the printed Theorem 23 has no value."""
    parameters = part.parameters
    row = {"sensitivity": part.sensitivity, "cost": parameters.cost}
    if isinstance(parameters, PublicationParameters):
        return row | {"votes": parameters.deviation}
    is_defined = parameters.order * parameters.smoothness < 0.5
    return row | {
        "smoothness": parameters.smoothness,
        "noise_scale": parameters.noise_scale,
        "cost_by_theorem_23": printed_cost(parameters.order, parameters.smoothness, parameters.noise_scale)
        if is_defined
        else None,
    }


def _convert_at_order(order: float, renyi: float, delta: float) -> float:
    return RenyiCurve(np.array([order]), np.array([renyi])).best(delta).epsilon


def _sum_epsilon(rounds: Sequence[Evidence | None], delta: float) -> float | None:
    """Return ε of a sum of rounds, or None if a round lacks this cost."""
    curves = [evidence.curve for evidence in rounds if evidence is not None]
    return _sum_curves(curves).best(delta).epsilon if len(curves) == len(rounds) else None


def _sum_curves(curves: Sequence[RenyiCurve]) -> RenyiCurve:
    return reduce(add, curves)


THRESHOLDS = (0.6, 0.7, 0.8, 0.9, 1.0)  # of the number of teachers
CHECK_NOISES, ANSWER_NOISES = (0.4, 0.6, 0.8, 1.0, 1.2, 1.4), (0.08, 0.12, 0.16, 0.2, 0.24)  # of the number of teachers
ORDERS = (8.0, 10.0, 12.0, 14.0, 17.0, 20.0, 24.0)


@dataclass(frozen=True)
class SearchResult:
    aggregator: ConfidentGNMax
    parameters: PublicationParameters
    answered: float
    epsilon: float
    base_epsilon: float  # of the base aggregator


def search_aggregator(base: ConfidentGNMax, size: VoteSize, delta: float) -> SearchResult:
    """Search T, σ₁, σ₂, λ and s on simulated public votes of this size.

    The result minimizes ε plus two standard deviations of the publication's noise. It has at least as many expected
    answers as ``base``, and they are the plurality at least as often.
    """
    votes = Votes.from_counts(draw_pate_votes(size))

    def analyze_votes(aggregator: ConfidentGNMax) -> Analysis:
        with hide_warnings():
            return analyze(votes, aggregator, delta, conversion="tight")

    base_analysis = analyze_votes(base)
    reference = search_publication(base_analysis, ORDERS)
    answers, base_error_rate = base_analysis.expected_answered, _compute_error_rate(base_analysis)
    best: tuple[float, ConfidentGNMax, Expected[PublicationParameters], float] | None = None
    for answer_noise in ANSWER_NOISES:
        sigma = answer_noise * size.voters
        sigma_analysis = analyze_votes(replace(base, sigma_answer=sigma))
        for threshold, check_noise in product(THRESHOLDS, CHECK_NOISES):
            candidate = ConfidentGNMax(threshold * size.voters, check_noise * size.voters, sigma)
            pass_probabilities = np.exp(candidate.check.log_probabilities(votes.counts.max(axis=1))[0])
            analysis = replace(sigma_analysis, aggregator=candidate, probabilities=pass_probabilities)
            if analysis.expected_answered < answers or _compute_error_rate(analysis) > base_error_rate:
                continue
            expected = search_publication(analysis, ORDERS)
            value = expected.epsilon + 2.0 * expected.deviation
            if best is None or value < best[0]:
                best = (value, candidate, expected, analysis.expected_answered)
    if best is None:
        return SearchResult(base, reference.parameters, answers, reference.epsilon, reference.epsilon)
    _, aggregator, expected, answered = best
    return SearchResult(aggregator, expected.parameters, answered, expected.epsilon, reference.epsilon)


def _compute_error_rate(analysis: Analysis) -> float:
    """Return the average probability that an answer is not the plurality."""
    if analysis.label is None:
        return math.nan
    error_rates = analysis.label.missed[analysis.label.histogram_index]
    return float(error_rates @ analysis.probabilities / analysis.probabilities.sum())
