"""The rows of a ledger: its budget, the costs of its queries, its entries, and its state.

One format, version 1. All databases have the same four tables:

===========  ===========================================================================================================
``budget``   one row: the cost that all queries together may have, and an identity
``costs``    one row for each cost of a query, with the number of queries so far
``entries``  one row for each debit, numbered 1, 2, …; labels that were paid for wait here until they are delivered
``state``    one row: the number of the last entry, the new place of a moved ledger, a checksum of all totals
===========  ===========================================================================================================

Of the votes nothing is written, not even a digest, which could be guessed back.
"""

from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import NamedTuple

from darrm.ledger.chain import checksum

FORMAT = "darrm-ledger 1"
STREAM = "-"  # begins the output of a stream: that of a file is an absolute path


class Budget(NamedTuple):
    """The row of the budget; every later transaction must find it unchanged."""

    format: str
    identity: str  # random, unique to the ledger
    epsilon: str
    delta: str
    composition: str
    population: str  # the public name of the people behind the votes, or empty
    created: str
    checksum: str = ""  # entry hash 0

    @property
    def entry_hash(self) -> str:
        """The hash that the first entry follows."""
        return checksum(*self[:-1])


class Cost(NamedTuple):
    """The cost of one query, and how many queries cost it."""

    number: int
    cost: str  # `PrivacyCost.to_text`
    what: str
    total: int
    table_digest: str  # the largest digest of a table that answered at this cost, or empty
    checksum: str

    @classmethod
    def first(cls, number: int, cost: str, what: str) -> "Cost":
        """Return the row of a cost that nothing was debited at."""
        return cls(number, cost, what, 0, "", checksum(cost, what))


class EntryRow(NamedTuple):
    """One debit, without the labels that wait."""

    number: int
    time: str
    cost: int  # the number of the cost
    queries: int  # the column ``count``
    note: str
    table_digest: str
    labels_digest: str
    token: str  # of the call that made it
    output: str
    questions: str  # a JSON list, or empty
    entry_hash: str
    signature: str
    waits: bool  # whether labels wait for delivery

    @property
    def has_types(self) -> bool:
        """Whether the count is a number, and texts are texts: SQLite stores anything anywhere."""
        texts = (self.time, *self[4:12])
        return isinstance(self.queries, int) and all(isinstance(text, str) for text in texts)

    def hash_after(self, before: str, cost: Cost) -> str:
        """Compute the entry hash from that of the entry before; ``waits`` changes later."""
        return checksum(before, self.number, self.time, cost.checksum, *self[3:10])


class State(NamedTuple):
    """What changes with every entry."""

    last_entry: int
    moved_to: str  # the new place of a moved ledger; empty while it is open
    checksum: str = ""

    def computed(self, last_hash: str, costs: list[Cost]) -> "State":
        """Return this state with the checksum of the totals and of the last entry."""
        totals = (value for cost in costs for value in (cost.number, cost.total, cost.table_digest))
        return self._replace(checksum=checksum(self.last_entry, last_hash, self.moved_to, *totals))


@dataclass(frozen=True)
class Entry:
    """One line of the log: when, what, how many queries, and the caller's note."""

    time: str
    what: str
    count: int
    note: str
    table: str = ""  # the digest of the proven table that answered
    labels: str = ""  # the digest of the labels that were paid for, `darrm.votes.labels_file.labels_digest`
    delivered: bool = True  # False while the labels wait in the ledger
    output: str = ""  # the file, the folder, or the stream that they are for
    number: int = 0  # counts from 1
    kind: int = 0  # the number of the cost
    questions: tuple[str, ...] = ()  # the public ids of the questions of a stream, in order; empty for none
    entry_hash: str = field(default="", compare=False)  # see `darrm.ledger.chain`
    each: int = 1  # labels that one query's charge pays for, at most: more for a run that is charged as a whole

    @property
    def answers(self) -> int:
        """How many labels were paid for, at most."""
        return self.count * self.each

    def pays_for(self, labels: int) -> bool:
        """Whether it is a debit of this number of labels."""
        return labels == self.count if self.each == 1 else labels <= self.answers

    @property
    def is_of_a_stream(self) -> bool:
        """Whether its labels answered questions that arrived one by one, and not a file."""
        return self.output.startswith(STREAM)


def now() -> str:
    """Return the time in UTC, to the millisecond."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")
