"""Private majority votes: optimal noise, proven private, released exactly and accounted for."""

from darrm.gamma.library import Setting, available_tables, load_table
from darrm.gamma.noise_function import NoiseFunction
from darrm.gamma.optimizer import optimize_gamma
from darrm.gamma.table import GammaTable, certify
from darrm.privacy import MajorityProblem, PrivacyParams
from lp_models.options import SolveOptions

__all__ = [
    "GammaTable",
    "MajorityProblem",
    "NoiseFunction",
    "PrivacyParams",
    "Setting",
    "SolveOptions",
    "available_tables",
    "certify",
    "load_table",
    "optimize_gamma",
]
