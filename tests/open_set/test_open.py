"""The best open answer against definitions: named strings, no symmetry, fractions; and the known values."""

import math
from fractions import Fraction

import numpy as np
import pytest

from darrm import PrivacyParams, Problem, Voters, certify, optimize_table
from darrm.open_set.optimum import best_open_law
from darrm.plurality.partitions import list_partitions
from darrm.plurality.plurality_law import PluralityLaw, random_law
from darrm.plurality.proof import curve_of_law, largest_excess, profile_of_law
from darrm.priors import Dirichlet, Ewens
from darrm.problem import OPEN
from darrm.table.table import Table
from lp_models.options import SolveOptions
from tests import open_answers
from tests.open_answers import problem_of
from tests.verify.support import cost_of

PLAIN = PrivacyParams("inf")


def any_law(K: int, seed: int) -> PluralityLaw:
    """A law that is private by no means, and never says one of its strings here and there."""
    partitions, rng = list_partitions(K, OPEN), np.random.default_rng(seed)
    shares = rng.exponential(size=partitions.sizes.size) * (rng.random(partitions.sizes.size) < 0.7)
    shares[partitions.votes == 0] += 0.1
    totals = np.add.reduceat(shares, partitions.starts)[partitions.blocks]
    return PluralityLaw.from_probabilities(K, OPEN, shares / totals / partitions.sizes)


@pytest.mark.parametrize("theta", [Fraction(1), Fraction(1, 2), Fraction(7, 3)])
def test_ewens_law_is_that_of_voters_who_repeat_others(theta: Fraction) -> None:
    parts = [part[:-1] for part in list_partitions(5, OPEN).parts]
    expected = [float(open_answers.compute_ewens(part, theta)) for part in parts]
    assert sum(expected) == pytest.approx(1.0)
    assert np.exp(Ewens(float(theta)).log_of_partitions(parts)) == pytest.approx(expected)


@pytest.mark.statistical
def test_ewens_law_is_drawn() -> None:
    drawn = Ewens(0.5).sample(5, OPEN, 100_000, rng=np.random.default_rng(1))
    listed = list_partitions(5, OPEN)
    shares = np.bincount(listed.find_places(drawn), minlength=len(listed.parts)) / len(drawn)
    expected = listed.probabilities(Ewens(0.5))
    # seven partitions, each within 5.3 standard deviations but for 1e-6 altogether
    assert np.all(np.abs(shares - expected) <= 5.3 * np.sqrt(expected * (1.0 - expected) / len(drawn)))


@pytest.mark.parametrize(
    ("K", "epsilon", "delta", "theta", "reached"),
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
    K: int, epsilon: str, delta: str, theta: Fraction, reached: int
) -> None:
    table = optimize_table(problem_of(K, epsilon, delta, reached), prior=Ewens(float(theta)))
    expected = open_answers.find_optimum(K, float(epsilon), float(delta), Fraction(theta), reached)
    assert table.accuracy == pytest.approx(expected, abs=1e-8)
    assert table.optimality is not None
    assert not table.optimality.claimed
    assert table.optimality.bound == pytest.approx(expected, abs=1e-8)
    ratio = sum((Fraction(epsilon) ** n / math.factorial(n) for n in range(40)), Fraction(0))
    exact = open_answers.find_largest_difference(table.plurality, ratio, reached)
    assert exact <= Fraction(delta) + Fraction(1, 10**30)
    assert float(exact) == pytest.approx(table.certificate.worst_cost, abs=1e-15)


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize(
    ("K", "epsilon", "delta", "theta", "share", "in_two_counts"),
    [
        (9, "1.5", "1e-5", 1, 0.1764, None),
        (12, "2", "1e-6", 1, 0.5264, None),
        (13, "1.2", "1e-3", 0.5, 0.9111, 0.91072),
        (14, "1", "1e-5", 1, 0.2558, 0.25580),
        (14, "1", "1e-5", 0.3, 0.6290, None),
        pytest.param(*(15, "0.7", "1e-2", 1, 0.83454, 0.82584), marks=pytest.mark.slow),
        pytest.param(*(16, "2", "1e-3", 1, 0.97317, 0.96057), marks=pytest.mark.slow),
        pytest.param(*(18, "2", "1e-5", 1, 0.93029, 0.92852), marks=pytest.mark.slow),
    ],
)
def test_known_values(
    K: int, epsilon: str, delta: str, theta: float, share: float, in_two_counts: float | None
) -> None:
    problem = problem_of(K, epsilon, delta)
    table = optimize_table(problem, prior=Ewens(theta))
    assert table.accuracy is not None
    assert table.accuracy == pytest.approx(share, abs=5e-5)
    assert table.optimality is not None
    assert table.optimality.gap < 1e-7
    if in_two_counts is not None:  # the best law in own votes and the largest other
        law, _ = best_open_law(problem, Ewens(theta), SolveOptions())
        assert certify(problem, law).law.accuracy(Ewens(theta)) == pytest.approx(in_two_counts, abs=6e-6)
        assert law.accuracy(Ewens(theta)) <= table.accuracy + 1e-9


