"""The command line: a server in a process of its own, which may be killed."""

import io
import json
import os
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

pytest.importorskip("uvicorn", reason="needs the extra serve")
pytest.importorskip("httpx", reason="needs the extra serve")
import httpx

from darrm import PrivacyLedger, PrivacyParams
from darrm.serve.__main__ import ListenOptions, main
from darrm.serve.client import ServeClient
from tests.doors import one_error, refused
from tests.exhaustive import EXHAUSTIVE
from tests.load.serve import kills_on
from tests.serve.deployments import certificate_of, table, tokens_of

ROOT = Path(__file__).parents[2]


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


def prepare(folder: Path, budget: str = "30") -> dict[str, str]:
    table().save(folder / "table.json")
    PrivacyLedger.create(folder / "ledger.sqlite", PrivacyParams(budget))
    return tokens_of(folder / "clients.json")


def start(folder: Path, port: int, *more: object, quiet: bool = True) -> subprocess.Popen[bytes]:
    words = "--missing coin --table table.json --ledger ledger.sqlite --clients clients.json --port"
    command = [sys.executable, "-W", "error", "-m", "darrm.serve", "start", *words.split(), str(port), *map(str, more)]
    command += ["--quiet"] if quiet else []
    return subprocess.Popen(command, cwd=folder, env={**os.environ, "PYTHONPATH": str(ROOT)}, stderr=subprocess.PIPE)


def wait_for(port: int, process: subprocess.Popen[bytes]) -> None:
    until = time.monotonic() + 60
    while time.monotonic() < until and process.poll() is None:
        try:
            with socket.create_connection(("127.0.0.1", port), timeout=60) as link:
                with suppress(ConnectionError):  # of a server that wants TLS
                    link.sendall(b"GET /health HTTP/1.0\r\n\r\n")
                    link.recv(1)  # it listens before it answers
                return
        except OSError:
            time.sleep(0.02)
    process.kill()
    raise AssertionError(process.communicate()[1])


@contextmanager
def serving(folder: Path, port: int, *more: object) -> Iterator[subprocess.Popen[bytes]]:
    process = start(folder, port, *more)
    try:
        wait_for(port, process)
        yield process
    finally:
        process.terminate()
        said = process.communicate(timeout=30)[1]
    assert (process.returncode, said) == (0, b"")
    assert not (folder / "ledger.sqlite.questions-wal").exists()  # the votes that were deleted stand in no log


def asked(url: str, questions: str, monkeypatch: pytest.MonkeyPatch) -> int:
    """Votes stand on standard input: what stands on a command line is seen by other users."""
    monkeypatch.setattr(sys, "stdin", io.StringIO(questions))
    return main(["ask", url])


def test_votes_on_a_command_line_are_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("DARRM_TOKEN", "token")
    words = ["ask", "http://127.0.0.1:1", '[{"id": "ward 4", "votes": [1, 0, 1]}]']
    refused(main, words, "Unexpected argument", capsys)


@pytest.mark.slow
def test_the_command_line_goes_the_whole_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    tokens, port = prepare(tmp_path), free_port()
    assert main(["client", "new", "--clients", str(tmp_path / "clients.json"), "--questions", "1"]) == 0
    token = capsys.readouterr().out.strip()
    url, question = f"http://127.0.0.1:{port}", json.dumps([{"id": "ward 4", "votes": [1, 0, 1]}])
    monkeypatch.setenv("DARRM_TOKEN", token)
    monkeypatch.setattr("time.sleep", lambda _: None)
    assert asked(url, question, monkeypatch) == 2
    one_error("is the server there", capsys)
    monkeypatch.undo()
    monkeypatch.setenv("DARRM_TOKEN", token)
    with serving(tmp_path, port):
        assert asked(url, question, monkeypatch) == 0
        assert capsys.readouterr().out in {"ward 4: 0\n", "ward 4: 1\n"}
        assert asked(url, question.replace("4", "5"), monkeypatch) == 2
        one_error("may ask 1 questions", capsys)
        again = start(tmp_path, free_port())
        assert b"another server has them" in again.communicate(timeout=60)[1]
        assert again.returncode == 2
        with ServeClient(url, tokens["study"]) as study, ServeClient(url, tokens["voter1"]) as voter:
            study.create("q", seconds=0.5)
            assert [one["id"] for one in voter.open_questions()] == ["q"]
            assert (voter.vote("q", 1), voter.vote("q", 1)) == (True, False)
            assert study.read("q", wait=20)["state"] == "answered"
    assert not any(secret.encode() in (tmp_path / "clients.json").read_bytes() for secret in [token, *tokens.values()])


