"""The linear programs of [D] and of laws on histograms as data, with their solution; nothing of proofs or releases."""

from lp_models.reference import GammaProgram, gamma_program

__all__ = ["GammaProgram", "gamma_program"]
