"""Proven pluralities: in memory and on disk, what `darrm.proof.table` is for two classes and private voters.

`PluralityLaw` is a proposal, `PluralityTable` a proven one. Only `certify_plurality` makes it, loading proves it again
from the file's own numbers, and the private plurality takes nothing else.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import InitVar, asdict, dataclass
from functools import cached_property
from typing import Any

from darrm.errors import TableError
from darrm.laws.plurality_law import PluralityLaw
from darrm.losses.profile import PrivacyProfile
from darrm.losses.renyi import RenyiCurve
from darrm.problem import Problem
from darrm.proof.certify import Certificate
from darrm.proof.plurality import mix_and_prove, prove
from darrm.proof.plurality_divergence import curve_of_law, profile_of_law
from darrm.proof.plurality_optimality import PluralityOptimality
from darrm.proof.stored import (
    check_head,
    checksum_of,
    field_of,
    problem_of,
    provenance_of,
    read_document,
    reading,
    scale_of,
    write_document,
)

FORMAT = "darrm plurality table"
VERSION = 1
_PROVED = object()  # handed to the constructor by the two functions that prove


@dataclass(frozen=True, eq=False)
class PluralityTable:
    """A plurality's law with its proof. Made by `certify_plurality`, `optimize_plurality` or `load` only."""

    problem: Problem  # what it is private for
    probabilities: PluralityLaw
    certificate: Certificate  # of `darrm.proof.plurality.prove`
    optimality: PluralityOptimality | None  # how good it is, proved or claimed; None for a law that was not optimized
    provenance: Mapping[str, str]  # where it comes from: name, version and settings of what made it
    proof: InitVar[object] = None

    def __post_init__(self, proof: object) -> None:
        if proof is not _PROVED:
            raise TypeError(
                "a PluralityTable is made by certify_plurality, optimize_plurality or PluralityTable.load, "
                "which prove it"
            )

    @cached_property
    def digest(self) -> str:
        """The SHA-256, in hexadecimal, of problem and weights as JSON: what a ledger and an auditor know it by."""
        return checksum_of(self._content())

    @cached_property
    def profile(self) -> PrivacyProfile | None:
        """The exact privacy profile of one query; None where it bounds nothing."""
        return profile_of_law(self.probabilities, self.problem.voters.reached)

    @cached_property
    def renyi(self) -> RenyiCurve:
        """The exact Rényi curve of one query; ∞ where an answer is possible on one side only."""
        return curve_of_law(self.probabilities, self.problem.voters.reached)

    @property
    def share_right(self) -> float | None:
        """The expected share of right labels under the prior that it was optimized for; None without one."""
        return None if self.optimality is None else self.optimality.value

    def with_optimality(self, optimality: PluralityOptimality | None, provenance: Mapping[str, str]) -> PluralityTable:
        """Add how good the proven law is, computed again where that is possible, and where it comes from.

        `TableError` if what is said about the optimality does not hold.
        """
        checked = None if optimality is None else optimality.checked(self.problem, self.probabilities)
        return PluralityTable(self.problem, self.probabilities, self.certificate, checked, dict(provenance), _PROVED)

    def to_json(self) -> dict[str, Any]:
        """Write the table as plain data; `darrm/schemas/plurality_table.json` describes it."""
        return {
            "format": FORMAT,
            "version": VERSION,
            **self._content(),
            "checksum": self.digest,
            "certificate": asdict(self.certificate),
            "optimality": None if self.optimality is None else self.optimality.to_json(self.problem),
            "provenance": dict(self.provenance),
        }

    def _content(self) -> dict[str, Any]:
        """Write what the digest is of."""
        # two classes are named, too, as in files that were written when a plurality was a problem of its own
        problem = {**self.problem.to_json(), "classes": self.problem.classes}
        return {"problem": problem, "weights": self.probabilities.to_lists()}

    @classmethod
    def from_json(cls, data: Any) -> PluralityTable:  # noqa: ANN401 (whatever a JSON file holds)
        """Read a table and prove it again: that its law is private and, from its multipliers, how good it is.

        `TableError` if a field is missing, malformed, changed, or does not hold; ``field`` names it.
        """
        check_head(data, FORMAT, (VERSION,))
        stored = problem_of(data)
        with reading("problem"):
            problem = Problem.from_json(stored)
        with reading("weights"):
            weights = field_of(data, "weights")
            law = PluralityLaw.from_lists(problem.voters.K, problem.classes, weights)
            if field_of(data, "checksum") != checksum_of({"problem": stored, "weights": weights}):
                raise TableError("weights", "they were changed after they were saved: the checksum does not match")
        with reading("certificate"):
            scale = scale_of(field_of(data, "certificate"))
        with reading("weights"):
            certificate = prove(problem, law, scale=scale)
        provenance = provenance_of(data)
        with reading("optimality"):
            claim = data.get("optimality")
            optimality = None if claim is None else PluralityOptimality.from_json(claim, problem)
        return cls(problem, law, certificate, None, {}, _PROVED).with_optimality(optimality, provenance)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the table to a file, replacing an old one in one step."""
        write_document(path, self.to_json())

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> PluralityTable:
        """Read a table from a file and prove it again.

        Raises
        ------
        TableError
            If the file holds no valid table; ``field`` names what is wrong.
        OSError
            If the file cannot be read.
        """
        return cls.from_json(read_document(path))


def certify_plurality(problem: Problem, law: PluralityLaw) -> PluralityTable:
    """Prove a law private, mixed first with a random answer as far as it has to be.

    `ValueError` if law and problem disagree about voters or classes, or there are more neighbors than can be listed.

    >>> from darrm import PrivacyParams, Voters
    >>> problem = Problem(Voters(2, PrivacyParams("inf"), overlap=1), PrivacyParams(1), 3)
    >>> table = certify_plurality(problem, PluralityLaw.of_probabilities(2, 3, [1.0, 0.0, 0.5, 0.0]))
    >>> round(table.certificate.scale, 6), table.certificate.worst_cost
    (0.533912, 0.0)
    """
    mixed, certificate = mix_and_prove(problem, law)
    return PluralityTable(problem, mixed, certificate, None, {}, _PROVED)
