"""The mechanisms' laws and their privacy, checked on whole-number laws and by enumeration."""

import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from darrm.loss.gaussian import concentrated_sigma
from darrm.numerics.exact_sampling import uniform_below
from darrm.privacy import PrivacyParams
from darrm.random_dp import mechanisms
from darrm.random_dp.bernstein import Bernstein, lattice
from darrm.random_dp.mechanisms import Exponential, Gaussian, Laplace, Posterior, choose_step, from_lattice, to_lattice

ONE = PrivacyParams(1)
BOTH = PrivacyParams(1, 1e-5)
SENSITIVITIES = st.floats(1e-300, 1e300)


def chi_square(counts: np.ndarray, probabilities: np.ndarray) -> float:
    expected = counts.sum() * probabilities
    return float(np.sum((counts - expected) ** 2 / expected))


@given(sensitivity=st.floats(1e-290, 1e300), coordinates=st.integers(1, 10_000))
def test_the_step_is_a_power_of_two_just_below_its_target(sensitivity: float, coordinates: int) -> None:
    step = choose_step(sensitivity, coordinates)
    target = Fraction(sensitivity) / 1024 / coordinates
    assert step <= target < 2 * step
    assert min(step.numerator, step.denominator) == 1
    assert max(step.numerator, step.denominator).bit_count() == 1


@given(value=st.floats(-1e300, 1e300), sensitivity=SENSITIVITIES)
def test_rounding_is_exact_and_to_the_nearest(value: float, sensitivity: float) -> None:
    step = choose_step(sensitivity, 1)
    count = int(to_lattice(np.array([value]), step)[0])
    assert abs(Fraction(value) - count * step) * 2 <= step
    assert count == round(Fraction(value) / step)


@given(
    values=st.lists(st.tuples(st.floats(-1e6, 1e6), st.floats(-1, 1)), min_size=1, max_size=6),
    sensitivity=st.floats(1e-6, 10.0),
)
def test_the_lattice_sensitivity_is_covered(values: list[tuple[float, float]], sensitivity: float) -> None:
    # move by at most Δ in L1 and count the steps: Δ/step + d in L1, Δ/step + √d in L2, Δ/step + 1 in the largest
    first = np.array([value for value, _ in values])
    moves = np.array([move for _, move in values])
    second = first + moves * sensitivity / max(1.0, float(np.abs(moves).sum()))
    exact = [abs(Fraction(float(a)) - Fraction(float(b))) for a, b in zip(first, second, strict=True)]
    assume(sum(exact) <= Fraction(sensitivity))
    d = len(values)
    step = choose_step(sensitivity, d)
    jumps = [abs(int(a) - int(b)) for a, b in zip(to_lattice(first, step), to_lattice(second, step), strict=True)]
    limit = Fraction(sensitivity) / step
    assert sum(jumps) <= limit + d
    assert math.sqrt(sum(jump * jump for jump in jumps)) <= float(limit) + math.sqrt(d) * (1 + 1e-12)
    assert max(jumps) <= limit + 1


def test_the_ends_of_the_floats() -> None:
    assert choose_step(5e-324, 7) == Fraction(1, 2**1000)  # a tiny sensitivity gets the smallest step
    assert Laplace(ONE).release(1.5, 5e-324) == pytest.approx(1.5, abs=1e-280)
    released = Laplace(ONE).release([1e300, -1e300], 1e-9, rng=np.random.default_rng(0))
    assert released == pytest.approx([1e300, -1e300])
    assert from_lattice([2**1100, -(2**1100)], Fraction(1)).tolist() == [math.inf, -math.inf]


