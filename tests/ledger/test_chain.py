"""Entry hashes, digests and signatures: what they are computed from, and what refuses a changed past."""

import hashlib
import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from darrm.errors import LedgerError
from darrm.ledger.chain import SIGNED, Entry, LedgerDigest, SigningKey, new_signing_key
from darrm.ledger.ledger import PrivacyLedger, StreamCursor
from darrm.release.delivery import publish_receipt, receipt_path, recover
from darrm.votes.labels_file import labels_digest
from tests.ledger.support import BUDGET, OTHER, QUERY, edit
from tests.relinked import relink

ENTRY_VALUES = {
    "time": "'2026-01-01T00:00:00.000+00:00'",
    "count": 3,
    "note": "'another'",
    "table_digest": "'cd'",
    "labels_digest": "'cd'",
    "token": "'cd'",
    "output": "'/a/b.csv'",
    "questions": '\'["c","d"]\'',
    "cost": 2,
}
BUDGET_VALUES = {
    "epsilon": 30,
    "delta": "'0.002'",
    "composition": "'renyi'",
    "created": "'2026-01-01T00:00:00.000+00:00'",
    "identity": "'cd'",
    "population": "'ward 8'",
}
CHANGES = {  # of every field of entry 2, of its cost, and of the budget
    **{name: f"UPDATE entries SET {name} = {value} WHERE id = 2" for name, value in ENTRY_VALUES.items()},  # noqa: S608
    "the cost": "UPDATE costs SET cost = replace(cost, '0.1', '0.05')",
    "what": "UPDATE costs SET what = 'DaRRM'",
    **{name: f"UPDATE budget SET {name} = {value}" for name, value in BUDGET_VALUES.items()},  # noqa: S608
}
FIRST_CHANGED = {**dict.fromkeys(ENTRY_VALUES, 2), "the cost": 1, "what": 1, **dict.fromkeys(BUDGET_VALUES, 0)}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "ledger.sqlite"
    ledger = PrivacyLedger.create(path, BUDGET, composition="planned", population="ward 7")
    ledger.debit(QUERY, note="first")
    ledger.debit(QUERY.repeat(2), labels=np.array([1, 0]), cursor=StreamCursor("-day", 0, ("a", "b")))
    ledger.debit(OTHER, note="Grüße")
    return path


def select_column(path: Path, column: str) -> list[Any]:
    with closing(sqlite3.connect(path)) as connection:
        return [row[0] for row in connection.execute(f"SELECT {column} FROM entries ORDER BY id")]  # noqa: S608


def test_digest_hashes_all_fields_of_all_entries(path: Path) -> None:
    ledger = PrivacyLedger(path)
    budget = ("darrm-ledger 1", ledger.identity, "3", "0.001", "planned", "ward 7", ledger.created)
    hashes = [hashlib.sha256("\x1f".join(budget).encode()).hexdigest()]
    rows: list[tuple[Any, ...]] = [  # cost, count, note, table, labels, output, questions
        (QUERY, 1, "first", QUERY.table, "", "", ""),
        (QUERY, 2, "", QUERY.table, labels_digest(np.array([1, 0])), "-day", '["a", "b"]'),
        (OTHER, 1, "Grüße", "", "", "", ""),
    ]
    for entry, token, (cost, *fields) in zip(ledger.entries(), select_column(path, "token"), rows, strict=True):
        cost_hash = hashlib.sha256(f"{cost.to_text()}\x1f{cost.what}".encode()).hexdigest()
        count, note, table, labels, output, questions = fields
        first_fields = (hashes[-1], entry.number, entry.time, cost_hash, count, note, table, labels)
        row = (*first_fields, token, output, questions)
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


