"""What is to be released: so many majorities of so many voters, within one budget for all of them."""

from __future__ import annotations

from dataclasses import dataclass, replace

from darrm import checks
from darrm.overlap import checked_overlap
from darrm.privacy import LARGEST_EXPONENT, MajorityProblem, PrivacyParams


@dataclass(frozen=True)
class Workload:
    """Q majority votes of K voters, released within one total budget.

    Parameters
    ----------
    K
        Number of voters, at least 1.
    each
        What every voter satisfies; ``PrivacyParams("inf")`` for voters that are not private.
    overlap
        How many voters one person's data reach at most, 1 … K; None for K.
    queries
        Q, at least 1.
    total
        The budget of all Q answers together, ε > 0.

    Raises
    ------
    ValueError
        If a value lies outside its range.

    Examples
    --------
    >>> work = Workload(250, PrivacyParams("inf"), 1, 1000, PrivacyParams(2, 1e-5))
    >>> work.reached, work.each.is_private
    (1, False)
    """

    K: int
    each: PrivacyParams
    overlap: int | None
    queries: int
    total: PrivacyParams

    def __post_init__(self) -> None:
        checks.integer_at_least(1, K=self.K, advice="K is the number of voters")
        checks.integer_at_least(1, queries=self.queries, advice="how many votes are to be released")
        object.__setattr__(self, "overlap", checked_overlap(self.K, self.overlap))
        if self.each.is_private and self.each.exact_epsilon <= 0:
            checks.fail("each.epsilon", self.each.epsilon, "positive", "voters with epsilon = 0 carry no information")
        if not 0 < self.total.exact_epsilon <= LARGEST_EXPONENT:
            checks.fail("total.epsilon", self.total.epsilon, f"in (0, {LARGEST_EXPONENT}]")

    @property
    def reached(self) -> int:
        """How many voters one person's data reach at most."""
        return self.K if self.overlap is None else self.overlap

    def problem(self, target: PrivacyParams) -> MajorityProblem:
        """State the problem of one query that is to be ``target``-private; `ValueError` where there is none."""
        return MajorityProblem(self.K, self.each, target, self.overlap)

    def votes_alone(self) -> Workload:
        """Forget that the voters are private: what a mechanism must assume that knows the votes only."""
        return replace(self, each=PrivacyParams("inf"))
