# ruff: noqa: SLF001 (torch has no public base class of its layers, nor versions of tensors)
"""Train a group of teachers together, with checkpoints that survive a kill.

One call computes all gradients of a stack of teachers. The state of a training is its parameters, Adam's moments and
its step number: every draw is a function of (seed, teacher, step), so a resumed seeded training ends with the same
result. Files use safetensors with JSON facts, never pickle.

Parameters of G teachers are ``{name: (G, …)}``. A batch is (G, B, …) with a mask (G, B), since Poisson batches differ
in size; masked places contribute exactly 0. The private gradient is one gradient for each example, clipped, summed,
with noise [ACG16, Algorithm 1].

The clipped sum's sensitivity is at most C: norms, scales and sums use double precision until the noise is added, and
the clipping threshold in use is C·(1 − 10⁻⁴), a margin far above their rounding. (In single precision 60,000 gradients
in one direction gave a sensitivity of 1.0014·C.) An example with a non-finite gradient contributes nothing, like a
blank record. Frozen parameters keep their initial values: no gradient, no norm, no noise.
"""

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.func import functional_call, grad, vmap

from darrm.errors import CheckpointError
from darrm.training.network import (
    Array,
    Build,
    Device,
    Module,
    Parameters,
    Tensor,
    build_network,
    choose_device,
    explain_memory_errors,
    initial_parameters,
    limit_threads,
    reshape_factors,
    stack,
)
from darrm.training.recipes import (
    AUGMENTATION,
    INITIAL,
    NOISE,
    WORDS,
    Augmentation,
    PlainSGD,
    PrivateSGD,
    RandomSource,
    Recipe,
    distort,
    gaussians,
)
from darrm.util import checks, files
from darrm.util.extras import require
from darrm.util.files import Document, Json
from darrm.util.progress import bar

_CLIP_MARGIN = 1e-4
_BLOCK_SIZE = 32  # gradients converted to double precision at a time
# replacements of layers that torch.func cannot differentiate per example
_REPLACEMENTS = {
    "GRU": "nn.LSTM",
    "RNN": "nn.LSTM",
    "LSTMCell": "nn.LSTM",
    "RReLU": "nn.LeakyReLU",
    "SpectralNorm": "nn.utils.parametrizations.weight_norm",
    "InstanceNorm": "nn.GroupNorm",
}


def check_model(model: Module, example: Array, *, private: bool) -> None:
    """Raise `ValueError` with the layer's name if a module cannot be trained on inputs shaped like ``example``.

    Batch normalization mixes the examples of a batch, so one record would change the gradients of others. Dropout draws
    from torch's global generator. A call on zeros tests all other layers.
    """
    for name, part in model.named_modules():
        if isinstance(part, nn.modules.batchnorm._BatchNorm):
            _refuse_layer(name, part, "free of batch normalization", "use nn.GroupNorm")
        if isinstance(part, nn.modules.dropout._DropoutNd) and part.p > 0:
            _refuse_layer(name, part, "free of dropout", "leave it out")
    open_calls = _follow_calls(model)
    buffers = {name: (value, value._version) for name, value in model.named_buffers()}
    parameters = stack([{name: value.detach() for name, value in model.named_parameters()}] * 2)
    x = torch.zeros((2, 3, *example.shape), dtype=torch.as_tensor(example).dtype)  # two different sizes above 1
    batch = x, torch.zeros((2, 3), dtype=torch.int64)
    try:
        if private:
            per_example_gradients(model.train())(parameters, *batch)
        else:
            mean_gradients(model.train())(parameters, *batch, torch.ones(2, 3))
    except Exception as error:  # noqa: BLE001 (a network is any code)
        failed_part = open_calls[-1][1]
        kinds = " ".join(type(module).__name__ for module in (failed_part, *failed_part._forward_pre_hooks.values()))
        replacement = next((layer for part, layer in _REPLACEMENTS.items() if part in kinds), "")
        reason = checks.one_line(error)[:100]
        advice = f"use {replacement}" if replacement else f"write it without what torch.func refuses ({reason})"
        _refuse_layer(*open_calls[-1], "free of layers that torch.func cannot differentiate for each example", advice)
    for name, value in model.named_buffers():
        if buffers[name][0] is not value or buffers[name][1] != value._version:
            advice = "one example would move the gradients of others: use nn.GroupNorm, or no running statistics"
            checks.fail("model", checks.Text(f"the buffer {name}"), "free of buffers that it changes", advice)


