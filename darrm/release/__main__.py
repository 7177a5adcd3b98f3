"""Command line ``python -m darrm.release``: private labels for votes in a file, paid for from a ledger.

The exit status says what became of the budget: 0, the labels are paid for and written; 2, nothing was paid; 3, they
are paid for, and something failed afterwards, which the line on standard error says.
"""

import os
import signal
import sys
import threading
from argparse import Namespace
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from darrm import checks
from darrm.account.ledger import PrivacyLedger, reason_of
from darrm.account.ledger_store import check_kept
from darrm.aggregator import Aggregator
from darrm.errors import PaidError
from darrm.release.debited import recover, release_debited
from darrm.release.files import load_release, whose
from darrm.release.partitions import recover_partitions, release_surveyed, survey
from darrm.system.command_line import CommandLine, add_outputs, check_outputs, complain, print_report, run
from darrm.system.flags import integer, privacy_pair
from darrm.system.parquet_file import is_parquet
from darrm.system.progress import StatusLine, status_line
from darrm.system.votes_file import check_new, classes_of
from darrm.votes import FORMATS, MISSING, Classes, Votes

PAID_STATUS = 3
DESCRIPTION = """\
Release one private label for each row of a file of votes. The ledger is debited for all rows, durably, before the
first label is written, and keeps the labels until they are; votes that cannot be released, and budgets that do not
admit them, debit and write nothing. Parquet files, and folders of them, are read a part at a time, here or on a
cluster."""

EPILOG = """\
examples:
  python -m darrm.release votes.csv --table table.json --ledger ledger.sqlite --create-budget 8,1e-2 --output labels.csv
  python -m darrm.release more.npy --table table.json --ledger ledger.sqlite --output more-labels.npy --note "batch 2"
  python -m darrm.release --recover 2 --ledger ledger.sqlite --output more-labels.npy
  python -m darrm.release votes/ --table table.json --ledger ledger.sqlite --keep id --output labels/

exit status:
  0  the labels are paid for and written
  2  nothing was paid
  3  the labels are paid for and something failed afterwards: the message says what --recover writes

A file of votes has one row a query and one column a voter: 0, 1, …, or the labels named by --classes. Or one column a
class: how many voters chose it. In Parquet files the columns have names, and all that --keep does not name are votes;
a folder is read with all .parquet files in it, and becomes a folder of labels with the same names.
Randomness comes from the operating system; there is no seed, on purpose."""


