"""Write the pages of the comparison of aggregators from its data."""

from collections.abc import Sequence
from pathlib import Path

from experiments.aggregators.comparison import SHOWN_NAMES, Comparison, decide_claims, list_aggregators
from experiments.aggregators.settings import name_mechanism
from experiments.pages import Row, fill_template, format_bold, format_table, read_json

PAGE_PARTS = ("two_classes", "more_classes")  # separate pages
SHOWN_TOTAL = 1.0  # ε of the rows for non-private voters; the JSON files have all budgets
SHOWN_QUERIES, SHOWN_VOTERS = (1, 1000), (50, 250, 5000)  # of the rows for more than two classes


def read_data(folder: Path) -> Row:
    """Read the rows of all files, and the comparisons where the rows are comparisons."""
    files = ("plain", "private", "pluralities", "votes", "plurality_votes", "private_classes")
    data: Row = {name: read_json(folder / f"{name}.json") for name in files}
    return data | {name: [Comparison(**entry) for entry in data[name]] for name in files[:3]}


def fill_page(data: Row, *, part: str = "page") -> str:
    binary = [*data["plain"], *data["private"]]
    names = {name for item in binary for name in (*item.collect_values("accuracy"), *dict(item.absent))}
    uniform = [item for item in data["pluralities"] if item.prior == "dirichlet:1"]
    ten_classes = [
        Comparison(**{key: value for key, value in row.items() if key != "plurality"})
        for row in data["plurality_votes"]
    ]
    votes = [row for row in data["votes"] if row["epsilon"] == SHOWN_TOTAL]
    facts = {
        "about": [
            {"name": name_mechanism(kind), "about": kind.about}
            for kind in list_aggregators()
            if name_mechanism(kind) in names
        ],
        "claims": decide_claims([*binary, *data["pluralities"]]),
        "plain": _tabulate_two_classes([item for item in data["plain"] if item.workload["epsilon"] == SHOWN_TOTAL]),
        "private": _tabulate_two_classes(data["private"]),
        "votes": _tabulate(
            ["votes", "Q", "majority, no noise"],
            [[row["votes"], row["queries"], f"{row['majority']:.4f}"] for row in votes],
            [row["accuracy"] for row in votes],
        ),
        "more_classes": tabulate_shares(uniform),
        "plurality_votes": tabulate_shares(ten_classes) if ten_classes else "",
        "private_classes": format_table(
            ["C", "K", "m", *SHOWN_NAMES],
            [
                [row["classes"], row["voters"], row["m"], *format_bold(row["right"], SHOWN_NAMES)]
                for row in data["private_classes"]
            ],
        ),
        "truth": {row["prior"].removeprefix("votes:"): row["plurality"] for row in data["plurality_votes"]},
    }
    return fill_template("aggregators", facts, template=part)


def _tabulate_two_classes(comparisons: Sequence[Comparison]) -> str:
    titles = [[item.title] for item in comparisons]
    return _tabulate(["workload"], titles, [item.collect_values("accuracy") for item in comparisons])


def _tabulate(head: list[str], first_cells: Sequence[Sequence[object]], numbers: Sequence[dict[str, float]]) -> str:
    """Write a table with a column for each aggregator that has numbers."""
    present = {name for row in numbers for name in row}
    names = [name_mechanism(kind) for kind in list_aggregators() if name_mechanism(kind) in present]
    rows = [[*cells, *format_bold(row, names)] for cells, row in zip(first_cells, numbers, strict=True)]
    return format_table([*head, *names], rows)


def tabulate_shares(comparisons: Sequence[Comparison]) -> str:
    """Tabulate accuracies for more than two classes, with those of a guess and of the bound, for some workloads."""
    comparisons = [
        item for item in comparisons if item.workload["queries"] in SHOWN_QUERIES and item.workload["K"] in SHOWN_VOTERS
    ] or comparisons
    names = list(dict.fromkeys(name for item in comparisons for name in item.collect_values("right")))
    rows = [
        [item.title, f"{item.coin:.4f}", *format_bold(item.collect_values("right"), names), f"{item.at_most:.4f}"]
        for item in comparisons
    ]
    return format_table(["workload", "a guess", *names, "none exceeds"], rows)
