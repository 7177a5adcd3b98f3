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
    Execution,
    Function,
    RecordSampler,
    SensitivitySampler,
    compute_norm,
    count_records,
    make_neighbors,
    respond,
    sample_then_respond,
    to_finite_floats,
)
from darrm.util import progress
from tests.exhaustive import EXHAUSTIVE

FALSE_ALARM = 1e-6
ONE, BOTH = PrivacyParams(1), PrivacyParams(1, 1e-5)
DATA = np.linspace(0.0, 1.0, 30)


def exponential(rng: np.random.Generator, count: int) -> np.ndarray:
    return rng.exponential(size=count)


def uniform(rng: np.random.Generator, count: int) -> np.ndarray:
    return rng.random(count)


MEAN = SensitivitySampler(np.mean, exponential, "l1", distribution="Exp(1)")
UNIFORM_MEAN = SensitivitySampler(np.mean, uniform, "l1", distribution="U[0, 1]")


def is_likely(successes: int, trials: int, probability: float) -> bool:
    """Whether so few successes, or fewer, are more likely than the false-alarm rate."""
    return float(bdtr(successes, trials, probability)) > FALSE_ALARM


def test_the_estimate_is_the_order_statistic_of_the_measurements() -> None:
    estimate = MEAN.estimate(20, gamma=0.2, m=150, seed=5)
    values = MEAN.measure(20, 150, seed=5)
    assert estimate.value == np.sort(values)[estimate.size.k - 1]
    assert estimate.largest == values.max()
    assert (estimate.records, estimate.norm, estimate.shape, estimate.seed) == (20, "l1", (), 5)
    assert "rank" in str(estimate)
    assert all(MEAN.estimate(records, gamma=0.3, seed=4).value > 0 for records in (1, 2))
    assert MEAN.estimate(5, gamma=0.5).seed != MEAN.estimate(5, gamma=0.5).seed


def test_measurements_are_those_of_the_replayed_pairs() -> None:
    values = MEAN.measure(8, 5, seed=9)
    for index, value in enumerate(values):
        first, second = MEAN.replay(8, seed=9, index=index)
        assert (first[:-1] == second[:-1]).all()
        assert first[-1] != second[-1]
        assert value == pytest.approx(abs(np.mean(first) - np.mean(second)), rel=1e-12)
    assert len(set(values)) == 5


@pytest.mark.parametrize(
    "execution",
    [
        *(Execution(batch_size=size) for size in (1, 7, 1000)),
        Execution(batch_size=7, jobs=2, backend="threading"),
        pytest.param(Execution(batch_size=8, jobs=2), marks=pytest.mark.slow),
    ],
    ids=str,
)
def test_neither_batches_nor_workers_change_anything(execution: Execution) -> None:
    assert (MEAN.measure(10, 60, seed=0, execution=execution) == MEAN.measure(10, 60, seed=0)).all()
    assert (MEAN.measure(10, 60, seed=1) != MEAN.measure(10, 60, seed=0)).all()


def test_the_ambient_joblib_backend_is_used() -> None:
    calls = []

    class Recording(ThreadingBackend):  # type: ignore[misc] # joblib ships no types
        def effective_n_jobs(self, n_jobs: int | None) -> Any:
            calls.append(n_jobs)
            return super().effective_n_jobs(n_jobs)

    register_parallel_backend("recording", Recording)
    with joblib.parallel_config(backend="recording", n_jobs=2):
        values = MEAN.measure(10, 40, seed=3, execution=Execution(jobs=None, batch_size=4))
    assert calls
    assert (values == MEAN.measure(10, 40, seed=3)).all()


def test_a_report_gets_copies_of_all_values_so_far(capsys: pytest.CaptureFixture[str]) -> None:
    reports: list[np.ndarray] = []

    def spoil(values: np.ndarray) -> None:
        reports.append(values.copy())
        values[:] = 0.0

    values = MEAN.measure(5, 100, seed=1, execution=Execution(batch_size=30, report=spoil))
    assert [report.size for report in reports] == [30, 60, 90, 100]
    assert all((report == values[: report.size]).all() for report in reports)
    assert capsys.readouterr().err == ""


def test_a_progress_bar_on_standard_error(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "LOGGED_AFTER_SECONDS", 0.0)
    MEAN.measure(5, 64, seed=1, execution=Execution(progress=True))
    output = capsys.readouterr()
    assert "64/64" in output.err
    assert output.out == ""


