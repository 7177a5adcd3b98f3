"""What an auditor runs: a table, its ledger and its labels, looked at from outside."""
