"""The verdict on one claim: one of five."""

from dataclasses import dataclass
from typing import ClassVar

MEANINGS = {
    "proved independently": "by this verifier alone, in exact or ball arithmetic",
    "consistent": "agrees with everything else that was given",
    "assumed": "no file can show it",
    "unknown": "not decided by these files; the reason says why",
    "false": "contradicted by the files themselves",
}
PROVED, CONSISTENT, ASSUMED, UNKNOWN, FALSE = VERDICTS = tuple(MEANINGS)
# what claims are about
TOPICS = ("cost of a label", "composition", "optimality", "labels match their debit", "history", "file", "ledger",
          "receipt", "plan", "voters", "estimate", "model card", "attack")  # fmt: skip
COST, TOTAL, OPTIMALITY, LABELS, HISTORY, FILE, LEDGER, RECEIPT, PLAN, VOTERS, ESTIMATE, CARD, ATTACK = TOPICS


class TooLargeError(ValueError):
    """A file holds more than an audit reads, so nothing is known about it."""


class FaultError(ValueError):
    """A file contradicts itself, so the claim that it is whole is false."""

    about: ClassVar[str]
    claim: ClassVar[str]


class LedgerFaultError(FaultError):
    """A ledger is damaged, or has an unknown version."""

    about, claim = LEDGER, "it is a whole ledger"


class ReceiptFaultError(FaultError):
    """A receipt contradicts itself, or is none."""

    about, claim = RECEIPT, "it is a receipt"


@dataclass(frozen=True)
class Verdict:
    """A claim, its topic, and the verdict with its reason."""

    about: str  # one of `TOPICS`
    claim: str
    verdict: str  # one of `VERDICTS`
    reason: str
    file: str = ""  # the file with the claim

    def __str__(self) -> str:
        return f"{self.verdict.upper() if self.verdict == FALSE else self.verdict:<22}{self.claim} ({self.reason})"


def judged(about: str, claim: str, reason: str, *, holds: bool, how: str = CONSISTENT) -> Verdict:
    """Return the verdict false, or ``how`` the claim holds."""
    return Verdict(about, claim, how if holds else FALSE, reason)
