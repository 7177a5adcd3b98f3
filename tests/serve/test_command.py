"""The command ``darrm serve``: deployments of every kind, refusals, and servers in processes of their own."""

import io
import json
import os
import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("uvicorn", reason="needs the extra serve")
pytest.importorskip("httpx", reason="needs the extra serve")
import httpx

from darrm import PrivacyLedger, PrivacyParams, Problem, Voters
from darrm.aggregator import save_release
from darrm.noisy_max.mechanisms import GNMax
from darrm.noisy_max.noisy_maximum import NoisyMaximum
from darrm.optimize import optimize_table
from darrm.problem import OPEN
from darrm.serve.__main__ import ListenOptions, main, make_deployment, start
from darrm.serve.client import ServeClient
from darrm.serve.clients import Client, add_client, authenticate, read_clients
from darrm.serve.questions import VoteSchema
from darrm.table.release import Release
from tests.doors import one_error, refused, typed
from tests.exhaustive import EXHAUSTIVE
from tests.load.serve import kills_on
from tests.serve.deployments import ROOT, certificate_of, free_port, paid, table, tokens_of, wait_for_server
from tests.serve.endpoints import Endpoint

FILES = "--table table.json --ledger ledger.sqlite --clients clients.json --missing coin --port"


# deployments

NON_PRIVATE = Voters(3, PrivacyParams("inf"), overlap=1)
NAMED = "flu,cold,o\u2028dd"  # any text but control characters


def make_release(kind: str) -> Any:
    if kind == "two":
        return Release(table())
    problem = Problem(NON_PRIVATE, PrivacyParams("0.5"), OPEN if "open" in kind else 3)
    if kind.startswith("table"):
        return Release(optimize_table(problem))
    return NoisyMaximum(GNMax(2.0), NON_PRIVATE, problem.classes, threshold=12 if "open" in kind else None)


@pytest.mark.quick_cases(5)
@pytest.mark.parametrize(
    ("kind", "flags", "classes", "votes"),
    [
        ("two", "--classes no,yes --missing coin", ("no", "yes"), ["no", "yes", None]),
        ("table three", "", 3, [0, 2, 2]),
        ("table open", "--missing blank", OPEN, ["flu", "NA", None]),
        ("noise three", "--missing coin", 3, [0, 2, None]),
        ("noise open", "--classes open", OPEN, ["flu", "cold", "flu"]),
        ("two", "", 2, [0, 1, 1]),
        ("two", "--missing coin", 2, [0, 1, None]),
        ("table three", f"--classes {NAMED} --missing coin", tuple(NAMED.split(",")), ["flu", "cold", None]),
        ("noise three", f"--classes {NAMED}", tuple(NAMED.split(",")), ["flu", "flu", "flu"]),
        ("noise open", "--missing blank", OPEN, ["flu", "cold", None]),
    ],
)
def test_every_kind_of_deployment_answers(
    tmp_path: Path, kind: str, flags: str, classes: Any, votes: list[Any]
) -> None:
    save_release(tmp_path / "t.json", make_release(kind))
    PrivacyLedger.create(tmp_path / "l.sqlite", PrivacyParams(1000, "0.1"))
    files = f"--table {tmp_path}/t.json --ledger {tmp_path}/l.sqlite --clients c.json"
    options = typed(start, f"{files} {flags}".strip().split(" "))
    fields = ("table", "ledger", "state", "stream", "classes", "missing")
    deployed = make_deployment(**{name: options[name] for name in fields})
    assert deployed.ballot == VoteSchema(3, classes, options["missing"])
    assert deployed.state == tmp_path / "l.sqlite.questions"
    number = 0 if classes == OPEN else classes if isinstance(classes, int) else len(classes)
    takes_gaps = "--missing" in flags
    questions = {"votes": votes, "counts": [3, *[0] * (number - 1)], "gap": [votes[0], None, None], "none": [None] * 3}
    labels = [*votes, None] if not number else range(classes) if isinstance(classes, int) else classes
    ends = ["answered", "answered" if number else "", *(["answered", "expired"] if takes_gaps else ["", ""])]
    with closing(Endpoint(tmp_path, deployed=deployed)) as server:
        for (name, entries), end in zip(questions.items(), ends, strict=True):
            field = "counts" if name == "counts" else "votes"
            answer = server.call("study", "POST", "/ask", [{"id": name, field: entries}])
            assert answer.status_code == (200 if end else 400)
            if end:
                assert answer.json()[0]["state"] == end
                assert end == "expired" or answer.json()[0]["label"] in labels
    assert paid(deployed) == [name for name, end in zip(questions, ends, strict=True) if end == "answered"]


# refusals before anything is read


