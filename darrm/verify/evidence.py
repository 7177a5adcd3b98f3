"""What each file that an auditor was given is: found out from its first bytes, never from its name alone.

A folder stands for the files in it and below it, but for hidden ones. What is given by its name must be understood, or
is an error; what lies in a folder may be anything, and is listed as not judged, with the reason.
"""

import hashlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import filterfalse, groupby
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from darrm.account.moving import copy_of
from darrm.account.store import is_url
from darrm.errors import checks
from darrm.mechanisms.noisy_maximum import FORMAT
from darrm.pate import tested
from darrm.pate.publication import FORMAT as SANITIZED
from darrm.proof.evidence import BY_FORMAT
from darrm.system.extras import require
from darrm.system.files import check_regular, parse_json
from darrm.system.votes_file import SUFFIXES, LabelsFile, read_labels
from darrm.verify.chain import HEAD, is_receipt
from darrm.verify.ledger import BESIDE, ledger_files

ROLES = ("release", "ledger", "labels", "receipt", "notes", "estimator", "figure")
RELEASE, LEDGER, LABELS, RECEIPT, NOTES, ESTIMATOR, FIGURE = ROLES
OTHER = "other"
_MOST_BYTES = 2**30  # of a file that is read whole; tables hold kilobytes
_MOST_FILES = 10_000  # of a folder
_PARTITION, _LABEL = ".parquet", "label"
_SQLITE, _ZIP, _PARQUET = b"SQLite format 3\x00", b"PK\x03\x04", b"PAR1"
_RELEASES = {FORMAT, tested.FORMAT, *BY_FORMAT}
CARD = b"# Model card: "
_VOTERS_HEAD = b"name,epsilon,delta"
_REPORTS = "it is what a command printed, and repeats what other files claim"
_KEY, _BESIDE = b"-----BEGIN PUBLIC KEY-----", "a key beside what it is to prove proves nothing: say --public-key"
_PRIVATE = "it is private data: what darrm pate computed from the votes, and not to be handed on"
_ABSENT = "give a table, a mechanism (plan.json), a ledger, labels, an estimator, or a folder that holds them"
Sealed = tuple[str, int, str]  # the end of a name, the size in bytes, the SHA-256


@dataclass(frozen=True, eq=False)
class Piece:
    """One file: what it is, and what it holds."""

    role: str
    path: str
    parts: tuple[tuple[str, bytes], ...] = ()  # what stands in it, and beside it by the end of its name
    sealed: tuple[Sealed, ...] = ()  # of Parquet files, which are not held
    labels: LabelsFile | None = None
    reason: str = ""  # why it is not judged

    @property
    def digests(self) -> tuple[Sealed, ...]:
        """The size and the SHA-256 of each of its files."""
        held = ((end, len(content), hashlib.sha256(content).hexdigest()) for end, content in self.parts)
        return self.sealed or tuple(held)

    @property
    def content(self) -> bytes:
        """What stands in it."""
        return self.parts[0][1]


def pieces_of(paths: Sequence[Path | str]) -> Iterator[Piece]:
    """Read files, folders and the URLs of ledgers; `ValueError` or `OSError` for what is named and cannot be used."""
    if not paths:
        checks.fail("PATH", checks.Found("nothing"), "a file or a folder", _ABSENT)
    read = set[str]()
    yield from (Piece(LEDGER, str(url), (("", copy_of(str(url))),)) for url in dict.fromkeys(filter(is_url, paths)))
    for path in map(Path, filterfalse(is_url, paths)):
        if path.is_dir():
            entries = sorted(part for part in path.rglob("*") if not _hidden(part, path))
            inside = [part for part in entries if part.is_file()]
            yield from (
                _odd(part) for part in entries if not part.is_file() and (part.is_symlink() or not part.is_dir())
            )
            if not inside or len(inside) > _MOST_FILES:
                found = checks.Found(f"{len(inside):,} files")
                checks.fail(f"folder {str(path)!r}", found, f"one of 1 to {_MOST_FILES:,} files", _ABSENT)
            inside = [part for part in inside if _real(part) not in read and not part.name.endswith(BESIDE)]
            read |= {_real(part) for part in inside}
            for folder, parts in groupby(inside, key=lambda part: (part.parent, part.suffix == _PARTITION)):
                alike = list(parts)
                yield from [_of_partitions(folder[0], alike)] if folder[1] else map(_of_folder, alike)
        elif _real(path) not in read:
            read.add(_real(path))
            yield _named(path)


def _odd(path: Path) -> Piece:
    reason = "it is a link to a folder, or to nothing" if path.is_symlink() else "it is no regular file"
    return Piece(OTHER, str(path), reason=f"{reason}: give what it leads to by its name")


