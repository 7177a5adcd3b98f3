"""Entry hashes and digests: what they are computed from, and that nothing else changes them."""

import hashlib
import sqlite3
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from darrm.errors import LedgerError
from darrm.ledger.chain import LedgerDigest
from darrm.ledger.ledger import LONGEST_ID, PrivacyLedger, StreamCursor
from darrm.loss.privacy_cost import PrivacyCost
from darrm.privacy import PrivacyParams
from darrm.votes.labels_file import labels_digest
from tests.ledger.common import BUDGET, OTHER, edit
from tests.relinked import relink

QUERY = PrivacyCost("majority of 11", guarantee=PrivacyParams("0.1", "1e-6"), table="ab" * 32)
CHANGES = {
    **{
        column: f"UPDATE entries SET {column} = {value} WHERE id = 2"  # noqa: S608 (a test's own words)
        for column, value in {
            "time": "'2026-01-01T00:00:00.000+00:00'",
            "count": 3,
            "note": "'another'",
            "table_digest": "'cd'",
            "labels_digest": "'cd'",
            "token": "'cd'",
            "output": "'/a/b.csv'",
            "questions": '\'["c","d"]\'',
            "cost": 2,
        }.items()
    },
    "the cost": "UPDATE costs SET cost = replace(cost, '0.1', '0.05')",
    "what": "UPDATE costs SET what = 'DaRRM'",
    **{
        column: f"UPDATE budget SET {column} = {value}"  # noqa: S608 (a test's own words)
        for column, value in {
            "epsilon": 30,
            "delta": "'0.002'",
            "composition": "'renyi'",
            "created": "'2026-01-01T00:00:00.000+00:00'",
            "identity": "'cd'",
            "population": "'ward 8'",
        }.items()
    },
}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "ledger.sqlite"
    ledger = PrivacyLedger.create(path, BUDGET, composition="planned", population="ward 7")
    labels = np.array([1, 0])
    ledger.debit(QUERY, note="first")
    ledger.debit(QUERY.repeat(2), labels=labels, cursor=StreamCursor("-day", 0, ("a", "b")))
    ledger.debit(OTHER, note="Grüße")
    return path


def test_a_digest_is_that_of_all_that_a_ledger_says(path: Path) -> None:
    ledger = PrivacyLedger(path)
    with closing(sqlite3.connect(path)) as connection:
        tokens = [token for (token,) in connection.execute("SELECT token FROM entries")]
    fields = ("darrm-ledger 1", ledger.identity, "3", "0.001", "planned", "ward 7", ledger.created)
    hashes = [hashlib.sha256("\x1f".join(fields).encode()).hexdigest()]
    costs = [hashlib.sha256(f"{c.to_text()}\x1f{c.what}".encode()).hexdigest() for c in (QUERY, QUERY, OTHER)]
    drawn = labels_digest(np.array([1, 0]))
    words = [
        ("", "", "first", QUERY.table, ""),
        (drawn, "-day", "", QUERY.table, '["a", "b"]'),
        ("", "", "Grüße", "", ""),
    ]
    for entry, cost, (labels, output, note, table, asked), token in zip(
        ledger.entries(), costs, words, tokens, strict=True
    ):
        row = (hashes[-1], entry.number, entry.time, cost, entry.count, note, table, labels, token, output, asked)
        hashes.append(hashlib.sha256("\x1f".join(map(str, row)).encode()).hexdigest())
        assert entry.entry_hash == hashes[-1]
    for number, (entry_hash, queries) in enumerate(zip(hashes, [0, 1, 3, 4], strict=True)):
        digest = ledger.digest(number)
        assert digest == LedgerDigest(ledger.identity, "ward 7", number, queries, BUDGET, "planned", entry_hash)
        assert LedgerDigest.from_text(f" {digest}\n") == digest
    assert ledger.digest() == ledger.digest(3)
    for number in (-1, 4):
        with pytest.raises(ValueError, match="entry must be an integer"):
            ledger.digest(number)


@pytest.mark.parametrize("change", CHANGES)
def test_every_field_changes_the_hash_of_its_entry_and_of_all_later_ones(change: str, path: Path) -> None:
    before = [PrivacyLedger(path).digest(number).entry_hash for number in range(4)]
    relink(path, CHANGES[change])
    after = [PrivacyLedger(path).digest(number).entry_hash for number in range(4)]
    of_entry = CHANGES[change].startswith("UPDATE entries")
    first = 0 if CHANGES[change].startswith("UPDATE budget") else 2 if of_entry else 1
    assert [one == other for one, other in zip(before, after, strict=True)] == [n < first for n in range(4)]


@pytest.mark.parametrize("change", CHANGES)
def test_what_is_not_linked_anew_is_damage(change: str, path: Path) -> None:
    ledger = PrivacyLedger(path)
    edit(path, CHANGES[change])
    for use in (lambda: PrivacyLedger(path), ledger.entries, lambda: ledger.debit(QUERY)):
        with pytest.raises(LedgerError, match="it is corrupted"):
            use()


def test_delivery_changes_no_digest(path: Path) -> None:
    ledger = PrivacyLedger(path)
    digest = ledger.digest()
    ledger.forget_labels(2)
    assert ledger.digest() == digest


def test_an_open_ledger_sees_that_entries_before_its_newest_one_were_linked_anew(path: Path) -> None:
    ledger = PrivacyLedger(path)
    relink(path, CHANGES["note"])
    with pytest.raises(LedgerError, match="entry 3, which it had, is gone or was changed"):
        ledger.debit(QUERY)


def test_a_digest_that_was_miscopied_is_refused(path: Path) -> None:
    text = str(PrivacyLedger(path).digest())
    for wrong in ("", text[:-1], text.replace("ward%207", "ward%208"), text.removeprefix("darrm-"), "darrm-digest:1:x"):
        with pytest.raises(ValueError, match="a digest of a ledger must be a line darrm-digest:1:"):
            LedgerDigest.from_text(wrong)


def test_a_population_is_a_name(tmp_path: Path) -> None:
    for wrong in ("a\nb", "x" * (LONGEST_ID + 1)):
        with pytest.raises(ValueError, match="population must be printable text"):
            PrivacyLedger.create(tmp_path / "l.sqlite", BUDGET, population=wrong)
    name = "Österreich: 1/2 %"
    ledger = PrivacyLedger.create(tmp_path / "l.sqlite", BUDGET, population=name)
    assert (ledger.population, LedgerDigest.from_text(str(ledger.digest())).population) == (name, name)
