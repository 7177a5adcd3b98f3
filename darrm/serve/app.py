"""HTTP endpoints: the client is authenticated before the body is read, both within limits.

Errors are JSON with ``error``: 400 invalid input, 401 unknown token, 402 spent budget, 403 not permitted, 404 unknown
question, 409 conflict, 413 or 431 too long, 503 the ledger does not answer or is too busy. Logs and metrics contain no
votes, labels, texts or ids.
"""

import asyncio
import base64
import binascii
import hmac
import resource
import socket
import sqlite3
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from html import escape
from pathlib import Path
from typing import Any, TypeVar

import uvicorn
from pydantic import TypeAdapter
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from darrm.errors import DarrmError
from darrm.serve import requests
from darrm.serve.clients import Client, authenticate, read_clients, read_version
from darrm.serve.questions import WAITING, Questions, RefusedError, Row
from darrm.serve.requests import NOTHING, Endpoint, Filter, Question, Vote, Wait
from darrm.serve.worker import AnswerWorker
from darrm.util.files import Json, parse_json

BODY_SECONDS = 20.0  # until a body has arrived
_MAX_LISTED = 200  # questions of a list
_MAX_HEAD_BYTES = 2**14  # of the address and the headers of a request
_MAX_REQUESTS = 1024  # of known clients at once
# the second reads an index
_OPEN_CONDITIONS = {"0": "state <> 'open'", "1": "state IN ('open', 'ready') AND state = 'open'"}
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
_PAGE_HEADERS = {  # no scripts, external content or framing
    "Content-Security-Policy": _POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}
_IDLE_SECONDS = 75  # longer than a proxy keeps an idle connection (nginx: 60)
_STOP_SECONDS = 5
_MAX_FILES = 8192
_BACKLOG = 2048  # connections that are not accepted yet
_STYLE = """
:root { color-scheme: light dark; --line: #8886; --full: #2f6f9f; }
body { font: 1rem/1.5 system-ui, sans-serif; max-width: 60rem; margin: 0 auto; padding: 1rem; overflow-wrap: anywhere; }
h1 { font-size: 1.4rem; } a:focus-visible { outline: 3px solid; outline-offset: 2px; }
meter { width: 100%; height: 1.2rem; } .trouble { border: 2px solid #c33; padding: .5rem; }
article { border-top: 1px solid var(--line); padding: .6rem 0; } article h2 { font-size: 1.05rem; margin: 0; }
article p { margin: .1rem 0; } .label { font-weight: 700; } code { white-space: pre-wrap; }
dt { font-weight: 700; margin-top: .8rem; } dd { margin: 0; }
"""
_STATES = {
    "open": "waits for votes",
    "ready": "is being answered",
    "expired": "expired without a label: votes were missing; nothing was paid",
    "refused": "refused: the budget is spent; nothing was paid",
    "failed": "failed: its votes cannot be answered; nothing was paid",
    "lost": "paid for, and its label is lost",
}
Sent = TypeVar("Sent")


