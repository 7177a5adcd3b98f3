"""Questions on standard input, answers on standard output: what is read, refused, paid for, and what ends it."""

import errno
import json
import os
import re
import select
import signal
import socket
import subprocess
import sys
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from darrm.account import __main__ as account
from darrm.commands.command_line import run
from darrm.errors import DeliveryError
from darrm.ledger.ledger import PrivacyLedger
from darrm.optimize.plurality import optimize_plurality
from darrm.privacy import PrivacyParams
from darrm.problem import Problem, Voters
from darrm.release import AnswerStream, open_release, pipe
from darrm.release import __main__ as release
from darrm.release.pipe import MOST_TOGETHER, LineWriter, Questions, _count_torn_bytes, _join_lines, answer_lines
from darrm.votes import votes_file
from darrm.votes.vote_arrays import VoteFormat
from tests.release.support import raise_error, table_of

WORDS = ["stream", "--table", "table.json", "--ledger", "l.sqlite"]
COMMAND = [sys.executable, "-m", "darrm.release", *WORDS]
JSON = ("--format", "json")
COIN = ("--missing", "coin")
NOTHING_PAID = "(nothing was paid for it; the questions before it are answered)"


@dataclass
class Asker:
    """Runs the command with a file as its standard input."""

    ledger: PrivacyLedger
    monkeypatch: pytest.MonkeyPatch
    capfd: pytest.CaptureFixture[str]

    def __call__(self, questions: bytes, *options: str) -> tuple[int, str, str]:
        Path("questions").write_bytes(questions)
        with Path("questions").open("rb") as file:
            self.monkeypatch.setattr(sys, "stdin", file)
            status = run(lambda: release.main([*WORDS, *options]))
        output, error = self.capfd.readouterr()
        assert "Traceback" not in error
        return status, output, error

    def count_paid(self) -> int:
        return self.ledger.accountant().queries


