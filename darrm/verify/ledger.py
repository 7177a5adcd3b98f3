"""The claims of a ledger: that it is whole, within its budget, and has paid for answers of this table.

The ledger is never opened: it is copied, with the journal that a crash may have left beside it, and the copy is read.
What is copied is what is judged, and what the digests of the report are of.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from fractions import Fraction
from functools import cached_property
from pathlib import Path

from darrm.account.accountant import SET_ASIDE, PrivacyAccountant, Spent, estimated
from darrm.account.bounds import Bound, exact_sum
from darrm.account.filters import HALF
from darrm.account.ledger import PrivacyLedger
from darrm.account.ledger_rows import Entry
from darrm.errors import LedgerError
from darrm.losses.charges import Charge
from darrm.privacy import PrivacyParams
from darrm.proof.table import Table
from darrm.system.command_line import numbered
from darrm.verify import confident, filters
from darrm.verify.answering import Priced
from darrm.verify.mechanism import judge_costs
from darrm.verify.members import judge_sampling
from darrm.verify.models import CAP, NAMES
from darrm.verify.points import MOST_EPSILON
from darrm.verify.sums import composed_delta
from darrm.verify.table import Answering, costs_of
from darrm.verify.totals import Proved, bounds_of_models, smallest
from darrm.verify.verdicts import CLAIMED, CONSISTENT, PROVED, UNKNOWN, Verdict, judged

_LEDGER = "ledger"
BESIDE = ("-journal", "-wal", "-shm")  # what SQLite leaves beside a file that was being written
_ATTEMPTS, _PAUSE = 5, 0.2  # seconds, while another process writes
_MOST_COMPOSED = 10**7  # queries; beyond, exact composition takes longer than a second
_FINER, _LEAST_DELTA = 2**20, Fraction(1, 10**12)  # than δ, what composition is off by, and where there is none
_SUMS = ("simple", "filter")  # bounds that exact sums of ε and δ are enough for
_CLOCK_SECONDS = 60.0  # that clocks of machines may differ
_SHOWN = 5  # entries by their numbers
_NEAR = 1e-9  # relative: floats on either side
OWN = "this audit's own sum"


@dataclass(frozen=True)
class LedgerCopy:
    """What a copy of a ledger says."""

    budget: PrivacyParams
    kinds: str
    charges: tuple[Charge, ...]  # one for each kind of query, with its count
    entries: tuple[Entry, ...]
    costs: Mapping[int, Charge] = field(default_factory=dict)  # of all queries of each `Entry.kind`
    created: str = ""  # when, in UTC
    spoilt: tuple[int, ...] = ()  # entries whose labels wait in it, and are not those that it paid for
    identity: str = ""  # what no other ledger has
    population: str = ""  # what whoever made it calls the people behind the votes
    answering: tuple[Answering, ...] = ()  # tables and mechanisms among the files that may have answered

    def answered_by(self, answering: Sequence[Answering]) -> LedgerCopy:
        """Judge it with what may have answered its queries."""
        return replace(self, answering=tuple(answering))

    @property
    def labels(self) -> int:
        """How many labels were paid for; of runs that are charged as a whole the most that they may have."""
        return sum(entry.answers for entry in self.entries)

    @property
    def digests(self) -> set[str]:
        """The digests of what its entries name as what answered."""
        return {entry.table for entry in self.entries if entry.table}

    @cached_property
    def spent(self) -> Spent:
        """What the accountant says was spent at the budget's δ."""
        accountant = PrivacyAccountant(charges=self.charges, set_aside=SET_ASIDE.get(self.kinds, HALF))
        return accountant.spent_under(self.kinds, self.budget.delta)

    @cached_property
    def priced(self) -> tuple[Priced, ...]:
        """Each kind of query, with what computes its cost anew where that is among the files."""
        found = []
        for charge in self.charges:
            own = [answering for answering in self.answering if _is_charge_of(answering, charge)]
            found.append((charge, costs_of(own[0]) if own else confident.of_words(charge.what)))
        return tuple(found)

    @cached_property
    def own(self) -> Proved | None:
        """The ε of all queries that this audit proves by means of its own; None where it knows none."""
        if self.kinds in SET_ASIDE or self.spent.understated is not None:
            return None
        return smallest(self.priced, self.budget.exact_delta, enough=self.spent.epsilon)

    @cached_property
    def judgements(self) -> tuple[tuple[Bound, tuple[str, str, bool]], ...]:
        """Every bound on all queries, with what `_judge_bound` says of it: exact composition takes a second."""
        return tuple((bound, _judge_bound(self, bound)) for bound in self.spent.bounds)

    @property
    def proved(self) -> Bound | None:
        """The smallest bound that was computed here by other means; None if none was."""
        proved = [bound for bound, (how, _, holds) in self.judgements if how == PROVED and holds]
        if self.own is not None:
            proved.append(Bound(OWN, self.own.epsilon, self.own.how))
        return min(proved, key=lambda bound: bound.epsilon, default=None)


