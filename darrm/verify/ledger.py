"""Judge a ledger: it is whole, its costs are true, it keeps to its budget, and paid for exactly these labels."""

import math
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from fractions import Fraction
from functools import cached_property
from itertools import accumulate, combinations, pairwise

from darrm.verify.chain import Entry, Ledger, numbered
from darrm.verify.costs import Cost, judge_charge
from darrm.verify.files import LabelsFile, read_waiting
from darrm.verify.formats import OPEN, Answering, Charge, Run
from darrm.verify.totals import Priced, Total, filter_admits, filter_order, judge_total, smallest_total
from darrm.verify.verdicts import (
    ASSUMED,
    CONSISTENT,
    FALSE,
    PROVED,
    UNKNOWN,
    Verdict,
    counted,
    float_up,
    judged,
    pair_at_most,
)

_RESERVE = {"adaptive": Fraction(1, 2), "renyi": Fraction(0)}  # the share of δ for the queries' own
_APART = 1.02  # relative: a larger sum refutes the budget; below it, bounds may differ


@dataclass(eq=False)
class LedgerAudit:
    path: str
    ledger: Ledger
    answerings: list[Answering] = field(default_factory=list)

    @cached_property
    def priced(self) -> list[Priced]:
        known, found = {one.digest: one for one in self.answerings}, list[Priced]()
        for number, charge in self.ledger.charges.items():
            digests = {entry.table for entry in self.ledger.entries if entry.cost == number}
            own = [known[digest] for digest in digests if digest in known]
            found.append((charge, Cost(own[0]) if len(own) == 1 == len(digests) else None))
        return found

    @cached_property
    def total(self) -> tuple[Verdict, Total | None]:
        ledger, (epsilon, delta) = self.ledger, self.ledger.budget
        charges, number = list(ledger.charges.values()), sum(entry.answers for entry in ledger.entries)
        within = f"the budget {pair_at_most(epsilon, delta)}"
        claim = f"{counted(number, 'label keeps', 'labels keep')} to {within}"
        if any(charge.estimate is not None for charge in charges):
            reason = "it holds published estimates about the data at hand: no guarantee"
            return Verdict("composition", claim, ASSUMED, reason), None
        if any(charge.count for charge in charges) and ledger.composition in _RESERVE:
            how, reason = self._filtered()
            total = Total(float(epsilon), "a filter", stated=how == CONSISTENT)
            return Verdict("composition", claim, how, reason), total if how in {PROVED, CONSISTENT} else None
        # the joint bound for models is decided at the budget's ε, and not searched
        found = smallest_total(self.priced, delta, enough=float(epsilon) if any(c.models for c in charges) else 0.0)
        verdict = judge_total(claim, found, (float_up(epsilon), delta), apart=_APART)
        if found is None or verdict.verdict not in {PROVED, CONSISTENT}:
            return verdict, None
        pair = pair_at_most(min(found.epsilon, float(epsilon)), delta, 4)
        return replace(verdict, claim=f"{counted(number, 'label is', 'labels are')} {pair}-DP, within {within}"), found

    def _filtered(self) -> tuple[str, str]:
        (epsilon, delta), share = self.ledger.budget, _RESERVE[self.ledger.composition]
        charges = [charge for charge, _ in self.priced]
        if any(charge.alone for charge in charges):
            found = smallest_total([(charge, None) for charge in charges], delta, enough=float(epsilon))
            if found is not None and found.how.startswith("the composition") and found.epsilon <= float_up(epsilon):
                return PROVED, found.how
        if any(charge.alone or charge.vanishing for charge in charges):
            return UNKNOWN, "no filter of the independent checker covers costs of models or open answers"
        room = epsilon * (1 + Fraction(1, 10**9))
        order = float_up(filter_order(room, delta * (1 - share)))
        pairs = [
            Charge(charge.count, charge.guarantee if cost is not None and cost.proves(charge) else None)
            for charge, cost in self.priced
        ]
        if reason := filter_admits(pairs, room, delta, share):
            return PROVED, reason
        found_renyi = [None if cost is None else cost.renyi(order) for _, cost in self.priced]
        curves = [((), ()) if own is None or math.isinf(own.upper) else ((order,), (own.upper,)) for own in found_renyi]
        both = [Charge(one.count, one.guarantee, *curve) for one, curve in zip(pairs, curves, strict=True)]
        for how, costs in ((PROVED, both), (CONSISTENT, charges)):
            if reason := filter_admits(costs, room, delta, share):
                return how, reason
        return FALSE, "neither the sums nor the Rényi filter of the budget admit all queries"

    @property
    def adds_up(self) -> str:
        charges = self.ledger.charges.values()
        if any(charge.alone for charge in charges):
            return "answers of trained models share the randomness of their training"
        return "it holds published estimates" if any(charge.estimate is not None for charge in charges) else ""

    @property
    def neighbors(self) -> frozenset[str]:
        charges = self.ledger.charges.values()
        return frozenset("change one person" if one.sampled is None else one.sampled.neighbors for one in charges)


