"""Run PATE on real votes: Tables 1 and 2 and Figures 1, 4 and 5 of [P]; recompute its printed columns.

    python -m experiments pate --recompute --dataset digits --quick --output results       # no download
    python -m experiments pate --recompute --dataset mnist

The program trains the teachers of a data set, or reads their votes. It releases labels by every aggregator, computes
their costs and the sanitized costs, and trains students. It writes OUTPUT/pate/NAME.json, its pictures, and
OUTPUT/pate.md from all results in that folder. OUTPUT/pate also has votes, labels, costs and students, so an
interrupted run can continue. The program downloads the data, or reads them from the folder DARRM_DATA_DIR; digits need
no download.
"""

import argparse
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from darrm.commands.command_line import run
from darrm.util import checks
from darrm.util.progress import StatusLine, status_line
from experiments import pages
from experiments.pages import CommandLine
from experiments.pate.page import fill_page
from experiments.pate.pictures import draw, draw_figure_10
from experiments.pate.printed import figure_10, fixed_part, table_2, table_4
from experiments.pate.settings import STUDIES
from experiments.pate.study_run import make_linear, measure, recompute, retrain_smaller
from experiments.teachers import Machine

NAME = "pate"
FIGURES, LINEAR = "figures", "linear"  # values of --only


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one study, write its JSON and pictures, and the page about all of them."""
    options = _make_parser().parse_args(arguments)
    folder = pages.prepare_folder(options, NAME)
    if options.recount:
        return pages.recompute(folder, "-counts.npz", partial(_recompute, quiet=options.quiet))
    if not options.page:
        checks.integer_at_least(1, jobs=options.jobs)
        write_printed(folder)
        machine = Machine(options.jobs, options.device, progress=not options.quiet, folder=folder)
        path = folder / f"{options.dataset}.json"
        with status_line(quiet=options.quiet) as line:
            result = _measure(options, machine, line)
        pages.write_json(path, result)
        draw(folder, result)
        print(f"{result['teacher_seconds'] + result['seconds']:.0f} s; results: {folder}")
    return pages.write_page(folder, fill_page(folder))


def _measure(options: argparse.Namespace, machine: Machine, line: StatusLine) -> pages.Row:
    """Run a study, or one part of it and read the other results."""
    study, path = STUDIES[options.dataset], machine.folder / f"{options.dataset}.json"
    if options.only is None:
        in_one_go = not (machine.folder / "kept").exists()  # no stored results of an earlier run
        result = measure(study, machine, line, quick=options.quick)
        return result | {"in_one_go": in_one_go, "jobs": options.jobs}
    stored: pages.Row = pages.read_json(path)
    if options.only == LINEAR:
        return stored | {"linear": make_linear(study, machine, line, quick=stored["quick"])}
    return stored | retrain_smaller(path.with_name(f"{study.name}-counts.npz"), machine, line, quick=stored["quick"])


def _recompute(path: Path, _: pages.Row, *, quiet: bool) -> pages.Row:
    with status_line(quiet=quiet) as line:
        return recompute(path, line)


def write_printed(folder: Path) -> None:
    numbers: pages.Row = {
        "table_2": table_2(),
        "fixed_part": fixed_part(),
        "table_4": table_4(),
    }
    numbers["figure_10"] = figure_10()
    pages.write_json(folder / "printed.json", numbers)
    draw_figure_10(folder / "printed-figure-10.png", numbers["figure_10"])


def _make_parser() -> CommandLine:
    parser = pages.make_command_line(NAME, __doc__, quick="fewer teachers, one short student a row")
    parser.add_argument("--dataset", choices=STUDIES, default="digits", help="digits needs no download (default)")
    parser.add_argument(
        "--recount", action="store_true", help="count again what OUTPUT has, from the counts kept there"
    )
    parser.add_argument(
        "--only",
        choices=(FIGURES, LINEAR),
        help="train only Figure 4's smaller ensembles, or linear models by DP-SGD",
    )
    parser.add_argument("--jobs", type=int, default=1, help="processes for teachers and students (default 1)")
    parser.add_argument(
        "--device", choices=("auto", "cpu", "cuda"), default="cpu", help="of the training (default cpu)"
    )
    parser.add_argument("--quiet", action="store_true", help="no progress bars")
    return parser


if __name__ == "__main__":
    sys.exit(run(main))
