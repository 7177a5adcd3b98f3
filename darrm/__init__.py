"""Private majority votes: optimal noise, proven private, released exactly and accounted for.

The names below are loaded when they are first used, so that ``import darrm`` costs next to nothing.
"""

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # what `__getattr__` finds, for type checkers and editors
    from darrm.account.accountant import PrivacyAccountant
    from darrm.account.ledger import PrivacyLedger
    from darrm.laws.noise_function import NoiseFunction
    from darrm.losses.charges import Charge
    from darrm.mechanisms.release import Release
    from darrm.mechanisms.release import Release as DaRRM
    from darrm.mechanisms.release import Release as Plurality
    from darrm.optimize import SolveOptions
    from darrm.optimize.batch import optimize_many
    from darrm.optimize.optimizer import optimize_table
    from darrm.optimize.optimizer import optimize_table as optimize_gamma
    from darrm.optimize.plurality import optimize_plurality
    from darrm.privacy import PrivacyParams
    from darrm.problem import Problem, Voters, Workload
    from darrm.problem import Problem as MajorityProblem
    from darrm.problem import Problem as PluralityProblem
    from darrm.proof.library import Setting, available_tables, load_table
    from darrm.proof.table import Table, certify
    from darrm.proof.table import Table as GammaTable
    from darrm.proof.table import Table as PluralityTable
    from darrm.proof.table import certify as certify_plurality
    from darrm.release.debited import release_debited
    from darrm.release.one_by_one import open_release
    from darrm.sampling import Sampling
    from darrm.votes import Votes

__all__ = [
    "Charge",
    "DaRRM",
    "GammaTable",
    "MajorityProblem",
    "NoiseFunction",
    "Plurality",
    "PluralityProblem",
    "PluralityTable",
    "PrivacyAccountant",
    "PrivacyLedger",
    "PrivacyParams",
    "Problem",
    "Release",
    "Sampling",
    "Setting",
    "SolveOptions",
    "Table",
    "Voters",
    "Votes",
    "Workload",
    "available_tables",
    "certify",
    "certify_plurality",
    "load_table",
    "open_release",
    "optimize_gamma",
    "optimize_many",
    "optimize_plurality",
    "optimize_table",
    "release_debited",
]

_HOMES = {
    "darrm.account.accountant": ("PrivacyAccountant",),
    "darrm.account.ledger": ("PrivacyLedger",),
    "darrm.laws.noise_function": ("NoiseFunction",),
    "darrm.losses.charges": ("Charge",),
    "darrm.optimize.batch": ("optimize_many",),
    "darrm.optimize.optimizer": ("optimize_table",),
    "darrm.optimize.plurality": ("optimize_plurality",),
    "darrm.privacy": ("PrivacyParams",),
    "darrm.problem": ("Problem", "Voters", "Workload"),
    "darrm.proof.library": ("Setting", "available_tables", "load_table"),
    "darrm.proof.table": ("Table", "certify"),
    "darrm.sampling": ("Sampling",),
    "darrm.release.debited": ("release_debited",),
    "darrm.mechanisms.release": ("Release",),
    "darrm.release.one_by_one": ("open_release",),
    "darrm.votes": ("Votes",),
    "darrm.optimize": ("SolveOptions",),
}
# what readers of the DaRRM paper type, and names of earlier versions: one line each, and nothing inside uses them
_ALSO_CALLED = {
    "DaRRM": "Release",
    "GammaTable": "Table",
    "MajorityProblem": "Problem",
    "Plurality": "Release",
    "PluralityProblem": "Problem",
    "PluralityTable": "Table",
    "certify_plurality": "certify",
    "optimize_gamma": "optimize_table",
}


def _in_a_line(kind: type[BaseException], error: BaseException, trace: Any) -> None:  # noqa: ANN401 (a hook's own type)
    """Report an interrupt of the imports, before there is a command to report it, in one line."""
    if issubclass(kind, KeyboardInterrupt | MemoryError):
        sys.stderr.write("error: interrupted\n" if kind is KeyboardInterrupt else "error: out of memory\n")
    else:
        sys.__excepthook__(kind, error, trace)


if sys.argv[:1] == ["-m"]:  # python -m darrm.plan: so much of the command line stands here while its imports run
    sys.excepthook = _in_a_line


def __getattr__(name: str) -> Any:  # noqa: ANN401 (any of the names above)
    if name == "__version__":
        return import_module("importlib.metadata").version("darrm")  # too slow for whoever imports all the names above
    home = _ALSO_CALLED.get(name, name)
    for module, names in _HOMES.items():
        if home in names:
            return getattr(import_module(module), home)
    raise AttributeError(f"module 'darrm' has no attribute {name!r}", name=name, obj=sys.modules[__name__])


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__, "__version__"])
