"""Judge a ledger: it is whole, its costs are true, it keeps to its budget, and paid for exactly these labels."""

import math
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from fractions import Fraction
from functools import cached_property
from itertools import accumulate, combinations, pairwise

from darrm.verify.chain import Entry, Ledger, format_numbers
from darrm.verify.costs import Cost, judge_charge
from darrm.verify.files import LabelsFile, read_waiting_labels
from darrm.verify.formats import OPEN, Answering, Charge, Run
from darrm.verify.totals import Priced, Total, find_filter_order, judge_total, prove_filter, smallest_total
from darrm.verify.verdicts import (
    ASSUMED,
    CONSISTENT,
    FALSE,
    PROVED,
    UNKNOWN,
    Verdict,
    decide,
    format_pair,
    pluralize,
    round_up,
)

_DELTA_SHARES = {"adaptive": Fraction(1, 2), "renyi": Fraction(0)}  # the share of δ for the queries' own δ
_FALSE_RATIO = 1.02  # relative: a larger sum refutes the budget; below it, bounds may differ


@dataclass(eq=False)
class LedgerAudit:
    path: str
    ledger: Ledger
    answerings: list[Answering] = field(default_factory=list)

    @cached_property
    def priced(self) -> list[Priced]:
        answerings, pairs = {answering.digest: answering for answering in self.answerings}, list[Priced]()
        for number, charge in self.ledger.charges.items():
            digests = {entry.table for entry in self.ledger.entries if entry.cost == number}
            candidates = [answerings[digest] for digest in digests if digest in answerings]
            pairs.append((charge, Cost(candidates[0]) if len(candidates) == 1 == len(digests) else None))
        return pairs

    @cached_property
    def total(self) -> tuple[Verdict, Total | None]:
        ledger, (epsilon, delta) = self.ledger, self.ledger.budget
        charges, number = list(ledger.charges.values()), sum(entry.answers for entry in ledger.entries)
        within = f"the budget {format_pair(epsilon, delta)}"
        claim = f"{pluralize(number, 'label keeps', 'labels keep')} to {within}"
        if any(charge.estimate is not None for charge in charges):
            reason = "it holds published estimates about the data at hand: no guarantee"
            return Verdict("composition", claim, ASSUMED, reason), None
        if any(charge.count for charge in charges) and ledger.composition in _DELTA_SHARES:
            how, reason = self._judge_filter()
            total = Total(float(epsilon), "a filter", stated=how == CONSISTENT)
            return Verdict("composition", claim, how, reason), total if how in {PROVED, CONSISTENT} else None
        # the joint bound for models is decided at the budget's ε, and not searched
        smallest = smallest_total(self.priced, delta, goal=float(epsilon) if any(c.models for c in charges) else 0.0)
        verdict = judge_total(claim, smallest, (round_up(epsilon), delta), false_ratio=_FALSE_RATIO)
        if smallest is None or verdict.verdict not in {PROVED, CONSISTENT}:
            return verdict, None
        pair = format_pair(min(smallest.epsilon, float(epsilon)), delta, 4)
        claim = f"{pluralize(number, 'label is', 'labels are')} {pair}-DP, within {within}"
        return replace(verdict, claim=claim), smallest

    def _judge_filter(self) -> tuple[str, str]:
        (epsilon, delta), share = self.ledger.budget, _DELTA_SHARES[self.ledger.composition]
        charges = [charge for charge, _ in self.priced]
        if any(charge.shares_randomness for charge in charges):
            total = smallest_total([(charge, None) for charge in charges], delta, goal=float(epsilon))
            if total is not None and total.how.startswith("the composition") and total.epsilon <= round_up(epsilon):
                return PROVED, total.how
        if any(charge.shares_randomness or charge.vanishing for charge in charges):
            return UNKNOWN, "no filter of the independent checker covers costs of models or open answers"
        max_epsilon = epsilon * (1 + Fraction(1, 10**9))
        order = round_up(find_filter_order(max_epsilon, delta * (1 - share)))
        pairs = [
            Charge(charge.count, charge.guarantee if cost is not None and cost.proves(charge) else None)
            for charge, cost in self.priced
        ]
        if reason := prove_filter(pairs, max_epsilon, delta, share):
            return PROVED, reason
        renyi_bounds = [None if cost is None else cost.renyi(order) for _, cost in self.priced]
        finite = [None if bound is None or math.isinf(bound.upper) else bound for bound in renyi_bounds]
        curves = [((), ()) if bound is None else ((order,), (bound.upper,)) for bound in finite]
        both_bounds = [Charge(pair.count, pair.guarantee, *curve) for pair, curve in zip(pairs, curves, strict=True)]
        for how, costs in ((PROVED, both_bounds), (CONSISTENT, charges)):
            if reason := prove_filter(costs, max_epsilon, delta, share):
                return how, reason
        return FALSE, "neither the sums nor the Rényi filter of the budget admit all queries"

    @property
    def sum_obstacle(self) -> str:
        charges = self.ledger.charges.values()
        if any(charge.shares_randomness for charge in charges):
            return "answers of trained models share the randomness of their training"
        return "it holds published estimates" if any(charge.estimate is not None for charge in charges) else ""

    @property
    def neighbors(self) -> frozenset[str]:
        charges = self.ledger.charges.values()
        return frozenset("change one person" if c.sampled is None else c.sampled.neighbors for c in charges)


