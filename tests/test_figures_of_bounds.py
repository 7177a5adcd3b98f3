"""Printed bounds hold: they are rounded to the side on which they are true."""

import ast
import math
import re
from decimal import Decimal
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from darrm import PrivacyAccountant, PrivacyLedger, PrivacyParams
from darrm.account.__main__ import table_text
from darrm.account.accountant import Spent, describe_estimate
from darrm.account.bounds import Bound
from darrm.account.meaning import explain_guarantee
from darrm.loss.privacy_cost import PrivacyCost
from darrm.noisy_max.selection import PermuteAndFlip
from darrm.privacy import at_least, at_most, pair_at_most

PACKAGE = Path(__file__).parents[1] / "darrm"
NUMBERS = st.floats(0.0, 1e300, allow_subnormal=True)
EPSILONS, DELTAS = st.floats(1e-12, 600.0), st.floats(1e-300, 0.999)
FIGURE = r"([0-9.]+(?:e[-+]?[0-9]+)?)"
# settings, progress lines and advice, no bounds
NO_BOUND = """loss/composition.py loss/gaussian.py pate/confident.py plan/optimum.py optimize/__main__.py
optimize/report.py plan/calibration.py plan/tables.py plan/report.py plan/planner.py privacy.py verify/verdicts.py
majority/certify.py open_set/open_rows.py plurality/proof.py"""


def read_figures(pattern: str, text: str) -> list[float]:
    match = re.search(pattern.replace("#", FIGURE), text)
    assert match is not None, text
    return [float(figure) for figure in match.groups()]


def is_tight(figure: float, bound: float, digits: int = 5) -> bool:
    """Whether a figure is the smallest upper bound with these digits, except for the last bit of a float."""
    return math.nextafter(bound, 0.0) <= figure <= bound * (1.0 + 10.0 ** (1 - digits)) + 1e-322


@given(NUMBERS, st.integers(1, 12))
@example(0.1 + 0.2, 5)
@example(5e-324, 5)
@example(2.0000000000000004, 1)
def test_a_float_is_rounded_to_the_safe_side(bound: float, digits: int) -> None:
    assert is_tight(float(at_most(bound, digits)), bound, digits)
    least = float(at_least(bound, digits))
    assert least <= math.nextafter(bound, math.inf)
    assert least >= bound * (1.0 - 10.0 ** (1 - digits)) - 1e-322


@given(st.fractions(0, 10**9), st.integers(1, 12))
def test_a_fraction_is_rounded_exactly(bound: Fraction, digits: int) -> None:
    assert Fraction(Decimal(at_least(bound, digits))) <= bound <= Fraction(Decimal(at_most(bound, digits)))


def test_infinity_and_zero_are_printed_exactly() -> None:
    assert [at_most(math.inf), at_least(math.inf), at_most(0.0), at_most(-0.0), at_least(0)] == ["inf", "inf", *"000"]


@pytest.mark.filterwarnings("ignore:.*are the two swapped")
@given(EPSILONS, DELTAS)
@example(0.30000049, 1e-5)
@example(2.31252, 0.0010000004)
@example(2.0**-14, 0.5)
def test_every_printed_guarantee_is_an_upper_bound(epsilon: float, delta: float) -> None:
    bound = Bound("simple", epsilon, "added up")
    spent = Spent(epsilon, delta, "simple", "added up", (bound,), 3)
    for text in (str(spent), str(PrivacyParams(epsilon, delta)), pair_at_most(epsilon, delta)):
        printed_epsilon, printed_delta = read_figures(r"\(#, #\)", text)
        assert is_tight(printed_epsilon, epsilon), text
        assert is_tight(printed_delta, delta), text
    row = table_text(PrivacyCost("a query", guarantee=PrivacyParams(epsilon, delta)), {3: spent}, delta)
    assert is_tight(read_figures(r"\n +3 +#\*", row)[0], epsilon)
    assert is_tight(read_figures("at delta = #:", row)[0], delta)
    explanation = explain_guarantee("a label", epsilon, delta)
    power, factor, likely = read_figures("e\\^# = #.* times as likely, plus #", explanation)
    assert is_tight(power, epsilon)
    assert is_tight(factor, math.exp(epsilon), 4)
    assert is_tight(likely, delta)
    assert is_tight(read_figures("up to #", describe_estimate(delta))[0], delta, 3)


@pytest.mark.parametrize(("epsilon", "pair"), [("0.00004", "(4e-05, 0)"), ("0.30000049", "(0.30001, 0)")])
def test_a_small_cost_is_not_printed_as_zero(epsilon: str, pair: str) -> None:
    cost = PermuteAndFlip(float(epsilon)).privacy_cost(1)
    assert pair in str(PrivacyAccountant(costs=[cost]).spent(0.0))
    ledger = PrivacyLedger.create(":memory:", PrivacyParams(1))
    ledger.debit(cost)
    assert pair in str(ledger.spent)


def test_no_bound_is_rounded_by_a_format() -> None:
    """No f-string of the library gives a bound a number of digits."""
    names = re.compile("epsilon|delta|bound|cost|failure_probability|worst")
    places = []
    for path in sorted(PACKAGE.rglob("*.py")):
        name = path.relative_to(PACKAGE).as_posix()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FormattedValue) and node.format_spec is not None and name not in NO_BOUND.split():
                value, spec = ast.unparse(node.value), ast.unparse(node.format_spec)
                if names.search(value) and re.search(r"[efg]'$", spec) and "at_most(" not in value:
                    places.append(f"{name}:{node.lineno}: {value}")
    assert places == []
