"""The HTTP client: asks, votes, waits for labels. Every call may be repeated, and is after a lost answer."""

import ipaddress
import time
from collections.abc import Sequence
from types import TracebackType
from typing import Self
from urllib.parse import quote

from darrm.errors import DarrmError
from darrm.util import checks
from darrm.util.extras import Untyped, require
from darrm.util.files import Json

_RETRIED_STATUSES = (429, 500, 503)
_ENCRYPTION_ADVICE = "tokens and votes are not sent in the clear"


def is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


class ServerRefusedError(DarrmError):
    """The server refused a request; ``more`` holds the other fields of its answer, such as ``left``."""

    def __init__(self, status: int, message: str, more: dict[str, Json]) -> None:
        super().__init__(message)
        self.status, self.more = status, more


class ServeClient:
    """A client of the server at ``url``; failed calls are repeated up to ``attempts`` times."""

    def __init__(self, url: str, token: str, *, attempts: int = 5, **options: Untyped) -> None:
        address = require("httpx").URL(url)
        is_encrypted = address.scheme == "https"
        if not is_encrypted and not (address.scheme == "http" and is_loopback(address.host)):
            checks.fail(
                "url", f"{address.scheme}://{address.host}", "https, or http on this machine", _ENCRYPTION_ADVICE
            )
        self._http: Untyped = require("httpx").Client(
            base_url=url,
            headers={"Authorization": f"Bearer {token}"},
            # a proxy named by the environment would see an unencrypted token
            **{"timeout": 90.0, "trust_env": is_encrypted, **options},
        )
        self._transport_error, self._attempts = require("httpx").TransportError, attempts

    def _call(self, method: str, path: str, body: object = None) -> Untyped:
        for attempt in range(1, self._attempts + 1):
            try:
                answer = self._http.request(method, path, **({} if body is None else {"json": body}))
            except self._transport_error:
                if attempt == self._attempts:
                    raise
            else:
                if answer.is_success:
                    return answer.json()
                if answer.status_code not in _RETRIED_STATUSES or attempt == self._attempts:
                    try:
                        fields = answer.json()
                    except ValueError:
                        fields = {}
                    raise ServerRefusedError(
                        answer.status_code, fields.pop("error", f"status {answer.status_code}"), fields
                    )
            time.sleep(0.1 * 2**attempt)
        raise AssertionError  # the last attempt returns or raises

    def create(self, name: str, text: str = "", **options: Untyped) -> dict[str, Json]:
        """Ask a question: ``seconds=`` until its deadline, or ``votes=`` or ``counts=``."""
        return dict(self._call("POST", "/questions", {"id": name, "text": text, **options}))

    def ask(self, questions: Sequence[dict[str, Json]]) -> list[dict[str, Json]]:
        """Give all votes of many questions; return them with their labels."""
        return list(self._call("POST", "/ask", list(questions)))

    def vote(self, name: str, vote: object) -> bool:
        """Return whether the vote was new."""
        return bool(self._call("PUT", f"/questions/{quote(name, safe='')}/vote", {"vote": vote})["new"])

    def read(self, name: str, wait: float = 0.0) -> dict[str, Json]:
        """Wait up to ``wait`` seconds for the end of a question."""
        return dict(self._call("GET", f"/questions/{quote(name, safe='')}?wait={wait}"))

    def open_questions(self) -> list[dict[str, Json]]:
        return list(self._call("GET", "/questions?open=1"))

    def budget(self) -> dict[str, Json]:
        return dict(self._call("GET", "/budget"))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._http.close()
