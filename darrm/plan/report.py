"""What `python -m darrm.plan` prints, draws and writes as JSON."""

from pathlib import Path
from typing import Any

from darrm.gamma.priors import in_words
from darrm.plan.candidate import Candidate
from darrm.plan.option import release_command, settings_in_words
from darrm.plan.search import Plan
from darrm.system.figures import saved_figure
from darrm.system.report_text import spread

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
    return {
        "format": REPORT_FORMAT,
        "version": REPORT_VERSION,
        "workload": plan.workload.to_json(),
        "counted_as": plan.workload.counted().to_json(),
        "prior": plan.prior.text,
        "levels": [int(level) for level in plan.table.gamma.levels],
        "candidates": [_candidate_json(candidate) for candidate in plan.candidates],
        "refused": [{"method": method, "reason": reason} for method, reason in plan.refused],
        "output": None if output is None else str(output),
    }


def plot_report(path: Path, plan: Plan) -> None:
    """Draw the probability of the true majority over the number of ones for every candidate."""
    with saved_figure(path) as figure:
        axes = figure.add_subplot()
        for candidate, style in zip(plan.candidates, STYLES, strict=False):
            label = f"{candidate.method}   expected error {candidate.expected_error:.4g}"
            axes.plot(candidate.table.gamma.levels, candidate.truth, style, linewidth=2.0, label=label)
        axes.set_xlabel("l, votes for the majority")
        axes.set_ylabel("probability of the true majority")
        budget = f"{plan.workload.queries:,} votes within {plan.workload.total}"
        axes.set_title(f"{plan.workload.voters}\n{budget}", fontsize=9)
        axes.set_ylim(0.48, 1.02)
        axes.grid(alpha=0.3)
        axes.legend(loc="lower right", framealpha=0.95)


def _candidate_json(candidate: Candidate) -> dict[str, Any]:
    """Write one candidate as plain data."""
    spent = candidate.spent
    return {
        "method": candidate.method,
        "expected_error": candidate.expected_error,
        "settings": dict(candidate.settings),
        "query": candidate.table.problem.target.to_json(),
        "spent": {"epsilon": spent.epsilon, "delta": spent.delta, "bound": spent.bound},
        "truth": candidate.truth.tolist(),
    }


def _heading(plan: Plan) -> str:
    """Write what was asked, and how the voters are counted."""
    work = plan.workload
    lines = [
        f"Plan for {work.queries:,} majority votes",
        f"  {work.voters}",
        f"  all answers together are to be {work.total}-differentially private",
        f"  decided by the expected error under {in_words(plan.prior)}",
    ]
    if plan.workload.counted() != work:
        lines.append("  counted by their votes alone: answers of models share their training's randomness, so sums of")
        lines.append("  their own guarantees over queries are not proved (docs/sharp-edges.md)")
    elif work.voters.each.is_private and work.queries > 1:
        lines.append("  counted a query at a time: voters draw fresh randomness for each (docs/sharp-edges.md)")
    return "\n".join(lines)


def _candidates(plan: Plan) -> str:
    """Tabulate what was found and what was not, the winner marked."""
    lines = [f"  {'way':<12}{'expected error':>15}   the accountant's total"]
    for candidate in plan.candidates:
        mark = "*" if candidate is plan.best else " "
        spent = candidate.spent
        lines.append(
            f"{mark} {candidate.method:<12}{candidate.expected_error:>15.6g}   ({spent.epsilon:.6g}, {spent.delta:.6g})"
            f" by {spent.bound}; a query has {settings_in_words(candidate.settings)}"
        )
    lines += [f"  {method:<12}{'none':>15}   {reason}" for method, reason in plan.refused]
    return "\n".join(lines)


def _truth(plan: Plan) -> str:
    """Tabulate the probability of the truth at some numbers of votes."""
    levels = plan.table.gamma.levels
    chosen = spread(len(levels), MOST_LINES)
    header = "".join(f"{candidate.method:>12}" for candidate in plan.candidates)
    lines = ["How often the answer is the true majority of l votes", f"{'l':>8}{header}"]
    for place in chosen:
        truth = "".join(f"{candidate.truth[place]:>12.4f}" for candidate in plan.candidates)
        lines.append(f"{levels[place]:>8}{truth}")
    if len(chosen) < len(levels):
        lines.append(f"  ({len(chosen)} of {len(levels)} lines shown; --format json has all)")
    return "\n".join(lines)


def _closing(plan: Plan, output: Path | None) -> str:
    """Write what is proved, and how to release."""
    certificate = plan.table.certificate
    lines = [
        f"One query is proved {plan.table.problem.target}-private: {certificate.rows:,} rows, {certificate.method}.",
    ]
    if plan.spent.bound == "pld":
        lines.append("The total needs the privacy loss distribution: install dp-accounting where it is released.")
    if output is None:
        lines.append("Not saved: --output FILE.json keeps the winner's table with its proof.")
    else:
        lines += [f"Table written to {output}. Release with", f"  {release_command(output, plan.workload.total)}"]
    return "\n".join(lines)
