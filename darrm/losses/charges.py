"""What a release costs: a charge describes one query by every bound that is known about it, and a count repeats it."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace

from darrm import checks
from darrm.losses.profile import PrivacyProfile
from darrm.losses.renyi import RenyiCurve
from darrm.privacy import PrivacyParams


@dataclass(frozen=True)
class Charge:
    """The privacy cost of ``count`` queries of one kind.

    All descriptions hold at once; the accountant uses whichever gives the smallest total.

    Parameters
    ----------
    what
        The mechanism in words, for reports; charges that differ in it alone are of one kind.
    guarantee
        (ε, δ) of one query.
    renyi
        Rényi curve of one query.
    profile
        δ as a function of ε for one query.
    count
        How many queries, at least 1.
    data_dependent
        True where the cost was computed from the private data and not sanitized: it is then private data itself, and
        `PrivacyAccountant.add` refuses it unless told in words that the total stays private.
    composes
        False where one query alone is proved, so that the costs of several do not add up: answers of private models
        share the randomness of their training.
    reached
        Holds for a person who reaches at most so many voters; None says nothing about them.
    table
        The digest of the proven table that answers, `darrm.proof.table.GammaTable.digest`; empty where there is none.

    Raises
    ------
    ValueError
        If no description is given, or ``count`` or ``reached`` is no positive integer.

    Examples
    --------
    >>> from darrm.privacy import PrivacyParams
    >>> one = Charge("majority of 11", guarantee=PrivacyParams(0.3, 3e-5))
    >>> one.repeated(20).repeated(5)
    Charge(what='majority of 11', guarantee=PrivacyParams(epsilon=0.3, delta=0.00003), count=100)
    >>> one.repeated(7).kind == one
    True
    """

    what: str = field(compare=False)
    guarantee: PrivacyParams | None = None
    renyi: RenyiCurve | None = None
    profile: PrivacyProfile | None = None
    count: int = 1
    data_dependent: bool = False
    composes: bool = True
    reached: int | None = field(default=None, compare=False)
    table: str = field(default="", compare=False)

    def __post_init__(self) -> None:
        checks.integer_at_least(1, count=self.count, advice="a charge of no query is no charge")
        checks.instance(bool, composes=self.composes)
        if self.reached is not None:
            checks.integer_at_least(1, reached=self.reached, advice="how many voters a person reaches, or None")
        if self.guarantee is None and self.renyi is None and self.profile is None:
            raise ValueError("a charge needs at least one of guarantee, renyi and profile: a cost that nothing bounds")

    @property
    def kind(self) -> Charge:
        """The same charge for one query; charges of one kind are counted together."""
        return replace(self, count=1)

    def repeated(self, times: int) -> Charge:
        """Charge ``times`` times as many queries."""
        checks.integer_at_least(1, times=times)
        return replace(self, count=self.count * int(times))

    def to_text(self) -> str:
        """Write the cost of one query, without its words and its count, as canonical JSON: equal costs, equal texts.

        >>> Charge("majority", guarantee=PrivacyParams(0.3, 3e-5), count=7).to_text()
        '{"guarantee":["0.3","0.00003"],"profile":null,"renyi":null}'
        """
        params, curve, profile = self.guarantee, self.renyi, self.profile
        document = {
            "guarantee": None if params is None else [params.epsilon_text, params.delta_text],
            # repr of a float reads back as the same float, and so does JSON's Infinity
            "renyi": None if curve is None else [curve.orders.tolist(), curve.values.tolist()],
            "profile": None if profile is None else [list(profile.epsilons), list(profile.deltas)],
            # written where it is said only: charges that were stored before there was this word keep their text
            **({} if self.composes else {"composes": False}),
        }
        return json.dumps(document, sort_keys=True, separators=(",", ":"))

    @classmethod
    def from_text(cls, text: str, *, what: str) -> Charge:
        """Read what `to_text` wrote.

        `ValueError` if the text is no charge.
        """
        document = json.loads(text)
        try:
            params, curve, profile = document["guarantee"], document["renyi"], document["profile"]
            return cls(
                what,
                guarantee=None if params is None else PrivacyParams(*params),
                renyi=None if curve is None else RenyiCurve(*curve),
                profile=None if profile is None else PrivacyProfile(*map(tuple, profile)),
                composes=document.get("composes", True),
            )
        except (KeyError, TypeError) as error:
            raise ValueError(f"this is no stored charge: {error}") from error

    def __repr__(self) -> str:
        known = [
            f"{name}={value!r}" if name == "guarantee" else f"{name}=…"
            for name, value in (("guarantee", self.guarantee), ("renyi", self.renyi), ("profile", self.profile))
            if value is not None
        ]
        alone = "" if self.composes else ", composes=False"
        return f"Charge(what={self.what!r}, {', '.join(known)}, count={self.count}{alone})"
