"""The privacy cost of a query: all known bounds, the voters they hold for, and the number of queries.

A cost for private voters requires fresh randomness for every query. For private *models* it covers one query only,
because answers share the randomness of training. Several queries use the cost of the same release for non-private
voters. Given the models that a person does not influence, the person moves at most t votes of each query. The coins of
queries are independent, so these costs compose.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from operator import attrgetter

from darrm.loss.profile import PrivacyProfile
from darrm.loss.renyi import RenyiCurve
from darrm.privacy import PrivacyParams
from darrm.problem import Voters
from darrm.subsampling import Subsampling
from darrm.util import checks
from darrm.util.files import Document, Json


@dataclass(frozen=True)
class Sample:
    """A label of a random sample of the voters, drawn independently of the votes."""

    voters: int  # the size of the sample
    distance: float  # total variation from the label of a sample of this size, for all votes

    def __post_init__(self) -> None:
        checks.integer_at_least(1, voters=self.voters)
        checks.probability(distance=self.distance)


PRIVATE_TOTAL = "the total stays private"
ESTIMATED_TOTAL = "the total is an estimate about the data at hand"


@dataclass(frozen=True)
class PrivacyCost:
    """The privacy cost of ``count`` queries of one kind; all given bounds hold at once.

    Parameters
    ----------
    what
        The mechanism, for reports; costs of one kind may differ in it.
    guarantee, renyi, profile
        (ε, δ), Rényi curve, and δ as a function of ε, of one query; at least one.
    count
        The number of queries, at least 1.
    data_dependent
        Whether the cost was computed from private data: `PrivacyAccountant.add` needs ``consent``, `PRIVATE_TOTAL` or,
        if published, `ESTIMATED_TOTAL`. A ledger keeps it only after publication.
    failure_probability
        The largest probability that a published figure is too small, 1 if unknown; None for unpublished ones.
    voters, reached
        The voters of the proof, and how many of them a person may influence; None if unknown.
    for_non_private_voters
        The same query for non-private voters at each overlap: the basis for several answers of private models.
    sample
        The sample of voters behind each label: another bound for several answers of private models.
    non_composable
        Whether the proof covers one query only: always for private models.
    labels
        The largest number of labels of one query.
    table
        The digest of the proven table or of a mechanism's file, or empty.
    sampling
        The subsampling of a person's examples, as in ``voters``: other neighbors, never added to other costs.
        ``Subsampling.of(1)`` is for adding or removing a person, None for changed answers.
    vanishing
        A bound on the probability of strings that only one of two neighboring data sets contains, taken from δ
        (`darrm.noisy_max.noisy_maximum`); the other bounds cover the remaining outcomes.

    Examples
    --------
    >>> from darrm.privacy import PrivacyParams
    >>> one = PrivacyCost("majority of 11", guarantee=PrivacyParams(0.3, 3e-5))
    >>> one.repeat(20).repeat(5)
    PrivacyCost(what='majority of 11', guarantee=PrivacyParams(epsilon=0.3, delta=0.00003), count=100)
    >>> one.repeat(7).kind == one
    True
    """

    what: str = field(compare=False)
    guarantee: PrivacyParams | None = None
    renyi: RenyiCurve | None = None
    profile: PrivacyProfile | None = None
    count: int = 1
    data_dependent: bool = False
    failure_probability: float | None = None
    consent: str = field(default="", compare=False)
    voters: Voters | None = field(default=None, compare=False)
    reached: int | None = field(default=None, compare=False)
    for_non_private_voters: tuple[PrivacyCost, ...] = ()
    sample: Sample | None = None
    non_composable: bool = False
    labels: int = 1
    table: str = field(default="", compare=False)
    sampling: Subsampling | None = None
    vanishing: float = 0.0
    # costs of one kind have the same models and the same overlaps
    models: Voters | None = field(default=None, init=False)
    overlaps: tuple[int | None, ...] = field(default=(), init=False, repr=False)

    def __post_init__(self) -> None:
        checks.integer_at_least(1, count=self.count, advice="a cost is for at least one query")
        checks.integer_at_least(1, labels=self.labels)
        checks.probability(vanishing=self.vanishing)
        checks.instance(bool, non_composable=self.non_composable)
        if self.guarantee is not None:
            object.__setattr__(self, "guarantee", PrivacyParams.of(self.guarantee, "guarantee"))
        if self.voters is not None:
            checks.instance(Voters, voters=self.voters)
            object.__setattr__(self, "reached", self.voters.reached)
            object.__setattr__(self, "models", self.voters if self.voters.are_private_models else None)
            object.__setattr__(self, "sampling", self.voters.sampled)
            object.__setattr__(self, "non_composable", self.non_composable or self.models is not None)
        for cost in self.for_non_private_voters:
            is_valid = cost.voters is not None and cost.voters.are_non_private and not cost.non_composable
            if self.models is None or not is_valid or cost.count != 1:
                raise ValueError(
                    "for_non_private_voters must contain costs of one query for non-private voters, for private models"
                )
        object.__setattr__(self, "overlaps", tuple(cost.reached for cost in self.for_non_private_voters))
        if self.reached is not None:
            checks.integer_at_least(
                1, reached=self.reached, advice="the number of voters that a person influences, or None"
            )
        if self.failure_probability is not None:
            checks.probability(failure_probability=self.failure_probability)
            if not self.data_dependent:
                raise ValueError("failure_probability needs data_dependent=True: it is for published costs")
        if self.guarantee is None and self.renyi is None and self.profile is None:
            raise ValueError("a cost needs at least one of guarantee, renyi and profile")

    @property
    def kind(self) -> PrivacyCost:
        """The same cost for one query."""
        return replace(self, count=1)

    def repeat(self, times: int) -> PrivacyCost:
        """Return the cost of ``times`` as many queries."""
        checks.integer_at_least(1, times=times)
        return replace(self, count=self.count * int(times))

    @property
    def neighbors(self) -> str:
        """The difference between neighboring data sets; costs for different neighbors never add up."""
        return describe_neighbors(self.sampling)

    @property
    def consent_needed(self) -> str:
        """The consent that an account needs, or ""."""
        if not self.data_dependent:
            return ""
        return PRIVATE_TOTAL if self.failure_probability is None else ESTIMATED_TOTAL

    @property
    def least_delta(self) -> float:
        """The smallest δ with a bound for one query, without ``vanishing``."""
        deltas = [] if self.renyi is None else [0.0]
        deltas += [] if self.guarantee is None else [self.guarantee.delta]
        deltas += [] if self.profile is None else [self.profile.deltas[-1]]
        return min(*deltas, 1.0 - 2.0**-53)

    @property
    def promise(self) -> tuple[bool, int]:
        """A sort key of costs of one kind: weaker statements first."""
        return self.voters is None or self.voters.are_non_private, self.reached or 0

    def with_non_private_voters(self, overlap: int) -> PrivacyCost | None:
        """Return the cost for non-private voters and an overlap; None if unknown."""
        is_unrestricted = self.voters is None or self.voters.are_non_private
        has_own_cost = is_unrestricted and not self.non_composable and self.sampling is None
        costs = ((self,) if has_own_cost else ()) + self.for_non_private_voters
        candidates = [cost for cost in costs if cost.reached is not None and cost.reached >= overlap]
        if not candidates:
            return None
        closest = min(candidates, key=attrgetter("reached"))
        return closest if closest is self else closest.repeat(self.count)

    def to_text(self) -> str:
        """Return canonical JSON of one query, without ``what``."""
        return json.dumps(self.to_json(), sort_keys=True, separators=(",", ":"))

    def to_json(self) -> Document:
        """Return the cost of one query, without ``what``."""
        params, curve, profile = self.guarantee, self.renyi, self.profile
        document: Document = {
            "guarantee": None if params is None else [params.epsilon_text, params.delta_text],
            # repr of a float reads back as the same float, and so does JSON's Infinity
            "renyi": None if curve is None else [curve.orders.tolist(), curve.values.tolist()],
            "profile": None if profile is None else [list(part) for part in profile.parts],
        }
        # optional fields are written only if set, so that equal costs have equal texts
        if self.failure_probability is not None:
            document["estimate"] = [self.failure_probability, self.consent]
        if self.non_composable:
            document["composes"] = False
        if self.labels > 1:
            document["labels"] = self.labels
        if self.sampling is not None:
            document["sampled"] = self.sampling.to_json()
        if self.vanishing:
            document["vanishing"] = self.vanishing
        if self.models is not None:
            document["voters"] = self.models.to_json()
            plain_costs = self.for_non_private_voters
            if self.sample is not None:
                document["sample"] = [self.sample.voters, self.sample.distance]
            document["plain"] = [[cost.reached, cost.to_json()] for cost in plain_costs]
        return document

    @classmethod
    def from_text(cls, text: str, *, what: str) -> PrivacyCost:
        """Read `to_text`; `ValueError` if it is no cost."""
        try:
            return cls._read(json.loads(text), what)
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"this is no stored cost: {error}") from error

    @classmethod
    def _read(cls, document: Json, what: str, voters: Voters | None = None) -> PrivacyCost:
        params, curve, profile = document["guarantee"], document["renyi"], document["profile"]
        models = Voters.from_json(document["voters"]) if "voters" in document else voters
        plain_costs = [
            cls._read(entry, what, Voters(models.K, PrivacyParams("inf"), overlap=reached))
            for reached, entry in document.get("plain", ())
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
            failure_probability=None if estimate is None else estimate[0],
            consent="" if estimate is None else estimate[1],
            voters=models,
            for_non_private_voters=tuple(plain_costs),
            sample=Sample(*document["sample"]) if "sample" in document else None,
            non_composable=not composes,
            labels=document.get("labels", 1),
            sampling=Subsampling.from_json(document["sampled"]) if "sampled" in document else None,
            vanishing=document.get("vanishing", 0.0),
        )

    def __repr__(self) -> str:
        descriptions = [
            f"{name}={value!r}" if name == "guarantee" else f"{name}=…"
            for name, value in (("guarantee", self.guarantee), ("renyi", self.renyi), ("profile", self.profile))
            if value is not None
        ]
        models = ""
        if self.models is not None:
            models = f", voters={self.models}"
        elif self.non_composable:
            models = ", non_composable=True"
        return f"PrivacyCost(what={self.what!r}, {', '.join(descriptions)}, count={self.count}{models})"


def describe_neighbors(sampling: Subsampling | None) -> str:
    return (
        "change one person's answers"
        if sampling is None
        else f"{sampling.neighbors}, with examples resampled for each question"
    )
