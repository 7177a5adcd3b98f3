"""The lower bound against exact rational optima; what a file may say about optimality, and what it may not."""

import json
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import product
from typing import Any

import jsonschema
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from darrm import NoiseFunction, PrivacyParams, Problem, Table, certify, optimize_table, priors
from darrm.errors import TableError
from darrm.majority.certify import Multiplier, lower_bound
from darrm.majority.corners import CornerCounts
from darrm.optimize.noise_functions import label_corner_counts
from darrm.problem import Voters
from darrm.table.optimality import SHAPES, STATUSES, Optimality
from lp_models.program import Status
from lp_models.reference import gamma_program
from tests.doors import validated
from tests.optimality import optimality_of
from tests.oracle import exact_least_error, maximum
from tests.strategies import problems

SLOW = pytest.mark.slow


def exact_value(table: Table) -> Fraction:
    """The expected error of γ, with the weights as they are computed."""
    weights = priors.compute_weights(optimality_of(table).prior, table.gamma.K)
    pairs = zip(weights.tolist(), table.gamma.half.tolist(), strict=True)
    return sum((Fraction(w) * (1 - Fraction(value)) for w, value in pairs), Fraction(0)) / 2


def test_the_exact_simplex_method() -> None:
    one, two = Fraction(1), Fraction(2)
    assert maximum([one, one], [[one, two], [two, one]], [one, one]) == Fraction(2, 3)
    assert maximum([-one, one], [[one, two], [two, one]], [one, one]) == Fraction(1, 2)


QUICK = {  # every ε and every Δ once for one, two and three voters
    (1 + (row + column) % 3, epsilon, delta)
    for row, epsilon in enumerate(("1e-6", "0.01", "1"))
    for column, delta in enumerate(("0", "1e-7", "0.001"))
}


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(
    ("K", "epsilon", "delta"),
    [
        pytest.param(*setting, marks=[] if setting in QUICK else [SLOW])
        for setting in product((1, 2, 3, 4), ("1e-6", "1e-5", "1e-4", "0.01", "1"), ("0", "1e-7", "0.001"))
    ],
)
def test_no_bound_is_above_the_exact_optimum(K: int, epsilon: str, delta: str, shape: str) -> None:
    """Rows, budget and multipliers rounded to floats would lift the bound above the optimum where ε is small."""
    for m in sorted({1.0, min(1.5, K), float(K)}):
        for overlap in {1, K}:
            voters = Voters(K, PrivacyParams(epsilon, delta), overlap=overlap)
            problem = Problem.from_allowance(voters, m)
            table = optimize_table(problem, shape=shape)
            optimality = optimality_of(table)
            exact = exact_least_error(problem, optimality.prior.weights(K), shape)
            assert not optimality.claimed
            assert optimality.bound <= exact <= exact_value(table)
            # multipliers as large as 1/ε are floats, too: a bound is off by so much, and no more
            assert optimality.bound >= exact - Fraction(1, 10**12) - Fraction(1, 10**15) / Fraction(epsilon)


@given(data=st.data(), problem=problems(most_voters=3))
def test_any_multipliers_of_any_rows_give_a_bound(data: st.DataObject, problem: Problem) -> None:
    K = problem.voters.K
    weights = priors.Dirichlet().weights(K)
    row = st.integers(0, K).map(lambda ones: CornerCounts(0, 0, K - ones, ones))
    counts = st.integers(0, K)
    anywhere = st.builds(
        lambda high, low, ones, *moved: CornerCounts(high, low, K - high - low - ones, ones, *moved),
        *[counts] * 7,
    ).filter(lambda each: each.is_row_of(problem.voters))
    rows = data.draw(st.lists(row | anywhere, max_size=3))
    multipliers = [(data.draw(st.floats(0.0, 2.0)), each) for each in rows]
    for shape in SHAPES:
        bound = lower_bound(problem, weights, shape, multipliers)
        assert bound <= exact_least_error(problem, weights, shape)
        assert bound == pytest.approx(max(0.0, by_hand(problem, weights, shape, multipliers)), abs=1e-9)


