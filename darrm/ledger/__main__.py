"""The command ``darrm ledger``: make a ledger, move it to another store, make a key that signs its entries."""

import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import click

from darrm.account.accountant import COMPOSITIONS
from darrm.commands.command import PAIR, Group, command, run_command
from darrm.commands.options import FILE, PRIVACY, Output, argument, option, output_options, text_value
from darrm.errors import LedgerError
from darrm.ledger.chain import Budget, new_signing_key
from darrm.ledger.ledger import DEFAULT_TIMEOUT, PrivacyLedger
from darrm.ledger.postgres import Store, open_store
from darrm.ledger.sqlite import check_kept, ledger_name
from darrm.ledger.transaction import Transaction
from darrm.privacy import PrivacyParams
from darrm.util import checks

EXAMPLES = """\
examples:
  darrm ledger create ledger.sqlite --budget 3,1e-3
  darrm ledger create postgresql://budget@db.example/ward7 --budget 3,1e-3
  darrm ledger move ledger.sqlite postgresql://budget@db.example/ward7
  darrm ledger key ledger.key

`darrm account LEDGER` reports the privacy loss of all debits.
"""
COMPOSITION = """\
example:
  darrm ledger create ledger.sqlite --budget 3,1e-3

--composition is fixed when the ledger is made:
  one       queries of one kind; their number may depend on the answers
  planned   several kinds, if kinds and numbers were fixed before the first
            answer
  renyi     several kinds chosen at will, each with a Rényi curve or δ = 0
  adaptive  any kinds chosen at will; half of δ is reserved for their own
"""
NAME = text_value(ledger_name, "ledger")


@command(
    "create",
    about="Make a new ledger with a budget for all its queries. An existing ledger is never replaced.",
    short="make a new ledger",
    first=("--budget", "--composition", "--population"),
    examples=COMPOSITION,
)
@argument("name", type=NAME, metavar="LEDGER", about="a new file, or the URL of an empty schema in PostgreSQL")
@option(
    "--budget",
    aliases=["--total"],
    type=PRIVACY,
    metavar=PAIR,
    required=True,
    help="what all queries together may cost",
)
@option("--composition", type=click.Choice(COMPOSITIONS), default=COMPOSITIONS[0], help="default one; see below")
@option("--population", default="", metavar="NAME", help="a public name of the people behind the votes")
@option("--signing-key", type=FILE, metavar="FILE", help="sign every entry, from the first one on (darrm ledger key)")
@output_options()
def create(
    *,
    name: Path | str,
    budget: PrivacyParams,
    composition: str,
    population: str,
    signing_key: Path | None,
    output: Output,
) -> None:
    check_kept(name)
    ledger = PrivacyLedger.create(name, budget, composition=composition, population=population, signing_key=signing_key)
    digest = ledger.digest()
    output.print(
        text=lambda: f"made {name}, with the budget {ledger.guarantee}\ndigest: {digest}\n",
        document=lambda: {
            "ledger": str(name),
            "budget": budget.to_json(),
            "composition": composition,
            "population": population,
            "ledger_digest": digest.to_json(),
        },
    )


def move(name: str, new_name: str, *, timeout: float = DEFAULT_TIMEOUT) -> PrivacyLedger:
    """Move a ledger with its identity, entries and labels; close the old one, return the new one.

    *There are never two budgets.* All rows are copied and checked in a transaction of the new store; then the old
    ledger is closed, durably; then the new one is committed. If the move is cut off anywhere, at most one of them pays,
    and the same command goes on.
    """
    source, target = open_store(name, timeout=timeout), open_store(new_name, timeout=timeout)
    if source.path == target.path:
        checks.fail("the new place", new_name, "another than the old one")
    with source.transaction(write=False) as database:
        source_transaction = Transaction(database)
        budget, new_place = source_transaction.budget, source_transaction.state.moved_to
    if new_place not in {"", target.path}:
        raise LedgerError(source.path, f"it is closed, its budget moved to {new_place} already")
    if new_place and _has_budget(target, budget):  # the move is complete, and only its report was cut off
        return PrivacyLedger(target)
    continues = target.is_unfinished()
    if not continues:
        target.create()
    with target.transaction(write=True) as target_transaction:
        try:
            with source.transaction(write=not new_place) as database:
                Transaction(target_transaction).take_over(Transaction(database), new_place)
        except BaseException:
            if not continues:  # it may be another process's by now
                target.discard()
            raise
    return PrivacyLedger(target)


def _has_budget(store: Store, budget: Budget) -> bool:
    with suppress(LedgerError), store.transaction(write=False) as database:
        return Transaction(database).budget == budget
    return False  # there is no ledger yet, or an empty file


@command("move", about="Move a ledger to another store, and close the old one.", short="move a ledger to another store")
@argument("old", type=NAME, metavar="FROM", about="the ledger: a file or a URL")
@argument("new", type=NAME, metavar="TO", about="a new file, or the URL of an empty schema in PostgreSQL")
@output_options()
def move_to(*, old: Path | str, new: Path | str, output: Output) -> None:
    check_kept(old)
    check_kept(new)
    with output.status_line() as line:
        line.show("copying the ledger's entries")
        digest = move(str(old), str(new)).digest()
    output.print(
        text=lambda: f"moved to {new}; {old} is closed, keep it for audits\ndigest: {digest}\n",
        document=lambda: {"from": str(old), "to": str(new), "ledger_digest": digest.to_json()},
    )


@command("key", about="Make an Ed25519 key that signs a ledger's entries.", short="make a key that signs entries")
@argument("private", type=FILE, metavar="FILE", about="a new file for the private key; the public key is FILE.pub")
@output_options()
def key(*, private: Path, output: Output) -> None:
    public = new_signing_key(private)
    output.print(
        text=lambda: f"private key: {private}: keep it, and a copy, apart from the ledger\npublic key:  {public}\n",
        document=lambda: {"private": str(private), "public": str(public)},
    )


ledger = Group("ledger", help="Make ledgers, move them, and make keys that sign them.", examples=EXAMPLES)
for _command in (create, move_to, key):
    ledger.add_command(_command)


def main(arguments: Sequence[str] | None = None) -> int:
    return run_command(ledger, arguments)


if __name__ == "__main__":
    sys.exit(main())
