"""What text reports share."""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray


def spread(count: int, most: int) -> list[int]:
    """Choose at most so many of the places 0 … count − 1 to show, evenly, the first and the last among them.

    >>> spread(5, 8), spread(100, 4)
    ([0, 1, 2, 3, 4], [0, 33, 66, 99])
    """
    if count <= most:
        return list(range(count))
    return sorted({round(place * (count - 1) / (most - 1)) for place in range(most)})


def absences(absent: Sequence[tuple[str, str]], *, everything: bool) -> list[str]:
    """Write why what is absent from a table does not apply, line by line; unless asked for, how many there are.

    >>> absences([("LNMax", "delta is 0"), ("GNMax", "delta is 0")], everything=False)
    ['  2 more do not apply: --all says why']
    """
    if everything or not absent:
        return [f"  {name} does not apply: {reason}" for name, reason in absent]
    return [f"  {len(absent)} more {'does' if len(absent) == 1 else 'do'} not apply: --all says why"]


def level_table(
    levels: NDArray[np.int64], columns: Mapping[str, NDArray[np.float64]], *, width: int, most: int, elsewhere: str
) -> str:
    """Tabulate functions of l in at most so many lines; ``elsewhere`` names what shows all."""
    chosen = spread(len(levels), most)
    lines = [f"{'l':>8}" + "".join(f"{name:>{width}}" for name in columns)]
    lines += [f"{levels[i]:>8}" + "".join(f"{values[i]:>{width}.4f}" for values in columns.values()) for i in chosen]
    if len(chosen) < len(levels):
        lines.append(f"  ({len(chosen)} of {len(levels)} lines shown; {elsewhere} has all)")
    return "\n".join(lines)
