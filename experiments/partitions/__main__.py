"""How fast votes in Parquet files are released, in this process and on Dask workers of this machine.

Writes OUTPUT/partitions/throughput.json and the page OUTPUT/partitions.md made from it.
"""

import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from darrm.system.command_line import run
from experiments import pages
from experiments.partitions.measure import FILES, VOTERS, measure
from experiments.partitions.page import decide, page

NAME = "partitions"
ROWS, ROWS_QUICK = 50_000, 2_000  # of a file


def main(arguments: Sequence[str] | None = None) -> int:
    """Write votes, release them in each way, write the page."""
    parser = pages.command_line(NAME, str(__doc__), quick=f"{ROWS_QUICK:,} rows a file instead of {ROWS:,}")
    options = parser.parse_args(arguments)
    folder = pages.data_folder(options, NAME)
    if not options.page:
        rows = ROWS_QUICK if options.quick else ROWS
        with tempfile.TemporaryDirectory() as name:
            measured = list(measure(Path(name), rows))
        data = {"cores": os.cpu_count(), "voters": VOTERS, "files": FILES, "rows": rows * FILES, "measured": measured}
        pages.write_json(folder / "throughput.json", data)
    data = pages.read_json(folder / "throughput.json")
    pages.print_claims(decide(data))
    pages.write_page(folder, page(data))
    return 0


if __name__ == "__main__":
    sys.exit(run(main))