@pytest.mark.parametrize("name", CHANGES)
def test_changed_field_is_damage_or_changes_all_later_hashes(name: str, path: Path) -> None:
    ledger = PrivacyLedger(path)
    before = [ledger.digest(number).entry_hash for number in range(4)]
    edit(path, CHANGES[name])
    for use in (lambda: PrivacyLedger(path), ledger.entries, lambda: ledger.debit(QUERY)):
        with pytest.raises(LedgerError, match="it is corrupted"):
            use()
    relink(path)
    after = [PrivacyLedger(path).digest(number).entry_hash for number in range(4)]
    are_equal = [one == other for one, other in zip(before, after, strict=True)]
    assert are_equal == [number < FIRST_CHANGED[name] for number in range(4)]
    with pytest.raises(LedgerError, match=r"entry 3, which it had, is gone or was changed|or its identity changed"):
        ledger.debit(QUERY)


def test_miscopied_digest_is_refused(path: Path) -> None:
    text = str(PrivacyLedger(path).digest())
    for wrong in ("", text[:-1], text.replace("ward%207", "ward%208"), text.removeprefix("darrm-"), "darrm-digest:1:x"):
        with pytest.raises(ValueError, match="a digest of a ledger must be a line darrm-digest:1:"):
            LedgerDigest.from_text(wrong)


def test_digest_quotes_the_population(tmp_path: Path) -> None:
    name = "Österreich: 1/2 %".ljust(100, "x")
    ledger = PrivacyLedger.create(tmp_path / "l.sqlite", BUDGET, population=name)
    assert LedgerDigest.from_text(str(ledger.digest())).population == ledger.population == name


def test_entry_of_a_run_pays_for_at_most_its_labels() -> None:
    one, run = (Entry("", "", 3, "", each=each) for each in (1, 7))
    assert [one.pays_for(labels) for labels in (2, 3, 4)] == [False, True, False]
    assert [run.pays_for(labels) for labels in (0, 20, 21, 22)] == [True, True, True, False]


# signatures


@pytest.fixture
def serialization() -> Any:
    return pytest.importorskip("cryptography.hazmat.primitives.serialization")


@pytest.fixture
def key(tmp_path: Path, serialization: Any) -> Path:  # noqa: ARG001 (skips)
    new_signing_key(tmp_path / "ledger.key")
    return tmp_path / "ledger.key"


@pytest.fixture
def signed_path(tmp_path: Path, key: Path) -> Path:
    """A signed ledger of two entries."""
    path = tmp_path / "signed.sqlite"
    PrivacyLedger.create(path, BUDGET, signing_key=key).debit(QUERY)
    PrivacyLedger(path, signing_key=key).debit(QUERY.repeat(2))
    return path


def test_each_entry_has_the_signature_of_its_digest(
    signed_path: Path, path: Path, key: Path, serialization: Any
) -> None:
    public_key = serialization.load_pem_public_key(Path(f"{key}.pub").read_bytes())
    ledger = PrivacyLedger(signed_path)
    for number, signature in enumerate(select_column(signed_path, "signature"), 1):
        public_key.verify(bytes.fromhex(signature.removeprefix(SIGNED)), str(ledger.digest(number)).encode())
    assert select_column(path, "signature") == ["", "", ""]  # a ledger without a key
    assert "signature" not in PrivacyLedger(path).receipt(1)


def test_signatures_begin_with_the_first_entry_and_never_end(signed_path: Path, path: Path, tmp_path: Path) -> None:
    with pytest.raises(LedgerError, match=r"its entries are signed.*nothing was debited"):
        PrivacyLedger(signed_path).debit(QUERY)
    assert len(PrivacyLedger(signed_path).entries()) == 2
    new_signing_key(tmp_path / "other.key")
    with pytest.raises(LedgerError, match="entry 2 is not signed with this key"):
        PrivacyLedger(signed_path, signing_key=tmp_path / "other.key")
    with pytest.raises(LedgerError, match="signing begins with the first entry"):
        PrivacyLedger(path, signing_key=tmp_path / "other.key")


