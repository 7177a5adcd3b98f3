"""Noise functions of two classes with one parameter, certified like any other γ, for private voters as well.

With M = 2l − K > 0 the lead of the majority, permute-and-flip [MS20] has γ(l) = 1 − e^{−εM/(2t)} and the exponential
mechanism [MT07] γ(l) = tanh(εM/(4t)), for a person who reaches t voters. Where few voters answer many queries, the
exact profile of the first admits more truth than optima do. Subsampling [D, Lemma 3.1], [D, Theorem 4.1] has the
allowance m, a constant γ, randomized response, one probability of the truth whatever the votes.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from decimal import ROUND_CEILING
from fractions import Fraction
from functools import cache

import numpy as np
from numpy.typing import NDArray

from darrm.account.bounds import models_bound
from darrm.errors import PlanError
from darrm.laws import baselines
from darrm.laws.noise_function import NoiseFunction
from darrm.laws.plurality_law import PluralityLaw, true_plurality
from darrm.mechanisms.release import Release
from darrm.mechanisms.selection import ExponentialMechanism, PermuteAndFlip
from darrm.plan import by_label
from darrm.plan.budget import counted, releases_of
from darrm.plan.by_label import first_rate
from darrm.plan.family import Search
from darrm.plan.option import NO_NOISE, kind_of_votes
from darrm.plan.parameter import Parameter, Precision, Proposal, fixed, rounded
from darrm.plan.share_right import Law
from darrm.privacy import PrivacyParams
from darrm.probability import Array
from darrm.probability.bisection import last_allowed
from darrm.problem import Problem, Workload, is_open
from darrm.proof.charge import charge_of
from darrm.proof.profile import divergence
from darrm.proof.table import Table, certify
from darrm.proof.voter_corners import number_of_rows

LARGEST_TARGET = Fraction(15)  # of one query; beyond, δ is rounding
BISECTIONS = 40
MOST_ROWS = 3_000_000  # of private voters of more than two classes: a proof takes a second
LEAST_RATE, MOST_RATE = 2e-9, 80.0  # of ε/t: with less every answer is a coin, with more the truth, to the last digits


def no_noise(search: Search) -> Iterable[Parameter]:
    """Publish the votes of private models as they are, if the models that a person reaches stay within the budget."""
    work, delta = search.workload, search.workload.total.delta
    cap, reached = models_bound(work.voters, delta), work.voters.reached
    if cap is None:
        raise PlanError(f"the {reached} models a person reaches fail with more than delta = {delta:g}")
    if cap.epsilon > work.total.epsilon:
        raise PlanError(f"the {reached} models a person reaches cost epsilon = {cap.epsilon:.6g} together")
    votes = f"publish the {kind_of_votes(work)} of the models' votes as it is, for as many queries as you like"
    proposal = Proposal(law=_leading, total=cap, instructions=(votes,), remark=NO_NOISE)
    if work.has_noise_function:
        gamma = NoiseFunction(work.voters.K, np.ones(work.voters.half_size))
        proposal = replace(proposal, release=lambda: Release(certify(smallest_target(work, gamma), gamma)))
    return [fixed(work, proposal)]


def exponential_mechanism(search: Search) -> Iterable[Parameter]:
    """Turn up the ε of the exponential mechanism; of two classes as a table, for private voters as well."""
    if search.workload.has_noise_function:
        return _by_lead(search, lambda exponents: np.tanh(exponents / 2.0))
    return [by_label.selection(search, ExponentialMechanism, by_label.exponential_law)]


def permute_and_flip(search: Search) -> Iterable[Parameter]:
    """Turn up the ε of permute-and-flip; of two classes as a table, for private voters as well."""
    if search.workload.has_noise_function:
        return _by_lead(search, lambda exponents: -np.expm1(-exponents))
    return [by_label.selection(search, PermuteAndFlip, by_label.permute_and_flip_law)]


def randomized_response(search: Search) -> Iterable[Parameter]:
    """Turn up a constant γ; of one query the largest is what is left of γ = 1."""
    for release in releases_of(search.workload):
        if release.queries == 1:
            table = largest_constant(release)
            truth = table.certificate.scale if not release.has_noise_function else float(table.gamma.half[0])
            yield fixed(release, table_proposal(table, {"gamma": truth}))
            continue
        if not release.has_noise_function:
            yield _mixed_truth(release)
            continue
        most = 1.0 if release.voters.each.is_private else float(largest_constant(release).gamma.half[0])
        start = most if release.voters.each.is_private else most / math.sqrt(release.queries)

        def make(gamma: float, release: Workload = release) -> Proposal:
            half = np.full(release.voters.half_size, gamma)
            return certified(release, NoiseFunction(release.voters.K, half), {"gamma": gamma})

        yield Parameter(workload=release, make=make, start=start, limits=(0.0, most))


def subsampling(search: Search) -> Iterable[Parameter]:
    """Turn up the integer m of γ_Sub [D, Lemma 3.1]; of more classes the plurality of m voters answers."""
    two = search.workload.has_noise_function
    return [_subsampled(search, baselines.subsampling if two else baselines.subsampled_plurality)]


def double_subsampling(search: Search) -> Iterable[Parameter]:
    """Turn up the integer m of γ_DSub [D, Theorem 4.1]; of more classes the plurality of 2m − 1 voters answers."""
    two = search.workload.has_noise_function
    return [_subsampled(search, baselines.double_subsampling if two else baselines.double_subsampled_plurality)]


def check_private(workload: Workload) -> None:
    """Raise `PlanError` where the voters' own privacy does not count a query at a time."""
    if not counted(workload).voters.each.is_private:
        raise PlanError("it rests on the voters' own privacy, which is not counted here")


