"""Releases that are paid for, and labels that are not lost: draw, pay and keep, deliver, forget.

The order is one, in Python and on the command line:

1. The output's folder is tried: a temporary file is made and linked there, without a byte in it.
2. The labels are drawn, in memory. Bad votes raise here, and nothing is paid.
3. One transaction of the ledger debits them and keeps them. Nothing drawn is on a disk before.
4. They are written and synced under the temporary name, and published by a link, which cannot replace a file.
5. They leave the ledger.

*Theorem.* A process that dies at any moment leaves no labels without their debit, and no debit whose labels are neither
at their output nor in the ledger. *Proof.* Labels reach a file in step 4 only, after the commit of step 3. The commit
is atomic and durable: it holds the debit and the labels, or neither. They leave the ledger in step 5 only, after step 4
made file and name durable. A death between 4 and 5 leaves the same labels in both: `recover` finds the file, byte for
byte what it would write, makes it durable and does step 5. ∎

Labels that are returned in memory count as delivered when `release_debited` returns: from then on they are the caller's
to lose. Whoever wants them to outlive the process names an output.
"""

import filecmp
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from numpy.typing import ArrayLike, NDArray

from darrm import checks
from darrm.account.ledger import PrivacyLedger, reason_of
from darrm.aggregator import Aggregator
from darrm.errors import PaidError
from darrm.system.progress import StatusLine
from darrm.system.votes_file import check_new, save_labels
from darrm.votes import Votes


def release_debited(
    aggregator: Aggregator,
    votes: Votes | ArrayLike,
    *,
    ledger: PrivacyLedger,
    note: str = "",
    output: str | os.PathLike[str] | None = None,
    line: StatusLine | None = None,
) -> NDArray[Any]:
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
    >>> from darrm import DaRRM, Problem, PrivacyLedger, PrivacyParams, Voters, Votes, certify
    >>> from darrm.laws import baselines
    >>> problem = Problem.from_allowance(Voters(3, PrivacyParams(0.1)), 3)
    >>> aggregator = DaRRM(certify(problem, baselines.double_subsampling(problem)))
    >>> ledger = PrivacyLedger.create(":memory:", PrivacyParams(1))
    >>> release_debited(aggregator, Votes.of_labels([[1, 1, 0], [0, 0, 1]]), ledger=ledger, note="two questions")
    array([1, 0])
    >>> round(ledger.spent.epsilon, 12)
    0.6
    """
    check_ledger(ledger)
    check_aggregator(aggregator)
    if output is not None:
        checks.file_name(output=output)
    # one name for one file, so that two links to a folder are not paid for twice
    path = None if output is None else Path(os.path.realpath(output))
    paid = False

    def hand_over() -> None:
        nonlocal paid
        paid = True
        deliver(labels)

    try:
        with _prepared(path, line) as deliver:
            labels = aggregator.release(votes)  # type: ignore[arg-type]  # the aggregator converts or refuses an array
            if labels.size:
                charge = aggregator.charge(int(labels.size))
                if line is not None:
                    line.show(f"debiting {labels.size:,} queries")
                ledger.debit(charge, note=note, labels=labels, output=path, deliver=hand_over)
            elif path is not None:
                checks.fail(
                    "votes", checks.Found(f"{labels.size} queries"), "at least one query", "there is nothing to write"
                )
        return labels  # noqa: TRY300 (an interrupt here comes after the debit, too)
    except PaidError:
        raise
    except BaseException as error:
        if not paid:
            raise
        where = "" if path is None else f" and the labels are in {str(path)!r}"
        raise PaidError(ledger.path, f"{reason_of(error)}; the budget is spent{where}") from error


def recover(ledger: PrivacyLedger, number: int, output: str | os.PathLike[str]) -> NDArray[Any]:
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
    if _holds(path, labels):
        _sync(path)
        _sync(path.parent)
    else:
        with _prepared(path) as deliver:
            deliver(labels)
    ledger.forget_labels(number)
    return labels


def check_aggregator(aggregator: object) -> None:
    """Raise `ValueError` unless it releases and charges."""
    if isinstance(aggregator, type) or not (hasattr(aggregator, "release") and hasattr(aggregator, "charge")):
        advice = "it comes first, then the votes; darrm.mechanisms.files.load_release reads one from a file"
        checks.fail("aggregator", checks.Found(type(aggregator).__name__), "what releases, like DaRRM(table)", advice)


def check_ledger(ledger: object) -> None:
    """Raise `ValueError` for a release that nothing pays for."""
    if not isinstance(ledger, PrivacyLedger):
        advice = "open a file with PrivacyLedger(path), or make one with PrivacyLedger.create(path, budget)"
        checks.fail("ledger", ledger, "a PrivacyLedger", advice)


@contextmanager
def _prepared(path: Path | None, line: StatusLine | None = None) -> Iterator[Callable[[NDArray[Any]], None]]:
    """Yield what publishes labels at a new path, after its folder was seen to take files and links."""
    if path is None:
        yield lambda _: None
        return
    check_new(path)
    with tempfile.TemporaryDirectory(prefix=".labels-", dir=path.parent, ignore_cleanup_errors=True) as folder:
        temporary = Path(folder) / f"labels{path.suffix}"
        temporary.touch()
        try:
            os.link(temporary, temporary.with_stem("second-name"))
        except OSError as error:
            allowed = f"on a file system with hard links ({error.strerror})"
            checks.fail("output", str(path), allowed, "a link publishes labels without replacing a file; name another")

        def publish(labels: NDArray[Any]) -> None:
            save_labels(temporary, labels, line)
            os.link(temporary, path)
            _sync(path.parent)

        yield publish


def _holds(path: Path, labels: NDArray[Any]) -> bool:
    """Return whether a file exists and is what these labels are written as."""
    if not path.is_file():
        return False
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        again = Path(folder) / f"labels{path.suffix}"
        save_labels(again, labels)
        return filecmp.cmp(path, again, shallow=False)


def _sync(path: Path) -> None:
    """Make a file, or the names in a folder, outlive a power failure."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
