"""The contract of every command: to test a new one, add it to `COMMANDS`."""

import json
import os
import re
import resource
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest

import darrm.__main__ as front
from darrm import NoiseFunction, PrivacyLedger, PrivacyParams, Problem, Release, Voters, certify
from darrm.commands.command_line import run
from tests.doors import one_error, refused, validated
from tests.planned import share


@dataclass(frozen=True)
class Command:
    name: str
    arguments: str
    flags: str = "--format --quiet"  # which its help names
    subcommand: str = ""  # of this help

    def __str__(self) -> str:
        return self.name

    def main(self, words: Sequence[str]) -> int:
        return int(import_module(f"darrm.{self.name}.__main__").main(words))


VOTERS = "--K --voters --epsilon --each-delta --overlap --models"
COMMANDS = (
    Command(
        "optimize",
        "--K 5 --m 2 --output OUT",
        f"{VOTERS} --target --prior --output --plot --format --quiet --time-limit",
    ),
    Command(
        "plan",
        "--K 5 --non-private --overlap 1 --queries 3 --total 1,1e-5 --output OUT",
        f"{VOTERS} --classes --queries --total --prior --output --plot --format --quiet",
    ),
    Command(
        "release",
        "votes.npy --table table.json --ledger new.sqlite --create-budget 8,1e-2 --output labels.npy",
        "--table --ledger --output --classes --format --quiet",
        "file",
    ),
    Command("ledger", "create empty.sqlite --budget 3,1e-3", "--budget --format --quiet", "create"),
    Command(
        "account",
        "--table table.json --queries 20,5 --delta 1e-2",
        "--table --ledger --queries --models --overlap --plot --format --quiet",
    ),
    Command("verify", "table.json ledger.sqlite", "--classes --format --quiet"),
    Command(
        "pate",
        "counts.npy --sigma2 4 --delta 1e-5 --layout counts",
        "--layout --classes --queries --output --plot --format --quiet",
    ),
    Command("show", "table.json"),
)
SUBCOMMANDS = (
    *("ledger", "ledger move", "ledger key", "serve", "serve start", "serve client", "serve ask"),
    *("release", "release stream", "release recover"),
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
    PrivacyLedger.create("ledger.sqlite", PrivacyParams(2, "1e-3")).debit(Release(table).privacy_cost(4))
    return tmp_path


def exit_status(command: Command, *words: str) -> object:
    try:
        return command.main(list(words))
    except SystemExit as error:
        return error.code


def run_python(*words: str, **options: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *words], capture_output=True, text=True, check=False, **options)


def check_error(process: subprocess.CompletedProcess[str], message: str = "") -> None:
    """Check that a process ended with status 2 and one line of error."""
    assert (process.returncode, process.stderr.count("\n")) == (2, 1)
    assert process.stderr.startswith("error: ")
    assert message in process.stderr


@pytest.mark.parametrize("command", COMMANDS, ids=str)
class TestEveryCommand:
    def test_its_help_names_its_flags(self, command: Command, capsys: pytest.CaptureFixture[str]) -> None:
        assert exit_status(command, *command.subcommand.split(), "--help") == 0
        text = capsys.readouterr().out
        assert re.match(rf"Usage: darrm {command.name}", text)
        assert re.search("^ *[Ee]xamples?:", text, re.MULTILINE)
        assert [flag for flag in command.flags.split() if not re.search(rf"{flag}\b", text)] == []
        assert max(map(len, text.splitlines())) <= 80

    def test_it_prints_its_version(self, command: Command, capsys: pytest.CaptureFixture[str]) -> None:
        assert exit_status(command, "--version") == 0
        assert re.fullmatch(r"darrm \d+\.\d+.*\n", capsys.readouterr().out)

    @pytest.mark.quick_cases(1)
    @pytest.mark.usefixtures("folder")
    def test_its_json_fits_its_schema(self, command: Command, capsys: pytest.CaptureFixture[str]) -> None:
        assert run(lambda: command.main([*command.arguments.split(), "--format", "json"])) == 0
        output = capsys.readouterr()
        assert output.err == ""
        validated(output.out, f"{command.name}_report")

    @pytest.mark.usefixtures("folder")
    def test_quiet_prints_nothing(self, command: Command, capsys: pytest.CaptureFixture[str]) -> None:
        assert run(lambda: command.main([*command.arguments.split(), "--quiet"])) == 0
        assert capsys.readouterr() == ("", "")

    @pytest.mark.parametrize("words", [["--nonsense"], ["--format", "xml"], ["--K"], ["--delta", "much"]])
    @pytest.mark.usefixtures("folder")
    def test_wrong_options_are_one_line_and_status_2(
        self, command: Command, words: list[str], capsys: pytest.CaptureFixture[str]
    ) -> None:
        refused(command.main, [*command.arguments.split(), *words], "", capsys)

    @pytest.mark.slow
    def test_its_module_starts_without_a_warning(self, command: Command) -> None:
        check_error(run_python("-W", "error", "-m", f"darrm.{command.name}", "--nonsense"))


