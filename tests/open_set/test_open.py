"""Open-set answers as laws on partitions: against named strings, in fractions, and known values."""

import math
from fractions import Fraction

import numpy as np
import pytest

from darrm import certify, optimize_table
from darrm.open_set.optimum import best_open_law
from darrm.plurality.partitions import list_partitions
from darrm.plurality.plurality_law import PluralityLaw, random_law
from darrm.plurality.proof import curve_of_law, largest_excess, profile_of_law
from darrm.priors import Ewens
from darrm.problem import OPEN
from darrm.table.table import Table
from lp_models.options import SolveOptions
from tests.open_set.support import find_largest_difference, find_optimum, open_problem
from tests.verify.support import cost_of


def draw_law(K: int, seed: int) -> PluralityLaw:
    """Draw a law that is not private; some of its strings have probability 0."""
    partitions, rng = list_partitions(K, OPEN), np.random.default_rng(seed)
    shares = rng.exponential(size=partitions.sizes.size) * (rng.random(partitions.sizes.size) < 0.7)
    shares[partitions.votes == 0] += 0.1
    totals = np.add.reduceat(shares, partitions.starts)[partitions.blocks]
    return PluralityLaw.from_probabilities(K, OPEN, shares / totals / partitions.sizes)


@pytest.mark.statistical
def test_ewens_samples_follow_the_law() -> None:
    sample = Ewens(0.5).sample(5, OPEN, 100_000, rng=np.random.default_rng(1))
    partitions = list_partitions(5, OPEN)
    shares = np.bincount(partitions.find_places(sample), minlength=len(partitions.parts)) / len(sample)
    expected = partitions.probabilities(Ewens(0.5))
    # seven partitions, each within 5.3 standard deviations: false alarms below 1e-6 altogether
    assert np.all(np.abs(shares - expected) <= 5.3 * np.sqrt(expected * (1.0 - expected) / len(sample)))


@pytest.mark.parametrize(
    ("K", "epsilon", "delta", "theta", "overlap"),
    [
        (1, "1", "0.05", 1, 1),
        (2, "1", "0.02", 1, 1),
        (3, "1.5", "0.01", Fraction(1, 2), 1),
        (3, "2", "0", 1, 1),
        (2, "1", "0.02", 2, 2),
        (3, "1", "0.01", 1, 2),
    ],
)
def test_the_optimum_is_that_of_all_mechanisms_on_strings(
    K: int, epsilon: str, delta: str, theta: Fraction, overlap: int
) -> None:
    table = optimize_table(open_problem(K, epsilon, delta, overlap), prior=Ewens(float(theta)))
    expected = find_optimum(K, float(epsilon), float(delta), Fraction(theta), overlap)
    assert table.accuracy == pytest.approx(expected, abs=1e-8)
    assert table.optimality is not None
    assert not table.optimality.claimed
    assert table.optimality.bound == pytest.approx(expected, abs=1e-8)
    ratio = sum((Fraction(epsilon) ** n / math.factorial(n) for n in range(40)), Fraction(0))
    difference = find_largest_difference(table.plurality, ratio, overlap)
    assert difference <= Fraction(delta) + Fraction(1, 10**30)
    assert float(difference) == pytest.approx(table.certificate.worst_cost, abs=1e-15)


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize(
    ("K", "epsilon", "delta", "theta", "accuracy", "accuracy_by_two_counts"),
    [
        (9, "1.5", "1e-5", 1, 0.1764, None),
        (12, "2", "1e-6", 1, 0.5264, None),
        (13, "1.2", "1e-3", 0.5, 0.9111, 0.91072),
        (14, "1", "1e-5", 1, 0.2558, 0.25580),
        (14, "1", "1e-5", 0.3, 0.6290, None),
        (15, "0.7", "1e-2", 1, 0.83454, 0.82584),
        (16, "2", "1e-3", 1, 0.97317, 0.96057),
        (18, "2", "1e-5", 1, 0.93029, 0.92852),
    ],
)
def test_known_values(
    K: int, epsilon: str, delta: str, theta: float, accuracy: float, accuracy_by_two_counts: float | None
) -> None:
    problem = open_problem(K, epsilon, delta)
    table = optimize_table(problem, prior=Ewens(theta))
    assert table.accuracy == pytest.approx(accuracy, abs=5e-5)
    assert table.optimality is not None
    assert table.optimality.gap < 1e-7
    if accuracy_by_two_counts is not None:
        law, _ = best_open_law(problem, Ewens(theta), SolveOptions())
        assert certify(problem, law).law.accuracy(Ewens(theta)) == pytest.approx(accuracy_by_two_counts, abs=6e-6)


@pytest.mark.parametrize(("K", "overlap"), [(3, 1), (4, 1), (3, 2), (2, 3)])
def test_the_costs_of_a_law_are_the_largest_over_all_data_sets(K: int, overlap: int) -> None:
    law, pairs = draw_law(K, seed=K), list_partitions(K, OPEN).pairs(overlap)
    profile = profile_of_law(law, overlap)
    assert profile is not None
    for epsilon in (Fraction(0), Fraction(1, 3), Fraction(2)):
        expected = float(find_largest_difference(law, Fraction(math.exp(epsilon)), overlap))
        assert float(largest_excess(law, pairs, epsilon)) == pytest.approx(expected, abs=1e-14)
        assert profile.delta_at(float(epsilon)) == pytest.approx(expected, abs=1e-9)
    assert np.isinf(curve_of_law(law, overlap).values).all()  # a string that only one person says vanishes


def test_certify_makes_a_law_private_by_mixing_it_with_no_answer() -> None:
    table = certify(open_problem(4, "0.5", "1e-3"), draw_law(4, seed=9))
    assert table.certificate.scale < 1.0
    assert find_largest_difference(table.plurality, Fraction(math.exp(0.5)), 1) <= Fraction(1, 1000)
    assert random_law(4, OPEN).share_answered(Ewens()) == 0.0


def test_a_table_is_read_back_and_its_cost_enclosed_by_the_auditor() -> None:
    table = optimize_table(open_problem(5, "1", "1e-3"), prior=Ewens(0.5))
    loaded = Table.from_json(table.to_json())
    assert loaded.digest == table.digest
    assert str(loaded.problem.classes) == "open"
    enclosures = cost_of(loaded).deltas([Fraction(1)])
    assert enclosures is not None
    expected = float(find_largest_difference(table.plurality, Fraction(math.exp(1)), 1))
    assert float(enclosures[0].lower) <= expected + 1e-15
    assert float(enclosures[0].upper) == pytest.approx(expected, abs=1e-15)


def test_the_solver_answers_where_epsilon_is_no_constraint() -> None:
    table = optimize_table(open_problem(5, "700", "1e-5"))
    assert table.optimality is not None
    assert table.accuracy == pytest.approx(table.optimality.bound, abs=1e-6)
