"""Mechanisms and plans in an audit: costs against brute force, laws against draws, every changed figure found."""

import json
import math
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from darrm import PrivacyLedger, PrivacyParams, Voters, Workload
from darrm.aggregator import CLAIMS, load_release
from darrm.loss.privacy_cost import PrivacyCost
from darrm.loss.profile import PrivacyProfile
from darrm.noisy_max.mechanisms import AsymmetricMax, GNMax, LNMax
from darrm.noisy_max.noisy_maximum import Mechanism, NoisyMaximum
from darrm.noisy_max.selection import ExponentialMechanism, PermuteAndFlip
from darrm.numerics.integer_noise import AsymmetricNoise
from darrm.plan import plan
from darrm.plan.planner import named
from darrm.verify.attack import law_of
from darrm.verify.audit import audit
from darrm.verify.costs import Cost, judge_charge, partitions
from darrm.verify.totals import smallest_total
from darrm.verify.verdicts import FALSE, PROVED, UNKNOWN
from tests.doors import validated
from tests.verify.support import audit_of, charge_of, cost_of
from tests.verify.test_noisy_labels import neighbors

PLAIN = Voters(9, PrivacyParams("inf"), overlap=1)
MECHANISMS: dict[str, Mechanism] = {
    "GNMax": GNMax(2.0),
    "LNMax": LNMax(0.4),
    "AsymmetricMax": AsymmetricMax(AsymmetricNoise(2.0, 3.0, 2.0, 1.5)),
    "ExponentialMechanism": ExponentialMechanism(0.8),
    "PermuteAndFlip": PermuteAndFlip(0.8),
}


def mechanism_of(name: str, classes: int = 3) -> NoisyMaximum:
    return NoisyMaximum(MECHANISMS[name], PLAIN, classes)


def exact(name: str, classes: int = 3) -> Cost:
    return cost_of(mechanism_of(name, classes))


@pytest.mark.parametrize("name", MECHANISMS)
def test_no_pair_of_histograms_costs_more(name: str) -> None:
    checked = exact(name)
    pairs = neighbors(9, 3)[::7]
    p, q = (law_of(mechanism_of(name))(np.array([pair[side] for pair in pairs])) for side in (0, 1))
    for order in (1.5, 4.0):
        found = checked.renyi(order)
        assert found is not None
        assert np.log(np.sum(p**order * q ** (1.0 - order), axis=1)).max() / (order - 1.0) <= found.high
    epsilons = [Fraction(0), Fraction(1, 3)]
    for epsilon, delta in zip(epsilons, checked.deltas(epsilons) or [], strict=False):
        assert np.maximum(0.0, p - math.exp(epsilon) * q).sum(axis=1).max() <= delta.upper + Fraction(1, 10**12)


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("name", MECHANISMS)
def test_the_librarys_costs_pass_and_smaller_ones_are_false(name: str) -> None:
    checked = exact(name)
    charge = mechanism_of(name).privacy_cost()
    verdicts = list(judge_charge(checked, charge_of(charge)))
    assert {verdict.verdict for verdict in verdicts} <= {PROVED, UNKNOWN}
    assert PROVED in {verdict.verdict for verdict in verdicts}
    softened: dict[str, Mechanism] = {
        "GNMax": GNMax(2.02),
        "LNMax": LNMax(0.39),
        "AsymmetricMax": AsymmetricMax(AsymmetricNoise(2.05, 3.1, 2.0, 1.5)),
        "ExponentialMechanism": ExponentialMechanism(0.79),
        "PermuteAndFlip": PermuteAndFlip(0.79),
    }
    cheaper = NoisyMaximum(softened[name], PLAIN, 3).privacy_cost()
    assert FALSE in {verdict.verdict for verdict in judge_charge(checked, charge_of(cheaper))}


