"""Command line ``python -m darrm.release``: the private majority of votes in a file, paid for from a ledger."""

import sys
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path

from darrm import checks
from darrm.account.ledger import PrivacyLedger
from darrm.account.ledger_store import check_kept
from darrm.proof.table import GammaTable
from darrm.release.debited import release_debited
from darrm.release.majority import DaRRM
from darrm.system.command_line import CommandLine, add_outputs, check_outputs, print_report, run
from darrm.system.flags import privacy_pair
from darrm.system.progress import status_line
from darrm.system.votes_file import check_new, classes_of, save_labels
from darrm.votes import FORMATS, Votes

DESCRIPTION = """\
Release one private label for each row of a file of votes. The ledger is debited for all rows, durably, before the
first label is written; votes that cannot be released, and budgets that do not admit them, debit and write nothing."""

EPILOG = """\
examples:
  python -m darrm.release votes.csv --table table.json --ledger ledger.sqlite --create-budget 8,1e-2 --output labels.csv
  python -m darrm.release more.npy --table table.json --ledger ledger.sqlite --output more-labels.npy --note "batch 2"

A file of votes has one row a query and one column a voter: 0/1, or the two labels named by --classes. Or two columns:
how many voters chose each class.
Randomness comes from the operating system; there is no seed, on purpose."""


def build_parser() -> CommandLine:
    """Describe the command line."""
    parser = CommandLine(prog="python -m darrm.release", description=DESCRIPTION, epilog=EPILOG)
    parser.add_argument("votes", type=Path, metavar="VOTES", help=".npy or .csv: one row a query, one column a voter")
    parser.add_argument("--votes-format", choices=FORMATS, default="auto", help="what the file holds (default auto)")
    parser.add_argument("--classes", metavar="A,B", help="the labels that stand for 0 and for 1 (default 0,1)")
    parser.add_argument("--table", type=Path, required=True, metavar="T.json", help="a table with its proof")
    parser.add_argument("--ledger", type=Path, required=True, metavar="L.sqlite", help="where to debit")
    parser.add_argument(
        "--create-budget", metavar="EPS,DELTA", help="make the ledger first, with this budget for all its queries"
    )
    parser.add_argument("--note", default="", metavar="TEXT", help="a note for the ledger's log")
    add_outputs(parser, made="the labels to a new .npy or .csv file (always needed)")
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Read and check everything, release against the ledger, write the labels."""
    options = build_parser().parse_args(arguments)
    if options.output is None:
        raise ValueError("--output is needed: a new .npy or .csv file for the labels")
    check_outputs(options)
    check_kept(options.ledger)
    check_new(options.output)
    note = note_of(options)
    budget = None if options.create_budget is None else privacy_pair("--create-budget", options.create_budget, "3,1e-5")
    classes = 2 if options.classes is None else classes_of(options.classes)
    if classes != 2 and not (isinstance(classes, tuple) and len(classes) == 2):
        checks.fail("--classes", options.classes, "two different labels, like no,yes", "the majority is of two classes")
    aggregator = DaRRM(GammaTable.load(options.table))
    with status_line(quiet=options.quiet) as line:
        votes = Votes.read(
            options.votes,
            voters=aggregator.table.problem.voters.K,
            classes=classes,
            votes_format=options.votes_format,
            line=line,
        )
        line.show(f"drawing {votes.queries:,} labels")
        if budget is None:
            ledger = PrivacyLedger(options.ledger)
        else:
            # a budget that does not admit the votes leaves no ledger behind
            PrivacyLedger.create(":memory:", budget).debit(aggregator.charge(votes.queries))
            ledger = PrivacyLedger.create(options.ledger, budget)
        labels = release_debited(aggregator, votes, ledger=ledger, note=note)
    save_labels(options.output, labels)
    spent = ledger.spent
    print_report(
        options,
        text=lambda: f"{labels.size} labels written to {options.output}\n{spent}\nbudget: {ledger.budget}\n",
        document=lambda: {
            "labels": int(labels.size),
            "output": str(options.output),
            "spent": spent.to_json(),
            "budget": ledger.budget.to_json(),
        },
    )
    return 0


def note_of(options: Namespace) -> str:
    """Return the note for the ledger's log, or refuse one that is no Unicode text."""
    try:
        options.note.encode()
    except UnicodeEncodeError:
        checks.fail("--note", options.note, "Unicode text", "leave out what your terminal could not encode")
    names = f"{options.votes.name} to {options.output.name}"  # names of files may be any bytes
    return options.note or names.encode(errors="backslashreplace").decode()


if __name__ == "__main__":
    sys.exit(run(main))