@pytest.mark.slow
def test_darrm_starts_all_commands_without_a_warning() -> None:
    """In one interpreter, as each takes a second to start."""
    check_error(run_python("-W", "error", "-m", "darrm", COMMANDS[0].name, "--nonsense"))
    code = "import sys, darrm.__main__ as front; print(*(front.main([name, '--nonsense']) for name in sys.argv[1:]))"
    process = run_python("-W", "error", "-c", code, *map(str, COMMANDS))
    assert process.stdout.split() == ["2"] * len(COMMANDS)
    assert [line[:7] for line in process.stderr.splitlines()] == ["error: "] * len(COMMANDS)


@pytest.mark.parametrize(
    "encoding", ["ascii", *(pytest.param(name, marks=pytest.mark.slow) for name in ("cp1252", "utf-8"))]
)
def test_an_encoding_changes_letters_only(encoding: str, folder: Path) -> None:
    """Run all commands, their help and their errors in one interpreter; JSON stays the same data."""
    calls = [[command.name, *command.subcommand.split(), "--help"] for command in COMMANDS]
    calls += [[*subcommand.split(), "--help"] for subcommand in SUBCOMMANDS]
    calls += [[command.name, *command.arguments.replace("OUT", "OUT --force").split()] for command in COMMANDS]
    calls += [["account", "--ledger", "ledger.sqlite"], ["optimize", "--K", "3", "--format", "json"]]
    code = """if True:
        import contextlib, sys, darrm.__main__ as front
        for words in %r:
            try:
                status = front.main(words)
            except SystemExit as error:
                status = error.code
            if status or front.main([words[0], "--classes", "\u03b3\u00e9"]) != 2:
                sys.exit(f"{status} of {words}")
    """
    environment = {**os.environ, "PYTHONIOENCODING": encoding}
    process = run_python("-c", code % calls, env=environment, encoding=encoding, cwd=folder)
    others = [line for line in process.stderr.splitlines() if not line.startswith(("error: ", "warning: "))]
    assert (process.returncode, others) == (0, [])
    assert ("γ" if encoding == "utf-8" else "gamma") in process.stdout
    assert json.loads(process.stdout[process.stdout.rindex("\n{") :])


