"""The sampler on functions whose sensitivity is known, on failing ones, over processes; and releases with it."""

import io
import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import joblib
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from joblib.parallel import ThreadingBackend, register_parallel_backend
from scipy.special import bdtr

from darrm.errors import SamplingError
from darrm.privacy import PrivacyParams
from darrm.random_dp.bernstein import Bernstein
from darrm.random_dp.mechanisms import Exponential, Gaussian, Laplace
from darrm.random_dp.sensitivity_sampler import (
    NORMS,
    Execution,
    Function,
    RecordSampler,
    SensitivitySampler,
    compute_norm,
    compute_order_statistic,
    count_records,
    make_neighbors,
    respond,
    sample_then_respond,
    to_finite_floats,
)
from darrm.util import progress
from tests.exhaustive import EXHAUSTIVE

FALSE_ALARM = 1e-6
ONE = PrivacyParams(1)
DATA = np.linspace(0.0, 1.0, 30)
NUMBERS = st.floats(-1e150, 1e150)


def exponential(rng: np.random.Generator, count: int) -> np.ndarray:
    return rng.exponential(size=count)


MEAN = SensitivitySampler(np.mean, exponential, "l1", distribution="Exp(1)")


def likely(successes: int, trials: int, probability: float) -> bool:
    """Whether so few successes, or fewer, are more likely than the false-alarm rate."""
    return float(bdtr(successes, trials, probability)) > FALSE_ALARM


def test_the_estimate_is_the_order_statistic_of_the_measurements() -> None:
    found = MEAN.estimate(20, gamma=0.2, m=150, seed=5)
    values = MEAN.measure(20, 150, seed=5)
    assert found.value == np.sort(values)[found.size.k - 1]
    assert found.largest == values.max()
    assert (found.records, found.norm, found.shape, found.seed) == (20, "l1", (), 5)
    assert "rank" in str(found)


def test_measurements_are_those_of_the_replayed_pairs() -> None:
    values = MEAN.measure(8, 5, seed=9)
    for index, value in enumerate(values):
        first, second = MEAN.replay(8, seed=9, index=index)
        assert (first[:-1] == second[:-1]).all()
        assert first[-1] != second[-1]
        assert value == pytest.approx(abs(np.mean(first) - np.mean(second)), rel=1e-12)
    assert len(set(values)) == 5


@pytest.mark.parametrize("batch_size", [1, 7, 1000])
def test_neither_batches_nor_threads_change_anything(batch_size: int) -> None:
    expected = MEAN.measure(10, 60, seed=3)
    for backend in ({}, {"jobs": 2, "backend": "threading"}):
        execution = Execution(batch_size=batch_size, **backend)  # type: ignore[arg-type]
        assert (MEAN.measure(10, 60, seed=3, execution=execution) == expected).all()


@pytest.mark.slow
def test_processes_change_nothing() -> None:
    expected = MEAN.measure(10, 60, seed=3)
    assert (MEAN.measure(10, 60, seed=3, execution=Execution(jobs=2, batch_size=8)) == expected).all()


def test_the_ambient_joblib_backend_is_used() -> None:
    used = []

    class Recording(ThreadingBackend):  # type: ignore[misc] # joblib ships no types
        def effective_n_jobs(self, n_jobs: int | None) -> Any:
            used.append(n_jobs)
            return super().effective_n_jobs(n_jobs)

    register_parallel_backend("recording", Recording)
    with joblib.parallel_config(backend="recording", n_jobs=2):
        values = MEAN.measure(10, 40, seed=3, execution=Execution(jobs=None, batch_size=4))
    assert used
    assert (values == MEAN.measure(10, 40, seed=3)).all()


def test_seeds_and_few_records() -> None:
    assert all(MEAN.estimate(records, gamma=0.3, seed=4).value > 0 for records in (1, 2))
    assert MEAN.estimate(5, gamma=0.5).seed != MEAN.estimate(5, gamma=0.5).seed
    assert (MEAN.measure(5, 9, seed=1) != MEAN.measure(5, 9, seed=2)).all()


def test_a_running_estimate_can_be_read_but_not_changed() -> None:
    reports: list[np.ndarray] = []

    def spoil(values: np.ndarray) -> None:
        reports.append(values.copy())
        values[:] = 0.0

    found = MEAN.estimate(5, gamma=0.3, m=100, seed=1, execution=Execution(batch_size=30, report=spoil))
    assert [report.size for report in reports] == [30, 60, 90, 100]
    assert all((report == reports[-1][: report.size]).all() for report in reports)
    assert (compute_order_statistic(reports[-1], found.size.k), reports[-1].max()) == (found.value, found.largest)


