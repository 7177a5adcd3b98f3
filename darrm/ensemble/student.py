"""The student: a model trained on a few private labels, some of them wrong, and many unlabeled inputs.

The loss of a step has up to three parts:

    on labeled inputs:  (1 − p(y|x)^q)/q, the generalized cross-entropy [ZS18]; q → 0 is cross-entropy, and with a
                        larger q a label counts less the more the model contradicts it. The first steps take q = 0:
                        a student who may disregard the labels from the start can settle on too few classes.
    + weight · mean over unlabeled inputs of KL(p(·|x) ‖ p(·|x + r)): virtual adversarial training [MMKI17, Section 3],
                        which the PATE papers use for their students [P, Section 5.1];
                        r = radius · g/‖g‖, g = ∇_d KL(p(·|x) ‖ p(·|x + ξ·d)) at a random unit d
    + consistency · mean over unlabeled inputs of [max_c p̄(c|x) ≥ threshold] · (−log p(ĉ|x')), ĉ = argmax_c p̄(c|x):
                        FixMatch [SBL20, Section 2.2], x' a changed copy of x. Two things differ: p̄ is the moving
                        average of the model, which is right more often than the model, and it sees x itself. The
                        weight grows linearly over the first steps. With an alignment a > 0, p̄(c|x) is first multiplied
                        by (1/C)/m(c), held within [e^−a, e^a], and normalized again, m(c) the moving average of p̄(c|·)
                        over the batches: distribution alignment [BCC20, Section 3.1] to classes of one frequency.

Labeled inputs are changed like the others: a model that never sees the same input twice learns wrong labels by heart
less readily. The student sees private labels and public inputs, nothing else: whatever it learns is post-processing of
the labels.

Random changes of inputs that leave their class alone: moved, turned, stretched, mirrored, faded, noisy.

An image's pixel at (column u, row v), both in [−1, 1], comes from the place A·(u, v) + t of the original, with
A = rotation · shear · scales; places outside are 0, the background of the data sets here. All draws come from the
generator given, so that a seeded training repeats.
"""

import json
import math
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from darrm.ensemble.network import (
    Array,
    Build,
    Device,
    Generator,
    Module,
    Parameters,
    Tensor,
    along_first,
    best_classes,
    built,
    check_fits,
    choose_device,
    convolutional_network,
    in_batches,
    network_digest,
    threads_for,
)
from darrm.ensemble.training import digest_of, load_tensors, save_tensors
from darrm.errors import CheckpointError, checks
from darrm.system.progress import bar

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


_PROBE = 1e-2  # length of the finite difference that finds the adversarial direction
_GROWTH = 0.1  # share of the steps over which the weight of consistency grows
_TRUST = 0.15  # share of the steps that take labels at their word
_CHECKPOINT_EVERY = 200  # steps: seconds
_MEMORY = 0.99  # of the moving average of how often each class is predicted


@dataclass(frozen=True)
class StudentRecipe:
    """How a student is trained, with Adam.

    Parameters
    ----------
    steps
        Number of steps, at least 1.
    learning_rate
        Adam's, > 0; it falls to 0 along a quarter of a cosine wave.
    batch
        Labeled inputs a step.
    unlabeled
        Unlabeled inputs a step for each labeled one, at least 1.
    radius
        Length of the adversarial direction, in units of the input, > 0.
    weight
        Weight of the virtual adversarial loss.
    consistency
        Weight of the agreement between unlabeled inputs and changed copies; with neither weight the student learns
        from the labels alone.
    threshold
        In [0, 1]: how sure of an input the student must be to learn from it.
    alignment
        How far classes that are predicted too often, or too rarely, are made less or more probable before the student
        learns from itself: by a factor in [e^−alignment, e^alignment]. For classes that are about equally frequent.
    change
        How inputs, labeled or not, are changed.
    robustness
        q in [0, 1] of the loss on labels, after the first steps: 0 is cross-entropy, 1 the probability of all other
        classes.
    averaging
        In [0, 1): the student's parameters are the moving average a ← averaging·a + (1 − averaging)·θ of the trained
        ones after each step; 0 keeps the last.

    Examples
    --------
    >>> fixmatch = StudentRecipe(steps=2000, weight=0, consistency=1, change=Perturbation(rotation=30, noise=0.1))
    >>> fixmatch.threshold
    0.95
    """

    steps: int = 200
    learning_rate: float = 1e-3
    batch: int = 64
    unlabeled: int = 1
    radius: float = 2.0
    weight: float = 1.0
    consistency: float = 0.0
    threshold: float = 0.95
    alignment: float = 0.0
    change: Perturbation = field(default_factory=Perturbation)
    robustness: float = 0.0
    averaging: float = 0.0

    def __post_init__(self) -> None:
        checks.integer_at_least(1, steps=self.steps, batch=self.batch, unlabeled=self.unlabeled)
        checks.positive(learning_rate=self.learning_rate, radius=self.radius)
        checks.non_negative(weight=self.weight, consistency=self.consistency, alignment=self.alignment)
        checks.probability(threshold=self.threshold, robustness=self.robustness)
        checks.probability_below_one(averaging=self.averaging)


