"""The law of what is released, exactly: from the loaded table to the privacy claim over all corners."""

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


def problem_of(K: int, m: str = "2", delta: str = "1e-3") -> Problem:
    return Problem.from_allowance(Voters(K, PrivacyParams("0.3", delta)), m)


def patterns(K: int) -> np.ndarray:
    return np.array(list(itertools.product((0, 1), repeat=K)))


def law_by_listing(aggregator: Release, K: int) -> list[Fraction]:
    """Pr[output 1] of every vote pattern, from the released labels themselves.

    With the coin's exact threshold t = p·2^(digits) the label is a function of U < t only (proved by listing in the
    tests of the coins); releasing at U = t − 1, t and the two ends finds where the label changes.
    """
    votes = patterns(K)
    low = aggregator.release(votes, rng=fed(0))
    high = aggregator.release(votes, rng=fed(255))
    laws = []
    for row, at_low, at_high in zip(votes, low, high, strict=True):
        lie = vars(aggregator)["_sampler"].error_coins.probabilities[row.sum()]
        majority = int(2 * row.sum() > K)
        # U just below 1 never lies (p ≤ 1/2), U = 0 always does if p > 0
        assert at_high == majority
        assert at_low == (1 - majority if lie > 0 else majority)
        laws.append(1 - lie if majority else lie)
    return laws


def fed(byte: int) -> Any:
    """What stands where a generator would: every byte it gives is the same."""
    return SimpleNamespace(bytes=lambda size: bytes([byte]) * size)


@pytest.mark.parametrize("K", [1, 2, 3, 4, 5, *(pytest.param(K, marks=pytest.mark.slow) for K in (6, 7))])
def test_the_loaded_table_is_private_over_all_corners(K: int, tmp_path: Path) -> None:
    problem = problem_of(K, m="1" if K == 1 else "1.7")
    optimize_table(problem).save(tmp_path / "table.json")
    table = Table.load(tmp_path / "table.json")
    aggregator = Release(table)
    law = law_by_listing(aggregator, K)
    by_count = {int(row.sum()): one for row, one in zip(patterns(K), law, strict=True)}
    # voters are exchangeable, so multisets of corners are enough
    assert law == [by_count[int(row.sum())] for row in patterns(K)]
    half = [float(2 * by_count[ones] - 1) for ones in range(problem.voters.first_majority, K + 1)]
    worst, claimed = exact_divergence(problem, half), problem.target.exact_delta
    assert worst <= claimed
    # and the table uses its budget, unless it needs no noise at all: a law that is too noisy passes the line above
    assert table.gamma.half.min() == 1.0 or worst >= claimed * Fraction(999_999, 1_000_000)
    assert [aggregator.probability_of_one(int(row.sum())) for row in patterns(K)] == law


PROBLEM = problem_of(5, "2")
RELEASE = Release(certify(PROBLEM, NoiseFunction(5, [0.2, 0.5, 0.9])))


@pytest.mark.statistical
def test_released_frequencies() -> None:
    n = 40_000
    for ones in range(6):
        votes = np.tile(np.arange(5) < ones, (n, 1))
        p = float(RELEASE.probability_of_one(ones))
        # seeded: 6 standard deviations are a false alarm of 2e-9 each
        frequency = RELEASE.release(votes, rng=np.random.default_rng(ones)).mean()
        assert abs(frequency - p) <= 6.0 * math.sqrt(p * (1.0 - p) / n) + 1e-12, ones
        # the operating system's bytes: 12 standard deviations, 4e-33
        frequency = RELEASE.release(votes).mean()
        assert abs(frequency - p) <= 12.0 * math.sqrt(p * (1.0 - p) / n) + 1e-12, ones


def test_a_matrix_of_zeros_and_ones_is_read_as_labels() -> None:
    votes = np.array([[1, 1, 1, 1, 1], [0, 0, 0, 0, 0], [1, 0, 1, 0, 1]])
    expected = RELEASE.release(Votes.from_labels(votes), rng=np.random.default_rng(3)).tolist()
    for dtype in (bool, np.uint8, np.float64):
        assert RELEASE.release(votes.astype(dtype), rng=np.random.default_rng(3)).tolist() == expected
    counts = Votes.from_counts(np.stack([5 - votes.sum(axis=1), votes.sum(axis=1)], axis=1))
    assert RELEASE.release(counts, rng=np.random.default_rng(3)).tolist() == expected
    assert RELEASE.release(np.zeros((0, 5))).shape == (0,)


def test_other_bad_arguments() -> None:
    with pytest.raises(ValueError, match="table must be a Table"):
        Release(NoiseFunction(3, [0.1, 0.2]))  # type: ignore[arg-type]
    for ones in (-1, 6):
        with pytest.raises(ValueError, match="ones"):
            RELEASE.probability_of_one(ones)


