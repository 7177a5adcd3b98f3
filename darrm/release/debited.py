"""Labels in memory or in a new .npy or .csv file, and the recovery of those that were not delivered.

What `darrm.release.delivery` asks of a sink, a file keeps so: (i) before the debit a temporary file is made and linked
beside the output, without a byte in it; (ii) the labels are written and synced under the temporary name, and published
by a link, which cannot replace a file, and the folder is synced; (iii) they are those that the ledger keeps. `recover`
writes these, and where a process died after it had published them, finds the file, byte for byte what it would write.
A receipt is published beside them in the same way, after them and before the ledger forgets them.
"""

import fcntl
import filecmp
import glob
import json
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from numpy.typing import ArrayLike

from darrm.account.ledger import PrivacyLedger
from darrm.aggregator import Aggregator
from darrm.errors import checks
from darrm.release.delivery import Delivery, Sink, check_ledger
from darrm.system.files import sync
from darrm.system.progress import StatusLine
from darrm.system.votes_file import check_new, save_labels
from darrm.votes import Labels, Votes

_LONGEST_PREFIX = 100  # characters of a name in that of the folder beside it
_SECONDS_TO_LOCK = 2.0  # a folder of another process may not be locked yet


class LabelsFile(Sink):
    """A new file of labels; ``line`` shows how many are written."""

    def __init__(self, output: str | os.PathLike[str], line: StatusLine | None = None) -> None:
        checks.file_name(output=output)
        self.output: Path = Path(os.path.realpath(output))  # one name, so that two links are not paid for twice
        self.line = line

    @contextmanager
    def prepared(self) -> Iterator[Callable[[Labels], None]]:
        """Yield what publishes labels, after the folder was seen to take files and links."""
        path = self.output
        check_new(path)
        check_no_receipt(path)
        with _folder_beside(path) as folder:
            temporary = folder / f"labels{path.suffix}"
            temporary.touch()
            check_links(temporary, temporary.with_stem("second-name"), path)

            def publish(labels: Labels) -> None:
                save_labels(temporary, labels, self.line)
                os.link(temporary, path)
                shutil.rmtree(folder, ignore_errors=True)  # before the ledger forgets: who dies now is recovered
                sync(path.parent)

            yield publish

    def leave_receipt(self, ledger: PrivacyLedger, number: int) -> None:
        """Leave a receipt beside the file."""
        leave_receipt(ledger, number, self.output)


def receipt_path(output: Path) -> Path:
    """Return where the receipt of labels stands.

    >>> receipt_path(Path("labels.csv")).name
    'labels.csv.receipt.json'
    """
    return output.with_name(f"{output.name}.receipt.json")


def check_no_receipt(output: Path) -> None:
    """Raise `ValueError` where a receipt of other labels stands: it is a proof about their ledger, and never lost."""
    if (path := receipt_path(output)).exists():
        raise ValueError(f"{str(path)!r} is the receipt of other labels: move it to these, or name another output")


def leave_receipt(ledger: PrivacyLedger, number: int, output: Path, files: Mapping[str, str] | None = None) -> None:
    """Publish the receipt of an entry beside its labels, once; `ValueError` where another one stands."""
    path = receipt_path(output)
    drawn = {"files": dict(files)} if files else {}
    text = json.dumps({**ledger.receipt(number), **drawn}, indent=1, ensure_ascii=False)
    if path.is_file() and path.read_text(encoding="utf-8") == text:
        sync(path)  # whoever left it may have died before this
        sync(path.parent)
        return
    check_no_receipt(output)
    with _folder_beside(output) as folder:
        temporary = folder / "receipt.json"
        temporary.write_text(text, encoding="utf-8")
        sync(temporary)
        os.link(temporary, path)
        sync(path.parent)


@contextmanager
def _folder_beside(path: Path) -> Iterator[Path]:
    """Make a folder that is locked while this process lives, and remove those that dead ones left for the same file."""
    remove_left(path)
    prefix = _prefix_of(path)
    with tempfile.TemporaryDirectory(prefix=prefix, dir=path.parent, ignore_cleanup_errors=True) as folder:
        handle = os.open(folder, os.O_RDONLY)
        try:
            with suppress(OSError):  # a file system without locks: whoever is killed leaves the folder
                fcntl.flock(handle, fcntl.LOCK_EX)
            yield Path(folder)
        finally:
            os.close(handle)


