"""From votes to private labels that are paid for."""

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

from darrm.mechanisms.release import Release
from darrm.release.debited import release_debited
from darrm.release.one_by_one import OneByOne, open_release

if TYPE_CHECKING:  # what `__getattr__` finds, for type checkers and editors
    from darrm.release.partitions import recover_partitions, release_partitions

DaRRM = Release  # its name for two classes

__all__ = [
    "DaRRM",
    "OneByOne",
    "Release",
    "open_release",
    "recover_partitions",
    "release_debited",
    "release_partitions",
]


def __getattr__(name: str) -> Any:  # noqa: ANN401 (either of two functions)
    if name in {"recover_partitions", "release_partitions"}:  # whose module reads files of all mechanisms
        return getattr(import_module("darrm.release.partitions"), name)
    raise AttributeError(f"module 'darrm.release' has no attribute {name!r}", name=name, obj=sys.modules[__name__])


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
