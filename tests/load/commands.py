"""Seconds and memory of the commands: each run is a separate process, so its seconds include the imports.

python -m tests.load.commands --recompute   # a few minutes
"""

import shlex
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from darrm.commands.command_line import run
from experiments import pages
from experiments.pages import Row
from tests.load.measuring import Usage, measure_process

NAME = "commands"
RUNS = 5
MAX_SECONDS = 30.0  # of all runs of a command, except the first


@dataclass(frozen=True)
class Command:
    what: str
    typed: str
    quick: bool = True


PRIVATE = "--epsilon 0.1 --each-delta 1e-5 --queries 100 --total 4,1e-2 --quiet"
TEACHERS = "--K 250 --non-private --overlap 1 --classes 10 --queries 500 --total 2,1e-5 --quiet"
TABLE = "-m darrm.optimize --K 11 --m 3 --each-delta 0 --output t.json --quiet"
COMMANDS = (
    Command("Python alone", "-c pass"),
    Command("import darrm", "-c 'import darrm'"),
    Command("all public names", "-c 'from darrm import *'"),
    Command("account of 100 queries", "-m darrm.account --table t.json --queries 100 --delta 1e-2"),
    Command("account of 10⁶ queries", "-m darrm.account --table t.json --queries 1000000 --delta 1e-2"),
    Command("plan, as in the README", f"-m darrm.plan {TEACHERS}"),
    Command("plan for 101 private voters", f"-m darrm.plan --K 101 {PRIVATE}"),
    Command("plan for 301 private voters", f"-m darrm.plan --K 301 {PRIVATE}", quick=False),
    Command("plan for 1,001 private voters", f"-m darrm.plan --K 1001 {PRIVATE}", quick=False),
)


def run_once(typed: str, folder: Path) -> Usage:
    """Run a command once, in a folder that holds the table t.json."""
    # byte code is kept, as in an installed library
    kept = {"PYTHONPYCACHEPREFIX": str(folder / "bytecode"), "PYTHONDONTWRITEBYTECODE": ""}
    return measure_process(*shlex.split(typed), folder=folder, variables=kept)


def measure(command: Command, folder: Path) -> Row:
    if command.quick:  # fills the caches
        run_once(command.typed, folder)
    runs: list[Usage] = []
    started = time.perf_counter()
    while len(runs) < RUNS and (not runs or time.perf_counter() - started < MAX_SECONDS):
        runs.append(run_once(command.typed, folder))
    return {"what": command.what, "typed": command.typed, "runs": len(runs), **asdict(Usage.median(runs))}


def page(commands: Sequence[Row]) -> str:
    return pages.fill_template(NAME, {"commands": commands, "table": TABLE})


def main(arguments: Sequence[str] | None = None) -> int:
    parser = pages.make_command_line(NAME, __doc__, module="tests.load.commands", quick="only what takes seconds")
    options = parser.parse_args(arguments)

    def measure_all() -> list[Row]:
        with tempfile.TemporaryDirectory() as work:
            run_once(TABLE, Path(work))
            return [measure(one, Path(work)) for one in COMMANDS if one.quick or not options.quick]

    return pages.run_measurement(options, f"{NAME}/{NAME}.json", measure_all, page)


if __name__ == "__main__":
    sys.exit(run(main))