@pytest.mark.statistical
def test_a_random_position_sees_what_the_last_one_cannot() -> None:
    def first_record(data: np.ndarray) -> float:
        return float(data[0])

    assert (SensitivitySampler(first_record, exponential, "l1").measure(4, 200, seed=2) == 0).all()
    moved = SensitivitySampler(first_record, exponential, "l1", position="random").measure(4, 600, seed=2)
    count = int(np.count_nonzero(moved))
    assert is_likely(count, 600, 0.25)
    assert is_likely(600 - count, 600, 0.75)


LIMIT = 5.0


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda data: 1 // 0 if data[-1] > LIMIT else 0.0, "ZeroDivisionError: "),
        (lambda data: math.nan if data[-1] > LIMIT else 0.0, "nan"),
        (lambda data: 1.7e308 if data[-1] > LIMIT else -1.7e308, "inf"),
        (lambda data: [0.0] * (1 + int(data[-1] > LIMIT)), "shape"),
    ],
)
@pytest.mark.parametrize("jobs", [1, 2])
def test_failures_name_the_draw_and_can_be_replayed(function: Function, message: str, jobs: int) -> None:
    sampler = SensitivitySampler(function, exponential, "l1", distribution="Exp(1)")
    execution = Execution(jobs=jobs, backend="threading" if jobs > 1 else None, batch_size=16)
    with pytest.raises(SamplingError, match=message) as caught:
        sampler.estimate(3, gamma=0.05, seed=11, execution=execution)
    error = caught.value
    assert error.seed == 11
    assert f"index={error.index}" in str(error)
    assert "\n" not in str(error)
    largest = [max(data[-1] for data in sampler.replay(3, error.seed, index)) for index in range(error.index + 1)]
    assert [value > LIMIT for value in largest] == [False] * error.index + [True]


@pytest.mark.parametrize("batch_size", [1, 32])
def test_a_shape_must_not_change_between_draws(batch_size: int) -> None:
    sampler = SensitivitySampler(lambda data: np.zeros(1 + int(data[0] > 1)), exponential, "l1")
    with pytest.raises(SamplingError, match="where an earlier draw had") as caught:
        sampler.measure(3, 200, seed=1, execution=Execution(batch_size=batch_size))
    is_large = [sampler.replay(3, 1, index)[0][0] > 1 for index in range(caught.value.index + 1)]
    assert set(is_large[:-1]) == {not is_large[-1]}


def test_a_distribution_has_the_name_of_its_sampler_or_a_random_one() -> None:
    assert SensitivitySampler(np.mean, exponential, "l1").distribution.endswith("exponential")
    anonymous = [SensitivitySampler(np.mean, lambda rng, count: rng.random(count), "l1").distribution for _ in range(2)]
    assert anonymous[0] != anonymous[1]


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
@pytest.mark.parametrize(
    "options",
    [{"gamma": 0.2}, {"gamma": 0.25, "m": 120}, {"m": 60}, {"gamma": 0.2, "m": 9, "rule": "exchangeability"}],
    ids=str,
)
def test_coverage_is_as_promised(law: str, options: dict[str, Any]) -> None:
    # Theorem 15: but for a share ρ of the samples, Φ(Δ̂) ≥ 1 − γ + ρ; over all of them, Pr(G ≤ Δ̂) ≥ 1 − γ
    records, function, draw, distribution = LAWS[law]
    sampler = SensitivitySampler(function, draw, "l1", distribution=law)
    repeats = 1000 if EXHAUSTIVE else 400
    estimates = [sampler.estimate(records, **options, seed=repeat) for repeat in range(repeats)]
    size = estimates[0].size
    fresh = sampler.measure(records, repeats, seed=repeats)
    covered = sum(value <= estimate.value for value, estimate in zip(fresh, estimates, strict=True))
    assert is_likely(covered, repeats, 1 - size.gamma)
    if "rule" in options:  # exact: k/(m + 1)
        assert is_likely(repeats - covered, repeats, size.gamma)
    else:
        shares = [distribution(estimate.value) for estimate in estimates]
        assert is_likely(sum(share >= 1 - size.gamma + size.rho for share in shares), repeats, 1 - size.rho)


