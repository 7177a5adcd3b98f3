"""One transaction on a ledger: it checks all that it reads, and its writes keep the chain and the totals.

**The time of a debit does not depend on the length of the log.** Every transaction compares the totals and the last
entry hash with the checksum that the debit before wrote, and computes the last `_RECENT` entry hashes again. So the
totals are those of this end of the log, whatever happened to older entries. The whole log is chained and added up where
all of it is read: by `Transaction.entries`, by ``darrm verify``, and when a short ledger is opened.

Checksums find damage, not forgery: see `darrm.ledger.chain` for what shows a forgery.
"""

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property

from darrm.account.accountant import COMPOSITIONS, DELTA_RESERVE, PrivacyAccountant
from darrm.account.filters import HALF
from darrm.errors import LedgerError
from darrm.ledger.chain import SIGNED, LedgerDigest, SigningKey
from darrm.ledger.rows import Budget, Cost, Entry, EntryRow, State, now
from darrm.ledger.store import Tables
from darrm.loss.privacy_cost import PrivacyCost
from darrm.privacy import PrivacyParams
from darrm.util import checks
from darrm.util.files import Document

RECEIPT = "darrm-receipt 1"
_RECENT = 16  # entries at the end of the log whose hashes every transaction computes


class Transaction:
    """An open transaction; every method raises `LedgerError` if the ledger is damaged.

    ``key`` signs new entries; None for no signatures.
    """

    def __init__(self, tables: Tables, key: SigningKey | None = None) -> None:
        self.tables, self.path, self._key = tables, tables.path, key

    @cached_property
    def budget(self) -> Budget:
        """The row of the budget."""
        budget = self.tables.budget()
        if budget.checksum != budget.entry_hash:
            raise self.tables.corrupted("the budget was changed")
        return budget

    @cached_property
    def params(self) -> PrivacyParams:
        """What all debited queries together satisfy."""
        try:
            checks.one_of(COMPOSITIONS, composition=self.budget.composition)
            return PrivacyParams(self.budget.epsilon, self.budget.delta)
        except ValueError as error:
            raise self.tables.corrupted(str(error)) from error

    @cached_property
    def state(self) -> State:
        """The number of the last entry, and whether the ledger was moved."""
        state = self.tables.state()
        if not isinstance(state.last_entry, int):
            raise self.tables.corrupted("the number of its last entry was changed")
        return state

    @cached_property
    def _costs(self) -> dict[int, Cost]:
        costs = {cost.number: cost for cost in self.tables.costs()}
        for cost in costs.values():
            if cost.checksum != Cost.first(*cost[:3]).checksum:
                raise self.tables.corrupted("the cost of a query was changed")
        return costs

    @cached_property
    def _recent(self) -> list[EntryRow]:
        """The last entries, and the one before them, which they follow."""
        first = max(1, self.state.last_entry - _RECENT)
        entries = list(self.tables.entries(first))
        if [entry.number for entry in entries] != list(range(first, self.state.last_entry + 1)):
            raise self.tables.corrupted("entries of the log are missing")
        return entries

    @property
    def newest(self) -> tuple[int, str]:
        """The number and the hash of the last entry, or of the budget: they determine all that is before."""
        return (self.state.last_entry, self._recent[-1].entry_hash if self._recent else self.budget.entry_hash)

    def check_holds(self, seen: tuple[int, str]) -> None:
        """Refuse a ledger without the entry that was its newest before."""
        if seen[0] == 0:
            return
        entry = next(self._from(seen[0]), None)
        if entry is None or (entry.number, entry.entry_hash) != seen:
            lost = f"entry {seen[0]}, which it had, is gone or was changed"
            raise self.tables.corrupted(f"{lost}: an older copy took its place")

    def costs(self) -> dict[int, PrivacyCost]:
        """Return what all queries of each cost cost together, by number."""
        try:
            return {
                number: PrivacyCost.from_text(cost.cost, what=cost.what).repeated(cost.total)
                for number, cost in self._costs.items()
            }
        except (ValueError, RecursionError) as error:
            raise self.tables.corrupted(str(error)) from error

    def account(self) -> PrivacyAccountant:
        """Return all debits so far, after a check that the totals belong to the end of the log."""
        before, recent = self.budget.entry_hash, self._recent
        if recent and recent[0].number > 1:
            before, recent = recent[0].entry_hash, recent[1:]
        if self.state != self.state.computed(self.newest[1], list(self._costs.values())):
            raise self.tables.corrupted("the log and its totals differ")
        for entry in recent:
            before = self._check_hash(entry, before)
        account = PrivacyAccountant(set_aside=DELTA_RESERVE.get(self.budget.composition, HALF))
        try:
            for number, charge in self.costs().items():
                # the table that answered determines what its cost is about
                account.add(replace(charge, table=self._costs[number].table_digest))
        except ValueError as error:
            raise self.tables.corrupted(str(error)) from error
        return account

    def _check_hash(self, entry: EntryRow, before: str) -> str:
        cost = self._costs.get(entry.cost)
        if cost is None or entry.entry_hash != entry.hash_after(before, cost) or not entry.has_types:
            raise self.tables.corrupted(f"entry {entry.number} of the log was changed")
        return entry.entry_hash

    def check(self, most: int | None = None) -> None:
        """Read the whole ledger; skip one of more than ``most`` entries."""
        if most is None or self.state.last_entry <= most:
            self.tables.check_pages()
            self.entries()

    def entries(self) -> tuple[Entry, ...]:
        """Return the whole log, oldest first; check its numbers, hashes and sums."""
        costs, before, entries = self.costs(), self.budget.entry_hash, []
        totals: Counter[int] = Counter()
        for number, row in enumerate(self.tables.entries(), 1):
            if row.number != number:
                raise self.tables.corrupted("entries of the log are missing")
            before = self._check_hash(row, before)
            totals[row.cost] += row.queries
            entries.append(self._entry(row, costs[row.cost]))
        if len(entries) != self.state.last_entry:
            raise self.tables.corrupted("entries of the log are missing")
        if dict(totals) != {number: cost.total for number, cost in self._costs.items()}:
            raise self.tables.corrupted("the log and its totals differ")
        return tuple(entries)

    def _entry(self, row: EntryRow, cost: PrivacyCost) -> Entry:
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
            questions=self._questions(row.questions),
            entry_hash=row.entry_hash,
            each=cost.labels,
        )

    def _questions(self, written: str) -> tuple[str, ...]:
        """Read a JSON list of ids; empty for none."""
        try:
            names = json.loads(written or "[]")
        except (ValueError, RecursionError) as error:
            raise self.tables.corrupted("the questions of an entry are no JSON") from error
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise self.tables.corrupted("the questions of an entry are no list of texts")
        return tuple(names)

    def write(
        self,
        charge: PrivacyCost,
        *,
        note: str = "",
        labels_digest: str = "",
        token: str = "",
        output: str = "",
        questions: tuple[str, ...] = (),
        labels: bytes | None = None,
    ) -> int:
        """Write a debit, with the labels that wait; return the number of the new entry."""
        if self._key is not None or (self._recent and self._recent[-1].signature):
            self.check_key()
        cost = self._cost_after(charge)
        last, before = self.newest
        clock = self._recent[-1].time if self._recent else self.budget.created
        named = json.dumps(questions, ensure_ascii=False) if questions else ""
        entry = EntryRow(
            number=last + 1,
            time=max(now(), clock),  # a clock may be set back
            cost=cost.number,
            queries=int(charge.count),
            note=note,
            table_digest=charge.table,
            labels_digest=labels_digest,
            token=token,
            output=output,
            questions=named,
            entry_hash="",
            signature="",
            waits=labels is not None,
        )
        entry = entry._replace(entry_hash=entry.hash_after(before, cost))
        self._costs[cost.number] = cost
        self._recent.append(entry)
        self.state = State(entry.number, "").computed(entry.entry_hash, list(self._costs.values()))
        if self._key is not None:
            entry = entry._replace(signature=self._key.sign(self.digest().to_text()))
            self._recent[-1] = entry
        self.tables.put_cost(cost)
        self.tables.put_entry(entry, labels)
        self.tables.put_state(self.state)
        return entry.number

    def _cost_after(self, charge: PrivacyCost) -> Cost:
        text = charge.to_text()
        known = (cost for cost in self._costs.values() if cost.cost == text)
        cost = next(known, None) or Cost.first(max(self._costs, default=0) + 1, text, charge.what)
        total, table = cost.total + int(charge.count), max(cost.table_digest, charge.table)
        return cost._replace(total=total, table_digest=table)

    def create(self, budget: Budget) -> None:
        """Make the tables of a new ledger."""
        self.tables.create(budget._replace(checksum=budget.entry_hash))
        self.tables.put_state(State(0, "").computed(budget.entry_hash, []))

    def set_moved(self, moved_to: str) -> None:
        """Close the ledger, because it was moved; an empty text opens a copy."""
        state = self.state._replace(moved_to=moved_to)
        self.state = state.computed(self.newest[1], list(self._costs.values()))
        self.tables.put_state(self.state)

    def check_key(self) -> None:
        """Refuse to go on with another key than that which signed the last entry, see `darrm.ledger.chain`."""
        signature = self._recent[-1].signature if self._recent else ""
        if self._key is None and signature:
            message = "its entries are signed: give the key, by --signing-key FILE or signing_key="
            raise LedgerError(self.path, f"{message}; nothing was debited")
        if self._key is not None and self._recent and signature != self._key.sign(self.digest().to_text()):
            message = (
                f"entry {self.state.last_entry} is not signed with this key: signing begins with the first entry of a "
                "new ledger, or this one was changed without the key, which darrm verify would show"
            )
            raise LedgerError(self.path, f"{message}; nothing was debited")

    def digest(self, number: int | None = None) -> LedgerDigest:
        """Return the digest at an entry, by default the last; `ValueError` if there is no such entry."""
        last = self.state.last_entry
        number = last if number is None else number
        checks.integer_at_least(0, most=last, entry=number)
        entries = list(self._from(number))
        later = sum(entry.queries for entry in entries if entry.number > number)
        queries = sum(cost.total for cost in self._costs.values()) - later
        entry_hash = entries[0].entry_hash if number else self.budget.entry_hash
        identity, population, composition = self.budget.identity, self.budget.population, self.budget.composition
        return LedgerDigest(identity, population, number, queries, self.params, composition, entry_hash)

    def _from(self, number: int) -> Iterator[EntryRow]:
        if self._recent and number >= self._recent[0].number:
            return (entry for entry in self._recent if entry.number >= number)
        return self.tables.entries(max(number, 1))

    def receipt(self, number: int) -> Document:
        """Return what an entry paid for and the digest at it, as plain data; errors as `digest`."""
        checks.integer_at_least(1, most=self.state.last_entry, entry=number)
        digest, row = self.digest(number), next(self._from(number), None)
        if row is None or row.number != number or row.cost not in self._costs:
            raise self.tables.corrupted(f"entry {number} of the log is missing")
        cost = self._costs[row.cost]
        entry = {
            "time": row.time,
            "what": cost.what,
            "count": row.queries,
            "table": row.table_digest,
            "labels": row.labels_digest,
            "cost": cost.cost,
        }
        signed = {"signature": row.signature} if str(row.signature).startswith(SIGNED) else {}
        return {"format": RECEIPT, "ledger_digest": digest.to_json(), "entry": entry, **signed}

    def find(self, after: int, token: str = "") -> EntryRow | None:
        """Return the first entry after an entry, of the call with a token if one is given."""
        return next((entry for entry in self.tables.entries(after + 1) if token in {"", entry.token}), None)
