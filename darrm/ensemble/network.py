"""The teachers' network, where it runs, and stacks of K sets of its parameters."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from numpy.typing import NDArray
from torch import nn

from darrm import checks

# torch ships no types that mypy may follow
Tensor = Any
Module = Any
Device = Any
Build = Callable[[], Module]
Parameters = dict[str, Tensor]  # by name; of G teachers together, stacked: (G, …)


def convolutional_network(channels: int = 1, side: int = 28, classes: int = 2) -> Module:
    """Make the teachers' network: two 5×5 convolutions with pooling (16 and 32 channels) and a linear layer.

    The paper says "each teacher is a CNN model" and no more [D, Section 6.2]; this is the usual small one.

    Parameters
    ----------
    channels
        Channels of the images.
    side
        Height and width of the images, a multiple of 4.
    classes
        Number of classes, at least 2.

    Examples
    --------
    >>> sum(parameter.numel() for parameter in convolutional_network().parameters())
    16386
    """
    checks.integer_at_least(1, channels=channels)
    checks.integer_at_least(2, classes=classes)
    checks.integer_at_least(4, side=side)
    if side % 4:
        checks.fail("side", side, "a multiple of 4", "the network halves the image twice")
    return nn.Sequential(
        nn.Conv2d(channels, 16, kernel_size=5, padding=2),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 32, kernel_size=5, padding=2),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(32 * (side // 4) ** 2, classes),
    )


def choose_device(device: str = "auto") -> Device:
    """Return the device to compute on: ``"auto"`` (a GPU when there is one), ``"cpu"``, ``"cuda"`` or ``"cuda:N"``.

    Another word, or a GPU that is not there, is a `ValueError`.

    >>> choose_device("cpu")
    device(type='cpu')
    """
    available = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if device == "auto":
        return torch.device("cuda" if available else "cpu")
    kind, colon, number = device.partition(":")
    if device != "cpu" and (kind != "cuda" or (colon and not number.isdecimal())):
        checks.fail("device", device, 'one of "auto", "cpu", "cuda", "cuda:N"')
    if kind == "cuda" and (int(number) if number else 0) >= available:
        checks.fail("device", device, f"a device of this machine, which has {available} GPUs", 'use "auto"')
    return torch.device(device)


@contextmanager
def threads_for(device: Device) -> Iterator[None]:
    """Limit torch to one thread for a while on a CPU, where small batches are slower with more."""
    before = torch.get_num_threads()
    torch.set_num_threads(1 if device.type == "cpu" else before)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def built(build: Build) -> Module:
    """Build a network for its architecture, leaving torch's global generator as it was."""
    with torch.random.fork_rng(devices=[]):
        return build()


def initial_parameters(build: Build, seed: int) -> Parameters:
    """Build a network with its own initialization from ``seed``, leaving torch's global generator as it was."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return {name: parameter.detach().clone() for name, parameter in build().named_parameters()}


def stack(parameters: list[Parameters]) -> Parameters:
    """Stack the parameters of G networks: {name: (G, …)}."""
    return {name: torch.stack([one[name] for one in parameters]) for name in parameters[0]}


def along_first(factors: Tensor, like: Tensor) -> Tensor:
    """Reshape (G,) factors so that they multiply ``like``, (G, …), along its first axis."""
    return factors.view([-1] + [1] * (like.ndim - 1))


def best_classes(ask: Callable[[Tensor], Tensor], x: NDArray[Any], device: Device, batch: int) -> list[NDArray[Any]]:
    """Return the class of the largest logit of ``ask``, (…, B, C) → (B, …), for every batch of inputs."""
    with torch.no_grad(), threads_for(device):
        parts = (x[start : start + batch] for start in range(0, len(x), batch))
        return [ask(torch.tensor(part, device=device)).argmax(dim=-1).cpu().numpy().T for part in parts]
