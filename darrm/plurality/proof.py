"""Proofs that a plurality is private, for private and non-private voters, and the repair of laws.

The votes of non-private voters may change in any way: their neighbors are pairs of histograms
(`darrm.plurality.moves`). If some voters are private, all voters are at corners (`darrm.plurality.voter_corners`). If
none is, pairs of histograms are far fewer than multisets of corners.

Either way a law is repaired by mixing it with random guessing, which has slack for any ε > 0.
"""

from fractions import Fraction

import numpy as np

from darrm.errors import CertificationError
from darrm.loss.certificate import Certificate
from darrm.majority.corners import WHOLE_NUMBERS
from darrm.plurality import moves, voter_corners
from darrm.plurality.plurality_law import PluralityLaw
from darrm.plurality.subsampled_voters import excess_of_drawn, share_for_drawn
from darrm.privacy import at_most
from darrm.problem import Problem
from darrm.util import checks

DRAWN = "the plurality of voters drawn at random, which is as private as they are together"
_MANY = 3_000_000  # rows: looking at them takes more than a second
_MOST_ATTEMPTS = 9  # the last with a random answer only
_ROUNDING = 2.0**-46  # a margin for rounding of the second attempt at a repair


def bound_excess(problem: Problem, law: PluralityLaw) -> tuple[Fraction, int, str]:
    """Bound Pr[S] − e^ε·Pr'[S] from above for all neighbors and answers; return rows and method, too."""
    voters = problem.voters
    if voters.are_non_private:
        pairs = moves.pairs_of(problem)
        return moves.largest_excess(law, pairs, problem.target.exact_epsilon), len(pairs.first), WHOLE_NUMBERS
    voter_corners.check_size(voters, problem.classes)
    rows = voter_corners.number_of_rows(voters, problem.classes)
    drawn = excess_of_drawn(problem, law) if rows > _MANY else None
    if drawn is not None:
        return drawn, rows, DRAWN
    worst, method = voter_corners.largest_excess(problem, law)
    return worst, rows, method


def share_needed(problem: Problem, law: PluralityLaw) -> float:
    """Find how much of a random answer makes a law private."""
    if problem.voters.are_non_private:
        return moves.share_needed(problem, moves.pairs_of(problem), law.each)
    many = voter_corners.number_of_rows(problem.voters, problem.classes) > _MANY
    share = share_for_drawn(problem, law.each) if many else None
    return voter_corners.share_needed(problem, law) if share is None else share


def prove(problem: Problem, law: PluralityLaw, scale: float = 1.0) -> Certificate:
    """Prove that a law is private as it stands; `CertificationError` if it is not.

    ``worst_cost`` of the certificate bounds the largest excess, ``budget`` is δ and ``rows`` the number of pairs,
    or of multisets of voters.
    """
    if (law.K, law.classes) != (problem.voters.K, problem.classes):
        found = f"{law.K} votes for {law.classes} classes"
        checks.fail("law", found, f"about {problem.voters.K} votes for {problem.classes} classes")
    target = problem.target
    worst, rows, method = bound_excess(problem, law)
    if worst > target.exact_delta:
        raise CertificationError(
            f"at epsilon = {target.epsilon:g} neighbors differ by {at_most(worst, 6)}, delta is {target.delta:.6g}: "
            "let certify mix the law with a random answer",
            worst_cost=float(worst),
            budget=target.delta,
        )
    # both to floats on the safe side of themselves, and of one another
    cost = 0.0 if worst == 0 else min(float(np.nextafter(float(worst), np.inf)), 1.0)
    budget = float(np.nextafter(target.delta, 0.0)) if Fraction(target.delta) > target.exact_delta else target.delta
    return Certificate(cost, budget, rows, method, scale)


def mix_and_prove(problem: Problem, law: PluralityLaw) -> tuple[PluralityLaw, Certificate]:
    """Mix a law with the least share of random guessing that its proof needs, and prove the result.

    `CertificationError` where ε and δ are so small that not even random answers, rounded to weights, are private.
    """
    checks.instance(Problem, problem=problem, advice="say Problem(voters, target, classes)")
    checks.instance(PluralityLaw, law=law, advice="say PluralityLaw.of_probabilities(K, classes, probabilities)")
    try:
        return law, prove(problem, law)
    except CertificationError as error:
        failure = error
    share, more = share_needed(problem, law), _ROUNDING
    for _ in range(_MOST_ATTEMPTS):
        mixed = law.mixed(share)
        try:
            return mixed, prove(problem, mixed, scale=1.0 - share)
        except CertificationError as error:
            failure = error
        share, more = min(1.0, share + more), 64.0 * more
    target = problem.target
    raise CertificationError(
        f"epsilon = {target.epsilon:g} and delta = {target.delta:g} are too small for {problem.classes} classes: "
        "probabilities are multiples of 2^-53, and neighbors differ by as much; take a larger target",
        worst_cost=failure.worst_cost,
        budget=failure.budget,
    )
