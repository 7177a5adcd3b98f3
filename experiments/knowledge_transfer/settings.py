"""Settings of the paper's knowledge transfer [D, Section 6.2], its printed results, and our own choices.

The page shows the printed numbers next to ours; nothing else uses them.
"""

from dataclasses import dataclass
from functools import partial

from darrm.privacy import PrivacyParams
from darrm.training.calibration import calibrate_sampling
from darrm.training.network import convolutional_network
from darrm.training.recipes import PlainSGD, PrivateSGD, Recipe
from darrm.training.student import StudentRecipe
from experiments.composition_tables import EACH, QUERIES, K
from experiments.datasets import LabeledImages
from experiments.teachers import Training

NOISE = 12.0  # of DP-SGD, in units of the clipping threshold
CLIP = 1.0
EPOCHS = 5
ALLOWANCES = (1, 3, 5, 7)
PAPER_DRAWS = 10  # draws of the queries in the paper, from one training
DRAWS, TRAININGS = 100, 10  # ours
PRIOR = (0.5, 1.0)  # of p_i, uniform on this interval [D, Eq. 202]


@dataclass(frozen=True)
class Setup:
    """Settings of a data set; `experiments.knowledge_transfer.selection` selected the learning rates."""

    each: PrivacyParams  # guarantee of a private teacher; the sampling rate is calibrated to it
    private_rate: float  # of DP-SGD
    plain: PlainSGD  # for teachers without privacy
    noise: float = NOISE  # of DP-SGD
    epochs: int = EPOCHS
    queries: tuple[int, ...] = QUERIES  # numbers of released labels


def make_private_recipe(setup: Setup) -> PrivateSGD:
    calibration = calibrate_sampling(setup.each, noise=setup.noise, epochs=setup.epochs)
    return PrivateSGD(
        learning_rate=setup.private_rate,
        steps=int(calibration.settings["steps"]),
        sampling_rate=calibration.value,
        noise=setup.noise,
        clip=CLIP,
    )


def choose_training(data: LabeledImages, recipe: Recipe, seed: int) -> Training:
    """Return the training of K teachers; each seed has other random shards."""
    build = partial(convolutional_network, side=data.train_x.shape[-1])
    return Training(K, seed, recipe, build, seed)


SETUPS = {
    "mnist": Setup(EACH["mnist"], 0.05, PlainSGD(0.2, EPOCHS, 32)),
    "fashion-mnist": Setup(EACH["fashion-mnist"], 0.03, PlainSGD(0.1, EPOCHS, 64)),
    # a teacher has 26 images and cannot learn with the paper's budget: a larger one
    "digits": Setup(PrivacyParams(1.0, 1e-4), 0.07, PlainSGD(0.2, 10, 32), noise=3.0, queries=(10, 20, 30)),
}
PRIVATE_RATES = (0.02, 0.03, 0.05, 0.07, 0.1)  # of the selection
PLAIN_RATES, PLAIN_BATCHES = (0.05, 0.1, 0.2), (16, 32, 64)
STUDENT_RADII, STUDENT_WEIGHTS = (1.0, 2.0, 4.0), (0.0, 1.0, 4.0)
STUDENT = StudentRecipe(steps=250, learning_rate=1e-3, batch=64, radius=2.0, weight=4.0)

GNMAX, SUBSAMPLING, OPTIMAL = "GNMax", "gamma_Sub", "gamma_opt"
CONSTANT, FLAT = "gamma_const", "gamma_flat"  # p_const of the paper by the best composition; the best constant
GNMAX_TIGHT, PRIVATE_MAJORITY, PLAIN_MAJORITY = "GNMax, tight sigma", "private teachers", "non-private teachers"
PAPERS_AGGREGATORS = (GNMAX, SUBSAMPLING, OPTIMAL)
AGGREGATORS = (*PAPERS_AGGREGATORS, GNMAX_TIGHT, PRIVATE_MAJORITY, PLAIN_MAJORITY)

TABLE_OF = {1: "Table 6", 3: "Table 1", 5: "Table 8", 7: "Table 10"}
# printed accuracies: (data set, m, Q) -> (mean, standard deviation) of GNMax, gamma_Sub, gamma_opt
PRINTED_ACCURACY = {
    ("mnist", 1, 20): ((0.54, 0.11), (0.68, 0.07), (0.74, 0.08)),
    ("mnist", 1, 50): ((0.51, 0.07), (0.67, 0.05), (0.66, 0.05)),
    ("mnist", 1, 100): ((0.57, 0.03), (0.71, 0.03), (0.69, 0.04)),
    ("mnist", 3, 20): ((0.63, 0.09), (0.76, 0.09), (0.79, 0.09)),
    ("mnist", 3, 50): ((0.66, 0.06), (0.75, 0.06), (0.79, 0.05)),
    ("mnist", 3, 100): ((0.64, 0.04), (0.76, 0.04), (0.80, 0.04)),
    ("mnist", 5, 20): ((0.73, 0.11), (0.76, 0.09), (0.84, 0.07)),
    ("mnist", 5, 50): ((0.75, 0.07), (0.82, 0.04), (0.83, 0.04)),
    ("mnist", 5, 100): ((0.72, 0.04), (0.79, 0.05), (0.83, 0.03)),
    ("mnist", 7, 20): ((0.79, 0.07), (0.80, 0.09), (0.85, 0.08)),
    ("mnist", 7, 50): ((0.80, 0.05), (0.82, 0.05), (0.85, 0.04)),
    ("mnist", 7, 100): ((0.80, 0.04), (0.80, 0.04), (0.83, 0.03)),
    ("fashion-mnist", 1, 20): ((0.56, 0.10), (0.92, 0.05), (0.89, 0.06)),
    ("fashion-mnist", 1, 50): ((0.52, 0.05), (0.89, 0.04), (0.92, 0.03)),
    ("fashion-mnist", 1, 100): ((0.56, 0.04), (0.89, 0.04), (0.91, 0.04)),
    ("fashion-mnist", 3, 20): ((0.65, 0.11), (0.90, 0.07), (0.96, 0.03)),
    ("fashion-mnist", 3, 50): ((0.59, 0.06), (0.94, 0.03), (0.96, 0.02)),
    ("fashion-mnist", 3, 100): ((0.64, 0.04), (0.93, 0.02), (0.96, 0.02)),
    ("fashion-mnist", 5, 20): ((0.72, 0.10), (0.96, 0.04), (0.97, 0.04)),
    ("fashion-mnist", 5, 50): ((0.72, 0.08), (0.96, 0.02), (0.97, 0.02)),
    ("fashion-mnist", 5, 100): ((0.72, 0.06), (0.97, 0.01), (0.97, 0.01)),
    ("fashion-mnist", 7, 20): ((0.79, 0.07), (0.95, 0.04), (0.96, 0.04)),
    ("fashion-mnist", 7, 50): ((0.79, 0.05), (0.96, 0.03), (0.97, 0.03)),
    ("fashion-mnist", 7, 100): ((0.79, 0.03), (0.96, 0.02), (0.96, 0.02)),
}
