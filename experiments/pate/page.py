"""The page about the tables of [P], and the one about noise of [D], written from the numbers of a run."""

from typing import Any

from darrm.papers import PAPERS
from experiments.pages import table

INTRODUCTION = f"""# PATE: Tables 1 and 2 of [P], Table 4 of [D]

[P] is {PAPERS["P"]}.

[D] is {PAPERS["D"]}.

Written by `python -m experiments.pate --output docs/reproduction` from the JSON file of its run. The teachers' votes
behind [P] are not at hand, so its figures for MNIST, SVHN, Adult and Glyph are not reproduced; what follows is what its
printed columns determine."""

TABLE_2 = """The recomputed totals are expected ε + Theorem 23 as printed. SVHN's does not add up in print. The proof of
Theorem 23 covers λβ ≤ 1/4 only; the last column is the exact worst case of the mechanism (two Gaussians attain it),
which is what this project charges. The total then has to be made small by another choice of β and σ_SS, which
`search_parameters` does."""


def page(numbers: dict[str, Any]) -> str:
    """Write the page of the documentation from the numbers."""
    fixed, votes = numbers["fixed_part"], numbers["votes"]
    parts = [
        INTRODUCTION,
        "## Table 2 from its own columns",
        _table_2(numbers["table_2"]),
        TABLE_2,
        (
            f"The fixed part {fixed['printed_total']:.2f} is printed as {fixed['printed_cost']:.2f} + "
            f"{fixed['theorem_23']:.2f} − ln({fixed['delta']:g})/{fixed['order']:g}: a conversion with 1/λ, where "
            f"Theorem 5 has 1/(λ − 1). With Theorem 5 the same costs give {fixed['by_theorem_5']:.2f}."
        ),
        "## Table 4 of [D]: noise of the GNMax baseline",
        _table_4(numbers["table_4"]),
        "The printed σ is the minimum over the grid; the printed λ is not where it is reached.",
        "## The rows for synthetic votes",
        (
            f"Votes: {votes['queries']} queries, {votes['voters']} teachers, {votes['classes']} classes, seed "
            f"{votes['seed']}, made by `experiments.pate.settings`; not MNIST."
        ),
        _synthetic([numbers["lnmax"], numbers["confident"]]),
        _published(numbers["published"]),
    ]
    return "\n\n".join(parts) + "\n"


def _table_2(rows: list[dict[str, Any]]) -> str:
    head = ["data", "printed total", "recomputed", "printed noise", "recomputed", "λβ", "Theorem 23 as printed"]
    line = "{name}|{printed_total:.2f}|{recomputed_total:.3f}|{printed_deviation:.3f}|{recomputed_deviation:.3f}"
    line += "|{order_times_beta:.2f}|{theorem_23:.3f}|{exact:.3f}"
    return table([*head, "exact cost"], [line.format(**row).split("|") for row in rows])


def _table_4(rows: list[dict[str, Any]]) -> str:
    names = ("printed_sigma", "sigma", "printed_order", "order", "sigma_at_printed_order", "analytic_sigma")
    head = ["data", "printed σ", "σ", "printed λ", "minimizing λ", "σ at the printed λ", "analytic σ (least possible)"]
    return table(head, [[row["name"], *(f"{row[name]:.2f}" for name in names)] for row in rows])


def _synthetic(rows: list[dict[str, Any]]) -> str:
    names = ("epsilon_theorem_5", "epsilon_tight_conversion", "data_independent_epsilon")
    head = ["aggregator", "queries", "answered (expected)", "ε, Theorem 5", "ε, tight conversion"]
    cells = [
        [f"`{row['aggregator']}`", row["queries"], f"{row['answered']:.0f}", *(f"{row[name]:.3f}" for name in names)]
        for row in rows
    ]
    return table([*head, "data-independent ε"], cells)


def _published(row: dict[str, Any]) -> str:
    return (
        f"To publish the Confident-GNMax figure: λ = {row['order']:g}, β = {row['beta']:.4f} (of at most "
        f"{row['largest_smoothness']:.4f}), E[SS] = {row['smooth_sensitivity']:.4f}, σ_SS = {row['sigma_ss']:.2f}, "
        f"cost {row['gnss_cost']:.3f}; sanitized ε = {row['sanitized_epsilon']:.2f} ± {row['sanitized_deviation']:.2f}."
    )
