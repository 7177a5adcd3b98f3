"""When a solve may stop, and its progress."""

from dataclasses import dataclass


@dataclass(frozen=True)
class SolveOptions:
    """How long a solve takes and how close it gets; no option changes a guarantee.

    A solve stops when ``value − bound`` is at most ``gap · |value|`` or ``floor`` (in units of the cost), after
    ``time_limit`` seconds, or after ``patience`` rounds in which neither moves by a tenth of the gap (twenty times as
    many, by a hundredth, while the gap exceeds a millionth of the value). A row without a multiplier for
    ``idle_rounds`` rounds is dropped once there are more than a hundred rows and more than ``rows_per_variable`` for
    each variable. `ValueError` for negative ``gap``, ``floor`` or ``time_limit``.
    """

    gap: float = 1e-9
    floor: float = 1e-13
    time_limit: float = float("inf")
    patience: int = 20
    idle_rounds: int = 4
    rows_per_variable: float = 0.7

    def __post_init__(self) -> None:
        for name in ("gap", "floor", "time_limit"):
            value = getattr(self, name)
            if not isinstance(value, int | float) or not value >= 0.0:
                raise ValueError(f"{name} must be a number of at least 0, got {value!r}")


@dataclass(frozen=True)
class Progress:
    """The state of a solve; ``value`` is of the best point so far, as far as it was checked."""

    rounds: int
    rows: int
    value: float
    bound: float
    seconds: float
