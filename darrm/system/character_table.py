"""Tables of single characters in .csv files, compared as bytes: the quick way of `darrm.system.votes_file`.

Most votes are 0 or 1. Where all lines are as long as the first and end as it does, with one known letter or digit in
each field and commas between, no reader of .csv could find other fields: there are no quotes, spaces or other bytes.
Any other file is left to the reader that understands it, or says what is wrong with it.
"""

import os
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

_BYTES_AT_ONCE = 2**22
_UNKNOWN = 255
_COMMA = ord(",")


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
