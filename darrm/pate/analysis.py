"""The cost of a PATE run from its votes: ε, its order, the expected number of answers, the share of the check.

There are two bounds, and the smaller ε is the default: the **exact** one, the worst divergence of each label over all
neighbors in both directions (`darrm.noisy_max.cost_given_votes`), and **Theorem 6** of [P], which bounds D(M(D)‖M(D′))
only. (ε, δ) privacy needs both directions.

The total at order λ is Σ_i (check_i + [i answered]·answer_i) [P, Theorem 4]: every query pays for the check. Before a
run ``[i answered]`` is its probability, as in Tables 1 and 2 of [P]; after a run pass the released ``answered=``.

**A data-dependent ε is private data**; `darrm.pate.publication.sanitize` computes a figure that may be released.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import ArrayLike, NDArray

from darrm.loss.privacy_cost import PrivacyCost
from darrm.loss.renyi import DEFAULT_ORDERS, RenyiConversion, RenyiCurve, RenyiGridWarning
from darrm.noisy_max.cost_given_votes import LabelCosts, has_exact_cost, label_costs
from darrm.noisy_max.label_cost import knots, largest_order
from darrm.noisy_max.mechanisms import GNMax, LNMax
from darrm.numerics import Array
from darrm.pate.confident import CheckedGNMax, ConfidentGNMax, InteractiveGNMax
from darrm.pate.theorem_6 import answer_independent, gaussian_renyi, laplace_log_q, laplace_renyi, log_q
from darrm.privacy import at_most
from darrm.util import checks
from darrm.util.files import Document, Json
from darrm.votes import Votes, require_votes, to_counts

PateAggregator = LNMax | GNMax | ConfidentGNMax | InteractiveGNMax
CHECKS = ("data-dependent", "data-independent")
EXACT, THEOREM_6 = "exact", "Theorem 6"
WARNING = (
    "this epsilon depends on the votes and is itself private data: do not publish it, nor anything chosen by looking "
    "at it; publish what sanitize(...) gives, or the data-independent epsilon"
)
_MAX_PAIRS = 1 << 21  # (query, order) pairs at a time: 16 MB
_MIN_EXACT_ORDER, _MAX_EXACT_ORDER = 1.25, 130.0  # of exact costs


class PrivateFigureWarning(UserWarning):
    """A data-dependent privacy cost was computed, and it is private data."""


class AnswersByTheorem6:
    """The costs of answers by Theorem 6, for one direction: **private data**."""

    def __init__(self, answer: LNMax | GNMax, counts: NDArray[np.int64], orders: Array) -> None:
        self._orders = orders
        if isinstance(answer, LNMax):
            self._log_q = laplace_log_q(counts, answer.gamma, noise=answer.noise)
            self._renyi = partial(laplace_renyi, gamma=answer.gamma)
        else:
            self._log_q = log_q(counts, answer.sigma, noise=answer.noise)
            self._renyi = partial(gaussian_renyi, sigma=answer.sigma)

    def at(self, order: float) -> Array:
        """Bound the cost of answering each query at an order: (Q,)."""
        return self._renyi(self._log_q, orders=[order])[:, 0]

    def total(self, weights: Array, queries: slice = slice(None)) -> Array:
        """Compute Σ weight · cost over some queries at each order, a block at a time: (Q,) → (L,)."""
        logs, weights = self._log_q[queries], weights[queries]
        total = np.zeros_like(self._orders)
        rows = max(1, _MAX_PAIRS // self._orders.size)
        for start in range(0, logs.size, rows):
            block = slice(start, start + rows)
            total += weights[block] @ self._renyi(logs[block], orders=self._orders)
        return total


class ExactAnswers:
    """The exact costs of answers at some orders, for one or both directions: **private data**."""

    def __init__(self, label: LabelCosts, costs: Array, independent: RenyiCurve) -> None:
        self._label, self._independent = label, independent
        self._costs = np.minimum(costs, independent.bounds_at(label.orders))  # (U, L)

    def at(self, order: float) -> Array:
        costs = [RenyiCurve(self._label.orders, row).bound_at(order) for row in self._costs]
        return np.minimum(costs, self._independent.bound_at(order))[self._label.histogram_index]

    def total(self, weights: Array, queries: slice = slice(None)) -> Array:
        # (λ − 1)·D_λ is convex, so chords bound it, and below the first order D_λ is at most its first value
        times = self._label.sum_weights(weights, queries)
        exact = RenyiCurve(self._label.orders, times @ self._costs)
        return np.asarray(np.fmin(times.sum() * self._independent.values, exact.bounds_at(self._independent.orders)))


@dataclass(frozen=True, eq=False)
class Evidence:
    """A bound on the cost of a run from its votes: **private data**."""

    name: str
    answers: AnswersByTheorem6 | ExactAnswers
    checks: RenyiCurve  # the part of the threshold checks
    curve: RenyiCurve  # the total


@dataclass(frozen=True, eq=False)
class Analysis:
    """The data-dependent cost of a run: **private data**, except for the fields marked public."""

    aggregator: PateAggregator  # public
    delta: float  # public
    conversion: str  # public: "tight", or "classic" [P, Theorem 5]
    histograms: NDArray[np.int64]  # (Q, C)
    statistic: NDArray[np.int64] | None  # (Q,) of the check, if any
    answered: NDArray[np.bool_] | None  # (Q,) public once released; None for expected values
    probabilities: Array  # (Q,) that each query is answered; 0 or 1 if ``answered`` was given
    check: str  # public: how the checks are accounted for
    theorem_6: Evidence  # as in [P], for one direction
    exact: Evidence | None  # for both directions; None for continuous noise
    forward: Evidence | None  # the exact cost in the direction of Theorem 6
    label: LabelCosts | None  # the exact cost of each label, at some of the orders
    independent_curve: RenyiCurve  # of as many answers, for any votes
    worst_curve: RenyiCurve  # public: if every query is answered

    @property
    def cost(self) -> Evidence:
        """The bound with the smaller ε."""
        if self.exact is None or self.to_epsilon(self.theorem_6.curve) < self.to_epsilon(self.exact.curve):
            return self.theorem_6
        return self.exact

    @property
    def charged(self) -> str:
        """``"exact"`` or ``"Theorem 6"``, the bound with the smaller ε."""
        return self.cost.name

    @property
    def curve(self) -> RenyiCurve:
        """Total cost over the orders."""
        return self.cost.curve

    def to_epsilon(self, curve: RenyiCurve) -> float:
        """Convert a curve to ε at the δ of the analysis."""
        return self._convert(curve).epsilon

    @property
    def best(self) -> RenyiConversion:
        """The smallest ε over the orders, and its order."""
        return self._convert(self.curve)

    @property
    def epsilon(self) -> float:
        """The data-dependent ε at δ: private."""
        return self.best.epsilon

    @property
    def order(self) -> float:
        """The order with the smallest ε."""
        return self.best.order

    @property
    def renyi(self) -> float:
        """The data-dependent Rényi cost at the best order: private."""
        return self.curve.bound_at(self.order)

    @property
    def queries(self) -> int:
        """Number of queries (public)."""
        return int(self.probabilities.size)

    @property
    def voters(self) -> int:
        """Number of teachers (public)."""
        return int(self.histograms[0].sum())

    @property
    def expected_answered(self) -> float:
        """The number of answered queries, expected or actual."""
        return float(self.probabilities.sum())

    @property
    def check_share(self) -> float:
        """The share of the checks in `renyi`, in [0, 1]."""
        return self.cost.checks.bound_at(self.order) / self.renyi if self.renyi else 0.0

    @property
    def data_independent_epsilon(self) -> float:
        """The ε of as many answers, for any votes: `public_epsilon`."""
        return public_epsilon(self.independent_curve, self.worst_curve, self.delta, self.conversion)

    @property
    def worst_case_epsilon(self) -> float:
        """The largest ε, if every query is answered (public)."""
        return self.to_epsilon(self.worst_curve)

    def privacy_cost(self) -> PrivacyCost:
        """Return the data-dependent cost, which an account takes with consent only."""
        return PrivacyCost(f"{self.aggregator!r}, from its votes", renyi=self.curve, data_dependent=True)

    def to_json(self) -> Document:
        """Return the row of [P, Table 1]: **private data**."""
        theorem_6 = self._convert(self.theorem_6.curve)
        printed = self.theorem_6.curve.best(self.delta, conversion="classic")
        exact = None if self.exact is None else self._convert(self.exact.curve)
        meaning = "expectation over the noise of the check; pass the released answers to account for a run"
        if self.answered is not None:
            meaning = "all queries are answered" if self.answered.all() else "as released"
        return {
            "aggregator": repr(self.aggregator),
            "queries": self.queries,
            "voters": self.voters,
            "classes": int(self.histograms.shape[1]),
            "answered": self.expected_answered,
            "answered_is": meaning,
            "delta": self.delta,
            "conversion": self.conversion,
            "epsilon": self.epsilon,
            "charged": self.charged,
            "epsilon_exact": None if exact is None else exact.epsilon,
            "order_exact": None if exact is None else exact.order,
            "epsilon_exact_one_direction": None if self.forward is None else self.to_epsilon(self.forward.curve),
            "epsilon_theorem_6": theorem_6.epsilon,
            "order_theorem_6": theorem_6.order,
            "epsilon_as_printed": printed.epsilon,
            "order_as_printed": printed.order,
            "order_at_edge_of_grid": self.best.at_edge,
            "check_share": self.check_share,
            "data_independent_epsilon": self.data_independent_epsilon,
            "worst_case_epsilon": self.worst_case_epsilon,
            "private": True,
        }

    def __str__(self) -> str:
        row: Json = self.to_json()
        figures = {"answered": f"{row['answered']:.1f}  ({row['answered_is']})"}
        if self.exact is None:
            figures["epsilon, exact"] = "unknown for this noise"
        else:
            order = f"at order {row['order_exact']:g} (both directions)"
            figures["epsilon, exact"] = f"{at_most(row['epsilon_exact'])}  {order}"
            figures["  one direction"] = at_most(row["epsilon_exact_one_direction"])
        printed = row["epsilon_as_printed"]
        theorem_order, order_printed = (f"at order {row[name]:g}" for name in ("order_theorem_6", "order_as_printed"))
        figures |= {
            "epsilon, Theorem 6": f"{at_most(row['epsilon_theorem_6'])}  {theorem_order} (one direction)",
            "as printed in [P]": f"{printed:.4f}  {order_printed} (Theorems 6 and 5)",
            "share of the check": f"{row['check_share']:.1%}",
            "data-independent": f"{at_most(row['data_independent_epsilon'])}  for as many answers ({self.conversion})",
            "worst case": f"{at_most(row['worst_case_epsilon'])}  if every query is answered; public",
        }
        edge = "\n  the best order is at the edge of the grid: other orders may give less"
        return (
            f"{row['aggregator']}\n{self.queries} queries to {self.voters} voters, {row['classes']} classes, "
            f"delta = {at_most(self.delta, 6)}\nPRIVATE: {WARNING}.\n\nTable 1 row\n{align_figures(figures)}"
            f"{edge if row['order_at_edge_of_grid'] else ''}\n"
        )

    def _convert(self, curve: RenyiCurve) -> RenyiConversion:
        return curve.best(self.delta, conversion=self.conversion)


def align_figures(figures: dict[str, str]) -> str:
    return "\n".join(f"  {name:<22}{figure}" for name, figure in figures.items())


def public_epsilon(spent: RenyiCurve, largest: RenyiCurve, delta: float, conversion: str = "tight") -> float:
    """Convert the cost ``spent`` by a run, for any votes, at the order that is best for the largest cost ``most``.

    The number of answers depends on the votes. At an order λ fixed before, e^{(λ−1)(loss − spent so far)} is a
    supermartingale for every next query, so the figure holds ex post: E(1 − e^{ε(outcome) − loss})₊ ≤ δ. The order that
    is best for ``spent`` would depend on the outcome.

    >>> curve = RenyiCurve.of(lambda orders: orders / 200.0)
    >>> public_epsilon(curve, curve, 1e-5) == curve.best(1e-5).epsilon
    True
    >>> public_epsilon(curve, curve.repeat(4), 1e-5) > curve.best(1e-5).epsilon
    True
    """
    order = largest.best(delta, conversion=conversion).order
    at_order = RenyiCurve(np.array([order]), np.array([spent.bound_at(order)]))
    return at_order.best(delta, conversion=conversion).epsilon


def analyze(
    votes: Votes,
    aggregator: PateAggregator,
    delta: float,
    *,
    answered: ArrayLike | None = None,
    scores: ArrayLike | None = None,
    orders: ArrayLike = DEFAULT_ORDERS,
    conversion: str = "tight",
    check: str = "data-independent",
) -> Analysis:
    """Compute the cost of answering these queries, from their votes.

    Parameters
    ----------
    votes
        At least one query; arrays are refused.
    aggregator, delta
        `LNMax`, `GNMax`, `ConfidentGNMax` or `InteractiveGNMax`, and δ in (0, 1).
    answered
        (Q,) which queries were answered; None for the expectation.
    scores
        (Q, C) the student's scores, for `InteractiveGNMax` only.
    orders
        Orders λ > 1 of the search.
    conversion
        ``"tight"`` [CKS20, Proposition 12] or ``"classic"`` [P, Theorem 5].
    check
        ``"data-independent"`` or ``"data-dependent"``.

    Always warns with `PrivateFigureWarning`, and with `RenyiGridWarning` if the best order is at the edge of the grid.
    `ValueError` for malformed arguments.

    >>> votes = Votes.from_counts([[240, 10], [200, 50], [130, 120]])
    >>> with warnings.catch_warnings():
    ...     warnings.simplefilter("ignore")
    ...     run = analyze(votes, ConfidentGNMax(200, 150.0, 40.0), 1e-5)
    >>> round(run.expected_answered, 2), run.epsilon < run.data_independent_epsilon < run.worst_case_epsilon
    (1.43, True)
    """
    counts = to_counts(require_votes(votes))
    checks.open_probability(delta=delta)
    checks.one_of(CHECKS, check=check)
    grid = RenyiCurve.of(np.zeros_like, orders).orders
    answer = find_noisy_max(aggregator)
    statistic = _compute_statistic(votes, aggregator, scores)
    pattern, weights = _find_answered(aggregator, statistic, answered, len(counts))
    check_values, theorem_checks, forward_checks, exact_checks = _bound_check_costs(aggregator, statistic, grid, check)
    answer_curve = _take_smaller(answer.guarantee, answer_independent(answer, grid), grid)

    def collect_evidence(name: str, answers: AnswersByTheorem6 | ExactAnswers, check_curve: RenyiCurve) -> Evidence:
        return Evidence(name, answers, check_curve, check_curve + RenyiCurve(grid, answers.total(weights)))

    label = exact = forward = None
    if answer.noise == "discrete" and has_exact_cost(answer.law):
        deviation = answer.law.deviation
        exact_orders = grid[(grid >= _MIN_EXACT_ORDER) & (grid <= min(_MAX_EXACT_ORDER, largest_order(deviation)))]
        label = label_costs(answer.law, counts, knots(exact_orders, deviation) if exact_orders.size else grid[:1])
        exact = collect_evidence(EXACT, ExactAnswers(label, label.worst, answer_curve), exact_checks)
        forward = collect_evidence(EXACT, ExactAnswers(label, label.forward, answer_curve), forward_checks)
    analysis = Analysis(
        aggregator=aggregator,
        delta=delta,
        conversion=conversion,
        histograms=counts,
        statistic=statistic,
        answered=pattern,
        probabilities=weights,
        check=check,
        theorem_6=collect_evidence(THEOREM_6, AnswersByTheorem6(answer, counts, grid), theorem_checks),
        exact=exact,
        forward=forward,
        label=label,
        independent_curve=RenyiCurve(grid, len(counts) * check_values + weights.sum() * answer_curve.values),
        worst_curve=RenyiCurve(grid, len(counts) * (check_values + answer_curve.values)),
    )
    warnings.warn(WARNING, PrivateFigureWarning, stacklevel=2)
    analysis.curve.convert(delta, conversion=conversion)  # warns if the best order is at the edge
    return analysis


@contextmanager
def hide_warnings() -> Iterator[None]:
    """Suppress the warnings of `analyze`, for reports that contain them."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrivateFigureWarning)
        warnings.simplefilter("ignore", RenyiGridWarning)
        yield


