"""The files of the deployment page: they are parsed, and the command of the compose file runs, dies and is restored."""

import configparser
import json
import os
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from darrm import PrivacyLedger, PrivacyParams
from darrm.account import __main__ as account
from darrm.commands.command_line import run
from darrm.serve.__main__ import start
from darrm.serve.client import ServeClient
from darrm.verify import __main__ as verify
from tests.doors import typed
from tests.ledger.servers import Server, running
from tests.serve.deployments import ROOT, free_port, table, tokens_of, wait_for_server

DEPLOY = ROOT / "docs" / "deploy"


def read_compose_file() -> Any:
    yaml = pytest.importorskip("yaml")
    return yaml.safe_load((DEPLOY / "compose.yaml").read_text(encoding="utf-8"))


def test_the_compose_file_fits_the_command_and_holds_no_secret() -> None:
    data = read_compose_file()
    server, database = data["services"]["server"], data["services"]["database"]
    options = SimpleNamespace(**typed(start, server["command"][1:]))
    assert (server["command"][0], options.ledger) == ("start", "postgresql:///?service=ledger")
    mounted = {volume.split(":")[1] for volume in server["volumes"]}
    assert {str(options.table.parent), str(options.clients.parent), str(options.state.parent)} <= mounted
    assert server["ports"] == [f"127.0.0.1:{options.port}:{options.port}"]
    assert options.behind_proxy
    assert "ports" not in database
    assert set(server["secrets"]) | set(database["secrets"]) == set(data["secrets"])
    volumes = {volume.split(":")[0] for service in (server, database) for volume in service["volumes"]}
    assert {name for name in volumes if not name.startswith(".")} == set(data["volumes"])
    assert (DEPLOY / server["build"]["context"] / server["build"]["dockerfile"]).resolve() == DEPLOY / "Dockerfile"
    assert "password=" not in json.dumps(data)
    for service in (server, database):
        assert service["cap_drop"] == ["ALL"]
        assert service["security_opt"] == ["no-new-privileges:true"]
        assert service["mem_limit"] == service["memswap_limit"]  # no swap
        assert service["pids_limit"] > 0


def normalize_name(name: str) -> str:
    return re.sub("[-_.]+", "-", name).lower()


def read_pins(path: Path) -> dict[str, str]:
    pins = re.findall(r"^([A-Za-z0-9._-]+)==([^ ;\n]+)", path.read_text(encoding="utf-8"), re.MULTILINE)
    return {normalize_name(name): version for name, version in pins}


