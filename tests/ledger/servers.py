"""Start Debian's PostgreSQL for tests, in a temporary folder, without a port."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path

import pytest

PROGRAMS = max(Path("/usr/lib/postgresql").glob("*/bin"), default=Path())
_numbers = count(1)


@dataclass
class Server:
    """A PostgreSQL server with a socket in its folder."""

    folder: Path
    as_user: tuple[str, ...]
    started: bool = False

    @classmethod
    def make(cls, parent: Path | None = None) -> "Server":
        name = tempfile.mkdtemp(prefix="darrm-pg-", dir="/tmp") if parent is None else tempfile.mkdtemp(dir=parent)
        folder = Path(name)
        as_user: tuple[str, ...] = ()
        if os.getuid() == 0:  # the server refuses to run as root
            shutil.chown(folder, "postgres")
            as_user = ("runuser", "-u", "postgres", "--")
        server = cls(folder, as_user)
        server.program("initdb", "-D", folder / "data", "-A", "trust", "-E", "UTF8", "--no-locale", "--no-sync")
        return server

    def program(self, name: str, *arguments: object) -> None:
        line = [*self.as_user, PROGRAMS / name, *arguments]
        process = subprocess.run([*map(str, line)], capture_output=True, text=True, check=False, cwd="/")
        assert process.returncode == 0, process.stdout + process.stderr

    def start(self, options: str = "") -> None:
        settings = f"-k {self.folder} -c listen_addresses='' -c shared_buffers=16MB -c max_connections=40 {options}"
        self.program("pg_ctl", "-D", self.folder / "data", "-l", self.folder / "log", "-w", "-o", settings, "start")
        self.started = True

    def stop(self, mode: str = "immediate") -> None:
        if self.started:
            self.program("pg_ctl", "-D", self.folder / "data", "-w", "-m", mode, "stop")
            self.started = False

    @property
    def url(self) -> str:
        return f"postgresql:///postgres?host={self.folder}&user=postgres"

    def run(self, *statements: str) -> None:
        import psycopg

        with psycopg.connect(self.url, autocommit=True) as connection:
            for statement in statements:
                connection.execute(statement)

    def empty(self) -> str:
        """Make a new schema, and return its URL."""
        name = f"ledger{next(_numbers)}"
        self.run(f"CREATE SCHEMA {name}")
        return f"{self.url}&options=-csearch_path%3D{name}"

    def change(self, url: str, *statements: str) -> None:
        """Change a ledger's tables by SQL."""
        self.run(f"SET search_path = {url.rpartition('%3D')[2]}", *statements)


@contextmanager
def running() -> Iterator[Server]:
    pytest.importorskip("psycopg")
    if not (PROGRAMS / "initdb").is_file():
        pytest.skip("PostgreSQL is not installed: apt-get install postgresql")
    server = Server.make()
    try:
        server.start()
        yield server
    finally:
        server.stop()
        shutil.rmtree(server.folder)