def _follow_calls(model: Module) -> list[tuple[str, Module]]:
    """Return a list that always holds the modules with an unfinished forward call."""
    open_calls: list[tuple[str, Module]] = [("", model)]
    names = {part: name for name, part in model.named_modules()}

    def enter(part: Module, _: object) -> None:
        open_calls.append((names[part], part))

    def leave(*_: object) -> None:
        open_calls.pop()

    for part in list(names)[1:]:
        part.register_forward_pre_hook(enter, prepend=True)
        part.register_forward_hook(leave)
    return open_calls


def _refuse_layer(name: str, part: Module, allowed: str, advice: str) -> None:
    kind = type(part).__name__
    checks.fail("model", checks.Text(f"{name}: {kind}" if name else kind), allowed, advice)


def _bind_frozen(model: Module, gradients: Callable[..., Parameters]) -> Callable[..., Parameters]:
    """Convert a function of (trained, frozen) parameters to a function of all parameters."""
    trained = [name for name, value in model.named_parameters() if value.requires_grad]

    def compute(parameters: Parameters, *batch: Tensor) -> Parameters:
        frozen = {name: value for name, value in parameters.items() if name not in trained}
        return gradients({name: parameters[name] for name in trained}, frozen, *batch)

    return compute


def per_example_gradients(model: Module) -> Callable[..., Parameters]:
    """Make the function (parameters, x, y) → {name: (G, B, …)}: one gradient for each example."""

    def loss(trained: Parameters, frozen: Parameters, x: Tensor, y: Tensor) -> Tensor:
        logits = functional_call(model, trained | frozen, (x.unsqueeze(0),))
        return nn.functional.cross_entropy(logits, y.unsqueeze(0))

    return _bind_frozen(model, vmap(vmap(grad(loss), in_dims=(None, None, 0, 0)), in_dims=(0, 0, 0, 0)))


def mean_gradients(model: Module) -> Callable[..., Parameters]:
    """Make the function (parameters, x, y, mask) → the mean gradient of each teacher's batch, without privacy."""

    def loss(trained: Parameters, frozen: Parameters, x: Tensor, y: Tensor, mask: Tensor) -> Tensor:
        losses = nn.functional.cross_entropy(functional_call(model, trained | frozen, (x,)), y, reduction="none")
        return (losses * mask).sum() / mask.sum()

    return _bind_frozen(model, vmap(grad(loss), in_dims=(0, 0, 0, 0, 0)))


def sum_clipped(gradients: Parameters, mask: Tensor, clip: float) -> Parameters:
    """Return Σ_i min(1, C/‖g_i‖)·g_i of each teacher, {name: (G, B, …)} → {name: (G, …)} in double precision."""
    sums = {name: gradient.new_zeros(gradient[:, 0].shape).double() for name, gradient in gradients.items()}
    for start in range(0, mask.shape[1], _BLOCK_SIZE):
        block = slice(start, start + _BLOCK_SIZE)
        blocks = {name: gradient[:, block].flatten(2).double() for name, gradient in gradients.items()}
        norms = sum(gradient_block.square().sum(dim=2) for gradient_block in blocks.values()).sqrt()
        is_finite = norms.isfinite()
        scales = torch.where(is_finite, (clip * (1.0 - _CLIP_MARGIN) / norms).clamp_max(1.0), 0.0) * mask[:, block]
        for name, gradient_block in blocks.items():
            # zero times infinity is NaN
            finite = gradient_block if is_finite.all() else torch.where(is_finite.unsqueeze(2), gradient_block, 0.0)
            sums[name] += torch.einsum("gb,gbp->gp", scales, finite).view_as(sums[name])
    return sums


