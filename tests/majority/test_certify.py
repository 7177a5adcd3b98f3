"""Certificates: what they accept, what they refuse, and that each planted bug in a prover is noticed."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from darrm.errors import CertificationError
from darrm.majority import baselines, certify, corners, full_set
from darrm.majority.certify import BALLS, FLOATS, bound_worst_cost, prove, scale_and_prove
from darrm.majority.noise_function import NoiseFunction
from darrm.plurality.plurality_law import random_law
from darrm.plurality.proof import mix_and_prove
from darrm.privacy import PrivacyParams
from darrm.problem import Problem, Voters
from darrm.table import table
from tests.oracle import exact_budget, exact_worst_cost
from tests.strategies import gammas, problems


@pytest.fixture(params=[BALLS, FLOATS])
def method(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Run with each of the two provers."""
    if request.param == FLOATS:
        monkeypatch.setattr(certify, "_MOST_BALL_STEPS", -1)
    return str(request.param)


@given(data=st.data(), problem=problems(most_voters=4))
def test_what_is_certified_is_private_in_exact_arithmetic(data: st.DataObject, problem: Problem) -> None:
    gamma = data.draw(gammas(problem.voters.K))
    scaled, certificate = scale_and_prove(problem, gamma)
    assert exact_worst_cost(problem, scaled.half) <= certificate.worst_cost
    assert certificate.worst_cost <= certificate.budget < exact_budget(problem) * (1 + 1e-15)
    assert certificate.budget <= exact_budget(problem)
    # scaled as little as needed: a γ that was not private ends close to its budget
    if certificate.scale < 1.0:
        assert certificate.worst_cost >= certificate.budget * (1 - 1e-9)


def test_a_gamma_that_breaks_its_budget_by_1e_12_is_refused(method: str) -> None:
    problem = Problem.from_allowance(Voters(3, PrivacyParams("0.1", "1e-5")), 1)
    gamma, certificate = scale_and_prove(problem, NoiseFunction(3, [0.6, 0.9]))
    assert certificate.method == method
    exact = exact_worst_cost(problem, gamma.half)
    too_much = gamma.half * float((exact_budget(problem) + 10**-12 * exact_budget(problem) * 2) / exact)
    worse = NoiseFunction(3, np.minimum(too_much, 1.0))
    assert 1e-13 < float(exact_worst_cost(problem, worse.half) - exact_budget(problem)) < 1e-11
    with pytest.raises(CertificationError) as caught:
        prove(problem, worse)
    assert caught.value.worst_cost > caught.value.budget


def is_what_the_definition_says(problem: Problem, half: np.ndarray) -> bool:
    """Whether bound and budget are those of exact arithmetic over every assignment."""
    bound, _ = bound_worst_cost(problem, NoiseFunction(problem.voters.K, half))
    exact, budget = exact_worst_cost(problem, half), exact_budget(problem)
    below = certify.budget_below(problem.target)  # type: ignore[attr-defined]  # there a planted bug replaces it
    return bool(exact <= bound <= exact + 10**-9 and budget * (1 - 10**-15) < below <= budget)


BUGGY_PROBLEM = Problem.from_allowance(Voters(3, PrivacyParams("1", "0.05")), "2.5")
BUGGY_HALF = np.array([1.0, 0.1])
balls_levels = certify._levels


@pytest.fixture
def fresh_constants() -> Iterator[None]:
    cached = (corners.corners_of, corners.ratio_of, corners.budget_below)
    for function in cached:
        function.cache_clear()
    yield
    for function in cached:
        function.cache_clear()


