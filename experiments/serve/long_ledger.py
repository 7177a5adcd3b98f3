"""What a debit costs on a ledger of ten million entries, beside one of a hundred, on the same disk at the same time."""

import hashlib
import os
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median

from darrm import PrivacyLedger, PrivacyParams
from darrm.account.ledger_rows import Rows
from darrm.account.ledger_store import LedgerStore
from darrm.losses.charges import Charge
from experiments.pages import Row

SMALL, BIG = 100, 10**7
QUERY = Charge("majority of 11", guarantee=PrivacyParams("1e-9", 0))
_DEBITS, _ROUNDS = 40, 3


def _chained(link: str, sealed: str, most: int) -> Iterator[tuple[int, str, str]]:
    """Yield number, time and link of each entry from the second on, as `ledger_rows.seal` makes them."""
    rest = f"{_TIME}\x1f{sealed}\x1f1\x1f\x1f\x1f\x1f\x1f-s\x1f".encode()
    for number in range(2, most + 1):
        link = hashlib.sha256(b"%s\x1f%d\x1f%s" % (link.encode(), number, rest)).hexdigest()
        yield number, _TIME, link


_TIME = "2026-01-01T00:00:00.000+00:00"
_WRITE = (
    "INSERT INTO charges (id, time, kind, count, note, proof, digest, token, output, link) "
    "VALUES (?, ?, 1, 1, '', '', '', '', '-s', ?)"
)


def build(path: Path, entries: int) -> None:
    """Write a ledger of so many entries of one question each: one debit by the ledger, the others chained to it."""
    PrivacyLedger.create(path, PrivacyParams(1)).debit(QUERY)
    with LedgerStore(str(path), timeout=60.0).transaction(write=True) as connection:
        (before,) = connection.execute("SELECT link FROM charges").fetchone()
        (sealed,) = connection.execute("SELECT seal FROM kinds").fetchone()
        connection.executemany(_WRITE, _chained(before, sealed, entries))
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
