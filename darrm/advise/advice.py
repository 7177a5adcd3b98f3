"""Which aggregator to use: every option that applies to a workload, ranked by how often it is right.

What is counted depends on how the voters draw their randomness. Private voters that draw it afresh at every query
compose a query at a time. Private *models* do not: their votes on all queries share the training's randomness. Either
any number of answers is post-processing of the models a person reaches (then no noise is needed), or every option is
calibrated as for voters that are not private, within what both ends leave for it: see `darrm.plan.budget`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from darrm import checks
from darrm.advise import contenders as registry
from darrm.advise.contenders import Contender
from darrm.advise.plurality import BY_COUNTS, TWO_CLASSES_ONLY, gnmax_by_counts
from darrm.errors import PlanError
from darrm.laws.noise_function import NoiseFunction
from darrm.laws.priors import Dirichlet, Prior, weights_of
from darrm.optimize.plurality_bounds import share_right_at_most
from darrm.plan.budget import counted, needs_no_noise
from darrm.plan.option import ReleaseOption, how_counted
from darrm.plan.plurality import check_plurality, default_prior
from darrm.plan.remedies import remedies
from darrm.plan.search import plan
from darrm.plan.share_right import MOST_LISTED, ShareRight, coin, histograms, share_of_majorities, share_right
from darrm.problem import Workload


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
        Ranked by `ReleaseOption.accuracy` under the prior; for more than two classes by their share of right labels.
    absent
        (name, reason) of what does not apply.
    coin
        The share of right labels of a label that looks at nothing.
    help
        What would make more labels right, where too few are.
    """

    workload: Workload
    prior: Any  # a `Prior`, or a `Prior` for more than two classes
    options: tuple[ReleaseOption, ...]
    absent: tuple[tuple[str, str], ...]
    coin: ShareRight | None = None
    help: tuple[str, ...] = ()

    @property
    def recommended(self) -> ReleaseOption:
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
        if self.workload.classes > 2:
            return None
        voters = self.workload.voters
        return 1.0 - NoiseFunction(voters.K, np.zeros(voters.half_size)).expected_error(self.prior)

    @property
    def remarks(self) -> tuple[str, ...]:
        """Sentences about this workload."""
        asked, release, best = self.workload, counted(self.workload), self.options[0]
        noiseless = best.remark
        if not noiseless and bool(np.all(best.truth == 1.0)):
            parallel = "a person reaches one voter, so an answer costs what one voter costs (parallel composition)"
            reason = parallel if asked.voters.reached == 1 else "the voters are private enough"
            noiseless = f"No noise is needed: {reason}."
        hopeless = ""
        if release.voters.are_plain and release.voters.reached == release.voters.K:
            hopeless = (
                "One person may move every vote, so nothing beats randomized response. If a person's data reach fewer "
                "voters (disjoint shards: one), say so with --overlap."
            )
        return tuple(remark for remark in (noiseless, how_counted(asked), hopeless, *self.help) if remark)


