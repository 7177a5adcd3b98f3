"""Labels and counts as arrays: what classes are called, how many chose each, and what is wrong with what is no vote."""

from collections.abc import Hashable, Iterable, Sequence
from functools import cached_property, lru_cache
from typing import Any, NoReturn

import numpy as np
from numpy.typing import ArrayLike, NDArray

from darrm.errors import checks
from darrm.problem import OPEN, is_open
from darrm.system.answers import Normalize, is_missing, name_of
from darrm.system.extras import Untyped
from darrm.system.sparse_counts import SparseCounts
from darrm.system.votes_file import ABSENT, LONGEST_NAME, OR_A_COIN, Block, Labels, Names, is_text

ABSTAIN = -1  # the answer to a query that is not answered (⊥ in [P])
FORMATS = ("auto", "labels", "counts")
MISSING = ("refuse", "coin", "blank")  # what is done about a vote that is missing; blank, of open answers
MOST_VOTERS = 2**31 - 1
MOST_NAMES = 10**6  # classes that are listed
_NAMES = (str, int, float, np.integer, np.floating, np.bool_)

Classes = int | Sequence[Any] | None


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
    """Return what the classes are called, in order."""
    if is_open(classes):
        advice = "answers that nobody listed are read by Votes.of_answers(rows)"
        checks.fail("classes", checks.Found(OPEN), "listed, or their number", advice)
    if isinstance(classes, int | np.integer) and not isinstance(classes, bool):
        checks.integer_at_least(2, classes=classes, advice="with one class there is nothing to vote on")
        if classes > MOST_NAMES:
            checks.fail("classes", classes, f"at most {MOST_NAMES:,}")
        return numbered(int(classes))
    if isinstance(classes, set | frozenset):
        checks.fail("classes", classes, "in order, the one for class 0 first", "a set has none: say a tuple")
    names = () if isinstance(classes, str) or not isinstance(classes, Iterable) else tuple(classes)
    for name in names:
        if type(name) is str and name.isascii() and "\0" not in name and len(name) <= LONGEST_NAME:
            continue
        if not isinstance(name, _NAMES) or np.asarray(name).dtype.kind not in "biufU" or name != name:  # noqa: PLR0124
            checks.fail("classes", name, "text or numbers", "labels are kept in files")
        if isinstance(name, str) and not (len(name) <= LONGEST_NAME and is_text(name) and "\0" not in name):
            checks.fail("classes", name[:LONGEST_NAME], f"Unicode text of at most {LONGEST_NAME} characters, none zero")
    if not 2 <= len(names) <= MOST_NAMES or len(set(names)) != len(names) or len(set(map(str, names))) != len(names):
        allowed = f"different labels, at least two and at most {MOST_NAMES:,}, class 0 first; or their number"
        checks.fail("classes", names[:5] or classes, allowed)
    return names


@lru_cache(maxsize=4)
def numbered(classes: int) -> tuple[int, ...]:
    """Return what classes are called that have no names: 0 … C − 1."""
    return tuple(range(classes))


def check_open(classes: Classes, votes_format: str, missing: str, normalize: Normalize) -> None:
    """Raise `ValueError` for what open answers are not asked for, and for what is asked of them alone."""
    checks.one_of(MISSING, missing=missing)
    if not is_open(classes):
        if missing == "blank":
            checks.fail("missing (--missing)", missing, "'refuse' or 'coin' where classes are listed")
        if normalize is not None:
            advice = "listed classes are compared as they are called; say classes='open' (--classes open) for answers"
            checks.fail("normalize (--normalize)", name_of(normalize), "left out where classes are listed", advice)
        return
    if votes_format == "counts":
        advice = "counts have a column for each class, and open answers have none"
        checks.fail("votes_format (--votes-format)", votes_format, "auto or labels", advice)
    if missing == "coin":
        advice = "there is no die over strings that nobody listed"
        checks.fail("missing (--missing)", missing, "'refuse', or 'blank' for open answers", advice)
    name_of(normalize)


def words_of(names: Names) -> tuple[str, ...]:
    """Return the names of classes as a .csv file spells them, where spaces around a vote do not count."""
    words = tuple(map(str, names))
    for word in words:
        if word != word.strip() or not word:
            checks.fail("classes", word, "without spaces around it in a .csv file", "use an .npy file")
    return words


