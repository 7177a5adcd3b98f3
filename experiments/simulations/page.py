"""The page about the paper's simulations, and its claims, from the numbers of a run."""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from operator import itemgetter
from pathlib import Path

import numpy as np

from darrm.plan.accuracy import accuracy_of_majorities
from darrm.priors import Prior
from experiments.pages import Claim, Row, filled, read_json, table
from experiments.simulations import curves
from experiments.simulations.curves import ACTUALS, PANELS

# "the same" and "zero": far below a pixel, far above the solver's precision
SAME = 1e-6
# a larger difference, in standard errors, is seen
STANDARD_ERRORS = 4.0
BASELINES = (curves.SUB, curves.DOUBLE_SUB, curves.CONSTANT)


def decide(figures: Mapping[str, Row], table: Sequence[Row] | None) -> Iterator[Claim]:
    """Decide every claim whose figures were run."""
    if "2" in figures and "7" in figures:
        yield _same_at_one(figures)
    if "2" in figures:
        yield _subsampling_best_at_one(figures["2"])
    yield _never_worse_surrogate(figures)
    yield _never_worse_error(figures, BASELINES, "γ_Sub, γ_DSub, γ_const")
    yield _never_worse_error(figures, (curves.BEST_CONSTANT,), "γ_const* of the best composition (not in the paper)")
    for figure in ("7", "8"):
        if figure in figures:
            yield _zero_from_half(figures[figure])
    if "9" in figures:
        yield _both_beat_the_baselines(figures["9"])
        yield from _priors(figures["9"])
    if table is not None:
        wrong = [str(row["M"]) for row in table if not row["agrees"]]
        evidence = "every printed digit of every row" if not wrong else f"differs at M = {', '.join(wrong)}"
        yield Claim("Table 3", evidence, not wrong)


def curve_of(panel: Row, name: str) -> Row:
    """Find a curve of a panel by its name."""
    return next(curve for curve in panel["curves"] if curve["name"] == name)


def _same_at_one(figures: Mapping[str, Row]) -> Claim:
    far = []
    for figure in ("2", "7"):
        panel = next(panel for panel in figures[figure]["panels"] if panel["m"] == 1.0)
        optimal, sub = (np.array(curve_of(panel, name)["gamma"]) for name in (curves.OPTIMAL, curves.SUB))
        far.append(float(np.max(np.abs(optimal - sub))))
    # with Δ > 0 the optimum may gain of the order of Δ
    return Claim(
        "γ_opt = γ_Sub at m = 1",
        f"largest difference {far[1]:.1e} at Δ = 0 (Figure 7) and {far[0]:.1e} at Δ = 1e-5 (Figure 2)",
        far[0] < 1e-3 and far[1] < SAME,
    )


def _subsampling_best_at_one(data: Row) -> Claim:
    """Compare γ_Sub with the optimum for the error itself; both are averages over the same draws."""
    panel = next(panel for panel in data["panels"] if panel["m"] == 1.0)
    sub, true = (curve_of(panel, name)["errors"][0] for name in (curves.SUB, curves.TRUE))
    spread = true["excess_standard_error"] + sub["excess_standard_error"]
    gain = sub["excess"] - true["excess"]
    return Claim(
        "no private γ has a smaller mean error than γ_Sub at m = 1",
        f"γ_true, certified: {true['mean']:.4f} against {sub['mean']:.4f}, {gain:.4f} ± {spread:.4f} less (Figure 2)",
        gain <= STANDARD_ERRORS * spread,
    )


def _both_beat_the_baselines(data: Row) -> Claim:
    """Compare the means of both optimized curves with the paper's baselines under each of the paper's laws."""
    ours, baselines = (curves.OPTIMAL_U, curves.OPTIMAL_P), (curves.SUB, curves.CONSTANT)
    excess = [
        own["mean"] - other["mean"]
        for panel, name, baseline in itertools.product(data["panels"], ours, baselines)
        for own, other in zip(curve_of(panel, name)["errors"], curve_of(panel, baseline)["errors"], strict=True)
    ]
    return Claim(
        "Figure 9: whichever prior was used, no more error than γ_Sub and γ_const",
        f"largest excess {max(excess):.1e} in {len(excess)} comparisons (0 where p_i = 0.5)",
        max(excess) <= SAME,
    )


