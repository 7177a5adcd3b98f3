"""An independent verifier of tables, mechanisms, plans, ledgers and labels: it imports nothing of the rest of darrm."""
