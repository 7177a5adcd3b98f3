"""What every aggregator offers: its guarantee, its charge, and labels for votes."""

from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from darrm.losses.charges import Charge
from darrm.losses.renyi import RenyiCurve
from darrm.privacy import PrivacyParams
from darrm.votes import Votes


@runtime_checkable
class Aggregator(Protocol):
    """Turns the votes on one query into one private label; tests/contracts/test_aggregators.py says what each must do.

    Majority aggregators answer with one of two classes. Noisy-maximum aggregators [P] take any number of classes, and
    some answer `darrm.votes.ABSTAIN` where they decline.
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

    def release(self, votes: Votes, *, rng: np.random.Generator | None = None) -> NDArray[Any]:
        """Release one label for each query.

        Parameters
        ----------
        votes
            The votes on Q queries.
        rng
            None draws from the operating system. A generator is for experiments only: its draws are predictable and
            not exact, so no privacy is claimed for them.

        Returns
        -------
        labels
            (Q,) names of classes: 0 … C − 1 unless the votes name them.

        Raises
        ------
        ValueError
            If these are no votes that the aggregator can answer; nothing is drawn then.
        """
        ...
