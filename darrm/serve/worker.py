"""The writer of a server: keeps questions and votes, and draws, debits, keeps and delivers their labels.

*No id has two labels, no label is unpaid, none is lost.* The ledger's entry names the ids that it pays for, and keeps
their labels until the next entry of the stream, which is written after `_Stream.hand_out` returned. A process that dies
between the two settles them when it starts, before it answers anything. A settled id is never ready again, and ids are
unique in the file, which one process has at a time. A ledger that did not pay for all that is answered is an old copy,
a second budget, and refused. An id that the ledger paid for, and that the file does not know as settled (an old copy
was put back), is *lost*: refused, not drawn again. The ledger lets one of two files for a stream take a turn. ∎

Commits and debits run one after the other in one thread. Requests that arrive during a debit are kept by the commit of
its labels, and answered with the next debit: two disk syncs a batch. A pause of milliseconds merges clients that would
form two groups, each waiting for the other's debit.
"""

import asyncio
import math
import sqlite3
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar
from weakref import WeakValueDictionary

from darrm.aggregator import Aggregator
from darrm.errors import BudgetExceededError, DarrmError, LedgerError
from darrm.ledger.ledger import PrivacyLedger
from darrm.ledger.sqlite import RESTORE
from darrm.release.one_by_one import AnswerStream
from darrm.serve.questions import End, Questions, Row, VoteSchema
from darrm.util import checks
from darrm.util.files import Json

MOST_TOGETHER = 256  # questions of one debit
LONGEST_PAUSE = 1.0  # seconds until deadlines are looked at
_GATHER_SECONDS = 0.004  # seconds to wait for the next requests of clients that were just answered
_MAX_GATHERS = 5
_RETRY = 1.0  # seconds after the ledger failed
_COUNT_SECONDS = 2.0  # seconds of validity of a count of the remaining budget
_RETRIED_ERRORS = (DarrmError, OSError, sqlite3.Error, MemoryError)  # not caused by a question: retried
P = ParamSpec("P")
T = TypeVar("T")
Keep = Callable[[Sequence[End]], None]


@dataclass(frozen=True)
class Deployment:
    aggregator: Aggregator
    ledger: str
    state: Path
    ballot: VoteSchema
    stream: str = "serve"


class TakenError(LedgerError):
    """Another server answers the stream; retrying does not help."""


class _Stream(AnswerStream):
    def __init__(self, deployment: Deployment, questions: Questions, keep: Keep) -> None:
        ledger = PrivacyLedger(deployment.ledger)
        super().__init__(deployment.aggregator, ledger, stream=deployment.stream)
        self._keep = keep
        account = ledger.accountant()
        kinds = {cost.kind for cost in account.costs}
        if ledger.composition == "one" and kinds - {
            account.match_stored_kind(deployment.aggregator.privacy_cost(1)).kind
        }:
            checks.fail("--table", checks.Text("another"), "the one that this ledger of one kind pays for")
        entries = [entry for entry in ledger.entries() if entry.output == self.cursor.stream]
        if any(len(entry.questions) != entry.count for entry in entries):
            checks.fail("--stream", deployment.stream, "that of a server", "another program answered this stream")
        # the ids of the entry whose labels were read: another process may have debited since
        self._last_ids = next((entry.questions for entry in entries if entry.number == self.cursor.after), ())
        questions.belongs_to(ledger.identity, deployment.stream)
        lost_ids, unpaid = questions.find_differences({name for entry in entries for name in entry.questions})
        if unpaid:
            raise LedgerError(
                ledger.path, f"it is older than the answers and did not pay for {unpaid} of them: {RESTORE}"
            )
        pending_ids = set() if self.unclaimed is None else set(self._last_ids)
        self._lost_ends = [End(name, "lost") for name in lost_ids if name not in pending_ids]
        if not self.waiting():  # one commit, before passed deadlines expire paid questions
            keep(self._lost_ends)
        self._lost_ends = []

    def check_turn(self) -> None:
        """Raise `TakenError` if another process debited for this stream."""
        if any(
            entry.number > self.cursor.after and entry.output == self.cursor.stream for entry in self.ledger.entries()
        ):
            raise TakenError(self.ledger.path, "another server answers this stream: stop one, and start again")

    def hand_out(self, labels: list[Json]) -> None:
        names = self.cursor.questions or self._last_ids
        answer_ends = [End(name, "answered", label) for name, label in zip(names, labels, strict=True)]
        self._keep([*self._lost_ends, *answer_ends])


