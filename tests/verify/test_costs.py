"""Costs of a query: tables of many classes and mechanisms against brute force, and honest releases of every kind."""

import json
import math
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from darrm import NoiseFunction, PrivacyLedger, PrivacyParams, Problem, Release, Table, Voters, certify, optimize_table
from darrm.loss.privacy_cost import PrivacyCost
from darrm.loss.profile import PrivacyProfile
from darrm.noisy_max.mechanisms import AsymmetricMax, GNMax, LNMax
from darrm.noisy_max.noisy_maximum import Mechanism, NoisyMaximum
from darrm.noisy_max.selection import ExponentialMechanism, PermuteAndFlip
from darrm.numerics.integer_noise import AsymmetricNoise
from darrm.optimize.plurality import optimize_plurality
from darrm.plurality.plurality_law import random_law
from darrm.plurality.proof import largest_excess, list_neighbor_pairs
from darrm.priors import Dirichlet, Independent, Point
from darrm.verify.attack import label_law
from darrm.verify.audit import judge_file
from darrm.verify.costs import enclose_differences, enclose_private_voters, judge_charge, list_partitions
from darrm.verify.ledger import judge_ledger
from darrm.verify.verdicts import FALSE, PROVED, UNKNOWN
from tests.noisy_max.oracles import histograms, neighbors
from tests.plurality.support import any_law, worst_by_hand
from tests.verify.support import audit_of, charge_of, cost_of, false_claims, table_of

NON_PRIVATE = PrivacyParams("inf")
NINE = Voters(9, NON_PRIVATE, overlap=1)
TINY = Fraction(1, 2**90)


def make_problem(K: int, m: str, delta: str = "1e-5", **settings: Any) -> Problem:
    return Problem.from_allowance(Voters(K, PrivacyParams("0.1", delta), **settings), m)


HONEST: dict[str, Callable[[], Table]] = {
    "monotone": lambda: optimize_table(make_problem(7, "2"), prior=Independent(0.6, 0.9), shape="monotone"),
    "even K": lambda: optimize_table(make_problem(6, "4/3", "0"), prior=Point(0.2)),
    "overlap": lambda: optimize_table(make_problem(9, "2", overlap=2), prior=Dirichlet()),
    "tiny ε": lambda: optimize_table(Problem.from_allowance(Voters(3, PrivacyParams("1e-6")), 1), prior=Dirichlet()),
    "random guessing": lambda: certify(make_problem(4, "2"), NoiseFunction(4, [0.0, 0.0])),
    "three classes": lambda: optimize_table(Problem(Voters(4, PrivacyParams("0.4")), PrivacyParams("0.8"), 3)),
    "sampled objective": lambda: optimize_table(make_problem(5, "2"), prior="uniform", draws=200),
    "K = 1001": lambda: certify(make_problem(1001, "2"), NoiseFunction(1001, np.linspace(0.0, 0.02, 501))),
}


@pytest.mark.quick_cases(6)
@pytest.mark.parametrize("name", HONEST)
def test_an_honest_table_and_its_ledger_are_proved(name: str, tmp_path: Path) -> None:
    table = HONEST[name]()
    verdicts = judge_file(json.dumps(table.to_json()).encode())[1]
    assert false_claims(verdicts) == ""
    assert [one.verdict for one in verdicts if one.claim.startswith("one label is")] == [PROVED]
    ledger = PrivacyLedger.create(tmp_path / "ledger.sqlite", PrivacyParams(9, "1e-2"), composition="adaptive")
    ledger.debit(Release(table).privacy_cost(1))
    assert false_claims(judge_ledger(audit_of(ledger.path, table))) == ""


# ------------------------------------------------------------------------------------------------ tables of classes