@pytest.fixture
def ask(ledger: PrivacyLedger, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Asker:
    return Asker(ledger, monkeypatch, capfd)


ANSWERED: list[tuple[bytes, tuple[str, ...], str]] = [
    (b"1,1,0\n0,0,1\n1,1,1\n", (), "1,1\n2,0\n3,1\n"),
    (b"\xef\xbb\xbf1,1,0\r\n0,0,1\r\n1,1,1\r\n", (), "1,1\n2,0\n3,1\n"),
    (b'"1", 1,0\n0,0 ,"1"\n1.0,1e0,+1\n', (), "1,1\n2,0\n3,1\n"),
    (b"3,0\n1,1,0\n1,2\n", (), "1,0\n2,1\n3,1\n"),  # counts and labels
    (b'no,yes,yes\n"no", no ,yes\n', ("--classes", "no,yes"), "1,yes\n2,no\n"),
    (b"5,8,8\n", ("--classes", "5,8"), "1,8\n"),
    (b"[true, 1.0, 0]\r\n[1,1e0,1]", JSON, '{"query": 1, "label": 1}\n{"query": 2, "label": 1}\n'),
    (b' ["0",false,1]\n', JSON, '{"query": 1, "label": 0}\n'),
    ('["so; so","ñ","ñ"]\n'.encode(), (*JSON, "--classes=so; so,ñ"), '{"query": 1, "label": "ñ"}\n'),
    (b"[true,true,false]\n", (*JSON, "--classes", "False,True"), '{"query": 1, "label": "True"}\n'),
    (b"1,,1\n0,0,1\n0, NA ,0\n", COIN, "1,1\n2,0\n3,0\n"),  # two of three agree, whatever the coin is
    (b"[1,null,1]\n", (*JSON, *COIN), '{"query": 1, "label": 1}\n'),
]


@pytest.mark.parametrize(("questions", "options", "answers"), ANSWERED)
def test_each_line_is_answered_and_paid_for(
    questions: bytes, options: tuple[str, ...], answers: str, ask: Asker
) -> None:
    count = answers.count("\n")
    status, output, error = ask(questions, *options)
    assert (status, output) == (0, answers)
    assert f"done: {count} questions answered, {count} in all; {ask.ledger.spent}" in error
    assert ask(b"", "--quiet") == (0, "", "")
    assert ask.count_paid() == count
    assert ask.ledger.undelivered() == ()


def test_coin_replaces_a_missing_vote_that_decides(ask: Asker) -> None:
    outputs = [ask(b"1,,0\n" * 40, *COIN, "--quiet")[1] for _ in range(3)]
    # a fair coin leaves 6 to 34 of 40 in all three with probability 2e-6 at most
    assert any(5 < output.count(",1\n") < 35 for output in outputs)


@pytest.mark.slow
def test_log_names_the_questions_of_each_entry(ask: Asker) -> None:
    assert ask(b"q 7,1,1,0\n", "--quiet", "--ids")[1] == "1,1\n"
    assert ask(b"0,0,1\n", "--quiet")[1] == "2,0\n"
    status, _, _ = ask('["\u00f1",0,0,1]\n["9/b","1",1,1]\n'.encode(), *JSON, "--quiet", "--ids")
    assert status == 0
    assert [entry.questions for entry in ask.ledger.entries()] == [("q 7",), (), ("\u00f1", "9/b")]
    assert run(lambda: account.main(["--ledger", "l.sqlite", "--log"])) == 0
    output = ask.capfd.readouterr().out
    assert "entry 1 paid for q 7\n" in output
    assert "entry 3 paid for \u00f1, 9/b\n" in output


def test_lines_that_have_arrived_are_paid_for_together(ask: Asker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipe, "MOST_TOGETHER", 3)
    assert ask(b"1,1,0\n" * 7, "--quiet")[0] == 0
    assert [entry.count for entry in ask.ledger.entries()] == [3, 3, 1]


def test_question_in_python_has_an_id(ledger: PrivacyLedger) -> None:
    answers = open_release(table_of(), ledger)
    with pytest.raises(ValueError, match="the id of a question must be printable"):
        answers.answer([1, 1, 0], question="a\x07b")
    answers.answer([1, 1, 0], question="x" * 100)
    assert [entry.questions for entry in ledger.entries()] == [("x" * 100,)]


BAD_LINES: list[tuple[bytes, tuple[str, ...], str]] = [
    (b"1,,0", (), "line 2, field 2: the vote is missing ('')"),
    (b"1,null,1", COIN, "line 2, field 2: 'null' is no vote"),
    (b"1,2,0", (), "line 2, field 2: '2' is none of the classes '0', '1'"),
    (b"1,1,0,1", (), "line 2 has 4 fields, where a question has 3 votes, one of each voter or 2"),
    (b"1,2", ("--layout", "labels"), "line 2 has 2 fields"),
    (b"1,1,0", ("--layout", "counts"), "line 2 has 3 fields, where a question has 2 counts, one of each class ("),
    (b"NA, NA ,NA", COIN, "line 2 has no vote at all"),
    (b"[null,null,null]", (*JSON, *COIN), "line 2 has no vote at all"),
    (b"", (), "line 2 is blank"),
    (b"   ", (), "line 2 has 1 fields"),
    (b'1,"1,0', (), "line 2: unexpected end of data"),
    (b"1,1,0\r1,1,0", (), "line 2: new-line character seen"),
    (b"\xef\xbb\xbf1,1,0", (), "line 2, field 1: '\\ufeff1' is no number"),
    (b"3,1", (), "line 2: the sum of row 0 of the vote counts must be K = 3, got 4"),
    (b",,", COIN, "line 2 has no vote at all"),
    (b"[1,1,0]", (), "line 2, field 1: '[1' is no number; name classes that are words (--classes A,B); JSON"),
    (b"[1,null,0]", JSON, "line 2, field 2: the vote is missing (null or NaN)"),
    (b"[1,0,NaN]", JSON, "line 2, field 3: the vote is missing (null or NaN)"),
    (b"[Infinity,1,0]", (*JSON, *COIN), "line 2, field 1: 'Infinity' is no number"),
    (b"[1,[1],0]", JSON, 'line 2, field 2: ["1"] is no vote'),
    (b'{"votes": [1,1,0]}', JSON, "line 2 is no JSON array"),
    (b"1,1,0", JSON, "line 2 is no JSON (Extra data"),
    (b"[" * 100_000, JSON, "line 2 is no JSON"),
    (b" ", JSON, "line 2 is blank"),
    (b"[]", JSON, "line 2 has 0 fields"),
    (b"[1,1," + b"9" * 5000 + b"]", JSON, "line 2, field 3: '9999"),
    (b"x,1,1,0,1", ("--ids",), "line 2 has 4 fields after its id"),
    *(
        (question + b",1,1,0", ("--ids",), "line 2: the id of the question must be printable text of at most 100")
        for question in (b"", b"x" * 101, b"a\x07b")
    ),
]


@pytest.mark.parametrize(("line", "options", "message"), BAD_LINES)
def test_bad_line_is_named_and_costs_nothing(line: bytes, options: tuple[str, ...], message: str, ask: Asker) -> None:
    good = b"[0,1,1]\n" if "json" in options else b"id,0,1,1\n" if "--ids" in options else b"0,1,1\n"
    good = b"1,2\n" if "counts" in options else good
    status, output, error = ask(good + line + b"\n" + good, *options)
    assert (status, output) == (2, '{"query": 1, "label": 1}\n' if "json" in options else "1,1\n")
    assert error.startswith(f"error: {message}")
    assert error.count("\n") == 1
    assert NOTHING_PAID in error
    assert ("--missing coin" in error) == (re.search("the vote is missing|has [0-2] fields", message) is not None)
    assert ask.count_paid() == 1
    assert ask.ledger.undelivered() == ()


@pytest.mark.parametrize(
    ("question", "options", "message"),
    [
        (b"1,1,", COIN, "line 1 has no end and may have been cut off: end it with a line break"),
        (b"1,1,NA", COIN, "line 1 has no end"),
        (b"1,1,0", COIN, "line 1 has no end"),  # the last number may have had more digits
        (b"2,1", COIN, "line 1 has no end"),  # labels may be the rest of counts
        (b"[1,1,0", JSON, "is no JSON"),
    ],
)
def test_line_that_may_be_cut_off_is_not_paid_for(
    question: bytes, options: tuple[str, ...], message: str, ask: Asker
) -> None:
    status, output, error = ask(question, *options)
    assert (status, output, ask.count_paid()) == (2, "", 0)
    assert message in error


def test_long_line_is_refused_before_it_fills_the_memory(ask: Asker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipe, "LONGEST_LINE", 2**20)
    monkeypatch.setattr(votes_file, "LONGEST_LINE", 2**20)
    status, output, error = ask(b"1,1,0\n" + b"1," * 2**22)
    assert (status, output, ask.count_paid()) == (2, "1,1\n", 1)
    assert "line 2 has more than 1,048,576 bytes" in error
    monkeypatch.setattr(pipe, "LONGEST_LINE", 5)
    assert "line 1 has no end" in ask(b"1,1,0")[2]  # five bytes are allowed


def test_layout_is_required_where_labels_look_like_counts(ask: Asker) -> None:
    with pytest.raises(ValueError, match="--layout must be labels or counts, got auto"):
        Questions(0, VoteFormat(4, 3), ids=True)  # 0,1,1,2 are four labels, or an id and three counts
    problem = Problem(Voters(3, PrivacyParams("inf"), overlap=1), PrivacyParams(1, "1e-5"), classes=3)
    optimize_plurality(problem).save(Path("table.json"))
    status, output, error = ask(b"1,1,1\n")
    assert (status, output, ask.count_paid()) == (2, "", 0)
    assert "--layout must be labels or counts, got auto, with 3 voters and 3 classes" in error


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--first", "0"), "--first must be an integer of at least 1"),
        (("--stream", "a\tb"), "the name of a stream must be printable"),
        (("--ledger", ":memory:"), "--ledger must be a file"),
    ],
)
def test_stream_refuses_bad_options(options: tuple[str, ...], message: str, ask: Asker) -> None:
    status, output, error = ask(b"1,1,0\n", *options)
    assert (status, output, error.count("\n"), ask.count_paid()) == (2, "", 1, 0)
    assert message in error


