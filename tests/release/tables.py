"""Certified tables of three voters."""

from collections.abc import Sequence

from darrm.majority.noise_function import NoiseFunction
from darrm.privacy import PrivacyParams
from darrm.problem import Problem, Voters
from darrm.table.table import Table, certify


def table_of(
    gamma: Sequence[float], m: float | str = 3, *, epsilon: float | str = "0.02", delta: float | str = "1e-8"
) -> Table:
    """Return the table of a noise function; γ = 1 everywhere returns the majority, γ = 0 a coin."""
    problem = Problem.from_allowance(Voters(3, PrivacyParams(epsilon, delta)), m)
    return certify(problem, NoiseFunction(3, gamma))
