"""The mechanisms' laws and their privacy: exact numbers of lattice steps, parameters of the noise, and frequencies."""

import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from darrm.loss.gaussian import concentrated_sigma
from darrm.privacy import PrivacyParams
from darrm.random_dp import mechanisms
from darrm.random_dp.bernstein import Bernstein, lattice
from darrm.random_dp.mechanisms import Exponential, Gaussian, Laplace, Posterior, choose_step, from_lattice, to_lattice

ONE = PrivacyParams(1)
BOTH = PrivacyParams(1, 1e-5)


def chi_square(counts: np.ndarray, probabilities: np.ndarray) -> float:
    expected = counts.sum() * probabilities
    return float(np.sum((counts - expected) ** 2 / expected))


@given(sensitivity=st.floats(1e-290, 1e300), coordinates=st.integers(1, 10_000))
def test_the_step_is_a_power_of_two_just_below_its_target(sensitivity: float, coordinates: int) -> None:
    step = choose_step(sensitivity, coordinates)
    assert step <= Fraction(sensitivity) / 1024 / coordinates < 2 * step
    assert min(step.numerator, step.denominator) == 1
    assert max(step.numerator, step.denominator).bit_count() == 1


@given(value=st.floats(-1e300, 1e300), sensitivity=st.floats(1e-300, 1e300))
def test_rounding_to_the_lattice_is_exact(value: float, sensitivity: float) -> None:
    step = choose_step(sensitivity, 1)
    assert int(to_lattice(np.array([value]), step)[0]) == round(Fraction(value) / step)


@given(
    values=st.lists(st.tuples(st.floats(-1e6, 1e6), st.floats(-1, 1)), min_size=1, max_size=6),
    sensitivity=st.floats(1e-6, 10.0),
)
def test_the_lattice_sensitivity_is_covered(values: list[tuple[float, float]], sensitivity: float) -> None:
    # move by at most Δ in L1: Δ/step + d steps in L1, Δ/step + √d in L2, Δ/step + 1 in the largest coordinate
    first, moves = np.array(values).T
    second = first + moves * sensitivity / max(1.0, float(np.abs(moves).sum()))
    exact = [abs(Fraction(float(a)) - Fraction(float(b))) for a, b in zip(first, second, strict=True)]
    assume(sum(exact) <= Fraction(sensitivity))
    d = len(values)
    step = choose_step(sensitivity, d)
    jumps = [abs(int(a) - int(b)) for a, b in zip(to_lattice(first, step), to_lattice(second, step), strict=True)]
    limit = Fraction(sensitivity) / step
    assert sum(jumps) <= limit + d
    assert math.hypot(*jumps) <= float(limit) + math.sqrt(d) * (1 + 1e-12)
    assert max(jumps) <= limit + 1


def test_the_ends_of_the_floats() -> None:
    assert choose_step(5e-324, 7) == Fraction(1, 2**1000)  # a tiny sensitivity gets the smallest step
    assert Laplace(ONE).release(1.5, 5e-324) == pytest.approx(1.5, abs=1e-280)
    assert Laplace(ONE).release([1e300, -1e300], 1e-9) == pytest.approx([1e300, -1e300])
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
    # the log of the largest ratio of two Laplace laws
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
    arguments = []

    def record(self: Exponential[int], _: np.ndarray, step: Fraction, scale: int, *_rest: object) -> int:
        arguments.append((step, scale))
        return self.candidates[0]

    monkeypatch.setattr(Exponential, "_choose", record)
    make(PrivacyParams(epsilon), (0, 1)).release([0.0, 1.0], sensitivity)
    ((step, scale),) = arguments
    least = 2 * (Fraction(sensitivity) / step + 1) / PrivacyParams(epsilon).exact_epsilon
    assert scale - 1 < least <= scale


