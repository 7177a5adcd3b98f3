"""The scaling experiment: what it reports is what it measured."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from darrm.votes import Votes
from experiments.scaling import release_benchmark as benchmark
from experiments.scaling.commands import COMMANDS, ROOT, Runs, median, run_once, times_less
from experiments.scaling.measuring import Taken, measure, measure_apart
from experiments.scaling.page import Case


def test_a_case_is_measured() -> None:
    item = measure(Case(41, 10, "1e-5", "free", "production"), 60.0)
    assert item.rows_full_set == 73_629_072
    assert 0 < item.rows_used < 1000
    assert item.relative_gap < 1e-9
    assert item.over_floor > 1.0


@pytest.mark.slow
def test_a_case_is_measured_in_a_process_of_its_own() -> None:
    apart = measure_apart(Case(11, 3, "0", "monotone", "production", "numpy"), 60.0)
    here = measure(Case(11, 3, "0", "monotone", "production"), 60.0)
    assert (apart.loops, here.loops) == ("numpy", "compiled")
    assert (apart.expected_error, apart.bound, apart.rounds) == (here.expected_error, here.bound, here.rounds)


@pytest.mark.slow
def test_a_run_says_what_its_process_took(tmp_path: Path) -> None:
    """Three processes that differ in what is looked at: the time asleep, the work, the memory."""
    typed = (
        "-c 'import time; time.sleep(0.3)'",
        "-c 'import time\nwhile time.process_time() < 0.3: pass'",
        "-c 'x = bytearray(200 * 2**20)'",
    )
    idle, busy, large = (run_once(command, ROOT, tmp_path) for command in typed)
    assert idle.seconds >= 0.3 <= busy.cpu_seconds
    assert idle.cpu_seconds < 0.3  # the clock of the process stands still while it sleeps
    assert large.megabytes >= 200.0 > idle.megabytes  # of a small one, whatever started it


def test_a_command_that_fails_has_no_seconds(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="ended with status 3"):
        run_once("-c 'raise SystemExit(3)'", tmp_path, tmp_path)


def test_medians_and_ratios() -> None:
    now = median([Taken(1.0, 3.0, 50.0), Taken(2.0, 1.0, 70.0), Taken(9.0, 2.0, 60.0)])
    assert now == Runs(3, 2.0, 2.0, 60.0)
    assert times_less({"now": asdict(now), "before": asdict(Runs(1, 10.0, 5.0, 80.0))}) == 2.5
    assert times_less({"now": asdict(now), "before": None}) is None
    assert len({each.typed for each in COMMANDS}) == len(COMMANDS)  # what the page's data is known by


def test_every_file_holds_the_same_votes(tmp_path: Path) -> None:
    found = []
    for name in ("digits.csv", "words.csv", "int64.npy", "bytes.npy"):
        benchmark.write_votes(tmp_path / name, 300)
        classes: Any = benchmark.WORDS if name == "words.csv" else 2
        found.append(Votes.read(tmp_path / name, voters=benchmark.K, classes=classes).ones.tolist())
    assert found == [found[0]] * 4
    assert 0.6 < sum(found[0]) / (300 * benchmark.K) < 0.9


@pytest.mark.slow
def test_a_release_that_fails_is_no_measurement(tmp_path: Path) -> None:
    benchmark.table().table.save(tmp_path / "table.json")
    (tmp_path / "digits.csv").write_text("0,1\n")
    with pytest.raises(ValueError, match=r"ended with status 2"):
        benchmark.release(tmp_path, "digits.csv", "labels.csv", ROOT)
