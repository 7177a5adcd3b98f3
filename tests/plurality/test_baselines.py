"""The plurality of a sample of voters: its law by enumeration and its size."""

from collections.abc import Callable
from itertools import combinations

import numpy as np
import pytest

from darrm import PrivacyParams, Problem, Voters
from darrm.plurality.baselines import double_subsampled_plurality, subsampled_plurality
from darrm.plurality.partitions import list_partitions
from darrm.plurality.plurality_law import true_plurality


def state_problem(K: int, m: int | str, classes: int) -> Problem:
    return Problem.from_allowance(Voters(K, PrivacyParams("0.1")), m, classes=classes)


def enumerate_samples(counts: tuple[int, ...], size: int) -> np.ndarray:
    """Compute the probability of every class to be the plurality of a sample, ties at random."""
    votes = [label for label, n in enumerate(counts) for _ in range(n)]
    samples = [np.bincount(sample, minlength=len(counts)) for sample in combinations(votes, size)]
    leaders = np.array([sample == sample.max() for sample in samples])
    return np.asarray((leaders / leaders.sum(axis=1, keepdims=True)).mean(axis=0))


@pytest.mark.parametrize(("K", "classes"), [(1, 2), (6, 3), (5, 4)])
def test_subsampled_plurality_has_the_law_of_a_random_sample(K: int, classes: int) -> None:
    for size in range(1, K + 1):
        law = subsampled_plurality(state_problem(K, size, classes))
        for part in list_partitions(K, classes).parts:
            assert law.probabilities([part])[0] == pytest.approx(enumerate_samples(part, size), abs=1e-15)


@pytest.mark.parametrize(("m", "size"), [(1, 1), (2, 3), (3, 5), (4, 6), (6, 6)])
def test_double_subsampled_plurality_draws_2m_minus_1_voters(m: int, size: int) -> None:
    law = double_subsampled_plurality(state_problem(6, m, 3))
    assert law.weights.tolist() == true_plurality(6, 3, size).weights.tolist()


@pytest.mark.parametrize("propose", [subsampled_plurality, double_subsampled_plurality])
def test_a_sample_has_a_whole_number_of_voters(propose: Callable[[Problem], object]) -> None:
    with pytest.raises(ValueError, match="m must be an integer"):
        propose(state_problem(6, "2.5", 3))
