"""Draw the pictures of a study: Figures 1, 4 and 5 of [P], the comparison, and Figure 10 of [D]."""

import itertools
import math
from collections.abc import Sequence
from pathlib import Path

from darrm.util.extras import require
from darrm.util.figures import Axes, save_figure
from experiments.pages import Row
from experiments.pate.page import BY_LABEL, DPSGD, LINEAR, OURS, PRINTED, SANITIZED, SEARCHED, average, list_points

LNMAX, CONFIDENT, COST, DARK = "#c05621", "#2b6cb0", "#1a1a1a", "#12355b"
SIZES = ("#a0aec0", "#718096", "#4a5568", "#2b6cb0")
CHECKS = {"moderate": ("#63b3ed", "#2c5282"), "aggressive": ("#68d391", "#276749")}
WAYS = {
    PRINTED: ("#a0aec0", "x"),
    SANITIZED: ("#c05621", "s"),
    OURS: ("#2b6cb0", "o"),
    SEARCHED: ("#2b6cb0", "*"),
    BY_LABEL: ("#276749", "^"),
    DPSGD: ("#6b46c1", "D"),
    LINEAR["groups"]: ("#d53f8c", "v"),
    LINEAR["pool"]: ("#97266d", ">"),
}


def draw(folder: Path, result: Row) -> None:
    drawings = {"figure-1": draw_figure_1, "figure-4": draw_figure_4, "figure-5": draw_figure_5}
    if list_points(result):
        drawings["comparison"] = draw_comparison
    for name, draw_one in drawings.items():
        draw_one(folder / f"{result['dataset']}-{name}.png", result)


def draw_figure_1(path: Path, result: Row) -> None:
    """Plot the student's accuracy and ε over the number of answers, and the teachers' agreement."""
    curves = result["figure_1"]
    with save_figure(path, width=14.0, height=4.2) as figure:
        left, middle, right = figure.subplots(1, 3)
        rows = [*result["rows"], *result["points"]]
        for name, key, color in (("LNMax", "lnmax", LNMAX), ("Confident-GNMax", "confident", CONFIDENT)):
            method_rows = sorted((row for row in rows if row["name"] == name), key=lambda row: int(row["answered"]))
            points = [(row["answered"], 100.0 * average(row["students"])) for row in method_rows if row["students"]]
            if points:
                left.plot(*zip(*points, strict=True), "o-", color=color, label=name)
            middle.plot(curves[key]["answered"], curves[key]["epsilon"], color=color, label=name)
            edges, shares = curves["agreement"]["edges"], curves["agreement"][key]
            right.stairs([100.0 * share for share in shares], edges, color=color, label=name, fill=True, alpha=0.45)
        _draw_baseline(left, result)
        left.set(xlabel="answered queries", ylabel="student's accuracy, %", xscale="log")
        _use_plain_numbers(left)
        middle.set(xlabel="answered queries", ylabel=f"ε at δ = {result['delta']:g} (Theorem 6)", ylim=(0, None))
        right.set(xlabel="share of the teachers in the plurality", ylabel="answers, %")
        for axes in (left, middle, right):
            axes.grid(visible=True, alpha=0.3)
            axes.legend(frameon=False)


def draw_figure_4(path: Path, result: Row) -> None:
    """Plot label accuracy over ε for several noise laws (left) and ensemble sizes (right)."""
    curves = result["figure_4"]
    with save_figure(path, width=11.0, height=4.4) as figure:
        panels = figure.subplots(1, 2, sharey=True)
        training = "teachers trained on larger shards" if curves.get("retrained") else "random subsets of the teachers"
        titles = (f"{result['teachers']} teachers", f"GNMax, {training}")
        sides, colors_by_side = ("left", "right"), ((LNMAX, CONFIDENT), SIZES)
        for axes, side, title, colors in zip(panels, sides, titles, colors_by_side, strict=True):
            for curve, color in zip(curves[side], colors[-len(curves[side]) :], strict=True):
                points = [(p["epsilon"], 100.0 * p["accuracy"]) for p in curve["points"] if p["epsilon"] > 0.0]
                axes.plot(*zip(*points, strict=True), "o-", color=color, label=curve["name"])
            axes.set(xscale="log", xlabel=f"ε of {curves['queries']} labels, δ = {result['delta']:g}", title=title)
            _use_plain_numbers(axes)
            axes.grid(visible=True, alpha=0.3)
            axes.legend(fontsize="small")
        panels[0].set_ylabel("right labels, %")