def read_ledger(path: Path | str, files: Mapping[str, bytes] | None = None) -> LedgerCopy:
    """Read a copy of a ledger, by default of its `ledger_files` now, rolled back to its last transaction.

    Raises
    ------
    LedgerError
        If the copy is corrupted, of another version or no ledger.
    OSError
        If the file cannot be read.
    """
    with copied(ledger_files(Path(path)) if files is None else files) as copy:
        try:
            ledger = PrivacyLedger(copy)
            ledger.check()
            entries = ledger.entries()
            spoilt = tuple(entry.number for entry in entries if not entry.delivered and not _is_kept(ledger, entry))
            charges = ledger.accountant().charges
            return LedgerCopy(
                ledger.budget,
                ledger.kinds,
                charges,
                entries,
                ledger.costs(),
                ledger.created,
                spoilt,
                identity=ledger.identity,
                population=ledger.population,
            )
        except LedgerError as error:
            raise LedgerError(str(path), str(error).removeprefix(f"ledger {error.path!r}: ")) from error


@contextmanager
def copied(files: Mapping[str, bytes]) -> Iterator[Path]:
    """Write what a ledger's files hold into a folder of their own, for as long as it is read."""
    with tempfile.TemporaryDirectory(prefix="darrm-verify-") as folder:
        copy = Path(folder) / "ledger.sqlite"
        for beside, content in files.items():
            copy.with_name(copy.name + beside).write_bytes(content)
        yield copy


def _is_kept(ledger: PrivacyLedger, entry: Entry) -> bool:
    """Whether the labels that wait for an entry are as many as it counts, with its digest; of a manifest, any bytes."""
    try:
        if not entry.labels:
            return ledger.kept_manifest(entry.number) is not None
        return entry.pays_for(len(ledger.kept_labels(entry.number)))
    except LedgerError:
        return False


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
    names = ("", *BESIDE)
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


def judge_ledger(ledger: LedgerCopy) -> Iterator[Verdict]:
    """Judge every claim of a ledger."""
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
    yield from _judge_times(ledger)
    yield from _judge_questions(ledger)
    yield from _judge_kinds(ledger)
    yield from _judge_neighbors(ledger)
    yield from _judge_charges(ledger)
    yield from _judge_total(ledger)
    late = [entry.number for entry in ledger.entries if not entry.delivered]
    if late:
        reason = (
            f"the labels of {len(late)} entries are paid for and wait in the ledger: python -m darrm.release recover"
        )
        if ledger.spoilt:
            reason = f"what waits for {_numbered(ledger.spoilt)} is not what was paid for"
        yield judged(_LEDGER, f"{len(late)} entries are not delivered", reason, holds=not ledger.spoilt)


def _judge_times(ledger: LedgerCopy) -> Iterator[Verdict]:
    if not ledger.entries:
        return
    first, last = ledger.entries[0].time, ledger.entries[-1].time
    claim, latest = f"it was debited from {first} to {last}", ledger.created
    wrong = []
    for entry in ledger.entries:
        seconds = None if (now := _seconds(entry.time)) is None else now - (_seconds(latest) or now)
        if seconds is None or seconds < -_CLOCK_SECONDS:
            wrong.append(entry.number)
        else:
            latest = entry.time
    reason = "the times and notes of its log"
    if wrong:
        reason = f"of {_numbered(wrong)} the time is none in UTC, or before the ledger was made or the entry before it"
    yield judged(_LEDGER, claim, reason, holds=not wrong, how=CLAIMED)


