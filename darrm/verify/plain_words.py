"""Who may know what, in plain words: what the numbers of a release mean for one person."""

import math

from darrm.problem import Voters
from darrm.verify.audit import Audit
from darrm.verify.table import exact_of


def who_may_know(audit: Audit) -> list[str]:
    """Write, one sentence a fact, what was released, whom it protects, from whom, and on what conditions."""
    if audit.table is None:
        return ["The table cannot be trusted, so nothing is known about what its labels give away."]
    voters, target = audit.table.problem.voters, audit.table.problem.target
    labels = "Each label" if audit.labels is None else f"Each of the {audit.labels.size:,} labels"
    return [
        exact_of(audit.table).in_words(labels),
        "The number of votes is not released, and nothing but the labels is.",
        f"Protected is every person whose data reach {_reach(voters)}.",
        _learned("one label", target.epsilon, target.delta) + ".",
        *_together(audit),
        *_conditions(voters),
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
    learned = _learned(f"all {spent.queries:,} labels of the ledger together", spent.epsilon, budget.delta)
    return [f"{learned} (by the bound {spent.bound!r}); the budget allows e^{budget.epsilon:g}."]


def _learned(what: str, epsilon: float, delta: float) -> str:
    """Say what (ε, δ) means: of odds where δ is 0, of probabilities otherwise."""
    factor = f"e^{epsilon:.4g} = {_factor(epsilon)}"
    if delta == 0.0:
        return f"Whoever sees {what}, and all else, changes the odds of a belief about this person by at most {factor}"
    return f"Any event of {what} is at most {factor} times as likely, plus {delta:g}, as with other data of this person"


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
