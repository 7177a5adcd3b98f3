"""Private majority votes: optimal noise, proven private, released exactly and accounted for.

The names below are loaded when they are first used, so that ``import darrm`` costs next to nothing.
"""

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # what `__getattr__` finds, for type checkers and editors
    from darrm.account.accountant import PrivacyAccountant
    from darrm.ledger.ledger import PrivacyLedger
    from darrm.majority.noise_function import NoiseFunction
    from darrm.optimize.optimizer import optimize_table
    from darrm.optimize.optimizer import optimize_table as optimize_gamma
    from darrm.plan.planner import plan
    from darrm.plan.release import release
    from darrm.privacy import PrivacyParams
    from darrm.problem import Problem, Voters, Workload
    from darrm.release.delivery import release_debited
    from darrm.release.one_by_one import open_release
    from darrm.subsampling import Subsampling
    from darrm.table.library import available_tables, load_table
    from darrm.table.release import Release
    from darrm.table.release import Release as DaRRM
    from darrm.table.table import Table, certify
    from darrm.votes import Votes

__all__ = [
    "DaRRM",
    "NoiseFunction",
    "PrivacyAccountant",
    "PrivacyLedger",
    "PrivacyParams",
    "Problem",
    "Release",
    "Subsampling",
    "Table",
    "Voters",
    "Votes",
    "Workload",
    "available_tables",
    "certify",
    "load_table",
    "open_release",
    "optimize_gamma",
    "optimize_table",
    "plan",
    "release",
    "release_debited",
]

_LOCATIONS = {  # name: module, and the name there if it is another
    "DaRRM": "darrm.table.release:Release",  # as the paper calls it
    "NoiseFunction": "darrm.majority.noise_function",
    "PrivacyAccountant": "darrm.account.accountant",
    "PrivacyLedger": "darrm.ledger.ledger",
    "PrivacyParams": "darrm.privacy",
    "Problem": "darrm.problem",
    "Release": "darrm.table.release",
    "Subsampling": "darrm.subsampling",
    "Table": "darrm.table.table",
    "Voters": "darrm.problem",
    "Votes": "darrm.votes",
    "Workload": "darrm.problem",
    "available_tables": "darrm.table.library",
    "certify": "darrm.table.table",
    "load_table": "darrm.table.library",
    "open_release": "darrm.release.one_by_one",
    "optimize_gamma": "darrm.optimize.optimizer:optimize_table",
    "optimize_table": "darrm.optimize.optimizer",
    "plan": "darrm.plan.planner",
    "release": "darrm.plan.release",
    "release_debited": "darrm.release.delivery",
}


class _Callable(ModuleType):
    """A package that is also called, as the function of its name: `darrm.plan` and `darrm.release`."""

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:  # noqa: ANN401 (as the function takes them)
        return _load(self.__name__.removeprefix("darrm."))(*arguments, **keywords)


class _Face(ModuleType):
    """Makes a package callable when Python binds it to its name here."""

    def __setattr__(self, name: str, value: object) -> None:
        if name in _LOCATIONS and isinstance(value, ModuleType):
            value.__class__ = _Callable
        super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Face


def __getattr__(name: str) -> Any:  # noqa: ANN401 (any of the names above)
    if name == "__version__":
        return import_module("importlib.metadata").version("darrm")
    if name not in _LOCATIONS:
        raise AttributeError(f"module 'darrm' has no attribute {name!r}", name=name, obj=sys.modules[__name__])
    return import_module(f"darrm.{name}") if name in {"plan", "release"} else _load(name)


def _load(name: str) -> Any:  # noqa: ANN401 (as above)
    module, _, original = _LOCATIONS[name].partition(":")
    return getattr(import_module(module), original or name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__, "__version__"])
