"""The head of a ledger: one line that shows later whether anything before it was deleted, changed, reordered or merged.

Every entry carries a *link*: the SHA-256 of the link before it and of all that the entry says. The first entry follows
the link of the ledger itself: its identity, budget, kinds and population. The link of entry n, with a few words for
whoever reads it, is the *head* at n. It goes into receipts beside labels, into reports and model cards, and to whoever
copies it.

*Theorem.* Let a ledger give the head at n, and let links be computed anew from a file that is shown later. If its n-th
link is that of the head, then its identity, budget, kinds and population, and its entries 1 … n, are those of the
ledger at that time, field by field and in their order, unless somebody has a collision of SHA-256. *Proof.* A link is a
digest of texts that are joined by a character which no text of a ledger holds, as many texts in every link. So the
joined text says what its parts are, and equal links have equal parts, one of which is the link before: by induction
down to that of the ledger itself. ∎ The test: tests/account/test_chain.py, every field of every entry.

*What a head proves nothing about:* entries after it, which may be deleted as long as no later head is shown; whether
labels are delivered, which changes without an entry; another ledger about the same people, which a `population` can
only name; and whether the entries were true when they were written. Where an older copy was put back and debited again,
there are two courses of entries, and the heads of either refute the other.

What was spent is no part of a head: it follows from the entries, and by bounds that get better.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from urllib.parse import quote, unquote

from darrm.errors import checks
from darrm.privacy import PrivacyParams
from darrm.system.files import Document

_FORMAT = "darrm-head:1"
_CHECK_DIGITS = 8  # of a head's text: a slip of the pen is no forgery


@dataclass(frozen=True)
class Head:
    """What a ledger was when it had so many entries; see the module.

    Attributes
    ----------
    identity
        What no other ledger has.
    population
        What whoever made the ledger calls the people behind the votes; empty for no name.
    number
        Of the last entry, 0 for none.
    queries
        That all entries paid for.
    budget, kinds
        Those of the ledger.
    link
        Of the last entry.

    Examples
    --------
    >>> head = Head("ab12", "ward 7", 3, 120, PrivacyParams("2", "1e-5"), "one", "c0ffee")
    >>> print(head)
    darrm-head:1:ab12:3:120:2:0.00001:one:ward%207:c0ffee:c2a282e8
    >>> Head.from_text(head.to_text()) == head
    True
    """

    identity: str
    population: str
    number: int
    queries: int
    budget: PrivacyParams
    kinds: str
    link: str

    def to_text(self) -> str:
        """Return one line to copy, which ends in a check of what was copied."""
        budget = (self.budget.epsilon_text, self.budget.delta_text)
        words = (self.identity, self.number, self.queries, *budget, self.kinds, quote(self.population, safe=""))
        text = ":".join(map(str, (_FORMAT, *words, self.link)))
        return f"{text}:{_check_of(text)}"

    __str__ = to_text

    @classmethod
    def from_text(cls, text: str) -> Head:
        """Read what `to_text` wrote; `ValueError` if it is no head, or was not copied as it was."""
        head, _, check = text.strip().rpartition(":")
        words = head.removeprefix(f"{_FORMAT}:").split(":")
        if not head.startswith(f"{_FORMAT}:") or len(words) != 8 or check != _check_of(head):
            checks.fail("a head", text, f"a line {_FORMAT}:…, copied as it was", "its last word checks the others")
        identity, number, queries, epsilon, delta, kinds, population, link = words
        budget = PrivacyParams(epsilon, delta)
        return cls(identity, unquote(population), int(number), int(queries), budget, kinds, link)

    def to_json(self) -> Document:
        """Write the head as plain data, with its text."""
        return {**vars(self), "budget": self.budget.to_json(), "text": self.to_text()}


def _check_of(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:_CHECK_DIGITS]