def remove_left(path: Path) -> None:
    """Remove the folders beside a file of labels that no process holds, as one that was killed leaves them."""
    for folder in path.parent.glob(f"{glob.escape(_prefix_of(path))}*"):
        with suppress(OSError):  # somebody holds it, or the file system has no locks
            handle = os.open(folder, os.O_RDONLY | os.O_NOFOLLOW | os.O_DIRECTORY)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if time.time() - folder.stat().st_mtime > _SECONDS_TO_LOCK:
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
    """Release one label for each query, with the ledger debited for all at once before a label leaves.

    Nothing is paid for predictable draws, so there is no ``rng``.

    Parameters
    ----------
    aggregator
        What answers.
    votes
        The votes on Q queries.
    ledger
        What pays.
    note
        The caller's words for the ledger's log.
    output
        A new .npy or .csv file that the labels are written to as well; None hands them over in memory only.
    line
        Where to show progress.

    Returns
    -------
    labels
        (Q,) names of classes.

    Raises
    ------
    ValueError
        If the votes are not what the aggregator takes, ``ledger`` is none, or ``output`` cannot be a new file; nothing
        is debited.
    BudgetExceededError
        If the budget does not admit so many queries; nothing is debited, the labels are discarded.
    LedgerError
        If the ledger cannot be written; nothing is debited, the labels are discarded.
    PaidError
        If anything failed, or was interrupted, after the debit: the labels wait in the ledger for `recover`, or are in
        the output; the message says where.

    Examples
    --------
    >>> from darrm import Release, Problem, PrivacyLedger, PrivacyParams, Voters, Votes, certify
    >>> from darrm.laws import baselines
    >>> problem = Problem.from_allowance(Voters(3, PrivacyParams(0.1)), 3)
    >>> aggregator = Release(certify(problem, baselines.double_subsampling(problem)))
    >>> ledger = PrivacyLedger.create(":memory:", PrivacyParams(1))
    >>> release_debited(aggregator, Votes.of_labels([[1, 1, 0], [0, 0, 1]]), ledger=ledger, note="two questions")
    array([1, 0])
    >>> round(ledger.spent.epsilon, 12)
    0.6
    """
    sink = Sink() if output is None else LabelsFile(output, line)
    return Delivery(aggregator, ledger, note, line).deliver(votes, sink)  # type: ignore[arg-type]  # refused if none


def check_links(file: Path, second: Path, output: Path) -> None:
    """Give a file a second name; `ValueError` where the file system of the output has no links."""
    try:
        os.link(file, second)
    except OSError as error:
        allowed = f"on a file system with hard links ({error.strerror})"
        checks.fail("output", str(output), allowed, "a link publishes labels without replacing a file; name another")


def recover(ledger: PrivacyLedger, number: int, output: str | os.PathLike[str]) -> Labels:
    """Write the labels of an entry that was paid for and not delivered, once, and pay nothing.

    Where ``output`` holds these very labels already (a process died between publishing and saying so), it is left.

    Parameters
    ----------
    ledger
        What paid.
    number
        The entry, as `PrivacyLedger.undelivered` lists it.
    output
        A new .npy or .csv file.

    Returns
    -------
    labels
        (Q,) as they were drawn.

    Raises
    ------
    ValueError
        If the entry is not an undelivered one, or ``output`` is another file.
    LedgerError
        If the ledger cannot be read or written; the labels stay in it, or, if they were published, can be delivered
        to the same output again.
    """
    check_ledger(ledger)
    path, labels = Path(output), ledger.kept_labels(number)
    meant = next(entry.output for entry in ledger.undelivered() if entry.number == number)
    if _holds(path, labels):
        sync(path)
        sync(path.parent)
    else:
        with LabelsFile(path).prepared() as publish:
            publish(labels)
    leave_receipt(ledger, number, path)
    ledger.forget_labels(number)
    for left in {path, Path(meant)} if meant else {path}:
        remove_left(left)
    return labels


def _holds(path: Path, labels: Labels) -> bool:
    if not path.is_file():
        return False
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        again = Path(folder) / f"labels{path.suffix}"
        save_labels(again, labels)
        return filecmp.cmp(path, again, shallow=False)
