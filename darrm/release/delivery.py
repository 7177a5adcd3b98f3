"""Debit and deliver labels in five steps: prepare, draw, debit and keep, hand over, acknowledge.

`deliver` is the only path from votes to released labels. A `Destination` is the place of the labels: memory, a file
(`darrm.release.debited`), a stream (`darrm.release.one_by_one`), or Parquet files (`darrm.release.partitions`).

1. *Prepare.* The destination checks the place of the labels: names, permissions, space.
2. *Draw.* The aggregator draws the labels in memory. Bad votes raise here.
3. *Debit and keep.* One transaction of the ledger debits the labels and keeps them.
4. *Hand over.* The destination puts the labels in their place. A file also gets a receipt, NAME.receipt.json: the entry
   of the ledger, and the ledger's digest at that entry.
5. *Acknowledge.* The ledger forgets the labels: when the file and its name are durable, when the call returns, or, in a
   stream, in the transaction that debits the next question.

A destination must satisfy three conditions: (i) before step 4 no label leaves the process; (ii) step 4 returns only
when the labels are in their place, durably if that is a disk; (iii) labels that are handed over twice are equal.

*Theorem.* Let processes die at any moment, repeat and overlap. (a) No label leaves without its debit. (b) Every debit
has its labels: in their place, or in the ledger, from which `recover` takes them and pays nothing. (c) No query has two
labels. *Proof.* (a) By (i) labels leave in step 4 only, after the commit of step 3. (b) The commit is atomic and
durable: it holds the debit and the labels, or neither. The ledger forgets them in step 5 only, and by (ii) they are in
their place by then. (c) A query's labels are those that the ledger kept, and by (iii) they stay the same. ∎

`tests/release/test_order.py` and `tests/release/test_kills.py` guard the theorem. The ledger's note names the public
normalization of open-set answers. It keeps their labels as text; the empty string means no answer.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from darrm.aggregator import Aggregator
from darrm.errors import DeliveryError
from darrm.ledger.ledger import PrivacyLedger, StreamCursor
from darrm.loss.privacy_cost import PrivacyCost
from darrm.util import checks
from darrm.util.progress import StatusLine
from darrm.votes import Labels, Votes
from darrm.votes.labels_file import as_text

_SHOWN = 5  # queries in a message


class Destination:
    """The place of labels; this one is the caller's memory.

    ``output`` is the new file, ``cursor`` the place of the labels in a stream; None if there is none.
    """

    output: Path | None = None
    cursor: StreamCursor | None = None

    @contextmanager
    def prepare(self, votes: Votes) -> Iterator[None]:
        """Check that labels of these votes can be handed over, and keep the place until they are."""
        del votes
        yield

    def hand_over(self, ledger: PrivacyLedger, number: int, labels: Labels) -> None:
        """Put the labels of an entry of the ledger in their place."""


class StreamDestination(Destination):
    """A stream of labels in the caller's memory: the ledger keeps the last ones until the next debit.

    ``unclaimed`` are the last labels of the stream, if an earlier process paid for them without an acknowledgment.
    """

    cursor: StreamCursor

    def __init__(self, ledger: PrivacyLedger, name: str) -> None:
        cursor = StreamCursor.of(name)
        mine = [entry for entry in ledger.entries() if entry.output == cursor.stream]
        self.cursor = StreamCursor(cursor.stream, mine[-1].number if mine else 0)
        self.answered = sum(entry.count for entry in mine)
        waits = bool(mine) and not mine[-1].delivered
        self.unclaimed: Labels | None = ledger.kept_labels(self.cursor.after) if waits else None

    def hand_over(self, ledger: PrivacyLedger, number: int, labels: Labels) -> None:
        """Hand the labels out; the debit of the next ones drops them from the ledger."""
        del ledger
        self.answered += labels.size
        self.hand_out(labels.tolist())
        self.cursor = StreamCursor(self.cursor.stream, number)

    def hand_out(self, labels: list[object]) -> None:
        """Hand out the labels of the last questions, up to number ``answered``; here the caller returns them."""


def deliver(
    aggregator: Aggregator,
    votes: Votes,
    ledger: PrivacyLedger,
    destination: Destination,
    *,
    note: str = "",
    cost: PrivacyCost | None = None,
    line: StatusLine | None = None,
) -> Labels:
    """Deliver one label for each query: (Q,) names of classes; errors as `darrm.release.release_debited`.

    ``cost`` is the cost of one query, if it is already computed; ``line`` shows progress.
    """
    check_ledger(ledger)
    check_aggregator(aggregator)
    number = 0
    try:
        with destination.prepare(votes):
            labels = aggregator.release(votes)
            if not labels.size:
                if destination.output is not None:
                    checks.fail("votes", checks.Found("0 queries"), "at least one query", "there is nothing to write")
                return labels
            if line is not None:
                line.show(f"debiting {labels.size:,} queries")
            number = ledger.debit(
                aggregator.privacy_cost(int(labels.size)) if cost is None else cost.repeated(int(labels.size)),
                note=with_normalization(note, getattr(votes, "normalized", "")),
                labels=as_text(labels),
                output=destination.output,
                cursor=destination.cursor,
            )
            destination.hand_over(ledger, number, labels)
            if destination.cursor is None:
                ledger.forget_labels(number)
    except DeliveryError:
        raise
    except BaseException as error:
        if number:
            ledger.raise_if_paid(error, after=number - 1)
        raise
    return labels


def with_normalization(note: str, normalized: str) -> str:
    """Return the note for the ledger's log, which names the public normalization of open-set answers."""
    return f"{note}; answers normalized by {normalized}".removeprefix("; ") if normalized else note


