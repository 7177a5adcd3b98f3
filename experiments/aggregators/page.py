"""The page of the comparison of aggregators, from its data."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from darrm.advise import contenders
from experiments.aggregators.comparison import Comparison, decide
from experiments.aggregators.pluralities import PluralityComparison, decide_pluralities, shares_table
from experiments.pages import Claim, claims_table, picture, read_json, table

HEAD = """# Aggregators side by side

Every aggregator calibrated to the same total budget for all queries together, in one run. This page is written by
`python -m experiments.aggregators --output docs/reproduction`; every number comes from the JSON files beside the
pictures. The public belief is one common p, uniform on [0, 1]. *Right labels* are the share of released labels that are
the majority of the votes, 0.5 for a coin; the pictures show it at every margin. *Accuracy* is one minus the expected
error, the paper's Definition 2.4: a distance to the law of the majority, so that a coin has more than 1/2.
"""
PICTURED = (
    "How often the released label is the majority of the votes, over how many votes it leads by: 1 is the truth, 0.5 a "
    "coin. One panel a workload; an aggregator has one color and one kind of dashes throughout, ours is the thick line."
)
TAIL = """\
For one query to voters that are not private the claim is a theorem (`darrm/optimize/closed_form.py`). For many queries
no release here is the best at every margin: some are better near a tie and worse where the majority is clear, and for
private voters a constant is the best near a tie. That is why `plan` asks for a prior; the rows say where it loses.
"""

VOTES = """\
Ensembles of logistic regressions on disjoint shards, trained in the run; the expected share of test points
whose released label is the true one (the noise's probabilities are averaged, not drawn). Telling the
majority more often is not being right more often where close majorities tend to be wrong; there noise can
even help."""


PLURALITIES = """\
Voters that are not private, a person reaching one of them, a total budget of (2, 1e-5). The table holds the expected
share of right labels: how often the answer is one of the classes with the most votes, under a public belief about
histograms (`dirichlet`: every histogram equally likely; `dirichlet:0.5`: clearer majorities). *a guess* looks at
nothing; *none exceeds* is proved for every private release (`darrm/optimize/plurality_bounds.py`), and loose for many
queries. Histograms are listed where they are few and drawn where not, the same ones for all releases of a row.
*GNMax, tight σ* is charged for its noisy counts, the others for the label alone."""

PLURALITY_VOTES = """\
Ensembles of linear classifiers on disjoint shards, trained in the run on all ten classes; the recorded votes are the
public belief, so the share is that of labels equal to the ensemble's own plurality. *plurality* is how often that
plurality is the true class."""


@dataclass(frozen=True)
class Results:
    """All that a run found, as it lies in the JSON files."""

    plain: list[Comparison]
    private: list[Comparison]
    votes: list[dict[str, Any]]
    pluralities: list[PluralityComparison]
    plurality_votes: list[dict[str, Any]]

    @classmethod
    def read(cls, folder: Path) -> "Results":
        """Read what a run wrote."""
        plain, private, votes, pluralities, recorded = (
            read_json(folder / f"{name}.json")
            for name in ("plain", "private", "votes", "pluralities", "plurality_votes")
        )
        return cls(
            [Comparison(**entry) for entry in plain],
            [Comparison(**entry) for entry in private],
            votes,
            [PluralityComparison(**entry) for entry in pluralities],
            recorded,
        )

    @property
    def claims(self) -> list[Claim]:
        """What was to be shown or refuted."""
        return [*decide([*self.plain, *self.private]), *decide_pluralities(self.pluralities)]


def page(results: Results, *, quick: bool) -> str:
    """Write the page."""
    plain, private = results.plain, results.private
    shown = {name for each in [*plain, *private] for name in (*_of_options(each, "accuracy"), *dict(each.absent))}
    lines = [
        HEAD,
        *(f"* *{each.name}*: {each.about}" for each in contenders.CONTENDERS if each.name in shown),
        "",
        TAIL,
    ]
    if quick:
        lines += ["*A shortened run (`--quick`).*", ""]
    lines.append(claims_table(results.claims))
    for title, name, comparisons in (
        ("Voters that are not private", "plain", plain),
        ("Private voters", "private", private),
    ):
        shares, rows = (
            [([each.title], _of_options(each, key)) for each in comparisons] for key in ("right", "accuracy")
        )
        lines += ["", f"## {title}", "", picture(f"aggregators/{name}.png", title, PICTURED)]
        if all(share for _, share in shares):  # data of older runs lack it
            lines += ["", "Right labels:", "", _accuracies(["workload"], shares)]
        lines += ["", "Accuracy:", "", _accuracies(["workload"], rows)]
        lines += [f"\n{reason}" for reason in _absences(comparisons)]
    recorded = []
    for row in results.votes:
        budget = f"({row['epsilon']:g}, {row['delta']:g})"
        recorded.append(([row["votes"], row["queries"], budget, f"{row['majority']:.4f}"], row["accuracy"]))
    head = ["votes", "Q", "budget", "majority, no noise"]
    lines += ["", "## Recorded votes", "", VOTES, "", _accuracies(head, recorded)]
    numbers = sorted({each.workload["classes"] for each in results.pluralities})
    for first, classes in ((numbers[0], number) for number in numbers):
        chosen = [each for each in results.pluralities if each.workload["classes"] == classes]
        lines += [
            "",
            f"## {classes} classes",
            "",
            *([PLURALITIES, ""] if classes == first else []),
            shares_table(chosen),
        ]
        lines += [f"\n{reason}" for reason in _absences(chosen)]
    if results.plurality_votes:
        tabulated = _plurality_votes(results.plurality_votes)
        lines += ["", "## Recorded votes on ten classes", "", PLURALITY_VOTES, "", tabulated]
    return "\n".join(lines) + "\n"


def _plurality_votes(rows: Sequence[dict[str, Any]]) -> str:
    """Tabulate recorded votes, with how often the plurality is the true class."""
    found = [PluralityComparison(**{key: row[key] for key in row if key != "plurality"}) for row in rows]
    truth = {each.prior: row["plurality"] for each, row in zip(found, rows, strict=True)}
    said = "; ".join(f"{prior.removeprefix('votes:')} {share:.4f}" for prior, share in truth.items())
    return f"{shares_table(found)}\n\nThe plurality is the true class: {said}."


def _accuracies(head: list[str], rows: Sequence[tuple[Sequence[object], dict[str, float]]]) -> str:
    """Tabulate shares or accuracies of the aggregators that occur, the best of every row in bold."""
    found = {name for _, accuracy in rows for name in accuracy}
    names = [each.name for each in contenders.CONTENDERS if each.name in found]
    cells = [
        [*first, *(_cell(accuracy.get(name), max(accuracy.values())) for name in names)] for first, accuracy in rows
    ]
    return table([*head, *names], cells)


def _of_options(comparison: Comparison, key: str) -> dict[str, float]:
    return {option["name"]: option[key] for option in comparison.options if key in option}


def _cell(value: float | None, best: float) -> str:
    if value is None:
        return "–"
    return f"**{value:.4f}**" if value >= best - 5e-5 else f"{value:.4f}"


def _absences(comparisons: Sequence[Comparison] | Sequence[PluralityComparison]) -> list[str]:
    reasons: dict[tuple[str, str], list[str]] = {}
    for comparison in comparisons:
        for name, reason in comparison.absent:
            reasons.setdefault((name, reason), []).append(comparison.title)
    return [
        f"*{name}* is absent ({'everywhere' if len(where) == len(comparisons) else '; '.join(where)}): {reason}."
        for (name, reason), where in reasons.items()
    ]
