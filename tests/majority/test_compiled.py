"""The compiled loops against their numpy twins, to the bit; without numba everything works as before."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from darrm.majority import compiled, kernels
from darrm.majority.dominating import LevelMaxima
from darrm.majority.full_set import FullMaxima, FullSet
from darrm.privacy import PrivacyParams
from darrm.problem import Problem, Voters
from tests.strategies import gammas, problems

pytest.importorskip("numba")

SLOW = pytest.mark.slow


@pytest.fixture
def work(monkeypatch: pytest.MonkeyPatch) -> kernels.KernelChoice:
    """Count the work of this test separately."""
    choice = kernels.KernelChoice()
    for module in ("dominating", "full_set"):
        monkeypatch.setattr(f"darrm.majority.{module}.KERNEL", choice)
    return choice


def check_equal(work: kernels.KernelChoice, search: Callable[[], Any]) -> Any:
    """Check that numpy and numba give the same result, and return it as plain data."""
    results = []
    for nanoseconds in (-np.inf, np.inf):
        work.nanoseconds = nanoseconds
        results.append(to_plain(search()))
        # the loops did run: a kernel that returns nothing would agree with nothing
        assert work.choose(0.0) is (kernels.NUMPY if nanoseconds < 0 else kernels.load())
    assert results[0] == results[1]
    return results[0]


def to_plain(result: Any) -> Any:
    if isinstance(result, LevelMaxima | FullMaxima):
        values = vars(result).values()
        return [value.tolist() if isinstance(value, np.ndarray) else value for value in values]
    return result


def create_full_set(problem: Problem) -> FullSet:
    return FullSet(problem.voters, problem.target.exact_epsilon)


@given(data=st.data(), problem=problems(most_voters=70), low=st.booleans())
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_levels_agree_to_the_bit(data: st.DataObject, problem: Problem, low: bool, work: kernels.KernelChoice) -> None:
    half = data.draw(gammas(problem.voters.K)).half * data.draw(st.sampled_from([1.0, 0.7310585786300049]))
    full = create_full_set(problem)
    check_equal(work, lambda: full.family.maxima(half, full.exp_epsilon, low=low))


@given(data=st.data(), problem=problems(most_voters=24), limit=st.sampled_from([np.inf, -np.inf, 0.1, 1.0]))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_full_sets_agree_to_the_bit(
    data: st.DataObject, problem: Problem, limit: float, work: kernels.KernelChoice
) -> None:
    half, full = data.draw(gammas(problem.voters.K)).half, create_full_set(problem)
    check_equal(work, lambda: full.maxima(half, limit))
    check_equal(work, lambda: full.border(half, limit))


@pytest.mark.parametrize("delta", ["0", "1e-5", "0.02"])
@pytest.mark.parametrize(
    ("K", "overlap"),
    [(131, None), (140, 3), *(pytest.param(*pair, marks=SLOW) for pair in [(700, None), (180, 150), (500, 490)])],
)
def test_only_blocks_without_a_largest_cost_are_passed_over(
    work: kernels.KernelChoice, K: int, overlap: int | None, delta: str
) -> None:
    """With three blocks a level and a window; ties are at the first place, and rough γ spoil every bound on a block."""
    rng = np.random.default_rng(3)
    full, n = create_full_set(Problem.from_allowance(Voters(K, PrivacyParams("0.5", delta), overlap), 2)), K - K // 2
    ramp = np.minimum(1.0, 4.0 * np.arange(1, n + 1) / n)
    rough = [rng.random(n), np.where(rng.random(n) > 0.5, 1.0, 0.0)]
    for number, half in enumerate((ramp, *rough, np.ones(n), np.zeros(n), np.full(n, 0.7310585786300049))):
        search = partial(full.family.maxima, half, full.exp_epsilon, low=number % 2 == 1)
        whole = search()
        for floor in (-np.inf, 0.5 * whole.worst, float(np.sort(whole.costs)[-2])):
            costs, *_ = check_equal(work, partial(search, floor=floor))
            assert set(costs) <= {*whole.costs[whole.costs > floor].tolist(), -np.inf}
    if (K, delta) == (131, "1e-5"):
        half = ramp * (1.0 - 0.1 * rng.random(n))
        for part in (0.5, 0.999):
            check_equal(work, partial(full.border, half, part * full.maxima(half).worst))


@pytest.mark.parametrize("size", [1, 2, 3, 8, 21])
def test_bounds_on_all_moves_are_those_of_numpy(size: int) -> None:
    rng = np.random.default_rng(size)
    for tails in ([0.25], [0.5, 0.125], [0.5, 0.25, 0.125, 1e-9]):
        level, bound = rng.uniform(-1.0, 1.0, size), np.empty(size)
        compiled._bound_moves(level, np.array(tails), bound)
        assert bound.tolist() == kernels.screen(level[None, :], np.array(tails))[0].tolist()


@pytest.mark.parametrize("delta", ["1e-5", "0.002"])
@pytest.mark.parametrize("K", [5, 70, pytest.param(150, marks=SLOW)])
def test_outer_costs_above_a_threshold_are_those_of_numpy(K: int, delta: str) -> None:
    """From the second level on, number 1, the reflected chain counts too."""
    full = create_full_set(Problem.from_allowance(Voters(K, PrivacyParams("0.5", delta)), 2))
    rng = np.random.default_rng(K)
    for shape in (np.linspace(1.0, -1.0, K + 1), np.linspace(0.0, -1.0, K + 1) ** 3, np.linspace(1.0, 0.0, K + 1) ** 3):
        start = shape + rng.uniform(-0.1, 0.1, K + 1)
        for threshold, first in ((-np.inf, 1), (1.8, 1), (-np.inf, 0)):
            results = []
            for outer_costs in (kernels.NUMPY.outer_costs, compiled.outer_costs):
                level, costs, bounds = start.copy(), *np.full((2, 4), -np.inf)
                passed = outer_costs(level, full.params, threshold, first, costs, bounds)
                shown = [
                    np.where(part > threshold, part, threshold).tolist() for part in (costs, np.maximum(costs, bounds))
                ]
                results.append((passed, shown, level[: K + 1 - abs(passed)].tolist()))
            assert results[0] == results[1]


@given(size=st.integers(1, 220), down=st.integers(0, 9), up=st.integers(0, 9), spike=st.integers(0, 219))
def test_a_block_bound_is_above_all_that_its_levels_average(size: int, down: int, up: int, spike: int) -> None:
    level = np.zeros(size)
    level[spike % size] = 1.0
    tops = np.empty((2, size // compiled._BLOCK_SIZE + 1))
    compiled._bound_blocks(level, down, up, tops)
    for steps in range(min(kernels.LEVELS_A_TOP, size)):
        last = size - 1 - steps
        for s in range(last + 1):
            for top, place in zip(tops[:, s // compiled._BLOCK_SIZE], (s, last - s), strict=True):
                averaged = level[max(0, place - down) : min(place + up, last) + steps + 1]
                assert np.max(averaged) <= top


@pytest.mark.parametrize("delta", ["0", "0.01"])
def test_each_call_continues_where_the_last_one_stopped(
    delta: str, work: kernels.KernelChoice, monkeypatch: pytest.MonkeyPatch
) -> None:
    full = create_full_set(Problem.from_allowance(Voters(60, PrivacyParams("0.5", delta)), 2))
    half = np.random.default_rng(1).random(30)
    whole = to_plain(full.family.maxima(half, full.exp_epsilon))
    monkeypatch.setattr("darrm.majority.dominating._PLACES_PER_CALL", 200)
    assert check_equal(work, lambda: full.family.maxima(half, full.exp_epsilon)) == whole


def test_numba_is_loaded_once_the_work_pays_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    choice = kernels.KernelChoice()
    loads: list[bool] = []
    monkeypatch.setattr(kernels, "load", lambda: loads.append(True))
    for _ in range(3):
        choice.choose(0.3 * kernels.LOADING)
    assert not loads
    choice.choose(0.3 * kernels.LOADING)
    assert loads


def test_numpy_takes_over_without_numba(work: kernels.KernelChoice, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "find_spec", lambda _: None)
    kernels.load.cache_clear()
    try:
        assert not kernels.is_available()
        work.nanoseconds = np.inf
        assert create_full_set(Problem.from_allowance(Voters(5, PrivacyParams("0.1")), 2)).worst(np.ones(3)) > 0.0
        assert work.choose(0.0) is kernels.NUMPY
    finally:
        kernels.load.cache_clear()


@pytest.mark.parametrize("long", [False, True])
@pytest.mark.parametrize("spec", [None, "numba"])
def test_numba_is_advised_after_long_work_without_it(
    long: bool, spec: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernels, "KERNEL", kernels.KernelChoice())
    kernels.KERNEL.choose(float(long) * kernels.LOADING)  # before the patch: the result of a load is kept
    monkeypatch.setattr(kernels, "find_spec", lambda _: spec)
    assert ("darrm[compiled]" in str(kernels.advice())) == (long and spec is None)


def test_compilation_without_a_cache_folder_is_repeated_uncached(monkeypatch: pytest.MonkeyPatch) -> None:
    """A read-only installation whose user has no home."""
    caches: list[bool] = []

    class Numba:
        class extending:  # noqa: N801 (numba's name)
            register_jitable = staticmethod(lambda function: function)

        @staticmethod
        def njit(function: Any, *, cache: bool = False, **_: Any) -> Any:
            caches.append(cache)
            if cache:
                raise RuntimeError("no locator available for file")
            return function

    monkeypatch.setattr(compiled, "require", lambda _: Numba)
    assert compiled._compile(lambda value: value)(1) == 1
    assert caches == [True, False]
