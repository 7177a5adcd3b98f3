"""The order of steps of every destination: draw, debit and keep, hand over, acknowledge; each durable before the next.

`test_kills.py` kills processes between these steps.
"""

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from darrm.commands.command_line import run
from darrm.ledger.ledger import PrivacyLedger
from darrm.release import __main__ as command
from darrm.release import pipe, release_debited
from darrm.table.release import Release
from darrm.table.table import Table
from darrm.votes import Votes
from tests.release.test_kills import (
    PARTS,
    QUERIES,
    check_paid,
    list_entries,
    list_leftovers,
    make_words,
    prepare,
    read_published,
)

PART = ["draw", "debit", "publish"]
STEPS = {
    "memory": ["draw", "debit", "forget"],
    "labels.csv": [*PART, "receipt", "forget"],
    "labels.npy": [*PART, "receipt", "forget"],
    "labels.parquet": [*PART, "receipt", "forget"],
    "labels": [*PART, "forget", *PART, "forget", "receipt"],  # two files
    "stream": [*PART, *PART, "forget"],  # the second debit forgets the labels of the first
}


def describe_content(path: Path) -> object:
    if path.is_file():
        return path.stat().st_size
    return sorted(file.name for file in path.iterdir() if not file.name.startswith((".labels-", "l.sqlite-")))


class Watch:
    """Records the steps of a release into ``output``, and checks that each begins after the previous one is durable."""

    def __init__(self, folder: Path, output: str, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self.output, self.steps = folder, output, list[str]()
        self._durable: dict[int, object] = {}  # by inode: the size of a file, the names in a folder
        for owner, name in (
            (os, "fsync"),
            (os, "link"),
            (Release, "release"),
            (PrivacyLedger, "debit"),
            (PrivacyLedger, "forget_labels"),
        ):
            monkeypatch.setattr(owner, name, self._watched(getattr(self, name), getattr(owner, name)))

    def _watched(self, step: Callable[..., None], function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **named: Any) -> Any:
            step(*arguments)
            return function(*arguments, **named)

        return call

    def check_durable(self, *paths: Path) -> None:
        for path in paths:
            assert self._durable.get(path.stat().st_ino) == describe_content(path), path

    def fsync(self, handle: int) -> None:
        path = Path(f"/proc/self/fd/{handle}").readlink()
        self._durable[path.stat().st_ino] = describe_content(path)
        if path == self.folder / self.output and self.output == "stream":
            self.steps.append("publish")

    def link(self, source: Path, target: Path) -> None:
        if target.stem != "second-name":  # it only tries whether links are possible
            self.check_durable(source)
            self.steps.append("receipt" if target.name.endswith(".receipt.json") else "publish")

    def release(self, *_: object) -> None:
        self.steps.append("draw")

    def debit(self, *_: object) -> None:
        check_paid(self.folder, self.output)  # nothing is on a disk before its debit
        plan = self.folder / f".{self.output}.release.json"
        if plan.exists():
            self.check_durable(plan, self.folder)
        if self.output == "labels":
            self.check_durable(self.folder / self.output)
        self.steps.append("debit")

    def forget_labels(self, ledger: PrivacyLedger, number: int) -> None:
        entry = PrivacyLedger(ledger.path).entries()[number - 1]  # as another process sees it
        assert not entry.delivered
        if self.output != "memory":
            labels = read_published(self.folder, self.output)
            assert len(labels[entry.output]) >= entry.count
            self.check_durable(self.folder / self.output if self.output == "stream" else Path(entry.output))
            check_paid(self.folder, self.output)
        if "receipt" in self.steps:
            self.check_durable(Path(f"{entry.output}.receipt.json"))
        if self.output not in {"memory", "stream"}:
            self.check_durable(Path(entry.output).parent)
        self.steps.append("forget")


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="Linux names open files")
@pytest.mark.parametrize("output", STEPS)
def test_destination_keeps_the_order_of_the_theorem(
    output: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if output in {"labels", "labels.parquet"}:
        pytest.importorskip("pyarrow")
    prepare(tmp_path)
    monkeypatch.setattr(pipe, "MOST_TOGETHER", QUERIES // 2)
    watch, ledger = Watch(tmp_path, output, monkeypatch), PrivacyLedger(tmp_path / "l.sqlite")
    if output == "memory":
        release_debited(Release(Table.load(tmp_path / "table.json")), Votes.from_labels([[1, 1, 0]]), ledger=ledger)
    else:
        with (tmp_path / "questions").open("rb") as questions, (tmp_path / "stream").open("ab") as answers:
            monkeypatch.setattr(sys, "stdin", questions)
            monkeypatch.setattr(sys, "stdout", answers)
            assert run(lambda: command.main(make_words(tmp_path, output))) == 0
    assert watch.steps == STEPS[output]
    assert not ledger.undelivered()
    assert list_leftovers(tmp_path) == []
    if output != "memory":
        amount = QUERIES * (len(PARTS) if output == "labels" else 1)
        assert sum(entry.count for entry in list_entries(tmp_path, output)) == amount
        assert sum(map(len, read_published(tmp_path, output).values())) == amount
