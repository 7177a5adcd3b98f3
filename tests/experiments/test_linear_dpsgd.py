"""The field's outsider: its features are kymatio's, and its closed form is the DP-SGD of this package."""

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("dp_accounting")

import torch

from darrm.training.recipes import PrivateSGD
from darrm.training.training import clipped_sums, per_example_gradients
from experiments.pate import linear_dpsgd
from experiments.pate.scattering import CHANNELS, scattered

# channel: coefficients at (2, 3) and (4, 2) of the image below, by kymatio 0.3.0's Scattering2D(J=2, shape=(28, 28))
KYMATIO = {
    0: (0.53481245, 0.13903987),
    1: (0.03333918, 0.020931361),
    4: (0.01975527, 0.010055539),
    9: (0.059545875, 0.039413095),
    12: (0.044502746, 0.018276637),
    17: (0.003980694, 0.0035458675),
    40: (0.002117261, 0.0016647408),
    80: (0.0029096464, 0.0032908567),
}


def test_features_are_those_of_another_library() -> None:
    row, column = np.mgrid[:28, :28]
    image = np.exp(-((row - 9) ** 2 + (column - 15) ** 2) / 20) + 0.5 * np.exp(
        -((row - 18) ** 2 + 2 * (column - 10) ** 2) / 8
    )
    (found,) = scattered(image.astype(np.float32)[np.newaxis, np.newaxis])
    assert found.shape == (CHANNELS, 7, 7) == (81, 7, 7)
    for channel, expected in KYMATIO.items():
        # kymatio halves the images on the way, and so takes in a little that is beyond their resolution
        assert found[channel, [2, 4], [3, 2]] == pytest.approx(expected, rel=1e-4 if channel < 9 else 0.01)


def test_only_the_average_sees_a_constant_image_and_distances_do_not_grow() -> None:
    (flat,) = scattered(np.full((1, 1, 28, 28), 0.7, dtype=np.float32))
    assert flat[0] == pytest.approx(np.full((7, 7), 0.7), rel=1e-4)
    assert np.abs(flat[1:]).max() < 1e-4
    images = np.random.default_rng(0).random((8, 1, 28, 28), dtype=np.float32)
    shown = scattered(images)
    for one, other in ((0, 1), (2, 3), (4, 5)):
        apart = 16 * np.sum((shown[one] - shown[other]) ** 2)  # a coefficient stands for sixteen pixels
        assert apart < np.sum((images[one] - images[other]) ** 2)


def test_a_clipped_sum_is_that_of_per_example_gradients() -> None:
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(20, 6)).astype(np.float32), rng.integers(3, size=20)
    x[3] *= 1e-3  # one example is shorter than the threshold
    weights = rng.normal(size=(6, 3)).astype(np.float32)
    model = torch.nn.Linear(6, 3, bias=False)
    parameters = {"weight": torch.as_tensor(weights.T.copy())[None]}
    gradients = per_example_gradients(model)(parameters, torch.as_tensor(x)[None], torch.as_tensor(y)[None])
    sums = clipped_sums(gradients, torch.ones(1, 20), 0.5)["weight"][0].numpy()
    assert linear_dpsgd.clipped_sum(x, y, weights, 0.5) == pytest.approx(sums.T, abs=1e-5)


def test_training_learns_and_its_noise_is_the_recipe_s() -> None:
    rng = np.random.default_rng(1)
    y = rng.integers(2, size=400)
    x = np.stack([np.ones(400), 2.0 * y - 1.0 + 0.1 * rng.normal(size=400)], axis=1).astype(np.float32)
    quiet = linear_dpsgd.train_linear(x, y, 2, PrivateSGD(1.0, 30, 0.25, noise=0.1), seed=0)
    assert np.mean((x @ quiet).argmax(axis=1) == y) > 0.99
    # features of 0 have no gradient: what is left is noise, of deviation rate/(q·n)·σ·C·√steps
    nothing = np.zeros((400, 500), dtype=np.float32)
    noisy = linear_dpsgd.train_linear(nothing, y, 2, PrivateSGD(2.0, 9, 0.25, noise=5.0, clip=3.0), seed=0)
    assert noisy.std() == pytest.approx(2.0 / 100 * 15.0 * 3.0, rel=0.15)  # of 1,000 weights: 2 % is a deviation


def test_scales_look_at_nothing_else() -> None:
    rng = np.random.default_rng(2)
    x, pool = (rng.random((4, 81, 7, 7), dtype=np.float32) for _ in range(2))
    groups = linear_dpsgd.scaled_by_groups(x)
    assert groups[0] == pytest.approx(linear_dpsgd.scaled_by_groups(x[:1])[0], abs=1e-5)
    assert groups.reshape(4, 27, -1).std(axis=2) == pytest.approx(np.ones((4, 27)), rel=1e-3)
    assert linear_dpsgd.scaled_by_pool(pool, pool).mean(axis=(0, 2, 3)) == pytest.approx(np.zeros(81), abs=1e-4)
    assert linear_dpsgd.scaled_by_pool(x, pool)[0] == pytest.approx(linear_dpsgd.scaled_by_pool(x[:1], pool)[0])
