"""The nginx file of the deployment page: nginx runs with it, in front of a server, and limits what the page says."""

import shutil
import socket
import ssl
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

pytest.importorskip("uvicorn", reason="needs the extra serve")
pytest.importorskip("httpx", reason="needs the extra serve")
import httpx

from darrm.serve.client import ServeClient
from tests.serve.deployments import certificate_of
from tests.serve.test_app import Endpoint
from tests.serve.test_server import ROOT, free_port

NGINX = shutil.which("nginx", path="/usr/sbin:/usr/bin:/usr/local/sbin:/usr/local/bin")
pytestmark = [pytest.mark.slow, pytest.mark.skipif(NGINX is None, reason="needs nginx")]


class Proxied:
    def __init__(self, folder: Path) -> None:
        self.server = Endpoint(folder)
        self.port, (certificate, key) = free_port(), certificate_of(folder)
        text = (ROOT / "docs" / "deploy" / "nginx.conf").read_text(encoding="utf-8")
        for theirs, ours in (
            ("127.0.0.1:8765", f"127.0.0.1:{self.server.port}"),
            ("listen 443 ssl", f"listen 127.0.0.1:{self.port} ssl"),
            ("/etc/ssl/votes.example.org.pem", str(certificate)),
            ("/etc/ssl/votes.example.org.key", str(key)),
            ("client_header_timeout 10s", "client_header_timeout 1s"),  # waited for below
            ("client_body_timeout 20s", "client_body_timeout 1s"),
        ):
            assert theirs in text
            text = text.replace(theirs, ours)
        places = "".join(
            f"{name}_temp_path {folder}/{name};" for name in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
        )
        whole = f"daemon off; pid {folder}/pid; error_log {folder}/log; user root;\nworker_processes 1;\n"
        whole += f"events {{ worker_connections 512; }}\nhttp {{ {places}\n{text}\n}}\n"
        (folder / "nginx.conf").write_text(whole, encoding="utf-8")
        folder.chmod(0o755)
        self.process = subprocess.Popen([str(NGINX), "-c", folder / "nginx.conf", "-e", folder / "log"])
        self.trusted = ssl.create_default_context(cafile=certificate)
        until = time.monotonic() + 20
        while time.monotonic() < until:
            with suppress(OSError), socket.create_connection(("127.0.0.1", self.port)):
                break
            time.sleep(0.02)

    def connected(self) -> ssl.SSLSocket:
        link = socket.create_connection(("127.0.0.1", self.port), timeout=10)
        return self.trusted.wrap_socket(link, server_hostname="127.0.0.1")

    def close(self) -> None:
        self.process.terminate()
        self.process.wait(30)
        self.server.close()


@pytest.fixture
def proxied(tmp_path: Path) -> Iterator[Proxied]:
    proxy = Proxied(tmp_path)
    yield proxy
    proxy.close()


def test_questions_are_answered_through_it_and_slow_and_large_clients_are_not(proxied: Proxied) -> None:
    url, token = f"https://127.0.0.1:{proxied.port}", proxied.server.tokens["study"]
    with ServeClient(url, token, verify=proxied.trusted) as study:
        assert study.ask([{"id": "ward/4", "votes": [1, 1, 0]}])[0]["state"] == "answered"
        assert study.read("ward/4")["state"] == "answered"
    head = b"GET /health HTTP/1.1\r\nHost: a\r\n"
    for slow in (b"", b"GET /hea", head, b"POST /ask HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\n["):
        with proxied.connected() as link:
            link.sendall(slow)
            start = time.monotonic()
            with suppress(OSError):
                answer = link.recv(1000)
                assert answer == b"" or b" 408 " in answer[:20]
            assert time.monotonic() - start < 5
    for large, status in (
        (head + b"X: " + b"a" * 17_000 + b"\r\n\r\n", b" 400 "),
        (b"GET /" + b"a" * 10_000 + b" HTTP/1.1\r\nHost: a\r\n\r\n", b" 414 "),
        (b"POST /ask HTTP/1.1\r\nHost: a\r\nContent-Length: 100000000\r\n\r\n", b" 413 "),
    ):
        with proxied.connected() as link:
            link.sendall(large)
            assert status in link.recv(20)


def test_many_idle_connections_of_one_address_leave_health_answered(proxied: Proxied) -> None:
    links = [socket.create_connection(("127.0.0.1", proxied.port), timeout=10) for _ in range(600)]
    try:
        health = f"https://127.0.0.1:{proxied.port}/health"
        assert httpx.get(health, verify=proxied.trusted, timeout=20).status_code == 200
    finally:
        for link in links:
            link.close()


def test_an_address_has_a_number_of_requests_at_once(proxied: Proxied) -> None:
    proxied.server.call("study", "POST", "/questions", {"id": "q", "seconds": 3600})
    token = f"Authorization: Bearer {proxied.server.tokens['study']}\r\n".encode()
    waiting = [proxied.connected() for _ in range(50)]
    try:
        for link in waiting:
            link.sendall(b"GET /questions/q?wait=30 HTTP/1.1\r\nHost: a\r\n" + token + b"\r\n")
        time.sleep(0.5)
        url = f"https://127.0.0.1:{proxied.port}"
        assert httpx.get(f"{url}/questions", verify=proxied.trusted).status_code == 429
        assert httpx.get(f"{url}/health", verify=proxied.trusted).status_code == 200
    finally:
        for link in waiting:
            link.close()
