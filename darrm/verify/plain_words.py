"""Who may know what, in plain words: what the numbers of a release mean for one person.

Each sentence is a theorem with its numbers computed, those of `darrm.account.meaning`. What was proved here stands
before what agrees with the files only.
"""

import math

from darrm.account.accountant import estimated
from darrm.account.meaning import learned
from darrm.privacy import PrivacyParams
from darrm.problem import Voters
from darrm.proof.table import Table
from darrm.system.command_line import numbered, rounded_up
from darrm.verify.audit import Audit
from darrm.verify.drawn import is_directed
from darrm.verify.evidence import RELEASE
from darrm.verify.ledger import LedgerCopy
from darrm.verify.members import drawn_in_words
from darrm.verify.table import Answering, costs_of
from darrm.verify.verdicts import CLAIMED, FALSE, UNKNOWN

_NEAR = 1e-4  # relative: a figure that is smaller by less says the same


def who_may_know(audit: Audit) -> list[str]:
    """Write, one sentence a fact, what was released, whom it protects, from whom, and on what conditions."""
    if not audit.releases:
        judged = any(file.role == RELEASE for file in audit.files)
        said = ["The table cannot be trusted, so nothing is known about what its labels give away."] if judged else []
        return [*said, *_of_ledgers(audit)]
    size = sum(file.labels.size for file in audit.labels.values())
    labels = "Each label" if not audit.labels else "The one label" if size == 1 else f"Each of the {size:,} labels"
    said = []
    for path, answering in audit.releases.items():
        start = f"{path}: " if len(audit.releases) > 1 else ""
        voters, target = costs_of(answering).voters, _target(answering)
        said += [
            start + costs_of(answering).in_words("Each label" if start else labels),
            "The number of votes is not released, and nothing but the labels is.",
            f"Protected is every person whose data reach {_reach(voters)}.",
            *(
                []
                if target is None
                else [learned("one label", target.epsilon, target.delta, present=is_directed(voters.sampled)) + "."]
            ),
        ]
    said += _of_ledgers(audit)
    for answering in audit.releases.values():
        said += [sentence for sentence in _conditions(costs_of(answering).voters) if sentence not in said]
    return said


def _target(answering: Answering) -> PrivacyParams | None:
    return answering.problem.target if isinstance(answering, Table) else answering.charge().guarantee


def _of_ledgers(audit: Audit) -> list[str]:
    if not audit.ledgers:
        return ["What several labels give away together is not said here: it takes the ledger."]
    held = sum(file.labels.size for file in audit.labels.values())
    said = []
    for path, ledger in audit.ledgers.items():
        start = [f"Of {path}:"] if len(audit.ledgers) > 1 else []
        said += [*start, *_together(ledger, held if len(audit.ledgers) == 1 else 0)]
    return said


def _reach(voters: Voters) -> str:
    if voters.reached == voters.K:
        return f"any number of the {voters.K} voters"
    return f"at most {voters.reached} of the {voters.K} voters; others are not protected by this proof"


def _together(ledger: LedgerCopy, labels: int) -> list[str]:
    spent, budget, proved = ledger.spent, ledger.budget, ledger.proved
    present = any(is_directed(charge.sampling) for charge in ledger.charges)
    if not spent.queries:
        return ["The ledger has paid for no label yet."]
    if spent.understated is not None:
        given = f"What all {ledger.labels:,} labels of the ledger give away is not bounded"
        return [f"{given}: {estimated(spent.understated)}."]
    what = _of_ledger(ledger.labels)
    held = f" (the audited files hold {labels:,})" if labels else ""
    paid = numbered(ledger.labels, "label", "labels")
    scope = (
        f"The ledger paid for {paid} in all{held}, and what follows is about all of them, whatever files they are in."
    )
    if math.isinf(spent.epsilon) and proved is None:
        return [scope, f"For {what} no bound is known at δ = {budget.delta:g}."]
    allowed = f"; the budget allows e^{budget.epsilon:g}."
    if proved is None:
        told = learned(what, spent.epsilon, budget.delta, present=present)
        return [
            scope,
            f"{told} (by the bound {spent.bound!r}, which agrees with the files and is not proved here){allowed}",
        ]
    told = learned(what, proved.epsilon, budget.delta, present=present)
    sentences = [scope, f"{told} (by the bound {proved.name!r}, proved here){allowed}"]
    if spent.epsilon < proved.epsilon * (1 - _NEAR):
        smaller = f"The smaller ε = {spent.epsilon:.4g} of the bound {spent.bound!r}"
        sentences.append(f"{smaller} agrees with the files; this audit does not prove it by other means.")
    return sentences


