"""The claims of a ledger: that it is whole, within its budget, and has paid for answers of this table.

The ledger is never opened: it is copied, with the journal that a crash may have left beside it, and the copy is read.
What is copied is what is judged, and what the digests of the report are of.
"""

import os
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from pathlib import Path

from darrm.account.accountant import PrivacyAccountant, Spent
from darrm.account.bounds import exact_sum
from darrm.account.ledger import PrivacyLedger
from darrm.account.ledger_rows import Entry
from darrm.errors import LedgerError
from darrm.losses.charges import Charge
from darrm.privacy import PrivacyParams
from darrm.proof.table import Table
from darrm.verify.exact import composed_delta
from darrm.verify.table import exact_of
from darrm.verify.verdicts import CLAIMED, CONSISTENT, PROVED, Verdict, judged

_LEDGER = "ledger"
_BESIDE = ("-journal", "-wal", "-shm")  # what SQLite leaves beside a file that was being written
_ATTEMPTS, _PAUSE = 5, 0.2  # seconds, while another process writes
_MOST_COMPOSED = 1000  # queries; beyond, exact composition takes longer than a second
_SUMS = ("simple", "filter")  # bounds that exact sums of ε and δ are enough for
_POINTS = 5  # of a profile that are checked exactly: each takes as long as the proof of privacy


@dataclass(frozen=True)
class LedgerCopy:
    """What a copy of a ledger says."""

    budget: PrivacyParams
    kinds: str
    charges: tuple[Charge, ...]  # one for each kind of query, with its count
    entries: tuple[Entry, ...]

    @cached_property
    def spent(self) -> Spent:
        """What the accountant says was spent at the budget's δ."""
        accountant = PrivacyAccountant(charges=self.charges)
        adaptive = self.kinds == "adaptive"
        return (accountant.spent_adaptively if adaptive else accountant.spent)(self.budget.delta)


def read_ledger(path: Path, files: Mapping[str, bytes] | None = None) -> LedgerCopy:
    """Read a copy of a ledger, by default of its `ledger_files` now, rolled back to its last transaction.

    Raises
    ------
    LedgerError
        If the copy is corrupted, of another version or no ledger.
    OSError
        If the file cannot be read.
    """
    with tempfile.TemporaryDirectory(prefix="darrm-verify-") as folder:
        copy = Path(folder) / "ledger.sqlite"
        for beside, content in (ledger_files(path) if files is None else files).items():
            copy.with_name(copy.name + beside).write_bytes(content)
        try:
            ledger = PrivacyLedger(copy)
            return LedgerCopy(ledger.budget, ledger.kinds, ledger.accountant().charges, ledger.entries())
        except LedgerError as error:
            raise LedgerError(str(path), str(error).removeprefix(f"ledger {error.path!r}: ")) from error


def ledger_files(path: Path) -> dict[str, bytes]:
    """Return what a ledger's file holds, and what stands beside it by the end of its name, while nobody writes.

    Raises
    ------
    LedgerError
        If it is being written all the time.
    OSError
        If a file cannot be read.
    """
    real = Path(os.path.realpath(path))  # SQLite's journal lies beside the file, not beside a link to it
    names = ("", *_BESIDE)
    for attempt in range(_ATTEMPTS):
        if attempt:
            time.sleep(_PAUSE)
        before = [_state(real, name) for name in names]
        try:
            found = {
                name: real.with_name(real.name + name).read_bytes()
                for name, state in zip(names, before, strict=True)
                if state is not None
            }
        except FileNotFoundError:  # a journal that was just dropped
            continue
        if [_state(real, name) for name in names] == before:
            return found
    raise LedgerError(str(path), "it is being written all the time: verify a copy of it")


def _state(path: Path, beside: str) -> tuple[int, int, int] | None:
    try:
        found = path.with_name(path.name + beside).stat()
    except FileNotFoundError:
        if not beside:
            raise
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


def judge_ledger(ledger: LedgerCopy, table: Table | None) -> Iterator[Verdict]:
    """Judge every claim of a ledger; without a table nothing is said about whose answers it paid for."""
    queries = sum(charge.count for charge in ledger.charges)
    whole = "pages, seals, and the totals against the log; this finds damage, and a forger could write the seals anew"
    yield Verdict(_LEDGER, f"it is whole (entries: {len(ledger.entries)}, queries: {queries})", CONSISTENT, whole)
    logged = sum(entry.count for entry in ledger.entries)
    yield judged(
        _LEDGER,
        "its log adds up to its totals",
        f"{logged} in the log, {queries} in the totals",
        holds=logged == queries,
    )
    if ledger.entries:
        first, last = ledger.entries[0].time, ledger.entries[-1].time
        yield Verdict(_LEDGER, f"it was debited from {first} to {last}", CLAIMED, "the times and notes of its log")
    if table is not None:
        yield from _judge_charges(ledger, table)
    yield from _judge_total(ledger)
    late = sum(not entry.delivered for entry in ledger.entries)
    if late:
        reason = f"the labels of {late} entries are paid for and wait in the ledger: python -m darrm.release recover"
        yield Verdict(_LEDGER, f"{late} entries are not delivered", CONSISTENT, reason)


