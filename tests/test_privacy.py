import math
import warnings
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from darrm import NoiseFunction, PrivacyParams, Problem, Table, Voters, Workload, certify
from darrm.privacy import decimal_text, exact_number

EXTREME: list[Any] = [
    *("1e999999999", "1e-999999999", "0.000029E999700001", "1e+0999999999", "9" * 5000, "9" * 10**5, "1e309"),
    *("1/" + "9" * 10**5, 10**309, 10**5000, Fraction(1, 10**5000), Decimal("1e999999999"), Decimal("-1e-999999999")),
]


@pytest.mark.parametrize("value", EXTREME, ids=lambda value: type(value).__name__)
def test_an_extreme_number_is_refused_in_a_short_message(value: Any) -> None:
    with pytest.raises(ValueError, match="x must be a finite number") as caught:
        exact_number("x", value)
    assert len(str(caught.value)) < 400  # the longest do not fill a screen


@pytest.mark.parametrize("value", [True, None, [1], (1,), np.array([1.0]), b"1", math.nan, -math.inf, "1/0", "ten"])
def test_a_value_that_is_no_number_is_refused(value: Any) -> None:
    with pytest.raises(ValueError, match=r"x must be a finite number, like .*, got"):
        exact_number("x", value)


def test_numpy_numbers_count_as_they_are_printed() -> None:
    assert exact_number("x", np.float32(1e-5)) == Fraction(1, 10**5)  # as a double it is 9.99999974…e-06
    assert exact_number("x", np.float64(0.1)) == exact_number("x", np.float16(0.1)) == Fraction(1, 10)
    whole = exact_number("x", np.int64(2**62))
    assert whole * 4 == 2**64  # it is Python's number, which does not overflow
    assert PrivacyParams(np.float32(0.5), np.float32(1e-5)) == PrivacyParams("0.5", "1e-5")


@pytest.mark.parametrize("exact", [Fraction(1, 2**900), Fraction(3, 2**1500), Fraction(2, 3), Fraction(5, 10**320)])
def test_decimal_text_is_read_back_exactly(exact: Fraction) -> None:
    assert exact_number("x", decimal_text(exact)) == exact


def test_only_a_pair_that_looks_swapped_warns() -> None:
    with pytest.warns(UserWarning, match=r"epsilon = 0.00001 beside delta = 0.1 .* are the two swapped\?"):
        PrivacyParams(1e-5, 0.1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        PrivacyParams(0, 0.1)
        PrivacyParams(0.1, 0.2)
        PrivacyParams(1e-5, 1e-6)
        PrivacyParams(0.000952680243, 0.0368605537)


def test_numpy_numbers_in_voters_survive_a_file(tmp_path: Path) -> None:
    voters = Voters(np.int64(3), PrivacyParams(np.float32(0.5)), np.int8(2))  # type: ignore[arg-type]
    problem = Problem.from_allowance(voters, np.float64(1.5))
    certify(problem, NoiseFunction(np.int64(3), np.float32([0.25, 0.5]))).save(str(tmp_path / "t.json"))  # type: ignore[arg-type]
    assert Table.load(str(tmp_path / "t.json")).problem == problem
    assert Workload(voters, np.uint16(7), PrivacyParams(1)).to_json()["queries"] == 7  # type: ignore[arg-type]


@pytest.mark.parametrize("epsilon", [math.inf, "inf", "Infinity", "+inf"])
def test_infinite_epsilon_is_for_voters_only(epsilon: float | str) -> None:
    non_private = PrivacyParams(epsilon)
    assert not non_private.is_private
    assert non_private == PrivacyParams("inf")
    assert (repr(non_private), str(non_private)) == ("PrivacyParams(epsilon=inf, delta=0)", "(inf, 0)")
    for use in (
        lambda: non_private.epsilon,
        lambda: non_private.exact_epsilon,
        lambda: PrivacyParams(epsilon, "1e-5"),
        lambda: Problem(Voters(3, PrivacyParams("0.1")), non_private),
    ):
        with pytest.raises(ValueError, match="epsilon must be a finite number"):
            use()


def test_non_private_voters_have_no_allowance() -> None:
    problem = Problem(Voters(11, PrivacyParams("inf"), overlap=1), PrivacyParams("0.5", "1e-5"))
    assert "not private themselves" in str(problem)
    with pytest.raises(ValueError, match="no allowance m"):
        _ = problem.m
