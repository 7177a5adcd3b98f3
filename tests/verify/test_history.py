"""Every attack on a ledger's past is false as soon as a later head is shown, and cannot be known without one."""

import json
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from darrm.ledger.ledger import PrivacyLedger, StreamCursor
from darrm.loss.privacy_cost import PrivacyCost
from darrm.privacy import PrivacyParams
from darrm.verify.files import LedgerFaultError
from darrm.verify.history import judge_history, read_digest
from darrm.verify.ledger import judge_populations
from darrm.verify.verdicts import ASSUMED, CONSISTENT, FALSE, LEDGER, PROVED, Verdict
from tests.ledger.test_chain import CHANGES
from tests.ledger.test_distrust import edit
from tests.relinked import relink
from tests.verify.support import audit_of, ledger_of

QUERY = PrivacyCost("majority of 11", guarantee=PrivacyParams("0.1", "1e-6"), table="ab" * 32)
OTHER = PrivacyCost("majority of 5", guarantee=PrivacyParams("0.2", "1e-6"))
SEQUENCE = "UPDATE state SET last_entry = (SELECT count(*) FROM entries)"


def made(path: Path) -> PrivacyLedger:
    ledger = PrivacyLedger.create(path, PrivacyParams(3, "1e-3"), composition="planned", population="ward 7")
    ledger.debit(QUERY, note="first")
    ledger.debit(QUERY.repeated(2), labels=np.array([1, 0]), cursor=StreamCursor("-day", 0, ("a", "b")))
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
        *(f"UPDATE entries SET id = {n - 1} WHERE id = {n}" for n in (2, 3, 4)),  # noqa: S608 (a test's own words)
        SEQUENCE,
    )


def restored(path: Path) -> None:
    """A copy from before the last entry, which somebody debited with something else."""
    relink(path, "DELETE FROM entries WHERE id = 4", SEQUENCE)
    PrivacyLedger(path).debit(OTHER)


ATTACKS: dict[str, Callable[[Path], object]] = {
    **{f"a changed {name}": partial(linked_anew, change) for name, change in CHANGES.items()},
    "deleted at the end": lambda path: relink(path, "DELETE FROM entries WHERE id = 4", SEQUENCE),
    "deleted in the middle": lambda path: relink(
        path,
        "DELETE FROM entries WHERE id = 2",
        "UPDATE entries SET id = 2 WHERE id = 3",
        "UPDATE entries SET id = 3 WHERE id = 4",
        SEQUENCE,
    ),
    "reordered": lambda path: relink(
        path,
        "UPDATE entries SET id = 9 WHERE id = 1",
        "UPDATE entries SET id = 1 WHERE id = 3",
        "UPDATE entries SET id = 3 WHERE id = 9",
        SEQUENCE,
    ),
    "merged": merged,
    "an older copy": lambda path: relink(path, "DELETE FROM entries WHERE id > 1", SEQUENCE),
    "an older copy that was debited": restored,
    "all entries gone": lambda path: relink(path, "DELETE FROM entries", SEQUENCE),
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


def test_the_head_of_another_ledger_and_links_that_are_not_computed_anew(path: Path, tmp_path: Path) -> None:
    other = made(tmp_path / "other.sqlite")
    found = verdicts(path, str(other.digest()))
    assert words(found) == [FALSE]
    assert f"of the ledger {other.identity}" in found[-1].reason
    edit(path, "UPDATE entries SET note = 'x' WHERE id = 3")
    with pytest.raises(LedgerFaultError, match="entry 3"):
        ledger_of(path)
    path.write_bytes(b"SQLite format 3\0" + bytes(100))
    with pytest.raises(LedgerFaultError):
        ledger_of(path)


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
    found = [verdict for verdict in judge_populations([one, other]) if verdict.about == LEDGER]
    assert [(verdict.verdict, "entry 5" in verdict.reason) for verdict in found] == [(FALSE, True)]
