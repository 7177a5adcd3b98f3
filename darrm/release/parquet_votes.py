"""Votes in Parquet files, as batches of `Votes`: labels, one column a voter, or counts, one column a class.

Which of the two a file holds is said by its number of columns, K or C, never by its entries, which are private. A vote
is a whole number or a boolean, or text (a dictionary of text, too) where the classes have names. It never changes its
meaning: another number, a null or another word raises, with its file, row and column.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from darrm import checks
from darrm.system.extras import require
from darrm.system.parquet_file import LABEL, record_batches, rows_and_types
from darrm.votes import FORMATS, Classes, Votes

_SHOWN = 40  # characters of a name or a vote


@dataclass(frozen=True)
class Layout:
    """What the columns of every partition are.

    Attributes
    ----------
    votes
        The names of the columns that hold votes: K of them for labels, C for counts.
    keep
        The names of the columns that are copied beside the labels.
    voters
        K.
    classes
        What the C classes are called: whole numbers, or text.
    given
        ``"labels"`` or ``"counts"``.
    """

    votes: tuple[str, ...]
    keep: tuple[str, ...]
    voters: int
    classes: tuple[Any, ...]
    given: str


def layout_of(
    path: Path,
    *,
    voters: int,
    classes: Classes,
    votes_format: str = "auto",
    columns: tuple[str, ...] | None = None,
    keep: tuple[str, ...] = (),
) -> Layout:
    """Return what the columns of a file are; `ValueError` if they are no votes of so many voters."""
    checks.one_of(FORMATS, votes_format=votes_format)
    _, types = rows_and_types(path)
    votes = tuple(name for name in types if name not in keep) if columns is None else columns
    for name in (*votes, *keep):
        if name not in types:
            checks.fail("the columns", name[:_SHOWN], f"in {str(path)!r}", "see --columns and --keep")
    if len({*votes, *keep}) != len(votes) + len(keep) or LABEL in keep:
        advice = f"a column is votes or kept, once, and {LABEL!r} is what the labels are called"
        checks.fail("the columns", checks.Found("the same name twice"), "different", advice)
    names = Votes.of_labels(np.empty((0, 1), dtype=np.int8), classes).classes  # checked where votes are
    names = tuple(name.item() if isinstance(name, np.generic) else name for name in names)
    if all(isinstance(name, str) for name in names) and not any(_is_text(types[name]) for name in votes):
        names = _as_numbers(names)
    if not all(isinstance(name, str) for name in names) and not all(isinstance(name, int) for name in names):
        checks.fail("classes", names[:5], "whole numbers, or text", "a column of labels has one type")
    given = _given(len(votes), voters, len(names)) if votes_format == "auto" else votes_format
    expected = voters if given == "labels" else len(names)
    if len(votes) != expected:
        found = checks.Found(f"{len(votes)} columns in {str(path)!r}")
        advice = "name those that hold votes (--columns A,B,…), or others that do not (--keep ID)"
        one = "voter" if given == "labels" else "class"
        checks.fail("votes", found, f"{expected} columns, one a {one}", advice)
    layout = Layout(votes, keep, voters, names, given)
    check_types(path, layout)
    return layout


def check_types(path: Path, layout: Layout) -> tuple[int, tuple[str, ...]]:
    """Return how many rows a file has, and the types of its columns; `ValueError` unless they may hold such votes."""
    types = require("pyarrow").types
    rows, found = rows_and_types(path)
    for name in (*layout.votes, *layout.keep):
        if name not in found:
            checks.fail("the columns", name[:_SHOWN], f"in {str(path)!r}", "every partition has the same columns")
    whole = layout.given == "counts" or not any(isinstance(name, str) for name in layout.classes)
    for name in layout.votes:
        kind = found[name]
        kind = kind.value_type if types.is_dictionary(kind) else kind
        boolean = types.is_boolean(kind) and layout.given == "labels" and layout.classes == (0, 1)
        if not ((types.is_integer(kind) or boolean) if whole else _is_text(kind)):
            allowed = "whole numbers" if whole else f"text, of the classes {', '.join(layout.classes[:5])}"
            advice = "classes that are words are named (--classes A,B), a column that is no vote is kept (--keep ID)"
            checks.fail(f"column {name[:_SHOWN]!r} of {str(path)!r}", checks.Found(str(kind)[:_SHOWN]), allowed, advice)
    return rows, tuple(str(found[name]) for name in (*layout.votes, *layout.keep))


def kept_types(path: Path, layout: Layout) -> list[tuple[str, Any]]:
    """Return the names and the Arrow types of the columns that are kept."""
    _, types = rows_and_types(path)
    return [(name, types[name]) for name in layout.keep]


def vote_batches(path: Path, layout: Layout) -> Iterator[tuple[Votes, Any]]:
    """Yield the votes of some rows at a time, with the record batch that they stand in; `ValueError` for no vote."""
    first = 0
    for batch in record_batches(path, (*layout.votes, *layout.keep)):
        columns = [_complete(batch.column(name), path, first, name) for name in layout.votes]
        if layout.given == "labels":
            yield _counted(columns, layout, path, first), batch
        else:
            matrix = np.column_stack([_plain(column).to_numpy() for column in columns])
            try:
                votes = Votes.of_counts(matrix, layout.voters, layout.classes)
            except ValueError as error:
                raise ValueError(f"{str(path)!r}: {error} (row 0 is row {first:,} of the file)") from error
            yield votes, batch
        first += batch.num_rows


def _given(columns: int, voters: int, classes: int) -> str:
    if voters == classes:
        raise ValueError("the votes could be labels or counts: say --votes-format labels or --votes-format counts")
    return "counts" if columns == classes else "labels"


def _as_numbers(names: tuple[str, ...]) -> tuple[Any, ...]:
    """Return class names that were typed as words as whole numbers, if all of them are."""
    try:
        return tuple(map(int, names))
    except ValueError:
        return names


def _is_text(kind: Any) -> bool:  # noqa: ANN401 (an Arrow type)
    types = require("pyarrow").types
    kind = kind.value_type if types.is_dictionary(kind) else kind
    return bool(types.is_string(kind) or types.is_large_string(kind))


def _plain(column: Any) -> Any:  # noqa: ANN401 (Arrow arrays)
    return column.dictionary_decode() if require("pyarrow").types.is_dictionary(column.type) else column


def _complete(column: Any, path: Path, first: int, name: str) -> Any:  # noqa: ANN401 (Arrow arrays)
    """Return a column of votes without nulls: this is the one place where a missing vote is seen."""
    missing = column.null_count or (hasattr(column, "dictionary") and column.dictionary.null_count)
    if missing and (missing := _plain(column)).null_count:
        row = first + int(np.argmax(missing.is_null().to_numpy(zero_copy_only=False)))
        advice = "leave the query out, or write .csv or .npy files (--missing coin)"
        raise ValueError(f"{str(path)!r}, row {row:,}, column {name[:_SHOWN]!r} holds no vote: it is missing: {advice}")
    return column


def _places(column: Any, names: tuple[Any, ...]) -> NDArray[Any]:  # noqa: ANN401 (Arrow arrays)
    """Return the place among the classes of each vote, something below 0 or above C − 1 for what is none."""
    arrow = require("pyarrow")
    if arrow.types.is_dictionary(column.type):
        return np.asarray(_places(column.dictionary, names)[column.indices.to_numpy()])
    if _is_text(column.type):
        found = require("pyarrow.compute").index_in(column, value_set=arrow.array(names, type=column.type))
        return np.asarray(found.fill_null(-1).to_numpy())
    values = np.asarray(column.to_numpy(zero_copy_only=False))
    values = values.view(np.int8) if values.dtype == np.bool_ else values
    if names == tuple(range(len(names))):
        return values
    places = np.full(len(values), -1)
    for place, name in enumerate(names):
        places[values == name] = place
    return places


def _counted(columns: list[Any], layout: Layout, path: Path, first: int) -> Votes:
    """Count the votes of a batch, column by column, which is how they lie in memory."""
    number = len(layout.classes)
    counts = np.zeros((number, len(columns[0])), dtype=np.int32)
    for name, column in zip(layout.votes, columns, strict=True):
        places = _places(column, layout.classes)
        if len(places) and (int(places.min()) < 0 or int(places.max()) >= number):
            row = int(np.argmax((places < 0) | (places >= number)))
            _no_vote(column[row], layout.classes, f"{str(path)!r}, row {first + row:,}, column {name[:_SHOWN]!r}")
        for place in range(1, number):
            counts[place] += places == place
    counts[0] = len(columns) - counts[1:].sum(axis=0)
    return Votes(counts.T.astype(np.int64), layout.voters, layout.classes, "labels")


def _no_vote(vote: Any, names: tuple[Any, ...], where: str) -> None:  # noqa: ANN401 (an Arrow scalar)
    try:
        found = repr(str(vote.as_py())[:_SHOWN])
    except UnicodeDecodeError:
        found = "bytes that are no text"
    shown = ", ".join(repr(name)[:_SHOWN] for name in names[:5]) + (", …" if len(names) > 5 else "")
    advice = "name the classes (--classes A,B), or say how many there are (--classes C)"
    raise ValueError(f"{where} holds {found}, and a vote is one of {shown}: {advice}")
