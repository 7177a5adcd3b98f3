"""What whoever can write to a ledger's file can do: change it, and compute all of its digests anew."""

import hashlib
import sqlite3
from contextlib import closing
from pathlib import Path

ENTRY = "charges.id, time, kinds.seal, count, note, proof, digest, token, output, questions"


def digest(*fields: object) -> str:
    return hashlib.sha256("\x1f".join(map(str, fields)).encode()).hexdigest()


def relink(path: Path, *statements: str) -> None:
    """Run statements, make the totals fit the log, and compute every seal and every link anew."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        for statement in statements:
            connection.execute(statement)
        sums = "(SELECT coalesce(sum(count), 0) FROM charges WHERE kind = kinds.id)"
        connection.execute(f"UPDATE kinds SET total = {sums}")  # noqa: S608 (words of our own)
        connection.execute("DELETE FROM kinds WHERE total = 0")
        budget = "SELECT epsilon, delta, kinds, created, identity, population FROM budget"
        epsilon, delta, kinds, created, identity, population = connection.execute(budget).fetchone()
        named = (epsilon, delta, kinds, created, identity, *filter(None, [population]))
        connection.execute("UPDATE budget SET seal = ?", (digest(*named),))
        for number, *words in connection.execute("SELECT id, cost, what FROM kinds").fetchall():
            connection.execute("UPDATE kinds SET seal = ? WHERE id = ?", (digest(*words), number))
        link = digest("darrm", identity, epsilon, delta, kinds, created, population)
        entries = f"SELECT {ENTRY} FROM charges JOIN kinds ON kinds.id = kind ORDER BY charges.id"  # noqa: S608 (words of our own)
        for row in connection.execute(entries).fetchall():
            link = digest(link, *row)
            connection.execute("UPDATE charges SET link = ? WHERE id = ?", (link, row[0]))
        reseal(connection)


def reseal(connection: sqlite3.Connection) -> None:
    """Compute the seal of the totals anew."""
    answered = "(SELECT max(proof) FROM charges WHERE kind = kinds.id)"
    connection.execute(f"UPDATE kinds SET answered = {answered}")  # noqa: S608 (words of our own)
    last = connection.execute("SELECT id, link FROM charges ORDER BY id DESC LIMIT 1").fetchone()
    if last is None:
        budget = "SELECT identity, epsilon, delta, kinds, created, population FROM budget"
        last = (0, digest("darrm", *connection.execute(budget).fetchone()))
    totals = connection.execute("SELECT id, total, answered FROM kinds ORDER BY id").fetchall()
    connection.execute("UPDATE totals SET seal = ?", (digest(*last, *(value for row in totals for value in row)),))
