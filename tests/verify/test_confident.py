"""Confident-GNMax in an audit: bits and labels against enumeration, the library's charges, and ledgers that lie."""

import math
from pathlib import Path

import numpy as np
import pytest

from darrm import PrivacyLedger, PrivacyParams, Voters, Workload
from darrm.estimators.confident import limited
from darrm.losses.charges import Charge
from darrm.losses.renyi import RenyiCurve
from darrm.pate.confident import ConfidentGNMax, InteractiveGNMax
from darrm.verify.audit import audit
from darrm.verify.confident import ExactConfident, of_words
from darrm.verify.mechanism import judge_costs
from darrm.verify.noisy_labels import renyi_of_bit, renyi_of_label
from darrm.verify.verdicts import CLAIMED, FALSE, PROVED, UNKNOWN

SMALL = ConfidentGNMax(20, 6.0, 4.0)
LIMITED = limited(Workload(Voters(50, PrivacyParams("inf"), overlap=1), 40, PrivacyParams(2, "1e-5"), classes=3), 10)
CHARGES = {
    "confident": SMALL.charge(7),
    "interactive": InteractiveGNMax(20, 8.5, 3.0, 0.9).charge(2),
    "limited": LIMITED.charge(),
}


@pytest.mark.parametrize(("sigma", "order"), [(1.3, 1.5), (1.3, 6.0), (9.0, 3.0), (9.0, 20.0)])
def test_no_threshold_costs_more(sigma: float, order: float) -> None:
    points = np.arange(-400, 401)
    masses = np.exp(-(points**2) / (2.0 * sigma**2))
    masses /= masses.sum()
    reaches, misses = np.cumsum(masses[::-1])[::-1], np.append(0.0, np.cumsum(masses)[:-1])
    worst, near = 0.0, 400 + np.arange(-int(6 * sigma), int(6 * sigma))
    for moved in (-1, 1):
        first, second = (part[near] ** order * part[near + moved] ** (1.0 - order) for part in (reaches, misses))
        worst = max(worst, float(np.max(np.log(first + second))) / (order - 1.0))
    found = renyi_of_bit(lambda x: -(x**2) / (2.0 * sigma**2), order)
    assert worst * (1.0 - 2e-6) < found.low <= worst * (1.0 + 1e-9)
    assert worst * (1.0 - 1e-12) <= found.high < worst * (1.0 + 1e-8)


def test_bits_and_labels_add_up() -> None:
    one = ExactConfident(9.0, 5.0).renyi(4.0)
    many = ExactConfident(9.0, 5.0, checks=30, answers=4).renyi(4.0)
    bit = renyi_of_bit(lambda x: -(x**2) / 162.0, 4.0)
    label = renyi_of_label(lambda x: -(x**2) / 50.0, 4.0)
    assert one is not None
    assert many is not None
    assert one.low == pytest.approx(bit.low + label.low)
    assert many.low == pytest.approx(30 * bit.low + 4 * label.low)
    assert many.high == pytest.approx(30 * bit.high + 4 * label.high)


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("name", CHARGES)
def test_the_librarys_costs_are_proved_and_smaller_ones_false(name: str) -> None:
    charge = CHARGES[name]
    own, curve = of_words(charge.what), charge.renyi
    assert own is not None
    assert curve is not None
    assert [one.verdict for one in judge_costs(own, charge, "ledger")] == [PROVED]
    for order in (2.0, 8.0):
        found = own.renyi(order)
        stated = float(curve.values[curve.orders == order][0])
        assert found is not None
        assert found.high * 0.999 < stated < found.high * 1.03
    less = Charge(charge.what, renyi=RenyiCurve(curve.orders, curve.values * 0.97))
    assert [one.verdict for one in judge_costs(own, less, "ledger")] == [FALSE]


@pytest.mark.parametrize(
    "words",
    [
        "GNMax(40.0)",
        SMALL.charge().what + " over 3 voters",
        SMALL.charge().what.replace("discrete", "continuous"),
        SMALL.charge().what.replace("6.0", "e"),
        SMALL.charge().what + f": {10**400} checks, 1 answers",
    ],
)
def test_other_words_are_not_read(words: str) -> None:
    assert of_words(words) is None


@pytest.mark.parametrize(
    "words", [SMALL.charge().what.replace("4.0", sigma) for sigma in ("0", "1e-200", "-4", "0.02", "1e9", "1e999")]
)
def test_noise_of_no_cost_here_stops_no_audit(words: str) -> None:
    own = of_words(words)
    assert own is not None
    assert own.renyi(4.0) is None


def test_a_ledger_of_it_is_proved(tmp_path: Path) -> None:
    charge = CHARGES["confident"]
    ledger = PrivacyLedger.create(tmp_path / "l.sqlite", PrivacyParams(20, "1e-5"), kinds="planned")
    ledger.debit(charge)
    ledger.debit(Charge("a survey", renyi=charge.renyi, guarantee=PrivacyParams(1)))
    verdicts = {one.claim: one.verdict for one in audit([tmp_path]).verdicts}
    assert verdicts[f"7 charges are for {charge.what}"] == CLAIMED
    (curve,) = [claim for claim in verdicts if claim.startswith("the Rényi curve")]
    assert verdicts[curve] == PROVED
    assert verdicts["1 query costs what the ledger says, entry 2"] == UNKNOWN


def test_a_budget_is_proved_to_hold(tmp_path: Path) -> None:
    ledger = PrivacyLedger.create(tmp_path / "l.sqlite", PrivacyParams(2, "1e-5"))
    ledger.debit(LIMITED.charge())
    (total,) = [one for one in audit([tmp_path]).verdicts if one.claim.startswith("the total stays within")]
    assert total.verdict == PROVED
    assert math.isclose(ledger.spent.epsilon, 2.0, rel_tol=1e-3)
