"""Which aggregator to use: every family that applies to a workload, ranked by how often it is right.

What is counted depends on how the voters draw their randomness. Private voters that draw it afresh at every query
compose a query at a time. Private *models* do not: their votes on all queries share the training's randomness. Either
any number of answers is post-processing of the models a person reaches (then no noise is needed), or every option is
calibrated as for voters that are not private, within what both ends leave for it: see `darrm.plan.budget`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from darrm.advise.long_lists import where_open_wins
from darrm.errors import PlanError, checks
from darrm.laws.priors import Prior
from darrm.optimize.plurality_bounds import share_right_at_most
from darrm.plan.families import FAMILIES
from darrm.plan.family import Family
from darrm.plan.option import Option, how_counted
from darrm.plan.remedies import as_open, reaches_all, remedies
from darrm.plan.search import Plan, check_size_of, options_of
from darrm.plan.share_right import MOST_LISTED, Measure, ShareRight, coin, histograms, without_silent_classes
from darrm.problem import Workload, is_open


@dataclass(frozen=True)
class Advice:
    """The options that apply, the best first, and what else should be known.

    Attributes
    ----------
    workload
        What was asked.
    prior
        The public belief.
    options
        Ranked by `Option.accuracy` under the prior; for more than two classes by their share of right labels or, where
        no prior was said, by `Option.regret`.
    absent
        (name, reason) of what does not apply.
    coin
        The share of right labels of a label that looks at nothing.
    help
        What would make more labels right, where too few are.
    """

    workload: Workload
    prior: Prior
    options: tuple[Option, ...]
    absent: tuple[tuple[str, str], ...]
    coin: ShareRight | None = None
    help: tuple[str, ...] = ()

    @property
    def recommended(self) -> Option:
        """The best option that this library releases; some are there for comparison only.

        Raises
        ------
        PlanError
            If there is none.
        """
        for option in self.options:
            if option.instructions:
                return option
        raise PlanError("none of the options that apply is released by this library: ask for another budget")

    @property
    def coin_accuracy(self) -> float | None:
        """The accuracy of a fair coin under the prior; None for more than two classes."""
        error = Measure(self.workload, self.prior).expected_error(coin)
        return None if error is None else 1.0 - error

    @property
    def remarks(self) -> tuple[str, ...]:
        """Sentences about this workload."""
        asked, best = self.workload, self.options[0]
        noiseless = best.remark
        if not noiseless and bool(np.all(best.truth == 1.0)):
            parallel = "a person reaches one voter, so an answer costs what one voter costs (parallel composition)"
            reason = parallel if asked.voters.reached == 1 else "the voters are private enough"
            noiseless = f"No noise is needed: {reason}."
        return tuple(remark for remark in (noiseless, how_counted(asked), *self.help) if remark)


def advise(
    workload: Workload,
    *,
    prior: Prior | None = None,
    families: Sequence[Family] | None = None,
    report: Callable[[str], None] | None = None,
    stoppable: bool = False,
) -> Advice:
    """Calibrate everything that applies, and rank it.

    Parameters
    ----------
    workload, prior, stoppable
        As for `darrm.plan.plan`.
    families
        What is asked; `darrm.plan.families.FAMILIES` by default.
    report
        Called with the name of each family before it is calibrated.

    Raises
    ------
    PlanError
        If nothing applies.

    Examples
    --------
    >>> from darrm import PrivacyParams, Voters, Workload
    >>> found = advise(Workload(Voters(11, PrivacyParams("inf"), overlap=1), 1, PrivacyParams("0.2676", "0.0003")))
    >>> {option.name: round(float(option.truth[-1]), 3) for option in found.options}  # for 11 of 11 votes
    {'per query': 0.887, 'Rényi': 0.887, 'permute-and-flip': 0.886, 'exponential mechanism': 0.855, \
'LNMax by label': 0.828, 'LNMax': 0.801, 'GNMax, tight σ': 0.727, 'GNMax by label': 0.727, \
"GNMax, paper's σ": 0.641, 'randomized response': 0.567}
    """
    if not isinstance(workload, Workload):
        checks.fail("workload", workload, "a Workload(voters, queries, total)")
    workload, prior, listed = without_silent_classes(workload, prior)
    measure = Measure(workload, prior)
    asked = FAMILIES if families is None else families
    apply = [family for family in asked if family.is_for(workload.classes)]
    known = {family.name for family in apply}
    others = {family.name: family.meant_for for family in asked if family.name not in known}
    check_size_of(workload)
    options, refused = options_of(workload, measure, apply, report, complete=True, stoppable=stoppable)
    absent = (*refused, *others.items())
    if not options:
        raise PlanError("nothing applies: " + "; ".join(f"{name}: {reason}" for name, reason in absent))
    released = [option for option in options if option.aggregator is not None]
    of_released = Plan(workload, measure.prior, tuple(released), ())
    long_list = as_open(listed) or where_open_wins(workload, measure, options)
    help_ = (*reaches_all(workload), *_limit(workload, measure), *remedies(of_released), *long_list)
    return Advice(workload, measure.prior, tuple(options), absent, measure.coin, help_)


def _limit(workload: Workload, measure: Measure) -> tuple[str, ...]:
    if measure.expected_error(coin) is not None or not workload.voters.are_plain or is_open(workload.classes):
        return ()
    # with dice for those that are missing a release is one of the votes that are there
    there, overlap = workload.voters.K - workload.missing, workload.voters.overlap
    voters = replace(workload.voters, K=there, overlap=None if overlap is None else min(overlap, there))
    present = replace(workload, voters=voters, missing=0)
    share = share_right_at_most(present, *histograms(measure.prior, there, workload.classes, MOST_LISTED))
    return (f"No private release whatsoever is right more often than {share:.5f} under this prior.",)
