"""How fast votes in Parquet files are released, in this process and on Dask workers of this machine.

Writes OUTPUT/partitions/throughput.json and the page OUTPUT/partitions.md made from it.
"""

import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from darrm.commands.command_line import run
from experiments import pages
from experiments.pages import Claim, Row
from experiments.partitions.measure import FILES, VOTERS, measure

MANY_ROWS = 10**8

NAME = "partitions"
ROWS, ROWS_QUICK = 50_000, 2_000  # of a file


def main(arguments: Sequence[str] | None = None) -> int:
    """Write votes, release them in each way, write the page."""
    parser = pages.command_line(NAME, __doc__ or "", quick=f"{ROWS_QUICK:,} rows a file instead of {ROWS:,}")
    options = parser.parse_args(arguments)
    folder = pages.data_folder(options, NAME)
    if not options.page:
        rows = ROWS_QUICK if options.quick else ROWS
        with tempfile.TemporaryDirectory() as name:
            measured = list(measure(Path(name), rows))
        data = {"cores": os.cpu_count(), "voters": VOTERS, "files": FILES, "rows": rows * FILES, "measured": measured}
        pages.write_json(folder / "throughput.json", data)
    data = pages.read_json(folder / "throughput.json")
    return pages.finish(folder, page(data), decide(data))


def page(data: Row) -> str:
    """Fill the page from the machine, how much was released, and what every release took."""
    rows, votes = data["rows"], data["rows"] * data["voters"] / 1e6
    measured = [
        row
        | {
            "workers": row["workers"] or "none",
            "rows_a_second": rows / seconds_of(row),
            "votes_a_second": votes / seconds_of(row),
            "votes_a_processor_second": votes / row["processor_seconds"],
            "busy": row["processor_seconds"] / seconds_of(row),
            "minutes_for_many": MANY_ROWS * seconds_of(row) / rows / 60.0,
        }
        for row in data["measured"]
    ]
    return pages.filled("partitions", {"claims": pages.claims_table(decide(data)), "measured": measured}, data)


def decide(data: Row) -> list[Claim]:
    """Decide what the page says."""
    one, two = ([seconds_of(row) for row in data["measured"] if row["workers"] == workers] for workers in (1, 2))
    speeds = [alone / both for alone, both in zip(one, two, strict=True)]
    whole = data["rows"] * data["voters"] / 1e6
    most = max(row["peak_megabytes"] for row in data["measured"])
    return [
        Claim(
            "two workers are at least 1.6 times as fast as one",
            ", ".join(f"{speed:.2f} times" for speed in speeds),
            min(speeds) >= 1.6,
        ),
        Claim(
            "no process takes 512 MB of memory",
            f"at most {most:.1f} MB; the votes would take {whole:,.1f} MB at a byte each",
            most < 512,
        ),
    ]


def seconds_of(row: Row) -> float:
    """Return the seconds of both passes of a release."""
    return float(row["survey_seconds"] + row["draw_seconds"])


if __name__ == "__main__":
    sys.exit(run(main))
