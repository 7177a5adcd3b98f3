"""Ledgers: a privacy budget with the log of its debits, which survive a crash."""

from darrm.ledger.chain import LedgerDigest
from darrm.ledger.ledger import PrivacyLedger

__all__ = ["LedgerDigest", "PrivacyLedger"]
