"""Entries are signed from the first one on, by one key, or not at all; keys that are none are one clear line."""

import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from darrm.errors import LedgerError
from darrm.ledger.__main__ import main
from darrm.ledger.chain import SIGNED, SigningKey, new_signing_key
from darrm.ledger.ledger import PrivacyLedger
from darrm.release.delivery import publish_receipt, receipt_path, recover
from tests.ledger.common import BUDGET, QUERY
from tests.relinked import relink

serialization = pytest.importorskip("cryptography.hazmat.primitives.serialization")


@pytest.fixture
def key(tmp_path: Path) -> Path:
    new_signing_key(tmp_path / "ledger.key")
    return tmp_path / "ledger.key"


@pytest.fixture
def path(tmp_path: Path, key: Path) -> Path:
    """A signed ledger of two entries."""
    ledger = PrivacyLedger.create(tmp_path / "ledger.sqlite", BUDGET, signing_key=key)
    ledger.debit(QUERY)
    PrivacyLedger(tmp_path / "ledger.sqlite", signing_key=key).debit(QUERY.repeat(2))
    return tmp_path / "ledger.sqlite"


def signatures(path: Path) -> list[str]:
    with closing(sqlite3.connect(path)) as connection:
        return [row[0] for row in connection.execute("SELECT signature FROM entries ORDER BY id")]


def test_each_entry_bears_the_signature_of_the_line_of_its_head(path: Path, key: Path) -> None:
    public = serialization.load_pem_public_key(Path(f"{key}.pub").read_bytes())
    ledger = PrivacyLedger(path)
    for number, signature in enumerate(signatures(path), 1):
        public.verify(bytes.fromhex(signature.removeprefix(SIGNED)), str(ledger.digest(number)).encode())
    assert ledger.digest().queries == 3


def test_without_a_key_nothing_is_signed(tmp_path: Path) -> None:
    ledger = PrivacyLedger.create(tmp_path / "ledger.sqlite", BUDGET)
    ledger.debit(QUERY)
    assert signatures(tmp_path / "ledger.sqlite") == [""]
    assert "signature" not in ledger.receipt(1)


def test_nothing_unsigned_follows_what_is_signed(path: Path) -> None:
    with pytest.raises(LedgerError, match=r"its entries are signed.*nothing was debited"):
        PrivacyLedger(path).debit(QUERY)
    assert len(PrivacyLedger(path).entries()) == 2


def test_another_key_goes_on_with_nothing(path: Path, tmp_path: Path) -> None:
    new_signing_key(tmp_path / "other.key")
    with pytest.raises(LedgerError, match="entry 2 is not signed with this key"):
        PrivacyLedger(path, signing_key=tmp_path / "other.key")


WITHOUT: dict[str, tuple[str, ...]] = {
    "a smaller count": ("UPDATE entries SET count = 1 WHERE id = 2",),
    "a larger budget": ("UPDATE budget SET epsilon = '9'",),
    "no signatures": ("UPDATE entries SET signature = ''",),
    "no signatures and a smaller count": ("UPDATE entries SET count = 1, signature = '' WHERE id = 2",),
    "the signature of the entry before": (
        "UPDATE entries SET signature = (SELECT signature FROM entries WHERE id = 1)",
    ),
    "a first entry less": (
        "DELETE FROM entries WHERE id = 1",
        "UPDATE entries SET id = 1",
        "UPDATE state SET last_entry = 1",
    ),
}


@pytest.mark.parametrize("change", WITHOUT)
def test_the_holder_of_the_key_signs_nothing_after_a_past_that_he_did_not_write(
    change: str, path: Path, key: Path
) -> None:
    ledger = PrivacyLedger(path, signing_key=key)
    relink(path, *WITHOUT[change])
    with pytest.raises(LedgerError):  # whoever opens it anew
        PrivacyLedger(path, signing_key=key)
    with pytest.raises(LedgerError):  # and who has it open
        ledger.debit(QUERY)


def test_a_key_does_not_begin_where_entries_are(tmp_path: Path, key: Path) -> None:
    PrivacyLedger.create(tmp_path / "old.sqlite", BUDGET).debit(QUERY)
    with pytest.raises(LedgerError, match="signing begins with the first entry"):
        PrivacyLedger(tmp_path / "old.sqlite", signing_key=key)


def test_a_recovery_needs_no_key_and_finds_its_receipt_again(tmp_path: Path, key: Path) -> None:
    signed = PrivacyLedger.create(tmp_path / "ledger.sqlite", BUDGET, signing_key=key)
    output = tmp_path / "labels.csv"

    number = signed.debit(QUERY.repeat(2), labels=np.array([1, 0]), output=output)
    output.write_text("1\n0\n")
    publish_receipt(signed, number, output)  # a process died after this
    assert recover(PrivacyLedger(tmp_path / "ledger.sqlite"), 1, output).tolist() == [1, 0]
    assert json.loads(receipt_path(output).read_text())["signature"] == signatures(tmp_path / "ledger.sqlite")[0]
    assert PrivacyLedger(tmp_path / "ledger.sqlite").undelivered() == ()


def encrypted(path: Path) -> None:
    key = serialization.load_pem_private_key(path.read_bytes(), password=None)
    formats = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    path.write_bytes(key.private_bytes(*formats, serialization.BestAvailableEncryption(b"secret")))


def of_another_kind(path: Path) -> None:
    from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key

    formats = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    path.write_bytes(generate_private_key(SECP256R1()).private_bytes(*formats))


def a_device(path: Path) -> None:
    path.unlink()
    path.symlink_to("/dev/zero")


SPOILT: dict[str, tuple[Callable[[Path], object], str]] = {
    "readable by a group": (lambda path: path.chmod(0o640), "of mode 640.*chmod 600"),
    "readable by everybody": (lambda path: path.chmod(0o604), "readable by its owner only"),
    "encrypted": (encrypted, "without a password"),
    "no Ed25519": (of_another_kind, "an Ed25519 private key"),
    "the public one": (lambda path: path.write_bytes(Path(f"{path}.pub").read_bytes()), "an Ed25519 private key"),
    "empty": (lambda path: path.write_bytes(b""), "an Ed25519 private key"),
    "a device": (a_device, "no regular file"),
}


@pytest.mark.parametrize("fault", SPOILT)
def test_what_is_no_key_is_one_line(fault: str, key: Path, tmp_path: Path) -> None:
    spoil, message = SPOILT[fault]
    spoil(key)
    with pytest.raises(ValueError, match=message) as refused:
        PrivacyLedger.create(tmp_path / "ledger.sqlite", BUDGET, signing_key=key)
    assert "\n" not in str(refused.value)
    assert not (tmp_path / "ledger.sqlite").exists()


def test_a_new_key_is_its_owners_only_and_replaces_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["key", str(tmp_path / "a.key")]
    assert main(words) == 0
    assert f"{tmp_path / 'a.key'}.pub" in capsys.readouterr().out
    assert (tmp_path / "a.key").stat().st_mode & 0o777 == 0o600
    SigningKey(tmp_path / "a.key")
    before = (tmp_path / "a.key").read_bytes()
    (tmp_path / "a.key.pub").unlink()
    assert main(words) == 2
    assert "none is replaced" in capsys.readouterr().err
    assert (tmp_path / "a.key").read_bytes() == before
