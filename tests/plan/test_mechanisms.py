"""A mechanism has one slug, and the same parameter, cost and accuracy alone as first in a plan."""

import pytest

from darrm.plan import MECHANISMS, TESTED, Workload, calibrate, named, plan
from darrm.privacy import PrivacyParams
from darrm.problem import Voters
from tests.planned import completed

PLAIN = PrivacyParams("inf")
WORKS = (
    Workload(Voters(5, PLAIN, overlap=1), 20, PrivacyParams("2", "1e-5")),
    Workload(Voters(3, PrivacyParams("0.2"), overlap=2), 2, PrivacyParams("1", "1e-3")),
    Workload(Voters(5, PLAIN, overlap=1), 5, PrivacyParams("2", "1e-5"), classes=3),
)


@pytest.mark.slow
@pytest.mark.parametrize(
    "work", [*(pytest.param(work, marks=pytest.mark.slow) for work in WORKS[:2]), WORKS[2]], ids=str
)
def test_the_first_of_a_plan_is_calibrated_to_the_last_digit(work: Workload) -> None:
    found = plan(work)
    alone = calibrate(work, named(found.rows[0].slug))
    assert dict(alone.settings) == dict(found.rows[0].settings)
    assert (alone.spent.epsilon, alone.accuracy) == (found.rows[0].spent.epsilon, found.rows[0].accuracy)
    for row in completed(work).rows:
        assert 0.0 < row.spent.epsilon <= work.total.epsilon * (1 + 1e-12)
        assert row.is_released == (row.aggregator is not None)


def test_every_mechanism_has_one_slug() -> None:
    slugs = [mechanism.slug for mechanism in (*MECHANISMS, *TESTED)]
    assert len(slugs) == len(set(slugs)) == 18
    with pytest.raises(ValueError, match="the mechanism must be one of"):
        named("ours")


@pytest.mark.slow
def test_the_budget_is_used_up_to_a_hundred_thousandth() -> None:
    for slug in ("gnmax", "exponential", "permute-and-flip"):
        assert 1.9999 < calibrate(WORKS[0], named(slug)).spent.epsilon <= 2.0
