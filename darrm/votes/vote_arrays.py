"""Convert labels and counts to arrays: names of classes, indices of votes, counts, and messages about bad votes."""

import unicodedata
from collections.abc import Hashable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import islice
from typing import Any, NoReturn

import numpy as np
from numpy.typing import ArrayLike, NDArray

from darrm.problem import OPEN, is_open
from darrm.util import checks
from darrm.util.extras import Untyped
from darrm.util.progress import StatusLine, blocks
from darrm.votes.answers import Normalize, Vocabulary, is_missing, name_of
from darrm.votes.votes_file import (
    ABSENT,
    LONGEST_NAME,
    OR_A_COIN,
    PLAIN_WORD,
    Block,
    Labels,
    Names,
    Words,
    is_missing_word,
    is_text,
    shown,
)

ABSTAIN = -1  # the label of a query without an answer (⊥ in [P])
LAYOUTS = ("auto", "labels", "counts")
MISSING = ("refuse", "coin", "blank")  # rules for missing votes; blank is for open-set answers
MOST_VOTERS = 2**31 - 1
MOST_NAMES = 10**6  # listed classes
ROWS_AT_ONCE = 2**16  # bounds the memory in addition to the counts
MOST_COUNTS = 2**29  # Q·C: four gigabytes of dense counts
MOST_DENSE = 256  # classes; more use sparse counts
GONE = -1  # the index of a missing vote
_NO_VOTE = -2
_LEAST_LARGE = 2**53  # floats from here on do not represent all whole numbers
_MOST_COMPARED = 256  # classes; with more, votes are looked up in a dictionary
_USUAL = 1000  # whole numbers that may be written as 1.0
_NAMES = (str, int, float, np.integer, np.floating, np.bool_)

Classes = int | Sequence[Any] | None
Places = NDArray[np.integer[Any]]  # of classes, in integers of any size


def complete_array(name: str, values: ArrayLike) -> Labels:
    """Return an array; `ValueError` for masked entries, and for rows of different lengths."""
    if np.ma.is_masked(values) or (isinstance(values, list | tuple) and any(map(np.ma.is_masked, values))):
        advice = "every voter must answer every query; an array of objects says None for a vote that is missing"
        checks.fail(name, checks.Found("masked entries"), "complete", advice)
    try:
        return np.asarray(values)
    except ValueError:
        return checks.fail(name, checks.Found("rows of different lengths"), "a rectangular array")


def class_names(classes: int | Sequence[Any]) -> Names:
    """Return the names of the classes, in order."""
    if is_open(classes):
        advice = "use Votes.of_answers(rows) for open answers"
        checks.fail("classes", checks.Found(OPEN), "listed, or their number", advice)
    if isinstance(classes, int | np.integer) and not isinstance(classes, bool):
        checks.integer_at_least(2, classes=classes, advice="with one class there is nothing to vote on")
        if classes > MOST_NAMES:
            checks.fail("classes", classes, f"at most {MOST_NAMES:,}")
        return numbered(int(classes))
    if isinstance(classes, set | frozenset):
        checks.fail("classes", classes, "in order, the one for class 0 first", "write a tuple: a set has no order")
    names = () if isinstance(classes, str) or not isinstance(classes, Iterable) else tuple(classes)
    for name in names:
        if type(name) is str and name.isascii() and "\0" not in name and len(name) <= LONGEST_NAME:
            continue
        is_large = isinstance(name, int | float | np.integer | np.floating) and not -_LEAST_LARGE < name < _LEAST_LARGE
        if is_large or not isinstance(name, _NAMES) or np.asarray(name).dtype.kind not in "biufU" or name != name:  # noqa: PLR0124
            checks.fail("classes", name, "text or numbers below 2^53", "labels are kept in files")
        if isinstance(name, str) and not (len(name) <= LONGEST_NAME and is_text(name) and "\0" not in name):
            checks.fail("classes", name[:LONGEST_NAME], f"Unicode text of at most {LONGEST_NAME} characters, none zero")
    if (
        not 2 <= len(names) <= MOST_NAMES
        or len(set(names)) != len(names)
        or len({_nfc(str(name)) for name in names}) != len(names)
    ):
        allowed = f"different labels, at least two and at most {MOST_NAMES:,}, class 0 first; or their number"
        checks.fail("classes", names[:5] or classes, allowed)
    return names


