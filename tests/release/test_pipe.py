"""Questions on standard input, answers on standard output: what is read, refused, paid for, and what ends it."""

import json
import os
import resource
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from darrm.account import __main__ as account
from darrm.aggregator import load_release
from darrm.commands.command_line import run
from darrm.errors import BudgetExceededError, DeliveryError
from darrm.ledger.ledger import PrivacyLedger
from darrm.optimize.plurality import optimize_plurality
from darrm.privacy import PrivacyParams
from darrm.problem import Problem, Voters
from darrm.release import AnswerStream, pipe
from darrm.release import __main__ as release
from darrm.release.pipe import MOST_TOGETHER, LineWriter, Questions, _join_lines, answer_lines
from darrm.votes import votes_file
from darrm.votes.vote_arrays import VoteFormat
from tests.release.tables import table_of

NOTHING_PAID = "(nothing was paid for it; the questions before it are answered)"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    table_of([1.0, 1.0]).save(tmp_path / "table.json")  # the answer is the majority
    PrivacyLedger.create(tmp_path / "l.sqlite", PrivacyParams(1000, "0.1"))
    return tmp_path


def words(folder: Path, *more: str) -> list[str]:
    files = ["--table", str(folder / "table.json"), "--ledger", str(folder / "l.sqlite")]
    return ["stream", *files, *more]