def check_aggregator(aggregator: object) -> None:
    """Raise `ValueError` unless the object has `release` and `privacy_cost`."""
    if isinstance(aggregator, type) or not (hasattr(aggregator, "release") and hasattr(aggregator, "privacy_cost")):
        advice = "it comes first, then the votes; darrm.aggregator.load_release reads one from a file"
        checks.fail("aggregator", checks.Found(type(aggregator).__name__), "what releases, like Release(table)", advice)


def check_answered(votes: Votes, first: int = 0) -> None:
    """Raise `ValueError` that names the queries of a file, from number ``first``, without a vote.

    They are neither answered nor paid for. Votes in memory are not refused: if a voter's private data decide whether
    the voter answers, like those of a prompt, the refusal would reveal that all failed.

    >>> check_answered(Votes.of_labels([[1, None], [None, None]], missing="coin"))
    Traceback (most recent call last):
    ...
    ValueError: votes must be there for each query, got none for query 1: leave it out, it is neither answered nor paid
    """
    absent = votes.missing
    if votes.is_open:
        queries, columns = votes.sparse.nonzero()
        absent = np.bincount(queries[columns >= votes.strings], minlength=votes.queries)
    empty = [] if absent is None else (first + np.flatnonzero(absent == votes.voters)).tolist()
    if empty:
        several = ", ".join(map(str, empty[:_SHOWN])) + (f" and {len(empty) - _SHOWN} more" * (len(empty) > _SHOWN))
        found = checks.Found(f"none for {'query' if len(empty) == 1 else 'queries'} {several}")
        pronoun = "it out, it is" if len(empty) == 1 else "them out, they are"
        checks.fail("votes", found, "there for each query", f"leave {pronoun} neither answered nor paid")


def check_by_query(aggregator: Aggregator) -> None:
    """Raise `ValueError` for a run with one cost for all queries, which cannot be answered in parts."""
    if aggregator.privacy_cost(1).labels > 1:
        advice = "all votes of such a run are given at once: darrm.release.release_debited, or a .npy or .csv file"
        checks.fail("aggregator", checks.Found("a run that is charged as a whole"), "charged for each query", advice)


def check_ledger(ledger: object) -> None:
    """Raise `ValueError` unless a ledger pays for the release."""
    if not isinstance(ledger, PrivacyLedger):
        advice = "open a file with PrivacyLedger(path), or make one with PrivacyLedger.create(path, budget)"
        checks.fail("ledger", ledger, "a PrivacyLedger", advice)
