"""A server in this process that answers on a port of this machine, and the clients that it knows."""

import threading
import time
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("starlette", reason="needs the extra serve")
pytest.importorskip("httpx", reason="needs the extra serve")
import httpx

from darrm.serve.app import Service, listen, make_server
from darrm.serve.worker import AnswerWorker, Deployment
from tests.serve.deployments import deployment, tokens_of


class Endpoint:
    def __init__(self, folder: Path, max_bytes: int = 2**20, deployed: Deployment | None = None) -> None:
        self.clients, self.deployed = folder / "clients.json", deployed or deployment(folder, fit=100)
        self.tokens = tokens_of(self.clients)
        self.service = Service(AnswerWorker(self.deployed), self.clients, max_bytes)
        self.server, self.listener = make_server(self.service.app), listen("127.0.0.1", 0)
        self.thread = threading.Thread(target=self.server.run, args=([self.listener],))
        self.thread.start()
        while not self.server.started:
            time.sleep(0.005)
        self.port = self.listener.getsockname()[1]
        self.http = httpx.Client(base_url=f"http://127.0.0.1:{self.port}", timeout=30)

    def close(self) -> None:
        self.http.close()
        self.server.should_exit = True
        self.thread.join()
        self.listener.close()

    def call(self, name: str, method: str, path: str, body: object = None, **options: Any) -> httpx.Response:
        """Send a request of a client; ``body`` is sent as JSON, bytes are sent as they are."""
        headers = {"Authorization": f"Bearer {self.tokens[name]}"}
        if isinstance(body, bytes):
            options["content"] = body
        elif body is not None:
            options["json"] = body
        return self.http.request(method, path, headers=headers, **options)

    def ask(self, name: str, id: str) -> httpx.Response:  # noqa: A002 (its name in the body)
        """Ask a question with all its votes."""
        return self.call(name, "POST", "/ask", [{"id": id, "votes": [1, 1, 0]}])
