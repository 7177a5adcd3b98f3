"""A random-DP guarantee is a type of its own, which composes with its own kind only."""

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


def build(
    epsilon: float = 0.5, delta: float = 0.0, gamma: float = 0.05, records: int = 100, name: str = "P", **noise: str
) -> Any:
    return RandomDP(PrivacyParams(epsilon, delta), gamma, records, name, **noise)


@pytest.mark.parametrize("name", ["epsilon", "delta", "exact_epsilon", "exact_delta", "is_private"])
def test_it_has_no_attribute_of_plain_privacy(name: str) -> None:
    assert not isinstance(build(), PrivacyParams)
    with pytest.raises(AttributeError, match="must not be composed as such"):
        getattr(build(), name)


@pytest.mark.parametrize(
    "use",
    [
        lambda: compose_simple(build(), 3),
        lambda: compose_general(build(), 3, delta_prime=1e-3),
        lambda: compose_optimal(build(), 3, delta=1e-3),
        lambda: Problem(Voters(3, build()), PrivacyParams(1)),
        lambda: Problem(Voters(3, PrivacyParams(0.1)), build()),
        lambda: Problem.from_allowance(Voters(3, build()), 2),
        lambda: PrivacyParams(build()),
        lambda: PrivacyAccountant().add(PrivacyCost("a release", guarantee=build())),
    ],
)
def test_nothing_that_composes_plain_privacy_accepts_it(use: Callable[[], object]) -> None:
    with pytest.raises((AttributeError, ValueError), match=r"no differential privacy|must be|PrivacyParams"):
        use()


def test_composition_adds_all_three_exactly_and_names_noise_once() -> None:
    parts = [build(0.1, 1e-6, 0.1, noise="exact"), build(0.2, 2e-6, 0.2), build(0.3, 0.0, 0.3, noise="exact")]
    total = compose(parts)
    assert total.on_covered_pairs == PrivacyParams("0.6", "3e-6")
    assert total.exact_gamma == Fraction(6, 10)
    assert total.noise == "exact; not stated"


def test_another_distribution_enlarges_gamma() -> None:
    # γ + √((n + 1) τ / 2)
    moved = build(gamma=0.05, records=99).under("Q", 0.0002)
    assert moved.gamma == pytest.approx(0.15, abs=1e-13)
    assert moved.distribution == "Q"
    assert moved.on_covered_pairs == build().on_covered_pairs
    assert build().under("Q", 0.0).exact_gamma == build().exact_gamma
    rounded = build(gamma=0.01, records=7).under("Q", 0.003)
    assert (rounded.exact_gamma - Fraction(1, 100)) ** 2 >= Fraction(8 * 3, 2000)


def test_it_is_frozen_and_its_repr_builds_it_again() -> None:
    with pytest.raises(AttributeError):
        build().records = 3
    assert eval(repr(build()), {"RandomDP": RandomDP, "PrivacyParams": PrivacyParams}) == build()  # noqa: S307


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: build(gamma=0.0), r"gamma must be in \(0, 1\)"),
        (lambda: build(gamma=1.0), r"gamma must be in \(0, 1\)"),
        (lambda: build(gamma=math.nan), "gamma must be a finite number"),
        (lambda: build(records=0), "records must be an integer"),
        (lambda: build(name=""), "distribution must be"),
        (lambda: RandomDP(0.1, 0.1, 3, "P"), "on_covered_pairs must be a pair"),  # type: ignore[arg-type]
        (lambda: build().under("Q", 0.1), "promises nothing"),
        (lambda: build().under("Q", -1.0), "divergence must be"),
        (lambda: build().under("Q", math.inf), "divergence must be"),
        (lambda: compose([]), "at least one"),
        (lambda: compose([build(name="P"), build(name="Q")]), "same number of records and distribution"),
        (lambda: compose([build(records=10), build(records=11)]), "same number of records and distribution"),
        (lambda: compose([build(gamma=0.5), build(gamma=0.5)]), "promises nothing"),
        (lambda: compose([build(), PrivacyParams(0.5)]), "only RandomDP"),  # type: ignore[list-item]
    ],
)
def test_refusals(call: Callable[[], object], message: str) -> None:
    with pytest.raises((ValueError, TypeError), match=message):
        call()
