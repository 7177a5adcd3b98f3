"""The errors that a caller may want to catch; each carries the objects that explain it.

Every argument outside its documented range raises `ValueError` from `darrm.util.checks` instead.
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
        """Pickle and copy all attributes: `Exception` would call the class with the message alone."""
        return copyreg.__newobj__, (type(self), *self.args), self.__dict__  # type: ignore[attr-defined]


class TableError(DarrmError):
    """A stored table is invalid; ``field`` is the wrong field of the file, such as ``"gamma"`` or ``"version"``."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(f"{field}: {message[:1000]}")  # values of a file may be long
        self.field = field


class CheckpointError(DarrmError, ValueError):
    """The file of teachers at ``path`` is damaged, or belongs to another training or another network."""

    def __init__(self, path: str, message: str) -> None:
        super().__init__(f"{path!r}: {message}")
        self.path = path


class CertificationError(DarrmError):
    """A noise function does not satisfy the privacy condition, and scaling was not requested.

    ``worst_cost`` bounds the largest privacy cost over all corners from above, ``budget`` the allowed cost from below.
    """

    def __init__(self, message: str, *, worst_cost: float, budget: float) -> None:
        super().__init__(message)
        self.worst_cost = worst_cost
        self.budget = budget


class SolveError(DarrmError):
    """A linear program could not be solved; ``status`` is the solver's reason."""

    def __init__(self, message: str, *, status: str) -> None:
        super().__init__(message)
        self.status = status


class PlanError(DarrmError):
    """No release within a budget was found."""


class SamplingError(DarrmError):
    """A black box failed on sampled data, draw ``index`` of a run with ``seed``; the draw can be replayed."""

    def __init__(self, reason: str, *, seed: int, index: int) -> None:
        super().__init__(
            f"draw {index} of seed {seed}: {reason} (replay(records, seed={seed}, index={index}) gives its data)"
        )
        self.reason = reason
        self.seed = seed
        self.index = index


class BudgetExceededError(DarrmError):
    """A cost would exceed the budget; nothing was debited.

    ``requested`` and ``remaining`` are texts; ``queries_that_fit`` is the number of requested queries that still fit.
    """

    def __init__(self, message: str, *, requested: str, remaining: str, queries_that_fit: int) -> None:
        super().__init__(message)
        self.requested = requested
        self.remaining = remaining
        self.queries_that_fit = queries_that_fit


class LedgerError(DarrmError):
    """The privacy ledger at ``path`` cannot be read or written; the call debited nothing."""

    def __init__(self, path: str, message: str) -> None:
        super().__init__(f"ledger {path!r}: {message}")
        self.path = path


class DeliveryError(DarrmError):
    """An error or interrupt after the debit: the budget is spent, and the message names the place of the labels.

    It also replaces `KeyboardInterrupt`, which would hide the spent budget. ``path`` is the ledger's file, ``entry``
    the number of the ledger's entry that keeps the labels, or None.
    """

    def __init__(self, path: str, message: str, *, entry: int | None = None) -> None:
        super().__init__(message)
        self.path = path
        self.entry = entry


class PrivateFigureError(DarrmError):
    """A data-dependent cost, itself private, would have entered a published total; ``what`` names the cost."""

    def __init__(self, what: str, message: str) -> None:
        super().__init__(f"{what}: {message}")
        self.what = what
