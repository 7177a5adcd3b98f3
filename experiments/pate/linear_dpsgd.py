"""The field's outsider: a linear model on scattering features by DP-SGD (Tramèr and Boneh, arXiv:2011.11660).

They report 98.1 % on MNIST at ε = 1.2. The features are scaled with no data at all, to mean 0 and variance 1 in each of
27 groups of channels of each image, or by the mean and variance of each channel over the pool, whose images are public
here. The training is that of `darrm.training`, Poisson batches, clipping and noise, in closed form: the cross-entropy
of one example has the gradient x·(p − y)ᵀ, of length ‖x‖·‖p − y‖, so a step is two products of matrices.

The setting is the best by the accuracy on the pool, as in `experiments.pate.dpsgd`, of rates of 1/4 to 4 for 5 epochs,
1/2 and 1 for 10, and 9, 27 and 81 groups, on MNIST; the held-out images decided nothing, and Fashion-MNIST takes it.
"""

import time
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from darrm.privacy import PrivacyParams
from darrm.training.calibration import privacy_of
from darrm.training.recipes import PrivateSGD
from experiments.pages import Row
from experiments.pate.dpsgd import Setting, fitted
from experiments.pate.ensembles import SEED, split
from experiments.pate.scattering import scattered
from experiments.pate.settings import Study

LINEAR = Setting(0.5, 512, 10)
GROUPS = 27
_MARGIN = 1e-4  # of the clipping threshold: as in `darrm.training.training`
_FLOOR = np.float32(1e-5)  # of a variance

Floats = NDArray[np.float32]


def scaled_by_groups(x: Floats) -> Floats:
    """Scale coefficients (n, 81, …) to mean 0 and variance 1 in each group of channels of each image."""
    groups = x.reshape(len(x), GROUPS, -1)
    return _scaled(groups, groups.mean(axis=2, keepdims=True), groups.var(axis=2, keepdims=True)).reshape(x.shape)


def scaled_by_pool(x: Floats, pool: Floats) -> Floats:
    """Scale coefficients (n, 81, …) by the mean and the variance of each channel over the public ones."""
    return _scaled(x, pool.mean(axis=(0, 2, 3), keepdims=True), pool.var(axis=(0, 2, 3), keepdims=True))


def clipped_sum(x: Floats, y: NDArray[np.int64], weights: Floats, clip: float) -> Floats:
    """Return Σ_i min(1, C/‖g_i‖)·g_i (d, C) over a batch (B, d), g_i the gradient of −log softmax(x_i W)[y_i]."""
    logits = x @ weights
    errors = np.exp(logits - np.logaddexp.reduce(logits, axis=1, keepdims=True))
    errors[np.arange(len(x)), y] -= 1.0
    norms = np.linalg.norm(errors, axis=1) * np.linalg.norm(x, axis=1)
    errors *= np.minimum(1.0, clip * (1.0 - _MARGIN) / np.maximum(norms, 1e-30))[:, np.newaxis]
    return np.asarray(x.T @ errors)


def train_linear(x: Floats, y: NDArray[np.int64], classes: int, recipe: PrivateSGD, seed: int) -> Floats:
    """Train weights (d, C) from 0 by DP-SGD; with a seed, so that it can be repeated: for experiments alone."""
    rng = np.random.default_rng(seed)
    weights = np.zeros((x.shape[1], classes), dtype=np.float32)
    for _ in range(recipe.steps):
        batch = np.flatnonzero(rng.random(len(x)) < recipe.sampling_rate)
        noise = recipe.noise * recipe.clip * rng.standard_normal(weights.shape, dtype=np.float32)
        noisy = clipped_sum(x[batch], y[batch], weights, recipe.clip) + noise
        weights -= np.float32(recipe.learning_rate / recipe.expected_batch(len(x))) * noisy
    return weights


def linear_rows(study: Study, budgets: Sequence[PrivacyParams]) -> list[Row]:
    """Train on all private images at every budget, with features of either scale, and measure on the held-out ones."""
    data, test_x, test_y = split(study)
    train, pool, held = (scattered(images) for images in (data.train_x, data.test_x, test_x))
    rows: list[Row] = []
    for scale in ("groups", "pool"):
        parts = [
            scaled_by_groups(one) if scale == "groups" else scaled_by_pool(one, pool) for one in (train, pool, held)
        ]
        x, asked, measured = (np.insert(one.reshape(len(one), -1), 0, np.float32(1.0), axis=1) for one in parts)
        for budget in budgets:
            started = time.process_time()
            recipe = fitted(LINEAR, len(x), budget)
            weights = train_linear(x, data.train_y, study.classes, recipe, SEED)
            spent = privacy_of(recipe, budget.delta)
            rows.append(
                {
                    "scaled_by": scale,
                    "accuracy": float(np.mean((measured @ weights).argmax(axis=1) == test_y)),
                    "pool_accuracy": float(np.mean((asked @ weights).argmax(axis=1) == data.test_y)),
                    "epsilon": spent.epsilon,
                    "delta": spent.delta,
                    "training": recipe.to_dict(),
                    "seconds": time.process_time() - started,
                }
            )
    return rows


def _with_one(x: Floats) -> Floats:
    """Flatten coefficients, and put a 1 before them."""
    return np.insert(x.reshape(len(x), -1), 0, np.float32(1.0), axis=1)


def _scaled(x: Floats, mean: Floats, variance: Floats) -> Floats:
    return np.asarray((x - mean) / np.sqrt(variance + _FLOOR))
