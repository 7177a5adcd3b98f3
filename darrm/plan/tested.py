"""Runs that are tested first: the least noise with which votes like public ones pass within the whole budget.

What is planned for must be public: recorded votes of others, or a prior. From it runs of Q queries are drawn with a
public seed, and the chance of a run is the mean of its test's chances (`darrm.pate.tested`). Whatever the private votes
are, the guarantee holds; if they are unlike, the test hardly passes, and the budget is spent on nothing, or on labels
by noise that is enough for any votes.

The order is chosen by the budget, the threshold and the ratio of both noises from a few, and the noise by bisection.
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import replace
from decimal import ROUND_CEILING
from functools import partial
from typing import cast

import numpy as np
from numpy.typing import NDArray

from darrm.account.bounds import Bound
from darrm.errors import PlanError
from darrm.losses.label_given_votes import WIDEST
from darrm.mechanisms.noisy_law import winning_probabilities
from darrm.mechanisms.noisy_max import GNMax
from darrm.mechanisms.noisy_maximum import NoisyMaximum
from darrm.pate.confident import NoisyCheck
from darrm.pate.tested import LARGEST_ORDER, TestedRun
from darrm.plan.family import Family, Search, calibrate
from darrm.plan.parameter import Parameter, Proposal, fixed, rounded
from darrm.plan.share_right import SEED, histograms
from darrm.privacy import PrivacyParams
from darrm.probability import Array
from darrm.problem import Workload

WANTED = 0.99  # chance that a run passes
_ORDERS = (0.8, 1.3)  # times log(1/δ)/ε, above 1
_CHECKS = tuple((share, ratio) for share in (0.6, 0.8) for ratio in (4.0, 12.0))  # T over K, and σ₁ over σ₂
_RUNS, _HISTOGRAMS = 64, 1024  # of which a chance is the mean; and of how many different votes runs are drawn
_LEAST_SIGMA, _STEPS, _MORE_STEPS = 0.5, 4, 6
_LEFT = 0.8  # of ε for what answers otherwise: the rest is what the coin may tell
_NO_DELTA = "a test needs a delta, and votes of which none is missing"
_IF = "Labels leave only if a private test passes, for votes like the public ones with chance"
_NOTHING = "else the budget is spent on nothing. A query without a label counts as a guess here."
_MANY_VOTERS = 2000  # beyond, a trial with a check takes seconds, and one order is tried


def gaussian(search: Search, otherwise: Family | None = None) -> Iterable[Parameter]:
    """Turn down the σ of GNMax that is tested first, where GNMax of a family answers, if any, when it does not pass."""
    work, plain = search.workload, None
    if otherwise is not None and work.total.delta:
        part = PrivacyParams(work.total.epsilon * _LEFT, work.total.exact_delta / 2)
        plain = calibrate(replace(work, total=part), otherwise, measure=search.measure).aggregator
    return [_least_noise(search, [(None, 0.0)], cast("NoisyMaximum | None", plain))]


def confident(search: Search) -> Iterable[Parameter]:
    """Turn down both noises of Confident-GNMax that is tested first, for a few thresholds and ratios."""
    K = search.workload.voters.K
    return [_least_noise(search, [(round(share * K), ratio) for share, ratio in _CHECKS])]


class _Drawn:
    def __init__(self, search: Search) -> None:
        work = search.workload
        self.counts, weights = histograms(search.measure.prior, work.voters.K, work.classes, _HISTOGRAMS)
        shares = np.full(len(self.counts), 1.0 / len(self.counts)) if weights is None else weights
        self.times = np.random.default_rng(SEED).multinomial(work.queries, shares / shares.sum(), size=_RUNS)

    def chance(self, run: TestedRun) -> float:
        """Compute how likely a run passes, on average."""
        return float(run.chances[run.level_of(self.times @ run.costs_of(self.counts))].mean())


def _least_noise(
    search: Search, checks: list[tuple[int | None, float]], otherwise: NoisyMaximum | None = None
) -> Parameter:
    """Find the check and the order of which the run with the least noise is right most often; `PlanError` for none."""
    work, drawn = search.workload, _Drawn(search)
    if not (work.voters.are_plain and work.voters.reached == 1):
        raise PlanError("a test is proved for plain voters of whom one person reaches one")
    if work.total.delta == 0.0 or work.missing:
        raise PlanError(_NO_DELTA)
    scale = math.log(1.0 / work.total.delta) / work.total.epsilon
    orders = _ORDERS if work.voters.K <= _MANY_VOTERS else (1.0,)
    asked = [(min(1.0 + part * scale, LARGEST_ORDER), *check) for part in orders for check in checks]
    found = []
    for done, (order, threshold, ratio) in enumerate(asked):
        search.report(f"{done + 1} of {len(asked)} tests")
        run_of = partial(_run, work, order, threshold, ratio, otherwise)
        if (sigmas := _narrowed(drawn, run_of, _widest(work), _STEPS)) is not None:
            found.append((search.measure.wrong(_proposal(drawn, run_of(sigmas[1])).law), sigmas, run_of))
    if not found:
        raise PlanError(f"votes like these pass with a chance of {WANTED:g} at no noise that pays for a test")
    _, sigmas, run_of = min(found, key=lambda one: one[0])
    search.report("the best test, closer")
    _, sigma = _narrowed(drawn, run_of, sigmas, _MORE_STEPS) or sigmas
    return fixed(work, _proposal(drawn, run_of(sigma)))


def _widest(work: Workload) -> tuple[float, float]:
    enough = 2.0 * math.sqrt(work.queries * math.log(1.25 / work.total.delta)) / work.total.epsilon
    return _LEAST_SIGMA, min(max(enough, 1.0), WIDEST)


def _narrowed(
    drawn: _Drawn, run_of: Callable[[float], TestedRun], sigmas: tuple[float, float], steps: int
) -> tuple[float, float] | None:
    low, high = sigmas
    if drawn.chance(run_of(high)) < WANTED:
        return None
    for _ in range(steps):
        sigma = math.sqrt(low * high)
        low, high = (low, sigma) if drawn.chance(run_of(sigma)) >= WANTED else (sigma, high)
    return low, high


def _run(
    work: Workload, order: float, threshold: int | None, ratio: float, otherwise: NoisyMaximum | None, sigma: float
) -> TestedRun:
    sigma = float(rounded(sigma, ROUND_CEILING))
    check = None if threshold is None else NoisyCheck(float(threshold), float(rounded(ratio * sigma)))
    answer = NoisyMaximum(GNMax(sigma), work.voters, work.classes)
    return TestedRun(answer, work.queries, work.total, float(rounded(order)), check, otherwise)


def _proposal(drawn: _Drawn, run: TestedRun) -> Proposal:
    chance = drawn.chance(run)
    settings = {"sigma": run.mechanism.law.deviation, "order": run.order, "chance": chance}
    if run.check is not None:
        settings |= {"threshold": run.check.threshold, "sigma_threshold": run.check.sigma}
    left = _NOTHING
    if run.otherwise is not None:
        left = f"else {run.otherwise.mechanism.charge().what} answers all queries."
    return Proposal(
        law=lambda counts: _law(run, counts, chance),
        release=lambda: run,
        settings=settings,
        total=Bound("simple", run.budget.epsilon, "a private test lets all labels leave, or none: it is one charge"),
        remark=f"{_IF} {chance:.3f}; {left}",
    )


def _law(run: TestedRun, counts: NDArray[np.int64], chance: float) -> Array:
    guess = 1.0 / counts.shape[1]
    answers = winning_probabilities(run.mechanism.law, counts)
    if run.check is not None:
        passes = np.exp(run.check.log_probabilities(counts.max(axis=1))[0])[:, None]
        answers = passes * answers + (1.0 - passes) * guess
    instead = np.full(answers.shape, guess)
    if run.otherwise is not None:
        instead = winning_probabilities(cast("GNMax", run.otherwise.mechanism).law, counts)
    return np.asarray(chance * answers + (1.0 - chance) * instead)
