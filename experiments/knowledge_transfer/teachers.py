"""The teachers of the experiment, with and without DP-SGD."""

from functools import partial

from darrm.training.calibration import calibrate_sampling
from darrm.training.network import convolutional_network
from darrm.training.recipes import PrivateSGD, Recipe
from experiments.composition_tables import K
from experiments.datasets import LabeledImages
from experiments.knowledge_transfer.settings import CLIP, Setup
from experiments.teachers import Training


def private_recipe(setup: Setup) -> PrivateSGD:
    """Fit the batches of DP-SGD to the budget of one teacher."""
    found = calibrate_sampling(setup.each, noise=setup.noise, epochs=setup.epochs)
    return PrivateSGD(
        learning_rate=setup.private_rate,
        steps=int(found.settings["steps"]),
        sampling_rate=found.value,
        noise=setup.noise,
        clip=CLIP,
    )


def training_of(data: LabeledImages, recipe: Recipe, seed: int) -> Training:
    """Return the training of K teachers, on other shards than the other trainings: these are independent."""
    build = partial(convolutional_network, side=data.train_x.shape[-1])
    return Training(K, seed, recipe, build, seed)
