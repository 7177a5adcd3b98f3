"""Bad requests to a server: bytes that are no HTTP, bodies, ids and tokens that are none, what is sent again."""

import atexit
import json
import shutil
import socket
import tempfile
import threading
import time
from functools import cache
from pathlib import Path
from random import Random
from typing import Any
from urllib.parse import quote

from darrm.serve import app as app_module
from darrm.serve import requests
from darrm.serve.app import Service, configured, listen
from darrm.serve.worker import AnswerWorker
from tests.fuzz.harness import Case
from tests.serve.deployments import deployment, paid, tokens_of

WAIT = 20.0  # seconds
PATIENCE = 0.3  # of the server with bodies that do not end, and with questions that wait for votes
STATUSES = {200, 201, 400, 401, 402, 403, 404, 405, 408, 409, 413, 429, 431}
PATHS = """/ /ask /ask /ask /questions /questions /questions/q/vote /questions/q /questions/q?wait=0 /metrics /budget
/health /docs /questions?open=1 /questions/q?wait=nan /questions/q?wait=x""".split()  # noqa: SIM905
NAMES = ["q", "q", "'; DROP TABLE questions;--", '" OR 1=1', "a/../b", "%00", "\u202e", "x" * 101, "", "é", "-", "{}"]


@cache
def server() -> tuple[tuple[str, int], dict[str, str], Any]:
    folder, requests.LONGEST_POLL, app_module.BODY_SECONDS = Path(tempfile.mkdtemp()), PATIENCE, PATIENCE
    tokens, what = tokens_of(folder / "clients.json"), deployment(folder)
    listener = listen("127.0.0.1", 0)
    web = configured(Service(AnswerWorker(what), folder / "clients.json").app)
    thread = threading.Thread(target=web.run, args=([listener],), daemon=True)
    thread.start()
    while not web.started:
        time.sleep(0.005)

    def end() -> None:
        web.should_exit = True
        thread.join()
        shutil.rmtree(folder)

    atexit.register(end)
    return listener.getsockname(), tokens, what


def say(raw: bytes, wait: float = WAIT) -> tuple[int, bytes]:
    """Send bytes; return the status, 0 for none, and what came back."""
    with socket.create_connection(server()[0], timeout=wait) as link:
        try:
            link.sendall(raw)
            answer = b""
            while piece := link.recv(2**16):
                answer += piece
        except ConnectionError:  # hung up while we sent
            return 0, b""
        except TimeoutError:  # a head that does not end, which a proxy would end
            if wait == WAIT:
                raise
            return 0, b""
    head, _, body = answer.partition(b"\r\n\r\n")
    return int(head.split()[1]) if head.startswith(b"HTTP/1.1 ") else 0, body


def request(rng: Random, values: Any, mutated: Any) -> tuple[str, Case]:
    """A request of a known client or of nobody, some of whose words, or bytes, are wrong."""
    kind, given = rng.choice(["votes", "counts", "seconds"]), rng.choice([[1, 1, 0], [1, 2], 60])
    question = {"id": rng.choice(NAMES), kind: given}
    for _ in range(rng.randrange(3)):
        question[rng.choice(["id", "text", "votes", "counts", "seconds", "vote", "asker"])] = rng.choice(values)(rng)
    wrong = rng.choice(values)(rng)
    body = rng.choice([[question], question, {"vote": wrong}, wrong, [question] * 2])
    sent = json.dumps(body).encode()
    sent = mutated(sent, rng) if rng.random() < 0.2 else sent
    method, path = rng.choice(["GET", "POST", "POST", "PUT", "DELETE", "HEAD", "X"]), rng.choice(PATHS)
    path = path.replace("/q", f"/{quote(rng.choice(NAMES), safe='')}", 1) if path.startswith("/questions/") else path
    client = rng.choice(["study", "study", "voter1", "reader", "small1", ""])
    length = rng.choice([len(sent)] * 6 + [10**9, -1, len(sent) + 1])
    wild = rng.random() < 0.2
    seed = rng.random()

    def case() -> None:
        token = server()[1].get(client, "0" * 64)
        raw = f"{method} {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\nAuthorization: Bearer {token}\r\n"
        whole = raw.encode() + f"Content-Length: {length}\r\n\r\n".encode() + sent
        if wild:
            whole = mutated(whole, Random(seed))  # noqa: S311 (repeated)
        status, answer = say(whole, 5 * PATIENCE if wild else WAIT)
        if status not in STATUSES and not (status == 0 and (wild or length != len(sent))):
            raise AssertionError(f"status {status}: {answer[:500]!r}")
        if status == 200 and path == "/ask" and not wild and say(whole) != (status, answer):
            raise AssertionError("the same again is answered otherwise")
        if say(b"GET /health HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")[0] != 200:
            raise AssertionError("it does not answer any more")
        names = paid(server()[2])
        if len(names) != len(set(names)):
            raise AssertionError("an id was paid for twice")

    return f"{method} {path} of {client or 'nobody'}, length {length}, wild {wild}: {sent[:500]!r}", case
