"""Propose-test-release: the least noise with which votes like public ones pass a private test of the whole run.

The plan rests on public votes: recorded votes of others, or a prior. It draws runs of Q queries from them with a public
seed; the chance of a run is the mean of its test's chances (`darrm.pate.tested`). The guarantee holds for any private
votes. If they differ from the public ones, the test will probably fail, and the budget is spent on nothing, or on
labels with noise that is enough for any votes.

The plan chooses the order, the threshold and the ratio of both noises from a few, and the noise by bisection.
"""

import math
from collections.abc import Callable
from dataclasses import replace
from decimal import ROUND_CEILING
from functools import partial
from operator import itemgetter
from typing import ClassVar, cast

import numpy as np
from numpy.typing import NDArray

from darrm.account.bounds import Bound
from darrm.errors import PlanError
from darrm.noisy_max import mechanisms
from darrm.noisy_max.cost_given_votes import WIDEST
from darrm.noisy_max.noisy_law import winning_probabilities
from darrm.noisy_max.noisy_maximum import NoisyMaximum
from darrm.numerics import Array
from darrm.pate.confident import NoisyCheck
from darrm.pate.tested import LARGEST_ORDER, TestedRun
from darrm.plan.accuracy import SEED, histograms
from darrm.plan.calibration import calibrate
from darrm.plan.mechanism import FixedMechanism, Mechanism, Proposal, Search, rounded
from darrm.plan.noisy import GNMax
from darrm.privacy import PrivacyParams
from darrm.problem import Workload
from darrm.util.figures import BLUE, SKY_BLUE

WANTED = 0.99  # chance that a run passes
_ORDERS = (0.8, 1.3)  # times log(1/δ)/ε, above 1
_CHECKS = tuple((share, ratio) for share in (0.6, 0.8) for ratio in (4.0, 12.0))  # T over K, and σ₁ over σ₂
_RUNS, _HISTOGRAMS = 64, 1024  # runs that a chance is the mean of; different votes that runs are drawn from
_LEAST_SIGMA, _STEPS, _MORE_STEPS = 0.5, 4, 6
_LEFT = 0.8  # of ε for the mechanism that answers otherwise: the rest is for the outcome of the test
_MANY_VOTERS = 2000  # beyond, a trial with a check takes seconds, and one order is tried


class TestedMechanism(FixedMechanism):
    """A run that is released if a private test passes; its noise is chosen for public votes."""

    about = "the least noise with which votes like the public ones pass a private test within the whole budget."
    has_check: ClassVar[bool] = False
    otherwise: ClassVar[type[Mechanism] | None] = None  # answers where the test fails

    def propose(self) -> Proposal:
        """Find the check and the order with which the run with the least noise is most accurate."""
        search, work = self.search, self.search.workload
        self._check_workload(work)
        otherwise, public = self._answers_otherwise(), _PublicVotes(search)
        scale = math.log(1.0 / work.total.delta) / work.total.epsilon
        checks: list[tuple[int | None, float]] = [(None, 0.0)]
        if self.has_check:
            checks = [(round(share * work.voters.K), ratio) for share, ratio in _CHECKS]
        parts = _ORDERS if work.voters.K <= _MANY_VOTERS else (1.0,)
        asked = [(min(1.0 + part * scale, LARGEST_ORDER), *check) for part in parts for check in checks]
        enough = 2.0 * math.sqrt(work.queries * math.log(1.25 / work.total.delta)) / work.total.epsilon
        widest = _LEAST_SIGMA, min(max(enough, 1.0), WIDEST)
        passing = []
        for done, one in enumerate(asked, 1):
            search.report(f"{done} of {len(asked)} tests")
            run_of = partial(_run, work, one, otherwise)
            if (sigmas := public.narrowed(run_of, widest, _STEPS)) is not None:
                wrong = search.measure.wrong(partial(_law, run_of(sigmas[1]), public.chance(run_of(sigmas[1]))))
                passing.append((wrong, sigmas, run_of))
        if not passing:
            raise PlanError(f"votes like these pass with a chance of {WANTED:g} at no noise that pays for a test")
        _, sigmas, run_of = min(passing, key=itemgetter(0))
        search.report("the best test, closer")
        _, sigma = public.narrowed(run_of, sigmas, _MORE_STEPS) or sigmas
        return _proposal(run_of(sigma), public.chance(run_of(sigma)))

    def _check_workload(self, work: Workload) -> None:
        if not (work.voters.are_non_private and work.voters.reached == 1):
            raise PlanError("a test is proved for non-private voters of whom one person reaches one")
        if self.has_check and work.voters.K == 1:
            raise PlanError("a check of the largest count needs at least two voters")
        if work.total.delta == 0.0 or work.missing:
            raise PlanError("a test needs a delta, and votes of which none is missing")

    def _answers_otherwise(self) -> NoisyMaximum | None:
        if self.otherwise is None:
            return None
        work = self.search.workload
        part = PrivacyParams(work.total.epsilon * _LEFT, work.total.exact_delta / 2)
        rest = calibrate(replace(work, total=part), self.otherwise, measure=self.search.measure)
        return cast("NoisyMaximum | None", rest.aggregator)


