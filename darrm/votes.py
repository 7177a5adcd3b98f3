"""Votes: what the voters answered, parsed once, and held as the counts that every aggregator needs.

Labels (Q, K) say what each of K voters answered to each of Q queries; counts (Q, C) say how many of them chose each of
C classes. Nothing in an array tells the two apart (a row of 50 labels looks like the counts of 50 classes), and an
aggregator that takes one for the other claims a privacy that it does not have. So it is said once, when votes are made.

Both are held as counts: an answer depends on how many voters chose what, never on who they were. Of many classes only
the counts above zero are held, and of answers that nobody listed there are no others.

A vote may be missing, if that is asked for: a fair coin stands for it, of more than two classes a fair die. *Theorem.*
What a release of K votes guarantees it guarantees with coins for some of them, if which ones are missing does not
depend on the private data. *Proof.* A coin does not look at the data: it is a (0, 0)-private voter, and so an
(ε, Δ)-private one, whom no person's data reach. ∎ About plain voters nothing is promised: what a person reaches of them
may answer anything, also what a die says. So for plain voters the guarantee holds between data, too, with which up to
t votes differ, appear or disappear, t being the overlap; the others, and which of them are missing, stay the same.

There is no die over strings that nobody listed. A missing open answer, if that is asked for, counts for no string.
*Theorem.* What a release of K answers guarantees it guarantees between data, too, with which up to t answers differ,
appear or disappear, if it treats all strings alike but for their counts. *Proof.* Let the voter in place i who says
nothing say a string that only he can say, and let a label that is one of these become no answer. The first replaces
each answer that appears or disappears by another one, and the second looks at the label alone. ∎ Counts do not tell
whose these strings are, so the columns of a row are numbered as they come, and all are called None.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from fractions import Fraction
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, NoReturn

import numpy as np
from numpy.typing import ArrayLike, NDArray

from darrm.errors import checks
from darrm.probability.exact_coins import ExactCoins
from darrm.probability.exact_sampling import UniformBelow, require_generator, uniform_below
from darrm.problem import OPEN, is_open
from darrm.system.answers import Normalize, Vocabulary
from darrm.system.extras import Untyped
from darrm.system.parquet_file import SUFFIX, Layout, answer_batches, count_batches, layout_of
from darrm.system.progress import StatusLine, blocks
from darrm.system.sparse_counts import SparseCounts
from darrm.system.vote_arrays import (
    ABSTAIN,
    FORMATS,
    MISSING,
    MOST_VOTERS,
    Classes,
    ManyClasses,
    as_typed,
    check_open,
    class_names,
    complete_array,
    count_labels,
    likely_format,
    numbered,
    row_sums,
    whole_numbers,
    words_of,
)
from darrm.system.votes_file import Labels, Names, answer_rows, is_csv, load_matrix

__all__ = ["ABSTAIN", "FORMATS", "MISSING", "MOST_VOTERS", "Classes", "Labels", "Votes", "class_names"]

ROWS_AT_ONCE = 2**16  # bounds the memory beside the counts; large files are mapped, not read whole
MOST_COUNTS = 2**29  # Q·C: four gigabytes of counts that stand beside each other
_MOST_DENSE = 256  # classes: of more the zeros are not kept
_COINS_AT_ONCE = 2**20

_Rows = Iterator[tuple[int, list[Any]]]


@dataclass(frozen=True, eq=False, repr=False)
class Votes:
    """The votes of K voters on Q queries; made by `of_labels`, `of_counts`, `of_answers` or `read`.

    Attributes
    ----------
    held
        (Q, C) how many voters chose each class, or `SparseCounts`; every row sums to K, less the votes that are
        missing. `counts` is the one and `sparse` the other, whatever is held.
    voters
        K ≥ 1.
    classes
        What the C ≥ 2 classes are called, 0 … C − 1 unless they were named; empty for open answers.
    given
        What the votes were made from: ``"labels"``, ``"counts"`` or ``"answers"``.
    missing
        (Q,) how many votes of each query are missing; None if all are there.
    vocabulary
        The strings that were said, of open answers: what the columns of `sparse` are called, and after them None for
        each answer to one query that is missing.
    normalized
        What was done to open answers before they were counted; empty for nothing.

    Examples
    --------
    >>> votes = Votes.of_labels([["no", "yes", "yes"], ["no", "no", "no"]], classes=("no", "yes"))
    >>> votes
    Votes(2 queries to 3 voters, classes no, yes; from labels)
    >>> votes.counts.tolist(), votes.ones.tolist()
    ([[1, 2], [3, 0]], [2, 0])
    """

    held: NDArray[np.int64] | SparseCounts
    voters: int
    classes: Names
    given: Literal["labels", "counts", "answers"]
    missing: NDArray[np.int64] | None = None
    vocabulary: tuple[str | None, ...] = ()
    normalized: str = ""

    def __post_init__(self) -> None:
        # a copy that nobody else can write to, or what nobody can
        held = self.held
        counts = held if isinstance(held, SparseCounts) else whole_numbers(complete_array("vote counts", held))
        checks.one_of((*FORMATS[1:], "answers"), given=self.given)
        names = self._open_names() if self.given == "answers" else class_names(self.classes)
        columns = counts.classes if isinstance(counts, SparseCounts) else counts.shape[1]
        if len(names) != columns:
            checks.fail("classes", len(names), f"the number of columns of the counts, {columns}")
        if not isinstance(counts, SparseCounts) and counts.size and counts.min() < 0:
            row = int(np.argmax((counts < 0).any(axis=1)))
            advice = f"row {row} is wrong; a count says how many voters chose a class"
            checks.fail("vote counts", int(counts[row].min()), "at least 0", advice)
        checks.integer_at_least(1, voters=self.voters, advice="K, how many answer each query; names go to classes=")
        missing = None if self.missing is None else self._missing_of(len(counts))
        sums = counts.sums if isinstance(counts, SparseCounts) else row_sums(counts)
        sums = sums if missing is None else sums + missing
        if np.any(sums != self.voters):
            row = int(np.argmax(sums != self.voters))
            advice = "every voter must answer every query; for labels, a column a voter, say Votes.of_labels"
            checks.fail(f"the sum of row {row} of the vote counts", int(sums[row]), f"K = {self.voters}", advice)
        classes, vocabulary = ((), names) if self.given == "answers" else (names, ())
        self._hold(held=counts, missing=missing, voters=int(self.voters), classes=classes, vocabulary=vocabulary)

    def _open_names(self) -> tuple[str | None, ...]:
        if not isinstance(self.held, SparseCounts) or self.classes != () or self.missing is not None:
            allowed = "SparseCounts without classes, of which none is missing"
            checks.fail("open answers", checks.Found("others"), allowed)
        said, words = self.vocabulary[: self.strings], Vocabulary()
        words.places_of([(0, said)] if said else [])
        if len(words) != len(said) or any(word is not None for word in self.vocabulary[len(said) :]):
            checks.fail("vocabulary", checks.Found("others"), "different strings, and None after them")
        return self.vocabulary

    @property
    def strings(self) -> int:
        """How many different strings were said, of open answers."""
        return self.vocabulary.index(None) if None in self.vocabulary else len(self.vocabulary)

    @property
    def blanks(self) -> int:
        """How many open answers are missing, which count for no string."""
        return int(np.count_nonzero(self.sparse.columns >= self.strings)) if self.is_open else 0

    def _missing_of(self, queries: int) -> NDArray[np.int64]:
        missing = np.array(self.missing)
        if missing.shape != (queries,) or missing.dtype.kind not in "iu" or np.any(missing < 0):
            found = checks.Found(f"shape {missing.shape}, type {missing.dtype}")
            checks.fail("missing", found, f"{queries} whole numbers of at least 0, one a query")
        if self.given == "counts":
            checks.fail("missing", checks.Found("some"), "None, or about labels", "counts do not say whose are missing")
        return missing.astype(np.int64)

    def _hold(self, **attributes: object) -> None:
        for name, value in attributes.items():
            if isinstance(value, np.ndarray):
                value.setflags(write=False)
            is_none = name == "missing" and isinstance(value, np.ndarray) and not value.any()
            object.__setattr__(self, name, None if is_none else value)

    @classmethod
    def _made(cls, **attributes: object) -> Votes:
        """Return votes that were counted just now, in arrays that nobody else has: neither checked again nor copied."""
        votes = object.__new__(cls)
        votes._hold(**{"missing": None, "vocabulary": (), "normalized": "", **attributes})
        return votes

    @classmethod
    def _made_like(cls, votes: Votes, **changes: object) -> Votes:
        """Return votes with other values of some attributes, which are not checked again."""
        return cls._made(**{**{field.name: getattr(votes, field.name) for field in fields(votes)}, **changes})

    def called(self, names: Names) -> Votes:
        """Return the same votes on classes that are called so, by as many names as `class_names` returned."""
        return self._made_like(self, classes=names)

    @classmethod
    def of_labels(
        cls,
        labels: ArrayLike,
        classes: Classes = None,
        *,
        missing: str = "refuse",
        line: StatusLine | None = None,
    ) -> Votes:
        """Read labels: one row a query, one column a voter.

        Parameters
        ----------
        labels
            (Q, K) what each voter answers to each query; booleans count as 0 and 1.
        classes
            The number C of classes 0 … C − 1, or what they are called, in order; by default two, 0 and 1. It is public:
            found in the labels, it would change with one voter, and no guarantee would hold.
        missing
            ``"refuse"``, or ``"coin"``: a fair coin, of more than two classes a fair die, stands for each vote that is
            missing, tossed when a label is released (`completed`). Missing are None, NaN, pandas' NA and NaT, and in
            text what is empty or NA, unless a class is called so; −1 is not. Which votes are missing must not depend on
            the private data.
        line
            Where to show progress.

        Raises
        ------
        ValueError
            If some vote is no vote (NaN, an abstention, another class), or the shape is wrong.

        Examples
        --------
        >>> Votes.of_labels([[0, 2, 2], [1, 1, 1]], classes=3).counts.tolist()
        [[1, 0, 2], [0, 3, 0]]
        >>> Votes.of_labels([["no", "yes", None]], classes=("no", "yes"), missing="coin")
        Votes(1 queries to 3 voters, classes no, yes; from labels, 1 missing)
        >>> Votes.of_labels([[0, 1, 2]], classes=2)
        Traceback (most recent call last):
        ...
        ValueError: votes must be 0 or 1, got 2 from voter 2 to query 0: name the classes, classes=(A, B) \