def assign_releases(audits: Sequence[LedgerAudit], releases: Mapping[str, Answering]) -> dict[str, Answering]:
    """Give each ledger the releases that its entries name; return those without a ledger.

    One that no entry names may have answered entries that name an absent release, or none.
    """
    named = {entry.table for audit in audits for entry in audit.ledger.entries}
    idle = {path: one for path, one in releases.items() if one.digest not in named}
    known = {one.digest for one in releases.values()}
    for audit in audits:
        entries, own = audit.ledger.entries, {entry.table for entry in audit.ledger.entries}
        audit.answerings = [one for one in releases.values() if one.digest in own]
        if not entries or own - known:
            audit.answerings += idle.values()
            idle = {}
    return idle


def judge_ledger(audit: LedgerAudit) -> Iterator[Verdict]:
    ledger = audit.ledger
    claim = f"it is whole ({counted(len(ledger.entries), 'entry', 'entries')}, {ledger.queries[-1]:,} queries)"
    reason = "pages, checksums, entry hashes and totals agree; a forger could compute them"
    yield Verdict("ledger", claim, CONSISTENT, reason)
    if ledger.population:
        yield Verdict("ledger", f"it is about the population {ledger.population!r}", ASSUMED, "no file can show this")
    yield from _judge_times(ledger)
    if named := [entry for entry in ledger.entries if entry.questions]:
        asked = Counter(question for entry in named for question in entry.questions)
        twice = sorted(question for question, times in asked.items() if times > 1)[:5]
        reason = f"paid for more than once: {', '.join(twice)}" if twice else "each once"
        whole = all(len(entry.questions) == entry.count for entry in named)
        yield judged("ledger", f"it names {asked.total():,} questions that it paid for", reason, holds=whole)
    if ledger.composition == "one" and ledger.charges:
        number = counted(len(ledger.charges), "kind", "kinds")
        yield judged("ledger", "all its queries are of one kind", f"{number} of cost", holds=len(ledger.charges) == 1)
    if any(charge.sampled is not None for charge in ledger.charges.values()):
        reason = f"data sets that {' and '.join(sorted(audit.neighbors))}"
        yield judged("ledger", "all its costs are about the same neighbors", reason, holds=len(audit.neighbors) == 1)
    yield from _judge_costs(audit)
    if ledger.entries:
        yield audit.total[0]
        reason = "the budget rests on it" if ledger.composition == "planned" else "without it only the budget holds"
        yield Verdict("composition", "the number of queries did not depend on the answers", ASSUMED, reason)
    if waiting := [entry for entry in ledger.entries if entry.waiting is not None]:
        spoilt = list[int]()
        for entry in waiting:
            labels = read_waiting(entry.waiting or b"")
            if labels is None or labels.digest() != entry.labels or not entry.pays_for(labels.size):
                spoilt.append(entry.number)
        claim = f"{counted(len(waiting), 'entry is', 'entries are')} not delivered yet"
        reason = (
            f"the waiting labels of {numbered(spoilt)} are not the paid ones" if spoilt else "their labels are whole"
        )
        yield judged("ledger", claim, reason, holds=not spoilt)


def _judge_times(ledger: Ledger) -> Iterator[Verdict]:
    if not ledger.entries:
        return
    latest, none, back = _seconds(ledger.created) or float("-inf"), list[int](), list[int]()
    for entry in ledger.entries:
        if (seconds := _seconds(entry.time)) is None:
            none.append(entry.number)
        elif seconds < latest - 60.0:  # that clocks of machines may differ
            back.append(entry.number)
        else:
            latest = seconds
    claim = f"it was debited from {ledger.entries[0].time} to {ledger.entries[-1].time}"
    if back and not none:
        reason = f"{numbered(back)} before the entry above: a clock was set back, or the log was changed"
        yield Verdict("ledger", claim, UNKNOWN, f"{reason}; the machine's log would decide")
        return
    reason = f"the time of {numbered(none)} is none in UTC" if none else "the times increase"
    yield judged("ledger", claim, reason, holds=not none)


