"""The optimum as exact numbers: ratios of integer polynomials in a power of e, proved optimal with no gap.

With t = e^g, where g divides ε and mε, the numbers of a row are ratios of polynomials: e^ε and e^{mε} are powers of t,
hi = (e^ε + Δ)/(e^ε + 1). A vertex solves a square system of such rows, so each γ(l) = N_l(t)/D_l(t) with integer
coefficients, by Cramer's rule and Bareiss's determinants. As t is transcendental (Lindemann), two such ratios are equal
only if they are equal as polynomials: whether a row holds with equality is decided by algebra, all else by balls.

**Proof of optimality.** (a) 0 ≤ γ ≤ 1, and for the monotone shape its steps are at least 0. (b) Every row of the full
set costs less than B, seen in balls, or exactly B, seen in polynomials. (c) The multipliers, from the transposed
system, are positive, and the reduced cost of every variable at a bound has the sign that keeps it there. By duality no
private γ of the shape has a smaller expected error; as all of (c) is strict, no other one has the same. ∎
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from fractions import Fraction
from functools import reduce
from itertools import accumulate, product
from math import comb, gcd, lcm
from typing import Any

from flint import arb, arb_mat, ctx, fmpq, fmpq_poly, fmpz_poly

from darrm import checks
from darrm.laws import priors
from darrm.optimize.exact_vertex import Basis, EnclosedRows, basis_of
from darrm.problem import MajorityProblem
from darrm.proof.corners import CornerCounts
from darrm.proof.table import GammaTable
from lp_models.gamma_lp import Shape

MOST_VOTERS = 25  # beyond, polynomials have thousands of coefficients of thousands of digits
_MOST_POWER = 64  # of t in e^ε and e^{mε}
_BITS = 512  # of the balls
_DIGITS = 30  # of the decimals that `to_json` writes

Ratio = tuple[fmpz_poly, fmpz_poly]


@dataclass(frozen=True, eq=False)
class ExactOptimum:
    """The one optimal γ of a problem, a prior and a shape; made by `exact_optimum`, which proves it."""

    problem: MajorityProblem
    prior: priors.Prior
    shape: str
    exponent: Fraction  # g of t = e^g
    gamma: tuple[Ratio, ...]  # γ(l) for l = floor(K/2) + 1 … K: numerator and denominator in t, without common factor
    value: Ratio  # the expected error
    rows: tuple[CornerCounts, ...]  # that hold with equality and determine it

    def enclosed(self, ratio: Ratio, digits: int) -> arb:
        """Enclose one of the numbers to so many digits."""
        bits = 64 + 4 * digits
        while True:
            with ctx.workprec(bits):
                ball = _at(ratio, _power_of_e(self.exponent))
            if ball.rel_accuracy_bits() > 4 * digits or ball.is_exact():
                return ball
            bits *= 2

    def decimal(self, ratio: Ratio, digits: int = _DIGITS) -> str:
        """Write one of the numbers with so many digits, the last of them off by at most one."""
        return str(self.enclosed(ratio, digits).str(digits, radius=False))

    def to_json(self) -> dict[str, Any]:
        """Write it as plain data: coefficients from t⁰ on as text, for they are longer than a float."""
        return {
            "format": "darrm exact optimum",
            "version": 1,
            "problem": self.problem.to_json(),
            "prior": priors.to_json(self.prior, self.problem.voters.K),
            "shape": self.shape,
            "t": f"e^({self.exponent})",
            "gamma": [self._written(ratio) for ratio in self.gamma],
            "expected_error": self._written(self.value),
            "active_rows": [asdict(row) for row in self.rows],
        }

    def _written(self, ratio: Ratio) -> dict[str, Any]:
        numerator, denominator = ([str(each) for each in poly.coeffs()] for poly in ratio)
        return {"decimal": self.decimal(ratio), "numerator": numerator, "denominator": denominator}


def exact_optimum(table: GammaTable) -> ExactOptimum:
    """Compute the optimum that a table is a rounding of, and prove it.

    `ValueError` if the table is not an optimum under a prior with exact weights, has more than `MOST_VOTERS` voters,
    voters that are not private, ε and mε without a common divisor, or an optimum that is not seen to be the only one.

    >>> from darrm import PrivacyParams, Voters, optimize_gamma
    >>> problem = MajorityProblem.from_allowance(Voters(3, PrivacyParams(0.1)), 1)
    >>> exact = exact_optimum(optimize_gamma(problem))
    >>> exact.gamma, exact.decimal(exact.value, 20)
    (((1, 3), (1, 1)), '0.093750000000000000000')
    """
    problem = table.problem
    checks.integer_at_least(1, most=MOST_VOTERS, K=problem.voters.K, advice="ask for digits, `refined`, instead")
    if not problem.voters.each.is_private:
        checks.fail("voters", checks.Found("not private ones"), "private", "the optimum of plain voters is closed")
    if problem.voters.own is not None:
        checks.fail("voters", checks.Found("voters that differ"), "alike")
    basis = basis_of(table)
    optimality = table.optimality
    if optimality is None:
        return checks.fail("table", checks.Found("one without optimality"), "an optimized one")
    shape, weights = Shape(optimality.shape), exact_weights(optimality.prior, problem.voters.K)
    rows = _PolynomialRows(problem)
    variables = _solved(rows, shape, basis)
    common = rows.one
    for _, denominator in variables:
        common = common * denominator // common.gcd(denominator)
    steps = [numerator * (common // denominator) for numerator, denominator in variables]
    over_common = steps if shape is Shape.FREE else list(accumulate(steps))
    value = _value(over_common, common, weights)
    gamma = tuple(_reduced(numerator, common) for numerator in over_common)
    _prove(rows, shape, basis, weights, variables, over_common, common)
    return ExactOptimum(problem, optimality.prior, optimality.shape, rows.exponent, gamma, value, basis.rows)


def exact_weights(prior: priors.Prior, K: int) -> list[Fraction]:
    """Return the weights of a prior of `darrm.laws.priors` as fractions; `ValueError` for any other.

    >>> exact_weights(priors.Independent(), 3), exact_weights(priors.CommonP(), 1)
    ([Fraction(9, 32), Fraction(13, 32)], [Fraction(1, 2)])
    """
    levels = range(K // 2 + 1, K + 1)
    if not (priors.is_built_in(prior) and prior.has_closed_form):
        checks.fail("the prior", prior.text, "one of darrm.laws.priors with weights")
    if isinstance(prior, priors.CommonP):
        above = {ones: Fraction(sum(comb(K + 1, i) for i in range(ones + 1, K + 2)), 2 ** (K + 1)) for ones in levels}
        return [Fraction(2, K + 1) * (1 - 2 * above[ones]) for ones in levels]
    if isinstance(prior, priors.Point):
        p = max(Fraction(repr(prior.p)), 1 - Fraction(repr(prior.p)))
    else:
        p = sum(Fraction(repr(getattr(prior, end))) for end in ("low", "high")) / Fraction(2)
    return [comb(K, ones) * (p**ones * (1 - p) ** (K - ones) - p ** (K - ones) * (1 - p) ** ones) for ones in levels]


class _PolynomialRows:
    """Rows of a problem as integer polynomials in t: the real row times a positive factor."""

    def __init__(self, problem: MajorityProblem) -> None:
        self.problem, self.K = problem, problem.voters.K
        each, target = problem.voters.each, problem.target
        one, other = each.exact_epsilon, target.exact_epsilon
        self.exponent = Fraction(gcd(one.numerator, other.numerator), lcm(one.denominator, other.denominator))
        powers = one / self.exponent, other / self.exponent
        if max(powers) > _MOST_POWER:
            checks.fail("ε and mε", f"{one} and {other}", f"multiples of a number, up to {_MOST_POWER} times it")
        self.one = fmpz_poly([1])
        self.growth = _monomial(int(powers[0]))
        self.ratio = _monomial(int(powers[1]))
        self.delta = _rational(each.exact_delta)
        self.budget = self.ratio - 1 + 2 * fmpq_poly([_rational(target.exact_delta)])

    def with_limit(self, row: CornerCounts) -> list[fmpz_poly]:
        """Write the coefficients of γ's half and the limit of a row, all times one positive number."""
        factor = (self.growth + 1) ** (row.high + row.low)
        first = self._law(row, row.ones, row.moved_zeros, row.moved_ones)
        second = self._law(row, row.zeros, row.moved_ones_prime, row.moved_zeros_prime)
        total = [one + self.ratio * other for one, other in zip(first, second, strict=True)]
        levels = range(self.K // 2 + 1, self.K + 1)
        entries = [total[ones] - total[self.K - ones] for ones in levels] + [self.budget * factor]
        denominator = lcm(1, *(int(entry.denom()) for entry in entries))
        return [(entry * denominator).numer() for entry in entries]

    def _law(self, row: CornerCounts, ones: int, rising: int, falling: int) -> list[fmpq_poly]:
        """Write the law of the number of ones, times (e^ε + 1) for each voter at (hi, lo) or (lo, hi)."""
        high, low, delta = self.growth + self.delta, fmpq_poly([1 - self.delta]), fmpq_poly([self.delta])
        law = [fmpq_poly([0])] * (ones - falling) + [fmpq_poly([1])]
        pairs = [(low, high)] * row.high + [(high, low)] * row.low
        pairs += [(1 - delta, delta)] * rising + [(delta, 1 - delta)] * falling
        for stay, rise in pairs:
            law = [
                stay * one + rise * other
                for one, other in zip([*law, fmpq_poly([0])], [fmpq_poly([0]), *law], strict=True)
            ]
        return law + [fmpq_poly([0])] * (self.K + 1 - len(law))


def _solved(rows: _PolynomialRows, shape: Shape, basis: Basis) -> list[Ratio]:
    """Solve the active rows for the variables by Cramer's rule."""
    matrix, limits = [], []
    for row in basis.rows:
        *coefficients, limit = rows.with_limit(row)
        matrix.append(_over_variables(shape, coefficients))
        limits.append(limit)
    size = rows.problem.voters.half_size
    if basis.reaches_one:
        matrix.append([rows.one] * size)
        limits.append(rows.one)
    left = [limit - sum((row[k] for k in basis.at_one), 0 * limit) for row, limit in zip(matrix, limits, strict=True)]
    square = [[row[k] for k in basis.free] for row in matrix]
    determinant = _determinant(square)
    if determinant == 0:
        checks.fail("the rows that hold with equality", checks.Found("dependent ones"), "independent")
    point = [(0 * rows.one, rows.one)] * size
    for k in basis.at_one:
        point[k] = (rows.one, rows.one)
    for place, k in enumerate(basis.free):
        replaced = [[*row[:place], limit, *row[place + 1 :]] for row, limit in zip(square, left, strict=True)]
        point[k] = _reduced(_determinant(replaced), determinant)
    return point


def _determinant(matrix: Sequence[Sequence[fmpz_poly]]) -> fmpz_poly:
    """Compute a determinant by Bareiss's elimination, in which every division is exact."""
    rows, last, sign = [list(row) for row in matrix], fmpz_poly([1]), 1
    for step in range(len(rows) - 1):
        pivot = next((place for place in range(step, len(rows)) if rows[place][step] != 0), None)
        if pivot is None:
            return fmpz_poly([0])
        if pivot != step:
            rows[step], rows[pivot], sign = rows[pivot], rows[step], -sign
        for row in rows[step + 1 :]:
            row[step + 1 :] = [
                (rows[step][step] * row[k] - row[step] * rows[step][k]) // last for k in range(step + 1, len(rows))
            ]
        last = rows[step][step]
    return sign * rows[-1][-1] if rows else last


def _value(numerators: Sequence[fmpz_poly], common: fmpz_poly, weights: Sequence[Fraction]) -> Ratio:
    """Write ½ Σ w_l (1 − γ(l)) as a ratio."""
    scale = lcm(*(each.denominator for each in weights))
    pairs = zip(weights, numerators, strict=True)
    lost = sum(((common - numerator) * int(weight * scale) for weight, numerator in pairs), 0 * common)
    return _reduced(lost, common * (2 * scale))


def _prove(
    rows: _PolynomialRows,
    shape: Shape,
    basis: Basis,
    weights: Sequence[Fraction],
    variables: Sequence[Ratio],
    numerators: Sequence[fmpz_poly],
    common: fmpz_poly,
) -> None:
    """Check (a), (b) and (c) of the module; `ValueError` if one of them is not seen to hold."""
    with ctx.workprec(_BITS):
        enclosed, t = EnclosedRows(rows.problem), _power_of_e(rows.exponent)
        point = [_at(ratio, t) for ratio in variables]
        gamma = [_at((numerator, common), t) for numerator in numerators]
        inside = all(ratio[0] == 0 or ball > 0 for ratio, ball in zip(variables, point, strict=True))
        below = all(numerator == common or ball < 1 for numerator, ball in zip(numerators, gamma, strict=True))
        _require(inside and below, "γ in [0, 1]")
        for row in _rows_that_may_reach(enclosed, rows.problem, gamma):
            *coefficients, limit = rows.with_limit(row)
            cost = sum((a * numerator for a, numerator in zip(coefficients, numerators, strict=True)), 0 * common)
            _require(cost == limit * common, "every row at most the budget")
        matrix = [_over_variables(shape, enclosed.coefficients(row)) for row in basis.rows]
        gain = _over_variables(shape, [arb(_rational(weight)) / 2 for weight in weights])
        matrix += [[arb(1)] * len(gain)] * basis.reaches_one
        size = len(matrix)
        square = arb_mat(size, size, [row[k] for k in basis.free for row in matrix])
        duals = square.solve(arb_mat(size, 1, [gain[k] for k in basis.free])).entries()
        _require(all(y > 0 for y in duals), "every multiplier positive")
        for k in set(range(len(gain))) - set(basis.free):
            reduced = sum((y * row[k] for y, row in zip(duals, matrix, strict=True)), -gain[k])
            _require(reduced < 0 if k in basis.at_one else reduced > 0, "every reduced cost of its sign")


def _rows_that_may_reach(
    enclosed: EnclosedRows, problem: MajorityProblem, gamma: Sequence[arb]
) -> Iterator[CornerCounts]:
    """Yield the rows of the full set whose enclosed cost is not below the budget."""
    voters, K = problem.voters, problem.voters.K
    middle = [arb(0)] if K % 2 == 0 else []
    signed = [-value for value in reversed(gamma)] + middle + list(gamma)
    for high, low in ((high, j - high) for j in range(voters.reached + 1) for high in range(j + 1)):
        near, N = enclosed.power("hi", high) * enclosed.power("lo", low), K - high - low
        best: list[list[tuple[arb, int, int]]] = []  # by ones: E[g], and how many near 0 and near 1 are moved
        for ones in range(N + 1):
            moves = product(range(N - ones + 1), range(ones + 1)) if voters.each.exact_delta else [(0, 0)]
            best.append([(_expected(enclosed.law(near, ones, *each), signed), *each) for each in moves])
        for ones in range(N + 1):
            highest = enclosed.ratio * reduce(arb.max, (other[0] for other in best[N - ones]))
            for first, zeros_moved, ones_moved in best[ones]:
                if first + highest < enclosed.budget:
                    continue
                for second, rising, falling in best[N - ones]:
                    row = CornerCounts(high, low, N - ones, ones, zeros_moved, ones_moved, falling, rising)
                    if not first + enclosed.ratio * second < enclosed.budget and row.is_of(voters):
                        yield row


def _expected(law: Iterable[arb], signed: Iterable[arb]) -> arb:
    return sum((chance * value for chance, value in zip(law, signed, strict=True)), arb(0))


def _require(holds: bool, what: str) -> None:
    if not holds:
        checks.fail("the exact optimum", checks.Found("one where this is not seen"), f"the only one, with {what}")


def _over_variables(shape: Shape, coefficients: Sequence[Any]) -> list[Any]:
    """Turn coefficients of γ into those of the variables, as `Shape.rows` does in floats."""
    return list(coefficients) if shape is Shape.FREE else list(accumulate(reversed(coefficients)))[::-1]


def _reduced(numerator: fmpz_poly, denominator: fmpz_poly) -> Ratio:
    """Cancel what both have in common; the denominator's leading coefficient becomes positive."""
    shared = numerator.gcd(denominator)
    if denominator[denominator.degree()] < 0:
        shared = -shared
    return numerator // shared, denominator // shared


def _at(ratio: Ratio, t: arb) -> arb:
    """Evaluate a ratio at a ball by Horner's scheme."""
    numerator, denominator = (_horner(poly, t) for poly in ratio)
    return numerator / denominator


def _horner(poly: fmpz_poly, t: arb) -> arb:
    total = arb(0)
    for coefficient in reversed(poly.coeffs()):
        total = total * t + arb(coefficient)
    return total


def _power_of_e(exponent: Fraction) -> arb:
    return arb(_rational(exponent)).exp()


def _monomial(degree: int) -> fmpq_poly:
    return fmpq_poly([0] * degree + [1])


def _rational(value: Fraction) -> fmpq:
    return fmpq(value.numerator, value.denominator)
