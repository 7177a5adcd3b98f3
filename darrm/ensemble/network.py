"""The teachers' network, where it runs, and stacks of K sets of its parameters."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from darrm import checks

Build = Callable[[], Any]  # makes a torch.nn.Module


def convolutional_network(channels: int = 1, side: int = 28, classes: int = 2) -> Any:  # noqa: ANN401 (a torch module)
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

    Raises
    ------
    ValueError
        If a number is out of range.

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


def choose_device(device: str = "auto") -> Any:  # noqa: ANN401 (a torch device)
    """Give the device to compute on: a GPU when there is one.

    Parameters
    ----------
    device
        ``"auto"``, ``"cpu"``, ``"cuda"`` or ``"cuda:N"``.

    Raises
    ------
    ValueError
        If the word is another one, or the GPU that it names is not there.

    Examples
    --------
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
def cpu_threads(count: int) -> Iterator[None]:
    """Limit torch to ``count`` threads for a while; small batches are slower with more."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def built(build: Build) -> Any:  # noqa: ANN401 (a torch module)
    """Build a network for its architecture, leaving torch's global generator as it was."""
    with torch.random.fork_rng(devices=[]):
        return build()


def initial_parameters(build: Build, seed: int) -> dict[str, Any]:
    """Build a network with its own initialisation from ``seed``, leaving torch's global generator as it was."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return {name: parameter.detach().clone() for name, parameter in build().named_parameters()}


def stack(parameters: list[dict[str, Any]]) -> dict[str, Any]:
    """Stack the parameters of G networks: {name: (G, …)}."""
    return {name: torch.stack([one[name] for one in parameters]) for name in parameters[0]}


def concatenate(stacks: list[dict[str, Any]]) -> dict[str, Any]:
    """Put stacks behind each other."""
    return {name: torch.cat([one[name] for one in stacks]) for name in stacks[0]}
