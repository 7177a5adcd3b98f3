"""Releases whose labels fit into no memory: one debit for all rows, then a draw for each file of votes, decided once.

Labels of 10⁸ rows cannot wait in a ledger. So the sink of `darrm.release.delivery` keeps a manifest in their place:

1. Survey: every file of votes (a *partition*) is read once. Its rows are counted, its votes checked, its digest taken.
   Nothing is drawn, and bad votes raise here.
2. A private folder is made beside the output, the *staging*, which only its owner can enter. It is tried with a link,
   and the *manifest* is written into it: what is drawn for what, and from which bytes.
3. The ledger debits all rows, and keeps the release's name and the SHA-256 of the manifest.
4. Each partition is drawn by one or more *attempts*. An attempt reads it in batches, writes labels to a file of its own
   in the staging, makes it durable, and *decides*: it links the file to the partition's name in the staging. A link
   never replaces a file, so the first attempt decides and later ones discard what they drew. When all are decided they
   are published together, by one rename of their folder (a single file by a link), and the staging is removed.
5. A receipt is left beside the output, and the ledger forgets the manifest: it keeps the digest of every file.

*Why this is what a sink owes*, however attempts end, repeat and overlap. (i) Attempts read the manifest, whose digest
they are handed after the debit, and draw at most as many labels as it has rows. (ii) The only names outside the staging
are made from decided files, which were linked after their last byte was durable. (iii) A decided file is never
replaced, for only links make names there; a row stands at one place of one partition, the digest of whose votes was
compared while drawing. The manifest and every decided file are durable, so `recover_partitions` draws what is not
decided, which was paid for, and publishes; where the output carries the release's name already, only step 5 is left. ∎

*What the privacy of a row rests on.* A reader learns one draw for each row, and the debit is of one. What an attempt
drew that decided nothing is never seen: it stood in the memory of a worker and, under a temporary name, in the staging.
So the argument needs two things that software cannot check: nobody reads the staging who may not see the votes, and
whether an attempt is lost depends on machines, not on what it drew (an operator who kills attempts until he likes the
labels chooses them). To the latter end files of numbers have a size that does not depend on the labels.

Of the votes the ledger holds nothing. The digests in the manifest, from which votes could be guessed back, stand in
the staging; the manifest's own digest, in the ledger, is one of a random number, too.
"""

import errno
import hashlib
import json
import os
import secrets
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from functools import cached_property, lru_cache
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypedDict, Unpack

from darrm.account.ledger import PrivacyLedger
from darrm.aggregator import Aggregator
from darrm.errors import LedgerError, PaidError, checks
from darrm.pate.files import Released, document_of, release_of
from darrm.problem import OPEN, is_open
from darrm.release.debited import check_links, check_no_receipt, leave_receipt
from darrm.release.delivery import Delivery, HandOver, Sink, check_by_query, check_ledger
from darrm.release.engine import Advance, Engine, engine_of
from darrm.system.answers import name_of
from darrm.system.extras import Untyped
from darrm.system.files import sync
from darrm.system.parquet_file import (
    SUFFIX,
    Layout,
    Stamp,
    check_absent,
    check_types,
    kept_types,
    label_file,
    layout_of,
    partitions_of,
    release_and_rows,
    stamp_of,
)
from darrm.system.progress import StatusLine
from darrm.system.vote_arrays import ABSTAIN, FORMATS, Classes, check_open, class_names
from darrm.system.votes_file import SUFFIXES
from darrm.votes import vote_batches

_FORMAT = "darrm-partitions"
_MANIFEST, _DECIDED, _DRAWING = "manifest.json", "labels", "drawing"  # what stands in the staging
_TAKEN = (errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR, errno.ENOENT)  # why a name cannot be given


@dataclass(frozen=True)
class Partition:
    """One file of votes: its name in the source, its rows, its bytes, the types of its columns."""

    name: str
    rows: int
    stamp: Stamp
    types: tuple[str, ...]


