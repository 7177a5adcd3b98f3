"""Release the labels of Parquet files: each file (a *partition*) is a separate delivery with a separate debit.

`release_partitions` surveys all files, then delivers the labels of each file, in this process or in several:

1. *Survey.* Read every file once: count its rows, check its votes, take its SHA-256. Bad votes and a budget that does
   not admit all rows raise here. Nothing is drawn or paid.
2. *Plan.* Write the survey to a private file next to the output, ``.NAME.release.json``.
3. *Deliver.* For each file `darrm.release.delivery.deliver` draws the labels in memory, debits and keeps them,
   publishes a file of the same name, and acknowledges.
4. *Finish.* Write a receipt of the last entry next to the output, with the SHA-256 of each file. Remove the plan.

*Theorem.* Let processes die at any moment, repeat and overlap, and let the same release run again until it ends. Every
row has one label, paid for once. *Proof.* The plan is durable before the first debit. A release that finds a plan
continues only if its survey equals the plan: the same bytes, columns and mechanism. A file without an entry in the
ledger was not paid for, and is delivered. A file with undelivered labels in the ledger is published from there. A file
with a delivered entry stays as it is; if its labels are gone, the release stops. The ledger refuses a second debit for
a file with undelivered labels, and for a file that exists; so only one of two processes pays. ∎
`tests/release/test_partitions.py` guards it.

The plan holds digests of votes, which allow guesses of votes: only its owner can read it. The ledger holds nothing of
the votes.
"""

import json
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypedDict, Unpack

import numpy as np

from darrm.aggregator import Aggregator, document_of
from darrm.errors import DarrmError, DeliveryError, LedgerError
from darrm.ledger.ledger import PrivacyLedger
from darrm.ledger.rows import Entry
from darrm.loss.privacy_cost import PrivacyCost
from darrm.problem import OPEN, is_open
from darrm.release.debited import (
    LEAST_BYTES,
    FileDestination,
    check_no_receipt,
    folder_beside,
    leave_receipt,
    recover_to,
)
from darrm.release.delivery import check_answered, check_by_query, check_ledger, deliver, with_normalization
from darrm.util import checks
from darrm.util.extras import require
from darrm.util.files import check_space, read_json, sync, write_text
from darrm.util.progress import StatusLine
from darrm.votes import Labels, vote_batches
from darrm.votes.answers import name_of
from darrm.votes.parquet_file import (
    SUFFIX,
    ParquetSchema,
    check_absent,
    check_kept,
    check_types,
    digest_of,
    label_file,
    label_type,
    partitions_of,
    record_batches,
    rows_and_types,
    schema_of,
)
from darrm.votes.vote_arrays import ABSTAIN, Classes, VoteFormat
from darrm.votes.votes_file import LONGEST_NAME, SUFFIXES, is_text

_FORMAT = "darrm-release"
_MOST_PLAN_BYTES = 2**28
MOST_KEPT = 2**29  # bytes: the ledger keeps the labels of one file until they are published
ROWS_AT_ONCE = 2**16  # labels per write


@dataclass(frozen=True)
class VotesFile:
    """One file of votes, from the survey."""

    path: str
    queries: int  # its rows
    sha256: str
    types: tuple[str, ...]  # the types of its columns


@dataclass(frozen=True)
class Survey:
    """The result of the survey: the files, their columns, and the mechanism."""

    root: str  # the folder of the votes
    target: Path  # the file or the folder of labels
    single: bool  # one file is read, and one is written
    schema: ParquetSchema  # the columns
    files: tuple[VotesFile, ...]
    document: dict[str, Any]  # the mechanism, as its file holds it

    @property
    def rows(self) -> int:
        """The number of rows of all files."""
        return sum(file.queries for file in self.files)

    @property
    def label_names(self) -> tuple[object, ...]:
        """All possible names of a label."""
        classes = self.schema.classes
        return classes and (*classes, str(ABSTAIN) if isinstance(classes[0], str) else ABSTAIN)

    def output_of(self, file: VotesFile) -> Path:
        """Return the path of the labels of a file."""
        return self.target if self.single else self.target / Path(file.path).relative_to(self.root)

    @property
    def plan_path(self) -> Path:
        """The file of the plan during the release."""
        return _plan_path(self.target)

    def to_json(self, ledger: PrivacyLedger) -> dict[str, Any]:
        """Return the content of the plan; a release that continues compares it."""
        schema = {**asdict(self.schema), "classes": [str(name) for name in self.schema.classes]}
        files = [[file.path, file.queries, file.sha256, list(file.types)] for file in self.files]
        data = {
            "format": _FORMAT,
            "schema": schema,
            "files": files,
            "mechanism": self.document,
            "ledger": ledger.identity,
        }
        restored: dict[str, Any] = json.loads(json.dumps(data))
        return restored


