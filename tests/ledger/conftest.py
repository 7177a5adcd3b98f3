"""Places of ledgers: memory, a file, and PostgreSQL."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.ledger.servers import Server, running

POSTGRES = pytest.param("postgresql", marks=pytest.mark.slow)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "ledger.sqlite"


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    with running() as server:
        yield server


@pytest.fixture
def own_server() -> Iterator[Server]:
    """A server that a test may kill."""
    with running() as server:
        yield server


def name_place(kind: str, request: pytest.FixtureRequest, path: Path) -> str:
    if kind == "postgresql":
        return str(request.getfixturevalue("server").empty())
    return {"memory": ":memory:", "sqlite": str(path)}[kind]


@pytest.fixture(params=["memory", "sqlite", POSTGRES])
def any_place(request: pytest.FixtureRequest, path: Path) -> str:
    """The name of a new ledger in any storage."""
    return name_place(request.param, request, path)


@pytest.fixture(params=["sqlite", POSTGRES])
def place(request: pytest.FixtureRequest, path: Path) -> str:
    """The name of a new ledger that can be opened again: a file or a URL."""
    return name_place(request.param, request, path)
