"""Who may know what, in plain words: what the numbers of a release mean for one person."""

import math

from darrm.problem import Voters
from darrm.proof.plurality_table import PluralityTable
from darrm.verify.any_table import Table
from darrm.verify.audit import Audit


def who_may_know(audit: Audit) -> list[str]:
    """Write, one sentence a fact, what was released, whom it protects, from whom, and on what conditions."""
    if audit.table is None:
        return ["The table cannot be trusted, so nothing is known about what its labels give away."]
    voters, target = audit.table.problem.voters, audit.table.problem.target
    one = f"e^{target.epsilon:g} = {_factor(target.epsilon)}{_failing(target.delta)}"
    return [
        *_released(audit, audit.table),
        f"Protected is every person whose data reach {_reach(voters)}.",
        f"Whoever sees one label, and knows all else, changes the odds of a belief about this person by at most {one}.",
        *_together(audit),
        *_conditions(voters),
    ]


def _released(audit: Audit, table: Table) -> list[str]:
    number = "Each label" if audit.labels is None else f"Each of the {audit.labels.size:,} labels"
    voters, kept = table.problem.voters, "The number of votes is not released, and nothing but the labels is."
    if isinstance(table, PluralityTable):
        law, starts = table.probabilities, table.probabilities.partitions.starts
        top = law.weights[starts] / 2.0**53
        truth = f"with a probability between {top.min():.4g} and {top.max():.4g} that depends on the votes"
        several = f"{number} is one of {law.classes} classes: one with the most votes of {voters.K} voters {truth}."
        return [several, kept]
    half = table.gamma.half
    truth = f"with a probability γ between {half.min():.4g} and {half.max():.4g}, the larger the more of them agree"
    if not table.gamma.is_monotone:
        truth = f"with a probability γ between {half.min():.4g} and {half.max():.4g} that depends on how many agree"
    return [
        f"{number} tells the majority of {voters.K} voters {truth}; otherwise it is a fair coin.",
        kept,
    ]


def _reach(voters: Voters) -> str:
    if voters.reached == voters.K:
        return f"any number of the {voters.K} voters"
    return f"at most {voters.reached} of the {voters.K} voters; others are not protected by this proof"


def _together(audit: Audit) -> list[str]:
    if audit.ledger is None:
        return ["What several labels give away together is not said here: it takes the ledger."]
    spent, budget = audit.ledger.spent, audit.ledger.budget
    if not spent.queries:
        return ["The ledger has paid for no label yet."]
    if math.isinf(spent.epsilon):
        return [f"For the {spent.queries:,} labels of the ledger together no bound is known at δ = {budget.delta:g}."]
    factor = f"e^{spent.epsilon:.4g} = {_factor(spent.epsilon)}{_failing(budget.delta)}"
    allowed = f"the budget allows e^{budget.epsilon:g}"
    all_labels = f"All {spent.queries:,} labels of the ledger together"
    return [f"{all_labels} change such odds by at most {factor} (by the bound {spent.bound!r}); {allowed}."]


def _conditions(voters: Voters) -> list[str]:
    found = [
        "Whoever sees votes, or the coins, knows more: votes and the machine that drew must have been kept secret."
    ]
    if not voters.are_plain:
        is_private = f"is {voters.each}-differentially private"
        if voters.own is not None:
            kinds = ", ".join(f"{n} of them {each}" for n, each in voters.private_kinds)
            others = "" if voters.each.is_private else "; of the others nothing is asked"
            is_private = f"is as differentially private as it says, {kinds}{others}"
        found.append(
            f"It is a condition that each voter by itself {is_private}; whoever sees one voter's answers learns what "
            "that voter gives away."
        )
    else:
        found.append("Nothing is asked of the voters, which may give away all that they know to whoever sees them.")
    if voters.are_private_models:
        found.append(
            "The voters are models, trained once: their answers share the randomness of their training, so the costs "
            "of single labels do not add up, and the total must come from a bound that holds for models."
        )
    elif not voters.are_plain:
        found.append(
            "It is a condition that each voter looks at the data afresh, with new randomness, at every question."
        )
    return found


def _factor(epsilon: float) -> str:
    return f"{math.exp(epsilon):.4g}" if epsilon < math.log(1e300) else "more than 1e300"


def _failing(delta: float) -> str:
    return "" if delta == 0.0 else f", except with a probability of at most {delta:g}"
