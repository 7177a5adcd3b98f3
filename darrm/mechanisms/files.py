"""Releases in files: what a plan wrote, whichever of the formats it is, as the aggregator that releases from it."""

import os
from collections.abc import Callable

from darrm.aggregator import Aggregator
from darrm.errors import checks
from darrm.mechanisms import noisy_maximum
from darrm.mechanisms.noisy_maximum import NoisyMaximum
from darrm.mechanisms.release import Release
from darrm.proof.evidence import BY_FORMAT, CORNERS
from darrm.proof.stored import read_document, write_document
from darrm.proof.table import Table
from darrm.system.files import Document, Json

Released = Release | NoisyMaximum
_FORMATS: dict[str, Callable[[Json], Released]] = {
    **dict.fromkeys(BY_FORMAT, lambda data: Release(Table.from_json(data))),
    noisy_maximum.FORMAT: NoisyMaximum.from_json,
}


def load_release(path: str | os.PathLike[str]) -> Released:
    """Read what releases from a file: a table, proved again, or a mechanism.

    Raises
    ------
    TableError
        If the file holds none, or one that is malformed; ``field`` names what is wrong.
    OSError
        If the file cannot be read.
    """
    return release_of(read_document(path))


def release_of(data: Json) -> Released:
    """Return what releases from the document of a file; `TableError` as `load_release`."""
    named = data.get("format") if isinstance(data, dict) else None
    # a file of no format is refused as a table, which says what is missing
    return _FORMATS.get(named if isinstance(named, str) else "", _FORMATS[CORNERS.format])(data)


def save_release(path: str | os.PathLike[str], aggregator: Aggregator) -> None:
    """Write what releases to a file, replacing an old one in one step; `ValueError` if it has no format."""
    write_document(path, document_of(aggregator))


def document_of(aggregator: Aggregator) -> Document:
    """Return what a file of an aggregator holds, as plain data; `ValueError` if it has no format."""
    if not isinstance(aggregator, Released):
        advice = "say NoisyMaximum(mechanism, voters, classes)"
        checks.fail("aggregator", aggregator, "a Release or a NoisyMaximum", advice)
    return aggregator.to_json()
