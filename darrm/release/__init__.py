"""From votes to private labels that are paid for: DaRRM, pluralities, and the majority of private classifiers."""

from darrm.release.debited import release_debited
from darrm.release.majority import DaRRM
from darrm.release.one_by_one import OneByOne, open_release
from darrm.release.partitions import recover_partitions, release_partitions
from darrm.release.plurality import Plurality

__all__ = [
    "DaRRM",
    "OneByOne",
    "Plurality",
    "open_release",
    "recover_partitions",
    "release_debited",
    "release_partitions",
]
