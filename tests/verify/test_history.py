"""Earlier digests of a ledger and signatures of its entries: without digest and key, nobody can tell a forged one."""
# ruff: noqa: S608 (statements are a test's own words)

import json
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from shutil import copy, copytree

import numpy as np
import pytest

from darrm import NoiseFunction, PrivacyLedger, PrivacyParams, Problem, Release, Voters, certify, release_debited
from darrm.ledger.chain import SigningKey, new_signing_key
from darrm.ledger.ledger import StreamCursor
from darrm.loss.privacy_cost import PrivacyCost
from darrm.release.__main__ import main as release
from darrm.verify import chain
from darrm.verify.__main__ import main
from darrm.verify.audit import Audit, audit
from darrm.verify.chain import judge_history, read_digest, read_public_key
from darrm.verify.ledger import judge_populations
from darrm.verify.verdicts import ASSUMED, CONSISTENT, FALSE, PROVED, UNKNOWN, Verdict
from tests.ledger.test_chain import CHANGES
from tests.relinked import relink
from tests.verify.lies import UPDATE_LAST_ENTRY, change_field, forge
from tests.verify.support import audit_of, ledger_of

QUERY = PrivacyCost("majority of 11", guarantee=PrivacyParams("0.1", "1e-6"), table="ab" * 32)
OTHER = PrivacyCost("majority of 5", guarantee=PrivacyParams("0.2", "1e-6"))


def made(path: Path) -> PrivacyLedger:
    ledger = PrivacyLedger.create(path, PrivacyParams(3, "1e-3"), composition="planned", population="ward 7")
    ledger.debit(QUERY, note="first")
    ledger.debit(QUERY.repeat(2), labels=np.array([1, 0]), cursor=StreamCursor("-day", 0, ("a", "b")))
    ledger.debit(OTHER, note="Grüße")
    ledger.debit(QUERY, note="last")
    return ledger


@pytest.fixture
def path(tmp_path: Path) -> Path:
    made(tmp_path / "ledger.sqlite")
    return tmp_path / "ledger.sqlite"


def verdicts(path: Path, *texts: str) -> list[Verdict]:
    return list(judge_history(ledger_of(path), [read_digest(text) for text in texts], []))


def words(found: list[Verdict]) -> list[str]:
    return [verdict.verdict for verdict in found]


def linked_anew(change: str, path: Path) -> None:
    relink(path, change)


def merged(path: Path) -> None:
    """Entries 1 and 2 as one of three queries, and those after it one place earlier."""
    relink(
        path,
        "UPDATE entries SET count = 3 WHERE id = 2",
        "DELETE FROM entries WHERE id = 1",
        *(f"UPDATE entries SET id = {n - 1} WHERE id = {n}" for n in (2, 3, 4)),
        UPDATE_LAST_ENTRY,
    )


def restored(path: Path) -> None:
    """A copy from before the last entry, which somebody debited with something else."""
    relink(path, "DELETE FROM entries WHERE id = 4", UPDATE_LAST_ENTRY)
    PrivacyLedger(path).debit(OTHER)


ATTACKS: dict[str, Callable[[Path], object]] = {
    **{f"a changed {name}": partial(linked_anew, change) for name, change in CHANGES.items()},
    "merged": merged,
    "an older copy": lambda path: relink(path, "DELETE FROM entries WHERE id > 1", UPDATE_LAST_ENTRY),
    "an older copy that was debited": restored,
    "all entries gone": lambda path: relink(path, "DELETE FROM entries", UPDATE_LAST_ENTRY),
}


@pytest.mark.parametrize("attack", ATTACKS)
def test_an_attack_is_false_once_a_later_head_is_shown(attack: str, path: Path) -> None:
    text = str(PrivacyLedger(path).digest())
    assert words(verdicts(path, text)) == [PROVED, ASSUMED]
    ATTACKS[attack](path)
    PrivacyLedger(path)  # whoever sees nothing but the file sees a whole ledger
    assert words(verdicts(path)) == ([ASSUMED] if len(ledger_of(path).entries) else [])
    found = verdicts(path, text)
    assert words(found) == [FALSE]
    assert "\n" not in str(found[-1])


