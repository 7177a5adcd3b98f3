"""The private majority of 0/1 votes: with a table's noise, by subsampling, or by randomised response [D, Algorithm 1].

All three hold a `GammaTable`, so their guarantee is proved before they exist. Labels are drawn exactly: given l ones
the output is 1 with probability (1 + g(l))/2 for the very floats g of the table, not for approximations of them.
"""

from __future__ import annotations

import math
import os
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from darrm import checks
from darrm.gamma import baselines
from darrm.losses.charges import Charge
from darrm.probability.exact_coins import ExactCoins
from darrm.probability.exact_integers import uniform_integers
from darrm.proof.corners import constants_of
from darrm.proof.profile import privacy_profile
from darrm.proof.renyi import renyi_curve
from darrm.proof.table import GammaTable, certify
from darrm.release.votes import labelled, ones_matrix

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import ArrayLike, NDArray

    from darrm.losses.profile import PrivacyProfile
    from darrm.losses.renyi import RenyiCurve
    from darrm.privacy import MajorityProblem, PrivacyParams

BINARY = (0, 1)
# exact descriptions of a table are computed for every charge up to so many voters, or so many rows of neighbours: those
# of 301 voters, and those of 1,001 where γ is monotone and has no other rows
PROFILE_UP_TO = 301
ROWS_UP_TO = math.comb(PROFILE_UP_TO + 2, 2)
MONOTONE_ROWS_UP_TO = math.comb(1001 + 2, 2)


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
    >>> from darrm import MajorityProblem, PrivacyParams
    >>> problem = MajorityProblem.from_allowance(3, 3, PrivacyParams(0.1))
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

    @cached_property
    def profile(self) -> PrivacyProfile:
        """The exact privacy profile of one query: the worst divergence over the corners for each ε."""
        return privacy_profile(self._table.problem, self._table.gamma)

    @cached_property
    def renyi(self) -> RenyiCurve | None:
        """The Rényi curve of one query, for γ that do not fall away from the tie; None for others."""
        gamma = self._table.gamma
        return renyi_curve(self._table.problem, gamma) if gamma.is_monotone else None

    def charge(self, queries: int = 1, *, exact_profile: bool | None = None) -> Charge:
        """Describe what ``queries`` queries cost, whatever the data.

        Parameters
        ----------
        queries
            How many, at least 1.
        exact_profile
            Add the exact privacy profile of the table, and its Rényi curve: the accountant's bounds on many queries
            shrink by a third or so. None does so up to K = 301, and for more voters where γ is monotone or a person
            reaches few of them; beyond, it takes longer to compute than most releases.
        """
        problem = self._table.problem
        wanted = self._is_cheap_to_describe() if exact_profile is None else exact_profile
        profile, renyi = (self.profile, self.renyi) if wanted else (None, None)
        reach = "" if problem.overlap is None else f", a person reaching at most {problem.overlap}"
        what = f"{self.name} over {problem.K} voters{reach}"
        return Charge(what, guarantee=self.guarantee, renyi=renyi, profile=profile, count=queries)

    def _is_cheap_to_describe(self) -> bool:
        problem = self._table.problem
        rows = (problem.K - problem.reached + 1) * math.comb(problem.reached + 2, 2)
        limit = MONOTONE_ROWS_UP_TO if self._table.gamma.is_monotone else ROWS_UP_TO
        return problem.K <= PROFILE_UP_TO or rows <= limit

    def probability_of_one(self, ones: int) -> Fraction:
        """Compute Pr[output 1 | so many votes for 1] exactly, (1 + g(l))/2."""
        K = self._table.problem.K
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
        ones = ones_matrix(votes, self._table.problem.K, classes)
        source = os.urandom if rng is None else rng.bytes
        return labelled(self._answers(ones, source), classes)

    def _answers(self, ones: NDArray[np.bool_], source: Callable[[int], bytes]) -> NDArray[np.bool_]:
        counts = np.asarray(ones.sum(axis=1, dtype=np.int64))
        majority = 2 * counts > self._table.problem.K
        return np.asarray(majority ^ self._lies.flip(counts, source=source), dtype=np.bool_)


class RandomizedResponseMajority(DaRRM):
    """Tells the true majority with one probability p_const, whatever the votes [D, Lemma A.1].

    Examples
    --------
    >>> from darrm import MajorityProblem, PrivacyParams
    >>> aggregator = RandomizedResponseMajority(MajorityProblem.from_allowance(11, 3, PrivacyParams(0.1)))
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
        return (1 + honesty * sample_majority(self._table.problem.K, ones, self._draws)) / 2

    @property
    def renyi(self) -> None:
        """None: the law of the sample is γ_Sub itself, which its table's floats only approach."""
        return

    def _honesty(self) -> Fraction:
        """Give s ≤ 1, a float, for which s·γ_Sub is private in real arithmetic.

        The proven floats t differ from scale·γ_Sub by at most e, so the cost of γ_Sub is at most
        (worst_cost + (1 + c)·e)/scale, and s may be scale·budget/(worst_cost + (1 + c)·e).
        """
        problem, certificate = self._table.problem, self._table.certificate
        scale = Fraction(certificate.scale)
        values = zip(range(problem.first_majority, problem.K + 1), self._table.gamma.half, strict=True)
        off = max(abs(Fraction(float(t)) - scale * sample_majority(problem.K, ones, self._draws)) for ones, t in values)
        constants = constants_of(problem)
        ratio = Fraction(constants.ratio) + Fraction(constants.ratio_error)
        worst = Fraction(certificate.worst_cost) + (1 + ratio) * off
        allowed = min(Fraction(1), scale * Fraction(certificate.budget) / worst)
        return Fraction(int(allowed * 2**60), 2**60)  # rounded down to 60 binary digits

    def _answers(self, ones: NDArray[np.bool_], source: Callable[[int], bytes]) -> NDArray[np.bool_]:
        K, queries = self._table.problem.K, ones.shape[0]
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
