"""Judge what people state of a release: plans, model cards, named voters, and published figures of PATE.

A published figure is an estimate about the data at hand, not a guarantee. Its conversion at λ and δ is recomputed in
balls, and the probability Φ(−z) that it is too small. Publishing it costs λ/(2s²) on the scale of votes; by smooth
sensitivity at least the divergence of N(f, (σS)²) and N(f', (σS')²), |f − f'| = min(S, S'), with a mean that carries
zσS [P, Definition 22], at both ends r = S'/S of |log r| ≤ β:

    λ·(min(1, r) + zσ|1 − r|)²/(2σ²(1 − λ + λr²)) + (2λ·ln r − ln(1 − λ + λr²))/(2(λ − 1)).
"""

import csv
import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from fractions import Fraction
from operator import itemgetter
from pathlib import Path

from flint import ctx

from darrm.verify import mechanisms
from darrm.verify.chain import Ledger, LedgerDigest, judge_digests, read_digest
from darrm.verify.costs import Cost, looks_at_few
from darrm.verify.formats import (
    MALFORMED,
    NO_GUARANTEE,
    Charge,
    Json,
    Mechanism,
    Run,
    Voters,
    exact_number,
    parse_json,
    read,
    read_pair,
    read_plan,
)
from darrm.verify.totals import judge_total, smallest_total
from darrm.verify.verdicts import (
    ASSUMED,
    FALSE,
    UNKNOWN,
    Point,
    Verdict,
    at_most,
    ball,
    conversion,
    judged,
    pair_at_most,
)

_BLOCK = re.compile(rb"```json\s*(\{.*?\})\s*```", re.DOTALL)
_APART, _ROUNDED = 1.05, 1.0001  # relative: a larger sum refutes a claim; digits that a card leaves out
_MOST_SAMPLED, _DISTANCE = 200, 1e-12  # voters, of two laws that are meant to be equal
_MOST_BYTES = 2**24  # of a file of voters
_BITS, _NEAR = 128, 1e-8  # relative: floats on either side, and β that the prover makes larger
_NUMBERS = ("epsilon", "delta", "order", "noisy_cost", "public_cost", "failure_probability")
_CHECKS = {"data-dependent", "data-independent"}
_RUN = {"mechanism": str, "queries": range(1, 10**12), "check": _CHECKS, "parameters": dict}
_FIGURE = {**dict.fromkeys(_NUMBERS, float), "format": str, "conversion": {"tight", "classic"}, "run": _RUN}
_PARAMETERS = {"order", "deviation", "safety"}, {"order", "smoothness", "noise_scale", "safety"}


def judge_plan(claims: Json, cost: Cost) -> Iterator[Verdict]:
    try:
        plan = read_plan(claims)
    except (ValueError, *MALFORMED) as error:
        reason = str(error) if isinstance(error, ValueError) else f"it is malformed ({type(error).__name__}: {error})"
        yield Verdict("plan", "it states a workload and its cost", FALSE, reason)
        return
    released = cost.answering.voters
    asked = plan.voters if plan.voters.reached > released.reached else replace(plan.voters, reached=released.reached)
    same = (asked, plan.classes) == (released, cost.answering.classes)
    yield judged("plan", f"it is for {plan.voters}", f"the release is for {released}", holds=same)
    if same:
        claim = f"all {plan.queries:,} answers as planned are {pair_at_most(plan.epsilon, plan.delta)}-DP"
        found = smallest_total([(charge_of(cost, plan.queries), cost)], plan.total[1], enough=plan.epsilon)
        none = f"no bound covers them (K = {plan.voters.K:,}); `darrm plan` computes it again"
        yield judge_total(claim, found, (plan.epsilon, plan.total[1]), apart=_APART, none=none)
        claim = f"that is within the budget {pair_at_most(*plan.total)}"
        within = Fraction(repr(plan.epsilon)) <= plan.total[0] * (1 + Fraction(1, 10**12))
        holds = within and plan.delta == float(plan.total[1])
        yield judged("composition", claim, f"ε is {at_most(plan.epsilon, 9)}", holds=holds)


