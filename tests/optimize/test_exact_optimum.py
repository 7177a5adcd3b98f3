"""The optimum as exact numbers, against exact fractions, a closed form, and bases that are not optimal."""

import json
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest

from darrm import MajorityProblem, NoiseFunction, PrivacyParams, Voters, certify, optimize_gamma
from darrm.laws import priors
from darrm.optimize import exact_optimum as module
from darrm.optimize.__main__ import main
from darrm.optimize.exact_optimum import ExactOptimum, Ratio, exact_optimum, exact_weights
from darrm.optimize.exact_vertex import Basis, basis_of
from darrm.proof.table import GammaTable
from tests.optimality import optimality_of
from tests.oracle import exact_budget, exact_rows, exponential


def table_of(K: int, m: str, delta: str, shape: str, prior: priors.Prior | None = None) -> GammaTable:
    problem = MajorityProblem.from_allowance(Voters(K, PrivacyParams("0.1", delta)), m)
    return optimize_gamma(problem, shape=shape, prior=prior)


def at(exact: ExactOptimum, ratio: Ratio) -> Fraction:
    """The number with t replaced by a fraction within 1e-60 of it."""
    t = exponential(exact.exponent)
    numerator, denominator = (sum(int(c) * t**power for power, c in enumerate(poly.coeffs())) for poly in ratio)
    return Fraction(numerator) / denominator


@pytest.mark.parametrize("shape", ["free", "monotone"])
@pytest.mark.parametrize(
    ("K", "m", "delta"), [(11, "3", "1e-5"), (11, "5", "1e-5"), (11, "3", "0"), (10, "2.5", "1e-5")]
)
def test_it_is_what_the_solver_rounds(K: int, m: str, delta: str, shape: str) -> None:
    table = table_of(K, m, delta, shape)
    exact = exact_optimum(table)
    assert [float(at(exact, ratio)) for ratio in exact.gamma] == pytest.approx(table.gamma.half.tolist(), abs=1e-9)
    found = optimality_of(table)
    assert found.bound <= float(at(exact, exact.value)) + 1e-16
    assert float(at(exact, exact.value)) <= found.value + 1e-16


@pytest.mark.parametrize("shape", ["free", "monotone"])
@pytest.mark.parametrize(("K", "m", "delta"), [(5, "2", "0.001"), (7, "3", "0")])
def test_every_row_holds_in_fractions_and_as_many_with_equality(K: int, m: str, delta: str, shape: str) -> None:
    exact = exact_optimum(table_of(K, m, delta, shape))
    gamma, budget = [at(exact, ratio) for ratio in exact.gamma], exact_budget(exact.problem)
    costs = [[a * g for a, g in zip(row, gamma, strict=True)] for row in exact_rows(exact.problem)]
    slacks = [budget - sum(cost, Fraction(0)) for cost in costs]
    assert min(slacks) >= -Fraction(1, 10**50)
    assert len([slack for slack in slacks if abs(slack) < Fraction(1, 10**50)]) >= len(exact.rows)
    weights = exact_weights(priors.Independent(), K)
    value = sum((w * (1 - g) for w, g in zip(weights, gamma, strict=True)), Fraction(0)) / 2
    assert abs(value - at(exact, exact.value)) < Fraction(1, 10**50)


def test_without_allowance_it_is_the_mean_vote_as_fractions() -> None:
    exact = exact_optimum(table_of(11, "1", "0", "free"))
    assert [(int(n[0]), int(d[0]), n.degree(), d.degree()) for n, d in exact.gamma] == [
        (Fraction(2 * ones - 11, 11).numerator, Fraction(2 * ones - 11, 11).denominator, 0, 0) for ones in range(6, 12)
    ]


@pytest.mark.parametrize("prior", [priors.Independent(0.6, 0.9), priors.CommonP(), priors.Point(0.3)])
@pytest.mark.parametrize("K", [1, 4, 11])
def test_exact_weights_are_those_of_the_prior(K: int, prior: priors.Prior) -> None:
    assert [float(w) for w in exact_weights(prior, K)] == pytest.approx(prior.weights(K).tolist(), abs=1e-15)


def test_a_vertex_that_is_not_optimal_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    table = table_of(11, "3", "1e-5", "free")
    basis = basis_of(table)
    others: list[Basis] = [
        replace(basis, rows=basis.rows[1:], free=basis.free[1:], at_one=(*basis.at_one, basis.free[0])),
        replace(basis, rows=basis.rows[1:], free=basis.free[1:]),  # γ = 0 there, a multiplier of the wrong sign
        replace(basis, at_one=basis.at_one[1:]),
    ]
    for other in others:
        monkeypatch.setattr(module, "basis_of", lambda _, other=other: other)
        with pytest.raises(ValueError, match="not seen"):
            exact_optimum(table)


def test_what_has_no_exact_optimum_is_refused() -> None:
    with pytest.raises(ValueError, match="without multipliers"):
        exact_optimum(certify(table_of(3, "1", "0", "free").problem, NoiseFunction(3, [0.1, 0.2])))
    with pytest.raises(ValueError, match="at most 25"):
        exact_optimum(table_of(27, "1", "0", "free"))
    with pytest.raises(ValueError, match="with weights"):
        exact_weights(priors.TwoSided(0.7, 1.0), 3)


def test_the_command_writes_and_shows_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--K", "5", "--m", "1", "--exact", str(tmp_path / "exact.json")]) == 0
    written = json.loads((tmp_path / "exact.json").read_text(encoding="utf-8"))
    assert [(each["numerator"], each["denominator"]) for each in written["gamma"]] == [
        (["1"], ["5"]),
        (["3"], ["5"]),
        (["1"], ["1"]),
    ]
    assert written["gamma"][0]["decimal"] == "0.200000000000000000000000000000"
    assert "0.600000000000000000000000000000" in capsys.readouterr().out
