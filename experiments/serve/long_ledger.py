"""What a debit costs on a ledger of ten million entries, beside one of a hundred, on the same disk at the same time."""

import json
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from darrm import PrivacyLedger, PrivacyParams
from darrm.account.ledger_rows import Rows, now, seal
from darrm.account.ledger_store import LedgerStore
from darrm.losses.charges import Charge
from experiments.pages import Row

SMALL, BIG = 100, 10**7
QUERY = Charge("majority of 11", guarantee=PrivacyParams("1e-9", 0))
_DEBITS, _ROUNDS = 40, 3


@dataclass
class _Chain:
    """Entries whose links follow each other, made as they are written."""

    link: str
    sealed: str  # of their kind
    time: str

    def rows(self, first: int, most: int) -> Iterator[tuple[object, ...]]:
        """Yield them in the order of the columns of `_WRITE`."""
        for number in range(first, most + 1):
            named = json.dumps([f"q{number}"])
            self.link = seal(self.link, number, self.time, self.sealed, 1, "", "", "", "", "-s", named)
            yield number, self.time, "-s", named, self.link


_WRITE = (
    "INSERT INTO charges (id, time, kind, count, note, proof, digest, token, output, questions, link) "
    "VALUES (?, ?, 1, 1, '', '', '', '', ?, ?, ?)"
)


def build(path: Path, entries: int) -> None:
    """Write a ledger of so many entries of one question each: one debit by the ledger, the others chained to it."""
    ledger = PrivacyLedger.create(path, PrivacyParams(1))
    ledger.debit(QUERY)
    with LedgerStore(str(path), timeout=60.0).transaction(write=True) as connection:
        (before,) = connection.execute("SELECT link FROM charges").fetchone()
        (sealed,) = connection.execute("SELECT seal FROM kinds").fetchone()
        connection.executemany(_WRITE, _Chain(before, sealed, now()).rows(2, entries))
        connection.execute("UPDATE kinds SET total = ?", (entries,))
        Rows(connection, str(path)).seal_totals()


def measure(folder: Path, entries: int) -> Row:
    """Debit from both ledgers in turn; the ratio is the median of those of three rounds."""
    folder.mkdir(exist_ok=True)
    begin = time.perf_counter()
    paths = [folder / "small.sqlite", folder / "big.sqlite"]
    for path, most in zip(paths, (SMALL, entries), strict=True):
        build(path, most)
    built, begin = time.perf_counter() - begin, time.perf_counter()
    ledgers = [PrivacyLedger(path) for path in paths]
    opened, rounds = time.perf_counter() - begin, []
    for _ in range(_ROUNDS):
        taken: tuple[list[float], list[float]] = ([], [])
        for _ in range(_DEBITS):
            for ledger, times in zip(ledgers, taken, strict=True):
                start = time.perf_counter()
                ledger.debit(QUERY)
                times.append(time.perf_counter() - start)
        rounds.append([1000 * median(times) for times in taken])
    return {
        "small": SMALL,
        "entries": entries,
        "gigabytes": paths[1].stat().st_size / 1e9,
        "built_seconds": built,
        "opened_seconds": opened,
        "small_milliseconds": median(pair[0] for pair in rounds),
        "big_milliseconds": median(pair[1] for pair in rounds),
        "ratio": median(pair[1] / pair[0] for pair in rounds),
        "load": os.getloadavg()[0],
    }
