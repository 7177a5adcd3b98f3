"""The best private plurality of any number of classes, with its proof and with a bound on every other mechanism.

No mechanism is better than the best that treats classes alike (`darrm.proof.share_bound`). Its law is a number for each
group of classes of each partition, and solves the linear program of `lp_models.plurality_lp`. Nothing that the solver
says is believed: privacy comes from the proof, and the bound is recomputed from the multipliers, which a table keeps.

**One query.** Of plain voters, about whom nothing is promised, the rows are Σ_{t in S} k_t (h_t − e^ε h'_t) ≤ δ, found
for every pair of neighboring histograms at once. Of private voters they are about multisets of corners
(`darrm.proof.voter_corners`): first those that suffice for a law in which votes never harm their class, then, if none
of them is broken and the law is none such, all. Where these are too many to look at, the bound comes from those who
move among three classes, and the law from the program for voters in turn (`darrm.proof.adaptive_voters`). A point that
breaks rows is made private by mixing with a random answer, as the proof does it.

**Many queries under a Rényi budget.** For every pair Σ_t k_t h_t^α h'_t^{1−α} ≤ B = e^{(α−1)ρ}, a convex set, which is
the intersection of its supporting half-planes. The left side E is convex and homogeneous, so ∇E(z)·(h, h') ≤ E(h, h')
≤ B at every z; with r_t = h_t/h'_t at z the coefficients are k_t α r_t^{α−1} of h_t and −k_t (α − 1) r_t^α of h'_t.
Those at the law of the exponential mechanism that the budget allows are a good beginning; then those of broken points,
where their line to a random answer, (1/C, 1/C) at which E = 1 < B, meets the boundary.

Measured on one busy core, one query of plain voters: 2 s at C = 3, K = 101, 6 s at C = 4, K = 50, 13 s at C = 5,
K = 30, and 6 s at C = 10, K = 20.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from importlib import metadata

import numpy as np
from numpy.typing import NDArray

from darrm.errors import checks
from darrm.laws.partitions import NOBODYS, Pairs, Partitions, partitions_of
from darrm.laws.plurality_law import PluralityLaw, random_law, true_plurality
from darrm.laws.priors import Prior, default_of
from darrm.optimize import open_answers
from darrm.optimize.question import Question
from darrm.probability import Array
from darrm.probability.bisection import last_allowed
from darrm.problem import Problem, Voters, is_open
from darrm.proof import voter_corners
from darrm.proof.adaptive_voters import VotersInTurn
from darrm.proof.moves import pairs_of, share_needed
from darrm.proof.optimality import Solution
from darrm.proof.share_bound import Multiplier, PairMultipliers, RowMultiplier
from darrm.proof.table import Table, certify
from darrm.proof.voter_rows import VoterRow, rows_of
from lp_models.options import Progress, SolveOptions
from lp_models.plurality_lp import BlockProgram, BlockSeparation, SparseRows, maximize_with_rows

MOST_TERMS = 80_000  # of a program that is solved in about two minutes
MOST_LISTED_VOTERS = 24  # of open answers: more have a law in two counts
MOST_OPEN_TERMS = 150_000  # in ten seconds: of most partitions few strings matter
SMALLEST_PROBABILITY = 2.0**-36  # of every answer under a Rényi budget: its divergence must stay finite
FINE = SolveOptions(gap=1e-5, time_limit=60.0)
_BROKEN = 1e-11  # a row is broken when it exceeds its limit by more than this
# histograms that a prior hardly believes in are still answered well: a part of the largest probability that decides
# between laws which the prior cannot tell apart; value and bound are about the prior alone
_TIE_BREAK = 1e-8
_LARGEST_EXPONENT = 25.0  # ε of rows that a solver takes: what is private for less is private
_MANY = 10**6  # rows that are looked at a part at a time
_OF_ONE_LOOK, _MOST_AT_ONCE = 5, 100  # broken rows of private voters that are taken
_BISECTIONS = 60  # of a share in [0, 1]: to the last digit

Report = Callable[[Progress], None]


def optimize_plurality(
    problem: Problem,
    *,
    prior: Prior | None = None,
    options: SolveOptions | None = None,
    report: Report | None = None,
) -> Table:
    """Find and prove the private plurality with the largest expected share of right labels.

    Parameters
    ----------
    problem
        Voters, target and classes.
    prior
        What is publicly believed about the votes; by default `darrm.laws.priors.default_of` the classes.
    options
        When to stop; nothing in it changes a guarantee.
    report
        Called once a round of the solver.

    Returns
    -------
    Table
        Proven private; ``optimality`` holds its share of right labels and a bound on that of every private mechanism.

    Raises
    ------
    ValueError
        If an argument is of another type, the problem is larger than `check_size` allows, or the prior only samples.

    Examples
    --------
    One voter with three classes is best answered by randomized response, e/(e + 2):

    >>> from darrm import PrivacyParams, Voters
    >>> table = optimize_plurality(Problem(Voters(1, PrivacyParams("inf")), PrivacyParams(1), 3))
    >>> round(table.share_right, 6), round(table.optimality.bound, 6)
    (0.576117, 0.576117)
    """
    checks.instance(Problem, problem=problem, advice="say Problem(voters, target, classes)")
    settings = SolveOptions() if options is None else options
    checks.instance(SolveOptions, options=settings, advice="say SolveOptions(gap=…, time_limit=…)")
    belief = default_of(problem.classes) if prior is None else prior
    if is_open(problem.classes) and problem.voters.K > MOST_LISTED_VOTERS:
        open_law, result = open_answers.best_open_law(problem.for_certain, belief, settings, report)
        made_by = {"made by": versions("darrm", "highspy"), **result.provenance}
        return certify(problem, open_law).with_solution(Solution(belief, (), result.status.value), made_by)
    check_size(problem.voters, problem.classes)
    partitions = partitions_of(problem.voters.K, problem.classes)
    program = _program(partitions, belief, 0.0)
    solved = problem.for_certain  # where voters draw their examples anew; else the problem itself
    oracle = _MoveOracle(solved) if solved.voters.are_plain else _VoterOracle(solved)
    start = random_law(partitions.K, partitions.classes).each
    result = maximize_with_rows(program, oracle, settings, start=start, report=report)
    multipliers = oracle.multipliers(result.multipliers)
    if isinstance(oracle, _VoterOracle) and oracle.few:  # what is proved is another program's optimum
        result = maximize_with_rows(program, _TurnOracle(solved), settings, start=start, report=report)
    law = PluralityLaw.of_probabilities(partitions.K, partitions.classes, result.point)
    if isinstance(oracle, _VoterOracle) and oracle.few:
        law = max(law, *_drawn_laws(problem), key=lambda other: other.share_right(belief))
    table = certify(problem, law)
    made_by = {"made by": versions("darrm", "highspy"), **result.provenance}
    return table.with_solution(Solution(belief, multipliers, result.status.value), made_by)


class Pluralities:
    """The programs over histograms, of any number of classes, as one of `darrm.optimize.optimizer.PROGRAMS`."""

    def answers(self, question: Question) -> bool:
        """Whether the law of a label is more than a number for each number of ones."""
        return not question.problem.has_noise_function

    def table(self, question: Question) -> Table:
        """Find the best law and prove it."""
        settings, report = question.options, question.report
        return optimize_plurality(question.problem, prior=question.prior, options=settings, report=report)


@dataclass(frozen=True, eq=False)
class PluralityOptimum:
    """The best law found for one order and Rényi budget; a proposal, like every `PluralityLaw`.

    No law with answers of at least `SMALLEST_PROBABILITY` and this divergence has a share of right labels above
    ``bound``, up to the rounding of the solver's multipliers.
    """

    law: PluralityLaw
    value: float  # its share of right labels
    bound: float


def optimize_plurality_under_renyi(
    voters: Voters,
    classes: int,
    prior: Prior,
    order: float,
    budget: float,
    *,
    options: SolveOptions = FINE,
) -> PluralityOptimum:
    """Find the plurality with the largest share of right labels whose Rényi divergence of one order keeps a budget.

    ``order`` is α > 1 and ``budget`` ρ > 0. `ValueError` if an argument lies outside its range, the problem is larger
    than `check_size` allows, or the prior only samples.

    >>> from darrm import PrivacyParams
    >>> from darrm.laws.priors import Dirichlet
    >>> one = Voters(1, PrivacyParams("inf"))
    >>> round(optimize_plurality_under_renyi(one, 3, Dirichlet(), 2.0, 0.5).value, 4)
    0.5481
    """
    checks.instance(Voters, voters=voters, advice="say Voters(K, each, overlap)")
    if not voters.are_plain:
        checks.fail("voters.each", str(voters.each), 'PrivacyParams("inf") under a Rényi budget')
    checks.positive(budget=budget)
    if not 1.0 < order < math.inf:
        checks.fail("order", order, "above 1 and finite")
    check_size(voters, classes)
    partitions = partitions_of(voters.K, classes)
    program = _program(partitions, prior, SMALLEST_PROBABILITY)
    oracle = _RenyiOracle(classes, partitions.pairs(voters.reached), order, budget)
    start = oracle.start(partitions)
    known = oracle.half_planes(start, np.arange(oracle.pairs.pair.size))
    result = maximize_with_rows(program, oracle, options, start=start, known=known)
    law = PluralityLaw.of_probabilities(voters.K, classes, result.point)
    return PluralityOptimum(law, law.share_right(prior), result.bound)


@cache
def versions(*distributions: str) -> str:
    """Name the versions of what made a table."""
    return ", ".join(f"{name} {metadata.version(name)}" for name in distributions)


def check_size(voters: Voters, classes: int) -> None:
    """Check before the work that the program is solved in about two minutes; `ValueError` says which ones are."""
    if not voters.are_plain:
        partitions_of(voters.K, classes)  # refuses more than can be listed
        voter_corners.check_size(voters, classes)
        return
    partitions = partitions_of(voters.K, classes)
    terms, most = partitions.pairs(voters.reached).pair.size, MOST_OPEN_TERMS if is_open(classes) else MOST_TERMS
    if terms > most:
        checks.fail(
            "the size of the program, terms of pairs of neighbors", terms, f"at most {most:,}", partitions.advice
        )


def _program(partitions: Partitions, prior: Prior, least: float) -> BlockProgram:
    """State the gains c_j = m_j P_p of the classes with the most votes; where P_p says nothing, a little more."""
    sizes = partitions.sizes.astype(np.float64)
    believed, even = (partitions.probabilities(law) for law in (prior, default_of(partitions.classes)))
    weights = np.maximum(believed, _TIE_BREAK * np.max(believed) / np.max(even) * even)
    gains = np.zeros(sizes.size)
    gains[partitions.starts] = weights * sizes[partitions.starts]
    return BlockProgram(gains, sizes, partitions.blocks, least)


def _drawn_laws(problem: Problem) -> list[PluralityLaw]:
    voters = problem.voters
    if not voters.each.is_private or voters.own is not None:
        return []
    number = min(voters.K, int(problem.exact_m))
    fails = 1 - (1 - voters.each.exact_delta) ** number
    return [true_plurality(voters.K, problem.classes, number)] if fails <= problem.target.exact_delta else []


class _MoveOracle:
    def __init__(self, problem: Problem) -> None:
        self.problem, self.pairs = problem, pairs_of(problem)
        self.random = partitions_of(problem.voters.K, problem.classes).random
        self.ratio = math.exp(min(problem.target.epsilon, _LARGEST_EXPONENT))
        self.delta = problem.target.delta

    def separate(self, point: Array) -> BlockSeparation:
        """Take of every broken pair the terms that are positive."""
        pairs = self.pairs
        before, after = pairs.sides(point)
        excess = pairs.classes * (before - self.ratio * after)
        sums = np.bincount(pairs.pair, np.maximum(0.0, excess))
        chosen = np.flatnonzero((excess > 0.0) & (sums > self.delta + _BROKEN)[pairs.pair])
        broken, row = np.unique(pairs.pair[chosen], return_inverse=True)
        count, said = pairs.classes[chosen].astype(np.float64), pairs.after[chosen] != NOBODYS
        rows = SparseRows.summed(
            np.concatenate([row, row[said]]),
            np.concatenate([pairs.before[chosen], pairs.after[chosen][said]]),
            np.concatenate([count, -self.ratio * count[said]]),
            np.full(broken.size, self.delta),
            point.size,
        )
        labels = [tuple(terms.tolist()) for terms in np.split(chosen, np.flatnonzero(np.diff(row)) + 1)]
        share = share_needed(self.problem, pairs, point)
        feasible = (1.0 - share) * point + share * self.random
        return BlockSeparation(rows, labels if broken.size else [], feasible)

    def multipliers(self, found: tuple[tuple[float, tuple[int, ...]], ...]) -> tuple[Multiplier, ...]:
        """Add up the multipliers of the rows of each pair, a row being known by its terms."""
        pairs = self.pairs
        z = np.zeros(pairs.pair.size)
        for y, terms in found:
            places = list(terms)
            z[places] += y * pairs.classes[places]
        used = np.unique(pairs.pair[z > 0.0]).tolist()
        weights = np.split(z, pairs.starts[1:])
        return tuple(
            PairMultipliers(pairs.first[pair], pairs.second[pair], tuple(weights[pair].tolist())) for pair in used
        )


class _VoterOracle:
    def __init__(self, problem: Problem) -> None:
        self.problem, self.known = problem, set[VoterRow]()
        self.few = not voter_corners.can_be_looked_at(problem.voters, problem.classes)
        self.many = voter_corners.number_of_rows(problem.voters, problem.classes) > _MANY
        self.ratio, self.delta = math.exp(problem.target.epsilon), problem.target.delta

    def separate(self, point: Array) -> BlockSeparation:
        """Take the worst rows of every number of movers; where there are many, of all only if no others are broken."""
        broken, share = self._look(point, every=False) if self.many or self.few else ([], 1.0)
        thorough = self.few or not broken
        if not broken and not self.few:
            broken, share = self._look(point, every=None)
        labels = [row for _, row in sorted(broken, key=lambda pair: -pair[0])[:_MOST_AT_ONCE]]
        self.known |= set(labels)
        matrix = np.array([self._coefficients(row) for row in labels]).reshape(-1, point.size)
        places, columns = np.nonzero(matrix)
        rows = SparseRows(places, columns, matrix[places, columns], np.full(len(labels), self.delta))
        return BlockSeparation(rows, labels, (1.0 - share) * point + share / self.problem.classes, thorough)

    def _look(self, point: Array, *, every: bool | None) -> tuple[list[tuple[float, VoterRow]], float]:
        broken, share, sets = list[tuple[float, VoterRow]](), 0.0, voter_corners.sets_of_answers(self.problem)
        for look in voter_corners.looks(self.problem, point, sets, every=every, few=self.few):
            costs = look.costs(self.problem)
            broken += rows_of(look, costs, self.delta + _BROKEN, _OF_ONE_LOOK)
            share = max(share, voter_corners.share_for(self.problem, look.answers, float(np.max(costs))))
        return [(cost, row) for cost, row in broken if row not in self.known], min(1.0, share)

    def _coefficients(self, row: VoterRow) -> Array:
        before, after = row.coefficients(self.problem)
        return np.asarray(before - self.ratio * after)

    def multipliers(self, found: tuple[tuple[float, VoterRow], ...]) -> tuple[Multiplier, ...]:
        """Pair the multipliers with their rows."""
        return tuple(RowMultiplier(y, row) for y, row in found)


class _TurnOracle:
    """The rows of voters in turn: more than those of private voters, so what fulfills them is private."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.voters = [VotersInTurn(problem, number) for number in voter_corners.sets_of_answers(problem)]

    def separate(self, point: Array) -> BlockSeparation:
        """Take the worst row of every number of answers."""
        delta, share, matrix = self.problem.target.delta, 0.0, []
        for voters in self.voters:
            worst, row = voters.worst(point)
            share = max(share, voter_corners.share_for(self.problem, voters.answers, worst))
            if float(row @ point) > delta + _BROKEN:
                matrix.append(row)
        labels = [f"{len(matrix)} in turn" for _ in matrix]
        entries = np.array(matrix).reshape(-1, point.size)
        places, columns = np.nonzero(entries)
        rows = SparseRows(places, columns, entries[places, columns], np.full(len(labels), delta))
        return BlockSeparation(rows, labels, (1.0 - share) * point + share / self.problem.classes)


