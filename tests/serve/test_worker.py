"""The worker: each question has one label that is paid for once, whatever fails or is restored."""

import asyncio
import sqlite3
import stat
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from darrm import PrivacyLedger, PrivacyParams, Problem, Voters, certify
from darrm.errors import LedgerError
from darrm.majority import baselines
from darrm.release import open_release
from darrm.serve.clients import Client
from darrm.serve.questions import Questions, RefusedError, VoteSchema
from darrm.serve.requests import Question
from darrm.serve.worker import AnswerWorker
from darrm.table.release import Release
from darrm.util import checks
from tests.release.support import raise_error
from tests.serve.deployments import (
    ASKER,
    Running,
    answer,
    ask,
    deployment,
    paid,
    read,
    running,
    table,
    vote,
    vote_all,
    wait_until,
)


def make_question(name: str) -> Question:
    return Question(id=name, votes=[1, 0, 1])


def shift_clock(monkeypatch: pytest.MonkeyPatch, seconds: float, clock: Callable[[], float] = time.time) -> None:
    monkeypatch.setattr(time, "time", lambda: clock() + seconds)


def used(worker: Running) -> int:
    return worker.do(Questions.used, "client study")


def test_a_question_with_all_votes_is_paid_for_once_and_its_votes_are_deleted(tmp_path: Path) -> None:
    deployed = deployment(tmp_path)
    with running(deployed) as worker:
        assert ask(worker, "ward 4", text="more?", seconds=3600)
        assert not ask(worker, "ward 4", text="more?", seconds=3600)
        assert [vote(worker, "ward 4", voter, 1) for voter in (1, 2, 2)] == [True, True, False]
        assert paid(deployed) == []
        assert vote(worker, "ward 4", 3, 0)
        row = read(worker, "ward 4")
        assert (row["state"], row["voted"]) == ("answered", [1, 2, 3])
        assert row["label"] in {0, 1}
        assert not vote(worker, "ward 4", 1, 0)  # whether it differs is not known any more
        rows = worker.do(lambda questions: questions._database.execute("SELECT vote FROM votes").fetchall())
        assert rows == [(None,)] * 3
    assert paid(deployed) == ["ward 4"]
    assert stat.S_IMODE(deployed.state.stat().st_mode) == 0o600


def test_a_changed_or_invalid_vote_is_refused(tmp_path: Path) -> None:
    with running(deployment(tmp_path)) as worker:
        ask(worker, "q", seconds=60)
        for voter in (1, 2):
            vote(worker, "q", voter, 1)
        for invalid in ("1", 2, True, None, [1]):
            with pytest.raises(ValueError, match="vote must be"):
                vote(worker, "q", 1, invalid)
        with pytest.raises(RefusedError, match="has voted otherwise") as caught:
            vote(worker, "q", 1, 0)
        assert caught.value.status == 409
        # a client may be added while the server runs
        with pytest.raises(RefusedError, match="there is no voter 9: this server has 3"):
            vote(worker, "q", 9, 1)
        vote(worker, "q", 3, 1)
        assert read(worker, "q")["state"] == "answered"


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize(
    ("missing", "voters", "state"), [("coin", 1, "answered"), ("coin", 0, "expired"), ("refuse", 2, "expired")]
)
def test_missing_votes_at_the_deadline_are_replaced_or_end_the_question(
    tmp_path: Path, missing: str, voters: int, state: str
) -> None:
    deployed = deployment(tmp_path, missing=missing)
    with running(deployed) as worker:
        ask(worker, "q", seconds=0.3)
        for voter in range(1, voters + 1):
            vote(worker, "q", voter, 1)
        assert read(worker, "q")["state"] == state
        with pytest.raises(RefusedError, match="no votes any more"):
            vote(worker, "q", 3, 1)
        assert used(worker) == (state == "answered")
    assert paid(deployed) == ["q"] * (state == "answered")


