"""Publishing a data-dependent ε: on the scale of votes, or by smooth sensitivity as in [P, Section B.6].

The published figure is

    ε = noisy answers' cost + checks' cost + the publication's own cost + conversion at λ and δ,

where the first part comes from the votes and the others do not. With `PublicationParameters` it is a noisy mark of
`vote_scale`, which covers both directions; with `GnssParameters` f + SS_β·N(0, σ_SS²) for the cost f by Theorem 6 (plus
the checks' cost where that was accounted from the data). Parameters must be fixed without looking at the private votes:
by a rule of thumb, or by a search on votes that are public or simulated, since parameters that were chosen on private
votes reveal something of them.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from darrm.errors import checks
from darrm.losses.charges import Charge
from darrm.losses.label_given_votes import WIDEST, LabelCosts
from darrm.losses.missed_label import MissedLabel
from darrm.losses.renyi import CONVERSIONS, RenyiCurve
from darrm.mechanisms.noisy_max import LNMax
from darrm.pate.analysis import Analysis, answer_of
from darrm.pate.confident import CheckedGNMax
from darrm.pate.cost_shape import ConditionError
from darrm.pate.gnss import GnssParameters, best_noise_scale, largest_smoothness, noisy_value
from darrm.pate.smooth_sensitivity import SmoothCost, smooth_cost
from darrm.pate.vote_scale import MARKS_A_VOTE, PublicationParameters, VoteScale, mark_of_run, vote_scale
from darrm.privacy import PrivacyParams
from darrm.system.files import Document
from darrm.system.progress import StatusLine

FORMAT = "darrm sanitized figure"
ORDERS_TRIED = 3
_ORDERS_AROUND = np.array([0.6, 0.7, 0.8, 0.9, 1.0, 1.1])  # of the order of the exact ε, above 1
_DEVIATIONS = np.geomspace(1.0, 64.0, 49)  # votes
_NEEDS_EXACT = f"the scale of votes needs exact costs: use discrete noise of a deviation of at most {WIDEST:g} votes"
# of the largest possible β; smaller ones need far distances, and noise that is hardly smaller
_SMOOTHNESS_RANGE = (0.3, 0.98)
_SMALLEST_SENSITIVITY = 1e-6  # nats: keeps the best σ_SS finite where nothing can move


@dataclass(frozen=True)
class Sanitized:
    """An estimate of what a run cost that may be published: about the data at hand, and no guarantee.

    Attributes
    ----------
    epsilon, delta
        The figure: an estimate of the run's ε, its own publication included.
    order, conversion
        λ and the name of the conversion.
    noisy_cost
        The sanitized part of the Rényi cost at λ, clipped to what is possible whatever the votes.
    public_cost
        The parts of the Rényi cost that do not depend on the votes: checks and GNSS.
    understated_with
        Probability that the figure is too small: ½ unless a safety was added.
    run
        What else is public: mechanism, number of queries, how its check is accounted for, parameters.
    """

    epsilon: float
    delta: float
    order: float
    conversion: str
    noisy_cost: float
    public_cost: float
    understated_with: float
    run: Document = field(default_factory=dict)

    def to_json(self) -> Document:
        """Write the figure, and what is public of its run, as plain data: `darrm.verify` judges a file of it."""
        return {"format": FORMAT, **vars(self)}

    def charge(self, *, consent: str = "") -> Charge:
        """Describe the whole run, its publication included, by the sanitized figure.

        An account takes it with ``consent=ESTIMATED_TOTAL`` only (`darrm.losses.charges`), and says so in its total.
        """
        return Charge(
            "PATE run, sanitized cost",
            guarantee=PrivacyParams(self.epsilon, self.delta),
            data_dependent=True,
            understated=self.understated_with,
            consent=consent,
        )

    def __str__(self) -> str:
        return (
            f"epsilon = {self.epsilon:.4f} at delta = {self.delta:g} (sanitized, may be published; order "
            f"{self.order:g}, {self.conversion} conversion; about the data at hand, too small with probability "
            f"{self.understated_with:.3g})"
        )


def sanitize(
    analysis: Analysis, parameters: GnssParameters | PublicationParameters, *, rng: np.random.Generator | None = None
) -> Sanitized:
    """Return the figure that may be published for a run that is over.

    Parameters
    ----------
    analysis
        From `analyze`, with ``answered=`` the released pattern of answers where the aggregator has a check.
    parameters
        `PublicationParameters` for the exact cost on the scale of votes, `GnssParameters` for Theorem 6 with [P]'s
        smooth sensitivity; fixed without looking at the votes.
    rng
        None draws from the operating system. A generator is for experiments only: no privacy is claimed.

    Raises
    ------
    ValueError
        If the analysis holds expectations instead of answers, or for `LNMax`; with `PublicationParameters` also for
        continuous noise, and where the checks were accounted from the data.
    ConditionError
        If a condition of [P, Section B.2] fails: then no sanitized figure exists at this order.

    Notes
    -----
    Each call is a new release and costs its own share: publish one figure for a run, not the best of several.
    """
    checks.instance(Analysis, analysis=analysis, advice="analyze(votes, aggregator, delta=…) makes one")
    if not isinstance(parameters, GnssParameters | PublicationParameters):
        advice = "publication_rule(epsilon, delta) makes some without looking at votes"
        checks.fail("parameters", parameters, "PublicationParameters or GnssParameters", advice)
    if analysis.answered is None:
        raise ValueError("sanitize needs the answers that were given: analyze(..., answered=labels >= 0)")
    order = parameters.order
    weights = analysis.answered.astype(np.float64)
    understated = understated_with(parameters.safety)
    run: Document = {"mechanism": repr(analysis.aggregator), "queries": analysis.queries, "check": analysis.check}
    run["parameters"] = vars(parameters)
    if isinstance(parameters, PublicationParameters):
        scale, label = _scale_of(analysis, order, int(weights.sum()))
        noisy = scale.published(mark_of_run(scale, label, weights), parameters, rng=rng)
        public = exact_checks(analysis, order) + parameters.cost
        epsilon = epsilon_at(analysis, order, noisy + public)
        return Sanitized(epsilon, analysis.delta, order, analysis.conversion, noisy, public, understated, run)
    smooth = smooth_cost(analysis, order, parameters.smoothness)
    sensitivity = smooth.sensitivity(weights, parameters.smoothness)
    noisy = noisy_value(smooth.value(weights), sensitivity, parameters, rng=rng)
    public_checks, largest_checks = _checks_costs(analysis, order)
    per_answer = float(answer_of(analysis.aggregator).answer_independent([order])[0])
    noisy = min(max(noisy, 0.0), float(weights.sum()) * per_answer + largest_checks)
    public = public_checks + parameters.cost
    epsilon = epsilon_at(analysis, order, noisy + public)
    return Sanitized(epsilon, analysis.delta, order, analysis.conversion, noisy, public, understated, run)


def understated_with(safety: float) -> float:
    """Compute Φ(−z), the probability that a published figure is too small.

    >>> understated_with(0.0), round(understated_with(3.0), 6)
    (0.5, 0.00135)
    """
    return 0.5 * math.erfc(safety / math.sqrt(2.0))


Parameters = TypeVar("Parameters", GnssParameters, PublicationParameters)


@dataclass(frozen=True)
class Expected(Generic[Parameters]):
    """What publishing with given parameters would lead to, on average over the check's outcomes: private."""

    parameters: Parameters
    renyi: float  # at the order, without the publication's own
    epsilon: float  # sanitized
    deviation: float  # standard deviation of its noise, σ_SS·SS; on the scale of votes, what s votes more cost more
    sensitivity: float  # SS_β; on the scale of votes, what one vote more costs more


