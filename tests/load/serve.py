"""Speed of ``darrm serve``, and its promises after kills: on both stores, on 127.0.0.1 only.

    python -m tests.load.serve --recompute

Writes OUTPUT/serve/FIGURE.json and the page OUTPUT/serve.md made from them.
"""

import os
import platform
import sys
import tempfile
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from darrm.commands.command_line import run
from experiments import pages
from experiments.pages import Row
from tests.load import costs, kills, long_ledger
from tests.load.speed import race, soak, speed

NAME = "serve"
FIGURES = ("speed", "costs", "race", "long", "kills", "soak")
FASTEST = {"SQLite": 500, "PostgreSQL": 1000}  # answers a second, the aim
SLOWEST = 50.0  # milliseconds of 99 of 100 answers, the aim


def main(arguments: Sequence[str] | None = None) -> int:
    parser = pages.command_line(
        NAME, __doc__, module="tests.load.serve", figures=FIGURES, quick="seconds, a hundredth, a few kills"
    )
    parser.add_argument("--folder", type=Path, help="where ledgers lie: on the disk that is meant")
    parser.add_argument("--minutes", type=float, default=15.0, help="of the soak (default 15)")
    parser.add_argument("--entries", type=int, default=long_ledger.BIG, help="of the long ledger (default 10⁷)")
    parser.add_argument("--kills", type=int, default=500, help="of each store (default 500)")
    options = parser.parse_args(arguments)
    folder = pages.data_folder(options, NAME)
    for figure in pages.chosen_figures(options, FIGURES):
        with tempfile.TemporaryDirectory(dir=options.folder) as name:
            Path(name).chmod(0o755)  # PostgreSQL runs as another user
            found = measure(figure, Path(name), options)
        pages.write_json(
            folder / f"{figure}.json", {"machine": f"{platform.machine()}, {os.cpu_count()} cores"} | found
        )
    data = pages.read_results(folder, FIGURES)
    return pages.finish(folder, page(data)) if len(data) == len(FIGURES) else 0


def measure(figure: str, folder: Path, options: Namespace) -> Row:
    quick = bool(options.quick)
    if figure == "race":
        return race(folder, 1000 if quick else 100_000, 1)
    if figure == "long":
        return long_ledger.measure(folder / "long", 10**5 if quick else options.entries)
    if figure == "speed":
        stores = speed(folder, 2.0 if quick else 10.0)
    elif figure == "costs":
        stores = costs.measure(folder)
    elif figure == "kills":
        stores = kills.measure(folder, 10 if quick else options.kills)
    else:
        stores = soak(folder, 6.0 if quick else 60 * options.minutes)
    return {"stores": list(stores)}


def page(data: dict[str, Any]) -> str:
    race, long, killed = data["race"], data["long"], data["kills"]["stores"]
    for row in data["speed"]["stores"]:
        row["together"], row["aim"] = row["paid"] / row["debits"], FASTEST[row["store"]]
        row["is_fast"] = row["answers_a_second"] >= row["aim"]
        row["is_prompt"] = row["p99_milliseconds"] < SLOWEST
    for row in killed:
        row["victims_words"] = ", ".join(f"{number} of {name}" for name, number in row["victims"].items())
    for row in data["soak"]["stores"]:
        row["got"] = row["answered"] / row["minutes"] / 60
        row["grown"] = row["end_megabytes"] / row["begin_megabytes"] - 1
    long["opened_milliseconds"] = 1000 * long["opened_seconds"]
    long["medians"] = long["big_milliseconds"] / long["small_milliseconds"]
    paid_all = race["paid"] == race["answered"] == race["budget"]
    faults = sum(row["two_labels"] + row["unpaid"] + row["paid_twice"] + row["lost"] for row in killed)
    holds = {
        "race": paid_all and race["refused"] == race["asked"] - race["budget"],
        "long": max(long["medians"], long["ratio"]) <= 1.2,
        "kills": faults == 0,
        "soak": max(row["grown"] for row in data["soak"]["stores"]) < 0.05,
    }
    facts: Row = {name: sum(row[name] for row in killed) for name in ("kills", "asked")}
    facts |= {"faults": faults, "grown": ", ".join(f"{row['grown']:+.1%}" for row in data["soak"]["stores"])}
    return pages.filled(NAME, {"found": facts, "holds": holds, "slowest": SLOWEST, "many": costs.MANY}, data)


if __name__ == "__main__":
    sys.exit(run(main))
