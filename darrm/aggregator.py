"""What every aggregator offers: its guarantee, its charge, and labels for votes."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from darrm.losses.charges import Charge
from darrm.losses.renyi import RenyiCurve
from darrm.privacy import PrivacyParams

ABSTAIN = -1  # the label of a query that is not answered (⊥ in [P])


@runtime_checkable
class Aggregator(Protocol):
    """Turns the votes of one query into one private label.

    Two families exist. Majority aggregators take votes of shape (Q, K): row q holds the answers of K voters to query q.
    Noisy-maximum aggregators [P] take histograms of shape (Q, C): row q counts the votes for each of C classes, and
    answer `ABSTAIN` where they decline.
    """

    @property
    def guarantee(self) -> PrivacyParams | RenyiCurve:
        """What one query satisfies, whatever the data: an (ε, δ) pair or a Rényi curve."""
        ...

    def charge(self, queries: int = 1) -> Charge:
        """Describe what ``queries`` queries cost, whatever the data.

        The charge depends neither on votes nor on labels, so it is known, debited and published before the release.
        """
        ...

    def release(self, votes: ArrayLike, *, rng: np.random.Generator | None = None) -> NDArray[np.int64]:
        """Release one label for each row of ``votes``.

        Parameters
        ----------
        votes
            Shape (Q, K) votes or (Q, C) histograms, see the class.
        rng
            None draws from the operating system. A generator is for experiments only: its draws are predictable and
            not exact, so no privacy is claimed for them.

        Returns
        -------
        labels
            Shape (Q,).
        """
        ...