def test_the_exact_profile_tightens_the_account() -> None:
    problem = Problem.from_allowance(Voters(11, PrivacyParams("0.1", "1e-5")), 3)
    aggregator = Release(optimize_table(problem))
    plain = PrivacyAccountant(costs=[describe_cost(aggregator.table, 100, exact=False)]).spent(0.01)
    exact = PrivacyAccountant(costs=[describe_cost(aggregator.table, 100, exact=True)]).spent(0.01)
    assert exact.epsilon < 0.8 * plain.epsilon
    assert aggregator.privacy_cost(100).profile is not None
    one = PrivacyAccountant(costs=[describe_cost(aggregator.table, exact=True)])
    profile = aggregator.table.profile
    assert profile is not None
    for epsilon in (0.1, 0.2):
        delta = profile.delta_at(epsilon)
        assert one.spent(delta).epsilon == pytest.approx(epsilon, abs=0.02)
    # at the target's ε the profile is at most the certified δ
    assert profile.delta_at(problem.target.epsilon) <= problem.target.delta + 2e-12


# the Rényi curve in the charge: where it is, what it is, and that a ledger keeps it
OTHER = Problem.from_allowance(Voters(5, PrivacyParams("0.2", "1e-5")), 2)


def aggregator(half: list[float]) -> Release:
    return Release(certify(OTHER, NoiseFunction(5, half)))


def test_a_monotone_table_is_charged_with_its_curve() -> None:
    made = aggregator([0.1, 0.3, 0.6])
    cost = made.privacy_cost(7)
    assert cost.renyi is not None
    exact = renyi_divergences(OTHER.voters, made.table.gamma, DEFAULT_ORDERS)
    assert np.all(cost.renyi.values >= exact)
    assert cost.renyi.values == pytest.approx(exact, rel=2e-9)
    names = {bound.name for bound in PrivacyAccountant(costs=[cost]).spent(1e-3).bounds}
    assert names >= {"simple", "optimal", "profile", "renyi"}


def test_where_there_is_no_curve() -> None:
    assert aggregator([0.3, 0.1, 0.6]).privacy_cost().renyi is None
    assert describe_cost(aggregator([0.1, 0.3, 0.6]).table, exact=False).renyi is None
    constant = Release(certify(OTHER, baselines.randomized_response(OTHER))).privacy_cost().renyi
    assert constant is not None


def test_many_voters_of_whom_few_are_reached_are_described_too() -> None:
    plain = Problem(Voters(2001, PrivacyParams("inf"), overlap=1), PrivacyParams(1, "1e-6"))
    rising = np.minimum(np.arange(1, 1002) / 400.0, 0.999)
    cost = Release(certify(plain, NoiseFunction(2001, rising))).privacy_cost()
    assert cost.renyi is not None
    assert cost.profile is not None


def test_a_ledger_recognises_the_charge_again(tmp_path: Path) -> None:
    made = aggregator([0.1, 0.3, 0.6])
    ledger = PrivacyLedger.create(tmp_path / "l.sqlite", PrivacyParams(2, "1e-3"))
    ledger.debit(made.privacy_cost(3))
    again = PrivacyLedger(tmp_path / "l.sqlite")
    again.debit(aggregator([0.1, 0.3, 0.6]).privacy_cost(4))  # of one kind, or it would be refused
    assert again.spent.queries == 7
    with pytest.raises(BudgetExceededError):
        again.debit(made.privacy_cost(100_000))


THREE_CLASSES = Problem(Voters(4, PrivacyParams("inf"), overlap=1), PrivacyParams("0.5", "0.01"), 3)


@pytest.fixture(scope="module")
def table() -> Table:
    return optimize_plurality(THREE_CLASSES)


def scripted(numbers: list[int]) -> UniformBelow:
    """A source that answers each request with the next number for every query."""
    remaining = iter(numbers)

    def below(limits: NDArray[Any]) -> NDArray[Any]:
        number = next(remaining)
        assert np.all(number < limits)
        return np.full(limits.shape, number, dtype=np.int64)

    return below


@pytest.mark.parametrize("counts", [(4, 0, 0), (1, 3, 0), (1, 1, 2), (2, 0, 2)])
def test_every_class_is_drawn_for_as_many_numbers_as_its_weight(table: Table, counts: tuple[int, ...]) -> None:
    aggregator, law = Release(table), table.plurality
    place = law.partitions.places[tuple(sorted(counts, reverse=True))]
    total = 0
    for votes in dict.fromkeys(sorted(counts, reverse=True)):
        weight = int(law.weights[law.partitions.groups[place, votes]])
        members = [c for c in range(3) if counts[c] == votes]
        if weight:  # the first and the last number of the group, for each of its classes
            for number in (total, total + weight - 1):
                for rank, expected in enumerate(members):
                    drawn = vars(aggregator)["_sampler"]._draw_block(np.array([counts]), scripted([number, rank]))
                    assert drawn.tolist() == [expected]
        total += weight
    assert total == ONE


