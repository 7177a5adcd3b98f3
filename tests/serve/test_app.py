"""The endpoints, over the network of this machine, in this process; a server of its own is in test_server.py."""

import json
import os
import resource
import socket
import sqlite3
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import product
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("starlette", reason="needs the extra serve")
pytest.importorskip("httpx", reason="needs the extra serve")
import httpx

from darrm.serve import app
from darrm.serve.app import Service, allow_connections, home_page, listen, make_server
from darrm.serve.clients import Client, add_client, authenticate, hash_token, read_clients
from darrm.serve.questions import Questions
from darrm.serve.worker import AnswerWorker, Deployment
from tests.serve.deployments import deployment, paid, tokens_of

UNSEEN = "vote-nobody-shall-see"


class Endpoint:
    def __init__(self, folder: Path, fit: int = 1000, most: int = 2**20, what: Deployment | None = None) -> None:
        self.clients, self.what = folder / "clients.json", what or deployment(folder, fit)
        self.tokens = tokens_of(self.clients)
        self.service = Service(AnswerWorker(self.what), self.clients, most)
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

    def call(self, name: str, method: str, path: str, body: object = None, **more: Any) -> httpx.Response:
        headers = {"Authorization": f"Bearer {self.tokens[name]}"}
        if body is not None:
            more["json"] = body
        return self.http.request(method, path, headers=headers, **more)


@pytest.fixture
def server(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Endpoint]:
    endpoint = Endpoint(tmp_path, **getattr(request, "param", {}))
    yield endpoint
    endpoint.close()


def test_a_question_goes_its_way_and_each_reads_what_is_its_own(server: Endpoint) -> None:
    question = {"id": "2026/ward 4", "text": "more than ten?", "seconds": 3600}
    made = server.call("study", "POST", "/questions", question)
    assert (made.status_code, made.json()["state"], made.json()["voted"]) == (201, "open", [])
    assert server.call("study", "POST", "/questions", question).status_code == 200
    assert server.call("study", "POST", "/questions", {**question, "text": "?"}).status_code == 409
    assert [one["id"] for one in server.call("voter1", "GET", "/questions?open=1").json()] == ["2026/ward 4"]
    path = "/questions/2026%2Fward%204"
    for n in (1, 2, 3):
        assert server.call(f"voter{n}", "PUT", f"{path}/vote", {"vote": 1}).status_code == 201
    one = server.call("study", "GET", f"{path}?wait=20").json()
    assert (one["state"], one["voted"], one["label"] in {0, 1}) == ("answered", ["voter1", "voter2", "voter3"], True)
    assert server.call("reader", "GET", path).json()["label"] == one["label"]
    assert "label" not in server.call("voter1", "GET", path).json()
    assert server.call("small1", "GET", path).status_code == 404
    assert server.call("voter1", "PUT", f"{path}/vote", {"vote": 1}).status_code == 200
    assert server.call("study", "PUT", f"{path}/vote", {"vote": 1}).status_code == 403
    assert server.call("voter1", "POST", "/questions", {"id": "x", "seconds": 1}).status_code == 403
    assert paid(server.what) == ["2026/ward 4"]


def test_many_questions_at_once_are_answered_and_asked_again_cost_nothing(server: Endpoint) -> None:
    rows = [{"id": f"q{n}", "votes": [1, n % 2, None]} for n in range(50)] + [{"id": "c", "counts": [1, 2]}]
    first = server.call("study", "POST", "/ask", rows).json()
    assert [one["id"] for one in first] == [row["id"] for row in rows]
    assert server.call("study", "POST", "/ask", rows).json() == first
    assert sorted(paid(server.what)) == sorted(str(row["id"]) for row in rows)
    half = server.call("study", "POST", "/ask", [{"id": "new", "votes": [1, 1, 1]}, {"id": "bad", "votes": [1, 1, 7]}])
    assert half.status_code == 400
    assert server.call("study", "GET", "/questions/new").status_code == 404  # all or none


