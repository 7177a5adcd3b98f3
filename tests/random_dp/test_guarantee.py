"""A random-DP guarantee is a type of its own: it composes with its like and with nothing else."""

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import pytest

from darrm.account.accountant import PrivacyAccountant
from darrm.loss.composition import compose_general, compose_optimal, compose_simple
from darrm.loss.privacy_cost import PrivacyCost
from darrm.privacy import PrivacyParams
from darrm.problem import Problem, Voters
from darrm.random_dp.guarantee import RandomDP, compose


def promise(epsilon: float = 0.5, delta: float = 0.0, gamma: float = 0.05, records: int = 100, name: str = "P") -> Any:
    return RandomDP(PrivacyParams(epsilon, delta), gamma, records, name)


@pytest.mark.parametrize("name", ["epsilon", "delta", "exact_epsilon", "exact_delta", "is_private"])
def test_it_does_not_pass_for_plain_privacy(name: str) -> None:
    assert not isinstance(promise(), PrivacyParams)
    assert not hasattr(promise(), name)
    with pytest.raises(AttributeError, match="must not be composed as such"):
        getattr(promise(), name)


def account_for_it() -> None:
    accountant = PrivacyAccountant()
    accountant.add(PrivacyCost("a release", guarantee=promise()))
    accountant.spent(1e-5)


@pytest.mark.parametrize(
    "use",
    [
        lambda: compose_simple(promise(), 3),
        lambda: compose_general(promise(), 3, delta_prime=1e-3),
        lambda: compose_optimal(promise(), 3, delta=1e-3),
        lambda: Problem(Voters(3, promise()), PrivacyParams(1)),
        lambda: Problem(Voters(3, PrivacyParams(0.1)), promise()),
        lambda: Problem.from_allowance(Voters(3, promise()), 2),
        lambda: PrivacyParams(promise()),
        account_for_it,
    ],
)
def test_nothing_that_adds_up_plain_privacy_accepts_it(use: Callable[[], object]) -> None:
    with pytest.raises((AttributeError, ValueError), match=r"no differential privacy|must be|PrivacyParams"):
        use()


def test_composition_adds_all_three_exactly() -> None:
    parts = [promise(0.1, 1e-6, 0.1), promise(0.2, 2e-6, 0.2), promise(0.3, 0.0, 0.3)]
    whole = compose(parts)
    assert whole.on_covered_pairs == PrivacyParams("0.6", "3e-6")
    assert whole.exact_gamma == Fraction(6, 10)


def test_composition_refuses_what_does_not_belong_together() -> None:
    with pytest.raises(TypeError, match="only RandomDP"):
        compose([promise(), PrivacyParams(0.5)])  # type: ignore[list-item]
    for parts, words in (
        ([promise(name="P"), promise(name="Q")], "same number of records and distribution"),
        ([promise(records=10), promise(records=11)], "same number of records and distribution"),
        ([promise(gamma=0.5), promise(gamma=0.5)], "promises nothing"),
        ([], "at least one"),
    ):
        with pytest.raises(ValueError, match=words):
            compose(parts)


def test_noise_is_named_once() -> None:
    first = RandomDP(PrivacyParams(1), 0.1, 5, "P", "exact")
    assert compose([first, first, promise(records=5)]).noise == "exact; not stated"


def test_change_of_distribution() -> None:
    # γ + √((n + 1) τ / 2)
    moved = promise(gamma=0.05, records=99).under("Q", 0.0002)
    assert moved.gamma == pytest.approx(0.15, abs=1e-13)
    assert moved.distribution == "Q"
    assert moved.on_covered_pairs == promise().on_covered_pairs
    assert promise().under("Q", 0.0).exact_gamma == promise().exact_gamma
    # never rounded down, whatever the digits
    other = promise(gamma=0.01, records=7).under("Q", 0.003)
    assert (other.exact_gamma - Fraction(1, 100)) ** 2 >= Fraction(8 * 3, 2000)
    for divergence, words in ((0.1, "promises nothing"), (-1.0, "divergence must be"), (math.inf, "divergence must")):
        with pytest.raises(ValueError, match=words):
            promise().under("Q", divergence)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"gamma": 0.0}, "gamma must be in (0, 1)"),
        ({"gamma": 1.0}, "gamma must be in (0, 1)"),
        ({"gamma": math.nan}, "gamma must be a finite number"),
        ({"records": 0}, "records must be an integer"),
        ({"name": ""}, "distribution must be"),
    ],
)
def test_bad_arguments(change: dict[str, object], words: str) -> None:
    with pytest.raises(ValueError, match="must be") as info:
        promise(**change)  # type: ignore[arg-type]
    assert words in str(info.value)
    with pytest.raises(ValueError, match="on_covered_pairs must be a pair"):
        RandomDP(0.1, 0.1, 3, "P")  # type: ignore[arg-type]


def test_it_is_frozen_and_prints_itself() -> None:
    with pytest.raises(AttributeError):
        promise().records = 3
    assert eval(repr(promise()), {"RandomDP": RandomDP, "PrivacyParams": PrivacyParams}) == promise()  # noqa: S307
    assert "share 0.05" in str(promise())