@pytest.mark.parametrize(("K", "reached"), [(3, 1), (4, 1), (3, 2), (2, 3)])
def test_costs_are_those_of_all_data_sets(K: int, reached: int) -> None:
    law, pairs = any_law(K, seed=K), list_partitions(K, OPEN).pairs(reached)
    profile = profile_of_law(law, reached)
    for epsilon in (Fraction(0), Fraction(1, 3), Fraction(2)):
        ratio = Fraction(math.exp(epsilon))
        expected = open_answers.find_largest_difference(law, ratio, reached)
        assert float(largest_excess(law, pairs, epsilon)) == pytest.approx(float(expected), abs=1e-14)
        assert profile is not None
        assert profile.delta_at(float(epsilon)) == pytest.approx(float(expected), abs=1e-9)
    assert np.isinf(curve_of_law(law, reached).values).all()  # a string that one person says alone vanishes


def test_mixing_with_no_answer_makes_a_law_private() -> None:
    problem = problem_of(4, "0.5", "1e-3")
    table = certify(problem, any_law(4, seed=9))
    assert table.certificate.scale < 1.0
    assert open_answers.find_largest_difference(table.plurality, Fraction(math.exp(0.5)), 1) <= Fraction(1, 1000)
    assert random_law(4, OPEN).share_answered(Ewens()) == 0.0


def test_a_table_is_proved_again_and_by_the_auditor() -> None:
    table = optimize_table(problem_of(5, "1", "1e-3"), prior=Ewens(0.5))
    again = Table.from_json(table.to_json())
    assert again.digest == table.digest
    assert again.problem.classes is not None
    assert str(again.problem.classes) == "open"
    enclosures = cost_of(again).deltas([Fraction(1)])
    assert enclosures is not None
    (enclosure,) = enclosures
    expected = open_answers.find_largest_difference(table.plurality, Fraction(math.exp(1)), 1)
    assert float(enclosure.lower) <= float(expected) + 1e-15
    assert float(enclosure.upper) == pytest.approx(float(expected), abs=1e-15)
    listed = list_partitions(5, OPEN)
    rights = [table.law.probabilities([part[:-1]])[0, 0] * part.count(part[0]) for part in listed.parts]
    assert rights @ listed.probabilities(Ewens(0.5)) == pytest.approx(table.accuracy, abs=1e-12)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: optimize_table(problem_of(20, "1", "1e-5", 2)), "K = 16 at overlap 2"),
        (lambda: optimize_table(problem_of(5, "1", "1e-5"), prior=Dirichlet()), "about open answers"),
        (lambda: Problem(Voters(5, PrivacyParams(1)), PrivacyParams(2), OPEN), "must be plain"),
        (lambda: Ewens(0), "theta must be a positive"),
        (
            lambda: optimize_table(Problem(Voters(3, PLAIN), PrivacyParams(1), 3), prior=Ewens()),
            "a belief about 3 classes",
        ),
    ],
)
def test_what_cannot_be_is_refused_in_a_line(make: object, message: str) -> None:
    assert callable(make)
    with pytest.raises(ValueError, match=message):
        make()


def test_where_answers_cost_next_to_nothing_the_solver_still_answers() -> None:
    table = optimize_table(problem_of(5, "700", "1e-5"))
    assert table.optimality is not None
    assert table.accuracy == pytest.approx(table.optimality.bound, abs=1e-6)
    assert str(table.problem.target.epsilon_text) == "700"
