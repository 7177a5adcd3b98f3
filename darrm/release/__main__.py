"""The command ``darrm release``: release private labels and debit their cost; subcommands file, stream, recover.

Exit status: 0, the labels are paid for and written; 2, nothing was paid; 3, they are paid for, and a later step
failed, as the line on standard error explains.
"""

import math
import os
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import click
import numpy as np

from darrm.account.accountant import COMPOSITIONS, DELTA_RESERVE, PrivacyAccountant
from darrm.account.filters import HALF
from darrm.aggregator import Released, load_release
from darrm.commands.command import PAIR, Group, command, run_command
from darrm.commands.command_line import PAID_STATUS, check_output_files, complain, format_count, nearest
from darrm.commands.options import (
    CLASSES,
    FILE,
    PRIVACY,
    Decorator,
    Integer,
    Output,
    Value,
    add_options,
    argument,
    as_one,
    classes_option,
    collect,
    option,
    output_options,
    text_value,
)
from darrm.errors import BudgetExceededError, DarrmError, LedgerError
from darrm.ledger.chain import SigningKey
from darrm.ledger.ledger import PrivacyLedger, check_id, describe_failure, printable
from darrm.ledger.sqlite import check_kept, ledger_name
from darrm.loss.privacy_cost import PrivacyCost
from darrm.numerics.bisection import bisect_safe
from darrm.privacy import PrivacyParams, at_most
from darrm.problem import describe_classes
from darrm.release.delivery import check_answered, check_new_labels, classes_for, receipt_path, recover, release_debited
from darrm.release.one_by_one import AnswerStream
from darrm.release.partitions import survey
from darrm.release.pipe import LineWriter, Questions, answer_lines
from darrm.util import checks
from darrm.util.extras import Untyped
from darrm.util.progress import StatusLine
from darrm.votes import ABSTAIN, LAYOUTS, MISSING, Classes, Votes
from darrm.votes.parquet_file import is_parquet
from darrm.votes.vote_arrays import VoteFormat
from darrm.votes.votes_file import SUFFIXES, quote_names

ABOUT = """\
Release private labels for votes. The ledger is debited, durably, before a label is written, and keeps the label until
it is written. Bad votes and a budget that does not admit them debit nothing."""
EXIT_STATUS = """\
exit status:
  0  the labels are paid for and written
  2  nothing was paid
  3  the labels are paid for, and something failed afterwards: the message says
     how to get them

Randomness comes from the operating system; there is no seed, on purpose.
"""
FILE_EXAMPLES = f"""\
examples:
  darrm release votes.csv --table table.json --ledger ledger.sqlite \\
    --create-budget 8,1e-2 --output labels.csv
  darrm release more.npy --table table.json --ledger ledger.sqlite \\
    --output more-labels.npy --note "batch 2"
  darrm release votes/ --table table.json --ledger ledger.sqlite --keep id \\
    --output labels/

A row is a query. A column is a voter, who answers 0, 1, … or a name of
--classes; or, with --layout counts, a class, and an entry says how many voters
chose it. The first line of a text names the columns if all its fields differ
and none can be a vote.
A folder of .parquet files becomes a folder of labels with the same names, with
a debit for each file. If it was interrupted, the same command goes on.

{EXIT_STATUS}"""
STREAM_EXAMPLES = f"""\
example:
  darrm release stream --table table.json --ledger ledger.sqlite < questions.csv

Each input line is a question; the next output line is NUMBER,LABEL. With
--format json a question is a line like [0,1,1] and its answer a line like
{{"query": 1, "label": 1}}. Each answer is paid for before it is printed.
After a crash the command first prints unacknowledged answers again, with the
same numbers. --first N means that the first line is question N and that earlier
answers arrived; lines that were answered are skipped. An invalid line, or one
that the budget does not admit, ends the command with status 2 and costs nothing.

{EXIT_STATUS}"""
RECOVER_EXAMPLES = f"""\
example:
  darrm release recover 2 --ledger ledger.sqlite --output more-labels.npy

`darrm account ledger.sqlite` lists the entries whose labels wait in a ledger.

{EXIT_STATUS}"""


