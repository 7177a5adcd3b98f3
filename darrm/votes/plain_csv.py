"""Read plain text tables fast, many lines at a time.

The words are known, of up to eight ASCII characters, and all lines of a block have as many fields, each compared as one
number. A .csv reader would find the same fields: there are no quotes, spaces or other bytes.
"""

from collections.abc import Iterator, Mapping
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

_BYTES_AT_ONCE = 2**20
_WORD_BYTES = 8
_FIRST_BYTES = np.array([2 ** (8 * count) - 1 for count in range(_WORD_BYTES + 1)], dtype=np.uint64)


def plain_blocks(
    file: BinaryIO, values: Mapping[str, float], width: int, separator: str, longest_line: int
) -> Iterator[tuple[NDArray[Any], int]]:
    """Yield the (n, width) values of whole lines, and their size in bytes, up to the first block that is not plain."""
    known = sorted((int.from_bytes(word.encode("ascii"), "little"), value) for word, value in values.items())
    keys, found = np.array([key for key, _ in known], dtype=np.uint64), np.array([value for _, value in known])
    found = found if found.dtype == np.float64 or not known else found.astype(np.min_scalar_type(-1 - found.max()))
    rest, ended = b"", False
    while known and not ended:
        data = file.read(_BYTES_AT_ONCE)
        ended = not data
        # the last line may lack its line break
        whole, newline, rest = (rest + b"\n" * bool(rest), b"", b"") if ended else (rest + data).rpartition(b"\n")
        if len(rest) >= longest_line:
            return
        if whole or newline:
            lines = whole + newline
            block = _values_of(
                lines.replace(b"\r\n", b"\n") if b"\r" in lines else lines, width, ord(separator), keys, found
            )
            if block is None:
                return
            yield block, len(lines)


def _values_of(
    data: bytes, width: int, separator: int, keys: NDArray[np.uint64], values: NDArray[Any]
) -> NDArray[Any] | None:
    characters = np.frombuffer(data, dtype=np.uint8)
    if len(data) % (2 * width) == 0:
        words, separators = characters[::2].reshape(-1, width), characters[1::2].reshape(-1, width)
        if _end_lines(separators, separator):  # each field is one character, the usual case
            places = np.full(256, -1, dtype=np.int16)
            places[keys[(keys > 0) & (keys < 256)].astype(np.uint8)] = np.flatnonzero((keys > 0) & (keys < 256))
            found = places[words]
            return values[found] if (found >= 0).all() else None
    ends = np.flatnonzero((characters == separator) | (characters == ord("\n")))
    lengths = np.diff(ends, prepend=-1) - 1
    if ends.size % width or not characters.all() or lengths.max() > _WORD_BYTES:
        return None
    if not _end_lines(characters[ends].reshape(-1, width), separator) or (width == 1 and not lengths.all()):
        return None  # other numbers of fields, or a blank line
    # read eight bytes at every place and mask them by the word's length; no word holds a zero byte
    eight = np.ndarray(len(data), dtype="<u8", buffer=data + bytes(_WORD_BYTES), strides=(1,))
    words = eight[ends - lengths] & _FIRST_BYTES[lengths]
    places = np.minimum(np.searchsorted(keys, words), keys.size - 1)
    return values[places].reshape(-1, width) if np.array_equal(keys[places], words) else None


def _end_lines(separators: NDArray[np.uint8], separator: int) -> bool:
    return bool((separators[:, :-1] == separator).all() and (separators[:, -1] == ord("\n")).all())
