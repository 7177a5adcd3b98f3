"""Random distortions of training images: what a teacher of few images learns not to be misled by.

An image is seen through a random affine map of its plane: every pixel p, in coordinates from the center, shows what the
image has at (I + E)·p + t, between pixels by linear interpolation, and 0 outside. The entries of E and of t are
independent and uniform. Together they shift, turn, stretch and slant.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from torch import nn

from darrm import checks
from darrm.ensemble.network import Tensor
from darrm.ensemble.randomness import signed_uniforms

WORDS = 7  # random words an image: four entries of E, two of t, and whether it is mirrored


@dataclass(frozen=True)
class Augmentation:
    """How far an image is distorted before each step that sees it.

    Parameters
    ----------
    shift
        Largest entry of t, in pixels, ≥ 0.
    distortion
        Largest entry of E, in [0, 1): 0.2 turns by up to about 11 degrees and stretches by up to a fifth.
    mirror
        Whether left and right are exchanged in half of the cases.

    Examples
    --------
    >>> Augmentation(shift=2.0)
    Augmentation(shift=2.0, distortion=0.0, mirror=False)
    """

    shift: float = 0.0
    distortion: float = 0.0
    mirror: bool = False

    def __post_init__(self) -> None:
        checks.non_negative(shift=self.shift, distortion=self.distortion)
        if self.distortion >= 1.0:
            checks.fail("distortion", self.distortion, "below 1", "beyond, an image may be turned inside out")

    def maps(self, words: NDArray[np.uint64], shape: tuple[int, ...]) -> NDArray[np.float32]:
        """Turn ``WORDS``·n words into n maps [I + E, t], (n, 2, 3), for images of ``shape`` (…, height, width).

        Coordinates are those of torch: both axes of an image run from −1 to 1, horizontal first.

        Examples
        --------
        >>> (Augmentation().maps(np.zeros(WORDS, dtype=np.uint64), (28, 28)) + 0.0).tolist()
        [[[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]]
        """
        draws = signed_uniforms(words).reshape(-1, WORDS)
        height, width = shape[-2:]
        scale = 2.0 * self.shift / np.array([width, height])
        linear = np.eye(2) + self.distortion * draws[:, :4].reshape(-1, 2, 2)
        if self.mirror:
            linear[:, 0] *= np.where(draws[:, 6] < 0.0, -1.0, 1.0)[:, np.newaxis]
        return np.concatenate([linear, (scale * draws[:, 4:6])[:, :, np.newaxis]], axis=2).astype(np.float32)


def distorted(images: Tensor, maps: Tensor) -> Tensor:
    """Return (n, channels, height, width) images seen through (n, 2, 3) maps; `ValueError` if they are no images."""
    if images.ndim != 4:
        advice = "leave the augmentation out"
        checks.fail(
            "x", checks.Found(f"records of shape {tuple(images.shape[1:])}"), "images (channels, height, width)", advice
        )
    grid = nn.functional.affine_grid(maps, list(images.shape), align_corners=False)
    return nn.functional.grid_sample(images, grid, align_corners=False)
