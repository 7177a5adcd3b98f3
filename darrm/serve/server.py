"""The web server around the endpoints: uvicorn, with a clock for headers that never end."""

import asyncio
import ipaddress
from pathlib import Path

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from darrm.errors import checks

HEADER_SECONDS = 10.0
_MOST_HEADER_BYTES = 2**14
_MOST_CONNECTIONS = 1024
_STOP_SECONDS = 5


class PatientProtocol(HttpToolsProtocol):
    """HTTP/1.1 whose connections are closed unless a request's headers are there in time, and are not too long.

    uvicorn itself counts only from the end of a response on (``timeout_keep_alive``), and httptools reads headers of
    any length.
    """

    _received = 0  # bytes of headers that are not whole

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn's
        """Start the clock."""
        super().connection_made(transport)
        self._clock = self.loop.call_later(HEADER_SECONDS, self._give_up)

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop it."""
        self._clock.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Start it again where a further request begins: the clock of the last one may have run out on a request."""
        if self._is_waiting() and self._clock.cancelled():
            self._clock = self.loop.call_later(HEADER_SECONDS, self._give_up)
        super().data_received(data)
        self._received = self._received + len(data) if self._is_waiting() else 0
        if self._received > _MOST_HEADER_BYTES and not self.transport.is_closing():
            self.send_400_response("The headers are too long.")
        if not self._is_waiting():
            self._clock.cancel()

    def _is_waiting(self) -> bool:
        return self.cycle is None or self.cycle.response_complete

    def _give_up(self) -> None:
        if self._is_waiting():
            self.transport.close()


def check_address(host: str, *, certificate: Path | None, behind_proxy: bool) -> None:
    """Refuse to send tokens and votes in the clear beyond this machine, unless a proxy was named that encrypts them."""
    try:
        is_loopback = ipaddress.ip_address(host).is_loopback
    except ValueError:
        is_loopback = host == "localhost"
    if not (is_loopback or certificate is not None or behind_proxy):
        advice = "give --tls-certificate and --tls-key, or say --behind-proxy where a proxy encrypts"
        checks.fail("--host", host, "this machine (127.0.0.1) without TLS", advice)


def configured(app: ASGIApp, host: str, port: int, tls: tuple[Path, Path] | None = None) -> uvicorn.Server:
    """Return the server, which logs no request and trusts no header of a proxy."""
    return uvicorn.Server(
        uvicorn.Config(
            app,
            host=host,
            port=port,
            ssl_certfile=None if tls is None else str(tls[0]),
            ssl_keyfile=None if tls is None else str(tls[1]),
            http=PatientProtocol,
            ws="none",
            loop="uvloop",
            lifespan="off",
            log_config=None,
            log_level="critical",
            access_log=False,
            proxy_headers=False,
            server_header=False,
            limit_concurrency=_MOST_CONNECTIONS,
            timeout_keep_alive=int(HEADER_SECONDS),
            timeout_graceful_shutdown=_STOP_SECONDS,
        )
    )
