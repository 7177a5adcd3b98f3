"""Releases whose process dies: before each step that the disk or a reader can see, at random moments, on a full disk.

One contract for all destinations: no label leaves unpaid, every debit has its labels, no query has two, nothing else is
left, and the same command, or `recover`, completes the release. A step opens, links, removes, syncs or writes a
file, or comes before or after a statement of SQLite.
"""

import json
import os
import random
import resource
import signal
import sqlite3
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from darrm.commands.command_line import run
from darrm.ledger.chain import Entry
from darrm.ledger.ledger import PrivacyLedger
from darrm.privacy import PrivacyParams
from darrm.release import __main__ as release
from darrm.release import delivery, partitions, pipe
from darrm.votes.labels_file import labels_digest, load_labels, save_labels
from tests.exhaustive import EXHAUSTIVE
from tests.killed import run_apart, wait_for
from tests.release.support import table_of

QUERIES = 40  # of a file: two releases draw the same labels with probability about 2⁻²⁵, and a digest tells them apart
PARTS = ("a.parquet", "day=2/b.parquet")
DEATHS = {-signal.SIGKILL, -signal.SIGALRM}
FIRST_PAGES = 1000  # bytes; no ledger is as small
WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT
SEEN = {"os.link", "os.rename", "os.remove", "os.rmdir", "os.mkdir", "os.truncate", "shutil.rmtree", "tempfile.mkdtemp"}
# each kind of output, and a number of steps from one death to the next: Parquet has many more steps than text
STRIDES = {"labels.npy": 3, "labels.csv": 3, "labels.parquet": 7, "labels": 11, "stream": 3}