def _seconds(moment: str) -> float | None:
    try:
        read = datetime.fromisoformat(moment)
        return None if read.utcoffset() != timedelta(0) else read.timestamp()
    except (ValueError, OverflowError):
        return None


def _judge_costs(audit: LedgerAudit) -> Iterator[Verdict]:
    ledger, known = audit.ledger, {one.digest: one for one in audit.answerings}
    bare = [entry for entry in ledger.entries if not entry.table]
    for digest, answering in known.items():
        named = [entry for entry in ledger.entries if entry.table == digest]
        claim = f"queries were answered with this {answering.what}"
        reason = f"{len(named)} of {counted(len(ledger.entries), 'entry holds', 'entries hold')} its digest {digest}"
        if not ledger.entries:
            yield Verdict("ledger", claim, UNKNOWN, "nothing was debited yet")
        elif not named and bare:
            yield Verdict("ledger", claim, ASSUMED, f"{reason}; others hold none")
        else:
            yield judged("ledger", claim, reason, holds=bool(named))
        for number in {entry.cost: None for entry in named}:
            charge = ledger.charges[number]
            if charge.models is not None and not _covers(answering, charge):
                reason = f"it is for {answering.voters}"
                yield Verdict("cost of a label", f"a query is about {charge.models}", FALSE, reason)
            else:
                yield from judge_charge(Cost(answering), charge)
    missing = sorted({entry.table for entry in ledger.entries} - known.keys() - {""})
    for some, reason in (
        (
            [entry for entry in ledger.entries if entry.table in missing],
            f"the release with the digest {', '.join(missing)} is not among the files: it would decide",
        ),
        (bare, "no digest names what answered: its maker can"),
    ):
        if some:
            queries = counted(sum(entry.count for entry in some), "query costs", "queries cost")
            numbers = numbered([entry.number for entry in some])
            yield Verdict("cost of a label", f"{queries} as much as the ledger states, {numbers}", UNKNOWN, reason)


def _covers(answering: Answering, charge: Charge) -> bool:
    models, voters = charge.models, answering.voters
    if models is None or models.K != voters.K or models.reached > voters.reached or models.sampled != voters.sampled:
        return False
    pairs = zip(models.pairs, voters.pairs, strict=True)
    return all(theirs[0] <= own[0] and theirs[1] <= own[1] for theirs, own in pairs)


def judge_populations(audits: Sequence[LedgerAudit]) -> Iterator[Verdict]:
    """Add up the budgets of ledgers of one population; judge that one identity means copies.

    Concurrent interactive mechanisms compose as sequential ones, with the same neighbors and independent randomness.
    """
    distinct = {audit.ledger.identity: audit for audit in audits}  # a copy pays for nothing
    groups: dict[str, list[LedgerAudit]] = {}
    for audit in distinct.values():
        groups.setdefault(audit.ledger.population, []).append(audit)
    unnamed = groups.pop("", [])
    for population, members in groups.items():
        if len(members) > 1:
            claim = f"{', '.join(audit.path for audit in members)} are about one population, {population!r}"
            faults = [audit.adds_up for audit in members if audit.adds_up]
            if len({audit.neighbors for audit in members if audit.ledger.entries}) > 1:
                faults.append("their costs are about different neighbors")
            if faults:
                reason = f"{faults[0]}; one ledger would decide"
                yield Verdict("composition", f"{claim}: their budgets add up", UNKNOWN, reason)
            else:
                epsilon, delta = (sum(audit.ledger.budget[part] for audit in members) for part in (0, 1))
                claim = f"{claim}: {pair_at_most(epsilon, delta)} together"
                yield Verdict("composition", claim, ASSUMED, "by the name that they carry; ε and δ add up")
    if unnamed and len(distinct) > 1:
        names = ", ".join(audit.path for audit in unnamed)
        claim = "no two of these ledgers are about the same people"
        yield Verdict("composition", claim, ASSUMED, f"{names}: without a population; if they are, all count together")
    for one, other in combinations(audits, 2):
        if one.ledger.identity == other.ledger.identity:
            pairs = zip(one.ledger.hashes, other.ledger.hashes, strict=False)
            apart = next((number for number, (a, b) in enumerate(pairs) if a != b), None)
            reason = "hashes are equal" if apart is None else f"entry {apart} differs: one is old, or written again"
            yield judged("ledger", f"{one.path} and {other.path} are copies of one ledger", reason, holds=apart is None)


