"""The rows of a ledger: its budget, its kinds with their totals, its log, each with a seal that shows damage.

``kinds`` holds a total for every kind of query, ``charges`` one row for every debit: the totals repeat the sums over
the log, so that a flipped bit in either shows. A row's seal is a digest of its fields: it finds damage, not forgery.

**What a debit costs does not depend on the log.** Every transaction compares the totals with a seal of them and of the
last entry's link, which the debit before wrote, and computes the last `_RECENT` links anew. So the totals are those
that belong to this end of the log, whatever happened to older entries. These are linked and added up wherever the whole
log is read: by `Rows.check`, by ``darrm verify``, by whoever lists entries.

Version 2 added an identity of the file, and to each debit the digests of its table and its labels, a token of the call
that made it, the labels themselves until they are delivered, and where they go. Of the votes nothing is kept, not even
a digest, which could be guessed back. Version 3 added the public ids under which questions were asked. Version 4 added
the links of `darrm.account.head` in place of the seals of entries, a population, and digests of the files that were
drawn after a debit, which no link holds; where seals of entries stood, signatures may stand since:
`darrm.account.signing`. Version 5 added the seal of the totals. Files of older versions are read as they are, and
become ones of the newest when they are written to.
"""

import hashlib
import json
import secrets
import sqlite3
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cached_property
from typing import Any

from darrm.account.accountant import KINDS, SET_ASIDE, PrivacyAccountant
from darrm.account.filters import HALF
from darrm.account.head import Head
from darrm.account.ledger_store import HOW_TO_CREATE, RESTORE
from darrm.account.signing import SIGNED, SigningKey
from darrm.errors import LedgerError, checks
from darrm.losses.charges import Charge
from darrm.privacy import PrivacyParams
from darrm.system.files import Document, Json

_APPLICATION_ID = 0x64617272  # "darr"
# of a ledger now; the first with sealed entries, with questions, and with links
_VERSION, _SEALED, _NAMED, _LINKED = 5, 2, 3, 4
_RECENT = 16  # entries at the end of the log whose links every transaction computes
_SCHEMA = (
    """CREATE TABLE budget (id INTEGER PRIMARY KEY CHECK (id = 1), epsilon TEXT NOT NULL, delta TEXT NOT NULL,
       kinds TEXT NOT NULL, created TEXT NOT NULL, seal TEXT NOT NULL)""",
    """CREATE TABLE kinds (id INTEGER PRIMARY KEY, cost TEXT NOT NULL UNIQUE, what TEXT NOT NULL,
       total INTEGER NOT NULL CHECK (total >= 0), seal TEXT NOT NULL)""",
    """CREATE TABLE charges (id INTEGER PRIMARY KEY AUTOINCREMENT, time TEXT NOT NULL,
       kind INTEGER NOT NULL REFERENCES kinds (id), count INTEGER NOT NULL CHECK (count > 0), note TEXT NOT NULL)""",
    f"PRAGMA application_id = {_APPLICATION_ID}",
    "PRAGMA user_version = 1",
)
_UPGRADE = (
    "ALTER TABLE budget ADD COLUMN identity TEXT NOT NULL DEFAULT ''",
    "ALTER TABLE charges ADD COLUMN proof TEXT NOT NULL DEFAULT ''",
    "ALTER TABLE charges ADD COLUMN digest TEXT NOT NULL DEFAULT ''",
    "ALTER TABLE charges ADD COLUMN token TEXT NOT NULL DEFAULT ''",
    "ALTER TABLE charges ADD COLUMN output TEXT NOT NULL DEFAULT ''",
    "ALTER TABLE charges ADD COLUMN seal TEXT NOT NULL DEFAULT ''",
    "ALTER TABLE charges ADD COLUMN labels BLOB",
    "CREATE INDEX counts ON charges (kind, count)",  # makes the comparison with the totals cheap
    "CREATE INDEX undelivered ON charges (output) WHERE labels IS NOT NULL",
    f"PRAGMA user_version = {_SEALED}",
)
_NAMING = ("ALTER TABLE charges ADD COLUMN questions TEXT NOT NULL DEFAULT ''", f"PRAGMA user_version = {_NAMED}")
_LINKING = (
    "ALTER TABLE budget ADD COLUMN population TEXT NOT NULL DEFAULT ''",
    "ALTER TABLE charges ADD COLUMN link TEXT NOT NULL DEFAULT ''",
    "ALTER TABLE charges ADD COLUMN files TEXT NOT NULL DEFAULT ''",
    f"PRAGMA user_version = {_LINKED}",
)
_TOTALLING = (
    "ALTER TABLE kinds ADD COLUMN answered TEXT NOT NULL DEFAULT ''",  # the largest digest of a table that answered
    "UPDATE kinds SET answered = ifnull((SELECT max(proof) FROM charges WHERE kind = kinds.id), '')",
    "DROP INDEX counts",  # the log is added up where all of it is read
    "CREATE TABLE totals (id INTEGER PRIMARY KEY CHECK (id = 1), seal TEXT NOT NULL)",
    "INSERT INTO totals VALUES (1, '')",
    f"PRAGMA user_version = {_VERSION}",
)
_FIELDS_OF_BUDGET = {1: 6, _SEALED: 7, _NAMED: 7, _LINKED: 8, _VERSION: 8}
_WRITTEN = (
    "SELECT charges.id, time, what, count, note, proof, digest, token, output, charges.seal, labels IS NOT NULL, "
    "kinds.seal, kind"
)
_LOG = {
    1: "SELECT charges.id, time, what, count, note, '', '', '', '', '', 0, kinds.seal, kind, '', '', ''",
    _SEALED: f"{_WRITTEN}, '', '', ''",
    _NAMED: f"{_WRITTEN}, questions, '', ''",
    _LINKED: f"{_WRITTEN}, questions, link, files",
    _VERSION: f"{_WRITTEN}, questions, link, files",
}
_SEEN = (  # by what an object knows an entry again; a link says all that is before it, too
    "SELECT id, time, kind, count, note FROM charges",
    "SELECT id, time, kind, count, note, link FROM charges",
)
_ANSWERED = {  # the digest of a table that answered, by kind of query
    1: "SELECT id, '' FROM kinds",
    **dict.fromkeys((_SEALED, _NAMED, _LINKED), "SELECT kind, max(proof) FROM charges GROUP BY kind"),
    _VERSION: "SELECT id, answered FROM kinds",
}
RECEIPT = "darrm-receipt 1"  # what a receipt says that it is
STREAM = "-"  # begins the output of a stream: that of a file is an absolute path


