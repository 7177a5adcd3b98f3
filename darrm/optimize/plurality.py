"""Find the best private plurality for any number of classes, with its proof and an optimality bound.

Some optimal mechanism is symmetric in the classes (`darrm.plurality.accuracy_bound`). Its law has one probability for
each group of classes of each partition, and solves the linear program of `lp_models.program`. Privacy comes from the
proof, and the bound is recomputed from the multipliers.

**One query.** For non-private voters the rows are Σ_{t in S} k_t (h_t − e^ε h'_t) ≤ δ. All pairs of neighboring
histograms are separated at once. For private voters the rows belong to multisets of corners
(`darrm.plurality.voter_corners`). The oracle first searches the rows that suffice for a law in which a vote never harms
its class, and then all rows. If these are too many, the bound uses voters who move among three classes, and the law
comes from the program for adaptive voters (`darrm.plurality.adaptive_voters`). A point that violates rows becomes
private by mixing with a random answer.

**Many queries under a Rényi budget.** For every pair Σ_t k_t h_t^α h'_t^{1−α} ≤ B = e^{(α−1)ρ}. This set is convex: the
intersection of its supporting half-planes. The left side E is convex and homogeneous, so ∇E(z)·(h, h') ≤ E(h, h') ≤ B
at every z. With r_t = h_t/h'_t at z, the coefficients are k_t α r_t^{α−1} of h_t and −k_t (α − 1) r_t^α of h'_t. The
solve starts from the half-planes at the exponential mechanism that the budget allows. For a violated point it adds the
half-plane at the boundary of the set, on the line to a random answer, (1/C, 1/C), with E = 1 < B.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cache
from importlib import import_module

import numpy as np
from numpy.typing import NDArray

from darrm.numerics import Array
from darrm.numerics.bisection import bisect_safe
from darrm.open_set import optimum
from darrm.optimize.request import LARGEST_FACTOR, scale_to_float_range
from darrm.plurality import voter_corners
from darrm.plurality.accuracy_bound import Multiplier, PairMultipliers, RowMultiplier, VoterRow, find_worst_rows
from darrm.plurality.adaptive_voters import VotersInTurn
from darrm.plurality.partitions import ABSENT, Pairs, Partitions, list_partitions
from darrm.plurality.plurality_law import PluralityLaw, random_law, true_plurality
from darrm.plurality.proof import list_neighbor_pairs, share_for_moves
from darrm.priors import Prior, check_prior, default_prior
from darrm.problem import Problem, Voters, is_open
from darrm.table.optimality import Solution
from darrm.table.table import Table, certify
from darrm.util import checks
from lp_models.options import Progress, SolveOptions
from lp_models.program import BlockProgram, SparseRows
from lp_models.row_generation import Result, Separation, minimize_with_rows, start_at

MOST_TERMS = 80_000  # of a program that takes about two minutes
MOST_LISTED_VOTERS = 24  # for open-set answers: with more voters the law depends on two counts
MOST_OPEN_TERMS = 150_000  # takes ten seconds: in most partitions few strings matter
SMALLEST_PROBABILITY = 2.0**-36  # of every answer under a Rényi budget, so that its divergence is finite
FINE = SolveOptions(gap=1e-5, time_limit=60.0)
# of ε + Δ: below it, the solver's tolerance costs more than the distance to the limit ε → 0
_MIN_SIZE = Fraction(1, 2**12)
_ROW_TOLERANCE = 1e-11  # a row is violated if it exceeds its limit by more than this
# relative to the largest probability: a tie-break between laws that are equal under the prior, so that histograms with
# negligible probability get good answers too; value and bound use the prior alone
_TIE_BREAK = 1e-8
_LARGEST_EXPONENT = 25.0  # the largest ε in rows for the solver: a law that is private for a smaller ε is private
_MAX_UNDIVIDED_ROWS = 10**6  # more rows than this are searched in parts
_MAX_ROWS_PER_SEARCH, _MAX_ROWS_PER_ROUND = 5, 100  # violated rows of private voters per search and per round
_SHARE_BISECTIONS = 60  # of a share in [0, 1]: full precision


def optimize_plurality(
    problem: Problem,
    *,
    prior: Prior | str | None = None,
    options: SolveOptions | None = None,
    report: Callable[[Progress], None] | None = None,
) -> Table:
    """Find and certify the private plurality with the largest accuracy.

    ``prior`` is public, by default `darrm.priors.default_prior`. ``options`` change no guarantee; ``report`` is called
    once per round of the solver. ``optimality`` holds the accuracy and an upper bound on that of every private
    mechanism. `ValueError` if the problem is larger than `check_size` allows, or the prior can only sample.

    For one voter with three classes the optimum is randomized response, e/(e + 2):

    >>> from darrm import PrivacyParams, Voters
    >>> table = optimize_plurality(Problem(Voters(1, PrivacyParams("inf")), PrivacyParams(1), 3))
    >>> round(table.accuracy, 6), round(table.optimality.bound, 6)
    (0.576117, 0.576117)
    """
    checks.instance(Problem, problem=problem, advice="say Problem(voters, target, classes)")
    settings = SolveOptions() if options is None else options
    checks.instance(SolveOptions, options=settings, advice="say SolveOptions(gap=…, time_limit=…)")
    belief = default_prior(problem.classes) if prior is None else check_prior(prior, problem.classes)
    if is_open(problem.classes) and problem.voters.K > MOST_LISTED_VOTERS:
        open_law, result = optimum.best_open_law(problem.conditional_on_inclusion, belief, settings, report)
        solution = Solution(belief, (), result.status.value)
        return certify(problem, open_law).with_solution(solution, make_provenance(result))
    check_size(problem.voters, problem.classes)
    partitions = list_partitions(problem.voters.K, problem.classes)
    program = _build_program(partitions, belief, 0.0)
    # with resampled examples, the problem conditional on inclusion; for a small ε, one in the range of floats
    scaled_problem, factor = scale_to_float_range(problem.conditional_on_inclusion, _MIN_SIZE)
    oracle = _MoveOracle(scaled_problem) if scaled_problem.voters.are_non_private else _VoterOracle(scaled_problem)
    start = start_at(random_law(partitions.K, partitions.classes).each)
    result = minimize_with_rows(program, oracle, settings, start=start, report=report)
    multipliers = oracle.multipliers(result.multipliers, float(min(factor, LARGEST_FACTOR)))
    if isinstance(oracle, _VoterOracle) and oracle.is_restricted:  # law and bound come from two programs
        result = minimize_with_rows(program, _AdaptiveOracle(scaled_problem), settings, start=start, report=report)
    law = PluralityLaw.from_probabilities(partitions.K, partitions.classes, result.point)
    tables = [certify(problem, law)]
    is_equally_private = problem.voters.each.is_private and problem.voters.per_voter is None
    if is_equally_private and (factor > 1 or (isinstance(oracle, _VoterOracle) and oracle.is_restricted)):
        voter_count = min(partitions.K, int(problem.exact_m))
        if 1 - (1 - problem.voters.each.exact_delta) ** voter_count <= problem.target.exact_delta:
            tables.append(certify(problem, true_plurality(partitions.K, problem.classes, voter_count)))
    accuracies = [candidate.plurality.accuracy(belief) for candidate in tables]
    table = tables[accuracies.index(max(accuracies))]
    return table.with_solution(Solution(belief, multipliers, result.status.value), make_provenance(result))


@dataclass(frozen=True, eq=False)
class PluralityOptimum:
    """The best law for one order and Rényi budget; a proposal, like every `PluralityLaw`.

    ``bound`` is on laws with probabilities of at least `SMALLEST_PROBABILITY`, up to the solver's rounding.
    """

    law: PluralityLaw
    value: float  # the accuracy of the law
    bound: float


def optimize_plurality_under_renyi(
    voters: Voters, classes: int, prior: Prior, order: float, budget: float, *, options: SolveOptions = FINE
) -> PluralityOptimum:
    """Find the plurality with the largest accuracy whose Rényi divergence of order α > 1 is within a budget ρ > 0.

    `ValueError` if the problem is larger than `check_size` allows, or the prior can only sample.
    """
    checks.instance(Voters, voters=voters, advice="say Voters(K, each, overlap)")
    if not voters.are_non_private:
        checks.fail("voters.each", str(voters.each), 'PrivacyParams("inf") under a Rényi budget')
    checks.positive(budget=budget)
    if not 1.0 < order < math.inf:
        checks.fail("order", order, "above 1 and finite")
    check_size(voters, classes)
    partitions = list_partitions(voters.K, classes)
    program = _build_program(partitions, prior, SMALLEST_PROBABILITY)
    oracle = _RenyiOracle(classes, partitions.pairs(voters.reached), order, budget)
    start = oracle.build_half_planes(oracle.compute_start(partitions), np.arange(oracle.pairs.pair.size))
    result = minimize_with_rows(program, oracle, options, start=start)
    law = PluralityLaw.from_probabilities(voters.K, classes, result.point)
    return PluralityOptimum(law, law.accuracy(prior), result.bound)


def make_provenance(result: Result) -> dict[str, str]:
    return {"made by": versions("darrm", "highspy"), **result.provenance}


@cache
def versions(*distributions: str) -> str:
    metadata = import_module("importlib.metadata")  # it loads the standard library's email
    return ", ".join(f"{name} {metadata.version(name)}" for name in distributions)


def check_size(voters: Voters, classes: int) -> None:
    """Raise `ValueError` unless the program takes at most about two minutes."""
    if not voters.are_non_private:
        list_partitions(voters.K, classes)  # raises if there are too many to list
        voter_corners.check_size(voters, classes)
        return
    partitions = list_partitions(voters.K, classes)
    terms, limit = partitions.pairs(voters.reached).pair.size, MOST_OPEN_TERMS if is_open(classes) else MOST_TERMS
    if terms > limit:
        size = "the size of the program, terms of pairs of neighbors"
        checks.fail(size, terms, f"at most {limit:,}", partitions.advice)


def _build_program(partitions: Partitions, prior: Prior, smallest: float) -> BlockProgram:
    """State the gains c_j = m_j P_p of the classes with the most votes, with a tie-break if P_p is negligible."""
    sizes = partitions.sizes.astype(np.float64)
    P, P_default = (partitions.probabilities(law) for law in (prior, default_prior(partitions.classes)))
    weights = np.maximum(P, _TIE_BREAK * np.max(P) / np.max(P_default) * P_default)
    gains = np.zeros(sizes.size)
    gains[partitions.starts] = weights * sizes[partitions.starts]
    return BlockProgram(gains, sizes, partitions.blocks, smallest)


class _MoveOracle:
    def __init__(self, problem: Problem) -> None:
        self.problem, self.pairs = problem, list_neighbor_pairs(problem)
        self.random = list_partitions(problem.voters.K, problem.classes).random
        self.ratio = math.exp(min(problem.target.epsilon, _LARGEST_EXPONENT))
        self.delta = problem.target.delta

    def separate(self, point: Array, **_: object) -> Separation:
        pairs = self.pairs
        before, after = pairs.sides(point)
        excess = pairs.classes * (before - self.ratio * after)
        sums = np.bincount(pairs.pair, np.maximum(0.0, excess))
        violated_terms = np.flatnonzero((excess > 0.0) & (sums > self.delta + _ROW_TOLERANCE)[pairs.pair])
        violated_pairs, row = np.unique(pairs.pair[violated_terms], return_inverse=True)
        count, is_present = pairs.classes[violated_terms].astype(np.float64), pairs.after[violated_terms] != ABSENT
        rows = SparseRows.from_entries(
            np.concatenate([row, row[is_present]]),
            np.concatenate([pairs.before[violated_terms], pairs.after[violated_terms][is_present]]),
            np.concatenate([count, -self.ratio * count[is_present]]),
            np.full(violated_pairs.size, self.delta),
            point.size,
        )
        labels = [tuple(terms.tolist()) for terms in np.split(violated_terms, np.flatnonzero(np.diff(row)) + 1)]
        share = share_for_moves(self.problem, pairs, point)
        feasible = (1.0 - share) * point + share * self.random
        return Separation(rows, rows.limits, feasible, True, labels if violated_pairs.size else [])

    def multipliers(self, rows: tuple[tuple[float, tuple[int, ...]], ...], _: float) -> tuple[Multiplier, ...]:
        """Add up the multipliers of the rows of each pair; the label of a row lists its terms."""
        pairs = self.pairs
        z = np.zeros(pairs.pair.size)
        for y, terms in rows:
            places = list(terms)
            z[places] += y * pairs.classes[places]
        used_pairs = np.unique(pairs.pair[z > 0.0]).tolist()
        weights = np.split(z, pairs.starts[1:])
        return tuple(
            PairMultipliers(pairs.first[pair], pairs.second[pair], tuple(weights[pair].tolist())) for pair in used_pairs
        )


class _VoterOracle:
    def __init__(self, problem: Problem) -> None:
        self.problem, self.known_rows = problem, set[VoterRow]()
        self.is_restricted = not voter_corners.is_searchable(problem.voters, problem.classes)
        self.is_divided = voter_corners.number_of_rows(problem.voters, problem.classes) > _MAX_UNDIVIDED_ROWS
        self.ratio, self.delta = math.exp(problem.target.epsilon), problem.target.delta

    def separate(self, point: Array, *, thorough: bool, **_: object) -> Separation:
        violated, share = list[tuple[float, VoterRow]](), 1.0
        if self.is_restricted or (self.is_divided and not thorough):
            violated, share = self._search_rows(point, all_kinds=False)
        thorough = self.is_restricted or not violated
        if not violated and not self.is_restricted:
            violated, share = self._search_rows(point, all_kinds=None)
        order = np.argsort([-cost for cost, _ in violated], kind="stable")[:_MAX_ROWS_PER_ROUND]
        labels = [violated[place][1] for place in order]
        self.known_rows |= set(labels)
        rows = [self._compute_coefficients(row) for row in labels]
        return _separate(self.problem, point, share, rows, labels, thorough)

    def _search_rows(self, point: Array, *, all_kinds: bool | None) -> tuple[list[tuple[float, VoterRow]], float]:
        violated, share, sets = list[tuple[float, VoterRow]](), 0.0, voter_corners.sets_of_answers(self.problem)
        for block in voter_corners.row_blocks(self.problem, point, sets, every=all_kinds, few=self.is_restricted):
            costs = block.costs(self.problem)
            violated += find_worst_rows(block, costs, self.delta + _ROW_TOLERANCE, _MAX_ROWS_PER_SEARCH)
            share = max(share, voter_corners.share_for(self.problem, block.answers, float(np.max(costs))))
        return [(cost, row) for cost, row in violated if row not in self.known_rows], min(1.0, share)

    def _compute_coefficients(self, row: VoterRow) -> Array:
        before, after = row.coefficients(self.problem)
        return np.asarray(before - self.ratio * after)

    def multipliers(self, rows: tuple[tuple[float, VoterRow], ...], factor: float) -> tuple[Multiplier, ...]:
        return tuple(RowMultiplier(factor * y, row) for y, row in rows)


class _AdaptiveOracle:
    """The rows of adaptive voters; they include those of private voters."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.voters = [VotersInTurn(problem, number) for number in voter_corners.sets_of_answers(problem)]

    def separate(self, point: Array, **_: object) -> Separation:
        delta, share, matrix = self.problem.target.delta, 0.0, []
        for voters in self.voters:
            worst, row = voters.worst(point)
            share = max(share, voter_corners.share_for(self.problem, voters.answers, worst))
            if float(row @ point) > delta + _ROW_TOLERANCE:
                matrix.append(row)
        return _separate(self.problem, point, share, matrix, [f"{len(matrix)} in turn" for _ in matrix], thorough=True)