def _plan_path(target: Path) -> Path:
    return target.with_name(f".{target.name}.release.json")


@dataclass(frozen=True)
class ReleasedPartitions:
    """The result of a release."""

    output: Path  # the file or the folder of labels
    rows: int  # the number of labels
    files: int  # the number of files


class Reading(TypedDict, total=False):
    """How `release_partitions` reads files of votes.

    Attributes
    ----------
    classes
        The names of the classes, their number, or "open"; by default those of the mechanism.
    normalize, missing
        The normalization of open-set answers as text, and the rule for missing votes, as in `Votes.of_answers`.
    layout
        ``"labels"`` (a column per voter), ``"counts"`` (a column per class), or ``"auto"``: by the number of columns.
    columns
        The columns with votes; by default all except ``keep``.
    keep
        Columns that are published with the labels. No guarantee covers them.
    """

    classes: Classes
    normalize: str | None
    missing: str
    layout: str
    columns: Iterable[str] | None
    keep: Iterable[str]


def release_partitions(
    aggregator: Aggregator,
    source: str | os.PathLike[str],
    *,
    ledger: PrivacyLedger,
    output: str | os.PathLike[str],
    note: str = "",
    jobs: int | None = 1,
    line: StatusLine | None = None,
    **reading: Unpack[Reading],
) -> ReleasedPartitions:
    """Release one label for each row of Parquet files, in bounded memory, with one debit for each file.

    After an interruption the same call continues: files that are paid for are published, not drawn again.

    Parameters
    ----------
    aggregator
        A mechanism with a file format (`darrm.aggregator.document_of`).
    source
        A Parquet file, or a folder of them, which is read recursively: one row per query.
    ledger
        The ledger that pays.
    output
        A new file if ``source`` is a file, a new folder if it is a folder.
    note
        Text for the ledger's log.
    jobs
        The number of processes, as joblib's ``n_jobs``: None follows `joblib.parallel_config`, whose workers (also on
        Dask or Ray) must see the same files and the same ledger.
    line
        Shows progress.
    **reading
        See `Reading`.

    Raises
    ------
    ValueError
        If the aggregator does not accept the votes, or the output cannot be created; nothing is debited.
    BudgetExceededError
        If the budget does not admit all rows; nothing is debited or drawn.
    LedgerError
        If the ledger cannot be written; nothing is debited or drawn.
    DeliveryError
        If anything failed after the first debit: the same call continues.
    """
    check_ledger(ledger)
    found = survey(aggregator, source, output, jobs=jobs, line=line, **reading)
    return release_surveyed(found, aggregator, ledger, note=note, jobs=jobs, line=line)


def survey(
    aggregator: Aggregator,
    source: str | os.PathLike[str],
    output: str | os.PathLike[str],
    *,
    jobs: int | None = 1,
    line: StatusLine | None = None,
    **reading: Unpack[Reading],
) -> Survey:
    """Read all votes once and return the survey; nothing is drawn. See `release_partitions`."""
    if unknown := sorted(reading.keys() - Reading.__annotations__.keys()):
        raise TypeError(f"release_partitions() got an unexpected keyword argument {unknown[0]!r}")
    checks.file_name(source=source, output=output)
    root = Path(os.path.realpath(source))
    # the real folder of the output; a link at the name itself is not followed
    target = Path(os.path.realpath(Path(output).parent)) / Path(output).name
    document = document_of(aggregator)
    check_by_query(aggregator)
    single = not root.is_dir()
    _check_names(root, target, single=single)
    folder = root.parent if single else root
    paths = [str(folder / name) for name in partitions_of(root)]
    for path in (*paths, str(target)):
        if not is_text(path):  # pyarrow cannot open other names, and a receipt cannot hold them
            checks.fail("the name of a Parquet file", checks.Found(ascii(path)), "in UTF-8", "rename the file")
    voters, number = aggregator.voters, aggregator.classes  # type: ignore[attr-defined]  # every mechanism with a document
    schema = _schema_of(Path(paths[0]), voters.K, number, **reading)
    files = tuple(_run(_inspect, [(path, schema) for path in paths], jobs, line, "checking votes"))
    _check_alike(files)
    found = Survey(str(folder), target, single, schema, files, document)
    _check_size(found)
    return found


