"""The laws of exact draws, found by listing every random number or byte string that decides them."""

import itertools
import math
from collections.abc import Callable
from fractions import Fraction
from types import SimpleNamespace

import numpy as np
import pytest

from darrm.numerics import exact_sampling
from darrm.numerics.exact_sampling import (
    _BLOCK_SIZE,
    ExactCoins,
    _bound_ties,
    bernoulli_exp,
    discrete_gaussian,
    discrete_laplace,
    system_uniform_below,
    uniform_below,
)
from tests.numerics.support import RejectedError, Script, chi_square, enumerate_law


def assert_law(law: dict[int, float], error: float, true: dict[int, float]) -> None:
    assert error < 5e-4
    for value, probability in true.items():
        assert law.get(value, 0.0) == pytest.approx(probability, abs=error + 1e-12)


@pytest.mark.parametrize(("top", "bottom"), [(0, 1), (1, 3), (1, 1), (7, 3), (2, 1)])
def test_bernoulli_exp_has_its_exact_law(top: int, bottom: int) -> None:
    law, left = enumerate_law(
        lambda script: int(bernoulli_exp(np.array([top]), np.array([bottom]), script.below)[0]), 1e-7
    )
    assert_law(law, left, {1: math.exp(-top / bottom), 0: -math.expm1(-top / bottom)})


def first_attempt(attempt: Callable[[int], tuple[np.ndarray, np.ndarray]], size: int) -> np.ndarray:
    value, kept = attempt(size)
    if not np.all(kept) or value.size != size:
        raise RejectedError
    return value


# the coins of exp(−a/b) are proved by the test above; here each is one branch of exactly that probability, and one
# attempt is followed: attempts are independent, so the law is that of the first one, given that it is accepted
@pytest.fixture
def install_coins(monkeypatch: pytest.MonkeyPatch) -> Callable[[Script], None]:
    def install(script: Script) -> None:
        monkeypatch.setattr(exact_sampling, "bernoulli_exp", script.coins)
        monkeypatch.setattr(exact_sampling, "_toss_bernoulli_exp", script.coins)
        monkeypatch.setattr(exact_sampling, "_repeat_attempts", first_attempt)

    return install


@pytest.mark.parametrize("scale", [Fraction(2), Fraction(3, 2), Fraction(1, 2)])
def test_discrete_laplace_has_its_exact_law(scale: Fraction, install_coins: Callable[[Script], None]) -> None:
    def draw(script: Script) -> int:
        install_coins(script)
        return int(discrete_laplace(scale, 1, script.below)[0])

    law, left = enumerate_law(draw, 1e-5)
    rate = 1 / float(scale)
    normal = math.expm1(rate) / (math.exp(rate) + 1)
    assert_law(law, left, {x: normal * math.exp(-rate * abs(x)) for x in range(-6, 7)})


@pytest.mark.parametrize("variance", [Fraction(1, 4), Fraction(9, 4)])
def test_discrete_gaussian_has_its_exact_law(variance: Fraction, install_coins: Callable[[Script], None]) -> None:
    def draw(script: Script) -> int:
        install_coins(script)
        return int(discrete_gaussian(variance, 1, script.below)[0])

    law, left = enumerate_law(draw, 1e-5)
    weights = {x: math.exp(-(x**2) / (2 * float(variance))) for x in range(-40, 41)}
    total = sum(weights.values())
    assert_law(law, left, {x: weights[x] / total for x in range(-4, 5)})


@pytest.mark.quick_cases(1)
@pytest.mark.statistical
@pytest.mark.parametrize("sigma", ["2.5", "40"])
def test_discrete_gaussian_fits_its_sigma_only(sigma: str) -> None:
    # false-alarm rate: the statistic passes 7 with probability below 1e-6; power: 3 % more noise is always seen
    rng = np.random.default_rng(20)
    sample = discrete_gaussian(Fraction(sigma) ** 2, 200_000, uniform_below(rng))
    support = np.arange(-400, 401)
    assert chi_square(sample, -(support**2) / (2 * float(sigma) ** 2), support) < 7
    assert chi_square(sample, -(support**2) / (2 * (1.03 * float(sigma)) ** 2), support) > 7


