"""Share two costs, a budget, and an SQL editor between the tests of ledgers."""

import sqlite3
from contextlib import closing
from pathlib import Path

from darrm.loss.privacy_cost import PrivacyCost
from darrm.privacy import PrivacyParams

PARAMS = PrivacyParams("0.1", "1e-6")
QUERY = PrivacyCost("majority of 11", guarantee=PARAMS)
OTHER = PrivacyCost("majority of 5", guarantee=PrivacyParams("0.2", "1e-6"))
BUDGET = PrivacyParams(3, "1e-3")


def edit(path: Path, *statements: str) -> None:
    """Run statements of SQL, each committed at once."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        for statement in statements:
            connection.execute(statement)
