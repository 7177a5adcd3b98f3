"""Proven laws: in memory and on disk.

A `Law` is a proposal, a `Table` a proven one. Only `certify` makes it, loading proves it again from the file's own
numbers, and a release takes nothing else: no path leads from a solver, a file or a hand-made array to a release without
a proof. Where voters draw their examples anew, the proof is of `Problem.for_certain`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import InitVar, asdict, dataclass, replace
from functools import cached_property

from darrm.errors import TableError, checks
from darrm.laws import priors
from darrm.laws.law import Law
from darrm.laws.noise_function import NoiseFunction
from darrm.laws.plurality_law import PluralityLaw
from darrm.losses.amplification import amplified_profile
from darrm.losses.profile import PrivacyProfile
from darrm.losses.renyi import RenyiCurve
from darrm.problem import Problem
from darrm.proof.certificate import Certificate
from darrm.proof.evidence import BY_FORMAT, Evidence, evidence_of
from darrm.proof.optimality import SHARE, Optimality, Solution
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
from darrm.system.files import Json

_CHANGED = "it was changed after it was saved: its checksum does not match; optimize again"
_PROVED = object()  # handed to the constructor by the two functions that prove


@dataclass(frozen=True, eq=False)
class Table:
    """A law with its proof. Made by `certify`, `optimize_table` or `Table.load` only."""

    problem: Problem  # what it is private for
    law: Law
    certificate: Certificate  # the proof's numbers
    optimality: Optimality | None  # how good it is, proved or claimed; None for a law that was not optimized
    provenance: Mapping[str, str]  # where it comes from: name, version and settings of what made it
    proof: InitVar[object] = None

    def __post_init__(self, proof: object) -> None:
        if proof is not _PROVED:
            raise TypeError("a Table is made by certify, optimize_table or Table.load, which prove it")

    @property
    def gamma(self) -> NoiseFunction:
        """The law of two classes as a noise function; `ValueError` for a law on histograms."""
        if not isinstance(self.law, NoiseFunction):
            advice = "this table's law is on histograms: table.law"
            checks.fail("table.gamma", checks.Found("no γ"), "asked of a table of two classes", advice)
        return self.law

    @property
    def plurality(self) -> PluralityLaw:
        """The law on histograms; `ValueError` for a γ."""
        if not isinstance(self.law, PluralityLaw):
            advice = "this table's law is a noise function: table.gamma"
            checks.fail("table.plurality", checks.Found("a γ"), "asked of a table whose law is on histograms", advice)
        return self.law

    @property
    def share_right(self) -> float | None:
        """The expected share of right labels under the prior that it was optimized for; None without one."""
        if self.optimality is None:
            return None
        return self.optimality.value if self.optimality.merit is SHARE else self.law.share_right(self.optimality.prior)

    @property
    def evidence(self) -> Evidence:
        """What proves the law."""
        return evidence_of(self.law)

    @cached_property
    def digest(self) -> str:
        """The SHA-256, in hexadecimal, of the problem and the law as JSON: what ledgers and auditors know it by."""
        return checksum_of(self._content())

    @cached_property
    def profile(self) -> PrivacyProfile | None:
        """The exact privacy profile of one query: the worst divergence for each ε; None where it bounds nothing."""
        certain, sampling = self.evidence.profile(self.problem.for_certain, self.law), self.problem.voters.sampled
        return certain if certain is None or sampling is None else amplified_profile(certain, sampling)

    @cached_property
    def renyi(self) -> RenyiCurve | None:
        """The exact Rényi curve of one query; None for a γ that falls somewhere, or where nothing is known."""
        return self.evidence.renyi(self.problem, self.law)

    def with_optimality(self, optimality: Optimality | None, provenance: Mapping[str, str]) -> Table:
        """Add how good the proven law is, computed again where that is possible, and where it comes from.

        `TableError` if what is said about the optimality does not hold.
        """
        checked = None if optimality is None else optimality.checked(self.problem.for_certain, self.law)
        return Table(self.problem, self.law, self.certificate, checked, dict(provenance), _PROVED)

    def with_solution(self, solution: Solution, provenance: Mapping[str, str]) -> Table:
        """Add how good the proven law is, computed from what its solver says, and where it comes from."""
        proved = solution.proved(self.problem.for_certain, self.law)
        return Table(self.problem, self.law, self.certificate, proved, dict(provenance), _PROVED)

    def to_json(self) -> dict[str, Json]:
        """Write the table as plain data; floats keep their exact value, ε and δ their decimals."""
        return {
            "format": self.evidence.format,
            "version": self.evidence.versions[-1],
            **self._content(),
            "checksum": self.digest,
            "certificate": asdict(self.certificate),
            "optimality": None if self.optimality is None else self.optimality.to_json(self.problem.for_certain),
            "provenance": dict(self.provenance),
        }

    def _content(self) -> dict[str, Json]:
        return {"problem": self.evidence.problem_to_json(self.problem), self.evidence.field: self.law.to_json()}

    @classmethod
    def from_json(cls, data: Json) -> Table:
        """Read a table and prove it again: that its law is private and, from its multipliers, how good it is.

        `TableError` if a field is missing, malformed, changed, or does not hold; ``field`` names it.
        """
        kind, version = check_head(data, {kind: evidence.versions for kind, evidence in BY_FORMAT.items()})
        evidence = BY_FORMAT[kind]
        stored, name = problem_of(data), evidence.field
        with reading("problem"):
            problem = Problem.from_json(stored)
            proved = problem.for_certain
        with reading(name):
            numbers = field_of(data, name)
            law = evidence.law_from_json(numbers, problem)
            if field_of(data, "checksum") != checksum_of({"problem": stored, name: numbers}):
                raise TableError(name, _CHANGED)
        with reading("certificate"):
            scale = scale_of(field_of(data, "certificate"))
        with reading(name):
            certificate = evidence.prove(proved, law, scale)
        provenance = provenance_of(data)
        with reading("optimality"):
            claim = data.get("optimality")
            optimality = None if claim is None else _claim({**claim, **evidence.said}, proved, law, version)
        return cls(problem, law, certificate, None, {}, _PROVED).with_optimality(optimality, provenance)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the table to a file, replacing an old one in one step."""
        write_document(path, self.to_json())

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Table:
        """Read a table from a file and prove it again.

        Raises
        ------
        TableError
            If the file holds no valid table; ``field`` names what is wrong.
        OSError
            If the file cannot be read.
        """
        return cls.from_json(read_document(path))


