"""Random changes to the text of a JSON file."""

import json
from typing import Any

import numpy as np

# values of no table, and values of other places of one
JUNK: tuple[str, ...] = (
    *("null", "true", "false", "0", "1", "-1", "2", "0.5", "1e-5", "1e400", "-1e-400", "NaN", "Infinity", "-Infinity"),
    *("[]", "{}", "[[]]", "[0]", '[["x"]]', '{"a": 1}', '""', '"x"', '"0.5"', '"inf"', '"1/3"', '"1/0"', '"1e-5"'),
    *('"\\ud800"', '"\\u0000"', '"1e999999999"', '"0.00001E999700001"', "9" * 400, "9" * 5000, f'"{"9" * 5000}"'),
    *('"free"', '"monotone"', '"optimal"', '"common"', '"point:0.9"', "[" * 2000 + "]" * 2000),
)
CHARACTERS = '0123456789eE+-./"[]{},: \\unx\x00é\ud800'


def change_bytes(rng: np.random.Generator, text: str) -> str:
    """Replace, insert, delete or repeat a few characters."""
    start = int(rng.integers(len(text)))
    stop = start + int(rng.integers(4))
    middle = "".join(rng.choice(list(CHARACTERS), rng.integers(3)))
    return text[:start] + text[start:stop] * int(rng.integers(3)) + middle + text[stop:]


def change_digit(rng: np.random.Generator, text: str) -> str:
    """Replace one digit, mostly by another."""
    digits = [place for place, character in enumerate(text) if character.isdigit()]
    place = int(rng.choice(digits))
    return text[:place] + str(rng.choice(list("0123456789012345678901234567890123456789eE.-"))) + text[place + 1 :]


def change_value(rng: np.random.Generator, text: str) -> str:
    """Put another value, of the file or of `JUNK`, in the place of one, or delete it."""
    data = json.loads(text)
    places: list[tuple[Any, Any]] = []

    def walk(node: Any) -> None:
        for key in list(node) if isinstance(node, dict) else range(len(node)) if isinstance(node, list) else ():
            places.append((node, key))
            walk(node[key])

    walk(data)
    node, key = places[rng.integers(len(places))]
    kind = rng.integers(10)
    if kind == 0:
        del node[key]
    elif kind < 4:
        other, place = places[rng.integers(len(places))]
        node[key] = json.loads(json.dumps(other[place]))
    else:
        node[key] = "THE JUNK"
    return json.dumps(data).replace('"THE JUNK"', str(rng.choice(JUNK)))