class Asking:
    """Runs the command with a file as its standard input."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
        self.folder, self.monkeypatch, self.capfd = folder, monkeypatch, capfd

    def __call__(self, questions: bytes, *more: str) -> tuple[int, str, str]:
        path = self.folder / "questions"
        path.write_bytes(questions)
        with path.open("rb") as file:
            self.monkeypatch.setattr(sys, "stdin", file)
            status = run(lambda: release.main(words(self.folder, *more)))
        out, err = self.capfd.readouterr()
        assert "Traceback" not in err
        return status, out, err

    def paid(self) -> int:
        return PrivacyLedger(self.folder / "l.sqlite").accountant().queries


@pytest.fixture
def ask(folder: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Asking:
    return Asking(folder, monkeypatch, capfd)


READ = {
    "lines": b"1,1,0\n0,0,1\n1,1,1\n",
    "Windows": b"\xef\xbb\xbf1,1,0\r\n0,0,1\r\n1,1,1\r\n",
    "quotes and spaces": b'"1", 1,0\n0,0 ,"1"\n1.0,1e0,+1\n',
}


@pytest.mark.parametrize("name", READ)
def test_each_line_is_answered_and_paid_for(name: str, ask: Asking) -> None:
    status, out, err = ask(READ[name])
    assert (status, out) == (0, "1,1\n2,0\n3,1\n")
    assert err.startswith("done: 3 questions answered, 3 in all; 3 queries: (")
    assert ask(b"0,0,0\n", "--quiet") == (0, "4,0\n", "")
    assert ask(b"", "--quiet") == (0, "", "")
    assert ask.paid() == 4
    assert PrivacyLedger(ask.folder / "l.sqlite").undelivered() == ()


@pytest.mark.slow
def test_the_log_says_which_question_was_paid_by_which_entry(ask: Asking) -> None:
    assert ask(b"q 7,1,1,0\n", "--quiet", "--ids")[:2] == (0, "1,1\n")
    assert ask(b"0,0,1\n", "--quiet")[:2] == (0, "2,0\n")
    status, out, _ = ask('["\u00f1",0,0,1]\n["9/b","1",1,1]\n'.encode(), "--format", "json", "--quiet", "--ids")
    assert (status, out) == (0, '{"query": 3, "label": 0}\n{"query": 4, "label": 1}\n')
    path = ask.folder / "l.sqlite"
    assert [entry.questions for entry in PrivacyLedger(path).entries()] == [("q 7",), (), ("\u00f1", "9/b")]
    assert run(lambda: account.main(["--ledger", str(path), "--log"])) == 0
    told = ask.capfd.readouterr().out
    assert "entry 1 paid for q 7\n" in told
    assert "entry 3 paid for \u00f1, 9/b\n" in told


@pytest.mark.parametrize("question", ["", "x" * 101, "a\x07b"])
def test_an_id_that_no_log_can_show_is_refused_before_it_is_paid_for(question: str, ask: Asking) -> None:
    status, out, err = ask(f"first,1,1,0\n{question},1,1,0\n".encode(), "--ids")
    assert (status, out, err.count("\n")) == (2, "1,1\n", 1)
    assert "line 2: the id of the question must be printable text of at most 100 characters" in err
    assert NOTHING_PAID in err
    assert ask.paid() == 1
    ledger = PrivacyLedger(ask.folder / "l.sqlite")
    answers = stream(ask.folder, "in Python")
    if question:
        with pytest.raises(ValueError, match="the id of a question must be printable"):
            answers.answer([1, 1, 0], question=question)
    assert answers.answer([1, 1, 0], question="x" * 100) == 1
    assert ledger.entries()[-1].questions == ("x" * 100,)


def test_votes_without_the_id_that_was_announced_are_refused(ask: Asking) -> None:
    status, out, err = ask(b"1,1,0,1,0\n", "--ids")
    assert (status, out, ask.paid()) == (2, "", 0)
    assert "line 1 has 4 fields after its id" in err
    assert ask(b"1,1,0\n", "--ids")[0] == 2  # an id and counts of one vote
    with pytest.raises(ValueError, match="--layout must be labels or counts, got auto"):
        Questions(0, VoteFormat(4, 3), ids=True)  # 0,1,1,2 are four labels, or three counts


def test_json_lines(ask: Asking) -> None:
    status, out, _ = ask(b'[true, 1.0, 0]\r\n ["0",false,1]\n[1,1e0,1]', "--format", "json")
    assert status == 0
    assert [json.loads(line) for line in out.splitlines()] == [
        {"query": 1, "label": 1},
        {"query": 2, "label": 0},
        {"query": 3, "label": 1},
    ]
    status, out, _ = ask('["so, so","ñ","ñ"]\n'.encode(), "--format", "json", "--classes=so; so,ñ")
    assert status == 2
    status, out, _ = ask('["so; so","ñ","ñ"]\n'.encode(), "--format", "json", "--classes=so; so,ñ")
    assert (status, out) == (0, '{"query": 4, "label": "ñ"}\n')
    assert ask(b"[true,true,false]\n", "--format", "json", "--quiet", "--classes", "False,True")[1].endswith(
        '"True"}\n'
    )
    assert ask.paid() == 5


def test_named_classes(ask: Asking) -> None:
    assert ask(b'no,yes,yes\n"no", no ,yes\n', "--classes", "no,yes", "--quiet") == (0, "1,yes\n2,no\n", "")
    assert ask(b"5,8,8\n", "--classes", "5,8", "--quiet") == (0, "3,8\n", "")


def test_a_coin_stands_for_a_vote_that_is_late(ask: Asking) -> None:
    """Two of three agree, whatever the coin says; without the flag the line is refused, and paid for is nothing."""
    coin = ("--missing", "coin", "--quiet")
    assert ask(b"1,,1\n0,0,1\n0, NA ,0\n", *coin) == (0, "1,1\n2,0\n3,0\n", "")
    status, out, _ = ask(b"[1,null,1]\n[0,0,1]\n", "--format", "json", *coin)
    assert (status, [json.loads(line)["label"] for line in out.splitlines()]) == (0, [1, 0])
    found = {ask(b"1,,0\n" * 40, *coin)[1].count(",1") for _ in range(3)}
    assert any(5 < ones < 35 for ones in found)
    paid = ask.paid()
    for line, more in ((b"1,,1\n", ()), (b"[1,null,1]\n", ("--format", "json"))):
        status, out, err = ask(line, *more)
        assert (status, out) == (2, "")
        assert "--missing coin" in err
    assert ask(b"1,null,1\n", *coin)[0] == 2
    assert ask.paid() == paid


BAD = {
    "missing": (b"1,,0", "line 2, field 2: the vote is missing ('')", ()),
    "a class too many": (b"1,2,0", "line 2, field 2: '2' is none of the classes '0', '1'", ()),
    "a voter too many": (b"1,1,0,1", "line 2 has 4 fields, where a question has 3 votes, one of each voter or 2", ()),
    "blank": (b"", "line 2 is blank", ()),
    "spaces": (b"   ", "line 2 has 1 fields", ()),
    "a quote": (b'1,"1,0', "line 2: unexpected end of data", ()),
    "an old end": (b"1,1,0\r1,1,0", "line 2: new-line character seen", ()),
    "a mark": (b"\xef\xbb\xbf1,1,0", "line 2, field 1: '\\ufeff1' is no number", ()),
    "a sum": (b"3,1", "line 2: the sum of row 0 of the vote counts must be K = 3, got 4", ()),
    "JSON": (b"[1,1,0]", "line 2, field 1: '[1' is no number; name classes that are words (--classes A,B); JSON", ()),
    "null": (b"[1,null,0]", "line 2, field 2: the vote is missing (null or NaN)", ("--format", "json")),
    "JSON NaN": (b"[1,0,NaN]", "line 2, field 3: the vote is missing (null or NaN)", ("--format", "json")),
    "a list": (b"[1,[1],0]", 'line 2, field 2: ["1"] is no vote', ("--format", "json")),
    "an object": (b'{"votes": [1,1,0]}', "line 2 is no JSON array", ("--format", "json")),
    "CSV": (b"1,1,0", "line 2 is no JSON (Extra data", ("--format", "json")),
    "a nest": (b"[" * 100_000, "line 2 is no JSON", ("--format", "json")),
    "blank JSON": (b" ", "line 2 is blank", ("--format", "json")),
    "empty": (b"[]", "line 2 has 0 fields", ("--format", "json")),
    "many digits": (b"[1,1," + b"9" * 5000 + b"]", "line 2, field 3: '9999", ("--format", "json")),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_line_is_named_and_costs_nothing(name: str, ask: Asking) -> None:
    line, message, more = BAD[name]
    good = b"[0,1,1]\n" if "json" in more else b"no,yes,yes\n" if more else b"0,1,1\n"
    status, out, err = ask(good + line + b"\n" + good, *more)
    assert status == 2
    assert out == ('{"query": 1, "label": 1}\n' if "json" in more else "1,yes\n" if more else "1,1\n")
    assert err.startswith("error: " + message)
    assert err.count("\n") == 1
    assert NOTHING_PAID in err
    assert ask.paid() == 1
    assert PrivacyLedger(ask.folder / "l.sqlite").undelivered() == ()


def test_a_huge_line_is_refused_before_it_fills_the_memory(ask: Asking, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipe, "LONGEST_LINE", 2**20)
    monkeypatch.setattr(votes_file, "LONGEST_LINE", 2**20)
    status, out, err = ask(b"1,1,0\n" + b"1," * 2**22)
    assert (status, out) == (2, "1,1\n")
    assert "line 2 has more than 1,048,576 bytes" in err
    assert ask.paid() == 1


def test_counts_and_labels_are_told_by_the_number_of_fields(ask: Asking) -> None:
    assert ask(b"3,0\n1,1,0\n1,2\n", "--quiet") == (0, "1,0\n2,1\n3,1\n", "")
    assert ask(b"1,2\n", "--layout", "labels")[0] == 2
    status, _, err = ask(b"1,1,0\n", "--layout", "counts")
    assert "line 1 has 3 fields, where a question has 2 counts, one of each class (" in err
    problem = Problem(Voters(3, PrivacyParams("inf"), overlap=1), PrivacyParams(1, "1e-5"), classes=3)
    optimize_plurality(problem).save(ask.folder / "table.json")
    status, _, err = ask(b"1,1,1\n")
    assert "--layout must be labels or counts, got auto, with 3 voters and 3 classes" in err
    assert (status, ask.paid()) == (2, 3)


def test_the_budget_ends_it_with_a_sentence_after_all_that_fits(ask: Asking) -> None:
    (ask.folder / "l.sqlite").unlink()
    lines = "".join(f"q{number},1,1,0\n" for number in range(60)).encode()  # fewer than are answered together
    status, out, err = ask(lines, "--ids", "--create-budget", "0.5,1e-3")
    answered = len(out.splitlines())
    assert 5 <= answered < 60  # 0.06 each
    assert (status, err.count("\n")) == (2, 1)
    assert "the budget (0.5, 0.001) does not admit" in err
    assert ask.paid() == answered
    ledger = PrivacyLedger(ask.folder / "l.sqlite")
    assert ledger.spent.epsilon <= 0.5
    assert [id_ for entry in ledger.entries() for id_ in entry.questions] == [f"q{n}" for n in range(answered)]
    assert ledger.undelivered() == ()
    assert ledger.queries_that_fit(ledger.accountant().costs[0].kind) == 0
    assert ask(b"1,1,0\n")[:2] == (2, "")
    status, _, err = ask(b"1,1,0\n", "--create-budget", "0.5,1e-3")
    assert "it exists already and paid for" in err


def test_the_first_question_is_agreed_on(ask: Asking) -> None:
    votes = [b"1,1,0\n", b"0,0,1\n", b"1,1,1\n", b"0,0,0\n"]
    assert ask(b"".join(votes[:2]), "--first", "1", "--quiet")[:2] == (0, "1,1\n2,0\n")
    assert ask(b"".join(votes), "--first", "1", "--quiet")[:2] == (0, "3,1\n4,0\n")  # what is answered is passed over
    assert ask(b"".join(votes[2:]), "--first", "3", "--quiet")[:2] == (0, "")
    status, out, err = ask(b"1,1,1\n", "--first", "6")
    assert (status, out) == (2, "")
    assert "--first must be at most 5, for 4 are answered, got 6" in err
    assert ask.paid() == 4
    assert ask(b"1,1,1\n", "--first", "1", "--stream", "other", "--quiet")[:2] == (0, "1,1\n")


@pytest.mark.parametrize(
    ("more", "line"),
    [
        (("--first", "0"), "--first must be an integer of at least 1"),
        (("--stream", "a\tb"), "the name of a stream must be printable"),
        (("--ledger", ":memory:"), "--ledger must be a file"),
    ],
)
def test_flags_that_do_not_fit_are_refused(more: tuple[str, ...], line: str, ask: Asking) -> None:
    status, out, err = ask(b"1,1,0\n", *more)
    assert (status, out) == (2, "")
    assert line in err
    assert err.count("\n") == 1
    assert ask.paid() == 0


# the command in a process of its own


def started(folder: Path, *more: str, stdout: Any = subprocess.PIPE) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "darrm.release", *words(folder, *more)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=stdout, stderr=subprocess.PIPE)


def one(process: subprocess.Popen[bytes], question: bytes) -> bytes:
    """Ask one question and wait for its answer."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(question)
    process.stdin.flush()
    return process.stdout.readline()


