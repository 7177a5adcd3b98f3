"""Releases that are paid for, and labels that are not lost: prepare, draw, pay and keep, hand over, acknowledge.

There is one order, and where labels go is a *sink*: the caller's memory, a new file (`darrm.release.debited`), a
stream of answers, in Python or into a pipe (`darrm.release.one_by_one`, `pipe`), or out of an estimator
(`darrm.estimators.spending`), Parquet files (`partitions`).

1. *Prepare.* The sink tries the place of the labels, and leaves none there. Nothing is paid.
2. *Draw.* The labels are drawn, in memory. Bad votes raise here, and nothing is paid. Labels that fit into no memory
   are not drawn yet: a manifest, on a disk, says what will be drawn for what.
3. *Pay and keep.* One transaction of the ledger debits the labels and keeps them, or the digest of the manifest.
4. *Hand over.* The sink puts them where they belong, or draws first what the manifest says. Beside a file it leaves a
   *receipt*, NAME.receipt.json: what was paid for, and the head of the ledger then (`darrm.account.head`).
5. *Acknowledge.* They leave the ledger when whoever they are for has them: when file and name are durable, when the
   call returns, or, in a stream, in the transaction that pays for the next question, and when it is closed.

A sink owes three things: (i) steps 1 and 2 let no label out of the process, (ii) step 4 returns when the labels can be
had at their place, durably where that is a disk, and (iii) labels that are handed over again are the same.

*Theorem.* Let processes die at any moment, repeat and overlap. (a) No label is let out without its debit. (b) No debit
is without its labels: they are at their place, or they, or the manifest, are in the ledger, to be had by a recovery
that pays nothing. (c) No query has two labels. *Proof.* (a) By (i) labels are let out in step 4 only, after the commit
of step 3. (b) The commit is atomic and durable: it holds the debit and what is kept, or neither. What is kept leaves in
step 5 only, after step 4, and (ii) holds by then. (c) A query's labels are those that were kept, handed over as often
as it takes, or by (iii) those of the manifest. ∎

What is done to open answers before they are counted is public, and part of the note that the ledger's log keeps. The
ledger keeps their labels as text, in which no answer is the empty string, which no voter can say.

Labels that are returned in memory are the caller's to lose. Whoever wants them to outlive the process names an output,
or takes them from a stream, which is acknowledged later.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from darrm.account.ledger import PrivacyLedger, Turn, reason_of
from darrm.aggregator import Aggregator
from darrm.errors import PaidError, checks
from darrm.losses.charges import Charge
from darrm.system.progress import StatusLine
from darrm.system.votes_file import as_text
from darrm.votes import Labels, Votes

HandOver = Callable[[Any], object]


class Sink:
    """Where labels go: by itself the caller's memory, into which `Delivery.deliver` hands them by returning.

    Attributes
    ----------
    output
        The file or folder, which is the sink's alone until the labels are delivered; None if it is none.
    turn
        The place of the labels in a stream; None if they are no part of one.
    manifest
        What the ledger keeps in place of labels that are drawn when they are handed over; None for labels.
    """

    output: Path | None = None
    turn: Turn | None = None
    manifest: bytes | None = None

    @contextmanager
    def prepared(self) -> Iterator[HandOver]:
        """Try the place of the labels; yield what hands them over, which is called after the debit."""
        yield lambda _: None

    def leave_receipt(self, ledger: PrivacyLedger, number: int) -> Mapping[str, str] | None:
        """Leave a receipt beside the labels; return the SHA-256 of files that were drawn for this entry, if any."""

    def acknowledge(self, number: int) -> None:
        """Take the number of the ledger's entry, after the labels were handed over."""


class StreamSink(Sink):
    """Memory, whose labels wait in the ledger until the next ones of the stream are paid for, or are acknowledged.

    ``unclaimed`` are the last labels of the stream, where an earlier process paid for them and nobody acknowledged
    them: whoever goes on hands them out first.
    """

    turn: Turn

    def __init__(self, ledger: PrivacyLedger, name: str) -> None:
        turn = Turn.of(name)
        mine = [entry for entry in ledger.entries() if entry.output == turn.stream]
        self.turn = Turn(turn.stream, mine[-1].number if mine else 0)
        self.paid_for = sum(entry.count for entry in mine)
        waits = bool(mine) and not mine[-1].delivered
        self.unclaimed: Labels | None = ledger.kept_labels(self.turn.after) if waits else None

    def acknowledge(self, number: int) -> None:
        """Count on from this entry: it is dropped by the debit of the next one."""
        self.turn = Turn(self.turn.stream, number)