@pytest.mark.statistical
def test_frequencies_are_the_probabilities(table: Table) -> None:
    counts = np.array([[2, 1, 1], [0, 2, 2]])
    draws = 100_000
    labels = Release(table).release(Votes.from_counts(np.repeat(counts, draws, axis=0)), rng=np.random.default_rng(5))
    for row, expected in zip(labels.reshape(2, draws), table.plurality.probabilities(counts), strict=True):
        found = np.bincount(row, minlength=3) / draws
        # six classes, each within 5.3 standard deviations but for 1e-6 altogether
        assert np.all(np.abs(found - expected) <= 5.3 * np.sqrt(expected * (1 - expected) / draws) + 1e-12)


def test_the_exact_descriptions_make_many_queries_cheaper(table: Table) -> None:
    cost = Release(table).privacy_cost(30)
    assert cost.table == table.digest
    assert cost.reached == 1
    bare = PrivacyAccountant(costs=[PrivacyCost("bare", guarantee=cost.guarantee, count=30)])
    assert PrivacyAccountant(costs=[cost]).spent(0.35).epsilon < bare.spent(0.35).epsilon


def test_more_queries_than_a_block(table: Table) -> None:
    counts = np.tile([[4, 0, 0], [0, 4, 0]], (40_000, 1))
    labels = Release(table).release(Votes.from_counts(counts))
    right = np.mean(labels == counts.argmax(axis=1))
    assert right == pytest.approx(float(table.plurality.probabilities([[4, 0, 0]])[0, 0]), abs=0.01)


def test_many_classes_are_found_without_keys() -> None:
    law = random_law(22, 22)  # 23^22 is beyond a key of 64 bits
    counts = np.zeros((2, 22), dtype=np.int64)
    counts[0, 5], counts[1, 3], counts[1, 9] = 22, 1, 21
    assert [law.partitions.parts[place][:3] for place in law.partitions.find_places(counts)] == [(22, 0, 0), (21, 1, 0)]
    small = random_law(4, 3)
    histograms = np.array([n for n in itertools.product(range(5), repeat=3) if sum(n) == 4])
    found = [small.partitions.parts[place] for place in small.partitions.find_places(histograms)]
    assert found == [tuple(sorted(row, reverse=True)) for row in histograms.tolist()]
    with pytest.raises(ValueError, match="4 votes for 3 classes"):
        small.partitions.find_places(np.array([[3, 0, 0]]))


@pytest.mark.parametrize("answers", ["aaaa", "aabb", "abbb", "abcd", "aabc"])
def test_open_answers_are_drawn_for_as_many_numbers_as_their_weight(answers: str) -> None:
    table = optimize_plurality(Problem(Voters(4, PrivacyParams("inf"), overlap=1), PrivacyParams("2", "0.05"), OPEN))
    counts, sampler = Counter(answers), vars(Release(table))["_sampler"]
    line = np.array([[counts.get(string, 0) for string in "abcde"]])  # the last place is no answer's
    law, groups = table.plurality, table.plurality.partitions.groups
    place, total = law.partitions.places[*sorted(counts.values(), reverse=True), 0], 0
    for votes in sorted({*counts.values(), 0}, reverse=True):
        weight = int(law.weights[groups[place, votes]])
        members = ["abcd".index(string) for string in "abcd" if counts[string] == votes] if votes else [4]
        for rank, expected in enumerate(members if weight else []):
            for number in (total, total + weight - 1):
                assert sampler._draw_block(line, scripted([number, rank])).tolist() == [expected]
        total += weight
    assert total == ONE


def test_open_answers_leave_as_strings_that_were_said() -> None:
    table = optimize_plurality(Problem(Voters(6, PrivacyParams("inf"), overlap=1), PrivacyParams("3", "0.05"), OPEN))
    rows = [["yes"] * 6, ["None"] * 5 + [""], list("abcdef")]
    votes = Votes.from_answers(rows * 200, missing="blank")
    labels = Release(table).release(votes, rng=np.random.default_rng(3)).reshape(200, 3)
    assert "yes" in set(labels[:, 0]) <= {"yes", None}
    assert "None" in set(labels[:, 1]) <= {"None", None}  # the blank is a string that nobody says
    assert set(labels[:, 2]) <= {*"abcdef", None}
