"""Measure for which γ the costs of single questions add up when trained models answer.

    python -m experiments.boundary --quick     # seconds
    python -m experiments.boundary             # two minutes

Writes OUTPUT/boundary/shapes.json and searches.json, and the page OUTPUT/boundary.md made from them.
"""

import sys
from collections.abc import Sequence
from dataclasses import asdict

from darrm.system.command_line import run
from experiments import pages
from experiments.boundary.losses import AllModels, same_question
from experiments.boundary.page import decide, page
from experiments.boundary.settings import SHAPES, Shape, searches
from experiments.pages import Row

NAME = "boundary"


def measure(shape: Shape) -> Row:
    """Measure what one question and what all of them lose."""
    one, many = (
        AllModels(shape.K, count, shape.epsilon).loss(shape.gamma)
        if shape.kind == "falling"
        else same_question(shape.gamma, shape.epsilon, count)
        for count in (1, shape.questions)
    )
    said = {name: getattr(shape, name) for name in ("kind", "shape", "K", "epsilon", "questions")}
    cost = 1.0 if shape.kind == "optimum" else one / shape.epsilon  # of the optimum the certificate knows more models
    return said | {"cost": cost, "loss": many}


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, search, decide, write."""
    options = pages.command_line(NAME, str(__doc__), quick="short searches: seconds").parse_args(arguments)
    folder = pages.data_folder(options, NAME)
    if not options.page:
        pages.write_json(folder / "shapes.json", [measure(shape) for shape in SHAPES])
        found = [asdict(search) | search.found() for search in searches(quick=options.quick)]
        pages.write_json(folder / "searches.json", found)
    measured, looked = (pages.read_json(folder / f"{name}.json") for name in ("shapes", "searches"))
    pages.print_claims(decide(measured, looked))
    pages.write_page(folder, page(measured, looked))
    return 0


if __name__ == "__main__":
    sys.exit(run(main))