#: The best recipe of those tried on MNIST, for images that are labeled in part (`experiments/pate/students.py`).
FIXMATCH = StudentRecipe(
    steps=5000, learning_rate=3e-3, batch=16, unlabeled=7, weight=0.0, consistency=2.0, alignment=math.log(5.0),
    change=Perturbation(shift=2, rotation=20, scale=0.2, shear=0.2), robustness=0.7, averaging=0.995,
)  # fmt: skip


@dataclass(frozen=True, eq=False)
class Student:
    """A trained student; `predict` answers, and answering costs no privacy."""

    model: Module
    device: Device

    def predict(self, x: Array, *, batch: int = 512) -> NDArray[np.int64]:
        """Return the class of each of (n, …) inputs."""
        answers = best_classes(self.model, np.asarray(x, dtype=np.float32), self.device, batch)
        return np.concatenate([np.empty(0, dtype=np.int64), *answers])

    def scores(self, x: Array, *, batch: int = 512) -> NDArray[np.float64]:
        """Return the probability of each class for each of (n, …) inputs, n ≥ 1: (n, C), rows that sum to 1."""
        inputs = np.asarray(x, dtype=np.float32)
        parts = in_batches(lambda part: self.model(part).double().softmax(dim=1), inputs, self.device, batch)
        return np.concatenate(parts)


def train_student(
    x: Array,
    labels: NDArray[np.int64],
    unlabeled: Array,
    *,
    recipe: StudentRecipe | None = None,
    build: Build = convolutional_network,
    seed: int = 0,
    device: str = "auto",
    progress: bool = False,
    checkpoint: Path | None = None,
) -> Student:
    """Train a student.

    Parameters
    ----------
    x, labels
        (Q, …) public inputs and (Q,) the labels that an aggregator released for them. Inputs whose label is −1 (the
        aggregator abstained) count as unlabeled.
    unlabeled
        (U, …) more public inputs, possibly none.
    recipe
        By default `StudentRecipe()`.
    build
        Makes the network.
    seed
        Of the initialization, the batches and the changes of inputs; no privacy rests on it.
    device
        See `choose_device`.
    progress
        Whether to show a bar on standard error.
    checkpoint
        A file that keeps the state every few hundred steps: a training that was killed goes on from it, and ends where
        it would have ended. It holds no private data but what the labels say, and is deleted by nobody.

    Raises
    ------
    ValueError
        If shapes do not fit, or no input is labeled.
    CheckpointError
        If the checkpoint is damaged, or that of another training.
    """
    recipe = StudentRecipe() if recipe is None else recipe
    inputs, classes, everything = _checked(x, labels, unlabeled)
    check_fits(built(build), inputs, classes)
    target, answered = choose_device(device), classes >= 0
    known_x = torch.tensor(inputs[answered], device=target)
    known_y = torch.tensor(classes[answered].astype(np.int64), device=target)
    all_x = torch.tensor(everything, device=target)
    generator = torch.Generator().manual_seed(seed)
    with torch.random.fork_rng(devices=[]), threads_for(target):
        torch.manual_seed(seed)
        model = build().to(target).train()
        training = _Training(model, moving_average(model, recipe.averaging), all_x, recipe, generator)
        optimizer = torch.optim.Adam(model.parameters(), lr=recipe.learning_rate)
        kept = None
        if checkpoint is not None:
            facts = [asdict(recipe), seed, network_digest(build), digest_of(classes), digest_of(everything)]
            kept = _Checkpoint(checkpoint, json.dumps(facts, sort_keys=True), training, optimizer)
        start = 0 if kept is None else kept.resume()
        with bar(recipe.steps, "student's steps", enabled=progress, done=start) as advance:
            for step in range(start, recipe.steps):
                for group in optimizer.param_groups:
                    group["lr"] = recipe.learning_rate * math.cos(0.5 * math.pi * step / recipe.steps)
                rows = torch.randint(len(known_x), (min(recipe.batch, len(known_x)),), generator=generator)
                loss = training.loss(known_x[rows], known_y[rows], step / recipe.steps)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                training.average.update_parameters(model)
                advance(1)
                if kept is not None and (step + 1) % _CHECKPOINT_EVERY == 0:
                    kept.save(step + 1)
    return Student(training.average.module.eval(), target)


