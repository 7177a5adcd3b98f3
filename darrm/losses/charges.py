"""What a release costs: a charge describes one query by every bound that is known about it, and a count repeats it.

A charge says for whom it was proved. One for private voters holds where they draw fresh randomness at every query; for
private *models* it holds for one query alone, because their answers share the randomness of their training. What is
known of several queries starts from the description of the same release for plain voters, voters about whom nothing is
promised: given the models that a person does not reach, all queries are about votes of which the person moves at most
t, and every query tosses coins of its own, so these descriptions compose.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace

from darrm.errors import checks
from darrm.losses.profile import PrivacyProfile
from darrm.losses.renyi import RenyiCurve
from darrm.privacy import PrivacyParams
from darrm.problem import Voters
from darrm.sampling import Sampling
from darrm.system.files import Document, Json


@dataclass(frozen=True)
class Sample:
    """A label looks at few voters only, drawn without looking at the votes; see `darrm.proof.sample`."""

    voters: int  # how many are drawn
    distance: float  # total variation from a label that looks at so many, whatever the votes

    def __post_init__(self) -> None:
        checks.integer_at_least(1, voters=self.voters)
        checks.probability(distance=self.distance)


PRIVATE_TOTAL = "the total stays private"
ESTIMATED_TOTAL = "the total is an estimate about the data at hand"


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
        True where the cost was computed from the private data: it is about these data only, and no guarantee.
        `PrivacyAccountant.add` refuses it without consent in words, and no ledger keeps it unless it was published.
    understated
        Of a data-dependent cost that was published with noise, the probability that the figure is too small; None
        where it was not published and is private data itself.
    consent
        `PRIVATE_TOTAL`, or `ESTIMATED_TOTAL` for a published figure, of whoever adds a data-dependent cost.
    voters
        Whom the descriptions were proved for; None where that is not known, or where they hold whatever the voters are
        for a person who reaches at most ``reached`` of them.
    reached
        Holds for a person who reaches at most so many voters: those of ``voters`` where these are given; None says
        nothing about them.
    for_plain_voters
        The same query for voters about whom nothing is promised, one charge for each overlap: what several answers of
        private models are counted by.
    sample
        Of how many voters each label is, where these are few: another way to bound several answers of private models.
    alone
        True where one query is proved and no more is known: always so for private models, and for those that a ledger
        kept before charges named their voters.
    labels
        How many labels one query's charge pays for, at most: more than 1 for a run that is charged as a whole.
    table
        The digest of the proven table that answers, `darrm.proof.table.Table.digest`, or of a mechanism's file; empty
        where there is none.
    sampling
        How a person comes into a query, where voters draw their examples anew for each: the costs are about neighbors
        that differ in this way, and never added to others. That of ``voters`` where these are given.
    vanishing
        The probability, at most, with which a query's label is a string that only one of two neighboring data sets
        contains, `darrm.losses.vanishing`: the account pays it from δ, and the other descriptions are about the rest.

    Raises
    ------
    ValueError
        If no description is given, ``count`` or ``reached`` is no positive integer, or ``for_plain_voters`` holds
        something else.

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
    understated: float | None = None
    consent: str = field(default="", compare=False)
    voters: Voters | None = field(default=None, compare=False)
    reached: int | None = field(default=None, compare=False)
    for_plain_voters: tuple[Charge, ...] = ()
    sample: Sample | None = None
    alone: bool = False
    labels: int = 1
    table: str = field(default="", compare=False)
    sampling: Sampling | None = None
    vanishing: float = 0.0
    # costs are of one kind only if they are about the same models, and known for the same plain voters
    models: Voters | None = field(default=None, init=False)
    overlaps: tuple[int | None, ...] = field(default=(), init=False, repr=False)

    def __post_init__(self) -> None:
        checks.integer_at_least(1, count=self.count, advice="a charge of no query is no charge")
        checks.integer_at_least(1, labels=self.labels)
        checks.probability(vanishing=self.vanishing)
        checks.instance(bool, alone=self.alone)
        if self.guarantee is not None:
            checks.instance(PrivacyParams, guarantee=self.guarantee, advice="say PrivacyParams(epsilon, delta)")
        if self.voters is not None:
            checks.instance(Voters, voters=self.voters)
            object.__setattr__(self, "reached", self.voters.reached)
            object.__setattr__(self, "models", self.voters if self.voters.are_private_models else None)
            object.__setattr__(self, "sampling", self.voters.sampled)
            object.__setattr__(self, "alone", self.alone or self.models is not None)
        for plain in self.for_plain_voters:
            described = plain.voters is not None and plain.voters.are_plain and not plain.alone
            if self.models is None or not described or plain.count != 1:
                raise ValueError("for_plain_voters holds one query each for plain voters, beside one of private models")
        object.__setattr__(self, "overlaps", tuple(plain.reached for plain in self.for_plain_voters))
        if self.reached is not None:
            checks.integer_at_least(1, reached=self.reached, advice="how many voters a person reaches, or None")
        if self.understated is not None:
            checks.probability(understated=self.understated)
            if not self.data_dependent:
                raise ValueError("understated is said of a data-dependent cost that was published: data_dependent=True")
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

    @property
    def consent_needed(self) -> str:
        """What whoever adds it has to say; empty for a guarantee."""
        if not self.data_dependent:
            return ""
        return PRIVATE_TOTAL if self.understated is None else ESTIMATED_TOTAL

    @property
    def promise(self) -> tuple[bool, int]:
        """Orders charges of one kind by whom they hold for: the smaller says less about votes."""
        return self.voters is None or self.voters.are_plain, self.reached or 0

    def as_for_plain_voters(self, overlap: int) -> Charge | None:
        """Describe the same queries for a person who reaches so many voters about whom nothing is promised, if known.

        >>> from darrm.privacy import PrivacyParams
        >>> pate = Charge("GNMax", guarantee=PrivacyParams(1), reached=1, count=5)
        >>> pate.as_for_plain_voters(1) is pate, pate.as_for_plain_voters(2)
        (True, None)
        """
        proved_for_votes = not self.alone and (self.voters is None or self.voters.are_plain) and self.sampling is None
        known = ((self,) if proved_for_votes else ()) + self.for_plain_voters
        fitting = [charge for charge in known if charge.reached is not None and charge.reached >= overlap]
        if not fitting:
            return None
        closest = min(fitting, key=lambda charge: charge.reached or 0)
        return closest if closest is self else closest.repeated(self.count)

    def to_text(self) -> str:
        """Write the cost of one query, without its words and its count, as canonical JSON: equal costs, equal texts.

        >>> Charge("majority", guarantee=PrivacyParams(0.3, 3e-5), count=7).to_text()
        '{"guarantee":["0.3","0.00003"],"profile":null,"renyi":null}'
        """
        return json.dumps(self._document(), sort_keys=True, separators=(",", ":"))

    def _document(self) -> Document:
        params, curve, profile = self.guarantee, self.renyi, self.profile
        document: Document = {
            "guarantee": None if params is None else [params.epsilon_text, params.delta_text],
            # repr of a float reads back as the same float, and so does JSON's Infinity
            "renyi": None if curve is None else [curve.orders.tolist(), curve.values.tolist()],
            "profile": None if profile is None else [list(part) for part in profile.parts],
        }
        # written where they are said only: charges that were stored before there were these words keep their text
        if self.understated is not None:
            document["estimate"] = [self.understated, self.consent]
        if self.alone:
            document["composes"] = False
        if self.labels > 1:
            document["labels"] = self.labels
        if self.sampling is not None:
            document["sampled"] = self.sampling.to_json()
        if self.vanishing:
            document["vanishing"] = self.vanishing
        if self.models is not None:
            document["voters"] = self.models.to_json()
            plain = self.for_plain_voters
            if self.sample is not None:
                document["sample"] = [self.sample.voters, self.sample.distance]
            document["plain"] = [[one.reached, one._document()] for one in plain]  # noqa: SLF001 (of its own class)
        return document

    @classmethod
    def from_text(cls, text: str, *, what: str) -> Charge:
        """Read what `to_text` wrote.

        `ValueError` if the text is no charge.
        """
        try:
            return cls._read(json.loads(text), what)
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"this is no stored charge: {error}") from error

    @classmethod
    def _read(cls, document: Json, what: str, voters: Voters | None = None) -> Charge:
        params, curve, profile = document["guarantee"], document["renyi"], document["profile"]
        models = Voters.from_json(document["voters"]) if "voters" in document else voters
        plain = [
            cls._read(inner, what, Voters(models.K, PrivacyParams("inf"), overlap=reached))
            for reached, inner in document.get("plain", ())
            if models is not None
        ]
        composes, estimate = document.get("composes", True), document.get("estimate")
        checks.instance(bool, composes=composes)
        return cls(
            what,
            guarantee=None if params is None else PrivacyParams(*params),
            renyi=None if curve is None else RenyiCurve(*curve),
            profile=None if profile is None else PrivacyProfile(*map(tuple, profile)),
            data_dependent=estimate is not None,
            understated=None if estimate is None else estimate[0],
            consent="" if estimate is None else estimate[1],
            voters=models,
            for_plain_voters=tuple(plain),
            sample=Sample(*document["sample"]) if "sample" in document else None,
            alone=not composes,
            labels=document.get("labels", 1),
            sampling=Sampling.from_json(document["sampled"]) if "sampled" in document else None,
            vanishing=document.get("vanishing", 0.0),
        )

    def __repr__(self) -> str:
        known = [
            f"{name}={value!r}" if name == "guarantee" else f"{name}=…"
            for name, value in (("guarantee", self.guarantee), ("renyi", self.renyi), ("profile", self.profile))
            if value is not None
        ]
        models = f", voters={self.models}" if self.models is not None else ", alone=True" if self.alone else ""
        return f"Charge(what={self.what!r}, {', '.join(known)}, count={self.count}{models})"
