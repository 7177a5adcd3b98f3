"""Vertices of the program to more digits than a solver has, against exact fractions and ball proofs."""

from fractions import Fraction

import numpy as np
import pytest
from flint import ctx

from darrm import MajorityProblem, NoiseFunction, PrivacyParams, Voters, certify, optimize_gamma
from darrm.laws import priors
from darrm.optimize.exact_vertex import Basis, EnclosedRows, basis_of, refined
from darrm.proof.corners import CornerCounts
from darrm.proof.optimality import lower_bound
from lp_models.gamma_lp import Shape
from tests.optimality import optimality_of
from tests.oracle import exact_least_error, exponential, law


def problem_of(K: int, m: str, delta: str, epsilon: str = "0.1") -> MajorityProblem:
    return MajorityProblem.from_allowance(Voters(K, PrivacyParams(epsilon, delta)), m)


@pytest.mark.parametrize("shape", ["free", "monotone"])
@pytest.mark.parametrize(("m", "delta"), [("3", "1e-5"), ("5", "1e-5"), ("3", "0")])
@pytest.mark.parametrize("prior", [priors.Independent(), priors.CommonP()])
def test_the_gap_of_a_refined_basis_is_rounding(m: str, delta: str, shape: str, prior: priors.Prior) -> None:
    problem = problem_of(11, m, delta)
    table = optimize_gamma(problem, prior=prior, shape=shape)
    weights = priors.weights_of(prior, 11)
    half, multipliers = refined(problem, weights, Shape(shape), basis_of(table))
    better = certify(problem, NoiseFunction(11, half))
    assert better.gamma.expected_error(prior) - lower_bound(problem, weights, shape, multipliers) <= 3e-15
    assert np.max(np.abs(better.gamma.half - table.gamma.half)) <= 1e-9
    assert optimality_of(table).bound <= better.gamma.expected_error(prior) + 1e-16


@pytest.mark.parametrize("shape", ["free", "monotone"])
@pytest.mark.parametrize("delta", ["0", "0.01"])
def test_the_value_is_that_of_an_exact_simplex(delta: str, shape: str) -> None:
    problem, prior = problem_of(5, "2", delta, "0.5"), priors.Independent()
    table = optimize_gamma(problem, prior=prior, shape=shape)
    half, _ = refined(problem, priors.weights_of(prior, 5), Shape(shape), basis_of(table))
    value = 0.5 * float(priors.weights_of(prior, 5) @ (1.0 - half))
    assert value == pytest.approx(float(exact_least_error(problem, prior.weights(5), shape)), abs=1e-15)


@pytest.mark.parametrize(
    "row", [CornerCounts(2, 1, 2, 2, 1, 2, 2, 0), CornerCounts(0, 3, 4, 0, 0, 0, 3, 0), CornerCounts(7, 0, 0, 0)]
)
def test_an_enclosed_row_contains_the_exact_one(row: CornerCounts) -> None:
    problem = problem_of(7, "2", "0.01", "0.5")
    growth, delta = exponential(problem.voters.each.exact_epsilon), problem.voters.each.exact_delta
    hi = (growth + delta) / (growth + 1)

    def written_out(high: Fraction, zeros: int, ones: int) -> list[Fraction]:
        places = [high] * row.high + [1 - high] * row.low + [delta] * zeros + [Fraction(0)] * (row.zeros - zeros)
        return law([*places, *[1 - delta] * ones, *[Fraction(1)] * (row.ones - ones)])

    first = written_out(hi, row.moved_zeros, row.moved_ones)
    second = written_out(1 - hi, row.moved_zeros_prime, row.moved_ones_prime)
    ratio = exponential(problem.target.exact_epsilon)
    with ctx.workprec(128):
        enclosed = EnclosedRows(problem).coefficients(row)
    for ones, ball in zip(range(4, 8), enclosed, strict=True):
        exact = first[ones] - first[7 - ones] - ratio * (second[ones] - second[7 - ones])
        assert float(ball.rad()) < 1e-35
        assert float(ball.mid()) == pytest.approx(float(exact), abs=1e-16)


def test_what_is_no_basis_is_refused() -> None:
    row = CornerCounts(3, 0, 0, 0)
    with pytest.raises(ValueError, match="1 rows for 2 variables"):
        Basis((row,), (0, 1))
    with pytest.raises(ZeroDivisionError):
        refined(problem_of(3, "2", "0"), np.ones(2), Shape.FREE, Basis((row, row), (0, 1)))
    with pytest.raises(ValueError, match="one without multipliers"):
        basis_of(certify(problem_of(3, "2", "0"), NoiseFunction(3, [0.1, 0.2])))
