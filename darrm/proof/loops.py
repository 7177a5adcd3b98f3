"""The inner loops of separation: which of two programs runs them, and what they are told.

`darrm.proof.numpy_loops` needs nothing else; `darrm.proof.compiled` is the same loops for numba
(``pip install 'darrm[compiled]'``), some twenty times faster and 200 MB larger. Both make the same sums and products in
the same order, so that results agree to the bit, but for the sign of a zero, and one error bound holds for both.

Compiled code is kept on disk, and loading it costs 0.6 seconds. That is paid once numpy has been at work for as long:
then no process takes more than twice what the better choice would have been.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.util import find_spec

from darrm.proof import numpy_loops

LOADING = 6e8  # nanoseconds: importing numba and reading the loops from its cache


@dataclass(frozen=True)
class Loops:
    """The loops, written for numpy or for numba.

    ``triangle_maxima(own, numbers, low, floor, held, costs, places)``: the largest cost of as many levels as ``costs``
    is long, and the first place where it stands; where it is at most ``floor``, any of these costs is as good. ``own``
    is T(s) of the first of these levels, and overwritten with the level after the last; if ``low``, it is the chain of
    (lo, hi). The windows of ``held`` frozen voters stand one after the other.

    ``vertices(block, numbers, values, bounds, choice)``: see `NearShifts.vertices`.

    ``search(level, n_1, numbers, curvature, enough, grid, most_cells)``: `NearShifts.search` from a grid of zeros ×
    ones: the best value, what is left, a and a_1.

    ``pass_levels(level, span, numbers, limit, best, costs, kept)``: pass over levels of `FullSet` and keep those that
    have to be examined: where a cost exceeds ``limit`` or a bound exceeds ``best`` and all costs passed. ``level`` is T
    at level ``span.first``, shape (K + 1 − first,), and becomes T at the next level. ``costs[j]`` receives the largest
    cost of level j, if it was not kept and can exceed the lower of the two. Returns the next level, or −1 − j if T does
    not fall at level j, which was passed, and ``level`` is T there.

    ``border_costs(level, span, numbers, limit, costs, kept)``: the same where only the largest costs above ``limit``
    are wanted, with moves at vertices.
    """

    triangle_maxima: Callable[..., None]
    vertices: Callable[..., None]
    search: Callable[..., tuple[float, float, int, int]]
    pass_levels: Callable[..., int]
    border_costs: Callable[..., int]


NUMPY = Loops(
    numpy_loops.triangle_maxima,
    numpy_loops.vertices,
    numpy_loops.search,
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
    """Import numba and compile, or read what was compiled before; None without numba."""
    return Loops(*import_module("darrm.proof.compiled").loops()) if is_available() else None
