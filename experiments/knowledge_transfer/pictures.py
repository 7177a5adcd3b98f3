"""The picture: label accuracy against m for every aggregator, with the paper's points."""

from pathlib import Path

from darrm.util.figures import saved_figure, style
from experiments.composition_tables import NAMES
from experiments.knowledge_transfer import settings
from experiments.pages import Row


def draw(path: Path, result: Row, queries: int) -> None:
    """Draw accuracy against m at one Q: lines are ours, hollow marks are the paper's."""
    rows = [row for row in result["labels"] if row["queries"] == queries]
    allowances = result["allowances"]
    with saved_figure(path, width=8.0, height=5.0) as figure:
        axes = figure.subplots()
        for place, name in enumerate(settings.AGGREGATORS):
            how = style(place)
            mine = {row["m"]: row for row in rows if row["aggregator"] == name}
            means = [mine[m]["all_draws"]["mean"] for m in allowances]
            errors = [mine[m]["all_draws"].get("standard_error", 0.0) for m in allowances]
            axes.errorbar(allowances, means, yerr=errors, capsize=3, label=name, **how.line(len(allowances)))
            known = [(m + 0.12, mine[m]["printed"]["mean"]) for m in allowances if mine[m]["printed"] is not None]
            if known:
                hollow = {"linestyle": "none", "marker": how.marker, "markerfacecolor": "none", "color": how.color}
                axes.plot(*zip(*known, strict=True), label=f"{name}, the paper", **hollow)
        axes.set(
            xticks=allowances,
            xlabel="privacy allowance m (one label costs m times one teacher)",
            ylabel=f"right labels of Q = {queries}",
            title=f"{NAMES[result['dataset']]}: labels from 11 teachers, {len(result['trainings'])} training(s)",
        )
        axes.grid(visible=True, alpha=0.3)
        figure.legend(loc="outside right center", fontsize="small")
