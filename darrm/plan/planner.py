"""The best release of many votes within one budget: calibrate all mechanisms, and rank them in one table.

The first mechanism has the highest accuracy under the prior. Without a prior, the ranking is by minimax regret: the
largest loss of accuracy to the best mechanism under the reference priors of low, medium and high consensus; the
calibration is for their mean. Equal mechanisms are sorted by ε. A slow calibration ends early if it does not beat the
best so far, and the plan lists it as left out.

Private *models* with several queries are planned as non-private voters, within the joint bound of models and release
(`darrm.plan.budget`); a table is then certified for the models. Models within the budget need no noise.
"""

import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace

from darrm.errors import PlanError
from darrm.loss.composition import TooManyKindsError
from darrm.majority.closed_form import has_closed_form
from darrm.optimize.request import check_size, default_shape
from darrm.plan.accuracy import Measure, without_silent_classes
from darrm.plan.budget import needs_no_noise, releases_of
from darrm.plan.calibrated import CalibratedMechanism
from darrm.plan.calibration import calibrate
from darrm.plan.mechanism import Mechanism, no_report
from darrm.plan.mechanisms import MECHANISMS
from darrm.plan.results import Plan, rank_of, wrong_of
from darrm.priors import Prior
from darrm.problem import Workload
from darrm.util import checks
from darrm.util.progress import stoppable_search

# voters times one more than the overlap: beyond, a plan takes a minute or more
_MINUTES = 50_000
_LONGEST_REASON = 320  # characters of all reasons in an error
_STOPPED = "not calibrated; the search was stopped"


def plan(
    workload: Workload,
    *,
    prior: Prior | str | None = None,
    mechanisms: Sequence[type[Mechanism]] | None = None,
    objective: str = "accuracy",
    complete: bool = False,
    report: Callable[[str], None] = no_report,
    stoppable: bool = False,
) -> Plan:
    """Calibrate mechanisms to the total budget of a workload, and rank them by accuracy.

    Parameters
    ----------
    workload
        The voters, the number of queries, and the budget of all of them together.
    prior
        A public prior of the votes; by default the ranking is by minimax regret over three reference priors.
    mechanisms
        The mechanisms to calibrate; by default `darrm.plan.mechanisms.MECHANISMS`.
    objective
        "accuracy" or, for two classes, "error": the expected error [D, Definition 2.4].
    complete
        Whether to calibrate slow mechanisms to the end where they do not beat the best so far.
    report
        Called with a few words at every step.
    stoppable
        Whether Ctrl-C (`KeyboardInterrupt`) returns the best until then, with a warning.

    Returns
    -------
    Plan
        The accountant's total for all queries of each row is at most ``workload.total``.

    Raises
    ------
    ValueError
        If an argument is out of range, or there are more voters than `optimize_table` takes.
    PlanError
        If no mechanism stays within the budget.

    Warns
    -----
    UserWarning
        If (t + 1)·K > 50,000 for an overlap of t voters: the plan takes a minute or more.

    Examples
    --------
    >>> from darrm import PrivacyParams, Voters
    >>> found = plan(Workload(Voters(101, PrivacyParams("inf"), overlap=1), 100, PrivacyParams(3, 1e-5)))
    >>> found.best.slug, found.spent.epsilon <= 3
    ('rdp-optimal', True)
    """
    if not isinstance(workload, Workload):
        checks.fail("workload", workload, "a Workload(voters, queries, total)")
    workload, prior, listed = without_silent_classes(workload, prior)
    measure = Measure(workload, prior, objective)
    _check_size(workload)
    asked = [mechanism for mechanism in mechanisms or MECHANISMS if mechanism.applies_to(workload)]
    rows: list[CalibratedMechanism] = []
    left_out: list[tuple[str, str]] = []
    try:
        with stoppable_search(enabled=stoppable):
            _calibrate_all((workload, measure), asked, report, complete=complete, into=(rows, left_out))
    except KeyboardInterrupt:
        if not stoppable:
            raise
        if not rows:
            raise PlanError("stopped before any mechanism was calibrated: take more time") from None
        known = {row.slug for row in rows} | {slug for slug, _ in left_out}
        left_out += [(mechanism.slug, _STOPPED) for mechanism in asked if mechanism.slug not in known]
        warnings.warn("stopped early: the plan is the best until then", stacklevel=2)
    if not rows:
        reasons = list(dict.fromkeys(reason for _, reason in left_out))
        words = "; ".join(reasons)
        if len(words) > _LONGEST_REASON:
            words = f"{reasons[0]}; and {len(reasons) - 1} more reasons"
        raise PlanError(f"no mechanism stays within this budget: {words}")
    return Plan(workload, measure, tuple(_ranked(rows, measure)), tuple(left_out), listed)


def _calibrate_all(
    asked: tuple[Workload, Measure],
    mechanisms: Sequence[type[Mechanism]],
    report: Callable[[str], None],
    *,
    complete: bool,
    into: tuple[list[CalibratedMechanism], list[tuple[str, str]]],
) -> None:
    """Add calibrated mechanisms and the reasons of others to two lists, which stay valid if this is stopped."""
    (workload, measure), (rows, left_out) = asked, into
    skipped = ""  # why slow mechanisms are skipped
    for mechanism in mechanisms:
        if skipped and mechanism.is_slow and not complete:
            left_out.append((mechanism.slug, skipped))
            continue
        report(mechanism.slug)
        best = min((wrong_of(row, measure) for row in rows), default=math.inf)
        to_beat = best if mechanism.is_slow and not complete else math.inf
        try:
            row = calibrate(workload, mechanism, measure=measure, to_beat=to_beat, report=report, is_fine=False)
        except (PlanError, TooManyKindsError, ValueError) as error:  # one out of its range leaves the others
            left_out.append((mechanism.slug, str(error)))
            continue
        rows.append(row)
        if wrong_of(row, measure) == 0.0:
            skipped = f"not calibrated; {row.slug} is always right"
        elif mechanism.is_best_of_one and workload.queries == 1 and not workload.missing:
            skipped = f"not calibrated; {row.slug} is the optimum for one query"
    if rows:
        first = _ranked(rows, measure)[0]
        if first.is_rough:
            (mechanism,) = [one for one in mechanisms if one.slug == first.slug]
            place = [row.slug for row in rows].index(first.slug)
            rows[place] = calibrate(workload, mechanism, measure=measure, report=report)


def _ranked(rows: Sequence[CalibratedMechanism], measure: Measure) -> list[CalibratedMechanism]:
    """Sort, the best first, and compute the regret of each."""
    names = rows[0].consensus
    best = {name: max(row.consensus[name].value for row in rows) for name in names}
    if best:
        rows = [replace(row, regret=max(best[name] - row.consensus[name].value for name in best)) for row in rows]
    return sorted(rows, key=lambda row: rank_of(row, measure))


def _check_size(workload: Workload) -> None:
    """Refuse what needs too much memory, and warn of what takes minutes."""
    if not workload.has_noise_function or needs_no_noise(workload):
        return
    for release in releases_of(workload):
        if not has_closed_form(release.voters):
            check_size(release.voters, default_shape(release.voters))
    K, overlap = workload.voters.K, workload.voters.reached
    if (overlap + 1) * K > _MINUTES:
        warnings.warn(
            f"a plan for {K:,} voters with an overlap of {overlap:,} takes a minute or more: fewer voters, or less "
            "overlap, take seconds",
            stacklevel=3,
        )
