"""Debit and deliver labels in five steps: prepare, draw, debit and keep, hand over, acknowledge.

`deliver` is the only path from votes to released labels. A `Destination` is the place of the labels: memory, a file, a
stream (`darrm.release.one_by_one`), or Parquet files (`darrm.release.partitions`).

1. *Prepare.* The destination checks names, permissions and space.
2. *Draw.* The aggregator draws the labels in memory. Bad votes raise here.
3. *Debit and keep.* One transaction of the ledger debits the labels and keeps them.
4. *Hand over.* The destination puts the labels in their place. A file also gets a receipt, NAME.receipt.json: the
   ledger's entry, and its digest at that entry.
5. *Acknowledge.* The ledger forgets the labels: when the file and its name are durable, when the call returns, or, in a
   stream, in the transaction that debits the next question.

A destination satisfies: (i) no label leaves the process before step 4; (ii) step 4 returns only when the labels are in
their place, durably on a disk; (iii) labels that are handed over twice are equal.

*Theorem.* Let processes die at any moment, repeat and overlap. (a) No label leaves without its debit. (b) The labels of
every debit are in their place, or in the ledger, from which `recover` takes them and pays nothing. (c) No query has two
labels. *Proof.* (a) By (i) labels leave after the commit of step 3. (b) The commit is atomic and durable: it holds the
debit and the labels, or neither. The ledger forgets them in step 5 only, and by (ii) they are in their place by then.
(c) A query's labels are those that the ledger kept, and by (iii) they stay the same. ∎

*A file is a destination.* (i) Before the debit there is only an empty temporary file beside the output. (ii) The labels
are written and synced there, then published by a link, which cannot replace a file, and the folder is synced. (iii) The
ledger keeps the same labels; if a process died after publishing, `recover` finds them in the file and leaves it. The
receipt is published before the ledger forgets the labels.

Guarded by `tests/release/test_destinations.py` and `tests/release/test_kills.py`. The ledger keeps open-set labels as
text; the empty string means no answer.
"""

import fcntl
import glob
import json
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike

from darrm.aggregator import Aggregator
from darrm.errors import DeliveryError
from darrm.ledger.ledger import PrivacyLedger, StreamCursor
from darrm.loss.privacy_cost import PrivacyCost
from darrm.problem import OPEN, is_open
from darrm.util import checks
from darrm.util.extras import require
from darrm.util.files import check_space, sync
from darrm.util.progress import StatusLine
from darrm.votes import Labels, Votes
from darrm.votes.labels_file import as_text, check_ids, labels_digest, load_labels, save_labels
from darrm.votes.parquet_file import SUFFIX as PARQUET
from darrm.votes.vote_arrays import Classes
from darrm.votes.votes_file import check_new

__all__ = ["Destination", "FileDestination", "StreamDestination", "check_answered", "deliver", "recover"]
MIN_FREE_BYTES = 2**16  # for a receipt and a folder
_MAX_QUERIES_SHOWN = 5  # queries in a message


class Destination:
    """Where labels go: a new file ``output``, a stream at ``cursor``, or else the caller's memory."""

    output: Path | None = None
    cursor: StreamCursor | None = None

    @contextmanager
    def prepare(self, votes: Votes) -> Iterator[None]:
        """Check the place of the labels, and keep it until they are handed over."""
        del votes
        yield

    def hand_over(self, ledger: PrivacyLedger, number: int, labels: Labels) -> None:
        """Put the labels of a ledger's entry in their place."""


class StreamDestination(Destination):
    """A stream of labels in the caller's memory: the ledger keeps the last ones until the next debit.

    ``unclaimed`` are the last labels of the stream, if an earlier process did not acknowledge them.
    """

    cursor: StreamCursor

    def __init__(self, ledger: PrivacyLedger, name: str) -> None:
        cursor = StreamCursor.of(name)
        entries = [entry for entry in ledger.entries() if entry.output == cursor.stream]
        self.cursor = StreamCursor(cursor.stream, entries[-1].number if entries else 0)
        self.answered = sum(entry.count for entry in entries)
        is_waiting = bool(entries) and not entries[-1].delivered
        self.unclaimed: Labels | None = ledger.kept_labels(self.cursor.after) if is_waiting else None

    def hand_over(self, ledger: PrivacyLedger, number: int, labels: Labels) -> None:
        del ledger
        self.answered += labels.size
        self.hand_out(labels.tolist())
        self.cursor = StreamCursor(self.cursor.stream, number)

    def hand_out(self, labels: list[object]) -> None:
        """Hand out the labels of the questions up to ``answered``; here the caller returns them."""


