"""The past of a ledger: earlier digests, signatures of its entries, and receipts. `lies` lists what they refute."""

import json
import os
import sqlite3
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from shutil import copy, copytree

import numpy as np
import pytest

from darrm import PrivacyLedger, PrivacyParams
from darrm.ledger.ledger import StreamCursor
from darrm.loss.privacy_cost import PrivacyCost
from darrm.release.__main__ import main as release
from darrm.verify import chain
from darrm.verify.__main__ import main
from darrm.verify.audit import Audit, audit
from darrm.verify.chain import judge_history, read_digest, read_public_key
from darrm.verify.verdicts import ASSUMED, FALSE, PROVED, UNKNOWN, LedgerFaultError, Verdict
from tests.relinked import relink
from tests.verify.lies import LAST_ENTRY_GONE, LEDGER_LIES, UNDETECTED_LIES, forge, set_entry
from tests.verify.support import ledger_of

QUERY = PrivacyCost("majority of 11", guarantee=PrivacyParams("0.1", "1e-6"), table="ab" * 32)
OTHER = PrivacyCost("majority of 5", guarantee=PrivacyParams("0.2", "1e-6"))
SIGNED, KEY_HOLDER = "its entries are signed", "the holder of a key signed its digest"
Folders = Callable[[str], Path]


@pytest.fixture
def ledger(tmp_path: Path) -> PrivacyLedger:
    """Make a ledger of four entries."""
    budget = PrivacyParams(3, "1e-3")
    ledger = PrivacyLedger.create(tmp_path / "ledger.sqlite", budget, composition="planned", population="ward 7")
    ledger.debit(QUERY.repeat(2), labels=np.array([1, 0]), cursor=StreamCursor("-day", 0, ("a", "b")))
    ledger.debit(QUERY, note="second")
    ledger.debit(OTHER, note="Grüße")
    ledger.debit(QUERY, note="last")
    return ledger


def judge(ledger: PrivacyLedger, *digests: str) -> list[Verdict]:
    return list(judge_history(ledger_of(ledger.path), [read_digest(text) for text in digests], []))


def list_verdicts(verdicts: list[Verdict], claim: str = "") -> list[str]:
    return [verdict.verdict for verdict in verdicts if claim in verdict.claim]


def test_a_digest_proves_the_entries_up_to_its_own_and_no_later_ones(ledger: PrivacyLedger) -> None:
    digests = [str(ledger.digest(number)) for number in (0, 2, 4)]
    verdicts = judge(ledger, digests[1], digests[0])
    assert list_verdicts(verdicts) == [PROVED, PROVED, ASSUMED]
    assert "the latest digest is of entry 2 of 4" in verdicts[-1].reason
    relink(Path(ledger.path), "UPDATE entries SET note = 'x' WHERE id = 3")
    assert list_verdicts(judge(ledger, *digests[:2])) == [PROVED, PROVED, ASSUMED]
    assert list_verdicts(judge(ledger, *digests)) == [PROVED, PROVED, FALSE, ASSUMED]


@pytest.mark.parametrize(
    "statements", [statements for statements, _ in LEDGER_LIES.values()] + [*UNDETECTED_LIES.values()]
)
def test_a_change_is_false_with_a_digest_and_assumed_honest_without(
    statements: tuple[str, ...], ledger: PrivacyLedger
) -> None:
    digest = str(ledger.digest())
    relink(Path(ledger.path), *statements)
    assert list_verdicts(judge(ledger, digest)) == [FALSE]
    assert list_verdicts(judge(ledger)) == ([ASSUMED] if PrivacyLedger(ledger.path).entries() else [])


def test_an_older_copy_that_was_debited_again_contradicts_a_later_digest(ledger: PrivacyLedger) -> None:
    digest = str(ledger.digest())
    relink(Path(ledger.path), *LAST_ENTRY_GONE)
    PrivacyLedger(ledger.path).debit(OTHER)
    assert list_verdicts(judge(ledger)) == [ASSUMED]
    verdicts = judge(ledger, digest)
    assert list_verdicts(verdicts) == [FALSE]
    assert "\n" not in str(verdicts[0])


