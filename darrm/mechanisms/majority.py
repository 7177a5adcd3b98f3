"""The private majority of votes about two classes, with a table's noise [D, Algorithm 1].

It holds a `GammaTable`, so its guarantee is proved before it exists. Labels are drawn exactly: given l ones the output
is 1 with probability (1 + g(l))/2 for the very floats g of the table, not for approximations of them. Subsampling and
randomized response are tables, too: ``DaRRM(certify(problem, baselines.subsampling(problem)))``.
"""

import os
from fractions import Fraction

import numpy as np
from numpy.typing import ArrayLike

from darrm import checks
from darrm.losses.charges import Charge
from darrm.privacy import PrivacyParams
from darrm.probability.exact_coins import ExactCoins
from darrm.proof.charge import charge_of
from darrm.proof.table import GammaTable
from darrm.votes import Labels, Votes


class DaRRM:
    """Tell the true majority with probability γ(l), else toss a fair coin [D, Algorithm 1].

    The guarantee is that of one query. Those of several add up where voters draw fresh randomness for each, not where
    they are trained models (docs/trained-models.md): the accountant knows what holds then.

    Parameters
    ----------
    table
        A proven noise function.

    Raises
    ------
    ValueError
        If ``table`` is no `GammaTable`.

    Examples
    --------
    >>> from darrm import Problem, PrivacyParams, Voters, certify
    >>> from darrm.laws import baselines
    >>> problem = Problem.from_allowance(Voters(3, PrivacyParams(0.1)), 3)
    >>> aggregator = DaRRM(certify(problem, baselines.double_subsampling(problem)))
    >>> aggregator.guarantee
    PrivacyParams(epsilon=0.3, delta=0)
    >>> aggregator.release([[1, 1, 0], [0, 0, 0]])
    array([1, 0])
    >>> aggregator.release(Votes.of_labels([["no", "yes", "yes"]], classes=("no", "yes")))
    array(['yes'], dtype='<U3')
    """

    def __init__(self, table: GammaTable) -> None:
        advice = "GammaTable.load reads one from a file, certify(problem, gamma) proves one"
        checks.instance(GammaTable, table=table, advice=advice)
        self._table = table
        # Pr[the answer is not the majority | l] = (1 − γ(l))/2; at a tie this is 1/2 and the coin decides alone
        self._lies = ExactCoins([(1 - Fraction(float(value))) / 2 for value in table.gamma.full])

    @property
    def table(self) -> GammaTable:
        """The proven noise function."""
        return self._table

    @property
    def guarantee(self) -> PrivacyParams:
        """(mε, δ): what one query satisfies, whatever the data."""
        return self._table.problem.target

    def charge(self, queries: int = 1) -> Charge:
        """Describe what ``queries`` queries cost, whatever the data; see `darrm.proof.charge.charge_of`."""
        return charge_of(self._table, queries)

    def probability_of_one(self, ones: int) -> Fraction:
        """Compute Pr[output 1 | so many votes for 1] exactly, (1 + g(l))/2."""
        K = self._table.problem.voters.K
        checks.integer_at_least(0, ones=ones)
        if ones > K:
            checks.fail("ones", ones, f"at most K = {K}")
        lie = self._lies.probabilities[ones]
        return 1 - lie if 2 * ones > K else lie

    def release(self, votes: Votes | ArrayLike, *, rng: np.random.Generator | None = None) -> Labels:
        """Release one label for each query, as `Aggregator.release`.

        The votes are those of K voters about two classes; a (Q, K) matrix of 0/1 or booleans is read as labels. For
        votes that are missing, and were allowed to be, each release tosses coins of its own.
        """
        K = self._table.problem.voters.K
        given = votes if isinstance(votes, Votes) else Votes.of_labels(votes, classes=2)
        ones = given.of_voters(K).completed(rng=rng).ones
        told = (2 * ones > K) ^ self._lies.flip(ones, source=os.urandom if rng is None else rng.bytes)
        return given.labeled(told.astype(np.int64))
