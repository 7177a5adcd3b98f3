"""One transaction on a ledger: it checks every row that it reads, and its writes keep the chain and the totals.

**The time of a debit does not depend on the length of the log.** Every transaction compares the totals and the last
entry hash with the checksum of the previous debit, and recomputes the last `_RECENT` entry hashes. So the totals belong
to this end of the log. `Transaction.entries`, ``darrm verify``, and the opening of a short ledger check all entries.
Checksums find damage; `darrm.ledger.chain` shows forgery.
"""

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property

from darrm.account.accountant import COMPOSITIONS, DELTA_RESERVE, PrivacyAccountant
from darrm.account.filters import HALF
from darrm.errors import LedgerError
from darrm.ledger.chain import FORMAT, SIGNED, Budget, Cost, Entry, EntryRow, LedgerDigest, SigningKey, State, now
from darrm.ledger.postgres import Database
from darrm.ledger.sqlite import corrupted
from darrm.loss.privacy_cost import PrivacyCost
from darrm.privacy import PrivacyParams
from darrm.util import checks
from darrm.util.extras import Untyped
from darrm.util.files import Document

_RECENT = 16  # entries at the end of the log whose hashes every transaction computes
_PAGE = 10_000  # entries that are read at once
_MISSING_ENTRIES = "entries of the log are missing"
_WRONG_TOTALS = "the log and its totals differ"


