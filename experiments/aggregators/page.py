"""Write the pages of the comparison of aggregators from its data."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from experiments.aggregators.comparison import SHOWN_NAMES, Comparison, decide_claims, list_aggregators
from experiments.aggregators.settings import name_mechanism
from experiments.pages import Claim, Row, fill_template, format_bold_table, read_json

PAGE_PARTS = ("two_classes", "more_classes")  # separate pages
SHOWN_TOTAL = 1.0  # ε of the rows for non-private voters; the JSON files have all budgets
SHOWN_QUERIES, SHOWN_VOTERS = (1, 1000), (50, 250, 5000)  # of the rows for more than two classes


@dataclass(frozen=True)
class Results:
    plain: list[Comparison]
    private: list[Comparison]
    votes: list[Row]
    pluralities: list[Comparison]
    plurality_votes: list[Row]
    private_classes: list[Row]

    @classmethod
    def read(cls, folder: Path) -> "Results":
        plain, private, pluralities = (
            Comparison.read(folder / f"{name}.json") for name in ("plain", "private", "pluralities")
        )
        votes, plurality_votes, private_classes = (
            read_json(folder / f"{name}.json") for name in ("votes", "plurality_votes", "private_classes")
        )
        return cls(plain, private, votes, pluralities, plurality_votes, private_classes)

    @property
    def claims(self) -> list[Claim]:
        return decide_claims([*self.plain, *self.private, *self.pluralities])


def fill_page(results: Results, *, part: str = "page") -> str:
    binary = [*results.plain, *results.private]
    names = {name for item in binary for name in (*item.collect_values("accuracy"), *dict(item.absent))}
    plain = [item for item in results.plain if item.workload["epsilon"] == SHOWN_TOTAL]
    uniform = [item for item in results.pluralities if item.prior == "dirichlet:1"]
    ten_classes = [
        Comparison(**{key: row[key] for key in row if key != "plurality"}) for row in results.plurality_votes
    ]
    facts = {
        "about": [
            {"name": name_mechanism(item), "about": item.about}
            for item in list_aggregators()
            if name_mechanism(item) in names
        ],
        "claims": results.claims,
        "plain": _tabulate_two_classes(plain),
        "private": _tabulate_two_classes(results.private),
        "votes": _tabulate_recorded_votes([row for row in results.votes if row["epsilon"] == SHOWN_TOTAL]),
        "more_classes": tabulate_shares([item for item in uniform if _is_shown(item)] or uniform),
        "plurality_votes": tabulate_shares([item for item in ten_classes if _is_shown(item)] or ten_classes)
        if ten_classes
        else "",
        "private_classes": _tabulate_private(results.private_classes),
        "truth": {row["prior"].removeprefix("votes:"): row["plurality"] for row in results.plurality_votes},
    }
    return fill_template("aggregators", facts, template=part)


def _is_shown(item: Comparison) -> bool:
    """Whether the page has a row for a workload; the JSON has all workloads."""
    return item.workload["queries"] in SHOWN_QUERIES and item.workload["K"] in SHOWN_VOTERS


def _tabulate_two_classes(comparisons: Sequence[Comparison]) -> str:
    rows = [([item.title], item.collect_values("accuracy")) for item in comparisons]
    return format_bold_table(["workload"], rows, _sort_names(rows))


def _tabulate_recorded_votes(votes: Iterable[Row]) -> str:
    """Tabulate accuracies against the true labels, on recorded votes of two classes."""
    rows = [([row["votes"], row["queries"], f"{row['majority']:.4f}"], row["accuracy"]) for row in votes]
    return format_bold_table(["votes", "Q", "majority, no noise"], rows, _sort_names(rows))


def _tabulate_private(rows: Sequence[Row]) -> str:
    cells = [([row["classes"], row["voters"], row["m"]], row["right"]) for row in rows]
    return format_bold_table(["C", "K", "m"], cells, SHOWN_NAMES)


def tabulate_shares(comparisons: Sequence[Comparison]) -> str:
    """Tabulate accuracies for more than two classes, with those of a guess and of the bound."""
    rows = [([item.title, f"{item.coin:.4f}"], item.collect_values("right")) for item in comparisons]
    names = list(dict.fromkeys(name for _, shares in rows for name in shares))
    bounds = [f"{item.at_most:.4f}" for item in comparisons]
    return format_bold_table(["workload", "a guess"], rows, names, last_column=("none exceeds", bounds))


def _sort_names(rows: Iterable[tuple[Sequence[object], dict[str, float]]]) -> list[str]:
    names = {name for _, numbers in rows for name in numbers}
    return [name_mechanism(item) for item in list_aggregators() if name_mechanism(item) in names]
