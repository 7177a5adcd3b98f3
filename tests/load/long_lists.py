"""Seconds of plans and releases for long lists of classes: they grow with the votes, not with the list.

    python -m tests.load.long_lists --recompute   # some minutes

Writes OUTPUT/long_lists/long_lists.json, a picture beside it, and OUTPUT/long_lists.md from the JSON.

Two hundred non-private voters, a hundred questions, (2, 1e-5), and a list of ten to a million classes. Agreement does
not depend on its length: a `Dirichlet` prior with concentration 1/C. A list of more than a thousand classes is planned
like open-set answers. The release has 50 voters, strings of a list of 50,000, and one proved mechanism. Every run is a
separate process.
"""

import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import numpy as np

from darrm.commands.command_line import run
from darrm.util.figures import save_figure, style
from experiments import pages
from experiments.pages import Row
from tests.load.measuring import measure_process

NAME = "long_lists"
CLASSES = (10, 100, 1_000, 10_000, 100_000, 1_000_000)
QUESTIONS = (1_000, 10_000, 100_000, 1_000_000)
VOTERS, STRINGS, BUDGET = 50, 50_000, "100,1e-5"
PLAN = "-m darrm.plan --K 200 --non-private --overlap 1 --queries 100 --total 2,1e-5 --quiet"
MECHANISM = (
    f"-m darrm.plan --K {VOTERS} --non-private --overlap 1 --classes open --queries 1000000 --total {BUDGET} --quiet"
)


def plans(folder: Path, classes: Sequence[int]) -> list[Row]:
    rows = []
    for C in classes:
        usage = measure_process(*PLAN.split(), "--classes", str(C), "--prior", f"dirichlet:{1 / C:g}", folder=folder)
        rows.append({"classes": C, "is_open": C > 1_000, **asdict(usage)})
    return rows


def releases(folder: Path, questions: Sequence[int]) -> list[Row]:
    """Release answers to several numbers of questions, one string of a long list in three voters of four."""
    measure_process(*MECHANISM.split(), "--output", "plan.json", folder=folder)
    rows, rng = [], np.random.default_rng(0)
    for Q in questions:
        asked = rng.integers(STRINGS, size=(Q, 1))
        answers = np.where(rng.random((Q, VOTERS)) < 0.75, asked, rng.integers(STRINGS, size=(Q, VOTERS)))
        np.savetxt(folder / "votes.csv", answers, fmt="code%d", delimiter=",")
        flags = f"-m darrm.release votes.csv --table plan.json --ledger l{Q}.sqlite --create-budget {BUDGET}"
        usage = measure_process(*flags.split(), "--output", f"labels{Q}.csv", "--quiet", folder=folder)
        rows.append({"questions": Q, "votes": Q * VOTERS, **asdict(usage)})
    return rows


def draw(folder: Path, data: Row) -> None:
    with save_figure(folder / "seconds.png") as figure:
        for axes, rows, over, label in zip(
            figure.subplots(1, 2),
            (data["plans"], data["releases"]),
            ("classes", "votes"),
            ("classes in the list; a plan for 200 voters", f"votes for {STRINGS:,} strings; a release"),
            strict=True,
        ):
            axes.plot([row[over] for row in rows], [row["seconds"] for row in rows], **style(0).line(len(rows)))
            axes.set(xscale="log", yscale="log", xlabel=label, ylabel="seconds, from start to end", ylim=(1.0, 100.0))
            axes.grid(alpha=0.3)


def page(data: Row) -> str:
    return pages.fill_template(NAME, data, {"voters": VOTERS, "strings": STRINGS, "plan": PLAN, "mechanism": MECHANISM})


def main(arguments: Sequence[str] | None = None) -> int:
    parser = pages.make_command_line(NAME, __doc__, module="tests.load.long_lists", quick="the shortest of each")
    options = parser.parse_args(arguments)

    def measure() -> Row:
        most = 1 if options.quick else len(CLASSES)
        with tempfile.TemporaryDirectory() as work:
            return {"plans": plans(Path(work), CLASSES[:most]), "releases": releases(Path(work), QUESTIONS[:most])}

    return pages.run_measurement(options, f"{NAME}/long_lists.json", measure, page, draw)


if __name__ == "__main__":
    sys.exit(run(main))