def check_rows(workload: Workload) -> None:
    """Raise `PlanError` where a proof for more than two classes takes too long to be tried again and again."""
    voters = workload.voters
    if workload.has_noise_function or voters.are_plain or workload.queries == 1:
        return
    if (rows := number_of_rows(voters, workload.classes)) > MOST_ROWS:
        raise PlanError(f"its proof looks at {rows:,} rows, and up to {MOST_ROWS:,} are looked at for a plan")


def delta_of_one(workload: Workload) -> Fraction:
    """Return half of a query's share of δ, or the voters' own if that is more."""
    return max(workload.voters.each.exact_delta, rounded(workload.total.exact_delta / (2 * workload.queries)))


def largest_epsilon(workload: Workload) -> Fraction:
    """Compute min(total ε, K·ε): beyond, a query of private voters costs no more.

    One of people who are rarely drawn may have a larger ε by far, which it hardly ever shows.
    """
    total, voters = workload.total.exact_epsilon, workload.voters
    if voters.sampled is not None and workload.queries > 1:
        return LARGEST_TARGET
    return min(total, voters.K * voters.each.exact_epsilon) if voters.each.is_private else total


def largest_constant(workload: Workload) -> Table:
    """Certify the largest constant γ of one query that may spend the whole budget; `PlanError` if that is too small."""
    each, total = workload.voters.each, workload.total
    alike = each.is_private and workload.voters.own is None
    if alike and (total.exact_epsilon < each.exact_epsilon or total.exact_delta < each.exact_delta):
        raise PlanError("the budget is smaller than one voter's own")
    problem = workload.problem(PrivacyParams(largest_epsilon(workload), total.exact_delta))
    if not workload.has_noise_function:
        return certify(problem, true_plurality(workload.voters.K, workload.classes))
    return certify(problem, NoiseFunction(workload.voters.K, np.ones(workload.voters.half_size)))


def _mixed_truth(workload: Workload) -> Parameter:
    """Turn up the ε of a query that is answered by the plurality or at random, as often whatever the votes."""
    check_rows(workload)
    voters, each = workload.voters, workload.voters.each
    delta = delta_of_one(workload)
    least = each.exact_epsilon if each.is_private and voters.own is None else Fraction(1, 10**6)

    def make(epsilon: float) -> Proposal:
        problem = workload.problem(PrivacyParams(max(least, rounded(epsilon)), delta))
        table = certify(problem, true_plurality(voters.K, workload.classes))
        return table_proposal(table, {"gamma": table.certificate.scale})

    most = float(min(LARGEST_TARGET, max(least, largest_epsilon(workload))))
    return Parameter(workload=workload, make=make, start=float(least), limits=(float(least), most))


def certified(workload: Workload, gamma: NoiseFunction, settings: Mapping[str, float]) -> Proposal:
    """Propose a γ, certified for an (ε, δ) that one query satisfies as it is once it is charged."""
    return _proposal(gamma, lambda: certify(smallest_target(workload, gamma), gamma), settings)


def table_proposal(table: Table, settings: Mapping[str, float]) -> Proposal:
    """Propose a certified table."""
    if table.problem.has_noise_function:
        return _proposal(table.gamma, lambda: table, settings)
    target = table.problem.target
    if is_open(table.problem.classes):
        return Proposal(
            law=lambda counts: np.where(counts > 0, table.law.probabilities(counts)[:, :-1], 0.0),
            price=lambda: charge_of(table),
            release=lambda: Release(table),
            settings={**settings, "epsilon": target.epsilon, "delta": target.delta},
        )
    return Proposal(
        law=table.plurality.probabilities,
        price=lambda: charge_of(table),
        release=lambda: Release(table),
        settings={**settings, "epsilon": target.epsilon, "delta": target.delta},
        shrunk=lambda asked: _shrinking(
            asked, lambda share: table_proposal(certified_plurality(asked, mixed(table.plurality, share)), settings)
        ),
    )


def mixed(law: PluralityLaw, share: float) -> PluralityLaw:
    """Answer by a law with this probability, else at random."""
    return law.mixed(1.0 - share) if share < 1.0 else law