def _schema_of(path: Path, K: int, number: int, **reading: Unpack[Reading]) -> ParquetSchema:
    """Return the meaning of the columns; ``number`` is the number of classes of the mechanism."""
    classes, columns, normalize = reading.get("classes"), reading.get("columns"), reading.get("normalize")
    classes = number if classes is None else classes
    if (OPEN if is_open(classes) else classes if isinstance(classes, int) else len(classes)) != number:
        checks.fail(
            "classes", classes, repr(OPEN) if is_open(number) else f"{number} different labels, or their number"
        )
    if normalize is not None:
        checks.instance(str, normalize=normalize, advice="a function cannot be written into the plan")
    how = VoteFormat(K, classes, reading.get("layout", "auto"), reading.get("missing", "refuse"), normalize)
    return schema_of(
        path, how, columns=None if columns is None else tuple(columns), keep=tuple(reading.get("keep", ()))
    )


def _check_names(source: Path, target: Path, *, single: bool) -> None:
    if single and (target.suffix.lower() != SUFFIX or source.suffix.lower() != SUFFIX):
        checks.fail("the output", str(target), "a file that ends in .parquet", "one file of votes makes one of labels")
    if target.suffix.lower() in SUFFIXES:
        checks.fail("the output", str(target), "a folder", "a folder of votes makes a folder of labels")
    if source == target or source in target.parents:
        checks.fail("the output", str(target), "outside the folder of the votes")
    if not _plan_path(target).is_file():
        check_absent(target)
        check_no_receipt(target)


def _inspect(path: str, schema: ParquetSchema) -> VotesFile:
    """Read a whole file of votes and check it."""
    file, rows = Path(path), 0
    digest = digest_of(file)
    _, types = check_types(file, schema)
    for votes, batch in vote_batches(file, schema):
        check_kept(batch, schema.keep)
        try:
            check_answered(votes, rows)
        except ValueError as error:
            raise ValueError(f"{path!r}: {error}") from error
        rows += votes.queries
    return VotesFile(path, rows, digest, types)


def _check_alike(files: Sequence[VotesFile]) -> None:
    for file in files:
        if file.types != files[0].types:
            other = checks.Found(f"{file.path!r} with other types than {files[0].path!r}")
            checks.fail("partitions", other, "of the same columns and types", "write them alike")
    if not any(file.queries for file in files):
        checks.fail("votes", checks.Found("no rows"), "at least one query", "there is nothing to write")


def _check_size(found: Survey) -> None:
    """Raise if the labels of a file may take too much memory."""
    kind, longest = label_type(found.label_names), max(map(len, map(str, found.label_names)), default=LONGEST_NAME)
    size = 4 * longest if kind is None else kind.itemsize
    for file in found.files:
        if file.queries * size > MOST_KEPT:
            advice = f"split it into files of at most {MOST_KEPT // size:,} rows"
            raise ValueError(f"{file.path!r} has {file.queries:,} rows, too many for one debit: {advice}")


def release_surveyed(
    found: Survey,
    aggregator: Aggregator,
    ledger: PrivacyLedger,
    *,
    note: str = "",
    jobs: int | None = 1,
    line: StatusLine | None = None,
) -> ReleasedPartitions:
    """Debit and release the files of a survey; see `release_partitions`."""
    release = _Partitions(found, aggregator, ledger, note, _last_entry_before(found, ledger))
    missing = release.missing()
    if rest := sum(file.queries for file, number in missing if not number):
        ledger.check_admits(aggregator.privacy_cost(rest))
        check_space(found.target.parent, LEAST_BYTES + rest)  # text and kept columns take more
    try:
        release.write_plan()
        _run(release.deliver, missing, jobs, line, f"drawing {sum(file.queries for file, _ in missing):,} labels")
        release.finish()
    except BaseException as error:
        reason = "interrupted" if isinstance(error, KeyboardInterrupt) else str(error) or type(error).__name__
        advice = "release again into the same output, which goes on and pays only for files that were not paid for"
        try:
            entries = release.entries()
        except LedgerError:
            raise DeliveryError(ledger.path, f"{reason}; files may be paid for: {advice}") from error
        if not entries:
            release.take_back()
            raise
        delivered = f"{sum(entry.delivered for entry in entries.values())} of {len(found.files)} files are delivered"
        raise DeliveryError(ledger.path, f"{reason}; the budget is spent in part, {delivered}: {advice}") from error
    return ReleasedPartitions(found.target, found.rows, len(found.files))


