"""Votes as arrays: what counts as a vote, and how many ones each query got."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from darrm import checks


def ones_matrix(votes: ArrayLike, K: int, classes: tuple[Any, Any] = (0, 1)) -> NDArray[np.bool_]:
    """Check votes and say where they are for the second class.

    Parameters
    ----------
    votes
        Shape (Q, K), every entry one of the two classes; booleans count as 0 and 1.
    K
        Number of voters.
    classes
        What stands for 0 and for 1: two different labels.

    Returns
    -------
    ones
        Shape (Q, K).

    Raises
    ------
    ValueError
        If the shape is not (Q, K), or some entry is no vote (NaN, an abstention, a third class).

    Examples
    --------
    >>> ones_matrix([["cat", "dog", "dog"]], 3, classes=("cat", "dog"))
    array([[False,  True,  True]])
    """
    checks.integer_at_least(1, K=K)
    zero, one = two_classes(classes)
    try:
        matrix = np.asarray(votes)
    except ValueError as error:
        raise ValueError(f"votes must be a rectangular array of shape (Q, {K}): {error}") from error
    if matrix.ndim != 2:
        advice = f"reshape one query to (1, {K})" if matrix.ndim == 1 else "one row is one query"
        checks.fail("votes", matrix.shape, f"of shape (Q, K) = (Q, {K})", advice)
    if matrix.shape[1] != K:
        checks.fail("votes", matrix.shape, f"of shape (Q, {K})", f"the table is for K = {K} voters, one column each")
    with np.errstate(invalid="ignore"):
        is_one, is_zero = matrix == one, matrix == zero
    if not (isinstance(is_one, np.ndarray) and is_one.shape == matrix.shape):
        checks.fail("votes", matrix.dtype, f"of a type that can be compared with {zero!r} and {one!r}")
    wrong = ~(is_one | is_zero)
    if wrong.any():
        query, voter = (int(index[0]) for index in np.nonzero(wrong))
        found = matrix[query, voter]
        raise ValueError(
            f"votes must be {zero!r} or {one!r}, got {found.item() if isinstance(found, np.generic) else found!r} "
            f"from voter {voter} to query {query}: every voter must answer every query"
        )
    return np.asarray(is_one, dtype=np.bool_)


def two_classes(classes: tuple[Any, Any]) -> tuple[Any, Any]:
    """Check that there are two different class labels."""
    if len(classes) != 2 or classes[0] == classes[1]:
        checks.fail("classes", classes, "two different labels, the one for 0 first")
    return classes[0], classes[1]


def labelled(ones: NDArray[np.bool_], classes: tuple[Any, Any]) -> NDArray[Any]:
    """Write booleans as class labels, shape kept."""
    zero, one = two_classes(classes)
    if (zero, one) == (0, 1):
        return ones.astype(np.int64)
    return np.asarray(np.where(ones, one, zero))
