"""The endpoints over HTTP, with a server in this process."""

import html
import json
import math
import os
import resource
import socket
import sqlite3
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from darrm.serve import app, requests
from darrm.serve.client import ServeClient, ServerRefusedError
from darrm.serve.clients import Client, add_client, hash_token
from darrm.serve.questions import Questions
from tests.serve.deployments import paid
from tests.serve.endpoints import Endpoint

httpx = pytest.importorskip("httpx", reason="needs the extra serve")

SECRET = "vote-nobody-shall-see"  # noqa: S105 (a vote)
VOTES = [1, 1, 1]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Endpoint]:
    endpoint = Endpoint(tmp_path)
    yield endpoint
    endpoint.close()


@pytest.fixture(scope="module")
def common_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Endpoint]:
    """A server for requests that change nothing, with one open question."""
    endpoint = Endpoint(tmp_path_factory.mktemp("server"), max_bytes=2**17)
    endpoint.call("study", "POST", "/questions", {"id": "q", "seconds": 3600})
    yield endpoint
    assert endpoint.call("study", "GET", "/questions/q").json()["voted"] == []
    assert [row["id"] for row in endpoint.call("reader", "GET", "/questions").json()] == ["q"]
    assert endpoint.service._busy == 0
    endpoint.close()
    assert paid(endpoint.deployed) == []


def test_a_question_is_voted_on_and_read_by_those_who_may(server: Endpoint) -> None:
    question = {"id": "2026/ward 4", "text": "more than ten?", "seconds": 3600}
    created = server.call("study", "POST", "/questions", question)
    assert (created.status_code, created.json()["state"], created.json()["voted"]) == (201, "open", [])
    assert server.call("study", "POST", "/questions", question).status_code == 200
    assert server.call("study", "POST", "/questions", {**question, "text": "?"}).status_code == 409
    assert [row["id"] for row in server.call("voter1", "GET", "/questions?open=1").json()] == ["2026/ward 4"]
    path = "/questions/2026%2Fward%204"
    for n in (1, 2, 3):
        assert server.call(f"voter{n}", "PUT", f"{path}/vote", {"vote": 1}).status_code == 201
    row = server.call("study", "GET", f"{path}?wait=20").json()
    assert (row["state"], row["voted"]) == ("answered", ["voter1", "voter2", "voter3"])
    assert row["label"] in {0, 1}
    assert server.call("reader", "GET", path).json()["label"] == row["label"]
    assert "label" not in server.call("voter1", "GET", path).json()
    counts = {
        name: len(server.call(name, "GET", "/questions").json()) for name in ("study", "small1", "voter1", "reader")
    }
    assert counts == {"study": 1, "small1": 0, "voter1": 1, "reader": 1}
    for name, method, suffix, body, status in (
        ("small1", "GET", "", None, 404),
        ("voter1", "PUT", "/vote", {"vote": 1}, 200),
        ("study", "PUT", "/vote", {"vote": 1}, 403),
    ):
        assert server.call(name, method, path + suffix, body).status_code == status
    assert paid(server.deployed) == ["2026/ward 4"]


def test_many_questions_are_answered_at_once_and_repeated_for_nothing(server: Endpoint) -> None:
    rows = [{"id": f"q{n}", "votes": [1, n % 2, None]} for n in range(50)] + [{"id": "c", "counts": [1, 2]}]
    answers = server.call("study", "POST", "/ask", rows).json()
    assert [answer["id"] for answer in answers] == [row["id"] for row in rows]
    assert server.call("study", "POST", "/ask", rows).json() == answers
    assert sorted(paid(server.deployed)) == sorted(str(row["id"]) for row in rows)
    half = server.call("study", "POST", "/ask", [{"id": "new", "votes": VOTES}, {"id": "bad", "votes": [1, 1, 7]}])
    assert half.status_code == 400
    assert server.call("study", "GET", "/questions/new").status_code == 404  # all or none


