"""The lower bound against exact rational optima; which claims of optimality a file may make, and which not."""

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

PROBLEM = Problem.from_allowance(Voters(5, PrivacyParams("0.5", "0.01")), 2)


@pytest.fixture(scope="module")
def table() -> Table:
    return optimize_table(PROBLEM)


def exact_value(table: Table) -> Fraction:
    """Compute the expected error of γ, with the weights as they are computed."""
    weights = priors.compute_weights(optimality_of(table).prior, table.gamma.K)
    pairs = zip(weights.tolist(), table.gamma.half.tolist(), strict=True)
    return sum((Fraction(w) * (1 - Fraction(value)) for w, value in pairs), Fraction(0)) / 2


def test_the_exact_simplex_method_finds_the_maximum() -> None:
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
        pytest.param(*setting, marks=[] if setting in QUICK else [pytest.mark.slow])
        for setting in product((1, 2, 3, 4), ("1e-6", "1e-5", "1e-4", "0.01", "1"), ("0", "1e-7", "0.001"))
    ],
)
def test_no_bound_is_above_the_exact_optimum(K: int, epsilon: str, delta: str, shape: str) -> None:
    """Rows, budget and multipliers rounded to floats would lift the bound above the optimum where ε is small."""
    for m, overlap in product(sorted({1.0, min(1.5, K), float(K)}), {1, K}):
        problem = Problem.from_allowance(Voters(K, PrivacyParams(epsilon, delta), overlap=overlap), m)
        table = optimize_table(problem, shape=shape)
        optimality = optimality_of(table)
        exact = exact_least_error(problem, optimality.prior.weights(K), shape)
        assert not optimality.claimed
        assert optimality.bound <= exact <= exact_value(table)
        # multipliers as large as 1/ε are floats, too: a bound is off by as much, and no more
        assert optimality.bound >= exact - Fraction(1, 10**12) - Fraction(1, 10**15) / Fraction(epsilon)


def compute_bound(problem: Problem, weights: np.ndarray, shape: str, multipliers: Sequence[Multiplier]) -> float:
    """Compute (1) and (2) in floats, row by row."""
    reduced = -0.5 * weights
    for y, row in multipliers:
        reduced = reduced + y * row.coefficients(problem.voters, problem.cost_ratio)
    gain = np.sum(np.minimum(reduced, 0.0)) if shape == "free" else min(0.0, np.min(np.cumsum(reduced[::-1])))
    return float(0.5 * np.sum(weights) - problem.budget * sum(y for y, _ in multipliers) + gain)


@given(data=st.data(), problem=problems(most_voters=3))
def test_any_multipliers_of_any_rows_give_a_bound(data: st.DataObject, problem: Problem) -> None:
    K = problem.voters.K
    weights = priors.Dirichlet().weights(K)
    certain = st.integers(0, K).map(lambda ones: CornerCounts(0, 0, K - ones, ones))
    anywhere = st.builds(
        lambda high, low, ones, *moved: CornerCounts(high, low, K - high - low - ones, ones, *moved),
        *[st.integers(0, K)] * 7,
    ).filter(lambda row: row.is_row_of(problem.voters))
    multipliers = data.draw(st.lists(st.tuples(st.floats(0.0, 2.0), certain | anywhere), max_size=3))
    for shape in SHAPES:
        bound = lower_bound(problem, weights, shape, multipliers)
        assert bound <= exact_least_error(problem, weights, shape)
        assert bound == pytest.approx(max(0.0, compute_bound(problem, weights, shape, multipliers)), abs=1e-9)


@pytest.mark.parametrize(("K", "delta", "overlap"), [(4, "0.01", None), (4, "0.01", 2), (5, "0", None), (5, "0", 1)])
def test_every_row_of_the_whole_program_is_a_row_of_the_voters(K: int, delta: str, overlap: int | None) -> None:
    voters = Voters(K, PrivacyParams("0.5", delta), overlap=overlap)
    whole = gamma_program(Problem(voters, voters.each))
    for counts, *sides in zip(whole.counts.tolist(), *whole.probabilities(), strict=True):
        row = label_corner_counts(counts)
        assert row.is_row_of(voters)
        np.testing.assert_allclose(np.sort(row.probabilities(voters), axis=1), np.sort(sides, axis=1), atol=1e-15)
        assert not replace(row, ones=row.ones + 1).is_row_of(voters)
        assert not replace(row, moved_ones=row.ones + 1).is_row_of(voters)


