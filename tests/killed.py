"""Run tests that kill processes in a new interpreter, which has no threads when it forks."""

import os
import subprocess
import sys
from pathlib import Path


def wait_for(number: int) -> int:
    """Return the exit status of a forked process, or minus the signal that killed it."""
    return os.waitstatus_to_exitcode(os.waitpid(number, 0)[1])


def run_apart(test: str, folder: Path, expression: str) -> str:
    """Return the output of an expression with ``kills``, a module of tests, and ``folder`` in a new process."""
    script = (
        f"import sys; sys.path.insert(0, {str(Path(test).parent)!r}); import {Path(test).stem} as kills; "
        f"from pathlib import Path; folder = Path({str(folder)!r}); print({expression})"
    )
    root = Path(__file__).parents[1]
    process = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, cwd=root)
    assert process.returncode == 0, process.stderr
    return process.stdout
