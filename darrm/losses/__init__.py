"""What a query costs and how costs add up: composition, Rényi curves, privacy profiles, loss distributions, charges."""

from darrm.losses.charges import Charge
from darrm.losses.composition import compose_general, compose_optimal, compose_simple
from darrm.losses.profile import PrivacyProfile
from darrm.losses.renyi import RenyiCurve

__all__ = [
    "Charge",
    "PrivacyProfile",
    "RenyiCurve",
    "amplification",
    "both_ends",
    "charges",
    "compose_general",
    "compose_optimal",
    "compose_simple",
    "composition",
    "gaussian",
    "grid_composition",
    "label",
    "label_given_votes",
    "missed_label",
    "profile",
    "renyi",
    "vanishing",
    "vote_counts",
]