def _judge_questions(ledger: LedgerCopy) -> Iterator[Verdict]:
    named = [entry for entry in ledger.entries if entry.questions]
    if named:
        shown = "; ".join(f"entry {entry.number}: {', '.join(entry.questions)}" for entry in named[:_SHOWN])
        more = f"; {len(named) - _SHOWN:,} more entries (--format json)" if len(named) > _SHOWN else ""
        asked = Counter(question for entry in named for question in entry.questions)
        twice = sorted(question for question, times in asked.items() if times > 1)[:_SHOWN]
        reason = f"{shown}{more}" + (f"; paid for more than once: {', '.join(twice)}" if twice else "")
        whole = all(len(entry.questions) == entry.count for entry in named)
        yield judged(
            _LEDGER, f"it names {asked.total():,} questions that it paid for", reason, holds=whole, how=CLAIMED
        )


def _seconds(time: str) -> float | None:
    try:
        read = datetime.fromisoformat(time)
        return None if read.utcoffset() != timedelta(0) else read.timestamp()
    except (ValueError, OverflowError):
        return None


def _judge_kinds(ledger: LedgerCopy) -> Iterator[Verdict]:
    if ledger.kinds == "one" and ledger.charges:
        kinds = ", ".join(repr(charge.what) for charge in ledger.charges)
        claim = "all its queries are of one kind, as its budget asks"
        yield judged(_LEDGER, claim, f"kinds: {kinds}", holds=len(ledger.charges) == 1)


def _judge_neighbors(ledger: LedgerCopy) -> Iterator[Verdict]:
    samplings = sorted({charge.sampling for charge in ledger.charges if charge.sampling is not None}, key=str)
    if not samplings:
        return
    claim = f"all its costs are about neighbors that {samplings[0].neighbors}, who are drawn anew for each question"
    silent = any(charge.sampling is None for charge in ledger.charges)  # of answers that name their release, none
    reason = "costs that were charged by hand do not say what they are about" if silent else "all say so"
    yield Verdict(_LEDGER, claim, UNKNOWN if silent else CONSISTENT, reason)
    for one in samplings:
        yield from judge_sampling(one, _LEDGER)


def _judge_charges(ledger: LedgerCopy) -> Iterator[Verdict]:
    if not ledger.entries:
        yield Verdict(_LEDGER, "it has paid for nothing", CONSISTENT, "the log is empty")
        return
    known, explained = {answering.digest for answering in ledger.answering}, set[int]()
    missing = ledger.digests - known
    for answering in ledger.answering:
        own = {kind: charge for kind, charge in ledger.costs.items() if _is_charge_of(answering, charge)}
        explained |= own.keys()
        yield from _judge_answers(ledger, answering, own)
        for kind, charge in own.items():
            digests = {entry.table for entry in ledger.entries if entry.kind == kind}
            yield _judge_words(charge, answering, digests=digests)
            if charge.models is not None and charge.models != costs_of(answering).voters:
                reason = (
                    "declared where it was charged, and as private as the table asks; nothing in the files shows it"
                )
                asked = numbered(charge.count, "query was", "queries were")
                yield Verdict(_LEDGER, f"{asked} about {charge.models}", CLAIMED, reason)
            yield from _judge_descriptions(charge, answering)
    for kind, charge in ledger.costs.items():
        if kind not in explained and (named := confident.of_words(charge.what)) is not None:
            explained.add(kind)
            claim = f"{numbered(charge.count, 'charge is', 'charges are')} for {charge.what}"
            yield Verdict(_LEDGER, claim, CLAIMED, "the words of the ledger: no file holds such a mechanism")
            yield from judge_costs(named, charge, _LEDGER)
    others = [entry for entry in ledger.entries if entry.table in missing]
    bare = [entry for entry in ledger.entries if not entry.table and entry.kind not in explained]
    for some, reason in (
        (others, f"what has the digest {', '.join(sorted(missing))} is not among the files: it would decide"),
        (bare, "no digest says what answered: whoever made the ledger knows"),
    ):
        if some:
            queries = numbered(sum(entry.count for entry in some), "query costs", "queries cost")
            claim = f"{queries} what the ledger says, {_numbered([entry.number for entry in some])}"
            yield Verdict(_LEDGER, claim, UNKNOWN, reason)


