"""What the experiments share: the claims, tables, files and flags of the pages under docs/reproduction.

An experiment NAME keeps its numbers in OUTPUT/NAME/*.json and its pictures beside them, and writes the page
OUTPUT/NAME.md from that JSON and from nothing else, so that a test can write it again and compare.
"""

import argparse
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from darrm.system.command_line import CommandLine
from darrm.system.files import write_text


@dataclass(frozen=True)
class Claim:
    """A statement, what was measured, and whether the measurement bears it out."""

    statement: str
    measured: str
    holds: bool


def table(head: Sequence[str], rows: Iterable[Iterable[object]]) -> str:
    """Write a Markdown table.

    >>> print(table(["m", "error"], [[1, "0.13"], [3, "–"]]))
    | m | error |
    |---|---|
    | 1 | 0.13 |
    | 3 | – |
    """
    lines = ["| " + " | ".join(map(str, row)) + " |" for row in (head, *rows)]
    return "\n".join([lines[0], "|---" * len(head) + "|", *lines[1:]])


def picture(path: str, title: str, caption: str) -> str:
    """Write a picture with its caption under it.

    >>> print(picture("scaling/scaling.png", "Seconds over K", "Each point is one solve."))
    ![Seconds over K](scaling/scaling.png)
    <BLANKLINE>
    *Seconds over K.* Each point is one solve.
    """
    return f"![{title}]({path})\n\n*{title}.* {caption}"


def claims_table(claims: Iterable[Claim]) -> str:
    """Write claims as a Markdown table, with those that fail in bold."""
    rows = [(claim.statement, "yes" if claim.holds else "**no**", claim.measured) for claim in claims]
    return table(["claim", "holds", "measured"], rows)


def print_claims(claims: Iterable[Claim]) -> None:
    """Print one line for each claim."""
    for claim in claims:
        print(f"{'holds' if claim.holds else 'FAILS'}: {claim.statement} [{claim.measured}]")


def write_json(path: Path, data: object) -> None:
    """Write plain data as the JSON that is committed."""
    write_text(path, json.dumps(data, indent=1, ensure_ascii=False) + "\n")


def read_json(path: Path) -> Any:  # noqa: ANN401 (plain data)
    """Read what `write_json` wrote."""
    return json.loads(path.read_text(encoding="utf-8"))


def command_line(
    name: str,
    description: str,
    *,
    module: str | None = None,
    quick: str | None = None,
    figures: Sequence[str] | None = None,
) -> CommandLine:
    """Make the command line of an experiment that writes a page.

    ``module`` is the experiment's module where it is not called as its page is; ``quick`` says what a shortened run
    does; with ``figures`` the user has to say which of them to compute.
    """
    parser = CommandLine(prog=f"python -m experiments.{module or name}", description=description)
    what: argparse._ActionsContainer = parser
    if figures is not None:
        what = parser.add_mutually_exclusive_group(required=True)
        what.add_argument("--figure", choices=figures, action="append", help="what to compute; repeatable")
        what.add_argument("--all", action="store_true", help="all of them")
    what.add_argument("--page", action="store_true", help="run nothing: write the page again from the JSON files")
    if quick is not None:
        parser.add_argument("--quick", action="store_true", help=quick)
    parser.add_argument(
        "--output",
        type=Path,
        default=Path("results"),
        metavar="FOLDER",
        help=f"for the page FOLDER/{name}.md and its data FOLDER/{name}/ (default results)",
    )
    return parser


def chosen_figures(options: argparse.Namespace, figures: Iterable[str]) -> list[str]:
    """List the figures asked for, in their order; none with ``--page``."""
    return [figure for figure in figures if options.all or figure in (options.figure or ())]


def data_folder(options: argparse.Namespace, name: str) -> Path:
    """Return OUTPUT/NAME, where the JSON files and pictures lie; make it unless only the page is asked for."""
    folder = Path(options.output / name)
    if not options.page:
        folder.mkdir(parents=True, exist_ok=True)
    return folder


def write_page(folder: Path, text: str) -> None:
    """Write the page OUTPUT/NAME.md beside the folder OUTPUT/NAME of its data."""
    path = folder.with_name(f"{folder.name}.md")
    write_text(path, text)
    print(f"wrote {path}")
