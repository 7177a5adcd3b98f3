"""Compare the total privacy loss over Q queries [D, Tables 2, 5, 7 and 9] with tighter accounting.

Each row has (ε, δ) by general composition with δ′ = 1e-4, as in the paper. At the same total δ, it has ε by optimal
composition, by the privacy loss distribution (PLD), and by the PLD of the table's exact privacy profile. These bounds
hold for voters with fresh randomness for each query. The paper's voters are trained models; the last column is the
proved bound for models.
"""

from collections.abc import Sequence
from itertools import product

from darrm.account.accountant import PrivacyAccountant
from darrm.loss.composition import compose_general
from darrm.loss.privacy_cost import PrivacyCost
from darrm.optimize.optimizer import optimize_table
from darrm.privacy import PrivacyParams
from darrm.problem import Problem, Voters
from darrm.table.release import describe_cost
from experiments import pages
from experiments.pages import Row

NAME = "composition"
K = 11
QUERIES = (20, 50, 100)
DELTA_PRIME = 1e-4  # slack of general composition
EACH = {"mnist": PrivacyParams("0.0892", "0.0001"), "fashion-mnist": PrivacyParams("0.0852", "0.0001")}
NAMES = {"mnist": "MNIST", "fashion-mnist": "Fashion-MNIST", "digits": "digits (scikit-learn)"}
TABLE_OF_ALLOWANCE = {1: 5, 3: 2, 5: 7, 7: 9}  # the number of the table for each m
RELATIVE_TOLERANCE = 1e-6  # the grids of the PLD round up in the ninth digit

# printed totals: data set -> m -> Q -> (epsilon, delta)
PRINTED_TOTALS: dict[str, dict[int, dict[int, tuple[float, float]]]] = {
    "mnist": {
        1: {20: (1.704, 0.002), 50: (2.837, 0.005), 100: (4.202, 0.010)},
        3: {20: (5.352, 0.006), 50: (9.901, 0.015), 100: (15.044, 0.030)},
        5: {20: (8.920, 0.010), 50: (18.428, 0.025), 100: (28.926, 0.049)},
        7: {20: (12.488, 0.014), 50: (28.392, 0.035), 100: (45.683, 0.068)},
    },
    "fashion-mnist": {
        1: {20: (1.620, 0.002), 50: (2.695, 0.005), 100: (3.988, 0.010)},
        3: {20: (5.112, 0.006), 50: (9.382, 0.015), 100: (14.219, 0.030)},
        5: {20: (8.520, 0.010), 50: (17.398, 0.025), 100: (27.223, 0.049)},
        7: {20: (11.928, 0.014), 50: (26.738, 0.035), 100: (42.873, 0.068)},
    },
}


def compute_row(m: int, data_set: str, count: int) -> Row:
    """Compute the (ε, δ) of a query, and the total ε of ``count`` queries by each method of accounting."""
    each = EACH[data_set]
    table = optimize_table(Problem.from_allowance(Voters(K, each), m))
    query = PrivacyParams(m * each.exact_epsilon, m * each.exact_delta)
    general = compose_general(query, count, DELTA_PRIME)

    def list_bounds(cost: PrivacyCost) -> dict[str, float]:
        return {bound.name: bound.epsilon for bound in PrivacyAccountant(costs=[cost]).spent(general.delta).bounds}

    pair_bounds = list_bounds(PrivacyCost("query", guarantee=query, count=count))
    cost = describe_cost(table, count, voters=Voters(K, each, overlap=1, models=True), exact=True)
    models = PrivacyAccountant(costs=[cost]).spent(general.delta)
    return {
        "table": TABLE_OF_ALLOWANCE[m],
        "data_set": data_set,
        "m": m,
        "queries": count,
        "query_epsilon": query.epsilon,
        "query_delta": query.delta,
        "printed": list(PRINTED_TOTALS[data_set][m][count]),  # the paper's total ε and δ
        "total_delta": general.delta,
        "general": general.epsilon,
        "optimal": pair_bounds["optimal"],
        "pld": pair_bounds["pld"],
        "profile_pld": list_bounds(describe_cost(table, count, exact=True))["pld"],
        "models": models.epsilon,
        "models_bound": models.bound,
    }


def fill_page(rows: Sequence[Row]) -> str:
    """Fill the page from the rows, with one section for each table, in the order of m."""
    pairs = [pair for row in rows for pair in zip((row["general"], row["total_delta"]), row["printed"], strict=True)]
    num_equal = sum(f"{ours:.3f}" == f"{printed:.3f}" for ours, printed in pairs)
    facts = {
        "same": num_equal,
        "numbers": len(pairs),
        "pld": max(abs(row["pld"] / row["optimal"] - 1.0) for row in rows),
        "first": max(abs(row["profile_pld"] / row["optimal"] - 1.0) for row in rows if row["m"] == 1),
        "share": max(row["profile_pld"] / row["general"] for row in rows if row["m"] > 1),
        "models": max(row["models"] / row["profile_pld"] for row in rows),
    }
    holds = {
        "general": num_equal == len(pairs),
        "pld": facts["pld"] <= RELATIVE_TOLERANCE,
        "first": facts["first"] <= RELATIVE_TOLERANCE,
        "share": facts["share"] <= 0.5,
        "models": facts["models"] <= 0.1,
    }
    named_rows = [row | {"name": NAMES[row["data_set"]]} for row in rows]
    tables = [
        {"m": m, "number": number, "rows": [row for row in named_rows if row["m"] == m]}
        for m, number in TABLE_OF_ALLOWANCE.items()
    ]
    return pages.fill_template(NAME, {"holds": holds, "most": facts, "tables": tables})


def compute_rows() -> list[Row]:
    """Compute all rows in the order of m, data set and Q."""
    return [compute_row(*case) for case in product(TABLE_OF_ALLOWANCE, EACH, QUERIES)]


def main(arguments: Sequence[str] | None = None) -> int:
    options = pages.make_command_line(NAME, __doc__).parse_args(arguments)
    return pages.run_measurement(options, f"{NAME}/composition.json", compute_rows, fill_page)
