"""A file of voters that differ: CSV with the columns name, epsilon and delta, one voter a line."""

import csv
from pathlib import Path

from darrm.privacy import PrivacyParams
from darrm.system.files import check_regular

_COLUMNS = ["name", "epsilon", "delta"]
_MOST_BYTES = 2**22
_WANTED = "the first line says name,epsilon,delta, and every other line is a voter, like clinic,0.1,1e-6"


def read_voters(path: Path) -> list[PrivacyParams]:
    """Read what each voter satisfies.

    `ValueError` if a line is no voter, two have one name, or the file is not text; `OSError` if it cannot be read.
    """
    check_regular(path, _MOST_BYTES)
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            lines = list(csv.reader(file, strict=True))
    except (UnicodeDecodeError, csv.Error) as error:
        raise ValueError(f"{path}: it is no CSV file of voters ({error}): {_WANTED}") from error
    if not lines or [name.strip().lower() for name in lines[0]] != _COLUMNS:
        raise ValueError(f"{path}: line 1 must be {','.join(_COLUMNS)}: {_WANTED}")
    voters: dict[str, PrivacyParams] = {}
    for number, fields in enumerate(lines[1:], 2):
        if len(fields) != len(_COLUMNS):
            raise ValueError(f"{path}: line {number} has {len(fields)} fields: {_WANTED}")
        name, epsilon, delta = (field.strip() for field in fields)
        if not name or name in voters:
            wrong = f"the name {name!r} stands there twice" if name else "a voter without a name"
            raise ValueError(f"{path}: line {number}: {wrong}: {_WANTED}")
        try:
            voters[name] = PrivacyParams(epsilon, delta)
        except ValueError as error:
            raise ValueError(f"{path}: line {number}: {error}") from error
    if not voters:
        raise ValueError(f"{path}: it holds no voter: {_WANTED}")
    return list(voters.values())
