"""The web server: uvicorn with its own settings; a reverse proxy handles slow and frequent clients."""

import resource
import socket
from pathlib import Path

import uvicorn
from starlette.types import ASGIApp

from darrm.serve.client import is_loopback
from darrm.util import checks

_IDLE_SECONDS = 75  # longer than a proxy keeps an idle connection (nginx: 60)
_STOP_SECONDS = 5
_MOST_FILES = 8192
_WAITING = 2048  # connections that are not accepted yet


def allow_connections() -> None:
    """Raise this process's limit of open files, if allowed: each connection is one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = _MOST_FILES if hard == resource.RLIM_INFINITY else min(_MOST_FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


def check_address(host: str, *, certificate: Path | None, behind_proxy: bool) -> None:
    if not (is_loopback(host) or certificate is not None or behind_proxy):
        advice = "give --tls-certificate and --tls-key, or --behind-proxy if a proxy encrypts"
        checks.fail("--host", host, "this machine (127.0.0.1) without TLS", advice)


def listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=_WAITING)
    except OSError as error:
        why = error.strerror or error
        raise OSError(f"{host}:{port} cannot be listened on ({why}): is another server there?") from error


def configured(app: ASGIApp, certificate: Path | None = None, key: Path | None = None) -> uvicorn.Server:
    """Return the server, which logs no requests and trusts no headers of proxies.

    `limit_concurrency` is not set: it counts idle connections, and would refuse /health because of them.
    """
    config = uvicorn.Config(
        app,
        ssl_certfile=certificate,
        ssl_keyfile=key,
        interface="asgi3",
        http="httptools",
        ws="none",
        loop="uvloop",
        lifespan="on",
        log_config=None,
        log_level="critical",
        access_log=False,
        proxy_headers=False,
        server_header=False,
        backlog=_WAITING,
        timeout_keep_alive=_IDLE_SECONDS,
        timeout_graceful_shutdown=_STOP_SECONDS,
    )
    config.load()  # reads the certificate
    return uvicorn.Server(config)
