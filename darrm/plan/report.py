"""What `python -m darrm.plan` prints, draws and writes as JSON."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from darrm.gamma.priors import in_words
from darrm.plan.candidate import Candidate
from darrm.plan.search import Plan
from darrm.problem import Workload
from darrm.system.figures import saved_figure

REPORT_FORMAT = "darrm plan report"
REPORT_VERSION = 1
MOST_LINES = 16
STYLES = ("-", "--", ":")


def text_report(plan: Plan, output: Path | None) -> str:
    """Write the plan for a reader."""
    parts = [_heading(plan), _candidates(plan), _truth(plan), _closing(plan, output)]
    return "\n\n".join(parts) + "\n"


def json_report(plan: Plan, output: Path | None) -> dict[str, Any]:
    """Write the plan as plain data; the schema is ``darrm/schemas/plan_report.json``."""
    work = plan.workload
    return {
        "format": REPORT_FORMAT,
        "version": REPORT_VERSION,
        "workload": {
            **{key: value for key, value in plan.table.problem.to_json().items() if key != "target"},
            "queries": work.queries,
            "total": {"epsilon": work.total.epsilon_text, "delta": work.total.delta_text},
        },
        "prior": plan.prior.text,
        "levels": [int(level) for level in plan.table.gamma.levels],
        "candidates": [_candidate_json(candidate) for candidate in plan.candidates],
        "refused": [{"method": method, "reason": reason} for method, reason in plan.refused],
        "output": None if output is None else str(output),
    }


def plot_report(path: Path, plan: Plan) -> None:
    """Draw the probability of the true majority over the number of ones for every candidate."""
    work = plan.workload
    with saved_figure(path) as figure:
        axes = figure.add_subplot()
        for candidate, style in zip(plan.candidates, STYLES, strict=False):
            truth = 0.5 * (1.0 + candidate.table.gamma.half)
            label = f"{candidate.method}   expected error {candidate.expected_error:.4g}"
            axes.plot(candidate.table.gamma.levels, truth, style, linewidth=2.0, label=label)
        axes.set_xlabel("l, votes for the majority")
        axes.set_ylabel("probability of the true majority")
        axes.set_title(f"{_voters(work)}\n{work.queries:,} votes within {work.total}", fontsize=11)
        axes.set_ylim(0.48, 1.02)
        axes.grid(alpha=0.3)
        axes.legend(loc="lower right", framealpha=0.95)


def _candidate_json(candidate: Candidate) -> dict[str, Any]:
    spent = candidate.spent
    return {
        "method": candidate.method,
        "expected_error": candidate.expected_error,
        "settings": dict(candidate.settings),
        "query": candidate.table.problem.to_json()["target"],
        "spent": {"epsilon": spent.epsilon, "delta": spent.delta, "bound": spent.bound},
        "truth": (0.5 * (1.0 + candidate.table.gamma.half)).tolist(),
    }


def _voters(work: Workload) -> str:
    voters = (
        f"{work.voters.K:,} voters, each {work.voters.each}-private"
        if work.voters.each.is_private
        else f"{work.voters.K:,} plain voters"
    )
    return f"{voters}, a person reaching {'all' if work.voters.overlap is None else f'at most {work.voters.overlap}'}"


def _heading(plan: Plan) -> str:
    work = plan.workload
    lines = [
        f"Plan for {work.queries:,} majority votes",
        f"  {_voters(work)}",
        f"  all answers together are to be {work.total}-differentially private",
        f"  decided by the expected error under {in_words(plan.prior)}",
    ]
    if work.voters.each.is_private and work.queries > 1:
        lines.append("  counted a query at a time: voters draw fresh randomness for each (docs/sharp-edges.md)")
    return "\n".join(lines)


def _candidates(plan: Plan) -> str:
    lines = [f"  {'way':<12}{'expected error':>15}   the accountant's total"]
    for candidate in plan.candidates:
        mark = "*" if candidate is plan.best else " "
        spent = candidate.spent
        settings = ", ".join(f"{name} {value:.6g}" for name, value in candidate.settings.items())
        lines.append(
            f"{mark} {candidate.method:<12}{candidate.expected_error:>15.6g}   "
            f"({spent.epsilon:.6g}, {spent.delta:.6g}) by {spent.bound}; a query has {settings}"
        )
    lines += [f"  {method:<12}{'none':>15}   {reason}" for method, reason in plan.refused]
    return "\n".join(lines)


def _truth(plan: Plan) -> str:
    levels = plan.table.gamma.levels
    chosen = list(range(len(levels)))
    if len(levels) > MOST_LINES:
        chosen = sorted({round(place) for place in np.linspace(0, len(levels) - 1, MOST_LINES)})
    header = "".join(f"{candidate.method:>12}" for candidate in plan.candidates)
    lines = ["How often the answer is the true majority of l votes", f"{'l':>8}{header}"]
    for place in chosen:
        truth = "".join(f"{0.5 + 0.5 * candidate.table.gamma.half[place]:>12.4f}" for candidate in plan.candidates)
        lines.append(f"{levels[place]:>8}{truth}")
    if len(chosen) < len(levels):
        lines.append(f"  ({len(chosen)} of {len(levels)} lines shown; --format json has all)")
    return "\n".join(lines)


def _closing(plan: Plan, output: Path | None) -> str:
    certificate, total = plan.table.certificate, plan.workload.total
    lines = [
        f"One query is proved {plan.table.problem.target}-private: {certificate.rows:,} rows, {certificate.method}.",
    ]
    if plan.spent.bound == "pld":
        lines.append("The total needs the privacy loss distribution: install dp-accounting where it is released.")
    if output is None:
        lines.append("Not saved: --output FILE.json keeps the winner's table with its proof.")
        return "\n".join(lines)
    ledger = f"--ledger ledger.sqlite --create-budget {total.epsilon_text},{total.delta_text}"
    lines.append(f"Table written to {output}. Release with")
    lines.append(f"  python -m darrm.release VOTES --table {output} {ledger} --output LABELS")
    return "\n".join(lines)
