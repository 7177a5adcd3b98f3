"""Costs, tables and profiles that the tests of accounts share."""

import math
from collections.abc import Sequence

import numpy as np

from darrm.account.accountant import Spent
from darrm.loss.profile import PrivacyProfile
from darrm.majority.noise_function import NoiseFunction
from darrm.privacy import PrivacyParams
from darrm.problem import Problem, Voters
from darrm.table.table import Table, certify

QUERY = PrivacyParams(0.2676, 0.0003)
NON_PRIVATE = PrivacyParams("inf")


def bernoulli_profile(p: float = 0.5, q: float = 0.4, points: int = 33) -> PrivacyProfile:
    """Compute the exact profile of a mechanism that answers 1 with probability p or q, in both directions."""

    def compute_delta(epsilon: float) -> float:
        x = math.exp(epsilon)
        forward = max(0.0, p - x * q) + max(0.0, 1.0 - p - x * (1.0 - q))
        reverse = max(0.0, q - x * p) + max(0.0, 1.0 - q - x * (1.0 - p))
        return max(forward, reverse)

    grid = np.linspace(0.0, 1.5, points).tolist()
    return PrivacyProfile(tuple(grid), tuple(map(compute_delta, grid)))


def list_epsilons(spent: Spent) -> dict[str, float]:
    return {bound.name: bound.epsilon for bound in spent.bounds}


def make_table(voters: Voters, half: Sequence[float], m: float | None = None) -> Table:
    """Certify γ for an allowance of m voters, by default as many as a person influences."""
    return certify(Problem.from_allowance(voters, m or voters.reached), NoiseFunction(voters.K, list(half)))