def test_budget_ends_a_stream_after_all_questions_that_fit(ask: Asker) -> None:
    Path("l.sqlite").unlink()
    lines = "".join(f"q{number},1,1,0\n" for number in range(60)).encode()  # fewer than are answered together
    status, output, error = ask(lines, "--ids", "--create-budget", "0.5,1e-3")
    answered = output.count("\n")
    assert 5 <= answered < 60  # 0.06 each
    assert (status, error.count("\n")) == (2, 1)
    assert "the budget (0.5, 0.001) does not admit" in error
    ledger = PrivacyLedger("l.sqlite")
    assert [name for entry in ledger.entries() for name in entry.questions] == [f"q{n}" for n in range(answered)]
    assert ledger.undelivered() == ()
    assert ledger.queries_that_fit(ledger.accountant().costs[0].kind) == 0
    assert "it exists already and paid for" in ask(b"1,1,0\n", "--create-budget", "0.5,1e-3")[2]
    Path("l.sqlite").unlink()
    assert ask(b"1,1,0\n", "--quiet", "--create-budget", "0.06,3e-8") == (0, "1,1\n", "")  # one question fits


def test_first_names_the_number_of_the_first_line(ask: Asker) -> None:
    votes = [b"1,1,0\n", b"0,0,1\n", b"1,1,1\n", b"0,0,0\n"]
    assert ask(b"".join(votes[:2]), "--first", "1", "--quiet")[:2] == (0, "1,1\n2,0\n")
    status, output, error = ask(b"".join(votes), "--first", "1")
    assert (status, output) == (0, "3,1\n4,0\n")  # answered lines are skipped
    assert "done: 2 questions answered, 4 in all" in error
    assert ask(b"".join(votes[2:]), "--first", "3", "--quiet")[:2] == (0, "")
    status, output, error = ask(b"1,1,1\n", "--first", "6")
    assert (status, output, ask.count_paid()) == (2, "", 4)
    assert "--first must be at most 5, for 4 are answered, got 6" in error
    assert ask(b"1,1,1\n", "--first", "1", "--stream", "other", "--quiet")[:2] == (0, "1,1\n")


