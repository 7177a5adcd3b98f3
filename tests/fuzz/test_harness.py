"""The fuzzer reports an exception, a hang, a wait, a gigabyte and a death, and passes correct cases."""

import os
import time
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from tests.fuzz import harness
from tests.fuzz.harness import Failure, Target, search
from tests.fuzz.targets import TARGETS, prepare


def run_cases(act: Callable[[int], object], folder: Path, *, cases: int, seconds: float = 5.0) -> list[Failure | None]:
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


@pytest.mark.parametrize(
    ("act", "reason", "wait"),
    [
        ({}.__getitem__, "KeyError", 60.0),
        *[
            pytest.param(*case, marks=pytest.mark.slow)
            for case in (
                (burn, "more than 0.1 seconds", 60.0),
                (lambda _: os._exit(3), "the process died", 60.0),
                (lambda _: time.sleep(600), "no answer after", 0.2),
                (lambda _: bytearray(2**40), "MemoryError", 60.0),
                (fill, "GiB of memory", 60.0),
            )
        ],
    ],
)
def test_each_failure_is_reported_and_the_search_continues(
    act: Callable[[int], object], reason: str, wait: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(harness, "WALL_SECONDS", wait)
    failures = run_cases(act, tmp_path, cases=2, seconds=0.1 if act is burn else 5.0)
    assert [failure.seed for failure in failures if failure is not None and reason in failure.reason] == [0, 1]


def test_correct_cases_pass_and_differ(tmp_path: Path) -> None:
    assert run_cases(lambda number: (tmp_path / str(number)).touch(), tmp_path, cases=20) == [None] * 20
    assert len(list(tmp_path.iterdir())) > 10


def test_a_number_repeats_a_case(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    prepare(tmp_path)
    monkeypatch.chdir(tmp_path)
    for target in TARGETS:
        cases = [target.make(Random(f"{target.name} {seed}"))[0] for seed in (1, 1, 2, 3, 4)]  # noqa: S311
        assert cases[0] == cases[1], target.name
        assert len(set(cases)) > 2, target.name