@pytest.mark.parametrize(
    ("row", "is_row"),
    [
        (CornerCounts(2, 0, 1, 1), True),
        (CornerCounts(2, 1, 1, 0), False),
        (CornerCounts(1, 0, 2, 1, moved_zeros=1), True),
        (CornerCounts(1, 0, 2, 1, moved_zeros=2), False),
        (CornerCounts(1, 0, 2, 1, moved_zeros=2, moved_zeros_prime=2), True),
        (CornerCounts(0, 0, 2, 2, moved_ones_prime=2, moved_zeros_prime=1), False),
    ],
)
def test_a_row_that_touches_more_than_the_overlap_is_not_of_the_voters(row: CornerCounts, is_row: bool) -> None:
    """Its cost would not bind γ, and the bound of its multiplier would be false."""
    assert row.is_row_of(Voters(4, PrivacyParams("0.5", "0.01"), overlap=2)) is is_row


@pytest.mark.parametrize("solver", ["production", "reference"])
@pytest.mark.parametrize("shape", SHAPES)
def test_both_solvers_leave_a_proof(shape: str, solver: str) -> None:
    pytest.importorskip("cvxpy")
    problem = Problem.from_allowance(Voters(6, PrivacyParams("0.5", "0.01"), overlap=4), 2)
    table = optimize_table(problem, shape=shape, solver=solver)
    loaded = Table.from_json(json.loads(json.dumps(table.to_json())))
    assert optimality_of(loaded) == optimality_of(table)
    assert not optimality_of(loaded).claimed
    assert optimality_of(loaded).gap <= 1e-8


def test_a_closed_form_leaves_a_proof() -> None:
    problem = Problem(Voters(11, PrivacyParams("inf"), overlap=1), PrivacyParams("0.2676", "0.0003"))
    loaded = Table.from_json(optimize_table(problem).to_json())
    assert not optimality_of(loaded).claimed
    assert optimality_of(loaded).gap <= 1e-9


def test_statuses_are_those_of_the_solver() -> None:
    assert tuple(status.value for status in Status) == STATUSES


def load_changed(table: Table, **fields: Any) -> Optimality:
    data = table.to_json()
    return optimality_of(Table.from_json({**data, "optimality": {**data["optimality"], **fields}}))


def test_a_weak_gamma_is_not_called_optimal(table: Table) -> None:
    weak = certify(PROBLEM, NoiseFunction(5, [0.05] * 3))
    value = weak.gamma.expected_error(priors.Independent(0.5, 1.0))
    claim = {**table.to_json()["optimality"], "value": value, "bound": value}
    for multipliers in (claim["multipliers"], [], [[1.0]]):
        with pytest.raises(TableError, match=r"^optimality: the bound must be what its multipliers prove"):
            Table.from_json({**weak.to_json(), "optimality": {**claim, "multipliers": multipliers}})
    optimality = optimality_of(Table.from_json({**weak.to_json(), "optimality": {**claim, "multipliers": None}}))
    assert optimality.claimed
    assert "claimed by the maker" in str(optimality)
    assert "proved" in str(optimality_of(table))


def test_a_loaded_table_has_the_value_and_bound_that_were_recomputed(table: Table) -> None:
    """A file may be off within the tolerance; the object is not."""
    optimality = optimality_of(table)
    assert load_changed(table, value=optimality.value + 5e-13, bound=optimality.bound + 5e-13) == optimality
    for fields in ({"value": optimality.value - 1e-6}, {"bound": optimality.bound + 1e-6}):
        with pytest.raises(TableError, match=r"^optimality: "):
            load_changed(table, **fields)


@pytest.mark.parametrize(
    "fields",
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
def test_a_false_claim_is_refused(table: Table, fields: dict[str, Any]) -> None:
    assert not table.gamma.is_monotone
    with pytest.raises(TableError) as caught:
        load_changed(table, **fields)
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
def test_a_false_held_out_error_is_refused(held_out: Any) -> None:
    sampled = optimize_table(PROBLEM, prior="uniform", draws=50)
    assert optimality_of(sampled).claimed
    assert optimality_of(sampled).multipliers is None
    assert load_changed(sampled) == optimality_of(sampled)
    with pytest.raises(TableError, match=r"^optimality: "):
        load_changed(sampled, held_out=held_out)


def test_a_sampled_bound_is_positive_and_tight() -> None:
    """Its tangents are relaxed to weights: too large a share of one would lift the bound above the optimum's value."""
    optimality = optimality_of(optimize_table(PROBLEM, prior="uniform", draws=200))
    assert 0.0 < optimality.bound <= optimality.value
    assert optimality.gap <= 1e-9


@pytest.mark.parametrize("multipliers", [[[-1.0]], [[1.0, 0.5]], [[1.0, -1]], [[]], 3])
def test_the_schema_refuses_malformed_multipliers(table: Table, multipliers: Any) -> None:
    data = table.to_json()
    validated(data, "gamma_table")
    data["optimality"]["multipliers"] = multipliers
    with pytest.raises(jsonschema.ValidationError):
        validated(data, "gamma_table")
