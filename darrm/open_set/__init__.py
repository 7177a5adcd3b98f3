"""Open-set answers: laws, rows, the optimum, and lines of counts."""
