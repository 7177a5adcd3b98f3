"""The thread that keeps questions and votes, and draws, debits, keeps and delivers their labels.

It delivers by `darrm.release.one_by_one`: labels are handed over by writing them durably to the file of questions, in
the transaction that deletes the votes.

*No id has two labels, no label is unpaid, none is lost.* The ledger's entry names the ids that it pays for, and keeps
their labels until the next entry of the stream is written, which is after `_Stream.hand_out` returned. A process that
dies between the two finds them there when it starts, and settles them before it answers anything. An id that is settled
is never ready again, and ids are unique in the file, which one process has at a time. A ledger that did not pay for all
that is answered is an old copy, a second budget, and refused. An id that the ledger paid for,
and that the file does not know as settled (an old copy was put back), is *lost*: refused, not drawn again. Two files
for one stream are caught by the ledger, which lets one take a turn. ∎

Requests that arrive during a debit are kept by the commit of the batch's labels, and answered with the next debit: two
disk syncs a batch, not a question. Waiting requests are notified when labels are kept. Clients that ask one question
after the other would form two groups that wait for each other's debits; a pause of a few milliseconds merges them, and
halves the number of debits.
"""

import math
import queue
import sqlite3
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar

from darrm.aggregator import Aggregator
from darrm.errors import BudgetExceededError, DarrmError, LedgerError
from darrm.ledger.ledger import PrivacyLedger, StreamCursor
from darrm.ledger.store import RESTORE
from darrm.release.one_by_one import AnswerStream
from darrm.serve.questions import WAITING, End, Questions, Row, VoteSchema
from darrm.util import checks
from darrm.util.files import Json

MOST_TOGETHER = 256  # questions of one debit
LONGEST_PAUSE = 1.0  # seconds until deadlines are looked at
_GATHER = 0.004  # seconds to wait for the next requests of clients that were just answered
_MOST_GATHERS = 5
_RETRY = 1.0  # seconds after the ledger failed
_LEFT_FOR = 2.0  # seconds of validity of a count of the remaining budget
_OUTSIDE = (DarrmError, OSError, sqlite3.Error, MemoryError)  # not caused by a question: retried
P = ParamSpec("P")
T = TypeVar("T")
Keep = Callable[[Sequence[End]], None]


@dataclass(frozen=True)
class Deployment:
    """The configuration of a server: aggregator, ledger, and the file of questions."""

    aggregator: Aggregator
    ledger: str
    state: Path
    ballot: VoteSchema
    stream: str = "serve"
    note: str = ""


@dataclass(eq=False)
class _Task:
    """An action on the questions; with ``waits`` its result is complete when its questions have ended."""

    act: Callable[[Questions], Any]
    waits: bool = False
    future: Future[Any] = field(default_factory=Future)
    result: Any = None
    failure: BaseException | None = None
    left = 0  # questions whose end is waited for, by each of their ids

    def end(self) -> None:
        """Give the result to the caller."""
        if self.future.set_running_or_notify_cancel():
            if self.failure is None:
                self.future.set_result(self.result)
            else:
                self.future.set_exception(self.failure)


class TakenError(LedgerError):
    """Another server answers the stream; retrying does not help."""


