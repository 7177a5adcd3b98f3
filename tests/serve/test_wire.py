"""What clients send byte by byte: requests within requests, heads and answers without end, too many connections."""

import resource
import socket
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

pytest.importorskip("uvicorn", reason="needs the extra serve")
pytest.importorskip("httpx", reason="needs the extra serve")
from darrm.serve import server as server_module
from darrm.serve.app import Limits
from darrm.serve.server import allow_connections
from tests.serve.test_app import Endpoint


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Endpoint]:
    monkeypatch.setattr(server_module, "HEADER_SECONDS", 1.0)  # and between requests
    endpoint = Endpoint(tmp_path, 1000, Limits(rate=1e6, body_seconds=0.4))
    monkeypatch.setattr(server_module, "HEADER_SECONDS", 0.2)
    yield endpoint
    endpoint.close()


def connected(server: Endpoint, *, receives: int = 0) -> socket.socket:
    link = socket.socket()
    if receives:
        link.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receives)
    link.settimeout(10)
    link.connect(("127.0.0.1", server.port))
    return link


def known(server: Endpoint) -> bytes:
    return f"Host: a\r\nAuthorization: Bearer {server.tokens['study']}\r\n".encode()


def all_of(link: socket.socket) -> bytes:
    answer = b""
    with suppress(OSError):
        while piece := link.recv(2**16):
            answer += piece
    return answer


def until_gone(server: Endpoint, seconds: float = 10.0) -> bool:
    """Whether the server holds no connection any more."""
    until = time.monotonic() + seconds
    while server.server.server_state.connections and time.monotonic() < until:
        time.sleep(0.01)
    return not server.server.server_state.connections


def test_the_body_of_a_request_to_upgrade_is_no_request(server: Endpoint) -> None:
    inner = b"GET /questions HTTP/1.1\r\n" + known(server) + b"\r\n"
    upgrade = b"Connection: Upgrade\r\nUpgrade: h2c\r\nContent-Length: %d\r\n\r\n" % len(inner)
    with connected(server) as link:
        link.sendall(b"POST /ask HTTP/1.1\r\n" + known(server) + upgrade)
        time.sleep(0.05)  # a segment of its own
        with suppress(OSError):
            link.sendall(inner)
        answer = all_of(link)
    assert answer.count(b"HTTP/1.1 ") == 1
    assert answer.startswith(b"HTTP/1.1 400 ")


def test_a_token_behind_the_body_lets_nobody_in(server: Endpoint) -> None:
    trailer = known(server).split(b"\r\n", 1)[1]
    with connected(server) as link:
        link.sendall(b"GET /budget HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n" + trailer + b"\r\n")
        assert link.recv(100).startswith(b"HTTP/1.1 401 ")


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize(
    ("first", "then"),
    [
        (b"GET /questions/q?wait=0.4 HTTP/1.1\r\n%s\r\n", b"GET / HTTP/1.1\r\n"),  # headers behind a long poll
        (b"POST /ask HTTP/1.1\r\n%sTransfer-Encoding: chunked\r\n\r\n", b"0\r\n"),  # trailers
    ],
)
def test_headers_without_end_are_hung_up_on_behind_a_request_too(server: Endpoint, first: bytes, then: bytes) -> None:
    server.call("study", "POST", "/questions", {"id": "q", "seconds": 3600})
    with connected(server) as link:
        link.sendall(first % known(server))
        time.sleep(0.05)
        with suppress(OSError):
            link.sendall(then)
            for _ in range(1000):
                link.sendall(b"X: " + b"a" * 1000 + b"\r\n")
        assert all_of(link) == b""  # hung up on before there was an answer


def test_a_body_that_was_refused_unread_is_taken_for_no_headers_and_ends(server: Endpoint) -> None:
    with connected(server) as link:
        link.sendall(b"POST /ask HTTP/1.1\r\nHost: a\r\nContent-Length: 100000000\r\n\r\n")
        assert b" 401 " in link.recv(20)
        for _ in range(10):
            link.sendall(b"a" * 50_000)
        assert b"too long" not in link.recv(2**16)  # the rest of the answer
        sent = 0
        with suppress(OSError):
            while sent < 50_000_000:
                sent += link.send(b"a" * 50_000)
        assert sent < 40_000_000


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize(("answers", "last"), [(5000, b""), (15, b"Connection: close\r\n")])
def test_whoever_reads_no_answer_is_hung_up_on(server: Endpoint, answers: int, last: bytes) -> None:
    page = b"GET /docs HTTP/1.1\r\nHost: a\r\n"
    server.server.servers[0].sockets[0].setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    with connected(server, receives=4096) as link:
        link.setblocking(False)
        with suppress(OSError):
            link.sendall((page + b"\r\n") * (answers - 1) + page + last + b"\r\n")
        time.sleep(0.1)
        assert server.server.server_state.connections
        assert until_gone(server)


@pytest.mark.slow
def test_whoever_reads_slowly_gets_it_all(server: Endpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_module, "HEADER_SECONDS", 1.0)
    for n in range(200):
        server.call("study", "POST", "/questions", {"id": f"q{n}", "seconds": 3600, "text": "x" * 2000})
    server.server.servers[0].sockets[0].setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    answer = b""
    with connected(server, receives=4096) as link:
        link.sendall(b"GET /questions HTTP/1.1\r\nConnection: close\r\n" + known(server) + b"\r\n")
        while piece := link.recv(2**13):
            answer += piece
            time.sleep(0.03)
    assert answer.count(b'"text"') == 200
    assert answer.endswith(b"]")


def test_connections_beyond_a_number_are_hung_up_on(server: Endpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_module, "HEADER_SECONDS", 60.0)
    monkeypatch.setattr(server_module, "_MOST_CONNECTIONS", 2)
    links, answers = [connected(server) for _ in range(8)], []
    for link in links:
        with suppress(OSError):
            link.sendall(b"GET /health HTTP/1.1\r\nHost: a\r\n\r\n")
            answers.append(link.recv(20))
    assert sum(b" 200 " in answer for answer in answers) == 4
    for link in links:
        link.close()


def test_the_limit_of_open_files_is_raised_where_it_may(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[tuple[int, int]] = []
    monkeypatch.setattr(resource, "setrlimit", lambda _, limits: made.append(limits))
    for soft, hard in ((1024, 524288), (1024, 2048), (1024, resource.RLIM_INFINITY), (65536, 65536)):
        monkeypatch.setattr(resource, "getrlimit", lambda _, limits=(soft, hard): limits)
        allow_connections()
    assert made == [(4096, 524288), (2048, 2048), (4096, resource.RLIM_INFINITY)]
