"""Which γ is best: the optimizer, closed forms, a Rényi budget instead of (ε, δ), and the comparison."""

from darrm.optimize.optimizer import optimize_gamma

__all__ = ["optimize_gamma"]