@dataclass(frozen=True)
class Manifest:
    """What is drawn, for what, from which bytes; written before the debit and never changed."""

    release: str  # its name, random and public: each file of labels carries it
    source: str  # the folder that the names of partitions are relative to
    single: bool  # whether one file was given, and one is published
    layout: Layout  # what the columns are
    partitions: tuple[Partition, ...]  # every file of votes
    document: dict[str, Any]  # what releases, as its file holds it
    salt: str  # a random number, so that the digest tells nothing of what is in it

    @property
    def rows(self) -> int:
        """How many rows all partitions have."""
        return sum(partition.rows for partition in self.partitions)

    @cached_property
    def aggregator(self) -> Released:
        """What releases: a table is proved again."""
        return release_of(self.document)

    def to_bytes(self) -> bytes:
        """Return the manifest as its file holds it."""
        return json.dumps({"format": _FORMAT, "darrm": version("darrm"), **asdict(self)}, indent=1).encode()

    @classmethod
    def from_bytes(cls, content: bytes) -> "Manifest":
        """Read what `to_bytes` wrote."""
        data = json.loads(content)
        if data.pop("format") != _FORMAT or data.pop("darrm") != version("darrm"):
            advice = "go on with the darrm that began it, here and on every worker"
            checks.fail("a release", checks.Found("one of another"), f"of darrm {version('darrm')}", advice)
        layout: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value for name, value in data["layout"].items()
        }
        partitions = tuple(
            Partition(**{**each, "stamp": Stamp(**each["stamp"]), "types": tuple(each["types"])})
            for each in data["partitions"]
        )
        return cls(**{**data, "layout": Layout(**layout), "partitions": partitions})


@dataclass(frozen=True)
class ReleasedPartitions:
    """What was released."""

    output: Path  # the file or the folder of labels
    rows: int  # how many labels it holds
    files: int  # in how many files


class Reading(TypedDict, total=False):
    """How `release_partitions` reads files of votes.

    Attributes
    ----------
    classes
        What the classes are called, their number, or "open"; by default that of the aggregator.
    normalize, missing
        What is done to open answers before they are counted, in words, as in `Votes.of_answers`, and about those that
        are missing.
    votes_format
        ``"labels"`` (a column a voter), ``"counts"`` (a column a class), or ``"auto"``: the number of columns says it.
    columns
        Those that hold votes; by default all that are not kept.
    keep
        Columns that are copied beside the labels. They are published, and no guarantee covers them.
    """

    classes: Classes
    normalize: str | None
    missing: str
    votes_format: str
    columns: Iterable[str] | None
    keep: Iterable[str]


def release_partitions(
    aggregator: Aggregator,
    source: str | os.PathLike[str],
    *,
    ledger: PrivacyLedger,
    output: str | os.PathLike[str],
    note: str = "",
    cluster: Untyped = None,
    line: StatusLine | None = None,
    **reading: Unpack[Reading],
) -> ReleasedPartitions:
    """Release one label for each row of Parquet files, with one debit for all rows, in bounded memory.

    Parameters
    ----------
    aggregator
        What answers: one that has a file format (`darrm.pate.files.document_of`).
    source
        A Parquet file, or a folder of them that is read recursively: one row a query.
    ledger
        What pays.
    output
        A new file for a file, a new folder for a folder, on the file system of its parent.
    note
        The caller's words for the ledger's log.
    cluster
        The address of a Dask scheduler, or a `distributed.Client`; None works here. The workers see the same files.
    line
        Where to show progress.
    **reading
        What `Reading` says, which are the columns and what they hold.

    Raises
    ------
    ValueError
        If the files hold no votes that the aggregator takes, or the output cannot be made; nothing is debited.
    BudgetExceededError
        If the budget does not admit so many rows; nothing is debited or drawn.
    LedgerError
        If the ledger cannot be written; nothing is debited or drawn.
    PaidError
        If anything failed after the debit: `recover_partitions` goes on, and pays nothing.
    """
    check_ledger(ledger)
    manifest = survey(aggregator, source, output, cluster=cluster, line=line, **reading)
    return release_surveyed(manifest, Delivery(aggregator, ledger, note, line), output, cluster=cluster)


