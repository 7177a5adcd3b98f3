"""The page about the paper's simulations, written from the numbers of a run and nothing else."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from darrm.plan.accuracy import accuracy_of_majorities
from darrm.priors import Prior
from experiments.pages import Row, claims_table, filled, read_json, table
from experiments.simulations import curves
from experiments.simulations.claims import curve_of, decide
from experiments.simulations.settings import ACTUALS, PANELS

ZERO = 1e-12  # errors below are rounding


def read_folder(folder: Path) -> tuple[dict[str, Row], list[Row] | None]:
    """Read the figures that lie in a folder, and Table 3 or None."""
    paths = {name: folder / f"figure{name}.json" for name in PANELS}
    rows = folder / "table3.json"
    figures = {name: read_json(path) for name, path in paths.items() if path.exists()}
    return figures, read_json(rows) if rows.exists() else None


def page(folder: Path) -> str:
    """Fill the page from the JSON files of its folder."""
    figures, rows = read_folder(folder)
    if not figures and rows is None:
        raise ValueError(f"{folder} holds no results: run some figures first")
    facts = {
        "claims": claims_table(decide(figures, rows)),
        "surrogate": _surrogate(figures["2"]) if "2" in figures else None,
        "priors": _priors(figures["9"]) if "9" in figures else None,
        "figures": [_section(data) for data in figures.values()],
        "table_3": rows,
    }
    return filled("simulations", facts)


def _section(data: Row) -> Row:
    """Sum up a figure: right labels and errors under each law, what was scaled, and the largest gap."""
    figure, panels = data["figure"], data["panels"]
    first = panels[0]["curves"]
    head = ["panel", *(curve["name"] for curve in first)]
    laws = []
    for place, error in enumerate(first[0]["errors"]):
        law = ACTUALS[figure][error["actual"]]
        right = [[panel["title"], *(_right(curve["gamma"], law) for curve in panel["curves"])] for panel in panels]
        errors = [[panel["title"], *(_error(curve["errors"][place]) for curve in panel["curves"])] for panel in panels]
        laws.append({"actual": error["actual"], "right": table(head, right), "errors": table(head, errors)})
    curves_of = [(panel["title"], curve) for panel in panels for curve in panel["curves"]]
    scaled = [
        f"{curve['name']} by 1 − {1.0 - curve['scale']:.1e} at {title}"
        for title, curve in curves_of
        if curve["scale"] < 1.0 - 1e-12
    ]
    gap = max(curve["gap"] for _, curve in curves_of if curve["gap"] is not None)
    draws = first[0]["errors"][0]["draws"]
    is_it = {f"is_{figure}": True}
    return is_it | {"figure": figure, "draws": draws, "laws": laws, "scaled": "; ".join(scaled), "gap": gap}


def _right(gamma: Sequence[float], law: Prior) -> str:
    """Write the share of right labels of a noise function on l = 0 … K ones, K odd."""
    K = len(gamma) - 1
    share = accuracy_of_majorities(0.5 + 0.5 * np.array(gamma[K // 2 + 1 :]), K, law)
    return "–" if share is None else f"{share.value:.4f}"


def _surrogate(data: Row) -> list[Row]:
    """Show what the surrogate gives up, by m."""
    rows = []
    for panel in data["panels"]:
        surrogate, true = (curve_of(panel, name)["errors"][0] for name in (curves.OPTIMAL, curves.TRUE))
        ratio = surrogate["mean"] / true["mean"] if true["mean"] > ZERO else None
        rows.append({"panel": panel["title"], "optimal": _error(surrogate), "true": _error(true), "ratio": ratio})
    return rows


def _priors(data: Row) -> list[Row]:
    """Show what the optimum for U[0, 1] gives up where voters agree."""
    rows = []
    for panel in data["panels"]:
        errors = [curve_of(panel, name)["errors"] for name in (curves.OPTIMAL_U, curves.OPTIMAL_P, curves.TRUE)]
        for law in (0, 2):
            written = " | ".join(_error(of_curve[law]) for of_curve in errors)
            rows.append({"panel": panel["title"], "law": errors[0][law]["actual"], "errors": written})
    return rows


def _error(error: Row) -> str:
    mean, spread = error["mean"], error["standard_error"]
    if mean < ZERO:
        return "0"
    return f"{mean:{'.4f' if mean >= 1e-3 else '.1e'}} ± {spread:{'.4f' if spread >= 5e-5 else '.0e'}}"
