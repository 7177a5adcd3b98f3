"""Proofs that a plurality is private, the repair of laws, and the exact cost of one answer.

**Non-private voters.** Their neighbors are pairs (n, n') of histograms (`darrm.plurality.partitions.Pairs`). A law is
(ε, δ)-private if

    (1)  Σ_c (h_c(n) − e^ε h_c(n'))_+ ≤ δ,        h_c(n) = w/(m·2^53),

the largest Pr[S | n] − e^ε Pr[S | n'] over sets S of answers. Every h is a whole number over lcm(1 … C)·2^53, and e^ε
is at least a whole number over 2^128 (over more bits for small ε), so (1) is decided in whole numbers. Of open-set
answers no answer is one of the classes c, and h_c(n') = 0 for a string that only n holds.

**Private voters** are at corners (`darrm.plurality.voter_corners`), if at least one voter is private.

**Repair.** With probability s answer at random: u = 1/C, or no answer to an open question. The left side of (1) is
jointly convex and positively homogeneous in (h(n), h(n')) and 0 at (u, u), so it falls at least by the factor 1 − s.
Some s < 1 proves any law for any ε, δ > 0.

**Curve and profile** are about the law as it is drawn. For a pair with terms t of k_t classes, h_t before and h'_t
after,

    (α − 1) D_α = log Σ_t k_t h_t^α h'_t^{1−α},        δ(ε) = Σ_t k_t (h_t − e^ε h'_t)_+.

As a function of e^ε the second is a maximum of straight lines, one for each number of terms in the order of their
losses h_t/h'_t. The maximum over all pairs is one, too, and its corners hold the whole profile. By joint convexity no
pair of laws on the votes is worse. Of private voters the hockey-stick divergence and, for Δ = 0, exp((α − 1)D_α) are
convex in each voter's pair of laws, so corners are the worst: δ(ε) is the largest of 0 and E_p[h_S] − e^ε E_{p'}[h_S].
"""

import math
from fractions import Fraction

import numpy as np

from darrm.errors import CertificationError
from darrm.loss.amplification import subsampled_curve
from darrm.loss.certificate import Certificate
from darrm.loss.profile import PrivacyProfile
from darrm.loss.renyi import RenyiCurve, curve_of_pairs
from darrm.loss.vote_counts import find_undominated, profile_of_lines
from darrm.majority.corners import WHOLE_NUMBERS, enclose_exp, precision_for, whole_below
from darrm.numerics import Array
from darrm.numerics.bisection import bisect_safe
from darrm.plurality import voter_corners
from darrm.plurality.baselines import excess_of_drawn, share_for_drawn
from darrm.plurality.partitions import Pairs, histograms_of, list_partitions
from darrm.plurality.plurality_law import WEIGHT_BITS, PluralityLaw
from darrm.privacy import at_most
from darrm.problem import Problem
from darrm.util import checks

DRAWN = "the plurality of voters drawn at random, which is as private as they are together"
_MAX_QUICK_ROWS = 3_000_000  # more rows take more than a second
_MAX_ATTEMPTS = 9  # the last one mixes in random answers only
_REPAIR_MARGIN = 2.0**-46  # for the rounding of repairs
_REPAIR_FACTOR = 1.0 + 2.0**-20  # for the rounding of the first repair
# for a few seconds; the curve evaluates its rows for every class and order
_MAX_ROWS, _MAX_CURVE_ROWS = 3_000_000, 100_000


def list_neighbor_pairs(problem: Problem) -> Pairs:
    """Return the pairs of neighbors of a problem; `ValueError` unless its voters are non-private."""
    if not problem.voters.are_non_private:
        advice = "a private voter's answers are no moved votes: certify takes a γ of such voters"
        checks.fail("problem.voters", str(problem.voters), "plain", advice)
    return list_partitions(problem.voters.K, problem.classes).pairs(problem.voters.reached)


