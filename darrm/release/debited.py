"""Release labels in memory or to a new .npy, .csv or .parquet file, and recover labels that were not delivered.

A file is a `Destination` of `darrm.release.delivery`: (i) before the debit there is only an empty temporary file in a
folder next to the output; (ii) the labels are written and synced there, then published by a link, which cannot replace
a file, and the folder is synced; (iii) the ledger keeps the same labels, and `recover` writes them. If a process died
after publishing, `recover` finds the file with the same labels and leaves it. The receipt is published after the labels
and before the ledger forgets them.
"""

import fcntl
import glob
import json
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from numpy.typing import ArrayLike

from darrm.aggregator import Aggregator
from darrm.ledger.ledger import PrivacyLedger
from darrm.release.delivery import Destination, check_ledger, deliver
from darrm.util import checks
from darrm.util.extras import require
from darrm.util.files import check_space, sync
from darrm.util.progress import StatusLine
from darrm.votes import Labels, Votes
from darrm.votes.labels_file import check_ids, labels_digest, load_labels, save_labels
from darrm.votes.parquet_file import SUFFIX as PARQUET
from darrm.votes.votes_file import check_new

LEAST_BYTES = 2**16  # for a receipt and a folder
_LONGEST_PREFIX = 100  # characters of the file's name


class FileDestination(Destination):
    """A new file of labels, with the ids of the votes and a receipt; ``line`` shows progress."""

    output: Path

    def __init__(
        self, output: str | os.PathLike[str], line: StatusLine | None = None, *, has_receipt: bool = True
    ) -> None:
        checks.file_name(output=output)
        self.output = Path(os.path.realpath(output))  # two links to one file must not be paid for twice
        self._line, self._has_receipt = line, has_receipt

    @contextmanager
    def prepare(self, votes: Votes | None = None) -> Iterator[None]:
        """Check the names, the space and that the folder takes files and links; make an empty temporary file."""
        path, self._ids = self.output, getattr(votes, "ids", None)
        check_new_labels(path)
        check_ids(path, self._ids)
        try:
            check_no_receipt(path)
        except ValueError:
            check_new(path)  # another release may have published labels and receipt since
            raise
        queries = getattr(votes, "queries", getattr(votes, "size", 0))
        check_space(path.parent, LEAST_BYTES + queries)  # text may be longer; its length depends on the votes
        with folder_beside(path) as folder:
            self._temporary = folder / f"labels{path.suffix}"
            self._temporary.touch()
            if path.suffix.lower() == PARQUET:
                require("pyarrow.parquet")  # before the debit
            check_links(self._temporary, self._temporary.with_stem("second-name"), path)
            yield

    def hand_over(self, ledger: PrivacyLedger, number: int, labels: Labels) -> None:
        """Publish the labels and their receipt."""
        self.publish(labels)
        self.confirm(ledger, number)

    def publish(self, labels: Labels) -> None:
        """Write the labels, and give the file its name."""
        self.write(self._temporary, labels)
        os.link(self._temporary, self.output)
        shutil.rmtree(self._temporary.parent, ignore_errors=True)  # before the ledger forgets the labels

    def write(self, path: Path, labels: Labels) -> None:
        """Write labels durably to a temporary file."""
        save_labels(path, labels, self._line, self._ids)

    def confirm(self, ledger: PrivacyLedger, number: int) -> None:
        """Let published labels and their name outlive a power failure, and write their receipt."""
        sync(self.output)
        sync(self.output.parent)
        if self._has_receipt:
            leave_receipt(ledger, number, self.output)


def check_new_labels(path: Path) -> None:
    """Raise `ValueError` unless ``path`` is a new file for labels; remove what killed processes left beside it."""
    remove_left(Path(os.path.realpath(path)))  # also where another process has published the labels
    check_new(path)


def receipt_path(output: Path) -> Path:
    """Return the path of the receipt of labels.

    >>> receipt_path(Path("labels.csv")).name
    'labels.csv.receipt.json'
    """
    return output.with_name(f"{output.name}.receipt.json")


def check_no_receipt(output: Path) -> None:
    """Raise `ValueError` if a receipt of other labels exists: it is evidence about their ledger."""
    if (path := receipt_path(output)).exists():
        raise ValueError(f"{str(path)!r} is the receipt of other labels: move it to these, or name another output")


def leave_receipt(ledger: PrivacyLedger, number: int, output: Path, files: Mapping[str, str] | None = None) -> None:
    """Publish the receipt of an entry with its labels, once; `ValueError` if another receipt exists."""
    path = receipt_path(output)
    drawn = {"files": dict(files)} if files else {}
    text = json.dumps({**ledger.receipt(number), **drawn}, indent=1, ensure_ascii=False)
    if path.is_file() and path.read_text(encoding="utf-8") == text:
        remove_left(output)  # of the process that left the receipt, and may have died before this
        sync(path)
        sync(path.parent)
        return
    check_no_receipt(output)
    with folder_beside(output) as folder:
        temporary = folder / "receipt.json"
        temporary.write_text(text, encoding="utf-8")
        sync(temporary)
        os.link(temporary, path)
        sync(path.parent)


