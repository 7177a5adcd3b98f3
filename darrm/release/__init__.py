"""Release private labels for votes and debit their cost."""

import sys
from importlib import import_module
from typing import TYPE_CHECKING

from darrm.release.delivery import release_debited
from darrm.release.one_by_one import AnswerStream, open_release
from darrm.table.release import Release

if TYPE_CHECKING:  # for type checkers and editors
    from darrm.release.partitions import release_partitions

DaRRM = Release  # the paper's name for two classes

__all__ = ["AnswerStream", "DaRRM", "Release", "open_release", "release_debited", "release_partitions"]


def __getattr__(name: str) -> object:
    if name == "release_partitions":  # imported late: its module imports all mechanisms
        return getattr(import_module("darrm.release.partitions"), name)
    raise AttributeError(f"module 'darrm.release' has no attribute {name!r}", name=name, obj=sys.modules[__name__])


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
