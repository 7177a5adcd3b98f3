"""The verdict on one claim: one of five."""

from dataclasses import dataclass

MEANINGS = {
    "proved independently": "by this verifier alone, in exact or ball arithmetic",
    "consistent": "agrees with everything else that was given",
    "assumed": "no file can show it",
    "unknown": "not decided by these files; the reason says why",
    "false": "contradicted by the files themselves",
}
PROVED, CONSISTENT, ASSUMED, UNKNOWN, FALSE = VERDICTS = tuple(MEANINGS)
# what claims are about
COST, TOTAL, OPTIMALITY, LABELS, HISTORY = (
    *("cost of a label", "composition", "optimality"),
    *("labels match their debit", "history"),
)
FILE, LEDGER, RECEIPT, PLAN, VOTERS, ESTIMATE, CARD, ATTACK = (
    *("file", "ledger", "receipt", "plan", "voters"),
    *("estimate", "model card", "attack"),
)
TOPICS = (COST, TOTAL, OPTIMALITY, LABELS, HISTORY, FILE, LEDGER, RECEIPT, PLAN, VOTERS, ESTIMATE, CARD, ATTACK)


class TooLargeError(ValueError):
    """A file holds more than an audit reads, so nothing is known about it."""


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
