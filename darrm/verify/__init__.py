"""What an auditor runs: a table, a ledger and labels, judged claim by claim."""

__all__ = [
    "attack",
]
