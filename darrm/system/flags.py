"""Numbers as the command lines write them, each refused in one line that names its flag."""

from __future__ import annotations

import math

from darrm import checks
from darrm.privacy import PrivacyParams


def integer(flag: str, text: str, least: int) -> int:
    """Read an integer; its range is checked where it is used.

    Examples
    --------
    >>> integer("--K", "11", 1)
    11
    """
    try:
        return int(text)
    except ValueError:
        return checks.fail(flag, text, f"an integer of at least {least}")


def real(flag: str, text: str) -> float:
    """Read a number of at least 0, infinity included.

    Examples
    --------
    >>> real("--gap", "1e-9"), real("--time-limit", "inf")
    (1e-09, inf)
    """
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not value >= 0.0:
        checks.fail(flag, text, "a number of at least 0")
    return value


def privacy_pair(flag: str, text: str | None, example: str = "2,1e-5") -> PrivacyParams:
    """Read ``EPS,DELTA``, exactly as it is typed.

    Examples
    --------
    >>> privacy_pair("--total", "2, 1e-5")
    PrivacyParams(epsilon=2, delta=0.00001)
    """
    parts = [] if text is None else text.split(",")
    if len(parts) != 2:
        checks.fail(flag, text, f"EPS,DELTA, like {example}")
    return PrivacyParams(parts[0].strip(), parts[1].strip())
