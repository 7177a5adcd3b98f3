"""Ten classes: teachers that are private by themselves, and every release of their plurality at one budget a label.

    python -m experiments.ten_classes --train mnist --output docs/reproduction   # train, keep the votes, count
    python -m experiments.ten_classes --output docs/reproduction                 # count the kept votes again

Writes OUTPUT/ten_classes/NAME-votes.npz and NAME-training.json (training alone), NAME.json (what is counted from the
votes), and OUTPUT/ten_classes.md from the JSON. Models and checkpoints stay in the folder of --models. MNIST and
Fashion-MNIST are downloaded, or read from the folder that DARRM_DATA_DIR names.
"""

import sys
from collections.abc import Sequence
from pathlib import Path

from darrm.commands.command_line import run
from darrm.util import checks
from experiments import pages
from experiments.command_line import CommandLine
from experiments.datasets import ALL_CLASSES, load
from experiments.teachers import Machine
from experiments.ten_classes import page
from experiments.ten_classes.comparison import rows, sums
from experiments.ten_classes.settings import ALLOWANCES, SETUPS, TRAININGS
from experiments.ten_classes.teachers import select, train
from experiments.ten_classes.votes import KeptVotes

NAME = "ten_classes"


def main(arguments: Sequence[str] | None = None) -> int:
    """Train if asked to, count the kept votes, write the page."""
    options = _parser().parse_args(arguments)
    checks.integer_at_least(1, jobs=options.jobs, trainings=options.trainings)
    folder = pages.data_folder(options, NAME)
    machine = Machine(options.jobs, "cpu", progress=True, folder=options.models)
    if options.select is not None:
        pages.write_json(
            folder / f"{options.select}-selection.json", select(load(options.select, ALL_CLASSES), machine)
        )
    if options.train is not None:
        votes, facts = train(load(options.train, ALL_CLASSES), options.trainings, machine)
        votes.save(folder / f"{options.train}-votes.npz")
        pages.write_json(folder / f"{options.train}-training.json", facts)
    if not options.page:
        for name in SETUPS:
            if (folder / f"{name}-votes.npz").exists():
                pages.write_json(folder / f"{name}.json", counted(folder, name))
    results = page.read(folder)
    return pages.finish(folder, page.page(results), page.decide(results))


def counted(folder: Path, name: str) -> pages.Row:
    """Count the kept votes of one data set."""
    votes, setup = KeptVotes.load(folder / f"{name}-votes.npz"), SETUPS[name]
    drawn = {entry["m"]: entry for entry in pages.read_json(folder / f"{name}-training.json")["drawn"]}
    return {
        "dataset": name,
        "questions": len(votes.truth),
        "each": {"epsilon": setup.each.epsilon, "delta": setup.each.delta},
        "labels": [{"m": m, "epsilon": setup.target(m).epsilon, "delta": setup.target(m).delta} for m in ALLOWANCES],
        "rows": list(rows(votes, setup, drawn)),
        "sums": list(sums(setup)),
    }


def _parser() -> CommandLine:
    parser = pages.command_line(NAME, __doc__ or "")
    parser.add_argument("--select", choices=SETUPS, metavar="NAME", help="try every ε and learning rate first")
    parser.add_argument("--train", choices=SETUPS, metavar="NAME", help="train teachers on these images, keep votes")
    parser.add_argument("--trainings", type=int, default=TRAININGS, help="with other seeds (default %(default)s)")
    parser.add_argument("--models", type=Path, default=Path("results") / NAME, help="for checkpoints and models")
    parser.add_argument("--jobs", type=int, default=1, help="processes for the training (default 1)")
    return parser


if __name__ == "__main__":
    sys.exit(run(main))
