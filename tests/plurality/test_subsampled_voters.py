"""A plurality of voters drawn at random is private, and fails as often as one of them does."""

from fractions import Fraction

from darrm import PrivacyParams, Problem, Voters
from darrm.plurality.baselines import excess_of_drawn
from darrm.plurality.plurality_law import true_plurality


def test_a_voter_that_fails_makes_the_answer_fail() -> None:
    """One drawn voter of (1, 0.1) exceeds e by 0.1, however many there are to draw from."""
    for K in (1, 3):
        problem = Problem(Voters(K, PrivacyParams(1, "0.1")), PrivacyParams(1, "0.2"), 3)
        excess = excess_of_drawn(problem, true_plurality(K, 3, 1))
        assert excess is not None
        assert Fraction(1, 10) <= excess + Fraction(1, 2**50)
        assert excess <= Fraction(1, 10) + Fraction(1, 10**9)
