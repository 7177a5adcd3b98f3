"""Compute the accuracy of a law under a prior, and prove that no private law is much better.

**Theorem 1 (γ).** Let w_l be the weights of the expected error ½ Σ_l w_l (1 − γ(l)), and y_r ≥ 0 any multipliers of
rows a_r·γ ≤ B of voters at corners. With ρ_l = Σ_r y_r a_{r,l} − ½ w_l no private γ has an expected error below

    ½ Σ_l w_l − B Σ_r y_r + G,      G = Σ_l min(0, ρ_l),      of those that never fall  G = min(0, min_k Σ_{l≥k} ρ_l).

*Proof.* A private γ satisfies the rows, so its error is at least ½ Σ_l w_l (1 − γ(l)) + Σ_r y_r (a_r·γ − B). In the
first case every γ(l) is in [0, 1]; in the second γ is a convex combination of 0 and of steps that are 1 from some k
on. ∎

**Theorem 2 (histograms).** Let P_p be the prior's probability of the partition p, c_j = m_j P_p for its m_j classes
with the most votes and 0 for other groups j. For multipliers z_t ≥ 0 of the terms of pairs of neighbors (n, n'), with
y_r the largest z_t/k_t of a pair's terms (k_t classes each) and ρ_j = c_j − Σ_t z_t [j = n's group of t] + e^ε Σ_t z_t
[j = the group of n' of t], no (ε, δ)-private mechanism has an accuracy above δ Σ_r y_r + Σ_p max_{j in p} ρ_j/m_j.
*Proof.* Averaging over renamed voters and classes, h treats classes alike and keeps its accuracy. For each pair
Σ_t z_t (h_i − e^ε h_j) ≤ y_r Σ_t k_t (h_i − e^ε h_j)_+ ≤ y_r δ. So Σ_j c_j h_j ≤ Σ_j ρ_j h_j + δ Σ_r y_r, and in every
partition h_j ≥ 0 and Σ_j m_j h_j = 1. ∎ The same holds for rows of private voters at corners, Σ a_{r,j} h_j ≤ δ.

**Theorem 3 (open-set answers).** A string with n votes is the answer with probability at most π(n): π(0) = 0 and π(n) =
min(c·π(n−t) + δ, 1 − (1 − π(n−t) − δ)/c), c = e^ε [DVGM20], for an overlap t. So no accuracy is above Σ_n π(n) times
the expected number of strings with n votes, and none with more.

All is computed in balls that contain the true numbers, from priors in exact fractions.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from fractions import Fraction
from math import comb, factorial, prod

from flint import arb, arb_poly, ctx

from darrm.verify.formats import MALFORMED, OPEN, OPEN_TABLE, WEIGHT_ONE, Json, Table, exact_number
from darrm.verify.gamma import Gamma
from darrm.verify.histograms import MOST_WORK, partitions, weights_of
from darrm.verify.numbers import Point, ball
from darrm.verify.verdicts import FALSE, OPTIMALITY, PROVED, UNKNOWN, Verdict, judged

_PRECISION = 320
_TOLERANCE = {True: 1e-12, False: 1e-10}  # absolute: the prover computes weights of priors in floats
_MOST_ROWS = 10_000
_NO_PRIOR = "the file does not hold its prior, or its draws: the maker can show them"


def judge_optimality(table: Table, numbers: Gamma | None) -> Iterator[Verdict]:
    """Judge the stated accuracy of a law, and that no private law is better."""
    claims = table.optimality
    if claims is None:
        return
    if numbers is not None and claims["shape"] == "monotone" and not numbers.is_monotone:
        yield Verdict(OPTIMALITY, "γ never falls", FALSE, "it falls somewhere")
        return
    merit, better = ("expected error", "a smaller") if numbers is not None else ("accuracy", "a larger")
    claim, best = f"the {merit} is {claims['value']!r}", f"no private law has {better} {merit} than {claims['bound']!r}"
    try:
        value = accuracy(table, claims["prior"]) if numbers is None else expected_error(numbers, claims)
    except (ValueError, KeyError, ArithmeticError):
        value = None
    if value is None:
        yield from (Verdict(OPTIMALITY, one, UNKNOWN, _NO_PRIOR) for one in (claim, best))
        return
    near = abs(claims["value"] - float(value)) <= _TOLERANCE[numbers is not None]
    yield judged(OPTIMALITY, claim, f"it is {float(value)!r}", holds=near, how=PROVED)
    yield Verdict(OPTIMALITY, best, *_judge_bound(table, claims, float(value), is_gamma=numbers is not None))


def _judge_bound(table: Table, claims: Mapping[str, Json], value: float, *, is_gamma: bool) -> tuple[str, str]:
    sign, tolerance = 1.0 if is_gamma else -1.0, _TOLERANCE[is_gamma]
    if sign * (claims["bound"] - value) > tolerance:
        return FALSE, "the law in the file is private and better"
    if claims["multipliers"] is None:
        return UNKNOWN, "the file holds no multipliers, which would prove it"
    try:
        with ctx.workprec(_PRECISION):
            proved = _error_bound(table, claims) if is_gamma else _accuracy_bound(table, claims)
    except (ValueError, *MALFORMED) as error:
        return FALSE, f"its multipliers are malformed ({type(error).__name__}: {error})"
    if proved is None:
        return UNKNOWN, f"K = {table.voters.K:,} is beyond the independent checker; the prover can load the table again"
    holds = sign * (claims["bound"] - proved) <= tolerance
    return PROVED if holds else FALSE, f"the multipliers in the file prove {proved!r}"


def _target(table: Table) -> tuple[arb, Fraction]:
    """Return c = e^ε and δ of one label, for a person who certainly takes part."""
    (epsilon, delta), drawn = table.target, table.voters.sampled
    c = ball(epsilon).exp()
    return (c, delta) if drawn is None else (1 + (c - 1) / ball(drawn.rate), min(delta / drawn.rate, Fraction(1)))


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


def expected_error(numbers: Gamma, claims: Mapping[str, Json]) -> Fraction | None:
    """Compute ½ Σ_l w_l (1 − γ(l)) exactly; None if the file lacks a number for it."""
    weights = error_weights(numbers.K, claims["prior"]) if claims["held_out"] is None else None
    if weights is None:
        return None
    return sum((w * (1 - value) for w, value in zip(weights, numbers.half, strict=True)), Fraction(0)) / 2


def _error_bound(table: Table, claims: Mapping[str, Json]) -> float | None:
    voters, (c, delta) = table.voters, _target(table)
    K, rows, weights = voters.K, claims["multipliers"], error_weights(voters.K, claims["prior"]) or []
    if len(rows) > K or any(row[0] < 0 for row in rows):
        raise ValueError("they are more than K, or negative")
    if len(rows) * K * K > 10 * MOST_WORK:
        return None
    law = [arb(0)] * (K + 1)
    for y, *counts in rows:
        kinds = [counts] if len(voters.kinds) == 1 else counts
        for place, each in enumerate(_row_law(table, kinds, arb(y), c)):
            law[place] += each
    half_weights = [ball(w) / 2 for w in weights]
    levels = range(K // 2 + 1, K + 1)
    reduced = [law[ones] - law[K - ones] - w for ones, w in zip(levels, half_weights, strict=True)]
    gain = tail = arb(0)
    if claims["shape"] == "free":
        gain = sum((each.min(0) for each in reduced), gain)
    else:
        for each in reversed(reduced):
            tail += each
            gain = gain.min(tail)
    total = sum((arb(y) for y, *_ in rows), arb(0))
    bound = sum(half_weights, arb(0)) - (c - 1 + 2 * ball(delta)) * total + gain
    return max(0.0, float(bound.lower()))


def _row_law(table: Table, kinds: list[list[int]], y: arb, c: arb) -> list[arb]:
    """Compute y·(law of L under p + c·law of L under 1 − p'), of voters at corners that a file counts."""
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
        places = ((up, down, zeros - up, ones - down), (down_prime, up_prime, ones - down_prime, zeros - up_prime))
        for side, (rising, falling, _, certain) in enumerate(places):
            for n, p in ((high, hi), (low, 1 - hi), (rising, delta), (falling, 1 - delta), (certain, arb(1))):
                sides[side] *= arb_poly([1 - p, p]) ** n
    if touched > table.voters.reached:
        raise ValueError("a row changes more voters than a person reaches")
    total = [arb(0)] * (table.voters.K + 1)
    for side in sides:
        for place, each in enumerate(side.coeffs()):
            total[place] += each
    return total


def _thetas(prior: Mapping[str, str], C: int) -> list[Fraction]:
    """Return the concentrations whose mean a prior is; those of Ewens' laws for open-set answers."""
    kind = prior["kind"]
    if kind == "ewens" and C == OPEN:
        return [exact_number(prior["theta"])]
    if kind == "dirichlet" and C != OPEN:
        return [exact_number(prior["concentration"])]
    if kind == "spread":
        open_ones = [Fraction(10), Fraction(1), Fraction(1, 10)]
        return open_ones if C == OPEN else [Fraction(1), Fraction(1, C), Fraction(1, 10 * C)]
    raise ValueError("under this prior no accuracy is rational")


def partition_probabilities(table: Table, prior: Mapping[str, str]) -> list[Fraction]:
    """Compute the prior's probability of every partition of the votes.

    A Dirichlet law of concentration a gives a histogram K!/Π n_c! · Π (a)_{n_c}/(Ca)_K, (a)_n = a·…·(a + n − 1); Ewens'
    law gives a partition with m_j strings of j votes K!/(θ)_K · Π (θ/j)^{m_j}/m_j!.
    """
    K, C = table.voters.K, table.classes
    thetas, total = _thetas(prior, C), list[Fraction]()
    for part in partitions(K, C or K, K):
        probability = Fraction(0)
        for a in thetas:
            if C == OPEN:
                each = prod(((a / j) ** m / factorial(m) for j, m in Counter(part).items() if j), start=Fraction(1))
                probability += each / prod((a + i for i in range(K)), start=Fraction(1))
            else:
                ways = factorial(C) // prod(factorial(part.count(votes)) for votes in set(part))
                rising = prod(
                    (prod((a + i for i in range(n)), start=Fraction(1)) / factorial(n) for n in part), start=Fraction(1)
                )
                probability += ways * rising / prod((C * a + i for i in range(K)), start=Fraction(1))
        total.append(probability * factorial(K) / len(thetas))
    return total


def accuracy(table: Table, prior: Mapping[str, str]) -> Fraction | None:
    """Compute the expected accuracy of a law on histograms exactly."""
    if table.format == OPEN_TABLE:
        K, stored = table.voters.K, table.law
        return _of_strings(K, prior, lambda n, m: Fraction(stored[n - 1][m])) / WEIGHT_ONE
    shares = zip(partition_probabilities(table, prior), weights_of(table), strict=True)
    return sum((probability * weights[0] for probability, weights in shares), Fraction(0)) / WEIGHT_ONE


def _of_strings(K: int, prior: Mapping[str, str], worth: Callable[[int, int], Fraction]) -> Fraction:
    """Compute the expected worth of the strings with the most votes: n votes, and m of the next string.

    Permutations of L whose cycles have at most m weigh θ to their number, c_m(L) of them over L!: L·c_m(L) is
    θ Σ_{j ≤ m} c_m(L − j), and a string with n votes takes θ/n.
    """
    thetas, total = _thetas(prior, OPEN), Fraction(0)
    for theta in thetas:
        fewer, expected = [Fraction(1)] + [Fraction(0)] * K, Fraction(0)
        for m in range(1, K + 1):
            weighs, last = [Fraction(1)], Fraction(1)  # the sum of the last m of them
            for length in range(1, K + 1):
                weighs.append(theta * last / length)
                last += weighs[length] - (weighs[length - m] if length >= m else 0)
            for n in range(m, K - m + 1):
                expected += worth(n, m) * theta / n * (weighs[K - n] - fewer[K - n])
            fewer = weighs
        total += (expected + worth(K, 0) * theta / K) / fewer[K]
    return total / len(thetas)


def _accuracy_bound(table: Table, claims: Mapping[str, Json]) -> float | None:
    rows, (c, delta) = claims["multipliers"], _target(table)
    if table.classes == OPEN and not rows:
        return _bound_of_strings(table, claims["prior"], c, delta)
    if len(rows) > _MOST_ROWS:
        return None
    parts = list(partitions(table.voters.K, table.classes or table.voters.K, table.voters.K))
    if table.classes == OPEN:
        parts = [(*(votes for votes in part if votes), 0) for part in parts]
    groups = {(part, votes): part.count(votes) for part in parts for votes in part}
    reduced = dict.fromkeys(groups, arb(0))
    for part, probability in zip(parts, partition_probabilities(table, claims["prior"]), strict=True):
        reduced[part, part[0]] = part.count(part[0]) * ball(probability)
    subtract = _subtract_row if table.voters.are_private else _subtract_pair
    bound = ball(delta) * sum((subtract(table, parts, row, reduced, c) for row in rows), arb(0))
    best: dict[tuple[int, ...], arb] = {}
    for (part, votes), size in groups.items():
        share = reduced[part, votes] / size
        best[part] = best[part].max(share) if part in best else share
    return min(1.0, float(sum(best.values(), bound).upper()))


_Reduced = dict[tuple[tuple[int, ...], int], arb]
_HistogramLaw = dict[tuple[int, ...], arb]


def _subtract_pair(table: Table, parts: list[tuple[int, ...]], row: Json, reduced: _Reduced, c: arb) -> arb:
    """Subtract the terms of a pair of neighbors, times their multipliers; return the largest z/k."""
    place, aligned, weights = row
    own, largest = parts[place], arb(0)
    if any(type(votes) is not int or votes < 0 for votes in (place, *aligned)):
        raise ValueError("a pair is about whole numbers")
    if table.classes == OPEN:
        own = (*own[:-1], *(0,) * (len(aligned) + 1 - len(own)))
        other = (*sorted(filter(None, aligned), reverse=True), 0)
    else:
        other = tuple(sorted(aligned, reverse=True))
    if len(own) != len(aligned) or sum(aligned) != table.voters.K:
        raise ValueError("a pair is of other votes")
    if sum(abs(x - y) for x, y in zip(own, aligned, strict=True)) > 2 * table.voters.reached:
        raise ValueError("a pair is no pair of neighbors")
    terms = Counter(zip(own, aligned, strict=True))
    listed = [(x, y, count) for (x, y), count in terms.items() if x or table.classes != OPEN]
    if table.classes == OPEN:
        listed.append((0, 0, 1))  # no answer
    for (x, y, count), z in zip(listed, weights, strict=True):
        if z < 0:
            raise ValueError("a multiplier is negative")
        reduced[parts[place], x] -= arb(z)
        if y or table.classes != OPEN or not x:
            reduced[other, y] += c * arb(z)
        largest = largest.max(arb(z) / count)
    return largest


def _subtract_row(table: Table, _: list[tuple[int, ...]], row: Json, reduced: _Reduced, c: arb) -> arb:
    """Subtract a row of private voters at corners, times its multiplier, which is returned."""
    (weight, answers, seats), C, kinds = row, table.classes, table.voters.kinds
    sizes = [sum(seat[0] for seat in seats if seat[1] == kind) for kind in range(len(kinds))]
    labels = [label for seat in seats for label in seat[2:]]
    if weight < 0 or not 1 <= answers < C or sizes != [count for count, _ in kinds] or min(map(min, seats)) < 0:
        raise ValueError("a row has other voters")
    moved = sum(count for count, kind, a, b, u, v in seats if a != b or (u != v and (kinds[kind][1] or (0, 0))[1] > 0))
    if moved > table.voters.reached or max(labels) >= C:
        raise ValueError("a row changes more voters than a person reaches")
    z = arb(weight)
    for is_after in (False, True):
        law = {(0,) * C: arb(1)}
        for count, kind, a, b, u, v in seats:
            law = _with_voters(law, count, _chances(kinds[kind][1], (b, a, v) if is_after else (a, b, u)))
        for counts, probability in law.items():
            part = tuple(sorted(counts, reverse=True))
            for answer in range(answers):
                reduced[part, counts[answer]] += (c * z if is_after else -z) * probability
    return z


def _chances(each: Point | None, labels: tuple[int, int, int]) -> dict[int, arb]:
    """Return the law of one voter's label: two labels as a randomized response, a third with Δ."""
    hi, delta = arb(1), arb(0)
    if each is not None:
        growth, delta = ball(each[0]).exp(), ball(each[1])
        hi = growth / (1 + growth)
    chances = dict.fromkeys(labels, arb(0))
    for label, chance in zip(labels, ((1 - delta) * hi, (1 - delta) * (1 - hi), delta), strict=True):
        chances[label] += chance
    return chances


def _with_voters(law: _HistogramLaw, count: int, chances: dict[int, arb]) -> _HistogramLaw:
    for _ in range(count):
        grown: _HistogramLaw = {}
        for counts, probability in law.items():
            for label, chance in chances.items():
                key = (*counts[:label], counts[label] + 1, *counts[label + 1 :])
                grown[key] = grown.get(key, arb(0)) + probability * chance
        law = grown
    return law


def _bound_of_strings(table: Table, prior: Mapping[str, str], c: arb, delta: Fraction) -> float:
    K, most = table.voters.K, [arb(0)]
    for n in range(1, K + 1):
        before = most[max(0, n - table.voters.reached)]
        most.append((c * before + ball(delta)).min(1 - (1 - before - ball(delta)) / c).min(arb(1)))
    ends = [Fraction(0), *(min(Fraction(1), Fraction(float(each.upper())) + Fraction(1, 2**50)) for each in most[1:])]
    return min(1.0, float(_of_strings(K, prior, lambda n, _: ends[n])))
