"""What `python -m darrm.plan` prints, draws and writes as JSON."""

from pathlib import Path
from typing import Any

from darrm.gamma.priors import in_words
from darrm.plan.budget import counted
from darrm.plan.option import how_counted, release_command, settings_in_words
from darrm.plan.search import Plan
from darrm.system.figures import saved_figure
from darrm.system.report_text import level_table

MOST_LINES = 16
STYLES = ("-", "--", ":")


def text_report(plan: Plan, output: Path | None) -> str:
    """Write the plan for a reader."""
    return "\n\n".join([_heading(plan), _candidates(plan), _truth(plan), _closing(plan, output)]) + "\n"


def json_report(plan: Plan, output: Path | None) -> dict[str, Any]:
    """Write the plan as plain data; the schema is ``darrm/schemas/plan_report.json``."""
    return {
        "format": "darrm plan report",
        "version": 1,
        "workload": plan.workload.to_json(),
        "counted_as": counted(plan.workload).to_json(),
        "prior": plan.prior.text,
        "levels": plan.table.gamma.levels.tolist(),
        "candidates": [
            {
                "method": found.method,
                "expected_error": found.expected_error,
                "settings": dict(found.settings),
                "query": found.table.problem.target.to_json(),
                "spent": {"epsilon": found.spent.epsilon, "delta": found.spent.delta, "bound": found.spent.bound},
                "truth": found.truth.tolist(),
            }
            for found in plan.candidates
        ],
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
        axes.set(xlabel="l, votes for the majority", ylabel="probability of the true majority", ylim=(0.48, 1.02))
        budget = f"{plan.workload.queries:,} votes within {plan.workload.total}"
        axes.set_title(f"{plan.workload.voters}\n{budget}", fontsize=9)
        axes.grid(alpha=0.3)
        axes.legend(loc="lower right", framealpha=0.95)


def _heading(plan: Plan) -> str:
    """Write what was asked, and how the voters are counted."""
    work = plan.workload
    lines = [
        f"Plan for {work.queries:,} majority votes",
        f"  {work.voters}",
        f"  all answers together are to be {work.total}-differentially private",
        f"  decided by the expected error under {in_words(plan.prior)}",
        *([f"  {how_counted(work)}"] if how_counted(work) else []),
    ]
    return "\n".join(lines)


def _candidates(plan: Plan) -> str:
    """Tabulate what was found and what was not, the winner marked."""
    lines = [f"  {'way':<12}{'expected error':>15}   the accountant's total"]
    for candidate in plan.candidates:
        mark = "*" if candidate is plan.best else " "
        spent = candidate.spent
        lines.append(
            f"{mark} {candidate.method:<12}{candidate.expected_error:>15.6g}   ({spent.epsilon:.6g}, {spent.delta:.6g})"
            f" by {spent.bound}; a query has {settings_in_words(candidate.settings) or 'no noise'}"
        )
    lines += [f"  {method:<12}{'none':>15}   {reason}" for method, reason in plan.refused]
    return "\n".join(lines)


def _truth(plan: Plan) -> str:
    """Tabulate the probability of the truth at some numbers of votes."""
    columns = {candidate.method: candidate.truth for candidate in plan.candidates}
    table = level_table(plan.table.gamma.levels, columns, width=12, most=MOST_LINES, elsewhere="--format json")
    return f"How often the answer is the true majority of l votes\n{table}"


def _closing(plan: Plan, output: Path | None) -> str:
    """Write what is proved, and how to release."""
    target, certificate = plan.table.problem.target, plan.table.certificate
    lines = [f"One query is proved {target}-private: {certificate.rows:,} rows, {certificate.method}."]
    if plan.spent.bound == "pld":
        lines.append("The total needs the privacy loss distribution: install dp-accounting where it is released.")
    if output is None:
        lines.append("Not saved: --output FILE.json keeps the winner's table with its proof.")
    else:
        lines += [f"Table written to {output}. Release with", f"  {release_command(output, plan.workload.total)}"]
    return "\n".join(lines)
