"""A stream of answers whose process is killed, at marked points and at any moment: no question is paid for twice."""

import contextlib
import os
import random
import signal
from collections import Counter
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from darrm.commands.command_line import run
from darrm.ledger import ledger as ledger_module
from darrm.ledger.ledger import PrivacyLedger
from darrm.majority.noise_function import NoiseFunction
from darrm.privacy import PrivacyParams
from darrm.problem import Problem, Voters
from darrm.release import __main__ as release
from darrm.release import pipe
from darrm.table.release import Release
from darrm.table.table import certify
from darrm.votes.labels_file import labels_digest
from tests.exhaustive import EXHAUSTIVE
from tests.killed import KILLED, apart, ended

# where a process kills itself: before (False) or after (True) a call
POINTS: dict[str, tuple[Any, str, bool]] = {
    "drawn, not paid": (Release, "release", True),
    "in the transaction": (ledger_module, "_write", True),
    "paid, not written": (pipe, "_write", False),
    "written, not acknowledged": (pipe, "_write", True),
    "all of it": (PrivacyLedger, "debit", True),
}
DROPPING: dict[str, tuple[Any, str, bool]] = {
    "before the last one is dropped": (PrivacyLedger, "forget_labels", False),
    "after the last one is dropped": (PrivacyLedger, "forget_labels", True),
}


def prepare(folder: Path, gamma: float, m: int) -> None:
    problem = Problem.from_allowance(Voters(3, PrivacyParams("0.02", "1e-8")), m)
    table = certify(problem, NoiseFunction(3, [gamma, gamma]))
    assert table.gamma.full[0] == gamma
    table.save(folder / "table.json")
    PrivacyLedger.create(folder / "l.sqlite", PrivacyParams(100_000, "0.1"))


def deadly(function: Callable[..., Any], call: int, *, after: bool) -> Callable[..., Any]:
    """Kill the process at a call of a function."""
    calls = 0

    def called(*arguments: object, **named: object) -> object:
        nonlocal calls
        calls += 1
        if calls == call and not after:
            os.kill(os.getpid(), signal.SIGKILL)
        returned = function(*arguments, **named)
        if calls == call:
            os.kill(os.getpid(), signal.SIGKILL)
        return returned

    return called


def start(folder: Path, *words: str, deadline: float = 0.0, point: str = "", call: int = 1) -> tuple[int, Any, Any]:
    """Fork a process that answers; return its number, where it is asked, and where it answers."""
    (reading, asked), (answers, writing) = os.pipe(), os.pipe()
    number = os.fork()
    if number:
        os.close(reading)
        os.close(writing)
        return number, os.fdopen(asked, "w"), os.fdopen(answers)
    os.close(asked)
    os.close(answers)
    os.dup2(reading, 0)
    os.dup2(writing, 1)
    os.dup2(os.open(folder / "errors", os.O_WRONLY | os.O_CREAT | os.O_APPEND), 2)
    os.close(reading)
    os.close(writing)
    if point:
        owner, name, after = (POINTS | DROPPING)[point]
        setattr(owner, name, deadly(getattr(owner, name), call, after=after))
    if deadline:
        signal.setitimer(signal.ITIMER_REAL, deadline)  # nobody handles this signal: it ends the process as it stands
    files = ["--table", str(folder / "table.json"), "--ledger", str(folder / "l.sqlite")]
    status = 99
    try:
        status = run(lambda: release.main(["stream", *files, "--quiet", *words]))
    finally:
        os._exit(status)


def receive(answers: Any, got: dict[int, str]) -> int:
    """Read one answer and return its number, 0 if there is none."""
    line = answers.readline()
    if not line:
        return 0
    assert line.endswith("\n"), line
    number, label = line.rstrip("\n").split(",")
    assert got.setdefault(int(number), label) == label  # no question has two labels
    return int(number)


