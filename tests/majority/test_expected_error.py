"""The objective with its absolute value: against brute force, against one row a draw, and held out."""

from itertools import product

import numpy as np
import pytest

from darrm import NoiseFunction, PrivacyParams, Problem, optimize_table, priors
from darrm.majority import baselines
from darrm.majority.noise_function import compute_errors, differences
from darrm.optimize import SolveOptions
from darrm.problem import Voters
from lp_models.gamma_lp import SampledError
from tests.optimality import held_out_of, optimality_of
from tests.oracle import all_coefficients

UNIFORM = priors.Independent(0.0, 1.0)


def problem_of(K: int, m: str, each_delta: str = "1e-5") -> Problem:
    return Problem.from_allowance(Voters(K, PrivacyParams("0.1", each_delta)), m)


def error_by_enumeration(gamma: NoiseFunction, p: np.ndarray) -> float:
    """|Pr[Release = 1] − Pr[majority = 1]| over all votes, with a tie a fair coin."""
    total = 0.0
    for votes in product((0, 1), repeat=gamma.K):
        chance = float(np.prod([q if vote else 1.0 - q for vote, q in zip(votes, p, strict=True)]))
        ones = sum(votes)
        majority = 0.5 if 2 * ones == gamma.K else float(2 * ones > gamma.K)
        truth = float(gamma.full[ones])
        total += chance * (truth * majority + (1.0 - truth) * 0.5 - majority)
    return abs(total)