def find_noisy_max(aggregator: PateAggregator) -> LNMax | GNMax:
    """Return the noisy maximum; `ValueError` for mechanisms without data-dependent costs."""
    if not isinstance(aggregator, PateAggregator):
        advice = "costs of other mechanisms do not depend on the votes"
        checks.fail("aggregator", aggregator, "a GNMax, an LNMax, a ConfidentGNMax or an InteractiveGNMax", advice)
    answer = aggregator.answer if isinstance(aggregator, CheckedGNMax) else aggregator
    if answer.reached != 1:
        checks.fail("reached", answer.reached, "1", "data-dependent costs are those of one moved vote")
    return answer


def _compute_statistic(votes: Votes, aggregator: PateAggregator, scores: ArrayLike | None) -> NDArray[np.int64] | None:
    if isinstance(aggregator, InteractiveGNMax):
        if scores is None:
            raise ValueError("InteractiveGNMax needs scores=: the student's probabilities, one row for each query")
        return aggregator.statistic(votes, scores)
    if scores is not None:
        raise ValueError("scores are for InteractiveGNMax only: leave them out")
    return aggregator.statistic(votes) if isinstance(aggregator, ConfidentGNMax) else None


def _find_answered(
    aggregator: PateAggregator, statistic: NDArray[np.int64] | None, answered: ArrayLike | None, queries: int
) -> tuple[NDArray[np.bool_] | None, Array]:
    """Return the pattern of answers, None if unknown, and the probabilities of answers: (Q,) each."""
    if answered is None and isinstance(aggregator, CheckedGNMax) and statistic is not None:
        return None, np.exp(aggregator.check.log_probabilities(statistic)[0])
    pattern = np.ones(queries, dtype=bool) if answered is None else np.asarray(answered)
    if pattern.dtype != bool or pattern.shape != (queries,):
        shape = f"{pattern.dtype} {pattern.shape}"
        checks.fail("answered", shape, f"{queries} booleans, one for each query", "for labels pass labels >= 0")
    if statistic is None and not pattern.all():
        raise ValueError("answered must be all True: this aggregator answers every query")
    return pattern, pattern.astype(np.float64)