def assign_releases(audits: Sequence[LedgerAudit], releases: Mapping[str, Answering]) -> dict[str, Answering]:
    """Give each ledger the releases that its entries name; return those without a ledger.

    A release that no entry names may have answered entries whose release is absent, or unnamed.
    """
    named_digests = {entry.table for audit in audits for entry in audit.ledger.entries}
    unused = {path: release for path, release in releases.items() if release.digest not in named_digests}
    known_digests = {release.digest for release in releases.values()}
    for audit in audits:
        entries, named_here = audit.ledger.entries, {entry.table for entry in audit.ledger.entries}
        audit.answerings = [release for release in releases.values() if release.digest in named_here]
        if not entries or named_here - known_digests:
            audit.answerings += unused.values()
            unused = {}
    return unused


def judge_ledger(audit: LedgerAudit) -> Iterator[Verdict]:
    ledger = audit.ledger
    claim = f"it is whole ({pluralize(len(ledger.entries), 'entry', 'entries')}, {ledger.queries[-1]:,} queries)"
    reason = "pages, checksums, entry hashes and totals agree; a forger could compute them"
    yield Verdict("ledger", claim, CONSISTENT, reason)
    if ledger.population:
        yield Verdict("ledger", f"it is about the population {ledger.population!r}", ASSUMED, "no file can show this")
    yield from _judge_times(ledger)
    if entries := [entry for entry in ledger.entries if entry.questions]:
        counts = Counter(question for entry in entries for question in entry.questions)
        repeated = sorted(question for question, times in counts.items() if times > 1)[:5]
        reason = f"paid for more than once: {', '.join(repeated)}" if repeated else "each once"
        holds = all(len(entry.questions) == entry.count for entry in entries)
        yield decide("ledger", f"it names {counts.total():,} questions that it paid for", reason, holds=holds)
    if ledger.composition == "one" and ledger.charges:
        number = pluralize(len(ledger.charges), "kind", "kinds")
        yield decide("ledger", "all its queries are of one kind", f"{number} of cost", holds=len(ledger.charges) == 1)
    if any(charge.sampled is not None for charge in ledger.charges.values()):
        reason = f"data sets that {' and '.join(sorted(audit.neighbors))}"
        yield decide("ledger", "all its costs are about the same neighbors", reason, holds=len(audit.neighbors) == 1)
    yield from _judge_costs(audit)
    if ledger.entries:
        yield audit.total[0]
        reason = "the budget rests on it" if ledger.composition == "planned" else "without it only the budget holds"
        yield Verdict("composition", "the number of queries did not depend on the answers", ASSUMED, reason)
    if undelivered := [entry for entry in ledger.entries if entry.waiting is not None]:
        wrong = list[int]()
        for entry in undelivered:
            labels = read_waiting_labels(entry.waiting or b"")
            if labels is None or labels.digest() != entry.labels or not entry.pays_for(labels.size):
                wrong.append(entry.number)
        claim = f"{pluralize(len(undelivered), 'entry is', 'entries are')} not delivered yet"
        fault = f"the waiting labels of {format_numbers(wrong)} are not the paid ones"
        reason = fault if wrong else "their labels are whole"
        yield decide("ledger", claim, reason, holds=not wrong)


