"""JSON from a file that anybody may have written: bounded in size, depth and length of numbers before it is believed.

What `json` reads and no file of this project holds is refused, too: NaN and the infinities, a name that stands twice in
one object (readers would disagree about which counts), and half a surrogate pair, which no text file can hold.
"""

import json
from pathlib import Path
from typing import Any, NoReturn

from darrm.system.files import check_regular

Json = Any  # what a JSON file may hold: whoever reads it checks it
Document = dict[str, object]  # what this project writes
_MOST_DEPTH = 32  # of lists and objects within one another; the files of this project have six levels
_MOST_DIGITS = 1000  # of a number that stands without quotes; a float has 17, a status or a version fewer


def read_json(path: Path, *, what: str, most_bytes: int) -> Json:
    """Read a JSON file of at most ``most_bytes``; ``what`` names in the message what it should hold.

    `ValueError` in one line if it is no regular file, too large, no UTF-8, or no JSON within the bounds of this module;
    `OSError` if it cannot be read.
    """
    check_regular(path, most_bytes)
    with path.open("rb") as file:
        raw = file.read(most_bytes + 1)
    if len(raw) > most_bytes:  # a file of /proc says that it is empty
        raise ValueError(f"{str(path)!r} holds more than the {most_bytes:,} bytes that are read for {what}")
    try:
        return parse_json(raw.decode("utf-8"))
    except ValueError as error:
        raise ValueError(f"{str(path)!r} holds no {what}: {error}") from error


def parse_json(text: str) -> Json:
    """Parse JSON text within the bounds of this module, or raise `ValueError`.

    >>> parse_json('{"K": 11, "gamma": [0.5, 1.0]}')
    {'K': 11, 'gamma': [0.5, 1.0]}
    >>> parse_json('{"K": 11, "K": 13}')
    Traceback (most recent call last):
    ...
    ValueError: the name 'K' stands twice in one object
    """
    try:
        value = json.loads(
            text,
            object_pairs_hook=_object,
            parse_int=lambda digits: int(_bounded(digits)),
            parse_float=lambda digits: float(_bounded(digits)),
            parse_constant=_refuse_constant,
        )
        _check(value, 0)
    except RecursionError:
        raise ValueError(f"it is nested more than {_MOST_DEPTH} levels deep") from None
    return value


def _object(pairs: list[tuple[str, object]]) -> Document:
    document = dict(pairs)
    if len(document) < len(pairs):
        twice = next(name for index, (name, _) in enumerate(pairs) if name in dict(pairs[:index]))
        raise ValueError(f"the name {twice[:80]!r} stands twice in one object")
    return document


def _bounded(digits: str) -> str:
    if len(digits) > _MOST_DIGITS:
        raise ValueError(f"it holds a number of {len(digits):,} characters")
    return digits


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number")


def _check(value: object, depth: int) -> None:
    if depth > _MOST_DEPTH:
        raise RecursionError
    if isinstance(value, dict):
        for name, entry in value.items():
            _check(name, depth + 1)
            _check(entry, depth + 1)
    elif isinstance(value, list):
        for entry in value:
            _check(entry, depth + 1)
    elif isinstance(value, str) and not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:
            raise ValueError("it holds half a surrogate pair, which is no text") from None
    elif isinstance(value, float) and value in {float("inf"), float("-inf")}:
        raise ValueError("it holds a number beyond all floats")
