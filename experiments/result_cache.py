"""Store results of long stages under a digest of their inputs, so that an interrupted run can continue."""

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


def compute_digest(facts: object) -> str:
    """Return the first sixteen hexadecimal digits of the SHA-256 of plain data."""
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:16]


def digest_array(array: NDArray[Any]) -> str:
    """Return the SHA-256 of an array's type, shape and content."""
    contiguous = np.ascontiguousarray(array)
    return hashlib.sha256(f"{contiguous.dtype.str} {contiguous.shape} ".encode() + contiguous.tobytes()).hexdigest()


def read_or_compute(folder: Path, stage: str, facts: object, compute: Callable[[], Any]) -> Any:  # noqa: ANN401 (plain data)
    """Return the plain data that ``compute`` returns, or read those stored for the same facts."""
    path = folder / f"{stage}-{compute_digest(facts)}.json"
    if not path.is_file():
        folder.mkdir(parents=True, exist_ok=True)
        write_json(path, compute())
    return read_json(path)


def read_or_train(path: Path, collect_votes: Callable[[], NDArray[np.int8]]) -> tuple[NDArray[np.int8], float]:
    """Return votes (n, K) from ``path`` or from the function, and the seconds of the training.

    After an interrupted training, the seconds are those of its last part, or NaN.
    """
    facts = path.with_suffix(".json")
    if path.is_file():
        return load_votes(path), read_json(facts)["seconds"] if facts.is_file() else float("nan")
    path.parent.mkdir(parents=True, exist_ok=True)
    start = time.perf_counter()
    votes = collect_votes()
    seconds = time.perf_counter() - start
    write_json(facts, {"seconds": seconds})
    save_votes(path, votes)
    return votes, seconds