def survey(
    aggregator: Aggregator,
    source: str | os.PathLike[str],
    output: str | os.PathLike[str],
    *,
    cluster: Untyped = None,
    line: StatusLine | None = None,
    **reading: Unpack[Reading],
) -> Manifest:
    """Read all votes once and return what would be released; nothing is drawn. See `release_partitions`."""
    if unknown := sorted(reading.keys() - Reading.__annotations__.keys()):
        raise TypeError(f"release_partitions() got an unexpected keyword argument {unknown[0]!r}")
    checks.file_name(source=source, output=output)
    root, target = Path(os.path.realpath(source)), _real(output)
    document = document_of(aggregator)
    check_by_query(aggregator)
    single = not root.is_dir()
    _check_names(root, target, single=single)
    names = partitions_of(root)
    folder = root.parent if single else root
    voters, number = aggregator.voters, aggregator.classes  # type: ignore[attr-defined]  # what has a document
    layout = _layout_of(folder / names[0], voters.K, number, **reading)
    with engine_of(cluster) as engine, _progress(line, "checking votes") as advance:
        tasks = [(str(folder), name, layout) for name in names]
        partitions = tuple(engine.run(_inspect, tasks, advance))
    _check_alike(partitions)
    release, salt = secrets.token_hex(8), secrets.token_hex(32)
    return Manifest(release, str(folder), single, layout, partitions, document, salt)


def _layout_of(path: Path, K: int, number: int, **reading: Unpack[Reading]) -> Layout:
    classes, columns, normalize = reading.get("classes"), reading.get("columns"), reading.get("normalize")
    classes, missing = number if classes is None else classes, reading.get("missing", "refuse")
    if (OPEN if is_open(classes) else classes if isinstance(classes, int) else len(classes)) != number:
        checks.fail(
            "classes", classes, repr(OPEN) if is_open(number) else f"{number} different labels, or their number"
        )
    if normalize is not None:
        checks.instance(str, normalize=normalize, advice="a function of yours does not stand in the manifest")
    votes_format = reading.get("votes_format", "auto")
    checks.one_of(FORMATS, votes_format=votes_format)
    check_open(classes, votes_format, missing, normalize)
    if missing == "coin":
        checks.fail("missing", missing, "'refuse' for .parquet files", "leave such rows out")
    layout = layout_of(
        path,
        () if is_open(classes) else class_names(classes),
        K,
        votes_format=votes_format,
        columns=None if columns is None else tuple(columns),
        keep=tuple(reading.get("keep", ())),
    )
    return replace(layout, normalize=normalize, missing=missing)


def _check_alike(partitions: tuple[Partition, ...]) -> None:
    for partition in partitions:
        if partition.types != partitions[0].types:
            other = checks.Found(f"{partition.name!r} with other types than {partitions[0].name!r}")
            checks.fail("partitions", other, "of the same columns and types", "write them alike")
    if not any(partition.rows for partition in partitions):
        checks.fail("votes", checks.Found("no rows"), "at least one query", "there is nothing to write")


def release_surveyed(
    manifest: Manifest,
    delivery: Delivery,
    output: str | os.PathLike[str],
    *,
    cluster: Untyped = None,
) -> ReleasedPartitions:
    """Debit and release what was surveyed; see `release_partitions`."""
    sink = Staged(manifest, _real(output), cluster, delivery.line)
    delivery.deliver_later(manifest.rows, sink, name_of(manifest.layout.normalize))
    return ReleasedPartitions(sink.output, manifest.rows, len(manifest.partitions))


class Staged(Sink):
    """A new file or folder of labels, which are drawn in a staging beside it."""

    def __init__(self, manifest: Manifest, output: Path, cluster: object, line: StatusLine | None) -> None:
        self.output: Path = output
        self.document, self.cluster, self.line = manifest, cluster, line
        digest = hashlib.sha256(manifest.to_bytes()).hexdigest()
        self.manifest = json.dumps({"format": _FORMAT, "release": manifest.release, "manifest": digest}).encode()

    @contextmanager
    def prepared(self) -> Iterator[HandOver]:
        """Make the staging, which every worker reads; yield what draws and publishes."""
        with engine_of(self.cluster) as engine, _staged(self.document, self.output) as (staging, digest):
            engine.check(_manifest, str(staging), digest)
            yield lambda _: _finish(engine, self.document, staging, digest, self.output, self.line)

    def leave_receipt(self, ledger: PrivacyLedger, number: int) -> Mapping[str, str]:
        """Leave a receipt beside the file or the folder; return the digest of each file."""
        files = _digests(self.output)
        leave_receipt(ledger, number, self.output, files)
        return files