@dataclass(frozen=True)
class Entry:
    """One line of the log: when, what, how many queries, and the caller's note."""

    time: str
    what: str
    count: int
    note: str
    table: str = ""  # the digest of the proven table that answered
    labels: str = ""  # the digest of the labels that were paid for, `darrm.system.votes_file.labels_digest`
    delivered: bool = True  # False while the labels, or what says how to draw them, wait in the ledger
    output: str = ""  # the file, the folder, or the stream that they are for
    number: int = 0  # counts from 1
    kind: int = 0  # of the query, a key of `Rows.costs`
    questions: tuple[str, ...] = ()  # the public ids of what was asked in a stream, in order; empty where it has none
    files: tuple[tuple[str, str], ...] = ()  # drawn after the debit: the name and the SHA-256 of each
    link: str = field(default="", compare=False)  # see `darrm.account.head`; empty in version 1
    each: int = 1  # labels that one query's charge pays for, at most: more for a run that is charged as a whole

    @property
    def answers(self) -> int:
        """How many labels were paid for, at most."""
        return self.count * self.each

    def pays_for(self, labels: int) -> bool:
        """Whether it is a debit of so many labels."""
        return labels == self.count if self.each == 1 else labels <= self.answers

    @property
    def is_of_a_stream(self) -> bool:
        """Whether its labels answered questions that arrived one by one, and not a file."""
        return self.output.startswith(STREAM)


