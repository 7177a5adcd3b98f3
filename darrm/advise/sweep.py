"""A public sweep over the total ε: what advice says at each, as a table, plain data and a picture.

Nothing here looks at votes, so to choose ε from such a table costs nothing; to choose it by what labels say would.
"""

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TypedDict

from darrm.advise.advice import Advice, advise
from darrm.advise.report import json_report, subject_of
from darrm.errors import PlanError, checks
from darrm.laws.priors import Prior, in_words
from darrm.plan.family import Family
from darrm.plan.option import UNDER_THE_PRIOR, about_columns
from darrm.plan.share_right import Measure
from darrm.privacy import PrivacyParams
from darrm.problem import Workload
from darrm.system.figures import BLACK, Axes, name_lines, saved_figure, style
from darrm.system.files import Document
from darrm.system.flags import flags_of

BEST = "darrm"  # the line of what this library would release


class Point(TypedDict):
    """The share of right labels of each mechanism at one total ε, and of what would be released, `BEST`."""

    epsilon: float
    right: dict[str, float]


@dataclass(frozen=True)
class Sweep:
    """Advice at several budgets, from the smallest ε to the largest."""

    advices: tuple[Advice, ...]

    @property
    def points(self) -> list[Point]:
        """What is drawn."""
        return [
            {
                "epsilon": advice.workload.total.epsilon,
                "right": {option.name: option.right for option in advice.options} | {BEST: advice.recommended.right},
            }
            for advice in self.advices
        ]


def sweep(
    workload: Workload,
    epsilons: Sequence[str | float],
    *,
    prior: Prior | None = None,
    families: Sequence[Family] | None = None,
    report: Callable[[str], None] = lambda _: None,
    stoppable: bool = False,
) -> Sweep:
    """Advise at each total ε; the rest of the workload stays. Those at which nothing applies are left out.

    With ``stoppable`` Ctrl-C returns what is known until then, with a warning. `PlanError` if that is nothing.

    >>> from darrm import Voters
    >>> work = Workload(Voters(11, PrivacyParams("inf"), overlap=1), 1, PrivacyParams(1, "1e-5"))
    >>> [round(point["right"]["darrm"], 3) for point in sweep(work, ["0.1", "1"]).points]
    [0.625, 0.929]
    """
    totals = sorted(
        {PrivacyParams(epsilon, workload.total.exact_delta) for epsilon in epsilons}, key=lambda one: one.epsilon
    )
    if not totals:
        checks.fail("epsilons", epsilons, "at least one total epsilon")
    found, reasons = [], []
    try:
        for place, total in enumerate(totals):
            asked = replace(workload, total=total)
            show = partial(_show, report, f"{place + 1} of {len(totals)} budgets, epsilon {total.epsilon:g}")
            try:
                found.append(advise(asked, prior=prior, families=families, report=show))
            except PlanError as error:
                reasons.append((total.epsilon, str(error)))
    except KeyboardInterrupt:
        if not stoppable:
            raise
        if not found:
            raise PlanError("stopped before any budget was known: give it more time") from None
        warnings.warn(f"stopped early: {len(found)} of {len(totals)} budgets are known", stacklevel=2)
    if not found:
        raise PlanError(reasons[0][1])
    for epsilon, reason in reasons:
        warnings.warn(f"left out, for nothing applies at a total epsilon of {epsilon:g}: {reason}", stacklevel=2)
    return Sweep(tuple(found))


def sweep_text(found: Sweep) -> str:
    """Write a line a mechanism and a column a budget, those first that are right most often at the largest."""
    last, points = found.advices[-1], found.points
    measure = Measure(last.workload, last.prior)
    names = dict.fromkeys(name for point in reversed(points) for name in point["right"])
    rows = {name: "".join(f"{_shown(point, name):>10}" for point in points) for name in (BEST, *names)}
    lines = [
        f"Share of right labels over the total ε, δ = {last.workload.total.delta:g}, for {subject_of(last.workload)}",
        f"  {last.workload.voters}",
        f"  under {in_words(last.prior)}",
        *[f"  {line}" for line in about_columns(measure)[: 1 + measure.by_regret]],
        UNDER_THE_PRIOR,
        "",
        f"  {'total ε':<24}" + "".join(f"{point['epsilon']:>10.4g}" for point in points),
        *[f"{'*' if name == BEST else ' '} {name:<24}{row}" for name, row in rows.items()],
        "",
        f"* what this library would release: {', '.join(_winners(found))}. Without --sweep it is said how.",
    ]
    return "\n".join(lines) + "\n"


def sweep_json(found: Sweep) -> Document:
    """Write the advice at each budget as plain data; the schema is ``darrm/schemas/advice_sweep.json``."""
    return {
        "format": "darrm advice sweep",
        "version": 1,
        "workload": flags_of(found.advices[-1].workload),
        "points": [
            {"total": advice.workload.total.to_json(), "advice": json_report(advice)} for advice in found.advices
        ],
    }


def plot_sweep(path: Path, found: Sweep) -> None:
    """Draw the share of right labels of each mechanism over the total ε."""
    points = found.points
    names = dict.fromkeys(name for point in reversed(points) for name in point["right"] if name != BEST)
    lines = {name: style(place).line(len(points)) for place, name in enumerate(names)}
    lines[BEST] = {"color": BLACK, "linewidth": 3.0, "alpha": 0.5}
    with saved_figure(path, width=9.0) as figure:
        axes = figure.add_subplot()
        draw_curves(axes, points, lines)
        work = found.advices[-1].workload
        under = in_words(found.advices[-1].prior)
        axes.set_title(f"{subject_of(work)}, δ = {work.total.delta:g}\n{work.voters}\nunder {under}", fontsize=9)
        axes.set_ylabel("share of right labels")
        name_lines(axes)


def draw_curves(axes: Axes, points: Sequence[Point], lines: Mapping[str, Mapping[str, object]]) -> None:
    """Draw the named mechanisms, each with its own arguments of ``axes.plot``, from the back to the front."""
    for name, look in lines.items():
        known = [(point["epsilon"], point["right"][name]) for point in points if name in point["right"]]
        if known:
            axes.plot(*zip(*known, strict=True), label=name, **look)
    ticks = [point["epsilon"] for point in points]
    axes.set_xscale("log")
    axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.minorticks_off()
    axes.set_xlabel("total ε, all questions together")
    axes.grid(alpha=0.3)


def _show(report: Callable[[str], None], before: str, text: str) -> None:
    report(f"{before}: {text}")


def _shown(point: Point, name: str) -> str:
    return f"{point['right'][name]:.5f}" if name in point["right"] else "–"


def _winners(found: Sweep) -> list[str]:
    names = [(advice.workload.total.epsilon, advice.recommended.name) for advice in found.advices]
    if len({name for _, name in names}) == 1:
        return [names[0][1]]
    return [f"{name} at {epsilon:g}" for epsilon, name in names]
