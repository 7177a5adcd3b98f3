"""Nothing that adds up plain differential privacy accepts a random-DP guarantee."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from darrm.account.accountant import PrivacyAccountant
from darrm.losses.charges import Charge
from darrm.losses.composition import compose_general, compose_optimal, compose_simple
from darrm.privacy import MajorityProblem, PrivacyParams
from darrm.random_dp.guarantee import RandomDP

if TYPE_CHECKING:
    from collections.abc import Callable

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
        lambda: MajorityProblem(K=3, each=PROMISE, target=PrivacyParams(1)),
        lambda: MajorityProblem(K=3, each=PrivacyParams(0.1), target=PROMISE),
        lambda: MajorityProblem.from_allowance(3, 2, PROMISE),
        lambda: PrivacyParams(PROMISE),
        spend,
    ],
)
def test_it_is_refused(use: Callable[[], object]) -> None:
    with pytest.raises((AttributeError, ValueError), match=r"no differential privacy|must be|PrivacyParams"):
        use()
