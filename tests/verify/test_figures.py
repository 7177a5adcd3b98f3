"""What students and model cards say of their cost is false where it is lower than what is added up, or was paid."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from darrm.account.ledger import PrivacyLedger
from darrm.losses.charges import Charge
from darrm.pate.confident import ConfidentGNMax
from darrm.privacy import PrivacyParams
from darrm.verify.chain import read_head
from darrm.verify.evidence import Piece
from darrm.verify.figures import Told, judge_told, read_card
from darrm.verify.ledger import LedgerCopy, read_ledger
from darrm.verify.verdicts import CLAIMED, FALSE, PROVED, UNKNOWN

RUN = ConfidentGNMax(24.0, 20.6739, 10.445)
WORDS = f"{RUN!r}: 100 checks, 25 answers"
CHARGE = Charge(WORDS, renyi=RUN.check.guarantee.repeated(100) + RUN.answer.guarantee.repeated(25), reached=1)
STUDENT, VOTE = "PATEClassifier", "PrivateVotingClassifier"


@pytest.fixture
def ledger(tmp_path: Path) -> PrivacyLedger:
    made = PrivacyLedger.create(tmp_path / "ledger.sqlite", PrivacyParams(3, "1e-5"))
    made.debit(CHARGE, note="PATEClassifier.fit")
    return made


@pytest.fixture
def copies(ledger: PrivacyLedger) -> dict[str, LedgerCopy]:
    return {"ledger.sqlite": read_ledger(Path(ledger.path))}


@pytest.fixture
def told(ledger: PrivacyLedger) -> Told:
    spent = (ledger.spent.epsilon, 1e-5)
    facts = {"guarantee": spent, "spent": spent, "mechanism": WORDS, "voters": 30, "labels": 25, "inputs": 100}
    return Told(STUDENT, facts, [read_head(str(ledger.head()))], ledger.identity)


def verdicts(told: Told, ledgers: Mapping[str, LedgerCopy], **files: Told) -> list[str]:
    return [one.verdict for one in judge_told(told, ledgers, files)]


def but(told: Told, **facts: Any) -> Told:
    return replace(told, facts={**told.facts, **facts})


def test_what_is_true_is_proved_by_the_words_and_no_less_than_what_was_paid(
    told: Told, copies: dict[str, LedgerCopy]
) -> None:
    found = verdicts(told, copies, file=told)
    assert FALSE not in found
    assert found.count(PROVED) == 1
    assert UNKNOWN not in found
    assert verdicts(told, {}).count(UNKNOWN) == 1
    assert FALSE not in verdicts(but(told, guarantee=(5.0, 1e-4), spent=(4.0, 1e-4)), copies)  # more than it is


LOWER: dict[str, dict[str, Any]] = {
    "ε of both": {"guarantee": (2.99, 1e-5), "spent": (2.99, 1e-5)},
    "δ of both": {"guarantee": (2.99998, 9e-6), "spent": (2.99998, 9e-6)},
    "ε of the guarantee": {"guarantee": (2.9, 1e-5)},
    "no number": {"guarantee": (float("nan"), 1e-5), "spent": (float("nan"), 1e-5)},
    "more labels than answers": {"labels": 26},
    "other inputs than were checked": {"inputs": 99},
    "noise that none may have": {"mechanism": WORDS.replace("10.445", "0.1")},
    "δ of 0": {"guarantee": (3.0, 0.0), "spent": (3.0, 0.0)},
}


@pytest.mark.parametrize("name", LOWER)
def test_a_lower_figure_is_false_by_the_words_alone(name: str, told: Told, copies: dict[str, LedgerCopy]) -> None:
    assert FALSE in verdicts(but(told, **LOWER[name]), {})
    assert FALSE in verdicts(but(told, **LOWER[name]), copies)


def test_more_noise_than_there_was_is_false_by_the_ledger_and_cannot_be_known_alone(
    told: Told, copies: dict[str, LedgerCopy]
) -> None:
    words = WORDS.replace("10.445", "20.445")
    lie = but(told, mechanism=words, guarantee=(2.5, 1e-5), spent=(2.5, 1e-5))
    assert FALSE in verdicts(lie, copies)
    assert UNKNOWN in verdicts(lie, {})
    assert FALSE in verdicts(lie, {}, file=told)
    assert FALSE in verdicts(but(told, mechanism=words), copies)
    assert CLAIMED in verdicts(but(told, mechanism="Rényi"), copies)
    wide = but(told, mechanism=WORDS.replace("10.445", "1e9"))
    assert FALSE in verdicts(wide, copies)
    assert UNKNOWN in verdicts(wide, {})


@pytest.mark.parametrize(("note", "least"), [("PrivateVotingClassifier.predict", 9.0), ("PrivateModels.fit", 2.99998)])
def test_what_goes_on_to_answer_guarantees_its_budget(note: str, least: float, told: Told, tmp_path: Path) -> None:
    ledger = PrivacyLedger.create(tmp_path / "vote.sqlite", PrivacyParams(9, "1e-5"))
    ledger.debit(CHARGE, note=note)
    vote = replace(told, kind=VOTE, heads=[read_head(str(ledger.head()))], identity=ledger.identity)
    ledger.debit(CHARGE, note="later")  # figures are of their day
    copies = {"vote.sqlite": read_ledger(tmp_path / "vote.sqlite")}
    assert FALSE not in verdicts(but(vote, guarantee=(least, 1e-5)), copies)
    assert FALSE in verdicts(but(vote, guarantee=(least - 1e-3, 1e-5)), copies)


def card(told: Told, head: str) -> bytes:
    epsilon, delta = told.facts["spent"]
    return f"""# Model card: {told.kind}

