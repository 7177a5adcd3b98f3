"""Releases in files: what a plan wrote, whichever of the formats it is, as the aggregator that releases from it.

A table, a mechanism, or a run of one that is tested first: `darrm.pate.tested`.

A plan's file also holds what was claimed of it, under ``plan``: the workload, the total and by which bound, the share
right under which prior. Whoever releases does not read that; `darrm.verify` judges every number of it.
"""

import os
from collections.abc import Callable

from darrm.aggregator import Aggregator
from darrm.errors import checks
from darrm.mechanisms import noisy_maximum
from darrm.mechanisms.noisy_maximum import NoisyMaximum
from darrm.mechanisms.release import Release
from darrm.pate import tested
from darrm.pate.tested import TestedRun
from darrm.proof.evidence import BY_FORMAT, CORNERS
from darrm.proof.stored import read_document, write_document
from darrm.proof.table import Table
from darrm.system.files import Document, Json

Released = Release | NoisyMaximum | TestedRun
CLAIMS = "plan"
_FORMATS: dict[str, Callable[[Json], Released]] = {
    **dict.fromkeys(BY_FORMAT, lambda data: Release(Table.from_json(data))),
    noisy_maximum.FORMAT: NoisyMaximum.from_json,
    tested.FORMAT: TestedRun.from_json,
}


def load_release(path: str | os.PathLike[str]) -> Released:
    """Read what releases from a file: a table, proved again, a mechanism, or a tested run.

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
    data = without_claims(data)
    named = data.get("format") if isinstance(data, dict) else None
    # a file of no format is refused as a table, which says what is missing
    return _FORMATS.get(named if isinstance(named, str) else "", _FORMATS[CORNERS.format])(data)


def without_claims(data: Json) -> Json:
    """Return a document without what a plan claims of it."""
    return {name: value for name, value in data.items() if name != CLAIMS} if isinstance(data, dict) else data


def save_release(path: str | os.PathLike[str], aggregator: Aggregator, claims: Document | None = None) -> None:
    """Write what releases, and what is claimed of it, to a file in one step; `ValueError` if it has no format."""
    write_document(path, document_of(aggregator) | ({} if claims is None else {CLAIMS: claims}))


def document_of(aggregator: Aggregator) -> Document:
    """Return what a file of an aggregator holds, as plain data; `ValueError` if it has no format."""
    if not isinstance(aggregator, Released):
        advice = "say NoisyMaximum(mechanism, voters, classes)"
        checks.fail("aggregator", aggregator, "a Release, a NoisyMaximum or a TestedRun", advice)
    return aggregator.to_json()
