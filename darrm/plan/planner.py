"""The best release of many votes within one budget: calibrate all mechanisms, and rank them in one table.

The first mechanism has the highest accuracy under the prior. Without a prior, the ranking is by minimax regret: the
largest loss of accuracy to the best mechanism under the reference priors of low, medium and high consensus; the
calibration is for their mean. Of mechanisms that are equal in a report, the one with the smallest ε is the first. A
slow calibration ends early if it does not beat the best so far, and the plan lists it as left out.

Private *models* with several queries are planned as non-private voters, within the joint bound of models and release
(`darrm.plan.mechanism.reduce_workload`); a table is then certified for the models. Models within the budget need no
noise.
"""

import math
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence, Sized
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from functools import partial
from operator import attrgetter
from typing import TypedDict, Unpack

from darrm import priors
from darrm.commands.command_line import format_count
from darrm.errors import CertificationError, PlanError
from darrm.loss.composition import TooManyKindsError
from darrm.majority.closed_form import has_closed_form
from darrm.numerics.bisection import bisect_safe
from darrm.optimize.request import check_size, default_shape
from darrm.plan import noisy, optimum, tables
from darrm.plan.accuracy import MOST_PLANNED, Measure
from darrm.plan.calibration import CalibratedMechanism, calibrate
from darrm.plan.mechanism import Mechanism, list_releases, needs_no_noise, no_report
from darrm.plan.report import Plan, Sweep, compute_inaccuracy, compute_rank
from darrm.priors import Dirichlet, Ewens, Prior
from darrm.privacy import PrivacyParams
from darrm.problem import MOST_QUERIES, MOST_VOTERS, OPEN, Workload, is_open
from darrm.util import checks
from darrm.util.progress import stoppable_search

MECHANISMS: tuple[type[Mechanism], ...] = (
    tables.NoNoise,
    optimum.RDPOptimal,
    optimum.Optimal,
    tables.PermuteAndFlip,
    tables.Exponential,
    noisy.GNMax,
    noisy.LNMax,
    noisy.AsymmetricNoiseMax,
    noisy.PaperGNMax,
    noisy.AnalyticGNMax,
    noisy.LNMaxByCounts,
    tables.Subsampling,
    tables.DoubleSubsampling,
    optimum.PaperDaRRM,
    tables.RandomizedResponse,
)
# planned with public votes, which estimate the chance that a test passes
TESTED: tuple[type[Mechanism], ...] = (noisy.TestedGNMax, noisy.TestedGNMaxElse, noisy.TestedConfident)
RELEASED = tuple(mechanism for mechanism in MECHANISMS if not mechanism.only_compared)

# the hardest and the easiest value of each quantity
QUANTITIES = {"queries": (float(MOST_QUERIES), 1.0), "voters": (1.0, float(MOST_VOTERS)), "epsilon": (1e-4, 1e4)}


