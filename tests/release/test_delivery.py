"""Paying and keeping are one act: whatever fails after the debit, the labels can be had, once, and for nothing."""

import os
import re
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from darrm.account import __main__ as account
from darrm.commands.command_line import run
from darrm.errors import DeliveryError, LedgerError
from darrm.ledger.ledger import PrivacyLedger
from darrm.privacy import PrivacyParams
from darrm.release import __main__ as release
from darrm.release import delivery, release_debited
from darrm.release.delivery import recover
from darrm.table.release import Release
from darrm.table.table import Table
from darrm.util import progress
from darrm.votes import Votes, labels_file
from darrm.votes.labels_file import labels_digest, save_labels
from tests.doors import refused, validated
from tests.release.tables import table_of

VOTES = np.array([[1, 1, 0], [0, 0, 0], [1, 1, 1], [0, 1, 0]])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    table_of([0.5, 1.0], "1.5", epsilon="0.2", delta="1e-5").save(tmp_path / "table.json")
    np.save(tmp_path / "votes.npy", VOTES)
    PrivacyLedger.create(tmp_path / "l.sqlite", PrivacyParams(20, "1e-2"))
    return tmp_path


@pytest.fixture
def aggregator(folder: Path) -> Release:
    return Release(Table.load(folder / "table.json"))


def words(folder: Path, output: str = "labels.npy") -> list[str]:
    files = ["--table", str(folder / "table.json"), "--ledger", str(folder / "l.sqlite")]
    return [str(folder / "votes.npy"), *files, "--output", str(folder / output)]


def releasing(folder: Path, output: str = "labels.npy") -> int:
    return run(lambda: release.main(words(folder, output)))


def recovering(folder: Path, number: int, output: str) -> int:
    arguments = ["recover", str(number), "--ledger", str(folder / "l.sqlite"), "--output", str(folder / output)]
    return run(lambda: release.main(arguments))


def failing(error: BaseException) -> Any:
    def fail(*_: object, **__: object) -> None:
        raise error

    return fail


FAILURES = {
    "full disk": OSError(28, "No space left on device"),
    "ctrl-c": KeyboardInterrupt(),
    "no memory": MemoryError(),
    "exit": SystemExit(7),
}


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("name", FAILURES)
def test_what_fails_after_the_debit_is_recovered_once(
    name: str, folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delivery, "save_labels", failing(FAILURES[name]))
    assert releasing(folder) == 3
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    command = f"python -m darrm.release recover 1 --ledger {folder / 'l.sqlite'} --output labels-1.csv"
    assert f"the budget is spent and the labels are kept: `{command}` writes them" in error
    monkeypatch.undo()
    ledger = PrivacyLedger(folder / "l.sqlite")
    (entry,) = ledger.undelivered()
    assert run(lambda: account.main(["--ledger", str(folder / "l.sqlite")])) == 0
    assert command in " ".join(capsys.readouterr().out.split())
    assert run(lambda: account.main(["--ledger", str(folder / "l.sqlite"), "--format", "json"])) == 0
    document = validated(capsys.readouterr().out, "account_report")
    assert document["entries"][0]["delivered"] is False
    # the name is taken until they are delivered
    assert releasing(folder) == 2
    assert f"not delivered yet (entry 1 of the ledger): wait for the other release, or run `{command}`" in (
        capsys.readouterr().err
    )
    assert recovering(folder, 1, "rescued.csv") == 0
    assert labels_digest(np.array((folder / "rescued.csv").read_text().split())) == entry.labels
    assert ledger.accountant().queries == 4
    assert recovering(folder, 1, "twice.csv") == 2
    assert not (folder / "twice.csv").exists()


