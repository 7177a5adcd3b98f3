"""The classes of votes, how votes are read, and one lookup of votes in texts, arrays and Parquet."""

import unicodedata
from collections.abc import Hashable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from itertools import islice
from typing import NoReturn

import numpy as np
from numpy.typing import ArrayLike, NDArray

from darrm.problem import OPEN, is_open
from darrm.util import checks
from darrm.util.extras import Untyped, require
from darrm.util.progress import StatusLine, blocks
from darrm.votes.answers import Normalize, Vocabulary, is_missing, name_normalization
from darrm.votes.votes_file import (
    COIN_ADVICE,
    LONGEST_NAME,
    MISSING_WORDS,
    PLAIN_WORD,
    Block,
    Labels,
    Names,
    Words,
    is_missing_word,
    is_text,
    quote_names,
)

ABSTAIN = -1  # the label of a query without an answer (⊥ in [P])
LAYOUTS = ("auto", "labels", "counts")
MISSING = ("refuse", "coin", "blank")  # rules for missing votes; blank is for open-set answers
MOST_VOTERS = 2**31 - 1
MOST_NAMES = 10**6  # listed classes
ROWS_AT_ONCE = 2**16  # bounds the memory in addition to the counts
MOST_COUNTS = 2**29  # Q·C: four gigabytes of dense counts
MOST_DENSE = 256  # classes; more use sparse counts
MISSING_INDEX = -1  # the index of a missing vote
_NO_VOTE = -2
_MIN_INEXACT_FLOAT = 2**53  # floats from here on do not represent all whole numbers
_MAX_COMPARED_CLASSES = 256  # classes; with more, votes are looked up in a dictionary
_MAX_DECIMAL_NAMES = 1000  # whole numbers that may be written as 1.0

Classes = int | Sequence[object] | None
ClassIndices = NDArray[np.integer]  # of classes, in integers of any size
SparseCounts = Untyped  # a scipy.sparse.csr_array of whole numbers, with sorted columns in each row
_PLACES_AT_ONCE = 2**22


def require_complete(name: str, values: ArrayLike) -> Labels:
    """Return an array without masked entries."""
    if np.ma.is_masked(values) or (isinstance(values, list | tuple) and any(map(np.ma.is_masked, values))):
        advice = "every voter must answer every query; an array of objects says None for a vote that is missing"
        checks.fail(name, checks.Text("masked entries"), "complete", advice)
    try:
        return np.asarray(values)
    except ValueError:
        return checks.fail(name, checks.Text("rows of different lengths"), "a rectangular array")


def class_names(classes: int | Sequence[object]) -> Names:
    """Return the names of the classes in order, 0 … C − 1 for a number C."""
    if is_open(classes):
        checks.fail("classes", checks.Text(OPEN), "listed, or their number", "use Votes.from_answers(rows)")
    if isinstance(classes, int | np.integer) and not isinstance(classes, bool):
        checks.integer_at_least(2, classes=classes, advice="with one class there is nothing to vote on")
        if classes > MOST_NAMES:
            checks.fail("classes", classes, f"at most {MOST_NAMES:,}")
        return number_classes(int(classes))
    if isinstance(classes, set | frozenset):
        checks.fail("classes", classes, "in order, the one for class 0 first", "write a tuple: a set has no order")
    names = () if isinstance(classes, str) or not isinstance(classes, Iterable) else tuple(classes)
    for name in names:
        if isinstance(name, str):
            if not (len(name) <= LONGEST_NAME and is_text(name) and "\0" not in name):
                allowed = f"Unicode text of at most {LONGEST_NAME} characters, none zero"
                checks.fail("classes", name[:LONGEST_NAME], allowed)
        elif (
            not isinstance(name, int | float | np.integer | np.floating | np.bool_)
            or not -_MIN_INEXACT_FLOAT < name < _MIN_INEXACT_FLOAT
        ):
            checks.fail("classes", name, "text or numbers below 2^53", "labels are kept in files")
    spellings = {_to_nfc(str(name)) for name in names}
    if not 2 <= len(names) <= MOST_NAMES or not len(set(names)) == len(spellings) == len(names):
        allowed = f"different labels, at least two and at most {MOST_NAMES:,}, class 0 first; or their number"
        checks.fail("classes", names[:5] or classes, allowed)
    return names


@lru_cache(maxsize=4)
def number_classes(classes: int) -> tuple[int, ...]:
    return tuple(range(classes))


