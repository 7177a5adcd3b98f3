"""Places of ledgers: a file, and PostgreSQL."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.ledger.servers import Server, running


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "ledger.sqlite"


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    with running() as made:
        yield made


@pytest.fixture
def own_server() -> Iterator[Server]:
    """A server that a test may kill."""
    with running() as made:
        yield made


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.slow)])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A file or a URL for a new ledger; both satisfy the same contract."""
    if request.param == "sqlite":
        return str(tmp_path / "ledger.sqlite")
    return str(request.getfixturevalue("server").empty())
