"""The claims of a file of labels: that they were paid for, with this table, and are what was paid for."""

import io
import tokenize
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from darrm import checks
from darrm.proof.table import GammaTable
from darrm.system.votes_file import SUFFIXES, labels_digest
from darrm.verify.ledger import LedgerCopy, labels_of, table_of
from darrm.verify.verdicts import CLAIMED, PROVED, Verdict, judged

_LABELS = "labels"
_CLASSES = 2  # of a majority
# what numpy may raise or warn of when a header is not one
_NO_ARRAY = (
    ValueError,
    EOFError,
    SyntaxError,
    TypeError,
    ArithmeticError,
    MemoryError,
    RecursionError,
    OSError,
    Warning,
)


def read_labels(path: Path, content: bytes) -> NDArray[Any]:
    r"""Read labels as they were saved: a vector in an .npy file, or one label a line, in UTF-8, in a .csv file.

    `ValueError` if the file holds no such labels. Nothing is trimmed, so the digest is that of the very labels.

    >>> read_labels(Path("labels.csv"), b"yes\nno\n").tolist()
    ['yes', 'no']
    """
    suffix = path.suffix.lower()
    if suffix not in SUFFIXES:
        checks.fail("--labels", str(path), "a file that ends in .npy or .csv")
    if suffix == ".csv":
        text = content.decode("utf-8")
        if not text.endswith("\n"):
            raise ValueError(f"{str(path)!r} is cut short: its last line has no end")
        return np.array(text[:-1].split("\n"), dtype=object)  # words of numpy's own lose a zero byte at their end
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            labels = np.load(io.BytesIO(content), allow_pickle=False)
    except (*_NO_ARRAY, tokenize.TokenError) as error:
        raise ValueError(f"{str(path)!r} holds no labels: {error}") from error
    if not isinstance(labels, np.ndarray) or labels.ndim != 1 or labels.dtype.kind not in "biufU":
        raise ValueError(f"{str(path)!r} holds no vector of labels, one for each query")
    return labels


def judge_labels(
    labels: NDArray[Any], table: GammaTable | None, ledger: LedgerCopy | None, classes: tuple[str, ...] | None
) -> Iterator[Verdict]:
    """Judge every claim of released labels; ``classes`` names them where they have names."""
    names = sorted(set(map(str, labels.tolist())))
    allowed = f"of the classes {', '.join(classes)}" if classes else f"of {_CLASSES} classes"
    inside = set(names) <= set(classes) if classes else len(names) <= _CLASSES
    shown = f"the labels are {', '.join(map(repr, names[: _CLASSES + 1]))}{', …' if len(names) > _CLASSES + 1 else ''}"
    yield judged(_LABELS, f"all {labels.size} labels are {allowed}", shown, holds=inside)
    if ledger is None:
        yield Verdict(_LABELS, "they were paid for", CLAIMED, "--ledger says whether")
        return
    digest = labels_digest(labels)
    entries = ledger.entries
    if not any(map(labels_of, entries)):
        totals = {entry.count for entry in entries} | {sum(entry.count for entry in entries)}
        reason = f"{labels.size} labels; the ledger holds no digests, and counts {', '.join(map(str, sorted(totals)))}"
        yield judged(_LABELS, "as many were paid for as there are", reason, holds=labels.size in totals)
        return
    paid = [entry for entry in entries if labels_of(entry) == digest]
    found = f"their SHA-256 {digest} is that of {len(paid)} entries"
    yield judged(_LABELS, "they are the labels of a debit", found, holds=bool(paid), how=PROVED)
    if not paid:
        return
    counts = ", ".join(str(entry.count) for entry in paid)
    fits = any(entry.count == labels.size for entry in paid)
    yield judged(
        _LABELS, "as many were paid for as there are", f"{labels.size} labels, {counts} paid", holds=fits, how=PROVED
    )
    if table is not None:
        same = any(table_of(entry) == table.digest for entry in paid)
        reason = f"the debit holds {', '.join(sorted({table_of(entry) or 'no digest' for entry in paid}))}"
        yield judged(_LABELS, "they were drawn with this table", reason, holds=same)
