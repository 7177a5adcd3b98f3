"""Every destination follows one order: nothing before the debit, kept while handed over, durable, acknowledged."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from darrm.ledger.ledger import PrivacyLedger
from darrm.privacy import PrivacyParams
from darrm.release import AnswerStream, DaRRM
from darrm.release.delivery import Destination, FileDestination, StreamDestination, deliver
from darrm.votes import Votes
from tests.release.tables import table_of

AGGREGATOR = DaRRM(table_of([1.0, 1.0]))
MATRIX = np.array([[1, 1, 0], [0, 0, 1]])

DESTINATIONS: dict[str, tuple[Callable[[Path, PrivacyLedger], Destination], str]] = {
    "memory": (lambda _, __: Destination(), ""),
    "file": (lambda folder, _: FileDestination(folder / "l.csv"), "l.csv"),
    "stream": (lambda _, ledger: StreamDestination(ledger, "s"), ""),
    "answers": (lambda _, ledger: AnswerStream(AGGREGATOR, ledger), ""),
}


@pytest.mark.parametrize("name", DESTINATIONS)
def test_the_order_of_every_destination(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make, output = DESTINATIONS[name]
    ledger = PrivacyLedger.create(tmp_path / "ledger", PrivacyParams(1, "1e-3"))
    destination, steps = make(tmp_path, ledger), list[str]()
    prepare, hand_over, draw = destination.prepare, destination.hand_over, DaRRM.release
    forget, sync, synced = PrivacyLedger.forget_labels, os.fsync, set[int]()

    @contextmanager
    def preparing(votes: Votes) -> Iterator[None]:
        with prepare(votes):
            assert ledger.entries() == ()
            steps.append("prepare")
            yield
        assert ledger.entries()[0].delivered is (destination.cursor is None)

    def handing_over(*arguments: Any) -> None:
        (entry,) = PrivacyLedger(tmp_path / "ledger").entries()  # another process has this very moment's file
        assert (entry.count, entry.delivered) == (2, False)
        steps.append("hand over")
        hand_over(*arguments)
        assert not output or (tmp_path / output).stat().st_size

    def drawing(*arguments: Any, **named: Any) -> Any:
        assert not output or not (tmp_path / output).exists()
        steps.append("draw")
        return draw(*arguments, **named)

    def syncing(handle: int) -> None:
        synced.add(os.fstat(handle).st_ino)
        sync(handle)

    def forgetting(self: PrivacyLedger, number: int) -> None:
        durable = [tmp_path / output, tmp_path / f"{output}.receipt.json", tmp_path] if output else []
        assert {path.stat().st_ino for path in durable} <= synced
        forget(self, number)

    monkeypatch.setattr(os, "fsync", syncing)
    monkeypatch.setattr(PrivacyLedger, "forget_labels", forgetting)
    monkeypatch.setattr(destination, "prepare", preparing)
    monkeypatch.setattr(destination, "hand_over", handing_over)
    monkeypatch.setattr(DaRRM, "release", drawing)
    assert deliver(AGGREGATOR, Votes.of_labels(MATRIX), ledger, destination).tolist() == [1, 0]
    assert steps == ["prepare", "draw", "hand over"]
    if destination.cursor is not None:
        ledger.forget_labels(destination.cursor.after)
    assert [entry.delivered for entry in ledger.entries()] == [True]
