"""Aggregators side by side at equal budgets: ``python -m experiments.aggregators``.

Writes OUTPUT/aggregators/{plain,private}.json and .png, votes.json, and the page OUTPUT/aggregators.md made from them.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from darrm.problem import Workload
from darrm.system.command_line import CommandLine, run
from darrm.system.files import write_text
from experiments.aggregators.comparison import Comparison, as_json, compare, decide
from experiments.aggregators.page import page
from experiments.aggregators.pictures import save_margins
from experiments.aggregators.settings import plain_workloads, private_workloads, vote_workloads
from experiments.aggregators.votes import available

FOLDER = "aggregators"
PICTURE_TOTAL = 1.0  # the budget of the panels drawn; the tables and the JSON have all


def main(arguments: list[str] | None = None) -> int:
    """Compare, decide, write."""
    options = parser().parse_args(arguments)
    folder = Path(options.output) / FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    plain = _compared(plain_workloads(quick=options.quick))
    private = _compared(private_workloads(quick=options.quick))
    votes = _votes(quick=options.quick)
    claims = decide([*plain, *private])
    for claim in claims:
        print(f"{'holds' if claim.holds else 'FAILS'}: {claim.statement} [{claim.measured}]")
    for name, comparisons in (("plain", plain), ("private", private)):
        _write(folder / f"{name}.json", [as_json(comparison) for comparison in comparisons])
        save_margins(folder / f"{name}.png", _drawn(comparisons))
    _write(folder / "votes.json", votes)
    written = Path(options.output) / f"{FOLDER}.md"
    write_text(written, page(plain, private, votes, claims, folder=FOLDER, quick=options.quick))
    print(f"wrote {written}")
    return 0


def _compared(workloads: list[Workload]) -> list[Comparison]:
    found = []
    for work in workloads:
        comparison, _ = compare(work)
        found.append(comparison)
        best = comparison.options[0]
        print(f"{comparison.title}: accuracy {best['accuracy']:.4f} ({comparison.seconds:.1f} s)", flush=True)
    return found


def _votes(*, quick: bool) -> list[dict[str, Any]]:
    """Compute the expected label accuracy of every aggregator on recorded votes."""
    rows = []
    for recorded in available()[: 1 if quick else None]:
        for work in vote_workloads(recorded.K, quick=quick):
            comparison, options = compare(work)
            accuracy = {option.name: recorded.accuracy(option.truth) for option in options}
            rows.append(
                {
                    "votes": recorded.name,
                    "test points": len(recorded.labels),
                    "majority": recorded.majority_accuracy,
                    **{key: comparison.workload[key] for key in ("queries", "epsilon", "delta")},
                    "accuracy": accuracy,
                }
            )
            print(f"{recorded.name}, {comparison.title}: ours {accuracy[options[0].name]:.4f}", flush=True)
    return rows


def _drawn(comparisons: list[Comparison]) -> list[Comparison]:
    """Keep one budget and three numbers of plain voters, so that a picture can be read."""
    chosen = [c for c in comparisons if not c.is_plain or c.workload["epsilon"] == PICTURE_TOTAL]
    return [c for c in chosen if not c.is_plain or c.workload["K"] != 251]


def _write(path: Path, data: object) -> None:
    write_text(path, json.dumps(data, indent=1, ensure_ascii=False) + "\n")


def parser() -> argparse.ArgumentParser:
    """Describe the command line."""
    line = CommandLine(
        prog="python -m experiments.aggregators", description="Every aggregator side by side, at equal budgets."
    )
    line.add_argument("--quick", action="store_true", help="few workloads: half a minute instead of minutes")
    line.add_argument("--output", default="results", help="folder for the page and the pictures (default results)")
    return line


if __name__ == "__main__":
    sys.exit(run(main))
