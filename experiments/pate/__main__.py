"""Tables 1 and 2 of [P] and Table 4 of [D]: what can be checked without the teachers' votes.

Table 2 is recomputed from its own columns, with Theorem 23 as printed and with the exact cost of the mechanism; the
rows of Tables 1 and 2 are computed for synthetic votes of MNIST's size, to show what the command line prints.
"""

import math
import sys
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from darrm.losses.gaussian import analytic_sigma, renyi_sigma
from darrm.pate.confident import ConfidentGNMax
from darrm.pate.gnss import exact_cost, largest_smoothness, printed_cost
from darrm.pate.noisy_max import LNMax
from darrm.pate.report import quiet_analysis, table_1_row, table_2_row
from darrm.privacy import PrivacyParams
from darrm.system.command_line import run
from darrm.votes import Votes
from experiments import pages
from experiments.pate.page import page
from experiments.pate.settings import MNIST_COST, MNIST_SIZE, TABLE_2, TABLE_4, pate_like_votes

NAME = "pate"
DELTA = 1e-5


def table_2() -> list[dict[str, Any]]:
    """Recompute the last column of [P, Table 2] from the others, and what the mechanism really costs."""
    rows = []
    for row in TABLE_2:
        printed = printed_cost(row.order, row.smoothness, row.noise_scale)
        exact = exact_cost(row.order, row.smoothness, row.noise_scale)
        rows.append(
            {
                "name": row.name,
                "printed_total": row.sanitized,
                "recomputed_total": row.epsilon + printed,
                "printed_deviation": row.deviation,
                "recomputed_deviation": row.sensitivity * row.noise_scale,
                "theorem_23": printed,
                "exact": exact,
                "order_times_beta": row.order * row.smoothness,
                "total_with_exact_cost": row.epsilon + exact,
            }
        )
    return rows


def fixed_part() -> dict[str, float]:
    """Convert the costs of the row for MNIST in the printed way, with 1/λ, and by [P, Theorem 5], with 1/(λ − 1)."""
    row = TABLE_2[0]
    cost = printed_cost(row.order, row.smoothness, row.noise_scale)
    return {
        "printed_cost": MNIST_COST,
        "theorem_23": cost,
        "delta": row.delta,
        "order": row.order,
        "printed_total": MNIST_COST + cost - math.log(row.delta) / row.order,
        "by_theorem_5": MNIST_COST + cost - math.log(row.delta) / (row.order - 1.0),
    }


def table_4() -> list[dict[str, Any]]:
    """Compute σ for the targets of [D, Table 4] in the paper's way and with the analytic calibration."""
    rows = []
    for name, epsilon, delta, order, sigma in TABLE_4:
        target = PrivacyParams(epsilon, delta)
        found = renyi_sigma(target)
        row = {"name": name, "printed_sigma": sigma, "sigma": found.value}
        row |= {"printed_order": order, "order": found.settings["order"]}
        row["sigma_at_printed_order"] = math.sqrt(order / (target.epsilon + math.log(target.delta) / (order - 1.0)))
        row["analytic_sigma"] = analytic_sigma(target).value
        rows.append(row)
    return rows


def synthetic() -> dict[str, Any]:
    """Compute the rows of Tables 1 and 2 for synthetic votes with the parameters of the MNIST rows."""
    votes = Votes.of_counts(pate_like_votes(MNIST_SIZE))
    confident = ConfidentGNMax(200, 150.0, 40.0, noise="continuous")
    analysis = quiet_analysis(votes, confident, DELTA, conversion="classic")
    laplace = quiet_analysis(votes[:100], LNMax(0.05, noise="continuous"), DELTA, conversion="classic")
    published = table_2_row(analysis, None)
    return {
        "votes": asdict(MNIST_SIZE),
        "lnmax": table_1_row(laplace),
        "confident": table_1_row(analysis),
        "published": published | {"largest_smoothness": largest_smoothness(published["order"])},
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Compute, print and write the tables."""
    options = pages.command_line(NAME, str(__doc__)).parse_args(arguments)
    folder = pages.data_folder(options, NAME)
    data = folder / "pate.json"
    if not options.page:
        numbers = {"table_2": table_2(), "fixed_part": fixed_part(), "table_4": table_4(), **synthetic()}
        pages.write_json(data, numbers)
    text = page(pages.read_json(data))
    print(text)
    pages.write_page(folder, text)
    return 0


if __name__ == "__main__":
    sys.exit(run(main))
