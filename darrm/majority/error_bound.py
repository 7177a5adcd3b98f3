"""How small the expected error of a private noise function can be: a bound from multipliers of rows.

**Theorem.** Let w_l be the weights of the expected error ½ Σ_l w_l (1 − γ(l)), and y_r ≥ 0 any multipliers of any rows
a_r·γ ≤ B of the full set. With ρ_l = Σ_r y_r a_{r,l} − ½ w_l no private γ has an expected error below

    (1)  ½ Σ_l w_l − B Σ_r y_r + G,      G = Σ_l min(0, ρ_l),
    (2)  and no private γ that never falls one below the same with      G = min(0, min_k Σ_{l≥k} ρ_l).

*Proof.* A private γ satisfies the rows, so its expected error is at least ½ Σ_l w_l (1 − γ(l)) + Σ_r y_r (a_r·γ − B) =
½ Σ_l w_l − B Σ_r y_r + Σ_l ρ_l γ(l). In (1) every γ(l) is in [0, 1]; in (2) γ is a convex combination of 0 and of the
steps that are 1 from some k on, and a linear function of it is at least its smallest value there. ∎

Good multipliers come from the solver; bad ones give a weak bound, never a false one. So a table keeps them, and loading
it computes the bound again. Everything is done in balls that contain the real e^ε, rows and budget: however small
ε is, no rounding lifts the bound. w are the floats that the prior computes; value and bound are both about them, and a
relative error of w moves both by as much.

**The sum over rows.** As in `darrm.majority.corners` a row costs E_p[g] + c·E_q[g] with q = 1 − p'. The law of the
number of ones is that of a few binomials, moved by the ones. Terms below the rounding of the balls of each are cut off,
which leaves a few deviations, and a row is a product of short polynomials. All that was cut is what (1 +
c)·Σ y_r exceeds the sum of the coefficients by, |g| ≤ 1, and it is subtracted from the bound.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import starmap

from flint import arb, arb_poly, ctx

from darrm.majority.corners import CornerCounts, Row, budget_of, lower_float, precision_of, ratio_of
from darrm.majority.groups import GroupCounts
from darrm.numerics import Array
from darrm.problem import Problem, Voters
from darrm.util import checks
from darrm.util.files import Json

Multiplier = tuple[float, Row]


def lower_bound(problem: Problem, weights: Array, shape: str, multipliers: Sequence[Multiplier]) -> float:
    """Compute a float that is at most (1), or (2) for the shape ``"monotone"``, and at least 0, as every error is.

    ``weights`` are w_l for l = ⌊K/2⌋ + 1 … K, and ``multipliers`` pairs of y ≥ 0 and a row of the full set of the
    voters. For K = 1 and m = 1 every γ is private, and the bound is 0 without any row:

    >>> import numpy as np
    >>> from darrm import PrivacyParams
    >>> problem = Problem.from_allowance(Voters(1, PrivacyParams("1e-6")), 1)
    >>> lower_bound(problem, np.ones(1), "free", [])
    0.0
    """
    voters, K = problem.voters, problem.voters.K
    ratio = ratio_of(problem.target.exact_epsilon).ball
    with ctx.workprec(precision_of(problem.target)):
        total = sum((arb(y) for y, _ in multipliers), arb(0))
        law = _summed_law(voters, ratio, multipliers)
        half_weights = [arb(float(w)) / 2 for w in weights]
        levels = range(voters.first_majority, K + 1)
        reduced = [law[ones] - law[K - ones] - w for ones, w in zip(levels, half_weights, strict=True)]
        gain = arb(0)
        if shape == "free":
            gain = sum((each.min(0) for each in reduced), gain)
        else:
            tail = arb(0)
            for each in reversed(reduced):
                tail += each
                gain = gain.min(tail)
        cut = (1 + ratio) * total - sum(law, arb(0))
        bound = lower_float(sum(half_weights, arb(0)) - budget_of(problem.target) * total - cut + gain)
    return max(0.0, bound)


def _summed_law(voters: Voters, ratio: arb, multipliers: Sequence[Multiplier]) -> list[arb]:
    """Compute Σ_r y_r·(law of L under p + c·law of L under 1 − p') at L = 0 … K, without the terms that are cut."""
    total = [arb(0)] * (voters.K + 1)
    for y, row in multipliers:
        for weight, of_prime in ((arb(y), False), (arb(y) * ratio, True)):
            start, product = 0, arb_poly([weight])
            for part, corners in row.parts_of(voters):
                ones, binomials = part.side(corners.ball_hi, corners.ball_delta, of_prime=of_prime)
                start += ones
                for first, law in starmap(_binomial, binomials):
                    start, product = start + first, product * arb_poly(law)
            for place, each in enumerate(product.coeffs(), start):
                total[place] += each
    return total


def _binomial(n: int, p: arb) -> tuple[int, list[arb]]:
    """Compute Pr[Bin(n, p) = i] around the mode, as far as it is above 2^−bits: the first i, and the probabilities."""
    if p * (1 - p) == 0:
        return (n if p == 1 else 0), [arb(1)]
    mode = min(n, int((n + 1) * float(p.mid())))
    upward = [arb.bin_uiui(n, mode) * p**mode * (1 - p) ** (n - mode)]
    odds, downward, cut = p / (1 - p), upward[:], arb(2) ** -ctx.prec
    for i in range(mode, n):
        upward.append(upward[-1] * ((n - i) * odds / (i + 1)))
        if not upward[-1] > cut:
            break
    for i in range(mode, 0, -1):
        downward.append(downward[-1] * (i / odds / (n - i + 1)))
        if not downward[-1] > cut:
            break
    return mode - len(downward) + 1, downward[:0:-1] + upward


def multipliers_from_json(data: Json, voters: Voters) -> tuple[Multiplier, ...]:
    """Read lists of y and what `Row.to_list` wrote; `TypeError` or `ValueError` if it is malformed or names no row.

    A vertex of the program has at most as many multipliers as γ has values, so more than K of them are refused.
    """
    if not isinstance(data, list) or len(data) > voters.K:
        checks.fail("multipliers", type(data).__name__, f"a list of at most K = {voters.K} entries")
    multipliers, numbers = [], [n for n, _ in voters.groups]
    for entry in data:
        if not isinstance(entry, list):
            checks.fail("multipliers", entry, "a list of lists")
        y, *counts = entry
        checks.non_negative(multiplier=y)
        lists = [counts] if len(numbers) == 1 else counts
        if len(lists) != len(numbers) or not all(isinstance(part, list) for part in lists):
            checks.fail("multipliers", entry, "a multiplier and a list of counts for each group of voters")
        parts = tuple(map(CornerCounts.from_list, lists, numbers))
        row = parts[0] if len(parts) == 1 else GroupCounts(parts)
        if not row.is_of(voters):
            checks.fail("multipliers", entry, "a multiplier and a row of these voters")
        multipliers.append((float(y), row))
    return tuple(multipliers)


def largest(multipliers: Sequence[Multiplier], voters: Voters) -> tuple[Multiplier, ...]:
    """Keep the K largest multipliers: a vertex has no more, and any give a bound."""
    kept = sorted(multipliers, key=lambda each: -each[0])[: voters.K]
    return tuple((y, row) for y, row in kept if 0.0 < y < math.inf)
