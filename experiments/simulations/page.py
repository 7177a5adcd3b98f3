"""The page about the paper's simulations, written from the numbers of a run and nothing else."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from darrm.laws.priors import Prior
from darrm.plan.share_right import share_of_majorities
from experiments.pages import claims_table, picture, read_json, table
from experiments.simulations import curves
from experiments.simulations.claims import curve_of, decide
from experiments.simulations.settings import ACTUALS, PANELS

INTRODUCTION = """\
# The paper's simulations

This page is written by `python -m experiments.simulations --all --output docs/reproduction`; every number comes from
the JSON files beside the pictures. Every γ is the one that was certified, so every curve is private as stated.

*Right labels* are the share of released labels that are the majority of the votes, 0.5 for a coin; they are summed up
exactly under the law of the p_i. *Errors* are the paper's, |Pr[DaRRM = 1] − Pr[majority = 1]| [D, Definition 2.4]: a
distance between two laws, which is small, too, where the majority is a toss-up itself. They are averaged over
independent draws of **K** probabilities, the same draws for all methods; ± is one standard error.

γ_opt optimizes the paper's linear surrogate over U[0.5, 1], γ_true the error itself over U[0, 1]
(`objective="expected-error"`, fitted on other draws), γ_mono the surrogate among monotone γ. γ_const is the paper's, by
simple composition (Figure 6: general); γ_const* takes the best of both over many slacks δ′, the default of `darrm`."""

SURROGATE = """\
[D, Eq. 2] minimizes the mean of an absolute value. The paper drops the absolute value, which under U[0, 1] would leave
nothing (every mean of α_l − α_{K−l} is 0), and integrates over p_i ∈ [0.5, 1] instead. That puts the weight near
l = 0.75·K: the surrogate thinks that the voters lean one way together. Voters drawn from U[0, 1] disagree, the votes
are mostly near the tie, and there the truth has to be told. The two optimize for different worlds, and a prior is how
one says which world it is; it must be public."""

CAPTIONS = {
    "2": "K = 11, ε = 0.1, Δ = 1e-5, δ = 1 − (1 − Δ)^m",
    "6": "K = 35, ε = 0.1, Δ = 1e-5, targets by general composition of M voters with δ′ = 0.1",
    "7": "K = 11, ε = 0.1, Δ = δ = 0",
    "8": "K = 101, ε = 0.1, Δ = δ = 0",
    "9": "K = 11, ε = 0.1, Δ = δ = 0: two priors, four laws of p_i (the last, T_P = U([0, 0.3] ∪ [0.7, 1]), is ours)",
}

NOTES = {
    "2": (
        "At m = 1, γ_opt is γ_Sub: the optimum of the surrogate. The paper takes this as subsampling being optimal "
        "(Lemma 3.2), which is about identically distributed voters. With different p_i it is not: γ_true is certified "
        "for the same target, and its mean error under U[0, 1] is smaller, see the claims above."
    ),
    "6": (
        "γ_const uses the paper's (τ, λ) of Table 3. γ_Sub is the majority of M voters. With δ near 0.1 the optimum is "
        "γ = 1 everywhere, the majority without noise: such a target protects little."
    ),
    "9": (
        "With p_i = 0.5 for all voters and odd K, α_l = α_{K−l}: **every** noise function has error 0, whatever its "
        "prior, and no cost of a wrong prior can be seen there. The paper expects one; its public script draws K + 1 "
        "probabilities for its error estimate, which would break that symmetry. Under T_P itself (last law) γ_opt-P is "
        "no gain either: its surrogate integrates over [0.7, 1], where all voters lean the same way, while under T_P "
        "they lean either way."
    ),
}

PICTURED = (
    "Above, γ(l) over the number of ones; below, the mean error of each γ on a logarithmic axis, the same for all "
    "panels of a row, with 0 written where the error is rounding. A method has one color, dash and marker throughout."
)
ZERO = 1e-12  # errors below are rounding


def read_folder(folder: Path) -> tuple[dict[str, dict[str, Any]], list[dict[str, Any]] | None]:
    """Read the figures that lie in a folder, and Table 3 or None."""
    paths = {name: folder / f"figure{name}.json" for name in PANELS}
    rows = folder / "table3.json"
    figures = {name: read_json(path) for name, path in paths.items() if path.exists()}
    return figures, read_json(rows) if rows.exists() else None


def page(folder: Path) -> str:
    """Write the page from the JSON files of its folder."""
    figures, rows = read_folder(folder)
    if not figures and rows is None:
        raise ValueError(f"{folder} holds no results: run some figures first")
    parts = [INTRODUCTION, "## What agrees with the paper, and what does not", claims_table(decide(figures, rows))]
    if "2" in figures:
        parts += [
            _surrogate(figures["2"], figures.get("9")),
            _picture("2"),
        ]
    for name, data in figures.items():
        parts.append(figure_section(data, None if name == "2" else _picture(name)))
    if rows is not None:
        parts.append(table_3_section(rows))
    return "\n\n".join(parts) + "\n"


def figure_section(data: dict[str, Any], picture: str | None = None) -> str:
    """Write what a figure shows, with its picture."""
    panels = data["panels"]
    first = panels[0]["curves"]
    parts = [f"## Figure {data['figure']}", f"{CAPTIONS[data['figure']]}. {first[0]['errors'][0]['draws']:,} draws."]
    parts += [part for part in (picture, NOTES.get(data["figure"])) if part]
    head = ["panel", *(curve["name"] for curve in first)]
    for index, error in enumerate(first[0]["errors"]):
        actual = error["actual"]
        law = ACTUALS[data["figure"]][actual]
        right = [[panel["title"], *(_right(curve["gamma"], law) for curve in panel["curves"])] for panel in panels]
        errors = [[panel["title"], *(_error(curve["errors"][index]) for curve in panel["curves"])] for panel in panels]
        parts += [f"Right labels, {actual}:", table(head, right), f"Error, {actual}:", table(head, errors)]
    curves_of = [(panel["title"], curve) for panel in panels for curve in panel["curves"]]
    scaled = [
        f"{curve['name']} by 1 − {1.0 - curve['scale']:.1e} at {title}"
        for title, curve in curves_of
        if curve["scale"] < 1.0 - 1e-12
    ]
    if scaled:
        parts.append("Scaled by certification: " + "; ".join(scaled) + ".")
    gap = max(curve["gap"] for _, curve in curves_of if curve["gap"] is not None)
    parts.append(f"Largest optimality gap of the optimized curves, each in its own objective: {gap:.1e}.")
    return "\n\n".join(parts)


def table_3_section(rows: Sequence[dict[str, Any]]) -> str:
    """Write Table 3 beside the printed digits."""
    names = ("m", "tau", "lambda", "m epsilon", "delta")
    cells = [[row["M"], *(f"{row[name]:.4f}" for name in names), ", ".join(row["printed"])] for row in rows]
    return "## Table 3\n\n" + table(["M", "m", "τ", "λ", "mε", "δ", "the paper prints"], cells)


def _picture(figure: str) -> str:
    return picture(f"simulations/figure{figure}.png", f"Figure {figure}", PICTURED)


def _right(gamma: Sequence[float], law: Prior) -> str:
    """Write the share of right labels of a noise function on l = 0 … K ones, K odd."""
    K = len(gamma) - 1
    share = share_of_majorities(0.5 + 0.5 * np.array(gamma[K // 2 + 1 :]), K, law)
    return "–" if share is None else f"{share.value:.4f}"


def _surrogate(data: dict[str, Any], priors: dict[str, Any] | None) -> str:
    """Show what the surrogate gives up, by m, and what the optimum for U[0, 1] gives up where voters agree."""
    rows = []
    for panel in data["panels"]:
        surrogate, true = (curve_of(panel, name)["errors"][0] for name in (curves.OPTIMAL, curves.TRUE))
        ratio = f"{surrogate['mean'] / true['mean']:.2f}" if true["mean"] > ZERO else "–"
        rows.append([panel["title"], _error(surrogate), _error(true), ratio])
    parts = [
        "## What the surrogate gives up, and why a prior matters",
        SURROGATE,
        table(["panel", "error of γ_opt (surrogate)", "error of γ_true", "ratio"], rows),
    ]
    if priors is not None:
        rows = []
        for panel in priors["panels"]:
            chosen = [curve_of(panel, name)["errors"] for name in (curves.OPTIMAL_U, curves.OPTIMAL_P, curves.TRUE)]
            rows += [
                [panel["title"], chosen[0][law]["actual"], *(_error(errors[law]) for errors in chosen)]
                for law in (0, 2)
            ]
        parts += [
            "The other way round: where the voters do agree, the optimum for U[0, 1] is the wrong choice.",
            table(["panel", "law of the p_i", "γ_opt-U", "γ_opt-P", "γ_true"], rows),
        ]
    return "\n\n".join(parts)


def _error(error: dict[str, Any]) -> str:
    mean, spread = error["mean"], error["standard_error"]
    if mean < ZERO:
        return "0"
    return f"{mean:.4f} ± {spread:.4f}" if mean >= 1e-3 else f"{mean:.1e} ± {spread:.0e}"
