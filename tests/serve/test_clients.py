"""The file of clients: hashed tokens, its owner, and what is refused."""

import json
import os
import stat
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from darrm.serve.clients import Client, add_client, authenticate, hash_token, read_clients, read_version
from tests.serve.deployments import tokens_of

DIGEST = "0" * 64


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_tokens_are_stored_as_hashes_that_authenticate(tmp_path: Path) -> None:
    tokens = tokens_of(tmp_path / "c.json")
    clients = read_clients(tmp_path / "c.json")
    assert not any(token in (tmp_path / "c.json").read_text() for token in tokens.values())
    assert len(set(map(len, tokens.values()))) == 1
    matches = {name: authenticate(clients, token) for name, token in tokens.items()}
    assert matches == {client.name: client for client in clients}
    assert hash_token("abc").startswith("ba7816bf8f01cfea")  # FIPS 180-2


@pytest.mark.parametrize("word", ["", "x", "password", " "])
def test_no_word_authenticates_by_its_hash(word: str) -> None:
    clients = [Client("a", hash_token(word))] if word else []
    assert authenticate(clients, word) is None


@pytest.mark.parametrize(
    ("client", "message"),
    [(Client("study", DIGEST), "new"), (Client("other", DIGEST, voter=1), "a number that no other client has")],
)
def test_a_name_or_a_voter_is_one_client(client: Client, message: str, tmp_path: Path) -> None:
    tokens_of(tmp_path / "c.json")
    content = (tmp_path / "c.json").read_bytes()
    with pytest.raises(ValueError, match=message):
        add_client(tmp_path / "c.json", client)
    assert (tmp_path / "c.json").read_bytes() == content


@pytest.mark.parametrize("digest", [hash_token(""), "0" * 63, "é" * 64, "A" * 64, "x" * 64, None])
def test_a_wrong_digest_is_refused(tmp_path: Path, digest: object) -> None:
    path = tmp_path / "c.json"
    path.write_text(json.dumps([{"name": "a", "digest": digest}]))
    with pytest.raises(ValueError, match="digest of 64 hexadecimal digits"):
        read_clients(path)


def test_a_client_has_no_rights_by_default(tmp_path: Path) -> None:
    client = Client("a", DIGEST, voter=0, questions=0, project="", project_questions=0, reads=False)
    assert Client("a", DIGEST) == client
    token = add_client(tmp_path / "c.json", client)
    assert read_clients(tmp_path / "c.json") == (replace(client, digest=hash_token(token)),)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ({"name": "a", "digest": DIGEST}, "as `python -m darrm.serve client` writes it"),
        (["a"], "as `python -m darrm.serve client` writes it"),
        ([{"name": "a"}], "as `python -m darrm.serve client` writes it"),
        ([{"name": "a", "digest": DIGEST, "admin": True}], "as `python -m darrm.serve client` writes it"),
        ([{"name": "a", "digest": DIGEST}] * 2, "one client for each name"),
        ([{"name": name, "digest": DIGEST, "voter": 1} for name in "ab"], "one for each voter"),
        ([{"name": "a", "digest": DIGEST, "reads": 1}], "reads true or false"),
        ([{"name": "a", "digest": DIGEST, "voter": -1}], "voter must be an integer of at least 0"),
        ([{"name": "a", "digest": DIGEST, "project": "\n"}], "the name of a project must be printable"),
    ],
)
def test_a_wrong_file_of_clients_is_refused(rows: object, message: str, tmp_path: Path) -> None:
    (tmp_path / "c.json").write_text(json.dumps(rows))
    with pytest.raises(ValueError, match=message):
        read_clients(tmp_path / "c.json")


@pytest.mark.parametrize(("age", "has_version"), [(0, False), (10**9 - 1, False), (10**9, True)])
def test_a_file_that_changed_a_second_ago_has_no_version(
    age: int, has_version: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "c.json").touch()
    changed = (tmp_path / "c.json").stat().st_ctime_ns
    monkeypatch.setattr("darrm.serve.clients.time.time_ns", lambda: changed + age)
    assert (read_version(tmp_path / "c.json") is not None) == has_version


@pytest.mark.slow
def test_clients_that_are_added_at_once_are_all_kept(tmp_path: Path) -> None:
    code = "import sys; from pathlib import Path; from darrm.serve.clients import Client, add_client\n"
    code += "for n in range(10): add_client(Path('c.json'), Client(f'{sys.argv[1]}-{n}', '0' * 64))"
    processes = [subprocess.Popen([sys.executable, "-c", code, str(n)], cwd=tmp_path) for n in range(4)]
    assert [process.wait() for process in processes] == [0] * 4
    names = {client.name for client in read_clients(tmp_path / "c.json")}
    assert names == {f"{a}-{b}" for a in range(4) for b in range(10)}


def test_the_file_is_private_from_its_first_byte_and_keeps_its_owner_and_mode(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, replace, stat_file = tmp_path / "c.json", Path.replace, Path.stat
    modes, owners = list[int](), list[tuple[Path, int, int]]()

    def note_mode(file: Path, target: Path) -> Path:
        modes.append(mode_of(file))
        return replace(file, target)

    def stat_another_owner(file: Path, **options: Any) -> os.stat_result:
        status = list(stat_file(file, **options))
        if file == path:
            status[4:6] = 10001, 10002
        return os.stat_result(status)

    monkeypatch.setattr(Path, "replace", note_mode)
    monkeypatch.setattr("os.chown", lambda file, *owner: owners.append((Path(file).parent, *owner)))
    umask = os.umask(0)
    try:
        add_client(path, Client("a", DIGEST))
        path.chmod(0o640)
        monkeypatch.setattr(Path, "stat", stat_another_owner)
        add_client(path, Client("b", DIGEST))
    finally:
        os.umask(umask)
    monkeypatch.undo()
    assert modes == [0o600, 0o640]
    assert (mode_of(path), owners) == (0o640, [(tmp_path, 10001, 10002)])