def test_a_client_in_python_asks_votes_and_reads(server: Endpoint) -> None:
    url = f"http://127.0.0.1:{server.port}"
    with ServeClient(url, server.tokens["study"]) as study, ServeClient(url, server.tokens["voter1"]) as voter:
        assert study.create("2026/q", "more?", seconds=60)["text"] == "more?"
        assert [row["id"] for row in voter.open_questions()] == ["2026/q"]
        assert (voter.vote("2026/q", 1), voter.vote("2026/q", 1)) == (True, False)
        assert study.read("2026/q", wait=0.01)["voted"] == ["voter1"]
        (row,) = study.ask([{"id": "a", "votes": VOTES}])
        assert study.read("a", wait=20) == row
        assert study.budget() == {"left": 99, "answered": 1, "client": {"used": 2, "limit": 1000}}
        with pytest.raises(ServerRefusedError, match="may not ask") as caught:
            voter.create("x", votes=VOTES)
        assert (caught.value.status, caught.value.more) == (403, {})


@pytest.mark.parametrize(
    ("answers", "attempts", "outcome", "pauses"),
    [
        ([500, 429, 503, 200], 5, {"left": 1}, [0.2, 0.4, 0.8]),
        ([503, 503, 503], 3, "busy", [0.2, 0.4]),
        ([402], 3, "busy", []),
        ([httpx.ConnectError("gone"), 200], 2, {"left": 1}, [0.2]),
        ([httpx.ConnectError("gone")] * 2, 2, "gone", [0.2]),
        ([httpx.Response(404, text="no JSON")], 2, "status 404", []),
    ],
)
def test_a_client_repeats_failed_calls(
    answers: list[Any], attempts: int, outcome: Any, pauses: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    remaining, slept = [*answers], list[float]()

    def respond(_: object) -> Any:
        answer = remaining.pop(0)
        if isinstance(answer, Exception):
            raise answer
        fields = {"left": 1} if answer == 200 else {"error": "busy", "left": 1}
        return answer if isinstance(answer, httpx.Response) else httpx.Response(answer, json=fields)

    monkeypatch.setattr("darrm.serve.client.time.sleep", slept.append)
    transport = httpx.MockTransport(respond)
    with ServeClient("http://127.0.0.1:1", "0" * 64, attempts=attempts, transport=transport) as client:
        if isinstance(outcome, dict):
            assert client.budget() == outcome
        else:
            with pytest.raises((ServerRefusedError, httpx.ConnectError), match=outcome):
                client.budget()
    assert remaining == []
    assert slept == pytest.approx(pauses)


def test_the_budgets_of_clients_and_projects_are_kept(server: Endpoint) -> None:
    assert [server.ask("small1", id).status_code for id in "ab"] == [200, 200]  # noqa: A001 (its name in the body)
    refusal = server.ask("small1", "c")
    assert (refusal.status_code, refusal.json()["left"], refusal.json()["limit"]) == (402, 0, 2)
    assert "client small1 may ask 2 questions" in refusal.json()["error"]
    assert server.ask("small2", "d").status_code == 200
    refusal = server.ask("small2", "e")
    assert (refusal.status_code, "project p may ask 3" in refusal.json()["error"]) == (402, True)
    assert server.call("small2", "GET", "/budget").json()["client"] == {"used": 1, "limit": 2}  # not the refused one
    assert server.ask("small1", "a").status_code == 200  # paid for before
    assert server.ask("small2", "a").status_code == 409
    # a client without a number for its project sets none, and the smallest number counts
    add_client(server.clients, Client("large", "0" * 64, questions=5, project="p", project_questions=9))
    server.tokens["late"] = add_client(server.clients, Client("late", "0" * 64, questions=5, project="p"))
    budget = server.call("late", "GET", "/budget").json()
    assert (budget["left"], budget["answered"]) == (97, 3)
    assert budget["project"] == {"name": "p", "used": 3, "limit": 3}
    server.tokens["alone"] = add_client(server.clients, Client("alone", "0" * 64, questions=5, project="none"))
    assert "project none may ask 0 questions" in server.ask("alone", "f").json()["error"]
    assert len(paid(server.deployed)) == 3


@pytest.mark.parametrize("header", ["", "Bearer", "Bearer forged", "Basic !", "Basic eDp5", "Bearer " + "9" * 10_000])
def test_a_forged_token_is_refused(header: str, common_server: Endpoint) -> None:
    headers = {"Authorization": header} if header else {}
    for method, path in (("GET", "/"), ("GET", "/metrics"), ("POST", "/ask"), ("PUT", "/questions/q/vote")):
        answer = common_server.http.request(method, path, headers=headers, content=b"[" * 10)
        assert (answer.status_code, answer.headers["WWW-Authenticate"][:5]) == (401, "Basic")
        assert "server" not in answer.headers


def test_the_password_of_a_browser_only_reads(common_server: Endpoint) -> None:
    password = ("study", common_server.tokens["study"])
    headers = {"Origin": "https://other.example", "Content-Type": "text/plain"}  # a form of another site's page
    question = {"id": "q", "votes": VOTES}
    bodies: tuple[tuple[str, object], ...] = (("/ask", [question]), ("/questions", question))
    for path, body in bodies:
        answer = common_server.http.post(path, auth=password, headers=headers, content=json.dumps(body).encode())
        assert answer.status_code == 401
    assert common_server.http.get("/questions", auth=password).status_code == 200


@pytest.mark.parametrize("damage", ["{", None])
def test_a_damaged_file_of_clients_admits_nobody(server: Endpoint, damage: str | None) -> None:
    content = server.clients.read_text()
    if damage is None:
        server.clients.unlink()
    else:
        server.clients.write_text(damage)
    for answer in (server.http.get("/budget"), server.call("study", "GET", "/budget")):
        assert (answer.status_code, "file of clients" in answer.text) == (503, True)  # the ledger is not blamed
        assert str(server.clients) not in answer.text
    server.clients.write_text(content)
    assert server.call("study", "GET", "/budget").status_code == 200


@pytest.mark.parametrize("pause", [0.0, pytest.param(1.2, marks=pytest.mark.slow)])
@pytest.mark.parametrize("is_replaced", [False, True])
def test_a_token_ends_with_its_line_whatever_time_the_file_has(
    server: Endpoint, tmp_path: Path, is_replaced: bool, pause: float
) -> None:
    time.sleep(pause)  # a file that has not changed for a second is not read again
    assert server.call("study", "GET", "/budget").status_code == 200
    status, content = server.clients.stat(), server.clients.read_text()
    changed = content.replace(hash_token(server.tokens["study"]), "1" * 64)  # of the same length
    if is_replaced:
        (tmp_path / "new").write_text(changed)
        (tmp_path / "new").rename(server.clients)
    else:
        server.clients.write_text(changed)
    os.utime(server.clients, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert server.call("study", "GET", "/budget").status_code == 401


def test_hostile_ids_are_kept_and_escaped(server: Endpoint) -> None:
    names = ["'); DROP TABLE questions;--", '" OR 1=1', "<script>alert(1)</script>"]
    for name in names:
        assert server.ask("study", name).json()[0]["id"] == name
    page = server.call("study", "GET", "/").text
    assert "<script>" not in page
    assert "&lt;script&gt;" in page
    assert sorted(paid(server.deployed)) == sorted(names)


NUMBERS = "every number below 1.8e308"
ONCE = "each name of an object once"
EMPTY_BODIES: tuple[object, ...] = ({}, [], [1], "x", None, 7)


@pytest.mark.parametrize(
    ("body", "status", "message"),
    [
        *((body, 400, "") for body in EMPTY_BODIES),
        *((body, 400, "") for body in (b"\xff", b"[" * 100_000, b"{", b"")),
        ([{"id": 1, "votes": VOTES}], 400, ""),
        ([{"id": ["x"], "votes": VOTES}], 400, ""),
        (rb'[{"id": "x\ud800", "votes": [1, 1, 1]}]', 400, ""),
        ([{"id": ".", "votes": VOTES}], 400, "neither"),
        ([{"id": "..", "votes": VOTES}], 400, "neither"),
        ([{"id": "x", "votes": [1, 1]}], 400, " must be "),
        ([{"id": "x", "votes": [1, 1, 2**70]}], 400, " must be "),
        ([{"id": "x", "votes": {"a": 1}}], 400, " must be "),
        ([{"id": "x", "votes": "111"}], 400, " must be "),
        ([{"id": "x", "votes": 7}], 400, " must be "),
        ([{"id": "x", "counts": 3}], 400, " must be "),
        ([{"id": "x", "counts": [1e99, 2]}], 400, " must be "),
        ([{"id": "x", "seconds": 1e300}], 400, " must be "),
        ([{"id": "x", "asker": "reader"}], 400, "a field that the endpoint does not know"),
        (rb'[{"id": "x", "text": "\ud800", "votes": [1, 1, 1]}]', 400, " must be "),
        *((b'[{"id": "x", "seconds": %s}]' % n, 400, NUMBERS) for n in (b"1e400", b"-1e400")),
        *((b'[{"id": "x", "%s": [1e400, 1, 1]}]' % field, 400, NUMBERS) for field in (b"votes", b"counts")),
        (b'[{"id": "x", "seconds": 1%s}]' % (b"0" * 400), 400, " must be "),
        *((b'[{"id": "x", "%s": [1%s, 1, 1]}]' % (field, b"0" * 400), 400, "") for field in (b"votes", b"counts")),
        (b'[{"id": "a", "id": "b", "votes": [1, 1, 1]}]', 400, ONCE),
        (b'[{"id": "a", "votes": [0, 0, 0], "votes": [1, 1, 1]}]', 400, ONCE),
        (b" " * 2**17, 400, "JSON"),
        (b" " * (2**17 + 1), 413, "longer than 131,072 bytes"),
    ],
)
def test_a_wrong_body_is_refused(body: Any, status: int, message: str, common_server: Endpoint) -> None:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    answer = common_server.call("study", "POST", "/ask", content)
    assert answer.status_code == status
    assert message in answer.json()["error"]
    assert "0" * 20 not in answer.text


@pytest.mark.parametrize(
    ("name", "method", "path", "body", "status", "message"),
    [
        ("voter1", "PUT", "/questions/q/vote", b'{"vote": 0, "vote": 1}', 400, ONCE),
        ("study", "POST", "/questions", b'{"id": "x", "votes": [0, 0, 0], "votes": [1, 1, 1]}', 400, ONCE),
        ("voter1", "POST", "/questions", {"id": "x", "seconds": 1}, 403, "may not ask"),
        ("study", "GET", "/questions/q?wait=x", None, 400, "wait must be a valid number"),
        *(("study", "GET", f"/questions?open={word}", None, 400, "open") for word in ("2", "", "false", "yes")),
        # a redirect could send a token in the clear
        ("study", "POST", "/ask/", None, 404, "/docs"),
        ("study", "GET", "/no/such", None, 404, "/docs"),
        ("study", "DELETE", "/ask", None, 405, "/docs"),
    ],
)
def test_a_wrong_request_is_refused(
    name: str, method: str, path: str, body: Any, status: int, message: str, common_server: Endpoint
) -> None:
    answer = common_server.call(name, method, path, body)
    assert (answer.status_code, answer.headers.get("location")) == (status, None)
    assert "WWW-Authenticate" not in answer.headers
    assert message in answer.json()["error"]


def test_a_long_body_is_refused_though_no_length_is_announced(common_server: Endpoint) -> None:
    for count, status in ((2**7, 400), (2**7 + 1, 413)):
        pieces = (b" " * 2**10 for _ in range(count))
        assert common_server.call("study", "POST", "/ask", content=pieces).status_code == status


@pytest.mark.parametrize("vote", [SECRET, [SECRET], {SECRET: SECRET}, 123456789, -12345678.5, f"{SECRET}\0"])
def test_a_refusal_repeats_no_vote(vote: Any, common_server: Endpoint) -> None:
    for name, method, path, body in (
        ("voter1", "PUT", "/questions/q/vote", {"vote": vote}),
        ("voter1", "PUT", "/questions/q/vote", {"vote": 1, "more": vote}),
        ("voter1", "PUT", "/questions/q/vote", vote),
        ("study", "POST", "/ask", [{"id": "x", "votes": [1, 1, vote]}]),
        ("study", "POST", "/ask", [{"id": "x", "votes": vote}]),
        ("study", "POST", "/ask", [{"id": "x", "counts": [1, vote]}]),
    ):
        answer = common_server.call(name, method, path, body)
        assert answer.status_code == 400
        assert not any(part in answer.text for part in (SECRET[:10], "12345678"))


def test_no_vote_label_or_id_is_measured_or_logged(
    server: Endpoint, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def fail(error: Exception) -> Any:
        def vote(*_: object) -> None:
            raise error

        monkeypatch.setattr(Questions, "vote", vote)
        return server.call("voter1", "PUT", "/questions/q/vote", {"vote": 1})

    server.ask("study", SECRET)
    metrics = server.call("reader", "GET", "/metrics").text
    assert 'darrm_questions{state="answered"} 1' in metrics
    assert "darrm_answered_total 1" in metrics
    assert 'darrm_requests_total{status="200"} 1\n' in metrics
    failure = fail(RuntimeError(SECRET))
    assert failure.status_code == 500
    assert SECRET not in metrics + failure.text + "".join(capfd.readouterr())
    assert fail(sqlite3.OperationalError("database or disk is full")).status_code == 503


def test_a_server_that_answers_nothing_tells_so(server: Endpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    server.service._worker._retry_at = math.inf
    monkeypatch.setattr(requests, "LONGEST_POLL", 0.05)
    assert server.call("study", "GET", "/budget").json()["answered"] == 0
    assert server.ask("study", "q").json()[0]["state"] == "ready"
    assert server.call("study", "GET", "/questions/q?wait=0.05").json()["state"] == "ready"
    for trouble, status in (("", 200), ("away", 503)):
        server.service._worker.trouble = trouble
        health = server.http.get("/health")
        assert (health.status_code, health.json()) == (status, {"ok": not trouble})
        metrics = server.call("reader", "GET", "/metrics").text
        assert f"\ndarrm_up {int(not trouble)}\n" in metrics
        assert "\ndarrm_budget_questions_left 100\n" in metrics
        assert ("Nothing is answered" in server.call("study", "GET", "/").text) == bool(trouble)
    monkeypatch.setattr(app, "_MAX_REQUESTS", 0)
    assert "too many requests at once" in server.call("study", "GET", "/budget").json()["error"]


def test_the_page_shows_who_voted_and_loads_nothing(server: Endpoint) -> None:
    server.call("study", "POST", "/questions", {"id": "ward 4", "text": "more?", "seconds": 3600})
    server.call("voter2", "PUT", "/questions/ward 4/vote", {"vote": 1})
    answer = server.http.get("/", auth=("study", server.tokens["study"]))  # as a browser sends it
    assert answer.status_code == 200
    assert "default-src 'none'" in answer.headers["Content-Security-Policy"]
    assert "Voted: voter2" in answer.text
    assert '<meter min="0"' in answer.text
    for text in (answer.text, server.http.get("/docs").text):
        assert "http" not in text
        assert "<script" not in text


def test_the_page_tells_the_state_of_questions_and_budgets() -> None:
    question = {"id": "q", "text": "", "asker": "a", "deadline": 0.0, "voted": [], "state": "open"}
    states: list[tuple[dict[str, Any], str]] = [
        ({"text": "why?"}, "<p>why?</p><p>waits for votes until 1970-01-01 00:00:00 UTC</p><p>Voted: nobody</p>"),
        ({"voted": ["v1", "v2"]}, "UTC</p><p>Voted: v1, v2</p>"),
        (
            {"state": "answered"},
            "answered; the label is its asker&#x27;s</span></p><p>Voted: all, with the question</p>",
        ),
        ({"state": "answered", "label": 0}, '<span class="label">answer: 0</span></p>'),
        *(({"state": state}, f"<p>{app._STATES[state]}</p><p>Voted: ") for state in app._STATES if state != "open"),
    ]
    budget = {"left": 3, "answered": 2, "client": {"used": 1, "limit": 2}, "project": {"used": 3, "limit": 2}}
    page = app.home_page([question | fields for fields, _ in states], budget, "study", "", "/r")
    assert [text for _, text in states if text not in page] == []
    assert f"You are study. {len(states)} shown, 2 answered." in page
    for name, left, limit in (("Common budget", 3, 5), ("Your own", 1, 2), ("Your project", 0, 2)):
        text = f"{left} of {limit} questions left"
        assert f'{name}: {text}<br><meter min="0" max="{limit}" value="{left}" aria-label="{name}">{text}<' in page
    assert "Nothing is answered" not in page
    page = app.home_page([], {"left": 0, "answered": 0, "client": {"used": 0, "limit": 0}}, "reader", "", "")
    assert page.count("<meter") == page.count('max="1"') == 1


def test_the_page_does_not_show_where_the_ledger_is() -> None:
    budget = {"left": 1, "answered": 0, "client": {"used": 0, "limit": 0}}
    page = app.home_page([], budget, "study", "ledger '/var/lib/darrm/ledger.sqlite': away", "")
    assert "Nothing is answered just now" in page
    assert "ledger.sqlite" not in page


def test_every_endpoint_is_described(common_server: Endpoint) -> None:
    paths = common_server.http.get("/openapi.json").json()["paths"]
    assert {f"{method} {path}" for path, methods in paths.items() for method in methods} == {
        *("post /ask", "get /questions", "post /questions", "get /questions/{id}", "put /questions/{id}/vote"),
        *("get /budget", "get /metrics", "get /health"),
    }
    routes = {route.path.replace(":path", "") for route in common_server.service.routes.routes}  # type: ignore[attr-defined]
    assert routes - {"/", "/docs", "/openapi.json"} == set(paths)
    page = html.unescape(common_server.http.get("/docs").text)
    assert [path for path, methods in paths.items() for each in methods.values() if each["summary"] not in page] == []
    assert all(operation["summary"].endswith(".") for methods in paths.values() for operation in methods.values())


def test_questions_are_listed_by_whether_they_are_open(server: Endpoint) -> None:
    server.call("study", "POST", "/questions", {"id": "waits", "seconds": 3600})
    server.ask("study", "done")
    for query, names in (("", {"waits", "done"}), ("?open=0", {"done"}), ("?open=1", {"waits"})):
        assert {row["id"] for row in server.call("study", "GET", f"/questions{query}").json()} == names


# byte by byte


def connect(server: Endpoint) -> socket.socket:
    return socket.create_connection(("127.0.0.1", server.port), timeout=10)


def headers_of(server: Endpoint) -> bytes:
    return f"Host: a\r\nAuthorization: Bearer {server.tokens['study']}\r\n".encode()


@pytest.mark.parametrize("path", [b"/ask", b"/health", b"/no/such"])
@pytest.mark.parametrize("pause", [0.0, 0.05])  # the second sends the body in a segment of its own
def test_the_body_of_a_request_to_upgrade_is_no_request(path: bytes, pause: float, common_server: Endpoint) -> None:
    body = b"GET /questions HTTP/1.1\r\n" + headers_of(common_server) + b"\r\n"
    upgrade = b"Connection: Upgrade\r\nUpgrade: h2c\r\nContent-Length: %d\r\n\r\n" % len(body)
    answer = b""
    with connect(common_server) as link:
        link.sendall(b"POST " + path + b" HTTP/1.1\r\n" + headers_of(common_server) + upgrade)
        time.sleep(pause)
        with suppress(OSError):
            link.sendall(body)
            while piece := link.recv(2**16):
                answer += piece
    assert answer.count(b"HTTP/1.1 ") == 1
    assert answer.startswith(b"HTTP/1.1 400 ")


@pytest.mark.parametrize("path", [b"/questions", b"/health", b"/docs"])
def test_long_headers_and_addresses_are_refused(path: bytes, common_server: Endpoint) -> None:
    for length in (15_000, 17_000, 44_000, 100_000):
        filler = b"a" * length
        for address, header in ((path + b"?x=" + filler, b""), (path, b"X: " + filler + b"\r\n")):
            with connect(common_server) as link:
                link.sendall(b"GET " + address + b" HTTP/1.1\r\n" + headers_of(common_server) + header + b"\r\n")
                status = int(link.recv(100).split()[1])
            assert status in ({200} if length == 15_000 else {431, 400})  # the parser knows no address beyond 64 KiB


@pytest.mark.parametrize(("length", "status"), [(10**9, b" 413 "), (10, b" 408 ")])
def test_a_body_that_is_too_long_or_too_slow_is_refused(
    length: int, status: bytes, common_server: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(app, "BODY_SECONDS", 0.3)
    with connect(common_server) as link:
        head = b"POST /ask HTTP/1.1\r\n" + headers_of(common_server)
        link.sendall(head + b"Content-Length: %d\r\n\r\n[" % length)
        assert status in link.recv(4096)[:20]


def test_idle_connections_of_strangers_stop_nobody(common_server: Endpoint) -> None:
    app.allow_connections()
    links = [connect(common_server) for _ in range(1100)]
    try:
        assert common_server.http.get("/health").status_code == 200
        assert common_server.call("study", "GET", "/budget").status_code == 200
    finally:
        for link in links:
            link.close()


def test_the_limit_of_open_files_is_raised_if_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[int, int]] = []
    monkeypatch.setattr(resource, "setrlimit", lambda _, limits: calls.append(limits))
    infinity = resource.RLIM_INFINITY
    for soft, hard in ((1024, 524288), (1024, 2048), (1024, infinity), (65536, 65536), (infinity, infinity)):
        monkeypatch.setattr(resource, "getrlimit", lambda _, limits=(soft, hard): limits)
        app.allow_connections()
    assert calls == [(8192, 524288), (2048, 2048), (8192, resource.RLIM_INFINITY)]


def test_an_address_that_cannot_be_listened_on_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    families: list[int] = []

    def fail(_: object, *, family: int, **__: object) -> None:
        families.append(family)
        raise OSError(98, "Address already in use") if family == socket.AF_INET6 else OSError("no name")

    monkeypatch.setattr(socket, "create_server", fail)
    for host, reason in (("::1", "Address already in use"), ("127.0.0.1", "no name")):
        with pytest.raises(OSError, match=rf"{host}:5 cannot be listened on \({reason}\): is another server there"):
            app.listen(host, 5)
    assert families == [socket.AF_INET6, socket.AF_INET]


def test_a_server_logs_no_requests_and_trusts_no_headers_of_proxies(common_server: Endpoint) -> None:
    config = common_server.server.config
    assert (config.access_log, config.proxy_headers, config.log_level) == (False, False, "critical")