@pytest.mark.parametrize("overlap", [1, 2])
def test_the_largest_difference_is_that_of_the_prover(overlap: int) -> None:
    problem = Problem(Voters(4, NON_PRIVATE, overlap=overlap), PrivacyParams("0.7", "0.01"), 3)
    table = optimize_plurality(problem)
    for epsilon in (Fraction(7, 10), Fraction(0), Fraction(2)):
        enclosures = enclose_differences(table_of(table), [epsilon], overlap)
        assert enclosures is not None
        excess = largest_excess(table.plurality, list_neighbor_pairs(problem), epsilon)
        assert enclosures[0].lower - TINY <= excess <= enclosures[0].upper + TINY
        assert enclosures[0].upper - enclosures[0].lower < TINY


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize(
    ("voters", "classes"),
    [
        (Voters(3, PrivacyParams("0.4")), 3),
        (Voters(2, PrivacyParams("0.6")), 4),
        (Voters(3, PrivacyParams("0.4"), overlap=2), 3),
        (Voters(2, PrivacyParams("0.6", "0.05")), 3),
        (Voters.of([PrivacyParams("0.2"), PrivacyParams("0.9"), NON_PRIVATE]), 3),
    ],
)
def test_private_voters_cost_the_worst_of_all_multisets(voters: Voters, classes: int) -> None:
    problem = Problem(voters, PrivacyParams("0.9", "0.06"), classes)
    table = certify(problem, any_law(voters, classes, 8, falls=True))
    epsilons = [Fraction(0), Fraction(9, 10), Fraction(2)]
    enclosures = enclose_private_voters(table_of(table), epsilons)
    assert enclosures is not None
    for epsilon, enclosure in zip(epsilons, enclosures, strict=True):
        worst = worst_by_hand(voters, table.plurality, math.exp(epsilon))
        assert float(enclosure.lower) - 1e-12 <= worst <= float(enclosure.upper) + 1e-12
        assert enclosure.upper - enclosure.lower < Fraction(1, 10**12)
    assert enclosures[1].upper <= problem.target.exact_delta


def test_partitions_of_few_votes_into_many_classes_are_few() -> None:
    parts = [(3, 0, 0), (2, 1, 0), (1, 1, 1)]
    assert list(list_partitions(3, 2000, 3)) == [part + (0,) * 1997 for part in parts]


def test_too_many_private_voters_are_not_enclosed() -> None:
    problem = Problem(Voters(14, PrivacyParams("0.4")), PrivacyParams("0.9"), 3)
    assert enclose_private_voters(table_of(certify(problem, random_law(14, 3))), [Fraction(1)]) is None


# ------------------------------------------------------------------------------------------------ mechanisms

# each with another of slightly smaller cost
MECHANISMS: dict[str, tuple[Mechanism, Mechanism]] = {
    "GNMax": (GNMax(2.0), GNMax(2.02)),
    "LNMax": (LNMax(0.4), LNMax(0.39)),
    "AsymmetricMax": (
        AsymmetricMax(AsymmetricNoise(2.0, 3.0, 2.0, 1.5)),
        AsymmetricMax(AsymmetricNoise(2.05, 3.1, 2.0, 1.5)),
    ),
    "ExponentialMechanism": (ExponentialMechanism(0.8), ExponentialMechanism(0.79)),
    "PermuteAndFlip": (PermuteAndFlip(0.8), PermuteAndFlip(0.79)),
}


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("name", MECHANISMS)
def test_the_cost_of_a_mechanism_is_proved_and_a_smaller_one_is_false(name: str) -> None:
    release, cheaper = (NoisyMaximum(mechanism, NINE, 3) for mechanism in MECHANISMS[name])
    verdicts = {verdict.verdict for verdict in judge_charge(cost_of(release), charge_of(release.privacy_cost()))}
    assert PROVED in verdicts <= {PROVED, UNKNOWN}
    assert FALSE in {one.verdict for one in judge_charge(cost_of(release), charge_of(cheaper.privacy_cost()))}


# noise: test_noisy_labels; the same for several votes of a person
SEVERAL_VOTES = [
    GNMax(7.0, reached=3),
    LNMax(0.3, reached=2),
    AsymmetricMax(AsymmetricNoise(6.0, 8.0, 2.0, 1.5), reached=2),
    GNMax(5.0, reached=2),
]


def check_enclosures(
    release: NoisyMaximum, p: np.ndarray, q: np.ndarray, share: float, largest: Fraction, rounding: float
) -> None:
    """Check that no pair of laws costs more than the upper ends, and the worst pair ``share`` of them."""
    cost = cost_of(release)
    for order in (1.5, 2.0, 4.0):
        divergence = cost.renyi(order)
        assert divergence is not None
        worst = np.log(np.sum(p**order * q ** (1.0 - order), axis=1)).max() / (order - 1.0)
        assert share * divergence.upper < worst <= divergence.upper
    epsilons = [Fraction(0), Fraction(1, 5), largest]
    deltas = cost.deltas(epsilons)
    assert deltas is not None
    for epsilon, delta in zip(epsilons, deltas, strict=True):
        worst = np.maximum(0.0, p - math.exp(epsilon) * q).sum(axis=1).max()
        assert 0.0 < worst <= delta.upper + Fraction(rounding)