class TestedGNMax(TestedMechanism):
    """GNMax, tested first."""

    slug, name, color, linewidth = "gnmax-tested", "GNMax, tested", BLUE, 2.0


class TestedGNMaxElse(TestedMechanism):
    """GNMax, tested first; where the test fails GNMax with more noise answers."""

    slug, name, color, linewidth = "gnmax-tested-else", "GNMax, tested, else GNMax", BLUE, 1.6
    otherwise = GNMax


class TestedConfident(TestedMechanism):
    """Confident-GNMax, tested first, with a few thresholds and ratios of both noises."""

    slug, name, color, linewidth = "confident-tested", "Confident-GNMax, tested", SKY_BLUE, 2.0
    has_check = True


class _PublicVotes:
    """Runs that are drawn from public votes."""

    def __init__(self, search: Search) -> None:
        work = search.workload
        self.counts, weights = histograms(search.measure.prior, work.voters.K, work.classes, _HISTOGRAMS)
        shares = np.full(len(self.counts), 1.0 / len(self.counts)) if weights is None else weights
        self.times = np.random.default_rng(SEED).multinomial(work.queries, shares / shares.sum(), size=_RUNS)

    def chance(self, run: TestedRun) -> float:
        """Compute how likely a run passes, on average."""
        return float(run.chances[run.level_of(self.times @ run.costs_of(self.counts))].mean())

    def narrowed(
        self, run_of: Callable[[float], TestedRun], sigmas: tuple[float, float], steps: int
    ) -> tuple[float, float] | None:
        """Bisect between noise that is too little and noise that passes; None if that does not pass either."""
        low, high = sigmas
        if self.chance(run_of(high)) < WANTED:
            return None
        for _ in range(steps):
            sigma = math.sqrt(low * high)
            low, high = (low, sigma) if self.chance(run_of(sigma)) >= WANTED else (sigma, high)
        return low, high


def _run(
    work: Workload, test: tuple[float, int | None, float], otherwise: NoisyMaximum | None, sigma: float
) -> TestedRun:
    """Make a run with an order, a threshold, the ratio of both noises, and the noise of the answers."""
    order, threshold, ratio = test
    sigma = float(rounded(sigma, ROUND_CEILING))
    check = None if threshold is None else NoisyCheck(float(threshold), float(rounded(ratio * sigma)))
    answer = NoisyMaximum(mechanisms.GNMax(sigma), work.voters, work.classes)
    return TestedRun(answer, work.queries, work.total, float(rounded(order)), check, otherwise)


def _proposal(run: TestedRun, chance: float) -> Proposal:
    settings = {"sigma": run.mechanism.law.deviation, "order": run.order, "chance": chance}
    if run.check is not None:
        settings |= {"threshold": run.check.threshold, "sigma_threshold": run.check.sigma}
    rest = "else the budget is spent on nothing. A query without a label counts as a guess here."
    if run.otherwise is not None:
        rest = f"else {run.otherwise.mechanism.privacy_cost().what} answers all queries."
    why = "a private test releases all labels, or none: it is one charge"
    remark = (
        f"Labels leave only if a private test passes, for votes like the public ones with chance {chance:.3f}; {rest}"
    )
    total = Bound("simple", run.budget.epsilon, why)
    return Proposal(partial(_law, run, chance), settings, run, total=total, remark=remark)


def _law(run: TestedRun, chance: float, counts: NDArray[np.int64]) -> Array:
    guess = 1.0 / counts.shape[1]
    answers = winning_probabilities(run.mechanism.law, counts)
    if run.check is not None:
        passes = np.exp(run.check.log_probabilities(counts.max(axis=1))[0])[:, None]
        answers = passes * answers + (1.0 - passes) * guess
    instead = np.full(answers.shape, guess)
    if run.otherwise is not None:
        instead = winning_probabilities(cast("mechanisms.GNMax", run.otherwise.mechanism).law, counts)
    return np.asarray(chance * answers + (1.0 - chance) * instead)
