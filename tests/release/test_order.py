"""Every sink goes through the one order: nothing before the debit, kept while it is handed over, then acknowledged."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from darrm.account.ledger import PrivacyLedger
from darrm.laws.noise_function import NoiseFunction
from darrm.privacy import PrivacyParams
from darrm.problem import Problem, Voters
from darrm.proof.table import certify
from darrm.release import DaRRM, OneByOne
from darrm.release.debited import LabelsFile
from darrm.release.delivery import Delivery, Sink
from darrm.release.partitions import Staged, survey
from darrm.release.pipe import Pipe
from darrm.votes import Votes

AGGREGATOR = DaRRM(
    certify(Problem.from_allowance(Voters(3, PrivacyParams("0.02", "1e-8")), 3), NoiseFunction(3, [1.0, 1.0]))
)
MATRIX = np.array([[1, 1, 0], [0, 0, 1]])


def staged(folder: Path, _: PrivacyLedger) -> Sink:
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    parquet.write_table(arrow.table({f"v{k}": MATRIX[:, k] for k in range(3)}), folder / "v.parquet")
    output = folder / "l.parquet"
    return Staged(survey(AGGREGATOR, folder / "v.parquet", output), output, None, None)


def pipe(folder: Path, ledger: PrivacyLedger) -> Sink:
    return Pipe(os.open(folder / "answers", os.O_WRONLY | os.O_CREAT), AGGREGATOR, ledger)


SINKS: dict[str, tuple[Callable[[Path, PrivacyLedger], Sink], str]] = {
    "memory": (lambda _, __: Sink(), ""),
    "file": (lambda folder, _: LabelsFile(folder / "l.csv"), "l.csv"),
    "stream": (lambda _, ledger: OneByOne(AGGREGATOR, ledger), ""),
    "pipe": (pipe, "answers"),
    "partitions": (staged, "l.parquet"),
}


@pytest.mark.parametrize("name", SINKS)
def test_the_order_of_every_sink(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make, output = SINKS[name]
    ledger = PrivacyLedger.create(tmp_path / "ledger", PrivacyParams(1, "1e-3"))
    sink, steps = make(tmp_path, ledger), list[str]()
    prepared, draw = sink.prepared, DaRRM.release

    @contextmanager
    def watched() -> Iterator[Callable[[Any], None]]:
        with prepared() as hand_over:

            def handing(labels: Any) -> None:
                (entry,) = PrivacyLedger(tmp_path / "ledger").entries()  # another process has this very moment's file
                assert (entry.count, entry.delivered) == (2, False)
                steps.append("hand over")
                hand_over(labels)
                assert not output or (tmp_path / output).stat().st_size

            assert ledger.entries() == ()
            yield handing
        assert ledger.entries()[0].delivered is (sink.turn is None)

    def drawn(*arguments: Any, **named: Any) -> Any:
        assert not output or not (tmp_path / output).exists() or not (tmp_path / output).stat().st_size
        steps.append("draw")
        return draw(*arguments, **named)

    monkeypatch.setattr(sink, "prepared", watched)
    monkeypatch.setattr(DaRRM, "release", drawn)
    delivery = Delivery(AGGREGATOR, ledger)
    if sink.manifest is not None:
        delivery.deliver_later(len(MATRIX), sink)
        assert steps == ["hand over", "draw"]
    else:
        assert delivery.deliver(Votes.of_labels(MATRIX), sink).tolist() == [1, 0]
        assert steps == ["draw", "hand over"]
    if isinstance(sink, OneByOne):
        sink.close()
    assert [entry.delivered for entry in ledger.entries()] == [True]