@dataclass(frozen=True, kw_only=True)
class PaymentOptions:
    table: Path
    ledger: Path | str
    create_budget: PrivacyParams | None
    composition: str | None
    population: str | None
    signing_key: Path | None
    note: str
    classes: Classes
    layout: str
    normalize: str | None
    missing: str

    def load(self) -> tuple[Released, VoteFormat]:
        # the options of the ledger come first, because the proof takes long
        check_kept(self.ledger)
        if self.create_budget is not None:
            with suppress(LedgerError):  # there is no ledger yet
                queries = PrivacyLedger(self.ledger).accountant().queries
                raise ValueError(
                    f"ledger {str(self.ledger)!r}: it exists already and paid for {queries:,} labels, perhaps of these "
                    "very votes: python -m darrm.account --ledger says how to recover for nothing what did not arrive; "
                    "for other votes open it as it is, without --create-budget"
                )
        elif self.composition is not None or self.population is not None:
            flag = "--population" if self.composition is None else "--composition"
            raise ValueError(f"{flag} needs --create-budget: it belongs to a new ledger and never changes")
        if self.signing_key is not None:
            SigningKey(self.signing_key)
        aggregator = load_release(self.table)
        advice = f"{self.table.name} is for {describe_classes(aggregator.classes)}"
        classes = classes_for(aggregator, self.classes, "--classes", advice)
        return aggregator, VoteFormat(aggregator.voters.K, classes, self.layout, self.missing, self.normalize)

    def open_ledger(self, aggregator: Released, queries: int) -> PrivacyLedger:
        budget, composition, population = self.create_budget, self.composition or COMPOSITIONS[0], self.population or ""
        if budget is None:
            return PrivacyLedger(self.ledger, signing_key=self.signing_key)
        if self.population is not None:
            check_id("population", self.population)
        cost = aggregator.privacy_cost(queries)
        create = partial(PrivacyLedger.create, budget=budget, composition=composition, population=population)
        try:
            create(":memory:").debit(cost, note=self.note)
        except BudgetExceededError as error:
            raise ValueError(f"{error}{_suggest_budget(cost, budget, composition)}") from error
        return create(self.ledger, signing_key=self.signing_key)


LEDGER_NAME = text_value(ledger_name, "ledger")
_ledger_option, _votes_option = partial(option, section="Ledger"), partial(option, section="Votes")
_PAYMENT_OPTIONS = [
    option("--table", type=FILE, required=True, metavar="T.json", help="a proven table, or the plan of a mechanism"),
    option("--ledger", type=LEDGER_NAME, required=True, metavar="L.sqlite", help="what pays: a file or a URL"),
    _ledger_option("--create-budget", type=PRIVACY, metavar=PAIR, help="make the ledger first, with this budget"),
    _ledger_option(
        "--composition", type=click.Choice(COMPOSITIONS), help="kinds of queries (default one): see darrm ledger create"
    ),
    _ledger_option("--population", metavar="NAME", help="a public name of the people behind the votes"),
    _ledger_option("--signing-key", type=FILE, metavar="FILE", help="sign every entry (darrm ledger key makes a key)"),
    _ledger_option("--note", default="", metavar="TEXT", help="a note for the ledger's log"),
    classes_option(
        CLASSES,
        "names of the classes 0, 1, … (default 0,1,…), or a file with one a line; open: any string",
        None,
        "Votes",
    ),
    _votes_option(
        "--layout",
        type=click.Choice(LAYOUTS),
        default="auto",
        help="a column is a voter (labels) or a class (counts); auto, the default: by the number of columns",
    ),
    _votes_option(
        "--normalize", metavar="A,B,…", help="normalize open answers by casefold, nfc, spaces, strip, in this order"
    ),
    _votes_option(
        "--missing",
        type=click.Choice(MISSING),
        default="refuse",
        help="a missing vote (an empty field or NA, in .npy NaN) is an error (refuse, the default); a random vote "
        "replaces it (coin), which keeps the guarantee if which votes are missing does not depend on private data; "
        "or an open answer is not counted (blank), which keeps the guarantee",
    ),
]
paying_options = as_one(_PAYMENT_OPTIONS, lambda values: {"paying": collect(PaymentOptions, values), **values})


@dataclass(frozen=True, kw_only=True)
class ReadingOptions:
    rows: str
    columns: list[str] | None
    id_column: str | None
    keep: list[str] | None
    jobs: int