class FileDestination(Destination):
    """A new file of labels, with the ids of the votes and a receipt."""

    output: Path

    def __init__(
        self, output: str | os.PathLike[str], line: StatusLine | None = None, *, has_receipt: bool = True
    ) -> None:
        checks.file_name(output=output)
        self.output = Path(os.path.realpath(output))  # two links to one file must not be paid for twice
        self._line, self._has_receipt = line, has_receipt

    @contextmanager
    def prepare(self, votes: Votes | None = None) -> Iterator[None]:
        path, self._ids = self.output, getattr(votes, "ids", None)
        check_new_labels(path)
        check_ids(path, self._ids)
        try:
            check_no_receipt(path)
        except ValueError:
            check_new(path)  # another release may have published labels and receipt since
            raise
        queries = getattr(votes, "queries", getattr(votes, "size", 0))
        check_space(path.parent, MIN_FREE_BYTES + queries)  # text may be longer; its length depends on the votes
        with temporary_folder(path) as folder:
            self._temporary = folder / f"labels{path.suffix}"
            self._temporary.touch()
            if path.suffix.lower() == PARQUET:
                require("pyarrow.parquet")  # before the debit
            try:
                os.link(self._temporary, self._temporary.with_stem("second-name"))
            except OSError as error:
                allowed = f"on a file system with hard links ({error.strerror})"
                advice = "a link publishes labels without replacing a file; name another"
                checks.fail("output", str(path), allowed, advice)
            yield

    def hand_over(self, ledger: PrivacyLedger, number: int, labels: Labels) -> None:
        self.publish(labels)
        self.confirm(ledger, number)

    def publish(self, labels: Labels) -> None:
        """Write the labels, and give the file its name."""
        self.write(self._temporary, labels)
        os.link(self._temporary, self.output)
        shutil.rmtree(self._temporary.parent, ignore_errors=True)  # before the ledger forgets the labels

    def write(self, path: Path, labels: Labels) -> None:
        """Write labels durably."""
        save_labels(path, labels, self._line, self._ids)

    def confirm(self, ledger: PrivacyLedger, number: int) -> None:
        """Make a published file durable, with its receipt."""
        sync(self.output)
        sync(self.output.parent)
        if self._has_receipt:
            publish_receipt(ledger, number, self.output)


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

    ``cost`` is the cost of one query, if it is computed. The ledger's note names the normalization of open-set answers.
    """
    check_ledger(ledger)
    check_aggregator(aggregator)
    number = 0
    try:
        with destination.prepare(votes):
            labels = aggregator.release(votes)
            if not labels.size:
                if destination.output is not None:
                    checks.fail("votes", checks.Text("0 queries"), "at least one query", "there is nothing to write")
                return labels
            if line is not None:
                line.show(f"debiting {labels.size:,} queries")
            if normalized := getattr(votes, "normalized", ""):
                note = f"{note}; answers normalized by {normalized}".removeprefix("; ")
            number = ledger.debit(
                aggregator.privacy_cost(int(labels.size)) if cost is None else cost.repeat(int(labels.size)),
                note=note,
                labels=as_text(labels),
                output=destination.output,
                cursor=destination.cursor,
            )
            destination.hand_over(ledger, number, labels)
            if destination.cursor is None:
                ledger.forget_labels(number)
    except BaseException as error:
        if number and not isinstance(error, DeliveryError):
            ledger.raise_if_paid(error, after=number - 1)
        raise
    return labels


def release_debited(
    aggregator: Aggregator,
    votes: Votes | ArrayLike,
    *,
    ledger: PrivacyLedger,
    note: str = "",
    output: str | os.PathLike[str] | None = None,
    line: StatusLine | None = None,
) -> Labels:
    """Release (Q,) labels, names of classes, for votes on Q queries, after one debit.

    ``output`` is a new .npy, .csv or .parquet file for the labels and the ids of the votes.

    `ValueError`, `BudgetExceededError` and `LedgerError` debit nothing. After a `DeliveryError` the message says where
    the paid labels are (`recover`).

    Examples
    --------
    >>> from darrm import Release, Problem, PrivacyLedger, PrivacyParams, Voters, Votes, certify
    >>> from darrm.majority import baselines
    >>> problem = Problem.from_allowance(Voters(3, PrivacyParams(0.1)), 3)
    >>> aggregator = Release(certify(problem, baselines.double_subsampling(problem)))
    >>> ledger = PrivacyLedger.create(":memory:", PrivacyParams(1))
    >>> release_debited(aggregator, Votes.from_labels([[1, 1, 0], [0, 0, 1]]), ledger=ledger, note="two questions")
    array([1, 0])
    """
    destination = Destination() if output is None else FileDestination(output, line)
    # the aggregator refuses objects that are not votes
    return deliver(aggregator, votes, ledger, destination, note=note, line=line)  # type: ignore[arg-type]


def recover(ledger: PrivacyLedger, number: int, output: str | os.PathLike[str] | FileDestination) -> Labels:
    """Write the labels of an entry of `PrivacyLedger.undelivered`, and pay nothing; return them.

    ``output`` is a new .npy, .csv or .parquet file, or one that holds these labels already, because a process died.
    Labels are in the order of the queries, without ids.

    `ValueError` if the entry is not undelivered, or ``output`` is another file; after a `LedgerError` call it again.
    """
    check_ledger(ledger)
    destination = output if isinstance(output, FileDestination) else FileDestination(output)
    path, labels = destination.output, ledger.kept_labels(number)
    intended_output = next(entry.output for entry in ledger.undelivered() if entry.number == number)
    is_published = False
    with suppress(ValueError):
        is_published = path.is_file() and labels_digest(load_labels(path)) == labels_digest(labels)
    if is_published:
        destination.confirm(ledger, number)
    else:
        with destination.prepare():
            destination.hand_over(ledger, number, labels)
    ledger.forget_labels(number)
    for output_path in {path, Path(intended_output)} if intended_output else {path}:
        remove_leftovers(output_path)
    return labels


def check_new_labels(path: Path) -> None:
    """Raise `ValueError` unless ``path`` is new; remove temporary folders of killed processes."""
    remove_leftovers(Path(os.path.realpath(path)))  # also where another process has published the labels
    check_new(path)


def receipt_path(output: Path) -> Path:
    return output.with_name(f"{output.name}.receipt.json")


def check_no_receipt(output: Path) -> None:
    """Raise `ValueError` if a receipt of other labels exists: it is evidence about their ledger."""
    if (path := receipt_path(output)).exists():
        raise ValueError(f"{str(path)!r} is the receipt of other labels: move it to these, or name another output")


def publish_receipt(ledger: PrivacyLedger, number: int, output: Path, files: Mapping[str, str] | None = None) -> None:
    """Publish the receipt of an entry, once; `ValueError` if another receipt exists."""
    path = receipt_path(output)
    digests = {"files": dict(files)} if files else {}
    text = json.dumps({**ledger.receipt(number), **digests}, indent=1, ensure_ascii=False)
    if path.is_file() and path.read_text(encoding="utf-8") == text:
        remove_leftovers(output)  # the process that published the receipt may have died before this
        sync(path)
        sync(path.parent)
        return
    check_no_receipt(output)
    with temporary_folder(output) as folder:
        temporary = folder / "receipt.json"
        temporary.write_text(text, encoding="utf-8")
        sync(temporary)
        os.link(temporary, path)
        sync(path.parent)


@contextmanager
def temporary_folder(path: Path) -> Iterator[Path]:
    """Create a locked temporary folder next to a file; remove the folders of dead processes."""
    remove_leftovers(path)
    while True:
        temporary = tempfile.TemporaryDirectory(prefix=_make_prefix(path), dir=path.parent, ignore_cleanup_errors=True)
        with temporary as name, ExitStack() as stack:
            folder = Path(name)
            with suppress(FileNotFoundError):  # another process removed it before it was locked
                handle = os.open(folder, os.O_RDONLY)
                stack.callback(os.close, handle)
                with suppress(OSError):  # without locks, a killed process leaves it
                    fcntl.flock(handle, fcntl.LOCK_EX)
            if folder.is_dir():
                yield folder
                return


def remove_leftovers(path: Path) -> None:
    """Remove the temporary folders of killed processes."""
    for folder in path.parent.glob(f"{glob.escape(_make_prefix(path))}*"):
        with suppress(OSError):  # locked, or no locks on this file system
            handle = os.open(folder, os.O_RDONLY | os.O_NOFOLLOW | os.O_DIRECTORY)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder)
            finally:
                os.close(handle)


def _make_prefix(path: Path) -> str:
    return f".labels-{path.name[:100]}-"  # a name has at most 255 bytes


def check_aggregator(aggregator: object) -> None:
    if isinstance(aggregator, type) or not (hasattr(aggregator, "release") and hasattr(aggregator, "privacy_cost")):
        advice = "it comes first, then the votes; darrm.aggregator.load_release reads one from a file"
        checks.fail("aggregator", checks.Text(type(aggregator).__name__), "an aggregator, like Release(table)", advice)


def classes_for(aggregator: Aggregator, classes: Classes, name: str = "classes", advice: str = "") -> Classes:
    """Return the classes of votes, by default the aggregator's; `ValueError` if their number differs."""
    class_count: Classes = getattr(aggregator, "classes", 2)
    if classes is None or (is_open(classes) and is_open(class_count)):
        return class_count
    if (classes if isinstance(classes, int | str) else len(classes)) != class_count:
        words: dict[object, str] = {2: "two different labels, like no,yes", OPEN: "open, or left out"}
        allowed = words.get(class_count, f"{class_count} different labels, or their number")
        class_text = classes if isinstance(classes, int | str) else ",".join(map(str, classes))
        checks.fail(name, str(class_text), allowed, advice)
    return classes


