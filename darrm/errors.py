"""The errors that a caller may want to catch; each carries the objects that explain it.

Bad arguments raise `ValueError` from `darrm.util.checks` instead. That holds for every argument outside its documented
range, so "Raises" sections name only other causes.
"""

import copyreg

__all__ = [
    "BudgetExceededError",
    "CertificationError",
    "CheckpointError",
    "DarrmError",
    "DeliveryError",
    "LedgerError",
    "PlanError",
    "SamplingError",
    "SolveError",
    "TableError",
]


class DarrmError(Exception):
    """Base class of the project's own errors."""

    def __reduce__(self) -> tuple[object, ...]:
        """Cross into processes and copies as it is: `Exception` would call the class with the message alone."""
        return copyreg.__newobj__, (type(self), *self.args), self.__dict__  # type: ignore[attr-defined]


class TableError(DarrmError):
    """A stored table cannot be trusted.

    Attributes
    ----------
    field
        The field of the file that is wrong, such as ``"gamma"`` or ``"version"``.
    """

    def __init__(self, field: str, message: str) -> None:
        super().__init__(f"{field}: {message[:1000]}")  # values of a file may be long
        self.field = field


class CheckpointError(DarrmError, ValueError):
    """A file of teachers is damaged, or belongs to another training or another network.

    Attributes
    ----------
    path
        The file.
    """

    def __init__(self, path: str, message: str) -> None:
        super().__init__(f"{path!r}: {message}")
        self.path = path


class CertificationError(DarrmError):
    """A noise function does not satisfy the privacy condition and was not to be scaled.

    Attributes
    ----------
    worst_cost
        An upper bound on the largest privacy cost over all corners.
    budget
        A lower bound on the allowed cost.
    """

    def __init__(self, message: str, *, worst_cost: float, budget: float) -> None:
        super().__init__(message)
        self.worst_cost = worst_cost
        self.budget = budget


class SolveError(DarrmError):
    """A linear program could not be solved.

    Attributes
    ----------
    status
        The solver's own word for what happened.
    """

    def __init__(self, message: str, *, status: str) -> None:
        super().__init__(message)
        self.status = status


class PlanError(DarrmError):
    """No release within a budget was found."""


class SamplingError(DarrmError):
    """A black box failed on sampled data; the draw can be replayed.

    Attributes
    ----------
    seed
        Seed of the run.
    index
        Index of the draw within the run.
    """

    def __init__(self, reason: str, *, seed: int, index: int) -> None:
        super().__init__(
            f"draw {index} of seed {seed}: {reason} (replay(records, seed={seed}, index={index}) gives its data)"
        )
        self.reason = reason
        self.seed = seed
        self.index = index


class BudgetExceededError(DarrmError):
    """A charge would pass the budget; nothing was debited.

    Attributes
    ----------
    requested
        The requested queries, in words.
    remaining
        The remaining budget, in words.
    queries_that_fit
        How many of the queries that were asked for still fit.
    """

    def __init__(self, message: str, *, requested: str, remaining: str, queries_that_fit: int) -> None:
        super().__init__(message)
        self.requested = requested
        self.remaining = remaining
        self.queries_that_fit = queries_that_fit


class LedgerError(DarrmError):
    """A privacy ledger cannot be read or written; nothing was debited by the call that raised it.

    Attributes
    ----------
    path
        The ledger's file.
    """

    def __init__(self, path: str, message: str) -> None:
        super().__init__(f"ledger {path!r}: {message}")
        self.path = path


class DeliveryError(DarrmError):
    """An error or interrupt after the debit: the budget is spent, and the message names the place of the labels.

    It also replaces `KeyboardInterrupt`, which would hide the spent budget.

    Attributes
    ----------
    path
        The ledger's file.
    entry
        The number of the entry whose labels wait in the ledger, or None.
    """

    def __init__(self, path: str, message: str, *, entry: int | None = None) -> None:
        super().__init__(message)
        self.path = path
        self.entry = entry


class PrivateFigureError(DarrmError):
    """A data-dependent privacy cost, which is itself private data, was about to enter a published total.

    Attributes
    ----------
    what
        The charge, in words.
    """

    def __init__(self, what: str, message: str) -> None:
        super().__init__(f"{what}: {message}")
        self.what = what
