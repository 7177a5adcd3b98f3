"""Results of long stages, kept by a digest of their inputs: an interrupted run continues from them."""

import hashlib
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from darrm.training.teachers import load_votes, save_votes
from experiments.pages import read_json, write_json


def digest_of(facts: object) -> str:
    """Return what tells plain data from others: sixteen digits of their SHA-256."""
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:16]


def array_digest(array: NDArray[Any]) -> str:
    """Return the SHA-256 of an array's shape, type and content."""
    whole = np.ascontiguousarray(array)
    return hashlib.sha256(f"{whole.dtype.str} {whole.shape} ".encode() + whole.tobytes()).hexdigest()


def kept(folder: Path, stage: str, facts: object, compute: Callable[[], Any]) -> Any:  # noqa: ANN401 (plain data)
    """Return the plain data of ``compute``, or those kept for the same facts."""
    path = folder / f"{stage}-{digest_of(facts)}.json"
    if not path.is_file():
        folder.mkdir(parents=True, exist_ok=True)
        write_json(path, compute())
    return read_json(path)


def kept_votes(path: Path, train_and_ask: Callable[[], NDArray[np.int8]]) -> tuple[NDArray[np.int8], float]:
    """Return votes (n, K), or those kept at ``path``, and their seconds.

    The seconds of an interrupted training are those of its last part, or NaN.
    """
    facts = path.with_suffix(".json")
    if path.is_file():
        return load_votes(path), read_json(facts)["seconds"] if facts.is_file() else float("nan")
    path.parent.mkdir(parents=True, exist_ok=True)
    start = time.perf_counter()
    votes = train_and_ask()
    seconds = time.perf_counter() - start
    write_json(facts, {"seconds": seconds})
    save_votes(path, votes)
    return votes, seconds