def _judge_times(ledger: Ledger) -> Iterator[Verdict]:
    if not ledger.entries:
        return
    latest_time, unreadable, earlier = _parse_time(ledger.created) or float("-inf"), list[int](), list[int]()
    for entry in ledger.entries:
        if (seconds := _parse_time(entry.time)) is None:
            unreadable.append(entry.number)
        elif seconds < latest_time - 60.0:  # that clocks of machines may differ
            earlier.append(entry.number)
        else:
            latest_time = seconds
    claim = f"it was debited from {ledger.entries[0].time} to {ledger.entries[-1].time}"
    if earlier and not unreadable:
        reason = f"{format_numbers(earlier)} before the entry above: a clock was set back, or the log was changed"
        yield Verdict("ledger", claim, UNKNOWN, f"{reason}; the machine's log would decide")
        return
    reason = f"the time of {format_numbers(unreadable)} is none in UTC" if unreadable else "the times increase"
    yield decide("ledger", claim, reason, holds=not unreadable)


def _parse_time(moment: str) -> float | None:
    try:
        time = datetime.fromisoformat(moment)
        return None if time.utcoffset() != timedelta(0) else time.timestamp()
    except (ValueError, OverflowError):
        return None


def _judge_costs(audit: LedgerAudit) -> Iterator[Verdict]:
    ledger, answerings = audit.ledger, {item.digest: item for item in audit.answerings}
    unnamed = [entry for entry in ledger.entries if not entry.table]
    for digest, answering in answerings.items():
        matches = [entry for entry in ledger.entries if entry.table == digest]
        claim = f"queries were answered with this {answering.what}"
        reason = (
            f"{len(matches)} of {pluralize(len(ledger.entries), 'entry holds', 'entries hold')} its digest {digest}"
        )
        if not ledger.entries:
            yield Verdict("ledger", claim, UNKNOWN, "nothing was debited yet")
        elif not matches and unnamed:
            yield Verdict("ledger", claim, ASSUMED, f"{reason}; others hold none")
        else:
            yield decide("ledger", claim, reason, holds=bool(matches))
        for number in dict.fromkeys(entry.cost for entry in matches):
            charge = ledger.charges[number]
            if charge.models is not None and not _is_covered(answering, charge):
                reason = f"it is for {answering.voters}"
                yield Verdict("cost of a label", f"a query is about {charge.models}", FALSE, reason)
            else:
                yield from judge_charge(Cost(answering), charge)
    missing = sorted({entry.table for entry in ledger.entries} - answerings.keys() - {""})
    for entries, reason in (
        (
            [entry for entry in ledger.entries if entry.table in missing],
            f"the release with the digest {', '.join(missing)} is not among the files: it would decide",
        ),
        (unnamed, "no digest names what answered: its maker can"),
    ):
        if entries:
            queries = pluralize(sum(entry.count for entry in entries), "query costs", "queries cost")
            numbers = format_numbers([entry.number for entry in entries])
            yield Verdict("cost of a label", f"{queries} as much as the ledger states, {numbers}", UNKNOWN, reason)


