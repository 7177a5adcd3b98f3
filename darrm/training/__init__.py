"""Private teachers and students: disjoint shards, DP-SGD, votes of teachers, and a student trained on released labels.

Only this package imports torch. Names load on first use.

>>> from darrm.training import Partition, PrivateSGD, train_teachers
"""

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # names from `__getattr__`, for type checkers and editors
    from darrm.training.calibration import calibrate_noise, calibrate_sampling, privacy_of
    from darrm.training.network import convolutional_network, student_network
    from darrm.training.partition import Partition
    from darrm.training.recipes import PlainSGD, PrivateSGD
    from darrm.training.student import FIXMATCH, Perturbation, StudentRecipe, train_student
    from darrm.training.teachers import (
        SEED_CONSENT,
        PredictableNoiseWarning,
        TeacherEnsemble,
        load_votes,
        majority,
        save_votes,
        train_teachers,
    )

__all__ = [
    "FIXMATCH",
    "SEED_CONSENT",
    "Partition",
    "Perturbation",
    "PlainSGD",
    "PredictableNoiseWarning",
    "PrivateSGD",
    "StudentRecipe",
    "TeacherEnsemble",
    "calibrate_noise",
    "calibrate_sampling",
    "convolutional_network",
    "load_votes",
    "majority",
    "privacy_of",
    "save_votes",
    "student_network",
    "train_student",
    "train_teachers",
]

_HOMES = {
    "calibration": ("calibrate_noise", "calibrate_sampling", "privacy_of"),
    "network": ("convolutional_network", "student_network"),
    "partition": ("Partition",),
    "recipes": ("PlainSGD", "PrivateSGD"),
    "student": ("FIXMATCH", "Perturbation", "StudentRecipe", "train_student"),
}


def __getattr__(name: str) -> Any:  # noqa: ANN401 (any of the names above)
    if name not in __all__:
        raise AttributeError(f"module 'darrm.training' has no attribute {name!r}", name=name, obj=sys.modules[__name__])
    home = next((module for module, names in _HOMES.items() if name in names), "teachers")
    try:
        return getattr(import_module(f"darrm.training.{home}"), name)
    except ModuleNotFoundError as error:
        error.add_note("darrm.training needs PyTorch: pip install 'darrm[ensemble]'")
        raise


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
