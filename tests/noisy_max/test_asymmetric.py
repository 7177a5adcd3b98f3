import numpy as np
import pytest

from darrm.noisy_max.label_cost import label_estimate
from darrm.noisy_max.mechanisms import AsymmetricMax
from darrm.noisy_max.noisy_law import winning_probabilities
from darrm.numerics.integer_noise import AsymmetricNoise, DiscreteGaussian
from darrm.votes import Votes

DRAWS = 60_000
NOISE = AsymmetricNoise(4.0, 6.0, 2.5, 2.0)


@pytest.mark.statistical
def test_released_labels_follow_the_law() -> None:
    # five and a half standard errors; the law shares ties and the release prefers 0: the mean over both orders does too
    found = np.zeros(2)
    for seed, counts in enumerate(([3, 0], [0, 3])):
        votes = Votes.of_counts(np.tile(counts, (DRAWS, 1)))
        labels = AsymmetricMax(NOISE).release(votes, rng=np.random.default_rng(seed))
        found += np.bincount(labels, minlength=2)[:: 1 if seed == 0 else -1] / (2 * DRAWS)
    true = winning_probabilities(NOISE, np.array([[3, 0]]))[0]
    assert abs(found[0] - true[0]) < 5.5 * np.sqrt(0.25 / (2 * DRAWS))
    mirrored = AsymmetricNoise(NOISE.left, NOISE.right, NOISE.left_power, NOISE.right_power)
    assert abs(winning_probabilities(mirrored, np.array([[3, 0]]))[0, 0] - true[0]) < 1e-12  # of two classes


def test_what_is_no_shaped_noise_or_too_wide_is_refused() -> None:
    with pytest.raises(ValueError, match="noise must be an AsymmetricNoise"):
        AsymmetricMax(40.0)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="of a deviation of at most 1024 votes"):
        AsymmetricMax(AsymmetricNoise(4000.0, 4000.0, 2.0, 2.0))
    with pytest.raises(ValueError, match="reached must be"):
        AsymmetricMax(NOISE, reached=0)


def test_many_classes_are_answered_better_at_the_same_cost() -> None:
    # at order 20 and 0.002 a query, a Gaussian label has sigma = 80.07; the shape's scale solves the same equation
    counts = np.zeros((1, 50), dtype=np.int64)
    counts[0, :10] = np.arange(1, 11) * 18
    gaussian, shaped = DiscreteGaussian(80.07), AsymmetricNoise(93.4, 186.8, 3.0, 3.0)
    assert label_estimate(shaped, [20.0]) < label_estimate(gaussian, [20.0])
    assert winning_probabilities(shaped, counts)[0, 9] > 1.1 * winning_probabilities(gaussian, counts)[0, 9]
