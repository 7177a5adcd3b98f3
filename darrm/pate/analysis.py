"""What a PATE run costs, from its votes: ε, the order, the expected number of answers, the check's share.

Two ways of counting stand side by side, and the smaller ε is the default.

- **exact**: for each recorded histogram the worst divergence of the label over all neighbors, computed
  (`darrm.losses.label_given_votes`), in both directions: D(M(D)‖M(D′)) and D(M(D′)‖M(D)).
- **Theorem 6** of [P], which bounds the first of them from q alone, with λ/(2σ₁²) for a check.

Both are statements about the data D at hand and all their neighbors D′. In one direction, no event is much likelier
with a person's data than without; in the other, none is much likelier without. Who reads the outcome may ask either
question, so an (ε, δ) that is to protect from both needs both directions.

The total at order λ is Σ_i (check_i + [i answered]·answer_i) [P, Theorem 4]: the noisy check is charged for EVERY
query, the answer only where it is given. Before a run ``[i answered]`` is replaced by its probability, as in
Tables 1 and 2 of [P]: an expectation, useful for planning. After a run pass ``answered=``, the pattern of ⊥ that
was released anyway.

**A data-dependent ε is itself private data**: it is computed from the votes, and changes when one person's data change.
`analyze` says so each time; `darrm.pate.publication.sanitize` gives the figure that may be released.
"""

import warnings
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from darrm.errors import checks
from darrm.losses.charges import Charge
from darrm.losses.label import knots, largest_order
from darrm.losses.label_given_votes import LabelCosts, exactly_charged, label_costs
from darrm.losses.renyi import DEFAULT_ORDERS, RenyiConversion, RenyiCurve
from darrm.mechanisms.noisy_max import GNMax, LNMax
from darrm.pate.confident import CheckedGNMax, ConfidentGNMax, InteractiveGNMax, NoisyCheck
from darrm.votes import Votes, counts_of, require_votes

PateAggregator = LNMax | GNMax | ConfidentGNMax | InteractiveGNMax
CHECKS = ("data-dependent", "data-independent")
EXACT, THEOREM_6 = "exact", "Theorem 6"
WARNING = (
    "this epsilon depends on the votes and is itself private data: do not publish it, nor anything chosen by looking "
    "at it; publish what sanitize(...) gives, or the data-independent epsilon"
)
_PAIRS_AT_ONCE = 1 << 21  # (query, order) pairs held at a time: 16 MB
_LEAST_ORDER, _LARGEST_ORDER = 1.25, 130.0  # between which labels are charged exactly


class PrivateFigureWarning(UserWarning):
    """A data-dependent privacy cost was computed: the figure is private data."""


@dataclass(frozen=True, eq=False)
class Cost:
    """What a run costs by one way of counting, over the orders; **private data**."""

    curve: RenyiCurve  # all of it
    checks: RenyiCurve  # the part of the threshold check


