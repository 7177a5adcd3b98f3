"""docs/reference/formats.md is enough: what it says is computed here from files, without a line of the library."""

import csv
import hashlib
import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import pytest

from darrm import NoiseFunction, PrivacyLedger, PrivacyParams, Problem, Voters, Votes, certify, release_debited
from darrm.noisy_max.mechanisms import GNMax
from darrm.noisy_max.noisy_maximum import NoisyMaximum
from darrm.table.release import Release


def sha(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def join(*fields: object) -> str:
    return sha("\x1f".join(map(str, fields)))


def digest(data: Any) -> str:
    return sha(json.dumps(data, sort_keys=True, separators=(",", ":"), ensure_ascii=False))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    table = certify(Problem(Voters(3, PrivacyParams("0.2")), PrivacyParams("0.3")), NoiseFunction(3, [0.3, 0.5]))
    table.save(tmp_path / "table.json")
    noisy = NoisyMaximum(GNMax(12.0), Voters(20, PrivacyParams("inf"), overlap=1), 3)
    noisy.save(tmp_path / "plan.json")
    ledger = PrivacyLedger.create(
        tmp_path / "ledger.sqlite", PrivacyParams(9, "1e-5"), composition="planned", population="ward 7"
    )
    release_debited(Release(table), np.array([[0, 1, 1], [0, 0, 0]]), ledger=ledger, output=tmp_path / "two.csv")
    release_debited(noisy, Votes.from_counts([[9, 6, 5]]), ledger=ledger, output=tmp_path / "three.npy", note="ü, 2")
    return tmp_path


def test_the_digests_of_what_answered_stand_in_the_ledger(folder: Path) -> None:
    table, plan = (json.loads((folder / name).read_text()) for name in ("table.json", "plan.json"))
    of_table = digest({name: table[name] for name in ("problem", "gamma")})
    assert table["checksum"] == of_table
    with closing(sqlite3.connect(folder / "ledger.sqlite")) as ledger:
        assert [row[0] for row in ledger.execute("SELECT table_digest FROM entries ORDER BY id")] == [
            of_table,
            digest(plan),
        ]
        assert ledger.execute("PRAGMA application_id").fetchone() == (0x6C656467,)
        assert ledger.execute("PRAGMA user_version").fetchone() == (1,)


def test_hashes_checksums_digests_and_receipts_are_those_of_the_page(folder: Path) -> None:
    with closing(sqlite3.connect(folder / "ledger.sqlite")) as ledger:
        columns = "SELECT format, identity, epsilon, delta, composition, population, created, checksum FROM budget"
        *budget, stored = ledger.execute(columns).fetchone()
        _, identity, epsilon, delta, composition, population, _ = budget
        entry_hash, queries = join(*budget), 0
        assert (budget[0], stored) == ("darrm-ledger 1", entry_hash)
        costs = {number: join(cost, what) for number, cost, what in ledger.execute("SELECT id, cost, what FROM costs")}
        assert dict(ledger.execute("SELECT id, checksum FROM costs")) == costs
        columns = (
            "SELECT id, time, cost, count, note, table_digest, labels_digest, token, output, questions, entry_hash "
            "FROM entries ORDER BY id"
        )
        for number, time, cost, count, *words, stored in ledger.execute(columns):
            entry_hash = join(entry_hash, number, time, costs[cost], count, *words)
            queries += count
            assert stored == entry_hash
            name = "two.csv" if number == 1 else "three.npy"
            receipt = json.loads((folder / f"{name}.receipt.json").read_text())
            fields = (identity, number, queries, epsilon, delta, composition, quote(population, safe=""), entry_hash)
            text = ":".join(map(str, ("darrm-digest:1", *fields)))
            assert receipt["format"] == "darrm-receipt 1"
            assert receipt["ledger_digest"]["text"] == f"{text}:{sha(text)[:8]}"
            assert receipt["entry"]["labels"] == words[2]
        totals = [
            value for row in ledger.execute("SELECT id, total, table_digest FROM costs ORDER BY id") for value in row
        ]
        assert ledger.execute("SELECT last_entry, moved_to, checksum FROM state").fetchall() == [
            (number, "", join(number, entry_hash, "", *totals))
        ]


def test_the_digest_of_labels_is_that_of_their_text(folder: Path) -> None:
    with closing(sqlite3.connect(folder / "ledger.sqlite")) as ledger:
        two, three = (row[0] for row in ledger.execute("SELECT labels_digest FROM entries ORDER BY id"))
    assert two == hashlib.sha256((folder / "two.csv").read_bytes()).hexdigest()
    assert three == sha("".join(f"{label}\n" for label in np.load(folder / "three.npy").tolist()))
    with (folder / "two.csv").open(newline="") as file:
        assert {len(row) for row in csv.reader(file)} == {1}
