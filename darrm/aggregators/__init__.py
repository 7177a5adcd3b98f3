"""Aggregators: from the votes of one query to one private label."""

from darrm.aggregators.debited import release_debited
from darrm.aggregators.majority import DaRRM, RandomizedResponseMajority, SubsamplingMajority

__all__ = ["DaRRM", "RandomizedResponseMajority", "SubsamplingMajority", "release_debited"]
