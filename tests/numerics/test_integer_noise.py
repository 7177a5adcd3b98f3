"""The laws of integer noise and of its draws by inversion, to sixty digits."""

import math
from collections.abc import Callable
from decimal import Decimal, localcontext
from fractions import Fraction
from functools import partial

import numpy as np
import pytest
from flint import arb, ctx

from darrm.numerics.exact_sampling import discrete_gaussian, uniform_below
from darrm.numerics.integer_noise import (
    WIDEST,
    AsymmetricNoise,
    DiscreteGaussian,
    DiscreteLaplace,
    ExactInversion,
    IntegerNoise,
    bytes_from,
)
from tests.numerics.support import chi_square

NOISES = [
    DiscreteGaussian(0.7),
    DiscreteGaussian(123.4),
    DiscreteLaplace(0.3),
    AsymmetricNoise(right=4.1, left=8.3, right_power=3.0, left_power=2.5),
    AsymmetricNoise(right=0.5, left=2.0, right_power=1.0, left_power=3.0),
    AsymmetricNoise(right=777.7, left=333.3, right_power=2.25, left_power=1.5),
]
POINTS = np.arange(-3000, 3001, 7)


@pytest.mark.parametrize("noise", NOISES, ids=str)
def test_log_weights_are_within_their_relative_error(noise: IntegerNoise) -> None:
    with ctx.workprec(200):
        for log_weight, true in zip(
            noise.log_weights(POINTS).tolist(), noise.enclosed_log_weights(POINTS.tolist()), strict=True
        ):
            assert abs(arb(log_weight) - true) <= arb(2) ** -50 * abs(true)


@pytest.mark.parametrize("noise", NOISES, ids=str)
def test_noise_is_log_concave(noise: IntegerNoise) -> None:
    with ctx.workprec(200):
        logs = list(noise.enclosed_log_weights(range(-400, 401)))
        assert all(logs[n - 1] + logs[n + 1] <= 2 * logs[n] + 1e-40 for n in range(1, len(logs) - 1))


@pytest.mark.parametrize("noise", NOISES[3:], ids=str)
def test_deviation_of_asymmetric_noise_is_about_that_of_its_law(noise: AsymmetricNoise) -> None:
    points = np.arange(-20000, 20001)
    masses = np.exp(noise.log_weights(points))
    masses /= masses.sum()
    deviation = math.sqrt(masses @ points**2 - (masses @ points) ** 2)
    assert noise.deviation == pytest.approx(deviation, rel=0.01 if noise.right > 1 else 0.3)


def test_asymmetric_noise_with_equal_halves_is_a_gaussian() -> None:
    shaped = AsymmetricNoise(right=4.0, left=4.0, right_power=2.0, left_power=2.0)
    gaussian = DiscreteGaussian(4.0 / math.sqrt(2.0))
    points = np.arange(-50, 51)
    assert shaped.log_weights(points) == pytest.approx(gaussian.log_weights(points), rel=1e-14)
    assert shaped.deviation == pytest.approx(gaussian.deviation)


LAWS: dict[str, tuple[IntegerNoise, Callable[[int], Decimal]]] = {
    "Gaussian": (DiscreteGaussian(1.7), lambda x: -Decimal(x * x) / (2 * Decimal("1.7") ** 2)),
    "narrow Gaussian": (DiscreteGaussian(0.5), lambda x: -Decimal(2 * x * x)),
    "shaped": (
        AsymmetricNoise(right=1.5, left=3.25, right_power=3.0, left_power=2.5),
        lambda x: -((x / Decimal("1.5")) ** 3) if x >= 0 else -((-x / Decimal("3.25")) ** Decimal("2.5")),
    ),
    "Laplace": (DiscreteLaplace(0.3), lambda x: -Decimal("0.3") * abs(x)),
}


@pytest.fixture(params=LAWS)
def law(request: pytest.FixtureRequest) -> tuple[IntegerNoise, dict[int, Fraction]]:
    """A noise and its distribution function to sixty digits, by the decimal module."""
    noise, log_weight = LAWS[request.param]
    with localcontext() as context:
        context.prec = 70
        weights = {x: log_weight(x).exp() for x in range(-600, 601)}
        total, sums, below = sum(weights.values()), {}, Decimal(0)
        for x, weight in weights.items():
            below += weight
            sums[x] = Fraction(int(below / total * Decimal(10) ** 65), 10**65)
    return noise, sums


def script_bits(word: int, *more: int) -> Callable[[int], bytes]:
    """Bytes that make the first 64 bits of U this word, and the next 64 each of the others."""
    texts = [(word >> 48).to_bytes(2, "little"), (word << 16 & 2**64 - 1).to_bytes(8, "little")]
    texts += [one.to_bytes(8, "little") for one in more]

    def source(size: int) -> bytes:
        return texts.pop(0) if size else b""

    return source


