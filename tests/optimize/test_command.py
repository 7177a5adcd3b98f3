"""The main command as a user meets it: output, files, bad input, and what it imports."""

import json
import os
import pty
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from darrm import Table
from darrm.commands.command_line import run
from darrm.optimize.__main__ import main
from darrm.release.__main__ import main as release
from tests.doors import refused, validated
from tests.optimality import optimality_of

ROOT = Path(__file__).parents[2]
OF_THREE = ["--classes", "3", "--K", "9", "--non-private", "--overlap", "1", "--target", "0.5,1e-3"]
OPEN = ["--classes", "open", "--K", "6", "--non-private", "--overlap", "1", "--target", "3,0.05"]
EXTRAS = ("cvxpy", "dp_accounting", "torch", "matplotlib", "sklearn", "safetensors", "joblib")


def run_python(*arguments: str, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=cwd, env=environment)


def test_quiet_prints_nothing_and_writes_table_and_picture(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table, picture = tmp_path / "t.json", tmp_path / "gamma.png"
    assert run(lambda: main(["--K", "10", "--quiet", "--output", str(table), "--plot", str(picture)])) == 0
    captured = capsys.readouterr()
    assert captured.out == captured.err == ""
    assert table.exists()
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_a_long_report_is_shortened(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(lambda: main(["--K", "251", "--shape", "monotone", "--prior", "common", "--all"])) == 0
    assert "60 of 126 lines shown" in capsys.readouterr().out


def test_the_reference_solver_proves_every_row(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(lambda: main(["--K", "5", "--m", "2", "--solver", "reference"])) == 0
    assert "Proof     792 rows" in capsys.readouterr().out


@pytest.mark.parametrize(
    "words", ["--K 5 --target 0.5 1e-4", "--n-voters 5 --target 0.5,1e-4", "--teachers 5 --target 0.5, 1e-4"]
)
def test_other_spellings_mean_the_same(words: str, tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    assert main([*words.split(), "-q", "-o", str(path)]) == 0
    problem = Table.load(path).problem
    assert (problem.voters.K, str(problem.target)) == (5, "(0.5, 0.0001)")


def test_clear_majorities_are_released_more_accurately(capsys: pytest.CaptureFixture[str]) -> None:
    accuracies = []
    for prior in ("dirichlet:0.2", "dirichlet", "dirichlet:5"):
        assert main([*OF_THREE, "--prior", prior, "--format", "json"]) == 0
        accuracies.append(json.loads(capsys.readouterr().out)["accuracy"])
    assert accuracies == sorted(accuracies, reverse=True)


@pytest.mark.parametrize(
    ("arguments", "piece"),
    [
        ("--K 0", "K must be an integer of at least 1"),
        ("--overlap 0", "overlap must be an integer of at least 1"),
        ("--overlap 12", "overlap must be at most K = 11"),
        ("--m 0.99", "m must be in [1, K]"),
        ("--m nan", "m must be a finite number"),
        ("--epsilon 0", "each.epsilon must be positive"),
        ("--epsilon inf", "--epsilon must be finite for private voters: write --non-private"),
        ("--voters some", "a file that ends in .csv"),
        ("--non-private", "--non-private needs --target EPS,DELTA"),
        ("--non-private --target inf,0", "epsilon must be a finite number"),
        ("--non-private --target 0,0.1", "target.epsilon must be positive"),
        ("--non-private --target 1,1e-5 --m 3", "--m and --target both set"),
        ("--epsilon 300", "would overflow"),
        ("--epsilon 1e-400", "1e-323 or more if it is not 0"),
        ("--each-delta 1", "delta must be in [0, 1)"),
        ("--delta 1e-9", "target.delta must be at least"),
        ("--prior uniform:0.5", "the prior must be"),
        ("--prior uniform:0.2,1 --objective surrogate", "symmetric about 1/2"),
        ("--draws 100", "--draws is about a prior without linear expected error"),
        ("--prior uniform --draws many", "--draws must be an integer of at least 2"),
        ("--prior uniform --solver reference", "solver must be 'production'"),
        ("--prior point:1.5", "p must be in [0, 1]"),
        ("--shape round", "'round' is not one of"),
        ("--time-limit soon", "--time-limit must be"),
        ("--gap -1", "--gap must be"),
        ("--output /no/such/folder/t.json", "does not exist: create it first"),
        ("--K 41 --solver reference", "too many to write down"),
    ],
)
def test_bad_input_is_refused_with_one_line_and_status_2(
    arguments: str, piece: str, capsys: pytest.CaptureFixture[str]
) -> None:
    refused(main, arguments, piece, capsys)


def run_code(code: str) -> str:
    process = run_python("-c", code)
    assert process.returncode == 0, process.stderr
    return process.stdout


@pytest.mark.slow
def test_optimize_runs_without_extras() -> None:
    out = run_code(
        f"""
import sys
class Forbid:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {EXTRAS!r}:
            raise ImportError("forbidden: " + name)
sys.meta_path.insert(0, Forbid())
import darrm, darrm.majority, darrm.loss.composition
from darrm.optimize.__main__ import main
from darrm.commands.command_line import run
assert run(lambda: main(["--K", "5", "--m", "2"])) == 0
print("status", run(lambda: main(["--K", "5", "--plot", "x.png", "--quiet"])))
print("status", run(lambda: main(["--K", "5", "--solver", "reference"])))
"""
    )
    assert "Problem   5 voters" in out
    assert out.count("status 2") == 2


def test_the_command_imports_five_libraries() -> None:
    out = run_code(
        """
import sys
before = set(sys.modules)
from darrm.optimize.__main__ import main
main(["--quiet"])
roots = {name.partition(".")[0] for name in set(sys.modules) - before}
import importlib.metadata
distributions = importlib.metadata.packages_distributions()
print(" ".join(sorted(root for root in roots if root in distributions and root != "darrm")))
print("stats" if "scipy.stats" in sys.modules or "scipy.optimize" in sys.modules else "light")
"""
    )
    libraries, weight = out.splitlines()
    of_numpy = {"charset_normalizer"}  # numpy.f2py, which scipy touches, takes it where it is installed
    assert set(libraries.split()) - of_numpy <= {
        "numpy",
        "scipy",
        "click",
        "highspy",
        "flint",
        "lp_models",
        "pyflint",
        "highspy_extras",
    }
    assert weight == "light"


@pytest.mark.slow
def test_ctrl_c_still_writes_a_proved_table(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    arguments = ["--K", "2001", "--m", "5", "--gap", "0"]  # minutes
    terminal, stderr = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "darrm.optimize", *arguments, "--output", str(path)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=stderr,
        text=True,
        # a shell that starts the tests in the background has them ignore Ctrl-C
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509 (no threads here)
    )
    os.close(stderr)
    err = os.read(terminal, 1000)  # the status line: once the search is on its way, however busy the machine is
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=300)
    assert process.returncode == 0, err
    assert "interrupted" in out
    table = Table.load(path)
    assert optimality_of(table).bound <= optimality_of(table).value


@pytest.mark.parametrize("classes", ["2", "3"])
@pytest.mark.parametrize(
    ("flags", "description"),
    [
        ("", "(0.1, 1e-05)-differentially private (default)\n"),
        ("--epsilon 0.2", "(0.2, 1e-05)-differentially private (Δ: default)\n"),
        ("--each-delta 0", "(0.1, 0)-differentially private (ε: default)\n"),
        ("--epsilon 0.1 --each-delta 1e-5", "(0.1, 1e-05)-differentially private\n"),
        ("--non-private --target 1,1e-5", "each voter is   not private\n"),
    ],
)
def test_default_parameters_are_marked(
    classes: str, flags: str, description: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(lambda: main(["--K", "3", "--classes", classes, *flags.split()])) == 0
    short = description.replace("differentially private", "DP").replace(
        "each voter is   not private", "not private themselves"
    )
    assert (description if classes == "3" else short.replace("\n", ";")) in capsys.readouterr().out


def test_several_allowances_print_a_row_each(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = []
    for m in ("1", "3"):
        assert main(["--m", m, "--json", "-o", str(tmp_path / f"{m}.json")]) == 0
        rows.append(validated(capsys.readouterr().out, "optimize_report"))
    assert main(["--m", "1,3", "--json"]) == 0
    rows_of_both = validated(capsys.readouterr().out, "optimize_rows")["rows"]
    assert [row["m"] for row in rows_of_both] == [1.0, 3.0]
    assert [row["epsilon"] for row in rows_of_both] == [0.1, 0.3]
    for row, single in zip(rows_of_both, rows, strict=True):
        assert row["accuracy"] == pytest.approx(single["noise_functions"][0]["accuracy"], rel=1e-12)
        assert row["expected_error"] == pytest.approx(single["optimality"]["value"], rel=1e-12)
    assert main(["--m", "1,3", "--format", "csv"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "m,epsilon,delta,accuracy,expected_error,gap"
    assert [float(line.split(",")[3]) for line in lines[1:]] == [row["accuracy"] for row in rows_of_both]
    assert main(["--m", "1,3"]) == 0
    text = capsys.readouterr().out
    assert all(f"{row['accuracy']:.4f}" in text for row in rows_of_both)
    refused(main, ["--m", "1,3", "-o", str(tmp_path / "t.json")], "--output is about one allowance --m", capsys)


def test_text_and_json_of_three_classes_agree_with_the_table(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "t.json"
    assert main([*OF_THREE, "--output", str(path)]) == 0
    text = capsys.readouterr().out
    table = Table.load(path)
    validated(path, "plurality_table")
    assert f"Accuracy          {table.accuracy:.10g}" in text
    row = "".join(f"{each:8.4f}" for each in table.plurality.probabilities([[6, 3, 0]])[0])
    assert row in text
    assert main([*OF_THREE, "--format", "json", "--output", str(path), "--force"]) == 0
    report = validated(capsys.readouterr().out, "plurality_report")
    assert report["accuracy"] == table.accuracy
    assert table.optimality is not None
    assert report["optimality"]["bound"] == table.optimality.bound
    votes = [histogram["votes"] for histogram in report["histograms"]]
    probabilities = [histogram["probabilities"] for histogram in report["histograms"]]
    assert probabilities == table.plurality.probabilities(votes).tolist()
    assert votes[0] == [9, 0, 0]
    assert votes[-1] == [3, 3, 3]


@pytest.mark.parametrize(
    ("problem", "extra", "word"),
    [
        (OF_THREE, "--m 3", "--m and --target both set"),
        (OF_THREE, "--shape monotone", "shape must be left out for 3 classes"),
        (OF_THREE, "--solver reference", "solver must be left out for 3 classes"),
        (OF_THREE, "--objective surrogate", "objective must be left out for 3 classes"),
        (OF_THREE, "--draws 9", "must be left out for 3 classes"),
        (OF_THREE, "--plot picture.png", "--plot is about two classes"),
        (OF_THREE, "--prior common", "the prior must be"),
        (OF_THREE, "--epsilon 1", "contradict each other"),
        (OF_THREE, "--K 400 --classes 10", "the number of partitions"),
        (OF_THREE, "--classes 1", "classes must be"),
        (OF_THREE, "--classes 65536 --K 5", "classes must be"),
        (OPEN, "--prior dirichlet", "ewens"),
        (OPEN, "--plot x.png", "two classes"),
        (OPEN, "--prior ewens:-1", "positive"),
        (OPEN, "--prior votes:recorded.csv", "ewens, ewens:THETA for open answers"),
        (OPEN, "--K 400", "at most 80"),
    ],
)
def test_options_for_two_classes_are_refused_for_more(
    problem: list[str], extra: str, word: str, capsys: pytest.CaptureFixture[str]
) -> None:
    refused(main, [*problem, *extra.split()], word, capsys)


def test_a_time_limit_still_writes_a_proved_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*OF_THREE, "--time-limit", "0", "--output", str(tmp_path / "t.json")]) == 0
    assert "time limit; the proof and the bound above hold" in capsys.readouterr().out
    table = Table.load(tmp_path / "t.json")
    assert table.optimality is not None
    assert not table.optimality.claimed
    assert table.optimality.bound == pytest.approx(1.0)


def test_an_open_set_table_releases_labels(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table, votes, labels = (tmp_path / name for name in ("table.json", "votes.csv", "labels.csv"))
    assert main([*OPEN, "--output", str(table)]) == 0
    description = capsys.readouterr().out
    assert "6 voters, open answers" in description
    assert "of the questions have an answer" in description
    validated(table, "plurality_table")
    votes.write_text("tea,tea,tea,tea,tea,tea\na,b,c,d,e,f\n")
    arguments = ["file", str(votes), "--table", str(table), "--classes", "open", "--output", str(labels)]
    assert release([*arguments, "--ledger", str(tmp_path / "ledger.db"), "--create-budget", "6,0.2"]) == 0
    answers = labels.read_text().splitlines()
    assert len(answers) == 2
    assert answers[0] in {"tea", ""}


def test_an_open_set_report_has_the_share_answered(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*OPEN, "--prior", "ewens:0.5", "--format", "json"]) == 0
    report = validated(capsys.readouterr().out, "plurality_report")
    assert report["problem"]["classes"] == "open"
    assert report["accuracy"] <= report["share_answered"] <= 1.0
