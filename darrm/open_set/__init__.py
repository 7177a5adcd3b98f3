"""Open-set answers: laws, rows and the optimum."""
