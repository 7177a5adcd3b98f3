"""The file of questions, and which votes and counts are valid."""

from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from darrm.serve.clients import Client
from darrm.serve.questions import End, Questions, RefusedError, VoteSchema
from darrm.serve.requests import Question
from tests.serve.deployments import ASKER

NUMBERS = VoteSchema(3, 2, "coin")
NAMES = VoteSchema(3, ("no", "yes"), "coin")
OPEN_ANSWERS = VoteSchema(3, "open", "blank")
NO_NAMES = ["yes\0", "\0", "", "NA", "nan", " yes", "yes ", "Yes", "yes\n", 1, True, ["yes"]]
NO_ANSWERS = ["", "\0", "flu\0", "a\nb", "\x7f", "\x85", 1, "x" * 201, "\ud800"]


@pytest.mark.parametrize(
    ("schema", "valid", "invalid"),
    [
        (NUMBERS, [0, 1], [2, -1, True, 1.0, "1", "", "NA", 2**70, [1], {}, float("nan")]),
        (NAMES, ["no", "yes"], NO_NAMES),
        (OPEN_ANSWERS, ["flu", "NA", " flu", "x" * 200, "\u3000"], NO_ANSWERS),
    ],
)
def test_votes_are_compared_exactly_and_each_for_itself(
    schema: VoteSchema, valid: list[Any], invalid: list[Any]
) -> None:
    rows = [[first, second, None] for first in valid for second in valid]
    for row in rows:
        schema.row(row)
    votes = schema.votes(rows)
    for row, counts in zip(rows, votes.sparse.toarray(), strict=True):
        by_name = {name: int(n) for name, n in zip(votes.names, counts, strict=True) if n and name is not None}
        assert by_name == dict(Counter(row[:2]))
    for vote in invalid:
        for row in ([vote, valid[0], valid[1]], [valid[0], valid[1], vote]):
            with pytest.raises(ValueError, match=r"a vote must be .*, got something else"):
                schema.row(row)
    for row in (valid[:1], [*valid[:2], None, None]):
        with pytest.raises(ValueError, match="3, one for each voter"):
            schema.row(row)


def test_a_missing_vote_is_refused_unless_it_is_allowed() -> None:
    assert NUMBERS.row([1, None, 0]) == [1, None, 0]
    with pytest.raises(ValueError, match="takes no question with missing votes"):
        VoteSchema(3, 2).row([1, None, 0])


@pytest.mark.parametrize("counts", [[3, 0, 0], [4, -1], [1.0, 2], [True, 2], [1, 1], [2**70, 3 - 2**70], [None, 3]])
def test_wrong_counts_are_refused(counts: list[Any]) -> None:
    assert NUMBERS.counts([[3, 0], [1, 2]]).ones.tolist() == [0, 2]
    with pytest.raises(ValueError, match="counts must be"):
        NUMBERS.tally(counts)


@pytest.mark.parametrize("name", ["yes\n", "\0", ""])
def test_classes_with_control_characters_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match="none a control character"):
        VoteSchema(3, ("no", name))


def test_a_file_that_others_may_read_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "state"
    path.touch()
    path.chmod(0o644)
    with pytest.raises(ValueError, match="chmod 600"):
        Questions(path, NUMBERS)


@pytest.mark.parametrize("limit", [0, 1, 2])
def test_a_client_asks_as_many_questions_as_its_limit(limit: int, tmp_path: Path) -> None:
    questions, client = Questions(tmp_path / "state", NUMBERS), Client("c", "0" * 64, questions=limit)
    for n in range(limit):
        assert questions.ask(Question(id=f"q{n}", votes=[1, 0, 1]), client, 0)
    with pytest.raises(RefusedError, match=f"may ask {limit} questions"), questions.transaction():
        questions.ask(Question(id="more", votes=[1, 0, 1]), client, 0)
    assert [row["id"] for row in questions.list_rows()] == [f"q{n}" for n in reversed(range(limit))]
    assert all(row["deadline"] <= questions.now() for row in questions.list_rows())
    questions.close()


def test_a_question_that_is_asked_again_is_the_same_until_it_is_lost(tmp_path: Path) -> None:
    questions, first = Questions(tmp_path / "state", NUMBERS), Question(id="q", votes=[1, 0, 1])
    others = [
        Question(id="q", votes=[1, 1, 1]),
        Question(id="q", text="?", votes=[1, 0, 1]),
        Question(id="q", seconds=1),
    ]
    assert questions.ask(first, ASKER, 0)
    assert not questions.ask(first, ASKER, 0)
    for other, client in (*((other, ASKER) for other in others), (first, Client("other", "0" * 64, questions=9))):
        with pytest.raises(RefusedError, match="it was another question") as caught:
            questions.ask(other, client, 0)
        assert caught.value.status == 409
    questions.settle(End("q", "answered", 1))
    assert not questions.ask(others[0], ASKER, 0)  # its votes are deleted
    assert questions.settle(End("q", "lost")) is None  # a label never changes
    assert not questions.ask(first, ASKER, 0)
    questions.settle(End("gone", "lost"))
    with pytest.raises(RefusedError, match="the id 'gone' is taken: it was paid for, and its label is lost"):
        questions.ask(Question(id="gone", votes=[1, 0, 1]), ASKER, 0)
    questions.close()


def test_a_file_of_questions_belongs_to_a_ledger_and_a_stream(tmp_path: Path) -> None:
    questions = Questions(tmp_path / "state", NUMBERS)
    for _ in range(2):
        questions.belongs_to("ledger", "serve")
    for ledger, stream in (("other", "serve"), ("ledger", "other")):
        with pytest.raises(ValueError, match="that of this ledger and stream"):
            questions.belongs_to(ledger, stream)
    questions.close()


def test_a_question_that_expired_and_was_paid_for_counts_once(tmp_path: Path) -> None:
    questions = Questions(tmp_path / "state", NUMBERS)
    questions.ask(Question(id="q", votes=[1, 0, 1]), ASKER, 0)
    for state, used in (("expired", 0), ("lost", 1), ("lost", 1)):
        questions.settle(End("q", state))
        assert questions.used("client study") == used
    questions.close()


def test_old_questions_are_neither_read_nor_counted_again(tmp_path: Path) -> None:
    questions = Questions(tmp_path / "state", NUMBERS)
    with questions.transaction():
        for n in range(3):
            questions.ask(Question(id=f"q{n}", votes=[1, 0, 1]), ASKER, 0)
        questions.settle(End("q0", "answered", 1))
    statements: list[str] = []
    database = questions._database
    database.set_trace_callback(statements.append)
    questions.next_deadline()
    questions.close_due(1.0)
    questions.votes_on(questions.ready(10))
    questions.numbers()
    database.set_trace_callback(None)
    plans = [row[3] for text in statements for row in database.execute(f"EXPLAIN QUERY PLAN {text}")]
    assert plans
    assert [plan for plan in plans if plan.startswith("SCAN questions") and "waiting" not in plan] == []
    with suppress(InterruptedError), questions.transaction():
        questions.settle(End("q1", "answered", 1))
        raise InterruptedError
    assert questions.numbers() == {"answered": 1, "ready": 2}
    questions.close()
    reopened = Questions(tmp_path / "state", NUMBERS)
    assert reopened.numbers() == {"answered": 1, "ready": 2}
    reopened.close()