def expected_publication(
    analysis: Analysis, parameters: GnssParameters, *, simulations: int = 20, seed: int = 0
) -> Expected[GnssParameters]:
    """Compute what `sanitize` would give on average, as [P, Table 2] reports it.

    f is an exact expectation, SS_β an average over simulated outcomes of the check where no pattern is given.
    """
    smooth = smooth_cost(analysis, parameters.order, parameters.smoothness)
    sensitivity = _mean_sensitivity(smooth, _patterns(analysis, simulations, seed), parameters.smoothness)
    return _expected(analysis, smooth, sensitivity, parameters)


def search_parameters(
    analysis: Analysis,
    order: float | None = None,
    *,
    simulations: int = 20,
    grid: int = 40,
    seed: int = 0,
    report: Callable[[str], None] | None = None,
) -> Expected[GnssParameters]:
    """Search (λ, β, σ_SS) with the smallest expected ε plus two standard deviations of its noise [P, Section B.6].

    For votes that are public or simulated: chosen on private votes, the parameters themselves reveal something. By
    default λ is the best among the `ORDERS_TRIED` orders of the analysis's grid with the smallest ε for which the
    conditions of [P, Section B.2] hold, `ConditionError` where there is none; ``grid`` values of β are tried.
    ``report`` is told how many of all trials are done. `ValueError` for `LNMax`.
    """
    checks.integer_at_least(1, grid=grid)
    patterns = _patterns(analysis, simulations, seed)
    show = report or StatusLine(enabled=False).show
    if order is not None:
        return _search_at(analysis, patterns, order, grid, lambda done: show(f"{done} of {grid} trials"))
    curve = analysis.theorem_6.curve
    epsilons = CONVERSIONS[analysis.conversion](curve.orders, curve.values, analysis.delta)
    choices: list[Expected[GnssParameters]] = []
    refused: list[ConditionError] = []

    def tried(done: int) -> None:
        show(f"{len(choices) * grid + done} of {ORDERS_TRIED * grid} trials")

    for candidate in curve.orders[np.argsort(epsilons)]:
        try:
            choices.append(_search_at(analysis, patterns, float(candidate), grid, tried))
        except ConditionError as error:
            refused.append(error)
        if len(choices) == ORDERS_TRIED:
            break
    if not choices:
        raise refused[0]
    return min(choices, key=_with_two_deviations)