# files of answers, which a power failure may tear


@given(st.lists(st.sampled_from([1, 8, 1000, 2047, 2048, select.PIPE_BUF - 1, select.PIPE_BUF, 6000]), max_size=30))
def test_answers_are_written_in_pieces_that_a_pipe_takes_whole(sizes: list[int]) -> None:
    lines = [bytes([number]) * size for number, size in enumerate(sizes)]
    remaining_lines, room = iter(lines), 0
    for piece in _join_lines(lines):
        piece_lines = [next(remaining_lines)]
        while sum(map(len, piece_lines)) < len(piece):
            piece_lines.append(next(remaining_lines))
        assert b"".join(piece_lines) == piece
        assert len(piece) <= select.PIPE_BUF or len(piece_lines) == 1
        assert len(piece_lines[0]) > room  # else the previous piece would hold it
        room = select.PIPE_BUF - len(piece)
    assert not list(remaining_lines)


def open_stream() -> AnswerStream:
    return open_release(table_of(), PrivacyLedger("l.sqlite"))


def tear_answer(size: int, *, json_lines: bool) -> None:
    """Answer a question, and die when so many bytes of the answer are written."""
    Path("question").write_bytes(b"1,1,0\n")
    with Path("question").open("rb") as source, Path("answers").open("ab") as answers:
        writer = LineWriter(answers.fileno(), json_lines=json_lines)

        def write(first_number: int, labels: list[object]) -> None:
            if labels:
                os.write(answers.fileno(), writer.format_line(first_number, labels[0])[:size])
                raise KeyboardInterrupt

        writer.write = write  # type: ignore[method-assign]
        with pytest.raises(DeliveryError, match="interrupted; answer 1 is"):
            answer_lines(open_stream(), writer, Questions(source.fileno(), VoteFormat(3)))


def write_again(*, json_lines: bool) -> None:
    """Start again without a question, and die before the answer is acknowledged."""
    stream = open_stream()
    stream.close = lambda: None  # type: ignore[method-assign]
    with Path(os.devnull).open("rb") as source, Path("answers").open("ab") as answers:
        writer = LineWriter(answers.fileno(), json_lines=json_lines)
        answer_lines(stream, writer, Questions(source.fileno(), VoteFormat(3)))


