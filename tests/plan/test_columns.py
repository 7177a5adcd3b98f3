"""The reference priors of low, medium and high consensus, and minimax regret over them."""

from fractions import Fraction
from itertools import product
from math import factorial

import numpy as np
import pytest

from darrm.plan import Plan, plan
from darrm.plan.accuracy import Measure
from darrm.plan.planner import named
from darrm.priors import Spread, reference_priors
from darrm.privacy import PrivacyParams
from darrm.problem import Voters, Workload
from tests.planned import accuracy_of

PLAIN = PrivacyParams("inf")
WORK = Workload(Voters(6, PLAIN, overlap=1), 5, PrivacyParams(2, "1e-5"), 3)
FEW = [named(name) for name in ("gnmax", "exponential", "permute-and-flip")]


@pytest.fixture(scope="module")
def found() -> Plan:
    return plan(WORK, mechanisms=FEW)


def chances(K: int, concentrations: list[Fraction]) -> dict[tuple[int, ...], Fraction]:
    """Compute Polya's urn, histogram by histogram, in fractions: the mean of Dirichlet's laws."""
    mean: dict[tuple[int, ...], Fraction] = {}
    for a in concentrations:
        for row in product(range(K + 1), repeat=3):
            if sum(row) != K:
                continue
            chance, before = Fraction(factorial(K)), 0
            for n in row:
                for one in range(n):
                    chance *= (a + one) / (3 * a + before)
                    before += 1
                chance /= factorial(n)
            mean[row] = mean.get(row, Fraction(0)) + chance / len(concentrations)
    return mean


def test_columns_are_polyas_urns_and_their_mean_is_what_decides(found: Plan) -> None:
    three = {"low": Fraction(1), "medium": Fraction(1, 3), "high": Fraction(1, 30)}
    assert found.prior == Spread()
    assert found.rows[0].regret == min(option.regret or 0.0 for option in found.rows)
    for option in found.rows:
        assert option.law is not None
        shares = {}
        for name, asked in [*((name, [a]) for name, a in three.items()), ("all", list(three.values()))]:
            law = chances(6, asked)
            rows = np.array(list(law))
            right = (option.law(-np.sort(-rows, axis=1)) * (-np.sort(-rows, axis=1) == rows.max(axis=1)[:, None])).sum(
                1
            )
            shares[name] = float(right @ np.array(list(law.values()), dtype=float))
        assert option.accuracy == pytest.approx(shares.pop("all"), abs=1e-12)
        assert {name: column.value for name, column in option.consensus.items()} == pytest.approx(shares, abs=1e-12)


def test_drawn_columns_are_samples_of_their_own() -> None:
    work = Workload(Voters(60, PLAIN, overlap=1), 50, PrivacyParams(2, "1e-5"), 8)
    best = plan(work, mechanisms=[named("exponential")]).best
    assert best.law is not None
    for name, prior in reference_priors(8).items():
        column, alone = best.consensus[name], accuracy_of(best.law, 60, 8, prior)
        assert 0.0 < column.standard_error < 0.02
        assert abs(column.value - alone.value) < 5.0 * np.hypot(column.standard_error, alone.standard_error)
    assert best.accuracy == pytest.approx(np.mean([column.value for column in best.consensus.values()]), abs=1e-4)


def test_two_classes_have_reference_priors_too() -> None:
    work = Workload(Voters(5, PLAIN, overlap=1), 1, PrivacyParams(1))
    assert Measure(work, None).prior == Spread()
    assert Measure(work, None).is_regret
    columns = Measure(work, None).consensus(lambda counts: np.eye(2)[np.zeros(len(counts), dtype=int)])
    assert [share.value for share in columns.values()] == pytest.approx([1.0] * 3, abs=1e-12)
