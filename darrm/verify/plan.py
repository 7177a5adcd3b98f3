"""Judge the claims of a plan about its voters and the cost of all its answers. Accuracy is not judged."""

from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction

from darrm.verify import mechanisms, sampling
from darrm.verify.costs import Cost, looks_at_few
from darrm.verify.formats import Charge, Json, Mechanism, Plan, Run, read_plan
from darrm.verify.numbers import NEAR, at_most, pair_at_most
from darrm.verify.totals import smallest_total
from darrm.verify.verdicts import CONSISTENT, FALSE, PLAN, PROVED, TOTAL, UNKNOWN, Verdict, judged

_APART = 1.05  # relative: a larger sum refutes a claim; below it, bounds may differ
_MOST_SAMPLED, _DISTANCE = 200, 1e-12  # voters, of two laws that are meant to be equal


def judge_plan(claims: Json, cost: Cost) -> Iterator[Verdict]:
    """Judge the claims of a file under ``plan``."""
    try:
        plan = read_plan(claims)
    except ValueError as error:
        yield Verdict(PLAN, "it states a workload and what it spends", FALSE, str(error))
        return
    released = cost.answering.voters
    asked = plan.voters if plan.voters.reached > released.reached else replace(plan.voters, reached=released.reached)
    same = (asked, plan.classes) == (released, cost.answering.classes)
    yield judged(PLAN, f"it is for {plan.voters}", f"the release is for {released}", holds=same)
    if same:
        yield _judge_total(plan, cost)
        claim = f"that is within the budget {pair_at_most(*plan.total)}"
        within = Fraction(repr(plan.epsilon)) <= plan.total[0] * (1 + Fraction(1, 10**12))
        yield judged(
            TOTAL, claim, f"ε is {at_most(plan.epsilon, 9)}", holds=within and plan.delta == float(plan.total[1])
        )


def _judge_total(plan: Plan, cost: Cost) -> Verdict:
    claim = f"all {plan.queries:,} answers as planned are {pair_at_most(plan.epsilon, plan.delta)}-DP"
    found = smallest_total([(charge_of(cost, plan.queries), cost)], plan.total[1], enough=plan.epsilon)
    if found is None:
        reason = (
            f"no bound of the independent checker covers them (K = {plan.voters.K:,}); `darrm plan` computes it again"
        )
        return Verdict(TOTAL, claim, UNKNOWN, reason)
    reason = f"{found.how}: {pair_at_most(found.epsilon, plan.delta, 9)}"
    if found.epsilon <= plan.epsilon * (1.0 + NEAR):
        return Verdict(TOTAL, claim, CONSISTENT if found.stated else PROVED, reason)
    if found.epsilon > plan.epsilon * _APART:
        return Verdict(TOTAL, claim, FALSE, reason)
    return Verdict(TOTAL, claim, UNKNOWN, f"{reason}; a tighter bound would decide")


def charge_of(cost: Cost, queries: int) -> Charge:
    """Describe ``queries`` queries of a release by the costs that are known without a proof."""
    answering, voters = cost.answering, cost.answering.voters
    models = voters if voters.are_private_models else None
    charge = Charge(queries, sampled=voters.sampled, models=models, alone=models is not None)
    if isinstance(answering, Run):
        return replace(
            charge, count=-(-queries // answering.queries), guarantee=answering.budget, labels=answering.queries
        )
    if isinstance(answering, Mechanism):
        pure = mechanisms.own_epsilon(answering)
        pure = pure if voters.sampled is None else sampling.pure_epsilon(pure, voters.sampled)
        pair = None if pure == float("inf") else (Fraction(pure), Fraction(0))
        lost = mechanisms.vanishing(answering, answering.threshold) if answering.threshold is not None else None
        charge = replace(charge, guarantee=pair, vanishing=0.0 if lost is None else min(1.0, lost.high))
        return charge if models is None else replace(charge, plain=((answering.reached, Charge(guarantee=pair)),))
    few = range(1, voters.K) if models is not None and voters.K <= _MOST_SAMPLED else range(0)
    drawn = next((n for n in few if looks_at_few((n, _DISTANCE), cost)), None)
    plain = tuple((reached, Charge()) for reached in sorted({1, voters.reached})) if models is not None else ()
    return replace(
        charge, guarantee=answering.target, plain=plain, sample=None if drawn is None else (drawn, _DISTANCE)
    )
