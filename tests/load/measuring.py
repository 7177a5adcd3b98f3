"""Time and memory of Python processes, for the pages about commands, releases and long lists."""

import os
import statistics
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
# the peak of a process includes the memory of its parent at the start, so a small process starts it
STARTER = """
import os, sys, time
started = time.perf_counter()
child = os.posix_spawn(sys.executable, [sys.executable, *sys.argv[1:]], os.environ)
_, status, usage = os.wait4(child, 0)
print()
print(time.perf_counter() - started, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024)
sys.exit(os.waitstatus_to_exitcode(status))
"""


@dataclass(frozen=True)
class Usage:
    seconds: float
    cpu_seconds: float  # of the process, user and system
    megabytes: float  # at its peak

    @classmethod
    def median(cls, runs: "Sequence[Usage]") -> "Usage":
        return cls(*map(statistics.median, zip(*map(astuple, runs), strict=True)))


def measure_process(*words: str, folder: Path, variables: Mapping[str, str] | None = None) -> Usage:
    """Run Python on one core with this checkout's modules, in a folder, and measure it.

    Raises
    ------
    ValueError
        If it ends with another status than 0.
    """
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", **(variables or {})}
    command = [sys.executable, "-c", STARTER, *words]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ValueError(f"python {' '.join(words)} ended with status {done.returncode}")
    return Usage(*map(float, done.stdout.splitlines()[-1].split()))
