"""Plans for many queries: which release stays within a total budget and tells the truth most often."""

from darrm.planning.many_queries import Plan, plan
from darrm.planning.option import ReleaseOption
from darrm.planning.workload import Workload

__all__ = ["Plan", "ReleaseOption", "Workload", "plan"]