def test_a_digest_is_read_from_a_line_json_and_a_receipt(ledger: PrivacyLedger) -> None:
    text = str(ledger.digest(2))
    for carrier in (f"  {text}\n", json.dumps(ledger.digest(2).to_json()), json.dumps(ledger.receipt(2))):
        assert read_digest(carrier) == read_digest(text)


@pytest.mark.parametrize(
    "text",
    [
        *("", "no digest", "{}", "[]", '{"ledger_digest": 1}', '{"ledger_digest": {"text": 1}}'),
        *('{"ledger_digest": []}', '{"ledger_digest":' * 50_000),
        "darrm-digest:1:ab12:4:120:2:0.00001:one:ward%207:c0ffee:e5279002",
        "darrm-digest:1:ab12:3:120:2:0.00001:one:ward%207:c0ffee:e5279003",
    ],
)
def test_a_text_without_a_whole_digest_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is no digest of a ledger"):
        read_digest(text)


def test_the_command_compares_a_ledger_with_a_digest_or_its_file(copied: Folders, tmp_path: Path) -> None:
    folder = copied("majority")
    digest = PrivacyLedger(folder / "ledger.sqlite").digest().to_text()
    (tmp_path / "digest.txt").write_text(f"{digest}\n")
    other = PrivacyLedger.create(tmp_path / "other.sqlite", PrivacyParams(1))
    relink(folder / "ledger.sqlite", *LAST_ENTRY_GONE)
    (folder / "answers.csv").unlink()
    assert main([str(folder), "--quiet"]) == 0
    for argument in (digest, str(tmp_path / "digest.txt")):
        assert main([str(folder), "--digest", argument, "--quiet"]) == 1
    assert main([str(other.path), "--digest", digest, "--quiet"]) == 1  # of another ledger


def test_a_digest_in_a_note_is_compared_with_its_ledger(ledger: PrivacyLedger) -> None:
    note = Path(ledger.path).with_name("card.md")
    note.write_text(f"# A model\n\n- Paid by the ledger whose digest was then `{ledger.digest()}`.\n")
    assert audit([ledger.path, note]).status == 0
    relink(Path(ledger.path), *LAST_ENTRY_GONE)
    assert list_verdicts(audit([ledger.path, note]).verdicts, "up to entry 4") == [FALSE]
    note.write_text(note.read_text().replace(":4:", ":3:", 1))
    assert list_verdicts(audit([note]).verdicts, "it holds the digest") == [FALSE]


def test_a_receipt_without_its_ledger_is_unknown(copied: Folders) -> None:
    folder = copied("gnmax")
    result = audit([folder / name for name in ("labels.csv", "labels.csv.receipt.json", "plan.json")])
    assert result.status == 0
    assert [verdict.verdict for verdict in result.verdicts if verdict.about == "receipt"] == [UNKNOWN]
    assert list_verdicts(result.verdicts, "are those that were paid for") == [PROVED]


def test_an_interrupted_debit_is_rolled_back_in_a_copy_only(copied: Folders) -> None:
    folder = copied("majority")
    path, journal = folder / "ledger.sqlite", folder / "ledger.sqlite-journal"
    hashes = ledger_of(path).hashes
    child = os.fork()
    if not child:
        connection = sqlite3.connect(path, isolation_level=None)
        connection.execute("PRAGMA cache_size = 1")
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("UPDATE budget SET epsilon = '99'")
        connection.execute("UPDATE entries SET count = 1, note = hex(zeroblob(100000))")
        os._exit(0)  # pages are in the file, and nothing was committed
    os.waitpid(child, 0)
    link = folder / "link.sqlite"
    link.symlink_to(path)  # SQLite finds the journal next to the file itself
    assert ledger_of(link).hashes == hashes
    digests = {str(file): sha256(file.read_bytes()).hexdigest() for file in (path, journal)}
    listed = {file.path: file.sha256 for file in audit([folder / "table.json", path]).files}
    assert digests.items() <= listed.items()
    assert journal.read_bytes()
    assert ledger_of(path).hashes == hashes
    assert {name: sha256(Path(name).read_bytes()).hexdigest() for name in digests} == digests
    journal.unlink()
    with pytest.raises(LedgerFaultError):
        ledger_of(path)


