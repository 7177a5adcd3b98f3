"""Summaries of files: tables, plans, ledgers, receipts, votes."""
