"""The paper's simulations: Figures 2, 6, 7, 8, 9 and Table 3 of [D].

    python -m experiments.simulations --figure 2
    python -m experiments.simulations --all --output docs/reproduction      # the published page

Writes OUTPUT/simulations/figureN.json and .png, and OUTPUT/simulations.md from all the JSON files that lie there.
γ is solved for, never loaded.
"""

import sys
from collections.abc import Sequence

from darrm.commands.command_line import run
from darrm.util.extras import require
from experiments import pages
from experiments.simulations.claims import decide
from experiments.simulations.curves import figure_data, table_3
from experiments.simulations.page import page, read_folder
from experiments.simulations.pictures import draw
from experiments.simulations.settings import PANELS

NAME = "simulations"
TABLE = "table3"


def main(arguments: Sequence[str] | None = None) -> int:
    """Compute the figures asked for, write and print them."""
    options = pages.command_line(NAME, __doc__ or "", figures=(*PANELS, TABLE)).parse_args(arguments)
    folder = pages.data_folder(options, NAME)
    if not options.page:
        require("matplotlib")
    for name in pages.chosen_figures(options, (*PANELS, TABLE)):
        if name == TABLE:
            pages.write_json(folder / f"{TABLE}.json", table_3())
        else:
            data = figure_data(name)
            pages.write_json(folder / f"figure{name}.json", data)
            draw(folder / f"figure{name}.png", data)
    return pages.finish(folder, page(folder), decide(*read_folder(folder)))


if __name__ == "__main__":
    sys.exit(run(main))
