"""A noisy maximum for given voters and classes: the release that a plan writes to a file.

A file names the mechanism, its voters and the number of classes. It contains no proof: the cost of a label is computed
from the mechanism whenever it is charged.

**Open-set answers.** The mechanism adds noise X to the count of every string that occurs, and answers with the largest
noisy count if it is at least T votes, else with "no answer". A person who moves t votes may be the only one with some
string, which the neighboring data set then lacks: the threshold has to hide it.

**Theorem.** Let v = t·max_{1 ≤ n ≤ t} Pr[n + X ≥ T]/n. For neighbors D and D' with label laws P and P' there are laws
N and N', whose divergences are at most those of the label of a noisy maximum for t moved votes
(`darrm.noisy_max.label_cost`), with P ≥ (1 − v)·N and P' ≥ (1 − v)·N'. So for Q adaptively chosen questions, with
V = 1 − Π(1 − v_i) ≤ Σ v_i,

    sup_S P(S) − e^ε·P'(S) ≤ V + (1 − V)·sup_S N(S) − e^ε·N'(S):

the sum of the v is part of δ, and the rest costs the same as a noisy maximum over listed classes.

*Proof.* Let A be the strings of D that D' does not contain. They have at most t votes together, so the noisy count of
one of them reaches T with probability at most Σ_{a ∈ A} Pr[n_a + X ≥ T] ≤ v. Otherwise the label is that of the strings
in both data sets, whose noises are independent of these: this is N, and P = (1 − w)·N + w·(anything), w ≤ v. The same
holds for D'. From N to N' some of t votes move between strings of both, or to or from one of them, at the same
threshold T. Given the other noisy counts the label depends on those of the strings that a vote moves, and the third
outcome of the theorem in `label_cost` is the best of the other strings and the threshold, a constant among the heights;
if a vote only leaves or arrives, the other string has height −∞. Answers of several questions multiply:
P ≥ Π(1 − v_i)·N, and P = (1 − V)·N + V·R for some R, so P − e^ε·P' ≤ V·R + (1 − V)·(N − e^ε·N'). ∎
(`tests/noisy_max/test_vanishing.py`)
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache, partial

import numpy as np
from numpy.typing import ArrayLike

from darrm.errors import TableError
from darrm.loss.privacy_cost import PrivacyCost
from darrm.loss.renyi import RenyiCurve
from darrm.noisy_max.label_supremum import TwoClasses
from darrm.noisy_max.mechanisms import AsymmetricMax, GNMax, LNMax, NoisyMax, noisy_answer
from darrm.noisy_max.selection import ExponentialMechanism, PermuteAndFlip
from darrm.numerics.bisection import last_allowed_integer
from darrm.numerics.exact_sampling import uniform_below
from darrm.numerics.integer_noise import AsymmetricNoise, IntegerNoise
from darrm.open_set.open_law import draw_columns, to_votes
from darrm.privacy import PrivacyParams, exact_number
from darrm.problem import Voters, check_classes, classes_to_json, is_open
from darrm.util import checks
from darrm.util.files import Document, Json, compute_checksum, errors_about, read_document, write_document
from darrm.votes import Labels, Votes

FORMAT = "darrm release"
VERSION = 1
_SUM_ERROR = 1e-33  # added: the sums lack up to e^{−76}
MOST_THRESHOLD = 2**40
_MAX_DEVIATION = 20_000.0  # votes: the tails of wider noise take gigabytes, and its thresholds are out of reach
_SMALLEST_DELTA = 1e-10  # δ of an answer, even if the threshold needs less
Mechanism = GNMax | LNMax | ExponentialMechanism | PermuteAndFlip | AsymmetricMax
_KINDS: dict[str, tuple[type[Mechanism], tuple[str, ...]]] = {
    "GNMax": (GNMax, ("sigma",)),
    "LNMax": (LNMax, ("gamma",)),
    "ExponentialMechanism": (ExponentialMechanism, ("epsilon",)),
    "PermuteAndFlip": (PermuteAndFlip, ("epsilon",)),
    "AsymmetricMax": (AsymmetricMax, ("right", "left", "right_power", "left_power")),
}


@dataclass(frozen=True)
class NoisyMaximum:
    """A mechanism that releases labels of given voters on a given number of classes.

    `ValueError` if one person influences more voters than the mechanism is private for, if its noise is continuous, or
    if a threshold is given for listed classes or missing for open-set answers.

    >>> teachers = Voters(50, PrivacyParams("inf"), overlap=1)
    >>> aggregator = NoisyMaximum(GNMax(40.0), teachers, classes=3)
    >>> NoisyMaximum.from_json(aggregator.to_json()) == aggregator
    True
    >>> aggregator.release(Votes.from_counts([[100, 150, 0]]))
    Traceback (most recent call last):
    ...
    ValueError: votes must be of K = 50 voters, got 250 votes on every query: a row of counts sums to K
    """

    mechanism: Mechanism
    voters: Voters
    classes: int  # C ≥ 2, or "open"
    threshold: int | None = None  # for open-set answers: the noisy votes that an answer needs, at least 1

    def __post_init__(self) -> None:
        checks.instance(Voters, voters=self.voters, advice="write Voters(K, each)")
        object.__setattr__(self, "classes", check_classes(self.classes, self.voters))
        self._check_threshold()
        if type(self.mechanism).__name__ not in _KINDS:
            checks.fail("mechanism", type(self.mechanism).__name__, f"one of {', '.join(_KINDS)}")
        if self.mechanism.reached < self.voters.reached:
            advice = "the votes that one person moves"
            checks.fail("mechanism.reached", self.mechanism.reached, f"at least {self.voters.reached}", advice)
        if getattr(self.mechanism, "noise", "discrete") == "continuous":
            checks.fail("mechanism.noise", "continuous", "discrete", "continuous noise is for experiments")

    def _check_threshold(self) -> None:
        if not is_open(self.classes):
            if self.threshold is not None:
                checks.fail("threshold", self.threshold, "None", "it is for open-set answers, classes='open'")
            return
        advice = "the noisy votes that an answer needs; darrm.plan finds one"
        checks.integer_at_least(1, most=MOST_THRESHOLD, threshold=self.threshold, advice=advice)
        object.__setattr__(self, "threshold", int(self.threshold or 0))
        if not isinstance(self.mechanism, NoisyMax):
            kind = type(self.mechanism).__name__
            checks.fail("mechanism", kind, "GNMax, LNMax or AsymmetricMax for open-set answers")
        check_width(self.mechanism.law)
        if self.voters.sampled is not None:
            checks.fail("voters", checks.Text("resampled"), "the same for every open question", "leave --sampled out")

    @property
    def guarantee(self) -> PrivacyParams | RenyiCurve:
        """The guarantee of one answer; for open-set answers at about twice δ of the threshold."""
        if self.threshold is None:
            return self.mechanism.guarantee
        cost = self.privacy_cost()
        remaining_delta = max(_SMALLEST_DELTA, min(cost.vanishing, (1.0 - cost.vanishing) / 2.0))
        if cost.vanishing + remaining_delta >= 1.0:
            checks.fail("threshold", self.threshold, "larger", "it reveals answers that only one person gives")
        epsilons = [] if cost.renyi is None else [cost.renyi.convert(remaining_delta).epsilon]
        epsilons += [] if cost.profile is None else [cost.profile.epsilon_at(remaining_delta)]
        return PrivacyParams(min(epsilons), cost.vanishing + remaining_delta)

    @cached_property
    def digest(self) -> str:
        """The SHA-256 of its file, in hexadecimal."""
        return compute_checksum(self.to_json())

    def privacy_cost(self, queries: int = 1) -> PrivacyCost:
        """Return the cost of ``queries`` answers; of private models also that for non-private voters, which compose."""
        cost = self.mechanism.subsampled_cost(self.voters, self.classes, queries)
        name = f"{cost.what} over {self.voters.K} voters"
        cost = replace(cost, what=name, voters=self.voters, table=self.digest)
        if self.threshold is not None and isinstance(self.mechanism, NoisyMax):
            vanishing_probability = bound_vanishing(self.mechanism.law, self.threshold, moved=self.mechanism.reached)
            name = f"{name}, open answers from {self.threshold} noisy votes on"
            return replace(cost, what=name, guarantee=None, vanishing=vanishing_probability)
        if not self.voters.are_private_models:
            return cost
        non_private = Voters(self.voters.K, PrivacyParams("inf"), overlap=self.voters.overlap)
        return replace(cost, for_non_private_voters=(replace(cost.kind, voters=non_private, non_composable=False),))

    def release(self, votes: Votes | ArrayLike, *, rng: np.random.Generator | None = None) -> Labels:
        """Release one class for each query of K voters; missing votes, if allowed, are imputed at random."""
        votes = to_votes(votes, self.classes).require_voters(self.voters.K)
        if self.threshold is not None and isinstance(self.mechanism, NoisyMax):
            draw_answers = partial(noisy_answer, threshold=self.threshold, draw=self.mechanism.draw(rng))
            return votes.name_labels(draw_columns(votes, draw_answers, uniform_below(rng)))
        return self.mechanism.release(votes.impute_missing(rng=rng), rng=rng)

    def to_json(self) -> Document:
        """Return the data of ``darrm/schemas/release.json``."""
        kind, source = type(self.mechanism).__name__, getattr(self.mechanism, "noise", None)
        source = source if isinstance(source, AsymmetricNoise) else self.mechanism
        parameters = {name: repr(float(getattr(source, name))) for name in _KINDS[kind][1]}
        return {
            "format": FORMAT,
            "version": VERSION,
            "voters": self.voters.to_json(),
            "classes": classes_to_json(self.classes),
            **({} if self.threshold is None else {"threshold": self.threshold}),
            "mechanism": {"kind": kind, **parameters, "reached": self.mechanism.reached},
        }

    @classmethod
    def from_json(cls, data: Json) -> NoisyMaximum:
        """Read the data of `to_json`; `TableError` if it is malformed."""
        with errors_about("file"):
            fields = data["mechanism"]
            kind, names = _KINDS[fields["kind"]]
            values = {name: _read_parameter(fields, name) for name in names}
            arguments = {"noise": AsymmetricNoise(**values)} if kind is AsymmetricMax else values
            mechanism = kind(reached=fields["reached"], **arguments)
            maximum = cls(mechanism, Voters.from_json(data["voters"]), data["classes"], data.get("threshold"))
            # unknown fields, other types and numbers beyond float precision would change when written again
            if maximum.to_json() != data:
                raise TableError("file", f"it is no {FORMAT!r} of this version")
        return maximum

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write it to a file in one step."""
        write_document(path, self.to_json())

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> NoisyMaximum:
        """Read it from a file; `TableError` or `OSError` if that fails."""
        return cls.from_json(read_document(path))


