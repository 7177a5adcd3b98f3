"""Clients that ask one question at a time, each over a connection of its own: as little work as there can be.

All of them share one thread and one interpreter, so that what is measured is the server: a request is bytes that were
made before, an answer is searched for ``answered``.
"""

import selectors
import socket
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from statistics import median

_GIVE_UP = 60.0  # seconds without any answer


@dataclass
class _Asker:
    """One client: its connection, and what it has of the answer that it waits for."""

    link: socket.socket
    number: int
    count: int = 0
    begin: float = 0.0
    got: bytearray = field(default_factory=bytearray)


@dataclass(frozen=True)
class Load:
    """Who asks whom, and how many questions in one request."""

    port: int
    token: str
    name: str  # begins every id, so that no two loads ask the same
    clients: int = 32
    together: int = 1
    gap: float = 0.0  # seconds from one request to the next, of all clients; 0 for as fast as answers come

    def run(self, seconds: float = float("inf"), most: float = float("inf")) -> "Answers":
        """Ask for so many seconds, or until so many requests are sent; return what came back."""
        answers, begin, sent, asking = Answers(), time.perf_counter(), 0, 0
        with selectors.DefaultSelector() as selector:
            idle = deque(self._connect(selector, number) for number in range(self.clients))
            while True:
                now = time.perf_counter()
                is_over = now - begin >= seconds or sent >= most
                while idle and not is_over and now >= begin + sent * self.gap:
                    self._ask(idle.popleft())
                    sent, asking, is_over = sent + 1, asking + 1, sent + 1 >= most
                if is_over and not asking:
                    break
                pause = begin + sent * self.gap - now if idle and not is_over else _GIVE_UP
                events = selector.select(max(0.0, pause))
                if not events and pause == _GIVE_UP:
                    raise SystemExit(f"the server said nothing for {_GIVE_UP:g} seconds")
                for asker in _answered(events):
                    answers.note(time.perf_counter() - asker.begin, bytes(asker.got))
                    asker.got.clear()
                    idle.append(asker)
                    asking -= 1
            for asker in idle:
                asker.link.close()
        answers.seconds = time.perf_counter() - begin
        return answers

    def _connect(self, selector: selectors.BaseSelector, number: int) -> _Asker:
        """Open the connection of a client."""
        asker = _Asker(socket.create_connection(("127.0.0.1", self.port)), number)
        asker.link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        selector.register(asker.link, selectors.EVENT_READ, asker)
        return asker

    def _ask(self, asker: _Asker) -> None:
        """Send the next question, or several."""
        asker.count += 1
        name = f"{self.name}-{asker.number}-{asker.count}"
        rows = ",".join(f'{{"id":"{name}-{n}","votes":[1,1,0]}}' for n in range(self.together))
        body = f"[{rows}]"
        asker.begin = time.perf_counter()
        asker.link.sendall(
            f"POST /ask HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {self.token}\r\n"
            f"Content-Length: {len(body)}\r\n\r\n{body}".encode()
        )


def _answered(events: list[tuple[selectors.SelectorKey, int]]) -> Iterator[_Asker]:
    """Read what there is; yield whose answer is whole."""
    for key, _ in events:
        asker: _Asker = key.data
        piece = asker.link.recv(2**20)
        if not piece:
            raise SystemExit("the server hung up")
        asker.got += piece
        head, end, body = asker.got.partition(b"\r\n\r\n")
        if end and len(body) >= int(head.lower().partition(b"content-length:")[2].split(b"\r\n")[0]):
            yield asker


class Answers:
    """What came back: how long each request took, and how many questions have which end."""

    def __init__(self) -> None:
        self.taken: list[float] = []
        self.answered, self.refused, self.seconds = 0, 0, 0.0

    def note(self, taken: float, answer: bytes) -> None:
        """Count an answer; `SystemExit` for one that is none."""
        answered, refused = answer.count(b'"state":"answered"'), answer.count(b'"state":"refused"')
        if not answered + refused:
            raise SystemExit(f"the server answered {answer[:200]!r}")
        self.taken.append(taken)
        self.answered += answered
        self.refused += refused

    def milliseconds(self, share: float) -> float:
        """Return the quantile of the times."""
        return 1000 * sorted(self.taken)[min(len(self.taken) - 1, int(share * len(self.taken)))]


def middle(runs: list[Answers]) -> dict[str, float]:
    """Return medians over the runs."""
    return {
        "answers_a_second": median(run.answered / run.seconds for run in runs),
        "p50_milliseconds": median(run.milliseconds(0.5) for run in runs),
        "p99_milliseconds": median(run.milliseconds(0.99) for run in runs),
    }
