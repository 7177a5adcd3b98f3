"""The page about the paper's simulations, and its claims, from the numbers of a run."""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from operator import itemgetter
from pathlib import Path

import numpy as np

from darrm.plan.accuracy import accuracy_of_majorities
from darrm.priors import Prior
from experiments.pages import Row, filled, read_json, table
from experiments.simulations import curves
from experiments.simulations.curves import ACTUALS, PANELS

# "the same" and "zero": far below a pixel, far above the solver's precision
SAME = 1e-6
# a larger difference, in standard errors, is seen
STANDARD_ERRORS = 4.0
BASELINES = (curves.SUB, curves.DOUBLE_SUB, curves.CONSTANT)


def decided(figures: Mapping[str, Row], table: Sequence[Row] | None) -> Row:
    """Decide every claim of the template whose figures were run; a claim without figures is missing."""
    found: Row = {"surrogate": _surrogate_excess(figures), "baselines": _beaten(figures, BASELINES)}
    found["constant"], found["flat"] = (_beaten(figures, (name,)) for name in (curves.BEST_CONSTANT, curves.FLAT))
    found["zero"] = [_zero_from_half(figures[figure]) for figure in ("7", "8") if figure in figures]
    if "2" in figures:
        found["best"] = _subsampling_best_at_one(figures["2"])
    if "2" in figures and "7" in figures:
        found["same"] = _same_at_one(figures)
    if "9" in figures:
        found["both"] = _both_beat_the_baselines(figures["9"])
        found["priors"] = list(_priors(figures["9"]))
    if table is not None:
        wrong = [row["M"] for row in table if not row["agrees"]]
        found["table"] = {"holds": not wrong, "wrong": wrong}
    return found


def curve_of(panel: Row, name: str) -> Row:
    return next(curve for curve in panel["curves"] if curve["name"] == name)


def _at_one(data: Row) -> Row:
    """Find the panel of m = 1."""
    return next(panel for panel in data["panels"] if panel["m"] == 1.0)


def _same_at_one(figures: Mapping[str, Row]) -> Row:
    """Compare γ_opt with γ_Sub at m = 1; with Δ > 0 the optimum may gain of the order of Δ."""
    approximate, pure = (
        float(np.max(np.abs(np.subtract(*(curve_of(panel, name)["gamma"] for name in (curves.OPTIMAL, curves.SUB))))))
        for panel in (_at_one(figures["2"]), _at_one(figures["7"]))
    )
    return {"holds": approximate < 1e-3 and pure < SAME, "approximate": approximate, "pure": pure}


def _subsampling_best_at_one(data: Row) -> Row:
    """Compare γ_Sub with the optimum for the error itself; both are averages over the same draws."""
    sub, true = (curve_of(_at_one(data), name)["errors"][0] for name in (curves.SUB, curves.TRUE))
    spread = true["excess_standard_error"] + sub["excess_standard_error"]
    gain = sub["excess"] - true["excess"]
    return {"holds": gain <= STANDARD_ERRORS * spread, "true": true, "sub": sub, "gain": gain, "spread": spread}


def _both_beat_the_baselines(data: Row) -> Row:
    """Compare the means of both optimized curves with the paper's baselines under each of the paper's laws."""
    ours, baselines = (curves.OPTIMAL_U, curves.OPTIMAL_P), (curves.SUB, curves.CONSTANT)
    excess = [
        own["mean"] - other["mean"]
        for panel, name, baseline in itertools.product(data["panels"], ours, baselines)
        for own, other in zip(curve_of(panel, name)["errors"], curve_of(panel, baseline)["errors"], strict=True)
    ]
    return {"holds": max(excess) <= SAME, "most": max(excess), "number": len(excess)}


def _surrogate_excess(figures: Mapping[str, Row]) -> Row:
    """Compare the paper's γ_opt with the baselines in the objective that it optimizes."""
    excesses = [
        (first["surrogate"] - baseline["surrogate"], f"Figure {figure}, {panel['title']}, {baseline['name']}")
        for figure, panel, first, baseline in _pairs(figures, BASELINES)
    ]
    worst, where = max(excesses, key=itemgetter(0), default=(float("-inf"), ""))
    return {"holds": worst <= SAME, "worst": worst, "where": where}


def _beaten(figures: Mapping[str, Row], names: Sequence[str]) -> Row:
    """List where the paper's γ_opt has a larger error than baselines, beyond chance."""
    beaten, count = [], 0
    for figure, panel, _, baseline in _pairs(figures, names):
        for error in baseline["errors"]:
            count += 1
            if error["excess"] < -max(STANDARD_ERRORS * error["excess_standard_error"], SAME):
                where = f"Figure {figure}, {panel['title']}, {error['actual']}"
                beaten.append(f"{baseline['name']} by {-error['excess']:.2g} in {where}")
    measured = "beaten by " + "; ".join(beaten) if beaten else f"in none of {count} comparisons"
    return {"holds": not beaten, "measured": measured}


