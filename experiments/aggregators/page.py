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
    shown = {*_names([*plain, *private]), *(name for each in [*plain, *private] for name, _ in each.absent)}
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
        lines += ["", f"## {title}", "", f"![{title}](aggregators/{name}.png)", "", _table(comparisons)]
        lines += [f"\n{reason}" for reason in _absences(comparisons)]
    lines += ["", "## Recorded votes", "", VOTES, "", _votes(votes)]
    return "\n".join(lines) + "\n"


def _names(comparisons: Sequence[Comparison]) -> list[str]:
    """List the options that occur, in their order."""
    return list(dict.fromkeys(option["name"] for comparison in comparisons for option in comparison.options))


def _table(comparisons: Sequence[Comparison]) -> str:
    names, rows = _names(comparisons), []
    for comparison in comparisons:
        accuracy = {option["name"]: option["accuracy"] for option in comparison.options}
        best = max(accuracy.values())
        rows.append([comparison.title, *(_cell(accuracy.get(name), best) for name in names)])
    return table(["workload", *names], rows)


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


def _votes(rows: Sequence[dict[str, Any]]) -> str:
    """Tabulate the expected label accuracies."""
    names = list(dict.fromkeys(name for row in rows for name in row["accuracy"]))
    cells = []
    for row in rows:
        best = max(row["accuracy"].values())
        budget = f"({row['epsilon']:g}, {row['delta']:g})"
        shown = [_cell(row["accuracy"].get(name), best) for name in names]
        cells.append([row["votes"], row["queries"], budget, f"{row['majority']:.4f}", *shown])
    return table(["votes", "Q", "budget", "majority, no noise", *names], cells)
