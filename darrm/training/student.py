"""The student: a model trained on a few private labels, some of them wrong, and many unlabeled inputs.

The loss of a step has up to three parts:

    on labeled inputs:  (1 − p(y|x)^q)/q, the generalized cross-entropy [ZS18]; q → 0 is cross-entropy. With a larger q,
                        labels that the model contradicts count less. The first steps use q = 0: a student that may
                        disregard labels from the start can collapse to too few classes.
    + weight · mean over unlabeled inputs of KL(p(·|x) ‖ p(·|x + r)): virtual adversarial training [MMKI17, Section 3]
                        of the PATE papers [P, Section 5.1]; r = radius · g/‖g‖, g = ∇_d KL(p(·|x) ‖ p(·|x + ξ·d)) at a
                        random unit d
    + consistency · mean over unlabeled inputs of [max_c p̄(c|x) ≥ threshold] · (−log p(ĉ|x')), ĉ = argmax_c p̄(c|x):
                        FixMatch [SBL20, Section 2.2], x' a changed copy of x. Two departures: p̄ is the moving average
                        of the model, and it sees x unchanged. The weight grows linearly over the first steps. With an
                        alignment a > 0, p̄(c|x) is first multiplied by (1/C)/m(c), clipped to [e^−a, e^a], and
                        renormalized; m(c) is the moving average of p̄(c|·) over the batches: distribution alignment
                        [BCC20, Section 3.1] to equally frequent classes.

Labeled inputs are changed like the unlabeled ones. The student sees only private labels and public inputs, so its
training is post-processing of the labels.
"""

import json
import math
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from darrm.errors import CheckpointError
from darrm.training.network import (
    Array,
    Build,
    Device,
    Generator,
    Module,
    Parameters,
    Tensor,
    ask_in_batches,
    build_network,
    check_fits,
    choose_device,
    convolutional_network,
    limit_threads,
    network_digest,
    reshape_factors,
)
from darrm.training.recipes import distort, make_affine_maps
from darrm.training.training import compute_digest, load_tensors, save_tensors
from darrm.util import checks
from darrm.util.progress import bar


@dataclass(frozen=True)
class Perturbation:
    """Random changes of inputs that preserve their class, none by default; one independent uniform draw for each.

    An image's pixel at (column u, row v), both in [−1, 1], shows the original at A·(u, v) + t, with
    A = rotation · shear · scales, and 0 outside, the background of the data sets here.
    """

    shift: float = 0.0  # largest shift of images along each axis, in pixels
    rotation: float = 0.0  # largest angle of images, in degrees
    scale: float = 0.0  # largest logarithm of the factor of images along each axis
    shear: float = 0.0  # largest shear of images
    flip: bool = False  # whether to mirror images left to right with probability 1/2
    fading: float = 0.0  # largest logarithm of a factor on all entries
    noise: float = 0.0  # standard deviation of Gaussian noise that is added to every entry

    def __post_init__(self) -> None:
        checks.non_negative(**{name: value for name, value in asdict(self).items() if name != "flip"})

    def apply(self, x: Tensor, generator: Generator) -> Tensor:
        """Return changed copies of a batch (B, …); `ValueError` if a geometric change meets no images."""
        if self.shift or self.rotation or self.scale or self.shear or self.flip:
            x = distort(x, self._draw_maps(x, generator).to(x.device))
        if self.fading:
            x = x * reshape_factors(torch.exp(_draw_uniform(self.fading, len(x), generator=generator)).to(x.device), x)
        if self.noise:
            x = x + self.noise * torch.randn(x.shape, generator=generator).to(x.device)
        return x

    def _draw_maps(self, x: Tensor, generator: Generator) -> Tensor:
        count = len(x)
        angle = _draw_uniform(math.radians(self.rotation), count, generator=generator)
        cosine, sine = angle.cos(), angle.sin()
        rotation = torch.stack([torch.stack([cosine, -sine], 1), torch.stack([sine, cosine], 1)], 1)
        shear = torch.eye(2).repeat(count, 1, 1)
        shear[:, 0, 1] = _draw_uniform(self.shear, count, generator=generator)
        maps = rotation @ shear @ torch.diag_embed(torch.exp(_draw_uniform(self.scale, count, 2, generator=generator)))
        if self.flip:
            maps[:, 0] *= 1.0 - 2.0 * torch.randint(2, (count, 1), generator=generator)
        return make_affine_maps(maps, _draw_uniform(self.shift, count, 2, generator=generator), x.shape)


