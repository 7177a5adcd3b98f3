"""The paper's simulations: Figures 2, 6, 7, 8, 9 and Table 3 of [D].

    python -m experiments.simulations --figure 2
    python -m experiments.simulations --figure table3
    python -m experiments.simulations --all
    python -m experiments.simulations --all --output docs/reproduction      # the published page

Writes OUTPUT/simulations/figureN.json, .png and .pdf, and OUTPUT/simulations.md from all the JSON files that lie there.
γ is solved for, never loaded.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from darrm.system.command_line import CommandLine, run
from darrm.system.extras import require
from darrm.system.files import write_text
from experiments.simulations.claims import decide
from experiments.simulations.curves import figure_data, table_3
from experiments.simulations.page import write_page
from experiments.simulations.pictures import draw
from experiments.simulations.settings import PANELS

TABLE = "table3"
FOLDER = "simulations"


def main(arguments: Sequence[str] | None = None) -> int:
    """Compute the figures asked for, write and print them."""
    parser = CommandLine(prog="python -m experiments.simulations", description=str(__doc__))
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--figure", choices=(*PANELS, TABLE), help="one of the figures, or Table 3")
    which.add_argument("--all", action="store_true", help="all of them")
    parser.add_argument(
        "--output", type=Path, default=Path("results"), metavar="FOLDER", help="where to write (default results)"
    )
    options = parser.parse_args(arguments)
    require("matplotlib")
    folder = options.output / FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    for name in (*PANELS, TABLE) if options.all else (options.figure,):
        started = time.perf_counter()
        if name == TABLE:
            rows = table_3()
            _write(folder / f"{TABLE}.json", rows)
            _print_table(rows)
            continue
        data = figure_data(name)
        _write(folder / f"figure{name}.json", data)
        draw(folder, data)
        _print_figure(data, time.perf_counter() - started)
    figures, table = read_folder(folder)
    page = options.output / f"{FOLDER}.md"
    write_page(page, FOLDER, figures, table)
    for claim in decide(figures, table):
        print(f"{'holds' if claim.holds else 'DOES NOT HOLD':14}{claim.text}: {claim.evidence}")
    print(f"wrote {page}")
    return 0


def read_folder(folder: Path) -> tuple[dict[str, dict[str, Any]], list[dict[str, Any]] | None]:
    """Read the figures that lie in a folder, and Table 3 or None."""
    paths = {name: folder / f"figure{name}.json" for name in PANELS}
    figures = {name: json.loads(path.read_text(encoding="utf-8")) for name, path in paths.items() if path.exists()}
    path = folder / f"{TABLE}.json"
    return figures, json.loads(path.read_text(encoding="utf-8")) if path.exists() else None


def _write(path: Path, data: Any) -> None:  # noqa: ANN401 (plain data)
    write_text(path, json.dumps(data, indent=1, ensure_ascii=False) + "\n")


def _print_figure(data: dict[str, Any], seconds: float) -> None:
    print(f"Figure {data['figure']} ({seconds:.1f} s)")
    for panel in data["panels"]:
        print(f"  {panel['title']}, (mε, δ) = ({panel['m'] * panel['epsilon']:.4f}, {panel['delta']:.3g})")
        for curve in panel["curves"]:
            shown = "   ".join(f"{error['mean']:.5f} ± {error['standard_error']:.5f}" for error in curve["errors"])
            print(f"    {curve['name']:18}{shown}")


def _print_table(rows: Sequence[dict[str, Any]]) -> None:
    print("Table 3: M, then m, τ, λ, mε, δ, and the printed digits")
    for row in rows:
        values = "  ".join(f"{row[name]:8.4f}" for name in ("m", "tau", "lambda", "m epsilon", "delta"))
        print(f"  {row['M']:3d}  {values}   {' '.join(row['printed'])}   {'agrees' if row['agrees'] else 'DIFFERS'}")


if __name__ == "__main__":
    sys.exit(run(main))