def as_typed(classes: Classes, matrix: Block) -> Classes:
    """Return class names that were typed as words as numbers, where the votes are numbers."""
    if matrix.dtype.kind not in "biuf" or classes is None or isinstance(classes, int):
        return classes
    try:
        numbers = [float(name) for name in classes]
    except ValueError:
        return checks.fail("classes", ",".join(map(str, classes)), "numbers", f"the votes are of type {matrix.dtype}")
    return tuple(int(number) if number.is_integer() else number for number in numbers)


def count_labels(
    block: Block,
    names: Names,
    first_row: int,
    counts: NDArray[np.int64],
    missing: NDArray[np.int64] | None,
) -> None:
    """Count the votes in (n, K) labels into (n, C), and the missing ones into (n,) where they are allowed."""
    if block.dtype == np.bool_:
        block = block.view(np.int8)
    small = np.uint8 if block.shape[1] < 256 else np.int64
    absent = np.zeros(block.shape, dtype=bool)  # pages that nobody writes to take no memory
    if missing is not None:
        absent = _is_absent(block, names)
        missing[:] = row_sums(absent.view(np.uint8), small)
        if block.dtype == object:
            block = block.copy()
            block[absent] = None  # pandas' NA compares with nothing
    elif block.dtype == object and (unclear := np.asarray(np.frompyfunc(is_missing, 1, 1)(block), dtype=bool)).any():
        query, voter = map(int, np.argwhere(unclear)[0])
        _no_vote(names, block[query, voter], voter, first_row + query)
    for column, name in enumerate(names):
        with np.errstate(invalid="ignore"):
            chosen = block == name
        if not (isinstance(chosen, np.ndarray) and chosen.shape == block.shape and chosen.dtype == np.bool_):
            _no_vote(names, block.flat[0], 0, first_row)
        counts[:, column] = row_sums(chosen.view(np.uint8), small)
    sums = row_sums(counts) if missing is None else row_sums(counts) + missing
    if np.any(short := sums != block.shape[1]):
        query = int(np.argmax(short))
        row = zip(block[query], absent[query], strict=True)
        voter = next(index for index, (vote, gone) in enumerate(row) if not gone and vote not in names)
        _no_vote(names, block[query, voter], voter, first_row + query, coin=missing is not None)


class ManyClasses:
    """Counts labels of so many classes that most are chosen by nobody."""

    def __init__(self, names: Names) -> None:
        self.names = names
        self.are_numbered = names == numbered(len(names))
        self.are_numbers = self.are_numbered or all(isinstance(name, int | float) for name in names)

    @cached_property
    def index(self) -> dict[Any, int]:
        """The place of each name."""
        return {name: place for place, name in enumerate(self.names)}

    def places_in(self, block: Block) -> NDArray[np.int64]:
        """Return the place of each vote, -1 for what is none."""
        if self.are_numbered and block.dtype.kind in "biu":
            return np.where((block >= 0) & (block < len(self.names)), block, -1).astype(np.int64)
        if block.dtype == object:
            places = [self.index.get(vote, -1) if isinstance(vote, Hashable) else -1 for vote in block.ravel()]
            return np.array(places, dtype=np.int64).reshape(block.shape)
        index = self.index
        if block.dtype.kind == "f" and self.are_numbers:  # a name is what it is in the type of the votes
            index = dict(zip(np.asarray(self.names).astype(block.dtype).tolist(), range(len(self.names)), strict=True))
        values, which = np.unique(block, return_inverse=True)
        return np.array([index.get(value, -1) for value in values.tolist()])[which].reshape(block.shape)

    def count(self, block: Block, first_row: int, missing: NDArray[np.int64] | None) -> SparseCounts:
        """Count the votes in (n, K) labels, and the missing ones into (n,) where they are allowed."""
        absent = np.zeros(block.shape, dtype=bool) if missing is None else _is_absent(block, self.names)
        places = self.places_in(block)
        if np.any(wrong := (places < 0) & ~absent):
            query, voter = map(int, np.argwhere(wrong)[0])
            _no_vote(self.names, block[query, voter], voter, first_row + query, coin=missing is not None)
        places[absent] = -1
        if missing is not None:
            missing[:] = absent.sum(axis=1)
        return SparseCounts.of_places(places, len(self.names))


def _is_absent(block: Block, names: Names) -> NDArray[np.bool_]:
    words = [word for word in ABSENT if word not in names]
    if block.dtype == object:
        return np.asarray(np.frompyfunc(lambda vote: is_missing(vote) or vote in words, 1, 1)(block), dtype=bool)
    if block.dtype.kind == "U":
        return np.isin(block, words)
    return np.isnan(block) if block.dtype.kind == "f" else np.zeros(block.shape, dtype=bool)


