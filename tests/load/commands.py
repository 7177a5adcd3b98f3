"""Seconds and memory of the commands, now and in an earlier version of the library.

    python -m tests.load.commands --quick           # below a minute: the fast ones
    python -m tests.load.commands                   # all of them, a few minutes
    python -m tests.load.commands --before FOLDER   # and the same with an earlier version's working tree

Writes OUTPUT/commands/commands.json, and OUTPUT/commands.md from the JSON.

Every run is a separate process: its seconds include the imports. With --before the two versions take turns; without
it, the stored numbers of the earlier version stay.
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
from tests.load.measuring import ROOT, Taken, measured

NAME = "commands"
RUNS = 5
LONGEST = 30.0  # seconds: what took longer altogether is not run again


@dataclass(frozen=True)
class Command:
    """A command: a description, and the words after ``python``."""

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


def run_once(typed: str, source: Path, folder: Path) -> Taken:
    """Run a command of the library in ``source`` once, in a folder that holds the table t.json."""
    # byte code is kept, as in an installed library
    kept = {"PYTHONPYCACHEPREFIX": str(folder / "bytecode"), "PYTHONDONTWRITEBYTECODE": ""}
    return measured(*shlex.split(typed), checkout=source, folder=folder, variables=kept)


def measure(command: Command, folder: Path, before: Path | None, known: Row | None) -> Row:
    """Run a command several times, in turns with the earlier version, after one run that fills caches."""
    sources = [ROOT] if before is None else [ROOT, before]
    if command.quick:  # the others need what these have filled
        for source in sources:
            run_once(command.typed, source, folder)
    rounds: list[list[Taken]] = []
    started = time.perf_counter()
    while len(rounds) < RUNS and (not rounds or time.perf_counter() - started < LONGEST):
        rounds.append([run_once(command.typed, source, folder) for source in sources])
    now, *then = ({"runs": len(rounds), **asdict(Taken.median(taken))} for taken in zip(*rounds, strict=True))
    return {"what": command.what, "typed": command.typed, "now": now, "before": then[0] if then else known}


def page(commands: Sequence[Row]) -> str:
    """Fill the page; the ratio is that of processor seconds before and now, or None."""
    for row in commands:
        row["times_less"] = row["before"] and row["before"]["cpu_seconds"] / row["now"]["cpu_seconds"]
    return pages.filled(NAME, {"commands": commands, "table": TABLE})


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print and write."""
    parser = pages.command_line(NAME, __doc__, module="tests.load.commands", quick="only what takes seconds")
    parser.add_argument("--before", type=Path, metavar="FOLDER", help="the working tree of an earlier version")
    options = parser.parse_args(arguments)
    if options.before is not None and not (options.before / "darrm" / "__init__.py").is_file():
        raise ValueError(f"--before {options.before}: no folder with a package darrm; make one with git worktree add")
    before = None if options.before is None else options.before.resolve()
    folder = pages.data_folder(options, NAME)
    data = folder / "commands.json"
    if not options.page:
        earlier = {row["typed"]: row for row in (pages.read_json(data) if data.exists() else [])}
        with tempfile.TemporaryDirectory() as work:
            run_once(TABLE, ROOT, Path(work))
            for command in COMMANDS:
                if command.quick or not options.quick:
                    known = earlier.get(command.typed, {}).get("before")
                    earlier[command.typed] = measure(command, Path(work), before, known)
                pages.write_json(data, [earlier[one.typed] for one in COMMANDS if one.typed in earlier])
    return pages.finish(folder, page(pages.read_json(data)))


if __name__ == "__main__":
    sys.exit(run(main))
