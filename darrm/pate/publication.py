"""Publishing a data-dependent ε: on the scale of votes, or by smooth sensitivity as in [P, Section B.6].

The published figure is

    ε = noisy cost of the answers + cost of the checks + cost of the publication + conversion at λ and δ,

and only the first part depends on the votes. With `PublicationParameters` it is a noisy mark of `vote_scale`, which
covers both directions. With `GnssParameters` it is f + SS_β·N(0, σ_SS²) for the cost f by Theorem 6 (plus the checks'
cost if accounted from the data), which covers one direction. Choose parameters by a rule of thumb, or by a search on
public or simulated votes: parameters chosen on private votes reveal something about them.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from operator import attrgetter
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from darrm.loss.privacy_cost import PrivacyCost
from darrm.loss.renyi import CONVERSIONS, RenyiCurve
from darrm.noisy_max.cost_given_votes import WIDEST
from darrm.noisy_max.mechanisms import LNMax
from darrm.noisy_max.mislabel_bound import tightest_mislabel_bound
from darrm.pate.analysis import Analysis, answer_of
from darrm.pate.confident import CheckedGNMax
from darrm.pate.gnss import GnssParameters, best_noise_scale, largest_smoothness, noisy_value
from darrm.pate.smooth_sensitivity import ConditionError, smooth_cost
from darrm.pate.theorem_6 import answer_independent
from darrm.pate.vote_scale import MARKS_A_VOTE, PublicationParameters, VoteScale
from darrm.privacy import PrivacyParams, at_most
from darrm.util import checks
from darrm.util.files import Document

FORMAT = "darrm sanitized figure"
ORDERS_TRIED = 3
_ORDERS_AROUND = np.array([0.6, 0.7, 0.8, 0.9, 1.0, 1.1])  # of the order of the exact ε, above 1
_DEVIATIONS = np.geomspace(1.0, 64.0, 49)  # votes
_NEEDS_EXACT = f"the scale of votes needs exact costs: use discrete noise of a deviation of at most {WIDEST:g} votes"
# of the largest possible β; smaller ones need larger distances for nearly the same noise
_SMOOTHNESS = np.linspace(0.3, 0.98, 40)
_SIMULATIONS = 20  # of the outcomes of a check
_SMALLEST_SENSITIVITY = 1e-6  # nats: keeps the best σ_SS finite for constant costs


@dataclass(frozen=True)
class Sanitized:
    """A publishable estimate of the cost of a run: about the data at hand, and no guarantee.

    Attributes
    ----------
    epsilon, delta
        The figure: an estimate of the run's ε, including the publication.
    order, conversion
        λ and the name of the conversion.
    noisy_cost
        The noisy part of the Rényi cost at λ, clipped to the range over all votes.
    public_cost
        The parts of the Rényi cost that do not depend on the votes: checks and publication.
    failure_probability
        The probability that the figure is below the estimated cost: ½ without a safety. By smooth sensitivity that is
        the cost of one direction by Theorem 6; for both directions the probability is unknown.
    run
        Other public data: mechanism, number of queries, accounting of its check, parameters.
    """

    epsilon: float
    delta: float
    order: float
    conversion: str
    noisy_cost: float
    public_cost: float
    failure_probability: float
    run: Document = field(default_factory=dict)

    def to_json(self) -> Document:
        """Return the figure and public data of its run as plain data, for a file that `darrm.verify` checks."""
        return {"format": FORMAT, **vars(self)}

    @property
    def is_of_one_direction(self) -> bool:
        """Whether it estimates the cost of one direction, by Theorem 6."""
        parameters = self.run.get("parameters")
        return isinstance(parameters, dict) and "smoothness" in parameters

    def privacy_cost(self, *, consent: str = "") -> PrivacyCost:
        """Return the cost of the whole run, publication included, by the sanitized figure.

        An account takes it with ``consent=ESTIMATED_TOTAL`` only (`darrm.loss.privacy_cost`), and reports that.
        """
        return PrivacyCost(
            "PATE run, sanitized cost",
            guarantee=PrivacyParams(self.epsilon, self.delta),
            data_dependent=True,
            failure_probability=1.0 if self.is_of_one_direction else self.failure_probability,
            consent=consent,
        )

    def __str__(self) -> str:
        chance = f"too small with probability {at_most(self.failure_probability, 3)}"
        if self.is_of_one_direction:
            chance = f"{chance} for the one direction of Theorem 6, with an unknown one for both"
        return (
            f"epsilon = {at_most(self.epsilon)} at delta = {at_most(self.delta, 6)} (sanitized, may be published; "
            f"order {self.order:g}, {self.conversion} conversion; about the data at hand, {chance})"
        )


def sanitize(
    analysis: Analysis, parameters: GnssParameters | PublicationParameters, *, rng: np.random.Generator | None = None
) -> Sanitized:
    """Return a publishable figure for a finished run.

    Parameters
    ----------
    analysis
        From `analyze`, with ``answered=`` the released pattern of answers for an aggregator with a check.
    parameters
        `PublicationParameters` for the exact cost on the scale of votes, `GnssParameters` for Theorem 6 with the
        smooth sensitivity of [P]; chosen without the votes.
    rng
        None draws from the operating system. A generator is for experiments only and gives no privacy.

    Raises
    ------
    ValueError
        If the analysis contains expectations instead of answers, or for `LNMax`; with `PublicationParameters` also for
        continuous noise, and for checks accounted from the data.
    ConditionError
        If a condition of [P, Section B.2] fails at this order.

    Notes
    -----
    Each call is a new release with a cost: publish one figure for a run, not the best of several.
    """
    checks.instance(Analysis, analysis=analysis, advice="analyze(votes, aggregator, delta=…) returns one")
    if not isinstance(parameters, GnssParameters | PublicationParameters):
        advice = "publication_rule(epsilon, delta) chooses some without the votes"
        checks.fail("parameters", parameters, "PublicationParameters or GnssParameters", advice)
    if analysis.answered is None:
        raise ValueError("sanitize needs the pattern of answers: analyze(..., answered=labels >= 0)")
    order = parameters.order
    if isinstance(parameters, PublicationParameters):
        on_votes = _OnVotes(analysis, order)
        checks_cost, noisy = on_votes.checks, on_votes.scale.published(on_votes.mark, parameters, rng=rng)
    else:
        smooth = _BySensitivity(analysis, order, parameters.smoothness)
        checks_cost, noisy = smooth.checks, smooth.draw(parameters, rng)
    public = checks_cost + parameters.cost
    run: Document = {"mechanism": repr(analysis.aggregator), "queries": analysis.queries, "check": analysis.check}
    return Sanitized(
        epsilon=epsilon_at(analysis, order, noisy + public),
        delta=analysis.delta,
        order=order,
        conversion=analysis.conversion,
        noisy_cost=noisy,
        public_cost=public,
        failure_probability=failure_probability(parameters.safety),
        run={**run, "parameters": vars(parameters)},
    )


def failure_probability(safety: float) -> float:
    """Compute Φ(−z), the probability that a published figure is below the estimated cost.

    >>> failure_probability(0.0), round(failure_probability(3.0), 6)
    (0.5, 0.00135)
    """
    return 0.5 * math.erfc(safety / math.sqrt(2.0))


Parameters = TypeVar("Parameters", GnssParameters, PublicationParameters)


@dataclass(frozen=True)
class Expected(Generic[Parameters]):
    """The expected result of a publication, averaged over the outcomes of the check: **private data**."""

    parameters: Parameters
    renyi: float  # at the order, without the publication
    epsilon: float  # sanitized
    deviation: float  # standard deviation of its noise, σ_SS·SS; on the scale of votes, the cost of s more votes
    sensitivity: float  # SS_β; on the scale of votes, the cost of one more vote

    @property
    def objective(self) -> float:
        """The expected ε plus two standard deviations of its noise, which a search minimizes [P, Section B.6]."""
        return self.epsilon + 2.0 * self.deviation


def expected_publication(analysis: Analysis, parameters: GnssParameters) -> Expected[GnssParameters]:
    """Compute the average result of `sanitize`, as in [P, Table 2].

    f is an exact expectation, SS_β an average over 20 simulated outcomes of the check if no pattern is given.
    """
    return _BySensitivity(analysis, parameters.order, parameters.smoothness).expected(parameters)


def search_parameters(
    analysis: Analysis, order: float | None = None, *, report: Callable[[str], None] | None = None
) -> Expected[GnssParameters]:
    """Search (λ, β, σ_SS) with the smallest expected ε plus two standard deviations of its noise [P, Section B.6].

    For public or simulated votes: parameters chosen on private votes reveal something about them. By default λ is the
    best among the `ORDERS_TRIED` orders of the grid with the smallest ε that satisfy [P, Section B.2]; `ConditionError`
    if there is none. ``report`` receives the progress. `ValueError` for `LNMax`.
    """
    curve = analysis.theorem_6.curve
    epsilons = CONVERSIONS[analysis.conversion](curve.orders, curve.values, analysis.delta)
    candidates = curve.orders[np.argsort(epsilons)].tolist() if order is None else [order]
    wanted = ORDERS_TRIED if order is None else 1
    choices: list[Expected[GnssParameters]] = []
    refused: list[ConditionError] = []
    for candidate in candidates:
        if report is not None:
            report(f"{len(choices)} of {wanted} orders")
        try:
            choices.append(_search_at(analysis, candidate))
        except ConditionError as error:
            refused.append(error)
        if len(choices) == wanted:
            break
    if not choices:
        raise refused[0]
    return min(choices, key=attrgetter("objective"))


def expected_on_vote_scale(analysis: Analysis, parameters: PublicationParameters) -> Expected[PublicationParameters]:
    """Compute the result of `sanitize` on the scale of votes with zero noise and the expected number of answers."""
    return _OnVotes(analysis, parameters.order).expected(parameters)


def search_publication(analysis: Analysis, orders: ArrayLike | None = None) -> Expected[PublicationParameters]:
    """Search (λ, s) with the smallest expected ε plus two standard deviations of its noise.

    For public or simulated votes, as `search_parameters`. By default λ is around the order of the smallest exact ε.
    """
    if orders is None:
        if analysis.exact is None:
            raise ValueError(_NEEDS_EXACT)
        best = analysis.exact.curve.best(analysis.delta, conversion=analysis.conversion).order
        orders = 1.0 + (best - 1.0) * _ORDERS_AROUND
    choices = [
        on_votes.expected(PublicationParameters(on_votes.order, deviation))
        for on_votes in (_OnVotes(analysis, float(order)) for order in np.asarray(orders, dtype=np.float64))
        for deviation in _DEVIATIONS.tolist()
    ]
    return min(choices, key=attrgetter("objective"))


_vote_scale = lru_cache(maxsize=64)(VoteScale)  # its marks take longer than a search


class _OnVotes:
    """The exact cost of a run on the scale of votes, at one order: **private data**."""

    def __init__(self, analysis: Analysis, order: float) -> None:
        answer = answer_of(analysis.aggregator)
        if isinstance(answer, LNMax):
            checks.fail("the aggregator", analysis.aggregator, "of the GNMax kind", "LNMax has no scale of votes")
        if analysis.label is None:
            raise ValueError(_NEEDS_EXACT)
        if analysis.check == "data-dependent":
            checks.fail("check", analysis.check, "data-independent", "the scale of votes covers answers only")
        self.analysis, self.order = analysis, order
        self.checks = exact_checks(analysis, order)
        bound, label = tightest_mislabel_bound(answer.law, order), analysis.label
        self.scale = _vote_scale(bound, round(analysis.expected_answered))
        self.mark = self.scale.mark_of(float(label.times(analysis.probabilities) @ bound.cost(label.missed)))

    def expected(self, parameters: PublicationParameters) -> Expected[PublicationParameters]:
        """Compute the published figure without noise."""
        mark, cost_at = self.mark, self.scale.cost_at
        here = cost_at(mark + math.ceil(MARKS_A_VOTE * parameters.safety * parameters.deviation))
        higher = cost_at(mark + math.ceil(MARKS_A_VOTE * (parameters.safety + 1.0) * parameters.deviation))
        epsilon = epsilon_at(self.analysis, self.order, here + self.checks + parameters.cost)
        one_vote = cost_at(mark + MARKS_A_VOTE) - cost_at(mark)
        return Expected(parameters, cost_at(mark) + self.checks, epsilon, higher - here, one_vote)


def exact_checks(analysis: Analysis, order: float) -> float:
    """Return the cost of the outcomes of the checks, for any votes."""
    if not isinstance(analysis.aggregator, CheckedGNMax):
        return 0.0
    return analysis.queries * analysis.aggregator.check.guarantee.bound_at(order)


def epsilon_at(analysis: Analysis, order: float, renyi: float) -> float:
    """Convert a Rényi cost at one order to ε, at the δ and by the conversion of the analysis."""
    curve = RenyiCurve(np.array([order]), np.array([renyi]))
    return curve.best(analysis.delta, conversion=analysis.conversion).epsilon


class _BySensitivity:
    """The cost of a run by Theorem 6 and its smooth sensitivity, at one order: **private data**."""

    def __init__(self, analysis: Analysis, order: float, smoothness: float) -> None:
        """Compute them for the ``smoothness``, or a larger one."""
        self.analysis, self.order = analysis, order
        self.cost = smooth_cost(analysis, order, smoothness)
        self.checks = self._private_checks = 0.0
        if isinstance(analysis.aggregator, CheckedGNMax):
            total = analysis.queries * float(analysis.aggregator.check.independent([order])[0])
            is_private = analysis.check == "data-dependent"
            self.checks, self._private_checks = (0.0, total) if is_private else (total, 0.0)

    def draw(self, parameters: GnssParameters, rng: np.random.Generator | None) -> float:
        """Draw the noisy cost, clipped to the range over all votes."""
        answered = self.analysis.probabilities
        sensitivity = self.cost.sensitivity(answered, parameters.smoothness)
        noisy = noisy_value(self.cost.value(answered), sensitivity, parameters, rng=rng)
        per_answer = float(answer_independent(answer_of(self.analysis.aggregator), [self.order])[0])
        return min(max(noisy, 0.0), float(answered.sum()) * per_answer + self._private_checks)

    def sensitivity(self, smoothness: float) -> float:
        """Compute SS_β, on average over simulated outcomes of the check."""
        return float(np.mean([self.cost.sensitivity(answered, smoothness) for answered in self._patterns]))

    def expected(self, parameters: GnssParameters, sensitivity: float | None = None) -> Expected[GnssParameters]:
        """Compute the published figure without noise."""
        if sensitivity is None:
            sensitivity = self.sensitivity(parameters.smoothness)
        renyi = self.cost.value(self.analysis.probabilities) + self.checks
        deviation = parameters.noise_scale * sensitivity
        epsilon = epsilon_at(self.analysis, self.order, renyi + parameters.cost + parameters.safety * deviation)
        return Expected(parameters, renyi, epsilon, deviation, sensitivity)

    @cached_property
    def _patterns(self) -> NDArray[np.float64]:
        if self.analysis.answered is not None:
            return self.analysis.answered[np.newaxis].astype(np.float64)
        draws = np.random.default_rng(0).random((_SIMULATIONS, self.analysis.queries))
        return (draws < self.analysis.probabilities).astype(np.float64)


def _search_at(analysis: Analysis, order: float) -> Expected[GnssParameters]:
    candidates = largest_smoothness(order) * _SMOOTHNESS
    smooth = _BySensitivity(analysis, order, float(candidates[0]))
    choices: list[Expected[GnssParameters]] = []
    for smoothness in candidates.tolist():
        sensitivity = smooth.sensitivity(smoothness)
        scale = best_noise_scale(order, smoothness, max(sensitivity, _SMALLEST_SENSITIVITY))
        choices.append(smooth.expected(GnssParameters(order, smoothness, scale), sensitivity))
    return min(choices, key=attrgetter("objective"))
