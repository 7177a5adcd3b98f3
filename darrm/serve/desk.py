"""The one thread that keeps questions and votes, and draws, pays for, keeps and hands out their labels.

It is a sink of `darrm.release.delivery`, by way of `darrm.release.one_by_one`: labels are handed over by writing them,
durably, beside the questions, in the transaction that deletes the votes.

*No id has two labels, no label is unpaid, none is lost.* The ledger's entry names the ids that it pays for, and keeps
their labels until the next entry of the stream is written, which is after `_Stream.hand_out` returned. A process that
dies between the two finds them there when it starts, and settles them before it answers anything. An id that is settled
is never ready again, and ids are unique in the file, which one process has at a time. An id that the ledger paid for,
and that the file does not know as settled (an old copy was put back), is *lost*: refused, not drawn again. Two files
for one stream are caught by the ledger, which lets one take a turn. ∎

What came in while the last batch was paid for is kept with one commit and answered with one debit: the disk is waited
for three times a batch, not a question.
"""

import math
import queue
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from darrm.account.ledger import PrivacyLedger, Turn
from darrm.aggregator import Aggregator
from darrm.errors import BudgetExceededError, checks
from darrm.release.one_by_one import OneByOne
from darrm.serve.questions import Ballot, Questions
from darrm.votes import Votes

MOST_TOGETHER = 256  # questions of one debit
LONGEST_PAUSE = 1.0  # seconds until deadlines are looked at
_RETRY = 1.0  # seconds after the ledger failed
_LEFT_FOR = 2.0  # seconds that a count of what is left is good for
T = TypeVar("T")
_Task = tuple[Callable[[Questions], Any], Future[Any]]


@dataclass(frozen=True)
class Deployment:
    """What one server is for: what answers, what pays, and where questions wait."""

    aggregator: Aggregator
    ledger: str
    state: Path
    ballot: Ballot
    stream: str = "serve"
    note: str = ""


