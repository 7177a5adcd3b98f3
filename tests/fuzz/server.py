"""Fuzz the server: invalid HTTP, bodies, ids and tokens, and repeated requests."""

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
from darrm.serve.app import Service, listen, make_server
from darrm.serve.worker import AnswerWorker
from tests.fuzz.harness import Case
from tests.serve.deployments import deployment, paid, tokens_of

MAX_WAIT = 20.0  # seconds
TIMEOUT = 0.3  # seconds of the server for incomplete bodies, and for questions without votes
STATUSES = {200, 201, 400, 401, 402, 403, 404, 405, 408, 409, 413, 429, 431}
PATHS = """/ /ask /ask /ask /questions /questions /questions/q/vote /questions/q /questions/q?wait=0 /metrics /budget
/health /docs /questions?open=1 /questions/q?wait=nan /questions/q?wait=x""".split()  # noqa: SIM905
NAMES = ["q", "q", "'; DROP TABLE questions;--", '" OR 1=1', "a/../b", "%00", "\u202e", "x" * 101, "", "é", "-", "{}"]


@cache
def server() -> tuple[tuple[str, int], dict[str, str], Any]:
    folder, requests.LONGEST_POLL, app_module.BODY_SECONDS = Path(tempfile.mkdtemp()), TIMEOUT, TIMEOUT
    tokens, deployed = tokens_of(folder / "clients.json"), deployment(folder)
    listener = listen("127.0.0.1", 0)
    web_server = make_server(Service(AnswerWorker(deployed), folder / "clients.json").app)
    thread = threading.Thread(target=web_server.run, args=([listener],), daemon=True)
    thread.start()
    while not web_server.started:
        time.sleep(0.005)

    def stop() -> None:
        web_server.should_exit = True
        thread.join()
        shutil.rmtree(folder)

    atexit.register(stop)
    return listener.getsockname(), tokens, deployed


def send(raw: bytes, wait: float = MAX_WAIT) -> tuple[int, bytes]:
    """Send bytes; return the status (0 if there is none) and the body."""
    with socket.create_connection(server()[0], timeout=wait) as connection:
        try:
            connection.sendall(raw)
            response = b""
            while chunk := connection.recv(2**16):
                response += chunk
        except ConnectionError:  # the server closed the connection
            return 0, b""
        except TimeoutError:  # an incomplete head; a proxy would end it
            if wait == MAX_WAIT:
                raise
            return 0, b""
    head, _, body = response.partition(b"\r\n\r\n")
    return int(head.split()[1]) if head.startswith(b"HTTP/1.1 ") else 0, body


def make_request(rng: Random, values: Any, mutated: Any) -> tuple[str, Case]:
    """Make a request, with or without a known client, that has some wrong values or bytes."""
    kind, value = rng.choice(["votes", "counts", "seconds"]), rng.choice([[1, 1, 0], [1, 2], 60])
    question = {"id": rng.choice(NAMES), kind: value}
    for _ in range(rng.randrange(3)):
        question[rng.choice(["id", "text", "votes", "counts", "seconds", "vote", "asker"])] = rng.choice(values)(rng)
    bad_value = rng.choice(values)(rng)
    body = rng.choice([[question], question, {"vote": bad_value}, bad_value, [question] * 2])
    payload = json.dumps(body).encode()
    payload = mutated(payload, rng) if rng.random() < 0.2 else payload
    method, path = rng.choice(["GET", "POST", "POST", "PUT", "DELETE", "HEAD", "X"]), rng.choice(PATHS)
    path = path.replace("/q", f"/{quote(rng.choice(NAMES), safe='')}", 1) if path.startswith("/questions/") else path
    client = rng.choice(["study", "study", "voter1", "reader", "small1", ""])
    length = rng.choice([len(payload)] * 6 + [10**9, -1, len(payload) + 1])
    is_mutated = rng.random() < 0.2
    seed = rng.random()

    def case() -> None:
        token = server()[1].get(client, "0" * 64)
        raw = f"{method} {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\nAuthorization: Bearer {token}\r\n"
        message = raw.encode() + f"Content-Length: {length}\r\n\r\n".encode() + payload
        if is_mutated:
            message = mutated(message, Random(seed))  # noqa: S311 (repeated)
        status, response = send(message, 5 * TIMEOUT if is_mutated else MAX_WAIT)
        if status not in STATUSES and not (status == 0 and (is_mutated or length != len(payload))):
            raise AssertionError(f"status {status}: {response[:500]!r}")
        if status == 200 and path == "/ask" and not is_mutated and send(message) != (status, response):
            raise AssertionError("the same again is answered otherwise")
        if send(b"GET /health HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")[0] != 200:
            raise AssertionError("it does not answer any more")
        names = paid(server()[2])
        if len(names) != len(set(names)):
            raise AssertionError("an id was paid for twice")

    return f"{method} {path} of {client or 'nobody'}, length {length}, wild {is_mutated}: {payload[:500]!r}", case