def converse(folder: Path, questions: list[str], got: dict[int, str], how: str, **kill: Any) -> int:
    """Ask what is not answered, as somebody who knows the answers in `got` only; return the status."""
    with contextlib.ExitStack() as stack:
        words = []
        if how in {"lockstep", "ahead"}:
            words = ["--first", str(len(got) + 1)]
        else:  # an empty input first: what waits is delivered
            number, ask, answers = start(folder)
            ask.close()
            while receive(answers, got):
                pass
            assert ended(number) == 0
        number, ask, answers = start(folder, *words, **kill)
        stack.callback(answers.close)
        try:
            if how == "ahead":
                ask.write("".join(questions[len(got) :]))
                ask.close()
                while receive(answers, got):
                    pass
            else:
                for question in questions[len(got) :]:
                    ask.write(question)
                    ask.flush()
                    before = len(got)
                    while len(got) == before and receive(answers, got):
                        pass
                    if len(got) == before:
                        break
                ask.close()
        except BrokenPipeError:
            pass
        while receive(answers, got):
            pass
        with contextlib.suppress(BrokenPipeError):
            ask.close()
        return ended(number)


def kill_many(folder: Path, how: str, points: list[str], seed: int, amount: int) -> Counter[int]:
    """Ask until all is answered, by processes that die; check that what was paid is what was answered."""
    generator = random.Random(seed)  # noqa: S311 (moments to kill, no secrets)
    votes = [[generator.randrange(2) for _ in range(3)] for _ in range(amount)]
    questions = [",".join(map(str, vote)) + "\n" for vote in votes]
    got: dict[int, str] = {}
    statuses: Counter[int] = Counter()
    for _ in range(50 * amount):
        if points:
            kill = {"point": generator.choice(points), "call": generator.randrange(1, 4)}
        else:
            kill = {"deadline": generator.uniform(0.02, 0.25)}
        statuses[converse(folder, questions, got, how, **kill)] += 1
        assert sorted(got) == list(range(1, len(got) + 1))
        if len(got) == amount:
            break
    assert len(got) == amount
    # whatever the last one left: the answers that wait are the same, and then the caller says that it has them
    assert converse(folder, questions, got, "ask first") == 0
    for point in DROPPING:
        assert converse(folder, questions, got, "lockstep", point=point, call=1) == KILLED
    assert converse(folder, questions, got, "lockstep") == 0
    assert len(got) == amount
    assert PrivacyLedger(folder / "l.sqlite").undelivered() == ()
    ledger = PrivacyLedger(folder / "l.sqlite")
    assert ledger.accountant().queries == amount  # paid for once
    done = 0
    for entry in ledger.entries():
        labels = [int(got[done + place]) for place in range(1, entry.count + 1)]
        assert labels_digest(np.array(labels)) == entry.labels  # and the labels are those that were paid for
        done += entry.count
    if (folder / "certain").exists():  # γ = 1: the answer to question n is the majority of its votes
        assert [int(got[n]) for n in range(1, amount + 1)] == [int(sum(vote) >= 2) for vote in votes]
    return statuses


def run_kills(folder: Path, how: str, points: list[str], seed: int, amount: int) -> str:
    return apart(__file__, folder, f"dict(kills.kill_many(folder, {how!r}, {points!r}, {seed}, {amount}))")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("certain", "how"),
    [
        (True, "lockstep"),
        *(
            pytest.param(certain, how, marks=pytest.mark.slow)
            for certain, how in product((False, True), ("lockstep", "ask first", "ahead"))
            if (certain, how) != (True, "lockstep")
        ),
    ],
)
def test_kills_at_every_step_pay_for_nothing_twice(how: str, certain: bool, tmp_path: Path) -> None:
    prepare(tmp_path, 1.0 if certain else 0.3, 3 if certain else 1)
    if certain:
        (tmp_path / "certain").touch()
    assert f"{KILLED}: " in run_kills(tmp_path, how, list(POINTS), 5, 200 if how == "ahead" else 9)


@pytest.mark.slow
@pytest.mark.parametrize("how", ["lockstep", "ahead"])
def test_kills_at_any_moment_pay_for_nothing_twice(how: str, tmp_path: Path) -> None:
    prepare(tmp_path, 0.3, 1)
    assert "-14: " in run_kills(tmp_path, how, [], 7, (100 if how == "lockstep" else 4000) if EXHAUSTIVE else 25)