@pytest.mark.parametrize("make", [list, np.array, lambda values: (np.array(values), np.array(values) * 2)])
def test_neighbors_share_all_records_but_one_and_are_copies(make: Callable[[list[int]], Any]) -> None:
    draws = make([1, 2, 3, 4])
    for position in range(3):
        first, second = make_neighbors(draws, position)
        assert count_records(first) == count_records(second) == 3
        columns = zip(first, second, strict=True) if isinstance(draws, tuple) else [(first, second)]
        for one, two in columns:
            assert [index for index in range(3) if one[index] != two[index]] == [position]
            one[:] = [-1] * 3
            assert -1 not in two
    assert str(draws) == str(make([1, 2, 3, 4]))


@given(arrays(np.float64, st.integers(1, 40), elements=st.floats(-1e150, 1e150)))
def test_norms_are_never_below_the_exact_ones(difference: np.ndarray) -> None:
    exact = [abs(Fraction(float(x))) for x in difference]
    square = sum(x * x for x in exact)
    l1, l2, sup = (Fraction(compute_norm(difference, name)) for name in ("l1", "l2", "sup"))
    assert max(exact) <= sup
    assert sum(exact) <= l1 <= sum(exact) * (1 + Fraction(1, 10**13)) + Fraction(1, 10**300)
    assert square <= l2**2 <= square * (1 + Fraction(1, 10**13)) + Fraction(1, 10**300)


@pytest.mark.parametrize("name", ["l1", "l2", "sup"])
def test_norms_at_the_limits(name: str) -> None:
    assert compute_norm(np.zeros(3), name) == compute_norm(np.zeros(0), name) == 0.0
    assert compute_norm(np.array([1e-200, 0.0]), name) >= 1e-200
    assert compute_norm(np.full(4, 1e200), name) == pytest.approx({"l1": 4e200, "l2": 2e200, "sup": 1e200}[name])
    assert compute_norm(np.array([3.0, -1.0]), lambda difference: float(difference[0])) == 3.0


def test_a_release_is_the_mechanisms_with_the_sampled_sensitivity() -> None:
    answer = sample_then_respond(DATA, Laplace(ONE), UNIFORM_MEAN, gamma=0.2, seed=1, rng=np.random.default_rng(5))
    assert answer.value == Laplace(ONE).release(np.mean(DATA), answer.sensitivity.value, rng=np.random.default_rng(5))
    assert answer.sensitivity == UNIFORM_MEAN.estimate(30, gamma=0.2, seed=1)
    guarantee = answer.guarantee
    assert (guarantee.on_covered_pairs, guarantee.gamma) == (ONE, 0.2)
    assert (guarantee.records, guarantee.distribution) == (30, "U[0, 1]")
    assert "experiments only" in guarantee.noise
    assert (
        "exactly from the operating system"
        in respond(DATA, Laplace(ONE), UNIFORM_MEAN, answer.sensitivity).guarantee.noise
    )


def test_every_mechanism_responds() -> None:
    gaussian = SensitivitySampler(lambda data: [data.mean(), data.std()], uniform, "l2")
    assert sample_then_respond(DATA, Gaussian(BOTH), gaussian, gamma=0.4).value.shape == (2,)
    choice = Exponential(ONE, (0.25, 0.5, 0.75), score=lambda data, r: -abs(float(np.median(data)) - r))
    scored = SensitivitySampler(choice.scores, uniform, "sup")
    assert sample_then_respond(DATA, choice, scored, gamma=0.4).value in (0.25, 0.5, 0.75)
    curve = Bernstein(ONE, size=4, order=2)
    cdf = SensitivitySampler(curve.restriction(lambda data, points: (data <= points).mean(axis=1)), uniform, "sup")
    assert sample_then_respond(DATA, curve, cdf, gamma=0.4).value(np.linspace(0, 1, 5)).shape == (5,)


