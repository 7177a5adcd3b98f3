"""Costs in an audit: laws of many classes, mechanisms and plans against brute force, every changed figure found."""

import json
import math
from fractions import Fraction
from math import exp
from pathlib import Path

import numpy as np
import pytest

from darrm import PrivacyLedger, Workload, certify, optimize_table
from darrm.aggregator import CLAIMS, load_release
from darrm.loss.privacy_cost import PrivacyCost
from darrm.loss.profile import PrivacyProfile
from darrm.noisy_max.mechanisms import AsymmetricMax, GNMax, LNMax
from darrm.noisy_max.noisy_maximum import Mechanism, NoisyMaximum
from darrm.noisy_max.selection import ExponentialMechanism, PermuteAndFlip
from darrm.numerics.integer_noise import AsymmetricNoise
from darrm.optimize.plurality import optimize_plurality
from darrm.plan import plan
from darrm.plan.planner import find_mechanism
from darrm.plurality.plurality_law import random_law
from darrm.plurality.proof import largest_excess, list_neighbor_pairs
from darrm.privacy import PrivacyParams
from darrm.problem import Problem, Voters
from darrm.table.table import Table
from darrm.verify.__main__ import main
from darrm.verify.attack import label_law
from darrm.verify.audit import audit, judge_file
from darrm.verify.costs import Cost, enclose_differences, enclose_private_voters, judge_charge, list_partitions
from darrm.verify.totals import smallest_total
from darrm.verify.verdicts import FALSE, PROVED, UNKNOWN
from tests.doors import validated
from tests.plurality.test_voter_corners import any_law, worst_by_hand
from tests.verify.support import audit_of, charge_of, cost_of, false_claims, table_of
from tests.verify.test_noisy_labels import neighbors

PROBLEM = Problem(Voters(6, PrivacyParams("inf"), overlap=1), PrivacyParams("0.5", "1e-3"), 3)


@pytest.fixture(scope="module")
def table() -> Table:
    return optimize_plurality(PROBLEM)


@pytest.mark.parametrize("reached", [1, 2])
def test_two_pieces_of_code_that_share_nothing_agree(reached: int) -> None:
    problem = Problem(Voters(4, PrivacyParams("inf"), overlap=reached), PrivacyParams("0.7", "0.01"), 3)
    table = optimize_plurality(problem)
    for epsilon in (Fraction(7, 10), Fraction(0), Fraction(2)):
        found = enclose_differences(table_of(table), [epsilon], reached)
        assert found is not None
        ours = largest_excess(table.plurality, list_neighbor_pairs(problem), epsilon)
        assert found[0].lower - Fraction(1, 2**90) <= ours <= found[0].upper + Fraction(1, 2**90)
        assert found[0].upper - found[0].lower < Fraction(1, 2**90)


def test_a_false_worst_cost_is_called_false(table: Table) -> None:
    data = table.to_json()
    data["certificate"] = {**data["certificate"], "worst_cost": data["certificate"]["worst_cost"] / 2}
    assert "no pair of neighbors" in false_claims(judge_file(json.dumps(data).encode())[1])


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize(
    ("voters", "classes"),
    [
        (Voters(3, PrivacyParams("0.4")), 3),
        (Voters(2, PrivacyParams("0.6")), 4),
        (Voters(3, PrivacyParams("0.4"), overlap=2), 3),
        (Voters(2, PrivacyParams("0.6", "0.05")), 3),
        (Voters.of([PrivacyParams("0.2"), PrivacyParams("0.9"), PrivacyParams("inf")]), 3),
    ],
)
def test_the_auditor_finds_the_worst_of_all_multisets(voters: Voters, classes: int) -> None:
    target = PrivacyParams("0.9", "0.06")
    table = certify(Problem(voters, target, classes), any_law(voters, classes, 8, falls=True))
    epsilons = [Fraction(0), Fraction(9, 10), Fraction(2)]
    enclosures = enclose_private_voters(table_of(table), epsilons)
    assert enclosures is not None
    for epsilon, found in zip(epsilons, enclosures, strict=True):
        by_hand = worst_by_hand(voters, table.plurality, exp(epsilon))
        assert float(found.lower) - 1e-12 <= by_hand <= float(found.upper) + 1e-12
        assert found.upper - found.lower < Fraction(1, 10**12)
    assert enclosures[1].upper <= target.exact_delta


def test_what_is_too_large_is_left_to_the_prover() -> None:
    voters = Voters(14, PrivacyParams("0.4"))
    table = certify(Problem(voters, PrivacyParams("0.9"), 3), random_law(14, 3))
    assert enclose_private_voters(table_of(table), [Fraction(1)]) is None


def test_a_table_of_private_voters_is_proved_by_verify(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = optimize_table(Problem(Voters(4, PrivacyParams("0.4")), PrivacyParams("0.8"), 3))
    table.save(tmp_path / "table.json")
    assert main([str(tmp_path / "table.json"), "--all"]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("PASS  one label is (0.8, 0)-DP\n")
    assert "whole numbers over all multisets of corners" in shown


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


@pytest.mark.parametrize("name", ["ExponentialMechanism", "PermuteAndFlip"])  # noise: test_noisy_labels
def test_no_pair_of_histograms_costs_more(name: str) -> None:
    checked = exact(name)
    pairs = neighbors(9, 3)[::7]
    p, q = (label_law(mechanism_of(name))(np.array([pair[side] for pair in pairs])) for side in (0, 1))
    for order in (1.5, 4.0):
        found = checked.renyi(order)
        assert found is not None
        assert np.log(np.sum(p**order * q ** (1.0 - order), axis=1)).max() / (order - 1.0) <= found.upper
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
    parts = list(list_partitions(3, 2000, 3))
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
    plan(work, mechanisms=[find_mechanism(name)] if name in SLUGS else None).save(path)
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
    assert max(logs) / (order - 1.0) * (1.0 - 1e-9) <= found.upper <= stated * (1.0 + 1e-9)
    assert found.lower <= stated


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
    p, q = (label_law(released)(np.column_stack([30 - at, at])) for at in (ones, ones + t))
    for order in (2.0, 4.0):
        found = checked.renyi(order)
        assert found is not None
        worst = np.log(np.sum(p**order * q ** (1.0 - order), axis=1)).max() / (order - 1.0)
        assert 0.5 * found.upper < worst <= found.upper
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
    assert found.upper == pytest.approx(4.0 * (9 / 40) ** 2)


def test_a_sum_whose_delta_is_too_large_is_none() -> None:
    ten = PrivacyCost("answers", guarantee=PrivacyParams("0.1", "1e-3")).repeat(10)
    assert smallest_total([(charge_of(ten), None)], Fraction(1, 10**5), goal=0.0) is None
    found = smallest_total([(charge_of(ten), None)], Fraction(1, 50), goal=1.0)
    assert found is not None
    assert found.epsilon == pytest.approx(1.0)


def test_kinds_chosen_on_the_way_are_summed_by_the_filter_only(tmp_path: Path) -> None:
    for kinds, how in (("planned", "privacy losses"), ("adaptive", "Rényi filter")):
        ledger = PrivacyLedger.create(tmp_path / f"{kinds}.sqlite", PrivacyParams("8.9", "1e-5"), composition=kinds)
        ledger.debit(PrivacyCost("answers", guarantee=PrivacyParams("0.1")).repeat(90))
        verdict, total = audit_of(tmp_path / f"{kinds}.sqlite").total
        assert total is not None
        assert how in verdict.reason
