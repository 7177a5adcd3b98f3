"""Certificates: what they accept and what they refuse, by both provers and in exact arithmetic."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from darrm.errors import CertificationError
from darrm.majority import baselines, certify
from darrm.majority.certify import BALLS, FLOATS, bound_worst_cost, prove, scale_and_prove
from darrm.majority.noise_function import NoiseFunction
from darrm.plurality.plurality_law import random_law
from darrm.plurality.proof import mix_and_prove
from darrm.privacy import PrivacyParams
from darrm.problem import Problem, Voters
from darrm.table import table
from tests.oracle import exact_budget, exact_worst_cost
from tests.strategies import gammas, problems

PROBLEM = Problem.from_allowance(Voters(5, PrivacyParams("0.1")), 2)
THREE_CLASSES = Problem(Voters(2, PrivacyParams("inf"), overlap=1), PrivacyParams(1), 3)


@given(data=st.data(), problem=problems(most_voters=4))
def test_a_certified_gamma_is_private_in_exact_arithmetic(data: st.DataObject, problem: Problem) -> None:
    gamma = data.draw(gammas(problem.voters.K))
    scaled, certificate = scale_and_prove(problem, gamma)
    assert exact_worst_cost(problem, scaled.half) <= certificate.worst_cost
    assert certificate.worst_cost <= certificate.budget <= exact_budget(problem)
    assert certificate.budget >= float(exact_budget(problem)) * (1 - 1e-15)
    # scaled as little as needed: a γ that was not private ends close to its budget
    if certificate.scale < 1.0:
        assert certificate.worst_cost >= certificate.budget * (1 - 1e-9)


@pytest.mark.parametrize("method", [BALLS, FLOATS])
def test_a_gamma_over_its_budget_by_1e_12_is_refused(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if method == FLOATS:
        monkeypatch.setattr(certify, "_MAX_BALL_STEPS", -1)
    problem = Problem.from_allowance(Voters(3, PrivacyParams("0.1", "1e-5")), 1)
    gamma, certificate = scale_and_prove(problem, NoiseFunction(3, [0.6, 0.9]))
    assert certificate.method == method
    budget = exact_budget(problem)
    excess = float((budget + 2 * budget / 10**12) / exact_worst_cost(problem, gamma.half))
    costly = NoiseFunction(3, gamma.half * excess)
    assert 1e-13 < float(exact_worst_cost(problem, costly.half) - budget) < 1e-11
    with pytest.raises(CertificationError) as caught:
        prove(problem, costly)
    assert caught.value.worst_cost > caught.value.budget


@pytest.mark.parametrize("K", [5, 11, 12, 41])
def test_no_noise_is_needed_from_half_the_voters_on(K: int) -> None:
    problem = Problem.from_allowance(Voters(K, PrivacyParams("0.1")), (K + 2) // 2)
    _, certificate = scale_and_prove(problem, baselines.truth(problem))
    assert certificate.scale >= 1.0 - 2.0**-48


@pytest.mark.parametrize("K", [10, 41, 250, 1001])
@pytest.mark.parametrize("delta", ["0", "1e-5"])
def test_baselines_of_many_sizes_are_certified(K: int, delta: str) -> None:
    problem = Problem.from_allowance(Voters(K, PrivacyParams("0.1", delta)), 5)
    for propose in (baselines.subsampling, baselines.double_subsampling, baselines.randomized_response):
        _, certificate = scale_and_prove(problem, propose(problem))
        assert 0.3 < certificate.scale <= 1.0
        assert certificate.worst_cost <= certificate.budget


@pytest.mark.parametrize("prover", [table.certify, prove, bound_worst_cost, scale_and_prove])
@pytest.mark.parametrize(
    ("problem", "gamma", "message"),
    [
        *(
            (PROBLEM, value, "gamma must be a NoiseFunction")
            for value in ([0.1, 0.2, 0.3], np.zeros(3), lambda: 0.0, None)
        ),
        (5, NoiseFunction(5, np.zeros(3)), "problem must be a Problem"),
        (PROBLEM, NoiseFunction(7, np.zeros(4)), r"gamma\.K must be K = 5"),
        (THREE_CLASSES, NoiseFunction(2, [0.1]), "two classes|class counts"),
    ],
)
def test_a_proof_refuses_arguments_of_another_kind(prover: Any, problem: Any, gamma: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        prover(problem, gamma)


def test_a_plurality_proof_refuses_a_law_for_other_votes() -> None:
    with pytest.raises(ValueError, match="about 3 votes for 2 classes"):
        mix_and_prove(Problem(Voters(3, PrivacyParams(1)), PrivacyParams(1)), random_law(2, 2))
