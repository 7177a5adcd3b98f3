"""Releases that are killed at random moments, alone, together and on a full disk: what was paid is what can be had."""

import os
import random
import resource
import signal
import time
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from darrm.commands.command_line import run
from darrm.ledger.ledger import PrivacyLedger
from darrm.ledger.rows import Entry
from darrm.majority.noise_function import NoiseFunction
from darrm.privacy import PrivacyParams
from darrm.problem import Problem, Voters
from darrm.release import __main__ as release
from darrm.release import debited
from darrm.table.table import certify
from darrm.votes.labels_file import labels_digest, save_labels
from tests.exhaustive import EXHAUSTIVE
from tests.killed import KILLED, apart, ended

QUERIES = 64  # two releases draw the same labels with probability about 2⁻⁴⁰: a digest tells whose labels a file holds
FIRST_PAGES = 1000  # bytes; no ledger is as small
MODES = ("single", "concurrent", "full disk")


def prepare(folder: Path) -> None:
    problem = Problem.from_allowance(Voters(3, PrivacyParams("0.02", "1e-8")), 1)
    certify(problem, NoiseFunction(3, [0.3, 0.3])).save(folder / "table.json")
    np.save(folder / "votes.npy", np.tile([[1, 1, 0], [0, 0, 1]], (QUERIES // 2, 1)))
    PrivacyLedger.create(folder / "l.sqlite", PrivacyParams(100_000, "0.1"))


def child(folder: Path, note: str, output: str, limit: int | None) -> int:
    """Fork a process that releases, and return its number."""
    number = os.fork()
    if number:
        return number
    for stream in (1, 2):
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream)
    if limit is not None and limit > FIRST_PAGES:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))  # the ledger or its journal cannot grow
    elif limit is not None:

        def full(path: Path, labels: np.ndarray, _: object) -> None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))  # neither labels nor ledger can be written
            save_labels(path, labels)

        debited.save_labels = full  # type: ignore[assignment, attr-defined]
    words = [str(folder / "votes.npy"), "--table", str(folder / "table.json"), "--ledger", str(folder / "l.sqlite")]
    status = 99
    try:
        status = run(lambda: release.main([*words, "--output", str(folder / output), "--note", note, "--quiet"]))
    finally:
        os._exit(status)


def lines_of(path: Path) -> list[str]:
    return path.read_text().split() if path.suffix == ".csv" else [str(label) for label in np.load(path).tolist()]


def check_what_is_on_disk(folder: Path, entries: tuple[Entry, ...], ledger: PrivacyLedger) -> None:
    """No labels without their debit: neither published, nor under a temporary name, nor in part."""
    digests = {entry.labels for entry in entries}
    kept = [ledger.kept_labels(entry.number) for entry in entries if not entry.delivered]
    texts = ["".join(f"{label}\n" for label in labels.tolist()) for labels in kept]
    for path in folder.rglob("*"):
        if path.suffix not in {".csv", ".npy"} or path.name in {"votes.npy", "table.json"} or not path.stat().st_size:
            continue
        if path.parent == folder or path.suffix == ".npy":
            try:
                labels = lines_of(path)
            except (ValueError, EOFError):  # half of an .npy file under a temporary name
                assert path.parent != folder
                assert kept
                continue
            if labels_digest(np.array(labels)) in digests:
                continue
        assert path.parent != folder, path
        assert labels_digest(np.array(lines_of(path))) in digests or any(
            text.startswith(path.read_text()) for text in texts
        ), path


def kill_many(folder: Path, kills: int, mode: str, seed: int) -> Counter[int]:
    """Release and kill; count the exit statuses."""
    generator = random.Random(seed)  # noqa: S311 (moments to kill, no secrets)
    ledger = PrivacyLedger(folder / "l.sqlite")
    statuses: Counter[int] = Counter()
    whole = 0.0
    for kill in range(kills):
        outputs = [f"{kill}.csv" if kill % 2 else f"{kill}.npy"]
        if mode == "concurrent":
            outputs = [outputs[0], outputs[0], f"{kill}-other.csv"]
        limit = None
        if mode == "full disk":
            ledger_size = (folder / "l.sqlite").stat().st_size
            limit = generator.choice([ledger_size + generator.randrange(12_000), generator.randrange(FIRST_PAGES)])
        start = time.monotonic()
        children = {
            child(folder, f"{mode} {kill} {index}", output, limit): f"{mode} {kill} {index}"
            for index, output in enumerate(outputs)
        }
        if kill >= 3:  # the first ones show how long a release takes
            time.sleep(generator.uniform(0.0, 1.1 * whole))
            for number in children:
                os.kill(number, signal.SIGKILL)
        found = {note: ended(number) for number, note in children.items()}
        whole = max(whole, time.monotonic() - start) if kill < 3 else whole
        statuses.update(found.values())
        entries = ledger.entries()
        by_note = {entry.note: entry for entry in entries}
        for note, status in found.items():
            assert status in {0, 2, 3, KILLED}, (note, status)
            if status != KILLED:
                assert (status == 2) == (note not in by_note), (note, status)
            if status == 0:
                assert by_note[note].delivered
        if kill % 10 == 0 or kill == kills - 1:
            check_what_is_on_disk(folder, entries, ledger)
    return statuses


def recover_all(folder: Path) -> int:
    """Deliver what waits, by the command line; return how many there were."""
    ledger = PrivacyLedger(folder / "l.sqlite")
    waiting, paid = ledger.undelivered(), ledger.accountant().queries
    for entry in waiting:
        words = ["recover", str(entry.number), "--ledger", str(folder / "l.sqlite"), "--output", entry.output]
        assert run(lambda words=words: release.main([*words, "--quiet"])) == 0  # type: ignore[misc]
    assert ledger.undelivered() == ()
    assert ledger.accountant().queries == paid
    outputs = [entry.output for entry in ledger.entries()]
    assert len(set(outputs)) == len(outputs)  # nobody paid for a name that another one had
    published = [path for path in folder.iterdir() if path.suffix in {".csv", ".npy"} and path.name != "votes.npy"]
    assert sorted(map(str, published)) == sorted(outputs)
    for entry in ledger.entries():
        assert labels_digest(np.array(lines_of(Path(entry.output)))) == entry.labels
        assert entry.count == QUERIES
    return len(waiting)


def run_kills(folder: Path, kills: int, mode: str, seed: int) -> str:
    prepare(folder)
    count = f"sorted(kills.kill_many(folder, {kills}, {mode!r}, {seed}).items())"
    return apart(__file__, folder, f"{count}, kills.recover_all(folder)")


@pytest.mark.parametrize("mode", [MODES[0], *(pytest.param(mode, marks=pytest.mark.slow) for mode in MODES[1:])])
def test_twelve_kills_lose_nothing(mode: str, tmp_path: Path) -> None:
    assert str(KILLED) in run_kills(tmp_path, 12, mode, seed=3)


@pytest.mark.slow
@pytest.mark.parametrize(("mode", "share"), [("single", 0.5), ("concurrent", 0.25), ("full disk", 0.25)])
def test_many_kills_lose_nothing(mode: str, share: float, tmp_path: Path) -> None:
    printed = run_kills(tmp_path, round(share * (1000 if EXHAUSTIVE else 200)), mode, seed=11)
    assert str(KILLED) in printed
    if mode == "full disk":
        assert "(3, " in printed
