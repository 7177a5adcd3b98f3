"""Processes that are killed: in a fresh interpreter, which has no threads when it forks."""

import os
import subprocess
import sys
from pathlib import Path


def ended(number: int) -> int:
    """How a forked process ended: its exit status, or the signal that killed it, negative."""
    return os.waitstatus_to_exitcode(os.waitpid(number, 0)[1])


def apart(test: str, folder: Path, expression: str) -> str:
    """What an expression about ``kills``, a file of tests, and ``folder`` prints in a fresh process."""
    script = (
        f"import sys; sys.path.insert(0, {str(Path(test).parent)!r}); import {Path(test).stem} as kills; "
        f"from pathlib import Path; folder = Path({str(folder)!r}); print({expression})"
    )
    root = Path(__file__).parents[1]
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, cwd=root)
    assert done.returncode == 0, done.stderr
    return done.stdout
