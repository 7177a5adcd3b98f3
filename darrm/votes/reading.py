"""Read files of votes: text, numpy's arrays, Parquet; each reader returns a `VoteTable`."""

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from darrm.util import checks
from darrm.util.progress import StatusLine
from darrm.votes.answers import Vocabulary
from darrm.votes.parquet_file import check_types, is_parquet, partitions_of, schema_of, texts_of, value_batches
from darrm.votes.vote_arrays import ClassLookup, VoteFormat, VoteTable, as_typed, class_names, words_of
from darrm.votes.votes_file import (
    TABLES,
    Block,
    TextTable,
    Words,
    check_suffix,
    is_text_table,
    load_npy,
    most_unfolded,
    naming,
    value_blocks,
)


def open_votes(
    path: Path,
    how: VoteFormat,
    *,
    columns: Sequence[str] | None = None,
    id_column: str | None = None,
    line: StatusLine | None = None,
) -> VoteTable:
    """Open a file of votes, or a folder of Parquet files; errors as `Votes.read`."""
    if is_parquet(path):
        return _open_parquet(path, how, columns, id_column)
    check_suffix("votes", path, TABLES)
    what = "open answers" if how.is_open else "votes"
    with naming(path, what):
        if is_text_table(path):
            names = tuple(name for name in how.names if isinstance(name, str))
            text = TextTable(path, line, words=names, is_open=how.is_open, columns=columns, id_column=id_column)
            table = _votes_of_text(text, how)
            table.blocks, table.id_column = _lines(path, what, table.blocks), id_column
            table.place = f" (row 0 is line {1 + bool(text.header)} of {str(path)!r})"
            return table
        if columns is not None or id_column is not None:
            raise ValueError("an array has no names of columns, which --id and --columns choose: use .csv")
        return _votes_of_array(load_npy(path, dimensions=2), how, line)


def _lines(path: Path, what: str, blocks: Iterable[Block]) -> Iterator[Block]:
    """Name the file in errors."""
    is_empty = True
    with naming(path, what):
        for block in blocks:
            is_empty = False
            yield block
        if is_empty:
            raise ValueError("it must hold at least one line: every line is a query")


def _votes_of_text(table: TextTable, how: VoteFormat) -> VoteTable:
    is_comma, vocabulary = table.separator != ",", how.vocabulary()
    lookup = ClassLookup(how.names, how.missing, comma=is_comma)
    source_format = how.source_format(table.width, are_words=bool(lookup.words))
    if source_format == "answers":
        blocks = value_blocks(table.rows(), vocabulary, "i", "line", "field")
    elif source_format == "labels":
        words_of(how.names)
        table.find_header(lookup.words)
        blocks = table.blocks(lookup)
    else:
        table.find_header(())
        blocks, names = table.blocks(Words(comma=is_comma)), list(map(str, how.names))
        if sorted(table.header) == sorted(names):  # columns in any order, by name
            order = [table.header.index(name) for name in names]
            blocks = (block[:, order] for block in blocks)
        return VoteTable("counts", blocks, how, ids=table.ids)
    how = replace(how, voters=table.width)
    return VoteTable(source_format, blocks, how, vocabulary, table.header, ids=table.ids)


def _votes_of_array(matrix: Block, how: VoteFormat, line: StatusLine | None) -> VoteTable:
    width = matrix.shape[1]
    source_format = how.source_format(width, are_words=matrix.dtype.kind not in "biuf")
    if source_format == "answers":
        if matrix.dtype.kind != "U":
            raise ValueError(f"open answers are text, and its type is {matrix.dtype}")
        vocabulary, rows = how.vocabulary(), ((query, row.tolist()) for query, row in enumerate(matrix))
        return VoteTable(source_format, value_blocks(rows, vocabulary, "i", "query", "voter"), how, vocabulary)
    if source_format == "counts":
        return VoteTable(source_format, [matrix], how if how.classes is not None else replace(how, classes=width))
    how = replace(how, voters=width, classes=class_names(as_typed(2 if how.classes is None else how.classes, matrix)))
    return VoteTable(source_format, ClassLookup(how.names, how.missing).blocks(matrix, line), how)


def _open_parquet(path: Path, how: VoteFormat, columns: Sequence[str] | None, id_column: str | None) -> VoteTable:
    root = path if path.is_dir() else path.parent
    paths = [root / name for name in partitions_of(path)]
    keep = () if id_column is None else (id_column,)
    schema = schema_of(paths[0], how, columns=None if columns is None else tuple(columns), keep=keep)
    width, rows = schema.width or len(schema.votes), sum(check_types(each, schema)[0] for each in paths)
    if rows * width > most_unfolded(sum(each.stat().st_size for each in paths)):
        advice = "write a .parquet file, which takes labels as they are drawn"
        raise ValueError(f"{str(path)!r} has {rows:,} rows, too many for its size to be held in memory: {advice}")
    vocabulary, ids = how.vocabulary(), list[str]()

    def blocks() -> Iterator[Block]:
        yield np.empty((0, width), dtype=np.int32)
        for each in paths:
            for values, _, batch in value_batches(each, schema, vocabulary):
                ids.extend(texts_of(batch.column(id_column)) if keep else ())
                yield values

    names = () if schema.width or schema.source_format == "counts" else schema.votes
    place = f" (in {str(path)!r})"
    return VoteTable(schema.source_format, blocks(), schema.how, vocabulary, names, id_column, ids, place)


def read_survey(
    path: str | os.PathLike[str], how: VoteFormat, voters: int, line: StatusLine | None = None
) -> tuple[Block, Vocabulary]:
    """Return the (Q, K) columns of answers that are a line for each voter."""
    checks.integer_at_least(1, voters=voters)
    checks.file_name(path=path)
    if not is_text_table(Path(path)):
        checks.fail("path", str(path), "a .csv file", "of other files turn the votes round, votes.T")
    vocabulary = how.vocabulary()
    try:
        lines = [row for _, row in TextTable(Path(path), line, is_open=True).rows()]
        if len(lines) not in {voters, voters + 1}:
            advice = f"one a voter, K = {voters}, and perhaps one that names the questions"
            checks.fail("the number of lines", len(lines), f"{voters} or {voters + 1}", advice)
        first = len(lines) - voters
        places = vocabulary.places_of(enumerate(lines[first:], first + 1), "line", "field")
    except ValueError as error:
        raise ValueError(f"{str(path)!r} is no survey: {error}") from error
    return np.ascontiguousarray(places.T), vocabulary


def load_matrix(path: Path, line: StatusLine | None = None) -> Block:
    """Read numbers, or an array of text; .npy is memory-mapped."""
    check_suffix("votes", path, TABLES)
    with naming(path, "votes"):
        if not is_text_table(path):
            return load_npy(path, dimensions=2)
        table = TextTable(path, line)
        table.find_header(())
        blocks = table.blocks(Words())
    return np.concatenate(list(_lines(path, "votes", blocks)))
