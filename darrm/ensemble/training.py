"""Train a group of teachers together, with checkpoints that survive a kill.

A group's teachers are stacked, so one call computes the gradients of all of them. The state of a training is its
parameters, Adam's moments where it takes Adam's steps, and its step number: every draw is a function of (seed, teacher,
step), so that nothing else needs to be stored, and a seeded training that resumes ends where it would have ended
anyway. Tensors lie on disk as safetensors files with JSON facts beside them, never as pickle.

The private gradient: one gradient for each example, clipped, summed, with noise [ACG16, Algorithm 1].

Everything works on G teachers at once: parameters are stacked, ``{name: (G, …)}``, and a batch is (G, B, …) with a mask
(G, B), since Poisson batches differ in size. Masked places contribute exactly nothing.

The clipped sum's sensitivity is at most C in spite of float32: norms are off by less than 10⁻⁴ relative, the clipping
threshold in use is C·(1 − 10⁻⁴), and sums are in double precision until the noise is added. (In single precision the
rounding of a sum moves, too: 60,000 gradients that point one way gave a sensitivity of 1.0014·C.) An example whose
gradient is not finite contributes nothing, as if it were blank.
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

from darrm.ensemble.network import (
    Array,
    Build,
    Device,
    Module,
    Parameters,
    Tensor,
    along_first,
    built,
    choose_device,
    initial_parameters,
    stack,
    threads_for,
)
from darrm.ensemble.randomness import AUGMENTATION, INITIAL, NOISE, RandomSource, gaussians
from darrm.ensemble.recipes import WORDS, Augmentation, PlainSGD, PrivateSGD, Recipe, distorted
from darrm.errors import CheckpointError, checks
from darrm.system import files
from darrm.system.extras import require
from darrm.system.files import Document, Json
from darrm.system.progress import bar

_CLIP_MARGIN = 1e-4
_AT_ONCE = 32  # gradients that are copied in double precision


def check_model(model: Module) -> None:
    """Raise `ValueError` if per-example gradients make no sense for this module.

    Batch normalization mixes the examples of a batch, so one record would move the gradients of others; dropout draws
    from torch's global generator, which a reproducible training must not.
    """
    if not isinstance(model, nn.Module):
        checks.fail("model", type(model).__name__, "a torch.nn.Module")
    if not any(True for _ in model.parameters()):
        checks.fail("model", type(model).__name__, "a module with parameters to train")
    for name, part in model.named_modules():
        if isinstance(part, nn.modules.batchnorm._BatchNorm):  # noqa: SLF001 (the only common base class)
            found = checks.Found(f"{name}: {type(part).__name__}")
            checks.fail("model", found, "free of batch normalization", "use nn.GroupNorm")
        if isinstance(part, nn.modules.dropout._DropoutNd) and part.p > 0:  # noqa: SLF001 (as above)
            checks.fail("model", checks.Found(f"{name}: {type(part).__name__}"), "free of dropout")


def per_example_gradients(model: Module) -> Callable[..., Parameters]:
    """Make the function (parameters, x, y) → gradients of the cross-entropy, one for each teacher and example.

    It takes stacked parameters {name: (G, …)}, inputs (G, B, …) and classes (G, B), and returns {name: (G, B, …)}. Only
    the model's architecture counts, not its own parameter values.
    """

    def loss(parameters: Parameters, x: Tensor, y: Tensor) -> Tensor:
        logits = functional_call(model, parameters, (x.unsqueeze(0),))
        return nn.functional.cross_entropy(logits, y.unsqueeze(0))

    many: Callable[..., Parameters] = vmap(vmap(grad(loss), in_dims=(None, 0, 0)), in_dims=(0, 0, 0))
    return many


def mean_gradients(model: Module) -> Callable[..., Parameters]:
    """Make the function (parameters, x, y, mask) → the mean gradient of each teacher's batch, without privacy."""

    def loss(parameters: Parameters, x: Tensor, y: Tensor, mask: Tensor) -> Tensor:
        losses = nn.functional.cross_entropy(functional_call(model, parameters, (x,)), y, reduction="none")
        return (losses * mask).sum() / mask.sum()

    many: Callable[..., Parameters] = vmap(grad(loss), in_dims=(0, 0, 0, 0))
    return many