def _draw_uniform(limit: float, *shape: int, generator: Generator) -> Tensor:
    return limit * (2.0 * torch.rand(*shape, generator=generator) - 1.0)


_PROBE_LENGTH = 1e-2  # length of the finite difference for the adversarial direction
_GROWTH_SHARE = 0.1  # share of the steps with a growing weight of consistency
_TRUST_SHARE = 0.15  # share of the steps with cross-entropy (q = 0)
_CHECKPOINT_EVERY = 200  # steps: seconds
_FREQUENCY_DECAY = 0.99  # decay of the moving average of class frequencies


@dataclass(frozen=True)
class StudentRecipe:
    """Training recipe of a student, with Adam. With both weights 0 the student learns from the labels alone."""

    steps: int = 200
    learning_rate: float = 1e-3  # of Adam; it falls to 0 along a quarter of a cosine wave
    batch: int = 64  # labeled inputs per step
    unlabeled: int = 1  # unlabeled inputs per labeled one
    radius: float = 2.0  # length of the adversarial direction, in units of the input
    weight: float = 1.0  # of the virtual adversarial loss
    consistency: float = 0.0  # weight of the agreement between unlabeled inputs and changed copies
    threshold: float = 0.95  # least confidence of the moving average for an unlabeled input to count
    alignment: float = 0.0  # a of the module's docstring, for classes of about equal frequency
    change: Perturbation = field(default_factory=Perturbation)  # of labeled and unlabeled inputs
    robustness: float = 0.0  # q in [0, 1] of the module's docstring, after the first steps
    averaging: float = 0.0  # c in [0, 1): after a step with parameters θ the student's are a ← c·a + (1 − c)·θ

    def __post_init__(self) -> None:
        checks.integer_at_least(1, steps=self.steps, batch=self.batch, unlabeled=self.unlabeled)
        checks.positive(learning_rate=self.learning_rate, radius=self.radius)
        checks.non_negative(weight=self.weight, consistency=self.consistency, alignment=self.alignment)
        checks.probability(threshold=self.threshold, robustness=self.robustness)
        checks.probability_below_one(averaging=self.averaging)


#: The best of the tested recipes on MNIST, for partly labeled images (`experiments/pate/students.py`).
FIXMATCH = StudentRecipe(
    steps=5000, learning_rate=3e-3, batch=16, unlabeled=7, weight=0.0, consistency=2.0, alignment=math.log(5.0),
    change=Perturbation(shift=2, rotation=20, scale=0.2, shear=0.2), robustness=0.7, averaging=0.995,
)  # fmt: skip


@dataclass(frozen=True, eq=False)
class Student:
    """A trained student. Its predictions cost no privacy."""

    model: Module
    device: Device

    def predict(self, x: Array, *, batch: int = 512) -> NDArray[np.int64]:
        inputs = np.asarray(x, dtype=np.float32)
        logits = ask_in_batches(self.model, inputs, self.device, batch)
        return np.concatenate([np.empty(0, dtype=np.int64), *(batch_logits.argmax(axis=1) for batch_logits in logits)])

    def scores(self, x: Array, *, batch: int = 512) -> NDArray[np.float64]:
        """Return the probability of each class for each of (n, …) inputs, n ≥ 1: (n, C)."""
        inputs = np.asarray(x, dtype=np.float32)
        logits = np.concatenate(ask_in_batches(self.model, inputs, self.device, batch))
        return np.asarray(torch.as_tensor(logits).double().softmax(dim=1).numpy())


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
    """Train a student on (Q, …) public inputs, their (Q,) released labels, and (U, …) more public inputs.

    A label −1 (the aggregator abstained) counts as unlabeled. Privacy does not depend on the seed. ``device`` is
    ``"auto"``, ``"cpu"``, ``"cuda"`` or ``"cuda:N"``. A killed training resumes from ``checkpoint``, a file for the
    state every 200 steps, with the same result; it holds no private data except the labels' information, and is never
    deleted. `ValueError` if shapes do not fit, or no input is labeled; `CheckpointError` if the checkpoint is damaged,
    or that of another training.
    """
    recipe = StudentRecipe() if recipe is None else recipe
    inputs, classes, all_inputs = _check_data(x, labels, unlabeled)
    check_fits(build_network(build), inputs, classes)
    target, is_labeled = choose_device(device), classes >= 0
    labeled_x = torch.tensor(inputs[is_labeled], device=target)
    labeled_y = torch.tensor(classes[is_labeled].astype(np.int64), device=target)
    all_x, facts = torch.tensor(all_inputs, device=target), ""
    generator = torch.Generator().manual_seed(seed)
    with torch.random.fork_rng(devices=[]), limit_threads(target):
        torch.manual_seed(seed)
        model = build().to(target).train()
        training, start = _Training(model, moving_average(model, recipe.averaging), all_x, recipe, generator), 0
        if checkpoint is not None:
            digests = network_digest(build), compute_digest(classes), compute_digest(all_inputs)
            facts = json.dumps([asdict(recipe), seed, *digests], sort_keys=True)
            start = training.resume(checkpoint, facts)
        with bar(recipe.steps, "student's steps", enabled=progress, done=start) as advance:
            for step in range(start, recipe.steps):
                training.advance(labeled_x, labeled_y, step)
                advance(1)
                if checkpoint is not None and (step + 1) % _CHECKPOINT_EVERY == 0:
                    training.save(checkpoint, facts, step + 1)
    return Student(training.average.module.eval(), target)