def add_noise(sums: Parameters, noise: Tensor, scale: float) -> Parameters:
    """Add ``scale`` = σC times (G, number of parameters) standard Gaussians to the sums."""
    parts = noise.split([total[0].numel() for total in sums.values()], dim=1)
    pairs = zip(sums.items(), parts, strict=True)
    return {name: total + scale * part.reshape(total.shape) for (name, total), part in pairs}


_FACTS_KEY, _DIGEST_KEY = "darrm", "sha256"  # the metadata keys in use
_MEAN_DECAY, _SQUARE_DECAY, _ADAM_FLOOR = 0.9, 0.999, 1e-8  # β₁, β₂ and the least denominator [KB15, Algorithm 1]


@dataclass(frozen=True, eq=False)
class Group:
    """The task of one process: teachers, only their records, and the recipe."""

    x: tuple[Array, ...]
    y: tuple[Array, ...]
    teachers: tuple[int, ...]
    build: Build
    recipe: Recipe
    source: RandomSource
    network: str = ""

    @property
    def sizes(self) -> tuple[int, ...]:
        return tuple(len(classes) for classes in self.y)

    def fingerprint(self) -> str:
        data = [compute_digest(array) for array in (*self.x, *self.y)]
        seed = None if self.source.key else self.source.seed  # a finished checkpoint stays valid without its key
        facts = [self.recipe.to_dict(), self.teachers, seed, self.network, data]
        return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()


def train_group(
    group: Group,
    *,
    device: str = "auto",
    checkpoint: Path | None = None,
    checkpoint_every: int = 50,
    progress: bool = True,
) -> dict[str, Array]:
    """Return {name: (G, …)}. A checkpoint is resumed, never deleted; `CheckpointError` for another training's."""
    target = choose_device(device)
    model = build_network(group.build)
    group = replace(group, source=group.source.bind_to(group.fingerprint()))
    if checkpoint is not None and not group.source.can_be_repeated:
        advice = "draws from the operating system cannot be repeated: give a seed, or the key of train_teachers"
        checks.fail("source", group.source, "a repeatable one for checkpoints", advice)
    with limit_threads(target), explain_memory_errors(target):
        run = _Run(group, model.to(target).train(), target)
        if checkpoint is not None and checkpoint.exists():
            run.resume(checkpoint)
        label = f"teachers {group.teachers[0]}-{group.teachers[-1]}"
        with bar(run.steps, label, enabled=progress, done=run.step) as advance:
            while run.step < run.steps:
                run.advance()
                advance(1)
                if checkpoint is not None and (run.step % checkpoint_every == 0 or run.step == run.steps):
                    run.save(checkpoint)
        return {name: value.cpu().numpy() for name, value in run.parameters.items()}


