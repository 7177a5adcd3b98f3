"""The list of families, and the one place where another is added.

`darrm.plan.plan`, `darrm.advise.advise`, their reports and `experiments.aggregators` go through it; both functions take
a longer list as well.
"""

from functools import partial

from darrm.errors import checks
from darrm.plan import by_label, compared, optimum, tables, tested
from darrm.plan.family import Family
from darrm.plan.share_right import MOST_PLANNED
from darrm.problem import Workload
from darrm.system.figures import BLACK, BLUE, GRAY, GREEN, ORANGE, PURPLE, SKY_BLUE, VERMILION

TWO, MORE = (2, 2), (3, MOST_PLANNED)
BY_COUNTS = "it is charged for the noisy counts, which nobody sees"
LABEL = "charged for its label, for any number of classes, as `darrm.pate` charges it."
SIGMA, GAMMA = "the least σ that the accountant admits; " + LABEL, "the largest γ that it admits; " + LABEL
SELECTION = (
    "charged for its label, as `darrm.pate` charges it; of two classes as a certified table, the largest that the "
    "accountant admits."
)
TABLE = "the largest whose certified table the accountant admits."
MODELS = "the votes of private models as they are."
SHAPE = "the best shape at the cost of GNMax; " + LABEL
OPTIMUM_RENYI = "the best under a Rényi budget of one order, the best of the accountant's orders."
OPTIMUM_ONCE = "the best of one query, with the largest ε that the accountant admits."


def move_for_certain(workload: Workload) -> bool:
    """Whether a person's votes may move on every question: what is only compared is counted so."""
    return workload.voters.sampled is None


def are_models(workload: Workload) -> bool:
    """Whether the voters are private models, whose votes may need no noise."""
    return workload.voters.are_private_models


BY_LABEL = Family("GNMax by label", by_label.gaussian, SIGMA, BLUE, open_answers=True)
FAMILIES: tuple[Family, ...] = (
    Family("no noise", tables.no_noise, MODELS, GRAY, arises=are_models),
    Family("Rényi", optimum.under_renyi, OPTIMUM_RENYI, BLACK, 2.4, optimal=True),
    Family(
        "per query", optimum.per_query, OPTIMUM_ONCE, VERMILION, 2.0, optimal=True, best_of_one=True, open_answers=True
    ),
    Family("permute-and-flip", tables.permute_and_flip, SELECTION, PURPLE),
    Family("exponential mechanism", tables.exponential_mechanism, SELECTION, VERMILION),
    BY_LABEL,
    Family("LNMax by label", by_label.laplace, GAMMA, ORANGE, open_answers=True),
    Family("shaped noise", by_label.shaped_noise, SHAPE, VERMILION, classes=MORE, open_answers=True),
    Family(
        "GNMax, paper's σ",
        compared.gnmax_of_the_paper,
        "σ from the Rényi bound of DaRRM's Appendix D.2.1, for all queries together; counted by its noisy counts.",
        BLUE,
        only_compared="its labels cost less than its noisy counts",
        arises=move_for_certain,
        planned=False,
    ),
    Family(
        "GNMax, tight σ",
        compared.gnmax_tight,
        "the least σ for which Q answers together, one Gaussian mechanism, are (ε, δ)-private. No accounting of the "
        "noisy counts can allow less noise.",
        BLUE,
        only_compared=BY_COUNTS,
        arises=move_for_certain,
        planned=False,
    ),
    Family(
        "LNMax",
        compared.lnmax,
        "the largest γ that the accountant admits; counted by its noisy counts, which cost more than the label alone.",
        ORANGE,
        only_compared="its labels cost less than its noisy counts",
        arises=move_for_certain,
        planned=False,
    ),
    Family("subsampling", tables.subsampling, "the allowance: " + TABLE, GREEN, planned=False),
    Family("double subsampling", tables.double_subsampling, "the allowance: " + TABLE, GREEN, planned=False),
    Family(
        "DaRRM of the paper",
        compared.darrm_of_the_paper,
        "one person may reach all voters, and a query is optimized for its (ε, δ).",
        SKY_BLUE,
        classes=TWO,
        only_compared="it takes every person to reach all voters; plan asks how many one reaches",
        arises=move_for_certain,
        planned=False,
    ),
    Family(
        "randomized response",
        tables.randomized_response,
        "one probability of the truth, " + TABLE,
        GRAY,
        planned=False,
    ),
)

IF_IT_PASSES = "the least noise with which votes like the public ones pass a private test within the whole budget."
# asked where it is said what the votes look like: whether such a run leaves depends on it
TESTED: tuple[Family, ...] = (
    Family("GNMax, tested first", tested.gaussian, IF_IT_PASSES, BLUE, 2.0),
    Family("GNMax, tested first, else by label", partial(tested.gaussian, otherwise=BY_LABEL), IF_IT_PASSES, BLUE, 1.6),
    Family("Confident-GNMax, tested first", tested.confident, IF_IT_PASSES, SKY_BLUE, 2.0),
)


def named(name: str) -> Family:
    """Return the family of a name; `ValueError` if there is none.

    >>> named("permute-and-flip").classes
    (2, 1000)
    """
    families = {family.name: family for family in (*FAMILIES, *TESTED)}
    if name not in families:
        checks.fail("the family", name, "one of " + ", ".join(families))
    return families[name]
