"""Releases in files: what a plan wrote, whichever of the formats it is, as the aggregator that releases from it."""

import os
from collections.abc import Callable

from darrm import checks
from darrm.aggregator import Aggregator
from darrm.mechanisms import noisy_maximum
from darrm.mechanisms.majority import DaRRM
from darrm.mechanisms.noisy_maximum import NoisyMaximum
from darrm.mechanisms.plurality import Plurality
from darrm.problem import Voters
from darrm.proof import plurality_table, table
from darrm.proof.plurality_table import PluralityTable
from darrm.proof.stored import read_document, write_document
from darrm.proof.table import GammaTable
from darrm.system.json_text import Document

Released = DaRRM | Plurality | NoisyMaximum
_FORMATS: dict[str, Callable[[object], Released]] = {
    table.FORMAT: lambda data: DaRRM(GammaTable.from_json(data)),
    plurality_table.FORMAT: lambda data: Plurality(PluralityTable.from_json(data)),
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


def release_of(data: object) -> Released:
    """Return what releases from the document of a file; `TableError` as `load_release`."""
    format_ = data.get("format") if isinstance(data, dict) else None
    # a file of no format is refused as a table, which says what is missing
    return _FORMATS.get(format_ if isinstance(format_, str) else "", _FORMATS[table.FORMAT])(data)


def save_release(path: str | os.PathLike[str], aggregator: Aggregator) -> None:
    """Write what releases to a file, replacing an old one in one step; `ValueError` if it has no format."""
    write_document(path, document_of(aggregator))


def document_of(aggregator: Aggregator) -> Document:
    """Return what a file of an aggregator holds, as plain data; `ValueError` if it has no format."""
    if isinstance(aggregator, NoisyMaximum):
        return aggregator.to_json()
    if isinstance(aggregator, DaRRM | Plurality):
        return aggregator.table.to_json()
    advice = "say NoisyMaximum(mechanism, voters, classes)"
    return checks.fail("aggregator", aggregator, "a DaRRM, a Plurality or a NoisyMaximum", advice)


def whose(aggregator: Released) -> tuple[Voters, int]:
    """Return whose votes an aggregator answers, and about how many classes.

    >>> from darrm.pate import GNMax
    >>> from darrm.privacy import PrivacyParams
    >>> whose(NoisyMaximum(GNMax(40.0), Voters(50, PrivacyParams("inf"), overlap=1), 10))[1]
    10
    """
    if isinstance(aggregator, NoisyMaximum):
        return aggregator.voters, aggregator.classes
    problem = aggregator.table.problem
    return problem.voters, problem.classes