def _pairs(figures: Mapping[str, Row], names: Sequence[str]) -> Iterator[tuple[str, Row, Row, Row]]:
    for figure, data in figures.items():
        for panel in data["panels"]:
            for curve in panel["curves"]:
                if curve["name"] in names:
                    yield figure, panel, panel["curves"][0], curve


def _zero_from_half(data: Row) -> Row:
    """Return the largest error of γ_opt and γ_DSub over the panels with m ≥ (K+1)/2."""
    panels = [panel for panel in data["panels"] if 2 * panel["m"] >= panel["K"] + 1]
    names = (curves.OPTIMAL, curves.DOUBLE_SUB)
    largest = max(curve_of(panel, name)["errors"][0]["mean"] for panel in panels for name in names)
    allowances = [panel["m"] for panel in panels]
    return {"holds": largest < SAME, "figure": data["figure"], "largest": largest, "allowances": allowances}


def _priors(data: Row) -> Iterator[Row]:
    for index, error in enumerate(data["panels"][0]["curves"][0]["errors"]):
        excess = [curve_of(panel, curves.OPTIMAL_P)["errors"][index] for panel in data["panels"]]
        shown = ", ".join(f"{entry['excess']:+.2e} ± {entry['excess_standard_error']:.0e}" for entry in excess)
        seen = [STANDARD_ERRORS * entry["excess_standard_error"] for entry in excess]
        costs = [entry["excess"] > max(limit, SAME) for entry, limit in zip(excess, seen, strict=True)]
        helps = [entry["excess"] < -limit for entry, limit in zip(excess, seen, strict=True)]
        holds, what = all(helps), "the matching prior helps" + " (not in the paper)" * (index > 2)
        if index < 2:
            # under U[0, 1] the cost is seen at both m, with p_i = 0.5 it would have to be seen at one
            holds, what = any(costs) if index else all(costs), "the prior T_P costs a little"
        yield {"holds": holds, "law": error["actual"], "what": what, "shown": shown}


ZERO = 1e-12  # errors below are rounding


def read_folder(folder: Path) -> tuple[dict[str, Row], list[Row] | None]:
    """Read the figures that lie in a folder, and Table 3 or None."""
    paths = {name: folder / f"figure{name}.json" for name in PANELS}
    rows = folder / "table3.json"
    figures = {name: read_json(path) for name, path in paths.items() if path.exists()}
    return figures, read_json(rows) if rows.exists() else None


def page(folder: Path) -> str:
    figures, rows = read_folder(folder)
    if not figures and rows is None:
        raise ValueError(f"{folder} holds no results: run some figures first")
    return page_of(figures, rows)


def page_of(figures: Mapping[str, Row], rows: Sequence[Row] | None) -> str:
    """Fill the page from the figures and from Table 3."""
    facts = {
        "found": decided(figures, rows),
        "surrogate": _surrogate(figures["2"]) if "2" in figures else None,
        "priors": _prior_rows(figures["9"]) if "9" in figures else None,
        "figures": [_section(data) for data in figures.values()],
        "table_3": rows,
    }
    return filled("simulations", facts)


def _section(data: Row) -> Row:
    """Summarize a figure: right labels and errors under each law, scales, and the largest gap."""
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
    flat = [(panel["budget"], curve_of(panel, curves.FLAT)["worst_cost"]) for panel in panels]
    whole = "; ".join(f"{cost:.4f} of {budget:.4f}" for budget, cost in flat)
    is_it = {f"is_{figure}": True}
    return is_it | {
        "figure": figure,
        "draws": draws,
        "laws": laws,
        "scaled": "; ".join(scaled),
        "gap": gap,
        "whole": whole,
    }


def _right(gamma: Sequence[float], law: Prior) -> str:
    """Write the share of right labels of a noise function on l = 0 … K ones, K odd."""
    K = len(gamma) - 1
    share = accuracy_of_majorities(0.5 + 0.5 * np.array(gamma[K // 2 + 1 :]), K, law)
    return "–" if share is None else f"{share.value:.4f}"


def _surrogate(data: Row) -> list[Row]:
    rows = []
    for panel in data["panels"]:
        surrogate, true = (curve_of(panel, name)["errors"][0] for name in (curves.OPTIMAL, curves.TRUE))
        ratio = surrogate["mean"] / true["mean"] if true["mean"] > ZERO else None
        rows.append({"panel": panel["title"], "optimal": _error(surrogate), "true": _error(true), "ratio": ratio})
    return rows


def _prior_rows(data: Row) -> list[Row]:
    """Show the loss of the optimum for U[0, 1] with agreeing voters."""
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
