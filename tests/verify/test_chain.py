"""Every attack on a ledger's past is false as soon as a later head is shown, and cannot be known without one."""

import json
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from darrm.account.ledger import PrivacyLedger, Turn
from darrm.losses.charges import Charge
from darrm.privacy import PrivacyParams
from darrm.verify.chain import SpentOf, is_receipt, judge_chain, judge_copies, judge_populations, read_head
from darrm.verify.verdicts import CLAIMED, CONSISTENT, FALSE, PROVED, UNKNOWN, Verdict
from tests.account.test_chain import CHANGES
from tests.account.test_ledger_distrust import edit, first_version
from tests.relinked import relink

QUERY = Charge("majority of 11", guarantee=PrivacyParams("0.1", "1e-6"), table="ab" * 32)
OTHER = Charge("majority of 5", guarantee=PrivacyParams("0.2", "1e-6"))
OLD = Path(__file__).parents[1] / "files" / "old"
SEQUENCE = "UPDATE sqlite_sequence SET seq = (SELECT count(*) FROM charges)"


def made(path: Path) -> PrivacyLedger:
    ledger = PrivacyLedger.create(path, PrivacyParams(3, "1e-3"), kinds="planned", population="ward 7")
    ledger.debit(QUERY, note="first")
    ledger.debit(QUERY.repeated(2), labels=np.array([1, 0]), turn=Turn("-day", 0, ("a", "b")))
    ledger.debit(OTHER, note="Grüße")
    ledger.debit(QUERY, note="last")
    return ledger


@pytest.fixture
def path(tmp_path: Path) -> Path:
    made(tmp_path / "ledger.sqlite")
    return tmp_path / "ledger.sqlite"


def verdicts(path: Path, *texts: str) -> list[Verdict]:
    return list(judge_chain(path, [read_head(text) for text in texts]))


def words(found: list[Verdict]) -> list[str]:
    return [verdict.verdict for verdict in found]


def linked_anew(change: str, path: Path) -> None:
    relink(path, change)


def merged(path: Path) -> None:
    """Entries 1 and 2 as one of three queries, and those after it one place earlier."""
    relink(
        path,
        "UPDATE charges SET count = 3 WHERE id = 2",
        "DELETE FROM charges WHERE id = 1",
        *(f"UPDATE charges SET id = {n - 1} WHERE id = {n}" for n in (2, 3, 4)),  # noqa: S608 (a test's own words)
        SEQUENCE,
    )


def restored(path: Path) -> None:
    """A copy from before the last entry, which somebody debited with something else."""
    relink(path, "DELETE FROM charges WHERE id = 4", SEQUENCE)
    PrivacyLedger(path).debit(OTHER)


ATTACKS: dict[str, Callable[[Path], object]] = {
    **{f"a changed {name}": partial(linked_anew, change) for name, change in CHANGES.items()},
    "deleted at the end": lambda path: relink(path, "DELETE FROM charges WHERE id = 4", SEQUENCE),
    "deleted in the middle": lambda path: relink(
        path,
        "DELETE FROM charges WHERE id = 2",
        "UPDATE charges SET id = 2 WHERE id = 3",
        "UPDATE charges SET id = 3 WHERE id = 4",
        SEQUENCE,
    ),
    "reordered": lambda path: relink(
        path,
        "UPDATE charges SET id = 9 WHERE id = 1",
        "UPDATE charges SET id = 1 WHERE id = 3",
        "UPDATE charges SET id = 3 WHERE id = 9",
        SEQUENCE,
    ),
    "merged": merged,
    "an older copy": lambda path: relink(path, "DELETE FROM charges WHERE id > 1", SEQUENCE),
    "an older copy that was debited": restored,
    "all entries gone": lambda path: relink(path, "DELETE FROM charges", SEQUENCE),
}


@pytest.mark.parametrize("attack", ATTACKS)
def test_an_attack_is_false_once_a_later_head_is_shown(attack: str, path: Path) -> None:
    text = str(PrivacyLedger(path).head())
    assert words(verdicts(path, text)) == [CONSISTENT, CLAIMED, PROVED, UNKNOWN]
    ATTACKS[attack](path)
    PrivacyLedger(path)  # whoever sees nothing but the file sees a whole ledger
    assert words(verdicts(path)) == [CONSISTENT, CLAIMED, UNKNOWN]
    found = verdicts(path, text)
    assert words(found) == [CONSISTENT, CLAIMED, FALSE]
    assert "\n" not in str(found[-1])