def expected_on_vote_scale(analysis: Analysis, parameters: PublicationParameters) -> Expected[PublicationParameters]:
    """Compute what `sanitize` would give on the scale of votes where the noise is zero; as many answers as expected."""
    trials = _trials_at(analysis, parameters.order)
    return _on_vote_scale(analysis, parameters, *trials)


def search_publication(analysis: Analysis, orders: ArrayLike | None = None) -> Expected[PublicationParameters]:
    """Search (λ, s) with the smallest ε at two standard deviations of noise above the cost.

    For votes that are public or simulated, as `search_parameters`. By default λ is taken around
    the order of the smallest exact ε.
    """
    if orders is None:
        if analysis.exact is None:
            raise ValueError(_NEEDS_EXACT)
        curve = analysis.exact.curve
        epsilons = CONVERSIONS[analysis.conversion](curve.orders, curve.values, analysis.delta)
        best = float(curve.orders[int(np.argmin(epsilons))])
        orders = 1.0 + (best - 1.0) * _ORDERS_AROUND
    choices: list[Expected[PublicationParameters]] = []
    for order in map(float, np.asarray(orders, dtype=np.float64)):
        scale, mark = _trials_at(analysis, order)
        choices += [
            _on_vote_scale(analysis, PublicationParameters(order, deviation), scale, mark)
            for deviation in _DEVIATIONS.tolist()
        ]
    return min(choices, key=_with_two_deviations)


def exact_checks(analysis: Analysis, order: float) -> float:
    """Return what the checks cost as bits, whatever the votes."""
    if not isinstance(analysis.aggregator, CheckedGNMax):
        return 0.0
    return analysis.queries * analysis.aggregator.check.guarantee.bound_at(order)


def epsilon_at(analysis: Analysis, order: float, renyi: float) -> float:
    """Convert a Rényi cost at one order to ε, at the δ and by the conversion of the analysis."""
    curve = RenyiCurve(np.array([order]), np.array([renyi]))
    return curve.best(analysis.delta, conversion=analysis.conversion).epsilon


