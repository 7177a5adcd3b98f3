"""The list of mechanisms, and mechanisms of your own γ."""

import math
from collections.abc import Callable
from difflib import get_close_matches

from darrm.majority.noise_function import NoiseFunction
from darrm.plan.calibration import CalibratedMechanism, calibrate
from darrm.plan.mechanism import Mechanism, Proposal
from darrm.plan.noisy import AnalyticGNMax, AsymmetricNoiseMax, GNMax, LNMax, LNMaxByCounts, PaperGNMax
from darrm.plan.optimum import Optimal, PaperDaRRM, RDPOptimal
from darrm.plan.tables import (
    DoubleSubsampling,
    Exponential,
    NoNoise,
    PermuteAndFlip,
    RandomizedResponse,
    Subsampling,
    TableProposal,
)
from darrm.plan.tested import TestedConfident, TestedGNMax, TestedGNMaxElse
from darrm.problem import Workload
from darrm.util import checks

Gammas = Callable[[float], NoiseFunction]  # the larger the number, the higher the accuracy

MECHANISMS: tuple[type[Mechanism], ...] = (
    NoNoise,
    RDPOptimal,
    Optimal,
    PermuteAndFlip,
    Exponential,
    GNMax,
    LNMax,
    AsymmetricNoiseMax,
    PaperGNMax,
    AnalyticGNMax,
    LNMaxByCounts,
    Subsampling,
    DoubleSubsampling,
    PaperDaRRM,
    RandomizedResponse,
)
# their plan rests on public votes, which say whether a test passes
TESTED: tuple[type[Mechanism], ...] = (TestedGNMax, TestedGNMaxElse, TestedConfident)
RELEASED = tuple(mechanism for mechanism in MECHANISMS if not mechanism.only_compared)


def named(slug: str) -> type[Mechanism]:
    """Return the mechanism of a slug; `ValueError` if there is none.

    >>> named("permute-and-flip").classes
    (2, 1000)
    """
    every = {mechanism.slug: mechanism for mechanism in (*MECHANISMS, *TESTED)}
    if slug not in every:
        close = get_close_matches(str(slug), every, n=1)
        checks.fail("the mechanism", slug, "one of " + ", ".join(every), f"did you mean {close[0]}?" if close else "")
    return every[slug]


def mechanism_of(
    gammas: Gammas,
    name: str = "own γ",
    *,
    slug: str = "own",
    start: float = 0.05,
    limits: tuple[float, float] = (0.0, math.inf),
) -> type[Mechanism]:
    """Make a mechanism that `darrm.plan.plan` takes of a function that returns a γ.

    ``gammas`` returns the `NoiseFunction` of all K voters for a number; it costs more, the larger the number is. The
    search starts with ``start`` and stays within ``limits``.
    """

    class Own(Mechanism):
        about = "the largest number that the accountant admits."
        classes, is_table = (2, 2), True

        def at(self, parameter: float) -> Proposal:
            return TableProposal(self.workload, {"number": parameter}, gammas(parameter))

    Own.name, Own.slug, Own.start, Own.limits = name, slug, start, limits
    return Own


def largest(
    gammas: Gammas, workload: Workload, *, start: float = 0.05, limits: tuple[float, float] = (0.0, math.inf)
) -> CalibratedMechanism:
    """Find the largest number whose γ, certified, stays within a budget for all queries: with its table, to release.

    `PlanError` if there is none. Here 20 queries share ε = 2: (1 − 3s)/(1 − 5s) = e^0.1 at s = 0.0416.

    >>> from darrm import PrivacyParams, Voters
    >>> work = Workload(Voters(5, PrivacyParams("inf"), overlap=1), 20, PrivacyParams(2))
    >>> found = largest(lambda slope: NoiseFunction.from_function(5, lambda l: min(1.0, slope * (2 * l - 5))), work)
    >>> round(found.settings["number"], 4), found.spent.epsilon <= 2
    (0.0416, True)
    """
    return calibrate(workload, mechanism_of(gammas, start=start, limits=limits))
