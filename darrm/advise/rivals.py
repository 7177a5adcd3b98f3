"""Every other way to release a workload within its budget, and why the ones that are missing do not apply."""

from __future__ import annotations

from dataclasses import dataclass

from darrm.advise.noisy_counts import (
    exponential_mechanism,
    gnmax_of_the_paper,
    gnmax_tight,
    lnmax,
    permute_and_flip,
)
from darrm.advise.tables import rivals_of_tables
from darrm.gamma.priors import CommonP, Prior
from darrm.plan.option import ReleaseOption
from darrm.problem import Workload

GAUSSIAN = {"GNMax, paper's σ": gnmax_of_the_paper, "GNMax, tight σ": gnmax_tight}
PURE = (lnmax, exponential_mechanism, permute_and_flip)


@dataclass(frozen=True)
class Rivals:
    """The options that apply, and (name, reason) of those that do not."""

    options: tuple[ReleaseOption, ...]
    absent: tuple[tuple[str, str], ...]


def rivals(workload: Workload, prior: Prior | None = None) -> Rivals:
    """Calibrate every other aggregator to the workload's budget.

    Parameters
    ----------
    workload
        What is to be released.
    prior
        Decides between tables of the paper's DaRRM; `CommonP` by default.

    Examples
    --------
    >>> from darrm.problem import Voters, Workload
    >>> from darrm.privacy import PrivacyParams
    >>> found = rivals(Workload(Voters(11, PrivacyParams("inf"), overlap=1), 1, PrivacyParams("0.2676", "0.0003")))
    >>> {option.name: round(float(option.truth[-1]), 3) for option in found.options}  # for 11 of 11 votes
    {"GNMax, paper's σ": 0.641, 'GNMax, tight σ': 0.727, 'LNMax': 0.801, 'exponential mechanism': 0.855, \
'permute-and-flip': 0.886, 'randomised response': 0.567}
    """
    options: list[ReleaseOption] = []
    absent: list[tuple[str, str]] = []
    for name, gaussian in GAUSSIAN.items():
        if workload.total.exact_delta == 0:
            absent.append((name, "Gaussian noise gives no (epsilon, 0)"))
            continue
        try:
            options.append(gaussian(workload))
        except ValueError as error:
            absent.append((name, str(error)))
    options += [mechanism(workload) for mechanism in PURE]
    found, missing = rivals_of_tables(workload, CommonP() if prior is None else prior)
    return Rivals((*options, *found), (*absent, *missing))