def _checked(x: Array, labels: Array, unlabeled: Array) -> tuple[Array, Array, Array]:
    classes = np.asarray(labels)
    if classes.ndim != 1 or len(classes) != len(x) or not np.issubdtype(classes.dtype, np.integer):
        checks.fail(
            "labels",
            checks.Found(f"shape {classes.shape}, dtype {classes.dtype}"),
            f"{len(x)} integers, one for each input",
        )
    if not (classes >= 0).any():
        checks.fail("labels", checks.Found("no label"), "at least one label that is not an abstention")
    inputs, more = np.asarray(x, dtype=np.float32), np.asarray(unlabeled, dtype=np.float32)
    if len(more) and more.shape[1:] != inputs.shape[1:]:
        checks.fail(
            "unlabeled",
            checks.Found(f"inputs of shape {more.shape[1:]}"),
            f"inputs of the shape of x, {inputs.shape[1:]}",
        )
    return inputs, classes, np.concatenate([inputs, more]) if len(more) else inputs


@dataclass(frozen=True, eq=False)
class _Training:
    model: Module
    average: Module
    all_x: Tensor
    recipe: StudentRecipe
    generator: Generator
    marginal: list[Tensor] = field(default_factory=list)  # how often each class was predicted of late, once one was

    def loss(self, x: Tensor, classes: Tensor, done: float) -> Tensor:
        """Return the loss of one step on a labeled batch and on unlabeled inputs drawn here; ``done`` in [0, 1)."""
        model, recipe, generator = self.model, self.recipe, self.generator
        x = recipe.change.applied(x, generator)
        robustness = recipe.robustness if done >= _TRUST else 0.0
        consistency = recipe.consistency * min(1.0, done / _GROWTH)
        if recipe.weight > 0 or consistency > 0:
            rows = torch.randint(len(self.all_x), (recipe.batch * recipe.unlabeled,), generator=generator)
            public = self.all_x[rows]
        if consistency > 0:
            with torch.no_grad():
                before = self.aligned(self.average(public))
            logits, after = model(torch.cat([x, recipe.change.applied(public, generator)])).split([len(x), len(public)])
            loss = label_loss(logits, classes, robustness)
            loss = loss + consistency * consistency_loss(before, after, recipe.threshold)
        else:
            loss = label_loss(model(x), classes, robustness)
        if recipe.weight > 0:
            direction = torch.randn(public.shape, generator=generator).to(public.device)
            loss = loss + recipe.weight * virtual_adversarial_loss(model, public, direction, recipe.radius)
        return loss

    def aligned(self, logits: Tensor) -> Tensor:
        """Return logits (B, C) under which classes that are predicted too often count less, and note these."""
        if self.recipe.alignment == 0.0:
            return logits
        marginal = logits.softmax(dim=1).mean(dim=0)
        self.marginal[:] = [marginal.lerp(self.marginal[0], _MEMORY) if self.marginal else marginal]
        limit = self.recipe.alignment
        return logits - (self.marginal[0] * logits.shape[1]).log().clamp(-limit, limit)


