"""Plain .csv files, read many lines at a time: the quick ways of `darrm.system.votes_file`.

Most votes are 0 or 1. Where all lines are as long as the first and end as it does, with one known letter or digit in
each field and commas between, the bytes are compared as they are. Where the fields have up to eight characters, but
each of them is known and every line has as many, each is compared as one number. No reader of .csv could find other
fields: there are no quotes, spaces or other bytes. Any other file is left to the one that understands it, or says what
is wrong with it.
"""

import os
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

_BYTES_AT_ONCE = 2**20
_UNKNOWN = 255
_COMMA, _NEWLINE = b",\n"
_WORD_BYTES = 8
_FIRST_BYTES = np.array([2 ** (8 * count) - 1 for count in range(_WORD_BYTES + 1)], dtype=np.uint64)


def read_characters(
    path: Path, values: Mapping[str, int], longest_line: int, show: Callable[[int], object]
) -> NDArray[np.uint8] | None:
    """Read the (lines, fields) values of a table of single characters, or None if the file is no such table.

    ``values`` are below 255, those of ASCII letters and digits; ``show`` is told how many lines were read.
    """
    table = np.full(256, _UNKNOWN, dtype=np.uint8)
    table[[ord(character) for character in values]] = list(values.values())
    with path.open("rb") as file:
        first = file.readline(longest_line)
        fields = first.rstrip(b"\r\n")
        end = first[len(fields) :]
        count, rest = divmod(os.fstat(file.fileno()).st_size, len(first) or 1)
        if len(fields) % 2 == 0 or end not in {b"\n", b"\r\n"} or rest not in {0, len(fields)}:
            return None
        found = np.empty((count + (rest > 0), len(fields) // 2 + 1), dtype=np.uint8)
        at_once = max(1, _BYTES_AT_ONCE // len(first))
        file.seek(0)
        for start in range(0, len(found), at_once):
            rows = found[start : start + at_once]
            data = file.read(rows.shape[0] * len(first))
            if rest and start + at_once >= len(found):
                data += end  # the last line may lack it
            if len(data) != rows.shape[0] * len(first):
                return None
            lines = np.frombuffer(data, dtype=np.uint8).reshape(-1, len(first))
            rows[:] = table[lines[:, : len(fields) : 2]]
            commas, ends = lines[:, 1 : len(fields) : 2], lines[:, len(fields) :]
            if (rows == _UNKNOWN).any() or (commas != _COMMA).any() or (ends != np.frombuffer(end, np.uint8)).any():
                return None
            show(start + len(rows))
        return None if file.read(1) else found


def read_words(
    path: Path, values: Mapping[str, int], longest_line: int, show: Callable[[int], object]
) -> NDArray[np.int32] | None:
    """Read the (lines, fields) values of a table of known short words, or None if the file is no such table.

    The words are one to eight ASCII characters, without spaces, quotes, commas and line ends: as a number each, which
    is looked up. ``show`` is told how many lines were read.
    """
    known = sorted((int.from_bytes(word.encode("ascii"), "little"), value) for word, value in values.items())
    keys = np.array([key for key, _ in known], dtype=np.uint64)
    found = np.array([value for _, value in known], dtype=np.int32)
    blocks, lines, rest = [], 0, b""
    with path.open("rb") as file:
        width = file.readline(longest_line).count(b",") + 1
        file.seek(0)
        if not known or width * (_WORD_BYTES + 1) >= longest_line:
            return None
        while data := file.read(_BYTES_AT_ONCE):
            whole, newline, rest = (rest + data).rpartition(b"\n")
            if len(rest) >= longest_line:
                return None
            if newline:
                blocks.append(_values_of(whole + newline, width, keys, found))
                if blocks[-1] is None:
                    return None
                lines += len(blocks[-1])
                show(lines)
    if rest:  # the last line may lack its end
        blocks.append(_values_of(rest + b"\n", width, keys, found))
    read = [block for block in blocks if block is not None]
    return np.concatenate(read) if read and len(read) == len(blocks) else None


def _values_of(
    data: bytes, width: int, keys: NDArray[np.uint64], values: NDArray[np.int32]
) -> NDArray[np.int32] | None:
    characters = np.frombuffer(data, dtype=np.uint8)
    ends = np.flatnonzero((characters == _COMMA) | (characters == _NEWLINE))
    lengths = np.diff(ends, prepend=-1) - 1
    if ends.size % width or not characters.all() or lengths.max() > _WORD_BYTES:
        return None
    separators = characters[ends].reshape(-1, width)
    if (separators[:, :-1] != _COMMA).any() or (separators[:, -1] != _NEWLINE).any():
        return None
    # the eight bytes from every place on, of which a word takes as many as it is long; no word holds a byte of zero
    eight = np.ndarray(len(data), dtype="<u8", buffer=data + bytes(_WORD_BYTES), strides=(1,))
    words = eight[ends - lengths] & _FIRST_BYTES[lengths]
    places = np.minimum(np.searchsorted(keys, words), keys.size - 1)
    return values[places].reshape(-1, width) if np.array_equal(keys[places], words) else None
