"""Train models by DP-SGD on all private images at the (ε, δ) of the votes, to compare with PATE.

**The teachers' network**, without pool, teachers or student [ACG16, Algorithm 1]. Its settings have the best accuracy
on the pool with its true classes. Students never see these classes, so the selection favors DP-SGD. The candidates
were, on MNIST at ε = 2, learning rates of 0.5 to 8 for 3 epochs and 4 for 15 epochs; on the digits at ε = 8, rates of
0.25 to 2. Fashion-MNIST uses MNIST's settings. The selection did not use the held-out images.

**A linear model on scattering features** (Tramèr and Boneh, arXiv:2011.11660: 98.1 % on MNIST at ε = 1.2). The
features are those of Bruna and Mallat (2013), of order 2 over two scales and eight angles, each average kept at every
fourth pixel:

    x ∗ φ,    |x ∗ ψ_{j,θ}| ∗ φ  (j = 0, 1),    ||x ∗ ψ_{0,θ}| ∗ ψ_{1,θ'}| ∗ φ:    1 + 2·8 + 8·8 = 81 channels.

φ has the width 0.8·2. The Morlet wavelet ψ_{j,θ} = g_j·(exp(i ξ_j·u) − β) has the width 0.8·2^j along θ and twice that
across; ξ_j = (3π/4)/2^j, and β makes its mean 0. These are the filters of kymatio, which current releases of SciPy do
not support. Convolutions are circular, on the image with a reflected margin of four pixels. The features are scaled
either without data, in each of 27 groups of channels of each image, or by each channel's mean and variance over the
public pool. The gradient of one example is x·(p − y)ᵀ, of length ‖x‖·‖p − y‖, so a step is two matrix products. The
setting is the best on MNIST's pool; the candidates were rates of 1/4 to 4 for 5 epochs, 1/2 and 1 for 10 epochs, and 9,
27 and 81 groups.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial

import numpy as np
from numpy.typing import NDArray

from darrm.privacy import PrivacyParams
from darrm.training.calibration import calibrate_noise, compute_privacy
from darrm.training.recipes import PrivateSGD
from experiments.pages import Row
from experiments.pate.ensembles import PARTITION_SEED, SEED, network_for, split
from experiments.pate.settings import Study
from experiments.teachers import Machine, Training, obtain_labels

SCALES, ANGLES = 2, 8
CHANNELS = 1 + SCALES * ANGLES + ANGLES**2
STRIDE = 2**SCALES  # also the width of the margin in pixels
_WIDTH = 0.8
_BATCH_SIZE = 16  # images; their coefficients fit into the processor's cache
_COPIES = range(-2, 3)  # periodic copies of a filter; others are below a float's precision


def compute_scattering(images: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the coefficients (n, 81, side/4, side/4) of images (n, 1, side, side); 4 divides the side."""
    parts = [_compute_batch(images[start : start + _BATCH_SIZE, 0]) for start in range(0, len(images), _BATCH_SIZE)]
    return np.concatenate(parts)


def _compute_batch(images: NDArray[np.float32]) -> NDArray[np.float32]:
    side = images.shape[-1]
    wavelets, window = _make_wavelets(side + 2 * STRIDE), _make_window(side)
    padded = np.pad(images, ((0, 0), (STRIDE, STRIDE), (STRIDE, STRIDE)), mode="reflect")
    first = _compute_moduli(padded[:, np.newaxis], wavelets)
    second = _compute_moduli(first[:, :ANGLES].reshape(-1, 1, *padded.shape[1:]), wavelets[ANGLES:])
    channels = [padded[:, np.newaxis], first, second.reshape(len(images), ANGLES**2, *padded.shape[1:])]
    return np.concatenate([window @ images_of_order @ window.T for images_of_order in channels], axis=1)


