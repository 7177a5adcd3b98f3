"""Total privacy loss over Q queries [D, Tables 2, 5, 7 and 9], next to what tighter accounting says.

``python -m experiments.composition_tables`` prints, for each row, the pair by general composition with δ′ = 1e-4 as
the tables have it, and at the same total δ the optimal composition and the privacy loss distribution (PLD). The last
columns are about the released table itself: its exact privacy profile composed (PLD), and the cap that holds where the
voters are private models on disjoint data.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from darrm.account.accountant import PrivacyAccountant
from darrm.account.bounds import models_bound
from darrm.losses.charges import Charge
from darrm.losses.composition import compose_general
from darrm.optimize.optimizer import optimize_gamma
from darrm.privacy import PrivacyParams
from darrm.problem import MajorityProblem, Voters
from darrm.proof.charge import charge_of
from darrm.system.command_line import CommandLine, run
from darrm.system.files import write_text

VOTERS = 11
QUERIES = (20, 50, 100)
DELTA_PRIME = 1e-4
EACH = {"MNIST": PrivacyParams("0.0892", "0.0001"), "Fashion-MNIST": PrivacyParams("0.0852", "0.0001")}
TABLE_OF_ALLOWANCE = {1: 5, 3: 2, 5: 7, 7: 9}  # the number of the table for each m


@dataclass(frozen=True)
class Row:
    """One row of a table: a query's pair, and the total ε at the total δ by each way of accounting."""

    table: int
    data_set: str
    m: int
    queries: int
    query_epsilon: float
    query_delta: float
    total_delta: float
    general: float
    optimal: float
    pld: float
    profile_pld: float
    private_models: float


def rows() -> Iterator[Row]:
    """Compute all rows in the order of m, data set and Q."""
    for m, table in TABLE_OF_ALLOWANCE.items():
        for data_set, each in EACH.items():
            query = PrivacyParams(m * each.exact_epsilon, m * each.exact_delta)
            problem = MajorityProblem.from_allowance(Voters(VOTERS, each), m)
            table_of_m = optimize_gamma(problem)
            voters = Voters(VOTERS, each, overlap=1, models=True)
            for count in QUERIES:
                general = compose_general(query, count, DELTA_PRIME)
                plain = bounds_of(Charge("query", guarantee=query, count=count), general.delta)
                exact = bounds_of(charge_of(table_of_m, count, exact=True), general.delta)
                cap = models_bound(voters, general.delta)
                yield Row(
                    table=table,
                    data_set=data_set,
                    m=m,
                    queries=count,
                    query_epsilon=query.epsilon,
                    query_delta=query.delta,
                    total_delta=general.delta,
                    general=general.epsilon,
                    optimal=plain["optimal"],
                    pld=plain["pld"],
                    profile_pld=exact["pld"],
                    private_models=float("nan") if cap is None else cap.epsilon,
                )


def bounds_of(charge: Charge, delta: float) -> dict[str, float]:
    """Evaluate every bound on a charge."""
    return {bound.name: bound.epsilon for bound in PrivacyAccountant(charges=[charge]).spent(delta).bounds}


def print_rows(found: Sequence[Row]) -> None:
    """Print one block a table."""
    for table in sorted({row.table for row in found}):
        print(f"[D, Table {table}], m = {next(row.m for row in found if row.table == table)}")
        print(
            f"{'data set':14}{'Q':>4}  {'per query':>17}  {'general (total)':>17}{'optimal':>9}{'PLD':>9}"
            f"{'table PLD':>11}{'models':>9}"
        )
        for row in found:
            if row.table == table:
                query = f"({row.query_epsilon:.4f}, {row.query_delta:.4f})"
                total = f"({row.general:.3f}, {row.total_delta:.3f})"
                print(
                    f"{row.data_set:14}{row.queries:4d}  {query:>17}  {total:>17}{row.optimal:9.3f}{row.pld:9.3f}"
                    f"{row.profile_pld:11.3f}{row.private_models:9.3f}"
                )
        print()


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the tables; optionally write them as JSON."""
    parser = CommandLine(prog="python -m experiments.composition_tables", description=str(__doc__))
    parser.add_argument("--output", type=Path, metavar="FILE.json", help="write the rows")
    options = parser.parse_args(arguments)
    found = list(rows())
    print_rows(found)
    if options.output is not None:
        write_text(options.output, json.dumps([asdict(row) for row in found], indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(run(main))