def to_quote(audit: Audit) -> str:
    """Write the one line that may be quoted, about all labels of the ledgers: what was proved here stands first."""
    if audit.counts[FALSE]:
        return "To quote: nothing, for a claim is false."
    figures = [_figure(ledger) for ledger in audit.ledgers.values()]
    names = [f"of {path} " if len(audit.ledgers) > 1 else "" for path in audit.ledgers]
    if not figures:
        tables = list(audit.tables.values())
        if not tables:
            return "To quote: nothing, for what several labels cost takes the ledger."
        figures = [(f"one label is {table.problem.target}-private, proved here", "") for table in tables]
        names = [f"of {path} " if len(tables) > 1 else "" for path in audit.tables]
    without = next((remark for figure, remark in figures if not figure), "")
    if without:
        return f"To quote: nothing, for {without}."
    told = "; ".join(f"{name}{figure}" for name, (figure, _) in zip(names, figures, strict=True))
    remarks = "".join(remark for _, remark in figures) + _neighbors(audit)
    unknown = audit.counts[UNKNOWN]
    asked = f" and the {numbered(unknown, 'claim', 'claims')} that cannot be known" if unknown else ""
    made = numbered(audit.counts[CLAIMED], "claim", "claims")
    return f"To quote: {told}, if the {made} of the maker{asked} hold{remarks}."


def _neighbors(audit: Audit) -> str:
    samplings = [charge.sampling for ledger in audit.ledgers.values() for charge in ledger.charges]
    if not audit.ledgers:
        samplings = [table.problem.voters.sampled for table in audit.tables.values()]
    told = dict.fromkeys(f"{one.neighbors}, where {drawn_in_words(one)}" for one in samplings if one is not None)
    return f", for neighbors that {'; or '.join(told)}" if told else ""


def _figure(ledger: LedgerCopy) -> tuple[str, str]:
    spent, proved, delta = ledger.spent, ledger.proved, ledger.budget.delta_text
    if not spent.queries:
        return "", "the ledger has paid for no label"
    if spent.understated is not None:
        return "", estimated(spent.understated)
    if proved is None and math.isinf(spent.epsilon):
        return "", f"no bound is known at δ = {delta}"
    whole = f"{_of_ledger(ledger.labels)} {'is' if ledger.labels == 1 else 'are'}"
    agrees = "agrees with the files and is not proved here"
    of_files = f"({rounded_up(spent.epsilon, 4):f}, {delta})-private by {spent.bound!r}"
    if proved is None:
        return f"{whole} {of_files}, which {agrees}", ""
    remark = f"; {of_files} {agrees}" if spent.epsilon < proved.epsilon * (1 - _NEAR) else ""
    return f"{whole} ({rounded_up(proved.epsilon, 4):f}, {delta})-private, proved here by {proved.name!r}", remark


def _of_ledger(queries: int) -> str:
    return "the one label of the ledger" if queries == 1 else f"all {queries:,} labels of the ledger together"


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
    if voters.sampled is not None:
        found.append(
            f"It is a condition that {drawn_in_words(voters.sampled)}, whoever else is, and that no call is made again "
            "because of what it said: whoever is among the examples of every question is not protected by this proof."
        )
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
