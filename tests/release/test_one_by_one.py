"""Answers one by one in Python: what is handed out, what is kept until it is acknowledged, and what is refused."""

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from darrm import open_release
from darrm.errors import BudgetExceededError, LedgerError
from darrm.ledger.ledger import PrivacyLedger
from darrm.noisy_max.noisy_maximum import NoisyMaximum
from darrm.pate import GNMax
from darrm.privacy import PrivacyParams
from darrm.problem import Voters
from darrm.release.delivery import recover
from darrm.table.release import Release
from darrm.table.table import Table
from darrm.votes import Votes
from darrm.votes.labels_file import labels_digest
from tests.release.support import MAJORITIES, VOTES, table_of

MASKED = np.ma.masked_array([1, 1, 0], [False, True, False])


@pytest.fixture(scope="module")
def table() -> Table:
    return table_of()


@pytest.fixture
def ledger(tmp_path: Path) -> PrivacyLedger:
    return PrivacyLedger.create(tmp_path / "l.sqlite", PrivacyParams("0.5", "1e-3"))


def test_each_answer_is_paid_for_and_the_last_one_is_kept(table: Table, ledger: PrivacyLedger) -> None:
    with open_release(table, ledger, note="asked") as release:
        for number, (votes, majority) in enumerate(zip(VOTES, MAJORITIES, strict=True), 1):
            assert release.answer(votes) == majority
            assert release.answered == ledger.accountant().queries == number
            (entry,) = ledger.undelivered()
            assert (entry.number, entry.note, entry.output, entry.table) == (number, "asked", "-", table.digest)
            assert ledger.kept_labels(number).tolist() == [majority]
    assert ledger.undelivered() == ()
    assert [entry.labels for entry in ledger.entries()] == [labels_digest(np.array([label])) for label in MAJORITIES]


def test_questions_may_depend_on_answers(table: Table, ledger: PrivacyLedger) -> None:
    labels: list[int] = []

    def ask() -> Iterator[list[int]]:
        yield [1, 1, 1]
        while len(labels) < 4:
            yield [1 - labels[-1]] * 3  # the opposite of the last answer

    for label in open_release(table, ledger).answers(ask()):
        labels.append(label)  # noqa: PERF402 (the questions depend on it)
    assert labels == [1, 0, 1, 0]


def test_unacknowledged_answer_is_handed_out_again_before_anything_else(table: Table, ledger: PrivacyLedger) -> None:
    first = open_release(table, ledger)
    first.answer(VOTES[0])
    first.answer(VOTES[1])  # then its process dies
    second = open_release(table, PrivacyLedger(ledger.path))
    with pytest.raises(ValueError, match="the labels that wait must be taken before the next question, got 1"):
        second.answer(VOTES[2])
    second.close()
    assert [entry.number for entry in ledger.undelivered()] == [2]  # labels that were not taken stay
    assert (second.answered, second.waiting(), second.waiting()) == (2, [0], [])
    assert second.answer(VOTES[2]) == 1
    with pytest.raises(ValueError, match="another process answers this stream"):
        first.answer(VOTES[3])
    assert second.answered == ledger.accountant().queries == 3
    second.close()
    assert open_release(table, ledger).waiting() == []


def test_block_that_fails_keeps_the_last_answer(table: Table, ledger: PrivacyLedger) -> None:
    with pytest.raises(ZeroDivisionError), open_release(table, ledger) as release:
        assert 1 // (release.answer(VOTES[0]) - 1)  # fails after the answer
    assert open_release(table, ledger).waiting() == [1]


def test_answer_can_be_recovered_into_a_file(table: Table, ledger: PrivacyLedger, tmp_path: Path) -> None:
    open_release(table, ledger, stream="mine").answer(VOTES[0])
    assert ledger.undelivered()[0].output == "-mine"
    assert ledger.recovery(1, "-mine").endswith("--output labels-1.csv")
    assert recover(ledger, 1, tmp_path / "labels-1.csv").tolist() == [1]
    release = open_release(table, ledger, stream="mine")
    assert (release.answered, release.waiting(), release.answer(VOTES[1])) == (1, [], 0)


def test_questions_that_the_budget_admits_are_answered(table: Table, ledger: PrivacyLedger) -> None:
    release = open_release(table, ledger)
    fit = release.left()
    assert 5 <= fit < 99
    assert release.left(most=2) == 2
    rich_ledger = PrivacyLedger.create(":memory:", PrivacyParams("1e9", "0.5"))
    assert open_release(table, rich_ledger).left() == 10**6
    assert release.answer_together(Votes.from_labels([[1, 1, 0]] * 99)) == [1] * fit
    assert (release.left(), release.answered) == (0, fit)
    with pytest.raises(BudgetExceededError, match="does not admit 1 query of DaRRM over 3 voters: 0 still fit"):
        release.answer(VOTES[0])
    assert ledger.accountant().queries == fit
    assert ledger.kept_labels(1).tolist() == [1] * fit  # a refused question acknowledges nothing


