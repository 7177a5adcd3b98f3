"""The compiled loops against their numpy twins, to the bit; without numba everything works as before."""

from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from darrm.majority import compiled, kernels
from darrm.majority.dominating import DominatingFamily, LevelMaxima
from darrm.majority.full_set import FullMaxima, FullSet
from darrm.privacy import PrivacyParams
from darrm.problem import Problem, Voters
from tests.strategies import gammas, problems

pytest.importorskip("numba")

SLOW = pytest.mark.slow


@pytest.fixture
def work(monkeypatch: pytest.MonkeyPatch) -> kernels.KernelChoice:
    """An account of work of the test's own."""
    own = kernels.KernelChoice()
    for module in ("dominating", "full_set"):
        monkeypatch.setattr(f"darrm.majority.{module}.KERNEL", own)
    return own


def both_ways(work: kernels.KernelChoice, look: Any) -> tuple[Any, Any]:
    results = []
    for nanoseconds in (-np.inf, np.inf):
        work.nanoseconds = nanoseconds
        results.append(look())
    return results[0], results[1]


def of_levels(maxima: LevelMaxima) -> tuple[Any, ...]:
    return (maxima.costs.tolist(), maxima.ones.tolist(), maxima.unaffected_ones.tolist(), maxima.rounding, maxima.low)


def of_full_set(results: FullMaxima) -> tuple[Any, ...]:
    return results.worst, results.broken, results.levels, results.slack


@given(data=st.data(), problem=problems(most_voters=70), low=st.booleans())
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_levels_agree_to_the_bit(data: st.DataObject, problem: Problem, low: bool, work: kernels.KernelChoice) -> None:
    half = data.draw(gammas(problem.voters.K)).half * data.draw(st.sampled_from([1.0, 0.7310585786300049]))
    full = FullSet(problem.voters, problem.target.exact_epsilon)
    slow, fast = both_ways(work, lambda: of_levels(full.family.maxima(half, full.exp_epsilon, low=low)))
    assert slow == fast


@given(data=st.data(), problem=problems(most_voters=24), limit=st.sampled_from([np.inf, -np.inf, 0.1, 1.0]))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_full_sets_agree_to_the_bit(
    data: st.DataObject, problem: Problem, limit: float, work: kernels.KernelChoice
) -> None:
    half = data.draw(gammas(problem.voters.K)).half
    full = FullSet(problem.voters, problem.target.exact_epsilon)
    slow, fast = both_ways(work, lambda: of_full_set(full.maxima(half, limit)))
    assert slow == fast
    slow, fast = both_ways(work, lambda: full.border(half, limit))
    assert slow == fast
    # the loops did run: a kernel that answers nothing would agree with nothing
    assert work.choose(0.0) is kernels.load()


@pytest.mark.parametrize("delta", ["0", "1e-5", "0.02"])
@pytest.mark.parametrize(
    ("K", "overlap"),
    [(131, None), (140, 3), *(pytest.param(*pair, marks=SLOW) for pair in [(700, None), (180, 150), (500, 490)])],
)
def test_blocks_are_passed_over_only_where_no_cost_is_largest(
    work: kernels.KernelChoice, K: int, overlap: int | None, delta: str
) -> None:
    """With three blocks a level and a window; ties are at the first place, and rough γ spoil every bound on a block."""
    rng = np.random.default_rng(3)
    problem = Problem.from_allowance(Voters(K, PrivacyParams("0.5", delta), overlap), 2)
    full, n = FullSet(problem.voters, problem.target.exact_epsilon), K - K // 2
    ramp = np.minimum(1.0, 4.0 * np.arange(1, n + 1) / n)
    rough = [rng.random(n), np.where(rng.random(n) > 0.5, 1.0, 0.0)]
    for low, half in enumerate((ramp, *rough, np.ones(n), np.zeros(n), np.full(n, 0.7310585786300049))):
        look = partial(full.family.maxima, half, full.exp_epsilon, low=low % 2 == 1)
        whole = look()
        for floor in (-np.inf, 0.5 * whole.worst, float(np.sort(whole.costs)[-2])):
            slow, fast = both_ways(work, lambda look=look, floor=floor: of_levels(look(floor=floor)))
            assert slow == fast
            assert set(slow[0]) <= {*whole.costs[whole.costs > floor].tolist(), -np.inf}
    if (K, delta) == (131, "1e-5"):
        half = ramp * (1.0 - 0.1 * rng.random(n))
        for part in (0.5, 0.999):
            slow, fast = both_ways(work, partial(full.border, half, part * full.maxima(half).worst))
            assert slow == fast


