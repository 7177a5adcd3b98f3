"""A folder with a table, votes, and a ledger."""

from pathlib import Path

import numpy as np
import pytest

from darrm.ledger.ledger import PrivacyLedger
from darrm.privacy import PrivacyParams
from darrm.table.release import Release
from tests.release.support import VOTES, table_of


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with a table that returns the majority, and votes."""
    table_of().save(tmp_path / "table.json")
    np.save(tmp_path / "votes.npy", VOTES)
    np.savetxt(tmp_path / "votes.csv", VOTES, fmt="%d", delimiter=",")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def ledger(folder: Path) -> PrivacyLedger:
    return PrivacyLedger.create(folder / "l.sqlite", PrivacyParams(1000, "0.1"), population="Wörth 7")


@pytest.fixture(scope="session")
def aggregator() -> Release:
    return Release(table_of())
