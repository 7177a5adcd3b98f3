"""Servers, clients and one ledger as a discrete-event simulation with measured costs.

A server's interpreter reads and writes requests, one after the other. Its desk takes up to 256 of those that arrived,
keeps them (one sync of its disk), waits for its turn at the ledger, which all servers share, debits, and keeps the
labels (a second sync). It computes in the same interpreter; both threads share it evenly while both have work. Clients
are a network away, and ask again after each answer, or arrive at random.
"""

import heapq
import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from darrm.serve.worker import MOST_TOGETHER

SEED = 7


@dataclass(frozen=True)
class Costs:
    """Seconds: of the interpreter for a request, to keep and to settle a question, of a debit and of its questions."""

    request: float
    keep: float
    settle: float
    debit: float
    question: float  # of a debit, each
    wait: float  # of a debit, for its disk or its server
    sync: float
    network: float = 0.0  # one way


@dataclass
class Simulation:
    """``servers`` with ``clients`` clients each, or with requests that arrive at random at a total ``rate``."""

    costs: Costs
    servers: int = 1
    clients: int = 32
    rate: float = 0.0
    together: int = 1  # questions of a request
    now: float = 0.0
    times: list[float] = field(default_factory=list)

    def run(self, seconds: float) -> dict[str, float]:
        """Return answers a second, quantiles of their times, and the share of the time that each part is busy."""
        self._events: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._queues: list[deque[float]] = [deque() for _ in range(self.servers)]
        self._free, self._works = [0.0] * self.servers, [False] * self.servers
        self._ledger, self._dice = 0.0, random.Random(SEED)  # noqa: S311 (repeated)
        self._busy = {"interpreter": 0.0, "desk": 0.0, "ledger": 0.0}
        for server in range(self.servers):
            for _ in range(0 if self.rate else self.clients):
                self._at(self._dice.random() * 0.01, self._arrive, server)
        if self.rate:
            self._arrive_randomly()
        while self._events and self._events[0][0] < seconds:
            self.now, _, act, arguments = heapq.heappop(self._events)
            act(*arguments)
        times = sorted(self.times) or [float("inf")]
        return {
            "answers_a_second": len(self.times) * self.together / seconds,
            "p50_milliseconds": 1000 * times[len(times) // 2],
            "p99_milliseconds": 1000 * times[int(0.99 * len(times))],
            # what began may end after the time
            **{
                name: min(1.0, busy / seconds / (1 if name == "ledger" else self.servers))
                for name, busy in self._busy.items()
            },
        }

    def _at(self, seconds: float, act: Callable[..., None], *arguments: Any) -> None:
        order = len(self.times) + self._dice.getrandbits(60)
        heapq.heappush(self._events, (self.now + seconds, order, act, arguments))

    def _arrive_randomly(self) -> None:
        server = self._dice.randrange(self.servers)
        self._at(0.0, self._arrive, server)
        self._at(self._dice.expovariate(self.rate), self._arrive_randomly)

    def _compute(self, server: int, work: float) -> float:
        """Let the worker compute in turns with waiting requests; return the seconds that it takes."""
        return work + min(work, self._queue(server, work) - work)

    def _queue(self, server: int, work: float) -> float:
        """Give the interpreter more work; return the seconds until all of it is done."""
        self._free[server] = max(self.now, self._free[server]) + work
        self._busy["interpreter"] += work
        return self._free[server] - self.now

    def _arrive(self, server: int) -> None:
        """Send a request, which the interpreter reads, and later answers."""
        born = self.now

        def queue() -> None:
            self._queues[server].append(born)
            if not self._works[server]:
                self._works[server] = True
                self._at(0.0, self._keep, server)

        def read() -> None:
            self._at(self._queue(server, self.costs.request), queue)

        self._at(self.costs.network, read)

    def _keep(self, server: int) -> None:
        queue, most = self._queues[server], max(1, MOST_TOGETHER // self.together)
        batch = [queue.popleft() for _ in range(min(most, len(queue)))]
        self._works[server] = bool(batch)
        if batch:
            taken = self.costs.sync + self._compute(server, self.costs.keep * len(batch) * self.together)
            self._busy["desk"] += taken
            self._at(taken, self._debit, server, batch)

    def _debit(self, server: int, batch: list[float]) -> None:
        """Wait for the turn, pay, and keep the labels."""
        questions = len(batch) * self.together
        taken = self.costs.wait + self._compute(server, self.costs.debit + self.costs.question * questions)
        begin = max(self.now, self._ledger)
        self._ledger = begin + taken
        self._busy["ledger"] += taken
        kept = self.costs.sync + self.costs.settle * questions
        self._compute(server, self.costs.settle * questions)
        self._busy["desk"] += taken + kept  # and not while it waits for others' turns
        self._at(self._ledger - self.now + kept, self._answer, server, batch)

    def _answer(self, server: int, batch: list[float]) -> None:
        for born in batch:
            self.times.append(self.now + self.costs.network - born)
            if not self.rate:
                self._at(self.costs.network, self._arrive, server)
        self._at(0.0, self._keep, server)