@dataclass(frozen=True)
class VoteFormat:
    """How votes are read; `ValueError` for options that contradict each other."""

    voters: int | None = None  # K, if known
    classes: Classes = None  # their number, their names, or "open"; None for two
    layout: str = "auto"  # labels: a column per voter; counts: a column per class; auto: by the number of columns
    missing: str = "refuse"  # the rule for missing votes, one of `MISSING`
    normalize: Normalize = None  # the normalization of open-set answers

    def __post_init__(self) -> None:
        checks.one_of(LAYOUTS, layout=self.layout)
        checks.one_of(MISSING, missing=self.missing)
        if not self.is_open:
            if self.missing == "blank":
                checks.fail("missing (--missing)", self.missing, "'refuse' or 'coin' where classes are listed")
            if self.normalize is not None:
                advice = "listed classes are compared as they are called; write classes='open' (--classes open)"
                allowed = "left out where classes are listed"
                checks.fail("normalize (--normalize)", name_normalization(self.normalize), allowed, advice)
            return
        if self.layout == "counts":
            advice = "counts have a column for each class, and open answers have none"
            checks.fail("layout (--layout)", self.layout, "auto or labels", advice)
        if self.missing == "coin":
            advice = "open answers have no list of strings to draw from"
            checks.fail("missing (--missing)", self.missing, "'refuse', or 'blank' for open answers", advice)
        name_normalization(self.normalize)

    @property
    def is_open(self) -> bool:
        return is_open(self.classes)

    @cached_property
    def names(self) -> Names:
        """The names of the classes; empty for open-set answers."""
        return () if self.is_open else class_names(2 if self.classes is None else self.classes)

    def vocabulary(self) -> Vocabulary:
        return Vocabulary(self.normalize, self.missing)

    def source_format(self, columns: int, *, are_words: bool) -> str:
        """Tell labels from counts by the number of columns, never by the entries."""
        if self.is_open or self.layout != "auto":
            return "answers" if self.is_open else self.layout
        classes = len(self.names)
        if are_words and self.voters in {None, columns}:
            return "labels"  # words cannot be counts
        if columns == classes and self.voters in {None, columns}:
            meaning = "classes" if self.voters is None else "voters and as classes"
            description = f"there are as many columns as {meaning}, {classes}"
            raise ValueError(f"the votes could be labels or counts, for {description}: say --layout labels or counts")
        return "counts" if columns == classes else "labels"


def check_words(names: Names) -> tuple[str, ...]:
    """Return texts; `ValueError` for spaces, which .csv ignores around a vote."""
    words = tuple(map(str, names))
    for word in words:
        if word != word.strip() or not word:
            checks.fail("classes", word, "without spaces around it in a .csv file", "use an .npy file")
    return words


@dataclass
class VoteTable:
    """Votes as arrays; vocabulary and ids are complete when the blocks are read."""

    source_format: str  # "labels", "counts" or "answers"
    blocks: Iterable[Block]  # of rows: (n, K) indices of classes, (n, C) counts, or (n, K) columns of the vocabulary
    vote_format: VoteFormat  # its voters are K, for counts None if unknown
    vocabulary: Vocabulary = field(default_factory=Vocabulary)  # the strings of open-set answers
    voter_names: tuple[str, ...] = ()  # the names of the columns of labels, if there are any
    id_column: str | None = None
    ids: Sequence[str] = ()
    location: str = ""  # of row 0 in the file, for messages about counts


