"""Compute the expected error of a noise function γ, and prove that no private one is much better.

**Theorem.** Let w_l be the weights of the expected error ½ Σ_l w_l (1 − γ(l)), and y_r ≥ 0 any multipliers of
rows a_r·γ ≤ B of voters at corners. With ρ_l = Σ_r y_r a_{r,l} − ½ w_l no private γ has an expected error below

    ½ Σ_l w_l − B Σ_r y_r + G,      G = Σ_l min(0, ρ_l),      of those that never fall  G = min(0, min_k Σ_{l≥k} ρ_l).

*Proof.* A private γ satisfies the rows, so its error is at least ½ Σ_l w_l (1 − γ(l)) + Σ_r y_r (a_r·γ − B). In the
first case every γ(l) is in [0, 1]; in the second γ is a convex combination of 0 and of steps that are 1 from some k
on. ∎

The bound is computed in balls that contain the true numbers, from priors in exact fractions. The accuracy of a table
of more classes is no privacy claim, and not judged.
"""

from collections.abc import Iterator, Mapping
from fractions import Fraction
from math import comb

from flint import arb, arb_poly, ctx

from darrm.verify.formats import MALFORMED, Json, Table, exact_number
from darrm.verify.gamma import Gamma
from darrm.verify.numbers import ball
from darrm.verify.verdicts import FALSE, OPTIMALITY, PROVED, UNKNOWN, Verdict, judged

_PRECISION, _TOLERANCE = 320, 1e-12  # bits; absolute: the prover computes weights of priors in floats
_MOST_WORK = 240_000_000  # numbers of rows: about twenty seconds
_NO_PRIOR = "the file does not hold its prior, or its draws: the maker can show them"


def judge_optimality(table: Table, gamma: Gamma) -> Iterator[Verdict]:
    """Judge the stated expected error of a γ, and that no private γ has a smaller one."""
    claims = table.optimality
    if claims is None:
        return
    if claims["shape"] == "monotone" and not gamma.is_monotone:
        yield Verdict(OPTIMALITY, "γ never falls", FALSE, "it falls somewhere")
        return
    claim = f"the expected error is {claims['value']!r}"
    best = f"no private law has a smaller expected error than {claims['bound']!r}"
    try:
        weights = error_weights(gamma.K, claims["prior"]) if claims["held_out"] is None else None
    except (ValueError, KeyError, ArithmeticError):
        weights = None
    if weights is None:
        yield from (Verdict(OPTIMALITY, one, UNKNOWN, _NO_PRIOR) for one in (claim, best))
        return
    value = float(sum(w * (1 - own) for w, own in zip(weights, gamma.half, strict=True)) / 2)
    near = abs(claims["value"] - value) <= _TOLERANCE
    yield judged(OPTIMALITY, claim, f"it is {value!r}", holds=near, how=PROVED)
    yield Verdict(OPTIMALITY, best, *_judge_bound(table, claims, weights, value))


def _judge_bound(table: Table, claims: Mapping[str, Json], weights: list[Fraction], value: float) -> tuple[str, str]:
    if claims["bound"] - value > _TOLERANCE:
        return FALSE, "the law in the file is private and better"
    rows, K = claims["multipliers"], table.voters.K
    if rows is None:
        return UNKNOWN, "the file holds no multipliers, which would prove it"
    try:
        if len(rows) * K * K > _MOST_WORK:
            return UNKNOWN, f"K = {K:,} is beyond the independent checker; the prover can load the table again"
        with ctx.workprec(_PRECISION):
            proved = _error_bound(table, rows, weights, is_free=claims["shape"] == "free")
    except (ValueError, *MALFORMED) as error:
        return FALSE, f"its multipliers are malformed ({type(error).__name__}: {error})"
    holds = claims["bound"] - proved <= _TOLERANCE
    return PROVED if holds else FALSE, f"the multipliers in the file prove {proved!r}"