def _never_worse_surrogate(figures: Mapping[str, Row]) -> Claim:
    excesses = [
        (first["surrogate"] - baseline["surrogate"], f"Figure {figure}, {panel['title']}, {baseline['name']}")
        for figure, panel, first, baseline in _pairs(figures, BASELINES)
    ]
    worst, where = max(excesses, key=itemgetter(0), default=(float("-inf"), ""))
    return Claim(
        "γ_opt never worse than γ_Sub, γ_DSub, γ_const in the objective that it optimizes (exact)",
        f"largest excess {worst:.1e} ({where})",
        worst <= SAME,
    )


def _never_worse_error(figures: Mapping[str, Row], names: Sequence[str], text: str) -> Claim:
    beaten, count = [], 0
    for figure, panel, _, baseline in _pairs(figures, names):
        for error in baseline["errors"]:
            count += 1
            margin = max(STANDARD_ERRORS * error["excess_standard_error"], SAME)
            if error["excess"] < -margin:
                where = f"Figure {figure}, {panel['title']}, {error['actual']}"
                beaten.append(f"{baseline['name']} by {-error['excess']:.2g} in {where}")
    return Claim(
        f"γ_opt never worse than {text}, in the error over independent draws",
        f"in none of {count} comparisons" if not beaten else "beaten by " + "; ".join(beaten),
        not beaten,
    )


def _pairs(figures: Mapping[str, Row], names: Sequence[str]) -> Iterator[tuple[str, Row, Row, Row]]:
    """Yield every baseline with the panel's first curve, the paper's γ_opt."""
    for figure, data in figures.items():
        for panel in data["panels"]:
            for curve in panel["curves"]:
                if curve["name"] in names:
                    yield figure, panel, panel["curves"][0], curve


def _zero_from_half(data: Row) -> Claim:
    panels = [panel for panel in data["panels"] if 2 * panel["m"] >= panel["K"] + 1]
    largest = max(
        curve_of(panel, name)["errors"][0]["mean"] for panel in panels for name in (curves.OPTIMAL, curves.DOUBLE_SUB)
    )
    allowances = ", ".join(format(panel["m"], "g") for panel in panels)
    return Claim(
        f"Figure {data['figure']}: γ_opt and γ_DSub without error for m ≥ (K+1)/2 at Δ = δ = 0",
        f"largest error {largest:.1e} over m = {allowances}",
        largest < SAME,
    )


def _priors(data: Row) -> Iterator[Claim]:
    """Decide whether a matching prior helps and a wrong one costs."""
    for index, error in enumerate(data["panels"][0]["curves"][0]["errors"]):
        excess = [curve_of(panel, curves.OPTIMAL_P)["errors"][index] for panel in data["panels"]]
        shown = ", ".join(f"{entry['excess']:+.2e} ± {entry['excess_standard_error']:.0e}" for entry in excess)
        evidence = f"error of γ_opt-P minus error of γ_opt-U at m = 3 and 5: {shown}"
        seen = [STANDARD_ERRORS * entry["excess_standard_error"] for entry in excess]
        name = error["actual"]
        if index < 2:
            # under U[0, 1] the cost is seen at both m, with p_i = 0.5 it would have to be seen at one
            costs = [entry["excess"] > max(limit, SAME) for entry, limit in zip(excess, seen, strict=True)]
            yield Claim(f"Figure 9, {name}: the prior T_P costs a little", evidence, (all, any)[index](costs))
        else:
            holds = all(entry["excess"] < -limit for entry, limit in zip(excess, seen, strict=True))
            paper = "" if index == 2 else " (not in the paper)"
            yield Claim(f"Figure 9, {name}: the matching prior helps{paper}", evidence, holds)


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
        "claims": decide(figures, rows),
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
    is_it = {f"is_{figure}": True}
    return is_it | {"figure": figure, "draws": draws, "laws": laws, "scaled": "; ".join(scaled), "gap": gap}


def _right(gamma: Sequence[float], law: Prior) -> str:
    """Write the share of right labels of a noise function on l = 0 … K ones, K odd."""
    K = len(gamma) - 1
    share = accuracy_of_majorities(0.5 + 0.5 * np.array(gamma[K // 2 + 1 :]), K, law)
    return "–" if share is None else f"{share.value:.4f}"


def _surrogate(data: Row) -> list[Row]:
    """Show the loss by the surrogate, by m."""
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
