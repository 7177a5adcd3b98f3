"""Reproduce the paper's simulations: Figures 2, 6, 7, 8, 9 and Table 3 of [D].

    python -m experiments simulations --recompute --figure 2
    python -m experiments simulations --recompute      # the published page

Writes OUTPUT/simulations/figureN.json and .png, and OUTPUT/simulations.md from all JSON files in that folder. Every γ
is optimized in the run, not read from the packaged tables.
"""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from operator import itemgetter
from pathlib import Path

import numpy as np

from darrm.plan.accuracy import accuracy_of_majorities
from darrm.priors import Prior
from darrm.util.figures import Axes, Style, save_figure, say_instead, style
from experiments import pages
from experiments.pages import Row, fill_template, format_table
from experiments.simulations import curves
from experiments.simulations.curves import ACTUALS, PANELS, compute_figure, compute_table_3

NAME, TABLE = "simulations", "table3"
# for "equal" and "zero": far below a pixel, far above the solver's precision
TOLERANCE = 1e-6
# a larger difference, in standard errors, is significant
MIN_STANDARD_ERRORS = 4.0
BASELINES = (curves.SUB, curves.DOUBLE_SUB, curves.CONSTANT)


def decide_claims(figures: Mapping[str, Row], table: Sequence[Row] | None) -> Row:
    """Decide every claim of the template whose figures exist."""
    claims: Row = {"surrogate": _find_surrogate_excess(figures), "baselines": _find_defeats(figures, BASELINES)}
    claims["constant"], claims["flat"] = (
        _find_defeats(figures, (name,)) for name in (curves.BEST_CONSTANT, curves.FLAT)
    )
    claims["zero"] = [_find_largest_error(figures[figure]) for figure in ("7", "8") if figure in figures]
    if "2" in figures:
        claims["best"] = _compare_subsampling(figures["2"])
    if "2" in figures and "7" in figures:
        claims["same"] = _compare_at_one(figures)
    if "9" in figures:
        claims["both"] = _compare_both_optima(figures["9"])
        claims["priors"] = list(_compare_priors(figures["9"]))
    if table is not None:
        wrong_rows = [row["M"] for row in table if not row["agrees"]]
        claims["table"] = {"holds": not wrong_rows, "wrong": wrong_rows}
    return claims


def find_curve(panel: Row, name: str) -> Row:
    return next(curve for curve in panel["curves"] if curve["name"] == name)


def _find_first_panel(data: Row) -> Row:
    """Find the panel of m = 1."""
    return next(panel for panel in data["panels"] if panel["m"] == 1.0)


def _compare_at_one(figures: Mapping[str, Row]) -> Row:
    """Compare γ_opt with γ_Sub at m = 1; for Δ > 0 they may differ by the order of Δ."""
    approximate, pure = (
        float(np.max(np.abs(np.subtract(*(find_curve(panel, name)["gamma"] for name in (curves.OPTIMAL, curves.SUB))))))
        for panel in (_find_first_panel(figures["2"]), _find_first_panel(figures["7"]))
    )
    return {"holds": approximate < 1e-3 and pure < TOLERANCE, "approximate": approximate, "pure": pure}


def _compare_subsampling(data: Row) -> Row:
    """Compare γ_Sub with the optimum for the error itself; both are averages over the same draws."""
    panel = _find_first_panel(data)
    subsampling, optimum = (find_curve(panel, name)["errors"][0] for name in (curves.SUB, curves.TRUE))
    spread = optimum["excess_standard_error"] + subsampling["excess_standard_error"]
    gain = subsampling["excess"] - optimum["excess"]
    holds = gain <= MIN_STANDARD_ERRORS * spread
    return {"holds": holds, "true": optimum, "sub": subsampling, "gain": gain, "spread": spread}


def _compare_both_optima(data: Row) -> Row:
    """Compare the means of both optimized curves with the paper's baselines under each of the paper's laws."""
    optimized, baselines = (curves.OPTIMAL_U, curves.OPTIMAL_P), (curves.SUB, curves.CONSTANT)
    excess = [
        error["mean"] - baseline_error["mean"]
        for panel, *names in itertools.product(data["panels"], optimized, baselines)
        for error, baseline_error in zip(*(find_curve(panel, name)["errors"] for name in names), strict=True)
    ]
    return {"holds": max(excess) <= TOLERANCE, "most": max(excess), "number": len(excess)}


