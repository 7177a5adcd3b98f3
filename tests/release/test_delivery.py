"""What fails after a debit loses no label and costs nothing again; receipts, links, and folders of killed processes."""

import errno
import fcntl
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from darrm.account import __main__ as account
from darrm.commands.command_line import complain, run
from darrm.errors import DeliveryError, LedgerError
from darrm.ledger.ledger import PrivacyLedger
from darrm.problem import OPEN
from darrm.release import __main__ as release
from darrm.release import delivery, open_release, release_debited
from darrm.release.delivery import recover, remove_leftovers
from darrm.table.release import Release
from darrm.util import progress
from darrm.votes import Votes, labels_file
from darrm.votes.labels_file import labels_digest, save_labels
from tests.doors import one_error, releasing, validated
from tests.release.support import MAJORITIES, VOTES, raise_error

BATCH = Votes.from_labels(VOTES)
FULL_DISK = OSError(errno.ENOSPC, "No space left on device")


def recover_labels(number: int, output: str) -> int:
    return run(lambda: release.main(["recover", str(number), "--ledger", "l.sqlite", "--output", output]))


FAILURES = {
    "full disk": FULL_DISK,
    "ctrl-c": KeyboardInterrupt(),
    "no memory": MemoryError(),
    "exit": SystemExit(7),
}


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize("name", FAILURES)
def test_labels_of_a_failed_delivery_are_recovered_once(
    name: str, folder: Path, ledger: PrivacyLedger, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(delivery, "save_labels", raise_error(FAILURES[name]))
        assert releasing(folder, "votes.npy") == 3
    command = f"python -m darrm.release recover 1 --ledger {folder / 'l.sqlite'} --output labels-1.csv"
    one_error(f"the budget is spent and the labels are kept: `{command}` writes them", capsys)
    assert releasing(folder, "votes.npy") == 2  # the name is taken until they are delivered
    one_error(f"not delivered yet (entry 1 of the ledger): wait for the other release, or run `{command}`", capsys)
    (entry,) = ledger.undelivered()
    assert run(lambda: account.main(["--ledger", "l.sqlite", "--format", "json"])) == 0
    assert validated(capsys.readouterr().out, "account_report")["entries"][0]["delivered"] is False
    assert recover_labels(1, "rescued.csv") == 0
    assert labels_digest(np.array(Path("rescued.csv").read_text().split())) == entry.labels
    assert ledger.accountant().queries == 4
    assert recover_labels(1, "twice.csv") == 2
    assert not Path("twice.csv").exists()


def test_file_of_that_name_after_the_debit_is_not_overwritten(
    folder: Path, ledger: PrivacyLedger, monkeypatch: pytest.MonkeyPatch
) -> None:
    def write_both(path: Path, labels: np.ndarray, *_: Any) -> None:
        save_labels(path, labels)
        Path("labels.npy").write_text("mine")

    with monkeypatch.context() as patch:
        patch.setattr(delivery, "save_labels", write_both)
        assert releasing(folder, "votes.npy") == 3
    assert recover_labels(1, "labels.npy") == 2
    assert Path("labels.npy").read_text() == "mine"
    assert len(ledger.undelivered()) == 1
    assert recover_labels(1, "other.npy") == 0


def test_published_labels_that_the_ledger_keeps_are_left_in_place(
    folder: Path, ledger: PrivacyLedger, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    error = LedgerError("l.sqlite", "locked: nothing was debited")
    error.__cause__ = OSError("database is locked")
    with monkeypatch.context() as patch:
        patch.setattr(PrivacyLedger, "forget_labels", raise_error(error))
        assert releasing(folder, "votes.npy") == 3
    message = one_error("database is locked; the budget is spent and the labels are kept", capsys)
    assert "nothing was debited" not in message
    before = Path("labels.npy").stat()
    assert recover_labels(1, "labels.npy") == 0
    after = Path("labels.npy").stat()
    assert (after.st_ino, after.st_nlink, after.st_mtime_ns) == (before.st_ino, before.st_nlink, before.st_mtime_ns)
    assert ledger.undelivered() == ()


def test_labels_in_memory_are_kept_if_the_call_does_not_return(
    ledger: PrivacyLedger, aggregator: Release, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(PrivacyLedger, "forget_labels", raise_error(KeyboardInterrupt()))
    with pytest.raises(DeliveryError, match="interrupted; the budget is spent and the labels are kept"):
        release_debited(aggregator, BATCH, ledger=ledger)
    debit = PrivacyLedger.debit

    def debit_and_interrupt(*arguments: Any, **options: Any) -> None:
        debit(*arguments, **options)
        raise KeyboardInterrupt

    monkeypatch.setattr(PrivacyLedger, "debit", debit_and_interrupt)
    with pytest.raises(KeyboardInterrupt):
        release_debited(aggregator, BATCH, ledger=ledger)
    assert [ledger.kept_labels(number).tolist() for number in (1, 2)] == [MAJORITIES] * 2


def test_labels_whose_ledger_goes_away_are_counted_as_paid_for_and_recovered(
    folder: Path, ledger: PrivacyLedger, aggregator: Release, monkeypatch: pytest.MonkeyPatch
) -> None:
    debit = PrivacyLedger.debit

    def debit_and_move(*arguments: Any, **options: Any) -> int:
        number = debit(*arguments, **options)
        (folder / "l.sqlite").rename(folder / "away")
        return number

    with monkeypatch.context() as patch:
        patch.setattr(PrivacyLedger, "debit", debit_and_move)
        with pytest.raises(
            DeliveryError, match="the ledger cannot be read now, so count the budget as spent"
        ) as caught:
            release_debited(aggregator, BATCH, ledger=ledger, output="labels.csv")
    assert "make a ledger" not in str(caught.value)  # it would have a second budget
    (folder / "away").rename(folder / "l.sqlite")
    assert recover(ledger, 1, "labels.csv").tolist() == MAJORITIES
    assert ledger.undelivered() == ()


def test_output_is_one_file_under_all_its_names(
    folder: Path, ledger: PrivacyLedger, aggregator: Release, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "real").mkdir()
    (folder / "alias").symlink_to(folder / "real")
    (folder / "dangling.csv").symlink_to(folder / "real" / "behind.csv")
    release_debited(aggregator, BATCH, ledger=ledger, output="dangling.csv")
    assert (folder / "real" / "behind.csv").read_text().count("\n") == 4
    monkeypatch.setattr(delivery, "save_labels", raise_error(FULL_DISK))
    with pytest.raises(DeliveryError):
        release_debited(aggregator, BATCH, ledger=ledger, output="real/labels.csv")
    for name in ("alias/labels.csv", "alias/../real/labels.csv"):
        with pytest.raises(ValueError, match="paid for already and are not delivered yet"):
            release_debited(aggregator, BATCH, ledger=ledger, output=name)
    assert ledger.accountant().queries == 8


def test_recovery_syncs_published_labels(
    folder: Path, ledger: PrivacyLedger, aggregator: Release, monkeypatch: pytest.MonkeyPatch
) -> None:
    output, synced = folder / "labels.csv", list[Path]()
    monkeypatch.setattr(delivery, "sync", raise_error(OSError(errno.EIO, "Input/output error")))
    with pytest.raises(DeliveryError) as error:
        release_debited(aggregator, BATCH, ledger=ledger, output=output)
    assert error.value.entry == 1
    monkeypatch.setattr(delivery, "sync", synced.append)
    recover(ledger, 1, output)
    assert {output, folder} <= set(synced)
    assert ledger.undelivered() == ()


# what fails before the debit costs nothing


def test_interrupt_before_the_debit_pays_nothing(
    folder: Path, ledger: PrivacyLedger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Release, "release", raise_error(KeyboardInterrupt()))
    assert releasing(folder, "votes.npy") == 130
    assert ledger.entries() == ()
    assert not Path("labels.npy").exists()


def test_one_of_three_releases_into_a_file_pays(folder: Path, ledger: PrivacyLedger, aggregator: Release) -> None:
    start = threading.Barrier(3)

    def release_once(_: int) -> str:
        own_ledger = PrivacyLedger(folder / "l.sqlite")
        start.wait()
        try:
            release_debited(aggregator, BATCH, ledger=own_ledger, output="labels.csv")
        except ValueError as error:
            return str(error)
        return "paid"

    with ThreadPoolExecutor(3) as pool:
        refused = [outcome for outcome in pool.map(release_once, range(3)) if outcome != "paid"]
    assert len(refused) == 2
    assert all("paid for" in message for message in refused)
    assert [entry.delivered for entry in ledger.entries()] == [True]


def test_folder_without_hard_links_is_refused_before_the_debit(
    ledger: PrivacyLedger, aggregator: Release, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "link", raise_error(OSError(errno.EPERM, "Operation not permitted")))
    with pytest.raises(ValueError, match=r"on a file system with hard links \(Operation not permitted\)"):
        release_debited(aggregator, BATCH, ledger=ledger, output="labels.npy")
    assert ledger.entries() == ()


def test_release_without_queries_writes_no_file(ledger: PrivacyLedger, aggregator: Release) -> None:
    with pytest.raises(ValueError, match="at least one query"):
        release_debited(aggregator, BATCH[:0], ledger=ledger, output="x.csv")
    assert not Path("x.csv").exists()


@pytest.mark.parametrize("ledger", ["l.sqlite", Path("l.sqlite"), None])
def test_ledger_must_be_opened_by_the_caller(ledger: Any, aggregator: Release) -> None:
    for use in (
        lambda: release_debited(aggregator, BATCH, ledger=ledger),
        lambda: recover(ledger, 1, "x.csv"),
        lambda: open_release(aggregator, ledger),
    ):
        with pytest.raises(ValueError, match=r"ledger must be a PrivacyLedger, got .* open a file with PrivacyLedger"):
            use()


@pytest.mark.parametrize(
    ("own", "classes", "expected"),
    [
        (2, None, 2),
        (OPEN, None, OPEN),
        (OPEN, "open", OPEN),
        (2, 2, 2),
        (2, ("a", "b"), ("a", "b")),
        (3, ("a", "b", "c"), ("a", "b", "c")),
        (None, ("a", "b"), ("a", "b")),
        (2, 3, "two different labels, like no,yes, got '3'"),
        (2, "open", "two different labels, like no,yes, got 'open'"),
        (3, ("a", "b"), "3 different labels, or their number, got 'a,b'"),
        (OPEN, ("a", "b"), "open, or left out, got 'a,b'"),
    ],
)
def test_classes_of_votes_are_as_many_as_those_of_the_aggregator(own: Any, classes: Any, expected: Any) -> None:
    aggregator: Any = SimpleNamespace() if own is None else SimpleNamespace(classes=own)
    if isinstance(expected, str):
        with pytest.raises(ValueError, match=f"classes must be {expected}"):
            delivery.classes_for(aggregator, classes)
    else:
        assert delivery.classes_for(aggregator, classes) == expected


def test_run_that_is_charged_as_a_whole_is_not_charged_by_query() -> None:
    def make_run(labels: int) -> Any:
        return SimpleNamespace(privacy_cost=lambda queries: SimpleNamespace(labels=labels * queries))

    delivery.check_by_query(make_run(1))
    with pytest.raises(ValueError, match="a run that is charged as a whole"):
        delivery.check_by_query(make_run(2))


# the report of the command


def test_steps_of_a_long_release_are_shown(
    folder: Path, ledger: PrivacyLedger, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "LOGGED_AFTER_SECONDS", 0.0)
    monkeypatch.setattr(labels_file, "_LABELS_AT_ONCE", 3)
    assert releasing(folder, "votes.npy", output="labels.csv") == 0
    lines = [re.sub(r" \[.*\]", "", line).partition(", ")[0] for line in capsys.readouterr().err.splitlines()]
    steps = ["checking votes 4/4", "drawing 4 labels", "debiting 4 queries", "writing labels 3/4", "writing labels 4/4"]
    assert [line for line in lines if line in steps] == steps
    assert ledger.undelivered() == ()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("stdout", "status"),
    [
        pytest.param(
            "> /dev/full",
            3,
            marks=pytest.mark.skipif(not Path("/dev/full").is_char_device(), reason="this machine has no /dev/full"),
        ),
        ("| head -c 0", 0),
        (">&-", 2),
    ],
)
def test_report_that_cannot_be_printed_says_whether_labels_are_paid(
    stdout: str, status: int, ledger: PrivacyLedger
) -> None:
    words = "votes.npy --table table.json --ledger l.sqlite --output labels.npy"
    command = f'set -o pipefail; "{sys.executable}" -m darrm.release {words} {stdout}'
    process = subprocess.run(["/bin/bash", "-c", command], capture_output=True, text=True, check=False)
    assert (process.returncode, process.stderr.count("\n")) == (status, bool(status))
    assert ("only the report failed: 4 labels are paid for and written" in process.stderr) == (status == 3)
    assert [entry.delivered for entry in ledger.entries()] == ([] if status == 2 else [True])
    assert Path("labels.npy").exists() == (status != 2)


def interrupt_cleanup(monkeypatch: pytest.MonkeyPatch) -> None:
    clean = tempfile.TemporaryDirectory.cleanup

    def clean_and_interrupt(self: tempfile.TemporaryDirectory[str]) -> None:
        clean(self)
        if not PrivacyLedger("l.sqlite").undelivered():
            raise KeyboardInterrupt

    monkeypatch.setattr(tempfile.TemporaryDirectory, "cleanup", clean_and_interrupt)


def interrupt_before_report(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(release, "_report", raise_error(KeyboardInterrupt()))


def interrupt_report(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PrivacyLedger, "spent", property(raise_error(KeyboardInterrupt())))
    monkeypatch.setattr(os, "dup2", lambda *_: None)  # the test's own stdout


@pytest.mark.parametrize(
    ("interrupt", "message"),
    [
        (interrupt_cleanup, "interrupted; the budget is spent and the labels are in"),
        (interrupt_before_report, "interrupted; the labels are paid for and written to"),
        (interrupt_report, "interrupted; only the report failed: 4 labels are paid for and written"),
    ],
)
def test_interrupt_after_the_delivery_says_that_labels_are_paid(
    interrupt: Any,
    message: str,
    folder: Path,
    ledger: PrivacyLedger,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with monkeypatch.context() as patch:
        interrupt(patch)
        assert releasing(folder, "votes.npy") == 3
    error = capfd.readouterr().err
    assert f"error: {message}" in error
    assert "labels.npy" in error
    assert np.load("labels.npy").tolist() == MAJORITIES
    assert [entry.delivered for entry in ledger.entries()] == [True]


@pytest.mark.usefixtures("ledger")
def test_second_ctrl_c_does_not_interrupt_the_line_about_the_payment(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def complain_and_interrupt(*arguments: Any) -> int:
        signal.raise_signal(signal.SIGINT)
        return complain(*arguments)

    monkeypatch.setattr(release, "complain", complain_and_interrupt)
    monkeypatch.setattr(release, "_report", lambda *_: signal.raise_signal(signal.SIGINT))
    handler = signal.getsignal(signal.SIGINT)
    assert releasing(folder, "votes.npy") == 3
    one_error("interrupted; the labels are paid for and written to", capsys)
    assert signal.getsignal(signal.SIGINT) is handler
    monkeypatch.undo()
    with ThreadPoolExecutor(1) as pool:  # signals belong to the main thread
        assert pool.submit(releasing, folder, "votes.npy", output=str(folder / "other.npy")).result() == 0


# receipts


@pytest.mark.parametrize("name", ["labels.csv", "labels.npy"])
def test_file_has_the_receipt_of_its_debit(name: str, ledger: PrivacyLedger, aggregator: Release) -> None:
    release_debited(aggregator, BATCH, ledger=ledger)  # in memory: no receipt
    release_debited(aggregator, BATCH, ledger=ledger, output=name)
    release_debited(aggregator, BATCH, ledger=ledger, output=f"later-{name}")
    for entry, output in zip(ledger.entries()[1:], (name, f"later-{name}"), strict=True):
        text = Path(f"{output}.receipt.json").read_text(encoding="utf-8")
        receipt = {
            "format": "darrm-receipt 1",
            "ledger_digest": json.loads(json.dumps(ledger.digest(entry.number).to_json())),
            "entry": {
                "time": entry.time,
                "what": entry.what,
                "count": 4,
                "table": entry.table,
                "labels": entry.labels,
                "cost": ledger.costs()[entry.kind].to_text(),
            },
        }
        assert text == json.dumps(receipt, indent=1, ensure_ascii=False)
        digest = json.loads(text)["ledger_digest"]
        assert (digest["text"], digest["population"]) == (str(ledger.digest(entry.number)), "Wörth 7")
    assert len(list(Path().glob("*.receipt.json"))) == 2


def test_receipt_of_other_labels_is_never_replaced(
    ledger: PrivacyLedger, aggregator: Release, monkeypatch: pytest.MonkeyPatch
) -> None:
    receipt = Path("labels.csv.receipt.json")
    release_debited(aggregator, BATCH, ledger=ledger, output="labels.csv")
    before = receipt.read_bytes()
    Path("labels.csv").unlink()
    with pytest.raises(ValueError, match=r"labels.csv.receipt.json' is the receipt of other labels: move it"):
        release_debited(aggregator, BATCH, ledger=ledger, output="labels.csv")
    assert ledger.accountant().queries == 4
    receipt.unlink()

    def write_both(*arguments: Any) -> None:
        save_labels(*arguments)
        receipt.write_bytes(before)

    with monkeypatch.context() as patch:
        patch.setattr(delivery, "save_labels", write_both)
        with pytest.raises(DeliveryError, match="the receipt of other labels"):
            release_debited(aggregator, BATCH, ledger=ledger, output="labels.csv")
    with pytest.raises(ValueError, match="the receipt of other labels"):
        recover(ledger, 2, Path("labels.csv"))
    assert receipt.read_bytes() == before
    receipt.unlink()
    assert recover(ledger, 2, Path("labels.csv")).tolist() == MAJORITIES
    assert Path("labels.csv").read_text() == "1\n0\n1\n0\n"


# temporary folders of killed processes


def list_leftovers() -> list[str]:
    return [path.name for path in Path().iterdir() if path.name.startswith(".labels-")]


@pytest.mark.usefixtures("folder")
def test_leftover_is_removed_unless_it_is_locked_or_of_another_output() -> None:
    leftover = Path(".labels-labels.npy-abc")
    leftover.mkdir()
    Path(".labels-other.npy-abc").mkdir()
    handle = os.open(leftover, os.O_RDONLY)
    fcntl.flock(handle, fcntl.LOCK_EX)
    remove_leftovers(Path("labels.npy"))
    assert len(list_leftovers()) == 2
    os.close(handle)
    remove_leftovers(Path("labels.npy"))
    assert list_leftovers() == [".labels-other.npy-abc"]


def test_temporary_folder_that_is_removed_before_it_is_locked_is_made_again(
    ledger: PrivacyLedger, aggregator: Release, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock = fcntl.flock
    removed: list[str] = []

    def remove_and_lock(handle: int, operation: int) -> None:
        leftovers = list_leftovers()
        if operation == fcntl.LOCK_EX and leftovers and len(removed) < 2:
            removed.extend(leftovers)
            remove_leftovers(Path("labels.npy"))
        lock(handle, operation)

    monkeypatch.setattr(fcntl, "flock", remove_and_lock)
    release_debited(aggregator, BATCH, ledger=ledger, output="labels.npy")
    assert len(set(removed)) == 2
    assert np.load("labels.npy").tolist() == MAJORITIES
    assert list_leftovers() == []


def test_temporary_folder_that_cannot_be_locked_is_refused_before_the_debit(
    ledger: PrivacyLedger, aggregator: Release, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without its lock, another process would remove the labels between the debit and their publication."""
    open_file = os.open

    def fail_for_temporary(path: Any, *arguments: Any, **options: Any) -> int:
        if Path(os.fspath(path)).name.startswith(".labels-"):
            raise OSError(errno.EMFILE, "Too many open files")
        return open_file(path, *arguments, **options)

    monkeypatch.setattr(os, "open", fail_for_temporary)
    with pytest.raises(OSError, match="Too many open files"):
        release_debited(aggregator, BATCH, ledger=ledger, output="labels.npy")
    assert ledger.entries() == ()
