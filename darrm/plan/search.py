"""The best release of many votes within one budget.

Every family of `darrm.plan.families` that a plan asks is calibrated, and the member is taken that has the smallest
expected error or, of more than two classes, the largest share of right labels under the prior that is said. Where none
is said, all are calibrated for the mean of three beliefs (voters divided, mixed, agreeing), and the one is taken that
loses least to the best of them, in the belief where it loses most. The optimum under a
Rényi budget comes first, as it needs no trials of the accountant: the others are tried only where they may be better
than what is known, so what is reported of one that does not win may be less than the best of its kind.

The winner is the best of these and not of all laws (`experiments.aggregators` says how it compares).

Private *models* that answer several queries are planned for as plain voters, within what both ends leave for the
release (`darrm.plan.budget`); a table is then certified for the models themselves. Where the models alone stay within
the budget, the votes need no noise, and γ = 1 is returned with the models' own cost.

Nothing here is a claim. What is found is certified, or charged for what it is, and the total is what the accountant
reports for Q such charges.
"""

import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from darrm.account.accountant import Spent
from darrm.errors import PlanError, checks
from darrm.laws import priors
from darrm.laws.priors import Prior
from darrm.losses.composition import TooManyKindsError
from darrm.optimize.closed_form import has_closed_form
from darrm.optimize.question import check_size, default_shape
from darrm.pate.files import Released, save_release
from darrm.plan.budget import needs_no_noise, releases_of
from darrm.plan.families import FAMILIES
from darrm.plan.family import Family, calibrate
from darrm.plan.option import Option, how_to_release
from darrm.plan.share_right import Measure, without_silent_classes
from darrm.problem import Workload, classes_to_json
from darrm.proof.table import Table
from darrm.system.progress import StatusLine

# voters times one more than those whom one person reaches: beyond, a plan takes a minute or more
_MINUTES = 50_000
_STOPPED = "not tried: the search was stopped"


@dataclass(frozen=True, eq=False)
class Plan:
    """The best release found for a workload.

    Attributes
    ----------
    workload
        What is to be released.
    prior
        The public belief that decided.
    options
        All that were found, the best first.
    refused
        Families that have nothing to offer, with the reason.
    listed
        Of how many classes the list is that is planned like open answers; 0 where none is.
    """

    workload: Workload
    prior: Prior
    options: tuple[Option, ...]
    refused: tuple[tuple[str, str], ...]
    listed: int = 0

    @property
    def best(self) -> Option:
        """The option with the smallest expected error; of more classes with the largest share of right labels.

        Where no prior was said, of more classes the one with the smallest regret.
        """
        return self.options[0]

    @property
    def candidates(self) -> tuple[Option, ...]:
        """The options."""
        return self.options

    @property
    def option(self) -> Option:
        """The best option."""
        return self.best

    @property
    def table(self) -> Table:
        """The proven table of the best, to be saved and released from; `PlanError` where it has none."""
        if self.best.table is None:
            raise PlanError("a noisy maximum has no table: say plan.aggregator, or plan.save(path)")
        return self.best.table

    @property
    def aggregator(self) -> Released:
        """What releases the answers."""
        if not isinstance(self.best.aggregator, Released):
            raise PlanError(f"{self.best.name} is only compared: no file releases it")
        return self.best.aggregator

    def save(self, path: str | Path) -> None:
        """Write what releases the answers, and `claims`, to a file that `darrm.pate.files.load_release` reads."""
        save_release(path, self.aggregator, self.claims)

    @property
    def claims(self) -> dict[str, Any]:
        """What is claimed of the answers, as plain data: whoever verifies the file judges every number of it."""
        spent, share, error = self.spent, self.best.share_right, self.best.expected_error
        claimed: dict[str, Any] = {
            "family": self.best.name,
            "workload": {**self.workload.to_json(), "classes": classes_to_json(self.workload.classes)},
            "spent": {"epsilon": spent.epsilon, "delta": spent.delta, "bound": spent.bound},
            "prior": priors.to_json(self.prior, self.workload.voters.K, self.workload.classes),
        }
        if share is not None:
            claimed["share_right"] = share.to_json()
        if self.best.columns:
            claimed["columns"] = {name: column.to_json() for name, column in self.best.columns.items()}
        return claimed if error is None else {**claimed, "expected_error": error}

    @property
    def spent(self) -> Spent:
        """What the accountant reports for all queries."""
        return self.best.spent