class _Run:
    def __init__(self, group: Group, model: Module, device: Device) -> None:
        self.group = group
        self.device = device
        is_private = isinstance(group.recipe, PrivateSGD)
        self.gradients = per_example_gradients(model) if is_private else mean_gradients(model)
        self.fingerprint = group.fingerprint()
        self.steps = max(group.recipe.step_count(size) for size in group.sizes)
        self.step = 0
        seeds = [int(group.source.words(1, teacher, INITIAL, 0)[0] >> np.uint64(1)) for teacher in group.teachers]
        initial = stack([initial_parameters(group.build, seed) for seed in seeds])
        self.parameters = {name: value.to(device) for name, value in initial.items()}
        self.trained = [name for name, value in model.named_parameters() if value.requires_grad]
        # Adam's moments, of the gradients and of their squares
        self.means, self.squares = self._make_zeros(), self._make_zeros()
        self.x = torch.as_tensor(np.concatenate(group.x), device=device)
        self.y = torch.as_tensor(np.concatenate(group.y), device=device)
        self.starts = np.cumsum((0, *group.sizes))[:-1]

    def resume(self, path: Path) -> None:
        tensors, facts = load_tensors(path)
        if facts.get("fingerprint") != self.fingerprint:
            message = "it belongs to a training with other data, seed, network or recipe: name another folder"
            raise CheckpointError(str(path), message)
        if facts["step"] < self.steps and facts.get("source") not in {None, self.group.source.name}:
            raise CheckpointError(str(path), "the key of its noise is gone, so it cannot go on: name another folder")
        for state, prefix in self._list_states():
            state.update({name: torch.as_tensor(tensors[prefix + name], device=self.device) for name in state})
        self.step = facts["step"]

    def save(self, path: Path) -> None:
        arrays = {
            prefix + name: value.cpu().numpy() for state, prefix in self._list_states() for name, value in state.items()
        }
        facts: Document = {"fingerprint": self.fingerprint, "step": self.step, "source": self.group.source.name}
        save_tensors(path, arrays, facts)

    def _list_states(self) -> list[tuple[Parameters, str]]:
        if isinstance(self.group.recipe, PlainSGD) and self.group.recipe.adam:
            return [(self.parameters, ""), (self.means, "adam/mean/"), (self.squares, "adam/square/")]
        return [(self.parameters, "")]

    def _make_zeros(self) -> Parameters:
        return {name: torch.zeros_like(self.parameters[name]) for name in self.trained}

    def advance(self) -> None:
        group, recipe = self.group, self.group.recipe
        batches = [
            recipe.batch(group.source, teacher, self.step, size)
            if self.step < recipe.step_count(size)
            else np.empty(0, dtype=np.int64)
            for teacher, size in zip(group.teachers, group.sizes, strict=True)
        ]
        x, y, mask = self._pad(batches)
        if isinstance(recipe, PrivateSGD):
            direction = self._compute_private_direction(recipe, x, y, mask)
        else:
            active = torch.as_tensor([float(len(batch) > 0) for batch in batches], device=self.device)
            if recipe.augmentation is not None:
                x = self._distort(recipe.augmentation, batches, x)
            direction = self.gradients(self.parameters, x, y, mask + (1.0 - active)[:, None])
            if recipe.adam:
                rates = [1.0 - self.step / recipe.step_count(size) for size in group.sizes]  # the rate falls to 0
                active = active * torch.as_tensor(rates, dtype=torch.float32, device=self.device)
                direction = self._compute_adam_direction(direction)
            direction = {name: value * reshape_factors(active, value) for name, value in direction.items()}
        rate = recipe.learning_rate
        self.parameters |= {name: self.parameters[name] - rate * direction[name] for name in self.trained}
        self.step += 1

    def _compute_private_direction(self, recipe: PrivateSGD, x: Tensor, y: Tensor, mask: Tensor) -> Parameters:
        """Return (Σ clipped gradients + σC·noise)/(q·n) of each teacher."""
        if mask.shape[1]:
            sums = sum_clipped(self.gradients(self.parameters, x, y), mask, recipe.clip)
        else:  # every batch of the group is empty
            sums = self._make_zeros()
        size = sum(value[0].numel() for value in sums.values())
        words = [self.group.source.words(size + size % 2, teacher, NOISE, self.step) for teacher in self.group.teachers]
        noise = np.stack([gaussians(row)[:size] for row in words]).astype(np.float32)
        noisy = add_noise(sums, torch.as_tensor(noise, device=self.device), recipe.noise * recipe.clip)
        batch = torch.as_tensor([recipe.expected_batch(size) for size in self.group.sizes], device=self.device)
        single = {name: value.to(self.parameters[name].dtype) for name, value in noisy.items()}
        return {name: value / reshape_factors(batch, value) for name, value in single.items()}

    def _distort(self, augmentation: Augmentation, batches: list[NDArray[np.int64]], x: Tensor) -> Tensor:
        maps = np.tile(np.eye(2, 3, dtype=np.float32), (*x.shape[:2], 1, 1))
        for row, (teacher, batch) in enumerate(zip(self.group.teachers, batches, strict=True)):
            words = self.group.source.words(WORDS * len(batch), teacher, AUGMENTATION, self.step)
            maps[row, : len(batch)] = augmentation.maps(words, x.shape)
        return distort(x.flatten(0, 1), torch.as_tensor(maps, device=self.device).flatten(0, 1)).view_as(x)

    def _compute_adam_direction(self, gradients: Parameters) -> Parameters:
        """Update the moments and return m̂/(√v̂ + 10⁻⁸), with both corrected for their start at 0."""
        corrections = 1.0 - _MEAN_DECAY ** (self.step + 1), 1.0 - _SQUARE_DECAY ** (self.step + 1)
        direction = {}
        for name, gradient in gradients.items():
            self.means[name] = _MEAN_DECAY * self.means[name] + (1.0 - _MEAN_DECAY) * gradient
            self.squares[name] = _SQUARE_DECAY * self.squares[name] + (1.0 - _SQUARE_DECAY) * gradient.square()
            lengths = (self.squares[name] / corrections[1]).sqrt() + _ADAM_FLOOR
            direction[name] = self.means[name] / corrections[0] / lengths
        return direction

    def _pad(self, batches: list[NDArray[np.int64]]) -> tuple[Tensor, Tensor, Tensor]:
        """Pad batches: inputs (G, B, …), classes (G, B), and a mask (G, B), 1 for examples."""
        width = max(len(batch) for batch in batches)
        places = np.zeros((len(batches), width), dtype=np.int64)
        mask = np.zeros((len(batches), width), dtype=np.float32)
        for row, (start, batch) in enumerate(zip(self.starts, batches, strict=True)):
            places[row, : len(batch)] = start + batch
            mask[row, : len(batch)] = 1.0
        rows = torch.as_tensor(places, device=self.device)
        return self.x[rows], self.y[rows], torch.as_tensor(mask, device=self.device)


