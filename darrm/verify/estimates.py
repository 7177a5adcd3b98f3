"""Judge a published figure of PATE: an estimate about the data at hand, not a guarantee.

All its parts except the noisy one are public, and recomputed in balls: the conversion at λ and δ, Q checks of one
bit, the probability Φ(−z) that noise made it too small, and the cost of publishing it. On the scale of votes this cost
is λ/(2s²); by smooth sensitivity it is the largest divergence of N(f, (σS)²) and N(f', (σS')²) over r = S'/S with
|log r| ≤ β, |f − f'| ≤ min(S, S'), and a mean that carries zσS [P, Definition 22], enclosed piece by piece
of that interval:

    λ·(min(1, r) + zσ|1 − r|)²/(2σ²(1 − λ + λr²)) + (2λ·ln r − ln(1 − λ + λr²))/(2(λ − 1)).
"""

import re
from collections.abc import Iterator, Mapping
from fractions import Fraction

from flint import arb, ctx

from darrm.verify.formats import Json, parse_json
from darrm.verify.ledger import LedgerAudit
from darrm.verify.noisy_labels import Between, TooWideError, gaussian, renyi_of_bit
from darrm.verify.numbers import ball, conversion, pair_at_most
from darrm.verify.verdicts import ASSUMED, CONSISTENT, ESTIMATE, FALSE, PROVED, UNKNOWN, Verdict, judged

_PIECES, _BITS = 1024, 128
_NEAR = 1e-8  # relative: floats on either side, and β that the prover makes larger
_NUMBERS = ("epsilon", "delta", "order", "noisy_cost", "public_cost", "failure_probability")
_FIELDS = {"format", *_NUMBERS, "conversion", "run"}, {"mechanism", "queries", "check", "parameters"}
_PARAMETERS = {"order", "deviation", "safety"}, {"order", "smoothness", "noise_scale", "safety"}
_NUMBER = r"([\d.]+(?:e[+-]?\d+)?)"
_MECHANISM = re.compile(
    rf"GNMax\(sigma={_NUMBER}, .*|(?:Confident|Interactive)GNMax\(threshold=.*, sigma_threshold={_NUMBER}, .*'(\w+)'\)"
)


def judge_sanitized(content: bytes, ledgers: Mapping[str, LedgerAudit]) -> Iterator[Verdict]:
    """Judge a published figure, and whether ledgers take it for a guarantee."""
    try:
        with ctx.workprec(_BITS):
            yield from list(_judge(parse_json(content), ledgers))
    except (ValueError, TypeError, KeyError, AttributeError, ArithmeticError) as error:
        yield Verdict(ESTIMATE, "it is a published figure", FALSE, f"{type(error).__name__}: {error}")


def _judge(told: Json, ledgers: Mapping[str, LedgerAudit]) -> Iterator[Verdict]:
    epsilon, delta, order, noisy, public, chance = (Fraction(float(told[name])) for name in _NUMBERS)
    run, parameters = told["run"], told["run"]["parameters"]
    if (told.keys(), run.keys()) != _FIELDS or parameters.keys() not in _PARAMETERS:
        raise ValueError("its fields are not those of a figure")
    safety = Fraction(parameters["safety"])
    of_parameters = [value for name, value in parameters.items() if name != "safety"]
    if not (0 < delta < 1 < order == parameters["order"] and min(of_parameters) > 0 <= min(safety, noisy)):
        raise ValueError("a number is out of its range")
    converted = conversion(order, delta) if told["conversion"] == "tight" else -ball(delta).log() / ball(order - 1)
    own = float((ball(noisy + public) + converted).upper())
    claim = f"its parts, {float(noisy):.6g} and {float(public):.6g}, make {pair_at_most(epsilon, delta)}"
    yield judged(ESTIMATE, claim, f"converted again it is {own:.9g}", holds=_covers(epsilon, own), how=PROVED)
    claim = f"its public part is for {run['queries']:,} questions to {run['mechanism']}, and publishing it"
    try:
        parts = [_publication(parameters, order), *_checks(run, order)]
        low, high = sum(part.low for part in parts), sum(part.high for part in parts)
        how, reason = PROVED if _covers(public, high) else CONSISTENT, f"computed again it is {high:.9g}"
        yield judged(ESTIMATE, claim, reason, holds=_covers(public, low), how=how)
    except TooWideError as error:
        yield Verdict(ESTIMATE, claim, UNKNOWN, str(error))
    least = float(((ball(safety) / arb(2).sqrt()).erfc() / 2).upper())
    of = "" if "deviation" in parameters else " for the one direction of Theorem 6"
    claim = (
        f"it is an estimate about the data at hand, too small with probability {float(chance):.3g}{of}: no guarantee"
    )
    reason = (
        f"its noise, its checks ({run['check']}) and its parameters, chosen beforehand, {parameters}, no file shows"
    )
    yield judged(ESTIMATE, claim, reason, holds=_covers(chance, least), how=ASSUMED)
    for path, audit in ledgers.items():
        for charge in audit.ledger.charges.values():
            if charge.guarantee is not None and float(charge.guarantee[0]) == float(epsilon):
                holds = charge.estimate is not None and _covers(Fraction(charge.estimate), least)
                reason = "it states a guarantee" if charge.estimate is None else f"too small with {charge.estimate:.3g}"
                yield judged(ESTIMATE, f"{path} counts it as such an estimate", reason, holds=holds)


def _covers(stated: Fraction, due: float) -> bool:
    return stated >= due * (1.0 - _NEAR)


def _checks(run: Json, order: Fraction) -> Iterator[Between]:
    read, queries = _MECHANISM.fullmatch(run["mechanism"]), run["queries"]
    by_data = run["check"] == "data-dependent" and "deviation" not in run["parameters"]
    if read is None or type(queries) is not int or queries < 1 or not (by_data or run["check"] == "data-independent"):
        raise ValueError("no run of PATE is published so")
    if read[2] is not None and not by_data:
        rate = 1.0 / (2.0 * float(read[2]) ** 2)
        of_count = Between(float(order) * rate, float(order) * rate)
        bit = renyi_of_bit(gaussian(float(read[2])), float(order)) if read[3] == "discrete" else of_count
        yield Between(queries * bit.low, queries * bit.high)


def _publication(parameters: Json, order: Fraction) -> Between:
    if "deviation" in parameters:
        cost = float(order) / (2.0 * parameters["deviation"] ** 2)
        return Between(cost * (1.0 - 1e-15), cost * (1.0 + 1e-15))
    beta, sigma, safety = (ball(Fraction(parameters[name])) for name in ("smoothness", "noise_scale", "safety"))
    alpha, low, high = ball(order), 0.0, 0.0
    for piece in range(_PIECES + 1):
        place = beta * (2 * piece - _PIECES) / _PIECES
        for exponent in (
            (place, place + beta / _PIECES * arb(1, 1)) if piece < _PIECES else (place,)
        ):  # and all after it
            r = exponent.exp()
            moved, room = r.min(1) + safety * sigma * abs(1 - r), 1 - alpha + alpha * r**2
            cost = alpha * moved**2 / (2 * sigma**2 * room) + (2 * alpha * exponent - room.log()) / (2 * (alpha - 1))
            if not cost.is_finite():
                raise ValueError("publishing it so costs more than any number")
            low = max(low, float(cost.lower())) if exponent is place else low
            high = max(high, float(cost.upper()))
    return Between(low, high)
