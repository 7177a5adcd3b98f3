"""What the boundary page says: its claims, tables and the argument, from the measured rows and nothing else."""

from collections.abc import Sequence
from typing import Any

from experiments import pages
from experiments.pages import Claim

Row = dict[str, Any]
KINDS = ("falling", "optimum", "unanimity", "ramp")
EXACT = 1e-9  # what rounding may add to a ratio


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
    """Write the page."""
    measured = [
        [
            row["shape"],
            row["K"],
            f"{row['epsilon']:g}",
            f"{row['cost']:.4f}",
            row["questions"],
            f"{row['loss']:.5f}",
            f"{row['questions'] * row['cost'] * row['epsilon']:.5f}",
            f"{ratio_of(row):.4f}",
        ]
        for row in shapes
    ]
    looked = [
        [
            "monotone" if row["monotone"] else "any",
            row["K"],
            row["questions"],
            f"{row['models']:,}",
            row["shapes"],
            f"{row['worst']:.6f}",
            f"{row['cost']:.4f}",
            ", ".join(f"{value:.4f}" for value in row["gamma"]),
        ]
        for row in searches
    ]
    shape_head = ["γ", "K", "ε", "cost of one, in voters", "Q", "loss of Q", "sum", "loss / sum"]
    search_head = ["γ", "K", "Q", "multisets of models", "starts", "worst loss / sum", "cost of one there", "γ there"]
    parts = [
        INTRODUCTION,
        pages.claims_table(decide(shapes, searches)),
        SHAPES,
        pages.table(shape_head, measured),
        ARGUMENT,
        SEARCHES,
        pages.table(search_head, looked),
        KNOWN,
    ]
    return "\n\n".join(parts) + "\n"


INTRODUCTION = """# Trained models: for which γ do single questions add up?

Written by `python -m experiments.boundary --output docs/reproduction` from the JSON files of its run. K trained models,
each ε-private, answer Q questions, and each label leaves through the same γ. Does the whole cost at most Q times what
one question costs? [Why it need not, and what to do](../trained-models.md). Here is how far it may be from true.

**Neither a monotone γ nor a dear question saves the sum.** The table that this library makes by default can lose twice
the sum. Where γ is monotone and a question costs at least what one voter costs, it takes many voters: the
smallest counterexample below has 51; that one and the one of 201 are checked in exact fractions by a test. For fewer
than 51 none was found, and nothing is proved."""

SHAPES = """## Shapes that fail

"Falling": every multiset of models was looked at, with two possible answer vectors each. "Optimum": the table that
`optimize_gamma` makes unless asked for a monotone one. "Unanimity": γ is 0.05 where all agree, 0 elsewhere. "Ramp": γ
is 0 up to some number of votes, makes a step, then rises in a straight line. For the last three the same question is
asked of models that hold one bit; other models may lose even more. A cost of 1 means that one question costs ε."""

ARGUMENT = """## Why a ramp fails

A sketch for large n and small ε; the figures above do not rest on it. Let n models say their bit to the same question:
the number of ones is nearly normal, and its mean moves by nε/2 between the data sets. Write h = h₀·(1 + ηψ), η about
1/√n. One question costs about ε·√n·η·E[ψ′], largest over all places t to which models that always say 1 may move the
normal law. Q questions are one with h^Q, nearly e^{θψ} for θ = Qη, and lose to second order

    ε·√n·η·Q·(E[ψ′] + θ·E[(ψ − Eψ)·ψ′] + …).

At the dearest place the derivative of E[ψ′] along t is 0; the second term need not be. It changes its sign when ψ is
mirrored, so every ψ with a second term fails one way round: a gentle rise of h with a step above it does. A single step
is symmetric, so it has none, and its next one is negative. Corrections in 1/√n hide all this where n is small."""

SEARCHES = """## Few voters: shapes and models searched together

Random shapes, each improved by random steps, against every multiset of models with two possible answer vectors, at
ε = 0.1. A question counts as costing one voter at least. Losing exactly the sum is common: two questions that move
different models."""

KNOWN = """## What is proved

- Q·m ≥ K: the cap Kε is no more than the sum, so the sum is true and useless. Only Q < K/m questions are of interest.
- γ_Sub with an integer m: Q questions look at Q·m models at most.
- No model moves its answers to two of the questions: the labels are independent.

Whether sums hold for K = 3, monotone γ and a question as dear as a voter is open; only Q = 2 is in doubt there. So an
account of models never adds up single questions, whatever γ is."""
