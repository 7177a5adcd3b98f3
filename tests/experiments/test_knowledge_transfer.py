from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")

from pathlib import Path

from darrm.ensemble.voting import majority
from darrm.system.command_line import run
from experiments.knowledge_transfer import settings
from experiments.knowledge_transfer.__main__ import main
from experiments.knowledge_transfer.labels import accuracies, per_query, summary, ways
from experiments.knowledge_transfer.selection import _what_counts
from experiments.knowledge_transfer.teachers import Votes
from experiments.knowledge_transfer.totals import total_rows


@pytest.fixture(scope="module")
def quick(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    folder = tmp_path_factory.mktemp("quick")
    arguments = ["--dataset", "digits", "--quick", "--jobs", "1", "--no-progress", "--no-students"]
    assert main([*arguments, "--output", str(folder)]) == 0
    return folder, json.loads((folder / "digits.json").read_text())


def test_the_whole_pipeline_runs_on_digits(quick: tuple[Path, dict[str, Any]]) -> None:
    folder, result = quick
    assert (folder / "digits.png").stat().st_size > 10_000
    assert {row["aggregator"] for row in result["labels"]} == set(settings.AGGREGATORS)
    assert result["each_spent"]["epsilon"] <= result["each"]["epsilon"]
    assert all(0.0 <= row["all_draws"]["mean"] <= 1.0 for row in result["labels"])


@pytest.mark.slow
def test_students_are_trained_for_every_aggregator(tmp_path: Path) -> None:
    assert main(["--dataset", "digits", "--quick", "--no-progress", "--output", str(tmp_path)]) == 0
    result = json.loads((tmp_path / "digits.json").read_text())
    found = {row["labels"]: row["accuracy"] for row in result["students"]}
    assert found.keys() == {*settings.AGGREGATORS, "non-private student", "fully supervised"}
    assert found["fully supervised"] > 0.9


def test_a_second_run_reads_the_votes_and_gives_the_same(quick: tuple[Path, dict[str, Any]]) -> None:
    folder, result = quick
    before = {path: path.stat().st_mtime_ns for path in folder.glob("votes-*.npy")}
    arguments = ["--dataset", "digits", "--quick", "--jobs", "1", "--no-students", "--output", str(folder)]
    assert main([*arguments, "--no-progress"]) == 0
    again = json.loads((folder / "digits.json").read_text())
    assert before == {path: path.stat().st_mtime_ns for path in folder.glob("votes-*.npy")}
    assert len(before) == 2
    assert again["labels"] == result["labels"]
    assert main(["--page", str(folder / "page.md"), "--output", str(folder)]) == 0
    page = (folder / "page.md").read_text()
    shown = result["labels"][0]["all_draws"]["mean"]
    assert "## digits" in page
    assert f"{shown:.3f}" in page


@pytest.mark.parametrize("data", ["mnist", "fashion-mnist"])
def test_totals_are_the_papers(data: str) -> None:
    for row in total_rows(data, settings.SETUPS[data], (1, 3)):
        assert row["general"]["epsilon"] == pytest.approx(row["printed"]["epsilon"], abs=6e-4)
        assert row["general"]["delta"] == pytest.approx(row["printed"]["delta"], abs=6e-4)
        for name in settings.PAPERS_AGGREGATORS:
            assert row["best"][name]["epsilon"] <= row["general"]["epsilon"]
        capped = row["best"][settings.OPTIMAL]["with_private_models"]["epsilon"]
        assert capped <= settings.SETUPS[data].each.epsilon


@pytest.mark.slow
@pytest.mark.parametrize("data", ["mnist", "fashion-mnist"])
def test_all_totals_are_the_papers(data: str) -> None:
    for row in total_rows(data, settings.SETUPS[data], settings.ALLOWANCES):
        assert row["general"]["epsilon"] == pytest.approx(row["printed"]["epsilon"], abs=6e-4)


def test_gnmax_has_the_papers_noise() -> None:
    for data, (_, sigma) in settings.PRINTED_GNMAX.items():
        first = ways(settings.SETUPS[data].each, 3)[0]
        assert first.name == settings.GNMAX
        assert first.facts["sigma"] == pytest.approx(sigma, abs=0.01)


def test_accuracies_of_known_votes() -> None:
    # eleven of eleven for the truth: gamma(11) is 1 up to the proof's margin; GNMax errs as often as its noise says
    truth = np.arange(400) % 2
    votes = Votes(np.repeat(truth[:, None], 11, axis=1).astype(np.int8), np.zeros((400, 11), dtype=np.int8), truth)
    found = {
        way.name: accuracies(way, [votes], 100, draws=200, rng=np.random.default_rng(0)).mean()
        for way in ways(settings.SETUPS["mnist"].each, 3)
    }
    assert found[settings.PRIVATE_MAJORITY] == 1.0
    assert found[settings.OPTIMAL] > 0.98
    assert found[settings.PLAIN_MAJORITY] == pytest.approx(0.5, abs=0.02)  # they always say 0
    plain = Votes(votes.private, votes.private, truth)
    first = ways(settings.SETUPS["mnist"].each, 3)[0]
    gnmax = accuracies(first, [plain], 100, draws=200, rng=np.random.default_rng(0))
    # Phi(11 / (21.46 * sqrt(2))) = 0.6415
    assert gnmax.mean() == pytest.approx(0.6415, abs=0.02)
    assert (majority(votes.private) == truth).all()


def test_per_query_is_exact() -> None:
    query = per_query(settings.SETUPS["mnist"].each, 7)
    assert (query.epsilon, query.delta) == (0.6244, 0.0007)


def test_the_standard_error_is_between_trainings() -> None:
    assert summary(np.array([[0.5, 0.5], [0.7, 0.7]]))["standard_error"] == pytest.approx(0.1)
    assert "standard_error" not in summary(np.array([[0.5, 0.7]]))


def test_the_selection_looks_at_the_released_label() -> None:
    scores = {"accuracy": 0.7, "majority_accuracy": 0.9}
    assert _what_counts({"kind": "private", **scores}) == 0.9
    assert _what_counts({"kind": "plain", **scores}) == 0.7
    assert _what_counts({"accuracy": 0.6}) == 0.6


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--m", "2"], "1,3,5,7"),
        (["--m", "3,3"], "1,3,5,7"),
        (["--dataset", "cifar"], "invalid choice"),
        (["--trainings", "0"], "trainings must be an integer of at least 1"),
        (["--page", "page.md"], "holds no results"),
        (["--device", "cuda:99"], "device must be"),
    ],
)
def test_bad_arguments_give_one_line(
    arguments: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(lambda: main([*arguments, "--output", str(tmp_path)])) == 2
    line = capsys.readouterr().err
    assert line.startswith("error: ")
    assert message in line
    assert len(line.splitlines()) == 1


def test_the_command_line_exists() -> None:
    command = [sys.executable, "-m", "experiments.knowledge_transfer", "--m", "2"]
    answer = subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, "PYTHONPATH": "."})
    assert answer.returncode == 2
    assert answer.stderr.startswith("error: ")
    assert len(answer.stderr.splitlines()) == 1
