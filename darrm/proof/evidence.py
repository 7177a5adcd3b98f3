"""What proves a law, and what follows from it: decided once, by what the law is a law of.

A γ is proved over the corners of its voters [D, Lemma 5.1], whatever these promise, and so is a law on histograms of
private voters; one of plain voters over all moves of the votes that one person reaches. `Table` and whoever describes
one ask `evidence_of`, and know nothing of either.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np

from darrm.errors import checks
from darrm.laws.noise_function import NoiseFunction
from darrm.laws.open_law import OpenLaw
from darrm.laws.plurality_law import PluralityLaw
from darrm.losses.amplification import rate_of
from darrm.losses.profile import PrivacyProfile
from darrm.losses.renyi import RenyiCurve
from darrm.losses.vote_counts import curve_of_votes, profile_of_votes
from darrm.probability import Array
from darrm.problem import Problem, classes_to_json, is_open
from darrm.proof import certify, open_rows, pluralities
from darrm.proof.certificate import Certificate
from darrm.proof.histogram_costs import curve_of_law, profile_of_law
from darrm.proof.optimality import SHARE_RIGHT
from darrm.proof.profile import privacy_profile
from darrm.proof.renyi import renyi_curve
from darrm.proof.voter_costs import are_few, curve_of_answers, profile_of_answers
from darrm.sampling import Sampling
from darrm.system.files import Json

# exact descriptions of a γ are computed for every charge up to so many voters, or so many rows of neighbors: those of
# 301 voters, and those of 1,001 where γ is monotone and has no other rows
_PROFILE_UP_TO = 301
_ROWS_UP_TO, _MONOTONE_ROWS_UP_TO = math.comb(_PROFILE_UP_TO + 2, 2), math.comb(1001 + 2, 2)

_AnyLaw = Any  # one of the form that the evidence is about
_Costs = tuple[PrivacyProfile | None, RenyiCurve | None]


@dataclass(frozen=True)
class Evidence:
    """How laws of one form are written, proved and described."""

    name: str  # of the release, with the number of voters and what they choose from
    format: str
    versions: tuple[int, ...]  # that are read; the last one is written
    field: str  # of the law in a file
    problem_to_json: Callable[[Problem], dict[str, Json]]  # as the digest has it
    law_from_json: Callable[[Json, Problem], _AnyLaw]
    said: dict[str, Json]  # of the optimality, beside what a file says
    prove: Callable[[Problem, _AnyLaw, float], Certificate]  # with the scale; `CertificationError` if it does not hold
    repair: Callable[[Problem, _AnyLaw], tuple[_AnyLaw, Certificate]]  # mixed with as few random answers as it takes
    profile: Callable[[Problem, _AnyLaw], PrivacyProfile | None]  # of one query, exact; None where it bounds nothing
    renyi: Callable[[Problem, _AnyLaw], RenyiCurve | None]  # of one query, exact; None where it is not known
    is_cheap: Callable[[Problem, _AnyLaw], bool]  # whether these two are computed for every charge
    of_plain: Callable[[_AnyLaw, int], _Costs]  # both, for plain voters of whom a person reaches so many


def _has_curve(sampling: Sampling) -> bool:
    """Whether a Rényi curve of people who are drawn so is known: a sample of fixed size has three laws."""
    return sampling.scheme == "poisson"


def _curve_of_gamma(problem: Problem, gamma: NoiseFunction) -> RenyiCurve | None:
    if (sampling := problem.voters.sampled) is not None:
        lies, known = _log_lies(gamma), _has_curve(sampling)
        return curve_of_votes(lies, gamma.K, problem.voters.reached, rate_of(sampling)) if known else None
    curve = renyi_curve(problem.voters, gamma) if gamma.is_monotone else None
    return None if curve is None or (problem.voters.own is not None and np.isinf(curve.values).all()) else curve


def _is_cheap(problem: Problem, gamma: NoiseFunction) -> bool:
    voters = problem.voters
    rows = (voters.K - voters.reached + 1) * math.comb(voters.reached + 2, 2)
    return voters.K <= _PROFILE_UP_TO or rows <= (_MONOTONE_ROWS_UP_TO if gamma.is_monotone else _ROWS_UP_TO)


def _log_lies(gamma: NoiseFunction) -> Array:
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(0.5 * (1.0 - gamma.half)))


def _costs_of_plain_gamma(gamma: NoiseFunction, reached: int) -> _Costs:
    log_lies = _log_lies(gamma)
    return profile_of_votes(log_lies, gamma.K, reached), curve_of_votes(log_lies, gamma.K, reached)


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
    if problem.voters.are_plain:
        return _costs_of_plain(law, problem.voters.reached)
    return profile_of_answers(problem, law), curve_of_answers(problem, law)


CORNERS = Evidence(
    name="DaRRM over {} voters",
    format="darrm gamma table",
    versions=(1, 2, 3),  # version 1 had the prior as text, neither of the first two the multipliers
    field="gamma",
    problem_to_json=Problem.to_json,
    law_from_json=lambda data, problem: NoiseFunction.from_json(problem.voters.K, data),
    said={},
    prove=certify.prove,
    repair=certify.scale_and_prove,
    profile=privacy_profile,
    renyi=_curve_of_gamma,
    is_cheap=_is_cheap,
    of_plain=_costs_of_plain_gamma,
)
MOVES = Evidence(
    name="plurality of {} voters, {}",
    format="darrm plurality table",
    versions=(1,),
    field="weights",
    # two classes are named, too, as in files that were written when a plurality was a problem of its own
    problem_to_json=lambda problem: {**problem.to_json(), "classes": classes_to_json(problem.classes)},
    law_from_json=lambda data, problem: PluralityLaw.from_json(problem.voters.K, problem.classes, data),
    said={"shape": "free", "objective": SHARE_RIGHT, "held_out": None},
    prove=pluralities.prove,
    repair=pluralities.mix_and_prove,
    profile=lambda problem, law: _costs_of_law(problem, law)[0],
    renyi=lambda problem, law: _costs_of_law(problem, law)[1],
    is_cheap=lambda problem, _law: problem.voters.are_plain or are_few(problem),
    of_plain=_costs_of_plain,
)
OPEN_ROWS = replace(
    MOVES,
    format="darrm open table",
    law_from_json=lambda data, problem: OpenLaw.from_json(problem.voters.K, data),
    prove=open_rows.prove,
    repair=open_rows.scale_and_prove,
    profile=lambda _problem, _law: None,
    renyi=lambda _problem, _law: None,
    is_cheap=lambda _problem, _law: False,
    of_plain=lambda _law, _reached: (None, None),
)
BY_FORMAT = {evidence.format: evidence for evidence in (CORNERS, MOVES, OPEN_ROWS)}
_BY_LAW: dict[type, Evidence] = {NoiseFunction: CORNERS, PluralityLaw: MOVES, OpenLaw: OPEN_ROWS}


def evidence_of(law: object) -> Evidence:
    """Return how a law is proved; `ValueError` if it is none."""
    if type(law) not in _BY_LAW:
        advice = "say NoiseFunction(K, values), or PluralityLaw.of_probabilities(K, classes, probabilities)"
        checks.fail("gamma", law, "a NoiseFunction or a PluralityLaw", advice)
    return _BY_LAW[type(law)]
