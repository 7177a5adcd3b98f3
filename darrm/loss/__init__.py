"""The cost of a query and its composition: Rényi curves, privacy profiles, loss distributions, bounds."""

from darrm.loss.composition import compose_general, compose_optimal, compose_simple
from darrm.loss.privacy_cost import PrivacyCost
from darrm.loss.profile import PrivacyProfile
from darrm.loss.renyi import RenyiCurve

__all__ = ["PrivacyCost", "PrivacyProfile", "RenyiCurve", "compose_general", "compose_optimal", "compose_simple"]