def _compute_moduli(images: NDArray[np.float32], wavelets: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return |x ∗ ψ| (n, wavelets, side, side) of images (n, 1, side, side), from Fourier transforms of ψ."""
    return np.abs(np.fft.ifft2(np.fft.fft2(images) * wavelets))


@cache
def _make_wavelets(side: int) -> NDArray[np.float32]:
    """Return the Fourier transforms, which are real, of all ψ: (16, side, side), the finer scale first."""
    positions = np.arange(side)[:, np.newaxis] + side * np.array(_COPIES)  # (side, copies)
    down, across = positions[:, np.newaxis, :, np.newaxis], positions[np.newaxis, :, np.newaxis, :]
    transforms = []
    for scale in range(SCALES):
        width, frequency = _WIDTH * 2.0**scale, 0.75 * np.pi / 2.0**scale
        for angle in (ANGLES // 2 - 1 - np.arange(ANGLES)) * np.pi / ANGLES:
            along = np.cos(angle) * down + np.sin(angle) * across
            perpendicular = np.cos(angle) * across - np.sin(angle) * down
            bell = np.exp(-(along**2 + 0.25 * perpendicular**2) / (2.0 * width**2)) / (4.0 * np.pi * width**2)
            bells, waves = (part.sum(axis=(2, 3)) for part in (bell, bell * np.exp(1j * frequency * along)))
            transforms.append(np.fft.fft2(waves - waves.sum() / bells.sum() * bells).real)
    return np.array(transforms, dtype=np.float32)


@cache
def _make_window(side: int) -> NDArray[np.float32]:
    """Return the averages over φ at every fourth pixel of an image, along one axis: (side/4, side + 8)."""
    width, padded_side = _WIDTH * 2.0 ** (SCALES - 1), side + 2 * STRIDE
    distance = np.arange(STRIDE, STRIDE + side, STRIDE)[:, np.newaxis] - np.arange(padded_side)
    distances = distance[:, :, np.newaxis] + padded_side * np.array(_COPIES)
    bells = np.exp(-(distances**2) / (2.0 * width**2)) / np.sqrt(2.0 * np.pi * width**2)
    return np.asarray(bells.sum(axis=2), dtype=np.float32)


@dataclass(frozen=True)
class Setting:
    """Settings of DP-SGD except its noise; clipping is accurate enough for batches of up to 800 records."""

    learning_rate: float
    batch: int  # expected
    epochs: int
    clip: float = 1.0


SETTINGS = {"digits": Setting(2.0, 128, 30), "mnist": Setting(8.0, 512, 3), "fashion-mnist": Setting(8.0, 512, 3)}


def measure_dpsgd(study: Study, budget: PrivacyParams, machine: Machine) -> Row:
    """Train at (ε, δ) on all private images, or read the stored answers; measure held-out accuracy.

    An interrupted training continues from its checkpoint.
    """
    data, test_x, test_y = split(study)
    recipe = calibrate_recipe(SETTINGS[study.name], len(data.train_y), budget)
    x, y = np.concatenate([data.test_x, test_x]), np.concatenate([data.test_y, test_y])
    training = Training(1, PARTITION_SEED, recipe, network_for(study), SEED)
    labels, seconds = obtain_labels(replace(data, test_x=x, test_y=y), training, replace(machine, jobs=1))
    is_right = labels[:, 0] == y
    return _describe(recipe, budget, is_right[: study.pool], is_right[study.pool :], seconds)


def _describe(
    recipe: PrivateSGD, budget: PrivacyParams, pool: NDArray[np.bool_], held_out: NDArray[np.bool_], seconds: float
) -> Row:
    """Describe a model by its right answers on the pool and on the held-out images."""
    spent = compute_privacy(recipe, budget.delta)
    return {
        "accuracy": float(held_out.mean()),
        "pool_accuracy": float(pool.mean()),
        "epsilon": spent.epsilon,
        "delta": spent.delta,
        "training": recipe.to_dict(),
        "seconds": seconds,
    }


def calibrate_recipe(setting: Setting, size: int, budget: PrivacyParams) -> PrivateSGD:
    """Calibrate the noise of a setting on ``size`` images to a budget."""
    rate, steps = setting.batch / size, setting.epochs * size // setting.batch
    return PrivateSGD(
        learning_rate=setting.learning_rate,
        steps=steps,
        sampling_rate=rate,
        noise=calibrate_noise(budget, sampling_rate=rate, steps=steps).value,
        clip=setting.clip,
    )


LINEAR = Setting(0.5, 512, 10)
GROUPS = 27
_CLIP_MARGIN = 1e-4  # relative to the clipping threshold, as in `darrm.training.training`
_MIN_VARIANCE = np.float32(1e-5)  # of a variance

Floats = NDArray[np.float32]


def scale_by_groups(x: Floats) -> Floats:
    """Scale coefficients (n, 81, …) to mean 0 and variance 1 in each group of channels of each image."""
    groups = x.reshape(len(x), GROUPS, -1)
    return _standardize(groups, groups.mean(axis=2, keepdims=True), groups.var(axis=2, keepdims=True)).reshape(x.shape)


def scale_by_pool(x: Floats, pool: Floats) -> Floats:
    """Scale coefficients (n, 81, …) by the mean and variance of each channel over the public pool."""
    return _standardize(x, pool.mean(axis=(0, 2, 3), keepdims=True), pool.var(axis=(0, 2, 3), keepdims=True))


def sum_clipped_gradients(x: Floats, y: NDArray[np.int64], weights: Floats, clip: float) -> Floats:
    """Return Σ_i min(1, C/‖g_i‖)·g_i (d, C) over a batch (B, d), g_i the gradient of −log softmax(x_i W)[y_i]."""
    logits = x @ weights
    errors = np.exp(logits - np.logaddexp.reduce(logits, axis=1, keepdims=True))
    errors[np.arange(len(x)), y] -= 1.0
    norms = np.linalg.norm(errors, axis=1) * np.linalg.norm(x, axis=1)
    errors *= np.minimum(1.0, clip * (1.0 - _CLIP_MARGIN) / np.maximum(norms, 1e-30))[:, np.newaxis]
    return np.asarray(x.T @ errors)


def train_linear(
    x: Floats,
    y: NDArray[np.int64],
    classes: int,
    recipe: PrivateSGD,
    rng: np.random.Generator,
    *,
    momentum: float = 0.0,
) -> Floats:
    """Train weights (d, C) from 0 by DP-SGD; the noise is reproducible, so for experiments only."""
    weights, velocity = np.zeros((2, x.shape[1], classes), dtype=np.float32)
    for _ in range(recipe.steps):
        batch = np.flatnonzero(rng.random(len(x)) < recipe.sampling_rate)
        noise = recipe.noise * recipe.clip * rng.standard_normal(weights.shape, dtype=np.float32)
        noisy = sum_clipped_gradients(x[batch], y[batch], weights, recipe.clip) + noise
        velocity = momentum * velocity + noisy
        weights -= np.float32(recipe.learning_rate / recipe.expected_batch(len(x))) * velocity
    return weights


def measure_linear_models(study: Study, budgets: Sequence[PrivacyParams]) -> list[Row]:
    """Train linear models at every budget with both scalings of features; measure held-out accuracy."""
    data, test_x, test_y = split(study)
    train, pool, held_out = (compute_scattering(images) for images in (data.train_x, data.test_x, test_x))
    scalings: dict[str, Callable[[Floats], Floats]] = {
        "groups": scale_by_groups,
        "pool": partial(scale_by_pool, pool=pool),
    }
    rows: list[Row] = []
    for name, scale in scalings.items():
        # prepend a constant feature 1
        x, pool_x, held_out_x = (
            np.insert(scale(part).reshape(len(part), -1), 0, np.float32(1.0), axis=1)
            for part in (train, pool, held_out)
        )
        for budget in budgets:
            started = time.process_time()
            recipe = calibrate_recipe(LINEAR, len(x), budget)
            weights = train_linear(x, data.train_y, study.classes, recipe, np.random.default_rng(SEED))
            pool_right = (pool_x @ weights).argmax(axis=1) == data.test_y
            right = (held_out_x @ weights).argmax(axis=1) == test_y
            row = _describe(recipe, budget, pool_right, right, time.process_time() - started)
            rows.append({"scaled_by": name, **row})
    return rows


def _standardize(x: Floats, mean: Floats, variance: Floats) -> Floats:
    return np.asarray((x - mean) / np.sqrt(variance + _MIN_VARIANCE))