class Service:
    """The endpoints of a deployment; a server runs ``app``."""

    def __init__(self, worker: AnswerWorker, clients: Path, most_bytes: int = 2**20, report: str = "") -> None:
        self._worker, self._path, self._max_bytes, self._report = worker, clients, most_bytes, report
        self._clients = read_clients(clients)
        self._version: tuple[int, ...] | None = None
        self._busy = 0  # requests of known clients that are being answered
        self._requests: Counter[int] = Counter()
        self.endpoints: list[Endpoint[Any]] = [
            Endpoint("POST", "/ask", self.ask, TypeAdapter(requests.Questions)),
            Endpoint("GET", "/metrics", self.metrics, NOTHING),
            Endpoint("GET", "/budget", self.budget, NOTHING),
            Endpoint("GET", "/questions", self.list_questions, TypeAdapter(Filter)),
            Endpoint("POST", "/questions", self.create, TypeAdapter(Question)),
            Endpoint("PUT", "/questions/{id}/vote", self.vote, TypeAdapter(Vote)),
            Endpoint("GET", "/questions/{id}", self.read, TypeAdapter(Wait)),
        ]
        routes = [self._route(endpoint) for endpoint in (*self.endpoints, Endpoint("GET", "/", self.home, NOTHING))]
        routes += [Route("/health", self.health), Route("/openapi.json", self.openapi), Route("/docs", self.docs)]
        self.routes = Starlette(
            routes=routes, exception_handlers={HTTPException: _refuse_path}, lifespan=self._lifespan
        )
        self.routes.router.redirect_slashes = False  # a redirect to http behind a proxy would expose the token

    async def app(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Refuse long headers and requests to upgrade."""
        refusal = _refuse_head(scope) if scope["type"] == "http" else None
        await (refusal or self.routes)(scope, receive, send)

    @asynccontextmanager
    async def _lifespan(self, _: Starlette) -> AsyncIterator[None]:
        self._worker.start()
        yield
        await self._worker.stop()

    def _route(self, endpoint: Endpoint[Sent]) -> Route:
        async def answer(request: Request) -> Response:
            try:
                client = self._find_client(request)
                self._busy += 1
                try:
                    value = await self._read_body(request) if endpoint.has_body else dict(request.query_params)
                    data = endpoint.validate(value)
                    response = await endpoint.handler(client, data, request.path_params.get("id", ""))
                finally:
                    self._busy -= 1
            except RefusedError as error:
                response = JSONResponse({"error": str(error), **error.more}, error.status)
                if error.status == 401:
                    response.headers["WWW-Authenticate"] = 'Basic realm="darrm", charset="UTF-8"'
            except (ValueError, TypeError) as error:
                response = JSONResponse({"error": str(error)[:1000]}, 400)
            except (DarrmError, OSError, sqlite3.Error):
                response = JSONResponse({"error": "the ledger does not answer; nothing is lost, try again"}, 503)
            except ClientDisconnect:
                response = Response(status_code=400)
            except Exception:  # noqa: BLE001 (a traceback may show votes)
                response = JSONResponse({"error": "a fault of the server; the request may be repeated"}, 500)
            self._requests[response.status_code] += 1
            return response

        return Route(endpoint.path.replace("{id}", "{id:path}"), answer, methods=[endpoint.method])  # with slashes

    def _find_client(self, request: Request) -> Client:
        scheme, _, value = request.headers.get("authorization", "").partition(" ")
        # a browser's: the token is the password, which it also sends for pages of others, so it reads only
        if scheme.lower() == "basic" and request.method in {"GET", "HEAD"}:
            try:
                value = base64.b64decode(value, validate=True).decode().partition(":")[2]
            except (binascii.Error, UnicodeDecodeError):
                value = ""
        elif scheme.lower() != "bearer":
            value = ""
        try:
            if (version := read_version(self._path)) is None or version != self._version:
                self._clients, self._version = read_clients(self._path), version
        except (ValueError, OSError):  # the message names the file, and the client is unknown
            raise RefusedError(503, "the file of clients cannot be read just now; try again") from None
        client = authenticate(self._clients, value)
        if client is None:
            raise RefusedError(401, "no known token: send it as Authorization: Bearer TOKEN")
        if self._busy >= _MAX_REQUESTS:
            raise RefusedError(503, "too many requests at once; try again")
        return client

    async def _read_body(self, request: Request) -> Json:
        body, max_bytes = bytearray(), self._max_bytes
        too_long = RefusedError(413, f"the body is longer than {max_bytes:,} bytes: send less at once")
        if int(request.headers.get("content-length", "0")) > max_bytes:
            raise too_long
        try:
            async with asyncio.timeout(BODY_SECONDS):
                async for chunk in request.stream():
                    body += chunk
                    if len(body) > max_bytes:
                        raise too_long
        except TimeoutError as error:
            raise RefusedError(408, "the body took too long") from error
        try:
            return parse_json(body.decode())
        except ValueError:
            allowed = "JSON in UTF-8, with each name of an object once and every number below 1.8e308"
            raise RefusedError(400, f"the body must be {allowed}") from None

    def _find_project_limit(self, project: str) -> int:
        limits = [client.project_questions for client in self._clients if client.project == project]
        return min(filter(None, limits), default=0)

    def _keep_questions(
        self, questions: Questions, new_questions: list[Question], client: Client
    ) -> dict[str, Row | None]:
        """Return the questions that existed, and None for new ones."""
        project = self._find_project_limit(client.project)
        results = [(question.id, questions.ask(question, client, project)) for question in new_questions]
        return {name: None if is_new else _read_visible(questions, name, client) for name, is_new in results}

    async def create(self, client: Client, question: Question, _: str) -> Response:
        """Ask the voters until a deadline, or give all votes or counts.

        The same again changes nothing (200), another with the id is refused (409), a spent budget of the client's own,
        too (402).
        """
        _check_asks(client)
        previous_row = (await self._worker.do(self._keep_questions, [question], client))[question.id]
        row = await self._worker.do(_read_visible, question.id, client)
        return JSONResponse(self._make_visible(row, client), 201 if previous_row is None else 200)

    async def ask(self, client: Client, questions: list[Question], _: str) -> Response:
        """Give all votes of up to 1,000 questions and get their labels: all are kept, or none."""
        _check_asks(client)
        names = [question.id for question in questions]
        futures = {name: self._worker.wait_for(name) for name in names}
        rows = await self._worker.do(self._keep_questions, questions, client)
        waiting = [name for name, row in rows.items() if row is None or row["state"] in WAITING]
        if waiting:
            await asyncio.wait([futures[name] for name in waiting], timeout=requests.LONGEST_POLL)
            rows |= {name: futures[name].result() for name in waiting if futures[name].done()}
        unfinished = [name for name in waiting if not futures[name].done()]
        # one commit
        remaining_rows = await asyncio.gather(*(self._worker.do(_read_visible, name, client) for name in unfinished))
        rows |= dict(zip(unfinished, remaining_rows, strict=True))
        return JSONResponse([self._make_visible(rows[name] or {}, client) for name in names])

    def _make_visible(self, question: Row, client: Client) -> Row:
        """Drop the label unless the client asked the question or is a reader."""
        names = {member.voter: member.name for member in self._clients}
        visible_row = question | {"voted": [names.get(voter, f"voter {voter}") for voter in question["voted"]]}
        if not client.reads and question["asker"] != client.name:
            visible_row.pop("label", None)
        return visible_row

    async def vote(self, client: Client, data: Vote, name: str) -> Response:
        """Vote; the same again changes nothing (200), another is refused (409)."""
        if not client.voter:
            raise RefusedError(403, f"the client {client.name} is no voter")
        is_new = await self._worker.do(Questions.vote, name, client.voter, data.vote)
        return JSONResponse({"id": name, "new": is_new}, 201 if is_new else 200)

    async def read(self, client: Client, data: Wait, name: str) -> Response:
        """Return one question, who has voted, and for its asker the label; ?wait=SECONDS waits for its end."""
        future = self._worker.wait_for(name)
        row = await self._worker.do(_read_visible, name, client)
        if data.wait and row["state"] in WAITING:
            await asyncio.wait([future], timeout=data.wait)
            row = future.result() if future.done() else await self._worker.do(_read_visible, name, client)
        return JSONResponse(self._make_visible(row, client))

    async def list_questions(self, client: Client, data: Filter, _: str) -> Response:
        """List the newest questions that you may see; ?open=1: only open ones; ?open=0: only others."""
        return JSONResponse(await self._list_rows(client, "1" if data.open is None else _OPEN_CONDITIONS[data.open]))

    async def _list_rows(self, client: Client, condition: str = "1") -> list[Row]:
        owner_condition, values = ("", ()) if client.reads or client.voter else (" AND asker = ?", (client.name,))
        rows = await self._worker.do(Questions.list_rows, f"WHERE {condition}{owner_condition}", values, _MAX_LISTED)
        return [self._make_visible(row, client) for row in rows]

    async def budget(self, client: Client, _: object, __: str) -> Response:
        """Count how many questions the common budget, your own and your project's admit."""
        return JSONResponse(await self._count_budget(client))

    async def _count_budget(self, client: Client) -> dict[str, Json]:
        client_used, project_used, answered = await self._worker.do(_count_used, client)
        budget: dict[str, Json] = {
            "left": await self._worker.left(),
            "answered": answered,
            "client": {"used": client_used, "limit": client.questions},
        }
        if client.project:
            limit = self._find_project_limit(client.project)
            budget["project"] = {"name": client.project, "used": project_used, "limit": limit}
        return budget

    async def metrics(self, _: Client, __: object, ___: str) -> Response:
        """Return numbers for Prometheus."""
        numbers = await self._worker.do(Questions.numbers)
        series = {
            "darrm_questions gauge": {f'{{state="{name}"}}': n for name, n in sorted(numbers.items())},
            "darrm_answered_total counter": {"": self._worker.answered},
            "darrm_budget_questions_left gauge": {"": await self._worker.left()},
            "darrm_up gauge": {"": int(not self._worker.trouble)},
            "darrm_requests_total counter": {f'{{status="{s}"}}': n for s, n in sorted(self._requests.items())},
        }
        lines = []
        for name, samples in series.items():
            lines += [f"# TYPE {name}", *(f"{name.split()[0]}{key} {n}" for key, n in samples.items())]
        return PlainTextResponse("\n".join(lines) + "\n", media_type="text/plain; version=0.0.4")

    async def home(self, client: Client, _: object, __: str) -> Response:
        """Return the page."""
        rows, budget = await self._list_rows(client), await self._count_budget(client)
        return HTMLResponse(
            home_page(rows, budget, client.name, self._worker.trouble, self._report), headers=_PAGE_HEADERS
        )

    async def health(self, _: Request) -> Response:
        """Say whether questions are answered, without a token."""
        return JSONResponse({"ok": not self._worker.trouble}, 503 if self._worker.trouble else 200)

    async def openapi(self, _: Request) -> Response:
        """Describe the endpoints for programs."""
        return JSONResponse(requests.openapi(self.endpoints, {"/health": self.health.__doc__ or ""}))

    async def docs(self, _: Request) -> Response:
        """Describe the endpoints for people."""
        summaries = [(f"{endpoint.method} {endpoint.path}", endpoint.summary) for endpoint in self.endpoints]
        summaries.append(("GET /health", self.health.__doc__ or ""))
        rows = [f"<dt><code>{escape(name)}</code></dt><dd>{escape(summary)}</dd>" for name, summary in summaries]
        intro = (
            '<p>For programs: <a href="/openapi.json">openapi.json</a>. A token is sent as '
            "<code>Authorization: Bearer TOKEN</code>.</p>"
        )
        page = _render_page("Endpoints", f"<h1>Endpoints</h1>{intro}<dl>{''.join(rows)}</dl>")
        return HTMLResponse(page, headers=_PAGE_HEADERS)


def _refuse_head(scope: Scope) -> JSONResponse | None:
    headers = scope["headers"]
    length = len(scope["raw_path"]) + len(scope["query_string"]) + sum(len(n) + len(v) for n, v in headers)
    if length > _MAX_HEAD_BYTES:
        status, error = 431, f"the headers are longer than {_MAX_HEAD_BYTES:,} bytes"
    elif any(name == b"upgrade" for name, _ in headers):  # its body would be read as the next request
        status, error = 400, "this server takes no request to upgrade: leave the header Upgrade out"
    else:
        return None
    return JSONResponse({"error": error}, status, {"Connection": "close"})


async def _refuse_path(_: Request, error: Exception) -> Response:
    status, headers = getattr(error, "status_code", 500), getattr(error, "headers", None)
    return JSONResponse({"error": "there is no such endpoint; /docs lists them"}, status, headers)


def _check_asks(client: Client) -> None:
    if not client.questions:
        raise RefusedError(403, f"the client {client.name} may not ask")


def _read_visible(questions: Questions, name: str, client: Client) -> Row:
    row = questions.find_row(name)
    if row is None or not (
        client.reads or client.voter or hmac.compare_digest(row["asker"].encode(), client.name.encode())
    ):
        raise RefusedError(404, f"there is no question {name[:100]!r} that is yours")
    return row


def _count_used(questions: Questions, client: Client) -> tuple[int, int, int]:
    """Count paid and waiting questions of a client and of its project, and all answered ones."""
    client_used, project_used = questions.used(f"client {client.name}"), questions.used(f"project {client.project}")
    return client_used, project_used, questions.numbers().get("answered", 0)


def _render_page(title: str, body: str) -> str:
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
        f'<meta name="viewport" content="width=device-width, initial-scale=1"><style>{_STYLE}</style></head>'
        f"<body><main>{body}</main></body></html>"
    )


