"""Private teachers and students: disjoint shards, DP-SGD, votes of teachers, and a student trained on released labels.

Only this package imports torch.
"""

try:
    from darrm.training.calibration import calibrate_noise, calibrate_sampling, compute_privacy
    from darrm.training.network import convolutional_network, student_network
    from darrm.training.recipes import PlainSGD, PrivateSGD
    from darrm.training.student import FIXMATCH, Perturbation, StudentRecipe, train_student
    from darrm.training.teachers import (
        SEED_CONSENT,
        Partition,
        PredictableNoiseWarning,
        TeacherEnsemble,
        load_votes,
        majority,
        save_votes,
        train_teachers,
    )
except ModuleNotFoundError as error:
    error.add_note("darrm.training needs PyTorch: pip install 'darrm[ensemble]'")
    raise

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
    "compute_privacy",
    "convolutional_network",
    "load_votes",
    "majority",
    "save_votes",
    "student_network",
    "train_student",
    "train_teachers",
]