def prepare(folder: Path, gamma: float = 0.3, m: int = 1) -> None:
    folder.mkdir(exist_ok=True)
    table_of([gamma, gamma], m).save(folder / "table.json")
    PrivacyLedger.create(folder / "l.sqlite", PrivacyParams(100_000, "0.1"))
    votes = np.tile([[1, 1, 0], [0, 0, 1]], (QUERIES // 2, 1))
    np.save(folder / "votes.npy", votes)
    np.savetxt(folder / "questions", votes, fmt="%d", delimiter=",")
    with suppress(ImportError):
        import pyarrow as pa
        from pyarrow import parquet

        for part in PARTS:
            (folder / "votes" / part).parent.mkdir(parents=True, exist_ok=True)
            columns = {"id": np.arange(QUERIES), **{f"v{k}": votes[:, k] for k in range(3)}}
            parquet.write_table(pa.table(columns), folder / "votes" / part)


def make_words(folder: Path, output: str, note: str = "") -> list[str]:
    """Return the command line that releases the votes of a folder into an output of one of the kinds."""
    files = ["--table", str(folder / "table.json"), "--ledger", str(folder / "l.sqlite"), "--quiet", "--note", note]
    if output.endswith("stream"):
        return ["stream", *files, "--stream", output, "--first", "1"]
    votes, suffix = folder / "votes.npy", Path(output).suffix
    if suffix not in {".npy", ".csv"}:
        votes, files = folder / "votes" / (PARTS[0] if suffix else ""), [*files, "--keep", "id"]
    return [str(votes), *files, "--output", str(folder / output)]


class Killer:
    """Counts the steps of this process, and kills it before the step ``last``, if it has one."""

    def __init__(self, last: int) -> None:
        self.steps, self.last, self.is_on = 0, last, True
        sys.addaudithook(self.audit)
        os.write, os.fsync = self.count_calls(os.write), self.count_calls(os.fsync)
        connect, step = sqlite3.connect, self.count_step

        class CountedConnection(sqlite3.Connection):
            def execute(self, *arguments: Any) -> sqlite3.Cursor:
                step()
                cursor = super().execute(*arguments)
                step()
                return cursor

        sqlite3.connect = lambda *arguments, **named: connect(*arguments, factory=CountedConnection, **named)  # type: ignore[assignment]

    def audit(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event in SEEN or (event == "open" and isinstance(arguments[2], int) and arguments[2] & WRITES):
            self.count_step()

    def count_calls(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            self.count_step()
            return function(*arguments)

        return call

    def count_step(self) -> None:
        self.steps += self.is_on
        if self.steps == self.last:
            os.kill(os.getpid(), signal.SIGKILL)


def limit_sizes(limit: int) -> None:
    """Let no file grow beyond a limit: a large one, of the ledger, at once; a small one when labels are written."""
    if limit > FIRST_PAGES:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
        return

    def limit_and_save(path: Path, labels: np.ndarray, *_: object) -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
        save_labels(path, labels)

    delivery.save_labels = limit_and_save  # type: ignore[assignment, attr-defined]


def fork_release(
    folder: Path, words: list[str], *, at: int = 0, seconds: float = 0.0, limit: int = 0, ends: tuple[int, int] = (0, 0)
) -> int:
    """Fork a process that runs a command and dies at a step or after seconds; return its number."""
    number = os.fork()
    if number:
        return number
    is_stream = "--stream" in words
    to_append = os.O_RDWR | os.O_CREAT | os.O_APPEND
    answers = os.open(folder / words[words.index("--stream") + 1], to_append) if is_stream else 0
    os.dup2(ends[0] or os.open(folder / "questions", os.O_RDONLY), 0)
    os.dup2(ends[1] or answers or os.open(os.devnull, os.O_WRONLY), 1)
    os.dup2(os.open(folder / "errors", os.O_WRONLY | os.O_CREAT | os.O_APPEND), 2)
    os.closerange(3, 100)
    pipe.MOST_TOGETHER, partitions.ROWS_AT_ONCE = 9, 7
    if limit:
        limit_sizes(limit)
    status, killer = 99, Killer(at)
    try:
        signal.setitimer(signal.ITIMER_REAL, seconds)  # no handler: the signal kills the process
        sys.stdin, sys.stdout = os.fdopen(0), os.fdopen(1, "w")
        status = run(lambda: release.main(words))
        killer.is_on = False
        (folder / "steps").write_text(str(killer.steps))
    finally:
        os._exit(status)


def list_entries(folder: Path, output: str) -> list[Entry]:
    places = {f"-{output}", str(folder / output), *(str(folder / output / part) for part in PARTS)}
    return [entry for entry in PrivacyLedger(folder / "l.sqlite").entries() if entry.output in places]


def read_published(folder: Path, output: str) -> dict[str, Any]:
    """Map the output of each debit to its published labels."""
    path = folder / output
    if output.endswith("stream"):
        pairs = [line.split(",") for line in path.read_text().splitlines(keepends=True) if line.endswith("\n")]
        labels: dict[int, str] = {}
        for number, label in pairs:
            assert labels.setdefault(int(number), label) == label  # no question has two labels
        assert sorted(labels) == list(range(1, len(labels) + 1))
        return {f"-{output}": [label.strip() for _, label in sorted(labels.items())]} if labels else {}
    paths = [path / part for part in PARTS] if path.is_dir() else [path]
    return {str(each): load_labels(each).astype(str).tolist() for each in paths if each.is_file()}


def check_paid(folder: Path, output: str) -> None:
    """Check that all labels on the disk were paid for, those under a temporary name, too."""
    all_entries = list_entries(folder, output)
    for place, labels in read_published(folder, output).items():
        entries, start = [entry for entry in all_entries if entry.output == place], 0
        assert entries, place
        for entry in entries:
            part = labels[start : start + entry.count]
            assert not part or labels_digest(np.array(part)) == entry.labels or entry == entries[-1]
            start += entry.count
        assert start >= len(labels)
    ledger = PrivacyLedger(folder / "l.sqlite")
    for path in folder.rglob(".labels*/labels.*"):
        try:
            labels = load_labels(path)
        except (ValueError, EOFError):  # a part of a file, or only its first bytes
            assert path.stat().st_size <= 4 or ledger.undelivered()
        else:
            is_paid = labels_digest(labels) in {entry.labels for entry in ledger.entries()}
            assert not labels.size or is_paid or (ledger.undelivered() and path.suffix == ".csv")  # a part of a text


def complete(folder: Path, output: str) -> None:
    """Complete a release as a user does, and check that each query has the one label that was paid for."""
    amount = len(PARTS) * QUERIES if output.endswith("labels") else QUERIES
    entries, first_labels = list_entries(folder, output), read_published(folder, output)
    is_alone = Path(output).suffix in {".npy", ".csv"}
    if is_alone and entries and not entries[0].delivered:
        words = ["recover", str(entries[0].number), "--ledger", str(folder / "l.sqlite"), "--quiet", "--output"]
        assert wait_for(fork_release(folder, [*words, str(folder / output)])) == 0
    elif output.endswith("stream") or not entries or (folder / f".{output}.release.json").exists():
        assert wait_for(fork_release(folder, make_words(folder, output))) == 0
    entries, labels = list_entries(folder, output), read_published(folder, output)
    assert sum(entry.count for entry in entries) == amount  # once
    assert all(entry.delivered for entry in entries)
    for place, drawn in labels.items():
        paid = [entry for entry in entries if entry.output == place]
        ends = np.cumsum([entry.count for entry in paid])
        for entry, part in zip(paid, np.split(np.array(drawn), ends[:-1]), strict=True):
            assert labels_digest(part) == entry.labels
    assert {place: labels[place][: len(before)] for place, before in first_labels.items()} == first_labels
    assert sum(map(len, labels.values())) == amount
    if not output.endswith("stream"):
        receipt = json.loads((folder / f"{output}.receipt.json").read_text())
        assert receipt["ledger_digest"]["number"] == entries[-1].number
    if list_leftovers(folder):  # of a process that died after another process published these labels
        assert wait_for(fork_release(folder, make_words(folder, output))) == 2


def list_leftovers(folder: Path) -> list[str]:
    return [path.name for path in folder.rglob(".*") if path.name != ".l.sqlite.lock"]


def kill_at_steps(folder: Path, kind: str, stride: int) -> tuple[int, int]:
    """Kill a release before every ``stride``-th step; count the deaths before and after a debit."""
    prepare(folder)
    assert wait_for(fork_release(folder, make_words(folder, f"0-{kind}"))) == 0
    steps, before, after = int((folder / "steps").read_text()), 0, 0
    complete(folder, f"0-{kind}")
    for at in range(1, steps + 1, stride):
        output = f"{at}-{kind}"
        status = wait_for(fork_release(folder, make_words(folder, output), at=at))
        assert status in {0, *DEATHS}, (at, status)
        check_paid(folder, output)
        before, after = before + (not list_entries(folder, output)), after + bool(list_entries(folder, output))
        complete(folder, output)
        assert list_leftovers(folder) == []
    return before, after


def kill_at_moments(folder: Path, kind: str, mode: str, kills: int, seed: int) -> dict[int, int]:
    """Kill releases at any moment, alone, together or on a full disk; count the exit statuses."""
    generator = random.Random(seed)  # noqa: S311 (moments to kill, no secrets)
    prepare(folder)
    statuses: dict[int, int] = {}
    for kill in range(kills):
        outputs = [f"{kill}-{kind}"] * (2 if mode == "together" else 1) + [f"{kill}-other.csv"] * (mode == "together")
        size = (folder / "l.sqlite").stat().st_size
        limit = generator.choice([size + generator.randrange(12_000), generator.randrange(1, FIRST_PAGES)])
        seconds = generator.uniform(0.001, 0.25) if kill >= 3 else 0.0
        limits: dict[str, Any] = {"limit": limit} if mode == "full disk" else {}
        children = [
            fork_release(folder, make_words(folder, each, f"{kill}.{n}"), seconds=seconds, **limits)
            for n, each in enumerate(outputs)
        ]
        for number, status in enumerate(map(wait_for, children)):
            statuses[status] = statuses.get(status, 0) + 1
            paid = [entry for entry in list_entries(folder, outputs[number]) if entry.note == f"{kill}.{number}"]
            assert status in {0, 2, 3, *DEATHS}
            if status not in DEATHS:
                assert (status == 2) == (not paid), (kill, status)
        for output in set(outputs):
            check_paid(folder, output)
            complete(folder, output)
        assert list_leftovers(folder) == []
    return statuses


def test_release_killed_at_some_steps_loses_and_repeats_nothing(tmp_path: Path) -> None:
    """The slow cases have all kinds and more steps."""
    kinds = ("labels.csv", "labels", "stream")
    deaths = f"*(n for kind in {kinds} for n in kills.kill_at_steps(folder / kind, kind, 71))"
    printed = run_apart(__file__, tmp_path, deaths).split()
    assert len(printed) == 2 * len(kinds)
    assert min(map(int, printed)) > 0


@pytest.mark.slow
@pytest.mark.parametrize("kind", STRIDES)
def test_release_killed_at_any_step_loses_and_repeats_nothing(kind: str, tmp_path: Path) -> None:
    stride = 1 if EXHAUSTIVE else STRIDES[kind]
    printed = run_apart(__file__, tmp_path, f"*kills.kill_at_steps(folder, {kind!r}, {stride})").split()
    assert min(map(int, printed)) > 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "mode"), [("labels.npy", "together"), ("labels.npy", "full disk"), *((kind, "alone") for kind in STRIDES)]
)
def test_release_killed_at_any_moment_loses_and_repeats_nothing(kind: str, mode: str, tmp_path: Path) -> None:
    kills = 200 if EXHAUSTIVE else 30
    printed = run_apart(__file__, tmp_path, f"kills.kill_at_moments(folder, {kind!r}, {mode!r}, {kills}, 11)")
    assert str(-signal.SIGALRM) in printed
    assert mode != "full disk" or "3: " in printed


# a reader of a pipe, which knows only the answers that it has read


def read_answer(stream: Any, got: dict[int, str]) -> int:
    """Read one answer and return its number, 0 if there is none."""
    line = stream.readline()
    if not line:
        return 0
    assert line.endswith("\n"), line
    number, label = line.rstrip("\n").split(",")
    assert got.setdefault(int(number), label) == label  # no question has two labels
    return int(number)


def converse(folder: Path, questions: list[str], got: dict[int, str], how: str, **kill: Any) -> int:
    """Ask all questions without an answer; return the status of the process that answers."""
    words = make_words(folder, "pipe-stream")[:-2]
    if how == "ask first":  # an empty input first: answers that wait are delivered
        with Path(os.devnull).open() as nothing:
            (answers, writing) = os.pipe()
            number = fork_release(folder, words, ends=(nothing.fileno(), writing))
        os.close(writing)
        with os.fdopen(answers) as read:
            while read_answer(read, got):
                pass
        assert wait_for(number) == 0
    else:
        words += ["--first", str(len(got) + 1)]
    (reading, asked), (answers, writing) = os.pipe(), os.pipe()
    number = fork_release(folder, words, ends=(reading, writing), **kill)
    os.close(reading)
    os.close(writing)
    with os.fdopen(answers) as read:
        with suppress(BrokenPipeError), os.fdopen(asked, "w") as ask:
            for question in questions[len(got) :] if how != "ahead" else ["".join(questions[len(got) :])]:
                ask.write(question)
                ask.flush()
                before = len(got)
                while how != "ahead" and len(got) == before and read_answer(read, got):
                    pass
                if how != "ahead" and len(got) == before:
                    break
        while read_answer(read, got):
            pass
    return wait_for(number)


def kill_conversations(folder: Path, how: str, certain: bool, amount: int, seed: int) -> list[int]:
    """Ask until all questions are answered, by processes that die; return how they ended."""
    prepare(folder, *((1.0, 3) if certain else (0.3, 1)))
    generator = random.Random(seed)  # noqa: S311 (moments to kill, no secrets)
    votes = [[generator.randrange(2) for _ in range(3)] for _ in range(amount)]
    questions = [",".join(map(str, vote)) + "\n" for vote in votes]
    got, statuses = dict[int, str](), list[int]()
    while len(got) < amount:
        is_late = len(statuses) % 3 == 2
        kill = {"seconds": generator.uniform(0.02, 0.2)} if is_late else {"at": generator.randrange(5, 90)}
        statuses.append(converse(folder, questions, got, how, **kill))
        assert sorted(got) == list(range(1, len(got) + 1))
        assert len(statuses) < 50 * amount
    assert converse(folder, questions, got, "ask first") == 0  # the answers that wait are the same
    assert converse(folder, questions, got, "lockstep") == 0  # and then the caller says that it has them
    entries, done = list_entries(folder, "pipe-stream"), 0
    assert all(entry.delivered for entry in entries)
    for entry in entries:
        assert labels_digest(np.array([got[done + n] for n in range(1, entry.count + 1)])) == entry.labels
        done += entry.count
    assert done == amount  # paid for once
    if certain:  # γ = 1: the answer to question n is the majority of its votes
        assert [int(got[n]) for n in range(1, amount + 1)] == [int(sum(vote) >= 2) for vote in votes]
    return statuses


@pytest.mark.slow
@pytest.mark.parametrize(
    ("how", "certain"),
    [("lockstep", True), ("lockstep", False), ("ask first", False), ("ahead", False), ("ahead", True)],
)
def test_reader_of_a_pipe_gets_each_answer_that_was_paid_for(how: str, certain: bool, tmp_path: Path) -> None:
    amount = (200 if how == "ahead" else 20) * (10 if EXHAUSTIVE else 1)
    printed = run_apart(__file__, tmp_path, f"kills.kill_conversations(folder, {how!r}, {certain}, {amount}, 5)")
    assert str(-signal.SIGKILL) in printed
