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
from darrm.errors import DarrmError, PaidError
from darrm.mechanisms.files import Released, load_release, whose
from darrm.release.debited import recover, release_debited
from darrm.release.one_by_one import open_release
from darrm.release.partitions import recover_partitions, release_surveyed, survey
from darrm.release.pipe import Questions, answer_lines
from darrm.system.command_line import CommandLine, add_outputs, check_outputs, complain, print_report, run
from darrm.system.flags import integer, privacy_pair
from darrm.system.parquet_file import is_parquet
from darrm.system.progress import StatusLine, status_line
from darrm.system.votes_file import check_new, classes_of
from darrm.votes import FORMATS, MISSING, Classes, Votes

PAID_STATUS = 3
STREAM = Path("-")  # standard input or output
DESCRIPTION = """\
Release one private label for each row of a file of votes. The ledger is debited for all rows, durably, before the
first label is written, and keeps the labels until they are; votes that cannot be released, and budgets that do not
admit them, debit and write nothing. Parquet files, and folders of them, are read a part at a time, here or on a
cluster. With - for votes and output, questions on standard input are answered on standard output as they come."""

EPILOG = """\
examples:
  python -m darrm.release votes.csv --table table.json --ledger ledger.sqlite --create-budget 8,1e-2 --output labels.csv
  python -m darrm.release more.npy --table table.json --ledger ledger.sqlite --output more-labels.npy --note "batch 2"
  python -m darrm.release --recover 2 --ledger ledger.sqlite --output more-labels.npy
  python -m darrm.release votes/ --table table.json --ledger ledger.sqlite --keep id --output labels/
  python -m darrm.release --votes - --table table.json --ledger ledger.sqlite --output -

exit status:
  0  the labels are paid for and written
  2  nothing was paid
  3  the labels are paid for and something failed afterwards: the message says what --recover writes

A file of votes has one row a query and one column a voter: 0, 1, …, or the labels named by --classes. Or one column a
class: how many voters chose it. In Parquet files the columns have names, and all that --keep does not name are votes;
a folder is read with all .parquet files in it, and becomes a folder of labels with the same names.

With --votes - and --output - a line is a question, and its answer the line NUMBER,LABEL; with --format json a question
is a line like [0,1,1] and its answer one like {"query": 1, "label": 1}. Each is paid for before it is printed. Killed
and started again, the command prints first what it paid for and did not hear of again, with the same numbers, and goes
on; --first says which question the first line is, and those that are answered are passed over. A line that is no
question, or that the budget does not admit, ends it with status 2; nothing is paid for that line.
Randomness comes from the operating system; there is no seed, on purpose."""


