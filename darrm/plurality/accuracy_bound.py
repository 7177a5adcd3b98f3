"""Upper bounds on the accuracy of private mechanisms.

**Theorem 1 (multipliers).** Let P_p be the prior's probability of the partition p, c_j = m_j P_p for its group of
classes with the most votes and 0 for its other groups: the accuracy of a law h is Σ_j c_j h_j. For multipliers z_t ≥ 0
of the terms of pairs of neighbors let y_r be the largest z_t/k_t of a pair's terms (k_t classes each) and ρ_j = c_j −
Σ_t z_t [j = n's group of t] + e^ε Σ_t z_t [j = the group of n' of t]. No (ε, δ)-private mechanism has an accuracy above

    (1)   δ Σ_r y_r + Σ_p max_{j in p} ρ_j/m_j.

*Proof.* First a law h that treats classes alike. For each pair Σ_t z_t (h_i − e^ε h_j) ≤ y_r Σ_t k_t (h_i − e^ε h_j)_+
≤ y_r δ. So Σ_j c_j h_j ≤ Σ_j ρ_j h_j + δ Σ_r y_r, and in every partition h_j ≥ 0 and Σ_j m_j h_j = 1. Any other
mechanism becomes such a law: permute voters and classes at random, and permute the answer back. Neighbors
stay neighbors, divergences are jointly convex, and the prior is symmetric: the accuracy stays. ∎

*Open-set answers.* Rename the strings by a random permutation of N strings: the mechanism treats them alike and answers
each string without votes with a probability of at most 1/(N − K). For N → ∞ some of these laws converge to one with
h_c(n') = 0 for strings that only n holds. Strings without votes and no answer together make one term, as a sum of
positive parts is at least the positive part of the sum. So (1) bounds the least accuracy over all names. ∎

*Private voters.* Rows of voters at corners (`VoterRow`), E_p[h_S] − e^ε E_{p'}[h_S] ≤ δ with coefficients a_{r,j}, take
the place of pairs: δ Σ_r z_r + Σ_p max_{j in p} ρ_j/m_j with ρ_j = c_j − Σ_r z_r a_{r,j}. If voters differ, this bounds
mechanisms that see the number of votes of each class only.

Every choice of multipliers gives a bound. A table stores the solver's multipliers; loading it computes (1) in balls.

**Many strings.** A string with n votes is answered with probability at most π(n): π(0) = 0 and π(n + 1) = min(c·π(n) +
δ, 1 − (1 − π(n) − δ)/c), c = e^ε [DVGM20]. *Proof.* Take one vote from the string: Pr[s] ≤ c·Pr'[s] + δ and 1 − Pr'[s]
≤ c·(1 − Pr[s]) + δ. ∎ So the accuracy is at most the sum of π(n) times the expected number of leading strings with n
votes. With overlap t each step takes t votes.

**Theorem 2 (one query, non-private voters).** Let H(u) = max(0, (u − δ)/c, 1 − δ − c·(1 − u)). If k classes of n have
the most votes and class b has d_b votes less, with m(b) = ⌈d_b/t⌉, a private release that treats classes alike is right
at n with a probability u for which u + Σ_b H^{m(b)}(u/k) ≤ 1. Two classes attain it (`darrm.majority.closed_form`).
With κ = δ/(c − 1) and x = 1 − u + κ, taking the third part of H first i times and then the second gives

    (2)   H^m(u) ≥ (1 + 2κ)·c^{i−m} − x·c^{2i−m} − κ        for every i = 0 … m.

The best i is next to log_c((1 + 2κ)/(2x)); another i is a bound, too.

**Theorem 3 (many queries).** All answers to Q queries together are (ε, δ)-private, the prior treats classes alike. Let
δ_m = δ·(c^m − 1)/(c − 1) and μ_m = E[1/J], J the number of classes with at most m·t votes less than the winner, and 1
where two classes have the most. For every m the accuracy s satisfies

    kl(s − δ_m ‖ μ_m) ≤ m·ε/Q        where s − δ_m ≥ μ_m, kl being the divergence of two bits.

Proofs of theorems 2 and 3: docs/theory/plurality.md. (`tests/plurality/test_accuracy_bound.py`)
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import astuple, dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from flint import arb, ctx, fmpq
from numpy.typing import ArrayLike, NDArray

from darrm.majority.corners import PRECISION_BITS, corners_of, enclose_exp, upper_float
from darrm.numerics import Array
from darrm.numerics.bisection import bisect_safe
from darrm.plurality.partitions import ABSENT, Histogram, histograms_of, list_partitions
from darrm.plurality.proof import list_neighbor_pairs
from darrm.plurality.voter_corners import RowBlock
from darrm.priors import Prior, compute_strings
from darrm.privacy import PrivacyParams
from darrm.problem import Problem, Workload, is_open
from darrm.util import checks
from darrm.util.files import Json

_COEFFICIENT_ERROR = 2.0**-49  # relative: a dozen roundings for each voter, all of positive numbers
_BISECTION_STEPS = 36
_TERM_ROUNDING = 1e-12  # of one term of the sum of theorem 2, relative to 1 + κ: thousands of roundings
_MAX_ROWS = 10_000  # of multipliers: far more than the optimum of any program has


@dataclass(frozen=True)
class VotersAtCorner:
    """Voters of one group at a corner: its classes a and b, and the answers u and v of a failing voter."""

    count: int
    group: int
    first: int
    second: int
    failure: int
    failure_after: int


@dataclass(frozen=True)
class VoterRow:
    """E_p[h_S] − e^ε E_{p'}[h_S] ≤ δ for the first ``answers`` classes and voters at corners."""

    answers: int
    parts: tuple[VotersAtCorner, ...]

    def coefficients(self, problem: Problem) -> tuple[Array, Array]:
        return _compute_coefficients(self, problem)

    def to_list(self) -> list[Json]:
        return [self.answers, [[*astuple(part)] for part in self.parts]]

    @classmethod
    def from_list(cls, data: Json, problem: Problem) -> VoterRow:
        """Read what `to_list` wrote; `TypeError` or `ValueError` if it is no row of the problem."""
        answers, parts = data
        row = cls(answers, tuple(VotersAtCorner(*part) for part in parts))
        classes, voters = problem.classes, problem.voters
        checks.integer_at_least(1, most=classes - 1, answers=answers)
        for part in row.parts:
            checks.integer_at_least(1, most=voters.K, count=part.count)
            checks.integer_at_least(0, most=len(voters.groups) - 1, group=part.group)
            for label in (part.first, part.second, part.failure, part.failure_after):
                checks.integer_at_least(0, most=classes - 1, label=label)
        sizes = [sum(part.count for part in row.parts if part.group == group) for group in range(len(voters.groups))]
        if sizes != [count for count, _ in voters.groups]:
            checks.fail("voters of a row", sizes, "as many of each group as there are")
        num_changing = 0  # voters that have other laws on the neighboring data
        for part in row.parts:
            can_fail = voters.groups[part.group][1].exact_delta > 0
            if part.first != part.second or (can_fail and part.failure != part.failure_after):
                num_changing += part.count
        if num_changing > voters.reached:
            checks.fail("voters of a row who change", len(row.parts), f"at most {voters.reached}")
        return row


class PairMultipliers(NamedTuple):
    """z of the theorem for the terms of one pair of neighbors, in the order of `Partitions.terms`."""

    place: int  # the number of the partition n
    aligned: Histogram  # n'
    weights: tuple[float, ...]

    def subtract(self, reduced: list[arb], problem: Problem) -> arb:
        """Subtract the terms, times z, from c; return the largest z/k."""
        partitions = list_partitions(problem.voters.K, problem.classes)
        ratio, largest = enclose_exp(problem.target.exact_epsilon).ball, arb(0)
        terms = partitions.terms(self.place, self.aligned)
        for (group_before, group_after, count), weight in zip(terms, self.weights, strict=True):
            z = arb(weight)
            reduced[group_before] -= z
            if group_after != ABSENT:
                reduced[group_after] += ratio * z
            largest = largest.max(z / count)
        return largest

    def to_list(self) -> list[Json]:
        return [self.place, list(self.aligned), list(self.weights)]


class RowMultiplier(NamedTuple):
    weight: float
    row: VoterRow

    def subtract(self, reduced: list[arb], problem: Problem) -> arb:
        """Subtract the row, times z, from c; return z."""
        ratio, error, z = enclose_exp(problem.target.exact_epsilon).ball, relative_error(problem), arb(self.weight)
        p_side, q_side = self.row.coefficients(problem)
        for group in np.flatnonzero(p_side + q_side).tolist():
            x, y = (arb(float(side[group]), error * float(side[group])) for side in (p_side, q_side))
            reduced[group] -= z * (x - ratio * y)
        return z

    def to_list(self) -> list[Json]:
        return [self.weight, *self.row.to_list()]


Multiplier = PairMultipliers | RowMultiplier


def most_of_one_string(problem: Problem) -> list[arb]:
    """Compute π(0 … K), the largest probability of a string by its votes, for any mechanism on open answers.

    >>> from darrm import PrivacyParams, Voters
    >>> problem = Problem(Voters(3, PrivacyParams("inf"), overlap=1), PrivacyParams(1, "0.1"), "open")
    >>> [round(float(most.mid()), 6) for most in most_of_one_string(problem)]
    [0.0, 0.1, 0.371828, 0.805696]
    """
    with ctx.workprec(PRECISION_BITS):
        target, bounds = problem.target, [arb(0)]
        ratio = enclose_exp(target.exact_epsilon).ball
        delta = arb(fmpq(target.exact_delta.numerator, target.exact_delta.denominator))
        for n in range(1, problem.voters.K + 1):
            previous_bound = bounds[max(0, n - problem.voters.reached)]
            bounds.append((ratio * previous_bound + delta).min(1 - (1 - previous_bound - delta) / ratio).min(arb(1)))
    return bounds


def upper_bound(problem: Problem, prior: Prior, multipliers: Sequence[Multiplier]) -> float:
    """Compute a float that is at least (1), and at most 1; from π for strings without multipliers."""
    if is_open(problem.classes) and not multipliers:
        strings = zip(
            most_of_one_string(problem), np.sum(np.tril(compute_strings(prior, problem.voters.K)), axis=1), strict=True
        )
        with ctx.workprec(PRECISION_BITS):
            return min(1.0, upper_float(sum((p * arb(float(n)) for p, n in strings), arb(0))))
    partitions = list_partitions(problem.voters.K, problem.classes)
    delta, sizes = problem.target.exact_delta, partitions.sizes.tolist()
    with ctx.workprec(PRECISION_BITS):
        reduced = [arb(0)] * len(sizes)
        for group, probability in zip(
            partitions.starts.tolist(), partitions.probabilities(prior).tolist(), strict=True
        ):
            reduced[group] = sizes[group] * arb(probability)
        total = sum((multiplier.subtract(reduced, problem) for multiplier in multipliers), arb(0))
        bound = total * arb(fmpq(delta.numerator, delta.denominator))
        best_shares: dict[int, arb] = {}
        for place, size, coefficient in zip(partitions.blocks.tolist(), sizes, reduced, strict=True):
            share = coefficient / size
            best_shares[place] = best_shares[place].max(share) if place in best_shares else share
        return min(1.0, upper_float(sum(best_shares.values(), bound)))


def multipliers_from_json(data: Json, problem: Problem) -> tuple[Multiplier, ...]:
    """Read a list of `to_list` outputs; `TypeError`, `KeyError` or `ValueError` for other data."""
    if data == []:
        return ()
    if problem.voters.are_non_private:
        return _pairs_from_json(data, problem)
    if not isinstance(data, list) or len(data) > _MAX_ROWS:
        checks.fail("multipliers", type(data).__name__, f"a list of at most {_MAX_ROWS:,} rows")
    for weight, *_ in data:
        checks.non_negative(multiplier=weight)
    return tuple(RowMultiplier(float(weight), VoterRow.from_list(row, problem)) for weight, *row in data)


def _pairs_from_json(data: Json, problem: Problem) -> tuple[PairMultipliers, ...]:
    pairs, partitions = list_neighbor_pairs(problem), list_partitions(problem.voters.K, problem.classes)
    neighbors = set(zip(pairs.first, pairs.second, strict=True))
    if not isinstance(data, list) or len(data) > len(neighbors):
        checks.fail("multipliers", type(data).__name__, f"a list of at most {len(neighbors)} pairs of neighbors")
    multipliers = []
    for place, aligned, weights in data:
        if type(place) is not int or any(type(votes) is not int for votes in aligned):
            checks.fail("multipliers", [place, aligned], "about whole numbers")
        if (place, tuple(aligned)) not in neighbors:
            checks.fail("multipliers", [place, aligned], "of neighbors of a partition, aligned to it")
        if len(weights) != len(partitions.terms(place, tuple(aligned))):
            checks.fail("multipliers", weights, "a number for each term of the pair")
        for weight in weights:
            checks.non_negative(multiplier=weight)
        multipliers.append(PairMultipliers(place, tuple(aligned), tuple(map(float, weights))))
    return tuple(multipliers)


def relative_error(problem: Problem) -> float:
    """Bound the relative error of a coefficient of an expectation, a sum of positive terms."""
    number = histograms_of(problem.voters.K, problem.classes).number
    return _COEFFICIENT_ERROR * (problem.voters.K + number)


def find_worst_rows(block: RowBlock, costs: Array, limit: float, max_rows: int) -> list[tuple[float, VoterRow]]:
    """Return the rows that exceed a limit most, with their costs: at most one for each multiset of movers."""
    worst = costs.max(axis=1)
    broken = np.flatnonzero(worst > limit)
    if broken.size > max_rows:
        broken = broken[np.argpartition(-worst[broken], max_rows)[:max_rows]]
    return [(float(worst[place]), _build_row(block, place, int(np.argmax(costs[place])))) for place in broken.tolist()]


def _build_row(block: RowBlock, place: int, histogram: int) -> VoterRow:
    """Build a row from the movers of a multiset and the others at a histogram, with the worst u and v."""
    num_movers = block.level.movers[place]
    movers_at_corners = [_build_mover(block, place, histogram, type_) for type_ in np.flatnonzero(num_movers).tolist()]
    return VoterRow(block.answers, (*movers_at_corners, *_list_nonmovers(block, place, histogram)))


def _build_mover(block: RowBlock, place: int, histogram: int, type_: int) -> VotersAtCorner:
    corners, level, mover = block.corners, block.level, block.corners.types[type_]
    failures = (mover.first, mover.second)
    if level.parents is not None:
        parent_movers = level.movers[place].copy()
        parent_movers[type_] -= 1
        parent = int(np.flatnonzero((level.parents.movers == parent_movers).all(axis=1))[0])
        histograms = histograms_of(corners.voters.K - level.moving, corners.classes)
        columns = [histograms.plus(label)[histogram] for label in range(corners.classes)]
        failures = _find_worst_answers(level.parents.before[parent, columns], level.parents.after[parent, columns])
    count = int(level.movers[place, type_])
    return VotersAtCorner(count, mover.group, mover.first, mover.second, *failures)


def _list_nonmovers(block: RowBlock, place: int, histogram: int) -> Iterator[VotersAtCorner]:
    """Yield the voters who do not move. Within the overlap, those fail whose failures cost most."""
    corners, level = block.corners, block.level
    voters, movers = corners.voters, level.movers[place]
    sizes = [int(size - movers[corners.group_of == group].sum()) for group, size in enumerate(corners.sizes)]
    limit = voters.reached - level.moving if corners.voters_fail else 0
    counts = histograms_of(voters.K - level.moving, corners.classes).counts[histogram]
    for _, label, failures in sorted(_compute_failure_costs(block, place, counts)):
        votes = int(counts[label])
        for group in range(len(sizes)):
            failing = min(votes, sizes[group], limit)
            succeeding = min(votes, sizes[group]) - failing
            moved = failing + succeeding
            limit, votes, sizes[group] = limit - failing, votes - moved, sizes[group] - moved
            if failing:
                yield VotersAtCorner(failing, group, label, label, *failures)
            if succeeding:
                yield VotersAtCorner(succeeding, group, label, label, label, label)


def _compute_failure_costs(
    block: RowBlock, place: int, counts: NDArray[np.int64]
) -> Iterator[tuple[float, int, tuple[int, int]]]:
    """Yield minus the cost of a failure, and its worst answers, for each class with votes in a histogram."""
    corners, level = block.corners, block.level
    histograms = histograms_of(int(counts.sum()) - 1, corners.classes)
    for label in np.flatnonzero(counts).tolist():
        others = counts.copy()
        others[label] -= 1
        columns = [
            histograms.plus(answer)[histograms.find_places(others[None])[0]] for answer in range(corners.classes)
        ]
        p_values, q_values = level.before[place, columns], level.after[place, columns]
        best, worst = _find_worst_answers(p_values, q_values)
        yield (-(p_values[best] - p_values[label] + q_values[label] - q_values[worst]), label, (best, worst))


def _find_worst_answers(p_values: Array, q_values: Array) -> tuple[int, int]:
    return int(np.argmax(p_values)), int(np.argmin(q_values))


@lru_cache(maxsize=4096)
def _compute_coefficients(row: VoterRow, problem: Problem) -> tuple[Array, Array]:
    K, C = problem.voters.K, problem.classes
    corners = [corners_of(each) for _, each in problem.voters.groups]
    sides = []
    for is_after in (False, True):
        law, votes = np.ones(1), 0
        for part in row.parts:
            corner = corners[part.group]
            high, low, delta = corner.share, corner.share_complement, corner.delta
            first, second = (part.second, part.first) if is_after else (part.first, part.second)
            answers = [((1.0 - delta) * high, first), ((1.0 - delta) * low, second)]
            answers.append((delta, part.failure_after if is_after else part.failure))
            for _ in range(part.count):
                histograms, votes = histograms_of(votes, C), votes + 1
                next_law = np.zeros(histograms_of(votes, C).number)
                for share, label in answers if first != second or delta else [(1.0, first)]:
                    next_law[histograms.plus(label)] += share * law
                law = next_law
        groups = list_partitions(K, C).find_groups(histograms_of(K, C).counts)
        size = list_partitions(K, C).sizes.size
        sides.append(sum(np.bincount(groups[:, answer], law, minlength=size) for answer in range(row.answers)))
    return np.asarray(sides[0]), np.asarray(sides[1])


def right_at_most(counts: ArrayLike, target: PrivacyParams, *, reached: int = 1) -> Array:
    """Bound the probability that one private answer has the most votes (theorem 2).

    ``counts`` are (n, C) histograms; one person may move ``reached`` votes; ``target`` is the answer's, ε > 0 → (n,),
    rounded up. Eleven to nothing, two classes: the optimum of `darrm.majority.closed_form`, and with a third class.

    >>> right_at_most([[11, 0], [6, 5]], PrivacyParams("0.2676", "0.0003")).round(3)
    array([0.887, 0.567])
    >>> right_at_most([[11, 0, 0]], PrivacyParams("0.2676", "0.0003")).round(3)
    array([0.839])
    """
    histograms = np.asarray(counts)
    checks.integer_at_least(1, reached=reached, advice="how many votes one person may move")
    if histograms.ndim != 2 or histograms.shape[1] < 2 or not np.issubdtype(histograms.dtype, np.integer):
        checks.fail("counts", histograms.shape, "whole numbers of shape (n, C) with C ≥ 2")
    if not target.exact_epsilon > 0:
        checks.fail("target.epsilon", target.epsilon, "positive")
    winner = histograms.max(axis=1, keepdims=True)
    steps = -((histograms - winner) // reached)  # ⌈d/t⌉
    leaders = np.sum(steps == 0, axis=1)
    low, high = leaders / histograms.shape[1], np.ones(len(histograms))
    for _ in range(_BISECTION_STEPS):
        middle = 0.5 * (low + high)
        other_shares = np.where(steps > 0, _bound_other_shares(middle / leaders, steps, target), 0.0)
        too_large = middle + np.sum(other_shares, axis=1) > 1.0
        low, high = np.where(too_large, low, middle), np.where(too_large, middle, high)
    return high


def accuracy_at_most(workload: Workload, counts: NDArray[np.int64], weights: ArrayLike | None = None) -> float:
    """Bound the accuracy of any release of a workload of non-private voters (theorems 2 and 3).

    ``counts`` are (n, C) histograms: all of a prior with their probabilities in ``weights``, or a sample with equal
    weights. For recorded votes the bound is about releases that treat classes alike.

    >>> from darrm.problem import Voters
    >>> voters = Voters(20, PrivacyParams("inf"), overlap=1)
    >>> close = np.array([[8, 6, 6], [9, 8, 3]])
    >>> [round(accuracy_at_most(Workload(voters, Q, PrivacyParams(1, "1e-5"), 3), close), 3) for Q in (1, 1000)]
    [0.742, 0.388]
    """
    if not workload.voters.are_non_private:
        checks.fail("voters.each", str(workload.voters.each), 'PrivacyParams("inf")')
    law = np.full(len(counts), 1.0 / len(counts)) if weights is None else np.asarray(weights, dtype=np.float64)
    total, reached = workload.total, workload.voters.reached
    bound = float(law @ right_at_most(counts, total, reached=reached))
    if workload.queries == 1:
        return bound
    deficits = counts.max(axis=1, keepdims=True) - counts
    has_one_winner = np.sum(deficits == 0, axis=1) == 1
    for steps in range(1, -(-workload.voters.K // reached) + 1):
        failure_probability = total.delta * math.expm1(steps * total.epsilon) / math.expm1(total.epsilon)
        if failure_probability >= bound or steps * total.epsilon / workload.queries >= math.log(counts.shape[1]):
            break
        num_close = np.sum(deficits <= steps * reached, axis=1)
        mu = float(law @ np.where(has_one_winner, 1.0 / num_close, 1.0))
        bound = min(bound, failure_probability + _find_largest_share(mu, steps * total.epsilon / workload.queries))
    return bound


def _bound_other_shares(share: Array, steps: NDArray[np.int64], target: PrivacyParams) -> Array:
    """Bound H^m(u) from below by (2), for u of shape (n,) and m of shape (n, C)."""
    epsilon = target.epsilon
    kappa = target.delta / math.expm1(epsilon)
    with np.errstate(divide="ignore"):
        log_x = np.log(1.0 - share + kappa)[:, None]
    best_index = (math.log1p(2.0 * kappa) - math.log(2.0) - log_x) / epsilon
    bounds = np.zeros(steps.shape)
    for index in (np.floor(best_index), np.ceil(best_index)):
        clipped_index = np.clip(index, 0, steps)
        growing_part = (1.0 + 2.0 * kappa) * np.exp(epsilon * (clipped_index - steps))
        bounds = np.maximum(bounds, growing_part - np.exp(epsilon * (2.0 * clipped_index - steps) + log_x) - kappa)
    return np.maximum(0.0, bounds - _TERM_ROUNDING * (1.0 + kappa))


def _find_largest_share(mu: float, rate: float) -> float:
    def is_excluded(share: float) -> bool:
        complement = (1.0 - share) * math.log((1.0 - share) / (1.0 - mu)) if share < 1.0 else 0.0
        return share * math.log(share / mu) + complement > rate * (1.0 + _TERM_ROUNDING) + _TERM_ROUNDING

    if mu >= 1.0 or not is_excluded(1.0):
        return 1.0
    return bisect_safe(is_excluded, 1.0, mu)
