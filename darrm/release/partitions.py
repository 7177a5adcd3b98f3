"""Release the labels of Parquet files, with one delivery and one debit for each file (*partition*).

1. *Survey.* Count each file's rows, check its votes, take its SHA-256. Bad votes and too small a budget raise here.
2. *Plan.* Write the survey to ``.NAME.release.json`` next to the output, for its owner only: digests of votes allow
   guesses of votes.
3. *Deliver.* `darrm.release.delivery.deliver` publishes a file of labels with each file's name.
4. *Finish.* Write a receipt of the last entry, with the SHA-256 of each file. Remove the plan.

*Theorem.* Let processes die at any moment, repeat and overlap, and let the same release run again until it ends. Every
row has one label, paid for once. *Proof.* The plan is durable before the first debit. A release that finds a plan
continues only if its survey equals the plan: the same bytes, columns and mechanism. A file without an entry in the
ledger was not paid for, and is delivered. Undelivered labels are published from the ledger. A delivered file stays
unchanged; without it the release stops. The ledger refuses a second debit for a file that exists or has undelivered
labels, so only one of two processes pays. ∎
`tests/release/test_partitions.py` guards it.
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

from darrm.aggregator import Aggregator, make_document
from darrm.errors import DarrmError, DeliveryError, LedgerError
from darrm.ledger.chain import Entry
from darrm.ledger.ledger import PrivacyLedger
from darrm.loss.privacy_cost import PrivacyCost
from darrm.release.delivery import (
    MIN_FREE_BYTES,
    FileDestination,
    check_answered,
    check_by_query,
    check_ledger,
    check_no_receipt,
    classes_for,
    deliver,
    publish_receipt,
    recover,
    temporary_folder,
)
from darrm.util import checks
from darrm.util.extras import Untyped, require
from darrm.util.files import check_space, read_json, sync, write_text
from darrm.util.progress import StatusLine
from darrm.votes import Labels, vote_batches
from darrm.votes.answers import name_normalization
from darrm.votes.labels_file import check_kept, label_file, label_type
from darrm.votes.parquet_file import (
    SUFFIX,
    ParquetSchema,
    check_absent,
    check_types,
    compute_digest,
    infer_schema,
    list_parquet_files,
    record_batches,
    rows_and_types,
)
from darrm.votes.vote_arrays import ABSTAIN, Classes, VoteFormat
from darrm.votes.votes_file import LONGEST_NAME, SUFFIXES, is_text

MOST_KEPT = 2**29  # bytes: the ledger keeps the labels of one file until they are published
ROWS_AT_ONCE = 2**16  # labels per write


@dataclass(frozen=True)
class VotesFile:
    path: str
    queries: int  # the number of rows
    sha256: str
    types: tuple[str, ...]  # the types of the columns
    normalized: str  # the public normalization of open-set answers


@dataclass(frozen=True)
class ReleasedPartitions:
    output: Path  # the file or the folder of labels
    rows: int
    files: int


class ReadOptions(TypedDict, total=False):
    """How `release_partitions` reads files; `Votes.from_answers` describes ``normalize`` and ``missing``."""

    classes: Classes  # names, their number or "open"; by default the mechanism's classes
    normalize: str | None
    missing: str
    layout: str  # "labels" (a column per voter), "counts" (a column per class) or "auto": by the number of columns
    columns: Iterable[str] | None  # the columns with votes; by default all except ``keep``
    keep: Iterable[str]  # columns that are published with the labels; no guarantee covers them


def release_partitions(
    aggregator: Aggregator,
    source: str | os.PathLike[str],
    *,
    ledger: PrivacyLedger,
    output: str | os.PathLike[str],
    note: str = "",
    jobs: int | None = 1,
    line: StatusLine | None = None,
    **reading: Unpack[ReadOptions],
) -> ReleasedPartitions:
    """Release one label for each row of Parquet files, in bounded memory, with one debit a file.

    After an interruption, or a `DeliveryError`, the same call continues: files that are paid for are published, not
    drawn again. `ValueError`, `BudgetExceededError` and `LedgerError` debit nothing.

    ``aggregator`` has a file format (`darrm.aggregator.make_document`). ``source`` and ``output`` are a Parquet file
    and a new file, or a folder, which is read recursively, and a new folder. ``jobs`` is joblib's ``n_jobs``: None
    follows `joblib.parallel_config`, whose workers must see the same files and ledger.

    ``reading`` are ``classes``, ``normalize``, ``missing`` and ``layout`` as in `Votes`; ``columns`` with votes
    (default: all but ``keep``); and ``keep``: columns that are published with the labels, which no guarantee covers.
    """
    check_ledger(ledger)
    return survey(aggregator, source, output, jobs=jobs, line=line, **reading).release(
        ledger, note=note, jobs=jobs, line=line
    )


@dataclass(frozen=True)
class Survey:
    """Votes that were checked; `release` debits and delivers their labels, or continues."""

    aggregator: Aggregator
    root: Path  # the folder of the votes
    target: Path  # the file or the folder of labels
    is_single: bool  # one file is read, and one is written
    schema: ParquetSchema
    files: tuple[VotesFile, ...]

    @property
    def rows(self) -> int:
        return sum(file.queries for file in self.files)

    def output_path(self, file: VotesFile) -> Path:
        return self.target if self.is_single else self.target / Path(file.path).relative_to(self.root)

    def release(
        self, ledger: PrivacyLedger, *, note: str = "", jobs: int | None = 1, line: StatusLine | None = None
    ) -> ReleasedPartitions:
        run = _Run(self, ledger, note, self._find_previous_entry(ledger))
        waiting = run.waiting()
        if unpaid_queries := sum(file.queries for file, entry in waiting if not entry):
            ledger.check_admits(self.aggregator.privacy_cost(unpaid_queries))
            check_space(self.target.parent, MIN_FREE_BYTES + unpaid_queries)  # text and kept columns take more
        try:
            run.write_plan()
            _run_all(run.deliver, waiting, jobs, line, f"drawing {sum(file.queries for file, _ in waiting):,} labels")
            run.finish()
        except BaseException as error:
            reason = "interrupted" if isinstance(error, KeyboardInterrupt) else str(error) or type(error).__name__
            advice = "release again into the same output, which goes on and pays only for files that were not paid for"
            try:
                entries = run.entries()
            except LedgerError:
                raise DeliveryError(ledger.path, f"{reason}; files may be paid for: {advice}") from error
            if not entries:
                run.remove_plan()
                raise
            delivered = f"{sum(entry.delivered for entry in entries.values())} of {len(self.files)} files are delivered"
            raise DeliveryError(ledger.path, f"{reason}; the budget is spent in part, {delivered}: {advice}") from error
        return ReleasedPartitions(self.target, self.rows, len(self.files))

    def plan(self, ledger: PrivacyLedger) -> dict[str, object]:
        schema = {**asdict(self.schema), "classes": [str(name) for name in self.schema.how.names]}
        del schema["how"]["classes"]
        files = [[file.path, file.queries, file.sha256, file.types] for file in self.files]
        mechanism = make_document(self.aggregator)
        plan = {"format": "darrm-release", "schema": schema, "files": files, "mechanism": mechanism}
        restored: dict[str, object] = json.loads(json.dumps({**plan, "ledger": ledger.identity}))
        return restored

    def _find_previous_entry(self, ledger: PrivacyLedger) -> int:
        path = _plan_path(self.target)
        if not path.is_file():
            return max((entry.number for entry in ledger.entries()), default=0)
        plan = read_json(path, what="release", most_bytes=2**28)
        previous_entry = plan.pop("after", None) if isinstance(plan, dict) else None
        if not isinstance(previous_entry, int) or plan != self.plan(ledger):
            advice = "release the same votes by the same mechanism, ledger and options, and it goes on"
            raise ValueError(f"{str(path)!r} is of another release into this output, which did not end: {advice}")
        return previous_entry


def survey(
    aggregator: Aggregator,
    source: str | os.PathLike[str],
    output: str | os.PathLike[str],
    *,
    jobs: int | None = 1,
    line: StatusLine | None = None,
    **reading: Unpack[ReadOptions],
) -> Survey:
    """Check the votes of `release_partitions`; nothing is drawn."""
    checks.file_name(source=source, output=output)
    root = Path(os.path.realpath(source))
    # the real folder of the output; a link at the name itself is not followed
    target = Path(os.path.realpath(Path(output).parent)) / Path(output).name
    make_document(aggregator)
    check_by_query(aggregator)
    is_single = not root.is_dir()
    if is_single and (target.suffix.lower() != SUFFIX or root.suffix.lower() != SUFFIX):
        checks.fail("the output", str(target), "a file that ends in .parquet", "one file of votes makes one of labels")
    if target.suffix.lower() in SUFFIXES:
        checks.fail("the output", str(target), "a folder", "a folder of votes makes a folder of labels")
    if root == target or root in target.parents:
        checks.fail("the output", str(target), "outside the folder of the votes")
    if not _plan_path(target).is_file():
        check_absent(target)
        check_no_receipt(target)
    folder = root.parent if is_single else root
    paths = [str(folder / name) for name in list_parquet_files(root)]
    for path in (*paths, str(target)):
        if not is_text(path):  # pyarrow cannot open other names, nor can a receipt hold them
            checks.fail("the name of a Parquet file", checks.Text(ascii(path)), "in UTF-8", "rename the file")
    schema = _infer_schema(Path(paths[0]), aggregator, dict(reading))
    files = tuple(_run_all(_inspect, [(path, schema) for path in paths], jobs, line, "checking votes"))
    _check_files(files, _label_names(schema))
    return Survey(aggregator, folder, target, is_single, schema, files)


def _plan_path(target: Path) -> Path:
    return target.with_name(f".{target.name}.release.json")


def _infer_schema(path: Path, aggregator: Untyped, reading: dict[str, Any]) -> ParquetSchema:
    columns, keep = reading.pop("columns", None), reading.pop("keep", ())
    classes = classes_for(aggregator, reading.pop("classes", None))
    if reading.get("normalize") is not None:
        checks.instance(str, normalize=reading["normalize"], advice="a function cannot be written into the plan")
    vote_format = VoteFormat(aggregator.voters.K, classes, **reading)
    return infer_schema(path, vote_format, columns=None if columns is None else tuple(columns), keep=tuple(keep))


def _label_names(schema: ParquetSchema) -> tuple[object, ...]:
    classes = schema.how.names
    return classes and (*classes, str(ABSTAIN) if isinstance(classes[0], str) else ABSTAIN)


def _inspect(path: str, schema: ParquetSchema) -> VotesFile:
    file, rows = Path(path), 0
    digest = compute_digest(file)
    _, types = check_types(file, schema)
    for votes, batch in vote_batches(file, schema):
        check_kept(batch, schema.keep)
        try:
            check_answered(votes, rows)
        except ValueError as error:
            raise ValueError(f"{path!r}: {error}") from error
        rows += votes.queries
    return VotesFile(path, rows, digest, types, name_normalization(schema.how.normalize))


def _check_files(files: tuple[VotesFile, ...], names: tuple[object, ...]) -> None:
    if not any(file.queries for file in files):
        checks.fail("votes", checks.Text("no rows"), "at least one query", "there is nothing to write")
    dtype, longest = label_type(names), max((len(str(name)) for name in names), default=LONGEST_NAME)
    size, first_file = 4 * longest if dtype is None else dtype.itemsize, files[0]
    for file in files:
        if file.types != first_file.types:
            description = checks.Text(f"{file.path!r} with other types than {first_file.path!r}")
            checks.fail("partitions", description, "of the same columns and types", "write them alike")
        if file.queries * size > MOST_KEPT:
            advice = f"split it into files of at most {MOST_KEPT // size:,} rows"
            raise ValueError(f"{file.path!r} has {file.queries:,} rows, too many for one debit: {advice}")


@dataclass(frozen=True)
class _Run:
    """A release of surveyed files; as an aggregator it draws the labels of one file."""

    survey: Survey
    ledger: PrivacyLedger
    note: str
    previous_entry: int  # the number of the ledger's last entry before the release

    def entries(self) -> dict[str, Entry]:
        """Map the paths of labels to the ledger's entries of this release."""
        outputs = {str(self.survey.output_path(file)) for file in self.survey.files}
        entries = self.ledger.entries()
        return {
            entry.output: entry for entry in entries if entry.number > self.previous_entry and entry.output in outputs
        }

    def waiting(self) -> list[tuple[VotesFile, int]]:
        """List the files to publish, each with the entry that keeps its labels, or 0."""
        entries, waiting = self.entries(), []
        for file in self.survey.files:
            path = self.survey.output_path(file)
            entry = entries.get(str(path))
            if entry is None:
                waiting += [(file, 0)] if file.queries or not path.is_file() else []
            elif not entry.delivered:
                waiting.append((file, entry.number))
            elif not path.is_file():
                advice = "if it is lost, remove the plan next to the output and release all again, at the full cost"
                raise ValueError(f"{str(path)!r} was paid for and delivered, and is gone: put it back; {advice}")
        return waiting

    def write_plan(self) -> None:
        target, path = self.survey.target, _plan_path(self.survey.target)
        if not path.is_file():
            with temporary_folder(target) as folder:  # if this process dies here, the next one removes the folder
                plan = {"after": self.previous_entry, **self.survey.plan(self.ledger)}
                write_text(folder / path.name, json.dumps(plan, indent=1), private=True)
                (folder / path.name).rename(path)
        parents = {parent for file in self.survey.files for parent in self.survey.output_path(file).parents}
        folders = sorted(folder for folder in parents if target in {folder, *folder.parents})
        for folder in folders:
            folder.mkdir(exist_ok=True)
        for folder in (*folders, path.parent):
            sync(folder)

    def finish(self) -> None:
        target = self.survey.target
        if not self.survey.is_single:
            paths = sorted(self.survey.output_path(file) for file in self.survey.files)
            files = {path.relative_to(target).as_posix(): compute_digest(path) for path in paths}
            publish_receipt(self.ledger, max(entry.number for entry in self.entries().values()), target, files)
        _plan_path(target).unlink(missing_ok=True)
        sync(target.parent)

    def remove_plan(self) -> None:
        _plan_path(self.survey.target).unlink(missing_ok=True)
        for folder, _, _ in os.walk(self.survey.target, topdown=False):
            with suppress(OSError):
                Path(folder).rmdir()

    def deliver(self, file: VotesFile, number: int) -> VotesFile:
        destination = PartitionDestination(self.survey, file)
        if number:
            recover(self.ledger, number, destination)
        elif file.queries:
            deliver(self, file, self.ledger, destination, note=self.note)  # type: ignore[arg-type]
        else:
            with destination.prepare():
                destination.publish(np.empty(0, dtype=np.int64))
        return file

    def privacy_cost(self, queries: int = 1) -> PrivacyCost:
        return self.survey.aggregator.privacy_cost(queries)

    def release(self, file: VotesFile) -> Labels:
        """Draw the labels of the surveyed votes, in the smallest type that holds them."""
        path, dtype = Path(file.path), label_type(_label_names(self.survey.schema))
        initial_status = path.stat()  # before the digest is compared, to detect a file that is replaced meanwhile
        is_same = compute_digest(path) == file.sha256
        batches = vote_batches(path, self.survey.schema) if is_same else iter(())
        parts = [self.survey.aggregator.release(votes) for votes, _ in batches]
        if sum(part.size for part in parts) != file.queries:
            _refuse_change(path)
        _check_unchanged(path, initial_status)
        return np.concatenate(parts if dtype is None else [part.astype(dtype) for part in parts])


