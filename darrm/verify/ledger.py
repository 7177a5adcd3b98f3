"""Judge the claims of a ledger: it is whole, the costs of its entries are true, and it keeps to its budget."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from fractions import Fraction
from functools import cached_property
from itertools import combinations

from darrm.verify.costs import Cost, judge_charge
from darrm.verify.formats import Answering, Charge
from darrm.verify.label_files import LabelsFile, read_waiting
from darrm.verify.ledger_file import Entry, Ledger
from darrm.verify.numbers import counted, float_up, pair_at_most
from darrm.verify.totals import (
    Priced,
    Total,
    exact_sum,
    filter_admits,
    filter_order,
    judge_total,
    smallest_total,
)
from darrm.verify.verdicts import ASSUMED, CONSISTENT, COST, FALSE, LEDGER, PROVED, TOTAL, UNKNOWN, Verdict, judged

_RESERVE = {"adaptive": Fraction(1, 2), "renyi": Fraction(0)}  # the share of δ for the queries' own
_APART = 1.02  # relative: a larger sum refutes the budget; below it, bounds may differ
_CLOCK_SECONDS = 60.0  # that clocks of machines may differ
_SHOWN = 5  # entries by their numbers
_NO_GUARANTEE = (Fraction(10**9), Fraction(1))  # larger than any


@dataclass(eq=False)
class LedgerAudit:
    """A ledger, with the releases that may have answered its queries."""

    path: str
    ledger: Ledger
    answerings: Sequence[Answering] = ()

    @cached_property
    def priced(self) -> list[Priced]:
        """Each kind of query, with its recomputed cost if the release is among the files."""
        known, found = {one.digest: one for one in self.answerings}, list[Priced]()
        for number, charge in self.ledger.charges.items():
            digests = {entry.table for entry in self.ledger.entries if entry.cost == number}
            own = [known[digest] for digest in digests if digest in known]
            found.append((charge, Cost(own[0]) if len(own) == 1 == len(digests) else None))
        return found

    @cached_property
    def total(self) -> tuple[Verdict, Total | None]:
        """The cost of all queries together, and whether it is within the budget."""
        ledger, (epsilon, delta) = self.ledger, self.ledger.budget
        charges, number = list(ledger.charges.values()), sum(entry.answers for entry in ledger.entries)
        within = f"the budget {pair_at_most(epsilon, delta)}"
        claim = f"{counted(number, 'label keeps', 'labels keep')} to {within}"
        if any(charge.estimate is not None for charge in charges):
            reason = "it holds published estimates about the data at hand: no guarantee"
            return Verdict(TOTAL, claim, ASSUMED, reason), None
        if any(charge.count for charge in charges) and ledger.composition in _RESERVE:
            how, reason = self._filtered()
            total = Total(float(epsilon), "a filter", stated=how == CONSISTENT)
            return Verdict(TOTAL, claim, how, reason), total if how in {PROVED, CONSISTENT} else None
        # the joint bound for models is decided at the budget's ε, and not searched
        found = smallest_total(self.priced, delta, enough=float(epsilon) if any(c.models for c in charges) else 0.0)
        verdict = judge_total(claim, found, (float_up(epsilon), delta), apart=_APART)
        if found is None or verdict.verdict not in {PROVED, CONSISTENT}:
            return verdict, None
        pair = pair_at_most(min(found.epsilon, float(epsilon)), delta, 4)
        return replace(verdict, claim=f"{counted(number, 'label is', 'labels are')} {pair}-DP, within {within}"), found

    def _filtered(self) -> tuple[str, str]:
        """Judge a budget of kinds that were chosen after earlier answers: by sums, or by a Rényi filter."""
        (epsilon, delta), share = self.ledger.budget, _RESERVE[self.ledger.composition]
        proves = [cost is not None and cost.proves(charge) for charge, cost in self.priced]
        charges = [charge for charge, _ in self.priced]
        if any(charge.alone for charge in charges):
            found = smallest_total([(charge, None) for charge in charges], delta, enough=float(epsilon))
            if found is not None and found.how.startswith("the composition") and found.epsilon <= float_up(epsilon):
                return PROVED, found.how
        if any(charge.alone or charge.vanishing for charge in charges):
            return UNKNOWN, "no filter of the independent checker covers costs of models or open answers"
        simple = exact_sum(self.priced)
        if simple is not None and simple[0] <= epsilon and simple[1] <= share * delta:
            return PROVED if all(proves) else CONSISTENT, f"the sums are {pair_at_most(*simple)}"
        room = epsilon * (1 + Fraction(1, 10**9))
        # a divergence grows with its order
        order, proved = float_up(filter_order(room, delta * (1 - share))), list[Charge]()
        for (charge, cost), is_proved in zip(self.priced, proves, strict=True):
            own = None if cost is None else cost.renyi(order)
            curve = ((), ()) if own is None or own.high == float("inf") else ((order,), (own.high,))
            proved.append(Charge(charge.count, charge.guarantee if is_proved else None, *curve))
        if filter_admits(proved, room, delta, share):
            return PROVED, "its Rényi filter admits all queries"
        if filter_admits(charges, room, delta, share):
            return CONSISTENT, "its Rényi filter admits all queries, if each costs what the ledger states"
        return FALSE, "neither the sums nor the Rényi filter of the budget admit all queries"

    @property
    def adds_up(self) -> str:
        """The reason why its budget does not add up with another ledger's; empty if it does."""
        charges = self.ledger.charges.values()
        if any(charge.alone for charge in charges):
            return "answers of trained models share the randomness of their training"
        return "it holds published estimates" if any(charge.estimate is not None for charge in charges) else ""

    @property
    def neighbors(self) -> frozenset[str]:
        """The differences between neighboring data sets that its costs are about."""
        charges = self.ledger.charges.values()
        return frozenset("change one person" if one.sampled is None else one.sampled.neighbors for one in charges)


