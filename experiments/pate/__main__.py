"""PATE: the page about the runs on real votes that lie at hand, and what the printed columns of [P] determine."""

import sys
from collections.abc import Sequence
from pathlib import Path

from darrm.system.command_line import run
from experiments import pages
from experiments.pate.page import PRINTED, page
from experiments.pate.printed import fixed_part, table_2, table_4

NAME = "pate"


def main(arguments: Sequence[str] | None = None) -> int:
    """Compute what print determines, and write the page about it and about all runs."""
    options = pages.command_line(NAME, str(__doc__)).parse_args(arguments)
    folder = pages.data_folder(options, NAME)
    if not options.page:
        write_printed(folder)
    pages.write_page(folder, page(folder))
    return 0


def write_printed(folder: Path) -> None:
    """Write what the printed columns determine."""
    numbers = {"table_2": table_2(), "fixed_part": fixed_part(), "table_4": table_4()}
    pages.write_json(folder / f"{PRINTED}.json", numbers)


if __name__ == "__main__":
    sys.exit(run(main))
