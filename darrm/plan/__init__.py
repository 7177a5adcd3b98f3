"""Plans for many queries: which release stays within a total budget and tells the truth most often."""

from darrm.plan.option import ReleaseOption
from darrm.plan.search import Plan, plan
from darrm.problem import Workload

__all__ = ["Plan", "ReleaseOption", "Workload", "plan"]