@pytest.mark.slow
@pytest.mark.parametrize("server", [{"fit": 1}], indirect=True)
def test_a_hundred_clients_race_for_the_last_answer(server: Endpoint) -> None:
    with ThreadPoolExecutor(32) as pool:
        asked = pool.map(
            lambda n: server.call("study", "POST", "/ask", [{"id": f"q{n}", "votes": [1, 1, 0]}]), range(100)
        )
        states = [answer.json()[0]["state"] for answer in asked]
    assert sorted(states) == ["answered"] + ["refused"] * 99
    assert len(paid(server.what)) == 1
    assert server.call("study", "GET", "/budget").json() == {
        "left": 0,
        "answered": 1,
        "client": {"used": 1, "limit": 1000},
    }


def test_a_budget_of_a_client_and_of_a_project_is_refused_with_what_is_left(server: Endpoint) -> None:
    def ask(name: str, id: str) -> httpx.Response:  # noqa: A002 (its name in the body)
        return server.call(name, "POST", "/ask", [{"id": id, "votes": [1, 1, 0]}])

    assert [ask("small1", "a").status_code, ask("small1", "b").status_code] == [200, 200]
    spent = ask("small1", "c")
    assert (spent.status_code, spent.json()["left"], spent.json()["limit"]) == (402, 0, 2)
    assert "client small1 may ask 2 questions" in spent.json()["error"]
    assert [ask("small2", "d").status_code, ask("small2", "e").status_code] == [200, 402]
    assert "project p may ask 3" in ask("small2", "e").json()["error"]
    assert server.call("small2", "GET", "/budget").json()["client"] == {
        "used": 1,
        "limit": 2,
    }  # nothing of a refused one
    assert ask("small1", "a").status_code == 200  # replayed: it was paid for
    assert ask("small2", "a").status_code == 409
    assert len(paid(server.what)) == 3


def test_a_forged_token_is_refused_before_anything_is_read(server: Endpoint) -> None:
    for header in ("", "Bearer", "Bearer forged", "Basic !", "Basic eDp5", "Bearer " + "9" * 10_000):
        headers = {"Authorization": header} if header else {}
        for method, path in (("GET", "/"), ("GET", "/metrics"), ("POST", "/ask"), ("PUT", "/questions/q/vote")):
            assert server.http.request(method, path, headers=headers, content=b"[" * 10).status_code == 401


def test_what_a_browser_sends_by_itself_reads_and_asks_nothing(server: Endpoint) -> None:
    known = ("study", server.tokens["study"])
    body = b'[{"id": "q", "votes": [1, 1, 1]}]'
    others = {"Origin": "https://other.example", "Content-Type": "text/plain"}  # a form of another site's page
    assert server.http.post("/ask", auth=known, headers=others, content=body).status_code == 401
    assert server.http.post("/questions", auth=known, headers=others, content=body[1:-1]).status_code == 401
    assert server.http.get("/questions", auth=known).json() == []


@pytest.mark.parametrize("damage", ["{", None])
def test_a_file_of_clients_that_cannot_be_read_lets_nobody_in(server: Endpoint, damage: str | None) -> None:
    whole = server.clients.read_text()
    server.clients.unlink() if damage is None else server.clients.write_text(damage)
    for answer in (server.http.get("/budget"), server.call("study", "GET", "/budget")):
        assert (answer.status_code, "file of clients" in answer.text) == (503, True)  # and blames no ledger
        assert str(server.clients) not in answer.text
    server.clients.write_text(whole)
    assert server.call("study", "GET", "/budget").status_code == 200


