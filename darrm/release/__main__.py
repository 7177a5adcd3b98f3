"""Command line ``python -m darrm.release``: private labels for votes, paid for from a ledger: file, stream, recover.

The exit status says what became of the budget: 0, the labels are paid for and written; 2, nothing was paid; 3, they
are paid for, and something failed afterwards, which the line on standard error says.
"""

import math
import os
import signal
import sys
import threading
from argparse import Namespace, _ActionsContainer
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np

from darrm.account.accountant import KINDS, SET_ASIDE, PrivacyAccountant
from darrm.account.filters import HALF
from darrm.account.ledger import PrivacyLedger, reason_of
from darrm.account.ledger_store import check_kept
from darrm.account.signing import SigningKey
from darrm.account.store import ledger_name
from darrm.errors import BudgetExceededError, DarrmError, LedgerError, PaidError, checks
from darrm.losses.charges import Charge
from darrm.pate.files import Released, load_release
from darrm.privacy import PrivacyParams
from darrm.probability.bisection import last_allowed
from darrm.problem import classes_in_words, is_open
from darrm.release.debited import receipt_path, recover, release_debited
from darrm.release.delivery import Delivery
from darrm.release.partitions import recover_partitions, release_surveyed, survey
from darrm.release.pipe import Pipe, Questions, answer_lines
from darrm.system.command_line import (
    CommandLine,
    add_jobs,
    add_outputs,
    check_outputs,
    complain,
    nearest,
    numbered,
    print_report,
    rounded_up,
    run,
)
from darrm.system.flags import add_classes, classes_of, integer, privacy_pair
from darrm.system.parquet_file import is_parquet
from darrm.system.progress import StatusLine, status_line
from darrm.system.votes_file import check_new
from darrm.votes import ABSTAIN, FORMATS, MISSING, Classes, Votes

PAID_STATUS = 3
_SMALLEST_DELTA, _LARGEST_DELTA, _TOLERANCE = 1e-30, 0.01, 0.02  # of what is proposed where a budget is too small
PROGRAM = "python -m darrm.release"
DESCRIPTION = """\
Release private labels for votes. The ledger is debited, durably, before a label is written, and keeps it until it is;
votes that cannot be released, and budgets that do not admit them, debit and write nothing."""
EXIT_STATUS = """\
exit status:
  0  the labels are paid for and written
  2  nothing was paid
  3  the labels are paid for and something failed afterwards: the message says how to have them
Randomness comes from the operating system; there is no seed, on purpose."""
JOBS = {
    "file": "one label for each row of a file of votes (also without this word: release votes.csv …)",
    "stream": "questions on standard input are answered on standard output as they come",
    "recover": "labels that were paid for and not delivered are written, and nothing is paid",
}
EPILOGS = {
    "file": """\
examples:
  python -m darrm.release votes.csv --table table.json --ledger ledger.sqlite --create-budget 8,1e-2 --output labels.csv
  python -m darrm.release file more.npy --table table.json --ledger ledger.sqlite --output more.npy --note "batch 2"
  python -m darrm.release file votes/ --table table.json --ledger ledger.sqlite --keep id --output labels/

A file of votes has one row a query and one column a voter: 0, 1, …, or the labels named by --classes. Or one column a
class: how many voters chose it. In Parquet files the columns have names, and all that --keep does not name are votes;
a folder is read with all .parquet files in it, a part at a time, here or on a cluster, and becomes a folder of labels
with the same names.
""",
    "stream": """\
example:
  python -m darrm.release stream --table table.json --ledger ledger.sqlite < questions.csv

A line is a question, and its answer the line NUMBER,LABEL; with --format json a question is a line like [0,1,1] and its
answer one like {"query": 1, "label": 1}. Each is paid for before it is printed. Killed and started again, the command
prints first what it paid for and did not hear of again, with the same numbers, and goes on; --first says which question
the first line is, and those that are answered are passed over. A line that is no question, or that the budget does not
admit, ends it with status 2; nothing is paid for that line.
""",
    "recover": """\
example:
  python -m darrm.release recover 2 --ledger ledger.sqlite --output more-labels.npy

python -m darrm.account lists the entries whose labels wait in a ledger.
""",
}
RENAMED = {
    "file": {
        "--recover": f"{PROGRAM} recover ENTRY --ledger L.sqlite --output FILE",
        "--votes": f"{PROGRAM} file VOTES, or, for questions on standard input, {PROGRAM} stream",
        "--first": f"a flag of {PROGRAM} stream",
        "--stream": f"a flag of {PROGRAM} stream",
    },
    "stream": {"--votes": "standard input", "--output": "standard output: send it on with > FILE"},
    "recover": {},
}


