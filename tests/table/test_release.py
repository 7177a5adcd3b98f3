"""The law of a release, exactly: from the loaded table to the privacy claim over all corners; and its cost."""

import itertools
import math
from collections import Counter
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from darrm.account.accountant import PrivacyAccountant
from darrm.errors import BudgetExceededError
from darrm.ledger.ledger import PrivacyLedger
from darrm.loss.privacy_cost import PrivacyCost
from darrm.loss.renyi import DEFAULT_ORDERS
from darrm.majority import baselines
from darrm.majority.costs import renyi_divergences
from darrm.majority.noise_function import NoiseFunction
from darrm.numerics.exact_sampling import UniformBelow
from darrm.optimize.optimizer import optimize_table
from darrm.optimize.plurality import optimize_plurality
from darrm.plurality.plurality_law import ONE, random_law
from darrm.privacy import PrivacyParams
from darrm.problem import OPEN, Problem, Voters
from darrm.table.release import Release, describe_cost
from darrm.table.table import Table, certify
from darrm.votes import Votes
from tests.oracle import exact_divergence


def create_release(half: list[float]) -> Release:
    problem = Problem.from_allowance(Voters(5, PrivacyParams("0.2", "1e-5")), 2)
    return Release(certify(problem, NoiseFunction(5, half)))


def repeat_byte(byte: int) -> Any:
    """Create a generator whose bytes are all the same."""
    return SimpleNamespace(bytes=lambda size: bytes([byte]) * size)


def find_law(release: Release, K: int) -> list[Fraction]:
    """Find Pr[output 1] for each number of ones, from the released labels of every pattern of votes.

    With the coin's exact threshold t = p·2^(digits) the label is a function of U < t only (tests/numerics lists all
    coins). U just below 1 never lies (p ≤ 1/2), and U = 0 always does if p > 0.
    """
    votes = np.array(list(itertools.product((0, 1), repeat=K)))
    low, high = (release.release(votes, rng=repeat_byte(byte)) for byte in (0, 255))
    lies = vars(release)["_sampler"].error_coins.probabilities
    for row, at_low, at_high in zip(votes, low, high, strict=True):
        majority = int(2 * row.sum() > K)
        assert at_high == majority
        assert at_low == (1 - majority if lies[row.sum()] > 0 else majority)
    return [1 - lies[ones] if 2 * ones > K else lies[ones] for ones in range(K + 1)]


@pytest.mark.parametrize("K", [1, 2, 3, 4, 5, *(pytest.param(K, marks=pytest.mark.slow) for K in (6, 7))])
def test_a_release_from_a_loaded_table_is_private_over_all_corners(K: int, tmp_path: Path) -> None:
    problem = Problem.from_allowance(Voters(K, PrivacyParams("0.3", "1e-3")), "1" if K == 1 else "1.7")
    optimize_table(problem).save(tmp_path / "table.json")
    table = Table.load(tmp_path / "table.json")
    law = find_law(Release(table), K)
    assert [Release(table).probability_of_one(ones) for ones in range(K + 1)] == law
    half = [float(2 * p - 1) for p in law[problem.voters.first_majority :]]
    worst, delta = exact_divergence(problem, half), problem.target.exact_delta
    assert worst <= delta
    # the table uses its budget, unless it needs no noise at all: a law that is too noisy passes the line above
    assert table.gamma.half.min() == 1.0 or worst >= delta * Fraction(999_999, 1_000_000)


@pytest.mark.statistical
@pytest.mark.parametrize("ones", range(6))
def test_labels_have_the_tables_frequencies(ones: int) -> None:
    release, n = create_release([0.2, 0.5, 0.9]), 40_000
    votes = np.tile(np.arange(5) < ones, (n, 1))
    p = float(release.probability_of_one(ones))
    # 6 standard deviations with a seed are a false alarm of 2e-9; 12 with the operating system's bytes of 4e-33
    for rng, deviations in ((np.random.default_rng(ones), 6.0), (None, 12.0)):
        frequency = release.release(votes, rng=rng).mean()
        assert abs(frequency - p) <= deviations * math.sqrt(p * (1.0 - p) / n) + 1e-12


def test_votes_may_be_labels_of_any_type_or_counts() -> None:
    release = create_release([0.2, 0.5, 0.9])
    votes = np.array([[1, 1, 1, 1, 1], [0, 0, 0, 0, 0], [1, 0, 1, 0, 1]])
    counts = Votes.from_counts(np.stack([5 - votes.sum(axis=1), votes.sum(axis=1)], axis=1))
    expected = release.release(Votes.from_labels(votes), rng=np.random.default_rng(3)).tolist()
    same_votes: list[Any] = [counts, *(votes.astype(dtype) for dtype in (bool, np.uint8, np.float64))]
    for same in same_votes:
        assert release.release(same, rng=np.random.default_rng(3)).tolist() == expected
    assert release.release(np.zeros((0, 5))).shape == (0,)