def certify(problem: Problem, law: Law) -> Table:
    """Prove a law private, mixed first with a random answer (a γ: scaled down) as far as it has to be.

    `ValueError` if law and problem disagree about voters or classes, or there are more neighbors than can be listed.

    >>> from darrm import NoiseFunction, PrivacyParams, Voters
    >>> problem = Problem.from_allowance(Voters(3, PrivacyParams(0.1)), 1)
    >>> table = certify(problem, NoiseFunction(3, [1.0, 1.0]))
    >>> round(table.certificate.scale, 6), table.certificate.worst_cost <= table.certificate.budget
    (0.667222, True)
    >>> from darrm.laws.plurality_law import PluralityLaw
    >>> problem = Problem(Voters(2, PrivacyParams("inf"), overlap=1), PrivacyParams(1), classes=3)
    >>> table = certify(problem, PluralityLaw.of_probabilities(2, 3, [1.0, 0.0, 0.5, 0.0]))
    >>> round(table.certificate.scale, 6), table.certificate.worst_cost
    (0.533912, 0.0)
    """
    checks.instance(Problem, problem=problem, advice="say Problem(voters, target)")
    repaired, certificate = evidence_of(law).repair(problem.for_certain, law)
    return Table(problem, repaired, certificate, None, {}, _PROVED)


def _claim(data: dict[str, Json], problem: Problem, law: Law, version: int) -> Optimality:
    claim = Optimality.from_json(data, problem)
    # the text of a prior in version 1 of a γ's table was rounded, and an own prior could have the name of another:
    # where the error is not the one that the file claims, the text is a name only
    if isinstance(data["prior"], str) and version == 1:
        try:
            claim.checked(problem, law)
        except TableError:
            return replace(claim, prior=priors.StoredPrior(data["prior"]))
    return claim
