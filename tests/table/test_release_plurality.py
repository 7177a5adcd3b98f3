"""Answers drawn from a proven plurality: exactly its probabilities, by listing the numbers that may be drawn."""

import itertools
from collections import Counter
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from darrm.account.accountant import PrivacyAccountant
from darrm.loss.privacy_cost import PrivacyCost
from darrm.numerics.exact_sampling import UniformBelow
from darrm.optimize.plurality import optimize_plurality
from darrm.plurality.plurality_law import ONE, random_law
from darrm.privacy import PrivacyParams
from darrm.problem import OPEN, Problem, Voters
from darrm.table.release import Release
from darrm.table.table import Table
from darrm.votes import Votes

PROBLEM = Problem(Voters(4, PrivacyParams("inf"), overlap=1), PrivacyParams("0.5", "0.01"), 3)


@pytest.fixture(scope="module")
def table() -> Table:
    return optimize_plurality(PROBLEM)


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
                    drawn = vars(aggregator)["_sampler"]._draw(np.array([counts]), scripted([number, rank]))
                    assert drawn.tolist() == [expected]
        total += weight
    assert total == ONE


@pytest.mark.statistical
def test_frequencies_are_the_probabilities(table: Table) -> None:
    counts = np.array([[2, 1, 1], [0, 2, 2]])
    draws = 100_000
    labels = Release(table).release(Votes.of_counts(np.repeat(counts, draws, axis=0)), rng=np.random.default_rng(5))
    for row, expected in zip(labels.reshape(2, draws), table.plurality.probabilities(counts), strict=True):
        found = np.bincount(row, minlength=3) / draws
        # six classes, each within 5.3 standard deviations but for 1e-6 altogether
        assert np.all(np.abs(found - expected) <= 5.3 * np.sqrt(expected * (1 - expected) / draws) + 1e-12)


def test_the_exact_descriptions_make_many_queries_cheaper(table: Table) -> None:
    charge = Release(table).privacy_cost(30)
    assert charge.table == table.digest
    assert charge.reached == 1
    bare = PrivacyAccountant(charges=[PrivacyCost("bare", guarantee=charge.guarantee, count=30)])
    assert PrivacyAccountant(charges=[charge]).spent(0.35).epsilon < bare.spent(0.35).epsilon


def test_more_queries_than_a_block(table: Table) -> None:
    counts = np.tile([[4, 0, 0], [0, 4, 0]], (40_000, 1))
    labels = Release(table).release(Votes.of_counts(counts))
    right = np.mean(labels == counts.argmax(axis=1))
    assert right == pytest.approx(float(table.plurality.probabilities([[4, 0, 0]])[0, 0]), abs=0.01)


def test_many_classes_are_found_without_keys() -> None:
    law = random_law(22, 22)  # 23^22 is beyond a key of 64 bits
    counts = np.zeros((2, 22), dtype=np.int64)
    counts[0, 5], counts[1, 3], counts[1, 9] = 22, 1, 21
    assert [law.partitions.parts[place][:3] for place in law.partitions.places_of(counts)] == [(22, 0, 0), (21, 1, 0)]
    small = random_law(4, 3)
    histograms = np.array([n for n in itertools.product(range(5), repeat=3) if sum(n) == 4])
    found = [small.partitions.parts[place] for place in small.partitions.places_of(histograms)]
    assert found == [tuple(sorted(row, reverse=True)) for row in histograms.tolist()]
    with pytest.raises(ValueError, match="4 votes for 3 classes"):
        small.partitions.places_of(np.array([[3, 0, 0]]))


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
                assert sampler._draw(line, scripted([number, rank])).tolist() == [expected]
        total += weight
    assert total == ONE


def test_open_answers_leave_as_strings_that_were_said() -> None:
    table = optimize_plurality(Problem(Voters(6, PrivacyParams("inf"), overlap=1), PrivacyParams("3", "0.05"), OPEN))
    rows = [["yes"] * 6, ["None"] * 5 + [""], list("abcdef")]
    votes = Votes.of_answers(rows * 200, missing="blank")
    labels = Release(table).release(votes, rng=np.random.default_rng(3)).reshape(200, 3)
    assert "yes" in set(labels[:, 0]) <= {"yes", None}
    assert "None" in set(labels[:, 1]) <= {"None", None}  # the blank is a string that nobody says
    assert set(labels[:, 2]) <= {*"abcdef", None}
