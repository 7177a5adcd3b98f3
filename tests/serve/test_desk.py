import stat
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from darrm import PrivacyLedger
from darrm.errors import LedgerError
from darrm.serve.clients import Client
from darrm.serve.desk import Desk
from darrm.serve.questions import Ballot, Questions, RefusedError
from tests.serve.deployments import ASKER, ask, deployment, paid, read, running, vote


def test_when_all_voted_the_label_is_paid_for_once_and_the_votes_are_gone(tmp_path: Path) -> None:
    what = deployment(tmp_path)
    with running(what) as desk:
        assert ask(desk, "ward 4", text="more?", seconds=3600)
        assert not ask(desk, "ward 4", text="more?", seconds=3600)  # said again
        for voter in (1, 2):
            assert vote(desk, "ward 4", voter, 1)
        assert not vote(desk, "ward 4", 2, 1)
        assert paid(what) == []
        assert vote(desk, "ward 4", 3, 0)
        one = read(desk, "ward 4")
        assert (one["state"], one["voted"], one["label"] in {0, 1}) == ("answered", [1, 2, 3], True)
        assert not vote(desk, "ward 4", 1, 0)  # nobody knows any more what it was
        rows = desk.do(lambda questions: questions._rows.execute("SELECT vote FROM votes").fetchall()).result()
        assert rows == [(None,)] * 3
    assert paid(what) == ["ward 4"]
    assert stat.S_IMODE(what.state.stat().st_mode) == 0o600


@pytest.mark.parametrize(("said", "status"), [(0, 409), ("1", 0), (2, 0), (True, 0), (None, 0), ([1], 0)])
def test_another_vote_and_what_is_none_is_refused(tmp_path: Path, said: object, status: int) -> None:
    with running(deployment(tmp_path)) as desk:
        ask(desk, "q", seconds=60)
        vote(desk, "q", 1, 1)
        with pytest.raises((RefusedError, ValueError)) as refused:
            vote(desk, "q", 1, said)
        assert getattr(refused.value, "status", 0) == status


@pytest.mark.parametrize(
    ("missing", "voters", "state"), [("coin", 1, "answered"), ("coin", 0, "expired"), ("refuse", 2, "expired")]
)
def test_at_the_deadline_missing_votes_are_what_the_plan_says(
    tmp_path: Path, missing: str, voters: int, state: str
) -> None:
    what = deployment(tmp_path, missing=missing)
    with running(what) as desk:
        ask(desk, "q", seconds=0.3)
        for voter in range(1, voters + 1):
            vote(desk, "q", voter, 1)
        assert read(desk, "q")["state"] == state
        with pytest.raises(RefusedError, match="no votes any more"):
            vote(desk, "q", 3, 1)
        assert desk.do(lambda questions: questions.used("client study")).result() == (state == "answered")
    assert paid(what) == ["q"] * (state == "answered")


def test_a_voter_beyond_those_of_the_table_does_not_stop_the_desk(tmp_path: Path) -> None:
    with running(deployment(tmp_path)) as desk:  # a client may be added while it runs
        ask(desk, "q", seconds=60)
        vote(desk, "q", 1, 1), vote(desk, "q", 2, 1)
        with pytest.raises(RefusedError, match="there is no voter 9: this server has 3"):
            vote(desk, "q", 9, 1)
        vote(desk, "q", 3, 1)
        assert read(desk, "q")["state"] == "answered"


def test_more_classes_and_open_answers_and_counts() -> None:
    three = Ballot(3, ("a", "b", "c"), "coin")
    assert three.votes([["a", None, "c"]]).missing is not None
    assert three.counts([[3, 0, 0]]).counts.tolist() == [[3, 0, 0]]
    assert Ballot(2, "open", "blank").votes([["flu", None]]).blanks == 1
    for wrong in ([3, 0], [3.0, 0, 0]):
        with pytest.raises(ValueError):  # noqa: PT011 (the words are those of `Votes`)
            three.counts([wrong])
    for row in (["a", "b"], ["a", "b", "d"]):
        with pytest.raises(ValueError):  # noqa: PT011 (as above)
            three.votes([row])


@pytest.mark.parametrize(
    "wrong", [[1, 1], [1, 1, 2], [1, 1, -1], [1, 1, True], [1, 1, 1.0], [1, 1, "1"], [1, 1, 2**70]]
)
def test_votes_that_are_seen_to_be_plain_are_those_that_are_read(wrong: list[Any]) -> None:
    two = Ballot(3, 2)
    assert two.is_plain({"votes": [1, 0, 1]})
    assert not two.is_plain({"votes": wrong})
    with pytest.raises(ValueError):  # noqa: PT011 (the words are those of `Votes`)
        two.votes([wrong])


