"""Noise functions: their values, what they refuse, scaling, and their expected errors by enumeration and by draws."""

from collections.abc import Callable
from fractions import Fraction
from itertools import product

import numpy as np
import pytest

from darrm.majority.noise_function import NoiseFunction, compute_errors, differences
from darrm.priors import Independent


def test_noise_function_copies_its_values_and_makes_them_read_only() -> None:
    values = np.array([0.5, 1.0])
    gamma = NoiseFunction(3, values)
    values[0] = 0.0
    assert gamma.half[0] == 0.5
    with pytest.raises(ValueError, match="read-only"):
        gamma.half[0] = 1.0


def test_an_even_number_of_voters_has_a_fair_tie() -> None:
    gamma = NoiseFunction(4, [0.25, 1.0])
    assert gamma.full.tolist() == [1.0, 0.25, 0.0, 0.25, 1.0]
    assert gamma.signed.tolist() == [-1.0, -0.25, 0.0, 0.25, 1.0]
    assert NoiseFunction.from_full(gamma.full).half.tolist() == gamma.half.tolist()
    assert [gamma(ones) for ones in range(5)] == gamma(range(5)).tolist() == gamma.full.tolist()
    assert isinstance(gamma(3), float)


@pytest.mark.parametrize("K", [1, 2, 7, 8])
def test_from_function_calls_from_the_first_majority_to_unanimity(K: int) -> None:
    levels: list[int] = []

    def gamma(ones: int) -> float:
        levels.append(ones)
        return ones / (K + 1)

    result = NoiseFunction.from_function(K, gamma)
    assert levels == [ones for ones in range(K + 1) if 2 * ones > K]
    assert result.full[levels].tolist() == [ones / (K + 1) for ones in levels]


@pytest.mark.parametrize(
    ("create", "message"),
    [
        (lambda: NoiseFunction(0, [1.0]), "K must be an integer of at least 1"),
        (lambda: NoiseFunction(2.0, [1.0]), "K must be an integer of at least 1"),  # type: ignore[arg-type]
        (lambda: NoiseFunction(3, [1.0]), "half must be of shape"),
        (lambda: NoiseFunction(3, [0.5, 1.5]), r"γ\(3\) must be in \[0, 1\], got 1.5"),
        (lambda: NoiseFunction(3, [0.5, float("nan")]), r"γ\(3\) must be in \[0, 1\], got nan"),
        (lambda: NoiseFunction(3, ["a", "b"]), "half must be an array of 2 numbers"),
        (lambda: NoiseFunction.from_full([1.0, 0.5, 1.0]), r"γ\(1\) must be 0 for even K"),
        (lambda: NoiseFunction.from_function(3, lambda ones: ones), r"γ\(2\) must be in \[0, 1\], got 2"),
        (lambda: NoiseFunction.from_function(3, lambda _: None), r"γ\(2\) must be in \[0, 1\], got nan"),  # type: ignore[arg-type,return-value]
        (lambda: NoiseFunction.from_function(3, lambda _: "much"), "an array of 2 numbers"),  # type: ignore[arg-type,return-value]
        (lambda: NoiseFunction.from_function(3, [0.5, 1.0]), "gamma must be a function"),  # type: ignore[arg-type]
        (lambda: NoiseFunction(3, [0.5, 1.0])(4), "an integer from 0 to K = 3"),
        (lambda: NoiseFunction(3, [0.5, 1.0])([-1, 2]), "an integer from 0 to K = 3"),
        (lambda: NoiseFunction(3, [0.5, 1.0])(1.0), "an integer from 0 to K = 3"),  # type: ignore[call-overload]
        (lambda: differences(np.zeros(3)), "of shape"),
        (lambda: differences(np.zeros((0, 3))), "of shape"),
        (lambda: differences(np.full((2, 3), 1.1)), r"in \[0, 1\]"),
    ],
)
def test_noise_function_refuses_values_of_no_gamma(create: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        create()


def test_scaling_rounds_down() -> None:
    gamma = NoiseFunction(5, [0.1, 0.7, 1.0])
    for value, original in zip(gamma.scale_by(1 / 3).half, gamma.half, strict=True):
        assert Fraction(float(value)) <= Fraction(float(original)) * Fraction(1 / 3)
    assert NoiseFunction(5, [0.3, 0.3, 0.3]).scale_by(0.9).is_monotone


def enumerate_error(gamma: NoiseFunction, p: np.ndarray) -> float:
    """Compute |Pr[release = 1] − Pr[majority = 1]| over all votes, with a tie a fair coin."""
    total = 0.0
    for votes in product((0, 1), repeat=gamma.K):
        probability = float(np.prod([q if vote else 1.0 - q for vote, q in zip(votes, p, strict=True)]))
        ones = sum(votes)
        majority = 0.5 if 2 * ones == gamma.K else float(2 * ones > gamma.K)
        share = float(gamma.full[ones])
        total += probability * (share * majority + (1.0 - share) * 0.5 - majority)
    return abs(total)


@pytest.mark.parametrize("K", [1, 2, 3, 4, 5])
def test_errors_of_draws_are_those_of_the_definition(K: int) -> None:
    rng = np.random.default_rng(K)
    gamma, p = NoiseFunction(K, rng.random(K - K // 2)), rng.random((20, K))
    expected = [enumerate_error(gamma, row) for row in p]
    assert compute_errors(gamma.half, differences(p)) == pytest.approx(expected, abs=1e-15)


def test_differences_do_not_depend_on_the_chunks() -> None:
    p = np.random.default_rng(0).random((2_345, 3))
    single = np.array([differences(row[None, :])[0] for row in p])
    assert np.array_equal(differences(p), single)


@pytest.mark.statistical  # the spread of 400 values is known to 3.5 per cent: 0.2 is more than five of these
def test_standard_error_is_that_of_the_mean() -> None:
    gamma, rng = NoiseFunction(5, [0.1, 0.6, 1.0]), np.random.default_rng(7)
    estimates = [gamma.estimate_error(Independent(0.0, 1.0), draws=400, rng=rng) for _ in range(400)]
    spread = float(np.std([estimate.mean for estimate in estimates]))
    assert spread == pytest.approx(float(np.mean([estimate.standard_error for estimate in estimates])), rel=0.2)