@pytest.mark.parametrize("K", [1, 2, 3, 4, 5])
def test_errors_are_those_of_the_definition(K: int) -> None:
    rng = np.random.default_rng(K)
    gamma = NoiseFunction(K, rng.random(K - K // 2))
    p = rng.random((20, K))
    expected = [error_by_enumeration(gamma, row) for row in p]
    assert compute_errors(gamma.half, differences(p)) == pytest.approx(expected, abs=1e-15)


def test_differences_do_not_depend_on_the_chunks() -> None:
    p = np.random.default_rng(0).random((2_345, 3))
    whole = np.array([differences(row[None, :])[0] for row in p])
    assert np.array_equal(differences(p), whole)


@pytest.mark.statistical
def test_the_standard_error_is_that_of_the_mean() -> None:
    gamma = NoiseFunction(5, [0.1, 0.6, 1.0])
    rng = np.random.default_rng(7)
    repeated = [gamma.estimate_error(UNIFORM, draws=400, rng=rng) for _ in range(400)]
    spread = float(np.std([estimate.mean for estimate in repeated]))
    stated = float(np.mean([estimate.standard_error for estimate in repeated]))
    assert spread == pytest.approx(stated, rel=0.2)  # the spread of 400 values is known to 3.5 per cent


class TestSamples:
    @pytest.mark.parametrize(
        ("prior", "low", "high"),
        [
            (priors.Independent(0.2, 0.9), 0.2, 0.9),
            (priors.Dirichlet(), 0.0, 1.0),
            (priors.Point(0.3), 0.3, 0.3),
            (priors.TwoSided(0.7, 0.9), 0.1, 0.9),
        ],
    )
    def test_ranges_and_shape(self, prior: priors.Prior, low: float, high: float) -> None:
        drawn = prior.probabilities(5, 2_000, rng=np.random.default_rng(0))
        assert drawn.shape == (2_000, 5)
        assert low <= drawn.min() <= low + 0.01
        assert high - 0.01 <= drawn.max() <= high
        assert np.mean(drawn) == pytest.approx(0.5 * (low + high), abs=0.03)

    def test_two_sided_leaves_the_middle_out(self) -> None:
        drawn = priors.TwoSided(0.7, 0.9).probabilities(5, 2_000, rng=np.random.default_rng(0))
        assert not np.any((drawn > 0.3) & (drawn < 0.7))

    def test_bad_counts(self) -> None:
        for K, count in ((0, 3), (3, 0), (2.5, 3)):
            with pytest.raises(ValueError, match="must be an integer"):
                UNIFORM.probabilities(K, count, rng=np.random.default_rng(0))  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="only draws give the expected error"):
            priors.TwoSided(0.7, 1.0).weights(3)


@pytest.mark.parametrize(
    ("values", "expected"),
    [(np.zeros(3), "of shape"), (np.zeros((0, 3)), "of shape"), (np.full((2, 3), 1.1), r"in \[0, 1\]")],
)
def test_bad_probabilities(values: np.ndarray, expected: str) -> None:
    with pytest.raises(ValueError, match=expected):
        differences(values)


def optimum_with_one_row_a_draw(problem: Problem, drawn: np.ndarray, *, monotone: bool) -> float:
    """Eq. 2 over the draws as cvxpy states it, every privacy row of Lemma 5.1 written down."""
    cp = pytest.importorskip("cvxpy")
    gamma = cp.Variable(problem.voters.num_upper_levels)
    constraints = [gamma >= 0, gamma <= 1, all_coefficients(problem) @ gamma <= problem.budget]
    if monotone:
        constraints.append(cp.diff(gamma) >= 0)
    objective = cp.Minimize(0.5 * cp.norm1(drawn @ (1 - gamma)) / len(drawn))
    return float(cp.Problem(objective, constraints).solve(solver=cp.HIGHS))


@pytest.mark.parametrize("shape", ["free", "monotone"])
@pytest.mark.parametrize(("K", "m", "delta"), [(3, "1", "0"), (5, "2", "1e-3"), (6, "2.5", "1e-3"), (7, "3", "0")])
def test_optimum_against_cvxpy(K: int, m: str, delta: str, shape: str) -> None:
    problem = problem_of(K, m, delta)
    table = optimize_table(problem, prior=UNIFORM, shape=shape, draws=300, rng=np.random.default_rng(K))
    drawn = differences(UNIFORM.probabilities(K, 300, rng=np.random.default_rng(K)))
    expected, result = optimum_with_one_row_a_draw(problem, drawn, monotone=shape == "monotone"), optimality_of(table)
    assert result.value == pytest.approx(expected, abs=1e-7)
    assert result.bound <= expected + 1e-9
    assert result.value == pytest.approx(float(np.mean(compute_errors(table.gamma.half, drawn))), abs=1e-15)
    assert table.certificate.worst_cost <= table.certificate.budget


def test_draws_that_turn_at_the_optimum() -> None:
    # only mixed draws: all of the cost is generated, and the cuts have to find the turns
    problem = problem_of(5, "2", "0")

    class Torn(priors.Prior):
        text = "torn"
        has_closed_form = False

        def weights(self, K: int) -> np.ndarray:
            raise NotImplementedError

        def probabilities(self, K: int, count: int, *, rng: np.random.Generator) -> np.ndarray:
            drawn = UNIFORM.probabilities(K, 200 * count, rng=rng)
            d = differences(drawn)
            balance = np.abs(d.sum(axis=1)) / np.abs(d).sum(axis=1)
            return drawn[np.argsort(balance)[:count]]

    table = optimize_table(problem, prior=Torn(), draws=100, rng=np.random.default_rng(3))
    drawn = differences(Torn().probabilities(5, 100, rng=np.random.default_rng(3)))
    assert SampledError(drawn).share > 0.9
    expected = optimum_with_one_row_a_draw(problem, drawn, monotone=False)
    assert optimality_of(table).value == pytest.approx(expected, abs=1e-8)
    assert optimality_of(table).gap <= 1e-8


def test_reference_numbers_at_eleven_voters() -> None:
    exact = optimize_table(problem_of(11, "3"), prior=UNIFORM)
    held_out = held_out_of(exact)
    assert held_out.draws == 20_000
    assert held_out.mean == pytest.approx(0.0153, abs=4e-4)
    assert abs(held_out.mean - optimality_of(exact).value) <= 6.0 * held_out.standard_error
    surrogate = optimize_table(problem_of(11, "3")).gamma
    sampled = [propose(problem_of(11, "3", "0")) for propose in (baselines.double_subsampling, baselines.subsampling)]
    result = [gamma.expected_error(UNIFORM) for gamma in (surrogate, *sampled)]
    assert result == pytest.approx([0.0376, 0.067, 0.095], abs=1.5e-3)


@pytest.mark.parametrize(
    ("prior", "surrogate"),
    [
        ("uniform", "uniform:0.5,1"),
        ("uniform:0.25,0.75", "uniform:0.5,0.75"),
        ("two-sided:0.7,1", "uniform:0.7,1"),
        ("common", "dirichlet:1"),
        ("point:0.2", "point:0.2"),
    ],
)
def test_the_surrogate_moves_every_voter_to_the_side_of_the_majority(prior: str, surrogate: str) -> None:
    result, linear = (
        optimize_table(problem_of(7, "2"), prior=text, objective=objective)
        for text, objective in ((prior, "surrogate"), (surrogate, "expected-error"))
    )
    assert result.gamma.half.tolist() == linear.gamma.half.tolist()
    assert optimality_of(result).prior == priors.parse(surrogate)
    assert optimality_of(result).held_out is None
    folded, plain = (priors.parse(text) for text in (prior, surrogate))
    if isinstance(plain, priors.Independent):
        drawn = folded.probabilities(1, 40_000, rng=np.random.default_rng(0))
        assert float(np.mean(np.maximum(drawn, 1.0 - drawn))) == pytest.approx(plain.mean, abs=4e-3)


def test_a_prior_that_is_not_symmetric_has_no_surrogate() -> None:
    with pytest.raises(ValueError, match=r"symmetric about 1/2"):
        optimize_table(problem_of(3, "1"), prior="uniform:0.2,1", objective="surrogate")


def test_a_time_limit_keeps_the_proof() -> None:
    table = optimize_table(problem_of(101, "10"), prior=UNIFORM, draws=1_000, options=SolveOptions(time_limit=0.0))
    assert optimality_of(table).status == "time limit"
    assert optimality_of(table).bound <= optimality_of(table).value
    assert table.certificate.worst_cost <= table.certificate.budget


def test_the_same_draws_give_the_same_table_and_others_others() -> None:
    first, again = (optimize_table(problem_of(5, "2"), prior=UNIFORM, draws=100) for _ in range(2))
    other = optimize_table(problem_of(5, "2"), prior=UNIFORM, draws=100, rng=np.random.default_rng(1))
    assert first.gamma.half.tolist() == again.gamma.half.tolist()
    assert optimality_of(first) == optimality_of(again)
    assert optimality_of(other).value != optimality_of(first).value
    assert held_out_of(first).mean != optimality_of(first).value


def test_the_reference_solver_does_not_sample_and_one_draw_is_not_enough() -> None:
    with pytest.raises(ValueError, match="solver must be 'production' for a sampled expected error"):
        optimize_table(problem_of(3, "1"), prior=UNIFORM, solver="reference")
    with pytest.raises(ValueError, match="draws must be an integer of at least 2"):
        optimize_table(problem_of(3, "1"), prior=UNIFORM, draws=1)


def test_the_default_objective_is_the_expected_error_itself_for_voters_on_both_sides() -> None:
    problem = problem_of(11, "3")
    true, surrogate = (
        optimize_table(problem, prior="uniform", objective=one) for one in ("expected-error", "surrogate")
    )
    default = optimize_table(problem)
    assert default.gamma.half.tolist() == surrogate.gamma.half.tolist()
    assert optimality_of(default).prior == priors.Independent(0.5, 1.0)
    assert true.gamma.expected_error(UNIFORM) < 0.5 * surrogate.gamma.expected_error(UNIFORM)
