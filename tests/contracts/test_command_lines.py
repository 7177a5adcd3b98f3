"""What every command line keeps: a door is tested by being named in `DOORS`."""

import json
import os
import re
import resource
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest

import darrm.__main__ as front
from darrm import NoiseFunction, PrivacyLedger, PrivacyParams, Problem, Release, Voters, certify
from darrm.commands.command_line import run
from tests.doors import one_error, validated
from tests.planned import share


@dataclass(frozen=True)
class Door:
    name: str
    arguments: str
    schema: str
    shared: tuple[str, ...] = ("--format", "--quiet")
    job: str = ""  # whose help has the flags, where it has several

    def __str__(self) -> str:
        return self.name

    def main(self, words: list[str]) -> int:
        return int(import_module(f"darrm.{self.name}.__main__").main(words))


WHO = ("--K", "--voters", "--epsilon", "--each-delta", "--overlap", "--models")
DOORS = (
    Door(
        "optimize",
        "--K 5 --m 2 --output OUT",
        "optimize_report",
        shared=(*WHO, "--target", "--prior", "--output", "--plot", "--format", "--quiet", "--time-limit"),
    ),
    Door(
        "plan",
        "--K 5 --non-private --overlap 1 --queries 3 --total 1,1e-5 --output OUT",
        "plan_report",
        shared=(*WHO, "--classes", "--queries", "--total", "--prior", "--output", "--plot", "--format", "--quiet"),
    ),
    Door(
        "release",
        "votes.npy --table table.json --ledger new.sqlite --create-budget 8,1e-2 --output labels.npy",
        "release_report",
        shared=("--table", "--ledger", "--output", "--classes", "--format", "--quiet"),
        job="file",
    ),
    Door(
        "ledger",
        "create empty.sqlite --budget 3,1e-3",
        "ledger_report",
        shared=("--budget", "--format", "--quiet"),
        job="create",
    ),
    Door(
        "account",
        "--table table.json --queries 20,5 --delta 1e-2",
        "account_report",
        shared=("--table", "--ledger", "--queries", "--models", "--overlap", "--plot", "--format", "--quiet"),
    ),
    Door("verify", "table.json ledger.sqlite", "verify_report", shared=("--classes", "--format", "--quiet")),
    Door(
        "pate",
        "counts.npy --sigma2 4 --delta 1e-5 --layout counts",
        "pate_report",
        shared=("--layout", "--classes", "--queries", "--output", "--plot", "--format", "--quiet"),
    ),
    Door("show", "table.json", "show_report"),
)

SERVED = "ledger,ledger move,ledger key,serve start,serve client,serve ask,release stream,release recover,serve,release"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    share(monkeypatch)
    problem = Problem.from_allowance(Voters(3, PrivacyParams("0.2", "1e-5")), "1.5")
    table = certify(problem, NoiseFunction(3, [0.5, 1.0]))
    table.save("table.json")
    np.save("votes.npy", np.array([[1, 1, 0], [0, 0, 0], [1, 1, 1], [0, 1, 0]]))
    np.save("counts.npy", np.array([[30, 2], [9, 23], [16, 16]]))
    PrivacyLedger.create("ledger.sqlite", PrivacyParams(2, "1e-3")).debit(Release(table).privacy_cost(4))
    return tmp_path


def ended(door: Door, *words: str) -> object:
    """Return the status of a command that prints its help or version, however it leaves."""
    try:
        return door.main(list(words))
    except SystemExit as left:
        return left.code


