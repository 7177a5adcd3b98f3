"""What every command line keeps: a door is tested by being named in `DOORS`."""

import json
import os
import re
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

import darrm.__main__ as front
from darrm import NoiseFunction, PrivacyLedger, PrivacyParams, Problem, Release, Voters, certify
from darrm.system.command_line import run
from tests.doors import one_error, validated
from tests.planned import share


@dataclass(frozen=True)
class Door:
    """A command, arguments that make it print a report, its schema, and what its old flags are called now."""

    name: str
    arguments: str
    schema: str
    renamed: tuple[tuple[str, str], ...] = ()
    shared: tuple[str, ...] = ("--format", "--quiet")
    job: str = ""  # whose help has the flags, where it has several

    def __str__(self) -> str:
        return self.name

    @property
    def main(self) -> Callable[[list[str]], int]:
        found: Callable[[list[str]], int] = import_module(f"darrm.{self.name}.__main__").main
        return found


WHO = ("--K", "--voters", "--epsilon", "--each-delta", "--overlap", "--models")
DOORS = (
    Door(
        "optimize",
        "--K 5 --m 2 --output OUT",
        "optimize_report",
        shared=(*WHO, "--target", "--prior", "--output", "--plot", "--format", "--quiet", "--time-limit"),
        renamed=(("--exact", "gone"),),
    ),
    Door(
        "plan",
        "--K 5 --voters plain --overlap 1 --queries 3 --total 1,1e-5 --output OUT",
        "plan_report",
        shared=(*WHO, "--classes", "--queries", "--total", "--prior", "--output", "--plot", "--format", "--quiet"),
    ),
    Door(
        "advise",
        "--K 5 --voters plain --overlap 1 --queries 3 --total 1,1e-5",
        "advice",
        shared=(*WHO, "--classes", "--queries", "--total", "--prior", "--format", "--quiet"),
    ),
    Door(
        "release",
        "votes.npy --table table.json --ledger new.sqlite --create-budget 8,1e-2 --output labels.npy",
        "release_report",
        shared=("--table", "--ledger", "--output", "--classes", "--format", "--quiet"),
        job="file",
        renamed=(("--recover", "python -m darrm.release recover ENTRY"),),
    ),
    Door(
        "account",
        "--table table.json --queries 20,5 --delta 1e-2",
        "account_report",
        (("--private-models", "--models"), ("--disjoint", "--overlap 1")),
        shared=("--table", "--ledger", "--queries", "--models", "--overlap", "--plot", "--format", "--quiet"),
    ),
    Door(
        "verify",
        "table.json ledger.sqlite",
        "verify_report",
        (("--ledger", "named like any other file"), ("--labels", "named like any other file")),
        shared=("--classes", "--format", "--quiet"),
    ),
    Door(
        "pate",
        "counts.npy --sigma2 4 --delta 1e-5 --votes-format counts",
        "pate_report",
        (("--json", "--output"), ("--pictures", "--plot")),
        shared=("--votes-format", "--classes", "--queries", "--output", "--plot", "--format", "--quiet"),
    ),
)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    share(monkeypatch)
    problem = Problem.from_allowance(Voters(3, PrivacyParams("0.2", "1e-5")), "1.5")
    table = certify(problem, NoiseFunction(3, [0.5, 1.0]))
    table.save("table.json")
    np.save("votes.npy", np.array([[1, 1, 0], [0, 0, 0], [1, 1, 1], [0, 1, 0]]))
    np.save("counts.npy", np.array([[30, 2], [9, 23], [16, 16]]))
    PrivacyLedger.create("ledger.sqlite", PrivacyParams(2, "1e-3")).debit(Release(table).charge(4))
    return tmp_path


def call(door: Door, *words: str) -> int:
    return run(lambda: door.main(list(words)))


