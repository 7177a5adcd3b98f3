"""From votes to private labels that are paid for."""

from darrm.mechanisms.release import Release
from darrm.release.debited import release_debited
from darrm.release.one_by_one import OneByOne, open_release
from darrm.release.partitions import recover_partitions, release_partitions

DaRRM = Release  # its name for two classes

__all__ = [
    "DaRRM",
    "OneByOne",
    "Release",
    "open_release",
    "recover_partitions",
    "release_debited",
    "release_partitions",
]
