"""The best release of many votes within one budget: of majorities; for more classes see `darrm.plan.plurality`.

Three ways are tried, and the one with the smallest expected error is taken:

* **per query**: the (ε, δ)-optimal γ of one query. δ is split between the queries' own failures and composition in
  several proportions; ε is the largest that the accountant admits, first by the optimal bound [KOV15, Theorem 3.3],
  then by all of its bounds, the exact privacy profile of the γ at hand among them;
* **Rényi**: for an order α the divergence of a query may be ρ(α), with Q·ρ(α) + log(1 − 1/α) −
  (log δ + log α)/(α − 1) = ε [CKS20, Proposition 12]; the γ with the smallest expected error under that budget comes
  from `darrm.optimize.under_renyi`, and α from a search over the accountant's own orders;
* **law**: permute-and-flip and the exponential mechanism, where they err less than the others (`darrm.plan.laws`).

The Rényi budget comes first, as it needs no trials of the accountant: the other ways are tried only where they may err
less than what is known, so what is reported of a way that does not win may be less than the best of its kind.

The winner is the best of these and not of all laws (`experiments.aggregators` says how it compares).

Private *models* that answer several queries are planned for as plain voters, within what both ends leave for the
release (`darrm.plan.budget`); γ is then certified for the models themselves. Where the models alone stay within the
budget, the votes need no noise, and γ = 1 is returned with the models' own cost.

Nothing here is a claim. The γ that is found is certified for a target of one query, its Rényi divergences and its
profile are bounded by the charge of `DaRRM`, and the total is what the accountant reports for Q such charges; where
that exceeds the budget, γ is scaled down until it does not.
"""

import shlex
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from darrm import checks
from darrm.account.accountant import Spent
from darrm.errors import PlanError
from darrm.laws.noise_function import NoiseFunction
from darrm.laws.priors import Dirichlet, Prior, weights_of
from darrm.losses.loss_distribution import TooManyKindsError
from darrm.mechanisms.files import Released, save_release
from darrm.optimize.closed_form import has_closed_form
from darrm.optimize.optimizer import check_size, default_shape
from darrm.plan import plurality
from darrm.plan.budget import counted, needs_no_noise
from darrm.plan.candidate import Candidate, smallest_target
from darrm.plan.laws import best_law
from darrm.plan.optimum import NAME, optimum
from darrm.plan.option import NO_NOISE, ReleaseOption, is_built_in, release_command
from darrm.plan.per_query import best_per_query
from darrm.plan.plurality import (
    SHAPED,
    Family,
    PluralityCandidate,
    calibrated,
    check_plurality,
    default_prior,
    shaped_family,
)
from darrm.plan.under_renyi import best_under_renyi_budget
from darrm.problem import Workload
from darrm.proof.table import Table, certify
from darrm.system.flags import flags_of
from darrm.system.progress import StatusLine

# voters times one more than those whom one person reaches: beyond, a plan takes a minute or more
_MINUTES = 50_000


@dataclass(frozen=True, eq=False)
class Plan:
    """The best release found for a workload.

    Attributes
    ----------
    workload
        What is to be released.
    prior
        The public belief that decided.
    candidates
        All that were found, the best first.
    refused
        Ways that found nothing, with the reason.
    """

    workload: Workload
    prior: Any  # a `Prior` for two classes, a `Prior` for more
    candidates: tuple[Any, ...]  # each a `Candidate` for two classes, a `PluralityCandidate` for more
    refused: tuple[tuple[str, str], ...]

    @property
    def best(self) -> Any:  # noqa: ANN401 (as the candidates)
        """The candidate with the smallest expected error; of more classes with the largest share of right labels."""
        return self.candidates[0]

    @property
    def table(self) -> Table:
        """The proven noise function of two classes, to be saved and released from; `PlanError` for more."""
        if not isinstance(self.best, Candidate):
            raise PlanError("a noisy maximum has no table: say plan.aggregator, or plan.save(path)")
        table: Table = self.best.table
        return table

    @property
    def aggregator(self) -> Released:
        """What releases the answers."""
        found: Released = self.best.aggregator
        return found

    def save(self, path: str | Path) -> None:
        """Write what releases the answers to a file that `darrm.mechanisms.files.load_release` reads."""
        save_release(path, self.aggregator)

    @property
    def option(self) -> ReleaseOption:
        """The plan as one option among others, with the commands that make and use its table."""
        made: tuple[str, ...] = (
            "from darrm.plan import plan",
            'plan(workload, prior=prior).save("plan.json")  # in Python: the prior is one of your own',
        )
        if is_built_in(self.prior):
            prior = "" if self.prior in {Dirichlet(), default_prior()} else f" --prior {shlex.quote(self.prior.text)}"
            made = (f"python -m darrm.plan {flags_of(self.workload)}{prior} --output plan.json",)
        found: ReleaseOption = self.best.option(instructions=(*made, release_command("plan.json", self.workload)))
        return found

    @property
    def spent(self) -> Spent:
        """What the accountant reports for all queries."""
        found: Spent = self.best.spent
        return found


