"""The pages of the comparison of aggregators, from its data."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from experiments.aggregators.comparison import SHOWN, Comparison, decide, listed
from experiments.aggregators.settings import name_of
from experiments.pages import Claim, Row, filled, in_bold, read_json

PARTS = ("two_classes", "more_classes")  # separate pages
SHOWN_TOTAL = 1.0  # the budget of the pictures and of the rows for non-private voters; the JSON files have all
SHOWN_QUERIES, SHOWN_VOTERS = (1, 1000), (50, 250, 5000)  # the rows for more classes


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
        return decide([*self.plain, *self.private, *self.pluralities])


def page(results: Results, *, part: str = "page") -> str:
    two = [*results.plain, *results.private]
    names = {name for item in two for name in (*item.all_of("accuracy"), *dict(item.absent))}
    plain = [item for item in results.plain if item.workload["epsilon"] == SHOWN_TOTAL]
    uniform = [item for item in results.pluralities if item.prior == "dirichlet:1"]
    ten = [Comparison(**{key: row[key] for key in row if key != "plurality"}) for row in results.plurality_votes]
    facts = {
        "about": [{"name": name_of(item), "about": item.about} for item in listed() if name_of(item) in names],
        "claims": results.claims,
        "plain": _two_classes(plain),
        "private": _two_classes(results.private),
        "votes": _recorded([row for row in results.votes if row["epsilon"] == SHOWN_TOTAL]),
        "more_classes": shares_table([item for item in uniform if _is_shown(item)] or uniform),
        "plurality_votes": shares_table([item for item in ten if _is_shown(item)] or ten) if ten else "",
        "private_classes": _private_table(results.private_classes),
        "truth": {row["prior"].removeprefix("votes:"): row["plurality"] for row in results.plurality_votes},
    }
    return filled("aggregators", facts, template=part)


def _is_shown(item: Comparison) -> bool:
    """Whether the page has a row for a workload; the JSON has all."""
    return item.workload["queries"] in SHOWN_QUERIES and item.workload["K"] in SHOWN_VOTERS


def _two_classes(comparisons: Sequence[Comparison]) -> str:
    rows = [([item.title], item.all_of("accuracy")) for item in comparisons]
    return in_bold(["workload"], rows, _ordered(rows))


def _recorded(votes: Iterable[Row]) -> str:
    """Tabulate the shares of true labels on recorded votes of two classes."""
    rows = [([row["votes"], row["queries"], f"{row['majority']:.4f}"], row["accuracy"]) for row in votes]
    return in_bold(["votes", "Q", "majority, no noise"], rows, _ordered(rows))


def _private_table(rows: Sequence[Row]) -> str:
    cells = [([row["classes"], row["voters"], row["m"]], row["right"]) for row in rows]
    return in_bold(["C", "K", "m"], cells, SHOWN)


def shares_table(comparisons: Sequence[Comparison]) -> str:
    """Tabulate the shares of right labels of more than two classes, between those of a guess and of the bound."""
    rows = [([item.title, f"{item.coin:.4f}"], item.all_of("right")) for item in comparisons]
    names = list(dict.fromkeys(name for _, shares in rows for name in shares))
    bounds = [f"{item.at_most:.4f}" for item in comparisons]
    return in_bold(["workload", "a guess"], rows, names, last=("none exceeds", bounds))


def _ordered(rows: Iterable[tuple[Sequence[object], dict[str, float]]]) -> list[str]:
    names = {name for _, numbers in rows for name in numbers}
    return [name_of(item) for item in listed() if name_of(item) in names]