@lru_cache(maxsize=4)
def numbered(classes: int) -> tuple[int, ...]:
    """Return the names of unnamed classes: 0 … C − 1."""
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
                checks.fail("normalize (--normalize)", name_of(self.normalize), allowed, advice)
            return
        if self.layout == "counts":
            advice = "counts have a column for each class, and open answers have none"
            checks.fail("layout (--layout)", self.layout, "auto or labels", advice)
        if self.missing == "coin":
            advice = "open answers have no list of strings to draw from"
            checks.fail("missing (--missing)", self.missing, "'refuse', or 'blank' for open answers", advice)
        name_of(self.normalize)

    @property
    def is_open(self) -> bool:
        """Whether the answers are open-set."""
        return is_open(self.classes)

    @cached_property
    def names(self) -> Names:
        """The names of the classes; empty for open-set answers."""
        return () if self.is_open else class_names(2 if self.classes is None else self.classes)

    def vocabulary(self) -> Vocabulary:
        """Return a new vocabulary for open-set answers."""
        return Vocabulary(self.normalize, self.missing)

    def source_format(self, columns: int, *, are_words: bool) -> str:
        """Return whether a table holds labels or counts, by its number of columns and never from its entries.

        `ValueError` if the numbers of voters and classes do not decide.
        """
        if self.is_open or self.layout != "auto":
            return "answers" if self.is_open else self.layout
        classes = len(self.names)
        if are_words and self.voters in {None, columns}:
            return "labels"  # words cannot be counts
        if columns == classes and self.voters in {None, columns}:
            what = "classes" if self.voters is None else "voters and as classes"
            found = f"there are as many columns as {what}, {classes}"
            raise ValueError(f"the votes could be labels or counts, for {found}: say --layout labels or counts")
        return "counts" if columns == classes else "labels"


def words_of(names: Names) -> tuple[str, ...]:
    """Return the names of classes as text for a .csv file, which ignores spaces around a vote."""
    words = tuple(map(str, names))
    for word in words:
        if word != word.strip() or not word:
            checks.fail("classes", word, "without spaces around it in a .csv file", "use an .npy file")
    return words


