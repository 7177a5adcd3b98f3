"""Questions, their votes and their labels: one SQLite file.

A question is *open* until it has all votes or its deadline passes, then *ready*, then *answered*. It costs nothing if
it is *expired* (too few votes), *refused* (by the budget) or *failed* (its votes cannot be answered). It is *lost* if
the ledger paid for it and this file has no label, as after restoring an old copy: it is never drawn again.

Only the owner can read the file. The transaction that keeps the label overwrites the votes by zeros
(``secure_delete``); SQLite's write-ahead log contains them until it is emptied, after a second without questions.
Names of voters stay; votes and their digests, which could be inverted by guessing, do not.
"""

import json
import os
import re
import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from darrm.errors import DarrmError, LedgerError
from darrm.problem import OPEN, Open, is_open
from darrm.serve.clients import Client
from darrm.util import checks
from darrm.util.extras import Untyped
from darrm.util.files import Json
from darrm.votes import Votes
from darrm.votes.votes_file import LONGEST_NAME

if TYPE_CHECKING:
    from darrm.serve.requests import Question

WAITING = ("open", "ready")
UNPAID = ("expired", "refused", "failed")
Row = dict[str, Json]  # the readable fields of a question
_FORBIDDEN_CHARACTER = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff]")  # control characters too
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
_MAX_UNPAID_RATIO = 10  # unpaid questions per allowed question of a client, a bound on rows


class RefusedError(DarrmError):
    def __init__(self, status: int, message: str, **more: object) -> None:
        super().__init__(message)
        self.status, self.more = status, more


@dataclass(frozen=True)
class End:
    id: str
    state: str
    label: Json = None


@dataclass(frozen=True)
class VoteSchema:
    """The valid votes; validity depends on one vote alone."""

    voters: int
    classes: int | tuple[str, ...] | str
    missing: str = "refuse"

    def __post_init__(self) -> None:
        if is_open(self.classes):
            object.__setattr__(self, "classes", OPEN)
        if isinstance(self.classes, tuple) and not all(map(_is_answer, self.classes)):
            checks.fail("--classes", self.classes, f"text of 1 to {LONGEST_NAME} characters, none a control character")

    @cached_property
    def _index(self) -> dict[Json, int]:
        return {name: number for number, name in enumerate(self.classes)} if isinstance(self.classes, tuple) else {}

    def validate_votes(self, votes: Sequence[Json]) -> list[Json]:
        """Return the class of each vote, of open answers the answer; messages repeat no vote."""
        allowed, index, classes = "one of the classes", self._index, self.classes
        if isinstance(classes, Open):
            allowed = f"text of 1 to {LONGEST_NAME} characters, none a control character"
            indices = [vote if vote is None or _is_answer(vote) else -1 for vote in votes]
        elif isinstance(classes, int):
            allowed = f"a whole number from 0 to {classes - 1}"
            indices = [vote if vote is None or (type(vote) is int and 0 <= vote < classes) else -1 for vote in votes]
        else:
            indices = [vote if vote is None else index.get(vote, -1) if type(vote) is str else -1 for vote in votes]
        if -1 in indices:
            checks.fail("a vote", checks.Text("something else"), allowed)
        if None in indices and self.missing == "refuse":
            checks.fail("a vote", checks.Text("null"), allowed, "this server takes no question with missing votes")
        return indices

    def row(self, votes: Sequence[Json]) -> list[Json]:
        if len(votes) != self.voters:
            checks.fail("votes", checks.Text(f"{len(votes)} of them"), f"{self.voters}, one for each voter")
        return self.validate_votes(votes)

    def tally(self, counts: Sequence[Json]) -> list[Json]:
        classes = self.classes
        if isinstance(classes, Open) or len(counts) != (classes if isinstance(classes, int) else len(classes)):
            checks.fail("counts", checks.Text("another thing"), "a number for each class that is listed")
        if not all(type(count) is int and count >= 0 for count in counts) or sum(counts) != self.voters:
            checks.fail("counts", checks.Text("others"), f"whole numbers from 0 that sum to {self.voters}")
        return list(counts)

    def votes(self, rows: Sequence[Sequence[Json]]) -> Votes:
        indices = [self.row(row) for row in rows]
        if isinstance(self.classes, Open):
            return Votes.from_answers(indices, missing=self.missing)
        number = self.classes if isinstance(self.classes, int) else len(self.classes)
        votes = Votes.from_labels(indices, number, missing=self.missing)
        return votes.rename_classes(self.classes) if isinstance(self.classes, tuple) else votes

    def counts(self, rows: Sequence[Sequence[Json]]) -> Votes:
        return Votes.from_counts([self.tally(row) for row in rows], self.voters, self.classes)