@pytest.mark.parametrize(
    ("kind", "classes", "missing", "message"),
    [
        ("two", ("a", "b", "c"), "refuse", "--classes must be for 2, as the table is"),
        ("two", 3, "refuse", "--classes must be for 2, as the table is"),
        ("two", OPEN, "refuse", "--classes must be for 2, as the table is"),
        ("table open", ("a", "b"), "refuse", "--classes must be for open"),
        ("two", None, "blank", "--missing must be refuse; coin for listed classes"),
        ("table open", None, "coin", "--missing must be refuse; coin for listed classes"),
    ],
)
def test_a_deployment_that_the_table_does_not_fit_is_refused(
    kind: str, classes: Any, missing: str, message: str, tmp_path: Path
) -> None:
    save_release(tmp_path / "t.json", make_release(kind))
    options: Any = {"table": tmp_path / "t.json", "ledger": "postgresql:///w", "stream": "s", "missing": missing}
    with pytest.raises(ValueError, match=message):
        make_deployment(state=tmp_path / "state", classes=classes, **options)
    deployed = make_deployment(state=tmp_path / "state", classes=None, **{**options, "missing": "refuse"})
    assert (deployed.state, deployed.stream) == (tmp_path / "state", "s")


def test_a_voter_that_the_table_does_not_have_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table().save(tmp_path / "t.json")
    tokens_of(tmp_path / "c.json")
    words = f"start --table {tmp_path}/t.json --clients {tmp_path}/c.json --ledger {tmp_path}/l.sqlite"
    refused(main, words, "no such file", capsys)  # of the ledger
    add_client(tmp_path / "c.json", Client("voter4", "0" * 64, voter=4))
    refused(main, words, "--clients must be", capsys)