ABSTAIN = "-1"  # in place of a label that was not released
_OF_A_DEBIT = "they are the labels of a debit"
_AS_MANY = "as many were paid for as there are"
_DIGESTS, _DIGESTS_AN_ENTRY = 100_000, 8  # computed at most to find labels in a log: 24 microseconds each


def judge_labels(
    file: LabelsFile,
    releases: Mapping[str, Answering],
    ledgers: Sequence[Ledger],
    classes: tuple[str, ...] | None,
    digests: Collection[str] = (),
) -> Iterator[Verdict]:
    """``digests`` are the SHA-256 of Parquet files, and ``classes`` the names of labels."""
    answerings = list(releases.values())
    payments = [list(_judge_payment(file, answerings, ledger, digests)) for ledger in ledgers]
    # one of several ledgers has paid
    payment = next((found for found in payments if all(verdict.verdict != FALSE for verdict in found)), None)
    is_paid = any(verdict.claim == _OF_A_DEBIT and verdict.verdict == PROVED for verdict in payment or ())
    yield _judge_names(file, answerings, classes, is_paid=is_paid)
    if payments:
        yield from payment or payments[0]
    else:
        reason = "the ledger that paid would decide: give it, too"
        yield Verdict("labels match their debit", "they were paid for", UNKNOWN, reason)


def _judge_names(
    file: LabelsFile, answerings: Sequence[Answering], classes: tuple[str, ...] | None, *, is_paid: bool
) -> Verdict:
    are_open = any(one.classes == OPEN for one in answerings)
    may_be_none = any(isinstance(one, Run) and one.may_be_none for one in answerings)
    names = sorted(set(file.names) - ({""} if are_open else {ABSTAIN} if may_be_none else set()))
    number = max((one.classes for one in answerings), default=0)
    if are_open and not classes:
        claim = f"the labels are {len(names):,} answers that voters gave"
        return Verdict("labels match their debit", claim, ASSUMED, "no file can show this")
    if not number and not classes:
        reason = "what released them would decide: give it, too"
        return Verdict("file", f"the labels are of {len(names):,} classes", UNKNOWN, reason)
    shown = counted(len(names), "different label", "different labels")
    if is_paid:  # otherwise the file may be one of passwords
        shown = f"they are {', '.join(map(repr, names[: number + 1]))}{', …' if len(names) > number + 1 else ''}"
    allowed = f"one of {', '.join(classes)}" if classes else f"one of {number} classes"
    inside = set(names) <= set(classes) if classes else len(names) <= number
    return judged("file", f"{counted(file.size, 'label is', 'labels are')} each {allowed}", shown, holds=inside)


def _judge_payment(
    file: LabelsFile, releases: Sequence[Answering], ledger: Ledger, digests: Collection[str]
) -> Iterator[Verdict]:
    size, entries = file.size, ledger.entries
    drawn = [entry for entry in entries if entry.files]
    own = [entry for entry in drawn if set(digests) <= set(entry.files.values())] if digests else []
    if own or (digests and drawn and all(entry.labels or entry.files for entry in entries)):
        told = [f"{len(digests)} of the {len(entry.files)} files of entry {entry.number}" for entry in own]
        reason = f"by SHA-256 they are {', '.join(told) or 'none that an entry names'}"
        paid, totals = [[entry] for entry in own], [entry.answers for entry in own[:1]]
        fits = all(
            size == entry.answers if len(digests) == len(entry.files) else size < entry.answers for entry in own[:1]
        )
    else:
        digest = file.digest()
        whole = [[entry] for entry in entries if entry.labels == digest] if file.first is None else []
        found_in = (whole, []) if whole else _in_parts(file, entries)
        paid, begun = ([], None) if found_in is None else found_in
        if not paid:
            yield _judge_unpaid(file, entries, digest, begun)
            return
        reason = f"their SHA-256 {digest} is that of {len(paid)} of {len(entries)} entries"
        if len(paid[0]) > 1:
            reason = f"the digests of {len(paid[0])} successive entries are those of their parts, numbers aside"
        totals = [sum(entry.answers for entry in run) for run in paid]
        fits = all(len(run) == 1 and run[0].pays_for(size) for run in paid) or set(totals) == {size}
    yield judged("labels match their debit", _OF_A_DEBIT, reason, holds=bool(paid), how=PROVED)
    if totals:
        reason = f"{counted(size, 'label', 'labels')}, {', '.join(map(str, totals))} paid"
        yield judged("labels match their debit", _AS_MANY, reason, holds=fits, how=PROVED)
    if releases and paid:
        yield _judge_drawn(paid, releases)


