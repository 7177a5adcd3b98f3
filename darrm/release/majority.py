"""The private majority of 0/1 votes: with a table's noise, by subsampling, or by randomised response [D, Algorithm 1].

All three hold a `GammaTable`, so their guarantee is proved before they exist. Labels are drawn exactly: given l ones
the output is 1 with probability (1 + g(l))/2 for the very floats g of the table, not for approximations of them.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from darrm import checks
from darrm.gamma import baselines
from darrm.losses.charges import Charge
from darrm.privacy import PrivacyParams
from darrm.probability.exact_coins import ExactCoins
from darrm.probability.exact_integers import uniform_integers
from darrm.problem import MajorityProblem
from darrm.proof.charge import charge_of
from darrm.proof.corners import ratio_of
from darrm.proof.table import GammaTable, certify
from darrm.release.votes import labelled, ones_matrix

BINARY = (0, 1)


class DaRRM:
    """Tells the true majority with probability γ(l), else tosses a fair coin [D, Algorithm 1].

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
    >>> from darrm import MajorityProblem, PrivacyParams, Voters
    >>> problem = MajorityProblem.from_allowance(Voters(3, PrivacyParams(0.1)), 3)
    >>> aggregator = DaRRM(certify(problem, baselines.double_subsampling(problem)))
    >>> aggregator.guarantee
    PrivacyParams(epsilon=0.3, delta=0)
    >>> aggregator.release([[1, 1, 0], [0, 0, 0]])
    array([1, 0])
    >>> aggregator.release([["no", "yes", "yes"]], classes=("no", "yes"))
    array(['yes'], dtype='<U3')
    """

    name = "DaRRM"

    def __init__(self, table: GammaTable) -> None:
        if not isinstance(table, GammaTable):
            checks.fail("table", type(table).__name__, "a GammaTable", "certify the noise function first")
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

    def release(
        self, votes: ArrayLike, *, classes: tuple[Any, Any] = BINARY, rng: np.random.Generator | None = None
    ) -> NDArray[Any]:
        """Release one label for each query.

        Parameters
        ----------
        votes
            Shape (Q, K): 0/1, booleans, or the two labels named by ``classes``.
        classes
            What stands for 0 and for 1.
        rng
            None draws from the operating system. A generator is for experiments only: its draws can be predicted and
            repeated, so nothing is claimed about their privacy.

        Returns
        -------
        labels
            Shape (Q,): 0/1 integers, or labels of ``classes``.

        Raises
        ------
        ValueError
            If some vote is no vote; nothing is released then.
        """
        ones = ones_matrix(votes, self._table.problem.voters.K, classes)
        source = os.urandom if rng is None else rng.bytes
        return labelled(self._answers(ones, source), classes)

    def _answers(self, ones: NDArray[np.bool_], source: Callable[[int], bytes]) -> NDArray[np.bool_]:
        counts = np.asarray(ones.sum(axis=1, dtype=np.int64))
        majority = 2 * counts > self._table.problem.voters.K
        return np.asarray(majority ^ self._lies.flip(counts, source=source), dtype=np.bool_)


class RandomizedResponseMajority(DaRRM):
    """Tells the true majority with one probability p_const, whatever the votes [D, Lemma A.1].

    Examples
    --------
    >>> from darrm import MajorityProblem, PrivacyParams, Voters
    >>> aggregator = RandomizedResponseMajority(MajorityProblem.from_allowance(Voters(11, PrivacyParams(0.1)), 3))
    >>> round(float(aggregator.probability_of_one(11)), 4)
    0.6904
    """

    name = "randomised response"

    def __init__(self, problem: MajorityProblem) -> None:
        super().__init__(certify(problem, baselines.randomized_response(problem)))


class SubsamplingMajority(DaRRM):
    """Draws m of the K voters without replacement and tells their majority; ties by a fair coin [D, Lemma 3.1].

    Its law is γ_Sub, but it never computes γ_Sub: it shuffles voters. Where the proof had to scale γ_Sub down by a hair
    (floats need a margin), the sample's majority is replaced by a fair coin with the matching tiny probability.

    Parameters
    ----------
    problem
        With an integer m.

    Raises
    ------
    ValueError
        If m is no integer.
    """

    name = "subsampling"

    def __init__(self, problem: MajorityProblem) -> None:
        super().__init__(certify(problem, baselines.subsampling(problem)))
        self._draws = problem.exact_m.numerator
        self._coins = ExactCoins([(1 - self._honesty()) / 2, Fraction(1, 2)])

    def probability_of_one(self, ones: int) -> Fraction:
        """Compute Pr[output 1 | so many votes for 1] exactly from the hypergeometric law of the sample."""
        honesty = 1 - 2 * self._coins.probabilities[0]
        return (1 + honesty * sample_majority(self._table.problem.voters.K, ones, self._draws)) / 2

    def charge(self, queries: int = 1) -> Charge:
        """Describe what ``queries`` queries cost: by (ε, δ) alone, for the law is γ_Sub and not its table's floats."""
        return replace(
            charge_of(self._table, queries, exact=False), what=f"{self.name} over {self._table.problem.voters.K} voters"
        )

    def _honesty(self) -> Fraction:
        """Give s ≤ 1, a float, for which s·γ_Sub is private in real arithmetic.

        The proven floats t differ from scale·γ_Sub by at most e, so the cost of γ_Sub is at most
        (worst_cost + (1 + c)·e)/scale, and s may be scale·budget/(worst_cost + (1 + c)·e).
        """
        problem, certificate = self._table.problem, self._table.certificate
        scale = Fraction(certificate.scale)
        values = zip(range(problem.voters.first_majority, problem.voters.K + 1), self._table.gamma.half, strict=True)
        off = max(
            abs(Fraction(float(t)) - scale * sample_majority(problem.voters.K, ones, self._draws)) for ones, t in values
        )
        cost = ratio_of(problem.target.exact_epsilon)
        ratio = Fraction(cost.value) + Fraction(cost.error)
        worst = Fraction(certificate.worst_cost) + (1 + ratio) * off
        allowed = min(Fraction(1), scale * Fraction(certificate.budget) / worst)
        return Fraction(int(allowed * 2**60), 2**60)  # rounded down to 60 binary digits

    def _answers(self, ones: NDArray[np.bool_], source: Callable[[int], bytes]) -> NDArray[np.bool_]:
        K, queries = self._table.problem.voters.K, ones.shape[0]
        draws = [uniform_integers(K - taken, queries, source=source) for taken in range(self._draws)]
        counts = ones_in_sample(ones, draws)
        majority = 2 * counts > self._draws
        tie = (2 * counts == self._draws).astype(np.int64)
        return np.asarray(majority ^ self._coins.flip(tie, source=source), dtype=np.bool_)