def _scale_of(analysis: Analysis, order: float, answers: int) -> tuple[VoteScale[MissedLabel], LabelCosts]:
    answer = answer_of(analysis.aggregator)
    if isinstance(answer, LNMax):
        checks.fail("the aggregator", analysis.aggregator, "of the GNMax kind", "there is no scale of votes for LNMax")
    if analysis.label is None:
        raise ValueError(_NEEDS_EXACT)
    if analysis.check == "data-dependent":
        checks.fail("check", analysis.check, "data-independent", "on the scale of votes only answers are counted")
    return vote_scale(answer.sigma, order, answers), analysis.label


def _trials_at(analysis: Analysis, order: float) -> tuple[VoteScale[MissedLabel], int]:
    scale, label = _scale_of(analysis, order, round(analysis.expected_answered))
    return scale, mark_of_run(scale, label, analysis.probabilities)


def _on_vote_scale(
    analysis: Analysis, parameters: PublicationParameters, scale: VoteScale[MissedLabel], mark: int
) -> Expected[PublicationParameters]:
    public = exact_checks(analysis, parameters.order)
    here = scale.cost_at(mark + math.ceil(MARKS_A_VOTE * parameters.safety * parameters.deviation))
    higher = scale.cost_at(mark + math.ceil(MARKS_A_VOTE * (parameters.safety + 1.0) * parameters.deviation))
    epsilon = epsilon_at(analysis, parameters.order, here + public + parameters.cost)
    one_more = scale.cost_at(mark + MARKS_A_VOTE) - scale.cost_at(mark)
    return Expected(parameters, scale.cost_at(mark) + public, epsilon, higher - here, one_more)


def _checks_costs(analysis: Analysis, order: float) -> tuple[float, float]:
    """Return what the checks cost whatever the votes: the public part, and the most that a data-dependent part can."""
    if not isinstance(analysis.aggregator, CheckedGNMax):
        return 0.0, 0.0
    total = analysis.queries * float(analysis.aggregator.check.independent([order])[0])
    return (0.0, total) if analysis.check == "data-dependent" else (total, 0.0)


def _search_at(
    analysis: Analysis, patterns: NDArray[np.float64], order: float, grid: int, tried: Callable[[int], None]
) -> Expected[GnssParameters]:
    candidates = largest_smoothness(order) * np.linspace(*_SMOOTHNESS_RANGE, grid)
    smooth = smooth_cost(analysis, order, float(candidates[0]))
    choices: list[Expected[GnssParameters]] = []
    for done, smoothness in enumerate(map(float, candidates)):
        tried(done)
        sensitivity = _mean_sensitivity(smooth, patterns, smoothness)
        scale = best_noise_scale(order, smoothness, max(sensitivity, _SMALLEST_SENSITIVITY))
        choices.append(_expected(analysis, smooth, sensitivity, GnssParameters(order, smoothness, scale)))
    return min(choices, key=_with_two_deviations)


def _with_two_deviations(one: Expected[Any]) -> float:
    return one.epsilon + 2.0 * one.deviation


def _patterns(analysis: Analysis, simulations: int, seed: int) -> NDArray[np.float64]:
    checks.integer_at_least(1, simulations=simulations)
    if analysis.answered is not None:
        return analysis.answered[np.newaxis].astype(np.float64)
    draws = np.random.default_rng(seed).random((simulations, analysis.queries))
    return (draws < analysis.probabilities).astype(np.float64)


def _mean_sensitivity(smooth: SmoothCost, patterns: NDArray[np.float64], smoothness: float) -> float:
    return float(np.mean([smooth.sensitivity(pattern, smoothness) for pattern in patterns]))


def _expected(
    analysis: Analysis, smooth: SmoothCost, sensitivity: float, parameters: GnssParameters
) -> Expected[GnssParameters]:
    renyi = smooth.value(analysis.probabilities) + _checks_costs(analysis, parameters.order)[0]
    deviation = parameters.noise_scale * sensitivity
    total = renyi + parameters.cost + parameters.safety * deviation
    return Expected(parameters, renyi, epsilon_at(analysis, parameters.order, total), deviation, sensitivity)
