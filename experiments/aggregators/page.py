"""The page of the comparison of aggregators, from its data."""

from collections.abc import Sequence
from typing import Any

from darrm.advise import contenders
from experiments.aggregators.comparison import Comparison, decide
from experiments.pages import claims_table, table

HEAD = """# Aggregators side by side

Every aggregator calibrated to the same total budget for all queries together, in one run. This page is written by
`python -m experiments.aggregators --output docs/reproduction`; every number comes from the JSON files beside the
pictures. *Accuracy* is one minus the expected error under one common p, uniform on [0, 1]: the paper's Definition 2.4,
a distance to the law of the majority, so that a coin has more than 1/2. The pictures show the probability of the true
majority at every margin.
"""
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


def page(
    plain: Sequence[Comparison],
    private: Sequence[Comparison],
    votes: Sequence[dict[str, Any]],
    *,
    quick: bool,
) -> str:
    """Write the page."""
    shown = {name for each in [*plain, *private] for name in (*_of_options(each), *dict(each.absent))}
    lines = [
        HEAD,
        *(f"* *{each.name}*: {each.about}" for each in contenders.CONTENDERS if each.name in shown),
        "",
        TAIL,
    ]
    if quick:
        lines += ["*A shortened run (`--quick`).*", ""]
    lines.append(claims_table(decide([*plain, *private])))
    for title, name, comparisons in (
        ("Voters that are not private", "plain", plain),
        ("Private voters", "private", private),
    ):
        rows = [([each.title], _of_options(each)) for each in comparisons]
        lines += ["", f"## {title}", "", f"![{title}](aggregators/{name}.png)", "", _accuracies(["workload"], rows)]
        lines += [f"\n{reason}" for reason in _absences(comparisons)]
    recorded = []
    for row in votes:
        budget = f"({row['epsilon']:g}, {row['delta']:g})"
        recorded.append(([row["votes"], row["queries"], budget, f"{row['majority']:.4f}"], row["accuracy"]))
    head = ["votes", "Q", "budget", "majority, no noise"]
    lines += ["", "## Recorded votes", "", VOTES, "", _accuracies(head, recorded)]
    return "\n".join(lines) + "\n"


def _accuracies(head: list[str], rows: Sequence[tuple[Sequence[object], dict[str, float]]]) -> str:
    """Tabulate the accuracies of the aggregators that occur, the best of every row in bold."""
    found = {name for _, accuracy in rows for name in accuracy}
    names = [each.name for each in contenders.CONTENDERS if each.name in found]
    cells = [
        [*first, *(_cell(accuracy.get(name), max(accuracy.values())) for name in names)] for first, accuracy in rows
    ]
    return table([*head, *names], cells)


def _of_options(comparison: Comparison) -> dict[str, float]:
    return {option["name"]: option["accuracy"] for option in comparison.options}


def _cell(value: float | None, best: float) -> str:
    if value is None:
        return "–"
    return f"**{value:.4f}**" if value >= best - 5e-5 else f"{value:.4f}"


def _absences(comparisons: Sequence[Comparison]) -> list[str]:
    reasons: dict[tuple[str, str], list[str]] = {}
    for comparison in comparisons:
        for name, reason in comparison.absent:
            reasons.setdefault((name, reason), []).append(comparison.title)
    return [
        f"*{name}* is absent ({'everywhere' if len(where) == len(comparisons) else '; '.join(where)}): {reason}."
        for (name, reason), where in reasons.items()
    ]