def find_mechanism(slug: str) -> type[Mechanism]:
    """Return the mechanism of a slug; `ValueError` if there is none."""
    slugs = {mechanism.slug: mechanism for mechanism in (*MECHANISMS, *TESTED)}
    if slug not in slugs:
        matches = get_close_matches(str(slug), slugs, n=1)
        checks.fail(
            "the mechanism", slug, "one of " + ", ".join(slugs), f"did you mean {matches[0]}?" if matches else ""
        )
    return slugs[slug]


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
        A public prior of the votes. By default mechanisms are ranked by minimax regret over three reference priors.
    mechanisms
        By default `MECHANISMS`.
    objective
        "accuracy" or, for two classes, "error": the expected error [D, Definition 2.4].
    complete
        Whether to calibrate slow mechanisms to the end even if they do not beat the best so far.
    report
        Called with a few words at every step.
    stoppable
        Whether Ctrl-C (`KeyboardInterrupt`) returns the best until then, with a warning.

    `ValueError` if an argument is out of range or there are too many voters. `PlanError` if no mechanism stays within
    the budget. `UserWarning` if (t + 1)·K > 50,000 for an overlap of t voters: the plan takes a minute or more.

    >>> from darrm import PrivacyParams, Voters
    >>> found = plan(Workload(Voters(101, PrivacyParams("inf"), overlap=1), 100, PrivacyParams(3, 1e-5)))
    >>> found.best.slug, found.spent.epsilon <= 3
    ('rdp-optimal', True)
    """
    if not isinstance(workload, Workload):
        checks.fail("workload", workload, "a Workload(voters, queries, total)")
    prior, listed_classes = None if prior is None else priors.check_prior(prior, workload.classes), 0
    if workload.classes > MOST_PLANNED and workload.voters.are_non_private and not workload.missing:
        # a long list is planned like open answers, so that classes without votes cost nothing; Ewens' law with θ = αC
        # is the limit of Dirichlet's for C → ∞
        listed_classes = workload.classes
        prior = Ewens(prior.concentration * listed_classes) if isinstance(prior, Dirichlet) else prior
        workload = replace(workload, classes=OPEN)
    measure = Measure(workload, prior, objective)
    _check_size(workload)
    applicable = [mechanism for mechanism in mechanisms or MECHANISMS if mechanism.applies_to(workload)]
    ranking = _Ranking(workload, measure, report, complete)
    rows, left_out = ranking.rows, ranking.left_out
    with _until_stopped(rows, "any mechanism was calibrated", "the plan is the best until then", enabled=stoppable):
        ranking.calibrate_all(applicable)
    for mechanism in applicable:
        if mechanism.slug not in {*left_out, *(row.slug for row in rows)}:
            left_out[mechanism.slug] = "not calibrated; the search was stopped"
    if not rows:
        class_reasons = [left_out[kind.slug] for kind in applicable if kind.answers(workload.classes)]
        reasons = Counter(class_reasons or left_out.values()).most_common()
        reasons = reasons or [("those that were named do not apply here", 1)]
        other_reasons = format_count(len(reasons) - 1, "other reason", "other reasons")
        note = f" (and {other_reasons})" if len(reasons) > 1 else ""
        raise PlanError(f"no mechanism stays within this budget: {reasons[0][0]}{note}")
    return Plan(workload, measure, tuple(ranking.rank()), tuple(left_out.items()), listed_classes)


@dataclass
class _Ranking:
    """Calibrated mechanisms, and the reasons of the others by slug: valid if the search is stopped."""

    workload: Workload
    measure: Measure
    report: Callable[[str], None]
    complete: bool
    rows: list[CalibratedMechanism] = field(default_factory=list)
    left_out: dict[str, str] = field(default_factory=dict)

    def calibrate_all(self, mechanisms: Sequence[type[Mechanism]]) -> None:
        """Calibrate in turn, slow mechanisms roughly; then the best to the end."""
        work, measure, skip_reason = self.workload, self.measure, ""  # why slow mechanisms are skipped
        for mechanism in mechanisms:
            if skip_reason and mechanism.is_slow and not self.complete:
                self.left_out[mechanism.slug] = skip_reason
                continue
            self.report(mechanism.slug)
            smallest_loss = min((compute_inaccuracy(row, measure) for row in self.rows), default=math.inf)
            to_beat = smallest_loss if mechanism.is_slow and not self.complete else math.inf
            try:
                row = self._reuse_optimal(mechanism) or calibrate(
                    work, mechanism, measure=measure, to_beat=to_beat, report=self.report, is_fine=False
                )
            except (PlanError, CertificationError, TooManyKindsError) as error:  # others may be calibrated
                self.left_out[mechanism.slug] = str(error)
                continue
            self.rows.append(row)
            if compute_inaccuracy(row, measure) == 0.0:
                skip_reason = f"not calibrated; {row.slug} is always right"
            elif mechanism is optimum.Optimal and work.queries == 1 and not work.missing:
                skip_reason = f"not calibrated; {row.slug} is the optimum for one query"
        if self.rows:
            best_row = self.rank()[0]
            self.rows[[row.slug for row in self.rows].index(best_row.slug)] = best_row.refine()

    def _reuse_optimal(self, mechanism: type[Mechanism]) -> CalibratedMechanism | None:
        """Return the optimum per query as DaRRM of the paper, where one person influences all voters."""
        if mechanism is not optimum.PaperDaRRM or self.workload.voters.overlap is not None:
            return None
        tables.check_private(self.workload)
        optimal = next((row for row in self.rows if row.slug == optimum.Optimal.slug), None)
        return None if optimal is None else replace(optimal, slug=mechanism.slug, name=mechanism.name)

    def rank(self) -> list[CalibratedMechanism]:
        """Sort, the best first, and compute the regret of each."""
        rows, names = self.rows, self.rows[0].consensus
        best = {name: max(row.consensus[name].value for row in rows) for name in names}
        if best:
            rows = [replace(row, regret=max(best[name] - row.consensus[name].value for name in best)) for row in rows]
        return sorted(rows, key=partial(compute_rank, self.measure))


class _Options(TypedDict, total=False):
    prior: Prior | str | None
    mechanisms: Sequence[type[Mechanism]] | None
    objective: str
    complete: bool


def sweep(
    workload: Workload,
    epsilons: Sequence[str | float],
    *,
    report: Callable[[str], None] = no_report,
    stoppable: bool = False,
    **options: Unpack[_Options],
) -> Sweep:
    """Plan at each total ε, with the ``options`` of `plan`; budgets that are too small are left out, with a warning.

    Choosing ε by a sweep costs nothing, as it looks at no votes. `PlanError` if no budget has a plan.

    >>> from darrm import Voters
    >>> from darrm.priors import Dirichlet
    >>> work = Workload(Voters(11, PrivacyParams("inf"), overlap=1), 1, PrivacyParams(1, "1e-5"))
    >>> {epsilon: round(accuracy, 3) for epsilon, accuracy in sweep(work, ["0.1", 1], prior=Dirichlet()).best.items()}
    {0.1: 0.625, 1.0: 0.929}
    """
    totals = {PrivacyParams(epsilon, workload.total.exact_delta) for epsilon in epsilons}
    if not totals:
        checks.fail("epsilons", epsilons, "at least one total epsilon")
    plans: list[Plan] = []
    reasons: list[str] = []
    result = f"{{}} of {len(totals)} budgets have a plan"
    with _until_stopped(plans, "there was a plan for any budget", result, enabled=stoppable):
        for place, total in enumerate(sorted(totals, key=attrgetter("epsilon")), 1):
            report(f"budget {place} of {len(totals)}: epsilon {total.epsilon:g}")
            try:
                plans.append(plan(replace(workload, total=total), **options))
            except PlanError as error:
                reasons.append(f"the total epsilon {total.epsilon:g} has no plan: {error}")
    if not plans:
        raise PlanError(reasons[0])
    for reason in reasons:
        warnings.warn(reason, stacklevel=2)
    return Sweep(tuple(plans))


def affordable(
    workload: Workload,
    accuracy: float,
    what: str = "queries",
    *,
    prior: Prior | None = None,
    report: Callable[[str], None] = no_report,
    stoppable: bool = False,
) -> Workload:
    """Find the most queries, the fewest voters or the smallest total ε with which a plan has an accuracy.

    The number of the result is exact to 2 %, or to one query or voter. ``what`` is "queries", "voters" or "epsilon".
    With ``stoppable`` Ctrl-C returns the hardest workload so far, with a warning. `PlanError` if no number gives the
    accuracy, or none is known when the search is stopped.

    >>> from darrm import Voters
    >>> from darrm.priors import Dirichlet
    >>> work = Workload(Voters(101, PrivacyParams("inf"), overlap=1), 10, PrivacyParams(1))
    >>> affordable(work, 0.9, "epsilon", prior=Dirichlet()).total
    PrivacyParams(epsilon=0.984375, delta=0)
    """
    checks.probability(accuracy=accuracy)
    guess = 0.0 if is_open(workload.classes) else 1.0 / workload.classes
    if accuracy <= guess:  # any number of queries would do
        checks.fail("accuracy", accuracy, f"above {guess:.4g}, that of random guessing")
    checks.one_of(QUANTITIES, what=what)
    if what == "voters" and workload.voters.per_voter is not None:
        checks.fail("what", what, "queries or epsilon", "these voters differ from each other")
    hardest, easiest = QUANTITIES[what]
    results: dict[Workload, bool] = {}
    distances: dict[Workload, float] = {}

    def is_enough(value: float) -> bool:
        trial = _replace_quantity(workload, what, value)
        if trial not in results:
            report(f"accuracy {accuracy:.4g}: trying {what} {_get_quantity(trial, what):,.5g}")
            try:
                results[trial] = plan(trial, prior=prior, mechanisms=RELEASED).best.accuracy >= accuracy
            except PlanError:  # no release at all
                results[trial] = False
            if results[trial]:
                distances[trial] = abs(_get_quantity(trial, what) - hardest)
        return results[trial]

    missing_result = f"any {what} with an accuracy of {accuracy:.4g} were found"
    with _until_stopped(distances, missing_result, "the plan is the best until then", enabled=stoppable):
        value = _get_quantity(workload, what)
        ends = {is_enough(value): value}
        end = hardest if True in ends else easiest
        while len(ends) < 2 and value != end:  # double or halve until one value is enough and one is not
            half = value / 2.0 if what == "epsilon" else float(round(value / 2.0))
            value = min(2.0 * value, end) if end > value else max(half, end)
            ends[is_enough(value)] = value
        if True not in ends:
            raise PlanError(f"no {what} up to {end:,.5g} have an accuracy of {accuracy:.4g} under this prior")
        if False in ends:
            bisect_safe(is_enough, ends[True], ends[False], tolerance=0.02)
    return min(distances, key=distances.__getitem__)


def _get_quantity(workload: Workload, what: str) -> float:
    return {"queries": workload.queries, "voters": workload.voters.K, "epsilon": workload.total.epsilon}[what]


def _replace_quantity(workload: Workload, what: str, value: float) -> Workload:
    if what == "queries":
        return replace(workload, queries=round(value))
    if what == "voters":
        return replace(workload, voters=replace(workload.voters, K=round(value)))
    return replace(workload, total=PrivacyParams(f"{value:.6g}", workload.total.exact_delta))


@contextmanager
def _until_stopped(results: Sized, missing_result: str, result: str, *, enabled: bool) -> Iterator[None]:
    """Turn Ctrl-C into a warning if there are results, into a `PlanError` if there are none."""
    try:
        with stoppable_search(enabled=enabled):
            yield
    except KeyboardInterrupt:
        if not enabled:
            raise
        if not results:
            raise PlanError(f"stopped before {missing_result}: take more time") from None
        warnings.warn(f"stopped early: {result.format(len(results))}", stacklevel=4)


def _check_size(workload: Workload) -> None:
    """Refuse plans that need too much memory, and warn of plans that take minutes."""
    if not workload.has_noise_function or needs_no_noise(workload):
        return
    for release in list_releases(workload):
        if not has_closed_form(release.voters):
            check_size(release.voters, default_shape(release.voters))
    K, overlap = workload.voters.K, workload.voters.reached
    if (overlap + 1) * K > 50_000:
        warnings.warn(
            f"a plan for {K:,} voters with an overlap of {overlap:,} takes a minute or more: fewer voters, or less "
            "overlap, take seconds",
            stacklevel=3,
        )
