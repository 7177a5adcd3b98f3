"""The rows of the privacy cost straight from its definition: all of them, written down for the reference solver.

    f(p, p'; γ) = E_{L~PB(p)}[g(L)] − e^{mε} · E_{L~PB(p')}[g(L)]   ≤   B = e^{mε} − 1 + 2δ        [D, Lemma 3.4]

with PB the Poisson binomial distribution and g the signed noise function.
"""

from itertools import combinations_with_replacement

import numpy as np

from darrm.probability import Array
from darrm.probability.binomial import poisson_binomial_pmf
from darrm.problem import Problem, Voters
from darrm.proof.corners import CornerCounts, corner_pairs, full_set_size

_MOST_ROWS = 2_000_000


def all_multisets(voters: Voters) -> tuple[Array, Array]:
    """Write down every multiset of corners of Lemma 5.1, at most two million, as (p, p'): two arrays (rows, K)."""
    rows = full_set_size(voters)
    if rows > _MOST_ROWS:
        raise ValueError(
            f"the full set of K = {voters.K} has {rows:,} rows, too many to write down (at most {_MOST_ROWS:,}): "
            "use the production solver, which separates over it without enumerating it"
        )
    pairs = corner_pairs(voters)
    indices = np.fromiter(
        (index for row in combinations_with_replacement(range(len(pairs)), voters.K) for index in row),
        dtype=np.int8,
    ).reshape(-1, voters.K)
    touched = np.sum((pairs[indices, 0] != pairs[indices, 1]), axis=1)
    indices = indices[touched <= voters.reached]
    return pairs[indices, 0], pairs[indices, 1]


def counts_of(voters: Voters, p: Array, p_prime: Array) -> CornerCounts:
    """Name a row of `all_multisets`, two arrays (K,)."""
    is_at = (corner_pairs(voters)[:, :1] == p) & (corner_pairs(voters)[:, 1:] == p_prime)
    found = np.bincount(is_at.argmax(axis=0), minlength=8).tolist()
    zeros, ones, high, low, moved_zeros_prime, moved_zeros, moved_ones, moved_ones_prime = found
    all_zeros, all_ones = zeros + moved_zeros + moved_zeros_prime, ones + moved_ones + moved_ones_prime
    return CornerCounts(high, low, all_zeros, all_ones, moved_zeros, moved_ones, moved_zeros_prime, moved_ones_prime)


def all_expectations(voters: Voters) -> tuple[Array, Array]:
    """Compute the coefficients of γ in E_p[g] and E_{p'}[g] in every row of Lemma 5.1, shapes (rows, half size)."""
    first, second = (poisson_binomial_pmf(probabilities) for probabilities in all_multisets(voters))
    half = voters.K // 2 + 1
    return (first - first[:, ::-1])[:, half:], (second - second[:, ::-1])[:, half:]


def all_coefficients(problem: Problem) -> Array:
    """Compute the coefficients of γ in the cost of every row of Lemma 5.1, shape (rows, K − floor(K/2))."""
    first, second = all_expectations(problem.voters)
    return first - problem.cost_ratio * second
