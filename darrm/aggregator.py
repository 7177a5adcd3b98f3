"""The interface of aggregators, and their files."""

import os
from typing import Protocol, runtime_checkable

import numpy as np

from darrm.loss.privacy_cost import PrivacyCost
from darrm.loss.renyi import RenyiCurve
from darrm.noisy_max import noisy_maximum
from darrm.noisy_max.noisy_maximum import NoisyMaximum
from darrm.pate import tested
from darrm.pate.tested import TestedRun
from darrm.privacy import PrivacyParams
from darrm.table.release import Release
from darrm.table.table import Table
from darrm.util import checks
from darrm.util.files import Document, Json, read_document, write_document
from darrm.votes import Labels, Votes

Released = Release | NoisyMaximum | TestedRun
CLAIMS = "plan"


@runtime_checkable
class Aggregator(Protocol):
    """Turns the votes on one query into one private label; tests/contracts/test_aggregators.py tests all of them.

    Majority aggregators answer with one of two classes. Noisy-max aggregators [P] take any number of classes, and some
    abstain (`darrm.votes.ABSTAIN`).
    """

    @property
    def guarantee(self) -> PrivacyParams | RenyiCurve:
        """The guarantee of one query for any data: an (ε, δ) pair or a Rényi curve."""
        ...

    def privacy_cost(self, queries: int = 1) -> PrivacyCost:
        """Describe the cost of queries; it depends on no vote, so it can be debited and published first."""
        ...

    def release(self, votes: Votes, *, rng: np.random.Generator | None = None) -> Labels:
        """Release one label for each of Q queries: (Q,) names of classes, 0 … C − 1 unless the votes name them.

        ``rng`` None draws from the operating system. A generator is for experiments only: its draws are predictable and
        not exact, so they have no privacy guarantee. `ValueError` if the aggregator does not accept the votes; nothing
        is drawn.
        """
        ...


def load_release(path: str | os.PathLike[str]) -> Released:
    """Read an aggregator from a file: a table, which is proved again, a mechanism, or a propose-test-release run.

    `TableError` if the file does not hold a valid aggregator (``field`` names the wrong field), `OSError` if it cannot
    be read.
    """
    return read_release(read_document(path))


def read_release(data: Json) -> Released:
    """Read a file's document; `TableError` as `load_release`."""
    data = without_claims(data)
    format_name = data.get("format") if isinstance(data, dict) else None
    if format_name == noisy_maximum.FORMAT:
        return NoisyMaximum.from_json(data)
    if format_name == tested.FORMAT:
        return TestedRun.from_json(data)
    return Release(Table.from_json(data))  # it raises for other formats


def without_claims(data: Json) -> Json:
    """Leave out the claims of a plan."""
    return {name: value for name, value in data.items() if name != CLAIMS} if isinstance(data, dict) else data


def save_release(path: str | os.PathLike[str], aggregator: Aggregator, claims: Document | None = None) -> None:
    """Write an aggregator and the claims of its plan to a file, atomically; `ValueError` if it has no format."""
    write_document(path, make_document(aggregator) | ({} if claims is None else {CLAIMS: claims}))


def make_document(aggregator: Aggregator) -> Document:
    """Return the document of an aggregator's file; `ValueError` if it has no format."""
    if not isinstance(aggregator, Released):
        advice = "say NoisyMaximum(mechanism, voters, classes)"
        checks.fail("aggregator", aggregator, "a Release, a NoisyMaximum or a TestedRun", advice)
    return aggregator.to_json()
