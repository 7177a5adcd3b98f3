"""What is best: γ and pluralities, closed forms, a Rényi budget instead of (ε, δ), and the comparison."""

from darrm.optimize.batch import optimize_many
from darrm.optimize.optimizer import optimize_table
from darrm.optimize.plurality import optimize_plurality
from lp_models.options import SolveOptions

optimize_gamma = optimize_table  # as the paper's readers know it

__all__ = ["SolveOptions", "optimize_gamma", "optimize_many", "optimize_plurality", "optimize_table"]
