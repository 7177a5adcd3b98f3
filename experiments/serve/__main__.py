"""Speed of ``darrm serve``, and its promises after kills: on both stores, on 127.0.0.1 only.

Writes OUTPUT/serve/FIGURE.json and the page OUTPUT/serve.md made from them.
"""

import os
import platform
import sys
import tempfile
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path

from darrm.commands.command_line import run
from experiments import pages
from experiments.pages import Claim, Row
from experiments.serve import costs, kills, long_ledger
from experiments.serve.speed import race, soak, speed

NAME = "serve"
FIGURES = ("speed", "costs", "race", "long", "kills", "soak")
_FASTEST = {"SQLite": 500, "PostgreSQL": 1000}
_SLOWEST_MILLISECONDS = 50.0


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure the chosen figures, write the page."""
    parser = pages.command_line(NAME, __doc__ or "", figures=FIGURES, quick="seconds, a hundredth, a few kills")
    parser.add_argument("--folder", type=Path, help="where ledgers lie: on the disk that is meant")
    parser.add_argument("--minutes", type=float, default=15.0, help="of the soak (default 15)")
    parser.add_argument("--entries", type=int, default=long_ledger.BIG, help="of the long ledger (default 10⁷)")
    parser.add_argument("--kills", type=int, default=500, help="of each store (default 500)")
    options = parser.parse_args(arguments)

    def measured(figure: str) -> Row:
        with tempfile.TemporaryDirectory(dir=options.folder) as name:
            Path(name).chmod(0o755)  # PostgreSQL runs as another user
            return {"machine": f"{platform.machine()}, {os.cpu_count()} cores", **measure(figure, Path(name), options)}

    folder = pages.data_folder(options, NAME)
    for figure in pages.chosen_figures(options, FIGURES):
        pages.write_json(folder / f"{figure}.json", measured(figure))
    return pages.finish(folder, page(folder)) if all((folder / f"{name}.json").is_file() for name in FIGURES) else 0


def measure(figure: str, folder: Path, options: Namespace) -> Row:
    """Measure one figure."""
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


def page(folder: Path) -> str:
    """Fill the page from the measurements."""
    data = {figure: pages.read_json(folder / f"{figure}.json") for figure in FIGURES}
    text = pages.claims_table(decide(data))
    for row in data["speed"]["stores"]:
        row["together"] = row["paid"] / row["debits"]
    for row in data["kills"]["stores"]:
        row["victims_words"] = ", ".join(f"{number} of {name}" for name, number in row["victims"].items())
    for row in data["soak"]["stores"]:
        row["got"] = row["answered"] / row["minutes"] / 60
    data["long"]["opened_milliseconds"] = 1000 * data["long"]["opened_seconds"]
    return pages.filled(NAME, {"claims": text, "many": costs.MANY}, data)


def decide(data: dict[str, Row]) -> list[Claim]:
    """Decide the claims of the page."""
    race_, long, stores = data["race"], data["long"], data["speed"]["stores"]
    claims = [
        Claim(
            f"{row['clients']} clients get {_FASTEST[row['store']]:,} answers a second of a ledger in {row['store']}",
            f"{row['answers_a_second']:,.0f}",
            row["answers_a_second"] >= _FASTEST[row["store"]],
        )
        for row in stores
    ]
    claims += [
        Claim(
            f"99 of 100 answers of a ledger in {row['store']} take less than {_SLOWEST_MILLISECONDS:.0f} ms",
            f"{row['p99_milliseconds']:.0f} ms",
            row["p99_milliseconds"] < _SLOWEST_MILLISECONDS,
        )
        for row in stores
    ]
    medians = long["big_milliseconds"] / long["small_milliseconds"]
    exact = race_["paid"] == race_["answered"] == race_["budget"]
    killed = data["kills"]["stores"]
    faults = sum(row["two_labels"] + row["unpaid"] + row["paid_twice"] + row["lost"] for row in killed)
    grown = [row["end_megabytes"] / row["begin_megabytes"] - 1 for row in data["soak"]["stores"]]
    return [
        *claims,
        Claim(
            f"{race_['servers']} servers pay for {race_['budget']:,} of {race_['asked']:,} questions, and not one more",
            f"{race_['paid']:,} paid, {race_['answered']:,} answered, {race_['refused']:,} refused",
            exact and race_["refused"] == race_["asked"] - race_["budget"],
        ),
        Claim(
            f"a debit on {long['entries']:,} entries takes at most 1.2 times one on {long['small']}",
            f"{medians:.2f} times by the medians of all rounds, {long['ratio']:.2f} times in the middle one",
            max(medians, long["ratio"]) <= 1.2,
        ),
        Claim(
            f"after {sum(row['kills'] for row in killed):,} kills no id has two labels, none is unpaid, none is lost",
            f"{faults} of {sum(row['asked'] for row in killed):,} ids",
            faults == 0,
        ),
        Claim(
            "the server's memory is flat, asked at a fixed rate",
            ", ".join(f"{share:+.1%}" for share in grown),
            max(grown) < 0.05,
        ),
    ]


if __name__ == "__main__":
    sys.exit(run(main))