def _parse_names(_flag: str, text: str) -> list[str]:
    return text.split(",")


_NAMES = Value("text", _parse_names)
_READING_OPTIONS = [
    _votes_option(
        "--rows",
        type=click.Choice(("queries", "voters")),
        default="queries",
        help="a line is a query (default), or in a survey with open answers a voter",
    ),
    _votes_option(
        "--columns", type=_NAMES, metavar="A,B,…", help="the columns with votes (default: all but those kept)"
    ),
    _votes_option("--id", "id_column", metavar="NAME", help="the column of ids, copied to the output"),
    _votes_option(
        "--keep", type=_NAMES, metavar="A,B,…", help="from Parquet to Parquet: columns to copy to the output"
    ),
    option("--jobs", type=Integer(1), default="1", metavar="INT", help="processes for Parquet files (default 1)"),
]
reading_options = as_one(_READING_OPTIONS, lambda values: {"reading": collect(ReadingOptions, values), **values})


def target_options(about: str) -> Decorator:
    options = [
        option("--output", "-o", "target", type=FILE, required=True, metavar="FILE", help=about),
        option("--force", is_flag=True, section="Output", help="overwrite labels in one existing file"),
        output_options(),
    ]
    return partial(add_options, options=options)


def _votes_path(text: str) -> Path:
    if not Path(text).exists() and (hint := nearest(text, ("file", "stream", "recover"))):
        raise ValueError(f"{text!r} is neither a sub-command{hint} nor a file of votes: see `darrm release --help`")
    return Path(text)


@command(
    "file",
    about=f"One label for each row of a file of votes. {ABOUT}",
    short="one label for each row of a file of votes (the default)",
    first=("--table", "--ledger", "--output"),
    examples=FILE_EXAMPLES,
)
@argument(
    "votes",
    type=text_value(_votes_path),
    metavar="VOTES",
    about=".csv, .tsv (also .gz), .npy, .npz, .parquet or a folder of these",
)
@paying_options
@reading_options
@target_options("a new .npy, .csv or .parquet file for the labels, or a new folder of these")
def file(
    *, votes: Path, paying: PaymentOptions, reading: ReadingOptions, target: Path, force: bool, output: Output
) -> int:
    _check_target(target, votes=votes, table=paying.table, ledger=paying.ledger)
    # Parquet to Parquet works file by file, other formats in memory
    is_by_file = is_parquet(votes) and not target.name.lower().endswith(SUFFIXES)
    if is_by_file and (force or reading.rows == "voters"):
        flag = "--force is for labels in one file" if force else "--rows voters is for a survey in a .csv file"
        raise ValueError(f"{flag}: name a new output, and votes with a query in each row")
    if not is_by_file and not force:
        check_new_labels(target)
    if not is_by_file and (reading.keep is not None or reading.jobs != 1):
        raise ValueError("--keep and --jobs are for votes and labels in .parquet files: one column is kept by --id")
    if not paying.note:
        paying = replace(paying, note=printable(f"{votes.name} to {target.name}"))
    with _interrupt_once(signal.SIGINT), _set_old_aside(target, force=force):
        try:
            with output.status_line() as line:
                if is_by_file:
                    ledger, count = _release_files(votes, target, paying, reading, line)
                else:
                    ledger, count = _release_in_memory(votes, target, paying, reading, output, line)
            return _report(ledger, count, target, output)
        except KeyboardInterrupt:
            if not target.exists():  # as before the release
                raise
            return complain(f"interrupted; the labels are paid for and written to {target}", PAID_STATUS)


def _release_files(
    votes: Path, target: Path, paying: PaymentOptions, reading: ReadingOptions, line: StatusLine
) -> tuple[PrivacyLedger, int]:
    aggregator, vote_format = paying.load()
    if paying.create_budget is None:
        PrivacyLedger(paying.ledger, signing_key=paying.signing_key)  # before the long reading
    options: Untyped = asdict(vote_format)
    del options["voters"]  # the mechanism states them
    keep = [*filter(None, [reading.id_column]), *(reading.keep or [])]
    partitions = survey(
        aggregator, votes, target, jobs=reading.jobs, line=line, columns=reading.columns, keep=keep, **options
    )
    ledger = paying.open_ledger(aggregator, partitions.rows)
    return ledger, partitions.release(ledger, note=paying.note, jobs=reading.jobs, line=line).rows


