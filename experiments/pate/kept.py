"""Results of long stages, kept as JSON under a digest of what they depend on: a stopped run goes on from them."""

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from experiments.pages import read_json, write_json


def kept(folder: Path, stage: str, facts: object, compute: Callable[[], Any]) -> Any:  # noqa: ANN401 (plain data)
    """Return what ``compute`` gives, plain data, or what it gave for the same facts when it was last asked."""
    digest = hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:16]
    path = folder / f"{stage}-{digest}.json"
    if not path.is_file():
        folder.mkdir(parents=True, exist_ok=True)
        write_json(path, compute())
    return read_json(path)


def array_digest(array: NDArray[Any]) -> str:
    """Return the SHA-256 of an array's shape, type and content."""
    whole = np.ascontiguousarray(array)
    return hashlib.sha256(f"{whole.dtype.str} {whole.shape} ".encode() + whole.tobytes()).hexdigest()
