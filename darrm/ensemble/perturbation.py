"""Random changes of inputs that leave their class alone: moved, turned, stretched, mirrored, faded, noisy.

An image's pixel at (column u, row v), both in [−1, 1], comes from the place A·(u, v) + t of the original, with
A = rotation · shear · scales; places outside are 0, the background of the data sets here. All draws come from the
generator given, so that a seeded training repeats.
"""

import math
from dataclasses import dataclass

import torch
from torch import nn

from darrm import checks
from darrm.ensemble.network import Generator, Tensor, along_first

_IMAGE_AXES = 4  # batch, channels, height, width


@dataclass(frozen=True)
class Perturbation:
    """How far inputs may change; nothing changes by default. Every draw is uniform, and one for each input.

    Parameters
    ----------
    shift
        Of images, in pixels along each axis, in [−shift, shift].
    rotation
        Of images, in degrees, in [−rotation, rotation].
    scale
        Of images, along each axis by a factor in [e^−scale, e^scale], uniform in the logarithm.
    shear
        Of images, in [−shear, shear].
    flip
        Whether images are mirrored, left to right, half of the time.
    fading
        The entries are multiplied by a factor in [e^−fading, e^fading], uniform in the logarithm.
    noise
        Standard deviation of Gaussian noise that is added to every entry.

    Examples
    --------
    >>> image, generator = torch.ones(1, 1, 4, 4), torch.Generator().manual_seed(0)
    >>> bool((Perturbation().applied(image, generator) == image).all())
    True
    >>> int((Perturbation(flip=True).applied(image, generator) == image).sum())
    16
    """

    shift: float = 0.0
    rotation: float = 0.0
    scale: float = 0.0
    shear: float = 0.0
    flip: bool = False
    fading: float = 0.0
    noise: float = 0.0

    def __post_init__(self) -> None:
        checks.non_negative(
            shift=self.shift, rotation=self.rotation, scale=self.scale, shear=self.shear, fading=self.fading,
            noise=self.noise,
        )  # fmt: skip

    @property
    def geometric(self) -> bool:
        """Whether images are moved, turned, stretched or mirrored."""
        return bool(self.shift or self.rotation or self.scale or self.shear or self.flip)

    def applied(self, x: Tensor, generator: Generator) -> Tensor:
        """Return changed copies of a batch (B, …) of inputs, or the batch itself where nothing changes.

        Raises
        ------
        ValueError
            If something is asked for that only images (B, channels, height, width) have.
        """
        if self.geometric:
            if x.ndim != _IMAGE_AXES:
                checks.fail(
                    "x", checks.Found(f"inputs of shape {tuple(x.shape[1:])}"), "images", "use noise and fading alone"
                )
            places = nn.functional.affine_grid(
                self._maps(x, generator).to(x.device), list(x.shape), align_corners=False
            )
            x = nn.functional.grid_sample(x, places, align_corners=False)
        if self.fading:
            x = x * along_first(torch.exp(_uniform(self.fading, len(x), generator=generator)).to(x.device), x)
        if self.noise:
            x = x + self.noise * torch.randn(x.shape, generator=generator).to(x.device)
        return x

    def _maps(self, x: Tensor, generator: Generator) -> Tensor:
        count = len(x)
        angle = _uniform(math.radians(self.rotation), count, generator=generator)
        cosine, sine = angle.cos(), angle.sin()
        rotation = torch.stack([torch.stack([cosine, -sine], 1), torch.stack([sine, cosine], 1)], 1)
        shear = torch.eye(2).repeat(count, 1, 1)
        shear[:, 0, 1] = _uniform(self.shear, count, generator=generator)
        maps = rotation @ shear @ torch.diag_embed(torch.exp(_uniform(self.scale, count, 2, generator=generator)))
        if self.flip:
            maps[:, 0] *= 1.0 - 2.0 * torch.randint(2, (count, 1), generator=generator)
        pixels = torch.tensor([2.0 / x.shape[-1], 2.0 / x.shape[-2]])  # the image is 2 wide and 2 high
        return torch.cat([maps, (pixels * _uniform(self.shift, count, 2, generator=generator))[:, :, None]], dim=2)


def _uniform(limit: float, *shape: int, generator: Generator) -> Tensor:
    return limit * (2.0 * torch.rand(*shape, generator=generator) - 1.0)
