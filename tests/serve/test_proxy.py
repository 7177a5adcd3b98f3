"""The nginx file of the deployment page: nginx runs with it in front of a server, and keeps the limits of the page."""

import shutil
import socket
import ssl
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest

from darrm.serve.client import ServeClient
from tests.serve.deployments import ROOT, certificate_of, free_port, wait_until
from tests.serve.endpoints import Endpoint

httpx = pytest.importorskip("httpx", reason="needs the extra serve")

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
        kinds = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
        folders = "".join(f"{kind}_temp_path {folder}/{kind};" for kind in kinds)
        head = f"daemon off; pid {folder}/pid; error_log {folder}/log; user root;\nworker_processes 1;\n"
        http = f"events {{ worker_connections 512; }}\nhttp {{ {folders}\n{text}\n}}\n"
        (folder / "nginx.conf").write_text(head + http, encoding="utf-8")
        folder.chmod(0o755)
        self.process = subprocess.Popen([str(NGINX), "-c", folder / "nginx.conf", "-e", folder / "log"])
        self.authorization = f"Authorization: Bearer {self.server.tokens['study']}\r\n"
        self.trusted = ssl.create_default_context(cafile=certificate)
        wait_until(self.listens)

    def listens(self) -> bool:
        with suppress(OSError), socket.create_connection(("127.0.0.1", self.port)):
            return True
        return False

    def connect(self) -> ssl.SSLSocket:
        link = socket.create_connection(("127.0.0.1", self.port), timeout=10)
        return self.trusted.wrap_socket(link, server_hostname="127.0.0.1")

    def close(self) -> None:
        self.process.terminate()
        self.process.wait(30)
        self.server.close()


@pytest.fixture
def proxied(tmp_path: Path) -> Iterator[Proxied]:
    with closing(Proxied(tmp_path)) as proxy:
        yield proxy


def test_slow_and_large_requests_are_ended(proxied: Proxied) -> None:
    url, token = f"https://127.0.0.1:{proxied.port}", proxied.server.tokens["study"]
    with ServeClient(url, token, verify=proxied.trusted) as study:
        assert study.ask([{"id": "ward/4", "votes": [1, 1, 0]}])[0]["state"] == "answered"
        assert study.read("ward/4")["state"] == "answered"
    head = b"GET /health HTTP/1.1\r\nHost: a\r\n"
    for unfinished in (b"", b"GET /hea", head, b"POST /ask HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\n["):
        with proxied.connect() as link:
            link.sendall(unfinished)
            link.settimeout(5)
            answer = b""
            with suppress(ConnectionError):
                answer = link.recv(1000)
            assert answer == b"" or b" 408 " in answer[:20]
    for large, status in (
        (head + b"X: " + b"a" * 17_000 + b"\r\n\r\n", b" 400 "),
        (b"GET /" + b"a" * 10_000 + b" HTTP/1.1\r\nHost: a\r\n\r\n", b" 414 "),
        (b"POST /ask HTTP/1.1\r\nHost: a\r\nContent-Length: 100000000\r\n\r\n", b" 413 "),
    ):
        with proxied.connect() as link:
            link.sendall(large)
            assert status in link.recv(20)


@pytest.mark.parametrize("is_idle", [True, False])
def test_many_connections_of_an_address_are_limited_and_health_is_answered(proxied: Proxied, is_idle: bool) -> None:
    proxied.server.call("study", "POST", "/questions", {"id": "q", "seconds": 3600})
    request = f"GET /questions/q?wait=30 HTTP/1.1\r\nHost: a\r\n{proxied.authorization}\r\n".encode()
    url = f"https://127.0.0.1:{proxied.port}"
    links: list[socket.socket] = []
    try:
        for _ in range(600 if is_idle else 50):
            links.append(socket.create_connection(("127.0.0.1", proxied.port), 10) if is_idle else proxied.connect())
            links[-1].sendall(b"" if is_idle else request)
        time.sleep(0.5)
        if not is_idle:
            assert httpx.get(f"{url}/questions", verify=proxied.trusted).status_code == 429
        assert httpx.get(f"{url}/health", verify=proxied.trusted, timeout=20).status_code == 200
    finally:
        for link in links:
            link.close()