class ClassLookup(Words):
    """The index of the class that a vote names; −1 for a missing vote, `ValueError` for others.

    A text of a file is a name, in either of Unicode's spellings, an equal number, or a truth value if the classes are 0
    and 1 or truth values. In an array a text is a name only.

    >>> lookup = ClassLookup((0, 1), "coin")
    >>> [lookup[word] for word in ("1", "1.0", " 0", "True", "NA")], lookup.find_index(1.0)
    ([1, 1, 0, 1, -1], 1)
    """

    code = "i"

    def __init__(self, names: Names, missing: str = "refuse", *, comma: bool = False) -> None:
        super().__init__(comma=comma)
        self.classes, self._allows_missing = names, missing == "coin"
        self.missing_words = [word for word in MISSING_WORDS if self._allows_missing and word not in names]

    @cached_property
    def _texts(self) -> dict[str, int]:
        return {_to_nfc(str(name)): index for index, name in enumerate(self.classes)}

    @cached_property
    def _numbers(self) -> dict[object, int]:
        numbers, ambiguous = dict[object, int](), set[object]()
        for index, name in enumerate(self.classes):
            number = self.number(name) if isinstance(name, str) else name
            if number is not None and numbers.setdefault(number, index) != index:
                ambiguous.add(number)
        return {number: index for number, index in numbers.items() if number not in ambiguous}

    @cached_property
    def words(self) -> tuple[str, ...]:
        """The names of the classes as texts; empty if all of them are numbers."""
        return tuple(map(str, self.classes)) if len(self._numbers) < len(self.classes) else ()

    @cached_property
    def _truths(self) -> dict[str, int]:
        index_by_word = {word.casefold(): index for word, index in self._texts.items()} if self.words else {}
        index_by_word = index_by_word if len(index_by_word) == len(self._texts) else {}
        truths = {
            word: index_by_word.get(word, self._numbers.get(number)) for word, number in (("false", 0), ("true", 1))
        }
        return {word: index for word, index in truths.items() if index is not None}

    def meaning(self, word: str) -> int:
        index = self._texts.get(word)
        if index is None and word in self.missing_words:
            return MISSING_INDEX
        if index is None and (number := self.number(word)) is not None:
            index = self._numbers.get(number)
        elif index is None:
            index = self._texts.get(_to_nfc(word))
        index = self._truths.get(word.casefold()) if index is None else index
        return self._refuse(word) if index is None else index

    def find_index(self, vote: object) -> int:
        """Return the index of a value of a Parquet file."""
        if isinstance(vote, str):
            return self._texts[vote] if vote in self._texts else int(self[vote])
        if is_missing(vote):
            return MISSING_INDEX if self._allows_missing else self._refuse("")
        index = self._numbers.get(vote)
        if index is None and isinstance(vote, bool):
            index = self._truths.get(str(vote).casefold())
        return self._refuse(str(vote)) if index is None else index

    def plain(self) -> dict[str, float]:
        plain: dict[str, float] = {word: index for word, index in self._texts.items() if PLAIN_WORD.fullmatch(word)}
        numbers = (f"{word}.0" for word in islice(self._texts, _MAX_DECIMAL_NAMES) if PLAIN_WORD.fullmatch(f"{word}.0"))
        for word in (*self.missing_words, "True", "False", *numbers):
            with suppress(ValueError):
                plain[word] = self.meaning(word)
        return plain

    def blocks(self, matrix: Block, line: StatusLine | None = None) -> Iterator[ClassIndices]:
        if len(self.classes) <= MOST_DENSE:
            check_size(len(matrix), len(self.classes))
        values, order = _sort_numbers(self.classes, matrix.dtype)
        first_row = 0
        for block in blocks(matrix, ROWS_AT_ONCE, line, "checking votes"):
            indices = (
                self._match_numbers(block, values, order) if block.dtype.kind in "biuf" else self._match_objects(block)
            )
            if (indices == _NO_VOTE).any():
                query, voter = map(int, np.argwhere(indices == _NO_VOTE)[0])
                self._refuse_entry(block[query, voter], voter, first_row + query)
            yield indices
            first_row += len(block)

    def _match_numbers(self, block: Block, values: Block, order: NDArray[np.int64]) -> ClassIndices:
        block = block.view(np.int8) if block.dtype.kind == "b" else block
        is_whole = block.dtype.kind != "f" and self.classes == number_classes(len(self.classes))
        if is_whole and int(block.min(initial=0)) >= 0 and int(block.max(initial=0)) < len(self.classes):
            return block  # the names are the indices
        indices = np.full(block.shape, _NO_VOTE, dtype=np.int32)
        if values.size:
            nearest = np.minimum(np.searchsorted(values, block), values.size - 1)
            np.copyto(indices, order[nearest], where=values[nearest] == block, casting="same_kind")
        if self._allows_missing and block.dtype.kind == "f":
            indices[np.isnan(block)] = MISSING_INDEX
        return indices

    def _match_objects(self, block: Block) -> NDArray[np.int32]:
        indices = np.full(block.shape, _NO_VOTE, dtype=np.int32)
        if block.dtype.kind == "U" and len(self.classes) <= _MAX_COMPARED_CLASSES:
            for index, name in enumerate(self.classes):
                if isinstance(name, str):
                    indices += (block == name) * np.int32(index - _NO_VOTE)
        is_unmatched = indices == _NO_VOTE
        matches = []
        for vote in block[is_unmatched].tolist():
            if is_missing(vote):  # NA compares with nothing
                matches.append(MISSING_INDEX if self._allows_missing else _NO_VOTE)
            else:
                key = _to_nfc(vote) if isinstance(vote, str) else vote
                matches.append(self._index_by_name.get(key, _NO_VOTE) if isinstance(key, Hashable) else _NO_VOTE)
        indices[is_unmatched] = matches
        return indices

    @cached_property
    def _index_by_name(self) -> dict[Hashable, int]:
        names = {_to_nfc(name) if isinstance(name, str) else name: index for index, name in enumerate(self.classes)}
        return dict.fromkeys(self.missing_words, MISSING_INDEX) | names

    def _refuse(self, word: str) -> NoReturn:
        if is_missing_word(word) and self._allows_missing:
            raise ValueError(f"{word!r} is no vote, and a missing one is {' or '.join(map(repr, self.missing_words))}")
        if is_missing_word(word):
            advice = f"so leave other queries out, or {COIN_ADVICE}"
            raise ValueError(f"the vote is missing ({word!r}): every voter must answer every query, {advice}")
        if not self.words and self.number(word) is None:
            raise ValueError(f"{quote_names([word])} is no number; name classes that are words (--classes A,B)")
        hint = "" if self.words else f": {self._advise_on(self.number(word))}"
        raise ValueError(
            f"{quote_names([word])} is none of the classes {quote_names(tuple(map(str, self.classes)))}{hint}"
        )

    def _refuse_entry(self, vote: Untyped, voter: int, query: int) -> NoReturn:
        vote = vote.item() if isinstance(vote, np.generic) else vote
        if isinstance(vote, float) and vote.is_integer():
            vote = int(vote)  # pandas turns whole numbers into floats
        names, advice = self.classes, self._advise_on(vote)
        allowed = f"{', '.join(map(repr, names[:-1]))} or {names[-1]!r}"
        allowed = f"one of {names[0]!r}, {names[1]!r} … {names[-1]!r}" if len(names) > 5 else allowed
        raise ValueError(f"votes must be {allowed}, got {vote!r} from voter {voter} to query {query}: {advice}")

    def _advise_on(self, vote: object) -> str:
        if is_missing(vote) or vote in MISSING_WORDS:
            return f"it is missing, and every voter must answer every query: leave the query out, or {COIN_ADVICE}"
        if self._allows_missing and vote == ABSTAIN:
            return "a vote that is missing is NaN or None, in text it is empty or NA"
        if isinstance(vote, float) and 0.0 < vote < 1.0:
            return "a probability is no vote: round it, or compare it with 0.5"
        if isinstance(vote, int | float) and vote > len(self.classes):
            return "write classes=C (--classes C) for more classes; counts go to Votes.from_counts (--layout counts)"
        return "name the classes, classes=(A, B) (--classes=A,B), or write classes=C (--classes C) for 0 … C - 1"


