"""Read the words of a command line; each error names the option."""

import csv
import math
import re
from pathlib import Path

from darrm.privacy import PrivacyParams
from darrm.problem import MOST_QUERIES, OPEN, is_open
from darrm.util import checks
from darrm.util.files import check_regular
from darrm.votes.votes_file import LONGEST_NAME, read_class_names

_COLUMNS = ["name", "epsilon", "delta"]
_MAX_BYTES = 2**22
_FORMAT_ADVICE = "the first line says name,epsilon,delta, and every other line is a voter, like clinic,0.1,1e-6"
_MAX_NUMBERS = 100  # of queries side by side: a line of a report each


def integer(flag: str, text: str, minimum: int) -> int:
    try:
        number = int(checks.ascii_digits(text))
    except ValueError:  # no integer, or one of more digits than Python reads
        checks.fail(flag, text, f"an integer of at least {minimum}", "write it in digits alone, like 11")
    return number if number >= minimum else checks.fail(flag, number, f"an integer of at least {minimum}")


def integers(flag: str, text: str) -> list[int]:
    numbers = sorted({integer(flag, part, 1) for part in text.split(",")})
    if numbers[0] < 1 or numbers[-1] > MOST_QUERIES or len(numbers) > _MAX_NUMBERS:
        checks.fail(
            flag, text, f"up to {_MAX_NUMBERS} whole numbers of at least 1 and at most {MOST_QUERIES}, like 20,50"
        )
    return numbers


def read_classes(text: str | None) -> int | tuple[str, ...] | None:
    """Read ``--classes``: their number, their names, a .csv file with one a line, or `OPEN`.

    >>> read_classes("10"), read_classes("no, yes"), read_classes("open")
    (10, ('no', 'yes'), open)
    """
    if text is None:
        return None
    if is_open(text):
        return OPEN
    parts = [part.strip() for part in text.split(",")]
    if len(parts) == 1 and re.fullmatch("[0-9]{1,10}", parts[0]):
        return int(parts[0])
    if len(parts) == 1 and text.lower().endswith(".csv"):
        return read_class_names(Path(text))
    if len(parts) < 2 or "" in parts or len(set(parts)) != len(parts):
        allowed = "their number, different labels, at least two, like no,yes, or open"
        checks.fail("--classes", text[:LONGEST_NAME], allowed)
    return tuple(parts)


def number_of_classes(text: str) -> int:
    """Read ``--classes`` as a number, or `OPEN`.

    >>> number_of_classes("no,yes,maybe"), number_of_classes("10"), number_of_classes("open")
    (3, 10, open)
    """
    classes = read_classes(text)
    if isinstance(classes, tuple):
        return len(classes)
    return OPEN if is_open(classes) else integer("--classes", text, 2)


def real(flag: str, text: str, minimum: float = 0.0) -> float:
    try:
        value = float(checks.ascii_digits(text))
    except ValueError:
        value = math.nan
    if not value >= minimum:
        advice = "write decimals with a point" if "," in text else ""
        checks.fail(flag, text, "a number" if minimum == -math.inf else f"a number of at least {minimum:g}", advice)
    return value


def privacy_pair(flag: str, text: str | None, example: str = "2,1e-5") -> PrivacyParams:
    if text is None:
        raise ValueError(f"{flag} is needed: {flag} EPS,DELTA, like {flag} {example}")
    parts = text.split(",")
    if len(parts) != 2:
        missing = "write the delta too, after a comma"
        advice = missing if len(parts) == 1 else "decimals have a point, and no space follows the comma"
        checks.fail(flag, text, f"EPS,DELTA, like {example}", advice)
    return read_pair(flag, parts[0].strip(), parts[1].strip())


def read_pair(flags: str, epsilon: str, delta: str) -> PrivacyParams:
    try:
        return PrivacyParams(epsilon, delta)
    except ValueError as error:
        raise ValueError(f"{flags}: {error}") from error


def read_voters(path: Path) -> dict[str, PrivacyParams]:
    """Read what each voter satisfies, by its name, from a file with the columns name, epsilon, delta."""
    check_regular(path, _MAX_BYTES)
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            lines = list(csv.reader(file, strict=True))
    except (UnicodeDecodeError, csv.Error) as error:
        raise ValueError(f"{path}: it is no CSV file of voters ({error}): {_FORMAT_ADVICE}") from error
    if not lines or [name.strip().lower() for name in lines[0]] != _COLUMNS:
        raise ValueError(f"{path}: line 1 must be {','.join(_COLUMNS)}: {_FORMAT_ADVICE}")
    voters: dict[str, PrivacyParams] = {}
    for number, fields in enumerate(lines[1:], 2):
        if len(fields) != len(_COLUMNS):
            raise ValueError(f"{path}: line {number} has {len(fields)} fields: {_FORMAT_ADVICE}")
        name, epsilon, delta = (field.strip() for field in fields)
        if not name or name in voters:
            problem = f"the name {name!r} stands there twice" if name else "a voter without a name"
            raise ValueError(f"{path}: line {number}: {problem}: {_FORMAT_ADVICE}")
        try:
            voters[name] = PrivacyParams(epsilon, delta)
        except ValueError as error:
            raise ValueError(f"{path}: line {number}: {error}") from error
    if not voters:
        raise ValueError(f"{path}: it holds no voter: {_FORMAT_ADVICE}")
    return voters
