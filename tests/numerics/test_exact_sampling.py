import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest

from darrm.numerics import exact_sampling
from darrm.numerics.exact_sampling import (
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
        monkeypatch.setattr(exact_sampling, "_bernoulli_exp_at_most_one", script.coins)
        monkeypatch.setattr(exact_sampling, "_until_filled", first_attempt)

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
    found = np.array([np.count_nonzero(sample == x) for x in support], dtype=float)
    common = expected >= 20
    expected = np.append(expected[common], sample.size - expected[common].sum())
    found = np.append(found[common], sample.size - found[common].sum())
    if expected[-1] < 1:
        expected, found = expected[:-1], found[:-1]
    cells = expected.size - 1
    return float((((found - expected) ** 2 / expected).sum() - cells) / math.sqrt(2 * cells))


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
    found = exact_sampling._uniform_below_64(
        np.array([3 * 2**61]), lambda size: np.array([next(words) for _ in range(size)], dtype=np.uint64)
    )
    assert found.tolist() == [(2**63 + 6) % (3 * 2**61)]


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