def list_requirements(*extras: str) -> set[str]:
    """Return the packages that pyproject.toml names for these extras, and for the extras that these include."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    names, texts = set[str](), [*project["dependencies"], f"darrm[{','.join(extras)}]"]
    while texts:
        name, _, included = re.match(r"([A-Za-z0-9._-]+)(\[([a-z,]+)\])?", texts.pop()).groups()  # type: ignore[union-attr]
        if name == "darrm":
            texts += [text for extra in included.split(",") for text in project["optional-dependencies"][extra]]
        else:
            names.add(normalize_name(name))
    return names


def test_every_package_is_pinned_and_those_of_the_image_by_hash() -> None:
    tested, image = read_pins(ROOT / "constraints.txt"), read_pins(DEPLOY / "requirements.txt")
    assert list_requirements("dev") <= set(tested)
    assert list_requirements("serve", "postgres") | {"setuptools"} <= set(image)
    assert {name: version for name, version in image.items() if tested.get(name, version) != version} == {}
    assert set(image) - set(tested) <= {"setuptools"}
    text = (DEPLOY / "requirements.txt").read_text(encoding="utf-8")
    for part in re.split(r"\n(?=[A-Za-z])", text)[1:]:
        assert re.search("--hash=sha256:[0-9a-f]{64}", part), part[:40]


def test_actions_are_pinned_by_commit() -> None:
    text = (ROOT / ".github" / "workflows" / "ci.yml").read_text(encoding="utf-8")
    actions = re.findall(r"uses: (\S+)", text)
    assert actions
    assert all(re.fullmatch(r"[\w/-]+@[0-9a-f]{40}", action) for action in actions)


def test_the_image_copies_existing_files_and_runs_without_rights() -> None:
    lines = [line.split() for line in (DEPLOY / "Dockerfile").read_text(encoding="utf-8").splitlines()]
    for words in lines:
        if words[:1] == ["COPY"] and not words[1].startswith("--"):
            assert all((ROOT / name).exists() for name in words[1:-1])
    assert ["USER", "10001"] in lines
    installs = [" ".join(words) for words in lines if "install" in words]
    assert all("--require-hashes" in line or "--no-deps --no-build-isolation" in line for line in installs)


def test_the_unit_starts_the_command_with_few_rights() -> None:
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
def composed(folder: Path, sockets: Path, database: str) -> Iterator[tuple[subprocess.Popen[bytes], ServeClient]]:
    """Run the command of the compose file on this machine, in a folder; yield its process and a client."""
    port = free_port()
    words = " ".join(read_compose_file()["services"]["server"]["command"])
    for deployed, local in (("/etc/darrm", folder), ("/var/lib/darrm", folder), ("--host=0.0.0.0", f"--port={port}")):
        words = words.replace(deployed, str(local))
    (folder / "service").write_text(f"[ledger]\nhost={sockets}\ndbname={database}\nuser=postgres\n")
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PGSERVICEFILE": str(folder / "service")}
    command = [sys.executable, "-m", "darrm", "serve", *words.split()]
    process = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE)
    try:
        wait_for_server(port, process)
        with ServeClient(f"http://127.0.0.1:{port}", (folder / "token").read_text()) as client:
            yield process, client
    finally:
        process.terminate()
        process.communicate(timeout=60)


@pytest.mark.slow
def test_the_composed_server_survives_a_kill_and_an_old_dump_is_no_second_budget(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def question(n: int) -> list[dict[str, Any]]:
        return [{"id": f"q{n}", "votes": [1, 1, 0]}]

    table().save(tmp_path / "table.json")
    (tmp_path / "token").write_text(tokens_of(tmp_path / "clients.json")["study"])
    digests = tmp_path / "digests.txt"
    with running() as server:
        PrivacyLedger.create(server.url, PrivacyParams("0.12"))  # four questions
        with composed(tmp_path, server.folder, "postgres") as (process, client):
            first = client.ask(question(1))
            process.kill()
            process.wait()
        old = dump(server, "old")
        with composed(tmp_path, server.folder, "postgres") as (_, client):
            assert client.ask(question(1)) == first
            second = client.ask(question(2))
        run(lambda: account.main(["--ledger", server.url, "--digest"]))
        digests.write_text(capsys.readouterr().out)
        new = dump(server, "new")
        for database, status in ((old, 1), (new, 0)):
            url = server.url.replace("/postgres?", f"/{database}?")
            assert run(lambda url=url: verify.main([url, "--digest", str(digests), "--quiet"])) == status  # type: ignore[misc]
        with (
            pytest.raises(AssertionError, match="older than the answers and did not pay for 1"),
            composed(tmp_path, server.folder, old),
        ):
            pass
        with composed(tmp_path, server.folder, new) as (_, client):
            assert client.ask(question(2)) == second
            states = [client.ask(question(n))[0]["state"] for n in (3, 4, 5)]
            assert states == ["answered", "answered", "refused"]


def dump(server: Server, name: str) -> str:
    """Dump the database, and restore the dump under another name."""
    file = server.folder / f"{name}.dump"
    link = ("-h", server.folder, "-U", "postgres")
    server.program("pg_dump", *link, "--format=custom", "--file", file, "postgres")
    server.program("createdb", *link, name)
    server.program("pg_restore", *link, f"--dbname={name}", "--exit-on-error", file)
    return name
