"""The person of each row: rows with equal names belong to one person, whatever the type of the names."""

import numpy as np

from darrm.util import checks
from darrm.util.extras import Untyped


def identify_persons(rows: int, names: Untyped, argument: str = "groups") -> list[Untyped]:
    """Return the person of each row: equal names are one person, of any type; None: every row is a person.

    `ValueError` if a name is missing, or equal names would not compare equal.
    """
    if names is None:
        return list(range(rows))
    if np.ma.is_masked(names):
        checks.fail(argument, checks.Text("masked entries"), "without missing values", "every row needs a person")
    # an array of one type would convert names: one person's name would change those of others
    array = np.asarray(names, dtype=object)
    if array.shape != (rows,):
        checks.fail(argument, array.shape, f"of shape ({rows},)", "name the person of each row")
    return [_check_name(person, row, argument) for row, person in enumerate(array)]


def _check_name(person: Untyped, row: int, argument: str) -> Untyped:
    if isinstance(person, tuple):  # a NaN in it would differ from the next one
        return tuple(_check_name(part, row, argument) for part in person)
    try:
        hash(person)
        # NaN differs from itself, the truth of pandas.NA is undefined, and a list has no hash
        is_name = person is not None and bool(person == person)  # noqa: PLR0124
    except (TypeError, ArithmeticError):
        is_name = False
    if not is_name:
        checks.fail(argument, person, "without missing values", f"row {row} needs the name of a person")
    person_type: Untyped = type(person)
    if person_type.__eq__ is object.__eq__:  # two such objects are always different
        advice = "two of these never equal, and each row would be another person"
        checks.fail(argument, checks.Text(f"objects of type {person_type.__name__}"), "text or numbers", advice)
    value = person.item() if isinstance(person, np.generic) else person
    return int(value) if isinstance(value, bool | float) and float(value).is_integer() else value