def _render_bar(name: str, remaining: int, limit: int) -> str:
    text = f"{remaining:,} of {limit:,} questions left"
    meter = f'<meter min="0" max="{max(limit, 1)}" value="{remaining}" aria-label="{escape(name)}">{text}</meter>'
    return f"<p>{escape(name)}: {text}<br>{meter}</p>"


def _to_html(question: dict[str, Json]) -> str:
    default = "nobody" if question["state"] in {"open", "expired"} else "all, with the question"
    voters = ", ".join(map(str, question["voted"])) or default
    if question["state"] == "answered":
        label = f"answer: {question['label']}" if "label" in question else "answered; the label is its asker's"
        end = f'<span class="label">{escape(label)}</span>'
    else:
        end = escape(_STATES[question["state"]])
    until = ""
    if question["state"] == "open":
        until = f" until {time.strftime('%Y-%m-%d %H:%M:%S', time.gmtime(question['deadline']))} UTC"
    text = f"<p>{escape(question['text'])}</p>" if question["text"] else ""
    return (
        f"<article><h2>{escape(question['id'])}</h2>{text}<p>{end}{until}</p><p>Voted: {escape(voters)}</p></article>"
    )


def home_page(questions: list[dict[str, Json]], budget: dict[str, Json], name: str, trouble: str, report: str) -> str:
    answered = sum(question["state"] == "answered" for question in questions)
    bars = _render_bar("Common budget", budget["left"], budget["left"] + budget["answered"])
    limits = [("Your own", budget["client"]), *([("Your project", budget["project"])] if "project" in budget else [])]
    bars += "".join(
        _render_bar(title, max(0, row["limit"] - row["used"]), row["limit"]) for title, row in limits if row["limit"]
    )
    link = f'<p><a href="{escape(report)}">The auditor\'s report</a></p>' if report else ""
    alarm = '<p class="trouble" role="alert">Nothing is answered just now; what waits is kept.</p>' if trouble else ""
    body = f"<h1>Questions</h1><p>You are {escape(name)}. {len(questions)} shown, {answered} answered.</p>"
    return _render_page(
        "Questions",
        body + alarm + bars + link + "".join(map(_to_html, questions)) + '<p><a href="/docs">The endpoints</a></p>',
    )


def allow_connections() -> None:
    """Raise this process's limit of open files, if allowed: each connection is one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    max_files = _MAX_FILES if hard == resource.RLIM_INFINITY else min(_MAX_FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < max_files:
        resource.setrlimit(resource.RLIMIT_NOFILE, (max_files, hard))


def listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=_BACKLOG)
    except OSError as error:
        reason = error.strerror or error
        raise OSError(f"{host}:{port} cannot be listened on ({reason}): is another server there?") from error


def make_server(app: ASGIApp, certificate: Path | None = None, key: Path | None = None) -> uvicorn.Server:
    """Return a server that logs no requests and trusts no headers of proxies."""
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
        backlog=_BACKLOG,
        timeout_keep_alive=_IDLE_SECONDS,
        timeout_graceful_shutdown=_STOP_SECONDS,
        # no limit_concurrency: idle connections count, and /health would be refused because of them
    )
    config.load()  # reads the certificate
    return uvicorn.Server(config)
