"""The laws of exact draws, found by listing every random number or byte string that decides them."""

import itertools
import math
from collections.abc import Callable
from fractions import Fraction

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


class Ask(Exception):  # noqa: N818 (control flow of the enumeration)
    """The program asked for a random number beyond the prefix; these are the probabilities of its values."""

    def __init__(self, weights: list[float]) -> None:
        super().__init__(weights)
        self.weights = weights


class Script:
    """A source of randomness that replays a prefix."""

    def __init__(self, prefix: tuple[int, ...]) -> None:
        self._rest = list(prefix)

    def next(self, weights: list[float]) -> int:
        if len(weights) == 1:
            return 0
        if not self._rest:
            raise Ask(weights)
        return self._rest.pop(0)

    def below(self, limits: np.ndarray) -> np.ndarray:
        return np.array([self.next([1.0 / n] * n) for n in limits.tolist()], dtype=limits.dtype)

    def coins(self, numerator: np.ndarray, denominator: np.ndarray, _below: object) -> np.ndarray:
        heads = [math.exp(-a / b) for a, b in zip(numerator.tolist(), denominator.tolist(), strict=True)]
        return np.array([self.next([1.0 - p, p]) == 1 for p in heads])


class RejectedError(Exception):
    """The first attempt was rejected; the sampler would start anew."""


def exact_law(draw: Callable[[Script], int], smallest: float) -> tuple[dict[int, float], float]:
    """Run a sampler on every sequence of random numbers: its law given that no attempt was rejected, and the error.

    Branches of probability below ``smallest`` are left open; their share bounds the error of every probability.
    """
    law: dict[int, float] = {}
    left = rejected = 0.0
    open_branches: list[tuple[tuple[int, ...], float]] = [((), 1.0)]
    while open_branches:
        prefix, mass = open_branches.pop()
        try:
            value = draw(Script(prefix))
        except Ask as ask:
            for index, weight in enumerate(ask.weights):
                if mass * weight < smallest:
                    left += mass * weight
                else:
                    open_branches.append(((*prefix, index), mass * weight))
        except RejectedError:
            rejected += mass
        else:
            law[value] = law.get(value, 0.0) + mass
    accepted = sum(law.values())
    assert accepted + left + rejected == pytest.approx(1.0)
    return {value: mass / accepted for value, mass in law.items()}, left / accepted


def assert_law(law: dict[int, float], error: float, true: dict[int, float]) -> None:
    assert error < 5e-4
    for value, probability in true.items():
        assert law.get(value, 0.0) == pytest.approx(probability, abs=error + 1e-12)


@pytest.mark.parametrize(("top", "bottom"), [(0, 1), (1, 3), (1, 1), (7, 3), (2, 1)])
def test_bernoulli_exp_has_its_exact_law(top: int, bottom: int) -> None:
    law, left = exact_law(lambda script: int(bernoulli_exp(np.array([top]), np.array([bottom]), script.below)[0]), 1e-7)
    assert_law(law, left, {1: math.exp(-top / bottom), 0: -math.expm1(-top / bottom)})


def first_attempt(attempt: Callable[[int], tuple[np.ndarray, np.ndarray]], size: int) -> np.ndarray:
    value, kept = attempt(size)
    if not np.all(kept) or value.size != size:
        raise RejectedError
    return value


# the coins of exp(−a/b) are proved by the test above; here each is one branch of exactly that probability, and one
# attempt is followed: attempts are independent, so the law is that of the first one, given that it is accepted
@pytest.fixture
def whole_coins(monkeypatch: pytest.MonkeyPatch) -> Callable[[Script], None]:
    def install(script: Script) -> None:
        monkeypatch.setattr(exact_sampling, "bernoulli_exp", script.coins)
        monkeypatch.setattr(exact_sampling, "_toss_bernoulli_exp", script.coins)
        monkeypatch.setattr(exact_sampling, "_repeat_attempts", first_attempt)

    return install


@pytest.mark.parametrize("scale", [Fraction(2), Fraction(3, 2), Fraction(1, 2)])
def test_discrete_laplace_has_its_exact_law(scale: Fraction, whole_coins: Callable[[Script], None]) -> None:
    def draw(script: Script) -> int:
        whole_coins(script)
        return int(discrete_laplace(scale, 1, script.below)[0])

    law, left = exact_law(draw, 1e-5)
    rate = 1 / float(scale)
    normal = math.expm1(rate) / (math.exp(rate) + 1)
    assert_law(law, left, {x: normal * math.exp(-rate * abs(x)) for x in range(-6, 7)})


@pytest.mark.parametrize("variance", [Fraction(1, 4), Fraction(9, 4)])
def test_discrete_gaussian_has_its_exact_law(variance: Fraction, whole_coins: Callable[[Script], None]) -> None:
    def draw(script: Script) -> int:
        whole_coins(script)
        return int(discrete_gaussian(variance, 1, script.below)[0])

    law, left = exact_law(draw, 1e-5)
    weights = {x: math.exp(-(x**2) / (2 * float(variance))) for x in range(-40, 41)}
    total = sum(weights.values())
    assert_law(law, left, {x: weights[x] / total for x in range(-4, 5)})


