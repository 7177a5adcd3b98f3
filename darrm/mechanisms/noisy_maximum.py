"""A noisy maximum and whose votes it is for: what a plan writes to a file, and what releases from it.

The mechanisms of this room know neither K nor C: what a label costs does not depend on them. It depends on how many
votes one person moves, and whoever calibrated the noise knew which voters that was. So a file of a release names the
mechanism, its voters and the number of classes, and votes of others are refused. It is no proof and needs none: what a
label costs is computed from the mechanism when it is charged.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from darrm.errors import TableError, checks
from darrm.losses.charges import Charge
from darrm.losses.renyi import RenyiCurve
from darrm.mechanisms.noisy_max import GNMax, LNMax, ShapedMax
from darrm.mechanisms.selection import ExponentialMechanism, PermuteAndFlip
from darrm.privacy import PrivacyParams, exact_number
from darrm.probability.integer_noise import ShapedNoise
from darrm.problem import MOST_CLASSES, Voters
from darrm.proof.stored import checksum_of, read_document, write_document
from darrm.system.files import Document, Json
from darrm.votes import Labels, Votes, require_votes

FORMAT = "darrm release"
VERSION = 1
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
        C ≥ 2, how many answers they choose from.

    Raises
    ------
    ValueError
        If one person reaches more of the voters than the mechanism is private for.

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

    def __post_init__(self) -> None:
        checks.instance(Voters, voters=self.voters, advice="say Voters(K, each)")
        checks.integer_at_least(2, most=MOST_CLASSES, classes=self.classes, advice="how many answers there are")
        if type(self.mechanism).__name__ not in _KINDS:
            checks.fail("mechanism", type(self.mechanism).__name__, f"one of {', '.join(_KINDS)}")
        if self.mechanism.reached < self.voters.reached:
            advice = "one person moves so many votes"
            checks.fail("mechanism.reached", self.mechanism.reached, f"at least {self.voters.reached}", advice)
        if getattr(self.mechanism, "noise", "discrete") == "continuous":
            checks.fail("mechanism.noise", "continuous", "discrete", "continuous noise is for experiments")

    @property
    def guarantee(self) -> PrivacyParams | RenyiCurve:
        """What one answer satisfies, whatever the votes."""
        return self.mechanism.guarantee

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
        if not self.voters.are_private_models:
            return charge
        plain = Voters(self.voters.K, PrivacyParams("inf"), overlap=self.voters.overlap)
        return replace(charge, for_plain_voters=(replace(charge.kind, voters=plain, alone=False),))

    def release(self, votes: Votes, *, rng: np.random.Generator | None = None) -> Labels:
        """Release one class for each query, as `Aggregator.release`; the votes are those of K voters on C classes.

        Votes may be missing, where that was allowed: each release tosses coins, or dice, of its own for these.
        """
        given = require_votes(votes.completed(rng=rng) if isinstance(votes, Votes) else votes).of_voters(self.voters.K)
        if len(given.classes) != self.classes:
            checks.fail("votes", checks.Found(f"{len(given.classes)} classes"), f"about C = {self.classes} classes")
        return self.mechanism.release(given, rng=rng)

    def to_json(self) -> Document:
        """Write it as plain data, the parameter as the decimal that it is; ``darrm/schemas/release.json``."""
        kind, holder = type(self.mechanism).__name__, getattr(self.mechanism, "noise", None)
        holder = holder if isinstance(holder, ShapedNoise) else self.mechanism
        parameters = {name: repr(float(getattr(holder, name))) for name in _KINDS[kind][1]}
        return {
            "format": FORMAT,
            "version": VERSION,
            "voters": self.voters.to_json(),
            "classes": self.classes,
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
            mechanism = cls(kind(*values, reached=stored["reached"]), given, data["classes"])
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
