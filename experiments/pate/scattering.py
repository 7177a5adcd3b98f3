"""The scattering transform of images, of order 2 over two scales and eight angles: features that no data had a part in.

Bruna and Mallat (2013): an image, the moduli of its wavelet coefficients, and the moduli of theirs at a coarser scale,
each averaged over a Gaussian window and kept at every fourth pixel:

    x ∗ φ,    |x ∗ ψ_{j,θ}| ∗ φ  (j = 0, 1),    ||x ∗ ψ_{0,θ}| ∗ ψ_{1,θ'}| ∗ φ:    1 + 2·8 + 8·8 = 81 channels.

φ has the width 0.8·2, the Morlet wavelet ψ_{j,θ} = g_j·(exp(i ξ_j·u) − β) the width 0.8·2^j along θ and twice that
across, ξ_j = (3π/4)/2^j, and β makes its mean 0. These are the filters of kymatio, which does not import beside current
releases of SciPy; convolutions are circular, on the image with four pixels reflected around it. Tramèr and Boneh
(arXiv:2011.11660) train linear models on these features by DP-SGD.
"""

from functools import cache

import numpy as np
from numpy.typing import NDArray

SCALES, ANGLES = 2, 8
CHANNELS = 1 + SCALES * ANGLES + ANGLES**2
STRIDE = 2**SCALES  # also the pixels of the margin
_WIDTH = 0.8
_AT_ONCE = 16  # images whose coefficients stay in a processor's cache
_COPIES = range(-2, 3)  # of a filter, side by side: what lies farther is below a float's precision


def scattered(images: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the coefficients (n, 81, side/4, side/4) of images (n, 1, side, side), the side a multiple of 4."""
    parts = [_scattered(images[at : at + _AT_ONCE, 0]) for at in range(0, len(images), _AT_ONCE)]
    return np.concatenate(parts)


def _scattered(images: NDArray[np.float32]) -> NDArray[np.float32]:
    side = images.shape[-1]
    wavelets, window = _wavelets(side + 2 * STRIDE), _window(side)
    padded = np.pad(images, ((0, 0), (STRIDE, STRIDE), (STRIDE, STRIDE)), mode="reflect")
    first = _moduli(padded[:, np.newaxis], wavelets)
    second = _moduli(first[:, :ANGLES].reshape(-1, 1, *padded.shape[1:]), wavelets[ANGLES:])
    all_of_them = [padded[:, np.newaxis], first, second.reshape(len(images), ANGLES**2, *padded.shape[1:])]
    return np.concatenate([window @ one @ window.T for one in all_of_them], axis=1)


def _moduli(images: NDArray[np.float32], wavelets: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return |x ∗ ψ| (n, wavelets, side, side) of images (n, 1, side, side), by their Fourier transforms."""
    return np.abs(np.fft.ifft2(np.fft.fft2(images) * wavelets))


@cache
def _wavelets(side: int) -> NDArray[np.float32]:
    """Return the Fourier transforms, which are real, of all ψ: (16, side, side), the finer scale first."""
    places = np.arange(side)[:, np.newaxis] + side * np.array(_COPIES)  # (side, copies)
    down, across = places[:, np.newaxis, :, np.newaxis], places[np.newaxis, :, np.newaxis, :]
    found = []
    for scale in range(SCALES):
        width, frequency = _WIDTH * 2.0**scale, 0.75 * np.pi / 2.0**scale
        for angle in (ANGLES // 2 - 1 - np.arange(ANGLES)) * np.pi / ANGLES:
            along = np.cos(angle) * down + np.sin(angle) * across
            beside = np.cos(angle) * across - np.sin(angle) * down
            bell = np.exp(-(along**2 + 0.25 * beside**2) / (2.0 * width**2)) / (4.0 * np.pi * width**2)
            bells, waves = (one.sum(axis=(2, 3)) for one in (bell, bell * np.exp(1j * frequency * along)))
            found.append(np.fft.fft2(waves - waves.sum() / bells.sum() * bells).real)
    return np.array(found, dtype=np.float32)


@cache
def _window(side: int) -> NDArray[np.float32]:
    """Return the averages over φ at every fourth pixel of an image, along one axis: (side/4, side + 8)."""
    width, whole = _WIDTH * 2.0 ** (SCALES - 1), side + 2 * STRIDE
    distance = np.arange(STRIDE, STRIDE + side, STRIDE)[:, np.newaxis] - np.arange(whole)
    distances = distance[:, :, np.newaxis] + whole * np.array(_COPIES)
    bells = np.exp(-(distances**2) / (2.0 * width**2)) / np.sqrt(2.0 * np.pi * width**2)
    return np.asarray(bells.sum(axis=2), dtype=np.float32)