@contextmanager
def folder_beside(path: Path) -> Iterator[Path]:
    """Create a locked temporary folder next to a file, and remove the folders of dead processes."""
    remove_left(path)
    while True:
        with (
            tempfile.TemporaryDirectory(prefix=_prefix_of(path), dir=path.parent, ignore_cleanup_errors=True) as folder,
            _locked(Path(folder)) as is_there,
        ):
            if is_there:  # else another process removed it before it was locked
                yield Path(folder)
                return


@contextmanager
def _locked(folder: Path) -> Iterator[bool]:
    """Lock a folder if it still exists; on a file system without locks, a killed process leaves its folder."""
    try:
        handle = os.open(folder, os.O_RDONLY)
    except FileNotFoundError:
        yield False
        return
    try:
        with suppress(OSError):
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield folder.is_dir()
    finally:
        os.close(handle)


def remove_left(path: Path) -> None:
    """Remove the temporary folders that killed processes left for a file of labels."""
    for folder in path.parent.glob(f"{glob.escape(_prefix_of(path))}*"):
        with suppress(OSError):  # locked, or no locks on this file system
            handle = os.open(folder, os.O_RDONLY | os.O_NOFOLLOW | os.O_DIRECTORY)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder)
            finally:
                os.close(handle)


def _prefix_of(path: Path) -> str:
    return f".labels-{path.name[:_LONGEST_PREFIX]}-"


def release_debited(
    aggregator: Aggregator,
    votes: Votes | ArrayLike,
    *,
    ledger: PrivacyLedger,
    note: str = "",
    output: str | os.PathLike[str] | None = None,
    line: StatusLine | None = None,
) -> Labels:
    """Release one label for each query; one debit for all of them precedes the first label.

    There is no ``rng``: a release never uses predictable draws.

    Parameters
    ----------
    aggregator, votes, ledger
        The mechanism, the votes on Q queries, and the ledger that pays.
    note
        Text for the ledger's log.
    output
        A new .npy, .csv or .parquet file for the labels, with the ids of the votes; None returns them only.
    line
        Shows progress.

    Returns
    -------
    labels
        (Q,) names of classes.

    Raises
    ------
    ValueError
        If the aggregator does not accept the votes, or ``output`` cannot be a new file; nothing is debited.
    BudgetExceededError, LedgerError
        If the budget does not admit the queries, or the ledger cannot be written; nothing is debited.
    DeliveryError
        If something failed after the debit: the message says where the labels are (`recover`).

    Examples
    --------
    >>> from darrm import Release, Problem, PrivacyLedger, PrivacyParams, Voters, Votes, certify
    >>> from darrm.majority import baselines
    >>> problem = Problem.from_allowance(Voters(3, PrivacyParams(0.1)), 3)
    >>> aggregator = Release(certify(problem, baselines.double_subsampling(problem)))
    >>> ledger = PrivacyLedger.create(":memory:", PrivacyParams(1))
    >>> release_debited(aggregator, Votes.of_labels([[1, 1, 0], [0, 0, 1]]), ledger=ledger, note="two questions")
    array([1, 0])
    """
    destination = Destination() if output is None else FileDestination(output, line)
    # the aggregator refuses objects that are not votes
    return deliver(aggregator, votes, ledger, destination, note=note, line=line)  # type: ignore[arg-type]


def check_links(file: Path, second: Path, output: Path) -> None:
    """Give a file a second name; `ValueError` if the file system of the output has no links."""
    try:
        os.link(file, second)
    except OSError as error:
        allowed = f"on a file system with hard links ({error.strerror})"
        checks.fail("output", str(output), allowed, "a link publishes labels without replacing a file; name another")


def recover(ledger: PrivacyLedger, number: int, output: str | os.PathLike[str]) -> Labels:
    """Write the labels of an entry that was paid for and not delivered, once, and pay nothing.

    Parameters
    ----------
    ledger
        The ledger that paid.
    number
        The entry, as `PrivacyLedger.undelivered` lists it.
    output
        A new .npy, .csv or .parquet file, or one that holds these labels already, because a process died after
        publishing. Labels are in the order of the queries, without ids.

    Returns the (Q,) labels.

    Raises
    ------
    ValueError
        If the entry is not undelivered, or ``output`` is another file.
    LedgerError
        If the ledger cannot be read or written: ``recover`` to the same output later.
    """
    check_ledger(ledger)
    return recover_to(FileDestination(output), ledger, number)


def recover_to(destination: FileDestination, ledger: PrivacyLedger, number: int) -> Labels:
    """Hand over the labels of an undelivered entry, unless they are already published; errors as `recover`."""
    path, labels = destination.output, ledger.kept_labels(number)
    meant = next(entry.output for entry in ledger.undelivered() if entry.number == number)
    if _holds(path, labels):
        destination.confirm(ledger, number)
    else:
        with destination.prepare():
            destination.hand_over(ledger, number, labels)
    ledger.forget_labels(number)
    for left in {path, Path(meant)} if meant else {path}:
        remove_left(left)
    return labels


def _holds(path: Path, labels: Labels) -> bool:
    try:
        return path.is_file() and labels_digest(load_labels(path)) == labels_digest(labels)
    except ValueError:
        return False
