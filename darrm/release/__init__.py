"""Release private labels for votes and debit their cost."""

from darrm.release.delivery import release_debited
from darrm.release.one_by_one import AnswerStream, open_release
from darrm.release.partitions import release_partitions
from darrm.table.release import Release

DaRRM = Release  # the paper's name for two classes

__all__ = ["AnswerStream", "DaRRM", "Release", "open_release", "release_debited", "release_partitions"]