class Ballot(Words):
    """The index of the class that a vote names, in text or as a value of Python; −1 for a missing vote.

    A text is a name, in either of Unicode's spellings, a number that equals a name, or a truth value if the classes are
    0 and 1 or truth values. `ValueError` for others.

    >>> ballot = Ballot((0, 1), "coin")
    >>> [ballot[word] for word in ("1", "1.0", " 0", "True", "NA")], ballot.place(1.0)
    ([1, 1, 0, 1, -1], 1)
    """

    code = "i"

    def __init__(self, names: Names, missing: str = "refuse", *, comma: bool = False) -> None:
        super().__init__(comma=comma)
        words = tuple(map(str, names))
        self.classes, self._coin = names, missing == "coin"
        self.absent = [word for word in ABSENT if self._coin and word not in words]
        self._texts = {_nfc(word): place for place, word in enumerate(words)}
        self._numbers: dict[Any, int] = {}
        several = set()
        for place, name in enumerate(names):
            number = self.number(name) if isinstance(name, str) else name
            if number is not None and self._numbers.setdefault(number, place) != place:
                several.add(number)  # two classes have this number
        for number in several:
            del self._numbers[number]
        self.names = words if len(self._numbers) < len(names) else ()
        named = {word.casefold(): place for word, place in self._texts.items()} if self.names else {}
        named = named if len(named) == len(self._texts) else {}
        truths = {word: named.get(word, self._numbers.get(number)) for word, number in (("false", 0), ("true", 1))}
        self._truths = {word: place for word, place in truths.items() if place is not None}

    def meaning(self, word: str) -> int:
        """Return the index that a word names, −1 for a missing vote; `ValueError` for others."""
        place = self._texts.get(word)
        if place is None and word in self.absent:
            return GONE
        if place is None and (number := self.number(word)) is not None:
            place = self._numbers.get(number)
        elif place is None:
            place = self._texts.get(_nfc(word))
        place = self._truths.get(word.casefold()) if place is None else place
        return self._complain(word) if place is None else place

    def place(self, vote: object) -> int:
        """Return the index that a value names, as `meaning`."""
        vote = vote.item() if isinstance(vote, np.generic) else vote
        if isinstance(vote, str):
            return self._texts[vote] if vote in self._texts else int(self[vote])
        if is_missing(vote):
            return GONE if self._coin else self._complain("")
        place = self._numbers.get(vote) if isinstance(vote, Hashable) else None
        if place is None and isinstance(vote, bool):
            place = self._truths.get(str(vote).casefold())
        return self._complain(str(vote)) if place is None else place

    def plain(self) -> dict[str, float]:
        """Return the indices of the words for the fast reader."""
        found: dict[str, float] = {word: place for word, place in self._texts.items() if PLAIN_WORD.fullmatch(word)}
        numbers = (f"{word}.0" for word in islice(self._texts, _USUAL) if PLAIN_WORD.fullmatch(f"{word}.0"))
        for word in (*self.absent, "True", "False", *numbers):
            with suppress(ValueError):
                found[word] = self.meaning(word)
        return found

    def _complain(self, word: str) -> NoReturn:
        if is_missing_word(word) and self._coin:
            raise ValueError(f"{word!r} is no vote, and a missing one is {' or '.join(map(repr, self.absent))}")
        if is_missing_word(word):
            advice = f"so leave other queries out, or {OR_A_COIN}"
            raise ValueError(f"the vote is missing ({word!r}): every voter must answer every query, {advice}")
        if not self.names and self.number(word) is None:
            raise ValueError(f"{shown([word])} is no number; name classes that are words (--classes A,B)")
        more = "" if self.names else f": {_advice_on(self.classes, self.number(word), coin=self._coin)}"
        raise ValueError(f"{shown([word])} is none of the classes {shown(tuple(map(str, self.classes)))}{more}")


def _nfc(word: str) -> str:
    return word if word.isascii() else unicodedata.normalize("NFC", word)


def as_typed(classes: int | Sequence[Any], matrix: Block) -> int | Sequence[Any]:
    """Convert names of classes from text to numbers or truth values if the votes have this type."""
    if matrix.dtype.kind not in "biuf" or isinstance(classes, int):
        return classes
    if matrix.dtype.kind == "b" and sorted(map(str, classes)) == ["False", "True"]:
        return tuple(str(name) == "True" for name in classes)
    try:
        numbers = [float(name) for name in classes]
    except ValueError:
        return checks.fail("classes", ",".join(map(str, classes)), "numbers", f"the votes are of type {matrix.dtype}")
    return tuple(int(number) if number.is_integer() else number for number in numbers)