def test_what_is_hostile_changes_nothing(server: Endpoint) -> None:
    names = ["'); DROP TABLE questions;--", '" OR 1=1', "<script>alert(1)</script>"]
    for name in names:
        assert server.call("study", "POST", "/ask", [{"id": name, "votes": [1, 1, 0]}]).json()[0]["id"] == name
    wrong: list[object] = [{}, [], [1], [{"id": 1, "votes": [1, 1, 1]}], [{"id": "x" * 101, "votes": [1, 1, 1]}]]
    wrong += [[{"id": "x", "votes": [1, 1]}], [{"id": "x", "votes": {"a": 1}}], [{"id": "x", "seconds": -1}], "x", None]
    wrong += [[{"id": "x", "seconds": 1e300}], [{"id": "x", "counts": [1e99, 2]}], [{"id": "x", "asker": "reader"}], 7]
    wrong += [
        [{"id": "x", "votes": [1, 1, 2**70]}],
        [{"id": ["x"], "votes": [1, 1, 1]}],
        [{"id": "x\ud800", "votes": [1, 1, 1]}],
    ]
    for body in wrong:
        assert server.call("study", "POST", "/ask", content=json.dumps(body).encode()).status_code == 400, body
    for raw in (b"\xff", b"[" * 100_000, b"{", b""):
        assert server.call("study", "POST", "/ask", content=raw).status_code == 400
    for number in (b"1e400", b"-1e400", b"1" + b"0" * 400):
        for field in (b"seconds", b"votes", b"counts"):
            value = number if field == b"seconds" else b"[%s, 1, 1]" % number
            answer = server.call("study", "POST", "/ask", content=b'[{"id": "x", "%s": %s}]' % (field, value))
            assert (answer.status_code, b"e" in number) == (400, "every number below 1.8e308" in answer.text), (
                answer.text
            )
            assert number.decode() not in answer.text
    page = server.call("study", "GET", "/").text
    assert "<script>" not in page
    assert "&lt;script&gt;" in page
    assert sorted(paid(server.what)) == sorted(names)


@pytest.mark.parametrize("server", [{"most": 1000}], indirect=True)
def test_what_is_too_long_is_refused(server: Endpoint) -> None:
    answer = server.call("study", "POST", "/ask", [{"id": "x" * 10_000, "votes": [1, 1, 1]}])
    assert answer.status_code == 413
    pieces = (b" " * 100 for _ in range(10_000))  # no length is announced
    assert server.call("study", "POST", "/ask", content=pieces).status_code == 413