def row_sums(matrix: Block, dtype: type = np.int64) -> Labels:
    """Sum the rows in a type that holds the sums."""
    return np.asarray(np.einsum("ij->i", matrix, dtype=dtype, casting="safe"), dtype=dtype)


def _no_vote(names: Names, vote: Untyped, voter: int, query: int, *, coin: bool = False) -> NoReturn:
    label = vote.item() if isinstance(vote, np.generic) else vote
    if isinstance(label, float) and label.is_integer():
        label = int(label)  # 2, as it stands in a .csv file whose numbers became floats
    if is_missing(label) or label in ABSENT:
        advice = f"it is missing, and every voter must answer every query: leave the query out, or {OR_A_COIN}"
    elif coin and label == ABSTAIN:
        advice = "a vote that is missing is NaN or None, in text it is empty or NA"
    elif isinstance(label, float) and 0.0 < label < 1.0:
        advice = "a probability is no vote: round it, or compare it with 0.5"
    elif isinstance(label, int | float) and label > len(names):
        advice = "say classes=C (--classes C) for more classes; counts go to Votes.of_counts (--votes-format counts)"
    else:
        advice = "name the classes, classes=(A, B) (--classes=A,B), or say classes=C (--classes C) for 0 … C - 1"
    if len(names) > 5:
        allowed = f"one of {names[0]!r}, {names[1]!r} … {names[-1]!r}"
    else:
        allowed = f"{', '.join(map(repr, names[:-1]))} or {names[-1]!r}"
    raise ValueError(f"votes must be {allowed}, got {label!r} from voter {voter} to query {query}: {advice}")


def whole_numbers(array: Block) -> NDArray[np.int64]:
    """Return vote counts as whole numbers; `ValueError` for what are none."""
    if array.dtype.kind not in "biuf":
        checks.fail("the type of the vote counts", checks.Found(array.dtype), "whole numbers", "a column is a class")
    if array.ndim != 2:
        checks.fail("vote counts", array.shape, "of shape (queries, classes)", "one row is one query")
    whole = array.dtype.kind != "f"
    if whole and array.size and int(array.min()) >= -MOST_VOTERS and int(array.max()) <= MOST_VOTERS:
        return array.astype(np.int64)  # every count made from labels: nothing is copied but the result
    wrong = array[~(np.abs(array.astype(np.float64)) <= MOST_VOTERS)]  # NaN is wrong, too
    if not wrong.size and not whole:
        wrong = array[array != np.rint(array)]
    if wrong.size:
        allowed = "finite" if not np.isfinite(wrong[0]) else f"whole numbers of at most {MOST_VOTERS}"
        checks.fail("vote counts", wrong[0].item(), allowed)
    return array.astype(np.int64)


def likely_format(matrix: Block, voters: int | None, classes: Classes) -> str:
    """Tell labels from counts; `ValueError` where they look like both, or like neither."""
    # labels have K columns, counts one for each class; where that does not decide, the entries do: counts have rows of
    # one sum, K, and labels are below the number of classes, which is below that of columns (more voters than classes)
    columns = matrix.shape[1]
    number = len(classes) if isinstance(classes, Sequence) else classes
    if matrix.dtype.kind not in "biuf":
        return "labels"
    if voters is not None and number is not None and (columns != voters or number != columns):
        return "counts" if number == columns else "labels"  # what is wrong is said where they are counted
    with np.errstate(over="ignore", invalid="ignore"):
        sums = matrix.sum(axis=1, dtype=np.float64)  # exact for every K that is allowed
    if voters is not None and columns != voters:
        return "labels" if bool(matrix.max() <= 1) and bool(np.any(sums != voters)) else "counts"
    largest = matrix.max()
    if np.any(np.isnan(sums)) or matrix.min() < 0:
        return "counts"  # the check names what is wrong
    total = sums[0] if voters is None else voters
    row = int(np.argmax(sums != total))
    same, below = bool(sums[row] == total), bool(largest < (columns if number is None else number))
    if same and not below and len(matrix) > 1:
        return "counts"
    if not same and (below or number is not None or voters is not None):
        return "labels"  # one that is not below the number is named where they are counted
    if same:
        raise ValueError("the votes could be labels or counts: say --votes-format labels or --votes-format counts")
    raise ValueError(
        f"the votes are no counts (row {row} sums to {sums[row]:g}, row 0 to {sums[0]:g}) and hardly labels (values "
        f"up to {largest:g} in {columns} columns): repair them, or say --votes-format labels"
    )
