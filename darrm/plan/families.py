"""The list of families, and the one place where another is added.

`darrm.plan.plan`, `darrm.advise.advise`, their reports and `experiments.aggregators` go through it; both functions take
a longer list as well.
"""

from functools import partial

from darrm.errors import checks
from darrm.plan import by_label, compared, optimum, tables
from darrm.plan.family import Family
from darrm.plan.share_right import MOST_PLANNED
from darrm.problem import Workload
from darrm.system.figures import BLACK, BLUE, GRAY, GREEN, ORANGE, PURPLE, SKY_BLUE, VERMILION

TWO, MORE = (2, 2), (3, MOST_PLANNED)
BY_COUNTS = "it is charged for the noisy counts, which nobody sees"
LABEL = "charged for its label, for any number of classes, as `darrm.pate` charges it."
SIGMA, GAMMA = "the least σ that the accountant admits; " + LABEL, "the largest γ that it admits; " + LABEL
TABLE = "the largest whose certified table the accountant admits."
MODELS = "the votes of private models as they are."
SHAPE = "the best shape at the cost of GNMax; " + LABEL
OPTIMUM_RENYI = "the best under a Rényi budget of one order, the best of the accountant's orders."
OPTIMUM_ONCE = "the best of one query, with the largest ε that the accountant admits."


def are_models(workload: Workload) -> bool:
    """Whether the voters are private models, whose votes may need no noise."""
    return workload.voters.are_private_models


FAMILIES: tuple[Family, ...] = (
    Family("no noise", tables.no_noise, MODELS, GRAY, classes=TWO, arises=are_models),
    Family("no noise", by_label.no_noise, MODELS, GRAY, classes=MORE, arises=are_models),
    Family("Rényi", optimum.under_renyi, OPTIMUM_RENYI, BLACK, 2.4, TWO, optimal=True),
    Family("Rényi", optimum.plurality_under_renyi, OPTIMUM_RENYI, BLACK, 2.4, MORE, optimal=True),
    Family("per query", optimum.per_query, OPTIMUM_ONCE, VERMILION, 2.0, TWO, optimal=True, best_of_one=True),
    Family(
        "per query", optimum.plurality_per_query, OPTIMUM_ONCE, VERMILION, 2.0, MORE, optimal=True, best_of_one=True
    ),
    Family("permute-and-flip", tables.permute_and_flip, TABLE, PURPLE, classes=TWO),
    Family("exponential mechanism", tables.exponential_mechanism, TABLE, VERMILION, classes=TWO),
    Family("exponential mechanism", by_label.exponential_mechanism, LABEL, VERMILION, classes=MORE),
    Family("permute-and-flip", by_label.permute_and_flip, LABEL, PURPLE, classes=MORE),
    Family("GNMax by label", partial(by_label.gaussian, hope=1.0), SIGMA, BLUE, classes=TWO),
    Family("LNMax by label", partial(by_label.laplace, hope=1.0), GAMMA, ORANGE, classes=TWO),
    Family("GNMax by label", by_label.gaussian, SIGMA, BLUE, classes=MORE),
    Family("LNMax by label", by_label.laplace, GAMMA, ORANGE, classes=MORE),
    Family("shaped noise", by_label.shaped_noise, SHAPE, VERMILION, classes=MORE),
    Family(
        "GNMax, paper's σ",
        compared.gnmax_of_the_paper,
        "σ from the Rényi bound of DaRRM's Appendix D.2.1, for all queries together; counted by its noisy counts.",
        BLUE,
        only_compared="its labels cost less than its noisy counts",
        planned=False,
    ),
    Family(
        "GNMax, tight σ",
        compared.gnmax_tight,
        "the least σ for which Q answers together, one Gaussian mechanism, are (ε, δ)-private. No accounting of the "
        "noisy counts can allow less noise.",
        BLUE,
        only_compared=BY_COUNTS,
        planned=False,
    ),
    Family(
        "LNMax",
        compared.lnmax,
        "the largest γ that the accountant admits; counted by its noisy counts, which cost more than the label alone.",
        ORANGE,
        only_compared="its labels cost less than its noisy counts",
        planned=False,
    ),
    Family("subsampling", tables.subsampling, "the allowance: " + TABLE, GREEN, classes=TWO, planned=False),
    Family(
        "double subsampling", tables.double_subsampling, "the allowance: " + TABLE, GREEN, classes=TWO, planned=False
    ),
    Family(
        "DaRRM of the paper",
        compared.darrm_of_the_paper,
        "one person may reach all voters, and a query is optimized for its (ε, δ).",
        SKY_BLUE,
        classes=TWO,
        only_compared="it takes every person to reach all voters; plan asks how many one reaches",
        planned=False,
    ),
    Family(
        "randomized response",
        tables.randomized_response,
        "one probability of the truth, " + TABLE,
        GRAY,
        classes=TWO,
        planned=False,
    ),
)


def named(name: str, classes: int | None = None) -> tuple[Family, ...]:
    """Return the families of a name, for all numbers of classes or for one; `ValueError` if there is none.

    >>> [family.classes for family in named("permute-and-flip")], len(named("permute-and-flip", 10))
    ([(2, 2), (3, 1000)], 1)
    """
    fitting = (family for family in FAMILIES if classes is None or family.classes[0] <= classes <= family.classes[1])
    chosen = tuple(family for family in fitting if family.name == name)
    if not chosen:
        checks.fail("the family", name, "one of " + ", ".join(dict.fromkeys(family.name for family in FAMILIES)))
    return chosen
