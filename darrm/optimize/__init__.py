"""Optimize noise functions and pluralities, under (ε, δ) or a Rényi budget, and compare them with simpler rules."""

from darrm.optimize.optimizer import optimize_many, optimize_table
from darrm.optimize.plurality import optimize_plurality
from lp_models.options import SolveOptions

optimize_gamma = optimize_table  # the name that readers of the paper expect

__all__ = ["SolveOptions", "optimize_gamma", "optimize_many", "optimize_plurality", "optimize_table"]