def _is_covered(answering: Answering, charge: Charge) -> bool:
    models, voters = charge.models, answering.voters
    if models is None or models.K != voters.K or models.reached > voters.reached or models.sampled != voters.sampled:
        return False
    pairs = zip(models.pairs, voters.pairs, strict=True)
    return all(model[0] <= voter[0] and model[1] <= voter[1] for model, voter in pairs)


def judge_populations(audits: Sequence[LedgerAudit]) -> Iterator[Verdict]:
    """Add up the budgets of ledgers of one population; judge that one identity means copies.

    Concurrent interactive mechanisms compose as sequential ones, with the same neighbors and independent randomness.
    """
    distinct = {audit.ledger.identity: audit for audit in audits}  # a copy is no further budget
    groups: dict[str, list[LedgerAudit]] = {}
    for audit in distinct.values():
        groups.setdefault(audit.ledger.population, []).append(audit)
    unnamed = groups.pop("", [])
    for population, members in groups.items():
        if len(members) > 1:
            claim = f"{', '.join(audit.path for audit in members)} are about one population, {population!r}"
            faults = [audit.sum_obstacle for audit in members if audit.sum_obstacle]
            if len({audit.neighbors for audit in members if audit.ledger.entries}) > 1:
                faults.append("their costs are about different neighbors")
            if faults:
                reason = f"{faults[0]}; one ledger would decide"
                yield Verdict("composition", f"{claim}: their budgets add up", UNKNOWN, reason)
            else:
                epsilon, delta = (sum(audit.ledger.budget[part] for audit in members) for part in (0, 1))
                claim = f"{claim}: {format_pair(epsilon, delta)} together"
                yield Verdict("composition", claim, ASSUMED, "by the name that they carry; ε and δ add up")
    if unnamed and len(distinct) > 1:
        names = ", ".join(audit.path for audit in unnamed)
        claim = "no two of these ledgers are about the same people"
        yield Verdict("composition", claim, ASSUMED, f"{names}: without a population; if they are, all count together")
    for first, second in combinations(audits, 2):
        if first.ledger.identity == second.ledger.identity:
            pairs = zip(first.ledger.hashes, second.ledger.hashes, strict=False)
            entry = next((number for number, (a, b) in enumerate(pairs) if a != b), None)
            reason = "hashes are equal" if entry is None else f"entry {entry} differs: one is old, or written again"
            yield decide(
                "ledger", f"{first.path} and {second.path} are copies of one ledger", reason, holds=entry is None
            )


ABSTAIN = "-1"  # in place of a label that was not released
_DEBIT_CLAIM = "they are the labels of a debit"
_COUNT_CLAIM = "as many were paid for as there are"
_MAX_DIGESTS, _DIGESTS_PER_ENTRY = 100_000, 8  # computed at most to find labels in a log: 24 microseconds each


def judge_labels(
    file: LabelsFile,
    releases: Mapping[str, Answering],
    ledgers: Sequence[Ledger],
    classes: tuple[str, ...] | None,
    digests: Collection[str] = (),
) -> Iterator[Verdict]:
    """Judge released labels; ``digests`` are the SHA-256 of Parquet files, and ``classes`` the names of labels."""
    answerings = list(releases.values())
    payments = [list(_judge_payment(file, answerings, ledger, digests)) for ledger in ledgers]
    # one of several ledgers has paid
    payment = next((verdicts for verdicts in payments if all(verdict.verdict != FALSE for verdict in verdicts)), None)
    is_paid = any(verdict.claim == _DEBIT_CLAIM and verdict.verdict == PROVED for verdict in payment or ())
    yield _judge_names(file, answerings, classes, is_paid=is_paid)
    if payments:
        yield from payment or payments[0]
    else:
        reason = "the ledger that paid would decide: give it, too"
        yield Verdict("labels match their debit", "they were paid for", UNKNOWN, reason)


