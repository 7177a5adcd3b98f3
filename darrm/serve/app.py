"""HTTP endpoints: the client is authenticated first, then the body is read, both within limits.

Errors are JSON with ``error`` and fields for programs: 400 invalid input, 401 unknown token, 402 spent budget, with
``left``, 403 not permitted, 404 unknown question, 409 conflict, 413 or 431 too long, 503 the ledger does not answer, or
too many requests. Logs and metrics contain no votes, labels, texts or ids.
"""

import asyncio
import base64
import binascii
import hmac
import sqlite3
from collections import Counter
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Concatenate, ParamSpec, TypeVar

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from darrm.commands.values import real
from darrm.errors import DarrmError
from darrm.serve import page
from darrm.serve.clients import Client, authenticate, read_clients, read_version
from darrm.serve.questions import Asked, Questions, RefusedError, Row
from darrm.serve.worker import AnswerWorker
from darrm.util import checks
from darrm.util.files import Json, parse_json

LONGEST_POLL = 60.0
BODY_SECONDS = 20.0  # until a body has arrived
MOST_AT_ONCE = 1000  # questions of one request
_SHOWN = 200  # questions of a list
_MOST_HEAD_BYTES = 2**14  # of the address and the headers of a request
_MOST_REQUESTS = 1024  # of known clients at once
_OPEN = {"0": "state <> 'open'", "1": "state IN ('open', 'ready') AND state = 'open'"}  # the second reads an index
P = ParamSpec("P")
T = TypeVar("T")
Handler = Callable[[Request, Client], Awaitable[Response]]