@pytest.mark.slow
def test_with_a_certificate_nothing_is_said_in_the_clear(tmp_path: Path) -> None:
    tokens, port, (certificate, key) = prepare(tmp_path), free_port(), certificate_of(tmp_path)
    trusted = ssl.create_default_context(cafile=certificate)
    with serving(tmp_path, port, "--tls-certificate", certificate, "--tls-key", key):
        url = f"https://127.0.0.1:{port}"
        with ServeClient(url, tokens["study"], verify=trusted) as study:
            assert study.ask([{"id": "q", "votes": [1, 1, 0]}])[0]["state"] == "answered"
        for stranger in (url, url.replace("https", "http")):
            client = ServeClient(stranger, tokens["study"], attempts=1)
            with client, pytest.raises(httpx.TransportError):
                client.budget()
        with ServeClient(url, tokens["study"], verify=trusted) as study:
            assert study.budget()["answered"] == 1
    for alone in ("--tls-certificate", "--tls-key"):
        assert b"come together" in start(tmp_path, port, alone, certificate).communicate(timeout=60)[1]


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "localhost", "0.0.0.0", "::", "example.org"])  # noqa: S104
def test_nothing_listens_beyond_this_machine_unencrypted(host: str) -> None:
    ListenOptions(host, 8765, Path("c.pem"), Path("k.pem"), behind_proxy=False).check()
    ListenOptions(host, 8765, None, None, behind_proxy=True).check()
    plain = ListenOptions(host, 8765, None, None, behind_proxy=False)
    if host in {"127.0.0.1", "::1", "localhost"}:
        plain.check()
        return
    with pytest.raises(ValueError, match="if a proxy encrypts"):
        plain.check()


@pytest.mark.parametrize(
    ("url", "allowed"),
    [
        ("https://example.org", True),
        ("http://127.0.0.1:8765", True),
        ("HTTP://localhost", True),
        ("http://[::1]:1", True),
        ("http://example.org", False),
        ("HTTP://10.0.0.1:8765", False),
        ("http://127.0.0.1@example.org", False),
        ("http://127.0.0.1.example.org", False),
        ("http://localhost.example.org", False),
        ("http://0.0.0.0:8765", False),
        ("127.0.0.1:8765", False),
        ("ftp://127.0.0.1", False),
        ("", False),
    ],
)
def test_no_token_is_sent_in_the_clear(url: str, allowed: bool) -> None:
    if allowed:
        with ServeClient(url, "0" * 64):
            return
    with pytest.raises(ValueError, match="in the clear"):
        ServeClient(url, "0" * 64)


def test_no_proxy_of_the_environment_sees_a_token(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as proxy:
        proxy.settimeout(0.1)
        monkeypatch.setenv("HTTP_PROXY", f"http://127.0.0.1:{proxy.getsockname()[1]}")
        client = ServeClient(f"http://127.0.0.1:{free_port()}", "0" * 64, attempts=1, timeout=1.0)
        with client, pytest.raises(httpx.ConnectError):
            client.budget()
        with pytest.raises(TimeoutError):
            proxy.accept()


@pytest.mark.parametrize("wrong", ["70000", "65536", "0", "-1", "http"])
def test_a_port_that_is_none_is_refused_before_anything_is_read(wrong: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--table", "t.json", "--clients", "c.json", "--ledger", "l.sqlite", f"--port={wrong}"]
    refused(main, ["start", *words], "--port must be an integer", capsys)


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["port", "certificate"])
def test_what_cannot_be_listened_on_is_not_announced(tmp_path: Path, fault: str) -> None:
    prepare(tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1] if fault == "port" else free_port()
        more = () if fault == "port" else ("--tls-certificate", "clients.json", "--tls-key", "clients.json")
        said = start(tmp_path, port, *more, quiet=False)
        words = said.communicate(timeout=60)[1]
    assert (said.returncode, b"listening" in words) == (2, False)


@pytest.mark.slow
@pytest.mark.parametrize("at", ["worker.start()", "Service(", "server.run("])
def test_a_server_that_is_stopped_while_it_starts_stops(tmp_path: Path, at: str) -> None:
    prepare(tmp_path)
    code = """if True:
    import os, signal, sys, time
    from darrm.serve import __main__ as command, app, worker
    at, port = sys.argv[1:]
    def after(owner, name, first=True):
        real = getattr(owner, name)
        def done(*values, **named):
            if first: os.kill(os.getpid(), signal.SIGTERM)
            result = real(*values, **named)
            if not first: os.kill(os.getpid(), signal.SIGTERM)
            return result
        setattr(owner, name, done)
    if at == "worker.start()": after(worker.AnswerWorker, "start", first=False)
    elif at == "Service(": after(app, "Service")
    else: after(app.uvicorn.Server, "run")
    words = "--table table.json --ledger ledger.sqlite --clients clients.json --missing coin --port"
    sys.exit(command.main(["start", *words.split(), port]))
    """
    command = [sys.executable, "-c", code, at, str(free_port())]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    assert subprocess.run(command, cwd=tmp_path, env=environment, timeout=60, check=False).returncode == 0


def test_a_ledger_in_a_database_needs_a_file_for_the_questions(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table().save(tmp_path / "t.json")
    tokens_of(tmp_path / "c.json")
    words = ["--table", tmp_path / "t.json", "--clients", tmp_path / "c.json", "--ledger", "postgresql:///ward"]
    refused(main, ["start", *map(str, words)], "--state must be a file, got nothing", capsys)


@pytest.mark.slow
def test_whatever_is_killed_no_id_has_two_labels_and_none_is_unpaid_or_lost(tmp_path: Path) -> None:
    row = kills_on(tmp_path / "kills", "SQLite", 100 if EXHAUSTIVE else 10, free_port())
    assert row["answers"] > row["kills"]
    assert [row[name] for name in ("paid_twice", "two_labels", "unpaid", "lost")] == [0] * 4