@pytest.mark.parametrize(("name", "at"), [("GNMax", 8.0), ("ExponentialMechanism", 0.8 - 1e-12)])
def test_tiny_deltas_are_judged_by_their_digits(name: str, at: float) -> None:
    checked = exact(name)
    exactly = checked.deltas([Fraction(at)])
    assert exactly is not None
    true = exactly[0]
    assert 0.0 < true.upper < Fraction(1, 10**20)
    for factor, verdict in ((0.999, FALSE), (1.001, PROVED)):
        delta = float(true.upper) * factor
        profile = PrivacyProfile((0.0, at / 2.0, at, 2.0 * at, 3.0 * at), (1.0, 0.9, delta, delta / 10.0, 0.0))
        found = list(judge_charge(checked, charge_of(PrivacyCost("an answer", profile=profile))))
        assert [one.verdict for one in found] == [verdict]


def test_no_order_is_called_proved_that_was_not_computed() -> None:
    mechanism = NoisyMaximum(GNMax(1.5), PLAIN, 3)
    checked = cost_of(mechanism)
    assert [checked.renyi(order) is None for order in (4.0, 16.0, 64.0)] == [False, True, True]
    claims = {verdict.claim for verdict in judge_charge(checked, charge_of(mechanism.privacy_cost()))}
    assert "the Rényi curve of a query is at least what it costs, at orders 4" in claims


@pytest.mark.parametrize("gamma", [400.0, 1e6])
def test_a_mechanism_without_a_cost_stops_no_audit(gamma: float, tmp_path: Path) -> None:
    NoisyMaximum(LNMax(gamma), PLAIN, 3).save(tmp_path / "sharp.json")
    NoisyMaximum(LNMax(0.4), PLAIN, 3).save(tmp_path / "soft.json")
    found = audit([tmp_path])
    assert {Path(one.file).name for one in found.verdicts if one.verdict == FALSE} == set()
    assert {Path(path).name for path in found.releases} == {"soft.json", "sharp.json"}


def test_partitions_of_few_votes_on_many_classes_are_quick() -> None:
    parts = list(partitions(3, 2000, 3))
    assert [part[:4] for part in parts] == [(3, 0, 0, 0), (2, 1, 0, 0), (1, 1, 1, 0)]
    assert {len(part) for part in parts} == {2000}


SLOW_FAMILIES = ("lnmax", "asymmetric")
# K, queries and classes; shaped noise is no better than Gaussian noise for few classes
OTHER_WORK = {"asymmetric": (100, 20, 10), "table": (30, 20, 2), "plurality": (8, 1, 3)}
SLUGS = ("gnmax", "lnmax", "asymmetric", "exponential", "permute-and-flip")


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[pytest.mark.slow] * (name in SLOW_FAMILIES)) for name in (*SLUGS, "table", "plurality")],
)
def test_honest_plans_pass_with_their_total_proved(name: str, tmp_path: Path) -> None:
    K, queries, classes = OTHER_WORK.get(name, (30, 20, 3))
    total = PrivacyParams(1 if queries == 1 else 2, "1e-5")
    work = Workload(Voters(K, PrivacyParams("inf"), overlap=1), queries, total, classes=classes)
    path, bare = tmp_path / "plan.json", tmp_path / "bare.json"
    plan(work, mechanisms=[named(name)] if name in SLUGS else None).save(path)
    verdicts = audit([path]).verdicts
    assert [str(verdict) for verdict in verdicts if verdict.verdict == FALSE] == []
    (total_verdict,) = [verdict for verdict in verdicts if "as planned are" in verdict.claim]
    # sums of Laplace noise in whole numbers are next to those of the accountant, not below
    assert total_verdict.verdict in ({PROVED, UNKNOWN} if name == "lnmax" else {PROVED})
    schema = {"table": "gamma_table", "plurality": "plurality_table"}.get(name, "release")
    validated(path, schema)
    # a release does not read the claims
    data = json.loads(path.read_text())
    bare.write_text(json.dumps({name: value for name, value in data.items() if name != CLAIMS}))
    assert load_release(bare).privacy_cost() == load_release(path).privacy_cost()