class _Stream(OneByOne):
    """The stream of the labels of a deployment, which are handed out into its file of questions."""

    def __init__(self, deployment: Deployment, questions: Questions, settled: Callable[[str], None]) -> None:
        ledger = PrivacyLedger(deployment.ledger)
        super().__init__(deployment.aggregator, ledger, stream=deployment.stream, note=deployment.note)
        self._questions, self._settled = questions, settled
        stream = Turn.of(deployment.stream).stream
        mine = [entry for entry in ledger.entries() if entry.output == stream]
        if any(len(entry.questions) != entry.count for entry in mine):
            checks.fail("--stream", deployment.stream, "that of a server", "another program answered this stream")
        self._last = mine[-1].questions if mine else ()
        questions.belongs_to(ledger.identity, deployment.stream)
        self.waiting()
        with questions.transaction():
            for name in questions.unsettled(name for entry in mine for name in entry.questions):
                questions.settle(name, "lost")

    def hand_out(self, labels: list[Any]) -> None:
        """Keep labels beside their questions, and forget the votes."""
        names = self.turn.questions or self._last
        with self._questions.transaction():
            for name, label in zip(names, labels, strict=True):
                self._questions.settle(name, "answered", label)
        for name in names:
            self._settled(name)


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
        self._tasks: queue.SimpleQueue[_Task | None] = queue.SimpleQueue()
        self._waiters: dict[str, list[Future[None]]] = {}
        self._waiters_lock, self._left_lock = threading.Lock(), threading.Lock()
        self._left: tuple[float, int] = (-_LEFT_FOR, 0)
        self._questions = Questions(deployment.state, deployment.ballot)
        try:
            self._stream: _Stream | None = self._open()
        except BaseException:
            self._questions.close()
            raise
        self._thread = threading.Thread(target=self._run, name="darrm.serve desk")
        self._stopping = False

    def _open(self) -> _Stream:
        return _Stream(self.deployment, self._questions, self._settled)

    def start(self) -> None:
        """Begin to answer."""
        self._thread.start()

    def stop(self) -> None:
        """Finish what was begun, and close the file."""
        self._tasks.put(None)
        self._thread.join()

    def do(self, act: Callable[[Questions], T]) -> Future[T]:
        """Do something with the questions; the result is there when it is durable."""
        future: Future[T] = Future()
        self._tasks.put((act, future))
        return future

    def settled(self, name: str) -> Future[None]:
        """Return what is done when a question has its end, which may be before this is called: look again after it."""
        future: Future[None] = Future()
        with self._waiters_lock:
            self._waiters.setdefault(name, []).append(future)
        return future

    def forget(self, name: str, future: Future[None]) -> None:
        """Wait no more."""
        with self._waiters_lock:
            others = [other for other in self._waiters.get(name, []) if other is not future]
            if others:
                self._waiters[name] = others
            else:
                self._waiters.pop(name, None)

    def left(self) -> int:
        """Count how many more questions the common budget admits; as old as two seconds."""
        with self._left_lock:
            at, left = self._left
            if time.monotonic() - at >= _LEFT_FOR:
                ledger = PrivacyLedger(self.deployment.ledger)
                left = ledger.queries_that_fit(self.deployment.aggregator.charge(1))
                self._left = time.monotonic(), left
            return left

    def _settled(self, name: str) -> None:
        with self._waiters_lock:
            futures = self._waiters.pop(name, [])
        for future in futures:
            if future.set_running_or_notify_cancel():
                future.set_result(None)

    def _run(self) -> None:
        pause, again_at = 0.0, 0.0
        while not self._stopping:
            try:
                self._keep(self._arrived(pause))
                busy = time.monotonic() >= again_at and self._answer()
            except Exception as error:  # noqa: BLE001 (a full disk, a ledger that is away: what waits is asked again)
                again = not isinstance(error, ValueError)  # which time does not mend: another server has the stream
                self.trouble = (
                    str(error)[:500] if again else "another server answers this stream: stop one, and start anew"
                )
                self._say(f"nothing was answered ({type(error).__name__}: {self.trouble}); what waits is kept")
                self._stream, again_at, busy = None, time.monotonic() + _RETRY if again else math.inf, False
            pause = 0.0 if busy else LONGEST_PAUSE
        self._questions.close()

    def _arrived(self, pause: float) -> list[_Task]:
        """Take what there is to be done, and wait for it no longer than to the next deadline."""
        due = self._questions.next_deadline() if pause else None
        pause = pause if due is None else min(pause, max(0.0, due - time.time()))
        tasks = []
        try:
            first = self._tasks.get(timeout=pause) if pause else self._tasks.get_nowait()
            while True:
                if first is None:
                    self._stopping = True
                else:
                    tasks.append(first)
                first = self._tasks.get_nowait()
        except queue.Empty:
            return tasks

    def _keep(self, tasks: list[_Task]) -> None:
        """Do what there is to be done, in one commit; whoever asked hears of it afterwards."""
        done: list[tuple[Future[Any], Any, BaseException | None]] = []
        try:
            with self._questions.transaction():
                expired = self._questions.make_due(time.time())
                for act, future in tasks:
                    result: Any = None
                    failure: BaseException | None = None
                    try:
                        with self._questions.step():
                            result = act(self._questions)
                    except Exception as error:  # noqa: BLE001 (it is the asker's)
                        failure = error
                    done.append((future, result, failure))
        except BaseException as error:
            done = [(future, None, error) for _, future in tasks]
            raise
        finally:
            for future, result, failure in done:
                if future.set_running_or_notify_cancel():
                    if failure is None:
                        future.set_result(result)
                    else:
                        future.set_exception(failure)
        for name in expired:
            self._settled(name)

    def _answer(self) -> bool:
        """Answer what is ready; return whether there was anything."""
        if self._stream is None:
            self._stream = self._open()
        ready = self._questions.ready(MOST_TOGETHER)
        self.trouble = ""
        if not ready:
            return False
        names = tuple(name for name, _ in ready)
        try:
            self.answered += len(self._stream.answer_together(Votes.joined([votes for _, votes in ready]), names))
        except BudgetExceededError:
            with self._questions.transaction():
                for name in names:
                    self._questions.settle(name, "refused")
            for name in names:
                self._settled(name)
        return True