@dataclass(frozen=True, eq=False)
class Analysis:
    """The data-dependent cost of a run. **Private data**, except where an attribute says otherwise.

    Attributes
    ----------
    aggregator
        What answers (public).
    delta, conversion
        δ, and the name of the conversion: ``"tight"`` or ``"classic"``, [P, Theorem 5] (public).
    histograms, statistic
        The votes, and what the check looks at (None without a check).
    answered
        (Q,) pattern of answered queries (public once released), or None: expected values are given.
    probabilities
        (Q,) how likely each query is answered; 0 or 1 where ``answered`` was given.
    theorem_6
        The cost as [P] counts it, in one direction.
    exact, forward
        The exact cost in both directions, and in the one of Theorem 6; None for continuous noise.
    label
        What each label costs exactly, at some of the orders; None for continuous noise.
    independent_curve
        What the same number of answers costs whatever the votes.
    worst_curve
        What the run costs if every query is answered, whatever the votes (public).
    """

    aggregator: PateAggregator
    delta: float
    conversion: str
    histograms: NDArray[np.int64]
    statistic: NDArray[np.int64] | None
    answered: NDArray[np.bool_] | None
    probabilities: NDArray[np.float64]
    check: str
    theorem_6: Cost
    exact: Cost | None
    forward: Cost | None
    label: LabelCosts | None
    independent_curve: RenyiCurve
    worst_curve: RenyiCurve

    @property
    def charged(self) -> str:
        """Which way of counting gives the smaller ε: ``"exact"`` or ``"Theorem 6"``."""
        if self.exact is None:
            return THEOREM_6
        smaller = self.epsilon_of(self.exact.curve) <= self.epsilon_of(self.theorem_6.curve)
        return EXACT if smaller else THEOREM_6

    @property
    def cost(self) -> Cost:
        """The cost by the way of counting with the smaller ε."""
        return self.exact if self.exact is not None and self.charged == EXACT else self.theorem_6

    @property
    def curve(self) -> RenyiCurve:
        """Total cost over the orders."""
        return self.cost.curve

    def epsilon_of(self, curve: RenyiCurve) -> float:
        """Convert a curve to ε, at the δ and by the conversion of the analysis."""
        return curve.best(self.delta, conversion=self.conversion).epsilon

    @property
    def best(self) -> RenyiConversion:
        """The smallest ε over the orders, where it lies, and whether that is the edge of the grid."""
        return self.curve.best(self.delta, conversion=self.conversion)

    @property
    def epsilon(self) -> float:
        """The data-dependent ε at δ: private."""
        return self.best.epsilon

    @property
    def order(self) -> float:
        """The order that gives ε."""
        return self.best.order

    @property
    def renyi(self) -> float:
        """The data-dependent Rényi cost at the best order: private."""
        return _at(self.curve, self.order)

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
        """How many queries are answered, in expectation or in fact."""
        return float(self.probabilities.sum())

    @property
    def check_share(self) -> float:
        """Share of the threshold check in the Rényi cost at the best order, in [0, 1]."""
        total = self.renyi
        return _at(self.cost.checks, self.order) / total if total else 0.0

    @property
    def data_independent_epsilon(self) -> float:
        """What the same number of answers costs whatever the votes, at an order that is public: `public_epsilon`."""
        return public_epsilon(self.independent_curve, self.worst_curve, self.delta, self.conversion)

    @property
    def worst_case_epsilon(self) -> float:
        """What ε can be at most, if every query is answered (public)."""
        return self.epsilon_of(self.worst_curve)

    def answer_costs(self) -> NDArray[np.float64]:
        """Return the cost of answering each query at the best order, by the way that is charged: (Q,), private."""
        if self.label is None or self.charged == THEOREM_6:
            return self.theorem_6_costs(self.order)
        most = answer_of(self.aggregator).guarantee.bound_at(self.order)
        orders = self.label.orders
        exact = np.array([RenyiCurve(orders, one).bound_at(self.order) for one in self.label.both])
        return np.asarray(np.minimum(exact, most)[self.label.which])

    def answers_between(self, weights: NDArray[np.float64], start: int, stop: int) -> NDArray[np.float64]:
        """Total the answers to some of the queries, weighted, by the way that is charged: (L,), private."""
        answer, grid = answer_of(self.aggregator), self.curve.orders
        part = slice(start, stop)
        if self.label is None or self.charged == THEOREM_6:
            return answer_total(answer, self.histograms[part], weights[part], grid)
        one = _on(grid, answer.guarantee, answer.answer_independent(grid))
        return _exact_total(self.label.orders, self.label.both, self.label.times(weights, part), one).values

    def theorem_6_costs(self, order: float) -> NDArray[np.float64]:
        """Bound the cost of answering each query at an order by Theorem 6: (Q,), private."""
        answer = answer_of(self.aggregator)
        return answer.answer_renyi(answer.log_q(self.histograms), [order])[:, 0]

    def charge(self) -> Charge:
        """Describe the run by its data-dependent curve; an accountant refuses it unless told in words."""
        return Charge(f"{self.aggregator!r}, from its votes", renyi=self.curve, data_dependent=True)

    def __str__(self) -> str:
        kind = "expected answers" if self.answered is None else "answers"
        return (
            f"{self.queries} queries, {self.expected_answered:.1f} {kind}: epsilon = {self.epsilon:.4f} at delta = "
            f"{self.delta:g} ({self.charged}, {self.conversion} conversion, order {self.order:g}), "
            f"{self.check_share:.0%} of it for the threshold check; Theorem 6: "
            f"{self.epsilon_of(self.theorem_6.curve):.4f}; data-independent: "
            f"{self.data_independent_epsilon:.4f}\nPRIVATE: {WARNING}"
        )