(--classes=A,B), or say classes=C (--classes C) for 0 … C - 1
        """
        matrix = complete_array("votes", labels)
        if matrix.ndim == 0:
            advice = "Votes.read reads a file" if isinstance(labels, str | Path) else "one row is one query"
            checks.fail("votes", checks.Found(type(labels).__name__), "of shape (queries, voters)", advice)
        if matrix.dtype.kind == "O" and matrix.size and hasattr(matrix.flat[0], "predict"):
            advice = "a column is what one of them predicts: numpy.column_stack([model.predict(x) for model in models])"
            checks.fail("votes", checks.Found("models"), "what the voters answered", advice)
        if matrix.ndim != 2 or matrix.shape[1] < 1:
            one = matrix.ndim == 1 and matrix.size > 0
            advice = f"reshape one query to (1, {matrix.size})" if one else "one row is one query, one column a voter"
            checks.fail("votes", matrix.shape, "of shape (queries, voters)", advice)
        names = class_names(2 if classes is None else classes)
        check_open(None, "labels", missing, None)
        absent = np.zeros(len(matrix), dtype=np.int64) if missing == "coin" else None
        several: list[SparseCounts] = []
        is_sparse = len(names) > _MOST_DENSE
        if not is_sparse and len(matrix) * len(names) > MOST_COUNTS:
            _refuse_counts(len(matrix), len(names))
        counts = np.empty((0 if is_sparse else len(matrix), len(names)), dtype=np.int64)
        start, many = 0, ManyClasses(names) if is_sparse else None
        for block in blocks(matrix, ROWS_AT_ONCE, line or StatusLine(enabled=False), "checking votes"):
            rows = slice(start, start + len(block))
            gone = None if absent is None else absent[rows]
            if many is None:
                count_labels(block, names, start, counts[rows], gone)
            else:
                several.append(many.count(block, start, gone))
            start += len(block)
        held = SparseCounts.joined(several or [SparseCounts.of_dense(counts)]) if is_sparse else counts
        return cls._made(held=held, missing=absent, voters=matrix.shape[1], classes=names, given="labels")

    @classmethod
    def of_answers(
        cls,
        rows: Iterable[Sequence[str]] | ArrayLike,
        numbers: Iterable[Sequence[int]] | None = None,
        *,
        normalize: Normalize = None,
        missing: str = "refuse",
    ) -> Votes:
        """Read answers that nobody listed: one row a query, with one string of each voter, or each string once.

        Strings are equal or different, to the last space, unless ``normalize`` makes them alike. None of them stands
        for no vote, whatever it says, but the empty one.

        Parameters
        ----------
        rows
            (Q, K) strings of 1 to 200 characters; with ``numbers`` rows of any lengths.
        numbers
            How many voters said each of them: rows of whole numbers above 0 that sum to K.
        normalize
            What is done to each answer before it is counted: ``"casefold"``, ``"nfc"`` (Unicode's composed form),
            ``"spaces"`` (each run of white space is one space, none at the ends), ``"strip"``, several with commas, in
            this order; or a function of one answer. It must be public, the same for all voters, and independent of the
            votes. A ledger's log says what it was.
        missing
            ``"refuse"``, or ``"blank"``: an answer that is missing (None, NaN, an empty string) counts for no string,
            and nobody's label is it. There is no die over strings that nobody listed; what holds is said above.

        Raises
        ------
        ValueError
            If an answer is no such string, or rows are not of K votes.

        Examples
        --------
        >>> votes = Votes.of_answers([["flu", "Flu ", "cold"], ["asthma", "none", "none"]], normalize="strip,casefold")
        >>> votes
        Votes(2 queries to 3 voters, open answers; from answers, normalized by strip,casefold)
        >>> votes.names, votes.sparse.dense().tolist()
        (('flu', 'cold', 'asthma', 'none'), [[2, 1, 0, 0], [0, 0, 1, 2]])
        >>> votes.labeled(np.array([0, ABSTAIN])).tolist()
        ['flu', None]
        >>> Votes.of_answers([["flu", "cold"], ["none"]], [[2, 1], [3]]).voters
        3
        """
        matrix: Any = rows
        if hasattr(matrix, "__array__"):
            matrix = complete_array("answers", matrix)
        check_open(OPEN, "labels", missing, normalize)
        vocabulary = Vocabulary(normalize, missing)
        if numbers is not None and missing != "refuse":
            checks.fail("missing", missing, "'refuse' beside numbers", "they count what was said")
        if numbers is not None:
            return cls._of_numbers(_rows(matrix), _rows(numbers), vocabulary)
        places = vocabulary.places_of(_rows(matrix))
        if not places.shape[0]:
            checks.fail("answers", checks.Found("no rows"), "at least one query", "one row is one query")
        return cls.of_places(places, vocabulary)

    @classmethod
    def of_places(cls, places: NDArray[np.int32], vocabulary: Vocabulary) -> Votes:
        """Count (Q, K) columns of a vocabulary; those that are missing, which are below 0, have columns after them."""
        words, most = len(vocabulary.columns), 0
        rows = np.flatnonzero((places < 0).any(axis=1))
        if rows.size:
            absent = places[rows] < 0
            ranks = np.cumsum(absent, axis=1, dtype=np.int32)
            places, most = places.copy(), int(ranks.max())
            places[rows] = np.where(absent, words + ranks - 1, places[rows])
        return cls._open(SparseCounts.of_places(places, words + most), places.shape[1], vocabulary, most)

    @classmethod
    def _open(cls, counts: SparseCounts, voters: int, vocabulary: Vocabulary, blanks: int = 0) -> Votes:
        words = (*vocabulary.columns, *[None] * blanks)
        named = {"classes": (), "vocabulary": words, "normalized": vocabulary.normalized}
        return cls._made(held=counts, voters=voters, given="answers", **named)

    @classmethod
    def _of_numbers(cls, rows: _Rows, numbers: _Rows, vocabulary: Vocabulary) -> Votes:
        counted, voters = [], 0
        for (query, row), (_, times) in zip(rows, numbers, strict=True):
            if len(row) != len(times):
                found = checks.Found(f"{len(row)} strings and {len(times)} numbers")
                checks.fail(f"query {query}", found, "as many strings as numbers of voters who said them")
            checks.integer_at_least(1, most=MOST_VOTERS, **{f"numbers of query {query}": n for n in times})
            entries: dict[int, int] = {}
            for column, number in zip(vocabulary.places_of([(query, row)], field_name="string")[0], times, strict=True):
                entries[int(column)] = entries.get(int(column), 0) + int(number)
            voters = voters or sum(entries.values())
            if sum(entries.values()) != voters:
                checks.fail(f"the sum of query {query}", sum(entries.values()), f"K = {voters}, that of query 0")
            counted.append(entries)
        if not counted:
            checks.fail("answers", checks.Found("no rows"), "at least one query", "one row is one query")
        return cls._open(SparseCounts.of_rows(counted, len(vocabulary.columns)), voters, vocabulary)

    @classmethod
    def of_counts(cls, counts: ArrayLike, voters: int | None = None, classes: Classes = None) -> Votes:
        """Read counts: one row a query, one column a class.

        Parameters
        ----------
        counts
            (Q, C) whole numbers; floats are taken where they are whole.
        voters
            K, what every row must sum to; by default the sum of row 0.
        classes
            The number C of columns, or what they are called.

        Raises
        ------
        ValueError
            If a count is NaN, infinite, negative or no whole number, the shape is wrong, or a row does not sum to K.

        Examples
        --------
        >>> Votes.of_counts([[240, 10], [100, 150]])
        Votes(2 queries to 250 voters, classes 0, 1; from counts)
        >>> Votes.of_counts([[3, -1]])
        Traceback (most recent call last):
        ...
        ValueError: vote counts must be at least 0, got -1: row 0 is wrong; a count says how many voters chose a class
        """
        whole = whole_numbers(complete_array("vote counts", counts))
        if voters is None:
            if not len(whole):
                checks.fail("vote counts", whole.shape, "at least one row", "without any, say voters=")
            voters = int(np.maximum(whole[0], 0).sum())  # a negative count is named below
        return cls(whole, voters, class_names(whole.shape[1] if classes is None else classes), "counts")

    @classmethod
    def read(
        cls,
        path: Path | str,
        *,
        voters: int | None = None,
        classes: Classes = None,
        votes_format: str = "auto",
        missing: str = "refuse",
        normalize: Normalize = None,
        line: StatusLine | None = None,
    ) -> Votes:
        """Read a .npy, .csv or .parquet file with one row a query; all but .csv are looked at in blocks of rows.

        Every line of a .csv file is a query, or an error that names the line: a header, a comment, a blank line and,
        unless ``missing`` says otherwise, a missing vote are errors. Fields may be quoted, lines may end as on Windows,
        and the text is UTF-8.

        Parameters
        ----------
        path
            The file.
        voters
            K, where it is known.
        classes
            As in `of_labels`; names as text become numbers where an .npy file holds numbers. ``"open"``: the file holds
            the answers of `of_answers`, one column a voter, to the last space as they stand there.
        votes_format
            ``"labels"``, ``"counts"``, or ``"auto"``, which refuses what could be either.
        missing
            As in `of_labels`; with ``"coin"`` the file holds labels, and in a .csv file an empty field or NA is a
            missing vote. Of open answers as in `of_answers`; in Parquet a null is missing, too.
        normalize
            As in `of_answers`, of open answers.
        line
            Where to show progress.

        Raises
        ------
        ValueError
            If the file holds no votes.
        OSError
            If it cannot be read.
        """
        checks.one_of(FORMATS, votes_format=votes_format)
        checks.file_name(path=path)
        path, coin = Path(path), missing == "coin"
        check_open(classes, votes_format, missing, normalize)
        if is_open(classes):
            votes = cls._read_open(path, voters, Vocabulary(normalize, missing), line)
            return votes if voters is None else votes.of_voters(voters)
        if coin and votes_format == "counts":
            advice = "counts do not say whose votes are missing: give labels, one column a voter"
            checks.fail("missing (--missing)", missing, "'refuse' for counts", advice)
        if path.suffix.lower() == SUFFIX:
            if coin:
                checks.fail("missing (--missing)", missing, "'refuse' for .parquet files", "leave such rows out")
            layout = layout_of(path, class_names(2 if classes is None else classes), voters, votes_format=votes_format)
            several = [votes for votes, _ in vote_batches(path, layout)]
            return cls.joined(several or [cls.of_labels(np.empty((0, len(layout.votes)), int), layout.classes)])
        if is_csv(path) and votes_format != "counts" and not isinstance(classes, int | np.integer | None):
            names = class_names(classes)
            matrix = load_matrix(path, words_of(names), line, absent=coin)
            votes = cls.of_labels(matrix, len(names), missing=missing, line=line).called(names)
            return votes if voters is None else votes.of_voters(voters)
        matrix = load_matrix(path, line=line, absent=coin)
        kind = "labels" if coin else likely_format(matrix, voters, classes) if votes_format == "auto" else votes_format
        try:
            if kind == "counts":
                return cls.of_counts(matrix, voters, classes)
            votes = cls.of_labels(matrix, as_typed(classes, matrix), missing=missing, line=line)
        except ValueError as error:
            if not is_csv(path):
                raise
            raise ValueError(f"{error} (in {str(path)!r} query 0, or row 0, is line 1)") from error
        return votes if voters is None else votes.of_voters(voters)

    @classmethod
    def _read_open(cls, path: Path, voters: int | None, vocabulary: Vocabulary, line: StatusLine | None) -> Votes:
        if path.suffix.lower() == SUFFIX:
            layout = replace(layout_of(path, (), voters), **vocabulary.options)
            none, batches = np.empty((0, len(layout.votes)), np.int32), answer_batches(path, layout, vocabulary)
            return cls.of_places(np.concatenate([none, *(places for places, _, _ in batches)]), vocabulary)
        try:
            called = ("line", "field") if is_csv(path) else ("query", "voter")
            places = vocabulary.places_of(answer_rows(path, line), *called)
        except ValueError as error:
            raise ValueError(f"{str(path)!r} is no table of open answers: {error}") from error
        if not len(places):
            raise ValueError(f"{str(path)!r} must hold at least one line: every line is a query")
        return cls.of_places(places, vocabulary)

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
        """Read open answers from a .csv file with a line a voter, who answers a question in each column.

        The file has K lines, or one more, the first of which then names the questions and is left out.

        Parameters
        ----------
        path
            The file.
        voters
            K.
        missing, normalize, line
            As in `read`.

        Raises
        ------
        ValueError
            If the file holds no such answers.
        OSError
            If it cannot be read.
        """
        checks.integer_at_least(1, voters=voters)
        checks.file_name(path=path)
        check_open(OPEN, "auto", missing, normalize)
        vocabulary = Vocabulary(normalize, missing)
        if not is_csv(Path(path)):
            checks.fail("path", str(path), "a .csv file", "of other files turn the votes round, votes.T")
        try:
            lines = [row for _, row in answer_rows(Path(path), line)]
            if len(lines) not in {voters, voters + 1}:
                advice = f"one a voter, K = {voters}, and perhaps one that names the questions"
                checks.fail("the number of lines", len(lines), f"{voters} or {voters + 1}", advice)
            first = len(lines) - voters
            places = vocabulary.places_of(enumerate(lines[first:], first + 1), "line", "field")
        except ValueError as error:
            raise ValueError(f"{str(path)!r} is no survey: {error}") from error
        return cls.of_places(np.ascontiguousarray(places.T), vocabulary)

    @property
    def queries(self) -> int:
        """Q, the number of queries."""
        return len(self.held)

    @property
    def is_open(self) -> bool:
        """Whether the answers are strings that nobody listed."""
        return self.given == "answers"

    @property
    def names(self) -> Names:
        """What the columns are called: the classes, or the strings that were said."""
        return self.vocabulary if self.is_open else self.classes

    @cached_property
    def counts(self) -> NDArray[np.int64]:
        """(Q, C) how many voters chose each class; `ValueError` for open answers, and for too many zeros."""
        if not isinstance(self.held, SparseCounts):
            return self.held
        if self.is_open:
            advice = "their counts are votes.sparse, what its columns are called votes.names"
            checks.fail("votes", checks.Found("open answers"), "about classes that are listed", advice)
        if self.queries * len(self.classes) > MOST_COUNTS:
            _refuse_counts(self.queries, len(self.classes))
        counts = self.held.dense()
        counts.setflags(write=False)
        return counts

    @cached_property
    def sparse(self) -> SparseCounts:
        """The same counts without zeros, whatever is held."""
        return self.held if isinstance(self.held, SparseCounts) else SparseCounts.of_dense(self.held)

    @property
    def ones(self) -> NDArray[np.int64]:
        """(Q,) how many voters chose the second of two classes; `ValueError` for more, and where a vote is missing."""
        if len(self.classes) != 2:
            checks.fail(
                "votes",
                checks.Found("open answers" if self.is_open else f"{len(self.classes)} classes"),
                "about two classes",
                "see Plurality and GNMax for more",
            )
        return require_votes(self).counts[:, 1]

    @classmethod
    def joined(cls, several: Sequence[Votes]) -> Votes:
        """Put votes of the same voters on the same classes one after the other.

        >>> Votes.joined([Votes.of_labels([[1, None]], missing="coin"), Votes.of_labels([[0, 0]])])
        Votes(2 queries to 2 voters, classes 0, 1; from labels, 1 missing)
        """
        first = several[0]
        told = (first.voters, first.classes, first.is_open, first.normalized)
        if any((votes.voters, votes.classes, votes.is_open, votes.normalized) != told for votes in several):
            checks.fail("votes", checks.Found("those of others among them"), "of the same voters on the same classes")
        if first.is_open:
            return cls._joined_open(several)
        given: Literal["labels", "counts"] = "labels" if any(each.given == "labels" for each in several) else "counts"
        none = [np.zeros(each.queries, dtype=np.int64) for each in several]
        missing = [
            each.missing if each.missing is not None else zeros for each, zeros in zip(several, none, strict=True)
        ]
        if isinstance(first.held, SparseCounts):
            held: NDArray[np.int64] | SparseCounts = SparseCounts.joined(votes.sparse for votes in several)
        else:
            held = np.concatenate([votes.counts for votes in several])
        return cls._made_like(first, held=held, given=given, missing=np.concatenate(missing))

    @classmethod
    def _joined_open(cls, several: Sequence[Votes]) -> Votes:
        columns: dict[str | None, int] = {}
        for votes in several:
            for word in votes.vocabulary[: votes.strings]:
                columns.setdefault(word, len(columns))
        most = max(len(votes.vocabulary) - votes.strings for votes in several)
        blanks, parts = range(len(columns), len(columns) + most), []
        for votes in several:
            called = [columns[word] for word in votes.vocabulary[: votes.strings]]
            called += blanks[: len(votes.vocabulary) - len(called)]
            parts.append(votes.sparse.renumbered(np.array(called, dtype=np.int64), len(columns) + most))
        vocabulary = (*columns, *[None] * most)
        return cls._made_like(several[0], held=SparseCounts.joined(parts), vocabulary=vocabulary)

    def completed(self, *, rng: np.random.Generator | None = None) -> Votes:
        """Return votes of which none is missing: a fair coin, of more classes a die, tossed now, stands for each.

        Tables and planned mechanisms do so by themselves, with new coins for every release; other aggregators take what
        is returned here, as K votes that were all given. What is drawn is exact.

        Parameters
        ----------
        rng
            None draws from the operating system. A generator is for experiments only.

        Examples
        --------
        >>> votes = Votes.of_labels([[1, None, 1], [None, None, 0]], missing="coin")
        >>> votes.counts.tolist(), votes.missing.tolist()
        ([[0, 2], [1, 0]], [1, 2])
        >>> votes.completed(rng=np.random.default_rng(1)).counts.tolist()
        [[1, 2], [2, 1]]
        """
        if rng is not None:
            require_generator(rng)
        if self.is_open:
            advice = "there is no die over strings that nobody listed, and what is missing counts for none"
            checks.fail("votes", checks.Found("open answers"), "about classes that are listed", advice)
        if self.missing is None:
            return self
        if len(self.classes) > 2:
            return self._with_dice(uniform_below(rng))
        last, heads = np.cumsum(self.missing), np.zeros(self.queries, dtype=np.int64)
        coin = ExactCoins([Fraction(1, 2)])
        for start in range(0, int(last[-1]), _COINS_AT_ONCE):
            which = np.zeros(min(_COINS_AT_ONCE, int(last[-1]) - start), dtype=np.int64)
            tossed = coin.flip(which, source=os.urandom if rng is None else rng.bytes)
            # coin number i, from 0, stands for a vote on the first query that has more than i missing up to it
            queries = np.searchsorted(last, start + np.flatnonzero(tossed), side="right")
            heads += np.bincount(queries, minlength=self.queries)
        counts = self.counts + np.column_stack([self.missing - heads, heads])
        return Votes(counts, self.voters, self.classes, self.given)

    def _with_dice(self, below: UniformBelow) -> Votes:
        counts, classes = self.counts.copy(), len(self.classes)
        for start in range(0, self.queries, ROWS_AT_ONCE):
            rows = np.arange(start, min(start + ROWS_AT_ONCE, self.queries))
            queries = np.repeat(rows, np.zeros(rows.size, int) if self.missing is None else self.missing[rows])
            np.add.at(counts, (queries, below(np.full(queries.size, classes, dtype=np.int64))), 1)
        return Votes(counts, self.voters, self.classes, self.given)

    def of_voters(self, K: int) -> Votes:
        """Return these votes, or raise `ValueError` unless they are of K voters."""
        if self.voters != K:
            found, advice = f"{self.voters} votes on every query", "a row of counts sums to K"
            if self.given != "counts":
                found = f"{self.voters} columns"
                advice = self._advice_on_columns(K)
                if self.queries == K:
                    advice = f"there are {K} rows, but one row is one query: turn the votes round, votes.T"
            checks.fail("votes", checks.Found(found), f"of K = {K} voters", advice)
        return self

    def _advice_on_columns(self, K: int) -> str:
        if self.voters == len(self.classes) and not self.is_open:
            return "one column is one voter; for counts say --votes-format counts, or Votes.of_counts"
        there_are = f"plan for the {self.voters} voters that there are"
        if self.voters > K:
            return f"one column is one voter: take out what is none, or {there_are}"
        empty = "leave it empty where one did not answer (--missing coin), or " if len(self.classes) == 2 else ""
        return f"one column is one voter: {empty}{there_are}"

    def labeled(self, answers: NDArray[np.int64]) -> Labels:
        """Return the names of the classes in ``answers``, (Q,) → (Q,); `ABSTAIN` stays what it is.

        Of open answers these are columns of `sparse`, and what leaves is an array of strings, with None for `ABSTAIN`:
        a voter may have said "-1".
        """
        if self.is_open:
            return self._strings[answers]
        if self.classes == numbered(len(self.classes)):
            return answers
        names, declined = np.asarray(self.classes)[answers], answers == ABSTAIN
        if not declined.any():
            return names
        return np.where(declined, str(ABSTAIN) if names.dtype.kind == "U" else ABSTAIN, names)

    @cached_property
    def _strings(self) -> Labels:
        """What the columns of open answers are called, as objects: a type as wide as the longest would tell of it."""
        return np.array((*self.vocabulary, None), dtype=object)

    def __getitem__(self, rows: slice | NDArray[np.bool_]) -> Votes:
        """Return the votes on some queries."""
        if not isinstance(rows, slice | np.ndarray):
            raise TypeError("votes are cut by rows: votes[start:stop], or votes[(Q,) booleans]")
        missing = None if self.missing is None else self.missing[rows]
        if isinstance(self.held, SparseCounts):
            return self._made_like(self, held=self.held.rows(rows), missing=None if missing is None else missing.copy())
        return Votes(self.held[rows], self.voters, self.classes, self.given, missing)

    def __repr__(self) -> str:
        names = ", ".join(map(str, self.classes[:5])) + (", …" if len(self.classes) > 5 else "")
        what = "open answers" if self.is_open else f"classes {names}"
        number = self.blanks if self.missing is None else self.missing.sum()
        missing = f", {number:,} missing" if number else ""
        normalized = f", normalized by {self.normalized}" if self.normalized else ""
        told = f"{self.queries:,} queries to {self.voters:,} voters, {what}; from {self.given}"
        return f"Votes({told}{missing}{normalized})"


def vote_batches(path: Path, layout: Layout) -> Iterator[tuple[Votes, Untyped]]:
    """Yield the votes of a Parquet file some rows at a time, with the record batch that they stand in.

    `ValueError` names the file and the row of what is no vote.
    """
    if layout.given == "answers":
        for places, vocabulary, batch in answer_batches(path, layout):
            yield Votes.of_places(places, vocabulary), batch
        return
    voters = layout.voters
    for counts, first, batch in count_batches(path, layout):
        try:
            if layout.given == "labels":
                votes = Votes(counts, len(layout.votes), layout.classes, "labels")
            else:
                votes = Votes.of_counts(np.asarray(counts), voters, layout.classes)
        except ValueError as error:
            raise ValueError(f"{str(path)!r}: {error} (row 0 is row {first:,} of the file)") from error
        voters = votes.voters
        yield votes, batch


def counts_of(votes: Votes | ArrayLike) -> NDArray[np.int64]:
    """Return the (Q, C) counts of votes or check an array of counts; `ValueError` unless there is a query."""
    counts = require_votes(votes).counts if isinstance(votes, Votes) else Votes.of_counts(votes).counts
    if not len(counts):
        checks.fail("votes", counts.shape, "at least one query")
    return counts


def require_votes(votes: object) -> Votes:
    """Return votes that say what they are, all of them; refuse anything else with `ValueError`, an array among it."""
    if isinstance(votes, Votes):
        if votes.missing is not None:
            advice = "tables and planned mechanisms toss a coin for each, and votes.completed() does it for others"
            checks.fail("votes", checks.Found(f"{votes.missing.sum():,} missing"), "complete", advice)
        return votes
    advice = "labels and counts look alike: say Votes.of_labels(labels, classes) or Votes.of_counts(counts)"
    return checks.fail("votes", checks.Found(type(votes).__name__), "Votes", advice)


def _refuse_counts(queries: int, classes: int) -> NoReturn:
    found = checks.Found(f"{queries:,} queries and {classes:,} classes")
    checks.fail("votes", found, f"at most {MOST_COUNTS:,} counts", "take some of the queries at a time")


def _rows(rows: Any) -> _Rows:  # noqa: ANN401 (whatever has rows)
    if isinstance(rows, str | Mapping) or not isinstance(rows, Iterable):
        checks.fail("answers", checks.Found(type(rows).__name__), "rows of strings", "one row is one query")
    for query, row in enumerate(rows):
        if isinstance(row, str | Mapping) or not isinstance(row, Iterable):
            checks.fail(f"query {query}", row, "a row of strings, one a voter", "one row is one query")
        yield query, row.tolist() if isinstance(row, np.ndarray) else list(row)