def test_exactly_what_fits_is_paid_for_and_the_rest_is_told(tmp_path: Path) -> None:
    what = deployment(tmp_path, fit=5)
    with running(what) as desk, ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda n: ask(desk, f"q{n}"), range(12)))
        states = [read(desk, f"q{n}")["state"] for n in range(12)]
        assert desk.do(lambda questions: questions.used("client study")).result() == 5
    assert sorted(states) == ["answered"] * 5 + ["refused"] * 7
    assert len(paid(what)) == 5


def test_a_client_and_a_project_have_budgets_of_their_own(tmp_path: Path) -> None:
    one, two = (Client(name, "0" * 64, questions=2, project="p", project_questions=3) for name in ("a", "b"))

    with running(deployment(tmp_path)) as desk:
        ask(desk, "q1", one), ask(desk, "q2", one)
        with pytest.raises(RefusedError, match="client a may ask 2 questions") as refused:
            ask(desk, "q3", one)
        assert (refused.value.status, refused.value.more) == (402, {"left": 0, "limit": 2})
        desk.do(lambda questions: questions.ask(_asked("q4"), two, 3, time.time())).result()
        with pytest.raises(RefusedError, match="project p may ask 3"):
            desk.do(lambda questions: questions.ask(_asked("q5"), two, 3, time.time())).result()
        assert desk.do(lambda questions: questions.used("client b")).result() == 1  # nothing of a refused one stays


def _asked(name: str) -> Any:
    from darrm.serve.questions import Asked

    return Asked(name, votes=(1, 0, 1))


class _PowerCut(BaseException):
    pass


@pytest.mark.parametrize("method", ["settle", "before"])
def test_a_label_that_was_paid_for_and_not_kept_is_found_in_the_ledger(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    what = deployment(tmp_path)
    desk = Desk(what)
    with desk._questions.transaction():
        for n in range(3):
            desk._questions.ask(_asked(f"q{n}"), ASKER, 0, time.time())

    def cut(*_: object, **__: object) -> None:
        raise _PowerCut

    with monkeypatch.context() as patch:
        if method == "settle":
            patch.setattr(Questions, "settle", cut)
        else:
            patch.setattr(PrivacyLedger, "debit", cut)
        with pytest.raises(BaseException):  # noqa: B017, PT011 (a PaidError where it was paid for)
            desk._answer()
    desk._questions.close()
    kept = [
        PrivacyLedger(what.ledger).kept_labels(entry.number).tolist() for entry in PrivacyLedger(what.ledger).entries()
    ]
    with running(what) as again:
        labels = [read(again, f"q{n}")["label"] for n in range(3)]
    if method == "settle":
        assert kept == [labels]
    assert paid(what) == ["q0", "q1", "q2"]


def test_a_ledger_that_is_away_loses_nothing(tmp_path: Path) -> None:
    what = deployment(tmp_path)
    ledger, away = Path(what.ledger), tmp_path / "away"
    with running(what) as desk:
        ask(desk, "q1")
        read(desk, "q1")
        ledger.rename(away)
        ask(desk, "q2")
        until = time.monotonic() + 20
        while not desk.trouble and time.monotonic() < until:
            time.sleep(0.01)
        assert desk.trouble
        away.rename(ledger)
        assert read(desk, "q2")["state"] == "answered"
        assert not desk.trouble
    assert paid(what) == ["q1", "q2"]


def test_an_old_copy_of_the_questions_buys_no_second_label(tmp_path: Path) -> None:
    what = deployment(tmp_path)
    with running(what) as desk:
        ask(desk, "q1", seconds=3600)
    copy = what.state.read_bytes()
    with running(what) as desk:
        for voter in (1, 2, 3):
            vote(desk, "q1", voter, 1)
        read(desk, "q1")
        ask(desk, "q2")
        read(desk, "q2")
    what.state.write_bytes(copy)
    with running(what) as desk:
        assert read(desk, "q1")["state"] == "lost"
        assert read(desk, "q2")["state"] == "answered"  # the ledger still had it
        with pytest.raises(RefusedError, match="label is lost"):
            ask(desk, "q1", seconds=3600)
    assert paid(what) == ["q1", "q2"]


def test_an_old_copy_of_the_ledger_is_a_second_budget_and_refused(tmp_path: Path) -> None:
    what = deployment(tmp_path)
    with running(what) as desk:
        ask(desk, "q1")
        read(desk, "q1")
        copy = Path(what.ledger).read_bytes()
        ask(desk, "q2")
        read(desk, "q2")
    Path(what.ledger).write_bytes(copy)
    with pytest.raises(LedgerError, match="older than the answers, 1 of which"):
        Desk(what)
    assert paid(what) == ["q1"]


def test_two_servers_do_not_share_questions_or_a_stream(tmp_path: Path) -> None:
    with running(deployment(tmp_path)) as desk:
        with pytest.raises(LedgerError, match="another server"):
            Desk(deployment(tmp_path))
        with running(deployment(tmp_path, name="other")) as other:
            ask(desk, "q1")
            read(desk, "q1")
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
        Questions(path, Ballot(3, 2))
