"""Store the answers of all voters as counts, which every mechanism needs.

An array does not show whether it holds labels (Q, K) or counts (Q, C), and confusing them makes a false privacy claim,
so the caller states it.

``missing="coin"``: a fair coin, for C > 2 a fair die, replaces each missing vote. *Theorem.* The release keeps its
guarantee if the missing votes do not depend on private data. *Proof.* A coin is a (0, 0)-private voter, hence an
(ε, Δ)-private one, outside the influence of any person. ∎ For non-private voters the guarantee also holds between data
with which up to t votes differ, appear or disappear (t: the overlap): a person's voters may give any answer, including
the result of a die.

``missing="blank"``: a missing open-set answer counts for no string. *Theorem.* The release keeps its guarantee between
data with which up to t answers differ, appear or disappear, if it treats all strings alike except for their counts.
*Proof.* Let each voter i without an answer give a string that only voter i can give, and replace such a label by no
answer. The first step turns an answer that appears or disappears into a changed answer; the second depends on the label
alone. ∎ Counts do not identify these voters, so their strings are numbered within their row and named None.

`tests/votes/test_missing_votes.py` and `tests/votes/test_open_votes.py` guard both theorems.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from fractions import Fraction
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any, Literal, TypedDict, Unpack

import numpy as np
from numpy.typing import ArrayLike, NDArray

from darrm.numerics.exact_sampling import ExactCoins, UniformBelow, require_generator, uniform_below
from darrm.problem import OPEN
from darrm.util import checks
from darrm.util.extras import Untyped, require
from darrm.util.progress import StatusLine
from darrm.votes.answers import Normalize, Vocabulary
from darrm.votes.parquet_file import ParquetSchema, value_batches
from darrm.votes.reading import open_votes, read_survey
from darrm.votes.vote_arrays import (
    ABSTAIN,
    LAYOUTS,
    MISSING_INDEX,
    MOST_DENSE,
    MOST_VOTERS,
    ROWS_AT_ONCE,
    Classes,
    ClassIndices,
    ClassLookup,
    SparseCounts,
    VoteFormat,
    VoteTable,
    check_counts,
    check_size,
    class_names,
    count_codes,
    count_entries,
    count_indices,
    is_sparse,
    number_classes,
    require_complete,
    row_sums,
    stack,
    whole_numbers,
)
from darrm.votes.votes_file import Ids, Labels, Names

_COINS_AT_ONCE = 2**20

_Rows = Iterator[tuple[int, list[Untyped]]]


class ColumnOptions(TypedDict, total=False):
    columns: Sequence[str] | None  # the columns with votes; by default all
    id_column: str | None  # the column of ids


@dataclass(frozen=True, eq=False, repr=False)
class Votes:
    """The votes of K voters on Q queries; made by `from_labels`, `from_counts`, `from_answers` or `read`.

    Attributes
    ----------
    voters
        K ≥ 1.
    classes
        The names of the C ≥ 2 classes; empty for open-set answers.
    missing
        (Q,) numbers of missing votes or None; a row of counts sums to K minus these.
    vocabulary
        The strings of open-set answers, one for each column of `sparse`, then None for missing answers.
    voter_names
        The names of the columns of labels in a file.
    ids
        The name of the column of ids, and the id of each query.

    Examples
    --------
    >>> votes = Votes.from_labels([["no", "yes", "yes"], ["no", "no", "no"]], classes=("no", "yes"))
    >>> votes
    Votes(2 queries to 3 voters, classes no, yes; from labels)
    >>> votes.counts.tolist(), votes.ones.tolist()
    ([[1, 2], [3, 0]], [2, 0])
    """

    _counts: NDArray[np.int64] | SparseCounts
    voters: int
    classes: Names
    source_format: Literal["labels", "counts", "answers"]
    missing: NDArray[np.int64] | None = None
    vocabulary: tuple[str | None, ...] = ()
    normalized: str = ""
    voter_names: tuple[str, ...] = ()
    ids: Ids | None = None

    __setstate__ = checks.set_read_only

    def __post_init__(self) -> None:
        is_open = self.source_format == "answers"
        checks.one_of((*LAYOUTS[1:], "answers"), source_format=self.source_format)
        if is_open and (not is_sparse(self._counts) or self.classes != () or self.missing is not None):
            allowed = "sparse counts without classes and without missing votes"
            checks.fail("open answers", checks.Text("others"), allowed)
        source: Any = self._counts
        counts = check_counts(source) if is_sparse(source) else whole_numbers(require_complete("vote counts", source))
        names = self._check_vocabulary() if is_open else class_names(self.classes)
        if len(names) != counts.shape[1]:
            checks.fail("classes", len(names), f"the number of columns of the counts, {counts.shape[1]}")
        if not is_sparse(counts) and counts.size and counts.min() < 0:
            row = int(np.argmax((counts < 0).any(axis=1)))
            advice = f"row {row} is wrong; a count is the number of voters who chose a class"
            checks.fail("vote counts", int(counts[row].min()), "at least 0", advice)
        checks.integer_at_least(1, voters=self.voters, advice="K, how many answer each query; names go to classes=")
        missing = self._check_missing(counts.shape[0])
        sums = (counts.sum(axis=1) if is_sparse(counts) else row_sums(counts)) + (0 if missing is None else missing)
        if np.any(sums != self.voters):
            row = int(np.argmax(sums != self.voters))
            advice = "every voter must answer every query; for labels, a column a voter, say Votes.from_labels"
            checks.fail(f"the sum of row {row} of the vote counts", int(sums[row]), f"K = {self.voters}", advice)
        classes, vocabulary = ((), names) if is_open else (names, ())
        self._set(_counts=counts, missing=missing, voters=int(self.voters), classes=classes, vocabulary=vocabulary)

    @property
    def strings(self) -> int:
        """The number of different strings of open-set answers."""
        return self.vocabulary.index(None) if None in self.vocabulary else len(self.vocabulary)

    @property
    def blanks(self) -> int:
        """The number of missing open-set answers."""
        return int(np.count_nonzero(self.sparse.indices >= self.strings)) if self.is_open else 0

    def _check_vocabulary(self) -> tuple[str | None, ...]:
        words, vocabulary = self.vocabulary[: self.strings], Vocabulary()
        vocabulary.find_places([(0, words)] if words else [])
        if len(vocabulary) != len(words) or any(word is not None for word in self.vocabulary[len(words) :]):
            checks.fail("vocabulary", checks.Text("others"), "different strings, and None after them")
        return self.vocabulary

    def _check_missing(self, queries: int) -> NDArray[np.int64] | None:
        if self.missing is None:
            return None
        missing = np.array(self.missing)
        if missing.shape != (queries,) or missing.dtype.kind not in "iu" or np.any(missing < 0):
            description = checks.Text(f"shape {missing.shape}, type {missing.dtype}")
            checks.fail("missing", description, f"{queries} whole numbers of at least 0, one a query")
        if self.source_format == "counts":
            checks.fail("missing", checks.Text("some"), "None, or about labels", "counts do not say whose are missing")
        return missing.astype(np.int64)

    def _set(self, **attributes: Untyped) -> None:
        """Set attributes; their arrays are made read-only."""
        for name, value in attributes.items():
            for array in (value.data, value.indices, value.indptr) if is_sparse(value) else [value]:
                if isinstance(array, np.ndarray):
                    array.setflags(write=False)
            is_none = name == "missing" and isinstance(value, np.ndarray) and not value.any()
            object.__setattr__(self, name, None if is_none else value)

    @classmethod
    def _make_unchecked(cls, **attributes: object) -> Votes:
        """Return votes from new arrays, without a check or a copy."""
        votes = object.__new__(cls)
        votes._set(**attributes)
        return votes

    def evolve(self, **changes: object) -> Votes:
        """Replace attributes; unchecked and not copied."""
        return self._make_unchecked(**{field.name: getattr(self, field.name) for field in fields(self)} | changes)

    def rename_classes(self, names: Names) -> Votes:
        """Rename the classes; ``names`` are as `class_names` returns them."""
        return self.evolve(classes=names)

    @classmethod
    def from_labels(
        cls, labels: ArrayLike, classes: Classes = None, *, missing: str = "refuse", line: StatusLine | None = None
    ) -> Votes:
        """Make votes from (Q, K) labels; booleans count as 0 and 1. `ValueError` for votes on other classes.

        Parameters
        ----------
        classes
            The number C of classes 0 … C − 1, or their names in order; by default 2. It must be public: one voter could
            change a number that is derived from the labels.
        missing
            ``"refuse"``, or ``"coin"``: a random vote replaces each missing one at a release. None, NaN, NA and NaT are
            missing, in text "" and "NA" unless a class has that name. Which votes are missing must not depend on
            private data.

        Examples
        --------
        >>> Votes.from_labels([[0, 2, 2], [1, 1, 1]], classes=3).counts.tolist()
        [[1, 0, 2], [0, 3, 0]]
        >>> Votes.from_labels([["no", "yes", None]], classes=("no", "yes"), missing="coin")
        Votes(1 queries to 3 voters, classes no, yes; from labels, 1 missing)
        """
        matrix = require_complete("votes", labels)
        if matrix.ndim == 0:
            advice = "Votes.read reads a file" if isinstance(labels, str | Path) else "one row is one query"
            checks.fail("votes", checks.Text(type(labels).__name__), "of shape (queries, voters)", advice)
        if matrix.dtype.kind == "O" and matrix.size and hasattr(matrix.flat[0], "predict"):
            advice = "predict first: numpy.column_stack([model.predict(x) for model in models])"
            checks.fail("votes", checks.Text("models"), "the answers of the voters", advice)
        if matrix.ndim != 2 or matrix.shape[1] < 1:
            is_row = matrix.ndim == 1 and matrix.size > 0
            advice = (
                f"reshape one query to (1, {matrix.size})" if is_row else "one row is one query, one column a voter"
            )
            checks.fail("votes", matrix.shape, "of shape (queries, voters)", advice)
        vote_format = VoteFormat(matrix.shape[1], class_names(2 if classes is None else classes), missing=missing)
        blocks = ClassLookup(vote_format.names, missing).blocks(matrix, line)
        return cls.from_table(VoteTable("labels", blocks, vote_format))

    @classmethod
    def from_table(cls, table: VoteTable) -> Votes:
        """Count the votes of a table."""
        if table.source_format == "answers":
            votes = cls.from_columns(np.concatenate([*table.blocks]), table.vocabulary)
        elif table.source_format == "labels":
            votes = cls._count_labels(table.blocks, table.vote_format)
        else:
            try:
                blocks = [*table.blocks]
                counts = blocks[0] if len(blocks) == 1 else np.concatenate(blocks)  # a mapped file is not copied
                votes = cls.from_counts(counts, table.vote_format.voters, table.vote_format.names)
            except ValueError as error:
                raise ValueError(f"{error}{table.location}") from error
        ids = None if table.id_column is None else (table.id_column, tuple(table.ids))
        return votes.evolve(ids=ids, voter_names=table.voter_names)

    @classmethod
    def _count_labels(cls, blocks: Iterable[ClassIndices], vote_format: VoteFormat) -> Votes:
        voters, classes = vote_format.voters or 0, len(vote_format.names)
        use_sparse = classes > MOST_DENSE
        parts, missing_counts, rows = list[Untyped](), list[Labels](), 0
        for indices in chain([np.empty((0, voters), dtype=np.int32)], blocks):
            parts.append(count_codes(indices, classes) if use_sparse else count_indices(indices, classes))
            if vote_format.missing == "coin":
                missing_counts.append(np.count_nonzero(indices == MISSING_INDEX, axis=1))
            rows += len(indices)
            if not use_sparse:
                check_size(rows, classes)
        counts = stack(parts) if use_sparse else np.concatenate(parts, dtype=np.int64, casting="unsafe")
        missing = np.concatenate(missing_counts, dtype=np.int64, casting="unsafe") if missing_counts else None
        attributes = {"voters": voters, "classes": vote_format.names, "source_format": "labels"}
        return cls._make_unchecked(_counts=counts, missing=missing, **attributes)

    @classmethod
    def from_answers(
        cls,
        rows: Iterable[Sequence[str]] | ArrayLike,
        numbers: Iterable[Sequence[int]] | None = None,
        *,
        normalize: Normalize = None,
        missing: str = "refuse",
    ) -> Votes:
        """Make votes from (Q, K) open-set answers, strings of 1 to 200 characters; `ValueError` for others.

        Parameters
        ----------
        numbers
            The number of voters for each string, in rows that sum to K; rows may have any lengths then.
        normalize
            ``"casefold"``, ``"nfc"``, ``"spaces"`` (each run becomes one space, none at the ends), ``"strip"``, several
            with commas, in this order; or a function of one answer. It must be public and independent of the votes.
        missing
            ``"refuse"``, or ``"blank"``: a missing answer (None, NaN, "") counts for no string.

        Examples
        --------
        >>> answers = [["flu", "Flu ", "cold"], ["asthma", "none", "none"]]
        >>> votes = Votes.from_answers(answers, normalize="strip,casefold")
        >>> votes
        Votes(2 queries to 3 voters, open answers; from answers, normalized by strip,casefold)
        >>> votes.names, votes.sparse.toarray().tolist()
        (('flu', 'cold', 'asthma', 'none'), [[2, 1, 0, 0], [0, 0, 1, 2]])
        >>> votes.name_labels(np.array([0, ABSTAIN])).tolist()
        ['flu', None]
        >>> Votes.from_answers([["flu", "cold"], ["none"]], [[2, 1], [3]]).voters
        3
        """
        matrix: Any = rows
        if hasattr(matrix, "__array__"):
            matrix = require_complete("answers", matrix)
        vocabulary = VoteFormat(classes=OPEN, missing=missing, normalize=normalize).vocabulary()
        if numbers is not None and missing != "refuse":
            checks.fail("missing", missing, "'refuse' beside numbers", "numbers count given answers")
        if numbers is not None:
            return cls._count_numbers(_iterate_rows(matrix), _iterate_rows(numbers), vocabulary)
        columns = vocabulary.find_places(_iterate_rows(matrix))
        if not columns.shape[0]:
            checks.fail("answers", checks.Text("no rows"), "at least one query", "one row is one query")
        return cls.from_columns(columns, vocabulary)

    @classmethod
    def from_columns(cls, columns: NDArray[np.int32], vocabulary: Vocabulary) -> Votes:
        """Count (Q, K) columns of a vocabulary; negative ones are missing answers."""
        strings, max_missing = len(vocabulary.columns), 0
        rows = np.flatnonzero((columns < 0).any(axis=1))
        if rows.size:
            is_missing = columns[rows] < 0
            ranks = np.cumsum(is_missing, axis=1, dtype=np.int32)
            columns, max_missing = columns.copy(), int(ranks.max())
            columns[rows] = np.where(is_missing, strings + ranks - 1, columns[rows])
        return cls._make_open(count_codes(columns, strings + max_missing), columns.shape[1], vocabulary, max_missing)

    @classmethod
    def _make_open(cls, counts: SparseCounts, voters: int, vocabulary: Vocabulary, blanks: int = 0) -> Votes:
        words = (*vocabulary.columns, *[None] * blanks)
        attributes = {"classes": (), "vocabulary": words, "normalized": vocabulary.normalized}
        return cls._make_unchecked(_counts=counts, voters=voters, source_format="answers", **attributes)

    @classmethod
    def _count_numbers(cls, rows: _Rows, numbers: _Rows, vocabulary: Vocabulary) -> Votes:
        columns, counts, starts, voters = list[int](), list[int](), [0], 0
        for (query, row), (_, row_numbers) in zip(rows, numbers, strict=True):
            if len(row) != len(row_numbers):
                description = checks.Text(f"{len(row)} strings and {len(row_numbers)} numbers")
                checks.fail(f"query {query}", description, "as many strings as numbers of voters who said them")
            for number in row_numbers:
                checks.integer_at_least(1, most=MOST_VOTERS, **{f"numbers of query {query}": number})
            columns += vocabulary.find_places([(query, row)], field_name="string")[0].tolist()
            counts += map(int, row_numbers)
            voters = voters or sum(counts)
            if sum(counts[starts[-1] :]) != voters:
                total = sum(counts[starts[-1] :])
                checks.fail(f"the sum of query {query}", total, f"K = {voters}, that of query 0")
            starts.append(len(columns))
        if not columns:
            checks.fail("answers", checks.Text("no rows"), "at least one query", "one row is one query")
        return cls._make_open(count_entries(counts, columns, starts, len(vocabulary.columns)), voters, vocabulary)

    @classmethod
    def from_counts(cls, counts: ArrayLike, voters: int | None = None, classes: Classes = None) -> Votes:
        """Make votes from (Q, C) counts, whole numbers ≥ 0; `ValueError` unless each row sums to K.

        ``voters`` is K, by default the sum of row 0; ``classes`` the names of the columns, by default 0 … C − 1.

        >>> Votes.from_counts([[240, 10], [100, 150]])
        Votes(2 queries to 250 voters, classes 0, 1; from counts)
        """
        int_counts = whole_numbers(require_complete("vote counts", counts))
        if voters is None:
            if not len(int_counts):
                checks.fail("vote counts", int_counts.shape, "at least one row", "without any, say voters=")
            voters = int(np.maximum(int_counts[0], 0).sum())  # the check below names a negative count
        return cls(int_counts, voters, class_names(int_counts.shape[1] if classes is None else classes), "counts")

    @classmethod
    def read(
        cls,
        path: Path | str,
        *,
        voters: int | None = None,
        classes: Classes = None,
        layout: str = "auto",
        missing: str = "refuse",
        normalize: Normalize = None,
        line: StatusLine | None = None,
        **options: Unpack[ColumnOptions],
    ) -> Votes:
        """Read a file with a row for each query: .csv, .tsv, these as .gz, .npy, .npz or .parquet.

        The first line of a text names the columns if its fields differ and none can be a vote. Text is UTF-8; fields
        may be quoted, or separated by semicolons. `ValueError` names the line or row that holds no votes.

        Parameters
        ----------
        path
            The file, or a folder of .parquet files.
        classes
            As in `from_labels`; text names become numbers if an array holds numbers. ``"open"``: open-set answers.
        layout
            ``"labels"``, ``"counts"``, or ``"auto"``: by the number of columns, if K and C differ.
        missing, normalize
            As in `from_labels` and `from_answers`; an empty field, NA, or in Parquet null is missing.
        **chosen
            ``columns``: the names of the columns with votes, by default all. ``id_column``: the column of `ids`.
        """
        checks.file_name(path=path)
        vote_format = VoteFormat(voters, classes, layout, missing, normalize)
        if missing == "coin":
            if layout == "counts":
                advice = "counts do not say whose votes are missing: give labels, one column a voter"
                checks.fail("missing (--missing)", missing, "'refuse' for counts", advice)
            vote_format = replace(vote_format, layout="labels")
        votes = cls.from_table(open_votes(Path(path), vote_format, line=line, **options))
        return votes if voters is None or votes.source_format == "counts" else votes.require_voters(voters)

    @classmethod
    def read_survey(
        cls,
        path: Path | str,
        voters: int,
        *,
        missing: str = "refuse",
        normalize: Normalize = None,
        line: StatusLine | None = None,
    ) -> Votes:
        """Read open-set answers from .csv: a line for each voter, a column for each question; line 1 may name these."""
        vote_format = VoteFormat(voters, OPEN, missing=missing, normalize=normalize)
        return cls.from_columns(*read_survey(path, vote_format, voters, line))

    @property
    def queries(self) -> int:
        """Q."""
        return int(self._counts.shape[0])

    @property
    def is_open(self) -> bool:
        """Whether the answers are open-set."""
        return self.source_format == "answers"

    @property
    def names(self) -> Names:
        """The names of the columns: the classes, or the strings of open-set answers."""
        return self.vocabulary if self.is_open else self.classes

    @cached_property
    def counts(self) -> NDArray[np.int64]:
        """(Q, C) counts; `ValueError` for open-set answers, and if the dense array is too large."""
        if not is_sparse(self._counts):
            return self._counts
        if self.is_open:
            advice = "their counts are votes.sparse, what its columns are called votes.names"
            checks.fail("votes", checks.Text("open answers"), "about classes that are listed", advice)
        check_size(self.queries, len(self.classes))
        counts: NDArray[np.int64] = self.sparse.toarray()
        counts.setflags(write=False)
        return counts

    @cached_property
    def sparse(self) -> SparseCounts:
        """The same counts without zeros: a scipy.sparse.csr_array."""
        return self._counts if is_sparse(self._counts) else require("scipy.sparse").csr_array(self._counts)

    @property
    def ones(self) -> NDArray[np.int64]:
        """(Q,) counts of the second of two classes; `ValueError` for other votes, and if one is missing."""
        if len(self.classes) != 2:
            description = checks.Text("open answers" if self.is_open else f"{len(self.classes)} classes")
            checks.fail("votes", description, "about two classes", "see Plurality and GNMax for more")
        return require_votes(self).counts[:, 1]

    @classmethod
    def concatenate(cls, batches: Sequence[Votes]) -> Votes:
        """Concatenate votes of the same voters on the same classes."""
        if not batches:
            checks.fail("votes", checks.Text("none"), "those on at least one query")
        kinds = {(votes.voters, votes.classes, votes.is_open, votes.normalized) for votes in batches}
        if len(kinds) > 1:
            checks.fail("votes", checks.Text("those of others among them"), "of the same voters on the same classes")
        first_batch, id_columns = batches[0], [votes.ids for votes in batches if votes.ids is not None]
        has_one_id_column = len(id_columns) == len(batches) and len({name for name, _ in id_columns}) == 1
        ids = (id_columns[0][0], tuple(chain(*(values for _, values in id_columns)))) if has_one_id_column else None
        if first_batch.is_open:
            return cls._concatenate_open(batches, ids)
        if is_sparse(first_batch._counts):  # noqa: SLF001 (of this class)
            counts = stack([votes.sparse for votes in batches])
        else:
            counts = np.concatenate([votes.counts for votes in batches])
        missing = [np.zeros(v.queries, dtype=np.int64) if v.missing is None else v.missing for v in batches]
        source_format = "labels" if any(votes.source_format == "labels" for votes in batches) else "counts"
        changes = {"source_format": source_format, "missing": np.concatenate(missing), "ids": ids}
        return first_batch.evolve(_counts=counts, **changes)

    @classmethod
    def _concatenate_open(cls, batches: Sequence[Votes], ids: Ids | None) -> Votes:
        columns: dict[str | None, int] = {}
        for votes in batches:
            for word in votes.vocabulary[: votes.strings]:
                columns.setdefault(word, len(columns))
        blanks = max(len(votes.vocabulary) - votes.strings for votes in batches)
        parts = []
        for votes in batches:
            words, rows = votes.vocabulary[: votes.strings], votes.sparse
            new_columns = np.array(
                [*map(columns.get, words), *range(len(columns), len(columns) + blanks)], dtype=np.int32
            )
            entries = (rows.data.copy(), new_columns[rows.indices], rows.indptr.copy())  # they are sorted in place
            parts.append(count_entries(*entries, len(columns) + blanks))
        attributes = {"vocabulary": (*columns, *[None] * blanks), "ids": ids}
        return batches[0].evolve(_counts=stack(parts), **attributes)

    def impute_missing(self, *, rng: np.random.Generator | None = None) -> Votes:
        """Return votes with each missing vote replaced by an exact fair coin, for C > 2 a fair die.

        Every release does this with new coins. ``rng`` is for experiments; None draws from the operating system.
        """
        if rng is not None:
            require_generator(rng)
        if self.is_open:
            advice = "open answers have no list of strings to draw from; missing ones count for no string"
            checks.fail("votes", checks.Text("open answers"), "about classes that are listed", advice)
        if self.missing is None:
            return self
        classes = len(self.classes)
        draws = _roll_dice(self.missing, classes, uniform_below(rng)) if classes > 2 else _flip_coins(self.missing, rng)
        return self.evolve(_counts=self.counts + draws, missing=None)

    def require_voters(self, K: int) -> Votes:
        """Return these votes; `ValueError` unless there are K voters."""
        if self.voters != K:
            description, plan_advice = f"{self.voters} columns", f"plan for the {self.voters} voters that there are"
            if self.source_format == "counts":
                description, advice = f"{self.voters} votes on every query", "a row of counts sums to K"
            elif self.queries == K:
                advice = f"there are {K} rows, but one row is one query: turn the votes round, votes.T"
            elif self.voters == len(self.classes):
                advice = "one column is one voter; for counts say --layout counts, or Votes.from_counts"
            elif self.voters > K:
                advice = f"one column is one voter: remove other columns, or {plan_advice}"
            else:
                missing_advice = "" if self.is_open else "leave a missing vote empty (--missing coin), or "
                advice = f"one column is one voter: {missing_advice}{plan_advice}"
            checks.fail("votes", checks.Text(description), f"of K = {K} voters", advice)
        return self

    def name_labels(self, answers: NDArray[np.int64]) -> Labels:
        """Return the (Q,) names of these classes; `ABSTAIN` stays, for open-set answers it is None."""
        if self.is_open:
            return self._strings[answers]
        if self.classes == number_classes(len(self.classes)):
            return answers
        names, is_abstention = np.asarray(self.classes)[answers], answers == ABSTAIN
        if not is_abstention.any():
            return names
        return np.where(is_abstention, str(ABSTAIN) if names.dtype.kind == "U" else ABSTAIN, names)

    @cached_property
    def _strings(self) -> Labels:
        """The strings as objects: the width of a text type would reveal the longest string."""
        return np.array((*self.vocabulary, None), dtype=object)

    def __getitem__(self, rows: slice | NDArray[np.bool_]) -> Votes:
        if not isinstance(rows, slice | np.ndarray):
            raise TypeError("votes are cut by rows: votes[start:stop], or votes[(Q,) booleans]")
        missing = None if self.missing is None else self.missing[rows].copy()
        ids = None if self.ids is None else (self.ids[0], tuple(np.array(self.ids[1], dtype=object)[rows]))
        return self.evolve(_counts=self._counts[rows].copy(), missing=missing, ids=ids)

    def __repr__(self) -> str:
        names = ", ".join(map(str, self.classes[:5])) + (", …" if len(self.classes) > 5 else "")
        subject = "open answers" if self.is_open else f"classes {names}"
        text = f"{self.queries:,} queries to {self.voters:,} voters, {subject}; from {self.source_format}"
        if missing_count := self.blanks if self.missing is None else self.missing.sum():
            text += f", {missing_count:,} missing"
        return f"Votes({text}, normalized by {self.normalized})" if self.normalized else f"Votes({text})"


def _flip_coins(missing: NDArray[np.int64], rng: np.random.Generator | None) -> NDArray[np.int64]:
    cumulative, heads = np.cumsum(missing), np.zeros(missing.size, dtype=np.int64)
    coin = ExactCoins([Fraction(1, 2)])
    for start in range(0, int(cumulative[-1]), _COINS_AT_ONCE):
        coin_indices = np.zeros(min(_COINS_AT_ONCE, int(cumulative[-1]) - start), dtype=np.int64)
        is_heads = coin.flip(coin_indices, source=os.urandom if rng is None else rng.bytes)
        # coin i (from 0) belongs to the first query with more than i missing votes up to it
        queries = np.searchsorted(cumulative, start + np.flatnonzero(is_heads), side="right")
        heads += np.bincount(queries, minlength=missing.size)
    return np.column_stack([missing - heads, heads])


def _roll_dice(missing: NDArray[np.int64], classes: int, draw_below: UniformBelow) -> NDArray[np.int64]:
    counts = np.zeros((missing.size, classes), dtype=np.int64)
    for start in range(0, missing.size, ROWS_AT_ONCE):
        rows = np.arange(start, min(start + ROWS_AT_ONCE, missing.size))
        queries = np.repeat(rows, missing[rows])
        np.add.at(counts, (queries, draw_below(np.full(queries.size, classes, dtype=np.int64))), 1)
    return counts


def vote_batches(path: Path, schema: ParquetSchema) -> Iterator[tuple[Votes, Untyped]]:
    """Yield votes of a Parquet file, each batch with its own vocabulary, and its record batch."""
    vote_format, vocabulary = schema.how, schema.how.vocabulary()
    for values, first_row, batch in value_batches(path, schema, vocabulary):
        location = f" (row 0 is row {first_row:,} of {str(path)!r})"
        votes = Votes.from_table(VoteTable(schema.source_format, [values], vote_format, vocabulary, location=location))
        vote_format = replace(vote_format, voters=votes.voters)  # of counts without a stated K
        vocabulary.forget()
        yield votes, batch


def to_counts(votes: Votes | ArrayLike) -> NDArray[np.int64]:
    """Return the (Q, C) counts of votes, or check an array of counts; `ValueError` unless there is a query."""
    counts = require_votes(votes).counts if isinstance(votes, Votes) else Votes.from_counts(votes).counts
    if not len(counts):
        checks.fail("votes", counts.shape, "at least one query")
    return counts


def require_votes(votes: object) -> Votes:
    """Return complete `Votes`; `ValueError` for missing votes and for arrays."""
    if isinstance(votes, Votes):
        if votes.missing is not None:
            advice = "votes.impute_missing() replaces them; tables and planned mechanisms do so themselves"
            checks.fail("votes", checks.Text(f"{votes.missing.sum():,} missing"), "complete", advice)
        return votes
    advice = "use Votes.from_labels(labels, classes) or Votes.from_counts(counts)"
    return checks.fail("votes", checks.Text(type(votes).__name__), "Votes", advice)


def _iterate_rows(rows: Untyped) -> _Rows:
    if isinstance(rows, str | Mapping) or not isinstance(rows, Iterable):
        checks.fail("answers", checks.Text(type(rows).__name__), "rows of strings", "one row is one query")
    for query, row in enumerate(rows):
        if isinstance(row, str | Mapping) or not isinstance(row, Iterable):
            checks.fail(f"query {query}", row, "a row of strings, one a voter", "one row is one query")
        yield query, row.tolist() if isinstance(row, np.ndarray) else list(row)