def charge_of(cost: Cost, queries: int) -> Charge:
    answering, voters = cost.answering, cost.answering.voters
    models = voters if voters.are_private_models else None
    charge = Charge(queries, sampled=voters.sampled, models=models, alone=models is not None)
    if isinstance(answering, Run):
        count = -(-queries // answering.labels)
        return replace(charge, count=count, guarantee=answering.budget, labels=answering.labels)
    if isinstance(answering, Mechanism):
        pure = mechanisms.pure_epsilon(mechanisms.own_epsilon(answering), voters.sampled)
        pair = None if pure == math.inf else (Fraction(pure), Fraction(0))
        lost = mechanisms.vanishing(answering, answering.threshold) if answering.threshold is not None else None
        charge = replace(charge, guarantee=pair, vanishing=0.0 if lost is None else min(1.0, lost.upper))
        return charge if models is None else replace(charge, plain=((answering.reached, Charge(guarantee=pair)),))
    few = range(1, voters.K) if models is not None and voters.K <= _MOST_SAMPLED else range(0)
    sample = next(((n, _DISTANCE) for n in few if looks_at_few((n, _DISTANCE), cost)), None)
    plain = tuple((reached, Charge()) for reached in sorted({1, voters.reached})) if models is not None else ()
    return replace(charge, guarantee=answering.target, plain=plain, sample=sample)


def read_card(content: bytes) -> Json | None:
    """Return the JSON block of a model card, if it has one; its prose is not read."""
    for block in _BLOCK.findall(content):
        with suppress(ValueError):
            if (data := parse_json(block)).get("format") == "darrm model card":
                return data
    return None


def judge_note(content: bytes, digests: Sequence[LedgerDigest], ledgers: Sequence[Ledger]) -> Iterator[Verdict]:
    card = read_card(content)
    yield from judge_digests(digests, ledgers, by_hand=False)
    if card is not None:
        yield from _judge_card(card, ledgers)
    elif not digests:
        yield Verdict("file", "it is not judged", UNKNOWN, "it holds no whole ledger digest")


def _judge_card(card: Json, ledgers: Sequence[Ledger]) -> Iterator[Verdict]:
    try:
        guarantee, digest = read_pair(card["guarantee"]), card["ledger_digest"]
        spent = None if card.get("spent") is None else read_pair(card["spent"])
        own = None if not digest else read_digest(digest)
    except (ValueError, *MALFORMED) as error:
        reason = f"its block is malformed ({type(error).__name__}: {error})"
        yield Verdict("model card", "it states a guarantee", FALSE, reason)
        return
    claim = f"the described models are {pair_at_most(*guarantee)}-DP"
    if own is None:
        yield Verdict("model card", claim, ASSUMED, "the models are private by themselves: no file can show this")
        return
    budget = exact_number(own.epsilon), exact_number(own.delta)
    holds = guarantee[0] >= budget[0] and guarantee[1] >= budget[1]
    yield judged("model card", claim, f"the budget of its ledger is {pair_at_most(*budget)}", holds=holds)
    if spent is None:
        return
    claim = f"it spent {pair_at_most(*spent)}"
    ledger = next((one for one in ledgers if one.identity == own.identity), None)
    if ledger is None or own.number > len(ledger.entries):
        yield Verdict("model card", claim, UNKNOWN, "its ledger is not among the files: it would decide")
        return
    counts = Counter[int]()
    for entry in ledger.entries[: own.number]:
        counts[entry.cost] += entry.count
    priced = [(replace(ledger.charges[number], count=count), None) for number, count in counts.items()]
    found = smallest_total(priced, spent[1], enough=float(spent[0]))
    yield judge_total(claim, found, (float(spent[0]) * _ROUNDED, spent[1]), apart=_APART, about="model card")


def read_members(path: Path) -> dict[str, Point]:
    where, write = f"--voters {str(path)!r}", "lines of name,epsilon,delta"
    if not path.is_file() or path.stat().st_size > _MOST_BYTES:
        raise ValueError(f"{where} is no small file: give {write}")
    members: dict[str, Point] = {}
    for number, row in enumerate(csv.reader(path.read_text(encoding="utf-8-sig").splitlines(), strict=True), 1):
        if number == 1 and row == ["name", "epsilon", "delta"]:
            continue
        try:
            name, epsilon, delta = [*(field.strip() for field in row), "0"][:3]
            pair = NO_GUARANTEE if epsilon == "inf" else (exact_number(epsilon), exact_number(delta or "0"))
        except ValueError:
            raise ValueError(f"{where}, line {number}: write {write}") from None
        if name in members:
            raise ValueError(f"{where}, line {number}: {name!r} is named twice")
        members[name] = pair
    if not members:
        raise ValueError(f"{where} names no voter: give {write}")
    return members


def judge_members(members: Mapping[str, Point], voters: Voters) -> Iterator[Verdict]:
    """Judge for each named voter whether a table counts them as no more private than they are.

    Match greedily, largest ε first: of the voters whose ε covers a member, and so all later ones, they get the least δ
    that is large enough. No matching covers more.
    """
    counted = voters.pairs
    if len(members) != len(counted):
        reason = f"the table is about {len(counted)} voters, and {len(members)} are named"
        yield from (judged("voters", f"{name!r} is counted", reason, holds=False) for name in members)
        return
    matched: dict[str, Point] = {}
    for name, own in sorted(members.items(), key=itemgetter(1), reverse=True):
        fitting = [place for place, one in enumerate(counted) if one[0] >= own[0] and one[1] >= own[1]]
        if fitting:
            matched[name] = counted.pop(min(fitting, key=[one[1] for one in counted].__getitem__))
    for name, own in members.items():
        one = matched.get(name)
        plain = "without a guarantee" if one == NO_GUARANTEE else "anyone"
        shown = plain if one is None or one == NO_GUARANTEE else f"{pair_at_most(*one)}-DP"
        promise = "no guarantee" if own == NO_GUARANTEE else pair_at_most(*own)
        yield judged("voters", f"{name!r} is counted as {shown}", f"the file promises {promise}", holds=one is not None)


def judge_figure(content: bytes, ledgers: Mapping[str, Ledger]) -> Iterator[Verdict]:
    try:
        with ctx.workprec(_BITS):
            yield from list(_judge_figure(read(parse_json(content), _FIGURE), ledgers))
    except (ValueError, *MALFORMED) as error:
        yield Verdict("estimate", "it is a published figure", FALSE, f"{type(error).__name__}: {error}")


def _judge_figure(told: Json, ledgers: Mapping[str, Ledger]) -> Iterator[Verdict]:
    epsilon, delta, order, noisy, public, chance = (Fraction(told[name]) for name in _NUMBERS)
    run, parameters = told["run"], read(told["run"]["parameters"], dict.fromkeys(told["run"]["parameters"], float))
    if parameters.keys() not in _PARAMETERS or ("deviation" in parameters and run["check"] == "data-dependent"):
        raise ValueError("its parameters are those of no publication")
    safety = Fraction(parameters["safety"])
    of_parameters = [value for name, value in parameters.items() if name != "safety"]
    if not (0 < delta < 1 < order == parameters["order"] and min(of_parameters) > 0 <= min(safety, noisy)):
        raise ValueError("a number is out of its range")
    converted = conversion(order, delta) if told["conversion"] == "tight" else -ball(delta).log() / ball(order - 1)
    own = float((ball(noisy + public) + converted).upper())
    claim = f"its parts, {float(noisy):.6g} and {float(public):.6g}, make {pair_at_most(epsilon, delta)}"
    yield judged("estimate", claim, f"converted again it is {own:.9g}", holds=_covers(epsilon, own))
    claim = f"its public part is for {run['queries']:,} questions to {run['mechanism']}, and publishing it"
    least = publication_cost(parameters)
    reason = f"publishing alone costs {at_most(least, 9)}; no file shows the cost of its checks"
    yield judged("estimate", claim, reason, holds=_covers(public, least), how=ASSUMED)
    least = float(((ball(safety) / ball(Fraction(2)).sqrt()).erfc() / 2).upper())
    of = "" if "deviation" in parameters else " for the one direction of Theorem 6"
    claim = f"it is an estimate about the data at hand, too small with probability {float(chance):.3g}{of}"
    reason = f"no file shows its noise, its checks ({run['check']}), and parameters chosen beforehand, {parameters}"
    yield judged("estimate", claim, reason, holds=_covers(chance, least), how=ASSUMED)
    for path, ledger in ledgers.items():
        for charge in ledger.charges.values():
            if charge.guarantee is not None and float(charge.guarantee[0]) == float(epsilon):
                holds = charge.estimate is not None and _covers(Fraction(charge.estimate), least)
                reason = "it states a guarantee" if charge.estimate is None else f"too small with {charge.estimate:.3g}"
                yield judged("estimate", f"{path} counts it as such an estimate", reason, holds=holds)


def _covers(stated: Fraction, due: float) -> bool:
    return stated >= due * (1.0 - _NEAR)


def publication_cost(parameters: Mapping[str, float]) -> float:
    if "deviation" in parameters:
        return parameters["order"] / (2.0 * parameters["deviation"] ** 2)
    alpha, beta, sigma, safety = (parameters[name] for name in ("order", "smoothness", "noise_scale", "safety"))
    costs = []
    for exponent in (-beta, beta):
        r = math.exp(exponent)
        moved, room = min(1.0, r) + safety * sigma * abs(1.0 - r), 1.0 + alpha * math.expm1(2.0 * exponent)
        if room <= 0.0:
            raise ValueError("publishing it so costs more than any number")
        costs.append(
            alpha * moved**2 / (2.0 * sigma**2 * room)
            + (2.0 * alpha * exponent - math.log(room)) / (2.0 * (alpha - 1.0))
        )
    return max(costs)