@pytest.mark.parametrize(("epsilon", "sensitivity", "d"), [(1, 1.0, 1), ("0.1", 3.0, 4), (5, 0.001, 9)])
def test_added_noise_is_the_least_that_covers_the_lattice_sensitivity(
    epsilon: float | str, sensitivity: float, d: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    parameters = []

    def record(parameter: Fraction, size: int, _: object) -> np.ndarray:
        parameters.append(parameter)
        return np.zeros(size, dtype=np.int64)

    monkeypatch.setattr(mechanisms, "discrete_laplace", record)
    monkeypatch.setattr(mechanisms, "discrete_gaussian", record)
    pure, target = PrivacyParams(epsilon), PrivacyParams(epsilon, 1e-5)
    Laplace(pure).release(np.zeros(d), sensitivity)
    Gaussian(target).release(np.zeros(d), sensitivity)
    scale, variance = parameters
    steps = Fraction(sensitivity) / choose_step(sensitivity, d)
    # the log of the largest ratio of two Laplace laws, and no more noise than that
    assert (steps + d) / scale <= pure.exact_epsilon < (steps + d) / (scale - 1)
    rho = Fraction(concentrated_sigma(target).settings["rho"])
    root = Fraction(math.isqrt(d * 10**20), 10**10)  # at most √d
    assert variance * 2 * rho >= (steps + root) ** 2
    assert (variance - 1) * 2 * rho < (steps + root + 1) ** 2


@pytest.mark.parametrize("make", [Exponential, Posterior])
@pytest.mark.parametrize(("epsilon", "sensitivity"), [(1, 1.0), ("0.1", 3.0), (5, 40.0)])
def test_the_scale_of_choices_is_the_least_private_one(
    make: type[Exponential[int]], epsilon: float | str, sensitivity: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    handed = []

    def recorded(self: Exponential[int], _: np.ndarray, step: Fraction, scale: int, *_rest: object) -> int:
        handed.append((step, scale))
        return self.candidates[0]

    monkeypatch.setattr(Exponential, "_choose", recorded)
    make(PrivacyParams(epsilon), (0, 1)).release([0.0, 1.0], sensitivity)
    ((step, scale),) = handed
    needed = 2 * (Fraction(sensitivity) / step + 1) / PrivacyParams(epsilon).exact_epsilon
    assert scale - 1 < needed <= scale


@pytest.mark.statistical
def test_the_laplace_law() -> None:
    # |noise| ~ Exp(Δ/ε): quintiles; chi-square with 9 degrees of freedom, 57 at a false-alarm rate of 1e-8
    mechanism, scale = Laplace(PrivacyParams("0.5")), 200.0 / 0.5
    draws = mechanism.release(np.full(20_000, 2.0), 200.0, rng=np.random.default_rng(1)) - 2.0
    edges = np.array([-math.inf, *(scale * np.log(2 * q) for q in (0.1, 0.2, 0.3, 0.4)), 0.0])
    edges = np.concatenate([edges, -edges[-2::-1]])
    counts, _ = np.histogram(draws, edges)
    assert chi_square(counts, np.full(10, 0.1)) < 57


@pytest.mark.parametrize("mechanism", [Laplace(ONE), Gaussian(BOTH)])
@pytest.mark.parametrize("shape", [(), (3,), (2, 3), (0,)])
def test_a_release_has_the_values_shape_and_lies_on_the_lattice(
    mechanism: Laplace | Gaussian, shape: tuple[int, ...]
) -> None:
    released = mechanism.release(np.full(shape, 0.1), 0.3)
    assert released.shape == shape
    step = choose_step(0.3, max(1, released.size))
    assert all((Fraction(float(value)) / step).denominator == 1 for value in released.flat)


@pytest.mark.parametrize("mechanism", [Laplace(ONE), Gaussian(BOTH)])
def test_sensitivity_zero_releases_the_value_itself(mechanism: Laplace | Gaussian) -> None:
    value = np.array([1 / 3, -1e-300])
    released = mechanism.release(value, 0.0)
    assert (released == value).all()
    assert released is not value
    assert "no noise" in mechanism.describe_noise(0.0, None)
    assert "nothing is guaranteed" in mechanism.describe_noise(0.1, np.random.default_rng(0))
    assert "exactly from the operating system" in mechanism.describe_noise(0.1, None)


@pytest.mark.parametrize(("epsilon", "delta"), [(1, 1e-5), ("0.1", 1e-6), (4, 1e-3), (20, 1e-8), (1, 0.3)])
def test_the_gaussian_calibration_is_private_by_summing_the_law(epsilon: float | str, delta: float) -> None:
    # discrete Gaussian with a shift of Δ = 40 steps: Σ max(0, p(x) − e^ε p(x − Δ)) ≤ δ
    privacy = PrivacyParams(epsilon, delta)
    shift = 40
    variance = math.ceil(shift**2 / (2 * concentrated_sigma(privacy).settings["rho"]))
    reach = int(60 * math.sqrt(variance)) + shift
    x = np.arange(-reach, reach + 1)
    log_law = -(x.astype(float) ** 2) / (2 * variance)
    log_law -= np.log(np.sum(np.exp(log_law)))
    moved = -((x - shift).astype(float) ** 2) / (2 * variance)
    moved -= np.log(np.sum(np.exp(moved)))
    excess = float(np.sum(np.maximum(0.0, np.exp(log_law) - np.exp(privacy.epsilon + moved))))
    assert excess <= delta
    assert excess >= delta * 0.05  # the calibration wastes little


@pytest.mark.parametrize("epsilon", ["0.01", "0.1", "0.5", 1])
@pytest.mark.parametrize("delta", [1e-10, 1e-5, 1e-2])
def test_no_more_noise_than_corollary_12_where_it_holds(epsilon: float | str, delta: float) -> None:
    ours = Gaussian(PrivacyParams(epsilon, delta)).noise_per_sensitivity
    assert ours <= math.sqrt(2 * math.log(1.25 / delta)) / float(epsilon)


def test_corollary_12_fails_for_large_epsilon() -> None:
    # why the calibration departs from it: continuous Gaussian, exact δ at ε = 10
    epsilon, delta = 10.0, 1e-2
    sigma = math.sqrt(2 * math.log(1.25 / delta)) / epsilon

    def tail(x: float) -> float:
        return 0.5 * math.erfc(x / math.sqrt(2))

    exact = tail(epsilon * sigma - 1 / (2 * sigma)) - math.exp(epsilon) * tail(epsilon * sigma + 1 / (2 * sigma))
    assert exact > delta
    assert Gaussian(PrivacyParams(10, 1e-2)).noise_per_sensitivity > sigma


def exact_law(scores: list[float], sensitivity: float, epsilon: Fraction) -> np.ndarray:
    step = choose_step(sensitivity, 1)
    scale = math.ceil(2 * (Fraction(sensitivity) / step + 1) / epsilon)
    weights = np.array([math.exp(round(Fraction(score) / step) / scale) for score in scores])
    return np.asarray(weights / weights.sum())


@pytest.mark.slow
@pytest.mark.statistical
def test_the_exponential_law_by_enumeration() -> None:
    scores = [0.0, 1.0, 2.5, -1.0]
    mechanism = Exponential(ONE, tuple("abcd"))
    rng = np.random.default_rng(3)
    n = 3000
    chosen = [mechanism.release(scores, 1.0, rng=rng) for _ in range(n)]
    counts = np.array([chosen.count(name) for name in "abcd"])
    law = exact_law(scores, 1.0, Fraction(1))
    assert chi_square(counts, law) < 40  # 3 degrees of freedom: false-alarm rate 1e-8
    ideal = np.exp(np.array(scores) / 2)
    assert law == pytest.approx(ideal / ideal.sum(), rel=5e-3)  # Corollary 13 up to the lattice


@given(
    scores=st.lists(st.floats(-5, 5), min_size=2, max_size=5),
    moves=st.lists(st.sampled_from([-1.0, 0.0, 1.0]), min_size=5, max_size=5),
    sensitivity=st.floats(0.01, 3.0),
)
def test_the_exponential_law_is_private(scores: list[float], moves: list[float], sensitivity: float) -> None:
    moved = [score + move * sensitivity * (1 - 1e-12) for score, move in zip(scores, moves, strict=False)]
    one, two = (exact_law(list(values), sensitivity, Fraction(1)) for values in (scores, moved))
    assert np.max(np.abs(np.log(one) - np.log(two))) <= 1 + 1e-12


def test_exponential_at_the_limits() -> None:
    mechanism = Exponential(ONE, (0, 1, 2))
    assert {mechanism.release([5.0, 1.0, 5.0], 0.0) for _ in range(60)} == {0, 2}
    assert mechanism.release([0.0, 1e300, 0.0], 1.0) == 1  # a gap beyond 64 bits
    assert Exponential(ONE, ("only",)).release([3.0], 1.0) == "only"


def posterior_law(
    scores: list[float], prior: list[int], sensitivity: float, monkeypatch: pytest.MonkeyPatch
) -> np.ndarray:
    """Compute the law from what is handed to the rejection sampler."""
    laws = []

    def recorded(
        self: Posterior[int], scores: np.ndarray, step: Fraction, scale: int, tickets: np.ndarray, _: object
    ) -> int:
        exponents = to_lattice(scores, step).astype(float) / scale
        weights = np.bincount(tickets, minlength=len(scores)) * np.exp(exponents - np.max(exponents))
        laws.append(weights / weights.sum())
        return self.candidates[0]

    with monkeypatch.context() as patch:
        patch.setattr(Posterior, "_choose", recorded)
        Posterior(ONE, tuple(range(len(scores))), prior=prior).release(scores, sensitivity)
    (law,) = laws
    return np.asarray(law)


@pytest.mark.parametrize(("sensitivity", "power"), [(0.0, 1.0), (0.1, 1.0), (0.5, 1.0), (1.0, 0.5), (4.0, 0.125)])
def test_the_posterior_is_tempered_only_as_far_as_privacy_needs(
    sensitivity: float, power: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    scores, prior = [-3.0, -1.25, -2.0, -9.0], [1, 5, 2, 7]
    ideal = np.array(prior) * np.exp(power * np.array(scores))
    law = posterior_law(scores, prior, sensitivity, monkeypatch)
    assert law == pytest.approx(ideal / ideal.sum(), rel=0.01)


@pytest.mark.parametrize("sensitivity", [0.01, 0.3, 0.5, 0.6, 2.0, 300.0])
def test_the_posterior_is_private_for_any_prior(sensitivity: float, monkeypatch: pytest.MonkeyPatch) -> None:
    rng, worst = np.random.default_rng(7), 0.0
    for _ in range(40):
        prior = rng.integers(1, 30, 4).tolist()
        scores = rng.normal(0.0, 2.0 * sensitivity, 4)
        moved = scores + sensitivity * (1 - 1e-12) * rng.choice([-1.0, 1.0], 4)
        one, two = (posterior_law(list(each), prior, sensitivity, monkeypatch) for each in (scores, moved))
        worst = max(worst, float(np.max(np.abs(np.log(one) - np.log(two)))))
    assert 0.5 * min(1.0, 2.0 * sensitivity) < worst <= 1.0


@pytest.mark.statistical
def test_the_posterior_law() -> None:
    # chi-square with 2 degrees of freedom: 37 at a false-alarm rate of 1e-8
    mechanism, rng = Posterior(ONE, ("a", "b", "c"), prior=(3, 1, 2)), np.random.default_rng(4)
    chosen = [mechanism.release([-1.0, 0.0, -0.5], 1.0, rng=rng) for _ in range(600)]
    ideal = np.array([3.0, 1.0, 2.0]) * np.exp(np.array([-1.0, 0.0, -0.5]) / 2)
    assert chi_square(np.array([chosen.count(name) for name in "abc"]), ideal / ideal.sum()) < 37
    assert "posterior sample" in mechanism.describe_noise(0.0, None)


def test_bernstein_scales_the_sensitivity_to_all_lattice_points(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []

    def recorded(self: Laplace, value: np.ndarray, sensitivity: float, **_: object) -> np.ndarray:
        seen.append((self.privacy, sensitivity))
        return value

    monkeypatch.setattr(Laplace, "release", recorded)
    mechanism = Bernstein(ONE, size=3, order=2, dimension=2)
    released = mechanism.release(lattice(3, 2) @ [1.0, -2.0], 0.25)
    assert seen[0][0] == ONE
    assert 4.0 <= seen[0][1] <= 4.0 * (1 + 1e-15)  # (3 + 1)² · 0.25
    assert released([[0.5, 0.25]]) == pytest.approx([0.0], abs=1e-12)


def test_bernstein_restriction_and_noise() -> None:
    mechanism = Bernstein(ONE, size=5, order=3)
    function = mechanism.restriction(lambda data, points: points[:, 0] * sum(data))
    values = function([1, 2])
    assert np.asarray(values) == pytest.approx(3 * lattice(5).ravel())
    released = mechanism.release(values, 1e-9)
    assert released([0.3]) == pytest.approx([0.9], abs=1e-5)
    assert released([0.3])[0] != 0.9  # noise was added
    assert "lattice points" in mechanism.describe_noise(0.1, None)
    with pytest.raises(ValueError, match="one value a lattice point"):
        mechanism.release([1.0, 2.0], 0.1)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Laplace(PrivacyParams(0)), "epsilon must be a positive"),
        (lambda: Laplace(BOTH), "delta must be 0"),
        (lambda: Gaussian(ONE), "delta must be a positive"),
        (lambda: Gaussian(PrivacyParams(0, 1e-5)), "epsilon must be a positive"),
        (lambda: Exponential(BOTH, (1,)), "delta must be 0"),
        (lambda: Exponential(ONE, ()), "at least one candidate"),
        (lambda: Exponential(ONE, (1, 2)).scores([1]), "score must be a callable"),
        (lambda: Posterior(ONE, (1, 2), prior=(1, 0)), "prior of candidate 1 must be"),
        (lambda: Posterior(ONE, (1, 2), prior=(1,)), "one weight a candidate"),
        (lambda: Posterior(ONE, (1, 2), prior=(1, 10**6)), "one weight a candidate"),
        (lambda: Posterior(ONE, (1, 2)).release([1.0], 1.0), "one log-likelihood a candidate"),
        (lambda: Bernstein(BOTH, size=3), "delta must be 0"),
        (lambda: Bernstein(ONE, size=0), "size must be"),
        (lambda: Bernstein(ONE, size=3, order=0), "order must be"),
        (lambda: Bernstein(ONE, size=10, dimension=7), "coarser lattice"),
        (lambda: Laplace(ONE).release([math.nan], 1.0), "value must be finite"),
        (lambda: Laplace(ONE).release([1.0], -1.0), "sensitivity must be"),
        (lambda: Laplace(ONE).release([1.0], math.inf), "sensitivity must be"),
        (lambda: Gaussian(BOTH).release([1.0], math.nan), "sensitivity must be"),
        (lambda: Exponential(ONE, (1, 2)).release([1.0], 1.0), "one score a candidate"),
        (lambda: Exponential(ONE, (1, 2)).release([1.0, math.inf], 1.0), "value must be finite"),
    ],
)
def test_bad_arguments(make: Callable[[], object], words: str) -> None:
    with pytest.raises(ValueError, match=words) as info:
        make()
    assert "\n" not in str(info.value)


def test_the_seeded_source_handles_large_numbers() -> None:
    below = uniform_below(np.random.default_rng(0))
    limits = np.array([2**100] * 200, dtype=object)
    draws = below(limits)
    assert all(0 <= draw < 2**100 for draw in draws)
    assert abs(float(np.mean(draws.astype(float))) / 2.0**99 - 1) < 6 / math.sqrt(3 * 200)


@pytest.mark.statistical
def test_the_operating_system_draws_the_same_law() -> None:
    draws = Laplace(ONE).release(np.zeros(20_000), 20_000.0)
    # E|x| = b, with a standard deviation of b/√n: 6 deviations
    assert abs(np.mean(np.abs(draws)) / 20_000.0 - 1) < 6 / math.sqrt(20_000) + 2**-9
    assert abs(np.mean(draws) / 20_000.0) < 6 * math.sqrt(2 / 20_000)
