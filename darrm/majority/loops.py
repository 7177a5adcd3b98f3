"""The kernels of separation, in numpy or compiled by numba.

`darrm.majority.numpy_loops` needs numpy alone. `darrm.majority.compiled` holds the same kernels for numba (``pip
install 'darrm[compiled]'``), up to twenty times faster and 200 MB larger. Both make the same sums and products in the
same order. So results agree to the bit, apart from the sign of a zero, and one error bound holds for both.

Numba caches compiled code on disk, and loading it takes 0.6 seconds. A process loads it after numpy has worked for that
long, so it takes at most twice the time of the better choice.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.util import find_spec

from darrm.majority import numpy_loops

LOADING = 6e8  # nanoseconds: importing numba and reading the loops from its cache


@dataclass(frozen=True)
class Loops:
    """The loops, written for numpy or for numba.

    ``triangle_maxima(own, numbers, low, floor, held, costs, places)``: the largest cost of each level
    and its first place, one level for each entry of ``costs``. If it is at most ``floor``, any such cost will do.
    ``own`` is T(s) of the first of these levels and is overwritten with the level after the last; if ``low``, it is the
    chain of (lo, hi). Places count the windows of ``held`` frozen voters one after the other.

    ``vertices(block, numbers, values, bounds, choice)``: see `NearShifts.vertices`.

    ``pass_levels(level, span, numbers, limit, best, costs, kept)``: pass over levels of `FullSet` and keep those that
    have to be examined: a cost exceeds ``limit``, or a bound exceeds ``best`` and all costs passed. ``level`` is T
    at level ``span.first``, shape (K + 1 − first,), and becomes T at the next level. ``costs[j]`` receives the largest
    cost of level j, if it was not kept and can exceed the lower of the two. Returns the next level, or −1 − j if T does
    not fall at level j, which was passed, and ``level`` is T there.

    ``border_costs(level, span, numbers, limit, costs, kept)``: the same where only the largest costs above ``limit``
    are wanted, with moves at vertices.
    """

    triangle_maxima: Callable[..., None]
    vertices: Callable[..., None]
    pass_levels: Callable[..., int]
    border_costs: Callable[..., int]


NUMPY = Loops(
    numpy_loops.triangle_maxima,
    numpy_loops.vertices,
    numpy_loops.pass_levels,
    numpy_loops.keep_levels,
)


class Work:
    """How long numpy has been at work in this process, estimated in nanoseconds."""

    def __init__(self) -> None:
        self.nanoseconds = 0.0

    def loops(self, nanoseconds: float) -> Loops:
        """Count work that is about to be done; return the compiled loops if they pay and numba is installed."""
        self.nanoseconds += nanoseconds
        return (load() or NUMPY) if self.nanoseconds >= LOADING else NUMPY


WORK = Work()


def is_available() -> bool:
    """Whether numba is installed; does not import it."""
    return find_spec("numba") is not None


def advice() -> str | None:
    """Return a line about what would have made this process faster, or None if nothing would."""
    if WORK.nanoseconds < LOADING or is_available():
        return None
    return "the search spends its time in loops that can be compiled: pip install 'darrm[compiled]'"


@cache
def load() -> Loops | None:
    """Import numba and compile, or read the cache; None without numba."""
    return Loops(*import_module("darrm.majority.compiled").loops()) if is_available() else None