def clipped_sums(gradients: Parameters, mask: Tensor, clip: float) -> Parameters:
    """Clip each example's whole gradient to length C and add up each teacher's batch: Σ_i min(1, C/‖g_i‖)·g_i.

    Takes {name: (G, B, …)} and a mask (G, B) of 0 and 1, returns {name: (G, …)} in double precision; an example with 0
    contributes nothing.
    """
    squares = sum(gradient.flatten(2).square().sum(dim=2) for gradient in gradients.values())
    norms = squares.sqrt()
    scales = torch.where(norms.isfinite(), (clip * (1.0 - _CLIP_MARGIN) / norms.clamp_min(1e-30)).clamp_max(1.0), 0.0)
    scales = scales * mask
    bad = ~norms.isfinite()
    sums = {}
    for name, gradient in gradients.items():
        flat = gradient.flatten(2)
        if bad.any():
            flat = torch.where(bad.unsqueeze(2), 0.0, flat)  # zero times infinity is not zero
        parts = zip(scales.split(_AT_ONCE, dim=1), flat.split(_AT_ONCE, dim=1), strict=True)
        total = sum(torch.einsum("gb,gbp->gp", scale.double(), part.double()) for scale, part in parts)
        sums[name] = total.reshape(gradient.shape[:1] + gradient.shape[2:])
    return sums


def add_noise(sums: Parameters, noise: Tensor, scale: float) -> Parameters:
    """Add ``scale`` = σC times ``noise`` to the sums, {name: (G, …)}.

    The noise is (G, number of parameters of one teacher) standard Gaussians, used in the order of the sums.
    """
    parts = noise.split([total[0].numel() for total in sums.values()], dim=1)
    return {
        name: total + scale * part.reshape(total.shape) for (name, total), part in zip(sums.items(), parts, strict=True)
    }


_UNREPEATED = "draws from the operating system cannot be repeated: give a seed, or the key of train_teachers"
_FACTS, _DIGEST = "darrm", "sha256"  # the metadata keys in use
_MEAN_DECAY, _SQUARE_DECAY, _ADAM_FLOOR = 0.9, 0.999, 1e-8  # β₁, β₂ and the least denominator [KB15, Algorithm 1]