class _Stream(AnswerStream):
    """The answer stream of a deployment; it delivers labels by keeping them with their questions."""

    def __init__(self, deployment: Deployment, questions: Questions, keep: Keep) -> None:
        ledger = PrivacyLedger(deployment.ledger)
        super().__init__(deployment.aggregator, ledger, stream=deployment.stream, note=deployment.note)
        self._keep = keep
        account = ledger.accountant()
        kinds = {charge.kind for charge in account.charges}
        if ledger.composition == "one" and kinds - {account.as_held(deployment.aggregator.privacy_cost(1)).kind}:
            checks.fail("--table", checks.Found("another"), "the one that this ledger of one kind pays for")
        stream = StreamCursor.of(deployment.stream).stream
        mine = [entry for entry in ledger.entries() if entry.output == stream]
        if any(len(entry.questions) != entry.count for entry in mine):
            checks.fail("--stream", deployment.stream, "that of a server", "another program answered this stream")
        # of the entry whose labels were read: another process may have debited since
        self._last = next((entry.questions for entry in mine if entry.number == self.cursor.after), ())
        questions.belongs_to(ledger.identity, deployment.stream)
        lost, unpaid = questions.compared({name for entry in mine for name in entry.questions})
        if unpaid:
            raise LedgerError(
                ledger.path, f"it is older than the answers, {unpaid} of which it did not pay for: {RESTORE}"
            )
        found = set() if self.unclaimed is None else set(self._last)
        self._lost = [End(name, "lost") for name in lost if name not in found]
        if not self.waiting():  # one commit, before passed deadlines expire paid questions
            keep(self._lost)
        self._lost = []

    def check_turn(self) -> None:
        """Raise `TakenError` if another process debited for this stream."""
        if any(
            entry.number > self.cursor.after and entry.output == self.cursor.stream for entry in self.ledger.entries()
        ):
            raise TakenError(self.ledger.path, "another server answers this stream: stop one, and start again")

    def hand_out(self, labels: list[Json]) -> None:
        """Keep labels with their questions, and delete the votes."""
        names = self.cursor.questions or self._last
        ends = [End(name, "answered", label) for name, label in zip(names, labels, strict=True)]
        self._keep([*self._lost, *ends])