@dataclass(frozen=True)
class Delivery:
    """What draws, pays, keeps, hands over and acknowledges; see the module.

    Attributes
    ----------
    aggregator
        What answers.
    ledger
        What pays.
    note
        The caller's words for the ledger's log.
    line
        Where to show progress.
    cost
        What one answer costs, where it is computed once for many releases.
    """

    aggregator: Aggregator
    ledger: PrivacyLedger
    note: str = ""
    line: StatusLine | None = None
    cost: Charge | None = None

    def __post_init__(self) -> None:
        check_ledger(self.ledger)
        check_aggregator(self.aggregator)

    def deliver(self, votes: Votes, sink: Sink) -> Labels:
        """Deliver one label for each query: (Q,) names of classes; errors as `darrm.release.release_debited`."""
        with self._paid(sink, getattr(votes, "normalized", "")) as pay:
            labels = self.aggregator.release(votes)
            if labels.size:
                pay(int(labels.size), labels)
            elif sink.output is not None:
                found = checks.Found(f"{labels.size} queries")
                checks.fail("votes", found, "at least one query", "there is nothing to write")
            return labels

    def deliver_later(self, queries: int, sink: Sink, normalized: str = "") -> None:
        """Deliver so many labels, which the sink draws as its manifest says when it hands them over.

        ``normalized`` is what is done to open answers before they are counted.
        """
        with self._paid(sink, normalized) as pay:
            pay(queries, None)

    @contextmanager
    def _paid(self, sink: Sink, normalized: str) -> Iterator[Callable[[int, Labels | None], None]]:
        """Yield what pays; whatever fails, or is interrupted, after the debit becomes a `PaidError`."""
        paid, note = False, self.note
        if normalized:
            note = f"{note}; answers normalized by {normalized}".removeprefix("; ")

        def pay(queries: int, labels: Labels | None) -> None:
            def deliver(number: int) -> Mapping[str, str] | None:
                nonlocal paid
                paid = True
                hand_over(labels)
                return sink.leave_receipt(self.ledger, number)

            if self.line is not None:
                self.line.show(f"debiting {queries:,} queries")
            number = self.ledger.debit(
                self.aggregator.charge(queries) if self.cost is None else self.cost.repeated(queries),
                note=note,
                labels=None if labels is None else as_text(labels),
                manifest=sink.manifest,
                output=sink.output,
                turn=sink.turn,
                deliver=deliver,
            )
            sink.acknowledge(number)

        try:
            with sink.prepared() as hand_over:
                yield pay
        except PaidError:
            raise
        except BaseException as error:
            if not paid:
                raise
            where = "" if sink.output is None else f" and the labels are in {str(sink.output)!r}"
            raise PaidError(self.ledger.path, f"{reason_of(error)}; the budget is spent{where}") from error


def check_aggregator(aggregator: object) -> None:
    """Raise `ValueError` unless it releases and charges."""
    if isinstance(aggregator, type) or not (hasattr(aggregator, "release") and hasattr(aggregator, "charge")):
        advice = "it comes first, then the votes; darrm.pate.files.load_release reads one from a file"
        checks.fail("aggregator", checks.Found(type(aggregator).__name__), "what releases, like Release(table)", advice)


def check_by_query(aggregator: Aggregator) -> None:
    """Raise `ValueError` for a run that is charged as a whole where queries are answered one by one, or in parts."""
    if aggregator.charge(1).labels > 1:
        advice = "all votes of such a run are given at once: darrm.release.release_debited, or a .npy or .csv file"
        checks.fail("aggregator", checks.Found("a run that is charged as a whole"), "charged for each query", advice)


def check_ledger(ledger: object) -> None:
    """Raise `ValueError` for a release that nothing pays for."""
    if not isinstance(ledger, PrivacyLedger):
        advice = "open a file with PrivacyLedger(path), or make one with PrivacyLedger.create(path, budget)"
        checks.fail("ledger", ledger, "a PrivacyLedger", advice)
