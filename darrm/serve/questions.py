"""Questions that wait for votes, and the labels that they got: one SQLite file beside the ledger.

A question is *open* until all votes are there or its deadline passed, then *ready*; the desk makes it *answered*. It is
*expired* if votes that must not be missing are, or none came, *refused* if the budget did not admit it, and *lost* if
the ledger says that it was paid for and this file does not know its label, as after an old copy was put back: it is
never drawn again.

Votes are secrets. The file is readable by its owner only, and they are deleted in the transaction that keeps the label,
and overwritten by zeros (``secure_delete``); the log that SQLite writes ahead shows them until it is emptied, after a
second without questions. What a disk or a backup remembers is beyond it. Who voted stays, what was said does not, nor a
digest, which could be guessed back.
"""

import json
import os
import re
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from darrm.account.ledger import check_id
from darrm.errors import LedgerError, checks
from darrm.serve.clients import Client
from darrm.system.files import Json
from darrm.votes import Votes

WAITING = ("open", "ready")
Row = dict[str, Json]  # what may be read of a question
LONGEST_TEXT = 2000
_SURROGATE = re.compile("[\ud800-\udfff]")  # half a pair, which no file holds
LONGEST_WAIT = 366 * 86400.0
_SCHEMA = """
CREATE TABLE IF NOT EXISTS questions (
    number INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, asker TEXT NOT NULL, project TEXT NOT NULL,
    text TEXT NOT NULL, seconds REAL, deadline REAL NOT NULL, state TEXT NOT NULL, label TEXT, given TEXT);
CREATE INDEX IF NOT EXISTS waiting ON questions (state, deadline) WHERE state IN ('open', 'ready');
CREATE INDEX IF NOT EXISTS asked ON questions (asker, number);
CREATE TABLE IF NOT EXISTS votes (
    question INTEGER NOT NULL, voter INTEGER NOT NULL, vote TEXT, PRIMARY KEY (question, voter)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS used (name TEXT PRIMARY KEY, questions INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS deployment (ledger TEXT NOT NULL, stream TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS ballot (words TEXT NOT NULL);
"""
# Queries for one of the two states repeat the words of the partial index, or SQLite would not use it.
_COUNTING = """
CREATE TEMP TABLE numbers (state TEXT PRIMARY KEY, questions INTEGER NOT NULL) WITHOUT ROWID;
INSERT INTO numbers SELECT state, count(*) FROM questions GROUP BY state;
CREATE TEMP TRIGGER asked AFTER INSERT ON questions BEGIN
    INSERT INTO numbers VALUES (new.state, 1) ON CONFLICT (state) DO UPDATE SET questions = questions + 1; END;
CREATE TEMP TRIGGER changed AFTER UPDATE OF state ON questions BEGIN
    UPDATE numbers SET questions = questions - 1 WHERE state = old.state;
    INSERT INTO numbers VALUES (new.state, 1) ON CONFLICT (state) DO UPDATE SET questions = questions + 1; END;
"""
_MOST_UNPAID = 10  # questions that expired or were refused, for each that a client may ask: rows that nobody paid for


class RefusedError(Exception):
    """What a client asked for is refused: an HTTP status, why, and what a program wants to know."""

    def __init__(self, status: int, message: str, **more: object) -> None:
        super().__init__(message)
        self.status, self.more = status, more


@dataclass(frozen=True)
class Asked:
    """What a client wants to know: with ``votes`` or ``counts`` of all voters, or, for ``seconds``, from the voters."""

    id: str
    text: str = ""
    seconds: float | None = None
    votes: tuple[Json, ...] | None = None
    counts: tuple[Json, ...] | None = None

    def __post_init__(self) -> None:
        check_id("id", self.id)
        if self.id in {".", ".."}:  # which clients take out of an address
            checks.fail("id", self.id, "neither . nor ..")
        if not isinstance(self.text, str) or len(self.text) > LONGEST_TEXT or _SURROGATE.search(self.text):
            checks.fail("text", checks.Found("another thing"), f"text of at most {LONGEST_TEXT} characters")
        if not isinstance(self.votes, tuple | None) or not isinstance(self.counts, tuple | None):
            checks.fail("votes or counts", checks.Found("another thing"), "a list")
        if sum(value is not None for value in (self.seconds, self.votes, self.counts)) != 1:
            checks.fail("a question", self.id, "with one of seconds (until its deadline), votes and counts")
        if self.seconds is not None:
            checks.positive(seconds=self.seconds)
            if self.seconds > LONGEST_WAIT:
                checks.fail("seconds", self.seconds, f"at most {LONGEST_WAIT:.0f}")


