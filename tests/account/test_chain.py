"""Links and heads: what they are computed from, in every version of a ledger, and that nothing else changes them."""

import hashlib
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from darrm.account.head import Head
from darrm.account.ledger import LONGEST_ID, PrivacyLedger, Turn
from darrm.errors import LedgerError
from darrm.losses.charges import Charge
from darrm.privacy import PrivacyParams
from darrm.system.votes_file import labels_digest
from tests.account.test_ledger_distrust import first_version
from tests.relinked import relink

QUERY = Charge("majority of 11", guarantee=PrivacyParams("0.1", "1e-6"), table="ab" * 32)
OTHER = Charge("majority of 5", guarantee=PrivacyParams("0.2", "1e-6"))
BUDGET = PrivacyParams(3, "1e-3")
OLD = Path(__file__).parents[1] / "files" / "old"
CHANGES = {
    **{
        column: f"UPDATE charges SET {column} = {value} WHERE id = 2"  # noqa: S608 (a test's own words)
        for column, value in {
            "time": "'2026-01-01T00:00:00.000+00:00'",
            "count": 3,
            "note": "'another'",
            "proof": "'cd'",
            "digest": "'cd'",
            "token": "'cd'",
            "output": "'/a/b.csv'",
            "questions": '\'["c","d"]\'',
            "kind": 2,
        }.items()
    },
    "cost": "UPDATE kinds SET cost = replace(cost, '0.1', '0.05')",
    "what": "UPDATE kinds SET what = 'DaRRM'",
    **{
        column: f"UPDATE budget SET {column} = {value}"  # noqa: S608 (a test's own words)
        for column, value in {
            "epsilon": 30,
            "delta": "'0.002'",
            "kinds": "'renyi'",
            "created": "'2026-01-01T00:00:00.000+00:00'",
            "identity": "'cd'",
            "population": "'ward 8'",
        }.items()
    },
}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "ledger.sqlite"
    ledger = PrivacyLedger.create(path, BUDGET, kinds="planned", population="ward 7")
    labels = np.array([1, 0])
    ledger.debit(QUERY, note="first")
    ledger.debit(QUERY.repeated(2), labels=labels, turn=Turn("-day", 0, ("a", "b")))
    ledger.debit(OTHER, note="Grüße")
    return path


def version(path: Path) -> int:
    with closing(sqlite3.connect(path)) as connection:
        return int(connection.execute("PRAGMA user_version").fetchone()[0])


def test_a_head_is_the_digest_of_all_that_a_ledger_says(path: Path) -> None:
    ledger = PrivacyLedger(path)
    with closing(sqlite3.connect(path)) as connection:
        texts = "SELECT epsilon, delta, kinds, created, population FROM budget"
        epsilon, delta, kinds, created, population = connection.execute(texts).fetchone()
        tokens = [token for (token,) in connection.execute("SELECT token FROM charges")]
    fields = ("darrm", ledger.identity, epsilon, delta, kinds, created, population)
    links = [hashlib.sha256("\x1f".join(fields).encode()).hexdigest()]
    costs = [hashlib.sha256(f"{c.to_text()}\x1f{c.what}".encode()).hexdigest() for c in (QUERY, QUERY, OTHER)]
    drawn = labels_digest(np.array([1, 0]))
    words = [
        ("", "", "first", QUERY.table, ""),
        (drawn, "-day", "", QUERY.table, '["a", "b"]'),
        ("", "", "Grüße", "", ""),
    ]
    for entry, cost, (digest, output, note, table, asked), token in zip(
        ledger.entries(), costs, words, tokens, strict=True
    ):
        row = (links[-1], entry.number, entry.time, cost, entry.count, note, table, digest, token, output, asked)
        links.append(hashlib.sha256("\x1f".join(map(str, row)).encode()).hexdigest())
        assert entry.link == links[-1]
    for number, (link, queries) in enumerate(zip(links, [0, 1, 3, 4], strict=True)):
        head = ledger.head(number)
        assert head == Head(ledger.identity, "ward 7", number, queries, BUDGET, "planned", link)
        assert Head.from_text(f" {head}\n") == head
    assert ledger.head() == ledger.head(3)
    for number in (-1, 4):
        with pytest.raises(ValueError, match="entry must be an integer"):
            ledger.head(number)


