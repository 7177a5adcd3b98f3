"""The command ``darrm show``: identify a file and summarize it in ten lines."""

import sys
from collections.abc import Sequence
from pathlib import Path

from darrm.commands.command import command, run_command
from darrm.commands.options import Output, argument, output_options, parsed_by
from darrm.ledger.sqlite import check_kept, ledger_name
from darrm.show.summary import summarize

EXAMPLES = """\
examples:
  darrm show table.json
  darrm show ledger.sqlite
  darrm show votes.csv

A table is proved again before it is shown. Of votes only the size is shown:
their values are private. `darrm verify FILE` checks every claim of a file.
"""


@command(
    "show",
    about="Identify a table, plan, ledger, receipt, file of votes or JSON report, and summarize it in ten lines.",
    short="identify a table, plan, ledger, receipt or file of votes",
    examples=EXAMPLES,
)
@argument("file", type=parsed_by(ledger_name), metavar="FILE", about="a file, or the URL of a ledger in PostgreSQL")
@output_options()
def show(*, file: Path | str, output: Output) -> None:
    check_kept(file)
    with output.status_line() as line:
        line.show(f"reading {file}")
        summary = summarize(file)
    output.print(text=lambda: f"{summary}\n", document=summary.to_json)


def main(arguments: Sequence[str] | None = None) -> int:
    return run_command(show, arguments)


if __name__ == "__main__":
    sys.exit(main())