def build_parser() -> CommandLine:
    """Describe the command line."""
    parser = CommandLine(prog="python -m darrm.release", description=DESCRIPTION, epilog=EPILOG)
    parser.add_argument(
        "votes",
        type=Path,
        nargs="?",
        metavar="VOTES",
        help=".npy, .csv, .parquet or a folder of these: one row a query, one column a voter; - for standard input",
    )
    parser.add_argument(
        "--votes", type=Path, dest="named", metavar="VOTES", help="the same, named: --votes - beside --output -"
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
    stream = parser.add_argument_group("one by one, where VOTES and --output are -")
    stream.add_argument("--stream", metavar="NAME", help="which answers go on here, where several share a ledger")
    stream.add_argument(
        "--first", metavar="N", help="the number of the first question (default: the first that is not answered)"
    )
    made = "the labels to a new .npy or .csv file, or .parquet or a folder of these, or - (always needed)"
    add_outputs(parser, made=made)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Read and check everything, release against the ledger, write the labels; or recover labels."""
    options = build_parser().parse_args(arguments)
    if options.named is not None:
        if options.votes is not None:
            raise ValueError(f"votes come from one place: say {options.votes} or --votes {options.named}")
        options.votes = options.named
    del options.named  # not another input, which an output may not overwrite
    if options.output is None:
        raise ValueError("--output is needed: a new .npy or .csv file for the labels, or .parquet for such votes")
    if STREAM in {options.votes, options.output}:
        return _one_by_one(options)
    if options.stream is not None or options.first is not None:
        raise ValueError("--stream and --first are for answers one by one: say --votes - and --output -")
    return _file_by_file(options)


def _file_by_file(options: Namespace) -> int:
    """Release the votes of files, or recover labels of such a release."""
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
        with _one_interrupt(signal.SIGINT):
            try:
                ledger, labels = _release(options, in_parts=in_parts)
                return _report(options, ledger, labels)
            except PaidError as error:
                return complain(str(error), PAID_STATUS)
    except KeyboardInterrupt:
        if not options.output.exists():  # as before the release
            raise
        return complain(f"interrupted; the labels are paid for and written to {options.output}", PAID_STATUS)


def _one_by_one(options: Namespace) -> int:
    """Answer the questions on standard input as they come."""
    if options.votes != options.output:
        raise ValueError("--votes - goes with --output -: send the answers on with > FILE or | COMMAND")
    files = (options.recover, options.columns, options.keep, options.cluster)
    if options.table is None or any(value is not None for value in files):
        raise ValueError("--votes - needs --table, and takes no --recover, --columns, --keep or --cluster")
    if sys.stdin is None:  # a shell's <&-
        raise ValueError("standard input is closed: questions come from there")
    check_kept(options.ledger)
    first = None if options.first is None else integer("--first", options.first, 1)
    as_json = options.format == "json"
    try:
        with _one_interrupt(signal.SIGINT, signal.SIGTERM):
            with status_line(quiet=options.quiet) as line:
                line.show("proving the table again")
                aggregator, classes = _aggregator_of(options)
                source, K = sys.stdin.fileno(), whose(aggregator)[0].K
                questions = Questions(
                    source, K, classes, options.votes_format, json_lines=as_json, missing=options.missing
                )
                ledger = _ledger_of(options, aggregator, 1, options.note)
                release = open_release(aggregator, ledger, stream=options.stream or "", note=options.note)
            answered = answer_lines(release, questions, sys.stdout.fileno(), first=first, json_lines=as_json)
            done = f"{answered} questions answered, {release.answered} in all"
            try:
                return 0 if options.quiet else complain(f"{done}; {ledger.spent}", 0, "done")
            except DarrmError as error:
                return complain(f"{reason_of(error)}; only the report failed: {done}", PAID_STATUS)
    except PaidError as error:
        return complain(str(error), PAID_STATUS)


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
    aggregator, classes = _aggregator_of(options)
    voters, _ = whose(aggregator)

    def ledger_for(queries: int) -> PrivacyLedger:
        return _ledger_of(options, aggregator, queries, note)

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


def _aggregator_of(options: Namespace) -> tuple[Released, int | tuple[str, ...]]:
    """Read what releases, and the classes that it releases; the flags of a budget are checked before the long proof."""
    if options.create_budget is not None:
        privacy_pair("--create-budget", options.create_budget, "3,1e-5")
    aggregator = load_release(options.table)
    _, number = whose(aggregator)
    named = classes_of(options.classes)
    classes = number if named is None else named
    if (classes if isinstance(classes, int) else len(classes)) != number:
        allowed = "two different labels, like no,yes" if number == 2 else f"{number} different labels, or their number"
        checks.fail("--classes", options.classes, allowed, f"{options.table.name} is for {number} classes")
    return aggregator, classes


def _ledger_of(options: Namespace, aggregator: Released, queries: int, note: str) -> PrivacyLedger:
    """Open the ledger, or make it where ``--create-budget`` admits so many queries."""
    if options.create_budget is None:
        return PrivacyLedger(options.ledger)
    budget = privacy_pair("--create-budget", options.create_budget, "3,1e-5")
    # a budget that does not admit the votes, or a note that is refused, leaves no ledger behind
    PrivacyLedger.create(":memory:", budget).debit(aggregator.charge(queries), note=note)
    return PrivacyLedger.create(options.ledger, budget)


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
def _one_interrupt(*signals: signal.Signals) -> Iterator[None]:
    """Let Ctrl-C interrupt once: a second one must not interrupt the reading of what the first one left paid."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(*_: object) -> None:
        for each in signals:
            signal.signal(each, signal.SIG_IGN)
        raise KeyboardInterrupt

    before = [(each, signal.signal(each, interrupt)) for each in signals]
    try:
        yield
    finally:
        for each, handler in before:
            signal.signal(each, handler)


def note_of(options: Namespace) -> str:
    """Return the note for the ledger's log: by default the files, whose names may be any bytes."""
    names = f"{options.votes.name} to {options.output.name}"
    return options.note or (names if names.isprintable() else ascii(names)[1:-1])


if __name__ == "__main__":
    sys.exit(run(main))