def judge_ledger(audit: LedgerAudit) -> Iterator[Verdict]:
    """Judge every claim of a ledger."""
    ledger = audit.ledger
    claim = f"it is whole ({counted(len(ledger.entries), 'entry', 'entries')}, {ledger.queries[-1]:,} queries)"
    reason = "pages, checksums, entry hashes and totals agree; a forger could compute them"
    yield Verdict(LEDGER, claim, CONSISTENT, reason)
    if ledger.population:
        claim = f"it is about the population {ledger.population!r}"
        yield Verdict(LEDGER, claim, ASSUMED, "no file can show this")
    yield from _judge_times(ledger)
    if named := [entry for entry in ledger.entries if entry.questions]:
        asked = Counter(question for entry in named for question in entry.questions)
        twice = sorted(question for question, times in asked.items() if times > 1)[:_SHOWN]
        reason = f"paid for more than once: {', '.join(twice)}" if twice else "each once"
        whole = all(len(entry.questions) == entry.count for entry in named)
        yield judged(LEDGER, f"it names {asked.total():,} questions that it paid for", reason, holds=whole)
    if ledger.composition == "one" and ledger.charges:
        number = counted(len(ledger.charges), "kind", "kinds")
        yield judged(LEDGER, "all its queries are of one kind", f"{number} of cost", holds=len(ledger.charges) == 1)
    if any(charge.sampled is not None for charge in ledger.charges.values()):
        reason = f"data sets that {' and '.join(sorted(audit.neighbors))}"
        yield judged(LEDGER, "all its costs are about the same neighbors", reason, holds=len(audit.neighbors) == 1)
    yield from _judge_costs(audit)
    if ledger.entries:
        yield audit.total[0]
        reason = "the budget rests on it" if ledger.composition == "planned" else "without it only the budget holds"
        yield Verdict(TOTAL, "the number of queries did not depend on the answers", ASSUMED, reason)
    if waiting := [entry for entry in ledger.entries if entry.waiting is not None]:
        spoilt = [entry.number for entry in waiting if not _is_kept(entry)]
        claim = f"{counted(len(waiting), 'entry is', 'entries are')} not delivered yet"
        reason = f"what waits for {numbered(spoilt)} is not what was paid for" if spoilt else "their labels are whole"
        yield judged(LEDGER, claim, reason, holds=not spoilt)


