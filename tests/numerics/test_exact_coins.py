"""The law of a coin, found by listing every random byte string that decides it."""

import itertools
import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest

from darrm.numerics.exact_sampling import _BLOCK, ExactCoins, _usual_ties


def feeding(*chunks: bytes) -> Callable[[int], bytes]:
    """A source that hands out fixed bytes and refuses to be asked for another amount."""
    rest = list(chunks)

    def source(size: int) -> bytes:
        chunk = rest.pop(0)
        assert len(chunk) == size
        return chunk

    return source


@pytest.mark.parametrize("numerator", [0, 1, 2, 127, 128, 129, 254, 255])
def test_every_first_byte_is_counted(numerator: int) -> None:
    coin = ExactCoins([Fraction(numerator, 256)])
    heads = [coin.flip(np.array([0]), source=feeding(bytes([byte])))[0] for byte in range(256)]
    assert sum(heads) == numerator


def test_all_words_of_a_float_are_compared() -> None:
    # the digits of 2^-8 + 2^-72 + 2^-136 are 0…01 0…01 0…01: the coin is decided in the third draw at the latest
    p = Fraction(1, 2**8) + Fraction(1, 2**72) + Fraction(1, 2**136)
    coins = ExactCoins([p])
    one, zero = (1).to_bytes(8, "little"), bytes(8)
    which = np.array([0])
    assert not coins.flip(which, source=feeding(b"\2", zero))[0]
    assert coins.flip(which, source=feeding(b"\0", b"\xff" * 8))[0]
    assert coins.flip(which, source=feeding(b"\1", zero))[0]
    assert not coins.flip(which, source=feeding(b"\1", (2).to_bytes(8, "little")))[0]
    assert coins.flip(which, source=feeding(b"\1", one, zero))[0]
    assert not coins.flip(which, source=feeding(b"\1", one, one))[0]


def test_words_are_compared_without_a_sign() -> None:
    # a signed comparison would turn every coin around whose byte or word is in the upper half
    coins = ExactCoins([Fraction(3, 4), Fraction(1, 256) + Fraction(3, 2**10)])
    assert coins.flip(np.array([0, 0]), source=feeding(b"\x7f\xc0", bytes(16))).tolist() == [True, False]
    words = [(2**63).to_bytes(8, "little"), (3 * 2**62).to_bytes(8, "little")]
    assert coins.flip(np.array([1, 1]), source=feeding(b"\1\1", b"".join(words))).tolist() == [True, False]


def test_how_many_bytes_are_drawn_says_nothing_of_the_ties() -> None:
    # coin 0 is tied at its first byte, coin 1 at none, and as many words are drawn for one as for the other
    coins = ExactCoins([Fraction(5, 256) + Fraction(1, 2**72), Fraction(9, 256)])
    for coin, count in itertools.product((0, 1), (1, 20, 1000, _BLOCK)):
        ties = min(_usual_ties(count), 40) if count > 40 else count
        sizes: list[int] = []

        def source(size: int, sizes: list[int] = sizes, ties: int = ties, count: int = count) -> bytes:
            sizes.append(size)
            return bytes([5] * ties + [77] * (count - ties)) if len(sizes) == 1 else b"\xff" * size

        coins.flip(np.full(count, coin), source=source)
        assert sizes == [count, 8 * _usual_ties(count)]


def test_more_ties_than_usual_are_all_refined() -> None:
    coins = ExactCoins([Fraction(5, 256) + Fraction(1, 2**72)])
    flips = coins.flip(np.zeros(5000, dtype=np.int64), source=feeding(b"\5" * 5000, bytes(8 * 5000)))
    assert flips.all()


@pytest.mark.parametrize("count", [1, 2, 30, 100, 1000, 5000])
def test_ties_beyond_the_usual_have_probability_2_to_the_minus_64(count: int) -> None:
    # 256^n · Pr[T = t] = C(n, t) · 255^(n - t) for T binomial with 1/256, in whole numbers
    usual, weight, beyond = _usual_ties(count), 1, 0
    for ties in range(count, usual, -1):
        beyond += weight
        weight = weight * 255 * ties // (count - ties + 1)
    assert beyond * 2**64 <= 256**count
    assert usual <= min(count, count / 256 + 12 * math.sqrt(count / 256) + 31)


def test_the_smallest_float_is_a_coin() -> None:
    p = Fraction(5e-324)
    assert p == Fraction(1, 2**1074)
    coins = ExactCoins([p, 1 - p])
    assert coins.probabilities == (p, 1 - p)
    # all digits of p are 0 up to the last of 17 words after the first byte; U = 0 lies below it
    zeros = feeding(bytes(1), *[bytes(8)] * 17)
    assert coins.flip(np.array([0]), source=zeros)[0]
    ones = feeding(b"\xff", *[b"\xff" * 8] * 17)
    assert not coins.flip(np.array([1]), source=ones)[0]


def test_blocks_draw_fresh_bytes() -> None:
    coins = ExactCoins([Fraction(1, 2)])
    heads = coins.flip(np.zeros(_BLOCK + 3, dtype=np.int64), source=feeding(b"\xff" * _BLOCK, bytes(3)))
    assert heads.tolist() == [False] * _BLOCK + [True] * 3


@pytest.mark.statistical
def test_operating_system_coins_have_the_right_frequency() -> None:
    # not a seed but the operating system: 12 standard deviations are a false alarm of 4e-33
    p, n = Fraction(0.3), 200_000
    heads = int(ExactCoins([p]).flip(np.zeros(n, dtype=np.int64)).sum())
    assert abs(heads - n * float(p)) < 12.0 * (n * 0.3 * 0.7) ** 0.5


@pytest.mark.parametrize(
    ("probabilities", "word"),
    [
        ([Fraction(1, 3)], "power of two"),
        ([Fraction(1)], "probability"),
        ([Fraction(-1, 2)], "probability"),
        ([], "one"),
    ],
)
def test_what_is_no_coin(probabilities: list[Fraction], word: str) -> None:
    with pytest.raises(ValueError, match=word):
        ExactCoins(probabilities)
