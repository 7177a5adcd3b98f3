"""Atomic replacement of files, and JSON from untrusted sources; errors about tables name the wrong field.

JSON is bounded in size, depth and length of numbers before it is parsed. NaN, infinities, duplicate names in one object
(readers would disagree about their value) and unpaired surrogates are refused.
"""

import hashlib
import json
import os
import shutil
import stat
import tempfile
import threading
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NoReturn

from darrm.errors import CertificationError, TableError
from darrm.util import checks

_SQLITE_MAGIC = b"SQLite format 3\0"  # magic bytes: https://sqlite.org/fileformat.html
# locked during every transaction of a ledger, and while a possible ledger is opened without SQLite
between_transactions = threading.RLock()


def check_folder(path: Path) -> None:
    """Raise `ValueError` unless the folder of ``path`` exists and is writable."""
    if not path.parent.is_dir():
        raise ValueError(f"the folder {str(path.parent)!r} of {str(path)!r} does not exist: create it first")
    if not os.access(path.parent, os.W_OK):
        raise ValueError(f"the folder {str(path.parent)!r} of {str(path)!r} cannot be written to: name another")


def check_parent(path: Path) -> None:
    """Raise `ValueError` unless ``path`` may be made or replaced: it is no device and no database."""
    check_folder(path)
    if path.is_dir():
        raise ValueError(f"{str(path)!r} is a folder: name a file")
    if path.exists() and not path.is_file():
        raise ValueError(f"{str(path)!r} is a device or a pipe, which would be replaced: name a file")
    is_database = False
    with suppress(OSError), between_transactions, path.open("rb") as file:  # else it does not exist, or is unreadable
        is_database = file.read(len(_SQLITE_MAGIC)) == _SQLITE_MAGIC
    if is_database:
        raise ValueError(f"{str(path)!r} is a database, such as a ledger, which would be replaced: name another file")


def check_space(folder: Path, needed: int) -> None:
    if (free := shutil.disk_usage(folder).free) < needed:
        needs = f"{needed:,} bytes are needed in {str(folder)!r}"
        raise ValueError(f"{needs}, and {free:,} are free: free some space, or name another folder; nothing was paid")


def check_regular(path: Path, most_bytes: int) -> None:
    """Raise `ValueError` for other files: a pipe would wait, and /dev/zero never ends."""
    status = path.stat()
    if not stat.S_ISREG(status.st_mode):
        advice = "a folder: name a file" if path.is_dir() else "no regular file: copy its content into a file first"
        raise ValueError(f"{str(path)!r} is {advice}")
    if status.st_size > most_bytes:
        size, limit = f"{status.st_size:,} bytes", f"{most_bytes:,}"
        raise ValueError(f"{str(path)!r} holds {size}, more than the {limit} that are read: is it the right file?")


def is_same_file(path: Path, other_path: Path) -> bool:
    """Whether two paths name one file, existing or not; a link to itself differs from any other file."""
    if os.path.realpath(path) == os.path.realpath(other_path):
        return True
    try:
        return path.samefile(other_path)
    except OSError:
        return False


@contextmanager
def replace_file(path: Path, *, private: bool = False) -> Iterator[Path]:
    """Yield a temporary path in the same folder; on success it replaces ``path`` atomically, else it is deleted.

    Only the owner can read it until then. Afterwards it has the mode of the replaced file; a new ``private`` one is the
    owner's only. The temporary name keeps the suffix, by which libraries select a format.
    """
    check_parent(path)
    handle, name = tempfile.mkstemp(prefix=f".{path.stem}-", suffix=path.suffix, dir=path.parent)
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        with temporary.open("rb") as written:
            os.fsync(written.fileno())
        try:
            mode = stat.S_IMODE(path.stat().st_mode)
        except FileNotFoundError:
            mask = os.umask(0o077)  # it can only be read by setting it
            os.umask(mask)
            mode = 0o600 if private else 0o666 & ~mask
        temporary.chmod(mode)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def write_text(path: Path, text: str, *, private: bool = False) -> None:
    with replace_file(path, private=private) as temporary:
        temporary.write_text(text, encoding="utf-8")