def _separate(
    problem: Problem, point: Array, share: float, matrix: list[Array], labels: Sequence[object], thorough: bool
) -> Separation:
    entries = np.array(matrix).reshape(-1, point.size)
    places, columns = np.nonzero(entries)
    rows = SparseRows(places, columns, entries[places, columns], np.full(len(labels), problem.target.delta))
    return Separation(rows, rows.limits, (1.0 - share) * point + share / problem.classes, thorough, labels)


class _RenyiOracle:
    def __init__(self, classes: int, pairs: Pairs, order: float, budget: float) -> None:
        self.pairs, self.order, self.limit, self.uniform = pairs, order, (order - 1.0) * budget, 1.0 / classes
        self.counts = np.log(pairs.classes)
        self.sizes = np.diff([*pairs.starts, pairs.pair.size])

    def separate(self, point: Array, **_: object) -> Separation:
        """Return for every violated pair the half-plane at the boundary, on the line to a random answer."""
        pairs, shares = self.pairs, self._compute_shares(point)
        feasible = point + float(np.max(shares)) * (self.uniform - point)
        violated_terms = np.flatnonzero((shares > _ROW_TOLERANCE)[pairs.pair])
        return replace(self.build_half_planes(point, violated_terms, shares), feasible=feasible)

    def build_half_planes(self, point: Array, terms: NDArray[np.int64], shares: Array | None = None) -> Separation:
        pairs, alpha = self.pairs, self.order
        share = 0.0 if shares is None else shares[pairs.pair[terms]]
        before, after = (
            x + share * (self.uniform - x) for x in (point[pairs.before[terms]], point[pairs.after[terms]])
        )
        log_ratio = np.log(before) - np.log(after)
        # a row may be scaled: by e^{-largest}, so that no order overflows
        pair_ids, row = np.unique(pairs.pair[terms], return_inverse=True)
        largest = np.full(pair_ids.size, -np.inf)
        np.maximum.at(largest, row, self.counts[terms] + np.maximum(alpha * log_ratio, (alpha - 1.0) * log_ratio))
        before_terms = alpha * np.exp(self.counts[terms] + (alpha - 1.0) * log_ratio - largest[row])
        after_terms = (alpha - 1.0) * np.exp(self.counts[terms] + alpha * log_ratio - largest[row])
        rows = SparseRows.from_entries(
            np.concatenate([row, row]),
            np.concatenate([pairs.before[terms], pairs.after[terms]]),
            np.concatenate([before_terms, -after_terms]),
            np.exp(np.minimum(self.limit - largest, 40.0)),  # no left side reaches e^40, with few orders and classes
            point.size,
        )
        return Separation(rows, rows.limits, point, True, pair_ids.tolist())

    def compute_start(self, partitions: Partitions) -> Array:
        """Return the law of the exponential mechanism that the budget allows."""
        pairs = self.pairs

        def compute_law(rate: float) -> Array:
            lags = partitions.votes[partitions.starts][partitions.blocks] - partitions.votes
            weights = np.exp(-rate * lags)
            sums = np.add.reduceat(partitions.sizes * weights, partitions.starts)
            return np.asarray(np.maximum(weights / sums[partitions.blocks], 2.0 * SMALLEST_PROBABILITY))

        def is_allowed(rate: float) -> bool:
            p = compute_law(rate)
            return bool(np.max(self._compute_exponents(p[pairs.before], p[pairs.after])) <= self.limit)

        p = compute_law(bisect_safe(is_allowed, 0.0, 40.0, steps=40))
        return np.asarray(p / np.add.reduceat(partitions.sizes * p, partitions.starts)[partitions.blocks])

    def _compute_shares(self, point: Array) -> Array:
        pairs = self.pairs
        zeros = np.zeros(len(pairs.first))
        is_violated = self._compute_exponents(point[pairs.before], point[pairs.after]) > self.limit
        low, high = zeros.copy(), np.where(is_violated, 1.0, 0.0)
        for _ in range(_SHARE_BISECTIONS):
            middle = 0.5 * (low + high)
            share = middle[pairs.pair]
            before, after = (x + share * (self.uniform - x) for x in (point[pairs.before], point[pairs.after]))
            is_above = self._compute_exponents(before, after) > self.limit
            low, high = np.where(is_above & is_violated, middle, low), np.where(is_above, high, middle)
        return np.where(is_violated, high, 0.0)

    def _compute_exponents(self, before: Array, after: Array) -> Array:
        powers = self.counts + self.order * np.log(before) - (self.order - 1.0) * np.log(after)
        largest = np.maximum.reduceat(powers, self.pairs.starts)
        scaled = np.exp(powers - np.repeat(largest, self.sizes))
        return np.asarray(largest + np.log(np.add.reduceat(scaled, self.pairs.starts)))