@dataclass(frozen=True, eq=False)
class Group:
    """What one process trains: some teachers, their own records and nobody else's, and how.

    ``x`` and ``y`` hold, for each teacher, its inputs (n_k, …) and classes (n_k,); ``teachers`` the numbers of these
    teachers, which name their random streams. Every teacher starts from an initialization of its own. ``network`` is
    the digest of what ``build`` makes; without checkpoints nobody asks for it.
    """

    x: tuple[Array, ...]
    y: tuple[Array, ...]
    teachers: tuple[int, ...]
    build: Build
    recipe: Recipe
    source: RandomSource
    network: str = ""

    @property
    def sizes(self) -> tuple[int, ...]:
        """Number of records of each teacher."""
        return tuple(len(classes) for classes in self.y)

    def fingerprint(self) -> str:
        """Name this very training: a checkpoint of another one is refused."""
        data = [digest_of(array) for array in (*self.x, *self.y)]
        seed = None if self.source.key else self.source.seed  # a finished training outlives its key
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
    """Train the teachers of a group and return their parameters, {name: (G, …)}.

    A checkpoint that is there is continued, and deleted by nobody; that of another training is a `CheckpointError`.
    """
    target = choose_device(device)
    model = built(group.build)
    check_model(model)
    group = replace(group, source=group.source.bound_to(group.fingerprint()))
    if checkpoint is not None and not group.source.can_be_repeated:
        checks.fail("source", group.source, "one that can be repeated where there are checkpoints", _UNREPEATED)
    with threads_for(target):
        run = _Run(group, model.to(target).train(), target)
        if checkpoint is not None and checkpoint.exists():
            run.resume(checkpoint)
        who = f"teachers {group.teachers[0]}-{group.teachers[-1]}"
        with bar(run.steps, who, enabled=progress, done=run.step) as advance:
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
        self.private = isinstance(group.recipe, PrivateSGD)
        self.gradients = per_example_gradients(model) if self.private else mean_gradients(model)
        self.fingerprint = group.fingerprint()
        self.steps = max(group.recipe.step_count(size) for size in group.sizes)
        self.step = 0
        seeds = [int(group.source.words(1, teacher, INITIAL, 0)[0] >> np.uint64(1)) for teacher in group.teachers]
        start = stack([initial_parameters(group.build, seed) for seed in seeds])
        self.parameters = {name: value.to(device) for name, value in start.items()}
        self.means, self.squares = self._zeros(), self._zeros()  # Adam's moments, of the gradients and their squares
        self.x = torch.as_tensor(np.concatenate(group.x), device=device)
        self.y = torch.as_tensor(np.concatenate(group.y), device=device)
        self.starts = np.cumsum((0, *group.sizes))[:-1]

    def resume(self, path: Path) -> None:
        """Continue from a checkpoint of this very training."""
        tensors, facts = load_tensors(path)
        if facts.get("fingerprint") != self.fingerprint:
            raise CheckpointError(
                str(path), "it belongs to a training with other data, seed, network or recipe: name another folder"
            )
        if facts["step"] < self.steps and facts.get("source") not in {None, self.group.source.name}:
            raise CheckpointError(str(path), "the key of its noise is gone, so it cannot go on: name another folder")
        for state, prefix in self._kept():
            state.update({name: torch.as_tensor(tensors[prefix + name], device=self.device) for name in state})
        self.step = facts["step"]

    def save(self, path: Path) -> None:
        """Keep the state; the file is replaced in one step."""
        arrays = {prefix + name: value.cpu().numpy() for state, prefix in self._kept() for name, value in state.items()}
        save_tensors(
            path, arrays, {"fingerprint": self.fingerprint, "step": self.step, "source": self.group.source.name}
        )

    def _kept(self) -> list[tuple[Parameters, str]]:
        moments = [(self.means, "adam/mean/"), (self.squares, "adam/square/")]
        return [(self.parameters, ""), *(moments if self._adam else [])]

    @property
    def _adam(self) -> bool:
        return isinstance(self.group.recipe, PlainSGD) and self.group.recipe.adam

    def _zeros(self) -> Parameters:
        return {name: torch.zeros_like(value) for name, value in self.parameters.items()}

    def advance(self) -> None:
        """Make one step for every teacher of the group that has steps left."""
        group, recipe = self.group, self.group.recipe
        batches = [
            recipe.batch(group.source, teacher, self.step, size)
            if self.step < recipe.step_count(size)
            else np.empty(0, dtype=np.int64)
            for teacher, size in zip(group.teachers, group.sizes, strict=True)
        ]
        x, y, mask = self._padded(batches)
        if isinstance(recipe, PrivateSGD):
            direction = self._private_direction(recipe, x, y, mask)
        else:
            active = torch.as_tensor([float(len(batch) > 0) for batch in batches], device=self.device)
            if recipe.augmentation is not None:
                x = self._distorted(recipe.augmentation, batches, x)
            direction = self.gradients(self.parameters, x, y, mask + (1.0 - active)[:, None])
            if recipe.adam:
                direction, active = self._adams_direction(direction), active * self._falling(recipe)
            direction = {name: value * along_first(active, value) for name, value in direction.items()}
        rate = recipe.learning_rate
        self.parameters = {name: value - rate * direction[name] for name, value in self.parameters.items()}
        self.step += 1

    def _private_direction(self, recipe: PrivateSGD, x: Tensor, y: Tensor, mask: Tensor) -> Parameters:
        """Return (Σ clipped gradients + σC·noise)/(q·n) of each teacher."""
        if mask.shape[1]:
            sums = clipped_sums(self.gradients(self.parameters, x, y), mask, recipe.clip)
        else:  # every batch of the group is empty
            sums = self._zeros()
        size = sum(value[0].numel() for value in sums.values())
        words = [self.group.source.words(size + size % 2, teacher, NOISE, self.step) for teacher in self.group.teachers]
        noise = np.stack([gaussians(one)[:size] for one in words]).astype(np.float32)
        noisy = add_noise(sums, torch.as_tensor(noise, device=self.device), recipe.noise * recipe.clip)
        batch = torch.as_tensor([recipe.expected_batch(size) for size in self.group.sizes], device=self.device)
        single = {name: value.to(self.parameters[name].dtype) for name, value in noisy.items()}
        return {name: value / along_first(batch, value) for name, value in single.items()}

    def _distorted(self, how: Augmentation, batches: list[NDArray[np.int64]], x: Tensor) -> Tensor:
        maps = np.tile(np.eye(2, 3, dtype=np.float32), (*x.shape[:2], 1, 1))
        for row, (teacher, batch) in enumerate(zip(self.group.teachers, batches, strict=True)):
            words = self.group.source.words(WORDS * len(batch), teacher, AUGMENTATION, self.step)
            maps[row, : len(batch)] = how.maps(words, x.shape)
        return distorted(x.flatten(0, 1), torch.as_tensor(maps, device=self.device).flatten(0, 1)).view_as(x)

    def _adams_direction(self, gradients: Parameters) -> Parameters:
        """Update the moments and return m̂/(√v̂ + 10⁻⁸), with both corrected for their start at 0."""
        corrections = 1.0 - _MEAN_DECAY ** (self.step + 1), 1.0 - _SQUARE_DECAY ** (self.step + 1)
        direction = {}
        for name, gradient in gradients.items():
            self.means[name] = _MEAN_DECAY * self.means[name] + (1.0 - _MEAN_DECAY) * gradient
            self.squares[name] = _SQUARE_DECAY * self.squares[name] + (1.0 - _SQUARE_DECAY) * gradient.square()
            lengths = (self.squares[name] / corrections[1]).sqrt() + _ADAM_FLOOR
            direction[name] = self.means[name] / corrections[0] / lengths
        return direction

    def _falling(self, recipe: PlainSGD) -> Tensor:
        shares = [1.0 - self.step / recipe.step_count(size) for size in self.group.sizes]
        return torch.as_tensor(shares, dtype=torch.float32, device=self.device)

    def _padded(self, batches: list[NDArray[np.int64]]) -> tuple[Tensor, Tensor, Tensor]:
        """Return the batches' inputs and classes as (G, B, …) and (G, B), and the mask (G, B) of what they hold."""
        width = max(len(batch) for batch in batches)
        places = np.zeros((len(batches), width), dtype=np.int64)
        mask = np.zeros((len(batches), width), dtype=np.float32)
        for row, (start, batch) in enumerate(zip(self.starts, batches, strict=True)):
            places[row, : len(batch)] = start + batch
            mask[row, : len(batch)] = 1.0
        rows = torch.as_tensor(places, device=self.device)
        return self.x[rows], self.y[rows], torch.as_tensor(mask, device=self.device)