def sync(path: Path) -> None:
    """Make a file, or the names in a folder, survive a power failure."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


Json = Any  # an untrusted JSON value
Document = dict[str, object]  # a JSON object of this project
MOST_BYTES = 2**26  # of a file: some hundred thousand voters, with the multipliers
_ORIGIN_ADVICE = "wanted is what table.save or --output of optimize or plan wrote"
_MAX_MESSAGE = 200  # characters of another error that a message repeats
_MAX_DEPTH = 32  # of lists and objects within one another; the files of this project have six levels
_MAX_VALUES = 2**19  # of a text: an empty list takes two characters and sixty bytes of memory
_MAX_DIGITS = 1000  # of a number; a float has 17


def read_json(path: Path, *, what: str, most_bytes: int) -> Json:
    """Read JSON; ``what`` names the expected content in messages."""
    check_regular(path, most_bytes)
    with path.open("rb") as file:
        content = file.read(most_bytes + 1)
    if len(content) > most_bytes:  # the size of a file in /proc is 0
        raise ValueError(f"{str(path)!r} holds more than the {most_bytes:,} bytes that are read for {what}")
    try:
        return parse_json(content.decode("utf-8-sig"))  # Windows begins texts with a byte order mark
    except json.JSONDecodeError as error:
        position = f"line {error.lineno}, column {error.colno}"
        raise ValueError(f"{str(path)!r} holds no {what}: it is no JSON ({position}: {error.msg})") from error
    except UnicodeDecodeError as error:
        raise ValueError(f"{str(path)!r} holds no {what}: it is no text in UTF-8") from error
    except ValueError as error:
        raise ValueError(f"{str(path)!r} holds no {what}: {error}") from error


def parse_json(text: str) -> Json:
    """Parse JSON text; `ValueError` beyond the bounds of this module.

    >>> parse_json('{"K": 11, "K": 13}')
    Traceback (most recent call last):
    ...
    ValueError: the name 'K' is twice in one object
    """
    if sum(map(text.count, ",[{")) > _MAX_VALUES:
        raise ValueError(f"it holds more than {_MAX_VALUES:,} values")
    try:
        value = json.loads(
            text,
            object_pairs_hook=_build_object,
            parse_int=lambda digits: int(_check_digits(digits)),
            parse_float=lambda digits: float(_check_digits(digits)),
            parse_constant=_refuse_constant,
        )
        _check_value(value, 0)
    except RecursionError:
        raise ValueError(f"it is nested more than {_MAX_DEPTH} levels deep") from None
    return value


def _build_object(pairs: list[tuple[str, object]]) -> Document:
    document: Document = {}
    for name, value in pairs:
        if name in document:
            raise ValueError(f"the name {name[:80]!r} is twice in one object")
        document[name] = value
    return document


def _check_digits(digits: str) -> str:
    if len(digits) > _MAX_DIGITS:
        raise ValueError(f"it holds a number of {len(digits):,} characters")
    return digits


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number")


def _check_value(value: object, depth: int) -> None:
    if depth > _MAX_DEPTH:
        raise RecursionError
    if isinstance(value, dict):
        for name, entry in value.items():
            _check_value(name, depth + 1)
            _check_value(entry, depth + 1)
    elif isinstance(value, list):
        for entry in value:
            _check_value(entry, depth + 1)
    elif isinstance(value, str) and not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:
            raise ValueError("it holds half a surrogate pair, which is no text") from None
    elif isinstance(value, float) and value in {float("inf"), float("-inf")}:
        raise ValueError("it holds a number beyond all floats")


def read_document(path: str | os.PathLike[str]) -> Json:
    """Read a table's file; `TableError` if it holds none, `OSError` if it cannot be read."""
    checks.file_name(path=path)
    try:
        return read_json(Path(path), what="table", most_bytes=MOST_BYTES)
    except ValueError as error:
        raise TableError("file", f"{error}; {_ORIGIN_ADVICE}") from error


def parse_document(text: str) -> Json:
    """Parse a table that another file holds; `TableError` as in `read_document`."""
    if len(text) > MOST_BYTES:
        raise TableError("file", f"it holds more than {MOST_BYTES:,} characters; {_ORIGIN_ADVICE}")
    try:
        return parse_json(text)
    except ValueError as error:
        raise TableError("file", f"{error}; {_ORIGIN_ADVICE}") from error


def write_document(path: str | os.PathLike[str], document: Document) -> None:
    checks.file_name(path=path)
    write_text(Path(path), json.dumps(document, indent=1, ensure_ascii=False) + "\n")


def check_head(data: Json, formats: Collection[str], version: int) -> str:
    """Return the format of a document; `TableError` for others or another version."""
    with errors_about("format"):
        if not isinstance(data, dict):
            raise TableError("format", f"the file does not hold a JSON object; {_ORIGIN_ADVICE}")
        if "format" not in data:
            raise TableError("format", f"it is missing, so this is no table; {_ORIGIN_ADVICE}")
        format_name = data["format"]
        if not isinstance(format_name, str) or format_name not in formats:
            expected = " or ".join(map(repr, formats))
            raise TableError("format", f"expected {expected}, got {start(repr(format_name))}; {_ORIGIN_ADVICE}")
    with errors_about("version"):
        stored_version = data.get("version")
        if type(stored_version) is not int or stored_version != version:
            raise TableError("version", f"expected {version}, got {start(repr(stored_version))}; {_ORIGIN_ADVICE}")
    return format_name


def read_problem(data: dict[str, Json]) -> dict[str, Json]:
    """Return the stored problem; `TableError` unless its pairs are text."""
    with errors_about("problem"):
        problem: dict[str, Json] = get_field(data, "problem")
        for pair in (problem["each"], problem["target"]):
            texts(pair)
        return problem


def read_provenance(data: dict[str, Json]) -> dict[str, str]:
    with errors_about("provenance"):
        return texts(data.get("provenance") or {})


@contextmanager
def errors_about(field: str) -> Iterator[None]:
    """Turn exceptions into a `TableError` about the field."""
    try:
        yield
    except CertificationError as error:
        raise TableError(field, str(error)) from error
    except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError) as error:
        text = f"{type(error).__name__}: {error}" if isinstance(error, LookupError) else str(error)
        raise TableError(field, f"it is malformed ({start(text)})") from error


def start(text: str) -> str:
    return text if len(text) <= _MAX_MESSAGE else f"{text[:_MAX_MESSAGE]}…"


def texts(data: dict[str, str]) -> dict[str, str]:
    """Return a copy; `ValueError` unless it holds only text that can be written."""
    for key, value in data.items():
        for text in (key, value):
            if not isinstance(text, str):
                checks.fail(str(key), text, "text")
            text.encode()
    return dict(data)


def get_field(data: dict[str, Json], name: str) -> Json:
    if name not in data:
        raise TableError(name, "it is missing")
    return data[name]


def read_scale(certificate: dict[str, Json]) -> float:
    scale = certificate["scale"]
    checks.probability(scale=scale)
    return float(scale)


def compute_checksum(content: Document) -> str:
    """Compute the hexadecimal SHA-256 of canonical JSON."""
    text = json.dumps(content, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()
