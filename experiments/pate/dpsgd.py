"""The outsider: one network trained by DP-SGD on all private images, at the (ε, δ) that the votes may cost.

`experiments.pate.linear_dpsgd` has the field's better one.

No pool, no teachers, no student: the teachers' network and [ACG16, Algorithm 1], its noise fitted to the budget. The
settings below are the best that were tried, by the accuracy on the pool with its true classes, which the students never
see and whose use costs the outsider nothing: a choice in its favor. Tried were, on MNIST at ε = 2, rates of 0.5 to 8
for 3 epochs and 4 for 15; on the digits at ε = 8, rates of 0.25 to 2. Fashion-MNIST takes MNIST's. The held-out images
decided nothing.
"""

from dataclasses import dataclass, replace

import numpy as np

from darrm.privacy import PrivacyParams
from darrm.training.calibration import calibrate_noise, privacy_of
from darrm.training.recipes import PrivateSGD
from experiments.pages import Row
from experiments.pate.ensembles import PARTITION_SEED, QUICK, SEED, network_for, split
from experiments.pate.settings import Study
from experiments.teachers import Machine, Training, obtain_labels


@dataclass(frozen=True)
class Setting:
    """How DP-SGD trains, apart from its noise; with at most 800 records a batch, sums are exact enough to clip."""

    learning_rate: float
    batch: int  # expected
    epochs: int
    clip: float = 1.0


SETTINGS = {
    "digits": Setting(2.0, 128, 30),
    "mnist": Setting(8.0, 512, 3),
    "fashion-mnist": Setting(8.0, 512, 3),
}


def dpsgd_accuracy(study: Study, budget: PrivacyParams, machine: Machine, *, quick: bool) -> Row:
    """Train at (ε, δ) on all private images, or read what that training answered; measure it on the held-out images.

    A training that was killed continues where it was. ``quick`` trains for fewer epochs. Noted is the accuracy on the
    held-out images and on the pool, by which rates are chosen, ε and δ as spent, the recipe, and how long it took.
    """
    data, test_x, test_y = split(study)
    setting = SETTINGS[study.name]
    epochs = max(1, setting.epochs // QUICK) if quick else setting.epochs
    recipe = fitted(replace(setting, epochs=epochs), len(data.train_y), budget)
    spent = privacy_of(recipe, budget.delta)
    asked = replace(data, test_x=np.concatenate([data.test_x, test_x]), test_y=np.concatenate([data.test_y, test_y]))
    training = Training(1, PARTITION_SEED, recipe, network_for(study), SEED)
    labels, seconds = obtain_labels(asked, training, replace(machine, jobs=1))
    right = labels[:, 0] == asked.test_y
    return {
        "accuracy": float(right[study.pool :].mean()),
        "pool_accuracy": float(right[: study.pool].mean()),
        "epsilon": spent.epsilon,
        "delta": spent.delta,
        "training": recipe.to_dict(),
        "seconds": seconds,
    }


def fitted(setting: Setting, size: int, budget: PrivacyParams) -> PrivateSGD:
    """Fit the noise of a setting on so many images to a budget."""
    rate, steps = setting.batch / size, setting.epochs * size // setting.batch
    return PrivateSGD(
        learning_rate=setting.learning_rate,
        steps=steps,
        sampling_rate=rate,
        noise=calibrate_noise(budget, sampling_rate=rate, steps=steps).value,
        clip=setting.clip,
    )