def test_what_comes_after_a_head_cannot_be_known(path: Path) -> None:
    ledger = PrivacyLedger(path)
    heads = [str(ledger.digest(number)) for number in (0, 2, 4)]
    found = verdicts(path, heads[1], heads[0])
    assert words(found) == [PROVED, PROVED, ASSUMED]
    assert "the latest digest is of entry 2 of 4" in found[-1].reason
    relink(path, "UPDATE entries SET note = 'x' WHERE id = 3")
    assert words(verdicts(path, *heads[:2])) == [PROVED, PROVED, ASSUMED]
    assert words(verdicts(path, *heads)) == [PROVED, PROVED, FALSE, ASSUMED]


def test_a_head_is_read_from_whatever_carries_it(path: Path) -> None:
    ledger = PrivacyLedger(path)
    text, receipt = str(ledger.digest(2)), json.dumps(ledger.receipt(2))
    for carrier in (f"  {text}\n", json.dumps(ledger.digest(2).to_json()), receipt):
        assert read_digest(carrier) == read_digest(text)
    for wrong in (
        "",
        text[:-1] + "x",
        text.replace(":2:", ":3:", 1),
        "{}",
        "[]",
        '{"ledger_digest": 1}',
        '{"ledger_digest": {"text": 1}}',
    ):
        with pytest.raises(ValueError, match="is no digest of a ledger"):
            read_digest(wrong)


def test_ledgers_of_one_population_are_added_up(tmp_path: Path) -> None:
    for name, epsilon, population in (("a", "1.5", "ward 7"), ("b", "2", "ward 7"), ("c", "9", "")):
        PrivacyLedger.create(tmp_path / name, PrivacyParams(epsilon, "1e-5"), population=population)
    shutil.copy(tmp_path / "b", tmp_path / "copy of b")
    one, two, other = (audit_of(tmp_path / name) for name in "abc")
    found, *_ = judge_populations([one, two, audit_of(tmp_path / "copy of b")])
    assert found.verdict == ASSUMED
    assert found.claim.endswith("are about one population, 'ward 7': (3.5, 2e-05) together")
    assert list(judge_populations([one])) == []
    assert words(list(judge_populations([one, two, other]))) == [ASSUMED, ASSUMED]


def test_two_courses_of_one_ledger_contradict_each_other_and_copies_do_not(tmp_path: Path) -> None:
    ledger = made(tmp_path / "a")
    shutil.copy(tmp_path / "a", tmp_path / "b")
    shutil.copy(tmp_path / "a", tmp_path / "c")
    ledger.debit(QUERY, note="once more")
    PrivacyLedger(tmp_path / "c").debit(OTHER)
    one, copy, other = (audit_of(tmp_path / name) for name in "abc")
    assert words(list(judge_populations([one, copy])))[-1] == CONSISTENT
    found = [verdict for verdict in judge_populations([one, other]) if verdict.about == "ledger"]
    assert [(verdict.verdict, "entry 5" in verdict.reason) for verdict in found] == [(FALSE, True)]


SIGNED = "its entries are signed"


