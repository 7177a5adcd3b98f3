"""What an audit asks of everything that answers, a table or a mechanism, to judge its costs."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Generic, Protocol, Self, TypeVar

from darrm.losses.charges import Charge
from darrm.mechanisms.noisy_maximum import NoisyMaximum
from darrm.mechanisms.release import Release
from darrm.pate.files import Released
from darrm.pate.tested import TestedRun
from darrm.privacy import PrivacyParams
from darrm.problem import Voters
from darrm.proof.table import Table
from darrm.verify.drawn import (
    exact_deltas,
    is_directed,
    of_convexity,
    renyi_of_laws,
    through_certain,
)
from darrm.verify.exact import Enclosure, Laws
from darrm.verify.noisy_labels import Between


class Recomputed(Protocol):
    """Computes anew what one answer costs."""

    def renyi(self, order: float, enough: float = 0.0) -> Between | None:
        """Enclose the Rényi divergence of a label at an order, no closer than is enough; None where it takes long."""

    def deltas(
        self, epsilons: Sequence[Fraction], enough: Sequence[float] = (), *, back: bool = False
    ) -> list[Enclosure] | None:
        """Enclose the smallest δ of one label for each ε, no closer than is enough; None where it takes too long.

        Where people are drawn by coins, of both directions, or of the one that costs less, from without to with him.
        """

    def for_plain_voters(self, overlap: int) -> Self:
        """Compute the same for a person who reaches so many voters about whom nothing is promised."""


class Costs(Recomputed, Protocol):
    """Computes anew what one answer of a table or mechanism among the files costs."""

    @property
    def aggregator(self) -> Released:
        """What releases."""

    @property
    def voters(self) -> Voters:
        """Whose votes it is for."""

    @property
    def classes(self) -> int:
        """How many different labels there can be."""

    def cost(self, *, voters: Voters | None = None, exact: bool | None = None) -> Charge:
        """Describe what a query costs; `ValueError` for voters of whom it is not proved."""

    def in_words(self, labels: str) -> str:
        """Say what one of the labels tells."""


Priced = tuple[Charge, Recomputed | None]  # what was charged, and what answered, where it is known


@dataclass(frozen=True, eq=False)
class OfTable:
    """What the exact costs of all tables share."""

    table: Table
    overlap: int | None = None  # where voters are taken for plain ones: how many of them a person reaches

    @property
    def aggregator(self) -> Release:
        """What releases from it."""
        return Release(self.table)

    @property
    def voters(self) -> Voters:
        """Whose votes it is for."""
        proved = self.table.problem.voters
        return proved if self.overlap is None else Voters(proved.K, PrivacyParams("inf"), self.overlap)

    @property
    def classes(self) -> int:
        """How many different labels there can be."""
        return self.table.problem.classes

    def certain_deltas(self, epsilons: Sequence[Fraction]) -> list[Enclosure] | None:
        """Enclose the smallest δ for a person who certainly takes part; None if there are too many neighbors."""
        raise NotImplementedError

    def certain_renyi(self, order: float) -> Between | None:
        """Enclose the Rényi divergence for a person who certainly takes part; None if there are too many neighbors."""
        raise NotImplementedError

    def laws(self) -> tuple[list[Laws], int] | None:
        """List the laws of a label on all neighboring votes, and their unit; None if there are too many."""
        raise NotImplementedError

    def for_plain_voters(self, overlap: int) -> Self:
        """Compute the same for a person who reaches so many voters about whom nothing is promised."""
        return replace(self, overlap=overlap)

    def deltas(
        self, epsilons: Sequence[Fraction], enough: Sequence[float] = (), *, back: bool = False
    ) -> list[Enclosure] | None:
        """Enclose the smallest δ of one label for each ε; None if there are too many neighbors."""
        sampling = self.voters.sampled
        if sampling is None:
            return self.certain_deltas(epsilons)
        if (laws := self.laws()) is None:
            return through_certain(lambda one, _: self.certain_deltas(one), sampling, epsilons, enough, back=back)
        return exact_deltas(*laws, sampling, epsilons, back=back)

    def renyi(self, order: float, enough: float = 0.0) -> Between | None:  # noqa: ARG002
        """Enclose the Rényi divergence of a label at an order; None if there are too many neighbors."""
        sampling = self.voters.sampled
        laws = self.laws() if is_directed(sampling) else None
        if sampling is not None and laws is not None:
            return renyi_of_laws(*laws, sampling, order)
        certain = self.certain_renyi(order)
        return certain if sampling is None or certain is None else of_convexity(certain, sampling, order)


M = TypeVar("M", NoisyMaximum, TestedRun)


@dataclass(frozen=True, eq=False)
class OfMechanism(Generic[M]):
    """What the exact costs of mechanisms and of tested runs share."""

    mechanism: M

    @property
    def aggregator(self) -> M:
        """What releases."""
        return self.mechanism

    @property
    def voters(self) -> Voters:
        """Whose votes it is for."""
        return self.mechanism.voters

    @property
    def classes(self) -> int:
        """How many different labels there can be."""
        return self.mechanism.classes

    def cost(self, *, voters: Voters | None = None, exact: bool | None = None) -> Charge:  # noqa: ARG002 (as of tables)
        """Describe what a query costs; `ValueError` for voters that it is not for."""
        if voters not in {None, self.voters}:
            raise ValueError("it is for other voters")
        return self.mechanism.charge()

    def for_plain_voters(self, overlap: int) -> Self:
        """Return itself: what it costs holds for all votes, where a person moves no more of them."""
        reached = self.mechanism.mechanism.reached
        if overlap > reached:
            raise ValueError(f"a person moves {reached} votes at most, and reaches {overlap}")
        return self