@dataclass(frozen=True, eq=False)
class _Checkpoint:
    """The state of a training between two steps: parameters, their average, Adam's moments, and the generator."""

    path: Path
    facts: str  # all that the training depends on
    training: _Training
    optimizer: Module  # Adam, which has a state as modules have

    def save(self, steps: int) -> None:
        training = self.training
        tensors = {f"model.{name}": value for name, value in training.model.state_dict().items()}
        tensors |= {f"average.{name}": value for name, value in training.average.state_dict().items()}
        tensors |= {f"marginal.{place}": value for place, value in enumerate(training.marginal)}
        for number, moments in self.optimizer.state_dict()["state"].items():
            tensors |= {f"adam.{number}.{name}": value for name, value in moments.items()}
        tensors["generator"] = training.generator.get_state()
        arrays = {name: value.detach().cpu().numpy() for name, value in tensors.items()}
        save_tensors(self.path, arrays, {"training": self.facts, "steps": steps})

    def resume(self) -> int:
        """Return how many steps are done, none where there is no file, and take up the state after these."""
        if not self.path.exists():
            return 0
        arrays, facts = load_tensors(self.path)
        if facts.get("training") != self.facts:
            raise CheckpointError(
                str(self.path), "it belongs to a training of other labels, inputs, seed or recipe: delete it"
            )
        training, tensors = self.training, {name: torch.as_tensor(value) for name, value in arrays.items()}
        parts: dict[str, Parameters] = {}  # by the first part of their names
        for name, tensor in tensors.items():
            kind, _, rest = name.partition(".")
            parts.setdefault(kind, {})[rest] = tensor
        training.model.load_state_dict(parts["model"])
        training.average.load_state_dict(parts["average"])
        training.marginal[:] = [tensor.to(training.all_x.device) for tensor in parts.get("marginal", {}).values()]
        moments: dict[int, Parameters] = {}
        for name, tensor in parts["adam"].items():
            number, _, moment = name.partition(".")
            moments.setdefault(int(number), {})[moment] = tensor
        self.optimizer.load_state_dict(self.optimizer.state_dict() | {"state": moments})
        training.generator.set_state(tensors["generator"])
        return int(facts["steps"])


def moving_average(model: Module, averaging: float) -> Module:
    """Return a copy of a model that ``update_parameters`` moves to averaging·copy + (1 − averaging)·model.

    The first update copies the parameters, so that the initialization leaves no trace.
    """
    swa = torch.optim.swa_utils
    return swa.AveragedModel(model, multi_avg_fn=swa.get_ema_multi_avg_fn(averaging))


def label_loss(logits: Tensor, classes: Tensor, robustness: float) -> Tensor:
    """Return the mean of (1 − p^q)/q over a batch, p the probability of the class given and q the robustness.

    Logits are (B, C), classes (B,); q = 0 is the limit −log p.
    """
    losses = nn.functional.cross_entropy(logits, classes, reduction="none")
    return (losses if robustness == 0.0 else -torch.expm1(-robustness * losses) / robustness).mean()


def consistency_loss(before: Tensor, after: Tensor, threshold: float) -> Tensor:
    """Return how little changed inputs are given the classes that they had before, where those were sure.

    Both are logits (B, C); the cross-entropy of inputs below the threshold counts as 0 in the mean over all B.
    """
    confidence, classes = before.softmax(dim=1).max(dim=1)
    losses = nn.functional.cross_entropy(after, classes, reduction="none")
    return (losses * (confidence >= threshold)).mean()


def virtual_adversarial_loss(model: Module, x: Tensor, direction: Tensor, radius: float) -> Tensor:
    """Measure how much the answer can change within ``radius`` (Euclidean), by one step of power iteration.

    The model returns (B, C) logits for (B, …) inputs; (B, …) random numbers in ``direction`` are where it starts. The
    result is the mean KL divergence, differentiable in the model's parameters.
    """
    with torch.no_grad():
        before = nn.functional.log_softmax(model(x), dim=1)
    probe = (_PROBE * _unit(direction)).requires_grad_()
    (gradient,) = torch.autograd.grad(_divergence(before, model(x + probe)), probe)
    return _divergence(before, model(x + radius * _unit(gradient)))


def _divergence(before: Tensor, logits: Tensor) -> Tensor:
    after = nn.functional.log_softmax(logits, dim=1)
    return (before.exp() * (before - after)).sum(dim=1).mean()


def _unit(direction: Tensor) -> Tensor:
    return direction / along_first(direction.flatten(1).norm(dim=1).clamp_min(1e-12), direction)
