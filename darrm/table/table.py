"""Proven laws: in memory and on disk.

A `Law` is a proposal, a `Table` a proven law. `certify` makes one, loading proves it again, and a release takes only a
table. If voters resample examples, the proof is about `Problem.conditional_on_inclusion`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import InitVar, asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from darrm.errors import TableError
from darrm.loss.amplification import amplify_profile
from darrm.loss.certificate import Certificate
from darrm.loss.profile import PrivacyProfile
from darrm.loss.renyi import RenyiCurve
from darrm.majority.noise_function import NoiseFunction
from darrm.numerics import Array
from darrm.open_set.open_law import OpenLaw
from darrm.plurality.plurality_law import PluralityLaw
from darrm.problem import Problem, classes_to_json, is_open
from darrm.table import evidence
from darrm.table.evidence import BY_FORMAT, KINDS, VERSION, Law, get_kind
from darrm.table.optimality import ACCURACY, Optimality, Solution
from darrm.table.text import plot_noise_functions, table_text
from darrm.util import checks
from darrm.util.figures import Figure
from darrm.util.files import (
    Json,
    check_head,
    compute_checksum,
    errors_about,
    get_field,
    read_document,
    read_problem,
    read_provenance,
    read_scale,
    write_document,
)

_CHECKSUM_ADVICE = "it was changed after it was saved: its checksum does not match; optimize again"
_PROOF_TOKEN = object()  # only code that proved a law passes this to the constructor


@dataclass(frozen=True, eq=False)
class Table:
    """A law with its proof. Only `certify`, `optimize_table` and `Table.load` make one."""

    problem: Problem
    law: Law
    certificate: Certificate  # the proof's numbers
    optimality: Optimality | None  # None for a law that was not optimized
    provenance: Mapping[str, str]  # name, version and settings of the maker
    proof: InitVar[object] = None

    def __post_init__(self, proof: object) -> None:
        if proof is not _PROOF_TOKEN:
            raise TypeError("a Table is made by certify, optimize_table or Table.load, which prove it")

    @property
    def gamma(self) -> NoiseFunction:
        """The law of two classes; `ValueError` for a law on histograms."""
        if not isinstance(self.law, NoiseFunction):
            advice = "this table's law is on histograms: table.law"
            checks.fail("table.gamma", checks.Text("no γ"), "asked of a table of two classes", advice)
        return self.law

    @property
    def plurality(self) -> PluralityLaw:
        """The law on histograms; `ValueError` for a γ."""
        if not isinstance(self.law, PluralityLaw):
            advice = "this table's law is a noise function: table.gamma"
            checks.fail("table.plurality", checks.Text("a γ"), "asked of a table whose law is on histograms", advice)
        return self.law

    def __str__(self) -> str:
        return table_text(self.problem, self.law, self.certificate, self.optimality)

    @overload
    def __call__(self, votes: int) -> float: ...

    @overload
    def __call__(self, votes: Sequence[int] | Sequence[Sequence[int]] | NDArray[np.integer]) -> Array: ...

    def __call__(self, votes: ArrayLike) -> float | Array:
        """Return γ(l) for a number of ones; else the probability of each answer for a histogram of votes."""
        return self.law(np.asarray(votes)) if isinstance(self.law, NoiseFunction) else self._compute_answers(votes)

    def _compute_answers(self, votes: ArrayLike) -> Array:
        counts, K = np.asarray(votes), self.problem.voters.K
        rows = np.atleast_2d(counts)
        has_width = rows.ndim == 2 and (is_open(self.problem.classes) or rows.shape[1] == self.problem.classes)
        if rows.dtype.kind not in "iu" or not has_width or np.any(rows < 0) or np.any(rows.sum(axis=1) != K):
            checks.fail("the histogram", votes, f"counts of K = {K} votes, one for each class")
        probabilities = self.law.probabilities(rows)
        return probabilities[0] if counts.ndim == 1 else probabilities

    def plot(self, path: str | os.PathLike[str] | None = None) -> Figure:
        """Draw γ over the number of ones, for two classes, and save the figure if a path is named; needs matplotlib."""
        return plot_noise_functions(self.problem, [("γ", 0, self.gamma)], None if path is None else Path(path))

    @property
    def accuracy(self) -> float | None:
        """The expected accuracy under the prior of the optimization; None without one."""
        if self.optimality is None:
            return None
        is_known = self.optimality.objective == ACCURACY
        return self.optimality.value if is_known else self.law.accuracy(self.optimality.prior)

    @cached_property
    def digest(self) -> str:
        """The SHA-256 of problem and law as JSON; ledgers and auditors identify a table by it."""
        return compute_checksum(self._content())

    @cached_property
    def profile(self) -> PrivacyProfile | None:
        """The exact privacy profile of one query; None if it bounds nothing."""
        certain = evidence.compute_profile(self.problem.conditional_on_inclusion, self.law)
        sampling = self.problem.voters.sampled
        return certain if certain is None or sampling is None else amplify_profile(certain, sampling)

    @cached_property
    def renyi(self) -> RenyiCurve | None:
        """The exact Rényi curve of one query; None if it is unknown, as for a γ that is not monotone."""
        return evidence.compute_curve(self.problem, self.law)

    def with_optimality(self, optimality: Optimality | None, provenance: Mapping[str, str]) -> Table:
        """Add optimality, computed again if possible, and provenance; `TableError` if it is false."""
        checked_optimality = (
            None if optimality is None else optimality.recheck(self.problem.conditional_on_inclusion, self.law)
        )
        return Table(self.problem, self.law, self.certificate, checked_optimality, dict(provenance), _PROOF_TOKEN)

    def with_solution(self, solution: Solution, provenance: Mapping[str, str]) -> Table:
        """Add the optimality of a solver's result, and provenance."""
        optimality = solution.prove(self.problem.conditional_on_inclusion, self.law)
        return Table(self.problem, self.law, self.certificate, optimality, dict(provenance), _PROOF_TOKEN)

    def to_json(self) -> dict[str, Json]:
        """Write floats with their exact value, ε and δ with their decimals."""
        proved_problem, optimality = self.problem.conditional_on_inclusion, self.optimality
        return {
            "format": get_kind(self.law).format,
            "version": VERSION,
            **self._content(),
            "checksum": self.digest,
            "certificate": asdict(self.certificate),
            "optimality": None if optimality is None else optimality.to_json(proved_problem),
            "provenance": dict(self.provenance),
        }

    def _content(self) -> dict[str, Json]:
        problem = self.problem.to_json()
        if not isinstance(self.law, NoiseFunction):
            problem = {**problem, "classes": classes_to_json(self.problem.classes)}  # two classes are written too
        return {"problem": problem, get_kind(self.law).field: self.law.to_json()}

    @classmethod
    def from_json(cls, data: Json) -> Table:
        """Prove privacy and optimality again; `TableError` whose ``field`` names what is missing or false."""
        format_ = check_head(data, BY_FORMAT, VERSION)
        kind, stored_problem = BY_FORMAT[format_], read_problem(data)
        name = KINDS[kind].field
        with errors_about("problem"):
            problem = Problem.from_json(stored_problem)
            proved_problem = problem.conditional_on_inclusion
        with errors_about(name):
            numbers = get_field(data, name)
            law: Law
            if kind is PluralityLaw:
                law = PluralityLaw.from_json(problem.voters.K, problem.classes, numbers)
            else:
                law = (NoiseFunction if kind is NoiseFunction else OpenLaw).from_json(problem.voters.K, numbers)
            if get_field(data, "checksum") != compute_checksum({"problem": stored_problem, name: numbers}):
                raise TableError(name, _CHECKSUM_ADVICE)
        with errors_about("certificate"):
            scale = read_scale(get_field(data, "certificate"))
        with errors_about(name):
            certificate = evidence.prove(proved_problem, law, scale)
        provenance = read_provenance(data)
        with errors_about("optimality"):
            claim, is_gamma = data.get("optimality"), isinstance(law, NoiseFunction)
            optimality = None if claim is None else Optimality.from_json(claim, proved_problem, about_gamma=is_gamma)
        return cls(problem, law, certificate, None, {}, _PROOF_TOKEN).with_optimality(optimality, provenance)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the table to a file, atomically."""
        write_document(path, self.to_json())

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Table:
        """Read a table and prove it again; `TableError` whose ``field`` names what is wrong, or `OSError`."""
        return cls.from_json(read_document(path))


def certify(problem: Problem, law: Law) -> Table:
    """Mix a law with the least random guessing that makes it private (a γ is scaled down), and prove it.

    `ValueError` if law and problem disagree about voters or classes, or there are too many neighbors to list.

    >>> from darrm import NoiseFunction, PrivacyParams, Voters
    >>> problem = Problem.from_allowance(Voters(3, PrivacyParams(0.1)), 1)
    >>> table = certify(problem, NoiseFunction(3, [1.0, 1.0]))
    >>> round(table.certificate.scale, 6), table.certificate.worst_cost <= table.certificate.budget
    (0.667222, True)
    """
    checks.instance(Problem, problem=problem, advice="say Problem(voters, target)")
    get_kind(law)
    private_law, certificate = evidence.repair(problem.conditional_on_inclusion, law)
    return Table(problem, private_law, certificate, None, {}, _PROOF_TOKEN)
