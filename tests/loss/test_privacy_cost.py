"""Costs as text: all that an account needs is stored, and what is no cost is refused."""

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction

import pytest

from darrm.loss.privacy_cost import PrivacyCost
from darrm.noisy_max.mechanisms import GNMax
from darrm.noisy_max.noisy_maximum import NoisyMaximum
from darrm.privacy import PrivacyParams
from darrm.problem import Voters
from darrm.subsampling import Subsampling
from darrm.table.release import describe_cost
from tests.account.support import make_table

PAIR = PrivacyParams("0.2", "1e-4")
MODELS = Voters(3, PrivacyParams("0.1"), models=True)
MODELS_COST = describe_cost(make_table(MODELS, [0.5, 1 / 3], 1))
RELEASE_COST = MODELS_COST.for_non_private_voters[0]


def test_a_stored_cost_keeps_its_models() -> None:
    stored = PrivacyCost.from_text(MODELS_COST.to_text(), what="a")
    assert stored == MODELS_COST
    assert (stored.models, stored.non_composable) == (MODELS, True)
    assert stored.with_non_private_voters(2) == MODELS_COST.with_non_private_voters(2) is not None
    assert stored != describe_cost(make_table(replace(MODELS, overlap=1), [0.5, 1 / 3], 1))
    assert '"composes":false' in MODELS_COST.to_text()
    assert "composes" not in PrivacyCost("a", guarantee=PAIR).to_text()


def test_a_stored_cost_keeps_its_sampling() -> None:
    voters = Voters(5, PrivacyParams("inf"), 2, sampled=Subsampling(Fraction(1, 50), records=2))
    cost = NoisyMaximum(GNMax(2.0, reached=2), voters, 2).privacy_cost()
    stored = PrivacyCost.from_text(cost.to_text(), what="read")
    assert (stored.sampling, stored.profile, stored.to_text()) == (cost.sampling, cost.profile, cost.to_text())


@pytest.mark.parametrize(
    ("right", "wrong", "message"),
    [
        ('"composes":false', '"composes":"false"', "composes"),
        ('"plain":[[1,', '"plain":[[0,', "overlap"),
        ('"K":3,', '"K":0,', "K must"),
        ('"K":3,', "", "stored cost"),
    ],
)
def test_a_changed_text_is_no_cost(right: str, wrong: str, message: str) -> None:
    assert right in MODELS_COST.to_text()
    with pytest.raises(ValueError, match=message):
        PrivacyCost.from_text(MODELS_COST.to_text().replace(right, wrong), what="a")


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: PrivacyCost("a", guarantee=PAIR, count=0), "count"),
        (lambda: PrivacyCost("a", guarantee=PAIR).repeat(0), "times"),
        (lambda: PrivacyCost("a", guarantee=PAIR, reached=0), "reached must be an integer of at least 1"),
        (lambda: PrivacyCost("a", guarantee=PAIR, for_non_private_voters=(RELEASE_COST,)), "must contain"),
        (
            lambda: PrivacyCost("a", guarantee=PAIR, voters=MODELS, for_non_private_voters=(MODELS_COST,)),
            "must contain",
        ),
    ],
)
def test_a_cost_refuses(make: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()
