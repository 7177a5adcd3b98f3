"""The page of the commands' seconds: what it reports is what ran."""

from dataclasses import asdict
from pathlib import Path

import pytest

from experiments.scaling.commands import COMMANDS, ROOT, Runs, median, run_once, times_less
from experiments.scaling.measuring import Taken


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
