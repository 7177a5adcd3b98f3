import asyncio
import sqlite3
import stat
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from darrm import PrivacyLedger, PrivacyParams, Problem, Voters, certify
from darrm.errors import LedgerError
from darrm.majority import baselines
from darrm.serve.clients import Client
from darrm.serve.questions import End, Questions, RefusedError, VoteSchema
from darrm.serve.requests import Question
from darrm.serve.worker import AnswerWorker
from darrm.table.release import Release
from darrm.util import checks
from tests.serve.deployments import ASKER, answer, ask, deployment, paid, read, running, vote, vote_all


def test_when_all_voted_the_label_is_paid_for_once_and_the_votes_are_gone(tmp_path: Path) -> None:
    what = deployment(tmp_path)
    with running(what) as worker:
        assert ask(worker, "ward 4", text="more?", seconds=3600)
        assert not ask(worker, "ward 4", text="more?", seconds=3600)  # said again
        for voter in (1, 2):
            assert vote(worker, "ward 4", voter, 1)
        assert not vote(worker, "ward 4", 2, 1)
        assert paid(what) == []
        assert vote(worker, "ward 4", 3, 0)
        one = read(worker, "ward 4")
        assert (one["state"], one["voted"], one["label"] in {0, 1}) == ("answered", [1, 2, 3], True)
        assert not vote(worker, "ward 4", 1, 0)  # nobody knows any more what it was
        rows = worker.do(lambda questions: questions._database.execute("SELECT vote FROM votes").fetchall())
        assert rows == [(None,)] * 3
    assert paid(what) == ["ward 4"]
    assert stat.S_IMODE(what.state.stat().st_mode) == 0o600


@pytest.mark.parametrize(("said", "status"), [(0, 409), ("1", 0), (2, 0), (True, 0), (None, 0), ([1], 0)])
def test_another_vote_and_what_is_none_is_refused(tmp_path: Path, said: object, status: int) -> None:
    with running(deployment(tmp_path)) as worker:
        ask(worker, "q", seconds=60)
        vote(worker, "q", 1, 1)
        with pytest.raises((RefusedError, ValueError)) as refused:
            vote(worker, "q", 1, said)
        assert getattr(refused.value, "status", 0) == status


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize(
    ("missing", "voters", "state"), [("coin", 1, "answered"), ("coin", 0, "expired"), ("refuse", 2, "expired")]
)
def test_at_the_deadline_missing_votes_are_what_the_plan_says(
    tmp_path: Path, missing: str, voters: int, state: str
) -> None:
    what = deployment(tmp_path, missing=missing)
    with running(what) as worker:
        ask(worker, "q", seconds=0.3)
        for voter in range(1, voters + 1):
            vote(worker, "q", voter, 1)
        assert read(worker, "q")["state"] == state
        with pytest.raises(RefusedError, match="no votes any more"):
            vote(worker, "q", 3, 1)
        assert worker.do(Questions.used, "client study") == (state == "answered")
    assert paid(what) == ["q"] * (state == "answered")


def test_a_voter_beyond_those_of_the_table_does_not_stop_the_desk(tmp_path: Path) -> None:
    with running(deployment(tmp_path)) as worker:  # a client may be added while it runs
        ask(worker, "q", seconds=60)
        vote(worker, "q", 1, 1), vote(worker, "q", 2, 1)
        with pytest.raises(RefusedError, match="there is no voter 9: this server has 3"):
            vote(worker, "q", 9, 1)
        vote(worker, "q", 3, 1)
        assert read(worker, "q")["state"] == "answered"


NUMBERS, NAMES, OPEN_ANSWERS = (
    VoteSchema(3, 2, "coin"),
    VoteSchema(3, ("no", "yes"), "coin"),
    VoteSchema(3, "open", "blank"),
)


