"""Options that commands share; a decorator such as `voters_options` adds several and passes one object."""

import csv
import functools
import io
import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, TypeVar

import click
from click.shell_completion import CompletionItem

from darrm.commands.command import Argument, Option
from darrm.commands.command_line import check_output_files, complain, harmless
from darrm.commands.values import (
    integer,
    integers,
    number_of_classes,
    privacy_pair,
    read_classes,
    read_pair,
    read_voters,
    real,
)
from darrm.privacy import PrivacyParams, exact_number
from darrm.problem import Voters, Workload
from darrm.subsampling import Subsampling
from darrm.util import checks
from darrm.util.progress import StatusLine, status_line

Decorator = Callable[[Any], Any]
T = TypeVar("T")
DEFAULT_K, DEFAULT_EPSILON, DEFAULT_EACH_DELTA = 11, "0.1", "1e-5"  # the paper's example
WHO, RELEASED, SEARCH, OUTPUT = "Who votes", "What is released", "Search", "Output"  # sections of the help


class Value(click.ParamType):  # type: ignore[type-arg]  # generic since click 8.4 only
    """A value that a function reads from the name of an option and its text; its `ValueError` names both."""

    def __init__(self, name: str, parse: Callable[[str, str], Any], *, is_file: bool = False) -> None:
        self.name = name
        self.is_file = is_file  # a shell completes names of files
        self._parse = parse

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:  # noqa: ARG002 (click passes it)
        if not isinstance(value, str):
            return value
        flag = "the argument" if param is None else param.human_readable_name
        if isinstance(param, click.Option):
            flag = next((name for name in param.opts if name.startswith("--")), param.opts[0])
        return self._parse(flag, value)

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        files = [CompletionItem(incomplete, type="file")]
        return files if self.is_file else super().shell_complete(ctx, param, incomplete)


def _parse_exact(flag: str, text: str) -> str:
    exact_number(flag.lstrip("-"), text.strip())
    return text.strip()


def _parse_exacts(flag: str, text: str) -> list[str]:
    return [_parse_exact(flag, part) for part in text.split(",")]


def Integer(minimum: int = 0) -> Value:
    return Value("int", functools.partial(integer, minimum=minimum))


def Real(minimum: float = 0.0) -> Value:
    """Read a number of at least ``minimum`` (∞ too), other than privacy parameters."""
    return Value("real", functools.partial(real, minimum=minimum))


EXACT = Value("real", _parse_exact)  # text of a number: `exact_number` and `PrivacyParams` read it without rounding
EXACTS = Value("real[,real...]", _parse_exacts)
PRIVACY = Value("eps,delta", privacy_pair)  # a `PrivacyParams`
COUNTS = Value("q[,q...]", integers)  # numbers of queries, in order
CLASSES = Value("classes", lambda _flag, text: read_classes(text))  # an int, a tuple of names, or OPEN
CLASS_COUNT = Value("classes", lambda _flag, text: number_of_classes(text))  # an int, or OPEN
FILE = click.Path(path_type=Path)
FILE.name = "file"


def text_value(parse: Callable[[str], Any], name: str = "text") -> Value:
    """Read a file, or a URL, with a function of its text."""
    return Value(name, lambda _flag, text: parse(text), is_file=True)


def option(*declarations: str, section: str | None = None, aliases: Sequence[str] = (), **settings: Any) -> Decorator:
    keywords = {} if section is None else {"section": section}
    return click.option(*declarations, cls=Option, aliases=aliases, **keywords, **settings)


def argument(*declarations: str, about: str, **settings: Any) -> Decorator:
    return click.argument(*declarations, cls=Argument, about=about, **settings)


def collect(target: type[T], values: dict[str, Any]) -> T:
    """Make a dataclass of the options with the names of its fields, and take them out of ``values``."""
    return target(**{field.name: values.pop(field.name) for field in fields(target) if field.name in values})  # type: ignore[arg-type]


def add_options(function: Any, options: Sequence[Decorator]) -> Any:
    """Add options in the order in which the help lists them."""
    for add in reversed(options):
        function = add(function)
    return function


def as_one(options: Sequence[Decorator], convert: Callable[[dict[str, Any]], dict[str, Any]]) -> Decorator:
    """Add options; before the command runs, ``convert`` takes all values of options and returns new ones."""

    def decorate(function: Any) -> Any:
        @functools.wraps(function)
        def run_converted(**values: Any) -> Any:
            return function(**convert(values))

        return add_options(run_converted, options)

    return decorate


