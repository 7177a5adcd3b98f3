"""The compiled loops against their numpy twins, to the bit; without numba everything works as before."""

import subprocess
import sys
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from darrm.privacy import PrivacyParams
from darrm.problem import MajorityProblem, Voters
from darrm.proof import compiled
from darrm.proof.dominating import DominatingFamily, LevelMaxima
from darrm.proof.full_set import FullMaxima, FullSet
from tests.strategies import gammas, problems

pytest.importorskip("numba")

ROOT = Path(__file__).parents[2]


@pytest.fixture
def work(monkeypatch: pytest.MonkeyPatch) -> compiled.Work:
    """An account of work of the test's own."""
    own = compiled.Work()
    for module in ("dominating", "full_set", "near_shifts"):
        monkeypatch.setattr(f"darrm.proof.{module}.WORK", own)
    return own


def both_ways(work: compiled.Work, look: Any) -> tuple[Any, Any]:
    found = []
    for nanoseconds in (-np.inf, np.inf):
        work.nanoseconds = nanoseconds
        found.append(look())
    return found[0], found[1]


def of_levels(found: LevelMaxima) -> tuple[Any, ...]:
    return found.costs.tolist(), found.ones.tolist(), found.frozen.tolist(), found.rounding, found.low


def of_full_set(found: FullMaxima) -> tuple[Any, ...]:
    return found.worst, found.broken, found.levels, found.slack


@given(data=st.data(), problem=problems(most_voters=70), low=st.booleans())
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_levels_agree_to_the_bit(data: st.DataObject, problem: MajorityProblem, low: bool, work: compiled.Work) -> None:
    half = data.draw(gammas(problem.voters.K)).half * data.draw(st.sampled_from([1.0, 0.7310585786300049]))
    full = FullSet(problem.voters, problem.target.exact_epsilon)
    slow, fast = both_ways(work, lambda: of_levels(full.family.maxima(half, full.ratio, low=low)))
    assert slow == fast


@given(data=st.data(), problem=problems(most_voters=24), limit=st.sampled_from([np.inf, -np.inf, 0.1, 1.0]))
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_full_sets_agree_to_the_bit(
    data: st.DataObject, problem: MajorityProblem, limit: float, work: compiled.Work
) -> None:
    half = data.draw(gammas(problem.voters.K)).half
    full = FullSet(problem.voters, problem.target.exact_epsilon)
    slow, fast = both_ways(work, lambda: of_full_set(full.maxima(half, limit)))
    assert slow == fast
    slow, fast = both_ways(work, lambda: full.border(half, limit))
    assert slow == fast
    # the loops did run: a kernel that answers nothing would agree with nothing
    assert work.loops(0.0) is compiled.load()


def test_many_levels_are_cut_into_calls(work: compiled.Work, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each call goes on where the last one stopped."""
    monkeypatch.setattr("darrm.proof.dominating._PLACES_A_CALL", 200)
    for delta in ("0", "0.01"):
        problem = MajorityProblem.from_allowance(Voters(60, PrivacyParams("0.5", delta)), 2)
        full = FullSet(problem.voters, problem.target.exact_epsilon)
        half = np.random.default_rng(1).random(30)
        slow, fast = both_ways(work, lambda full=full, half=half: of_levels(full.family.maxima(half, full.ratio)))
        assert slow == fast


def test_numba_is_loaded_once_the_work_pays_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    work = compiled.Work()
    loaded: list[bool] = []
    monkeypatch.setattr(compiled, "load", lambda: loaded.append(True))
    for _ in range(3):
        work.loops(0.3 * compiled.LOADING)
    assert not loaded
    work.loops(0.3 * compiled.LOADING)
    assert loaded


def test_without_numba_numpy_does_it(work: compiled.Work, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled, "find_spec", lambda _: None)
    compiled.load.cache_clear()
    try:
        assert not compiled.is_available()
        assert compiled.load() is None
        problem = MajorityProblem.from_allowance(Voters(5, PrivacyParams("0.1")), 2)
        work.nanoseconds = np.inf
        assert (
            DominatingFamily(problem.voters).maxima(np.ones(3), FullSet(problem.voters, Fraction(1)).ratio).worst > 0.0
        )
    finally:
        compiled.load.cache_clear()


def test_advice_is_given_where_work_was_long_and_numba_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled, "WORK", compiled.Work())
    for long in (False, True):
        compiled.WORK.loops(float(long) * compiled.LOADING)
        for spec in (None, "numba"):
            monkeypatch.setattr(compiled, "find_spec", lambda _, spec=spec: spec)
            assert ("darrm[compiled]" in str(compiled.advice())) == (long and spec is None)


def test_a_small_solve_does_not_import_numba() -> None:
    script = (
        "import sys; from darrm.optimize.__main__ import main; main(['--K', '11', '--m', '3', '--quiet']);"
        "sys.exit('numba' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, cwd=ROOT)


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
    assert compiled._compile(compiled.vertices) is compiled.vertices
    assert asked == [True, False]