def by_hand(problem: Problem, weights: np.ndarray, shape: str, multipliers: Sequence[Multiplier]) -> float:
    """(1) and (2) in floats, row by row."""
    reduced = -0.5 * weights
    for y, row in multipliers:
        reduced = reduced + y * row.coefficients(problem.voters, problem.cost_ratio)
    gain = np.sum(np.minimum(reduced, 0.0)) if shape == "free" else min(0.0, np.min(np.cumsum(reduced[::-1])))
    return float(0.5 * np.sum(weights) - problem.budget * sum(y for y, _ in multipliers) + gain)


@pytest.mark.parametrize(("K", "delta", "overlap"), [(4, "0.01", None), (4, "0.01", 2), (5, "0", None), (5, "0", 1)])
def test_rows_of_the_full_set_are_named(K: int, delta: str, overlap: int | None) -> None:
    voters = Voters(K, PrivacyParams("0.5", delta), overlap=overlap)
    whole = gamma_program(Problem(voters, voters.each))
    for counts, p, p_prime in zip(whole.counts.tolist(), *whole.probabilities(), strict=True):
        row = label_corner_counts(counts)
        assert row.is_row_of(voters)
        found = np.array([np.sort(each) for each in row.probabilities(voters)])
        np.testing.assert_allclose(found, [np.sort(p), np.sort(p_prime)], atol=1e-15)
        assert not replace(row, ones=row.ones + 1).is_row_of(voters)
        assert not replace(row, moved_ones=row.ones + 1).is_row_of(voters)


def test_a_row_that_touches_too_many_is_none_of_theirs() -> None:
    """Its cost would not bind γ, and the bound of its multiplier would be false."""
    voters = Voters(4, PrivacyParams("0.5", "0.01"), overlap=2)
    for row, is_of in (
        (CornerCounts(2, 0, 1, 1), True),
        (CornerCounts(2, 1, 1, 0), False),
        (CornerCounts(1, 0, 2, 1, moved_zeros=1), True),
        (CornerCounts(1, 0, 2, 1, moved_zeros=2), False),
        (CornerCounts(1, 0, 2, 1, moved_zeros=2, moved_zeros_prime=2), True),
        (CornerCounts(0, 0, 2, 2, moved_ones_prime=2, moved_zeros_prime=1), False),
    ):
        assert row.is_row_of(voters) is is_of


@pytest.mark.parametrize("solver", ["production", "reference"])
@pytest.mark.parametrize("shape", SHAPES)
def test_both_solvers_leave_a_proof(shape: str, solver: str) -> None:
    pytest.importorskip("cvxpy")
    problem = Problem.from_allowance(Voters(6, PrivacyParams("0.5", "0.01"), overlap=4), 2)
    table = optimize_table(problem, shape=shape, solver=solver)
    again = Table.from_json(json.loads(json.dumps(table.to_json())))
    assert optimality_of(again) == optimality_of(table)
    assert not optimality_of(again).claimed
    assert optimality_of(again).gap <= 1e-8


def test_plain_voters_have_a_closed_form_and_a_proof() -> None:
    problem = Problem(Voters(11, PrivacyParams("inf"), overlap=1), PrivacyParams("0.2676", "0.0003"))
    again = Table.from_json(optimize_table(problem).to_json())
    assert not optimality_of(again).claimed
    assert optimality_of(again).gap <= 1e-9


def test_the_words_are_those_of_the_solver() -> None:
    assert tuple(status.value for status in Status) == STATUSES


PROBLEM = Problem.from_allowance(Voters(5, PrivacyParams("0.5", "0.01")), 2)


@pytest.fixture(scope="module")
def table() -> Table:
    return optimize_table(PROBLEM)


def loaded(table: Table, **changed: Any) -> Optimality:
    data = table.to_json()
    return optimality_of(Table.from_json({**data, "optimality": {**data["optimality"], **changed}}))