def build_parser(job: str = "") -> CommandLine:
    """Describe the command line of a job; of all of them without one."""
    about = f"{JOBS[job][0].upper()}{JOBS[job][1:]}.\n{DESCRIPTION}" if job else DESCRIPTION
    program = f"{PROGRAM} {job}".strip()
    more = EPILOGS.get(job, f"{PROGRAM} JOB --help says more.\n\n") + EXIT_STATUS
    parser = CommandLine(prog=program, description=about, epilog=more, renamed=RENAMED.get(job))
    if not job:
        return add_jobs(parser, JOBS, build_parser)
    _ADDING[job](parser)
    return parser


def _add_file(parser: CommandLine) -> None:
    parser.add_argument(
        "votes", type=Path, metavar="VOTES", help=".npy, .csv, .parquet or a folder of these: one row a query"
    )
    _add_release(parser)
    parser.add_argument(
        "--rows",
        choices=("queries", "voters"),
        default="queries",
        help="what a line of open answers is: a query (default), or in a survey a voter, with a column for each query",
    )
    parquet = parser.add_argument_group("Parquet files")
    parquet.add_argument(
        "--columns", metavar="A,B,…", help="the columns that hold votes (default: all that are not kept)"
    )
    parquet.add_argument("--keep", metavar="A,B,…", help="columns to copy beside the labels, such as a key")
    _add_cluster(parquet)
    add_outputs(parser, made="the labels to a new .npy or .csv file, or .parquet or a folder of these (always needed)")


def _add_stream(parser: CommandLine) -> None:
    _add_release(parser)
    parser.add_argument(
        "--stream", default="", metavar="NAME", help="which answers go on, where several share a ledger"
    )
    parser.add_argument(
        "--ids",
        action="store_true",
        help="the first field of a line is the public id of its question, which the ledger's log keeps and shows",
    )
    parser.add_argument(
        "--first", metavar="N", help="the number of the first question (default: the first that is not answered)"
    )
    add_outputs(parser)


def _add_recover(parser: CommandLine) -> None:
    parser.add_argument("entry", metavar="ENTRY", help="the number of the ledger's entry")
    parser.add_argument(
        "--ledger", type=ledger_name, required=True, metavar="L.sqlite", help="what paid, a file or a URL"
    )
    _add_cluster(parser)
    add_outputs(parser, made="the labels to a new .npy or .csv file, or to the entry's own output (always needed)")


def _add_release(parser: CommandLine) -> None:
    parser.add_argument("--votes-format", choices=FORMATS, default="auto", help="what the votes are (default auto)")
    add_classes(
        parser,
        "the labels that stand for 0, 1, … (default 0,1,…), in a file one a line; open: a voter answers with any "
        "string, and an empty field is no answer",
    )
    parser.add_argument(
        "--normalize",
        metavar="A,B,…",
        help="what makes open answers alike before they are counted: some of casefold, nfc, spaces, strip, in this "
        "order; the ledger's log says it",
    )
    parser.add_argument(
        "--missing",
        choices=MISSING,
        default="refuse",
        help="a vote that is missing (an empty field or NA, in .npy NaN) is an error (default), or a fair coin, of "
        "more classes a die: the guarantee stays, if which votes are missing does not depend on the private data; of "
        "open answers blank: it counts for no string, and the guarantee stays",
    )
    _add_ledger(parser)


