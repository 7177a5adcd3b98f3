"""Which aggregator: every option at one budget, ranked."""

from darrm.advise.advice import Advice, advise
from darrm.advise.contenders import CONTENDERS, Contender

__all__ = ["CONTENDERS", "Advice", "Contender", "advise"]