def _is_answer(text: object) -> bool:
    return isinstance(text, str) and 0 < len(text) <= LONGEST_NAME and not _FORBIDDEN_CHARACTER.search(text)


class Questions:
    """The file, opened exclusively, used from one thread."""

    def __init__(self, path: Path, ballot: VoteSchema) -> None:
        os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
        if path.stat().st_mode & 0o077:
            checks.fail("the file of questions", str(path), "readable by its owner only", f"chmod 600 {path}")
        self.path, self.ballot = path, ballot
        self._epoch = time.time() - time.monotonic()
        self._checkpoint_changes = -1  # changes that the log does not hold any more
        self._database = sqlite3.connect(path, isolation_level=None, timeout=1.0, check_same_thread=False)
        try:
            for pragma in ("locking_mode=EXCLUSIVE", "journal_mode=WAL", "synchronous=FULL", "secure_delete=ON"):
                self._database.execute(f"PRAGMA {pragma}").fetchall()
            self._database.executescript(_SCHEMA + _COUNTING)
        except sqlite3.DatabaseError as error:
            self._database.close()
            advice = "another server has them, or another copy's -wal is beside them?"
            raise LedgerError(str(path), f"the questions cannot be opened ({error}): {advice}") from error

    def now(self) -> float:
        """Return the time: the system clock at opening, plus a monotonic clock."""
        return self._epoch + time.monotonic()

    def close(self) -> None:
        self._database.close()

    def _fetch(self, statement: str, *values: object) -> Untyped:
        return self._database.execute(statement, values).fetchone()

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Commit all changes of the block durably, or none."""
        self._database.execute("BEGIN")
        try:
            yield
            self._database.execute("COMMIT")
        except BaseException:
            if self.is_in_transaction:
                self._database.execute("ROLLBACK")
            raise

    @contextmanager
    def step(self) -> Iterator[None]:
        """Undo the changes of the block if it raises, within a transaction."""
        self._database.execute("SAVEPOINT step")
        try:
            yield
        except BaseException:
            if self.is_in_transaction:  # a full disk may have undone all of it
                self._database.execute("ROLLBACK TO step")
                self._database.execute("RELEASE step")
            raise
        self._database.execute("RELEASE step")

    @property
    def is_in_transaction(self) -> bool:
        return self._database.in_transaction

    def fold(self) -> None:
        """Empty the write-ahead log, which contains deleted votes."""
        if self._checkpoint_changes != self._database.total_changes:
            self._database.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
            self._checkpoint_changes = self._database.total_changes

    def belongs_to(self, ledger: str, stream: str) -> None:
        """Bind the file to a stream and to the ballot; `ValueError` for others."""
        row = self._fetch("SELECT ledger, stream FROM deployment")
        if row is None:
            self._database.execute("INSERT INTO deployment VALUES (?, ?)", (ledger, stream))
        elif row != (ledger, stream):
            advice = "take another --state"
            checks.fail("the file of questions", str(self.path), "that of this ledger and stream", advice)
        words, row = repr(self.ballot), self._fetch("SELECT words FROM ballot")
        if row is None or row[0] != words:
            waits = self._fetch("SELECT 1 FROM questions WHERE state IN ('open', 'ready')")
            if row is not None and waits is not None:
                advice = f"start it with --classes and --missing of {row[0]} until they have their ends"
                checks.fail("the ballot", words, "the one that questions wait for", advice)
            self._database.execute("DELETE FROM ballot")
            self._database.execute("INSERT INTO ballot VALUES (?)", (words,))

    def ask(self, question: "Question", client: Client, most_of_project: int) -> bool:
        """Return whether a question is new; another one with its id is refused."""
        data = {name: value for name in ("votes", "counts") if (value := getattr(question, name)) is not None}
        text = json.dumps(data) if data else None
        for name, check in (("votes", self.ballot.row), ("counts", self.ballot.tally)):
            if name in data:
                check(data[name])
        has_votes = any(vote is not None for answers in data.values() for vote in answers)
        state, deadline = "ready" if has_votes else "open", self.now() + (question.seconds or 0.0)
        values = (question.id, client.name, client.project, question.text, question.seconds, deadline, state, text)
        cursor = self._database.execute(
            "INSERT INTO questions (id, asker, project, text, seconds, deadline, state, given) "
            "VALUES (?,?,?,?,?,?,?,?) ON CONFLICT (id) DO NOTHING",
            values,
        )
        if cursor.rowcount:
            self._use(f"client {client.name}", client.questions)
            if self.used(f"unpaid {client.name}") >= _MAX_UNPAID_RATIO * client.questions:
                raise RefusedError(402, "too many questions of this client expired or were refused", left=0)
            if client.project:
                self._use(f"project {client.project}", most_of_project)
            return True
        row = self._fetch("SELECT asker, text, seconds, state, given FROM questions WHERE id = ?", question.id)
        is_same = row[:3] == (client.name, question.text, question.seconds) and (row[3] != "ready" or row[4] == text)
        if row[3] == "lost" or not is_same:
            reason = "it was paid for, and its label is lost" if row[3] == "lost" else "it was another question"
            raise RefusedError(409, f"the id {question.id!r} is taken: {reason}; take a new one")
        return False

    def used(self, name: str) -> int:
        """Count answered and waiting questions; ``name`` is ``client NAME`` or ``project NAME``."""
        row = self._fetch("SELECT questions FROM used WHERE name = ?", name)
        return 0 if row is None else int(row[0])

    def _use(self, name: str, limit: int) -> None:
        statement = "UPDATE used SET questions = questions + 1 WHERE name = ? AND questions < ?"
        if self._database.execute(statement, (name, limit)).rowcount:
            return
        if limit < 1 or self.used(name):
            raise RefusedError(402, f"the {name} may ask {limit} questions, and asked them", left=0, limit=limit)
        self._database.execute("INSERT INTO used VALUES (?, 1)", (name,))

    def vote(self, question: str, voter: int, vote: object) -> bool:
        """Return whether a vote is new; a changed or late one is refused."""
        row = self._fetch("SELECT number, state, deadline, given FROM questions WHERE id = ?", question)
        if row is None:
            raise RefusedError(404, f"there is no question {question[:100]!r}")
        if voter > self.ballot.voters:  # the file of clients may change while the server runs
            raise RefusedError(403, f"there is no voter {voter}: this server has {self.ballot.voters}")
        number, state, deadline, data = row
        if vote is None:
            checks.fail("vote", checks.Text("null"), "a vote", "a voter without one sends nothing until the deadline")
        self.ballot.validate_votes([vote])
        text = json.dumps(vote)
        previous_vote = self._fetch("SELECT vote FROM votes WHERE question = ? AND voter = ?", number, voter)
        if previous_vote is not None:
            if previous_vote[0] not in (text, None):
                raise RefusedError(409, "this voter has voted otherwise: the first vote counts")
            return False
        if state != "open" or deadline <= self.now() or data is not None:
            raise RefusedError(409, "this question takes no votes any more", state=state)
        self._database.execute("INSERT INTO votes VALUES (?, ?, ?)", (number, voter, text))
        (vote_count,) = self._fetch("SELECT count(*) FROM votes WHERE question = ?", number)
        if vote_count == self.ballot.voters:
            self._database.execute("UPDATE questions SET state = 'ready' WHERE number = ?", (number,))
        return True

    def close_due(self, moment: float) -> list[Row]:
        """Close questions whose deadline passed; return the expired ones."""
        rows = self._database.execute(
            "SELECT number, id, (SELECT count(*) FROM votes WHERE question = number) FROM questions "
            "WHERE state IN ('open', 'ready') AND state = 'open' AND deadline <= ?",
            (moment,),
        ).fetchall()
        self._database.executemany("UPDATE questions SET state = 'ready' WHERE number = ?", [row[:1] for row in rows])
        expired = [
            End(name, "expired") for _, name, vote_count in rows if not vote_count or self.ballot.missing == "refuse"
        ]
        return [row for end in expired if (row := self.settle(end)) is not None]

    def next_deadline(self) -> float | None:
        statement = "SELECT min(deadline) FROM questions WHERE state IN ('open', 'ready') AND state = 'open'"
        (deadline,) = self._fetch(statement)
        return None if deadline is None else float(deadline)

    def ready(self, limit: int) -> tuple[str, ...]:
        """Return ids, the oldest first."""
        rows = self._database.execute(
            "SELECT id FROM questions WHERE state IN ('open', 'ready') AND state = 'ready' ORDER BY number LIMIT ?",
            (limit,),
        )
        return tuple(name for (name,) in rows)

    def votes_on(self, names: Sequence[str]) -> tuple[tuple[str, ...], Votes]:
        """Return these questions, those with counts last, and their votes in this order."""
        statement = "SELECT number, given FROM questions WHERE id = ?"
        votes, counts = {}, {}
        for name in names:
            number, data = self._fetch(statement, name)
            answers = {} if data is None else json.loads(data)
            if data is None:
                answers["votes"] = [None] * self.ballot.voters
                for voter, vote in self._database.execute(
                    "SELECT voter, vote FROM votes WHERE question = ?", (number,)
                ):
                    answers["votes"][voter - 1] = json.loads(vote)
            if "votes" in answers:
                votes[name] = answers["votes"]
            else:
                counts[name] = answers["counts"]
        parts = [self.ballot.votes([*votes.values()])] if votes else []
        parts += [self.ballot.counts([*counts.values()])] if counts else []
        return (*votes, *counts), parts[0] if len(parts) == 1 else Votes.concatenate(parts)

    def settle(self, end: End) -> Row | None:
        """End a question and delete its votes; return it, or None if it had ended: labels never change."""
        label = json.dumps(end.label)
        if end.state == "lost":  # paid for after all, though it was given back
            self._database.execute(
                "UPDATE used SET questions = questions + 1 WHERE EXISTS (SELECT 1 FROM questions WHERE id = ? "
                "AND state IN ('expired', 'refused', 'failed') "
                "AND name IN ('client ' || asker, 'project ' || project))",
                (end.id,),
            )
        row = self._fetch(
            "UPDATE questions SET state = ?, label = ?, given = NULL WHERE id = ? AND state NOT IN ('answered', ?) "
            "RETURNING number, id, asker, text, deadline, state, label, seconds, project",
            *(end.state, label, end.id, end.state),
        )
        if row is None:  # or it was paid for, and the file is older than that
            self._database.execute(
                "INSERT INTO questions (id, asker, project, text, deadline, state, label) "
                "VALUES (?, '', '', '', 0, ?, ?) ON CONFLICT (id) DO NOTHING",
                (end.id, end.state, label),
            )
            return None
        if end.state in UNPAID:
            names = [(f"client {row[2]}",), (f"project {row[8]}",)]
            self._database.executemany("UPDATE used SET questions = questions - 1 WHERE name = ?", names)
            statement = "INSERT INTO used VALUES (?, 1) ON CONFLICT (name) DO UPDATE SET questions = questions + 1"
            self._database.execute(statement, (f"unpaid {row[2]}",))
        if row[7] is not None:
            self._database.execute("UPDATE votes SET vote = NULL WHERE question = ?", row[:1])
        return self._make_row(row)

    def _make_row(self, row: Sequence[Json]) -> Row:
        number, *values, label, seconds = row[:8]
        statement = "SELECT voter FROM votes WHERE question = ? ORDER BY voter"
        voters = [] if seconds is None else [voter for (voter,) in self._database.execute(statement, (number,))]
        fields = dict(zip(("id", "asker", "text", "deadline", "state"), values, strict=True)) | {"voted": voters}
        return fields | ({"label": json.loads(label)} if fields["state"] == "answered" else {})

    def find_differences(self, paid_ids: set[str]) -> tuple[list[str], int]:
        """Return paid ids without a label, and the number of unpaid labels."""
        final_states = dict(
            self._database.execute("SELECT id, state FROM questions WHERE state IN ('answered', 'lost')")
        )
        unpaid_ids = [name for name, state in final_states.items() if state == "answered" and name not in paid_ids]
        return [name for name in paid_ids if name not in final_states], len(unpaid_ids)

    def list_rows(self, where: str = "", values: tuple[object, ...] = (), limit: int = 1000) -> list[Row]:
        """Return questions, newest first; ``where`` is never a client's input."""
        rows = self._database.execute(
            "SELECT number, id, asker, text, deadline, state, label, seconds FROM questions "  # noqa: S608 (ours)
            f"{where} ORDER BY number DESC LIMIT ?",
            (*values, limit),
        ).fetchall()
        return [self._make_row(row) for row in rows]

    def find_row(self, name: str) -> Row | None:
        return next(iter(self.list_rows("WHERE id = ?", (name,))), None)

    def numbers(self) -> dict[str, int]:
        return dict(self._database.execute("SELECT state, questions FROM numbers WHERE questions > 0").fetchall())
