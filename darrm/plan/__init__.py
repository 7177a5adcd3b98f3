"""Plans for many queries: the most accurate release within a total budget."""

from darrm.plan.calibration import CalibratedMechanism, calibrate
from darrm.plan.mechanism import Mechanism, Proposal, Search
from darrm.plan.planner import MECHANISMS, TESTED, affordable, find_mechanism, plan, sweep
from darrm.plan.report import Plan, Sweep
from darrm.plan.tables import TableProposal, largest, make_mechanism
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
    "find_mechanism",
    "largest",
    "make_mechanism",
    "plan",
    "sweep",
]