def save_tensors(path: Path, arrays: dict[str, Array], facts: Document) -> None:
    """Write arrays and plain facts (both private), with their digest, to one file atomically."""
    contiguous_arrays = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    text = json.dumps(facts)
    metadata = {_FACTS_KEY: text, _DIGEST_KEY: _hash_content(text, contiguous_arrays)}
    with files.replace_file(path, private=True) as temporary:
        require("safetensors.numpy").save_file(contiguous_arrays, temporary, metadata=metadata)


def load_tensors(path: Path) -> tuple[dict[str, Array], Json]:
    """Read a file of `save_tensors` and verify its digest; otherwise `CheckpointError`."""
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {str(path)!r}")
    safetensors = require("safetensors")
    try:
        with safetensors.safe_open(path, framework="numpy") as file:
            metadata = file.metadata() or {}
            arrays = {name: np.array(file.get_tensor(name)) for name in file.keys()}  # noqa: SIM118 (no mapping)
        facts = files.parse_json(metadata.get(_FACTS_KEY, "{}"))
    except (safetensors.SafetensorError, ValueError, TypeError, AttributeError, OverflowError, MemoryError) as error:
        reason = checks.one_line(error)
        raise CheckpointError(str(path), f"it is no file of this library, or damaged: {reason}") from error
    is_whole = _FACTS_KEY in metadata and metadata.get(_DIGEST_KEY) == _hash_content(metadata[_FACTS_KEY], arrays)
    if not is_whole or not isinstance(facts, dict):
        advice = "train again; a file of an older release carries no digest, and nothing vouches for it"
        raise CheckpointError(str(path), f"it is damaged: its digest does not match its content: {advice}")
    return arrays, facts


def _hash_content(facts: str, arrays: dict[str, Array]) -> str:
    content = [facts, sorted((name, compute_digest(array)) for name, array in arrays.items())]
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()


def compute_digest(array: Array) -> str:
    digest = hashlib.sha256(f"{array.dtype.str} {array.shape} ".encode())
    digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()
