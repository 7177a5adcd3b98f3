"""Which aggregator: every option at one budget, ranked."""

from darrm.advise.advice import Advice, advise
from darrm.advise.other_way import affordable
from darrm.advise.sweep import Sweep, sweep

__all__ = ["Advice", "Sweep", "advise", "affordable", "sweep"]
