"""Reproduce Figures 2 to 7 of [S]: ``python -m experiments.sensitivity --all``.

Writes OUTPUT/sensitivity/figureN.json and .png, and OUTPUT/sensitivity.md from all the JSON files that lie there.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from darrm import checks
from darrm.system.command_line import CommandLine, run
from experiments.sensitivity.curves import figure2, figure3
from experiments.sensitivity.kde import figure7
from experiments.sensitivity.mean import figure4
from experiments.sensitivity.page import FigureData, read_json, write_json, write_page
from experiments.sensitivity.pictures import save_picture
from experiments.sensitivity.svm import figure5, figure6

FIGURES = (2, 3, 4, 5, 6, 7)
FOLDER = "sensitivity"


def main(arguments: list[str] | None = None) -> int:
    """Run the figures that were asked for, and write their files."""
    options = parser().parse_args(arguments)
    if options.all == bool(options.figure):
        raise ValueError("say which figures: --figure 2 (3, 4, 5, 6, 7), repeatable, or --all")
    checks.integer_at_least(1, jobs=options.jobs)
    output = Path(options.output)
    folder = output / FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    for number in FIGURES if options.all else sorted(set(options.figure)):
        started = time.perf_counter()
        data = compute(number, quick=options.quick, jobs=options.jobs)
        write_json(folder / f"figure{number}.json", data)
        save_picture(folder / f"figure{number}.png", data)
        print(f"Figure {number}: {data.title} ({time.perf_counter() - started:.1f} s)")
        for claim in data.claims:
            print(f"  {'holds' if claim.holds else 'FAILS'}: {claim.statement} [{claim.measured}]")
    found = [folder / f"figure{number}.json" for number in FIGURES]
    write_page(output / f"{FOLDER}.md", FOLDER, [read_json(path) for path in found if path.exists()])
    print(f"wrote {output / FOLDER}.md")
    return 0


def compute(number: int, *, quick: bool, jobs: int) -> FigureData:
    """Compute one figure's data."""
    if number == 2:
        return figure2()
    if number == 3:
        return figure3()
    return {4: figure4, 5: figure5, 6: figure6, 7: figure7}[number](quick=quick, jobs=jobs)


def parser() -> argparse.ArgumentParser:
    """Describe the command line."""
    line = CommandLine(prog="python -m experiments.sensitivity", description="Figures 2 to 7 on sensitivity sampling.")
    line.add_argument("--figure", type=int, choices=FIGURES, action="append", help="a figure's number; repeatable")
    line.add_argument("--all", action="store_true", help="all figures")
    line.add_argument("--quick", action="store_true", help="small sizes: seconds instead of minutes")
    line.add_argument("--jobs", type=int, default=2, help="worker processes (default 2)")
    line.add_argument("--output", default="results", help="folder for the page and the pictures (default results)")
    return line


if __name__ == "__main__":
    sys.exit(run(main))
