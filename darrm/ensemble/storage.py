"""Tensors on disk: safetensors files with JSON facts beside the tensors, never pickle."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from darrm.errors import TableError
from darrm.system import files
from darrm.system.extras import require

FACTS = "darrm"  # the one metadata key in use


def save_tensors(path: Path, arrays: dict[str, NDArray[Any]], facts: dict[str, Any]) -> None:
    """Write arrays and plain facts to one file, replacing it in one step."""
    contiguous = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    with files.replacing(path) as temporary:
        require("safetensors.numpy").save_file(contiguous, temporary, metadata={FACTS: json.dumps(facts)})


def load_tensors(path: Path) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
    """Read what `save_tensors` wrote.

    Raises
    ------
    TableError
        If the file is damaged or comes from somewhere else.
    FileNotFoundError
        If there is no such file.
    """
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {str(path)!r}")
    safetensors = require("safetensors")
    try:
        with safetensors.safe_open(path, framework="numpy") as stored:
            facts = json.loads((stored.metadata() or {})[FACTS])
            names = list(stored.keys())
            arrays = {name: np.array(stored.get_tensor(name)) for name in names}
    except (safetensors.SafetensorError, KeyError, ValueError) as error:
        raise TableError("file", f"{str(path)!r} is no file of this library, or damaged: {error}") from error
    return arrays, facts