def _last_entry_before(found: Survey, ledger: PrivacyLedger) -> int:
    """Return the number of the ledger's last entry before the release, from the plan if the release continues."""
    path = found.plan_path
    if not path.is_file():
        return max((entry.number for entry in ledger.entries()), default=0)
    plan = read_json(path, what="release", most_bytes=_MOST_PLAN_BYTES)
    after = plan.pop("after", None) if isinstance(plan, dict) else None
    if not isinstance(after, int) or plan != found.to_json(ledger):
        advice = "release the same votes by the same mechanism, ledger and options, and it goes on"
        raise ValueError(f"{str(path)!r} is of another release into this output, which did not end: {advice}")
    return after


@dataclass(frozen=True)
class _Partitions:
    """A release of the files of a survey; as an aggregator it draws the labels of one file, batch by batch."""

    survey: Survey
    aggregator: Aggregator
    ledger: PrivacyLedger
    note: str
    after: int  # the number of the ledger's last entry before the release

    def entries(self) -> dict[str, Entry]:
        """Return the ledger's entries of this release by the paths of their labels."""
        outputs = {str(self.survey.output_of(file)) for file in self.survey.files}
        entries = self.ledger.entries()
        return {entry.output: entry for entry in entries if entry.number > self.after and entry.output in outputs}

    def missing(self) -> list[tuple[VotesFile, int]]:
        """Return the files without published labels, with the ledger entry that keeps their labels, or 0."""
        entries, missing = self.entries(), []
        for file in self.survey.files:
            path = self.survey.output_of(file)
            entry = entries.get(str(path))
            if entry is None:
                missing += [(file, 0)] if file.queries or not path.is_file() else []
            elif not entry.delivered:
                missing.append((file, entry.number))
            elif not path.is_file():
                lost = "if it is lost, remove the plan next to the output and release all again, at the full cost"
                raise ValueError(f"{str(path)!r} was paid for and delivered, and is gone: put it back; {lost}")
        return missing

    def write_plan(self) -> None:
        """Write the plan and make the folders of the output, durably."""
        path, target = self.survey.plan_path, self.survey.target
        if not path.is_file():
            with folder_beside(target) as folder:  # a process that dies here leaves nothing that stays
                plan = {"after": self.after, **self.survey.to_json(self.ledger)}
                write_text(folder / path.name, json.dumps(plan, indent=1), private=True)
                (folder / path.name).rename(path)
        parents = {parent for file in self.survey.files for parent in self.survey.output_of(file).parents}
        folders = sorted(folder for folder in parents if target in {folder, *folder.parents})
        for folder in folders:
            folder.mkdir(exist_ok=True)
        for folder in (*folders, path.parent):
            sync(folder)

    def finish(self) -> None:
        """Write the receipt of a folder, and remove the plan."""
        target = self.survey.target
        if not self.survey.single:
            paths = sorted({self.survey.output_of(file) for file in self.survey.files})
            files = {path.relative_to(target).as_posix(): digest_of(path) for path in paths}
            leave_receipt(self.ledger, max(entry.number for entry in self.entries().values()), target, files)
        self.survey.plan_path.unlink(missing_ok=True)
        sync(target.parent)

    def take_back(self) -> None:
        """Remove the plan and the empty folders of a release without debits."""
        self.survey.plan_path.unlink(missing_ok=True)
        if not self.survey.single:
            for folder, _, _ in os.walk(self.survey.target, topdown=False):
                with suppress(OSError):
                    Path(folder).rmdir()

    def deliver(self, file: VotesFile, number: int) -> VotesFile:
        """Deliver the labels of a file: new ones, or the undelivered ones of a ledger entry."""
        destination = PartitionDestination(self.survey, file)
        if number:
            recover_to(destination, self.ledger, number)
        elif file.queries:
            note = with_normalization(self.note, name_of(self.survey.schema.normalize))
            deliver(self, file, self.ledger, destination, note=note)  # type: ignore[arg-type]
        else:
            with destination.prepare():
                destination.publish(np.empty(0, dtype=np.int64))
        return file

    def privacy_cost(self, queries: int = 1) -> PrivacyCost:
        """Return the cost of labels."""
        return self.aggregator.privacy_cost(queries)

    def release(self, file: VotesFile) -> Labels:
        """Draw the labels of the surveyed votes, in the smallest type that holds them."""
        path, kind = Path(file.path), label_type(self.survey.label_names)
        before = path.stat()  # before the digest is compared, to detect a file that is replaced meanwhile
        if digest_of(path) != file.sha256:
            _refuse_change(path)
        parts = [self.aggregator.release(votes) for votes, _ in vote_batches(path, self.survey.schema)]
        labels = np.concatenate(parts if kind is None else [part.astype(kind) for part in parts])
        if labels.size != file.queries or _is_changed(path, before):
            _refuse_change(path)
        return labels