def _real(path: Path) -> str:
    return os.path.realpath(path)


def _hidden(path: Path, folder: Path) -> bool:
    return any(part.startswith(".") for part in path.relative_to(folder).parts)


def _of_folder(path: Path) -> Piece:
    try:
        return _named(path)
    except (ValueError, OSError) as error:
        return Piece(OTHER, str(path), reason=str(error))  # no digest: nothing of it was read


def _named(path: Path) -> Piece:
    check_regular(path, _MOST_BYTES)
    with path.open("rb") as file:
        start = file.read(len(_SQLITE))
    if start == _SQLITE:
        return Piece(LEDGER, str(path), tuple(ledger_files(path).items()))
    if start.startswith(_PARQUET):
        return Piece(LABELS, str(path), sealed=(_sealed(path, ""),), labels=_of_parquet(path))
    if path.suffix in SUFFIXES:
        content = path.read_bytes()
        if content.removeprefix(b"\xef\xbb\xbf").startswith(_VOTERS_HEAD):
            return Piece(OTHER, str(path), (("", content),), reason="it names voters: give it with --voters")
        return Piece(LABELS, str(path), (("", content),), labels=read_labels(path))
    content = path.read_bytes()
    if start.startswith(_ZIP):
        return Piece(ESTIMATOR, str(path), (("", content),))
    return _of_text(path, content)


def _of_text(path: Path, content: bytes) -> Piece:
    parts = (("", content),)
    if is_receipt(content):
        return Piece(RECEIPT, str(path), parts)
    try:
        data = parse_json(content.decode("utf-8-sig"))
    except ValueError as error:
        if path.suffix == ".json":
            raise ValueError(
                f"{str(path)!r} holds no JSON: {error}; wanted is what --output of optimize or plan wrote"
            ) from error
        if HEAD.encode() in content or CARD in content:  # a model card, a report, or a head that somebody kept
            return Piece(NOTES, str(path), parts)
        known = _BESIDE if content.startswith(_KEY) else f"nothing is known of such files; {_ABSENT}"
        return Piece(OTHER, str(path), parts, reason=known)
    if not isinstance(data, dict):
        raise ValueError(f"{str(path)!r} holds no JSON object")  # noqa: TRY004 (a bad file, not a bad type)
    named = data.get("format")
    if named is None and {"warning", "table_1"} <= data.keys():
        return Piece(OTHER, str(path), parts, reason=_PRIVATE)
    if named in _RELEASES or "checksum" in data or not isinstance(named, str):
        return Piece(RELEASE, str(path), parts)
    return Piece(FIGURE if named == SANITIZED else OTHER, str(path), parts, reason=f"{_REPORTS} (format {named!r})")


def _of_partitions(folder: Path, paths: Sequence[Path]) -> Piece:
    sealed = tuple(_sealed(path, f"/{path.name}") for path in paths)
    try:
        labels = LabelsFile(np.concatenate([_of_parquet(path).labels for path in paths]))
    except (ValueError, OSError) as error:
        return Piece(OTHER, str(folder), sealed=sealed, reason=str(error))
    return Piece(LABELS, str(folder), sealed=sealed, labels=labels)


def _sealed(path: Path, end: str) -> Sealed:
    with path.open("rb") as file:
        return end, path.stat().st_size, hashlib.file_digest(file, "sha256").hexdigest()


def _of_parquet(path: Path) -> LabelsFile:
    file_of, failed = require("pyarrow.parquet").ParquetFile, require("pyarrow").lib.ArrowException
    try:
        file = file_of(path)
        names = file.schema_arrow.names
        name = _LABEL if _LABEL in names else names[-1]
        columns = [batch.column(0) for batch in file.iter_batches(columns=[name])]
        if str(file.schema_arrow.field(name).type) == "string":  # of open answers null is no answer
            columns = [column.fill_null("") for column in columns]
        if any(column.null_count for column in columns):
            raise ValueError("there are rows without a label")  # noqa: TRY301 (as of damaged files)
        parts = [_narrow(column.to_numpy(zero_copy_only=False)) for column in columns]
    except (failed, IndexError, ValueError) as error:  # of damaged files, and of columns of lists
        raise ValueError(f"{str(path)!r} holds no labels: {error}") from error
    return LabelsFile(np.concatenate(parts) if parts else np.empty(0, dtype=np.int64))


def _narrow(values: NDArray[Any]) -> NDArray[Any]:
    if values.dtype.kind not in "iu":
        return values.astype(str)
    low, high = int(values.min(initial=0)), int(values.max(initial=0))
    return values.astype(np.result_type(np.min_scalar_type(low), np.min_scalar_type(high)))