def check_answered(votes: Votes, first_row: int = 0) -> None:
    """Raise `ValueError` that names the queries of a file, from number ``first_row``, without a vote.

    Votes in memory are never refused: if a prompt's failure depends on private data, the refusal would reveal it.
    """
    missing_counts = votes.missing
    if votes.is_open:
        queries, columns = votes.sparse.nonzero()
        missing_counts = np.bincount(queries[columns >= votes.strings], minlength=votes.queries)
    empty_queries = (
        [] if missing_counts is None else (first_row + np.flatnonzero(missing_counts == votes.voters)).tolist()
    )
    if empty_queries:
        query_list = ", ".join(map(str, empty_queries[:_MAX_QUERIES_SHOWN])) + (
            f" and {len(empty_queries) - _MAX_QUERIES_SHOWN} more" * (len(empty_queries) > _MAX_QUERIES_SHOWN)
        )
        problem = checks.Text(f"none for {'query' if len(empty_queries) == 1 else 'queries'} {query_list}")
        pronoun = "it out, it is" if len(empty_queries) == 1 else "them out, they are"
        checks.fail("votes", problem, "there for each query", f"leave {pronoun} neither answered nor paid")


def check_by_query(aggregator: Aggregator) -> None:
    """Refuse a run with one cost for all queries."""
    if aggregator.privacy_cost(1).labels > 1:
        advice = "all votes of such a run are given at once: darrm.release.release_debited, or a .npy or .csv file"
        checks.fail("aggregator", checks.Text("a run that is charged as a whole"), "charged for each query", advice)


def check_ledger(ledger: object) -> None:
    if not isinstance(ledger, PrivacyLedger):
        advice = "open a file with PrivacyLedger(path), or make one with PrivacyLedger.create(path, budget)"
        checks.fail("ledger", ledger, "a PrivacyLedger", advice)
