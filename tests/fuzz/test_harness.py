"""The fuzzer finds what is planted: an exception, a hang, a wait, a gigabyte, a death. It passes what is right."""

import os
import time
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from tests.fuzz import harness
from tests.fuzz.harness import Failure, Target, search
from tests.fuzz.targets import TARGETS, prepare


def results(act: Callable[[int], object], folder: Path, *, cases: int, seconds: float = 5.0) -> list[Failure | None]:
    def make(rng: Random) -> tuple[str, harness.Case]:
        number = rng.randrange(1000)
        return f"number {number}", lambda: act(number)

    return list(search(Target("planted", make, seconds), range(cases), folder, time.monotonic() + 600.0))


def burn(_: int) -> None:
    while True:
        pass


def fill(_: int) -> None:
    memory = bytearray(2**30 + 2**28)
    memory[:: 2**12] = b"x" * len(memory[:: 2**12])


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize(
    ("act", "reason", "wait"),
    [
        ({}.__getitem__, "KeyError", 60.0),
        (burn, "more than 0.1 seconds", 60.0),
        pytest.param(lambda _: os._exit(3), "the process died", 60.0, marks=pytest.mark.slow),
        (lambda _: time.sleep(600), "no answer after", 0.2),
        (lambda _: bytearray(2**40), "MemoryError", 60.0),
        pytest.param(fill, "GiB of memory", 60.0, marks=pytest.mark.slow),
    ],
)
def test_what_is_planted_is_found_and_the_search_goes_on(
    act: Callable[[int], object], reason: str, wait: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(harness, "WALL_SECONDS", wait)
    found = results(act, tmp_path, cases=2, seconds=0.1 if act is burn else 5.0)
    assert len(found) == 2
    assert all(failure is not None and reason in failure.reason for failure in found)
    assert [failure.seed for failure in found if failure] == [0, 1]


def test_what_is_right_passes_and_cases_differ(tmp_path: Path) -> None:
    def note(number: int) -> None:
        (tmp_path / str(number)).touch()

    assert results(note, tmp_path, cases=20) == [None] * 20
    assert len(list(tmp_path.iterdir())) > 10


def test_a_case_is_made_again_from_its_number(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    prepare(tmp_path)
    monkeypatch.chdir(tmp_path)
    for target in TARGETS:
        words = [target.make(Random(f"{target.name} {seed}"))[0] for seed in (1, 1, 2, 3, 4)]  # noqa: S311
        assert words[0] == words[1], target.name
        assert len(set(words)) > 2, target.name
