"""Which aggregator: every option at one budget, ranked."""

from darrm.advise.advice import Advice, advise
from darrm.advise.other_way import affordable

__all__ = ["Advice", "advise", "affordable"]