def public_epsilon(spent: RenyiCurve, most: RenyiCurve, delta: float, conversion: str = "tight") -> float:
    """Convert what a run spent, whatever the votes, at the order that is best for the most that it may spend.

    How many queries pass a check is known at the end only, and depends on the votes. At an order λ that was fixed
    before, e^{(λ−1)(loss − spent so far)} is a supermartingale, whatever is asked next, so the figure holds ex post:
    E(1 − e^{ε(outcome) − loss})₊ ≤ δ. The order that is best for the number of answers is chosen by the outcome.

    >>> curve = RenyiCurve.of(lambda orders: orders / 200.0)
    >>> public_epsilon(curve, curve, 1e-5) == curve.best(1e-5).epsilon
    True
    >>> public_epsilon(curve, curve.repeated(4), 1e-5) > curve.best(1e-5).epsilon
    True
    """
    order = most.best(delta, conversion=conversion).order
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
    """Compute what answering these queries costs, from their votes.

    Parameters
    ----------
    votes
        At least one query; arrays are refused, since labels and counts look alike.
    aggregator
        `LNMax`, `GNMax`, `ConfidentGNMax` or `InteractiveGNMax`.
    delta
        δ in (0, 1).
    answered
        (Q,) which queries were answered; None computes the expectation over the check.
    scores
        (Q, C) the student's scores, for `InteractiveGNMax` only.
    orders
        Orders λ > 1 to search.
    conversion
        ``"tight"`` [CKS20, Proposition 12] or ``"classic"`` [P, Theorem 5].
    check
        ``"data-independent"``, or ``"data-dependent"``: from the statistic of each query.

    Warns
    -----
    PrivateFigureWarning
        Always: the result is private data.
    RenyiGridWarning
        If the best order lies at the edge of the grid.

    Raises
    ------
    ValueError
        If an argument is malformed.

    Examples
    --------
    >>> votes = Votes.of_counts([[240, 10], [200, 50], [130, 120]])
    >>> with warnings.catch_warnings():
    ...     warnings.simplefilter("ignore")
    ...     run = analyze(votes, ConfidentGNMax(200, 150.0, 40.0), 1e-5)
    >>> round(run.expected_answered, 2), run.epsilon < run.data_independent_epsilon < run.worst_case_epsilon
    (1.43, True)
    """
    counts = counts_of(require_votes(votes))
    checks.open_probability(delta=delta)
    checks.one_of(CHECKS, check=check)
    grid = RenyiCurve.of(np.zeros_like, orders).orders
    answer = answer_of(aggregator)
    statistic = _statistic(votes, aggregator, scores)
    pattern = None if answered is None else _pattern(answered, counts.shape[0], needed=statistic is None)
    probabilities = np.ones(counts.shape[0]) if pattern is None else pattern.astype(np.float64)
    one_check = in_theorem = exact_forward = exact_both = RenyiCurve(grid, np.zeros_like(grid))
    if isinstance(aggregator, CheckedGNMax) and statistic is not None:
        if pattern is None:
            probabilities = np.exp(aggregator.check.log_probabilities(statistic)[0])
        one_check = _on(grid, aggregator.check.guarantee, aggregator.check.independent(grid))
        in_theorem, exact_forward, exact_both = _checks_costs(aggregator.check, statistic, one_check, check)
    one_answer = _on(grid, answer.guarantee, answer.answer_independent(grid))
    in_total = in_theorem + RenyiCurve(grid, answer_total(answer, counts, probabilities, grid))
    exact, forward, label = None, None, None
    if answer.noise == "discrete" and exactly_charged(answer.law):
        label = label_costs(answer.law, counts, _exact_orders(grid, answer.law.deviation))
        weights = label.times(probabilities)
        exact, forward = (
            Cost(parts + _exact_total(label.orders, costs, weights, one_answer), parts)
            for costs, parts in ((label.both, exact_both), (label.forward, exact_forward))
        )
    in_all = counts.shape[0] * one_check.values
    analysis = Analysis(
        aggregator=aggregator,
        delta=delta,
        conversion=conversion,
        histograms=counts,
        statistic=statistic,
        answered=np.ones(counts.shape[0], dtype=bool) if statistic is None else pattern,
        probabilities=probabilities,
        check=check,
        theorem_6=Cost(in_total, in_theorem),
        exact=exact,
        forward=forward,
        label=label,
        independent_curve=RenyiCurve(grid, in_all + probabilities.sum() * one_answer.values),
        worst_curve=RenyiCurve(grid, counts.shape[0] * (one_check.values + one_answer.values)),
    )
    warnings.warn(WARNING, PrivateFigureWarning, stacklevel=2)
    analysis.curve.convert(delta, conversion=conversion)  # warns where the best order is at the edge
    return analysis


