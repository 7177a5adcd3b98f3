"""The command ``darrm account``: the privacy loss of a ledger, or of future queries with a table, by every bound."""

import math
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np

from darrm.account.accountant import PrivacyAccountant, Spent
from darrm.account.bounds import MODELS_BOUNDS
from darrm.aggregator import Released, load_release
from darrm.commands.command import command, run_command
from darrm.commands.options import (
    COUNTS,
    EXACT,
    FILE,
    Integer,
    Output,
    argument,
    as_one,
    collect,
    option,
    output_options,
    text_value,
)
from darrm.ledger.ledger import PrivacyLedger
from darrm.ledger.report import ledger_json, ledger_text, plot_ledger
from darrm.ledger.sqlite import check_kept, ledger_name
from darrm.loss.privacy_cost import PrivacyCost
from darrm.privacy import at_most
from darrm.problem import Voters
from darrm.table.release import Release, describe_cost
from darrm.util import checks
from darrm.util.figures import name_lines, save_figure, say_instead, style

EXAMPLES = """\
examples:
  darrm account ledger.sqlite --log
  darrm account ledger.sqlite --plot meaning.png
  darrm account ledger.sqlite --digest >> digests.txt
  darrm account --table table.json --queries 20,50,100 --delta 1e-2

bounds:
  simple          the epsilons and deltas add up
  general         closed form (Kairouz, Oh, Viswanath 2015, Theorem 3.4)
  optimal         the best that (epsilon, delta) of a query allow (Theorem 3.3)
  profile         optimal composition of the best point of the privacy profile
  renyi           Rényi curve of a table that is monotone in the votes
  pld             privacy loss distribution of the profile
only with --models, or a table for models, whose costs do not add up:
  private models      answers are post-processing of the models that a person's
                      data influence
  subsampling         labels that look at few models cost no more than these
  non-private voters  the release alone, as if the voters were not private
  joint bound         models and release together
"""
LEDGER, TABLE = "A ledger", "A table"  # sections of the help
BOUNDS = ("simple", "general", "optimal", "profile", "renyi", "pld", *MODELS_BOUNDS)


@dataclass(frozen=True, kw_only=True)
class TableQueries:
    """Future queries with a table."""

    table: Path | None
    queries: list[int] | None
    delta: str | None
    models: bool
    overlap: int | None


_table_option = partial(option, section=TABLE)
_TABLE_OPTIONS = [
    _table_option("--table", type=FILE, metavar="T.json", help="bound the cost of queries with a table or a plan"),
    _table_option("--queries", type=COUNTS, metavar="Q,Q,…", help="numbers of queries, like 20,50,100"),
    _table_option("--delta", type=EXACT, metavar="REAL", help="total δ of the queries"),
    _table_option("--models", is_flag=True, help="each voter is a model, trained once, that answers all queries"),
    _table_option(
        "--overlap",
        type=Integer(1),
        metavar="INT",
        help="largest number of models that one person's data can influence (default: that of the table)",
    ),
]
table_options = as_one(_TABLE_OPTIONS, lambda values: {"future": collect(TableQueries, values), **values})


@command(
    "account",
    about="Report the privacy loss of a ledger, or compare every bound on the total loss of queries with a table.",
    short="the privacy loss of a ledger, or of queries with a table",
    first=("--ledger", "--table", "--queries"),
    examples=EXAMPLES,
)
@argument(
    "path",
    type=text_value(ledger_name, "ledger"),
    metavar="[LEDGER]",
    required=False,
    about="a ledger: a file or a URL",
)
@option(
    "--ledger", type=text_value(ledger_name, "ledger"), metavar="L.sqlite", section=LEDGER, help="the same as LEDGER"
)
@option(
    "--log",
    aliases=["--all", "--verbose"],
    is_flag=True,
    section=LEDGER,
    help="list all entries and what waits, and print the digest",
)
@option("--digest", is_flag=True, section=LEDGER, help="print only the digest: the line that an audit compares later")
@table_options
@output_options(plot="draw ε over queries; of a ledger what its total allows others to guess and to believe")
def account(
    *, path: Path | str | None, ledger: Path | str | None, log: bool, digest: bool, future: TableQueries, output: Output
) -> None:
    """Report on a ledger or a table."""
    if path is not None and ledger is not None:
        raise ValueError(f"The ledger is named twice, as {str(path)!r} and by --ledger: name it once.")
    ledger = ledger if path is None else path
    if (ledger is None) is (future.table is None):
        raise ValueError("give either --ledger, for the privacy loss so far, or --table with --queries and --delta")
    if ledger is None:
        if log or digest:
            raise ValueError("--log and --digest are about a ledger: leave them out with --table")
        _report_table(future, output)
        return
    for name, value in vars(future).items():
        if value:
            raise ValueError(f"--{name} is about a table: leave it out with --ledger: its budget has a δ")
    _report_ledger(ledger, log=log, digest=digest, output=output)


def _report_ledger(name: Path | str, *, log: bool, digest: bool, output: Output) -> None:
    check_kept(name)
    ledger = PrivacyLedger(name)
    if digest:
        line = ledger.digest()
        output.print(text=partial("{}\n".format, line), document=line.to_json)
        return
    with output.status_line() as status_line:
        status_line.show("adding up the ledger's entries")
        if output.plot is not None:
            plot_ledger(output.plot, ledger)
        is_json = output.format == "json"
        document = ledger_json(ledger) if is_json else {}
        text = "" if is_json else ledger_text(ledger, everything=log)
    output.print(text=partial(str, text), document=document.copy)