def test_a_release_needs_a_table_and_a_possible_number_of_ones() -> None:
    with pytest.raises(ValueError, match="table must be a Table"):
        Release(NoiseFunction(3, [0.1, 0.2]))  # type: ignore[arg-type]
    for ones in (-1, 6):
        with pytest.raises(ValueError, match="ones"):
            create_release([0.1, 0.3, 0.6]).probability_of_one(ones)


def test_the_exact_profile_makes_many_queries_cheaper() -> None:
    problem = Problem.from_allowance(Voters(11, PrivacyParams("0.1", "1e-5")), 3)
    table = optimize_table(problem)
    exact, plain = (
        PrivacyAccountant(costs=[describe_cost(table, 100, exact=exact)]).spent(0.01).epsilon for exact in (True, False)
    )
    assert exact < 0.8 * plain
    profile = table.profile
    assert profile is not None
    single = PrivacyAccountant(costs=[describe_cost(table, exact=True)])
    for epsilon in (0.1, 0.2):
        assert single.spent(profile.delta_at(epsilon)).epsilon == pytest.approx(epsilon, abs=0.02)
    # at the target's ε the profile is at most the certified δ
    assert profile.delta_at(problem.target.epsilon) <= problem.target.delta + 2e-12


def test_the_cost_of_a_monotone_table_has_its_renyi_curve() -> None:
    release = create_release([0.1, 0.3, 0.6])
    cost = release.privacy_cost(7)
    assert cost.renyi is not None
    exact = renyi_divergences(release.voters, release.table.gamma, DEFAULT_ORDERS)
    assert np.all((exact <= cost.renyi.values) & (cost.renyi.values <= exact * (1 + 2e-9)))
    names = {bound.name for bound in PrivacyAccountant(costs=[cost]).spent(1e-3).bounds}
    assert names >= {"simple", "optimal", "profile", "renyi"}
    assert describe_cost(release.table, exact=False).renyi is None
    assert create_release([0.3, 0.1, 0.6]).privacy_cost().renyi is None
    constant = baselines.randomized_response(release.table.problem).half.tolist()
    assert create_release(constant).privacy_cost().renyi is not None


def test_many_voters_with_a_small_overlap_have_profile_and_curve() -> None:
    problem = Problem(Voters(2001, PrivacyParams("inf"), overlap=1), PrivacyParams(1, "1e-6"))
    rising = np.minimum(np.arange(1, 1002) / 400.0, 0.999)
    cost = Release(certify(problem, NoiseFunction(2001, rising))).privacy_cost()
    assert cost.renyi is not None
    assert cost.profile is not None


def test_a_ledger_recognizes_the_cost_of_the_same_table(tmp_path: Path) -> None:
    ledger = PrivacyLedger.create(tmp_path / "l.sqlite", PrivacyParams(2, "1e-3"))
    ledger.debit(create_release([0.1, 0.3, 0.6]).privacy_cost(3))
    reopened = PrivacyLedger(tmp_path / "l.sqlite")
    reopened.debit(create_release([0.1, 0.3, 0.6]).privacy_cost(4))  # of one kind, or it would be refused
    assert reopened.spent.queries == 7
    with pytest.raises(BudgetExceededError):
        reopened.debit(create_release([0.1, 0.3, 0.6]).privacy_cost(100_000))


@pytest.fixture(scope="module")
def three_classes() -> Table:
    return optimize_plurality(Problem(Voters(4, PrivacyParams("inf"), overlap=1), PrivacyParams("0.5", "0.01"), 3))


def replay(numbers: list[int]) -> UniformBelow:
    """Create a source that answers each request with the next number for every query."""
    remaining = iter(numbers)

    def below(limits: NDArray[Any]) -> NDArray[Any]:
        number = next(remaining)
        assert np.all(number < limits)
        return np.full(limits.shape, number, dtype=np.int64)

    return below


def check_weights(table: Table, counts: list[int], groups: list[tuple[int, list[int]]]) -> None:
    """Check that each group of columns with equal counts is drawn for as many numbers as its weight.

    ``groups`` has a weight and the columns of each group, in the order of the draw.
    """
    sampler, total = vars(Release(table))["_sampler"], 0
    for weight, columns in groups:
        for rank, column in enumerate(columns if weight else []):
            for number in (total, total + weight - 1):  # the first and the last number of the group
                assert sampler._draw_block(np.array([counts]), replay([number, rank])).tolist() == [column]
        total += weight
    assert total == ONE


