"""The Rényi curve in the charge of a majority: where it is, what it is, and that a ledger keeps it."""

from pathlib import Path

import numpy as np
import pytest

from darrm.account.accountant import PrivacyAccountant
from darrm.account.ledger import PrivacyLedger
from darrm.errors import BudgetExceededError
from darrm.gamma import baselines
from darrm.gamma.noise_function import NoiseFunction
from darrm.losses.renyi import DEFAULT_ORDERS
from darrm.privacy import PrivacyParams
from darrm.problem import MajorityProblem, Voters
from darrm.proof.charge import charge_of
from darrm.proof.renyi import renyi_divergences
from darrm.proof.table import certify
from darrm.release import DaRRM

PROBLEM = MajorityProblem.from_allowance(Voters(5, PrivacyParams("0.2", "1e-5")), 2)


def aggregator(half: list[float]) -> DaRRM:
    return DaRRM(certify(PROBLEM, NoiseFunction(5, half)))


def test_a_monotone_table_is_charged_with_its_curve() -> None:
    made = aggregator([0.1, 0.3, 0.6])
    charge = made.charge(7)
    assert charge.renyi is not None
    exact = renyi_divergences(PROBLEM.voters, made.table.gamma, DEFAULT_ORDERS)
    assert np.all(charge.renyi.values >= exact)
    assert charge.renyi.values == pytest.approx(exact, rel=2e-9)
    names = {bound.name for bound in PrivacyAccountant(charges=[charge]).spent(1e-3).bounds}
    assert names >= {"simple", "optimal", "profile", "renyi"}


def test_where_there_is_no_curve() -> None:
    assert aggregator([0.3, 0.1, 0.6]).charge().renyi is None
    assert charge_of(aggregator([0.1, 0.3, 0.6]).table, exact=False).renyi is None
    constant = DaRRM(certify(PROBLEM, baselines.randomized_response(PROBLEM))).charge().renyi
    assert constant is not None


def test_many_voters_of_whom_few_are_reached_are_described_too() -> None:
    plain = MajorityProblem(Voters(2001, PrivacyParams("inf"), overlap=1), PrivacyParams(1, "1e-6"))
    rising = np.minimum(np.arange(1, 1002) / 400.0, 0.999)
    charge = DaRRM(certify(plain, NoiseFunction(2001, rising))).charge()
    assert charge.renyi is not None
    assert charge.profile is not None


def test_a_ledger_recognises_the_charge_again(tmp_path: Path) -> None:
    made = aggregator([0.1, 0.3, 0.6])
    ledger = PrivacyLedger.create(tmp_path / "l.sqlite", PrivacyParams(2, "1e-3"))
    ledger.debit(made.charge(3))
    again = PrivacyLedger(tmp_path / "l.sqlite")
    again.debit(aggregator([0.1, 0.3, 0.6]).charge(4))  # of one kind, or it would be refused
    assert again.spent().queries == 7
    with pytest.raises(BudgetExceededError):
        again.debit(made.charge(100_000))
