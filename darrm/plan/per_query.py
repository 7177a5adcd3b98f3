"""The (ε, δ)-optimal release of one query, with the largest ε whose composition stays within a budget."""

import math
from collections.abc import Callable
from fractions import Fraction

from darrm.errors import PlanError
from darrm.laws.priors import Prior
from darrm.losses.composition import log_remaining_delta, optimal_epsilon
from darrm.losses.loss_distribution import LossDistribution
from darrm.optimize.closed_form import best_for_plain_voters, has_closed_form
from darrm.optimize.optimizer import default_shape, optimize_table
from darrm.optimize.under_renyi import COARSE, FINE
from darrm.plan.candidate import Candidate, rounded
from darrm.privacy import PrivacyParams
from darrm.probability.bisection import last_allowed
from darrm.problem import Workload
from darrm.proof.table import certify
from lp_models.options import SolveOptions

# how much of δ goes to the queries' own failures; the rest is left for composition
SHARES = (Fraction(0), Fraction(1, 10), Fraction(1, 2), Fraction(9, 10), Fraction(1))
BISECTIONS = 40
DELTA_MARGIN = 1e-12  # of δ is left for rounding: the accountant's own bound leaves as much
REFINEMENTS = 8
REFINED = 3  # so many candidates are tried with a larger ε and the exact profile
MOST_VOTERS = 301  # beyond, a profile takes seconds, and that of a γ that is not monotone minutes
_GOAL = 1e-3  # of the error that is to be beaten: gains below it are not looked for
_SECANTS = 6  # the error is a smooth function of ε: two or three are enough
LARGEST_GAIN = 8.0  # the exact profile has not been seen to allow more than a few times the ε of the optimal bound


def best_per_query(
    workload: Workload, prior: Prior, report: Callable[[str], None], *, to_beat: float = math.inf
) -> Candidate:
    """Find the per-query optimum that composes within the budget and errs least; `PlanError` if none does.

    A larger ε is tried only as far as it may err less than ``to_beat``.
    """
    candidates: list[Candidate] = []
    for delta in _deltas(workload):
        report(f"per query: delta {float(delta):g}")
        candidates += _composed_optimally(workload, prior, delta)
    if workload.queries > 1:
        candidates.sort(key=lambda candidate: candidate.expected_error)
        tried = REFINED if workload.voters.K <= MOST_VOTERS else 1
        candidates += [_refined(candidate, report, to_beat) for candidate in candidates[:tried]]
    within = [candidate for candidate in candidates if candidate.is_within_budget]
    if not within:
        each = workload.voters.each
        alike = each.is_private and workload.voters.own is None
        least = f"epsilon = {each.epsilon:g}, the voters' own (m = 1)" if alike else "any epsilon"
        raise PlanError(f"{workload.queries} queries with {least} do not compose within {workload.total}")
    best = min(within, key=lambda candidate: candidate.expected_error)
    if workload.queries == 1 or workload.voters.K > MOST_VOTERS or has_closed_form(workload.voters):
        return best
    target, shape = best.table.problem.target, _shape(best)
    fine = _candidate(workload, prior, target.exact_epsilon, target.exact_delta, shape, FINE)
    return min(best, fine, key=lambda candidate: (not candidate.is_within_budget, candidate.expected_error))


def _deltas(workload: Workload) -> list[Fraction]:
    """List what δ one query may have, smallest first."""
    total, least = workload.total.exact_delta, workload.voters.each.exact_delta
    if workload.queries == 1:
        return [total] if total >= least else []
    shares = {max(least, rounded(share * total / workload.queries)) for share in SHARES}
    return sorted(delta for delta in shares if delta * workload.queries <= total)


def _composed_optimally(workload: Workload, prior: Prior, delta: Fraction) -> list[Candidate]:
    """Take the largest ε that the optimal bound admits; at least the voters' own, which the profile may admit yet."""
    each, most = workload.voters.each, largest_epsilon(workload)
    if workload.queries == 1:
        alike = workload.voters.own is None
        affordable = not (each.is_private and alike) or most >= each.exact_epsilon
        return [_candidate(workload, prior, most, delta, default_shape(workload.voters))] if affordable else []
    high = float(most)
    low = high if _composes(workload, high, delta) else 0.0
    low = last_allowed(lambda epsilon: _composes(workload, epsilon, delta), low, high, steps=BISECTIONS)
    # a Q-th of the total always composes, and exactly; its δ is a Q-th at most
    epsilon = max(rounded(low), workload.total.exact_epsilon / workload.queries)
    alike = workload.voters.own is None
    if each.is_private:
        # noise can make a release more private than the weakest of voters that differ
        epsilon = min(max(each.exact_epsilon * alike, epsilon), each.exact_epsilon * workload.voters.K)
    # a free γ errs less at the same (ε, δ), a monotone one has a Rényi curve besides
    free = each.is_private and alike and workload.voters.K <= MOST_VOTERS
    shapes = ("monotone", "free") if free else ("monotone",)
    return [_candidate(workload, prior, epsilon, delta, shape) for shape in shapes]