@pytest.mark.parametrize(
    ("ballot", "good", "bad"),
    [
        (NUMBERS, [0, 1], [2, -1, True, 1.0, "1", "", "NA", 2**70, [1], {}, float("nan")]),
        (NAMES, ["no", "yes"], ["yes\0", "\0", "", "NA", "nan", " yes", "yes ", "Yes", "yes\n", 1, True, ["yes"]]),
        (
            OPEN_ANSWERS,
            ["flu", "NA", " flu", "x" * 200, "\u3000"],
            ["", "\0", "flu\0", "a\nb", "\x7f", "\x85", 1, "x" * 201, "\ud800"],
        ),
    ],
)
def test_votes_are_compared_exactly_and_valid_alone_is_valid_together(
    ballot: VoteSchema, good: list[Any], bad: list[Any]
) -> None:
    rows = [[first, second, None] for first in good for second in good]
    for row in rows:
        ballot.row(row)
    votes = ballot.votes(rows)
    for row, line in zip(rows, votes.sparse.toarray(), strict=True):
        said = {name: int(n) for name, n in zip(votes.names, line, strict=True) if n and name is not None}
        assert said == dict(Counter(row[:2]))  # each vote is counted for the class that has its very name
    for wrong in bad:
        for row in ([wrong, good[0], good[1]], [good[0], good[1], wrong]):
            with pytest.raises(ValueError, match=r"a vote must be .*, got something else"):
                ballot.row(row)
    for row in (good[:1], [*good[:2], None, None]):
        with pytest.raises(ValueError, match="3, one for each voter"):
            ballot.row(row)


def test_classes_with_control_characters_are_refused() -> None:
    for name in ("yes\n", "\0", ""):
        with pytest.raises(ValueError, match="none a control character"):
            VoteSchema(3, ("no", name))


@pytest.mark.parametrize("wrong", [[3, 0, 0], [4, -1], [1.0, 2], [True, 2], [1, 1], [2**70, 3 - 2**70], [None, 3]])
def test_counts_that_are_no_counts_are_refused_alone(wrong: list[Any]) -> None:
    assert NUMBERS.counts([[3, 0], [1, 2]]).ones.tolist() == [0, 2]
    with pytest.raises(ValueError, match="counts must be"):
        NUMBERS.tally(wrong)


def test_a_question_that_cannot_be_answered_ends_alone_and_unpaid(tmp_path: Path) -> None:
    what = deployment(tmp_path)
    worker = AnswerWorker(what)
    with worker._questions.transaction():
        for n in range(4):
            worker._questions.ask(_asked(f"q{n}"), ASKER, 0)
        # as a file of an earlier version may hold them
        worker._questions._database.execute("UPDATE questions SET given = ? WHERE id = 'q1'", ('{"votes": [1, 1, 7]}',))
        worker._questions._database.execute("UPDATE questions SET given = ? WHERE id = 'q2'", ('{"votes": 3}',))
    worker.close()
    with running(what) as again:
        assert [read(again, f"q{n}")["state"] for n in range(4)] == ["answered", "failed", "failed", "answered"]
        assert not again.trouble
        assert again.do(Questions.used, "client study") == 2
        assert not ask(again, "q1", votes=[0, 0, 0])
    assert paid(what) == ["q0", "q3"]


def test_a_clock_that_jumps_closes_no_question(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    what, real = deployment(tmp_path), time.time
    with running(what) as worker:
        ask(worker, "q", seconds=3600)
        monkeypatch.setattr(time, "time", lambda: real() + 7200)
        vote(worker, "q", 1, 1), vote(worker, "q", 2, 1)
        assert worker.do(Questions.find_row, "q")["state"] == "open"  # type: ignore[index]
        vote(worker, "q", 3, 1)
        assert read(worker, "q")["state"] == "answered"
        monkeypatch.setattr(time, "time", lambda: real() - 7200)
        worker.do(Questions.ask, Question(id="late", seconds=0.2), ASKER, 0)
        assert read(worker, "late")["state"] == "expired"
    assert paid(what) == ["q"]


def test_exactly_what_fits_is_paid_for_and_the_rest_is_told(tmp_path: Path) -> None:
    what = deployment(tmp_path, fit=5)
    with running(what) as worker, ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda n: ask(worker, f"q{n}"), range(12)))
        states = [read(worker, f"q{n}")["state"] for n in range(12)]
        assert worker.do(Questions.used, "client study") == 5
    assert sorted(states) == ["answered"] * 5 + ["refused"] * 7
    assert len(paid(what)) == 5


def _asked(name: str) -> Any:
    return Question(id=name, votes=[1, 0, 1])


