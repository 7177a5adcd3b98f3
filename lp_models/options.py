"""When a solve may stop, and its progress. Nothing here changes a guarantee."""

from dataclasses import dataclass


@dataclass(frozen=True)
class SolveOptions:
    """What changes how long a solve takes and how close it gets, but never a guarantee.

    Parameters
    ----------
    gap
        Stop when ``value − bound ≤ gap · |value|``, or ≤ `floor`.
    floor
        Absolute gap, in units of the cost, that always counts as closed.
    time_limit
        Seconds, or infinity.
    patience
        Stop after this many rounds without a move of value or bound by a tenth of the gap: the rest is below the
        solver's precision. While the gap is wider than a millionth of the value: twenty times as many rounds, and a
        hundredth of the gap.
    idle_rounds
        A row without a multiplier for this many rounds is dropped once there are more rows than
        ``rows_per_variable`` · n, and more than a hundred.
    rows_per_variable
        See `idle_rounds`.
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
    """The state of a solve, for progress lines; ``value`` is of the best point so far, as far as it was checked."""

    rounds: int
    rows: int
    value: float
    bound: float
    seconds: float