def _release_in_memory(
    path: Path, target: Path, paying: PaymentOptions, reading: ReadingOptions, output: Output, line: StatusLine
) -> tuple[PrivacyLedger, int]:
    aggregator, vote_format = paying.load()
    if reading.rows == "queries":
        votes = Votes.read(path, line=line, columns=reading.columns, id_column=reading.id_column, **asdict(vote_format))
    elif vote_format.is_open:
        votes = Votes.read_survey(
            path, vote_format.voters or 0, missing=vote_format.missing, normalize=vote_format.normalize, line=line
        )
    else:
        checks.fail("--rows", "voters", "queries where classes are listed", "transpose the votes")
    check_answered(votes)  # before a ledger is made
    total = f"{votes.queries * votes.voters:,}"
    if votes.missing is not None:
        replacement = "coin" if len(votes.classes) == 2 else "die"
        output.note(f"{votes.missing.sum():,} of {total} votes are missing, and a fair {replacement} stands for each")
    if votes.voter_names and not is_parquet(path):
        output.note(f"line 1 of {path.name} names the voters and is no query: {quote_names(votes.voter_names)}")
    if votes.blanks:
        output.note(f"{votes.blanks:,} of {total} answers are missing and count for no string")
    line.show(f"drawing {votes.queries:,} labels")
    ledger = paying.open_ledger(aggregator, votes.queries)
    labels = release_debited(aggregator, votes, ledger=ledger, note=paying.note, output=target, line=line)
    if not labels.any() if votes.is_open else np.all(labels.astype(str) == str(ABSTAIN)):
        reason = f"({ABSTAIN} is no label): the test did not pass"
        if votes.is_open:
            reason = "(an empty field): no string had enough votes"
        line.wipe()
        output.note(f"no query has a label {reason}; the budget is spent")
    return ledger, labels.size


@command(
    "stream",
    about=f"Questions on standard input are answered on standard output as they come. {ABOUT}",
    short="questions on standard input are answered on standard output",
    first=("--table", "--ledger", "--stream"),
    examples=STREAM_EXAMPLES,
)
@paying_options
@option("--stream", default="", metavar="NAME", help="which answers go on, if several streams share a ledger")
@option("--ids", is_flag=True, help="the first field of a line is the public id of its question, for the ledger's log")
@option(
    "--first",
    type=Integer(1),
    metavar="N",
    help="number of the first question; the answers before it arrived (default: the first question without an answer)",
)
@output_options()
def stream(*, paying: PaymentOptions, stream: str, ids: bool, first: int | None, output: Output) -> int:
    if sys.stdin is None:  # a shell's <&-
        raise ValueError("standard input is closed: questions come from there")
    with _interrupt_once(signal.SIGINT, signal.SIGTERM):
        with output.status_line() as line:
            line.show("proving the table again")
            aggregator, vote_format = paying.load()
            questions = Questions(sys.stdin.fileno(), vote_format, json_lines=output.format == "json", ids=ids)
            ledger = paying.open_ledger(aggregator, 1)
            release = AnswerStream(aggregator, ledger, stream=stream, note=paying.note)
            writer = LineWriter(sys.stdout.fileno(), json_lines=output.format == "json")
        answered = answer_lines(release, writer, questions, first=first)
        summary = f"{answered} questions answered, {release.answered} in all"
        try:
            return 0 if output.quiet else complain(f"{summary}; {ledger.spent}; budget: {ledger.guarantee}", 0, "done")
        except DarrmError as error:
            return complain(f"{describe_failure(error)}; only the report failed: {summary}", PAID_STATUS)


@command(
    "recover",
    about="Write labels that were paid for and not delivered; nothing is paid.",
    short="write labels that were paid for and not delivered",
    first=("--ledger", "--output"),
    examples=RECOVER_EXAMPLES,
)
@argument("entry", type=Integer(1), metavar="ENTRY", about="the number of the ledger's entry")
@option("--ledger", type=LEDGER_NAME, required=True, metavar="L.sqlite", help="the ledger that paid: a file or a URL")
@target_options("a new .npy, .csv or .parquet file for the labels, or the entry's own output")
def recover_labels(*, entry: int, ledger: Path | str, target: Path, force: bool, output: Output) -> int:
    _check_target(target, ledger=ledger)
    check_kept(ledger)
    with _interrupt_once(signal.SIGINT):
        source_ledger = PrivacyLedger(ledger)
        with _set_old_aside(target, force=force):
            count = recover(source_ledger, entry, target).size
        return _report(source_ledger, count, target, output)


