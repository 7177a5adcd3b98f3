"""What a release that is killed leaves beside its output, and who removes it."""

import fcntl
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from darrm import PrivacyLedger, PrivacyParams, Problem, Release, Voters, Votes, certify, release_debited
from darrm.commands.command_line import run
from darrm.errors import DeliveryError
from darrm.majority import baselines
from darrm.release import debited
from darrm.release.__main__ import main

PROBLEM = Problem.from_allowance(Voters(3, PrivacyParams(0.1)), 3)
VOTES = Votes.of_labels([[1, 1, 0], [0, 0, 1]])


@pytest.fixture
def ledger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PrivacyLedger:
    monkeypatch.chdir(tmp_path)
    return PrivacyLedger.create("ledger.sqlite", PrivacyParams(9))


def left(path: Path) -> list[str]:
    return [file.name for file in path.iterdir() if file.name.startswith(".labels-")]


def test_a_folder_that_somebody_holds_stays(tmp_path: Path, ledger: PrivacyLedger) -> None:
    del ledger
    folder = tmp_path / ".labels-labels.npy-abc"
    folder.mkdir()
    (tmp_path / ".labels-other.npy-abc").mkdir()
    handle = os.open(folder, os.O_RDONLY)
    fcntl.flock(handle, fcntl.LOCK_EX)
    debited.remove_left(tmp_path / "labels.npy")
    assert len(left(tmp_path)) == 2
    os.close(handle)
    debited.remove_left(tmp_path / "labels.npy")
    assert left(tmp_path) == [".labels-other.npy-abc"]


def test_a_folder_that_is_removed_before_it_is_locked_is_made_again(
    tmp_path: Path, ledger: PrivacyLedger, monkeypatch: pytest.MonkeyPatch
) -> None:
    aggregator = Release(certify(PROBLEM, baselines.double_subsampling(PROBLEM)))
    lock = fcntl.flock
    made: list[str] = []

    def overtaken(handle: int, how: int) -> None:
        folders = left(tmp_path)
        if how == fcntl.LOCK_EX and folders and len(made) < 2:
            made.append(*folders)
            debited.remove_left(tmp_path / "labels.npy")
        lock(handle, how)

    monkeypatch.setattr(fcntl, "flock", overtaken)
    labels = release_debited(aggregator, VOTES, ledger=ledger, output="labels.npy")
    assert len(set(made)) == 2
    assert np.load("labels.npy").tolist() == labels.tolist()
    assert left(tmp_path) == []


def test_who_is_interrupted_after_the_delivery_learns_where_the_labels_are(
    ledger: PrivacyLedger, monkeypatch: pytest.MonkeyPatch
) -> None:
    aggregator = Release(certify(PROBLEM, baselines.double_subsampling(PROBLEM)))
    forget = PrivacyLedger.forget_labels

    def interrupted(self: PrivacyLedger, number: int, *files: Any) -> None:
        forget(self, number, *files)
        raise KeyboardInterrupt

    monkeypatch.setattr(PrivacyLedger, "forget_labels", interrupted)
    with pytest.raises(DeliveryError, match=r"budget is spent and the labels are in '.*labels.npy'"):
        release_debited(aggregator, VOTES, ledger=ledger, output="labels.npy")


@pytest.mark.parametrize("kinds", ["one", "planned", "adaptive"])
def test_a_ledger_is_made_for_its_kinds(
    tmp_path: Path, ledger: PrivacyLedger, kinds: str, capsys: pytest.CaptureFixture[str]
) -> None:
    del ledger
    certify(PROBLEM, baselines.double_subsampling(PROBLEM)).save("table.json")
    (tmp_path / "votes.csv").write_text("0,1,1\n")
    given = ["votes.csv", "--table", "table.json", "--ledger", "new.sqlite", "--output", "l.csv", "--quiet"]
    assert run(lambda: main([*given, "--composition", kinds])) == 2
    assert "needs --create-budget" in capsys.readouterr().err
    assert run(lambda: main([*given, "--composition", kinds, "--create-budget", "2,1e-5"])) == 0
    assert PrivacyLedger("new.sqlite").composition == kinds
