"""Read files of votes: text, numpy's arrays, Parquet; each reader returns a `VoteTable`."""

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from darrm.util import checks
from darrm.util.progress import StatusLine
from darrm.votes.answers import Vocabulary
from darrm.votes.parquet_file import check_types, infer_schema, is_parquet, list_parquet_files, to_texts, value_batches
from darrm.votes.vote_arrays import ClassLookup, VoteFormat, VoteTable, check_words, class_names, convert_names
from darrm.votes.votes_file import (
    TABLES,
    Block,
    TextTable,
    Words,
    check_suffix,
    is_text_table,
    load_npy,
    max_unfolded_size,
    name_table_in_errors,
    value_blocks,
)


def open_votes(
    path: Path,
    vote_format: VoteFormat,
    *,
    columns: Sequence[str] | None = None,
    id_column: str | None = None,
    line: StatusLine | None = None,
) -> VoteTable:
    """Open a file of votes, or a folder of Parquet files; errors as `Votes.read`."""
    if is_parquet(path):
        return _open_parquet(path, vote_format, columns, id_column)
    check_suffix("votes", path, TABLES)
    content = "open answers" if vote_format.is_open else "votes"
    with name_table_in_errors(path, content):
        if is_text_table(path):
            names = tuple(name for name in vote_format.names if isinstance(name, str))
            text = TextTable(path, line, words=names, is_open=vote_format.is_open, columns=columns, id_column=id_column)
            table = _read_text(text, vote_format)
            table.blocks, table.id_column = _name_file_in_errors(path, content, table.blocks), id_column
            table.location = f" (row 0 is line {1 + bool(text.header)} of {str(path)!r})"
            return table
        if columns is not None or id_column is not None:
            raise ValueError("an array has no names of columns, which --id and --columns choose: use .csv")
        return _read_array(load_npy(path, dimensions=2), vote_format, line)


def _name_file_in_errors(path: Path, content: str, blocks: Iterable[Block]) -> Iterator[Block]:
    """Name the file in errors."""
    is_empty = True
    with name_table_in_errors(path, content):
        for block in blocks:
            is_empty = False
            yield block
        if is_empty:
            raise ValueError("it must hold at least one line: every line is a query")


def _read_text(table: TextTable, vote_format: VoteFormat) -> VoteTable:
    is_comma, vocabulary = table.separator != ",", vote_format.vocabulary()
    lookup = ClassLookup(vote_format.names, vote_format.missing, comma=is_comma)
    source_format = vote_format.source_format(table.width, are_words=bool(lookup.words))
    if source_format == "answers":
        blocks = value_blocks(table.rows(), vocabulary, "i", "line", "field")
    elif source_format == "labels":
        check_words(vote_format.names)
        table.find_header(lookup.words)
        blocks = table.blocks(lookup)
    else:
        table.find_header(())
        blocks, names = table.blocks(Words(comma=is_comma)), list(map(str, vote_format.names))
        if sorted(table.header) == sorted(names):  # columns in any order, by name
            order = [table.header.index(name) for name in names]
            blocks = (block[:, order] for block in blocks)
        return VoteTable("counts", blocks, vote_format, ids=table.ids)
    vote_format = replace(vote_format, voters=table.width)
    return VoteTable(source_format, blocks, vote_format, vocabulary, table.header, ids=table.ids)


def _read_array(matrix: Block, vote_format: VoteFormat, line: StatusLine | None) -> VoteTable:
    width = matrix.shape[1]
    source_format = vote_format.source_format(width, are_words=matrix.dtype.kind not in "biuf")
    if source_format == "answers":
        if matrix.dtype.kind != "U":
            raise ValueError(f"open answers are text, and its type is {matrix.dtype}")
        vocabulary, rows = vote_format.vocabulary(), ((query, row.tolist()) for query, row in enumerate(matrix))
        return VoteTable(source_format, value_blocks(rows, vocabulary, "i", "query", "voter"), vote_format, vocabulary)
    if source_format == "counts":
        vote_format = vote_format if vote_format.classes is not None else replace(vote_format, classes=width)
        return VoteTable(source_format, [matrix], vote_format)
    classes = convert_names(2 if vote_format.classes is None else vote_format.classes, matrix)
    vote_format = replace(vote_format, voters=width, classes=class_names(classes))
    return VoteTable(
        source_format, ClassLookup(vote_format.names, vote_format.missing).blocks(matrix, line), vote_format
    )


def _open_parquet(
    path: Path, vote_format: VoteFormat, columns: Sequence[str] | None, id_column: str | None
) -> VoteTable:
    root = path if path.is_dir() else path.parent
    paths = [root / name for name in list_parquet_files(path)]
    keep = () if id_column is None else (id_column,)
    schema = infer_schema(paths[0], vote_format, columns=None if columns is None else tuple(columns), keep=keep)
    width, rows = schema.width or len(schema.votes), sum(check_types(file, schema)[0] for file in paths)
    if rows * width > max_unfolded_size(sum(file.stat().st_size for file in paths)):
        advice = "write a .parquet file, which takes labels as they are drawn"
        raise ValueError(f"{str(path)!r} has {rows:,} rows, too many for its size to be held in memory: {advice}")
    vocabulary, ids = vote_format.vocabulary(), list[str]()

    def blocks() -> Iterator[Block]:
        yield np.empty((0, width), dtype=np.int32)
        for file in paths:
            for values, _, batch in value_batches(file, schema, vocabulary):
                ids.extend(to_texts(batch.column(id_column)) if keep else ())
                yield values

    names = () if schema.width or schema.source_format == "counts" else schema.votes
    location = f" (in {str(path)!r})"
    return VoteTable(schema.source_format, blocks(), schema.how, vocabulary, names, id_column, ids, location)


def read_survey(
    path: str | os.PathLike[str], vote_format: VoteFormat, voters: int, line: StatusLine | None = None
) -> tuple[Block, Vocabulary]:
    """Return the (Q, K) columns of answers that are a line for each voter."""
    checks.integer_at_least(1, voters=voters)
    checks.file_name(path=path)
    if not is_text_table(Path(path)):
        checks.fail("path", str(path), "a .csv file", "of other files turn the votes round, votes.T")
    vocabulary = vote_format.vocabulary()
    try:
        lines = [row for _, row in TextTable(Path(path), line, is_open=True).rows()]
        if len(lines) not in {voters, voters + 1}:
            advice = f"one a voter, K = {voters}, and perhaps one that names the questions"
            checks.fail("the number of lines", len(lines), f"{voters} or {voters + 1}", advice)
        first_line = len(lines) - voters
        columns = vocabulary.find_places(enumerate(lines[first_line:], first_line + 1), "line", "field")
    except ValueError as error:
        raise ValueError(f"{str(path)!r} is no survey: {error}") from error
    return np.ascontiguousarray(columns.T), vocabulary


def load_matrix(path: Path, line: StatusLine | None = None) -> Block:
    """Read numbers, or an array of text; .npy is memory-mapped."""
    check_suffix("votes", path, TABLES)
    with name_table_in_errors(path, "votes"):
        if not is_text_table(path):
            return load_npy(path, dimensions=2)
        table = TextTable(path, line)
        table.find_header(())
        blocks = table.blocks(Words())
    return np.concatenate(list(_name_file_in_errors(path, "votes", blocks)))