def test_a_weak_gamma_is_not_called_optimal(table: Table) -> None:
    weak = certify(PROBLEM, NoiseFunction(5, [0.05] * 3))
    value = weak.gamma.expected_error(priors.Independent(0.5, 1.0))
    said = table.to_json()["optimality"]
    changes: list[dict[str, Any]] = [{}, {"multipliers": []}, {"multipliers": [[1.0]]}]
    for changed in changes:
        data = {**weak.to_json(), "optimality": {**said, "value": value, "bound": value, **changed}}
        with pytest.raises(TableError, match=r"^optimality: the bound must be what its multipliers prove"):
            Table.from_json(data)
    data["optimality"]["multipliers"] = None
    optimality = optimality_of(Table.from_json(data))
    assert optimality.claimed
    assert "claimed by the maker" in str(optimality)
    assert "proved" in str(optimality_of(table))


def test_what_was_computed_again_stands_in_the_object(table: Table) -> None:
    """Within the tolerance a file may be off; nobody who loads it is."""
    said = optimality_of(table)
    assert loaded(table, value=said.value + 5e-13, bound=said.bound + 5e-13) == said
    for changed in ({"value": said.value - 1e-6}, {"bound": said.bound + 1e-6}):
        with pytest.raises(TableError, match=r"^optimality: "):
            loaded(table, **changed)


@pytest.mark.parametrize(
    "changed",
    [
        {"objective": "x"},
        {"shape": "monotone"},
        {"status": "done"},
        {"value": "0.1"},
        {"value": float("nan")},
        {"bound": float("-inf")},
        {"held_out": {"draws": 100, "mean": 0.1, "standard_error": 0.001}},
        {"multipliers": {}},
        {"multipliers": [[]]},
        {"multipliers": [[-1.0, 1]]},
        {"multipliers": [[float("inf"), 1]]},
        {"multipliers": [[1.0, 1.0]]},
        {"multipliers": [[1.0, 6]]},
        {"multipliers": [[1.0, 1, 0, 2, 3]]},
        {"multipliers": [[1.0, 0, 0, 0, 0, 0, 0, 0, 0]]},
        {"multipliers": [[0.0]] * 6},
        {"prior": {"kind": "uniform", "low": 0.5, "high": "1"}},
        {"prior": "\ud800"},
        {"prior": {"kind": "uniform", "low": "0.7", "high": "1"}},
        {"prior": {"kind": "unheard of"}},
        {"prior": 3},
        {"prior": {"kind": "other", "name": "mine"}},
    ],
)
def test_claims_that_do_not_hold_are_refused(table: Table, changed: dict[str, Any]) -> None:
    assert not table.gamma.is_monotone
    with pytest.raises(TableError) as caught:
        loaded(table, **changed)
    assert caught.value.field == "optimality"
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize(
    "held_out",
    [
        {"draws": 1, "mean": 0.1, "standard_error": 0.001},
        {"draws": 100, "mean": -0.1, "standard_error": 0.001},
        {"draws": 100, "mean": 0.1, "standard_error": float("nan")},
        {"draws": 100, "mean": 0.1},
        None,
    ],
)
def test_figures_on_other_draws_are_checked(held_out: Any) -> None:
    table = optimize_table(PROBLEM, prior="uniform", draws=50)
    assert optimality_of(table).claimed
    assert optimality_of(table).multipliers is None
    assert loaded(table) == optimality_of(table)
    with pytest.raises(TableError, match=r"^optimality: "):
        loaded(table, held_out=held_out)


def test_the_sampled_bound_is_below_the_error_of_every_private_gamma() -> None:
    """Its tangents are relaxed to weights: too large a share of one would lift the bound above the optimum's value."""
    table = optimize_table(PROBLEM, prior="uniform", draws=200)
    assert 0.0 < optimality_of(table).bound <= optimality_of(table).value
    assert optimality_of(table).gap <= 1e-9


def test_multipliers_follow_the_schema(table: Table) -> None:
    data = table.to_json()
    validated(data, "gamma_table")
    wrongs: list[Any] = [[[-1.0]], [[1.0, 0.5]], [[1.0, -1]], [[]], 3]
    for wrong in wrongs:
        data["optimality"]["multipliers"] = wrong
        with pytest.raises(jsonschema.ValidationError):
            validated(data, "gamma_table")