@pytest.mark.parametrize("epsilon", [0.001, 0.1, 1.3, 30.0])
@pytest.mark.parametrize("order", [1.25, 2.0, 30.0, 1024.0])
def test_the_curve_of_the_exponential_mechanism_is_enclosed(epsilon: float, order: float) -> None:
    curve = ExponentialMechanism(epsilon).privacy_cost().renyi
    assert curve is not None
    stated = float(curve.values[curve.orders == order][0])
    u = np.linspace(0.0, 1.0, 2001)  # its definition, two values of r at a time
    with np.errstate(over="ignore"):
        logs = np.log1p(u * np.expm1(min((order - 1.0) * epsilon, 700.0))) + (order - 1.0) * np.log1p(
            u * np.expm1(-epsilon)
        )
    found = cost_of(NoisyMaximum(ExponentialMechanism(epsilon), PLAIN, 3)).renyi(order)
    assert found is not None
    assert max(logs) / (order - 1.0) * (1.0 - 1e-9) <= found.high <= stated * (1.0 + 1e-9)
    assert found.low <= stated


SEVERAL = [
    pytest.param(GNMax(5.0, reached=2), marks=pytest.mark.slow),
    GNMax(7.0, reached=3),
    LNMax(0.3, reached=2),
    AsymmetricMax(AsymmetricNoise(6.0, 8.0, 2.0, 1.5), reached=2),
]


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("mechanism", SEVERAL)
def test_several_votes_that_move_cost_no_more(mechanism: GNMax | LNMax | AsymmetricMax) -> None:
    t = mechanism.reached
    released = NoisyMaximum(mechanism, Voters(30, PrivacyParams("inf"), overlap=t), 2)
    checked = cost_of(released)
    ones = np.arange(31 - t)
    p, q = (law_of(released)(np.column_stack([30 - at, at])) for at in (ones, ones + t))
    for order in (2.0, 4.0):
        found = checked.renyi(order)
        assert found is not None
        worst = np.log(np.sum(p**order * q ** (1.0 - order), axis=1)).max() / (order - 1.0)
        assert 0.5 * found.high < worst <= found.high
    epsilons = [Fraction(0), Fraction(1, 5), Fraction(1)]
    for epsilon, delta in zip(epsilons, checked.deltas(epsilons) or [], strict=True):
        worst = np.maximum(0.0, p - math.exp(epsilon) * q).sum(axis=1).max()
        assert 0.0 < worst <= delta.upper
    # chains of Laplace noise are as close as each link: a thousandth
    verdicts = {one.verdict for one in judge_charge(checked, charge_of(released.privacy_cost()))}
    assert verdicts == {PROVED, UNKNOWN} if isinstance(mechanism, LNMax) else verdicts == {PROVED}


def test_many_votes_that_move_are_bounded_by_the_counts() -> None:
    checked = cost_of(NoisyMaximum(GNMax(40.0, reached=9), Voters(30, PrivacyParams("inf"), overlap=9), 2))
    found = checked.renyi(4.0)
    assert found is not None
    assert found.high == pytest.approx(4.0 * (9 / 40) ** 2)


def test_a_sum_whose_delta_is_too_large_is_none() -> None:
    ten = PrivacyCost("answers", guarantee=PrivacyParams("0.1", "1e-3")).repeated(10)
    assert smallest_total([(charge_of(ten), None)], Fraction(1, 10**5), enough=0.0) is None
    found = smallest_total([(charge_of(ten), None)], Fraction(1, 50), enough=1.0)
    assert found is not None
    assert found.epsilon == pytest.approx(1.0)


def test_kinds_chosen_on_the_way_are_summed_by_the_filter_only(tmp_path: Path) -> None:
    for kinds, how in (("planned", "privacy losses"), ("adaptive", "Rényi filter")):
        ledger = PrivacyLedger.create(tmp_path / f"{kinds}.sqlite", PrivacyParams("8.9", "1e-5"), composition=kinds)
        ledger.debit(PrivacyCost("answers", guarantee=PrivacyParams("0.1")).repeated(90))
        verdict, total = audit_of(tmp_path / f"{kinds}.sqlite").total
        assert total is not None
        assert how in verdict.reason
