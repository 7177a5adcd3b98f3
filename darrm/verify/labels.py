"""The claims of a file of labels: that they were paid for, with this table, and are what was paid for."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import accumulate, pairwise

import numpy as np

from darrm.account.ledger_rows import Entry
from darrm.pate.tested import TestedRun
from darrm.problem import is_open
from darrm.proof.table import Table
from darrm.system.command_line import numbered
from darrm.system.vote_arrays import ABSTAIN
from darrm.system.votes_file import LabelsFile, labels_digest
from darrm.verify.ledger import LedgerCopy
from darrm.verify.table import Answering, costs_of
from darrm.verify.verdicts import CLAIMED, CONSISTENT, FALSE, PROVED, UNKNOWN, Verdict, judged

_LABELS, _OF_A_DEBIT = "labels", "they are the labels of a debit"
_AS_MANY = "as many were paid for as there are"
_DIGESTS, _DIGESTS_AN_ENTRY = 100_000, 8  # computed at most to find labels in a log: 24 microseconds each


def judge_labels(
    file: LabelsFile,
    releases: Mapping[str, Answering],
    ledgers: Mapping[str, LedgerCopy],
    classes: tuple[str, ...] | None,
    digests: Collection[str] = (),
) -> Iterator[Verdict]:
    """Judge every claim of released labels.

    ``classes`` names them where they have names; ``digests`` are the SHA-256 of Parquet files that they stand in.
    """
    labels = file.labels
    payments = [list(_judge_payment(file, list(releases.values()), ledger, digests)) for ledger in ledgers.values()]
    # of several ledgers one has paid
    payment = next((found for found in payments if all(verdict.verdict != FALSE for verdict in found)), None)
    number = max((costs_of(answering).classes for answering in releases.values()), default=0)
    is_of_strings = any(is_open(costs_of(answering).classes) for answering in releases.values())
    nothing = {""} if is_of_strings else {str(ABSTAIN)} if any(map(_may_be_none, releases.values())) else set()
    names = sorted(set(map(str, np.unique(labels).tolist())) - nothing)
    allowed = f"of the classes {', '.join(classes)}" if classes else f"of {number} classes"
    inside = set(names) <= set(classes) if classes else len(names) <= number
    shown = f"the labels are {', '.join(map(repr, names[: number + 1]))}{', …' if len(names) > number + 1 else ''}"
    whole = "the one label is" if labels.size == 1 else f"all {labels.size} labels are"
    if is_of_strings and not classes:
        what = "they are strings that voters said; which were said is not in the files"
        yield Verdict(_LABELS, f"the labels are {numbered(len(names), 'answer', 'different answers')}", CLAIMED, what)
    elif number or classes:
        yield judged(_LABELS, f"{whole} {allowed}", shown, holds=inside)
    else:
        what = "what released them is not among the files: it would say how many classes there are"
        yield Verdict(_LABELS, f"the labels are of {len(names):,} classes", UNKNOWN, what)
    if file.spelling:
        yield Verdict(
            _LABELS, f"the file has {file.spelling}", CONSISTENT, "another program wrote it; no label differs"
        )
    if not payments:
        yield Verdict(_LABELS, "they were paid for", UNKNOWN, "the ledger that paid would show it: give it, too")
        return
    yield from payment or payments[0]


def _may_be_none(answering: Answering) -> bool:
    return isinstance(answering, TestedRun) and (answering.check is not None or answering.otherwise is None)


def _judge_payment(
    file: LabelsFile, releases: Sequence[Answering], ledger: LedgerCopy, digests: Collection[str]
) -> Iterator[Verdict]:
    labels = file.labels
    drawn = [entry for entry in ledger.entries if entry.files]
    own = [entry for entry in drawn if set(digests) <= {digest for _, digest in entry.files}] if digests else []
    if own or (digests and drawn and all(entry.labels or entry.files for entry in ledger.entries)):
        yield from _judge_files(labels.size, len(digests), own)
        yield from _judge_drawn([[entry] for entry in own], releases)
        return
    digest = labels_digest(labels)
    whole = [[entry] for entry in ledger.entries if entry.labels == digest] if file.first is None else []
    found_in = (whole, []) if whole else _in_parts(file, ledger.entries)
    paid, begun = ([], []) if found_in is None else found_in
    if not paid:
        yield _judge_unpaid(file, ledger.entries, digest, None if found_in is None else begun)
        return
    reason = f"their SHA-256 {digest} is that of {len(paid)} of {len(ledger.entries)} entries"
    if len(paid[0]) > 1:
        reason = f"the digests of {len(paid[0])} entries, one after the other, are those of their parts, numbers aside"
    yield judged(_LABELS, _OF_A_DEBIT, reason, holds=True, how=PROVED)
    totals, size = [sum(entry.answers for entry in entries) for entries in paid], labels.size
    fits = all(len(entries) == 1 and entries[0].pays_for(size) for entries in paid) or set(totals) == {size}
    reason = f"{numbered(size, 'label', 'labels')}, {', '.join(map(str, totals))} paid"
    yield judged(_LABELS, _AS_MANY, reason, holds=fits, how=PROVED)
    yield from _judge_drawn(paid, releases)


def _judge_unpaid(file: LabelsFile, entries: Sequence[Entry], digest: str, begun: list[Entry] | None) -> Verdict:
    """Judge labels that no entries were found for; ``begun`` are those that they begin with, None if it takes long."""
    size, bare = file.labels.size, [entry.answers for entry in entries if not entry.labels]
    if begun is None:
        reason = f"to find them among {len(entries):,} entries takes too long: give the labels of a whole stream"
        return Verdict(_LABELS, _OF_A_DEBIT, CLAIMED, reason)
    if begun:
        known = sum(entry.answers for entry in begun)
        reason = f"the first {known} are; the other {size - known} are fewer than the next debit has: give all"
        return Verdict(_LABELS, _OF_A_DEBIT, CLAIMED, reason)
    if file.first is not None and (start := _start_within(file.first, entries)):
        reason = f"question {file.first} was paid for together with those from {start} on: give all of them"
        return Verdict(_LABELS, _OF_A_DEBIT, CLAIMED, reason)
    if bare:
        totals = sorted({*bare, sum(bare)})
        reason = f"{size} labels; entries without a digest of theirs count {', '.join(map(str, totals))}"
        return judged(_LABELS, _AS_MANY, reason, holds=size in totals)
    reason = f"their SHA-256 {digest} is that of 0 of {len(entries)} entries"
    reason = f"{reason}, nor are parts of them those of entries that follow each other"
    return Verdict(_LABELS, _OF_A_DEBIT, FALSE, reason)


def _judge_files(labels: int, files: int, entries: Sequence[Entry]) -> Iterator[Verdict]:
    told = [f"{files} of the {len(entry.files)} files of entry {entry.number}" for entry in entries]
    reason = f"by SHA-256 they are {', '.join(told) or 'none that an entry names'}"
    yield judged(_LABELS, _OF_A_DEBIT, reason, holds=bool(entries), how=PROVED)
    for entry in entries[:1]:
        fits = labels == entry.answers if files == len(entry.files) else labels < entry.answers
        reason = f"{numbered(labels, 'label', 'labels')}, {entry.answers} paid"
        yield judged(_LABELS, _AS_MANY, reason, holds=fits, how=PROVED)


def _judge_drawn(paid: Sequence[Sequence[Entry]], releases: Sequence[Answering]) -> Iterator[Verdict]:
    if not releases or not paid:
        return
    digests = {answering.digest for answering in releases}
    same = any(all(entry.table in digests for entry in entries) for entries in paid)
    what = "table" if all(isinstance(answering, Table) for answering in releases) else "release"
    claim = f"they were drawn with this {what}" if len(releases) == 1 else f"they were drawn with a {what} of the files"
    reason = f"the debit holds {', '.join(sorted({entry.table or 'no digest' for run in paid for entry in run}))}"
    if same or len(releases) == 1:
        yield judged(_LABELS, claim, reason, holds=same)
    else:
        yield Verdict(_LABELS, claim, UNKNOWN, f"{reason}: what has that digest would decide")


def _in_parts(file: LabelsFile, entries: Sequence[Entry]) -> tuple[list[list[Entry]], list[Entry]] | None:
    """Find runs of entries whose labels together are these, and a run that they begin with; None if it takes long."""
    labels = file.labels
    found, begun = list[list[Entry]](), list[Entry]()
    left = _DIGESTS + _DIGESTS_AN_ENTRY * len(entries)
    for log, starts in _logs(file.first, entries):
        for start in starts:
            place, end = 0, start
            while place < labels.size and end < len(log):
                left -= 1
                if left < 0:
                    return (found, begun) if found else None
                part = labels[place : place + log[end].answers]
                if labels_digest(part) != log[end].labels:
                    if part.size < log[end].answers and log[end].is_of_a_stream:
                        begun = max(begun, log[start:end], key=len)
                    break
                place, end = place + part.size, end + 1
            if place == labels.size and place:
                if log[start:end] not in found:
                    found.append(log[start:end])
                break
    return found, begun


def _logs(first: int | None, entries: Sequence[Entry]) -> list[tuple[list[Entry], Sequence[int]]]:
    """Return logs in which entries follow each other, of a stream or of all, and where in each labels may begin."""
    # answers with numbers are those of a stream to its questions of these numbers, or lines of files numbered from 1 on
    logs = _by_output(entries)
    if first is None:
        return [(log, range(len(log))) for log in (*logs, list(entries))]
    files = [entry for entry in entries if not entry.is_of_a_stream]
    numbered: list[tuple[list[Entry], Sequence[int]]] = [(files, range(len(files) if first == 1 else 0))]
    for log in logs:
        if log[0].is_of_a_stream:
            answered = list(accumulate((entry.answers for entry in log), initial=0))[:-1]
            numbered.append((log, [place for place, before in enumerate(answered) if before + 1 == first]))
    return numbered


def _by_output(entries: Sequence[Entry]) -> list[list[Entry]]:
    logs: dict[str, list[Entry]] = {}
    for entry in entries:
        logs.setdefault(entry.output, []).append(entry)
    return list(logs.values())


def _start_within(number: int, entries: Sequence[Entry]) -> int:
    """Return the first question of a debit of a stream that pays for this one as a later one; 0 if none does."""
    for log in _by_output(entries):
        ends = list(accumulate(entry.answers for entry in log)) if log[0].is_of_a_stream else []
        for start, end in pairwise([0, *ends]):
            if start + 1 < number <= end:
                return start + 1
    return 0
