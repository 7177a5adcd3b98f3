"""From votes to private labels that are paid for: DaRRM, and the majority of private classifiers."""

from darrm.release.debited import release_debited
from darrm.release.majority import DaRRM

__all__ = ["DaRRM", "release_debited"]