def test_discrete_gaussian_accepts_large_denominators() -> None:
    # a variance with a 40-digit denominator cannot fit into 64 bits
    variance = Fraction(10**40 + 1, 10**39)
    sample = discrete_gaussian(variance, 4000)
    assert 8.5 < sample.var() < 11.6  # ten standard errors
    assert abs(sample.mean()) < 0.6
    assert sample.dtype == np.int64


def test_no_draws_are_an_empty_array() -> None:
    for draw in (discrete_gaussian, discrete_laplace):
        assert draw(Fraction(1), 0).shape == (0,)


def test_words_of_an_incomplete_block_are_rejected() -> None:
    # 2^64 mod (3·2^61) = 2^62: the words below 2^62 are rejected, which leaves 2 whole blocks
    words = iter([5, 2**62 - 1, 2**63 + 6])
    result = exact_sampling._uniform_below_64(
        np.array([3 * 2**61]), lambda size: np.array([next(words) for _ in range(size)], dtype=np.uint64)
    )
    assert result.tolist() == [(2**63 + 6) % (3 * 2**61)]


def test_a_large_number_equal_to_its_limit_is_rejected() -> None:
    limit = 2**70  # 71 bits: the last of nine bytes has one bit too many
    words = [(number << 1).to_bytes(9, "little") for number in (limit, 5)]
    assert exact_sampling._draw_unbounded_below(limit, SimpleNamespace(bytes=lambda _: words.pop(0))) == 5  # type: ignore[arg-type]


def test_system_numbers_are_below_their_limits() -> None:
    limits = np.array([1, 2, 3, 10, 2**40] * 200)
    numbers = system_uniform_below(limits)
    assert np.all((numbers >= 0) & (numbers < limits))
    assert {int(x) for x in numbers[2::5]} == {0, 1, 2}
    huge = system_uniform_below(np.array([10**30, 1], dtype=object))
    assert 0 <= huge[0] < 10**30
    assert huge[1] == 0


def feed(*chunks: bytes) -> Callable[[int], bytes]:
    """Create a source of fixed bytes that refuses requests for another amount."""
    remaining = list(chunks)

    def source(size: int) -> bytes:
        chunk = remaining.pop(0)
        assert len(chunk) == size
        return chunk

    return source


@pytest.mark.parametrize("numerator", [0, 1, 2, 127, 128, 129, 254, 255])
def test_a_coin_has_its_exact_law_over_all_bytes(numerator: int) -> None:
    coin = ExactCoins([Fraction(numerator, 256)])
    heads = [coin.flip(np.array([0]), source=feed(bytes([byte])))[0] for byte in range(256)]
    assert sum(heads) == numerator


def test_a_coin_compares_all_words_of_its_probability() -> None:
    # the digits of 2^-8 + 2^-72 + 2^-136 are 0…01 0…01 0…01: the coin is decided in the third draw at the latest
    p = Fraction(1, 2**8) + Fraction(1, 2**72) + Fraction(1, 2**136)
    coins = ExactCoins([p])
    one, zero = (1).to_bytes(8, "little"), bytes(8)
    which = np.array([0])
    assert not coins.flip(which, source=feed(b"\2", zero))[0]
    assert coins.flip(which, source=feed(b"\0", b"\xff" * 8))[0]
    assert coins.flip(which, source=feed(b"\1", zero))[0]
    assert not coins.flip(which, source=feed(b"\1", (2).to_bytes(8, "little")))[0]
    assert coins.flip(which, source=feed(b"\1", one, zero))[0]
    assert not coins.flip(which, source=feed(b"\1", one, one))[0]


