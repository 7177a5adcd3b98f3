"""Which aggregator: every option at one budget, ranked."""

from darrm.advise.advice import Advice, advise

__all__ = ["Advice", "advise"]