def plan(
    workload: Workload,
    *,
    prior: Prior | None = None,
    report: Callable[[str], None] | None = None,
) -> Plan:
    """Find the release of a workload that stays within its total budget and tells the truth most often.

    Parameters
    ----------
    workload
        The voters, how many votes are released, and the budget of all of them together.
    prior
        A public belief with linear expected error; by default `Dirichlet`, under which every margin counts. For more
        than two classes one about histograms; by default `Dirichlet`, the same belief.
    report
        Called with a few words at every step.

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
    >>> found.best.method, found.spent.epsilon <= 3
    ('Rényi', True)
    >>> found = plan(Workload(Voters(50, PrivacyParams("inf"), overlap=1), 20, PrivacyParams(2, 1e-5), classes=10))
    >>> found.spent.epsilon <= 2, found.best.share_right.value > 0.3
    (True, True)
    """
    if not isinstance(workload, Workload):
        checks.fail("workload", workload, "a Workload(voters, queries, total)")
    show = report or StatusLine(enabled=False).show
    if workload.classes > 2:
        histograms: Any = default_prior() if prior is None else prior
        return Plan(workload, histograms, *_best_pluralities(workload, histograms, show))
    belief: Any = Dirichlet() if prior is None else prior
    weights_of(belief, workload.voters.K)  # a prior without linear expected error says so before the search
    if needs_no_noise(workload):
        return Plan(workload, belief, (_no_noise(workload, belief),), ())
    releases = [counted(workload)]
    if releases[0] != workload and workload.voters.reached > 1:
        releases.append(counted(workload, one_by_one=True))
    _check_size(releases)
    found: list[Candidate] = []
    refused = []
    ways_to_search: list[tuple[str, Callable[..., Candidate]]] = [
        ("Rényi", best_under_renyi_budget),
        ("per query", best_per_query),
        ("law", best_law),
    ]
    # first what is found without trials of the accountant: the others are tried only where they may err less
    for method, search in ways_to_search:
        least = min((each.expected_error for each in found), default=np.inf)
        ways: list[Candidate] = []
        for release in releases:
            try:
                ways.append(search(release, belief, show, to_beat=least).restated(workload))
            except (PlanError, TooManyKindsError) as error:
                reason = str(error)
        if ways:
            found.append(min(ways, key=lambda candidate: candidate.expected_error))
        else:
            refused.append((method, reason))
    if not found:
        raise PlanError("no release within this budget was found: " + "; ".join(reason for _, reason in refused))
    found.sort(key=lambda candidate: candidate.expected_error)
    return Plan(workload, belief, tuple(found), tuple(refused))


def _best_pluralities(
    workload: Workload, prior: Prior, report: Callable[[str], None]
) -> tuple[tuple[PluralityCandidate, ...], tuple[tuple[str, str], ...]]:
    """Calibrate all mechanisms: those that were found, the best first, and (name, reason) of the others."""
    check_plurality(workload, prior)
    if needs_no_noise(workload):
        raise PlanError(f"{NO_NOISE} Publish the plurality of their votes as it is")
    found: list[PluralityCandidate] = []
    refused = []
    ways: list[tuple[str, Callable[[float], PluralityCandidate]]] = [
        (NAME, lambda _: optimum(workload, prior, report)),
        *((each.name, partial(_calibrated, workload, prior, each)) for each in plurality.FAMILIES),
        (SHAPED, lambda best: _calibrated(workload, prior, shaped_family(workload, prior), best)),
    ]
    for name, way in ways:
        report(name)
        try:
            found.append(way(max((each.share_right.value for each in found), default=0.0)))
        except (PlanError, ValueError) as error:  # one that is out of its range leaves the others
            refused.append((name, str(error)))
    if not found:
        raise PlanError("no release within this budget was found: " + "; ".join(reason for _, reason in refused))
    found.sort(key=lambda candidate: -candidate.share_right.value)
    return tuple(found), tuple(refused)


def _calibrated(workload: Workload, prior: Prior, family: Family, to_beat: float) -> PluralityCandidate:
    return calibrated(workload, prior, family, to_beat=to_beat)


def _check_size(releases: Sequence[Workload]) -> None:
    """Refuse before the work what needs too much memory, and say what takes minutes."""
    for voters in (release.voters for release in releases):
        if not has_closed_form(voters):
            check_size(voters, default_shape(voters))
    K, reached = voters.K, voters.reached
    if (reached + 1) * K > _MINUTES:
        warnings.warn(
            f"a plan for {K:,} voters, {reached:,} of whom one person reaches, takes a minute or more: with fewer "
            "voters, or less overlap, it takes seconds",
            stacklevel=3,
        )


def _no_noise(workload: Workload, prior: Prior) -> Candidate:
    """Tell the majority of models that are private enough, γ = 1."""
    gamma = NoiseFunction(workload.voters.K, np.ones(workload.voters.half_size))
    return Candidate("no noise", workload, certify(smallest_target(workload, gamma), gamma), prior, {})
