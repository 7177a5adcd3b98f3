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


def test_the_page_compares_the_same_case() -> None:
    cases = [(10, "a.npy", 1.0), (10, "b.csv", 3.0)]
    timings = [
        {"queries": queries, "votes": votes, "output": "c", "version": version, "seconds": 1.0}
        | {"cpu_seconds": cpu * (1.0 if version == "this" else 2.5 * cpu), "peak_megabytes": 7.0}
        for queries, votes, cpu in cases
        for version in ("this", "before")
    ]
    spent = {"this": {"a coin": 4.0}, "before": {"a coin": 40.0}}
    data = {"commits": {"this": "abc", "before": "def"}, "timings": timings, "nanoseconds": spent}
    text = benchmark.page(data)
    assert "| 10 | a.npy | c | 1.00 | 1.00 | 7 | 1.00 | 2.50 | 7 | 2.5 |" in text
    assert "| 10 | b.csv | c | 1.00 | 3.00 | 7 | 1.00 | 22.50 | 7 | 7.5 |" in text
    assert "| a coin | 4.0 | 40.0 | 10.0 |" in text
    alone = benchmark.page({**data, "timings": [item for item in timings if item["version"] == "this"]})
    assert "| 10 | b.csv | c | 1.00 | 3.00 | 7 |\n" in alone
