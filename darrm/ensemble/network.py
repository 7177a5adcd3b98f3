"""The teachers' network, where it runs, and stacks of K sets of its parameters."""

import hashlib
import inspect
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from types import FunctionType
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from darrm.errors import checks

# torch ships no types that mypy may follow
Tensor = Any
Module = Any
Device = Any
Generator = Any
Array = NDArray[Any]  # of records, of classes or of parameters
Build = Callable[[], Module]
Parameters = dict[str, Tensor]  # by name; of G teachers together, stacked: (G, …)

_GENERATOR = threading.Lock()


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
    _check_side(side)
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


def student_network(channels: int = 1, side: int = 28, classes: int = 10, width: int = 16) -> Module:
    """Make a network for students: two and a half times as fast as the teachers', and deeper.

    Three convolutions (5×5 with stride 2, then 3×3 twice with a pooling between) of w, 2w and 4w channels, and a linear
    layer; the parameters lie in memory as CPUs like them, channels last.

    Parameters
    ----------
    channels, side, classes
        As for `convolutional_network`.
    width
        w, at least 1.

    Examples
    --------
    >>> sum(parameter.numel() for parameter in student_network().parameters())
    54922
    """
    checks.integer_at_least(1, channels=channels, width=width)
    checks.integer_at_least(2, classes=classes)
    _check_side(side)
    layers = nn.Sequential(
        nn.Conv2d(channels, width, kernel_size=5, stride=2, padding=2),
        nn.ReLU(),
        nn.Conv2d(width, 2 * width, kernel_size=3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(2 * width, 4 * width, kernel_size=3, padding=1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(4 * width * (side // 4) ** 2, classes),
    )
    return layers.to(memory_format=torch.channels_last)


def _check_side(side: int) -> None:
    checks.integer_at_least(4, side=side)
    if side % 4:
        checks.fail("side", side, "a multiple of 4", "the network halves the image twice")


def choose_device(device: str = "auto") -> Device:
    """Return the device to compute on: ``"auto"`` (a GPU when there is one), ``"cpu"``, ``"cuda"`` or ``"cuda:N"``.

    Another word, or a GPU that is not there, is a `ValueError`.

    >>> choose_device("cpu")
    device(type='cpu')
    """
    checks.instance(str, device=device, advice='say "auto"')
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


@contextmanager
def _borrowed_generator() -> Iterator[None]:
    with _GENERATOR, torch.random.fork_rng(devices=[]):
        yield


def built(build: Build) -> Module:
    """Build a network for its architecture, leaving torch's global generator as it was."""
    with _borrowed_generator():
        return build()


def network_digest(build: Build) -> str:
    """Return the SHA-256 of what a network computes from its parameters: structure, settings, buffers and code.

    Of each module its class counts, with the source unless it is torch's own, its settings (the size of a kernel, a
    function) and its buffers; functions that its code finds by their names do not. No source is a `ValueError`.
    """
    model = built(build)
    own = vars(nn.Module()).keys()
    facts: list[object] = []
    for name, part in model.named_modules():
        settings = {k: v for k, v in vars(part).items() if k not in own}
        facts.append([name, [_fact(kind) for kind in type(part).__mro__], _fact(settings)])
    facts += [[name, tuple(value.shape), str(value.dtype)] for name, value in model.named_parameters()]
    facts += [[name, _fact(value)] for name, value in model.named_buffers()]
    return hashlib.sha256(repr(facts).encode()).hexdigest()


def _fact(value: object) -> object:
    if isinstance(value, bool | int | float | str | torch.dtype | torch.device | None):
        return value
    if isinstance(value, list | tuple):
        return [_fact(item) for item in value]
    if isinstance(value, dict):
        return sorted((str(key), repr(_fact(item))) for key, item in value.items())
    if isinstance(value, torch.Tensor | np.ndarray):
        array = torch.as_tensor(value).detach().cpu().contiguous().numpy()
        return [str(array.dtype), array.shape, hashlib.sha256(array.tobytes()).hexdigest()]
    if isinstance(value, partial):
        return [_fact(value.func), _fact(value.args), _fact(value.keywords)]
    named: Any = value if hasattr(value, "__qualname__") else type(value)
    return [named.__module__, named.__qualname__, _source(named)]


def _source(code: object) -> str:
    """Return the source of a class or function that is neither torch's nor Python's own."""
    if not isinstance(code, type | FunctionType) or code.__module__.partition(".")[0] in {"torch", "builtins"}:
        return ""
    try:
        return inspect.getsource(code)
    except (OSError, TypeError):
        return checks.fail("build", code.__qualname__, "made of code whose source can be read", "define it in a file")


def check_fits(model: Module, x: Array, y: Array) -> None:
    """Raise `ValueError` unless a network takes such inputs, (n, …), and knows such classes, (n,)."""
    logits = answers_to(model.eval(), torch.tensor(x[:1]))
    if logits.ndim != 2:
        found = checks.Found(f"answers of shape {tuple(logits.shape)}")
        checks.fail("model", found, "a network with one logit for each class")
    if y.size and y.max() >= logits.shape[1]:
        allowed = f"a class of the network, 0 … {logits.shape[1] - 1}"
        checks.fail("y", int(y.max()), allowed, "build it for more classes")


def answers_to(ask: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """Return the logits of ``ask``, (…, B, C), without gradients; `ValueError` if it does not take such inputs."""
    try:
        with torch.no_grad():
            return ask(x)
    except torch.OutOfMemoryError:
        raise
    except (RuntimeError, ValueError, IndexError, TypeError) as error:
        reason, found = str(error).partition("\n")[0], checks.Found(f"inputs of shape {tuple(x.shape[1:])}")
        return checks.fail("x", found, "inputs that the network takes", reason)


def initial_parameters(build: Build, seed: int) -> Parameters:
    """Build a network with its own initialization from ``seed``, leaving torch's global generator as it was."""
    with _borrowed_generator():
        torch.manual_seed(seed)
        return {name: parameter.detach().clone() for name, parameter in build().named_parameters()}


def stack(parameters: list[Parameters]) -> Parameters:
    """Stack the parameters of G networks: {name: (G, …)}."""
    return {name: torch.stack([one[name] for one in parameters]) for name in parameters[0]}


def along_first(factors: Tensor, like: Tensor) -> Tensor:
    """Reshape (G,) factors so that they multiply ``like``, (G, …), along its first axis."""
    return factors.view([-1] + [1] * (like.ndim - 1))


def best_classes(ask: Callable[[Tensor], Tensor], x: Array, device: Device, batch: int) -> list[Array]:
    """Return the class of the largest logit of ``ask``, (…, B, C) → (B, …), for every batch of inputs."""
    return [classes.T for classes in in_batches(lambda part: ask(part).argmax(dim=-1), x, device, batch)]


def in_batches(ask: Callable[[Tensor], Tensor], x: Array, device: Device, batch: int) -> list[Array]:
    """Return what ``ask`` answers to every batch of inputs, without gradients."""
    with threads_for(device):
        parts = (torch.tensor(x[start : start + batch], device=device) for start in range(0, len(x), batch))
        return [answers_to(ask, part).cpu().numpy() for part in parts]