def _find_surrogate_excess(figures: Mapping[str, Row]) -> Row:
    """Compare the paper's γ_opt with the baselines in the objective that it optimizes."""
    excesses = [
        (first["surrogate"] - baseline["surrogate"], f"Figure {figure}, {panel['title']}, {baseline['name']}")
        for figure, panel, first, baseline in _list_pairs(figures, BASELINES)
    ]
    worst, place = max(excesses, key=itemgetter(0), default=(float("-inf"), ""))
    return {"holds": worst <= TOLERANCE, "worst": worst, "where": place}


def _find_defeats(figures: Mapping[str, Row], names: Sequence[str]) -> Row:
    """List the significant excesses of the paper's γ_opt over the errors of baselines."""
    defeats, count = [], 0
    for figure, panel, _, baseline in _list_pairs(figures, names):
        for error in baseline["errors"]:
            count += 1
            if error["excess"] < -max(MIN_STANDARD_ERRORS * error["excess_standard_error"], TOLERANCE):
                place = f"Figure {figure}, {panel['title']}, {error['actual']}"
                defeats.append(f"{baseline['name']} by {-error['excess']:.2g} in {place}")
    measurement = "beaten by " + "; ".join(defeats) if defeats else f"in none of {count} comparisons"
    return {"holds": not defeats, "measured": measurement}


def _list_pairs(figures: Mapping[str, Row], names: Sequence[str]) -> Iterator[tuple[str, Row, Row, Row]]:
    for figure, data in figures.items():
        for panel in data["panels"]:
            for curve in panel["curves"]:
                if curve["name"] in names:
                    yield figure, panel, panel["curves"][0], curve


def _find_largest_error(data: Row) -> Row:
    """Return the largest error of γ_opt and γ_DSub over the panels with m ≥ (K+1)/2."""
    panels = [panel for panel in data["panels"] if 2 * panel["m"] >= panel["K"] + 1]
    names = (curves.OPTIMAL, curves.DOUBLE_SUB)
    largest = max(find_curve(panel, name)["errors"][0]["mean"] for panel in panels for name in names)
    allowances = [panel["m"] for panel in panels]
    return {"holds": largest < TOLERANCE, "figure": data["figure"], "largest": largest, "allowances": allowances}


def _compare_priors(data: Row) -> Iterator[Row]:
    for index, error in enumerate(data["panels"][0]["curves"][0]["errors"]):
        excess = [find_curve(panel, curves.OPTIMAL_P)["errors"][index] for panel in data["panels"]]
        text = ", ".join(f"{entry['excess']:+.2e} ± {entry['excess_standard_error']:.0e}" for entry in excess)
        limits = [MIN_STANDARD_ERRORS * entry["excess_standard_error"] for entry in excess]
        costs = [entry["excess"] > max(limit, TOLERANCE) for entry, limit in zip(excess, limits, strict=True)]
        helps = [entry["excess"] < -limit for entry, limit in zip(excess, limits, strict=True)]
        holds, statement = all(helps), "the matching prior helps" + " (not in the paper)" * (index > 2)
        if index < 2:
            # under U[0, 1] the claim needs a cost at both m, with p_i = 0.5 at one
            holds, statement = any(costs) if index else all(costs), "the prior T_P costs a little"
        yield {"holds": holds, "law": error["actual"], "what": statement, "shown": text}


MAX_ROUNDING = 1e-12  # smaller errors are rounding


def fill_page(folder: Path) -> str:
    """Fill the page from the figures in a folder, and Table 3 if it is there."""
    results = pages.read_results(folder, [*(f"figure{name}" for name in PANELS), TABLE])
    table = results.pop(TABLE, None)
    return format_page({name.removeprefix("figure"): data for name, data in results.items()}, table)


def format_page(figures: Mapping[str, Row], rows: Sequence[Row] | None) -> str:
    """Fill the page from the figures and Table 3."""
    facts = {
        "found": decide_claims(figures, rows),
        "surrogate": _tabulate_surrogate(figures["2"]) if "2" in figures else None,
        "priors": _tabulate_priors(figures["9"]) if "9" in figures else None,
        "figures": [_summarize_figure(data) for data in figures.values()],
        "table_3": rows,
    }
    return fill_template("simulations", facts)


