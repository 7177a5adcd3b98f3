"""Publishing a data-dependent ε: on the scale of votes, or by smooth sensitivity as in [P, Section B.6].

    ε = noisy cost of the answers + cost of the checks + cost of the publication + conversion at λ and δ,

and only the first part depends on the votes: with `PublicationParameters` a noisy mark of `vote_scale`, for both
directions; with `GnssParameters` f + SS_β·N(0, σ_SS²) for the cost f by Theorem 6 (plus the checks' cost if accounted
from the data), for one. Parameters chosen on private votes reveal something about them.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
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
from darrm.pate.analysis import Analysis, align_figures, find_noisy_max
from darrm.pate.confident import CheckedGNMax
from darrm.pate.gnss import GnssParameters, best_noise_scale, largest_smoothness, noisy_value, printed_cost
from darrm.pate.smooth_sensitivity import ConditionError, smooth_cost
from darrm.pate.theorem_6 import answer_independent
from darrm.pate.vote_scale import MARKS_A_VOTE, PublicationParameters, VoteScale
from darrm.privacy import PrivacyParams, at_most
from darrm.util import checks
from darrm.util.files import Document, Json

FORMAT = "darrm sanitized figure"
TABLE_2 = "Table 2 row: Theorem 6, published by smooth sensitivity"
VOTE_SCALE = "The exact cost, published on the scale of votes"
MAX_ORDERS = 3
_ORDER_FACTORS = np.array([0.6, 0.7, 0.8, 0.9, 1.0, 1.1])  # times λ − 1, for the best order λ of the exact ε
_DEVIATIONS = np.geomspace(1.0, 64.0, 49)  # votes
_EXACT_COST_ADVICE = (
    f"the scale of votes needs exact costs: use discrete noise of a deviation of at most {WIDEST:g} votes"
)
# times the largest possible β; a smaller β needs larger distances for nearly the same noise
_SMOOTHNESS_SHARES = np.linspace(0.3, 0.98, 40)
_SIMULATIONS = 20  # of the outcomes of a check
_SMALLEST_SENSITIVITY = 1e-6  # nats: keeps the best σ_SS finite for constant costs


@dataclass(frozen=True)
class Sanitized:
    """A publishable estimate of the cost of a run: no guarantee."""

    epsilon: float  # the estimate of the run's ε, including the publication
    delta: float
    order: float
    conversion: str
    noisy_cost: float  # the noisy part of the Rényi cost at the order, clipped to the range over all votes
    public_cost: float  # the parts that do not depend on the votes: checks and publication
    # the probability that the figure is below the estimated cost; by smooth sensitivity that is the cost of one
    # direction by Theorem 6, and for both directions the probability is unknown
    failure_probability: float
    run: Document = field(default_factory=dict)  # mechanism, number of queries, accounting of its check, parameters

    def to_json(self) -> Document:
        """Return the figure and public data of its run, for a file that `darrm.verify` checks."""
        return {"format": FORMAT, **vars(self)}

    @property
    def is_of_one_direction(self) -> bool:
        """Whether it estimates the cost of one direction, by Theorem 6."""
        parameters = self.run.get("parameters")
        return isinstance(parameters, dict) and "smoothness" in parameters

    def privacy_cost(self, *, consent: str = "") -> PrivacyCost:
        """Return the cost, publication included; an account takes it with ``consent=ESTIMATED_TOTAL`` only."""
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
    """Return a publishable figure for a finished run. Each call costs: publish one, not the best of several.

    Parameters
    ----------
    analysis
        From `analyze`, with the released ``answered=`` for an aggregator with a check.
    parameters
        `PublicationParameters` for the exact cost on the scale of votes, `GnssParameters` for Theorem 6 with the
        smooth sensitivity of [P]; chosen without the votes.
    rng
        For experiments only: it gives no privacy.

    `ValueError` for expectations instead of answers, and for `LNMax`; on the scale of votes also for continuous noise,
    and for checks accounted from the data. `ConditionError` if a condition of [P, Section B.2] fails at this order.
    """
    checks.instance(Analysis, analysis=analysis, advice="analyze(votes, aggregator, delta=…) returns one")
    if not isinstance(parameters, GnssParameters | PublicationParameters):
        advice = "publication_rule(epsilon, delta) chooses some without the votes"
        checks.fail("parameters", parameters, "PublicationParameters or GnssParameters", advice)
    if analysis.answered is None:
        raise ValueError("sanitize needs the pattern of answers: analyze(..., answered=labels >= 0)")
    if isinstance(parameters, PublicationParameters):
        scale_run = _ScaleRun(analysis, parameters.order)
        checks_cost, noisy_cost = scale_run.checks, scale_run.scale.draw_published(scale_run.mark, parameters, rng=rng)
    else:
        sensitivity_run = _SensitivityRun(analysis, parameters.order, parameters.smoothness)
        checks_cost, noisy_cost = sensitivity_run.checks, sensitivity_run.draw_cost(parameters, rng)
    public_cost = checks_cost + parameters.cost
    run: Document = {"mechanism": repr(analysis.aggregator), "queries": analysis.queries, "check": analysis.check}
    return Sanitized(
        epsilon=epsilon_at(analysis, parameters.order, noisy_cost + public_cost),
        delta=analysis.delta,
        order=parameters.order,
        conversion=analysis.conversion,
        noisy_cost=noisy_cost,
        public_cost=public_cost,
        failure_probability=failure_probability(parameters.safety),
        run={**run, "parameters": vars(parameters)},
    )


def failure_probability(safety: float) -> float:
    """Compute Φ(−z)."""
    return 0.5 * math.erfc(safety / math.sqrt(2.0))


def epsilon_at(analysis: Analysis, order: float, renyi: float) -> float:
    return analysis.to_epsilon(RenyiCurve(np.array([order]), np.array([renyi])))


@dataclass(frozen=True)
class Refused:
    title: str
    reason: str

    def to_json(self) -> Document:
        return {"refused": self.reason}

    def __str__(self) -> str:
        return f"\n{self.title}\n  refused: {self.reason}\n"


Parameters = TypeVar("Parameters", GnssParameters, PublicationParameters)


@dataclass(frozen=True)
class Expected(Generic[Parameters]):
    """The expected result of a publication, over the outcomes of the check: **private data**."""

    parameters: Parameters
    renyi: float  # at the order, without the publication
    epsilon: float  # sanitized
    deviation: float  # standard deviation of its noise, σ_SS·SS; on the scale of votes, the cost of s more votes
    sensitivity: float  # SS_β; on the scale of votes, the cost of one more vote
    delta: float
    conversion: str
    is_chosen: bool = False  # whether the parameters were searched on these votes, which makes them private

    @property
    def objective(self) -> float:
        """The expected ε plus two deviations of its noise [P, Section B.6]."""
        return self.epsilon + 2.0 * self.deviation

    def to_json(self) -> Document:
        """Return the row of [P, Table 2] or of the scale of votes: **private data**."""
        parameters = self.parameters
        curve = RenyiCurve(np.array([parameters.order]), np.array([self.renyi]))
        row: Document = {
            "epsilon": curve.best(self.delta, conversion=self.conversion).epsilon,
            "delta": self.delta,
            "conversion": self.conversion,
            "order": parameters.order,
            "sanitized_epsilon": self.epsilon,
            "sanitized_deviation": self.deviation,
            "failure_probability": failure_probability(parameters.safety),
            "parameters_chosen": "on these votes: private" if self.is_chosen else "beforehand",
            "private": True,
        }
        if isinstance(parameters, PublicationParameters):
            return row | {"one_vote": self.sensitivity, "deviation": parameters.deviation, "cost": parameters.cost}
        is_in_range = parameters.order * parameters.smoothness < 0.5
        printed = printed_cost(parameters.order, parameters.smoothness, parameters.noise_scale) if is_in_range else None
        return row | {
            "beta": parameters.smoothness,
            "smooth_sensitivity": self.sensitivity,
            "sigma_ss": parameters.noise_scale,
            "gnss_cost": parameters.cost,
            "gnss_cost_as_printed_in_theorem_23": printed,
        }

    def __str__(self) -> str:
        row: Json = self.to_json()
        if isinstance(self.parameters, PublicationParameters):
            title, about = VOTE_SCALE, "about these votes only"
            details = {
                "one vote more": f"{row['one_vote']:.5f}",
                "noise, in votes": f"{row['deviation']:.3f}",
                "cost of publishing": at_most(row["cost"]),
            }
        else:
            title, about = TABLE_2, "one direction of these votes; of both, unknown"
            printed = row["gnss_cost_as_printed_in_theorem_23"]
            note = "outside its range" if printed is None else f"{printed:.4f}, too small where order * beta > 1/4"
            details = {
                "beta": f"{row['beta']:.5f}",
                "smooth sensitivity": f"{row['smooth_sensitivity']:.5f}",
                "sigma_SS": f"{row['sigma_ss']:.3f}",
                "cost of publishing": f"{at_most(row['gnss_cost'])}  (Theorem 23 as printed: {note})",
            }
        figures = {
            "epsilon": f"{at_most(row['epsilon'])}  at order {row['order']:g} ({self.conversion} conversion)",
            **details,
            "sanitized epsilon": f"{at_most(self.epsilon)} +- {self.deviation:.4f}",
            "too small with": f"probability {at_most(row['failure_probability'], 3)} (--safety), {about}",
            "parameters chosen": row["parameters_chosen"],
        }
        return f"\n{title}\n{align_figures(figures)}\n"


def table_2(
    analysis: Analysis, parameters: GnssParameters | None = None, *, report: Callable[[str], None] | None = None
) -> Expected[GnssParameters] | Refused:
    """Return the publication of [P, Table 2]; None searches its parameters."""
    try:
        return (
            search_parameters(analysis, report=report)
            if parameters is None
            else expected_publication(analysis, parameters)
        )
    except (ConditionError, ValueError) as error:  # too many distances raise ValueError
        return Refused(TABLE_2, str(error))


def on_vote_scale(
    analysis: Analysis, parameters: PublicationParameters | None = None
) -> Expected[PublicationParameters] | Refused:
    try:
        return search_publication(analysis) if parameters is None else expected_publication(analysis, parameters)
    except ValueError as error:
        return Refused(VOTE_SCALE, str(error))


def expected_publication(analysis: Analysis, parameters: Parameters) -> Expected[Parameters]:
    """Compute the average of `sanitize` without the noise, over 20 simulated outcomes of the check if unknown."""
    if isinstance(parameters, GnssParameters):
        return _SensitivityRun(analysis, parameters.order, parameters.smoothness).expect(parameters)
    return _ScaleRun(analysis, parameters.order).expect(parameters)


def search_parameters(
    analysis: Analysis, order: float | None = None, *, report: Callable[[str], None] | None = None
) -> Expected[GnssParameters]:
    """Search (λ, β, σ_SS) with the smallest `Expected.objective`, on public or simulated votes [P, Section B.6].

    By default λ is the best of the `ORDERS_TRIED` orders with the smallest ε that satisfy [P, Section B.2];
    `ConditionError` if there is none, `ValueError` for `LNMax`.
    """
    curve = analysis.theorem_6.curve
    epsilons = CONVERSIONS[analysis.conversion](curve.orders, curve.values, analysis.delta)
    candidates = curve.orders[np.argsort(epsilons)].tolist() if order is None else [order]
    max_choices = MAX_ORDERS if order is None else 1
    choices: list[Expected[GnssParameters]] = []
    errors: list[ConditionError] = []
    for candidate in candidates:
        if report is not None:
            report(f"Table 2, smooth sensitivity: {len(choices)} of {max_choices} orders")
        try:
            choices.append(_search_order(analysis, candidate))
        except ConditionError as error:
            errors.append(error)
        if len(choices) == max_choices:
            break
    if not choices:
        raise errors[0]
    return _choose_best(choices)


def search_publication(analysis: Analysis, orders: ArrayLike | None = None) -> Expected[PublicationParameters]:
    """Search (λ, s) with the smallest `Expected.objective`."""
    if orders is None:
        if analysis.exact is None:
            raise ValueError(_EXACT_COST_ADVICE)
        best = analysis.exact.curve.best(analysis.delta, conversion=analysis.conversion).order
        orders = 1.0 + (best - 1.0) * _ORDER_FACTORS
    return _choose_best(
        [
            scale_run.expect(PublicationParameters(scale_run.order, deviation))
            for scale_run in (_ScaleRun(analysis, float(order)) for order in np.asarray(orders, dtype=np.float64))
            for deviation in _DEVIATIONS.tolist()
        ]
    )


def _choose_best(choices: list[Expected[Parameters]]) -> Expected[Parameters]:
    return replace(min(choices, key=attrgetter("objective")), is_chosen=True)


def _search_order(analysis: Analysis, order: float) -> Expected[GnssParameters]:
    candidates = largest_smoothness(order) * _SMOOTHNESS_SHARES
    sensitivity_run = _SensitivityRun(analysis, order, float(candidates[0]))
    choices: list[Expected[GnssParameters]] = []
    for smoothness in candidates.tolist():
        sensitivity = sensitivity_run.sensitivity(smoothness)
        scale = best_noise_scale(order, smoothness, max(sensitivity, _SMALLEST_SENSITIVITY))
        choices.append(sensitivity_run.expect(GnssParameters(order, smoothness, scale), sensitivity))
    return _choose_best(choices)


_build_scale = lru_cache(maxsize=64)(VoteScale)  # its marks take longer than a search


class _ScaleRun:
    """The exact cost of a run on the scale of votes, at one order: **private data**."""

    def __init__(self, analysis: Analysis, order: float) -> None:
        aggregator, answer = analysis.aggregator, find_noisy_max(analysis.aggregator)
        if isinstance(answer, LNMax):
            checks.fail("the aggregator", aggregator, "of the GNMax kind", "LNMax has no scale of votes")
        if analysis.label is None:
            raise ValueError(_EXACT_COST_ADVICE)
        if analysis.check == "data-dependent":
            checks.fail("check", analysis.check, "data-independent", "the scale of votes covers answers only")
        self.analysis, self.order, self.checks = analysis, order, 0.0
        if isinstance(aggregator, CheckedGNMax):
            self.checks = analysis.queries * aggregator.check.guarantee.bound_at(order)
        bound, label = tightest_mislabel_bound(answer.law, order), analysis.label
        self.scale = _build_scale(bound, round(analysis.expected_answered))
        self.mark = self.scale.find_mark(float(label.sum_weights(analysis.probabilities) @ bound.cost(label.missed)))

    def expect(self, parameters: PublicationParameters) -> Expected[PublicationParameters]:
        mark, cost_at = self.mark, self.scale.cost_at
        cost = cost_at(mark + math.ceil(MARKS_A_VOTE * parameters.safety * parameters.deviation))
        upper = cost_at(mark + math.ceil(MARKS_A_VOTE * (parameters.safety + 1.0) * parameters.deviation))
        one_vote = cost_at(mark + MARKS_A_VOTE) - cost_at(mark)
        total = cost + self.checks + parameters.cost
        return _expect(self.analysis, parameters, cost_at(mark) + self.checks, total, (upper - cost, one_vote))


class _SensitivityRun:
    """The cost of a run by Theorem 6 and its smooth sensitivity, at one order: **private data**."""

    def __init__(self, analysis: Analysis, order: float, smoothness: float) -> None:
        self.analysis, self.order = analysis, order
        self.cost = smooth_cost(analysis, order, smoothness)
        self.checks = self._private_checks = 0.0
        if isinstance(analysis.aggregator, CheckedGNMax):
            total = analysis.queries * float(analysis.aggregator.check.independent([order])[0])
            is_private = analysis.check == "data-dependent"
            self.checks, self._private_checks = (0.0, total) if is_private else (total, 0.0)

    def draw_cost(self, parameters: GnssParameters, rng: np.random.Generator | None) -> float:
        """Draw the noisy cost, clipped to the range over all votes."""
        answered = self.analysis.probabilities
        sensitivity = self.cost.sensitivity(answered, parameters.smoothness)
        noisy_cost = noisy_value(self.cost.value(answered), sensitivity, parameters, rng=rng)
        per_answer = float(answer_independent(find_noisy_max(self.analysis.aggregator), [self.order])[0])
        return min(max(noisy_cost, 0.0), float(answered.sum()) * per_answer + self._private_checks)

    def sensitivity(self, smoothness: float) -> float:
        """Compute SS_β, averaged over outcomes of the check."""
        return float(np.mean([self.cost.sensitivity(answered, smoothness) for answered in self._patterns]))

    def expect(self, parameters: GnssParameters, sensitivity: float | None = None) -> Expected[GnssParameters]:
        if sensitivity is None:
            sensitivity = self.sensitivity(parameters.smoothness)
        renyi = self.cost.value(self.analysis.probabilities) + self.checks
        deviation = parameters.noise_scale * sensitivity
        total = renyi + parameters.cost + parameters.safety * deviation
        return _expect(self.analysis, parameters, renyi, total, (deviation, sensitivity))

    @cached_property
    def _patterns(self) -> NDArray[np.float64]:
        if self.analysis.answered is not None:
            return self.analysis.answered[np.newaxis].astype(np.float64)
        draws = np.random.default_rng(0).random((_SIMULATIONS, self.analysis.queries))
        return (draws < self.analysis.probabilities).astype(np.float64)


def _expect(
    analysis: Analysis, parameters: Parameters, renyi: float, total: float, noise: tuple[float, float]
) -> Expected[Parameters]:
    epsilon = epsilon_at(analysis, parameters.order, total)
    return Expected(parameters, renyi, epsilon, *noise, analysis.delta, analysis.conversion)