A student that learned from {told.facts["labels"]:,} private labels of {told.facts["inputs"]:,} public inputs.
They were given by a vote of {told.facts["voters"]} teachers, each trained on a shard of its own.
Labels released by: {told.facts["mechanism"]}.

- **({epsilon:.6g}, {delta:g})-differential privacy** of the student, all together.
- Spent so far: ({epsilon:.6g}, {delta:g}), by renyi: Rényi curves added. It does not depend on the data.
- Paid by the ledger whose head was then `{head}`.
""".encode()


EDITS: dict[str, Callable[[bytes], bytes]] = {
    "a second guarantee": lambda old: old + b"- **(0.1, 1e-05)-differential privacy** of all.\n",
    "a guarantee in other words": lambda old: old.replace(b"-differential", b" differential"),
    "no number": lambda old: old.replace(b"(2.9", b"(2..9"),
    "no cost": lambda old: old.replace(b"Spent so far", b"Spent"),
    "labels in words": lambda old: old.replace(b"from 25 private", b"from many private"),
}


def test_a_card_is_read_as_it_was_written(told: Told, ledger: PrivacyLedger, copies: dict[str, LedgerCopy]) -> None:
    written = card(told, str(ledger.head()))
    found = read_card(Piece("notes", "card.md", (("", written),)), told.heads)
    assert found is not None
    assert found.facts == {**told.facts, "guarantee": (2.99997, 1e-5), "spent": (2.99997, 1e-5)}
    assert (found.kind, found.identity) == (STUDENT, ledger.identity)
    assert FALSE not in verdicts(found, copies, file=told)
    assert read_card(Piece("notes", "notes.txt", (("", b"a head"),)), told.heads) is None


@pytest.mark.parametrize("name", EDITS)
def test_a_card_in_other_words_cannot_be_known(name: str, told: Told, ledger: PrivacyLedger) -> None:
    written = EDITS[name](card(told, str(ledger.head())))
    found = read_card(Piece("notes", "card.md", (("", written),)), told.heads)
    assert found is not None
    assert verdicts(found, {}) == [UNKNOWN]
