"""Judge what people state of a release: plans, model cards, named voters, and published figures of PATE.

A published figure is an estimate about the data at hand, not a guarantee. Balls enclose its conversion at λ and δ, and
the probability Φ(−z) that it is too small. Publishing it costs λ/(2s²) on the scale of votes; by smooth
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
from darrm.verify.costs import Cost, is_subsampled
from darrm.verify.formats import (
    MALFORMED,
    NO_GUARANTEE,
    Charge,
    Json,
    Mechanism,
    Run,
    Voters,
    parse_exact,
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
    ball,
    conversion,
    decide,
    format_bound,
    format_pair,
)

_BLOCK = re.compile(rb"```json\s*(\{.*?\})\s*```", re.DOTALL)
_FALSE_RATIO, _CARD_ROUNDING = 1.05, 1.0001  # relative: a larger sum refutes a claim; digits that a card leaves out
_MAX_SAMPLED_VOTERS, _MAX_DISTANCE = 200, 1e-12  # voters, of two laws that are meant to be equal
_MAX_BYTES = 2**24  # of a file of voters
_PRECISION_BITS, _RELATIVE_TOLERANCE = 128, 1e-8  # relative: floats on either side, and β that the prover makes larger
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
    voters = cost.answering.voters
    plan_voters = plan.voters if plan.voters.reached > voters.reached else replace(plan.voters, reached=voters.reached)
    is_same = (plan_voters, plan.classes) == (voters, cost.answering.classes)
    yield decide("plan", f"it is for {plan.voters}", f"the release is for {voters}", holds=is_same)
    if is_same:
        claim = f"all {plan.queries:,} answers as planned are {format_pair(plan.epsilon, plan.delta)}-DP"
        total = smallest_total([(planned_cost(cost, plan.queries), cost)], plan.total[1], goal=plan.epsilon)
        unknown_reason = f"no bound covers them (K = {plan.voters.K:,}); `darrm plan` computes it again"
        yield judge_total(
            claim, total, (plan.epsilon, plan.total[1]), false_ratio=_FALSE_RATIO, unknown_reason=unknown_reason
        )
        claim = f"that is within the budget {format_pair(*plan.total)}"
        within = Fraction(repr(plan.epsilon)) <= plan.total[0] * (1 + Fraction(1, 10**12))
        holds = within and plan.delta == float(plan.total[1])
        yield decide("composition", claim, f"ε is {format_bound(plan.epsilon, 9)}", holds=holds)


def planned_cost(cost: Cost, queries: int) -> Charge:
    answering, voters = cost.answering, cost.answering.voters
    models = voters if voters.are_private_models else None
    charge = Charge(queries, sampled=voters.sampled, models=models, shares_randomness=models is not None)
    if isinstance(answering, Run):
        count = -(-queries // answering.labels)
        return replace(charge, count=count, guarantee=answering.budget, labels=answering.labels)
    if isinstance(answering, Mechanism):
        pure = mechanisms.amplify_epsilon(mechanisms.find_pure_epsilon(answering), voters.sampled)
        pair = None if pure == math.inf else (Fraction(pure), Fraction(0))
        chance = (
            mechanisms.enclose_vanishing(answering, answering.threshold) if answering.threshold is not None else None
        )
        charge = replace(charge, guarantee=pair, vanishing=0.0 if chance is None else min(1.0, chance.upper))
        return charge if models is None else replace(charge, plain=((answering.reached, Charge(guarantee=pair)),))
    sizes = range(1, voters.K) if models is not None and voters.K <= _MAX_SAMPLED_VOTERS else range(0)
    sample = next(((n, _MAX_DISTANCE) for n in sizes if is_subsampled((n, _MAX_DISTANCE), cost)), None)
    non_private = tuple((reached, Charge()) for reached in sorted({1, voters.reached})) if models is not None else ()
    return replace(charge, guarantee=answering.target, plain=non_private, sample=sample)


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
        card_digest = None if not digest else read_digest(digest)
    except (ValueError, *MALFORMED) as error:
        reason = f"its block is malformed ({type(error).__name__}: {error})"
        yield Verdict("model card", "it states a guarantee", FALSE, reason)
        return
    claim = f"the described models are {format_pair(*guarantee)}-DP"
    if card_digest is None:
        yield Verdict("model card", claim, ASSUMED, "the models are private by themselves: no file can show this")
        return
    budget = parse_exact(card_digest.epsilon), parse_exact(card_digest.delta)
    holds = guarantee[0] >= budget[0] and guarantee[1] >= budget[1]
    yield decide("model card", claim, f"the budget of its ledger is {format_pair(*budget)}", holds=holds)
    if spent is None:
        return
    claim = f"it spent {format_pair(*spent)}"
    ledger = next((candidate for candidate in ledgers if candidate.identity == card_digest.identity), None)
    if ledger is None or card_digest.number > len(ledger.entries):
        yield Verdict("model card", claim, UNKNOWN, "its ledger is not among the files: it would decide")
        return
    counts = Counter[int]()
    for entry in ledger.entries[: card_digest.number]:
        counts[entry.cost] += entry.count
    priced_charges = [(replace(ledger.charges[number], count=count), None) for number, count in counts.items()]
    total = smallest_total(priced_charges, spent[1], goal=float(spent[0]))
    yield judge_total(
        claim, total, (float(spent[0]) * _CARD_ROUNDING, spent[1]), false_ratio=_FALSE_RATIO, about="model card"
    )


def read_members(path: Path) -> dict[str, Point]:
    source, format_advice = f"--voters {str(path)!r}", "lines of name,epsilon,delta"
    if not path.is_file() or path.stat().st_size > _MAX_BYTES:
        raise ValueError(f"{source} is no small file: give {format_advice}")
    members: dict[str, Point] = {}
    for number, row in enumerate(csv.reader(path.read_text(encoding="utf-8-sig").splitlines(), strict=True), 1):
        if number == 1 and row == ["name", "epsilon", "delta"]:
            continue
        try:
            name, epsilon, delta = [*(field.strip() for field in row), "0"][:3]
            pair = NO_GUARANTEE if epsilon == "inf" else (parse_exact(epsilon), parse_exact(delta or "0"))
        except ValueError:
            raise ValueError(f"{source}, line {number}: write {format_advice}") from None
        if name in members:
            raise ValueError(f"{source}, line {number}: {name!r} is named twice")
        members[name] = pair
    if not members:
        raise ValueError(f"{source} names no voter: give {format_advice}")
    return members


def judge_members(members: Mapping[str, Point], voters: Voters) -> Iterator[Verdict]:
    """Judge for each named voter whether a table counts them as no more private than they are.

    Match greedily, largest ε first. A voter whose ε covers a member covers the ε of all later ones, so the member gets
    the least δ of such voters that is large enough. No matching covers more members.
    """
    remaining = voters.pairs
    if len(members) != len(remaining):
        reason = f"the table is about {len(remaining)} voters, and {len(members)} are named"
        yield from (decide("voters", f"{name!r} is counted", reason, holds=False) for name in members)
        return
    matched: dict[str, Point] = {}
    for name, guarantee in sorted(members.items(), key=itemgetter(1), reverse=True):
        candidates = [
            index for index, match in enumerate(remaining) if match[0] >= guarantee[0] and match[1] >= guarantee[1]
        ]
        if candidates:
            matched[name] = remaining.pop(min(candidates, key=[match[1] for match in remaining].__getitem__))
    for name, guarantee in members.items():
        match = matched.get(name)
        description = "without a guarantee" if match == NO_GUARANTEE else "anyone"
        counted_as = description if match is None or match == NO_GUARANTEE else f"{format_pair(*match)}-DP"
        promise = "no guarantee" if guarantee == NO_GUARANTEE else format_pair(*guarantee)
        yield decide(
            "voters", f"{name!r} is counted as {counted_as}", f"the file promises {promise}", holds=match is not None
        )


def judge_figure(content: bytes, ledgers: Mapping[str, Ledger]) -> Iterator[Verdict]:
    try:
        with ctx.workprec(_PRECISION_BITS):
            yield from list(_judge_figure(read(parse_json(content), _FIGURE), ledgers))
    except (ValueError, *MALFORMED) as error:
        yield Verdict("estimate", "it is a published figure", FALSE, f"{type(error).__name__}: {error}")


def _judge_figure(figure: Json, ledgers: Mapping[str, Ledger]) -> Iterator[Verdict]:
    epsilon, delta, order, noisy, public, probability = (Fraction(figure[name]) for name in _NUMBERS)
    run = figure["run"]
    parameters = read(run["parameters"], dict.fromkeys(run["parameters"], float))
    if parameters.keys() not in _PARAMETERS or ("deviation" in parameters and run["check"] == "data-dependent"):
        raise ValueError("its parameters are those of no publication")
    safety = Fraction(parameters["safety"])
    positive_values = [value for name, value in parameters.items() if name != "safety"]
    if not (0 < delta < 1 < order == parameters["order"] and min(positive_values) > 0 <= min(safety, noisy)):
        raise ValueError("a number is out of its range")
    converted = conversion(order, delta) if figure["conversion"] == "tight" else -ball(delta).log() / ball(order - 1)
    recomputed = float((ball(noisy + public) + converted).upper())
    claim = f"its parts, {float(noisy):.6g} and {float(public):.6g}, make {format_pair(epsilon, delta)}"
    yield decide("estimate", claim, f"converted again it is {recomputed:.9g}", holds=_is_at_least(epsilon, recomputed))
    claim = f"its public part is for {run['queries']:,} questions to {run['mechanism']}, and publishing it"
    minimum = publication_cost(parameters)
    reason = f"publishing alone costs {format_bound(minimum, 9)}; no file shows the cost of its checks"
    yield decide("estimate", claim, reason, holds=_is_at_least(public, minimum), how=ASSUMED)
    minimum = float(((ball(safety) / ball(Fraction(2)).sqrt()).erfc() / 2).upper())
    scope = "" if "deviation" in parameters else " for the one direction of Theorem 6"
    claim = f"it is an estimate about the data at hand, too small with probability {float(probability):.3g}{scope}"
    reason = f"no file shows its noise, its checks ({run['check']}), and parameters chosen beforehand, {parameters}"
    yield decide("estimate", claim, reason, holds=_is_at_least(probability, minimum), how=ASSUMED)
    for path, ledger in ledgers.items():
        for charge in ledger.charges.values():
            if charge.guarantee is not None and float(charge.guarantee[0]) == float(epsilon):
                holds = charge.estimate is not None and _is_at_least(Fraction(charge.estimate), minimum)
                reason = "it states a guarantee" if charge.estimate is None else f"too small with {charge.estimate:.3g}"
                yield decide("estimate", f"{path} counts it as such an estimate", reason, holds=holds)


def _is_at_least(stated: Fraction, computed: float) -> bool:
    return stated >= computed * (1.0 - _RELATIVE_TOLERANCE)


def publication_cost(parameters: Mapping[str, float]) -> float:
    if "deviation" in parameters:
        return parameters["order"] / (2.0 * parameters["deviation"] ** 2)
    alpha, beta, sigma, safety = (parameters[name] for name in ("order", "smoothness", "noise_scale", "safety"))
    costs = []
    for exponent in (-beta, beta):
        r = math.exp(exponent)
        shift, remainder = min(1.0, r) + safety * sigma * abs(1.0 - r), 1.0 + alpha * math.expm1(2.0 * exponent)
        if remainder <= 0.0:
            raise ValueError("publishing it so costs more than any number")
        costs.append(
            alpha * shift**2 / (2.0 * sigma**2 * remainder)
            + (2.0 * alpha * exponent - math.log(remainder)) / (2.0 * (alpha - 1.0))
        )
    return max(costs)