def ones_in_sample(ones: NDArray[np.bool_], draws: list[NDArray[np.int64]]) -> NDArray[np.int64]:
    """Count the ones among voters drawn without replacement.

    Parameters
    ----------
    ones
        Shape (Q, K).
    draws
        For step i an array of shape (Q,) with entries in 0 … K − i − 1: which of the voters that are left.

    Returns
    -------
    counts
        Shape (Q,).
    """
    left = ones.copy()
    rows = np.arange(left.shape[0])
    counts = np.zeros(left.shape[0], dtype=np.int64)
    for taken, choice in enumerate(draws):
        # the chosen voter swaps places with the first that is left
        position = taken + choice
        chosen = left[rows, position]
        left[rows, position] = left[:, taken]
        counts += chosen
    return counts


def sample_majority(K: int, ones: int, draws: int) -> Fraction:
    """Compute Pr[the sample's majority is 1] − Pr[it is 0] exactly for so many ones among K.

    Examples
    --------
    >>> sample_majority(5, 3, 1), sample_majority(5, 4, 2)
    (Fraction(1, 5), Fraction(3, 5))
    """
    checks.integer_at_least(0, ones=ones)
    if ones > K:
        checks.fail("ones", ones, f"at most K = {K}")
    signed = sum(
        ((2 * drawn > draws) - (2 * drawn < draws)) * math.comb(ones, drawn) * math.comb(K - ones, draws - drawn)
        for drawn in range(draws + 1)
    )
    return Fraction(signed, math.comb(K, draws))
