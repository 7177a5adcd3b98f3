"""The page about the paper's simulations, written from the numbers of a run and nothing else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from darrm.system.files import write_text
from experiments.simulations import curves
from experiments.simulations.claims import curve_of, decide

INTRODUCTION = """\
# The paper's simulations

This page is written by `python -m experiments.simulations --all --output docs/reproduction`; every number comes from
the JSON files beside the pictures. Every γ is the one that was certified, so every curve is private as stated. Errors
are |Pr[DaRRM = 1] − Pr[majority = 1]| [D, Definition 2.4], averaged over independent draws of **K** probabilities, the
same draws for all methods; ± is one standard error. γ_opt optimises the paper's linear surrogate over U[0.5, 1], γ_true
the error itself over U[0, 1] (`objective="expected-error"`, fitted on other draws), γ_mono the surrogate among
monotone γ. γ_const is the paper's, by simple composition (Figure 6: general); γ_const* takes the best of both over many
slacks δ′, the default of `darrm`.
"""

SURROGATE = """\
[D, Eq. 2] minimises the mean of an absolute value. The paper drops the absolute value, which under U[0, 1] would leave
nothing (every mean of α_l − α_{K−l} is 0), and integrates over p_i ∈ [0.5, 1] instead. That puts the weight near
l = 0.75·K: the surrogate thinks that the voters lean one way together. Voters drawn from U[0, 1] disagree, the votes
are mostly near the tie, and there the truth has to be told. The two optimise for different worlds, and a prior is how
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


def write_page(
    path: Path, folder: str, figures: Mapping[str, dict[str, Any]], table: Sequence[dict[str, Any]] | None
) -> None:
    """Write the page; ``folder`` is where its pictures are, as seen from it."""
    sections = [INTRODUCTION, _claims(figures, table)]
    if "2" in figures:
        sections.append(_surrogate(figures["2"], figures.get("9"), folder))
    sections += [_figure(data, folder) for data in figures.values()]
    if table is not None:
        sections.append(_table_3(table))
    write_text(path, "\n".join(sections))


def _claims(figures: Mapping[str, dict[str, Any]], table: Sequence[dict[str, Any]] | None) -> str:
    lines = ["## What agrees with the paper, and what does not", "", "| claim | | evidence |", "|---|---|---|"]
    lines += [
        f"| {claim.text} | {'holds' if claim.holds else '**does not hold**'} | {claim.evidence} |"
        for claim in decide(figures, table)
    ]
    return "\n".join(lines) + "\n"


def _surrogate(data: dict[str, Any], priors: dict[str, Any] | None, folder: str) -> str:
    """Show what the surrogate gives up, by m."""
    lines = [
        "## What the surrogate gives up, and why a prior matters",
        "",
        SURROGATE,
        "",
        "| | error of γ_opt (surrogate) | error of γ_true | ratio |",
        "|---|---|---|---|",
    ]
    for panel in data["panels"]:
        surrogate, true = (curve_of(panel, name)["errors"][0] for name in (curves.OPTIMAL, curves.TRUE))
        ratio = surrogate["mean"] / true["mean"] if true["mean"] > 1e-12 else float("nan")
        shown = f"{ratio:.2f}" if ratio == ratio else "–"  # noqa: PLR0124 (not a number)
        lines.append(f"| {panel['title']} | {_error(surrogate)} | {_error(true)} | {shown} |")
    if priors is not None:
        lines += [
            "",
            "The other way round: where the voters do agree, the optimum for U[0, 1] is the wrong choice.",
            "",
        ]
        lines += ["| | law of the p_i | γ_opt-U | γ_opt-P | γ_true |", "|---" * 5 + "|"]
        for panel in priors["panels"]:
            chosen = [curve_of(panel, name)["errors"] for name in (curves.OPTIMAL_U, curves.OPTIMAL_P, curves.TRUE)]
            for index in (0, 2):
                cells = " | ".join(_error(errors[index]) for errors in chosen)
                lines.append(f"| {panel['title']} | {chosen[0][index]['actual']} | {cells} |")
    lines += ["", f"![Figure 2: both optima beside the baselines]({folder}/figure2.png)", ""]
    return "\n".join(lines)


def _figure(data: dict[str, Any], folder: str) -> str:
    number = data["figure"]
    draws = data["panels"][0]["curves"][0]["errors"][0]["draws"]
    lines = [f"## Figure {number}", "", f"{CAPTIONS[number]}. {draws:,} draws.", ""]
    if number != "2":
        lines += [f"![Figure {number}]({folder}/figure{number}.png)", ""]
    if number in NOTES:
        lines += [NOTES[number], ""]
    for index, error in enumerate(data["panels"][0]["curves"][0]["errors"]):
        names = [curve["name"] for curve in data["panels"][0]["curves"]]
        lines += [f"Error, {error['actual']}:", "", "| | " + " | ".join(names) + " |", "|---" * (1 + len(names)) + "|"]
        for panel in data["panels"]:
            cells = [_error(curve["errors"][index]) for curve in panel["curves"]]
            lines.append(f"| {panel['title']} | " + " | ".join(cells) + " |")
        lines.append("")
    scaled = [
        f"{curve['name']} by 1 − {1.0 - curve['scale']:.1e} at {panel['title']}"
        for panel in data["panels"]
        for curve in panel["curves"]
        if curve["scale"] < 1.0 - 1e-12
    ]
    if scaled:
        lines += ["Scaled by certification: " + "; ".join(scaled) + ".", ""]
    gaps = [curve["gap"] for panel in data["panels"] for curve in panel["curves"] if curve["gap"] is not None]
    lines += [f"Largest optimality gap of the optimised curves, each in its own objective: {max(gaps):.1e}.", ""]
    return "\n".join(lines)


def _table_3(table: Sequence[dict[str, Any]]) -> str:
    names = ("m", "tau", "lambda", "m epsilon", "delta")
    lines = ["## Table 3", "", "| M | m | τ | λ | mε | δ | the paper prints |", "|---" * 7 + "|"]
    for row in table:
        values = " | ".join(f"{row[name]:.4f}" for name in names)
        lines.append(f"| {row['M']} | {values} | {', '.join(row['printed'])} |")
    return "\n".join(lines) + "\n"


def _error(error: dict[str, Any]) -> str:
    mean, spread = error["mean"], error["standard_error"]
    if mean < 1e-12:
        return "0"
    return f"{mean:.4f} ± {spread:.4f}" if mean >= 1e-3 else f"{mean:.1e} ± {spread:.0e}"
