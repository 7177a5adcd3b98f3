"""The pages of the comparison of aggregators, from its data."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from experiments.aggregators.comparison import SHOWN, Comparison, decide, listed
from experiments.aggregators.settings import name_of
from experiments.pages import Claim, Row, filled, in_bold, read_json


@dataclass(frozen=True)
class Results:
    """The results of a run, as in the JSON files."""

    plain: list[Comparison]
    private: list[Comparison]
    votes: list[Row]
    pluralities: list[Comparison]
    plurality_votes: list[Row]
    private_classes: list[Row]

    @classmethod
    def read(cls, folder: Path) -> "Results":
        """Read the results of a run."""
        plain, private, pluralities = (
            Comparison.read(folder / f"{name}.json") for name in ("plain", "private", "pluralities")
        )
        votes, plurality_votes = (read_json(folder / f"{name}.json") for name in ("votes", "plurality_votes"))
        private_classes = read_json(folder / "private_classes.json")
        return cls(plain, private, votes, pluralities, plurality_votes, private_classes)

    @property
    def claims(self) -> list[Claim]:
        """The claims of all comparisons."""
        return decide([*self.plain, *self.private, *self.pluralities])


PARTS = ("two_classes", "more_classes")  # separate pages


def page(results: Results, *, quick: bool, part: str = "page") -> str:
    """Fill the page, or one of its parts."""
    two = [*results.plain, *results.private]
    shown = {name for item in two for name in (*item.all_of("name"), *dict(item.absent))}
    titles = {"plain": "Voters that are not private", "private": "Private voters"}
    recorded = [
        (
            [row["votes"], row["queries"], f"({row['epsilon']:g}, {row['delta']:g})", f"{row['majority']:.4f}"],
            row["accuracy"],
        )
        for row in results.votes
    ]
    numbers = sorted({item.classes for item in results.pluralities})
    sections = [[item for item in results.pluralities if item.classes == classes] for classes in numbers]
    plurality_votes = [
        Comparison(**{key: row[key] for key in row if key != "plurality"}) for row in results.plurality_votes
    ]
    facts = {
        "about": [{"name": name_of(item), "about": item.about} for item in listed() if name_of(item) in shown],
        "quick": quick,
        "claims": results.claims,
        "two_classes": [_two_classes(getattr(results, name), name, title) for name, title in titles.items()],
        "votes": in_bold(["votes", "Q", "budget", "majority, no noise"], recorded, _ordered(recorded)),
        "numbers": numbers,
        "more_classes": [
            {"classes": chosen[0].classes, "is_first": chosen is sections[0], "shares": shares_table(chosen)}
            | {"absences": _absences(chosen)}
            for chosen in sections
        ],
        "plurality_votes": shares_table(plurality_votes) if plurality_votes else "",
        "private_classes": _private_table(results.private_classes),
        "truth": "; ".join(
            f"{prior.removeprefix('votes:')} {share:.4f}"
            for prior, share in {row["prior"]: row["plurality"] for row in results.plurality_votes}.items()
        ),
    }
    return filled("aggregators", facts, template=part)


def _two_classes(comparisons: Sequence[Comparison], name: str, title: str) -> Row:
    """Tabulate shares of right labels, which data of older runs lack, and accuracies."""
    tables = {}
    for key in ("right", "accuracy"):
        rows = [([item.title], item.all_of(key)) for item in comparisons]
        tables[key] = in_bold(["workload"], rows, _ordered(rows)) if all(shares for _, shares in rows) else ""
    return {"name": name, "title": title, "absences": _absences(comparisons), **tables}


def _private_table(rows: Sequence[Row]) -> str:
    """Tabulate the shares of right labels of private voters."""
    cells = [([row["classes"], row["voters"], row["m"]], row["right"]) for row in rows]
    return in_bold(["C", "K", "m"], cells, SHOWN)


def shares_table(comparisons: Sequence[Comparison]) -> str:
    """Tabulate the shares of right labels of more than two classes, between those of a guess and of the bound."""
    rows = [([item.title, f"{item.coin:.4f}"], item.all_of("right")) for item in comparisons]
    names = list(dict.fromkeys(name for _, shares in rows for name in shares))
    bounds = [f"{item.at_most:.4f}" for item in comparisons]
    return in_bold(["workload", "a guess"], rows, names, last=("none exceeds", bounds))


def _ordered(rows: Iterable[tuple[Sequence[object], dict[str, float]]]) -> list[str]:
    """Name the aggregators that occur, in the order of the list."""
    names = {name for _, numbers in rows for name in numbers}
    return [name_of(item) for item in listed() if name_of(item) in names]


def _absences(comparisons: Sequence[Comparison]) -> list[str]:
    reasons: dict[tuple[str, str], list[str]] = {}
    for comparison in comparisons:
        for name, reason in comparison.absent:
            reasons.setdefault((name, reason), []).append(comparison.title)
    return [
        f"*{name}* is absent ({'everywhere' if len(where) == len(comparisons) else '; '.join(where)}): {reason}."
        for (name, reason), where in reasons.items()
    ]