def _take_smaller(curve: RenyiCurve, values: Array, grid: Array) -> RenyiCurve:
    return RenyiCurve(grid, np.minimum(curve.bounds_at(grid), values))


def _bound_check_costs(
    aggregator: PateAggregator, statistic: NDArray[np.int64] | None, grid: Array, check: str
) -> tuple[Array, RenyiCurve, RenyiCurve, RenyiCurve]:
    """Bound one check for any votes, and all checks by Theorem 6, exactly forward, and exactly in both directions."""
    if not isinstance(aggregator, CheckedGNMax) or statistic is None:
        zero = RenyiCurve(grid, np.zeros_like(grid))
        return zero.values, zero, zero, zero
    noisy_check, queries = aggregator.check, statistic.size
    per_check = _take_smaller(noisy_check.guarantee, noisy_check.independent(grid), grid).values
    all_checks = RenyiCurve(grid, queries * per_check)
    if check == "data-independent":
        return per_check, RenyiCurve(grid, queries * noisy_check.independent(grid)), all_checks, all_checks
    values, counts = np.unique(statistic, return_counts=True)
    times = counts.astype(np.float64)
    theorem_checks = RenyiCurve(grid, times @ noisy_check.dependent(values, grid))
    if not noisy_check.is_summed(statistic):
        return per_check, theorem_checks, all_checks, all_checks
    forward, exact = (
        RenyiCurve(grid, times @ np.minimum(costs, per_check)) for costs in noisy_check.exact(values, grid)
    )
    return per_check, theorem_checks, forward, exact
