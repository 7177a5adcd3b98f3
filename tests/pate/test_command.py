import json
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from darrm.commands.command_line import run
from darrm.pate.__main__ import main
from tests.doors import refused

RNG = np.random.default_rng(9)
SHARES = RNG.beta(6.0, 1.2, size=60)
COUNTS = np.array([RNG.multinomial(250, [share, *[(1 - share) / 3] * 3]) for share in SHARES])
LABELS = np.array([np.repeat(np.arange(4), row) for row in COUNTS])
SAID = ("--layout", "counts")
EXAMPLE = ["--threshold", "200", "--sigma1", "150", "--sigma2", "40", "--delta", "1e-5"]


@pytest.fixture
def votes(tmp_path: Path) -> Path:
    path = tmp_path / "votes.npy"
    np.save(path, COUNTS)
    return path


def rows(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> dict:
    said = () if "labels" in Path(arguments[0]).name else SAID
    assert run(lambda: main([*map(str, arguments), *said, "--format", "json"])) == 0
    return json.loads(capsys.readouterr().out)


@pytest.mark.slow
def test_labels_and_counts_in_both_formats_give_the_same_rows(
    votes: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    example = [*EXAMPLE, "--no-table-2"]  # which is of the same rows
    first = rows(capsys, votes, *example)
    np.save(tmp_path / "labels.npy", LABELS)
    np.savetxt(tmp_path / "counts.csv", COUNTS, delimiter=",", fmt="%d")
    np.savetxt(tmp_path / "labels.csv", LABELS, delimiter=",", fmt="%d")
    for name in ("labels.npy", "counts.csv", "labels.csv"):
        assert rows(capsys, tmp_path / name, *example, "--classes", "4") == first
    assert run(lambda: main([str(tmp_path / "labels.npy"), *EXAMPLE])) == 2  # found in the labels, C would be private
    assert "--classes C" in capsys.readouterr().err
    assert first["table_1"]["voters"] == 250
    assert first["table_1"]["private"] is True
    assert "itself private data" in first["warning"]


@pytest.mark.parametrize("flag", ["--output", "--plot"])
def test_the_votes_are_never_overwritten(flag: str, votes: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = votes.read_bytes()
    assert run(lambda: main([str(votes), *EXAMPLE, "--no-table-2", flag, str(votes)])) == 2
    assert f"{flag} must be another file" in capsys.readouterr().err
    twice = votes.with_name("both.png")
    votes.with_name("other.npy").hardlink_to(votes)
    assert run(lambda: main([str(votes), *EXAMPLE, flag, str(votes.with_name("other.npy"))])) == 2
    assert run(lambda: main([str(votes), *EXAMPLE, "--output", str(twice), "--plot", str(twice)])) == 2
    assert "it would overwrite plot" in capsys.readouterr().err
    assert votes.read_bytes() == before
    assert not twice.exists()


def test_votes_that_may_be_turned_round_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    example = [*EXAMPLE, "--no-table-2", "--classes", "4"]
    for labels, has_note in ((LABELS[:9], True), (LABELS[:9].T, False)):
        np.save(tmp_path / "labels.npy", labels)
        assert run(lambda: main([str(tmp_path / "labels.npy"), *example])) == 0
        assert ("9 rows, which are queries, and 250 columns" in capsys.readouterr().err) == has_note


def test_fewer_queries_cost_less(votes: Path, capsys: pytest.CaptureFixture[str]) -> None:
    all_of_them = rows(capsys, votes, *EXAMPLE, "--no-table-2")["table_1"]
    half = rows(capsys, votes, *EXAMPLE, "--no-table-2", "--queries", "30")
    assert half["table_2"] is None
    assert half["table_1"]["queries"] == 30
    assert half["table_1"]["epsilon"] < all_of_them["epsilon"]


def test_scores_are_for_the_interactive_aggregator(
    votes: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    np.save(tmp_path / "scores.npy", np.full((60, 4), 0.25))
    scored = ["--scores", str(tmp_path / "scores.npy"), "--confidence", "0.9", "--noise", "continuous", "--no-table-2"]
    table_1 = rows(capsys, votes, *EXAMPLE, *scored)["table_1"]
    described = "InteractiveGNMax(threshold=200.0, sigma_threshold=150.0, sigma_answer=40.0, confidence=0.9"
    assert table_1["aggregator"].startswith(described)


@pytest.mark.slow
def test_parameters_fixed_beforehand(votes: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = ("--order", "14", "--beta", "0.02", "--sigma-ss", "7")
    smooth = rows(capsys, votes, *EXAMPLE, *given)
    found = smooth["table_2"]
    assert smooth["vote_scale"] is None  # nobody asked for it
    assert (found["order"], found["beta"], found["sigma_ss"]) == (14.0, 0.02, 7.0)
    assert found["parameters_chosen"] == "beforehand"
    thumb = rows(capsys, votes, *EXAMPLE, "--expect-epsilon", "2")["table_2"]
    assert thumb["beta"] * thumb["order"] == pytest.approx(0.4)
    scale = rows(capsys, votes, *EXAMPLE, "--order", "14", "--deviation", "6")
    assert scale["table_2"] is None
    on_votes = scale["vote_scale"]
    assert (on_votes["order"], on_votes["deviation"], on_votes["parameters_chosen"]) == (14.0, 6.0, "beforehand")
    assert on_votes["cost"] == pytest.approx(14.0 / 72.0)
    given = ("--order", "45", "--beta", "0.002", "--sigma-ss", "7")
    assert "condition C6 fails" in rows(capsys, votes, *EXAMPLE, *given)["table_2"]["refused"]


@pytest.mark.slow
def test_pictures_and_json_files(votes: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target, picture = tmp_path / "rows.json", tmp_path / "figure_5.png"
    for aggregator in (EXAMPLE, ["--sigma2", "40", "--delta", "1e-5"]):
        outputs = ["--output", str(target), "--plot", str(picture), "--quiet", "--no-table-2", "--force"]
        assert run(partial(main, [str(votes), *SAID, *aggregator, *outputs])) == 0
        assert picture.read_bytes().startswith(b"\x89PNG")
        picture.unlink()
    assert json.loads(target.read_text())["table_1"]["queries"] == 60
    assert capsys.readouterr().out == ""


BAD = [
    (COUNTS, EXAMPLE, "counts go to Votes.from_counts (--layout counts)"),
    (np.where(np.eye(60, 4) > 0, np.nan, COUNTS), [*EXAMPLE, *SAID], "must be finite, got nan"),
    (
        COUNTS + np.eye(60, 4, dtype=int),
        [*EXAMPLE, *SAID],
        "the sum of row 4 of the vote counts must be K = 251, got 250",
    ),
    (np.zeros((3, 2), dtype=int), EXAMPLE, "could be labels or counts"),
    (COUNTS, [*EXAMPLE, *SAID, "--queries", "61"], "from 1 to the number of rows, 60, got 61"),
    (COUNTS, [*EXAMPLE, *SAID, "--queries", "0"], "--queries must be an integer of at least 1, got 0"),
    (COUNTS, [*EXAMPLE[:-2]], "--delta"),
    (COUNTS, [*EXAMPLE[:-1], "1", *SAID], "delta must be in (0, 1)"),
    (COUNTS, ["--delta", "1e-5"], "The aggregator is missing"),
    (
        COUNTS,
        ["--sigma2", "40", "--threshold", "3", "--delta", "1e-5"],
        "No aggregator has the options --sigma2, --threshold. Write",
    ),
    (COUNTS, ["--gamma", "1", "--sigma2", "40", "--delta", "1e-5"], "No aggregator has the options --gamma, --sigma2"),
    (COUNTS, [*EXAMPLE, "--confidence", "0.5"], "has the options --sigma2, --threshold, --sigma1, --confidence"),
    (COUNTS, [*EXAMPLE, "--beta", "0.1"], "give --order with --beta and --sigma-ss"),
    (COUNTS, [*EXAMPLE, "--order", "9"], "give --order with --beta and --sigma-ss"),
    (COUNTS, [*EXAMPLE, "--order", "9", "--expect-epsilon", "1"], "give it alone"),
    (COUNTS, [*EXAMPLE, "--order", "9", "--deviation", "6", "--no-table-2"], "give no parameters of them"),
    (COUNTS, [*EXAMPLE, "--sigma1", "nan"], "--sigma1 must be a number of at least 0"),
    (COUNTS, [*EXAMPLE, *SAID, "--classes", "7"], "the number of columns of the counts, 4"),
    (COUNTS, [*EXAMPLE, "--plot", "/no/such/folder/p.png"], "does not exist"),
    (LABELS, [*EXAMPLE, "--classes", "3"], "votes must be 0, 1 or 2, got 3"),
]


@pytest.mark.parametrize(("matrix", "arguments", "message"), BAD, ids=range(len(BAD)))
def test_bad_input_is_one_line_and_status_2(
    matrix: np.ndarray, arguments: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    np.save(tmp_path / "votes.npy", matrix)
    refused(main, [str(tmp_path / "votes.npy"), *arguments], message, capsys)