def _judge_unpaid(file: LabelsFile, entries: Sequence[Entry], digest: str, begun: list[Entry] | None) -> Verdict:
    """``begun`` are entries of the first labels, None if finding them takes long."""
    size, bare = file.size, [entry.answers for entry in entries if not entry.labels]
    if begun is None:
        reason = f"to find them among {len(entries):,} entries takes too long: give the labels of a whole stream"
    elif begun:
        known = sum(entry.answers for entry in begun)
        reason = f"the first {known} are; the other {size - known} are fewer than the next debit has: give all"
    elif within := [span[0] for _, spans in _streams(entries) for span in spans if (file.first or 0) in span[1:]]:
        reason = f"question {file.first} was paid for together with those from {within[0]} on: give all of them"
    elif bare:
        totals = sorted({*bare, sum(bare)})
        reason = f"{size} labels; entries without a digest of theirs count {', '.join(map(str, totals))}"
        return judged("labels match their debit", _AS_MANY, reason, holds=size in totals)
    else:
        reason = f"their SHA-256 {digest} is that of none of {len(entries)} entries, nor of successive ones together"
        return Verdict("labels match their debit", _OF_A_DEBIT, FALSE, reason)
    return Verdict("labels match their debit", _OF_A_DEBIT, UNKNOWN, reason)


def _judge_drawn(paid: Sequence[Sequence[Entry]], releases: Sequence[Answering]) -> Verdict:
    digests = {answering.digest for answering in releases}
    same = any(all(entry.table in digests for entry in entries) for entries in paid)
    what = "table" if all(answering.what == "table" for answering in releases) else "release"
    claim = f"they were drawn with this {what}" if len(releases) == 1 else f"they were drawn with a {what} of the files"
    reason = f"the debit holds {', '.join(sorted({entry.table or 'no digest' for run in paid for entry in run}))}"
    if same or len(releases) == 1:
        return judged("labels match their debit", claim, reason, holds=same)
    return Verdict("labels match their debit", claim, UNKNOWN, f"{reason}: the release with that digest would decide")


def _in_parts(file: LabelsFile, entries: Sequence[Entry]) -> tuple[list[list[Entry]], list[Entry]] | None:
    """Find runs of entries with these labels, and one with their beginning; None if it takes long."""
    found, begun = list[list[Entry]](), list[Entry]()
    left = _DIGESTS + _DIGESTS_AN_ENTRY * len(entries)
    for log, starts in _starts(file.first, entries):
        for start in starts:
            place, end = 0, start
            while place < file.size and end < len(log):
                left -= 1
                if left < 0:
                    return (found, begun) if found else None
                after = min(file.size, place + log[end].answers)
                if file.digest(place, after) != log[end].labels:
                    if after - place < log[end].answers and log[end].is_of_a_stream:
                        begun = max(begun, log[start:end], key=len)
                    break
                place, end = after, end + 1
            if place == file.size and place:
                if log[start:end] not in found:
                    found.append(log[start:end])
                break
    return found, begun


def _starts(first: int | None, entries: Sequence[Entry]) -> Iterator[tuple[list[Entry], Sequence[int]]]:
    """Yield entries, and where labels may begin: numbers are of questions, or lines from 1."""
    if first is None:
        yield from ((log, range(len(log))) for log in (*_logs(entries).values(), list(entries)))
        return
    if first == 1:
        files = [entry for entry in entries if not entry.is_of_a_stream]
        yield files, range(len(files))
    for log, spans in _streams(entries):
        yield log, [place for place, span in enumerate(spans) if span[0] == first]


def _logs(entries: Sequence[Entry]) -> dict[str, list[Entry]]:
    logs: dict[str, list[Entry]] = {}
    for entry in entries:
        logs.setdefault(entry.output, []).append(entry)
    return logs


def _streams(entries: Sequence[Entry]) -> Iterator[tuple[list[Entry], list[range]]]:
    for log in _logs(entries).values():
        if log[0].is_of_a_stream:
            ends = accumulate((entry.answers for entry in log), initial=1)
            yield log, [range(start, end) for start, end in pairwise(ends)]