def test_a_coin_compares_bytes_and_words_as_unsigned() -> None:
    # a signed comparison would turn every coin around whose byte or word is in the upper half
    coins = ExactCoins([Fraction(3, 4), Fraction(1, 256) + Fraction(3, 2**10)])
    assert coins.flip(np.array([0, 0]), source=feed(b"\x7f\xc0", bytes(16))).tolist() == [True, False]
    words = [(2**63).to_bytes(8, "little"), (3 * 2**62).to_bytes(8, "little")]
    assert coins.flip(np.array([1, 1]), source=feed(b"\1\1", b"".join(words))).tolist() == [True, False]


def test_the_number_of_bytes_does_not_depend_on_ties() -> None:
    # coin 0 is tied at its first byte, coin 1 at none, and as many words are drawn for one as for the other
    coins = ExactCoins([Fraction(5, 256) + Fraction(1, 2**72), Fraction(9, 256)])
    for coin, count in itertools.product((0, 1), (1, 20, 1000, _BLOCK_SIZE)):
        ties = min(_bound_ties(count), 40) if count > 40 else count
        sizes: list[int] = []

        def source(size: int, sizes: list[int] = sizes, ties: int = ties, count: int = count) -> bytes:
            sizes.append(size)
            return bytes([5] * ties + [77] * (count - ties)) if len(sizes) == 1 else b"\xff" * size

        coins.flip(np.full(count, coin), source=source)
        assert sizes == [count, 8 * _bound_ties(count)]


def test_more_ties_than_usual_are_all_refined() -> None:
    coins = ExactCoins([Fraction(5, 256) + Fraction(1, 2**72)])
    flips = coins.flip(np.zeros(5000, dtype=np.int64), source=feed(b"\5" * 5000, bytes(8 * 5000)))
    assert flips.all()


@pytest.mark.parametrize("count", [1, 2, 30, 100, 1000, 5000])
def test_more_ties_than_usual_have_probability_below_2_to_the_minus_64(count: int) -> None:
    # 256^n · Pr[T = t] = C(n, t) · 255^(n - t) for T binomial with 1/256, in whole numbers
    usual, weight, beyond = _bound_ties(count), 1, 0
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
    zeros = feed(bytes(1), *[bytes(8)] * 17)
    assert coins.flip(np.array([0]), source=zeros)[0]
    ones = feed(b"\xff", *[b"\xff" * 8] * 17)
    assert not coins.flip(np.array([1]), source=ones)[0]


def test_each_block_draws_its_own_bytes() -> None:
    coins = ExactCoins([Fraction(1, 2)])
    heads = coins.flip(np.zeros(_BLOCK_SIZE + 3, dtype=np.int64), source=feed(b"\xff" * _BLOCK_SIZE, bytes(3)))
    assert heads.tolist() == [False] * _BLOCK_SIZE + [True] * 3


@pytest.mark.statistical
def test_system_coins_have_their_frequency() -> None:
    # not a seed but the operating system: 12 standard deviations are a false alarm of 4e-33
    p, n = Fraction(0.3), 200_000
    heads = int(ExactCoins([p]).flip(np.zeros(n, dtype=np.int64)).sum())
    assert abs(heads - n * float(p)) < 12.0 * (n * 0.3 * 0.7) ** 0.5


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: ExactCoins([Fraction(1, 3)]), "power of two"),
        (lambda: ExactCoins([Fraction(1)]), "probability"),
        (lambda: ExactCoins([Fraction(-1, 2)]), "probability"),
        (lambda: ExactCoins([]), "one"),
        (lambda: discrete_gaussian(Fraction(0), 1), "must be a positive finite number"),
        (lambda: discrete_laplace(Fraction(-1), 1), "must be a positive finite number"),
        (lambda: discrete_gaussian(Fraction(2) ** 140, 1), "at most"),
        (lambda: discrete_gaussian(Fraction(1), -1), "size must be"),
    ],
)
def test_samplers_refuse_parameters_out_of_range(call: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()