def largest_epsilon(workload: Workload) -> Fraction:
    """Compute min(total ε, K·ε): beyond, a query of private voters costs no more."""
    total, voters = workload.total.exact_epsilon, workload.voters
    return min(total, voters.K * voters.each.exact_epsilon) if voters.each.is_private else total


def _composes(workload: Workload, epsilon: float, delta: Fraction) -> bool:
    """Whether Q queries of (ε, δ) stay within the budget by the optimal bound: asked at the total ε alone."""
    query, total = [(PrivacyParams(epsilon, delta), workload.queries)], workload.total
    log_room = log_remaining_delta(query, total.delta)
    if log_room == -math.inf:
        return optimal_epsilon(query, total.delta) <= total.epsilon
    losses = LossDistribution.of_groups([(epsilon, workload.queries)])
    return losses.log_divergence(total.epsilon) <= log_room + math.log1p(-DELTA_MARGIN)


def _candidate(
    workload: Workload, prior: Prior, epsilon: Fraction, delta: Fraction, shape: str, options: SolveOptions = COARSE
) -> Candidate:
    """Optimize one (ε, δ)-private query; one of many is compared before it is solved to the end."""
    problem = workload.problem(PrivacyParams(epsilon, delta))
    if has_closed_form(problem.voters):
        table = certify(problem, best_for_plain_voters(problem))
    else:
        table = optimize_table(problem, prior=prior, shape=shape, options=None if workload.queries == 1 else options)
    return Candidate("per query", workload, table, prior, {"epsilon": float(epsilon), "delta": float(delta)})


def _shape(candidate: Candidate) -> str:
    """Return the shape that was asked for, or one that has the same optimum."""
    return "monotone" if candidate.table.gamma.is_monotone else "free"


def _refined(start: Candidate, report: Callable[[str], None], to_beat: float) -> Candidate:
    """Raise ε of one query as far as all of the accountant's bounds admit, and at once to what errs less than needed.

    A larger ε errs less and costs more, so where that is not admitted nothing is.
    """
    workload, target = start.workload, start.table.problem.target
    shape = _shape(start)
    best, low = start, target.epsilon
    high = min(low * LARGEST_GAIN, float(largest_epsilon(workload)))
    if not start.is_within_budget or not low < high:
        return start

    def trial(epsilon: float) -> Candidate:
        report(f"per query: epsilon {epsilon:.4g}, expected error {best.expected_error:.6g}")
        return _candidate(workload, start.prior, rounded(epsilon), target.exact_delta, shape)

    def admitted(epsilon: float) -> bool:
        nonlocal best
        if best.expected_error == 0.0:  # nothing is left to gain
            return False
        found = trial(epsilon)
        best = found if found.is_within_budget else best
        return found.is_within_budget

    if start.expected_error > to_beat:
        found = _first_below(to_beat, start, high, trial)
        if found is None or not found.is_within_budget:
            return start
        best, low = found, found.settings["epsilon"]
    last_allowed(admitted, low, high, steps=REFINEMENTS, geometric=True)
    return best


def _first_below(
    to_beat: float, start: Candidate, high: float, trial: Callable[[float], Candidate]
) -> Candidate | None:
    """Find a small ε whose optimum errs less than ``to_beat``, by secants over log ε; None if ``high`` has none."""
    goal = to_beat * (1.0 - _GOAL)
    left, right = start, trial(high)
    if right.expected_error >= to_beat:
        return None
    for _ in range(_SECANTS):
        if right.expected_error >= goal * (1.0 - _GOAL):
            break
        places = [math.log(each.settings["epsilon"]) for each in (left, right)]
        share = (left.expected_error - goal) / (left.expected_error - right.expected_error)
        middle = trial(math.exp(places[0] + share * (places[1] - places[0])))
        left, right = (left, middle) if middle.expected_error < to_beat else (middle, right)
    return right