def largest_excess(law: PluralityLaw, pairs: Pairs, epsilon: Fraction) -> Fraction:
    """Bound the left side of (1) from above for all pairs; tight but for the rounding of e^ε."""
    sizes = law.partitions.sizes.tolist()
    bits = precision_for(epsilon)
    denominator, ratio = math.lcm(*set(sizes)), whole_below(enclose_exp(epsilon).ball, bits)
    scaled_weights = [w * (denominator // m) for w, m in zip(law.weights.tolist(), sizes, strict=True)]
    # a string without votes in n' is the last one
    shifted, scaled = [number << bits for number in scaled_weights], [number * ratio for number in [*scaled_weights, 0]]
    sums = [0] * len(pairs.first)
    terms = (pairs.pair.tolist(), pairs.before.tolist(), pairs.after.tolist(), pairs.classes.tolist())
    for pair, group_before, group_after, count in zip(*terms, strict=True):
        difference = shifted[group_before] - scaled[group_after]
        if difference > 0:
            sums[pair] += count * difference
    return Fraction(max(sums), denominator << (WEIGHT_BITS + bits))


def share_for_moves(problem: Problem, pairs: Pairs, probabilities: Array) -> float:
    """Find in floats the least share s of random answers that makes a law private, rounded up.

    ``probabilities`` holds the probability of one class of each group.
    """
    ratio, delta = float(enclose_exp(problem.target.exact_epsilon).value), problem.target.delta
    # the budget, or the slack of random answers, covers an excess below the rounding
    slack = max(delta, min(1.0, math.expm1(problem.target.epsilon)), _REPAIR_MARGIN)
    differences, random_differences = (
        x - ratio * y
        for x, y in map(pairs.sides, (probabilities, list_partitions(problem.voters.K, problem.classes).random))
    )

    def is_allowed(share: float) -> bool:
        excesses = pairs.classes * np.maximum(0.0, (1.0 - share) * differences + share * random_differences)
        return bool(np.max(np.bincount(pairs.pair, excesses)) <= delta)

    return min(1.0, _REPAIR_FACTOR * bisect_safe(is_allowed, 1.0, 0.0) + _REPAIR_MARGIN / slack)


def bound_excess(problem: Problem, law: PluralityLaw) -> tuple[Fraction, int, str]:
    """Bound Pr[S] − e^ε·Pr'[S] from above for all neighbors and answers; return rows and method, too."""
    voters = problem.voters
    if voters.are_non_private:
        pairs = list_neighbor_pairs(problem)
        return largest_excess(law, pairs, problem.target.exact_epsilon), len(pairs.first), WHOLE_NUMBERS
    voter_corners.check_size(voters, problem.classes)
    rows = voter_corners.number_of_rows(voters, problem.classes)
    excess = excess_of_drawn(problem, law) if rows > _MAX_QUICK_ROWS else None
    if excess is not None:
        return excess, rows, DRAWN
    worst, method = voter_corners.largest_excess(problem, law)
    return worst, rows, method


def share_needed(problem: Problem, law: PluralityLaw) -> float:
    if problem.voters.are_non_private:
        return share_for_moves(problem, list_neighbor_pairs(problem), law.each)
    is_large = voter_corners.number_of_rows(problem.voters, problem.classes) > _MAX_QUICK_ROWS
    share = share_for_drawn(problem, law.each) if is_large else None
    return voter_corners.share_needed(problem, law) if share is None else share


def prove(problem: Problem, law: PluralityLaw, scale: float = 1.0) -> Certificate:
    """Prove that a law is private; `CertificationError` if it is not.

    ``worst_cost`` of the certificate bounds the largest excess, ``budget`` is δ and ``rows`` the number of pairs,
    or of multisets of voters.
    """
    if (law.K, law.classes) != (problem.voters.K, problem.classes):
        votes = f"{law.K} votes for {law.classes} classes"
        checks.fail("law", votes, f"about {problem.voters.K} votes for {problem.classes} classes")
    target = problem.target
    excess, rows, method = bound_excess(problem, law)
    if excess > target.exact_delta:
        raise CertificationError(
            f"at epsilon = {target.epsilon:g} neighbors differ by {at_most(excess, 6)}, delta is {target.delta:.6g}: "
            "let certify mix the law with a random answer",
            worst_cost=float(excess),
            budget=target.delta,
        )
    # round both in the safe direction
    cost = 0.0 if excess == 0 else min(float(np.nextafter(float(excess), np.inf)), 1.0)
    budget = float(np.nextafter(target.delta, 0.0)) if Fraction(target.delta) > target.exact_delta else target.delta
    return Certificate(cost, budget, rows, method, scale)


def mix_and_prove(problem: Problem, law: PluralityLaw) -> tuple[PluralityLaw, Certificate]:
    """Mix a law with the least share of random guessing that its proof needs, and prove the result.

    `CertificationError` where ε and δ are so small that not even random answers, rounded to weights, are private.
    """
    checks.instance(Problem, problem=problem, advice="say Problem(voters, target, classes)")
    checks.instance(PluralityLaw, law=law, advice="say PluralityLaw.from_probabilities(K, classes, probabilities)")
    try:
        return law, prove(problem, law)
    except CertificationError as error:
        failure = error
    share, margin = share_needed(problem, law), _REPAIR_MARGIN
    for _ in range(_MAX_ATTEMPTS):
        mixed = law.mix(share)
        try:
            return mixed, prove(problem, mixed, scale=1.0 - share)
        except CertificationError as error:
            failure = error
        share, margin = min(1.0, share + margin), 64.0 * margin
    target = problem.target
    raise CertificationError(
        f"epsilon = {target.epsilon:g} and delta = {target.delta:g} are too small for {problem.classes} classes: "
        "probabilities are multiples of 2^-53, and neighbors differ by as much; take a larger target",
        worst_cost=failure.worst_cost,
        budget=failure.budget,
    )


def curve_of_law(law: PluralityLaw, reached: int, rate: float = 1.0) -> RenyiCurve:
    """Compute the largest Rényi divergence of all pairs at every order, rounded up; ∞ where an answer can vanish.

    With a ``rate`` below 1 a person is included in each query with that probability, independently.
    """
    pairs = list_partitions(law.K, law.classes).pairs(reached)
    with np.errstate(divide="ignore"):
        logs = np.log(law.each)
    log_before, log_after = (
        _tabulate_by_pair(pairs, np.log(pairs.classes) + side, -np.inf) for side in pairs.sides(logs, absent=-np.inf)
    )
    if rate < 1.0:
        # without the person the law is the one after the move, or, in the other direction, before it
        return subsampled_curve(log_before, log_after, rate)
    # the logarithms of powers are off by a few units in the last place of their exponents
    largest_log = float(np.max(-logs, where=np.isfinite(logs), initial=1.0))
    return curve_of_pairs(log_before, log_after, 16.0 * np.finfo(np.float64).eps * (1.0 + largest_log))


def _tabulate_by_pair(pairs: Pairs, values: Array, padding: float = 0.0) -> Array:
    """Write the values of all terms as a row for each pair, padded: shape (terms,) → (pairs, most terms)."""
    position = np.arange(pairs.pair.size) - pairs.starts[pairs.pair]
    rows = np.full((len(pairs.first), int(position.max()) + 1), padding)
    rows[pairs.pair, position] = values
    return rows


def curve_of_answers(problem: Problem, law: PluralityLaw) -> RenyiCurve | None:
    """Compute the Rényi curve of private voters over all rows; None with Δ > 0, or for many rows."""
    K, C = problem.voters.K, problem.classes
    corners = voter_corners.CornerSet(problem.voters, C, 1)
    if corners.voters_fail or voter_corners.number_of_rows(problem.voters, C) > _MAX_CURVE_ROWS:
        return None
    values = law.probabilities(histograms_of(K, C).counts)
    with np.errstate(divide="ignore"):
        parts = [
            np.log([[level.before.ravel(), level.after.ravel()] for level in levels])
            for levels in zip(*(corners.levels(values[:, label]) for label in range(C)), strict=True)
        ]
    log_before, log_after = np.concatenate(parts, axis=2).transpose(1, 2, 0)
    error = 2.0**-50 * (K + C + 8) * float(np.max(-log_after, where=np.isfinite(log_after), initial=1.0))
    return curve_of_pairs(log_before, log_after, error)


def profile_of_law(law: PluralityLaw, reached: int) -> PrivacyProfile | None:
    """Compute the privacy profile at all its corners, rounded up; None if it bounds nothing, δ = 1."""
    pairs = list_partitions(law.K, law.classes).pairs(reached)
    p_terms, q_terms = (_tabulate_by_pair(pairs, pairs.classes * side) for side in pairs.sides(law.each))
    with np.errstate(divide="ignore", invalid="ignore"):
        loss = np.where(q_terms > 0.0, np.log(p_terms) - np.log(q_terms), np.where(p_terms > 0.0, np.inf, -np.inf))
    order = np.argsort(-loss, axis=1, kind="stable")
    p, q = (np.cumsum(np.take_along_axis(terms, order, axis=1), axis=1).ravel() for terms in (p_terms, q_terms))
    infinite_mass = float(np.max(np.sum(p_terms, axis=1, where=np.isposinf(loss))))
    return profile_of_lines(p, q, largest=float(np.max(loss[np.isfinite(loss)], initial=0.0)), certain=infinite_mass)


def are_few(problem: Problem) -> bool:
    """Whether profile and curve take a few seconds at most."""
    return voter_corners.number_of_rows(problem.voters, problem.classes) <= _MAX_ROWS


def profile_of_answers(problem: Problem, law: PluralityLaw) -> PrivacyProfile | None:
    """Compute the privacy profile of private voters at its corners, rounded up; None if it bounds nothing, δ = 1."""
    highest, slopes = [np.zeros(1)], [np.zeros(1)]
    largest = infinite_mass = 0.0
    for block in voter_corners.row_blocks(problem, law.each, range(1, problem.classes)):
        p, q = np.minimum(1.0, block.upper + block.error).ravel(), np.maximum(0.0, block.lower - block.error).ravel()
        infinite_mass = max(infinite_mass, float(np.max(p, where=q == 0.0, initial=0.0)))
        with np.errstate(divide="ignore"):
            largest = max(largest, float(np.max(np.log(p) - np.log(q), where=q > 0.0, initial=0.0)))
        front = find_undominated(p, q)
        highest.append(p[front])
        slopes.append(q[front])
    return profile_of_lines(np.concatenate(highest), np.concatenate(slopes), largest=largest, certain=infinite_mass)