def _read_parameter(fields: Json, name: str) -> float:
    with errors_about(name):
        value = float(exact_number(name, fields[name]))
        checks.positive(parameter=value)
    return value


def bound_vanishing(noise: IntegerNoise, threshold: int, *, moved: int = 1) -> float:
    """Bound the probability that the label is a string that the neighbor lacks."""
    checks.integer_at_least(1, threshold=threshold, moved=moved)
    check_width(noise)
    laws = _tabulate_noise(noise)
    votes = np.arange(1, moved + 1)
    per_vote = np.exp(laws.log_F(votes - threshold) + laws.rounding) / votes
    return min(1.0, moved * (float(np.max(per_vote)) * (1.0 + 1e-12) + _SUM_ERROR))


def check_width(noise: IntegerNoise) -> None:
    if noise.deviation > _MAX_DEVIATION:
        checks.fail("noise", noise, f"of a deviation of at most {_MAX_DEVIATION:g} votes for open-set answers")


def find_threshold(noise: IntegerNoise, allowed: float, *, moved: int = 1) -> int:
    """Find the least threshold with `bound_vanishing` at most ``allowed``; `ValueError` if there is none.

    >>> from darrm.numerics.integer_noise import DiscreteGaussian
    >>> find_threshold(DiscreteGaussian(25.0), 5e-8)
    135
    """
    if not allowed > 2.0 * moved * _SUM_ERROR:
        checks.fail("allowed", allowed, f"above {2.0 * moved * _SUM_ERROR:g}", "a threshold needs a delta")

    def is_hidden(threshold: int) -> bool:
        return bound_vanishing(noise, threshold, moved=moved) <= allowed

    return last_allowed_integer(is_hidden, inside=MOST_THRESHOLD, outside=0)


_tabulate_noise = lru_cache(maxsize=64)(TwoClasses)
