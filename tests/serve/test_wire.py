"""What clients send byte by byte: requests within requests, heads and bodies that are too long, idle connections."""

import resource
import socket
import time
from collections.abc import Iterator
from contextlib import suppress
from itertools import product
from pathlib import Path

import pytest

pytest.importorskip("uvicorn", reason="needs the extra serve")
pytest.importorskip("httpx", reason="needs the extra serve")
from darrm.serve import app
from darrm.serve.app import allow_connections
from tests.serve.test_app import Endpoint


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Endpoint]:
    monkeypatch.setattr(app, "BODY_SECONDS", 0.3)
    endpoint = Endpoint(tmp_path)
    yield endpoint
    endpoint.close()


def connected(server: Endpoint) -> socket.socket:
    return socket.create_connection(("127.0.0.1", server.port), timeout=10)


def known(server: Endpoint) -> bytes:
    return f"Host: a\r\nAuthorization: Bearer {server.tokens['study']}\r\n".encode()


def all_of(link: socket.socket) -> bytes:
    answer = b""
    with suppress(OSError):
        while piece := link.recv(2**16):
            answer += piece
    return answer


def test_the_body_of_a_request_to_upgrade_is_no_request(server: Endpoint) -> None:
    inner = b"GET /questions HTTP/1.1\r\n" + known(server) + b"\r\n"
    upgrade = b"Connection: Upgrade\r\nUpgrade: h2c\r\nContent-Length: %d\r\n\r\n" % len(inner)
    for path, pause in product((b"/ask", b"/health", b"/no/such"), (0.0, 0.05)):
        with connected(server) as link:
            link.sendall(b"POST " + path + b" HTTP/1.1\r\n" + known(server) + upgrade)
            time.sleep(pause)  # a segment of its own
            with suppress(OSError):
                link.sendall(inner)
            answer = all_of(link)
        assert answer.count(b"HTTP/1.1 ") == 1, (path, pause)
        assert answer.startswith(b"HTTP/1.1 400 "), (path, pause)


def test_headers_and_addresses_beyond_the_limit_are_refused(server: Endpoint) -> None:
    for path, length in product((b"/questions", b"/health", b"/docs"), (15_000, 17_000, 44_000, 100_000)):
        for first, header in ((path + b"?x=" + b"a" * length, b""), (path, b"X: " + b"a" * length + b"\r\n")):
            with connected(server) as link:
                link.sendall(b"GET " + first + b" HTTP/1.1\r\n" + known(server) + header + b"\r\n")
                status = int(link.recv(100).split()[1])
            # an address beyond 64 KiB is none to the parser
            assert status in ({200} if length == 15_000 else {431, 400}), (path, length)


def test_a_gigabyte_and_a_body_that_never_ends_are_refused(server: Endpoint) -> None:
    for length, status in ((10**9, b" 413 "), (10, b" 408 ")):
        with connected(server) as link:
            link.sendall(b"POST /ask HTTP/1.1\r\n" + known(server) + b"Content-Length: %d\r\n\r\n[" % length)
            assert status in link.recv(4096)[:20]


def test_idle_connections_of_strangers_stop_nobody(server: Endpoint) -> None:
    allow_connections()
    links = [connected(server) for _ in range(1100)]
    try:
        for _ in range(3):
            assert server.http.get("/health").status_code == 200
            assert server.call("study", "GET", "/budget").status_code == 200
    finally:
        for link in links:
            link.close()


def test_the_limit_of_open_files_is_raised_where_it_may(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[tuple[int, int]] = []
    monkeypatch.setattr(resource, "setrlimit", lambda _, limits: made.append(limits))
    for soft, hard in ((1024, 524288), (1024, 2048), (1024, resource.RLIM_INFINITY), (65536, 65536)):
        monkeypatch.setattr(resource, "getrlimit", lambda _, limits=(soft, hard): limits)
        allow_connections()
    assert made == [(8192, 524288), (2048, 2048), (8192, resource.RLIM_INFINITY)]
