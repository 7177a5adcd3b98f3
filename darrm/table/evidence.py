"""How each kind of law is written, proved and described: a class a kind.

A γ is proved over the corners of its voters [D, Lemma 5.1], and so is a law on histograms of private voters. A law of
non-private voters is proved over all moves of the votes that one person can influence.
"""

import math
from abc import ABC, abstractmethod
from functools import lru_cache
from typing import Any

import numpy as np

from darrm.loss.amplification import rate_of
from darrm.loss.certificate import Certificate
from darrm.loss.profile import PrivacyProfile
from darrm.loss.renyi import RenyiCurve
from darrm.loss.vote_counts import curve_of_votes, profile_of_votes
from darrm.majority import certify
from darrm.majority.noise_function import NoiseFunction
from darrm.majority.profile import privacy_profile
from darrm.majority.renyi import renyi_curve
from darrm.numerics import Array
from darrm.open_set import open_rows
from darrm.open_set.open_law import OpenLaw
from darrm.plurality import proof
from darrm.plurality.costs import are_few, curve_of_answers, curve_of_law, profile_of_answers, profile_of_law
from darrm.plurality.plurality_law import PluralityLaw
from darrm.problem import Problem, classes_to_json, is_open
from darrm.subsampling import Subsampling
from darrm.table.optimality import SHARE_RIGHT
from darrm.util import checks
from darrm.util.files import Json

VERSION = 1  # of the file formats

# profile and Rényi curve of a γ are computed for every cost up to 301 voters, or as many rows of neighbors; for a
# monotone γ, which has fewer kinds of rows, up to the rows of 1,001 voters
_PROFILE_UP_TO = 301
_ROWS_UP_TO, _MONOTONE_ROWS_UP_TO = math.comb(_PROFILE_UP_TO + 2, 2), math.comb(1001 + 2, 2)

_AnyLaw = Any  # one of the form that the evidence is about
_Costs = tuple[PrivacyProfile | None, RenyiCurve | None]


def _has_curve(sampling: Subsampling) -> bool:
    """Whether a Rényi curve of people who are drawn so is known: a sample of fixed size has three laws."""
    return sampling.scheme == "poisson"


def _log_lies(gamma: NoiseFunction) -> Array:
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(0.5 * (1.0 - gamma.half)))


@lru_cache(maxsize=64)  # laws do not change, and every charge of one asks again
def _costs_of_plain(law: PluralityLaw, reached: int) -> _Costs:
    try:
        # a string that one person alone says may vanish, and then no order has a finite divergence
        curve = None if is_open(law.classes) else curve_of_law(law, reached)
        return profile_of_law(law, reached), curve
    except ValueError:
        return None, None


@lru_cache(maxsize=64)
def _costs_of_law(problem: Problem, law: PluralityLaw) -> _Costs:
    if (sampling := problem.voters.sampled) is not None:
        known = _has_curve(sampling) and not is_open(law.classes)
        return None, curve_of_law(law, problem.voters.reached, rate_of(sampling)) if known else None
    if problem.voters.are_non_private:
        return _costs_of_plain(law, problem.voters.reached)
    return profile_of_answers(problem, law), curve_of_answers(problem, law)


class Evidence(ABC):
    """How laws of one kind are written, proved and described."""

    format: str  # of a file
    field: str  # of the law in a file
    name: str  # of the release, with the number of voters and the classes

    def problem_to_json(self, problem: Problem) -> dict[str, Json]:
        """Write the problem as the digest has it."""
        return problem.to_json()

    @abstractmethod
    def law_from_json(self, data: Json, problem: Problem) -> _AnyLaw:
        """Read the law from the output of its ``to_json``."""

    def claims(self, optimality: dict[str, Json]) -> dict[str, Json]:
        """Complete the claims of a file about optimality."""
        return optimality

    @abstractmethod
    def prove(self, problem: Problem, law: _AnyLaw, scale: float) -> Certificate:
        """Prove a law private; `CertificationError` if it is not."""

    @abstractmethod
    def repair(self, problem: Problem, law: _AnyLaw) -> tuple[_AnyLaw, Certificate]:
        """Mix a law with the least random guessing that makes it private."""

    def profile(self, problem: Problem, law: _AnyLaw) -> PrivacyProfile | None:  # noqa: ARG002 (by default unknown)
        """Compute the exact privacy profile of one query; None if it bounds nothing."""
        return None

    def renyi(self, problem: Problem, law: _AnyLaw) -> RenyiCurve | None:  # noqa: ARG002 (by default unknown)
        """Compute the exact Rényi curve of one query; None if it is unknown."""
        return None

    def is_cheap(self, problem: Problem, law: _AnyLaw) -> bool:  # noqa: ARG002 (by default unknown)
        """Whether `profile` and `renyi` are computed for every charge."""
        return False

    def of_plain(self, law: _AnyLaw, overlap: int) -> _Costs:  # noqa: ARG002 (by default unknown)
        """Compute profile and Rényi curve for non-private voters."""
        return None, None