@pytest.fixture(scope="module")
def honest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three signed entries, with labels and receipts of two."""
    pytest.importorskip("cryptography")
    root = tmp_path_factory.mktemp("signed")
    new_signing_key(root / "a.key")
    new_signing_key(root / "b.key")
    folder = root / "folder"
    folder.mkdir()
    table = certify(Problem.from_allowance(Voters(3, PrivacyParams("0.02")), 3), NoiseFunction(3, [0, 0.05]))
    table.save(folder / "table.json")
    ledger = PrivacyLedger.create(folder / "ledger.sqlite", PrivacyParams(9, "1e-2"), signing_key=root / "a.key")
    rng = np.random.default_rng(3)
    for name in ("labels.csv", "more.csv", ""):
        output = folder / name if name else None
        release_debited(Release(table), rng.integers(0, 2, (5, 3)), ledger=ledger, output=output)
    return folder


def found(honest: Path, to: Path, change: Callable[[Path], object], *keys: str) -> Audit:
    folder = Path(copytree(honest, to / "folder"))
    change(folder)
    return audit([folder], keys=[read_public_key(honest.parent / f"{key}.key.pub") for key in keys])


def verdicts_on(audited: Audit, claim: str) -> list[str]:
    return [one.verdict for one in audited.verdicts if claim in one.claim]


def nothing(_folder: Path) -> None:
    pass


def test_signatures_prove_the_whole_past(honest: Path, tmp_path: Path) -> None:
    audited = found(honest, tmp_path, nothing, "b", "a")
    assert audited.status == 0
    assert verdicts_on(audited, SIGNED) == [PROVED]
    assert verdicts_on(audited, "it is the ledger that it was") == [PROVED] * 3  # two receipts and a signature
    assert verdicts_on(audited, "the holder of a key signed its digest") == [PROVED] * 2
    assert verdicts_on(audited, "not truncated after entry 3") == [ASSUMED]


def test_without_the_key_it_cannot_be_known(honest: Path, tmp_path: Path) -> None:
    audited = found(honest, tmp_path, nothing)
    assert audited.status == 0
    assert verdicts_on(audited, SIGNED) == [UNKNOWN]
    assert verdicts_on(audited, "the holder of a key signed its digest") == [UNKNOWN] * 2


def by_another_key(folder: Path) -> None:
    """Change an entry, and sign all of them with a key of one's own."""
    relink(folder / "ledger.sqlite", "UPDATE entries SET count = 4 WHERE id = 1")
    ledger, own = PrivacyLedger(folder / "ledger.sqlite"), SigningKey(folder.parents[0] / "own.key")
    signatures = {number: own.sign(str(ledger.digest(number))) for number in (1, 2, 3)}
    relink(
        folder / "ledger.sqlite",
        *(f"UPDATE entries SET signature = '{one}' WHERE id = {number}" for number, one in signatures.items()),
    )


def own_key(folder: Path) -> None:
    new_signing_key(folder.parents[0] / "own.key")
    by_another_key(folder)


ROW = (
    "time, cost, count, note, table_digest, labels_digest, token, output, questions, entry_hash, signature, files, "
    "labels"
)
LIES: dict[str, Callable[[Path], object]] = {
    "a smaller count": forge("UPDATE entries SET count = 4 WHERE id = 1"),
    "another note": forge("UPDATE entries SET note = 'a trial' WHERE id = 3"),
    "a larger budget": forge("UPDATE budget SET epsilon = '10'"),
    "another identity": forge(f"UPDATE budget SET identity = '{'ab' * 16}'"),
    "no first entry": forge("DELETE FROM entries WHERE id = 1", "UPDATE entries SET id = id - 1", UPDATE_LAST_ENTRY),
    "no signatures": forge("UPDATE entries SET signature = ''"),
    "no signatures, and a smaller count": forge("UPDATE entries SET signature = '', count = 4"),
    "no last signature": forge("UPDATE entries SET signature = '' WHERE id = 3"),
    "no first signature": forge("UPDATE entries SET signature = '' WHERE id = 1"),
    "one more entry": forge(f"INSERT INTO entries SELECT 4, {ROW} FROM entries WHERE id = 3", UPDATE_LAST_ENTRY),
    "a changed signature": forge("UPDATE entries SET signature = replace(signature, 'a', 'b') WHERE id = 2"),
    "no hexadecimal digits": forge("UPDATE entries SET signature = 'ed25519:xy' WHERE id = 2"),
    "two signatures exchanged": forge(
        "UPDATE entries SET signature = (SELECT signature FROM entries c WHERE c.id = 4 - entries.id)"
    ),
    "signatures by another key": own_key,
}


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("name", LIES)
def test_without_the_key_no_change_is_unseen(name: str, honest: Path, tmp_path: Path) -> None:
    def tell(folder: Path) -> None:
        for receipt in folder.glob("*.receipt.json"):  # a head that was copied would show most of it
            receipt.unlink()
        LIES[name](folder)

    audited = found(honest, tmp_path, tell, "a")
    assert FALSE in verdicts_on(audited, "signed")