# single options --------------------------------------------------------------


def total_option(*, required: bool = True) -> Decorator:
    about = "the budget of all answers together, like 2,1e-5"
    return option("--total", aliases=["--budget"], type=PRIVACY, required=required, section=RELEASED, help=about)


def classes_option(kind: Value, about: str, default: str | None = None, section: str = RELEASED) -> Decorator:
    return option("--classes", type=kind, default=default, metavar="C|A,B,…|FILE.csv|open", section=section, help=about)


def time_limit_option(about: str) -> Decorator:
    return option("--time-limit", type=Real(), default="inf", metavar="SECONDS", section=SEARCH, help=about)


def prior_option(default: str) -> Decorator:
    about = (
        "public belief about the votes: dirichlet:A (smaller A: more consensus), spread (mean of low, medium and high "
        "consensus), like:FILE or votes:FILE (public votes); for two classes also common, uniform:LOW,HIGH (uniform "
        f"alone: 0,1), two-sided:LOW,HIGH or point:P (default {default})"
    )
    return option("--prior", metavar="PRIOR", section=WHO, help=about)


# who votes -------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class VoterOptions:
    K: int | None = None
    non_private: bool = False
    epsilon: list[str] | None = None
    each_delta: list[str] | None = None
    voters_file: Path | None = None
    overlap: int | None = None
    models: bool = False
    sampled: str | None = None
    records_each: int | None = None
    example: bool = False

    @property
    def remark(self) -> str:
        """Name the parameters of an example that are defaults."""
        if self.non_private or self.sampled is not None or self.voters_file is not None:
            return ""
        missing = [name for name, value in (("ε", self.epsilon), ("Δ", self.each_delta)) if value is None]
        return "" if not missing else " (default)" if len(missing) > 1 else f" ({missing[0]}: default)"

    @property
    def remark_on_K(self) -> str:
        is_listed = self.voters_file is not None or len(self.epsilon or []) > 1 or len(self.each_delta or []) > 1
        return "" if self.K is not None or is_listed else f" (K = {DEFAULT_K}: default)"

    def voters(self) -> Voters:
        self._check_kinds()
        K = DEFAULT_K if self.K is None else self.K
        if self.sampled is not None:
            return self._read_resampled_voters(K, self.sampled)
        if self.records_each is not None:
            raise ValueError("--records-each needs --sampled RATE: it counts the records of resampled examples")
        if self.non_private:
            return Voters(K, PrivacyParams("inf"), self.overlap, self.models)
        file = self.voters_file
        per_voter = self._read_private_voters() if file is None else list(read_voters(file).values())
        if len(per_voter) == 1 and file is None:
            return Voters(K, per_voter[0], self.overlap, self.models)
        if self.K not in {None, len(per_voter)}:
            checks.fail("--K", self.K, f"{len(per_voter)}, the number of voters listed", "leave it out")
        return Voters.of(per_voter, self.overlap, models=self.models)

    def _check_kinds(self) -> None:
        is_set_by_flag = {
            "--non-private": self.non_private,
            "--voters": self.voters_file is not None,
            "--sampled": self.sampled is not None,
            "--epsilon": self.epsilon is not None,
        }
        flags = [name for name, is_set in is_set_by_flag.items() if is_set]
        if len(flags) > 1:
            raise ValueError(f"{flags[0]} and {flags[1]} contradict each other: give one of them")
        if self.each_delta is not None and flags not in ([], ["--epsilon"]):
            raise ValueError(f"--each-delta is the Δ of private voters: leave it out with {flags[0]}")
        if not flags and not self.example:
            raise ValueError(
                "The privacy of the voters is missing. Write --epsilon and --each-delta of each, or --non-private."
            )
        if self.sampled is not None and self.models:
            raise ValueError("--sampled and --models contradict each other: give one of them")

    def _read_resampled_voters(self, K: int, text: str) -> Voters:
        records = 1 if self.records_each is None else self.records_each
        overlap = min(records, K)
        if self.overlap not in {None, overlap}:
            advice = "one person influences --records-each voters"
            checks.fail("--overlap", self.overlap, f"{overlap} with --sampled", advice)
        scheme, colon, rate = text.rpartition(":")
        if colon and scheme != "fixed":
            checks.fail("--sampled", text, "a probability like 0.004, or fixed:0.004")
        try:
            sampling = Subsampling(exact_number("the sampling rate", rate.strip()), scheme or "poisson", records)
        except ValueError as error:
            raise ValueError(f"--sampled and --records-each: {error}") from error
        return Voters(K, PrivacyParams("inf"), overlap, sampled=sampling)

    def _read_private_voters(self) -> list[PrivacyParams]:
        """Return what each voter satisfies: one pair, or one for each voter."""
        if self.each_delta is None and not self.example:
            raise ValueError("--each-delta is missing. Write the Δ of each voter, 0 for pure differential privacy.")
        epsilons, deltas = self.epsilon or [DEFAULT_EPSILON], self.each_delta or [DEFAULT_EACH_DELTA]
        count = max(len(epsilons), len(deltas))
        if not {len(epsilons), len(deltas)} <= {1, count}:
            checks.fail("--each-delta", ",".join(deltas), f"one Δ, or {len(epsilons)}, as many as --epsilon has")
        if count > 1 and self.K not in {None, count}:
            flag, texts = ("--epsilon", epsilons) if len(epsilons) > 1 else ("--each-delta", deltas)
            advice = "write decimals with a point"
            checks.fail(flag, ",".join(texts), f"one number, or K = {self.K} where voters differ", advice)
        non_private = PrivacyParams("inf")  # whatever its Δ is
        pairs = zip(epsilons * (count // len(epsilons)), deltas * (count // len(deltas)), strict=True)
        per_voter = [
            non_private if epsilon == "inf" else read_pair("--epsilon and --each-delta", epsilon, delta)
            for epsilon, delta in pairs
        ]
        if per_voter == [non_private] * count:
            raise ValueError("--epsilon must be finite for private voters: write --non-private instead")
        return per_voter


def voters_options(*, example: bool = False) -> Decorator:
    """Add ``who: VoterOptions``; without ``example``, one option that says who votes is required."""
    epsilon, delta = (f" (default {text})" if example else "" for text in (DEFAULT_EPSILON, DEFAULT_EACH_DELTA))
    file, texts = Value("file", _check_voters_file, is_file=True), Value("real[,real…]", _split_texts)
    add = functools.partial(option, section=WHO)
    names = ["--teachers", "--n-voters"]
    count_help = f"number of voters (default {DEFAULT_K}, or as many as are listed)"
    file_help = "one line name,epsilon,delta for each voter (epsilon inf: not private)"
    overlap = "largest number of voters that one person's data can influence (default K)"
    sampled = (
        "voters resample their examples for every query: the probability that a record is in a sample (fixed: samples "
        "of fixed size)"
    )
    options = [
        add("--K", "K", aliases=names, type=Integer(1), help=count_help),
        add("--epsilon", type=texts, metavar="REAL[,REAL…]", help=f"ε of each private voter{epsilon}"),
        add("--each-delta", type=texts, metavar="REAL[,REAL…]", help=f"Δ of each private voter{delta}"),
        add("--non-private", is_flag=True, help="voters are not private, such as ordinary teachers"),
        add("--voters", "voters_file", type=file, metavar="FILE.csv", help=file_help),
        add("--overlap", type=Integer(1), help=overlap),
        add("--sampled", metavar="[fixed:]RATE", help=sampled),
        add("--records-each", type=Integer(1), help="with --sampled: records of one person"),
        add("--models", is_flag=True, help="each voter is a model, trained once, that answers all queries"),
    ]
    return as_one(options, lambda values: {"who": replace(collect(VoterOptions, values), example=example), **values})


def _split_texts(_flag: str, text: str) -> list[str]:
    return [part.strip() for part in text.split(",")]


def _check_voters_file(flag: str, text: str) -> Path:
    if not text.lower().endswith(".csv"):
        advice = "voters that are not private are --non-private" if text == "plain" else ""
        checks.fail(flag, text, "a file that ends in .csv", advice)
    return Path(text)


def workload_options() -> Decorator:
    """Add ``workload: Workload`` and ``remark: str``, a note on the voters for the report."""
    missing_votes = "how many votes are usually missing; random votes replace them (default 0)"
    options = [
        voters_options(),
        option("--queries", type=Integer(1), default="1", section=RELEASED, help="number of votes (default 1)"),
        classes_option(CLASS_COUNT, "the classes, or their number (default 2)", "2"),
        total_option(),
        option("--missing", type=Integer(0), default="0", section=RELEASED, help=missing_votes),
    ]

    def convert(values: dict[str, Any]) -> dict[str, Any]:
        voter_options, missing = values.pop("who"), values.pop("missing")
        voters = voter_options.voters()
        if missing >= voters.K:
            checks.fail("--missing", missing, f"below K = {voters.K}", "without a vote there is no majority")
        workload = Workload(voters, values.pop("queries"), values.pop("total"), values.pop("classes"), missing)
        return {"workload": workload, "remark": voter_options.remark_on_K, **values}

    return as_one(options, convert)


# output ----------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Output:
    path: Path | None = None
    plot: Path | None = None
    report: Path | None = None
    force: bool = False
    format: str = "text"
    everything: bool = False
    quiet: bool = False

    def print(
        self,
        *,
        text: Callable[[], str],
        document: Callable[[], object],
        rows: Callable[[], Iterable[Mapping[str, object]]] | None = None,
    ) -> None:
        if self.format == "json":
            is_ascii = "utf" not in (sys.stdout.encoding or "utf-8").lower()  # names stay the same data
            sys.stdout.write(harmless(json.dumps(document(), indent=1, ensure_ascii=is_ascii)) + "\n")
        elif self.format == "csv" and rows is not None:
            sys.stdout.write(harmless(to_csv(rows())))
        elif not self.quiet:
            sys.stdout.write(harmless(text()))

    def status_line(self) -> AbstractContextManager[StatusLine]:
        return status_line(quiet=self.quiet)

    def note(self, text: str) -> None:
        if not self.quiet:
            complain(text, 0, "note")


_TABLE_SUFFIXES = {".csv", ".tsv", ".txt", ".npy", ".npz", ".parquet", ".xlsx"}  # files of votes and labels


def to_csv(rows: Iterable[Mapping[str, object]]) -> str:
    table, text = list(rows), io.StringIO()
    names = list(dict.fromkeys(name for row in table for name in row))
    writer = csv.DictWriter(text, names, lineterminator="\n")
    writer.writeheader()
    writer.writerows(table)
    return text.getvalue()


def output_options(
    *,
    output: str | None = None,
    plot: str | None = None,
    report: str | None = None,
    everything: str | None = None,
    formats: Sequence[str] = ("text", "json"),
) -> Decorator:
    """Add ``output: Output``; each text is the help of its option, None leaves the option out.

    No file that the command reads is overwritten, and others only with ``--force``.
    """
    help_texts = {"output": output, "plot": plot, "report": report, "everything": everything}
    names = {"format", "quiet", *(name for name, about in help_texts.items() if about is not None)}
    add = functools.partial(option, section=OUTPUT)
    files = {
        "output": add("--output", "-o", type=FILE, help=output),
        "plot": add("--plot", type=FILE, metavar="FILE.png", help=f"{plot} (needs matplotlib)"),
        "report": add("--report", type=FILE, metavar="FILE.html", help=report),
    }
    options = [option for name, option in files.items() if name in names]
    if options:
        names.add("force")
        options.append(add("--force", is_flag=True, help="overwrite existing files"))
    if everything is not None:
        options.append(add("--all", "everything", aliases=["--verbose"], is_flag=True, help=everything))
    format_help = "format of the printed report (default text)"
    options += [
        add("--format", type=click.Choice(formats), default="text", help=format_help),
        add("--json", "as_json", is_flag=True, help="the same as --format json"),
        add("--quiet", "-q", is_flag=True, help="print no text, and show no progress"),
    ]
    return as_one(options, functools.partial(_read_output, names))


def _read_output(names: set[str], values: dict[str, Any]) -> dict[str, Any]:
    files = {name: path for name, path in click.get_current_context().params.items() if isinstance(path, Path)}
    as_json, fields = values.pop("as_json"), {name: values.pop(name) for name in names}
    output = Output(path=fields.pop("output", None), **fields)
    check_output_files(files, output.force)
    if output.path is not None and output.path.suffix.lower() in _TABLE_SUFFIXES:
        checks.fail("--output", str(output.path), "a new file for JSON, like table.json")
    return {"output": replace(output, format="json") if as_json else output, **values}