@dataclass(frozen=True)
class End:
    """The end of a question, with its label where it is *answered*."""

    id: str
    state: str
    label: Json = None


@dataclass(frozen=True)
class Ballot:
    """How votes are read: K voters, the classes, and whether votes may be missing, as `Votes.of_labels` says."""

    voters: int
    classes: int | tuple[str, ...] | str
    missing: str = "refuse"

    @property
    def is_open(self) -> bool:
        """Whether voters answer with any string."""
        return self.classes == "open"

    def is_plain(self, given: dict[str, Json]) -> bool:
        """Whether these are whole numbers of listed classes, none missing: seen without making `Votes` of them."""
        votes, most = given.get("votes", []), self.classes
        return (
            isinstance(most, int) and [type(vote) is int and 0 <= vote < most for vote in votes] == [True] * self.voters
        )

    def votes(self, rows: Sequence[Sequence[Json]]) -> Votes:
        """Read what each voter said to each question, None for nothing; `ValueError` if these are no votes."""
        kind = int if isinstance(self.classes, int) else str
        for row in rows:
            if any(vote is not None and type(vote) is not kind for vote in row):
                what = "text" if kind is str else "whole numbers from 0"
                checks.fail("votes", checks.Found("something else"), what, "null is a vote that is missing")
            if len(row) != self.voters:
                checks.fail("votes", checks.Found(f"{len(row)} of them"), f"{self.voters}, one for each voter")
        several = [list(row) for row in rows]
        if self.is_open:
            return Votes.of_answers(several, missing="blank" if self.missing == "blank" else "refuse")
        return Votes.of_labels(several, self.classes, missing="coin" if self.missing == "coin" else "refuse")

    def counts(self, rows: Sequence[Sequence[Json]]) -> Votes:
        """Read how many voters said each class, to each question; no vote may be missing."""
        if self.is_open or not all(type(count) is int for row in rows for count in row):
            checks.fail("counts", checks.Found("another thing"), "a whole number for each class that is listed")
        return Votes.of_counts([list(row) for row in rows], self.voters, self.classes)


