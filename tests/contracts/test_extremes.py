"""Every public function at fifty extremes of ε, δ, K and m: a valid result, or a refusal in one line.

A refusal is a `ValueError` or a `DarrmError`. Any other error or warning, of numpy, HiGHS or cvxpy, fails. Of results,
certificates and guarantees are checked.
"""

import math
import warnings
from collections.abc import Callable
from itertools import product
from typing import Any

import pytest

from darrm import (
    PrivacyAccountant,
    PrivacyParams,
    Problem,
    Release,
    Table,
    Voters,
    Votes,
    Workload,
    certify,
    optimize_table,
)
from darrm.errors import DarrmError
from darrm.loss import compose_general, compose_optimal, compose_simple
from darrm.majority import baselines
from darrm.pate import (
    ExponentialMechanism,
    GNMax,
    LNMax,
    PermuteAndFlip,
    analyze,
    publication_rule,
    rules_of_thumb,
)
from darrm.plan import plan
from darrm.priors import Dirichlet
from darrm.problem import OPEN
from tests.exhaustive import EXHAUSTIVE

MAX_CHARACTERS = 400  # of a refusal
EPSILONS = ("1e-320", "1e-300", "1e-50", "1e-16", "1e-9", "0.1", "1", "40", "600", "inf")
DELTAS = ("0", "1e-300", "1e-5", "0.3", "0.999999999")
VOTERS = (1, 2, 3, 11, 3)

Corner = tuple[int, str, str, int]  # K, ε, δ, m


def list_corners() -> list[Corner]:
    pairs = enumerate(product(EPSILONS, DELTAS))
    return [(K := VOTERS[n % len(VOTERS)], epsilon, delta, (1, K, 1)[n % 3]) for n, (epsilon, delta) in pairs]


def _pair(at: Corner) -> PrivacyParams:
    return PrivacyParams(at[1], at[2])


def _teachers(K: int) -> Voters:
    return Voters(K, PrivacyParams("inf"), overlap=1)


def _problem(at: Corner) -> Problem:
    if at[1] == "inf":
        return Problem(_teachers(at[0]), PrivacyParams(1, at[2]))
    return Problem.from_allowance(Voters(at[0], _pair(at)), at[3])


def _spend(mechanism: Any, at: Corner) -> object:
    return PrivacyAccountant(costs=[mechanism(float(at[1])).privacy_cost(3)]).spent(float(at[2]))


FUNCTIONS: dict[str, Callable[[Corner], object]] = {
    "γ": lambda at: optimize_table(_problem(at)),
    "monotone γ": lambda at: optimize_table(_problem(at), shape="monotone", prior=Dirichlet()),
    "γ of draws": lambda at: optimize_table(_problem(at), prior="uniform", draws=50),
    "γ of every row": lambda at: optimize_table(_problem(at), solver="reference") if at[0] < 4 else None,
    "γ of non-private voters": lambda at: optimize_table(Problem(_teachers(at[0]), _pair(at))),
    "plurality": lambda at: optimize_table(Problem(Voters(min(at[0], 2), _pair(at)), _pair(at), 3)),
    "plurality of non-private voters": lambda at: optimize_table(Problem(_teachers(min(at[0], 3)), _pair(at), 3)),
    "open answers": lambda at: optimize_table(Problem(_teachers(at[0]), _pair(at), OPEN)),
    "certify": lambda at: certify(_problem(at), baselines.truth(_problem(at))),
    "sub-sampling": lambda at: certify(_problem(at), baselines.subsampling(_problem(at))),
    "randomized-response": lambda at: certify(_problem(at), baselines.randomized_response(_problem(at))),
    "a file": lambda at: Table.from_json(optimize_table(_problem(at)).to_json()),
    "profile": lambda at: optimize_table(_problem(at)).profile,
    "Rényi curve": lambda at: optimize_table(_problem(at)).renyi,
    "charge": lambda at: Release(optimize_table(_problem(at))).privacy_cost(3),
    "account": lambda at: PrivacyAccountant(
        Voters(at[0], _pair(at)), costs=[Release(optimize_table(_problem(at))).privacy_cost(10)]
    ).spent(float(at[2]) or 1e-6),
    "simple composition": lambda at: compose_simple(_pair(at), at[0]),
    "general composition": lambda at: compose_general(_pair(at), at[0], 1e-5),
    "optimal composition": lambda at: compose_optimal(_pair(at), at[0], min(0.9999999999, 2.0 * float(at[2]) + 1e-6)),
    "GNMax": lambda at: _spend(GNMax, at),
    "LNMax": lambda at: _spend(LNMax, at),
    "exponential": lambda at: _spend(ExponentialMechanism, at),
    "permute-and-flip": lambda at: _spend(PermuteAndFlip, at),
    "publication": lambda at: publication_rule(float(at[1]), float(at[2])),
    "smooth sensitivity": lambda at: rules_of_thumb(float(at[1]), float(at[2])),
    "analysis": lambda at: analyze(
        Votes.from_counts([[30, 20]] * 3), GNMax(40.0, noise="discrete"), delta=float(at[2])
    ),
}
SLOW: dict[str, Callable[[Corner], object]] = {
    "a plan of non-private voters": lambda at: plan(Workload(_teachers(50), 20, _pair(at))),
    "a plan of private voters": lambda at: plan(Workload(Voters(at[0], _pair(at)), 20, _pair(at))),
    "a plan of three classes": lambda at: plan(Workload(_teachers(20), 20, _pair(at), 3)),
}


@pytest.mark.parametrize(
    ("name", "step"),
    [
        *((name, 3) for name in FUNCTIONS),
        *(pytest.param(name, 1, marks=pytest.mark.slow) for name in FUNCTIONS),
        *(pytest.param(name, 1 if EXHAUSTIVE else 3, marks=pytest.mark.slow) for name in SLOW),
    ],
)
def test_every_extreme_has_a_valid_result_or_is_refused(name: str, step: int) -> None:
    function = (FUNCTIONS | SLOW)[name]
    for at in list_corners()[::step]:
        with warnings.catch_warnings():
            warnings.simplefilter("error", RuntimeWarning)
            warnings.simplefilter("ignore", UserWarning)  # ε and δ may seem swapped
            try:
                result = function(at)
            except (ValueError, DarrmError) as error:
                text = str(error)
                if "\n" in text or len(text) > MAX_CHARACTERS or "broadcast" in text:
                    raise AssertionError(f"{at}: {text}") from error
                continue
            except Exception as error:
                raise AssertionError(f"{at}: {type(error).__name__}: {error}") from error
        if isinstance(result, Table):
            # two floats, each rounded to its safe side
            assert result.certificate.worst_cost <= math.nextafter(result.certificate.budget, math.inf), at
        if isinstance(result, PrivacyParams):
            assert result.epsilon >= 0.0, at
            assert 0.0 <= result.delta <= 1.0, at