def test_inversion_has_the_law_over_all_first_bits(law: tuple[IntegerNoise, dict[int, Fraction]]) -> None:
    noise, sums = law
    sampler = ExactInversion(noise)
    for filler in (b"\0", b"\xff"):
        texts = [np.arange(1, 2**16 - 1, dtype="<u2").tobytes()]  # without U = 0 and U = 1, which are never decided
        draws = sampler.draw(
            2**16 - 2,
            source=partial(lambda texts, filler, size: texts.pop() if texts else filler * size, texts, filler),
        )
        for x in range(-6, 7):
            # the prefixes that lead to at most x: 2^-16·prefix < F(x), or with all other bits one, the next still so
            expected = math.ceil(sums[x] * 2**16) if filler == b"\0" else math.floor(sums[x] * 2**16)
            assert np.count_nonzero(draws <= x) == min(max(expected, 1), 2**16 - 1) - 1


@pytest.mark.quick_cases(1)
def test_inversion_changes_at_its_boundaries_to_the_last_bit(law: tuple[IntegerNoise, dict[int, Fraction]]) -> None:
    noise, sums = law
    sampler = ExactInversion(noise)
    for x in range(-4, 4):
        first, second = divmod(math.floor(sums[x] * 2**128), 2**64)
        for words, draws in (
            ((first - 1,), x),
            ((first + 1,), x + 1),
            ((first, second - 1), x),
            ((first, second + 1), x + 1),
            ((first, 0), x),
            ((first, 2**64 - 1), x + 1),
        ):
            assert sampler.draw(1, source=script_bits(*words)).tolist() == [draws]
        third = math.floor(sums[x] * 2**192) % 2**64
        assert sampler.draw(1, source=script_bits(first, second, third - 1)).tolist() == [x]
        assert sampler.draw(1, source=script_bits(first, second, third + 1)).tolist() == [x + 1]


@pytest.mark.quick_cases(1)
def test_inversion_draws_tails_beyond_its_table(law: tuple[IntegerNoise, dict[int, Fraction]]) -> None:
    noise, sums = law
    sampler = ExactInversion(noise)
    deep = next(x for x in sums if sums[x] > Fraction(1, 2**90))
    first, second = divmod(math.floor(sums[deep] * 2**128), 2**64)
    assert first == 0
    assert sampler.draw(1, source=script_bits(0, second - 1)).tolist() == [deep]
    assert sampler.draw(1, source=script_bits(0, second + 1)).tolist() == [deep + 1]
    if isinstance(noise, AsymmetricNoise):
        return
    # the other laws are symmetric, and U and 1 − U fall on mirrored cells
    assert sampler.draw(1, source=script_bits(2**64 - 1, 2**64 - second)).tolist() == [-deep]


@pytest.mark.statistical
def test_inversion_and_rejection_have_one_law() -> None:
    # the statistic passes 7 with probability below 1e-6; power: 3 % more noise is always seen
    support = np.arange(-400, 401)
    sample = ExactInversion(DiscreteGaussian(40.0)).draw(200_000, source=bytes_from(np.random.default_rng(8)))
    assert chi_square(sample, -(support**2) / 3200.0, support) < 7
    assert chi_square(sample, -(support**2) / (3200.0 * 1.03**2), support) > 7
    # two samples of one size and one law: Σ (a − b)²/(a + b) is chi-square, with mean and half its variance the cells
    rejected = discrete_gaussian(Fraction(1600), sample.size, uniform_below(np.random.default_rng(9)))
    a, b = (np.bincount(np.clip(one + 120, 0, 240), minlength=241) for one in (sample, rejected))
    assert ((a - b) ** 2 / (a + b)).sum() < 241 + 7 * math.sqrt(2 * 241)


def test_draws_come_from_the_operating_system_without_a_generator() -> None:
    sampler = ExactInversion(DiscreteLaplace(0.01))
    assert sampler.draw(50).tolist() != sampler.draw(50).tolist()
    first, again = (sampler.draw(50, source=bytes_from(np.random.default_rng(5))).tolist() for _ in range(2))
    assert first == again
    assert sampler.draw(0).shape == (0,)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        *(
            (partial(AsymmetricNoise, *parameters), r"must be (in|a)")
            for parameters in (
                *((0.4, 1, 2, 2), (1, 5000, 2, 2), (1, 1, 0.9, 2), (1, 1, 2, 3.25), (1, 1, 2.3, 2)),
                *((math.nan, 1, 2, 2), (1, 1, math.nan, 2)),
            )
        ),
        (lambda: ExactInversion(DiscreteGaussian(WIDEST * 1.01)), "at most 1024 votes"),
        (lambda: ExactInversion(DiscreteLaplace(0.01)).draw(-1), "size must be"),
        (lambda: bytes_from(7), "a generator"),  # type: ignore[arg-type]
    ],
)
def test_integer_noise_refuses_parameters_out_of_range(call: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()
