from itertools import product

import numpy as np
import pytest

from darrm.noisy_max import noisy_law
from darrm.noisy_max.noisy_law import winning_probabilities
from darrm.numerics.integer_noise import AsymmetricNoise, DiscreteGaussian, DiscreteLaplace, IntegerNoise
from darrm.priors import Dirichlet
from tests.noisy_max.oracles import law_of


def listed(noise: IntegerNoise, counts: list[int], reach: int) -> np.ndarray:
    """Every outcome of every noise within the reach, ties shared."""
    points, logs = law_of(noise, reach)
    mass = np.exp(logs)
    law = np.zeros(len(counts))
    for drawn in product(range(points.size), repeat=len(counts)):
        noisy = np.asarray(counts) + points[list(drawn)]
        best = noisy == noisy.max()
        law[best] += np.prod(mass[list(drawn)]) / best.sum()
    return law


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize(
    ("noise", "counts", "reach"),
    [
        (DiscreteGaussian(0.8), [3, 2, 2], 8),
        (DiscreteLaplace(3.0), [0, 2, 1], 9),
        (DiscreteGaussian(0.5), [2, 1, 1, 0], 5),
        (DiscreteGaussian(0.6), [0, 9], 8),
        (AsymmetricNoise(1.0, 1.5, 3.0, 2.0), [2, 1, 1], 8),
        (AsymmetricNoise(1.0, 1.5, 3.0, 2.0), [3, 0], 8),
    ],
)
def test_it_is_the_law_by_listing_all_noises(noise: IntegerNoise, counts: list[int], reach: int) -> None:
    assert winning_probabilities(noise, np.array([counts]))[0] == pytest.approx(listed(noise, counts, reach), abs=1e-10)


@pytest.mark.parametrize(("limit", "size"), [("_MOST_TABLED", 1), ("_MOST_TABLED", 7), ("_ROWS_AT_ONCE", 1000)])
def test_tables_and_histograms_are_taken_in_blocks(limit: str, size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    counts = Dirichlet(0.5).sample(50, 4, 50, rng=np.random.default_rng(4))
    whole = winning_probabilities(DiscreteGaussian(4.0), counts)
    monkeypatch.setattr(noisy_law, limit, size)
    assert winning_probabilities(DiscreteGaussian(4.0), counts) == pytest.approx(whole, abs=1e-14)


@pytest.mark.parametrize(
    ("noise", "error"),
    [
        (DiscreteGaussian(20.0), 1e-6),
        pytest.param(DiscreteLaplace(0.05), 1e-6, marks=pytest.mark.slow),
        (DiscreteGaussian(33.0), 1e-4),
        pytest.param(DiscreteGaussian(127.0), 1e-4, marks=pytest.mark.slow),
        pytest.param(DiscreteLaplace(0.014), 2e-4, marks=pytest.mark.slow),
    ],
)
def test_few_nodes_err_as_little_as_they_say(
    noise: IntegerNoise, error: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts = Dirichlet(0.5).sample(3000, 12, 40, rng=np.random.default_rng(3))
    found = winning_probabilities(noise, counts)
    monkeypatch.setattr(noisy_law, "_EIGHT_NODES_BELOW", np.inf)
    monkeypatch.setattr(noisy_law, "_TWO_NODES_BELOW", np.inf)
    exact = winning_probabilities(noise, counts)
    assert exact.sum(axis=1) == pytest.approx(np.ones(40), abs=1e-12)
    assert np.max(np.abs(found - exact)) < error


def test_noise_that_is_too_wide_to_be_written_down_has_the_law_of_a_narrower_one_to_scale() -> None:
    counts = np.array([[1000, 400, 0], [700, 700, 100]])
    wide = winning_probabilities(DiscreteGaussian(1e9), counts * 1_000_000)
    assert wide == pytest.approx(winning_probabilities(DiscreteGaussian(1e3), counts), abs=1e-4)