def test_a_question_that_cannot_be_answered_ends_alone_and_unpaid(tmp_path: Path) -> None:
    deployed = deployment(tmp_path)
    stopped = AnswerWorker(deployed)
    with stopped._questions.transaction():
        for n in range(4):
            stopped._questions.ask(make_question(f"q{n}"), ASKER, 0)
        # a file of an earlier version may hold such votes
        for name, votes in (("q1", '{"votes": [1, 1, 7]}'), ("q2", '{"votes": 3}')):
            stopped._questions._database.execute("UPDATE questions SET given = ? WHERE id = ?", (votes, name))
    stopped.close()
    with running(deployed) as worker:
        assert [read(worker, f"q{n}")["state"] for n in range(4)] == ["answered", "failed", "failed", "answered"]
        assert not worker.trouble
        assert used(worker) == 2
        assert not ask(worker, "q1", votes=[0, 0, 0])
    assert paid(deployed) == ["q0", "q3"]


def test_a_clock_that_jumps_closes_no_question(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    deployed, clock = deployment(tmp_path), time.time
    with running(deployed) as worker:
        ask(worker, "q", seconds=3600)
        shift_clock(monkeypatch, 7200, clock)
        vote(worker, "q", 1, 1)
        vote(worker, "q", 2, 1)
        assert worker.do(Questions.find_row, "q")["state"] == "open"  # type: ignore[index]
        vote(worker, "q", 3, 1)
        assert read(worker, "q")["state"] == "answered"
        shift_clock(monkeypatch, -7200, clock)
        worker.do(Questions.ask, Question(id="late", seconds=0.2), ASKER, 0)
        assert read(worker, "late")["state"] == "expired"
    assert paid(deployed) == ["q"]


def test_a_turn_tells_when_the_next_one_is_due(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("darrm.serve.worker.LONGEST_PAUSE", 1000.0)
    worker = AnswerWorker(deployed := deployment(tmp_path))
    assert worker._take_turn(False) == 1000.0
    for name, seconds, due in (("late", 3600.0, 1000.0), ("soon", 600.0, 600.0)):
        worker._questions.ask(Question(id=name, seconds=seconds), ASKER, 0)
        assert due - 60.0 < worker._take_turn(False) <= due
    worker._questions.ask(make_question("ready"), ASKER, 0)
    assert worker._take_turn(False) < 1.0  # at once, for more questions may have arrived
    worker.close()
    assert paid(deployed) == ["ready"]


def test_exactly_what_the_budget_admits_is_paid_for(tmp_path: Path) -> None:
    deployed = deployment(tmp_path, fit=5)
    with running(deployed) as worker, ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda n: ask(worker, f"q{n}"), range(12)))
        states = [read(worker, f"q{n}")["state"] for n in range(12)]
        assert used(worker) == 5
    assert sorted(states) == ["answered"] * 5 + ["refused"] * 7
    assert len(paid(deployed)) == 5


class PowerCutError(BaseException):
    """Ends the process without any handler."""


@pytest.mark.parametrize(("owner", "method"), [(Questions, "settle"), (PrivacyLedger, "debit")])
def test_a_label_that_was_paid_for_and_not_kept_is_found_in_the_ledger(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, owner: type, method: str
) -> None:
    deployed = deployment(tmp_path)
    stopped = AnswerWorker(deployed)
    with stopped._questions.transaction():
        for n in range(3):
            stopped._questions.ask(make_question(f"q{n}"), ASKER, 0)
    with monkeypatch.context() as patch:
        patch.setattr(owner, method, raise_error(PowerCutError()))
        with pytest.raises(BaseException):  # noqa: B017, PT011 (a DeliveryError after the debit)
            stopped._answer()
    stopped.close()
    ledger = PrivacyLedger(deployed.ledger)
    kept = [ledger.kept_labels(entry.number).tolist() for entry in ledger.entries()]
    with running(deployed) as worker:
        labels = [read(worker, f"q{n}")["label"] for n in range(3)]
    assert kept == ([labels] if method == "settle" else [])
    assert paid(deployed) == ["q0", "q1", "q2"]


