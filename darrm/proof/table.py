"""Proven noise functions: in memory and on disk.

`NoiseFunction` is a proposal, `GammaTable` a proven one. Only `certify` makes it, loading proves it again from the
file's own numbers, and the private majority takes nothing else: no path leads from a solver, a file or a hand-made
array to a release without a proof.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import InitVar, asdict, dataclass, replace
from functools import cached_property
from typing import Any

from darrm import checks
from darrm.errors import TableError
from darrm.laws import priors
from darrm.laws.noise_function import NoiseFunction
from darrm.losses.profile import PrivacyProfile
from darrm.losses.renyi import RenyiCurve
from darrm.problem import Problem
from darrm.proof.certify import Certificate, prove, scale_and_prove
from darrm.proof.optimality import Optimality
from darrm.proof.profile import privacy_profile
from darrm.proof.renyi import renyi_curve
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

FORMAT = "darrm gamma table"
VERSION = 3
READ_VERSIONS = (1, 2, VERSION)  # version 1 had the prior as text, neither of the first two the multipliers
_PROVED = object()  # handed to the constructor by the two functions that prove


@dataclass(frozen=True, eq=False)
class GammaTable:
    """A noise function with its proof. Made by `certify`, `optimize_gamma` or `GammaTable.load` only."""

    problem: Problem  # what it is private for
    gamma: NoiseFunction
    certificate: Certificate  # the proof's numbers
    optimality: Optimality | None  # how good it is, proved or claimed; None for a γ that was not optimized
    provenance: Mapping[str, str]  # where it comes from: name, version and settings of what made it
    proof: InitVar[object] = None

    def __post_init__(self, proof: object) -> None:
        if proof is not _PROVED:
            raise TypeError("a GammaTable is made by certify, optimize_gamma or GammaTable.load, which prove it")

    @cached_property
    def digest(self) -> str:
        """The SHA-256, in hexadecimal, of the problem and γ as JSON: what a ledger and an auditor know the table by."""
        return checksum_of(self._content())

    @cached_property
    def profile(self) -> PrivacyProfile:
        """The exact privacy profile of one query: the worst divergence over the corners for each ε."""
        return privacy_profile(self.problem, self.gamma)

    @cached_property
    def renyi(self) -> RenyiCurve | None:
        """The Rényi curve of one query, for equal voters and γ that do not fall away from the tie; None for others."""
        if not self.gamma.is_monotone or self.problem.voters.own is not None:
            return None
        return renyi_curve(self.problem.voters, self.gamma)

    def with_optimality(self, optimality: Optimality | None, provenance: Mapping[str, str]) -> GammaTable:
        """Add how good the proven γ is, computed again where that is possible, and where it comes from.

        `TableError` if what is said about the optimality does not hold.
        """
        checked = None if optimality is None else optimality.checked(self.problem, self.gamma)
        return GammaTable(self.problem, self.gamma, self.certificate, checked, dict(provenance), _PROVED)

    def to_json(self) -> dict[str, Any]:
        """Write the table as plain data; floats keep their exact value, ε and δ their decimals."""
        return {
            "format": FORMAT,
            "version": VERSION,
            **self._content(),
            "checksum": self.digest,
            "certificate": asdict(self.certificate),
            "optimality": None if self.optimality is None else self.optimality.to_json(self.problem.voters.K),
            "provenance": dict(self.provenance),
        }

    def _content(self) -> dict[str, Any]:
        """Write what the digest is of."""
        return {"problem": self.problem.to_json(), "gamma": [float(value) for value in self.gamma.half]}

    @classmethod
    def from_json(cls, data: Any) -> GammaTable:  # noqa: ANN401 (whatever a JSON file holds)
        """Read a table and prove it again: that γ is private and, from its multipliers, how good it is.

        `TableError` if a field is missing, malformed, changed, or does not hold; ``field`` names it.
        """
        version = check_head(data, FORMAT, READ_VERSIONS)
        stored = problem_of(data)
        with reading("problem"):
            problem = Problem.from_json(stored)
        with reading("gamma"):
            values = field_of(data, "gamma")
            if not isinstance(values, list) or len(values) != problem.voters.half_size:
                length = len(values) if isinstance(values, list) else "no list"
                raise TableError(
                    "gamma", f"K = {problem.voters.K} needs {problem.voters.half_size} values, got {length}"
                )
            checks.probability(**{f"value {place}": value for place, value in enumerate(values)})
            if field_of(data, "checksum") != checksum_of({"problem": stored, "gamma": values}):
                raise TableError(
                    "gamma", "it was changed after it was saved: its checksum does not match; optimize again"
                )
            gamma = NoiseFunction(problem.voters.K, values)
        with reading("certificate"):
            scale = scale_of(field_of(data, "certificate"))
        with reading("gamma"):
            certificate = prove(problem, gamma, scale=scale)
        provenance = provenance_of(data)
        with reading("optimality"):
            optimality = _claim(data.get("optimality"), problem, gamma, version)
        return cls(problem, gamma, certificate, None, {}, _PROVED).with_optimality(optimality, provenance)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the table to a file, replacing an old one in one step."""
        write_document(path, self.to_json())

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> GammaTable:
        """Read a table from a file and prove it again.

        Raises
        ------
        TableError
            If the file holds no valid table; ``field`` names what is wrong.
        OSError
            If the file cannot be read.
        """
        return cls.from_json(read_document(path))


def certify(problem: Problem, gamma: NoiseFunction) -> GammaTable:
    """Prove a noise function private, scaled down first as far as it has to be.

    `ValueError` if γ and the problem disagree about K.

    >>> from darrm import PrivacyParams, Voters
    >>> problem = Problem.from_allowance(Voters(3, PrivacyParams(0.1)), 1)
    >>> table = certify(problem, NoiseFunction(3, [1.0, 1.0]))
    >>> round(table.certificate.scale, 6), table.certificate.worst_cost <= table.certificate.budget
    (0.667222, True)
    """
    scaled, certificate = scale_and_prove(problem, gamma)
    return GammaTable(problem, scaled, certificate, None, {}, _PROVED)


def _claim(data: Any, problem: Problem, gamma: NoiseFunction, version: int) -> Optimality | None:  # noqa: ANN401 (JSON)
    """Read what is said about how good γ is.

    The text of a prior in version 1 was rounded, and an own prior could have the name of another: where the error is
    not the one that the file claims, the text is a name only.
    """
    if data is None:
        return None
    claim = Optimality.from_json(data, problem.voters)
    if version == 1:
        try:
            claim.checked(problem, gamma)
        except TableError:
            return replace(claim, prior=priors.StoredPrior(str(data["prior"]), ""))
    return claim