@pytest.mark.parametrize(
    ("error", "status", "line"),
    [
        (KeyError("x"), 70, "KeyError"),
        (RuntimeError("two\nlines"), 70, "Report it with its traceback"),
        (json.JSONDecodeError("of another library", "{", 0), 70, "unexpected"),  # a ValueError of another library
        (MemoryError(), 2, "error: out of memory: ask for less at once\n"),
    ],
)
def test_an_unexpected_error_is_one_line(
    error: Exception, status: int, line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(Mock(side_effect=error)) == status
    one_error(line, capsys)


def test_help_needs_no_docstrings() -> None:
    process = run_python("-OO", "-m", "darrm", "plan", "--help")
    assert process.returncode == 0
    assert "None" not in process.stdout.splitlines()


def test_importing_changes_no_hook(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text("import darrm\nraise MemoryError\n")
    assert run_python("-m", "program", cwd=tmp_path).stderr.startswith("Traceback")


PATE = "pate counts.npy --delta 1e-5"
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
def test_no_output_is_overwritten_without_force(words: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = words.replace("FILE", "old")
    (old,) = (folder / word for word in words.split() if word.startswith("old."))
    old.write_text("mine")
    assert front.main([*words.split(), "--quiet"]) == 2
    one_error("exists already", capsys)
    assert old.read_text() == "mine"
    assert len(PrivacyLedger("ledger.sqlite").entries()) == 1
    assert front.main([*words.split(), "--quiet", "--force"]) == 0
    assert old.read_bytes() != b"mine"
    assert list_temporary_files(folder) == []


def list_temporary_files(folder: Path) -> list[Path]:
    return [path for path in folder.glob(".*") if path.suffix != ".lock"]  # the lock of the ledger stays


def test_force_replaces_no_labels_if_nothing_is_paid(folder: Path) -> None:
    files = "votes.npy --table table.json --ledger ledger.sqlite --output old.npy"
    words = ["release", *files.split(), "--force", "--quiet"]
    assert front.main(words) == 0
    contents = {path: path.read_bytes() for path in folder.glob("old.npy*")}
    assert len(contents) == 2  # labels and receipt
    np.save("votes.npy", np.ones((10**4, 3), dtype=int))  # more than the budget admits
    assert front.main(words) == 2
    assert {path: path.read_bytes() for path in folder.glob("old.npy*")} == contents
    assert list_temporary_files(folder) == []


def test_every_command_is_listed_and_keeps_the_contract(capsys: pytest.CaptureFixture[str]) -> None:
    # serve prints no report: tests/serve
    assert {command.name for command in COMMANDS} == set(front.COMMANDS) - {"serve"}
    assert front.main([]) == 0
    text = capsys.readouterr().out
    assert [name for name in front.COMMANDS if f"\n  {name} " not in text] == []
    assert front.main(["optimiz"]) == 2
    assert "Choose from optimize" in capsys.readouterr().err


def test_an_interrupt_during_the_imports_is_one_line(tmp_path: Path) -> None:
    # a module that is imported early raises what Ctrl-C raises
    (tmp_path / "scipy.py").write_text("raise KeyboardInterrupt\n")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), *filter(None, sys.path)])}
    process = run_python(*["-m", "darrm", "plan", "--non-private", "--total", "1,1e-5"], env=environment)
    assert process.returncode in {130, -signal.SIGINT}
    assert process.stderr == "error: interrupted\n"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("output", "message"), [(">&-", "standard output is closed"), (">/dev/full", "No space left on device")]
)
def test_an_output_that_cannot_be_written_is_one_line(output: str, message: str) -> None:
    command = f"{sys.executable} -m darrm.optimize --K 3 {output}"
    check_error(subprocess.run(command, shell=True, capture_output=True, text=True, check=False), message)  # noqa: S602


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("words", "message"),
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
        (f"{PATE} --sigma2 4 --sigma1 1e300 --threshold 9", "sigma must be in"),
        (f"{PATE} --sigma2 1e200", "sigma must be in"),
        (f"{PATE} --gamma 1e300", "gamma must be in"),
        (f"{PATE} --gamma 1e-300", "gamma must be in"),
        (f"{PATE} --layout counts --sigma2 4 --sigma1 9 --threshold 1e9", "of voters, 32, and two"),
    ],
)
def test_what_needs_too_much_time_or_memory_is_refused(
    words: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    refused(front.main, words, message, capsys)


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("noise", ["--sigma2 4 --sigma1 1e9 --threshold 9", "--gamma 0.1"])
def test_large_counts_and_noise_take_little_memory(noise: str, capsys: pytest.CaptureFixture[str]) -> None:
    # a table of tails would have 2^31 entries, and the sum over the noise of the check 8e10
    np.save("many.npy", np.array([[2147483647, 0], [2147483000, 647]]))
    words = f"pate many.npy {noise} --delta 1e-5 --layout counts --format json --no-table-2"
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert front.main(words.split()) == 0
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - peak < 2**18  # KiB
    assert json.loads(capsys.readouterr().out)["table_1"]["voters"] == 2147483647