class Questions:
    """The file; whoever has it open has it alone, and uses it from one thread."""

    def __init__(self, path: Path, ballot: Ballot) -> None:
        os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
        if path.stat().st_mode & 0o077:
            checks.fail("the file of questions", str(path), "readable by its owner only", f"chmod 600 {path}")
        self.path, self.ballot = path, ballot
        self._folded = -1  # changes that the log does not hold any more
        self._there: dict[int, int] = {}  # votes on an open question, where they were counted
        self._rows = sqlite3.connect(path, isolation_level=None, timeout=1.0, check_same_thread=False)
        try:
            for pragma in ("locking_mode=EXCLUSIVE", "journal_mode=WAL", "synchronous=FULL", "secure_delete=ON"):
                self._rows.execute(f"PRAGMA {pragma}").fetchall()
            self._rows.executescript(_SCHEMA + _COUNTING)
        except sqlite3.DatabaseError as error:
            self._rows.close()
            why = "another server has them, or another copy's -wal is beside them?"
            raise LedgerError(str(path), f"the questions cannot be opened ({error}): {why}") from error

    def close(self) -> None:
        """Fold the log in, and let others have the file."""
        self._rows.close()

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Keep all that is done in the block, durably, or nothing of it."""
        self._rows.execute("BEGIN")
        try:
            yield
            self._rows.execute("COMMIT")
        except BaseException:
            self._there.clear()
            if self.is_in_transaction:
                self._rows.execute("ROLLBACK")
            raise

    @contextmanager
    def step(self) -> Iterator[None]:
        """Undo what is done in the block if it raises, within a transaction."""
        self._rows.execute("SAVEPOINT step")
        try:
            yield
        except BaseException:
            self._there.clear()
            if self.is_in_transaction:  # a full disk may have undone all of it
                self._rows.execute("ROLLBACK TO step")
                self._rows.execute("RELEASE step")
            raise
        self._rows.execute("RELEASE step")

    @property
    def is_in_transaction(self) -> bool:
        """Whether what is done may still be undone."""
        return self._rows.in_transaction

    def fold(self) -> None:
        """Empty the log that is written ahead, in which votes stand that were deleted."""
        if self._folded != self._rows.total_changes:
            self._rows.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
            self._folded = self._rows.total_changes

    def belongs_to(self, ledger: str, stream: str) -> None:
        """Note for which stream of which ledger the labels are, and the ballot; `ValueError` for another one."""
        row = self._rows.execute("SELECT ledger, stream FROM deployment").fetchone()
        if row is None:
            self._rows.execute("INSERT INTO deployment VALUES (?, ?)", (ledger, stream))
        elif row != (ledger, stream):
            checks.fail(
                "the file of questions", str(self.path), "that of this ledger and stream", "take another --state"
            )
        words, row = repr(self.ballot), self._rows.execute("SELECT words FROM ballot").fetchone()
        if row is None or row[0] != words:
            waits = self._rows.execute("SELECT 1 FROM questions WHERE state IN ('open', 'ready')").fetchone()
            if row is not None and waits is not None:
                advice = f"start it with --classes and --missing of {row[0]} until they have their ends"
                checks.fail("the ballot", words, "the one that questions wait for", advice)
            self._rows.execute("DELETE FROM ballot")
            self._rows.execute("INSERT INTO ballot VALUES (?)", (words,))

    def ask(self, asked: Asked, client: Client, most_of_project: int, now: float) -> bool:
        """Keep a question; return whether it is new. The same one again changes nothing, another one is refused."""
        given = {name: list(value) for name in ("votes", "counts") if (value := getattr(asked, name)) is not None}
        text = json.dumps(given) if given else None
        if given and not self.ballot.is_plain(given):
            self._read([given])
        is_said = any(vote is not None for several in given.values() for vote in several)
        state, deadline = "ready" if is_said else "open", now + (asked.seconds or 0.0)
        values = (asked.id, client.name, client.project, asked.text, asked.seconds, deadline, state, text)
        new = self._rows.execute(
            "INSERT INTO questions (id, asker, project, text, seconds, deadline, state, given) "
            "VALUES (?,?,?,?,?,?,?,?) ON CONFLICT (id) DO NOTHING",
            values,
        )
        if new.rowcount:
            self._use(f"client {client.name}", client.questions)
            if self.used(f"unpaid {client.name}") >= _MOST_UNPAID * client.questions:
                raise RefusedError(402, "too many questions of this client expired or were refused", left=0)
            if client.project:
                self._use(f"project {client.project}", most_of_project)
            return True
        row = self._rows.execute(
            "SELECT asker, text, seconds, state, given FROM questions WHERE id = ?", (asked.id,)
        ).fetchone()
        same = row[:3] == (client.name, asked.text, asked.seconds) and (row[3] != "ready" or row[4] == text)
        if row[3] == "lost" or not same:
            why = "it was paid for, and its label is lost" if row[3] == "lost" else "it was another question"
            raise RefusedError(409, f"the id {asked.id!r} is taken: {why}; take a new one")
        return False

    def used(self, name: str) -> int:
        """Count the questions of ``client NAME`` or ``project NAME`` that were answered, or wait."""
        row = self._rows.execute("SELECT questions FROM used WHERE name = ?", (name,)).fetchone()
        return 0 if row is None else int(row[0])

    def _use(self, name: str, most: int) -> None:
        one_more = "UPDATE used SET questions = questions + 1 WHERE name = ? AND questions < ?"
        if self._rows.execute(one_more, (name, most)).rowcount:
            return
        if most < 1 or self.used(name):
            raise RefusedError(402, f"the {name} may ask {most} questions, and asked them", left=0, limit=most)
        self._rows.execute("INSERT INTO used VALUES (?, 1)", (name,))

    def vote(self, question: str, voter: int, vote: object, now: float) -> bool:
        """Keep a vote; return whether it is new. The same again changes nothing; another, or a late one, is refused."""
        row = self._rows.execute(
            "SELECT number, state, deadline, given FROM questions WHERE id = ?", (question,)
        ).fetchone()
        if row is None:
            raise RefusedError(404, f"there is no question {question[:100]!r}")
        if voter > self.ballot.voters:  # clients are read anew while the server runs
            raise RefusedError(403, f"there is no voter {voter}: this server has {self.ballot.voters}")
        number, state, deadline, given = row
        replace(self.ballot, voters=1).votes([[vote]])
        if vote is None:
            checks.fail("vote", checks.Found("null"), "a vote", "who says nothing is missing at the deadline")
        text = json.dumps(vote)
        before = self._rows.execute(
            "SELECT vote FROM votes WHERE question = ? AND voter = ?", (number, voter)
        ).fetchone()
        if before is not None:
            if before[0] not in (text, None):
                raise RefusedError(409, "this voter has voted otherwise: the first vote counts")
            return False
        if state != "open" or deadline <= now or given is not None:
            raise RefusedError(409, "this question takes no votes any more", state=state)
        self._rows.execute("INSERT INTO votes VALUES (?, ?, ?)", (number, voter, text))
        if number in self._there:
            self._there[number] += 1
        else:
            count = "SELECT count(*) FROM votes WHERE question = ?"
            (self._there[number],) = self._rows.execute(count, (number,)).fetchone()
        if self._there[number] == self.ballot.voters:
            del self._there[number]
            self._rows.execute("UPDATE questions SET state = 'ready' WHERE number = ?", (number,))
        return True

    def make_due(self, now: float) -> list[Row]:
        """Close the questions whose deadline passed; return those that expired."""
        due = self._rows.execute(
            "SELECT number, id, (SELECT count(*) FROM votes WHERE question = number) FROM questions "
            "WHERE state IN ('open', 'ready') AND state = 'open' AND deadline <= ?",
            (now,),
        ).fetchall()
        self._rows.executemany("UPDATE questions SET state = 'ready' WHERE number = ?", [row[:1] for row in due])
        expired = [End(name, "expired") for _, name, there in due if not there or self.ballot.missing == "refuse"]
        return [row for end in expired if (row := self.settle(end)) is not None]

    def next_deadline(self) -> float | None:
        """Return when the next open question closes."""
        soonest = "SELECT min(deadline) FROM questions WHERE state IN ('open', 'ready') AND state = 'open'"
        row = self._rows.execute(soonest).fetchone()
        return None if row[0] is None else float(row[0])

    def ready(self, most: int) -> tuple[tuple[str, ...], Votes] | None:
        """Return questions to be answered, the oldest first, and their votes; None if there are none."""
        rows = self._rows.execute(
            "SELECT number, id, given FROM questions WHERE state IN ('open', 'ready') AND state = 'ready' "
            "ORDER BY number LIMIT ?",
            (most,),
        ).fetchall()
        several = [
            (name, {"votes": self._voted(number)} if given is None else json.loads(given))
            for number, name, given in rows
        ]
        several.sort(key=lambda pair: "counts" in pair[1])  # as `_read` returns them
        return (tuple(name for name, _ in several), self._read([given for _, given in several])) if several else None

    def _voted(self, number: int) -> list[Json]:
        row: list[Json] = [None] * self.ballot.voters
        for voter, vote in self._rows.execute("SELECT voter, vote FROM votes WHERE question = ?", (number,)):
            row[voter - 1] = json.loads(vote)
        return row

    def _read(self, several: Sequence[dict[str, Json]]) -> Votes:
        """Read what was said: first of all questions with votes, then of those with counts."""
        votes = [given["votes"] for given in several if "votes" in given]
        counts = [given["counts"] for given in several if "counts" in given]
        parts = ([self.ballot.votes(votes)] if votes else []) + ([self.ballot.counts(counts)] if counts else [])
        return parts[0] if len(parts) == 1 else Votes.joined(parts)

    def settle(self, end: End) -> Row | None:
        """Give a question its end, and forget what was voted; return it, None if it had one: a label stays."""
        label = json.dumps(end.label)
        if end.state == "lost":  # paid for after all, though it was given back
            self._rows.execute(
                "UPDATE used SET questions = questions + 1 WHERE EXISTS (SELECT 1 FROM questions WHERE id = ? "
                "AND state IN ('expired', 'refused') AND name IN ('client ' || asker, 'project ' || project))",
                (end.id,),
            )
        row = self._rows.execute(
            "UPDATE questions SET state = ?, label = ?, given = NULL WHERE id = ? AND state NOT IN ('answered', ?) "
            "RETURNING number, id, asker, text, deadline, state, label, seconds, project",
            (end.state, label, end.id, end.state),
        ).fetchone()
        if row is None:  # or it was paid for, and the file is older than that
            self._rows.execute(
                "INSERT INTO questions (id, asker, project, text, deadline, state, label) "
                "VALUES (?, '', '', '', 0, ?, ?) ON CONFLICT (id) DO NOTHING",
                (end.id, end.state, label),
            )
            return None
        if end.state in {"expired", "refused"}:  # not paid for
            names = [(f"client {row[2]}",), (f"project {row[8]}",)]
            self._rows.executemany("UPDATE used SET questions = questions - 1 WHERE name = ?", names)
            unpaid = "INSERT INTO used VALUES (?, 1) ON CONFLICT (name) DO UPDATE SET questions = questions + 1"
            self._rows.execute(unpaid, (f"unpaid {row[2]}",))
        if row[7] is not None:
            self._rows.execute("UPDATE votes SET vote = NULL WHERE question = ?", row[:1])
        return self._row(row)

    def _row(self, row: Sequence[Json]) -> Row:
        """Return what may be read of a question; one that came with its votes has no voters' own."""
        number, *values, label, seconds = row[:8]
        voted = "SELECT voter FROM votes WHERE question = ? ORDER BY voter"
        voters = [] if seconds is None else [voter for (voter,) in self._rows.execute(voted, (number,))]
        shown = dict(zip(("id", "asker", "text", "deadline", "state"), values, strict=True)) | {"voted": voters}
        return shown | ({"label": json.loads(label)} if shown["state"] == "answered" else {})

    def compared(self, paid: set[str]) -> tuple[list[str], int]:
        """Return which ids that the ledger paid for have no label here, and how many have one and are not paid for."""
        ended = dict(self._rows.execute("SELECT id, state FROM questions WHERE state IN ('answered', 'lost')"))
        unpaid = [name for name, state in ended.items() if state == "answered" and name not in paid]
        return [name for name in paid if name not in ended], len(unpaid)

    def shown(self, where: str = "", values: tuple[object, ...] = (), most: int = 1000) -> list[Row]:
        """Return what may be read of questions, the newest first; ``where`` is ours, never a client's."""
        rows = self._rows.execute(
            "SELECT number, id, asker, text, deadline, state, label, seconds FROM questions "  # noqa: S608 (ours)
            f"{where} ORDER BY number DESC LIMIT ?",
            (*values, most),
        ).fetchall()
        return [self._row(row) for row in rows]

    def one(self, name: str) -> Row | None:
        """Return what may be read of a question, None if there is none."""
        return next(iter(self.shown("WHERE id = ?", (name,))), None)

    def numbers(self) -> dict[str, int]:
        """Count the questions in each state."""
        return dict(self._rows.execute("SELECT state, questions FROM numbers WHERE questions > 0").fetchall())
