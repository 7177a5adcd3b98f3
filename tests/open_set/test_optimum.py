"""Laws of a string's votes and the largest other count: against every histogram, and in whole numbers."""

import math
from collections.abc import Callable
from fractions import Fraction
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from darrm import PrivacyParams, Problem, Table, Voters, Votes, certify, optimize_table
from darrm.errors import CertificationError, TableError
from darrm.open_set.open_law import OpenLaw, largest_others, largest_total, places
from darrm.open_set.open_rows import OpenRows, bound_rounding, number_of_rows, prove
from darrm.open_set.optimum import best_open_law
from darrm.plurality.accuracy_bound import most_of_one_string, upper_bound
from darrm.plurality.partitions import list_partitions
from darrm.plurality.plurality_law import ONE
from darrm.priors import Dirichlet, Ewens
from darrm.problem import OPEN
from darrm.subsampling import Subsampling
from darrm.table.release import Release
from lp_models.options import SolveOptions
from tests.doors import validated
from tests.noisy_max.oracles import Counts
from tests.open_set.support import compute_ewens, list_neighbors, open_problem
from tests.verify.support import cost_of


def propose(K: int, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return np.where(places(K), rng.random((K + 1, K + 1)) * rng.integers(0, 2, (K + 1, K + 1)) / K, 0.0)


def list_probabilities(x: np.ndarray, counts: Counts) -> list[float]:
    """List the probability of each string, and of no answer last."""
    others = [max(counts[:place] + counts[place + 1 :], default=0) for place in range(len(counts))]
    strings = [x[votes, other] if votes else 0.0 for votes, other in zip(counts, others, strict=True)]
    return [*strings, 1.0 - sum(strings)]


def find_worst_difference(x: np.ndarray, ratio: float) -> float:
    """Compute the left side of (1) for all pairs of histograms on K + 1 strings."""
    K, worst = len(x) - 1, 0.0
    for part in list_partitions(K, OPEN).parts:
        counts = part[:-1] + (0,) * (K + 2 - len(part))
        for other in list_neighbors(counts, 1):
            pairs = zip(list_probabilities(x, counts), list_probabilities(x, other), strict=True)
            worst = max(worst, sum(max(0.0, p - ratio * q) for p, q in pairs))
    return worst


def stored_law(table: Table) -> OpenLaw:
    assert isinstance(table.law, OpenLaw)
    return table.law


@pytest.mark.parametrize(("K", "seed"), [(1, 0), (2, 1), (4, 2), (5, 3), (6, 4), (7, 5), (7, 6)])
def test_four_counts_and_the_dearest_rest_are_all_histograms(K: int, seed: int) -> None:
    x, ratio = propose(K, seed), math.exp(0.2 * seed)
    rows = OpenRows(x, ratio)
    excess, deficit = rows.worst()
    assert max(0.0, excess, deficit + 1.0 - ratio) == pytest.approx(find_worst_difference(x, ratio), abs=1e-12)
    for group in rows.groups():
        for move, value in group.worst_moves():
            row = sum(factor * x[place] for place, factor in rows.coefficients(move).items())
            assert row == pytest.approx(value, abs=1e-12)
    assert number_of_rows(K) == sum(group.largest.size for group in rows.groups())
    law = OpenLaw.from_probabilities(K, x)
    for epsilon in ("0.01", "0.3", "2"):
        worst = prove(open_problem(K, epsilon, "0.999999"), law).worst_cost
        assert worst == pytest.approx(find_worst_difference(law.each, math.exp(float(epsilon))), abs=1e-12)


def test_the_probability_of_no_answer_counts() -> None:
    # votes (1, 1) give both strings with 0.45, votes (2,) give the string: a move between them loses one string with
    # 0.45, and no answer with 0.1
    law = OpenLaw.from_probabilities(2, [[0.0, 0.0, 0.0], [0.0, 0.45, 0.0], [1.0, 0.0, 0.0]])
    margin = prove(open_problem(2, "1", "0.56"), law).worst_cost - 0.55
    assert 0.5 * bound_rounding(2, math.e) < margin < 1e-12
    with pytest.raises(CertificationError, match=r"differ by 0\.55"):
        prove(open_problem(2, "1", "0.54"), law)


def test_the_rounding_bound_covers_every_operation() -> None:
    for K, ratio in [(1, 1.0), (30, 3.0), (200, 60_000.0)]:
        # a product, a difference and a sum for each of K + 3 strings, relative to sums of at most 1 + c
        assert bound_rounding(K, ratio) >= (K + 3 + 2) * 2.0**-53 * (1.0 + ratio)


def test_the_accuracy_bound_counts_ties() -> None:
    problem = open_problem(2, "1", "0.01")
    one, two = (float(most.mid()) for most in most_of_one_string(problem)[1:])
    # with probability 1/2 both voters agree; otherwise two strings have the most votes
    assert upper_bound(problem, Ewens(), ()) == pytest.approx(2 * 0.5 * one + 0.5 * two, rel=1e-12)


def test_the_largest_total_is_that_of_all_histograms() -> None:
    x = propose(8, 3)
    totals = [1.0 - list_probabilities(x, part[:-1])[-1] for part in list_partitions(8, OPEN).parts]
    assert largest_total(x, -math.inf) == pytest.approx(max(totals), abs=1e-12)
    assert largest_others(np.array([[2, 5, 5], [4, 1, 0]])).tolist() == [[5, 5, 5], [1, 4, 4]]


@pytest.mark.parametrize("theta", [Fraction(2, 5), Fraction(1), Fraction(3)])
def test_ewens_partitions_and_strings_are_those_of_a_restaurant(theta: Fraction) -> None:
    partitions, prior, strings = list_partitions(7, OPEN), Ewens(float(theta)), np.zeros((8, 8))
    expected = [float(compute_ewens(part[:-1], theta)) for part in partitions.parts]
    assert partitions.probabilities(prior) == pytest.approx(expected)
    for part, probability in zip(partitions.parts, expected, strict=True):
        for place, votes in enumerate(part[:-1]):
            strings[votes, max(part[:place] + part[place + 1 :])] += probability
    assert prior.strings(7) == pytest.approx(strings)


@pytest.mark.parametrize(("theta", "strings"), [(1e300, 30.0), (1e12, 30.0), (1e-300, 1.0)])
def test_ewens_strings_are_exact_at_the_ends_of_theta(theta: float, strings: float) -> None:
    expected = Ewens(theta).strings(30)
    assert np.arange(31) @ expected.sum(axis=1) == pytest.approx(30.0, rel=1e-10)
    assert expected.sum() == pytest.approx(strings, rel=1e-8)  # all voters differ, or all agree


@pytest.mark.slow
def test_where_no_two_strings_can_be_likely_nothing_is_better() -> None:
    problem = open_problem(26, "0.3", "1e-5")
    table = optimize_table(problem, prior=Ewens())
    assert table.optimality is not None
    assert not table.optimality.claimed
    assert table.optimality.gap < 1e-7
    most = np.array([float(value.mid()) for value in most_of_one_string(problem)])
    ratio = math.exp(0.3)
    assert all(after == pytest.approx(ratio * before + 1e-5) for before, after in pairwise(most))  # the first branch
    assert table.law.probabilities([[20, 6]])[0, 0] == pytest.approx(most[20], abs=1e-8)
    strings = np.tril(Ewens().strings(26)).sum(axis=1)  # no other string has more votes
    assert strings @ most == pytest.approx(table.optimality.value, rel=1e-7)


@pytest.mark.slow
def test_resampling_voters_have_the_optimum_conditional_on_inclusion() -> None:
    voters = Voters(26, PrivacyParams("inf"), overlap=1, sampled=Subsampling(Fraction(1, 10)))
    problem = Problem(voters, PrivacyParams("0.05", "1e-6"), OPEN)
    table, conditional = optimize_table(problem), optimize_table(problem.conditional_on_inclusion)
    assert table.problem == problem
    assert table.accuracy == pytest.approx(conditional.accuracy, abs=1e-9)


def test_a_delta_below_all_rounding_leaves_no_answers() -> None:
    table = certify(open_problem(6, "1", "1e-300"), OpenLaw.from_probabilities(6, propose(6, 1)))
    assert table.certificate.worst_cost == table.certificate.scale == 0.0
    assert table.law.probabilities([[6]]).tolist() == [[0.0, 1.0]]


def test_a_large_epsilon_is_replaced_by_a_provable_smaller_one() -> None:
    problem = open_problem(7, "25", "1e-5")
    law, _ = best_open_law(problem, Ewens(), SolveOptions())
    assert law.accuracy(Ewens()) > 0.9
    assert find_worst_difference(stored_law(certify(problem, law)).each, 2.0**16) <= 1e-5


def test_no_string_exceeds_the_bound_on_one_string() -> None:
    for K, epsilon, delta in [(6, "1", "0.01"), (9, "2", "1e-3"), (12, "1", "1e-2")]:
        problem = open_problem(K, epsilon, delta)
        law = optimize_table(problem).plurality
        most = np.array([float(value.mid()) for value in most_of_one_string(problem)])
        votes = law.partitions.votes
        assert np.all((law.each <= most[votes] + 1e-12)[votes > 0])


def test_a_table_is_saved_loaded_and_audited(tmp_path: Path) -> None:
    problem = open_problem(8, "1", "1e-3")
    law, result = best_open_law(problem, Ewens(0.5), SolveOptions())
    table = certify(problem, law)
    assert result.bound >= law.accuracy(Ewens(0.5))
    table.save(tmp_path / "table.json")
    document = validated(tmp_path / "table.json", "open_table")
    loaded = Table.load(tmp_path / "table.json")
    assert loaded.digest == table.digest
    enclosures = cost_of(loaded).deltas([Fraction(1)])
    assert enclosures is not None
    cost = float(enclosures[0].upper)
    assert cost == pytest.approx(find_worst_difference(stored_law(loaded).each, math.e), abs=1e-14)
    assert table.certificate.worst_cost - 1e-12 <= cost <= table.certificate.worst_cost
    document["weights"][3][1] += ONE // 4
    with pytest.raises(TableError, match="checksum"):
        Table.from_json(document)


def test_every_string_has_the_numbers_of_its_weight() -> None:
    table = certify(open_problem(5, "9", "0.9"), OpenLaw.from_probabilities(5, propose(5, 2) + 0.01 * places(5)))
    weights = stored_law(table).weights
    first, other = int(weights[1, 2]), int(weights[2, 2])
    assert min(first, other) > 0
    sampler, line = vars(Release(table))["_sampler"], np.array([[1, 2, 2, 0]])  # the last place is no answer
    ends = np.cumsum([0, first, other, other, ONE - first - 2 * other]).tolist()
    for place, (start, end) in enumerate(pairwise(ends)):
        for number in (start, end - 1):
            drawn = sampler._draw_block(line, lambda limits, n=number: np.minimum(limits - 1, n))
            assert drawn.tolist() == [place]


@pytest.mark.statistical
def test_released_strings_follow_the_law() -> None:
    law, _ = best_open_law(open_problem(5, "3", "0.05"), Ewens(), SolveOptions())
    table = certify(open_problem(5, "3", "0.05"), law)
    labels = Release(table).release(Votes.from_answers([list("aaabb")] * 20_000), rng=np.random.default_rng(7))
    expected = table.law.probabilities([[3, 2]])[0]
    shares = np.array([np.mean([label == string for label in labels]) for string in ("a", "b", None)])
    # three outcomes, each within 5.1 standard deviations: false alarms below 1e-6 altogether
    assert np.all(np.abs(shares - expected) <= 5.1 * np.sqrt(expected * (1.0 - expected) / 20_000) + 1e-12)


class PriorWithoutStrings(Ewens):
    def strings(self, K: int) -> np.ndarray:
        return np.full((K + 1, K + 1), np.nan)


LISTED = Problem(Voters(4, PrivacyParams("inf"), overlap=1), PrivacyParams(1, "0.1"), 3)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: optimize_table(open_problem(81, "1", "1e-5")), "at most 80"),
        (lambda: optimize_table(open_problem(30, "1", "1e-5", overlap=2)), "overlap"),
        (lambda: optimize_table(open_problem(20, "1", "1e-5", overlap=2)), "K = 16 at overlap 2"),
        (lambda: optimize_table(open_problem(30, "1", "0")), "at least 1e-10"),
        (lambda: optimize_table(open_problem(5, "1", "1e-5"), prior=Dirichlet()), "about open answers"),
        (lambda: optimize_table(LISTED, prior=Ewens()), "a belief about 3 classes"),
        (lambda: Problem(Voters(5, PrivacyParams(1)), PrivacyParams(2), OPEN), "must be plain"),
        (lambda: Ewens(0), "theta must be a positive"),
        (lambda: OpenLaw.from_probabilities(4, propose(4, 2)).accuracy(PriorWithoutStrings()), "of 4 votes"),
        (lambda: certify(LISTED, OpenLaw.from_probabilities(4, propose(4, 2))), "4 votes, 3 classes"),
        (lambda: OpenLaw(2, np.where(places(2), ONE, 0)), "at most 9007199254740992 together"),
    ],
)
def test_refusals(call: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()