def test_budget_that_another_stream_empties_ends_a_stream(table: Table, ledger: PrivacyLedger) -> None:
    release, other = open_release(table, ledger), open_release(table, ledger, stream="other")
    release.answer(VOTES[0])
    with pytest.raises(BudgetExceededError, match="0 still fit"):
        list(other.answers([[0, 0, 0]] * 100))
    assert 1 < other.answered < 99
    with pytest.raises(BudgetExceededError, match="0 still fit"):
        release.answer(VOTES[0])
    assert (release.answered, open_release(table, ledger).waiting()) == (1, [1])


def test_aggregator_with_any_classes_answers() -> None:
    noisy = NoisyMaximum(GNMax(2.0), Voters(99, PrivacyParams("inf"), overlap=1), 3)
    ledger = PrivacyLedger.create(":memory:", PrivacyParams("1e9", "1e-3"))
    release = open_release(noisy, ledger, classes=("a", "b", "c"))
    assert release.answer(Votes.from_counts([[0, 99, 0]], 99, ("a", "b", "c"))) == "b"
    assert release.answer(["c"] * 99) == "c"
    with pytest.raises(ValueError, match="votes must be on one question, got 2 queries"):
        release.answer(Votes.from_counts([[0, 99, 0], [99, 0, 0]], 99, 3))
    assert [entry.count for entry in ledger.entries()] == [1, 1]


def test_streams_of_two_tables_need_a_composition_of_several_kinds(table: Table, ledger: PrivacyLedger) -> None:
    other = table_of([0, 0], 1)
    open_release(table, ledger).answer(VOTES[0])
    with pytest.raises(ValueError, match="this ledger accounts for queries of one kind"):
        open_release(other, ledger, stream="other").answer(VOTES[0])
    adaptive = PrivacyLedger.create(":memory:", PrivacyParams("0.5", "1e-3"), composition="adaptive")
    first, second = open_release(table, adaptive), open_release(other, adaptive, stream="other")
    assert [first.answer(VOTES[0]), first.answer(VOTES[1])] == [1, 0]
    assert second.answer(VOTES[0]) in {0, 1}
    assert adaptive.spent.epsilon == adaptive.accountant().spent(1e-3, adaptive=True).epsilon > 0.06


@pytest.mark.parametrize("votes", [[1, 1], [1, 1, 2], [1, 1, None], [[1, 1, 0], [1, 0, 0]], 1, "110", [], MASKED])
def test_bad_votes_cost_nothing_and_the_stream_goes_on(votes: Any, table: Table, ledger: PrivacyLedger) -> None:
    release = open_release(table, ledger)
    release.answer(VOTES[0])
    with pytest.raises(ValueError, match="votes"):
        release.answer(votes)
    assert ledger.accountant().queries == 1
    assert release.answer(VOTES[1]) == 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"table": "table.json"}, "aggregator must be an aggregator"),
        ({"table": Release}, "aggregator must be an aggregator"),
        ({"table": SimpleNamespace(release=None)}, "aggregator must be an aggregator"),
        ({"table": SimpleNamespace(privacy_cost=None)}, "aggregator must be an aggregator"),
        ({"stream": "a\nb"}, "the name of a stream must be printable"),
        ({"composition": "planned"}, "the ledger's composition must be one, renyi or adaptive, got 'planned'"),
    ],
)
def test_open_release_refuses_bad_arguments(options: dict[str, Any], message: str, table: Table) -> None:
    composition = options.get("composition", "one")
    ledger = PrivacyLedger.create(":memory:", PrivacyParams(1, "1e-3"), composition=composition)
    with pytest.raises(ValueError, match=message):
        open_release(options.get("table", table), ledger, stream=options.get("stream", ""))


def test_ledger_that_fails_debits_nothing(table: Table, ledger: PrivacyLedger) -> None:
    release = open_release(table, ledger)
    release.answer(VOTES[0])
    moved = Path(ledger.path).rename(f"{ledger.path}.away")
    with pytest.raises(LedgerError):
        release.answer(VOTES[1])
    moved.rename(ledger.path)
    assert (release.answered, release.answer(VOTES[1])) == (1, 0)