@given(size=st.integers(1, 220), down=st.integers(0, 9), up=st.integers(0, 9), spike=st.integers(0, 219))
def test_a_top_is_above_all_that_its_levels_average(size: int, down: int, up: int, spike: int) -> None:
    """Whatever a value at any of these levels can see of T, and of T mirrored, is below the top of its block."""
    level = np.zeros(size)
    level[spike % size] = 1.0
    tops = np.empty((2, size // compiled._BLOCK_SIZE + 1))
    compiled._bound_blocks(level, down, up, tops)
    for steps in range(min(kernels.LEVELS_A_TOP, size)):
        last = size - 1 - steps
        for s in range(last + 1):
            for top, place in zip(tops[:, s // compiled._BLOCK_SIZE], (s, last - s), strict=True):
                seen = level[max(0, place - down) : min(place + up, last) + steps + 1]
                assert np.max(seen) <= top


def test_many_levels_are_cut_into_calls(work: kernels.KernelChoice, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each call goes on where the last one stopped."""
    monkeypatch.setattr("darrm.majority.dominating._PLACES_PER_CALL", 200)
    for delta in ("0", "0.01"):
        problem = Problem.from_allowance(Voters(60, PrivacyParams("0.5", delta)), 2)
        full = FullSet(problem.voters, problem.target.exact_epsilon)
        half = np.random.default_rng(1).random(30)
        slow, fast = both_ways(work, lambda full=full, half=half: of_levels(full.family.maxima(half, full.exp_epsilon)))
        assert slow == fast


def test_numba_is_loaded_once_the_work_pays_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    work = kernels.KernelChoice()
    loaded: list[bool] = []
    monkeypatch.setattr(kernels, "load", lambda: loaded.append(True))
    for _ in range(3):
        work.choose(0.3 * kernels.LOADING)
    assert not loaded
    work.choose(0.3 * kernels.LOADING)
    assert loaded


def test_without_numba_numpy_does_it(work: kernels.KernelChoice, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "find_spec", lambda _: None)
    kernels.load.cache_clear()
    try:
        assert not kernels.is_available()
        assert kernels.load() is None
        problem = Problem.from_allowance(Voters(5, PrivacyParams("0.1")), 2)
        work.nanoseconds = np.inf
        assert (
            DominatingFamily(problem.voters).maxima(np.ones(3), FullSet(problem.voters, Fraction(1)).exp_epsilon).worst
            > 0.0
        )
    finally:
        kernels.load.cache_clear()


def test_advice_is_given_where_work_was_long_and_numba_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "KERNEL", kernels.KernelChoice())
    for long in (False, True):
        kernels.KERNEL.choose(float(long) * kernels.LOADING)
        for spec in (None, "numba"):
            monkeypatch.setattr(kernels, "find_spec", lambda _, spec=spec: spec)
            assert ("darrm[compiled]" in str(kernels.advice())) == (long and spec is None)


def test_where_nothing_can_be_kept_it_is_compiled_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a read-only installation whose user has no home."""
    asked: list[bool] = []

    class Numba:
        class extending:  # noqa: N801 (numba's name)
            register_jitable = staticmethod(lambda function: function)

        @staticmethod
        def njit(function: Any, *, cache: bool = False, **_: Any) -> Any:
            asked.append(cache)
            if cache:
                raise RuntimeError("no locator available for file")
            return function

    monkeypatch.setattr(compiled, "require", lambda _: Numba)
    assert compiled._compile(lambda value: value)(1) == 1
    assert asked == [True, False]