def test_a_progress_bar_on_standard_error(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "LOGGED_AFTER_SECONDS", 0.0)
    MEAN.measure(5, 64, seed=1, execution=Execution(progress=True))
    captured = capsys.readouterr()
    assert "64/64" in captured.err
    assert captured.out == ""


def test_lists_and_tuples_of_arrays() -> None:
    words = SensitivitySampler(
        lambda data: [data.count("a"), len(data)], lambda rng, count: ["a" if rng.random() < 0.5 else "b"] * count, "l1"
    )
    assert (words.measure(6, 20, seed=1) == 0).all()  # each draw repeats one letter

    def rows(rng: np.random.Generator, count: int) -> tuple[np.ndarray, np.ndarray]:
        return rng.random((count, 2)), rng.integers(0, 2, count)

    weighted = SensitivitySampler(lambda data: data[1] @ data[0] / len(data[1]), rows, "sup")
    assert 0 < weighted.estimate(10, gamma=0.3, seed=1).value <= 0.1 * (1 + 1e-12)


def test_a_random_position_sees_what_the_last_one_cannot() -> None:
    def first_record(data: np.ndarray) -> float:
        return float(data[0])

    assert (SensitivitySampler(first_record, exponential, "l1").measure(4, 200, seed=2) == 0).all()
    moved = SensitivitySampler(first_record, exponential, "l1", position="random").measure(4, 600, seed=2)
    share = int(np.count_nonzero(moved))
    assert likely(share, 600, 0.25)
    assert likely(600 - share, 600, 0.75)


def test_a_function_that_changes_its_argument_is_harmless() -> None:
    def rude(data: np.ndarray) -> float:
        total = float(data.sum())
        data[:] = 0.0
        return total

    polite = SensitivitySampler(lambda data: float(data.sum()), exponential, "l1")
    assert (SensitivitySampler(rude, exponential, "l1").measure(5, 20, seed=1) == polite.measure(5, 20, seed=1)).all()


LIMIT = 5.0


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (lambda data: 1 // 0 if data[-1] > LIMIT else 0.0, "ZeroDivisionError: "),
        (lambda data: math.nan if data[-1] > LIMIT else 0.0, "nan"),
        (lambda data: [0.0] * (1 + int(data[-1] > LIMIT)), "shape"),
    ],
)
@pytest.mark.parametrize("jobs", [1, 2])
def test_failures_name_the_draw_and_can_be_replayed(function: Function, words: str, jobs: int) -> None:
    sampler = SensitivitySampler(function, exponential, "l1", distribution="Exp(1)")
    execution = Execution(jobs=jobs, backend="threading" if jobs > 1 else None, batch_size=16)
    with pytest.raises(SamplingError, match=words) as info:
        sampler.estimate(3, gamma=0.05, seed=11, execution=execution)
    error = info.value
    assert error.seed == 11
    assert f"index={error.index}" in str(error)
    assert "\n" not in str(error)
    largest = [max(data[-1] for data in sampler.replay(3, error.seed, index)) for index in range(error.index + 1)]
    assert [value > LIMIT for value in largest] == [False] * error.index + [True]


@pytest.mark.parametrize("batch_size", [1, 32])
def test_a_shape_that_changes_between_draws(batch_size: int) -> None:
    sampler = SensitivitySampler(lambda data: np.zeros(1 + int(data[0] > 1)), exponential, "l1")
    with pytest.raises(SamplingError, match="where an earlier draw had") as info:
        sampler.measure(3, 200, seed=1, execution=Execution(batch_size=batch_size))
    large = [sampler.replay(3, 1, index)[0][0] > 1 for index in range(info.value.index + 1)]
    assert set(large[:-1]) == {not large[-1]}


def test_an_overflowing_difference_is_reported() -> None:
    sampler = SensitivitySampler(lambda data: 1.7e308 * (1 if data[-1] > 1 else -1), exponential, "l1")
    with pytest.raises(SamplingError, match="inf"):
        sampler.measure(3, 50, seed=1)


def test_a_sampler_that_gives_too_few_records() -> None:
    with pytest.raises(SamplingError, match="6 records, as it was asked for"):
        SensitivitySampler(np.mean, lambda rng, count: rng.random(count - 1), "l1").measure(5, 3, seed=1)