def _add_ledger(parser: CommandLine) -> None:
    parser.add_argument(
        "--table", type=Path, required=True, metavar="T.json", help="what a plan wrote: a proven table, or a mechanism"
    )
    parser.add_argument(
        "--ledger", type=ledger_name, required=True, metavar="L.sqlite", help="where to debit: a file or a URL"
    )
    parser.add_argument(
        "--create-budget", metavar="EPS,DELTA", help="make the ledger first, with this budget for all its queries"
    )
    parser.add_argument(
        "--kinds",
        choices=KINDS,
        help="what the new ledger pays for: queries of one kind (default), of several that are planned beforehand, or "
        "of several at will, as a stream may ask when voters join or change their promise: renyi for those with a "
        "Rényi curve, adaptive for any, which costs more",
    )
    parser.add_argument(
        "--population",
        metavar="NAME",
        help="a public name of the people behind the votes, for the new ledger: what ledgers of one population spent "
        "adds up",
    )
    parser.add_argument(
        "--signing-key",
        type=Path,
        metavar="FILE",
        help="sign every entry of the ledger, from its first one on (python -m darrm.account --new-signing-key)",
    )
    parser.add_argument("--note", default="", metavar="TEXT", help="a note for the ledger's log")


def _add_cluster(parser: _ActionsContainer) -> None:
    parser.add_argument(
        "--cluster", metavar="ADDRESS", help="work on Parquet files side by side: where a Dask scheduler listens"
    )


_ADDING = {"file": _add_file, "stream": _add_stream, "recover": _add_recover}