def answer_of(aggregator: PateAggregator) -> LNMax | GNMax:
    """Return what answers a query, once it is to be answered; `ValueError` where its cost does not depend on votes."""
    if not isinstance(aggregator, PateAggregator):
        advice = "what others cost does not depend on the votes: see their charge"
        checks.fail("aggregator", aggregator, "a GNMax, an LNMax, a ConfidentGNMax or an InteractiveGNMax", advice)
    answer = aggregator.answer if isinstance(aggregator, CheckedGNMax) else aggregator
    if answer.reached != 1:
        checks.fail("reached", answer.reached, "1", "data-dependent costs are those of one moved vote")
    return answer


def answer_total(
    answer: LNMax | GNMax, counts: NDArray[np.int64], weights: NDArray[np.float64], orders: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Compute Σ_i weight_i · cost_i at each order, a block of queries at a time: (L,)."""
    log_q = answer.log_q(counts)
    total = np.zeros_like(orders)
    rows = max(1, _PAIRS_AT_ONCE // orders.size)
    for start in range(0, log_q.size, rows):
        block = slice(start, start + rows)
        total += weights[block] @ answer.answer_renyi(log_q[block], orders)
    return total


def _at(curve: RenyiCurve, order: float) -> float:
    return float(np.interp(order, curve.orders, curve.values))


def _statistic(votes: Votes, aggregator: PateAggregator, scores: ArrayLike | None) -> NDArray[np.int64] | None:
    if isinstance(aggregator, InteractiveGNMax):
        if scores is None:
            raise ValueError("InteractiveGNMax needs scores=: the student's probabilities, one row for each query")
        return aggregator.statistic(votes, scores)
    if scores is not None:
        raise ValueError("scores are for InteractiveGNMax only: leave them out")
    return aggregator.statistic(votes) if isinstance(aggregator, ConfidentGNMax) else None


def _pattern(answered: ArrayLike, queries: int, *, needed: bool) -> NDArray[np.bool_]:
    pattern = np.asarray(answered)
    if pattern.dtype != bool or pattern.shape != (queries,):
        given = f"{pattern.dtype} {pattern.shape}"
        checks.fail("answered", given, f"{queries} booleans, one for each query", "for labels pass labels >= 0")
    if needed and not pattern.all():
        raise ValueError("answered must be all True: this aggregator answers every query")
    return pattern


def _on(grid: NDArray[np.float64], curve: RenyiCurve, counted: NDArray[np.float64]) -> RenyiCurve:
    return RenyiCurve(grid, np.minimum([curve.bound_at(float(order)) for order in grid], counted))


def _checks_costs(
    check: NoisyCheck, statistic: NDArray[np.int64], one: RenyiCurve, counting: str
) -> tuple[RenyiCurve, RenyiCurve, RenyiCurve]:
    """Sum the checks' costs, each value of the statistic once: as [P] counts them, as bits forward, and both ways."""
    grid = one.orders
    values, counts = np.unique(statistic, return_counts=True)
    most = RenyiCurve(grid, statistic.size * one.values)
    if counting == "data-independent":
        return RenyiCurve(grid, statistic.size * check.independent(grid)), most, most
    in_theorem = RenyiCurve(grid, np.asarray(counts @ check.dependent(values, grid)))
    if not check.summed(statistic):
        return in_theorem, most, most
    forward, both = (np.minimum(costs, one.values) for costs in check.exact(values, grid))
    times = counts.astype(np.float64)
    return in_theorem, RenyiCurve(grid, times @ forward), RenyiCurve(grid, times @ both)


def _exact_orders(grid: NDArray[np.float64], deviation: float) -> NDArray[np.float64]:
    inside = grid[(grid >= _LEAST_ORDER) & (grid <= min(_LARGEST_ORDER, largest_order(deviation)))]
    return knots(inside, deviation) if inside.size else grid[:1]


def _exact_total(
    orders: NDArray[np.float64], costs: NDArray[np.float64], weights: NDArray[np.float64], one: RenyiCurve
) -> RenyiCurve:
    """Compute Σ weight · cost on the grid of one answer's curve, never more than that: costs (U, L) at some orders."""
    # (λ − 1)·D_λ is convex, so chords bound it; D_λ grows, so below the first order it is at most what it is there.
    most = float(weights.sum()) * one.values
    capped = np.minimum(costs, [one.bound_at(float(order)) for order in orders])
    known = RenyiCurve(orders, np.asarray(weights @ capped))
    return RenyiCurve(one.orders, np.fmin(most, [known.bound_at(float(order)) for order in one.orders]))