release = Group("release", help=ABOUT, examples=EXIT_STATUS, default_command="file")
for _command in (file, stream, recover_labels):
    release.add_command(_command)


def main(arguments: Sequence[str] | None = None) -> int:
    return run_command(release, arguments)


@contextmanager
def _set_old_aside(target: Path, *, force: bool) -> Iterator[None]:
    """Move labels that --force replaces aside, and back if no new ones replace them."""
    old_files = [path for path in (target, receipt_path(target)) if force and path.is_file()]
    if not old_files:
        yield
        return
    with TemporaryDirectory(prefix=f".{target.stem[:100]}-", dir=target.parent) as folder:
        for path in old_files:
            path.rename(Path(folder) / path.name)
        try:
            yield
        finally:
            if not target.exists():
                for path in old_files:
                    (Path(folder) / path.name).rename(path)


def _check_target(target: Path, **files: Path | str) -> None:
    if not target.is_dir():  # an existing file is checked with its receipt
        inputs = {name: path for name, path in files.items() if isinstance(path, Path)}
        check_output_files({"output": target, **inputs}, force=True)


def _suggest_budget(cost: PrivacyCost, budget: PrivacyParams, composition: str) -> str:
    """Suggest a budget with the same δ, else with the same ε, else with the largest δ."""
    account = PrivacyAccountant(costs=[cost], set_aside=DELTA_RESERVE.get(composition, HALF))

    def compute_epsilon(delta: float) -> float:
        return account.smallest_epsilon(delta, adaptive=composition in DELTA_RESERVE)

    def admits(delta: float) -> bool:
        return compute_epsilon(delta) <= budget.epsilon

    suggestion, largest = "", 0.01  # the largest δ of a suggestion
    if math.isfinite(compute_epsilon(budget.delta)):
        suggestion = f"{at_most(compute_epsilon(budget.delta), 2)},{budget.delta_text}"
    elif admits(largest):
        delta = bisect_safe(admits, largest, max(budget.delta, 1e-30), tolerance=0.02, geometric=True)
        suggestion = f"{budget.epsilon_text},{at_most(delta, 2)}"
    elif math.isfinite(compute_epsilon(largest)):
        suggestion = f"{at_most(compute_epsilon(largest), 2)},{largest:g}"
    return f"; {suggestion} would admit it, if that is private enough" if suggestion else ""


def _report(ledger: PrivacyLedger, labels: int, target: Path, output: Output) -> int:
    try:
        output.print(
            text=lambda: (
                f"{format_count(labels, 'label', 'labels')} written to {target}\n"
                f"budget: {ledger.guarantee}\n{ledger.spent}\n"
                f"receipt: {receipt_path(target)}\ndigest: {ledger.digest()}\n"
            ),
            document=lambda: {
                "labels": labels,
                "output": str(target),
                "spent": ledger.spent.to_json(),
                "budget": ledger.budget.to_json(),
                "receipt": str(receipt_path(target)),
                "ledger_digest": ledger.digest().to_json(),
            },
        )
        sys.stdout.flush()
    except BrokenPipeError:
        raise  # the reader has read enough
    except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001 (an error must not look like unpaid labels)
        with suppress(OSError, ValueError):  # unprinted output must not fail again when the interpreter exits
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        written = f"{format_count(labels, 'label is', 'labels are')} paid for and written to {target}"
        return complain(f"{describe_failure(error)}; only the report failed: {written}", PAID_STATUS)
    return 0


@contextmanager
def _interrupt_once(*signals: signal.Signals) -> Iterator[None]:
    """Let Ctrl-C interrupt once: a second one must not interrupt the report of the payment."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(*_: object) -> None:
        for number in signals:
            signal.signal(number, signal.SIG_IGN)
        raise KeyboardInterrupt

    handlers = [(number, signal.signal(number, interrupt)) for number in signals]
    try:
        yield
    finally:
        for number, handler in handlers:
            signal.signal(number, handler)


if __name__ == "__main__":
    sys.exit(main())