def test_no_vote_label_or_id_is_measured_or_logged(
    server: Endpoint, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    server.call("study", "POST", "/ask", [{"id": UNSEEN, "votes": [1, 1, 1]}])
    metrics = server.call("reader", "GET", "/metrics").text
    assert 'darrm_questions{state="answered"} 1' in metrics
    assert "darrm_answered_total 1" in metrics

    def broken(*_: object) -> None:
        raise RuntimeError(UNSEEN)

    monkeypatch.setattr(Questions, "vote", broken)
    failed = server.call("voter1", "PUT", "/questions/q/vote", {"vote": 1})
    assert failed.status_code == 500
    assert UNSEEN not in metrics + failed.text + "".join(capfd.readouterr())


def test_a_full_disk_asks_to_try_again(server: Endpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise sqlite3.OperationalError("database or disk is full")

    monkeypatch.setattr(Questions, "vote", full)
    assert server.call("voter1", "PUT", "/questions/q/vote", {"vote": 1}).status_code == 503


def test_tokens_are_kept_hashed_and_clients_are_read_anew(server: Endpoint) -> None:
    text = server.clients.read_text()
    assert not any(token in text for token in server.tokens.values())
    assert stat.S_IMODE(server.clients.stat().st_mode) == 0o600
    assert len({len(token) for token in server.tokens.values()}) == 1
    assert all(authenticate(read_clients(server.clients), token).name == name for name, token in server.tokens.items())  # type: ignore[union-attr]
    assert hash_token("abc").startswith("ba7816bf8f01cfea")  # FIPS 180-2
    with pytest.raises(ValueError, match="new"):
        add_client(server.clients, Client("study", "0" * 64))
    with pytest.raises(ValueError, match="no other client"):
        add_client(server.clients, Client("other", "0" * 64, voter=1))
    server.tokens["late"] = add_client(server.clients, Client("late", "0" * 64, reads=True))
    assert server.call("late", "GET", "/questions").status_code == 200
    server.clients.write_text(json.dumps([row for row in json.loads(text) if row["name"] != "study"]))
    assert server.call("study", "GET", "/questions").status_code == 401


def test_the_page_shows_who_voted_and_neither_votes_nor_hosts_nor_scripts(server: Endpoint) -> None:
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


def test_every_endpoint_is_described(server: Endpoint) -> None:
    described = server.http.get("/openapi.json").json()
    methods = {(path, method) for path, each in described["paths"].items() for method in each}
    assert methods == {
        *(("/ask", "post"), ("/questions", "get"), ("/questions", "post"), ("/questions/{id}", "get")),
        *(("/questions/{id}/vote", "put"), ("/budget", "get"), ("/metrics", "get"), ("/health", "get")),
    }
    routes = {route.path.replace(":path", "") for route in server.service.routes.routes}  # type: ignore[attr-defined]
    assert routes - {"/", "/docs", "/openapi.json"} == set(described["paths"])
    assert all(one["summary"].endswith(".") for each in described["paths"].values() for one in each.values())


@pytest.mark.slow
def test_without_a_server_nothing_loads_one() -> None:
    code = "import sys, darrm, darrm.optimize.__main__, darrm.serve.__main__; "
    code += "sys.exit(bool({'starlette', 'uvicorn', 'httpx', 'pydantic'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_off_the_routes_there_is_json_and_no_way_to_send_a_token_in_the_clear(server: Endpoint) -> None:
    for method, path, status in (("POST", "/ask/", 404), ("GET", "/no/such", 404), ("DELETE", "/ask", 405)):
        answer = server.call("study", method, path)
        assert (answer.status_code, answer.headers.get("location")) == (status, None)
        assert "/docs" in answer.json()["error"]


def test_open_is_0_or_1(server: Endpoint) -> None:
    server.call("study", "POST", "/questions", {"id": "waits", "seconds": 3600})
    server.call("study", "POST", "/ask", [{"id": "done", "votes": [1, 1, 0]}])
    for query, names in (("", {"waits", "done"}), ("?open=0", {"done"}), ("?open=1", {"waits"})):
        assert {one["id"] for one in server.call("study", "GET", f"/questions{query}").json()} == names
    for wrong in ("2", "", "false", "yes"):
        assert server.call("study", "GET", f"/questions?open={wrong}").status_code == 400


def test_an_object_with_one_name_twice_is_refused(server: Endpoint) -> None:
    server.call("study", "POST", "/questions", {"id": "q", "seconds": 3600})
    for name, method, path, body in (
        ("voter1", "PUT", "/questions/q/vote", b'{"vote": 0, "vote": 1}'),
        ("study", "POST", "/ask", b'[{"id": "a", "id": "b", "votes": [1, 1, 1]}]'),
        ("study", "POST", "/questions", b'{"id": "a", "votes": [0, 0, 0], "votes": [1, 1, 1]}'),
    ):
        answer = server.call(name, method, path, content=body)
        assert (answer.status_code, "each name of an object once" in answer.text) == (400, True)
    assert server.call("study", "GET", "/questions/q").json()["voted"] == []


def test_a_refusal_repeats_no_vote(server: Endpoint) -> None:
    server.call("study", "POST", "/questions", {"id": "q", "seconds": 3600})
    for vote in (UNSEEN, [UNSEEN], {UNSEEN: UNSEEN}, 123456789, -12345678.5, f"{UNSEEN}\0"):
        for name, method, path, body in (
            ("voter1", "PUT", "/questions/q/vote", {"vote": vote}),
            ("voter1", "PUT", "/questions/q/vote", {"vote": 1, "more": vote}),
            ("voter1", "PUT", "/questions/q/vote", vote),
            ("study", "POST", "/ask", [{"id": "x", "votes": [1, 1, vote]}]),
            ("study", "POST", "/ask", [{"id": "x", "votes": vote}]),
            ("study", "POST", "/ask", [{"id": "x", "counts": [1, vote]}]),
        ):
            answer = server.call(name, method, path, body)
            assert answer.status_code == 400
            assert not any(part in answer.text for part in (UNSEEN[:10], "12345678"))


@pytest.mark.slow
def test_clients_that_are_added_at_once_are_all_there(tmp_path: Path) -> None:
    code = "import sys; from pathlib import Path; from darrm.serve.clients import Client, add_client\n"
    code += "for n in range(10): add_client(Path('c.json'), Client(f'{sys.argv[1]}-{n}', '0' * 64))"
    several = [subprocess.Popen([sys.executable, "-c", code, str(n)], cwd=tmp_path) for n in range(4)]
    assert [process.wait() for process in several] == [0] * 4
    names = {client.name for client in read_clients(tmp_path / "c.json")}
    assert names == {f"{a}-{b}" for a in range(4) for b in range(10)}


def test_a_file_of_clients_is_its_owners_from_the_first_byte(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, modes, replace = tmp_path / "clients.json", [], Path.replace

    def noted(file: Path, target: Path) -> Path:
        modes.append(stat.S_IMODE(file.stat().st_mode))
        return replace(file, target)

    monkeypatch.setattr(Path, "replace", noted)
    before = os.umask(0)
    try:
        add_client(path, Client("a", "0" * 64))
        path.chmod(0o640)
        add_client(path, Client("b", "0" * 64))
    finally:
        os.umask(before)
    assert modes == [0o600, 0o640]


@pytest.mark.parametrize("pause", [0.0, pytest.param(1.2, marks=pytest.mark.slow)])
@pytest.mark.parametrize("how", ["in place", "replaced"])
def test_a_token_ends_with_its_line_whatever_time_the_file_has(
    server: Endpoint, tmp_path: Path, how: str, pause: float
) -> None:
    time.sleep(pause)  # a file that has not changed for a second is not read again
    assert server.call("study", "GET", "/budget").status_code == 200
    before, text = server.clients.stat(), server.clients.read_text()
    other = text.replace(hash_token(server.tokens["study"]), "1" * 64)  # of the same length
    if how == "in place":
        server.clients.write_text(other)
    else:
        (tmp_path / "new").write_text(other)
        (tmp_path / "new").rename(server.clients)
    os.utime(server.clients, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert server.call("study", "GET", "/budget").status_code == 401


@pytest.mark.parametrize("digest", [hash_token(""), "0" * 63, "é" * 64, "A" * 64, "x" * 64, None])
def test_a_digest_that_is_none_is_refused(tmp_path: Path, digest: object) -> None:
    path = tmp_path / "clients.json"
    path.write_text(json.dumps([{"name": "a", "digest": digest}]))
    with pytest.raises(ValueError, match="digest of 64 hexadecimal digits"):
        read_clients(path)


def test_the_hash_of_a_word_admits_nobody() -> None:
    words = ["", "x", "password", " "]
    clients = [Client("a", hash_token(word)) for word in words if word]
    assert [authenticate(clients, word) for word in words] == [None] * 4


def test_a_client_is_added_without_taking_the_file_from_the_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, given = tmp_path / "clients.json", []
    add_client(path, Client("a", "0" * 64))
    path.chmod(0o640)
    monkeypatch.setattr("os.chown", lambda file, owner, group: given.append((Path(file).parent, owner, group)))
    real = Path.stat

    def another(file: Path, **how: Any) -> Any:
        status = list(real(file, **how))
        if file == path:
            status[4:6] = 10001, 10002
        return os.stat_result(status)

    monkeypatch.setattr(Path, "stat", another)
    add_client(path, Client("b", "0" * 64))
    monkeypatch.undo()
    assert given == [(tmp_path, 10001, 10002)]
    assert stat.S_IMODE(path.stat().st_mode) == 0o640


def test_bad_input_is_refused_in_words_that_say_what_is_allowed(server: Endpoint) -> None:
    for more in ({"votes": "111"}, {"votes": 7}, {"counts": 3}, {"text": "\ud800", "votes": [1, 1, 1]}):
        answer = server.call("study", "POST", "/ask", content=json.dumps([{"id": "x", **more}]).encode())
        assert (answer.status_code, " must be " in answer.json()["error"]) == (400, True)
    for name in (".", ".."):
        answer = server.call("study", "POST", "/ask", [{"id": name, "votes": [1, 1, 1]}])
        assert (answer.status_code, "neither" in answer.json()["error"]) == (400, True)
    server.call("study", "POST", "/questions", {"id": "q", "seconds": 60})
    assert "wait must be a valid number" in server.call("study", "GET", "/questions/q?wait=x").json()["error"]
    assert paid(server.what) == []


def test_a_client_that_names_no_number_for_its_project_sets_none(server: Endpoint) -> None:
    server.tokens["late"] = add_client(server.clients, Client("late", "0" * 64, questions=5, project="p"))
    assert server.call("small1", "POST", "/ask", [{"id": "a", "votes": [1, 1, 0]}]).status_code == 200
    assert server.call("late", "GET", "/budget").json()["project"]["limit"] == 3


def test_the_page_does_not_show_where_the_ledger_is() -> None:
    budget = {"left": 1, "answered": 0, "client": {"used": 0, "limit": 0}}
    page = home_page([], budget, "study", "ledger '/var/lib/darrm/ledger.sqlite': away", "")
    assert "Nothing is answered just now" in page
    assert "ledger.sqlite" not in page


# byte by byte: requests within requests, heads and bodies that are too long, idle connections


def connected(server: Endpoint) -> socket.socket:
    return socket.create_connection(("127.0.0.1", server.port), timeout=10)


def known(server: Endpoint) -> bytes:
    return f"Host: a\r\nAuthorization: Bearer {server.tokens['study']}\r\n".encode()


def all_of(link: socket.socket) -> bytes:
    answer = b""
    with suppress(OSError):
        while piece := link.recv(2**16):
            answer += piece
    return answer


def test_the_body_of_a_request_to_upgrade_is_no_request(server: Endpoint) -> None:
    inner = b"GET /questions HTTP/1.1\r\n" + known(server) + b"\r\n"
    upgrade = b"Connection: Upgrade\r\nUpgrade: h2c\r\nContent-Length: %d\r\n\r\n" % len(inner)
    for path, pause in product((b"/ask", b"/health", b"/no/such"), (0.0, 0.05)):
        with connected(server) as link:
            link.sendall(b"POST " + path + b" HTTP/1.1\r\n" + known(server) + upgrade)
            time.sleep(pause)  # a segment of its own
            with suppress(OSError):
                link.sendall(inner)
            answer = all_of(link)
        assert answer.count(b"HTTP/1.1 ") == 1, (path, pause)
        assert answer.startswith(b"HTTP/1.1 400 "), (path, pause)


def test_headers_and_addresses_beyond_the_limit_are_refused(server: Endpoint) -> None:
    for path, length in product((b"/questions", b"/health", b"/docs"), (15_000, 17_000, 44_000, 100_000)):
        for first, header in ((path + b"?x=" + b"a" * length, b""), (path, b"X: " + b"a" * length + b"\r\n")):
            with connected(server) as link:
                link.sendall(b"GET " + first + b" HTTP/1.1\r\n" + known(server) + header + b"\r\n")
                status = int(link.recv(100).split()[1])
            # an address beyond 64 KiB is none to the parser
            assert status in ({200} if length == 15_000 else {431, 400}), (path, length)


def test_a_gigabyte_and_a_body_that_never_ends_are_refused(server: Endpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app, "BODY_SECONDS", 0.3)
    for length, status in ((10**9, b" 413 "), (10, b" 408 ")):
        with connected(server) as link:
            link.sendall(b"POST /ask HTTP/1.1\r\n" + known(server) + b"Content-Length: %d\r\n\r\n[" % length)
            assert status in link.recv(4096)[:20]


def test_idle_connections_of_strangers_stop_nobody(server: Endpoint) -> None:
    allow_connections()
    links = [connected(server) for _ in range(1100)]
    try:
        for _ in range(3):
            assert server.http.get("/health").status_code == 200
            assert server.call("study", "GET", "/budget").status_code == 200
    finally:
        for link in links:
            link.close()


def test_the_limit_of_open_files_is_raised_where_it_may(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[tuple[int, int]] = []
    monkeypatch.setattr(resource, "setrlimit", lambda _, limits: made.append(limits))
    for soft, hard in ((1024, 524288), (1024, 2048), (1024, resource.RLIM_INFINITY), (65536, 65536)):
        monkeypatch.setattr(resource, "getrlimit", lambda _, limits=(soft, hard): limits)
        allow_connections()
    assert made == [(8192, 524288), (2048, 2048), (8192, resource.RLIM_INFINITY)]