def _summarize_figure(data: Row) -> Row:
    """Summarize a figure: accuracies and errors under each law, scales, and the largest gap."""
    figure, panels = data["figure"], data["panels"]
    first = panels[0]["curves"]
    head = ["panel", *(curve["name"] for curve in first)]
    laws = []
    for place, error in enumerate(first[0]["errors"]):
        law = ACTUALS[figure][error["actual"]]
        accuracies = [
            [panel["title"], *(_format_accuracy(curve["gamma"], law) for curve in panel["curves"])] for panel in panels
        ]
        errors = [
            [panel["title"], *(_format_error(curve["errors"][place]) for curve in panel["curves"])] for panel in panels
        ]
        tables = {"right": format_table(head, accuracies), "errors": format_table(head, errors)}
        laws.append({"actual": error["actual"], **tables})
    titled_curves = [(panel["title"], curve) for panel in panels for curve in panel["curves"]]
    scale_texts = [
        f"{curve['name']} by 1 − {1.0 - curve['scale']:.1e} at {title}"
        for title, curve in titled_curves
        if curve["scale"] < 1.0 - 1e-12
    ]
    flat_costs = [(find_curve(panel, curves.FLAT)["worst_cost"], panel["budget"]) for panel in panels]
    return {
        f"is_{figure}": True,
        "figure": figure,
        "draws": first[0]["errors"][0]["draws"],
        "laws": laws,
        "scaled": "; ".join(scale_texts),
        "gap": max(curve["gap"] for _, curve in titled_curves if curve["gap"] is not None),
        "whole": "; ".join(f"{cost:.4f} of {budget:.4f}" for cost, budget in flat_costs),
    }


