"""The student: a model trained on a few private labels and many unlabeled inputs, by virtual adversarial training.

The loss of a step is [MMKI17, Section 3], which the PATE papers use for their students [P, Section 5.1]:

    cross-entropy on labeled inputs + weight · mean over all inputs of KL(p(·|x) ‖ p(·|x + r)),
    r = radius · g/‖g‖,   g = ∇_d KL(p(·|x) ‖ p(·|x + ξ·d)) at a random unit d: where the answer changes most.

The student sees private labels and public inputs, nothing else: whatever it learns is post-processing of the labels.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from darrm import checks
from darrm.ensemble.network import (
    Build,
    Device,
    Module,
    Tensor,
    along_first,
    best_classes,
    built,
    check_fits,
    choose_device,
    convolutional_network,
    threads_for,
)

_PROBE = 1e-2  # length of the finite difference that finds the adversarial direction


@dataclass(frozen=True)
class StudentRecipe:
    """How a student is trained, with Adam.

    Parameters
    ----------
    steps
        Number of steps, at least 1.
    learning_rate
        Adam's, > 0; it falls linearly to 0 over the second half.
    batch
        Labeled and, again as many, unlabeled inputs a step.
    radius
        Length of the adversarial direction, in units of the input, > 0.
    weight
        Weight of the virtual adversarial loss; 0 trains on the labels alone.

    Examples
    --------
    >>> StudentRecipe(steps=200).weight
    1.0
    """

    steps: int = 200
    learning_rate: float = 1e-3
    batch: int = 64
    radius: float = 2.0
    weight: float = 1.0

    def __post_init__(self) -> None:
        checks.integer_at_least(1, steps=self.steps, batch=self.batch)
        checks.positive(learning_rate=self.learning_rate, radius=self.radius)
        checks.non_negative(weight=self.weight)


@dataclass(frozen=True, eq=False)
class Student:
    """A trained student; `predict` answers, and answering costs no privacy."""

    model: Module
    device: Device

    def predict(self, x: NDArray[Any], *, batch: int = 512) -> NDArray[np.int64]:
        """Return the class of each of (n, …) inputs."""
        answers = best_classes(self.model, np.asarray(x, dtype=np.float32), self.device, batch)
        return np.concatenate([np.empty(0, dtype=np.int64), *answers])


def train_student(
    x: NDArray[Any],
    labels: NDArray[np.int64],
    unlabeled: NDArray[Any],
    *,
    recipe: StudentRecipe | None = None,
    build: Build = convolutional_network,
    seed: int = 0,
    device: str = "auto",
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
        Of the initialization and of the batches; no privacy rests on it.
    device
        See `choose_device`.

    Raises
    ------
    ValueError
        If shapes do not fit, or no input is labeled.
    """
    recipe = StudentRecipe() if recipe is None else recipe
    classes = np.asarray(labels)
    if classes.ndim != 1 or len(classes) != len(x) or not np.issubdtype(classes.dtype, np.integer):
        checks.fail("labels", f"shape {classes.shape}, dtype {classes.dtype}", f"{len(x)} integers, one for each input")
    answered = classes >= 0
    if not answered.any():
        checks.fail("labels", "no label", "at least one label that is not an abstention")
    target = choose_device(device)
    inputs, more = np.asarray(x, dtype=np.float32), np.asarray(unlabeled, dtype=np.float32)
    if len(more) and more.shape[1:] != inputs.shape[1:]:
        checks.fail("unlabeled", f"inputs of shape {more.shape[1:]}", f"inputs of the shape of x, {inputs.shape[1:]}")
    check_fits(built(build), inputs, classes)
    everything = np.concatenate([inputs, more]) if len(more) else inputs
    known_x = torch.tensor(inputs[answered], device=target)
    known_y = torch.tensor(classes[answered].astype(np.int64), device=target)
    all_x = torch.tensor(everything, device=target)
    generator = torch.Generator().manual_seed(seed)
    with torch.random.fork_rng(devices=[]), threads_for(target):
        torch.manual_seed(seed)
        model = build().to(target).train()
        optimizer = torch.optim.Adam(model.parameters(), lr=recipe.learning_rate)
        for step in range(recipe.steps):
            for group in optimizer.param_groups:
                group["lr"] = recipe.learning_rate * min(1.0, 2.0 * (1.0 - step / recipe.steps))
            rows = torch.randint(len(known_x), (min(recipe.batch, len(known_x)),), generator=generator)
            loss = nn.functional.cross_entropy(model(known_x[rows]), known_y[rows])
            if recipe.weight > 0:
                public = all_x[torch.randint(len(all_x), (recipe.batch,), generator=generator)]
                direction = torch.randn(public.shape, generator=generator).to(target)
                loss = loss + recipe.weight * virtual_adversarial_loss(model, public, direction, recipe.radius)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return Student(model.eval(), target)


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
    """Return the mean KL divergence from log probabilities (B, C) to those of the logits."""
    after = nn.functional.log_softmax(logits, dim=1)
    return (before.exp() * (before - after)).sum(dim=1).mean()


def _unit(direction: Tensor) -> Tensor:
    """Return (B, …) directions, each divided by its Euclidean norm."""
    return direction / along_first(direction.flatten(1).norm(dim=1).clamp_min(1e-12), direction)