@pytest.mark.statistical
@pytest.mark.parametrize("rng", [np.random.default_rng(1), None], ids=["seeded", "operating system"])
def test_laplace_noise_follows_its_law(rng: np.random.Generator | None) -> None:
    # |noise| ~ Exp(Δ/ε): quintiles; chi-square with 9 degrees of freedom, 57 at a false-alarm rate of 1e-8
    scale = 200.0 / 0.5
    draws = Laplace(PrivacyParams("0.5")).release(np.full(20_000, 2.0), 200.0, rng=rng) - 2.0
    edges = np.array([-math.inf, *(scale * np.log(2 * q) for q in (0.1, 0.2, 0.3, 0.4)), 0.0])
    counts, _ = np.histogram(draws, np.concatenate([edges, -edges[-2::-1]]))
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
def test_sensitivity_zero_releases_a_copy_of_the_value(mechanism: Laplace | Gaussian) -> None:
    value = np.array([1 / 3, -1e-300])
    released = mechanism.release(value, 0.0)
    assert (released == value).all()
    assert released is not value
    assert "no noise" in mechanism.describe_noise(0.0, None)
    assert "nothing is guaranteed" in mechanism.describe_noise(0.1, np.random.default_rng(0))
    assert "exactly from the operating system" in mechanism.describe_noise(0.1, None)


@pytest.mark.parametrize(("epsilon", "delta"), [(1, 1e-5), ("0.1", 1e-6), (4, 1e-3), (20, 1e-8), (1, 0.3)])
def test_the_gaussian_calibration_is_private_by_summing_the_law(epsilon: float | str, delta: float) -> None:
    # a discrete Gaussian and a shift of Δ = 40 steps: Σ max(0, p(x) − e^ε p(x − Δ)) ≤ δ
    privacy, shift = PrivacyParams(epsilon, delta), 40
    variance = math.ceil(shift**2 / (2 * concentrated_sigma(privacy).settings["rho"]))
    reach = int(60 * math.sqrt(variance)) + shift
    x = np.arange(-reach, reach + 1).astype(float)
    law, moved = (np.exp(-((x - center) ** 2) / (2 * variance)) for center in (0, shift))
    excess = float(np.sum(np.maximum(0.0, law / law.sum() - math.exp(privacy.epsilon) * moved / moved.sum())))
    assert delta * 0.05 <= excess <= delta


@pytest.mark.parametrize("epsilon", ["0.01", "0.1", "0.5", 1])
@pytest.mark.parametrize("delta", [1e-10, 1e-5, 1e-2])
def test_no_more_noise_than_corollary_12_where_it_holds(epsilon: float | str, delta: float) -> None:
    sigma = Gaussian(PrivacyParams(epsilon, delta)).noise_per_sensitivity
    assert sigma <= math.sqrt(2 * math.log(1.25 / delta)) / float(epsilon)


def test_corollary_12_fails_for_large_epsilon() -> None:
    # the reason for another calibration: continuous Gaussian noise, exact δ at ε = 10
    epsilon, delta = 10.0, 1e-2
    sigma = math.sqrt(2 * math.log(1.25 / delta)) / epsilon

    def tail(x: float) -> float:
        return 0.5 * math.erfc(x / math.sqrt(2))

    exact = tail(epsilon * sigma - 1 / (2 * sigma)) - math.exp(epsilon) * tail(epsilon * sigma + 1 / (2 * sigma))
    assert exact > delta
    assert Gaussian(PrivacyParams(10, 1e-2)).noise_per_sensitivity > sigma


@pytest.mark.statistical
@pytest.mark.parametrize(
    ("mechanism", "weights", "draws"),
    [
        (Posterior(ONE, tuple("abcd"), prior=(3, 1, 2, 1)), (3, 1, 2, 1), 600),
        pytest.param(Exponential(ONE, tuple("abcd")), (1, 1, 1, 1), 3000, marks=pytest.mark.slow),
    ],
)
def test_choices_follow_their_law(mechanism: Exponential[str], weights: tuple[int, ...], draws: int) -> None:
    # Corollary 13 up to the lattice; chi-square with 3 degrees of freedom: 40 at a false-alarm rate of 1e-8
    scores, rng = [0.0, 1.0, 2.5, -1.0], np.random.default_rng(3)
    choices = [mechanism.release(scores, 1.0, rng=rng) for _ in range(draws)]
    law = np.array(weights) * np.exp(np.array(scores) / 2)
    assert chi_square(np.array([choices.count(name) for name in "abcd"]), law / law.sum()) < 40


def test_the_exponential_mechanism_at_its_limits() -> None:
    mechanism = Exponential(ONE, (0, 1, 2))
    assert {mechanism.release([5.0, 1.0, 5.0], 0.0) for _ in range(60)} == {0, 2}
    assert {mechanism.release([-0.0, -1.0, 0.0], 0.0) for _ in range(60)} == {0, 2}
    for gap in (1e20, 1e300):  # beyond 64 bits
        assert mechanism.release([0.0, gap, 0.0], 1.0) == 1
    assert Exponential(ONE, ("only",)).release([3.0], 1.0) == "only"


