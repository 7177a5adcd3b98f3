"""Private teachers: disjoint shards, DP-SGD, calibration, votes, and the student. The only folder that imports torch.

>>> from darrm.ensemble import Partition, PrivateSGD, train_teachers
"""

try:
    from darrm.ensemble.calibration import calibrate_noise, calibrate_sampling, privacy_of
    from darrm.ensemble.network import convolutional_network, student_network
    from darrm.ensemble.partition import Partition
    from darrm.ensemble.recipes import PlainSGD, PrivateSGD
    from darrm.ensemble.student import Perturbation, StudentRecipe, train_student
    from darrm.ensemble.teachers import (
        SEED_CONSENT,
        PredictableNoiseWarning,
        TeacherEnsemble,
        load_votes,
        majority,
        save_votes,
        train_teachers,
    )
except ModuleNotFoundError as error:
    error.add_note("darrm.ensemble needs PyTorch: pip install 'darrm[ensemble]'")
    raise

__all__ = [
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
