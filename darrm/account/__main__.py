"""Command line: what a ledger has spent, or what queries with a table will cost, by every bound.

python -m darrm.account --ledger ledger.sqlite
python -m darrm.account --table table.json --queries 20,50,100 --delta 1e-2
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from darrm import checks
from darrm.account.accountant import PrivacyAccountant, Spent
from darrm.account.ledger import PrivacyLedger
from darrm.privacy import exact_number
from darrm.problem import Voters
from darrm.proof.charge import charge_of
from darrm.proof.table import GammaTable
from darrm.system.command_line import CommandLine, run
from darrm.system.figures import saved_figure
from darrm.system.files import check_parent
from darrm.system.flags import integer

DESCRIPTION = """\
Say what a ledger has spent; or put every bound on the total privacy loss of queries with a table side by side."""

EPILOG = """\
examples:
  python -m darrm.account --ledger ledger.sqlite
  python -m darrm.account --table table.json --queries 20,50,100 --delta 1e-2 --plot loss.png

bounds:
  simple          the epsilons and deltas add up
  general         closed form (Kairouz, Oh, Viswanath 2015, Theorem 3.4)
  optimal         the best that the (epsilon, delta) of a query allow (Theorem 3.3 there)
  profile         optimal composition of the best point of the table's exact privacy profile
  renyi           Rényi curve of a table that is monotone in the votes
  pld             privacy loss distribution of that profile (needs dp-accounting)
  private models  only with --models: answers are post-processing of K models that are already private"""

BOUNDS = ("simple", "general", "optimal", "profile", "renyi", "pld", "private models")
LAST_ENTRIES = 10
PLOT_POINTS = 24


def build_parser() -> CommandLine:
    """Describe the command line."""
    parser = CommandLine(prog="python -m darrm.account", description=DESCRIPTION, epilog=EPILOG)
    parser.add_argument("--ledger", type=Path, metavar="L.sqlite", help="report what this ledger has spent")
    parser.add_argument("--table", type=Path, metavar="T.json", help="bound the cost of queries with this table")
    parser.add_argument("--queries", metavar="Q,Q,…", help="how many queries, like 20,50,100")
    parser.add_argument("--delta", metavar="REAL", help="total δ of the queries")
    parser.add_argument(
        "--models", action="store_true", help="the voters are models, trained once, that answer all queries"
    )
    parser.add_argument(
        "--overlap", metavar="INT", help="how many models one person's data reach (default: the table's)"
    )
    parser.add_argument("--plot", type=Path, metavar="FILE.png", help="draw ε over queries (needs matplotlib)")
    parser.add_argument("--format", default="text", choices=("text", "json"), help="of the report (default text)")
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Report on a ledger or on a table."""
    options = build_parser().parse_args(arguments)
    if (options.ledger is None) == (options.table is None):
        raise ValueError("give either --ledger, to see what was spent, or --table with --queries and --delta")
    if options.ledger is not None:
        given = [options.queries, options.delta, options.plot, options.models or None, options.overlap]
        if any(value is not None for value in given):
            raise ValueError("--ledger goes with --format only: its budget says the rest")
        return report_ledger(options)
    return report_table(options)


def report_ledger(options: argparse.Namespace) -> int:
    """Print the budget, what was spent and the last lines of the log."""
    ledger = PrivacyLedger(options.ledger)
    spent, entries = ledger.spent(), ledger.entries()
    if options.format == "json":
        document = {
            "budget": {"epsilon": ledger.budget.epsilon, "delta": ledger.budget.delta},
            "kinds": ledger.kinds,
            "spent": spent_json(spent),
            "entries": [vars(entry) for entry in entries],
        }
        sys.stdout.write(json.dumps(document, indent=1, ensure_ascii=False) + "\n")
        return 0
    lines = [f"budget: {ledger.budget}", f"spent:  {spent}"]
    lines += [f"left:   {fit_text(ledger)}"] if entries else []
    if len(entries) > LAST_ENTRIES:
        lines.append(f"the last {LAST_ENTRIES} of {len(entries)} entries:")
    lines += [
        f"  {entry.time}  {entry.count:>8}  {entry.what}" + (f"  {entry.note}" if entry.note else "")
        for entry in entries[-LAST_ENTRIES:]
    ]
    sys.stdout.write("\n".join(lines) + "\n")
    return 0


def fit_text(ledger: PrivacyLedger) -> str:
    """Say how many more queries of the last kind fit."""
    charge = ledger.accountant().charges[-1].kind
    most = 1_000_000
    fit = ledger.queries_that_fit(charge, most=most)
    return f"{'at least ' if fit == most else ''}{fit} more queries of {charge.what}"


