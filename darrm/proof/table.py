"""Proven noise functions: in memory and on disk.

`NoiseFunction` is a proposal, `GammaTable` a proven one. Only `certify` makes it, loading proves it again from the
file's own numbers, and the private majority takes nothing else: no path leads from a solver, a file or a hand-made
array to a release without a proof.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import InitVar, asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from darrm.errors import CertificationError, TableError
from darrm.gamma import priors
from darrm.gamma.noise_function import NoiseFunction
from darrm.gamma.sampled_error import Estimate
from darrm.losses.profile import PrivacyProfile
from darrm.losses.renyi import RenyiCurve
from darrm.problem import MajorityProblem
from darrm.proof.certify import Certificate, prove, scale_and_prove
from darrm.proof.profile import privacy_profile
from darrm.proof.renyi import renyi_curve
from darrm.system.files import write_text

FORMAT = "darrm gamma table"
VERSION = 2
_READ_VERSIONS = (1, VERSION)  # version 1 had the prior as text
# expected errors are at most 1/2: this is the rounding of a few thousand additions
_VALUE_TOLERANCE = 1e-12
_PROVED = object()  # handed to the constructor by the two functions that prove


@dataclass(frozen=True)
class Optimality:
    """How good a noise function is under a prior, and how much better one could be.

    If the expected error was sampled, ``value`` and ``bound`` are about the draws that were fitted, and ``held_out`` is
    the expected error on draws that were not.
    """

    prior: priors.Prior  # what γ was optimized for; after loading, a `StoredPrior` stands for one of a user's own
    shape: str  # as `darrm.optimize.optimize_gamma` was told, like `objective`: a record for its readers
    objective: str
    value: float  # expected error of the certified γ
    bound: float  # no private γ of that shape has a smaller expected error
    status: str  # why the solver stopped; a comment, not a claim
    held_out: Estimate | None = None

    @property
    def gap(self) -> float:
        """``value`` − ``bound``, at least 0."""
        return max(0.0, self.value - self.bound)

    def to_json(self, K: int) -> dict[str, Any]:
        """Write what is known about a γ for K voters as plain data."""
        held_out = None if self.held_out is None else asdict(self.held_out)
        return {**vars(self), "prior": priors.to_json(self.prior, K), "held_out": held_out}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Optimality:
        """Read what `to_json` wrote; `KeyError`, `TypeError` or `ValueError` if it is malformed."""
        held_out = data.get("held_out")
        estimate = None if held_out is None else Estimate(**held_out)
        return cls(**{**data, "prior": priors.from_json(data["prior"]), "held_out": estimate})


@dataclass(frozen=True, eq=False)
class GammaTable:
    """A noise function with its proof. Made by `certify`, `optimize_gamma` or `GammaTable.load` only."""

    problem: MajorityProblem  # what it is private for
    gamma: NoiseFunction
    certificate: Certificate  # the proof's numbers
    optimality: Optimality | None  # how good it is, or None for a γ that was not optimized
    provenance: Mapping[str, str]  # where it comes from: name, version and settings of what made it
    proof: InitVar[object] = None

    def __post_init__(self, proof: object) -> None:
        if proof is not _PROVED:
            raise TypeError("a GammaTable is made by certify, optimize_gamma or GammaTable.load, which prove it")

    @cached_property
    def digest(self) -> str:
        """The SHA-256, in hexadecimal, of the problem and γ as JSON: what a ledger and an auditor know the table by."""
        return _checksum(self._content())

    @cached_property
    def profile(self) -> PrivacyProfile:
        """The exact privacy profile of one query: the worst divergence over the corners for each ε."""
        return privacy_profile(self.problem, self.gamma)

    @cached_property
    def renyi(self) -> RenyiCurve | None:
        """The Rényi curve of one query, for γ that do not fall away from the tie; None for others."""
        return renyi_curve(self.problem.voters, self.gamma) if self.gamma.is_monotone else None

    def with_optimality(self, optimality: Optimality | None, provenance: Mapping[str, str]) -> GammaTable:
        """Add what is known about how good the proven γ is and where it comes from."""
        return GammaTable(self.problem, self.gamma, self.certificate, optimality, dict(provenance), _PROVED)

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
        """Read a table and prove it again.

        `TableError` if a field is missing, malformed, changed, or does not hold; ``field`` names it.
        """
        if not isinstance(data, dict):
            raise TableError("format", "the file does not hold a JSON object")
        if data.get("format") != FORMAT:
            raise TableError("format", f"expected {FORMAT!r}, got {data.get('format')!r}")
        if data.get("version") not in _READ_VERSIONS:
            raise TableError("version", f"this release reads versions up to {VERSION}, got {data.get('version')!r}")
        try:
            problem = MajorityProblem.from_json(_field(data, "problem"))
        except (KeyError, TypeError, ValueError) as error:
            raise TableError("problem", f"it is malformed ({error})") from error
        values = _field(data, "gamma")
        if not isinstance(values, list) or len(values) != problem.voters.half_size:
            length = len(values) if isinstance(values, list) else "no list"
            raise TableError("gamma", f"K = {problem.voters.K} needs {problem.voters.half_size} values, got {length}")
        if _field(data, "checksum") != _checksum({"problem": data["problem"], "gamma": values}):
            raise TableError("gamma", "it was changed after it was saved: its checksum does not match")
        stored = _field(data, "certificate")
        try:
            gamma = NoiseFunction(problem.voters.K, values)
            certificate = prove(problem, gamma, scale=float(stored["scale"]))
        except (ValueError, TypeError, KeyError, CertificationError) as error:
            raise TableError("gamma", str(error)) from error
        optimality = _optimality_from_json(data.get("optimality"), gamma, data["version"])
        provenance = {str(key): str(value) for key, value in (data.get("provenance") or {}).items()}
        return cls(problem, gamma, certificate, optimality, provenance, _PROVED)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the table to a file, replacing an old one in one step."""
        write_text(Path(path), json.dumps(self.to_json(), indent=1, ensure_ascii=False) + "\n")

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
        try:
            data = json.loads(Path(path).read_text(encoding="utf-8"))
        except (json.JSONDecodeError, UnicodeDecodeError) as error:
            raise TableError("file", f"{str(path)!r} is not complete JSON ({error})") from error
        return cls.from_json(data)