def _report_table(future: TableQueries, output: Output) -> None:
    if future.table is None or future.queries is None or future.delta is None:
        raise ValueError("--table needs --queries and --delta, like --queries 20,50,100 --delta 1e-2")
    queries, delta = future.queries, float(future.delta)
    if not 0.0 < delta < 1.0:
        checks.fail("--delta", future.delta, "in (0, 1)")
    with output.status_line() as line:
        line.show("proving the table again")
        cost, voters = _load_charge(load_release(future.table), models=future.models, overlap=future.overlap)
        results = {}
        for count in queries:
            line.show(f"bounds for {count:,} queries")
            results[count] = _bound_total(cost, count, delta, voters)
        if output.plot is not None:
            plot_bounds(output.plot, cost, max(queries), delta, voters, line.show)
    rows = {str(queries): spent.to_json() for queries, spent in results.items()}
    output.print(text=partial(table_text, cost, results, delta), document={"delta": delta, "queries": rows}.copy)


def _load_charge(aggregator: Released, *, models: bool, overlap: int | None) -> tuple[PrivacyCost, Voters]:
    voters = replace(aggregator.voters, models=models or aggregator.voters.models)
    if overlap is not None:
        if not voters.models:
            raise ValueError("--overlap is about models: give --models, too, if the voters are trained models")
        voters = replace(voters, overlap=overlap)
    # the cost of a table depends on the declared voters; the cost of a mechanism does not
    cost = (
        describe_cost(aggregator.table, voters=voters) if isinstance(aggregator, Release) else aggregator.privacy_cost()
    )
    return cost, voters


def _bound_total(cost: PrivacyCost, queries: int, delta: float, voters: Voters) -> Spent:
    return PrivacyAccountant(voters, [cost.repeat(queries)]).spent(delta)


def table_text(cost: PrivacyCost, results: Mapping[int, Spent], delta: float) -> str:
    """Write one row for each number of queries that has a bound; ``*`` marks the smallest."""
    rows_by_count = {queries: _map_bounds(spent) for queries, spent in results.items() if spent.bounds}
    columns = [name for name in BOUNDS if any(name in row for row in rows_by_count.values())]
    lines = [
        f"each query: {'' if cost.guarantee is None else f'{cost.guarantee} by '}{cost.what}",
        f"total epsilon at delta = {at_most(delta, 6)}{_describe_neighbors(cost)}:",
    ]
    width = max([14, *map(len, columns)]) + 2
    if columns:
        lines.append("queries" + "".join(name.rjust(width) for name in columns))
    for queries, row in rows_by_count.items():
        best = results[queries].bound
        cells = [f"{at_most(row[name])}{'*' if name == best else ' '}" if name in row else "- " for name in columns]
        lines.append(f"{queries:7d}" + "".join(cell.rjust(width) for cell in cells))
    if rows_by_count:
        largest = results[max(rows_by_count)]
        lines.append(f"* smallest; for {largest.queries} queries by {largest.bound}: {largest.explanation}")
    lines += [
        f"for {queries} queries nothing bounds epsilon: {spent.explanation}"
        for queries, spent in results.items()
        if not spent.bounds
    ]
    return "\n".join(lines) + "\n"


def _describe_neighbors(cost: PrivacyCost) -> str:
    return "" if cost.sampling is None else f", for neighbors that {cost.sampling.neighbors}"


def plot_bounds(
    path: Path, cost: PrivacyCost, max_queries: int, delta: float, voters: Voters, report: Callable[[str], None]
) -> None:
    """Draw ε over queries, one line a bound."""
    counts = np.unique(np.round(np.linspace(1, max_queries, min(max_queries, 24))).astype(int)).tolist()
    rows = []
    for queries in counts:
        report(f"bounds of the picture, {queries:,} of {max_queries:,} queries")
        rows.append(_map_bounds(_bound_total(cost, queries, delta, voters)))
    with save_figure(path) as figure:
        axes = figure.add_subplot()
        for index, name in enumerate(BOUNDS):
            if any(name in row for row in rows):
                values = [row.get(name, math.nan) for row in rows]
                axes.plot(counts, values, label=name, **style(index).line(len(counts)))
        axes.set_xlabel("queries")
        axes.set_ylabel(f"total ε at δ = {at_most(delta, 6)}")
        guarantee = "" if cost.guarantee is None else f", {cost.guarantee} a query"
        axes.set_title(
            f"{cost.what}{guarantee}{_describe_neighbors(cost)}", fontsize="medium" if cost.sampling else None
        )
        axes.set_ylim(bottom=0.0)
        axes.grid(visible=True, alpha=0.3)
        if axes.lines:
            name_lines(axes)
        else:
            say_instead(axes, f"nothing bounds ε at δ = {at_most(delta, 6)}")


def _map_bounds(spent: Spent) -> dict[str, float]:
    return {bound.name: bound.epsilon for bound in spent.bounds}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit status."""
    return run_command(account, arguments)


if __name__ == "__main__":
    sys.exit(main())
