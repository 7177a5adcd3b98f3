"""Reproduce Figures 2 to 7 and 9 of [S] on sensitivity sampling.

python -m experiments sensitivity --recompute --figure 2 --figure 3
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict

from darrm.util import checks
from experiments import pages
from experiments.sensitivity.curves import compute_figure2, compute_figure3
from experiments.sensitivity.kde import compute_figure7
from experiments.sensitivity.mean import compute_figure4, compute_figure9
from experiments.sensitivity.page import FigureData, fill_page, save_picture
from experiments.sensitivity.svm import compute_figure5, compute_figure6

NAME = "sensitivity"
FIGURES: dict[str, Callable[..., FigureData]] = {
    "2": compute_figure2,
    "3": compute_figure3,
    "4": compute_figure4,
    "5": compute_figure5,
    "6": compute_figure6,
    "7": compute_figure7,
    "9": compute_figure9,
}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = pages.make_command_line(
        NAME, __doc__, quick="small sizes: seconds instead of minutes", figures=list(FIGURES)
    )
    parser.add_argument("--jobs", type=int, default=2, help="worker processes (default 2)")
    options = parser.parse_args(arguments)
    checks.integer_at_least(1, jobs=options.jobs)
    folder = pages.prepare_folder(options, NAME)
    for figure in pages.select_figures(options, FIGURES):
        started = time.perf_counter()
        sizes = {} if figure in {"2", "3"} else {"quick": options.quick, "jobs": options.jobs}  # those need no sample
        data = FIGURES[figure](**sizes)
        pages.write_json(folder / f"figure{figure}.json", asdict(data))
        save_picture(folder / f"figure{figure}.png", data)
        print(f"Figure {figure}: {data.title} ({time.perf_counter() - started:.1f} s)")
    return pages.write_page(folder, fill_page(folder))