class PlaceFinder:
    """Finds the index of each vote of an array among the classes, −1 for a missing vote.

    `ValueError` for a type of numbers that cannot tell two classes apart.
    """

    def __init__(self, names: Names, dtype: np.dtype[Any], missing: str) -> None:
        self.names, self.coin = names, missing == "coin"
        self._words = [word for word in ABSENT if word not in names]
        self._are_numbered = names == numbered(len(names))
        if dtype.kind in "biuf" and not (self._are_numbered and dtype.kind in "biu"):
            numbers = [(name, place) for place, name in enumerate(names) if not isinstance(name, str)]
            _check_type(names, dtype)
            kind = dtype if dtype.kind == "f" else np.dtype(np.float64 if _has_fractions(names) else np.int64)
            values = np.array([name for name, _ in numbers], dtype=kind)
            self._order = np.argsort(values)
            self._sorted = values[self._order]
            self._place = np.array([place for _, place in numbers], dtype=np.int32)

    @cached_property
    def _index(self) -> dict[Hashable, int]:
        return {_key(name): place for place, name in enumerate(self.names)}

    def blocks(self, matrix: Block, line: StatusLine | None) -> Iterator[Places]:
        """Yield the (n, K) indices of votes in blocks of rows; an error names the query and the voter."""
        if len(self.names) <= MOST_DENSE:
            check_size(len(matrix), len(self.names))
        shown = line or StatusLine(enabled=False)
        for number, block in enumerate(blocks(matrix, ROWS_AT_ONCE, shown, "checking votes")):
            yield self._block(block, number * ROWS_AT_ONCE)

    def _block(self, block: Block, first_row: int) -> Places:
        if block.dtype.kind in "biuf":
            places = self._of_numbers(block.view(np.int8) if block.dtype.kind == "b" else block)
        else:
            places = self._of_objects(block)
        if (places == _NO_VOTE).any():
            query, voter = map(int, np.argwhere(places == _NO_VOTE)[0])
            _no_vote(self.names, block[query, voter], voter, first_row + query, coin=self.coin)
        return places

    def _of_numbers(self, block: Block) -> Places:
        if (
            self._are_numbered
            and block.dtype.kind in "iu"
            and int(block.min(initial=0)) >= 0
            and (int(block.max(initial=0)) < len(self.names))
        ):
            return block  # the names are the indices
        places = np.full(block.shape, _NO_VOTE, dtype=np.int32)
        if self._are_numbered and block.dtype.kind in "iu":
            np.copyto(places, block, where=(block >= 0) & (block < len(self.names)), casting="unsafe")
        elif len(self._sorted):
            found = np.minimum(np.searchsorted(self._sorted, block), len(self._sorted) - 1)
            np.copyto(places, self._place[self._order[found]], where=self._sorted[found] == block)
        if self.coin and block.dtype.kind == "f":
            places[np.isnan(block)] = GONE
        return places

    def _of_objects(self, block: Block) -> NDArray[np.int32]:
        if block.dtype.kind == "O":
            return np.array([self._place_of(vote) for vote in block.ravel().tolist()], np.int32).reshape(block.shape)
        places = np.full(block.shape, _NO_VOTE, dtype=np.int32)
        if block.dtype.kind == "U" and len(self.names) <= _MOST_COMPARED:
            for place, name in enumerate(self.names):
                if isinstance(name, str):
                    places += (block == name) * np.int32(place - _NO_VOTE)
        others = places == _NO_VOTE
        values, which = np.unique(block[others], return_inverse=True)
        places[others] = np.array([self._place_of(value) for value in values.tolist()], dtype=np.int32)[which]
        return places

    def _place_of(self, vote: object) -> int:
        vote = vote.item() if isinstance(vote, np.generic) else vote
        if is_missing(vote):  # NA compares with nothing
            return GONE if self.coin else _NO_VOTE
        place = self._index.get(_key(vote)) if isinstance(vote, Hashable) else None
        return GONE if place is None and self.coin and vote in self._words else _NO_VOTE if place is None else place


def _key(name: Hashable) -> Hashable:
    name = name.item() if isinstance(name, np.generic) else name
    return _nfc(name) if isinstance(name, str) else name


def _has_fractions(names: Names) -> bool:
    return any(isinstance(name, float | np.floating) for name in names)


def _check_type(names: Names, dtype: np.dtype[Any]) -> None:
    if dtype.kind != "f":
        return
    numbers = [name for name in names if not isinstance(name, str)]
    with np.errstate(over="ignore"):
        typed = np.array(numbers, dtype=np.float64).astype(dtype)
    changed = next((n for n, t in zip(numbers, typed.tolist(), strict=True) if float(n).is_integer() and n != t), None)  # type: ignore[arg-type]
    if changed is None and len(np.unique(typed)) < len(numbers):
        changed = "two of them"
    if changed is not None:
        found = checks.Found(f"{dtype}, which cannot tell class {changed} from others")
        checks.fail("the type of the votes", found, "a type that distinguishes the classes", "save whole numbers")