@pytest.mark.parametrize("name", ["ExponentialMechanism", "PermuteAndFlip"])
def test_no_pair_of_histograms_costs_more_than_a_selection(name: str) -> None:
    release = NoisyMaximum(MECHANISMS[name][0], NINE, 3)
    pairs = [(counts, moved) for counts in histograms(9, 3) for moved in neighbors(counts)]
    p, q = (label_law(release)(np.array([pair[side] for pair in pairs])) for side in (0, 1))
    check_enclosures(release, p, q, share=0.3, largest=Fraction(1, 3), rounding=1e-12)


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("mechanism", SEVERAL_VOTES)
def test_no_number_of_ones_costs_more_than_noise_against_several_votes(mechanism: Any) -> None:
    t = mechanism.reached
    release = NoisyMaximum(mechanism, Voters(30, NON_PRIVATE, overlap=t), 2)
    ones = np.arange(31 - t)
    p, q = (label_law(release)(np.column_stack([30 - counts, counts])) for counts in (ones, ones + t))
    check_enclosures(release, p, q, share=0.5, largest=Fraction(1), rounding=0.0)
    # chains of Laplace noise are as close as each link: a thousandth
    verdicts = {one.verdict for one in judge_charge(cost_of(release), charge_of(release.privacy_cost()))}
    assert verdicts == ({PROVED, UNKNOWN} if isinstance(mechanism, LNMax) else {PROVED})


def test_many_votes_of_a_person_are_bounded_by_two_noisy_counts() -> None:
    cost = cost_of(NoisyMaximum(GNMax(40.0, reached=9), Voters(30, NON_PRIVATE, overlap=9), 2))
    divergence = cost.renyi(4.0)
    assert divergence is not None
    assert divergence.upper == pytest.approx(4.0 * (9 / 40) ** 2)


@pytest.mark.parametrize(("name", "epsilon"), [("GNMax", 8.0), ("ExponentialMechanism", 0.8 - 1e-12)])
def test_tiny_deltas_are_judged_by_their_digits(name: str, epsilon: float) -> None:
    cost = cost_of(NoisyMaximum(MECHANISMS[name][0], NINE, 3))
    deltas = cost.deltas([Fraction(epsilon)])
    assert deltas is not None
    assert 0.0 < deltas[0].upper < Fraction(1, 10**20)
    epsilons = (0.0, epsilon / 2.0, epsilon, 2.0 * epsilon, 3.0 * epsilon)
    for factor, verdict in ((0.999, FALSE), (1.001, PROVED)):
        delta = float(deltas[0].upper) * factor
        profile = PrivacyProfile(epsilons, (1.0, 0.9, delta, delta / 10.0, 0.0))
        charge = charge_of(PrivacyCost("an answer", profile=profile))
        assert [one.verdict for one in judge_charge(cost, charge)] == [verdict]


def test_orders_that_are_too_large_are_not_called_proved() -> None:
    release = NoisyMaximum(GNMax(1.5), NINE, 3)
    cost = cost_of(release)
    assert [cost.renyi(order) is None for order in (4.0, 16.0, 64.0)] == [False, True, True]
    claims = {verdict.claim for verdict in judge_charge(cost, charge_of(release.privacy_cost()))}
    assert "the Rényi curve of a query is at least what it costs, at orders 4" in claims


@pytest.mark.parametrize("epsilon", [0.001, 0.1, 1.3, 30.0])
@pytest.mark.parametrize("order", [1.25, 2.0, 30.0, 1024.0])
def test_the_curve_of_the_exponential_mechanism_is_enclosed(epsilon: float, order: float) -> None:
    release = NoisyMaximum(ExponentialMechanism(epsilon), NINE, 3)
    curve = release.privacy_cost().renyi
    assert curve is not None
    stated = float(curve.values[curve.orders == order][0])
    u = np.linspace(0.0, 1.0, 2001)  # its definition, two values of r at a time
    logs = np.log1p(u * np.expm1(min((order - 1.0) * epsilon, 700.0))) + (order - 1.0) * np.log1p(
        u * np.expm1(-epsilon)
    )
    divergence = cost_of(release).renyi(order)
    assert divergence is not None
    assert max(logs) / (order - 1.0) * (1.0 - 1e-9) <= divergence.upper <= stated * (1.0 + 1e-9)
    assert divergence.upper * (1.0 - 1e-14) <= divergence.lower <= stated
