"""The figures of saved students and of model cards: what labels cost, how many they are, and what gave them.

==========================  ==========================================================================================
judged by                   what
==========================  ==========================================================================================
the words of the mechanism  checks and answers of Confident-GNMax are added up anew (`darrm.verify.confident`)
the ledger of the head      what its entries up to the head cost at the same δ, or its whole budget, where a vote goes
                            on to answer; what they were for
a saved estimator           of a card: every figure, where both name the same head, or a vote the same ledger
==========================  ==========================================================================================

A figure is false where it is lower than what is computed, and a number or a name where it is another one.
"""

import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

from darrm.pate.confident import ConfidentGNMax
from darrm.verify.chain import ShownHead
from darrm.verify.confident import ExactConfident, of_words
from darrm.verify.evidence import CARD, Piece
from darrm.verify.filters import Cost, renyi_epsilon
from darrm.verify.ledger import LedgerCopy
from darrm.verify.totals import rounded_up
from darrm.verify.verdicts import ABOUT_ESTIMATOR, CLAIMED, CONSISTENT, FALSE, PROVED, UNKNOWN, Verdict, judged

_AGREES = 1e-5  # relative: a card shows six digits
_WIDEST = 1e4  # votes: noise whose costs take longer than seconds
_NUMBER = r"(\d+(?:\.\d+)?(?:e[+-]?\d+)?|inf)"
_ON_A_CARD: Mapping[str, re.Pattern[str]] = {
    "kind": re.compile(r"^# Model card: (\w+)", re.MULTILINE),
    "guarantee": re.compile(rf"\*\*\({_NUMBER}, {_NUMBER}\)-differential privacy\*\*"),
    "spent": re.compile(rf"Spent so far: \({_NUMBER}, {_NUMBER}\), by "),
    "mechanism": re.compile(r"^(?:Labels released|Released) by: (.*)\.$", re.MULTILINE),
    "voters": re.compile(r"vote of (\d[\d,]*) (?:teachers|models),"),
    "labels": re.compile(r"learned from (\d[\d,]*) private labels"),
    "inputs": re.compile(r"labels of (\d[\d,]*) public inputs"),
    "queries": re.compile(r"Planned for (\d[\d,]*) answers"),
}
STUDENT, _ONCE = "PATEClassifier", ".fit"  # the end of a note of what is paid for once


@dataclass(frozen=True)
class Told:
    """What a file says."""

    kind: str  # the estimator
    facts: Mapping[str, Any]  # pairs (ε, δ), whole numbers and words, by their names
    heads: Sequence[ShownHead] = ()
    identity: str = ""  # of the ledger that pays


def read_card(piece: Piece, heads: Sequence[ShownHead]) -> Told | None:
    """Read a model card with the heads that it holds; None where a text is none."""
    text, facts = piece.content.decode("utf-8", errors="replace").replace("\r", ""), dict[str, Any]()
    text = re.sub(r"<!--.*?(-->|\Z)", "", text, flags=re.DOTALL)  # what nobody sees is not said
    for name, pattern in _ON_A_CARD.items():
        stated = set(pattern.findall(text))
        if len(stated) == 1:
            (words,) = stated
            digits = "".join(words).replace(",", "")
            number = int(digits) if digits.isdecimal() else words
            facts[name] = tuple(map(float, words)) if isinstance(words, tuple) else number
    told = Told(str(facts.pop("kind", "")), facts, heads, heads[0].identity if len(heads) == 1 else "")
    return told if CARD in piece.content else None


def judge_told(told: Told, ledgers: Mapping[str, LedgerCopy], files: Mapping[str, Told]) -> Iterator[Verdict]:
    """Judge what a file says of its cost, by its own words, the ledgers, and saved estimators."""
    needed = {"guarantee", "spent", "mechanism", "voters"} | ({"labels", "inputs"} if told.kind == STUDENT else set())
    if missing := sorted(needed - told.facts.keys()):
        claim = "it says what was released, by what, from how many, at which cost"
        yield Verdict(ABOUT_ESTIMATOR, claim, UNKNOWN, f"not as it was written, or not once: {', '.join(missing)}")
        return
    guarantee, spent = told.facts["guarantee"], told.facts["spent"]
    yield _lowest("it guarantees no less than was spent", guarantee, spent, "spent is")
    if (run := _run_of(told)) is not None:
        yield from _by_words(told, run)
    paid = [(path, ledger) for path, ledger in ledgers.items() if told.identity and ledger.identity == told.identity]
    if paid:
        yield from _by_ledger(told, *paid[0])
    else:
        reason = "the ledger of its head is not among the files: it would decide"
        yield Verdict(ABOUT_ESTIMATOR, f"it cost what it says, {_pair(spent)}", UNKNOWN, reason)
    head = {one.to_text() for one in told.heads}
    for path, other in files.items():
        same = {one.to_text() for one in other.heads} == head if other.heads else other.identity == told.identity
        if same and told.identity and other.kind == told.kind:
            wrong = [name for name, value in other.facts.items() if not _covers(told.facts.get(name), value)]
            reason = f"other than there: {', '.join(wrong)}" if wrong else "guarantee, numbers and names are equal"
            yield judged(ABOUT_ESTIMATOR, f"its figures are those of {path}", reason, holds=not wrong)


