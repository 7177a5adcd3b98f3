"""Plans for many queries: which release stays within a total budget and tells the truth most often."""

from darrm.plan.families import FAMILIES
from darrm.plan.family import Family, Search, calibrate
from darrm.plan.option import Option
from darrm.plan.own import family_of, largest
from darrm.plan.parameter import Parameter, Proposal
from darrm.plan.search import Plan, plan
from darrm.problem import Workload

ReleaseOption = Option  # its name before version 0.2

__all__ = [
    "FAMILIES",
    "Family",
    "Option",
    "Parameter",
    "Plan",
    "Proposal",
    "Search",
    "Workload",
    "calibrate",
    "family_of",
    "largest",
    "plan",
]
