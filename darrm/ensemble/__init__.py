"""Private teachers (disjoint shards, DP-SGD, votes, the student), prompts with fresh examples, votes for a next word.

The only folder that imports torch; names are loaded when first used. `FreshPrompts` and `coordinated` need no torch.

>>> from darrm.ensemble import FreshPrompts, Partition, PrivateSGD, train_teachers
"""

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # what `__getattr__` finds, for type checkers and editors
    from darrm.ensemble.calibration import calibrate_noise, calibrate_sampling, privacy_of
    from darrm.ensemble.coordination import coordinated
    from darrm.ensemble.fresh_prompts import FreshPrompts
    from darrm.ensemble.network import convolutional_network, student_network
    from darrm.ensemble.partition import Partition
    from darrm.ensemble.recipes import PlainSGD, PrivateSGD
    from darrm.ensemble.student import FIXMATCH, Perturbation, StudentRecipe, train_student
    from darrm.ensemble.teachers import (
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
    "FreshPrompts",
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
    "coordinated",
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
    "coordination": ("coordinated",),
    "fresh_prompts": ("FreshPrompts",),
    "network": ("convolutional_network", "student_network"),
    "partition": ("Partition",),
    "recipes": ("PlainSGD", "PrivateSGD"),
    "student": ("FIXMATCH", "Perturbation", "StudentRecipe", "train_student"),
}


def __getattr__(name: str) -> Any:  # noqa: ANN401 (any of the names above)
    if name not in __all__:
        raise AttributeError(f"module 'darrm.ensemble' has no attribute {name!r}", name=name, obj=sys.modules[__name__])
    home = next((module for module, names in _HOMES.items() if name in names), "teachers")
    try:
        return getattr(import_module(f"darrm.ensemble.{home}"), name)
    except ModuleNotFoundError as error:
        error.add_note("darrm.ensemble needs PyTorch: pip install 'darrm[ensemble]'")
        raise


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