def _run_of(told: Told) -> ExactConfident | None:
    words = str(told.facts["mechanism"])
    return of_words(words) if words.endswith(" answers") else None


def _pair(pair: tuple[float, float]) -> str:
    return "({:.6g}, {:g})".format(*pair)


def _lowest(claim: str, stated: tuple[float, float], due: tuple[float, float], reason: str) -> Verdict:
    holds = _covers(stated, due)
    return judged(ABOUT_ESTIMATOR, f"{claim}: {_pair(stated)}", f"{reason} {_pair(due)}", holds=holds)


def _covers(stated: object, due: object) -> bool:
    if isinstance(stated, tuple) and isinstance(due, tuple):
        return all(own >= least * (1.0 - _AGREES) for own, least in zip(stated, due, strict=True))
    return stated == due


def _by_words(told: Told, run: ExactConfident) -> Iterator[Verdict]:
    epsilon, delta = told.facts["spent"]
    claim = f"{run.checks:,} checks and {run.answers:,} answers with this noise cost {_pair((epsilon, delta))}"
    if max(run.sigma_check, run.sigma_answer) > _WIDEST:
        yield Verdict(ABOUT_ESTIMATOR, claim, UNKNOWN, "noise this wide takes too long here")
        return
    try:
        parts = ConfidentGNMax(0.0, run.sigma_check, run.sigma_answer)
        best = (parts.check.guarantee.repeated(run.checks) + parts.answer.guarantee.repeated(run.answers)).best(delta)
    except ValueError as error:
        yield Verdict(ABOUT_ESTIMATOR, claim, FALSE, str(error))
        return
    curve = [] if (cost := run.renyi(best.order)) is None else [(Fraction(best.order), Fraction(cost.high))]
    proved = renyi_epsilon([Cost(curve=curve)], Fraction(repr(delta)))
    own = math.inf if proved is None else rounded_up(proved)
    reason = f"the accountant has {best.epsilon:.9g}; arithmetic of its own proves {own:.9g}"
    how = PROVED if epsilon >= own * (1.0 - _AGREES) else CONSISTENT
    holds = epsilon >= min(best.epsilon, own) * (1.0 - _AGREES)
    yield judged(ABOUT_ESTIMATOR, claim, reason, holds=holds, how=how)
    if told.kind == STUDENT:
        claim = f"{told.facts['labels']:,} of {told.facts['inputs']:,} inputs have a label"
        reason = f"{run.checks:,} were checked, and at most {run.answers:,} answered"
        holds = told.facts["labels"] <= run.answers and told.facts["inputs"] == run.checks
        yield judged(ABOUT_ESTIMATOR, claim, reason, holds=holds)


def _by_ledger(told: Told, path: str, ledger: LedgerCopy) -> Iterator[Verdict]:
    number, counts = told.heads[0].number, Counter[int]()
    paid = [entry for entry in ledger.entries if entry.number <= number]
    for entry in paid:
        counts[entry.kind] += entry.count
    charges = tuple(ledger.costs[kind].kind.repeated(count) for kind, count in counts.items())
    spent, budget = replace(ledger, charges=charges).spent, ledger.budget
    due, reason = (spent.epsilon, spent.delta), f"up to entry {number}, {path} paid for"
    yield _lowest("its labels cost", told.facts["spent"], due, reason)
    if told.kind != STUDENT and not (paid and paid[-1].note.endswith(_ONCE)):  # it goes on to answer
        due, reason = (budget.epsilon, budget.delta), f"{path} pays up to"
    yield _lowest("all that it releases is private", told.facts["guarantee"], due, reason)
    mechanism, names = told.facts["mechanism"], {entry.what for entry in paid}
    how, known = (CONSISTENT, mechanism in names) if _run_of(told) else (CLAIMED, True)
    reason = f"{path} paid for {', '.join(sorted(names))}"
    yield judged(ABOUT_ESTIMATOR, f"what answered is {mechanism!r}", reason, holds=known, how=how)
