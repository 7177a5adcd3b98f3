"""Accounting: what queries cost together, by every bound that applies, and a ledger that survives a crash."""

from darrm.account.accountant import PrivacyAccountant, Spent
from darrm.account.head import Head
from darrm.account.ledger import PrivacyLedger

__all__ = ["Head", "PrivacyAccountant", "PrivacyLedger", "Spent"]
