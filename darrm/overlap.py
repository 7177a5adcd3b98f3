"""How many voters one person's data can reach."""

from __future__ import annotations

from darrm import checks


def checked_overlap(K: int, overlap: int | None) -> int | None:
    """Check an overlap in 1 … K; all K voters, the paper's analysis, is None.

    Raises
    ------
    ValueError
        If it is no integer in 1 … K.

    Examples
    --------
    >>> checked_overlap(11, 3), checked_overlap(11, 11), checked_overlap(11, None)
    (3, None, None)
    """
    if overlap is None:
        return None
    checks.integer_at_least(1, overlap=overlap, advice="how many voters one person's data can reach")
    if overlap > K:
        checks.fail("overlap", overlap, f"at most K = {K}", "nobody can reach more voters than exist")
    return None if overlap == K else int(overlap)
