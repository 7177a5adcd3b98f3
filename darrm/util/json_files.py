"""Files of tables and mechanisms: strict reading; errors name the wrong field."""

import hashlib
import json
import os
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

from darrm.errors import CertificationError, TableError
from darrm.util import checks
from darrm.util.files import Document, Json, parse_json, read_json, write_text

MOST_BYTES = 2**26  # of a file: some hundred thousand voters, with the multipliers
_WRITTEN = "wanted is what table.save or --output of optimize or plan wrote"
_MESSAGE = 200  # characters of another error that a message repeats


def read_document(path: str | os.PathLike[str]) -> Json:
    """Read a table's file; `TableError` if it holds none, `OSError` if it cannot be read."""
    checks.file_name(path=path)
    try:
        return read_json(Path(path), what="table", most_bytes=MOST_BYTES)
    except ValueError as error:
        raise TableError("file", f"{error}; {_WRITTEN}") from error


def parse_document(text: str) -> Json:
    """Parse the text of a table's file that another file holds; `TableError` as in `read_document`."""
    if len(text) > MOST_BYTES:
        raise TableError("file", f"it holds more than {MOST_BYTES:,} characters; {_WRITTEN}")
    try:
        return parse_json(text)
    except ValueError as error:
        raise TableError("file", f"{error}; {_WRITTEN}") from error


def write_document(path: str | os.PathLike[str], document: Document) -> None:
    checks.file_name(path=path)
    write_text(Path(path), json.dumps(document, indent=1, ensure_ascii=False) + "\n")


def check_head(data: Json, formats: Collection[str], version: int) -> str:
    """Return the format of a document; `TableError` if it is not one of these formats in this version."""
    with reading("format"):
        if not isinstance(data, dict):
            raise TableError("format", f"the file does not hold a JSON object; {_WRITTEN}")
        if "format" not in data:
            raise TableError("format", f"it is missing, so this is no table; {_WRITTEN}")
        kind = data["format"]
        if not isinstance(kind, str) or kind not in formats:
            expected = " or ".join(map(repr, formats))
            raise TableError("format", f"expected {expected}, got {start(repr(kind))}; {_WRITTEN}")
    with reading("version"):
        stored = data.get("version")
        if type(stored) is not int or stored != version:
            raise TableError("version", f"expected {version}, got {start(repr(stored))}; {_WRITTEN}")
    return kind


def problem_of(data: dict[str, Json]) -> dict[str, Json]:
    """Return the problem as it is stored; `TableError` unless its pairs are decimals as text."""
    with reading("problem"):
        stored: dict[str, Json] = field_of(data, "problem")
        for pair in (stored["each"], stored["target"]):
            texts(pair)
        return stored


def provenance_of(data: dict[str, Json]) -> dict[str, str]:
    with reading("provenance"):
        return texts(data.get("provenance") or {})


@contextmanager
def reading(field: str) -> Iterator[None]:
    """Turn exceptions of a malformed value into a `TableError` about the field."""
    try:
        yield
    except CertificationError as error:
        raise TableError(field, str(error)) from error
    except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError) as error:
        raise TableError(field, f"it is malformed ({start(_text_of(error))})") from error


def _text_of(error: Exception) -> str:
    return f"{type(error).__name__}: {error}" if isinstance(error, LookupError) else str(error)


def start(text: str) -> str:
    return text if len(text) <= _MESSAGE else f"{text[:_MESSAGE]}…"


def texts(data: dict[str, str]) -> dict[str, str]:
    """Check that an object holds nothing but text that can be written again."""
    for key, value in data.items():
        for text in (key, value):
            if not isinstance(text, str):
                checks.fail(str(key), text, "text")
            text.encode()
    return dict(data)


def field_of(data: dict[str, Json], name: str) -> Json:
    if name not in data:
        raise TableError(name, "it is missing")
    return data[name]


def scale_of(certificate: dict[str, Json]) -> float:
    scale = certificate["scale"]
    checks.probability(scale=scale)
    return float(scale)


def checksum_of(content: Document) -> str:
    """Compute the SHA-256, in hexadecimal, of plain data as JSON."""
    text = json.dumps(content, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()
