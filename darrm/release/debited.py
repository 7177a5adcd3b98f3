"""Releases that are paid for: the charge is debited, durably, before a label leaves."""

from typing import Any

from numpy.typing import ArrayLike, NDArray

from darrm.account.ledger import PrivacyLedger
from darrm.aggregator import Aggregator
from darrm.votes import Votes


def release_debited(
    aggregator: Aggregator, votes: Votes | ArrayLike, *, ledger: PrivacyLedger, note: str = ""
) -> NDArray[Any]:
    """Check, draw, hold back, debit, hand over: one label for each query, and the ledger debited for all at once.

    The labels are drawn first and held back: bad votes raise before anything is debited, and whatever happens later, a
    label that left was paid for. A crash between the debit and the return loses labels, never budget. Nothing is paid
    for predictable draws, so there is no ``rng``. ``note`` is the caller's words for the ledger's log.

    Raises
    ------
    ValueError
        If the votes are not what the aggregator takes; nothing is debited.
    BudgetExceededError
        If the budget does not admit so many queries; nothing is debited, the labels are discarded.
    LedgerError
        If the ledger cannot be written; the labels are discarded.

    Examples
    --------
    >>> from darrm import DaRRM, MajorityProblem, PrivacyLedger, PrivacyParams, Voters, Votes, certify
    >>> from darrm.gamma import baselines
    >>> problem = MajorityProblem.from_allowance(Voters(3, PrivacyParams(0.1)), 3)
    >>> aggregator = DaRRM(certify(problem, baselines.double_subsampling(problem)))
    >>> ledger = PrivacyLedger.create(":memory:", PrivacyParams(1))
    >>> release_debited(aggregator, Votes.of_labels([[1, 1, 0], [0, 0, 1]]), ledger=ledger, note="two questions")
    array([1, 0])
    >>> round(ledger.spent.epsilon, 12)
    0.6
    """
    labels = aggregator.release(votes)  # type: ignore[arg-type]  # an array is converted or refused by the aggregator
    if labels.size:
        ledger.debit(aggregator.charge(int(labels.size)), note=note)
    return labels