@pytest.mark.parametrize("json_lines", [False, True])
@pytest.mark.parametrize("before", [b"", b"7,1\n"])
def test_torn_line_is_cut_before_its_answer_comes_again(json_lines: bool, before: bytes, ledger: PrivacyLedger) -> None:
    """`132` and `1321281,1`, glued together, would be the answer to another question."""
    answers = Path("answers")
    line = b'{"query": 1, "label": 1}\n' if json_lines else b"1,1\n"
    answers.write_bytes(before)
    tear_answer(len(line) - 1, json_lines=json_lines)
    for size in (0, 1, len(line) // 2, len(line) - 1):
        answers.write_bytes(before + line[:size])
        write_again(json_lines=json_lines)
        assert answers.read_bytes() == before + line
    write_again(json_lines=json_lines)  # the line is whole, and comes twice
    assert answers.read_bytes() == before + 2 * line
    assert ledger.accountant().queries == 1


@given(
    before=st.sampled_from([0, 1, 2**14 // 4 - 1, 2**14]),
    labels=st.lists(st.text("ab", min_size=1, max_size=3).map(lambda label: 99 * label), min_size=1, max_size=3),
    place=st.floats(0, 1),
    is_other=st.booleans(),
)
def test_torn_bytes_are_those_of_a_line_that_begins_so(
    before: int, labels: list[str], place: float, is_other: bool, tmp_path_factory: pytest.TempPathFactory
) -> None:
    lines = [f"{number},{label}\n".encode() for number, label in enumerate(labels, 10)]
    size = int(place * (len(lines[-1]) - 1))
    torn = lines[-1][:size] + b"x" * is_other
    path = tmp_path_factory.mktemp("torn") / "answers"
    path.write_bytes(b"7,1\n" * before + torn)
    with path.open("ab") as file:
        file_size = 4 * before + len(torn)
        if is_other:
            with pytest.raises(ValueError, match=f"the output ends in '{torn[:40].decode()}'"):
                _count_torn_bytes(file.fileno(), file_size, lines)
        else:
            assert _count_torn_bytes(file.fileno(), file_size, lines) == size


@pytest.mark.parametrize(("mode", "place", "is_cut"), [("ab", 0, True), ("r+b", 8, True), ("r+b", 4, False)])
def test_failed_write_is_cut_from_a_file_that_it_appended_to(
    mode: str, place: int, is_cut: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def write_a_part(descriptor: int, piece: bytes) -> None:
        os.write(descriptor, piece[:2])
        raise OSError(28, "No space left on device")

    path = tmp_path / "answers"
    path.write_bytes(b"7,1\n8,0\n")
    with path.open(mode) as file:
        file.seek(place)
        writer = LineWriter(file.fileno())
        with monkeypatch.context() as patch:
            patch.setattr(pipe, "_write_all", write_a_part)
            with pytest.raises(OSError, match="No space"):
                writer.write(9, [1])
        assert path.read_bytes() == b"7,1\n8,0\n" if is_cut else b"7,1\n9,0\n"
        writer.write(9, [1, 0])
    assert path.read_bytes() == (b"7,1\n8,0\n9,1\n10,0\n" if is_cut else b"7,1\n9,9,1\n10,0\n")


def test_output_that_cannot_be_read_has_no_torn_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipe, "Path", raise_error(PermissionError()))
    assert _count_torn_bytes(0, 1, [b"1,1\n"]) == 0


@pytest.mark.parametrize("end", [b"2", b"5,1", b"1,0", b"x"])
def test_other_line_without_its_end_is_refused_before_anything_is_paid(end: bytes, ledger: PrivacyLedger) -> None:
    tear_answer(0, json_lines=False)
    for content in (end, b"7,1\n" + end):
        Path("answers").write_bytes(content)
        with pytest.raises(ValueError, match=f"the output ends in {end.decode()!r}, a line without its end"):
            write_again(json_lines=False)
        assert Path("answers").read_bytes() == content
    assert ledger.accountant().queries == 1


@pytest.mark.parametrize("room", [1, 2, 3, 5, 9])
def test_disk_that_fills_up_within_a_line_leaves_whole_lines(
    room: int, ledger: PrivacyLedger, monkeypatch: pytest.MonkeyPatch
) -> None:
    write, answers, before = os.write, Path("answers"), b"7,1\n"
    answers.write_bytes(before)

    def write_within_room(descriptor: int, piece: bytes) -> int:
        left = len(before) + room - answers.stat().st_size
        if not left:
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(descriptor, piece[:left])

    def answer(questions: bytes) -> None:
        Path("questions").write_bytes(questions)
        with Path("questions").open("rb") as source, answers.open("ab") as end:
            answer_lines(open_stream(), LineWriter(end.fileno()), Questions(source.fileno(), VoteFormat(3)))

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", write_within_room)
        with pytest.raises(DeliveryError, match="No space left"):
            answer(b"1,1,0\n0,0,1\n1,1,1\n")
    assert answers.read_bytes() == before
    answer(b"0,0,0\n")
    assert answers.read_bytes() == before + b"1,1\n2,0\n3,1\n4,0\n"
    assert ledger.accountant().queries == 4


# the command in a process of its own


def start(*options: str, stdout: Any = subprocess.PIPE) -> subprocess.Popen[bytes]:
    return subprocess.Popen([*COMMAND, *options], stdin=subprocess.PIPE, stdout=stdout, stderr=subprocess.PIPE)


def ask_one(process: subprocess.Popen[bytes], question: bytes) -> bytes:
    """Ask one question and wait for its answer."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(question)
    process.stdin.flush()
    return process.stdout.readline()


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signal_ends_the_command_and_the_last_answer_comes_again(number: signal.Signals, ask: Asker) -> None:
    with start() as process:
        assert ask_one(process, b"1,1,0\n") == b"1,1\n"
        assert ask_one(process, b"0,1,0\n") == b"2,0\n"
        process.send_signal(number)
        output, error = process.communicate()
    assert output == b""
    # 3 if it came while the command returned from writing the answer
    assert process.returncode == (130 if error == b"error: interrupted\n" else 3)
    assert error.startswith(b"error: interrupted")
    assert [entry.number for entry in ask.ledger.undelivered()] == [2]
    assert ask(b"1,1,1\n", "--quiet") == (0, "2,0\n3,1\n", "")  # nobody acknowledged the answer
    assert ask.count_paid() == 3


@pytest.mark.parametrize("end", ["pipe", "socket", "device"])
def test_reader_that_may_have_died_gets_the_last_answers_until_it_acknowledges_them(
    end: str, ledger: PrivacyLedger
) -> None:
    """The end of the questions is no receipt: the death of the reader ends them, too. A device has no reader."""

    def answer(questions: bytes, first: int | None) -> bytes:
        Path("questions").write_bytes(questions)
        if end == "socket":
            reading, writing = (link.detach() for link in socket.socketpair())
        else:
            reading, writing = os.pipe() if end == "pipe" else (os.open(os.devnull, flag) for flag in (0, os.O_WRONLY))
        with Path("questions").open("rb") as source, os.fdopen(reading, "rb") as answers:
            with os.fdopen(writing, "wb"):
                answer_lines(open_stream(), LineWriter(writing), Questions(source.fileno(), VoteFormat(3)), first=first)
            return answers.read()

    lines = b"1,1\n2,0\n" * (end != "device")
    for questions, first, expected in (
        (b"1,1,0\n0,0,1\n", 1, lines),
        (b"1,1,0\n0,0,1\n", 1, lines),
        (b"", None, lines),
        (b"0,0,1\n", 2, lines),
        (b"", 3, b""),
        (b"", None, b""),
    ):
        assert answer(questions, first) == expected
    assert ledger.accountant().queries == 2
    assert ledger.undelivered() == ()


@pytest.mark.parametrize("is_apart", [False, pytest.param(True, marks=pytest.mark.slow)])
@pytest.mark.parametrize(("end", "reason"), [("full", "No space left on device"), ("gone", "Broken pipe")])
def test_answers_that_cannot_be_written_come_first_at_the_next_start(
    end: str, reason: str, is_apart: bool, ask: Asker
) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    if end == "full":
        os.close(writing)
        writing = os.open("/dev/full", os.O_WRONLY)
    Path("questions").write_bytes(b"1,1,0\n0,0,1\n")
    message = f"{reason}; answers 1 to 2 are paid for and kept in the ledger: start again, and they come first"
    with Path("questions").open("rb") as source, os.fdopen(writing, "wb"):
        if is_apart:
            process = subprocess.run(
                COMMAND, stdin=source, stdout=writing, stderr=subprocess.PIPE, text=True, check=False
            )
            assert (process.returncode, process.stderr.count("\n")) == (3, 1)
            assert message in process.stderr
        else:
            with pytest.raises(DeliveryError, match=message):
                answer_lines(open_stream(), LineWriter(writing), Questions(source.fileno(), VoteFormat(3)))
    assert ask(b"1,1,1\n", "--quiet") == (0, "1,1\n2,0\n3,1\n", "")
    assert ask(b"", "--quiet") == (0, "", "")
    assert ask.count_paid() == 3


@pytest.mark.slow
def test_processes_share_a_budget_and_the_last_one_keeps_a_stream(ledger: PrivacyLedger) -> None:
    with start("--quiet") as first, start("--quiet", "--stream", "other") as other:
        assert ask_one(first, b"1,1,0\n") == b"1,1\n"
        assert ask_one(other, b"0,0,1\n") == b"1,0\n"
        with start("--quiet") as last:  # it takes the stream over, and prints the unacknowledged answer again
            assert ask_one(last, b"0,0,0\n") == b"1,1\n"
            assert last.stdout is not None
            assert last.stdout.readline() == b"2,0\n"
            assert ask_one(first, b"0,0,0\n") == b""
            error = first.communicate()[1]
            assert ask_one(last, b"1,1,1\n") == b"3,1\n"
        assert ask_one(other, b"1,1,1\n") == b"2,1\n"
    assert (first.returncode, last.returncode, other.returncode, error.count(b"\n")) == (2, 0, 0, 1)
    assert b"another process answers this stream (entry 3 of the ledger)" in error
    assert [entry.output for entry in ledger.entries()] == ["-", "-other", "-", "-", "-other"]
    assert ledger.accountant().queries == 5


@pytest.mark.slow
@pytest.mark.parametrize(
    ("end", "message"), [(">&-", "standard output is closed"), ("<&-", "standard input is closed")]
)
def test_closed_end_is_one_line(end: str, message: str, ask: Asker) -> None:
    process = subprocess.run(  # noqa: S602
        f"{' '.join(COMMAND)} {end}", shell=True, capture_output=True, input=b"1,1,0\n", check=False
    )
    assert (process.returncode, process.stderr.count(b"\n")) == (2, 1)
    assert message.encode() in process.stderr
    assert ask.count_paid() == 0


@pytest.mark.slow
@pytest.mark.parametrize("blocking", [True, False])
def test_questions_sent_ahead_are_paid_for_together_and_others_are_not_waited_for(
    blocking: bool, ledger: PrivacyLedger
) -> None:
    (reading, asking), (answering, writing) = os.pipe(), os.pipe()
    os.set_blocking(reading, blocking)
    os.set_blocking(writing, blocking)
    amount = 3000  # more answers than a pipe holds
    writer, questions = LineWriter(writing, json_lines=True), Questions(reading, VoteFormat(3))
    counts: list[int] = []
    thread = threading.Thread(target=lambda: counts.append(answer_lines(open_stream(), writer, questions)))
    thread.start()
    with os.fdopen(asking, "wb") as asked, os.fdopen(answering, "rb") as answers:
        for part in (b"1,1,", b"0\n"):  # half a question is none
            asked.write(part)
            asked.flush()
        assert answers.readline() == b'{"query": 1, "label": 1}\n'
        asked.write(b"0,0,0\n" * amount)
        asked.close()
        for number in range(2, amount + 2):
            assert json.loads(answers.readline()) == {"query": number, "label": 0}
    thread.join(60)
    assert counts == [amount + 1]
    entry_counts = [entry.count for entry in ledger.entries()]
    assert (entry_counts[0], max(entry_counts), sum(entry_counts)) == (1, MOST_TOGETHER, amount + 1)
    os.close(reading)
    os.close(writing)
