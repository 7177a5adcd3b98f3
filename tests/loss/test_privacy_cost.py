"""Costs as text: all that an account needs is stored, and what is no cost is refused."""

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest

from darrm.loss.privacy_cost import ESTIMATED_TOTAL, PRIVATE_TOTAL, PrivacyCost
from darrm.loss.profile import PrivacyProfile
from darrm.loss.renyi import RenyiCurve
from darrm.noisy_max.mechanisms import GNMax
from darrm.noisy_max.noisy_maximum import NoisyMaximum
from darrm.privacy import PrivacyParams
from darrm.problem import Voters
from darrm.subsampling import Subsampling
from darrm.table.release import describe_cost
from tests.account.support import make_table

PAIR, PROFILE = PrivacyParams("0.2", "1e-4"), PrivacyProfile((0.0, 0.5), (0.2, 1e-3))
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
    ("bounds", "least"),
    [
        ({"guarantee": PAIR}, 1e-4),
        ({"profile": PROFILE}, 1e-3),
        ({"guarantee": PAIR, "profile": PROFILE}, 1e-4),
        ({"guarantee": PrivacyParams("0.2", "0.01"), "profile": PROFILE}, 1e-3),
        ({"renyi": RenyiCurve.from_pure(0.2), "profile": PROFILE}, 0.0),
    ],
)
def test_the_least_delta_is_that_of_the_best_bound(bounds: dict[str, Any], least: float) -> None:
    assert PrivacyCost("a", **bounds).least_delta == least


def test_costs_from_private_data_need_consent() -> None:
    needed = [
        PrivacyCost("a", PAIR, data_dependent=dependent, failure_probability=failure).consent_needed
        for dependent, failure in ((False, None), (True, None), (True, 0.5))
    ]
    assert needed == ["", PRIVATE_TOTAL, ESTIMATED_TOTAL]


def test_the_cost_for_non_private_voters_is_that_of_the_closest_overlap() -> None:
    plain = PrivacyCost("a", PAIR, reached=2)
    assert [plain.with_non_private_voters(overlap) is plain for overlap in (1, 2)] == [True, True]
    assert plain.with_non_private_voters(3) is None
    assert replace(plain, reached=None).with_non_private_voters(1) is None
    for overlap in MODELS_COST.overlaps:
        assert overlap is not None
        cost = MODELS_COST.repeat(5).with_non_private_voters(overlap)
        assert cost is not None
        assert (cost.reached, cost.count) == (overlap, 5)


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
        (lambda: PrivacyCost("a"), "at least one of guarantee, renyi and profile"),
        (lambda: PrivacyCost("a", guarantee=PAIR, failure_probability=0.1), "needs data_dependent=True"),
        (lambda: PrivacyCost("a", guarantee=PAIR, vanishing=1.5), "vanishing"),
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
