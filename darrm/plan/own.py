"""A family of your own γ, one for each value of a number, and the largest of it that a budget admits."""

import math
from collections.abc import Callable, Iterator
from functools import partial

from darrm.laws.noise_function import NoiseFunction
from darrm.plan.budget import releases_of
from darrm.plan.family import Family, Search, calibrate
from darrm.plan.option import Option
from darrm.plan.parameter import Parameter, Proposal
from darrm.plan.tables import certified
from darrm.problem import Workload

Gammas = Callable[[float], NoiseFunction]  # the larger the number, the more of the truth is told


def family_of(
    gammas: Gammas, name: str = "own γ", *, start: float = 0.05, limits: tuple[float, float] = (0.0, math.inf)
) -> Family:
    """Make a family that `darrm.plan.plan` and `darrm.advise.advise` take of a function that returns a γ.

    Parameters
    ----------
    gammas
        number → `NoiseFunction` for all K voters: it costs more, the larger the number is.
    name
        As reports show it.
    start, limits
        The number that the search starts with, and the least and the largest.
    """

    def parameters(search: Search) -> Iterator[Parameter]:
        for release in releases_of(search.workload):
            make = partial(_proposal, release, gammas)
            yield Parameter(workload=release, make=make, start=start, limits=limits)

    return Family(name, parameters, "the largest number that the accountant admits.", classes=(2, 2))


def largest(
    gammas: Gammas, workload: Workload, *, start: float = 0.05, limits: tuple[float, float] = (0.0, math.inf)
) -> Option:
    """Find the largest number whose γ, certified, stays within a budget for all queries: with its table, to release.

    `PlanError` if there is none. Here 20 queries share ε = 2: (1 − 3s)/(1 − 5s) = e^0.1 at s = 0.0416.

    >>> from darrm import PrivacyParams, Voters
    >>> work = Workload(Voters(5, PrivacyParams("inf"), overlap=1), 20, PrivacyParams(2))
    >>> found = largest(lambda slope: NoiseFunction.from_function(5, lambda l: min(1.0, slope * (2 * l - 5))), work)
    >>> round(found.settings["number"], 4), found.spent.epsilon <= 2
    (0.0416, True)
    """
    return calibrate(workload, family_of(gammas, start=start, limits=limits))


def _proposal(release: Workload, gammas: Gammas, number: float) -> Proposal:
    return certified(release, gammas(number), {"number": number})