@dataclass(frozen=True)
class Identity:
    """What the first transaction of an object found in a file, and every later one finds again."""

    epsilon: str
    delta: str
    kinds: str
    created: str
    name: str = ""  # what no other ledger has; empty in version 1
    population: str = ""  # whom the votes are about, in the words of whoever made it

    @classmethod
    def of(cls, budget: PrivacyParams, kinds: str, population: str = "") -> "Identity":
        """Describe a ledger that is made now."""
        return cls(budget.epsilon_text, budget.delta_text, kinds, now(), secrets.token_hex(16), population)

    @property
    def fields(self) -> tuple[str, ...]:
        """What the seal is made of: a ledger of version 1 has no name, and few have a population."""
        named = filter(None, [self.name, self.population])
        return (self.epsilon, self.delta, self.kinds, self.created, *named)

    @property
    def link(self) -> str:
        """What the first entry follows."""
        return seal("darrm", self.name, self.epsilon, self.delta, self.kinds, self.created, self.population)

    def follows(self, other: "Identity") -> bool:
        """Whether this may be the other one later: a ledger gets a name when it leaves version 1."""
        same = self.fields[:4] == other.fields[:4] and self.population == other.population
        return same and other.name in {"", self.name}


@dataclass(frozen=True)
class Rows:
    """The rows of a ledger within one open transaction.

    Every method raises `LedgerError` where the file is no ledger of a known version, or is damaged.
    """

    connection: sqlite3.Connection
    path: str
    key: SigningKey | None = None  # signs what is written

    @cached_property
    def version(self) -> int:
        """The version of the schema, if the database is a ledger that this darrm reads."""
        (application,) = self.connection.execute("PRAGMA application_id").fetchone()
        (version,) = self.connection.execute("PRAGMA user_version").fetchone()
        if application != _APPLICATION_ID:
            (tables,) = self.connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
            state = "it is empty, its creation was cut short: delete it, and" if tables == 0 else "it is no ledger:"
            raise LedgerError(self.path, f"{state} {HOW_TO_CREATE}")
        added = "SELECT count(*) FROM sqlite_master WHERE type IN ('trigger', 'view')"
        if self.connection.execute(added).fetchone() != (0,):
            raise self.corrupted("a trigger or a view was added, which may undo a debit")
        if version not in _LOG:
            relation = "a newer" if version > _VERSION else "an older"
            message = f"it has schema version {version}, written by {relation} darrm; this one reads version"
            raise LedgerError(self.path, f"{message} {_VERSION}: use the version of darrm that wrote it")
        return int(version)

    def create(self, identity: Identity) -> None:
        """Fill an empty database."""
        for statement in _SCHEMA:
            self.connection.execute(statement)
        self.connection.execute("INSERT INTO budget VALUES (1, ?, ?, ?, ?, '')", identity.fields[:4])
        self._upgrade(1)
        sealed = (identity.name, identity.population, seal(*identity.fields))
        self.connection.execute("UPDATE budget SET identity = ?, population = ?, seal = ?", sealed)
        self.seal_totals()

    def upgrade(self) -> None:
        """Turn an older version into this one, once its log was read and found whole."""
        if (version := self.version) < _VERSION:
            self.entries()
            self._upgrade(version)

    def _upgrade(self, version: int) -> None:
        steps = {1: _UPGRADE, _SEALED: _NAMING, _NAMED: _LINKING, _LINKED: _TOTALLING}
        for statement in (statement for old in range(version, _VERSION) for statement in steps[old]):
            self.connection.execute(statement)
        vars(self).pop("version", None)  # which was read before
        if version == 1:
            budget = self.connection.execute("SELECT epsilon, delta, kinds, created FROM budget").fetchone()
            row = (*budget, secrets.token_hex(16))
            self.connection.execute("UPDATE budget SET identity = ?, seal = ?", (row[-1], seal(*row)))
        if version < _LINKED:
            links = [(link, number) for number, link in self._links()]
            self.connection.executemany("UPDATE charges SET link = ? WHERE id = ?", links)
        self.seal_totals()

    def _links(self) -> Iterator[tuple[int, str]]:
        link = self.identity().link
        for row in self._log():
            link = _link_of(link, row)
            yield row[0], link

    def _log(self) -> Iterator[tuple[Any, ...]]:
        log = f"{_LOG[self.version]} FROM charges JOIN kinds ON kinds.id = kind ORDER BY charges.id"
        yield from self.connection.execute(log)

    def check(self, most: int | None = None) -> None:
        """Read the whole file, page by page and row by row; not if it has more than ``most`` entries."""
        (last,) = self.connection.execute("SELECT ifnull(max(id), 0) FROM charges").fetchone()
        if most is not None and last > most:
            return
        (state,) = self.connection.execute("PRAGMA quick_check(1)").fetchone()
        if state != "ok":
            raise self.corrupted(state)
        self.entries()

    def identity(self) -> Identity:
        """Read the budget and what no other ledger has."""
        version = self.version  # first: another database has no such table, or one that is no budget
        row = self.connection.execute("SELECT * FROM budget").fetchone()
        if row is None or len(row) != _FIELDS_OF_BUDGET[version]:
            raise self.corrupted("the budget was changed")
        identity = Identity(*row[1:5], *row[6:])
        if bool(identity.name) is (version == 1) or row[5] != seal(*identity.fields):
            raise self.corrupted("the budget was changed")
        return identity

    def budget(self) -> PrivacyParams:
        """Read what all debited queries together satisfy."""
        identity = self.identity()
        try:
            checks.one_of(KINDS, kinds=identity.kinds)
            return PrivacyParams(identity.epsilon, identity.delta)
        except ValueError as error:
            raise self.corrupted(str(error)) from error

    def costs(self) -> dict[int, Charge]:
        """Read what all queries of each kind cost together."""
        costs = {}
        for kind, cost, what, total, stored in self.connection.execute(
            "SELECT id, cost, what, total, seal FROM kinds ORDER BY id"
        ):
            if stored != seal(cost, what):
                raise self.corrupted("the cost of a query was changed")
            try:
                costs[kind] = Charge.from_text(cost, what=what).repeated(total)
            except (ValueError, RecursionError) as error:
                raise self.corrupted(str(error)) from error
        return costs

    def account(self) -> PrivacyAccountant:
        """Read the totals, and find that they belong to the log as it ends."""
        if self.version == _VERSION:
            self._check_end()
        else:
            self._check_sums()
        account = PrivacyAccountant(set_aside=SET_ASIDE.get(self.identity().kinds, HALF))
        answered = dict(self.connection.execute(_ANSWERED[self.version]))
        for kind, charge in self.costs().items():
            try:
                # of answers of a release it is known what their costs are about, which is not written with these
                account.add(replace(charge, table=answered[kind]))
            except ValueError as error:
                raise self.corrupted(str(error)) from error
        return account

    def _check_sums(self) -> None:
        """Add up the whole log, and compare."""
        sums = self.connection.execute("SELECT kind, sum(count) FROM charges GROUP BY kind")
        totals = self.connection.execute("SELECT id, total FROM kinds")
        if dict(sums) != dict(totals):
            raise self.corrupted("the log and its totals differ")
        (count,) = self.connection.execute("SELECT count(*) FROM charges").fetchone()
        if {count} != self._numbers():
            raise self.corrupted("entries of the log are missing")

    def _numbers(self) -> set[int]:
        """Read the number of the last entry, and the last number that was given: SQLite gives none twice."""
        numbers = "SELECT max(id), (SELECT max(seq) FROM sqlite_sequence WHERE name = 'charges') FROM charges"
        return {number or 0 for number in self.connection.execute(numbers).fetchone()}

    def _check_end(self) -> None:
        """Find the last entries whole, with the links that they should have, and the totals with their seal."""
        recent = f"{_LOG[_VERSION]} FROM charges JOIN kinds ON kinds.id = kind ORDER BY charges.id DESC LIMIT ?"
        rows = self.connection.execute(recent, (_RECENT + 1,)).fetchall()[::-1]
        numbers = [row[0] for row in rows]
        last = numbers[-1] if numbers else 0
        if self._numbers() != {last} or numbers != list(range(max(1, last - _RECENT), last + 1)):
            raise self.corrupted("entries of the log are missing")
        if self.connection.execute("SELECT seal FROM totals").fetchall() != [(self._seal_of_totals(),)]:
            raise self.corrupted("the log and its totals differ")
        link = self.identity().link if last <= _RECENT else rows.pop(0)[14]
        for row in rows:
            link = _link_of(link, row)
            if row[14] != link:
                raise self.corrupted(f"entry {row[0]} of the log was changed")

    def _seal_of_totals(self) -> str:
        """Compute the seal of the totals and of the end of the log."""
        last = self.connection.execute("SELECT id, link FROM charges ORDER BY id DESC LIMIT 1").fetchone()
        totals = self.connection.execute("SELECT id, total, answered FROM kinds ORDER BY id")
        return seal(*(last or (0, self.identity().link)), *(value for row in totals for value in row))

    def entries(self) -> tuple[Entry, ...]:
        """Read the log, oldest first; check its sums, and its links, or the seals of older versions."""
        self._check_sums()
        version, link, entries = self.version, self.identity().link, []
        each = {kind: charge.labels for kind, charge in self.costs().items()}
        for row in self._log():
            number, time, what, count, note, proof, digest, _, output, sealed, waits, _, kind, named, linked, drawn = (
                row
            )
            link = _link_of(link, row)
            if (linked != link) if version >= _LINKED else version > 1 and sealed != _seal_of(row):
                raise self.corrupted(f"entry {number} of the log was changed")
            asked = tuple(self._texts(named)) if named else ()
            files = tuple(self._texts(drawn, dict).items()) if drawn else ()
            of_entry = (time, what, count, note, proof, digest, not waits, output, number, kind, asked, files)
            entries.append(Entry(*of_entry, link if version > 1 else "", each.get(kind, 1)))
        return tuple(entries)

    def _texts(self, written: str, kind: type = list) -> Json:
        try:
            texts = json.loads(written)
        except (ValueError, RecursionError) as error:
            raise self.corrupted("the questions or files of an entry are no list") from error
        values = texts.values() if isinstance(texts, dict) else texts
        if not isinstance(texts, kind) or not all(isinstance(text, str) for text in values):
            raise self.corrupted("the questions or files of an entry are no list")
        return texts

    def newest(self) -> tuple[object, ...]:
        """Read the last entry, empty if there is none."""
        newest = f"{_SEEN[self.version >= _LINKED]} ORDER BY id DESC LIMIT 1"
        return self.connection.execute(newest).fetchone() or ()

    def check_holds(self, seen: tuple[object, ...]) -> None:
        """Refuse a file without an entry that was its newest before."""
        entry = f"{_SEEN[self.version >= _LINKED]} WHERE id = ?"
        if seen and seen != (self.connection.execute(entry, seen[:1]).fetchone() or ())[: len(seen)]:
            lost = f"entry {seen[0]}, which it had, is gone or was changed"
            raise self.corrupted(f"{lost}: an older copy took its place")

    def write(self, charge: Charge, words: tuple[str, ...], kept: bytes | None, questions: tuple[str, ...] = ()) -> int:
        """Add a charge to totals and log, return the entry's number; ``words`` are note, digests, token and output."""
        cost, count, time = charge.to_text(), int(charge.count), now()
        named = json.dumps(questions, ensure_ascii=False) if questions else ""
        execute = self.connection.execute
        last = execute("SELECT link, seal FROM charges ORDER BY id DESC LIMIT 1").fetchone()
        if self.key is not None or (last is not None and str(last[1]).startswith(SIGNED)):
            self.check_key()
        before = self.identity().link if last is None else last[0]
        execute(
            "INSERT INTO kinds (cost, what, total, seal) VALUES (?, ?, 0, ?) ON CONFLICT (cost) DO NOTHING",
            (cost, charge.what, seal(cost, charge.what)),
        )
        execute(
            "UPDATE kinds SET total = total + ?, answered = max(answered, ?) WHERE cost = ?", (count, words[1], cost)
        )
        kind, stored = execute("SELECT id, seal FROM kinds WHERE cost = ?", (cost,)).fetchone()
        number = execute(
            "INSERT INTO charges (time, kind, count, note, proof, digest, token, output, questions) "
            "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (time, kind, count, *words, named),
        ).lastrowid
        # the labels come last: an UPDATE writes a whole row again
        link = seal(before, number, time, stored, count, *words, named)
        execute("UPDATE charges SET link = ?, labels = ? WHERE id = ?", (link, kept, number))
        if self.key is not None:
            signature = self.key.sign(self.head().to_text())
            execute("UPDATE charges SET seal = ? WHERE id = ?", (signature, number))
        return int(number or 0)

    def seal_totals(self) -> None:
        """Seal the totals with the end of the log: once after all that a transaction wrote."""
        self.connection.execute("UPDATE totals SET seal = ?", (self._seal_of_totals(),))

    def check_key(self) -> None:
        """Refuse to go on with another key than that which signed the entry before, see `darrm.account.signing`."""
        (last,) = self.connection.execute("SELECT ifnull(max(id), 0) FROM charges").fetchone()
        signature = self._signature(last)
        if self.key is None and signature:
            message = "its entries are signed: give the key, by --signing-key FILE or signing_key="
            raise LedgerError(self.path, f"{message}; nothing was debited")
        if self.key is not None and last and not (signature and signature == self.key.sign(self.head().to_text())):
            message = (
                f"entry {last} is not signed with this key as it stands there: signing begins with the first entry of "
                "a new ledger, or this one was changed by somebody without the key, which darrm verify would show"
            )
            raise LedgerError(self.path, f"{message}; nothing was debited")

    def _signature(self, number: int) -> str:
        """Return the signature of an entry; empty where it has none, or the seal of an older version."""
        if self.version < _LINKED:
            return ""
        (stored,) = self.connection.execute("SELECT seal FROM charges WHERE id = ?", (number,)).fetchone() or ("",)
        return str(stored) if str(stored).startswith(SIGNED) else ""

    def head(self, number: int | None = None) -> Head:
        """Return the head at an entry, by default the last; `ValueError` for a ledger without an identity."""
        identity = self.identity()
        if not identity.name:
            checks.fail("a ledger's version", self.version, f"at least {_SEALED}", "its first debit gives it a head")
        (last,) = self.connection.execute("SELECT ifnull(max(id), 0) FROM charges").fetchone()
        number = last if number is None else number
        checks.integer_at_least(0, most=last, entry=number)
        paid = (
            "SELECT ifnull(sum(count), 0) FROM charges WHERE id <= ?"
            if number < last
            else "SELECT ifnull(sum(total), 0) FROM kinds"
        )
        (queries,) = self.connection.execute(paid, (number,) * (number < last)).fetchone()
        if number == 0:
            link = identity.link
        elif self.version >= _LINKED:
            (link,) = self.connection.execute("SELECT link FROM charges WHERE id = ?", (number,)).fetchone()
        else:
            link = dict(self._links())[number]
        return Head(identity.name, identity.population, number, queries, self.budget(), identity.kinds, link)

    def receipt(self, number: int) -> Document:
        """Return what an entry paid for and the head at it, as plain data; errors as `head`."""
        head = self.head(number)
        entry = f"{_LOG[self.version]} FROM charges JOIN kinds ON kinds.id = kind WHERE charges.id = ?"
        _, time, what, count, _, proof, digest, *_ = self.connection.execute(entry, (number,)).fetchone()
        paid = "SELECT cost FROM kinds WHERE id = (SELECT kind FROM charges WHERE id = ?)"
        (cost,) = self.connection.execute(paid, (number,)).fetchone()
        of_entry = {"time": time, "what": what, "count": count, "table": proof, "labels": digest, "cost": cost}
        signature = self._signature(number)
        signed = {"signature": signature} if signature else {}
        return {"format": RECEIPT, "head": head.to_json(), "entry": of_entry, **signed}

    def forget_labels(self, number: int, files: Mapping[str, str] | None = None) -> None:
        """Drop the labels of an entry; of files that were drawn after the debit it keeps the digests."""
        written = json.dumps(files, ensure_ascii=False) if files else None
        forget = "UPDATE charges SET labels = NULL, files = ifnull(?, files) WHERE id = ?"
        self.connection.execute(forget, (written, number))

    def corrupted(self, what: str) -> LedgerError:
        """Return the error that says what is damaged."""
        return corrupted(self.path, what)


def corrupted(path: str, what: str) -> LedgerError:
    """Return the error that says what is damaged, and what to do."""
    return LedgerError(path, f"it is corrupted ({what}): {RESTORE}")


def seal(*fields: object) -> str:
    """Return a digest of the fields of a row: finds damage (a text that became a blob, too), not forgery."""
    return hashlib.sha256("\x1f".join(map(str, fields)).encode()).hexdigest()


def _link_of(before: str, row: tuple[Any, ...]) -> str:
    number, time, _, count, note, proof, digest, token, output, _, _, kind = row[:12]
    return seal(before, number, time, kind, count, note, proof, digest, token, output, row[13])


def _seal_of(row: tuple[Any, ...]) -> str:
    number, time, _, count, note, proof, digest, token, output, _, _, kind = row[:12]
    return seal(number, time, kind, count, note, proof, digest, token, output, *filter(None, [row[13]]))


def now() -> str:
    """Return the time in UTC, to the millisecond."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")