class _RenyiOracle:
    def __init__(self, classes: int, pairs: Pairs, order: float, budget: float) -> None:
        self.pairs, self.order, self.limit, self.uniform = pairs, order, (order - 1.0) * budget, 1.0 / classes
        self.counts = np.log(pairs.classes)
        self.sizes = np.diff([*pairs.starts, pairs.pair.size])

    def separate(self, point: Array) -> BlockSeparation:
        """Take of every broken pair the half-plane where the line to a random answer meets the boundary."""
        pairs, shares = self.pairs, self._shares(point)
        feasible = point + float(np.max(shares)) * (self.uniform - point)
        chosen = np.flatnonzero((shares > _BROKEN)[pairs.pair])
        return replace(self.half_planes(point, chosen, shares), feasible=feasible)

    def half_planes(self, point: Array, chosen: NDArray[np.int64], shares: Array | None = None) -> BlockSeparation:
        """Return the half-planes at a point, mixed with shares of a random answer, of the pairs of the chosen terms."""
        pairs, alpha = self.pairs, self.order
        share = 0.0 if shares is None else shares[pairs.pair[chosen]]
        before, after = (
            x + share * (self.uniform - x) for x in (point[pairs.before[chosen]], point[pairs.after[chosen]])
        )
        log_ratio = np.log(before) - np.log(after)
        # a row may be multiplied by anything: by e^{-largest}, so that no order overflows
        kept, row = np.unique(pairs.pair[chosen], return_inverse=True)
        largest = np.full(kept.size, -np.inf)
        np.maximum.at(largest, row, self.counts[chosen] + np.maximum(alpha * log_ratio, (alpha - 1.0) * log_ratio))
        first = alpha * np.exp(self.counts[chosen] + (alpha - 1.0) * log_ratio - largest[row])
        second = (alpha - 1.0) * np.exp(self.counts[chosen] + alpha * log_ratio - largest[row])
        rows = SparseRows.summed(
            np.concatenate([row, row]),
            np.concatenate([pairs.before[chosen], pairs.after[chosen]]),
            np.concatenate([first, -second]),
            np.exp(np.minimum(self.limit - largest, 40.0)),  # no left side reaches e^40: orders and classes are few
            point.size,
        )
        return BlockSeparation(rows, kept.tolist(), point)

    def start(self, partitions: Partitions) -> Array:
        """Return the exponential mechanism's law that the budget allows: near the optimum, and its half-planes too."""
        pairs = self.pairs

        def law(rate: float) -> Array:
            behind = partitions.votes[partitions.starts][partitions.blocks] - partitions.votes
            weights = np.exp(-rate * behind)
            sums = np.add.reduceat(partitions.sizes * weights, partitions.starts)
            return np.asarray(np.maximum(weights / sums[partitions.blocks], 2.0 * SMALLEST_PROBABILITY))

        def allowed(rate: float) -> bool:
            each = law(rate)
            return bool(np.max(self._exponents(each[pairs.before], each[pairs.after])) <= self.limit)

        each = law(last_allowed(allowed, 0.0, 40.0, steps=40))
        return np.asarray(each / np.add.reduceat(partitions.sizes * each, partitions.starts)[partitions.blocks])

    def _shares(self, point: Array) -> Array:
        pairs = self.pairs
        needed = np.zeros(len(pairs.first))
        broken = self._exponents(point[pairs.before], point[pairs.after]) > self.limit
        low, high = needed.copy(), np.where(broken, 1.0, 0.0)
        for _ in range(_BISECTIONS):
            middle = 0.5 * (low + high)
            share = middle[pairs.pair]
            before, after = (x + share * (self.uniform - x) for x in (point[pairs.before], point[pairs.after]))
            above = self._exponents(before, after) > self.limit
            low, high = np.where(above & broken, middle, low), np.where(above, high, middle)
        return np.where(broken, high, 0.0)

    def _exponents(self, before: Array, after: Array) -> Array:
        powers = self.counts + self.order * np.log(before) - (self.order - 1.0) * np.log(after)
        largest = np.maximum.reduceat(powers, self.pairs.starts)
        scaled = np.exp(powers - np.repeat(largest, self.sizes))
        return np.asarray(largest + np.log(np.add.reduceat(scaled, self.pairs.starts)))