@pytest.mark.slow
@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_and_the_last_answer_comes_again(sent: signal.Signals, folder: Path, ask: Asking) -> None:
    with started(folder) as process:
        assert one(process, b"1,1,0\n") == b"1,1\n"
        assert one(process, b"0,1,0\n") == b"2,0\n"
        process.send_signal(sent)
        out, err = process.communicate()
    assert out == b""
    status = {b"error: interrupted\n": 130}.get(err, 3)  # or while it saw that the answer was written
    assert process.returncode == status
    assert err.startswith(b"error: interrupted")
    assert [entry.number for entry in PrivacyLedger(folder / "l.sqlite").undelivered()] == [2]
    assert ask(b"1,1,1\n", "--quiet") == (0, "2,0\n3,1\n", "")  # nobody said that the answer arrived
    assert ask.paid() == 3


@pytest.mark.slow
@pytest.mark.parametrize("end", ["pipe", "socket"])
def test_a_reader_that_may_have_died_gets_the_last_answers_again_until_it_has_them(
    end: str, folder: Path, ask: Asking
) -> None:
    """The end of the questions is no receipt: the death of the reader ends them, too."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        for first, answers in ((1, b"1,1\n2,0\n"), (1, b"1,1\n2,0\n"), (3, b"")):
            command = [sys.executable, "-m", "darrm.release", *words(folder, "--quiet", "--first", str(first))]
            out = theirs.fileno() if end == "socket" else subprocess.PIPE
            done = subprocess.run(command, input=b"1,1,0\n0,0,1\n" * (first == 1), stdout=out, check=False)
            assert done.returncode == 0
            if end == "pipe":
                assert done.stdout == answers
            elif answers:
                assert ours.recv(100) == answers
    assert (ask(b"", "--quiet"), ask.paid()) == ((0, "", ""), 2)


@pytest.mark.slow
def test_answers_to_nobody_do_not_wait(folder: Path, ask: Asking) -> None:
    """A device has no reader that could die: the end of the questions is enough."""
    command = [sys.executable, "-m", "darrm.release", *words(folder)]
    with Path(os.devnull).open("wb") as nobody:
        found = subprocess.run(command, input=b"1,1,0\n", stdout=nobody, stderr=subprocess.PIPE, check=False)
    assert (found.returncode, b"Traceback" in found.stderr) == (0, False)
    assert (ask(b"")[:2], ask.paid()) == ((0, ""), 1)


@given(st.lists(st.sampled_from([1, 8, 1000, 2047, 2048, select.PIPE_BUF - 1, select.PIPE_BUF, 6000]), max_size=30))
def test_answers_are_written_in_pieces_that_a_pipe_takes_whole(sizes: list[int]) -> None:
    """Together they are all lines, none is broken, and none but a longer line is more than a pipe takes at once."""
    lines = [bytes([number]) * size for number, size in enumerate(sizes)]
    at, room = iter(lines), 0
    for piece in _join_lines(lines):
        held = [next(at)]
        while sum(map(len, held)) < len(piece):
            held.append(next(at))
        assert b"".join(held) == piece
        assert len(piece) <= select.PIPE_BUF or len(held) == 1
        assert len(held[0]) > room  # else it would have stood in the piece before
        room = select.PIPE_BUF - len(piece)
    assert not list(at)


def test_a_line_that_may_be_cut_off_is_not_paid_for(ask: Asking) -> None:
    """A vote may be missing, the last number may have had more digits, or labels may be what is left of counts."""
    status, out, err = ask(b"1,1,0\n1,1,", "--missing", "coin")
    assert (status, out) == (2, "1,1\n")
    assert "line 2 has no end and may have been cut off: end it with a line break" in err
    for line in (b"1,1,0", b"2,1", b"1,1,NA"):
        assert "line 1 has no end" in ask(line, "--missing", "coin")[2]
    for line in (b",,\n", b"NA, NA ,\n"):
        assert "has no vote at all" in ask(line, "--missing", "coin")[2]
    assert "is no JSON" in ask(b"[1,1,0", "--format", "json")[2]
    assert "is no number" in ask(b"[Infinity,1,0]\n", "--missing", "coin", "--format", "json")[2]
    assert ask.paid() == 1


class Torn(LineWriter):
    """Dies, as by a power failure, when it has written some bytes of its first answers."""

    size = 0

    def write(self, first: int, labels: list[Any]) -> None:
        if labels:
            line = b"".join(self.format_line(number, label) for number, label in enumerate(labels, first))
            os.write(self._descriptor, line[: self.size])
            raise KeyboardInterrupt


def torn_at(folder: Path, end: int, size: int, *, json_lines: bool) -> None:
    (folder / "question").write_bytes(b"1,1,0\n")
    writer = Torn(end, json_lines=json_lines)
    writer.size = size
    with (folder / "question").open("rb") as source, pytest.raises(DeliveryError, match="interrupted; answer 1 is"):
        answer_lines(stream(folder), writer, Questions(source.fileno(), VoteFormat(3)))


def written_again(folder: Path, end: int, *, json_lines: bool) -> None:
    with Path(os.devnull).open("rb") as none:
        questions = Questions(none.fileno(), VoteFormat(3))
        release = stream(folder)
        release.close = lambda: None  # type: ignore[method-assign]  # it dies before it acknowledges
        answer_lines(release, LineWriter(end, json_lines=json_lines), questions)


@pytest.mark.parametrize("json_lines", [False, True])
@pytest.mark.parametrize("before", [b"", b"7,1\n"])
def test_a_torn_line_is_cut_before_its_answer_comes_again(json_lines: bool, before: bytes, folder: Path) -> None:
    """`132` and `1321281,1`, glued together, would be the answer to another question."""
    answers, ledger = folder / "answers", PrivacyLedger(folder / "l.sqlite")
    line = b'{"query": 1, "label": 1}\n' if json_lines else b"1,1\n"
    answers.write_bytes(before)
    with answers.open("ab") as end:
        torn_at(folder, end.fileno(), len(line) - 1, json_lines=json_lines)
    for size in (0, 1, len(line) // 2, len(line) - 1):
        answers.write_bytes(before + line[:size])
        with answers.open("ab") as end:
            written_again(folder, end.fileno(), json_lines=json_lines)
        assert answers.read_bytes() == before + line
    answers.write_bytes(before + line)  # whole, and it comes twice
    with answers.open("ab") as end:
        written_again(folder, end.fileno(), json_lines=json_lines)
    assert answers.read_bytes() == before + 2 * line
    assert ledger.accountant().queries == 1


@pytest.mark.parametrize("end", [b"2", b"5,1", b"1,0", b"x"])
def test_another_line_without_its_end_is_refused_before_anything_is_paid(end: bytes, folder: Path) -> None:
    answers = folder / "answers"
    with answers.open("ab") as file:
        torn_at(folder, file.fileno(), 0, json_lines=False)
    line = f"the output ends in {end.decode()!r}, a line without its end"
    for content in (end, b"7,1\n" + end):
        answers.write_bytes(content)
        with answers.open("ab") as file, pytest.raises(ValueError, match=line):
            written_again(folder, file.fileno(), json_lines=False)
        assert answers.read_bytes() == content
    answers.write_bytes(b"7,1\n")
    with answers.open("ab") as file:
        written_again(folder, file.fileno(), json_lines=False)
    assert answers.read_bytes() == b"7,1\n1,1\n"
    assert PrivacyLedger(folder / "l.sqlite").accountant().queries == 1


@pytest.mark.slow
@pytest.mark.parametrize("room", [1, 2, 3, 5, 9])
def test_a_disk_that_fills_up_within_a_line_leaves_whole_lines(room: int, folder: Path) -> None:
    size = (folder / "l.sqlite").stat().st_size + 2**17  # for the ledger, whose files are on the same disk
    answers = folder / "answers"
    answers.write_bytes(b"7,1\n" * (size // 4))
    command = [sys.executable, "-m", "darrm.release", *words(folder, "--quiet")]

    def limited() -> None:
        most = len(answers.read_bytes()) + room
        resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))

    for questions, limit, status in ((b"1,1,0\n0,0,1\n1,1,1\n", limited, 3), (b"0,0,0\n", None, 0)):
        with answers.open("ab") as end:
            done = subprocess.run(command, input=questions, stdout=end, check=False, preexec_fn=limit)
        assert done.returncode == status
        assert answers.read_bytes().endswith(b"4,0\n" if status == 0 else b"7,1\n")
    assert answers.read_bytes()[size // 4 * 4 :] == b"1,1\n2,0\n3,1\n4,0\n"


@pytest.mark.slow
def test_a_full_disk_leaves_the_answers_in_the_ledger(folder: Path, ask: Asking) -> None:
    with Path("/dev/full").open("wb") as full, started(folder, stdout=full) as process:
        _, err = process.communicate(b"1,1,0\n0,0,1\n")
    assert process.returncode == 3
    assert b"No space left on device; answers 1 to 2 are paid for and kept in the ledger: start again" in err
    assert err.count(b"\n") == 1
    assert ask(b"1,1,1\n", "--quiet") == (0, "1,1\n2,0\n3,1\n", "")
    assert ask.paid() == 3


@pytest.mark.slow
@pytest.mark.parametrize(("end", "line"), [(">&-", b"standard output is closed"), ("<&-", b"standard input is closed")])
def test_a_closed_end_is_one_line(end: str, line: bytes, folder: Path, ask: Asking) -> None:
    command = f"{sys.executable} -m darrm.release {' '.join(words(folder))} {end}"
    done = subprocess.run(command, shell=True, capture_output=True, input=b"1,1,0\n", check=False)  # noqa: S602
    assert (done.returncode, done.stderr.count(b"\n")) == (2, 1)
    assert line in done.stderr
    assert ask.paid() == 0


# the pipe itself


def stream(folder: Path, name: str = "") -> AnswerStream:
    return AnswerStream(load_release(folder / "table.json"), PrivacyLedger(folder / "l.sqlite"), stream=name)


@pytest.mark.slow
@pytest.mark.parametrize("blocking", [True, False])
def test_what_is_sent_ahead_is_paid_for_together_and_what_comes_is_not_waited_for(blocking: bool, folder: Path) -> None:
    (reading, asked), (answers, writing) = os.pipe(), os.pipe()
    os.set_blocking(reading, blocking)
    os.set_blocking(writing, blocking)
    amount = 3000  # more answers than a pipe holds where they wait for their reader
    release, writer = stream(folder), LineWriter(writing, json_lines=True)
    questions = Questions(reading, VoteFormat(3))
    done: list[int] = []
    thread = threading.Thread(target=lambda: done.append(answer_lines(release, writer, questions)))
    thread.start()
    with os.fdopen(asked, "wb") as ask, os.fdopen(answers, "rb") as back:
        ask.write(b"1,1,")  # half a question is none
        ask.flush()
        ask.write(b"0\n")
        ask.flush()
        assert back.readline() == b'{"query": 1, "label": 1}\n'
        ask.write(b"0,0,0\n" * amount)
        ask.close()
        for number in range(2, amount + 2):
            assert json.loads(back.readline()) == {"query": number, "label": 0}
    thread.join(60)
    assert done == [amount + 1]
    counts = [entry.count for entry in release.ledger.entries()]
    assert counts[0] == 1
    assert max(counts) == MOST_TOGETHER
    assert sum(counts) == amount + 1
    os.close(reading)
    os.close(writing)


@pytest.mark.slow
def test_two_processes_share_a_budget_but_not_a_stream(folder: Path, ask: Asking) -> None:
    with started(folder, "--quiet") as mine, started(folder, "--quiet", "--stream", "other") as other:
        assert one(mine, b"1,1,0\n") == b"1,1\n"
        assert one(other, b"0,0,1\n") == b"1,0\n"
        with started(folder, "--quiet") as late:  # takes the stream over
            assert one(late, b"1,1,1\n") == b"1,1\n"  # what mine was not heard of
            assert late.stdout is not None
            assert late.stdout.readline() == b"2,1\n"
            assert one(mine, b"0,0,0\n") == b""
            assert mine.wait() == 2
            assert mine.stderr is not None
            err = mine.stderr.read()
            assert one(late, b"0,0,0\n") == b"3,0\n"
            assert late.communicate() == (b"", b"")
        assert one(other, b"1,1,1\n") == b"2,1\n"
        assert other.communicate() == (b"", b"")
    assert b"another process answers this stream (entry 3 of the ledger)" in err
    assert err.count(b"\n") == 1
    outputs = [entry.output for entry in PrivacyLedger(folder / "l.sqlite").entries()]
    assert outputs == ["-", "-other", "-", "-", "-other"]
    assert ask.paid() == 5


def test_a_budget_that_another_process_empties_in_between(folder: Path) -> None:
    (folder / "l.sqlite").unlink()
    PrivacyLedger.create(folder / "l.sqlite", PrivacyParams("0.5", "1e-3"))
    release, other = stream(folder), stream(folder, "other")
    release.answer([1, 1, 0])
    with pytest.raises(BudgetExceededError, match="0 still fit"):
        list(other.answers([[0, 0, 0]] * 100))
    assert 1 < other.answered < 99
    with pytest.raises(BudgetExceededError, match="0 still fit"):
        release.answer([1, 1, 0])
    assert (release.answered, stream(folder).waiting()) == (1, [1])


ASKER = """
import os, select, signal, subprocess, sys
process = subprocess.Popen(sys.argv[2:], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
for question in (b"1,1,0\\n", b"0,0,1\\n"):
    process.stdin.write(question)
    process.stdin.flush()
    select.select([process.stdout], [], [])
    if question[:1] == b"1" or sys.argv[1] == "read":
        os.read(process.stdout.fileno(), 100)
print(process.pid, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.slow
@pytest.mark.parametrize("last", ["read", "unread"])
def test_an_answer_is_kept_where_the_program_that_asks_is_killed(last: str, folder: Path, ask: Asking) -> None:
    """Its death ends the questions, which is no sign that it has kept the answer."""
    command = [sys.executable, "-m", "darrm.release", *words(folder)]
    asker = subprocess.run([sys.executable, "-c", ASKER, last, *command], capture_output=True, check=False)
    assert asker.returncode == -signal.SIGKILL
    number = int(asker.stdout)
    for _ in range(600):  # it ends by itself
        if not Path(f"/proc/{number}").exists():
            break
        time.sleep(0.05)
    assert ask(b"1,1,0\n0,0,1\n1,1,1\n", "--first", "1")[:2] == (0, "2,0\n3,1\n")
    assert ask.paid() == 3


@pytest.mark.slow
def test_a_reader_that_has_gone_loses_no_answer(folder: Path, ask: Asking) -> None:
    with started(folder) as process:
        assert one(process, b"1,1,0\n") == b"1,1\n"
        assert process.stdout is not None
        process.stdout.close()
        assert process.stdin is not None
        process.stdin.write(b"0,1,0\n")
        process.stdin.close()
        assert process.stderr is not None
        err = process.stderr.read()
        assert process.wait() == 3
    assert b"Broken pipe; answer 2 is paid for and kept in the ledger: start again" in err
    assert ask.paid() == 2
    assert ask(b"", "--quiet") == (0, "2,0\n", "")
    assert ask(b"", "--quiet") == (0, "", "")
