"""Laws of one parameter, as large as the budget admits: permute-and-flip and the exponential mechanism.

With M = 2l − K > 0 the lead of the majority, permute-and-flip [MS20] has γ(l) = 1 − e^{−ηM} and the exponential
mechanism [MT07] γ(l) = tanh(ηM/2). Where few voters answer many queries, the exact profile of the first admits more
truth than the other ways find. Both are certified like any other γ, for private voters as well.

A larger η errs less and costs more, so a single trial at the η that errs as much as what is known already rules a law
out.
"""

from collections.abc import Callable

import numpy as np

from darrm.errors import PlanError
from darrm.laws.noise_function import NoiseFunction
from darrm.laws.priors import Prior
from darrm.plan.candidate import Candidate, smallest_target
from darrm.probability import Array
from darrm.probability.bisection import last_allowed
from darrm.problem import Workload
from darrm.proof.table import certify

LAWS: tuple[tuple[str, Callable[[Array], Array]], ...] = (
    ("permute-and-flip", lambda exponents: -np.expm1(-exponents)),
    ("exponential mechanism", lambda exponents: np.tanh(exponents / 2.0)),
)
LEAST, MOST = 1e-9, 40.0  # of η: with less every answer is a coin, with more the truth, to the last digits
BISECTIONS = 80
TOLERANCE = 1e-10  # of η, relative


def best_law(workload: Workload, prior: Prior, report: Callable[[str], None], *, to_beat: float = np.inf) -> Candidate:
    """Find the law and its largest η that err less than ``to_beat``; `PlanError` if none does."""
    best = None
    for name, law in LAWS if workload.queries > 1 else ():  # of one query the optimum is known
        report(name)
        found = _largest(workload, prior, name, law, to_beat)
        if found is not None and found.expected_error < to_beat:
            best, to_beat = found, found.expected_error
    if best is None:
        raise PlanError("no law of one parameter errs less: " + ", ".join(name for name, _ in LAWS))
    return best


def _largest(
    workload: Workload, prior: Prior, name: str, law: Callable[[Array], Array], to_beat: float
) -> Candidate | None:
    """Bisect for the largest η that the accountant admits, from the one that errs as much as ``to_beat``."""
    voters, best = workload.voters, None
    leads = np.arange(2.0 * voters.first_majority - voters.K, voters.K + 1.0, 2.0)

    def gamma(eta: float) -> NoiseFunction:
        return NoiseFunction(voters.K, law(eta * leads))

    def is_admitted(eta: float) -> bool:
        nonlocal best
        proposal = gamma(eta)
        try:
            table = certify(smallest_target(workload, proposal), proposal)
        except PlanError:  # it tells the truth too surely for any (ε, δ)
            return False
        found = Candidate("law", workload, table, prior, {f"{name}, eta": eta})
        best = found if found.is_within_budget else best
        return found.is_within_budget

    def bisect(allowed: Callable[[float], bool], inside: float, outside: float) -> float:
        return last_allowed(allowed, inside, outside, steps=BISECTIONS, tolerance=TOLERANCE, geometric=True)

    least = bisect(lambda eta: gamma(eta).expected_error(prior) < to_beat, MOST, LEAST)
    if is_admitted(least):
        bisect(is_admitted, least, MOST)
    return best
