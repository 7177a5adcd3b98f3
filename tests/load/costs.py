"""Seconds of one server's steps: drawing, a debit, keeping questions, a vote; the costs of the simulation."""

import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from darrm.aggregator import Aggregator, load_release
from darrm.ledger.ledger import PrivacyLedger, StreamCursor
from darrm.serve.clients import Client
from darrm.serve.questions import End, Questions, VoteSchema
from darrm.serve.requests import Question
from darrm.votes import Votes
from experiments.pages import Row
from tests.load.processes import STORES, place, sync_milliseconds

FEW, MANY = 1, 256  # questions together
_TIMES = 15
_ASKER = Client("load", "0" * 64, questions=10**9)


def milliseconds(act: Callable[[int], object], clock: Callable[[], float] = time.thread_time) -> float:
    taken = []
    for number in range(_TIMES):
        begin = clock()
        act(number)
        taken.append(clock() - begin)
    return 1000 * median(taken)


def measure(folder: Path) -> Iterator[Row]:
    for store in STORES:
        with place(folder / f"costs{store}", store, 10**6) as here:
            payer = _Payer(load_release(here.folder / "table.json"), PrivacyLedger(here.ledger))
            pairs: dict[str, list[float]] = {}
            for most in (FEW, MANY):
                taken = payer.milliseconds(most) | questions(here.folder / f"costs{most}", most)
                for name, value in taken.items():
                    pairs.setdefault(name, []).append(value)
            yield {"store": store, **pairs, "sync": sync_milliseconds(folder), "load": os.getloadavg()[0]}


@dataclass
class _Payer:
    release: Aggregator
    ledger: PrivacyLedger
    last: int = 0

    def milliseconds(self, most: int) -> dict[str, float]:
        votes, charge = Votes.of_labels([[1, 1, 0]] * most), self.release.privacy_cost(most)
        labels = self.release.release(votes)

        def debit(number: int) -> None:
            names = tuple(f"{most}-{number}-{place_}" for place_ in range(most))
            self.last = self.ledger.debit(
                charge, labels=labels, cursor=StreamCursor(StreamCursor.of("costs").stream, self.last, names)
            )

        drawn = milliseconds(lambda _: self.release.release(votes))
        waited = milliseconds(debit, time.perf_counter)
        return {"draw": drawn, "debit": waited, "debit_processor": milliseconds(lambda number: debit(number + _TIMES))}


def questions(path: Path, most: int) -> dict[str, float]:
    file = Questions(path, VoteSchema(2**20, 2, "coin"))

    def commit(act: Callable[[str], object], number: int) -> None:
        with file.transaction():
            for place_ in range(most):
                act(f"{number}-{place_}")

    def keep(name: str) -> None:
        with file.step():
            file.ask(Question(id=name, seconds=1e6), _ASKER, 0)

    def vote(name: str) -> None:
        with file.step():
            file.vote("0-0", 1 + hash(name) % 2**20, 1)

    taken = {
        "keep": milliseconds(lambda number: commit(keep, number)),
        "vote": milliseconds(lambda number: commit(vote, number)),
        "settle": milliseconds(lambda number: commit(lambda name: file.settle(End(name, "answered", 1)), number)),
    }
    file.close()
    return taken