def test_a_new_client_gets_a_token_and_asks_with_it_only(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "c.json"
    assert main(["client", "new", "--clients", str(path), "--questions", "1", "--reads"]) == 0
    client = authenticate(read_clients(path), capsys.readouterr().out.strip())
    assert client == Client("new", client.digest if client else "", questions=1, reads=True)
    monkeypatch.delenv("DARRM_TOKEN", raising=False)
    refused(main, "ask http://127.0.0.1:1", "put the token into the environment, DARRM_TOKEN=", capsys)


def test_votes_on_a_command_line_are_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Other users see command lines."""
    monkeypatch.setenv("DARRM_TOKEN", "token")
    words = ["ask", "http://127.0.0.1:1", '[{"id": "ward 4", "votes": [1, 0, 1]}]']
    refused(main, words, "Unexpected argument", capsys)


@pytest.mark.parametrize(
    ("port", "message"),
    [
        *((port, "--port must be an integer") for port in ("70000", "65536", "0", "-1", "http")),
        *((port, "t.json") for port in ("1", "65535")),  # the port is right, and the table is missing
    ],
)
def test_a_wrong_port_is_refused(port: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    refused(main, f"start --table t.json --clients c.json --ledger l.sqlite --port={port}", message, capsys)


def test_a_ledger_in_a_database_needs_a_file_for_the_questions(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table().save(tmp_path / "t.json")
    tokens_of(tmp_path / "c.json")
    words = f"start --table {tmp_path}/t.json --clients {tmp_path}/c.json --ledger postgresql:///ward"
    refused(main, words, "--state must be a file, got nothing", capsys)


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "localhost", "0.0.0.0", "::", "example.org"])  # noqa: S104
def test_nothing_listens_beyond_this_machine_unencrypted(host: str) -> None:
    ListenOptions(host, 8765, Path("c.pem"), Path("k.pem"), behind_proxy=False).check()
    ListenOptions(host, 8765, None, None, behind_proxy=True).check()
    unencrypted = ListenOptions(host, 8765, None, None, behind_proxy=False)
    if host in {"127.0.0.1", "::1", "localhost"}:
        unencrypted.check()
        return
    with pytest.raises(ValueError, match="if a proxy encrypts"):
        unencrypted.check()


@pytest.mark.parametrize("url", ["https://example.org", "http://127.0.0.1:8765", "HTTP://localhost", "http://[::1]:1"])
def test_a_client_sends_its_token_encrypted_or_to_this_machine(url: str) -> None:
    ServeClient(url, "0" * 64).__exit__(None, None, None)


@pytest.mark.parametrize(
    "url",
    [
        *("http://example.org", "HTTP://10.0.0.1:8765", "http://127.0.0.1@example.org", "http://0.0.0.0:8765"),
        *("http://127.0.0.1.example.org", "http://localhost.example.org", "127.0.0.1:8765", "ftp://127.0.0.1", ""),
    ],
)
def test_a_client_sends_no_token_in_the_clear(url: str) -> None:
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


# processes


@pytest.fixture
def tokens(tmp_path: Path) -> dict[str, str]:
    """Write the files of a server, and return the tokens of its clients."""
    table().save(tmp_path / "table.json")
    PrivacyLedger.create(tmp_path / "ledger.sqlite", PrivacyParams(30))
    return tokens_of(tmp_path / "clients.json")


def launch(folder: Path, port: int, *flags: object) -> subprocess.Popen[bytes]:
    words = ["-W", "error", "-m", "darrm.serve", "start", *FILES.split(), port, *flags]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.Popen([sys.executable, *map(str, words)], cwd=folder, env=environment, stderr=subprocess.PIPE)


@contextmanager
def serving(folder: Path, port: int, *flags: object) -> Iterator[None]:
    process = launch(folder, port, "--quiet", *flags)
    try:
        wait_for_server(port, process)
        yield
    finally:
        process.terminate()
        errors = process.communicate(timeout=30)[1]
    assert (process.returncode, errors) == (0, b"")
    assert not (folder / "ledger.sqlite.questions-wal").exists()  # it may hold deleted votes


@pytest.mark.slow
@pytest.mark.usefixtures("tokens")
def test_the_commands_start_client_and_ask_work_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    port = free_port()
    url, question = f"http://127.0.0.1:{port}", json.dumps([{"id": "ward 4", "votes": [1, 0, 1]}])

    def ask(questions: str) -> int:
        monkeypatch.setattr(sys, "stdin", io.StringIO(questions))
        return main(["ask", url])

    assert main(["client", "new", "--clients", str(tmp_path / "clients.json"), "--questions", "1"]) == 0
    token = capsys.readouterr().out.strip()
    monkeypatch.setenv("DARRM_TOKEN", token)
    with monkeypatch.context() as patch:
        patch.setattr("time.sleep", lambda _: None)
        assert ask(question) == 2
    one_error("is the server there", capsys)
    with serving(tmp_path, port):
        assert ask(question) == 0
        assert capsys.readouterr().out in {"ward 4: 0\n", "ward 4: 1\n"}
        assert ask(question.replace("4", "5")) == 2
        one_error("may ask 1 questions", capsys)
        second = launch(tmp_path, free_port())
        assert b"another server has them" in second.communicate(timeout=60)[1]
        assert second.returncode == 2
    assert token not in (tmp_path / "clients.json").read_text()


@pytest.mark.slow
def test_a_server_with_a_certificate_answers_nobody_in_the_clear(tmp_path: Path, tokens: dict[str, str]) -> None:
    port, (certificate, key) = free_port(), certificate_of(tmp_path)
    trusted = ssl.create_default_context(cafile=certificate)
    with serving(tmp_path, port, "--tls-certificate", certificate, "--tls-key", key):
        url = f"https://127.0.0.1:{port}"
        with ServeClient(url, tokens["study"], verify=trusted) as study:
            assert study.ask([{"id": "q", "votes": [1, 1, 0]}])[0]["state"] == "answered"
        for other_url in (url, url.replace("https", "http")):
            client = ServeClient(other_url, tokens["study"], attempts=1)
            with client, pytest.raises(httpx.TransportError):
                client.budget()
        with ServeClient(url, tokens["study"], verify=trusted) as study:
            assert study.budget()["answered"] == 1
    for flag in ("--tls-certificate", "--tls-key"):
        assert b"come together" in launch(tmp_path, port, flag, certificate).communicate(timeout=60)[1]


@pytest.mark.slow
@pytest.mark.usefixtures("tokens")
@pytest.mark.parametrize("fault", ["port", "certificate"])
def test_a_server_that_cannot_listen_announces_nothing(tmp_path: Path, fault: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1] if fault == "port" else free_port()
        flags = () if fault == "port" else ("--tls-certificate", "clients.json", "--tls-key", "clients.json")
        process = launch(tmp_path, port, *flags)
        errors = process.communicate(timeout=60)[1]
    assert (process.returncode, b"listening" in errors) == (2, False)


@pytest.mark.slow
@pytest.mark.usefixtures("tokens")
@pytest.mark.parametrize("step", ["worker.AnswerWorker.start", "app.Service", "app.uvicorn.Server.run"])
def test_a_server_that_is_stopped_while_it_starts_stops(tmp_path: Path, step: str) -> None:
    code = """if True:
    import os, signal, sys
    from operator import attrgetter
    from darrm.serve import __main__ as command, app, worker
    step, *words = sys.argv[1:]
    name, _, method = step.rpartition(".")
    owner = attrgetter(name)(sys.modules["darrm.serve"])
    function, is_last = getattr(owner, method), method == "start"
    def stop(*values, **named):
        if not is_last: os.kill(os.getpid(), signal.SIGTERM)
        result = function(*values, **named)
        if is_last: os.kill(os.getpid(), signal.SIGTERM)
        return result
    setattr(owner, method, stop)
    sys.exit(command.main(["start", *words]))
    """
    command = [sys.executable, "-c", code, step, *FILES.split(), str(free_port())]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    assert subprocess.run(command, cwd=tmp_path, env=environment, timeout=60, check=False).returncode == 0


@pytest.mark.slow
def test_after_kills_no_id_has_two_labels_and_none_is_unpaid_or_lost(tmp_path: Path) -> None:
    row = kills_on(tmp_path / "kills", "SQLite", 100 if EXHAUSTIVE else 10, free_port())
    assert row["answers"] > row["kills"]
    assert [row[name] for name in ("paid_twice", "two_labels", "unpaid", "lost")] == [0] * 4
