"""The one thread that keeps questions and votes, and draws, pays for, keeps and hands out their labels.

It is a sink of `darrm.release.delivery`, by way of `darrm.release.one_by_one`: labels are handed over by writing them,
durably, beside the questions, in the transaction that deletes the votes.

*No id has two labels, no label is unpaid, none is lost.* The ledger's entry names the ids that it pays for, and keeps
their labels until the next entry of the stream is written, which is after `_Stream.hand_out` returned. A process that
dies between the two finds them there when it starts, and settles them before it answers anything. An id that is settled
is never ready again, and ids are unique in the file, which one process has at a time. A ledger that did not pay for all
that is answered is an old copy, a second budget, and refused. An id that the ledger paid for,
and that the file does not know as settled (an old copy was put back), is *lost*: refused, not drawn again. Two files
for one stream are caught by the ledger, which lets one take a turn. ∎

What came in while a batch was paid for is kept by the commit that keeps the batch's labels, and answered with the next
debit: the disk is waited for twice a batch, not a question. Whoever waits for labels is told of them as they are kept,
and is not asked to look. Clients that ask one question after the other would fall into two groups that wait for each
other's debits; a few milliseconds for those who were just answered make one group of them, and half as many debits.
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
from typing import Any, Generic, TypeVar

from darrm.account.ledger import PrivacyLedger, Turn
from darrm.account.ledger_store import RESTORE
from darrm.aggregator import Aggregator
from darrm.errors import BudgetExceededError, DarrmError, LedgerError, checks
from darrm.release.one_by_one import OneByOne
from darrm.serve.questions import WAITING, Ballot, End, Questions, Row
from darrm.system.files import Json

MOST_TOGETHER = 256  # questions of one debit
LONGEST_PAUSE = 1.0  # seconds until deadlines are looked at
_GATHER = 0.004  # seconds of silence that are waited for who was just answered and asks again: a disk's sync
_MOST_GATHERS = 5
_RETRY = 1.0  # seconds after the ledger failed
_LEFT_FOR = 2.0  # seconds that a count of what is left is good for
T = TypeVar("T")
Keep = Callable[[Sequence[End]], None]


@dataclass(frozen=True)
class Deployment:
    """What one server is for: what answers, what pays, and where questions wait."""

    aggregator: Aggregator
    ledger: str
    state: Path
    ballot: Ballot
    stream: str = "serve"
    note: str = ""


@dataclass(eq=False)
class _Task(Generic[T]):
    """Something to be done with the questions, and who waits for its result."""

    act: Callable[[Questions], T]
    future: Future[T] = field(default_factory=Future)
    result: list[T] = field(default_factory=list)  # one, once it is there
    failure: BaseException | None = None

    def do(self, questions: Questions) -> None:
        """Do it."""
        self.result = [self.act(questions)]

    def end(self) -> None:
        """Tell whoever waits."""
        if self.future.set_running_or_notify_cancel():
            if self.failure is None:
                self.future.set_result(self.result[0])
            else:
                self.future.set_exception(self.failure)


class _Ends(_Task[dict[str, Row]]):
    """The same, until the questions that it returns have their ends."""

    left = 0  # questions whose end is waited for, by each of their ids

    def missing(self) -> list[str]:
        """Return the questions whose end is waited for."""
        rows = self.result[0] if self.result else {}
        return [name for name, row in rows.items() if not row or row["state"] in WAITING]


class TakenError(LedgerError):
    """Another server answers the stream, which time does not mend."""


class _Stream(OneByOne):
    """The stream of the labels of a deployment, which are handed out by keeping them beside their questions."""

    def __init__(self, deployment: Deployment, questions: Questions, keep: Keep) -> None:
        ledger = PrivacyLedger(deployment.ledger)
        super().__init__(deployment.aggregator, ledger, stream=deployment.stream, note=deployment.note)
        self._keep = keep
        account = ledger.accountant()
        kinds = {charge.kind for charge in account.charges}
        if ledger.kinds == "one" and kinds - {account.as_held(deployment.aggregator.charge(1)).kind}:
            checks.fail("--table", checks.Found("another"), "the one that this ledger of one kind pays for")
        stream = Turn.of(deployment.stream).stream
        mine = [entry for entry in ledger.entries() if entry.output == stream]
        if any(len(entry.questions) != entry.count for entry in mine):
            checks.fail("--stream", deployment.stream, "that of a server", "another program answered this stream")
        # of the entry whose labels were read: another process may have debited since
        self._last = next((entry.questions for entry in mine if entry.number == self.turn.after), ())
        questions.belongs_to(ledger.identity, deployment.stream)
        lost, unpaid = questions.compared({name for entry in mine for name in entry.questions})
        if unpaid:
            raise LedgerError(
                ledger.path, f"it is older than the answers, {unpaid} of which it did not pay for: {RESTORE}"
            )
        found = set() if self.unclaimed is None else set(self._last)
        self._lost = [End(name, "lost") for name in lost if name not in found]
        if not self.waiting():  # one commit, before a deadline that passed gives back what was paid for
            keep(self._lost)
        self._lost = []

    def check_turn(self) -> None:
        """Raise `TakenError` if another process debited for this stream."""
        if any(entry.number > self.turn.after and entry.output == self.turn.stream for entry in self.ledger.entries()):
            raise TakenError(self.ledger.path, "another server answers this stream: stop one, and start anew")

    def hand_out(self, labels: list[Json]) -> None:
        """Keep labels beside their questions, and forget the votes."""
        names = self.turn.questions or self._last
        ends = [End(name, "answered", label) for name, label in zip(names, labels, strict=True)]
        self._keep([*self._lost, *ends])


class Desk:
    """Runs a deployment; `start` it, `do` things with its questions, `stop` it.

    Attributes
    ----------
    trouble
        Why nothing is answered just now, in words without votes or labels; empty if all is well.
    answered
        How many questions were answered since the start.
    """

    def __init__(self, deployment: Deployment, say: Callable[[str], object] = lambda _: None) -> None:
        self.deployment, self._say = deployment, say
        self.trouble, self.answered = "", 0
        self._tasks: queue.SimpleQueue[_Task[Any] | None] = queue.SimpleQueue()
        self._waiters: dict[str, list[_Ends]] = {}  # the thread's own
        self._told = 0  # questions whose end the last commit kept
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
        self._thread = threading.Thread(target=self._run, name="darrm.serve desk")

    def _open(self) -> _Stream:
        return _Stream(self.deployment, self._questions, self._keep)

    def start(self) -> None:
        """Begin to answer."""
        self._thread.start()

    def stop(self) -> None:
        """Finish what was begun, and close the file."""
        self._tasks.put(None)
        self._thread.join()

    def do(self, act: Callable[[Questions], T]) -> Future[T]:
        """Do something with the questions; the result is there when it is durable."""
        task = _Task(act)
        self._tasks.put(task)
        return task.future

    def ends(self, act: Callable[[Questions], dict[str, Row]]) -> Future[dict[str, Row]]:
        """Do something that returns questions by their ids, nothing for new ones; return them once all have ended.

        Who waits no more cancels it.
        """
        task = _Ends(act)
        self._tasks.put(task)
        return task.future

    def left(self) -> int:
        """Count how many more questions the common budget admits; as old as two seconds."""
        with self._left_lock:
            at, left = self._left
            if time.monotonic() - at >= _LEFT_FOR:
                ledger = PrivacyLedger(self.deployment.ledger)
                left = ledger.queries_that_fit(self.deployment.aggregator.charge(1))
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

    def _arrived(self, pause: float) -> list[_Task[Any]]:
        """Take what there is to be done; wait for it to the next deadline, and for those who were just answered."""
        due = self._questions.next_deadline() if pause else None
        pause = pause if due is None else min(pause, max(0.0, due - time.time()))
        tasks, until = [], time.monotonic() + pause + _MOST_GATHERS * _GATHER
        try:
            task = self._tasks.get(timeout=pause) if pause else self._tasks.get_nowait()
            while True:
                if task is None:
                    self._stopping = True
                else:
                    tasks.append(task)
                gathers = pause and len(tasks) < self._told and time.monotonic() < until
                task = self._tasks.get(timeout=_GATHER) if gathers else self._tasks.get_nowait()
        except queue.Empty:
            return tasks

    def _keep(self, ends: Sequence[End], pause: float = 0.0) -> None:
        """Keep ends, and do what there is to be done, in one commit; whoever waits hears of it afterwards."""
        tasks = self._arrived(pause)
        try:
            with self._questions.transaction():
                ended = [row for end in ends if (row := self._questions.settle(end)) is not None]
                ended += self._questions.make_due(time.time())
                for task in tasks:
                    self._try(task)
        except BaseException as error:
            for task in tasks:
                task.failure = error
                task.end()
            raise
        self._told = len(ended)
        if pause == LONGEST_PAUSE and not tasks:
            self._questions.fold()
        for row in ended:
            for task in self._waiters.pop(row["id"], ()):
                task.result[0][row["id"]] = row
                task.left -= 1
                if not task.left:
                    task.end()
        for task in tasks:
            self._tell(task)

    def _try(self, task: _Task[Any]) -> None:
        """Do a task, or none of it."""
        try:
            with self._questions.step():
                task.do(self._questions)
        except Exception as error:
            if not self._questions.is_in_transaction:  # the others' work was undone, too
                raise
            task.failure = error

    def _tell(self, task: _Task[Any]) -> None:
        """Tell whoever waits, or note for which questions."""
        if not isinstance(task, _Ends) or not (names := task.missing()):
            task.end()
            return
        for name in names:
            others = self._waiters.get(name, ())
            self._waiters[name] = [*(other for other in others if not other.future.done()), task]
        task.left = len(names)

    def _answer(self) -> bool:
        """Answer what is ready; return whether there was anything."""
        if self._stream is None:
            self._stream = self._open()
        ready = self._questions.ready(MOST_TOGETHER)
        self.trouble = ""
        if ready is None:
            return False
        names, votes = ready
        try:
            self.answered += len(self._stream.answer_together(votes, names))
        except BudgetExceededError:
            self._keep([End(name, "refused") for name in names])
        except ValueError:
            self._stream.check_turn()
            raise
        return True
