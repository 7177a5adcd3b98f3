"""What `python -m darrm.plan` prints, draws and writes as JSON."""

from pathlib import Path
from typing import Any

from darrm.plan.budget import counted
from darrm.plan.candidate import Candidate
from darrm.plan.option import how_counted, in_words, kind_of_votes, release_command, settings_in_words
from darrm.plan.plurality import PluralityCandidate
from darrm.plan.remedies import remedies
from darrm.plan.search import Plan
from darrm.system.figures import saved_figure, style
from darrm.system.report_text import absences, level_table

MOST_LINES = 16


def text_report(plan: Plan, output: Path | None, *, everything: bool = False) -> str:
    """Write the plan for a reader; with ``everything`` the reasons of the ways that found nothing, too."""
    parts = [
        _heading(plan),
        _candidates(plan, everything=everything),
        _truth(plan),
        "\n".join(remedies(plan)),
        _closing(plan, output),
    ]
    return "\n\n".join(filter(None, parts)) + "\n"


def json_report(plan: Plan, output: Path | None) -> dict[str, Any]:
    """Write the plan as plain data; the schema is ``darrm/schemas/plan_report.json``."""
    return {
        "format": "darrm plan report",
        "version": 1,
        "workload": plan.workload.to_json(),
        "counted_as": counted(plan.workload).to_json(),
        "prior": plan.prior.text,
        "levels": plan.best.levels.tolist(),
        "candidates": [
            {
                "method": found.method,
                "share_right": None if found.share_right is None else found.share_right.to_json(),
                **_of_a_table(found),
                "settings": dict(found.settings),
                "spent": {"epsilon": found.spent.epsilon, "delta": found.spent.delta, "bound": found.spent.bound},
                "truth": found.truth.tolist(),
            }
            for found in plan.candidates
        ],
        "refused": [{"method": method, "reason": reason} for method, reason in plan.refused],
        "remedies": list(remedies(plan)),
        "output": None if output is None else str(output),
    }


def _of_a_table(found: Candidate | PluralityCandidate) -> dict[str, Any]:
    """Write what is known of two classes only."""
    if not isinstance(found, Candidate):
        return {}
    return {"expected_error": found.expected_error, "query": found.table.problem.target.to_json()}


def plot_report(path: Path, plan: Plan) -> None:
    """Draw the probability of the true majority over the number of ones for every candidate."""
    with saved_figure(path) as figure:
        axes = figure.add_subplot()
        for place, candidate in enumerate(plan.candidates):
            label = f"{candidate.method}   {' and '.join(_score(candidate))}"
            axes.plot(candidate.levels, candidate.truth, label=label, **style(place).line(len(candidate.levels)))
        axes.set(xlabel=f"l, votes for {_what(plan)}", ylabel=f"probability of {_what(plan)}")
        axes.set_ylim(0.96 / plan.workload.classes, 1.02)
        budget = f"{plan.workload.queries:,} votes within {plan.workload.total}"
        axes.set_title(f"{plan.workload.voters}\n{budget}", fontsize=9)
        axes.grid(alpha=0.3)
        figure.legend(loc="outside lower center", frameon=False)


def _heading(plan: Plan) -> str:
    """Write what was asked, and how the voters are counted."""
    work = plan.workload
    lines = [
        f"Plan for {work.queries:,} {kind_of_votes(work)} votes",
        f"  {work.voters}",
        f"  all answers together are to be {work.total}-differentially private",
        f"  decided by the {_decided_by(plan)} under {in_words(plan.prior)}",
        *([f"  {how_counted(work)}"] if how_counted(work) else []),
    ]
    return "\n".join(lines)


def _candidates(plan: Plan, *, everything: bool) -> str:
    """Tabulate what was found, the winner marked, and say what was not."""
    two = plan.workload.classes == 2
    wide = max(12, *(len(found.method) + 2 for found in plan.candidates))
    head = f"{'share right':>15}" + (f"{'expected error':>16}" if two else "")
    lines = [f"  {'way':<{wide}}{head}   the accountant's total"]
    for candidate in plan.candidates:
        mark = "*" if candidate is plan.best else " "
        spent, share = candidate.spent, candidate.share_right
        shown = f"{'–' if share is None else f'{share.value:.5f}':>15}"
        error = f"{candidate.expected_error:>16.6g}" if isinstance(candidate, Candidate) else ""
        lines.append(
            f"{mark} {candidate.method:<{wide}}{shown}{error}   ({spent.epsilon:.6g}, {spent.delta:.6g})"
            f" by {spent.bound}; a query has {settings_in_words(candidate.settings) or 'no noise'}"
        )
    lines += absences(plan.refused, everything=everything)
    if isinstance(plan.best, PluralityCandidate):
        if drawn := plan.best.share_right.standard_error:
            lines.append(f"  (shares from drawn histograms, the same for all; standard error {drawn:.2g})")
        lines.append(f"  a label that looks at nothing is right as often as {plan.best.coin.value:.5f}")
    return "\n".join(lines)


def _truth(plan: Plan) -> str:
    """Tabulate the probability of the truth at some numbers of votes."""
    columns = {candidate.method: candidate.truth for candidate in plan.candidates}
    width = max(12, *(len(name) + 2 for name in columns))
    table = level_table(plan.best.levels, columns, width=width, most=MOST_LINES, elsewhere="--format json")
    rest = "" if plan.workload.classes == 2 else ", the other classes sharing the rest"
    return f"How often the answer is the true {kind_of_votes(plan.workload)} of l votes{rest}\n{table}"


def _closing(plan: Plan, output: Path | None) -> str:
    """Write what is proved, and how to release."""
    if isinstance(plan.best, Candidate):
        target, certificate = plan.table.problem.target, plan.table.certificate
        lines = [f"One query is proved {target}-private: {certificate.rows:,} rows, {certificate.method}."]
        made = "the winner's table with its proof"
    else:
        lines, made = [], "the winner, whose charge is computed anew whenever it is read"
    if output is None:
        lines.append(f"Not saved: --output FILE.json keeps {made}.")
    else:
        written = "Table" if isinstance(plan.best, Candidate) else "Mechanism"
        command = release_command(output, plan.workload)
        lines += [f"{written} written to {output}. Release with", f"  {command}"]
    return "\n".join(lines)


def _decided_by(plan: Plan) -> str:
    return "expected error" if plan.workload.classes == 2 else "share of right labels"


def _what(plan: Plan) -> str:
    return f"the true {kind_of_votes(plan.workload)}"


def _score(found: Candidate | PluralityCandidate) -> list[str]:
    share = [] if found.share_right is None else [f"share right {found.share_right.value:.4f}"]
    return share + ([f"expected error {found.expected_error:.4g}"] if isinstance(found, Candidate) else [])
