"""Download files from public mirrors with retries, check their hashes, and cache them.

Mirrors compress differently, so the hash of a .gz file is that of its uncompressed content.
"""

import gzip
import hashlib
import http.client
import os
import time
import urllib.error
import urllib.request
import zlib
from dataclasses import dataclass
from pathlib import Path

from darrm.util import files

DATA_VARIABLE = "DARRM_DATA_DIR"
TIMEOUT_SECONDS = 30.0
ATTEMPTS = 3
PAUSE_SECONDS = 1.0  # doubled after each failed attempt


@dataclass(frozen=True)
class RemoteFile:
    """A file of a data set: its folder and name, the length and hash of its content, and its mirrors."""

    folder: str
    name: str
    size: int
    sha256: str
    mirrors: tuple[str, ...]


def find_cache_folder() -> Path:
    """Return the folder for downloads: ``$XDG_CACHE_HOME/darrm``, by default ``~/.cache/darrm``."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "darrm"


def find_path(file: RemoteFile) -> Path:
    """Return the path of a file: in DARRM_DATA_DIR if that is set, else in the cache."""
    return Path(os.environ.get(DATA_VARIABLE) or find_cache_folder()) / file.folder / file.name


def obtain(file: RemoteFile, *, pause: float = PAUSE_SECONDS) -> bytes:
    """Return a file's uncompressed content: from DARRM_DATA_DIR, else from the cache, else from a mirror."""
    path = find_path(file)
    if path.is_file():
        return _check_content(path.read_bytes(), file, str(path))
    data_folder = os.environ.get(DATA_VARIABLE)
    if data_folder:
        raise ValueError(f"DARRM_DATA_DIR names {data_folder!r}, which has no {file.folder}/{file.name}")
    packed, content = _download(file, pause=pause)
    path.parent.mkdir(parents=True, exist_ok=True)
    with files.replace_file(path) as temporary:
        temporary.write_bytes(packed)
    return content


def _download(file: RemoteFile, *, pause: float) -> tuple[bytes, bytes]:
    """Try each mirror up to three times; return packed and checked content, or raise an error with all failures."""
    problems = []
    for mirror in file.mirrors:
        address = mirror + file.name
        for attempt in range(ATTEMPTS):
            try:
                packed = _fetch(address)
                return packed, _check_content(packed, file, address)
            except ValueError as error:  # wrong content: a retry at the same mirror cannot help
                problems.append(str(error))
                break
            except (OSError, http.client.HTTPException) as error:
                problems.append(f"{address}: {error}")
                if isinstance(error, urllib.error.HTTPError) and 400 <= error.code < 500:
                    break
                if attempt + 1 < ATTEMPTS:
                    time.sleep(pause * 2**attempt)
    raise OSError(
        f"{file.folder}/{file.name} could not be downloaded; set DARRM_DATA_DIR to a folder that has it "
        f"(or use --dataset digits, which needs no download). Tried: {'; '.join(problems)}"
    )


def _check_content(packed: bytes, file: RemoteFile, where: str) -> bytes:
    """Unpack a gzip file, and check the length and hash; error messages name ``where``."""
    try:
        content = gzip.decompress(packed) if file.name.endswith(".gz") else packed
    except (EOFError, OSError, zlib.error) as error:
        raise ValueError(f"{where} is truncated or no gzip file ({error}): delete it and try again") from error
    if len(content) != file.size:
        raise ValueError(f"{where} holds {len(content)} bytes, not {file.size}: delete it and try again")
    digest = hashlib.sha256(content).hexdigest()
    if digest != file.sha256:
        raise ValueError(f"{where} is corrupt (its content has sha256 {digest}, not {file.sha256}): delete it")
    return content


def _fetch(address: str) -> bytes:
    if not address.startswith(("https://", "http://")):
        raise ValueError(f"{address}: a mirror's address starts with https:// or http://")
    with urllib.request.urlopen(address, timeout=TIMEOUT_SECONDS) as response:  # noqa: S310 (the scheme is checked above)
        body: bytes = response.read()  # `http.client.IncompleteRead` if the transfer breaks off
    return body
