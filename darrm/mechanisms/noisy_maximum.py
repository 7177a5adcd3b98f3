"""A noisy maximum and whose votes it is for: what a plan writes to a file, and what releases from it.

The mechanisms of this room know neither K nor C: what a label costs does not depend on them. It depends on how many
votes one person moves, and whoever calibrated the noise knew which voters that was. So a file of a release names the
mechanism, its voters and the number of classes, and votes of others are refused. It is no proof and needs none: what a
label costs is computed from the mechanism when it is charged.

Where answers are open it looks at the strings that were said, and answers where the largest noisy count reaches a
threshold: `darrm.losses.vanishing` has what that costs besides.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, partial

import numpy as np

from darrm.errors import TableError, checks
from darrm.losses.charges import Charge
from darrm.losses.renyi import RenyiCurve
from darrm.losses.vanishing import MOST_THRESHOLD, check_width, vanishing
from darrm.mechanisms.noisy_max import GNMax, LNMax, NoisyMax, ShapedMax, noisy_answer
from darrm.mechanisms.open_lines import columns_of, of_classes
from darrm.mechanisms.selection import ExponentialMechanism, PermuteAndFlip
from darrm.privacy import PrivacyParams, exact_number
from darrm.probability.exact_sampling import uniform_below
from darrm.probability.integer_noise import ShapedNoise
from darrm.problem import Voters, checked_classes, classes_to_json, is_open
from darrm.proof.stored import checksum_of, read_document, write_document
from darrm.system.files import Document, Json
from darrm.votes import Labels, Votes

FORMAT = "darrm release"
VERSION = 1
_LEAST_DELTA = 1e-10  # of an answer, for what a threshold hides better than that
Mechanism = GNMax | LNMax | ExponentialMechanism | PermuteAndFlip | ShapedMax
_KINDS: dict[str, tuple[Callable[..., Mechanism], tuple[str, ...]]] = {
    "GNMax": (GNMax, ("sigma",)),
    "LNMax": (LNMax, ("gamma",)),
    "ExponentialMechanism": (ExponentialMechanism, ("epsilon",)),
    "PermuteAndFlip": (PermuteAndFlip, ("epsilon",)),
    "ShapedMax": (
        lambda right, left, right_power, left_power, reached: ShapedMax(
            ShapedNoise(right, left, right_power, left_power), reached
        ),
        ("right", "left", "right_power", "left_power"),
    ),
}


@dataclass(frozen=True)
class NoisyMaximum:
    """A mechanism that answers the questions of certain voters about so many classes, and of no others.

    Parameters
    ----------
    mechanism
        What answers: its ``reached`` is at least that of the voters, and its noise is discrete.
    voters
        Whose votes it is for.
    classes
        C ≥ 2, how many answers they choose from, or ``"open"``.
    threshold
        Of open answers: the noisy votes without which there is no answer, at least 1.

    Raises
    ------
    ValueError
        If one person reaches more of the voters than the mechanism is private for, or a threshold stands where classes
        are listed, or none where they are not.

    Examples
    --------
    >>> teachers = Voters(50, PrivacyParams("inf"), overlap=1)
    >>> aggregator = NoisyMaximum(GNMax(40.0), teachers, classes=3)
    >>> NoisyMaximum.from_json(aggregator.to_json()) == aggregator
    True
    >>> aggregator.release(Votes.of_counts([[100, 150, 0]]))
    Traceback (most recent call last):
    ...
    ValueError: votes must be of K = 50 voters, got 250 votes on every query: a row of counts sums to K
    """

    mechanism: Mechanism
    voters: Voters
    classes: int
    threshold: int | None = None

    def __post_init__(self) -> None:
        checks.instance(Voters, voters=self.voters, advice="say Voters(K, each)")
        object.__setattr__(self, "classes", checked_classes(self.classes, self.voters))
        self._check_threshold()
        if type(self.mechanism).__name__ not in _KINDS:
            checks.fail("mechanism", type(self.mechanism).__name__, f"one of {', '.join(_KINDS)}")
        if self.mechanism.reached < self.voters.reached:
            advice = "one person moves so many votes"
            checks.fail("mechanism.reached", self.mechanism.reached, f"at least {self.voters.reached}", advice)
        if getattr(self.mechanism, "noise", "discrete") == "continuous":
            checks.fail("mechanism.noise", "continuous", "discrete", "continuous noise is for experiments")

    def _check_threshold(self) -> None:
        if not is_open(self.classes):
            if self.threshold is not None:
                checks.fail("threshold", self.threshold, "None", "it is for open answers, classes='open'")
            return
        advice = "noisy votes without which there is no answer; darrm.plan finds one"
        checks.integer_at_least(1, most=MOST_THRESHOLD, threshold=self.threshold, advice=advice)
        object.__setattr__(self, "threshold", int(self.threshold or 0))
        if self._noisy is None:
            checks.fail("mechanism", type(self.mechanism).__name__, "GNMax, LNMax or ShapedMax where answers are open")
        check_width(self._noisy[0].law)
        if self.voters.sampled is not None:
            checks.fail("voters", checks.Found("drawn anew"), "the same for every open question", "leave --sampled out")

    @property
    def _noisy(self) -> tuple[NoisyMax, int] | None:
        """What answers open questions, and its threshold."""
        if self.threshold is None or not isinstance(self.mechanism, NoisyMax):
            return None
        return self.mechanism, self.threshold

    @property
    def guarantee(self) -> PrivacyParams | RenyiCurve:
        """What one answer satisfies, whatever the votes: of open answers at about twice the δ of the threshold."""
        if self.threshold is None:
            return self.mechanism.guarantee
        charge = self.charge()
        rest = max(_LEAST_DELTA, min(charge.vanishing, (1.0 - charge.vanishing) / 2.0))
        if charge.vanishing + rest >= 1.0:
            checks.fail("threshold", self.threshold, "larger", "what one person alone says is told, whatever delta is")
        ways = [] if charge.renyi is None else [charge.renyi.convert(rest).epsilon]
        ways += [] if charge.profile is None else [charge.profile.epsilon_at(rest)]
        return PrivacyParams(min(ways), charge.vanishing + rest)

    @cached_property
    def digest(self) -> str:
        """The SHA-256, in hexadecimal, of what its file holds: what ledgers and auditors know it by."""
        return checksum_of(self.to_json())

    def charge(self, queries: int = 1) -> Charge:
        """Describe what ``queries`` answers cost, whatever the votes.

        For private models it says what it costs for voters about whom nothing is promised, too: the accountant knows
        what follows for several answers.
        """
        charge = self.mechanism.charge_of_drawn(self.voters, self.classes, queries)
        what = f"{charge.what} over {self.voters.K} voters"
        charge = replace(charge, what=what, voters=self.voters, table=self.digest)
        if self._noisy is not None:
            mechanism, threshold = self._noisy
            lost = vanishing(mechanism.law, threshold, moved=mechanism.reached)
            what = f"{what}, open answers from {threshold} noisy votes on"
            return replace(charge, what=what, guarantee=None, vanishing=lost)
        if not self.voters.are_private_models:
            return charge
        plain = Voters(self.voters.K, PrivacyParams("inf"), overlap=self.voters.overlap)
        return replace(charge, for_plain_voters=(replace(charge.kind, voters=plain, alone=False),))

    def release(self, votes: Votes, *, rng: np.random.Generator | None = None) -> Labels:
        """Release one class for each query, as `Aggregator.release`; the votes are those of K voters on C classes.

        Votes may be missing, where that was allowed: each release tosses coins, or dice, of its own for these.
        """
        given = of_classes(votes, self.classes).of_voters(self.voters.K)
        if self._noisy is not None:
            mechanism, threshold = self._noisy
            places = partial(noisy_answer, threshold=threshold, draw=mechanism.draw(rng))
            return given.labeled(columns_of(given, places, uniform_below(rng)))
        return self.mechanism.release(given.completed(rng=rng), rng=rng)

    def to_json(self) -> Document:
        """Write it as plain data, the parameter as the decimal that it is; ``darrm/schemas/release.json``."""
        kind, holder = type(self.mechanism).__name__, getattr(self.mechanism, "noise", None)
        holder = holder if isinstance(holder, ShapedNoise) else self.mechanism
        parameters = {name: repr(float(getattr(holder, name))) for name in _KINDS[kind][1]}
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
        """Read what `to_json` wrote; `TableError` if a field is missing, malformed, or unknown."""
        field = "file"
        try:
            stored, given = data["mechanism"], Voters.from_json(data["voters"])
            kind, names = _KINDS[stored["kind"]]
            values = []
            for field in names:
                values.append(float(exact_number(field, stored[field])))
                checks.positive(parameter=values[-1])
            field = "file"
            mechanism = cls(kind(*values, reached=stored["reached"]), given, data["classes"], data.get("threshold"))
            # unknown fields, other types and numbers that no float keeps are not what would be written again
            if mechanism.to_json() != data:
                raise TableError(field, f"it is not what this release writes for a {FORMAT!r}")
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
            raise TableError(field, f"it is malformed ({type(error).__name__}: {error})") from error
        return mechanism

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write it to a file, replacing an old one in one step."""
        write_document(path, self.to_json())

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> NoisyMaximum:
        """Read it from a file; `TableError` if that holds none, `OSError` if it cannot be read."""
        return cls.from_json(read_document(path))
