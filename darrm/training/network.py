"""Networks for teachers and students, their device, and stacks of K parameter sets."""

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

from darrm.util import checks

# torch ships no types that mypy may follow
Tensor = Any
Module = Any
Device = Any
Generator = Any
Array = NDArray[Any]  # of records, of classes or of parameters
Build = Callable[[], Module]
Parameters = dict[str, Tensor]  # by name; stacked for G teachers: (G, …)

_GENERATOR_LOCK = threading.Lock()


def convolutional_network(channels: int = 1, side: int = 28, classes: int = 2) -> Module:
    """Make the teachers' network: two 5×5 convolutions with pooling (16 and 32 channels) and a linear layer.

    The paper says only "each teacher is a CNN model" [D, Section 6.2]. ``side``, of the images, is a multiple of 4.
    """
    _check_shape(channels, side, classes)
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
    """Make a network for students, deeper and two and a half times as fast as the teachers'.

    Three convolutions of w, 2w and 4w channels, and a linear layer; ``side`` is a multiple of 4.
    """
    _check_shape(channels, side, classes)
    checks.integer_at_least(1, width=width)
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


def _check_shape(channels: int, side: int, classes: int) -> None:
    checks.integer_at_least(1, channels=channels)
    checks.integer_at_least(2, classes=classes)
    checks.integer_at_least(4, side=side)
    if side % 4:
        checks.fail("side", side, "a multiple of 4", "the network halves the image twice")


def choose_device(device: str = "auto") -> Device:
    """Return the device: ``"auto"`` (a GPU if there is one), ``"cpu"``, ``"cuda"``, ``"cuda:N"``; else `ValueError`."""
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
def limit_threads(device: Device) -> Iterator[None]:
    """Limit torch to one thread on a CPU: more threads are slower for small batches."""
    thread_count = torch.get_num_threads()
    torch.set_num_threads(1 if device.type == "cpu" else thread_count)
    try:
        yield
    finally:
        torch.set_num_threads(thread_count)


@contextmanager
def explain_memory_errors(device: Device) -> Iterator[None]:
    try:
        yield
    except torch.OutOfMemoryError as error:
        advice = "ask with a smaller batch=, or train with a smaller stack_size="
        raise MemoryError(f"the memory of {device} is full ({checks.one_line(error)}): {advice}") from error


def build_network(build: Build) -> Module:
    """Build a network for its architecture; torch's global generator keeps its state."""
    advice = "such as functools.partial(Network, 784, 10)"
    if isinstance(build, nn.Module) or not callable(build):
        checks.fail("build", checks.Text(f"a {type(build).__name__}"), "a function that makes a network", advice)
    try:
        with _GENERATOR_LOCK, torch.random.fork_rng(devices=[]):
            model = build()
    except Exception as error:
        reason = checks.one_line(error)
        raise ValueError(f"build failed ({reason}): it must need no arguments, {advice}") from error
    if not isinstance(model, nn.Module):
        description = checks.Text(f"one that makes {type(model).__name__}")
        checks.fail("build", description, "a function that makes a torch.nn.Module", advice)
    return model


def network_digest(build: Build) -> str:
    """Return the SHA-256 of a network's structure, settings, buffers and code.

    It covers each module's class, source (except torch's), settings and buffers, not functions that the code looks up
    by name. `ValueError` if a source is not readable.
    """
    model = build_network(build)
    base_names = vars(nn.Module()).keys()
    facts: list[object] = []
    for name, part in model.named_modules():
        settings = {k: v for k, v in vars(part).items() if k not in base_names}
        facts.append([name, [_describe(kind) for kind in type(part).__mro__], _describe(settings)])
    for name, value in model.named_parameters():
        facts.append([name, tuple(value.shape), str(value.dtype), *([] if value.requires_grad else ["frozen"])])
    facts += [[name, _describe(value)] for name, value in model.named_buffers()]
    return hashlib.sha256(repr(facts).encode()).hexdigest()


