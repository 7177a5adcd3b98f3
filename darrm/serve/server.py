"""The web server around the endpoints: uvicorn, with clocks for headers that never end and for who never reads."""

import asyncio
import ipaddress
import resource
from pathlib import Path

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from darrm.errors import checks

HEADER_SECONDS = 10.0
_MOST_HEADER_BYTES = 2**14
_MOST_REST_BYTES = 2**20
_LEAST_READ_BYTES = 2**14
_MOST_CONNECTIONS = 1024
_STOP_SECONDS = 5


class PatientProtocol(HttpToolsProtocol):
    """HTTP/1.1 that hangs up on headers that are late or too long, and on answers that nobody reads.

    uvicorn itself counts only from the end of a response on (``timeout_keep_alive``), and httptools reads headers of
    any length, adds trailers to them, and skips the body of a request to upgrade, which is then read as a request.
    """

    _received = 0  # bytes since a head was whole, or a body of use came
    _is_in_head = _is_useful = False
    _stalled: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn's
        """Start the clock."""
        super().connection_made(transport)
        self._clock = self.loop.call_later(HEADER_SECONDS, self._give_up)
        if len(self.connections) > 2 * _MOST_CONNECTIONS:  # each holds a file; one fewer is refused with 503
            transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop it."""
        self._clock.cancel()
        super().connection_lost(exc)
        self.resume_writing()

    def data_received(self, data: bytes) -> None:
        """Start it again where a further request begins: the clock of the last one may have run out on a request."""
        if self._is_waiting() and self._clock.cancelled():
            self._clock = self.loop.call_later(HEADER_SECONDS, self._give_up)
        self._is_useful = False
        super().data_received(data)
        self._received = 0 if self._is_useful else self._received + len(data)
        is_rest = self._is_waiting() and not self._is_in_head  # of a body that was refused unread
        if self._received > (_MOST_REST_BYTES if is_rest else _MOST_HEADER_BYTES) and not self.transport.is_closing():
            if self._is_waiting() and self._is_in_head:
                self.send_400_response("The headers are too long.")
            else:  # behind a request that is being answered
                self.transport.abort()
        if self.transport.is_closing():
            self.pause_writing()
        if not self._is_waiting():
            self._clock.cancel()

    def on_message_begin(self) -> None:
        """Read a head."""
        self._is_in_head = True
        super().on_message_begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        """Read a header, which a trailer is not."""
        if self._is_in_head:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Refuse to upgrade; `ValueError` becomes 400."""
        if self.parser.should_upgrade():
            raise ValueError("no upgrade")
        self._is_in_head, self._is_useful = False, True
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """Note that a body comes which somebody reads."""
        self._is_useful |= not self.cycle.response_complete
        super().on_body(body)

    def on_response_complete(self) -> None:
        """Wait for the reader of a last response no longer than for headers."""
        super().on_response_complete()
        if self.transport.is_closing():
            self.pause_writing()

    def pause_writing(self) -> None:
        """Hang up on whoever reads next to nothing for so long."""
        super().pause_writing()
        if self._stalled is None:
            left = self.transport.get_write_buffer_size()
            self._stalled = self.loop.call_later(HEADER_SECONDS, self._check_reader, left)

    def resume_writing(self) -> None:
        """Stop that clock."""
        super().resume_writing()
        if self._stalled is not None:
            self._stalled.cancel()
            self._stalled = None

    def timeout_keep_alive_handler(self) -> None:
        """Close what is idle, whether or not it is read to the end."""
        super().timeout_keep_alive_handler()
        self.pause_writing()

    def _check_reader(self, before: int) -> None:
        left = self.transport.get_write_buffer_size()
        if left > before - _LEAST_READ_BYTES:
            self.transport.abort()
        else:
            self._stalled = self.loop.call_later(HEADER_SECONDS, self._check_reader, left)

    def _is_waiting(self) -> bool:
        return self.cycle is None or self.cycle.response_complete

    def _give_up(self) -> None:
        if self._is_waiting():
            self.timeout_keep_alive_handler()


def allow_connections() -> None:
    """Raise this process's limit of open files, where it may, so that connections run out before files do."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = 4 * _MOST_CONNECTIONS
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most if hard == resource.RLIM_INFINITY else min(most, hard), hard))


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
