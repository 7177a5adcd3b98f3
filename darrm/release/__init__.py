"""From votes to private labels that are paid for."""

from darrm.mechanisms.majority import DaRRM
from darrm.mechanisms.plurality import Plurality
from darrm.release.debited import release_debited
from darrm.release.one_by_one import OneByOne, open_release
from darrm.release.partitions import recover_partitions, release_partitions

__all__ = [
    "DaRRM",
    "OneByOne",
    "Plurality",
    "open_release",
    "recover_partitions",
    "release_debited",
    "release_partitions",
]