@pytest.mark.usefixtures("fresh_constants")
class TestPlantedBugs:
    """Each test changes one thing in the prover and shows that comparison with the definition notices."""

    def test_without_a_bug(self, method: str) -> None:
        assert bound_worst_cost(BUGGY_PROBLEM, NoiseFunction(3, BUGGY_HALF))[1] == method
        assert is_what_the_definition_says(BUGGY_PROBLEM, BUGGY_HALF)

    @pytest.mark.parametrize(
        ("piece", "planted"),
        [
            ("_levels", lambda start, *_: [start]),  # (hi, lo) and (lo, hi)
            ("_levels", lambda start, hi, reached: list(balls_levels(start, hi, reached))[1:]),  # a level
            ("_best_moves", lambda level, _: level),  # (Δ, 0), (1, 1 − Δ) and their mirrors
        ],
    )
    def test_a_dropped_corner(self, piece: str, planted: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        asked = BUGGY_PROBLEM, Problem.from_allowance(BUGGY_PROBLEM.voters, 1)
        cases = [(problem, half) for problem in asked for half in (BUGGY_HALF, np.array([0.4, 1.0]))]
        assert all(is_what_the_definition_says(*case) for case in cases)
        monkeypatch.setattr(certify, piece, planted)
        assert not all(is_what_the_definition_says(*case) for case in cases)

    def test_delta_not_doubled(self, method: str, monkeypatch: pytest.MonkeyPatch) -> None:
        del method
        budget = corners.budget_below(BUGGY_PROBLEM.target)
        monkeypatch.setattr(certify, "budget_below", lambda target: budget - target.delta)
        assert not is_what_the_definition_says(BUGGY_PROBLEM, BUGGY_HALF)

    def test_epsilon_in_place_of_m_epsilon(self, method: str, monkeypatch: pytest.MonkeyPatch) -> None:
        del method
        wrong = corners.ratio_of(BUGGY_PROBLEM.voters.each.exact_epsilon)
        monkeypatch.setattr(certify, "ratio_of", lambda _: wrong)
        monkeypatch.setattr(full_set, "ratio_of", lambda _: wrong)
        assert not is_what_the_definition_says(BUGGY_PROBLEM, BUGGY_HALF)

    def test_an_asymmetric_gamma(self) -> None:
        with pytest.raises(ValueError, match="must be symmetric"):
            NoiseFunction.from_full([1.0, 0.5, 0.5, 1.0 - 1e-12])


def test_a_gamma_found_without_one_corner_is_refused() -> None:
    # the best γ of a program that forgot (lo, hi) and (0, Δ), (Δ, 0), … is not private
    problem = Problem.from_allowance(Voters(7, PrivacyParams("2", "0.01")), 3)
    with pytest.raises(CertificationError):
        prove(problem, NoiseFunction(7, [1.0, 0.0, 0.0, 1.0]))


@pytest.mark.parametrize("K", [5, 11, 12, 41])
def test_no_noise_is_needed_from_half_the_voters_on(K: int) -> None:
    m = (K + 2) // 2
    problem = Problem.from_allowance(Voters(K, PrivacyParams("0.1")), m)
    gamma, certificate = scale_and_prove(problem, NoiseFunction(K, np.ones(problem.voters.num_upper_levels)))
    assert certificate.scale >= 1.0 - 2.0**-48
    assert np.all(gamma.half >= 1.0 - 2.0**-48)


def test_the_wrong_number_of_voters() -> None:
    problem = Problem.from_allowance(Voters(5, PrivacyParams("0.1")), 2)
    with pytest.raises(ValueError, match=r"gamma\.K must be K = 5"):
        prove(problem, NoiseFunction(7, np.zeros(4)))


@pytest.mark.parametrize("prover", [table.certify, prove, bound_worst_cost, scale_and_prove])
def test_what_is_no_noise_function_or_no_problem_is_named(prover: Any) -> None:
    problem = Problem.from_allowance(Voters(5, PrivacyParams("0.1")), 2)
    for gamma in ([0.1, 0.2, 0.3], np.zeros(3), lambda: 0.0, None):
        with pytest.raises(ValueError, match="gamma must be a NoiseFunction"):
            prover(problem, gamma)
    with pytest.raises(ValueError, match="problem must be a Problem"):
        prover(5, NoiseFunction(5, np.zeros(3)))


@pytest.mark.parametrize("K", [10, 41, 250, 1001])
@pytest.mark.parametrize("delta", ["0", "1e-5"])
def test_baselines_of_many_sizes_are_certified(K: int, delta: str) -> None:
    problem = Problem.from_allowance(Voters(K, PrivacyParams("0.1", delta)), 5)
    for propose in (baselines.subsampling, baselines.double_subsampling, baselines.randomized_response):
        _, certificate = scale_and_prove(problem, propose(problem))
        assert 0.3 < certificate.scale <= 1.0
        assert certificate.worst_cost <= certificate.budget


def test_a_proof_is_for_the_problems_that_it_is_about() -> None:
    three = Problem(Voters(2, PrivacyParams("inf"), overlap=1), PrivacyParams(1), 3)
    with pytest.raises(ValueError, match="γ is about two classes"):
        scale_and_prove(three, NoiseFunction(2, [0.1]))
    with pytest.raises(ValueError, match="about 3 votes for 2 classes"):
        mix_and_prove(Problem(Voters(3, PrivacyParams(1)), PrivacyParams(1)), random_law(2, 2))
