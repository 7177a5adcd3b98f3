"""Nothing that adds up plain differential privacy accepts a random-DP guarantee."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from darrm.account.accountant import PrivacyAccountant
from darrm.losses.charges import Charge
from darrm.losses.composition import compose_general, compose_optimal, compose_simple
from darrm.privacy import PrivacyParams
from darrm.problem import MajorityProblem, Voters
from darrm.random_dp.guarantee import RandomDP

PROMISE: Any = RandomDP(PrivacyParams(0.1, 1e-6), gamma=0.1, records=5, distribution="P")


def spend() -> None:
    accountant = PrivacyAccountant()
    accountant.add(Charge("a release", guarantee=PROMISE))
    accountant.spent(1e-5)


@pytest.mark.parametrize(
    "use",
    [
        lambda: compose_simple(PROMISE, 3),
        lambda: compose_general(PROMISE, 3, delta_prime=1e-3),
        lambda: compose_optimal(PROMISE, 3, delta=1e-3),
        lambda: MajorityProblem(Voters(3, PROMISE), PrivacyParams(1)),
        lambda: MajorityProblem(Voters(3, PrivacyParams(0.1)), PROMISE),
        lambda: MajorityProblem.from_allowance(Voters(3, PROMISE), 2),
        lambda: PrivacyParams(PROMISE),
        spend,
    ],
)
def test_it_is_refused(use: Callable[[], object]) -> None:
    with pytest.raises((AttributeError, ValueError), match=r"no differential privacy|must be|PrivacyParams"):
        use()