def _describe(value: object) -> object:
    if isinstance(value, bool | int | float | str | torch.dtype | torch.device | None):
        return value
    if isinstance(value, list | tuple):
        return [_describe(item) for item in value]
    if isinstance(value, dict):
        return sorted((str(key), repr(_describe(item))) for key, item in value.items())
    if isinstance(value, torch.Tensor | np.ndarray):
        array = torch.as_tensor(value).detach().cpu().contiguous().numpy()
        return [str(array.dtype), array.shape, hashlib.sha256(array.tobytes()).hexdigest()]
    if isinstance(value, partial):
        return [_describe(value.func), _describe(value.args), _describe(value.keywords)]
    definition: Any = value if hasattr(value, "__qualname__") else type(value)
    return [definition.__module__, definition.__qualname__, _read_source(definition)]


def _read_source(definition: object) -> str:
    if not isinstance(definition, type | FunctionType) or definition.__module__.partition(".")[0] in {
        "torch",
        "builtins",
    }:
        return ""
    try:
        return inspect.getsource(definition)
    except (OSError, TypeError):
        return checks.fail("build", definition.__qualname__, "code with a readable source", "define it in a file")


def check_fits(model: Module, x: Array, y: Array) -> int:
    """Return the number of classes; `ValueError` unless the network learns from (n, …) inputs, (n,) classes."""
    if not any(value.requires_grad for value in model.parameters()):
        checks.fail("model", checks.Text(f"a {type(model).__name__} without"), "a module with parameters to train")
    for name, value in model.named_parameters():
        if isinstance(value, nn.UninitializedParameter):
            checks.fail(
                "model", checks.Text(f"the lazy {name}"), "a module with layers of known sizes", "say their sizes"
            )
        if value.dtype not in {torch.float32, torch.float64}:
            description = checks.Text(f"{name} in {str(value.dtype).removeprefix('torch.')}")
            checks.fail("model", description, "in single or double precision", "call .float() on it")
    logits = ask_network(model.eval(), torch.tensor(x[:1]))
    if logits.ndim != 2:
        description = checks.Text(f"answers of shape {tuple(logits.shape)}")
        checks.fail("model", description, "a network with one logit for each class")
    if y.size and y.max() >= logits.shape[1]:
        allowed = f"a class of the network, 0 … {logits.shape[1] - 1}"
        checks.fail("y", int(y.max()), allowed, "build it for more classes")
    return int(logits.shape[1])


def ask_network(network: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """Return logits without gradients; `ValueError` if ``network`` fails on the inputs."""
    try:
        with torch.no_grad(), explain_memory_errors(x.device):
            return network(x)
    except MemoryError:
        raise
    except Exception as error:  # noqa: BLE001 (a network is any code)
        description = checks.Text(f"inputs of shape {tuple(x.shape[1:])}")
        return checks.fail("x", description, "inputs that the network takes", checks.one_line(error))


def initial_parameters(build: Build, seed: int) -> Parameters:
    """Initialize a network from ``seed``; torch's global generator keeps its state."""
    with _GENERATOR_LOCK, torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return {name: parameter.detach().clone() for name, parameter in build().named_parameters()}


def stack(parameters: list[Parameters]) -> Parameters:
    return {name: torch.stack([member[name] for member in parameters]) for name in parameters[0]}


def reshape_factors(factors: Tensor, like: Tensor) -> Tensor:
    """Reshape (G,) factors so that they multiply ``like``, (G, …), along its first axis."""
    return factors.view([-1] + [1] * (like.ndim - 1))


def ask_in_batches(network: Callable[[Tensor], Tensor], x: Array, device: Device, batch: int) -> list[Array]:
    with limit_threads(device):
        parts = (torch.tensor(x[start : start + batch], device=device) for start in range(0, len(x), batch))
        return [ask_network(network, part).cpu().numpy() for part in parts]