def recover_partitions(
    ledger: PrivacyLedger,
    number: int,
    output: str | os.PathLike[str],
    *,
    cluster: Untyped = None,
    line: StatusLine | None = None,
) -> ReleasedPartitions:
    """Go on with a release that was paid for and did not end: draw what is not decided, publish, pay nothing.

    Parameters
    ----------
    ledger
        What paid.
    number
        The entry, as `PrivacyLedger.undelivered` lists it.
    output
        The file or folder that it is for, with the staging beside it.
    cluster, line
        As in `release_partitions`.

    Raises
    ------
    ValueError
        If the entry is not such a release, its staging is gone, or votes changed since they were surveyed.
    LedgerError
        If the ledger cannot be read or written.
    """
    check_ledger(ledger)
    target, (release, digest) = _real(output), _of_entry(ledger, number)
    (rows,) = (entry.count for entry in ledger.undelivered() if entry.number == number)
    staging = _staging(target, release)
    if files := _published(target, release, rows):
        sync(target.parent)
        shutil.rmtree(staging, ignore_errors=True)
    else:
        manifest = _recovered(staging, digest, number)
        files = len(manifest.partitions)
        with engine_of(cluster) as engine:
            engine.check(_manifest, str(staging), digest)
            _finish(engine, manifest, staging, digest, target, line)
    digests = _digests(target)
    leave_receipt(ledger, number, target, digests)
    ledger.forget_labels(number, digests)
    return ReleasedPartitions(target, rows, files)


def _real(output: str | os.PathLike[str]) -> Path:
    # of a link to its folder, not of what stands at the name itself
    return Path(os.path.realpath(Path(output).parent)) / Path(output).name


def _check_names(source: Path, target: Path, *, single: bool) -> None:
    if single and (target.suffix.lower() != SUFFIX or source.suffix.lower() != SUFFIX):
        checks.fail("the output", str(target), "a file that ends in .parquet", "one file of votes makes one of labels")
    if target.suffix.lower() in SUFFIXES:
        checks.fail("the output", str(target), "a folder", "a folder of votes makes a folder of labels")
    if source == target or source in target.parents:
        checks.fail("the output", str(target), "outside the folder of the votes")
    check_absent(target)
    check_no_receipt(target)


def _staging(target: Path, release: str) -> Path:
    return target.with_name(f".{target.name}-{release}")


@contextmanager
def _staged(manifest: Manifest, target: Path) -> Iterator[tuple[Path, str]]:
    """Make the staging, durably; yield it and the manifest's digest. Removed unless something was paid."""
    staging, content = _staging(target, manifest.release), manifest.to_bytes()
    staging.mkdir(mode=0o700)
    try:
        folders = {(staging / _DECIDED / each.name).parent for each in manifest.partitions}
        for folder in (*folders, staging / _DRAWING):
            folder.mkdir(parents=True, exist_ok=True)
        (staging / _MANIFEST).write_bytes(content)
        check_links(staging / _MANIFEST, staging / _DRAWING / "link", target)
        sync(staging / _MANIFEST)
        for folder in (staging, *(path for path in staging.rglob("*") if path.is_dir()), staging.parent):
            sync(folder)
        yield staging, hashlib.sha256(content).hexdigest()
    except PaidError:
        raise
    except BaseException:
        shutil.rmtree(staging, ignore_errors=True)
        raise


@lru_cache(maxsize=4)
def _manifest(staging: str, digest: str) -> Manifest:
    content = Path(staging, _MANIFEST).read_bytes()
    if hashlib.sha256(content).hexdigest() != digest:
        raise ValueError(f"the manifest in {staging!r} was changed after the debit: restore it")
    manifest = Manifest.from_bytes(content)
    manifest.aggregator  # noqa: B018 (proved here, not in the middle of a partition)
    return manifest


def _inspect(source: str, name: str, layout: Layout, advance: Advance) -> Partition:
    path, rows = Path(source, name), 0
    stamp = stamp_of(path)
    _, types = check_types(path, layout)
    for votes, _ in vote_batches(path, layout):
        rows += votes.queries
        advance(votes.queries)
    return Partition(name, rows, stamp, types)


