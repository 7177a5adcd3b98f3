"""Plans for many queries: the most accurate release within a total budget."""

from darrm.plan.calibration import CalibratedMechanism, calibrate
from darrm.plan.mechanism import Mechanism, Proposal, Search
from darrm.plan.mechanisms import MECHANISMS, TESTED, largest, mechanism_of, named
from darrm.plan.planner import affordable, plan, sweep
from darrm.plan.report import Plan, Sweep
from darrm.plan.tables import TableProposal
from darrm.problem import Workload

__all__ = [
    "MECHANISMS",
    "TESTED",
    "CalibratedMechanism",
    "Mechanism",
    "Plan",
    "Proposal",
    "Search",
    "Sweep",
    "TableProposal",
    "Workload",
    "affordable",
    "calibrate",
    "largest",
    "mechanism_of",
    "named",
    "plan",
    "sweep",
]