def chi_square(sample: np.ndarray, log_weights: np.ndarray, support: np.ndarray) -> float:
    """Standardized chi-square statistic, cells below 20 expected draws pooled."""
    probabilities = np.exp(log_weights - np.logaddexp.reduce(log_weights))
    expected = probabilities * sample.size
    result = np.array([np.count_nonzero(sample == x) for x in support], dtype=float)
    common = expected >= 20
    expected = np.append(expected[common], sample.size - expected[common].sum())
    result = np.append(result[common], sample.size - result[common].sum())
    if expected[-1] < 1:
        expected, result = expected[:-1], result[:-1]
    cells = expected.size - 1
    return float((((result - expected) ** 2 / expected).sum() - cells) / math.sqrt(2 * cells))


@pytest.mark.quick_cases(1)
@pytest.mark.statistical
@pytest.mark.parametrize("sigma", ["2.5", "40"])
def test_discrete_gaussian_fits_and_a_wrong_sigma_does_not(sigma: str) -> None:
    # false-alarm rate: the statistic passes 7 with probability below 1e-6; power: 3 % more noise is always seen
    rng = np.random.default_rng(20)
    sample = discrete_gaussian(Fraction(sigma) ** 2, 200_000, uniform_below(rng))
    support = np.arange(-400, 401)
    assert chi_square(sample, -(support**2) / (2 * float(sigma) ** 2), support) < 7
    assert chi_square(sample, -(support**2) / (2 * (1.03 * float(sigma)) ** 2), support) > 7


def test_unbounded_numbers_follow_the_same_law() -> None:
    # a variance with a 40-digit denominator cannot fit into 64 bits
    variance = Fraction(10**40 + 1, 10**39)
    sample = discrete_gaussian(variance, 4000)
    assert 8.5 < sample.var() < 11.6  # ten standard errors
    assert abs(sample.mean()) < 0.6
    assert sample.dtype == np.int64


def test_rejection_makes_the_remainder_uniform() -> None:
    # 2^64 mod (3·2^61) = 2^62: the words below 2^62 are rejected, which leaves 2 whole blocks
    words = iter([5, 2**62 - 1, 2**63 + 6])
    result = exact_sampling._uniform_below_64(
        np.array([3 * 2**61]), lambda size: np.array([next(words) for _ in range(size)], dtype=np.uint64)
    )
    assert result.tolist() == [(2**63 + 6) % (3 * 2**61)]


def test_system_source_stays_below_its_limits() -> None:
    limits = np.array([1, 2, 3, 10, 2**40] * 200)
    drawn = system_uniform_below(limits)
    assert np.all((drawn >= 0) & (drawn < limits))
    assert {int(x) for x in drawn[2::5]} == {0, 1, 2}
    huge = system_uniform_below(np.array([10**30, 1], dtype=object))
    assert 0 <= huge[0] < 10**30
    assert huge[1] == 0


@pytest.mark.parametrize("bad", [Fraction(0), Fraction(-1)])
def test_scales_must_be_positive(bad: Fraction) -> None:
    with pytest.raises(ValueError, match="must be a positive finite number"):
        discrete_gaussian(bad, 1)
    with pytest.raises(ValueError, match="must be a positive finite number"):
        discrete_laplace(bad, 1)


def test_huge_scales_are_refused() -> None:
    with pytest.raises(ValueError, match="at most"):
        discrete_gaussian(Fraction(2) ** 140, 1)


def test_no_draws_and_negative_sizes() -> None:
    assert discrete_gaussian(Fraction(1), 0).shape == (0,)
    with pytest.raises(ValueError, match="size must be"):
        discrete_gaussian(Fraction(1), -1)


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
    flips = coins.flip(np.zeros(5000, dtype=np.int64), source=feeding(b"\5" * 5000, bytes(8 * 5000)))
    assert flips.all()


@pytest.mark.parametrize("count", [1, 2, 30, 100, 1000, 5000])
def test_ties_beyond_the_usual_have_probability_2_to_the_minus_64(count: int) -> None:
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
    zeros = feeding(bytes(1), *[bytes(8)] * 17)
    assert coins.flip(np.array([0]), source=zeros)[0]
    ones = feeding(b"\xff", *[b"\xff" * 8] * 17)
    assert not coins.flip(np.array([1]), source=ones)[0]


def test_blocks_draw_fresh_bytes() -> None:
    coins = ExactCoins([Fraction(1, 2)])
    heads = coins.flip(np.zeros(_BLOCK_SIZE + 3, dtype=np.int64), source=feeding(b"\xff" * _BLOCK_SIZE, bytes(3)))
    assert heads.tolist() == [False] * _BLOCK_SIZE + [True] * 3


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