def _judge_names(
    file: LabelsFile, answerings: Sequence[Answering], classes: tuple[str, ...] | None, *, is_paid: bool
) -> Verdict:
    are_open = any(answering.classes == OPEN for answering in answerings)
    may_be_none = any(isinstance(answering, Run) and answering.may_be_none for answering in answerings)
    names = sorted(set(file.names) - ({""} if are_open else {ABSTAIN} if may_be_none else set()))
    number = max((answering.classes for answering in answerings), default=0)
    if are_open and not classes:
        claim = f"the labels are {len(names):,} answers that voters gave"
        return Verdict("labels match their debit", claim, ASSUMED, "no file can show this")
    if not number and not classes:
        reason = "what released them would decide: give it, too"
        return Verdict("file", f"the labels are of {len(names):,} classes", UNKNOWN, reason)
    listing = pluralize(len(names), "different label", "different labels")
    if is_paid:  # otherwise the file may be one of passwords
        listing = f"they are {', '.join(map(repr, names[: number + 1]))}{', …' if len(names) > number + 1 else ''}"
    condition = f"one of {', '.join(classes)}" if classes else f"one of {number} classes"
    holds = set(names) <= set(classes) if classes else len(names) <= number
    return decide("file", f"{pluralize(file.size, 'label is', 'labels are')} each {condition}", listing, holds=holds)


def _judge_payment(
    file: LabelsFile, releases: Sequence[Answering], ledger: Ledger, digests: Collection[str]
) -> Iterator[Verdict]:
    size, entries = file.size, ledger.entries
    with_files = [entry for entry in entries if entry.files]
    matches = [entry for entry in with_files if set(digests) <= set(entry.files.values())] if digests else []
    if matches or (digests and with_files and all(entry.labels or entry.files for entry in entries)):
        descriptions = [f"{len(digests)} of the {len(entry.files)} files of entry {entry.number}" for entry in matches]
        reason = f"by SHA-256 they are {', '.join(descriptions) or 'none that an entry names'}"
        runs, totals = [[entry] for entry in matches], [entry.answers for entry in matches[:1]]
        fits = all(
            size == entry.answers if len(digests) == len(entry.files) else size < entry.answers for entry in matches[:1]
        )
    else:
        digest = file.digest()
        exact_matches = [[entry] for entry in entries if entry.labels == digest] if file.first is None else []
        runs_and_start = (exact_matches, []) if exact_matches else _find_parts(file, entries)
        runs, started = ([], None) if runs_and_start is None else runs_and_start
        if not runs:
            yield _judge_unpaid(file, entries, digest, started)
            return
        reason = f"their SHA-256 {digest} is that of {len(runs)} of {len(entries)} entries"
        if len(runs[0]) > 1:
            reason = f"the digests of {len(runs[0])} successive entries are those of their parts, numbers aside"
        totals = [sum(entry.answers for entry in run) for run in runs]
        fits = all(len(run) == 1 and run[0].pays_for(size) for run in runs) or set(totals) == {size}
    yield decide("labels match their debit", _DEBIT_CLAIM, reason, holds=bool(runs), how=PROVED)
    if totals:
        reason = f"{pluralize(size, 'label', 'labels')}, {', '.join(map(str, totals))} paid"
        yield decide("labels match their debit", _COUNT_CLAIM, reason, holds=fits, how=PROVED)
    if releases and runs:
        yield _judge_release(runs, releases)