class _GammaEvidence(Evidence):
    format, field, name = "darrm gamma table", "gamma", "DaRRM over {} voters"

    def law_from_json(self, data: Json, problem: Problem) -> NoiseFunction:
        return NoiseFunction.from_json(problem.voters.K, data)

    def prove(self, problem: Problem, law: NoiseFunction, scale: float) -> Certificate:
        return certify.prove(problem, law, scale)

    def repair(self, problem: Problem, law: NoiseFunction) -> tuple[NoiseFunction, Certificate]:
        return certify.scale_and_prove(problem, law)

    def profile(self, problem: Problem, law: NoiseFunction) -> PrivacyProfile | None:
        return privacy_profile(problem, law)

    def renyi(self, problem: Problem, law: NoiseFunction) -> RenyiCurve | None:
        if (sampling := problem.voters.sampled) is not None:
            lies, known = _log_lies(law), _has_curve(sampling)
            return curve_of_votes(lies, law.K, problem.voters.reached, rate_of(sampling)) if known else None
        curve = renyi_curve(problem.voters, law) if law.is_monotone else None
        return None if curve is None or (problem.voters.own is not None and np.isinf(curve.values).all()) else curve

    def is_cheap(self, problem: Problem, law: NoiseFunction) -> bool:
        voters = problem.voters
        rows = (voters.K - voters.reached + 1) * math.comb(voters.reached + 2, 2)
        return voters.K <= _PROFILE_UP_TO or rows <= (_MONOTONE_ROWS_UP_TO if law.is_monotone else _ROWS_UP_TO)

    def of_plain(self, law: NoiseFunction, overlap: int) -> _Costs:
        log_lies = _log_lies(law)
        return profile_of_votes(log_lies, law.K, overlap), curve_of_votes(log_lies, law.K, overlap)


class _HistogramEvidence(Evidence):
    field, name = "weights", "plurality of {} voters, {}"

    def problem_to_json(self, problem: Problem) -> dict[str, Json]:
        return {**problem.to_json(), "classes": classes_to_json(problem.classes)}  # two classes are written too

    def claims(self, optimality: dict[str, Json]) -> dict[str, Json]:
        return {**optimality, "shape": "free", "objective": SHARE_RIGHT, "held_out": None}


class _PluralityEvidence(_HistogramEvidence):
    format = "darrm plurality table"

    def law_from_json(self, data: Json, problem: Problem) -> PluralityLaw:
        return PluralityLaw.from_json(problem.voters.K, problem.classes, data)

    def prove(self, problem: Problem, law: PluralityLaw, scale: float) -> Certificate:
        return proof.prove(problem, law, scale)

    def repair(self, problem: Problem, law: PluralityLaw) -> tuple[PluralityLaw, Certificate]:
        return proof.mix_and_prove(problem, law)

    def profile(self, problem: Problem, law: PluralityLaw) -> PrivacyProfile | None:
        return _costs_of_law(problem, law)[0]

    def renyi(self, problem: Problem, law: PluralityLaw) -> RenyiCurve | None:
        return _costs_of_law(problem, law)[1]

    def is_cheap(self, problem: Problem, law: PluralityLaw) -> bool:  # noqa: ARG002 (every law of the problem)
        return problem.voters.are_non_private or are_few(problem)

    def of_plain(self, law: PluralityLaw, overlap: int) -> _Costs:
        return _costs_of_plain(law, overlap)


class _OpenSetEvidence(_HistogramEvidence):
    format = "darrm open table"

    def law_from_json(self, data: Json, problem: Problem) -> OpenLaw:
        return OpenLaw.from_json(problem.voters.K, data)

    def prove(self, problem: Problem, law: OpenLaw, scale: float) -> Certificate:
        return open_rows.prove(problem, law, scale)

    def repair(self, problem: Problem, law: OpenLaw) -> tuple[OpenLaw, Certificate]:
        return open_rows.scale_and_prove(problem, law)


CORNERS, MOVES, OPEN_ROWS = _GammaEvidence(), _PluralityEvidence(), _OpenSetEvidence()
BY_FORMAT: dict[str, Evidence] = {evidence.format: evidence for evidence in (CORNERS, MOVES, OPEN_ROWS)}
_BY_LAW: dict[type, Evidence] = {NoiseFunction: CORNERS, PluralityLaw: MOVES, OpenLaw: OPEN_ROWS}


def evidence_of(law: object) -> Evidence:
    """Return how a law is proved; `ValueError` if it is none."""
    if type(law) not in _BY_LAW:
        advice = "say NoiseFunction(K, values), or PluralityLaw.of_probabilities(K, classes, probabilities)"
        checks.fail("gamma", law, "a NoiseFunction or a PluralityLaw", advice)
    return _BY_LAW[type(law)]