@pytest.mark.parametrize("counts", [(4, 0, 0), (1, 3, 0), (1, 1, 2), (2, 0, 2)])
def test_a_class_is_drawn_for_as_many_numbers_as_its_weight(three_classes: Table, counts: tuple[int, ...]) -> None:
    law = three_classes.plurality
    place = law.partitions.places[tuple(sorted(counts, reverse=True))]
    groups = [
        (int(law.weights[law.partitions.groups[place, votes]]), [c for c in range(3) if counts[c] == votes])
        for votes in sorted(set(counts), reverse=True)
    ]
    check_weights(three_classes, list(counts), groups)


@pytest.mark.parametrize("answers", ["aaaa", "aabb", "abbb", "abcd", "aabc"])
def test_an_open_set_answer_is_drawn_for_as_many_numbers_as_its_weight(answers: str) -> None:
    table = optimize_plurality(Problem(Voters(4, PrivacyParams("inf"), overlap=1), PrivacyParams("2", "0.05"), OPEN))
    counts, law = Counter(answers), table.plurality
    place = law.partitions.places[*sorted(counts.values(), reverse=True), 0]
    groups = [
        (
            int(law.weights[law.partitions.groups[place, votes]]),
            [column for column, answer in enumerate("abcd") if counts[answer] == votes] if votes else [4],
        )
        for votes in sorted({*counts.values(), 0}, reverse=True)  # the last column is no answer
    ]
    check_weights(table, [counts[answer] for answer in "abcde"], groups)


@pytest.mark.statistical
def test_labels_of_three_classes_have_the_tables_frequencies(three_classes: Table) -> None:
    counts, draws = np.array([[2, 1, 1], [0, 2, 2]]), 100_000
    votes = Votes.from_counts(np.repeat(counts, draws, axis=0))
    labels = Release(three_classes).release(votes, rng=np.random.default_rng(5)).reshape(2, draws)
    for row, expected in zip(labels, three_classes.plurality.probabilities(counts), strict=True):
        # six classes, each within 5.3 standard deviations: a false alarm of 1e-6 altogether
        tolerance = 5.3 * np.sqrt(expected * (1 - expected) / draws) + 1e-12
        assert np.all(np.abs(np.bincount(row, minlength=3) / draws - expected) <= tolerance)


def test_more_queries_than_a_block_are_answered_in_order(three_classes: Table) -> None:
    counts = np.tile([[4, 0, 0], [0, 4, 0]], (40_000, 1))
    labels = Release(three_classes).release(Votes.from_counts(counts))
    expected = float(three_classes.plurality.probabilities([[4, 0, 0]])[0, 0])
    assert np.mean(labels == counts.argmax(axis=1)) == pytest.approx(expected, abs=0.01)


def test_the_cost_of_three_classes_is_less_than_its_guarantee(three_classes: Table) -> None:
    cost = Release(three_classes).privacy_cost(30)
    assert (cost.table, cost.reached) == (three_classes.digest, 1)
    plain = PrivacyCost("plain", guarantee=cost.guarantee, count=30)
    assert PrivacyAccountant(costs=[cost]).spent(0.35).epsilon < PrivacyAccountant(costs=[plain]).spent(0.35).epsilon


def test_partitions_of_many_classes_are_located() -> None:
    law = random_law(22, 22)  # 23^22 is beyond a key of 64 bits
    counts = np.zeros((2, 22), dtype=np.int64)
    counts[0, 5], counts[1, 3], counts[1, 9] = 22, 1, 21
    assert [law.partitions.parts[place][:3] for place in law.partitions.find_places(counts)] == [(22, 0, 0), (21, 1, 0)]
    small = random_law(4, 3)
    histograms = np.array([n for n in itertools.product(range(5), repeat=3) if sum(n) == 4])
    parts = [small.partitions.parts[place] for place in small.partitions.find_places(histograms)]
    assert parts == [tuple(sorted(row, reverse=True)) for row in histograms.tolist()]


def test_open_set_answers_are_strings_of_the_voters_or_none() -> None:
    table = optimize_plurality(Problem(Voters(6, PrivacyParams("inf"), overlap=1), PrivacyParams("3", "0.05"), OPEN))
    rows = [["yes"] * 6, ["None"] * 5 + [""], list("abcdef")]
    votes = Votes.from_answers(rows * 200, missing="blank")
    labels = Release(table).release(votes, rng=np.random.default_rng(3)).reshape(200, 3)
    assert "yes" in set(labels[:, 0]) <= {"yes", None}
    assert "None" in set(labels[:, 1]) <= {"None", None}  # the blank is a string of no voter
    assert set(labels[:, 2]) <= {*"abcdef", None}
