"""Fifty corners of ε, δ, K and m at every public function: a result that holds, or one line of ours.

A line of ours is a `ValueError` or a `DarrmError`. Everything else (an error or a warning of numpy, HiGHS or cvxpy, an
overflow) fails here. What a result must fulfill is checked where that is one comparison: certificates and charges.
"""

import math
import warnings
from collections.abc import Callable
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

LONGEST = 400  # characters of a line
EPSILONS = ("1e-320", "1e-300", "1e-50", "1e-16", "1e-9", "0.1", "1", "40", "600", "inf")
DELTAS = ("0", "1e-300", "1e-5", "0.3", "0.999999999")
VOTERS = (1, 2, 3, 11, 3)

Corner = tuple[int, str, str, int]  # K, ε, δ, m


def corners() -> list[Corner]:
    pairs = [(epsilon, delta) for epsilon in EPSILONS for delta in DELTAS]
    numbers = [VOTERS[place % len(VOTERS)] for place in range(len(pairs))]
    return [(K, *pair, (1, K, 1)[n % 3]) for n, (K, pair) in enumerate(zip(numbers, pairs, strict=True))]


def _pair(at: Corner) -> PrivacyParams:
    return PrivacyParams(at[1], at[2])


def _plain(K: int) -> Voters:
    return Voters(K, PrivacyParams("inf"), overlap=1)


def _problem(at: Corner) -> Problem:
    if at[1] == "inf":
        return Problem(_plain(at[0]), PrivacyParams(1, at[2]))
    return Problem.from_allowance(Voters(at[0], _pair(at)), at[3])


def _of_charge(mechanism: Any, at: Corner) -> object:
    return PrivacyAccountant(costs=[mechanism(float(at[1])).privacy_cost(3)]).spent(float(at[2]))


FUNCTIONS: dict[str, Callable[[Corner], object]] = {
    "γ": lambda at: optimize_table(_problem(at)),
    "monotone γ": lambda at: optimize_table(_problem(at), shape="monotone", prior=Dirichlet()),
    "γ of draws": lambda at: optimize_table(_problem(at), prior="uniform", draws=50),
    "γ of every row": lambda at: optimize_table(_problem(at), solver="reference") if at[0] < 4 else None,
    "γ of non-private voters": lambda at: optimize_table(Problem(_plain(at[0]), _pair(at))),
    "plurality": lambda at: optimize_table(Problem(Voters(min(at[0], 2), _pair(at)), _pair(at), 3)),
    "plurality of non-private voters": lambda at: optimize_table(Problem(_plain(min(at[0], 3)), _pair(at), 3)),
    "open answers": lambda at: optimize_table(Problem(_plain(at[0]), _pair(at), OPEN)),
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
    "GNMax": lambda at: _of_charge(GNMax, at),
    "LNMax": lambda at: _of_charge(LNMax, at),
    "exponential": lambda at: _of_charge(ExponentialMechanism, at),
    "permute-and-flip": lambda at: _of_charge(PermuteAndFlip, at),
    "publication": lambda at: publication_rule(float(at[1]), float(at[2])),
    "smooth sensitivity": lambda at: rules_of_thumb(float(at[1]), float(at[2])),
    "analysis": lambda at: analyze(
        Votes.from_counts([[30, 20]] * 3), GNMax(40.0, noise="discrete"), delta=float(at[2])
    ),
}
SLOW: dict[str, Callable[[Corner], object]] = {
    "a plan of non-private voters": lambda at: plan(Workload(_plain(50), 20, _pair(at))),
    "a plan of private voters": lambda at: plan(Workload(Voters(at[0], _pair(at)), 20, _pair(at))),
    "a plan of three classes": lambda at: plan(Workload(_plain(20), 20, _pair(at), 3)),
}


@pytest.mark.parametrize(
    ("name", "step"),
    [
        *((name, 3) for name in FUNCTIONS),
        *(pytest.param(name, 1, marks=pytest.mark.slow) for name in FUNCTIONS),
        *(pytest.param(name, 1 if EXHAUSTIVE else 3, marks=pytest.mark.slow) for name in SLOW),
    ],
)
def test_every_corner_has_a_result_or_a_line_of_ours(name: str, step: int) -> None:
    function = (FUNCTIONS | SLOW)[name]
    for at in corners()[::step]:
        with warnings.catch_warnings():
            warnings.simplefilter("error", RuntimeWarning)
            warnings.simplefilter("ignore", UserWarning)  # ε and δ that seem swapped
            try:
                result = function(at)
            except (ValueError, DarrmError) as error:
                text = str(error)
                if "\n" in text or len(text) > LONGEST or "broadcast" in text:
                    raise AssertionError(f"{at}: {text}") from error
                continue
            except Exception as error:
                raise AssertionError(f"{at}: {type(error).__name__}: {error}") from error
        if isinstance(result, Table):
            # both are floats, each rounded to its safe side
            assert result.certificate.worst_cost <= math.nextafter(result.certificate.budget, math.inf), at
        if isinstance(result, PrivacyParams):
            assert result.epsilon >= 0.0, at
            assert 0.0 <= result.delta <= 1.0, at