@pytest.mark.parametrize(
    ("where", "value"), [("signature", lambda old: old.replace("a", "b")), ("signature", "none"), ("signature", "")]
)
def test_a_changed_signature_of_a_receipt_is_false(where: str, value: object, honest: Path, tmp_path: Path) -> None:
    def tell(folder: Path) -> None:
        change_field("labels.csv.receipt.json", where, value, folder)
        (folder / "ledger.sqlite").unlink()

    audited = found(honest, tmp_path, tell, "a")
    found_words = verdicts_on(audited, "the holder of a key signed its digest") + verdicts_on(
        audited, "it is a receipt"
    )
    assert sorted(found_words) == sorted([PROVED, FALSE])  # the other receipt is as it was


def test_a_ledger_written_anew_beside_an_honest_older_copy_is_false(honest: Path, tmp_path: Path) -> None:
    def tell(folder: Path) -> None:
        copy(folder / "ledger.sqlite", folder / "older.sqlite")
        relink(folder / "ledger.sqlite", "UPDATE entries SET signature = '', note = 'a trial' WHERE id = 3")
        relink(folder / "ledger.sqlite", "UPDATE entries SET signature = ''")
        for receipt in folder.glob("*.receipt.json"):
            receipt.unlink()

    audited = found(honest, tmp_path, tell, "a")
    assert [one.claim for one in audited.verdicts if one.verdict == FALSE] == [
        f"{tmp_path}/folder/ledger.sqlite and {tmp_path}/folder/older.sqlite are copies of one ledger"
    ]


def test_the_newest_signatures_are_checked_and_all_must_be_there(
    honest: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chain, "_MAX_CHECKED_SIGNATURES", 2)
    audited = found(honest, tmp_path / "whole", nothing, "a")
    assert [one.reason.partition(" ")[0] for one in audited.verdicts if SIGNED in one.claim] == ["2"]
    for number, verdict in ((1, PROVED), (2, FALSE)):
        change = forge(f"UPDATE entries SET signature = 'ed25519:ab' WHERE id = {number}")
        assert verdicts_on(found(honest, tmp_path / str(number), change, "a"), SIGNED) == [verdict]
    bare = forge("UPDATE entries SET signature = '' WHERE id = 1")
    assert verdicts_on(found(honest, tmp_path / "bare", bare, "a"), SIGNED) == [FALSE]


def test_the_command_takes_keys_and_refuses_what_is_none(
    honest: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    public = str(honest.parent / "a.key.pub")
    assert main([str(honest), "--public-key", public, "--all"]) == 0
    assert f"3 signatures checked with {public}" in capsys.readouterr().out
    (tmp_path / "beside").mkdir()
    (tmp_path / "beside" / "a.pub").write_bytes(Path(public).read_bytes())
    listed = audit([tmp_path / "beside"]).verdicts
    assert "proves nothing" in listed[0].reason
    for wrong in (honest.parent / "a.key", honest / "table.json"):
        assert main([str(honest), "--public-key", str(wrong)]) == 2
        assert "no Ed25519 public key in PEM" in capsys.readouterr().err


def test_a_release_signs_and_the_audit_says_so(
    honest: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    np.savetxt(tmp_path / "votes.csv", np.ones((4, 3), dtype=int), fmt="%d", delimiter=",")
    key, ledger = honest.parent / "b.key", tmp_path / "ledger.sqlite"
    words = [str(tmp_path / "votes.csv"), "--table", str(honest / "table.json"), "--ledger", str(ledger), "--quiet"]
    signed = ["--signing-key", str(key)]
    first = ["--create-budget", "9,1e-2", "--output", str(tmp_path / "a.csv")]
    assert release([*words, *signed, *first]) == 0
    assert release([*words, "--output", str(tmp_path / "b.csv")]) == 2
    assert "its entries are signed" in capsys.readouterr().err
    assert release([*words, *signed, "--output", str(tmp_path / "b.csv")]) == 0
    assert main([str(ledger), str(tmp_path / "b.csv.receipt.json"), "--public-key", f"{key}.pub", "--all"]) == 0
    assert "2 signatures checked" in capsys.readouterr().out
