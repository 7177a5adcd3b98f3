"""PATE [P]: noisy maxima, the confident and the interactive aggregator, data-dependent cost and its publication."""

from darrm.noisy_max.mechanisms import AsymmetricMax, GNMax, LNMax
from darrm.noisy_max.noisy_maximum import NoisyMaximum
from darrm.noisy_max.selection import ExponentialMechanism, PermuteAndFlip
from darrm.pate.analysis import Analysis, analyze
from darrm.pate.confident import ConfidentGNMax, InteractiveGNMax
from darrm.pate.gnss import GnssParameters, rules_of_thumb
from darrm.pate.publication import sanitize
from darrm.pate.vote_scale import PublicationParameters, publication_rule

__all__ = [
    "Analysis",
    "AsymmetricMax",
    "ConfidentGNMax",
    "ExponentialMechanism",
    "GNMax",
    "GnssParameters",
    "InteractiveGNMax",
    "LNMax",
    "NoisyMaximum",
    "PermuteAndFlip",
    "PublicationParameters",
    "analyze",
    "publication_rule",
    "rules_of_thumb",
    "sanitize",
]