@pytest.mark.parametrize("door", DOORS, ids=str)
class TestEveryDoor:
    def test_help_names_the_shared_words(self, door: Door, capsys: pytest.CaptureFixture[str]) -> None:
        with pytest.raises(SystemExit) as left:
            door.main([*door.job.split(), "--help"])
        assert left.value.code == 0
        text = capsys.readouterr().out
        assert f"usage: python -m darrm.{door.name}" in text
        assert re.search("^examples?:", text, re.MULTILINE)
        assert {flag for flag in door.shared if not re.search(rf"{flag}\b", text)} == set()

    def test_version(self, door: Door, capsys: pytest.CaptureFixture[str]) -> None:
        with pytest.raises(SystemExit):
            door.main(["--version"])
        assert re.fullmatch(r"darrm \d+\.\d+.*\n", capsys.readouterr().out)

    @pytest.mark.quick_cases(1)
    @pytest.mark.usefixtures("folder")
    def test_json_keeps_its_schema(self, door: Door, capsys: pytest.CaptureFixture[str]) -> None:
        assert call(door, *door.arguments.split(), "--format", "json") == 0
        shown = capsys.readouterr()
        assert shown.err == ""
        validated(shown.out, door.schema)

    @pytest.mark.usefixtures("folder")
    def test_text_is_for_people_and_quiet_is_quiet(self, door: Door, capsys: pytest.CaptureFixture[str]) -> None:
        assert call(door, *door.arguments.split(), "--quiet") == 0
        assert capsys.readouterr() == ("", "")

    @pytest.mark.parametrize("words", [["--nonsense"], ["--format", "xml"], ["--K"], ["--delta", "much"]])
    @pytest.mark.usefixtures("folder")
    def test_bad_words_get_one_line_and_status_2(
        self, door: Door, words: list[str], capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert call(door, *door.arguments.split(), *words) == 2
        one_error("", capsys)

    def test_an_old_flag_says_its_new_name(self, door: Door, capsys: pytest.CaptureFixture[str]) -> None:
        for old, new in door.renamed:
            assert call(door, old, "x") == 2
            assert f"{old} is now {new}" in capsys.readouterr().err

    @pytest.mark.slow
    def test_the_front_door_starts_it_without_a_warning(self, door: Door) -> None:
        assert_one_line(["darrm", door.name])

    @pytest.mark.slow
    def test_it_starts_by_its_own_name_without_a_warning(self, door: Door) -> None:
        assert_one_line([f"darrm.{door.name}"])


@pytest.mark.slow
def test_the_front_door_starts_all_without_a_warning() -> None:
    """In one interpreter, as each takes a second to start."""
    assert_one_line(["darrm", DOORS[0].name])
    code = "import sys, darrm.__main__ as front; print(*(front.main([name, '--nonsense']) for name in sys.argv[1:]))"
    words = [sys.executable, "-W", "error", "-c", code, *map(str, DOORS)]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["2"] * len(DOORS)
    lines = done.stderr.splitlines()
    assert len(lines) == len(DOORS)
    assert all(line.startswith("error: ") for line in lines)


def assert_one_line(start: list[str]) -> None:
    words = [sys.executable, "-W", "error", "-m", *start, "--nonsense"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith("error: ")
    assert done.stderr.count("\n") == 1


def test_every_door_is_in_the_contract(capsys: pytest.CaptureFixture[str]) -> None:
    served = {"serve"}  # answers a network and prints no report: tests/serve
    assert {door.name for door in DOORS} == set(front.DOORS) - served
    assert front.main([]) == 0
    listed = capsys.readouterr().out
    assert all(f"\n  {name} " in listed for name in front.DOORS)
    assert front.main(["optimiz"]) == 2
    assert "choose from optimize" in capsys.readouterr().err


@pytest.mark.parametrize("start", [["darrm", "plan"], pytest.param(["darrm.plan"], marks=pytest.mark.slow)])
def test_an_interrupt_of_the_imports_is_one_line(start: list[str], tmp_path: Path) -> None:
    # a module that is imported early raises what Ctrl-C raises
    (tmp_path / "scipy.py").write_text("raise KeyboardInterrupt\n")
    words = [sys.executable, "-m", *start, "--total", "1,1e-5"]
    places = os.pathsep.join([str(tmp_path), *filter(None, sys.path)])
    done = subprocess.run(words, capture_output=True, text=True, check=False, env={**os.environ, "PYTHONPATH": places})
    assert done.returncode in {130, -signal.SIGINT}
    assert done.stderr == "error: interrupted\n"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("end", "line"),
    [
        pytest.param(">&-", "standard output is closed", marks=pytest.mark.slow),
        (">/dev/full", "No space left on device"),
    ],
)
def test_an_output_that_takes_nothing_is_one_line(end: str, line: str) -> None:
    command = f"{sys.executable} -m darrm.optimize --K 3 {end}"
    done = subprocess.run(command, shell=True, capture_output=True, text=True, check=False)  # noqa: S602 (our own words)
    assert done.returncode == 2
    assert done.stderr.startswith("error: ")
    assert line in done.stderr
    assert done.stderr.count("\n") == 1


def test_no_more_memory_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    def full() -> int:
        raise MemoryError

    assert run(full) == 2
    assert capsys.readouterr().err == "error: out of memory: ask for less at once\n"


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("words", "line"),
    [
        ("plan --K 1000000000 --total 1,1e-5", "K must be an integer of at most 1000000"),
        ("optimize --K 100000000 --time-limit 1", "K must be an integer of at most 1000000"),
        (
            "optimize --K 40000 --time-limit 1",
            "whom one person reaches must be at most 1000000000",
        ),
        ("plan --K 1000000 --voters plain --total 1,1e-5", "must be at most 1000000000, got 1000001000000"),
        ("optimize --K 300000 --voters plain --overlap 1 --target 1,1e-5", "the rows for 300,000 voters needs"),
        ("optimize --K 11 --objective expected-error --draws 2147483648", "176 GiB, more than the 0.25 GiB"),
        ("optimize --K 11 --epsilon 1e999999999", "epsilon must be a finite number"),
        ("optimize --K 11 --m 0.000029E999700001", "m must be a finite number"),
        ("plan --K 11 --queries 99999999999999999999 --total 1,1e-5", "queries must be an integer of at most"),
        ("advise --K 11 --total 1e999999999,1e-5", "epsilon must be a finite number"),
        (
            "account --table table.json --queries 99999999999999999999 --delta 1e-5",
            "whole numbers of at least 1 and at most",
        ),
        ("account --table table.json --queries 5 --delta 1e-999999999", "--delta must be a finite number"),
        ("pate counts.npy --sigma2 4 --delta 1e-5 --sigma1 1e300 --threshold 9", "sigma must be in"),
        ("pate counts.npy --sigma2 1e200 --delta 1e-5", "sigma must be in"),
        ("pate counts.npy --gamma 1e300 --delta 1e-5", "gamma must be in"),
        ("pate counts.npy --gamma 1e-300 --delta 1e-5", "gamma must be in"),
        (
            "pate counts.npy --sigma2 4 --delta 1e-5 --sigma1 9 --threshold 1e9",
            "the number of voters, 32, and two deviations",
        ),
    ],
)
def test_what_no_machine_can_do_is_refused_at_once(words: str, line: str, capsys: pytest.CaptureFixture[str]) -> None:
    started = time.process_time()
    assert front.main(words.split()) == 2
    assert time.process_time() - started < 5.0
    one_error(line, capsys)


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("noise", [["--sigma2", "4", "--sigma1", "1e9", "--threshold", "9"], ["--gamma", "0.1"]])
def test_counts_and_noise_of_any_size_need_no_table(noise: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    # a table of tails would have 2^31 entries, and the sum over the noise of the check 8e10
    np.save("many.npy", np.array([[2147483647, 0], [2147483000, 647]]))
    words = [
        "pate",
        "many.npy",
        *noise,
        "--delta",
        "1e-5",
        "--votes-format",
        "counts",
        "--format",
        "json",
        "--no-table-2",
    ]
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert front.main(words) == 0
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 2**18  # KiB
    assert json.loads(capsys.readouterr().out)["table_1"]["voters"] == 2147483647


@pytest.mark.usefixtures("folder")
def test_a_ledger_keeps_its_schema_too(capsys: pytest.CaptureFixture[str]) -> None:
    door = next(door for door in DOORS if door.name == "account")
    assert call(door, "--ledger", "ledger.sqlite", "--format", "json") == 0
    validated(capsys.readouterr().out, door.schema)