# ------------------------------------------------------------------------------------------------ signatures


def audit_signed(folder: Path, *keys: Path) -> Audit:
    return audit([folder], keys=[read_public_key(key) for key in keys])


def test_signatures_prove_the_whole_past_to_a_reader_with_the_key(copied: Folders, tmp_path: Path) -> None:
    folder = copied("signed")
    other_key = Path(copytree(folder, tmp_path / "other")) / ".signer.key.pub"
    chain_key = folder / ".signer.key.pub"
    result = audit_signed(folder, other_key, chain_key)
    assert result.status == 0
    assert list_verdicts(result.verdicts, SIGNED) == [PROVED]
    assert list_verdicts(result.verdicts, "it is the ledger that it was") == [PROVED] * 3  # two receipts, a signature
    assert list_verdicts(result.verdicts, KEY_HOLDER) == [PROVED] * 2
    assert list_verdicts(result.verdicts, "not truncated after entry 3") == [ASSUMED]
    without_key = audit([folder])
    assert without_key.status == 0
    assert list_verdicts(without_key.verdicts, SIGNED) == [UNKNOWN]
    assert list_verdicts(without_key.verdicts, KEY_HOLDER) == [UNKNOWN] * 2


def test_only_the_newest_signatures_are_checked_but_all_are_required(
    copied: Folders, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = copied("signed")
    key = folder / ".signer.key.pub"
    monkeypatch.setattr(chain, "_MAX_CHECKED_SIGNATURES", 2)
    (verdict,) = [one for one in audit_signed(folder, key).verdicts if SIGNED in one.claim]
    assert verdict.reason.startswith("2 signatures checked")
    for number, signature, expected in ((1, "'ed25519:ab'", PROVED), (2, "'ed25519:ab'", FALSE), (1, "''", FALSE)):
        changed = Path(copytree(folder, tmp_path / f"{number}{expected}"))
        forge(set_entry(number, signature=signature))(changed)
        assert list_verdicts(audit_signed(changed, key).verdicts, SIGNED) == [expected]


def test_the_command_takes_public_keys(copied: Folders, capsys: pytest.CaptureFixture[str]) -> None:
    folder = copied("signed")
    public = str(folder / ".signer.key.pub")
    assert main([str(folder), "--public-key", public, "--all"]) == 0
    assert f"3 signatures checked with {public}" in capsys.readouterr().out
    copy(public, folder / "signer.pub")
    assert "proves nothing" in " ".join(verdict.reason for verdict in audit([folder]).verdicts)
    for wrong in (folder / ".signer.key", folder / "table.json"):
        assert main([str(folder), "--public-key", str(wrong)]) == 2
        assert "no Ed25519 public key in PEM" in capsys.readouterr().err


def test_a_release_by_the_command_is_signed(
    honest: Folders, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    np.savetxt(tmp_path / "votes.csv", np.ones((4, 3), dtype=int), fmt="%d", delimiter=",")
    key, table = honest("signed") / ".signer.key", honest("signed") / "table.json"
    ledger, labels = str(tmp_path / "ledger.sqlite"), str(tmp_path / "labels.csv")
    arguments = [str(tmp_path / "votes.csv"), "--table", str(table), "--ledger", ledger, "--quiet", "--output", labels]
    signing = ["--signing-key", str(key)]
    assert release([*arguments, *signing, "--create-budget", "9,1e-2"]) == 0
    assert release([*arguments[:-1], str(tmp_path / "more.csv")]) == 2
    assert SIGNED in capsys.readouterr().err
    assert main([ledger, f"{labels}.receipt.json", "--public-key", f"{key}.pub", "--all"]) == 0
    assert "1 signature checked" in capsys.readouterr().out
