"""Share costs, a budget, an SQL editor, and other processes between the tests of ledgers."""

import sqlite3
import subprocess
import sys
import textwrap
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from darrm.loss.privacy_cost import PrivacyCost
from darrm.privacy import PrivacyParams

PARAMS = PrivacyParams("0.1", "1e-6")
QUERY = PrivacyCost("majority of 11", guarantee=PARAMS, table="ab" * 32)
OTHER = PrivacyCost("majority of 5", guarantee=PrivacyParams("0.2", "1e-6"))
SMALL = PrivacyCost("majority of 11", guarantee=PrivacyParams("0.001", 0))
FREE = PrivacyCost("nothing", guarantee=PrivacyParams(0))
BUDGET = PrivacyParams(3, "1e-3")

PRELUDE = """
import os, resource, sys
from darrm.errors import BudgetExceededError, LedgerError
from darrm.ledger.ledger import PrivacyLedger
from darrm.loss.privacy_cost import PrivacyCost
from darrm.privacy import PrivacyParams
query = PrivacyCost("q", guarantee=PrivacyParams("0.1", "1e-6"))
ledger = PrivacyLedger(sys.argv[1], timeout={timeout})
"""


def edit(path: Path, *statements: str) -> None:
    """Run statements of SQL, each committed at once."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        for statement in statements:
            connection.execute(statement)


def change_connections(patch: pytest.MonkeyPatch, change: Callable[[sqlite3.Connection], object]) -> None:
    """Change every new connection to SQLite."""
    connect = sqlite3.connect

    def connect_changed(*arguments: Any, **options: Any) -> sqlite3.Connection:
        connection: sqlite3.Connection = connect(*arguments, **options)
        change(connection)
        return connection

    patch.setattr(sqlite3, "connect", connect_changed)


def start_python(script: str, *words: object, timeout: float = 60.0) -> "subprocess.Popen[str]":
    """Start a process that runs a script with the ledger at the first word, and its query."""
    prelude = PRELUDE.format(timeout=timeout)
    command = [sys.executable, "-c", prelude + textwrap.dedent(script), *map(str, words)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def run_python(script: str, *words: object) -> str:
    """Return what such a process prints."""
    process = start_python(script, *words)
    output, errors = process.communicate()
    assert process.returncode == 0, errors
    return output
