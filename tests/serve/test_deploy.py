"""What is deployed: compose file and unit are parsed; the compose file's command runs, dies and is restored."""

import configparser
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("starlette", reason="needs the extra serve")
from darrm import PrivacyLedger, PrivacyParams
from darrm.account import __main__ as account
from darrm.commands.command_line import run
from darrm.serve.__main__ import start
from darrm.serve.client import ServeClient
from darrm.verify import __main__ as verify
from tests.doors import typed
from tests.ledger.servers import Server, running
from tests.serve.deployments import table, tokens_of
from tests.serve.test_server import ROOT, free_port, wait_for

DEPLOY = ROOT / "docs" / "deploy"


def composed() -> Any:
    yaml = pytest.importorskip("yaml")
    return yaml.safe_load((DEPLOY / "compose.yaml").read_text(encoding="utf-8"))


def test_the_compose_file_is_whole_and_says_nothing_secret() -> None:
    data = composed()
    server, database = data["services"]["server"], data["services"]["database"]
    options = SimpleNamespace(**typed(start, server["command"][1:]))
    assert (server["command"][0], options.ledger) == ("start", "postgresql:///?service=ledger")
    mounted = {volume.split(":")[1] for volume in server["volumes"]}
    assert {str(options.table.parent), str(options.clients.parent), str(options.state.parent)} <= mounted
    assert server["ports"] == [f"127.0.0.1:{options.port}:{options.port}"]
    assert options.behind_proxy
    assert "ports" not in database
    assert set(server["secrets"]) | set(database["secrets"]) == set(data["secrets"])
    named = {volume.split(":")[0] for one in (server, database) for volume in one["volumes"]}
    assert {name for name in named if not name.startswith(".")} == set(data["volumes"])
    assert (DEPLOY / server["build"]["context"] / server["build"]["dockerfile"]).resolve() == DEPLOY / "Dockerfile"
    assert "password=" not in json.dumps(data)
    for service in (server, database):
        assert service["cap_drop"] == ["ALL"]
        assert service["security_opt"] == ["no-new-privileges:true"]
        assert service["mem_limit"] == service["memswap_limit"]  # no swap
        assert service["pids_limit"] > 0


def pinned(path: Path) -> dict[str, str]:
    lines = path.read_text(encoding="utf-8").splitlines()
    found = (re.match(r"([A-Za-z0-9._-]+)==([^ ;]+)", line) for line in lines)
    return {re.sub("[-_.]+", "-", match[1]).lower(): match[2] for match in found if match}