def build_parser() -> CommandLine:
    """Describe the command line."""
    parser = CommandLine(prog="python -m darrm.release", description=DESCRIPTION, epilog=EPILOG)
    parser.add_argument(
        "votes",
        type=Path,
        nargs="?",
        metavar="VOTES",
        help=".npy, .csv, .parquet or a folder of these: one row a query, one column a voter",
    )
    parser.add_argument("--votes-format", choices=FORMATS, default="auto", help="what the file holds (default auto)")
    parser.add_argument("--classes", metavar="A,B,…", help="the labels that stand for 0, 1, … (default 0,1,…)")
    parser.add_argument(
        "--missing",
        choices=MISSING,
        default="refuse",
        help="a vote that is missing (an empty field or NA, in .npy NaN) is an error (default), or a fair coin of two "
        "classes: the guarantee stays, if which votes are missing does not depend on the private data",
    )
    parser.add_argument(
        "--table", type=Path, metavar="T.json", help="what a plan wrote: a table with its proof, or a mechanism"
    )
    parser.add_argument("--ledger", type=Path, required=True, metavar="L.sqlite", help="where to debit")
    parser.add_argument(
        "--create-budget", metavar="EPS,DELTA", help="make the ledger first, with this budget for all its queries"
    )
    parser.add_argument("--note", default="", metavar="TEXT", help="a note for the ledger's log")
    parser.add_argument(
        "--recover",
        metavar="ENTRY",
        help="write the labels of this entry of the ledger, which were paid for and not delivered; pays nothing",
    )
    parquet = parser.add_argument_group("Parquet files")
    parquet.add_argument(
        "--columns", metavar="A,B,…", help="the columns that hold votes (default: all that are not kept)"
    )
    parquet.add_argument("--keep", metavar="A,B,…", help="columns to copy beside the labels, such as a key")
    parquet.add_argument(
        "--cluster", metavar="ADDRESS", help="work on the files side by side: where a Dask scheduler listens"
    )
    add_outputs(parser, made="the labels to a new .npy or .csv file, or .parquet or a folder of these (always needed)")
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Read and check everything, release against the ledger, write the labels; or recover labels."""
    options = build_parser().parse_args(arguments)
    if options.output is None:
        raise ValueError("--output is needed: a new .npy or .csv file for the labels, or .parquet for such votes")
    if not options.output.is_dir():  # what it may be for votes in Parquet files is said where they are read
        check_outputs(options)
    check_kept(options.ledger)
    if options.recover is not None:
        return _recover(options)
    if options.votes is None or options.table is None:
        raise ValueError("VOTES and --table are needed, unless --recover writes labels that were paid for already")
    in_parts = is_parquet(options.votes)
    if not in_parts:
        check_new(options.output)
        if any(value is not None for value in (options.columns, options.keep, options.cluster)):
            raise ValueError("--columns, --keep and --cluster are for votes in .parquet files, or a folder of these")
    try:
        with _one_interrupt():
            try:
                ledger, labels = _release(options, in_parts=in_parts)
                return _report(options, ledger, labels)
            except PaidError as error:
                return complain(str(error), PAID_STATUS)
    except KeyboardInterrupt:
        if not options.output.exists():  # as before the release
            raise
        return complain(f"interrupted; the labels are paid for and written to {options.output}", PAID_STATUS)


def _recover(options: Namespace) -> int:
    """Write labels that were paid for, or draw on where that was begun."""
    others = (options.votes, options.table, options.create_budget, options.classes, options.note or None)
    if options.missing != "refuse" or any(value is not None for value in (*others, options.columns, options.keep)):
        raise ValueError(
            "--recover goes with --ledger and --output only, and --cluster for Parquet files: the labels are paid for"
        )
    ledger, number = PrivacyLedger(options.ledger), integer("--recover", options.recover, 1)
    if ledger.kept_manifest(number) is None:
        return _report(options, ledger, recover(ledger, number, options.output).size)
    with status_line(quiet=options.quiet) as line:
        done = recover_partitions(ledger, number, options.output, cluster=options.cluster, line=line)
    return _report(options, ledger, done.rows)


def _release(options: Namespace, *, in_parts: bool) -> tuple[PrivacyLedger, int]:
    """Draw, pay, keep, write; return how many labels."""
    note = note_of(options)
    budget = None if options.create_budget is None else privacy_pair("--create-budget", options.create_budget, "3,1e-5")
    aggregator = load_release(options.table)
    voters, number = whose(aggregator)
    classes = number if options.classes is None else classes_of(options.classes)
    if (classes if isinstance(classes, int) else len(classes or ())) != number:
        allowed = "two different labels, like no,yes" if number == 2 else f"{number} different labels, or their number"
        checks.fail("--classes", options.classes, allowed, f"{options.table.name} is for {number} classes")

    def ledger_for(queries: int) -> PrivacyLedger:
        if budget is None:
            return PrivacyLedger(options.ledger)
        # a budget that does not admit the votes, or a note that is refused, leaves no ledger behind
        PrivacyLedger.create(":memory:", budget).debit(aggregator.charge(queries), note=note)
        return PrivacyLedger.create(options.ledger, budget)

    with status_line(quiet=options.quiet) as line:
        if in_parts:
            return _release_parts(options, aggregator, classes, ledger_for, note, line)
        votes = Votes.read(
            options.votes,
            voters=voters.K,
            classes=classes,
            votes_format=options.votes_format,
            missing=options.missing,
            line=line,
        )
        if votes.missing is not None and not options.quiet:
            found = f"{votes.missing.sum():,} of {votes.queries * voters.K:,} votes are missing"
            complain(f"{found}, and a fair coin stands for each", 0, "note")
        line.show(f"drawing {votes.queries:,} labels")
        ledger = ledger_for(votes.queries)
        labels = release_debited(aggregator, votes, ledger=ledger, note=note, output=options.output, line=line)
        return ledger, labels.size


def _release_parts(
    options: Namespace,
    aggregator: Aggregator,
    classes: Classes,
    ledger_for: Callable[[int], PrivacyLedger],
    note: str,
    line: StatusLine,
) -> tuple[PrivacyLedger, int]:
    """Survey, pay, draw and publish file by file; return how many labels."""
    if options.missing != "refuse":
        raise ValueError("--missing coin is for votes in .npy and .csv files: of .parquet files leave such rows out")
    if options.create_budget is None:
        PrivacyLedger(options.ledger)  # before the long reading
    manifest = survey(
        aggregator,
        options.votes,
        options.output,
        classes=classes,
        votes_format=options.votes_format,
        columns=None if options.columns is None else options.columns.split(","),
        keep=() if options.keep is None else options.keep.split(","),
        cluster=options.cluster,
        line=line,
    )
    ledger = ledger_for(manifest.rows)
    done = release_surveyed(
        manifest, ledger=ledger, output=options.output, note=note, cluster=options.cluster, line=line
    )
    return ledger, done.rows


def _report(options: Namespace, ledger: PrivacyLedger, labels: int) -> int:
    """Say what was written and what is spent; whatever fails here, the labels are paid for and written."""
    try:
        print_report(
            options,
            text=lambda: f"{labels} labels written to {options.output}\n{ledger.spent}\nbudget: {ledger.budget}\n",
            document=lambda: {
                "labels": labels,
                "output": str(options.output),
                "spent": ledger.spent.to_json(),
                "budget": ledger.budget.to_json(),
            },
        )
        sys.stdout.flush()
    except BrokenPipeError:
        raise  # the reader has read enough
    except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001 (nothing may look like labels that were not paid)
        with suppress(OSError, ValueError):  # what could not be printed must not fail again when the interpreter ends
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        written = f"{labels} labels are paid for and written to {options.output}"
        return complain(f"{reason_of(error)}; only the report failed: {written}", PAID_STATUS)
    return 0


@contextmanager
def _one_interrupt() -> Iterator[None]:
    """Let Ctrl-C interrupt once: a second one must not interrupt the reading of what the first one left paid."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(*_: object) -> None:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGINT, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def note_of(options: Namespace) -> str:
    """Return the note for the ledger's log: by default the files, whose names may be any bytes."""
    names = f"{options.votes.name} to {options.output.name}"
    return options.note or (names if names.isprintable() else ascii(names)[1:-1])


if __name__ == "__main__":
    sys.exit(run(main))