FORGERIES: dict[str, tuple[str, ...]] = {
    "a smaller count": ("UPDATE entries SET count = 1 WHERE id = 2",),
    "a larger budget": ("UPDATE budget SET epsilon = '9'",),
    "no signatures": ("UPDATE entries SET signature = ''",),
    "no signatures and a smaller count": ("UPDATE entries SET count = 1, signature = '' WHERE id = 2",),
    "the previous signature": ("UPDATE entries SET signature = (SELECT signature FROM entries WHERE id = 1)",),
    "no first entry": (
        "DELETE FROM entries WHERE id = 1",
        "UPDATE entries SET id = 1",
        "UPDATE state SET last_entry = 1",
    ),
}


@pytest.mark.parametrize("name", FORGERIES)
def test_key_signs_nothing_after_a_forged_past(name: str, signed_path: Path, key: Path) -> None:
    ledger = PrivacyLedger(signed_path, signing_key=key)
    relink(signed_path, *FORGERIES[name])
    for use in (lambda: PrivacyLedger(signed_path, signing_key=key), lambda: ledger.debit(QUERY)):
        with pytest.raises(LedgerError):
            use()


def test_recovery_needs_no_key_and_keeps_its_receipt(tmp_path: Path, key: Path) -> None:
    path, output = tmp_path / "signed.sqlite", tmp_path / "labels.csv"
    ledger = PrivacyLedger.create(path, BUDGET, signing_key=key)
    number = ledger.debit(QUERY.repeat(2), labels=np.array([1, 0]), output=output)
    output.write_text("1\n0\n")
    publish_receipt(ledger, number, output)  # a process died after this
    assert recover(PrivacyLedger(path), 1, output).tolist() == [1, 0]
    assert json.loads(receipt_path(output).read_text())["signature"] == select_column(path, "signature")[0]
    assert PrivacyLedger(path).undelivered() == ()


def encrypt(path: Path) -> None:
    from cryptography.hazmat.primitives import serialization

    key = serialization.load_pem_private_key(path.read_bytes(), password=None)
    formats = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    path.write_bytes(key.private_bytes(*formats, serialization.BestAvailableEncryption(b"secret")))


def write_other_kind(path: Path) -> None:
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key

    formats = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    path.write_bytes(generate_private_key(SECP256R1()).private_bytes(*formats))


def link_to_device(path: Path) -> None:
    path.unlink()
    path.symlink_to("/dev/zero")


WRONG_KEYS: dict[str, tuple[Callable[[Path], object], str]] = {
    "readable by a group": (lambda path: path.chmod(0o640), "of mode 640.*chmod 600"),
    "readable by everybody": (lambda path: path.chmod(0o604), "readable by its owner only"),
    "encrypted": (encrypt, "without a password"),
    "of another kind": (write_other_kind, "an Ed25519 private key"),
    "public": (lambda path: path.write_bytes(Path(f"{path}.pub").read_bytes()), "an Ed25519 private key"),
    "empty": (lambda path: path.write_bytes(b""), "an Ed25519 private key"),
    "a device": (link_to_device, "no regular file"),
}


@pytest.mark.parametrize("name", WRONG_KEYS)
def test_wrong_key_is_refused_before_a_ledger_is_made(name: str, key: Path, tmp_path: Path) -> None:
    spoil, message = WRONG_KEYS[name]
    spoil(key)
    with pytest.raises(ValueError, match=message) as error:
        PrivacyLedger.create(tmp_path / "ledger.sqlite", BUDGET, signing_key=key)
    assert "\n" not in str(error.value)
    assert not (tmp_path / "ledger.sqlite").exists()


def test_new_key_is_readable_by_its_owner_only_and_replaces_none(key: Path) -> None:
    assert key.stat().st_mode & 0o777 == 0o600
    assert Path(f"{key}.pub").stat().st_mode & 0o777 & ~0o644 == 0
    SigningKey(key)
    before = key.read_bytes()
    Path(f"{key}.pub").unlink()
    with pytest.raises(ValueError, match="none is replaced"):
        new_signing_key(key)
    assert key.read_bytes() == before
