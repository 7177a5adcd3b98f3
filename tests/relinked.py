"""Change a ledger's file and recompute all hashes and checksums, as anybody with write access can."""

import hashlib
import sqlite3
from contextlib import closing
from pathlib import Path

BUDGET = "SELECT format, identity, epsilon, delta, composition, population, created FROM budget"
ENTRIES = (
    "SELECT entries.id, time, costs.checksum, count, note, entries.table_digest, labels_digest, token, output, "
    "questions FROM entries JOIN costs ON costs.id = entries.cost ORDER BY entries.id"
)


def digest(*fields: object) -> str:
    return hashlib.sha256("\x1f".join(map(str, fields)).encode()).hexdigest()


def relink(path: Path, *statements: str) -> None:
    """Run statements, make the totals fit the log, and compute every checksum and every entry hash again."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        for statement in statements:
            connection.execute(statement)
        connection.execute(
            "UPDATE costs SET total = (SELECT coalesce(sum(count), 0) FROM entries WHERE cost = costs.id)"
        )
        connection.execute("DELETE FROM costs WHERE total = 0")
        entry_hash = digest(*connection.execute(BUDGET).fetchone())
        connection.execute("UPDATE budget SET checksum = ?", (entry_hash,))
        for number, *fields in connection.execute("SELECT id, cost, what FROM costs").fetchall():
            connection.execute("UPDATE costs SET checksum = ? WHERE id = ?", (digest(*fields), number))
        for row in connection.execute(ENTRIES).fetchall():
            entry_hash = digest(entry_hash, *row)
            connection.execute("UPDATE entries SET entry_hash = ? WHERE id = ?", (entry_hash, row[0]))
        reseal(connection)


def reseal(connection: sqlite3.Connection) -> None:
    """Compute the checksum of the state again."""
    largest_digest = "(SELECT coalesce(max(e.table_digest), '') FROM entries e WHERE e.cost = costs.id)"
    connection.execute(f"UPDATE costs SET table_digest = {largest_digest}")  # noqa: S608 (constant SQL)
    last_row = connection.execute("SELECT entry_hash FROM entries ORDER BY id DESC LIMIT 1").fetchone()
    entry_hash = digest(*connection.execute(BUDGET).fetchone()) if last_row is None else last_row[0]
    last_entry, moved_to = connection.execute("SELECT last_entry, moved_to FROM state").fetchone()
    totals = connection.execute("SELECT id, total, table_digest FROM costs ORDER BY id").fetchall()
    fields = (last_entry, entry_hash, moved_to, *(value for row in totals for value in row))
    connection.execute("UPDATE state SET checksum = ?", (digest(*fields),))
