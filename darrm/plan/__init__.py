"""Plans for many queries: the most accurate release within a total budget."""

from darrm.plan.calibrated import CalibratedMechanism
from darrm.plan.calibration import calibrate
from darrm.plan.mechanism import Mechanism, Proposal, Search
from darrm.plan.mechanisms import MECHANISMS, TESTED, largest, mechanism_of, named
from darrm.plan.planner import plan
from darrm.plan.results import Plan, Sweep
from darrm.plan.tables import GammaProposal
from darrm.plan.variations import affordable, sweep
from darrm.problem import Workload

__all__ = [
    "MECHANISMS",
    "TESTED",
    "CalibratedMechanism",
    "GammaProposal",
    "Mechanism",
    "Plan",
    "Proposal",
    "Search",
    "Sweep",
    "Workload",
    "affordable",
    "calibrate",
    "largest",
    "mechanism_of",
    "named",
    "plan",
    "sweep",
]
