"""Accounting: the privacy loss of queries together, by every bound that applies."""

from darrm.account.accountant import PrivacyAccountant, Spent

__all__ = ["PrivacyAccountant", "Spent"]
