"""What a release leaves beside its output: receipts, which are never overwritten, and folders of killed processes."""

import errno
import fcntl
import hashlib
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from darrm import PrivacyLedger, PrivacyParams, Problem, Release, Voters, Votes, certify, release_debited
from darrm.commands.command_line import run
from darrm.errors import DeliveryError
from darrm.majority import baselines
from darrm.release import delivery, release_partitions
from darrm.release.__main__ import main
from darrm.release.delivery import recover
from darrm.votes import labels_file

PROBLEM = Problem.from_allowance(Voters(3, PrivacyParams(0.1)), 3)
VOTES = Votes.from_labels([[1, 1, 0], [0, 0, 1]])


@pytest.fixture
def ledger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PrivacyLedger:
    monkeypatch.chdir(tmp_path)
    return PrivacyLedger.create("ledger.sqlite", PrivacyParams(9), population="ward 7")


@pytest.fixture(scope="module")
def aggregator() -> Release:
    return Release(certify(PROBLEM, baselines.double_subsampling(PROBLEM)))


def receipt(name: str) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(Path(f"{name}.receipt.json").read_text(encoding="utf-8"))
    assert document["format"] == "darrm-receipt 1"
    return document


def check(ledger: PrivacyLedger, number: int, name: str, files: dict[str, str] | None = None) -> None:
    document, entry = receipt(name), ledger.entries()[number - 1]
    assert document["ledger_digest"] == json.loads(json.dumps(ledger.digest(number).to_json()))
    assert document["ledger_digest"]["text"] == str(ledger.digest(number))
    assert document["ledger_digest"]["population"] == "ward 7"
    said = document["entry"]
    assert (said["time"], said["what"], said["count"]) == (entry.time, entry.what, entry.count)
    assert (said["table"], said["labels"]) == (entry.table, entry.labels)
    assert said["cost"] == ledger.costs()[entry.kind].to_text()
    assert document.get("files", {}) == (files or {})


@pytest.mark.parametrize("name", ["labels.csv", "labels.npy"])
def test_a_file_has_the_receipt_of_its_debit(name: str, ledger: PrivacyLedger, aggregator: Release) -> None:
    release_debited(aggregator, VOTES, ledger=ledger)  # in memory: none
    release_debited(aggregator, VOTES, ledger=ledger, output=name)
    release_debited(aggregator, VOTES, ledger=ledger, output=f"later-{name}")
    check(ledger, 2, name)
    check(ledger, 3, f"later-{name}")
    assert sorted(path.name for path in Path().glob("*.json")) == [f"{name}.receipt.json", f"later-{name}.receipt.json"]


def test_a_receipt_of_other_labels_is_never_lost(
    ledger: PrivacyLedger, aggregator: Release, monkeypatch: pytest.MonkeyPatch
) -> None:
    release_debited(aggregator, VOTES, ledger=ledger, output="labels.csv")
    before = Path("labels.csv.receipt.json").read_bytes()
    Path("labels.csv").unlink()
    with pytest.raises(ValueError, match=r"labels.csv.receipt.json' is the receipt of other labels: move it"):
        release_debited(aggregator, VOTES, ledger=ledger, output="labels.csv")
    assert ledger.accountant().queries == 2
    Path("labels.csv.receipt.json").rename("older.json")
    write = labels_file.save_labels

    def meanwhile(*arguments: Any) -> None:
        write(*arguments)
        Path("labels.csv.receipt.json").write_bytes(before)

    with monkeypatch.context() as patch:
        patch.setattr(delivery, "save_labels", meanwhile)
        with pytest.raises(DeliveryError, match="the receipt of other labels"):
            release_debited(aggregator, VOTES, ledger=ledger, output="labels.csv")
    with pytest.raises(ValueError, match="the receipt of other labels"):
        recover(ledger, 2, Path("labels.csv").absolute())
    assert Path("labels.csv.receipt.json").read_bytes() == before
    Path("labels.csv.receipt.json").unlink()
    labels = recover(ledger, 2, Path("labels.csv").absolute())
    assert Path("labels.csv").read_text() == "".join(f"{label}\n" for label in labels)