def test_a_constant_function_is_released_without_noise_and_the_guarantee_names_that() -> None:
    sampler = SensitivitySampler(lambda _: 7.0, uniform, "l1")
    with pytest.warns(UserWarning, match=r"the sampled sensitivity is 0, so no noise is added.* a share 0\.3 at most"):
        answer = sample_then_respond(DATA, Laplace(ONE), sampler, gamma=0.3)
    assert answer.value == 7.0
    assert "no noise: the sampled sensitivity is 0" in answer.guarantee.noise


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
    sensitivity = sampler.estimate(3, gamma=0.2, seed=1)
    assert sensitivity.value == 0.0
    outputs = set()
    for index in range(40):
        value = respond(sampler.replay(3, 9, index)[0], Laplace(ONE), sampler, sensitivity).value
        buffer = io.BytesIO()
        np.save(buffer, value)
        outputs.add((buffer.getvalue(), type(value), value.strides))
    assert len(outputs) == 1


@pytest.mark.parametrize("mechanism", [Laplace(ONE), Gaussian(BOTH), Bernstein(ONE, size=1)])
def test_minus_zero_is_released_as_zero(mechanism: Any) -> None:
    released = mechanism.release([-0.0, 0.0], 0.0)
    assert not np.signbit(getattr(released, "values", released)).any()


@pytest.mark.parametrize("value", [math.nan, [1.0, math.inf], "text", [[1], [2, 3]], 1j, None])
def test_a_value_must_be_finite_numbers(value: object) -> None:
    with pytest.raises(ValueError, match=r"function's value|inhomogeneous"):
        to_finite_floats(value)
    assert to_finite_floats(np.array([1, True], dtype=np.int8)).dtype == np.float64


SAMPLED = UNIFORM_MEAN.estimate(30, gamma=0.3, seed=1)
FAILING = SensitivitySampler(lambda data: np.log(data[0]) if data[0] > 0 else np.nan, uniform, "l1")
SHORT = SensitivitySampler(np.mean, lambda rng, count: rng.random(count - 1), "l1")
OTHER = SensitivitySampler(np.mean, uniform, "l1", distribution="other")
PAIRS = SensitivitySampler(lambda data: data[:2], uniform, "l1", distribution="U[0, 1]")


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: SensitivitySampler(None, exponential, "l1"), "function must be callable"),  # type: ignore[arg-type]
        (lambda: SensitivitySampler(np.mean, 3, "l1"), "sampler must be callable"),  # type: ignore[arg-type]
        (lambda: SensitivitySampler(np.mean, exponential, "L1"), "norm must be one of l1, l2, sup"),
        (lambda: SensitivitySampler(np.mean, exponential, "l1", position="first"), "position must be"),
        (lambda: Execution(jobs=0), "jobs must be"),
        (lambda: Execution(batch_size=0), "batch_size must be"),
        (lambda: MEAN.estimate(0, gamma=0.1), "records must be an integer"),
        (lambda: MEAN.estimate(5), "at least one of them"),
        (lambda: MEAN.estimate(5, gamma=0.1, seed=-1), "seed must be"),
        (lambda: MEAN.estimate(5, gamma=0.1, rule="hope"), "rule must be one of"),
        (lambda: MEAN.measure(5, 0), "m must be"),
        (lambda: SHORT.measure(5, 3, seed=1), "6 records, as it was asked for"),
        (lambda: count_records(()), "records must be"),
        (lambda: count_records((np.zeros(2), np.zeros(3))), "records must be"),
        (lambda: count_records(5), "records must be"),
        (lambda: compute_norm(np.array([math.inf]), "l1"), "finite"),
        (lambda: compute_norm(np.array([-3.0]), lambda d: float(d[0])), "at least 0"),
        (lambda: compute_norm(np.array([-3.0]), lambda _: math.nan), "nan"),
        (lambda: respond(DATA[1:], Laplace(ONE), UNIFORM_MEAN, SAMPLED), "number of records must be 29"),
        (lambda: respond(DATA, Laplace(ONE), OTHER, SAMPLED), "distribution must be"),
        (lambda: respond(DATA, Laplace(ONE), PAIRS, SAMPLED), "shape of the function's value"),
        (lambda: respond(DATA, Gaussian(BOTH), UNIFORM_MEAN, SAMPLED), "norm must be 'l2'"),
        (lambda: sample_then_respond(DATA, Gaussian(BOTH), UNIFORM_MEAN, gamma=0.2), "sampler's norm must be 'l2'"),
        (lambda: sample_then_respond(DATA, Laplace(ONE), FAILING, gamma=0.4), "function's value must be finite"),
    ],
)
def test_refusals(call: Callable[[], object], message: str) -> None:
    with pytest.raises((ValueError, SamplingError), match=message):
        call()
