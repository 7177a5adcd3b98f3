"""K private classifiers with sampled sensitivity as the voters of a DaRRM majority [S] [D].

Why the guarantees combine as they do. Voter i releases its parameters once, (ε_i, Δ_i, γ_i)-random DP: there is an
event C_i about the pair of neighboring data sets D, D′, of probability at least 1 − γ_i, on which its release is
(ε_i, Δ_i)-differentially private in the ordinary sense.

*All voters on the same records.* By a union bound all of C_1 … C_K hold with probability at least 1 − Σγ_i. On such a
pair the voters' answers to one query are K independent (ε, Δ)-private bits, so [D, Lemma 3.4] applies to this pair and
the released answer is (mε, δ)-private on it. Hence (mε, δ, Σγ_i)-random DP.

*Disjoint shards*, assigned without looking at the data. The record in which D and D′ differ lies in one shard, and only
that shard's voter changes; its event alone matters. Hence (mε, δ, max γ_i)-random DP for data of Σn_i records.

*Several queries.* The voters' noise was drawn once, so their answers to different queries are not independent given the
answers so far, and composing the queries is not covered by the argument above. But all answers together are
post-processing of the K released classifiers, so for any number of queries the composition of the K releases holds:
(Σε_i, ΣΔ_i, Σγ_i) on the same records, (max ε_i, max Δ_i, max γ_i) on disjoint shards.

There is no ``charge()`` on purpose: an accountant of plain differential privacy must not add these answers up.

This module lives with the aggregators because it is one: it needs `DaRRM` from above the tables and the voters from
`darrm.random_dp` below them.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from darrm import checks
from darrm.mechanisms.majority import DaRRM
from darrm.privacy import PrivacyParams
from darrm.problem import Voters
from darrm.proof.table import GammaTable
from darrm.random_dp.guarantee import RandomDP, compose
from darrm.random_dp.private_classifier import PrivateClassifier

DATA = ("same", "disjoint")


class PrivateClassifierMajority:
    """The private majority of K private classifiers, with random differential privacy.

    Parameters
    ----------
    voters
        K fitted classifiers that name the same two classes.
    table
        A proven noise function for K voters, each at least as private as ``table.problem.voters.each``.
    data
        "same": every voter was fitted on the same records. "disjoint": no record was given to two voters, and which
        voter got it does not depend on the data.

    Raises
    ------
    ValueError
        If the number of voters is not K, a voter is not fitted or less private than the table supposes, the classes,
        distributions or (on the same data) numbers of records differ, or the union bound reaches 1.

    Examples
    --------
    Three copies of a threshold classifier with fresh noise, on the same 40 records:

    >>> from darrm import MajorityProblem, Voters
    >>> from darrm.laws import baselines
    >>> from darrm.proof.table import certify
    >>> from darrm.random_dp import Laplace, ParametersOf, PrivateClassifier, SensitivitySampler
    >>> class Threshold:
    ...     def fit(self, X, y):
    ...         self.middle_ = np.array([X.mean()])
    ...     def predict(self, X):
    ...         return (X[:, 0] > self.middle_).astype(int)
    >>> def records(rng, count):
    ...     return rng.random((count, 1)), np.arange(count) % 2
    >>> sampler = SensitivitySampler(ParametersOf(Threshold(), ("middle_",)), records, "l1", distribution="U[0, 1]")
    >>> found = sampler.estimate(40, gamma=0.02, rule="exchangeability", seed=1)
    >>> each = PrivacyParams(1)
    >>> data = records(np.random.default_rng(2), 40)
    >>> def voter():
    ...     return PrivateClassifier(Threshold(), Laplace(each), found, attributes=("middle_",)).fit(*data)
    >>> problem = MajorityProblem.from_allowance(Voters(3, each), 2)
    >>> table = certify(problem, baselines.double_subsampling(problem))
    >>> majority = PrivateClassifierMajority([voter(), voter(), voter()], table)
    >>> print(majority.guarantee)
    (2, 0)-private on all but a share 0.06 of the neighboring pairs of 40 records from U[0, 1]
    >>> majority.predict([[0.2], [0.9]]).shape
    (2,)
    """

    def __init__(self, voters: Sequence[PrivateClassifier], table: GammaTable, *, data: str = "same") -> None:
        checks.one_of(DATA, data=data)
        self._majority = DaRRM(table)
        self._voters = tuple(voters)
        problem = table.problem
        if len(self._voters) != problem.voters.K:
            checks.fail("voters", len(self._voters), f"as many as the table's K = {problem.voters.K}")
        given_by_all = [voter.guarantee.on_covered_pairs for voter in self._voters]
        for index, (voter, given) in enumerate(zip(self._voters, given_by_all, strict=True)):
            each = problem.voters.each
            if not Voters(1, each).cover(Voters(1, given)):
                allowed = f"at least as private as the table's voters, {each}"
                checks.fail(f"voter {index}", str(given), allowed, "optimize a table for these voters")
            if voter.classes != self._voters[0].classes:
                checks.fail(f"the classes of voter {index}", voter.classes, f"{self._voters[0].classes}, as of voter 0")
        if problem.voters.own is not None and not problem.voters.cover(Voters.of(given_by_all)):
            advice = "optimize a table for these voters"
            checks.fail("voters", str(Voters.of(given_by_all)), f"as private as the table's, {problem.voters}", advice)
        self._all_voters = (compose if data == "same" else _of_shards)([voter.guarantee for voter in self._voters])
        self._one_query = RandomDP(
            problem.target,
            self._all_voters.exact_gamma,
            self._all_voters.records,
            self._all_voters.distribution,
            f"voters: {self._all_voters.noise}; majority: coins drawn exactly from the operating system",
        )

    @property
    def guarantee(self) -> RandomDP:
        """What the answer to one query satisfies: the table's (mε, δ) on all but a share γ of the pairs."""
        return self._one_query

    def guarantee_for(self, queries: int) -> RandomDP:
        """Return what the answers to so many queries satisfy together.

        For one query this is `guarantee`; for more, the composition of the K released classifiers, whose
        post-processing all answers are. That bound does not grow with the number of queries.
        """
        checks.integer_at_least(1, queries=queries)
        return self._one_query if queries == 1 else self._all_voters

    def votes(self, features: ArrayLike) -> NDArray[np.int64]:
        """Collect the voters' answers to (Q, d) features, shape (Q, K). They are private, but not to this guarantee."""
        return np.stack([voter.vote(features) for voter in self._voters], axis=1)

    def predict(self, features: ArrayLike, *, rng: np.random.Generator | None = None) -> NDArray[np.generic]:
        """Release one class for each row of (Q, d) features, which are public or of the person who asks.

        ``rng`` is for experiments only: with it nothing is guaranteed.
        """
        labels = self._majority.release(self.votes(features), rng=rng)
        return np.asarray(np.array(self._voters[0].classes)[labels])


def _of_shards(guarantees: list[RandomDP]) -> RandomDP:
    """Combine the guarantees of voters on disjoint shards: only one voter's data change."""
    names = {guarantee.distribution for guarantee in guarantees}
    if len(names) != 1:
        checks.fail("the voters' distributions", sorted(names), "one and the same")
    pairs = [guarantee.on_covered_pairs for guarantee in guarantees]
    return RandomDP(
        PrivacyParams(max(pair.exact_epsilon for pair in pairs), max(pair.exact_delta for pair in pairs)),
        max(guarantee.exact_gamma for guarantee in guarantees),
        sum(guarantee.records for guarantee in guarantees),
        guarantees[0].distribution,
        "; ".join(dict.fromkeys(guarantee.noise for guarantee in guarantees)),
    )
