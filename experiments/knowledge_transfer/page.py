"""Write the page of the results, and draw a picture of one data set, from the JSON."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from darrm.util.figures import save_figure, style
from experiments.composition_tables import DELTA_PRIME, NAMES
from experiments.knowledge_transfer import settings
from experiments.pages import Row, fill_template, read_json, read_results


def fill_page(folder: Path) -> str:
    """Fill the page with all results in a folder: of data sets, and of other learning rates."""
    results = list(read_results(folder, NAMES).values())
    others = [read_json(path) for path in sorted(folder.glob("*-rate-*.json"))]
    rates = [other["private_training"]["learning_rate"] for other in others]
    sections = [*map(fill_section, results), *map(fill_section, others, rates)]
    facts = {"sections": [section.rstrip("\n") for section in sections], "best_constant": "exact" in results[0]}
    return fill_template("knowledge_transfer", facts)


def fill_section(result: Row, rate: float | None = None) -> str:
    """Fill the section of a data set, or the shorter one of another private learning rate."""
    students = sorted(result["students"], key=lambda row: (row["m"] is None, row["m"] or 0, row["labels"]))
    kinds = set(result["trainings"][0]) - {"seed"}
    accuracies = {kind: [training[kind] for training in result["trainings"]] for kind in kinds}
    facts = {
        "name": NAMES[result["dataset"]],
        "rate": rate,
        "slack": DELTA_PRIME,
        "leads": _describe_leads(result) if "fresh" in result else None,
        "seeds": len(result["trainings"]),
        "means": {kind: float(np.mean(values)) for kind, values in accuracies.items()},
        "least": {kind: min(values) for kind, values in accuracies.items()},
        "file": f"knowledge_transfer/{result['dataset']}{'' if rate is None else f'-rate-{rate:g}'}.json",
        "tables": [_select_rows(result["labels"], m) for m in result["allowances"]],
        "totals": [
            row | {"papers": _format_pair(row["printed"], "({epsilon:.3f}, {delta:.3f})")} for row in result["totals"]
        ],
        "students": students,
        "exact": [
            {"m": m}
            | {
                row["aggregator"]: f"{row['mean']:.4f}{_format_error(row, '.4f')}"
                for row in result["exact"]
                if row["m"] == m
            }
            for m in result["allowances"]
        ],
    }
    return fill_template("knowledge_transfer", facts, result, template="section")


def _describe_leads(result: Row) -> str:
    """Describe the lead of gamma_opt's accuracy over gamma_Sub's, with fresh randomness."""
    accuracies = {(row["m"], row["aggregator"]): row["right"] for row in result["fresh"]}
    leads = {m: accuracies[m, settings.OPTIMAL] - accuracies[m, settings.SUBSAMPLING] for m in result["allowances"]}
    return ", ".join(f"{lead:+.4f} at m = {m}" for m, lead in leads.items())


def _select_rows(rows: Sequence[Row], m: int) -> Row:
    """Select the rows of one m, in the order of the aggregators."""
    method_rows = [row for row in rows if row["m"] == m]
    method_rows.sort(key=lambda row: settings.AGGREGATORS.index(row["aggregator"]))
    formatted_rows = [
        row | {"papers": _format_pair(row["printed"], "{mean:.2f} ({std:.2f})"), "error": _format_error(row, ".3f")}
        for row in method_rows
    ]
    facts = {row["aggregator"]: row["facts"] for row in method_rows}
    return {"m": m, "number": settings.TABLE_OF[m], "rows": formatted_rows, "facts": facts}


def _format_error(row: Row, form: str) -> str:
    error = row.get("all_draws", row).get("standard_error")
    return "" if error is None else f" ±{error:{form}}"


def _format_pair(numbers: Row | None, form: str) -> str:
    return "–" if numbers is None else form.format(**numbers)


def draw(path: Path, result: Row, queries: int) -> None:
    """Plot accuracy over m at one Q: our lines, and the paper's hollow markers."""
    rows = [row for row in result["labels"] if row["queries"] == queries]
    allowances = result["allowances"]
    with save_figure(path, width=8.0, height=5.0) as figure:
        axes = figure.subplots()
        for place, name in enumerate(settings.AGGREGATORS):
            line = style(place)
            rows_by_m = {row["m"]: row for row in rows if row["aggregator"] == name}
            means = [rows_by_m[m]["all_draws"]["mean"] for m in allowances]
            errors = [rows_by_m[m]["all_draws"].get("standard_error", 0.0) for m in allowances]
            axes.errorbar(allowances, means, yerr=errors, capsize=3, label=name, **line.line(len(allowances)))
            printed_points = [(m + 0.12, row["printed"]["mean"]) for m, row in rows_by_m.items() if row["printed"]]
            if printed_points:
                markers = {"linestyle": "none", "marker": line.marker, "markerfacecolor": "none", "color": line.color}
                axes.plot(*zip(*printed_points, strict=True), label=f"{name}, the paper", **markers)
        axes.set(
            xticks=allowances,
            xlabel="privacy allowance m (one label costs m times one teacher)",
            ylabel=f"right labels of Q = {queries}",
            title=f"{NAMES[result['dataset']]}: labels from 11 teachers, {len(result['trainings'])} training(s)",
        )
        axes.grid(visible=True, alpha=0.3)
        figure.legend(loc="outside right center", fontsize="small")
