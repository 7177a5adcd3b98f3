"""Accounting: what queries cost together, by every bound that applies, and a ledger that survives a crash."""

from darrm.accounting.accountant import PrivacyAccountant, Spent, Voters
from darrm.accounting.charges import Charge
from darrm.accounting.composition import compose_general, compose_optimal, compose_simple
from darrm.accounting.ledger import PrivacyLedger
from darrm.accounting.privacy_profile import PrivacyProfile
from darrm.accounting.renyi import RenyiCurve

__all__ = [
    "Charge",
    "PrivacyAccountant",
    "PrivacyLedger",
    "PrivacyProfile",
    "RenyiCurve",
    "Spent",
    "Voters",
    "compose_general",
    "compose_optimal",
    "compose_simple",
]