class Transaction:
    """An open transaction; every method raises `LedgerError` if the ledger is damaged."""

    def __init__(self, database: Database, key: SigningKey | None = None) -> None:
        self.database, self.path, self._key = database, database.path, key

    def corrupted(self, reason: str) -> LedgerError:
        return corrupted(self.path, reason)

    @cached_property
    def budget(self) -> Budget:
        self.database.check_format()
        rows = self.database.execute(
            "SELECT format, identity, epsilon, delta, composition, population, created, checksum FROM budget"
        )
        if len(rows) != 1 or rows[0][0] != FORMAT or rows[0][-1] != Budget(*rows[0]).entry_hash:
            raise self.corrupted("the budget was changed")
        return Budget(*rows[0])

    @cached_property
    def params(self) -> PrivacyParams:
        try:
            checks.one_of(COMPOSITIONS, composition=self.budget.composition)
            return PrivacyParams(self.budget.epsilon, self.budget.delta)
        except ValueError as error:
            raise self.corrupted(str(error)) from error

    @cached_property
    def state(self) -> State:
        rows = self.database.execute("SELECT last_entry, moved_to, checksum FROM state")
        if len(rows) != 1:
            raise self.corrupted("its state is gone")
        if not isinstance(rows[0][0], int):
            raise self.corrupted("the number of its last entry was changed")
        return State(*rows[0])

    @cached_property
    def cost_rows(self) -> dict[int, Cost]:
        rows = self.database.execute("SELECT id, cost, what, total, table_digest, checksum FROM costs ORDER BY id")
        costs = {cost.number: cost for cost in map(Cost._make, rows)}
        if any(cost.checksum != Cost.first(*cost[:3]).checksum for cost in costs.values()):
            raise self.corrupted("the cost of a query was changed")
        return costs

    def read_entries(self, first_number: int = 1) -> Iterator[EntryRow]:
        statement = (
            "SELECT id, time, cost, count, note, table_digest, labels_digest, token, output, questions, entry_hash, "
            "signature, labels IS NOT NULL FROM entries WHERE id >= $1 ORDER BY id LIMIT $2"
        )
        rows: list[tuple[Untyped, ...]] = [(first_number - 1,)] * _PAGE
        while len(rows) == _PAGE:  # pages, so that a long log needs little memory
            rows = self.database.execute(statement, rows[-1][0] + 1, _PAGE)
            yield from map(EntryRow._make, rows)

    @cached_property
    def _tail(self) -> list[EntryRow]:
        """The last entries, and the one that they follow."""
        first_number = max(1, self.state.last_entry - _RECENT)
        entries = list(self.read_entries(first_number))
        if [entry.number for entry in entries] != list(range(first_number, self.state.last_entry + 1)):
            raise self.corrupted(_MISSING_ENTRIES)
        return entries

    def _entries_from(self, number: int) -> Iterator[EntryRow]:
        if self._tail and number >= self._tail[0].number:
            return (entry for entry in self._tail if entry.number >= number)
        return self.read_entries(max(number, 1))

    @property
    def newest(self) -> tuple[int, str]:
        """The number and hash of the last entry, or of the budget."""
        return (self.state.last_entry, self._tail[-1].entry_hash if self._tail else self.budget.entry_hash)

    def check_contains(self, number: int, entry_hash: str) -> None:
        entry = next(self._entries_from(number), None) if number else None
        if number and (entry is None or (entry.number, entry.entry_hash) != (number, entry_hash)):
            description = f"entry {number}, which it had, is gone or was changed"
            raise self.corrupted(f"{description}: an older copy took its place")

    def costs(self) -> dict[int, PrivacyCost]:
        try:
            return {
                number: PrivacyCost.from_text(cost.cost, what=cost.what).repeat(cost.total)
                for number, cost in self.cost_rows.items()
            }
        except (ValueError, RecursionError) as error:
            raise self.corrupted(str(error)) from error

    def account(self) -> PrivacyAccountant:
        """Check that the totals belong to the end of the log, and return all debits."""
        previous_hash, recent = self.budget.entry_hash, self._tail
        if recent and recent[0].number > 1:
            previous_hash, recent = recent[0].entry_hash, recent[1:]
        if self.state != self._add_checksum(self.state):
            raise self.corrupted(_WRONG_TOTALS)
        for entry in recent:
            previous_hash = self._check_hash(entry, previous_hash)
        account = PrivacyAccountant(set_aside=DELTA_RESERVE.get(self.budget.composition, HALF))
        try:
            for number, cost in self.costs().items():
                # the cost is about the table that answered
                account.add(replace(cost, table=self.cost_rows[number].table_digest))
        except ValueError as error:
            raise self.corrupted(str(error)) from error
        return account

    def _add_checksum(self, state: State) -> State:
        return state.add_checksum(self.newest[1], list(self.cost_rows.values()))

    def _check_hash(self, entry: EntryRow, previous_hash: str) -> str:
        cost = self.cost_rows.get(entry.cost)
        if cost is None or entry.entry_hash != entry.compute_hash(previous_hash, cost) or not entry.has_valid_types:
            raise self.corrupted(f"entry {entry.number} of the log was changed")
        return entry.entry_hash

    def check(self, max_entries: int | None = None) -> None:
        """Read the whole ledger, unless it has more than ``max_entries`` entries."""
        if max_entries is None or self.state.last_entry <= max_entries:
            self.database.check_pages()
            self.entries()

    def entries(self) -> tuple[Entry, ...]:
        """Read the whole log, with its numbers, hashes and sums."""
        costs, previous_hash, entries = self.costs(), self.budget.entry_hash, []
        totals: Counter[int] = Counter()
        for number, row in enumerate(self.read_entries(), 1):
            if row.number != number:
                raise self.corrupted(_MISSING_ENTRIES)
            previous_hash = self._check_hash(row, previous_hash)
            totals[row.cost] += row.queries
            entries.append(self._make_entry(row, costs[row.cost]))
        if len(entries) != self.state.last_entry:
            raise self.corrupted(_MISSING_ENTRIES)
        if dict(totals) != {number: cost.total for number, cost in self.cost_rows.items()}:
            raise self.corrupted(_WRONG_TOTALS)
        return tuple(entries)

    def _make_entry(self, row: EntryRow, cost: PrivacyCost) -> Entry:
        try:
            questions = json.loads(row.questions or "[]")
        except (ValueError, RecursionError) as error:
            raise self.corrupted("the questions of an entry are no JSON") from error
        if not isinstance(questions, list) or not all(isinstance(question, str) for question in questions):
            raise self.corrupted("the questions of an entry are no list of texts")
        return Entry(
            row.time,
            cost.what,
            row.queries,
            row.note,
            table=row.table_digest,
            labels=row.labels_digest,
            delivered=not row.waits,
            output=row.output,
            number=row.number,
            kind=row.cost,
            questions=tuple(questions),
            entry_hash=row.entry_hash,
            each=cost.labels,
        )

    def create(self, budget: Budget) -> None:
        for statement in self.database.schema:
            self.database.execute(statement)
        row = budget._replace(checksum=budget.entry_hash)
        self.database.execute("INSERT INTO budget VALUES (1, $1, $2, $3, $4, $5, $6, $7, $8)", *row)
        self.put_state(State(0, "").add_checksum(budget.entry_hash, []))

    def take_over(self, source: "Transaction", new_place: str) -> None:
        """Copy the rows of an old ledger and close it; ``new_place`` is where it moved already, or empty."""
        if source.state.moved_to != new_place:
            raise LedgerError(source.path, f"it is closed, its budget moved to {source.state.moved_to} already")
        source.account()
        self.create(source.budget)
        for cost in source.cost_rows.values():
            self.put_cost(cost)
        for entry in source.read_entries():
            self._put_entry(entry, source.labels(entry.number) if entry.waits else None)
        self.put_state(source.state)
        if (self.entries(), self.costs()) != (source.entries(), source.costs()):
            raise source.corrupted("its copy differs from it")
        self.set_moved("")
        if not new_place:
            source.set_moved(self.path)

    def set_moved(self, moved_to: str) -> None:
        """Close the ledger; an empty text opens a copy."""
        self.put_state(self._add_checksum(self.state._replace(moved_to=moved_to)))

    def write(self, entry: EntryRow, cost: PrivacyCost, labels: bytes | None) -> int:
        """Write a debit; set and return its number, and set time, cost, hash and signature."""
        if self._key is not None or (self._tail and self._tail[-1].signature):
            self.check_key()
        cost_text = cost.to_text()
        equal_rows = (row for row in self.cost_rows.values() if row.cost == cost_text)
        row = next(equal_rows, None) or Cost.first(max(self.cost_rows, default=0) + 1, cost_text, cost.what)
        row = row._replace(total=row.total + int(cost.count), table_digest=max(row.table_digest, cost.table))
        last_number, previous_hash = self.newest
        previous_time = self._tail[-1].time if self._tail else self.budget.created
        # a clock may be set back
        entry = entry._replace(number=last_number + 1, time=max(now(), previous_time), cost=row.number)
        entry = entry._replace(entry_hash=entry.compute_hash(previous_hash, row))
        self.put_cost(row)
        self._tail.append(entry)
        self.state = self._add_checksum(State(entry.number, ""))
        if self._key is not None:
            self._tail[-1] = entry = entry._replace(signature=self._key.sign(self.digest().to_text()))
        self._put_entry(entry, labels)
        self.put_state(self.state)
        return entry.number

    def put_cost(self, cost: Cost) -> None:
        self.cost_rows[cost.number] = cost
        self.database.execute(
            "INSERT INTO costs (id, cost, what, total, table_digest, checksum) VALUES ($1, $2, $3, $4, $5, $6) "
            "ON CONFLICT (id) DO UPDATE SET total = excluded.total, table_digest = excluded.table_digest",
            *cost,
        )

    def _put_entry(self, entry: EntryRow, labels: bytes | None) -> None:
        self.database.execute(
            "INSERT INTO entries (id, time, cost, count, note, table_digest, labels_digest, token, output, questions, "
            "entry_hash, signature, files, labels) "  # the format has a column of files, which stays empty
            "VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, '', $13)",
            *entry[:-1],
            labels,
        )

    def put_state(self, state: State) -> None:
        self.state = state
        self.database.execute(
            "INSERT INTO state VALUES (1, $1, $2, $3) ON CONFLICT (id) DO UPDATE "
            "SET last_entry = excluded.last_entry, moved_to = excluded.moved_to, checksum = excluded.checksum",
            *state,
        )

    def labels(self, number: int) -> bytes | None:
        rows = self.database.execute("SELECT labels FROM entries WHERE id = $1", number)
        labels = rows[0][0] if rows else None
        if not isinstance(labels, bytes | None):
            raise self.corrupted("what waits in it was changed")
        return labels

    def forget_labels(self, number: int) -> None:
        self.database.execute("UPDATE entries SET labels = NULL WHERE id = $1", number)

    def newest_for(self, output: str, *, after: int = 0, waits: bool = False) -> int:
        """Return the number of the newest entry for an output, or 0; with ``waits`` the newest undelivered one."""
        statement = "SELECT coalesce(max(id), 0) FROM entries WHERE id > $1 AND output = $2"
        condition = " AND labels IS NOT NULL" if waits else ""
        return int(self.database.execute(statement + condition, after, output)[0][0])

    def check_key(self) -> None:
        signature = self._tail[-1].signature if self._tail else ""
        if self._key is None and signature:
            message = "its entries are signed: give the key, by --signing-key FILE or signing_key="
            raise LedgerError(self.path, f"{message}; nothing was debited")
        if self._key is not None and self._tail and signature != self._key.sign(self.digest().to_text()):
            message = (
                f"entry {self.state.last_entry} is not signed with this key: signing begins with the first entry of a "
                "new ledger, or this one was changed without the key, which darrm verify would show"
            )
            raise LedgerError(self.path, f"{message}; nothing was debited")

    def digest(self, number: int | None = None) -> LedgerDigest:
        last_number = self.state.last_entry
        number = last_number if number is None else number
        checks.integer_at_least(0, most=last_number, entry=number)
        entries = list(self._entries_from(number))
        later_queries = sum(entry.queries for entry in entries if entry.number > number)
        queries = sum(cost.total for cost in self.cost_rows.values()) - later_queries
        entry_hash = entries[0].entry_hash if number else self.budget.entry_hash
        budget = self.budget
        return LedgerDigest(
            budget.identity, budget.population, number, queries, self.params, budget.composition, entry_hash
        )

    def receipt(self, number: int) -> Document:
        checks.integer_at_least(1, most=self.state.last_entry, entry=number)
        digest, row = self.digest(number), next(self._entries_from(number), None)
        if row is None or row.number != number or row.cost not in self.cost_rows:
            raise self.corrupted(f"entry {number} of the log is missing")
        cost = self.cost_rows[row.cost]
        entry = {
            "time": row.time,
            "what": cost.what,
            "count": row.queries,
            "table": row.table_digest,
            "labels": row.labels_digest,
            "cost": cost.cost,
        }
        signature = {"signature": row.signature} if str(row.signature).startswith(SIGNED) else {}
        return {"format": "darrm-receipt 1", "ledger_digest": digest.to_json(), "entry": entry, **signature}
