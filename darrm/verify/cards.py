"""Judge the JSON block of a model card against the ledger that paid. The prose of the card is not read."""

import re
from collections.abc import Iterator, Sequence
from fractions import Fraction

from darrm.verify.formats import Json, exact_number, parse_json
from darrm.verify.history import read_digest
from darrm.verify.ledger import LedgerAudit
from darrm.verify.numbers import pair_at_most
from darrm.verify.totals import smallest_total
from darrm.verify.verdicts import ASSUMED, CARD, CONSISTENT, FALSE, UNKNOWN, Verdict, judged

CARD_FORMAT = "darrm model card"
_BLOCK = re.compile(rb"```json\s*(\{.*?\})\s*```", re.DOTALL)
_APART = 0.95  # relative: a stated cost below this share of the sum is false; above it, bounds may differ


def read_card(content: bytes) -> Json | None:
    """Read the JSON block of a model card; None if it has no such block."""
    for block in _BLOCK.findall(content):
        try:
            data = parse_json(block)
        except ValueError:
            continue
        if data.get("format") == CARD_FORMAT:
            return data
    return None


def judge_card(card: Json | None, ledgers: Sequence[LedgerAudit]) -> Iterator[Verdict]:
    """Judge the stated guarantee and cost of a card."""
    if card is None:
        return
    try:
        guarantee, digest = _pair(card["guarantee"]), card["ledger_digest"]
        spent = None if card.get("spent") is None else _pair(card["spent"])
        own = None if not digest else read_digest(digest)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        yield Verdict(CARD, "it states a guarantee", FALSE, f"its block is malformed ({type(error).__name__}: {error})")
        return
    claim = f"what it describes is {pair_at_most(*guarantee)}-DP"
    if own is None:
        yield Verdict(CARD, claim, ASSUMED, "the models are private by themselves: no file can show this")
        return
    budget = exact_number(own.epsilon), exact_number(own.delta)
    holds = guarantee[0] >= budget[0] and guarantee[1] >= budget[1]
    yield judged(CARD, claim, f"the budget of its ledger is {pair_at_most(*budget)}", holds=holds)
    if spent is None:
        return
    claim = f"it spent {pair_at_most(*spent)}"
    audit = next((one for one in ledgers if one.ledger.identity == own.identity), None)
    if audit is None or own.number > len(audit.ledger.entries):
        yield Verdict(CARD, claim, UNKNOWN, "its ledger is not among the files: it would decide")
        return
    counts = dict.fromkeys(audit.ledger.charges, 0)
    for entry in audit.ledger.entries[: own.number]:
        counts[entry.cost] += entry.count
    priced = [(charge.repeated(counts[n]), None) for n, charge in audit.ledger.charges.items() if counts[n]]
    found = smallest_total(priced, spent[1], enough=float(spent[0]))
    if found is None:
        yield Verdict(CARD, claim, UNKNOWN, "no bound of the independent checker covers what its ledger paid")
        return
    reason = f"what its ledger paid is {pair_at_most(found.epsilon, spent[1])} ({found.how})"
    if found.epsilon <= float(spent[0]) * 1.0001:
        yield Verdict(CARD, claim, CONSISTENT, reason)
    else:
        how = FALSE if float(spent[0]) < found.epsilon * _APART else UNKNOWN
        yield Verdict(CARD, claim, how, f"{reason}; a tighter bound would decide" if how == UNKNOWN else reason)


def _pair(data: Json) -> tuple[Fraction, Fraction]:
    return exact_number(data["epsilon"]), exact_number(data["delta"])