@pytest.mark.parametrize("is_late", [False, True])
def test_an_old_copy_of_the_questions_buys_no_second_label_and_gives_no_budget_back(
    is_late: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deployed = deployment(tmp_path)
    with running(deployed) as worker:
        ask(worker, "q1", seconds=3600)
    copy = deployed.state.read_bytes()
    with running(deployed) as worker:
        vote_all(worker, "q1")
        answer(worker, "q2")
    deployed.state.write_bytes(copy)
    if is_late:  # without a vote the question of the copy would expire
        shift_clock(monkeypatch, 7200)
    with running(deployed) as worker:
        assert read(worker, "q1")["state"] == "lost"
        assert read(worker, "q2")["state"] == "answered"  # the ledger had kept its label
        assert used(worker) == 1
        with pytest.raises(RefusedError, match="label is lost"):
            ask(worker, "q1", seconds=3600)
    assert paid(deployed) == ["q1", "q2"]


def test_an_old_copy_of_the_ledger_is_refused_as_a_second_budget(tmp_path: Path) -> None:
    deployed = deployment(tmp_path)
    with running(deployed) as worker:
        answer(worker, "q1")
        copy = Path(deployed.ledger).read_bytes()
        answer(worker, "q2")
    Path(deployed.ledger).write_bytes(copy)
    with pytest.raises(LedgerError, match="older than the answers and did not pay for 1"):
        AnswerWorker(deployed)
    assert paid(deployed) == ["q1"]


@pytest.mark.slow
def test_two_servers_do_not_share_questions_or_a_stream(tmp_path: Path) -> None:
    with running(deployment(tmp_path)) as worker:
        with pytest.raises(LedgerError, match="another server"):
            AnswerWorker(deployment(tmp_path))
        with running(deployment(tmp_path, name="other")) as other:
            answer(worker, "q1")
            ask(other, "q2")
            assert "another server" in other.wait_for_trouble()
    assert paid(deployment(tmp_path)) == ["q1"]


def test_a_second_server_that_starts_during_a_debit_gives_no_id_another_label(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read_labels = PrivacyLedger.kept_labels
    with running(deployment(tmp_path)) as worker:
        label = answer(worker, "q0", votes=[1, 1, 1])["label"]

        def read_labels_and_debit(ledger: PrivacyLedger, number: int) -> Any:
            labels = read_labels(ledger, number)
            monkeypatch.undo()
            answer(worker, "q1", votes=[0, 0, 0])
            return labels

        monkeypatch.setattr(PrivacyLedger, "kept_labels", read_labels_and_debit)
        with running(deployment(tmp_path, name="other")) as other:  # it reads the labels of q0, then the ids
            assert read(other, "q0")["label"] == label
            assert read(other, "q1")["state"] == "lost"


def test_all_who_wait_for_a_question_get_its_end_and_those_who_left_are_forgotten(tmp_path: Path) -> None:
    with running(deployment(tmp_path)) as worker:
        ask(worker, "a", seconds=3600)

        async def wait(seconds: float) -> bool:
            await asyncio.wait([end := worker.worker.wait_for("a")], timeout=seconds)
            return end.done() and end.result()["state"] == "answered"

        early, late = worker.begin(wait(0.01)), [worker.begin(wait(20)) for _ in range(3)]
        assert not early.result(30)
        vote_all(worker, "a")
        assert [waiting.result(30) for waiting in late] == [True] * 3
        assert len(worker.worker._futures) == 0


def test_a_stream_that_another_program_answered_is_refused(tmp_path: Path) -> None:
    deployed = deployment(tmp_path)
    open_release(table(), PrivacyLedger(deployed.ledger), stream="serve").answer([1, 1, 0])
    with pytest.raises(ValueError, match="another program answered this stream"):
        AnswerWorker(deployed)


def test_another_table_or_schema_is_refused_at_the_start(tmp_path: Path) -> None:
    deployed = deployment(tmp_path)
    with running(deployed) as worker:
        answer(worker, "q1")
        ask(worker, "q2", seconds=3600)
    problem = Problem.from_allowance(Voters(3, PrivacyParams("0.02")), 3)
    other = Release(certify(problem, baselines.double_subsampling(problem)))
    with pytest.raises(ValueError, match="--table must be the one that this ledger"):
        AnswerWorker(replace(deployed, aggregator=other))
    refusing = replace(deployed, ballot=VoteSchema(3, 2, "refuse"))
    with pytest.raises(ValueError, match="missing='coin'"):
        AnswerWorker(refusing)
    with running(deployed) as worker:
        assert vote_all(worker, "q2")["state"] == "answered"
    with running(refusing) as worker:  # no question waits
        assert answer(worker, "q3")["state"] == "answered"


def test_a_fault_ends_one_question_and_its_report_shows_no_vote(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines: list[str] = []
    with running(deployed := deployment(tmp_path), lines.append) as worker:
        answer(worker, "first")
        open_release(table(), PrivacyLedger(deployed.ledger), stream="other").answer([1, 1, 0])  # it takes no turn
        with monkeypatch.context() as patch:
            patch.setattr(PrivacyLedger, "debit", lambda *_, **__: checks.fail("votes", [1, 1, 0], "others"))
            assert answer(worker, "q")["state"] == "failed"
        assert not worker.trouble
        assert "cannot be answered" in lines[0]
        assert "[1, 1, 0]" not in "".join(lines)
        assert answer(worker, "next")["state"] == "answered"


@pytest.mark.parametrize("is_moved", [False, True])
def test_a_ledger_that_is_away_is_retried_though_the_terminal_is_gone(
    is_moved: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("darrm.serve.worker._RETRY", 0.05)
    monkeypatch.setattr("darrm.serve.worker.LONGEST_PAUSE", 0.05)
    deployed = deployment(tmp_path)
    with running(deployed, raise_error(BrokenPipeError())) as worker:
        first = answer(worker, "first")
        with monkeypatch.context() as patch:
            if is_moved:
                Path(deployed.ledger).rename(tmp_path / "away")
            else:
                patch.setattr(PrivacyLedger, "debit", raise_error(OSError("the disk is away")))
            ask(worker, "q")
            assert ("no such file" if is_moved else "the disk is away") in worker.wait_for_trouble()
        if is_moved:
            (tmp_path / "away").rename(deployed.ledger)
        assert read(worker, "q")["state"] == "answered"
        assert not worker.trouble
        assert read(worker, "first") == first
    assert paid(deployed) == ["first", "q"]


def test_a_full_disk_fails_all_requests_of_its_commit(tmp_path: Path) -> None:
    with running(deployment(tmp_path)) as worker:
        is_busy, may_end = threading.Event(), threading.Event()

        def undo(questions: Questions) -> None:
            questions._database.execute("ROLLBACK")  # as SQLite does by itself
            raise sqlite3.OperationalError("database or disk is full")

        def block(_: Questions) -> bool:
            is_busy.set()
            return may_end.wait(30)

        worker.begin(worker.worker.do(block))
        assert is_busy.wait(30)
        first = worker.begin(worker.worker.do(undo))
        second = worker.begin(worker.worker.do(Questions.ask, make_question("q"), ASKER, 0))
        wait_until(lambda: len(worker.worker._requests) == 2)  # they share a commit
        may_end.set()
        for request in (first, second):
            with pytest.raises(sqlite3.OperationalError, match="is full"):
                request.result(30)
        assert worker.do(Questions.find_row, "q") is None


def test_unpaid_questions_of_a_client_do_not_fill_the_disk(tmp_path: Path) -> None:
    tiny = Client("tiny", "0" * 64, questions=2)
    with running(deployment(tmp_path)) as worker:
        for n in range(20):
            ask(worker, f"q{n}", tiny, seconds=1e-9)
            read(worker, f"q{n}")
        with pytest.raises(RefusedError, match="expired or were refused"):
            ask(worker, "q20", tiny)
        ask(worker, "q21")


def test_the_log_is_emptied_of_votes_when_no_question_is_ready(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("darrm.serve.worker.LONGEST_PAUSE", 0.05)
    deployed = deployment(tmp_path)
    with running(deployed) as worker:
        ask(worker, "open", seconds=3600)
        answer(worker, "q", votes=[1, 1, 0])
        wait_until(lambda: Path(f"{deployed.state}-wal").stat().st_size == 0)
        assert b'"votes"' not in deployed.state.read_bytes()


def test_a_damaged_file_of_questions_is_refused(tmp_path: Path) -> None:
    deployed = deployment(tmp_path)
    with running(deployed) as worker:
        answer(worker, "q")
    content = bytearray(deployed.state.read_bytes())
    content[4096:-4096] = b"\7" * (len(content) - 8192)
    deployed.state.write_bytes(content)
    with pytest.raises(LedgerError, match=r"the questions (cannot be opened|are damaged)"):
        AnswerWorker(deployed)