def certified_plurality(workload: Workload, law: PluralityLaw) -> Table:
    """Certify a law for an (ε, δ) that one query satisfies: δ is half of its share of the total, where allowed."""
    each = workload.voters.each
    alike = each.is_private and workload.voters.own is None
    most = min(LARGEST_TARGET, workload.voters.K * each.exact_epsilon) if each.is_private else LARGEST_TARGET
    delta = delta_of_one(workload)
    unproved = certify(workload.problem(PrivacyParams(most, delta)), law)
    profile = unproved.profile
    if profile is None:
        raise PlanError("nothing bounds one query")
    least = each.exact_epsilon if alike else Fraction(1, 10**6)
    epsilon = min(most, max(rounded(profile.epsilon_at(float(delta)), ROUND_CEILING), least))
    return certify(workload.problem(PrivacyParams(epsilon, delta)), law)


def _proposal(gamma: NoiseFunction, certificate: Callable[[], Table], settings: Mapping[str, float]) -> Proposal:
    """Propose a γ that is certified when its charge is asked for."""
    table = cache(certificate)
    return Proposal(
        law=law_of(gamma),
        price=lambda: charge_of(table()),
        proved=lambda: law_of(table().gamma),
        quick=lambda: charge_of(table(), exact=False),
        release=lambda: Release(table()),
        settings=settings,
        shrunk=lambda asked: _shrinking(asked, lambda share: certified(asked, table().gamma.scaled(share), settings)),
    )


def _shrinking(workload: Workload, make: Callable[[float], Proposal]) -> Parameter:
    return Parameter(
        workload=workload, make=make, start=1.0, limits=(0.0, 1.0), value=float, precision=Precision(unused=2e-6)
    )


def _leading(counts: NDArray[np.int64]) -> Array:
    leading = counts == counts.max(axis=1, keepdims=True)
    return np.asarray(leading / leading.sum(axis=1, keepdims=True))


def law_of(gamma: NoiseFunction) -> Law:
    """Return γ as a law on histograms of two classes."""
    truth = 0.5 * (1.0 + gamma.signed)

    def law(counts: NDArray[np.int64]) -> Array:
        return truth[counts]

    return law


def smallest_target(workload: Workload, gamma: NoiseFunction) -> Problem:
    """State an (ε, δ) that one query satisfies, so that γ can be certified as it is.

    δ is half of a query's share of the total where that is allowed, ε the smallest that goes with it; `PlanError` if γ
    tells the truth so surely that only δ = 1 is left.
    """
    voters, each = workload.voters, workload.voters.each
    least = each.exact_epsilon if each.is_private else Fraction(1, 10**6)
    most = each.exact_epsilon * voters.reached if each.is_private else LARGEST_TARGET
    most = max(least, min(most, LARGEST_TARGET))
    delta = delta_of_one(workload)
    if (at_most := divergence(voters, gamma, most)) > delta:
        delta = rounded(at_most, ROUND_CEILING)
    if delta >= 1:
        raise PlanError(f"one query has no epsilon of at most {float(most):g}")

    def private(epsilon: Fraction) -> bool:
        return divergence(voters, gamma, epsilon) <= delta

    epsilon = least
    if not private(least):
        smallest = last_allowed(private, most, least, steps=BISECTIONS, tolerance=1e-6)
        epsilon = min(most, rounded(smallest, ROUND_CEILING))
    return workload.problem(PrivacyParams(epsilon, delta))


def _by_lead(search: Search, gamma: Callable[[Array], Array]) -> Iterable[Parameter]:
    """Turn up the ε of a γ of εM/(2t)."""
    for release in releases_of(search.workload):
        voters = release.voters
        leads = np.arange(2.0 * voters.first_majority - voters.K, voters.K + 1.0, 2.0)

        def make(epsilon: float, release: Workload = release, leads: Array = leads) -> Proposal:
            values = gamma(epsilon / (2.0 * release.voters.reached) * leads)
            return certified(release, NoiseFunction(release.voters.K, values), {"epsilon": epsilon})

        limits = (LEAST_RATE * voters.reached, MOST_RATE * voters.reached)
        yield Parameter(
            workload=release, make=make, start=voters.reached * first_rate(release), limits=limits, value=float
        )


def _subsampled(search: Search, proposal: Callable[[Problem], NoiseFunction | PluralityLaw]) -> Parameter:
    work = search.workload
    check_private(work)

    def make(m: float) -> Proposal:
        problem = Problem.from_allowance(work.voters, int(m), classes=work.classes)
        if problem.target.exact_epsilon > work.total.exact_epsilon * work.queries:
            raise PlanError(f"not even the majority of one voter (m = 1) composes within {work.total}")
        return table_proposal(certify(problem, proposal(problem)), {"m": m})

    return Parameter(
        workload=work,
        make=make,
        start=1.0,
        limits=(1.0, float(work.voters.K)),
        value=lambda rate: float(math.floor(rate)),
    )