def needed(*extras: str) -> set[str]:
    """The names in pyproject.toml of the packages that these extras ask for, and those that they name in turn."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    names, waiting = set(), [*project["dependencies"]]
    waiting += [text for extra in extras for text in project["optional-dependencies"][extra]]
    while waiting:
        name, more = re.match(r"([A-Za-z0-9._-]+)(?:\[([a-z,]+)\])?", waiting.pop()).groups()  # type: ignore[union-attr]
        if name == "darrm":
            waiting += [text for extra in more.split(",") for text in project["optional-dependencies"][extra]]
        else:
            names.add(re.sub("[-_.]+", "-", name).lower())
    return names


def test_every_package_is_pinned_and_those_of_the_image_by_hash() -> None:
    tested, image = pinned(ROOT / "constraints.txt"), pinned(DEPLOY / "requirements.txt")
    assert needed("dev") <= set(tested)
    assert needed("serve", "postgres") | {"setuptools"} <= set(image)
    assert {name: version for name, version in image.items() if tested.get(name, version) != version} == {}
    assert set(image) - set(tested) <= {"setuptools"}
    text = (DEPLOY / "requirements.txt").read_text(encoding="utf-8")
    for part in re.split(r"\n(?=[A-Za-z])", text)[1:]:
        assert re.search("--hash=sha256:[0-9a-f]{64}", part), part[:40]


def test_actions_are_pinned_by_commit() -> None:
    text = (ROOT / ".github" / "workflows" / "ci.yml").read_text(encoding="utf-8")
    used = re.findall(r"uses: (\S+)", text)
    assert used
    assert all(re.fullmatch(r"[\w/-]+@[0-9a-f]{40}", action) for action in used)


def test_the_image_copies_what_there_is_and_runs_as_nobody() -> None:
    lines = [line.split() for line in (DEPLOY / "Dockerfile").read_text(encoding="utf-8").splitlines()]
    for words in lines:
        if words[:1] == ["COPY"] and not words[1].startswith("--"):
            assert all((ROOT / name).exists() for name in words[1:-1])
    assert ["USER", "10001"] in lines
    installs = [" ".join(words) for words in lines if "install" in words]
    assert all("--require-hashes" in line or "--no-deps --no-build-isolation" in line for line in installs)


def test_the_unit_starts_a_command_that_there_is() -> None:
    unit = configparser.RawConfigParser(strict=False, comment_prefixes="#", interpolation=None)
    unit.optionxform = str  # type: ignore[assignment, method-assign]  # its names have capitals
    unit.read_string((DEPLOY / "darrm-serve.service").read_text(encoding="utf-8").replace("\\\n", ""))
    words = shlex.split(unit["Service"]["ExecStart"])
    assert words[1:3] == ["serve", "start"]
    options = SimpleNamespace(**typed(start, words[3:]))
    assert options.host == "127.0.0.1"
    assert unit["Service"]["ProtectSystem"] == "strict"
    assert "DynamicUser" not in unit["Service"]  # it would not read a file of clients that is its owner's only
    assert unit["Service"]["MemorySwapMax"] == "0"
    text = (DEPLOY / "darrm-serve.service").read_text(encoding="utf-8")
    assert "Environment=PGSERVICEFILE=%d/pg_service.conf" in text  # %d is expanded in Environment=, not in a file
    assert str(options.state).startswith("/var/lib/" + unit["Service"]["StateDirectory"])


@contextmanager
def started(folder: Path, port: int, sockets: Path, database: str) -> Iterator[subprocess.Popen[bytes]]:
    """The compose file's server on this machine: its folders are ours, and it listens here only."""
    words = " ".join(composed()["services"]["server"]["command"])
    for theirs, ours in (("/etc/darrm", folder), ("/var/lib/darrm", folder), ("--host=0.0.0.0", f"--port={port}")):
        words = words.replace(theirs, str(ours))
    (folder / "service").write_text(f"[ledger]\nhost={sockets}\ndbname={database}\nuser=postgres\n")
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PGSERVICEFILE": str(folder / "service")}
    command = [sys.executable, "-m", "darrm", "serve", *words.split()]
    process = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE)
    try:
        wait_for(port, process)
        yield process
    finally:
        process.terminate()
        process.communicate(timeout=60)


@pytest.mark.slow
def test_its_command_survives_a_kill_and_a_dump_is_no_second_budget(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with running() as server:
        table().save(tmp_path / "table.json")
        token = tokens_of(tmp_path / "clients.json")["study"]
        PrivacyLedger.create(server.url, PrivacyParams("0.12"))  # four questions
        port = free_port()
        with (
            started(tmp_path, port, server.folder, "postgres") as process,
            ServeClient(f"http://127.0.0.1:{port}", token) as client,
        ):
            (first,) = client.ask([{"id": "q1", "votes": [1, 1, 0]}])
            process.send_signal(signal.SIGKILL)
            process.wait()
        older, heads = dump(server, "older"), tmp_path / "heads.txt"
        with (
            started(tmp_path, port, server.folder, "postgres"),
            ServeClient(f"http://127.0.0.1:{port}", token) as client,
        ):
            assert client.ask([{"id": "q1", "votes": [1, 1, 0]}]) == [first]
            (second,) = client.ask([{"id": "q2", "votes": [1, 1, 0]}])
        run(lambda: account.main(["--ledger", server.url, "--digest"]))
        heads.write_text(capsys.readouterr().out)
        newest = dump(server, "newest")
        for database in (older, newest):
            url = server.url.replace("/postgres?", f"/{database}?")
            assert run(lambda url=url: verify.main([url, "--digest", str(heads), "--quiet"])) == (database == older)  # type: ignore[misc]
        with (
            pytest.raises(AssertionError, match="older than the answers and did not pay for 1"),
            started(tmp_path, port, server.folder, older),
        ):
            pass
        with started(tmp_path, port, server.folder, newest), ServeClient(f"http://127.0.0.1:{port}", token) as client:
            assert client.ask([{"id": "q2", "votes": [1, 1, 0]}]) == [second]
            states = [client.ask([{"id": f"q{n}", "votes": [1, 1, 0]}])[0]["state"] for n in (3, 4, 5)]
            assert states == ["answered", "answered", "refused"]


def dump(server: Server, name: str) -> str:
    """Dump the database, and restore the dump as another one."""
    file = server.folder / f"{name}.dump"
    link = ("-h", server.folder, "-U", "postgres")
    server.program("pg_dump", *link, "--format=custom", "--file", file, "postgres")
    server.program("createdb", *link, name)
    server.program("pg_restore", *link, f"--dbname={name}", "--exit-on-error", file)
    return name