def advise(
    workload: Workload,
    *,
    prior: Prior | None = None,
    contenders: Sequence[Contender] | None = None,
    report: Callable[[str], None] | None = None,
) -> Advice:
    """Calibrate everything that applies, and rank it.

    Parameters
    ----------
    workload, prior
        As for `darrm.plan.plan`.
    contenders
        The aggregators that are asked; `darrm.advise.contenders.CONTENDERS` by default. For more than two classes the
        plan and what it tried are always among the options, and those that are not of the default list are added.
    report
        Called with the name of each aggregator before it is calibrated.

    Raises
    ------
    PlanError
        If nothing applies.
    ValueError
        If one that is added does not say its share of right labels for more than two classes.

    Examples
    --------
    >>> from darrm import PrivacyParams, Voters, Workload
    >>> voters = Voters(11, PrivacyParams("0.0892", "1e-4"), overlap=1, models=True)
    >>> advise(Workload(voters, 100, PrivacyParams(1, "1e-4"))).options[0].name
    'no noise: private models'
    >>> found = advise(Workload(Voters(11, PrivacyParams("inf"), overlap=1), 1, PrivacyParams("0.2676", "0.0003")))
    >>> {option.name: round(float(option.truth[-1]), 3) for option in found.options}  # for 11 of 11 votes
    {'ours': 0.887, 'permute-and-flip': 0.886, 'exponential mechanism': 0.855, \
'LNMax by label': 0.828, 'LNMax': 0.801, 'GNMax, tight σ': 0.727, 'GNMax by label': 0.726, \
"GNMax, paper's σ": 0.641, 'randomized response': 0.567}
    """
    if not isinstance(workload, Workload):
        checks.fail("workload", workload, "a Workload(voters, queries, total)")
    asked = registry.CONTENDERS if contenders is None else contenders
    if workload.classes > 2:
        return _of_pluralities(workload, prior, asked, report)
    belief: Any = Dirichlet() if prior is None else prior
    weights_of(belief, workload.voters.K)  # a prior without linear expected error says so before the search
    found, absent = _calibrated(asked, workload, belief, report)
    options = [
        replace(option, share_right=share_of_majorities(option.truth, workload.voters.K, belief)) for option in found
    ]
    if not options:
        raise PlanError("nothing applies: " + "; ".join(f"{name}: {reason}" for name, reason in absent))
    # stable: of equals the one that was asked first stays before the others
    ranked = sorted(options, key=lambda option: -option.accuracy(belief))
    guess = share_of_majorities(np.full(workload.voters.half_size, 0.5), workload.voters.K, belief)
    return Advice(workload, belief, tuple(ranked), tuple(absent), guess)


def _calibrated(
    contenders: Sequence[Contender],
    workload: Workload,
    prior: Any,  # noqa: ANN401 (a `Prior`, or a `Prior` for more than two classes)
    report: Callable[[str], None] | None,
) -> tuple[list[ReleaseOption], list[tuple[str, str]]]:
    """Calibrate every contender; return the options that apply, and the names of the others with their reasons."""
    options, absent = [], []
    for contender in contenders:
        if report is not None:
            report(contender.name)
        try:
            option = contender.calibrate(workload, prior)
        except (PlanError, ValueError) as error:  # one that is out of its range leaves the others
            absent.append((contender.name, str(error)))
        else:
            if option is not None:
                options.append(replace(option, name=contender.name))
    return options, absent


def _of_pluralities(
    workload: Workload,
    prior: Prior | None,
    contenders: Sequence[Contender],
    report: Callable[[str], None] | None,
) -> Advice:
    """Rank what the plan found for more than two classes, and what is only compared."""
    belief: Any = default_prior() if prior is None else prior
    check_plurality(workload, belief)
    guess = share_right(coin, workload.voters.K, workload.classes, belief)
    absent = [(each.name, TWO_CLASSES_ONLY) for each in contenders if each.two_classes_only]
    noiseless = registry.no_noise(workload, belief) if needs_no_noise(workload) else None
    if noiseless is not None:
        return Advice(workload, belief, (noiseless,), tuple(absent), guess)
    found = plan(workload, prior=belief, report=report)
    options = [found.option, *(candidate.option() for candidate in found.candidates[1:])]
    try:
        options.append(gnmax_by_counts(workload, belief))
    except (PlanError, ValueError) as error:
        absent.append((BY_COUNTS, str(error)))
    own = [each for each in contenders if each not in registry.CONTENDERS and not each.two_classes_only]
    added, refused = _calibrated(own, workload, belief, report)
    for option in added:
        if option.share_right is None:
            advice = "darrm.plan.share_right.share_right computes it from the law of the answers"
            checks.fail(f"share_right of {option.name}", None, "given for more than two classes", advice)
    absent += refused
    ranked = sorted([*options, *added], key=lambda option: -option.right)
    help_ = (*_limit(workload, belief), *remedies(found))
    return Advice(workload, belief, tuple(ranked), (*found.refused, *absent), guess, help_)


def _limit(workload: Workload, prior: Prior) -> tuple[str, ...]:
    """Write how often no private release whatsoever can be right."""
    if not workload.voters.are_plain:
        return ()
    share = share_right_at_most(workload, *histograms(prior, workload.voters.K, workload.classes, MOST_LISTED))
    return (f"No private release whatsoever is right more often than {share:.5f} under this prior.",)
