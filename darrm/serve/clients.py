"""Clients of a server: names, permissions and hashed tokens, in a file.

A token is 256 bits from the operating system, so plain SHA-256 is enough; slow, salted hashes are for passwords. The
hash of an incoming token is compared with all hashes in constant time.
"""

import fcntl
import hashlib
import hmac
import json
import os
import re
import secrets
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path

from darrm.ledger.ledger import check_id
from darrm.util import checks
from darrm.util.files import check_parent, read_json, replace_file, sync

MOST_BYTES = 2**24
_TOKEN = re.compile("[0-9a-f]{64}")  # and the form of its hash


@dataclass(frozen=True)
class Client:
    name: str  # public
    digest: str  # the SHA-256 of its token
    voter: int = 0  # the number of its voter, from 1; 0 for none
    questions: int = 0  # the largest number of questions that it may ask, a limit besides the common budget
    project: str = ""  # clients of one project share a limit; empty for none
    project_questions: int = 0  # the limit of the project; the smallest of its clients
    reads: bool = False  # whether it reads the labels of all questions, or only of those that it asked

    def __post_init__(self) -> None:
        check_id("the name of a client", self.name)
        if self.project:
            check_id("the name of a project", self.project)
        for name in ("voter", "questions", "project_questions"):
            checks.integer_at_least(0, **{name: getattr(self, name)})
        is_digest = isinstance(self.digest, str) and _TOKEN.fullmatch(self.digest)
        if not isinstance(self.reads, bool) or not is_digest or self.digest == hash_token(""):
            allowed = "with a digest of 64 hexadecimal digits, not that of no token, and reads true or false"
            checks.fail("a client", self.name, allowed)


def hash_token(token: str) -> str:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()


def read_clients(path: Path) -> tuple[Client, ...]:
    """Read clients; `ValueError` if two share a name or a voter."""
    rows = read_json(path, what="a file of clients", most_bytes=MOST_BYTES)
    field_names = {field.name for field in fields(Client)}
    if not isinstance(rows, list) or not all(
        isinstance(row, dict) and {"name", "digest"} <= set(row) <= field_names for row in rows
    ):
        checks.fail("the file of clients", str(path), "as `python -m darrm.serve client` writes it")
    clients = tuple(Client(**row) for row in rows)
    names, voters = [client.name for client in clients], [client.voter for client in clients if client.voter]
    if len(set(names)) < len(names) or len(set(voters)) < len(voters):
        checks.fail("the file of clients", str(path), "with one client for each name, and one for each voter")
    return clients


def read_version(path: Path) -> tuple[int, ...] | None:
    """Return a version that changes with every write; None if the last second saw one."""
    status = path.stat()
    if time.time_ns() - status.st_ctime_ns < 10**9:
        return None
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def add_client(path: Path, client: Client) -> str:
    """Return the token of a new client, which is not stored."""
    check_parent(path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)  # one writer at a time; the file itself is replaced
        clients = read_clients(path) if path.exists() else ()
        if any(client.name == existing.name for existing in clients):
            checks.fail("the name of a client", client.name, "new", "take its line out of the file to end its token")
        if client.voter and any(client.voter == existing.voter for existing in clients):
            checks.fail("voter", client.voter, "a number that no other client has")
        token = secrets.token_hex(32)  # safe in shells and options
        rows = [asdict(existing) for existing in (*clients, replace(client, digest=hash_token(token)))]
        with replace_file(path, private=True) as new_file:
            new_file.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
            if path.exists():  # the server may run as another user
                old_status, new_status = path.stat(), new_file.stat()
                if (old_status.st_uid, old_status.st_gid) != (new_status.st_uid, new_status.st_gid):
                    os.chown(new_file, old_status.st_uid, old_status.st_gid)
        sync(path.parent)
        return token
    finally:
        os.close(folder)


def authenticate(clients: Iterable[Client], token: str) -> Client | None:
    """Find the client of a token, in a time that does not depend on the hashes."""
    if not _TOKEN.fullmatch(token):
        return None
    digest, match = hash_token(token), None
    for client in clients:
        if hmac.compare_digest(client.digest, digest):
            match = client
    return match
