"""Python in a process of its own: what it takes from its start to its end."""

import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

# the peak of a process counts what the one that started it held by then: so a small one starts it
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
class Taken:
    """What a process took."""

    seconds: float
    cpu_seconds: float  # of the process, user and system
    megabytes: float  # at its peak


def python(*words: str, checkout: Path, folder: Path, variables: Mapping[str, str] | None = None) -> str:
    """Run Python on one core with a checkout's modules, in a folder; return what it prints.

    Raises
    ------
    ValueError
        If it ends with another status than 0.
    """
    environment = {**os.environ, "PYTHONPATH": str(checkout.absolute()), "OMP_NUM_THREADS": "1", **(variables or {})}
    command = [sys.executable, *words]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)  # noqa: S603
    if done.returncode:
        raise ValueError(f"python {' '.join(words[2:])} ended with status {done.returncode}")
    return done.stdout


def measured(*words: str, checkout: Path, folder: Path, variables: Mapping[str, str] | None = None) -> Taken:
    """Run Python as `python` does and measure it."""
    text = python("-c", STARTER, *words, checkout=checkout, folder=folder, variables=variables)
    return Taken(*map(float, text.splitlines()[-1].split()))
