"""Numbers are read as they are typed, at every door."""

from fractions import Fraction

import pytest

from darrm import PrivacyParams, Problem, Voters, certify
from darrm.commands.values import integer, real
from darrm.majority import baselines
from darrm.priors import parse
from darrm.privacy import exact_number
from darrm.verify.gamma import budget
from tests.verify.support import gamma_of, worst_of


@pytest.mark.parametrize("text", ["１２", "1_0", "０.１", "٣", "1e1_0"])
def test_other_digits_are_no_digits(text: str) -> None:
    for read in (
        lambda: integer("--K", text, 1),
        lambda: real("--gap", text),
        lambda: exact_number("epsilon", text),
        lambda: PrivacyParams(text),
        lambda: PrivacyParams(1, text),
        lambda: parse(f"point:{text}"),
    ):
        with pytest.raises(ValueError, match="must be"):
            read()


@pytest.mark.parametrize("delta", [1e-5, 0.1, 1e-3, 1e-9])
@pytest.mark.parametrize("m", [1, 2, 3])
def test_the_papers_delta_in_floats_is_a_target(delta: float, m: int) -> None:
    """δ = 1 − (1 − Δ)^m and m·ε, also a rounding out of range: proved is the target as it is."""
    voters = Voters(3, PrivacyParams(0.1, delta))
    target = PrivacyParams(m * 0.1, 1 - (1 - delta) ** m)
    table = certify(Problem(voters, target), baselines.double_subsampling(Problem.from_allowance(voters, m)))
    worst = worst_of(gamma_of(table.problem, table.gamma), target.exact_epsilon)
    assert worst.upper <= budget(target.exact_epsilon, target.exact_delta).lower
    with pytest.raises(ValueError, match="a majority cannot fail less often than one voter"):
        Problem(voters, PrivacyParams(Fraction(1, 10), voters.each.exact_delta / 2))
