"""Seconds of a debit on a ledger of ten million entries and on one of a hundred, on one disk at the same time."""

import hashlib
import os
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median

from darrm import PrivacyLedger, PrivacyParams
from darrm.ledger.chain import Cost, EntryRow, State
from darrm.ledger.sqlite import SQLiteStore
from darrm.ledger.transaction import Transaction
from darrm.loss.privacy_cost import PrivacyCost
from experiments.pages import Row

SMALL, BIG = 100, 10**7
QUERY = PrivacyCost("majority of 11", guarantee=PrivacyParams("1e-9", 0))
_DEBITS, _ROUNDS = 40, 3


def _chained(entry: EntryRow, cost: Cost, most: int) -> Iterator[tuple[int, str]]:
    """Yield number and entry hash of each entry from the second on; all say the same as the first one."""
    rest = f"{entry.time}\x1f{cost.checksum}\x1f1\x1f\x1f\x1f\x1f\x1f-s\x1f".encode()
    entry_hash = entry.entry_hash
    for number in range(2, most + 1):
        entry_hash = hashlib.sha256(b"%s\x1f%d\x1f%s" % (entry_hash.encode(), number, rest)).hexdigest()
        yield number, entry_hash


_WRITE = "INSERT INTO entries VALUES (?, ?, 1, 1, '', '', '', '', '-s', '', ?, '', '', NULL)"


def build(path: Path, entries: int) -> None:
    """Write a ledger of ``entries`` entries of one question: one debit by the ledger, the others chained to it."""
    PrivacyLedger.create(path, PrivacyParams(1)).debit(QUERY)
    with SQLiteStore(str(path), timeout=60.0).transaction(write=True) as database:
        written = Transaction(database)
        (cost,), first = written.cost_rows.values(), next(written.read_entries())
        rows = ((number, first.time, entry_hash) for number, entry_hash in _chained(first, cost, entries))
        database.connection.executemany(_WRITE, rows)
        (last,) = written.read_entries(entries)
        cost = cost._replace(total=entries)
        written.put_cost(cost)
        written.put_state(State(entries, "").computed(last.entry_hash, [cost]))


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