def draw_figure_5(path: Path, result: Row) -> None:
    """Plot the queries that pass each check and the cost of an answer (left), and ε over the answers (right)."""
    numbers = result["figure_5"]
    edges = numbers["edges"]
    with save_figure(path, width=14.0, height=4.8) as figure:
        left, right = figure.subplots(1, 2)
        left.stairs(numbers["all"], edges, fill=True, color="#d7dce3", label="LNMax: every query")
        for name, (color, _) in CHECKS.items():
            left.stairs(numbers["passed"][name], edges, fill=True, color=color, alpha=0.7, label=f"{name} check")
        cost_axes = left.twinx()
        centers = [0.5 * (low + high) for low, high in itertools.pairwise(edges)]
        largest = max(cost for cost in numbers["cost"] if cost is not None)
        dots = [(x, y) for x, y in zip(centers, numbers["cost"], strict=True) if y is not None and y > 1e-12 * largest]
        cost_axes.semilogy(*zip(*dots, strict=True), "o", color=COST, ms=4, label="mean cost of an answer (right axis)")
        cost_axes.set_ylabel(f"Rényi cost at order {numbers['order']:g}, nats")
        left.set(xlabel="votes for the plurality class", ylabel="queries", xlim=(edges[0], edges[-1]))
        handles = [*left.get_legend_handles_labels()[0], *cost_axes.get_legend_handles_labels()[0]]
        left.legend(handles=handles, loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2, frameon=False)
        cost_axes.set_ylim(min(dots[0][1], dots[-1][1], 0.1 * largest) / 2.0, 3.0 * largest)
        for name, (color, dark) in CHECKS.items():
            answered, check, epsilon = (numbers["curves"][name][key] for key in ("answered", "check", "epsilon"))
            right.fill_between(answered, check, color=dark, alpha=0.8, lw=0, label=f"{name}: selecting")
            right.fill_between(answered, check, epsilon, color=color, alpha=0.6, lw=0, label=f"{name}: answering")
        lnmax_curve = numbers["curves"]["LNMax"]
        right.plot(lnmax_curve["answered"], lnmax_curve["epsilon"], color=LNMAX, ls="--", label="LNMax: every query")
        label = f"ε at δ = {result['delta']:g} (Theorem 6)"
        # the top is above the checks' curves, and above LNMax's over the same answers
        max_answered = max(numbers["curves"][name]["answered"][-1] for name in CHECKS)
        pairs = zip(lnmax_curve["answered"], lnmax_curve["epsilon"], strict=True)
        epsilons = [epsilon for answered, epsilon in pairs if answered <= max_answered]
        top = max([*(numbers["curves"][name]["epsilon"][-1] for name in CHECKS), *epsilons])
        right.set(xlabel="answered queries", ylabel=label, xlim=(0, max_answered), ylim=(0, 1.15 * top))
        right.grid(visible=True, alpha=0.3)
        right.legend(frameon=False)


def draw_comparison(path: Path, result: Row) -> None:
    """Plot the final model's accuracy over ε."""
    points = list_points(result)
    with save_figure(path, width=8.0, height=5.4) as figure:
        axes = figure.subplots()
        for method, (color, mark) in WAYS.items():
            values = [(p["epsilon"], 100.0 * p["accuracy"], p["deviation"]) for p in points if p["way"] == method]
            if values:
                x, y, noise = zip(*values, strict=True)
                style = {"ls": ":", "mfc": "none"} if method == PRINTED else {"ls": "-"}
                axes.errorbar(x, y, xerr=noise, color=color, marker=mark, capsize=3, label=method, **style)
        _draw_baseline(axes, result)
        axes.set(xlabel=f"ε at δ = {result['delta']:g}", ylabel="accuracy of the final model, %", xlim=(0, None))
        axes.set_title(f"{result['dataset']}: what a model costs, and how good it is")
        axes.grid(visible=True, alpha=0.3)
        figure.legend(loc="outside lower center", ncols=2, frameon=False)


def draw_figure_10(path: Path, targets: Sequence[Row]) -> None:
    """Plot σ² over the order λ for each target; mark the best and the printed order."""
    with save_figure(path, width=11.0, height=4.0) as figure:
        for axes, target in zip(figure.subplots(1, len(targets)), targets, strict=True):
            axes.plot(target["orders"], target["variances"], color=CONFIDENT, label="σ² that one answer needs")
            for name, mark, color in (("best", "o", CONFIDENT), ("printed", "x", LNMAX)):
                point = target[name]
                label = f"{name} λ = {point['order']:.2f}, where σ = {math.sqrt(point['variance']):.2f}"
                axes.plot(point["order"], point["variance"], mark, color=color, label=label)
            axes.set(xscale="log", yscale="log", xlabel="order λ", ylabel="σ²", title=target["name"])
            _use_plain_numbers(axes)
            axes.grid(visible=True, alpha=0.3)
            axes.legend(frameon=False)


def _draw_baseline(axes: Axes, result: Row) -> None:
    if result["baseline"]:
        axes.axhline(100.0 * average(result["baseline"]), color=COST, ls=":", label="non-private baseline")


def _use_plain_numbers(axes: Axes) -> None:
    """Write 20 instead of 2 × 10¹ along a logarithmic axis, with few enough numbers to fit."""
    ticker = require("matplotlib.ticker")
    axes.xaxis.set_major_locator(ticker.LogLocator(subs=(1.0, 2.0, 5.0)))
    axes.xaxis.set_major_formatter("{x:g}")
    axes.xaxis.set_minor_formatter(ticker.NullFormatter())