def report_table(options: argparse.Namespace) -> int:
    """Print every bound for every number of queries."""
    if options.queries is None or options.delta is None:
        raise ValueError("--table needs --queries and --delta, like --queries 20,50,100 --delta 1e-2")
    counts = parse_counts(options.queries)
    delta = float(exact_number("--delta", options.delta))
    if not 0.0 < delta < 1.0:
        checks.fail("--delta", options.delta, "in (0, 1)")
    if options.plot is not None:
        check_parent(options.plot)
    table = GammaTable.load(options.table)
    voters = replace(table.problem.voters, models=options.models)
    if options.overlap is not None:
        voters = replace(voters, overlap=integer("--overlap", options.overlap, 1))
    results = {count: spent_by(table, count, delta, voters) for count in counts}
    if options.plot is not None:
        plot_bounds(options.plot, table, max(counts), delta, voters)
    if options.format == "json":
        document: dict[str, Any] = {str(count): spent_json(spent) for count, spent in results.items()}
        sys.stdout.write(json.dumps({"delta": delta, "queries": document}, indent=1, ensure_ascii=False) + "\n")
        return 0
    sys.stdout.write(text_table(table, results, delta))
    return 0


def spent_by(table: GammaTable, count: int, delta: float, voters: Voters) -> Spent:
    """Evaluate every bound for ``count`` queries."""
    return PrivacyAccountant(voters, [charge_of(table, count)]).spent(delta)


def text_table(table: GammaTable, results: dict[int, Spent], delta: float) -> str:
    """Write the bounds as a table, one row for each number of queries; ``*`` marks the smallest."""
    found = {count: {bound.name: bound.epsilon for bound in spent.bounds} for count, spent in results.items()}
    columns = [name for name in BOUNDS if any(name in row for row in found.values())]
    lines = [
        f"each query: {table.problem.target} by DaRRM over {table.problem.voters.K} voters",
        f"total epsilon at delta = {delta:g}:",
        "queries" + "".join(name.rjust(16) for name in columns),
    ]
    for count, row in found.items():
        best = results[count].bound
        cells = [f"{row[name]:.4f}{'*' if name == best else ' '}" if name in row else "- " for name in columns]
        lines.append(f"{count:7d}" + "".join(cell.rjust(16) for cell in cells))
    last = results[max(results)]
    lines.append(f"* smallest; for {last.queries} queries by {last.bound}: {last.explanation}")
    return "\n".join(lines) + "\n"


def plot_bounds(path: Path, table: GammaTable, most: int, delta: float, voters: Voters) -> None:
    """Draw ε over queries, one line a bound."""
    counts = np.unique(np.round(np.linspace(1, most, min(most, PLOT_POINTS))).astype(int)).tolist()
    rows = [{b.name: b.epsilon for b in spent_by(table, count, delta, voters).bounds} for count in counts]
    with saved_figure(path) as figure:
        axes = figure.add_subplot()
        for name, style in zip(BOUNDS, ("--", "-.", "-", ":", "--", "-", "-"), strict=True):
            values = [row.get(name, math.nan) for row in rows]
            if not all(math.isnan(value) for value in values):
                axes.plot(counts, values, style, label=name, marker="o", markersize=3)
        axes.set_xlabel("queries")
        axes.set_ylabel(f"total ε at δ = {delta:g}")
        axes.set_title(f"DaRRM over {table.problem.voters.K} voters, {table.problem.target} a query")
        axes.set_ylim(bottom=0.0)
        axes.grid(visible=True, alpha=0.3)
        axes.legend()


def parse_counts(text: str) -> list[int]:
    """Read numbers of queries like ``20,50,100``."""
    try:
        counts = sorted({int(part) for part in text.split(",")})
    except ValueError:
        checks.fail("--queries", text, "whole numbers, like 20,50,100")
    if counts[0] < 1:
        checks.fail("--queries", text, "whole numbers of at least 1")
    return counts


def spent_json(spent: Spent) -> dict[str, Any]:
    """Write what was spent as plain data."""
    return {
        "epsilon": spent.epsilon if math.isfinite(spent.epsilon) else None,
        "delta": spent.delta,
        "bound": spent.bound,
        "explanation": spent.explanation,
        "queries": spent.queries,
        "bounds": {bound.name: bound.epsilon for bound in spent.bounds},
    }


if __name__ == "__main__":
    sys.exit(run(main))