class _PowerCut(BaseException):
    pass


@pytest.mark.parametrize("method", ["settle", "before"])
def test_a_label_that_was_paid_for_and_not_kept_is_found_in_the_ledger(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    what = deployment(tmp_path)
    worker = AnswerWorker(what)
    with worker._questions.transaction():
        for n in range(3):
            worker._questions.ask(_asked(f"q{n}"), ASKER, 0)

    def cut(*_: object, **__: object) -> None:
        raise _PowerCut

    with monkeypatch.context() as patch:
        if method == "settle":
            patch.setattr(Questions, "settle", cut)
        else:
            patch.setattr(PrivacyLedger, "debit", cut)
        with pytest.raises(BaseException):  # noqa: B017, PT011 (a DeliveryError where it was paid for)
            worker._answer()
    worker.close()
    kept = [
        PrivacyLedger(what.ledger).kept_labels(entry.number).tolist() for entry in PrivacyLedger(what.ledger).entries()
    ]
    with running(what) as again:
        labels = [read(again, f"q{n}")["label"] for n in range(3)]
    if method == "settle":
        assert kept == [labels]
    assert paid(what) == ["q0", "q1", "q2"]


@pytest.mark.slow
def test_a_ledger_that_is_away_loses_nothing(tmp_path: Path) -> None:
    what = deployment(tmp_path)
    ledger, away = Path(what.ledger), tmp_path / "away"
    with running(what) as worker:
        answer(worker, "q1")
        ledger.rename(away)
        ask(worker, "q2")
        until = time.monotonic() + 20
        while not worker.trouble and time.monotonic() < until:
            time.sleep(0.01)
        assert worker.trouble
        away.rename(ledger)
        assert read(worker, "q2")["state"] == "answered"
        assert not worker.trouble
    assert paid(what) == ["q1", "q2"]


def test_an_old_copy_of_the_questions_buys_no_second_label(tmp_path: Path) -> None:
    what = deployment(tmp_path)
    with running(what) as worker:
        ask(worker, "q1", seconds=3600)
    copy = what.state.read_bytes()
    with running(what) as worker:
        vote_all(worker, "q1")
        answer(worker, "q2")
    what.state.write_bytes(copy)
    with running(what) as worker:
        assert read(worker, "q1")["state"] == "lost"
        assert read(worker, "q2")["state"] == "answered"  # the ledger still had it
        with pytest.raises(RefusedError, match="label is lost"):
            ask(worker, "q1", seconds=3600)
    assert paid(what) == ["q1", "q2"]


def test_an_old_copy_of_the_ledger_is_a_second_budget_and_refused(tmp_path: Path) -> None:
    what = deployment(tmp_path)
    with running(what) as worker:
        answer(worker, "q1")
        copy = Path(what.ledger).read_bytes()
        answer(worker, "q2")
    Path(what.ledger).write_bytes(copy)
    with pytest.raises(LedgerError, match="older than the answers and did not pay for 1"):
        AnswerWorker(what)
    assert paid(what) == ["q1"]


@pytest.mark.slow
def test_two_servers_do_not_share_questions_or_a_stream(tmp_path: Path) -> None:
    with running(deployment(tmp_path)) as worker:
        with pytest.raises(LedgerError, match="another server"):
            AnswerWorker(deployment(tmp_path))
        with running(deployment(tmp_path, name="other")) as other:
            answer(worker, "q1")
            ask(other, "q2")
            until = time.monotonic() + 20
            while not other.trouble and time.monotonic() < until:
                time.sleep(0.01)
            assert "another server" in other.trouble
    assert paid(deployment(tmp_path)) == ["q1"]


def test_a_file_of_questions_that_others_read_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "state"
    path.touch(mode=0o644)
    path.chmod(0o644)
    with pytest.raises(ValueError, match="chmod 600"):
        Questions(path, VoteSchema(3, 2))


def test_a_second_server_that_starts_while_the_first_debits_gives_no_id_another_label(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with running(deployment(tmp_path)) as worker:
        answer(worker, "q0", votes=[1, 1, 1])
        before = PrivacyLedger(deployment(tmp_path).ledger).kept_labels(1).tolist()
        real = PrivacyLedger.kept_labels

        def late(ledger: PrivacyLedger, number: int) -> Any:
            labels = real(ledger, number)
            monkeypatch.undo()
            answer(worker, "q1", votes=[0, 0, 0])
            return labels

        monkeypatch.setattr(PrivacyLedger, "kept_labels", late)
        with running(deployment(tmp_path, name="other")) as other:  # read the labels of q0, and then the ids
            assert [read(other, "q0")["label"]] == before
            assert read(other, "q1")["state"] == "lost"


def test_all_who_wait_for_a_question_get_its_end_and_nothing_is_kept_of_those_who_left(tmp_path: Path) -> None:
    with running(deployment(tmp_path)) as worker:
        ask(worker, "a", seconds=3600)

        async def wait(seconds: float) -> bool:
            await asyncio.wait([end := worker.worker.wait_for("a")], timeout=seconds)
            return end.done() and end.result()["state"] == "answered"

        early, late = worker.begin(wait(0.01)), [worker.begin(wait(20)) for _ in range(3)]
        assert not early.result(30)
        vote_all(worker, "a")
        assert [one.result(30) for one in late] == [True] * 3
        assert len(worker.worker._futures) == 0


def test_an_old_copy_gives_no_budget_back_for_what_was_paid_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    what, real = deployment(tmp_path), time.time
    with running(what) as worker:
        ask(worker, "q", seconds=3600)
    copy = what.state.read_bytes()
    with running(what) as worker:
        vote_all(worker, "q"), answer(worker, "next")
    what.state.write_bytes(copy)
    monkeypatch.setattr(time, "time", lambda: real() + 7200)  # the deadline has passed
    with running(what) as worker:  # without a vote the copy would let it expire, and give its budget back
        assert read(worker, "q")["state"] == "lost"
        assert worker.do(Questions.used, "client study") == 1


def test_what_expired_in_an_old_copy_and_was_paid_for_counts_again(tmp_path: Path) -> None:
    questions = Questions(tmp_path / "state", VoteSchema(3, 2))
    questions.ask(_asked("q"), ASKER, 0)
    questions.settle(End("q", "expired"))
    assert questions.used("client study") == 0
    questions.settle(End("q", "lost")), questions.settle(End("q", "lost"))
    assert questions.used("client study") == 1
    questions.close()


def test_another_table_or_ballot_is_refused_at_the_start_and_not_called_another_server(tmp_path: Path) -> None:
    what = deployment(tmp_path)
    with running(what) as worker:
        answer(worker, "q1")
        ask(worker, "q2", seconds=3600)
    problem = Problem.from_allowance(Voters(3, PrivacyParams("0.02")), 3)
    another = Release(certify(problem, baselines.double_subsampling(problem)))
    with pytest.raises(ValueError, match="--table must be the one that this ledger"):
        AnswerWorker(replace(what, aggregator=another))
    with pytest.raises(ValueError, match="missing='coin'"):
        AnswerWorker(replace(what, ballot=VoteSchema(3, 2, "refuse")))
    with running(what) as worker:
        assert vote_all(worker, "q2")["state"] == "answered"
    with running(replace(what, ballot=VoteSchema(3, 2, "refuse"))) as worker:  # nothing waits
        assert answer(worker, "q3")["state"] == "answered"


def test_a_fault_is_no_second_server_and_shows_no_vote(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    with running(deployment(tmp_path), said.append) as worker:
        with monkeypatch.context() as patch:
            patch.setattr(PrivacyLedger, "debit", lambda *_, **__: checks.fail("votes", [1, 1, 0], "others"))
            assert answer(worker, "q")["state"] == "failed"
        assert not worker.trouble
        assert "cannot be answered" in said[0]
        assert "[1, 1, 0]" not in "".join(said)
        assert answer(worker, "again")["state"] == "answered"


def test_a_terminal_that_is_gone_stops_no_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(_: str) -> None:
        raise BrokenPipeError

    def away(*_: object, **__: object) -> None:
        raise OSError("the disk is away")

    monkeypatch.setattr("darrm.serve.worker._RETRY", 0.05)
    monkeypatch.setattr("darrm.serve.worker.LONGEST_PAUSE", 0.05)
    with running(deployment(tmp_path), gone) as worker:
        with monkeypatch.context() as patch:
            patch.setattr(PrivacyLedger, "debit", away)
            ask(worker, "q")
            until = time.monotonic() + 20
            while not worker.trouble and time.monotonic() < until:
                time.sleep(0.005)
            assert worker.trouble == "the disk is away"
        assert read(worker, "q")["state"] == "answered"


def test_a_full_disk_keeps_what_was_told_and_says_what_is_wrong(tmp_path: Path) -> None:
    with running(deployment(tmp_path)) as worker:
        rows = worker.worker._questions._database

        def undo(_: Questions) -> None:
            rows.execute("ROLLBACK")  # as SQLite does by itself where the disk is full
            raise sqlite3.OperationalError("database or disk is full")

        is_busy, may_end = threading.Event(), threading.Event()

        def hold(_: Questions) -> bool:
            is_busy.set()
            return may_end.wait(30)

        worker.begin(worker.worker.do(hold))
        assert is_busy.wait(30)
        failed = worker.begin(worker.worker.do(undo))
        later = worker.begin(worker.worker.do(Questions.ask, _asked("q"), ASKER, 0))
        while len(worker.worker._requests) < 2:  # they share one commit
            time.sleep(0.001)
        may_end.set()
        for task in (failed, later):
            with pytest.raises(sqlite3.OperationalError, match="is full"):
                task.result(30)
        assert worker.do(Questions.find_row, "q") is None


def test_old_questions_are_neither_read_nor_counted_again_for_new_ones(tmp_path: Path) -> None:
    questions = Questions(tmp_path / "state", VoteSchema(3, 2, "coin"))
    seen: list[str] = []
    with questions.transaction():
        for n in range(3):
            questions.ask(_asked(f"q{n}"), ASKER, 0)
        questions.settle(End("q0", "answered", 1))
    questions._database.set_trace_callback(seen.append)
    questions.next_deadline(), questions.close_due(1.0), questions.votes_on(questions.ready(10))
    questions.numbers()
    questions._database.set_trace_callback(None)
    plans = [row[3] for text in seen for row in questions._database.execute(f"EXPLAIN QUERY PLAN {text}")]
    assert plans
    assert not any(plan.startswith("SCAN questions") and "waiting" not in plan for plan in plans), plans
    with pytest.raises(ZeroDivisionError), questions.transaction():
        questions.settle(End("q1", "answered", 1)), 1 / 0
    assert questions.numbers() == {"answered": 1, "ready": 2}
    questions.close()
    again = Questions(tmp_path / "state", VoteSchema(3, 2, "coin"))
    assert again.numbers() == {"answered": 1, "ready": 2}
    again.close()


def test_questions_that_nobody_paid_for_do_not_fill_the_disk(tmp_path: Path) -> None:
    tiny = Client("tiny", "0" * 64, questions=2)
    with running(deployment(tmp_path)) as worker:
        for n in range(20):
            ask(worker, f"q{n}", tiny, seconds=1e-9)
            read(worker, f"q{n}")
        with pytest.raises(RefusedError, match="expired or were refused"):
            ask(worker, "q20", tiny)
        ask(worker, "q21")


def test_votes_leave_the_log_once_nothing_is_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("darrm.serve.worker.LONGEST_PAUSE", 0.05)
    what = deployment(tmp_path)
    with running(what) as worker:
        answer(worker, "q", votes=[1, 1, 0])
        log, until = Path(f"{what.state}-wal"), time.monotonic() + 20
        while log.stat().st_size and time.monotonic() < until:
            time.sleep(0.02)
        assert log.stat().st_size == 0
        assert b'"votes"' not in what.state.read_bytes()


def test_a_copy_beside_anothers_log_is_refused_in_a_line(tmp_path: Path) -> None:
    what = deployment(tmp_path)
    with running(what) as worker:
        answer(worker, "q")
    whole = bytearray(what.state.read_bytes())
    whole[4096:-4096] = b"\7" * (len(whole) - 8192)
    what.state.write_bytes(whole)
    with pytest.raises(LedgerError, match=r"the questions (cannot be opened|are damaged)"):
        AnswerWorker(what)
