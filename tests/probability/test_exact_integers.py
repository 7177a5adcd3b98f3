"""Uniform integers: every remainder is equally likely, because incomplete runs are drawn again."""

from __future__ import annotations

import numpy as np
import pytest

from darrm.probability.exact_integers import uniform_integers


def words(*numbers: int):  # noqa: ANN201 (a source of bytes)
    rest = list(numbers)

    def source(size: int) -> bytes:
        taken = [rest.pop(0) for _ in range(size // 8)]
        return b"".join(number.to_bytes(8, "little") for number in taken)

    return source


@pytest.mark.parametrize("bound", [1, 2, 3, 7, 11, 2**32, 2**32 - 5])
def test_the_incomplete_run_is_drawn_again(bound: int) -> None:
    # accepted words are 0 … last, a whole number of runs; the first word beyond is refused
    last = 2**64 - 2**64 % bound - 1
    assert (last + 1) % bound == 0
    assert uniform_integers(bound, 1, source=words(last))[0] == bound - 1
    if last < 2**64 - 1:
        assert uniform_integers(bound, 1, source=words(last + 1, 2**64 - 1, 0))[0] == 0


def test_only_refused_places_are_drawn_again() -> None:
    top = 2**64 - 1  # 2^64 = 1 mod 3: the last word is refused
    assert uniform_integers(3, 4, source=words(1, top, 5, top, top, 4, 2)).tolist() == [1, 2, 2, 1]


@pytest.mark.statistical
def test_all_values_appear() -> None:
    # 12 standard deviations of a binomial: 4e-33 for each of 11 values
    values = uniform_integers(11, 110_000)
    counts = np.bincount(values, minlength=11)
    assert counts.size == 11
    assert np.all(np.abs(counts - 10_000) < 12 * np.sqrt(10_000))


@pytest.mark.parametrize(("bound", "size"), [(0, 1), (-1, 1), (2.5, 1), (2**33, 1), (2, -1)])
def test_bad_arguments(bound: object, size: object) -> None:
    with pytest.raises(ValueError, match=r"bound|size"):
        uniform_integers(bound, size)
