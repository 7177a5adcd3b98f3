"""Command line: release the private majority of votes in a file, paid for from a ledger.

python -m darrm.release votes.npy --table table.json --ledger ledger.sqlite --output labels.npy
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from darrm import checks
from darrm.account.ledger import PrivacyLedger
from darrm.proof.table import GammaTable
from darrm.release.majority import BINARY, DaRRM
from darrm.release.votes import ones_matrix
from darrm.system.command_line import CommandLine, run
from darrm.system.flags import privacy_pair
from darrm.system.votes_file import check_new, load_votes, parse_classes, save_labels

DESCRIPTION = """\
Release one private label for each row of a file of votes. The ledger is debited for all rows, durably, before the
first label is written; votes that cannot be released are reported before anything is debited."""

EPILOG = """\
examples:
  python -m darrm.release votes.csv --table table.json --ledger ledger.sqlite --create-budget 8,1e-2 --output labels.csv
  python -m darrm.release more.npy --table table.json --ledger ledger.sqlite --output more-labels.npy --note "batch 2"

A file of votes has one row a query and one column a voter: 0/1, or the two labels named by --classes.
Randomness comes from the operating system; there is no seed, on purpose."""

ROWS_A_BLOCK = 2**16
ROWS_WITHOUT_A_BAR = 2**18
BAR_WIDTH = 30


def build_parser() -> CommandLine:
    """Describe the command line."""
    parser = CommandLine(prog="python -m darrm.release", description=DESCRIPTION, epilog=EPILOG)
    parser.add_argument("votes", type=Path, metavar="VOTES", help=".npy or .csv: one row a query, one column a voter")
    parser.add_argument("--table", type=Path, required=True, metavar="T.json", help="a table with its proof")
    parser.add_argument("--ledger", type=Path, required=True, metavar="L.sqlite", help="where to debit")
    parser.add_argument("--output", type=Path, required=True, metavar="LABELS", help="a new .npy or .csv file")
    parser.add_argument(
        "--create-budget", metavar="EPS,DELTA", help="make the ledger first, with this budget for all its queries"
    )
    parser.add_argument("--classes", metavar="A,B", help="the labels that stand for 0 and for 1 (default 0,1)")
    parser.add_argument("--note", default="", metavar="TEXT", help="a note for the ledger's log")
    parser.add_argument("--quiet", action="store_true", help="no report and no progress bar")
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Check everything, debit, release, write."""
    options = build_parser().parse_args(arguments)
    check_new(options.output)
    budget = None if options.create_budget is None else privacy_pair("--create-budget", options.create_budget, "3,1e-5")
    aggregator = DaRRM(GammaTable.load(options.table))
    votes = load_votes(options.votes, named_classes=options.classes is not None)
    classes = BINARY if options.classes is None else parse_classes(options.classes, votes)
    check_votes(votes, aggregator, classes, quiet=options.quiet)
    ledger = PrivacyLedger(options.ledger) if budget is None else PrivacyLedger.create(options.ledger, budget)
    ledger.debit(
        aggregator.charge(votes.shape[0]), note=options.note or f"{options.votes.name} to {options.output.name}"
    )
    labels = [aggregator.release(block, classes=classes) for block in blocks(votes, "releasing", quiet=options.quiet)]
    save_labels(options.output, np.concatenate(labels))
    if not options.quiet:
        sys.stdout.write(f"{votes.shape[0]} labels written to {options.output}\n{ledger.spent()}\n")
        sys.stdout.write(f"budget: {ledger.budget}\n")
    return 0


def check_votes(votes: NDArray[Any], aggregator: DaRRM, classes: tuple[Any, Any], *, quiet: bool) -> None:
    """Raise `ValueError` unless every row can be released."""
    K = aggregator.table.problem.voters.K
    if votes.size == 0:
        checks.fail("votes", votes.shape, f"of shape (Q, {K}) with at least one query", "the file holds no votes")
    if votes.ndim != 2 or votes.shape[1] != K:
        ones_matrix(votes, K, classes)
    for index, block in enumerate(blocks(votes, "checking", quiet=quiet)):
        try:
            ones_matrix(block, K, classes)
        except ValueError as error:
            start = index * ROWS_A_BLOCK
            where = f" (queries counted from row {start})" if start else ""
            raise ValueError(f"{error}{where}") from error


def blocks(votes: NDArray[Any], what: str, *, quiet: bool) -> Iterator[NDArray[Any]]:
    """Cut the rows into blocks; large files get a progress bar on a terminal."""
    rows = votes.shape[0]
    shown = not quiet and rows > ROWS_WITHOUT_A_BAR and sys.stderr.isatty()
    for start in range(0, rows, ROWS_A_BLOCK):
        yield votes[start : start + ROWS_A_BLOCK]
        if shown:
            done = min(1.0, (start + ROWS_A_BLOCK) / rows)
            bar = "#" * round(done * BAR_WIDTH)
            sys.stderr.write(f"\r{what} [{bar.ljust(BAR_WIDTH)}] {done:4.0%}")
            sys.stderr.flush()
    if shown:
        sys.stderr.write("\r" + " " * (len(what) + BAR_WIDTH + 9) + "\r")
        sys.stderr.flush()


if __name__ == "__main__":
    sys.exit(run(main))
