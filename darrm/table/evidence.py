"""How each kind of law is written, proved and described.

Laws of private voters are proved over the corners of their voters [D, Lemma 5.1], a law on histograms of non-private
voters over all moves of the votes that one person can influence.
"""

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from darrm.loss.amplification import get_rate
from darrm.loss.certificate import Certificate
from darrm.loss.profile import PrivacyProfile
from darrm.loss.renyi import RenyiCurve
from darrm.loss.vote_counts import curve_of_votes, profile_of_votes
from darrm.majority import certify
from darrm.majority.costs import privacy_profile, renyi_curve
from darrm.majority.noise_function import NoiseFunction
from darrm.numerics import Array
from darrm.open_set import open_rows
from darrm.open_set.open_law import OpenLaw
from darrm.plurality import proof
from darrm.plurality.plurality_law import PluralityLaw
from darrm.plurality.proof import are_few, curve_of_answers, curve_of_law, profile_of_answers, profile_of_law
from darrm.problem import Problem, is_open
from darrm.util import checks

VERSION = 1  # of the file formats

# profile and Rényi curve of a γ are part of every cost up to 301 voters, or as many rows as 301 voters have; for a
# monotone γ, which has fewer kinds of rows, as many as 1,001 voters have
_MAX_PROFILE_VOTERS = 301
_MAX_PROFILE_ROWS, _MAX_MONOTONE_ROWS = math.comb(_MAX_PROFILE_VOTERS + 2, 2), math.comb(1001 + 2, 2)

# the probability of every answer for every histogram of votes: a proposal, not yet proved
Law = NoiseFunction | PluralityLaw | OpenLaw
_Costs = tuple[PrivacyProfile | None, RenyiCurve | None]


class Kind(NamedTuple):
    format: str  # of a file
    field: str  # of the law in a file
    name: str  # of the release, with the number of voters and the classes


KINDS: dict[type, Kind] = {
    NoiseFunction: Kind("darrm gamma table", "gamma", "DaRRM over {} voters"),
    PluralityLaw: Kind("darrm plurality table", "weights", "plurality of {} voters, {}"),
    OpenLaw: Kind("darrm open table", "weights", "plurality of {} voters, {}"),
}
BY_FORMAT = {kind.format: law for law, kind in KINDS.items()}


def get_kind(law: object) -> Kind:
    if type(law) not in KINDS:
        advice = "say NoiseFunction(K, values), or PluralityLaw.from_probabilities(K, classes, probabilities)"
        checks.fail("gamma", law, "a NoiseFunction or a PluralityLaw", advice)
    return KINDS[type(law)]


def prove(problem: Problem, law: Law, scale: float) -> Certificate:
    """Prove a law; `CertificationError` if it is not private."""
    if isinstance(law, NoiseFunction):
        return certify.prove(problem, law, scale)
    return proof.prove(problem, law, scale) if isinstance(law, PluralityLaw) else open_rows.prove(problem, law, scale)


def repair(problem: Problem, law: Law) -> tuple[Law, Certificate]:
    if isinstance(law, NoiseFunction):
        return certify.scale_and_prove(problem, law)
    if isinstance(law, PluralityLaw):
        return proof.mix_and_prove(problem, law)
    return open_rows.scale_and_prove(problem, law)


def compute_profile(problem: Problem, law: Law) -> PrivacyProfile | None:
    """Compute the privacy profile of one query; None if it bounds nothing or is unknown."""
    if isinstance(law, NoiseFunction):
        return privacy_profile(problem, law)
    return _compute_costs_of_plurality(problem, law)[0] if isinstance(law, PluralityLaw) else None


def compute_curve(problem: Problem, law: Law) -> RenyiCurve | None:
    if isinstance(law, PluralityLaw):
        return _compute_costs_of_plurality(problem, law)[1]
    if not isinstance(law, NoiseFunction):
        return None
    if (sampling := problem.voters.sampled) is not None:
        if sampling.scheme != "poisson":  # a sample of fixed size has three laws, and no known curve
            return None
        return curve_of_votes(_compute_log_errors(law), law.K, problem.voters.reached, get_rate(sampling))
    curve = renyi_curve(problem.voters, law) if law.is_monotone else None
    return None if curve is None or (problem.voters.per_voter is not None and np.isinf(curve.values).all()) else curve


def is_cheap(problem: Problem, law: Law) -> bool:
    voters = problem.voters
    if isinstance(law, PluralityLaw):
        return voters.are_non_private or are_few(problem)
    rows = (voters.K - voters.reached + 1) * math.comb(voters.reached + 2, 2)
    max_rows = _MAX_MONOTONE_ROWS if law.is_monotone else _MAX_PROFILE_ROWS
    return isinstance(law, NoiseFunction) and (voters.K <= _MAX_PROFILE_VOTERS or rows <= max_rows)


def costs_of_non_private(law: Law, overlap: int) -> _Costs:
    if isinstance(law, NoiseFunction):
        log_errors = _compute_log_errors(law)
        return profile_of_votes(log_errors, law.K, overlap), curve_of_votes(log_errors, law.K, overlap)
    return _compute_plurality_costs(law, overlap) if isinstance(law, PluralityLaw) else (None, None)


def _compute_log_errors(gamma: NoiseFunction) -> Array:
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(0.5 * (1.0 - gamma.half)))


@lru_cache(maxsize=64)  # laws do not change, and every cost of one asks again
def _compute_plurality_costs(law: PluralityLaw, reached: int) -> _Costs:
    try:
        # a string that one person alone says may vanish, and then no order has a finite divergence
        curve = None if is_open(law.classes) else curve_of_law(law, reached)
        return profile_of_law(law, reached), curve
    except ValueError:
        return None, None


@lru_cache(maxsize=64)
def _compute_costs_of_plurality(problem: Problem, law: PluralityLaw) -> _Costs:
    if (sampling := problem.voters.sampled) is not None:
        has_curve = sampling.scheme == "poisson" and not is_open(law.classes)
        return None, curve_of_law(law, problem.voters.reached, get_rate(sampling)) if has_curve else None
    if problem.voters.are_non_private:
        return _compute_plurality_costs(law, problem.voters.reached)
    return profile_of_answers(problem, law), curve_of_answers(problem, law)
