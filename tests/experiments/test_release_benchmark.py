"""The benchmark of releases: the same votes in every file, and ratios of the version before to this one."""

from pathlib import Path
from typing import Any

import pytest

from darrm.votes import Votes
from experiments.scaling import release_benchmark as benchmark

ROOT = Path(benchmark.__file__).parents[2]


def test_every_file_holds_the_same_votes(tmp_path: Path) -> None:
    found = []
    for name in ("digits.csv", "words.csv", "int64.npy", "bytes.npy"):
        benchmark.write_votes(tmp_path / name, 300)
        classes: Any = benchmark.WORDS if name == "words.csv" else 2
        found.append(Votes.read(tmp_path / name, voters=benchmark.K, classes=classes).ones.tolist())
    assert found == [found[0]] * 4
    assert 0.6 < sum(found[0]) / (300 * benchmark.K) < 0.9


@pytest.mark.slow
def test_a_release_that_fails_is_no_measurement(tmp_path: Path) -> None:
    benchmark.table().table.save(tmp_path / "table.json")
    (tmp_path / "digits.csv").write_text("0,1\n")
    with pytest.raises(ValueError, match=r"ended with status 2"):
        benchmark.release(tmp_path, "digits.csv", "labels.csv", ROOT)