def check_size(queries: int, classes: int) -> None:
    """Raise `ValueError` for dense counts that are too large for memory."""
    if queries * classes > MOST_COUNTS:
        found = checks.Found(f"{queries:,} queries and {classes:,} classes")
        checks.fail("votes", found, f"at most {MOST_COUNTS:,} counts", "take some of the queries at a time")


def count_places(places: Places, classes: int) -> Block:
    """Count (n, K) indices into (n, C), in a small type; the work does not depend on the votes."""
    voters = places.shape[1]
    small, counts = np.uint8 if voters < 256 else np.int64, np.empty((len(places), classes), np.min_scalar_type(voters))
    for column in range(classes):
        counts[:, column] = row_sums((places == column).view(np.uint8), small)
    return counts


def row_sums(matrix: Block, dtype: type = np.int64) -> Labels:
    """Sum the rows, in a type that holds the sums."""
    return np.asarray(np.einsum("ij->i", matrix, dtype=dtype, casting="safe"), dtype=dtype)


def _advice_on(names: Names, label: Untyped, *, coin: bool) -> str:
    """Return advice for a vote that is not one of the classes."""
    if is_missing(label) or label in ABSENT:
        return f"it is missing, and every voter must answer every query: leave the query out, or {OR_A_COIN}"
    if coin and label == ABSTAIN:
        return "a vote that is missing is NaN or None, in text it is empty or NA"
    if isinstance(label, float) and 0.0 < label < 1.0:
        return "a probability is no vote: round it, or compare it with 0.5"
    if isinstance(label, int | float) and label > len(names):
        return "write classes=C (--classes C) for more classes; counts go to Votes.of_counts (--layout counts)"
    return "name the classes, classes=(A, B) (--classes=A,B), or write classes=C (--classes C) for 0 … C - 1"


def _no_vote(names: Names, vote: Untyped, voter: int, query: int, *, coin: bool = False) -> NoReturn:
    label = vote.item() if isinstance(vote, np.generic) else vote
    if isinstance(label, float) and label.is_integer():
        label = int(label)  # pandas turns whole numbers into floats
    advice = _advice_on(names, label, coin=coin)
    if len(names) > 5:
        allowed = f"one of {names[0]!r}, {names[1]!r} … {names[-1]!r}"
    else:
        allowed = f"{', '.join(map(repr, names[:-1]))} or {names[-1]!r}"
    raise ValueError(f"votes must be {allowed}, got {label!r} from voter {voter} to query {query}: {advice}")


def whole_numbers(array: Block) -> NDArray[np.int64]:
    """Return vote counts as whole numbers; `ValueError` for others."""
    if array.dtype.kind not in "biuf":
        checks.fail("the type of the vote counts", checks.Found(array.dtype), "whole numbers", "a column is a class")
    if array.ndim != 2:
        checks.fail("vote counts", array.shape, "of shape (queries, classes)", "one row is one query")
    whole = array.dtype.kind != "f"
    if whole and array.size and int(array.min()) >= -MOST_VOTERS and int(array.max()) <= MOST_VOTERS:
        return array.astype(np.int64)  # the usual case, without further copies
    wrong = array[~(np.abs(array.astype(np.float64)) <= MOST_VOTERS)]  # NaN is wrong, too
    if not wrong.size and not whole:
        wrong = array[array != np.rint(array)]
    if wrong.size:
        allowed = "finite" if not np.isfinite(wrong[0]) else f"whole numbers of at most {MOST_VOTERS}"
        checks.fail("vote counts", wrong[0].item(), allowed)
    return array.astype(np.int64)
