"""What `python -m darrm.plan` prints, draws and writes as JSON."""

from pathlib import Path
from typing import Any

from darrm.laws.priors import in_words
from darrm.plan.budget import counted
from darrm.plan.option import (
    OF_YOUR_OWN,
    UNDER_THE_PRIOR,
    Option,
    about_columns,
    columns_to_json,
    head_of_columns,
    how_counted,
    how_many_are_there,
    kind_of_votes,
    release_command,
    settings_in_words,
)
from darrm.plan.remedies import as_open, reaches_all, remedies
from darrm.plan.search import Plan
from darrm.plan.share_right import Measure
from darrm.problem import is_open
from darrm.system.command_line import absences, level_table, numbered
from darrm.system.figures import saved_figure, style

MOST_LINES = 16
_NO_SHARE = (
    "the error is |Pr[the label is 1] − Pr[the majority is 1]| on average [D, Definition 2.4], not 1 − the share"
)


def text_report(plan: Plan, output: Path | None, *, everything: bool = False) -> str:
    """Write the plan for a reader; with ``everything`` the reasons of the ways that found nothing, too."""
    parts = [
        _heading(plan),
        _candidates(plan, everything=everything),
        _truth(plan),
        "\n".join(_help(plan)),
        _closing(plan, output),
    ]
    return "\n\n".join(filter(None, parts)) + "\n"


def json_report(plan: Plan, output: Path | None) -> dict[str, Any]:
    """Write the plan as plain data; the schema is ``darrm/schemas/plan_report.json``."""
    measure = Measure(plan.workload, plan.prior)
    return {
        "format": "darrm plan report",
        "version": 1,
        "workload": plan.workload.to_json(),
        "counted_as": counted(plan.workload).to_json(),
        "prior": plan.prior.text,
        **columns_to_json(measure),
        "levels": measure.levels.tolist(),
        "candidates": [
            {
                "method": option.name,
                "share_right": None if option.share_right is None else option.share_right.to_json(),
                **option.columns_to_json(),
                **_of_two_classes(option),
                **({} if option.answered is None else {"share_answered": option.answered}),
                "settings": dict(option.settings),
                "spent": {"epsilon": option.spent.epsilon, "delta": option.spent.delta, "bound": option.spent.bound},
                "truth": option.truth.tolist(),
            }
            for option in plan.options
        ],
        "refused": [{"method": method, "reason": reason} for method, reason in plan.refused],
        "remedies": list(_help(plan)),
        "output": None if output is None else str(output),
    }


def _of_two_classes(option: Option) -> dict[str, Any]:
    if option.expected_error is None:
        return {}
    query = {} if option.table is None else {"query": option.table.problem.target.to_json()}
    return {"expected_error": option.expected_error, **query}


def plot_report(path: Path, plan: Plan) -> None:
    """Draw the probability of the true majority over the number of ones for every candidate."""
    with saved_figure(path) as figure:
        axes = figure.add_subplot()
        levels = Measure(plan.workload, plan.prior).levels
        for place, option in enumerate(plan.options):
            label = f"{option.name}   {' and '.join(_score(option))}"
            axes.plot(levels, option.truth, label=label, **style(place).line(len(levels)))
        axes.set(xlabel=f"l, votes for {_what(plan)}", ylabel=f"probability of {_what(plan)}")
        axes.set_ylim(0.0 if is_open(plan.workload.classes) else 0.96 / plan.workload.classes, 1.02)
        budget = f"{plan.workload.queries:,} votes within {plan.workload.total}"
        axes.set_title(f"{plan.workload.voters}\n{budget}", fontsize=9)
        axes.grid(alpha=0.3)
        figure.legend(loc="outside lower center", frameon=False)