def _judge_charges(ledger: LedgerCopy, table: Table) -> Iterator[Verdict]:
    own = [charge for charge in ledger.charges if _is_charge_of(table, charge)]
    others = [charge for charge in ledger.charges if charge not in own]
    digests = {entry.table for entry in ledger.entries}
    counted, all_counted = (sum(charge.count for charge in some) for some in (own, ledger.charges))
    reason = f"{counted} of {all_counted} queries cost just this"
    claim = "a query that it charges costs what one with this table costs"
    if not ledger.charges:
        yield Verdict(_LEDGER, "it has paid for nothing", CONSISTENT, "the log is empty")
        return
    yield judged(_LEDGER, claim, reason, holds=bool(own))
    for charge in others:
        claim = f"{charge.count} queries of {charge.what!r} cost something else"
        yield judged(_LEDGER, claim, "their cost needs their own table", holds=digests != {table.digest}, how=CLAIMED)
    named = [entry for entry in ledger.entries if entry.table == table.digest]
    if not named and "" in digests:
        bare = sum(not entry.table for entry in ledger.entries)
        reason = f"{bare} of {len(ledger.entries)} entries hold no digest of a table: they know costs only"
        yield Verdict(_LEDGER, "queries were answered with this table", CLAIMED, reason)
    else:
        reason = f"{len(named)} of {len(ledger.entries)} entries hold its digest {table.digest}"
        yield judged(_LEDGER, "queries were answered with this table", reason, holds=bool(named))
        answered = sum(entry.count for entry in named)
        agree = f"{answered} queries by digest, {counted} by cost"
        yield judged(_LEDGER, "what this table answered was charged at its cost", agree, holds=answered <= counted)
    for charge in own:
        if charge.models is not None and charge.models != table.problem.voters:
            reason = "declared where it was charged, and as private as the table asks; nothing in the files shows it"
            yield Verdict(_LEDGER, f"{charge.count} queries were about {charge.models}", CLAIMED, reason)
        yield from _judge_descriptions(charge, table)


def _is_charge_of(table: Table, charge: Charge) -> bool:
    """Whether a query costs what one with this table does, for its voters or for the models that were declared."""
    try:
        mine = [exact_of(table).cost(voters=charge.models, exact=exact) for exact in (True, False)]
    except ValueError:  # the table is not proved for such models
        return False
    return charge.to_text() in {one.to_text() for one in mine}


def _judge_descriptions(charge: Charge, table: Table) -> Iterator[Verdict]:
    """Judge the exact descriptions of a query's cost, which the accountant composes."""
    if charge.renyi is not None:
        yield Verdict(_LEDGER, "the Rényi curve of a query is this table's", CONSISTENT, "computed again, it is equal")
    if charge.profile is None:
        return
    last = len(charge.profile.epsilons) - 1
    chosen = sorted({place * last // (_POINTS - 1) for place in range(_POINTS)})
    epsilons = [Fraction(charge.profile.epsilons[place]) for place in chosen]
    found = exact_of(table).deltas(epsilons)
    claim = "the privacy profile of a query is this table's"
    if found is None:
        yield Verdict(_LEDGER, claim, CONSISTENT, "computed again, it is equal; too large for exact arithmetic")
        return
    safe = all(Fraction(charge.profile.deltas[place]) >= true.lower for place, true in zip(chosen, found, strict=True))
    reason = f"computed again, it is equal; exact arithmetic at {len(chosen)} of {last + 1} points finds no larger δ"
    yield judged(_LEDGER, claim, reason, holds=safe, how=PROVED)


def _judge_total(ledger: LedgerCopy) -> Iterator[Verdict]:
    spent, allowed = ledger.spent, ledger.budget
    total = exact_sum(ledger.charges) if ledger.charges else None
    delta = Fraction(allowed.exact_delta)
    proved = ""  # by which bound
    for bound in spent.bounds:
        claim = f"all queries together are ({bound.epsilon:.6g}, {allowed.delta:g})-private by the bound {bound.name!r}"
        how, reason, holds = CONSISTENT, f"computed again: {bound.explanation}", True
        if bound.name == "simple" and total is not None:
            holds = Fraction(bound.epsilon) >= total[0] and total[1] <= delta
            how, reason = PROVED, f"the exact sum is ({float(total[0]):.6g}, {float(total[1]):.6g})"
        elif bound.name == "optimal" and (kind := _composable(ledger)) is not None:
            guarantee, count = kind
            needed = composed_delta(guarantee.exact_epsilon, guarantee.exact_delta, count, Fraction(bound.epsilon))
            how, holds = PROVED, needed <= delta
            reason = f"{count} times {guarantee}: exact composition needs δ = {float(needed):.6g}"
        within = bound.epsilon <= allowed.epsilon
        proved = proved or (bound.name if within and how == PROVED and holds else "")
        yield judged(_LEDGER, claim, f"{reason}; {'within' if within else 'above'} the budget", holds=holds, how=how)
    if ledger.charges:
        claim = f"the total stays within the budget {allowed} of a ledger of {ledger.kinds!r} kinds"
        inside = _fits(total, allowed, spent, ledger.kinds)
        reason = f"spent: {spent}" + (f"; proved by the bound {proved!r}" if proved else "")
        yield judged(_LEDGER, claim, reason, holds=inside, how=PROVED if proved else CONSISTENT)


def _fits(total: tuple[Fraction, Fraction] | None, allowed: PrivacyParams, spent: Spent, kinds: str) -> bool:
    """Whether the smallest bound is within the budget; sums are compared as fractions, as at the debit."""
    share = allowed.exact_delta / (2 if kinds == "adaptive" else 1)
    adds_up = any(bound.name in _SUMS for bound in spent.bounds)  # costs of answers of trained models do not
    exactly = adds_up and total is not None and total[0] <= allowed.exact_epsilon and total[1] <= share
    return exactly or spent.epsilon <= allowed.epsilon


def _composable(ledger: LedgerCopy) -> tuple[PrivacyParams, int] | None:
    """Return the one guarantee and its count where exact composition is quick."""
    charge = ledger.charges[0]
    if len(ledger.charges) != 1 or charge.guarantee is None or charge.count > _MOST_COMPOSED:
        return None
    return charge.guarantee, charge.count
