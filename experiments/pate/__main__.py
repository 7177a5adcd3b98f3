"""Run PATE on real votes: Tables 1 and 2 and Figures 1, 4 and 5 of [P]; recompute its printed columns.

    python -m experiments pate --recompute --dataset digits --quick --output results       # no download
    python -m experiments pate --recompute --dataset mnist

The program trains the teachers of a data set, or reads their votes. It releases labels by every aggregator, computes
their costs and the sanitized costs, and trains students. It writes OUTPUT/pate/NAME.json, its pictures, and
OUTPUT/pate.md from all results in that folder. OUTPUT/pate also has votes, labels, costs and students, so an
interrupted run can continue. The program downloads the data, or reads them from the folder DARRM_DATA_DIR; digits need
no download.
"""

import sys
from collections.abc import Sequence
from pathlib import Path

from darrm.commands.command_line import run
from darrm.util import checks
from darrm.util.progress import status_line
from experiments import pages
from experiments.pages import CommandLine
from experiments.pate import printed
from experiments.pate.page import fill_page
from experiments.pate.pictures import draw, draw_figure_10
from experiments.pate.settings import STUDIES
from experiments.pate.study_run import measure, recompute
from experiments.teachers import Machine

NAME = "pate"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one study, write its JSON and pictures, and the page about all of them."""
    options = _make_parser().parse_args(arguments)
    folder = pages.prepare_folder(options, NAME)
    with status_line(quiet=options.quiet) as line:
        if options.recount:
            return pages.recompute(folder, "-counts.npz", lambda path, _: recompute(path, line))
        if not options.page:
            checks.integer_at_least(1, jobs=options.jobs)
            write_printed(folder)
            machine = Machine(options.jobs, options.device, progress=not options.quiet, folder=folder)
            in_one_go = not (folder / "kept").exists()  # no stored results of an earlier run
            result = measure(STUDIES[options.dataset], machine, line, quick=options.quick)
            pages.write_json(
                folder / f"{options.dataset}.json", result | {"in_one_go": in_one_go, "jobs": options.jobs}
            )
            draw(folder, result)
    return pages.write_page(folder, fill_page(folder))


def write_printed(folder: Path) -> None:
    """Write the numbers that follow from printed columns alone."""
    parts = (printed.table_2, printed.fixed_part, printed.table_4, printed.figure_10)
    numbers: pages.Row = {part.__name__: part() for part in parts}
    pages.write_json(folder / "printed.json", numbers)
    draw_figure_10(folder / "printed-figure-10.png", numbers["figure_10"])


def _make_parser() -> CommandLine:
    parser = pages.make_command_line(NAME, __doc__, quick="fewer teachers, one short student a row")
    add, devices = parser.add_argument, ("auto", "cpu", "cuda")
    add("--dataset", choices=STUDIES, default="digits", help="digits needs no download (default)")
    add("--recount", action="store_true", help="count again what OUTPUT has, from the counts kept there")
    add("--jobs", type=int, default=1, help="processes for teachers and students (default 1)")
    add("--device", choices=devices, default="cpu", help="of the training (default cpu)")
    add("--quiet", action="store_true", help="no progress bars")
    return parser


if __name__ == "__main__":
    sys.exit(run(main))