def test_what_comes_after_a_head_cannot_be_known(path: Path) -> None:
    ledger = PrivacyLedger(path)
    heads = [str(ledger.head(number)) for number in (0, 2, 4)]
    found = verdicts(path, heads[1], heads[0])
    assert words(found) == [CONSISTENT, CLAIMED, PROVED, PROVED, UNKNOWN]
    assert "the latest head that was given is of entry 2 of 4" in found[-1].reason
    relink(path, "UPDATE charges SET note = 'x' WHERE id = 3")
    assert words(verdicts(path, *heads[:2])) == [CONSISTENT, CLAIMED, PROVED, PROVED, UNKNOWN]
    assert words(verdicts(path, *heads)) == [CONSISTENT, CLAIMED, PROVED, PROVED, FALSE, UNKNOWN]


def test_the_head_of_another_ledger_and_links_that_are_not_computed_anew(path: Path, tmp_path: Path) -> None:
    other = made(tmp_path / "other.sqlite")
    found = verdicts(path, str(other.head()))
    assert words(found) == [CONSISTENT, CLAIMED, FALSE]
    assert f"of the ledger {other.identity}" in found[-1].reason
    edit(path, "UPDATE charges SET note = 'x' WHERE id = 3")
    (found_one,) = verdicts(path)
    assert (found_one.verdict, found_one.reason.split()[:2]) == (FALSE, ["entry", "3"])
    path.write_bytes(b"SQLite format 3\0" + bytes(100))
    assert words(verdicts(path)) == [FALSE]


@pytest.mark.parametrize("name", ["ledger-models", "ledger-stream", "ledger-undelivered"])
def test_the_heads_of_older_ledgers_are_judged_before_and_after_their_upgrade(name: str, tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite"
    shutil.copy(OLD / f"{name}.sqlite", path)
    ledger = PrivacyLedger(path)
    text = str(ledger.head())
    assert words(verdicts(path, text)) == [CONSISTENT, PROVED, UNKNOWN]
    ledger.forget_labels(1)  # a write
    assert words(verdicts(path, text)) == [CONSISTENT, PROVED, UNKNOWN]
    first_version(tmp_path / "first.sqlite", [3])
    assert words(verdicts(tmp_path / "first.sqlite")) == [UNKNOWN]
    assert words(verdicts(tmp_path / "first.sqlite", text)) == [FALSE]


def test_a_head_is_read_from_whatever_carries_it(path: Path) -> None:
    ledger = PrivacyLedger(path)
    text, receipt = str(ledger.head(2)), json.dumps(ledger.receipt(2))
    for carrier in (f"  {text}\n", json.dumps(ledger.head(2).to_json()), receipt):
        assert read_head(carrier) == read_head(text)
    assert (is_receipt(receipt.encode()), is_receipt(text.encode()), is_receipt(b"[]")) == (True, False, False)
    for wrong in (
        "",
        text[:-1] + "x",
        text.replace(":2:", ":3:", 1),
        "{}",
        "[]",
        '{"head": 1}',
        '{"head": {"text": 1}}',
    ):
        with pytest.raises(ValueError, match="is no head of a ledger"):
            read_head(wrong)


def test_ledgers_of_one_population_are_added_up() -> None:
    ledgers = [SpentOf("a", "ward 7", "1", 1.5, 1e-5), SpentOf("b", "ward 7", "2", 2.0, 1e-6)]
    (found,) = judge_populations([*ledgers, SpentOf("copy of b", "ward 7", "2", 2.0, 1e-6)])
    assert found.verdict == CLAIMED
    assert found.claim.endswith("are about one population, 'ward 7': (3.5, 1.1e-05) together")
    assert list(judge_populations(ledgers[:1])) == []
    found_two = list(judge_populations([*ledgers, SpentOf("c", "", "3", float("inf"), 0.1)]))
    assert words(found_two) == [CLAIMED, UNKNOWN]


def test_two_courses_of_one_ledger_contradict_each_other_and_copies_do_not() -> None:
    found = judge_copies({"a": ("ab", ["1", "2", "3"]), "b": ("ab", ["1", "2"]), "c": ("cd", ["9"]), "d": ("", ["8"])})
    assert [(one.verdict, one.claim) for one in found] == [(CONSISTENT, "a and b are copies of one ledger")]
    found = judge_copies({"a": ("ab", ["1", "2", "3"]), "b": ("ab", ["1", "4"])})
    assert [(one.verdict, "entry 2" in one.reason) for one in found] == [(FALSE, True)]
