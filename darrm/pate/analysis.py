"""What a PATE run costs, from its votes: ε, the order, the expected number of answers, the check's share.

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

from darrm import checks
from darrm.losses.charges import Charge
from darrm.losses.renyi import DEFAULT_ORDERS, RenyiConversion, RenyiCurve
from darrm.pate.confident import CheckedGNMax, ConfidentGNMax, NoisyCheck
from darrm.pate.interactive import InteractiveGNMax
from darrm.pate.noisy_max import GNMax, LNMax
from darrm.votes import Votes, counts_of, require_votes

PateAggregator = LNMax | GNMax | ConfidentGNMax | InteractiveGNMax
CHECKS = ("data-dependent", "data-independent")
WARNING = (
    "this epsilon depends on the votes and is itself private data: do not publish it, nor anything chosen by looking "
    "at it; publish what sanitize(...) gives, or the data-independent epsilon"
)
_PAIRS_AT_ONCE = 1 << 21  # (query, order) pairs held at a time: 16 MB


class PrivateFigureWarning(UserWarning):
    """A data-dependent privacy cost was computed: the figure is private data."""


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
    curve
        Total cost over the orders.
    check_curve
        The part of the threshold check.
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
    curve: RenyiCurve
    check_curve: RenyiCurve
    independent_curve: RenyiCurve
    worst_curve: RenyiCurve

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
        return _at(self.check_curve, self.order) / total if total else 0.0

    @property
    def data_independent_epsilon(self) -> float:
        """What ε would be without looking at the votes, for the same number of answers."""
        return self.independent_curve.best(self.delta, conversion=self.conversion).epsilon

    @property
    def worst_case_epsilon(self) -> float:
        """What ε can be at most, if every query is answered (public)."""
        return self.worst_curve.best(self.delta, conversion=self.conversion).epsilon

    def answer_costs(self, order: float | None = None) -> NDArray[np.float64]:
        """Bound the cost of answering each query at an order (default: the best): (Q,), private."""
        answer = answer_of(self.aggregator)
        return answer.answer_renyi(answer.log_q(self.histograms), [self.order if order is None else order])[:, 0]

    def charge(self) -> Charge:
        """Describe the run by its data-dependent curve; an accountant refuses it unless told in words."""
        return Charge(f"{self.aggregator!r}, from its votes", renyi=self.curve, data_dependent=True)

    def __str__(self) -> str:
        kind = "expected answers" if self.answered is None else "answers"
        return (
            f"{self.queries} queries, {self.expected_answered:.1f} {kind}: epsilon = {self.epsilon:.4f} at delta = "
            f"{self.delta:g} ({self.conversion} conversion, order {self.order:g}), {self.check_share:.0%} of it for "
            f"the threshold check; data-independent: {self.data_independent_epsilon:.4f}\nPRIVATE: {WARNING}"
        )


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
        ``"data-independent"``: λ/(2σ₁²) a check; ``"data-dependent"``: the smaller of that and Theorem 6.

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
    ...     found = analyze(votes, ConfidentGNMax(200, 150.0, 40.0), 1e-5)
    >>> round(found.expected_answered, 2), found.epsilon < found.data_independent_epsilon < found.worst_case_epsilon
    (1.43, True)
    """
    counts = counts_of(require_votes(votes))
    checks.open_probability(delta=delta)
    checks.one_of(CHECKS, check=check)
    grid = RenyiCurve.of(np.zeros_like, orders).orders
    zero = np.zeros_like(grid)
    per_check, check_total, probabilities = zero, zero, np.ones(counts.shape[0])
    statistic = _statistic(votes, aggregator, scores)
    if isinstance(aggregator, CheckedGNMax) and statistic is not None:
        per_check = aggregator.check.independent(grid)
        dependent = check == "data-dependent"
        check_total = _dependent_check(aggregator.check, statistic, grid) if dependent else statistic.size * per_check
        probabilities = np.exp(aggregator.check.log_probabilities(statistic)[0])
    pattern = None if answered is None else _pattern(answered, counts.shape[0], needed=statistic is None)
    if pattern is not None:
        probabilities = pattern.astype(np.float64)
    answer = answer_of(aggregator)
    if answer.reached != 1:
        checks.fail("reached", answer.reached, "1", "data-dependent costs are those of one moved vote")
    per_answer = answer.answer_independent(grid)
    found = Analysis(
        aggregator=aggregator,
        delta=delta,
        conversion=conversion,
        histograms=counts,
        statistic=statistic,
        answered=np.ones(counts.shape[0], dtype=bool) if statistic is None else pattern,
        probabilities=probabilities,
        check=check,
        curve=RenyiCurve(grid, check_total + answer_total(answer, counts, probabilities, grid)),
        check_curve=RenyiCurve(grid, check_total),
        independent_curve=RenyiCurve(grid, counts.shape[0] * per_check + probabilities.sum() * per_answer),
        worst_curve=RenyiCurve(grid, counts.shape[0] * (per_check + per_answer)),
    )
    warnings.warn(WARNING, PrivateFigureWarning, stacklevel=2)
    found.curve.convert(delta, conversion=conversion)  # warns where the best order is at the edge
    return found


def answer_of(aggregator: PateAggregator) -> LNMax | GNMax:
    """Return what answers a query, once it is to be answered."""
    return aggregator.answer if isinstance(aggregator, CheckedGNMax) else aggregator


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
    """Return a curve's value at an order."""
    return float(np.interp(order, curve.orders, curve.values))


def _statistic(votes: Votes, aggregator: PateAggregator, scores: ArrayLike | None) -> NDArray[np.int64] | None:
    """Compute what the check compares with the threshold: (Q,); None without a check."""
    if isinstance(aggregator, InteractiveGNMax):
        if scores is None:
            raise ValueError("InteractiveGNMax needs scores=: the student's probabilities, one row for each query")
        return aggregator.statistic(votes, scores)
    if scores is not None:
        raise ValueError("scores are for InteractiveGNMax only: leave them out")
    return aggregator.statistic(votes) if isinstance(aggregator, ConfidentGNMax) else None


def _pattern(answered: ArrayLike, queries: int, *, needed: bool) -> NDArray[np.bool_]:
    """Return the pattern of answers, checked; ``needed`` says that every query must be answered."""
    pattern = np.asarray(answered)
    if pattern.dtype != bool or pattern.shape != (queries,):
        found = f"{pattern.dtype} {pattern.shape}"
        checks.fail("answered", found, f"{queries} booleans, one for each query", "for labels pass labels >= 0")
    if needed and not pattern.all():
        raise ValueError("answered must be all True: this aggregator answers every query")
    return pattern


def _dependent_check(check: NoisyCheck, statistic: NDArray[np.int64], grid: NDArray[np.float64]) -> NDArray[np.float64]:
    """Sum the checks' data-dependent costs, each value of the statistic once: (L,)."""
    values, counts = np.unique(statistic, return_counts=True)
    return np.asarray(counts @ check.dependent(values, grid))