def _judge_unpaid(file: LabelsFile, entries: Sequence[Entry], digest: str, started: list[Entry] | None) -> Verdict:
    """Judge labels that no debit matches; ``started`` holds the entries of the first ones, None if that takes long."""
    size, unnamed = file.size, [entry.answers for entry in entries if not entry.labels]
    if started is None:
        reason = f"to find them among {len(entries):,} entries takes too long: give the labels of a whole stream"
    elif started:
        known_count = sum(entry.answers for entry in started)
        reason = (
            f"the first {known_count} are; the other {size - known_count} are fewer than the next debit has: give all"
        )
    elif starts := [span[0] for _, spans in _list_streams(entries) for span in spans if (file.first or 0) in span[1:]]:
        reason = f"question {file.first} was paid for together with those from {starts[0]} on: give all of them"
    elif unnamed:
        totals = sorted({*unnamed, sum(unnamed)})
        reason = f"{size} labels; entries without a digest of theirs count {', '.join(map(str, totals))}"
        return decide("labels match their debit", _COUNT_CLAIM, reason, holds=size in totals)
    else:
        reason = f"their SHA-256 {digest} is that of none of {len(entries)} entries, nor of successive ones together"
        return Verdict("labels match their debit", _DEBIT_CLAIM, FALSE, reason)
    return Verdict("labels match their debit", _DEBIT_CLAIM, UNKNOWN, reason)


def _judge_release(runs: Sequence[Sequence[Entry]], releases: Sequence[Answering]) -> Verdict:
    digests = {answering.digest for answering in releases}
    holds = any(all(entry.table in digests for entry in entries) for entries in runs)
    kind = "table" if all(answering.what == "table" for answering in releases) else "release"
    claim = f"they were drawn with this {kind}" if len(releases) == 1 else f"they were drawn with a {kind} of the files"
    reason = f"the debit holds {', '.join(sorted({entry.table or 'no digest' for run in runs for entry in run}))}"
    if holds or len(releases) == 1:
        return decide("labels match their debit", claim, reason, holds=holds)
    return Verdict("labels match their debit", claim, UNKNOWN, f"{reason}: the release with that digest would decide")


def _find_parts(file: LabelsFile, entries: Sequence[Entry]) -> tuple[list[list[Entry]], list[Entry]] | None:
    """Find runs of entries with these labels, and the longest with their beginning; None if that takes long."""
    runs, started = list[list[Entry]](), list[Entry]()
    remaining = _MAX_DIGESTS + _DIGESTS_PER_ENTRY * len(entries)
    for log, starts in _list_starts(file.first, entries):
        for start in starts:
            position, end = 0, start
            while position < file.size and end < len(log):
                remaining -= 1
                if remaining < 0:
                    return (runs, started) if runs else None
                stop = min(file.size, position + log[end].answers)
                if file.digest(position, stop) != log[end].labels:
                    if stop - position < log[end].answers and log[end].is_stream:
                        started = max(started, log[start:end], key=len)
                    break
                position, end = stop, end + 1
            if position == file.size and position:
                if log[start:end] not in runs:
                    runs.append(log[start:end])
                break
    return runs, started


def _list_starts(first: int | None, entries: Sequence[Entry]) -> Iterator[tuple[list[Entry], Sequence[int]]]:
    """Yield entries, and where labels may begin: numbers are of questions, or lines from 1."""
    if first is None:
        yield from ((log, range(len(log))) for log in (*_group_by_output(entries).values(), list(entries)))
        return
    if first == 1:
        files = [entry for entry in entries if not entry.is_stream]
        yield files, range(len(files))
    for log, spans in _list_streams(entries):
        yield log, [index for index, span in enumerate(spans) if span[0] == first]


def _group_by_output(entries: Sequence[Entry]) -> dict[str, list[Entry]]:
    logs: dict[str, list[Entry]] = {}
    for entry in entries:
        logs.setdefault(entry.output, []).append(entry)
    return logs


def _list_streams(entries: Sequence[Entry]) -> Iterator[tuple[list[Entry], list[range]]]:
    for log in _group_by_output(entries).values():
        if log[0].is_stream:
            ends = accumulate((entry.answers for entry in log), initial=1)
            yield log, [range(start, end) for start, end in pairwise(ends)]