def _check_data(x: Array, labels: Array, unlabeled: Array) -> tuple[Array, Array, Array]:
    classes = np.asarray(labels)
    if classes.ndim != 1 or len(classes) != len(x) or not np.issubdtype(classes.dtype, np.integer):
        description = checks.Text(f"shape {classes.shape}, dtype {classes.dtype}")
        checks.fail("labels", description, f"{len(x)} integers, one for each input")
    if not (classes >= 0).any():
        checks.fail("labels", checks.Text("no label"), "at least one label that is not an abstention")
    inputs, extra_inputs = np.asarray(x, dtype=np.float32), np.asarray(unlabeled, dtype=np.float32)
    if len(extra_inputs) and extra_inputs.shape[1:] != inputs.shape[1:]:
        description = checks.Text(f"inputs of shape {extra_inputs.shape[1:]}")
        checks.fail("unlabeled", description, f"inputs of the shape of x, {inputs.shape[1:]}")
    return inputs, classes, np.concatenate([inputs, extra_inputs]) if len(extra_inputs) else inputs


@dataclass(frozen=True, eq=False)
class _Training:
    model: Module
    average: Module
    all_x: Tensor
    recipe: StudentRecipe
    generator: Generator
    marginal: list[Tensor] = field(default_factory=list)  # empty, or one moving average of class frequencies

    @cached_property
    def optimizer(self) -> Module:
        return torch.optim.Adam(self.model.parameters(), lr=self.recipe.learning_rate)

    def advance(self, x: Tensor, classes: Tensor, step: int) -> None:
        recipe = self.recipe
        for group in self.optimizer.param_groups:
            group["lr"] = recipe.learning_rate * math.cos(0.5 * math.pi * step / recipe.steps)
        rows = torch.randint(len(x), (min(recipe.batch, len(x)),), generator=self.generator)
        loss = self.loss(x[rows], classes[rows], step / recipe.steps)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.average.update_parameters(self.model)

    def loss(self, x: Tensor, classes: Tensor, share_done: float) -> Tensor:
        """Return the loss on a labeled batch and on new unlabeled inputs; ``share_done`` in [0, 1)."""
        model, recipe, generator = self.model, self.recipe, self.generator
        x = recipe.change.apply(x, generator)
        robustness = recipe.robustness if share_done >= _TRUST_SHARE else 0.0
        consistency = recipe.consistency * min(1.0, share_done / _GROWTH_SHARE)
        if recipe.weight > 0 or consistency > 0:
            rows = torch.randint(len(self.all_x), (recipe.batch * recipe.unlabeled,), generator=generator)
            public = self.all_x[rows]
        if consistency > 0:
            with torch.no_grad():
                original_logits = self.align(self.average(public))
            batch = torch.cat([x, recipe.change.apply(public, generator)])
            logits, changed_logits = model(batch).split([len(x), len(public)])
            loss = label_loss(logits, classes, robustness)
            loss = loss + consistency * consistency_loss(original_logits, changed_logits, recipe.threshold)
        else:
            loss = label_loss(model(x), classes, robustness)
        if recipe.weight > 0:
            direction = torch.randn(public.shape, generator=generator).to(public.device)
            loss = loss + recipe.weight * virtual_adversarial_loss(model, public, direction, recipe.radius)
        return loss

    def align(self, logits: Tensor) -> Tensor:
        """Return (B, C) logits with less weight for too frequent classes; update the class frequencies."""
        if self.recipe.alignment == 0.0:
            return logits
        marginal = logits.softmax(dim=1).mean(dim=0)
        self.marginal[:] = [marginal.lerp(self.marginal[0], _FREQUENCY_DECAY) if self.marginal else marginal]
        limit = self.recipe.alignment
        return logits - (self.marginal[0] * logits.shape[1]).log().clamp(-limit, limit)

    def save(self, path: Path, facts: str, steps: int) -> None:
        parts = {"model": self.model.state_dict(), "average": self.average.state_dict()}
        parts["generator"] = {"": self.generator.get_state()}
        parts["marginal"] = {str(place): value for place, value in enumerate(self.marginal)}
        parts |= {f"adam{number}": moments for number, moments in self.optimizer.state_dict()["state"].items()}
        tensors = {f"{part}.{name}": value for part, values in parts.items() for name, value in values.items()}
        arrays = {name: value.detach().cpu().numpy() for name, value in tensors.items()}
        save_tensors(path, arrays, {"training": facts, "steps": steps})

    def resume(self, path: Path, facts: str) -> int:
        if not path.exists():
            return 0
        arrays, stored_facts = load_tensors(path)
        if stored_facts.get("training") != facts:
            raise CheckpointError(
                str(path), "it belongs to a training of other labels, inputs, seed or recipe: delete it"
            )
        parts: dict[str, Parameters] = {}
        for name, value in arrays.items():
            part, _, key = name.partition(".")
            parts.setdefault(part, {})[key] = torch.as_tensor(value)
        self.model.load_state_dict(parts["model"])
        self.average.load_state_dict(parts["average"])
        self.marginal[:] = [tensor.to(self.all_x.device) for tensor in parts.get("marginal", {}).values()]
        moments = {int(part.removeprefix("adam")): parts[part] for part in parts if part.startswith("adam")}
        self.optimizer.load_state_dict(self.optimizer.state_dict() | {"state": moments})
        self.generator.set_state(parts["generator"][""])
        return int(stored_facts["steps"])