def compute_posterior(
    scores: list[float], prior: list[int], sensitivity: float, monkeypatch: pytest.MonkeyPatch
) -> np.ndarray:
    """Compute the law from the arguments of the rejection sampler."""
    laws = []

    def record(
        self: Posterior[int], scores: np.ndarray, step: Fraction, scale: int, tickets: np.ndarray, _: object
    ) -> int:
        exponents = to_lattice(scores, step).astype(float) / scale
        weights = np.bincount(tickets, minlength=len(scores)) * np.exp(exponents - np.max(exponents))
        laws.append(weights / weights.sum())
        return self.candidates[0]

    with monkeypatch.context() as patch:
        patch.setattr(Posterior, "_choose", record)
        Posterior(ONE, tuple(range(len(scores))), prior=prior).release(scores, sensitivity)
    return np.asarray(laws[0])


@pytest.mark.parametrize(("sensitivity", "power"), [(0.0, 1.0), (0.1, 1.0), (0.5, 1.0), (1.0, 0.5), (4.0, 0.125)])
def test_the_posterior_is_tempered_only_as_far_as_privacy_needs(
    sensitivity: float, power: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    scores, prior = [-3.0, -1.25, -2.0, -9.0], [1, 5, 2, 7]
    ideal = np.array(prior) * np.exp(power * np.array(scores))
    law = compute_posterior(scores, prior, sensitivity, monkeypatch)
    assert law == pytest.approx(ideal / ideal.sum(), rel=0.01)
    assert "posterior sample" in Posterior(ONE, (0, 1)).describe_noise(0.0, None)


@pytest.mark.parametrize("sensitivity", [0.01, 0.3, 0.5, 0.6, 2.0, 300.0])
def test_the_posterior_is_private_for_any_prior(sensitivity: float, monkeypatch: pytest.MonkeyPatch) -> None:
    rng, worst = np.random.default_rng(7), 0.0
    for _ in range(40):
        prior, scores = rng.integers(1, 30, 4).tolist(), rng.normal(0.0, 2.0 * sensitivity, 4)
        moved = scores + sensitivity * (1 - 1e-12) * rng.choice([-1.0, 1.0], 4)
        one, two = (compute_posterior(list(each), prior, sensitivity, monkeypatch) for each in (scores, moved))
        worst = max(worst, float(np.max(np.abs(np.log(one) - np.log(two)))))
    assert 0.5 * min(1.0, 2.0 * sensitivity) < worst <= 1.0


def test_bernstein_releases_all_lattice_values_by_laplace_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    sensitivities = []

    def record(self: Laplace, value: np.ndarray, sensitivity: float, **_: object) -> np.ndarray:
        assert self.privacy == ONE
        sensitivities.append(sensitivity)
        return value

    monkeypatch.setattr(Laplace, "release", record)
    mechanism = Bernstein(ONE, size=3, order=2, dimension=2)
    function = mechanism.restriction(lambda data, points: points @ data)
    assert np.asarray(function([1.0, -2.0])) == pytest.approx(lattice(3, 2) @ [1.0, -2.0])
    released = mechanism.release(function([1.0, -2.0]), 0.25)
    assert 4.0 <= sensitivities[0] <= 4.0 * (1 + 1e-15)  # (3 + 1)² · 0.25
    assert released([[0.5, 0.25]]) == pytest.approx([0.0], abs=1e-12)
    assert "lattice points" in mechanism.describe_noise(0.1, None)


@pytest.mark.parametrize(
    ("call", "message"),
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
        (lambda: Bernstein(ONE, size=5).release([1.0, 2.0], 0.1), "one value a lattice point"),
        (lambda: Laplace(ONE).release([math.nan], 1.0), "value must be finite"),
        (lambda: Laplace(ONE).release([1.0], -1.0), "sensitivity must be"),
        (lambda: Laplace(ONE).release([1.0], math.inf), "sensitivity must be"),
        (lambda: Gaussian(BOTH).release([1.0], math.nan), "sensitivity must be"),
        (lambda: Exponential(ONE, (1, 2)).release([1.0], 1.0), "one score a candidate"),
        (lambda: Exponential(ONE, (1, 2)).release([1.0, math.inf], 1.0), "value must be finite"),
    ],
)
def test_refusals(call: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()
