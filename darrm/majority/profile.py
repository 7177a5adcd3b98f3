"""The exact privacy profile of a noise function: the worst hockey-stick divergence over the corners for each ε.

Pr[output 1] = (1 + E[g(L)])/2, so with c = e^ε and the privacy cost f of [D, Lemma 3.4]

    δ(ε) = max over corners of Pr_p[1] − c·Pr_{p'}[1] = max(0, (1 − c + max f(p, p'; γ))/2);

output 0 gives the same, because g is odd about K/2 and the set of corners is symmetric. The maximum over the
corners is the separation of `darrm.majority.full_set` with another c.
"""

from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from darrm.loss.profile import PrivacyProfile
from darrm.majority.corners import ratio_of
from darrm.majority.full_set import FullSet
from darrm.majority.groups import GroupSet
from darrm.majority.noise_function import NoiseFunction
from darrm.privacy import LARGEST_EXPONENT, PrivacyParams
from darrm.problem import Problem, Voters
from darrm.util import checks

_UNIT = 2.0**-53  # relative error of one rounding
_POINTS = 65
_DECIMALS = 10**12  # bounds are rounded up to a multiple of 1e-12, so that machines agree on them
_TARGETS = 2  # the grid ends at twice the target's ε: beyond it almost nothing is left


def divergence(voters: Voters, gamma: NoiseFunction, epsilon: Fraction) -> float:
    """Bound the worst hockey-stick divergence between neighbors at one ε, rounded up.

    Without noise one voter is as private as the voter itself:

    >>> from darrm import NoiseFunction, PrivacyParams, Voters
    >>> round(divergence(Voters(1, PrivacyParams("0.1", "1e-5")), NoiseFunction(1, [1.0]), Fraction(1, 10)), 12)
    1e-05
    """
    if voters.sampled is None:
        return _divergences(voters, gamma, [epsilon])[0]
    certain = voters.sampled.conditional_on_inclusion(PrivacyParams(epsilon)).exact_epsilon
    return min(
        1.0,
        float(voters.sampled.rate) * _divergences(voters.conditional_on_inclusion, gamma, [certain])[0] * (1.0 + 1e-12),
    )


def _divergences(voters: Voters, gamma: NoiseFunction, epsilons: Sequence[Fraction]) -> list[float]:
    ratios = [ratio_of(epsilon) for epsilon in epsilons]
    if voters.per_voter is None:
        costs = [FullSet(voters, epsilon).maxima(gamma.half).worst for epsilon in epsilons]
    else:
        costs = GroupSet(voters, epsilons[0]).worst_at(gamma.half, ratios)
    # three rounded operations on numbers of at most 2·ratio + 1
    bounds = [
        0.5 * (1.0 - ratio.value + cost) + 8.0 * _UNIT * (1.0 + ratio.value)
        for ratio, cost in zip(ratios, costs, strict=True)
    ]
    return [min(1.0, max(0.0, bound)) for bound in bounds]


def privacy_profile(problem: Problem, gamma: NoiseFunction, *, points: int = _POINTS) -> PrivacyProfile:
    """Tabulate the exact privacy profile on an even grid from 0 to twice the target's ε, rounded up to 1e-12.

    The number of points is odd and at least 3, so that the target's ε is one of them.

    >>> from darrm import Problem, NoiseFunction, PrivacyParams, Voters
    >>> problem = Problem.from_allowance(Voters(3, PrivacyParams(0.1)), 3)
    >>> profile = privacy_profile(problem, NoiseFunction(3, [1.0, 1.0]), points=5)
    >>> [round(delta, 5) for delta in profile.deltas]
    [0.07488, 0.01344, 0.0, 0.0, 0.0]
    """
    checks.integer_at_least(3, points=points)
    if points % 2 == 0:
        checks.fail("points", points, "odd", "one point is the target's epsilon")
    if gamma.K != problem.voters.K:
        checks.fail("gamma.K", gamma.K, f"the problem's K = {problem.voters.K}")
    top = min(_TARGETS * problem.target.exact_epsilon, Fraction(LARGEST_EXPONENT))
    grid = [top * Fraction(index, points - 1) for index in range(points)]
    bounds = np.array(_divergences(problem.voters, gamma, grid))
    # the true profile never rises; rounding may
    falling = np.minimum(1.0, np.ceil(np.maximum.accumulate(bounds[::-1])[::-1] * _DECIMALS) / _DECIMALS)
    # a float above the exact ε keeps its bound
    above = [min(np.nextafter(float(e), np.inf), float(LARGEST_EXPONENT)) if e else 0.0 for e in grid]
    return PrivacyProfile(tuple(above), tuple(falling.tolist()))