@pytest.mark.parametrize("door", DOORS, ids=str)
class TestEveryDoor:
    def test_help_names_the_shared_words(self, door: Door, capsys: pytest.CaptureFixture[str]) -> None:
        assert ended(door, *door.job.split(), "--help") == 0
        text = capsys.readouterr().out
        assert re.match(rf"Usage: darrm {door.name}", text)
        assert re.search("^ *[Ee]xamples?:", text, re.MULTILINE)
        assert {flag for flag in door.shared if not re.search(rf"{flag}\b", text)} == set()
        assert max(map(len, text.splitlines())) <= 80

    def test_version(self, door: Door, capsys: pytest.CaptureFixture[str]) -> None:
        assert ended(door, "--version") == 0
        assert re.fullmatch(r"darrm \d+\.\d+.*\n", capsys.readouterr().out)

    @pytest.mark.quick_cases(1)
    @pytest.mark.usefixtures("folder")
    def test_json_keeps_its_schema(self, door: Door, capsys: pytest.CaptureFixture[str]) -> None:
        assert run(lambda: door.main([*door.arguments.split(), "--format", "json"])) == 0
        shown = capsys.readouterr()
        assert shown.err == ""
        validated(shown.out, door.schema)

    @pytest.mark.usefixtures("folder")
    def test_text_is_for_people_and_quiet_is_quiet(self, door: Door, capsys: pytest.CaptureFixture[str]) -> None:
        assert run(lambda: door.main([*door.arguments.split(), "--quiet"])) == 0
        assert capsys.readouterr() == ("", "")

    @pytest.mark.parametrize("words", [["--nonsense"], ["--format", "xml"], ["--K"], ["--delta", "much"]])
    @pytest.mark.usefixtures("folder")
    def test_bad_words_get_one_line_and_status_2(
        self, door: Door, words: list[str], capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert run(lambda: door.main([*door.arguments.split(), *words])) == 2
        one_error("", capsys)

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


@pytest.mark.parametrize(
    "encoding", ["ascii", *(pytest.param(name, marks=pytest.mark.slow) for name in ("cp1252", "utf-8"))]
)
def test_an_encoding_changes_words_and_no_status(encoding: str, folder: Path) -> None:
    """Of all commands, their help and their errors, in one interpreter; JSON stays the same data."""
    calls = [[door.name, *door.job.split(), "--help"] for door in DOORS] + [
        [*one.split(), "--help"] for one in SERVED.split(",")
    ]
    calls += [[door.name, *door.arguments.replace("OUT", "OUT --force").split()] for door in DOORS]
    calls += [["account", "--ledger", "ledger.sqlite"], ["optimize", "--K", "3", "--format", "json"]]
    code = """if True:
        import contextlib, sys, darrm.__main__ as front
        for words in %r:
            try:
                status = front.main(words)
            except SystemExit as asked:
                status = asked.code
            if status or front.main([words[0], "--classes", "\u03b3\u00e9"]) != 2:
                sys.exit(f"{status} of {words}")
    """
    environment = {**os.environ, "PYTHONIOENCODING": encoding}
    words = [sys.executable, "-c", code % calls]
    done = subprocess.run(words, capture_output=True, check=False, env=environment, cwd=folder)
    errors = done.stderr.decode(encoding).splitlines()
    assert (done.returncode, [line for line in errors if not line.startswith(("error: ", "warning: "))]) == (0, [])
    out = done.stdout.decode(encoding)
    assert ("γ", "gamma", "gamma")[["utf-8", "cp1252", "ascii"].index(encoding)] in out
    assert json.loads(out[out.rindex("\n{") :])


@pytest.mark.parametrize(
    ("error", "status", "line"),
    [
        (KeyError("x"), 70, "KeyError"),
        (RuntimeError("two\nlines"), 70, "Report it with its traceback"),
        (json.JSONDecodeError("of another library", "{", 0), 70, "unexpected"),  # a ValueError, and no line of ours
        (MemoryError(), 2, "error: out of memory: ask for less at once\n"),
    ],
)
def test_an_error_that_is_not_ours_is_one_line(
    error: Exception, status: int, line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(Mock(side_effect=error)) == status
    one_error(line, capsys)


def test_help_needs_no_docstrings() -> None:
    words = [sys.executable, "-OO", "-m", "darrm", "plan", "--help"]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    assert "None" not in done.stdout.splitlines()


def test_importing_changes_no_hook(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text("import darrm\nraise MemoryError\n")
    done = subprocess.run([sys.executable, "-m", "program"], capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.stderr.startswith("Traceback")


def assert_one_line(start: list[str]) -> None:
    words = [sys.executable, "-W", "error", "-m", *start, "--nonsense"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith("error: ")
    assert done.stderr.count("\n") == 1


PLAN = "--K 5 --non-private --overlap 1 --queries 3 --total 1,1e-5"
WRITERS = (
    "optimize --K 3 --output FILE.json",
    "optimize --K 3 --plot FILE.png",
    f"plan {PLAN} --mechanism permute-and-flip --output FILE.json",
    f"plan {PLAN} --mechanism permute-and-flip --plot FILE.png",
    f"plan {PLAN} --mechanism permute-and-flip --csv FILE.csv",
    "account --table table.json --queries 5 --delta 1e-2 --plot FILE.png",
    "account --ledger ledger.sqlite --plot FILE.png",
    "pate counts.npy --sigma2 4 --delta 1e-5 --layout counts --no-table-2 --output FILE.json",
    "verify table.json --report FILE.html",
    "release votes.npy --table table.json --ledger ledger.sqlite --output FILE.npy",
)


@pytest.mark.parametrize("words", WRITERS)
def test_no_output_is_overwritten_unasked(words: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = words.replace("FILE", "old")
    (old,) = (folder / word for word in words.split() if word.startswith("old."))
    old.write_text("mine")
    assert front.main([*words.split(), "--quiet"]) == 2
    one_error("exists already", capsys)
    assert old.read_text() == "mine"
    assert len(PrivacyLedger("ledger.sqlite").entries()) == 1
    assert front.main([*words.split(), "--quiet", "--force"]) == 0
    assert old.read_bytes() != b"mine"
    assert not [path for path in folder.glob(".*") if path.suffix != ".lock"]  # the lock of the ledger stays


def test_labels_that_force_would_replace_stay_where_nothing_was_paid(folder: Path) -> None:
    paid = "--table table.json --ledger ledger.sqlite --output old.npy"
    words = ["release", "votes.npy", *paid.split(), "--force", "--quiet"]
    assert front.main(words) == 0
    kept = {path: path.read_bytes() for path in folder.glob("old.npy*")}
    assert len(kept) == 2  # labels and receipt
    np.save("votes.npy", np.ones((10**4, 3), dtype=int))  # more than the budget admits
    assert front.main(words) == 2
    assert {path: path.read_bytes() for path in folder.glob("old.npy*")} == kept
    assert not [path for path in folder.glob(".*") if path.suffix != ".lock"]  # the lock of the ledger stays


def test_every_door_is_in_the_contract(capsys: pytest.CaptureFixture[str]) -> None:
    served = {"serve"}  # answers a network and prints no report: tests/serve
    assert {door.name for door in DOORS} == set(front.COMMANDS) - served
    assert front.main([]) == 0
    listed = capsys.readouterr().out
    assert all(f"\n  {name} " in listed for name in front.COMMANDS)
    assert front.main(["optimiz"]) == 2
    assert "Choose from optimize" in capsys.readouterr().err


def test_an_interrupt_of_the_imports_is_one_line(tmp_path: Path) -> None:
    # a module that is imported early raises what Ctrl-C raises
    (tmp_path / "scipy.py").write_text("raise KeyboardInterrupt\n")
    words = [sys.executable, "-m", "darrm", "plan", "--non-private", "--total", "1,1e-5"]
    places = os.pathsep.join([str(tmp_path), *filter(None, sys.path)])
    done = subprocess.run(words, capture_output=True, text=True, check=False, env={**os.environ, "PYTHONPATH": places})
    assert done.returncode in {130, -signal.SIGINT}
    assert done.stderr == "error: interrupted\n"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("end", "line"), [(">&-", "standard output is closed"), (">/dev/full", "No space left on device")]
)
def test_an_output_that_takes_nothing_is_one_line(end: str, line: str) -> None:
    command = f"{sys.executable} -m darrm.optimize --K 3 {end}"
    done = subprocess.run(command, shell=True, capture_output=True, text=True, check=False)  # noqa: S602 (our own words)
    assert done.returncode == 2
    assert done.stderr.startswith("error: ")
    assert line in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("words", "line"),
    [
        ("plan --K 1000000000 --non-private --total 1,1e-5", "K must be an integer of at most 1000000"),
        ("optimize --K 100000000 --time-limit 1", "K must be an integer of at most 1000000"),
        ("optimize --K 40000 --time-limit 1", "whom one person reaches must be at most 1000000000"),
        ("plan --K 1000000 --non-private --total 1,1e-5", "must be at most 1000000000, got 1000001000000"),
        ("optimize --K 300000 --non-private --overlap 1 --target 1,1e-5", "the rows for 300,000 voters needs"),
        ("optimize --K 11 --prior uniform --draws 2147483648", "176 GiB, more than the 0.25 GiB"),
        ("optimize --K 11 --epsilon 1e999999999", "epsilon must be a finite number"),
        ("optimize --K 11 --m 0.000029E999700001", "m must be a finite number"),
        ("plan --K 11 --non-private --queries 99999999999999999999 --total 1,1e-5", "queries must be an integer of at"),
        ("plan --K 11 --non-private --total 1e999999999,1e-5", "epsilon must be a finite number"),
        ("account --table table.json --queries 99999999999999999999 --delta 1e-5", "whole numbers of at least 1 and"),
        ("account --table table.json --queries 5 --delta 1e-999999999", "delta must be a finite number"),
        ("pate counts.npy --sigma2 4 --delta 1e-5 --sigma1 1e300 --threshold 9", "sigma must be in"),
        ("pate counts.npy --sigma2 1e200 --delta 1e-5", "sigma must be in"),
        ("pate counts.npy --gamma 1e300 --delta 1e-5", "gamma must be in"),
        ("pate counts.npy --gamma 1e-300 --delta 1e-5", "gamma must be in"),
        (
            "pate counts.npy --layout counts --sigma2 4 --delta 1e-5 --sigma1 9 --threshold 1e9",
            "of voters, 32, and two",
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
    how = ["--delta", "1e-5", "--layout", "counts", "--format", "json", "--no-table-2"]
    words = ["pate", "many.npy", *noise, *how]
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert front.main(words) == 0
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 2**18  # KiB
    assert json.loads(capsys.readouterr().out)["table_1"]["voters"] == 2147483647
