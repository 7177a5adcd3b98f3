"""Judge the claims of a file of labels: a ledger paid for exactly these labels of this release."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import accumulate, pairwise

from darrm.verify.formats import OPEN, Answering, Run
from darrm.verify.label_files import LabelsFile
from darrm.verify.ledger import LedgerAudit
from darrm.verify.ledger_file import Entry, Ledger
from darrm.verify.numbers import counted
from darrm.verify.verdicts import ASSUMED, CONSISTENT, FALSE, FILE, LABELS, PROVED, UNKNOWN, Verdict, judged

ABSTAIN = "-1"  # in place of a label that was not released
_OF_A_DEBIT = "they are the labels of a debit"
_AS_MANY = "as many were paid for as there are"
_DIGESTS, _DIGESTS_AN_ENTRY = 100_000, 8  # computed at most to find labels in a log: 24 microseconds each


def judge_labels(
    file: LabelsFile,
    releases: Mapping[str, Answering],
    ledgers: Sequence[LedgerAudit],
    classes: tuple[str, ...] | None,
    digests: Collection[str] = (),
) -> Iterator[Verdict]:
    """Judge every claim of released labels.

    ``classes`` holds the names of the labels, if they have names; ``digests`` are the SHA-256 of their Parquet files.
    """
    answerings = list(releases.values())
    payments = [list(_judge_payment(file, answerings, audit.ledger, digests)) for audit in ledgers]
    # one of several ledgers has paid
    payment = next((found for found in payments if all(verdict.verdict != FALSE for verdict in found)), None)
    is_paid = any(verdict.claim == _OF_A_DEBIT and verdict.verdict == PROVED for verdict in payment or ())
    yield _judge_names(file, answerings, classes, is_paid=is_paid)
    if file.spelling:
        yield Verdict(FILE, f"the file has {file.spelling}", CONSISTENT, "another program wrote it; no label differs")
    if payments:
        yield from payment or payments[0]
    else:
        yield Verdict(LABELS, "they were paid for", UNKNOWN, "the ledger that paid would decide: give it, too")


def _judge_names(
    file: LabelsFile, answerings: Sequence[Answering], classes: tuple[str, ...] | None, *, is_paid: bool
) -> Verdict:
    are_open = any(one.classes == OPEN for one in answerings)
    may_be_none = any(isinstance(one, Run) and one.may_be_none for one in answerings)
    names = sorted(set(file.names) - ({""} if are_open else {ABSTAIN} if may_be_none else set()))
    number = max((one.classes for one in answerings), default=0)
    if are_open and not classes:
        claim = f"the labels are {len(names):,} answers that voters gave"
        return Verdict(LABELS, claim, ASSUMED, "no file can show this")
    if not number and not classes:
        reason = "what released them would decide: give it, too"
        return Verdict(FILE, f"the labels are of {len(names):,} classes", UNKNOWN, reason)
    shown = counted(len(names), "different label", "different labels")
    if is_paid:  # otherwise the file may be one of passwords
        shown = f"they are {', '.join(map(repr, names[: number + 1]))}{', …' if len(names) > number + 1 else ''}"
    allowed = f"one of {', '.join(classes)}" if classes else f"one of {number} classes"
    inside = set(names) <= set(classes) if classes else len(names) <= number
    return judged(FILE, f"{counted(file.size, 'label is', 'labels are')} each {allowed}", shown, holds=inside)


def _judge_payment(
    file: LabelsFile, releases: Sequence[Answering], ledger: Ledger, digests: Collection[str]
) -> Iterator[Verdict]:
    size, entries = file.size, ledger.entries
    drawn = [entry for entry in entries if entry.files]
    own = [entry for entry in drawn if set(digests) <= {digest for _, digest in entry.files}] if digests else []
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
    yield judged(LABELS, _OF_A_DEBIT, reason, holds=bool(paid), how=PROVED)
    if totals:
        reason = f"{counted(size, 'label', 'labels')}, {', '.join(map(str, totals))} paid"
        yield judged(LABELS, _AS_MANY, reason, holds=fits, how=PROVED)
    if releases and paid:
        yield _judge_drawn(paid, releases)


def _judge_unpaid(file: LabelsFile, entries: Sequence[Entry], digest: str, begun: list[Entry] | None) -> Verdict:
    """Judge labels without matching entries; ``begun`` are entries of their beginning, None if it takes long."""
    size, bare = file.size, [entry.answers for entry in entries if not entry.labels]
    if begun is None:
        reason = f"to find them among {len(entries):,} entries takes too long: give the labels of a whole stream"
    elif begun:
        known = sum(entry.answers for entry in begun)
        reason = f"the first {known} are; the other {size - known} are fewer than the next debit has: give all"
    elif file.first is not None and (start := _start_within(file.first, entries)):
        reason = f"question {file.first} was paid for together with those from {start} on: give all of them"
    elif bare:
        totals = sorted({*bare, sum(bare)})
        reason = f"{size} labels; entries without a digest of theirs count {', '.join(map(str, totals))}"
        return judged(LABELS, _AS_MANY, reason, holds=size in totals)
    else:
        reason = f"their SHA-256 {digest} is that of none of {len(entries)} entries, nor of successive ones together"
        return Verdict(LABELS, _OF_A_DEBIT, FALSE, reason)
    return Verdict(LABELS, _OF_A_DEBIT, UNKNOWN, reason)


def _judge_drawn(paid: Sequence[Sequence[Entry]], releases: Sequence[Answering]) -> Verdict:
    digests = {answering.digest for answering in releases}
    same = any(all(entry.table in digests for entry in entries) for entries in paid)
    what = "table" if all(answering.what == "table" for answering in releases) else "release"
    claim = f"they were drawn with this {what}" if len(releases) == 1 else f"they were drawn with a {what} of the files"
    reason = f"the debit holds {', '.join(sorted({entry.table or 'no digest' for run in paid for entry in run}))}"
    if same or len(releases) == 1:
        return judged(LABELS, claim, reason, holds=same)
    return Verdict(LABELS, claim, UNKNOWN, f"{reason}: what has that digest would decide")


def _in_parts(file: LabelsFile, entries: Sequence[Entry]) -> tuple[list[list[Entry]], list[Entry]] | None:
    """Find runs of entries with exactly these labels, and a run with their beginning; None if it takes long."""
    found, begun = list[list[Entry]](), list[Entry]()
    left = _DIGESTS + _DIGESTS_AN_ENTRY * len(entries)
    for log, starts in _logs(file.first, entries):
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


def _logs(first: int | None, entries: Sequence[Entry]) -> list[tuple[list[Entry], Sequence[int]]]:
    """Return sequences of entries, of a stream or of all, and the places in each at which labels may begin."""
    # numbered labels answer the questions of a stream with these numbers, or are lines of files, numbered from 1
    if first is None:
        return [(log, range(len(log))) for log in (*_by_output(entries), list(entries))]
    files = [entry for entry in entries if not entry.is_of_a_stream]
    logs: list[tuple[list[Entry], Sequence[int]]] = [(files, range(len(files) if first == 1 else 0))]
    for log, before in _streams(entries):
        logs.append((log, [place for place, answered in enumerate(before[:-1]) if answered + 1 == first]))
    return logs


def _by_output(entries: Sequence[Entry]) -> list[list[Entry]]:
    logs: dict[str, list[Entry]] = {}
    for entry in entries:
        logs.setdefault(entry.output, []).append(entry)
    return list(logs.values())


def _streams(entries: Sequence[Entry]) -> Iterator[tuple[list[Entry], list[int]]]:
    """Yield the entries of each stream, with the number of answers before each and after all."""
    for log in _by_output(entries):
        if log[0].is_of_a_stream:
            yield log, list(accumulate((entry.answers for entry in log), initial=0))


def _start_within(number: int, entries: Sequence[Entry]) -> int:
    """Return the first question of the stream debit that includes this later question; 0 if no debit does."""
    spans = (span for _, before in _streams(entries) for span in pairwise(before))
    return next((start + 1 for start, end in spans if start + 1 < number <= end), 0)