def _check_unchanged(path: Path, initial: os.stat_result) -> None:
    current = path.stat()
    if (initial.st_mtime_ns, initial.st_size) != (current.st_mtime_ns, current.st_size):
        _refuse_change(path)


def _refuse_change(path: Path) -> None:
    raise ValueError(f"{str(path)!r} changed after its votes were checked: put the file back as it was")


class PartitionDestination(FileDestination):
    def __init__(self, release: Survey, file: VotesFile) -> None:
        super().__init__(release.output_path(file), has_receipt=release.is_single)  # a folder gets one at the end
        self._source, self._schema, self._names = Path(file.path), release.schema, _label_names(release.schema)

    @contextmanager
    def prepare(self, votes: Untyped = None) -> Iterator[None]:
        with super().prepare(votes):
            self._initial_status = self._source.stat()
            _, types = rows_and_types(self._source)
            self._kept_columns = [(name, types[name]) for name in self._schema.keep]
            with label_file(self._temporary, self._kept_columns, self._names):
                pass
            yield

    def write(self, path: Path, labels: Labels) -> None:
        rows = 0
        if not self._schema.how.names:  # in an open-set column, null means no answer
            labels = np.array([label or None for label in labels.tolist()], dtype=object)
        with label_file(path, self._kept_columns, self._names) as write:
            for batch in record_batches(self._source, self._schema.keep) if self._kept_columns else ():
                write(labels[rows : rows + batch.num_rows], batch)
                rows += batch.num_rows
            for start in range(rows, labels.size, ROWS_AT_ONCE):
                write(labels[start : start + ROWS_AT_ONCE], None)
        if self._kept_columns and rows != labels.size:
            _refuse_change(self._source)
        _check_unchanged(self._source, self._initial_status)
        sync(path)


def _run_all(
    function: Callable[..., VotesFile],
    tasks: Sequence[tuple[Any, ...]],
    jobs: int | None,
    line: StatusLine | None,
    activity: str,
) -> list[VotesFile]:
    results: Iterable[VotesFile | str] = (function(*task) for task in tasks)
    if jobs != 1:
        joblib = require("joblib")
        parallel = joblib.Parallel(n_jobs=jobs, return_as="generator")
        results = parallel(joblib.delayed(_catch_failure)(function, task) for task in tasks)
    files, failures, rows, start = list[VotesFile](), list[str](), 0, time.monotonic()
    for result in results:
        if isinstance(result, str):
            failures.append(result)
            continue
        files.append(result)
        rows += result.queries
        if line is not None:
            rate = rows / max(1e-9, time.monotonic() - start)
            line.show(f"{activity}: {rows:,} rows, {rate:,.0f} a second")
    if failures:  # all tasks have ended, so nothing is paid for after an error
        raise ValueError(failures[0])
    return files


def _catch_failure(function: Callable[..., VotesFile], task: tuple[Any, ...]) -> VotesFile | str:
    try:
        return function(*task)
    except (DarrmError, ValueError, OSError) as error:
        return str(error)