def error_weights(K: int, prior: Mapping[str, str]) -> list[Fraction] | None:
    """Compute w_l = E|Pr[L = l] − Pr[L = K − l]|, l > K/2; None for a prior under which that is not rational.

    Independent votes with mean p ≥ 1/2 are binomial. If all voters share one p ~ U[0, 1], then, as ∫ Pr[L = l] dp from
    0 to 1/2 is Pr[Bin(K+1, ½) > l]/(K+1), w_l = 2·(Pr[Bin(K+1, ½) ≤ l] − Pr[Bin(K+1, ½) > l])/(K+1).

    >>> error_weights(1, {"kind": "dirichlet", "concentration": "1"})
    [Fraction(1, 2)]
    """
    numbers = {
        name: exact_number(text) for name, text in prior.items() if name in {"concentration", "p", "low", "high"}
    }
    levels = range(K // 2 + 1, K + 1)
    if prior["kind"] == "dirichlet" and numbers["concentration"] == 1:
        above = [Fraction(sum(comb(K + 1, ones) for ones in range(level + 1, K + 2)), 2 ** (K + 1)) for level in levels]
        return [2 * (1 - 2 * each) / (K + 1) for each in above]
    if prior["kind"] == "point":
        p = numbers["p"]
    elif prior["kind"] == "uniform" and numbers["low"] >= Fraction(1, 2):
        p = (numbers["low"] + numbers["high"]) / 2
    else:
        return None
    return [comb(K, n) * abs(p**n * (1 - p) ** (K - n) - p ** (K - n) * (1 - p) ** n) for n in levels]


def _error_bound(table: Table, rows: Json, weights: list[Fraction], *, is_free: bool) -> float:
    voters, (epsilon, delta) = table.voters, table.target
    c, K = ball(epsilon).exp(), voters.K
    if len(rows) > K or any(row[0] < 0 for row in rows):
        raise ValueError("they are more than K, or negative")
    if voters.sampled is not None:  # the target of a person who certainly takes part
        c, delta = 1 + (c - 1) / ball(voters.sampled.rate), min(delta / voters.sampled.rate, Fraction(1))
    law = [arb(0)] * (K + 1)
    for y, *counts in rows:
        kinds = [counts] if len(voters.kinds) == 1 else counts
        law = [sum(each, arb(0)) for each in zip(law, *_row_laws(table, kinds, arb(y), c), strict=True)]
    half_weights = [ball(w) / 2 for w in weights]
    levels = range(K // 2 + 1, K + 1)
    reduced = [law[ones] - law[K - ones] - w for ones, w in zip(levels, half_weights, strict=True)]
    gain = tail = arb(0)
    for each in reversed(reduced):
        tail += each
        gain = gain + each.min(0) if is_free else gain.min(tail)
    total = sum((arb(y) for y, *_ in rows), arb(0))
    bound = sum(half_weights, arb(0)) - (c - 1 + 2 * ball(delta)) * total + gain
    return max(0.0, float(bound.lower()))


def _row_laws(table: Table, kinds: list[list[int]], y: arb, c: arb) -> list[list[arb]]:
    """Compute y·(law of L under p) and y·c·(law of L under 1 − p'), of voters at corners that a file counts."""
    touched, sides = 0, [arb_poly([y]), arb_poly([y * c])]
    for counts, (voters, each) in zip(kinds, table.voters.kinds, strict=True):
        high, low, ones, *moved = counts + [0] * (7 - len(counts))
        zeros = voters - high - low - ones
        up, down, up_prime, down_prime = moved
        hi, delta = arb(1), arb(0)
        if each is not None:
            growth, delta = ball(each[0]).exp(), ball(each[1])
            hi = (growth + delta) / (growth + 1)
        if min(high, low, ones, zeros, *moved) < 0 or max(up, up_prime) > zeros or max(down, down_prime) > ones:
            raise ValueError("a row has other voters")
        touched += high + low + abs(up - up_prime) + abs(down - down_prime)
        places = ((up, down, ones - down), (down_prime, up_prime, zeros - up_prime))
        for side, (rising, falling, certain) in enumerate(places):
            for n, p in ((high, hi), (low, 1 - hi), (rising, delta), (falling, 1 - delta), (certain, arb(1))):
                sides[side] *= arb_poly([1 - p, p]) ** n
    if touched > table.voters.reached:
        raise ValueError("a row changes more voters than a person reaches")
    return [[side[place] for place in range(table.voters.K + 1)] for side in sides]