class Service:
    """The endpoints of a deployment; a server runs ``app``; a body has at most ``most_bytes``."""

    def __init__(self, worker: AnswerWorker, clients: Path, most_bytes: int = 2**20, report: str = "") -> None:
        self._worker, self._path, self._most_bytes, self._report = worker, clients, most_bytes, report
        self._clients = read_clients(clients)
        self._version: tuple[int, ...] | None = None
        self._busy = 0  # requests of known clients that are being answered
        self._requests: Counter[int] = Counter()
        self.paths: dict[str, Json] = {}  # the descriptions of the endpoints
        routes = [
            self._route("POST", "/ask", self.ask, "Questions"),
            self._route("GET", "/metrics", self.metrics),
            self._route("GET", "/budget", self.budget),
            self._route("GET", "/questions", self.listed),
            self._route("POST", "/questions", self.create, "Question"),
            self._route("PUT", "/questions/{id}/vote", self.vote, "Vote"),
            self._route("GET", "/questions/{id}", self.read),
            Route("/", self._known(self.home), methods=["GET"]),
            Route("/health", self.health),
            Route("/openapi.json", lambda _: JSONResponse(page.openapi(self.paths))),
            Route("/docs", lambda _: _html(page.docs(self.paths))),
        ]
        self.paths["/health"] = {"get": page.operation(_summary(self.health), "/health", "", known=False)}
        self.routes = Starlette(routes=routes, exception_handlers={HTTPException: _off_the_routes})
        self.routes.router.redirect_slashes = False  # a redirect to http behind a proxy would expose the token

    async def app(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Refuse long headers and requests to upgrade; route the others."""
        headers, status, error = scope["headers"], 0, ""
        length = len(scope["raw_path"]) + len(scope["query_string"]) + sum(len(n) + len(v) for n, v in headers)
        if length > _MOST_HEAD_BYTES:
            status, error = 431, f"the headers are longer than {_MOST_HEAD_BYTES:,} bytes"
        elif any(name == b"upgrade" for name, _ in headers):  # its body would be read as the next request
            status, error = 400, "this server takes no request to upgrade: leave the header Upgrade out"
        refused = JSONResponse({"error": error}, status, {"Connection": "close"}) if status else None
        await (refused or self.routes)(scope, receive, send)

    def _route(self, method: str, path: str, handler: Handler, body: str = "") -> Route:
        """Describe an endpoint for known clients, and return its route; an id may hold slashes."""
        described = page.operation(_summary(handler), path, body, known=True)
        self.paths.setdefault(path, {})[method.lower()] = described
        return Route(path.replace("{id}", "{id:path}"), self._known(handler), methods=[method])

    def _known(self, handler: Handler) -> Callable[[Request], Awaitable[Response]]:
        """Authenticate the client, and turn exceptions of the handler into responses."""

        async def answer(request: Request) -> Response:
            try:
                client = self._client(request)
                self._busy += 1
                try:
                    response = await handler(request, client)
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

        return answer

    def _client(self, request: Request) -> Client:
        kind, _, value = request.headers.get("authorization", "").partition(" ")
        # a browser's: the token is the password, which it also sends for pages of others, so it reads only
        if kind.lower() == "basic" and request.method in {"GET", "HEAD"}:
            try:
                value = base64.b64decode(value, validate=True).decode().partition(":")[2]
            except (binascii.Error, UnicodeDecodeError):
                value = ""
        elif kind.lower() != "bearer":
            value = ""
        try:
            if (version := read_version(self._path)) is None or version != self._version:
                self._clients, self._version = read_clients(self._path), version
        except (ValueError, OSError):  # the message names the file, and the client is unknown
            raise RefusedError(503, "the file of clients cannot be read just now; try again") from None
        client = authenticate(self._clients, value)
        if client is None:
            raise RefusedError(401, "no known token: send it as Authorization: Bearer TOKEN")
        if self._busy >= _MOST_REQUESTS:
            raise RefusedError(503, "too many requests at once; try again")
        return client

    async def _body(self, request: Request) -> Json:
        """Read JSON within the limits of size and time."""
        body, most = bytearray(), self._most_bytes
        too_long = RefusedError(413, f"the body is longer than {most:,} bytes: send less at once")
        if int(request.headers.get("content-length", "0")) > most:
            raise too_long
        try:
            async with asyncio.timeout(BODY_SECONDS):
                async for piece in request.stream():
                    body += piece
                    if len(body) > most:
                        raise too_long
        except TimeoutError as error:
            raise RefusedError(408, "the body took too long") from error
        try:
            return parse_json(body.decode())
        except ValueError:
            raise RefusedError(400, "the body must be JSON in UTF-8, with each name of an object once") from None

    async def _do(self, act: Callable[Concatenate[Questions, P], T], *values: P.args, **named: P.kwargs) -> T:
        return await asyncio.wrap_future(self._worker.do(act, *values, **named))

    def _most_of(self, project: str) -> int:
        named = [client.project_questions for client in self._clients if client.project == project]
        return min(filter(None, named), default=0)

    def _asked(self, rows: list[Json], client: Client) -> list[Asked]:
        """Read the questions of a client that may ask."""
        if not client.questions:
            raise RefusedError(403, f"the client {client.name} may not ask")
        return [Asked.from_json(row) for row in rows]

    def _keep(self, questions: Questions, asked: list[Asked], client: Client) -> dict[str, Row]:
        """Keep questions, all or none; return those that existed, and nothing for new ones."""
        project = self._most_of(client.project)
        is_new = [(one.id, questions.ask(one, client, project)) for one in asked]
        return {name: {} if new else self._seen(questions, name, client) for name, new in is_new}

    async def create(self, request: Request, client: Client) -> Response:
        """Ask the voters until a deadline, or give all votes or counts.

        The same again changes nothing (200), another with the id is refused (409), a spent budget of the client's own,
        too (402).
        """
        asked = self._asked([await self._body(request)], client)
        ((name, before),) = (await self._do(self._keep, asked, client)).items()
        row = await self._do(self._seen, name, client)
        return JSONResponse(self._for(row, client), 200 if before else 201)

    async def ask(self, request: Request, client: Client) -> Response:
        """Give all votes of up to 1,000 questions and get their labels: all are kept, or none."""
        rows = await self._body(request)
        if not isinstance(rows, list) or not 0 < len(rows) <= MOST_AT_ONCE:
            checks.fail("the body", checks.Found("something else"), f"a list of 1 to {MOST_AT_ONCE} questions")
        asked = self._asked(rows, client)
        names = [one.id for one in asked]
        several = await self._ended(self._worker.ends(self._keep, asked, client), names, LONGEST_POLL, client)
        return JSONResponse([self._for(several[name], client) for name in names])

    async def _ended(
        self, ends: Future[dict[str, Row]], names: list[str], seconds: float, client: Client
    ) -> dict[str, Row]:
        """Return questions when they have ended, or as they are after a timeout."""
        try:
            async with asyncio.timeout(seconds):
                return await asyncio.wrap_future(ends)
        except TimeoutError:
            return await self._do(self._all_seen, names, client)

    def _all_seen(self, questions: Questions, names: list[str], client: Client) -> dict[str, Row]:
        return {name: self._seen(questions, name, client) for name in names}

    def _seen(self, questions: Questions, name: str, client: Client) -> Row:
        """Return a question that this client may see."""
        row = questions.one(name)
        if row is None or not (
            client.reads or client.voter or hmac.compare_digest(row["asker"].encode(), client.name.encode())
        ):
            raise RefusedError(404, f"there is no question {name[:100]!r} that is yours")
        return row

    def _for(self, question: dict[str, Json], client: Client) -> dict[str, Json]:
        """Return the fields that this client may read: only the asker and readers see the label."""
        names = {other.voter: other.name for other in self._clients}
        shown = question | {"voted": [names.get(voter, f"voter {voter}") for voter in question["voted"]]}
        if not client.reads and question["asker"] != client.name:
            shown.pop("label", None)
        return shown

    async def vote(self, request: Request, client: Client) -> Response:
        """Vote; the same again changes nothing (200), another is refused (409)."""
        row = await self._body(request)
        if not client.voter:
            raise RefusedError(403, f"the client {client.name} is no voter")
        if not isinstance(row, dict) or set(row) != {"vote"}:
            checks.fail("the body", checks.Found("something else"), 'an object like {"vote": 1}')
        name = request.path_params["id"]
        new = await self._do(Questions.vote, name, client.voter, row["vote"])
        return JSONResponse({"id": name, "new": new}, 201 if new else 200)

    async def read(self, request: Request, client: Client) -> Response:
        """Return one question, who has voted, and for its asker the label; ?wait=SECONDS waits for its end."""
        name, wait = request.path_params["id"], real("wait", request.query_params.get("wait", "0"))
        if not 0 <= wait <= LONGEST_POLL:
            checks.fail("wait", wait, f"from 0 to {LONGEST_POLL:g}")
        if wait:
            rows = await self._ended(self._worker.ends(self._all_seen, [name], client), [name], wait, client)
        else:
            rows = await self._do(self._all_seen, [name], client)
        return JSONResponse(self._for(rows[name], client))

    async def listed(self, request: Request, client: Client) -> Response:
        """List the newest questions that you may see; ?open=1: only open ones; ?open=0: only others."""
        wanted = request.query_params.get("open")
        if wanted is not None:
            checks.one_of(_OPEN, open=wanted)
        return JSONResponse(await self._list(client, "1" if wanted is None else _OPEN[wanted]))

    async def _list(self, client: Client, only: str = "1") -> list[dict[str, Json]]:
        own, values = ("", ()) if client.reads or client.voter else (" AND asker = ?", (client.name,))
        found = await self._do(Questions.shown, f"WHERE {only}{own}", values, _SHOWN)
        return [self._for(one, client) for one in found]

    async def budget(self, _: Request, client: Client) -> Response:
        """Count how many questions the common budget, your own and your project's admit."""
        return JSONResponse(await self._budget(client))

    async def _budget(self, client: Client) -> dict[str, Json]:
        left = await run_in_threadpool(self._worker.left)
        used, of_project, answered = await self._do(_used, client)
        answer: dict[str, Json] = {
            "left": left,
            "answered": answered,
            "client": {"used": used, "limit": client.questions},
        }
        if client.project:
            answer["project"] = {"name": client.project, "used": of_project, "limit": self._most_of(client.project)}
        return answer

    async def health(self, _: Request) -> Response:
        """Say whether questions are answered, without a token."""
        return JSONResponse({"ok": not self._worker.trouble}, 503 if self._worker.trouble else 200)

    async def metrics(self, _: Request, __: Client) -> Response:
        """Return numbers for Prometheus."""
        left, numbers = await run_in_threadpool(self._worker.left), await self._do(Questions.numbers)
        up = int(not self._worker.trouble)
        values = {
            "darrm_questions gauge": {f'{{state="{name}"}}': n for name, n in sorted(numbers.items())},
            "darrm_answered_total counter": {"": self._worker.answered},
            "darrm_budget_questions_left gauge": {"": left},
            "darrm_up gauge": {"": up},
            "darrm_requests_total counter": {f'{{status="{s}"}}': n for s, n in sorted(self._requests.items())},
        }
        lines = []
        for name, numbered in values.items():
            lines += [f"# TYPE {name}", *(f"{name.split()[0]}{key} {n}" for key, n in numbered.items())]
        return PlainTextResponse("\n".join(lines) + "\n", media_type="text/plain; version=0.0.4")

    async def home(self, _: Request, client: Client) -> Response:
        """Return the page."""
        return _html(
            page.home(
                await self._list(client), await self._budget(client), client.name, self._worker.trouble, self._report
            )
        )


def _summary(handler: Callable[..., object]) -> str:
    return " ".join((handler.__doc__ or "").split())


async def _off_the_routes(_: Request, error: Exception) -> Response:
    status, headers = getattr(error, "status_code", 500), getattr(error, "headers", None)
    return JSONResponse({"error": "there is no such endpoint; /docs lists them"}, status, headers)


def _used(questions: Questions, client: Client) -> tuple[int, int, int]:
    """Count the questions of a client and of its project that were paid for or wait, and all answered ones."""
    client_used, project_used = questions.used(f"client {client.name}"), questions.used(f"project {client.project}")
    return client_used, project_used, questions.numbers().get("answered", 0)


def _html(text: str) -> Response:
    """Return a page without scripts, external content or framing."""
    policy = (
        "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
    )
    headers = {"Content-Security-Policy": policy, "X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer"}
    return HTMLResponse(text, headers=headers | {"Cache-Control": "no-store"})