def save_tensors(path: Path, arrays: dict[str, Array], facts: Document) -> None:
    """Write arrays and plain facts to one file with the digest of all of it, replacing it in one step."""
    contiguous = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    text = json.dumps(facts)
    metadata = {_FACTS: text, _DIGEST: _digest(text, contiguous)}
    with files.replacing(path) as temporary:
        require("safetensors.numpy").save_file(contiguous, temporary, metadata=metadata)


def load_tensors(path: Path) -> tuple[dict[str, Array], Json]:
    """Read what `save_tensors` wrote, to the last bit; anything else is a `CheckpointError`."""
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {str(path)!r}")
    safetensors = require("safetensors")
    try:
        with safetensors.safe_open(path, framework="numpy") as stored:
            metadata = stored.metadata() or {}
            arrays = {name: np.array(stored.get_tensor(name)) for name in stored.keys()}  # noqa: SIM118 (no mapping)
    except (safetensors.SafetensorError, ValueError, TypeError, AttributeError, OverflowError, MemoryError) as error:
        raise CheckpointError(str(path), f"it is no file of this library, or damaged: {error}") from error
    if _FACTS not in metadata or metadata.get(_DIGEST) != _digest(metadata[_FACTS], arrays):
        advice = "train again; a file of an older release carries no digest, and nothing vouches for it"
        raise CheckpointError(str(path), f"it is damaged, for its digest is not that of what it holds: {advice}")
    return arrays, json.loads(metadata[_FACTS])


def _digest(facts: str, arrays: dict[str, Array]) -> str:
    content = [facts, sorted((name, digest_of(array)) for name, array in arrays.items())]
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()


def digest_of(array: Array) -> str:
    """Return the SHA-256 of an array's type, shape and content."""
    digest = hashlib.sha256(f"{array.dtype.str} {array.shape} ".encode())
    digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()
