"""The linear programs of [D] and of laws on histograms as data, with their solution.

This package knows which programs the paper states, and nothing of proofs, votes or releases. `gamma_program` is the
paper's program with all its rows.
"""

from lp_models.reference import GammaProgram, gamma_program

__all__ = ["GammaProgram", "gamma_program"]