class AnswerWorker:
    """Runs a deployment; `start` it, `do` things with its questions, `stop` it."""

    def __init__(self, deployment: Deployment, say: Callable[[str], object] = lambda _: None) -> None:
        self.deployment, self._say = deployment, say
        self.trouble = ""  # the reason why nothing is answered at the moment, without votes or labels
        self.answered = 0  # questions since the start
        self._tasks: queue.SimpleQueue[_Task | None] = queue.SimpleQueue()
        self._waiters: dict[str, list[_Task]] = {}  # the thread's own
        self._ended = 0  # questions whose end the last commit kept
        self._stopping, self._left_lock = False, threading.Lock()
        self._left: tuple[float, int] = (-_LEFT_FOR, 0)
        self._questions = Questions(deployment.state, deployment.ballot)
        try:
            self._stream: _Stream | None = self._open()
        except BaseException as error:
            self._questions.close()
            if isinstance(error, sqlite3.DatabaseError):
                raise LedgerError(str(deployment.state), f"the questions are damaged ({error})") from error
            raise
        self._thread = threading.Thread(target=self._run, name="darrm.serve worker")

    def _open(self) -> _Stream:
        return _Stream(self.deployment, self._questions, self._keep)

    def start(self) -> None:
        """Start to answer."""
        self._thread.start()

    def stop(self) -> None:
        """Finish the current work, and close the file."""
        self._tasks.put(None)
        if self._thread.ident is None:  # it was not started
            self._questions.close()
        else:
            self._thread.join()

    def do(self, act: Callable[Concatenate[Questions, P], T], *values: P.args, **named: P.kwargs) -> Future[T]:
        """Run an action on the questions; its future has the result when it is durable."""
        self._tasks.put(task := _Task(lambda questions: act(questions, *values, **named)))
        return task.future

    def ends(
        self, act: Callable[Concatenate[Questions, P], dict[str, Row]], *values: P.args, **named: P.kwargs
    ) -> Future[dict[str, Row]]:
        """Run an action that returns questions by their ids, nothing for new ones; return them when all have ended.

        Cancel the future to stop waiting.
        """
        self._tasks.put(task := _Task(lambda questions: act(questions, *values, **named), waits=True))
        return task.future

    def left(self) -> int:
        """Count the questions that the common budget still admits; the count is up to two seconds old."""
        with self._left_lock:
            at, left = self._left
            if time.monotonic() - at >= _LEFT_FOR:
                ledger = PrivacyLedger(self.deployment.ledger)
                left = ledger.queries_that_fit(self.deployment.aggregator.privacy_cost(1))
                self._left = time.monotonic(), left
            return left

    def _run(self) -> None:
        pause, again_at = 0.0, 0.0
        while not self._stopping:
            try:
                self._keep((), pause)
                busy = time.monotonic() >= again_at and self._answer()
            except Exception as error:  # noqa: BLE001 (a full disk, a ledger that is away: what waits is asked again)
                again = not isinstance(error, TakenError)
                is_ours = isinstance(error, (DarrmError, OSError, sqlite3.Error))  # others' words may show votes
                self.trouble = str(error)[:500] if is_ours else "a fault; do table, --classes and --missing fit?"
                self._say(f"nothing was answered ({type(error).__name__}: {self.trouble}); what waits is kept")
                self._stream, again_at, busy = None, time.monotonic() + _RETRY if again else math.inf, False
            pause = _GATHER if busy else LONGEST_PAUSE
        self._questions.close()

    def _arrived(self, pause: float) -> list[_Task]:
        """Take waiting tasks; wait until the next deadline, and for clients that were just answered."""
        due = self._questions.next_deadline() if pause else None
        pause = pause if due is None else min(pause, max(0.0, due - self._questions.now()))
        tasks, until = [], time.monotonic() + pause + _MOST_GATHERS * _GATHER
        try:
            task = self._tasks.get(timeout=pause) if pause else self._tasks.get_nowait()
            while True:
                if task is None:
                    self._stopping = True
                else:
                    tasks.append(task)
                gathers = pause and len(tasks) < self._ended and time.monotonic() < until
                task = self._tasks.get(timeout=_GATHER) if gathers else self._tasks.get_nowait()
        except queue.Empty:
            return tasks

    def _keep(self, ends: Sequence[End], pause: float = 0.0) -> None:
        """Keep ends and run waiting tasks in one commit, then notify waiting requests."""
        tasks = self._arrived(pause)
        try:
            with self._questions.transaction():
                ended = [row for end in ends if (row := self._questions.settle(end)) is not None]
                ended += self._questions.make_due(self._questions.now())
                for task in tasks:
                    self._perform(task)
        except BaseException as error:
            for task in tasks:
                task.failure = error
                task.end()
            raise
        self._ended = len(ended)
        if pause == LONGEST_PAUSE and not tasks:
            self._questions.fold()
        for row in ended:
            for task in self._waiters.pop(row["id"], ()):
                task.result[row["id"]] = row
                task.left -= 1
                if not task.left:
                    task.end()
        for task in tasks:
            self._reply(task)

    def _perform(self, task: _Task) -> None:
        """Run a task completely or not at all."""
        try:
            with self._questions.step():
                task.result = task.act(self._questions)
        except Exception as error:
            if not self._questions.is_in_transaction:  # the others' work was undone, too
                raise
            task.failure = error

    def _reply(self, task: _Task) -> None:
        """Return a result, or register the questions that it waits for."""
        rows = task.result if task.waits and task.failure is None else {}
        names = [name for name, row in rows.items() if not row or row["state"] in WAITING]
        if not names:
            task.end()
        for name in names:
            others = self._waiters.get(name, ())
            self._waiters[name] = [*(other for other in others if not other.future.done()), task]
        task.left = len(names)

    def _answer(self) -> bool:
        """Answer ready questions; return whether there were any."""
        if self._stream is None:
            self._stream = self._open()
        stream, names = self._stream, self._questions.ready(MOST_TOGETHER)
        self.trouble = ""
        try:
            if names:
                self._answer_together(stream, names)
        except _OUTSIDE:
            raise
        except Exception:  # noqa: BLE001 (nothing is paid: the question that cannot be answered is found)
            stream.check_turn()
            for name in names:
                self._answer_alone(stream, name)
        return bool(names)

    def _answer_together(self, stream: _Stream, names: Sequence[str]) -> None:
        names, votes = self._questions.votes_on(names)
        try:
            self.answered += len(stream.answer_together(votes, names))
        except BudgetExceededError:
            self._keep([End(name, "refused") for name in names])

    def _answer_alone(self, stream: _Stream, name: str) -> None:
        """Answer a question, or end it without a label and without cost if it cannot be answered."""
        try:
            self._answer_together(stream, [name])
        except _OUTSIDE:
            raise
        except Exception as error:  # noqa: BLE001 (as above)
            stream.check_turn()
            self._say(f"a question ends without a label: it cannot be answered ({type(error).__name__})")
            self._keep([End(name, "failed")])
