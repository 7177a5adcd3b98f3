"""One mechanism, one answer: whoever asks a family finds the same parameter, cost and share of right labels."""

import pytest

from darrm.advise import advise
from darrm.plan import FAMILIES, Workload, plan
from darrm.plan.families import named
from darrm.privacy import PrivacyParams
from darrm.problem import Voters

PLAIN = PrivacyParams("inf")
WORKS = (
    Workload(Voters(5, PLAIN, overlap=1), 20, PrivacyParams("2", "1e-5")),
    Workload(Voters(3, PrivacyParams("0.2"), overlap=2), 2, PrivacyParams("1", "1e-3")),
    Workload(Voters(5, PLAIN, overlap=1), 5, PrivacyParams("2", "1e-5"), classes=3),
)
QUICK = [family for family in FAMILIES if family.name not in {"shaped noise", "Rényi", "per query", "no noise"}]


@pytest.mark.slow
@pytest.mark.parametrize(
    "work", [*(pytest.param(work, marks=pytest.mark.slow) for work in WORKS[:2]), WORKS[2]], ids=str
)
def test_plan_and_advice_agree_to_the_last_digit(work: Workload) -> None:
    advice = advise(work, families=QUICK)
    assert advice.options
    for option in advice.options:
        if option.only_compared:
            continue
        alone = plan(work, families=[named(option.name)]).best
        assert dict(alone.settings) == dict(option.settings)
        assert (alone.spent.epsilon, alone.right, alone.wrong) == (option.spent.epsilon, option.right, option.wrong)
        assert 0.0 < option.spent.epsilon <= work.total.epsilon
        assert option.aggregator is not None


def test_every_name_has_one_family() -> None:
    names = [family.name for family in FAMILIES]
    assert len(names) == len(set(names))
    with pytest.raises(ValueError, match="the family must be one of"):
        named("ours")


@pytest.mark.slow
def test_the_budget_is_used_up_to_a_hundred_thousandth() -> None:
    for name in ("GNMax by label", "exponential mechanism", "permute-and-flip"):
        (option,) = advise(WORKS[0], families=[named(name)]).options
        assert 1.9999 < option.spent.epsilon <= 2.0
