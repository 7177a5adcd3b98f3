"""docs/reference/formats.md is enough: digests, hashes and receipts are computed here without darrm."""

import hashlib
import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import pytest

from darrm import PrivacyLedger, PrivacyParams, Release, Voters, Votes, release_debited
from darrm.noisy_max.mechanisms import GNMax
from darrm.noisy_max.noisy_maximum import NoisyMaximum
from tests.relinked import digest as hash_fields
from tests.verify.files import TABLE


def hash_text(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def hash_json(data: Any) -> str:
    return hash_text(json.dumps(data, sort_keys=True, separators=(",", ":"), ensure_ascii=False))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Make labels of a table and of a mechanism, paid by one ledger."""
    TABLE.save(tmp_path / "table.json")
    mechanism = NoisyMaximum(GNMax(12.0), Voters(20, PrivacyParams("inf"), overlap=1), 3)
    mechanism.save(tmp_path / "plan.json")
    budget = PrivacyParams(9, "1e-5")
    ledger = PrivacyLedger.create(tmp_path / "ledger.sqlite", budget, composition="planned", population="ward 7")
    release_debited(Release(TABLE), np.array([[0, 1, 1], [0, 0, 0]]), ledger=ledger, output=tmp_path / "two.csv")
    release_debited(
        mechanism, Votes.from_counts([[9, 6, 5]]), ledger=ledger, output=tmp_path / "three.npy", note="ü, 2"
    )
    return tmp_path


def test_a_ledger_holds_the_digests_of_releases_and_labels(folder: Path) -> None:
    table, plan = (json.loads((folder / name).read_text()) for name in ("table.json", "plan.json"))
    table_digest = hash_json({name: table[name] for name in ("problem", "gamma")})
    assert table["checksum"] == table_digest
    labels = "".join(f"{label}\n" for label in np.load(folder / "three.npy").tolist())
    digests = [(table_digest, hash_text((folder / "two.csv").read_text())), (hash_json(plan), hash_text(labels))]
    with closing(sqlite3.connect(folder / "ledger.sqlite")) as ledger:
        assert ledger.execute("SELECT table_digest, labels_digest FROM entries ORDER BY id").fetchall() == digests
        assert ledger.execute("PRAGMA application_id").fetchone() == (0x6C656467,)
        assert ledger.execute("PRAGMA user_version").fetchone() == (1,)


def test_entries_are_chained_by_hashes_and_receipts_hold_them(folder: Path) -> None:
    with closing(sqlite3.connect(folder / "ledger.sqlite")) as ledger:
        columns = "SELECT format, identity, epsilon, delta, composition, population, created, checksum FROM budget"
        *budget, checksum = ledger.execute(columns).fetchone()
        _, identity, epsilon, delta, composition, population, _ = budget
        entry_hash, queries = hash_fields(*budget), 0
        assert (budget[0], checksum) == ("darrm-ledger 1", entry_hash)
        costs = {number: hash_fields(*text) for number, *text in ledger.execute("SELECT id, cost, what FROM costs")}
        assert dict(ledger.execute("SELECT id, checksum FROM costs")) == costs
        columns = "note, table_digest, labels_digest, token, output, questions, entry_hash"
        rows = ledger.execute(f"SELECT id, time, cost, count, {columns} FROM entries ORDER BY id")  # noqa: S608 (names)
        for number, time, cost, count, *words, stored_hash in rows:
            entry_hash, queries = hash_fields(entry_hash, number, time, costs[cost], count, *words), queries + count
            assert stored_hash == entry_hash
            receipt = json.loads((folder / f"{'two.csv' if number == 1 else 'three.npy'}.receipt.json").read_text())
            fields = (identity, number, queries, epsilon, delta, composition, quote(population, safe=""), entry_hash)
            text = ":".join(map(str, ("darrm-digest:1", *fields)))
            assert receipt["format"] == "darrm-receipt 1"
            assert receipt["ledger_digest"]["text"] == f"{text}:{hash_text(text)[:8]}"
            assert receipt["entry"]["labels"] == words[2]
        totals = [
            field for row in ledger.execute("SELECT id, total, table_digest FROM costs ORDER BY id") for field in row
        ]
        state = (number, "", hash_fields(number, entry_hash, "", *totals))
        assert ledger.execute("SELECT last_entry, moved_to, checksum FROM state").fetchall() == [state]