def moving_average(model: Module, averaging: float) -> Module:
    """Return a copy that updates move to averaging·copy + (1 − averaging)·model; the first one copies the model."""
    swa = torch.optim.swa_utils
    return swa.AveragedModel(model, multi_avg_fn=swa.get_ema_multi_avg_fn(averaging))


def label_loss(logits: Tensor, classes: Tensor, robustness: float) -> Tensor:
    """Return the mean of (1 − p^q)/q, p the probability of the label and q the robustness; q = 0 is −log p."""
    losses = nn.functional.cross_entropy(logits, classes, reduction="none")
    return (losses if robustness == 0.0 else -torch.expm1(-robustness * losses) / robustness).mean()


def consistency_loss(original_logits: Tensor, changed_logits: Tensor, threshold: float) -> Tensor:
    """Return the cross-entropy against confident classes of unchanged inputs; others count as 0 in the mean."""
    confidence, classes = original_logits.softmax(dim=1).max(dim=1)
    losses = nn.functional.cross_entropy(changed_logits, classes, reduction="none")
    return (losses * (confidence >= threshold)).mean()


def virtual_adversarial_loss(model: Module, x: Tensor, direction: Tensor, radius: float) -> Tensor:
    """Estimate the largest KL divergence within ``radius`` (Euclidean), by one power iteration from ``direction``."""
    with torch.no_grad():
        log_probabilities = nn.functional.log_softmax(model(x), dim=1)
    probe = (_PROBE_LENGTH * _normalize(direction)).requires_grad_()
    (gradient,) = torch.autograd.grad(_compute_divergence(log_probabilities, model(x + probe)), probe)
    return _compute_divergence(log_probabilities, model(x + radius * _normalize(gradient)))


def _compute_divergence(log_probabilities: Tensor, logits: Tensor) -> Tensor:
    changed_log_probabilities = nn.functional.log_softmax(logits, dim=1)
    return (log_probabilities.exp() * (log_probabilities - changed_log_probabilities)).sum(dim=1).mean()


def _normalize(direction: Tensor) -> Tensor:
    return direction / reshape_factors(direction.flatten(1).norm(dim=1).clamp_min(1e-12), direction)
