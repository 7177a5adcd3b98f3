"""Uniform integers from random bytes, exact: no remainder is favoured."""

from __future__ import annotations

import os
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from darrm import checks

WORDS = 2**64


def uniform_integers(bound: int, size: int, *, source: Callable[[int], bytes] = os.urandom) -> NDArray[np.int64]:
    """Draw ``size`` independent uniform integers from 0 … bound − 1.

    A 64-bit word is used if it lies below the largest multiple of ``bound``, else drawn again: a share of at most
    bound/2⁶⁴ of the words.

    Parameters
    ----------
    bound
        At least 1, at most 2³².
    size
        How many.
    source
        Gives that many uniform bytes; the operating system's generator unless told otherwise.

    Returns
    -------
    integers
        Shape (size,).

    Raises
    ------
    ValueError
        If an argument lies outside its range.

    Examples
    --------
    >>> uniform_integers(3, 2, source=lambda size: (5).to_bytes(8, "little") * (size // 8))
    array([2, 2])
    """
    checks.integer_at_least(1, bound=bound)
    checks.integer_at_least(0, size=size)
    if bound > 2**32:
        checks.fail("bound", bound, "at most 2^32")
    # the last word that belongs to a complete run of remainders
    last = np.uint64(WORDS - WORDS % bound - 1)
    values = np.empty(size, dtype=np.int64)
    missing = np.arange(size)
    while missing.size:
        words = np.frombuffer(source(8 * missing.size), dtype="<u8")
        values[missing] = (words % np.uint64(bound)).astype(np.int64)
        missing = missing[words > last]
    return values
