import json
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from darrm.commands.command_line import run
from darrm.pate.__main__ import main
from tests.doors import refused
from tests.pate.support import draw_votes

COUNTS = draw_votes(60, 4, seed=9)
LABELS = np.array([np.repeat(np.arange(4), row) for row in COUNTS])
AS_COUNTS = ["--layout", "counts"]
EXAMPLE = ["--threshold", "200", "--sigma1", "150", "--sigma2", "40", "--delta", "1e-5"]


@pytest.fixture
def votes(tmp_path: Path) -> Path:
    path = tmp_path / "votes.npy"
    np.save(path, COUNTS)
    return path


def run_json(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> dict[str, Any]:
    assert run(lambda: main([*map(str, arguments), "--format", "json"])) == 0
    document: dict[str, Any] = json.loads(capsys.readouterr().out)
    return document


@pytest.mark.slow
def test_labels_and_counts_give_the_same_rows(votes: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    example = [*EXAMPLE, "--no-table-2", "--classes", "4"]
    rows = run_json(capsys, votes, *example, *AS_COUNTS)
    np.savetxt(tmp_path / "labels.csv", LABELS, delimiter=",", fmt="%d")
    assert run_json(capsys, tmp_path / "labels.csv", *example) == rows
    assert (rows["table_1"]["voters"], rows["table_1"]["private"]) == (250, True)
    assert "itself private data" in rows["warning"]


@pytest.mark.parametrize("flag", ["--output", "--plot"])
def test_the_votes_are_never_overwritten(flag: str, votes: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before, both, link = votes.read_bytes(), votes.with_name("both.png"), votes.with_name("other.npy")
    link.hardlink_to(votes)
    for words, message in (
        ([flag, str(votes)], f"{flag} must be another file"),
        ([flag, str(link)], flag),
        (["--output", str(both), "--plot", str(both)], "it would overwrite plot"),
    ):
        refused(main, [str(votes), *EXAMPLE, *words], message, capsys)
    assert votes.read_bytes() == before
    assert not both.exists()


def test_a_note_names_votes_that_may_be_transposed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for labels, has_note in ((LABELS[:9], True), (LABELS[:9].T, False)):
        np.save(tmp_path / "labels.npy", labels)
        assert run(lambda: main([str(tmp_path / "labels.npy"), *EXAMPLE, "--no-table-2", "--classes", "4"])) == 0
        assert ("9 rows, which are queries, and 250 columns" in capsys.readouterr().err) == has_note


def test_fewer_queries_cost_less(votes: Path, capsys: pytest.CaptureFixture[str]) -> None:
    example = [*EXAMPLE, *AS_COUNTS, "--no-table-2"]
    whole, half = run_json(capsys, votes, *example), run_json(capsys, votes, *example, "--queries", "30")
    assert half["table_2"] is None
    assert half["table_1"]["queries"] == 30
    assert half["table_1"]["epsilon"] < whole["table_1"]["epsilon"]


def test_scores_choose_the_interactive_aggregator(
    votes: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    np.save(tmp_path / "scores.npy", np.full((60, 4), 0.25))
    scored = ["--scores", str(tmp_path / "scores.npy"), "--confidence", "0.9", "--noise", "continuous", "--no-table-2"]
    row = run_json(capsys, votes, *EXAMPLE, *AS_COUNTS, *scored)["table_1"]
    text = "InteractiveGNMax(threshold=200.0, sigma_threshold=150.0, sigma_answer=40.0, confidence=0.9"
    assert row["aggregator"].startswith(text)


@pytest.mark.slow
def test_parameters_of_publications_are_used_as_given(votes: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run_with = partial(run_json, capsys, votes, *EXAMPLE, *AS_COUNTS)
    smooth = run_with("--order", "14", "--beta", "0.02", "--sigma-ss", "7")
    row = smooth["table_2"]
    assert smooth["vote_scale"] is None
    assert (row["order"], row["beta"], row["sigma_ss"], row["parameters_chosen"]) == (14.0, 0.02, 7.0, "beforehand")
    scale = run_with("--order", "14", "--deviation", "6")
    row = scale["vote_scale"]
    assert scale["table_2"] is None
    assert (row["order"], row["deviation"], row["parameters_chosen"]) == (14.0, 6.0, "beforehand")
    thumb = run_with("--expect-epsilon", "2")["table_2"]
    assert thumb["beta"] * thumb["order"] == pytest.approx(0.4)


@pytest.mark.slow
def test_pictures_and_json_files(votes: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target, picture = tmp_path / "rows.json", tmp_path / "figure_5.png"
    for aggregator in (EXAMPLE, ["--sigma2", "40", "--delta", "1e-5"]):
        outputs = ["--output", str(target), "--plot", str(picture), "--quiet", "--no-table-2", "--force"]
        assert run(partial(main, [str(votes), *AS_COUNTS, *aggregator, *outputs])) == 0
        assert picture.read_bytes().startswith(b"\x89PNG")
        picture.unlink()
    assert json.loads(target.read_text())["table_1"]["queries"] == 60
    assert capsys.readouterr().out == ""


GNMAX = ["--sigma2", "40", "--delta", "1e-5"]


@pytest.mark.parametrize(
    ("matrix", "arguments", "message"),
    [
        (COUNTS, EXAMPLE, "counts go to Votes.from_counts (--layout counts)"),
        (LABELS, EXAMPLE, "--classes C"),  # the number of classes is public, and never read off the votes
        (COUNTS, [*EXAMPLE, *AS_COUNTS, "--classes", "7"], "the number of columns of the counts, 4"),
        (COUNTS, [*EXAMPLE[:-1], "1", *AS_COUNTS], "delta must be in (0, 1)"),
        (COUNTS, EXAMPLE[:-2], "--delta"),
        (COUNTS, ["--delta", "1e-5"], "The aggregator is missing"),
        (COUNTS, ["--threshold", "3", *GNMAX], "No aggregator has the options --sigma2, --threshold"),
        (LABELS, [*EXAMPLE, "--classes", "3"], "votes must be 0, 1 or 2, got 3"),
        (COUNTS, ["--gamma", "1", *GNMAX], "No aggregator has the options --gamma, --sigma2"),
        (COUNTS, [*EXAMPLE, "--confidence", "0.5"], "the options --sigma2, --threshold, --sigma1, --confidence"),
        (COUNTS, [*EXAMPLE, "--sigma1", "nan"], "--sigma1 must be a number of at least 0"),
        (COUNTS, [*EXAMPLE, "--beta", "0.1"], "give --order with --beta and --sigma-ss"),
        (COUNTS, [*EXAMPLE, "--order", "9"], "give --order with --beta and --sigma-ss"),
        (COUNTS, [*EXAMPLE, "--order", "9", "--expect-epsilon", "1"], "give it alone"),
        (COUNTS, [*EXAMPLE, "--order", "9", "--deviation", "6", "--no-table-2"], "give no parameters of them"),
        (COUNTS, [*EXAMPLE, "--safety", "1"], "--safety belongs to a publication"),
        (COUNTS, [*EXAMPLE, "--plot", "/no/such/folder/p.png"], "does not exist"),
    ],
)
def test_bad_input_is_one_line_and_status_2(
    matrix: np.ndarray, arguments: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    np.save(tmp_path / "votes.npy", matrix)
    refused(main, [str(tmp_path / "votes.npy"), *arguments], message, capsys)