def _to_nfc(word: str) -> str:
    return word if word.isascii() else unicodedata.normalize("NFC", word)


def _sort_numbers(names: Names, dtype: np.dtype[np.generic]) -> tuple[Block, NDArray[np.int64]]:
    """Return sorted numbers and their indices; `ValueError` if the type cannot tell them apart."""
    if dtype.kind in "biu" and names == number_classes(len(names)):
        return np.arange(len(names)), np.arange(len(names))
    numbers: dict[Untyped, int] = {name: index for index, name in enumerate(names) if not isinstance(name, str)}
    ordered = sorted(numbers) if dtype.kind in "biuf" else []
    if dtype.kind == "f":
        with np.errstate(over="ignore"):
            values = np.array(ordered, dtype=np.float64).astype(dtype)
        inexact = [n for n, value in zip(ordered, values.tolist(), strict=True) if float(n).is_integer() and n != value]
        if inexact or len(np.unique(values)) < len(ordered):
            description = checks.Text(f"{dtype}, which cannot tell class {[*inexact, 'two of them'][0]} from others")
            checks.fail(
                "the type of the votes", description, "a type that distinguishes the classes", "save whole numbers"
            )
    else:
        has_fractions = any(isinstance(name, float | np.floating) for name in ordered)
        values = np.array(ordered, dtype=np.float64 if has_fractions else np.int64)
    return values, np.array([numbers[name] for name in ordered], dtype=np.int64)


