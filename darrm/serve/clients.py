"""Who may ask, vote and read: named clients, in a file that holds the hashes of their tokens.

A token is 256 bits from the operating system, so nobody finds it by trying, with or without its hash, and a plain
SHA-256 is enough: slow, salted hashes are for passwords, which people choose and others guess. Whoever reads the file
cannot act as a client. The hash of a token that comes in is compared with all of them in constant time.
"""

import hashlib
import hmac
import json
import os
import secrets
import stat
from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from darrm.account.ledger import check_id
from darrm.errors import checks
from darrm.system.files import read_json, replacing

MOST_BYTES = 2**24


@dataclass(frozen=True)
class Client:
    """Who holds a token, and what it is for.

    Attributes
    ----------
    name
        What it is called, in public.
    digest
        The SHA-256 of its token.
    voter
        The number of the voter that it votes for, from 1; 0 for none.
    questions
        How many questions it may ask in all: a budget of its own below the common one.
    project
        Whose questions are counted together with its own; empty for none.
    project_questions
        How many questions the project may ask in all; the smallest that its clients name.
    reads
        Whether it reads the labels of all questions, not only of its own.
    """

    name: str
    digest: str
    voter: int = 0
    questions: int = 0
    project: str = ""
    project_questions: int = 0
    reads: bool = False

    def __post_init__(self) -> None:
        check_id("the name of a client", self.name)
        if self.project:
            check_id("the name of a project", self.project)
        for name in ("voter", "questions", "project_questions"):
            checks.integer_at_least(0, **{name: getattr(self, name)})
        if not isinstance(self.reads, bool) or not isinstance(self.digest, str) or len(self.digest) != 64:
            checks.fail("a client", self.name, "with a digest of 64 characters, and reads true or false")


def hashed(token: str) -> str:
    """Return the SHA-256 of a token, which is what is kept of it."""
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()


def read_clients(path: Path) -> tuple[Client, ...]:
    """Read the file; `ValueError` if it is none, or two clients have one name, or one voter's number."""
    rows = read_json(path, what="a file of clients", most_bytes=MOST_BYTES)
    known = {field.name for field in fields(Client)}
    if not isinstance(rows, list) or not all(
        isinstance(row, dict) and {"name", "digest"} <= set(row) <= known for row in rows
    ):
        checks.fail("the file of clients", str(path), "as `python -m darrm.serve client` writes it")
    clients = tuple(Client(**row) for row in rows)
    names, voters = [client.name for client in clients], [client.voter for client in clients if client.voter]
    if len(set(names)) < len(names) or len(set(voters)) < len(voters):
        checks.fail("the file of clients", str(path), "with one client for each name, and one for each voter")
    return clients


def add_client(path: Path, client: Client) -> str:
    """Add a client to the file, or make it; return its token, which nothing else holds. Names are taken once."""
    clients = read_clients(path) if path.exists() else ()
    token = secrets.token_hex(32)  # no sign that a shell or a flag could stumble over
    if any(client.name == other.name for other in clients):
        checks.fail("the name of a client", client.name, "new", "take its line out of the file to end its token")
    if client.voter and any(client.voter == other.voter for other in clients):
        checks.fail("voter", client.voter, "that of no other client")
    rows = [asdict(other) for other in clients] + [{**asdict(client), "digest": hashed(token)}]
    before = path.stat() if path.exists() else None
    with replacing(path) as file:
        file.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
        made = file.stat()
        if before is not None and (before.st_uid, before.st_gid) != (made.st_uid, made.st_gid):
            os.chown(file, before.st_uid, before.st_gid)  # of the server that reads it
    path.chmod(0o600 if before is None else stat.S_IMODE(before.st_mode))
    return token


def holder(clients: Iterable[Client], token: str) -> Client | None:
    """Return whose token it is, None for nobody's; the time it takes says nothing about which hash was close."""
    digest, match = hashed(token), None
    for client in clients:
        if hmac.compare_digest(client.digest, digest):
            match = client
    return match
