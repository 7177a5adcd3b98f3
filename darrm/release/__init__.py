"""From votes to private labels that are paid for: DaRRM, pluralities, and the majority of private classifiers."""

from darrm.release.debited import release_debited
from darrm.release.majority import DaRRM
from darrm.release.plurality import Plurality

__all__ = ["DaRRM", "Plurality", "release_debited"]
