"""From votes to private labels that are paid for: DaRRM, subsampling, and the majority of private classifiers."""

from darrm.release.debited import release_debited
from darrm.release.majority import DaRRM, RandomizedResponseMajority, SubsamplingMajority

__all__ = ["DaRRM", "RandomizedResponseMajority", "SubsamplingMajority", "release_debited"]