def _judge_times(ledger: Ledger) -> Iterator[Verdict]:
    if not ledger.entries:
        return
    latest, none, back = _seconds(ledger.created) or float("-inf"), list[int](), list[int]()
    for entry in ledger.entries:
        if (seconds := _seconds(entry.time)) is None:
            none.append(entry.number)
        elif seconds < latest - _CLOCK_SECONDS:
            back.append(entry.number)
        else:
            latest = seconds
    claim = f"it was debited from {ledger.entries[0].time} to {ledger.entries[-1].time}"
    if back and not none:
        reason = f"{numbered(back)} before the entry above: a clock was set back, or the log was changed"
        yield Verdict(LEDGER, claim, UNKNOWN, f"{reason}; the machine's log would decide")
        return
    reason = f"the time of {numbered(none)} is none in UTC" if none else "the times increase"
    yield judged(LEDGER, claim, reason, holds=not none)


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
        if not named and bare:
            yield Verdict(LEDGER, claim, ASSUMED, f"{reason}; others hold none")
        else:
            yield judged(LEDGER, claim, reason, holds=bool(named))
        for number in {entry.cost: None for entry in named}:
            charge = ledger.charges[number]
            if charge.models is not None and not _covers(answering, charge):
                yield Verdict(COST, f"a query is about {charge.models}", FALSE, f"it is for {answering.voters}")
            else:
                yield from judge_charge(Cost(answering), charge)
    missing = sorted(ledger.digests - known.keys())
    for some, reason in (
        (
            [entry for entry in ledger.entries if entry.table in missing],
            f"what has the digest {', '.join(missing)} is not among the files: it would decide",
        ),
        (bare, "no digest names what answered: its maker can"),
    ):
        if some:
            queries = counted(sum(entry.count for entry in some), "query costs", "queries cost")
            numbers = numbered([entry.number for entry in some])
            yield Verdict(COST, f"{queries} what the ledger states, {numbers}", UNKNOWN, reason)


def _covers(answering: Answering, charge: Charge) -> bool:
    """Whether a cost is about voters that the release covers: as many, no less private, no larger overlap."""
    models, voters = charge.models, answering.voters
    if models is None or models.K != voters.K or models.reached > voters.reached or models.sampled != voters.sampled:
        return False
    theirs, own = (
        sorted((each or _NO_GUARANTEE for count, each in one.kinds for _ in range(count)), reverse=True)
        for one in (models, voters)
    )
    return all(a[0] <= b[0] and a[1] <= b[1] for a, b in zip(theirs, own, strict=True))


def numbered(numbers: Sequence[int]) -> str:
    """Write the numbers of entries, the first few."""
    more = f" and {len(numbers) - _SHOWN:,} more" if len(numbers) > _SHOWN else ""
    return f"entr{'y' if len(numbers) == 1 else 'ies'} {', '.join(map(str, numbers[:_SHOWN]))}{more}"


def _is_kept(entry: Entry) -> bool:
    """Whether the waiting labels of an entry match its count and digest."""
    labels: LabelsFile | None = read_waiting(entry.waiting or b"")
    return labels is not None and labels.digest() == entry.labels and entry.pays_for(labels.size)


def judge_populations(audits: Sequence[LedgerAudit]) -> Iterator[Verdict]:
    """Add up the budgets of ledgers of one population, if they add up; judge that one identity means copies.

    Each ledger's answers together are (ε, δ)-private for any answers of the others, and concurrent interactive
    mechanisms compose as sequential ones. This needs the same neighbors, guarantees, and independent randomness.
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
                yield Verdict(TOTAL, f"{claim}: their budgets add up", UNKNOWN, f"{faults[0]}; one ledger would decide")
            else:
                epsilon, delta = (sum(audit.ledger.budget[part] for audit in members) for part in (0, 1))
                claim = f"{claim}: {pair_at_most(epsilon, delta)} together"
                yield Verdict(TOTAL, claim, ASSUMED, "by the name that they carry; ε and δ add up")
    if unnamed and len(distinct) > 1:
        names = ", ".join(audit.path for audit in unnamed)
        claim = "no two of these ledgers are about the same people"
        yield Verdict(TOTAL, claim, ASSUMED, f"{names}: without a population; if they are, all count together")
    for one, other in combinations(audits, 2):
        if one.ledger.identity == other.ledger.identity:
            pairs = zip(one.ledger.hashes, other.ledger.hashes, strict=False)
            apart = next((number for number, (a, b) in enumerate(pairs) if a != b), None)
            reason = "hashes are equal" if apart is None else f"entry {apart} differs: one is old, or written again"
            yield judged(LEDGER, f"{one.path} and {other.path} are copies of one ledger", reason, holds=apart is None)
