"""The main command for more than two classes."""

import json
from pathlib import Path

import pytest

from darrm import Table
from darrm.optimize.__main__ import main
from tests.doors import refused, validated

FLAGS = ["--classes", "3", "--K", "9", "--non-private", "--overlap", "1", "--target", "0.5,1e-3"]


def test_text_and_json_say_what_the_table_says(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "t.json"
    assert main([*FLAGS, "--output", str(path)]) == 0
    text = capsys.readouterr().out
    table = Table.load(path)
    validated(path, "plurality_table")
    assert f"Right labels      {table.share_right:.10g}" in text
    row = "".join(f"{each:8.4f}" for each in table.plurality.probabilities([[6, 3, 0]])[0])
    assert row in text
    assert main([*FLAGS, "--format", "json", "--output", str(path), "--force"]) == 0
    report = validated(capsys.readouterr().out, "plurality_report")
    assert report["share_right"] == table.share_right
    assert table.optimality is not None
    assert report["optimality"]["bound"] == table.optimality.bound
    votes = [shown["votes"] for shown in report["histograms"]]
    assert [shown["probabilities"] for shown in report["histograms"]] == table.plurality.probabilities(votes).tolist()
    assert votes[0] == [9, 0, 0]
    assert votes[-1] == [3, 3, 3]


def test_priors_on_histograms(capsys: pytest.CaptureFixture[str]) -> None:
    shares = []
    for prior in ("dirichlet:0.2", "dirichlet", "dirichlet:5"):
        assert main([*FLAGS, "--prior", prior, "--format", "json"]) == 0
        shares.append(json.loads(capsys.readouterr().out)["share_right"])
    assert shares == sorted(shares, reverse=True)  # clear majorities are easier


@pytest.mark.parametrize(
    ("more", "word"),
    [
        (["--m", "3"], "--m and --target both set"),
        (["--shape", "monotone"], "shape must be left out for 3 classes"),
        (["--solver", "reference"], "solver must be left out for 3 classes"),
        (["--objective", "expected-error"], "objective must be left out for 3 classes"),
        (["--objective", "expected-error", "--draws", "9"], "must be left out for 3 classes"),
        (["--plot", "picture.png"], "--plot is about two classes"),
        (["--prior", "common"], "the prior must be"),
        (["--epsilon", "1"], "contradict each other"),
        (["--K", "400", "--classes", "10"], "the number of partitions"),
        (["--classes", "1"], "classes must be"),
        (["--classes", "65536", "--K", "5"], "classes must be"),
    ],
)
def test_what_is_refused_in_one_line(more: list[str], word: str, capsys: pytest.CaptureFixture[str]) -> None:
    refused(main, [*FLAGS, *more], word, capsys)


def test_a_time_limit_leaves_a_proven_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*FLAGS, "--time-limit", "0", "--output", str(tmp_path / "t.json")]) == 0
    assert "time limit; the proof and the bound above hold" in capsys.readouterr().out
    table = Table.load(tmp_path / "t.json")
    assert table.optimality is not None
    assert not table.optimality.claimed
    assert table.optimality.bound == pytest.approx(1.0)