def _format_accuracy(gamma: Sequence[float], law: Prior) -> str:
    """Format the accuracy of a noise function on l = 0 … K ones, for odd K."""
    K = len(gamma) - 1
    share = accuracy_of_majorities(0.5 + 0.5 * np.array(gamma[K // 2 + 1 :]), K, law)
    return "–" if share is None else f"{share.value:.4f}"


def _tabulate_surrogate(data: Row) -> list[Row]:
    rows = []
    for panel in data["panels"]:
        surrogate, optimum = (find_curve(panel, name)["errors"][0] for name in (curves.OPTIMAL, curves.TRUE))
        ratio = surrogate["mean"] / optimum["mean"] if optimum["mean"] > MAX_ROUNDING else None
        errors = {"optimal": _format_error(surrogate), "true": _format_error(optimum)}
        rows.append({"panel": panel["title"], **errors, "ratio": ratio})
    return rows


def _tabulate_priors(data: Row) -> list[Row]:
    """Show the loss of the optimum for U[0, 1] with agreeing voters."""
    rows = []
    for panel in data["panels"]:
        errors = [find_curve(panel, name)["errors"] for name in (curves.OPTIMAL_U, curves.OPTIMAL_P, curves.TRUE)]
        for law in (0, 2):
            texts = " | ".join(_format_error(of_curve[law]) for of_curve in errors)
            rows.append({"panel": panel["title"], "law": errors[0][law]["actual"], "errors": texts})
    return rows


def _format_error(error: Row) -> str:
    mean, spread = error["mean"], error["standard_error"]
    if mean < MAX_ROUNDING:
        return "0"
    return f"{mean:{'.4f' if mean >= 1e-3 else '.1e'}} ± {spread:{'.4f' if spread >= 5e-5 else '.0e'}}"


COLUMN_WIDTH, ROW_HEIGHT, NAME_WIDTH = 2.9, 2.9, 1.3  # inches
WORDS_HEIGHT = 0.7  # inches, of a row without errors to plot
DPI = 100  # small files for the repository
NAMES = (
    (curves.OPTIMAL, curves.OPTIMAL_U),
    (curves.SUB,),
    (curves.TRUE,),
    (curves.MONOTONE,),
    (curves.DOUBLE_SUB, curves.TRUE_P),  # never in the same picture
    (curves.OPTIMAL_P,),
    (curves.CONSTANT,),
    (curves.BEST_CONSTANT,),
    (curves.FLAT,),
)
STYLES: dict[str, Style] = {
    name: style(place, width=1.6 if place else 2.6) for place, names in enumerate(NAMES) for name in names
}
AXIS_FACTOR = 1.6  # the axis extends beyond the errors by this factor


def draw(path: Path, data: Row) -> None:
    panels = data["panels"]
    laws = panels[0]["curves"][0]["errors"]
    heights = [ROW_HEIGHT, *(ROW_HEIGHT if _has_errors(panels, law) else WORDS_HEIGHT for law in range(len(laws)))]
    width = COLUMN_WIDTH * len(panels) + NAME_WIDTH
    with save_figure(path, width=width, height=sum(heights), dpi=DPI) as figure:
        axes = figure.subplots(len(heights), len(panels), squeeze=False, sharey="row", height_ratios=heights)
        for column, panel in enumerate(panels):
            _draw_shapes(axes[0, column], panel)
        axes[0, 0].set_ylabel("γ(l)")
        for law, error in enumerate(laws):
            _draw_errors(axes[1 + law], panels, law, error["actual"])


def _has_errors(panels: list[Row], law: int) -> bool:
    return any(curve["errors"][law]["mean"] > MAX_ROUNDING for panel in panels for curve in panel["curves"])


def _draw_shapes(axes: Axes, panel: Row) -> None:
    levels = np.arange(panel["K"] + 1)
    for curve in panel["curves"]:
        axes.plot(levels, curve["gamma"], alpha=0.85, **STYLES[curve["name"]].line(levels.size))
    axes.set_title(panel["title"], fontsize=10)
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.set_xlabel("l, number of ones", fontsize=8)
    axes.set_ylim(-0.04, 1.06)
    axes.grid(alpha=0.3)


def _draw_errors(row: Sequence[Axes], panels: list[Row], law: int, actual: str) -> None:
    """Plot the mean errors under one law, with one scale for all panels, and method names on the left."""
    names = [curve["name"] for curve in panels[0]["curves"]]
    errors = [[curve["errors"][law] for curve in panel["curves"]] for panel in panels]
    means = [error["mean"] for panel in errors for error in panel if error["mean"] > MAX_ROUNDING]
    lower = 10.0 ** np.floor(np.log10(min(means) / AXIS_FACTOR)) if means else 0.1
    upper = max(means) * AXIS_FACTOR if means else 1.0
    for axes, panel_errors in zip(row, errors, strict=True):
        if all(error["mean"] <= MAX_ROUNDING for error in panel_errors):
            say_instead(axes, f"{actual}:\nthe error of every γ is 0")
            continue
        axes.set(xscale="log", xlim=(lower, upper), ylim=(len(names) - 0.5, -0.8))
        for place, (name, error) in enumerate(zip(names, panel_errors, strict=True)):
            _draw_error(axes, place, STYLES[name], error)
        axes.set_yticks(range(len(names)), labels=names, fontsize=8)
        axes.set_xlabel(f"error, {actual}", fontsize=8)
        axes.tick_params(axis="x", labelsize=7)
        axes.xaxis.minorticks_off()
        axes.grid(axis="x", alpha=0.3)


def _draw_error(axes: Axes, place: int, line_style: Style, error: Row) -> None:
    """Plot one mean as a line with a marker; write a 0 at the left, because a log axis has no 0."""
    lower, upper = axes.get_xlim()
    mean = error["mean"]
    if mean <= MAX_ROUNDING:
        axes.annotate("0", (lower, place), (5, 0), textcoords="offset points", va="center", fontsize=7)
        return
    axes.plot([lower, mean], [place, place], color=line_style.color, linestyle=line_style.dash, linewidth=1.0)
    spread = error["standard_error"]
    axes.errorbar(mean, place, xerr=spread, color=line_style.color, marker=line_style.marker, capsize=2, markersize=6)
    is_right = mean > np.sqrt(lower * upper)
    side = {"ha": "right" if is_right else "left", "textcoords": "offset points", "fontsize": 7}
    text = f"{mean:.3f}" if mean >= 1e-2 else f"{mean:.1e}"
    axes.annotate(text, (mean, place), (-6 if is_right else 6, 5), **side)


def main(arguments: Sequence[str] | None = None) -> int:
    options = pages.make_command_line(NAME, __doc__, figures=(*PANELS, TABLE)).parse_args(arguments)
    folder = pages.prepare_folder(options, NAME)
    selected = pages.select_figures(options, (*PANELS, TABLE))
    if TABLE in selected:
        pages.write_json(folder / f"{TABLE}.json", compute_table_3())
    for name in (name for name in selected if name != TABLE):
        data = compute_figure(name)
        pages.write_json(folder / f"figure{name}.json", data)
        draw(folder / f"figure{name}.png", data)
    return pages.write_page(folder, fill_page(folder))
