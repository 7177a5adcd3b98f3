"""Compute the cost of a run by several bounds, and the cost of publishing it, as plain data for the tables.

Theorem 6 of [P] bounds D(M(D)‖M(D′)) at these votes, one of two directions; the exact cost of the label bounds both
directions. Both costs are private data until they are sanitized.
"""

import math
from collections.abc import Callable
from dataclasses import replace
from itertools import product
from operator import itemgetter

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from darrm.loss.renyi import CONVERSIONS, RenyiCurve
from darrm.noisy_max.mechanisms import LNMax
from darrm.pate.analysis import Analysis, PateAggregator, analyze, find_noisy_max, hide_warnings, public_epsilon
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
# of (best order − 1): smaller, because the price of publication grows with the order
ORDER_FACTORS = np.array([0.7, 0.8, 0.9])


def account(
    votes: Votes,
    aggregator: PateAggregator,
    delta: float,
    answered: NDArray[np.bool_] | None = None,
) -> Analysis:
    """Analyze a finished run without warnings, because the page explains them."""
    with hide_warnings():
        return analyze(votes, aggregator, delta, answered=answered)


def compute_costs(analysis: Analysis) -> Row:
    """Return ε by every bound; None if a bound does not exist.

    ``printed`` is Theorem 6 with the conversion of [P], and ``theorem_6`` with the tight one. ``exact`` is the label's
    exact cost in both directions, and ``forward`` in the direction of Theorem 6. ``by_label`` holds for any votes.
    """
    delta, theorem_6, checks = analysis.delta, analysis.theorem_6.curve, analysis.theorem_6.checks
    best = theorem_6.best(delta)
    best_place = int(np.argmin(np.abs(theorem_6.orders - best.order)))
    exact, forward = (
        None if evidence is None else evidence.curve.best(delta).epsilon
        for evidence in (analysis.exact, analysis.forward)
    )
    return {
        "printed": theorem_6.best(delta, conversion="classic").epsilon,
        "theorem_6": best.epsilon,
        "order": best.order,
        "check_share": float(checks.values[best_place] / theorem_6.values[best_place]),
        "exact": exact,
        "forward": forward,
        "by_label": public_epsilon(analysis.independent_curve, analysis.worst_curve, delta),
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


def publish_as_in_paper(analysis: Analysis) -> Row:
    """Publish Theorem 6 by GNSS [P, Appendix B], with the parameters of the least ε plus two deviations.

    The search uses these votes, as in [P, Table 2], so the result is optimistic.
    """
    return _find_best(analysis, _sort_orders(analysis), search_parameters)


def publish_on_vote_scale(analysis: Analysis) -> Row:
    """Publish the exact cost by noise on the scale of votes; this search also uses these votes."""
    if analysis.exact is None:
        return {"refused": "no exact cost"}
    orders = 1.0 + (analysis.exact.curve.best(analysis.delta).order - 1.0) * ORDER_FACTORS
    return _find_best(analysis, orders.tolist(), lambda run, order: search_publication(run, [order]))


def publish_with_parameters(analysis: Analysis, parameters: PublicationParameters) -> Row:
    """Publish the exact cost on the scale of votes with fixed parameters."""
    return _describe(parameters.order, analysis.delta, expected_publication(analysis, parameters))


def publish_by_logarithm(analysis: Analysis) -> Row:
    """Publish Theorem 6 by generalized propose-test-release [RZW23], after a bound on its smooth sensitivity.

    log SS_β changes by at most β between neighbors, so the release of log SS_β + β·s₁·N(0, 1) costs λ/(2s₁²). Adding
    z·β·s₁ gives a public upper bound on log SS_β, except with probability Φ(−z) = δ/10. Noise of s₂ times this bound on
    the cost itself costs λ/(2s₂²) more. The search uses these votes, as the other two do.
    """
    z = float(-ndtri(analysis.delta / 10.0))

    def search(order: float) -> Row:
        smooth = smooth_cost(analysis, order, float(_SMOOTHNESS[0]))
        cost = smooth.value(analysis.probabilities) + float(analysis.theorem_6.checks.bound_at(order))
        points = []
        for smoothness, s1, s2 in product(_SMOOTHNESS.tolist(), _SCALES.tolist(), _SCALES.tolist()):
            price = order / (2.0 * s1**2) + order / (2.0 * s2**2)
            sensitivity = smooth.sensitivity(analysis.probabilities, smoothness)
            deviation = s2 * sensitivity * math.exp(z * smoothness * s1)
            epsilon = _convert_at_order(order, cost + price, 0.9 * analysis.delta)
            points.append({"order": order, "epsilon": epsilon, "deviation": deviation, "smoothness": smoothness})
        return min(points, key=_rate)

    return _take_best(_sort_orders(analysis), search, MAX_ORDERS)


def _rate(publication: Row) -> float:
    """Return ε plus two standard deviations of the publication's noise."""
    return float(publication["epsilon"]) + 2.0 * float(publication["deviation"])


def _sort_orders(analysis: Analysis) -> list[float]:
    """Sort the orders of Theorem 6 by their ε."""
    curve = analysis.theorem_6.curve
    places = np.argsort(CONVERSIONS["tight"](curve.orders, curve.values, analysis.delta))
    return [float(order) for order in curve.orders[places]]


def _find_best(analysis: Analysis, orders: list[float], search: Callable[[Analysis, float], Publication]) -> Row:
    """Search at the first valid orders; return the best publication, or why there is none."""
    if isinstance(analysis.aggregator, LNMax):
        return {"refused": "LNMax: no way to publish its cost"}
    max_orders = 1 if analysis.histograms.size > _MANY_COUNTS else MAX_ORDERS
    return _take_best(orders, lambda order: _describe(order, analysis.delta, search(analysis, order)), max_orders)


def _take_best(orders: list[float], search: Callable[[float], Row], max_orders: int) -> Row:
    publications: list[Row] = []
    refusal = ""
    for order in orders:
        try:
            publications.append(search(order))
        except ConditionError as error:
            refusal = refusal or str(error)
        if len(publications) == max_orders:
            break
    return min(publications, key=_rate) if publications else {"refused": refusal}


def _describe(order: float, delta: float, publication: Publication) -> Row:
    """Describe a publication; ``cost_by_theorem_23`` is None outside the range of the printed Theorem 23."""
    parameters = publication.parameters
    details: Row = {"sensitivity": publication.sensitivity, "cost": parameters.cost}
    if isinstance(parameters, PublicationParameters):
        details["votes"] = parameters.deviation
    else:
        smoothness, noise_scale = parameters.smoothness, parameters.noise_scale
        is_defined = parameters.order * smoothness < 0.5
        printed = printed_cost(parameters.order, smoothness, noise_scale) if is_defined else None
        details |= {"smoothness": smoothness, "noise_scale": noise_scale, "cost_by_theorem_23": printed}
    return {
        "order": order,
        "before": _convert_at_order(order, publication.renyi, delta),
        "epsilon": _convert_at_order(order, publication.renyi + parameters.cost, delta),
        "deviation": publication.deviation,
        "rounds": [details],  # [P] has a run of two rounds
    }


def _convert_at_order(order: float, renyi: float, delta: float) -> float:
    return RenyiCurve(np.array([order]), np.array([renyi])).best(delta).epsilon


THRESHOLDS = (0.6, 0.7, 0.8, 0.9, 1.0)  # of the number of teachers
CHECK_NOISES, ANSWER_NOISES = (0.4, 0.6, 0.8, 1.0, 1.2, 1.4), (0.08, 0.12, 0.16, 0.2, 0.24)  # of the number of teachers
ORDERS = (8.0, 10.0, 12.0, 14.0, 17.0, 20.0, 24.0)


def search_aggregator(base: ConfidentGNMax, size: VoteSize, delta: float) -> Row:
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
    min_answers, max_error_rate = base_analysis.expected_answered, _compute_error_rate(base_analysis)
    candidates: list[tuple[float, ConfidentGNMax, Expected[PublicationParameters]]] = []
    for answer_noise in ANSWER_NOISES:
        sigma = answer_noise * size.voters
        sigma_analysis = analyze_votes(replace(base, sigma_answer=sigma))
        for threshold, check_noise in product(THRESHOLDS, CHECK_NOISES):
            candidate = ConfidentGNMax(threshold * size.voters, check_noise * size.voters, sigma)
            pass_probabilities = np.exp(candidate.check.log_probabilities(votes.counts.max(axis=1))[0])
            analysis = replace(sigma_analysis, aggregator=candidate, probabilities=pass_probabilities)
            if analysis.expected_answered >= min_answers and _compute_error_rate(analysis) <= max_error_rate:
                expected = search_publication(analysis, ORDERS)
                candidates.append((expected.epsilon + 2.0 * expected.deviation, candidate, expected))
    _, best, expected = min(candidates, key=itemgetter(0), default=(0.0, base, reference))
    return {
        "aggregator": [best.threshold, best.sigma_threshold, best.sigma_answer],
        "publication": [expected.parameters.order, expected.parameters.deviation],
        "expected": expected.epsilon,
        "expected_of_base": reference.epsilon,
    }


def _compute_error_rate(analysis: Analysis) -> float:
    """Return the average probability that an answer is not the plurality."""
    if analysis.label is None:
        return math.nan
    error_rates = analysis.label.missed[analysis.label.histogram_index]
    return float(error_rates @ analysis.probabilities / analysis.probabilities.sum())