@pytest.mark.parametrize("change", CHANGES)
def test_every_field_changes_the_head_of_its_entry_and_of_all_later_ones(change: str, path: Path) -> None:
    before = [PrivacyLedger(path).head(number).link for number in range(4)]
    relink(path, CHANGES[change])
    after = [PrivacyLedger(path).head(number).link for number in range(4)]
    of_entry = CHANGES[change].startswith("UPDATE charges")
    first = 0 if CHANGES[change].startswith("UPDATE budget") else 2 if of_entry else 1
    assert [one == other for one, other in zip(before, after, strict=True)] == [n < first for n in range(4)]


@pytest.mark.parametrize("change", CHANGES)
def test_what_is_not_linked_anew_is_damage(change: str, path: Path) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute(CHANGES[change])
    with pytest.raises(LedgerError, match="it is corrupted"):
        PrivacyLedger(path)


def test_delivery_changes_no_head(path: Path) -> None:
    ledger = PrivacyLedger(path)
    head = ledger.head()
    ledger.forget_labels(2)
    assert ledger.head() == head
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("UPDATE charges SET files = '[1]' WHERE id = 2")
    with pytest.raises(LedgerError, match="the questions or files of an entry"):
        ledger.entries()


def test_an_open_ledger_sees_that_entries_before_its_newest_one_were_linked_anew(path: Path) -> None:
    ledger = PrivacyLedger(path)
    relink(path, CHANGES["note"])
    with pytest.raises(LedgerError, match="entry 3, which it had, is gone or was changed"):
        ledger.debit(QUERY)


@pytest.mark.parametrize("name", ["ledger-models", "ledger-stream", "ledger-undelivered"])
def test_older_ledgers_have_a_head_that_their_upgrade_keeps(name: str, tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite"
    shutil.copy(OLD / f"{name}.sqlite", path)
    before, older = path.read_bytes(), version(path)
    ledger = PrivacyLedger(path)
    head, entries = ledger.head(), ledger.entries()
    assert path.read_bytes() == before
    assert older < 4
    charge = ledger.accountant().charges[0].kind
    if ledger.queries_that_fit(charge):
        ledger.debit(charge)
    else:
        ledger.forget_labels(1)  # any write
    assert version(path) == 5
    again = PrivacyLedger(path)
    assert again.head(head.number) == head
    for old, new in zip(entries, again.entries(), strict=False):
        assert (old.labels, old.table, old.link, old.questions) == (new.labels, new.table, new.link, new.questions)


def test_a_ledger_of_version_1_has_a_head_from_its_first_debit_on(tmp_path: Path) -> None:
    path = tmp_path / "first.sqlite"
    first_version(path, [3, 2])
    ledger = PrivacyLedger(path)
    assert [entry.link for entry in ledger.entries()] == ["", ""]
    with pytest.raises(ValueError, match="its first debit gives it a head"):
        ledger.head()
    ledger.debit(QUERY)
    assert (ledger.head().number, ledger.head().queries, version(path)) == (3, 6, 5)
    assert PrivacyLedger(path).head(2).queries == 5
    relink(path)  # the same links, by other means
    assert PrivacyLedger(path).head() == ledger.head()


def test_a_head_that_was_miscopied_is_refused(path: Path) -> None:
    text = str(PrivacyLedger(path).head())
    for wrong in ("", text[:-1], text.replace("ward%207", "ward%208"), text.removeprefix("darrm-"), "darrm-head:1:x"):
        with pytest.raises(ValueError, match="a head must be a line darrm-head:1:"):
            Head.from_text(wrong)


def test_a_population_is_a_name(tmp_path: Path) -> None:
    for wrong in ("a\nb", "x" * (LONGEST_ID + 1)):
        with pytest.raises(ValueError, match="population must be printable text"):
            PrivacyLedger.create(tmp_path / "l.sqlite", BUDGET, population=wrong)
    name = "Österreich: 1/2 %"
    ledger = PrivacyLedger.create(tmp_path / "l.sqlite", BUDGET, population=name)
    assert (ledger.population, Head.from_text(str(ledger.head())).population) == (name, name)
