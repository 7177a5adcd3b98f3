"""Lower bounds from outside: tables attacked by labels, teachers by canaries, PATE by draws and by a poisoned record.

    python -m experiments.audits --quick           # ten seconds
    python -m experiments.audits                   # four minutes

Writes OUTPUT/audits/audits.json, and OUTPUT/audits.md from it. Everything is drawn from fixed seeds, for a page that
can be made again; an attack on a release of one's own draws from the operating system, see `darrm.verify.attack`.
"""

import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path

import numpy as np

from darrm.commands.command_line import run
from darrm.optimize.optimizer import optimize_table
from darrm.privacy import PrivacyParams
from darrm.problem import Problem, Voters
from darrm.table.release import Release
from darrm.training import PrivateSGD
from darrm.util.figures import saved_figure, style
from darrm.verify.attack import attack
from experiments import pages
from experiments.audits import canaries, noisy_maxima, poisoned
from experiments.pages import Row, filled

TWO_THIRDS = 2 / 3
POISONED = 0.9  # of the exact cost of one query, the aim for who chooses it and poisons a record
NEARLY_ATTAINED = 0.85  # of ε: the aim of a million labels


def draw(folder: Path, data: Row) -> None:
    """Draw the adversary's bounds and the three costs of each ensemble."""
    bars = {
        "plain": "plain record, refuted",
        "poisoned": "poisoned record, refuted",
        "exact": "exact cost of the query",
    }
    bars |= {"label": "by label, whatever the votes", "counts": "by counts, λ/σ²"}
    rows = data["poisoned"]
    with saved_figure(folder / "poisoned.png", width=7.5, height=4.0) as figure:
        axes = figure.add_subplot()
        for place, (key, label) in enumerate(bars.items()):
            at = [number + 0.16 * (place - 2) for number in range(len(rows))]
            axes.bar(at, [row[key] for row in rows], width=0.15, color=style(place).color, label=label)
        axes.set_xticks(range(len(rows)), labels=[row["name"] for row in rows])
        axes.set(ylabel=f"Rényi divergence of order {rows[0]['order']:g}, nats")
        axes.grid(visible=True, axis="y", alpha=0.3)
        figure.legend(loc="outside right upper", frameon=False)


def page(data: Row) -> str:
    """Fill the page from the data."""
    tables, runs, poisoned = data["tables"], data["one_run"], data["poisoned"]
    maxima = [row | {"share": row["exact"] / row["charged"]} for row in data["noisy_maxima"]]
    facts = {
        "false": sum(bool(row["claim_refuted"] or row["departures"]) for row in tables),
        "share": min(row["refuted_epsilon"] / row["claimed_epsilon"] for row in tables),
        "honest": max(run["refuted"] / run["claimed"] for run in runs if run["clipped"]),
        "planted": min(run["refuted"] / run["claimed"] for run in runs if not run["clipped"]),
        "label": max(row["refuted"] / row["charged"] for row in maxima),
        "exact": max(row["share"] for row in maxima if row["order"] == 2.0),
        "poisoned": max(max(row["poisoned"], row["plain"]) / row["exact"] for row in poisoned),
        "each": ", ".join(f"{row['poisoned'] / row['exact']:.3f} ({row['name']})" for row in poisoned),
    }
    holds = {
        "tables": facts["false"] == 0,
        "share": facts["share"] >= NEARLY_ATTAINED,
        "honest": facts["honest"] < 1.0,
        "planted": facts["planted"] > 1.0,
        "label": facts["label"] < 1.0,
        "exact": facts["exact"] <= TWO_THIRDS,
        "attained": all(row["poisoned"] >= POISONED * row["exact"] for row in poisoned),
        "below": facts["poisoned"] < 1.0,
    }
    aims = {"poisoned": POISONED, "labels": NEARLY_ATTAINED}
    counted = {"number": len(tables), "found": facts, "holds": holds, "aims": aims, "noisy_maxima": maxima}
    return filled(NAME, counted, data)


NAME = "audits"
SEED = 20_230_515
PLAIN = PrivacyParams("inf")
PRIVATE = PrivacyParams("0.1", "1e-5")
PROBLEMS = {
    "K = 11, each (0.1, 1e-5), m = 1": Problem.from_allowance(Voters(11, PRIVATE), 1),
    "K = 11, each (0.1, 1e-5), m = 3": Problem.from_allowance(Voters(11, PRIVATE), 3),
    "K = 101, each (0.1, 1e-5), m = 10": Problem.from_allowance(Voters(101, PRIVATE), 10),
    "K = 41, each (1, 0), a person reaches 3": Problem.from_allowance(Voters(41, PrivacyParams(1), 3), 2),
    "K = 11, not private, a person reaches 1": Problem(Voters(11, PLAIN, 1), PrivacyParams("0.2676", "0.0003")),
    "K = 250, not private, a person reaches 1": Problem(Voters(250, PLAIN, 1), PrivacyParams("1", "1e-5")),
}
NOISES = (10.0, 5.0)  # σ of DP-SGD
TRAINING_CONFIDENCE = 0.999


def attacked(draws: int) -> Iterator[Row]:
    """Attack the table of every problem."""
    for number, (name, problem) in enumerate(PROBLEMS.items()):
        found = attack(Release(optimize_table(problem)), draws, rng=np.random.default_rng([SEED, number]))
        numbers = {"claimed_epsilon": found.bounds[0].claimed, "claimed_delta": found.bounds[0].delta}
        yield {"name": name, **found.to_json(), **numbers}


def trained(count: int, steps: int, noises: Sequence[float]) -> Iterator[Row]:
    """Audit one training with clipping and one without for every noise."""
    for noise in noises:
        recipe = PrivateSGD(learning_rate=0.5, steps=steps, sampling_rate=0.5, noise=noise)
        for clipped in (True, False):
            yield asdict(canaries.one_run(recipe, count, TRAINING_CONFIDENCE, clipped=clipped, seed=SEED))


def drawn(draws: int) -> Iterator[Row]:
    """Audit every noisy maximum."""
    for number, mechanism in enumerate(noisy_maxima.MECHANISMS):
        rng = np.random.default_rng([SEED, number])
        yield from map(asdict, noisy_maxima.audit(mechanism, draws, TRAINING_CONFIDENCE, rng))


def poisoned_ensembles(draws: int, *, epochs: int) -> Iterator[Row]:
    """Attack trained ensembles by one record and one query."""
    for number, (name, classes) in enumerate(poisoned.ENSEMBLES.items()):
        rng = np.random.default_rng([SEED, number, 1])
        yield {"name": name, **poisoned.audit(classes, draws, TRAINING_CONFIDENCE, rng, epochs=epochs)}


def measured(*, quick: bool) -> Row:
    """Run all audits."""
    labels, maxima_labels = (100_000, 10_000) if quick else (4_000_000, 400_000)
    return {
        "tables": list(attacked(labels)),
        "one_run_delta": canaries.DELTA,
        "one_run": list(trained(300, 20, NOISES[:1]) if quick else trained(1000, 50, NOISES)),
        "voters": noisy_maxima.VOTERS,
        "noisy_maxima": list(drawn(maxima_labels)),
        "poisoned": list(poisoned_ensembles(maxima_labels * 5, epochs=20 if quick else poisoned.EPOCHS)),
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Audit, print and write."""
    options = pages.command_line(NAME, __doc__, quick="fewer draws and one small training").parse_args(arguments)
    return pages.run_whole(options, f"{NAME}/audits.json", partial(measured, quick=options.quick), page, draw)


if __name__ == "__main__":
    sys.exit(run(main))