def _heading(plan: Plan) -> str:
    work, measure = plan.workload, Measure(plan.workload, plan.prior)
    lines = [
        f"Plan for {numbered(work.queries, f'{kind_of_votes(work)} vote', f'{kind_of_votes(work)} votes')}",
        f"  {work.voters}",
        f"  all answers together are to be {work.total}-differentially private",
        f"  decided by the {measure.name} under {in_words(plan.prior)}",
        *[f"  {line}" for line in about_columns(measure)],
        UNDER_THE_PRIOR,
        *[f"  {said}" for said in (how_many_are_there(work), how_counted(work)) if said],
    ]
    return "\n".join(lines)


def _candidates(plan: Plan, *, everything: bool) -> str:
    measure = Measure(plan.workload, plan.prior)
    errors = plan.best.expected_error is not None
    wide = max(12, *(len(option.name) + 2 for option in plan.options))
    is_answered = plan.best.answered is not None
    head = (
        f"{'share right':>15}{head_of_columns(plan.options)}"
        + (f"{'expected error':>16}" if errors else "")
        + (f"{'answered':>10}" * is_answered)
    )
    lines = [f"  {'way':<{wide}}{head}   the accountant's total"]
    for option in plan.options:
        mark = "*" if option is plan.best else " "
        spent, share = option.spent, option.share_right
        shown = f"{'–' if share is None else f'{share.value:.5f}':>15}{option.in_columns()}"
        error = f"{option.expected_error:>16.6g}" if errors else ""
        error += "" if option.answered is None else f"{option.answered:>10.5f}"
        lines.append(
            f"{mark} {option.name:<{wide}}{shown}{error}   ({spent.epsilon:.6g}, {spent.delta:.6g})"
            f" by {spent.bound}; a query has {settings_in_words(option.settings) or 'no noise'}"
        )
    lines += absences(plan.refused, everything=everything)
    if errors:
        lines.append(f"  ({_NO_SHARE})")
    elif is_answered:
        lines.append("  (a label is right if no string has more votes; where none is answered, nothing is told)")
    else:
        share, coins = plan.best.share_right, measure.coin
        if share is not None and share.standard_error:
            drawn = f"standard error {share.standard_error:.2g}"
            lines.append(f"  (shares from drawn histograms, the same for all; {drawn})")
        lines.append(f"  a label that looks at nothing is right as often as {coins.value if coins else 0.0:.5f}")
    return "\n".join(lines)


def _truth(plan: Plan) -> str:
    columns = {option.name: option.truth for option in plan.options}
    width = max(12, *(len(name) + 2 for name in columns))
    levels = Measure(plan.workload, plan.prior).levels
    table = level_table(levels, columns, width=width, most=MOST_LINES, elsewhere="--format json")
    rest = "" if plan.workload.has_noise_function else ", the other classes sharing the rest"
    rest = ", the others all different" if is_open(plan.workload.classes) else rest
    return f"How often the answer is the true {kind_of_votes(plan.workload)} of l votes{rest}\n{table}"


def _help(plan: Plan) -> tuple[str, ...]:
    return (*as_open(plan.listed), *reaches_all(plan.workload), *remedies(plan))


def _closing(plan: Plan, output: Path | None) -> str:
    table = plan.best.table
    lines = [plan.best.remark] if plan.best.remark else []
    made = "the winner, whose charge is computed anew whenever it is read"
    if table is not None:
        target, certificate = table.problem.target, table.certificate
        lines += [f"One query is proved {target}-private: {certificate.rows:,} rows, {certificate.method}."]
        made = "the winner's table with its proof"
    if output is None:
        lines.append(f"Not saved: --output FILE.json keeps {made}.")
    else:
        written = "Mechanism" if table is None else "Table"
        lines += [
            f"{written} written to {output}. Release with ({OF_YOUR_OWN})",
            f"  {release_command(output, plan.workload)}",
        ]
    return "\n".join(lines)


def _what(plan: Plan) -> str:
    return f"the true {kind_of_votes(plan.workload)}"


def _score(option: Option) -> list[str]:
    share = [] if option.share_right is None else [f"share right {option.share_right.value:.4f}"]
    return share + ([] if option.expected_error is None else [f"expected error {option.expected_error:.4g}"])