def test_a_name_that_is_taken_after_the_debit_is_not_overwritten(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def overtaken(path: Path, labels: np.ndarray, *_: Any) -> None:
        save_labels(path, labels)
        (folder / "labels.npy").write_text("mine")

    monkeypatch.setattr(delivery, "save_labels", overtaken)
    assert releasing(folder) == 3
    assert "recover 1" in capsys.readouterr().err
    assert (folder / "labels.npy").read_text() == "mine"
    monkeypatch.undo()
    assert recovering(folder, 1, "labels.npy") == 2
    assert (folder / "labels.npy").read_text() == "mine"
    assert recovering(folder, 1, "other.npy") == 0


def test_labels_that_were_published_and_not_marked_are_left_where_they_are(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    locked = LedgerError("l.sqlite", "locked: nothing was debited")
    locked.__cause__ = OSError("database is locked")
    monkeypatch.setattr(PrivacyLedger, "forget_labels", failing(locked))
    assert releasing(folder) == 3
    error = capsys.readouterr().err
    assert "database is locked; the budget is spent and the labels are kept" in error
    assert "nothing was debited" not in error
    monkeypatch.undo()
    before = (folder / "labels.npy").stat()
    assert recovering(folder, 1, "labels.npy") == 0
    after = (folder / "labels.npy").stat()  # it was read, so only its time of access may differ
    assert (after.st_ino, after.st_nlink, after.st_mtime_ns) == (before.st_ino, before.st_nlink, before.st_mtime_ns)
    assert PrivacyLedger(folder / "l.sqlite").undelivered() == ()


def test_three_releases_into_one_file_pay_once(folder: Path, aggregator: Release) -> None:
    outcomes: list[str] = []
    ready = threading.Barrier(3)

    def go() -> None:
        ledger = PrivacyLedger(folder / "l.sqlite")
        ready.wait()
        try:
            release_debited(aggregator, Votes.from_labels(VOTES), ledger=ledger, output=folder / "labels.csv")
            outcomes.append("paid")
        except ValueError as error:
            outcomes.append("refused" if "paid for" in str(error) else str(error))

    threads = [threading.Thread(target=go) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(outcomes) == ["paid", "refused", "refused"]
    assert [entry.delivered for entry in PrivacyLedger(folder / "l.sqlite").entries()] == [True]


NO_DEVICE = pytest.mark.skipif(not Path("/dev/full").is_char_device(), reason="this machine has no /dev/full")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("stdout", "status"), [pytest.param("> /dev/full", 3, marks=NO_DEVICE), ("| head -c 0", 0), (">&-", 2)]
)
def test_a_report_that_cannot_be_printed(stdout: str, status: int, folder: Path) -> None:
    command = f'"{sys.executable}" -m darrm.release "$@" {stdout}'
    done = subprocess.run(
        ["/bin/bash", "-c", f"set -o pipefail; {command}", "bash", *words(folder)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr.count("\n")) == (status, bool(status))
    if status == 2:
        assert PrivacyLedger(folder / "l.sqlite").entries() == ()
        return
    assert ("only the report failed: 4 labels are paid for and written" in done.stderr) == (status == 3)
    assert np.load(folder / "labels.npy").shape == (4,)
    assert PrivacyLedger(folder / "l.sqlite").undelivered() == ()


def test_a_report_that_is_interrupted_says_that_labels_are_paid(
    folder: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(PrivacyLedger, "spent", property(failing(KeyboardInterrupt())))
    monkeypatch.setattr(os, "dup2", lambda *_: None)  # the test's own stdout
    assert releasing(folder) == 3
    assert "interrupted; only the report failed: 4 labels are paid for and written" in capfd.readouterr().err
    assert (folder / "labels.npy").exists()


@pytest.mark.parametrize("place", ["cleanup", "between"])
def test_ctrl_c_after_the_delivery_says_what_was_paid(
    place: str, folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    if place == "cleanup":
        clean = tempfile.TemporaryDirectory.cleanup

        def interrupted(self: tempfile.TemporaryDirectory) -> None:
            clean(self)
            if not PrivacyLedger(folder / "l.sqlite").undelivered():
                raise KeyboardInterrupt

        monkeypatch.setattr(tempfile.TemporaryDirectory, "cleanup", interrupted)
    else:
        monkeypatch.setattr(release, "_report", failing(KeyboardInterrupt()))
    assert releasing(folder) == 3
    error = capsys.readouterr().err
    assert error.startswith("error: interrupted; the ")
    assert str(folder / "labels.npy") in error
    assert np.load(folder / "labels.npy").shape == (4,)
    assert PrivacyLedger(folder / "l.sqlite").undelivered() == ()


def test_labels_whose_debit_nobody_heard_of_are_kept(
    folder: Path, aggregator: Release, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger, debit = PrivacyLedger(folder / "l.sqlite"), PrivacyLedger.debit
    with monkeypatch.context() as patch:
        patch.setattr(PrivacyLedger, "forget_labels", failing(KeyboardInterrupt()))
        with pytest.raises(DeliveryError, match="interrupted; the budget is spent and the labels are kept"):
            release_debited(aggregator, Votes.from_labels(VOTES), ledger=ledger)

    def interrupted(self: PrivacyLedger, *arguments: Any, **options: Any) -> int:
        debit(self, *arguments, **options)
        raise KeyboardInterrupt

    monkeypatch.setattr(PrivacyLedger, "debit", interrupted)
    with pytest.raises(KeyboardInterrupt):
        release_debited(aggregator, Votes.from_labels(VOTES), ledger=ledger)
    assert [ledger.kept_labels(number).size for number in (1, 2)] == [len(VOTES)] * 2


def test_an_output_has_one_name(folder: Path, aggregator: Release, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger = PrivacyLedger(folder / "l.sqlite")
    (folder / "real").mkdir()
    (folder / "alias").symlink_to(folder / "real")
    (folder / "dangling.csv").symlink_to(folder / "real" / "behind.csv")
    release_debited(aggregator, Votes.from_labels(VOTES), ledger=ledger, output=folder / "dangling.csv")
    assert (folder / "dangling.csv").read_text().count("\n") == 4
    monkeypatch.setattr(delivery, "save_labels", failing(OSError(28, "No space left on device")))
    with pytest.raises(DeliveryError):
        release_debited(aggregator, Votes.from_labels(VOTES), ledger=ledger, output=folder / "real" / "labels.csv")
    for other in (folder / "alias" / "labels.csv", folder / "alias" / ".." / "real" / "labels.csv"):
        with pytest.raises(ValueError, match="paid for already and are not delivered yet"):
            release_debited(aggregator, Votes.from_labels(VOTES), ledger=ledger, output=other)
    assert ledger.accountant().queries == 8


def test_a_recovery_syncs_labels_that_were_published_and_not_synced(
    folder: Path, aggregator: Release, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger, output, synced = PrivacyLedger(folder / "l.sqlite"), folder / "labels.csv", list[Path]()
    monkeypatch.setattr(delivery, "sync", failing(OSError(5, "Input/output error")))
    with pytest.raises(DeliveryError) as caught:
        release_debited(aggregator, Votes.from_labels(VOTES), ledger=ledger, output=output)
    assert caught.value.entry == 1
    monkeypatch.setattr(delivery, "sync", synced.append)
    recover(ledger, 1, output)
    assert {output, folder} <= set(synced)
    assert ledger.undelivered() == ()


def test_ctrl_c_before_the_debit_pays_nothing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Release, "release", failing(KeyboardInterrupt()))
    assert releasing(folder) == 130
    assert PrivacyLedger(folder / "l.sqlite").entries() == ()
    assert not (folder / "labels.npy").exists()


def test_a_folder_without_links_is_refused_before_anything_is_paid(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "link", failing(OSError(1, "Operation not permitted")))
    assert releasing(folder) == 2
    assert "on a file system with hard links (Operation not permitted)" in capsys.readouterr().err
    assert PrivacyLedger(folder / "l.sqlite").entries() == ()


def test_a_long_release_says_how_far_it_is(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "LOGGED_AFTER_SECONDS", 0.0)
    monkeypatch.setattr(labels_file, "_LABELS_AT_ONCE", 3)
    assert releasing(folder, output="labels.csv") == 0
    lines = capsys.readouterr().err.splitlines()
    shown = [re.sub(r" \[.*\]", "", line).partition(", ")[0] for line in lines]
    steps = ["checking votes 4/4", "drawing 4 labels", "debiting 4 queries", "writing labels 3/4", "writing labels 4/4"]
    assert [line for line in shown if line in steps] == steps


@pytest.mark.parametrize("ledger", ["l.sqlite", Path("l.sqlite"), None])
def test_a_ledger_is_opened_by_the_caller(ledger: Any, folder: Path, aggregator: Release) -> None:
    word = r"ledger must be a PrivacyLedger, got .* open a file with PrivacyLedger"
    with pytest.raises(ValueError, match=word):
        release_debited(aggregator, Votes.from_labels(VOTES), ledger=ledger)
    with pytest.raises(ValueError, match=word):
        recover(ledger, 1, folder / "x.csv")


def test_a_file_without_labels_is_not_written(folder: Path, aggregator: Release) -> None:
    with pytest.raises(ValueError, match="at least one query"):
        release_debited(
            aggregator, Votes.from_labels(VOTES[:0]), ledger=PrivacyLedger(folder / "l.sqlite"), output=folder / "x.csv"
        )
    assert not (folder / "x.csv").exists()


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["streem"], "'streem' is neither a sub-command (did you mean stream?) nor a file of votes"),
        (["recover", "x"], "must be an integer of at least 1, got 'x'"),
        ([], "VOTES is required: .csv, .tsv (also .gz), .npy, .npz, .parquet or a folder of these"),
        (["v.npy", "--first", "1"], "There is no option --first"),
    ],
)
def test_each_sub_command_has_its_own_options(
    words: list[str], line: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = ["--ledger", str(folder / "l.sqlite")]
    files += [] if "stream" in words else ["--output", str(folder / "x.csv")]
    refused(release.main, [*words, *files], line, capsys)
    assert not (folder / "x.csv").exists()