def _draw(staging: str, digest: str, index: int, advance: Advance) -> Partition:
    """Make one attempt at a partition: draw its labels, unless they are decided, and decide."""
    manifest = _manifest(staging, digest)
    partition, layout = manifest.partitions[index], manifest.layout
    decided = Path(staging, _DECIDED, partition.name)
    if decided.exists():
        return partition
    source, rows = Path(manifest.source, partition.name), 0
    before = source.stat()  # before the digest is compared: a file put there meanwhile has another
    if stamp_of(source) != partition.stamp:
        _refuse_change(source)
    temporary = Path(staging, _DRAWING, f"{index}-{secrets.token_hex(8)}{SUFFIX}")
    names = layout.classes and (*layout.classes, str(ABSTAIN) if isinstance(layout.classes[0], str) else ABSTAIN)
    try:
        with label_file(temporary, kept_types(source, layout), names, manifest.release) as write:
            for votes, batch in vote_batches(source, layout):
                rows += votes.queries
                if rows > partition.rows:
                    break  # not one draw that was not paid for
                write(manifest.aggregator.release(votes), batch)
                advance(votes.queries)
        after = source.stat()
        if rows != partition.rows or (before.st_mtime_ns, before.st_size) != (after.st_mtime_ns, after.st_size):
            _refuse_change(source)
        sync(temporary)
        with suppress(FileExistsError):  # another attempt decided: these labels are seen by nobody
            os.link(temporary, decided)
        sync(decided.parent)
    finally:
        temporary.unlink(missing_ok=True)
    return partition


def _refuse_change(source: Path) -> None:
    raise ValueError(f"{str(source)!r} changed after its votes were checked: put the file back as it was")


def _finish(
    engine: Engine, manifest: Manifest, staging: Path, digest: str, target: Path, line: StatusLine | None
) -> None:
    missing = [index for index, each in enumerate(manifest.partitions) if not (staging / _DECIDED / each.name).exists()]
    rows = sum(manifest.partitions[index].rows for index in missing)
    with _progress(line, "drawing labels", rows) as advance:
        engine.run(_draw, [(str(staging), digest, index) for index in missing], advance)
    decided = staging / _DECIDED
    try:
        if manifest.single:
            os.link(decided / manifest.partitions[0].name, target)
        else:
            decided.rename(target)
    except OSError as error:
        if error.errno not in _TAKEN:
            raise
        if not _published(target, manifest.release, manifest.rows):
            raise ValueError(f"{str(target)!r} was made by another program meanwhile: move it away") from error
    sync(target.parent)
    shutil.rmtree(staging, ignore_errors=True)


def _published(target: Path, release: str, rows: int) -> int:
    if not os.path.lexists(target):
        return 0
    folder = target if target.is_dir() else target.parent
    try:
        published = [release_and_rows(folder / name) for name in partitions_of(target)]
    except (ValueError, OSError):
        return 0
    whole = {name for name, _ in published} == {release} and sum(count for _, count in published) == rows
    return len(published) if whole else 0


def _digests(target: Path) -> dict[str, str]:
    folder = target if target.is_dir() else target.parent
    return {name: stamp_of(folder / name).sha256 for name in partitions_of(target)}


def _of_entry(ledger: PrivacyLedger, number: int) -> tuple[str, str]:
    kept = ledger.kept_manifest(number)
    if kept is None:
        checks.fail("the entry", number, "a release of Parquet files", "recover writes its labels to a .npy or .csv")
    try:
        data = json.loads(kept)
        if data["format"] == _FORMAT:
            return str(data["release"]), str(data["manifest"])
    except (ValueError, TypeError, KeyError):
        pass
    raise LedgerError(ledger.path, f"entry {number} is of a newer darrm, or was changed: nothing was drawn")


def _recovered(staging: Path, digest: str, number: int) -> Manifest:
    try:
        return _manifest(str(staging), digest)
    except FileNotFoundError as error:
        advice = "say the output that the entry names, with that folder beside it"
        raise ValueError(f"what entry {number} drew stood in {str(staging)!r}, which is not there: {advice}") from error


@contextmanager
def _progress(line: StatusLine | None, what: str, total: int = 0) -> Iterator[Callable[[int], None]]:
    done, start = 0, time.monotonic()

    def advance(rows: int) -> None:
        nonlocal done
        done += rows
        rate = done / max(1e-9, time.monotonic() - start)
        if line is not None:
            line.show(f"{what}: {done:,}{f' of {total:,}' if total else ''} rows, {rate:,.0f} a second")

    yield advance
