"""Releases that are paid for: the charge is debited, durably, before a label leaves."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from darrm.account.ledger import PrivacyLedger
from darrm.aggregator import Aggregator


def release_debited(
    aggregator: Aggregator,
    votes: ArrayLike,
    *,
    ledger: PrivacyLedger,
    note: str = "",
    **options: Any,  # noqa: ANN401 (whatever the aggregator takes)
) -> NDArray[np.int64]:
    """Release one label for each row of ``votes`` and debit the ledger for all rows at once.

    The labels are drawn first and held back: bad votes raise before anything is debited, and whatever happens later, a
    label that left was paid for. A crash between the debit and the return loses labels, never budget.

    Parameters
    ----------
    aggregator
        Any aggregator.
    votes
        What its ``release`` takes; one row is one query.
    ledger
        Where to debit.
    note
        The caller's words for the log.
    **options
        Passed on to ``release``, such as ``classes``.

    Returns
    -------
    labels
        Shape (Q,).

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
    >>> from darrm import MajorityProblem, PrivacyParams, Voters, certify
    >>> from darrm.account.ledger import PrivacyLedger
    >>> from darrm.release.majority import DaRRM
    >>> from darrm.gamma import baselines
    >>> problem = MajorityProblem.from_allowance(Voters(3, PrivacyParams(0.1)), 3)
    >>> aggregator = DaRRM(certify(problem, baselines.double_subsampling(problem)))
    >>> ledger = PrivacyLedger.create(":memory:", PrivacyParams(1))
    >>> release_debited(aggregator, [[1, 1, 0], [0, 0, 1]], ledger=ledger, note="two questions")
    array([1, 0])
    >>> round(ledger.spent().epsilon, 12)
    0.6
    """
    labels = aggregator.release(votes, **options)
    if labels.size:
        ledger.debit(aggregator.charge(int(labels.size)), note=note)
    return labels
