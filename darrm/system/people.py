"""Whose each row is: one name a row, and equal names, however they are typed, are one person."""

from typing import Any

import numpy as np

from darrm.errors import checks
from darrm.system.extras import Untyped


def persons_of(rows: int, names: Untyped, argument: str = "groups") -> list[Untyped]:
    """Return who each row belongs to: its name, or its position where every row is a person.

    `ValueError` names ``argument`` where a name is missing, is none, or would be another person at the next row.

    >>> persons_of(3, None), persons_of(3, ["ann", "bob", "ann"])
    ([0, 1, 2], ['ann', 'bob', 'ann'])
    """
    if names is None:
        return list(range(rows))
    if np.ma.is_masked(names):
        checks.fail(argument, checks.Found("masked entries"), "without missing values", "every row belongs to somebody")
    # objects: as an array of one type, one person's name would change how those of all others are written
    array = np.asarray(names, dtype=object)
    if array.shape != (rows,):
        checks.fail(argument, array.shape, f"of shape ({rows},)", "say for each row whose it is")
    return [_named(person, row, argument) for row, person in enumerate(array)]


def _named(person: Any, row: int, argument: str) -> Untyped:  # noqa: ANN401 (whatever is called a person)
    """Return who a row belongs to, with equal numbers written alike, whatever their type."""
    if isinstance(person, tuple):  # of names; a NaN in it would differ from the next one
        return tuple(_named(part, row, argument) for part in person)
    try:
        hash(person)
        # NaN differs from itself; pandas.NA knows no answer, and a list has no hash
        is_name = person is not None and bool(person == person)  # noqa: PLR0124
    except (TypeError, ArithmeticError):
        is_name = False
    if not is_name:
        checks.fail(argument, person, "without missing values", f"row {row} must belong to somebody, with a name")
    kind: Any = type(person)
    if kind.__eq__ is object.__eq__:  # two such objects differ whatever they hold
        found = checks.Found(f"objects of type {kind.__name__}")
        checks.fail(
            argument, found, "text or numbers", "two of these never equal, and each row would be another person"
        )
    value = person.item() if isinstance(person, np.generic) else person
    return int(value) if isinstance(value, bool | float) and float(value).is_integer() else value