def main(arguments: Sequence[str] | None = None) -> int:
    """Start the job that the first word names; by default votes are a file."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    if words[:1] in (["-h"], ["--help"], ["--version"]):
        build_parser().parse_args(words)
    job = words.pop(0) if words and words[0] in JOBS else "file"
    typed = words[0] if job == "file" and words and not words[0].startswith("-") else ""
    if typed and not Path(typed).exists() and (hint := nearest(typed, JOBS)):
        raise ValueError(f"{typed!r} is neither a job{hint} nor a file of votes: see {PROGRAM} --help")
    options = build_parser(job).parse_args(words)
    check_kept(options.ledger)
    try:
        with _one_interrupt(*((signal.SIGINT, signal.SIGTERM) if job == "stream" else (signal.SIGINT,))):
            return _DOING[job](options)
    except PaidError as error:
        return complain(str(error), PAID_STATUS)


def _file(options: Namespace) -> int:
    if Path("-") in {options.votes, options.output}:
        raise ValueError(f"- is now {PROGRAM} stream, without votes and --output: it reads and writes as it answers")
    in_parts = is_parquet(options.votes)
    _check_output(options)
    if not in_parts:
        check_new(options.output)
        if any(value is not None for value in (options.columns, options.keep, options.cluster)):
            raise ValueError("--columns, --keep and --cluster are for votes in .parquet files, or a folder of these")
    try:
        with status_line(quiet=options.quiet) as line:
            ledger, labels = (_release_parts if in_parts else _release)(options, line)
        return _report(options, ledger, labels)
    except KeyboardInterrupt:
        if not options.output.exists():  # as before the release
            raise
        return complain(f"interrupted; the labels are paid for and written to {options.output}", PAID_STATUS)


def _release(options: Namespace, line: StatusLine) -> tuple[PrivacyLedger, int]:
    aggregator, classes = _aggregator_of(options)
    K = aggregator.voters.K
    votes = _votes_of(options, K, classes, line)
    if votes.missing is not None and not options.quiet:
        absent = f"{votes.missing.sum():,} of {votes.queries * K:,} votes are missing"
        complain(f"{absent}, and a fair {'coin' if aggregator.classes == 2 else 'die'} stands for each", 0, "note")
    if votes.blanks and not options.quiet:
        complain(f"{votes.blanks:,} of {votes.queries * K:,} answers are missing and count for no string", 0, "note")
    line.show(f"drawing {votes.queries:,} labels")
    note = note_of(options)
    ledger = _ledger_of(options, aggregator, votes.queries, note)
    labels = release_debited(aggregator, votes, ledger=ledger, note=note, output=options.output, line=line)
    if votes.is_open and not labels.any() and not options.quiet:
        line.wipe()
        complain("no query has a label (an empty field): no string had enough votes; the budget is spent", 0, "note")
    if not votes.is_open and np.all(labels.astype(str) == str(ABSTAIN)) and not options.quiet:
        line.wipe()
        complain(
            f"no query has a label ({ABSTAIN} stands for none): the test did not pass; the budget is spent", 0, "note"
        )
    return ledger, labels.size


def _votes_of(options: Namespace, K: int, classes: Classes, line: StatusLine) -> Votes:
    answers = {"missing": options.missing, "normalize": options.normalize, "line": line}
    if options.rows == "voters":
        if not is_open(classes):
            checks.fail("--rows", "voters", "queries where classes are listed", "turn the votes round")
        return Votes.read_survey(options.votes, K, **answers)
    return Votes.read(options.votes, voters=K, classes=classes, votes_format=options.votes_format, **answers)


def _release_parts(options: Namespace, line: StatusLine) -> tuple[PrivacyLedger, int]:
    if options.rows == "voters":
        raise ValueError("--rows voters is for a survey in a .csv file: in .parquet files a row is a query")
    if options.missing == "coin":
        raise ValueError("--missing coin is for votes in .npy and .csv files: of .parquet files leave such rows out")
    aggregator, classes = _aggregator_of(options)
    if options.create_budget is None:
        PrivacyLedger(options.ledger, signing_key=options.signing_key)  # before the long reading
    manifest = survey(
        aggregator,
        options.votes,
        options.output,
        cluster=options.cluster,
        line=line,
        classes=classes,
        normalize=options.normalize,
        missing=options.missing,
        votes_format=options.votes_format,
        columns=None if options.columns is None else options.columns.split(","),
        keep=() if options.keep is None else options.keep.split(","),
    )
    note = note_of(options)
    ledger = _ledger_of(options, aggregator, manifest.rows, note)
    delivery = Delivery(aggregator, ledger, note, line)
    return ledger, release_surveyed(manifest, delivery, options.output, cluster=options.cluster).rows


def _stream(options: Namespace) -> int:
    if sys.stdin is None:  # a shell's <&-
        raise ValueError("standard input is closed: questions come from there")
    first = None if options.first is None else integer("--first", options.first, 1)
    as_json = options.format == "json"
    with status_line(quiet=options.quiet) as line:
        line.show("proving the table again")
        aggregator, classes = _aggregator_of(options)
        questions = Questions(
            sys.stdin.fileno(),
            aggregator.voters.K,
            classes,
            options.votes_format,
            json_lines=as_json,
            missing=options.missing,
            normalize=options.normalize,
            ids=options.ids,
        )
        ledger = _ledger_of(options, aggregator, 1, options.note)
        out = sys.stdout.fileno()
        release = Pipe(out, aggregator, ledger, stream=options.stream, note=options.note, json_lines=as_json)
    answered = answer_lines(release, questions, first=first)
    done = f"{answered} questions answered, {release.answered} in all"
    try:
        return 0 if options.quiet else complain(f"{done}; {ledger.spent}", 0, "done")
    except DarrmError as error:
        return complain(f"{reason_of(error)}; only the report failed: {done}", PAID_STATUS)


def _recover(options: Namespace) -> int:
    _check_output(options)
    ledger, number = PrivacyLedger(options.ledger), integer("ENTRY", options.entry, 1)
    if ledger.kept_manifest(number) is None:
        return _report(options, ledger, recover(ledger, number, options.output).size)
    with status_line(quiet=options.quiet) as line:
        done = recover_partitions(ledger, number, options.output, cluster=options.cluster, line=line)
    return _report(options, ledger, done.rows)


_DOING = {"file": _file, "stream": _stream, "recover": _recover}


def _check_output(options: Namespace) -> None:
    if options.output is None:
        raise ValueError("--output is needed: a new .npy or .csv file for the labels, or .parquet for such votes")
    if not options.output.is_dir():
        check_outputs(options)


def _aggregator_of(options: Namespace) -> tuple[Released, int | tuple[str, ...]]:
    """Read what releases, and the classes that it releases; the flags of a ledger are checked before the long proof."""
    if options.create_budget is not None:
        privacy_pair("--create-budget", options.create_budget, "3,1e-5")
        _check_no_ledger(options.ledger)
    elif options.kinds is not None or options.population is not None:
        flag = "--population" if options.kinds is None else "--kinds"
        raise ValueError(f"{flag} is said when a ledger is made: give it with --create-budget; it stays as it was made")
    if options.signing_key is not None:
        SigningKey(options.signing_key)
    aggregator = load_release(options.table)
    number = aggregator.classes
    named = classes_of(options.classes)
    classes = number if named is None else named
    if (classes if isinstance(classes, int) else len(classes)) != number:
        allowed = "two different labels, like no,yes" if number == 2 else f"{number} different labels, or their number"
        allowed = "open, or left out" if is_open(number) else allowed
        checks.fail("--classes", options.classes, allowed, f"{options.table.name} is for {classes_in_words(number)}")
    return aggregator, classes


def _ledger_of(options: Namespace, aggregator: Released, queries: int, note: str) -> PrivacyLedger:
    if options.create_budget is None:
        return PrivacyLedger(options.ledger, signing_key=options.signing_key)
    budget = privacy_pair("--create-budget", options.create_budget, "3,1e-5")
    # a budget that does not admit the votes, or a note that is refused, leaves no ledger behind
    kinds, charge = options.kinds or KINDS[0], aggregator.charge(queries)
    population = "" if options.population is None else options.population
    try:
        PrivacyLedger.create(":memory:", budget, kinds=kinds, population=population).debit(charge, note=note)
    except BudgetExceededError as error:
        raise ValueError(f"{error}{_larger_budget(charge, budget, kinds)}") from error
    key = options.signing_key
    return PrivacyLedger.create(options.ledger, budget, kinds=kinds, population=population, signing_key=key)


def _check_no_ledger(path: Path | str) -> None:
    """Refuse a new budget where a ledger is, and say first that it may have paid for these votes."""
    with suppress(LedgerError):  # no ledger, or none yet: whoever makes one says what stands in the way
        paid = PrivacyLedger(path).accountant().queries
        raise ValueError(
            f"ledger {str(path)!r}: it exists already and paid for {paid:,} labels, perhaps of these very votes: to "
            "release them again costs again, and python -m darrm.account --ledger says how to recover for nothing what "
            "did not arrive; for other votes open it as it is, without --create-budget (a second ledger for the same "
            "people would be a second budget)"
        )


def _larger_budget(charge: Charge, budget: PrivacyParams, kinds: str) -> str:
    """Name a budget that admits a charge: the same δ, or else the same ε, or else the largest δ that is proposed."""
    account = PrivacyAccountant(charges=[charge], set_aside=SET_ASIDE.get(kinds, HALF))

    def epsilon(delta: float) -> float:
        return account.smallest_epsilon(delta, adaptive=kinds in SET_ASIDE)

    larger = ""
    if math.isfinite(epsilon(budget.delta)):
        larger = f"{rounded_up(epsilon(budget.delta), 2)},{budget.delta_text}"
    elif epsilon(_LARGEST_DELTA) <= budget.epsilon:
        least = max(budget.delta, _SMALLEST_DELTA)
        delta = last_allowed(
            lambda delta: epsilon(delta) <= budget.epsilon, _LARGEST_DELTA, least, tolerance=_TOLERANCE, geometric=True
        )
        larger = f"{budget.epsilon_text},{rounded_up(delta, 2)}"
    elif math.isfinite(epsilon(_LARGEST_DELTA)):
        larger = f"{rounded_up(epsilon(_LARGEST_DELTA), 2)},{_LARGEST_DELTA:g}"
    return f"; {larger} would admit it, if that is private enough" if larger else ""


def _report(options: Namespace, ledger: PrivacyLedger, labels: int) -> int:
    told = numbered(labels, "label", "labels")
    try:
        print_report(
            options,
            text=lambda: (
                f"{told} written to {options.output}\n{ledger.spent}\nbudget: {ledger.budget}\n"
                f"receipt: {receipt_path(options.output)}\nhead: {ledger.head()}\n"
            ),
            document=lambda: {
                "labels": labels,
                "output": str(options.output),
                "spent": ledger.spent.to_json(),
                "budget": ledger.budget.to_json(),
                "receipt": str(receipt_path(options.output)),
                "head": ledger.head().to_json(),
            },
        )
        sys.stdout.flush()
    except BrokenPipeError:
        raise  # the reader has read enough
    except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001 (nothing may look like labels that were not paid)
        with suppress(OSError, ValueError):  # what could not be printed must not fail again when the interpreter ends
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        written = f"{numbered(labels, 'label is', 'labels are')} paid for and written to {options.output}"
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
    """Return the note for the ledger's log: by default the files names may be any bytes."""
    names = f"{options.votes.name} to {options.output.name}"
    return options.note or (names if names.isprintable() else ascii(names)[1:-1])


if __name__ == "__main__":
    sys.exit(run(main))
