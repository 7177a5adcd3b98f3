"""Accounting: what queries cost together, by every bound that applies, and a ledger that survives a crash."""
