"""Aggregators: from the votes of one query to one private label."""

from darrm.aggregators.analysis import Analysis, analyze
from darrm.aggregators.confident import ConfidentGNMax
from darrm.aggregators.debited import release_debited
from darrm.aggregators.gnss import GnssParameters, rules_of_thumb
from darrm.aggregators.interactive import InteractiveGNMax
from darrm.aggregators.majority import DaRRM, RandomizedResponseMajority, SubsamplingMajority
from darrm.aggregators.noisy_max import GNMax, LNMax
from darrm.aggregators.publication import sanitize
from darrm.aggregators.vote_counts import counts_from_labels

__all__ = [
    "Analysis",
    "ConfidentGNMax",
    "DaRRM",
    "GNMax",
    "GnssParameters",
    "InteractiveGNMax",
    "LNMax",
    "RandomizedResponseMajority",
    "SubsamplingMajority",
    "analyze",
    "counts_from_labels",
    "release_debited",
    "rules_of_thumb",
    "sanitize",
]