def _judge_answers(ledger: LedgerCopy, answering: Answering, own: Mapping[int, Charge]) -> Iterator[Verdict]:
    what = "table" if isinstance(answering, Table) else "mechanism"
    named = [entry for entry in ledger.entries if entry.table == answering.digest]
    bare = [entry for entry in ledger.entries if not entry.table]
    shown = f"{len(named)} of {len(ledger.entries)} entries hold its digest {answering.digest}"
    claim = f"queries were answered with this {what}"
    alike = sum(entry.count for entry in bare if entry.kind in own)
    if not named and bare:
        reason = f"{len(bare)} of {len(ledger.entries)} entries hold no digest: they know costs only"
        yield judged(_LEDGER, claim, f"{reason}, {alike} queries those of this {what}", holds=alike > 0, how=CLAIMED)
    else:
        yield judged(_LEDGER, claim, shown, holds=bool(named))
    wrong = [entry.number for entry in named if entry.kind not in own]
    if named:
        alike_cost = numbered(len(named), "entry costs", "entries cost")
        reason = f"{_numbered(wrong)} cost something else" if wrong else f"{alike_cost} just this"
        yield judged(_LEDGER, f"a query of its entries costs what one with this {what} costs", reason, holds=not wrong)


def _judge_words(charge: Charge, table: Answering, *, digests: set[str]) -> Verdict:
    """Judge what queries are called that cost what this table's do: a ledger keeps the words of the first of a cost."""
    own = {one.what for one in _charges_of(table, charge)}
    claim = f"{numbered(charge.count, 'query is', 'queries are')} called {charge.what!r}"
    reason = f"those of this table are {' or '.join(map(repr, sorted(own)))}"
    if charge.what not in own and digests != {table.digest}:
        return Verdict(_LEDGER, claim, CLAIMED, f"{reason}; queries of another table may cost as much")
    return judged(_LEDGER, claim, reason, holds=charge.what in own)


def _is_charge_of(table: Answering, charge: Charge) -> bool:
    return charge.to_text() in {one.to_text() for one in _charges_of(table, charge)}


def _charges_of(table: Answering, charge: Charge) -> list[Charge]:
    try:
        costs = [costs_of(table).cost(voters=charge.models, exact=exact) for exact in (True, False)]
    except ValueError:  # the table is not proved for such models
        return []
    # of voters that differ no curve was known once
    return costs if costs_of(table).voters.own is None else [*costs, replace(costs[0], renyi=None)]


def _numbered(numbers: Sequence[int]) -> str:
    more = f" and {len(numbers) - _SHOWN:,} more" if len(numbers) > _SHOWN else ""
    return f"entr{'y' if len(numbers) == 1 else 'ies'} {', '.join(map(str, numbers[:_SHOWN]))}{more}"


def _judge_descriptions(charge: Charge, answering: Answering) -> Iterator[Verdict]:
    if charge.models is not None:
        yield Verdict(_LEDGER, "a query costs what is known of its release", CONSISTENT, "computed again, it is equal")
        return
    yield from judge_costs(costs_of(answering), charge, _LEDGER)