def _is_changed(path: Path, before: os.stat_result) -> bool:
    after = path.stat()
    return (before.st_mtime_ns, before.st_size) != (after.st_mtime_ns, after.st_size)


def _refuse_change(path: Path) -> None:
    raise ValueError(f"{str(path)!r} changed after its votes were checked: put the file back as it was")


class PartitionDestination(FileDestination):
    """A new Parquet file of labels with the kept columns."""

    def __init__(self, found: Survey, file: VotesFile) -> None:
        super().__init__(found.output_of(file), has_receipt=found.single)  # a folder gets one at the end
        self._source, self._survey = Path(file.path), found

    @contextmanager
    def prepare(self, votes: Any = None) -> Iterator[None]:  # noqa: ANN401 (lazy votes, or none)
        """Check the output, and that its columns can be written."""
        with super().prepare(votes):
            self._before = self._source.stat()
            _, types = rows_and_types(self._source)
            self._kept = [(name, types[name]) for name in self._survey.schema.keep]
            with label_file(self._temporary, self._kept, self._survey.label_names):
                pass
            yield

    def write(self, path: Path, labels: Labels) -> None:
        """Write the labels and the kept columns durably."""
        rows = 0
        if not self._survey.schema.classes:  # in an open-set column, null means no answer
            labels = np.array([label or None for label in labels.tolist()], dtype=object)
        with label_file(path, self._kept, self._survey.label_names) as write:
            for batch in record_batches(self._source, self._survey.schema.keep) if self._kept else ():
                write(labels[rows : rows + batch.num_rows], batch)
                rows += batch.num_rows
            for start in range(rows, labels.size, ROWS_AT_ONCE):
                write(labels[start : start + ROWS_AT_ONCE], None)
        if _is_changed(self._source, self._before) or (self._kept and rows != labels.size):
            _refuse_change(self._source)
        sync(path)


def _run(
    function: Callable[..., VotesFile],
    tasks: Sequence[tuple[Any, ...]],
    jobs: int | None,
    line: StatusLine | None,
    what: str,
) -> list[VotesFile]:
    """Call a function for each task, in parallel if there are several jobs; return the results in order."""
    results: Iterable[VotesFile | str] = (function(*task) for task in tasks)
    if jobs != 1:
        joblib = require("joblib")
        parallel = joblib.Parallel(n_jobs=jobs, return_as="generator")
        results = parallel(joblib.delayed(_or_failure)(function, task) for task in tasks)
    files, failures, rows, start = list[VotesFile](), list[str](), 0, time.monotonic()
    for result in results:
        if isinstance(result, str):
            failures.append(result)
            continue
        files.append(result)
        rows += result.queries
        if line is not None:
            rate = rows / max(1e-9, time.monotonic() - start)
            line.show(f"{what}: {rows:,} rows, {rate:,.0f} a second")
    if failures:  # all tasks have ended, so nothing is paid for after an error
        raise ValueError(failures[0])
    return files


def _or_failure(function: Callable[..., VotesFile], task: tuple[Any, ...]) -> VotesFile | str:
    """Call a function in another process; return an error as its message, which can always be pickled."""
    try:
        return function(*task)
    except (DarrmError, ValueError, OSError) as error:
        return str(error)