def test_names_of_distributions() -> None:
    assert SensitivitySampler(np.mean, exponential, "l1").distribution.endswith("exponential")
    anonymous = [SensitivitySampler(np.mean, lambda rng, count: rng.random(count), "l1").distribution for _ in range(2)]
    assert anonymous[0] != anonymous[1]


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: SensitivitySampler(None, exponential, "l1"), "function must be callable"),  # type: ignore[arg-type]
        (lambda: SensitivitySampler(np.mean, 3, "l1"), "sampler must be callable"),  # type: ignore[arg-type]
        (lambda: SensitivitySampler(np.mean, exponential, "l3"), "norm must be one of l1, l2, sup"),
        (lambda: SensitivitySampler(np.mean, exponential, "l1", position="first"), "position must be"),
        (lambda: Execution(jobs=0), "jobs must be"),
        (lambda: Execution(batch_size=0), "batch_size must be"),
        (lambda: MEAN.estimate(0, gamma=0.1), "records must be an integer"),
        (lambda: MEAN.estimate(5), "at least one of them"),
        (lambda: MEAN.estimate(5, gamma=0.1, seed=-1), "seed must be"),
        (lambda: MEAN.estimate(5, gamma=0.1, rule="hope"), "rule must be one of"),
        (lambda: MEAN.measure(5, 0), "m must be"),
    ],
)
def test_bad_arguments(call: Callable[[], object], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        call()


# the mean of 25 exponential records moves by Exp(25); one Cauchy record moves by |Cauchy(0, 2)|
LAWS: dict[str, tuple[int, Function, RecordSampler, Callable[[float], float]]] = {
    "exponential mean": (25, np.mean, exponential, lambda g: -math.expm1(-25 * g)),
    "cauchy": (
        1,
        lambda data: data[-1],
        lambda rng, count: rng.standard_cauchy(count),
        lambda g: 2 / math.pi * math.atan(g / 2),
    ),
}


@pytest.mark.slow
@pytest.mark.statistical
@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("point", [{"gamma": 0.2}, {"gamma": 0.25, "m": 120}, {"m": 60}])
def test_coverage_is_as_promised_at_every_operating_point(law: str, point: dict[str, float]) -> None:
    # Theorem 15: but for a share ρ of the samples, Φ(Δ̂) ≥ 1 − γ + ρ; over all of them, Pr(G ≤ Δ̂) ≥ 1 − γ
    records, function, draw, distribution = LAWS[law]
    sampler = SensitivitySampler(function, draw, "l1", distribution=law)
    repeats = 1000 if EXHAUSTIVE else 400
    found = [sampler.estimate(records, **point, seed=repeat) for repeat in range(repeats)]  # type: ignore[arg-type]
    size = found[0].size
    covered = [distribution(result.value) for result in found]
    assert likely(sum(share >= 1 - size.gamma + size.rho for share in covered), repeats, 1 - size.rho)
    fresh = sampler.measure(records, repeats, seed=repeats)
    inside = sum(value <= result.value for value, result in zip(fresh, found, strict=True))
    assert likely(inside, repeats, 1 - size.gamma)


@pytest.mark.slow
@pytest.mark.statistical
@pytest.mark.parametrize("law", LAWS)
def test_exchangeable_coverage_is_exact(law: str) -> None:
    records, function, draw, _ = LAWS[law]
    sampler = SensitivitySampler(function, draw, "l1", distribution=law)
    repeats = 400
    found = [sampler.estimate(records, gamma=0.2, m=9, rule="exchangeability", seed=seed) for seed in range(repeats)]
    fresh = sampler.measure(records, repeats, seed=repeats)
    inside = sum(value <= result.value for value, result in zip(fresh, found, strict=True))
    assert found[0].size.k == 8
    assert likely(inside, repeats, 0.8)  # k/(m + 1)
    assert likely(repeats - inside, repeats, 0.2)


@pytest.mark.parametrize("make", [list, np.array, lambda values: (np.array(values), np.array(values) * 2)])
def test_neighbors_share_all_records_but_one(make: object) -> None:
    draws = make([1, 2, 3, 4])  # type: ignore[operator]
    for position in range(3):
        first, second = make_neighbors(draws, position)
        assert count_records(first) == count_records(second) == 3
        columns = zip(first, second, strict=True) if isinstance(draws, tuple) else [(first, second)]
        for one, two in columns:
            assert [index for index in range(3) if one[index] != two[index]] == [position]


def test_neighbors_are_copies() -> None:
    draws = np.arange(4.0)
    first, second = make_neighbors(draws, 0)
    first[:] = -1
    assert second.tolist() == [3, 1, 2]
    assert draws.tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("bad", [(), (np.zeros(2), np.zeros(3)), 5])
def test_what_is_no_data_set(bad: object) -> None:
    with pytest.raises(ValueError, match="records must be"):
        count_records(bad)


@given(arrays(np.float64, st.integers(1, 40), elements=NUMBERS))
def test_norms_are_never_below_the_exact_ones(difference: np.ndarray) -> None:
    exact = [abs(Fraction(float(x))) for x in difference]
    square = sum(x * x for x in exact)
    assert Fraction(compute_norm(difference, "l1")) >= sum(exact)
    assert Fraction(compute_norm(difference, "l2")) ** 2 >= square
    assert Fraction(compute_norm(difference, "sup")) >= max(exact)
    assert Fraction(compute_norm(difference, "l1")) <= sum(exact) * (1 + Fraction(1, 10**13)) + Fraction(1, 10**300)
    assert Fraction(compute_norm(difference, "l2")) ** 2 <= square * (1 + Fraction(1, 10**13)) + Fraction(1, 10**300)


def test_norms_at_the_limits() -> None:
    for name in NORMS:
        assert compute_norm(np.zeros(3), name) == 0.0
        assert compute_norm(np.zeros(0), name) == 0.0
        assert compute_norm(np.array([1e-200, 0.0]), name) >= 1e-200
        with pytest.raises(ValueError, match="finite"):
            compute_norm(np.array([math.inf]), name)
    assert compute_norm(np.full(4, 1e200), "l2") == pytest.approx(2e200)


def test_a_callable_norm() -> None:
    assert compute_norm(np.array([3.0, -1.0]), lambda d: float(d[0])) == 3.0
    with pytest.raises(ValueError, match="at least 0"):
        compute_norm(np.array([-3.0]), lambda d: float(d[0]))
    with pytest.raises(ValueError, match="nan"):
        compute_norm(np.array([-3.0]), lambda _: math.nan)
    with pytest.raises(ValueError, match="norm must be one of l1, l2, sup"):
        SensitivitySampler(np.mean, np.random.Generator.random, "L1")


@pytest.mark.parametrize("bad", [math.nan, [1.0, math.inf], "text", [[1], [2, 3]], 1j, None])
def test_values_that_are_no_finite_numbers(bad: object) -> None:
    with pytest.raises(ValueError, match=r"function's value|inhomogeneous"):
        to_finite_floats(bad)


def test_values_become_floats() -> None:
    assert to_finite_floats(True) == 1.0
    assert to_finite_floats(np.array([1, 2], dtype=np.int8)).dtype == np.float64


def uniform(rng: np.random.Generator, count: int) -> np.ndarray:
    return rng.random(count)


def test_the_release_is_the_mechanisms_with_the_sampled_sensitivity() -> None:
    sampler = SensitivitySampler(np.mean, uniform, "l1", distribution="U[0, 1]")
    answer = sample_then_respond(DATA, Laplace(ONE), sampler, gamma=0.2, seed=1, rng=np.random.default_rng(5))
    again = Laplace(ONE).release(np.mean(DATA), answer.sensitivity.value, rng=np.random.default_rng(5))
    assert answer.value == again
    assert answer.sensitivity == sampler.estimate(30, gamma=0.2, seed=1)
    assert answer.guarantee.on_covered_pairs == ONE
    assert answer.guarantee.gamma == 0.2
    assert (answer.guarantee.records, answer.guarantee.distribution) == (30, "U[0, 1]")
    assert "experiments only" in answer.guarantee.noise


def test_a_sensitivity_is_reused_for_the_same_function_only() -> None:
    sampler = SensitivitySampler(np.mean, uniform, "l1")
    found = sampler.estimate(30, gamma=0.3, seed=1)
    answer = respond(DATA, Laplace(ONE), sampler, found)
    assert "exactly from the operating system" in answer.guarantee.noise
    with pytest.raises(ValueError, match="number of records must be 29"):
        respond(DATA[1:], Laplace(ONE), sampler, found)
    with pytest.raises(ValueError, match="distribution must be"):
        respond(DATA, Laplace(ONE), SensitivitySampler(np.mean, uniform, "l1", distribution="other"), found)
    with pytest.raises(ValueError, match="shape of the function's value"):
        respond(DATA, Laplace(ONE), SensitivitySampler(lambda data: data[:2], uniform, "l1"), found)
    with pytest.raises(ValueError, match="norm must be 'l2'"):
        respond(DATA, Gaussian(PrivacyParams(1, 1e-5)), sampler, found)
    with pytest.raises(ValueError, match="the sampler's norm must be 'l2', as the mechanism needs, got 'l1'"):
        sample_then_respond(DATA, Gaussian(PrivacyParams(1, 1e-5)), sampler, gamma=0.2)


def test_every_mechanism_responds() -> None:
    gaussian = SensitivitySampler(lambda data: [data.mean(), data.std()], uniform, "l2")
    assert sample_then_respond(DATA, Gaussian(PrivacyParams(1, 1e-5)), gaussian, gamma=0.4).value.shape == (2,)
    choice = Exponential(ONE, (0.25, 0.5, 0.75), score=lambda data, r: -abs(float(np.median(data)) - r))
    scored = SensitivitySampler(choice.scores, uniform, "sup")
    assert sample_then_respond(DATA, choice, scored, gamma=0.4).value in (0.25, 0.5, 0.75)
    curve = Bernstein(ONE, size=4, order=2)
    cdf = SensitivitySampler(curve.restriction(lambda data, points: (data <= points).mean(axis=1)), uniform, "sup")
    released = sample_then_respond(DATA, curve, cdf, gamma=0.4)
    assert released.value(np.linspace(0, 1, 5)).shape == (5,)


def test_a_constant_function_is_released_as_it_is_and_the_guarantee_says_so() -> None:
    sampler = SensitivitySampler(lambda _: 7.0, uniform, "l1")
    with pytest.warns(UserWarning, match=r"the sampled sensitivity is 0, so no noise is added.* a share 0\.3 at most"):
        answer = sample_then_respond(DATA, Laplace(ONE), sampler, gamma=0.3)
    assert answer.value == 7.0
    assert "no noise: the sampled sensitivity is 0" in answer.guarantee.noise


def test_a_failure_on_the_real_data_is_reported() -> None:
    sampler = SensitivitySampler(lambda data: np.log(data[0]) if data[0] > 0 else np.nan, uniform, "l1")
    with pytest.raises(ValueError, match="function's value must be finite"):
        sample_then_respond(DATA, Laplace(ONE), sampler, gamma=0.4)


@pytest.mark.filterwarnings("ignore:the sampled sensitivity is 0")
@pytest.mark.parametrize(
    "function",
    [
        lambda data: np.rint(np.mean(data)),  # 0.0 or -0.0
        lambda data: np.zeros(3) * (1.0 if data[0] < 0 else -1.0),
        lambda data: np.ones((2, 3), order="F" if data[0] < 0 else "C"),
        lambda data: np.ones(2, dtype=np.float32 if data[0] < 0 else np.int8),
        lambda data: np.longdouble(1.0) + (np.longdouble(2.0) ** -60 if data[0] < 0 else 0),
        lambda data: 2**53 + int(data[0] < 0),  # one float
        lambda data: np.ones((3, 2)).T if data[0] < 0 else np.ones((2, 3)),
        lambda data: [True] if data[0] < 0 else (1.0,),
        lambda data: np.ma.array([1.0, 2.0], mask=[data[0] < 0, False]),
    ],
)
def test_at_sensitivity_zero_covered_pairs_give_the_same_bytes(function: Callable[[Any], Any]) -> None:
    sampler = SensitivitySampler(function, lambda rng, count: rng.uniform(-0.4, 0.4, count), "l1", distribution="U")
    sampled = sampler.estimate(3, gamma=0.2, seed=1)
    assert sampled.value == 0.0
    seen = set()
    for index in range(40):
        value = respond(sampler.replay(3, 9, index)[0], Laplace(ONE), sampler, sampled).value
        buffer = io.BytesIO()
        np.save(buffer, value)
        seen.add((buffer.getvalue(), type(value), value.strides))
    assert len(seen) == 1


@pytest.mark.parametrize("mechanism", [Laplace(ONE), Gaussian(PrivacyParams(1, 1e-5)), Bernstein(ONE, size=1)])
def test_minus_zero_is_released_as_zero(mechanism: Any) -> None:
    released = mechanism.release([-0.0, 0.0], 0.0)
    assert not np.signbit(getattr(released, "values", released)).any()


def test_the_exponential_mechanism_chooses_between_equal_zeros() -> None:
    assert {Exponential(ONE, (0, 1)).release([-0.0, 0.0], 0.0) for _ in range(60)} == {0, 1}