def test_the_command_line_names_the_population_of_a_new_ledger(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    certify(PROBLEM, baselines.double_subsampling(PROBLEM)).save(tmp_path / "table.json")
    (tmp_path / "votes.csv").write_text("0,1,1\n")
    words = ["votes.csv", "--table", "table.json", "--ledger", "new.sqlite", "--output", "l.csv"]
    assert run(lambda: main([*words, "--population", "ward 7"])) == 2
    assert "--population needs --create-budget" in capsys.readouterr().err
    words += ["--create-budget", "2,1e-5", "--population"]
    assert run(lambda: main([*words, "two\nlines"])) == 2
    assert not Path("new.sqlite").exists()
    capsys.readouterr()
    assert run(lambda: main([*words, "ward 7"])) == 0
    paid = PrivacyLedger("new.sqlite")
    assert paid.population == "ward 7"
    out = capsys.readouterr().out
    assert f"receipt: l.csv.receipt.json\ndigest: {paid.digest()}\n" in out
    check(paid, 1, "l.csv")


def test_parquet_files_have_one_receipt_and_a_digest_a_file(
    tmp_path: Path, ledger: PrivacyLedger, aggregator: Release, monkeypatch: pytest.MonkeyPatch
) -> None:
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    (tmp_path / "votes" / "day=1").mkdir(parents=True)
    names = ("a.parquet", "day=1/b.parquet")
    for name in names:
        columns = {f"v{k}": np.array([0, 1, 1, k % 2]) for k in range(3)}
        parquet.write_table(arrow.table(columns), tmp_path / "votes" / name)
    release_partitions(aggregator, "votes", ledger=ledger, output="labels")
    check(ledger, 2, "labels", {name: digest_of(tmp_path / "labels" / name) for name in names})
    release_partitions(aggregator, "votes/a.parquet", ledger=ledger, output="one.parquet")
    check(ledger, 3, "one.parquet")
    with pytest.raises(ValueError, match="already"):
        release_partitions(aggregator, "votes", ledger=ledger, output="labels")
    (tmp_path / "labels").rename(tmp_path / "moved")
    with pytest.raises(ValueError, match="the receipt of other labels"):
        release_partitions(aggregator, "votes", ledger=ledger, output="labels")
    with monkeypatch.context() as patch:
        patch.setattr(PrivacyLedger, "receipt", lambda *_: 1 / 0)
        with pytest.raises(DeliveryError):
            release_partitions(aggregator, "votes", ledger=ledger, output="again")
    assert not os.path.lexists("again.receipt.json")
    release_partitions(aggregator, "votes", ledger=ledger, output="again")
    assert len(ledger.entries()) == 5  # nothing was paid twice
    check(ledger, 5, "again", {name: digest_of(tmp_path / "again" / name) for name in names})


def digest_of(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


# folders of killed processes


def left(path: Path) -> list[str]:
    return [file.name for file in path.iterdir() if file.name.startswith(".labels-")]


def test_a_folder_that_somebody_holds_stays(tmp_path: Path) -> None:
    folder = tmp_path / ".labels-labels.npy-abc"
    folder.mkdir()
    (tmp_path / ".labels-other.npy-abc").mkdir()
    handle = os.open(folder, os.O_RDONLY)
    fcntl.flock(handle, fcntl.LOCK_EX)
    delivery.remove_leftovers(tmp_path / "labels.npy")
    assert len(left(tmp_path)) == 2
    os.close(handle)
    delivery.remove_leftovers(tmp_path / "labels.npy")
    assert left(tmp_path) == [".labels-other.npy-abc"]


def test_a_folder_that_is_removed_before_it_is_locked_is_made_again(
    tmp_path: Path, ledger: PrivacyLedger, aggregator: Release, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock = fcntl.flock
    made: list[str] = []

    def overtaken(handle: int, how: int) -> None:
        folders = left(tmp_path)
        if how == fcntl.LOCK_EX and folders and len(made) < 2:
            made.append(*folders)
            delivery.remove_leftovers(tmp_path / "labels.npy")
        lock(handle, how)

    monkeypatch.setattr(fcntl, "flock", overtaken)
    labels = release_debited(aggregator, VOTES, ledger=ledger, output="labels.npy")
    assert len(set(made)) == 2
    assert np.load("labels.npy").tolist() == labels.tolist()
    assert left(tmp_path) == []


def test_a_folder_that_cannot_be_opened_is_refused_before_anything_is_paid(
    ledger: PrivacyLedger, aggregator: Release, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without its lock, another process would remove the labels between the debit and their publication."""
    opened = os.open

    def open_file(path: Any, *arguments: Any, **named: Any) -> int:
        if Path(os.fspath(path)).name.startswith(".labels-"):
            raise OSError(errno.EMFILE, "Too many open files")
        return opened(path, *arguments, **named)

    monkeypatch.setattr(os, "open", open_file)
    with pytest.raises(OSError, match="Too many open files"):
        release_debited(aggregator, VOTES, ledger=ledger, output="labels.npy")
    assert ledger.entries() == ()
