"""The teachers: a linear layer on fixed edge maps, trained by DP-SGD, and the same without privacy.

Edges need no training and look at one image alone. The convolutional network of the two-class experiment, with all
weights trained, is worse at this small ε: at 0.2, the best of six settings, its teachers were right on 0.68 and
0.55 of the held-out training images of MNIST and Fashion-MNIST, these on 0.76 and 0.71.
"""

import math
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import nn

from darrm.privacy import PrivacyParams
from darrm.training.calibration import calibrate_noise, privacy_of
from darrm.training.network import Build, Tensor
from darrm.training.recipes import PlainSGD, PrivateSGD, Recipe
from experiments.datasets import LabeledImages
from experiments.knowledge_transfer.selection import held_out, score
from experiments.pages import Row
from experiments.teachers import Machine, Training, obtain_labels
from experiments.ten_classes.comparison import (
    CLASSES,
    CLIP,
    DELTA,
    DRAWN,
    SAMPLING_RATE,
    SETUPS,
    STEPS,
    TRIED_EPSILONS,
    TRIED_RATES,
    K,
    KeptVotes,
)

PLAIN = PlainSGD(8.0, 10, 32)  # of three tried on held-out training images; one twice as long gained up to 0.3 %
POOL, DIRECTIONS = 4, 8
HELD_OUT = 1 / 12  # of the training images: 5,000
SELECTION_SEED = 101  # no training of the experiment itself uses it
SOBEL = ((1.0, 0.0, -1.0), (2.0, 0.0, -2.0), (1.0, 0.0, -1.0))


class EdgeMap(nn.Module):  # type: ignore[misc]
    """The strength of edges in 8 directions in squares of 4 × 4 pixels, less their mean, scaled to length 1."""

    def __init__(self) -> None:
        super().__init__()
        across = torch.tensor(SOBEL)
        angles = torch.arange(DIRECTIONS) * (2.0 * torch.pi / DIRECTIONS)
        kernels = [torch.cos(angle) * across + torch.sin(angle) * across.T for angle in angles]
        self.register_buffer("kernels", torch.stack(kernels).unsqueeze(1))

    def forward(self, x: Tensor) -> Tensor:
        """Map (B, 1, side, side) images to (B, 8·(side/4)²) vectors."""
        edges = torch.relu(nn.functional.conv2d(x, self.kernels, padding=1))
        strength = nn.functional.avg_pool2d(edges, POOL).flatten(1)
        centered = strength - strength.mean(dim=1, keepdim=True)
        return nn.functional.normalize(centered, dim=1)


def edge_network(side: int = 28, classes: int = CLASSES) -> Any:  # noqa: ANN401 (torch ships no types)
    """Make the network: fixed edge maps, and a linear layer that starts at 0.

    >>> sum(parameter.numel() for parameter in edge_network().parameters())
    3930
    """
    last = nn.Linear(DIRECTIONS * (side // POOL) ** 2, classes)
    nn.init.zeros_(last.weight)
    nn.init.zeros_(last.bias)
    return nn.Sequential(EdgeMap(), last)


def private_recipe(each: PrivacyParams, rate: float) -> PrivateSGD:
    """Calibrate the noise of DP-SGD to the guarantee of one teacher."""
    noise = calibrate_noise(each, sampling_rate=SAMPLING_RATE, steps=STEPS).value
    return PrivateSGD(learning_rate=rate, steps=STEPS, sampling_rate=SAMPLING_RATE, noise=noise, clip=CLIP)


def training_of(data: LabeledImages, recipe: Recipe, seed: int) -> Training:
    """Return the training of K teachers, on other shards than the other trainings."""
    build: Build = partial(edge_network, side=data.train_x.shape[-1])
    return Training(K, seed, recipe, build, seed)


def train(data: LabeledImages, trainings: int, machine: Machine) -> tuple[KeptVotes, Row]:
    """Train teachers with and without DP-SGD, each time on other shards, and ask them about the test images.

    The votes of a training that was run before are read again. Returns the votes, and how the teachers were trained.
    """
    setup = SETUPS[data.name]
    private = private_recipe(setup.each, setup.rate)
    votes, seconds = {}, {}
    for kind, recipe in (("private", private), ("plain", PLAIN)):
        runs = [obtain_labels(data, training_of(data, recipe, seed), machine) for seed in range(trainings)]
        votes[kind] = np.stack([labels for labels, _ in runs]).astype(np.uint8)
        seconds[kind] = round(sum(time for _, time in runs), 1)
    spent = privacy_of(private, setup.each.delta)
    facts = {
        "dataset": data.name,
        "trainings": trainings,
        "images": len(data.train_y) // K,
        "spent": {"epsilon": spent.epsilon, "delta": spent.delta},
        "drawn": [drawn(private, setup.target(m).delta, m) for m in DRAWN],
        "private_training": private.to_dict(),
        "plain_training": PLAIN.to_dict(),
        "seconds": seconds,
    }
    return KeptVotes(**votes, truth=data.test_y.astype(np.uint8)), facts


def drawn(recipe: PrivateSGD, delta: float, m: int) -> Row:
    """Bound ε of each of the sampled teachers, at the δ at which all of them together meet the target of a label."""
    voters = DRAWN[m]
    each = float(f"{-math.expm1(math.log1p(-delta) / voters) * (1.0 - 1e-5):.6g}")  # surely rounded down
    return {"m": m, "voters": voters, "epsilon": privacy_of(recipe, each).epsilon, "delta": each}


def select(data: LabeledImages, machine: Machine) -> list[Row]:
    """Try every ε and learning rate on a split of the training data; no test image is read."""
    split = held_out(data, HELD_OUT)
    tried = [(PrivacyParams(epsilon, DELTA), rate) for epsilon in TRIED_EPSILONS for rate in TRIED_RATES]
    rows = []
    for each, rate in tried:
        trainings = [training_of(data, private_recipe(each, rate), SELECTION_SEED)]
        rows.append({"epsilon": each.epsilon, **score(data, split, trainings, machine)})
        print(rows[-1], flush=True)
    return rows
