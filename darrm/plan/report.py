"""What ``darrm plan`` writes: a plan or a sweep as JSON, CSV and a picture."""

import csv
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from darrm.plan.accuracy import CONSENSUS
from darrm.plan.budget import counted
from darrm.plan.calibrated import CalibratedMechanism
from darrm.plan.results import BEST, Plan, Sweep, commands, kind_of_votes, settings_in_words, subject
from darrm.priors import columns_of
from darrm.problem import is_open
from darrm.util.figures import BLACK, Axes, name_lines, saved_figure, style
from darrm.util.files import Document


def plan_json(plan: Plan, output: Path | None = None) -> dict[str, Any]:
    """Write the plan as plain data; the schema is ``darrm/schemas/plan_report.json``."""
    three = zip(CONSENSUS, columns_of(plan.measure.classes).values(), strict=True)
    guess = plan.measure.guessing
    return {
        "format": "darrm plan report",
        "version": 1,
        "workload": plan.workload.to_json(),
        "counted_as": counted(plan.workload).to_json(),
        "prior": plan.prior.text,
        "consensus": {name: prior.text for name, prior in three},
        "ranked_by": "regret" if plan.measure.is_regret else plan.measure.name,
        "best": plan.best.slug,
        "reason": plan.reason,
        "guessing": None if guess is None else guess.to_json(),
        "largest_accuracy": plan.largest_accuracy(),
        "levels": plan.measure.levels.tolist(),
        "mechanisms": [_row_json(row) for row in plan.rows],
        "left_out": [{"mechanism": slug, "reason": reason} for slug, reason in plan.left_out],
        "commands": list(commands(plan)),
        "output": None if output is None else str(output),
    }


def _row_json(row: CalibratedMechanism) -> dict[str, Any]:
    return {
        "mechanism": row.slug,
        "name": row.name,
        "accuracy": None if row.estimate is None else row.estimate.to_json(),
        "consensus": {name: accuracy.to_json() for name, accuracy in row.consensus.items()},
        "regret": row.regret,
        **({} if row.expected_error is None else {"expected_error": row.expected_error}),
        **({} if row.answered is None else {"answered": row.answered}),
        **({} if row.table is None else {"query": row.table.problem.target.to_json()}),
        "settings": dict(row.settings),
        "spent": {"epsilon": row.spent.epsilon, "delta": row.spent.delta, "bound": row.spent.bound},
        "only_compared": row.only_compared or None,
        "curve": row.curve.tolist(),
    }


def sweep_json(sweep: Sweep) -> Document:
    """Write the plan at each budget as plain data; the schema is ``darrm/schemas/plan_sweep.json``."""
    return {"format": "darrm plan sweep", "version": 1, "plans": [plan_json(plan) for plan in sweep.plans]}


def csv_text(plans: Sequence[Plan]) -> str:
    """Write a line a mechanism with all digits; the total ε comes first."""
    rows = [_csv_row(plan, row) for plan in plans for row in plan.rows]
    text = io.StringIO()
    writer = csv.DictWriter(text, list(dict.fromkeys(name for row in rows for name in row)), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def _csv_row(plan: Plan, row: CalibratedMechanism) -> dict[str, object]:
    total = plan.workload.total
    return {
        "total epsilon": total.epsilon_text,
        "total delta": total.delta_text,
        "mechanism": row.slug,
        **{f"accuracy {name}": accuracy.value for name, accuracy in row.consensus.items()},
        "accuracy": row.accuracy,
        **({} if row.expected_error is None else {"expected error": row.expected_error}),
        **({} if row.answered is None else {"answered": row.answered}),
        "epsilon": row.spent.epsilon,
        "bound": row.spent.bound,
        "parameters": settings_in_words(row.settings),
        "only compared": row.only_compared,
    }


def plot_plan(path: Path, plan: Plan) -> None:
    """Draw the probability of the majority over its number of votes for every mechanism."""
    kind, classes = kind_of_votes(plan.workload), plan.workload.classes
    with saved_figure(path) as figure:
        axes = figure.add_subplot()
        levels = plan.measure.levels
        for place, row in enumerate(plan.rows):
            axes.plot(levels, row.curve, label=f"{row.name}   {row.accuracy:.4f}", **style(place).line(len(levels)))
        axes.set(xlabel=f"votes for the {kind}", ylabel=f"probability of the {kind}")
        axes.set_ylim(0.0 if is_open(classes) else 0.96 / classes, 1.02)
        axes.set_title(f"{plan.workload.voters}\n{subject(plan.workload)} within {plan.workload.total}", fontsize=9)
        axes.grid(alpha=0.3)
        figure.legend(loc="outside lower center", frameon=False)


def plot_sweep(path: Path, sweep: Sweep) -> None:
    """Draw the accuracy of each mechanism over the total ε."""
    work = sweep.plans[-1].workload
    looks = {slug: style(place).line(len(sweep.plans)) for place, slug in enumerate(sweep.accuracies)}
    looks[BEST] = {"color": BLACK, "linewidth": 3.0, "alpha": 0.5}
    with saved_figure(path, width=9.0) as figure:
        axes = figure.add_subplot()
        draw_accuracies(axes, {**sweep.accuracies, BEST: sweep.best}, looks)
        axes.set_title(f"{subject(work)}, δ = {work.total.delta:g}\n{work.voters}", fontsize=9)
        axes.set_ylabel("accuracy")
        name_lines(axes)


def draw_accuracies(
    axes: Axes, accuracies: Mapping[str, Mapping[float, float]], looks: Mapping[str, Mapping[str, object]]
) -> None:
    """Draw the accuracy over the total ε, with the arguments of ``axes.plot`` for each line, from the back on."""
    for name, look in looks.items():
        if accuracies.get(name):
            axes.plot(list(accuracies[name]), list(accuracies[name].values()), label=name, **look)
    ticks = sorted({epsilon for values in accuracies.values() for epsilon in values})
    axes.set_xscale("log")
    axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.minorticks_off()
    axes.set_xlabel("total ε of all queries")
    axes.grid(alpha=0.3)