def certify(problem: MajorityProblem, gamma: NoiseFunction) -> GammaTable:
    """Prove a noise function private, scaled down first as far as it has to be.

    `ValueError` if γ and the problem disagree about K.

    >>> from darrm import PrivacyParams, Voters
    >>> problem = MajorityProblem.from_allowance(Voters(3, PrivacyParams(0.1)), 1)
    >>> table = certify(problem, NoiseFunction(3, [1.0, 1.0]))
    >>> round(table.certificate.scale, 6), table.certificate.worst_cost <= table.certificate.budget
    (0.667222, True)
    """
    scaled, certificate = scale_and_prove(problem, gamma)
    return GammaTable(problem, scaled, certificate, None, {}, _PROVED)


def _optimality_from_json(data: Any, gamma: NoiseFunction, version: int) -> Optimality | None:  # noqa: ANN401 (JSON)
    """Read what is said about how good γ is; the expected error is computed again where the file holds the prior.

    The text of version 1 was rounded, and an own prior could have the name of another: where the error is not the one
    that the file claims, the text is a name only. Privacy does not depend on it.
    """
    if data is None:
        return None
    try:
        optimality = Optimality.from_json(data)
        known = optimality.held_out is None and not isinstance(optimality.prior, priors.StoredPrior)
        if version == 1 and known:
            linear = optimality.prior.has_closed_form
            known = linear and abs(gamma.expected_error(optimality.prior) - optimality.value) <= _VALUE_TOLERANCE
            prior = optimality.prior if known else priors.StoredPrior(str(data["prior"]), "")
            optimality = replace(optimality, prior=prior)
        value = gamma.expected_error(optimality.prior) if known else optimality.value
        holds = abs(optimality.value - value) <= _VALUE_TOLERANCE and optimality.bound <= optimality.value
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise TableError("optimality", f"it is malformed ({error})") from error
    if not holds:
        raise TableError("optimality", f"it claims an expected error of {optimality.value!r}, but γ has {value!r}")
    return optimality


def _field(data: dict[str, Any], name: str) -> Any:  # noqa: ANN401 (whatever a JSON file holds)
    if name not in data:
        raise TableError(name, "it is missing")
    return data[name]


def _checksum(content: dict[str, Any]) -> str:
    text = json.dumps(content, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()