def plan(
    workload: Workload,
    *,
    prior: Prior | None = None,
    families: Sequence[Family] | None = None,
    report: Callable[[str], None] | None = None,
    stoppable: bool = False,
) -> Plan:
    """Find the release of a workload that stays within its total budget and tells the truth most often.

    Parameters
    ----------
    workload
        The voters, how many votes are released, and the budget of all of them together.
    prior
        A public belief, of two classes with linear expected error; by default `Dirichlet` for two classes, under
        which every histogram is equally likely, and `Spread` for more.
    families
        What is tried; by default those of `darrm.plan.families.FAMILIES` that may win.
    report
        Called with a few words at every step.
    stoppable
        Whether Ctrl-C (`KeyboardInterrupt`) returns the best of what was calibrated until then, with a warning.

    Returns
    -------
    Plan
        What releases: the accountant's total for all queries is at most ``workload.total``.

    Raises
    ------
    ValueError
        If an argument lies outside its range, or there are more voters than `optimize_table` takes.
    PlanError
        If no release within the budget was found.

    Warns
    -----
    UserWarning
        If (t + 1)·K > 50,000 for t voters whom one person reaches: the plan takes a minute or more.

    Examples
    --------
    >>> from darrm import PrivacyParams, Voters
    >>> found = plan(Workload(Voters(101, PrivacyParams("inf"), overlap=1), 100, PrivacyParams(3, 1e-5)))
    >>> found.best.name, found.spent.epsilon <= 3
    ('Rényi', True)
    >>> found = plan(Workload(Voters(50, PrivacyParams("inf"), overlap=1), 20, PrivacyParams(2, 1e-5), classes=10))
    >>> found.spent.epsilon <= 2, found.best.share_right.value > 0.3
    (True, True)
    """
    if not isinstance(workload, Workload):
        checks.fail("workload", workload, "a Workload(voters, queries, total)")
    workload, prior, listed = without_silent_classes(workload, prior)
    measure = Measure(workload, prior)
    # where the optimum of private voters is out of reach, what it always beats may be the best there is
    voters = workload.voters
    all_of_them = families or (not workload.has_noise_function and voters.private_kinds and not voters.models)
    asked = [family for family in families or FAMILIES if family.planned or all_of_them]
    asked = [family for family in asked if not family.only_compared]
    asked = [family for family in asked if family.is_for(workload.classes)]
    check_size_of(workload)
    options, refused = options_of(workload, measure, asked, report, stoppable=stoppable)
    if not options:
        left_out = [family.only_compared or family.meant_for for family in families or () if family not in asked]
        reasons = [*(reason for _, reason in refused), *left_out]
        raise PlanError("no release within this budget was found: " + "; ".join(dict.fromkeys(reasons)))
    best = options[0]
    if best.aggregator is None:
        raise PlanError(f"{best.remark} {best.instructions[0].capitalize()}".removesuffix("."))
    if families is None:
        options[0] = replace(best, instructions=how_to_release(workload, measure.prior))
    return Plan(workload, measure.prior, tuple(options), tuple(refused), listed)


def options_of(
    workload: Workload,
    measure: Measure,
    families: Sequence[Family],
    report: Callable[[str], None] | None = None,
    *,
    complete: bool = False,
    stoppable: bool = False,
) -> tuple[list[Option], list[tuple[str, str]]]:
    """Calibrate families: the options that apply, the best first, and (name, reason) of the others.

    With ``complete`` also those that cannot be better than what is known, but for what takes long.
    """
    options: list[Option] = []
    refused: list[tuple[str, str]] = []
    try:
        _calibrate_all((workload, measure), families, report, complete=complete, into=(options, refused))
    except KeyboardInterrupt:
        if not stoppable:
            raise
        if not options:
            raise PlanError("stopped before any release was found: give it more time") from None
        named = {name for name, _ in refused} | {option.name for option in options}
        refused += [
            (family.name, _STOPPED) for family in families if family.arises(workload) and family.name not in named
        ]
        warnings.warn("stopped early: what follows is the best until then, and not the best of all", stacklevel=3)
    return ranked(options, measure), refused


def ranked(options: Sequence[Option], measure: Measure) -> list[Option]:
    """Sort options, the best first, and say of each what it loses to the best of a column, at most.

    Of equals the one that was asked first stays before the others.
    """
    names = options[0].columns if options else ()
    best = {name: max(option.columns[name].value for option in options) for name in names}
    known = [
        replace(option, regret=max(best[name] - option.columns[name].value for name in best)) if best else option
        for option in options
    ]
    return sorted(known, key=lambda option: ((measure.by_regret and option.regret) or 0.0, option.wrong))


def _calibrate_all(
    asked: tuple[Workload, Measure],
    families: Sequence[Family],
    report: Callable[[str], None] | None,
    *,
    complete: bool,
    into: tuple[list[Option], list[tuple[str, str]]],
) -> None:
    """Add what is calibrated, whole options only, and what is refused, to two lists: they hold if this is stopped."""
    (workload, measure), (options, refused) = asked, into
    show = report or StatusLine(enabled=False).show
    settled = ""  # why nothing else is tried
    for family in (family for family in families if family.arises(workload)):
        if settled and (family.optimal or not complete):
            refused.append((family.name, settled))
            continue
        show(family.name)
        least = min((option.wrong for option in options), default=math.inf)
        to_beat = math.inf if complete and not family.optimal else least
        try:
            options.append(calibrate(workload, family, measure=measure, to_beat=to_beat, report=show, fine=False))
        except (PlanError, TooManyKindsError, ValueError) as error:  # one that is out of its range leaves the others
            refused.append((family.name, str(error)))
            continue
        if options[-1].wrong == 0.0:
            settled = "nothing is left to gain"
        elif family.best_of_one and workload.queries == 1 and not workload.missing:
            settled = "of one query the optimum is known"
    if options:
        best = options[[option.name for option in options].index(ranked(options, measure)[0].name)]
        if best.place is not None and best.place[0].precision.rough:
            family = next(family for family in families if family.name == best.name)
            options[options.index(best)] = calibrate(workload, family, measure=measure, report=show)


def check_size_of(workload: Workload) -> None:
    """Refuse before the work what needs too much memory, and say what takes minutes."""
    if not workload.has_noise_function or needs_no_noise(workload):
        return
    for release in releases_of(workload):
        voters = release.voters
        if not has_closed_form(voters):
            check_size(voters, default_shape(voters))
    K, reached = voters.K, voters.reached
    if (reached + 1) * K > _MINUTES:
        warnings.warn(
            f"a plan for {K:,} voters, {reached:,} of whom one person reaches, takes a minute or more: with fewer "
            "voters, or less overlap, it takes seconds",
            stacklevel=3,
        )
