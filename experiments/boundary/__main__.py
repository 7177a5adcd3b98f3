"""Measure for which γ the costs of single questions add up when trained models answer.

    python -m experiments.boundary --quick     # seconds
    python -m experiments.boundary             # two minutes

Writes OUTPUT/boundary/shapes.json and searches.json, and the page OUTPUT/boundary.md made from them.
"""

import sys
from collections.abc import Sequence
from dataclasses import asdict

from darrm.commands.command_line import run
from experiments import pages
from experiments.boundary.losses import AllModels, same_question
from experiments.boundary.settings import SHAPES, Shape, searches
from experiments.pages import Claim, Row

KINDS = ("falling", "optimum", "unanimity", "ramp")
EXACT = 1e-9  # what rounding may add to a ratio

NAME = "boundary"


def measure(shape: Shape) -> Row:
    """Measure what one question and what all of them lose."""
    one, many = (
        AllModels(shape.K, count, shape.epsilon).loss(shape.gamma)
        if shape.kind == "falling"
        else same_question(shape.gamma, shape.epsilon, count)
        for count in (1, shape.questions)
    )
    described = {name: getattr(shape, name) for name in ("kind", "shape", "K", "epsilon", "questions")}
    cost = 1.0 if shape.kind == "optimum" else one / shape.epsilon  # of the optimum the certificate knows more models
    return described | {"cost": cost, "loss": many}


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, search, decide, write."""
    options = pages.command_line(NAME, __doc__ or "", quick="short searches: seconds").parse_args(arguments)
    folder = pages.data_folder(options, NAME)
    if not options.page:
        pages.write_json(folder / "shapes.json", [measure(shape) for shape in SHAPES])
        found = [asdict(search) | search.found() for search in searches(quick=options.quick)]
        pages.write_json(folder / "searches.json", found)
    measured, looked = (pages.read_json(folder / f"{name}.json") for name in ("shapes", "searches"))
    return pages.finish(folder, page(measured, looked), decide(measured, looked))


def decide(shapes: Sequence[Row], searches: Sequence[Row]) -> list[Claim]:
    """Decide what the page says about both tables."""
    over = {kind: [ratio_of(row) for row in shapes if row["kind"] == kind] for kind in KINDS}
    ramps = [row for row in shapes if row["kind"] == "ramp"]
    dearest = min(row["cost"] for row in ramps)
    monotone = max(row["worst"] for row in searches if row["monotone"])
    free = max(row["worst"] for row in searches if not row["monotone"])
    tried = sum(row["shapes"] for row in searches if row["monotone"])
    capped = max(row["loss"] / (row["K"] * row["epsilon"]) for row in shapes)
    return [
        Claim(
            "falling γ: two questions lose more than their sum",
            f"{min(over['falling']):.4f} of it",
            _all(over["falling"]),
        ),
        Claim(
            "the optimal γ for m = 1: the same question loses more than the sum of what is proved",
            f"{min(over['optimum']):.4f} to {max(over['optimum']):.4f} of it",
            _all(over["optimum"]),
        ),
        Claim(
            "monotone γ, a question cheaper than a voter: many questions lose more than their sum",
            f"{min(over['unanimity']):.4f} of it and more",
            _all(over["unanimity"]),
        ),
        Claim(
            "monotone γ, a question as dear as a voter or more: sums fail all the same",
            f"{min(over['ramp']):.4f} to {max(over['ramp']):.4f} of it; a question costs {dearest:.4f} voters or more",
            _all(over["ramp"]) and dearest >= 1.0,
        ),
        Claim("the cap holds", f"at most {capped:.3f} of Kε", capped <= 1.0 + EXACT),
        Claim(
            "few voters, monotone γ, a question as dear as a voter or more: no failure found",
            f"at most 1 + {max(0.0, monotone - 1.0):.0e} of the sum, {tried} starts",
            monotone <= 1.0 + EXACT,
        ),
        Claim("the same search finds failures where γ may fall", f"{free:.4f} of the sum", free > 1.0 + EXACT),
    ]


def ratio_of(row: Row) -> float:
    """Return the loss over the sum of what single questions cost."""
    return float(row["loss"] / (row["questions"] * row["cost"] * row["epsilon"]))


def _all(ratios: Sequence[float]) -> bool:
    return min(ratios) > 1.0 + EXACT


def page(shapes: Sequence[Row], searches: Sequence[Row]) -> str:
    """Fill the page from both tables."""
    sums = [row["questions"] * row["cost"] * row["epsilon"] for row in shapes]
    measured = [row | {"sum": total, "ratio": ratio_of(row)} for row, total in zip(shapes, sums, strict=True)]
    facts = {
        "claims": pages.claims_table(decide(shapes, searches)),
        "smallest": min(row["K"] for row in shapes if row["kind"] == "ramp"),
    }
    return pages.filled("boundary", facts, {"shapes": measured, "searches": searches})


if __name__ == "__main__":
    sys.exit(run(main))