class AnswerWorker:
    """Answers in an event loop; ``report`` gets a line if nothing can be answered."""

    def __init__(self, deployment: Deployment, report: Callable[[str], object] = lambda _: None) -> None:
        self.deployment, self._report = deployment, report
        self.trouble = ""  # the reason why nothing is answered at the moment, without votes or labels
        self.answered = 0  # questions since the start
        self._requests: deque[tuple[Callable[[], Any], asyncio.Future[Any]]] = deque()  # acts, and their results
        self._futures: WeakValueDictionary[str, asyncio.Future[Row]] = WeakValueDictionary()  # while a caller waits
        self._ended_count = 0  # questions that the last commit ended
        self._retry_at, self._is_stopping = 0.0, False
        self._remaining: tuple[float, int] = (-_COUNT_SECONDS, 0)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._questions = Questions(deployment.state, deployment.ballot)
        try:
            self._stream: _Stream | None = self._open()
        except BaseException as error:
            self._questions.close()
            if isinstance(error, sqlite3.DatabaseError):
                raise LedgerError(str(deployment.state), f"the questions are damaged ({error})") from error
            raise

    def _open(self) -> _Stream:
        return _Stream(self.deployment, self._questions, self._keep)

    def start(self) -> None:
        self._loop, self._arrived, self._counting = asyncio.get_running_loop(), asyncio.Event(), asyncio.Lock()
        self._task = self._loop.create_task(self._run(self._loop))

    async def stop(self) -> None:
        self._is_stopping = True
        self._arrived.set()
        await self._task
        self.close()

    def close(self) -> None:
        self._questions.close()

    async def do(self, act: Callable[Concatenate[Questions, P], T], *values: P.args, **keywords: P.kwargs) -> T:
        """Return the result of an action when it is durable."""
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._requests.append((partial(act, self._questions, *values, **keywords), future))
        self._arrived.set()
        return await future

    def wait_for(self, name: str) -> asyncio.Future[Row]:
        """Call this before reading the question: the future gets ends that come later."""
        return self._futures.setdefault(name, asyncio.get_running_loop().create_future())

    async def left(self) -> int:
        """Count the questions that the budget admitted at most two seconds ago."""
        async with self._counting:
            counted_at, remaining = self._remaining
            if time.monotonic() - counted_at >= _COUNT_SECONDS:
                remaining = await asyncio.to_thread(self._count_left)
                self._remaining = time.monotonic(), remaining
            return remaining

    def _count_left(self) -> int:
        ledger = PrivacyLedger(self.deployment.ledger)
        return ledger.queries_that_fit(self.deployment.aggregator.privacy_cost(1))

    async def _run(self, loop: asyncio.AbstractEventLoop) -> None:
        pause = 0.0
        with ThreadPoolExecutor(1, "darrm.serve") as thread:
            while not self._is_stopping:
                await self._wait(pause)
                pause = await loop.run_in_executor(thread, self._take_turn, pause == LONGEST_PAUSE)

    async def _wait(self, seconds: float) -> None:
        """Wait for a request, then for the requests of clients that were just answered."""
        deadline = time.monotonic() + seconds + _MAX_GATHERS * _GATHER_SECONDS
        with suppress(TimeoutError):
            if not self._requests and not self._is_stopping:
                await self._next_request(seconds)
            while seconds and len(self._requests) < self._ended_count and time.monotonic() < deadline:
                await self._next_request(_GATHER_SECONDS)

    async def _next_request(self, seconds: float) -> None:
        self._arrived.clear()
        async with asyncio.timeout(seconds):
            await self._arrived.wait()

    def _take_turn(self, is_idle: bool) -> float:
        """Keep what arrived, answer what is ready; return seconds until the next turn."""
        try:
            is_idle = is_idle and not self._requests
            self._keep(())
            if is_idle:
                self._questions.fold()
            if time.monotonic() >= self._retry_at and self._answer():
                return _GATHER_SECONDS
            deadline = self._questions.next_deadline()
            return LONGEST_PAUSE if deadline is None else min(LONGEST_PAUSE, max(0.0, deadline - self._questions.now()))
        except Exception as error:  # noqa: BLE001 (a full disk, a ledger that is away: what waits is asked again)
            is_ours = isinstance(error, (DarrmError, OSError, sqlite3.Error))  # others' words may show votes
            self.trouble = str(error)[:500] if is_ours else "a fault; do table, --classes and --missing fit?"
            self._retry_at = math.inf if isinstance(error, TakenError) else time.monotonic() + _RETRY
            self._stream = None
            self._report_line(f"nothing was answered ({type(error).__name__}: {self.trouble}); what waits is kept")
            return LONGEST_PAUSE

    def _report_line(self, text: str) -> None:
        with suppress(OSError):  # standard error may be gone
            self._report(text)

    def _keep(self, ends: Sequence[End]) -> None:
        """Keep ends and run waiting requests in one commit, then notify the loop."""
        requests = [self._requests.popleft() for _ in range(len(self._requests))]
        ended_rows: list[Row] = []
        outcomes: list[Any] = []
        try:
            with self._questions.transaction():
                rows = [row for end in ends if (row := self._questions.settle(end)) is not None]
                rows += self._questions.close_due(self._questions.now())
                outcomes = [self._run_request(act) for act, _ in requests]
            ended_rows = rows
        except BaseException as error:
            outcomes = [error] * len(requests)
            raise
        finally:
            self._ended_count = len(ended_rows)
            if self._loop is not None and (ended_rows or requests):
                self._loop.call_soon_threadsafe(self._notify, ended_rows, [future for _, future in requests], outcomes)

    def _run_request(self, act: Callable[[], object]) -> object:
        """Return the result, or the exception that undid the request."""
        try:
            with self._questions.step():
                return act()
        except Exception as error:
            if not self._questions.is_in_transaction:  # the others' work was undone, too
                raise
            return error

    def _notify(self, ended_rows: list[Row], futures: list[asyncio.Future[Any]], outcomes: list[Any]) -> None:
        for row in ended_rows:
            if (waiter := self._futures.pop(row["id"], None)) is not None:
                waiter.set_result(row)
        for future, outcome in zip(futures, outcomes, strict=True):
            if future.done():  # its caller has stopped waiting
                continue
            if isinstance(outcome, BaseException):
                future.set_exception(outcome)
            else:
                future.set_result(outcome)

    def _answer(self) -> bool:
        """Return whether there were ready questions."""
        if self._stream is None:
            self._stream = self._open()
        names = self._questions.ready(MOST_TOGETHER)
        self.trouble = ""
        if names and not self._answer_together(self._stream, names):
            for name in names:
                if not self._answer_together(self._stream, [name]):
                    self._report_line("a question ends without a label: it cannot be answered")
                    self._keep([End(name, "failed")])
        return bool(names)

    def _answer_together(self, stream: _Stream, names: Sequence[str]) -> bool:
        """Answer questions with one debit; False if one of them cannot be answered, and nothing is paid."""
        try:
            names, votes = self._questions.votes_on(names)
            self.answered += len(stream.answer_together(votes, names))
        except BudgetExceededError:
            self._keep([End(name, "refused") for name in names])
        except _RETRIED_ERRORS:
            raise
        except Exception:  # noqa: BLE001 (any fault of the votes)
            stream.check_turn()
            return False
        return True