def convert_names(classes: int | Sequence[Untyped], matrix: Block) -> int | Sequence[object]:
    if matrix.dtype.kind not in "biuf" or isinstance(classes, int):
        return classes
    if matrix.dtype.kind == "b" and sorted(map(str, classes)) == ["False", "True"]:
        return tuple(str(name) == "True" for name in classes)
    try:
        numbers = [float(name) for name in classes]
    except ValueError:
        return checks.fail("classes", ",".join(map(str, classes)), "numbers", f"the votes are of type {matrix.dtype}")
    return tuple(int(number) if number.is_integer() else number for number in numbers)


def check_size(queries: int, classes: int) -> None:
    if queries * classes > MOST_COUNTS:
        description = checks.Text(f"{queries:,} queries and {classes:,} classes")
        checks.fail("votes", description, f"at most {MOST_COUNTS:,} counts", "take some of the queries at a time")


def count_indices(indices: ClassIndices, classes: int) -> Block:
    """Count (n, K) indices into (n, C); the work does not depend on the votes."""
    voters = indices.shape[1]
    dtype = np.uint8 if voters < 256 else np.int64
    counts = np.empty((len(indices), classes), np.min_scalar_type(voters))
    for column in range(classes):
        counts[:, column] = row_sums((indices == column).view(np.uint8), dtype)
    return counts


def row_sums(matrix: Block, dtype: type = np.int64) -> Labels:
    return np.asarray(np.einsum("ij->i", matrix, dtype=dtype, casting="safe"), dtype=dtype)


def whole_numbers(array: Block) -> NDArray[np.int64]:
    if array.dtype.kind not in "biuf":
        checks.fail("the type of the vote counts", checks.Text(array.dtype), "whole numbers", "a column is a class")
    if array.ndim != 2:
        checks.fail("vote counts", array.shape, "of shape (queries, classes)", "one row is one query")
    is_integer = array.dtype.kind != "f"
    if is_integer and array.size and int(array.min()) >= -MOST_VOTERS and int(array.max()) <= MOST_VOTERS:
        return array.astype(np.int64)  # the usual case, without further copies
    invalid = array[~(np.abs(array.astype(np.float64)) <= MOST_VOTERS)]  # NaN is wrong, too
    if not invalid.size and not is_integer:
        invalid = array[array != np.rint(array)]
    if invalid.size:
        allowed = "finite" if not np.isfinite(invalid[0]) else f"whole numbers of at most {MOST_VOTERS}"
        checks.fail("vote counts", invalid[0].item(), allowed)
    return array.astype(np.int64)


def is_sparse(counts: object) -> bool:
    return hasattr(counts, "indptr")


def count_entries(counts: ArrayLike, columns: ArrayLike, starts: ArrayLike, classes: int) -> SparseCounts:
    """Add up entries; row q has those from ``starts[q]`` to ``starts[q + 1]``."""
    entries = np.asarray(counts, np.int64), np.asarray(columns, np.int32), np.asarray(starts, np.int32)
    matrix = require("scipy.sparse").csr_array(entries, shape=(entries[2].size - 1, classes))
    matrix.sum_duplicates()
    return matrix


def count_codes(codes: ClassIndices, classes: int) -> SparseCounts:
    """Count (Q, K) columns; negative ones are not counted."""
    parts, rows_per_block = [count_entries([], [], [0], classes)], max(1, _PLACES_AT_ONCE // codes.shape[1])
    for start in range(0, len(codes), rows_per_block):
        block = np.sort(codes[start : start + rows_per_block], axis=1)  # faster than the sort of sum_duplicates
        is_counted = block >= 0
        starts = np.append(0, np.cumsum(np.count_nonzero(is_counted, axis=1)))
        parts.append(count_entries(np.ones(starts[-1], np.int64), block[is_counted], starts, classes))
    return stack(parts)


def stack(parts: Sequence[SparseCounts]) -> SparseCounts:
    return require("scipy.sparse").vstack(parts, format="csr")


def check_counts(counts: SparseCounts) -> SparseCounts:
    """Return a copy; `ValueError` unless its entries are whole numbers of at least 1."""
    copy = counts.tocsr(copy=True)
    copy.check_format()
    if copy.dtype.kind not in "iu" or not copy.has_canonical_format or copy.data.min(initial=1) < 1:
        checks.fail("sparse counts", checks.Text("others"), "whole numbers of at least 1, one entry a column and row")
    return copy.astype(np.int64)
