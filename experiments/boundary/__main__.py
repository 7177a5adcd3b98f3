"""Measure for which γ the costs of single questions add up when trained models answer.

    python -m experiments.boundary --quick     # seconds
    python -m experiments.boundary             # minutes

Writes OUTPUT/boundary/shapes.json and searches.json, and the page OUTPUT/boundary.md made from them.
"""

import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict

from darrm.gamma.noise_function import NoiseFunction
from darrm.system.command_line import run
from experiments import pages
from experiments.boundary.losses import AllModels, same_question
from experiments.boundary.page import Row, decide, page
from experiments.boundary.settings import FALLING, RAMPS, UNANIMITY, searches, unanimity

NAME = "boundary"


def shapes() -> Iterator[Row]:
    """Measure what one question and what Q questions lose, for every shape of the settings."""
    for K, epsilon, questions, half in FALLING:
        gamma = NoiseFunction(K, half)
        words = "falling: " + ", ".join(f"{value:.4f}" for value in half)
        one, many = (AllModels(K, count, epsilon).loss(gamma) for count in (1, questions))
        yield _row("falling", words, K, epsilon, questions, one, many)
    for K, epsilon, questions, value in UNANIMITY:
        gamma = unanimity(K, value)
        one, many = (same_question(gamma, epsilon, count) for count in (1, questions))
        yield _row("unanimity", "unanimity", K, epsilon, questions, one, many)
    for ramp in RAMPS:
        one, many = (same_question(ramp.gamma, ramp.epsilon, count) for count in (1, ramp.questions))
        yield _row("ramp", str(ramp), ramp.K, ramp.epsilon, ramp.questions, one, many)


def _row(kind: str, shape: str, K: int, epsilon: float, questions: int, one: float, many: float) -> Row:
    measured = {"cost": one / epsilon, "loss": many}
    return {"kind": kind, "shape": shape, "K": K, "epsilon": epsilon, "questions": questions} | measured


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, search, decide, write."""
    options = pages.command_line(NAME, str(__doc__), quick="short searches: seconds").parse_args(arguments)
    folder = pages.data_folder(options, NAME)
    if not options.page:
        pages.write_json(folder / "shapes.json", list(shapes()))
        found = [asdict(search) | search.found() for search in searches(quick=options.quick)]
        pages.write_json(folder / "searches.json", found)
    measured, looked = (pages.read_json(folder / f"{name}.json") for name in ("shapes", "searches"))
    pages.print_claims(decide(measured, looked))
    pages.write_page(folder, page(measured, looked))
    return 0


if __name__ == "__main__":
    sys.exit(run(main))