def _judge_total(ledger: LedgerCopy) -> Iterator[Verdict]:
    spent, allowed = ledger.spent, ledger.budget
    for bound, (how, reason, holds) in ledger.judgements:
        claim = f"all queries together are ({bound.epsilon:.6g}, {allowed.delta:g})-private by the bound {bound.name!r}"
        within = "within the budget" if bound.epsilon <= allowed.epsilon else "a smaller bound counts"
        yield judged(_LEDGER, claim, f"{reason}; {within}", holds=holds, how=how)
    if ledger.charges:
        if (own := ledger.own) is not None:
            claim = (
                f"all queries together are ({own.epsilon:.6g}, {allowed.delta:g})-private, as this audit adds them up"
            )
            reason = f"{own.how}; {'if each costs what the ledger says' if own.given else 'from what answered'}"
            within = "" if own.epsilon <= allowed.epsilon * (1 + _NEAR) else "not "
            yield Verdict(_LEDGER, claim, PROVED, f"{reason}; {within}enough for the budget")
        claim = f"the total stays within the budget {allowed} of a ledger of {ledger.kinds!r} kinds"
        inside = _fits(exact_sum(ledger.charges), allowed, spent, ledger.kinds)
        proved = ledger.proved
        is_proved = proved is not None and proved.epsilon <= allowed.epsilon * (1 + _NEAR)
        reason = f"spent: {spent}" + (f"; proved by the bound {proved.name!r}" if proved and is_proved else "")
        if ledger.kinds in SET_ASIDE and not is_proved and _filtered(ledger):
            is_proved, reason = True, f"{reason}; the sums that the filter asks for are computed again, in balls"
        how = CLAIMED if spent.understated is not None else PROVED if is_proved else CONSISTENT
        yield judged(_LEDGER, claim, reason, holds=inside, how=how)


def _filtered(ledger: LedgerCopy) -> bool:
    known = (charge.alone or charge.models is not None or charge.data_dependent for charge in ledger.charges)
    if any(known) or any(charge.vanishing for charge in ledger.charges):
        return False
    costs, budget = filters.costs_of(ledger.charges), ledger.budget
    return filters.filter_admits(costs, budget.exact_epsilon, budget.exact_delta, Fraction(SET_ASIDE[ledger.kinds]))


def _judge_bound(ledger: LedgerCopy, bound: Bound) -> tuple[str, str, bool]:
    """Return what is known of a bound, how it was computed again, and whether it holds."""
    delta = Fraction(ledger.budget.exact_delta)
    if ledger.spent.understated is not None:
        return CLAIMED, f"{bound.explanation}; {estimated(ledger.spent.understated)}", True
    if bound.name == "simple" and ledger.charges and (total := exact_sum(ledger.charges)) is not None:
        holds = Fraction(bound.epsilon) >= total[0] and total[1] <= delta
        return PROVED, f"the exact sum is ({float(total[0]):.6g}, {float(total[1]):.6g})", holds
    if bound.name == "optimal" and (kind := _composable(ledger)) is not None:
        guarantee, count = kind
        pair = (guarantee.exact_epsilon, guarantee.exact_delta)
        needed = composed_delta([([pair], count)], Fraction(bound.epsilon), least=max(delta, _LEAST_DELTA) / _FINER)
        return PROVED, f"{count} times {guarantee}: exact composition needs δ = {float(needed):.6g}", needed <= delta
    # of kinds that are chosen on the way the costs for plain voters do not add up
    of_models = bounds_of_models(ledger.priced, delta) if bound.name in NAMES else None
    if of_models is not None and (bound.name == CAP or ledger.kinds not in SET_ASIDE):
        own = of_models.proved(bound.name, Fraction(bound.epsilon))
        if own is not None and own <= bound.epsilon * (1.0 + _NEAR):
            given = any(exact is None for _, exact in ledger.priced) and bound.name != CAP
            believed = ", if each query costs what the ledger says" if given else ""
            return PROVED, f"arithmetic of its own gives {float(own):.6g} for {of_models.models}{believed}", True
    return CONSISTENT, f"computed again: {bound.explanation}", True


def _fits(total: tuple[Fraction, Fraction] | None, allowed: PrivacyParams, spent: Spent, kinds: str) -> bool:
    share = allowed.exact_delta * SET_ASIDE.get(kinds, 1)
    adds_up = any(bound.name in _SUMS for bound in spent.bounds)  # costs of answers of trained models do not
    exactly = adds_up and total is not None and total[0] <= allowed.exact_epsilon and total[1] <= share
    return exactly or spent.epsilon <= allowed.epsilon


def _composable(ledger: LedgerCopy) -> tuple[PrivacyParams, int] | None:
    charge = ledger.charges[0]
    if len(ledger.charges) != 1 or charge.guarantee is None or charge.count > _MOST_COMPOSED:
        return None
    return None if charge.guarantee.exact_epsilon > MOST_EPSILON else (charge.guarantee, charge.count)
