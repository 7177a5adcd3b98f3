"""Files that are either the old one or the new one, never half of one."""

import os
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_DATABASE = b"SQLite format 3\0"  # how such a file begins: https://sqlite.org/fileformat.html


def check_parent(path: Path) -> None:
    """Raise `ValueError` unless the folder that will hold ``path`` exists and ``path`` is a file or nothing yet.

    Whoever may replace anything would replace a device by a file; and a ledger, with all that was spent, by a result.

    >>> check_parent(Path("/no/such/folder/table.json"))
    Traceback (most recent call last):
    ...
    ValueError: the folder '/no/such/folder' of '/no/such/folder/table.json' does not exist: create it first
    """
    if not path.parent.is_dir():
        raise ValueError(f"the folder {str(path.parent)!r} of {str(path)!r} does not exist: create it first")
    if not os.access(path.parent, os.W_OK):
        raise ValueError(f"the folder {str(path.parent)!r} of {str(path)!r} cannot be written to: name another")
    if path.is_dir():
        raise ValueError(f"{str(path)!r} is a folder: name a file")
    if path.exists() and not path.is_file():
        raise ValueError(f"{str(path)!r} is a device or a pipe, which would be replaced: name a file")
    if _is_database(path):
        raise ValueError(f"{str(path)!r} is a database, such as a ledger, which would be replaced: name another file")


def _is_database(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return file.read(len(_DATABASE)) == _DATABASE
    except OSError:  # there is none yet, or nobody may read it
        return False


def check_regular(path: Path, most_bytes: int) -> None:
    """Raise `ValueError` unless ``path`` is a regular file of at most so many bytes; `OSError` if there is none.

    A pipe would wait for a writer, and a device like /dev/zero never ends.

    >>> check_regular(Path("/dev/zero"), 2**20)
    Traceback (most recent call last):
    ...
    ValueError: '/dev/zero' is no regular file: copy what it holds into a file first
    """
    status = path.stat()
    if not stat.S_ISREG(status.st_mode):
        folder = stat.S_ISDIR(status.st_mode)
        what = "a folder: name a file" if folder else "no regular file: copy what it holds into a file first"
        raise ValueError(f"{str(path)!r} is {what}")
    if status.st_size > most_bytes:
        held, most = f"{status.st_size:,} bytes", f"{most_bytes:,}"
        raise ValueError(f"{str(path)!r} holds {held}, more than the {most} that are read: is it the right file?")


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary path beside ``path``; on success it replaces ``path`` in one step, else it vanishes.

    The temporary name keeps the suffix, so that libraries which look at it write the right format.
    """
    check_parent(path)
    handle, name = tempfile.mkstemp(prefix=f".{path.stem}-", suffix=path.suffix, dir=path.parent)
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        with temporary.open("rb") as written:
            os.fsync(written.fileno())
        mask = os.umask(0o077)  # it can only be read by setting it
        os.umask(mask)
        temporary.chmod(0o666 & ~mask)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """Replace the file at ``path`` by ``text`` (UTF-8) in one step."""
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def sync(path: Path) -> None:
    """Make a file, or the names in a folder, outlive a power failure."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
